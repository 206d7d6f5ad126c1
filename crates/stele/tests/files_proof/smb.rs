//! The share of the proofs over SMB: smbd, which the server supervises, and smbclient.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use super::SHARE;
use crate::support::{Place, installed, wait_for};

const PASSWORD: &str = "secret";

/// Where smbd serves the share.
#[derive(Clone)]
pub struct Smb {
    port: u16,
    /// smbd's configuration.
    configuration: PathBuf,
    /// A file that smbclient sends or receives, beside the drives.
    scratch: PathBuf,
}

impl Smb {
    /// Before the server starts. None where this machine cannot.
    pub fn prepare(place: &Place) -> Option<Smb> {
        let can = ["smbd", "smbclient", "smbpasswd"].iter().all(|program| installed(&["which", program]))
            && installed(&["sh", "-c", "test $(id -u) = 0 && test -e /dev/fuse"]);
        if !can {
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        place.edit_config(|text| text.replace("[smb]\n", &format!("[smb]\nlisten = \"127.0.0.1:{port}\"\n")));
        let path = |name: &str| PathBuf::from(place.path(name));
        Some(Smb { port, configuration: path("smb/smb.conf"), scratch: path("smb-scratch") })
    }

    /// Waits until smbd serves the share.
    pub fn wait(&self) {
        wait_for("smbd to serve the share", || {
            let written = std::fs::read_to_string(&self.configuration);
            let is_there = written.is_ok_and(|text| text.contains(&format!("[{SHARE}]")));
            (is_there && TcpStream::connect(("127.0.0.1", self.port)).is_ok()).then_some(())
        });
    }

    /// Gives root a password, once.
    pub fn enroll(&self) {
        self.wait();
        let mut program = Command::new("smbpasswd");
        program.args(["-L", "-s", "-a", "root", "-c"]).arg(&self.configuration);
        let mut program = program.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        program.stdin.take().unwrap().write_all(format!("{PASSWORD}\n{PASSWORD}\n").as_bytes()).unwrap();
        assert!(program.wait().unwrap().success());
    }

    fn ask(&self, command: &str) -> Result<(), Refusal> {
        match self.ask_once(command) {
            // smbd may drop a connection before it agreed on a protocol. Nothing was asked of it.
            Err(refusal) if refusal.says("protocol negotiation failed") => self.ask_once(command),
            asked => asked,
        }
    }

    fn ask_once(&self, command: &str) -> Result<(), Refusal> {
        let share = format!("//127.0.0.1/{SHARE}");
        let output = Command::new("timeout")
            .args(["60", "smbclient", &share, "-p", &self.port.to_string()])
            .args(["-U", &format!("root%{PASSWORD}"), "-c", command])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if output.status.success() { Ok(()) } else { Err(Refusal(output)) }
    }

    /// Makes the file, or gives it this content instead of its own.
    pub fn put(&self, name: &str, content: &[u8]) -> Result<(), Refusal> {
        std::fs::write(&self.scratch, content).unwrap();
        self.ask(&format!("put {} {name}", self.scratch.display()))
    }

    pub fn get(&self, name: &str) -> Result<Vec<u8>, Refusal> {
        self.ask(&format!("get {name} {}", self.scratch.display()))?;
        Ok(std::fs::read(&self.scratch).unwrap())
    }

    pub fn remove(&self, name: &str) -> Result<(), Refusal> {
        self.ask(&format!("del {name}"))
    }

    pub fn rename(&self, from: &str, to: &str) -> Result<(), Refusal> {
        self.ask(&format!("rename {from} {to}"))
    }
}

/// What smbclient said.
#[derive(Debug)]
pub struct Refusal(Output);

impl Refusal {
    pub fn is_no_entry(&self) -> bool {
        self.says("NT_STATUS_OBJECT_NAME_NOT_FOUND")
    }

    fn says(&self, words: &str) -> bool {
        let said = [self.0.stdout.as_slice(), &self.0.stderr].concat();
        String::from_utf8_lossy(&said).contains(words)
    }
}
