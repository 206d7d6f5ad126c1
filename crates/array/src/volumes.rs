//! Volumes: their descriptions, and what is counted of each. Their maps and slots live in tables.
//!
//! What is called a volume here is a *layer*: a map of its own, on a base or on none. A volume that
//! was never snapshotted is one layer. Hosts and operators know a layer by its handle; see
//! [`crate::layers`].

use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use stele_ground::{Bytes, VolumeId};
use stele_media::Shared;

use crate::durable::records::spec;
use crate::formats::codec::{Reader, Writer};
use crate::formats::shape::Shape;
use crate::model::{ArrayError, VolumeSpec, WriteMode};
use crate::space::layout::RowClass;

pub mod ahead;
pub mod gathering;
pub mod handle;

use handle::VolumeHandle;

/// What a layer is to hosts and operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayerKind {
    /// The newest layer of a volume: takes its writes.
    Volume,
    /// Frozen, and readable by a name of its own.
    Snapshot,
    /// Of no volume or name any more; what others still see through it is on its way to them.
    GivenUp,
}

impl LayerKind {
    fn number(self) -> u8 {
        match self {
            LayerKind::Volume => 0,
            LayerKind::Snapshot => 1,
            LayerKind::GivenUp => 2,
        }
    }

    fn from_number(number: u8) -> Option<LayerKind> {
        [LayerKind::Volume, LayerKind::Snapshot, LayerKind::GivenUp].into_iter().find(|kind| kind.number() == number)
    }
}

/// A layer as the pool knows it.
#[derive(Debug)]
pub struct Volume {
    /// The layer's number: names its map, its slots, its dirty blocks and its locks.
    pub id: VolumeId,
    kind: Cell<LayerKind>,
    /// How hosts reach it; none when it was given up.
    handle: RefCell<Option<Rc<VolumeHandle>>>,
    /// The layer that shows through where this one has nothing of its own.
    base: Cell<Option<VolumeId>>,
    /// Of a snapshot: the handle of the volume it was taken of; of a clone: the handle of its
    /// snapshot.
    origin: Cell<Option<VolumeId>>,
    /// Seconds since 1970 as told by the caller that took the snapshot; 0 of others.
    made: Cell<u64>,
    spec: RefCell<VolumeSpec>,
    pub shape: Rc<Shape>,
    pub class: RowClass,
    /// Its owner says that records on it are retained.
    retained: Cell<bool>,
    /// Stripes that own a slot.
    mapped: Cell<u64>,
    /// It was deleted.
    gone: Cell<bool>,
    /// Stripes of it listed as lost.
    lost: RefCell<BTreeSet<u64>>,
}

impl Volume {
    pub fn new(id: VolumeId, spec: VolumeSpec) -> Volume {
        let shape = Rc::new(Shape::of(&spec));
        let ahead = if spec.owner.is_some() { 0 } else { crate::volumes::ahead::STRIPES };
        let class = RowClass::data(spec.code, spec.strip, spec.digest);
        Volume {
            id,
            kind: Cell::new(LayerKind::Volume),
            handle: RefCell::new(Some(VolumeHandle::new(id, ahead))),
            base: Cell::new(None),
            origin: Cell::new(None),
            made: Cell::new(0),
            spec: RefCell::new(spec),
            shape,
            class,
            retained: Cell::new(false),
            mapped: Cell::new(0),
            gone: Cell::new(false),
            lost: RefCell::default(),
        }
    }

    pub fn kind(&self) -> LayerKind {
        self.kind.get()
    }

    pub fn set_kind(&self, kind: LayerKind) {
        self.kind.set(kind);
    }

    /// How hosts reach it; none when it was given up.
    pub fn handle(&self) -> Option<Rc<VolumeHandle>> {
        self.handle.borrow().clone()
    }

    pub fn set_handle(&self, handle: Option<Rc<VolumeHandle>>) {
        self.handle.replace(handle);
    }

    pub fn take_handle(&self) -> Option<Rc<VolumeHandle>> {
        self.handle.take()
    }

    /// The layer that shows through where this one has nothing of its own.
    pub fn base(&self) -> Option<VolumeId> {
        self.base.get()
    }

    pub fn set_base(&self, base: Option<VolumeId>) {
        self.base.set(base);
    }

    /// Of a snapshot: the handle of the volume it was taken of; of a clone: the handle of its
    /// snapshot.
    pub fn origin(&self) -> Option<VolumeId> {
        self.origin.get()
    }

    pub fn set_origin(&self, origin: Option<VolumeId>) {
        self.origin.set(origin);
    }

    /// Seconds since 1970 as told by the caller that took the snapshot; 0 of others.
    pub fn made(&self) -> u64 {
        self.made.get()
    }

    pub fn set_made(&self, made: u64) {
        self.made.set(made);
    }

    pub fn spec(&self) -> Ref<'_, VolumeSpec> {
        self.spec.borrow()
    }

    pub fn change_spec(&self, change: impl FnOnce(&mut VolumeSpec)) {
        change(&mut self.spec.borrow_mut());
    }

    /// Its owner says that records on it are retained.
    pub fn is_retained(&self) -> bool {
        self.retained.get()
    }

    pub fn set_retained(&self, retained: bool) {
        self.retained.set(retained);
    }

    /// Stripes that own a slot.
    pub fn mapped(&self) -> u64 {
        self.mapped.get()
    }

    /// One stripe more owns a slot.
    pub fn note_mapped(&self) {
        self.mapped.set(self.mapped.get() + 1);
    }

    pub fn note_unmapped(&self) {
        self.mapped.set(self.mapped.get().saturating_sub(1));
    }

    pub fn was_deleted(&self) -> bool {
        self.gone.get()
    }

    pub fn note_deleted(&self) {
        self.gone.set(true);
    }

    /// Whether the stripe is listed as lost.
    pub fn has_lost(&self, stripe: u64) -> bool {
        self.lost.borrow().contains(&stripe)
    }

    /// Its stripes that are listed as lost, in order.
    pub fn lost(&self) -> Vec<u64> {
        self.lost.borrow().iter().copied().collect()
    }

    pub fn set_lost(&self, stripe: u64, lost: bool) {
        let mut list = self.lost.borrow_mut();
        if lost {
            list.insert(stripe);
        } else {
            list.remove(&stripe);
        }
    }

    pub fn size(&self) -> u64 {
        self.spec.borrow().size.0
    }

    pub fn mode(&self) -> WriteMode {
        self.spec.borrow().mode
    }

    pub fn stripes(&self) -> u64 {
        self.size().div_ceil(self.shape.data())
    }

    /// Deleted, or given up on the way there: no host reads or writes it by itself any more.
    pub fn is_gone(&self) -> bool {
        self.gone.get() || self.kind.get() == LayerKind::GivenUp
    }

    pub fn handle_id(&self) -> Option<VolumeId> {
        self.handle.borrow().as_ref().map(|handle| handle.id)
    }

    pub fn is_owned(&self) -> bool {
        self.spec.borrow().owner.is_some()
    }

    /// What is written over must be gone from the drives: a stripe that owns its slot alone never
    /// moves to another one, which would leave the old cells as they are. The archive's data volume
    /// holds the keys that disposal destroys.
    pub fn stays_in_place(&self) -> bool {
        self.spec.borrow().owner.as_deref() == Some("archive")
    }

    /// Refuses what would give it another stripe or block while it goes.
    pub fn check_stays(&self) -> Result<(), ArrayError> {
        if self.is_gone() {
            return Err(ArrayError::Missing(format!("volume '{}' was deleted", self.name())));
        }
        Ok(())
    }

    pub fn name(&self) -> String {
        self.spec.borrow().name.clone()
    }

    pub fn allocated(&self) -> Bytes {
        Bytes(self.mapped.get() * self.shape.data())
    }

    /// Its record in the volume table; FORMAT/slots.md has the fields.
    pub fn encode(&self, page: &mut [u8]) {
        let number = |id: Option<VolumeId>| id.map_or(u32::MAX, |id| id.0);
        page.fill(0);
        let mut w = Writer::new(page);
        w.u32(1);
        w.u32(u32::from(self.retained.get()));
        w.u64(self.mapped.get());
        w.u8(self.kind.get().number());
        w.u8(self.handle.borrow().as_ref().map_or(0, |handle| handle.ahead.stripes()));
        w.u16(0);
        w.u32(number(self.handle_id()));
        w.u32(number(self.base.get()));
        w.u32(number(self.origin.get()));
        w.u64(self.made.get());
        spec::encode(&self.spec.borrow(), &mut w);
    }

    /// None where the page holds no volume.
    pub fn decode(id: VolumeId, page: &[u8]) -> Result<Option<Volume>, ArrayError> {
        let mut r = Reader::new(Shared::copy_from_slice(page));
        let damaged = || ArrayError::Damaged(format!("the record of volume {id} makes no sense; restore the pool"));
        match r.u32() {
            Some(0) => Ok(None),
            Some(_) => Volume::decode_record(id, &mut r).ok_or_else(damaged).map(Some),
            None => Err(damaged()),
        }
    }

    fn decode_record(id: VolumeId, r: &mut Reader) -> Option<Volume> {
        let some = |number: u32| (number != u32::MAX).then_some(VolumeId(number));
        let retained = r.u32()? != 0;
        let mapped = r.u64()?;
        let (kind, ahead, _) = (LayerKind::from_number(r.u8()?)?, r.u8()?, r.u16()?);
        let (handle, base, origin) = (some(r.u32()?), some(r.u32()?), some(r.u32()?));
        let made = r.u64()?;
        // A layer stands on an older one, so that no walk downwards is without end.
        if base.is_some_and(|base| base >= id) || handle.is_none() != (kind == LayerKind::GivenUp) {
            return None;
        }
        let volume = Volume::new(id, spec::decode(r)?);
        *volume.handle.borrow_mut() =
            handle.map(|handle| VolumeHandle::new(handle, ahead.min(crate::volumes::ahead::STRIPES_MAX)));
        volume.kind.set(kind);
        volume.base.set(base);
        volume.origin.set(origin);
        volume.made.set(made);
        volume.retained.set(retained);
        volume.mapped.set(mapped);
        Some(volume)
    }
}

/// All layers of the pool, and who of them is what to hosts.
#[derive(Default)]
pub struct Volumes {
    by_id: BTreeMap<VolumeId, Rc<Volume>>,
    by_handle: BTreeMap<VolumeId, Rc<Volume>>,
    /// The number the next layer gets; numbers are never used again.
    pub next: u32,
}

impl Volumes {
    /// The layer of this number.
    pub fn get(&self, id: VolumeId) -> Option<Rc<Volume>> {
        self.by_id.get(&id).cloned()
    }

    /// The layer that hosts reach by this number now.
    pub fn by_handle(&self, handle: VolumeId) -> Option<Rc<Volume>> {
        self.by_handle.get(&handle).cloned()
    }

    pub fn named(&self, name: &str) -> Option<Rc<Volume>> {
        self.by_handle.values().find(|volume| volume.spec().name == name).cloned()
    }

    /// Every layer.
    pub fn all(&self) -> Vec<Rc<Volume>> {
        self.by_id.values().cloned().collect()
    }

    /// Volumes and snapshots, in the order of their handles.
    pub fn all_with_handles(&self) -> Vec<Rc<Volume>> {
        self.by_handle.values().cloned().collect()
    }

    /// Layers that stand on this one.
    pub fn standing_on(&self, id: VolumeId) -> Vec<Rc<Volume>> {
        self.by_id.values().filter(|volume| volume.base.get() == Some(id)).cloned().collect()
    }

    /// A number for the next layer.
    pub fn take_number(&mut self) -> VolumeId {
        let id = VolumeId(self.next);
        self.next += 1;
        id
    }

    pub fn insert(&mut self, volume: Rc<Volume>) {
        self.next = self.next.max(volume.id.0 + 1);
        self.show(&volume);
        self.by_id.insert(volume.id, volume);
    }

    /// Hosts reach the layer by its handle from here on.
    pub fn show(&mut self, volume: &Rc<Volume>) {
        if let Some(handle) = volume.handle_id() {
            self.next = self.next.max(handle.0 + 1);
            self.by_handle.insert(handle, Rc::clone(volume));
        }
    }

    pub fn hide(&mut self, handle: VolumeId) {
        self.by_handle.remove(&handle);
    }

    pub fn remove(&mut self, id: VolumeId) -> Option<Rc<Volume>> {
        let gone = self.by_id.remove(&id)?;
        if let Some(handle) = gone.handle_id() {
            self.hide(handle);
        }
        Some(gone)
    }
}
