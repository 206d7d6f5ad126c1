//! The workloads of one and two operations whose every crash is tried.

use stele_array::{DigestUnit, OpenOptions, VolumeSpec, WriteMode};
use stele_ground::{Bytes, Duration, KIB, MIB};

use super::{Case, Deed};

const STRIP: u64 = 16 * KIB;

/// The stripe of a code with this many data strips.
const fn stripe(data: u64) -> u64 {
    data * STRIP
}

/// The pool of a workload.
#[derive(Clone, Copy)]
struct Ground {
    code: &'static str,
    /// Number of data strips of the code.
    data: u64,
    drives: usize,
    digest: DigestUnit,
    mode: WriteMode,
    tear: Bytes,
    /// Number of missing drives.
    absent: usize,
}

/// Tiny pools of two codes, and on each the workloads of one and two operations. One of them also
/// gets those of three operations. Some workloads of each kind run on pools that differ in torn
/// units, in the time of the answer, and in missing drives.
pub fn cases() -> Vec<Case> {
    let mirror = Ground {
        code: "mirror-2",
        data: 1,
        drives: 3,
        digest: DigestUnit::Block,
        mode: WriteMode::WriteBack,
        tear: Bytes(4096),
        absent: 0,
    };
    let coded = Ground { code: "2+1", data: 2, drives: 4, ..mirror };
    let by_strip = |ground: Ground| Ground { digest: DigestUnit::Strip, ..ground };
    let mut cases = Vec::new();
    for ground in [mirror, by_strip(mirror), coded, by_strip(coded)] {
        cases.extend(workloads(ground.data).into_iter().map(|workload| on(ground, workload)));
    }
    cases.extend(longer(coded.data).into_iter().map(|workload| on(by_strip(coded), workload)));
    for ground in [mirror, coded, by_strip(coded)] {
        cases.extend(layered(ground.data).into_iter().map(|workload| on(ground, workload)));
    }
    for ground in [mirror, coded] {
        cases.extend(members(ground.data).into_iter().map(|workload| on(ground, workload)));
    }
    let torn = Ground { tear: Bytes(512), ..coded };
    let through = Ground { mode: WriteMode::WriteThrough, ..coded };
    let degraded = Ground { absent: 1, ..coded };
    for ground in [torn, through, degraded] {
        cases.extend(workloads(ground.data).into_iter().step_by(3).map(|workload| on(ground, workload)));
    }
    cases
}

fn on(ground: Ground, (name, before, deeds, at_once): Workload) -> Case {
    let Ground { code, drives, digest, mode, tear, absent, .. } = ground;
    let tears = if tear.0 < 4096 { ", torn at 512 bytes" } else { "" };
    let lacks = if absent > 0 { ", a drive missing" } else { "" };
    Case {
        name: format!("{name} on {code} by {digest:?}, {mode:?}{tears}{lacks}").to_lowercase(),
        drives,
        drive_size: Bytes(32 * MIB),
        log: Bytes(4 * MIB),
        tear,
        volume: VolumeSpec {
            name: "drill".into(),
            code: code.parse().unwrap_or_else(|error| unreachable!("{error}")),
            size: Bytes(4 * stripe(ground.data)),
            strip: Bytes(STRIP),
            block: Bytes(4096),
            digest,
            mode,
            fully_allocated: false,
            spread: false,
            owner: None,
        },
        open: OpenOptions::default(),
        absent: (0..absent).collect(),
        before,
        deeds,
        at_once,
        after: Duration::from_secs(3),
    }
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

/// Snapshots, and writes after them.
fn layered(data: u64) -> Vec<Workload> {
    let whole = stripe(data);
    let write = |at, length| Deed::Write { at, length };
    let shot = vec![write(0, 3 * whole), Deed::Snapshot];
    let changed = vec![write(0, 3 * whole), Deed::Snapshot, write(4096, 4096), write(whole, whole)];
    vec![
        (
            "a snapshot, then a small write",
            vec![write(0, 3 * whole)],
            vec![write(whole + 4096, 8192), Deed::Snapshot, write(4096, 4096)],
            false,
        ),
        ("a small write after a snapshot", shot.clone(), vec![write(4096, 4096)], true),
        ("a whole stripe after a snapshot", shot.clone(), vec![write(whole, whole)], true),
        ("a discard after a snapshot", shot, vec![Deed::Discard { at: 0, length: whole }], true),
        ("a rollback, then a write", changed.clone(), vec![Deed::RollBack, write(8192, 4096)], false),
        ("a write, then a rollback", changed.clone(), vec![write(0, 4096), Deed::RollBack], false),
        ("a snapshot deleted", changed.clone(), vec![Deed::DeleteSnapshot], false),
        ("a write, and its snapshot deleted", changed, vec![write(2 * whole, 8192), Deed::DeleteSnapshot], false),
    ]
}

/// Drives that are added and removed.
fn members(data: u64) -> Vec<Workload> {
    let whole = stripe(data);
    let write = |at, length| Deed::Write { at, length };
    let old = vec![write(0, 4 * whole)];
    let (leave, back) = (Deed::Leave { drive: 1 }, Deed::Return { drive: 1 });
    vec![
        ("a drive leaves, then a small write", old.clone(), vec![leave, write(4096, 4096)], false),
        ("a small write while a drive leaves", old.clone(), vec![write(4096, 4096), leave], true),
        ("a drive leaves, a small write, and it returns", old.clone(), vec![leave, write(4096, 4096), back], false),
        ("a drive is added beside a small write", old.clone(), vec![Deed::Add, write(4096, 4096)], true),
        ("a drive is replaced", old, vec![Deed::Replace { drive: 1 }, write(4096, 4096)], false),
    ]
}

/// Three operations.
fn longer(data: u64) -> Vec<Workload> {
    let whole = stripe(data);
    let write = |at, length| Deed::Write { at, length };
    let discard = Deed::Discard { at: 0, length: whole };
    let old = vec![write(0, 4 * whole)];
    vec![
        (
            "a small write, its whole stripe, a small write again",
            old.clone(),
            vec![write(4096, 4096), write(0, whole), write(0, 8192)],
            false,
        ),
        ("a stripe discarded, written, discarded", old.clone(), vec![discard, write(0, 8192), discard], false),
        (
            "a write, a checkpoint, the same write again",
            old.clone(),
            vec![write(4096, 8192), Deed::Checkpoint, write(4096, 8192)],
            false,
        ),
        (
            "a whole stripe, a checkpoint, a whole stripe",
            old.clone(),
            vec![write(0, whole), Deed::Checkpoint, write(0, whole)],
            false,
        ),
        ("three overlapping writes at once", old, vec![write(0, 8192), write(4096, 8192), write(8192, 8192)], true),
    ]
}
