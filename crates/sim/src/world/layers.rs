//! Snapshots, clones and rollbacks in the world, and the knowledge of them after an interrupted
//! command.

use stele_array::{ArrayError, Command, Reply, VolumeSpec, VolumeStatus};

use super::{Fate, WaitOutcome, World};
use crate::host::Host;
use crate::oracle::Violation;
use crate::system::System;

impl<S: System> World<S> {
    /// Takes a snapshot while the volume's host continues.
    pub fn snapshot(&mut self, volume: &str) -> Result<(), Violation> {
        let Some(spec) = self.hosts.get(volume).map(|host| host.spec.clone()) else { return Ok(()) };
        // The possible contents of an unconfirmed one are still kept: the oracle keeps one at a
        // time.
        if self.has_open_snapshot(volume) {
            return Ok(());
        }
        self.volumes_made += 1;
        let name = format!("snapshot-{}", self.volumes_made);
        self.expect(&name, volume, VolumeSpec { name: name.clone(), ..spec });
        if let Some(host) = self.hosts.get_mut(volume) {
            host.oracle.begin_snapshot();
        }
        let command = Command::SnapshotVolume { volume: volume.into(), name: name.clone(), made: 1 };
        self.made(&name, "snapshots taken", command)?;
        // If the answer left it open, the next opening shows whether it exists; its possible
        // contents are kept until then.
        let is_open = matches!(self.fates.get(&name), Some((Fate::MayExist, _)));
        if let Some(host) = self.hosts.get_mut(volume).filter(|_| !is_open) {
            host.oracle.end_snapshot("");
        }
        Ok(())
    }

    /// Whether it is still unknown if the last snapshot of the volume was taken.
    fn has_open_snapshot(&self, volume: &str) -> bool {
        let is_open =
            |name: &String| matches!(self.fates.get(name), Some((Fate::MayExist, _))) && name.starts_with("snapshot-");
        self.origins.iter().any(|(name, origin)| origin == volume && is_open(name))
    }

    pub fn clone_snapshot(&mut self, snapshot: &str) -> Result<(), Violation> {
        let Some(spec) = self.hosts.get(snapshot).map(|host| host.spec.clone()) else { return Ok(()) };
        self.volumes_made += 1;
        let name = format!("clone-{}", self.volumes_made);
        self.expect(&name, snapshot, VolumeSpec { name: name.clone(), fully_allocated: false, ..spec });
        let command = Command::CloneSnapshot { snapshot: snapshot.into(), name: name.clone() };
        self.made(&name, "clones made", command)
    }

    fn expect(&mut self, name: &str, origin: &str, spec: VolumeSpec) {
        self.fates.insert(name.into(), (Fate::MayExist, spec));
        self.origins.insert(name.into(), origin.into());
    }

    fn made(&mut self, name: &str, what: &str, command: Command) -> Result<(), Violation> {
        match self.ask(command)? {
            WaitOutcome::Reached(Ok(Reply::Volume(status))) => {
                self.machine.coverage.count(what);
                self.adopt(&status)
            }
            WaitOutcome::Reached(Ok(reply)) => Err(Violation(format!("{name}: {what}: answered with {reply:?}"))),
            WaitOutcome::Reached(Err(ArrayError::Degraded(_))) if self.atlas.is_beyond() => {
                // The log may have stopped with the record on its way: the next opening shows the
                // result.
                self.machine.coverage.count(format!("{what}: left open"));
                Ok(())
            }
            WaitOutcome::Reached(Err(error)) => {
                self.forget(name);
                self.machine.coverage.count(format!("{what}: refused"));
                match error {
                    ArrayError::Full(_) => Ok(()),
                    _ if self.atlas.is_beyond() => Ok(()),
                    error => Err(Violation(format!("{name} could not be made: {error:?}"))),
                }
            }
            WaitOutcome::Crashed => Ok(()),
        }
    }

    /// The host of a snapshot or clone that exists now.
    pub(super) fn layered(
        &mut self,
        name: &str,
        origin: &str,
        status: &VolumeStatus,
        spec: VolumeSpec,
    ) -> Result<Host, Violation> {
        let Some(of) = self.hosts.get_mut(origin) else {
            return Err(Violation(format!("{name} is there, and {origin}, which it was made of, is not")));
        };
        let oracle = match status.snapshot {
            true => of.oracle.end_snapshot(name),
            false => Some(of.oracle.clone_of(name)),
        };
        let mut host = Host::new(status.id, spec, &mut self.layer_dice);
        host.oracle = oracle.ok_or_else(|| Violation(format!("{name} came back from the dead")))?;
        host.reads_only = status.snapshot;
        Ok(host)
    }

    /// Deletes a volume, once nothing is in flight on it.
    pub fn delete_volume(&mut self, name: &str) -> Result<(), Violation> {
        if let WaitOutcome::Crashed = self.drain_host(name)? {
            return Ok(());
        }
        if self.has_layers(name) {
            return self.refuse_delete(name);
        }
        if let Some((fate, _)) = self.fates.get_mut(name) {
            *fate = Fate::MayBeGone;
        }
        match self.ask(Command::DeleteVolume { name: name.into() })? {
            WaitOutcome::Reached(Ok(_)) => {
                self.forget(name);
                self.machine.coverage.count("volumes deleted");
            }
            WaitOutcome::Reached(Err(error)) => {
                if !self.atlas.is_beyond() {
                    return Err(Violation(format!("volume {name} could not be deleted: {error:?}")));
                }
                if let Some(host) = self.hosts.get_mut(name) {
                    host.paused = false;
                }
            }
            WaitOutcome::Crashed => {}
        }
        Ok(())
    }

    /// Rolls the snapshot's volume back to it, once nothing is in flight on the volume.
    pub fn roll_back(&mut self, snapshot: &str) -> Result<(), Violation> {
        let Some(volume) = self.origins.get(snapshot).cloned().filter(|name| self.hosts.contains_key(name)) else {
            return Ok(());
        };
        if self.drain(&volume)? {
            return Ok(());
        }
        let Some(to) = self.hosts.get(snapshot).map(|host| host.oracle.clone()) else { return Ok(()) };
        let reply = self.ask(Command::RollBackVolume { volume: volume.clone(), snapshot: snapshot.into() })?;
        let Some(host) = self.hosts.get_mut(&volume) else { return Ok(()) };
        host.paused = false;
        match reply {
            WaitOutcome::Reached(Ok(_)) => {
                host.oracle.roll_back(&to, true);
                self.machine.coverage.count("rollbacks");
            }
            WaitOutcome::Crashed => {
                host.oracle.roll_back(&to, false);
                self.machine.coverage.count("rollbacks cut off");
            }
            WaitOutcome::Reached(Err(ArrayError::Degraded(_))) if self.atlas.is_beyond() => {
                host.oracle.roll_back(&to, false);
                self.machine.coverage.count("rollbacks left open");
            }
            WaitOutcome::Reached(Err(ArrayError::Full(_))) => self.machine.coverage.count("rollbacks refused"),
            WaitOutcome::Reached(Err(_)) if self.atlas.is_beyond() => {}
            WaitOutcome::Reached(Err(error)) => {
                return Err(Violation(format!("{volume} could not be rolled back to {snapshot}: {error:?}")));
            }
        }
        Ok(())
    }

    /// Whether snapshots of the volume, or clones of the snapshot, exist.
    pub(super) fn has_layers(&self, name: &str) -> bool {
        self.origins.iter().any(|(layer, origin)| origin == name && self.hosts.contains_key(layer))
    }

    /// Checks that the origin of other volumes cannot be deleted.
    pub(super) fn refuse_delete(&mut self, name: &str) -> Result<(), Violation> {
        let reply = self.ask(Command::DeleteVolume { name: name.into() })?;
        if let Some(host) = self.hosts.get_mut(name) {
            host.paused = false;
        }
        match reply {
            WaitOutcome::Reached(Ok(_)) => Err(Violation(format!("{name} was deleted from under others"))),
            WaitOutcome::Reached(Err(_)) => {
                self.machine.coverage.count("deletes refused for layers");
                Ok(())
            }
            WaitOutcome::Crashed => Ok(()),
        }
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.hosts.remove(name);
        self.fates.remove(name);
        self.origins.remove(name);
    }
}
