use std::ops::Range;

use super::*;
use crate::repository::Closed;
use crate::store::Listed;
use crate::store::memory::Memory;
use crate::testing::{PASSWORD, Temporary, random, repository, save, stage};

/// A store that counts reads and is far away.
struct Far(Arc<Memory>, AtomicUsize);

impl Store for Far {
    fn place(&self) -> String {
        self.0.place()
    }
    fn create(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        self.0.create(name, bytes)
    }
    fn replace(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        self.0.replace(name, bytes)
    }
    fn get(&self, name: &Name, max: u64) -> Result<Vec<u8>> {
        self.0.get(name, max)
    }
    fn get_range(&self, name: &Name, range: Range<u64>) -> Result<Vec<u8>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.get_range(name, range)
    }
    fn list(&self, folder: Folder, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.0.list(folder, each)
    }
    fn remove(&self, name: &Name) -> Result<()> {
        self.0.remove(name)
    }
    fn now(&self) -> Result<u64> {
        self.0.now()
    }
    fn is_local(&self) -> bool {
        false
    }
}

#[test]
fn a_cache_saves_reads_and_may_be_lost_or_damaged() {
    let (made, store) = repository(1);
    let folder = Temporary::new();
    folder.write("data/file", random(1, 100_000));
    save(&made, &folder.join("data")).unwrap();
    let far = Arc::new(Far(store, AtomicUsize::new(0)));
    let opened = Repository::open(far.clone(), stage(2), PASSWORD).unwrap();
    let cache = folder.join("cache");
    let load = || {
        let before = far.1.load(Ordering::Relaxed);
        let (indexed, loaded) = opened.index(&Epoch::default(), Some(&cache)).unwrap();
        assert_eq!(loaded, Loaded::default());
        let index = indexed.index();
        let counts = (index.segments(), index.chunks());
        drop(index);
        (counts, far.1.load(Ordering::Relaxed) - before)
    };
    let (counts, reads) = load();
    assert!(reads > 2 && counts.0 == reads, "{counts:?} {reads}");
    assert_eq!(load(), (counts, 0));
    let path = cache.join(hex(&opened.header.id)).join("footers");
    // Programs that leave caches out know it as one.
    let tag = fs::read(cache.join("CACHEDIR.TAG")).unwrap();
    assert!(tag.starts_with(b"Signature: 8a477f597d28d172789f06886806bc55\n"));
    let whole = fs::read(&path).unwrap();
    let mut dice = stele_ground::Dice::new(1);
    for round in 0..60 {
        let mut bytes = whole.clone();
        let at = dice.below(bytes.len() as u64) as usize;
        match round % 3 {
            0 => bytes[at] ^= 0x40,
            1 => bytes.truncate(at),
            _ => drop(bytes.splice(at..at, [1, 2, 3])),
        }
        fs::write(&path, bytes).unwrap();
        // Damage of a segment's name gives a record that belongs to none; all others are right.
        assert_eq!(load().0, counts, "round {round}, byte {at}");
        assert_eq!(load().0, counts);
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(load(), (counts, reads));
}

#[test]
fn a_cache_drops_segments_that_the_store_has_no_longer() {
    let (made, store) = repository(1);
    let folder = Temporary::new();
    folder.write("data/file", random(1, 300_000));
    save(&made, &folder.join("data")).unwrap();
    let far = Arc::new(Far(store.clone(), AtomicUsize::new(0)));
    let opened = Repository::open(far.clone(), stage(2), PASSWORD).unwrap();
    let cache = folder.join("cache");
    let load = || opened.index(&Epoch::default(), Some(&cache)).unwrap().0.index().segments();
    let length = || cache.join(hex(&opened.header.id)).join("footers").metadata().unwrap().len();
    let all = load();
    let before = length();
    let gone = store.names(Folder::Segments);
    let check = |keep: usize, shortened: bool| {
        gone.iter().skip(keep).for_each(|name| drop(store.remove(name)));
        assert_eq!(load(), keep);
        assert_eq!(length() < before, shortened, "{keep} of {all}");
    };
    // A few that are gone cost less than another file.
    check(all - 2, false);
    check(2, true);
    let reads = far.1.load(Ordering::Relaxed);
    assert_eq!((load(), far.1.load(Ordering::Relaxed) - reads), (2, 0), "the cache has the rest");
    assert_eq!(fs::read_dir(cache.join(hex(&opened.header.id))).unwrap().count(), 1);
}

#[test]
fn a_segment_without_a_footer_is_named_and_the_rest_is_there() {
    let (made, store) = repository(1);
    let folder = Temporary::new();
    folder.write("data/file", random(1, 100_000));
    save(&made, &folder.join("data")).unwrap();
    let name = store.names(Folder::Segments).remove(1);
    assert!(store.damage(&name, |bytes| bytes.truncate(bytes.len() - 1)));
    let closed: &Closed = &made;
    let segments = closed.segments().unwrap().len();
    let (indexed, loaded) = made.index(&Epoch::default(), None).unwrap();
    assert_eq!(loaded.unreadable.len(), 1);
    assert_eq!(indexed.index().segments(), segments - 1);
}

#[test]
fn a_destroyed_footer_is_marked_and_no_cache_hides_it() {
    let (made, store) = repository(1);
    let folder = Temporary::new();
    folder.write("data/file", random(1, 100_000));
    save(&made, &folder.join("data")).unwrap();
    let far = Arc::new(Far(store.clone(), AtomicUsize::new(0)));
    let opened = Repository::open(far, stage(2), PASSWORD).unwrap();
    let elsewhere = Temporary::new();
    let cache = elsewhere.join("cache");
    opened.index(&Epoch::default(), Some(&cache)).unwrap();
    for name in store.names(Folder::Segments) {
        assert!(store.damage(&name, |bytes| *bytes.last_mut().unwrap() ^= 1));
    }
    let found = crate::verify::run(&made, true, 1, &Default::default()).unwrap();
    assert_eq!((found.damaged.len(), found.is_good()), (found.segments as usize, false));
    assert_eq!(store.names(Folder::Damaged).len(), found.segments as usize);
    // The cache knows the footers, yet the segments are of no use.
    let mut options = crate::testing::options(&folder.join("data"));
    options.cache = Some(cache);
    let source = crate::backup::Source::Files;
    let second = crate::backup::run(&opened, source, &options, &Default::default()).unwrap();
    assert!(second.description.counts.bytes_new >= 100_000);
    assert_eq!(second.unreadable, found.segments as usize);
    let target = Temporary::new();
    let done = crate::testing::restore(&made, &second, &folder.join("data"), &target.0).unwrap();
    assert_eq!(done.issues, []);
}

#[test]
fn a_cached_footer_must_fit_the_size_of_its_segment() {
    let (made, store) = repository(1);
    let folder = Temporary::new();
    folder.write("data/file", random(1, 100_000));
    save(&made, &folder.join("data")).unwrap();
    let opened = Repository::open(Arc::new(Far(store.clone(), AtomicUsize::new(0))), stage(2), PASSWORD).unwrap();
    let cache = folder.join("cache");
    opened.index(&Epoch::default(), Some(&cache)).unwrap();
    let name = store.names(Folder::Segments).remove(0);
    assert!(store.damage(&name, |bytes| bytes.truncate(bytes.len() - 1000)));
    let (_, loaded) = opened.index(&Epoch::default(), Some(&cache)).unwrap();
    assert_eq!(loaded.unreadable.len(), 1);
}

#[test]
fn of_two_segments_with_a_chunk_the_older_one_counts() {
    let (made, store) = repository(1);
    let folder = Temporary::new();
    folder.write("data/file", random(1, 100_000));
    save(&made, &folder.join("data")).unwrap();
    let good = store.names(Folder::Segments);
    store.set_now(1_000_001);
    crate::testing::plant(&made, &store, &crate::testing::foreign_keys());
    let elsewhere = Temporary::new();
    let far = Repository::open(Arc::new(Far(store.clone(), AtomicUsize::new(0))), stage(2), PASSWORD).unwrap();
    // From the store, and from the cache.
    for (opened, cache) in [(&made, None), (&far, Some(&elsewhere.0)), (&far, Some(&elsewhere.0))] {
        let (indexed, _) = opened.index(&Epoch::default(), cache.map(PathBuf::as_path)).unwrap();
        for name in &good {
            for entry in Footer::decode(&store.get(name, 1 << 20).unwrap()).unwrap().entries {
                let mut index = indexed.index();
                let found = index.find(&entry.id).unwrap().segment;
                assert!(good.contains(&Name::segment(&index.segment(found).unwrap())));
            }
        }
    }
}

#[test]
fn a_twin_of_a_segment_hides_nothing() {
    let folder = Temporary::new();
    folder.write("data/file", random(1, 30_000));
    let store = Arc::new(crate::store::directory::Directory::new(&folder.join("repository"), stage(1)));
    let made = Repository::make(store, stage(2), PASSWORD, "", crate::testing::SMALL).unwrap();
    save(&made, &folder.join("data")).unwrap();
    let (id, _) = made.segments().unwrap().remove(0);
    let bytes = fs::read(folder.join("repository").join(Name::segment(&id).text())).unwrap();
    folder.write(&format!("repository/segments/{}/{id:?}", &format!("{id:?}")[..3]), [bytes, vec![0]].concat());
    let (indexed, loaded) = made.index(&Epoch::default(), None).unwrap();
    assert_eq!(loaded.unreadable, []);
    assert_eq!(indexed.index().segments(), made.segments().unwrap().len());
}
