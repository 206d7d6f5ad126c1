use std::collections::VecDeque;
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

    fn reap(&mut self, _: u32, _: Option<Duration>, answers: &mut Vec<Answer>) {
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

#[test]
fn where_reads_are_checked_nothing_touches_what_is_under_way() {
    for (sizes, random) in [(vec![(4096, 100)], 100), (vec![(4096, 50), (16384, 50)], 70), (vec![(32768, 100)], 0)] {
        let length_max = sizes.iter().map(|(size, _)| *size).max().unwrap_or(0) as usize;
        // Writes only, so that nothing has to be there.
        let spec = AccessSpec { name: "test".into(), random: Some(random), read: Some(0), sizes };
        let task = Task {
            generator: Generator::new(spec, Alignment::Request, Dice::new(7)),
            content: Content { verify: true, ..Content::default() },
            dice: Dice::new(8),
            base: 1 << 20,
            bytes: 128 << 10,
            outstanding: Some(SLOTS),
            batch: 1,
            gap: Duration(0),
            random_gaps: false,
            round: Duration::from_secs(100),
            origin: WallInstant::now(),
        };
        let engine = Strict { flying: VecDeque::new(), buffer: vec![0; length_max], started: 0 };
        let (sender, reports) = mpsc::channel();
        Worker::new(engine, task).run(&AtomicBool::new(false), &sender);
        let Ok(Report::Ended(Err(error))) = reports.recv() else { panic!("it ends with what the engine said") };
        assert!(error.ends_with("enough"), "{error}");
    }
}
