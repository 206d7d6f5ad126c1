//! Redo records: in several groups of columns, in a pool opened read-only, and older ones behind
//! newer ones in the log.

use std::rc::Rc;

use stele_ground::{BLOCK, Bytes, Duration, VolumeId};
use stele_media::Shared;

use super::KIB;
use crate::durable::log::Purpose;
use crate::durable::records::{Image, Record, RedoImage};
use crate::engine::Engine;
use crate::model::place::{Lsn, StripeKey};
use crate::model::{Command, DigestUnit, VolumeSpec};
use crate::pool::Pool;
use crate::testing::{Fixture, NoAnswer, pattern, spec};

const SIZE: usize = 16 << 20;
const STRIPE: usize = 4 << 20;

/// Stripes so wide that a destage in place takes two groups of columns, with 200 dirty columns in
/// each.
fn wide(seed: u64) -> (Fixture, VolumeId, Vec<u8>) {
    let mut fixture = Fixture::new(9, 9, seed);
    fixture.options.rebuild_after = Duration::from_secs(3600);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let volume = fixture.create_volume(VolumeSpec { strip: Bytes(1 << 20), ..spec("wide", "4+2", SIZE as u64) }).id;
    let mut model = pattern(seed, SIZE);
    fixture.write(volume, 0, &model).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    for stripe in 0..SIZE / STRIPE {
        let new = pattern(50 + stripe as u64, 800 * KIB);
        fixture.write(volume, (stripe * STRIPE) as u64, &new).expect("written");
        model[stripe * STRIPE..][..new.len()].copy_from_slice(&new);
    }
    (fixture, volume, model)
}

#[test]
fn a_power_cut_between_two_groups_of_columns_loses_neither() {
    for case in 0..24u64 {
        let (mut fixture, volume, model) = wide(case);
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 8 + case * 6);
        let cut = fixture.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(NoAnswer::PowerCut)), "case {case}: {cut:?}");
        fixture.crash().expect("opened");
        // From the drives, not from what replay put into the cache.
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
        assert!(fixture.read(volume, 0, SIZE).expect("read") == model, "case {case}");
        assert_eq!(fixture.scrub(), (0, 0), "case {case}");
    }
}

#[test]
fn a_pool_opened_read_only_after_a_power_cut_reads_everything() {
    let mut owing = 0;
    for case in 0..24u64 {
        let mut fixture = Fixture::new(8, 8, case);
        let size = 1 << 20;
        let volume = fixture.create_volume(VolumeSpec { digest: DigestUnit::Strip, ..spec("a", "4+2", size) }).id;
        let mut model = pattern(case, size as usize);
        fixture.write(volume, 0, &model).expect("written");
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
        for stripe in 0..16 {
            let (at, new) = (stripe * 64 * KIB + 4 * KIB, pattern(stripe as u64, 4 * KIB));
            fixture.write(volume, at as u64, &new).expect("written");
            model[at..at + new.len()].copy_from_slice(&new);
        }
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + case * 16);
        let cut = fixture.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(NoAnswer::PowerCut)), "case {case}: {cut:?}");
        fixture.options.read_only = true;
        fixture.crash().expect("opened");
        owing += fixture.pool.serving().expect("open").engine.look(|core| core.redo.bytes());
        let before = fixture.test_drives.operations;
        assert!(fixture.read(volume, 0, size as usize).expect("read") == model, "case {case}");
        assert!(fixture.test_drives.operations > before, "the drives were asked");
        fixture.options.read_only = false;
        fixture.crash().expect("opened");
        assert!(fixture.read(volume, 0, size as usize).expect("read") == model, "case {case}, writable");
        assert_eq!(fixture.scrub(), (0, 0), "case {case}");
    }
    assert!(owing > 0, "no case left redo images");
}

#[test]
fn a_drive_lost_while_redo_is_put_in_place_does_not_stop_the_opening() {
    for case in 0..32u64 {
        let mut fixture = Fixture::new(8, 8, case);
        let size = 1 << 20;
        let volume = fixture.create_volume(spec("a", "4+2", size)).id;
        let mut model = pattern(case, size as usize);
        fixture.write(volume, 0, &model).expect("written");
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
        for stripe in 0..16 {
            let (at, new) = (stripe * 64 * KIB + 4 * KIB, pattern(stripe as u64, 4 * KIB));
            fixture.write(volume, at as u64, &new).expect("written");
            model[at..at + new.len()].copy_from_slice(&new);
        }
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 150);
        let cut = fixture.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(NoAnswer::PowerCut)), "case {case}: {cut:?}");
        fixture.test_drives.cut();
        fixture.test_drives.lose_at =
            Some((fixture.test_drives.operations + 150 + case * 6, vec![(case % 8) as usize]));
        fixture.open().unwrap_or_else(|error| panic!("case {case}: {error:?}"));
        assert!(fixture.read(volume, 0, size as usize).expect("read") == model, "case {case}");
    }
}

/// The images stay while their stripe is dirty, and reads lay them over what drives give: a strip
/// that missed them looks right then, and is not.
#[test]
fn a_drive_that_missed_redone_images_is_filled() {
    let mut missed = 0;
    for case in 0..24u64 {
        let mut fixture = Fixture::new(8, 8, case);
        fixture.options.rebuild_after = Duration::from_secs(3600);
        let size = 1 << 20;
        let volume = fixture.create_volume(spec("a", "4+2", size)).id;
        let mut model = pattern(case, size as usize);
        fixture.write(volume, 0, &model).expect("written");
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
        let mut write = |fixture: &mut Fixture, stripe: usize, block: usize, seed: u64| {
            let (at, new) = (stripe * 64 * KIB + block * 4 * KIB, pattern(seed, 4 * KIB));
            fixture.write(volume, at as u64, &new).expect("written");
            model[at..at + new.len()].copy_from_slice(&new);
        };
        (0..16).for_each(|stripe| write(&mut fixture, stripe, 1, 100 + stripe as u64));
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 30 + case * 6);
        let cut = fixture.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(NoAnswer::PowerCut)), "case {case}: {cut:?}");
        fixture.test_drives.cut();
        let away = (case % 8) as usize;
        fixture.test_drives.drives[away].gone = true;
        fixture.open().expect("opened without a drive");
        missed += fixture.pool.serving().expect("open").engine.look(|core| core.redo.bytes());
        (0..16).for_each(|stripe| write(&mut fixture, stripe, 7, 200 + stripe as u64));
        fixture.give_back(away);
        fixture.pass(Duration::from_secs(1));
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        assert_eq!(fixture.scrub(), (0, 0), "case {case}: the drive that was away was called whole");
        assert!(fixture.read(volume, 0, size as usize).expect("read") == model, "case {case}");
    }
    assert!(missed > 0, "no case left images");
}

/// Of each of the stripe's images whether the strips have taken them.
fn placed(pool: &Pool, key: StripeKey) -> Vec<bool> {
    let engine = &pool.serving().expect("open").engine;
    engine.look(|core| core.redo.of(key).iter().map(|redo| redo.placed).collect())
}

/// Where strips lie on the fixture's drives.
const STRIPS: std::ops::Range<u64> = 12 << 20..62 << 20;

/// A pool with one stripe that owes two images of its first block: the older one is on its strips,
/// the newer one not yet.
struct Twice {
    fixture: Fixture,
    key: StripeKey,
    /// What the volume holds.
    model: Vec<u8>,
    /// The drives that are away, as they are numbered now.
    away: Vec<usize>,
}

fn twice(seed: u64) -> Twice {
    let mut fixture = Fixture::new(12, 6, seed);
    fixture.options.rebuild_after = Duration::from_secs(24 * 3600);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let volume = fixture.create_volume(spec("a", "8+2", 128 << 10)).id;
    let key = StripeKey { volume, stripe: 0 };
    let mut model = pattern(seed, 128 * KIB);
    fixture.write(volume, 0, &model).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let mut away = fixture.drives_of_a_row();
    // The image of the first version is in the log when the second is written, and then too many
    // drives leave.
    fixture.write(volume, 0, &pattern(100, 4 * KIB)).expect("written");
    fixture.test_drives.held = Some(STRIPS);
    fixture.begin_command(Command::Checkpoint);
    fixture.pass(Duration::from_millis(50));
    assert_eq!(placed(&fixture.pool, key), [false]);
    let newer = pattern(101, 4 * KIB);
    fixture.write(volume, 0, &newer).expect("written");
    model[..newer.len()].copy_from_slice(&newer);
    fixture.pull(&away);
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_millis(50));
    assert_eq!(placed(&fixture.pool, key), [false]);
    // One returns, and goes again when the image of the second version is in the log, and not on
    // its strips.
    fixture.begin_to_give_back(away[0]);
    away[0] = fixture.test_drives.drives.len() - 1;
    fixture.test_drives.run_pool(&mut fixture.pool, &mut Vec::new(), |_, pool| placed(pool, key).len() == 2);
    fixture.test_drives.held = Some(STRIPS);
    fixture.pass(Duration::from_millis(50));
    fixture.pull(&away[..1]);
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_millis(50));
    assert_eq!(placed(&fixture.pool, key), [true, false]);
    Twice { fixture, key, model, away }
}

impl Twice {
    /// Has the older image appended again, behind the newer one.
    fn repeat_older(&mut self, by: impl AsyncFnOnce(Rc<Engine>, StripeKey) + 'static) {
        let (engine, key) = (Rc::clone(&self.fixture.pool.serving().expect("open").engine), self.key);
        let done = Rc::new(std::cell::Cell::new(false));
        let told = Rc::clone(&done);
        let io = engine.io.clone();
        io.spawn(async move {
            let owner = Rc::clone(&engine);
            let _guard = owner.locks.exclusive(key.volume, key.stripe).await;
            by(engine, key).await;
            told.set(true);
        });
        self.fixture.pass(Duration::from_millis(50));
        assert!(done.get(), "the older image was appended again");
    }

    /// All drives return after a power cut: the newer version is there, in memory and on the
    /// drives.
    fn check(mut self) {
        for drive in &self.away {
            self.fixture.test_drives.drives[*drive].gone = false;
        }
        self.fixture.crash().expect("opened");
        let (volume, length) = (self.key.volume, self.model.len());
        assert!(self.fixture.read(volume, 0, length).expect("read") == self.model, "after the power cut");
        self.fixture.idle();
        self.fixture.command(Command::Close).expect("closed");
        self.fixture.open().expect("opened");
        assert!(self.fixture.read(volume, 0, length).expect("readable") == self.model, "from the drives");
        assert_eq!(self.fixture.scrub(), (0, 0));
    }
}

/// The log asks for records below one that lies between the two.
#[test]
fn an_older_image_is_not_appended_again_behind_a_newer_one() {
    for seed in 0..4 {
        let mut twice = twice(seed);
        twice.repeat_older(async |engine, key| {
            let older = engine.look(|core| core.redo.of(key)[0].oldest);
            let relogged = engine.relog_redo(key, Lsn(older.0 + 1), Purpose::Relog).await;
            assert_eq!(relogged, Ok(true));
        });
        twice.check();
    }
}

/// Version 0.1.0 appended the older one alone, and so does a log with little room.
#[test]
fn an_older_image_behind_a_newer_one_in_the_log_does_not_land_over_it() {
    for seed in 0..4 {
        let mut twice = twice(seed);
        twice.repeat_older(async |engine, key| {
            let record = engine.look(|core| inline(key, &core.redo.of(key)[0]));
            let mut paid = engine.log.try_reserve(engine.log.cost(&record), Purpose::Inside).expect("room");
            let pages = engine.pages_for(&record).await.expect("pages");
            engine.append(&record, &pages, &mut paid);
        });
        twice.check();
    }
}

/// A record that brings the images itself.
fn inline(key: StripeKey, redo: &crate::state::redo::Redo) -> Record {
    let image = |write: &crate::state::redo::StripWrite| {
        let bytes: Vec<u8> = write.data.iter().flat_map(|piece| piece.iter().copied()).collect();
        let source = Image::Inline(Shared::copy_from_slice(&bytes));
        RedoImage { strip: write.strip as u8, block: (write.at / BLOCK) as u32, source }
    };
    Record::Redo {
        volume: key.volume,
        stripe: key.stripe,
        slot: redo.slot,
        generation: redo.generation,
        covers: redo.covers,
        digests: Vec::new(),
        images: redo.writes.iter().map(image).collect(),
    }
}
