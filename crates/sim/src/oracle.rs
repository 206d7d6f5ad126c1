//! The oracle: for each block of a volume, the contents that a read may return under the promises.
//!
//! An acknowledged write replaces every write that had ended before it began. A write in flight, or
//! one that a crash or an error interrupted, may or may not have happened, until a read shows
//! which. Once a content was seen, no content that had ended before that read began may come back.
//! Everything is counted in events of the oracle's own clock, never in time.
//!
//! Every write fills its blocks with its own number and their places, so that a single read
//! identifies the write of a block. A block that no write explains was invented.

mod layers;

use std::collections::BTreeSet;
use std::fmt;

use stele_ground::digest::{context, crc32c};
use stele_media::Shared;

/// The number of a write; 0 stands for zeros. No other number is used twice in a run.
pub type Value = u64;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    value: Value,
    began: u64,
    /// The event at which it was answered or interrupted; `FLYING` before.
    ended: u64,
    /// The event from which on no new read may return it; `NEVER` while it may be returned.
    replaced: u64,
    /// The event from which on no new read may return it before the next crash: a write that
    /// replaces it is visible, and not durable yet.
    hidden: u64,
}

const FLYING: u64 = u64::MAX;
const NEVER: u64 = u64::MAX;

/// The result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOutcome {
    Acknowledged,
    /// It may have happened or not, block by block.
    Failed,
}

/// A read that no history explains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identifies an operation under way by the event at which it began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Began(u64);

/// The possible contents of one volume.
#[derive(Clone, Debug)]
pub struct Oracle {
    name: String,
    unit: usize,
    blocks: Vec<Vec<Candidate>>,
    clock: u64,
    reads: BTreeSet<u64>,
    /// Damage was beyond the code's tolerance: an error is an allowed answer.
    forgiven: bool,
    /// Nothing is written any more: every further read must return the content that was read once.
    frozen: bool,
    /// The possible contents of a requested snapshot that is not known to exist yet.
    shadow: Option<Box<Oracle>>,
}

impl Oracle {
    /// A new volume of zeros. `unit` is the volume's block, the smallest atomic unit.
    pub fn new(name: impl Into<String>, size: u64, unit: usize) -> Oracle {
        let zeros = Candidate { value: 0, began: 0, ended: 0, replaced: NEVER, hidden: NEVER };
        Oracle {
            name: name.into(),
            unit,
            blocks: vec![vec![zeros]; (size / unit as u64) as usize],
            clock: 1,
            reads: BTreeSet::new(),
            forgiven: false,
            frozen: false,
            shadow: None,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn unit(&self) -> usize {
        self.unit
    }

    pub fn size(&self) -> u64 {
        (self.blocks.len() * self.unit) as u64
    }

    /// The volume was made larger, and the new part is zeros; or smaller.
    pub fn resize(&mut self, size: u64) {
        let zeros = Candidate { value: 0, began: self.clock, ended: self.clock, replaced: NEVER, hidden: NEVER };
        self.blocks.resize((size / self.unit as u64) as usize, vec![zeros]);
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn indexes(&self, at: u64, length: u64) -> std::ops::Range<usize> {
        (at / self.unit as u64) as usize..((at + length) / self.unit as u64) as usize
    }

    /// A write was submitted (or, with 0, a zeroing or a discard).
    pub fn begin_write(&mut self, at: u64, length: u64, value: Value) -> Began {
        let began = self.tick();
        for index in self.indexes(at, length) {
            let candidate = Candidate { value, began, ended: FLYING, replaced: NEVER, hidden: NEVER };
            self.blocks[index].push(candidate);
            if let Some(shadow) = &mut self.shadow {
                shadow.blocks[index].push(candidate);
            }
        }
        Began(began)
    }

    pub fn end_write(&mut self, at: u64, length: u64, began: Began, outcome: WriteOutcome) {
        let now = self.tick();
        let oldest = self.oldest_read();
        for index in self.indexes(at, length) {
            let block = &mut self.blocks[index];
            for candidate in block.iter_mut() {
                // A visible write that fails may be gone again.
                if outcome == WriteOutcome::Failed {
                    candidate.hidden = NEVER;
                }
                if candidate.began == began.0 {
                    candidate.ended = now;
                } else if outcome == WriteOutcome::Acknowledged && candidate.ended < began.0 {
                    candidate.replaced = candidate.replaced.min(now);
                }
            }
            block.retain(|candidate| candidate.replaced >= oldest);
        }
    }

    /// The write is visible to every read that begins from now on. It may not be durable yet.
    pub fn show_write(&mut self, at: u64, length: u64, began: Began) {
        let now = self.tick();
        for index in self.indexes(at, length) {
            for candidate in self.blocks[index].iter_mut().filter(|candidate| candidate.ended < began.0) {
                candidate.hidden = candidate.hidden.min(now);
            }
        }
    }

    fn oldest_read(&self) -> u64 {
        self.reads.first().copied().unwrap_or(self.clock)
    }

    pub fn begin_read(&mut self) -> Began {
        let began = self.tick();
        self.reads.insert(began);
        Began(began)
    }

    /// The read returned an error, or nothing.
    pub fn drop_read(&mut self, began: Began) {
        self.reads.remove(&began.0);
    }

    /// The read returned these bytes: checks that the history explains them.
    pub fn end_read(&mut self, at: u64, bytes: &[u8], began: Began) -> Result<(), Violation> {
        self.end_read_of(at, bytes.len() as u64, bytes.chunks(self.unit), began)
    }

    /// As `end_read`, for bytes in pieces.
    pub fn end_view(&mut self, at: u64, pieces: &[Shared], began: Began) -> Result<(), Violation> {
        let unit = self.unit;
        if pieces.iter().all(|piece| piece.len().is_multiple_of(unit)) {
            let length = pieces.iter().map(|piece| piece.len() as u64).sum();
            return self.end_read_of(at, length, pieces.iter().flat_map(|piece| piece.chunks(unit)), began);
        }
        self.end_read(at, &pieces.concat(), began)
    }

    fn end_read_of<'a>(
        &mut self,
        at: u64,
        length: u64,
        contents: impl Iterator<Item = &'a [u8]>,
        began: Began,
    ) -> Result<(), Violation> {
        let now = self.tick();
        self.reads.remove(&began.0);
        let oldest = self.oldest_read();
        let frozen = self.frozen;
        for (index, content) in self.indexes(at, length).zip(contents) {
            let value = value_of(content, index as u64);
            let block = &mut self.blocks[index];
            let possible = |candidate: &Candidate| {
                Some(candidate.value) == value && candidate.replaced >= began.0 && candidate.hidden >= began.0
            };
            let Some(first) = block.iter().filter(|candidate| possible(candidate)).map(|found| found.began).min()
            else {
                return Err(Violation(self.explain(index, value, content, began)));
            };
            for candidate in block.iter_mut().filter(|candidate| Some(candidate.value) != value) {
                if frozen {
                    candidate.replaced = 0;
                } else if candidate.ended < began.0 || candidate.ended < first {
                    candidate.replaced = candidate.replaced.min(now);
                }
            }
            block.retain(|candidate| candidate.replaced >= oldest);
        }
        Ok(())
    }

    fn explain(&self, index: usize, value: Option<Value>, content: &[u8], began: Began) -> String {
        let seen = match value {
            Some(0) => "zeros".to_owned(),
            Some(value) => format!("write {value}"),
            None => match claimed(content) {
                Some((value, place)) => format!("bytes that claim to be write {value} at block {place}"),
                None => format!("bytes of no write, beginning {:02x?}", &content[..16.min(content.len())]),
            },
        };
        let known: Vec<String> = self.blocks[index]
            .iter()
            .map(|candidate| {
                let ended = if candidate.ended == FLYING { "in flight".into() } else { candidate.ended.to_string() };
                let gone = if candidate.replaced == NEVER {
                    String::new()
                } else {
                    format!(", replaced at {}", candidate.replaced)
                };
                format!("write {} [{}..{ended}{gone}]", candidate.value, candidate.began)
            })
            .collect();
        format!(
            "volume {}: block {index} (byte {}) was read as {seen} by a read begun at {}; allowed: {}",
            self.name,
            index * self.unit,
            began.0,
            known.join(", ")
        )
    }

    /// A crash: operations in flight were interrupted, and may have happened or not.
    pub fn crash(&mut self) {
        let now = self.tick();
        self.reads.clear();
        for candidate in self.blocks.iter_mut().flatten() {
            candidate.hidden = NEVER;
            if candidate.ended == FLYING {
                candidate.ended = now;
            }
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.crash();
        }
    }

    /// More was lost than the code tolerates: errors are allowed from here on, but wrong bytes
    /// never are.
    pub fn forgive(&mut self) {
        self.forgiven = true;
    }

    pub fn is_forgiven(&self) -> bool {
        self.forgiven
    }

    /// Whether a read of the range can return only zeros.
    pub fn surely_zero(&self, at: u64, length: u64) -> bool {
        self.indexes(at, length).all(|index| self.blocks[index].iter().all(|candidate| candidate.value == 0))
    }

    /// Whether a read of the range that began then may return zeros everywhere.
    pub fn may_be_zero(&self, at: u64, length: u64, began: Began) -> bool {
        self.indexes(at, length).all(|index| {
            let may = |candidate: &Candidate| candidate.replaced >= began.0 && candidate.hidden >= began.0;
            self.blocks[index].iter().any(|candidate| candidate.value == 0 && may(candidate))
        })
    }
}

/// Fills `bytes`, which begin at block `first`, with the content of write `value`.
pub fn paint(bytes: &mut [u8], first: u64, unit: usize, value: Value) {
    for (offset, block) in bytes.chunks_mut(unit).enumerate() {
        paint_block(block, first + offset as u64, value);
    }
}

fn paint_block(block: &mut [u8], index: u64, value: Value) {
    if value == 0 {
        return block.fill(0);
    }
    let seed = context(value, index);
    let (body, own) = block.split_at_mut(block.len() - CHECKSUM);
    for (n, eight) in body.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *eight = match n {
            0 => value,
            1 => index,
            _ => word_of(n, seed),
        }
        .to_le_bytes();
    }
    own.copy_from_slice(&checksum_of(body));
}

/// Bytes at the end of a block that give every block the same CRC-32C. Some software writes such
/// blocks, and the array must not mistake one for another.
const CHECKSUM: usize = 8;

fn checksum_of(body: &[u8]) -> [u8; CHECKSUM] {
    let mut own = [0; CHECKSUM];
    own[..4].copy_from_slice(&crc32c(body).to_le_bytes());
    own
}

/// The word at place `n` of a block. No word depends on the previous one, so that a processor
/// computes several at once. The seeds of neighbours have nothing in common; otherwise their sum, a
/// parity, would be zeros.
#[inline]
fn word_of(n: usize, seed: u64) -> u64 {
    seed.wrapping_add(((n as u64) << 40) + n as u64 * 0x5851_F42D)
}

fn claimed(content: &[u8]) -> Option<(Value, u64)> {
    let (words, _) = content.as_chunks::<8>();
    match words {
        [value, place, ..] => {
            let (value, place) = (u64::from_le_bytes(*value), u64::from_le_bytes(*place));
            (value < 1 << 40 && place < 1 << 40 && value > 0).then_some((value, place))
        }
        _ => None,
    }
}

/// The write that this content of block `index` comes from; `None` unless every byte of it does.
fn value_of(content: &[u8], index: u64) -> Option<Value> {
    let (words, _) = content.as_chunks::<8>();
    let first = u64::from_le_bytes(*words.first()?);
    if first == 0 {
        // Compares words: with bytes, a run would spend a tenth of its time here.
        return (words.iter().fold(0, |any, word| any | u64::from_le_bytes(*word)) == 0).then_some(0);
    }
    let (own, words) = words.split_last()?;
    let (second, rest) = words[1..].split_first()?;
    let seed = context(first, index);
    // Computes all differences: a comparison that stops at the first is several times slower on
    // equal content.
    let differences = rest.iter().zip(2..).fold(u64::from_le_bytes(*second) ^ index, |differences, (word, n)| {
        differences | (u64::from_le_bytes(*word) ^ word_of(n, seed))
    });
    (differences == 0 && *own == checksum_of(words.as_flattened())).then_some(first)
}

#[cfg(test)]
mod tests;
