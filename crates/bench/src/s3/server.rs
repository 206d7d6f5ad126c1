//! The release `stele` beside this program, on file drives of its own, as a user starts it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub struct Server {
    child: Child,
    program: PathBuf,
    dir: PathBuf,
    pub process: u32,
    /// Host and port.
    pub address: String,
    pub access_key: String,
    pub secret_key: String,
}

impl Server {
    /// Its drives lie beside this program, not in a directory that may be memory.
    pub fn start() -> Result<Server, String> {
        let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        Server::start_with(own.parent().unwrap_or(Path::new(".")), &[])
    }

    /// Its drives lie in memory, and have all their pages before the first write: what a real drive
    /// does not do, the kernel does not do meanwhile.
    pub fn start_in_memory(drive_size: &str) -> Result<Server, String> {
        Server::start_with(Path::new("/dev/shm"), &["--drive-size", drive_size, "--preallocate"])
    }

    /// Its drives lie in this directory.
    fn start_with(parent: &Path, options: &[&str]) -> Result<Server, String> {
        let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let program = own.with_file_name("stele");
        if !program.is_file() {
            return Err(format!("there is no {}; build it with `cargo build --release -p stele`", program.display()));
        }
        let dir = parent.join(format!("bench-s3-{}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        let (child, said) = launch(&program, &dir, options)?;
        // Without a terminal the keys are in a file.
        let file = said.get("key_file").and_then(Value::as_str).and_then(|path| fs::read(path).ok());
        let keys = file.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_else(|| said.clone());
        let text = |name: &str| keys.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Server {
            process: child.id(),
            child,
            address: address(&said),
            access_key: text("access_key"),
            secret_key: text("secret_key"),
            program,
            dir,
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Makes a bucket.
    pub fn make_bucket(&self, name: &str) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.args(["bucket", "create", name, "--dir"]).arg(&self.dir).env_remove("STELE_DIR");
        let made = command.output().map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        if made.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&made.stderr).into_owned()) }
    }

    /// Kills the server with requests under way, starts it again, and returns the time until it is
    /// ready.
    pub fn kill_and_start(&mut self) -> Result<Duration, String> {
        self.child.kill().map_err(|error| format!("cannot kill the server: {error}"))?;
        self.child.wait().map_err(|error| format!("cannot wait for the server: {error}"))?;
        let begin = Instant::now();
        let (child, said) = launch(&self.program, &self.dir, &[])?;
        let elapsed = begin.elapsed();
        (self.process, self.child, self.address) = (child.id(), child, address(&said));
        Ok(elapsed)
    }

    /// Asks the server to stop, and waits.
    pub fn stop(mut self) -> Result<(), String> {
        let asked = Command::new("kill").arg(self.process.to_string()).status();
        if !asked.is_ok_and(|status| status.success()) {
            return Err("the server cannot be told to stop".to_owned());
        }
        let status = self.child.wait().map_err(|error| format!("cannot wait for the server: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status} when told to stop")) }
    }
}

/// Starts a server and waits until it is ready; returns its report.
fn launch(program: &Path, dir: &Path, options: &[&str]) -> Result<(Child, Value), String> {
    let log = fs::File::create(dir.join("server.log")).map_err(|error| format!("cannot write a log: {error}"))?;
    let mut child = Command::new(program)
        .args(["up", "--json", "--listen", "127.0.0.1:0", "--drives", "12", "--data", "8+2", "--dir"])
        .arg(dir)
        .args(options)
        .env_remove("STELE_DIR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    crate::served::cleaner::begun(child.id());
    let mut line = String::new();
    let output = child.stdout.take().ok_or("the server has no output")?;
    BufReader::new(output).read_line(&mut line).map_err(|error| format!("the server says nothing: {error}"))?;
    let said: Value = serde_json::from_str(&line).unwrap_or_default();
    if address(&said).is_empty() {
        let log = fs::read_to_string(dir.join("server.log")).unwrap_or_default();
        return Err(format!("the server did not become ready; it said: {line}{log}"));
    }
    Ok((child, said))
}

fn address(said: &Value) -> String {
    let endpoint = said.get("endpoint").and_then(Value::as_str).unwrap_or_default();
    endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned()
}

impl Drop for Server {
    fn drop(&mut self) {
        // After `stop` these calls do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
