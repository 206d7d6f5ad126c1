use stele_ground::Bytes;

use super::mirror::{Flaw, Mirror};
use super::*;

macro_rules! variant {
    ($name:ident { $($flaw:tt)* }) => {
        #[derive(Default)]
        struct $name;
        impl Flaw for $name { $($flaw)* }
    };
}

variant!(Right {});
variant!(NotDurable { const DURABLE: bool = false; });
variant!(NotAll { const ALL: bool = false; });
variant!(NoResync { const RESYNC: bool = false; });
variant!(NotSerial { const SERIAL: bool = false; });
variant!(Astray { const ASTRAY: u64 = 500; });
variant!(Silent { const SILENT: u64 = 500; });

/// A world for a simple mirror: few drives, whole pages.
fn setup(seed: u64, tear: u64) -> Setup {
    let mut setup = Setup::drawn(seed, Campaign::Crashes);
    setup.enclosures.truncate(3);
    setup.drive_block = Bytes(4096);
    setup.tear = Bytes(tear);
    setup.drive_size = Bytes(32 << 20);
    setup.volumes.truncate(1);
    setup.steps = 10;
    setup.snapshots = false;
    setup.growth = false;
    for volume in &mut setup.volumes {
        volume.block = Bytes(4096);
        volume.size = Bytes(volume.size.0.min(1 << 20));
    }
    setup
}

/// The failure of the first failing seed; `None` if all pass.
fn first_failure<F: Flaw>(seeds: u64, tear: u64) -> Option<String> {
    (0..seeds).find_map(|seed| {
        let run = run_setup::<Mirror<F>>(seed, setup(seed, tear), 20);
        run.verdict.err().map(|violation| format!("seed {seed}: {violation}\n{}", run.tail.join("\n")))
    })
}

#[test]
fn a_right_array_passes() {
    assert_eq!(first_failure::<Right>(20, 4096), None);
}

#[test]
fn every_broken_array_is_caught() {
    let check = |name: &str, failure: Option<String>, reason: &str| {
        let failure = failure.unwrap_or_else(|| panic!("{name}: the oracle saw nothing"));
        assert!(failure.contains(reason), "{name} failed for another reason: {failure}");
    };
    check("not durable", first_failure::<NotDurable>(20, 4096), "was read as");
    check("not on all drives", first_failure::<NotAll>(20, 4096), "was read as");
    check("no resync", first_failure::<NoResync>(20, 4096), "was read as");
    check("not serial", first_failure::<NotSerial>(40, 4096), "was read as");
    check("reads astray", first_failure::<Astray>(20, 4096), "was read as");
    check("forgets answers", first_failure::<Silent>(20, 4096), "not answered");
    // A part of a block comes from one write, and a part from another or from none.
    check("torn sectors", first_failure::<Right>(20, 512), "was read as bytes");
}

#[test]
fn one_seed_is_one_trace() {
    for seed in 0..4 {
        let [first, second] = [(), ()].map(|()| run_setup::<Mirror<Right>>(seed, setup(seed, 4096), 0));
        assert_eq!((first.hash, first.events), (second.hash, second.events));
        assert!(first.events > 1_000, "{}", first.events);
    }
}
