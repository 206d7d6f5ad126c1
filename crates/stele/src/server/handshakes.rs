//! Handshakes under way at one listener, so that peers who never finish theirs keep nobody out.
//!
//! There is room for [`ROOM`] of them. Whoever comes when it is full takes the place of the oldest handshake of whoever has most
//! of them: a peer that opens connections and says nothing pushes out its own, and an honest handshake, which takes
//! milliseconds, is over before its turn would come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Handshakes at once.
pub const ROOM: usize = 256;

#[derive(Clone, Default)]
pub struct Lobby(Arc<Mutex<VecDeque<Guest>>>);

/// Oldest first.
struct Guest {
    who: String,
    out: Arc<Notify>,
}

/// A place in the lobby. Dropped, it is free.
pub struct Place {
    lobby: Lobby,
    out: Arc<Notify>,
}

impl Lobby {
    pub fn enter(&self, who: &str) -> Place {
        let mut guests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if guests.len() >= ROOM
            && let Some(guest) = victim(&guests).and_then(|at| guests.remove(at))
        {
            guest.out.notify_one();
        }
        let out = Arc::new(Notify::new());
        guests.push_back(Guest { who: who.to_owned(), out: Arc::clone(&out) });
        Place { lobby: self.clone(), out }
    }
}

/// The first of those who have most.
fn victim(guests: &VecDeque<Guest>) -> Option<usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    guests.iter().for_each(|guest| *counts.entry(&guest.who).or_default() += 1);
    let most = counts.values().copied().max()?;
    guests.iter().position(|guest| counts.get(guest.who.as_str()) == Some(&most))
}

impl Place {
    /// Ready when the place has been given to another.
    pub async fn lost(&self) {
        self.out.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut guests = self.lobby.0.lock().unwrap_or_else(PoisonError::into_inner);
        guests.retain(|guest| !Arc::ptr_eq(&guest.out, &self.out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lost(place: &Place) -> bool {
        let mut lost = std::pin::pin!(place.lost());
        lost.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn a_full_lobby_gives_up_the_oldest_handshake_of_whoever_has_most() {
        let lobby = Lobby::default();
        let honest = lobby.enter("honest");
        let mut silent: Vec<Place> = (1..ROOM).map(|_| lobby.enter("silent")).collect();
        let late = lobby.enter("late");
        assert!(is_lost(&silent[0]), "its oldest");
        assert!(!is_lost(&silent[1]) && !is_lost(&honest) && !is_lost(&late));
        silent.truncate(2);
        let more: Vec<Place> = (0..ROOM - 4).map(|number| lobby.enter(&format!("peer {number}"))).collect();
        assert!(!more.iter().chain([&honest, &late, &silent[1]]).any(is_lost), "those who went left their places");
    }
}
