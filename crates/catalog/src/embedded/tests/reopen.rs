//! The cost of opening depends on the length of the journal, not on the catalog's history; also
//! after `kill -9` of a real process.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stele_ground::{Bytes, MIB};
use stele_media::{Access, Done, DriveFile, Engine, Geometry, Handle, Op, Port, Priority, Space, serve_file};

use super::volume;
use crate::embedded::{EmbeddedCatalog, Format, InlineCatalog, Loader, Options, format};
use crate::{Catalog, Table, Template, Transaction};

const TABLE: Table = Table(1);
const LOG: Table = Table(2);

/// Counts the bytes read below the area's start and within it.
struct Counted {
    below: Handle,
    area_at: u64,
    read: Arc<[AtomicU64; 2]>,
}

impl Port for Counted {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }
    fn submit(&self, op: Op, priority: Priority, done: Done) {
        if let Op::Read { at, buffer } = &op {
            self.read[usize::from(*at >= self.area_at)].fetch_add(buffer.len() as u64, Ordering::Relaxed);
        }
        self.below.submit(op, priority, done);
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("bucket/object-{number:08}/version").into_bytes()
}

#[test]
fn opening_reads_no_more_the_more_is_stored() {
    let mut area_reads = Vec::new();
    for count in [1000, 400_000] {
        let volume = volume(512 * MIB);
        let mut loader = Loader::new(&volume, &Format { id: [1; 16], journal: None }).unwrap();
        (0..count).for_each(|number| loader.put(TABLE, key(number), vec![number as u8; 200]).unwrap());
        assert_eq!(loader.records(), count);
        loader.finish().unwrap();
        let options = Options { overlay: Bytes(MIB), ..Options::default() };
        // Commits and checkpoints on top of the loaded records, then a stop without a close.
        let catalog = InlineCatalog::open(&volume, options).unwrap();
        for number in 0..3000 {
            let put = Transaction::new().put(TABLE, key(number * 7 % count), vec![1; 300]);
            catalog.commit(put).wait().unwrap();
        }
        assert!(catalog.status().checkpoints > 0);
        drop(catalog);
        let layout = crate::embedded::layout::Layout::read(&volume).unwrap();
        let read = Arc::new([const { AtomicU64::new(0) }; 2]);
        let counted = Counted { below: volume, area_at: layout.area_at, read: Arc::clone(&read) };
        let catalog = InlineCatalog::open(&Handle::new(counted), options).unwrap();
        let [journal, area] = [0, 1].map(|part: usize| read[part].load(Ordering::Relaxed));
        // It reads every batch at most twice, and makes one pass for batches that should not be
        // there.
        assert!(journal < 3 * layout.journal, "{journal} bytes of a journal of {}", layout.journal);
        area_reads.push(area);
        let view = catalog.snapshot().unwrap();
        assert_eq!(view.commit_number(), 3000);
        assert!(view.get(TABLE, &key(count - 1)).unwrap().is_some());
    }
    let [few, many] = area_reads[..] else { panic!("two catalogs") };
    assert!(many < few + MIB / 4, "{few} bytes of a small B-tree, {many} of a large one");
}

/// The process to kill: the next test starts this one with the variable set. Without the variable
/// it does nothing.
#[test]
fn commits_until_it_is_killed() {
    let Ok(path) = std::env::var("STELE_CATALOG_TEST") else { return };
    let file = DriveFile::open(&path, Access::Exclusive).unwrap();
    let options = Options { overlay: Bytes(MIB / 4), ..Options::default() };
    let catalog = EmbeddedCatalog::open(&serve_file(file, Engine::default()).unwrap(), options).unwrap();
    let first = catalog.snapshot().unwrap().commit_number();
    for number in first.. {
        let value = Template::new().previous().bytes(key(number));
        let put = Transaction::new().put(TABLE, key(number), vec![number as u8; 200]);
        let answer = catalog.commit(put.append((LOG, "head"), LOG, Template::new().number(), value)).wait().unwrap();
        // The parent reads this line; a printed commit must survive.
        println!("acknowledged {}", answer.commit);
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    use std::io::{BufRead, BufReader};
    let path = std::env::temp_dir().join(format!("stele-catalog-test-{}", std::process::id()));
    let file = DriveFile::create(&path, Bytes(64 * MIB), Space::Sparse).unwrap();
    format(&serve_file(file, Engine::default()).unwrap(), &Format { id: [2; 16], journal: None }).unwrap();
    let mut owed = 0u64;
    for round in 0..3u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "embedded::tests::reopen::commits_until_it_is_killed", "--nocapture"])
            .env("STELE_CATALOG_TEST", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut last = 0;
        while last < owed + 40 + 60 * round {
            let line = lines.next().expect("it commits until it is killed").unwrap();
            if let Some((_, number)) = line.split_once("acknowledged ") {
                last = number.trim().parse().unwrap();
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Lines that it printed while it died count too.
        for line in lines.map_while(Result::ok) {
            last = line.strip_prefix("acknowledged ").and_then(|number| number.parse().ok()).unwrap_or(last);
        }
        owed = last;
        let file = DriveFile::open(&path, Access::Exclusive).unwrap();
        let catalog = EmbeddedCatalog::open(&serve_file(file, Engine::default()).unwrap(), Options::default()).unwrap();
        let view = catalog.snapshot().unwrap();
        assert!(view.commit_number() >= owed, "{owed} were acknowledged, {} are there", view.commit_number());
        for number in 0..owed {
            assert_eq!(view.get(TABLE, &key(number)).unwrap().as_deref(), Some(&[number as u8; 200][..]), "{number}");
        }
        owed = view.commit_number();
    }
    std::fs::remove_file(&path).unwrap();
}
