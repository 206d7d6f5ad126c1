//! The answers to calls that must not be performed twice, in case their client repeats them.
//!
//! A client that loses its connection repeats the calls that were not answered. A repeated REMOVE
//! would find the name gone and fail although it succeeded. A call is recognised by the client's
//! address and port, and a digest of the whole call with its xid. The port counts because simple
//! clients begin every connection with the same xid; the kernel's clients repeat calls from the
//! port that they had.
//!
//! A call under way is known as well, however long it takes: its repetition waits for it and is not
//! performed beside it. That holds for WRITE too, whose answer is not kept. A copy of a WRITE that
//! is performed late would otherwise overwrite what the client wrote after the other copy was
//! answered.
//!
//! Bounded: [`PEERS_MAX`] addresses with [`ANSWERS_MAX`] answers each. The oldest answer of an
//! address goes first, and the quietest address of the machine that has the most of them. An answer
//! is used for [`AGE_MAX`], after which a client may reuse the number of a call. Calls under way
//! are bounded by the limits of connections.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_channel::oneshot;
use tokio::time::Instant;

pub const PEERS_MAX: usize = 1024;
pub const ANSWERS_MAX: usize = 256;
pub const AGE_MAX: Duration = Duration::from_secs(120);

type Key = [u8; 16];

/// The answer to a call that came before.
pub enum Earlier {
    Known(Bytes),
    /// Once the call is performed.
    Coming(oneshot::Receiver<Bytes>),
}

#[derive(Default)]
pub struct Replays(Arc<Mutex<Peers>>);

#[derive(Default)]
struct Peers {
    under_way: HashMap<(SocketAddr, Key), UnderWay>,
    answers: HashMap<SocketAddr, Answers>,
    /// Rises with every call; says which peer was quiet the longest.
    calls: u64,
}

struct UnderWay {
    /// The whole call, where the key is of a part of it.
    record: Option<Bytes>,
    /// Calls that wait for its answer.
    waiting: Vec<oneshot::Sender<Bytes>>,
}

#[derive(Default)]
struct Answers {
    by_key: HashMap<Key, (Instant, Bytes)>,
    order: VecDeque<Key>,
    used: u64,
}

/// Whether a call came before.
pub enum Repeated {
    /// Perform it, and tell the ticket its answer.
    No(ReplayTicket),
    /// It is answered, or will be once it is performed.
    Yes(Earlier),
    /// Another call with the same number and length is under way: wait for its end, and let the
    /// client ask again.
    Other(Earlier),
}

/// A call under way. Dropped without an answer, it is forgotten; so is one whose answer is only
/// shared.
pub struct ReplayTicket {
    replays: Arc<Mutex<Peers>>,
    place: (SocketAddr, Key),
    is_done: bool,
}

impl Replays {
    /// The call as it came, with its xid.
    pub fn begin(&self, peer: SocketAddr, record: &[u8]) -> Repeated {
        let key = key(&blake3::hash(record));
        let now = Instant::now();
        let mut peers = lock(&self.0);
        if let Some(under_way) = peers.under_way.get_mut(&(peer, key)) {
            return Repeated::Yes(under_way.answer());
        }
        peers.calls += 1;
        let calls = peers.calls;
        if let Some(answers) = peers.answers.get_mut(&peer) {
            answers.used = calls;
            match answers.by_key.get(&key) {
                Some((at, answer)) if now.duration_since(*at) < AGE_MAX => {
                    return Repeated::Yes(Earlier::Known(answer.clone()));
                }
                Some(_) => answers.forget(&key),
                None => {}
            }
        }
        Repeated::No(self.ticket(&mut peers, (peer, key), None))
    }

    /// A WRITE, as it came. Only one that is under way is found again: by its xid and length, and
    /// then by all of it. So nothing is digested.
    pub fn begin_write(&self, peer: SocketAddr, record: &Bytes) -> Repeated {
        let xid = record.first_chunk().copied().map_or(0, u32::from_be_bytes);
        let key = (u128::from(xid) << 64 | record.len() as u128).to_be_bytes();
        let mut peers = lock(&self.0);
        match peers.under_way.get_mut(&(peer, key)) {
            Some(under_way) if under_way.record.as_ref() == Some(record) => Repeated::Yes(under_way.answer()),
            Some(other) => Repeated::Other(other.answer()),
            // The request holds these bytes as well, as long as it is under way.
            None => Repeated::No(self.ticket(&mut peers, (peer, key), Some(record.clone()))),
        }
    }

    fn ticket(&self, peers: &mut Peers, place: (SocketAddr, Key), record: Option<Bytes>) -> ReplayTicket {
        peers.under_way.insert(place, UnderWay { record, waiting: Vec::new() });
        ReplayTicket { replays: self.0.clone(), place, is_done: false }
    }
}

fn key(digest: &blake3::Hash) -> Key {
    digest.as_bytes().first_chunk().copied().unwrap_or_default()
}

impl UnderWay {
    fn answer(&mut self) -> Earlier {
        let (sender, receiver) = oneshot::channel();
        self.waiting.push(sender);
        Earlier::Coming(receiver)
    }
}

impl Peers {
    fn keep(&mut self, (peer, key): (SocketAddr, Key), answer: Bytes) {
        if self.answers.len() >= PEERS_MAX && !self.answers.contains_key(&peer) {
            self.forget_one();
        }
        self.calls += 1;
        let calls = self.calls;
        let answers = self.answers.entry(peer).or_default();
        answers.used = calls;
        if answers.order.len() >= ANSWERS_MAX {
            answers.order.pop_front().and_then(|oldest| answers.by_key.remove(&oldest));
        }
        answers.by_key.insert(key, (Instant::now(), answer));
        answers.order.push_back(key);
    }

    /// Forgets the quietest port of the machine that has the most ports, so that no machine drives
    /// out the others.
    fn forget_one(&mut self) {
        let mut ports: HashMap<IpAddr, usize> = HashMap::new();
        for peer in self.answers.keys() {
            *ports.entry(peer.ip()).or_default() += 1;
        }
        let most = ports.values().copied().max();
        let of_most = self.answers.iter().filter(|(peer, _)| ports.get(&peer.ip()).copied() == most);
        let quiet = of_most.min_by_key(|(_, answers)| answers.used).map(|(peer, _)| *peer);
        quiet.and_then(|quiet| self.answers.remove(&quiet));
    }
}

impl Answers {
    fn forget(&mut self, key: &Key) {
        self.by_key.remove(key);
        self.order.retain(|other| other != key);
    }
}

impl ReplayTicket {
    /// The whole record that answers the call; it is kept.
    pub fn answered(self, record: &[u8]) {
        let answer = Bytes::copy_from_slice(record);
        let waiting = self.end(|peers, place| peers.keep(place, answer.clone()));
        send(waiting, &answer);
    }

    /// The whole record that answers the call, for repetitions that wait for it; it is not kept.
    pub fn shared(self, record: &[u8]) {
        let waiting = self.end(|_, _| {});
        if !waiting.is_empty() {
            send(waiting, &Bytes::copy_from_slice(record));
        }
    }

    /// The call is no longer under way. Answers who waits for it.
    fn end(mut self, keep: impl FnOnce(&mut Peers, (SocketAddr, Key))) -> Vec<oneshot::Sender<Bytes>> {
        self.is_done = true;
        let mut peers = lock(&self.replays);
        let under_way = peers.under_way.remove(&self.place);
        keep(&mut peers, self.place);
        under_way.map(|under_way| under_way.waiting).unwrap_or_default()
    }
}

fn send(waiting: Vec<oneshot::Sender<Bytes>>, answer: &Bytes) {
    for one in waiting {
        // Its connection may have ended.
        let _ = one.send(answer.clone());
    }
}

impl Drop for ReplayTicket {
    fn drop(&mut self) {
        if !self.is_done {
            lock(&self.replays).under_way.remove(&self.place);
        }
    }
}

/// Waits for the answer; none if the call was forgotten.
pub async fn answer(earlier: Earlier) -> Option<Bytes> {
    match earlier {
        Earlier::Known(answer) => Some(answer),
        Earlier::Coming(coming) => coming.await.ok(),
    }
}

fn lock(peers: &Mutex<Peers>) -> MutexGuard<'_, Peers> {
    peers.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
