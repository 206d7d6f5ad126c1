//! What the repair does about damage of its own making.

use stele_ground::{Duration, VolumeId};

use crate::engine::Engine;
use crate::formats::{entry, map};
use crate::model::place::StripeKey;
use crate::model::{AlarmKind, Command, DriveHealth};
use crate::stripe::Stripe;
use crate::testing::{Fixture, pattern, spec};

/// The volume's first stripe as it lies on the drives.
fn first_stripe(fixture: &Fixture, volume: VolumeId) -> Stripe {
    let engine = fixture.engine();
    let handle = engine.look(|core| core.volumes.get(volume)).expect("a volume");
    let (page, at) = Engine::map_page_id(volume, 0);
    let home = engine.table.cached(page).expect("in memory").read(|bytes| map::get(bytes, at));
    let map::Home::Slot(slot) = home else { panic!("{home:?}") };
    let (page, at) = Engine::slot_page_id(&handle.shape, slot);
    let page = engine.table.cached(page).expect("in memory");
    engine.picture(&handle, 0, slot, &page, at).expect("it is mapped")
}

/// Puts other parity onto a strip of the volume's first stripe, with the digests that belong to it.
fn make_parity_wrong(fixture: &mut Fixture, volume: VolumeId) {
    let of = first_stripe(fixture, volume);
    let (page, at) = Engine::slot_page_id(&of.shape, of.slot);
    let page = fixture.engine().table.cached(page).expect("in memory");
    let strip = of.shape.k;
    let wrong = pattern(77, of.shape.strip);
    let place = of.places[strip];
    fixture.test_drives.poke(usize::from(place.cell.drive.0), place.at, &wrong);
    page.change(|bytes| {
        for (unit, data) in wrong.chunks(of.shape.unit_bytes).enumerate() {
            let index = of.shape.digest_index(strip, unit);
            entry::set_digest(bytes, at, index, of.binding.digest(strip, unit, data));
        }
    });
}

#[test]
fn parity_that_is_not_of_its_data_is_encoded_again() {
    let mut fixture = Fixture::new(7, 7, 1);
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    let data = pattern(1, 1 << 20);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    make_parity_wrong(&mut fixture, volume);
    assert_eq!(fixture.scrub(), (1, 1));
    let said: Vec<_> = fixture.alarms.iter().filter(|alarm| alarm.kind == AlarmKind::MemoryDamaged).collect();
    assert!(said.len() == 1 && said[0].message.contains("stripe 0"), "{said:?}");
    assert_eq!(fixture.scrub(), (0, 0), "and is right from then on");
    fixture.crash().expect("opened");
    assert_eq!(fixture.scrub(), (0, 0));
    fixture.pull(&[0, 1]);
    assert!(fixture.read(volume, 0, 1 << 20).expect("read") == data);
}

/// Two written blocks of a strip with a block between them that was never written, and cannot be
/// read: the fixture, the volume, and the drive.
fn with_a_bad_place_between(seed: u64) -> (Fixture, VolumeId, usize) {
    let mut fixture = Fixture::new(7, 7, seed);
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    for block in [0, 2] {
        fixture.write(volume, block << 12, &pattern(block, 4096)).expect("written");
    }
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.crash().expect("opened");
    let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    let row = engine.layout.read().rows().find(|row| engine.look(|core| core.space.used(row.id)) > 0).cloned();
    let cells = row.expect("a row").members;
    let starts =
        cells.iter().map(|member| (member.cell.drive.0, engine.drives.labels.configuration().cell_at(member.cell)));
    let places = starts.flat_map(|(drive, at)| (0..256).map(move |block| (usize::from(drive), (at >> 12) + block)));
    let (drive, block) = { places }
        .find(|(drive, block)| fixture.test_drives.peek(*drive, block << 12, 4096) == pattern(0, 4096))
        .expect("the first block lies on a drive");
    fixture.test_drives.drives[drive].unreadable.insert(block + 1);
    (fixture, volume, drive)
}

#[test]
fn a_bad_place_without_content_is_written_once_and_blames_its_drive_no_more() {
    let (mut fixture, volume, drive) = with_a_bad_place_between(1);
    let wanted = [pattern(0, 4096), vec![0; 4096], pattern(2, 4096)].concat();
    assert!(fixture.read(volume, 0, 12288).expect("read") == wanted);
    fixture.idle();
    assert!(fixture.test_drives.drives[drive].unreadable.is_empty(), "a read has it mended");
    let errors = fixture.status().drives[drive].read_errors;
    assert!((1..3).contains(&errors), "{errors}");
    assert!(fixture.read(volume, 0, 12288).expect("read") == wanted);
    assert_eq!(fixture.scrub(), (0, 0));
}

#[test]
fn a_scrub_mends_bad_places_without_content() {
    let (mut fixture, _, drive) = with_a_bad_place_between(2);
    assert_eq!(fixture.scrub(), (0, 0), "no record was damaged");
    assert!(fixture.test_drives.drives[drive].unreadable.is_empty());
}

/// A volume of one stripe, all of it on the drives and nothing in the cache; its content, and where
/// its strips lie.
fn one_stripe(seed: u64) -> (Fixture, VolumeId, Vec<u8>, Stripe) {
    let mut fixture = Fixture::new(7, 7, seed);
    let volume = fixture.create_volume(spec("a", "4+2", 64 << 10)).id;
    let data = pattern(seed, 64 << 10);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    assert!(fixture.read(volume, 0, 4096).is_ok());
    let of = first_stripe(&fixture, volume);
    (fixture, volume, data, of)
}

fn drive_of(of: &Stripe, strip: usize) -> usize {
    usize::from(of.places[strip].cell.drive.0)
}

#[test]
fn damage_is_counted_for_its_drive_and_told_when_it_is_repaired() {
    let (mut fixture, volume, data, of) = one_stripe(3);
    let damaged = [(0, 0), (1, 1), (0, 2), (0, 3)];
    for (strip, unit) in damaged {
        fixture.test_drives.damage(drive_of(&of, strip), of.places[strip].at + (unit << 12), 4096);
    }
    assert!(fixture.read(volume, 0, 64 << 10).expect("read") == data);
    fixture.idle();
    let status = fixture.status();
    for (drive, seen) in status.drives.iter().enumerate() {
        let units = damaged.iter().filter(|(strip, _)| drive_of(&of, *strip) == drive).count() as u64;
        assert_eq!((seen.digest_errors, seen.repaired), (units, units), "drive {drive}");
        // It has taken what was written again: it missed nothing.
        assert_ne!(seen.health, DriveHealth::Stale, "drive {drive}");
    }
    assert_eq!(status.repaired, 4);
    assert_eq!(fixture.told(AlarmKind::DriveStale), [""; 0]);
    let told = ["volume 'a': 4 damaged units of stripe 0 were reconstructed and written again"];
    assert_eq!(fixture.told(AlarmKind::DamageRepaired), told);
    fixture.engine().ask_repair(StripeKey { volume, stripe: 0 });
    fixture.idle();
    assert_eq!(fixture.told(AlarmKind::DamageRepaired), told, "a stripe without damage is nothing to tell of");
}

/// Without it the drive would count as redundancy with the damage on it, until the next scrub.
#[test]
fn a_drive_that_does_not_take_a_repair_is_behind_until_it_does() {
    for takes_writes in [true, false] {
        let (mut fixture, volume, data, of) = one_stripe(4);
        let (drive, at) = (drive_of(&of, 0), of.places[0].at + 4096);
        let written = fixture.test_drives.peek(drive, at, 4096);
        fixture.test_drives.damage(drive, at, 4096);
        // It answers the write with an error, or what it took cannot be read again.
        fixture.test_drives.drives[drive].fails_writes = !takes_writes;
        fixture.test_drives.drives[drive].is_loose = takes_writes;
        assert!(fixture.read(volume, 0, 64 << 10).expect("read") == data);
        fixture.pass(Duration::from_secs(5));
        assert_eq!(fixture.status().drives[drive].health, DriveHealth::Stale, "takes writes: {takes_writes}");
        fixture.test_drives.drives[drive].fails_writes = false;
        fixture.test_drives.drives[drive].is_loose = false;
        fixture.pass(Duration::from_secs(60));
        assert_ne!(fixture.status().drives[drive].health, DriveHealth::Stale, "takes writes: {takes_writes}");
        assert!(fixture.test_drives.peek(drive, at, 4096) == written, "takes writes: {takes_writes}");
    }
}

#[test]
fn a_scrub_says_how_much_is_lost() {
    let (mut fixture, _, _, of) = one_stripe(5);
    for strip in 0..3 {
        fixture.test_drives.damage(drive_of(&of, strip), of.places[strip].at, of.shape.strip as u64);
    }
    assert_eq!(fixture.scrub(), (3, 0));
    let told = fixture.told(AlarmKind::ScrubFinished);
    assert!(told.len() == 1 && told[0].starts_with("scrub finished: 0 units damaged, 0 repaired, 3 lost"), "{told:?}");
}

#[test]
fn a_scrub_without_a_drive_shows_how_far_it_is() {
    let mut fixture = Fixture::new(6, 6, 6);
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 4 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    // All of it is verified stripe by stripe.
    fixture.pull(&[2]);
    fixture.begin_command(Command::StartScrub);
    let mut shown = Vec::new();
    for _ in 0..40 {
        fixture.run_operations(10);
        shown.extend(fixture.engine().scrubbing.work.progress(fixture.test_drives.now()).map(|work| work.done.0));
    }
    assert!(shown.last() > Some(&0) && shown.is_sorted(), "{shown:?}");
}

/// Slots that are allocated, or wait for the end of what happens to them.
fn held(fixture: &Fixture) -> usize {
    let engine = fixture.engine();
    let rows: Vec<_> = engine.layout.read().rows().map(|row| row.id).collect();
    rows.into_iter().map(|row| engine.look(|core| core.space.held(row))).sum()
}

#[test]
fn a_repair_that_fails_is_made_half_a_minute_later() {
    let (mut fixture, volume, data, _) = one_stripe(7);
    make_parity_wrong(&mut fixture, volume);
    let fail = |fixture: &mut Fixture, fails: bool| {
        fixture.test_drives.drives[..4].iter_mut().for_each(|drive| drive.fails_writes = fails);
    };
    fail(&mut fixture, true);
    fixture.engine().ask_repair(StripeKey { volume, stripe: 0 });
    let before = fixture.test_drives.operations;
    fixture.test_drives.cut_at = Some(before + 100);
    fixture.pass(Duration::from_secs(20));
    fixture.test_drives.cut_at = None;
    let operations = fixture.test_drives.operations - before;
    assert!((6..100).contains(&operations), "{operations} operations: not made, or again and again");
    assert_eq!(fixture.told(AlarmKind::MemoryDamaged), [""; 0], "the stripe is where it was");
    assert_eq!(held(&fixture), 0, "and the slot that it was to move to is free");
    fail(&mut fixture, false);
    fixture.pass(Duration::from_secs(40));
    let told = fixture.told(AlarmKind::MemoryDamaged);
    assert!(told.len() == 1 && told[0].contains("it was encoded again from its data"), "{told:?}");
    assert_eq!(held(&fixture), 0, "so is the slot that it came from");
    fixture.pull(&[0, 1]);
    assert!(fixture.read(volume, 0, 64 << 10).expect("read") == data);
}
