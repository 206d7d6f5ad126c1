//! A drive in memory and virtual time, for proofs: it keeps exactly the promises of a drive and not
//! a byte more.
//!
//! Writes become visible when they complete, and durable by a flush or `fua`. A power cut leaves
//! any subset of all other writes, torn at 512 or 4096 bytes, in any order, earlier versions
//! included. Commands in service overlap and complete out of order; each takes the time that its
//! [`Model`] gives. The drive never fails on its own: [`crate::faulty::Faulty`] adds faults. Its
//! owner calls the events of a whole drive: unplugging, a rollback to an image, cloning, flips at
//! rest.
//!
//! Time is a value: the owner calls [`SimulatedDrive::advance`] (or `reap`) with the time before it
//! submits.

mod cache;
pub mod flash;
pub mod hard;
mod leaf;
mod medium;
mod model;
mod platter;

use std::collections::{BTreeMap, VecDeque};

use stele_ground::{Bytes, Dice, Instant};

pub use cache::{Cut, Unsettled};
pub use flash::{Flash, FlashSpec};
pub use hard::{HardDrive, HardDriveSpec};
pub use leaf::Leaf;
pub use medium::Medium;
pub use model::{CommandWork, Model, Plain};
pub use platter::{Page, Platter, SECTOR};

use crate::{Completion, Drive, Geometry, MediaError, MediaFault, Request};

/// Largest number of commands that wait in the drive; a further one is answered with `Retry`.
pub const WAITING_MAX: usize = 65_536;

struct Serving {
    request: Request,
    /// For a flush: the writes that it covers, fixed at its submission.
    mark: u64,
}

/// The drive. Not shared; its owner steps it.
pub struct SimulatedDrive {
    geometry: Geometry,
    medium: Medium,
    model: Box<dyn Model>,
    clock: Instant,
    waiting: VecDeque<Serving>,
    /// Commands by their time of completion; ties are in order of service.
    serving: BTreeMap<(Instant, u64), Serving>,
    served: u64,
    finished: Vec<Completion>,
    plugged: bool,
}

impl SimulatedDrive {
    /// An empty drive. `tear` is the unit that a power cut never splits: 512 or 4096 bytes.
    pub fn new(geometry: Geometry, tear: Bytes, model: Box<dyn Model>) -> SimulatedDrive {
        SimulatedDrive::holding(Platter::default(), geometry, tear, model)
    }

    /// A drive that holds an earlier image.
    pub fn holding(platter: Platter, geometry: Geometry, tear: Bytes, model: Box<dyn Model>) -> SimulatedDrive {
        SimulatedDrive {
            geometry,
            medium: Medium::holding(platter, tear),
            model,
            clock: Instant::default(),
            waiting: VecDeque::new(),
            serving: BTreeMap::new(),
            served: 0,
            finished: Vec::new(),
            plugged: true,
        }
    }

    /// Advances the time: completes the commands that are done by `now`, and starts waiting ones at
    /// their own times.
    pub fn advance(&mut self, now: Instant) {
        loop {
            self.begin();
            match self.serving.first_key_value() {
                Some((&(at, _), _)) if at <= now => {}
                _ => break,
            }
            if let Some(((at, _), serving)) = self.serving.pop_first() {
                self.clock = self.clock.max(at);
                self.carry_out(serving);
            }
        }
        self.clock = self.clock.max(now);
    }

    fn begin(&mut self) {
        while !self.waiting.is_empty() && self.serving.len() < self.model.channels() {
            let chosen = if self.waiting.len() == 1 || self.model.window() == 1 {
                0
            } else {
                let seen = self.waiting.iter().take(self.model.window());
                let works: Vec<CommandWork> = seen.map(|waiting| CommandWork::of(&waiting.request.op)).collect();
                self.model.choose(self.clock, &works)
            };
            let Some(next) = self.waiting.remove(chosen) else { return };
            let done = self.clock + self.model.service(self.clock, CommandWork::of(&next.request.op));
            self.served += 1;
            self.serving.insert((done, self.served), next);
        }
    }

    fn carry_out(&mut self, serving: Serving) {
        let Serving { mut request, mark } = serving;
        self.medium.carry_out(&mut request.op, mark);
        self.finished.push(Completion { tag: request.tag, op: request.op, result: Ok(()) });
    }

    /// Loses what is in the cache, and goes on.
    pub fn lose_cache(&mut self) {
        self.medium.cut(|_| 0);
    }

    /// The possible results of a power cut now. Commands in service count as writes that may or may
    /// not have reached the medium. Call this before [`SimulatedDrive::power_cut_choosing`], which
    /// drops the commands in flight.
    pub fn prepare_power_cut(&mut self) -> Vec<Unsettled> {
        for (_, serving) in std::mem::take(&mut self.serving) {
            self.medium.break_off(&serving.request.op);
        }
        self.waiting.clear();
        self.finished.clear();
        self.medium.unsettled()
    }

    /// Cuts the power: forgets every command in flight; `choose` selects the content of each
    /// unsettled place.
    pub fn power_cut_choosing(&mut self, choose: impl FnMut(Unsettled) -> usize) {
        self.prepare_power_cut();
        self.medium.cut(choose);
    }

    /// The medium after a power cut in which `choose` selects the content of each unsettled place.
    /// Call [`SimulatedDrive::prepare_power_cut`] first, so that commands in service are among
    /// them.
    pub fn after_power_cut(&self, choose: impl FnMut(Unsettled) -> usize) -> Platter {
        self.medium.after_cut(choose)
    }

    /// Cuts the power; the dice decide how much of the cache is lost.
    pub fn power_cut(&mut self, dice: &mut Dice) -> Cut {
        let cut = Cut::drawn(dice);
        self.power_cut_choosing(|place| cut.choose(dice, place));
        cut
    }

    /// Removes the drive: all operations in flight and all later ones fail as `Gone`. It keeps its
    /// power and therefore its cache. Add a power cut to lose the cache.
    pub fn unplug(&mut self) {
        self.plugged = false;
        let serving = std::mem::take(&mut self.serving);
        for lost in serving.into_values().chain(std::mem::take(&mut self.waiting)) {
            self.finished.push(refused(lost.request, MediaFault::Gone, "the drive was unplugged"));
        }
    }

    pub fn plug(&mut self) {
        self.plugged = true;
    }

    pub fn is_plugged(&self) -> bool {
        self.plugged
    }

    /// Makes all applied writes durable, whatever earlier flushes claimed.
    pub fn settle(&mut self) {
        self.medium.settle();
    }

    /// The host died but the power stayed: commands in flight are carried out in time, and their
    /// answers are dropped.
    pub fn orphan(&mut self) {
        while let Some((&(at, _), _)) = self.serving.first_key_value() {
            self.advance(at);
        }
        self.finished.clear();
    }

    /// Number of commands not yet answered.
    pub fn in_flight(&self) -> usize {
        self.waiting.len() + self.serving.len() + self.finished.len()
    }

    /// The durable content.
    pub fn platter(&self) -> &Platter {
        self.medium.platter()
    }

    /// The content that a reader sees: the durable content with the cache over it.
    pub fn image(&self) -> Platter {
        self.medium.image()
    }

    /// Replaces the medium by this image and empties the cache: a rollback, a clone, a swap.
    pub fn restore(&mut self, image: Platter) {
        self.prepare_power_cut();
        self.medium.restore(image);
    }

    /// Inverts bits of one stored byte, like decay at rest. A cached newer version hides it.
    pub fn flip(&mut self, at: u64, bits: u8) {
        self.medium.flip(at, bits);
    }
}

fn refused(request: Request, fault: MediaFault, message: &'static str) -> Completion {
    Completion { tag: request.tag, op: request.op, result: Err(MediaError::new(fault, message)) }
}

impl Drive for SimulatedDrive {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, request: Request) {
        if !self.plugged {
            self.finished.push(refused(request, MediaFault::Gone, "the drive is unplugged"));
        } else if let Err(error) = self.geometry.admit(&request.op) {
            self.finished.push(Completion { tag: request.tag, op: request.op, result: Err(error) });
        } else if self.waiting.len() >= WAITING_MAX {
            self.finished.push(refused(request, MediaFault::Retry, "the drive's queue is full"));
        } else {
            let mark = self.medium.mark();
            self.waiting.push_back(Serving { request, mark });
            self.begin();
        }
    }

    fn reap(&mut self, now: Instant, finished: &mut Vec<Completion>) {
        self.advance(now);
        finished.append(&mut self.finished);
    }

    fn next_event(&self) -> Option<Instant> {
        if self.finished.is_empty() { self.serving.first_key_value().map(|(&(at, _), _)| at) } else { Some(self.clock) }
    }
}

impl std::fmt::Debug for SimulatedDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimulatedDrive({}, {:?}, {} in flight)", self.geometry.size, self.medium.platter(), self.in_flight())
    }
}

#[cfg(test)]
mod tests;
