//! Long reads whose answer is what the drives gave.

use stele_ground::{Bytes, Dice};
use stele_media::Op;

use crate::model::{Command, DigestUnit, OpenOptions, VolumeSpec};
use crate::testing::{Fixture, pattern, spec};

const KIB: u64 = 1024;
const SIZE: u64 = 8 << 20;

fn counted(fixture: &mut Fixture, name: &str) -> u64 {
    let status = fixture.status();
    status.counters.iter().find(|(counter, _)| *counter == name).expect("it is counted").1
}

/// Views of a volume, none of it in the cache, which is small and full after a few. What was
/// copied meanwhile.
fn copied_by_views(shape: &VolumeSpec, length: u64, pulled: &[usize]) -> u64 {
    let options = OpenOptions { block_cache: Bytes(512 * KIB), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(6, 6, 1, options);
    fixture.settle().expect("created");
    let volume = fixture.create_volume(shape.clone()).id;
    let data = pattern(1, SIZE as usize);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::SetVolume { name: "a".into(), read_ahead: Some(0), mode: None }).expect("set");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    fixture.pull(pulled);
    let before = counted(&mut fixture, "bytes copied");
    let mut dice = Dice::new(5);
    for _ in 0..100 {
        let at = dice.below((SIZE - length) / (4 * KIB)) * 4 * KIB;
        let (_, answers) = fixture.submit_all(volume, vec![Op::View { at, length, pieces: Vec::new() }]);
        let Some(Some((Op::View { pieces, .. }, Ok(())))) = answers.into_iter().next() else {
            panic!("no answer to a view of {length} bytes at {at}")
        };
        let same = pieces.concat() == data[at as usize..(at + length) as usize];
        assert!(same, "{:?}: {length} bytes at {at}", shape.code);
    }
    counted(&mut fixture, "bytes copied") - before
}

#[test]
fn long_views_copy_little_of_what_the_drives_gave() {
    for code in ["mirror-2", "2+1"] {
        let shape = spec("a", code, SIZE);
        let copied = copied_by_views(&shape, 256 * KIB, &[]);
        // Parts of it may be in the cache, which was filled first.
        assert!(copied < 100 * 256 * KIB / 4, "{code}: {copied} bytes were copied");
        copied_by_views(&shape, 256 * KIB, &[2]);
        copied_by_views(&shape, 4 * KIB, &[2]);
        // A unit of a whole strip, of which a block is asked for.
        let coarse = VolumeSpec { digest: DigestUnit::Strip, ..shape };
        copied_by_views(&coarse, 4 * KIB, &[]);
        copied_by_views(&coarse, 128 * KIB, &[]);
    }
}
