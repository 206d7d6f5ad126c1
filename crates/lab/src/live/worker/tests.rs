use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc;

use super::*;
use crate::workload::{AccessSpec, Alignment};

/// Keeps half of what it was given under way, and refuses two accesses that touch.
struct Strict {
    flying: VecDeque<(u32, Access)>,
    buffer: Vec<u8>,
    started: u32,
}

const SLOTS: u32 = 8;

impl Engine for Strict {
    fn slots(&self) -> u32 {
        SLOTS
    }

    fn start(&mut self, slot: u32, access: &Access) {
        let touches = |other: &Access| other.at < access.at + access.length && access.at < other.at + other.length;
        let meets = self.flying.iter().find(|(_, other)| touches(other));
        assert!(meets.is_none(), "{access:?} while {meets:?} is under way");
        self.flying.push_back((slot, *access));
        self.started += 1;
    }

    fn reap(&mut self, _: u32, _: Option<Duration>, answers: &mut Vec<SlotResult>) {
        for _ in 0..self.flying.len().div_ceil(2) {
            if let Some((slot, _)) = self.flying.pop_front() {
                // Ends the worker, after enough.
                let result = if self.started < 5_000 { Ok(()) } else { Err("enough".to_owned()) };
                answers.push((slot, result));
            }
        }
    }

    fn buffer(&mut self, _: u32) -> &mut [u8] {
        &mut self.buffer
    }
}

/// Writes only, so that nothing has to be there.
fn writes(sizes: Vec<(u64, u8)>, random: u8) -> Task {
    let spec = AccessSpec { name: "test".into(), random: Some(random), read: Some(0), sizes };
    Task {
        number: 0,
        generator: Generator::new(spec, Alignment::Request, Dice::new(7)),
        content: Content { verify: true, ..Content::default() },
        alike: 0,
        versions: None,
        names: false,
        dice: Dice::new(8),
        base: 1 << 20,
        bytes: 128 << 10,
        outstanding: Some(SLOTS),
        batch: 1,
        pause: None,
        gap: Gap::default(),
        first: Duration(0),
        trace: None,
        most: None,
        course: None,
        round: Duration::from_secs(100),
        clock: Clock::Wall(std::time::Instant::now()),
    }
}

#[test]
fn where_reads_are_checked_nothing_touches_what_is_under_way() {
    for (sizes, random) in [(vec![(4096, 100)], 100), (vec![(4096, 50), (16384, 50)], 70), (vec![(32768, 100)], 0)] {
        let length_max = sizes.iter().map(|(size, _)| *size).max().unwrap_or(0) as usize;
        let task = writes(sizes, random);
        let engine = Strict { flying: VecDeque::new(), buffer: vec![0; length_max], started: 0 };
        let (sender, reports) = mpsc::channel();
        let error = Worker::new(engine, task).run(&AtomicBool::new(false), &sender).unwrap_err();
        drop(reports);
        assert!(error.ends_with("enough"), "{error}");
    }
}

/// Answers all at once, and counts what went out together.
struct Burst {
    flying: Vec<u32>,
    waiting: u32,
    sent: Arc<std::sync::Mutex<Vec<u32>>>,
    buffer: Vec<u8>,
}

impl Engine for Burst {
    fn slots(&self) -> u32 {
        32
    }

    fn start(&mut self, slot: u32, _: &Access) {
        self.flying.push(slot);
        self.waiting += 1;
    }

    fn flush(&mut self) {
        self.sent.lock().unwrap().push(std::mem::take(&mut self.waiting));
    }

    fn reap(&mut self, _: u32, _: Option<Duration>, answers: &mut Vec<SlotResult>) {
        self.flush();
        let ends = self.sent.lock().unwrap().len() >= 8;
        let result = || if ends { Err("enough".to_owned()) } else { Ok(()) };
        answers.extend(self.flying.drain(..).map(|slot| (slot, result())));
    }

    fn buffer(&mut self, _: u32) -> &mut [u8] {
        &mut self.buffer
    }
}

#[test]
fn a_burst_of_answers_does_not_hold_up_the_first_accesses_that_follow_it() {
    for (batch, together) in [(1, 4), (16, 16), (32, 32)] {
        let sent = Arc::default();
        let engine = Burst { flying: Vec::new(), waiting: 0, sent: Arc::clone(&sent), buffer: vec![0; 4096] };
        let task = Task { content: Content::default(), batch, ..writes(vec![(4096, 100)], 100) };
        let (sender, reports) = mpsc::channel();
        Worker::new(engine, task).run(&AtomicBool::new(false), &sender).unwrap_err();
        drop(reports);
        let sent = sent.lock().unwrap();
        assert!(sent.len() >= 8 && sent.iter().all(|count| *count == together), "batch {batch}: {sent:?}");
    }
}

/// Memory that forgets one of so many writes that it has acknowledged.
struct Forgetful {
    data: Vec<u8>,
    slots: Vec<Vec<u8>>,
    done: Vec<SlotResult>,
    writes: u32,
    forgets: u32,
}

impl Engine for Forgetful {
    fn slots(&self) -> u32 {
        SLOTS
    }

    fn start(&mut self, slot: u32, access: &Access) {
        let (from, to) = (access.at as usize, (access.at + access.length) as usize);
        let buffer = &mut self.slots[slot as usize][..access.length as usize];
        if access.write {
            self.writes += 1;
            if !self.writes.is_multiple_of(self.forgets) {
                self.data[from..to].copy_from_slice(buffer);
            }
        } else {
            buffer.copy_from_slice(&self.data[from..to]);
        }
        // A target that forgets nothing is read and written often enough.
        let result = if self.writes < 20_000 { Ok(()) } else { Err("enough".to_owned()) };
        self.done.push((slot, result));
    }

    fn reap(&mut self, _: u32, _: Option<Duration>, answers: &mut Vec<SlotResult>) {
        answers.append(&mut self.done);
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.slots[slot as usize]
    }
}

#[test]
fn a_write_that_was_acknowledged_and_lost_is_found() {
    const SIZE: u64 = 256 << 10;
    for (forgets, finds) in [(u32::MAX, false), (2, true), (77, true), (2_000, true)] {
        let content = Content { verify: true, ..Content::default() };
        let versions = Arc::new(Versions::new(stele_ground::Bytes(SIZE), 512).unwrap());
        let mut data = vec![0; SIZE as usize];
        let mut source = content.source(Dice::new(1), Some(Arc::clone(&versions)));
        source.make(&mut data, 0);
        versions.answered(0, SIZE);
        let spec =
            AccessSpec { name: "t".into(), random: Some(90), read: Some(50), sizes: vec![(4096, 60), (512, 40)] };
        let task = Task {
            number: 0,
            generator: Generator::new(spec, Alignment::Request, Dice::new(7)),
            content,
            alike: 0,
            versions: Some(versions),
            names: false,
            dice: Dice::new(8),
            base: 0,
            bytes: SIZE,
            outstanding: Some(SLOTS),
            batch: 1,
            pause: None,
            gap: Gap::default(),
            first: Duration(0),
            trace: None,
            most: None,
            course: None,
            round: Duration::from_secs(100),
            clock: Clock::Wall(std::time::Instant::now()),
        };
        let slots = vec![vec![0; 4096]; SLOTS as usize];
        let engine = Forgetful { data, slots, done: Vec::new(), writes: 0, forgets };
        let (sender, reports) = mpsc::channel();
        let error = Worker::new(engine, task).run(&AtomicBool::new(false), &sender).unwrap_err();
        drop(sender);
        assert!(error.contains("enough"), "wrong data ends no worker by itself: {error}");
        let mut found = Wrong::default();
        for report in reports {
            if let Report::Wrong(more) = report {
                found.add(more);
            }
        }
        assert_eq!(!found.is_none(), finds, "one in {forgets} forgotten: {found}");
        assert!(found.places.iter().all(|place| place.contains("is lost")), "{found}");
    }
}

fn task(spec: AccessSpec, pause: Option<Pause>, gap: Gap) -> Task {
    Task {
        number: 0,
        generator: Generator::new(spec, Alignment::Request, Dice::new(7)),
        content: Content::default(),
        alike: 0,
        versions: None,
        names: false,
        dice: Dice::new(8),
        base: 0,
        bytes: 1 << 20,
        outstanding: Some(SLOTS),
        batch: 1,
        pause,
        gap,
        first: Duration(0),
        trace: None,
        most: None,
        course: None,
        round: Duration::from_secs(100),
        clock: Clock::Wall(std::time::Instant::now()),
    }
}

/// A worker of eight places that pauses for 100 ns.
struct Paced(Worker<Strict>);

impl Paced {
    fn new(burst: u32, when: PauseWhen) -> Paced {
        let spec = AccessSpec { name: "t".into(), random: Some(0), read: Some(100), sizes: vec![(512, 100)] };
        let engine = Strict { flying: VecDeque::new(), buffer: vec![0; 512], started: 0 };
        Paced(Worker::new(engine, task(spec, Some(Pause { each: Duration(100), burst, when }), Gap::default())))
    }

    /// At that time so many are answered; tells how many are started then, and which start was
    /// meant.
    fn at(&mut self, now: u64, answered: u32) -> (u32, Option<u64>) {
        let (Paced(worker), now) = (self, Instant(now));
        for _ in 0..answered {
            let (slot, _) = worker.engine.flying.pop_front().unwrap();
            worker.settle(slot, Ok(()), now);
        }
        let started = worker.engine.started;
        worker.keep_up(now);
        let last = worker.engine.flying.back().filter(|_| worker.engine.started > started);
        (worker.engine.started - started, last.map(|(slot, _)| worker.flying[*slot as usize].1.0))
    }
}

#[test]
fn a_worker_pauses_between_bursts_in_each_of_the_three_ways() {
    // No more than the burst is started, and all of it answered before the pause begins.
    let mut started = Paced::new(3, PauseWhen::Started);
    assert_eq!(started.at(0, 0), (3, Some(0)));
    assert_eq!(started.at(10, 2), (0, None));
    assert_eq!(started.at(50, 1), (0, None));
    assert_eq!(started.at(149, 0), (0, None));
    assert_eq!(started.at(157, 0), (3, Some(150)), "meant for the end of the pause, however late");
    assert_eq!(started.0.part.lag, Duration(21), "of each of the three");

    // As many as there are places go on until the burst is answered, and what is under way then is
    // waited for.
    let mut answered = Paced::new(3, PauseWhen::Answered);
    assert_eq!(answered.at(0, 0), (8, Some(0)));
    assert_eq!(answered.at(10, 2), (2, Some(10)));
    assert_eq!(answered.at(20, 1), (0, None));
    assert_eq!(answered.at(30, 7), (0, None));
    assert_eq!(answered.at(130, 0), (8, Some(130)));

    // The pause begins when the next one could start, and what is under way is answered meanwhile.
    let mut overlapping = Paced::new(3, PauseWhen::Overlapping);
    assert_eq!(overlapping.at(0, 0), (3, Some(0)));
    assert_eq!(overlapping.at(99, 2), (0, None));
    assert_eq!(overlapping.at(100, 0), (3, Some(100)));
    let mut full = Paced::new(8, PauseWhen::Overlapping);
    assert_eq!(full.at(0, 0), (8, Some(0)));
    assert_eq!(full.at(40, 1), (0, None));
    assert_eq!(full.at(139, 0), (0, None));
    assert_eq!(full.at(140, 0), (1, Some(140)));
}

#[test]
fn a_rate_in_bytes_leaves_a_gap_as_long_as_the_access_before() {
    let spec = AccessSpec { name: "t".into(), random: Some(0), read: Some(100), sizes: vec![(512, 50), (4096, 50)] };
    let worker = |random| {
        let gap = Gap { access: 0.0, byte: 100.0, random };
        Worker::new(super::super::engine::Null::new(1, 4096), task(spec.clone(), None, gap))
    };
    let mut even = worker(false);
    assert_eq!((even.gap(512), even.gap(4096)), (Duration(51_200), Duration(409_600)));
    let mut drawn = worker(true);
    let mean = (0..20_000).map(|_| drawn.gap(4096).0).sum::<u64>() / 20_000;
    assert!(mean.abs_diff(409_600) < 12_000, "{mean}");
}

/// Ends the worker with the first answer, and tells how many were started before.
struct Counting {
    started: Arc<AtomicU32>,
    flying: Vec<u32>,
    buffer: Vec<u8>,
}

impl Engine for Counting {
    fn slots(&self) -> u32 {
        SLOTS
    }

    fn start(&mut self, slot: u32, _: &Access) {
        self.started.fetch_add(1, Ordering::Relaxed);
        self.flying.push(slot);
    }

    fn reap(&mut self, _: u32, _: Option<Duration>, answers: &mut Vec<SlotResult>) {
        answers.extend(self.flying.drain(..).map(|slot| (slot, Err("enough".to_owned()))));
    }

    fn buffer(&mut self, _: u32) -> &mut [u8] {
        &mut self.buffer
    }
}

#[test]
fn an_open_loop_begins_with_what_is_due_and_a_closed_one_with_all() {
    for (outstanding, wanted) in [(None, 1), (Some(SLOTS), SLOTS)] {
        let spec = AccessSpec { name: "t".into(), random: Some(0), read: Some(100), sizes: vec![(512, 100)] };
        let gap = Gap { access: 1e6, ..Gap::default() };
        let clock = Clock::Told(Arc::default());
        let started = Arc::<AtomicU32>::default();
        let engine = Counting { started: Arc::clone(&started), flying: Vec::new(), buffer: vec![0; 512] };
        let worker = Worker::new(engine, Task { outstanding, clock, ..task(spec, None, gap) });
        let (sender, _reports) = mpsc::channel();
        assert_eq!(worker.run(&AtomicBool::new(false), &sender).unwrap_err().split(": ").last(), Some("enough"));
        assert_eq!(started.load(Ordering::Relaxed), wanted, "{outstanding:?}");
    }
}

#[test]
fn the_starts_of_all_workers_together_are_those_of_the_profile() {
    // A ramp from 0 to 1,000 a second in 10 s: 5,000 starts, the n-th where 50 t^2 is n.
    let profile = Profile::of(&[(0.0, 0.0), (10.0, 1000.0)]);
    let mut dice = Dice::new(3);
    let starts = |random: bool, dice: &mut Dice| {
        let mut all: Vec<u64> = (0..3)
            .flat_map(|number| {
                let mut course = Schedule::new(profile.clone(), f64::from(number), 3.0, random);
                let due = std::iter::repeat_with(|| course.next(dice).0).take_while(|due| *due < 10_000_000_000);
                due.collect::<Vec<_>>()
            })
            .collect();
        all.sort_unstable();
        all
    };
    let even = starts(false, &mut dice);
    assert_eq!(even.len(), 5000);
    for (number, due) in even.iter().enumerate() {
        let wanted = (number as f64 / 50.0).sqrt() * 1e9;
        assert!((*due as f64 - wanted).abs() < 1000.0, "start {number} at {due}, not {wanted}");
    }
    let drawn = starts(true, &mut dice);
    assert!((4_700..5_300).contains(&drawn.len()), "{}", drawn.len());
    let half = drawn.iter().filter(|due| **due < 5_000_000_000).count();
    assert!((1_100..1_400).contains(&half), "{half} in the first half, which has a quarter");
}
