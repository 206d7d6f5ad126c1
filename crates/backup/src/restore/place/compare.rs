//! Comparing files of the target with the snapshot.

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{Target, by_inode};
use crate::chunker::CHUNK_MAX;
use crate::crypt::Kind;
use crate::error::Result;
use crate::restore::Job;
use crate::tree::{Piece, total};
use crate::walk::next_data;

/// Opens a file for reading, also an own one that its mode closes to its owner. The mode is that of
/// before at the end.
fn open(target: &Target, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    match target.open_at(path, flags) {
        Err(Errno::ACCESS) if !target.is_root => {}
        opened => return opened,
    }
    let known = target.open_at(path, OFlags::PATH | OFlags::NOFOLLOW)?;
    let stat = rustix::fs::fstat(&known)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_uid != target.user {
        return Err(Errno::ACCESS);
    }
    let (place, mode) = (by_inode(&known), Mode::from_raw_mode(stat.st_mode & 0o7777));
    rustix::fs::chmod(&place, mode | Mode::RUSR)?;
    let opened = rustix::fs::open(&place, flags | OFlags::CLOEXEC, Mode::empty());
    rustix::fs::chmod(&place, mode)?;
    opened
}

/// Whether the file in the target has this content.
pub fn matches(job: &Job<'_>, path: &[u8], pieces: &[Piece]) -> Result<bool> {
    let Ok(file) = open(&job.target, path) else { return Ok(false) };
    let Ok(stat) = rustix::fs::fstat(&file) else { return Ok(false) };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || Some(stat.st_size as u64) != total(pieces) {
        return Ok(false);
    }
    let (mut buffer, mut offset) = (Vec::new(), 0);
    for piece in pieces {
        job.progress.check()?;
        let mut left = piece.length();
        if matches!(piece, Piece::Hole(_)) && next_data(&file, offset, offset + left) == Ok(offset + left) {
            offset += left;
            continue;
        }
        while left > 0 {
            let length = left.min(CHUNK_MAX as u64);
            buffer.resize(length as usize, 0);
            if !read_exact(&file, &mut buffer, offset) {
                return Ok(false);
            }
            let same = match piece {
                Piece::Chunk { id, .. } => job.indexed.keys.id(Kind::Content, &buffer) == *id,
                Piece::Hole(_) => buffer.iter().all(|byte| *byte == 0),
            };
            if !same {
                return Ok(false);
            }
            left -= length;
            offset += length;
        }
    }
    Ok(true)
}

fn read_exact(file: &OwnedFd, mut buffer: &mut [u8], mut offset: u64) -> bool {
    while !buffer.is_empty() {
        match rustix::io::pread(file, &mut *buffer, offset) {
            Ok(0) => return false,
            Ok(length) => {
                buffer = buffer.get_mut(length..).unwrap_or_default();
                offset += length as u64;
            }
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}
