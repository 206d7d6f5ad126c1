use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use stele_ground::{Bytes, Duration, MIB};

use super::content::Content;
use super::run::{Load, Of, Round, Setup, Timing, run};
use super::target::{AccessMethod, Opening, Target};
use crate::error::LabError;
use crate::workload::{AccessSpec, Alignment};

/// A directory, gone with its files when dropped.
struct Place(PathBuf);

impl Place {
    fn within(parent: &Path) -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("stele-lab-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn opening(size: u64, writes: bool) -> Opening {
    Opening { size: Some(Bytes(size)), writes, ..Opening::default() }
}

fn spec(read: u8, random: u8, size: u64) -> AccessSpec {
    AccessSpec { name: "test".into(), random: Some(random), read: Some(read), sizes: vec![(size, 100)] }
}

fn setup(spec: AccessSpec, load: Load) -> Setup {
    let timing = Timing {
        warm_up: Duration::from_millis(10),
        round: Duration::from_millis(10),
        least: Duration::from_millis(60),
        most: Duration::from_millis(60),
    };
    Setup {
        spec,
        alignment: Alignment::Request,
        load,
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 2,
        timing,
        content: Content::default(),
        of: Of::Data,
        seed: 1,
    }
}

fn all(_: i64, _: &Round) -> bool {
    true
}

/// Memory, where plain system calls are used, and a disk with io_uring (where the machine's
/// temporary files lie on one).
fn places() -> [Place; 2] {
    [Place::within(Path::new("/dev/shm")), Place::within(&std::env::temp_dir())]
}

#[test]
fn every_way_counts_what_it_did_and_reads_back_what_it_wrote() {
    for place in places() {
        let target: Target = place.0.join("target").to_string_lossy().parse().unwrap();
        let content = Content { verify: true, ..Content::default() };
        let ready = target.open(Opening { content, ..opening(MIB, true) }, &mut |_, _| true).unwrap();
        // The second rate is one at which no worker sleeps between two starts.
        let rate = |each_second| Load::Rate { each_second, random: true };
        for load in [Load::Outstanding(1), Load::Outstanding(5), rate(2_000.0), rate(50_000.0)] {
            let mut setup = Setup { content, ..setup(spec(50, 50, 4096), load) };
            (setup.timing.least, setup.timing.most) = (Duration::from_secs(20), Duration::from_secs(20));
            // As long as a busy machine needs.
            let (mut reads, mut writes) = (0, 0);
            let found = run(&ready, &setup, &mut |number, round| {
                reads += if number >= 0 { round.read.count() } else { 0 };
                writes += if number >= 0 { round.write.count() } else { 0 };
                reads < 10 || writes < 10
            });
            let found = found.unwrap();
            assert!(found.stopped && reads >= 10 && writes >= 10, "{load} on {}", ready.description);
            let total = found.total();
            assert_eq!((total.read.count(), total.write.count()), (reads, writes));
        }
    }
}

#[test]
fn an_access_that_fails_names_its_target() {
    for place in places() {
        let path = place.0.join("target");
        let ready = Target::Path(path.clone()).open(opening(MIB, false), &mut |_, _| true).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        let error = run(&ready, &setup(spec(100, 100, 4096), Load::Outstanding(1)), &mut all).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: read of 4096 bytes at offset ", path.display())), "{error}");
    }
}

#[test]
fn too_many_workers_for_parts_of_their_own_are_refused() {
    let ready = Target::Null.open(opening(MIB, true), &mut |_, _| true).unwrap();
    let content = Content { verify: true, ..Content::default() };
    let many = Setup { content, workers: 64, ..setup(spec(0, 50, 32 << 10), Load::Outstanding(64)) };
    let error = run(&ready, &many, &mut all).unwrap_err().to_string();
    assert!(error.contains("too little for 64"), "{error}");
}

#[test]
fn what_changed_behind_the_back_is_found_by_a_checked_read() {
    for place in places() {
        let path = place.0.join("target");
        let target = Target::Path(path.clone());
        let content = Content { verify: true, ..Content::default() };
        let ready = target.open(Opening { content, ..opening(MIB, true) }, &mut |_, _| true).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        // In every block, so that whichever is read first shows it.
        bytes.chunks_mut(4096).for_each(|block| block[700] ^= 1);
        std::fs::write(&path, bytes).unwrap();
        let setup = Setup { content, ..setup(spec(100, 100, 4096), Load::Outstanding(2)) };
        let error = run(&ready, &setup, &mut all).unwrap_err().to_string();
        assert!(error.contains("CRC differs"), "{error}");
    }
}

#[test]
fn an_open_loop_starts_what_its_rate_says() {
    let ready = Target::Null.open(opening(MIB, false), &mut |_, _| true).unwrap();
    let rate = Load::Rate { each_second: 1000.0, random: false };
    let begun = std::time::Instant::now();
    let found = run(&ready, &setup(spec(100, 100, 4096), rate), &mut all).unwrap();
    // Also where the machine let the generator wait: what was due meanwhile is made up for.
    let answered = found.total().read.count();
    assert!(answered >= 40, "1000 a second for 60 ms, and {answered} were answered");
    let due = begun.elapsed().as_secs_f64() * 1000.0 + 4.0;
    assert!(answered as f64 <= due, "{due:.0} were due, and {answered} were answered");
}

#[test]
fn what_the_laboratory_did_not_make_is_not_written_over() {
    let place = Place::within(Path::new("/dev/shm"));
    let path = place.0.join("records");
    std::fs::write(&path, b"seven years of records").unwrap();
    let target = Target::Path(path.clone());
    let error = target.open(opening(MIB, true), &mut |_, _| true).unwrap_err();
    assert!(matches!(error, LabError::Refused(_)), "{error:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"seven years of records");
    // Reading is harmless, and saying so is enough.
    std::fs::write(&path, vec![1; 8192]).unwrap();
    let reading = Opening { size: None, ..opening(0, false) };
    assert_eq!(target.open(reading, &mut |_, _| true).unwrap().size, Bytes(8192));
    let destroying = Opening { destroy: true, ..opening(MIB, true) };
    assert_eq!(target.open(destroying, &mut |_, _| true).unwrap().size, Bytes(MIB));
}

#[test]
fn a_load_that_no_memory_holds_is_refused_on_every_target() {
    let null = Target::Null.open(opening(1 << 30, false), &mut |_, _| true).unwrap();
    let way = AccessMethod::Nbd { address: "nbd://127.0.0.1:9/x".parse().unwrap(), several: true, access_max: 1 << 20 };
    let export = super::target::Ready { way, ..null.clone() };
    let one = super::target::Ready {
        way: AccessMethod::Nbd { address: "nbd://127.0.0.1:9/x".parse().unwrap(), several: false, access_max: 1 << 20 },
        ..null.clone()
    };
    for (ready, count, workers, length, words) in [
        (&null, u32::MAX, 2, 4096, "too many for 2 workers"),
        (&export, 50_000_000, 2, 4096, "too many for 2 workers"),
        (&one, 50_000, 64, 4096, "too many for 1 workers"),
        (&export, 512 * 32_768, 512, 1 << 30, "of memory are free; ask for fewer"),
    ] {
        let setup = Setup { workers, ..setup(spec(100, 100, length), Load::Outstanding(count)) };
        let error = run(ready, &setup, &mut all).unwrap_err();
        assert!(matches!(&error, LabError::Usage(why) if why.contains(words)), "{error:?}");
    }
    // An open loop whose few accesses would take half a tebibyte.
    let rate = Load::Rate { each_second: 1e6, random: false };
    let error = run(&export, &Setup { workers: 512, ..setup(spec(100, 100, 1 << 30), rate) }, &mut all).unwrap_err();
    assert!(matches!(&error, LabError::Usage(why) if why.contains("holds 0 in each")), "{error:?}");
}

#[test]
fn a_workload_that_only_reads_cannot_check_a_file_of_others() {
    let place = Place::within(Path::new("/dev/shm"));
    let path = place.0.join("records");
    std::fs::write(&path, vec![1; MIB as usize]).unwrap();
    let target = Target::Path(path.clone());
    let content = Content { verify: true, ..Content::default() };
    for destroy in [false, true] {
        let reading = Opening { content, destroy, ..opening(MIB, false) };
        let error = target.open(reading, &mut |_, _| true).unwrap_err();
        assert!(matches!(&error, LabError::Usage(why) if why.contains("add writes")), "{error:?}");
    }
    assert!(std::fs::read(&path).unwrap() == vec![1; MIB as usize]);
}

#[test]
fn a_drive_of_a_pool_is_never_written_over() {
    let place = Place::within(Path::new("/dev/shm"));
    let path = place.0.join("drive.img");
    let target = Target::Path(path.clone());
    let destroying = || Opening { destroy: true, ..opening(MIB, true) };
    let size = 2 * MIB as usize;
    // Each copy of the label counts, also where the others are gone.
    for at in [0, 64 << 10, size - (128 << 10), size - (64 << 10)] {
        let mut bytes = vec![1; size];
        bytes[at..at + 8].copy_from_slice(b"STELELBL");
        std::fs::write(&path, &bytes).unwrap();
        let error = target.open(destroying(), &mut |_, _| true).err().unwrap_or_else(|| panic!("written over: {at}"));
        assert!(matches!(&error, LabError::Refused(why) if why.contains("label of a Stele pool")), "{error:?}");
        assert!(std::fs::read(&path).unwrap() == bytes);
        let reading = Opening { size: None, ..opening(0, false) };
        target.open(reading, &mut |_, _| true).unwrap();
    }
    // A server that runs has its drives locked.
    std::fs::write(&path, vec![1; size]).unwrap();
    let held = std::fs::File::open(&path).unwrap();
    held.lock().unwrap();
    let error = target.open(destroying(), &mut |_, _| true).unwrap_err();
    assert!(matches!(&error, LabError::Refused(why) if why.contains("in use by another process")), "{error:?}");
    assert!(std::fs::read(&path).unwrap() == vec![1; size]);
    drop(held);
    target.open(destroying(), &mut |_, _| true).unwrap();
}

#[test]
fn a_target_is_filled_once_and_known_again() {
    let place = Place::within(Path::new("/dev/shm"));
    let target = Target::Path(place.0.join("target"));
    let fills = |size| {
        let mut calls = 0;
        let ready = target.open(opening(size, true), &mut |_, _| {
            calls += 1;
            true
        });
        assert!(matches!(ready.unwrap().way, AccessMethod::Inline(_)));
        calls
    };
    assert_eq!(fills(2 * MIB), 2);
    assert_eq!(fills(2 * MIB), 0, "filled already");
    assert_eq!(fills(4 * MIB), 4, "larger than it was");
    // Data that compresses otherwise is not what was asked for, also where it is only read.
    let with = |compress_percent: u32, dedupe_percent: u32, writes: bool| {
        let content = Content { compress_percent, dedupe_percent, ..Content::default() };
        let mut calls = 0;
        let filled = target.open(Opening { content, ..opening(4 * MIB, writes) }, &mut |_, _| {
            calls += 1;
            true
        });
        filled.unwrap();
        calls
    };
    assert_eq!(with(400, 100, false), 4);
    assert_eq!(with(400, 100, true), 0);
    assert_eq!(with(400, 200, true), 4);
    assert_eq!(with(100, 100, false), 4);
    assert_eq!(with(100, 100, false), 0);
    // A former version did not say how it compresses.
    let file = std::fs::File::open(place.0.join("target")).unwrap();
    stele_media::system::set_attribute(&file, "user.stele.lab", &(4 * MIB).to_string()).unwrap();
    assert_eq!(with(100, 100, false), 4);
    // A fill that was stopped does not count.
    let other = Target::Path(place.0.join("other"));
    assert!(other.open(opening(4 * MIB, true), &mut |done, _| done < 2 * MIB).is_err());
    let mut calls = 0;
    other
        .open(opening(MIB, false), &mut |_, _| {
            calls += 1;
            true
        })
        .unwrap();
    assert_eq!(calls, 1, "half filled before");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let place = Place::within(Path::new("/dev/shm"));
    let missing = Target::Path(place.0.join("none"));
    let nothing = Opening { size: None, ..opening(0, true) };
    let text = missing.open(nothing, &mut |_, _| true).unwrap_err().to_string();
    assert!(text.contains("--size"), "{text}");
    let text = Target::Path("/dev/tty".into()).open(nothing, &mut |_, _| true).unwrap_err().to_string();
    assert!(text.contains("neither a file nor a directory"), "{text}");
    let text = "ftp://there".parse::<Target>().unwrap_err().to_string();
    assert!(text.contains("ftp://"), "{text}");

    let ready = Target::Null.open(opening(MIB, false), &mut |_, _| true).unwrap();
    for (spec, load, words) in [
        (spec(100, 100, 1000), Load::Outstanding(1), "multiples of 512"),
        (spec(100, 100, 2 * MIB), Load::Outstanding(1), "less than one access"),
        (spec(100, 100, 4096), Load::Outstanding(0), "at least one"),
        (spec(100, 100, 4096), Load::Rate { each_second: f64::NAN, random: false }, "greater than 0"),
    ] {
        let text = run(&ready, &setup(spec, load), &mut all).unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_target_that_was_written_without_checks_is_filled_anew_before_reads_are_checked() {
    let place = Place::within(Path::new("/dev/shm"));
    let target = Target::Path(place.0.join("target"));
    let checked = Content { verify: true, ..Content::default() };
    let fills = |content, writes| {
        let mut calls = 0;
        let opening = Opening { content, ..opening(MIB, writes) };
        let ready = target.open(opening, &mut |_, _| {
            calls += 1;
            true
        });
        let mut short = Setup { content, ..setup(spec(50, 100, 4096), Load::Outstanding(1)) };
        short.spec.read = Some(if writes { 50 } else { 100 });
        run(&ready.unwrap(), &short, &mut all).unwrap();
        calls
    };
    assert_eq!(fills(Content::default(), true), 1);
    assert_eq!(fills(checked, false), 1, "its content had no CRCs");
    assert_eq!(fills(checked, true), 0, "all that was written since can be checked");
    assert_eq!(fills(checked, false), 0);
    assert_eq!(fills(Content { seed: 2, ..checked }, false), 1, "of another seed");
    assert_eq!(fills(Content::default(), true), 0);
    assert_eq!(fills(checked, false), 1, "written without checks in between");
}

#[test]
fn more_outstanding_than_a_ring_takes_is_refused_and_never_cut() {
    let place = Place::within(&std::env::temp_dir());
    let target: Target = place.0.join("target").to_string_lossy().parse().unwrap();
    let ready = target.open(opening(MIB, false), &mut |_, _| true).unwrap();
    if !matches!(ready.way, AccessMethod::Ring(_)) {
        return;
    }
    let many = Setup { workers: 1, ..setup(spec(100, 100, 4096), Load::Outstanding(40_000)) };
    let error = run(&ready, &many, &mut all).unwrap_err().to_string();
    assert!(error.contains("40000 accesses under way are too many for 1 workers"), "{error}");
    let ring = |slots| {
        let file = std::sync::Arc::new(std::fs::File::open(place.0.join("target")).unwrap());
        super::uring::Uring::new(file, slots, 4096).map(|ring| super::engine::Engine::slots(&ring))
    };
    assert_eq!(ring(6_000), Ok(6_000), "4,096 were all there were");
    assert!(ring(40_000).unwrap_err().contains("too many for one worker"));
}
