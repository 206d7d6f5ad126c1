//! Stripes of which something is lost for good: never invented, whatever is written beside it.

use super::KIB;
use crate::model::{DigestUnit, VolumeSpec, WriteMode};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

#[test]
fn what_is_lost_of_a_mirror_is_lost_in_every_copy_when_it_is_written_beside() {
    const SIZE: usize = 16 << 20;
    for code in ["mirror-2", "2+1"] {
        let mut fixture = Fixture::new(5, 5, 1);
        let (mode, digest) = (WriteMode::WriteThrough, DigestUnit::Strip);
        let volume = fixture.create_volume(VolumeSpec { mode, digest, ..spec("a", code, SIZE as u64) }).id;
        let mut data = pattern(1, SIZE);
        fixture.write(volume, 0, &data).expect("written");
        fixture.command(crate::model::Command::Close).expect("closed");
        fixture.open().expect("opened, with nothing cached");
        for drive in [0, 1] {
            fixture.test_drives.damage(drive, 12 << 20, 8 << 20);
        }
        let mut changed = 0;
        for at in (0..SIZE).step_by(64 * KIB) {
            let piece = pattern(at as u64 + 2, 4 * KIB);
            if fixture.write(volume, at as u64, &piece).is_ok() {
                data[at..at + 4 * KIB].copy_from_slice(&piece);
                changed += 1;
            }
        }
        assert!(changed > 0, "{code}: some stripe goes on");
        fixture.idle();
        let mut lost = 0;
        for at in (0..SIZE).step_by(4 * KIB) {
            match fixture.read(volume, at as u64, 4 * KIB) {
                Ok(read) => assert!(read == data[at..at + 4 * KIB], "{code}: the block at {at} is invented"),
                Err(NoAnswer::Media(error)) if error.fault == stele_media::MediaFault::Damaged => lost += 1,
                Err(other) => panic!("{code}: {other:?}"),
            }
        }
        assert!(lost > 0, "{code}: something was lost");
    }
}
