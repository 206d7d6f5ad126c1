//! The job files of `data/fio` through this crate and through fio: the same operations on the same
//! places of the same files.
//!
//! Each file says in its first lines what every job of it does; both are held to that, and to each
//! other by how far chance leaves them alike. Nothing here depends on how fast anything is.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::*;

/// Runs of fio at once, which for the most part wait.
const AT_ONCE: usize = 6;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("stele-lab-fio-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(path.join("files")).unwrap();
        Place(path)
    }

    fn files(&self) -> PathBuf {
        self.0.join("files")
    }

    fn lengths(&self) -> BTreeMap<String, u64> {
        let entries = std::fs::read_dir(self.files()).unwrap().flatten();
        entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// What a job of a file is to do.
#[derive(Clone, Debug)]
struct Expected {
    job: String,
    counts: BTreeMap<String, u64>,
    how: String,
}

fn expected(text: &str) -> Vec<Expected> {
    let said = text.lines().filter_map(|line| line.strip_prefix("; ")?.split_once(": "));
    let job = |(job, said): (&str, &str)| {
        let (counts, how) = said.split_once("; ")?;
        let count = |part: &str| {
            let (count, of) = part.split_once(' ')?;
            Some((of.to_owned(), count.parse().ok()?))
        };
        Some(Expected { job: job.into(), counts: counts.split(", ").filter_map(count).collect(), how: how.into() })
    };
    said.filter_map(job).collect()
}

/// Kind, file, place and length.
type Logged = (char, String, u64, u64);

/// What a job did: its counts, and where it is logged every access with kind, file, place and
/// length.
#[derive(Clone, Default, PartialEq, Debug)]
struct Did {
    counts: BTreeMap<String, u64>,
    accesses: Vec<Logged>,
}

/// The file with its place, and a log of each job that has one.
fn prepared(text: &str, place: &Place, logged: &[Expected]) -> String {
    let mut out = format!("[global]\ndirectory={}\n", place.files().display());
    for line in text.lines() {
        out.push_str(line);
        out.push('\n');
        let job = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(job) = job.filter(|job| logged.iter().any(|one| one.job == *job && one.how != "counts")) {
            out.push_str(&format!("write_iolog={}\n", place.0.join(job).display()));
        }
    }
    out
}

/// Both write it in one format; fio has times in microseconds there, too.
fn read_log(path: &Path) -> (Vec<Logged>, u64) {
    let (mut accesses, mut syncs) = (Vec::new(), 0);
    for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, file, kind @ ("read" | "write"), at, length] => {
                let file = file.rsplit('/').next().unwrap().to_owned();
                accesses.push((kind.chars().next().unwrap(), file, at.parse().unwrap(), length.parse().unwrap()));
            }
            [_, _, "sync" | "datasync", ..] => syncs += 1,
            _ => {}
        }
    }
    (accesses, syncs)
}

fn did(place: &Place, expected: &Expected, [reads, writes, bytes, syncs]: [u64; 4]) -> Did {
    let (accesses, logged_syncs) = read_log(&place.0.join(&expected.job));
    let syncs = if expected.how == "counts" { syncs } else { logged_syncs };
    let counts =
        [("reads", reads), ("writes", writes), ("accesses", reads + writes), ("bytes", bytes), ("syncs", syncs)];
    Did { counts: counts.into_iter().map(|(of, count)| (of.to_owned(), count)).collect(), accesses }
}

fn here(text: &str, place: &Place, expected: &[Expected]) -> Result<Vec<Did>, String> {
    let jobs = jobs(&prepared(text, place, expected)).map_err(|error| error.to_string())?;
    let ran = run(&jobs, false, &AtomicBool::new(false), &|_| ()).map_err(|error| error.to_string())?;
    let of_job = |expected: &Expected| {
        let mut sums = [0; 4];
        for ran in ran.iter().filter(|ran| ran.name == expected.job) {
            if let Some(why) = &ran.tally.failed {
                return Err(format!("{}: {why}", ran.name));
            }
            let [read, write] = &ran.tally.ways;
            let counts = [read.whole.count(), write.whole.count(), read.bytes + write.bytes, ran.tally.syncs.count()];
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        Ok(did(place, expected, sums))
    };
    expected.iter().map(of_job).collect()
}

fn in_fio(text: &str, place: &Place, expected: &[Expected]) -> Result<Vec<Did>, String> {
    let (job, out) = (place.0.join("job.fio"), place.0.join("out.json"));
    std::fs::write(&job, prepared(text, place, expected)).unwrap();
    // One that does not end ends the test.
    let mut command = Command::new("timeout");
    command.args(["60", "fio"]).arg(&job).arg("--output-format=json").arg(format!("--output={}", out.display()));
    let ended = command.stdin(Stdio::null()).current_dir(&place.0).output().map_err(|error| error.to_string())?;
    let said = std::fs::read_to_string(&out).unwrap_or_default();
    let json: Value = serde_json::from_str(said.get(said.find('{').unwrap_or(0)..).unwrap_or_default())
        .map_err(|error| format!("fio: {error}: {said} {}", String::from_utf8_lossy(&ended.stderr)))?;
    let of_job = |expected: &Expected| {
        let mut sums = [0; 4];
        for job in json["jobs"].as_array().unwrap().iter().filter(|job| job["jobname"] == expected.job.as_str()) {
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            let (read, write) = (&job["read"], &job["write"]);
            let bytes = number(&read["io_bytes"]) + number(&write["io_bytes"]);
            let counts =
                [number(&read["total_ios"]), number(&write["total_ios"]), bytes, number(&job["sync"]["total_ios"])];
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        did(place, expected, sums)
    };
    Ok(expected.iter().map(of_job).collect())
}

fn corpus() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/fio");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
    files.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    files.into_iter().map(read).collect()
}

/// Whether fio is there. Where it is not, only what the files say is looked at, except where
/// everything is to be tested.
fn has_fio() -> bool {
    let found = Command::new("fio").arg("--version").stdin(Stdio::null()).output();
    let found = found.is_ok_and(|output| output.status.success());
    assert!(found || std::env::var_os("CI").is_none(), "fio does not run here, and CI leaves nothing out");
    found
}

/// Counts by place, of which the hottest tenth takes so much, and how many there are.
fn spread(did: &Did) -> (f64, f64, f64) {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    did.accesses.iter().for_each(|access| *counts.entry(access.2).or_default() += 1);
    let all = did.accesses.len().max(1) as f64;
    let low: u64 = counts.iter().filter(|(at, _)| **at < 4 << 20 >> 3).map(|(_, count)| count).sum();
    let mut hot: Vec<u64> = counts.into_values().collect();
    hot.sort_unstable_by(|one, other| other.cmp(one));
    let top: u64 = hot.iter().take((hot.len() / 10).max(1)).sum();
    (hot.len() as f64, top as f64 / all, low as f64 / all)
}

/// In which way the two differ, if they do.
fn difference(how: &str, ours: &Did, theirs: &Did) -> Option<String> {
    let sorted = |did: &Did, of: fn(&Logged) -> Logged| {
        let mut all: Vec<_> = did.accesses.iter().map(of).collect();
        all.sort();
        all
    };
    let same = match how {
        "order" => ours.accesses == theirs.accesses,
        "set" => sorted(ours, Clone::clone) == sorted(theirs, Clone::clone),
        "places" => {
            let of = |access: &Logged| (' ', access.1.clone(), access.2, access.3);
            sorted(ours, of) == sorted(theirs, of)
        }
        "spread" => {
            let ((some, top, _), (others, their_top, _)) = (spread(ours), spread(theirs));
            let near = (some - others).abs() < 0.15 * others && (top - their_top).abs() < 0.08;
            return (!near).then(|| format!("{:?} here, {:?} in fio", spread(ours), spread(theirs)));
        }
        _ => true,
    };
    let first = |did: &Did| format!("{:?}", did.accesses.iter().take(12).collect::<Vec<_>>());
    (!same).then(|| format!("accesses in {how} differ: {}\nin fio {}", first(ours), first(theirs)))
}

/// Wrong counts, and accesses outside of what the job may touch.
fn against_expected(who: &str, expected: &Expected, did: &Did, region: (u64, u64)) -> Vec<String> {
    let mut faults = Vec::new();
    for (of, count) in &expected.counts {
        if did.counts.get(of) != Some(count) {
            faults.push(format!("{who}: {:?} {of}, and {count} are expected", did.counts.get(of)));
        }
    }
    if let Some(access) = did.accesses.iter().find(|access| access.2 < region.0 || access.2 + access.3 > region.1) {
        faults.push(format!("{who}: {access:?} is outside of {region:?}"));
    }
    faults
}

#[test]
fn job_files_do_here_what_they_do_in_fio() {
    let (corpus, compared) = (corpus(), has_fio());
    assert!(corpus.len() >= 30);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let one = |(name, text): &(String, String)| {
        let (expected, mut faults) = (expected(text), Vec::new());
        let (ours, theirs) = (Place::new(&format!("{name}-here")), Place::new(&format!("{name}-there")));
        let jobs = jobs(&prepared(text, &ours, &expected)).map_err(|error| format!("{name}: {error}"))?;
        let named: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(named, expected.iter().map(|one| one.job.as_str()).collect::<Vec<_>>(), "{name}");
        let found = here(text, &ours, &expected).map_err(|why| format!("{name}: {why}"))?;
        let other = match compared {
            true => Some(in_fio(text, &theirs, &expected).map_err(|why| format!("{name}: {why}"))?),
            false => None,
        };
        for (at, (expected, did)) in expected.iter().zip(&found).enumerate() {
            let region = layout::layout(&jobs[at], 0, &mut Made::new())
                .map(|laid| laid.files[0].region)
                .map_err(|why| why.to_string())?;
            // A part of a file that was missing is another one now that it is there: only the end
            // is the same.
            let region = (region.offset.min(did.accesses.iter().map(|one| one.2).min().unwrap_or(0)), region.file);
            faults.extend(against_expected("here", expected, did, region));
            if let Some(theirs) = other.as_ref().map(|all| &all[at]) {
                faults.extend(against_expected("fio", expected, theirs, region));
                faults.extend(difference(&expected.how, did, theirs));
            }
            faults.iter_mut().filter(|fault| !fault.contains(".fio")).for_each(|fault| {
                *fault = format!("{name}.fio, {}: {fault}", expected.job);
            });
        }
        if compared && ours.lengths() != theirs.lengths() {
            faults.push(format!("{name}.fio: files {:?}, in fio {:?}", ours.lengths(), theirs.lengths()));
        }
        Ok(faults)
    };
    let work = || {
        let mut faults: Vec<String> = Vec::new();
        while let Some(file) = corpus.get(next.fetch_add(1, Ordering::Relaxed)) {
            faults.extend(one(file).unwrap_or_else(|why: String| vec![why]));
        }
        faults
    };
    let faults: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_job_ends_when_it_is_asked_to_and_where_its_file_fails() {
    let place = Place::new("ends");
    let job = |keys: &str| jobs(&format!("[a]\ndirectory={}\nsize=64k\n{keys}\n", place.files().display())).unwrap();
    let (endless, stop) = (job("rw=read\ntime_based\nruntime=1d"), AtomicBool::new(false));
    let ran = run(&endless, false, &stop, &|said| stop.store(said.starts_with("turn"), Ordering::Relaxed)).unwrap();
    assert!(ran[0].tally.failed.is_none(), "{ran:?}");

    // The file ends before the part that the job reads.
    let shorten = |said: &str| {
        if said.starts_with("turn") {
            File::options().write(true).open(place.files().join("a.0.0")).unwrap().set_len(32 << 10).unwrap();
        }
    };
    let ran = run(&job("rw=read"), false, &AtomicBool::new(false), &shorten).unwrap();
    let why = ran[0].tally.failed.as_deref().unwrap();
    assert!(why.starts_with("read of 4096 bytes at offset 32768: "), "{why}");
}

#[test]
fn a_turn_that_cannot_begin_leaves_the_turns_before_it() {
    let place = Place::new("turns");
    let text = format!(
        "[global]
directory={}
size=64k
rw=read
[a]
[b]
stonewall
[c]
stonewall
",
        place.files().display()
    );
    let gone = |said: &str| {
        if said.starts_with("turn 2") {
            std::fs::remove_file(place.files().join("b.0.0")).unwrap();
        }
    };
    let (ran, failed) = run_kept(&jobs(&text).unwrap(), false, PATIENCE, &AtomicBool::new(false), &gone).unwrap();
    assert!(matches!(failed, Some(LabError::Missing(_))), "{failed:?}");
    let names: Vec<&str> = ran.iter().map(|ran| ran.name.as_str()).collect();
    assert_eq!((names, ran[0].tally.ways[0].whole.count()), (vec!["a"], 16));
}

#[test]
fn a_rate_that_is_not_kept_ends_the_job() {
    let place = Place::new("least");
    let text = format!("[a]\ndirectory={}\nsize=1m\nrw=read\nrate_iops=100\n", place.files().display());
    let slow = jobs(&format!("{text}rate_iops_min=5000\nratecycle=50\n")).unwrap();
    let ran = run(&slow, false, &AtomicBool::new(false), &|_| ()).unwrap();
    let why = ran[0].tally.failed.as_deref().unwrap();
    assert!(why.starts_with("reads came to") && why.contains("rate_min asks for 20480000"), "{why}");
}

#[test]
fn a_file_of_somebody_else_is_removed_only_where_that_is_allowed() {
    let place = Place::new("unlink");
    let path = place.files().join("table.dat");
    std::fs::write(&path, vec![7; 64 << 10]).unwrap();
    let text = |keys: &str| format!("[a]\nfilename={}\nrw=read\nunlink=1\n{keys}", path.display());
    let run = |keys: &str, destroy: bool| run(&jobs(&text(keys)).unwrap(), destroy, &AtomicBool::new(false), &|_| ());
    let error = run("", false).unwrap_err();
    assert!(matches!(error, LabError::Refused(_)), "{error:?}");
    assert!(path.exists());
    // The plan says so before.
    let refused = |destroy| plan(&jobs(&text("")).unwrap(), destroy).unwrap()[0].refused.clone();
    let why = refused(false).unwrap();
    assert_eq!((error.to_string(), refused(true)), (format!("job 'a', line 1: {why}"), None));
    run("ioengine=null\nsize=64k\n", false).unwrap();
    assert!(path.exists(), "an engine that reads nothing removes nothing");
    run("", true).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_name_that_is_no_file_is_not_removed() {
    let place = Place::new("link");
    let (path, link) = (place.files().join("table.dat"), place.files().join("link"));
    std::fs::write(&path, vec![7; 64 << 10]).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let jobs = jobs(&format!("[a]\nfilename={}\nrw=read\nunlink=1\n", link.display())).unwrap();
    run(&jobs, true, &AtomicBool::new(false), &|_| ()).unwrap();
    assert!(std::fs::symlink_metadata(&link).is_ok() && path.exists());
}

#[test]
fn a_log_is_a_new_file_of_one_copy() {
    let place = Place::new("log");
    let log = place.0.join("trace.log");
    let job = |keys: &str| {
        let directory = place.files();
        format!("[a]\ndirectory={}\nsize=64k\nrw=read\nwrite_iolog={}\n{keys}", directory.display(), log.display())
    };
    let run = |text: &str| run(&jobs(text).unwrap(), true, &AtomicBool::new(false), &|_| ());
    for keys in [
        "numjobs=2\n".to_owned(),
        format!(
            "[b]\nstonewall\ndirectory={}\nsize=64k\nrw=read\nwrite_iolog={}\n",
            place.files().display(),
            log.display()
        ),
    ] {
        let error = run(&job(&keys)).unwrap_err();
        assert!(matches!(&error, LabError::Usage(why) if why.contains("write_iolog")), "{error:?}");
        assert!(place.lengths().is_empty() && !log.exists(), "nothing was made");
    }
    std::fs::write(&log, "last week's").unwrap();
    let error = run(&job("")).unwrap_err();
    assert!(matches!(&error, LabError::Refused(why) if why.contains("exists already")), "{error:?}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "last week's");
    assert!(place.lengths().is_empty(), "nothing was made");
    std::fs::remove_file(&log).unwrap();
    run(&job("")).unwrap();
    assert_eq!(read_log(&log).0.len(), 16);
    // A log that would be a file of a job.
    let own = job("").replace(&log.display().to_string(), &place.files().join("a.0.0").display().to_string());
    std::fs::remove_file(place.files().join("a.0.0")).unwrap();
    let error = run(&own).unwrap_err();
    assert!(matches!(&error, LabError::Usage(why) if why.contains("write_iolog")), "{error:?}");
    assert!(place.lengths().is_empty());
}
