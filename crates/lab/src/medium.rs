//! A modelled drive with content, for a pool in virtual time.
//!
//! What a timing run writes is blocks of one word repeated, each time another, and so is their
//! parity: of such a block only the word is kept, and of zeros nothing. So every write changes
//! digests, as it would in earnest, and contents of gigabytes fit in memory. The log's place may
//! lie in memory that survives power cuts beside the drive. A write is complete when it is on the
//! medium, so a flush has nothing to do.
//!
//! Sampling: the pool uses one part in so many of the bytes that it is said to use, cut into bands;
//! the bands lie evenly over the whole share of the drive. So the arm travels as over the whole
//! working set, while neighbours stay neighbours.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use stele_ground::{BLOCK, Bytes, Dice, Duration, Instant};
use stele_media::simulated::{CommandWork, HardDrive, HardDriveSpec};
use stele_media::{Completion, Extent, ExtentState, Geometry, MediaError, Op, Request};

use crate::spindle::Spindle;

/// Neighbouring bytes that stay neighbours: an allocation unit of a pool of such drives.
pub const BAND: u64 = 2 << 20;
/// Memory for the log: a command, and bytes a second.
const MEMORY_COMMAND: Duration = Duration::from_micros(20);
const MEMORY_RATE: u64 = 1_000_000_000;

/// Blocks that hold anything but zeros.
pub type BlockMap = HashMap<u64, BlockContent>;

/// What a block holds.
#[derive(Clone, Debug)]
pub enum BlockContent {
    /// This word, from end to end.
    Word(u64),
    Bytes(Arc<[u8]>),
}

impl BlockContent {
    /// None for zeros.
    fn of(bytes: &[u8]) -> Option<BlockContent> {
        let (words, rest) = bytes.as_chunks::<8>();
        let first = u64::from_ne_bytes(*words.first()?);
        // To the end without a branch: nearly all blocks are the same to their end.
        let differs = words.iter().fold(0, |differs, word| differs | (u64::from_ne_bytes(*word) ^ first));
        match (differs == 0 && rest.is_empty(), u64::from_le(first)) {
            (true, 0) => None,
            (true, word) => Some(BlockContent::Word(word)),
            (false, _) => Some(BlockContent::Bytes(bytes.into())),
        }
    }

    fn copy(&self, inside: usize, out: &mut [u8]) {
        match self {
            BlockContent::Word(word) => {
                let word = word.to_le_bytes();
                out.iter_mut().enumerate().for_each(|(at, byte)| *byte = word[(inside + at) % 8]);
            }
            BlockContent::Bytes(bytes) => out.copy_from_slice(&bytes[inside..inside + out.len()]),
        }
    }
}

/// Where a medium's time goes.
#[derive(Clone, Debug)]
pub struct MediumSpec {
    pub drive: HardDriveSpec,
    /// The pool uses one part in so many.
    pub sample: u64,
    /// Where the drive's bands begin to be spread; before it lie labels and log.
    pub spread_from: u64,
    /// Bytes that lie in memory beside the drive.
    pub memory: Range<u64>,
}

impl MediumSpec {
    /// Bytes that the pool sees: the whole drive.
    pub fn size(&self) -> u64 {
        self.drive.sectors * 512 / BAND * BAND
    }

    /// Where a byte that the pool sees lies on the drive.
    pub fn place(&self, at: u64) -> u64 {
        let Some(inside) = at.checked_sub(self.spread_from) else { return at };
        // Only labels lie so far out that they come round.
        inside / BAND * BAND * self.sample % self.size() + inside % BAND
    }
}

pub struct Medium {
    spec: MediumSpec,
    spindle: Spindle<usize>,
    content: BlockMap,
    flying: Vec<Option<Request>>,
    free: Vec<usize>,
    /// Commands served so far, and bytes moved, by the drive itself.
    pub commands: u64,
    pub moved: u64,
}

impl Medium {
    pub fn new(spec: MediumSpec, content: BlockMap, dice: &mut Dice) -> Medium {
        let spindle = Spindle::new(Box::new(HardDrive::new(spec.drive, dice)));
        Medium { spec, spindle, content, flying: Vec::new(), free: Vec::new(), commands: 0, moved: 0 }
    }

    pub fn geometry(&self) -> Geometry {
        Geometry { size: Bytes(self.spec.size()), block: Bytes(512) }
    }

    pub fn into_content(self) -> BlockMap {
        self.content
    }

    /// Takes a request: either it is due at the time answered, under the key, or it waits for
    /// `begin`.
    pub fn submit(&mut self, now: Instant, request: Request, at_once: bool) -> Option<(usize, Instant)> {
        let work = self.work_of(&request.op);
        let due = match (&work, request.op.range()) {
            _ if at_once => Some(now),
            (None, _) | (_, None) => Some(now),
            (_, Some((at, length))) if self.spec.memory.contains(&at) => {
                Some(now + Duration(MEMORY_COMMAND.0 + length * 1_000_000_000 / MEMORY_RATE))
            }
            _ => None,
        };
        let key = match self.free.pop() {
            Some(key) => key,
            None => {
                self.flying.push(None);
                self.flying.len() - 1
            }
        };
        self.flying[key] = Some(request);
        match (due, work) {
            (None, Some(work)) => {
                self.spindle.push(work, key);
                None
            }
            (due, _) => Some((key, due.unwrap_or(now))),
        }
    }

    fn work_of(&self, op: &Op) -> Option<CommandWork> {
        let (at, length) = op.range()?;
        let at = self.spec.place(at);
        match op {
            Op::Read { .. } => Some(CommandWork::Read { at, length }),
            Op::Write { .. } | Op::Zero { .. } => Some(CommandWork::Write { at, length, fua: true }),
            Op::Flush | Op::Discard { .. } | Op::View { .. } | Op::Extents { .. } => None,
        }
    }

    /// What the drive's own commands took.
    pub fn worked(&self) -> Duration {
        self.spindle.worked()
    }

    /// Begins the next command, if one may begin: its key, and when it is due.
    pub fn begin(&mut self, now: Instant) -> Option<(usize, Instant)> {
        self.spindle.begin(now)
    }

    /// Carries out what is due. `mechanical` says that the drive itself served it.
    pub fn finish(&mut self, key: usize, mechanical: bool) -> Option<Completion> {
        let mut request = self.flying.get_mut(key)?.take()?;
        self.free.push(key);
        if mechanical {
            self.spindle.done();
            self.commands += 1;
            self.moved += request.op.range().map_or(0, |(_, length)| length);
        }
        let result = match self.geometry().admit(&request.op) {
            Ok(()) => self.carry_out(&mut request.op),
            Err(error) => Err(error),
        };
        Some(Completion { tag: request.tag, op: request.op, result })
    }

    fn carry_out(&mut self, op: &mut Op) -> Result<(), MediaError> {
        match op {
            Op::Read { at, buffer } => {
                blocks(*at, buffer.len() as u64, |block, inside, range| match self.content.get(&block) {
                    Some(held) => held.copy(inside, &mut buffer[range.clone()]),
                    None => buffer[range].fill(0),
                });
            }
            Op::Write { at, data, .. } => {
                let mut here = *at;
                for piece in data.iter() {
                    blocks(here, piece.len() as u64, |block, inside, range| self.put(block, inside, &piece[range]));
                    here += piece.len() as u64;
                }
            }
            Op::Zero { at, length } | Op::Discard { at, length } => {
                let zeros = [0; BLOCK];
                blocks(*at, *length, |block, inside, range| self.put(block, inside, &zeros[..range.len()]));
            }
            Op::Flush => {}
            Op::View { .. } => unreachable!("no drive admits a view"),
            Op::Extents { length, extents, .. } => extents.push(Extent { length: *length, state: ExtentState::Data }),
        }
        Ok(())
    }

    fn put(&mut self, block: u64, inside: usize, bytes: &[u8]) {
        let made = if bytes.len() == BLOCK {
            BlockContent::of(bytes)
        } else {
            let mut whole = vec![0; BLOCK];
            if let Some(held) = self.content.get(&block) {
                held.copy(0, &mut whole);
            }
            whole[inside..inside + bytes.len()].copy_from_slice(bytes);
            BlockContent::of(&whole)
        };
        match made {
            None => self.content.remove(&block),
            Some(made) => self.content.insert(block, made),
        };
    }
}

/// Cuts a range into blocks: number, offset within the block, and range of the buffer.
fn blocks(at: u64, length: u64, mut each: impl FnMut(u64, usize, Range<usize>)) {
    let mut done = 0;
    while done < length {
        let inside = ((at + done) % BLOCK as u64) as usize;
        let count = (BLOCK - inside).min((length - done) as usize);
        each((at + done) / BLOCK as u64, inside, done as usize..done as usize + count);
        done += count as u64;
    }
}
