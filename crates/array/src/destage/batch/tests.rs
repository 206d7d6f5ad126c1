//! Destages of many stripes as one task, and what goes by itself.

use stele_ground::{BLOCK, Duration, VolumeId};

use crate::model::place::StripeKey;
use crate::model::{Command, VolumeSpec};
use crate::testing::{Fixture, pattern, spec};

const STRIPES: usize = 24;

/// A volume with every stripe on the drives, and what it holds.
fn mapped(fixture: &mut Fixture, code: &str) -> (VolumeId, usize, Vec<u8>) {
    let volume = fixture.create_volume(VolumeSpec { ..spec("a", code, 4 << 20) }).id;
    let stripe = fixture.engine().volume(volume).expect("it exists").shape.data() as usize;
    let model = pattern(1, STRIPES * stripe);
    fixture.write(volume, 0, &model).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    (volume, stripe, model)
}

/// Writes a block into each of the stripes.
fn change(fixture: &mut Fixture, volume: VolumeId, stripe: usize, model: &mut [u8], seed: u64) {
    for number in 0..STRIPES {
        let at = number * stripe + (number + seed as usize) % (stripe / BLOCK) * BLOCK;
        let new = pattern(seed << 8 | number as u64, BLOCK);
        fixture.write(volume, at as u64, &new).expect("written");
        model[at..at + BLOCK].copy_from_slice(&new);
    }
}

fn counts(fixture: &Fixture) -> (u64, u64) {
    let count = &fixture.engine().count;
    (count.destages.get(), count.batched.get())
}

/// The volume as its drives have it, after a power cut, and in order.
fn check(mut fixture: Fixture, volume: VolumeId, model: &[u8]) {
    fixture.crash().expect("opened");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    assert!(fixture.read(volume, 0, model.len()).expect("read") == model);
    assert_eq!(fixture.scrub(), (0, 0));
}

#[test]
fn stripes_are_destaged_in_batches() {
    for code in ["mirror-2", "mirror-3", "4+2", "3+1"] {
        let mut fixture = Fixture::new(8, 8, 3);
        let (volume, stripe, mut model) = mapped(&mut fixture, code);
        for seed in 0..3 {
            change(&mut fixture, volume, stripe, &mut model, seed);
            let (all, batched) = counts(&fixture);
            fixture.command(Command::Checkpoint).expect("a checkpoint");
            let (all, batched) = (counts(&fixture).0 - all, counts(&fixture).1 - batched);
            assert_eq!((all, batched), (STRIPES as u64, STRIPES as u64), "{code}");
        }
        check(fixture, volume, &model);
    }
}

#[test]
fn a_stripe_that_another_task_holds_keeps_none_of_the_others() {
    let mut fixture = Fixture::new(8, 8, 4);
    let (volume, stripe, mut model) = mapped(&mut fixture, "4+2");
    let engine = fixture.engine();
    change(&mut fixture, volume, stripe, &mut model, 1);
    let held = engine.locks.try_exclusive(volume, 5).expect("it is free");
    fixture.pass(Duration::from_secs(10));
    let left = |engine: &crate::engine::Engine| engine.look(|core| core.cache.dirty_stripes_of(volume));
    assert_eq!(left(&engine), [5]);
    drop(held);
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    assert_eq!(left(&engine), []);
    drop(engine);
    check(fixture, volume, &model);
}

/// Every way out of a batch, for some of its stripes.
#[test]
fn what_goes_wrong_in_a_batch_is_done_again_stripe_by_stripe() {
    type Trouble = fn(&mut Fixture, usize);
    let troubles: [(&str, Trouble); 5] = [
        ("a flush fails", |fixture, drive| fixture.test_drives.drives[drive].fails_flushes = 1),
        ("a drive refuses writes for a moment", |fixture, drive| fixture.test_drives.drives[drive].retries = 3),
        ("a drive refuses writes for longer", |fixture, drive| fixture.test_drives.drives[drive].refuses = 6),
        ("a drive is pulled", |fixture, drive| fixture.pull(&[drive])),
        ("memory changes", |fixture, drive| {
            let engine = fixture.engine();
            assert!(engine.step(|core| core.cache.spoil(drive as u64, 77)));
        }),
    ];
    for code in ["mirror-2", "4+2"] {
        for (name, trouble) in &troubles {
            for drive in 0..3 {
                let mut fixture = Fixture::new(8, 8, 5);
                let (volume, stripe, mut model) = mapped(&mut fixture, code);
                change(&mut fixture, volume, stripe, &mut model, 1);
                trouble(&mut fixture, drive);
                fixture.pass(Duration::from_secs(60));
                let dirty = fixture.engine().look(|core| core.cache.dirty_stripes_of(volume));
                assert_eq!(dirty, [], "{code}, {name}, drive {drive}");
                let seen = fixture.read(volume, 0, model.len()).expect("read");
                assert!(seen == model, "{code}, {name}, drive {drive}");
                fixture.crash().expect("opened");
                fixture.command(Command::Close).expect("closed");
                fixture.open().expect("opened");
                let seen = fixture.read(volume, 0, model.len()).expect("read");
                assert!(seen == model, "{code}, {name}, drive {drive}, after a power cut");
            }
        }
    }
}

/// A stripe whose last destage failed has no log space of its own any more.
#[test]
fn a_stripe_without_a_reservation_goes_by_itself() {
    let mut fixture = Fixture::new(8, 8, 6);
    let (volume, stripe, mut model) = mapped(&mut fixture, "3+1");
    change(&mut fixture, volume, stripe, &mut model, 1);
    let before = counts(&fixture);
    let engine = fixture.engine();
    engine.step(|core| core.destage_reservations.remove(&StripeKey { volume, stripe: 7 })).expect("it had one");
    drop(engine);
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let after = counts(&fixture);
    assert_eq!((after.0 - before.0, after.1 - before.1), (STRIPES as u64, STRIPES as u64 - 1));
    check(fixture, volume, &model);
}
