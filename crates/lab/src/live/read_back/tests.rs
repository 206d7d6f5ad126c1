use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use stele_ground::MIB;

use super::*;
use crate::live::run::{Load, Of, Setup, Timing, run};
use crate::live::target::{Opening, Target};
use crate::workload::{AccessSpec, Alignment};

const CONTENT: Content = Content { seed: 1, compress_percent: 100, dedupe_percent: 100, verify: true };

/// Three files of it are no multiple of what is read at once.
const SIZE: u64 = 3 * FILE;
const FILE: u64 = MIB + 8192;

/// A directory for targets, gone with its files when dropped.
struct Place(std::path::PathBuf);

impl Place {
    fn new(parent: &std::path::Path, name: &str) -> Place {
        let path = parent.join(format!("stele-lab-read-back-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn opened(target: &str) -> Ready {
    let target: Target = target.parse().unwrap();
    let size = Some(Bytes(SIZE));
    let opening = Opening { size, writes: true, files: 3, content: CONTENT, ..Opening::default() };
    target.open(opening, &mut |_, _| true).unwrap()
}

fn all(ready: &Ready) -> ReadBack {
    read_back(ready, CONTENT, &mut |_, _| true).unwrap().unwrap()
}

#[test]
fn all_of_a_target_is_read_and_every_wrong_sector_is_told() {
    // In memory by plain calls, on a disk by a ring, and files in a directory, whose ends no read
    // goes beyond.
    let (memory, disk) = (Place::new("/dev/shm".as_ref(), "m"), Place::new(&std::env::temp_dir(), "d"));
    let files = disk.0.join("files");
    let (memory, disk) = (memory.0.join("target"), disk.0.join("target"));
    let cases = [
        (memory.display().to_string(), memory, 0),
        (disk.display().to_string(), disk, 0),
        (format!("dir:{}", files.display()), files.join("data-000001"), FILE),
    ];
    for (target, file, base) in cases {
        let ready = opened(&target);
        assert_eq!(all(&ready), ReadBack { bytes: SIZE, wrong: Wrong::default() }, "{target}");
        let file = OpenOptions::new().read(true).write(true).open(file).unwrap();
        let end = file.metadata().unwrap().len();
        for at in [70_000, end - 1] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }
        let found = all(&ready).wrong;
        assert_eq!(found.sectors, 2, "{target}: {found}");
        let last = format!("offset {}: ", base + end - 512);
        assert!(found.places[0].starts_with(&format!("offset {}: ", base + 69_632)), "{target}: {found}");
        assert!(found.places[1].starts_with(&last), "{target}: {found}");
        assert_eq!(read_back(&ready, CONTENT, &mut |_, _| false).unwrap(), None, "it is ended when it is told to");
    }
}

#[test]
fn a_write_that_was_lost_where_nothing_was_read_again_is_found() {
    let place = Place::new("/dev/shm".as_ref(), "lost");
    let path = place.0.join("target");
    let ready = opened(&path.display().to_string());
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut before = vec![0; 4096];
    file.read_exact_at(&mut before, 8192).unwrap();
    let short = Duration::from_millis(20);
    let setup = Setup {
        spec: AccessSpec { name: "t".into(), random: Some(0), read: Some(0), sizes: vec![(4096, 100)] },
        alignment: Alignment::Request,
        load: Load::Outstanding(1),
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 1,
        timing: Timing { warm_up: Duration(0), round: short, least: Duration(u64::MAX), most: Duration(u64::MAX) },
        content: CONTENT,
        of: Of::Data,
        seed: 1,
    };
    let mut written = 0;
    let found = run(&ready, &setup, &mut |_, round| {
        written += round.written_bytes;
        written < 2 * ready.size.0
    });
    assert!(found.unwrap().wrong.is_none());
    assert!(all(&ready).wrong.is_none());
    file.write_all_at(&before, 8192).unwrap();
    let wrong = all(&ready).wrong;
    assert_eq!(wrong.sectors, 8, "{wrong}");
    assert!(wrong.places.iter().all(|place| place.contains("is lost")), "{wrong}");
}

#[test]
fn a_target_that_hangs_is_given_up_after_its_patience() {
    use crate::live::target::AccessMethod;
    let hangs = |patience: u64, goes_on: bool| {
        // A read of a pipe that holds nothing is answered when its other end is closed.
        let (reader, writer) = std::io::pipe().unwrap();
        let file = std::fs::File::from(std::os::fd::OwnedFd::from(reader));
        let null = Target::Null.open(Opening::default(), &mut |_, _| true).unwrap();
        let (way, patience) = (AccessMethod::Ring(Arc::new(file)), stele_ground::Duration::from_millis(patience));
        let ready = Ready { way, size: Bytes(1 << 20), patience, ..null };
        let found = read_back(&ready, Content { verify: true, ..Content::default() }, &mut |_, _| goes_on);
        drop(writer);
        found
    };
    let why = hangs(100, true).unwrap_err().to_string();
    assert!(why.contains("reading it back: no answer for 100.0 ms"), "{why}");
    assert_eq!(hangs(1_000_000, false), Ok(None), "ended by the caller, however long the patience");
}
