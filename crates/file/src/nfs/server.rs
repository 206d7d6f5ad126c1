//! The state that all connections share: exports, options, locks, counters, and the answers to
//! repeated calls.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::Files;
use crate::locks::Locks;

use super::budget::Budget;
use super::counters::Counters;
use super::export::{AwaitedExport, Export, ExportError, Exports};
use super::handle::HandleKey;
use super::nlm::Pending;
use super::notify::Reboots;
use super::replay::Replays;
use super::v4::Clients;
use super::v4::clients::ClosedFile;

/// Mounts that DUMP lists. The oldest one goes first; the list is for people and decides nothing.
const MOUNTS_MAX: usize = 1024;

/// Whether clients may or must speak TLS (RFC 9289).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tls {
    Off,
    Offered,
    Required,
}

/// The limits of a server and of each connection.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests under way on one connection.
    pub requests_max: usize,
    /// Bytes of requests under way, and of answers that are not sent, on one connection.
    pub bytes_max: usize,
    /// The same on all connections together, and on those of one address. Beyond it, a connection
    /// has one call at a time.
    pub all_bytes_max: usize,
    pub address_bytes_max: usize,
    /// How long a record may take from its first byte to its last.
    pub record_patience: Duration,
    /// How long a client may take to take all of its answers that wait, or 256 KiB of them.
    pub write_patience: Duration,
    /// How long a connection may stay without a call.
    pub idle_patience: Duration,
    /// The same, for an address that no export admits.
    pub stranger_patience: Duration,
    /// How long after the start, or after the listener opened, only earlier locks are taken, by
    /// clients that had them. Zero after a first start.
    pub grace: Duration,
    pub tls: Tls,
    /// A number that no other start of this server has: the names of clients of version 4.1 begin
    /// with it.
    pub instance: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            requests_max: 256,
            bytes_max: 16 << 20,
            all_bytes_max: 1 << 30,
            address_bytes_max: 256 << 20,
            record_patience: Duration::from_secs(30),
            write_patience: Duration::from_secs(60),
            idle_patience: Duration::from_secs(15 * 60),
            stranger_patience: Duration::from_secs(30),
            grace: Duration::from_secs(45),
            tls: Tls::Off,
            instance: 0,
        }
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// The stream is encrypted.
    pub secure: bool,
}

/// An NFS server over gateways of one kind.
pub struct Server<F> {
    pub(super) handles: HandleKey,
    pub(super) options: Options,
    pub(super) budget: Arc<Budget>,
    pub(super) locks: Arc<Locks>,
    pub(super) replays: Replays,
    pub(super) reboots: Reboots,
    /// LOCKs of NLM under way.
    pub(super) pending: Arc<Pending>,
    pub(super) clients: Clients,
    pub(super) mounts: Mutex<VecDeque<(String, String)>>,
    counters: Counters,
    exports: RwLock<Arc<Exports<F>>>,
    /// Rises with every change of the exports, so that a connection looks at them without a lock.
    generation: AtomicU64,
    grace_ends: RwLock<Instant>,
    /// The same for shares that opened behind the listener, by number.
    late_ends: Mutex<BTreeMap<u32, Instant>>,
}

/// Whether clients may open and lock, or only claim what they had before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grace {
    Over,
    /// After the start: a client claims before it says that it has nothing more to claim.
    Start,
    /// After a share opened late: also clients that said so claim its files. They could not before.
    Late,
}

impl<F> Server<F> {
    /// `secret` signs handles: with another one, clients find their handles bad. `locks` is shared
    /// by all protocols. `state` is this start's number for NSM: odd, and larger than that of the
    /// start before.
    pub fn new(secret: [u8; 32], state: u32, locks: Arc<Locks>, options: Options) -> Server<F> {
        Server {
            handles: HandleKey::new(secret),
            grace_ends: RwLock::new(Instant::now() + options.grace),
            clients: Clients::new(secret, options.instance, locks.clone()),
            budget: Arc::new(Budget::new(options.all_bytes_max, options.address_bytes_max)),
            options,
            locks,
            replays: Replays::default(),
            reboots: Reboots::new(state),
            pending: Arc::default(),
            mounts: Mutex::default(),
            counters: Counters::default(),
            exports: RwLock::default(),
            generation: AtomicU64::new(0),
            late_ends: Mutex::default(),
        }
    }

    /// Serves another share, also to connections that are open already.
    pub fn add(&self, export: Export<F>) -> Result<(), ExportError> {
        self.change(|exports| exports.add(export))
    }

    /// Says whether there was such a share. Requests under way finish; later ones find their
    /// handles stale.
    pub fn remove(&self, share: u32) -> bool {
        let known = self.change(|exports| exports.remove(share));
        // A call under way that makes an open or a lock after that takes it back: see `serves`.
        self.clients.forget_share(share);
        self.locks.forget_share(share);
        known
    }

    /// Replaces the export of the same share, or adds it.
    pub fn replace(&self, export: Export<F>) -> Result<(), ExportError> {
        let share = export.share;
        let mut export = Some(export);
        self.change(|exports| {
            let mut next = exports.clone();
            next.remove(share);
            export.take().map_or(Ok(()), |export| next.add(export))?;
            *exports = next;
            Ok(())
        })
    }

    /// The shares that are to be exported once they open. A call with a handle of one is to be
    /// tried again, and one with a handle of an unknown share is stale.
    pub fn expect(&self, mut shares: BTreeMap<u32, AwaitedExport>) {
        let exports = self.exports();
        shares.retain(|share, _| exports.get(*share).is_none());
        // Clients compare a number that rises with each change.
        if *exports.awaited() != shares {
            self.change(|exports| exports.set_awaited(shares));
        }
    }

    pub fn exports(&self) -> Arc<Exports<F>> {
        self.exports.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the share is exported. A call that has made an open or a lock asks: `remove` forgets
    /// only those that were made before.
    pub(super) fn serves(&self, share: u32) -> bool {
        self.exports().get(share).is_some()
    }

    /// The table of all protocols.
    pub fn locks(&self) -> &Arc<Locks> {
        &self.locks
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Hosts with locks, and what to tell them after the next start.
    pub fn reboots(&self) -> &Reboots {
        &self.reboots
    }

    /// The clients of version 4.1.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Rises with every change of the exports, also over restarts.
    pub(super) fn exports_change(&self) -> u64 {
        u64::from(self.options.instance) << 32 | self.generation() & u64::from(u32::MAX)
    }

    /// The listener opens now. The shares may have opened long before: clients have the whole grace
    /// period from the moment at which they reach the server.
    pub fn begin_grace(&self) {
        self.late_ends.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *self.grace_ends.write().unwrap_or_else(PoisonError::into_inner) = Instant::now() + self.options.grace;
    }

    /// A share opens that clients may have used before the start. They have the whole grace period
    /// from the moment at which they reach its files.
    pub fn begin_grace_of(&self, share: u32) {
        let now = Instant::now();
        let mut late = self.late_ends.lock().unwrap_or_else(PoisonError::into_inner);
        late.retain(|_, ends| now < *ends);
        late.insert(share, now + self.options.grace);
    }

    /// Of the files of a share; None: of what is no share's.
    pub(super) fn grace(&self, share: Option<u32>) -> Grace {
        let now = Instant::now();
        let late = self.late_ends.lock().unwrap_or_else(PoisonError::into_inner);
        if share.and_then(|share| late.get(&share)).is_some_and(|ends| now < *ends) {
            return Grace::Late;
        }
        drop(late);
        match now < *self.grace_ends.read().unwrap_or_else(PoisonError::into_inner) {
            true => Grace::Start,
            false => Grace::Over,
        }
    }

    pub(super) fn mounted(&self, host: String, path: String) {
        let mut mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        mounts.retain(|mount| mount.0 != host || mount.1 != path);
        if mounts.len() >= MOUNTS_MAX {
            mounts.pop_front();
        }
        mounts.push_back((host, path));
    }

    /// Of one path, or of all.
    pub(super) fn unmounted(&self, host: &str, path: Option<&[u8]>) {
        let mut mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        mounts.retain(|mount| mount.0 != host || path.is_some_and(|path| path != mount.1.as_bytes()));
    }
}

impl<F: Files> Server<F> {
    /// Ends the opens and locks of version 4.1's clients that are silent for longer than a lease.
    pub async fn expire(&self) {
        let ended = self.clients.expire(Instant::now());
        self.tell(ended).await;
    }

    /// Tells the shares of uses of files that have ended.
    pub(super) async fn tell(&self, ended: Vec<ClosedFile>) {
        if ended.is_empty() {
            return;
        }
        let exports = self.exports();
        for ClosedFile { file, writes } in ended {
            if let Some(export) = exports.get(file.share) {
                export.files.closed(file.inode, writes).await;
            }
        }
    }
}

impl<F> Server<F> {
    fn change<R>(&self, change: impl FnOnce(&mut Exports<F>) -> R) -> R {
        let mut exports = self.exports.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = Exports::clone(&exports);
        let result = change(&mut next);
        *exports = Arc::new(next);
        self.generation.fetch_add(1, Ordering::Release);
        result
    }
}
