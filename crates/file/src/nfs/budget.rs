//! Memory of all connections: the bytes of requests under way and of answers that no client has
//! taken.
//!
//! One connection has a bound of its own. Many of them together could still hold more than a
//! machine has, so that all connections, and those of one address, share a bound as well. Beyond it
//! a connection has one call at a time: a machine that takes none of its answers slows others down
//! and keeps none of them out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub struct Budget {
    all_max: usize,
    address_max: usize,
    all: AtomicUsize,
    /// Of each address that has connections: these, and their bytes.
    addresses: Mutex<HashMap<IpAddr, (usize, Arc<AtomicUsize>)>>,
}

/// The part of one connection. Dropping it gives its bytes back.
pub struct Account {
    budget: Arc<Budget>,
    address: IpAddr,
    of_address: Arc<AtomicUsize>,
    held: usize,
}

impl Budget {
    pub fn new(all_max: usize, address_max: usize) -> Budget {
        Budget { all_max, address_max, all: AtomicUsize::new(0), addresses: Mutex::default() }
    }

    pub fn account(self: &Arc<Budget>, address: IpAddr) -> Account {
        let address = address.to_canonical();
        let mut addresses = self.addresses();
        let (connections, bytes) = addresses.entry(address).or_default();
        *connections += 1;
        Account { budget: self.clone(), address, of_address: bytes.clone(), held: 0 }
    }

    fn addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, (usize, Arc<AtomicUsize>)>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// The connection holds this many bytes now.
    pub fn hold(&mut self, held: usize) {
        let before = std::mem::replace(&mut self.held, held);
        for counter in [&self.budget.all, &*self.of_address] {
            match held >= before {
                true => counter.fetch_add(held - before, Ordering::Relaxed),
                false => counter.fetch_sub(before - held, Ordering::Relaxed),
            };
        }
    }

    /// Whether the connection may start another call. One that holds nothing always may.
    pub fn has_room(&self) -> bool {
        let below = |counter: &AtomicUsize, most| counter.load(Ordering::Relaxed) < most;
        self.held == 0
            || below(&self.budget.all, self.budget.all_max) && below(&self.of_address, self.budget.address_max)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.hold(0);
        let mut addresses = self.budget.addresses();
        if let Some((connections, _)) = addresses.get_mut(&self.address) {
            *connections -= 1;
            if *connections == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_and_those_of_one_address_share_a_bound() {
        let budget = Arc::new(Budget::new(100, 40));
        let account = |address: &str| budget.account(address.parse().unwrap());
        let (mut one, mut two, mut other) = (account("10.0.0.1"), account("::ffff:10.0.0.1"), account("10.0.0.2"));
        one.hold(39);
        assert!(one.has_room() && two.has_room() && other.has_room());
        two.hold(1);
        assert!(!one.has_room() && !two.has_room(), "the address has its bytes");
        other.hold(39);
        assert!(other.has_room());
        let mut third = account("10.0.0.3");
        third.hold(21);
        assert!(!other.has_room() && !third.has_room(), "all have theirs");
        assert!(account("10.0.0.4").has_room(), "one that holds nothing has a call");
        drop((one, two));
        assert!(other.has_room() && third.has_room());
        drop((other, third));
        assert_eq!(budget.all.load(Ordering::Relaxed), 0);
        assert!(budget.addresses().is_empty());
    }
}
