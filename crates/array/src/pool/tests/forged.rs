//! Bytes in the log's ring that look like its groups and are not: what a host wrote, and what
//! another history of the pool left.

use stele_ground::digest::crc32c;
use stele_ground::{BLOCK, DriveId, VolumeId};

use super::KIB;
use super::sealed::groups;
use crate::drives::label::LOG_AT;
use crate::model::Command;
use crate::testing::{Fixture, pattern, spec};

/// A header as the format's page describes it, of the fixture's pool, by a forger who knows all
/// that the pool shows.
fn forged(epoch: u64, sequence: u64, watermark: u64, tag: u32) -> Vec<u8> {
    let mut bytes = vec![0; 96];
    bytes[..8].copy_from_slice(b"STELEGRP");
    bytes[16..32].fill(7);
    for (word, place) in [epoch, sequence, 1].iter().zip(bytes[32..56].chunks_exact_mut(8)) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes[64..72].copy_from_slice(&watermark.to_le_bytes());
    bytes[92..].copy_from_slice(&tag.to_le_bytes());
    let crc = crc32c(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A drive of the log.
fn member(fixture: &Fixture) -> usize {
    let members = fixture.pool.serving().expect("open").engine.log.members().0;
    members.first().map(|member| usize::from(member.0)).expect("a member")
}

/// Writes a header so that it lies where a group could begin: a group's first record has the host's
/// bytes at 120.
fn plant(fixture: &mut Fixture, volume: VolumeId, at: u64, header: &[u8]) {
    let mut block = pattern(at, BLOCK);
    block[BLOCK - 120..][..header.len()].copy_from_slice(header);
    fixture.write(volume, at, &block).expect("written");
    fixture.idle();
    let ring = fixture.test_drives.peek(member(fixture), LOG_AT, 8 << 20);
    assert!(ring.chunks(BLOCK).any(|block| block.starts_with(header)), "it lies at an aligned place");
}

#[test]
fn what_a_host_wrote_does_not_keep_the_pool_from_opening() {
    let mut fixture = Fixture::new(4, 4, 9);
    let volume = fixture.create_volume(spec("a", "2+1", 1 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let known = groups(&fixture, member(&fixture)).into_iter();
    let newest = known.map(|(_, header)| header).max_by_key(|header| header.sequence).expect("groups");
    let (epoch, next) = (newest.epoch, newest.sequence + 1);
    // What makes no sense, what could be a group of the future, and what has something in every
    // field.
    let forgeries = [
        forged(1, 1, 1 << 63, 0),
        forged(epoch, next + 300, next + 299, 0),
        forged(epoch + 1, next + 300, next + 299, 0),
        forged(epoch, next + 300, next + 299, 0x1234_5678),
    ];
    for (at, header) in forgeries.iter().enumerate() {
        plant(&mut fixture, volume, (at * 32 * KIB) as u64, header);
    }
    // The groups with them are needed no longer, and their bytes stay.
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.crash().expect("it opens");
    // The head has come round, as far as between the beginning of such a group and its end.
    for header in &forgeries {
        for drive in 0..4 {
            let ring = fixture.test_drives.peek(drive, LOG_AT, 8 << 20);
            let Some(at) = ring.chunks(BLOCK).position(|block| block.starts_with(header)) else { continue };
            fixture.test_drives.erase(drive, LOG_AT + ((at - 1) * BLOCK) as u64, BLOCK as u64);
        }
    }
    fixture.crash().expect("it opens");
    for at in 0..forgeries.len() as u64 {
        let written = fixture.read(volume, at * 32 * KIB as u64, BLOCK).expect("read");
        assert!(written[..64] == pattern(at * 32 * KIB as u64, BLOCK)[..64]);
    }
}

/// Where its label says nothing any more, a drive is taken for a new one, whatever its ring holds.
#[test]
fn a_drive_of_another_history_that_was_wiped_joins_and_the_pool_opens() {
    let mut fixture = Fixture::new(5, 5, 6);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 64 * KIB)).expect("written");
    fixture.command(Command::Close).expect("closed");
    // Two drives alone write much by an override.
    let whole: Vec<_> = fixture.test_drives.drives.clone();
    fixture.options.override_quorum = true;
    (2..5).for_each(|drive| fixture.test_drives.drives[drive].gone = true);
    fixture.open().expect("opened by an override");
    for number in 0..300u64 {
        fixture.write(volume, number % 16 * 4096, &pattern(number, 4096)).expect("accepted by the operator");
    }
    let apart = (0..2).find(|drive| groups(&fixture, *drive).len() > 300).expect("a member of the log");
    let mut other = fixture.test_drives.drives[apart].clone();
    // The other three go on without them.
    fixture.options.override_quorum = false;
    fixture.test_drives.kill();
    fixture.test_drives.drives = whole;
    (0..2).for_each(|drive| fixture.test_drives.drives[drive].gone = true);
    fixture.open().expect("opened by a majority");
    fixture.write(volume, 0, &pattern(2, 64 * KIB)).expect("written");
    // One of the two comes back as a new drive.
    other.gone = false;
    fixture.test_drives.drives[apart] = other;
    fixture.test_drives.erase(apart, 0, LOG_AT);
    fixture.test_drives.erase(apart, (62 << 20) as u64, 2 << 20);
    let index = fixture.give_back(apart);
    let drives = vec![(index as u32, DriveId([99; 16]))];
    fixture.command(Command::AddDrives { drives }).expect("it joins");
    let members = fixture.pool.serving().expect("open").engine.log.members().0;
    assert!(members.iter().any(|member| member.0 == 5), "the new drive is a member of the log: {members:?}");
    fixture.write(volume, 0, &pattern(3, 64 * KIB)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.crash().expect("it opens");
    assert!(fixture.read(volume, 0, 64 * KIB).expect("read") == pattern(3, 64 * KIB));
}
