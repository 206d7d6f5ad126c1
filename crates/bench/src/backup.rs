//! `stele backup` beside restic and borg: the same tree in memory, processor time and wall time of the whole command.
//!
//! Each program saves the tree first, saves it again unchanged, saves it after one file in 20 changed, and restores it.
//! A round makes everything anew, the programs in turns. Agent and store are one process on one machine, since a
//! repository is a directory: no network is in these figures. All repositories are encrypted. restic compresses with
//! zstd by its default, borg with lz4, and Stele with zstd 1. The peers come from Debian; without one its column is empty.

mod tree;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Bench, Unit};

const CPU: Unit = Unit::less("CPU s");
const WALL: Unit = Unit::less("s");
const MEMORY: Unit = Unit::less("MiB");
const STORED: Unit = Unit::less("MiB");

/// Between two looks at a running command.
const LOOK: Duration = Duration::from_millis(5);
const PASSWORD: &str = "bench";

/// What one command took.
#[derive(Clone, Copy, Default)]
struct Cost {
    cpu_seconds: f64,
    wall_seconds: f64,
    memory_mib: f64,
}

/// A program that makes backups.
struct Agent {
    name: &'static str,
    program: PathBuf,
    init: &'static [&'static str],
    save: &'static [&'static str],
    restore: &'static [&'static str],
    verify: &'static [&'static str],
}

/// `REPO`, `TREE` and `OUT` stand for the places.
fn agents() -> Result<Vec<Agent>, String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let program = own.with_file_name("stele");
    if !program.is_file() {
        return Err(format!("there is no {}; build it with `cargo build --release -p stele`", program.display()));
    }
    let all = [
        Agent {
            name: "stele",
            program,
            init: &["backup", "init", "--repository", "REPO"],
            save: &["backup", "run", "TREE", "--repository", "REPO"],
            restore: &["backup", "restore", "latest", "--to", "OUT", "--repository", "REPO"],
            verify: &["backup", "verify", "--data", "--repository", "REPO"],
        },
        Agent {
            name: "restic",
            program: "restic".into(),
            init: &["init", "-q", "-r", "REPO"],
            save: &["-q", "-r", "REPO", "backup", "TREE"],
            restore: &["-q", "-r", "REPO", "restore", "latest", "--target", "OUT"],
            verify: &["-q", "-r", "REPO", "check", "--read-data"],
        },
        Agent {
            name: "borg",
            program: "borg".into(),
            init: &["init", "-e", "repokey-blake2", "REPO"],
            save: &["create", "REPO::{utcnow}", "TREE"],
            restore: &["extract", "REPO::LATEST"],
            verify: &["check", "--verify-data", "REPO"],
        },
    ];
    let is_there = |agent: &Agent| Command::new(&agent.program).arg("--version").stdout(Stdio::null()).status().is_ok();
    Ok(all.into_iter().filter(is_there).collect())
}

/// Processor time of children that were waited for, in seconds: fields 16 and 17 of `/proc/self/stat`, in hundredths.
fn children_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(") ").next().unwrap_or_default().split(' ').skip(13).take(2);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

struct Stage {
    root: PathBuf,
}

impl Stage {
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn run(&self, agent: &Agent, arguments: &[&str]) -> Result<Cost, String> {
        let place = |word: &&str| match *word {
            "TREE" => self.path("tree").display().to_string(),
            "OUT" => self.path("out").display().to_string(),
            word => word.replace("REPO", &self.path(agent.name).display().to_string()),
        };
        fs::create_dir_all(self.path("out")).map_err(|error| error.to_string())?;
        let (begun, before) = (Instant::now(), children_seconds());
        let mut child = Command::new(&agent.program)
            .args(arguments.iter().map(place))
            .current_dir(self.path("out"))
            .envs([("RESTIC_PASSWORD", PASSWORD), ("BORG_PASSPHRASE", PASSWORD), ("LC_ALL", "C.UTF-8")])
            .env("HOME", self.path("home"))
            .env("STELE_BACKUP_PASSWORD_FILE", self.path("password"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", agent.name))?;
        let mut cost = Cost::default();
        let status = loop {
            cost.memory_mib = cost.memory_mib.max(peak_mib(child.id()));
            match child.try_wait().map_err(|error| error.to_string())? {
                Some(status) => break status,
                None => std::thread::sleep(LOOK),
            }
        };
        (cost.wall_seconds, cost.cpu_seconds) = (begun.elapsed().as_secs_f64(), children_seconds() - before);
        if status.success() { Ok(cost) } else { Err(format!("{} {arguments:?}: {status}", agent.name)) }
    }

    fn clear(&self, name: &str) -> Result<(), String> {
        let path = self.path(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", path.display())),
            _ => Ok(()),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn peak_mib(process: u32) -> f64 {
    crate::process::Usage::of(process).resident_peak_bytes as f64 / f64::from(1 << 20)
}

fn bytes_of(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(is) if is.is_dir() => bytes_of(&entry.path()),
        Ok(is) => is.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// Each step with the target for our processor time: the best peer's on the reference machine, or better.
const STEPS: [(&str, f64); 5] =
    [("first backup", 7.0), ("unchanged", 0.8), ("5 % changed", 2.5), ("restore", 4.0), ("verify", 0.0)];

/// One round of one program: the cost of each step, and the bytes stored.
fn round(stage: &Stage, agent: &Agent) -> Result<(Vec<Cost>, f64), String> {
    for name in ["tree", "out", agent.name, "home"] {
        stage.clear(name)?;
    }
    fs::create_dir_all(stage.path("home")).map_err(|error| error.to_string())?;
    tree::make(&stage.path("tree")).map_err(|error| format!("cannot make the tree: {error}"))?;
    stage.run(agent, agent.init)?;
    let mut costs = vec![stage.run(agent, agent.save)?];
    let stored = bytes_of(&stage.path(agent.name)) as f64 / f64::from(1 << 20);
    costs.push(stage.run(agent, agent.save)?);
    tree::change(&stage.path("tree")).map_err(|error| format!("cannot change the tree: {error}"))?;
    costs.push(stage.run(agent, agent.save)?);
    stage.clear("out")?;
    let latest = latest(stage, agent);
    let restore: Vec<&str> =
        agent.restore.iter().map(|word| if *word == "REPO::LATEST" { &*latest } else { word }).collect();
    costs.push(stage.run(agent, &restore)?);
    costs.push(stage.run(agent, agent.verify)?);
    stage.clear(agent.name)?;
    Ok((costs, stored))
}

/// borg has no name for the latest archive.
fn latest(stage: &Stage, agent: &Agent) -> String {
    let listed = Command::new(&agent.program)
        .args(["list", "--last", "1", "--format", "{archive}"])
        .arg(stage.path(agent.name))
        .env("BORG_PASSPHRASE", PASSWORD)
        .env("HOME", stage.path("home"))
        .output();
    let name = listed.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    format!("REPO::{name}")
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let stage = Stage { root: parent.join(format!("stele-bench-backup-{}", std::process::id())) };
    fs::create_dir_all(&stage.root).map_err(|error| format!("cannot make {}: {error}", stage.root.display()))?;
    fs::write(stage.path("password"), PASSWORD).map_err(|error| error.to_string())?;
    bench.note(&format!("{} files in {}; agent and store are one process", tree::FILES, stage.root.display()));
    let agents = agents()?;
    let figures: RefCell<BTreeMap<(usize, &str), Vec<Done>>> = RefCell::default();
    for _ in 0..bench.rounds() {
        for (at, agent) in agents.iter().enumerate() {
            let done = round(&stage, agent)?;
            figures.borrow_mut().entry((at, agent.name)).or_default().push(done);
        }
    }
    let figures = figures.into_inner();
    let of = |name: &str, figure: Figure<'_>| -> Vec<f64> {
        let rounds = figures.iter().filter(|((_, agent), _)| *agent == name).flat_map(|(_, rounds)| rounds);
        rounds.map(figure).collect()
    };
    for (at, (step, mark)) in STEPS.iter().enumerate() {
        let kinds: [Kind; 3] = [
            ("CPU", CPU, |cost| cost.cpu_seconds),
            ("wall", WALL, |cost| cost.wall_seconds),
            ("memory", MEMORY, |cost| cost.memory_mib),
        ];
        for (kind, unit, figure) in kinds {
            let figure = |done: &Done| done.0.get(at).map_or(0.0, figure);
            report(bench, &format!("{step}, {kind}"), unit, &of, &figure);
        }
        if *mark > 0.0 {
            bench.note(&format!("{step}: the mark of the quiet reference machine is {mark} CPU s"));
        }
    }
    report(bench, "stored by the first backup", STORED, &of, &|done| done.1);
    Ok(())
}

/// The costs of each step of a round, and the bytes that were stored.
type Done = (Vec<Cost>, f64);
type Figure<'a> = &'a dyn Fn(&Done) -> f64;
type Kind = (&'static str, Unit, fn(&Cost) -> f64);
type Of<'a> = dyn Fn(&str, Figure<'_>) -> Vec<f64> + 'a;

/// Our figure beside each peer's.
fn report(bench: &mut Bench, name: &str, unit: Unit, of: &Of<'_>, figure: Figure<'_>) {
    let ours = of("stele", figure);
    for peer in ["restic", "borg"] {
        let mut theirs = of(peer, figure);
        theirs.sort_by(f64::total_cmp);
        let reference = theirs.get(theirs.len() / 2).map(|median| (peer, *median));
        bench.figures(&format!("{name}, beside {peer}"), unit, &ours, reference, None);
    }
}
