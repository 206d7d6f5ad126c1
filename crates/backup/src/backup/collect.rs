//! The tree of the new snapshot: entries in the order of the walk, whatever order the workers
//! finish in.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;

use super::{BackupProgress, Done, Job, Numbered, Tree, lock};
use crate::compress::Compressor;
use crate::crypt::Kind;
use crate::error::Result;
use crate::index::Gathered;
use crate::snapshot::Counts;
use crate::tree::{Content, Cut, Entry, LISTS_MAX, Metadata, PIECES_MAX, Piece, TreeWriter, encode_pieces, total};

/// Writes a tree through the packer.
pub struct Collector<'a, 'b> {
    job: &'a Job<'b>,
    writer: TreeWriter,
    compressor: Compressor,
    gathered: Gathered,
    tree: Tree,
}

impl<'a, 'b> Collector<'a, 'b> {
    pub fn new(job: &'a Job<'b>) -> Result<Collector<'a, 'b>> {
        let compressor = Compressor::new(job.options.level)?;
        let (writer, gathered, tree) = (TreeWriter::default(), Gathered::default(), Tree::new());
        Ok(Collector { job, writer, compressor, gathered, tree })
    }

    pub fn add(&mut self, depth: usize, mut entry: Entry) -> Result<()> {
        if let Content::File { pieces, lists, .. } = &mut entry.content
            && pieces.len() > PIECES_MAX
        {
            for part in std::mem::take(pieces).chunks(PIECES_MAX) {
                let mut bytes = Vec::new();
                encode_pieces(part, &mut bytes);
                lists.push(self.store(&bytes)?);
            }
        }
        if let Content::File { lists, .. } = &entry.content
            && lists.len() > LISTS_MAX
        {
            let text = format!("it has more than {LISTS_MAX} lists of {PIECES_MAX} pieces, and is left out");
            self.job.issue(&self.writer.path(depth, &entry.name), text);
            return Ok(());
        }
        match self.writer.add(depth, &entry) {
            Some(cut) => self.cut(cut),
            None => Ok(()),
        }
    }

    fn cut(&mut self, cut: Cut) -> Result<()> {
        let id = self.store(&cut.bytes)?;
        self.tree.push((id, cut.first));
        Ok(())
    }

    pub fn store(&mut self, bytes: &[u8]) -> Result<crate::crypt::ChunkId> {
        let id = self.job.indexed.keys.id(Kind::Tree, bytes);
        let (_, location) = self.job.packer.add(Kind::Tree, id, bytes, &mut self.compressor)?;
        if let Some(location) = location {
            self.gathered.insert(location);
        }
        Ok(id)
    }

    pub fn finish(mut self) -> Result<Tree> {
        if let Some(cut) = self.writer.finish() {
            self.cut(cut)?;
        }
        lock(&self.job.gathered).merge(self.gathered);
        Ok(self.tree)
    }
}

/// Takes batches until no more come. After a failure it only takes them.
pub fn tree(job: &Job<'_>, batches: Receiver<Numbered<Done>>) -> Result<Tree> {
    let mut collector = Collector::new(job);
    let (mut early, mut next) = (BTreeMap::new(), 0);
    let mut spans = Spans::default();
    for (number, batch) in batches {
        early.insert(number, batch);
        while let Some(batch) = early.remove(&next) {
            next += 1;
            let taken = collector.as_mut().map_err(|error| error.clone()).and_then(|collector| {
                if job.failed() {
                    return Ok(());
                }
                batch.into_iter().try_for_each(|done| match done {
                    Done::Entry { depth, entry } => collector.add(depth, entry),
                    Done::Part { read, last } => match spans.take(read, last) {
                        Some((depth, entry)) => {
                            count(&mut lock(&job.counts), job.progress, &entry, true);
                            collector.add(depth, entry)
                        }
                        None => Ok(()),
                    },
                })
            });
            if let Err(error) = taken {
                job.fail(error);
            }
            job.end_batch();
        }
    }
    collector?.finish()
}

/// The spans of one file.
#[derive(Default)]
struct Spans {
    pieces: Vec<Piece>,
    /// Whether a part of the file could not be read.
    broken: bool,
}

impl Spans {
    /// Takes a part, and gives the entry with the last one if all parts were read.
    fn take(&mut self, read: Option<(Vec<Piece>, Metadata)>, last: Option<(usize, Vec<u8>)>) -> Option<(usize, Entry)> {
        let metadata = read.map(|(pieces, metadata)| {
            let mut pieces = pieces.into_iter().peekable();
            // A hole that goes on behind the end of a span is one piece.
            if let (Some(Piece::Hole(before)), Some(Piece::Hole(more))) = (self.pieces.last_mut(), pieces.peek()) {
                *before += more;
                pieces.next();
            }
            self.pieces.extend(pieces);
            metadata
        });
        self.broken |= metadata.is_none();
        let (depth, name) = last?;
        let (pieces, broken) = (std::mem::take(&mut self.pieces), std::mem::take(&mut self.broken));
        let metadata = metadata.filter(|_| !broken)?;
        Some((depth, Entry { name, metadata, content: file(pieces) }))
    }
}

/// The content of a file that consists of these pieces.
pub fn file(pieces: Vec<Piece>) -> Content {
    Content::File { size: total(&pieces).unwrap_or(0), pieces, lists: Vec::new(), volume: None }
}

pub fn count(counts: &mut Counts, progress: &BackupProgress, entry: &Entry, read: bool) {
    match &entry.content {
        Content::Directory => counts.directories += 1,
        Content::File { size, .. } => {
            counts.files += 1;
            counts.bytes += size;
            counts.files_read += u64::from(read);
            progress.files.fetch_add(1, Relaxed);
            progress.bytes.fetch_add(*size, Relaxed);
        }
        _ => counts.others += 1,
    }
}

pub fn add(into: &mut Counts, from: &Counts) {
    into.files += from.files;
    into.directories += from.directories;
    into.others += from.others;
    into.bytes += from.bytes;
    into.files_read += from.files_read;
}
