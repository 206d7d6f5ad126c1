//! Looking through layers: which of them answers for a stripe.

use std::rc::Rc;

use crate::durable::table::{PageRef, Peek};
use crate::engine::Engine;
use crate::formats::map::{self, Home};
use crate::model::ArrayError;
use crate::model::place::{BlockKey, SlotId, StripeKey};
use crate::volumes::Volume;

/// A layer, and the page of its map that has the stripe; none while that page was never written.
struct Level {
    volume: Rc<Volume>,
    page: Option<PageRef>,
}

/// Who answers for a stripe, as it was found. Pages are kept in memory as long as this is.
pub struct FoundStripe {
    /// Layers without a word for the stripe, the newest first.
    above: Vec<Level>,
    owner: Level,
    home: Home,
}

impl FoundStripe {
    /// The layer whose word counts; the lowest if none has one.
    pub fn owner(&self) -> &Rc<Volume> {
        &self.owner.volume
    }

    pub fn home(&self) -> Home {
        self.home
    }

    pub fn slot(&self) -> Option<SlotId> {
        match self.home {
            Home::Slot(slot) => Some(slot),
            Home::Unmapped | Home::Zero => None,
        }
    }

    /// The layers looked at, the newest first: of dirty and cached blocks, the first that has one
    /// has the newest.
    pub fn layers(&self) -> impl Iterator<Item = &Rc<Volume>> {
        self.above.iter().chain([&self.owner]).map(|level| &level.volume)
    }
}

impl Engine {
    /// The page of the layer's map that has the stripe.
    async fn level(&self, volume: &Rc<Volume>, stripe: u64) -> Result<Level, ArrayError> {
        let (id, _) = Engine::map_page_id(volume.id, stripe);
        let page = match self.table.peek(id) {
            Peek::Here(page) => Some(page),
            Peek::Elsewhere => Some(self.table.page(id).await?),
            Peek::Never => None,
        };
        Ok(Level { volume: Rc::clone(volume), page })
    }

    fn word(level: &Level, stripe: u64) -> Home {
        let (_, at) = map::locate(stripe);
        level.page.as_ref().map_or(Home::Unmapped, |page| page.read(|bytes| map::get(bytes, at)))
    }

    /// Looks from the layer downwards. The answer may be old when it is here: see
    /// [`Engine::still`].
    pub async fn find(&self, volume: &Rc<Volume>, stripe: u64) -> Result<FoundStripe, ArrayError> {
        let mut above = Vec::new();
        let mut level = self.level(volume, stripe).await?;
        loop {
            let home = Engine::word(&level, stripe);
            let base = level.volume.base().filter(|_| home == Home::Unmapped);
            let Some(base) = base.and_then(|base| self.look(|core| core.volumes.get(base))) else {
                return Ok(FoundStripe { above, owner: level, home });
            };
            let next = self.level(&base, stripe).await?;
            above.push(level);
            level = next;
        }
    }

    /// Whether that is what would be found now. Nothing waits in here: with a yes it holds until
    /// the next await.
    pub fn still(&self, found: &FoundStripe, stripe: u64) -> bool {
        let unchanged = |level: &Level, home: Home| match &level.page {
            Some(_) => Engine::word(level, stripe) == home,
            None => {
                let (id, _) = Engine::map_page_id(level.volume.id, stripe);
                home == Home::Unmapped && matches!(self.table.peek(id), Peek::Never)
            }
        };
        let below = found.above.iter().skip(1).chain([&found.owner]);
        let linked = found
            .above
            .iter()
            .zip(below)
            .all(|(level, next)| unchanged(level, Home::Unmapped) && level.volume.base() == Some(next.volume.id));
        let ends = found.home != Home::Unmapped || found.owner.volume.base().is_none();
        linked && ends && unchanged(&found.owner, found.home)
    }

    /// As `find`, and true at this moment.
    pub async fn found(&self, volume: &Rc<Volume>, stripe: u64) -> Result<FoundStripe, ArrayError> {
        loop {
            let found = self.find(volume, stripe).await?;
            if self.still(&found, stripe) {
                return Ok(found);
            }
        }
    }

    /// Whether anything but zeros may show through the layer where it has no word of its own.
    pub async fn shows_through(&self, volume: &Rc<Volume>, stripe: u64) -> Result<bool, ArrayError> {
        if volume.base().is_none() {
            return Ok(false);
        }
        let found = self.found(volume, stripe).await?;
        let is_dirty =
            |layer: &Rc<Volume>| self.look(|core| core.cache.is_dirty(StripeKey { volume: layer.id, stripe }));
        let dirty = found.layers().skip(1).any(is_dirty);
        Ok(found.owner().id != volume.id && (dirty || found.slot().is_some()))
    }

    /// The layer whose cached copy of the block counts, without reading anything; none where that
    /// cannot be said.
    pub fn cached_layer(&self, volume: &Rc<Volume>, block: u64) -> Option<BlockKey> {
        let stripe = block / u64::from(volume.shape.blocks());
        let mut here = Rc::clone(volume);
        loop {
            let key = BlockKey { volume: here.id, block };
            if self.look(|core| core.cache.holds(key)) {
                return Some(key);
            }
            let (id, at) = Engine::map_page_id(here.id, stripe);
            let hides = match self.table.peek(id) {
                Peek::Here(page) => page.read(|bytes| map::get(bytes, at)) != Home::Unmapped,
                Peek::Elsewhere => return None,
                Peek::Never => false,
            };
            if hides {
                return None;
            }
            here = self.look(|core| core.volumes.get(here.base()?))?;
        }
    }
}
