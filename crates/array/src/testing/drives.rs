//! Drives for this crate's tests: any order of completion, power cuts, lost drives, damage, and
//! faults that a test sets.
//!
//! Each drive keeps its content in a [`Medium`], as the simulated drives of whole worlds do. These
//! here have no time of service: the dice choose which operation ends next. Everything follows one
//! seed.

use std::collections::BTreeSet;

use stele_ground::{BLOCK, Bytes, Dice, Duration, Instant};
use stele_media::simulated::Medium;
use stele_media::{Completion, Geometry, MediaError, MediaFault, Op, Request, Shared};

use crate::model::{Action, Attached};
use crate::runtime::io::Io;
use crate::runtime::task::Tasks;

#[derive(Clone)]
pub struct TestDrive {
    medium: Medium,
    pub gone: bool,
    /// Fails writes and flushes, while reads still work.
    pub write_protected: bool,
    /// Answers writes of data with errors, and every second read of it.
    pub fails_writes: bool,
    pub fails_reads: bool,
    /// Answers so many flushes of ten strips or more with errors.
    pub fails_flushes: u32,
    /// A flush that fails loses what was in its cache.
    pub forgets: bool,
    /// Its connector is loose: every read of data fails.
    pub is_loose: bool,
    /// Its controller resets: it answers so many requests with errors, whatever they are.
    pub refuses: u32,
    /// Answers so many writes with errors that it may not make again.
    pub retries: u32,
    /// Of writes to these places, if any are named.
    pub retries_at: std::ops::Range<u64>,
    /// Answers so many reads of these places with errors that it may not make again.
    pub read_retries: u32,
    pub read_retries_at: std::ops::Range<u64>,
    /// Reads so many times of these places from another one, and says nothing of it.
    pub misreads: u32,
    pub misreads_at: std::ops::Range<u64>,
    /// Its controller hangs: every read fails, also of its labels.
    pub is_cut: bool,
    /// It ends to hang when its label is read.
    pub wakes_at_label: bool,
    /// Answers writes to these places with errors.
    pub fails_at: std::ops::Range<u64>,
    /// Blocks, by number, that it cannot read before they are written again.
    pub unreadable: BTreeSet<u64>,
    reads: u64,
}

pub struct TestDrives {
    pub drives: Vec<TestDrive>,
    pub size: Bytes,
    dice: Dice,
    /// Drive, operation, and the mark of the drive's medium when it was begun.
    queue: Vec<(usize, Request, u64)>,
    /// Operations carried out.
    pub operations: u64,
    /// The power goes before this operation.
    pub cut_at: Option<u64>,
    /// These drives go before this operation.
    pub lose_at: Option<(u64, Vec<usize>)>,
    /// Writes that begin within these places, on any drive, are held back; a power cut forgets
    /// them.
    pub held: Option<std::ops::Range<u64>>,
    now: Instant,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Nothing is left to do.
    Idle,
    PowerCut,
}

impl TestDrives {
    pub fn new(drives: usize, size: Bytes, seed: u64) -> TestDrives {
        TestDrives {
            drives: (0..drives).map(|at| TestDrive::tearing([512, BLOCK as u64][at % 2])).collect(),
            size,
            dice: Dice::new(seed),
            queue: Vec::new(),
            operations: 0,
            cut_at: None,
            lose_at: None,
            held: None,
            now: Instant(0),
        }
    }

    pub fn attached(&self, enclosure_of: impl Fn(usize) -> u32) -> Vec<Attached> {
        (0..self.drives.len())
            .map(|at| Attached {
                geometry: Geometry { size: self.size, block: Bytes(BLOCK as u64) },
                name: format!("drives/{at}"),
                enclosure: enclosure_of(at),
            })
            .collect()
    }

    /// Fresh executor and drive access over these drives.
    pub fn start(&self) -> (Tasks, Io) {
        let tasks = Tasks::new();
        let io = Io::new(&tasks, self.now);
        for _ in &self.drives {
            io.attach();
        }
        (tasks, io)
    }

    /// Runs until nothing is left to do, or the power goes.
    pub fn run(&mut self, tasks: &Tasks, io: &Io) -> End {
        let mut actions = Vec::new();
        loop {
            tasks.run_ready();
            io.drain(&mut actions);
            for action in actions.drain(..) {
                if let Action::Drive { drive, request } = action {
                    let mark = self.drives[drive].medium.mark();
                    self.queue.push((drive, request, mark));
                }
            }
            if self.queue.is_empty() {
                match io.next_wake() {
                    Some(at) => {
                        self.now = self.now.max(at);
                        io.advance(self.now);
                        continue;
                    }
                    None => return End::Idle,
                }
            }
            if self.cut_at.is_some_and(|cut| self.operations >= cut) {
                return End::PowerCut;
            }
            self.operations += 1;
            self.now = self.now + Duration(1_000);
            io.advance(self.now);
            let next = self.dice.below(self.queue.len() as u64) as usize;
            let (drive, request, mark) = self.queue.swap_remove(next);
            let completion = self.drives[drive].execute(request, mark, self.size);
            io.complete(drive, completion);
        }
    }

    /// Runs a pool until `enough`, until it has nothing to do for a minute, or the power goes. What
    /// it answers to hosts and operators is appended to `answers`.
    pub fn run_pool(
        &mut self,
        pool: &mut crate::pool::Pool,
        answers: &mut Vec<Action>,
        mut enough: impl FnMut(&[Action], &crate::pool::Pool) -> bool,
    ) -> End {
        let quiet = self.now + Duration::from_secs(60);
        self.run_pool_while_awake(pool, answers, quiet, &mut enough)
    }

    /// Runs a pool until a moment comes, or the power goes.
    pub fn run_pool_until(&mut self, pool: &mut crate::pool::Pool, answers: &mut Vec<Action>, end: Instant) -> End {
        let ended = self.run_pool_while_awake(pool, answers, end, &mut |_, _| false);
        self.now = self.now.max(end);
        ended
    }

    fn run_pool_while_awake(
        &mut self,
        pool: &mut crate::pool::Pool,
        answers: &mut Vec<Action>,
        quiet: Instant,
        enough: &mut dyn FnMut(&[Action], &crate::pool::Pool) -> bool,
    ) -> End {
        let mut actions = Vec::new();
        loop {
            pool.run(self.now);
            pool.actions(&mut actions);
            for action in actions.drain(..) {
                match action {
                    Action::Drive { drive, request } => {
                        let mark = self.drives[drive].medium.mark();
                        self.queue.push((drive, request, mark));
                    }
                    answer => answers.push(answer),
                }
            }
            if enough(answers, pool) {
                return End::Idle;
            }
            let open: Vec<usize> = (0..self.queue.len()).filter(|at| !self.is_held(&self.queue[*at].1)).collect();
            if open.is_empty() {
                match pool.next_wake() {
                    Some(at) if at <= quiet => {
                        self.now = self.now.max(at);
                        continue;
                    }
                    _ => return End::Idle,
                }
            }
            if self.cut_at.is_some_and(|cut| self.operations >= cut) {
                return End::PowerCut;
            }
            self.lose();
            self.operations += 1;
            self.now = self.now + Duration(1_000);
            let next = open[self.dice.below(open.len() as u64) as usize];
            let (drive, request, mark) = self.queue.swap_remove(next);
            let completion = self.drives[drive].execute(request, mark, self.size);
            pool.event(crate::model::Event::Completed { drive, completion });
        }
    }

    fn is_held(&self, request: &Request) -> bool {
        matches!((&request.op, &self.held), (Op::Write { at, .. }, Some(held)) if held.contains(at))
    }

    fn lose(&mut self) {
        if let Some((_, drives)) = self.lose_at.take_if(|(at, _)| self.operations >= *at) {
            drives.into_iter().for_each(|drive| self.drives[drive].gone = true);
        }
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// Runs one future to its end on fresh or given tasks; none when the power went first.
    pub fn finish<T: 'static>(
        &mut self,
        tasks: &Tasks,
        io: &Io,
        future: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        let slot = std::rc::Rc::new(std::cell::RefCell::new(None));
        let fill = std::rc::Rc::clone(&slot);
        tasks.spawn(async move {
            let value = future.await;
            *fill.borrow_mut() = Some(value);
        });
        let end = self.run(tasks, io);
        let value = slot.borrow_mut().take();
        assert!(value.is_some() || end == End::PowerCut, "nothing is left to do, but the flow did not finish");
        value
    }

    /// The power goes and returns: of unflushed writes any subset of sectors is left.
    pub fn cut(&mut self) {
        self.cut_at = None;
        for (drive, request, _) in std::mem::take(&mut self.queue) {
            if self.is_held(&request) {
                continue;
            }
            self.drives[drive].medium.break_off(&request.op);
        }
        self.held = None;
        for drive in &mut self.drives {
            drive.medium.power_cut(&mut self.dice);
        }
    }

    /// Whatever was not flushed is not there any more.
    pub fn drop_unflushed(&mut self) {
        for drive in &mut self.drives {
            drive.medium.cut(|_| 0);
        }
    }

    /// The process dies; what drives have taken stays in their caches.
    pub fn kill(&mut self) {
        self.cut_at = None;
        self.queue.clear();
        self.held = None;
    }

    /// The power goes, and nothing is left that was not flushed.
    pub fn cut_bare(&mut self) {
        self.queue.clear();
        self.drop_unflushed();
    }

    /// Turns bytes over, durably.
    pub fn damage(&mut self, drive: usize, at: u64, length: u64) {
        let turned: Vec<u8> = self.peek(drive, at, length as usize).iter().map(|byte| byte ^ 0xA5).collect();
        self.poke(drive, at, &turned);
    }

    /// Zeros bytes, durably.
    pub fn erase(&mut self, drive: usize, at: u64, length: u64) {
        self.poke(drive, at, &vec![0; length as usize]);
    }

    /// Zeros all from a place on, durably.
    pub fn erase_from(&mut self, drive: usize, at: u64) {
        let medium = &mut self.drives[drive].medium;
        medium.carry_out(&mut Op::Zero { at, length: self.size.0 - at }, 0);
        medium.settle();
    }

    /// Replaces bytes, durably, together with what else is in their blocks.
    pub fn poke(&mut self, drive: usize, at: u64, bytes: &[u8]) {
        let within = (at % BLOCK as u64) as usize;
        let begin = at - within as u64;
        let mut blocks = self.peek(drive, begin, (within + bytes.len()).next_multiple_of(BLOCK));
        blocks[within..within + bytes.len()].copy_from_slice(bytes);
        let medium = &mut self.drives[drive].medium;
        medium.carry_out(&mut Op::Write { at: begin, data: vec![Shared::from(blocks)], fua: true }, 0);
    }

    pub fn peek(&self, drive: usize, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.drives[drive].medium.read(at, &mut bytes);
        bytes
    }
}

impl Default for TestDrive {
    fn default() -> TestDrive {
        TestDrive::tearing(512)
    }
}

impl TestDrive {
    /// An empty drive. A power cut splits its writes between units of so many bytes.
    fn tearing(unit: u64) -> TestDrive {
        TestDrive {
            medium: Medium::new(Bytes(unit)),
            gone: false,
            write_protected: false,
            fails_writes: false,
            fails_reads: false,
            fails_flushes: 0,
            forgets: false,
            is_loose: false,
            refuses: 0,
            retries: 0,
            retries_at: 0..0,
            read_retries: 0,
            read_retries_at: 0..0,
            misreads: 0,
            misreads_at: 0..0,
            is_cut: false,
            wakes_at_label: false,
            fails_at: 0..0,
            unreadable: BTreeSet::new(),
            reads: 0,
        }
    }

    fn execute(&mut self, mut request: Request, mark: u64, size: Bytes) -> Completion {
        let result = self.carry_out(&mut request.op, mark, size);
        Completion { tag: request.tag, op: request.op, result }
    }

    fn carry_out(&mut self, op: &mut Op, mark: u64, size: Bytes) -> Result<(), MediaError> {
        if self.gone {
            return Err(MediaError::new(MediaFault::Gone, "the drive was pulled out"));
        }
        if self.refuses > 0 {
            self.refuses -= 1;
            return Err(MediaError::new(MediaFault::Damaged, "the controller of the drive resets"));
        }
        if let Some((at, length)) = op.range() {
            let aligned = at % BLOCK as u64 == 0 && length % BLOCK as u64 == 0;
            assert!(aligned && at + length <= size.0, "out of range or misaligned: {at} + {length}");
        }
        if self.write_protected && !matches!(op, Op::Read { .. }) {
            return Err(MediaError::new(MediaFault::Gone, "the drive takes no writes"));
        }
        if matches!(op, Op::Write { at, .. } if self.fails_at.contains(at)) {
            return Err(MediaError::new(MediaFault::Damaged, "the drive cannot write here"));
        }
        let is_there = |at: &u64| self.retries_at.is_empty() || self.retries_at.contains(at);
        if self.retries > 0 && matches!(op, Op::Write { at, .. } if is_there(at)) {
            self.retries -= 1;
            return Err(MediaError::new(MediaFault::Retry, "the drive is busy"));
        }
        if self.read_retries > 0 && matches!(op, Op::Read { at, .. } if self.read_retries_at.contains(at)) {
            self.read_retries -= 1;
            return Err(MediaError::new(MediaFault::Retry, "the drive is busy"));
        }
        if self.fails_writes && matches!(op, Op::Write { at, .. } if *at >= 12 << 20) {
            return Err(MediaError::new(MediaFault::Retry, "the drive did not write"));
        }
        if self.fails_reads && matches!(op, Op::Read { at, .. } if *at >= 12 << 20) {
            self.reads += 1;
            if self.reads.is_multiple_of(2) {
                return Err(MediaError::new(MediaFault::Damaged, "the drive cannot read this"));
            }
        }
        if self.fails_flushes > 0 && matches!(op, Op::Flush) && self.unflushed_strips() >= 10 {
            self.fails_flushes -= 1;
            if self.forgets {
                self.medium.cut(|_| 0);
            }
            return Err(MediaError::new(MediaFault::Damaged, "the drive did not flush"));
        }
        if self.wakes_at_label && matches!(op, Op::Read { at, .. } if *at < 1 << 20) {
            self.is_cut = false;
        }
        if self.is_cut && matches!(op, Op::Read { .. }) {
            return Err(MediaError::new(MediaFault::Damaged, "the drive cannot read"));
        }
        if self.is_loose && matches!(op, Op::Read { at, .. } if *at >= 12 << 20) {
            return Err(MediaError::new(MediaFault::Damaged, "the drive does not answer"));
        }
        if let Some((at, length)) = op.range() {
            let blocks = at / BLOCK as u64..(at + length) / BLOCK as u64;
            match op {
                Op::Read { .. } if blocks.clone().any(|block| self.unreadable.contains(&block)) => {
                    return Err(MediaError::new(MediaFault::Damaged, "a bad place"));
                }
                Op::Write { .. } | Op::Zero { .. } => self.unreadable.retain(|block| !blocks.contains(block)),
                _ => {}
            }
        }
        if self.misreads > 0
            && let Op::Read { at, buffer } = op
            && self.misreads_at.contains(at)
        {
            self.misreads -= 1;
            buffer.fill(0x5a);
            return Ok(());
        }
        self.medium.carry_out(op, mark);
        Ok(())
    }

    /// How many strips of 16 KiB of data a flush would make durable.
    fn unflushed_strips(&self) -> usize {
        let strips = self.medium.unsettled().into_iter().map(|place| place.page / 4);
        strips.filter(|strip| *strip >= (12 << 20) / (4 * BLOCK as u64)).collect::<BTreeSet<u64>>().len()
    }
}
