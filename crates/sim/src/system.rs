//! The system that the world runs: any value with the interface of a pool, events in and actions
//! out.

use std::sync::OnceLock;

use stele_array::mutation::{Mutation, Mutations};
use stele_array::{Action, Attached, CreateOptions, Event, OpenOptions, Pool, State};
use stele_ground::Instant;

/// The interface of [`Pool`]. The world's own tests replace it by simpler and broken ones.
pub trait System: Sized {
    fn create(options: CreateOptions, open: OpenOptions, drives: Vec<Attached>, now: Instant) -> Self;
    fn open(options: OpenOptions, drives: Vec<Attached>, now: Instant) -> Self;
    fn event(&mut self, event: Event);
    fn run(&mut self, now: Instant);
    fn actions(&mut self, out: &mut Vec<Action>);
    fn next_wake(&self) -> Option<Instant>;
    fn state(&self) -> &State;
    /// Inverts a bit of data that waits in memory to be destaged. Returns false if there is none.
    fn spoil_memory(&mut self, _which: u64, _bit: usize) -> bool {
        false
    }
}

/// Protections removed from every pool of this process, to see whether a test notices: see
/// `./x mutants`.
static WITHOUT: OnceLock<Mutations> = OnceLock::new();

/// Removes a protection from every pool opened from here on. Returns false if one was removed
/// before.
pub fn go_without(mutation: Mutation) -> bool {
    WITHOUT.set(Mutations::default().with(mutation)).is_ok()
}

fn mutated(mut pool: Pool) -> Pool {
    if let Some(without) = WITHOUT.get() {
        pool.set_mutations(*without);
    }
    pool
}

impl System for Pool {
    fn create(options: CreateOptions, open: OpenOptions, drives: Vec<Attached>, now: Instant) -> Pool {
        mutated(Pool::create(options, open, drives, now))
    }
    fn open(options: OpenOptions, drives: Vec<Attached>, now: Instant) -> Pool {
        mutated(Pool::open(options, drives, now))
    }
    fn event(&mut self, event: Event) {
        Pool::event(self, event);
    }
    fn run(&mut self, now: Instant) {
        Pool::run(self, now);
    }
    fn actions(&mut self, out: &mut Vec<Action>) {
        Pool::actions(self, out);
    }
    fn next_wake(&self) -> Option<Instant> {
        Pool::next_wake(self)
    }
    fn state(&self) -> &State {
        Pool::state(self)
    }
    fn spoil_memory(&mut self, which: u64, bit: usize) -> bool {
        Pool::spoil_memory(self, which, bit)
    }
}
