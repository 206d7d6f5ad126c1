//! Reading the tree of a snapshot entry by entry, one chunk at a time.

use crate::codec::Decoder;
use crate::crypt::{ChunkId, Kind};
use crate::error::{BackupError, Result};
use crate::repository::Indexed;
use crate::snapshot::{Description, is_within};
use crate::tree::{Content, Entry, Piece, TreeReader, decode_pieces, join, order, total};

/// An entry with its path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub path: Vec<u8>,
    pub entry: Entry,
}

impl Found {
    /// Directories above the entry.
    pub fn depth(&self) -> usize {
        self.path.iter().filter(|byte| **byte == b'/').count()
    }
}

/// The entries at and below one path, in the order of the tree.
pub struct Walk {
    indexed: Indexed,
    /// Chunks that are still to be read, each with the path of its first entry, the next one last.
    chunks: Vec<(ChunkId, Vec<u8>)>,
    /// The path of the first entry of the chunk that was read last.
    part: Vec<u8>,
    /// Entries of the chunk that was read, the next one last.
    entries: Vec<Found>,
    within: Vec<u8>,
}

impl Walk {
    /// `within` is the path of a directory or file, empty for the whole tree.
    pub fn new(indexed: &Indexed, description: &Description, within: &[u8]) -> Walk {
        let chunks = description.tree_of(within).iter().rev().cloned().collect();
        Walk { indexed: indexed.clone(), chunks, part: Vec::new(), entries: Vec::new(), within: within.to_vec() }
    }

    /// Behind an error of a step: the path from which on entries are lost.
    pub fn part(&self) -> &[u8] {
        &self.part
    }

    /// The next entry. Behind an error the walk goes on with the next chunk. The error names the
    /// first path that is lost, and the one with which the walk goes on.
    pub fn step(&mut self) -> Result<Option<Found>> {
        loop {
            if let Some(found) = self.entries.pop() {
                return Ok(Some(found));
            }
            let Some((id, first)) = self.chunks.pop() else { return Ok(None) };
            self.part = first;
            self.entries = self.read(&id).map_err(|error| match error {
                BackupError::Damaged(text) => BackupError::Damaged(format!("{}: {text}", self.extent())),
                other => other,
            })?;
        }
    }

    /// The entries of a chunk, the last one first.
    fn read(&self, id: &ChunkId) -> Result<Vec<Found>> {
        let bytes = self.indexed.chunk(Kind::Tree, id)?;
        let (mut reader, mut entries) = (TreeReader::new(&bytes)?, Vec::new());
        while let Some((directory, entry)) = reader.step()? {
            let path = join(directory, &entry.name);
            if is_within(&path, &self.within) {
                entries.push(Found { path, entry });
            }
        }
        entries.reverse();
        Ok(entries)
    }

    /// Which paths the chunk has that was read last.
    fn extent(&self) -> String {
        let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        match self.chunks.last() {
            Some((_, next)) => format!("everything from /{} to before /{}", shown(&self.part), shown(next)),
            None => format!("everything from /{} on", shown(&self.part)),
        }
    }

    /// The entry with this path, if it is there. Passes over all entries before it.
    pub fn seek(&mut self, path: &[u8]) -> Result<Option<Entry>> {
        while let Some(found) = self.step()? {
            match order(&found.path, path) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(Some(found.entry)),
                std::cmp::Ordering::Greater => {
                    self.entries.push(found);
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }
}

impl Indexed {
    /// The pieces of a file, also if they are in lists of their own.
    pub fn pieces(&self, content: &Content) -> Result<Vec<Piece>> {
        let Content::File { size, pieces, lists, .. } = content else { return Ok(Vec::new()) };
        let mut all = pieces.clone();
        for id in lists {
            let bytes = self.chunk(Kind::Tree, id)?;
            let mut decoder = Decoder::new(&bytes, "list of pieces");
            all.extend(decode_pieces(&mut decoder)?);
            decoder.end()?;
        }
        if total(&all) != Some(*size) {
            return Err(BackupError::damaged("the pieces of a file do not add up to its size"));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests;
