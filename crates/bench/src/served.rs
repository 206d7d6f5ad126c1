//! The release `stele` beside this program, served in a directory in memory; processes and
//! directories that end with this program, however it ends.

pub mod cleaner;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A child process that ends together with its owner, and with this program.
pub struct Guarded(pub Child);

impl Guarded {
    pub fn new(child: Child) -> Guarded {
        cleaner::begun(child.id());
        Guarded(child)
    }

    /// Asks the process to end, and waits for so long; then it is killed.
    pub fn end_within(mut self, longest: Duration) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).stderr(Stdio::null()).status();
        let begun = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && begun.elapsed() < longest {
            sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory in memory that is removed with its owner.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Result<Scratch, String> {
        cleaner::start();
        let path = PathBuf::from(format!("/dev/shm/stele-bench-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Refuses a bench where a program is not installed. `programs` have the packages of Debian that
/// hold them.
pub fn installed(programs: &[(&str, &str)]) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_missing = |program: &str| !std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    match programs.iter().find(|(program, _)| is_missing(program)) {
        Some((program, package)) => Err(format!("{program} is not installed; Debian: apt-get install {package}")),
        None => Ok(()),
    }
}

/// A data directory in memory with a pool, served or not.
pub struct Node {
    // Declared before its directory.
    server: Option<Guarded>,
    program: PathBuf,
    dir: Scratch,
}

impl Node {
    /// Makes a pool. The server listens on ports of its own choice. `create` are the options of
    /// `stele pool create`, `changes` the replacements in the configuration.
    pub fn create(name: &str, create: &[&str], changes: &[(&str, &str)]) -> Result<Node, String> {
        let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let program = own.with_file_name("stele");
        if !program.is_file() {
            return Err(format!("there is no {}; build it with `cargo build --release -p stele`", program.display()));
        }
        let node = Node { server: None, program, dir: Scratch::new(name)? };
        node.run(&[&["pool", "create", "--confirm-time"], create].concat())?;
        node.configure("127.0.0.1:9000", "127.0.0.1:0")?;
        for (from, to) in changes {
            node.configure(from, to)?;
        }
        Ok(node)
    }

    /// Replaces a text in the configuration; the next server reads it.
    pub fn configure(&self, from: &str, to: &str) -> Result<(), String> {
        let config = self.dir().join("stele.toml");
        let text = fs::read_to_string(&config).map_err(|error| error.to_string())?;
        if !text.contains(from) {
            return Err(format!("{} has no '{from}'", config.display()));
        }
        fs::write(&config, text.replace(from, to)).map_err(|error| error.to_string())
    }

    pub fn dir(&self) -> &Path {
        &self.dir.0
    }

    /// Starts the server and waits until it is ready; returns what it said.
    pub fn serve(&mut self) -> Result<Value, String> {
        self.kill();
        let log = fs::File::create(self.dir().join("server.log")).map_err(|error| error.to_string())?;
        let mut child = Command::new(&self.program)
            .args(["serve", "--json", "--dir"])
            .arg(self.dir())
            .env_remove("STELE_DIR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        let output = child.stdout.take().ok_or("the server has no output")?;
        self.server = Some(Guarded::new(child));
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        serde_json::from_str(&line).map_err(|_| {
            let log = fs::read_to_string(self.dir().join("server.log")).unwrap_or_default();
            format!("the server did not become ready; it said: {line}{log}")
        })
    }

    /// The number of the server's process; 0 if none runs.
    pub fn process(&self) -> u32 {
        self.server.as_ref().map_or(0, |server| server.0.id())
    }

    /// Kills the server, if one runs.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Lets the server end in order.
    pub fn stop(&mut self) -> Result<(), String> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let asked = Command::new("kill").arg(server.0.id().to_string()).status();
        let ended = asked.and_then(|_| server.0.wait()).map_err(|error| format!("the server does not end: {error}"))?;
        if ended.success() { Ok(()) } else { Err(format!("the server ended with {ended}")) }
    }

    /// Runs a command of `stele`; returns its output.
    pub fn run(&self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let output = Command::new(&self.program)
            .args(arguments)
            .arg("--dir")
            .arg(self.dir())
            .env_remove("STELE_DIR")
            .stdin(Stdio::null())
            .current_dir(self.dir())
            .output()
            .map_err(|error| format!("cannot run {}: {error}", self.program.display()))?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(format!("stele {arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// What a command says with `--json`.
    pub fn ask(&self, arguments: &[&str]) -> Result<Value, String> {
        let said = self.run(&[arguments, &["--json"]].concat())?;
        serde_json::from_slice(&said).map_err(|error| format!("stele {arguments:?}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        assert_eq!(installed(&[("sh", "dash")]), Ok(()));
        let missing = installed(&[("sh", "dash"), ("no-such-peer", "peers")]);
        assert_eq!(missing, Err("no-such-peer is not installed; Debian: apt-get install peers".to_owned()));
    }
}
