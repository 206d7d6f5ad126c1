//! The commands that touch the medium.

use stele_media::{Buffer, Extent, ExtentState, Op, Shared};

use super::cdb::UNMAP_DESCRIPTORS_MAX;
use super::cdb::UNMAP_MAX;
use super::command::{Blocks, Check, ScsiCommand};
use super::exec::{Ask, Exec, ExecStep, Stage};
use super::field::{Page, be16, be32, be64};
use super::{Reply, Sense, Unit};

/// Bytes read at once to verify, and written at once to repeat a block.
pub(super) const STRIDE: u64 = 1 << 20;
/// Bytes zeroed at once.
const ZERO_STRIDE: u64 = 256 << 20;
/// Bytes of a repeated block that are laid out in memory.
pub(super) const TILE: usize = 64 << 10;
/// Bytes in one query of extents; below, the largest number of queries for one GET LBA STATUS.
const MAP_WINDOW: u64 = 1 << 30;
const MAP_WINDOWS_MAX: u32 = 64;

impl Unit {
    fn ask(&self, op: Op) -> ExecStep {
        ExecStep::Ask(Ask::Drive(self.id, op))
    }

    fn read(&self, at: u64, length: u64) -> ExecStep {
        self.ask(Op::Read { at, buffer: Buffer::stale(length as usize) })
    }

    /// Begins a command of the medium; all checks that do not need its data have passed.
    pub(super) fn on_medium(&mut self, exec: &mut Exec, command: ScsiCommand) -> ExecStep {
        let block = self.profile.block();
        let place = |blocks: Blocks| (blocks.at * block, blocks.count * block);
        match command {
            ScsiCommand::Read { blocks } => {
                let (at, length) = place(blocks);
                if length == 0 {
                    return ExecStep::good();
                }
                exec.stage = Stage::Reading;
                self.ask(Op::View { at, length, pieces: Vec::new() })
            }
            ScsiCommand::Write { blocks, fua } => match self.whole_blocks(exec) {
                Err(sense) => ExecStep::done(sense),
                Ok(0) => ExecStep::good(),
                Ok(_) => {
                    exec.stage = Stage::Last;
                    self.ask(Op::Write { at: blocks.at * block, data: std::mem::take(&mut exec.data), fua })
                }
            },
            ScsiCommand::WriteAtomic { blocks, fua } => {
                let (at, length) = place(blocks);
                if exec.length() != length {
                    return ExecStep::done(Sense::TRUNCATED_DATA);
                }
                if length == 0 {
                    return ExecStep::good();
                }
                exec.stage = Stage::Last;
                ExecStep::Ask(Ask::Whole(self.id, Op::Write { at, data: std::mem::take(&mut exec.data), fua }))
            }
            ScsiCommand::WriteAndVerify { blocks, compare } => match self.whole_blocks(exec) {
                Err(sense) => ExecStep::done(sense),
                Ok(0) => ExecStep::good(),
                Ok(_) => {
                    let at = blocks.at * block;
                    exec.stage = Stage::Reread { at, check: compare };
                    self.ask(Op::Write { at, data: exec.data.clone(), fua: true })
                }
            },
            ScsiCommand::Verify { blocks, check } => {
                let (at, mut left) = place(blocks);
                if check == Check::Blocks {
                    match self.whole_blocks(exec) {
                        Err(sense) => return ExecStep::done(sense),
                        Ok(sent) => left = left.min(sent),
                    }
                }
                if check == Check::OneBlock && exec.length() < block && left > 0 {
                    return ExecStep::done(Sense::TRUNCATED_DATA);
                }
                self.verify_more(exec, at, left, check)
            }
            ScsiCommand::Prefetch { .. } => ExecStep::good(),
            ScsiCommand::Synchronize { .. } => {
                exec.stage = Stage::Last;
                self.ask(Op::Flush)
            }
            ScsiCommand::WriteSame { blocks, no_data } => self.write_same(exec, blocks, no_data),
            ScsiCommand::Unmap { length } => self.unmap(exec, length),
            ScsiCommand::CompareAndWrite { blocks, fua } => {
                let (at, length) = place(blocks);
                // An initiator that sends another amount than the CDB asks for means other blocks:
                // 256 of them look like none.
                if exec.offered != 2 * length {
                    return ExecStep::done(Sense::in_cdb(13));
                }
                if length == 0 {
                    return ExecStep::good();
                }
                exec.stage = Stage::Comparing { fua };
                self.read(at, length)
            }
            ScsiCommand::OrWrite { blocks, fua } => match self.whole_blocks(exec) {
                Err(sense) => ExecStep::done(sense),
                Ok(0) => ExecStep::good(),
                Ok(length) => {
                    let at = blocks.at * block;
                    exec.stage = Stage::Merging { at, fua };
                    self.read(at, length)
                }
            },
            ScsiCommand::LbaStatus { at, allocated } => {
                let from = at * block;
                self.map_more(exec, from, from, 0, allocated, Vec::new())
            }
            _ => ExecStep::done(Sense::INVALID_OPCODE),
        }
    }

    /// Bytes that the initiator sent. If it sent less than the CDB says, that part is written, but
    /// only whole blocks.
    fn whole_blocks(&self, exec: &Exec) -> Result<u64, Sense> {
        let length = exec.length();
        if length.is_multiple_of(self.profile.block()) { Ok(length) } else { Err(Sense::TRUNCATED_DATA) }
    }

    fn verify_more(&self, exec: &mut Exec, at: u64, left: u64, check: Check) -> ExecStep {
        if left == 0 {
            return ExecStep::good();
        }
        let length = if check == Check::Blocks { left } else { left.min(STRIDE) };
        exec.stage = Stage::Verifying { at, left, check };
        self.read(at, length)
    }

    fn write_same(&self, exec: &mut Exec, blocks: Blocks, no_data: bool) -> ExecStep {
        let block = self.profile.block();
        let (at, left) = (blocks.at * block, blocks.count * block);
        let pattern = exec.whole();
        if !no_data && (pattern.len() as u64 != block || exec.offered != block) {
            return ExecStep::done(Sense::TRUNCATED_DATA);
        }
        if no_data || pattern.iter().all(|byte| *byte == 0) {
            return self.zero_more(exec, vec![(at, left)]);
        }
        let tile = Shared::from(pattern.repeat((TILE / pattern.len()).max(1)));
        self.same_more(exec, at, left, tile)
    }

    fn same_more(&self, exec: &mut Exec, at: u64, left: u64, tile: Shared) -> ExecStep {
        let now = left.min(STRIDE);
        if now == 0 {
            return ExecStep::good();
        }
        let mut data = Vec::new();
        let mut missing = now as usize;
        while missing > 0 {
            let piece = tile.slice(..missing.min(tile.len()));
            missing -= piece.len();
            data.push(piece);
        }
        exec.stage = Stage::Same { at: at + now, left: left - now, tile };
        self.ask(Op::Write { at, data, fua: false })
    }

    fn unmap(&self, exec: &mut Exec, length: u32) -> ExecStep {
        let list = exec.whole();
        if length == 0 {
            return ExecStep::good();
        }
        if length < 8 || list.len() < 8 {
            return ExecStep::done(Sense::LIST_LENGTH);
        }
        let descriptors = usize::from(be16(&list, 2));
        if descriptors % 16 != 0 || descriptors / 16 > UNMAP_DESCRIPTORS_MAX as usize {
            return ExecStep::done(Sense::in_list(2));
        }
        let mut ranges = Vec::new();
        let mut total = 0u64;
        let block = self.profile.block();
        for descriptor in list.get(8..).unwrap_or_default().chunks_exact(16).take(descriptors / 16) {
            let (at, count) = (be64(descriptor, 0), u64::from(be32(descriptor, 8)));
            if at.checked_add(count).is_none_or(|end| end > self.profile.blocks) {
                return ExecStep::done(Sense::OUT_OF_RANGE);
            }
            total += count * block;
            if count > 0 {
                ranges.push((at * block, count * block));
            }
        }
        if total > UNMAP_MAX {
            return ExecStep::done(Sense::in_list(8));
        }
        ranges.reverse();
        self.zero_more(exec, ranges)
    }

    /// Unmapped blocks read as zeros (LBPRZ), so they are zeroed: the drive frees whole units.
    fn zero_more(&self, exec: &mut Exec, mut ranges: Vec<(u64, u64)>) -> ExecStep {
        let Some((at, left)) = ranges.pop() else { return ExecStep::good() };
        let length = left.min(ZERO_STRIDE);
        if length == 0 {
            return self.zero_more(exec, ranges);
        }
        if left > length {
            ranges.push((at + length, left - length));
        }
        exec.stage = Stage::Zeroing(ranges);
        self.ask(Op::Zero { at, length })
    }

    fn map_more(
        &self,
        exec: &mut Exec,
        from: u64,
        at: u64,
        windows: u32,
        allocated: u32,
        found: Vec<Extent>,
    ) -> ExecStep {
        let end = self.profile.blocks * self.profile.block();
        let room = (allocated as usize).saturating_sub(8) / 16;
        if at >= end || windows >= MAP_WINDOWS_MAX || found.len() > room.max(1) {
            return ExecStep::Done(Reply::data(self.status_page(from, &found, room.max(1)), allocated));
        }
        let length = (end - at).min(MAP_WINDOW);
        exec.stage = Stage::Mapping { from, at: at + length, windows: windows + 1, allocated, found };
        self.ask(Op::Extents { at, length, since: None, extents: Vec::new() })
    }

    fn status_page(&self, from: u64, found: &[Extent], room: usize) -> Vec<u8> {
        let block = self.profile.block();
        let mut page = Page::default().u32(0).u32(0);
        let mut at = from / block;
        let mut extents = found.iter().peekable();
        let mut descriptors = 0;
        while let Some(extent) = extents.next() {
            let hole = extent.state == ExtentState::Hole;
            let mut blocks = extent.length / block;
            // Zeros that own their space are mapped, like data.
            while let Some(next) = extents.next_if(|next| (next.state == ExtentState::Hole) == hole) {
                blocks += next.length / block;
            }
            while blocks > 0 && descriptors < room {
                let count = u32::try_from(blocks).unwrap_or(u32::MAX);
                page = page.u64(at).u32(count).u8(u8::from(hole)).zeros(3);
                at += u64::from(count);
                blocks -= u64::from(count);
                descriptors += 1;
            }
        }
        page.length32(0).0
    }

    /// Continues after a successful operation.
    pub(super) fn came_back(&mut self, exec: &mut Exec, stage: Stage, op: Op) -> ExecStep {
        match (stage, op) {
            (Stage::Reading, Op::View { pieces, .. }) => ExecStep::Done(Reply::pieces(pieces)),
            (Stage::Last, _) => ExecStep::good(),
            (Stage::Reread { at, check }, Op::Write { .. }) => {
                exec.stage = Stage::Reread { at, check };
                self.read(at, exec.length())
            }
            (Stage::Reread { at, check }, Op::Read { buffer, .. }) => match difference(&buffer, &exec.whole()) {
                Some(offset) if check => self.differs(at + offset),
                // A read without an error completes the verification.
                _ => ExecStep::good(),
            },
            (Stage::Verifying { at, left, check }, Op::Read { buffer, .. }) => {
                let wanted = exec.whole();
                let found = match check {
                    Check::Medium => None,
                    Check::Blocks => difference(&buffer, &wanted),
                    Check::OneBlock => buffer
                        .chunks(wanted.len().max(1))
                        .position(|piece| Some(piece) != wanted.get(..piece.len()))
                        .map(|index| (index * wanted.len()) as u64),
                };
                match found {
                    Some(offset) => self.differs(at + offset),
                    None => {
                        let done = buffer.len() as u64;
                        self.verify_more(exec, at + done, left.saturating_sub(done), check)
                    }
                }
            }
            (Stage::Same { at, left, tile }, Op::Write { .. }) => self.same_more(exec, at, left, tile),
            (Stage::Zeroing(ranges), Op::Zero { .. }) => self.zero_more(exec, ranges),
            (Stage::Comparing { fua }, Op::Read { at, buffer }) => {
                let data = exec.whole();
                let half = buffer.len();
                match difference(&buffer, data.get(..half).unwrap_or_default()) {
                    // SBC-4: INFORMATION is the offset in the sent data.
                    Some(offset) => ExecStep::done(Sense::MISCOMPARED.at_block(offset)),
                    None => {
                        exec.stage = Stage::Last;
                        let data = vec![data.slice(half.min(data.len())..(2 * half).min(data.len()))];
                        self.ask(Op::Write { at, data, fua })
                    }
                }
            }
            (Stage::Merging { at, fua }, Op::Read { mut buffer, .. }) => {
                let data = exec.whole();
                buffer.iter_mut().zip(data.iter()).for_each(|(byte, other)| *byte |= other);
                exec.stage = Stage::Last;
                self.ask(Op::Write { at, data: vec![buffer.freeze()], fua })
            }
            (Stage::Mapping { from, at, windows, allocated, mut found }, Op::Extents { extents, .. }) => {
                for extent in extents {
                    Extent::append(&mut found, extent);
                }
                self.map_more(exec, from, at, windows, allocated, found)
            }
            (Stage::Copying(copying), op) => self.copy_came_back(exec, copying, op),
            _ => ExecStep::done(Sense::INTERNAL),
        }
    }

    fn differs(&self, offset: u64) -> ExecStep {
        ExecStep::done(Sense::MISCOMPARED.at_block(offset / self.profile.block()))
    }
}

/// The place of the first difference.
fn difference(one: &[u8], other: &[u8]) -> Option<u64> {
    if one == other {
        return None;
    }
    let common = one.iter().zip(other).position(|(a, b)| a != b);
    Some(common.unwrap_or(one.len().min(other.len())) as u64)
}
