//! The handshakes under way at one listener. Peers that never finish their handshake cannot keep
//! other peers out.
//!
//! The queue has room for [`HANDSHAKES_MAX`] of them. If a peer connects while it is full, the peer
//! with the most handshakes loses its oldest one. A peer that opens connections and sends nothing
//! therefore pushes out its own. An honest handshake takes milliseconds and ends before its turn.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Largest number of handshakes under way.
pub const HANDSHAKES_MAX: usize = 256;

#[derive(Clone, Default)]
pub struct HandshakeQueue(Arc<Mutex<VecDeque<Handshake>>>);

/// A handshake in the queue, oldest first.
struct Handshake {
    peer: String,
    ended: Arc<Notify>,
}

/// A place in the queue; dropping it frees the place.
pub struct QueuePlace {
    queue: HandshakeQueue,
    ended: Arc<Notify>,
}

impl HandshakeQueue {
    pub fn enter(&self, peer: &str) -> QueuePlace {
        let mut handshakes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if handshakes.len() >= HANDSHAKES_MAX
            && let Some(handshake) = victim(&handshakes).and_then(|at| handshakes.remove(at))
        {
            handshake.ended.notify_one();
        }
        let ended = Arc::new(Notify::new());
        handshakes.push_back(Handshake { peer: peer.to_owned(), ended: Arc::clone(&ended) });
        QueuePlace { queue: self.clone(), ended }
    }
}

/// The oldest handshake of the peer that has most.
fn victim(handshakes: &VecDeque<Handshake>) -> Option<usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    handshakes.iter().for_each(|handshake| *counts.entry(&handshake.peer).or_default() += 1);
    let most = counts.values().copied().max()?;
    handshakes.iter().position(|handshake| counts.get(handshake.peer.as_str()) == Some(&most))
}

impl QueuePlace {
    /// Ready when another handshake has taken the place.
    pub async fn lost(&self) {
        self.ended.notified().await;
    }

    /// Runs the handshake. Returns an error if another handshake takes the place before the end.
    pub async fn hold<T>(&self, handshake: impl Future<Output = std::io::Result<T>>) -> std::io::Result<T> {
        tokio::select! {
            done = handshake => done,
            () = self.lost() => Err(std::io::Error::other("others come, and its handshake is the oldest")),
        }
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut handshakes = self.queue.0.lock().unwrap_or_else(PoisonError::into_inner);
        handshakes.retain(|handshake| !Arc::ptr_eq(&handshake.ended, &self.ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lost(place: &QueuePlace) -> bool {
        let mut lost = std::pin::pin!(place.lost());
        lost.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn a_full_queue_gives_up_the_oldest_handshake_of_the_peer_that_has_most() {
        let queue = HandshakeQueue::default();
        let honest = queue.enter("honest");
        let mut silent: Vec<QueuePlace> = (1..HANDSHAKES_MAX).map(|_| queue.enter("silent")).collect();
        let late = queue.enter("late");
        assert!(is_lost(&silent[0]), "its oldest");
        assert!(!is_lost(&silent[1]) && !is_lost(&honest) && !is_lost(&late));
        silent.truncate(2);
        let more: Vec<QueuePlace> =
            (0..HANDSHAKES_MAX - 4).map(|number| queue.enter(&format!("peer {number}"))).collect();
        assert!(!more.iter().chain([&honest, &late, &silent[1]]).any(is_lost), "those who went left their places");
    }
}
