//! Memory that changes by itself while writes wait in it: nobody reads it, nothing is destaged from it.

use stele_ground::{Bytes, VolumeId};
use stele_media::MediaFault;

use super::KIB;
use crate::label::LOG_AT;
use crate::testing::{Bed, Trouble, pattern, spec};
use crate::{AlarmKind, Command, VolumeSpec};

const SIZE: usize = 512 * KIB;

/// A volume of 4+2 whose every other block waits in memory, and what it holds.
fn waiting() -> (Bed, VolumeId, Vec<u8>) {
    let mut bed = Bed::new(8, 8, 50);
    let volume = bed.create_volume(VolumeSpec { block: Bytes(512), ..spec("a", "4+2", SIZE as u64) }).id;
    let mut model = pattern(1, SIZE);
    bed.write(volume, 0, &model).expect("written");
    bed.command(Command::Close).expect("closed");
    bed.open().expect("opened");
    for at in (0..SIZE).step_by(8 * KIB) {
        let data = pattern(at as u64 + 2, 4 * KIB);
        bed.write(volume, at as u64, &data).expect("written");
        model[at..at + data.len()].copy_from_slice(&data);
    }
    (bed, volume, model)
}

fn restored(bed: &Bed) -> usize {
    bed.alarms.iter().filter(|alarm| alarm.kind == AlarmKind::MemoryDamaged).count()
}

#[test]
fn what_changed_in_memory_is_read_from_the_log() {
    let (mut bed, volume, model) = waiting();
    (0..20).for_each(|which| assert!(bed.pool.spoil_memory(3 * which, 811 * which as usize)));
    assert!(bed.read(volume, 0, SIZE).expect("read") == model);
    assert_eq!(restored(&bed), 20, "{:?}", bed.alarms);
    assert!(bed.read(volume, 0, SIZE).expect("read") == model);
    assert_eq!(restored(&bed), 20, "once");
}

#[test]
fn what_changed_in_memory_is_neither_destaged_nor_written_on() {
    let (mut bed, volume, mut model) = waiting();
    (0..20).for_each(|which| assert!(bed.pool.spoil_memory(3 * which, 32_768 - which as usize)));
    // A part of a block that changed: the rest of it stays what was written.
    bed.write(volume, 1024, &[7; 512]).expect("written");
    model[1024..1536].fill(7);
    bed.command(Command::Close).expect("closed");
    bed.open().expect("opened");
    assert!(bed.read(volume, 0, SIZE).expect("read") == model);
    assert!(restored(&bed) >= 20, "{:?}", bed.alarms);
    assert_eq!(bed.scrub(), (0, 0));
}

#[test]
fn what_neither_memory_nor_log_has_is_an_error_until_it_is_written_anew() {
    let (mut bed, volume, mut model) = waiting();
    let length = bed.status().log_size.0;
    for drive in 0..8 {
        bed.yard.damage(drive, LOG_AT, length);
    }
    assert!(bed.pool.spoil_memory(0, 99));
    let Err(Trouble::Media(error)) = bed.read(volume, 0, 4 * KIB) else { panic!("wrong bytes") };
    assert!(error.to_string().contains("memory"), "{error}");
    assert_eq!(error.fault, MediaFault::Damaged);
    assert!(bed.read(volume, 4096, SIZE - 4096).expect("read") == model[4096..]);
    let anew = pattern(3, 4 * KIB);
    bed.write(volume, 0, &anew).expect("written");
    model[..4 * KIB].copy_from_slice(&anew);
    assert!(bed.read(volume, 0, SIZE).expect("read") == model);
}
