//! EXTENDED COPY (LID1): the unit copies between blocks of the target's units, so that the data need not travel to the
//! initiator and back. A copy is finished when it is answered.

use stele_media::{Buffer, Op};

use super::exec::{Ask, Exec, Stage, Step};
use super::field::{Page, be16, be24, be32, be64, octet, part};
use super::inquiry::is_named;
use super::report::DESCRIPTORS_MAX;
use super::{NexusId, Sense, Unit, report};

pub const TARGETS_MAX: usize = 8;
pub const SEGMENTS_MAX: usize = 64;
/// Bytes of one segment: 65,535 blocks of 4096.
pub const SEGMENT_BYTES_MAX: u32 = 65_535 * 4096;
/// Bytes under way at once.
const STRIDE: u64 = 1 << 20;

const HEADER: usize = 16;
const TARGET_LENGTH: usize = 32;
const SEGMENT_LENGTH: usize = 28;
const IDENTIFICATION: u8 = 0xe4;
const BLOCK_TO_BLOCK: u8 = 0x02;

/// Bytes from one place to another, what is left of a segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    from: u64,
    to: u64,
    left: u64,
}

/// A copy under way; segments last first.
pub struct Copying {
    list: Option<u8>,
    nexus: NexusId,
    segments: Vec<Segment>,
    now: Segment,
    done: u16,
    bytes: u64,
}

/// How a copy ended, for RECEIVE COPY STATUS.
pub struct Copied {
    nexus: NexusId,
    list: u8,
    well: bool,
    segments: u16,
    bytes: u64,
}

/// Ends that are remembered of a unit.
const REMEMBERED_MAX: usize = 32;

impl Unit {
    pub(super) fn extended_copy(&mut self, exec: &mut Exec, length: u32) -> Step {
        if length == 0 {
            return Step::good();
        }
        match self.segments(&exec.whole()) {
            Ok(segments) => match self.protected() {
                Some(sense) if !segments.is_empty() => Step::done(sense),
                _ => {
                    let list = exec.whole();
                    // LIST ID USAGE 3: the copy has no name.
                    let named = octet(&list, 1) & 0x18 != 0x18;
                    let now = Segment { from: 0, to: 0, left: 0 };
                    let list = named.then(|| octet(&list, 0));
                    let copying = Copying { list, nexus: exec.nexus, segments, now, done: 0, bytes: 0 };
                    self.copy_next(exec, Box::new(copying))
                }
            },
            Err(sense) => Step::done(sense),
        }
    }

    fn segments(&self, list: &[u8]) -> Result<Vec<Segment>, Sense> {
        if list.len() < HEADER {
            return Err(Sense::LIST_LENGTH);
        }
        let (targets, segments) = (usize::from(be16(list, 2)), be32(list, 8) as usize);
        if be32(list, 12) != 0 {
            return Err(Sense::INLINE_DATA_TOO_LONG);
        }
        let described = targets.saturating_add(segments);
        if described > DESCRIPTORS_MAX as usize || list.len() < HEADER.saturating_add(described) {
            return Err(Sense::LIST_LENGTH);
        }
        let targets = self.targets(part(list, HEADER, targets))?;
        let bytes = part(list, HEADER + targets.len() * TARGET_LENGTH, segments);
        let mut copies = Vec::new();
        for (index, segment) in bytes.chunks(SEGMENT_LENGTH).enumerate() {
            if index >= SEGMENTS_MAX {
                return Err(Sense::TOO_MANY_SEGMENTS);
            }
            if octet(segment, 0) != BLOCK_TO_BLOCK {
                return Err(Sense::UNSUPPORTED_SEGMENT);
            }
            if segment.len() < SEGMENT_LENGTH || usize::from(be16(segment, 2)) != SEGMENT_LENGTH - 4 {
                return Err(Sense::LIST_LENGTH);
            }
            let reachable = |at| targets.get(usize::from(be16(segment, at))).copied().unwrap_or(false);
            if !reachable(4) || !reachable(6) {
                return Err(Sense::COPY_UNREACHABLE);
            }
            let count = u64::from(be16(segment, 10));
            let (from, to) = (be64(segment, 12), be64(segment, 20));
            let fits = |at: u64| at.checked_add(count).is_some_and(|end| end <= self.profile.blocks);
            if !fits(from) || !fits(to) {
                return Err(Sense::COPY_FAILED);
            }
            let block = self.profile.block();
            copies.push(Segment { from: from * block, to: to * block, left: count * block });
        }
        copies.reverse();
        Ok(copies)
    }

    /// For each described target whether it is this unit.
    fn targets(&self, bytes: &[u8]) -> Result<Vec<bool>, Sense> {
        let mut found = Vec::new();
        for (index, target) in bytes.chunks(TARGET_LENGTH).enumerate() {
            if index >= TARGETS_MAX {
                return Err(Sense::TOO_MANY_TARGETS);
            }
            if octet(target, 0) != IDENTIFICATION {
                return Err(Sense::UNSUPPORTED_TARGET);
            }
            if target.len() < TARGET_LENGTH {
                return Err(Sense::LIST_LENGTH);
            }
            // LU ID TYPE and NUL are obsolete since SPC-4, and ignored.
            let designator = part(target, 8, usize::from(octet(target, 7)));
            let of_unit = octet(target, 5) & 0x30 == 0;
            let same_block = matches!(be24(target, 29), 0) || be24(target, 29) == self.profile.block_bytes;
            let named = is_named(&self.profile, octet(target, 5) & 0x0f, designator);
            found.push(of_unit && same_block && named);
        }
        Ok(found)
    }

    fn copy_next(&mut self, exec: &mut Exec, mut copying: Box<Copying>) -> Step {
        while let Some(next) = copying.segments.pop() {
            if next.left > 0 {
                copying.now = next;
                return self.copy_read(exec, copying);
            }
            copying.done += 1;
        }
        self.copy_ended(*copying, true);
        Step::good()
    }

    pub(super) fn copy_ended(&mut self, copying: Copying, well: bool) {
        let Copying { list: Some(list), nexus, done: segments, bytes, .. } = copying else { return };
        self.copied.retain(|copied| copied.nexus != nexus || copied.list != list);
        if self.copied.len() == REMEMBERED_MAX {
            self.copied.pop_front();
        }
        self.copied.push_back(Copied { nexus, list, well, segments, bytes });
    }

    /// RECEIVE COPY RESULTS. A copy has ended when it is answered, so none is ever under way.
    pub(super) fn copy_status(&self, nexus: NexusId, action: u8, list: u8) -> Result<Vec<u8>, Sense> {
        if action == 3 {
            return Ok(report::copy_parameters());
        }
        let known = self.copied.iter().find(|copied| copied.nexus == nexus && copied.list == list);
        let copied = known.ok_or(Sense::in_cdb(2))?;
        if action == 4 {
            // The details were in the sense data.
            return Ok(Page::default().u32(56).zeros(56).0);
        }
        let kibibytes = u32::try_from(copied.bytes >> 10).unwrap_or(u32::MAX);
        let status = if copied.well { 1 } else { 2 };
        Ok(Page::default().u32(8).u8(status).u16(copied.segments).u8(1).u32(kibibytes).0)
    }

    fn copy_read(&self, exec: &mut Exec, copying: Box<Copying>) -> Step {
        let Segment { from, left, .. } = copying.now;
        let buffer = Buffer::stale(left.min(STRIDE) as usize);
        exec.stage = Stage::Copying(copying);
        Step::Ask(Ask::Drive(self.id, Op::Read { at: from, buffer }))
    }

    pub(super) fn copy_came_back(&mut self, exec: &mut Exec, mut copying: Box<Copying>, op: Op) -> Step {
        match op {
            Op::Read { buffer, .. } => {
                let at = copying.now.to;
                exec.stage = Stage::Copying(copying);
                Step::Ask(Ask::Drive(self.id, Op::Write { at, data: vec![buffer.freeze()], fua: false }))
            }
            op => {
                let done = op.range().map_or(0, |(_, length)| length);
                let now = &mut copying.now;
                now.from += done;
                now.to += done;
                now.left = now.left.saturating_sub(done.max(1));
                copying.bytes += done;
                if copying.now.left > 0 {
                    return self.copy_read(exec, copying);
                }
                copying.done += 1;
                self.copy_next(exec, copying)
            }
        }
    }
}
