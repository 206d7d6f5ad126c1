//! Drives that are attached while the pool is open, as places of labels.

use super::{Labels, Register, codec};
use crate::model::place::DriveNumber;

impl Labels {
    /// A drive that carries no label of this pool is attached here; the next commit adds it to the
    /// table. `whole`: nothing that it should hold is lacking, since it should hold nothing yet.
    pub fn attach_new(&self, drive: DriveNumber, index: usize, whole: bool, sequence: u64) {
        self.attach(drive, Register { index: Some(index), caught_up: whole, sequence, ..Register::default() });
    }

    /// A drive of the pool is back. Its next label goes on from the sequence it has, so that its
    /// older pair of copies is kept. Until [`Labels::caught_up`], and whichever flow commits, that
    /// label says no more about what the drive holds than the label that it came with.
    pub fn attach_returned(&self, drive: DriveNumber, index: usize, label: &codec::Label) {
        self.attach(
            drive,
            Register {
                index: Some(index),
                sequence: label.sequence,
                epoch: label.configuration.epoch,
                promised: label.promised,
                complete: label.complete,
                caught_up: false,
                flushed: false,
                attached: 0,
            },
        );
    }

    /// Changes with every drive that is attached, and with every flush that fails.
    pub fn attachments(&self) -> u64 {
        self.0.io.breaks()
    }

    /// Whether the drive has been attached without a break since `attachments` was this, and none
    /// of its flushes failed: what it took since then is in its cache, or durable.
    pub fn has_stayed(&self, drive: DriveNumber, since: u64) -> bool {
        let registers = self.0.registers.borrow();
        let Some(register) = registers.get(usize::from(drive.0)) else { return false };
        register.attached <= since && register.index.is_some_and(|index| self.0.io.has_kept(index, since))
    }

    fn attach(&self, drive: DriveNumber, register: Register) {
        self.0.silence.forget(drive);
        let at = usize::from(drive.0);
        let mut registers = self.0.registers.borrow_mut();
        if registers.len() <= at {
            registers.resize(at + 1, Register::default());
        }
        registers[at] = Register { attached: self.0.io.note_break(), ..register };
    }
}
