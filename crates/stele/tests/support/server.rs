//! A running `stele`, and S3 requests to it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::http::{Answer, Ask};
use super::{Place, exists, wait_for};

pub struct Server {
    pub child: Child,
    pub ready: Value,
    pub address: SocketAddr,
    pub access_key: String,
    pub secret_key: String,
}

/// Checks that a request was answered 200, and shows the answer if not.
#[track_caller]
pub fn good(answer: Answer) -> Answer {
    assert!(matches!(answer.status, 200 | 204 | 206), "{}\n{}", answer.head, answer.text());
    answer
}

impl Server {
    /// Starts it and waits for its line; returns its output if it does not become ready.
    pub fn start(place: &Place, arguments: &[&str]) -> Result<Server, String> {
        Server::start_with(place, arguments, &[])
    }

    /// The same, with additional environment variables.
    pub fn start_with(place: &Place, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Server, String> {
        let mut child = place
            .command(arguments)
            .envs(environment.iter().copied())
            .args(["--json", "--dir"])
            .arg(&place.0)
            .stdout(Stdio::piped())
            .stderr(std::fs::OpenOptions::new().create(true).append(true).open(place.0.join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_default();
        if ready.get("socket").is_none() {
            let _ = child.wait();
            return Err(format!("{arguments:?} said '{line}'; its log:\n{}", place.log()));
        }
        let text = |name: &str| ready[name].as_str().unwrap_or_default().to_owned();
        // Without S3, metrics are still served.
        let authority = |url: String| url.split('/').nth(2).and_then(|text| text.parse().ok());
        let address = authority(text("endpoint")).or_else(|| authority(text("metrics")));
        let address = address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        // Without a terminal the first key is in a file.
        let key: Value = match ready["key_file"].as_str() {
            Some(file) => serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap(),
            None => Value::Null,
        };
        let secret = |name: &str| key[name].as_str().unwrap_or_default().to_owned();
        Ok(Server { child, address, access_key: secret("access_key"), secret_key: secret("secret_key"), ready })
    }

    /// Starts it, and kills it as soon as `path` exists.
    pub fn kill_when(place: &Place, arguments: &[&str], path: &Path) {
        Server::kill_at(place, arguments, || wait_for(&path.display().to_string(), || exists(path)));
    }

    /// Starts it, and kills it after this time, ready or not.
    pub fn kill_after(place: &Place, arguments: &[&str], time: std::time::Duration) {
        let begun = std::time::Instant::now();
        let passed = || (begun.elapsed() >= time).then_some(());
        Server::kill_at(place, arguments, || wait_for("a moment of the start", passed));
    }

    /// Starts it, and kills it when `moment` returns.
    fn kill_at(place: &Place, arguments: &[&str], moment: impl FnOnce()) {
        let mut command = place.command(arguments);
        let mut child = command.arg("--dir").arg(&place.0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        moment();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Uses the keys of an earlier start.
    pub fn with_keys(mut self, (access_key, secret_key): (String, String)) -> Server {
        (self.access_key, self.secret_key) = (access_key, secret_key);
        self
    }

    pub fn keys(&self) -> (String, String) {
        (self.access_key.clone(), self.secret_key.clone())
    }

    /// Kills it while others still ask it.
    pub fn kill_now(&self) {
        let asked = std::process::Command::new("kill").arg("-9").arg(self.child.id().to_string()).status();
        assert!(asked.unwrap().success());
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn stop(mut self) {
        self.ask_to_stop();
        assert!(self.child.wait().unwrap().success(), "the server stops cleanly when asked to");
    }

    pub fn ask_to_stop(&self) {
        let asked = std::process::Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(asked.success());
    }

    pub fn ask(&self, method: &str, target: &str) -> Ask {
        Ask::new(self, method, target)
    }

    pub fn send(&self, ask: Ask) -> Answer {
        runtime().block_on(ask.send(self))
    }

    /// Sends a request without a signature.
    pub fn plain(&self, target: &str) -> Answer {
        runtime().block_on(self.ask("GET", target).send_unsigned(self, false))
    }

    #[track_caller]
    pub fn put(&self, target: &str, body: &[u8]) -> Answer {
        good(self.send(self.ask("PUT", target).body(body)))
    }

    pub fn get(&self, target: &str) -> Answer {
        self.send(self.ask("GET", target))
    }

    pub fn delete(&self, target: &str) -> Answer {
        self.send(self.ask("DELETE", target))
    }

    /// A value of the process's status, in KiB.
    pub fn memory(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
