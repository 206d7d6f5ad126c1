use std::sync::atomic::AtomicU64;

use stele_ground::Instant;

use super::gathering::{gap, merged, shortfall};
use super::*;
use crate::live::engine::SlotResult;
use crate::live::worker::WorkerRound;
use crate::usage::Usage;
use crate::workload::Access;

/// Answers one access after another, each a millisecond after the one before, but for a time in
/// which it answers nothing. Time is told by it.
pub struct Stalling {
    time: Arc<AtomicU64>,
    waiting: std::collections::VecDeque<u32>,
    slots: u32,
    buffer: Vec<u8>,
    each: u64,
    stall: (u64, u64),
    end: u64,
    /// When the first of those that wait is answered.
    next: u64,
}

impl Stalling {
    /// Stands still from that time on for so long; ends the worker at the end.
    pub fn new(time: &Arc<AtomicU64>, slots: u32, each: u64, stall: (u64, u64), end: u64) -> Stalling {
        let waiting = std::collections::VecDeque::new();
        Stalling { time: Arc::clone(time), waiting, slots, buffer: vec![0; 4096], each, stall, end, next: 0 }
    }
}

impl Stalling {
    /// When an access is answered whose turn comes then.
    fn answered(&self, turn: u64) -> u64 {
        let (begin, length) = self.stall;
        let next = turn + self.each;
        if (begin..begin + length).contains(&next) { begin + length } else { next }
    }
}

impl Engine for Stalling {
    fn slots(&self) -> u32 {
        self.slots
    }

    fn start(&mut self, slot: u32, _: &Access) {
        if self.waiting.is_empty() {
            self.next = self.answered(self.time.load(Ordering::Relaxed));
        }
        self.waiting.push_back(slot);
    }

    fn reap(&mut self, least: u32, limit: Option<Duration>, answers: &mut Vec<SlotResult>) {
        let now = self.time.load(Ordering::Relaxed);
        let limit = limit.map_or(u64::MAX, |limit| now.saturating_add(limit.0));
        let next = self.next;
        if self.waiting.is_empty() || next > limit {
            // Nothing comes in this time; who only looks, costs a microsecond.
            let wait = if least == 0 { now + 1_000 } else { limit };
            self.time.store(wait, Ordering::Relaxed);
            return;
        }
        self.time.store(next.max(now), Ordering::Relaxed);
        self.next = self.answered(next);
        let result = || if next >= self.end { Err("enough".to_owned()) } else { Ok(()) };
        answers.extend(self.waiting.pop_front().map(|slot| (slot, result())));
    }

    fn buffer(&mut self, _: u32) -> &mut [u8] {
        &mut self.buffer
    }
}

/// What a worker with such an engine counts in rounds of a second.
pub fn told(load: Load, slots: u32, each: u64, stall: (u64, u64), end: u64) -> Found {
    let time = Arc::new(AtomicU64::new(0));
    let spec = AccessSpec { name: "t".into(), random: Some(100), read: Some(100), sizes: vec![(4096, 100)] };
    let setup = setup_of(&spec, load);
    let outstanding = matches!(load, Load::Outstanding(_)).then_some(slots);
    let task = Task { gap: gap_of(load, 1), ..task_of(spec, outstanding, &time) };
    let (sender, reports) = mpsc::channel();
    let engine = Stalling::new(&time, slots, each, stall, end);
    Worker::new(engine, task).run(&AtomicBool::new(false), &sender).unwrap_err();
    drop(sender);
    let usage = Usage::now();
    let (mut rounds, mut unanswered): (Vec<Round>, _) = (Vec::new(), Histogram::default());
    for report in reports.iter() {
        match report {
            Report::Part(part) => rounds.push(merged(vec![*part], setup.timing.round, usage, usage)),
            Report::Left(left) => unanswered.merge(&left.waited),
            _ => {}
        }
    }
    let steady = shortfall(&rounds).is_none();
    let wrong = Wrong::default();
    Found { setup, workers: 1, rounds, steady, stopped: false, wrong, left_behind: false, unanswered, is_apart: false }
}

fn task_of(spec: AccessSpec, outstanding: Option<u32>, time: &Arc<AtomicU64>) -> Task {
    Task {
        number: 0,
        generator: Generator::new(spec, Alignment::Request, Dice::new(7)),
        content: Content::default(),
        alike: 0,
        versions: None,
        names: false,
        dice: Dice::new(8),
        base: 0,
        bytes: 1 << 30,
        outstanding,
        batch: 1,
        pause: None,
        gap: Gap::default(),
        first: Duration(0),
        trace: None,
        most: None,
        course: None,
        round: Duration::from_secs(1),
        clock: Clock::Told(Arc::clone(time)),
    }
}

fn setup_of(spec: &AccessSpec, load: Load) -> Setup {
    let second = Duration::from_secs(1);
    Setup {
        spec: spec.clone(),
        alignment: Alignment::Request,
        load,
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 1,
        timing: Timing { warm_up: Duration(0), round: second, least: second, most: second },
        content: Content::default(),
        of: Of::Data,
        seed: 1,
    }
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn an_outage_counts_as_time_and_is_no_steady_state() {
    // 1,000 a second, and nothing for three of twenty seconds, off the rounds' boundaries.
    let found = told(Load::Outstanding(4), 4, 1_000_000, (5 * SECOND + 400_000_000, 3 * SECOND), 20 * SECOND + 1);
    assert_eq!(found.rounds.len(), 20);
    assert!(found.rounds.iter().all(|round| round.span == 1.0), "rounds have the same length");
    let total = found.total();
    assert!((total.rate - 850.0).abs() < 1.0, "17,000 in 20 s, and {} a second are told", total.rate);
    assert!(total.gap.0.abs_diff(3 * SECOND) < 2_000_000, "{}", total.gap);
    let why = shortfall(&found.rounds).unwrap_or_default();
    assert!(!found.steady && why.contains("a gap"), "{why}");
    let record = crate::record::RunRecord::of(&found);
    assert!((record.total().rate - 850.0).abs() < 1.0 && !record.is_steady());
}

#[test]
fn a_gap_is_one_in_which_no_worker_was_answered() {
    let part = |idle: &[(u64, u64)]| WorkerRound {
        idle: idle.iter().map(|(begin, end)| (Instant(*begin), Instant(*end))).collect(),
        ..WorkerRound::default()
    };
    assert_eq!(gap(&[part(&[(0, 900)]), part(&[(500, 2000)])]), Duration(400));
    assert_eq!(gap(&[part(&[(0, 900)]), part(&[])]), Duration(0));
    assert_eq!(gap(&[part(&[(0, 100), (300, 900)]), part(&[(50, 800)])]), Duration(500));
}

#[test]
fn a_stall_in_an_open_loop_is_the_targets_and_every_response_counts_from_its_intended_start() {
    // 100,000 a second with 4,096 places; from 2 s on nothing for 10 s, then a million a second.
    let load = Load::Rate { each_second: 100_000.0, random: false };
    let found = told(load, 4_096, 1_000, (2 * SECOND, 10 * SECOND), 20 * SECOND);
    assert!(found.lag_share() < 0.001, "{}", found.lag_share());
    let total = found.total();
    let (response, seconds) = (total.response(), found.rounds.len() as f64);
    assert!((response.count() as f64 - 100_000.0 * seconds).abs() < 200.0, "{} in {seconds} s", response.count());
    // Those due in the stall wait for its end, and then for those before them: from 10 s down to 0
    // at 10 s / 0.9.
    let late = 10.0 * 10.0 / 0.9 / 2.0 * 100_000.0;
    let mean = late / response.count() as f64;
    let found = response.mean().as_secs_f64();
    assert!((found / mean - 1.0).abs() < 0.03, "mean {found} s for {mean} s");
    assert!((response.longest().as_secs_f64() - 10.0).abs() < 0.05, "{}", response.longest());
    let half = response.count() as f64 - 100_000.0 * 10.0 / 0.9;
    let share = (half + 500_000.0 / 0.9) / response.count() as f64;
    let median = response.percentile(share).as_secs_f64();
    assert!((median - 5.0).abs() < 0.2, "the median of those that were late is {median} s");
}

#[test]
fn a_load_that_was_not_reached_is_said() {
    let found = told(Load::Outstanding(4), 4, 1_000_000, (0, 0), 3 * SECOND + 1);
    let record = crate::record::RunRecord::of(&found);
    assert!((record.under_way.unwrap() - 4.0).abs() < 0.1, "{:?}", record.under_way);
    assert!(record.shortcomings().is_empty(), "{:?}", record.shortcomings());
    let asked = Found { setup: Setup { load: Load::Outstanding(8), ..found.setup.clone() }, ..found };
    let said = crate::record::RunRecord::of(&asked).shortcomings().join("");
    assert!(said.contains("8 outstanding were asked for") && said.contains("4.0 were"), "{said}");
}

#[test]
fn a_generator_that_is_always_busy_says_so() {
    let found = told(Load::Outstanding(4), 4, 1_000_000, (0, 0), 3 * SECOND + 1);
    let busy = |own: f64, waited: f64, is_apart: bool| {
        let mut found = Found { is_apart, ..found.clone() };
        found.rounds.iter_mut().for_each(|round| (round.cpu_own, round.waited_own) = (own, waited));
        crate::record::RunRecord::of(&found).shortcomings().join("")
    };
    assert_eq!(busy(0.5, 0.1, true), "");
    assert!(busy(0.95, 0.0, true).contains("busy for 95 %"));
    assert!(busy(0.5, 0.48, true).contains("busy for 98 %"), "waiting for a processor is no rest");
    assert_eq!(busy(0.99, 0.0, false), "", "where the threads do the target's work");
}

#[test]
fn what_a_stall_keeps_from_being_answered_at_the_end_has_missed_the_objective() {
    // 3,000 a second for 20 s; from 19.2 s on nothing is answered, and the run ends with the first
    // answer behind that.
    let load = Load::Rate { each_second: 3_000.0, random: false };
    let found = told(load, 4_096, 100_000, (19 * SECOND + 200_000_000, 800_000_001), 20 * SECOND);
    let record = crate::record::RunRecord::of(&found);
    assert!(record.total().response.percentile(0.99).0 < 2_000_000, "of what was answered all were fast");
    // 2,400 were due, of which one was answered.
    assert!(found.unanswered.count().abs_diff(2_400) < 5, "{}", found.unanswered.count());
    assert!(found.unanswered.longest().0.abs_diff(800_000_000) < 2_000_000, "{}", found.unanswered.longest());
    let objective = crate::objective::ObjectiveRecord::of("p99=2ms".parse().unwrap(), &record);
    assert!(!objective.is_kept() && objective.unanswered.abs_diff(2_394) < 10, "{objective:?}");
    assert!(objective.said().contains("missed") && objective.said().contains("not answered"), "{}", objective.said());
    let goal = crate::search::rate::RateGoal {
        response: Duration::from_millis(2),
        start: 1,
        rate_min: 1,
        rate_max: 9,
        probes_max: 9,
    };
    assert!(!crate::search::rate::RateProbe::of(3_000, &record, Some(0.99), &goal).keeps(&goal));
    // Many more are due than there are places.
    let found = told(load, 64, 100_000, (10 * SECOND, 10 * SECOND), 20 * SECOND);
    assert!(found.unanswered.count().abs_diff(30_000) < 5, "{}", found.unanswered.count());
    let said = crate::record::RunRecord::of(&found).shortcomings().join("");
    assert!(said.contains("accesses were not answered when it ended") && said.contains("10.0 s"), "{said}");
}

#[test]
fn sequential_workers_of_one_space_begin_apart() {
    let spec = AccessSpec { name: "t".into(), random: Some(0), read: Some(100), sizes: vec![(4096, 100)] };
    let bytes = 64 * 4096;
    let opening = crate::live::target::Opening { size: Some(Bytes(bytes)), ..Default::default() };
    let ready = crate::live::target::Target::Null.open(opening, &mut |_, _| true).unwrap();
    let setup = setup_of(&spec, Load::Outstanding(4));
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..4 {
        let mut generator = generator_of(&ready, &setup, 4, number, Dice::new(1));
        for _ in 0..16 {
            let access = generator.draw(0, bytes);
            assert!(seen.insert(access.at) && access.at.is_multiple_of(4096), "worker {number}: {access:?}");
        }
        assert_eq!(
            generator.draw(0, bytes).at,
            (u64::from(number) + 1) % 4 * 16 * 4096,
            "the next one's, or the first"
        );
    }
    // Parts of their own need no places of their own.
    let checked = Setup { content: Content { verify: true, ..Content::default() }, ..setup };
    assert_eq!(generator_of(&ready, &checked, 4, 3, Dice::new(1)).draw(0, bytes / 4).at, 0);
}

#[test]
fn even_starts_of_all_workers_take_turns() {
    let spec = AccessSpec { name: "t".into(), random: Some(0), read: Some(100), sizes: vec![(4096, 100)] };
    let even = Load::Rate { each_second: 3_000.0, random: false };
    for load in [even, Load::Bytes { each_second: 3_000.0 * 4096.0, random: false }] {
        let mut all: Vec<u64> = Vec::new();
        for number in 0..3 {
            let time = Arc::new(AtomicU64::new(0));
            let starts = Arc::default();
            let first = first_of(&setup_of(&spec, load), 3, number);
            let task = Task {
                number,
                gap: gap_of(load, 3),
                first,
                clock: Clock::Told(Arc::clone(&time)),
                ..task_of(spec.clone(), None, &time)
            };
            let engine = Noting { time, starts: Arc::clone(&starts), waiting: Vec::new(), buffer: vec![0; 4096] };
            let (sender, _reports) = mpsc::channel();
            Worker::new(engine, task).run(&AtomicBool::new(false), &sender).unwrap_err();
            all.extend(starts.lock().unwrap().iter());
        }
        all.sort_unstable();
        for (number, start) in all.iter().take(2_000).enumerate() {
            let wanted = number as u64 * SECOND / 3_000;
            assert!(start.abs_diff(wanted) < 2_000, "{load}: start {number} at {start}, not {wanted}");
        }
    }
    let drawn = Load::Rate { each_second: 3_000.0, random: true };
    assert_eq!(first_of(&setup_of(&spec, drawn), 3, 2), Duration(0));
}

/// Answers at once, and notes when accesses start; for a second.
struct Noting {
    time: Arc<AtomicU64>,
    starts: Arc<std::sync::Mutex<Vec<u64>>>,
    waiting: Vec<u32>,
    buffer: Vec<u8>,
}

impl Engine for Noting {
    fn slots(&self) -> u32 {
        4
    }

    fn start(&mut self, slot: u32, _: &Access) {
        self.starts.lock().unwrap().push(self.time.load(Ordering::Relaxed));
        self.waiting.push(slot);
    }

    fn reap(&mut self, least: u32, limit: Option<Duration>, answers: &mut Vec<SlotResult>) {
        let now = self.time.load(Ordering::Relaxed);
        let result = || if now >= SECOND { Err("enough".to_owned()) } else { Ok(()) };
        if self.waiting.is_empty() {
            // Who only looks, costs a microsecond.
            let wait = if least == 0 { 1_000 } else { limit.map_or(1_000, |limit| limit.0) };
            self.time.store(now + wait, Ordering::Relaxed);
        }
        answers.extend(self.waiting.drain(..).map(|slot| (slot, result())));
    }

    fn buffer(&mut self, _: u32) -> &mut [u8] {
        &mut self.buffer
    }
}

#[test]
fn what_is_answered_after_the_last_round_is_kept_where_it_was_to_start_before() {
    // Nothing is answered from 5 s to 8.2 s, and the run ends half a second after the eighth round.
    let found =
        told(Load::Outstanding(4), 4, 1_000_000, (5 * SECOND, 3 * SECOND + 200_000_000), 8 * SECOND + 500_000_000);
    assert_eq!(found.rounds.len(), 8);
    assert_eq!(found.unanswered.count(), 4, "what follows them belongs to no round, nor to the end");
    assert!(found.unanswered.longest().0.abs_diff(3_200_000_000) < 10_000_000, "{}", found.unanswered.longest());
}
