use std::path::PathBuf;

use stele_ground::MIB;

use super::*;
use crate::live::content::Content;
use crate::live::target::{Opening, Target};

/// A file in memory, gone when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        Place(PathBuf::from(format!("/dev/shm/stele-lab-{name}-{}", std::process::id())))
    }

    fn ready(&self, verify: bool) -> Ready {
        let content = Content { verify, ..Content::default() };
        let size = Some(Bytes(4 * MIB));
        let opening = Opening { size, writes: true, content, longest: LENGTH, ..Opening::default() };
        Target::Path(self.0.clone()).open(opening, &mut |_, _| true).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn setup(read: u8, random: u8, verify: bool) -> Setup {
    let short = Duration::from_millis(2);
    Setup {
        spec: AccessSpec { name: "test".into(), random: Some(random), read: Some(read), sizes: vec![(4096, 100)] },
        alignment: Alignment::Request,
        load: Load::Outstanding(2),
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 1,
        timing: Timing { warm_up: short, round: short, least: short, most: short },
        content: Content { verify, ..Content::default() },
        of: Of::Data,
        seed: 1,
    }
}

fn done(ready: &Ready, setup: &Setup, times: u32) -> Result<Option<PreconditionRecord>, LabError> {
    carry_out(ready, setup, times, &AtomicBool::new(false), &mut |_| true)
}

#[test]
fn all_of_it_is_written_so_often_and_at_random_only_before_random_writes() {
    let place = Place::new("precondition");
    let ready = place.ready(false);
    let before = std::fs::read(&place.0).unwrap();
    let ordered = done(&ready, &setup(100, 100, false), 3).unwrap().unwrap();
    assert!(ordered.ordered_bytes == 12 * MIB && ordered.seconds > 0.0, "{ordered:?}");
    assert_eq!((ordered.random_bytes, ordered.steady), (0, None), "it only reads");
    let after = std::fs::read(&place.0).unwrap();
    assert!(before.chunks(4096).zip(after.chunks(4096)).all(|(before, after)| before != after), "a block was left out");

    assert_eq!(done(&ready, &setup(0, 0, false), 1).unwrap().unwrap().steady, None, "it writes in order");
    let random = done(&ready, &setup(50, 100, false), 1).unwrap().unwrap();
    assert!(random.random_bytes > 0 && random.steady.is_some(), "{random:?}");
}

#[test]
fn what_it_wrote_passes_the_checks_of_the_cell_behind_it() {
    let place = Place::new("precondition-checked");
    let (ready, checked) = (place.ready(true), setup(50, 100, true));
    done(&ready, &checked, 1).unwrap().unwrap();
    crate::live::run::run(&ready, &checked, &mut |_, _| true).unwrap();
}

#[test]
fn one_that_is_stopped_is_none_and_what_is_made_of_files_is_refused() {
    let place = Place::new("precondition-stopped");
    let ready = place.ready(false);
    let stopped = carry_out(&ready, &setup(0, 100, false), 100, &AtomicBool::new(false), &mut |_| false).unwrap();
    assert_eq!(stopped, None);
    let files = Ready { file: Some(Bytes(MIB)), ..ready };
    let error = done(&files, &setup(0, 100, false), 1).unwrap_err().to_string();
    assert!(error.contains("precondition"), "{error}");
}

#[test]
fn a_number_of_times_is_read() {
    assert_eq!([parse("1x"), parse(" 2x "), parse("100x")], [Some(1), Some(2), Some(100)]);
    for bad in ["", "x", "0x", "101x", "2", "-1x", "2 x", "two"] {
        assert_eq!(parse(bad), None, "{bad}");
    }
}
