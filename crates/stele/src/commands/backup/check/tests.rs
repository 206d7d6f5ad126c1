use stele_backup::snapshot::SnapshotId;

use super::*;

/// What a check found: one fault of each kind that is named.
fn found(kinds: &str) -> Verified {
    let mut found = Verified::default();
    let text = || "damaged".to_owned();
    for kind in kinds.split(' ') {
        match kind {
            "segment" => found.damaged.push((SegmentId([1; 32]), text())),
            "key" => found.damaged_keys.push(DamagedKey { name: "0102".to_owned(), text: text() }),
            "object" => found.damaged_objects.push(DamagedObject { name: "defaults".to_owned(), text: text() }),
            "newer" => found.newer.push(NewerObject { name: "snapshots/02".to_owned(), text: text() }),
            "snapshot" => found.unreadable.push((SnapshotId([2; 32]), text())),
            "file" => found.lost_files += 1,
            "repaired" => found.repaired_snapshots += 1,
            "unmarked" => found.unmarked = Some(text()),
            _ => {}
        }
    }
    found
}

#[test]
fn every_kind_of_damage_has_its_own_remedy() {
    let check = |kinds: &str, has: &[&str], lacks: &[&str]| {
        let failure = judged(&found(kinds), true).unwrap_err();
        let said = failure.to_string();
        assert_eq!(failure.kind, Kind::Damaged, "{kinds}");
        assert!(has.iter().all(|word| said.contains(word)), "{kinds}: {said}");
        assert!(!lacks.iter().any(|word| said.contains(word)), "{kinds}: {said}");
    };
    let (run, forget, key) = ("`stele backup run`", "`stele backup forget ID`", "`stele backup key remove KEY`");
    assert_eq!(judged(&found(""), true), Ok(()));
    assert_eq!(judged(&found("repaired"), true), Ok(()));
    check("segment file", &[run, "2 faults"], &[forget, key, "nothing is to be repaired"]);
    check("segment file unmarked", &["with the right to write"], &[run]);
    // No backup makes a snapshot anew.
    check("snapshot", &[forget, "1 fault"], &[run, key]);
    check("key", &[key, "1 fault"], &[run, forget, "nothing is to be repaired"]);
    check("object", &["as its line says", "1 fault"], &[run, forget, key, "nothing is to be repaired"]);
    check("segment file snapshot key", &[run, forget, key, "4 faults"], &["nothing is to be repaired"]);
    // What a later version wrote is never given up, and no damage.
    let newer = found("newer");
    assert!(newer.is_good());
    let failure = judged(&newer, true).unwrap_err();
    assert_eq!(failure.kind.exit_code(), 3);
    assert!(failure.error.contains("later version") && failure.next.contains("remove nothing"), "{failure}");
    check("newer key", &["remove nothing", key, "1 fault"], &[run, forget]);
    // What a later backup repaired is no reason for another one.
    check("segment repaired", &["the damaged content of 1 snapshot again", "are forgotten"], &[run, forget]);
    check("segment", &["no snapshot lacks anything", "`stele backup prune`"], &[run, forget]);
    check("segment repaired file", &[run], &["nothing is to be repaired"]);
}
