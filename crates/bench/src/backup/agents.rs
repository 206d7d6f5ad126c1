//! The programs that are measured, and what one of their commands takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::process::Usage;
use crate::s3::server::Server;

/// Between two looks at a running command.
const LOOK: Duration = Duration::from_millis(5);
pub const PASSWORD: &str = "bench";
const BUCKET: &str = "backups";

/// What one command took.
#[derive(Clone, Copy, Default)]
pub struct Cost {
    /// The command's, and the server's if there is one.
    pub cpu_seconds: f64,
    pub wall_seconds: f64,
    /// The command's alone.
    pub memory_mib: f64,
}

impl Cost {
    fn and(self, other: Cost) -> Cost {
        Cost {
            cpu_seconds: self.cpu_seconds + other.cpu_seconds,
            wall_seconds: self.wall_seconds + other.wall_seconds,
            memory_mib: self.memory_mib.max(other.memory_mib),
        }
    }
}

/// The arguments of one command.
pub type Line = &'static [&'static str];

/// A program that makes backups.
pub struct Agent {
    pub name: &'static str,
    program: PathBuf,
    pub init: Line,
    pub save: Line,
    pub restore: Line,
    pub verify: Line,
    /// Removes all snapshots but the latest, and then the content that it does not need.
    pub collect: &'static [Line],
    /// Whether its repository is a bucket of a Stele server.
    over_s3: bool,
}

pub const OWN: &str = "stele";
pub const OVER_S3: &str = "stele over S3";
pub const PEERS: [&str; 2] = ["restic", "borg"];

const STELE: Agent = Agent {
    name: OWN,
    program: PathBuf::new(),
    init: &["backup", "init", "--repository", "REPO"],
    save: &["backup", "run", "TREE", "--repository", "REPO"],
    restore: &["backup", "restore", "latest", "--to", "OUT", "--repository", "REPO"],
    verify: &["backup", "verify", "--data", "--repository", "REPO"],
    // Content goes with the third run after its last snapshot.
    collect: &[
        &["backup", "forget", "--keep-last", "1", "--repository", "REPO"],
        &["backup", "prune", "--repository", "REPO"],
        &["backup", "prune", "--repository", "REPO"],
        &["backup", "prune", "--repository", "REPO"],
    ],
    over_s3: false,
};

/// Those that are installed. `REPO`, `TREE`, `OUT` and `STEP` stand for the places and the number
/// of the step.
pub fn agents() -> Result<Vec<Agent>, String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let program = own.with_file_name("stele");
    if !program.is_file() {
        return Err(format!("there is no {}; build it with `cargo build --release -p stele`", program.display()));
    }
    let all = [
        Agent { program: program.clone(), ..STELE },
        Agent { program, name: OVER_S3, over_s3: true, ..STELE },
        Agent {
            name: "restic",
            program: "restic".into(),
            init: &["init", "-q", "-r", "REPO"],
            save: &["-q", "-r", "REPO", "backup", "TREE"],
            restore: &["-q", "-r", "REPO", "restore", "latest", "--target", "OUT"],
            verify: &["-q", "-r", "REPO", "check", "--read-data"],
            collect: &[&["-q", "-r", "REPO", "forget", "--keep-last", "1", "--prune"]],
            over_s3: false,
        },
        Agent {
            name: "borg",
            program: "borg".into(),
            init: &["init", "-e", "repokey-blake2", "REPO"],
            save: &["create", "REPO::step-STEP", "TREE"],
            // The last step that saves.
            restore: &["extract", "REPO::step-2"],
            verify: &["check", "--verify-data", "REPO"],
            collect: &[&["prune", "--keep-last", "1", "REPO"], &["compact", "--threshold", "0", "REPO"]],
            over_s3: false,
        },
    ];
    // Not every program knows the word; each that is there starts.
    let is_there = |agent: &Agent| {
        let mut asked = Command::new(&agent.program);
        asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    Ok(all.into_iter().filter(is_there).collect())
}

/// The directory of a run, with the tree, all repositories and what is restored.
pub struct Stage {
    root: PathBuf,
    server: Option<Server>,
}

impl Stage {
    pub fn new() -> Result<Stage, String> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let stage = Stage { root: parent.join(format!("stele-bench-backup-{}", std::process::id())), server: None };
        let place = |error| format!("cannot make {}: {error}", stage.root.display());
        fs::create_dir_all(&stage.root).map_err(place)?;
        fs::write(stage.path("password"), PASSWORD).map_err(place)?;
        Ok(stage)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Removes all repositories, and starts a new server.
    pub fn clear_all(&mut self, agents: &[Agent]) -> Result<(), String> {
        self.server = None;
        for name in agents.iter().map(|agent| agent.name).chain(["tree", "out", "home"]) {
            self.clear(name)?;
        }
        if agents.iter().any(|agent| agent.over_s3) {
            let server = Server::start()?;
            server.make_bucket(BUCKET)?;
            self.server = Some(server);
        }
        Ok(())
    }

    fn clear(&self, name: &str) -> Result<(), String> {
        let path = self.path(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", path.display())),
            _ => Ok(()),
        }
    }

    fn repository(&self, agent: &Agent) -> String {
        match self.server.as_ref().filter(|_| agent.over_s3) {
            Some(server) => format!("s3+http://{}/{BUCKET}", server.address),
            None => self.path(agent.name).display().to_string(),
        }
    }

    /// Bytes in the repository. None: they are on a server.
    pub fn stored(&self, agent: &Agent) -> Option<u64> {
        (!agent.over_s3).then(|| bytes_of(&self.path(agent.name)))
    }

    /// Runs commands of the program one after another, and adds up what they take.
    pub fn run_all(&self, agent: &Agent, lines: &[Line], step: usize) -> Result<Cost, String> {
        lines.iter().try_fold(Cost::default(), |sum, line| Ok(sum.and(self.run(agent, line, step)?)))
    }

    /// Runs a command of the program in an empty directory.
    pub fn run(&self, agent: &Agent, arguments: &[&str], step: usize) -> Result<Cost, String> {
        let repository = self.repository(agent);
        let place = |word: &&str| match *word {
            "TREE" => self.path("tree").display().to_string(),
            "OUT" => self.path("out").display().to_string(),
            word => word.replace("REPO", &repository).replace("STEP", &step.to_string()),
        };
        self.clear("out")?;
        let home = self.path("home").join(agent.name);
        for path in [&self.path("out"), &home] {
            fs::create_dir_all(path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        }
        let errors = self.path("errors");
        let log = fs::File::create(&errors).map_err(|error| format!("cannot write {}: {error}", errors.display()))?;
        let mut command = Command::new(&agent.program);
        command
            .args(arguments.iter().map(place))
            .current_dir(self.path("out"))
            .envs([("RESTIC_PASSWORD", PASSWORD), ("BORG_PASSPHRASE", PASSWORD), ("LC_ALL", "C.UTF-8")])
            .env("HOME", home)
            .env("STELE_BACKUP_PASSWORD_FILE", self.path("password"))
            .env_remove("XDG_CACHE_HOME")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        if let Some(server) = &self.server {
            command.env("AWS_ACCESS_KEY_ID", &server.access_key).env("AWS_SECRET_ACCESS_KEY", &server.secret_key);
        }
        let before = self.server_seconds(agent);
        let (mut cost, status) = cost_of(&mut command).map_err(|error| format!("{}: {error}", agent.name))?;
        cost.cpu_seconds += self.server_seconds(agent) - before;
        if status.success() {
            return Ok(cost);
        }
        let said = fs::read_to_string(&errors).unwrap_or_default();
        Err(format!("{} {arguments:?}: {status}: {}", agent.name, said.trim()))
    }

    /// Processor time so far, of the server that the agent uses.
    fn server_seconds(&self, agent: &Agent) -> f64 {
        let server = self.server.as_ref().filter(|_| agent.over_s3);
        server.map_or(0.0, |server| Usage::of(server.process).cpu_nanoseconds as f64 / 1e9)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Runs a command to its end.
pub fn cost_of(command: &mut Command) -> std::io::Result<(Cost, ExitStatus)> {
    let (begun, before) = (Instant::now(), children_seconds());
    let mut child = command.spawn()?;
    let mut cost = Cost::default();
    let status = loop {
        let peak = Usage::of(child.id()).resident_peak_bytes as f64 / f64::from(1 << 20);
        cost.memory_mib = cost.memory_mib.max(peak);
        match child.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(LOOK),
        }
    };
    (cost.wall_seconds, cost.cpu_seconds) = (begun.elapsed().as_secs_f64(), children_seconds() - before);
    Ok((cost, status))
}

/// Processor time of children that were waited for, in seconds: fields 16 and 17 of
/// `/proc/self/stat`, in hundredths.
fn children_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(") ").next().unwrap_or_default().split(' ').skip(13).take(2);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
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
