//! Commands to a pool of several shards, as commands to its shards, one at a time.
//!
//! The first shard says what there is: a volume, snapshot or size exists when the first shard has
//! it. So it is the last to get something new, and the first to lose something. What a crash leaves
//! on the others is put right at the next opening ([`Coordinator::reconcile`]). Nothing of it was
//! ever acknowledged, unless an operator once opened the pool although acknowledged writes may be
//! gone. Then a volume that lacks a part stays, cannot be read, and goes when it is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stele_ground::{Bytes, DriveId, VolumeId};

use super::merge;
use super::registry::{Registry, Unsettled};
use super::striping::Striping;
use crate::formats::shape::check_spec;
use crate::model::{ArrayError, Command, DriveHealth, DriveStatus, PoolStatus, Reply, VolumeSpec, VolumeStatus};

mod rollback;

/// The shards as the coordinator reaches them: threads, or pools of the simulated world.
pub trait Shards {
    fn count(&self) -> usize;
    /// Asks one shard and waits for its answer.
    fn ask(&self, shard: usize, command: Command) -> Result<Reply, ArrayError>;
    /// Asks all shards at once and waits for all answers.
    fn ask_all(&self, command: &Command) -> Vec<Result<Reply, ArrayError>>;
    /// Carries out `work` while no write to the volume is under way.
    fn without_writes(&self, volume: VolumeId, work: &mut dyn FnMut());
}

pub struct Coordinator<'a, S> {
    shards: &'a S,
    registry: &'a Arc<Registry>,
}

/// A volume of the pool, and what each shard says of its part.
struct Known {
    whole: VolumeStatus,
    /// With the shard that has it, in the order of these.
    parts: Vec<(usize, VolumeStatus)>,
    /// How many of them there should be: one for a volume on the first shard alone.
    shards: usize,
}

impl Known {
    fn is_complete(&self) -> bool {
        self.parts.len() == self.shards
    }
}

impl<'a, S: Shards> Coordinator<'a, S> {
    pub fn new(shards: &'a S, registry: &'a Arc<Registry>) -> Coordinator<'a, S> {
        Coordinator { shards, registry }
    }

    pub fn obey(&self, command: Command) -> Result<Reply, ArrayError> {
        match command {
            Command::CreateVolume(spec) => self.create(spec),
            Command::DeleteVolume { name } => self.delete(&name),
            Command::SnapshotVolume { volume, name, made } => self.snapshot(&volume, &name, made),
            Command::CloneSnapshot { snapshot, name } => {
                let make = Command::CloneSnapshot { snapshot: snapshot.clone(), name: name.clone() };
                self.make_parts(self.complete(&snapshot)?.shards, &name, |_| make.clone())
            }
            Command::RollBackVolume { volume, snapshot } => self.roll_back(&volume, &snapshot),
            Command::SetVolume { ref name, .. } => {
                for shard in (0..self.complete(name)?.shards).rev() {
                    self.shards.ask(shard, command.clone())?;
                }
                self.shown(name)
            }
            Command::ResizeVolume { name, size } => self.resize(&name, size),
            Command::Protect { volume, owner, retained } => self.protect(volume, &owner, retained),
            Command::ShowVolume { ref name } => {
                let known = self.known(name)?;
                let mut details = Vec::new();
                for (shard, _) in &known.parts {
                    match self.shards.ask(*shard, command.clone())? {
                        Reply::Detail(detail) => details.push(*detail),
                        other => return Err(odd(&other)),
                    }
                }
                Ok(Reply::Detail(Box::new(merge::details(known.whole, details))))
            }
            Command::ListVolumes => Ok(Reply::Volumes(self.all()?.into_iter().map(|known| known.whole).collect())),
            Command::Status => Ok(Reply::Status(Box::new(merge::statuses(self.statuses()?, self.registry)))),
            Command::ReplaceDrive { old, new, identity, enclosure, give_up } => {
                let on = |shard: &PoolStatus, old: DriveId| {
                    let old = number(shard, old)?;
                    let is_there = shard.drives.iter().any(|drive| drive.is_member() && drive.identity == identity);
                    (!is_there).then_some(Command::ReplaceDrive { old, new, identity, enclosure, give_up })
                };
                self.drive(old, on, command)
            }
            Command::AddDrives { ref drives } => {
                let on = |shard: &PoolStatus| {
                    let lacks = |drive: &&(u32, DriveId)| number(shard, drive.1).is_none();
                    let drives: Vec<(u32, DriveId)> = drives.iter().filter(lacks).copied().collect();
                    (!drives.is_empty()).then_some(Command::AddDrives { drives })
                };
                self.each(&self.statuses()?, on, command.clone())
            }
            Command::RemoveDrive { drive } => self.remove_drive(drive),
            Command::KeepDrive { drive } => {
                self.drive(drive, |shard, id| leaving(shard, id).map(|drive| Command::KeepDrive { drive }), command)
            }
            Command::SetDrive { drive, enclosure } => {
                let on = |shard: &PoolStatus, id| Some(Command::SetDrive { drive: number(shard, id)?, enclosure });
                self.drive(drive, on, command)
            }
            Command::ClearDrive { drive } => {
                let on = |shard: &PoolStatus, id| Some(Command::ClearDrive { drive: number(shard, id)? });
                self.drive(drive, on, command)
            }
            Command::FailDrive { drive } => {
                let on = |shard: &PoolStatus, id| Some(Command::FailDrive { drive: number(shard, id)? });
                self.drive(drive, on, command)
            }
            Command::OnlineDrive { drive, index } => {
                let on = |shard: &PoolStatus, id| {
                    let away = member(shard, id)
                        .filter(|drive| matches!(drive.health, DriveHealth::Missing | DriveHealth::Failed))?;
                    Some(Command::OnlineDrive { drive: away.index, index })
                };
                self.drive(drive, on, command)
            }
            Command::NoteRollback { .. } => {
                Err(ArrayError::Invalid("a rollback is noted on the first shard alone".to_owned()))
            }
            Command::CheckDrives(_) => Err(ArrayError::Invalid("each shard checks drives for itself".to_owned())),
            Command::StartScrub | Command::Checkpoint | Command::WashLog | Command::Close => {
                self.shards.ask_all(&command).into_iter().collect::<Result<Vec<_>, _>>()?;
                Ok(Reply::Done)
            }
        }
    }

    /// Puts right what commands left that were cut off, as far as the shards take changes and
    /// `may_change` says so. Called before the pool serves.
    pub fn reconcile(&self, may_change: bool) -> Result<(), ArrayError> {
        if may_change {
            self.drop_leftovers()?;
        }
        self.note_incomplete(&self.lists()?);
        let statuses = self.statuses()?;
        if let Some(snapshot) = statuses[0].rolling_back {
            self.finish_rollback(snapshot, may_change)?;
        }
        let all_change = statuses.iter().all(|shard| !shard.read_only);
        for known in self.all()?.iter().filter(|known| known.shards > 1 && known.is_complete() && may_change) {
            if all_change {
                self.agree_on_size(known);
            }
            let (whole, first) = (&known.whole, &known.parts[0].1);
            for (shard, part) in &known.parts[1..] {
                let ask = |command: Command| {
                    if let Err(error) = self.shards.ask(*shard, command) {
                        tracing::warn!(
                            "volume '{}' has settings on shard {shard} that differ: {error}",
                            whole.spec.name
                        );
                    }
                };
                let (read_ahead, mode) = (Some(first.read_ahead), Some(first.spec.mode));
                if !first.snapshot && (part.read_ahead, part.spec.mode) != (first.read_ahead, first.spec.mode) {
                    ask(Command::SetVolume { name: whole.spec.name.clone(), read_ahead, mode });
                }
                // The other way round a part stays protected until its owner says otherwise.
                if first.retained && !part.retained {
                    let owner = whole.spec.owner.clone().unwrap_or_default();
                    ask(Command::Protect { volume: part.id, owner, retained: true });
                }
            }
        }
        Ok(())
    }

    /// Removes parts that the first shard knows nothing of: their volume was never made, or is
    /// deleted. One that cannot go stays, and takes room.
    ///
    /// Where the first shard may have forgotten a volume, nothing goes: after an opening that
    /// accepted a loss, and while it shows a state that its other drives may have left behind.
    fn drop_leftovers(&self) -> Result<(), ArrayError> {
        let statuses = self.statuses()?;
        if statuses[0].read_only || statuses.iter().any(|shard| shard.loss_accepted) {
            return Ok(());
        }
        loop {
            let lists = self.lists()?;
            let mut removed = false;
            for (shard, part) in leftovers(&lists) {
                // One with snapshots or clones goes after them, in a further round.
                let name = part.spec.name.clone();
                match self.shards.ask(shard, Command::DeleteVolume { name }) {
                    Ok(_) => removed = true,
                    Err(error) => tracing::warn!(
                        "shard {shard} keeps a part of volume '{}', which the pool does not have: {error}",
                        part.spec.name
                    ),
                }
            }
            if !removed {
                return Ok(());
            }
        }
    }

    /// Finds the volumes that lack a part now, when no command is under way.
    fn note_incomplete(&self, lists: &[Vec<VolumeStatus>]) {
        let left = leftovers(lists).map(|(_, part)| part.spec.name.clone());
        let lacking = gathered(lists, &Unsettled::new()).into_iter().filter(|known| !known.is_complete());
        let names: BTreeSet<String> = left.chain(lacking.map(|known| known.whole.spec.name)).collect();
        for name in &names {
            tracing::warn!("volume '{name}' lacks its part on some shard, and cannot be read");
            self.registry.note_incomplete(name, None);
        }
    }

    /// Gives each part the size that the volume shows. Where a part behind that holds something, a
    /// shrinking was cut off: then the others, whose ends were empty, get theirs back.
    fn agree_on_size(&self, known: &Known) {
        let whole = &known.whole;
        let striping = Striping::of(&whole.spec, known.shards);
        let have: Vec<Bytes> = known.parts.iter().map(|(_, part)| part.spec.size).collect();
        let name = &whole.spec.name;
        if striping.parts(whole.spec.size) == have || whole.snapshot {
            return;
        }
        // All parts, of whatever size: a first call that failed has changed some of them.
        let to = |size: Bytes| {
            let ask = |(shard, size)| self.shards.ask(shard, Command::ResizeVolume { name: name.clone(), size });
            striping.parts(size).into_iter().enumerate().map(ask).collect::<Result<Vec<_>, _>>()
        };
        if to(whole.spec.size).is_err()
            && let Err(error) = to(striping.covering(&have))
        {
            tracing::warn!("the parts of volume '{name}' differ in size: {error}");
        }
    }

    fn create(&self, mut spec: VolumeSpec) -> Result<Reply, ArrayError> {
        // Striping divides by the strip, before any shard looks at it.
        check_spec(&spec)?;
        let shards = self.shards.count();
        let parts = match spec.spread {
            true => Striping::of(&spec, shards).parts(spec.size),
            false => Vec::new(),
        };
        // One that has no unit for some shard gains nothing from them.
        spec.spread = parts.iter().all(|part| part.0 >= Striping::of(&spec, shards).unit()) && !parts.is_empty();
        let name = spec.name.clone();
        match spec.spread {
            true => self.make_parts(shards, &name, |shard| {
                Command::CreateVolume(VolumeSpec { size: parts[shard], ..spec.clone() })
            }),
            false => self.make_parts(1, &name, |_| Command::CreateVolume(spec.clone())),
        }
    }

    /// Makes something on so many shards, the first one last, or on none.
    fn make_parts(&self, shards: usize, name: &str, make: impl Fn(usize) -> Command) -> Result<Reply, ArrayError> {
        if self.registry.is_incomplete(name) {
            return Err(ArrayError::Exists(format!(
                "there is already a volume '{name}', which lacks a part; it is kept until it is deleted"
            )));
        }
        let (mut without, mut dropped) = (shards, false);
        while without > 0 {
            let shard = without - 1;
            let Err(error) = self.shards.ask(shard, make(shard)) else {
                without = shard;
                continue;
            };
            for made in without..shards {
                let _ = self.shards.ask(made, Command::DeleteVolume { name: name.to_owned() });
            }
            if shard == 0 || dropped || !matches!(error, ArrayError::Exists(_)) {
                return Err(merge::of_each(error, shards));
            }
            // Perhaps a leftover. All shards begin anew without it.
            self.drop_leftovers()?;
            (without, dropped) = (shards, true);
        }
        self.shown(name)
    }

    fn delete(&self, name: &str) -> Result<Reply, ArrayError> {
        let known = self.known(name)?;
        if known.whole.retained {
            // The first shard alone may not know.
            let held = known.parts.iter().find(|(_, part)| part.retained).map_or(0, |(shard, _)| *shard);
            return self.shards.ask(held, Command::DeleteVolume { name: name.to_owned() });
        }
        let ends_note = self.release(&known)?;
        let (first, others) = known.parts.split_first().ok_or_else(no_shard)?;
        self.shards.ask(first.0, Command::DeleteVolume { name: name.to_owned() })?;
        let mut whole_gone = true;
        for (shard, _) in others {
            if let Err(error) = self.shards.ask(*shard, Command::DeleteVolume { name: name.to_owned() }) {
                tracing::warn!("volume '{name}' is deleted, and its part on shard {shard} stays for now: {error}");
                whole_gone = false;
            }
        }
        match whole_gone {
            true => self.registry.end_incomplete(name),
            false => self.registry.note_incomplete(name, None),
        }
        if ends_note {
            self.end_note();
        }
        Ok(Reply::Done)
    }

    fn snapshot(&self, volume: &str, name: &str, made: u64) -> Result<Reply, ArrayError> {
        let known = self.settled(volume)?;
        let take = Command::SnapshotVolume { volume: volume.to_owned(), name: name.to_owned(), made };
        let mut taken = Err(no_shard());
        match known.shards {
            1 => taken = self.make_parts(1, name, |_| take.clone()),
            // A write that follows another must not be in the snapshot without it, on whatever
            // shards they lie.
            shards => self.shards.without_writes(known.whole.id, &mut || {
                taken = self.make_parts(shards, name, |_| take.clone());
            }),
        }
        taken
    }

    fn resize(&self, name: &str, size: Bytes) -> Result<Reply, ArrayError> {
        let known = self.settled(name)?;
        if known.shards == 1 {
            return self.shards.ask(0, Command::ResizeVolume { name: name.to_owned(), size });
        }
        let striping = Striping::of(&known.whole.spec, known.shards);
        let parts = striping.parts(size);
        let least = Bytes(striping.unit() * known.shards as u64);
        if size < least {
            return Err(ArrayError::Invalid(format!(
                "volume '{name}' is spread over {} shards, and keeps at least {least}",
                known.shards
            )));
        }
        let change = |shard: usize, size| self.shards.ask(shard, Command::ResizeVolume { name: name.to_owned(), size });
        for shard in (0..parts.len()).rev() {
            if let Err(error) = change(shard, parts[shard]) {
                for (changed, before) in &known.parts[shard + 1..] {
                    let _ = change(*changed, before.spec.size);
                }
                return Err(merge::of_each(error, known.shards));
            }
        }
        Ok(Reply::Done)
    }

    /// A protection holds on all shards before it counts, and is given up on the first one first.
    fn protect(&self, volume: VolumeId, owner: &str, retained: bool) -> Result<Reply, ArrayError> {
        let parts = self.registry.parts(volume).unwrap_or_else(|| vec![volume]);
        let mut turns: Vec<(usize, VolumeId)> = parts.into_iter().enumerate().collect();
        if retained {
            turns.reverse();
        }
        for (shard, volume) in turns {
            self.shards.ask(shard, Command::Protect { volume, owner: owner.to_owned(), retained })?;
        }
        Ok(Reply::Done)
    }

    /// Empties a drive on all shards or on none.
    fn remove_drive(&self, drive: u32) -> Result<Reply, ArrayError> {
        let statuses = self.statuses()?;
        let Some(identity) = identity(&statuses, drive) else {
            return self.shards.ask(0, Command::RemoveDrive { drive });
        };
        let mut begun: Vec<(usize, u32)> = Vec::new();
        for (shard, status) in statuses.iter().enumerate().rev() {
            let Some(drive) = member(status, identity) else { continue };
            if drive.leaving && shard > 0 {
                continue;
            }
            if let Err(error) = self.shards.ask(shard, Command::RemoveDrive { drive: drive.index }) {
                for (shard, drive) in begun {
                    let _ = self.shards.ask(shard, Command::KeepDrive { drive });
                }
                return Err(error);
            }
            begun.push((shard, drive.index));
        }
        Ok(Reply::Done)
    }

    /// A command about one drive, to each shard for which `on` gives one.
    fn drive(
        &self,
        drive: u32,
        on: impl Fn(&PoolStatus, DriveId) -> Option<Command>,
        command: Command,
    ) -> Result<Reply, ArrayError> {
        let statuses = self.statuses()?;
        match identity(&statuses, drive) {
            Some(identity) => self.each(&statuses, |status| on(status, identity), command),
            None => self.shards.ask(0, command),
        }
    }

    /// The command of each shard that has one, the first shard's last. A command that was cut off
    /// can so be given again, and concerns the shards that lack it. Where no shard has one, the
    /// first says what is wrong with the command as it was given.
    ///
    /// Before a drive is put in on any shard, each says whether it would take it. Where one fails
    /// all the same, those that went first take the drive out again, as far as they can.
    fn each(
        &self,
        statuses: &[PoolStatus],
        on: impl Fn(&PoolStatus) -> Option<Command>,
        command: Command,
    ) -> Result<Reply, ArrayError> {
        let commands: Vec<(usize, Command)> =
            statuses.iter().enumerate().filter_map(|(shard, status)| Some((shard, on(status)?))).collect();
        if commands.is_empty() {
            return self.shards.ask(0, command);
        }
        let puts_in = |command: &Command| matches!(command, Command::ReplaceDrive { .. } | Command::AddDrives { .. });
        for (shard, command) in commands.iter().filter(|(_, command)| puts_in(command)) {
            self.shards.ask(*shard, Command::CheckDrives(Box::new(command.clone())))?;
        }
        for at in (0..commands.len()).rev() {
            let (shard, command) = &commands[at];
            if let Err(error) = self.shards.ask(*shard, command.clone()) {
                commands[at + 1..].iter().for_each(|(shard, command)| self.undo(&statuses[*shard], *shard, command));
                return Err(error);
            }
        }
        Ok(Reply::Done)
    }

    /// Takes back on a shard that drives were put in, as far as that can be: another shard did not
    /// take them. A drive that is in the place of one that is gone stays, until the command is
    /// given again.
    fn undo(&self, before: &PoolStatus, shard: usize, command: &Command) {
        let Ok(Reply::Status(now)) = self.shards.ask(shard, Command::Status) else { return };
        let take_out = |identity: DriveId| number(&now, identity).map(|drive| Command::RemoveDrive { drive });
        let back: Vec<Command> = match command {
            Command::AddDrives { drives } => drives.iter().filter_map(|(_, identity)| take_out(*identity)).collect(),
            // It was handed over if the new drive has a number of its own.
            Command::ReplaceDrive { old, identity, .. } if number(&now, *identity) != Some(*old) => {
                let left_before = before.drives.iter().any(|drive| drive.index == *old && drive.leaving);
                let keep = (!left_before).then_some(Command::KeepDrive { drive: *old });
                keep.into_iter().chain(take_out(*identity)).collect()
            }
            _ => return,
        };
        // Where the old drive is gone already, the new one has what was on it.
        if let Some(error) = back.into_iter().find_map(|command| self.shards.ask(shard, command).err()) {
            tracing::warn!("shard {shard} keeps what another shard refused: {error}");
        }
    }

    fn statuses(&self) -> Result<Vec<PoolStatus>, ArrayError> {
        let status = |reply| match reply? {
            Reply::Status(status) => Ok(*status),
            other => Err(odd(&other)),
        };
        self.shards.ask_all(&Command::Status).into_iter().map(status).collect()
    }

    fn lists(&self) -> Result<Vec<Vec<VolumeStatus>>, ArrayError> {
        let list = |reply| match reply? {
            Reply::Volumes(list) => Ok(list),
            other => Err(odd(&other)),
        };
        self.shards.ask_all(&Command::ListVolumes).into_iter().map(list).collect()
    }

    fn all(&self) -> Result<Vec<Known>, ArrayError> {
        Ok(noted(&self.lists()?, self.registry))
    }

    fn known(&self, name: &str) -> Result<Known, ArrayError> {
        let known = self.all()?.into_iter().find(|known| known.whole.spec.name == name);
        known.ok_or_else(|| ArrayError::Missing(format!("the pool has no volume named '{name}'")))
    }

    fn complete(&self, name: &str) -> Result<Known, ArrayError> {
        let known = self.known(name)?;
        if known.is_complete() {
            return Ok(known);
        }
        Err(ArrayError::Refused(format!(
            "volume '{name}' lacks its part on {} of {} shards, and can only be deleted",
            known.shards - known.parts.len(),
            known.shards
        )))
    }

    /// As `complete`; refuses a volume of which some parts are rolled back and others not.
    fn settled(&self, name: &str) -> Result<Known, ArrayError> {
        let known = self.complete(name)?;
        match self.registry.is_shut(known.whole.id) {
            true => Err(ArrayError::Refused(format!(
                "a rollback of volume '{name}' was cut off: give that command again first"
            ))),
            false => Ok(known),
        }
    }

    fn shown(&self, name: &str) -> Result<Reply, ArrayError> {
        self.known(name).map(|known| Reply::Volume(known.whole))
    }
}

/// The volumes of the pool, from what each shard lists.
pub fn volumes(lists: &[Vec<VolumeStatus>], registry: &Registry) -> Vec<VolumeStatus> {
    noted(lists, registry).into_iter().map(|known| known.whole).collect()
}

/// The same, with their parts.
fn noted(lists: &[Vec<VolumeStatus>], registry: &Registry) -> Vec<Known> {
    let mut all = gathered(lists, &registry.incomplete());
    for known in &mut all {
        if known.is_complete() {
            registry.note(known.parts.iter().map(|(_, part)| part.id).collect());
        }
        if registry.is_shut(known.whole.id) {
            known.whole.unreadable = vec![(0, known.whole.spec.size.0)];
        }
    }
    all
}

/// Those that the first shard has, and of the others those that are known to be incomplete.
fn gathered(lists: &[Vec<VolumeStatus>], incomplete: &Unsettled) -> Vec<Known> {
    let by_name = |list: &'_ Vec<VolumeStatus>| -> BTreeMap<String, usize> {
        list.iter().zip(0..).map(|(part, at)| (part.spec.name.clone(), at)).collect()
    };
    let places: Vec<BTreeMap<String, usize>> = lists.iter().map(by_name).collect();
    let kind = |spec: &VolumeSpec| (spec.code, spec.strip, spec.spread);
    let mut all = Vec::new();
    for (shard, list) in lists.iter().enumerate() {
        for part in list {
            let name = &part.spec.name;
            let is_before = || places[..shard].iter().any(|places| places.contains_key(name));
            if shard > 0 && (!incomplete.contains_key(name) || is_before()) {
                continue;
            }
            let mut parts = vec![(shard, part.clone())];
            if part.spec.spread {
                let behind = (shard + 1..lists.len()).filter_map(|other| {
                    let same = &lists[other][*places[other].get(name)?];
                    (kind(&same.spec) == kind(&part.spec)).then(|| (other, same.clone()))
                });
                parts.extend(behind);
            }
            let shards = if part.spec.spread { lists.len() } else { 1 };
            all.push(Known { whole: merge::volume(&parts, shards), parts, shards });
        }
    }
    all
}

/// Parts, with their shard, of volumes that the first shard does not have.
fn leftovers(lists: &[Vec<VolumeStatus>]) -> impl Iterator<Item = (usize, &VolumeStatus)> {
    let first = lists.first().into_iter().flatten().filter(|whole| whole.spec.spread);
    let there: BTreeSet<&str> = first.map(|whole| whole.spec.name.as_str()).collect();
    let parts = lists.iter().enumerate().skip(1).flat_map(|(shard, list)| list.iter().map(move |part| (shard, part)));
    parts.filter(move |(_, part)| !there.contains(part.spec.name.as_str()))
}

fn member(status: &PoolStatus, identity: DriveId) -> Option<&DriveStatus> {
    status.drives.iter().find(|drive| drive.is_member() && drive.identity == identity)
}

fn number(status: &PoolStatus, identity: DriveId) -> Option<u32> {
    member(status, identity).map(|drive| drive.index)
}

fn leaving(status: &PoolStatus, identity: DriveId) -> Option<u32> {
    member(status, identity).filter(|drive| drive.leaving).map(|drive| drive.index)
}

/// A drive of the pool by its number, which is the first shard's.
fn identity(statuses: &[PoolStatus], drive: u32) -> Option<DriveId> {
    let members = statuses.first()?.drives.iter().filter(|member| member.is_member());
    members.into_iter().find(|member| member.index == drive).map(|member| member.identity)
}

fn no_shard() -> ArrayError {
    ArrayError::Stopped("the pool has no shard; open it again".to_owned())
}

fn odd(reply: &Reply) -> ArrayError {
    ArrayError::Stopped(format!("a shard answered with something else: {reply:?}"))
}
