use std::path::{Path, PathBuf};

use stele_ground::{Bytes, Duration, MIB};

use crate::live::content::Content;
use crate::live::run::{Found, Load, Of, Setup, Timing, run};
use crate::live::target::{AccessMethod, Opening, Ready, Target};
use crate::workload::{AccessSpec, Alignment};

const CHECKED: Content = Content { seed: 1, compress_percent: 100, dedupe_percent: 100, verify: true };

fn opened(address: &str) -> Result<Ready, String> {
    let target: Target = address.parse().map_err(|error| format!("{error}"))?;
    let opening =
        Opening { size: Some(Bytes(8 * MIB)), writes: true, step: 512, content: CHECKED, ..Opening::default() };
    target.open(opening, &mut |_, _| true).map_err(|error| error.to_string())
}

fn measured(ready: &Ready, access: u64, load: Load) -> Result<Found, String> {
    let long = Duration::from_secs(60);
    let sizes = vec![(access, 100)];
    let setup = Setup {
        spec: AccessSpec { name: "test".into(), random: Some(50), read: Some(50), sizes },
        alignment: Alignment::Request,
        load,
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 2,
        timing: Timing { warm_up: Duration(0), round: Duration::from_millis(10), least: long, most: long },
        content: CHECKED,
        of: Of::Data,
        seed: 7,
    };
    let (mut reads, mut writes) = (0, 0);
    let mut enough = |_: i64, round: &crate::live::run::Round| {
        (reads, writes) = (reads + round.read.count(), writes + round.write.count());
        reads < 50 || writes < 50
    };
    run(ready, &setup, &mut enough).map_err(|error| error.to_string())
}

/// A place for a directory, gone with it when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        Place(Path::new("/dev/shm").join(format!("stele-lab-volume-{name}-{}", std::process::id())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[test]
fn an_address_says_what_is_not_usual() {
    for (given, shown) in [
        ("volume:mirror-2", "volume:mirror-2,drives=3"),
        ("volume:8+2,drives=12,memory,write-back,block=4096", "volume:8+2,drives=12"),
        ("volume:4+2,write-through,block=512,cache=1MiB", "volume:4+2,drives=6,block=512,cache=1048576,write-through"),
        ("volume:4+2,dir=/a,b", "volume:4+2,drives=6,dir=/a,b"),
    ] {
        let address: Target = given.parse().unwrap();
        assert_eq!(address.to_string(), shown);
        assert_eq!(shown.parse::<Target>().unwrap(), address);
    }
    for (given, why) in [
        ("volume:", "is not a code"),
        ("volume:5", "is not a code"),
        ("volume:8+2,drives=9", "takes 10 drives at least"),
        ("volume:8+2,drives=1000", "128 are the most"),
        ("volume:8+2,block=1024", "'block=1024' is not known"),
        ("volume:8+2,memory,dir=/a", "'memory' is not known"),
        ("volume:8+2,dir=", "names no directory"),
        ("volume:8+2,cache=much", "'much' is no size"),
    ] {
        let error = given.parse::<Target>().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn volumes_of_all_kinds_give_back_what_was_written() {
    let place = Place::new("kinds");
    for address in [
        "volume:mirror-2".to_owned(),
        "volume:4+2,drives=8,write-through".to_owned(),
        "volume:mirror-3,drives=4,block=512,cache=1MiB".to_owned(),
        format!("volume:2+1,dir={}", place.0.display()),
    ] {
        let ready = opened(&address).unwrap();
        let access = ready.block.0;
        for load in [Load::Outstanding(8), Load::Rate { each_second: 5000.0, random: true }] {
            let found = measured(&ready, access, load).unwrap_or_else(|error| panic!("{address}: {error}"));
            assert!(found.stopped, "{address}");
        }
        ready.remove().unwrap();
        let error = measured(&ready, access, Load::Outstanding(2)).unwrap_err();
        assert!(error.contains("stopped"), "{error}");
    }
    assert!(!place.0.exists(), "what was made is removed");
}

#[test]
fn what_is_written_over_behind_the_back_is_found() {
    let ready = opened("volume:mirror-2").unwrap();
    let AccessMethod::Volume(volume) = &ready.way else { panic!("{:?}", ready.way) };
    volume.handle.zero_blocking(0, ready.size.0).unwrap();
    let error = measured(&ready, 4096, Load::Outstanding(1)).unwrap_err();
    assert!(error.contains("offset"), "{error}");
}

#[test]
fn a_directory_that_holds_something_is_refused_and_left_alone() {
    let place = Place::new("held");
    std::fs::create_dir(&place.0).unwrap();
    let address = format!("volume:mirror-2,dir={}", place.0.display());
    opened(&address).unwrap().remove().unwrap();
    assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 0, "an empty one is used, and stays");
    std::fs::write(place.0.join("drive-000"), "mine").unwrap();
    let error = opened(&address).unwrap_err();
    assert!(error.contains("holds something already"), "{error}");
    assert_eq!(std::fs::read(place.0.join("drive-000")).unwrap(), b"mine");
}

#[test]
fn what_a_killed_run_left_is_taken_away_and_what_another_one_uses_is_not() {
    let place = Place::new("killed");
    let address = format!("volume:mirror-2,dir={}", place.0.display());
    let running = opened(&address).unwrap();
    let error = opened(&address).unwrap_err();
    assert!(error.contains("in use by another run"), "{error}");
    let AccessMethod::Volume(volume) = &running.way else { panic!("{:?}", running.way) };
    // As after a kill: the pool is gone, its drives are there.
    drop(volume.server.lock().unwrap().take());
    drop(running);
    assert!(std::fs::read_dir(&place.0).unwrap().count() > 0);
    std::fs::write(place.0.join("mine"), "mine").unwrap();
    let error = opened(&address).unwrap_err();
    assert!(error.contains("holds something already"), "{error}");
    std::fs::remove_file(place.0.join("mine")).unwrap();
    opened(&address).unwrap().remove().unwrap();
    assert!(!place.0.exists(), "the run that was killed had made it");
}

#[test]
fn drives_that_are_kept_are_nobody_elses_to_take() {
    let place = Place::new("volume-kept");
    let address = format!("volume:mirror-2,dir={}", place.0.display());
    drop(opened(&address).unwrap());
    let held = || std::fs::read_dir(&place.0).unwrap().count();
    assert!(held() >= 3);
    let error = opened(&address).unwrap_err();
    assert!(error.contains("holds something already") && held() >= 3, "{error}");
}

#[test]
fn a_filling_that_is_stopped_leaves_nothing() {
    let place = Place::new("stopped");
    let target: Target = format!("volume:mirror-2,dir={}", place.0.display()).parse().unwrap();
    let opening = Opening { size: Some(Bytes(8 * MIB)), ..Opening::default() };
    let error = target.open(opening, &mut |_, _| false).unwrap_err().to_string();
    assert!(error.contains("stopped while it was filled"), "{error}");
    assert!(!place.0.exists());
}
