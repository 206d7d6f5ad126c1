//! The client: fio's nbd engine, nbdcopy, and the least that a wake-up costs.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::ROUND;

/// What fio does.
#[derive(Clone, Copy)]
pub struct Load {
    pattern: &'static str,
    sizes: &'static str,
    depth: u32,
    jobs: u32,
    span: &'static str,
}

impl Load {
    pub const fn small(pattern: &'static str) -> Load {
        Load { pattern, sizes: "--bs=4k", depth: 32, jobs: 1, span: "1g" }
    }
    pub const fn large(pattern: &'static str) -> Load {
        Load { pattern, sizes: "--bs=256k", depth: 8, jobs: 1, span: "1g" }
    }
    pub const fn mixed() -> Load {
        Load { sizes: "--bssplit=512/34:4k/33:8k/33", ..Load::small("randrw") }
    }
    pub const fn jobs(self, jobs: u32) -> Load {
        Load { jobs, ..self }
    }
    pub const fn depth(self, depth: u32) -> Load {
        Load { depth, ..self }
    }
    pub const fn span(self, span: &'static str) -> Load {
        Load { span, ..self }
    }
    pub fn is_large(&self) -> bool {
        self.sizes == "--bs=256k"
    }
}

/// What a run of fio did.
pub struct Ran {
    pub operations: f64,
    pub rate: f64,
    pub megabytes: f64,
}

/// Nanoseconds of user and system time of a process, of all threads it ever had (nbdkit has some for each connection), to a
/// hundredth of a second.
pub fn cpu_time(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: the state is the first field, utime and stime the 12th and 13th.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() * 10_000_000
}

pub fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Content in every block, so that no reader is spared anything.
pub fn fill(url: &str) -> Result<(), String> {
    let uri = format!("--uri={url}");
    let arguments = ["--ioengine=nbd", &uri, "--name=fill", "--rw=write", "--bs=256k", "--iodepth=8", "--size=1g"];
    output(Command::new("fio").args(arguments)).map(drop)
}

pub fn run(url: &str, load: &Load) -> Result<Ran, String> {
    let mut command = Command::new("fio");
    let span = if load.jobs > 1 { "512m" } else { load.span };
    command
        .args(["--ioengine=nbd", "--name=load", "--norandommap", "--randrepeat=0", "--time_based", "--group_reporting"])
        .args(["--blockalign=512", "--output-format=json", load.sizes])
        .arg(format!("--uri={url}"))
        .arg(format!("--rw={}", load.pattern))
        .arg(format!("--iodepth={}", load.depth))
        .arg(format!("--numjobs={}", load.jobs))
        .arg(format!("--size={span}"))
        .arg(format!("--runtime={}", ROUND.as_secs()));
    if load.jobs > 1 {
        command.arg("--offset_increment=512m");
    }
    let said = String::from_utf8_lossy(&output(&mut command)?).into_owned();
    let json = said.find('{').and_then(|at| said.get(at..)).unwrap_or_default();
    let said: Value =
        serde_json::from_str(json).map_err(|error| format!("fio said something else than JSON: {error}"))?;
    let sum = |field: &str| -> f64 {
        ["read", "write"].iter().filter_map(|side| said["jobs"][0][side][field].as_f64()).sum()
    };
    let longest =
        ["read", "write"].iter().filter_map(|side| said["jobs"][0][side]["runtime"].as_f64()).fold(1.0, f64::max);
    let seconds = longest / 1000.0;
    let operations = sum("total_ios");
    Ok(Ran { operations, rate: operations / seconds, megabytes: sum("io_bytes") / seconds / 1e6 })
}

/// MB/s of one nbdcopy to nowhere.
pub fn copy(url: &str) -> Result<f64, String> {
    let begun = Instant::now();
    output(Command::new("nbdcopy").args([url, "null:"]))?;
    Ok(f64::from(1 << 30) / begun.elapsed().as_secs_f64() / 1e6)
}

/// Microseconds for a request of 28 bytes and its answer of 4 KiB between two threads that sleep until they are woken.
pub fn ping_pong() -> std::io::Result<f64> {
    const ROUNDS: u32 = 30_000;
    let (mut here, mut there) = UnixStream::pair()?;
    let server = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut request, answer) = ([0; 28], [0; 4112]);
        for _ in 0..ROUNDS {
            there.read_exact(&mut request)?;
            there.write_all(&answer)?;
        }
        Ok(())
    });
    let begun = Instant::now();
    let mut answer = [0; 4112];
    for _ in 0..ROUNDS {
        here.write_all(&[0; 28])?;
        here.read_exact(&mut answer)?;
    }
    let microseconds = begun.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
    server.join().map_err(|_| std::io::Error::other("the other end died"))??;
    Ok(microseconds)
}
