//! The B-tree's part of the volume, as redb expects it: a file that grows.
//!
//! Writes gather in memory until redb asks for a sync. They then go out in order, with neighbours
//! joined, many at a time, and are flushed. redb's promises depend only on the data durable at a
//! sync, so its rules allow gathering. Growth beyond the area is refused late: the area grants the
//! length but never writes there. The caller sees [`Area::overgrown`] and aborts, and a sync that
//! would need such a page fails.
//!
//! After [`Area::close`] every operation fails, so that no destructor can write. The volume then
//! holds the same data as after a crash.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use redb::{Builder, Database, DatabaseError, StorageBackend, StorageError};
use stele_ground::MIB;
use stele_media::{Buffer, Handle, MediaError, MediaFault, Op, Priority, Retries, Shared};

use super::fault::{REBUILD, of_media};
use super::layout::{BLOCK, Layout};
use super::store::Options;
use super::waiting::{self, Wait};
use crate::CatalogError;

/// Largest amount of gathered bytes; beyond it they are written without waiting for a sync.
const GATHERED_MAX: usize = 32 * MIB as usize;
/// The longest joined write, in pages.
const RUN_MAX: usize = 64;
/// Largest number of concurrent writes.
const FLIGHT_MAX: usize = 32;
/// Offset in redb's header of the pages of a region, and below the value that redb gives every new
/// file: see its design document.
const REGION_PAGES_AT: usize = 20;
const REGION_PAGES_DEFAULT: u32 = 1 << 20;
pub const REDB_MAGIC: &[u8; 9] = b"redb\x1A\x0A\xA9\x0D\x0A";

pub struct Area {
    handle: Handle,
    at: u64,
    /// Increases when the volume grows, while redb is idle.
    capacity: AtomicU64,
    state: Mutex<State>,
    /// Held while gathered pages are written, so that one caller at a time does it.
    drain: Mutex<()>,
    /// The first failed access of redb. It refuses every later one, without a cause.
    failure: OnceLock<MediaError>,
    wait: Wait,
}

struct State {
    layout: Layout,
    length: u64,
    /// Pages by number that redb wrote and that are not yet on the volume.
    gathered: BTreeMap<u64, Shared>,
    closed: bool,
    /// The catalog is under construction: it has no superblock yet.
    forming: bool,
}

/// The area as a storage backend of redb.
#[derive(Clone)]
struct Backend(Arc<Area>);

impl Area {
    fn new(handle: &Handle, layout: &Layout, forming: bool, wait: Wait) -> Arc<Area> {
        let state =
            State { layout: layout.clone(), length: layout.length, gathered: BTreeMap::new(), closed: false, forming };
        Arc::new(Area {
            handle: handle.clone(),
            at: layout.area_at,
            capacity: AtomicU64::new(layout.area),
            state: Mutex::new(state),
            drain: Mutex::new(()),
            failure: OnceLock::new(),
            wait,
        })
    }

    /// An empty B-tree whose regions have the size of the layout. redb has no option for it, but
    /// accepts the size that its header names. The header of a file without any commit is therefore
    /// amended. The area writes no superblock.
    pub(crate) fn create(
        handle: &Handle,
        layout: &Layout,
        cache: usize,
    ) -> Result<(Arc<Area>, Database), CatalogError> {
        let failed = |error: MediaError| CatalogError::Stopped(format!("the B-tree could not be created: {error}"));
        let mut fresh = layout.clone();
        fresh.length = 0;
        // No task has anything to do with a catalog that is being made.
        let wait: Wait = |work| work();
        let first = Area::new(handle, &fresh, true, wait);
        let database = open(&first, 0)?;
        first.close();
        drop(database);
        first.state().closed = false;
        let mut page = vec![0; BLOCK as usize];
        first.read(0, &mut page).map_err(failed)?;
        let region = &mut page[REGION_PAGES_AT..REGION_PAGES_AT + 4];
        if *region != REGION_PAGES_DEFAULT.to_le_bytes() {
            return Err(CatalogError::Stopped("redb has changed its header; this build cannot create catalogs".into()));
        }
        region.copy_from_slice(&layout.region_pages.to_le_bytes());
        first.write(0, &page).map_err(failed)?;
        first.drain().map_err(failed)?;
        retried(handle, || handle.flush_blocking()).map_err(failed)?;
        fresh.length = first.length();
        let area = Area::new(handle, &fresh, true, wait);
        let database = open(&area, cache)?;
        Ok((area, database))
    }

    /// The B-tree in the state of its last durable commit.
    pub(crate) fn open(
        handle: &Handle,
        layout: &Layout,
        options: Options,
    ) -> Result<(Arc<Area>, Database), CatalogError> {
        let area = Area::new(handle, layout, false, options.wait);
        let mut magic = vec![0; REDB_MAGIC.len()];
        area.read(0, &mut magic).map_err(|error| {
            of_media(&format!("the B-tree's header at byte {} cannot be read", layout.area_at), &error, REBUILD)
        })?;
        if magic != REDB_MAGIC {
            return Err(CatalogError::Damaged(format!(
                "there is no B-tree at byte {}; rebuild the catalog from the data volume",
                layout.area_at
            )));
        }
        let database = open(&area, options.cache.0 as usize)?;
        Ok((area, database))
    }

    /// From now on every operation fails, so that nothing more is written.
    pub fn close(&self) {
        self.state().closed = true;
    }

    /// Bytes that redb has laid out.
    pub fn length(&self) -> u64 {
        self.state().length
    }

    /// See [`stele_media::Port::order`].
    pub fn order(&self) -> Option<stele_media::Order> {
        self.handle.order()
    }

    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Acquire)
    }

    /// Bytes by which redb may still grow.
    pub fn room(&self) -> u64 {
        self.capacity().saturating_sub(self.length())
    }

    /// redb has asked for more space than there is; its current work must not be committed.
    pub fn overgrown(&self) -> bool {
        self.length() > self.capacity()
    }

    /// The layout in use.
    pub(crate) fn layout(&self) -> Layout {
        self.state().layout.clone()
    }

    /// The error for a failed access of redb's. Even after a full queue, only an opening makes redb
    /// read again.
    pub(crate) fn explain(&self, what: &str, error: &StorageError) -> CatalogError {
        match error {
            StorageError::PreviousIo | StorageError::DatabaseClosed => {
                self.lost().unwrap_or_else(|| CatalogError::Stopped(format!("{what}: {error}")))
            }
            StorageError::Io(io) => match io.get_ref().and_then(|error| error.downcast_ref::<MediaError>()) {
                Some(cause) => match of_media(what, cause, REBUILD) {
                    CatalogError::Busy => CatalogError::Stopped(format!("{what}: {cause}")),
                    error => error,
                },
                None => CatalogError::Damaged(format!("{what}: {error}{REBUILD}")),
            },
            _ => CatalogError::Damaged(format!("{what}: {error}{REBUILD}")),
        }
    }

    /// What stands between redb and its data since the first failed access, which may be long over.
    pub(crate) fn lost(&self) -> Option<CatalogError> {
        let cause = self.failure.get()?;
        Some(CatalogError::Stopped(format!(
            "an access to the B-tree failed: {cause}; return missing drives if some are away, and start the server again"
        )))
    }

    /// Called before the volume grows. redb must be idle.
    pub(crate) fn prepare_to_grow(&self) -> Result<(), CatalogError> {
        let layout = self.state().layout.clone();
        layout.prepare_to_grow(&self.handle).map_err(|error| CatalogError::Stopped(error.to_string()))
    }

    /// Uses the whole of a volume that has grown, from now on and after a restart. redb must be
    /// idle.
    pub(crate) fn take_up_volume(&self) -> Result<(), CatalogError> {
        let size = self.handle.geometry().size.0;
        let grown = {
            let mut state = self.state();
            assert!(size >= state.layout.volume, "the volume of a catalog does not shrink");
            if size == state.layout.volume {
                return Ok(());
            }
            // A failed write may leave this generation in one copy. So no other write may have it.
            state.layout.generation += 1;
            state.layout.on(size)
        };
        // Until this has succeeded, the catalog uses what it has, and the next call tries again.
        grown.write(&self.handle).map_err(|error| CatalogError::Stopped(error.to_string()))?;
        self.capacity.store(grown.area, Ordering::Release);
        self.state().layout = grown;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<(), MediaError> {
        match self.state().closed {
            true => Err(MediaError::new(MediaFault::Gone, "the catalog has been closed")),
            false => Ok(()),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediaError> {
        self.check()?;
        let end = offset + out.len() as u64;
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        // Look here before the volume is read: a page moves from here to the volume, never back.
        let gathered: Vec<(u64, Shared)> =
            self.state().gathered.range(first..last).map(|(page, bytes)| (*page, bytes.clone())).collect();
        if (gathered.len() as u64) < last - first {
            if last * BLOCK > self.capacity() {
                // Only a B-tree that has lost its way names such a page.
                return Err(MediaError::new(MediaFault::Damaged, "read beyond the area of the B-tree"));
            }
            let length = ((last - first) * BLOCK) as usize;
            let read = || retried(&self.handle, || self.handle.read_blocking(self.at + first * BLOCK, length));
            let bytes = waiting::read(self.wait, read)?;
            let skip = (offset - first * BLOCK) as usize;
            out.copy_from_slice(&bytes[skip..skip + out.len()]);
        }
        for (page, bytes) in gathered {
            let start = page * BLOCK;
            let (from, to) = (start.max(offset), (start + BLOCK).min(end));
            out[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediaError> {
        self.check()?;
        let (first, end) = (offset / BLOCK, offset + data.len() as u64);
        let mut pages = Buffer::zeroed(((end.div_ceil(BLOCK) - first) * BLOCK) as usize);
        let skip = (offset - first * BLOCK) as usize;
        if skip != 0 || end % BLOCK != 0 {
            // Only redb's header of 320 bytes is not a whole page.
            self.read(first * BLOCK, &mut pages)?;
        }
        pages[skip..skip + data.len()].copy_from_slice(data);
        let pages = pages.freeze();
        let full = {
            let mut state = self.state();
            for (at, page) in (first..).zip(0..pages.len() / BLOCK as usize) {
                let start = page * BLOCK as usize;
                state.gathered.insert(at, pages.slice(start..start + BLOCK as usize));
            }
            state.gathered.len() * BLOCK as usize > GATHERED_MAX
        };
        if full { self.drain() } else { Ok(()) }
    }

    /// Writes the gathered pages and waits for them. Pages beyond the area stay gathered.
    fn drain(&self) -> Result<(), MediaError> {
        let _one = self.drain.lock().unwrap_or_else(PoisonError::into_inner);
        let pages: Vec<(u64, Shared)> = {
            let state = self.state();
            state.gathered.range(..self.capacity() / BLOCK).map(|(page, bytes)| (*page, bytes.clone())).collect()
        };
        let mut flight = Flight::new(&self.handle, Priority::Destage);
        for run in pages.chunk_by(|(left, _), (right, _)| left + 1 == *right).flat_map(|run| run.chunks(RUN_MAX)) {
            let Some((first, _)) = run.first() else { continue };
            flight.write(self.at + first * BLOCK, run.iter().map(|(_, bytes)| bytes.clone()).collect())?;
        }
        flight.land(0)?;
        let mut state = self.state();
        for (page, bytes) in pages {
            // Keep a page that was written again meanwhile.
            if state.gathered.get(&page).is_some_and(|there| there.as_ptr() == bytes.as_ptr()) {
                state.gathered.remove(&page);
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.check()?;
        let grown = {
            let mut state = self.state();
            if state.gathered.range(self.capacity() / BLOCK..).next().is_some() {
                return Err(MediaError::new(MediaFault::Full, "the catalog's volume is full"));
            }
            // A length beyond the area belongs to a transaction that will be aborted.
            let grown = state.length > state.layout.length && state.length <= self.capacity();
            if grown {
                // After a volume grew just before a crash, its second copy lies where the
                // superblock does not look for it.
                state.layout = state.layout.on(self.handle.geometry().size.0.max(state.layout.volume));
                state.layout.length = state.length;
                self.capacity.store(state.layout.area, Ordering::Release);
            }
            // The superblock of a new catalog is written last: see `layout::finish`.
            let due = grown && !state.forming;
            if due {
                state.layout.generation += 1;
            }
            due.then(|| state.layout.clone())
        };
        if let Some(layout) = grown {
            // Make the layout durable before redb's header can name the new length.
            layout.write(&self.handle)?;
        }
        self.drain()?;
        retried(&self.handle, || self.handle.flush_blocking())
    }

    fn set_length(&self, length: u64) -> Result<(), MediaError> {
        self.check()?;
        let mut state = self.state();
        if length < state.length {
            state.gathered.split_off(&length.div_ceil(BLOCK));
        }
        state.length = length;
        Ok(())
    }
}

fn open(area: &Arc<Area>, cache: usize) -> Result<Database, CatalogError> {
    let mut builder = Builder::new();
    builder.set_cache_size(cache);
    builder.set_repair_callback(|_| {
        tracing::warn!(
            "the catalog's B-tree was not saved with its allocator state and is walked whole; this takes long"
        );
    });
    const WHAT: &str = "the B-tree cannot be opened";
    builder.create_with_backend(Backend(Arc::clone(area))).map_err(|error| match error {
        DatabaseError::Storage(error) => area.explain(WHAT, &error),
        error => CatalogError::Damaged(format!("{WHAT}: {error}; rebuild the catalog from the data volume")),
    })
}

impl Backend {
    fn told<T>(&self, result: Result<T, MediaError>) -> io::Result<T> {
        result.map_err(|error| {
            // Only the first one counts.
            let _ = self.0.failure.set(error.clone());
            io::Error::other(error)
        })
    }
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backend({} bytes at {})", self.0.capacity(), self.0.at)
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.told(self.0.check().map(|()| self.0.length()))
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.told(self.0.read(offset, out))
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.told(self.0.set_length(length))
    }
    fn sync_data(&self) -> io::Result<()> {
        self.told(self.0.sync())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.told(self.0.write(offset, data))
    }
}

/// Repeats the request while the port's queue is full.
pub(crate) fn retried<T>(handle: &Handle, mut ask: impl FnMut() -> Result<T, MediaError>) -> Result<T, MediaError> {
    let mut retries = Retries::default();
    loop {
        match ask() {
            Err(error) if error.fault == MediaFault::Retry && retries.wait(handle) => {}
            answer => return answer,
        }
    }
}

/// One urgent write that is durable when this returns.
pub(crate) fn force(handle: &Handle, at: u64, data: Shared) -> Result<(), MediaError> {
    let mut flight = Flight::new(handle, Priority::Urgent);
    flight.submit(Op::Write { at, data: vec![data], fua: true });
    flight.land(0)
}

/// The writes under way.
struct Flight<'a> {
    handle: &'a Handle,
    priority: Priority,
    landing: Arc<Landing>,
}

#[derive(Default)]
struct Landing {
    state: Mutex<Landed>,
    changed: Condvar,
}

#[derive(Default)]
struct Landed {
    under_way: usize,
    /// Operations refused by a full queue, to be repeated.
    refused: Vec<Op>,
    error: Option<MediaError>,
}

impl Landing {
    fn lock(&self) -> MutexGuard<'_, Landed> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one write as finished however the port treats it, even if the port drops it without an
/// answer.
struct Ticket {
    landing: Arc<Landing>,
    answer: Option<(Op, Result<(), MediaError>)>,
}

impl Ticket {
    fn land(mut self, op: Op, result: Result<(), MediaError>) {
        self.answer = Some((op, result));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut landed = self.landing.lock();
        landed.under_way -= 1;
        match self.answer.take() {
            Some((_, Ok(()))) => {}
            Some((op, Err(error))) if error.fault == MediaFault::Retry => landed.refused.push(op),
            Some((_, Err(error))) => landed.error = Some(error),
            None => landed.error = Some(MediaError::new(MediaFault::Gone, "the volume's server has stopped")),
        }
        self.landing.changed.notify_one();
    }
}

impl<'a> Flight<'a> {
    fn new(handle: &'a Handle, priority: Priority) -> Flight<'a> {
        Flight { handle, priority, landing: Arc::default() }
    }

    fn write(&mut self, at: u64, data: Vec<Shared>) -> Result<(), MediaError> {
        self.land(FLIGHT_MAX - 1)?;
        self.submit(Op::Write { at, data, fua: false });
        Ok(())
    }

    fn submit(&self, op: Op) {
        self.landing.lock().under_way += 1;
        let ticket = Ticket { landing: Arc::clone(&self.landing), answer: None };
        let done = Box::new(move |op, result| ticket.land(op, result));
        self.handle.submit(op, self.priority, done);
    }

    /// Waits until at most `left` writes are under way, whatever their results.
    fn land(&mut self, left: usize) -> Result<(), MediaError> {
        let mut retries = Retries::default();
        loop {
            let pumped = self.handle.pump();
            let mut landed = self.landing.lock();
            while landed.under_way > left && landed.refused.is_empty() && !pumped {
                landed = self.landing.changed.wait(landed).unwrap_or_else(PoisonError::into_inner);
            }
            if let Some(error) = &landed.error {
                // The other writes own their memory; there is no need to wait for them.
                return Err(error.clone());
            }
            let refused = std::mem::take(&mut landed.refused);
            if refused.is_empty() && landed.under_way <= left {
                return Ok(());
            }
            drop(landed);
            if !refused.is_empty() {
                if !retries.wait(self.handle) {
                    return Err(MediaError::new(MediaFault::Retry, "the volume's queue stays full"));
                }
                refused.into_iter().for_each(|op| self.submit(op));
            }
        }
    }
}

#[cfg(test)]
mod tests;
