//! Where the mark of a committed file may move.

use super::*;
use crate::model::{Attributes, Inode, Kind, Moment};

#[test]
fn a_mark_moves_back_only_where_a_retention_was_lifted() {
    let now = Moment::default();
    let attributes = Attributes {
        inode: Inode(16),
        kind: Kind::File,
        mode: 0o644,
        links: 1,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        accessed: now,
        modified: now,
        changed: now,
        change: 1,
    };
    let mut row = InodeRow::new(&attributes);
    assert!(commit(&mut row, 5_000, false));
    for (until, lifted, expected) in [(3_000, false, 5_000), (9_000, false, 9_000), (2_000, true, 2_000)] {
        assert!(!commit(&mut row, until, lifted));
        assert_eq!(row.committed, Some(expected), "{until} {lifted}");
        assert_eq!(Moment::from(row.accessed), shown(stele_archive::Timestamp(expected)));
    }
    let retention = |mode, until| Some(Retention { mode, until: stele_archive::Timestamp(until) });
    use RetentionMode::{Compliance, Governance};
    let cases = [
        (None, retention(Governance, 1), false),
        (retention(Compliance, 5), None, false),
        (retention(Governance, 5), None, true),
        (retention(Governance, 5), retention(Governance, 4), true),
        (retention(Governance, 5), retention(Compliance, 5), false),
    ];
    for (before, after, lifted) in cases {
        assert_eq!(is_lifted(before, after), lifted, "{before:?} {after:?}");
    }
}
