//! EXTENDED COPY (LID1): the unit copies between blocks of units of this server, so that the data
//! need not travel to the initiator and back. The answer means that the copy has finished. The
//! transport finds the other units, because it knows which units the initiator may reach.

use std::sync::Arc;

use stele_media::{Buffer, Op};

use super::exec::{Ask, Exec, ExecStep, Reached, Search, Stage};
use super::field::{Page, be16, be24, be32, be64, octet, part};
use super::inquiry::is_named;
use super::report::DESCRIPTORS_MAX;
use super::{NexusId, Profile, Sense, Unit, UnitId, report};

pub const TARGETS_MAX: usize = 8;
pub const SEGMENTS_MAX: usize = 64;
/// Largest number of bytes in one segment: 65,535 blocks of 4096.
pub const SEGMENT_BYTES_MAX: u32 = 65_535 * 4096;
/// Bytes under way at once.
const STRIDE: u64 = 1 << 20;

const HEADER: usize = 16;
const TARGET_LENGTH: usize = 32;
const SEGMENT_LENGTH: usize = 28;
const IDENTIFICATION: u8 = 0xe4;
const BLOCK_TO_BLOCK: u8 = 0x02;

/// The remaining bytes of a segment, from one place to another.
#[derive(Clone, Copy, Debug)]
struct Segment {
    from: (UnitId, u64),
    to: (UnitId, u64),
    left: u64,
}

/// A unit as the parameter list names it.
struct Described<'a> {
    kind: u8,
    designator: &'a [u8],
    /// False for a port or a target, which cannot be copied.
    is_unit: bool,
    /// 0: the block size of the unit.
    block_bytes: u32,
}

/// A copy under way; segments last first.
pub struct Copying {
    list: Option<u8>,
    nexus: NexusId,
    segments: Vec<Segment>,
    now: Segment,
    /// The other units stay reachable as long as these exist.
    _holds: Vec<Arc<()>>,
    done: u16,
    bytes: u64,
}

/// The end of a copy, for RECEIVE COPY STATUS.
pub struct Copied {
    nexus: NexusId,
    list: u8,
    well: bool,
    segments: u16,
    bytes: u64,
}

/// Largest number of ended copies that a unit remembers.
const REMEMBERED_MAX: usize = 32;

impl Unit {
    pub(super) fn extended_copy(&mut self, exec: &mut Exec, length: u32) -> ExecStep {
        if length == 0 {
            return ExecStep::good();
        }
        let list = exec.whole();
        let described = match described(&list) {
            Ok((described, _)) => described,
            Err(sense) => return ExecStep::done(sense),
        };
        let others = described.iter().filter(|described| !self.is_described(described));
        let names: Vec<_> = others.map(|other| (other.kind, other.designator.to_vec())).collect();
        match self.nexuses.get(&exec.nexus) {
            Some(port) if !names.is_empty() => {
                exec.stage = Stage::Finding;
                ExecStep::Ask(Ask::Find(Search { port: port.clone(), names }))
            }
            _ => self.copy_begins(exec, Vec::new()),
        }
    }

    /// The search for the other units has ended.
    pub(super) fn copy_begins(&mut self, exec: &mut Exec, others: Vec<Option<Reached>>) -> ExecStep {
        let list = exec.whole();
        match self.segments(&list, others) {
            Ok((segments, holds)) => {
                // LIST ID USAGE 3: the copy has no name.
                let named = octet(&list, 1) & 0x18 != 0x18;
                let now = Segment { from: (self.id, 0), to: (self.id, 0), left: 0 };
                let list = named.then(|| octet(&list, 0));
                let copying = Copying { list, nexus: exec.nexus, segments, now, _holds: holds, done: 0, bytes: 0 };
                self.copy_next(exec, Box::new(copying))
            }
            Err(sense) => ExecStep::done(sense),
        }
    }

    fn is_described(&self, described: &Described) -> bool {
        // LU ID TYPE and NUL are obsolete since SPC-4, and ignored.
        described.is_unit && is_named(&self.profile, described.kind, described.designator)
    }

    fn itself(&self) -> Reached {
        let Profile { blocks, block_bytes, .. } = self.profile;
        Reached { unit: self.id, blocks, block_bytes, readable: true, writable: true, hold: Arc::default() }
    }

    fn segments(&self, list: &[u8], others: Vec<Option<Reached>>) -> Result<(Vec<Segment>, Vec<Arc<()>>), Sense> {
        let (described, bytes) = described(list)?;
        let mut others = others.into_iter();
        let mut reached = Vec::new();
        for described in &described {
            let unit = match self.is_described(described) {
                true => Some(self.itself()),
                false => others.next().flatten().filter(|_| described.is_unit),
            };
            reached.push(
                unit.filter(|unit| matches!(described.block_bytes, 0) || described.block_bytes == unit.block_bytes),
            );
        }
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
            let unit = |at| reached.get(usize::from(be16(segment, at))).and_then(Option::as_ref);
            let (Some(source), Some(sink)) = (unit(4), unit(6)) else { return Err(Sense::COPY_UNREACHABLE) };
            if !source.readable {
                return Err(Sense::COPY_UNREACHABLE);
            }
            if sink.unit == self.id
                && let Some(sense) = self.protected()
            {
                return Err(sense);
            }
            if !sink.writable {
                return Err(Sense::WRITE_PROTECTED);
            }
            let count = u64::from(be16(segment, 10));
            let (from, to) = (be64(segment, 12), be64(segment, 20));
            let fits = |at: u64, unit: &Reached| at.checked_add(count).is_some_and(|end| end <= unit.blocks);
            if !fits(from, source) || !fits(to, sink) || source.block_bytes != sink.block_bytes {
                return Err(Sense::COPY_FAILED);
            }
            let block = u64::from(source.block_bytes);
            let (from, to) = ((source.unit, from * block), (sink.unit, to * block));
            copies.push(Segment { from, to, left: count * block });
        }
        copies.reverse();
        Ok((copies, reached.into_iter().flatten().map(|unit| unit.hold).collect()))
    }

    fn copy_next(&mut self, exec: &mut Exec, mut copying: Box<Copying>) -> ExecStep {
        while let Some(next) = copying.segments.pop() {
            if next.left > 0 {
                copying.now = next;
                return self.copy_read(exec, copying);
            }
            copying.done += 1;
        }
        self.copy_ended(*copying, true);
        ExecStep::good()
    }

    pub(super) fn copy_ended(&mut self, copying: Copying, well: bool) {
        let Copying { list: Some(list), nexus, done: segments, bytes, .. } = copying else { return };
        self.copied.retain(|copied| copied.nexus != nexus || copied.list != list);
        if self.copied.len() == REMEMBERED_MAX {
            self.copied.pop_front();
        }
        self.copied.push_back(Copied { nexus, list, well, segments, bytes });
    }

    /// RECEIVE COPY RESULTS. A copy ends before its answer, so none is ever under way.
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

    fn copy_read(&self, exec: &mut Exec, copying: Box<Copying>) -> ExecStep {
        let Segment { from: (unit, at), left, .. } = copying.now;
        let buffer = Buffer::stale(left.min(STRIDE) as usize);
        exec.stage = Stage::Copying(copying);
        ExecStep::Ask(Ask::Drive(unit, Op::Read { at, buffer }))
    }

    pub(super) fn copy_came_back(&mut self, exec: &mut Exec, mut copying: Box<Copying>, op: Op) -> ExecStep {
        match op {
            Op::Read { buffer, .. } => {
                let (unit, at) = copying.now.to;
                exec.stage = Stage::Copying(copying);
                ExecStep::Ask(Ask::Drive(unit, Op::Write { at, data: vec![buffer.freeze()], fua: false }))
            }
            op => {
                let done = op.range().map_or(0, |(_, length)| length);
                let now = &mut copying.now;
                now.from.1 += done;
                now.to.1 += done;
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

/// Parses the units and the segments of a parameter list.
fn described(list: &[u8]) -> Result<(Vec<Described<'_>>, &[u8]), Sense> {
    if list.len() < HEADER {
        return Err(Sense::LIST_LENGTH);
    }
    let (targets, segments) = (usize::from(be16(list, 2)), be32(list, 8) as usize);
    if be32(list, 12) != 0 {
        return Err(Sense::INLINE_DATA_TOO_LONG);
    }
    let both = targets.saturating_add(segments);
    if both > DESCRIPTORS_MAX as usize || list.len() < HEADER.saturating_add(both) {
        return Err(Sense::LIST_LENGTH);
    }
    let mut found = Vec::new();
    for (index, target) in part(list, HEADER, targets).chunks(TARGET_LENGTH).enumerate() {
        if index >= TARGETS_MAX {
            return Err(Sense::TOO_MANY_TARGETS);
        }
        if octet(target, 0) != IDENTIFICATION {
            return Err(Sense::UNSUPPORTED_TARGET);
        }
        if target.len() < TARGET_LENGTH {
            return Err(Sense::LIST_LENGTH);
        }
        found.push(Described {
            kind: octet(target, 5) & 0x0f,
            designator: part(target, 8, usize::from(octet(target, 7))),
            is_unit: octet(target, 5) & 0x30 == 0,
            block_bytes: be24(target, 29),
        });
    }
    Ok((found, part(list, HEADER + targets, segments)))
}
