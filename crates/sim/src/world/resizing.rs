//! Volumes that become larger or smaller.

use stele_array::{ArrayError, Command};
use stele_ground::Bytes;

use super::{WaitOutcome, World};
use crate::host::Host;
use crate::oracle::Violation;
use crate::system::System;

/// How a volume is made smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// Its host discards it first.
    Discarded,
    /// Whatever is there.
    AsItIs,
}

impl<S: System> World<S> {
    /// Makes a volume larger.
    pub fn grow_volume(&mut self, name: &str, size: u64) -> Result<(), Violation> {
        let Some(reply) = self.resize(name, size)? else { return Ok(()) };
        match reply {
            Ok(()) => {
                self.machine.coverage.count("volumes grown");
                Ok(())
            }
            Err(ArrayError::Full(_) | ArrayError::Degraded(_)) => Ok(()),
            Err(_) if self.atlas.is_beyond() => Ok(()),
            Err(error) => Err(Violation(format!("volume {name} could not grow: {error:?}"))),
        }
    }

    /// Makes a volume smaller, if the pool finds that nothing is behind the new end.
    pub fn shrink_volume(&mut self, name: &str, size: u64, tail: Tail) -> Result<(), Violation> {
        let is_smaller = self.hosts.get(name).is_some_and(|host| size < host.spec.size.0);
        // The next opening shows whether an earlier change took place.
        if !is_smaller || self.resized.contains_key(name) {
            return Ok(());
        }
        if tail == Tail::Discarded {
            if let WaitOutcome::Crashed = self.drain_host(name)? {
                return Ok(());
            }
            let Some(host) = self.hosts.get_mut(name) else { return Ok(()) };
            self.tags += 1;
            let request = host.empty(self.machine.now, self.tags, size, host.spec.size.0 - size);
            let id = host.id;
            self.machine.submit(id, request);
        }
        let Some(reply) = self.resize(name, size)? else { return Ok(()) };
        match reply {
            Ok(()) => {
                self.machine.coverage.count("volumes made smaller");
                Ok(())
            }
            Err(ArrayError::Refused(text)) if text.contains("shares its content") => Ok(()),
            Err(ArrayError::Refused(text)) if text.contains("holds data") => {
                self.machine.coverage.count("volumes that held data behind their new end");
                let is_empty = |host: &Host| host.oracle.surely_zero(size, host.spec.size.0 - size);
                // Zeros that were written take room like other data; what was discarded does not.
                let was_emptied = tail == Tail::Discarded && self.hosts.get(name).is_some_and(is_empty);
                match was_emptied && !self.atlas.is_beyond() {
                    true => {
                        Err(Violation(format!("volume {name} was emptied behind {size}, and not made smaller: {text}")))
                    }
                    false => Ok(()),
                }
            }
            Err(ArrayError::Full(_) | ArrayError::Degraded(_)) => Ok(()),
            Err(_) if self.atlas.is_beyond() => Ok(()),
            Err(error) => Err(Violation(format!("volume {name} could not be made smaller: {error:?}"))),
        }
    }

    /// The pool's answer. None: the next opening shows whether this or an earlier change was made.
    fn resize(&mut self, name: &str, size: u64) -> Result<Option<Result<(), ArrayError>>, Violation> {
        if self.resized.contains_key(name) {
            return Ok(None);
        }
        if let WaitOutcome::Crashed = self.drain_host(name)? {
            return Ok(None);
        }
        self.resized.insert(name.into(), size);
        let command = Command::ResizeVolume { name: name.into(), size: Bytes(size) };
        let WaitOutcome::Reached(reply) = self.ask(command)? else { return Ok(None) };
        if matches!(reply, Err(ArrayError::Degraded(_))) && self.atlas.is_beyond() {
            self.machine.coverage.count("growths left open");
        } else {
            self.resized.remove(name);
        }
        if let Some(host) = self.hosts.get_mut(name) {
            host.paused = false;
            if reply.is_ok() {
                host.resize(size)?;
            }
        }
        Ok(Some(reply.map(drop)))
    }
}
