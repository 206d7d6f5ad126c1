use std::os::unix::fs::symlink;

use super::*;

/// A directory of a test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("stele-heads-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn head(records: u64, link: &str) -> SignedHead {
    SignedHead {
        store: "store".into(),
        records,
        link: link.into(),
        root: "root".into(),
        time: "now".into(),
        public_key: "key".into(),
        signature: "signature".into(),
    }
}

#[test]
fn a_head_follows_no_link_that_others_planted() {
    let (place, elsewhere) = (Folder::new("links"), Folder::new("links-elsewhere"));
    let key = elsewhere.0.join("master.key");
    fs::write(&key, "the key").unwrap();
    for name in ["00000000000000000007.new", "00000000000000000007.head.new", "00000000000000000007.head"] {
        symlink(&key, place.0.join(name)).unwrap();
    }
    write(&place.0, &head(7, "aa")).unwrap();
    assert_eq!(fs::read_to_string(&key).unwrap(), "the key");
    let path = place.0.join("00000000000000000007.head");
    assert!(fs::symlink_metadata(&path).unwrap().is_file(), "the link in its place is replaced");
    assert_eq!(read(&path).unwrap().records, 7);
    assert_eq!(place.names().len(), 3, "nothing is left behind: {:?}", place.names());
}

#[test]
fn a_head_of_another_history_is_kept_beside() {
    let place = Folder::new("histories");
    write(&place.0, &head(7, "aabbccddeeff")).unwrap();
    write(&place.0, &head(7, "1122334455")).unwrap();
    write(&place.0, &head(7, "aabbccddeeff")).unwrap();
    assert_eq!(place.names(), ["00000000000000000007-11223344.head", "00000000000000000007.head"]);
}

/// What a pool whose log ends at record 3000 finds in a place.
async fn compared(place: &Folder) -> Compared {
    let mut compared = Compared::default();
    let shown = Shown::begin(&place.0, list, &Looking::default());
    let verdict = |head: &SignedHead| {
        Ok(match head.records {
            1000 => HeadVerdict::Lost,
            2000 => HeadVerdict::Foreign("another store".into()),
            0..=3000 => HeadVerdict::Contained,
            theirs => HeadVerdict::Newer { theirs, ours: 3000 },
        })
    };
    judge(&mut compared, &place.0, shown, Instant::now() + PATIENCE, verdict).await.unwrap();
    compared
}

/// Adds a genuine head under a name.
fn add(place: &Folder, name: &str, records: u64) {
    fs::write(place.0.join(name), serde_json::to_string(&head(records, "aa")).unwrap()).unwrap();
}

#[tokio::test]
async fn an_added_head_hides_no_newer_one() {
    // The names of a genuine old head that another writer adds beside the newest one.
    let names = [
        "99999999999999999999.head",
        "18446744073709551615.head",
        "00000000000000009000.head",
        "copy of 00000000000000003000.head",
        "zzz.head",
    ];
    for name in names {
        for records in [0, 3000] {
            let place = Folder::new("added");
            add(&place, "00000000000000005000.head", 5000);
            add(&place, name, records);
            let compared = compared(&place).await;
            let trouble = compared.trouble.unwrap_or_else(|| panic!("{name} hides the newest head"));
            assert!(trouble.message.contains("at record 5000"), "{name}: {}", trouble.message);
            assert!(compared.unasked.iter().any(|found| found.message.contains("under another name")), "{name}");
        }
    }
}

#[tokio::test]
async fn a_place_of_this_log_raises_nothing() {
    let place = Folder::new("sound");
    for records in [0, 1, 2999, 3000] {
        add(&place, &format!("{records:020}.head"), records);
    }
    // From before a rebuild that lost it.
    add(&place, "00000000000000001000-bb.head", 1000);
    let compared = compared(&place).await;
    assert!(compared.trouble.is_none() && compared.unasked.is_empty(), "{:?}", compared.unasked);
    assert!(list(&place.0.join("not there")).unwrap().is_empty());
}

#[tokio::test]
async fn a_newer_head_under_a_wrong_name_counts() {
    let place = Folder::new("renamed");
    add(&place, "00000000000000009000.head", 5000);
    assert!(compared(&place).await.trouble.is_some());
}

#[tokio::test]
async fn files_that_are_no_heads_are_told_and_passed_over() {
    let (place, elsewhere) = (Folder::new("strange"), Folder::new("strange-elsewhere"));
    add(&place, "00000000000000005000.head", 5000);
    add(&elsewhere, "real.head", 3000);
    symlink(elsewhere.0.join("real.head"), place.0.join("00000000000000006000.head")).unwrap();
    symlink("/dev/zero", place.0.join("00000000000000006001.head")).unwrap();
    // No process writes into the pipe: an ordinary opening would wait for ever.
    let pipe = place.0.join("00000000000000006002.head");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    File::create(place.0.join("00000000000000006003.head")).unwrap().set_len(HEAD_BYTES_MAX + 1).unwrap();
    fs::create_dir(place.0.join("00000000000000006004.head")).unwrap();
    for number in 7000..7100 {
        add(&place, &format!("{number:020}.head"), 2000);
    }
    let compared = compared(&place).await;
    assert!(compared.trouble.is_some(), "the newest head is found behind them");
    assert_eq!(compared.unasked.len(), STRANGE_TOLD + 1, "{:?}", compared.unasked);
    let more = |found: &HeadFinding| found.message.contains("has 100 more files");
    assert!(compared.unasked.iter().any(more), "{:?}", compared.unasked);
}

#[tokio::test]
async fn a_place_that_hangs_delays_a_comparison_for_its_time_only() {
    let place = Folder::new("hangs");
    // A hard mount of a server that is away: its calls return when it comes back, or never.
    let hangs: fn(&Path) -> Outcome<Vec<PathBuf>> = |_| loop {
        std::thread::park();
    };
    let mut compared = Compared::default();
    let shown = Shown::begin(&place.0, hangs, &Looking::default());
    judge(&mut compared, &place.0, shown, Instant::now(), |_| unreachable!("no head was shown")).await.unwrap();
    assert!(compared.trouble.is_none());
    assert!(compared.unasked[0].message.contains("did not show its heads"), "{:?}", compared.unasked);
}

/// A head that this key signed at a time (FORMAT/archive.md).
fn signed(key: &aws_lc_rs::signature::Ed25519KeyPair, time: &str) -> SignedHead {
    use aws_lc_rs::signature::KeyPair;
    let hex = crate::witness::hex;
    let mut head = SignedHead { time: time.into(), public_key: hex(key.public_key().as_ref()), ..head(7, "aa") };
    let SignedHead { store, records, link, root, time, .. } = &head;
    let text = format!("stele audit head 1\n{store}\n{records}\n{link}\n{root}\n{time}\n");
    head.signature = hex(key.sign(text.as_bytes()).as_ref());
    head
}

#[test]
fn a_head_with_a_time_stamp_is_not_replaced() {
    let place = Folder::new("stamped");
    let [key, stranger] =
        [1, 2].map(|seed| aws_lc_rs::signature::Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap());
    let (first, second) = (signed(&key, "earlier"), signed(&key, "later"));
    let path = place.0.join("00000000000000000007.head");
    let there = || read(&path).unwrap();
    // A head of others, though it has a stamp, gives way.
    write(&place.0, &signed(&stranger, "earlier")).unwrap();
    fs::write(stamp_of(&path), "theirs").unwrap();
    write(&place.0, &first).unwrap();
    assert_eq!(there(), first);
    write_stamp(&place.0, &first, b"ours").unwrap();
    write(&place.0, &second).unwrap();
    assert_eq!(there(), first, "the stamp is about its bytes");
    write_stamp(&place.0, &second, b"about another time").unwrap();
    assert_eq!(fs::read(stamp_of(&path)).unwrap(), b"ours");
    fs::remove_file(stamp_of(&path)).unwrap();
    write(&place.0, &second).unwrap();
    assert_eq!(there(), second, "without a stamp the later head is as good");
}

/// A hard mount of a server that is away: its calls return when it comes back, or never.
fn hang(place: &Path) -> usize {
    if !place.ends_with("hangs") {
        return list(place).map_or(0, |files| files.len());
    }
    loop {
        std::thread::park();
    }
}

#[test]
fn a_place_that_hangs_holds_no_command() {
    let place = Folder::new("in-time");
    write(&place.0, &head(7, "aa")).unwrap();
    let places = [place.0.join("hangs"), place.0.clone(), place.0.join("hangs"), place.0.join("none")];
    assert_eq!(in_time(&places[1..2], hang, PATIENCE), [Some(1)]);
    let begun = std::time::Instant::now();
    let found = in_time(&places, hang, Duration::from_millis(500));
    assert_eq!((found[0], found[2]), (None, None));
    // Both that hang have the time together.
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let said = late(&places[0]);
    assert!(said.error.contains("hangs did not show its heads within 20 s"), "{said}");
}

#[test]
fn a_place_that_cannot_be_read_is_told_and_not_taken_for_an_empty_one() {
    let place = Folder::new("all");
    write(&place.0, &head(7, "aa")).unwrap();
    let no_folder = place.0.join("00000000000000000007.head");
    let found = all(&[place.0.clone(), place.0.join("none"), no_folder]);
    let counts: Vec<Option<usize>> = found.iter().map(|heads| heads.as_ref().ok().map(Vec::len)).collect();
    assert_eq!(counts, [Some(1), Some(0), None]);
}
