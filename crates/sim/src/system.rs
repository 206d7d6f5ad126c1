//! What the world runs: anything with the shape of a pool, events in and actions out.

use stele_array::{Action, Attached, CreateOptions, Event, OpenOptions, Pool, State};
use stele_ground::Instant;

/// The shape of [`Pool`]. The world's own tests put plainer and broken things in its place.
pub trait System: Sized {
    fn create(options: CreateOptions, open: OpenOptions, drives: Vec<Attached>, now: Instant) -> Self;
    fn open(options: OpenOptions, drives: Vec<Attached>, now: Instant) -> Self;
    fn event(&mut self, event: Event);
    fn run(&mut self, now: Instant);
    fn actions(&mut self, out: &mut Vec<Action>);
    fn next_wake(&self) -> Option<Instant>;
    fn state(&self) -> &State;
}

impl System for Pool {
    fn create(options: CreateOptions, open: OpenOptions, drives: Vec<Attached>, now: Instant) -> Pool {
        Pool::create(options, open, drives, now)
    }
    fn open(options: OpenOptions, drives: Vec<Attached>, now: Instant) -> Pool {
        Pool::open(options, drives, now)
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
}
