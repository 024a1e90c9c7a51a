//! Open connections per address, bounded so that one client cannot take them all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use angarium_core::network::customer;

/// The open connections by address. Clones share them. The lock is held for one access to the map.
#[derive(Clone, Debug)]
pub struct Addresses {
    most: usize,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A connection that counts for its address until this is dropped.
#[derive(Debug)]
pub struct CountedConnection {
    address: IpAddr,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Addresses {
    /// Allows at most `most` connections for each address.
    pub fn new(most: usize) -> Self {
        Self { most, open: Arc::default() }
    }

    /// Counts one more connection from `address`; none if it has `most` already.
    pub fn admit(&self, address: IpAddr) -> Option<CountedConnection> {
        let address = customer(address);
        let mut open = self.open.lock();
        let count = open.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(CountedConnection { address, open: Arc::clone(&self.open) })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_so_many_connections_and_no_more() {
        let addresses = Addresses::new(2);
        let first = addresses.admit(address("10.0.0.1")).unwrap();
        let _second = addresses.admit(address("::ffff:10.0.0.1")).unwrap();
        assert!(addresses.admit(address("10.0.0.1")).is_none());
        assert!(addresses.admit(address("10.0.0.2")).is_some());
        drop(first);
        assert!(addresses.admit(address("10.0.0.1")).is_some());
    }

    #[test]
    fn a_network_of_one_customer_is_one_address() {
        let addresses = Addresses::new(1);
        let _first = addresses.admit(address("2001:db8::1")).unwrap();
        assert!(addresses.admit(address("2001:db8::ffff:0:0:1")).is_none());
        assert!(addresses.admit(address("2001:db8:0:1::1")).is_some());
    }

    #[test]
    fn addresses_without_connections_are_forgotten() {
        let addresses = Addresses::new(1);
        drop(addresses.admit(address("10.0.0.1")));
        assert!(addresses.open.lock().is_empty());
    }
}
