//! Snapshots, clones and rollbacks on whole pools.

mod changes;
mod handed;
mod model;

use std::collections::BTreeSet;

use futures_util::FutureExt;
use stele_ground::{Bytes, VolumeId};
use stele_media::{Buffer, MediaFault, Op, Priority, Request};

use super::reclaim::STRIPES_AT_ONCE;
use crate::drives::label::LOG_AT;
use crate::formats::map::PER_PAGE;
use crate::model::{Action, ArrayError, Command, Event, Reply, VolumeDetail, VolumeSpec, VolumeStatus};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

const KIB: usize = 1024;
const MIB: u64 = 1 << 20;

impl Fixture {
    pub(super) fn snapshot(&mut self, volume: &str, name: &str) -> Result<VolumeStatus, NoAnswer> {
        let (volume, name) = (volume.to_owned(), name.to_owned());
        self.command(Command::SnapshotVolume { volume, name, made: 1_700_000_000 }).map(one)
    }

    pub(super) fn make_clone(&mut self, snapshot: &str, name: &str) -> Result<VolumeStatus, NoAnswer> {
        self.command(Command::CloneSnapshot { snapshot: snapshot.into(), name: name.into() }).map(one)
    }

    pub(super) fn roll_back(&mut self, volume: &str, snapshot: &str) -> Result<VolumeStatus, NoAnswer> {
        self.command(Command::RollBackVolume { volume: volume.into(), snapshot: snapshot.into() }).map(one)
    }

    pub(super) fn delete(&mut self, name: &str) -> Result<(), NoAnswer> {
        self.command(Command::DeleteVolume { name: name.into() }).map(drop)
    }

    pub(super) fn detail(&mut self, name: &str) -> VolumeDetail {
        match self.command(Command::ShowVolume { name: name.into() }) {
            Ok(Reply::Detail(detail)) => *detail,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn list(&mut self) -> Vec<VolumeStatus> {
        match self.command(Command::ListVolumes) {
            Ok(Reply::Volumes(list)) => list,
            other => panic!("{other:?}"),
        }
    }

    /// Layers that exist, nameless ones included.
    fn layers(&self) -> usize {
        self.pool.serving().expect("it is open").engine.look(|core| core.volumes.all()).len()
    }

    fn slots_used(&self) -> u64 {
        let engine = &self.pool.serving().expect("it is open").engine;
        let rows: Vec<_> = engine.layout.read().rows().map(|row| row.id).collect();
        rows.into_iter().map(|row| u64::from(engine.look(|core| core.space.used(row)))).sum()
    }
}

fn one(reply: Reply) -> VolumeStatus {
    match reply {
        Reply::Volume(status) => status,
        other => panic!("{other:?}"),
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, NoAnswer>) -> String {
    match result {
        Err(NoAnswer::Array(ArrayError::Refused(text) | ArrayError::Invalid(text) | ArrayError::Exists(text))) => text,
        other => panic!("{other:?}"),
    }
}

/// A pool with a volume "a" of 1 MiB, half of it destaged and half of it dirty.
fn fixture(code: &str, seed: u64) -> (Fixture, VolumeId, Vec<u8>) {
    let mut fixture = Fixture::new(8, 8, seed);
    let volume = fixture.create_volume(spec("a", code, MIB)).id;
    let mut data = pattern(1, MIB as usize);
    data[900 * KIB..].fill(0);
    fixture.write(volume, 0, &data[..512 * KIB]).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    for at in (512 * KIB..900 * KIB).step_by(4 * KIB) {
        fixture.write(volume, at as u64, &data[at..at + 4 * KIB]).expect("written");
    }
    (fixture, volume, data)
}

/// A list of all stripes of a large volume would take more memory than there is.
#[test]
fn a_layer_is_taken_apart_a_page_of_its_map_after_another() {
    let mut fixture = Fixture::new(8, 8, 30);
    let volume = fixture.create_volume(spec("large", "2+1", 1 << 30)).id;
    let stripe = 32 * KIB as u64;
    let page = PER_PAGE * stripe;
    let pages = (1 << 30) / page;
    // In every page of the map, and in the first more stripes than are worked on at once.
    fixture.write(volume, 0, &pattern(1, 200 * stripe as usize)).expect("written");
    for at in 1..pages {
        fixture.write(volume, at * page, &pattern(at, stripe as usize)).expect("written");
    }
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.write(volume, page + 7 * stripe, &pattern(3, 4 * KIB)).expect("dirty");
    let engine = fixture.engine();
    let layer = engine.look(|core| core.volumes.get(volume)).expect("a volume");
    let (mut left, mut found, mut most) = (engine.stripes_of(&layer), BTreeSet::new(), 0);
    loop {
        let batch = engine.next_of(&layer, &mut left).now_or_never().expect("in memory").expect("readable");
        if batch.is_empty() {
            break;
        }
        most = most.max(batch.len());
        found.extend(batch);
    }
    let mapped = (0..200).chain((1..pages).map(|at| at * PER_PAGE));
    assert_eq!(found, mapped.chain([PER_PAGE + 7]).collect());
    assert_eq!(most, STRIPES_AT_ONCE);
    fixture.delete("large").expect("deleted");
    fixture.idle();
    assert_eq!((fixture.layers(), fixture.slots_used()), (0, 0));
}

#[test]
fn a_layer_that_is_given_up_while_a_close_fails_is_taken_apart() {
    let (mut fixture, volume, data) = fixture("2+1", 31);
    fixture.snapshot("a", "s").expect("a snapshot");
    fixture.write(volume, 0, &pattern(2, 64 * KIB)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.idle();
    let (layers, slots) = (fixture.layers(), fixture.slots_used());
    let back = || Command::RollBackVolume { volume: "a".into(), snapshot: "s".into() };
    fixture.fail_to_close(|fixture| fixture.begin_command(back()));
    fixture.idle();
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == data, "it was rolled back");
    assert_eq!((fixture.layers(), fixture.slots_used()), (layers, slots - 2));
}

#[test]
fn a_snapshot_stays_what_the_volume_was() {
    for code in ["mirror-2", "2+1", "4+2"] {
        let (mut fixture, volume, mut data) = fixture(code, 1);
        let snapshot = fixture.snapshot("a", "s").expect("a snapshot");
        assert!(snapshot.snapshot && snapshot.origin.as_deref() == Some("a") && snapshot.made == 1_700_000_000);
        let frozen = data.clone();
        let changes: [(usize, usize); 5] =
            [(4, 4), (128, 256), (520, 40), (704, 8), (960, 4)].map(|(at, length)| (at * KIB, length * KIB));
        for (at, length) in changes {
            let new = pattern(at as u64 + 7, length);
            data[at..at + length].copy_from_slice(&new);
            fixture.write(volume, at as u64, &new).expect("written");
            assert!(
                fixture.read(snapshot.id, 0, MIB as usize).expect("read") == frozen,
                "{code}: after a write at {at}"
            );
        }
        fixture.discard(volume, 448 * KIB as u64, 128 * KIB as u64).expect("discarded");
        data[448 * KIB..576 * KIB].fill(0);
        for round in 0..3 {
            assert!(fixture.read(volume, 0, MIB as usize).expect("read") == data, "{code}: the volume, round {round}");
            assert!(fixture.read(snapshot.id, 0, MIB as usize).expect("read") == frozen, "{code}: round {round}");
            match round {
                0 => drop(fixture.command(Command::Checkpoint).expect("a checkpoint")),
                _ => fixture.crash().expect("opened"),
            }
        }
        assert_eq!(fixture.scrub(), (0, 0));
    }
}

#[test]
fn nothing_writes_to_a_snapshot() {
    let (mut fixture, _, _) = fixture("2+1", 1);
    let snapshot = fixture.snapshot("a", "s").expect("a snapshot").id;
    let data = vec![Buffer::zeroed(4096).freeze()];
    let ops = vec![
        Op::Write { at: 0, data, fua: false },
        Op::Zero { at: 0, length: 4096 },
        Op::Discard { at: 0, length: 4096 },
    ];
    let (_, answers) = fixture.submit_all(snapshot, ops);
    for (op, result) in answers.into_iter().flatten() {
        assert_eq!(result.map_err(|error| error.fault), Err(MediaFault::Refused), "{op:?}");
    }
    let grow = Command::ResizeVolume { name: "s".into(), size: Bytes(2 * MIB) };
    assert!(refusal(fixture.command(grow)).contains("clone"));
}

#[test]
fn a_clone_goes_its_own_way() {
    let (mut fixture, volume, data) = fixture("4+2", 2);
    let snapshot = fixture.snapshot("a", "s").expect("a snapshot").id;
    let clone = fixture.make_clone("s", "c").expect("a clone");
    assert!(!clone.snapshot && clone.origin.as_deref() == Some("s"));
    let (mut left, mut right) = (data.clone(), data.clone());
    for (at, length) in [(0, 4 * KIB), (64 * KIB, 64 * KIB), (600 * KIB, 12 * KIB)] {
        let (new, other) = (pattern(at as u64 + 1, length), pattern(at as u64 + 2, length));
        fixture.write(volume, at as u64, &new).expect("written");
        fixture.write(clone.id, at as u64, &other).expect("written");
        left[at..at + length].copy_from_slice(&new);
        right[at..at + length].copy_from_slice(&other);
    }
    // A snapshot of the clone, and a clone of that.
    fixture.snapshot("c", "cs").expect("a snapshot");
    let second = fixture.make_clone("cs", "cc").expect("a clone").id;
    fixture.write(second, 8192, &pattern(9, 4096)).expect("written");
    let mut third = right.clone();
    third[8192..12288].copy_from_slice(&pattern(9, 4096));
    for round in 0..2 {
        for (which, id, want) in [
            ("volume", volume, &left),
            ("snapshot", snapshot, &data),
            ("clone", clone.id, &right),
            ("cc", second, &third),
        ] {
            assert!(fixture.read(id, 0, MIB as usize).expect("read") == *want, "{which}, round {round}");
        }
        fixture.crash().expect("opened");
    }
    assert!(refusal(fixture.delete("s")).contains("'c'"), "the clone is named");
    assert!(refusal(fixture.delete("a")).contains("'s'"), "the snapshot is named");
}

#[test]
fn a_rollback_undoes_what_was_written_since() {
    let (mut fixture, volume, first) = fixture("2+1", 3);
    let s1 = fixture.snapshot("a", "s1").expect("a snapshot").id;
    let new = pattern(5, 300 * KIB);
    fixture.write(volume, 100 * KIB as u64, &new).expect("written");
    let mut second = first.clone();
    second[100 * KIB..400 * KIB].copy_from_slice(&new);
    let s2 = fixture.snapshot("a", "s2").expect("a snapshot").id;
    fixture.write(volume, 0, &pattern(6, 700 * KIB)).expect("written");
    assert_eq!(fixture.roll_back("a", "s1").expect("rolled back").id, volume, "the volume keeps its number");
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == first);
    fixture.write(volume, 4096, &pattern(7, 4096)).expect("written");
    fixture.crash().expect("opened");
    let mut third = first.clone();
    third[4096..8192].copy_from_slice(&pattern(7, 4096));
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == third);
    assert!(fixture.read(s1, 0, MIB as usize).expect("read") == first);
    assert!(fixture.read(s2, 0, MIB as usize).expect("read") == second, "younger snapshots stay");
    fixture.roll_back("a", "s2").expect("rolled back, and forward again");
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == second);
    fixture.make_clone("s2", "c").expect("a clone");
    assert!(refusal(fixture.roll_back("c", "s2")).contains("no snapshot of"));
}

#[test]
fn a_rollback_that_is_not_durable_is_not_shown() {
    let (mut fixture, volume, first) = fixture("2+1", 3);
    fixture.snapshot("a", "s").expect("a snapshot");
    let new = pattern(5, 300 * KIB);
    fixture.write(volume, 0, &new).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    // What is not in the log yet does not come there.
    fixture.test_drives.held = Some(LOG_AT..LOG_AT + fixture.status().log_size.0);
    fixture.begin_command(Command::RollBackVolume { volume: "a".into(), snapshot: "s".into() });
    fixture.idle();
    for at in [0, 200 * KIB, 600 * KIB] {
        let is_shown = fixture.read(volume, at as u64, 4 * KIB).is_ok();
        assert!(!is_shown, "at {at}");
    }
    fixture.crash().expect("opened");
    assert!(fixture.read(volume, 0, 300 * KIB).expect("read") == new, "the power cut took the rollback back");
    fixture.roll_back("a", "s").expect("rolled back");
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == first);
}

#[test]
fn what_is_deleted_leaves_its_space_and_nothing_else() {
    let (mut fixture, volume, data) = fixture("2+1", 4);
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let before = (fixture.slots_used(), fixture.layers());
    fixture.snapshot("a", "s1").expect("a snapshot");
    fixture.write(volume, 0, &pattern(2, 128 * KIB)).expect("written");
    fixture.snapshot("a", "s2").expect("a snapshot");
    fixture.write(volume, 64 * KIB as u64, &pattern(3, 128 * KIB)).expect("written");
    let mut newest = data.clone();
    newest[..128 * KIB].copy_from_slice(&pattern(2, 128 * KIB));
    newest[64 * KIB..192 * KIB].copy_from_slice(&pattern(3, 128 * KIB));
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    assert_eq!(fixture.slots_used(), before.0 + 8, "what is shared is there once");
    let (alone1, alone2) = (fixture.detail("s1"), fixture.detail("s2"));
    assert_eq!((alone1.alone, alone2.alone), (Bytes(128 * 1024), Bytes(64 * 1024)));
    assert_eq!(alone1.refers, fixture.detail("a").refers, "all three show the same number of stripes");
    fixture.delete("s1").expect("deleted");
    assert_eq!(fixture.slots_used(), before.0 + 8 - 4, "its own four stripes are free");
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == newest);
    fixture.delete("s2").expect("deleted");
    assert_eq!((fixture.slots_used(), fixture.layers()), before, "nothing is left behind");
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == newest);
    fixture.crash().expect("opened");
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == newest);
    assert_eq!(fixture.list().len(), 1);
    assert_eq!(fixture.scrub(), (0, 0));
    fixture.delete("a").expect("deleted");
    assert_eq!((fixture.slots_used(), fixture.layers()), (0, 0));
}

#[test]
fn a_layer_that_several_stand_on_goes_when_one_is_left() {
    let (mut fixture, volume, data) = fixture("4+2", 5);
    fixture.snapshot("a", "s1").expect("a snapshot");
    fixture.write(volume, 0, &pattern(2, 256 * KIB)).expect("written");
    fixture.snapshot("a", "s2").expect("a snapshot");
    fixture.roll_back("a", "s1").expect("rolled back");
    fixture.delete("s1").expect("deleted, and its name with it");
    assert_eq!(fixture.list().len(), 2);
    fixture.idle();
    assert_eq!(fixture.layers(), 3, "s2 and the volume both stand on what s1 was");
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == data);
    fixture.delete("s2").expect("deleted");
    assert_eq!(fixture.layers(), 1);
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == data);
    fixture.crash().expect("opened");
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == data);
}

#[test]
fn volumes_with_an_owner_get_no_snapshots() {
    let mut fixture = Fixture::new(6, 6, 1);
    let owned = VolumeSpec { owner: Some("catalog".into()), ..spec("catalog", "2+1", MIB) };
    let id = fixture.create_volume(owned).id;
    assert!(refusal(fixture.snapshot("catalog", "s")).contains("its owner"));
    fixture.create_volume(spec("a", "2+1", MIB));
    fixture.snapshot("a", "s").expect("a snapshot");
    assert!(refusal(fixture.roll_back("catalog", "s")).contains("never rolled back"));
    fixture.command(Command::Protect { volume: id, owner: "catalog".into(), retained: true }).expect("protected");
    assert!(refusal(fixture.delete("catalog")).contains("retained"));
    assert!(refusal(fixture.snapshot("a", "s")).contains("exists"));
    assert!(refusal(fixture.snapshot("s", "t")).contains("snapshot already"));
    assert!(refusal(fixture.make_clone("a", "t")).contains("snapshot of it"));
    assert!(refusal(fixture.snapshot("a", "")).contains("1 to 255"));
}

#[test]
fn a_name_that_was_deleted_is_free_and_its_number_is_not() {
    let (mut fixture, _, _) = fixture("2+1", 1);
    let first = fixture.snapshot("a", "s").expect("a snapshot").id;
    fixture.delete("s").expect("deleted");
    let second = fixture.snapshot("a", "s").expect("a snapshot again").id;
    assert_ne!(first, second);
    assert!(matches!(fixture.read(first, 0, 4096), Err(NoAnswer::Media(error)) if error.fault == MediaFault::Gone));
}

#[test]
fn layers_have_a_limit_and_say_so() {
    let mut fixture = Fixture::new(4, 4, 1);
    let volume = fixture.create_volume(spec("a", "2+1", MIB)).id;
    for number in 1..super::LAYERS_MAX as u64 {
        fixture.write(volume, number * 4096, &pattern(number, 4096)).expect("written");
        fixture.snapshot("a", &format!("s{number}")).expect("a snapshot");
    }
    assert!(refusal(fixture.snapshot("a", "more")).contains("delete old snapshots"));
    let last = super::LAYERS_MAX as u64 - 1;
    let read = fixture.read(volume, 0, 256 * KIB).expect("read");
    for number in 1..=last {
        let at = number as usize * 4096;
        assert!(read[at..at + 4096] == pattern(number, 4096)[..], "block {number}");
    }
    for number in 1..=last {
        fixture.delete(&format!("s{number}")).expect("deleted");
    }
    assert_eq!(fixture.layers(), 1);
    assert!(fixture.read(volume, 0, 256 * KIB).expect("read") == read);
}

#[test]
fn a_snapshot_among_writes_is_one_moment_of_them() {
    for seed in 0..12 {
        let mut fixture = Fixture::new(6, 6, seed);
        let volume = fixture.create_volume(spec("a", "2+1", MIB)).id;
        fixture.write(volume, 0, &pattern(1, 256 * KIB)).expect("written");
        // Small writes are in the log at once; those of whole stripes take their time.
        let writes = |round: u64| -> Vec<Op> {
            let write = |at: u64, length: usize| {
                let data = vec![Buffer::copy_of(&pattern(round << 32 | at, length)).freeze()];
                Op::Write { at, data, fua: false }
            };
            (0..16).flat_map(|n| [write(n * 8192, 4096), write((8 + n) * 32768, 32768)]).collect()
        };
        let mut frozen = Vec::new();
        let mut snapshot = VolumeId(0);
        fixture.submit_all_and(volume, writes(1), |test_drives, pool| {
            let mut answers = Vec::new();
            let command = Command::SnapshotVolume { volume: "a".into(), name: "s".into(), made: 0 };
            pool.event(Event::Command { id: 900_000, command });
            test_drives.run_pool(pool, &mut answers, |answers, _| {
                answers.iter().any(|answer| matches!(answer, Action::Reply { .. }))
            });
            let made = answers.into_iter().find_map(|answer| match answer {
                Action::Reply { reply: Ok(Reply::Volume(status)), .. } => Some(status.id),
                _ => None,
            });
            snapshot = made.expect("a snapshot");
            // Read at once, with whatever is still under way.
            let op = Op::Read { at: 0, buffer: Buffer::zeroed(MIB as usize) };
            let request = Request { tag: 900_001, op, priority: Priority::Host, deadline: None };
            pool.event(Event::Submit { volume: snapshot, request });
            let mut answers = Vec::new();
            let is_read = |answer: &Action| match answer {
                Action::Finished { volume, .. } => *volume == snapshot,
                _ => false,
            };
            test_drives.run_pool(pool, &mut answers, |answers, _| answers.iter().any(is_read));
            for answer in answers.into_iter().filter(is_read) {
                let Action::Finished { completion, .. } = answer else { continue };
                let Op::Read { buffer, .. } = completion.op else { continue };
                frozen = buffer.to_vec();
            }
        });
        fixture.idle();
        assert!(fixture.read(snapshot, 0, MIB as usize).expect("read") == frozen, "seed {seed}: of writes under way");
        // Whatever is under way from here on is not in it.
        fixture.submit_all(volume, writes(2));
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        assert!(fixture.read(snapshot, 0, MIB as usize).expect("read") == frozen, "seed {seed}");
        fixture.crash().expect("opened");
        assert!(fixture.read(snapshot, 0, MIB as usize).expect("read") == frozen, "seed {seed}");
    }
}

#[test]
fn damage_under_a_snapshot_is_repaired_once_for_all_who_see_it() {
    let (mut fixture, volume, data) = fixture("4+2", 7);
    fixture.snapshot("a", "s").expect("a snapshot");
    let clone = fixture.make_clone("s", "c").expect("a clone").id;
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.pull(&[2]);
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == data);
    fixture.write(clone, 0, &pattern(3, 8192)).expect("written while degraded");
    fixture.idle();
    assert!(fixture.status().rebuilt > 0);
    fixture.pull(&[4]);
    fixture.idle();
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == data);
    let mut changed = data.clone();
    changed[..8192].copy_from_slice(&pattern(3, 8192));
    assert!(fixture.read(clone, 0, MIB as usize).expect("read") == changed);
    fixture.crash().expect("opened");
    assert!(fixture.read(volume, 0, MIB as usize).expect("read") == data);
}

#[test]
fn a_fully_allocated_volume_keeps_its_promise_over_a_snapshot() {
    let mut fixture = Fixture::new(4, 4, 6);
    let firm = VolumeSpec { fully_allocated: true, ..spec("firm", "2+1", 8 * MIB) };
    let volume = fixture.create_volume(firm).id;
    fixture.write(volume, 0, &pattern(1, 4 << 20)).expect("written");
    fixture.snapshot("firm", "s").expect("a snapshot");
    let thin = fixture.create_volume(spec("thin", "2+1", 1 << 30)).id;
    let mut at = 0;
    while fixture.write(thin, at, &pattern(at, 1 << 20)).is_ok() {
        at += MIB;
    }
    for at in (0..8 * MIB).step_by(1 << 20) {
        fixture.write(volume, at, &pattern(at + 9, 1 << 20)).expect("promised");
    }
    fixture.delete("s").expect("deleted");
    fixture.delete("firm").expect("deleted");
    fixture.write(thin, at, &pattern(at, 1 << 20)).expect("there is room again");
}
