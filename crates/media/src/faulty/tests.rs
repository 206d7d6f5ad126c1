use std::sync::{Arc, Mutex};

use stele_ground::{Bytes, KIB, MIB};

use super::*;
use crate::conformance::{self, Subject};
use crate::simulated::{Plain, SimulatedDrive};
use crate::{Buffer, MemoryDrive, Priority};

struct Under {
    drive: Faulty<SimulatedDrive>,
    dice: Dice,
}

impl Subject for Under {
    fn drive(&mut self) -> &mut dyn Drive {
        &mut self.drive
    }
    fn cut_power(&mut self) -> bool {
        self.drive.power_cut(&mut self.dice);
        true
    }
}

fn simulated(seed: u64) -> SimulatedDrive {
    let geometry = Geometry { size: Bytes(4 * MIB), block: Bytes(512) };
    SimulatedDrive::new(geometry, Bytes(512), Box::new(Plain::flash(Dice::new(seed))))
}

#[test]
fn without_faults_or_with_slowness_only_it_conforms() {
    for (name, plan) in [
        ("no faults", FaultPlan::new(1)),
        ("slow", FaultPlan::new(2).rate(FaultKind::Slow, 10)),
        ("forbidden", FaultPlan::new(3).rate(FaultKind::LostWrite, 2).permitted_by(Arc::new(|_| false))),
    ] {
        for seed in 0..3 {
            conformance::check(name, seed, &mut |seed| {
                Box::new(Under { drive: Faulty::new(simulated(seed), &plan, 0), dice: Dice::new(seed) })
            });
        }
    }
}

/// One faulty operation on a memory drive with ones in its first half and twos in its second.
struct Scene {
    drive: Faulty<MemoryDrive>,
    clock: Instant,
}

const HALF: u64 = 64 * KIB;

impl Scene {
    fn new(kind: FaultKind, seed: u64) -> Scene {
        let plan = FaultPlan::new(seed).scripted(0, 2, kind);
        let drive = Faulty::new(MemoryDrive::new(Bytes(2 * HALF)), &plan, 0);
        let mut scene = Scene { drive, clock: Instant(0) };
        scene.run(write(0, 1, HALF)).expect("plain write");
        scene.run(write(HALF, 2, HALF)).expect("plain write");
        scene
    }

    fn run(&mut self, op: Op) -> Result<Op, MediaFault> {
        self.drive.submit(Request { tag: 9, op, priority: Priority::Host, deadline: None });
        let mut finished = Vec::new();
        while finished.is_empty() {
            if let Some(at) = self.drive.next_event() {
                self.clock = self.clock.max(at);
            }
            self.drive.reap(self.clock, &mut finished);
            assert!(self.drive.stuck() == 0, "stuck");
        }
        let completion = finished.pop().expect("one was submitted");
        assert_eq!(completion.tag, 9);
        completion.result.map(|()| completion.op).map_err(|error| error.fault)
    }

    fn read(&mut self, at: u64, length: u64) -> Result<Vec<u8>, MediaFault> {
        match self.run(Op::Read { at, buffer: Buffer::zeroed(length as usize) })? {
            Op::Read { at: place, buffer } => {
                assert_eq!(place, at, "the operation comes back as it was asked");
                Ok(buffer.to_vec())
            }
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, at: u64, byte: u8, length: u64) -> Result<(), MediaFault> {
        match self.run(write(at, byte, length))? {
            Op::Write { at: place, data, .. } => {
                let all: usize = data.iter().map(|piece| piece.len()).sum();
                assert_eq!((place, all as u64), (at, length), "the operation comes back as it was asked");
                Ok(())
            }
            other => panic!("{other:?}"),
        }
    }

    fn recorded(&mut self) -> Vec<FaultKind> {
        self.drive.decider().take_records().into_iter().map(|record| record.kind).collect()
    }
}

fn write(at: u64, byte: u8, length: u64) -> Op {
    Op::Write { at, data: vec![Shared::from(vec![byte; length as usize])], fua: false }
}

#[test]
fn decay_stays_until_rewritten() {
    for kind in [FaultKind::BitFlip, FaultKind::ByteFlip] {
        let mut scene = Scene::new(kind, 1);
        let spoiled = scene.read(0, 8192).expect("readable");
        assert_ne!(spoiled, vec![1; 8192], "{kind:?}");
        assert_eq!(scene.read(0, 8192).expect("readable"), spoiled, "{kind:?} stays");
        scene.write(0, 5, 8192).expect("write");
        assert_eq!(scene.read(0, 8192).expect("readable"), vec![5; 8192], "{kind:?} is healed");
        assert_eq!(scene.recorded(), [kind]);
    }
}

#[test]
fn latent_errors_come_in_clusters_and_a_rewrite_cures_them() {
    let mut scene = Scene::new(FaultKind::LatentError, 3);
    assert_eq!(scene.read(4096, 4096), Err(MediaFault::Damaged));
    assert_eq!(scene.read(4096, 4096), Err(MediaFault::Damaged));
    scene.write(0, 5, 2 * HALF).expect("write");
    assert_eq!(scene.read(4096, 4096).expect("cured"), vec![5; 4096]);
}

#[test]
fn transient_errors_pass() {
    let mut scene = Scene::new(FaultKind::TransientError, 1);
    assert_eq!(scene.read(0, 4096), Err(MediaFault::Retry));
    assert_eq!(scene.read(0, 4096).expect("passed"), vec![1; 4096]);
}

#[test]
fn lost_torn_and_misdirected_writes_are_acknowledged_and_wrong() {
    for seed in 0..20 {
        let mut scene = Scene::new(FaultKind::LostWrite, seed);
        scene.write(0, 5, 8192).expect("acknowledged");
        assert_eq!(scene.read(0, 8192).expect("old"), vec![1; 8192]);

        let mut scene = Scene::new(FaultKind::TornWrite, seed);
        scene.write(0, 5, 8192).expect("acknowledged");
        let torn = scene.read(0, 8192).expect("readable");
        assert!(torn.contains(&1), "some of it did not happen");

        let mut scene = Scene::new(FaultKind::MisdirectedWrite, seed);
        scene.write(8192, 5, 4096).expect("acknowledged");
        let all = scene.read(0, 2 * HALF).expect("readable");
        let hit: Vec<usize> = (0..all.len() / 4096).filter(|page| all[page * 4096] == 5).collect();
        if !scene.recorded().is_empty() {
            assert_eq!(hit.len(), 1);
            assert_ne!(hit, [2], "it went elsewhere");
        }
    }
}

#[test]
fn a_write_error_may_leave_a_part() {
    let mut scene = Scene::new(FaultKind::WriteError, 7);
    assert_eq!(scene.write(0, 5, 8192), Err(MediaFault::Retry));
    scene.write(0, 6, 8192).expect("passed");
}

#[test]
fn a_misdirected_read_returns_another_place_once() {
    let mut wrong = 0;
    for seed in 0..20 {
        let mut scene = Scene::new(FaultKind::MisdirectedRead, seed);
        let first = scene.read(HALF - 4096, 4096).expect("readable");
        wrong += usize::from(first != vec![1; 4096]);
        assert_eq!(scene.read(HALF - 4096, 4096).expect("readable"), vec![1; 4096]);
    }
    assert!(wrong > 3, "{wrong}");
}

#[test]
fn a_lying_flush_lets_a_power_cut_take_what_it_promised() {
    let lost = |lie: bool| {
        let mut plan = FaultPlan::new(1);
        if lie {
            plan = plan.scripted(0, 0, FaultKind::LyingFlush);
        }
        let mut drive = Faulty::new(simulated(1), &plan, 0);
        let mut finished = Vec::new();
        for (tag, op) in [(1, write(0, 3, 4096)), (2, Op::Flush)] {
            drive.submit(Request { tag, op, priority: Priority::Host, deadline: None });
            while finished.len() < tag as usize {
                let at = drive.next_event().expect("in flight");
                drive.reap(at, &mut finished);
            }
        }
        drive.inner_mut().power_cut_choosing(|_| 0);
        drive.inner().platter().is_empty()
    };
    assert!(lost(true));
    assert!(!lost(false));
}

#[test]
fn a_flush_that_fails_loses_the_cache_and_the_next_goes_well() {
    let plan = FaultPlan::new(1).scripted(0, 0, FaultKind::FailedFlush);
    let mut drive = Faulty::new(simulated(1), &plan, 0).forgetful();
    let mut finished = Vec::new();
    let ops = [(1, write(0, 3, 4096)), (2, Op::Flush), (3, write(4096, 3, 4096)), (4, Op::Flush)];
    for (tag, op) in ops {
        drive.submit(Request { tag, op, priority: Priority::Host, deadline: None });
        while finished.len() < tag as usize {
            let at = drive.next_event().expect("in flight");
            drive.reap(at, &mut finished);
        }
    }
    assert_eq!(finished.iter().map(|done| done.result.is_ok()).collect::<Vec<_>>(), [true, false, true, true]);
    assert_eq!(drive.inner().platter().written().collect::<Vec<_>>(), [1], "what came after the failure");
}

#[test]
fn a_stuck_operation_waits_for_release_and_a_slow_one_for_its_time() {
    let plan = FaultPlan::new(1).scripted(0, 0, FaultKind::Stuck).scripted(0, 1, FaultKind::Slow);
    let mut drive = Faulty::new(MemoryDrive::new(Bytes(MIB)), &plan, 0);
    let mut finished = Vec::new();
    for tag in [1, 2, 3] {
        drive.submit(Request { tag, op: write(0, 1, 4096), priority: Priority::Host, deadline: None });
    }
    drive.reap(Instant(0), &mut finished);
    assert_eq!(finished.iter().map(|done| done.tag).collect::<Vec<_>>(), [3]);
    assert_eq!(drive.stuck(), 1);
    let later = drive.next_event().expect("the slow one");
    assert!(later > Instant(0));
    drive.reap(later, &mut finished);
    drive.release();
    drive.reap(later, &mut finished);
    assert_eq!(finished.iter().map(|done| done.tag).collect::<Vec<_>>(), [3, 2, 1]);
}

#[test]
fn a_release_counts_for_operations_under_way() {
    let plan = FaultPlan::new(1).scripted(0, 0, FaultKind::Stuck);
    let mut drive = Faulty::new(MemoryDrive::new(Bytes(MIB)), &plan, 0);
    drive.submit(Request { tag: 1, op: write(0, 1, 4096), priority: Priority::Host, deadline: None });
    drive.release();
    let mut finished = Vec::new();
    drive.reap(Instant(0), &mut finished);
    assert_eq!((finished.len(), drive.stuck()), (1, 0));
}

#[test]
fn a_slow_drive_that_leaves_answers_what_was_under_way_at_once() {
    let mut drive = Faulty::new(simulated(1), &FaultPlan::new(1), 0);
    drive.limp(stele_ground::Duration::from_millis(5));
    drive.submit(Request { tag: 1, op: write(0, 1, 4096), priority: Priority::Host, deadline: None });
    drive.unplug();
    let mut finished = Vec::new();
    drive.reap(Instant(0), &mut finished);
    let faults: Vec<_> = finished.iter().map(|done| done.result.as_ref().map_err(|error| error.fault)).collect();
    assert_eq!(faults, [Err(MediaFault::Gone)]);
}

#[test]
fn the_permit_has_the_last_word_and_sees_every_proposal() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let permit: Permit = Arc::new(move |proposal| {
        noted.lock().expect("one thread").push(*proposal);
        false
    });
    let mut plan = FaultPlan::new(9).permitted_by(permit);
    for kind in FaultKind::BY_OPERATION {
        plan = plan.rate(kind, 3);
    }
    let mut drive = Faulty::new(MemoryDrive::new(Bytes(MIB)), &plan, 4);
    let mut finished = Vec::new();
    for tag in 0..600u64 {
        let op = match tag % 3 {
            0 => write(tag * 512 / 4096 * 4096, 1, 4096),
            1 => Op::Read { at: 0, buffer: Buffer::zeroed(8192) },
            _ => Op::Flush,
        };
        drive.submit(Request { tag, op, priority: Priority::Host, deadline: None });
        drive.reap(Instant(tag), &mut finished);
    }
    assert_eq!(finished.len(), 600);
    assert!(finished.iter().all(|done| done.result.is_ok()));
    let kinds: std::collections::BTreeSet<FaultKind> =
        seen.lock().expect("one thread").iter().map(|proposal| proposal.kind).collect();
    assert_eq!(kinds.len(), FaultKind::BY_OPERATION.len(), "{kinds:?}");
    assert!(seen.lock().expect("one thread").iter().all(|proposal| proposal.drive == 4));
}

#[test]
fn one_seed_is_one_history_of_faults() {
    let history = |seed| {
        let mut plan = FaultPlan::new(seed);
        for kind in FaultKind::BY_OPERATION {
            plan = plan.rate(kind, 20);
        }
        let mut drive = Faulty::new(simulated(seed), &plan, 1);
        let mut finished = Vec::new();
        for tag in 0..500u64 {
            let op =
                if tag % 2 == 0 { write(tag * 512, 1, 4096) } else { Op::Read { at: 0, buffer: Buffer::zeroed(8192) } };
            drive.submit(Request { tag, op, priority: Priority::Host, deadline: None });
            drive.reap(Instant(tag * 10_000), &mut finished);
        }
        drive.decider().take_records().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
    assert!(history(1).len() > 50);
}
