use std::collections::VecDeque;

use stele_ground::Duration;

use super::*;

/// Answers each access after the same time, and counts them.
pub struct Late {
    pub size: u64,
    pub after: Duration,
    pub count: u64,
    pub bytes: u64,
    under_way: VecDeque<(Instant, u64)>,
}

impl Late {
    pub fn new(size: u64, after: Duration) -> Late {
        Late { size, after, count: 0, bytes: 0, under_way: VecDeque::new() }
    }
}

impl SimulatedTarget for Late {
    fn sizes(&self) -> Vec<u64> {
        vec![self.size]
    }

    fn submit(&mut self, now: Instant, tag: u64, access: Access) -> Result<(), String> {
        (self.count, self.bytes) = (self.count + 1, self.bytes + access.length);
        self.under_way.push_back((now + self.after, tag));
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        self.under_way.front().map(|(at, _)| *at)
    }

    fn advance(&mut self, now: Instant, finished: &mut Vec<u64>) -> Result<(), String> {
        while let Some((_, tag)) = self.under_way.front().copied().filter(|(at, _)| *at <= now) {
            self.under_way.pop_front();
            finished.push(tag);
        }
        Ok(())
    }

    fn drives_worked(&self) -> Vec<f64> {
        vec![1.0, 2.0]
    }

    fn controllers_worked(&self) -> Option<f64> {
        Some(3.0)
    }

    fn processors_worked(&self) -> Option<f64> {
        Some(4.0)
    }
}

/// Passes an access on after a time, under the next tag of its own, and answers after another one.
struct Slow {
    next: u64,
    hosts: HashMap<u64, u64>,
    own: Option<f64>,
}

const BEFORE: Duration = Duration::from_millis(1);
const BEHIND: Duration = Duration::from_millis(10);
const AFTER: Duration = Duration::from_millis(100);

impl Rules for Slow {
    fn takes(&mut self, now: Instant, tag: u64, access: Access, desk: &mut Desk) -> Result<(), String> {
        self.next += 1;
        self.hosts.insert(self.next, tag);
        desk.pass(now + BEFORE, self.next, access);
        Ok(())
    }

    fn answered(&mut self, now: Instant, tag: u64, desk: &mut Desk) {
        desk.answer(now + AFTER, self.hosts[&tag]);
    }

    fn processors_worked(&self) -> Option<f64> {
        self.own
    }
}

fn slow(own: Option<f64>) -> Layered<Slow, Late> {
    Layered::new(Slow { next: 100, hosts: HashMap::new(), own }, Late::new(1 << 20, BEHIND))
}

#[test]
fn each_step_happens_at_its_time_and_not_before() {
    let mut layered = slow(None);
    let access = Access { target: 0, at: 0, length: 4096, write: false };
    for tag in [7, 5] {
        layered.submit(Instant::default(), tag, access).unwrap();
    }
    assert_eq!(layered.behind().count, 0, "passed on too early");
    let mut at = Vec::new();
    let mut finished = Vec::new();
    while let Some(now) = layered.next_event() {
        layered.advance(now, &mut finished).unwrap();
        at.push((now.0 / 1_000_000, layered.behind().count, finished.clone()));
    }
    assert_eq!(at, [(1, 2, vec![]), (11, 2, vec![]), (111, 2, vec![5, 7])]);
    assert_eq!(layered.behind().bytes, 8192);
}

#[test]
fn figures_are_those_of_the_array_and_of_the_nearest_processors() {
    let layered = slow(None);
    assert_eq!((layered.sizes(), layered.drives_worked()), (vec![1 << 20], vec![1.0, 2.0]));
    assert_eq!((layered.controllers_worked(), layered.processors_worked()), (Some(3.0), Some(4.0)));
    assert_eq!(slow(Some(9.0)).processors_worked(), Some(9.0));
}
