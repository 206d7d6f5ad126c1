//! Sessions and epochs: how segments are removed beside running backups.
//!
//! A backup begins a session before it looks at anything. A prune condemns segments that no
//! snapshot references, in a new epoch. It removes them two epochs later, if no snapshot references
//! them then and every live session began in the epoch before, the latest one that the prune found.
//! A session ignores condemned segments, so it stores their chunks again.
//!
//! Why this is safe for a session that reuses a chunk of segment S:
//!
//! 1. S was condemned before the session read the list: then the session did not see S, and stored
//!    the chunk.
//! 2. S was condemned later, in epoch C: then the session began in an epoch before C. While it
//!    lives, no prune that finds C or a later epoch removes S. When it ends, its snapshot is
//!    committed, and prune reads the snapshots after it read the sessions. Or the backup failed
//!    before the commit, and there will be none. This holds for a planted epoch too, whatever it
//!    says about the time of the condemnation.
//! 3. The agent died: its session ends after [`SESSION_SECONDS`] without a renewal. A living agent
//!    that could not renew for half of that time has lapsed for good: it renews no more, and does
//!    not commit. It measures with its own clock and with the store's, because a virtual machine
//!    that stands still has no clock that shows it.
//! 4. The agent stood still between its last look at the clocks and the commit: it looks again
//!    behind the commit, and takes the snapshot back.
//! 5. Another writer replaced the session or an epoch, which needs no key. Behind the commit the
//!    agent compares what its snapshot needs with the segments that are there, and takes it back if
//!    one is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Closed;
use crate::codec::{Decoder, put_varint};
use crate::crypt::hex;
use crate::error::{BackupError, Result};
use crate::newer;
use crate::references::References;
use crate::segment::SegmentId;
use crate::snapshot::SnapshotId;
use crate::store::{Folder, Name};

const SESSION_MAGIC: [u8; 8] = *b"STLBSES1";
const EPOCH_MAGIC: [u8; 8] = *b"STLBEPO1";
const SESSION_BYTES_MAX: u64 = 64;
/// Bytes of the longest epoch: 16 million condemned segments.
const EPOCH_BYTES_MAX: u64 = 1 << 30;

/// What to do about an epoch that is damaged. Without it nothing counts as condemned, and no
/// running backup may have read its list.
const DAMAGED_EPOCH: &str = "bring the object back from a copy, or remove it while no backup runs: \
    the next prune begins anew";

/// Looks for the latest epoch, if each that is found has gone when it is read.
const LOOKS_MAX: u32 = 10;
/// A session that was not renewed for so long, by the store's clock, has ended.
pub const SESSION_SECONDS: u64 = 86_400;
/// A session that was not renewed for so long commits no more.
pub const LAPSE_SECONDS: u64 = SESSION_SECONDS / 2;
/// A session renews itself this often.
pub const RENEWAL_SECONDS: u64 = 3600;

/// The segments that are condemned, each with the epoch of its condemnation.
pub type Condemned = BTreeMap<SegmentId, u64>;

/// The latest epoch. Zero: nothing was ever pruned.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Epoch {
    pub number: u64,
    pub condemned: Condemned,
}

impl Epoch {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = EPOCH_MAGIC.to_vec();
        bytes.extend_from_slice(&self.number.to_le_bytes());
        put_varint(&mut bytes, self.condemned.len() as u64);
        for (segment, epoch) in &self.condemned {
            bytes.extend_from_slice(&segment.0);
            bytes.extend_from_slice(&epoch.to_le_bytes());
        }
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Epoch> {
        if let Some(error) = newer::refusal_of_sealed("the latest epoch of prune", bytes, &EPOCH_MAGIC) {
            return Err(error);
        }
        let mut decoder = Decoder::new(bytes, "epoch");
        if decoder.array()? != EPOCH_MAGIC {
            return Err(decoder.damaged("it begins as no epoch does"));
        }
        let number = decoder.u64()?;
        let mut condemned = Condemned::new();
        for _ in 0..decoder.count(40)? {
            condemned.insert(SegmentId(decoder.array()?), decoder.u64()?);
        }
        let body = bytes.len() - decoder.left();
        let hash: [u8; 32] = decoder.array()?;
        decoder.end()?;
        if bytes.get(..body).map(blake3::hash) != Some(hash.into()) {
            return Err(decoder.damaged("its hash differs"));
        }
        Ok(Epoch { number, condemned })
    }
}

/// A session as prune sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionState {
    /// The epoch in which it began.
    pub epoch: u64,
    pub ended: bool,
}

impl SessionState {
    fn encode(self) -> Vec<u8> {
        [SESSION_MAGIC.as_slice(), &self.epoch.to_le_bytes(), &[u8::from(self.ended)]].concat()
    }

    pub fn decode(bytes: &[u8]) -> Result<SessionState> {
        let mut decoder = Decoder::new(bytes, "session");
        if decoder.array()? != SESSION_MAGIC {
            return Err(decoder.damaged("it begins as no session that is known"));
        }
        let (epoch, ended) = (decoder.u64()?, decoder.byte()?);
        decoder.end()?;
        if ended > 1 {
            return Err(decoder.damaged("its state is unknown"));
        }
        Ok(SessionState { epoch, ended: ended == 1 })
    }
}

impl Closed {
    /// The name of the latest epoch. None: nothing was ever pruned.
    pub fn latest_epoch(&self) -> Result<Option<Name>> {
        let mut latest: Option<Name> = None;
        self.store.list(Folder::Epochs, &mut |listed| {
            // Objects of other names are no epochs.
            latest = latest.take().max(Some(listed.name).filter(|name| name.id::<8>().is_some()));
            Ok(())
        })?;
        Ok(latest)
    }

    pub fn epoch(&self) -> Result<Epoch> {
        let mut looks = 0;
        let (name, bytes) = loop {
            let Some(name) = self.latest_epoch()? else { return Ok(Epoch::default()) };
            looks += 1;
            match self.store.get(&name, EPOCH_BYTES_MAX) {
                // A prune stored the next one, and removed this one behind the list.
                Err(BackupError::Missing(_)) if looks < LOOKS_MAX => {}
                bytes => break (name, bytes),
            }
        };
        let damaged = |why: &str| BackupError::Damaged(format!("{}: {why}; {DAMAGED_EPOCH}", name.text()));
        match bytes.and_then(|bytes| Epoch::decode(&bytes)) {
            Ok(epoch) if Name::epoch(epoch.number) == name => Ok(epoch),
            Ok(_) => Err(damaged("it is an epoch of another number")),
            Err(BackupError::Damaged(text)) => Err(damaged(&text)),
            Err(error) => Err(error),
        }
    }

    /// Stores the next epoch. If another prune did so first, this one must not go on.
    pub fn advance(&self, epoch: &Epoch) -> Result<()> {
        self.store.create(&Name::epoch(epoch.number), &epoch.encode()).map_err(|error| match error {
            BackupError::Exists(_) => BackupError::Locked("another prune runs in this repository".to_owned()),
            other => other,
        })
    }

    /// Begins a session, and gives the latest epoch: segments condemned there do not count as
    /// stored.
    pub fn begin_session(&self) -> Result<(Session, Epoch)> {
        let mut id = [0; 16];
        self.surroundings.entropy(&mut id);
        let state = SessionState { epoch: self.epoch()?.number, ended: false };
        let renewal = Renewal { measured: self.surroundings.elapsed(), dated: self.store.now()?, is_last: false };
        let session = Session { closed: self.clone(), id, state, renewal: Mutex::new(renewal) };
        self.store.create(&session.name(), &state.encode())?;
        // Only now: a prune that condemns from here on sees the session.
        let epoch = self.epoch().inspect_err(|_| session.abandon())?;
        Ok((session, epoch))
    }

    /// The sessions that live, and the names of those that have ended.
    pub fn sessions(&self) -> Result<(Vec<SessionState>, Vec<Name>)> {
        let now = self.store.now()?;
        let (mut live, mut ended, mut names) = (Vec::new(), Vec::new(), Vec::new());
        self.store.list(Folder::Sessions, &mut |listed| {
            names.push(listed);
            Ok(())
        })?;
        for listed in names {
            let state = match self.store.get(&listed.name, SESSION_BYTES_MAX) {
                Err(BackupError::Missing(_)) => continue,
                bytes => bytes.and_then(|bytes| SessionState::decode(&bytes)),
            };
            let state = match state {
                // One that cannot be read counts as the oldest possible until it is too old.
                Err(BackupError::Damaged(_)) => SessionState { epoch: 0, ended: false },
                state => state?,
            };
            if state.ended || listed.stored + SESSION_SECONDS < now {
                ended.push(listed.name);
            } else {
                live.push(state);
            }
        }
        Ok((live, ended))
    }
}

/// A running backup. Dropped without an end, it holds back the removal of segments for a day.
pub struct Session {
    closed: Closed,
    id: [u8; 16],
    state: SessionState,
    /// Locked while it is renewed: every thread of a backup may find that it is time.
    renewal: Mutex<Renewal>,
}

/// When a session was renewed last.
#[derive(Clone, Copy)]
struct Renewal {
    /// By the clock that only measures.
    measured: u64,
    /// By the store's clock, read before the renewal.
    dated: u64,
    /// Whether the session has ended.
    is_last: bool,
}

impl Session {
    fn name(&self) -> Name {
        Name::of(Folder::Sessions, &self.id)
    }

    fn renewal(&self) -> MutexGuard<'_, Renewal> {
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the session if it is time. One that has lapsed stays so: prune may have ended it
    /// meanwhile. One that has ended stays so too, while threads of a failed backup still store.
    pub fn keep_alive(&self) -> Result<()> {
        let mut renewal = self.renewal();
        if renewal.is_last {
            return Ok(());
        }
        let measured = self.closed.surroundings.elapsed();
        if measured.saturating_sub(renewal.measured) >= RENEWAL_SECONDS {
            let dated = self.check_since(*renewal)?;
            self.closed.store.replace(&self.name(), &self.state.encode())?;
            *renewal = Renewal { measured, dated, is_last: false };
        }
        Ok(())
    }

    /// Seconds since the last renewal, by the clock that shows more.
    fn silent(&self, renewal: Renewal, now: u64) -> u64 {
        let measured = self.closed.surroundings.elapsed().saturating_sub(renewal.measured);
        measured.max(now.saturating_sub(renewal.dated))
    }

    /// Whether the session may commit: prune cannot have ended it. Gives the time of the store.
    pub fn check(&self) -> Result<u64> {
        let renewal = *self.renewal();
        self.check_since(renewal)
    }

    fn check_since(&self, renewal: Renewal) -> Result<u64> {
        let now = self.closed.store.now()?;
        let silent = self.silent(renewal, now);
        if silent < LAPSE_SECONDS {
            return Ok(now);
        }
        let id = hex(&self.id);
        Err(BackupError::Failed(format!("session {id} was not renewed for {silent} seconds; repeat the backup")))
    }

    /// Looks at the clocks and at the segments behind the commit. If prune may have ended the
    /// session before it, or if a segment is gone, removes the snapshot.
    pub fn confirm(&self, snapshot: &SnapshotId, references: &References) -> Result<()> {
        // The snapshot is there. A store that does not tell the time now is no reason to take it
        // back.
        let renewal = *self.renewal();
        let silent = self.silent(renewal, self.closed.store.now().unwrap_or(0));
        if silent >= SESSION_SECONDS {
            let why = format!("the backup stood still for {silent} seconds, and prune may have removed what it needs");
            return self.take_back(snapshot, &why);
        }
        let mut gone: BTreeSet<&SegmentId> = references.0.keys().collect();
        self.closed.store.list(Folder::Segments, &mut |listed| {
            if let Some(id) = listed.name.id() {
                gone.remove(&SegmentId(id));
            }
            Ok(())
        })?;
        match gone.len() {
            0 => Ok(()),
            1 => self.take_back(snapshot, "1 segment that the backup needs was removed meanwhile"),
            gone => self.take_back(snapshot, &format!("{gone} segments that the backup needs were removed meanwhile")),
        }
    }

    fn take_back(&self, snapshot: &SnapshotId, why: &str) -> Result<()> {
        match self.closed.store.remove(&Name::of(Folder::Snapshots, &snapshot.0)) {
            Ok(()) | Err(BackupError::Missing(_)) => Err(BackupError::Failed(format!("{why}; repeat it"))),
            Err(error) => Err(BackupError::Failed(format!(
                "{why}; repeat it, and remove snapshot {snapshot}, which could not be removed: {error}"
            ))),
        }
    }

    /// The last renewal of the session is its end.
    pub fn end(&self) -> Result<()> {
        let mut renewal = self.renewal();
        renewal.is_last = true;
        let ended = SessionState { ended: true, ..self.state };
        self.closed.store.replace(&self.name(), &ended.encode())
    }

    /// Ends the session of a backup that failed before its snapshot was on its way to the store. No
    /// snapshot will need what it stored, and what other backups need of that, their own sessions
    /// protect. If that fails, the session ends after its day.
    pub fn abandon(&self) {
        if let Err(BackupError::Full(_)) = self.end() {
            // In a full store there may be no room for an end, and prune must make some.
            let _ = self.closed.store.remove(&self.name());
        }
    }

    /// Ends the session and removes its object, as the next prune would do.
    pub fn remove(&self) -> Result<()> {
        self.end()?;
        self.closed.store.remove(&self.name())
    }
}

#[cfg(test)]
mod tests;
