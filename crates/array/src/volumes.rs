//! Volumes: their descriptions, and what is counted of each. Their maps and slots live in tables.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use stele_ground::{Bytes, VolumeId};
use stele_media::Shared;

use crate::codec::{Reader, Writer};
use crate::layout::RowClass;
use crate::records::spec;
use crate::{ArrayError, VolumeSpec, WriteMode};

pub mod entry;
pub mod map;
pub mod shape;
pub mod tables;

use shape::Shape;

/// A volume as the pool knows it.
#[derive(Debug)]
pub struct Volume {
    pub id: VolumeId,
    pub spec: RefCell<VolumeSpec>,
    pub shape: Rc<Shape>,
    pub class: RowClass,
    /// Its owner says that records on it are retained.
    pub retained: Cell<bool>,
    /// Stripes that own a slot.
    pub mapped: Cell<u64>,
    /// It was deleted.
    pub gone: Cell<bool>,
    /// It is being deleted: no write begins any more.
    pub leaving: Cell<bool>,
    /// Stripes of it listed as lost.
    pub lost: RefCell<BTreeSet<u64>>,
}

impl Volume {
    pub fn new(id: VolumeId, spec: VolumeSpec) -> Volume {
        let shape = Rc::new(Shape::of(&spec));
        let class = RowClass::data(spec.code, spec.strip, spec.digest);
        Volume {
            id,
            spec: RefCell::new(spec),
            shape,
            class,
            retained: Cell::new(false),
            mapped: Cell::new(0),
            gone: Cell::new(false),
            leaving: Cell::new(false),
            lost: RefCell::default(),
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

    /// Refuses what would give it another stripe or block while it goes.
    pub fn check_stays(&self) -> Result<(), ArrayError> {
        if self.gone.get() || self.leaving.get() {
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

    /// Its record in the volume table: present u32, retained u32, mapped u64, description.
    pub fn encode(&self, page: &mut [u8]) {
        page.fill(0);
        let mut w = Writer::new(page);
        w.u32(1);
        w.u32(u32::from(self.retained.get()));
        w.u64(self.mapped.get());
        spec::encode(&self.spec.borrow(), &mut w);
    }

    /// None where the page holds no volume.
    pub fn decode(id: VolumeId, page: &[u8]) -> Result<Option<Volume>, ArrayError> {
        let mut r = Reader::new(Shared::copy_from_slice(page));
        let damaged = || ArrayError::Damaged(format!("the record of volume {id} makes no sense; restore the pool"));
        if r.u32().ok_or_else(damaged)? == 0 {
            return Ok(None);
        }
        let retained = r.u32().ok_or_else(damaged)? != 0;
        let mapped = r.u64().ok_or_else(damaged)?;
        let volume = Volume::new(id, spec::decode(&mut r).ok_or_else(damaged)?);
        volume.retained.set(retained);
        volume.mapped.set(mapped);
        Ok(Some(volume))
    }
}

/// All volumes of the pool.
#[derive(Default)]
pub struct Volumes {
    by_id: RefCell<BTreeMap<VolumeId, Rc<Volume>>>,
    /// The number the next volume gets; numbers are never used again.
    pub next: Cell<u32>,
}

impl Volumes {
    pub fn get(&self, id: VolumeId) -> Option<Rc<Volume>> {
        self.by_id.borrow().get(&id).cloned()
    }

    pub fn named(&self, name: &str) -> Option<Rc<Volume>> {
        self.by_id.borrow().values().find(|volume| volume.spec.borrow().name == name).cloned()
    }

    pub fn all(&self) -> Vec<Rc<Volume>> {
        self.by_id.borrow().values().cloned().collect()
    }

    pub fn insert(&self, volume: Rc<Volume>) {
        self.next.set(self.next.get().max(volume.id.0 + 1));
        self.by_id.borrow_mut().insert(volume.id, volume);
    }

    pub fn remove(&self, id: VolumeId) -> Option<Rc<Volume>> {
        self.by_id.borrow_mut().remove(&id)
    }
}
