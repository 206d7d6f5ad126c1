//! A placement row: cells on distinct drives that are cut into slots together.

use stele_codes::Code;
use stele_ground::Bytes;

use crate::formats::codec::{Reader, Writer};
use crate::model::DigestUnit;
use crate::model::place::{DriveNumber, RowId, StripCell};

/// Who uses a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RowKind {
    /// Pages of the table; kept in the anchor, never in the log.
    Table,
    /// Stripes of volumes.
    Data,
}

/// Rows of one class serve any volume of that shape.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RowClass {
    pub kind: RowKind,
    pub code: Code,
    pub strip: Bytes,
    /// Digest unit: 4096 bytes or the strip.
    pub unit: Bytes,
}

/// A row's share on one drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    pub cell: StripCell,
    /// Where strips move to while the member's drive is lost or being replaced; which strips have
    /// moved is an exception bit in each slot's entry.
    pub replacement: Option<StripCell>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub id: RowId,
    pub class: RowClass,
    /// As many as the code is wide; strip j of every slot lies on member j.
    pub members: Vec<Member>,
}

impl RowClass {
    pub fn data(code: Code, strip: Bytes, digest: DigestUnit) -> RowClass {
        let unit = match digest {
            DigestUnit::Block => Bytes(stele_ground::BLOCK as u64),
            DigestUnit::Strip => strip,
        };
        RowClass { kind: RowKind::Data, code, strip, unit }
    }

    /// Bytes of data in a slot.
    pub fn stripe(self) -> Bytes {
        self.strip * self.code.data() as u64
    }

    /// True when a volume can have this shape: then at least one slot's entry fits a page of the
    /// table.
    fn is_of_a_volume(self) -> bool {
        let unit = match self.unit {
            unit if unit == self.strip => DigestUnit::Strip,
            Bytes(4096) => DigestUnit::Block,
            _ => return false,
        };
        let range = crate::formats::shape::STRIP_MIN..=crate::formats::shape::STRIP_MAX;
        let shape = crate::formats::shape::Shape::new(self.code, self.strip.0, unit);
        range.contains(&self.strip.0) && crate::formats::entry::size(&shape) <= crate::model::place::PAGE
    }

    /// Digests in a slot's entry.
    pub fn digests(self) -> usize {
        self.code.width() * (self.strip.0 / self.unit.0) as usize
    }
}

impl Row {
    /// True when a member or replacement lies on the drive.
    pub fn uses(&self, drive: DriveNumber) -> bool {
        self.members.iter().any(|m| m.cell.drive == drive || m.replacement.is_some_and(|cell| cell.drive == drive))
    }

    /// Bytes `encode` writes.
    pub fn encoded(&self) -> usize {
        24 + 20 * self.members.len()
    }

    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.id.0);
        w.u8(match self.class.kind {
            RowKind::Table => 0,
            RowKind::Data => 1,
        });
        w.u8(self.class.code.data() as u8);
        w.u8(self.class.code.tolerates() as u8);
        w.u8(self.members.len() as u8);
        w.u64(self.class.strip.0);
        w.u64(self.class.unit.0);
        for member in &self.members {
            w.u16(member.cell.drive.0);
            w.u16(u16::from(member.replacement.is_some()));
            w.u32(member.cell.unit);
            let spare = member.replacement.unwrap_or_default();
            w.u16(spare.drive.0);
            w.u16(0);
            w.u32(spare.unit);
            w.u32(0);
        }
    }

    pub fn decode(r: &mut Reader) -> Option<Row> {
        let id = RowId(r.u32()?);
        let kind = match r.u8()? {
            0 => RowKind::Table,
            1 => RowKind::Data,
            _ => return None,
        };
        let code = Code::from_parts(r.u8()?, r.u8()?)?;
        let count = usize::from(r.u8()?);
        let (strip, unit) = (Bytes(r.u64()?), Bytes(r.u64()?));
        let sane = |size: Bytes| size.0.is_power_of_two() && (4096..=1 << 30).contains(&size.0);
        if count != code.width() || !sane(strip) || !sane(unit) || unit > strip {
            return None;
        }
        let class = RowClass { kind, code, strip, unit };
        if kind == RowKind::Data && !class.is_of_a_volume() {
            return None;
        }
        let members = (0..count).map(|_| decode_member(r)).collect::<Option<_>>()?;
        Some(Row { id, class, members })
    }
}

fn decode_member(r: &mut Reader) -> Option<Member> {
    let (drive, replaced, unit) = (DriveNumber(r.u16()?), r.u16()? != 0, r.u32()?);
    let (spare, _, spare_unit, _) = (DriveNumber(r.u16()?), r.u16()?, r.u32()?, r.u32()?);
    let replacement = replaced.then_some(StripCell { drive: spare, unit: spare_unit });
    Some(Member { cell: StripCell { drive, unit }, replacement })
}
