//! The workloads of one and two operations whose every crash is tried.

use stele_array::{DigestUnit, OpenOptions, VolumeSpec, WriteMode};
use stele_ground::{Bytes, Duration, KIB, MIB};

use super::{Case, Deed};

const STRIP: u64 = 16 * KIB;

/// The stripe of a code with so many data strips.
const fn stripe(data: u64) -> u64 {
    data * STRIP
}

/// Tiny pools of two codes, and on each the workloads.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (code, data, drives) in [("mirror-2", 1, 3), ("2+1", 2, 4)] {
        for digest in [DigestUnit::Block, DigestUnit::Strip] {
            for (name, before, deeds, at_once) in workloads(data) {
                cases.push(Case {
                    name: format!("{name} on {code} by {digest:?}").to_lowercase(),
                    drives,
                    drive_size: Bytes(32 * MIB),
                    log: Bytes(4 * MIB),
                    tear: Bytes(4096),
                    volume: VolumeSpec {
                        name: "drill".into(),
                        code: code.parse().unwrap_or_else(|error| unreachable!("{error}")),
                        size: Bytes(4 * stripe(data)),
                        strip: Bytes(STRIP),
                        block: Bytes(4096),
                        digest,
                        mode: WriteMode::WriteBack,
                        fully_allocated: false,
                        owner: None,
                    },
                    open: OpenOptions::default(),
                    before,
                    deeds,
                    at_once,
                    after: Duration::from_secs(3),
                });
            }
        }
    }
    cases
}

type Workload = (&'static str, Vec<Deed>, Vec<Deed>, bool);

fn workloads(data: u64) -> Vec<Workload> {
    let whole = stripe(data);
    let write = |at, length| Deed::Write { at, length };
    let old = vec![write(0, 4 * whole)];
    vec![
        ("a small write to new space", vec![], vec![write(4096, 4096)], true),
        ("a small write over old data", old.clone(), vec![write(4096, 8192)], true),
        ("a whole stripe to new space", vec![], vec![write(0, whole)], true),
        ("a whole stripe over old data", old.clone(), vec![write(whole, whole)], true),
        ("a write across stripes", old.clone(), vec![write(whole - 4096, 8192)], true),
        ("zeroing a part", old.clone(), vec![Deed::Zero { at: 4096, length: 8192 }], true),
        ("discarding a stripe", old.clone(), vec![Deed::Discard { at: whole, length: whole }], true),
        ("two writes of the same blocks at once", old.clone(), vec![write(0, 8192), write(4096, 8192)], true),
        ("two writes of one stripe in turn", old.clone(), vec![write(0, 4096), write(8192, 4096)], false),
        ("a small write, then its whole stripe", old.clone(), vec![write(4096, 4096), write(0, whole)], false),
        ("a whole stripe, then a small write into it", old.clone(), vec![write(0, whole), write(4096, 4096)], false),
        (
            "a whole stripe and a small write into it at once",
            old.clone(),
            vec![write(0, whole), write(4096, 4096)],
            true,
        ),
        (
            "a write, then its stripe discarded",
            old.clone(),
            vec![write(0, 4096), Deed::Discard { at: 0, length: whole }],
            false,
        ),
        (
            "a discarded stripe written again",
            old.clone(),
            vec![Deed::Discard { at: 0, length: whole }, write(0, 4096)],
            false,
        ),
        ("a write, then a checkpoint", old.clone(), vec![write(4096, 8192), Deed::Checkpoint], false),
        ("a whole stripe and a checkpoint at once", old, vec![write(0, whole), Deed::Checkpoint], true),
    ]
}
