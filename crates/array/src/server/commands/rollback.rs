//! Rolling a spread volume back to a snapshot, on all its shards or on none.
//!
//! A part that shows the snapshot beside one that does not would be a volume that never was. So the
//! first shard notes down what is meant before any part changes, and forgets it when all have
//! changed. What a crash or a failure cuts off is carried out again at the next opening, or when
//! the command is given again. Until then the volume is shut: nothing is read or written, so that
//! nothing is acknowledged which the second attempt would undo. Where the snapshot lacks a part,
//! since an opening accepted a loss, the volume stays shut until it is rolled back to another one
//! or deleted.

use stele_ground::VolumeId;

use super::{Coordinator, Known, Shards};
use crate::model::{ArrayError, Command, Reply};

impl<S: Shards> Coordinator<'_, S> {
    pub(super) fn roll_back(&self, volume: &str, snapshot: &str) -> Result<Reply, ArrayError> {
        let known = self.complete(volume)?;
        if known.shards == 1 {
            let command = Command::RollBackVolume { volume: volume.to_owned(), snapshot: snapshot.to_owned() };
            return self.shards.ask(0, command);
        }
        let of = self.complete(snapshot)?;
        // The shards would refuse these, too, but only when it is noted down that they should not.
        if !of.whole.snapshot || of.whole.origin.as_deref() != Some(volume) {
            return Err(ArrayError::Invalid(format!(
                "'{snapshot}' is no snapshot of volume '{volume}'; `stele volume list` shows which are"
            )));
        }
        if let Some(owner) = &known.whole.spec.owner {
            return Err(ArrayError::Refused(format!(
                "volume '{volume}' belongs to '{owner}' and is never rolled back: what its owner has promised since \
                 would be undone"
            )));
        }
        let statuses = self.statuses()?;
        if statuses.iter().any(|shard| shard.read_only) {
            return Err(ArrayError::Degraded(format!(
                "volume '{volume}' is not rolled back: some shard takes no changes; return drives, and try again"
            )));
        }
        self.refuse_second(volume, statuses[0].rolling_back)?;
        let mut rolled_back = Ok(());
        self.shards.without_writes(known.whole.id, &mut || rolled_back = self.roll_parts_back(&known, &of));
        rolled_back?;
        self.shown(volume)
    }

    /// There is one note: that of another volume would be lost, and its parts served as they are.
    fn refuse_second(&self, volume: &str, noted: Option<VolumeId>) -> Result<(), ArrayError> {
        let all = self.all()?;
        let is_shut = |known: &&Known| known.is_complete() && known.whole.spec.name != volume;
        let Some(other) = noted.and_then(|noted| meant(&all, noted)).filter(is_shut) else { return Ok(()) };
        let other = &other.whole.spec.name;
        Err(ArrayError::Refused(format!(
            "the rollback of volume '{other}' was cut off: give that command again first, or roll '{other}' back to \
             another snapshot"
        )))
    }

    fn roll_parts_back(&self, known: &Known, of: &Known) -> Result<(), ArrayError> {
        let (volume, snapshot) = (&known.whole.spec.name, &of.whole.spec.name);
        let was_shut = self.registry.is_shut(known.whole.id);
        let mut changed = false;
        let mut roll_back = || {
            self.note(Some(of.whole.id))?;
            for (shard, _) in known.parts.iter().rev() {
                let (volume, snapshot) = (volume.clone(), snapshot.clone());
                let answer = self.shards.ask(*shard, Command::RollBackVolume { volume, snapshot });
                // After any other failure the part may show the snapshot at the next opening.
                changed |=
                    !matches!(answer, Err(ArrayError::Invalid(_) | ArrayError::Refused(_) | ArrayError::Full(_)));
                answer?;
            }
            Ok(())
        };
        let tried: Result<(), ArrayError> = roll_back();
        let is_one_state = tried.is_ok() || !changed && !was_shut;
        let forgotten = if is_one_state { self.note(None) } else { Ok(()) };
        if is_one_state && forgotten.is_ok() {
            self.registry.open(known.whole.id);
            self.registry.end_incomplete(volume);
            return tried;
        }
        self.registry.shut(known.whole.id);
        self.registry.note_incomplete(volume, Some(snapshot.clone()));
        let why = tried.and(forgotten).err().map_or_else(String::new, |error| error.to_string());
        Err(ArrayError::Degraded(format!(
            "the rollback of volume '{volume}' to '{snapshot}' was cut off: {why}. The volume is shut; return drives \
             that are away and give the command again, or start the server again"
        )))
    }

    fn note(&self, snapshot: Option<VolumeId>) -> Result<(), ArrayError> {
        self.shards.ask(0, Command::NoteRollback { snapshot }).map(drop)
    }

    /// Finishes what was cut off; shuts the volume where that cannot be. A shard that takes no
    /// changes fails no opening.
    pub(super) fn finish_rollback(&self, noted: VolumeId, may_change: bool) -> Result<(), ArrayError> {
        let all = self.all()?;
        let Some(of) = all.iter().find(|known| known.whole.id == noted) else {
            // The first shard has lost it, as an opening accepted.
            tracing::warn!("a rollback was cut off whose snapshot is gone; its volume stays as it is");
            if may_change {
                self.end_note();
            }
            return Ok(());
        };
        // One that lacks a part cannot be read anyway.
        let Some(known) = meant(&all, noted).filter(|known| known.is_complete()) else { return Ok(()) };
        self.registry.shut(known.whole.id);
        if may_change && of.whole.snapshot && of.is_complete() {
            if let Err(error) = self.roll_parts_back(known, of) {
                tracing::warn!("{error}");
            }
        } else {
            let snapshot = of.whole.snapshot.then(|| of.whole.spec.name.clone());
            self.registry.note_incomplete(&known.whole.spec.name, snapshot);
        }
        Ok(())
    }

    /// Called before a snapshot or volume goes. Refuses for a snapshot that a rollback needs which
    /// was cut off. Where that snapshot lacks a part, no rollback to it can be finished: the volume
    /// is noted in its place, and stays shut. Returns true where the note ends with what goes.
    pub(super) fn release(&self, going: &Known) -> Result<bool, ArrayError> {
        let statuses = self.statuses()?;
        if statuses[0].rolling_back != Some(going.whole.id) {
            return Ok(false);
        }
        let (all, name) = (self.all()?, &going.whole.spec.name);
        let shut = meant(&all, going.whole.id).filter(|volume| going.whole.snapshot && volume.is_complete());
        let Some(volume) = shut else { return Ok(true) };
        if going.is_complete() {
            return Err(ArrayError::Refused(format!(
                "the rollback of its volume to '{name}' was cut off: give that command again first"
            )));
        }
        if statuses.iter().any(|shard| shard.read_only) {
            return Err(ArrayError::Degraded(format!(
                "snapshot '{name}' is not deleted: some shard takes no changes, and may have its part; return drives, \
                 and try again"
            )));
        }
        self.note(Some(volume.whole.id))?;
        self.registry.note_incomplete(&volume.whole.spec.name, None);
        Ok(false)
    }

    /// A note that stays names nothing that is there.
    pub(super) fn end_note(&self) {
        if let Err(error) = self.note(None) {
            tracing::warn!("a rollback stays noted: {error}");
        }
    }
}

/// The volume whose parts differ, by a note: the note names the snapshot that some of them show, or
/// the volume itself.
fn meant(all: &[Known], noted: VolumeId) -> Option<&Known> {
    let of = all.iter().find(|known| known.whole.id == noted)?;
    let is_it = |known: &&Known| of.whole.origin.as_ref() == Some(&known.whole.spec.name);
    if of.whole.snapshot { all.iter().find(is_it) } else { Some(of) }
}
