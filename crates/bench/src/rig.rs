//! A pool and its drives that this program drives itself, with one thread. Dropping it is what
//! kill -9 is to a server.

use std::time::Instant as WallInstant;

use stele_array::{Action, Attached, Command, Event, Pool, Reply, State, VolumeSpec};
use stele_ground::{Instant, VolumeId};
use stele_media::{Completion, Drive, Op, Priority, Request};

/// The time that the pool and its drives are told.
#[derive(Clone, Copy, PartialEq)]
pub enum TimeSource {
    Wall,
    /// Where nothing can be done, it jumps to the next event.
    Virtual,
}

pub struct Rig<D> {
    pool: Pool,
    drives: Vec<D>,
    clock: TimeSource,
    begun: WallInstant,
    now: Instant,
    next: u64,
    actions: Vec<Action>,
    finished: Vec<Completion>,
}

impl<D: Drive> Rig<D> {
    /// Lets `open` begin with the drives, and waits until the pool is open.
    pub fn open(
        drives: Vec<D>,
        clock: TimeSource,
        open: impl FnOnce(Vec<Attached>, Instant) -> Pool,
    ) -> Result<Rig<D>, String> {
        let attached = drives.iter().enumerate().map(|(at, drive)| Attached {
            geometry: drive.geometry(),
            name: format!("d{at}"),
            enclosure: at as u32,
        });
        let now = Instant(1);
        let pool = open(attached.collect(), now);
        let (actions, finished) = (Vec::new(), Vec::new());
        let mut rig = Rig { pool, drives, clock, begun: WallInstant::now(), now, next: 0, actions, finished };
        while *rig.pool.state() == State::Starting {
            rig.turn(&mut Vec::new());
        }
        match rig.pool.state() {
            State::Ready { .. } => Ok(rig),
            other => Err(format!("the pool did not open: {other:?}")),
        }
    }

    /// Time since the pool began to open.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// One round of the event loop; the pool's answers go to `answers`.
    fn turn(&mut self, answers: &mut Vec<Action>) {
        if self.clock == TimeSource::Wall {
            self.now = Instant(self.begun.elapsed().as_nanos() as u64 + 1);
        }
        self.pool.run(self.now);
        self.pool.actions(&mut self.actions);
        let mut is_idle = self.actions.is_empty();
        for action in self.actions.drain(..) {
            match action {
                Action::Drive { drive, request } => self.drives[drive].submit(request),
                answer => answers.push(answer),
            }
        }
        for (drive, device) in self.drives.iter_mut().enumerate() {
            device.reap(self.now, &mut self.finished);
            for completion in self.finished.drain(..) {
                is_idle = false;
                self.pool.event(Event::Completed { drive, completion });
            }
        }
        if self.clock == TimeSource::Virtual && is_idle {
            let drives = self.drives.iter().filter_map(D::next_event);
            let next = drives.chain(self.pool.next_wake()).min();
            self.now = next.unwrap_or(self.now).max(self.now);
        }
    }

    pub fn command(&mut self, command: Command) -> Result<Reply, String> {
        self.pool.event(Event::Command { id: 0, command });
        let mut answers = Vec::new();
        loop {
            self.turn(&mut answers);
            for answer in answers.drain(..) {
                if let Action::Reply { reply, .. } = answer {
                    return reply.map_err(|error| error.to_string());
                }
            }
        }
    }

    pub fn create(&mut self, spec: VolumeSpec) -> Result<VolumeId, String> {
        match self.command(Command::CreateVolume(spec))? {
            Reply::Volume(volume) => Ok(volume.id),
            other => Err(format!("{other:?}")),
        }
    }

    /// Keeps `depth` operations under way until `count` have finished; `make` builds each, from a
    /// recycled one if there is one. Returns the seconds that it took.
    pub fn drive(
        &mut self,
        volume: VolumeId,
        depth: usize,
        count: u64,
        mut make: impl FnMut(u64, Option<Op>) -> Op,
    ) -> Result<f64, String> {
        let begin = WallInstant::now();
        let (mut submitted, mut done) = (0, 0);
        let mut answers = Vec::new();
        while submitted < count.min(depth as u64) {
            self.submit(volume, make(submitted, None));
            submitted += 1;
        }
        while done < count {
            self.turn(&mut answers);
            for answer in answers.drain(..) {
                let Action::Finished { completion, .. } = answer else { continue };
                completion.result.map_err(|error| error.to_string())?;
                done += 1;
                if submitted < count {
                    self.submit(volume, make(submitted, Some(completion.op)));
                    submitted += 1;
                }
            }
        }
        Ok(begin.elapsed().as_secs_f64())
    }

    fn submit(&mut self, volume: VolumeId, op: Op) {
        self.next += 1;
        let request = Request { tag: self.next, op, priority: Priority::Host, deadline: None };
        self.pool.event(Event::Submit { volume, request });
    }
}
