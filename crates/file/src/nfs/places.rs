//! Places for connections: each address has a bounded number of them, so that no machine keeps the
//! others out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections of one address. Those of a loopback address are not counted.
pub const CONNECTIONS_PER_ADDRESS: usize = 128;

#[derive(Default)]
pub struct Places(Mutex<HashMap<IpAddr, usize>>);

/// A place of a connection; dropping it frees the place.
pub struct ConnectionPermit {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    /// None: the address has all of its places.
    pub fn enter(self: &Arc<Places>, address: IpAddr) -> Option<ConnectionPermit> {
        let address = address.to_canonical();
        let mut counts = self.counts();
        let count = counts.entry(address).or_default();
        if *count >= CONNECTIONS_PER_ADDRESS && !address.is_loopback() {
            return None;
        }
        *count += 1;
        Some(ConnectionPermit { places: self.clone(), address })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.places.counts();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_bounded_number_of_places() {
        let places = Arc::new(Places::default());
        let enter = |address: &str| places.enter(address.parse().unwrap());
        let mut own: Vec<_> = (0..CONNECTIONS_PER_ADDRESS).map(|_| enter("10.0.0.1").unwrap()).collect();
        assert!(enter("10.0.0.1").is_none() && enter("::ffff:10.0.0.1").is_none());
        assert!(enter("10.0.0.2").is_some());
        own.pop();
        assert!(enter("10.0.0.1").is_some());
        let local: Vec<_> = (0..=CONNECTIONS_PER_ADDRESS).map(|_| enter("127.0.0.1").unwrap()).collect();
        drop((own, local));
        assert!(places.counts().is_empty());
    }
}
