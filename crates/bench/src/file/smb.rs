//! SMB: the share over FUSE and the smbd that Stele supervises, beside a plain smbd on a directory
//! in memory, which is a tmpfs. smbclient, of the Samba project, measures both.
//!
//! The plain smbd has the configuration that Stele wrote for its own, with directories and a port
//! of its own, so that both have the same settings. A round is one session of smbclient, and its
//! time has that of the program's start and of the log-in, which is the same for both. Each round
//! puts files that are not there. The server's CPU time is that of the server, of smbd and of all
//! their processes, until the session's process has ended.
//!
//! Stele stores two copies with digests, and commits a file when the client flushes it; the tmpfs
//! keeps one copy. No target: the ratio is shown.

use std::fs;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use stele_ground::Dice;

use super::servers::{SteleFileServer, create_share};
use super::{CPU_SUFFIX, Comparison, ROUNDS_MAX, Ran, compare};
use crate::harness::{Bench, Unit};
use crate::process::{Tree, Usage};
use crate::served::{Guarded, Node, Scratch, installed};

const PEER: &str = "plain Samba on tmpfs";
/// The programs, with the packages of Debian that hold them.
const PROGRAMS: [(&str, &str); 3] =
    [("smbd", "samba samba-vfs-modules"), ("smbpasswd", "samba-common-bin"), ("smbclient", "smbclient")];

/// The bench runs in a network of its own, so that these ports are free.
const PORT: u16 = 22_445;
const PLAIN_PORT: u16 = 22_446;
const SHARE: &str = "records";
const USER: &str = "root";
const PASSWORD: &str = "secret";

/// MiB of the large file.
const LARGE: u64 = 256;
/// Files of 4 KiB.
const SMALL: u64 = 300;
const READY_MAX: Duration = Duration::from_secs(40);
const END_MAX: Duration = Duration::from_secs(20);
/// How long the process of a session may take to end.
const SESSION_END_MAX: Duration = Duration::from_secs(2);

const MEGABYTES: (Unit, Unit) = (Unit::more("MB/s"), Unit::less("us/MB"));
const FILES: (Unit, Unit) = (Unit::more("files/s"), Unit::less("us/file"));

struct Transfer {
    name: &'static str,
    units: (Unit, Unit),
    /// What a round carries, in that unit.
    amount: f64,
    /// What smbclient does before the round, and in it.
    prepare: &'static str,
    commands: &'static str,
}

const LARGE_MEGABYTES: f64 = (LARGE << 20) as f64 / 1e6;

const TRANSFERS: [Transfer; 4] = [
    Transfer {
        name: "SMB put of 256 MiB",
        units: MEGABYTES,
        amount: LARGE_MEGABYTES,
        prepare: "del large",
        commands: "put large",
    },
    Transfer {
        name: "SMB get of 256 MiB",
        units: MEGABYTES,
        amount: LARGE_MEGABYTES,
        prepare: "",
        commands: "get large back/large",
    },
    Transfer {
        name: "SMB put of 300 files of 4 KiB",
        units: FILES,
        amount: SMALL as f64,
        prepare: "del small-*",
        commands: "prompt; mput small-*",
    },
    Transfer {
        name: "SMB get of 300 files of 4 KiB",
        units: FILES,
        amount: SMALL as f64,
        prepare: "",
        commands: "prompt; lcd back; mget small-*",
    },
];

/// Whether `--case` selects one of them.
pub fn wants(bench: &Bench) -> bool {
    TRANSFERS.iter().fold(false, |any, case| any | bench.wants_any(case.name, ["", CPU_SUFFIX]))
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    installed(&PROGRAMS)?;
    bench.note("SMB: smbclient, a session a round; Stele: FUSE and its own smbd; plain: smbd with the same settings");
    let files = local_files()?;
    let stele = SteleSmbServer::start()?;
    let ours = Side::new(PORT, &stele.directory(), stele.node.process(), &files.0)?;
    let plain = PlainSamba::start(&stele.directory(), &ours.configuration)?;
    let theirs = Side::new(PLAIN_PORT, &plain.dir.0, plain.process, &files.0);
    let theirs = theirs.map_err(|error| format!("{PEER}: {error}"))?;
    let rounds = bench.rounds().min(ROUNDS_MAX);
    for case in &TRANSFERS {
        if !bench.wants_any(case.name, ["", CPU_SUFFIX]) {
            continue;
        }
        let comparison = Comparison { name: case.name, peer: PEER, units: case.units, marks: (None, None), rounds };
        compare(bench, &comparison, &mut || ours.round(case), &mut || theirs.round(case))?;
    }
    Ok(())
}

/// The files that are carried, and a directory for what comes back.
fn local_files() -> Result<Scratch, String> {
    let files = Scratch::new("smb-files")?;
    let mut dice = Dice::new(9);
    let mut random = |length: usize| {
        let mut bytes = vec![0; length];
        dice.fill(&mut bytes);
        bytes
    };
    let made = (|| {
        fs::create_dir(files.0.join("back"))?;
        fs::write(files.0.join("large"), random((LARGE << 20) as usize))?;
        (0..SMALL).try_for_each(|index| fs::write(files.0.join(format!("small-{index:03}")), random(4096)))
    })();
    made.map_err(|error: std::io::Error| format!("cannot write {}: {error}", files.0.display()))?;
    Ok(files)
}

/// A server under measurement.
struct Side<'a> {
    port: u16,
    configuration: PathBuf,
    process: u32,
    /// Where smbclient runs.
    files: &'a Path,
    /// Processes of the server without a session.
    at_rest: usize,
}

impl Side<'_> {
    /// Waits until the server serves the share, puts all files there, and verifies them.
    /// `directory` is that of its smbd.
    fn new<'a>(port: u16, directory: &Path, process: u32, files: &'a Path) -> Result<Side<'a>, String> {
        let configuration = directory.join("smb.conf");
        let begun = Instant::now();
        let is_listening = || configuration.is_file() && TcpStream::connect(("127.0.0.1", port)).is_ok();
        while !is_listening() {
            if begun.elapsed() > READY_MAX {
                return Err(format!("smbd does not listen on port {port}"));
            }
            sleep(Duration::from_millis(50));
        }
        let mut side = Side { port, configuration, process, files, at_rest: 0 };
        side.set_password()?;
        while let Err(error) = side.session("ls") {
            if begun.elapsed() > READY_MAX {
                return Err(error);
            }
            sleep(Duration::from_millis(200));
        }
        side.session("put large; prompt; mput small-*")?;
        side.session("get large back/large; prompt; lcd back; mget small-*")?;
        for entry in fs::read_dir(files).into_iter().flatten().flatten().filter(|entry| entry.path().is_file()) {
            let back = files.join("back").join(entry.file_name());
            if fs::read(entry.path()).ok() != fs::read(&back).ok() {
                return Err(format!("{} came back with another content", back.display()));
            }
        }
        // The process of the last session ends within this time.
        sleep(SESSION_END_MAX);
        side.at_rest = Tree::of(process).processes;
        Ok(side)
    }

    fn set_password(&self) -> Result<(), String> {
        let mut command = Command::new("smbpasswd");
        command.args(["-L", "-s", "-a", USER, "-c"]).arg(&self.configuration);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("cannot run smbpasswd: {error}"))?;
        if let Some(mut input) = child.stdin.take() {
            let told = std::io::Write::write_all(&mut input, format!("{PASSWORD}\n{PASSWORD}\n").as_bytes());
            told.map_err(|error| format!("smbpasswd takes no password: {error}"))?;
        }
        let output = child.wait_with_output().map_err(|error| format!("smbpasswd: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("smbpasswd: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// Runs commands in one session. All must succeed.
    fn session(&self, commands: &str) -> Result<(), String> {
        let mut client = Command::new("smbclient");
        client.arg(format!("//127.0.0.1/{SHARE}")).args(["-p", &self.port.to_string(), "-t", "60"]);
        client.args(["-U", &format!("{USER}%{PASSWORD}"), "-c", commands]);
        client.arg(format!("--configfile={}", self.configuration.display()));
        let output = client.current_dir(self.files).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("cannot run smbclient: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        match output.status.success() && !said.contains("NT_STATUS_") {
            true => Ok(()),
            false => Err(format!("smbclient '{commands}': {}", said.lines().last().unwrap_or_default())),
        }
    }

    fn round(&self, case: &Transfer) -> Result<Ran, String> {
        if !case.prepare.is_empty() {
            self.session(case.prepare)?;
            self.rest();
        }
        let before = (Tree::of(self.process), Usage::own());
        let begun = Instant::now();
        self.session(case.commands)?;
        let elapsed = begun.elapsed().as_secs_f64();
        self.rest();
        let spent = Tree::of(self.process).cpu_nanoseconds.saturating_sub(before.0.cpu_nanoseconds);
        let client = Usage::own().cpu_nanoseconds.saturating_sub(before.1.cpu_nanoseconds);
        let each = |nanoseconds: u64| nanoseconds as f64 / 1e3 / case.amount;
        Ok(Ran { rate: case.amount / elapsed, cpu: each(spent), client: each(client) })
    }

    /// Waits until the session's process has ended, so that its parent has its time.
    fn rest(&self) {
        let begun = Instant::now();
        while Tree::of(self.process).processes > self.at_rest && begun.elapsed() < SESSION_END_MAX {
            sleep(Duration::from_millis(5));
        }
    }
}

/// A server that serves one share over SMB, and ends in order: it ends its smbd and unmounts.
struct SteleSmbServer {
    node: Node,
}

impl SteleSmbServer {
    fn start() -> Result<SteleSmbServer, String> {
        let listen = format!("[smb]\nlisten = \"127.0.0.1:{PORT}\"\n");
        let mut stele = SteleSmbServer { node: SteleFileServer::prepare("1GiB", &[("[smb]\n", &listen)])? };
        stele.node.serve()?;
        // Nothing is archived meanwhile.
        stele.node.run(&create_share(SHARE, "1GiB", "mirror-2", "100000"))?;
        Ok(stele)
    }

    fn directory(&self) -> PathBuf {
        self.node.dir().join("smb")
    }
}

impl Drop for SteleSmbServer {
    fn drop(&mut self) {
        if let Err(error) = self.node.stop() {
            eprintln!("bench: {error}");
        }
    }
}

/// An smbd of its own, on a directory in memory.
struct PlainSamba {
    smbd: Option<Guarded>,
    process: u32,
    dir: Scratch,
}

impl PlainSamba {
    /// With the configuration that Stele has written in its directory.
    fn start(theirs: &Path, configuration: &Path) -> Result<PlainSamba, String> {
        let dir = Scratch::new("smbd")?;
        let failed = |error: std::io::Error| format!("{}: {error}", dir.0.display());
        let text = fs::read_to_string(configuration).map_err(failed)?;
        let text = text.replace(&theirs.display().to_string(), &dir.0.display().to_string());
        let text = text.replace(&format!("smb ports = {PORT}"), &format!("smb ports = {PLAIN_PORT}"));
        for place in text.lines().filter_map(directory_of) {
            if place.starts_with(&dir.0) {
                fs::create_dir_all(place).map_err(failed)?;
            }
        }
        let own = dir.0.join("smb.conf");
        fs::write(&own, text).map_err(failed)?;
        let mut smbd = Command::new("smbd");
        smbd.args(["--foreground", "--no-process-group"]).arg(format!("--configfile={}", own.display()));
        // At its end smbd signals its process group.
        smbd.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let smbd = Guarded::new(smbd.spawn().map_err(|error| format!("cannot start smbd: {error}"))?);
        Ok(PlainSamba { process: smbd.0.id(), smbd: Some(smbd), dir })
    }
}

impl Drop for PlainSamba {
    fn drop(&mut self) {
        if let Some(smbd) = self.smbd.take() {
            smbd.end_within(END_MAX);
        }
    }
}

/// The directory that a line of smb.conf needs.
fn directory_of(line: &str) -> Option<&Path> {
    let (key, value) = line.trim().split_once(" = ")?;
    match key {
        "log file" => Path::new(value).parent(),
        key if key == "path" || key.ends_with(" directory") || key.ends_with(" dir") => Some(Path::new(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directories_that_a_configuration_names_are_found() {
        for (line, expected) in [
            ("\tprivate dir = /smb/private", Some("/smb/private")),
            ("\tstate directory = /smb/state", Some("/smb/state")),
            ("\tlog file = /smb/log/smbd.log", Some("/smb/log")),
            ("\tpath = /smb/mounts/records", Some("/smb/mounts/records")),
            ("\tpassdb backend = tdbsam:/smb/private/passdb.tdb", None),
            ("\tdirectory mask = 0777", None),
            ("[records]", None),
        ] {
            assert_eq!(directory_of(line), expected.map(Path::new), "{line}");
        }
    }
}
