//! The client: fio's nbd engine, nbdcopy, and the smallest cost of a wake-up.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::ROUND;

/// The load of fio.
#[derive(Clone, Copy)]
pub struct Load {
    pattern: &'static str,
    size: &'static str,
    depth: u32,
    jobs: u32,
    span: &'static str,
    /// The amount that each job moves; `None`: as much as a round allows.
    total: Option<&'static str>,
}

impl Load {
    /// Random blocks of one size, at depth 32.
    pub const fn small(pattern: &'static str, size: &'static str) -> Load {
        Load { pattern, size, depth: 32, jobs: 1, span: "1g", total: None }
    }
    /// Sequential accesses of 256 KiB at depth 8.
    pub const fn large(pattern: &'static str) -> Load {
        Load { depth: 8, ..Load::small(pattern, "256k") }
    }
    pub const fn jobs(self, jobs: u32) -> Load {
        Load { jobs, ..self }
    }
    pub const fn depth(self, depth: u32) -> Load {
        Load { depth, ..self }
    }
    pub const fn total(self, total: &'static str) -> Load {
        Load { total: Some(total), ..self }
    }
    pub const fn span(self, span: &'static str) -> Load {
        Load { span, ..self }
    }
    pub fn is_large(&self) -> bool {
        matches!(self.size.as_bytes(), b"256k")
    }
}

/// The result of a run of fio.
pub struct FioResult {
    pub operations: f64,
    pub rate: f64,
    pub megabytes: f64,
}

/// Nanoseconds of user and system time of a process, over all threads that it ever had (nbdkit has
/// some for each connection), to a hundredth of a second.
pub fn cpu_time(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // After the name, which may contain anything, the state is the first field; utime and stime are
    // the 12th and 13th.
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

/// Fills every block with content, so that no reader saves work.
pub fn fill(url: &str) -> Result<(), String> {
    let uri = format!("--uri={url}");
    let arguments = ["--ioengine=nbd", &uri, "--name=fill", "--rw=write", "--bs=256k", "--iodepth=8", "--size=1g"];
    output(Command::new("fio").args(arguments)).map(drop)
}

pub fn run(url: &str, load: &Load) -> Result<FioResult, String> {
    let mut command = Command::new("fio");
    let span = if load.jobs > 1 { "512m" } else { load.span };
    command
        .args(["--ioengine=nbd", "--name=load", "--norandommap", "--randrepeat=0", "--group_reporting"])
        .arg("--output-format=json")
        .arg(format!("--bs={}", load.size))
        .arg(format!("--uri={url}"))
        .arg(format!("--rw={}", load.pattern))
        .arg(format!("--iodepth={}", load.depth))
        .arg(format!("--numjobs={}", load.jobs))
        .arg(format!("--size={span}"));
    match load.total {
        Some(total) => command.arg(format!("--io_size={total}")),
        None => command.args(["--time_based", &format!("--runtime={}", ROUND.as_secs())]),
    };
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
    Ok(FioResult { operations, rate: operations / seconds, megabytes: sum("io_bytes") / seconds / 1e6 })
}

/// The load of `qemu-img bench`: requests of one size; small ones are a large odd stride apart.
#[derive(Clone, Copy)]
pub struct Pass {
    pub write: bool,
    pub size: u64,
    pub depth: u32,
    pub count: u64,
}

/// Runs one pass; returns its seconds.
pub fn qemu_bench(url: &str, pass: &Pass) -> Result<f64, String> {
    let stride = if pass.size > 65_536 { pass.size } else { 1_052_672 };
    let mut command = Command::new("qemu-img");
    command.args(["bench", "-f", "raw", "-t", "none"]);
    for (flag, value) in [("-c", pass.count), ("-d", pass.depth.into()), ("-s", pass.size), ("-S", stride)] {
        command.args([flag, &value.to_string()]);
    }
    if pass.write {
        command.arg("-w");
    }
    let said = String::from_utf8_lossy(&output(command.arg(url))?).into_owned();
    let seconds = said.split("Run completed in ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    seconds.ok_or_else(|| format!("qemu-img bench said: {said}"))
}

/// MB/s of one nbdcopy that discards its output.
pub fn copy(url: &str) -> Result<f64, String> {
    let begun = Instant::now();
    output(Command::new("nbdcopy").args([url, "null:"]))?;
    Ok(f64::from(1 << 30) / begun.elapsed().as_secs_f64() / 1e6)
}

/// Microseconds for a request of 28 bytes and its answer of 4 KiB between two threads that sleep
/// until they are woken.
pub fn ping_pong(transport: &str) -> std::io::Result<f64> {
    if transport != "tcp" {
        let (here, there) = UnixStream::pair()?;
        return volley(here, there);
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let here = TcpStream::connect(listener.local_addr()?)?;
    let (there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    volley(here, there)
}

fn volley<S: Read + Write + Send + 'static>(mut here: S, mut there: S) -> std::io::Result<f64> {
    const ROUNDS: u32 = 10_000;
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
