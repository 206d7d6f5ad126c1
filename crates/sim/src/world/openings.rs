//! Crashes of the world: the pool opens again, and is compared with its expected state.

use stele_array::{ArrayError, State};
use stele_ground::Dice;

use super::{PATIENCE, World};
use crate::host::Host;
use crate::machine::Step;
use crate::oracle::Violation;
use crate::system::System;

impl<S: System> World<S> {
    /// Stops the machine now, and restarts it.
    pub fn crash_and_recover(&mut self) -> Result<(), Violation> {
        loop {
            crate::history::crash(self);
            self.replies.clear();
            self.hosts.values_mut().for_each(Host::crash);
            crate::history::befall_while_down(self);
            if self.start()? {
                return Ok(());
            }
        }
    }

    /// Opens the pool on the present drives, and compares its volumes with the expected ones.
    /// Returns false after a crash.
    pub fn start(&mut self) -> Result<bool, Violation> {
        self.refused = None;
        if self.crash_dice.one_in(3) {
            let sides = 1 << self.crash_dice.below(11);
            self.machine.fuse = Some(1 + self.crash_dice.below(sides));
            self.machine.coverage.count("fuse set during recovery");
        }
        crate::history::threaten_opening(self);
        let options = self.open_options();
        let order = self.machine.present(&mut self.crash_dice);
        self.machine.open(options, &order);
        let present = order.len();
        let mut here = present;
        let mut deadline = self.machine.now + PATIENCE;
        loop {
            match self.machine.state() {
                // It lost a drive while it opened, and asks to be opened again without it.
                State::Failed(ArrayError::Degraded(_))
                    if self.machine.present(&mut Dice::new(0)).len() < present && !self.atlas.is_beyond() =>
                {
                    self.machine.coverage.count("opened again without a drive lost while opening");
                    return Ok(false);
                }
                State::Starting => {}
                State::Ready { read_only } => {
                    if read_only && !self.atlas.is_beyond() {
                        return Err(Violation("the pool opened read-only within tolerance".into()));
                    }
                    if read_only {
                        // No majority of the members answers: one that is here may have no label
                        // any more. Later changes on the other drives are unknown: older content is
                        // allowed, and nothing is compared.
                        self.machine.coverage.count("pools opened on a minority, for reading");
                        self.refused = Some(ArrayError::Refused("no majority of the drives answers".into()));
                        return Ok(true);
                    }
                    break;
                }
                State::Failed(error) if self.atlas.is_beyond() => {
                    self.machine.coverage.count("pool refused to open, honestly");
                    self.refused = Some(error);
                    return Ok(true);
                }
                State::Failed(error) => return Err(Violation(format!("the pool does not open: {error}"))),
                State::Closed => return Err(Violation("the pool is closed after opening".into())),
            }
            if self.machine.now >= deadline {
                // Each drive that does not answer takes its time, one after the other.
                let left = self.machine.present(&mut Dice::new(0)).len();
                if left >= here {
                    return Err(Violation("the pool does not open in time".into()));
                }
                (here, deadline) = (left, self.machine.now + PATIENCE);
            }
            let step = self.machine.step(deadline);
            self.absorb()?;
            self.watch()?;
            if step == Step::Crash {
                self.machine.coverage.count("crashes during recovery");
                return Ok(false);
            }
        }
        self.machine.coverage.count("recoveries");
        self.reconcile()
    }
}
