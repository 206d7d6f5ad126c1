//! Reading files: chunking, hashing and packing their content.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;

use super::{Done, FileAt, Item, Job, Tree, collect, lock};
use crate::compress::Compressor;
use crate::crypt::Kind;
use crate::error::{BackupError, Result};
use crate::index::Gathered;
use crate::repository::epochs::Session;
use crate::snapshot::Counts;
use crate::tree::{Entry, Metadata, Piece, Stamp};
use crate::walk;

/// A thread that reads.
pub struct Worker<'a, 'b> {
    job: &'a Job<'b>,
    compressor: Compressor,
    buffer: Vec<u8>,
    gathered: Gathered,
    counts: Counts,
}

/// Why a file could not be read: its own fault, which is listed, or one that ends the backup.
enum Trouble {
    File(String),
    Backup(BackupError),
}

impl From<BackupError> for Trouble {
    fn from(error: BackupError) -> Trouble {
        Trouble::Backup(error)
    }
}

fn cannot_read(error: Errno) -> Trouble {
    Trouble::File(format!("cannot read the file: {error}"))
}

impl<'a, 'b> Worker<'a, 'b> {
    pub fn new(job: &'a Job<'b>) -> Result<Worker<'a, 'b>> {
        let compressor = Compressor::new(job.options.level)?;
        // Room for the longest chunk, and for as much again.
        let buffer = vec![0; job.chunker.lengths().max * 2];
        Ok(Worker { job, compressor, buffer, gathered: Gathered::default(), counts: Counts::default() })
    }

    pub fn batch(&mut self, items: Vec<Item>) -> Result<Vec<Done>> {
        let mut done = Vec::with_capacity(items.len());
        for item in items {
            self.job.progress.check()?;
            match item {
                Item::Ready { depth, entry, unchanged } => {
                    self.count(&entry, !unchanged);
                    done.push(Done::Entry { depth, entry });
                }
                Item::Read { depth, file } => {
                    let size = u64::try_from(file.stat.st_size).unwrap_or(0);
                    let read = self.part(&file, 0, size, true);
                    if let Some((pieces, metadata)) = self.settle(&file, read)? {
                        let entry = Entry { name: file.name, metadata, content: collect::file(pieces) };
                        self.count(&entry, true);
                        done.push(Done::Entry { depth, entry });
                    }
                }
                Item::Span { depth, file, from, length, last } => {
                    let read = self.part(&file, from, length, last);
                    let read = self.settle(&file, read)?;
                    done.push(Done::Part { read, last: last.then_some((depth, file.name)) });
                }
            }
        }
        Ok(done)
    }

    /// Lists the trouble of a file; any other ends the backup.
    fn settle<T>(&self, file: &FileAt, read: std::result::Result<T, Trouble>) -> Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(Trouble::File(text)) => {
                self.job.trouble(file, text);
                Ok(None)
            }
            Err(Trouble::Backup(error)) => Err(error),
        }
    }

    /// Hands over what the thread gathered.
    pub fn finish(self) {
        lock(&self.job.gathered).merge(self.gathered);
        collect::add(&mut lock(&self.job.counts), &self.counts);
    }

    fn count(&mut self, entry: &Entry, read: bool) {
        collect::count(&mut self.counts, self.job.progress, entry, read);
    }

    /// Reads a part of a file, and its metadata.
    fn part(
        &mut self,
        file: &FileAt,
        from: u64,
        length: u64,
        last: bool,
    ) -> std::result::Result<(Vec<Piece>, Metadata), Trouble> {
        let opened = walk::open_file(&file.folder, &file.name)
            .map_err(|error| Trouble::File(format!("cannot open the file: {error}")))?;
        let before = rustix::fs::fstat(&opened).map_err(cannot_read)?;
        if !walk::is_file(&before) || before.st_ino != file.stat.st_ino {
            return Err(Trouble::File("it was replaced while it was being saved".to_owned()));
        }
        let sparse = walk::is_sparse(&file.stat);
        let mut pieces = Vec::new();
        let end = from + length;
        let mut at = from;
        while at < end {
            let (data, hole) = if sparse { extent(&opened, at, end)? } else { (at, end) };
            if data > at {
                pieces.push(Piece::Hole(data - at));
            }
            at = data;
            if self.extent(&opened, &mut at, hole, &mut pieces)? {
                break;
            }
        }
        let mut metadata = file.metadata.clone();
        if last {
            match walk::xattrs(opened.as_fd()) {
                Ok(xattrs) => metadata.xattrs = xattrs,
                Err(error) => {
                    self.job.issue(&file.path, walk::xattrs_failed(error));
                    // No file has this time, so the next backup tries again.
                    metadata.changed = Stamp::default();
                }
            }
        }
        if at < end || changed(&file.stat, &rustix::fs::fstat(&opened).map_err(cannot_read)?) {
            // It is saved as it was read. Its times are the old ones, so the next backup reads it
            // again.
            self.job.trouble(file, "it changed while it was being saved".to_owned());
        }
        Ok((pieces, metadata))
    }

    /// Chunks the data from `at` up to `end`. Whether the file ended before.
    fn extent(
        &mut self,
        file: &OwnedFd,
        at: &mut u64,
        end: u64,
        pieces: &mut Vec<Piece>,
    ) -> std::result::Result<bool, Trouble> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = self.extent_in(&mut buffer, file, at, end, pieces);
        self.buffer = buffer;
        outcome
    }

    fn extent_in(
        &mut self,
        buffer: &mut [u8],
        file: &OwnedFd,
        at: &mut u64,
        end: u64,
        pieces: &mut Vec<Piece>,
    ) -> std::result::Result<bool, Trouble> {
        let (mut filled, mut read_to, mut ended) = (0, *at, false);
        while *at < end {
            while !ended && read_to < end && filled < self.job.chunker.lengths().max {
                let want = (end - read_to).min((buffer.len() - filled) as u64) as usize;
                let room = buffer.get_mut(filled..filled + want).unwrap_or_default();
                match rustix::io::pread(file, room, read_to) {
                    Ok(0) => ended = true,
                    Ok(length) => {
                        filled += length;
                        read_to += length as u64;
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(cannot_read(error)),
                }
            }
            if filled == 0 {
                return Ok(true);
            }
            // The chunks of what was read, but not the last one if more follows.
            let (mut from, complete) = (0, ended || read_to == end);
            while from < filled && (complete || filled - from >= self.job.chunker.lengths().max) {
                let rest = buffer.get(from..filled).unwrap_or_default();
                let length = self.job.chunker.cut(rest);
                pieces.push(self.chunk(rest.get(..length).unwrap_or_default())?);
                from += length;
                *at += length as u64;
            }
            buffer.copy_within(from..filled, 0);
            filled -= from;
            self.job.progress.check()?;
        }
        Ok(false)
    }

    pub fn chunk(&mut self, raw: &[u8]) -> Result<Piece> {
        let id = self.job.indexed.keys.id(Kind::Content, raw);
        let (_, location) = self.job.packer.add(Kind::Content, id, raw, &mut self.compressor)?;
        if let Some(location) = location {
            self.gathered.insert(location);
        }
        Ok(Piece::Chunk { id, length: raw.len() as u32 })
    }
}

/// The next data at or behind `at`, and where it ends, both at most `end`.
fn extent(file: &OwnedFd, at: u64, end: u64) -> std::result::Result<(u64, u64), Trouble> {
    let data = match walk::next_data(file, at, end) {
        Ok(data) => data,
        Err(Errno::INVAL) => return Ok((at, end)),
        Err(error) => return Err(cannot_read(error)),
    };
    if data == end {
        return Ok((end, end));
    }
    let hole = rustix::fs::seek(file, SeekFrom::Hole(data)).map_err(cannot_read)?;
    Ok((data, hole.clamp(data, end)))
}

fn changed(was: &Stat, is: &Stat) -> bool {
    (was.st_size, was.st_mtime, was.st_mtime_nsec, was.st_ctime, was.st_ctime_nsec)
        != (is.st_size, is.st_mtime, is.st_mtime_nsec, is.st_ctime, is.st_ctime_nsec)
}

/// Saves a stream as one file.
pub fn stream(job: &Job<'_>, name: &[u8], reader: &mut dyn Read, session: &Session) -> Result<Tree> {
    let mut worker = Worker::new(job)?;
    let (mut filled, mut ended, mut pieces) = (0, false, Vec::new());
    let max = job.chunker.lengths().max;
    while !ended || filled > 0 {
        while !ended && filled < max {
            let room = worker.buffer.get_mut(filled..).unwrap_or_default();
            match reader.read(room) {
                Ok(0) => ended = true,
                Ok(length) => filled += length,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BackupError::Failed(format!("cannot read the stream: {error}"))),
            }
        }
        session.keep_alive()?;
        job.progress.check()?;
        let buffer = std::mem::take(&mut worker.buffer);
        let mut from = 0;
        while from < filled && (ended || filled - from >= max) {
            let rest = buffer.get(from..filled).unwrap_or_default();
            let length = job.chunker.cut(rest);
            pieces.push(worker.chunk(rest.get(..length).unwrap_or_default())?);
            from += length;
            job.progress.bytes.fetch_add(length as u64, std::sync::atomic::Ordering::Relaxed);
        }
        worker.buffer = buffer;
        worker.buffer.copy_within(from..filled, 0);
        filled -= from;
    }
    let moment = Stamp { seconds: job.options.begun as i64, nanos: 0 };
    let metadata = Metadata { mode: 0o600, modified: moment, changed: moment, links: 1, ..Metadata::default() };
    let entry = Entry { name: name.to_vec(), metadata, content: collect::file(pieces) };
    worker.counts.files += 1;
    worker.counts.files_read += 1;
    worker.counts.bytes += entry.content.size();
    let mut tree = collect::Collector::new(job)?;
    tree.add(0, entry)?;
    worker.finish();
    tree.finish()
}

#[cfg(test)]
mod tests;
