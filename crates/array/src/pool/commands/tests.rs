//! Commands that meet each other, and writes that meet commands.

use stele_ground::{Bytes, Duration};
use stele_media::{Buffer, MediaFault, Op, Priority, Request};

use crate::model::{AlarmKind, ArrayError, Command, Event, Reply, VolumeSpec};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

const KIB: usize = 1024;

fn write(at: u64, length: usize) -> Op {
    Op::Write { at, data: vec![Buffer::copy_of(&pattern(at, length)).freeze()], fua: false }
}

#[test]
fn of_two_volumes_with_one_name_created_at_once_one_is() {
    let mut fixture = Fixture::new(6, 6, 1);
    let commands = (0..3).map(|_| Command::CreateVolume(spec("a", "2+1", 4 << 20))).collect();
    let replies = fixture.command_all(commands);
    let made = replies.iter().filter(|reply| matches!(reply, Some(Ok(Reply::Volume(_))))).count();
    assert_eq!(made, 1, "{replies:?}");
    assert!(replies.iter().all(Option::is_some), "{replies:?}");
    let Ok(Reply::Volumes(volumes)) = fixture.command(Command::ListVolumes) else { panic!("no list") };
    assert_eq!(volumes.len(), 1);
}

#[test]
fn a_fully_allocated_volume_never_lacks_a_slot_that_a_thin_write_took() {
    for seed in 0..12 {
        let mut fixture = Fixture::new(4, 4, seed);
        let thin = fixture.create_volume(spec("thin", "2+1", 1 << 30)).id;
        // Nearly full, so that both want the last slots.
        let mut at = 0u64;
        while (fixture.status().raw.0 - fixture.status().used.0) > fixture.status().spare.0 + (24 << 20) {
            fixture.write(thin, at, &pattern(at, 1 << 20)).expect("written");
            at += 1 << 20;
        }
        let firm = VolumeSpec { fully_allocated: true, ..spec("firm", "2+1", 8 << 20) };
        fixture.begin_command(Command::CreateVolume(firm));
        let mut room = 0;
        let (_, answers) = fixture.submit_all(thin, (0..512).map(|n| write(at + n * (32 << 10), 32 * KIB)).collect());
        for (_, result) in answers.into_iter().flatten() {
            match result {
                Ok(()) => room += 1,
                Err(error) => assert_eq!(error.fault, MediaFault::Full, "{error}"),
            }
        }
        assert!(room < 512, "seed {seed}: the pool was never full");
        let Ok(Reply::Volumes(volumes)) = fixture.command(Command::ListVolumes) else { panic!("no list") };
        let Some(volume) = volumes.iter().find(|volume| volume.spec.name == "firm") else { continue };
        for stripe in 0..(8 << 20) / (32 << 10) {
            fixture
                .write(volume.id, stripe * (32 << 10), &pattern(stripe, 32 * KIB))
                .unwrap_or_else(|error| panic!("seed {seed}: stripe {stripe} of an allocated volume: {error:?}"));
        }
    }
}

#[test]
fn a_volume_that_does_not_fit_leaves_the_room_to_others() {
    let mut fixture = Fixture::new(6, 6, 3);
    let thin = fixture.create_volume(spec("thin", "2+1", 64 << 20)).id;
    fixture.write(thin, 0, &pattern(1, 1 << 20)).expect("written");
    let before = fixture.status();
    let firm = VolumeSpec { fully_allocated: true, ..spec("firm", "mirror-2", 1 << 40) };
    let refused = fixture.command(Command::CreateVolume(firm));
    assert!(matches!(refused, Err(NoAnswer::Array(ArrayError::Full(_)))), "{refused:?}");
    assert_eq!(fixture.told(AlarmKind::SpaceLow), [""; 0], "a refusal is no alarm");
    for at in 1..16 {
        fixture.write(thin, at << 20, &pattern(at, 1 << 20)).expect("the pool has room for another code");
    }
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let after = fixture.status();
    assert!(after.used.0 <= before.used.0 + (40 << 20), "{} are taken, {} before", after.used, before.used);
}

#[test]
fn a_volume_that_does_not_fit_is_told_how_much_is_missing() {
    const TIB: u64 = 1 << 40;
    let mut fixture = Fixture::new(6, 6, 3);
    let mut told = |command: Command| match fixture.command(command) {
        Err(NoAnswer::Array(ArrayError::Full(text))) => text,
        other => panic!("{other:?}"),
    };
    let firm = |size| VolumeSpec { fully_allocated: true, ..spec("firm", "mirror-2", size) };
    let needed = "volume 'firm' does not fit: it needs room for 1 TiB more, the pool has ";
    let new = told(Command::CreateVolume(firm(TIB)));
    assert!(new.starts_with(needed) && new.contains(" MiB for mirror-2, and "), "{new}");
    assert!(new.ends_with(" are missing; ask for less, delete data, or add drives"), "{new}");
    // One that is there is told of what it lacks, not of what it has.
    assert!(fixture.command(Command::CreateVolume(firm(8 << 20))).is_ok());
    let grown = fixture.command(Command::ResizeVolume { name: "firm".into(), size: Bytes(TIB + (8 << 20)) });
    assert!(matches!(&grown, Err(NoAnswer::Array(ArrayError::Full(text))) if text.starts_with(needed)), "{grown:?}");
}

#[test]
fn the_room_of_a_deleted_volume_is_shown_at_once() {
    let mut fixture = Fixture::new(6, 6, 3);
    let before = fixture.status().used;
    let volume = fixture.create_volume(spec("goes", "2+1", 32 << 20)).id;
    for at in 0..16 {
        fixture.write(volume, at << 20, &pattern(at, 1 << 20)).expect("written");
    }
    assert!(fixture.status().used.0 >= before.0 + (24 << 20));
    fixture.command(Command::DeleteVolume { name: "goes".into() }).expect("deleted");
    fixture.idle();
    let after = fixture.status().used;
    assert!(after.0 < before.0 + (8 << 20), "{after} are taken, {before} before");
}

/// Rows belong to a code. One that a discard empties is room for all.
#[test]
fn room_that_a_volume_discards_is_room_for_another_code() {
    let mut fixture = Fixture::new(6, 6, 3);
    let wide = fixture.create_volume(spec("wide", "2+1", 1 << 30)).id;
    let mirror = fixture.create_volume(spec("mirror", "mirror-2", 1 << 30)).id;
    let mib = pattern(1, 1 << 20);
    let stored = (0..1024).take_while(|at| fixture.write(wide, at << 20, &mib).is_ok()).count() as u64;
    assert!(stored > 20, "{stored} MiB fitted");
    let before = fixture.status().used;
    fixture.discard(wide, 0, stored << 20).expect("discarded");
    fixture.idle();
    let after = fixture.status().used;
    assert!(after.0 * 2 < before.0, "{after} are taken, {before} before");
    for at in 0..stored / 2 {
        fixture.write(mirror, at << 20, &mib).expect("there is room for another code");
    }
}

/// Rows that were emptied while there was plenty of room come back before a write of another code
/// is refused.
#[test]
fn room_that_was_discarded_in_time_of_plenty_is_found_before_a_write_is_refused() {
    let mib = pattern(1, 1 << 20);
    let fill = |fixture: &mut Fixture| {
        let mirror = fixture.create_volume(spec("mirror", "mirror-2", 1 << 30)).id;
        (0..1024).take_while(|at| fixture.write(mirror, at << 20, &mib).is_ok()).count()
    };
    let fits = fill(&mut Fixture::new(6, 6, 3));
    let mut fixture = Fixture::new(6, 6, 3);
    let wide = fixture.create_volume(spec("wide", "2+1", 1 << 30)).id;
    let some = fits as u64 / 3;
    (0..some).for_each(|at| fixture.write(wide, at << 20, &mib).expect("written"));
    fixture.discard(wide, 0, some << 20).expect("discarded");
    fixture.idle();
    let now = fill(&mut fixture);
    assert!(now + 8 >= fits, "{now} MiB fit, and {fits} MiB into an empty pool");
}

#[test]
fn writes_that_race_a_delete_leave_nothing_behind() {
    for seed in 0..20 {
        let mut fixture = Fixture::new(6, 6, seed);
        fixture.create_volume(spec("stays", "2+1", 1 << 20));
        let before = fixture.status();
        let volume = fixture.create_volume(spec("goes", "2+1", 16 << 20)).id;
        fixture.write(volume, 0, &pattern(1, 4 << 20)).expect("written");
        fixture.begin_command(Command::DeleteVolume { name: "goes".into() });
        let mut ops: Vec<Op> = (0..128).map(|n| write(n * (32 << 10), 32 * KIB)).collect();
        ops.extend((0..32).map(|n| write((8 << 20) + n * (32 << 10), 32 * KIB)));
        ops.extend((0..32).map(|n| write(n * (64 << 10), 4 * KIB)));
        let (_, answers) = fixture.submit_all(volume, ops);
        assert!(answers.iter().all(Option::is_some), "seed {seed}");
        fixture.idle();
        let Ok(Reply::Volumes(volumes)) = fixture.command(Command::ListVolumes) else { panic!("no list") };
        assert_eq!(volumes.len(), 1, "seed {seed}: it is deleted");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        assert_eq!(fixture.scrub(), (0, 0), "seed {seed}");
        let after = fixture.status();
        assert!(after.used.0 <= before.used.0 + (6 << 20), "seed {seed}: {} leaked", after.used.0 - before.used.0);
        assert_eq!(after.dirty, Bytes(0), "seed {seed}");
        let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("it is open").engine);
        assert!(engine.look(|core| core.promised.is_empty() && core.destage_reservations.is_empty()), "seed {seed}");
        assert!(engine.layout.read().rows().all(|row| engine.look(|core| core.space.used(row.id)) == 0), "seed {seed}");
    }
}

#[test]
fn a_pool_of_8_3_takes_the_mirror_that_its_catalog_wants_and_goes_on_writing() {
    let mut fixture = Fixture::new(12, 6, 1);
    fixture.create_volume(VolumeSpec { fully_allocated: true, ..spec("catalog", "mirror-5", 4 << 20) });
    let data = fixture.create_volume(spec("data", "8+3", 32 << 20)).id;
    // Long enough that the first rows of the pool's own tables fill up and others must be made.
    for round in 0..24u64 {
        for at in 0..16u64 {
            fixture.write(data, at << 21, &pattern(round * 16 + at, 128 * KIB)).expect("written");
        }
        fixture.command(Command::Checkpoint).unwrap_or_else(|error| panic!("checkpoint {round}: {error:?}"));
    }
    assert!(fixture.alarms.iter().all(|alarm| alarm.kind != AlarmKind::LogDegraded), "{:?}", fixture.alarms);
    // Four drives may be lost, tables included.
    fixture.pull(&[0, 1, 6, 7]);
    fixture.test_drives.cut();
    fixture.open().expect("opened without four drives");
    let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    assert_eq!(engine.look(|core| core.volumes.all()).len(), 2);
}

#[test]
fn tables_made_before_a_stronger_code_came_move_to_as_many_drives() {
    let mut fixture = Fixture::new(12, 6, 2);
    let weak = fixture.create_volume(spec("weak", "2+1", 8 << 20)).id;
    fixture.write(weak, 0, &pattern(1, 4 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let lacks = |fixture: &Fixture| fixture.pool.serving().expect("it is open").engine.table.lacks_copies();
    assert_eq!(lacks(&fixture), None, "four copies are enough for one loss");
    fixture.create_volume(spec("strong", "8+3", 8 << 20));
    assert_eq!(lacks(&fixture), None, "and five are wanted for three");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    assert_eq!(lacks(&fixture), None);
}

#[test]
fn protection_and_deletion_do_not_overtake_each_other() {
    let mut fixture = Fixture::new(6, 6, 3);
    let owned = VolumeSpec { owner: Some("archive".into()), ..spec("a", "2+1", 8 << 20) };
    let volume = fixture.create_volume(owned).id;
    fixture.write(volume, 0, &pattern(1, 2 << 20)).expect("written");
    let replies = fixture.command_all(vec![
        Command::DeleteVolume { name: "a".into() },
        Command::Protect { volume, owner: "archive".into(), retained: true },
    ]);
    assert!(matches!(&replies[..], [Some(Ok(_)), Some(Err(crate::model::ArrayError::Missing(_)))]), "{replies:?}");
}

/// Whether the drive holds these bytes, wherever.
fn holds(fixture: &Fixture, drive: usize, bytes: &[u8]) -> bool {
    let whole = fixture.test_drives.peek(drive, 0, 64 << 20);
    whole.chunks_exact(8).enumerate().any(|(at, word)| word == &bytes[..8] && whole[8 * at..].starts_with(bytes))
}

/// How many drives hold them.
fn holders(fixture: &Fixture, drives: usize, bytes: &[u8]) -> usize {
    (0..drives).filter(|drive| holds(fixture, *drive, bytes)).count()
}

#[test]
fn a_washed_log_holds_nothing_that_was_written_over() {
    // Whole stripes, written past the log; most of a stripe, destaged at once; and little of one,
    // in place.
    for (seed, length) in [(0, 32 * KIB), (1, 28 * KIB), (2, 8 * KIB), (3, 4 * KIB)] {
        let mut fixture = Fixture::new(6, 6, seed);
        let owned = VolumeSpec { owner: Some("archive".into()), ..spec("v", "2+1", 8 << 20) };
        let volume = fixture.create_volume(owned).id;
        // Noise, in one strip: it has no twin in the parity.
        let (other, secret) = (pattern(7, 64 * KIB), pattern(99 + seed, length));
        let needle = &secret[..64];
        fixture.write(volume, 0, &other).expect("written");
        fixture.write(volume, 0, &secret).expect("written");
        let Ok(Reply::Done) = fixture.command(Command::Checkpoint) else { panic!("no checkpoint") };
        assert!(holders(&fixture, 6, needle) > 0, "what is looked for is there to be found");
        fixture.write(volume, 0, &vec![0; length]).expect("written over");
        let Ok(Reply::Done) = fixture.command(Command::Checkpoint) else { panic!("no checkpoint") };
        assert!(holders(&fixture, 6, needle) > 0, "the ring remembers what its volume has forgotten: {length}");
        let Ok(Reply::Done) = fixture.command(Command::WashLog) else { panic!("not washed") };
        assert_eq!(holders(&fixture, 6, needle), 0, "after a write of {length}");
        fixture.crash().expect("it opens");
        assert!(fixture.read(volume, 0, length).expect("read").iter().all(|byte| *byte == 0));
        assert!(fixture.read(volume, length as u64, 32 * KIB).expect("read") == other[length..length + 32 * KIB]);
    }
}

/// It may hold old records still, and is the pool's.
#[test]
fn a_wash_reaches_a_drive_that_was_given_up_before_the_opening() {
    let mut fixture = Fixture::new(6, 6, 1);
    let volume = fixture.create_volume(spec("v", "2+1", 8 << 20)).id;
    let secret = pattern(99, 4 * KIB);
    for content in [pattern(7, 64 * KIB), secret.clone(), vec![0; 4 * KIB]] {
        fixture.write(volume, 0, &content).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
    }
    let member = (0..6).find(|drive| holds(&fixture, *drive, &secret[..64])).expect("the ring remembers it");
    fixture.command(Command::FailDrive { drive: member as u32 }).expect("given up");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    assert_eq!(fixture.status().drives[member].health, crate::model::DriveHealth::Failed);
    assert!(holds(&fixture, member, &secret[..64]));
    fixture.command(Command::WashLog).expect("washed");
    assert!(!holds(&fixture, member, &secret[..64]));
}

#[test]
fn a_log_is_washed_under_writes_and_nothing_acknowledged_is_lost() {
    for seed in 0..12 {
        let mut fixture = Fixture::new(6, 6, seed);
        let volume = fixture.create_volume(spec("v", "2+1", 8 << 20)).id;
        // Small ones: they go through the log, several times round it.
        fixture.begin_command(Command::WashLog);
        let (_, answers) =
            fixture.submit_all(volume, (0..400).map(|n| write(n % 100 * (64 << 10), 40 * KIB)).collect());
        assert!(answers.iter().flatten().all(|(_, result)| result.is_ok()), "seed {seed}");
        fixture.crash().expect("it opens");
        for n in 0..100 {
            let at = n * (64 << 10);
            assert!(fixture.read(volume, at, 40 * KIB).expect("read") == pattern(at, 40 * KIB), "seed {seed}, at {at}");
        }
    }
}

/// A discard of the last, partial stripe waits for its turn while the volume grows: what is written
/// behind the old end since then is none of its business.
#[test]
fn a_volume_that_grows_beside_a_discard_of_its_end_keeps_what_is_written_behind_it() {
    let (begin, end) = (1 << 20, (1 << 20) + 64 * KIB as u64);
    for exact in [false, true] {
        let mut fixture = Fixture::new(12, 6, 3);
        let volume = fixture.create_volume(spec("a", "8+2", end)).id;
        fixture.write(volume, 0, &pattern(1, end as usize)).expect("written");
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
        // A destage has the stripe, and does not end.
        fixture.write(volume, begin, &pattern(2, 4 * KIB)).expect("written");
        fixture.test_drives.held = Some(12 << 20..62 << 20);
        fixture.begin_command(Command::Checkpoint);
        fixture.pass(Duration::from_millis(20));
        let length = end - begin;
        let op = if exact { Op::Zero { at: begin, length } } else { Op::Discard { at: begin, length } };
        let request = Request { tag: 1 << 40, op, priority: Priority::Host, deadline: None };
        fixture.pool.event(Event::Submit { volume, request });
        fixture.pass(Duration::from_millis(1));
        let grow = Command::ResizeVolume { name: "a".into(), size: Bytes(2 << 20) };
        fixture.command(grow).expect("it grows");
        let (behind, late) = (begin + 96 * KIB as u64, pattern(3, 4 * KIB));
        fixture.write(volume, behind, &late).expect("written");
        fixture.test_drives.held = None;
        fixture.idle();
        for time in ["at once", "after a power cut"] {
            assert!(fixture.read(volume, behind, late.len()).expect("read") == late, "{time}, exact: {exact}");
            let zeros = fixture.read(volume, begin, length as usize).expect("read");
            assert!(zeros.iter().all(|byte| *byte == 0), "{time}, exact: {exact}: it was discarded");
            fixture.crash().expect("opened");
        }
    }
}
