use super::*;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("stele-lab-ffsb-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Ends after so many operations, whatever the time.
fn ran(place: &Place, operations: u64, group: &str) -> Result<(Vec<GroupResult>, Option<LabError>), LabError> {
    let text = format!(
        "time=60\n[filesystem0]\nlocation={}\nnum_files=20\nnum_dirs=3\nmin_filesize=4k\nmax_filesize=64k\n[end0]\n\
         [threadgroup0]\nnum_threads=4\nread_size=16k\nread_blocksize=4k\nwrite_size=8k\nwrite_blocksize=4k\n{group}\n[end0]\n",
        place.0.display()
    );
    let stop = AtomicBool::new(false);
    run(&profile::parse(&text)?, &stop, &|step| {
        if let FfsbProgress::Running { operations: done, .. } = step {
            stop.store(done >= operations, Ordering::Relaxed);
        }
    })
}

#[test]
fn operations_on_whole_files_come_by_their_weights() {
    let place = Place::new("mix");
    let weights = "read_weight=4\ncreate_weight=2\nappend_weight=2\ndelete_weight=1\nstat_weight=2\nopen_close_weight=1\n\
                   createdir_weight=1\nreadall_weight=1\nwrite_weight=1\nwriteall_weight=1";
    let (ran, failed) = ran(&place, 2000, weights).unwrap();
    assert_eq!(failed, None);
    let kinds = &ran[0].kinds;
    let all: u64 = kinds.iter().map(|(_, _, done)| done.whole.count()).sum();
    let weight: u64 = kinds.iter().map(|(_, weight, _)| weight).sum();
    assert!(all >= 2000, "{all}");
    for (kind, of, done) in kinds {
        let (share, wanted) = (done.whole.count() as f64 / all as f64, *of as f64 / weight as f64);
        assert!((share - wanted).abs() < 0.04, "{kind:?}: {share} of the operations, and {wanted} of the weights");
    }
    let done =
        |kind: OperationKind| kinds.iter().find(|(of, _, _)| *of == kind).map(|(_, _, done)| done.clone()).unwrap();
    let appended = done(OperationKind::Append { sync: false });
    assert_eq!(appended.written, appended.whole.count() * 8192);
    let read = done(OperationKind::Read);
    assert!(read.read <= read.whole.count() * 16384 && read.read > 0 && read.written == 0);
    assert_eq!((done(OperationKind::Stat).read, done(OperationKind::Delete).written), (0, 0));
    assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 0, "what was made is gone");
}

#[test]
fn a_set_that_is_deleted_whole_is_told_and_leaves_nothing() {
    let place = Place::new("gone");
    let (ran, failed) = ran(&place, u64::MAX, "delete_weight=1").unwrap();
    let why = failed.unwrap().to_string();
    assert!(why.contains("no file is left"), "{why}");
    // What was done before the first thread found none is kept.
    assert_eq!(ran[0].kinds[0].2.whole.count(), 20);
    assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 0);
}
