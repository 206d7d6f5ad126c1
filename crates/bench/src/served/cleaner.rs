//! The process that cleans up behind a bench: it reads which servers run from a pipe, and the pipe
//! closes when the bench ends, also by a signal. It then ends the servers that still run, and
//! removes what the bench has left in memory and among the temporary files.
//!
//! A bench that ends by itself has left nothing. The cleaner has a process group of its own, so
//! that an interrupt from the terminal does not reach it. It reports nothing, since the bench whose
//! output it would write to has ended.

use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::process::began;

/// The only argument of this program as a cleaner.
pub const CHILD: &str = "cleaner-child";
/// How long the servers may take to end before they are killed.
const END_MAX: Duration = Duration::from_secs(10);
/// Files and directories of benches begin so, and have the number of the process in a part.
const PREFIXES: [&str; 3] = ["stele-bench-", "bench-s3-", "bench-many-"];

/// The pipe to the cleaner of this process.
static PIPE: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// Starts the cleaner, if it does not run.
pub fn start() {
    tell("");
}

/// A server has begun, which is to end with this program.
pub fn begun(process: u32) {
    tell(&format!("{process}\n"));
}

fn tell(line: &str) {
    let mut pipe = PIPE.lock().unwrap_or_else(PoisonError::into_inner);
    if pipe.is_none() {
        *pipe = launch();
    }
    // Without a cleaner only a killed bench leaves something.
    if let Some(pipe) = pipe.as_mut() {
        let _ = pipe.write_all(line.as_bytes());
    }
}

fn launch() -> Option<ChildStdin> {
    // The program of a unit test has other arguments.
    if cfg!(test) {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.arg(CHILD).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut pipe = command.spawn().ok()?.stdin?;
    pipe.write_all(format!("{}\n", std::process::id()).as_bytes()).ok()?;
    Some(pipe)
}

/// What the cleaner does.
pub fn child() {
    let mut own = vec![PathBuf::from("/dev/shm"), std::env::temp_dir()];
    own.extend(std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned)));
    clean(std::io::stdin().lock(), &own);
}

/// Follows the bench until its end; then cleans up, also in these directories.
fn clean(lines: impl BufRead, places: &[PathBuf]) {
    let mut lines = lines.lines().map_while(Result::ok);
    let Some(bench) = lines.next().filter(|bench| bench.parse::<u32>().is_ok()) else { return };
    let server = |line: String| {
        let process = line.parse().ok()?;
        Some(Server { process, began: began(process)? })
    };
    let servers: Vec<Server> = lines.filter_map(server).collect();
    end(&servers);
    for place in places {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| is_of(name, &bench)) {
                remove(&entry.path());
            }
        }
    }
}

/// Whether a bench of this process makes a file of this name.
fn is_of(name: &str, bench: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && name.split(['-', '.']).any(|part| part == bench)
}

/// A server that was told of.
struct Server {
    process: u32,
    /// Its number may be another process's once it has ended.
    began: u64,
}

fn end(servers: &[Server]) {
    let running = || servers.iter().filter(|server| began(server.process) == Some(server.began)).collect::<Vec<_>>();
    let signal = |name: &str| {
        for server in running() {
            let mut kill = Command::new("kill");
            let _ = kill.args(["-s", name, &server.process.to_string()]).stderr(Stdio::null()).status();
        }
    };
    signal("TERM");
    let begun = Instant::now();
    while !running().is_empty() && begun.elapsed() < END_MAX {
        sleep(Duration::from_millis(20));
    }
    signal("KILL");
}

/// Removes a file or a directory, with the mounts and the loop devices that a killed server has
/// left in it.
fn remove(path: &Path) {
    let quietly = |program: &str, option: &str, place: &str| {
        let mut command = Command::new(program);
        let _ = command.args([option, place]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below = |place: &&str| Path::new(place).starts_with(path);
    for place in mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(below) {
        quietly("umount", "-l", place);
    }
    for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(&file).starts_with(path) {
            quietly("losetup", "--detach", &format!("/dev/{}", device.file_name().to_string_lossy()));
        }
    }
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_bench_leaves_is_ended_and_removed() {
        let place = std::env::temp_dir().join(format!("stele-cleaner-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        for name in ["stele-bench-file-1GiB-71", "stele-bench-71-mirror", "stele-bench-710", "records-71"] {
            fs::create_dir_all(place.join(name).join("below")).unwrap();
        }
        fs::write(place.join("stele-bench-lab-71"), "x").unwrap();
        let mut servers: Vec<_> =
            (0..2).map(|_| Command::new("sleep").arg("600").spawn().expect("sleep starts")).collect();
        let [left, stays] = [servers[0].id(), servers[1].id()];
        let told = format!("71\n{left}\n");
        clean(told.as_bytes(), &[place.clone(), place.join("not there")]);
        assert!(began(left).is_none() && began(stays).is_some());
        let mut rest: Vec<_> = fs::read_dir(&place).unwrap().flatten().map(|entry| entry.file_name()).collect();
        rest.sort();
        assert_eq!(rest, ["records-71", "stele-bench-710"]);
        for server in &mut servers {
            let _ = server.kill();
            server.wait().unwrap();
        }
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_cleaner_without_a_bench_removes_nothing() {
        let place = std::env::temp_dir().join(format!("stele-cleaner-none-{}", std::process::id()));
        fs::create_dir_all(place.join("stele-bench--")).unwrap();
        for told in ["", "\n", "-\n"] {
            clean(told.as_bytes(), std::slice::from_ref(&place));
        }
        assert!(place.join("stele-bench--").is_dir());
        fs::remove_dir_all(&place).unwrap();
    }
}
