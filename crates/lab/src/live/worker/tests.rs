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
            number: 0,
            generator: Generator::new(spec, Alignment::Request, Dice::new(7)),
            content: Content { verify: true, ..Content::default() },
            versions: None,
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
        let error = Worker::new(engine, task).run(&AtomicBool::new(false), &sender).unwrap_err();
        drop(reports);
        assert!(error.ends_with("enough"), "{error}");
    }
}

/// Memory that forgets one of so many writes that it has acknowledged.
struct Forgetful {
    data: Vec<u8>,
    slots: Vec<Vec<u8>>,
    done: Vec<Answer>,
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

    fn reap(&mut self, _: u32, _: Option<Duration>, answers: &mut Vec<Answer>) {
        answers.append(&mut self.done);
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.slots[slot as usize]
    }
}

#[test]
fn a_write_that_was_acknowledged_and_lost_is_found() {
    const SIZE: u64 = 256 << 10;
    for (forgets, words) in [(u32::MAX, "enough"), (2, "is lost"), (77, "is lost"), (2_000, "is lost")] {
        let content = Content { verify: true, ..Content::default() };
        let versions = Arc::new(Versions::new(stele_ground::Bytes(SIZE), 512).unwrap());
        let mut data = vec![0; SIZE as usize];
        let mut source = content.source(Dice::new(1), Some(Arc::clone(&versions)));
        source.prepare(&mut data);
        source.stamp(&mut data, 0);
        versions.answered(0, SIZE);
        let spec =
            AccessSpec { name: "t".into(), random: Some(90), read: Some(50), sizes: vec![(4096, 60), (512, 40)] };
        let task = Task {
            number: 0,
            generator: Generator::new(spec, Alignment::Request, Dice::new(7)),
            content,
            versions: Some(versions),
            dice: Dice::new(8),
            base: 0,
            bytes: SIZE,
            outstanding: Some(SLOTS),
            batch: 1,
            gap: Duration(0),
            random_gaps: false,
            round: Duration::from_secs(100),
            origin: WallInstant::now(),
        };
        let slots = vec![vec![0; 4096]; SLOTS as usize];
        let engine = Forgetful { data, slots, done: Vec::new(), writes: 0, forgets };
        let (sender, _reports) = mpsc::channel();
        let error = Worker::new(engine, task).run(&AtomicBool::new(false), &sender).unwrap_err();
        assert!(error.contains(words), "one in {forgets} forgotten: {error}");
    }
}
