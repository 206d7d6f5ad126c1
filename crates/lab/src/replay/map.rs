//! Where accesses of a trace go on a target that is not the one they were made for.
//!
//! The trace's devices lie one behind another, each as long as it reaches. What is beyond the
//! target's end then is refused, unless the caller says what is to become of it. An error that says
//! how much is missing is better than figures of a load that never was.

use serde::{Deserialize, Serialize};
use stele_ground::Bytes;

use super::{Record, Survey};
use crate::error::LabError;
use crate::workload::Access;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Map {
    /// All accesses have a place, or nothing is run.
    #[default]
    Refuse,
    /// Places are counted from the beginning again: neighbours stay neighbours, and what was apart
    /// may meet.
    Wrap,
    /// Places come closer together: what was apart stays apart, and neighbours may overlap.
    Scale,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fit {
    /// Accesses are whole blocks of the target, or nothing is run.
    #[default]
    Refuse,
    /// Each is made longer to whole blocks.
    Round,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Mapping {
    /// Where each device begins; none: it is left out.
    bases: Vec<Option<u64>>,
    /// Bytes of all devices together.
    pub span: u64,
    size: u64,
    block: u64,
    map: Map,
    fit: Fit,
}

impl Mapping {
    pub fn new(survey: &Survey, size: Bytes, block: Bytes, map: Map, fit: Fit) -> Result<Mapping, LabError> {
        let block = block.0.max(1);
        let size = size.0 - size.0 % block;
        let mut span = 0u64;
        let mut bases = Vec::with_capacity(survey.devices.len());
        for device in &survey.devices {
            let base = (device.accesses > 0).then_some(span);
            bases.push(base);
            let end = base.map_or(Some(span), |base| base.checked_add(device.reach.checked_next_multiple_of(block)?));
            span = end
                .ok_or_else(|| LabError::Usage("the trace's devices together reach further than any target".into()))?;
        }
        let mapping = Mapping { bases, span, size, block, map, fit };
        mapping.check(survey).map(|()| mapping)
    }

    fn check(&self, survey: &Survey) -> Result<(), LabError> {
        let refuse = |text: String| Err(LabError::Usage(text));
        let (span, size) = (Bytes(self.span), Bytes(self.size));
        if survey.longest.next_multiple_of(self.block) + self.block > self.size {
            return refuse(format!("the trace has accesses of {}, and the target {size}", Bytes(survey.longest)));
        }
        if self.fit == Fit::Refuse && !survey.step.is_multiple_of(self.block) {
            return refuse(format!(
                "the trace's accesses are multiples of {} bytes, and the target takes multiples of {}: make them longer with \
                 --fit round, or replay on another target",
                survey.step, self.block
            ));
        }
        if self.map == Map::Refuse && self.span > self.size {
            return refuse(format!(
                "the trace reaches to {span}, and the target has {size}: make the target larger, or say what becomes of \
                 accesses beyond its end with --map wrap or --map scale"
            ));
        }
        Ok(())
    }

    /// Where it goes; none: nowhere.
    pub fn place(&self, record: &Record) -> Option<Access> {
        let base = (*self.bases.get(usize::from(record.device))?)?;
        let from = base.checked_add(record.offset)?;
        let end = from.checked_add(record.length)?;
        let (at, end) = match self.fit {
            Fit::Refuse => (from, end),
            Fit::Round => (from - from % self.block, end.checked_next_multiple_of(self.block)?),
        };
        let length = end - at;
        let last = self.size.checked_sub(length)?;
        let at = match self.map {
            Map::Refuse => at,
            Map::Wrap => (at % self.size).min(last),
            Map::Scale if self.span <= self.size => at,
            Map::Scale => {
                let scaled = (u128::from(at) * u128::from(self.size) / u128::from(self.span)) as u64;
                (scaled - scaled % self.block).min(last)
            }
        };
        let whole = at.is_multiple_of(self.block) && length.is_multiple_of(self.block);
        (at <= last && whole).then_some(Access { target: 0, at, length, write: record.write })
    }

    /// Whether any access can go elsewhere than in the trace.
    pub fn may_move(&self) -> bool {
        self.fit == Fit::Round || (self.map != Map::Refuse && self.span > self.size)
    }

    /// A record that is left out, since its device is.
    pub fn leaves_out(&self, record: &Record) -> bool {
        self.bases.get(usize::from(record.device)).is_none_or(Option::is_none)
    }

    /// It does not go where it was, or is longer.
    pub fn moves(&self, record: &Record) -> bool {
        let base = self.bases.get(usize::from(record.device)).copied().flatten().unwrap_or(0);
        self.place(record).is_some_and(|access| (access.at, access.length) != (base + record.offset, record.length))
    }
}
