//! What the way of dirty blocks to their strips leaves behind: in memory, in the log, and in what
//! status and alarms say.

use std::rc::Rc;

use stele_ground::{BLOCK, Bytes, Duration, VolumeId};
use stele_media::Shared;

use super::KIB;
use crate::durable::log::Purpose;
use crate::durable::records::{Image, Record, RedoImage};
use crate::model::place::{Lsn, StripeKey};
use crate::model::{AlarmKind, Command, DriveHealth, OpenOptions, VolumeSpec};
use crate::pool::State;
use crate::stripe::Stripe;
use crate::testing::drives::TestDrives;
use crate::testing::{Fixture, pattern, spec};

/// Where strips lie on the fixture's drives.
const STRIPS: std::ops::Range<u64> = 12 << 20..62 << 20;
const SIZE: usize = 1 << 20;

/// A pool that rebuilds nothing, and a volume of 1 MiB with data from this place on.
fn made(drives: usize, code: &str, from: usize, seed: u64) -> (Fixture, VolumeId, Vec<u8>) {
    let options = OpenOptions { rebuild_after: Duration::from_secs(24 * 3600), ..OpenOptions::default() };
    made_with(options, drives, code, from, seed)
}

fn made_with(options: OpenOptions, drives: usize, code: &str, from: usize, seed: u64) -> (Fixture, VolumeId, Vec<u8>) {
    let mut fixture = Fixture::blank(drives, drives as u32, seed, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", code, SIZE as u64)).id;
    let mut model = pattern(seed, SIZE);
    model[..from].fill(0);
    fixture.write(volume, from as u64, &model[from..]).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    (fixture, volume, model)
}

fn counted(fixture: &mut Fixture, name: &str) -> u64 {
    let status = fixture.status();
    status.counters.iter().find(|(counter, _)| *counter == name).expect("it is counted").1
}

/// Writes these blocks, one after another.
fn change(fixture: &mut Fixture, volume: VolumeId, model: &mut [u8], blocks: impl IntoIterator<Item = usize>) {
    for block in blocks {
        let new = pattern(5000 + block as u64, BLOCK);
        fixture.write(volume, (block * BLOCK) as u64, &new).expect("written");
        model[block * BLOCK..][..BLOCK].copy_from_slice(&new);
    }
}

/// The stripe as its entry describes it now.
fn located(fixture: &mut Fixture, key: StripeKey) -> Stripe {
    let found = Rc::new(std::cell::RefCell::new(None));
    let (engine, note) = (fixture.engine(), Rc::clone(&found));
    engine.io.clone().spawn(async move {
        let volume = engine.volume(key.volume).expect("it is there");
        *note.borrow_mut() = engine.locate(&volume, key.stripe).await.expect("known");
    });
    fixture.pass(Duration::from_millis(5));
    found.borrow_mut().take().expect("the stripe has a slot")
}

/// Stripe 0 is new, stripe 1 is moved whole, and stripe 2 changed in place.
#[test]
fn what_was_destaged_is_counted_and_read_without_asking_a_drive() {
    let (mut fixture, volume, mut model) = made(6, "4+2", 64 * KIB, 1);
    let before = ["destages", "destaged blocks"].map(|name| counted(&mut fixture, name));
    let blocks: Vec<usize> = (0..3).chain(16..29).chain([33]).collect();
    change(&mut fixture, volume, &mut model, blocks.iter().copied());
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    assert_eq!(fixture.status().dirty, Bytes(0));
    let after = ["destages", "destaged blocks"].map(|name| counted(&mut fixture, name));
    assert_eq!([after[0] - before[0], after[1] - before[1]], [3, blocks.len() as u64]);
    let reads = counted(&mut fixture, "drive reads");
    for block in blocks {
        let read = fixture.read(volume, (block * BLOCK) as u64, BLOCK).expect("read");
        assert!(read == model[block * BLOCK..][..BLOCK], "block {block}");
        assert_eq!(counted(&mut fixture, "drive reads"), reads, "block {block}");
    }
}

/// Of ten strips: a block and the parity, or what is left of the data.
#[test]
fn a_destage_reads_as_few_strips_as_it_can() {
    let (mut fixture, volume, mut model) = made(10, "8+2", 0, 2);
    for (strips, expected) in [(1, 3), (7, 1)] {
        let before = counted(&mut fixture, "drive reads");
        change(&mut fixture, volume, &mut model, (0..strips).map(|strip| strip * 4));
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        assert_eq!(counted(&mut fixture, "drive reads") - before, expected, "{strips} strips");
    }
}

#[test]
fn damage_that_a_destage_meets_is_repaired() {
    let (mut fixture, volume, mut model) = made(6, "4+2", 0, 3);
    let of = located(&mut fixture, StripeKey { volume, stripe: 0 });
    // Parity is computed from it, since three of the four strips are written.
    let place = of.places[3];
    fixture.test_drives.damage(usize::from(place.cell.drive.0), place.at, BLOCK as u64);
    change(&mut fixture, volume, &mut model, [0, 4, 8]);
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.idle();
    assert_eq!(fixture.told(AlarmKind::DamageRepaired).len(), 1, "{:?}", fixture.alarms);
    assert_eq!(fixture.scrub(), (0, 0));
}

/// Held for good, slots would be missing from the pool's room until it is opened again.
#[test]
fn a_stripe_that_could_not_move_gives_its_new_slot_back() {
    let (mut fixture, volume, mut model) = made(6, "4+2", 0, 4);
    let slots = |fixture: &Fixture| {
        let engine = fixture.engine();
        let class = engine.volume(volume).expect("it is there").class;
        engine.look(|core| core.space.free(class))
    };
    let free = slots(&fixture);
    change(&mut fixture, volume, &mut model, 0..13);
    fixture.test_drives.drives.iter_mut().for_each(|drive| drive.fails_writes = true);
    fixture.begin_command(Command::Checkpoint);
    fixture.pass(Duration::from_millis(200));
    assert_eq!(fixture.status().dirty, Bytes(13 * BLOCK as u64), "the stripe has not moved");
    fixture.test_drives.drives.iter_mut().for_each(|drive| drive.fails_writes = false);
    fixture.pass(Duration::from_secs(10));
    assert_eq!((fixture.status().dirty, slots(&fixture)), (Bytes(0), free));
    assert!(fixture.read(volume, 0, SIZE).expect("read") == model);
}

#[test]
fn a_new_stripe_that_could_not_be_written_gives_its_slot_back() {
    let (mut fixture, volume, mut model) = made(6, "4+2", SIZE / 2, 6);
    let slots = |fixture: &Fixture| {
        let engine = fixture.engine();
        let class = engine.volume(volume).expect("it is there").class;
        engine.look(|core| core.space.free(class))
    };
    let free = slots(&fixture);
    change(&mut fixture, volume, &mut model, [0]);
    fixture.test_drives.drives.iter_mut().for_each(|drive| drive.fails_writes = true);
    fixture.begin_command(Command::Checkpoint);
    fixture.pass(Duration::from_millis(200));
    assert_eq!(fixture.status().dirty, Bytes(BLOCK as u64), "the stripe has no slot yet");
    fixture.test_drives.drives.iter_mut().for_each(|drive| drive.fails_writes = false);
    fixture.pass(Duration::from_secs(10));
    assert_eq!((fixture.status().dirty, slots(&fixture)), (Bytes(0), free - 1), "one stripe more has a slot");
    assert!(fixture.read(volume, 0, SIZE).expect("read") == model);
}

/// The change waits as it is: the log is spared images that no strip can take.
#[test]
fn no_images_are_logged_for_strips_that_are_away() {
    let (mut fixture, volume, mut model) = made(12, "8+2", 0, 5);
    let of = located(&mut fixture, StripeKey { volume, stripe: 0 });
    // The first strip and the parity, from which the new parity is computed, are here.
    let away: Vec<usize> = (3..6).map(|strip| usize::from(of.places[strip].cell.drive.0)).collect();
    change(&mut fixture, volume, &mut model, [0]);
    fixture.pull(&away);
    fixture.pass(Duration::from_secs(10));
    assert_eq!(fixture.status().dirty, Bytes(BLOCK as u64), "it waits");
    assert_eq!(fixture.engine().look(|core| core.redo.bytes()), 0);
    away.iter().for_each(|drive| {
        fixture.give_back(*drive);
    });
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    assert_eq!(fixture.status().dirty, Bytes(0));
    assert!(fixture.read(volume, 0, SIZE).expect("read") == model);
}

/// The power goes when the images of a change are durable, and none of it is on the strips.
fn cut_before_strips(fixture: &mut Fixture) {
    fixture.test_drives.held = Some(STRIPS);
    fixture.begin_command(Command::Checkpoint);
    fixture.pass(Duration::from_millis(50));
    assert!(fixture.engine().look(|core| core.redo.bytes()) > 0);
    fixture.test_drives.cut_bare();
    fixture.test_drives.held = None;
}

/// Its digests are those of the change already: without the images a scrub would find no copy that
/// verifies, and call the block lost.
#[test]
fn a_mirror_that_a_power_cut_left_unwritten_is_not_taken_for_lost() {
    let (mut fixture, volume, mut model) = made(4, "mirror-2", 0, 6);
    change(&mut fixture, volume, &mut model, [0]);
    cut_before_strips(&mut fixture);
    fixture.alarms.clear();
    fixture.open().expect("opened");
    assert_eq!(fixture.scrub(), (0, 0));
    assert_eq!(fixture.told(AlarmKind::StripeLost), Vec::<&str>::new());
    assert!(fixture.read(volume, 0, SIZE).expect("read") == model);
}

/// Two drives are away when the images are put in place, and another one when the first returns:
/// what it missed is there only under the images. They stay, for the stripe is not destaged.
#[test]
fn a_drive_that_missed_images_is_filled_from_them() {
    let age = Duration::from_secs(24 * 3600);
    let options = OpenOptions { rebuild_after: age, flush_age: age, ..OpenOptions::default() };
    let (mut fixture, volume, mut model) = made_with(options, 12, "4+2", 0, 7);
    let key = StripeKey { volume, stripe: 0 };
    let of = located(&mut fixture, key);
    let drives: Vec<usize> = of.places.iter().map(|place| usize::from(place.cell.drive.0)).collect();
    change(&mut fixture, volume, &mut model, [0]);
    cut_before_strips(&mut fixture);
    drives[..2].iter().for_each(|drive| fixture.test_drives.drives[*drive].gone = true);
    fixture.open().expect("opened without two drives");
    // A log that loses a member has everything destaged.
    let members = fixture.engine().log.members().0;
    let is_member = |drive: usize| members.iter().any(|member| usize::from(member.0) == drive);
    let third = drives[2..].iter().copied().find(|drive| !is_member(*drive)).expect("it keeps no log");
    fixture.pull(&[third]);
    fixture.pass(Duration::from_secs(1));
    let back = fixture.give_back(drives[0]);
    fixture.pass(Duration::from_secs(20));
    assert!(fixture.engine().look(|core| core.redo.covers(key)).is_some(), "the images are kept");
    assert_eq!(fixture.status().drives[drives[0]].health, DriveHealth::Healthy);
    assert!(fixture.test_drives.peek(back, of.places[0].at, BLOCK) == model[..BLOCK], "it has what it missed");
    [drives[1], third].into_iter().for_each(|drive| {
        fixture.give_back(drive);
    });
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.idle();
    assert_eq!(fixture.scrub(), (0, 0));
}

/// No destage would do it, and the images would keep the log from being trimmed for good.
#[test]
fn images_without_dirty_blocks_are_recorded_as_placed() {
    let (mut fixture, volume, model) = made(6, "4+2", 0, 8);
    let key = StripeKey { volume, stripe: 0 };
    let of = located(&mut fixture, key);
    let engine = fixture.engine();
    engine.io.clone().spawn(async move {
        let data = Shared::copy_from_slice(&model[..BLOCK]);
        let record = Record::Redo {
            volume,
            stripe: 0,
            slot: of.slot,
            generation: of.generation,
            covers: Lsn(engine.log.next_lsn().0 - 1),
            digests: Vec::new(),
            images: vec![RedoImage { strip: 0, block: 0, source: Image::Inline(data) }],
        };
        let logged = engine.record(record, Purpose::Inside).await.expect("room");
        engine.log.durable(logged).await.expect("durable");
    });
    fixture.pass(Duration::from_millis(5));
    fixture.crash().expect("opened");
    fixture.pass(Duration::from_secs(1));
    let engine = fixture.engine();
    assert_eq!(engine.look(|core| (core.redo.covers(key), core.cache.is_dirty(key))), (None, false));
    assert_eq!(engine.oldest_needed(), engine.log.next_lsn());
}

/// A block is changed once more while the images of its first change are on their way, and then too
/// many drives leave. What those images refer to must stay in the log, however new the block is.
#[test]
fn images_that_wait_for_drives_keep_the_log_they_refer_to() {
    let (mut fixture, volume, mut model) = made(12, "8+2", 0, 9);
    let key = StripeKey { volume, stripe: 0 };
    let mut away = fixture.drives_of_a_row();
    fixture.write(volume, 0, &pattern(1, BLOCK)).expect("written");
    fixture.test_drives.held = Some(STRIPS);
    fixture.begin_command(Command::Checkpoint);
    fixture.pass(Duration::from_millis(50));
    change(&mut fixture, volume, &mut model, [0]);
    fixture.pull(&away);
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_millis(50));
    let engine = fixture.engine();
    assert!(engine.look(|core| core.redo.owes(key)));
    engine.step(|core| core.cache.renew_age(key));
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    away.drain(..).for_each(|drive| fixture.test_drives.drives[drive].gone = false);
    drop(engine);
    fixture.crash().expect("opened");
    assert!(fixture.read(volume, 0, SIZE).expect("read") == model);
    assert_eq!(fixture.scrub(), (0, 0));
}

/// Fills the log beyond its half with changes that no strip takes.
fn fill_log(fixture: &mut Fixture, volume: VolumeId, model: &mut [u8]) {
    fixture.test_drives.held = Some(STRIPS);
    let mut round = 0;
    while !fixture.engine().log.wants_checkpoint() {
        change(fixture, volume, model, (0..8).map(|at| (round * 8 + at) % (SIZE / BLOCK)));
        round += 1;
    }
}

/// A checkpoint written at once would trim a few records, and another one would soon follow.
#[test]
fn a_checkpoint_waits_a_moment_for_destages_that_let_it_trim() {
    let (mut fixture, volume, mut model) = made(6, "4+2", 0, 15);
    let before = counted(&mut fixture, "checkpoints");
    fill_log(&mut fixture, volume, &mut model);
    fixture.pass(Duration::from_millis(300));
    assert_eq!(counted(&mut fixture, "checkpoints"), before);
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_millis(100));
    assert_eq!(counted(&mut fixture, "checkpoints"), before + 1);
    assert!(!fixture.engine().log.wants_checkpoint());
}

#[test]
fn a_log_that_cannot_be_trimmed_costs_no_checkpoints() {
    let (mut fixture, volume, mut model) = made(6, "4+2", 0, 10);
    fill_log(&mut fixture, volume, &mut model);
    fixture.pass(Duration::from_secs(1));
    let before = counted(&mut fixture, "checkpoints");
    fixture.pass(Duration::from_secs(3));
    assert_eq!(counted(&mut fixture, "checkpoints"), before);
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_secs(10));
    assert!(counted(&mut fixture, "checkpoints") > before);
    assert!(!fixture.engine().log.wants_checkpoint());
    assert!(fixture.read(volume, 0, SIZE).expect("read") == model);
}

/// The log asks for a checkpoint then, and the close is writing one.
#[test]
fn a_pool_can_be_closed_while_a_member_of_its_log_leaves() {
    let (mut fixture, volume, mut model) = made(6, "4+2", 0, 11);
    change(&mut fixture, volume, &mut model, (0..4).map(|stripe| stripe * 16));
    fixture.pass(Duration::from_secs(5));
    assert_eq!(fixture.status().dirty, Bytes(0));
    fixture.test_drives.held = Some(STRIPS);
    fixture.begin_command(Command::Close);
    fixture.pass(Duration::from_millis(50));
    let engine = fixture.engine();
    assert!(engine.standing.is_closing());
    let member = usize::from(engine.log.members().0[0].0);
    fixture.pull(&[member]);
    fixture.pass(Duration::from_millis(500));
    assert!(engine.log.wants_checkpoint() && engine.standing.is_closing());
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_secs(1));
    assert_eq!(*fixture.pool.state(), State::Closed);
    fixture.test_drives.drives[member].gone = false;
    fixture.open().expect("opened");
    assert!(fixture.read(volume, 0, SIZE).expect("read") == model);
}

/// Of ten drives four have room, which is what the code needs, and its tables would be on five.
#[test]
fn a_stronger_code_is_taken_where_the_tables_find_no_room_to_widen() {
    let options = OpenOptions { rebuild_after: Duration::from_secs(24 * 3600), ..OpenOptions::default() };
    let small = TestDrives::new(10, Bytes(32 << 20), 12);
    let mut fixture = Fixture::begin_on(small, 10, 12, options, |create| create.spare_drives = Some(0));
    assert_eq!(fixture.settle(), Ok(()));
    let rest = fixture.create_volume(spec("rest", "mirror-2", 1 << 30)).id;
    let away = [6, 7, 8, 9];
    fixture.pull(&away);
    let mut at = 0;
    while fixture.write(rest, at, &pattern(at, 1 << 20)).is_ok() {
        at += 1 << 20;
        fixture.command(Command::Checkpoint).expect("a checkpoint");
    }
    away.iter().for_each(|drive| {
        fixture.give_back(*drive);
    });
    fixture.idle();
    // Were the tables stored again and again, the command would have no end.
    fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 50_000);
    fixture.create_volume(spec("strong", "mirror-4", 1 << 20));
    fixture.test_drives.cut_at = None;
    assert!(fixture.engine().table.lacks_copies().is_some(), "the tables have found room");
}

/// A destage that takes two groups of columns in place, with as little to spare as there can be of
/// what the log kept for it: each record is paid all the same.
#[test]
fn a_destage_in_two_groups_finds_room_for_both() {
    let (mut fixture, volume) = wide(13);
    for (stripe, columns) in [125, 126, 127].into_iter().enumerate() {
        let blocks = (0..columns).map(|column| (stripe * 4 + column % 4) * 256 + column * 2);
        let mut model = vec![0; 16 << 20];
        change(&mut fixture, volume, &mut model, blocks.clone());
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        assert_eq!(fixture.status().dirty, Bytes(0), "{columns} columns");
        for at in blocks.map(|block| block * BLOCK) {
            assert!(fixture.read(volume, at as u64, BLOCK).expect("read") == model[at..at + BLOCK]);
        }
    }
    assert_eq!(fixture.scrub(), (0, 0));
}

/// A volume of stripes so wide that a destage in place takes several groups of columns.
fn wide(seed: u64) -> (Fixture, VolumeId) {
    let mut fixture = Fixture::new(9, 9, seed);
    let wide = VolumeSpec { strip: Bytes(1 << 20), ..spec("wide", "4+2", 16 << 20) };
    let volume = fixture.create_volume(wide).id;
    fixture.write(volume, 0, &pattern(seed, 16 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    (fixture, volume)
}

/// Else all that fills the log would wait for a destage that waits for room itself.
#[test]
fn a_destage_needs_no_more_log_than_was_kept_for_it() {
    let (mut fixture, volume) = wide(14);
    let new = pattern(1, 100 * BLOCK);
    fixture.write(volume, 0, &new).expect("written");
    let log = &fixture.engine().log;
    let promised = (12..23).rev().filter_map(|bit| log.try_reserve(1 << bit, Purpose::Inside)).collect::<Vec<_>>();
    assert!(log.try_reserve(BLOCK as u64, Purpose::Inside).is_none(), "all room is promised to others");
    fixture.pass(Duration::from_secs(5));
    assert_eq!(fixture.status().dirty, Bytes(0));
    drop(promised);
    assert!(fixture.read(volume, 0, new.len()).expect("read") == new);
}
