//! Writes that begin or end within a block of 4096 bytes.

use stele_ground::Bytes;
use stele_media::{Buffer, Op};

use super::KIB;
use crate::model::{Command, VolumeSpec};
use crate::testing::{Fixture, pattern, spec};

#[test]
fn an_unaligned_write_may_be_as_long_as_a_stripe() {
    let mut fixture = Fixture::new(12, 6, 40);
    let size = 8 << 20;
    let shape = VolumeSpec { strip: Bytes(512 << 10), block: Bytes(512), ..spec("a", "8+2", size) };
    let volume = fixture.create_volume(shape).id;
    let mut model = vec![0; size as usize];
    // Within a stripe of 4 MiB, over the border of two, and within one block.
    for (at, length) in [(512, 3 << 20), ((3 << 20) + 1536, 2 << 20), (512, 3 << 20), (9 * KIB, 1024), (4096, 1536)] {
        let data = pattern(at as u64 + 1, length);
        fixture.write(volume, at as u64, &data).expect("written");
        model[at..at + length].copy_from_slice(&data);
        assert!(fixture.read(volume, 0, size as usize).expect("read") == model, "{length} bytes at {at}");
    }
    fixture.crash().expect("opened");
    assert!(fixture.read(volume, 0, size as usize).expect("read") == model, "after a power cut");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    assert!(fixture.read(volume, 0, size as usize).expect("read") == model, "reopened");
}

/// One unaligned write into each of many stripes, at once; answers the most that was dirty.
fn flood(limit: Option<u64>, stripes: usize) -> u64 {
    let mut fixture = Fixture::new(12, 6, 41);
    if let Some(limit) = limit {
        fixture.options.dirty_limit = Bytes(limit);
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
    }
    let stripe = 64 * KIB;
    let volume = fixture.create_volume(VolumeSpec { block: Bytes(512), ..spec("a", "4+2", 64 << 20) }).id;
    let op = |number: usize| Op::Write {
        at: (number * stripe + 512) as u64,
        data: vec![Buffer::copy_of(&pattern(number as u64, 1024)).freeze()],
        fua: false,
    };
    let (_, answers) = fixture.submit_all(volume, (0..stripes).map(op).collect());
    for (number, answer) in answers.into_iter().enumerate() {
        let (_, result) = answer.unwrap_or_else(|| panic!("write {number} was never answered"));
        assert_eq!(result, Ok(()), "write {number}");
    }
    let most = fixture.status().dirty.0;
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    for number in 0..stripes {
        let read = fixture.read(volume, (number * stripe) as u64, 2048).expect("read");
        let mut expected = vec![0; 2048];
        expected[512..1536].copy_from_slice(&pattern(number as u64, 1024));
        assert!(read == expected, "stripe {number}");
    }
    most
}

#[test]
fn unaligned_writes_leave_the_log_the_space_that_destages_need() {
    flood(None, 800);
}

#[test]
fn unaligned_writes_keep_to_the_dirty_limit() {
    let most = flood(Some(256 << 10), 400);
    assert!(most <= 256 << 10, "{most} bytes are dirty");
}
