//! The places of requests that a drive has, or that wait for it.

use stele_ground::Instant;
use stele_media::Request;

use super::{IoState, LONG_WEIGHT, NEVER, Slot, SlotState};
use crate::model::Action;

impl IoState {
    pub(super) fn occupy(&mut self, state: SlotState) -> (usize, u64) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                tenant: 0,
                submitted: NEVER,
                depth: 0,
                state: SlotState::Free,
                reads: false,
                long: false,
                is_run: false,
                is_hosts: false,
                is_destage: false,
                owed: false,
            });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        slot.state = state;
        slot.submitted = NEVER;
        (slot.reads, slot.long, slot.is_run) = (false, false, false);
        (slot.is_hosts, slot.is_destage) = (false, false);
        (index, u64::from(slot.tenant) << 32 | index as u64)
    }

    /// A read that no task waits for any more does not go out.
    pub(super) fn drop_unwanted(&mut self, request: &Request) -> bool {
        let index = (request.tag as u32) as usize;
        let slot = &mut self.slots[index];
        let unwanted = slot.reads && matches!(slot.state, SlotState::Abandoned);
        if unwanted {
            slot.state = SlotState::Free;
            slot.tenant = slot.tenant.wrapping_add(1);
            let is_destage = std::mem::take(&mut slot.is_destage);
            self.free.push(index);
            if is_destage {
                self.destage_left();
            }
        }
        unwanted
    }

    pub(super) fn hand_out(&mut self, drive: usize, request: Request, now: Instant, actions: &mut Vec<Action>) {
        self.out += 1;
        let slot = &mut self.slots[(request.tag as u32) as usize];
        (slot.submitted, slot.depth) = (now, self.out as u32 + self.long_out * LONG_WEIGHT);
        self.long_out += u32::from(slot.long);
        self.runs_out += u32::from(slot.is_run);
        self.hosts_out += u32::from(slot.is_hosts);
        self.passed = if slot.is_run { 0 } else { self.passed.saturating_add(u32::from(slot.is_hosts)) };
        actions.push(Action::Drive { drive, request });
    }
}
