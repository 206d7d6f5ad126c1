//! Fetching chunks: each thread takes a segment, reads it in its order, and hands each chunk to its
//! [`Sink`]. A thread holds one range of a segment and one chunk. The content of each chunk is
//! compared with its id. Where it is damaged, or not what its segment says, other segments that
//! have it are tried, before it is lost. When all content of a window of files is on the drive,
//! they get their times.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::place::{Faults, Identity};
use super::{File, Job, Planned, Window, lock};
use crate::compress::Decompressor;
use crate::crypt::{Kind, SealingKey};
use crate::error::{BackupError, Result};
use crate::index::FooterIndex;
use crate::repository::Indexed;
use crate::store::Name;

/// Bytes that are read from a segment at once; a single chunk may be as long.
const READ_MAX: u64 = 8 << 20;
/// A gap that is shorter is read along: that costs less than another request.
const GAP_MAX: u64 = 64 << 10;

/// Takes chunks in any order.
pub trait Sink {
    fn write(&self, planned: &Planned, content: &[u8]) -> Result<()>;

    /// Notes chunks that cannot be had. An outage of the store loses none: see [`lose`].
    fn lose(&self, group: &[Planned], error: &BackupError) -> Result<()>;

    /// An error ends the work.
    fn check(&self) -> Result<()>;
}

/// Fetches all chunks with several threads. The first failure ends them.
pub fn all(indexed: &Indexed, mut planned: Vec<Planned>, workers: usize, sink: &(dyn Sink + Sync)) -> Result<()> {
    planned.sort_unstable();
    let groups: Vec<&[Planned]> = planned.chunk_by(|a, b| a.location.segment == b.location.segment).collect();
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || -> Result<()> {
        let codec = Decompressor::new()?;
        let mut fetcher = Fetcher { indexed, sink, codec, stored: Vec::new(), content: Vec::new() };
        while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed))
            && lock(&failure).is_none()
        {
            fetcher.segment(group)?;
        }
        Ok(())
    };
    let workers = workers.max(1).min(groups.len());
    if workers == 1 {
        // On the caller's thread: one that lives for a single file loses its processor time for
        // those who look at threads.
        return work();
    }
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                if let Err(error) = work() {
                    lock(&failure).get_or_insert(error);
                }
            });
        }
    });
    lock(&failure).take().map_or(Ok(()), Err)
}

/// What is said of content that cannot be had at this byte of a file. Only damage loses it.
pub fn lost(at: u64, error: &BackupError) -> String {
    let what = match error {
        BackupError::Damaged(_) | BackupError::Missing(_) => "is lost",
        _ => "could not be read",
    };
    format!("its content {what} at byte {at}: {error}")
}

/// Restores the content of a window. Where that ends early, the files that are whole by then are
/// finished all the same: the restore that is repeated does not write them again.
pub fn run(job: &Job<'_>, window: Window) -> Result<()> {
    let Window { files, planned, .. } = window;
    let fetched =
        all(job.indexed, planned, job.options.workers, &Files { job, files: &files, making: Mutex::default() });
    // Crash points: before the sync, files without their times are written again. Behind it, those
    // with them are whole.
    let finished = job.target.sync().and_then(|()| finish(job, files));
    fetched.and(finished)
}

/// Gives the files that are whole their times.
fn finish(job: &Job<'_>, files: Vec<File>) -> Result<()> {
    let is_whole = |file: &File| !file.failed.load(Ordering::Relaxed) && file.left.load(Ordering::Relaxed) == 0;
    for file in files.into_iter().filter(is_whole) {
        let Some(known) = file.identity.get() else { continue };
        if file.counts {
            let (count, bytes) = &mut *lock(&job.written);
            (*count, *bytes) = (*count + 1, *bytes + file.size);
        }
        let complete = job.settle(&file.path, job.target.set_times_at(&file.path, *known, &file.metadata))?;
        if let Some(identity) = complete
            && file.metadata.links > 1
        {
            lock(&job.complete).insert(file.path, identity);
        }
    }
    Ok(())
}

/// Notes chunks that cannot be had. A store that is not reached has them still: it ends the work.
fn lose(sink: &dyn Sink, group: &[Planned], error: &BackupError) -> Result<()> {
    match error {
        BackupError::Unreachable(_) => Err(error.clone()),
        _ => sink.lose(group, error),
    }
}

struct Fetcher<'a> {
    indexed: &'a Indexed,
    sink: &'a dyn Sink,
    codec: Decompressor,
    /// The buffers of the range and of the chunk.
    stored: Vec<u8>,
    content: Vec<u8>,
}

impl Fetcher<'_> {
    /// Restores the chunks of one segment, which are in their order.
    fn segment(&mut self, group: &[Planned]) -> Result<()> {
        let Some(number) = group.first().map(|planned| planned.location.segment) else { return Ok(()) };
        let (id, directory) = {
            let mut index = self.indexed.index();
            let id = index.segment(number)?;
            match index.directory(number) {
                Ok(directory) => (id, directory),
                Err(error) => return lose(self.sink, group, &error),
            }
        };
        let (name, key) = (Name::segment(&id), directory.footer.key(&self.indexed.keys));
        for part in ranges(group, &directory) {
            self.range(part, &name, &key, &directory)?;
        }
        Ok(())
    }

    /// Restores chunks that are read at once.
    fn range(&mut self, part: &[Planned], name: &Name, key: &SealingKey, directory: &FooterIndex) -> Result<()> {
        self.sink.check()?;
        let (Some(first), Some(last)) = (span(part.first(), directory), span(part.last(), directory)) else {
            return lose(self.sink, part, &BackupError::damaged("a segment has too few chunks"));
        };
        // A chunk may belong to several files.
        let mut chunks = part.chunk_by(|a, b| a.location == b.location);
        let mut stored = std::mem::take(&mut self.stored);
        match self.indexed.store.get_range_into(name, first.0..last.1, &mut stored) {
            Ok(()) => {}
            // A bad sector costs one chunk, so each is read by itself.
            Err(BackupError::Damaged(_)) if chunks.clone().nth(1).is_some() => {
                return chunks.try_for_each(|same| self.range(same, name, key, directory));
            }
            Err(error @ (BackupError::Damaged(_) | BackupError::Missing(_))) => {
                return chunks.try_for_each(|same| self.elsewhere(same, directory, &error));
            }
            Err(error) => return lose(self.sink, part, &error),
        }
        for same in chunks {
            let entry = same.first().and_then(|planned| directory.entry(planned.location.ordinal).copied());
            let (Some(entry), Some((from, to))) = (entry, span(same.first(), directory)) else { continue };
            let ordinal = same.first().map_or(0, |planned| planned.location.ordinal as usize);
            let sealed = stored.get_mut((from - first.0) as usize..(to - first.0) as usize).unwrap_or_default();
            let opened = directory.footer.open(key, ordinal, sealed, &mut self.codec, &mut self.content);
            match opened.and_then(|()| self.indexed.check(Kind::Content, &entry.id, &self.content)) {
                Ok(()) => same.iter().try_for_each(|planned| self.sink.write(planned, &self.content))?,
                Err(error) => self.elsewhere(same, directory, &error)?,
            }
        }
        self.stored = stored;
        Ok(())
    }

    /// Restores a chunk from another segment than the planned one, which has it no longer because
    /// of `error`.
    fn elsewhere(&mut self, same: &[Planned], directory: &FooterIndex, error: &BackupError) -> Result<()> {
        let Some(known) = same.first().map(|planned| planned.location) else { return Ok(()) };
        let Some(id) = directory.entry(known.ordinal).map(|entry| entry.id) else {
            return lose(self.sink, same, error);
        };
        let Fetcher { indexed, sink, codec, content, .. } = self;
        sink.check()?;
        match indexed.chunk_elsewhere(Kind::Content, &id, known, codec, content) {
            Ok(true) => same.iter().try_for_each(|planned| sink.write(planned, content)),
            Ok(false) => lose(*sink, same, error),
            Err(other) => lose(*sink, same, &other),
        }
    }
}

/// The files of a window.
struct Files<'a, 'b> {
    job: &'a Job<'b>,
    files: &'a [File],
    /// Held by the thread that makes a file of several chunks.
    making: Mutex<()>,
}

impl Sink for Files<'_, '_> {
    /// Writes a chunk. The last one of a file completes it.
    fn write(&self, planned: &Planned, content: &[u8]) -> Result<()> {
        let Some(file) = self.files.get(planned.file as usize) else { return Ok(()) };
        let written = match file.single {
            true => self.write_single(file, content),
            false => match self.made(file)? {
                Some(identity) => {
                    let written = self.job.target.write_at(&file.path, identity, content, planned.offset);
                    written.map(|()| Vec::new())
                }
                None => return self.complete(file),
            },
        };
        self.job.progress.bytes.fetch_add(content.len() as u64, Ordering::Relaxed);
        match self.job.settle(&file.path, written)? {
            Some(faults) => self.job.note(&file.path, Ok(faults))?,
            None => file.failed.store(true, Ordering::Relaxed),
        }
        self.complete(file)
    }

    /// Lists the files that lack these chunks. They keep no times, so the next restore writes them
    /// again.
    fn lose(&self, group: &[Planned], error: &BackupError) -> Result<()> {
        for planned in group {
            let Some(file) = self.files.get(planned.file as usize) else { continue };
            if !file.failed.swap(true, Ordering::Relaxed) {
                self.job.issue(&file.path, lost(planned.offset, error));
            }
            self.complete(file)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.job.progress.check()
    }
}

impl Files<'_, '_> {
    /// Makes room for a file, now that there is content for it.
    fn replace(&self, file: &File) -> Result<()> {
        if file.replaces { self.job.target.remove(&file.path) } else { Ok(()) }
    }

    fn write_single(&self, file: &File, content: &[u8]) -> Result<Faults> {
        self.replace(file)?;
        let (identity, faults) = self.job.target.write_whole(&file.path, content, &file.metadata)?;
        let _ = file.identity.set(identity);
        Ok(faults)
    }

    /// The file of several chunks, which the first of them makes. None: it cannot be made, which is
    /// listed once.
    fn made(&self, file: &File) -> Result<Option<Identity>> {
        if let Some(identity) = file.identity.get() {
            return Ok(Some(*identity));
        }
        let _making = lock(&self.making);
        if let Some(identity) = file.identity.get() {
            return Ok(Some(*identity));
        }
        if file.unmade.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // Of its whole length at once: chunks come in any order, and holes stay.
        let made = self.replace(file).and_then(|()| self.job.target.make_file(&file.path, file.size));
        let made = self.job.settle(&file.path, made)?;
        match made {
            Some(identity) => drop(file.identity.set(identity)),
            None => {
                file.unmade.store(true, Ordering::Relaxed);
                file.failed.store(true, Ordering::Relaxed);
            }
        }
        Ok(made)
    }

    fn complete(&self, file: &File) -> Result<()> {
        // The last of the threads that write the file must see what the others found.
        if file.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return Ok(());
        }
        self.job.progress.files.fetch_add(1, Ordering::Relaxed);
        if file.single || file.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        debug_assert!(file.size > 0);
        let Some(identity) = file.identity.get() else { return Ok(()) };
        let set = self.job.target.set_attributes_at(&file.path, *identity, &file.metadata);
        file.failed.store(set.is_err(), Ordering::Relaxed);
        self.job.note(&file.path, set)
    }
}

/// Where the chunk begins and ends in its segment.
fn span(planned: Option<&Planned>, directory: &FooterIndex) -> Option<(u64, u64)> {
    let entry = directory.entry(planned?.location.ordinal)?;
    Some((u64::from(entry.offset), u64::from(entry.offset) + u64::from(entry.stored)))
}

/// Runs of chunks that are read at once.
fn ranges<'a>(group: &'a [Planned], directory: &FooterIndex) -> Vec<&'a [Planned]> {
    let (mut runs, mut from, mut begin, mut end) = (Vec::new(), 0, None::<u64>, 0);
    for (at, planned) in group.iter().enumerate() {
        let Some((start, stop)) = span(Some(planned), directory) else { continue };
        let first = *begin.get_or_insert(start);
        if at > from && (start > end + GAP_MAX || stop - first > READ_MAX) {
            runs.push(group.get(from..at).unwrap_or_default());
            (from, begin) = (at, Some(start));
        }
        end = stop;
    }
    runs.push(group.get(from..).unwrap_or_default());
    runs
}

#[cfg(test)]
mod tests;
