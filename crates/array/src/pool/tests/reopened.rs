//! What an opening does with images that strips are owed, and with what the tables hold.

use std::cell::Cell;
use std::rc::Rc;

use stele_ground::{Duration, VolumeId};

use super::KIB;
use crate::destage::checkpoint::{ROOT_VERSION, Root};
use crate::durable::log::Purpose;
use crate::engine::Engine;
use crate::formats::tables::LOST_PER_PAGE;
use crate::model::place::{Lsn, StripeKey};
use crate::model::{ArrayError, Command, DriveHealth, OpenOptions};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

const STRIPE: usize = 128 * KIB;
const HOUR: Duration = Duration::from_secs(3600);
/// Where strips lie on the fixture's drives.
const STRIPS: std::ops::Range<u64> = 12 << 20..62 << 20;

fn put(fixture: &mut Fixture, (volume, model): (VolumeId, &mut [u8]), at: usize, seed: u64) {
    let new = pattern(seed, 4 * KIB);
    fixture.write(volume, at as u64, &new).expect("written");
    model[at..at + new.len()].copy_from_slice(&new);
}

/// A volume of two stripes in one row, each with a changed block. The images of both are in the
/// log, and not on the strips yet: writes of strips are held back.
fn owing(seed: u64) -> (Fixture, VolumeId, Vec<u8>) {
    let options = OpenOptions { rebuild_after: HOUR, flush_age: HOUR, ..OpenOptions::default() };
    let mut fixture = Fixture::blank(12, 6, seed, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "8+2", 2 * STRIPE as u64)).id;
    let mut model = pattern(seed, 2 * STRIPE);
    fixture.write(volume, 0, &model).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    for stripe in 0..2 {
        put(&mut fixture, (volume, &mut model), stripe * STRIPE, 100 + stripe as u64);
    }
    fixture.test_drives.held = Some(STRIPS);
    fixture.begin_command(Command::Checkpoint);
    fixture.pass(Duration::from_millis(50));
    assert_eq!(owed(&fixture, volume), [true; 2]);
    (fixture, volume, model)
}

/// Of each stripe, whether its strips are owed images.
fn owed(fixture: &Fixture, volume: VolumeId) -> [bool; 2] {
    [0, 1].map(|stripe| fixture.engine().look(|core| core.redo.owes(StripeKey { volume, stripe })))
}

/// Everything is readable, from the drives too.
fn check(mut fixture: Fixture, volume: VolumeId, model: &[u8]) {
    assert!(fixture.read(volume, 0, model.len()).expect("readable") == model);
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    assert!(fixture.read(volume, 0, model.len()).expect("readable") == model, "from the drives");
    assert_eq!(fixture.scrub(), (0, 0));
}

#[test]
fn an_opening_for_reading_writes_no_image_onto_its_strip() {
    let (mut fixture, volume, model) = owing(1);
    fixture.test_drives.cut();
    fixture.options.read_only = true;
    fixture.open().expect("opened");
    assert_eq!(owed(&fixture, volume), [true; 2]);
    fixture.idle();
    let engine = fixture.engine();
    let written: u64 = (0..12).map(|drive| engine.io.counters(drive).writes).sum();
    assert_eq!(written, 0, "the pool is only read");
    assert!(fixture.read(volume, 0, model.len()).expect("readable") == model);
    fixture.options.read_only = false;
    fixture.open().expect("opened");
    assert_eq!(owed(&fixture, volume), [false; 2], "they are on their strips when the pool is open");
    check(fixture, volume, &model);
}

/// Has the pool do something, and waits for it.
fn run<F: Future<Output = bool> + 'static>(fixture: &mut Fixture, what: impl FnOnce(Rc<Engine>) -> F) {
    let done = Rc::new(Cell::new(false));
    let (engine, note) = (fixture.engine(), Rc::clone(&done));
    let what = what(Rc::clone(&engine));
    engine.io.spawn(async move { note.set(what.await) });
    fixture.pass(Duration::from_millis(50));
    assert!(done.get(), "it is done");
}

/// Or the opening after the next would find images whose bytes are gone.
#[test]
fn an_opening_keeps_the_writes_that_images_refer_to() {
    let (mut fixture, volume, mut model) = owing(2);
    fixture.test_drives.cut();
    fixture.open().expect("opened");
    // What is dirty needs later records from now on.
    for stripe in 0..2 {
        put(&mut fixture, (volume, &mut model), stripe * STRIPE, 200 + stripe as u64);
        fixture.engine().step(|core| core.cache.renew_age(StripeKey { volume, stripe: stripe as u64 }));
    }
    run(&mut fixture, |engine| async move { engine.checkpoint().await.is_ok() });
    fixture.crash().expect("opened again");
    check(fixture, volume, &model);
}

/// The log begins between a write and the image that refers to it, and has the image once more.
#[test]
fn an_image_appended_again_does_without_its_write() {
    let (mut fixture, volume, mut model) = owing(3);
    put(&mut fixture, (volume, &mut model), 0, 200);
    // Not of the log: it would have everything appended again at once.
    let (members, _) = fixture.engine().log.members();
    let mut away = fixture.drives_of_rows("8+2", 10);
    // The changed strips come first: those of parity, and then that of data.
    away.rotate_right(2);
    away.retain(|drive| !members.iter().any(|member| usize::from(member.0) == *drive));
    away.truncate(3);
    fixture.pull(&away);
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_millis(50));
    assert_eq!(owed(&fixture, volume), [true; 2]);
    let (engine, key) = (fixture.engine(), StripeKey { volume, stripe: 0 });
    engine.step(|core| core.cache.renew_age(key));
    let oldest = engine.look(|core| core.redo.of(key)[0].oldest);
    run(&mut fixture, |engine| async move {
        let _guard = engine.locks.exclusive(key.volume, key.stripe).await;
        engine.relog_redo(key, Lsn(oldest.0 + 1), Purpose::Relog).await == Ok(true)
    });
    assert!(engine.oldest_needed() > oldest);
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.crash().expect("opened");
    away.iter().for_each(|drive| fixture.test_drives.drives[*drive].gone = false);
    fixture.crash().expect("opened with all drives");
    check(fixture, volume, &model);
}

/// Its stripes stay dirty long, and so the images stay: they make right what reads find on it.
#[test]
fn a_drive_that_missed_images_at_an_opening_gets_them_soon() {
    let (mut fixture, volume, model) = owing(4);
    let drive = fixture.drives_of_a_row()[0];
    fixture.test_drives.cut();
    fixture.test_drives.drives[drive].fails_writes = true;
    fixture.open().expect("opened");
    let behind = fixture.status().drives[drive].health;
    fixture.test_drives.drives[drive].fails_writes = false;
    fixture.pass(Duration::from_secs(30));
    assert!(fixture.engine().look(|core| core.cache.is_dirty(StripeKey { volume, stripe: 0 })));
    let shown = fixture.status().drives[drive].clone();
    assert_eq!((behind, shown.health), (DriveHealth::Stale, DriveHealth::Healthy), "{shown:?}");
    check(fixture, volume, &model);
}

#[test]
fn tables_of_a_newer_version_are_refused_and_not_called_damaged() {
    for version in [ROOT_VERSION + 1, ROOT_VERSION - 1] {
        let mut fixture = Fixture::new(6, 3, 5);
        let mut root = Root::default().encode();
        root[..4].copy_from_slice(&version.to_le_bytes());
        run(&mut fixture, |engine| async move {
            let checkpoint = engine.table.begin_checkpoint(&engine.log, engine.oldest_needed(), root, None);
            checkpoint.write().await.is_ok()
        });
        let ended = fixture.crash();
        let Err(NoAnswer::Array(error)) = &ended else { panic!("version {version}: {ended:?}") };
        match error {
            ArrayError::Refused(text) => assert!(version > ROOT_VERSION && text.contains("have version 2"), "{text}"),
            ArrayError::Damaged(text) => assert!(version < ROOT_VERSION && text.contains("restore"), "{text}"),
            other => panic!("version {version}: {other}"),
        }
    }
}

/// The list is as long as its last entry is far, and an opening leaves its empty entries out.
#[test]
fn no_lost_stripe_is_forgotten_when_others_left_the_list() {
    let mut fixture = Fixture::new(6, 3, 6);
    let volume = fixture.create_volume(spec("a", "4+2", 32 << 20)).id;
    let list = |fixture: &Fixture, stripe: u32, lost: bool| {
        let (engine, key) = (fixture.engine(), StripeKey { volume, stripe: stripe.into() });
        engine.step(|core| engine.list_lost(core, key, lost));
    };
    (0..=LOST_PER_PAGE).for_each(|stripe| list(&fixture, stripe, true));
    list(&fixture, 7, false);
    for _ in 0..3 {
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.crash().expect("opened");
        assert_eq!(fixture.status().lost_stripes, u64::from(LOST_PER_PAGE));
    }
    assert!(!fixture.engine().look(|core| core.lost.is_changed()), "what is stored already is not stored again");
}

#[test]
fn status_says_which_drive_was_away_at_an_opening() {
    let mut fixture = Fixture::new(6, 3, 7);
    fixture.options.rebuild_after = HOUR;
    let volume = fixture.create_volume(spec("a", "4+2", 8 << 20)).id;
    fixture.command(Command::Close).expect("closed");
    fixture.test_drives.drives[2].gone = true;
    fixture.open().expect("opened");
    fixture.write(volume, 0, &pattern(1, 64 * KIB)).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.test_drives.drives[2].gone = false;
    fixture.open().expect("opened");
    let drive = fixture.status().drives[2].clone();
    assert_eq!((drive.health, drive.note.as_str()), (DriveHealth::Stale, "was away; being brought up to date"));
}
