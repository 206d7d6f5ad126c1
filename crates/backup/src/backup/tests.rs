use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::sync::Arc;

use stele_ground::Dice;

use super::*;
use crate::repository::trees::Walk;
use crate::store::{Folder as StoreFolder, Store, memory::Memory};
use crate::testing::{PASSWORD, Temporary, options, picture, random, repository, restore, save, stage};
use crate::verify;

/// A tree with files of all lengths that matter, links, a pipe, holes and odd names.
fn tree() -> Temporary {
    let folder = Temporary::new();
    let mut dice = Dice::new(1);
    for (number, length) in [0, 1, 255, 256, 257, 4095, 4096, 4097, 9000, 50_000].into_iter().enumerate() {
        folder.write(&format!("lengths/{number}"), random(dice.roll(), length));
    }
    folder.write("text/long", b"the same line\n".repeat(9000));
    folder.write("text/copy", b"the same line\n".repeat(9000));
    folder.write("odd/new\nline \u{fc}", b"odd");
    folder.write("odd/\u{1f} tab\t", b"odder");
    symlink("../text/long", folder.join("odd/link")).unwrap();
    symlink("/nonexistent", folder.join("odd/dangling")).unwrap();
    std::fs::hard_link(folder.join("text/long"), folder.join("odd/second")).unwrap();
    std::fs::create_dir(folder.join("empty")).unwrap();
    std::fs::set_permissions(folder.join("empty"), PermissionsExt::from_mode(0o1710)).unwrap();
    std::fs::set_permissions(folder.join("text/copy"), PermissionsExt::from_mode(0o4551)).unwrap();
    let pipe = rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o620),
        0,
    );
    pipe.unwrap();
    let sparse = std::fs::File::create(folder.join("sparse")).unwrap();
    sparse.set_len(300_000).unwrap();
    sparse.write_all_at(&random(9, 5000), 100_000).unwrap();
    folder
}

#[test]
fn a_tree_of_every_kind_is_restored_as_it_was() {
    let (repository, _) = repository(1);
    let folder = tree();
    let saved = save(&repository, &folder.0).unwrap();
    assert_eq!((saved.description.problems, &saved.description.issues), (0, &Vec::new()));
    let target = Temporary::new();
    let restored = restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!(restored.issues, []);
    assert_eq!(picture(&target.0), picture(&folder.0));
    use std::os::unix::fs::MetadataExt;
    let blocks = |folder: &Temporary| folder.join("sparse").metadata().unwrap().blocks();
    assert!(blocks(&target) <= blocks(&folder), "holes were filled");
    assert!(verify::run(&repository, true, 2, &Default::default()).unwrap().is_good());
}

#[test]
fn an_unchanged_tree_is_not_read_again() {
    let folder = tree();
    // The tree has the directories above it too, and other tests make theirs beside it.
    let above = || std::env::temp_dir().metadata().unwrap().modified().unwrap();
    let (repository, store, first, second, bytes, segments) = loop {
        let before = above();
        let (repository, store) = repository(1);
        let first = save(&repository, &folder.0).unwrap();
        let (bytes, segments) = (store.bytes(), store.names(StoreFolder::Segments).len());
        let second = save(&repository, &folder.0).unwrap();
        if above() == before {
            break (repository, store, first, second, bytes, segments);
        }
    };
    assert_eq!(second.parent, Some(first.id));
    let counts = second.description.counts;
    assert_eq!((counts.files_read, counts.bytes_new, counts.bytes_stored), (0, 0, 0));
    assert_eq!((counts.files, counts.bytes), (first.description.counts.files, first.description.counts.bytes));
    assert_eq!(second.description.tree, first.description.tree);
    assert_eq!(store.names(StoreFolder::Segments).len(), segments);
    assert!(store.bytes() - bytes < 3000, "{} bytes for nothing new", store.bytes() - bytes);
    let (of_first, of_second) = (repository.references(&first.id).unwrap(), repository.references(&second.id).unwrap());
    assert_eq!(of_first.0.len(), of_second.0.len());
}

#[test]
fn every_kind_of_change_is_seen() {
    let (repository, store) = repository(1);
    let folder = tree();
    let mut dice = Dice::new(3);
    for round in 0..6 {
        store.set_now(1_000_000 + round);
        let long = folder.join("text/copy");
        match round {
            0 => std::fs::rename(folder.join("lengths/3"), folder.join("lengths/x")).unwrap(),
            1 => {
                // The same length and the same modification time; only the change time tells.
                let before = long.metadata().unwrap().modified().unwrap();
                std::fs::set_permissions(&long, PermissionsExt::from_mode(0o600)).unwrap();
                let file = std::fs::File::options().write(true).open(&long).unwrap();
                file.write_all_at(b"X", dice.below(100_000)).unwrap();
                file.set_modified(before).unwrap();
            }
            2 => std::fs::remove_dir_all(folder.join("odd")).unwrap(),
            3 => std::fs::set_permissions(folder.join("empty"), PermissionsExt::from_mode(0o755)).unwrap(),
            4 => drop(folder.write("odd", b"now a file")),
            _ => {
                std::fs::remove_file(folder.join("pipe")).unwrap();
                drop(folder.write("pipe/inside", b"now a directory"));
            }
        }
        let saved = save(&repository, &folder.0).unwrap();
        let target = Temporary::new();
        restore(&repository, &saved, &folder.0, &target.0).unwrap();
        assert_eq!(picture(&target.0), picture(&folder.0), "round {round}");
    }
}

#[test]
fn an_agent_killed_behind_any_change_of_the_store_resumes() {
    let folder = tree();
    let total = {
        let (repository, store) = repository(1);
        save(&repository, &folder.0).unwrap();
        store.names(StoreFolder::Segments).len() as u64 + 3
    };
    for changes in 0..total {
        let (repository, store) = repository(1);
        store.fail_after(Some(changes));
        let killed = save(&repository, &folder.0);
        store.fail_after(None);
        // The end of the session is the last change; without it the snapshot is there all the same.
        let snapshots = repository.snapshots().unwrap().len();
        assert_eq!(killed.is_ok(), snapshots == 1, "{changes} changes");
        let stored = store.names(StoreFolder::Segments).len();
        let saved = save(&repository, &folder.0).unwrap();
        if snapshots == 0 {
            let whole = stored as u64 * 16_000;
            let new = saved.description.counts.bytes_new;
            assert!(
                new <= 120_000_u64.saturating_sub(whole.saturating_sub(32_000)),
                "{new} new bytes after {stored} segments"
            );
        }
        let checked = verify::run(&repository, true, 1, &Default::default()).unwrap();
        assert!(checked.is_good(), "{changes} changes: {checked:?}");
        let target = Temporary::new();
        restore(&repository, &saved, &folder.0, &target.0).unwrap();
        assert_eq!(picture(&target.0), picture(&folder.0), "{changes} changes");
    }
}

#[test]
fn files_that_cannot_be_saved_are_listed_and_the_rest_is_saved() {
    let (repository, _) = repository(1);
    let folder = tree();
    // Root reads everything. A name that is too long for its path is no file at all, so a socket of
    // a closed directory is not possible either. A file that vanishes between the walk and the
    // reading is.
    let victim = folder.write("vanishes/file", random(5, 20_000));
    let mut options = options(&folder.0);
    options.workers = 1;
    let progress = BackupProgress::default();
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let packer = Packer::new(indexed.clone(), 1, None);
    let job = job(&indexed, &options, &progress, &packer);
    let roots = scan::roots(&options.paths).unwrap();
    let tree = pipeline(&job, |send| {
        let mut batches = Vec::new();
        scan::walk(&job, &roots, None, &mut |batch| {
            batches.push(batch);
            Ok(())
        })?;
        std::fs::remove_file(&victim).unwrap();
        std::fs::write(folder.join("lengths/9"), b"shrunk").unwrap();
        std::fs::remove_file(folder.join("lengths/8")).unwrap();
        symlink("9", folder.join("lengths/8")).unwrap();
        batches.into_iter().try_for_each(send)
    });
    tree.unwrap();
    let (problems, issues) = &*lock(&job.issues);
    assert_eq!(*problems, 3, "{issues:?}");
    let mut texts: Vec<String> =
        issues.iter().map(|issue| format!("{}: {}", String::from_utf8_lossy(&issue.path), issue.text)).collect();
    texts.sort();
    for (text, ends) in texts.iter().zip([
        "lengths/8: cannot open the file",
        "lengths/9: it changed while",
        "vanishes/file: cannot open the file",
    ]) {
        assert!(text.contains(ends), "{text}");
    }
}

pub fn job<'a>(
    indexed: &'a Indexed,
    options: &'a BackupOptions,
    progress: &'a BackupProgress,
    packer: &'a Packer,
) -> Job<'a> {
    Job {
        indexed,
        options,
        progress,
        packer,
        chunker: Chunker::new(indexed.keys.boundaries(), indexed.header.lengths),
        under_way: Mutex::default(),
        room: Condvar::new(),
        issues: Mutex::default(),
        counts: Mutex::default(),
        gathered: Mutex::default(),
        failure: Mutex::default(),
    }
}

#[test]
fn a_file_longer_than_a_span_is_read_by_several_workers() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    let path = folder.write("before", b"before");
    let large = std::fs::File::create(folder.join("large")).unwrap();
    large.set_len(3 * SPAN + 1000).unwrap();
    for (seed, at) in [(1, 0), (2, SPAN - 3000), (3, 2 * SPAN), (4, 3 * SPAN)] {
        large.write_all_at(&random(seed, 1000 + seed as usize * 2000 % 6000), at).unwrap();
    }
    folder.write("later", b"later");
    let saved = save(&repository, &folder.0).unwrap();
    assert_eq!(saved.description.issues, []);
    let target = Temporary::new();
    restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!(picture(&target.0), picture(&folder.0));
    assert!(path.exists());
    // More pieces than an entry holds.
    folder.write("large", random(7, PIECES * 700));
    store.set_now(1_000_001);
    let saved = save(&repository, &folder.0).unwrap();
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let mut walk = Walk::new(&indexed, &saved.description, &tree_path(&folder.join("large")).unwrap());
    let entry = walk.step().unwrap().unwrap().entry;
    assert!(
        matches!(&entry.content, crate::tree::Content::File { lists, pieces, .. } if lists.len() > 1 && pieces.is_empty())
    );
    let target = Temporary::new();
    restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!(picture(&target.0), picture(&folder.0));
    let again = save(&repository, &folder.0).unwrap();
    assert_eq!(again.description.counts.files_read, 0);
    assert!(verify::run(&repository, false, 1, &Default::default()).unwrap().is_good());
}

const PIECES: usize = crate::tree::PIECES_MAX * 2;

#[test]
fn excluded_and_marked_directories_are_left_out() {
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    for name in
        ["keep/a.txt", "keep/a.o", "cache/CACHEDIR.TAG", "cache/x", "nobackup/.nobackup", "nobackup/x", "build/x"]
    {
        folder.write(name, b"content");
    }
    folder.write("cache/CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55\nmore");
    folder.write("false/CACHEDIR.TAG", b"no signature");
    let mut options = options(&folder.0);
    options.filter.add("*.o", false).unwrap();
    options.filter.add("/**/build", false).unwrap();
    options.exclude_caches = true;
    options.exclude_if_present = vec![".nobackup".into()];
    let saved = run(&repository, Source::Files, &options, &BackupProgress::default()).unwrap();
    let target = Temporary::new();
    restore(&repository, &saved, &folder.0, &target.0).unwrap();
    let names = |folder: &Temporary| {
        let lines = picture(&folder.0).into_iter();
        lines.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&target), ["cache", "false", "false/CACHEDIR.TAG", "keep", "keep/a.txt", "nobackup"]);
}

#[test]
fn a_stream_is_saved_as_a_file() {
    let (repository, _) = repository(1);
    let content = random(1, 77_777);
    let source = Source::Stream { name: b"dump.sql".to_vec(), reader: &mut content.as_slice() };
    let saved = run(&repository, source, &options(Path::new("/")), &BackupProgress::default()).unwrap();
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let target = Temporary::new();
    let options = crate::restore::RestoreOptions {
        target: target.0.clone(),
        within: Vec::new(),
        exclude: Filter::default(),
        include: Filter::default(),
        verify: true,
        workers: 1,
    };
    crate::restore::run(&indexed, &saved.description, &options, &Default::default()).unwrap();
    assert_eq!(std::fs::read(target.join("dump.sql")).unwrap(), content);
}

#[test]
fn the_server_sees_neither_names_nor_content() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    let secret = b"a sentence that must stay secret";
    folder.write("secret-name", secret.repeat(3));
    save(&repository, &folder.0).unwrap();
    let folders = [StoreFolder::Keys, StoreFolder::Segments, StoreFolder::Snapshots, StoreFolder::Sessions];
    let mut seen = 0;
    for name in folders.into_iter().flat_map(|folder| store.names(folder)) {
        let bytes = store.get(&name, 1 << 20).unwrap();
        seen += 1;
        for word in [secret.as_slice(), b"secret-name", b"host", blake3::hash(&secret.repeat(3)).as_bytes()] {
            assert!(!bytes.windows(word.len()).any(|window| window == word), "{name:?}");
        }
    }
    assert!(seen >= 5);
}

#[test]
fn a_stop_ends_a_backup_and_leaves_the_repository_whole() {
    let (repository, _) = repository(1);
    let folder = tree();
    let progress = BackupProgress::default();
    progress.stop.store(true, Ordering::Relaxed);
    let stopped = run(&repository, Source::Files, &options(&folder.0), &progress);
    assert_eq!(stopped.map(drop), Err(BackupError::Stopped));
    assert_eq!(repository.snapshots(), Ok(Vec::new()));
    assert_eq!(repository.sessions().unwrap().0, [], "its session would hold prune back");
    save(&repository, &folder.0).unwrap();
}

/// Each of many backups that fail for the same reason would leave a session for a day, and prune
/// would remove nothing.
#[test]
fn a_snapshot_that_the_store_refuses_leaves_no_session() {
    let (repository, store) = repository(1);
    let folder = tree();
    store.set_full_for(StoreFolder::Snapshots);
    let refused = run(&repository, Source::Files, &options(&folder.0), &BackupProgress::default());
    assert!(matches!(refused.map(drop), Err(BackupError::Full(_))));
    assert!(!store.names(StoreFolder::Segments).is_empty(), "it failed too early");
    assert_eq!(repository.sessions().unwrap().0, []);
}

#[test]
fn two_agents_save_into_one_repository_at_once() {
    let (first, store) = repository(1);
    let second = Repository::open(store, stage(2), PASSWORD).unwrap();
    let (one, other) = (tree(), tree());
    std::thread::scope(|scope| {
        let a = scope.spawn(|| save(&first, &one.0).unwrap());
        let b = scope.spawn(|| save(&second, &other.0).unwrap());
        assert_ne!(a.join().unwrap().id, b.join().unwrap().id);
    });
    assert!(verify::run(&first, true, 2, &Default::default()).unwrap().is_good());
    assert_eq!(first.snapshots().unwrap().len(), 2);
}

#[test]
fn a_session_that_prune_may_have_ended_does_not_commit() {
    let store = Arc::new(Memory::default());
    let surroundings = stage(1);
    let made = Repository::make(store, surroundings.clone(), PASSWORD, "", crate::testing::SMALL).unwrap();
    let (session, _) = made.begin_session().unwrap();
    surroundings.elapsed.store(crate::repository::epochs::SESSION_SECONDS / 2, Ordering::Relaxed);
    assert!(session.check().is_err());
    let (session, _) = made.begin_session().unwrap();
    surroundings.elapsed.fetch_add(crate::repository::epochs::SESSION_SECONDS / 2 - 1, Ordering::Relaxed);
    session.keep_alive().unwrap();
    surroundings.elapsed.fetch_add(crate::repository::epochs::SESSION_SECONDS / 2 - 1, Ordering::Relaxed);
    session.check().unwrap();
}

#[test]
fn a_snapshot_that_was_stored_after_its_session_ended_is_taken_back() {
    let (repository, store) = repository(1);
    let folder = tree();
    let pause = crate::repository::epochs::SESSION_SECONDS;
    store.jump_behind(StoreFolder::Snapshots, 1_000_000 + pause);
    assert!(matches!(save(&repository, &folder.0), Err(BackupError::Failed(_))));
    assert_eq!(repository.snapshots(), Ok(Vec::new()));
    save(&repository, &folder.0).unwrap();
}

#[test]
fn a_request_that_no_snapshot_can_hold_is_refused_at_once() {
    let (repository, store) = repository(1);
    let folder = tree();
    let mut options = options(&folder.0);
    options.tags = vec!["x".repeat(5000)];
    let refused = run(&repository, Source::Files, &options, &BackupProgress::default());
    assert!(matches!(refused, Err(BackupError::Invalid(_))));
    assert_eq!((store.names(StoreFolder::Segments), store.names(StoreFolder::Sessions)), (Vec::new(), Vec::new()));
}

#[test]
fn attributes_beyond_the_limit_are_listed_and_the_content_is_saved() {
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    let path = folder.write("data/file", random(1, 10_000));
    for name in ["user.a", "user.b", "user.c"] {
        let set = rustix::fs::setxattr(&path, name, &[7; 1000], rustix::fs::XattrFlags::empty());
        if set.is_err() {
            // Some file systems have none.
            return;
        }
    }
    let saved = save(&repository, &folder.0).unwrap();
    assert_eq!(saved.description.problems, 1);
    assert!(saved.description.issues[0].text.contains("extended attributes"), "{:?}", saved.description.issues);
    let target = Temporary::new();
    restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!(picture(&target.0), picture(&folder.0));
}

#[test]
fn an_entry_that_no_chunk_of_the_tree_can_hold_is_listed() {
    let (repository, _) = repository(1);
    let options = options(Path::new("/"));
    let progress = BackupProgress::default();
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let packer = Packer::new(indexed.clone(), 1, None);
    let job = job(&indexed, &options, &progress, &packer);
    let mut collector = collect::Collector::new(&job).unwrap();
    let entry = |name: &[u8], content| Entry { name: name.to_vec(), metadata: Metadata::default(), content };
    use crate::tree::Content;
    collector.add(0, entry(b"above", Content::Directory)).unwrap();
    let lists = vec![crate::crypt::ChunkId([7; 32]); 140_000];
    collector.add(1, entry(b"huge", Content::File { size: 0, pieces: Vec::new(), lists, volume: None })).unwrap();
    collector.add(1, entry(b"last", Content::Fifo)).unwrap();
    let tree = collector.finish().unwrap();
    assert_eq!(tree.len(), 1);
    let issues = lock(&job.issues);
    assert_eq!(issues.1.iter().map(|issue| issue.path.as_slice()).collect::<Vec<_>>(), [b"above/huge"]);
}

#[test]
fn a_huge_sparse_file_is_a_few_spans() {
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    let path = folder.write("data/sparse", b"begin");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let (size, at) = (1 << 40, (500 << 30) + 12_345);
    if file.set_len(size).is_err() {
        return;
    }
    file.write_all_at(b"middle", at).unwrap();
    let options = options(&folder.join("data"));
    let progress = BackupProgress::default();
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let packer = Packer::new(indexed.clone(), 1, None);
    let job = job(&indexed, &options, &progress, &packer);
    let mut spans = 0;
    let send = &mut |batch: Vec<Item>| {
        spans += batch.iter().filter(|item| matches!(item, Item::Span { .. })).count();
        Ok(())
    };
    scan::walk(&job, &scan::roots(&options.paths).unwrap(), None, send).unwrap();
    assert_eq!(spans, 3);
    let saved = run(&repository, Source::Files, &options, &BackupProgress::default()).unwrap();
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let mut walk = Walk::new(&indexed, &saved.description, &tree_path(&path).unwrap());
    let entry = walk.step().unwrap().unwrap().entry;
    assert_eq!(entry.content.size(), size);
    let pieces = indexed.pieces(&entry.content).unwrap();
    let holes = pieces.windows(2).filter(|two| matches!(two, [Piece::Hole(_), Piece::Hole(_)])).count();
    assert_eq!(holes, 0, "{pieces:?}");
}

#[test]
fn a_backup_needs_no_chunk_of_a_planted_segment() {
    for (read_all, forgotten) in [(false, false), (true, false), (false, true), (true, true)] {
        for authentic in [false, true] {
            let (repository, store) = repository(1);
            let folder = tree();
            let first = save(&repository, &folder.0).unwrap();
            let forget = |saved: &Saved| store.remove(&Name::of(StoreFolder::Snapshots, &saved.id.0)).unwrap();
            if forgotten {
                forget(&first);
            }
            let foreign = crate::testing::foreign_keys();
            crate::testing::plant(&repository, &store, if authentic { &repository.keys } else { &foreign });
            let options = BackupOptions { read_all, ..options(&folder.0) };
            let second = run(&repository, Source::Files, &options, &BackupProgress::default()).unwrap();
            // The tree may differ, since other tests change the directory above.
            assert!(second.description.counts.bytes_new < 20_000, "what is whole is not stored again");
            if !forgotten {
                forget(&first);
            }
            (0..4).for_each(|_| assert!(crate::prune::run(&repository, false).is_ok()));
            let target = Temporary::new();
            let done = restore(&repository, &second, &folder.0, &target.0).unwrap();
            assert_eq!(done.issues, [], "{read_all} {forgotten} {authentic}");
            assert_eq!(picture(&target.0), picture(&folder.0), "{read_all} {forgotten} {authentic}");
            assert!(verify::run(&repository, true, 1, &Default::default()).unwrap().is_good());
        }
    }
}

/// A store to which every segment takes ten minutes.
struct Slow(Arc<Memory>, Arc<crate::testing::Stage>);

impl Store for Slow {
    fn place(&self) -> String {
        self.0.place()
    }
    fn create(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        if name.is_in(StoreFolder::Segments) {
            let elapsed = self.1.elapsed.fetch_add(600, Ordering::Relaxed) + 600;
            self.0.set_now(1_000_000 + elapsed);
        }
        self.0.create(name, bytes)
    }
    fn replace(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        self.0.replace(name, bytes)
    }
    fn get(&self, name: &Name, max: u64) -> Result<Vec<u8>> {
        self.0.get(name, max)
    }
    fn get_range(&self, name: &Name, range: std::ops::Range<u64>) -> Result<Vec<u8>> {
        self.0.get_range(name, range)
    }
    fn list(&self, folder: StoreFolder, each: &mut dyn FnMut(crate::store::Listed) -> Result<()>) -> Result<()> {
        self.0.list(folder, each)
    }
    fn remove(&self, name: &Name) -> Result<()> {
        self.0.remove(name)
    }
    fn now(&self) -> Result<u64> {
        self.0.now()
    }
    fn is_local(&self) -> bool {
        true
    }
}

#[test]
fn a_session_is_renewed_while_the_last_file_is_sent() {
    let (_, store) = repository(1);
    let surroundings = stage(2);
    let slow = Arc::new(Slow(store.clone(), surroundings.clone()));
    let opened = Repository::open(slow, surroundings.clone(), PASSWORD).unwrap();
    let folder = Temporary::new();
    folder.write("image", random(1, 2 << 20));
    save(&opened, &folder.0).unwrap();
    assert!(surroundings.elapsed.load(Ordering::Relaxed) > crate::repository::epochs::LAPSE_SECONDS);
    assert_eq!(opened.snapshots().unwrap().len(), 1);
}

#[test]
fn so_many_segments_are_stored_at_once_as_was_asked() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    for sessions in [5, 1] {
        folder.write("file", random(sessions as u64, 400_000));
        store.meet(StoreFolder::Segments, sessions);
        let options = BackupOptions { sessions, ..options(&folder.0) };
        run(&repository, Source::Files, &options, &BackupProgress::default()).unwrap();
        assert_eq!(store.met(), sessions);
    }
}

/// A directory with so many files.
const MANY: usize = 100_000;

#[test]
fn a_directory_of_many_files_is_saved_listed_and_restored_in_part() {
    let (repository, _) = repository(31);
    let place = Temporary::new();
    let many = place.join("many");
    std::fs::create_dir(&many).unwrap();
    for number in 0..MANY {
        std::fs::File::create(many.join(format!("file-{number:06}"))).unwrap();
    }
    std::fs::write(many.join("file-050000"), random(3, 5000)).unwrap();
    let first = save(&repository, &many).unwrap();
    assert_eq!((first.description.counts.files, first.description.problems), (MANY as u64, 0));
    assert!(
        first.description.tree.len() > 4,
        "one directory is many chunks of the tree: {}",
        first.description.tree.len()
    );
    // One change of a hundred thousand reads one file, and stores the chunk of the tree that has
    // it.
    std::fs::write(many.join("file-050001"), random(4, 3000)).unwrap();
    let second = save(&repository, &many).unwrap();
    assert_eq!(second.description.counts.files_read, 1);
    let differ = second.description.tree.iter().filter(|chunk| !first.description.tree.contains(chunk)).count();
    assert!(differ <= 3, "{differ} chunks of the tree differ");
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let mut walk = Walk::new(&indexed, &second.description, b"");
    let mut names = 0;
    while let Some(found) = walk.step().unwrap() {
        names += usize::from(found.path.ends_with(format!("file-{names:06}").as_bytes()));
    }
    assert_eq!(names, MANY, "every name is listed, in its order");
}
