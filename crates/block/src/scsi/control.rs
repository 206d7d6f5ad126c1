//! The commands that do not touch the medium, and the dispatch between them and the others.

use stele_media::Op;

use super::command::ScsiCommand;
use super::exec::{Ask, Exec, ExecStep, Stage};
use super::field::Page;
use super::{Reply, Sense, Unit, inquiry, report};

impl Unit {
    pub(super) fn carry_out(&mut self, exec: &mut Exec, command: ScsiCommand) -> ExecStep {
        match command {
            ScsiCommand::TestReady => ExecStep::good(),
            ScsiCommand::RequestSense { descriptors, allocated } => {
                let sense = self.attentions.take(exec.nexus).unwrap_or(Sense::NONE);
                ExecStep::Done(Reply::data(sense.encode(descriptors), allocated))
            }
            ScsiCommand::Inquiry { page, allocated } => match inquiry::answer(&self.profile, page) {
                Ok(bytes) => ExecStep::Done(Reply::data(bytes, allocated)),
                Err(sense) => ExecStep::done(sense),
            },
            ScsiCommand::ModeSense { .. } => self.mode_sense(&command),
            ScsiCommand::ModeSelect { long, .. } => self.mode_select(exec, long),
            ScsiCommand::Reserve => self.reserve(exec.nexus),
            ScsiCommand::Release => self.release(exec.nexus),
            ScsiCommand::StartStop { start, eject, condition } => self.start_stop(exec, start, eject, condition),
            ScsiCommand::PreventRemoval { prevent } => {
                if prevent {
                    self.prevented_by.insert(exec.nexus);
                } else {
                    self.prevented_by.remove(&exec.nexus);
                }
                ExecStep::good()
            }
            ScsiCommand::ReadCapacity10 => {
                let last = u32::try_from(self.profile.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
                let page = Page::default().u32(last).u32(self.profile.block_bytes);
                ExecStep::Done(Reply::data(page.0, 8))
            }
            ScsiCommand::ReadCapacity16 { allocated } => {
                ExecStep::Done(Reply::data(report::capacity(&self.profile), allocated))
            }
            ScsiCommand::DefectData { long, formats, allocated } => {
                // The requested lists exist and are empty: the array repairs defects, and names
                // those that it cannot repair.
                let length = if long { 4 } else { 2 };
                let page = Page::default().u8(0).u8(formats & 0x1f).zeros(length);
                ExecStep::Done(Reply::data(page.0, allocated))
            }
            ScsiCommand::ReportPortGroups { extended, allocated } => {
                ExecStep::Done(Reply::data(report::port_groups(extended), allocated))
            }
            ScsiCommand::ReportOpcodes { options, timeouts, opcode, action, allocated } => {
                match report::opcodes(&self.profile, options, timeouts, opcode, action) {
                    Ok(bytes) => ExecStep::Done(Reply::data(bytes, allocated)),
                    Err(sense) => ExecStep::done(sense),
                }
            }
            ScsiCommand::ReportFunctions { extended, allocated } => {
                ExecStep::Done(Reply::data(report::functions(extended), allocated))
            }
            ScsiCommand::PersistentIn { action, allocated } => {
                ExecStep::Done(Reply::data(self.reservations.report(action), allocated))
            }
            ScsiCommand::PersistentOut { action, scope, kind, length } => {
                self.persistent_out(exec, action, scope, kind, length)
            }
            ScsiCommand::CopyStatus { action, list, allocated } => match self.copy_status(exec.nexus, action, list) {
                Ok(bytes) => ExecStep::Done(Reply::data(bytes, allocated)),
                Err(sense) => ExecStep::done(sense),
            },
            ScsiCommand::ReportLuns { select, allocated } => match report::luns(select) {
                Ok(bytes) => ExecStep::Done(Reply::data(bytes, allocated)),
                Err(sense) => ExecStep::done(sense),
            },
            ScsiCommand::ExtendedCopy { length } => self.extended_copy(exec, length),
            command => self.on_medium(exec, command),
        }
    }

    fn start_stop(&mut self, exec: &mut Exec, start: bool, eject: bool, condition: u8) -> ExecStep {
        // A volume has no power to save: the conditions are accepted and change nothing.
        if condition != 0 {
            return ExecStep::good();
        }
        if eject && self.profile.removable {
            if !self.prevented_by.is_empty() {
                return ExecStep::done(Sense::REMOVAL_PREVENTED);
            }
            self.ejected = !start;
            self.ejected_by = self.nexuses.get(&exec.nexus).cloned();
        }
        if start {
            return ExecStep::good();
        }
        // No part of the unit can stop, and one initiator must not stop it for the others. Stopping
        // makes its writes durable.
        exec.stage = Stage::Last;
        ExecStep::Ask(Ask::Drive(self.id, Op::Flush))
    }
}
