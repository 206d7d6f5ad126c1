use std::collections::BTreeSet;

use super::*;
use crate::model::Action;
use crate::runtime::task::Tasks;
use crate::testing::drives::TestDrives;
use stele_ground::{Dice, MIB};
use stele_media::Completion;

mod errors;
mod shards;

const SIZE: Bytes = Bytes(64 * MIB);

fn configuration(test_drives: &TestDrives) -> Configuration {
    let drives = (0..test_drives.drives.len())
        .map(|at| DriveEntry {
            identity: DriveId([at as u8 + 1; 16]),
            enclosure: at as u32 / 2,
            size: test_drives.size,
            leaving: false,
            state: DriveState::Active,
            joined: 1,
        })
        .collect();
    Configuration {
        pool: PoolId([7; 16]),
        name: "stone".to_owned(),
        created: 1_700_000_000,
        features: Features { incompatible: codec::WRITTEN, ..Features::default() },
        epoch: 1,
        seed: 3,
        unit_size: Bytes(MIB),
        log_size: Bytes(8 * MIB),
        spare_drives: 2,
        tolerates: 2,
        drives,
        log: vec![LogEpoch { epoch: 1, first_group: 1, members: vec![DriveNumber(0), DriveNumber(2)] }],
        protected: true,
        clean: false,
        growing: false,
        settled: 0,
        overrides: Vec::new(),
        shard: Default::default(),
        loss_accepted: false,
        rolling_back: None,
    }
}

fn label(sequence: u64, number: u16, configuration: Configuration) -> Label {
    let epoch = configuration.epoch;
    Label { sequence, number: DriveNumber(number), promised: epoch, complete: epoch, configuration }
}

fn created(drives: usize, seed: u64) -> TestDrives {
    let mut test_drives = TestDrives::new(drives, SIZE, seed);
    let (tasks, io) = test_drives.start();
    let labels = Labels::new(&io, configuration(&test_drives), (0..drives).collect());
    test_drives
        .finish(&tasks, &io, async move { labels.publish().await })
        .expect("no cut")
        .expect("all drives take labels");
    test_drives
}

fn found(test_drives: &mut TestDrives) -> Result<Discovery, ArrayError> {
    let (tasks, io) = test_drives.start();
    let attached = test_drives.attached(|at| at as u32 / 2);
    let own = io.clone();
    test_drives.finish(&tasks, &io, async move { discover(&own, &attached).await }).expect("no cut")
}

/// Opens and commits `changes` epochs; answers the epochs acknowledged, also when the power goes.
fn commit(test_drives: &mut TestDrives, changes: usize) -> Vec<u64> {
    let discovery = found(test_drives).expect("a pool is there");
    let (tasks, io) = test_drives.start();
    let labels = Labels::resume(&io, &discovery, false);
    let acknowledged = Rc::new(RefCell::new(Vec::new()));
    let note = Rc::clone(&acknowledged);
    test_drives.finish(&tasks, &io, async move {
        if labels.promise(&discovery).await.is_err() {
            return;
        }
        for _ in 0..changes {
            if labels.commit(|c| c.spare_drives += 1).await.is_err() {
                return;
            }
            note.borrow_mut().push(labels.configuration().epoch);
        }
    });
    acknowledged.take()
}

#[test]
fn a_label_survives_its_encoding_and_every_flipped_byte_is_noticed() {
    let test_drives = TestDrives::new(6, SIZE, 0);
    let label = label(9, 4, configuration(&test_drives));
    let bytes = label.encode();
    assert_eq!(Label::decode(&bytes), Ok(label.clone()));
    let mut dice = Dice::new(5);
    let length = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
    for _ in 0..2_000 {
        let mut broken = bytes.to_vec();
        let at = dice.below(length as u64) as usize;
        broken[at] ^= 1 << dice.below(8);
        let read = Label::decode(&broken.into());
        // Four bytes of the header are reserved and not covered.
        assert!(read.is_err() || (20..24).contains(&at), "a flip at byte {at} went unnoticed");
    }
    for cut in 0..bytes.len() {
        assert!(Label::decode(&bytes.slice(..cut)).is_err() || cut >= length);
    }
}

#[test]
fn unknown_features_are_told_apart() {
    let mut test_drives = created(4, 1);
    let mut later = configuration(&test_drives);
    later.features.incompatible = 8;
    let bytes = label(2, 0, later.clone()).encode();
    assert_eq!(Label::decode(&bytes), Err(NoLabel::TooNew(8 | codec::WRITTEN)));
    later.features = Features { compatible: 8, read_only_compatible: 4, incompatible: 0 };
    later.epoch = 9;
    for drive in 0..4 {
        let label = label(3, drive as u16, later.clone());
        test_drives.drives[drive] = crate::testing::drives::TestDrive::default();
        let (tasks, io) = test_drives.start();
        let own = io.clone();
        let write = async move { own.write(drive, 0, vec![label.encode()], Priority::Host).await };
        test_drives.finish(&tasks, &io, write).expect("no cut").expect("written");
    }
    assert!(found(&mut test_drives).expect("known enough").read_only);
}

/// The older pair beside it is what the later version went on from.
#[test]
fn a_newer_label_beside_an_older_one_counts() {
    let mut test_drives = created(4, 1);
    let mut later = configuration(&test_drives);
    (later.features.incompatible, later.epoch) = (8, 9);
    for drive in 0..4 {
        let bytes = label(3, drive as u16, later.clone()).encode();
        let (tasks, io) = test_drives.start();
        let own = io.clone();
        let write = async move { own.write(drive, 0, vec![bytes], Priority::Host).await };
        test_drives.finish(&tasks, &io, write).expect("no cut").expect("written");
    }
    let refused = found(&mut test_drives).expect_err("of a later version");
    assert!(refused.to_string().contains("newer version"), "{refused}");
}

/// The label's check does not cover the format: what flips it in one copy is damage, and the copies
/// beside it count.
#[test]
fn another_format_counts_where_a_pair_of_copies_has_it() {
    for copies in 1..=2 {
        let mut test_drives = created(4, 1);
        let (tasks, io) = test_drives.start();
        let own = io.clone();
        let change = async move {
            let mut changed = 0;
            for at in places(SIZE.0) {
                let mut bytes = own.read(1, at, LABEL_SIZE as usize, Priority::Host).await.expect("it answers");
                if changed < copies && is_label(&bytes) {
                    bytes[8] ^= 16;
                    own.write(1, at, vec![bytes.freeze()], Priority::Host).await.expect("it takes writes");
                    changed += 1;
                }
            }
            changed
        };
        assert_eq!(test_drives.finish(&tasks, &io, change).expect("no cut"), copies);
        let discovery = found(&mut test_drives).expect("three of four");
        let newer = matches!(discovery.found[1].verdict, Verdict::TooNew { .. });
        assert_eq!(newer, copies == 2, "{:?}", discovery.found[1]);
    }
}

#[test]
fn each_odd_drive_is_named_with_its_reason() {
    let mut test_drives = created(8, 2);
    let foreign = created(8, 3).drives[0].clone();
    // Another pool's identity, from the same maker.
    test_drives.drives.push(foreign);
    let (tasks, io) = test_drives.start();
    let mut other = configuration(&test_drives);
    other.pool = PoolId([8; 16]);
    let label = label(9, 0, other);
    let own = io.clone();
    let bytes = label.encode();
    test_drives.finish(&tasks, &io, async move { own.write(8, 0, vec![bytes], Priority::Host).await });
    // A clone of drive 1, a blank drive, an absent one, a damaged one.
    test_drives.drives.push(test_drives.drives[1].clone());
    test_drives.drives.push(crate::testing::drives::TestDrive::default());
    test_drives.drives[3].gone = true;
    for copy in 0..4 {
        test_drives.damage(4, copy_at(SIZE, copy) + 100, 8);
    }
    test_drives.drives[5] = test_drives.drives[5].clone();
    let discovery = {
        // Drive 5 misses a commit.
        test_drives.drives[5].gone = true;
        assert_eq!(commit(&mut test_drives, 1), [3]);
        test_drives.drives[5].gone = false;
        found(&mut test_drives).expect("a pool")
    };
    let verdict = |at: usize| discovery.found[at].verdict.clone();
    assert_eq!(verdict(0), Verdict::Member { number: DriveNumber(0) });
    assert!(matches!(verdict(3), Verdict::Unreadable { .. }));
    assert_eq!(verdict(4), Verdict::Damaged);
    assert_eq!(verdict(5), Verdict::Stale { number: DriveNumber(5), epoch: 1 });
    assert_eq!(verdict(8), Verdict::Foreign { pool: PoolId([8; 16]) });
    assert_eq!(verdict(9), Verdict::Duplicate { number: DriveNumber(1), of: 1 });
    assert_eq!(verdict(10), Verdict::Blank);
    for (at, found) in discovery.found.iter().enumerate() {
        let plain = matches!(found.verdict, Verdict::Member { .. });
        assert_eq!(plain, found.note.is_empty(), "drive {at}: {found:?}");
        assert!(plain || found.note.contains(&format!("drives/{at}")));
    }
    assert!(discovery.majority);
}

#[test]
fn a_drive_that_shrank_is_refused() {
    let mut test_drives = created(4, 2);
    let (tasks, io) = test_drives.start();
    let mut attached = test_drives.attached(|_| 0);
    attached[2].geometry.size = Bytes(63 * MIB);
    let own = io.clone();
    let discovery = test_drives.finish(&tasks, &io, async move { discover(&own, &attached).await });
    let discovery = discovery.expect("no cut").expect("a pool");
    assert!(matches!(discovery.found[2].verdict, Verdict::TooSmall { .. }));
    assert!(!discovery.present.contains_key(&DriveNumber(2)));
}

#[test]
fn an_acknowledged_epoch_is_never_forgotten_and_a_minority_decides_nothing() {
    for seed in 0..200 {
        let mut test_drives = created(5, seed);
        let mut known = 1;
        for round in 0..4 {
            test_drives.cut_at = Some(test_drives.operations + 20 + (seed * 7 + round * 13) % 90);
            let acknowledged = commit(&mut test_drives, 4);
            test_drives.cut();
            known = acknowledged.last().copied().unwrap_or(known).max(known);
            // Any two drives away.
            test_drives.drives[(seed % 5) as usize].gone = true;
            test_drives.drives[((seed + round + 1) % 5) as usize].gone = round % 2 == 0;
            let discovery = found(&mut test_drives).expect("a pool is there");
            assert!(discovery.majority, "seed {seed}");
            assert!(discovery.configuration.epoch >= known, "seed {seed}: epoch {known} was agreed and is forgotten");
            test_drives.drives.iter_mut().for_each(|drive| drive.gone = false);
        }
    }
}

#[test]
fn a_power_cut_after_a_killed_process_leaves_every_drive_a_label() {
    for seed in 0..96 {
        // So many that a label is longer than a sector.
        let mut test_drives = created(12, seed);
        let before = test_drives.operations;
        found(&mut test_drives).expect("a pool is there");
        // After the labels are read and the drives flushed, within the first promise.
        let within = test_drives.operations - before + 12;
        test_drives.cut_at = Some(test_drives.operations + within + seed % 24);
        commit(&mut test_drives, 1);
        test_drives.kill();
        test_drives.cut_at = Some(test_drives.operations + within + seed * 7 % 24);
        commit(&mut test_drives, 1);
        test_drives.cut();
        let discovery = found(&mut test_drives).expect("a pool is there");
        assert!(discovery.labels.iter().all(Option::is_some), "seed {seed}: a drive has lost all copies of its label");
    }
}

#[test]
fn without_a_majority_nothing_is_committed() {
    let mut test_drives = created(6, 4);
    for drive in 3..6 {
        test_drives.drives[drive].gone = true;
    }
    assert!(!found(&mut test_drives).expect("a pool").majority);
    assert!(commit(&mut test_drives, 1).is_empty());
    let discovery = found(&mut test_drives).expect("a pool");
    let (tasks, io) = test_drives.start();
    let labels = Labels::resume(&io, &discovery, true);
    let forced = test_drives.finish(&tasks, &io, async move { labels.claim(&[]).await }).expect("no cut");
    assert_eq!(forced, Ok(()));
}

#[test]
fn an_opening_pool_outbids_what_a_lost_minority_proposed() {
    // An announcement reaches drive 0 only; the others go on without it; then it returns.
    let mut test_drives = created(5, 6);
    for drive in 1..5 {
        test_drives.drives[drive].write_protected = true;
    }
    assert!(commit(&mut test_drives, 1).is_empty());
    test_drives.drives.iter_mut().for_each(|drive| drive.write_protected = false);
    test_drives.drives[0].gone = true;
    assert_eq!(commit(&mut test_drives, 2), [3, 4]);
    test_drives.drives[0].gone = false;
    let discovery = found(&mut test_drives).expect("a pool");
    assert_eq!(discovery.configuration.epoch, 4);
    assert_eq!(discovery.found[0].verdict, Verdict::Stale { number: DriveNumber(0), epoch: 1 });
}

#[test]
fn scrub_rewrites_damaged_copies() {
    let mut test_drives = created(4, 7);
    test_drives.damage(1, copy_at(SIZE, 0) + 64, 4);
    test_drives.damage(2, copy_at(SIZE, 3) + 64, 4);
    let discovery = found(&mut test_drives).expect("a pool");
    let (tasks, io) = test_drives.start();
    let labels = Labels::resume(&io, &discovery, false);
    let again = labels.clone();
    let repaired = |repaired| Some(Scrubbed { repaired, trouble: Vec::new() });
    assert_eq!(test_drives.finish(&tasks, &io, async move { labels.scrub().await }), repaired(2));
    assert_eq!(test_drives.finish(&tasks, &io, async move { again.scrub().await }), repaired(0));
}

#[test]
fn a_drive_that_takes_no_label_keeps_the_scrub_from_none_of_the_others() {
    let mut test_drives = created(4, 7);
    for drive in [1, 2] {
        test_drives.damage(drive, copy_at(SIZE, 0) + 64, 4);
    }
    let discovery = found(&mut test_drives).expect("a pool");
    let (tasks, io) = test_drives.start();
    let labels = Labels::resume(&io, &discovery, false);
    test_drives.drives[1].fails_at = 0..SIZE.0;
    let scrubbed = test_drives.finish(&tasks, &io, async move { labels.scrub().await }).expect("no cut");
    assert_eq!((scrubbed.repaired, scrubbed.trouble.len()), (1, 1), "{:?}", scrubbed.trouble);
    assert!(scrubbed.trouble[0].to_string().contains("drive 1"), "{}", scrubbed.trouble[0]);
}

#[test]
fn a_drive_that_answers_again_takes_its_label_before_the_next_look() {
    let mut test_drives = created(4, 7);
    test_drives.damage(1, copy_at(SIZE, 0) + 64, 4);
    let discovery = found(&mut test_drives).expect("a pool");
    let (tasks, io) = test_drives.start();
    let labels = Labels::resume(&io, &discovery, false);
    // A write that the drive does not answer.
    let own = io.clone();
    let bytes = vec![Buffer::zeroed(4096).freeze()];
    tasks.spawn(async move { drop(own.write(1, LOG_AT, bytes, Priority::Urgent).await) });
    tasks.run_ready();
    let mut out = Vec::new();
    io.drain(&mut out);
    let Some(Action::Drive { drive: 1, request }) = out.pop() else { panic!("{out:?}") };
    labels.note_silent(&BTreeSet::from([DriveNumber(1)]));
    let again = labels.clone();
    let scrubbed = test_drives.finish(&tasks, &io, async move { again.scrub().await }).expect("no cut");
    assert!(scrubbed.trouble[0].to_string().contains("drive 1 does not answer"), "{:?}", scrubbed.trouble);
    io.complete(1, Completion { tag: request.tag, op: request.op, result: Ok(()) });
    let scrubbed = test_drives.finish(&tasks, &io, async move { labels.scrub().await });
    assert_eq!(scrubbed, Some(Scrubbed { repaired: 1, trouble: Vec::new() }));
}

#[test]
fn labelled_drives_are_not_overwritten_by_a_new_pool() {
    let mut test_drives = created(3, 8);
    let (tasks, io) = test_drives.start();
    let attached = test_drives.attached(|_| 0);
    let own = io.clone();
    let refused =
        test_drives.finish(&tasks, &io, async move { refuse_labelled(&own, &attached).await }).expect("no cut");
    assert!(matches!(refused, Err(ArrayError::Refused(message)) if message.contains("retained")));
}

#[test]
fn a_label_of_the_former_kind_is_read_and_renewed() {
    // Drive 1 of a pool of four that was closed in order, as version 0.1.0 wrote it before
    // agreement took two steps.
    let bytes = Buffer::copy_of(include_bytes!("fixtures/one-step.label")).freeze();
    let label = Label::decode(&bytes).expect("read");
    let configuration = &label.configuration;
    assert_eq!((label.sequence, label.number, configuration.epoch), (3, DriveNumber(1), 2));
    assert_eq!((configuration.name.as_str(), configuration.drives.len(), configuration.log.len()), ("former", 4, 1));
    assert_eq!((label.promised, label.complete, configuration.settled), (2, 2, 2));
    let renewed = label.encode();
    assert_eq!(Label::decode(&renewed), Ok(label));
    assert_eq!(renewed[40], codec::WRITTEN as u8, "older programs refuse what they would drop");
}

#[test]
fn a_commit_that_too_few_drives_could_take_is_not_begun() {
    let mut test_drives = created(4, 9);
    let discovery = found(&mut test_drives).expect("a pool");
    let (tasks, io) = test_drives.start();
    let labels = Labels::resume(&io, &discovery, false);
    let own = labels.clone();
    let outcome = test_drives.finish(&tasks, &io, async move {
        own.promise(&discovery).await?;
        own.claim(&[]).await?;
        let read = discovery.labels[3].clone().expect("a label");
        own.detach(DriveNumber(2));
        own.detach(DriveNumber(3));
        let refused = own.commit(|configuration| configuration.spare_drives += 1).await;
        assert!(matches!(refused, Err(ArrayError::Degraded(_))), "{refused:?}");
        assert_eq!(own.undecided(), None, "nothing was written");
        own.attach_returned(DriveNumber(3), 3, &read);
        own.commit(|configuration| configuration.spare_drives += 1).await
    });
    assert_eq!(outcome, Some(Ok(())));
    assert_eq!(labels.configuration().spare_drives, 3);
}

/// The epochs that each drive's label promises and is complete as of.
fn ages(test_drives: &mut TestDrives) -> Vec<Option<(u64, u64)>> {
    let discovery = found(test_drives).expect("a pool");
    discovery.labels.iter().map(|label| label.as_ref().map(|label| (label.promised, label.complete))).collect()
}

/// Opens for writing; these drives missed something.
fn opened(test_drives: &mut TestDrives, stale: &'static [DriveNumber]) -> (Tasks, Io, Labels) {
    let discovery = found(test_drives).expect("a pool");
    let (tasks, io) = test_drives.start();
    let labels = Labels::resume(&io, &discovery, false);
    let own = labels.clone();
    let claim = async move {
        own.promise(&discovery).await?;
        own.claim(stale).await
    };
    assert_eq!(test_drives.finish(&tasks, &io, claim), Some(Ok(())));
    (tasks, io, labels)
}

#[test]
fn a_scrub_writes_a_label_with_all_that_its_drive_promised() {
    let mut test_drives = created(4, 7);
    let (tasks, io, labels) = opened(&mut test_drives, &[]);
    let own = labels.clone();
    let change = async move { own.commit(|configuration| configuration.spare_drives += 1).await };
    assert_eq!(test_drives.finish(&tasks, &io, change), Some(Ok(())));
    let before = ages(&mut test_drives);
    test_drives.damage(1, copy_at(SIZE, 0) + 64, 4);
    let scrubbed = test_drives.finish(&tasks, &io, async move { labels.scrub().await });
    assert_eq!(scrubbed, Some(Scrubbed { repaired: 1, trouble: Vec::new() }));
    assert_eq!(ages(&mut test_drives), before);
}

#[test]
fn a_scrub_writes_all_of_a_labels_space() {
    let mut test_drives = created(4, 7);
    let discovery = found(&mut test_drives).expect("a pool");
    let (tasks, io) = test_drives.start();
    let labels = Labels::resume(&io, &discovery, false);
    // The last block of a copy's space, far behind the label.
    let block = (copy_at(SIZE, 2) + LABEL_SIZE) / 4096 - 1;
    test_drives.drives[1].unreadable.insert(block);
    let scrubbed = test_drives.finish(&tasks, &io, async move { labels.scrub().await });
    assert_eq!(scrubbed, Some(Scrubbed { repaired: 1, trouble: Vec::new() }));
    assert!(test_drives.drives[1].unreadable.is_empty());
}

#[test]
fn a_label_says_which_epoch_was_agreed_before_its_own() {
    let mut test_drives = created(4, 7);
    let epochs = commit(&mut test_drives, 3);
    assert_eq!(found(&mut test_drives).expect("a pool").configuration.settled, epochs[1]);
    // Also in the first commit after the pool was made.
    let mut test_drives = TestDrives::new(4, SIZE, 8);
    let (tasks, io) = test_drives.start();
    let labels = Labels::new(&io, configuration(&test_drives), (0..4).collect());
    let made = async move {
        labels.publish().await?;
        labels.commit(|configuration| configuration.spare_drives += 1).await
    };
    assert_eq!(test_drives.finish(&tasks, &io, made), Some(Ok(())));
    let configuration = found(&mut test_drives).expect("a pool").configuration;
    assert_eq!((configuration.settled, configuration.epoch), (1, 2));
}

#[test]
fn after_a_commit_that_may_be_found_or_not_every_other_is_refused() {
    let mut test_drives = created(4, 9);
    let (tasks, io, labels) = opened(&mut test_drives, &[]);
    for drive in 1..4 {
        test_drives.drives[drive].fails_at = 0..SIZE.0;
    }
    let own = labels.clone();
    let change = async move { own.commit(|configuration| configuration.spare_drives += 1).await };
    let failed = test_drives.finish(&tasks, &io, change).expect("no cut");
    assert!(matches!(failed, Err(ArrayError::Degraded(_))), "{failed:?}");
    test_drives.drives.iter_mut().for_each(|drive| drive.fails_at = 0..0);
    let again = test_drives.finish(&tasks, &io, async move { labels.commit(|_| {}).await });
    assert_eq!(again, Some(failed), "drive 0 has the label that nobody agreed to");
}

#[test]
fn of_two_drives_with_one_number_the_newer_label_counts_wherever_it_is() {
    let mut test_drives = created(4, 2);
    let older = test_drives.drives[1].clone();
    commit(&mut test_drives, 1);
    test_drives.drives.insert(0, older);
    let discovery = found(&mut test_drives).expect("a pool");
    assert_eq!(discovery.present[&DriveNumber(1)], 2);
    assert_eq!(discovery.found[0].verdict, Verdict::Duplicate { number: DriveNumber(1), of: 2 });
}

#[test]
fn of_proposals_with_one_epoch_the_one_on_most_drives_counts() {
    for most in [[0, 1, 4], [2, 3, 4]] {
        let mut test_drives = created(5, 2);
        let mut proposals = [configuration(&test_drives), configuration(&test_drives)];
        (proposals[0].epoch, proposals[1].epoch) = (5, 5);
        proposals[1].spare_drives += 1;
        for drive in 0..5 {
            let of_most = most.contains(&drive);
            let label = label(3, drive as u16, proposals[usize::from(of_most)].clone());
            for copy in copies_of(3) {
                test_drives.poke(drive, copy_at(SIZE, copy), &label.encode());
            }
        }
        let discovery = found(&mut test_drives).expect("a pool");
        assert_eq!(discovery.configuration, proposals[1]);
        for (drive, found) in discovery.found.iter().enumerate() {
            let stale = matches!(found.verdict, Verdict::Stale { .. });
            assert_eq!(stale, !most.contains(&drive), "{found:?}");
        }
    }
}

#[test]
fn an_epoch_that_a_majority_lacks_was_never_in_force() {
    let test_drives = TestDrives::new(4, SIZE, 1);
    let newest = Configuration { epoch: 9, settled: 7, ..configuration(&test_drives) };
    let floor = |epochs: [u64; 4]| {
        let here: Vec<_> = (0..4).map(DriveNumber).zip(epochs).collect();
        agreement::floor(&newest, &here)
    };
    assert_eq!(floor([9, 7, 7, 7]), 7);
    assert_eq!(floor([7, 7, 7, 9]), 7);
    assert_eq!(floor([9, 9, 9, 7]), 9);
    assert_eq!(agreement::floor(&newest, &[(DriveNumber(0), 9)]), 9, "those that are away may hold it");
}

#[test]
fn a_drive_that_missed_something_counts_again_when_it_has_caught_up() {
    const STALE: DriveNumber = DriveNumber(3);
    let mut test_drives = created(4, 9);
    test_drives.drives[3].gone = true;
    commit(&mut test_drives, 1);
    test_drives.drives[3].gone = false;
    let (tasks, io, labels) = opened(&mut test_drives, &[STALE]);
    let state = |labels: &Labels| labels.configuration().drives[3].state;
    assert_eq!(state(&labels), DriveState::Filling);
    let complete = |test_drives: &mut TestDrives| ages(test_drives)[3].map(|(_, complete)| complete);
    assert_eq!(complete(&mut test_drives), Some(1));
    for caught_up in [false, true] {
        if caught_up {
            labels.caught_up(STALE);
        }
        let own = labels.clone();
        let change =
            async move { own.commit(|configuration| configuration.drives[3].state = DriveState::Active).await };
        assert_eq!(test_drives.finish(&tasks, &io, change), Some(Ok(())));
        let epoch = labels.configuration().epoch;
        assert_eq!(complete(&mut test_drives), Some(if caught_up { epoch } else { 1 }));
    }
}

#[test]
fn a_drive_that_leaves_counts_among_those_that_agree_to_it() {
    let mut test_drives = created(4, 9);
    let (tasks, io, labels) = opened(&mut test_drives, &[]);
    // Two of four would be no majority of the former voters.
    labels.detach(DriveNumber(2));
    let own = labels.clone();
    let leave = async move { own.commit(|configuration| configuration.drives[3].state = DriveState::Retired).await };
    assert_eq!(test_drives.finish(&tasks, &io, leave), Some(Ok(())));
    assert_eq!(labels.usable(), [DriveNumber(0), DriveNumber(1)]);
}

#[test]
fn a_configuration_larger_than_a_label_is_refused_and_changes_nothing() {
    let mut test_drives = created(3, 91);
    let discovery = found(&mut test_drives).expect("a pool is there");
    let (tasks, io) = test_drives.start();
    let large = |configuration: &mut Configuration| configuration.name = "x".repeat(LABEL_SIZE as usize);
    let (labels, mut new) = (Labels::resume(&io, &discovery, false), configuration(&test_drives));
    large(&mut new);
    let (own, fresh) = (labels.clone(), Labels::new(&io, new, (0..3).collect()));
    let ended = test_drives.finish(&tasks, &io, async move {
        own.promise(&discovery).await.expect("a majority");
        (own.commit(large).await, own.commit(|c| c.spare_drives = 1).await, fresh.publish().await)
    });
    let (changed, small, published) = ended.expect("no cut");
    assert!(matches!(changed, Err(ArrayError::Full(_))) && matches!(published, Err(ArrayError::Full(_))));
    assert_eq!(
        (small, labels.configuration().name.as_str(), labels.configuration().spare_drives),
        (Ok(()), "stone", 1)
    );
}
