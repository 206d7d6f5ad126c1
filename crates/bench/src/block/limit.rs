//! The work that a write of 256 KiB through a socket cannot leave out: its copy through the socket,
//! and what the array does with it on drives of memory. Each is measured alone in the same run.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use stele_array::OpenOptions;
use stele_ground::{Bytes, MIB};
use stele_media::Op;

use crate::array::{pool_of, random_bytes, volume_of};

/// How long the socket is measured.
const STEP: Duration = Duration::from_millis(300);
/// Bytes of a request of the bench.
const PIECE: u64 = 256 << 10;
/// Bytes of the volume of memory.
const VOLUME: u64 = 256 * MIB;

/// MB/s of one thread that does both, one after the other.
pub fn megabytes() -> Result<f64, String> {
    Ok(1.0 / (socket().map_err(|error| format!("a pair of sockets: {error}"))? + array()?) / 1e6)
}

/// Seconds of both ends of a unix socket for a byte.
fn socket() -> std::io::Result<f64> {
    let (mut here, mut there) = UnixStream::pair()?;
    // One thread does both, so that its time is that of both. The buffers of the pair hold a part.
    let mut part = vec![1; 64 << 10];
    let (begun, mut carried) = (Instant::now(), 0);
    while begun.elapsed() < STEP {
        here.write_all(&part)?;
        there.read_exact(&mut part)?;
        carried += part.len();
    }
    Ok(begun.elapsed().as_secs_f64() / carried as f64)
}

/// Seconds of the array for a byte of sequential writes to two copies.
fn array() -> Result<f64, String> {
    let options = OpenOptions { block_cache: Bytes(16 * MIB), ..OpenOptions::default() };
    let mut rig = pool_of(4, 512 * MIB, options)?;
    let volume = volume_of(&mut rig, "stream", "mirror-2", VOLUME, 4096)?;
    let data = random_bytes(PIECE as usize);
    let count = VOLUME / PIECE;
    let write = |number: u64, _| Op::Write { at: number * PIECE, data: vec![data.clone()], fua: false };
    rig.drive(volume, 8, count, write)?;
    Ok(rig.drive(volume, 8, count, write)? / VOLUME as f64)
}
