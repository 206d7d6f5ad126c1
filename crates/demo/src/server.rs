//! The `stele` command, run as a user runs it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::Outcome;

pub struct Server {
    program: PathBuf,
    dir: PathBuf,
    child: Option<Child>,
    pub endpoint: String,
    pub access_key: String,
    pub secret_key: String,
}

/// Time limit for a start.
const START_MAX: Duration = Duration::from_secs(60);

impl Server {
    pub fn new(dir: &Path) -> Outcome<Server> {
        let own = std::env::current_exe().map_err(|error| format!("cannot find this program's own path: {error}"))?;
        let program = own.with_file_name("stele");
        if !program.is_file() {
            return Err(format!(
                "there is no stele command at {}; build it with `cargo build --release`",
                program.display()
            ));
        }
        Ok(Server {
            program,
            dir: dir.to_owned(),
            child: None,
            endpoint: String::new(),
            access_key: String::new(),
            secret_key: String::new(),
        })
    }

    /// Runs `stele up --json` until it is ready.
    pub async fn start(&mut self) -> Outcome<()> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join("server.log"))
            .map_err(|error| format!("cannot write the server's log in {}: {error}", self.dir.display()))?;
        let mut child = Command::new(&self.program)
            .args([
                "up",
                "--json",
                "--listen",
                "127.0.0.1:0",
                "--drives",
                "12",
                "--drive-size",
                "1GiB",
                "--data",
                "8+2",
                "--dir",
            ])
            .arg(&self.dir)
            .env_remove("STELE_DIR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        let output = child.stdout.take().ok_or("the server has no standard output")?;
        let mut lines = BufReader::new(output).lines();
        let ready = tokio::time::timeout(START_MAX, lines.next_line()).await;
        let line = match ready {
            Ok(Ok(Some(line))) => line,
            _ => {
                return Err(format!(
                    "the server did not become ready; its log is {}",
                    self.dir.join("server.log").display()
                ));
            }
        };
        let said: Value = serde_json::from_str(&line)
            .map_err(|error| format!("the server said '{line}', which is no JSON: {error}"))?;
        let text = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
        self.endpoint = text("endpoint").ok_or_else(|| format!("the server named no endpoint: {line}"))?;
        // The server gives the key once, at the first start, in a private file.
        if let Some(file) = text("key_file") {
            let key = std::fs::read_to_string(&file).map_err(|error| format!("{file} cannot be read: {error}"))?;
            let key: Value = serde_json::from_str(&key).map_err(|error| format!("{file} is no JSON: {error}"))?;
            let secret = |name: &str| key.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            (self.access_key, self.secret_key) = (secret("access_key"), secret("secret_key"));
        }
        self.child = Some(child);
        Ok(())
    }

    /// Kills the server, like `kill -9`.
    pub async fn kill(&mut self) -> Outcome<()> {
        let mut child = self.child.take().ok_or("the server is not running")?;
        child.kill().await.map_err(|error| format!("cannot kill the server: {error}"))
    }

    /// Asks the server to stop, and waits for its end.
    pub async fn stop(&mut self) -> Outcome<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let pid = child.id().ok_or("the server has already ended")?;
        let asked = Command::new("kill").arg(pid.to_string()).status().await;
        if !asked.is_ok_and(|status| status.success()) {
            return child.kill().await.map_err(|error| format!("cannot stop the server: {error}"));
        }
        match tokio::time::timeout(START_MAX, child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("the server ended with {status} when asked to stop; see server.log")),
            Ok(Err(error)) => Err(format!("cannot wait for the server: {error}")),
            Err(_) => Err("the server did not stop within a minute".to_owned()),
        }
    }

    /// Runs another `stele` command beside it and returns its JSON.
    pub async fn ask(&self, arguments: &[&str]) -> Outcome<Value> {
        let output = Command::new(&self.program)
            .args(arguments)
            .arg("--json")
            .arg("--dir")
            .arg(&self.dir)
            .stdin(Stdio::null())
            .output()
            .await
            .map_err(|error| format!("cannot run stele {}: {error}", arguments.join(" ")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!(
                "stele {} ended with {}: {}",
                arguments.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
        let line = text.lines().last().unwrap_or_default();
        serde_json::from_str(line)
            .map_err(|error| format!("stele {} printed no JSON: {error}: {text}", arguments.join(" ")))
    }
}
