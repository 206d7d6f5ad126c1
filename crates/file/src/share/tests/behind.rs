//! Unstable writes that are answered before they are durable.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::poll;
use stele_media::{Done, Geometry, Handle, MediaError, MediaFault, Op, Ordered, Port, Priority};

use super::stage::{CACHE_UNIT, NAME, Stage, Volume, content, file, read};
use crate::files::Files;
use crate::share::writing::BEHIND_MAX;
use crate::share::{Caching, Ground, Root, Settings, Share};
use crate::{Caller, Changes, FileError, Inode, Stability};

const BLOCK: u64 = 4096;
const SLOT: u64 = 64 << 10;
static ROOT: Caller = Caller::ROOT;

/// A cache volume as a pool serves it. Reads see an ordered write at once. While the test holds it
/// back, nothing becomes durable: ordered writes, other writes and flushes wait for the test.
#[derive(Clone)]
struct Lagging {
    volume: Volume,
    state: Arc<Mutex<Lag>>,
}

#[derive(Default)]
struct Lag {
    holds: bool,
    /// Ordered writes wait for their order too.
    holds_orders: bool,
    /// The next ordered write fails like this, and has no order.
    fault: Option<MediaFault>,
    waiting: Vec<Wait>,
}

/// What waits for the test.
enum Wait {
    /// An operation that did not take place yet.
    Whole(Op, Done),
    /// A write that has no order yet.
    Order(Op, Ordered, Done),
    /// A write that has its order, and is not durable.
    Durable(Op, Done),
}

impl Lagging {
    fn state(&self) -> MutexGuard<'_, Lag> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on nothing becomes durable.
    fn hold(&self) {
        self.state().holds = true;
    }

    /// From here on no write gets its order either.
    fn hold_orders(&self) {
        self.hold();
        self.state().holds_orders = true;
    }

    /// Writes that wait get their order, and later ones at once.
    fn order(&self) {
        let waiting = {
            let mut state = self.state();
            state.holds_orders = false;
            std::mem::take(&mut state.waiting)
        };
        for wait in waiting {
            match wait {
                Wait::Order(op, ordered, done) => self.place(op, ordered, done),
                other => self.state().waiting.push(other),
            }
        }
    }

    /// Everything that waits becomes durable or takes place, in order, and later operations at
    /// once. Or all of it fails, as with a log that has stopped.
    fn release(&self, fault: Option<MediaFault>) {
        let waiting = {
            let mut state = self.state();
            (state.holds, state.holds_orders) = (false, false);
            std::mem::take(&mut state.waiting)
        };
        for wait in waiting {
            match (wait, fault) {
                (Wait::Whole(op, done) | Wait::Order(op, _, done) | Wait::Durable(op, done), Some(fault)) => {
                    done(op, Err(MediaError::new(fault, "the test says so")));
                }
                (Wait::Whole(op, done), None) => self.volume.submit(op, Priority::Host, done),
                (Wait::Order(op, ordered, done), None) => {
                    ordered();
                    self.volume.submit(op, Priority::Host, done);
                }
                (Wait::Durable(op, done), None) => done(op, Ok(())),
            }
        }
    }

    /// Reads see the write from here on.
    fn place(&self, op: Op, ordered: Ordered, done: Done) {
        let written = match &op {
            Op::Write { at, data, .. } => Op::Write { at: *at, data: data.clone(), fua: false },
            _ => panic!("a write is ordered"),
        };
        self.volume.submit(written, Priority::Host, Box::new(|_, result| result.expect("the volume takes the write")));
        ordered();
        self.state().waiting.push(Wait::Durable(op, done));
    }
}

impl Port for Lagging {
    fn geometry(&self) -> Geometry {
        self.volume.geometry()
    }

    fn submit(&self, op: Op, priority: Priority, done: Done) {
        if matches!(op, Op::Write { .. } | Op::Flush) && self.state().holds {
            return self.state().waiting.push(Wait::Whole(op, done));
        }
        self.volume.submit(op, priority, done);
    }

    fn submit_ordered(&self, op: Op, priority: Priority, ordered: Ordered, done: Done) {
        let (fault, holds, holds_orders) = {
            let mut state = self.state();
            (state.fault.take(), state.holds, state.holds_orders)
        };
        match fault {
            Some(fault) => done(op, Err(MediaError::new(fault, "the test says so"))),
            None if holds_orders => self.state().waiting.push(Wait::Order(op, ordered, done)),
            None if holds => self.place(op, ordered, done),
            None => {
                ordered();
                self.volume.submit(op, priority, done);
            }
        }
    }
}

/// A share whose cache volume lags behind, and a file of so many bytes in it that is durable.
struct Scene {
    stage: Stage,
    cache: Lagging,
    share: Arc<Share>,
    inode: Inode,
    data: Vec<u8>,
}

impl Scene {
    async fn new(seed: u64, length: u64) -> Scene {
        Scene::with(Stage::new(seed), length).await
    }

    async fn with(stage: Stage, length: u64) -> Scene {
        let cache = Lagging { volume: stage.cache.clone(), state: Arc::default() };
        let share = open(&stage, &cache).await;
        let data = content(1, length as usize);
        let inode = file(&share, "a", &data).await;
        Scene { stage, cache, share, inode, data: data.to_vec() }
    }

    /// Writes content of this seed, and expects it in the file.
    async fn write(&mut self, at: u64, length: u64, stability: Stability, seed: u64) -> Result<(), FileError> {
        let data = content(seed, length as usize);
        self.share.write(&ROOT, self.inode, at, vec![data.clone()], stability).await?;
        self.expect(at, &data);
        Ok(())
    }

    fn expect(&mut self, at: u64, data: &Bytes) {
        let end = at as usize + data.len();
        self.data.resize(self.data.len().max(end), 0);
        self.data[at as usize..end].copy_from_slice(data);
    }

    async fn is_as_expected(&self) -> bool {
        read(&self.share, self.inode).await == self.data
    }

    /// Power fails, and the server starts again.
    async fn crash(&mut self) {
        self.cache.state().waiting.clear();
        self.cache.release(None);
        self.cache.volume.power_on();
        self.share = open(&self.stage, &self.cache).await;
    }
}

async fn open(stage: &Stage, cache: &Lagging) -> Arc<Share> {
    let ground = Ground {
        archive: stage.archive().await.clone(),
        cache: Handle::new(cache.clone()),
        cache_unit: CACHE_UNIT,
        surroundings: stage.clock.clone(),
    };
    let root = Root { owner: (0, 0), mode: 0o755 };
    Share::open(ground, NAME, 1, stage.settings.clone(), root).await.expect("the share opens")
}

/// The call waits, however long tasks run.
async fn waits<F: Future>(mut call: Pin<&mut F>) -> bool {
    for _ in 0..100 {
        if poll!(call.as_mut()).is_ready() {
            return false;
        }
        tokio::task::yield_now().await;
    }
    true
}

#[tokio::test(start_paused = true)]
async fn a_small_write_is_answered_before_it_is_durable() {
    for (seed, at, length) in [(1, 8192, BLOCK), (2, 8192, SLOT - BLOCK), (3, 5000, 100), (4, 50 * BLOCK, BLOCK)] {
        let mut scene = Scene::new(seed, 25 * BLOCK).await;
        let before = scene.data.clone();
        scene.cache.hold();
        scene.write(at, length, Stability::Unstable, 7).await.expect("an answer");
        assert!(scene.is_as_expected().await, "a read does not see the write at {at}");
        scene.crash().await;
        scene.data = before;
        assert!(scene.is_as_expected().await, "the write at {at} was durable");
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_waits_for_the_writes_behind() {
    // A block that no record shows yet; and one over recorded content, which takes no transaction.
    for at in [50 * BLOCK, BLOCK] {
        let mut scene = Scene::new(1, 25 * BLOCK).await;
        scene.cache.hold();
        scene.write(at, BLOCK, Stability::Unstable, at).await.expect("an answer");
        let share = Arc::clone(&scene.share);
        let mut commit = Box::pin(share.commit(scene.inode));
        assert!(waits(commit.as_mut()).await, "a commit was answered before its flush");
        scene.cache.release(None);
        commit.await.expect("a commit");
        scene.crash().await;
        assert!(scene.is_as_expected().await, "a commit did not make the write at {at} durable");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_size_waits_for_the_writes_behind() {
    for size in [99_000, 200_000_u64] {
        let mut scene = Scene::new(1, 25 * BLOCK).await;
        scene.cache.hold();
        scene.write(BLOCK, BLOCK, Stability::Unstable, 2).await.expect("an answer");
        let (share, inode) = (Arc::clone(&scene.share), scene.inode);
        let changes = Changes { size: Some(size), ..Changes::default() };
        let mut resize = Box::pin(share.set_attributes(&ROOT, inode, changes, None));
        assert!(waits(resize.as_mut()).await, "a new size was answered before its flush");
        scene.cache.release(None);
        resize.await.expect("a new size");
        scene.data.resize(size as usize, 0);
        scene.crash().await;
        assert!(scene.is_as_expected().await);
    }
}

#[tokio::test(start_paused = true)]
async fn archiving_waits_for_the_writes_behind() {
    let mut scene = Scene::new(1, 25 * BLOCK).await;
    scene.cache.hold();
    scene.write(BLOCK, BLOCK, Stability::Unstable, 2).await.expect("an answer");
    let share = Arc::clone(&scene.share);
    let mut archiving = Box::pin(share.archive_now(scene.inode));
    assert!(waits(archiving.as_mut()).await, "a file was archived before its flush");
    scene.cache.release(None);
    archiving.await.expect("it is archived");
    scene.crash().await;
    assert!(scene.is_as_expected().await);
}

#[tokio::test(start_paused = true)]
async fn other_writes_are_answered_when_they_are_durable() {
    let cases = [
        ("goes on where the last ended", 2 * SLOT, BLOCK, Stability::Unstable, Caching::On),
        ("64 KiB", 0, SLOT, Stability::Unstable, Caching::On),
        ("more than that in part of its blocks", 100, SLOT, Stability::Unstable, Caching::On),
        ("DATA_SYNC", BLOCK, BLOCK, Stability::Data, Caching::On),
        ("FILE_SYNC", BLOCK, BLOCK, Stability::File, Caching::On),
        ("a cache that is off", BLOCK, BLOCK, Stability::Unstable, Caching::Off),
    ];
    for (name, at, length, stability, caching) in cases {
        let mut scene = Scene::new(1, 2 * SLOT).await;
        scene.share.set_settings(Settings { caching, ..scene.share.settings() });
        scene.cache.hold();
        let data = content(2, length as usize);
        let (share, inode) = (Arc::clone(&scene.share), scene.inode);
        let mut write = Box::pin(share.write(&ROOT, inode, at, vec![data.clone()], stability));
        assert!(waits(write.as_mut()).await, "{name}: answered early");
        scene.cache.release(None);
        write.await.expect("a write");
        scene.expect(at, &data);
        assert!(scene.is_as_expected().await, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_writes_than_the_limit_are_behind() {
    let mut scene = Scene::new(1, 300 * BLOCK).await;
    for round in 0..2 {
        scene.cache.hold();
        // From the end to the begin: none goes on where another ended.
        for number in (0..BEHIND_MAX as u64).rev() {
            scene.write(2 * number * BLOCK, BLOCK, Stability::Unstable, round << 32 | number).await.expect("an answer");
        }
        let data = content(9, BLOCK as usize);
        let (share, inode) = (Arc::clone(&scene.share), scene.inode);
        let mut further = Box::pin(share.write(&ROOT, inode, 299 * BLOCK, vec![data.clone()], Stability::Unstable));
        assert!(waits(further.as_mut()).await, "one write more than {BEHIND_MAX} was answered early");
        scene.cache.release(None);
        further.await.expect("a write");
        scene.expect(299 * BLOCK, &data);
        assert!(scene.is_as_expected().await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_before_the_order_reaches_the_writer() {
    let mut scene = Scene::new(1, 25 * BLOCK).await;
    for (fault, error) in [(MediaFault::Full, Some(FileError::NoSpace)), (MediaFault::Retry, None)] {
        // Those that failed are not behind.
        for number in 0..=BEHIND_MAX as u64 {
            scene.cache.state().fault = Some(fault);
            let failed = scene.write(BLOCK, BLOCK, Stability::Unstable, number).await.expect_err("no order");
            match &error {
                Some(error) => assert_eq!(failed, *error),
                None => assert!(matches!(failed, FileError::Retry(_)), "{failed}"),
            }
        }
        assert!(scene.is_as_expected().await);
    }
    scene.cache.hold();
    scene.write(BLOCK, BLOCK, Stability::Unstable, 3).await.expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn a_commit_fails_with_the_writes_behind() {
    let mut scene = Scene::new(1, 25 * BLOCK).await;
    scene.cache.hold();
    scene.write(50 * BLOCK, BLOCK, Stability::Unstable, 2).await.expect("an answer");
    let share = Arc::clone(&scene.share);
    let mut commit = Box::pin(share.commit(scene.inode));
    assert!(waits(commit.as_mut()).await);
    scene.cache.release(Some(MediaFault::Gone));
    assert!(commit.await.is_err(), "a commit was answered whose writes are gone");
}

#[tokio::test(start_paused = true)]
async fn the_gate_is_held_until_a_write_is_ordered() {
    let mut scene = Scene::new(1, 25 * BLOCK).await;
    let (share, inode) = (Arc::clone(&scene.share), scene.inode);
    let gate = share.step(|core| Ok(Arc::clone(&core.content(inode.0)?.1.gate))).expect("the gate");
    scene.cache.hold_orders();
    let data = content(2, BLOCK as usize);
    let mut write = Box::pin(share.write(&ROOT, inode, BLOCK, vec![data.clone()], Stability::Unstable));
    assert!(waits(write.as_mut()).await, "a write was answered without an order");
    // Also where the caller goes away: a late write into a slot of another file would be damage.
    drop(write);
    assert!(gate.try_write().is_err(), "the gate is free before the order");
    scene.cache.order();
    assert!(gate.try_write().is_ok(), "the gate is held after the order");
    scene.expect(BLOCK, &data);
    // Writes that change the same block in part have the gate alone, one after the other.
    scene.write(BLOCK + 10, 100, Stability::Unstable, 3).await.expect("an answer");
    scene.write(BLOCK + 50, 100, Stability::Unstable, 4).await.expect("an answer");
    assert!(scene.is_as_expected().await);
    scene.cache.release(None);
    scene.share.commit(inode).await.expect("a commit");
    scene.crash().await;
    assert!(scene.is_as_expected().await);
}

#[tokio::test(start_paused = true)]
async fn a_version_has_a_write_whose_caller_went_away() {
    let mut scene = Scene::new(1, 25 * BLOCK).await;
    let (share, inode) = (Arc::clone(&scene.share), scene.inode);
    let gate = share.step(|core| Ok(Arc::clone(&core.content(inode.0)?.1.gate))).expect("the gate");
    // Nothing is left to save, so that archiving needs no flush.
    share.save_all().await.expect("saved");
    scene.cache.hold_orders();
    let data = content(2, BLOCK as usize);
    let mut write = Box::pin(share.write(&ROOT, inode, BLOCK, vec![data.clone()], Stability::Unstable));
    assert!(waits(write.as_mut()).await, "a write was answered without an order");
    drop(write);
    let mut archiving = Box::pin(share.archive_now(inode));
    assert!(waits(archiving.as_mut()).await, "a file was archived while a write was on its way");
    // It has read all of the file, and waits for the gate.
    assert!(gate.try_read().is_err());
    scene.cache.order();
    scene.cache.release(None);
    archiving.await.expect("it is archived");
    scene.expect(BLOCK, &data);
    assert!(scene.is_as_expected().await, "the cache has another content");
    // What the cache held goes, and the version alone has the content.
    share.set_settings(Settings { caching: Caching::Off, ..share.settings() });
    share.room_round().await.expect("a round");
    assert_eq!(share.status().expect("a status").cache_used, 0);
    assert!(scene.is_as_expected().await, "the version has another content than the cache had");
}
