//! Streams of random bytes from memory into a repository on a server, and back: 1 to 16 sessions of
//! `stele lab` against `stele up` on loopback, whose drives are files in memory. One object is one
//! segment of 64 MiB.
//!
//! Agent and server share the machine. So the limit is what its processors reach together when they
//! carry out only the steps that no such path can leave out, each of them once. The agent cuts,
//! names, tries to compress and encrypts; loopback carries; the server hashes, encodes 8+2 and
//! writes to its drives. A restore copies, carries, decrypts and hashes; it finds the objects in
//! the server's cache.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use stele_backup::chunker::{Chunker, LENGTHS};
use stele_backup::compress::{Compressor, LEVEL_DEFAULT};
use stele_backup::crypt::{Keys, Kind, SALT_BYTES};
use stele_codes::{Code, Coder};
use stele_ground::Dice;

use super::agents::PASSWORD;
use crate::harness::{Bench, Unit, rate};
use crate::s3::server::Server;

const MEGABYTES: Unit = Unit::more("MB/s");
const SECONDS: Unit = Unit::less("CPU s/GB");
const SEGMENT: &str = "64MiB";
/// Each of twelve: they hold what the longest cell writes, and a machine of 24 GiB holds them.
const DRIVE: &str = "1280MiB";
const SESSIONS: [u32; 5] = [1, 2, 4, 8, 16];
/// Percent of restores.
const LOADS: [(&str, u32); 3] = [("backup", 0), ("restore", 100), ("mixed", 50)];
const BUCKET: &str = "streams";
/// Objects that restores read.
const OBJECTS: &str = "16";
/// Longer than it takes to read all of them once: the cache of a server that has just started is
/// memory that the machine has to clear first.
const RESTORES_WARM_UP: &str = "4s";
/// How long a step is measured.
const STEP: Duration = Duration::from_millis(300);
const MIB: usize = 1 << 20;
const LARGE: usize = 512 * MIB;
/// Bytes that loopback carries at once.
const PIECE: usize = 64 << 10;
/// The share of the limit to reach.
const SHARE: f64 = 0.6;

fn name(load: &str, sessions: u32) -> String {
    format!("streams: {load}, {sessions} sessions")
}

/// Whether `--case` asks for any of them.
pub fn wanted(bench: &Bench) -> bool {
    LOADS.iter().any(|(load, _)| SESSIONS.iter().any(|sessions| bench.wants(&name(load, *sessions))))
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let limit = Limit::measure()?;
    bench.note(&limit.told());
    for (load, restores) in LOADS {
        for sessions in SESSIONS {
            if !bench.wants(&name(load, sessions)) {
                continue;
            }
            let (mut rates, mut costs) = (Vec::new(), Vec::new());
            for _ in 0..bench.rounds() {
                // A store of its own: what earlier cells saved would fill the pool.
                let (rate, cost) = Place::new()?.cell(restores, sessions)?;
                rates.push(rate);
                costs.push(cost);
            }
            let limit = limit.of(restores);
            bench.figures(&name(load, sessions), MEGABYTES, &rates, Some(("the steps alone", limit)), Some(SHARE));
            let least = Limit::processors() / limit * 1e3;
            bench.figures(&name(load, sessions), SECONDS, &costs, Some(("the steps alone", least)), None);
        }
    }
    Ok(())
}

/// A server whose drives are in memory, and the password of the repository.
struct Place {
    server: Server,
    password: PathBuf,
}

impl Place {
    fn new() -> Result<Place, String> {
        let server = Server::start_in_memory(DRIVE)?;
        server.make_bucket(BUCKET)?;
        let password = server.dir().join("password");
        std::fs::write(&password, PASSWORD).map_err(|error| format!("{}: {error}", password.display()))?;
        Ok(Place { server, password })
    }

    /// MB/s, and the machine's processor time in s/GB.
    fn cell(&self, restores: u32, sessions: u32) -> Result<(f64, f64), String> {
        let target =
            format!("backup+http://{}/{BUCKET}?password-file={}", self.server.address, self.password.display());
        let warm_up = if restores == 100 { RESTORES_WARM_UP } else { "1s" };
        let (restores, sessions) = (restores.to_string(), sessions.to_string());
        let output = Command::new(self.server.program())
            .args(["lab", "run", "--json", "--on", &target, "--read", &restores, "--outstanding", &sessions])
            .args(["--access", SEGMENT, "--files", OBJECTS, "--warm-up", warm_up, "--time", "4s", "--round", "2s"])
            .env("AWS_ACCESS_KEY_ID", &self.server.access_key)
            .env("AWS_SECRET_ACCESS_KEY", &self.server.secret_key)
            .env_remove("STELE_DIR")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot start stele lab: {error}"))?;
        // A cell that is not steady ends with another code, and its figures count here: rounds show
        // the spread.
        let text = String::from_utf8_lossy(&output.stdout);
        let cells = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let run = cells.filter_map(|cell| cell.get("runs")?.get(0).cloned()).next_back();
        let figure = |field: &str| run.as_ref()?.get(field)?.as_f64();
        match (figure("bytes"), figure("rate"), figure("machine_cpu_us")) {
            (Some(bytes), Some(rate), Some(cpu_us)) if rate > 0.0 => {
                Ok((bytes / 1e6, cpu_us / 1e6 / (bytes / rate / 1e9)))
            }
            _ => Err(format!("stele lab measured nothing: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }
}

/// Seconds of a processor for a byte, step by step, while all processors carry out the same step.
/// Two that share a core, or its memory, are not twice as fast as one.
struct Limit {
    backup: Vec<(&'static str, f64)>,
    restore: Vec<(&'static str, f64)>,
}

impl Limit {
    fn measure() -> Result<Limit, String> {
        let mut content = vec![0; 8 * MIB];
        Dice::new(1).fill(&mut content);
        // As many as no processor holds in its caches.
        let held = vec![1; LARGE];
        let (content, held) = (content.as_slice(), held.as_slice());
        let chunk = &content[..MIB];
        let keys = &Keys::new([1; 32].into());
        let cut = on_all(content.len(), || {
            let chunker = Chunker::new(keys.boundaries(), LENGTHS);
            Ok(move || {
                let mut left = content;
                while !left.is_empty() {
                    left = &left[chunker.cut(left).clamp(1, left.len())..];
                }
                Ok(())
            })
        })?;
        let hash = on_all(MIB, || {
            Ok(move || {
                black_box(keys.id(Kind::Content, chunk));
                Ok(())
            })
        })?;
        let compress = on_all(MIB, || {
            let mut compressor = Compressor::new(LEVEL_DEFAULT).map_err(|error| error.to_string())?;
            Ok(move || {
                black_box(compressor.compress(chunk).map_err(|error| error.to_string())?);
                Ok(())
            })
        })?;
        let seal = on_all(MIB, || {
            let key = keys.sealing("bench", &[0; SALT_BYTES]);
            let (mut sealed, mut number) = (chunk.to_vec(), 0);
            Ok(move || {
                number += 1;
                black_box(key.seal(number, &[], &mut sealed).map_err(|error| error.to_string())?);
                Ok(())
            })
        })?;
        let carry = on_all(PIECE, || carry(&chunk[..PIECE]))?;
        let encode = on_all(MIB, || {
            let coder = Coder::new(Code::parity(8, 2).ok_or("not a code")?);
            let mut parity = vec![vec![0; MIB / 8]; 2];
            Ok(move || {
                let strips: Vec<&[u8]> = chunk.chunks(MIB / 8).collect();
                let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                coder.encode(&strips, &mut parity);
                Ok(())
            })
        })?;
        let write = on_all(MIB / 8, || write_to_memory(held))?;
        let copy = on_all(MIB, || {
            let (mut pieces, mut copy) = (held.chunks_exact(MIB).cycle(), vec![0; MIB]);
            Ok(move || {
                black_box(copy.as_mut_slice()).copy_from_slice(black_box(pieces.next().unwrap_or(chunk)));
                Ok(())
            })
        })?;
        Ok(Limit {
            backup: vec![
                ("cut", cut),
                ("name", hash),
                ("try to compress", compress),
                ("encrypt", seal),
                ("carry", carry),
                ("hash", hash),
                ("encode", encode),
                ("write to drives", write * 1.25),
            ],
            restore: vec![("copy from the cache", copy), ("carry", carry), ("decrypt", seal), ("hash", hash)],
        })
    }

    fn processors() -> f64 {
        processors() as f64
    }

    /// MB/s of all processors together.
    fn of(&self, restores: u32) -> f64 {
        let sum = |steps: &[(&str, f64)]| steps.iter().map(|(_, seconds)| seconds).sum::<f64>();
        let share = f64::from(restores) / 100.0;
        Limit::processors() / (sum(&self.restore) * share + sum(&self.backup) * (1.0 - share)) / 1e6
    }

    fn told(&self) -> String {
        let tell = |steps: &[(&str, f64)]| {
            let steps: Vec<String> =
                steps.iter().map(|(step, seconds)| format!("{step} {:.2}", seconds * 1e9)).collect();
            steps.join(", ")
        };
        format!("the steps alone, CPU s/GB, of a backup: {}; of a restore: {}", tell(&self.backup), tell(&self.restore))
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Seconds of a processor for a byte. Each of them does its own work at the same time, `bytes` in
/// each call.
fn on_all<Work>(bytes: usize, make: impl Fn() -> Result<Work, String> + Sync) -> Result<f64, String>
where
    Work: FnMut() -> Result<(), String>,
{
    let begin = Barrier::new(processors());
    let measure = || {
        let made = make();
        begin.wait();
        let (mut work, mut outcome) = (made?, Ok(()));
        let calls = rate(STEP, || {
            if outcome.is_ok() {
                outcome = work();
            }
        });
        outcome.map(|()| calls)
    };
    let calls: Vec<Result<f64, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors()).map(|_| scope.spawn(measure)).collect();
        let died = || Err("a thread that measures ended".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| died())).collect()
    });
    let calls: f64 = calls.into_iter().sum::<Result<f64, String>>()?;
    Ok(processors() as f64 / calls / bytes as f64)
}

/// Writes pieces to a file in memory which has its pages, one after another.
fn write_to_memory(content: &[u8]) -> Result<impl FnMut() -> Result<(), String>, String> {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = PathBuf::from(format!("/dev/shm/bench-streams-{}-{number}", std::process::id()));
    let failed = move |error: std::io::Error| format!("/dev/shm: {error}");
    let file = std::fs::File::create(&path).map_err(failed)?;
    std::fs::remove_file(&path).map_err(failed)?;
    file.write_all_at(content, 0).map_err(failed)?;
    let (piece, length, mut at) = (content[..MIB / 8].to_vec(), content.len(), 0);
    Ok(move || {
        at = (at + piece.len()) % length;
        file.write_all_at(&piece, at as u64).map_err(failed)
    })
}

/// Carries pieces over loopback. One thread does both, so that its time is that of both ends. A
/// piece fits in the buffers of the connection.
fn carry(piece: &[u8]) -> Result<impl FnMut() -> Result<(), String>, String> {
    let failed = |error: std::io::Error| format!("loopback: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let mut sender = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
    let (mut receiver, _) = listener.accept().map_err(failed)?;
    let mut into = vec![0; piece.len()];
    Ok(move || {
        sender.write_all(piece).map_err(failed)?;
        receiver.read_exact(&mut into).map_err(failed)
    })
}
