use stele_array::{DigestUnit, WriteMode};
use stele_ground::{KIB, MIB};

use super::*;
use crate::run::mirror::{Flaw, Mirror};

#[derive(Default)]
struct Right;
impl Flaw for Right {}

#[derive(Default)]
struct NotDurable;
impl Flaw for NotDurable {
    const DURABLE: bool = false;
}

#[derive(Default)]
struct NoResync;
impl Flaw for NoResync {
    const RESYNC: bool = false;
}

fn case() -> Case {
    Case {
        name: "two writes to a mirror".into(),
        drives: 2,
        drive_size: Bytes(12 * MIB),
        log: Bytes(MIB),
        tear: Bytes(4096),
        volume: VolumeSpec {
            name: "v".into(),
            code: "mirror-2".parse().expect("a code"),
            size: Bytes(64 * KIB),
            strip: Bytes(16 * KIB),
            block: Bytes(4096),
            digest: DigestUnit::Block,
            mode: WriteMode::WriteBack,
            fully_allocated: false,
            spread: false,
            owner: None,
        },
        open: OpenOptions::default(),
        absent: Vec::new(),
        before: vec![Deed::Write { at: 0, length: 16 * KIB }],
        deeds: vec![Deed::Write { at: 4096, length: 8192 }, Deed::Write { at: 8192, length: 8192 }],
        at_once: true,
        after: Duration(0),
    }
}

const ALL: Effort = Effort { outcomes: u64::MAX, stride: 1, again: 8 };

#[test]
fn a_right_mirror_survives_every_crash() {
    let tried = enumerate::<Mirror<Right>>(&case(), ALL, &mut Coverage::default()).expect("it is right");
    assert_eq!(tried.points, tried.exhausted);
    assert!(tried.points >= 8 && tried.recoveries >= 20, "{tried:?}");
}

#[test]
fn broken_mirrors_are_found() {
    fn check<F: Flaw>(name: &str) {
        let verdict = enumerate::<Mirror<F>>(&case(), ALL, &mut Coverage::default());
        let found = verdict.as_ref().is_err_and(|violation| violation.0.contains("was read as"));
        assert!(found, "{name}: {verdict:?}");
    }
    check::<NotDurable>("not durable");
    check::<NoResync>("no resync");
}
