//! What the log says of a new layer: a snapshot, a clone or a rollback is one such record.

use stele_ground::VolumeId;

use super::field::Field;
use crate::formats::codec::{Reader, Writer};

/// What a new layer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// `former`, the volume's layer so far, is snapshot `name`; the new layer takes the volume's
    /// writes.
    Snapshot,
    /// The new layer is volume `name` on snapshot `base`.
    Clone,
    /// The new layer, on snapshot `base`, is the volume in the place of `former`, which is given
    /// up.
    Rollback,
}

/// An empty layer on `base`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewLayer {
    pub reason: Reason,
    pub layer: VolumeId,
    pub base: VolumeId,
    /// The layer whose place it takes; `base` where it takes none.
    pub former: VolumeId,
    /// Seconds since 1970.
    pub made: u64,
    /// Of the snapshot or clone.
    pub name: String,
}

impl Field for NewLayer {
    const SIZES: &'static [usize] = &[4, 4, 4, 8, 1, 3];

    fn size(&self) -> usize {
        NewLayer::least() + 2 + self.name.len()
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.layer.0);
        w.u32(self.base.0);
        w.u32(self.former.0);
        w.u64(self.made);
        w.u8(match self.reason {
            Reason::Snapshot => 0,
            Reason::Clone => 1,
            Reason::Rollback => 2,
        });
        w.put(&[0; 3]);
        w.text(&self.name);
    }

    fn decode(r: &mut Reader) -> Option<NewLayer> {
        let (layer, base, former) = (VolumeId(r.u32()?), VolumeId(r.u32()?), VolumeId(r.u32()?));
        let made = r.u64()?;
        let reason = match r.u8()? {
            0 => Reason::Snapshot,
            1 => Reason::Clone,
            2 => Reason::Rollback,
            _ => return None,
        };
        r.take(3)?;
        let name = r.text()?;
        let named = crate::formats::shape::is_name(&name) || reason == Reason::Rollback;
        // A layer stands on an older one, so that no walk downwards is without end.
        (named && base < layer && former < layer).then_some(NewLayer { reason, layer, base, former, made, name })
    }
}
