//! The answers to calls that must not be performed twice, in case their client repeats them.
//!
//! A client that loses its connection repeats the calls that were not answered. A repeated REMOVE would find the name gone and
//! fail although it succeeded. A call is recognised by the client's address and port, its xid, and a digest of the
//! whole call. The port counts because simple clients begin every connection with the same xid; the kernel's
//! clients repeat calls from the port that they had.
//!
//! Bounded: [`PEERS_MAX`] addresses with [`ANSWERS_MAX`] answers each. The oldest goes first. An answer is used for
//! [`AGE_MAX`], after which a client may reuse the number of a call.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

pub const PEERS_MAX: usize = 1024;
pub const ANSWERS_MAX: usize = 256;
pub const AGE_MAX: Duration = Duration::from_secs(120);

type Key = [u8; 16];

/// None while the call is under way.
type Answer = watch::Receiver<Option<Bytes>>;

#[derive(Default)]
pub struct Replays(Arc<Mutex<Peers>>);

#[derive(Default)]
struct Peers {
    answers: HashMap<SocketAddr, Answers>,
    /// Rises with every call; says which peer was quiet the longest.
    calls: u64,
}

#[derive(Default)]
struct Answers {
    by_key: HashMap<Key, (Instant, Answer)>,
    order: VecDeque<Key>,
    used: u64,
}

/// What is to be done with a call.
pub enum Repeated {
    /// Perform it, and tell the ticket its answer.
    No(Ticket),
    /// It is answered, or will be once it is performed.
    Yes(Answer),
}

/// A call under way. Dropped without an answer, it is forgotten.
pub struct Ticket {
    replays: Arc<Mutex<Peers>>,
    peer: SocketAddr,
    key: Key,
    answer: watch::Sender<Option<Bytes>>,
}

impl Replays {
    /// The call as it came, with its xid.
    pub fn begin(&self, peer: SocketAddr, record: &[u8]) -> Repeated {
        let key: Key = blake3::hash(record).as_bytes().first_chunk().copied().unwrap_or_default();
        let now = Instant::now();
        let mut peers = lock(&self.0);
        peers.calls += 1;
        let calls = peers.calls;
        if peers.answers.len() >= PEERS_MAX && !peers.answers.contains_key(&peer) {
            let quiet = peers.answers.iter().min_by_key(|(_, answers)| answers.used).map(|(peer, _)| *peer);
            quiet.and_then(|quiet| peers.answers.remove(&quiet));
        }
        let answers = peers.answers.entry(peer).or_default();
        answers.used = calls;
        match answers.by_key.get(&key) {
            Some((at, answer)) if now.duration_since(*at) < AGE_MAX => return Repeated::Yes(answer.clone()),
            Some(_) => answers.order.retain(|other| *other != key),
            None => {}
        }
        if answers.order.len() >= ANSWERS_MAX {
            answers.order.pop_front().and_then(|oldest| answers.by_key.remove(&oldest));
        }
        let (sender, receiver) = watch::channel(None);
        answers.by_key.insert(key, (now, receiver));
        answers.order.push_back(key);
        Repeated::No(Ticket { replays: self.0.clone(), peer, key, answer: sender })
    }
}

impl Ticket {
    /// The whole record that answers the call.
    pub fn answered(self, record: &[u8]) {
        self.answer.send_replace(Some(Bytes::copy_from_slice(record)));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.answer.borrow().is_some() {
            return;
        }
        let mut peers = lock(&self.replays);
        if let Some(answers) = peers.answers.get_mut(&self.peer) {
            // A later call may have the key by now.
            let own =
                answers.by_key.get(&self.key).is_some_and(|(_, answer)| self.answer.subscribe().same_channel(answer));
            if own {
                answers.by_key.remove(&self.key);
                answers.order.retain(|key| *key != self.key);
            }
        }
    }
}

/// Waits for the answer; none if the call was forgotten.
pub async fn answer(mut answer: Answer) -> Option<Bytes> {
    answer.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone())
}

fn lock(peers: &Mutex<Peers>) -> MutexGuard<'_, Peers> {
    peers.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
