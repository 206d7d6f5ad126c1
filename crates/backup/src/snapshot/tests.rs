use zeroize::Zeroizing;

use super::*;
use crate::segment::SegmentId;

const REPOSITORY: [u8; 16] = [4; 16];

fn keys() -> Keys {
    Keys::new(Zeroizing::new([9; 32]))
}

fn snapshot() -> Snapshot {
    let mut references = References::default();
    references.0.entry(SegmentId([1; 32])).or_default().insert(7);
    let tree = ["a", "b/c", "b/f", "d", "d/e/f", "x"].iter().enumerate();
    let description = Description {
        host: "host".to_owned(),
        paths: vec![b"srv".to_vec()],
        tags: vec!["tag".to_owned()],
        excludes: vec!["*.o".to_owned()],
        counts: Counts { files: 3, bytes: 1 << 40, ..Counts::default() },
        problems: 1,
        issues: vec![Issue { path: b"srv/x".to_vec(), text: "cannot".to_owned() }],
        tree: tree.map(|(at, first)| (ChunkId([at as u8; 32]), first.as_bytes().to_vec())).collect(),
        ..Description::default()
    };
    Snapshot { references, description }
}

#[test]
fn a_snapshot_reads_back_and_its_references_without_the_key() {
    let (id, bytes) = snapshot().encode(&REPOSITORY, &keys(), [2; 32]).unwrap();
    assert_eq!(Snapshot::decode(&bytes, &id, &REPOSITORY, &keys()), Ok(snapshot()));
    assert_eq!(Snapshot::decode_references(&bytes, &id, &REPOSITORY), Ok(snapshot().references));
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("srv") && !text.contains("host"), "the server sees names");
}

#[test]
fn another_key_repository_or_name_opens_nothing() {
    let (id, bytes) = snapshot().encode(&REPOSITORY, &keys(), [2; 32]).unwrap();
    let other = Keys::new(Zeroizing::new([8; 32]));
    assert!(Snapshot::decode(&bytes, &id, &REPOSITORY, &other).is_err());
    assert!(Snapshot::decode(&bytes, &id, &[5; 16], &keys()).is_err());
    assert!(Snapshot::decode(&bytes, &SnapshotId([0; 32]), &REPOSITORY, &keys()).is_err());
}

#[test]
fn every_changed_byte_is_noticed_also_under_its_new_name() {
    let (_, whole) = snapshot().encode(&REPOSITORY, &keys(), [2; 32]).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        // A server can rewrite its own list and the name. The description is bound to both.
        let id = SnapshotId(*blake3::hash(&bytes).as_bytes());
        assert!(Snapshot::decode(&bytes, &id, &REPOSITORY, &keys()).is_err(), "byte {at}");
        assert!(Snapshot::decode(&whole[..at], &id, &REPOSITORY, &keys()).is_err());
    }
}

#[test]
fn a_path_needs_only_its_chunks_of_the_tree() {
    let description = snapshot().description;
    let check = |path: &str, expected: &[u8]| {
        let found: Vec<u8> = description.tree_of(path.as_bytes()).iter().map(|(id, _)| id.0[0]).collect();
        assert_eq!(found, expected, "{path}");
    };
    check("", &[0, 1, 2, 3, 4, 5]);
    check("a", &[0]);
    check("b", &[0, 1, 2]);
    check("b/c", &[1]);
    check("b/d", &[1]);
    check("d", &[3, 4]);
    check("d/e", &[3, 4]);
    check("d/e/g", &[4]);
    check("zz", &[5]);
}

#[test]
fn what_is_written_can_be_opened() {
    let check = |change: &dyn Fn(&mut Description)| {
        let mut snapshot = snapshot();
        change(&mut snapshot.description);
        let (id, bytes) = snapshot.encode(&REPOSITORY, &keys(), [2; 32])?;
        Ok(Snapshot::decode(&bytes, &id, &REPOSITORY, &keys()).unwrap().description)
    };
    let invalid = |change: &dyn Fn(&mut Description)| assert!(matches!(check(change), Err(BackupError::Invalid(_))));
    invalid(&|is| is.paths = vec![b"x".to_vec(); WORDS_MAX + 1]);
    invalid(&|is| is.paths[0] = vec![b'x'; PATH_MAX + 1]);
    invalid(&|is| is.tags = vec!["x".to_owned(); WORDS_MAX + 1]);
    invalid(&|is| is.tags[0] = "x".repeat(NAME_MAX + 1));
    invalid(&|is| is.excludes[0] = "x".repeat(NAME_MAX + 1));
    invalid(&|is| is.host = "x".repeat(NAME_MAX + 1));
    invalid(&|is| is.tree[0].1 = vec![b'x'; PATH_MAX + 1]);
    // A path that is too long to be saved is an issue, and so are causes of any length: both are
    // cut.
    let long = Issue { path: vec![b'x'; PATH_MAX + 1], text: "\u{fc}".repeat(NAME_MAX) };
    let opened = check(&|is| is.issues = vec![long.clone(); ISSUES_MAX + 1]).unwrap();
    assert_eq!(opened.issues.len(), ISSUES_MAX);
    assert_eq!((opened.issues[0].path.len(), opened.issues[0].text.len()), (PATH_MAX, NAME_MAX));
}

/// A snapshot of the first version, as the first program wrote it.
const FIRST: &str = "\
    53544c42534e5031040404040404040404040404040404040101010101010101010101010101010101010101010101010101\
    0101010101010101070102020202020202020202020202020202020202020202020202020202020202026900000000000000\
    0692c330423d8b08dd22ef7760638171fd96875f7711c364ebe87671459c544c30571e5d28d80c5937cf1314d7ba3fb69eb7\
    849966b2bfed921871505ca2705a7e902ae04a4d59f7a58cbd6368683409e5809de2a1cb2f0e6e710786d1b0a736e96fabef\
    935972ea3f\
";

#[test]
fn a_snapshot_of_the_first_version_is_still_read() {
    let digits = FIRST.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
    let bytes: Vec<u8> = digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect();
    let id = SnapshotId(*blake3::hash(&bytes).as_bytes());
    assert_eq!(Snapshot::decode(&bytes, &id, &REPOSITORY, &keys()), Ok(snapshot()));
    assert_eq!(Snapshot::decode_references(&bytes, &id, &REPOSITORY), Ok(snapshot().references));
}

#[test]
fn a_description_without_an_end_ended_when_it_began() {
    let is = Description { begun: 7, finished: 9 * NANOS, ..snapshot().description };
    let mut bytes = is.encode();
    assert_eq!(Description::decode(&bytes), Ok(is.clone()));
    // The first version: another number, and no end behind the beginning.
    let beginning = 1 + 5 + 1 + 1;
    assert_eq!((bytes[0], bytes[beginning]), (2, 7));
    let mut end = Vec::new();
    put_varint(&mut end, is.finished);
    bytes.drain(beginning + 1..beginning + 1 + end.len());
    bytes[0] = 1;
    assert_eq!(Description::decode(&bytes), Ok(Description { finished: 7 * NANOS, ..is }));
    bytes[0] = 3;
    assert!(Description::decode(&bytes).is_err());
}

#[test]
fn a_description_of_a_later_version_is_no_damage() {
    let mut bytes = snapshot().description.encode();
    for (version, is_newer) in [(0, false), (4, true), (9, true)] {
        bytes[0] = version;
        match Description::decode(&bytes) {
            Err(BackupError::Newer(text)) if is_newer => assert!(text.contains("use that version"), "{text}"),
            Err(BackupError::Damaged(_)) if !is_newer => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_description_opens_with_its_own_references_only() {
    let (_, whole) = snapshot().encode(&REPOSITORY, &keys(), [2; 32]).unwrap();
    // Who has no key makes a new snapshot of an old one, with other references or in the first
    // version.
    let sealed = &whole[24 + 1 + 32 + 3..];
    let mut other = References::default();
    other.0.entry(SegmentId([1; 32])).or_default().insert(8);
    for magic in [b"STLBSNP1", b"STLBSNP2"] {
        for references in [References::default(), other.clone(), snapshot().references] {
            let mut forged = [magic.as_slice(), &REPOSITORY].concat();
            references.encode(&mut forged);
            forged.extend_from_slice(sealed);
            let id = SnapshotId(*blake3::hash(&forged).as_bytes());
            let opened = Snapshot::decode(&forged, &id, &REPOSITORY, &keys());
            assert_eq!(opened.is_ok(), forged == whole, "{references:?}");
        }
    }
}

#[test]
fn a_snapshot_that_began_long_before_its_date_is_doubtful() {
    let is = Description { begun: 1_000_000, ..Description::default() };
    let check = |stored: u64, expected: bool| assert_eq!(is.doubt(stored).is_some(), expected, "{stored}");
    check(0, false);
    check(1_000_000 + BACKUP_SECONDS_MAX, false);
    check(1_000_000 + BACKUP_SECONDS_MAX + 86_400, true);
}

#[test]
fn a_date_far_from_the_end_of_the_backup_is_wrong() {
    let check = |finished: u64, stored: u64, expected: bool| {
        let is = Description { begun: 1_000_000, finished, ..Description::default() };
        assert_eq!(is.is_misdated(stored), expected, "{finished} {stored}");
    };
    let end = 5_000_000;
    check(end * NANOS, end + DRIFT_SECONDS_MAX, false);
    check(end * NANOS, end - DRIFT_SECONDS_MAX, false);
    check(end * NANOS, end + DRIFT_SECONDS_MAX + 1, true);
    check(end * NANOS, end - DRIFT_SECONDS_MAX - 1, true);
    // Without an end, the backup may have taken long.
    check(1_000_000 * NANOS, 1_000_000 + BACKUP_SECONDS_MAX, false);
    check(1_000_000 * NANOS, 1_000_000 + BACKUP_SECONDS_MAX + 1, true);
}

/// The test runs itself again with little memory: as on a small machine, or one that lends no
/// memory that it lacks.
#[test]
fn a_snapshot_is_read_with_little_memory() {
    let whole = snapshot();
    let (id, bytes) = whole.encode(&REPOSITORY, &keys(), [2; 32]).unwrap();
    if std::env::var_os("STELE_TEST_SMALL").is_some() {
        assert_eq!(Snapshot::decode(&bytes, &id, &REPOSITORY, &keys()), Ok(whole));
        return;
    }
    let name = "snapshot::tests::a_snapshot_is_read_with_little_memory";
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", "ulimit -v 786432 && exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--test-threads", "1"]).env("STELE_TEST_SMALL", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "the test was not run");
}
