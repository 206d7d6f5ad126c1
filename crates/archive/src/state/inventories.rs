//! Inventories that are being made, and those that failed. In memory: after a restart a failed one
//! is tried at once.

use std::collections::BTreeMap;

use crate::state::shared::Shared;

/// Milliseconds until an inventory that failed is tried again. They double with each failure.
const AGAIN: u64 = 3_600_000;
/// Failures in a row that operators are told of.
const TOLD: u32 = 2;

/// A bucket's number, and the id of one of its inventories.
pub(crate) type InventoryName = (u32, String);

#[derive(Default)]
pub(crate) struct Inventories(Shared<BTreeMap<InventoryName, State>>);

#[derive(Clone, Default)]
struct State {
    running: bool,
    failures: u32,
    /// The elapsed time at which it may be tried again.
    next: u64,
    why: String,
}

/// No other run of the inventory begins while this lives.
pub(crate) struct Running<'a> {
    of: &'a Inventories,
    name: InventoryName,
}

impl Inventories {
    /// None: a run is under way.
    pub fn begin(&self, name: &InventoryName) -> Option<Running<'_>> {
        self.0.step(|states| {
            let state = states.entry(name.clone()).or_default();
            (!std::mem::replace(&mut state.running, true)).then(|| Running { of: self, name: name.clone() })
        })
    }

    /// Whether it neither runs nor waits after a failure.
    pub fn is_free(&self, name: &InventoryName, elapsed: u64) -> bool {
        self.0.look(|states| states.get(name).is_none_or(|state| !state.running && elapsed >= state.next))
    }

    /// The inventories that failed again and again, with the number of failures and the last
    /// reason.
    pub fn failing(&self) -> Vec<(InventoryName, u32, String)> {
        self.0.look(|states| {
            let failing = states.iter().filter(|(_, state)| state.failures >= TOLD);
            failing.map(|(name, state)| (name.clone(), state.failures, state.why.clone())).collect()
        })
    }

    /// The inventory is gone, or is another one now.
    pub fn forget(&self, name: &InventoryName) {
        self.0.step(|states| {
            if let Some(state) = states.get_mut(name) {
                *state = State { running: state.running, ..State::default() };
            }
        });
    }
}

impl Running<'_> {
    /// Notes the end. `failure`: why it failed; `period`: milliseconds between two runs, and the
    /// longest pause.
    pub fn end(self, failure: Option<String>, elapsed: u64, period: u64) {
        self.of.0.step(|states| {
            let Some(state) = states.get_mut(&self.name) else { return };
            let failures = failure.as_ref().map_or(0, |_| state.failures.saturating_add(1));
            let pause = AGAIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(period);
            let next = if failures == 0 { 0 } else { elapsed.saturating_add(pause) };
            *state = State { running: state.running, failures, next, why: failure.unwrap_or_default() };
        });
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.of.0.step(|states| {
            if let Some(state) = states.get_mut(&self.name) {
                state.running = false;
                if state.failures == 0 {
                    states.remove(&self.name);
                }
            }
        });
    }
}
