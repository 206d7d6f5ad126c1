//! Commands to a pool of several shards, as commands to its shards, one at a time.
//!
//! The first shard says what there is: a volume, snapshot or size exists when the first shard has
//! it. So it is the last to get something new, and the first to lose something. What a crash leaves
//! on the others is put right at the next opening ([`Coordinator::reconcile`]). Nothing of it was
//! ever acknowledged.

use std::sync::Arc;

use stele_ground::{Bytes, DriveId, VolumeId};

use super::merge;
use super::registry::Registry;
use super::striping::Striping;
use crate::model::{ArrayError, Command, DriveHealth, DriveStatus, PoolStatus, Reply, VolumeSpec, VolumeStatus};

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
    /// By shard; one for a volume on the first shard alone.
    parts: Vec<VolumeStatus>,
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
                self.make_parts(self.known(&snapshot)?.parts.len(), &name, |_| make.clone())
            }
            Command::RollBackVolume { volume, snapshot } => match self.known(&volume)?.parts.len() {
                1 => self.shards.ask(0, Command::RollBackVolume { volume, snapshot }),
                shards => Err(ArrayError::Refused(format!(
                    "volume '{volume}' is spread over {shards} shards, which cannot be rolled back as one; clone \
                     '{snapshot}', and use the clone"
                ))),
            },
            Command::SetVolume { ref name, .. } => {
                for shard in (0..self.known(name)?.parts.len()).rev() {
                    self.shards.ask(shard, command.clone())?;
                }
                self.shown(name)
            }
            Command::ResizeVolume { name, size } => self.resize(&name, size),
            Command::Protect { volume, owner, retained } => self.protect(volume, &owner, retained),
            Command::ShowVolume { ref name } => {
                let known = self.known(name)?;
                let mut details = Vec::new();
                for shard in 0..known.parts.len() {
                    match self.shards.ask(shard, command.clone())? {
                        Reply::Detail(detail) => details.push(*detail),
                        other => return Err(odd(&other)),
                    }
                }
                Ok(Reply::Detail(Box::new(merge::details(known.whole, details))))
            }
            Command::ListVolumes => Ok(Reply::Volumes(self.all()?.into_iter().map(|known| known.whole).collect())),
            Command::Status => Ok(Reply::Status(Box::new(merge::statuses(self.statuses()?)))),
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
            Command::StartScrub | Command::Checkpoint | Command::WashLog | Command::Close => {
                self.shards.ask_all(&command).into_iter().collect::<Result<Vec<_>, _>>()?;
                Ok(Reply::Done)
            }
        }
    }

    /// Puts right what commands left that were cut off. Called before the pool serves.
    pub fn reconcile(&self) -> Result<(), ArrayError> {
        self.drop_leftovers()?;
        for known in self.all()? {
            let Known { whole, parts } = known;
            if parts.len() < 2 {
                continue;
            }
            self.agree_on_size(&whole, &parts);
            let first = &parts[0];
            for (shard, part) in parts.iter().enumerate().skip(1) {
                let (read_ahead, mode) = (Some(first.read_ahead), Some(first.spec.mode));
                if !first.snapshot && (part.read_ahead, part.spec.mode) != (first.read_ahead, first.spec.mode) {
                    self.shards.ask(shard, Command::SetVolume { name: whole.spec.name.clone(), read_ahead, mode })?;
                }
                // The other way round a part stays protected until its owner says otherwise.
                if first.retained && !part.retained {
                    let owner = whole.spec.owner.clone().unwrap_or_default();
                    self.shards.ask(shard, Command::Protect { volume: part.id, owner, retained: true })?;
                }
            }
        }
        Ok(())
    }

    /// Removes parts that the first shard knows nothing of: their volume was never made, or is
    /// deleted. One that cannot go stays, and takes room.
    fn drop_leftovers(&self) -> Result<(), ArrayError> {
        loop {
            let lists = self.lists()?;
            let (first, others) = lists.split_first().ok_or_else(no_shard)?;
            let is_left = |part: &&VolumeStatus| {
                !first.iter().any(|whole| whole.spec.spread && whole.spec.name == part.spec.name)
            };
            let mut removed = false;
            for (shard, list) in others.iter().enumerate() {
                for part in list.iter().filter(is_left) {
                    // One with snapshots or clones goes after them, in a further round.
                    let name = part.spec.name.clone();
                    match self.shards.ask(shard + 1, Command::DeleteVolume { name }) {
                        Ok(_) => removed = true,
                        Err(error) => tracing::warn!(
                            "shard {} keeps a part of volume '{}', which the pool does not have: {error}",
                            shard + 1,
                            part.spec.name
                        ),
                    }
                }
            }
            if !removed {
                return Ok(());
            }
        }
    }

    /// Gives each part the size that the volume shows. Where a part behind that holds something, a
    /// shrinking was cut off: then the others, whose ends were empty, get theirs back.
    fn agree_on_size(&self, whole: &VolumeStatus, parts: &[VolumeStatus]) {
        let striping = Striping::of(&whole.spec, parts.len());
        let have: Vec<Bytes> = parts.iter().map(|part| part.spec.size).collect();
        let name = &whole.spec.name;
        if striping.parts(whole.spec.size) == have || parts[0].snapshot {
            return;
        }
        let to = |size: Bytes| {
            let ask = |(shard, size)| self.shards.ask(shard, Command::ResizeVolume { name: name.clone(), size });
            let change = striping.parts(size).into_iter().enumerate().filter(|(shard, size)| have[*shard] != *size);
            change.map(ask).collect::<Result<Vec<_>, _>>()
        };
        if to(whole.spec.size).is_err()
            && let Err(error) = to(striping.covering(&have))
        {
            tracing::warn!("the parts of volume '{name}' differ in size: {error}");
        }
    }

    fn create(&self, mut spec: VolumeSpec) -> Result<Reply, ArrayError> {
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
        for shard in (0..shards).rev() {
            let mut made = self.shards.ask(shard, make(shard));
            if shard > 0 && matches!(made, Err(ArrayError::Exists(_))) {
                self.drop_leftovers()?;
                made = self.shards.ask(shard, make(shard));
            }
            if let Err(error) = made {
                for made in shard + 1..shards {
                    let _ = self.shards.ask(made, Command::DeleteVolume { name: name.to_owned() });
                }
                return Err(error);
            }
        }
        self.shown(name)
    }

    fn delete(&self, name: &str) -> Result<Reply, ArrayError> {
        let known = self.known(name)?;
        if known.whole.retained {
            // The first shard alone may not know.
            let held = known.parts.iter().position(|part| part.retained).unwrap_or(0);
            return self.shards.ask(held, Command::DeleteVolume { name: name.to_owned() });
        }
        self.shards.ask(0, Command::DeleteVolume { name: name.to_owned() })?;
        for shard in 1..known.parts.len() {
            if let Err(error) = self.shards.ask(shard, Command::DeleteVolume { name: name.to_owned() }) {
                tracing::warn!("volume '{name}' is deleted, and its part on shard {shard} stays for now: {error}");
            }
        }
        Ok(Reply::Done)
    }

    fn snapshot(&self, volume: &str, name: &str, made: u64) -> Result<Reply, ArrayError> {
        let known = self.known(volume)?;
        let take = Command::SnapshotVolume { volume: volume.to_owned(), name: name.to_owned(), made };
        let mut taken = Err(no_shard());
        match known.parts.len() {
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
        let known = self.known(name)?;
        if known.parts.len() == 1 {
            return self.shards.ask(0, Command::ResizeVolume { name: name.to_owned(), size });
        }
        let striping = Striping::of(&known.whole.spec, known.parts.len());
        let parts = striping.parts(size);
        let least = Bytes(striping.unit() * known.parts.len() as u64);
        if size < least {
            return Err(ArrayError::Invalid(format!(
                "volume '{name}' is spread over {} shards, and keeps at least {least}",
                known.parts.len()
            )));
        }
        let change = |shard: usize, size| self.shards.ask(shard, Command::ResizeVolume { name: name.to_owned(), size });
        for shard in (0..parts.len()).rev() {
            if let Err(error) = change(shard, parts[shard]) {
                for (changed, before) in known.parts.iter().enumerate().skip(shard + 1) {
                    let _ = change(changed, before.spec.size);
                }
                return Err(error);
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
            if drive.health == DriveHealth::Leaving && shard > 0 {
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
        for (shard, command) in commands.into_iter().rev() {
            self.shards.ask(shard, command)?;
        }
        Ok(Reply::Done)
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
        let all = gathered(self.lists()?);
        all.iter().for_each(|known| self.registry.note(known.parts.iter().map(|part| part.id).collect()));
        Ok(all)
    }

    fn known(&self, name: &str) -> Result<Known, ArrayError> {
        let known = self.all()?.into_iter().find(|known| known.whole.spec.name == name);
        known.ok_or_else(|| ArrayError::Missing(format!("the pool has no volume named '{name}'")))
    }

    fn shown(&self, name: &str) -> Result<Reply, ArrayError> {
        self.known(name).map(|known| Reply::Volume(known.whole))
    }
}

/// The volumes of the pool, from what each shard lists.
pub fn volumes(lists: Vec<Vec<VolumeStatus>>, registry: &Registry) -> Vec<VolumeStatus> {
    let all = gathered(lists);
    all.iter().for_each(|known| registry.note(known.parts.iter().map(|part| part.id).collect()));
    all.into_iter().map(|known| known.whole).collect()
}

fn gathered(lists: Vec<Vec<VolumeStatus>>) -> Vec<Known> {
    let mut lists = lists.into_iter();
    let first = lists.next().unwrap_or_default();
    let others: Vec<Vec<VolumeStatus>> = lists.collect();
    let gather = |part: VolumeStatus| {
        let mut parts = vec![part];
        if parts[0].spec.spread {
            let same = |list: &Vec<VolumeStatus>| {
                let (first, kind) = (&parts[0].spec, |spec: &VolumeSpec| (spec.code, spec.strip, spec.spread));
                list.iter().find(|part| part.spec.name == first.name && kind(&part.spec) == kind(first)).cloned()
            };
            // One that lacks a part is shown, and cannot be read: its bytes lie elsewhere.
            parts.extend(others.iter().map(same).collect::<Option<Vec<_>>>().unwrap_or_default());
        }
        let shards = if parts[0].spec.spread { others.len() + 1 } else { 1 };
        Known { whole: merge::volume(&parts, shards), parts }
    };
    first.into_iter().map(gather).collect()
}

fn member(status: &PoolStatus, identity: DriveId) -> Option<&DriveStatus> {
    status.drives.iter().find(|drive| drive.is_member() && drive.identity == identity)
}

fn number(status: &PoolStatus, identity: DriveId) -> Option<u32> {
    member(status, identity).map(|drive| drive.index)
}

fn leaving(status: &PoolStatus, identity: DriveId) -> Option<u32> {
    member(status, identity).filter(|drive| drive.health == DriveHealth::Leaving).map(|drive| drive.index)
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
