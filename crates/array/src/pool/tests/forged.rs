//! Bytes in the log's ring that look like its groups and are not.

use stele_ground::digest::crc32c;
use stele_ground::{BLOCK, VolumeId};

use super::KIB;
use super::sealed::groups;
use crate::drives::label::LOG_AT;
use crate::model::Command;
use crate::testing::{Fixture, pattern, spec};

/// A header as the format's page describes it, of the fixture's pool, by somebody who knows all that the pool shows.
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

/// Writes a header so that it lies where a group could begin: a group's first record has the host's bytes at 120.
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
    // What makes no sense, what could be a group of the future, and what has something in every field.
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
