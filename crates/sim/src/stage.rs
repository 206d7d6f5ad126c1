//! A stage: the world put behind a [`Port`], for parts of Stele that stand on a volume and block.
//!
//! The catalog and the archive call a [`Handle`] and wait. On a stage everything happens on the caller's own thread:
//! a blocked caller pumps the world until its answer is there, so one seed is one order. The world of a thread
//! lives in that thread; a port is only a name for a volume in it. When the machine crashes, everything in flight and
//! everything later is answered with `Gone`, until the stage is set again: nothing that runs while values are
//! dropped can reach the drives.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use stele_ground::{Instant, VolumeId};
use stele_media::{Completion, Done, Drive, Geometry, Handle, MediaError, MediaFault, Op, Port, Priority, Request};

use crate::machine::{Happening, Machine, Step};
use crate::system::System;

/// Something with volumes, stepped one event at a time.
pub trait Scene {
    fn submit(&mut self, volume: VolumeId, request: Request);
    /// Lets one thing happen and moves what ended to `finished`. False when the machine has crashed.
    fn step(&mut self, finished: &mut Vec<(VolumeId, Completion)>) -> bool;
}

impl<S: System> Scene for Machine<S> {
    fn submit(&mut self, volume: VolumeId, request: Request) {
        Machine::submit(self, volume, request);
    }

    fn step(&mut self, finished: &mut Vec<(VolumeId, Completion)>) -> bool {
        // Far enough for every timer of a pool, near enough to notice one that never fires.
        let limit = self.now + stele_ground::Duration::from_secs(60);
        let step = Machine::step(self, limit);
        let mut rest = std::collections::VecDeque::new();
        while let Some(happening) = self.happenings.pop_front() {
            match happening {
                Happening::Finished { volume, completion } => finished.push((volume, completion)),
                other => rest.push_back(other),
            }
        }
        self.happenings = rest;
        step != Step::Crash
    }
}

/// A single drive as a volume, to try something on before there is an array.
pub struct Bare<D> {
    pub drive: D,
    pub now: Instant,
    /// Operations begun or finished until the power goes.
    pub fuse: Option<u64>,
    burnt: bool,
}

impl<D: Drive> Bare<D> {
    pub fn new(drive: D) -> Bare<D> {
        Bare { drive, now: Instant(0), fuse: None, burnt: false }
    }

    fn burn(&mut self) {
        if self.burnt {
            return;
        }
        if let Some(fuse) = &mut self.fuse {
            *fuse = fuse.saturating_sub(1);
            self.burnt = *fuse == 0;
        }
    }
}

impl Bare<stele_media::simulated::SimulatedDrive> {
    /// The power goes, and comes back.
    pub fn restart(&mut self, dice: &mut stele_ground::Dice) {
        self.drive.power_cut(dice);
        self.burnt = false;
        self.fuse = None;
    }
}

impl<D: Drive> Scene for Bare<D> {
    fn submit(&mut self, _: VolumeId, request: Request) {
        self.drive.submit(request);
        self.drive.kick();
        self.burn();
    }

    fn step(&mut self, finished: &mut Vec<(VolumeId, Completion)>) -> bool {
        if let Some(at) = self.drive.next_event().filter(|_| !self.burnt) {
            self.now = self.now.max(at);
            let mut reaped = Vec::new();
            self.drive.reap(self.now, &mut reaped);
            for completion in reaped {
                self.burn();
                if !self.burnt {
                    finished.push((VolumeId(0), completion));
                }
            }
        }
        !self.burnt
    }
}

#[derive(Default)]
struct Stage {
    /// None while the machine is down.
    scene: Option<Rc<RefCell<dyn Scene>>>,
    waiting: BTreeMap<u64, Done>,
    tags: u64,
    crashes: u64,
}

thread_local! {
    static STAGE: RefCell<Stage> = RefCell::default();
}

/// Puts a scene on this thread's stage; ports answer from it until it crashes or another one is set. It must not be
/// borrowed while a port is used.
pub fn set(scene: Rc<RefCell<dyn Scene>>) {
    strike();
    STAGE.with_borrow_mut(|stage| stage.scene = Some(scene));
}

/// Takes the scene down: everything in flight and everything later is answered with `Gone`.
pub fn strike() {
    let waiting = STAGE.with_borrow_mut(|stage| {
        stage.scene = None;
        std::mem::take(&mut stage.waiting)
    });
    for done in waiting.into_values() {
        done(Op::Flush, Err(gone()));
    }
}

/// Whether the machine on the stage is up.
pub fn is_up() -> bool {
    STAGE.with_borrow(|stage| stage.scene.is_some())
}

/// A handle to a volume of whatever is on this thread's stage. It must stay on this thread.
pub fn handle(volume: VolumeId, geometry: Geometry) -> Handle {
    Handle::new(StagePort { volume, geometry })
}

struct StagePort {
    volume: VolumeId,
    geometry: Geometry,
}

impl Port for StagePort {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, op: Op, priority: Priority, done: Done) {
        let refused = STAGE.with_borrow_mut(|stage| {
            let Some(scene) = &stage.scene else { return Some((op, done)) };
            stage.tags += 1;
            let tag = stage.tags;
            scene.borrow_mut().submit(self.volume, Request { tag, op, priority, deadline: None });
            stage.waiting.insert(tag, done);
            None
        });
        if let Some((op, done)) = refused {
            done(op, Err(gone()));
        }
    }

    fn pump(&self) -> bool {
        step();
        true
    }
}

/// Lets the world on this thread's stage take a step, and hands out what ended. Does nothing when it is down.
pub fn step() {
    let Some(scene) = STAGE.with_borrow(|stage| stage.scene.clone()) else { return };
    let mut finished = Vec::new();
    let up = scene.borrow_mut().step(&mut finished);
    for (_, completion) in finished {
        let done = STAGE.with_borrow_mut(|stage| stage.waiting.remove(&completion.tag));
        if let Some(done) = done {
            done(completion.op, completion.result);
        }
    }
    if !up {
        STAGE.with_borrow_mut(|stage| stage.crashes += 1);
        strike();
    }
}

/// Runs a future on this thread, letting the world step while it waits. None if nothing is on the stage any more and
/// the future still waits: then it waits for something outside the world.
pub fn block_on<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut after_the_end = 0;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        if !is_up() {
            after_the_end += 1;
            if after_the_end > 1_000 {
                return None;
            }
        }
        step();
    }
}

fn gone() -> MediaError {
    MediaError::new(MediaFault::Gone, "the simulated machine has crashed")
}
