use std::collections::BTreeSet;

use stele_ground::Duration;

use super::*;
use crate::live::content::Content;
use crate::live::run::{Load, Of, Setup, Timing, run};
use crate::live::target::Target;
use crate::workload::{AccessSpec, Alignment};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("stele-lab-dir-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }

    fn names(&self, within: &str) -> BTreeSet<String> {
        let names = std::fs::read_dir(self.0.join(within)).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn opening() -> Opening {
    Opening { size: Some(Bytes(4 << 16)), files: 4, writes: true, buffered: true, step: 512, ..Opening::default() }
}

fn all(_: u64, _: u64) -> bool {
    true
}

fn directory(ready: &Ready) -> &Directory {
    match &ready.way {
        AccessMethod::Directory(directory) => directory,
        _ => panic!("{ready:?}"),
    }
}

fn setup(random: u8, sizes: Vec<(u64, u8)>, threads: u32) -> Setup {
    let span = Duration::from_secs(20);
    Setup {
        spec: AccessSpec { name: "t".into(), random: Some(random), read: Some(50), sizes },
        alignment: Alignment::Request,
        load: Load::Outstanding(threads),
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 1,
        timing: Timing { warm_up: Duration(0), round: Duration::from_millis(10), least: span, most: span },
        content: Content::default(),
        of: Of::Data,
        seed: 1,
    }
}

fn drive(ready: &Ready, setup: &Setup) -> Result<(), LabError> {
    let mut count = 0;
    run(ready, setup, &mut |_, round| {
        count += round.response().count();
        count < 2_000
    })
    .map(drop)
}

#[test]
fn only_what_was_made_is_touched_and_removed() {
    let place = Place::new("own");
    std::fs::write(place.0.join("data-000000"), b"somebody's").unwrap();
    let ready = Target::Path(place.0.clone()).open(opening(), &mut all).unwrap();
    assert_eq!(place.names(""), set(&["data-000000", "stele-lab"]));
    assert_eq!(ready.size, Bytes(4 << 16));
    let text = Target::Path(place.0.clone()).open(opening(), &mut all).unwrap_err().to_string();
    assert!(text.contains("another run"), "{text}");
    drive(&ready, &setup(50, vec![(512, 50), (8192, 50)], 3)).unwrap();
    std::fs::write(place.0.join("stele-lab/letter"), b"somebody's").unwrap();
    directory(&ready).remove().unwrap();
    assert_eq!(place.names("stele-lab"), set(&["letter"]));
    assert_eq!(std::fs::read(place.0.join("data-000000")).unwrap(), b"somebody's");
    drop(ready);
    // What has that name and no mark is not the laboratory's.
    let error = Target::Path(place.0.clone()).open(opening(), &mut all).unwrap_err();
    assert!(matches!(error, LabError::Refused(_)), "{error}");
    // A mark that speaks of something else removes nothing.
    std::fs::write(place.0.join("stele-lab").join(MARK), b"{\"files\": \"all\"}").unwrap();
    let error = Target::Path(place.0.clone()).open(opening(), &mut all).unwrap_err();
    assert!(matches!(error, LabError::Refused(_)), "{error}");
    assert_eq!(place.names("stele-lab"), set(&["letter", MARK]));
}

#[test]
fn a_directory_that_did_not_exist_is_made_and_goes_or_is_used_again() {
    let place = Place::new("made");
    let target: Target = format!("dir:{}", place.0.join("new").display()).parse().unwrap();
    let fill = |opening: Opening| {
        let mut calls = 0;
        let ready = target.open(opening, &mut |_, _| {
            calls += 1;
            true
        });
        (ready.unwrap(), calls)
    };
    assert_eq!(fill(opening()).1, 4);
    assert_eq!(place.names("new").len(), 5);
    assert_eq!(fill(opening()).1, 0, "kept, and used again");
    assert_eq!(fill(Opening { files: 2, ..opening() }).1, 2, "in another shape");
    assert_eq!(place.names("new"), set(&["data-000000", "data-000001", MARK]));
    let squeezed = Content { compress_percent: 400, ..Content::default() };
    assert_eq!(fill(Opening { files: 2, content: squeezed, ..opening() }).1, 2, "filled otherwise");
    assert_eq!(fill(Opening { files: 2, content: squeezed, ..opening() }).1, 0);
    assert_eq!(fill(opening()).1, 4);
    let checked = Content { verify: true, ..Content::default() };
    assert_eq!(fill(Opening { content: checked, ..opening() }).1, 4, "without anything to check");
    let (ready, calls) = fill(Opening { content: checked, ..opening() });
    assert_eq!(calls, 0);
    drive(&ready, &Setup { content: checked, ..setup(70, vec![(4096, 60), (512, 40)], 3) }).unwrap();
    directory(&ready).remove().unwrap();
    assert_eq!(place.names(""), set(&[]));
}

#[test]
fn a_file_that_goes_back_to_what_it_was_is_found() {
    let place = Place::new("stale");
    let checked = Content { verify: true, ..Content::default() };
    let ready = Target::Path(place.0.clone()).open(Opening { content: checked, ..opening() }, &mut all).unwrap();
    let path = place.0.join("stele-lab/data-000000");
    let before = std::fs::read(&path).unwrap();
    let setup = Setup { content: checked, ..setup(100, vec![(4096, 100)], 1) };
    drive(&ready, &setup).unwrap();
    std::fs::write(&path, before).unwrap();
    let error = drive(&ready, &setup).unwrap_err().to_string();
    assert!(error.contains("is lost"), "{error}");
}

#[test]
fn names_are_looked_at_made_and_removed() {
    let place = Place::new("names");
    let ready = Target::Path(place.0.clone()).open(opening(), &mut all).unwrap();
    drive(&ready, &Setup { of: Of::Names, ..setup(100, vec![(4096, 100)], 2) }).unwrap();
    assert_eq!(place.names("stele-lab").len(), 5, "what was made last is removed too");
    // One that was killed leaves its names.
    drop(ready);
    for worker in [0, 7] {
        std::fs::write(place.0.join("stele-lab").join(passing_name(worker)), b"").unwrap();
    }
    let ready = Target::Path(place.0.clone()).open(opening(), &mut all).unwrap();
    drive(&ready, &Setup { of: Of::Names, ..setup(100, vec![(4096, 100)], 2) }).unwrap();
    assert_eq!(place.names("stele-lab").len(), 5);
    let text = drive(&ready, &setup(100, vec![(1 << 17, 100)], 2)).unwrap_err().to_string();
    assert!(text.contains("longer than a file"), "{text}");
}

#[test]
fn a_fill_that_fails_leaves_nothing_behind() {
    let place = Place::new("failed");
    let wanted = Target::Directory(place.0.join("made"));
    let error = wanted.open(opening(), &mut |done, all| done < all / 2).unwrap_err().to_string();
    assert!(error.contains("stopped while it was filled"), "{error}");
    assert!(!place.0.join("made").exists(), "the directory was made for it");
    // In a directory that was there what is there stays, and nothing else does.
    std::fs::write(place.0.join("kept"), "kept").unwrap();
    let within = Target::Directory(place.0.clone());
    within.open(opening(), &mut |_, _| false).unwrap_err();
    assert_eq!(place.names(""), set(&["kept"]));
    within.open(opening(), &mut all).unwrap();
}
