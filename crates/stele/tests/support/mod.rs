//! Shared by the tests of the command: a directory, the command in it, a server, and S3 by hand.

pub mod block;
pub mod filesystem;
#[path = "../../../object/tests/frontend/http.rs"]
pub mod http;
pub mod nbd;
pub mod nfs;
pub mod pool;
pub mod server;
pub mod volatile;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub use server::Server;

/// Bytes free in memory for `Place::in_memory`.
const ROOM_IN_MEMORY: u64 = 4 << 30;

/// A directory that is removed at the end of the test; the data directory in it is `data`, unless
/// the test names another.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new(name: &str) -> Place {
        Place::beneath(&std::env::temp_dir(), name)
    }

    /// In memory where there is enough, for tests of protocols that wait for thousands of flushes.
    pub fn in_memory(name: &str) -> Place {
        let memory = Path::new("/dev/shm");
        let room = rustix::fs::statvfs(memory).map_or(0, |of| of.f_bavail * of.f_frsize);
        match room >= ROOM_IN_MEMORY {
            true => Place::beneath(memory, name),
            false => Place::new(name),
        }
    }

    fn beneath(above: &Path, name: &str) -> Place {
        let dir = above.join(format!("stele-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Place(dir)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// The command, independent of the server and the directory of the user who runs the tests.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stele"));
        command.args(arguments).env_remove("STELE_DIR").env("STELE_LOG", "info").stdin(Stdio::null());
        command
    }

    pub fn stele(&self, arguments: &[&str]) -> Output {
        self.command(arguments).arg("--dir").arg(&self.0).output().unwrap()
    }

    /// Runs a command, expects exit code 0, and parses its only line as JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.stele(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "stele {arguments:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 1, "stele {arguments:?} --json prints one line: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("stele {arguments:?}: {error}: {text}"))
    }

    /// Whether a measurement finished. On a busy machine it need not be steady, and the generator
    /// may be late.
    pub fn measured(output: &std::process::Output) -> bool {
        matches!(output.status.code(), Some(0 | 10 | 11))
    }

    /// Runs a measurement to its end, and parses the cells among its JSON lines. The lines of
    /// rounds precede their cell. An unsteady or void cell ends with a line that says so, and an
    /// exit code of the same kind.
    pub fn cells(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.stele(&[arguments, &["--json"]].concat());
        assert!(Place::measured(&output), "stele {arguments:?}: {output:?}");
        Place::cells_of(&output)
    }

    /// The cells of a measurement that is made again, for longer, while a cell has answered too
    /// little: a busy disk may keep all answers back for as long as a short cell lasts.
    pub fn answered(mut measure: impl FnMut(&str) -> Vec<Value>, enough: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut cells = measure("600ms");
        for longer in ["6s", "60s"] {
            if cells.iter().all(&enough) {
                break;
            }
            cells = measure(longer);
        }
        assert!(cells.iter().all(enough), "{cells:?}");
        cells
    }

    /// The cells of a finished measurement.
    pub fn cells_of(output: &std::process::Output) -> Vec<Value> {
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let said = match output.status.code() {
            Some(0) => None,
            Some(10) => Some("unsteady"),
            Some(11) => Some("void"),
            other => panic!("not a measurement's exit code: {other:?}: {text}"),
        };
        if let Some(kind) = said {
            assert_eq!(lines.pop().unwrap()["kind"], kind, "{text}");
        }
        assert!(lines.iter().all(|line| line["cell"].is_u64()), "{text}");
        lines.retain(|line| line["round"].is_null());
        lines
    }

    /// Runs a command, expects the exit code, and expects each of the words in the error.
    pub fn refused(&self, code: i32, words: &[&str], arguments: &[&str]) -> String {
        let output = self.stele(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "stele {arguments:?}: {text}");
        for word in words {
            assert!(text.contains(word), "stele {arguments:?} should speak of '{word}': {text}");
        }
        assert!(!text.contains("panicked"), "{text}");
        text
    }

    /// `stele up` on small drives.
    pub fn up(&self) -> Server {
        self.up_with(&[])
    }

    pub fn up_with(&self, more: &[&str]) -> Server {
        let arguments = ["up", "--listen", "127.0.0.1:0", "--drive-size", "256MiB"];
        Server::start(self, &[&arguments, more].concat()).unwrap_or_else(|said| panic!("{said}"))
    }

    /// `stele serve` with the present configuration, on a free port.
    pub fn serve(&self) -> Server {
        self.listen_anywhere();
        Server::start(self, &["serve"]).unwrap_or_else(|said| panic!("{said}"))
    }

    /// A pool of `count` file drives of 256 MiB in enclosures of one, with a 2+1 archive, by
    /// `stele pool create`.
    pub fn pool(&self, count: usize) -> Value {
        self.pool_of(count, "2+1")
    }

    /// As `pool`, with this code for the archive.
    pub fn pool_of(&self, count: usize, data: &str) -> Value {
        let mut arguments =
            vec!["pool", "create", "--confirm-time", "--size", "256MiB", "--data", data, "--spare", "1"];
        let drives: Vec<String> =
            (0..count).map(|number| format!("{}@{number}", self.path(&format!("d{number}.img")))).collect();
        drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
        self.json(&arguments)
    }

    pub fn config(&self) -> String {
        std::fs::read_to_string(self.0.join("stele.toml")).unwrap()
    }

    pub fn edit_config(&self, edit: impl FnOnce(String) -> String) {
        let text = edit(self.config());
        std::fs::write(self.0.join("stele.toml"), text).unwrap();
    }

    pub fn listen_anywhere(&self) {
        self.edit_config(|text| text.replace("127.0.0.1:9000", "127.0.0.1:0"));
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.0.join("log")).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("the end of {}:\n{}", self.path("log"), lines[lines.len().saturating_sub(40)..].join("\n"));
            return;
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Repeats the check for at most a minute, and yields the processor in between.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed().as_secs() < 60, "waited a minute for {what}");
        std::thread::yield_now();
    }
}

/// Whether the drive is only slow: on a busy machine files answer late now and then.
pub fn is_slow(drive: &Value) -> bool {
    drive["alarm"] == "drive-slow"
}

/// Whether every drive has its data, however slow it is.
pub fn is_whole(status: &Value) -> bool {
    let drives = status["drives"].as_array().unwrap();
    drives.iter().all(|drive| drive["health"] == "healthy" || is_slow(drive))
        && (status["state"] == "ok" || status["state"] == "degraded" && drives.iter().any(is_slow))
}

/// Content that repeats for a seed and does not compress.
/// Waits until nothing is left to repair or to rebuild, so that no two faults meet in one stripe.
pub fn wait_until_whole(place: &Place) {
    wait_for("a pool without faults", || {
        let status = place.json(&["pool", "status"]);
        (is_whole(&status) && status["rebuild"].is_null()).then_some(())
    });
}

/// A drive that is taken away between two runs of a server, and brought back.
#[derive(Default)]
pub struct Away(Option<String>);

impl Away {
    /// Brings the drive back, or takes one away from a whole pool in every third round. No server
    /// runs.
    pub fn turn(&mut self, place: &Place, round: u64) {
        let kept = place.path("away.img");
        match self.0.take() {
            Some(there) => std::fs::rename(kept, there).unwrap(),
            None if round % 3 == 1 => {
                let there = place.path(&format!("d{}.img", round % 5));
                std::fs::rename(&there, kept).unwrap();
                self.0 = Some(there);
            }
            None => {}
        }
    }

    pub fn is_away(&self) -> bool {
        self.0.is_some()
    }

    /// Waits until another drive may go.
    pub fn settle(&self, place: &Place) {
        if self.0.is_none() {
            wait_until_whole(place);
        }
    }
}

pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Whether a program is installed. If not, the test is left out, except when everything must be
/// tested.
pub fn installed(probe: &[&str]) -> bool {
    let found = Command::new(probe[0]).args(&probe[1..]).env("PATH", clients()).stdin(Stdio::null()).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "'{}' does not run here, and CI leaves nothing out", probe.join(" "));
        println!("left out: '{}' does not run here", probe.join(" "));
    }
    found
}

/// Finds the programs of `.ci/run` before those of the machine.
pub fn clients() -> std::ffi::OsString {
    let mut path = std::ffi::OsString::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients/bin:"));
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

pub fn exists(path: &Path) -> Option<()> {
    path.exists().then_some(())
}

/// The value for `Content-MD5`, which some operations require for their documents.
pub fn md5_base64(bytes: &[u8]) -> String {
    use md5::Digest;
    let digest = md5::Md5::digest(bytes);
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in digest.chunks(3) {
        let word = group.iter().enumerate().fold(0, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            text.push(if at <= group.len() { DIGITS[(word >> (18 - 6 * at)) as usize & 63] as char } else { '=' });
        }
    }
    text
}
