//! A stage: the simulated world behind a [`Port`], for parts of Stele that stand on a volume and
//! block.
//!
//! The catalog and the archive call a [`Handle`] and wait. On a stage everything happens on the
//! caller's own thread: a blocked caller pumps the world until its answer is there, so one seed
//! gives one order. The world of a thread lives in that thread, and a port only names a volume in
//! it. When the machine crashes, all operations in flight and all later ones are answered with
//! `Gone`, until the stage is set again. Code that runs while values are dropped can therefore not
//! reach the drives.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use stele_ground::{Instant, VolumeId};
use stele_media::{
    Completion, Done, Drive, Geometry, Handle, MediaError, MediaFault, Op, Order, Ordered, Port, Priority, Request,
};

use crate::machine::{Happening, Machine, Step};
use crate::system::System;

/// A system with volumes, stepped one event at a time.
pub trait Scene {
    /// `ordered`: report when a write has its place in the order, if the scene has one.
    fn submit(&mut self, volume: VolumeId, request: Request, ordered: bool);
    /// Processes one event, and moves ordered or ended operations to `said`. Returns false after a
    /// crash of the machine.
    fn step(&mut self, said: &mut Vec<Said>) -> bool;
}

/// A scene's report on an operation.
pub enum Said {
    Ordered { tag: u64 },
    Finished(Completion),
}

impl<S: System> Scene for Machine<S> {
    fn submit(&mut self, volume: VolumeId, request: Request, ordered: bool) {
        match ordered {
            true => Machine::submit_ordered(self, volume, request),
            false => Machine::submit(self, volume, request),
        }
    }

    fn step(&mut self, said: &mut Vec<Said>) -> bool {
        // Far enough for every timer of a pool, near enough to notice one that never fires.
        let limit = self.now + stele_ground::Duration::from_secs(60);
        let step = Machine::step(self, limit);
        // Alarms and the like are in the trace; one left here would keep the machine from its next
        // step.
        for happening in self.happenings.drain(..) {
            match happening {
                Happening::Ordered { tag, .. } => said.push(Said::Ordered { tag }),
                Happening::Finished { completion, .. } => said.push(Said::Finished(completion)),
                _ => {}
            }
        }
        step != Step::Crash
    }
}

/// A single drive as a volume, for tests without an array.
pub struct Bare<D> {
    pub drive: D,
    pub now: Instant,
    /// Number of operations begun or finished until the power goes.
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
    /// Cuts the power and restores it.
    pub fn restart(&mut self, dice: &mut stele_ground::Dice) {
        self.drive.power_cut(dice);
        self.burnt = false;
        self.fuse = None;
    }
}

impl<D: Drive> Scene for Bare<D> {
    fn submit(&mut self, _: VolumeId, request: Request, _: bool) {
        self.drive.submit(request);
        self.drive.kick();
        self.burn();
    }

    fn step(&mut self, said: &mut Vec<Said>) -> bool {
        if let Some(at) = self.drive.next_event().filter(|_| !self.burnt) {
            self.now = self.now.max(at);
            let mut reaped = Vec::new();
            self.drive.reap(self.now, &mut reaped);
            for completion in reaped {
                self.burn();
                if !self.burnt {
                    said.push(Said::Finished(completion));
                }
            }
        }
        !self.burnt
    }
}

#[derive(Default)]
struct Stage {
    /// `None` while the machine is down.
    scene: Option<Rc<RefCell<dyn Scene>>>,
    waiting: BTreeMap<u64, (Option<Ordered>, Done)>,
    tags: u64,
    crashes: u64,
}

thread_local! {
    static STAGE: RefCell<Stage> = RefCell::default();
}

/// Puts a scene on this thread's stage. Ports answer from it until it crashes or another one is
/// set. It must not be borrowed while a port is used.
pub fn set(scene: Rc<RefCell<dyn Scene>>) {
    strike();
    STAGE.with_borrow_mut(|stage| stage.scene = Some(scene));
}

/// Removes the scene: all operations in flight and all later ones are answered with `Gone`.
pub fn strike() {
    let waiting = STAGE.with_borrow_mut(|stage| {
        stage.scene = None;
        std::mem::take(&mut stage.waiting)
    });
    for (_, done) in waiting.into_values() {
        done(Op::Flush, Err(gone()));
    }
}

/// Whether the machine on the stage is up.
pub fn is_up() -> bool {
    STAGE.with_borrow(|stage| stage.scene.is_some())
}

/// A handle to a volume of the scene on this thread's stage. It must stay on this thread.
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

    /// The volumes of a pool share its log; a bare drive reports a write as ordered when it is
    /// durable.
    fn order(&self) -> Option<Order> {
        Some(Order(0))
    }

    fn submit(&self, op: Op, priority: Priority, done: Done) {
        self.post(op, priority, None, done);
    }

    fn submit_ordered(&self, op: Op, priority: Priority, ordered: Ordered, done: Done) {
        self.post(op, priority, Some(ordered), done);
    }

    fn pump(&self) -> bool {
        step();
        true
    }
}

impl StagePort {
    fn post(&self, op: Op, priority: Priority, ordered: Option<Ordered>, done: Done) {
        let refused = STAGE.with_borrow_mut(|stage| {
            let Some(scene) = &stage.scene else { return Some((op, done)) };
            stage.tags += 1;
            let tag = stage.tags;
            let request = Request { tag, op, priority, deadline: None };
            scene.borrow_mut().submit(self.volume, request, ordered.is_some());
            stage.waiting.insert(tag, (ordered, done));
            None
        });
        if let Some((op, done)) = refused {
            done(op, Err(gone()));
        }
    }
}

/// Lets the world on this thread's stage take a step, and delivers the ended operations. Does
/// nothing while it is down.
pub fn step() {
    let Some(scene) = STAGE.with_borrow(|stage| stage.scene.clone()) else { return };
    let mut said = Vec::new();
    let up = scene.borrow_mut().step(&mut said);
    for said in said {
        match said {
            Said::Ordered { tag } => {
                let waiting = |stage: &mut Stage| stage.waiting.get_mut(&tag).and_then(|(ordered, _)| ordered.take());
                if let Some(ordered) = STAGE.with_borrow_mut(waiting) {
                    ordered();
                }
            }
            Said::Finished(completion) => {
                let waiting = STAGE.with_borrow_mut(|stage| stage.waiting.remove(&completion.tag));
                let Some((ordered, done)) = waiting else { continue };
                if let Some(ordered) = ordered.filter(|_| completion.result.is_ok()) {
                    ordered();
                }
                done(completion.op, completion.result);
            }
        }
    }
    if !up {
        STAGE.with_borrow_mut(|stage| stage.crashes += 1);
        strike();
    }
}

/// Runs a future on this thread, and steps the world while it waits. Returns `None` if the stage is
/// empty and the future still waits: it then waits for something outside the world.
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
