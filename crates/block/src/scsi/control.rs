//! The commands that do not touch the medium, and the dispatch between them and the others.

use stele_media::Op;

use super::command::Command;
use super::exec::{Ask, Exec, Stage, Step};
use super::field::Page;
use super::{Reply, Sense, Unit, inquiry, report};

impl Unit {
    pub(super) fn carry_out(&mut self, exec: &mut Exec, command: Command) -> Step {
        match command {
            Command::TestReady => Step::good(),
            Command::RequestSense { descriptors, allocated } => {
                let sense = self.attentions.take(exec.nexus).unwrap_or(Sense::NONE);
                Step::Done(Reply::data(sense.encode(descriptors), allocated))
            }
            Command::Inquiry { page, allocated } => match inquiry::answer(&self.profile, page) {
                Ok(bytes) => Step::Done(Reply::data(bytes, allocated)),
                Err(sense) => Step::done(sense),
            },
            Command::ModeSense { .. } => self.mode_sense(&command),
            Command::ModeSelect { long, .. } => self.mode_select(exec, long),
            Command::Reserve => self.reserve(exec.nexus),
            Command::Release => self.release(exec.nexus),
            Command::StartStop { start, eject, condition } => self.start_stop(exec, start, eject, condition),
            Command::PreventRemoval { prevent } => {
                if prevent {
                    self.prevented_by.insert(exec.nexus);
                } else {
                    self.prevented_by.remove(&exec.nexus);
                }
                Step::good()
            }
            Command::ReadCapacity10 => {
                let last = u32::try_from(self.profile.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
                let page = Page::default().u32(last).u32(self.profile.block_bytes);
                Step::Done(Reply::data(page.0, 8))
            }
            Command::ReadCapacity16 { allocated } => {
                Step::Done(Reply::data(report::capacity(&self.profile), allocated))
            }
            Command::DefectData { long, formats, allocated } => {
                // The requested lists exist and are empty: the array repairs defects, and names those that it cannot
                // repair.
                let length = if long { 4 } else { 2 };
                let page = Page::default().u8(0).u8(formats & 0x1f).zeros(length);
                Step::Done(Reply::data(page.0, allocated))
            }
            Command::ReportPortGroups { extended, allocated } => {
                Step::Done(Reply::data(report::port_groups(extended), allocated))
            }
            Command::ReportOpcodes { options, timeouts, opcode, action, allocated } => {
                match report::opcodes(&self.profile, options, timeouts, opcode, action) {
                    Ok(bytes) => Step::Done(Reply::data(bytes, allocated)),
                    Err(sense) => Step::done(sense),
                }
            }
            Command::ReportFunctions { extended, allocated } => {
                Step::Done(Reply::data(report::functions(extended), allocated))
            }
            Command::PersistentIn { action, allocated } => {
                Step::Done(Reply::data(self.reservations.report(action), allocated))
            }
            Command::PersistentOut { action, scope, kind, length } => {
                self.persistent_out(exec, action, scope, kind, length)
            }
            Command::CopyStatus { action, list, allocated } => match self.copy_status(exec.nexus, action, list) {
                Ok(bytes) => Step::Done(Reply::data(bytes, allocated)),
                Err(sense) => Step::done(sense),
            },
            Command::ReportLuns { select, allocated } => match report::luns(select) {
                Ok(bytes) => Step::Done(Reply::data(bytes, allocated)),
                Err(sense) => Step::done(sense),
            },
            Command::ExtendedCopy { length } => self.extended_copy(exec, length),
            command => self.on_medium(exec, command),
        }
    }

    fn start_stop(&mut self, exec: &mut Exec, start: bool, eject: bool, condition: u8) -> Step {
        // A volume has no power to save: the conditions are accepted and change nothing.
        if condition != 0 {
            return Step::good();
        }
        if eject && self.profile.removable {
            if !self.prevented_by.is_empty() {
                return Step::done(Sense::REMOVAL_PREVENTED);
            }
            self.ejected = !start;
        }
        if start {
            return Step::good();
        }
        // No part of the unit can stop, and one initiator must not stop it for the others. Stopping makes its writes
        // durable.
        exec.stage = Stage::Last;
        Step::Ask(Ask::Drive(self.id, Op::Flush))
    }
}
