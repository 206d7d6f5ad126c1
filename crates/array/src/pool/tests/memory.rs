//! Memory that changes by itself while writes wait in it: no read and no destage uses it.

use stele_ground::{Bytes, VolumeId};
use stele_media::MediaFault;

use super::KIB;
use crate::drives::label::LOG_AT;
use crate::model::{AlarmKind, Command, VolumeSpec};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

const SIZE: usize = 512 * KIB;

/// A volume of 4+2 whose every other block waits in memory, and what it holds.
fn waiting() -> (Fixture, VolumeId, Vec<u8>) {
    let mut fixture = Fixture::new(8, 8, 50);
    let volume = fixture.create_volume(VolumeSpec { block: Bytes(512), ..spec("a", "4+2", SIZE as u64) }).id;
    let mut model = pattern(1, SIZE);
    fixture.write(volume, 0, &model).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    for at in (0..SIZE).step_by(8 * KIB) {
        let data = pattern(at as u64 + 2, 4 * KIB);
        fixture.write(volume, at as u64, &data).expect("written");
        model[at..at + data.len()].copy_from_slice(&data);
    }
    (fixture, volume, model)
}

fn restored(fixture: &Fixture) -> usize {
    fixture.alarms.iter().filter(|alarm| alarm.kind == AlarmKind::MemoryDamaged).count()
}

#[test]
fn what_changed_in_memory_is_read_from_the_log() {
    let (mut fixture, volume, model) = waiting();
    (0..20).for_each(|which| assert!(fixture.pool.spoil_memory(3 * which, 811 * which as usize)));
    assert!(fixture.read(volume, 0, SIZE).expect("read") == model);
    assert_eq!(restored(&fixture), 20, "{:?}", fixture.alarms);
    assert!(fixture.read(volume, 0, SIZE).expect("read") == model);
    assert_eq!(restored(&fixture), 20, "once");
}

#[test]
fn what_changed_in_memory_is_neither_destaged_nor_written_on() {
    let (mut fixture, volume, mut model) = waiting();
    (0..20).for_each(|which| assert!(fixture.pool.spoil_memory(3 * which, 32_768 - which as usize)));
    // A part of a block that changed: the rest of it stays what was written.
    fixture.write(volume, 1024, &[7; 512]).expect("written");
    model[1024..1536].fill(7);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    assert!(fixture.read(volume, 0, SIZE).expect("read") == model);
    assert!(restored(&fixture) >= 20, "{:?}", fixture.alarms);
    assert_eq!(fixture.scrub(), (0, 0));
}

#[test]
fn what_neither_memory_nor_log_has_is_an_error_until_it_is_written_anew() {
    let (mut fixture, volume, mut model) = waiting();
    let length = fixture.status().log_size.0;
    for drive in 0..8 {
        fixture.test_drives.damage(drive, LOG_AT, length);
    }
    assert!(fixture.pool.spoil_memory(0, 99));
    let Err(NoAnswer::Media(error)) = fixture.read(volume, 0, 4 * KIB) else { panic!("wrong bytes") };
    assert!(error.to_string().contains("memory"), "{error}");
    assert_eq!(error.fault, MediaFault::Damaged);
    assert!(fixture.read(volume, 4096, SIZE - 4096).expect("read") == model[4096..]);
    let anew = pattern(3, 4 * KIB);
    fixture.write(volume, 0, &anew).expect("written");
    model[..4 * KIB].copy_from_slice(&anew);
    assert!(fixture.read(volume, 0, SIZE).expect("read") == model);
}
