//! What the machine allows of writes of 256 KiB over NFS: the work that no server leaves out, each
//! measured alone in the same run, divided by the processors.
//!
//! The processor time of a call is the sum of:
//!
//! - what this program, the client, spends for a call in the rounds of the server, with the
//!   kernel's work to send;
//! - the receiver's copy out of a TCP socket of the loopback, in parts of 32 KiB;
//! - one digest of the content;
//! - the copies into a file in memory: as many as the code of the cache volume asks for, which is
//!   2 for two copies and 1.25 for 4+1. A log, parity and headers are left out.
//!
//! The limit is the rate at which all processors do only that, and never wait.

use std::fs;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use stele_ground::digest;

use super::{LENGTH, LONG, content, median};
use crate::process::Usage;
use crate::served::Scratch;

/// How long each step is measured.
const STEP: Duration = Duration::from_millis(300);
/// Bytes that a socket takes at once, before the other end reads.
const PART: usize = 32 << 10;

/// Microseconds for a call of 256 KiB.
pub struct LeastWork {
    socket: f64,
    digest: f64,
    /// Of one copy into a file.
    copy: f64,
}

impl LeastWork {
    pub fn measure() -> Result<LeastWork, String> {
        let data = content(LONG as usize);
        Ok(LeastWork {
            socket: socket().map_err(|error| format!("a TCP connection on the loopback: {error}"))?,
            digest: each(|_| {
                black_box(digest::fingerprint(black_box(&data)));
                Ok(())
            })
            .map_err(|error| error.to_string())?,
            copy: copy(&data)?,
        })
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let LeastWork { socket, digest, copy } = self;
        format!("Least work for 256 KiB: socket {socket:.0} us, digest {digest:.0} us, a copy into a file {copy:.0} us")
    }

    /// Calls a second, where the client needs this many microseconds for a call.
    pub fn rate(&self, client: f64, copies: f64) -> f64 {
        let processors = std::thread::available_parallelism().map_or(1.0, |number| usize::from(number) as f64);
        processors * 1e6 / (client + self.socket + self.digest + copies * self.copy)
    }
}

/// Microseconds of this program's processor time for a step, over many.
fn each(mut step: impl FnMut(u64) -> std::io::Result<()>) -> std::io::Result<f64> {
    let (begun, before, mut count) = (Instant::now(), Usage::own().cpu_nanoseconds, 0);
    while begun.elapsed() < STEP {
        step(count)?;
        count += 1;
    }
    Ok((Usage::own().cpu_nanoseconds - before) as f64 / 1e3 / count as f64)
}

/// The reader's part alone: what is read has arrived before. The median of its times, since others
/// use the processor too.
fn socket() -> std::io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    sender.set_nodelay(true)?;
    // One thread has both ends: an error instead of waiting for itself.
    for end in [&sender, &receiver] {
        end.set_write_timeout(Some(STEP))?;
        end.set_read_timeout(Some(STEP))?;
    }
    let data = vec![1; PART];
    let mut call = vec![0; LONG as usize];
    let parts = LONG as usize / PART;
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < STEP {
        sender.write_all(&data)?;
        let at = times.len() % parts * PART;
        let from = Instant::now();
        receiver.read_exact(&mut call[at..at + PART])?;
        times.push(from.elapsed().as_secs_f64() * 1e6);
    }
    black_box(&call);
    Ok(median(times.into_iter()) * parts as f64)
}

/// One copy into a file that has its memory.
fn copy(data: &[u8]) -> Result<f64, String> {
    let scratch = Scratch::new("limit")?;
    let path = scratch.0.join("file");
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = fs::File::create(&path).map_err(failed)?;
    let places = LENGTH / u64::from(LONG);
    for place in 0..places {
        file.write_all_at(data, place * u64::from(LONG)).map_err(failed)?;
    }
    each(|count| file.write_all_at(data, count % places * u64::from(LONG))).map_err(failed)
}
