//! Rates of each client address: requests, new connections, and connections that are open.
//!
//! The table is bounded. A client that has used nothing of its rates lately is forgotten, since it
//! would start as it is. If the table is full of others, the one that would be full soonest goes, so
//! that a flood of new addresses forgets its own ones rather than clients at their limit.
//!
//! The crate `governor` is no replacement: its table of keys grows with each new address until it is pruned
//! as a whole, and it limits rates alone, not the connections that are open.

mod bucket;
mod client;
mod gate;
mod notice;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use marcato_units::{Duration, Time};

pub use bucket::RateLimit;
pub(crate) use gate::{Gate, Guest};

use bucket::Bucket;
use client::Client;

/// Clients that are full again and are forgotten for each new one. Two let a table shrink that was
/// large once.
const FORGOTTEN_AT_ONCE: usize = 2;

/// Limits of one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressLimits {
    pub(crate) requests: Option<RateLimit>,
    pub(crate) connections: Option<RateLimit>,
    pub(crate) open: Option<NonZeroU32>,
}

impl AddressLimits {
    /// True if there is no limit.
    pub(crate) const fn is_none(&self) -> bool {
        self.requests.is_none() && self.connections.is_none() && self.open.is_none()
    }
}

/// Reason for which a connection is closed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The address opens connections too fast.
    Rate,
    /// The address has as many open as it may.
    Open,
    /// The table is full of addresses with open connections.
    Full,
}

/// Tokens of an address that has a connection. Its requests take them without the table.
#[derive(Debug, Default)]
pub(crate) struct Account {
    requests: Bucket,
}

impl Account {
    /// Takes a request, or returns the time to wait.
    fn request(&self, now: Time, limits: &AddressLimits) -> Result<(), Duration> {
        limits.requests.map_or(Ok(()), |limit| self.requests.take(now, limit))
    }
}

#[derive(Debug, Default)]
struct Entry {
    account: Arc<Account>,
    connections: Bucket,
    open: u32,
}

impl Entry {
    /// Time from which the address is as one that was never seen.
    fn full_at(&self) -> Time {
        self.connections.full_at().max(self.account.requests.full_at())
    }
}

/// Table of the addresses that have used some of their rates, or have a connection.
///
/// Each operation takes O(log n).
#[derive(Debug)]
pub(crate) struct Rates {
    limits: AddressLimits,
    most: usize,
    entries: HashMap<Client, Entry>,
    /// Addresses without connections, by the time at which they are full again.
    idle: BTreeSet<(Time, Client)>,
    /// Addresses that were forgotten before they were full again.
    forgotten: u64,
}

impl Rates {
    /// Creates a table of at most `most` addresses.
    pub(crate) fn new(limits: AddressLimits, most: usize) -> Self {
        Self { limits, most: most.max(1), entries: HashMap::new(), idle: BTreeSet::new(), forgotten: 0 }
    }

    /// Takes a connection of an address.
    pub(crate) fn open(&mut self, now: Time, address: IpAddr) -> Result<Arc<Account>, Refusal> {
        let client = Client::from(address);
        if !self.entries.contains_key(&client) {
            self.make_room(now)?;
        }
        let entry = self.entries.entry(client).or_default();
        let before = (entry.full_at(), client);
        let refusal = if self.limits.open.is_some_and(|most| entry.open >= most.get()) {
            Some(Refusal::Open)
        } else if self.limits.connections.is_some_and(|limit| entry.connections.take(now, limit).is_err()) {
            Some(Refusal::Rate)
        } else {
            None
        };
        match refusal {
            None => {
                self.idle.remove(&before);
                entry.open += 1;
                Ok(Arc::clone(&entry.account))
            }
            // A new address is never refused, so this one is where it was.
            Some(refusal) => Err(refusal),
        }
    }

    /// Ends a connection of an address.
    pub(crate) fn close(&mut self, address: IpAddr) {
        let client = Client::from(address);
        let Some(entry) = self.entries.get_mut(&client) else { return };
        entry.open = entry.open.saturating_sub(1);
        if entry.open == 0 {
            self.idle.insert((entry.full_at(), client));
        }
    }

    /// Number of addresses in the table.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of addresses that were forgotten before they were full again.
    pub(crate) const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Forgets addresses until there is room for one.
    fn make_room(&mut self, now: Time) -> Result<(), Refusal> {
        for _ in 0..FORGOTTEN_AT_ONCE {
            match self.idle.first() {
                Some((full_at, _)) if *full_at <= now => self.forget_first(),
                _ => break,
            }
        }
        if self.entries.len() < self.most {
            return Ok(());
        }
        if self.idle.is_empty() {
            return Err(Refusal::Full);
        }
        self.forgotten += 1;
        self.forget_first();
        Ok(())
    }

    fn forget_first(&mut self) {
        if let Some((_, client)) = self.idle.pop_first() {
            self.entries.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 | number).into()
    }

    fn limits(per_second: u32, burst: u32, open: u32) -> AddressLimits {
        let rate = Some(RateLimit::new(per_second, burst));
        AddressLimits { requests: rate, connections: rate, open: NonZeroU32::new(open) }
    }

    #[test]
    fn each_address_has_its_own_connections() {
        let mut rates = Rates::new(limits(1, 3, 2), 10);
        let now = Time::ZERO;
        assert!(rates.open(now, address(1)).is_ok() && rates.open(now, address(1)).is_ok());
        assert_eq!(rates.open(now, address(1)).unwrap_err(), Refusal::Open);
        assert!(rates.open(now, address(2)).is_ok());
        rates.close(address(1));
        assert!(rates.open(now, address(1)).is_ok());
        rates.close(address(1));
        assert_eq!(rates.open(now, address(1)).unwrap_err(), Refusal::Rate);
        assert!(rates.open(Time::from_secs(1), address(1)).is_ok());
    }

    #[test]
    fn a_client_that_reconnects_keeps_what_it_has_used() {
        let limits = limits(1, 2, 9);
        let mut rates = Rates::new(limits, 10);
        let account = rates.open(Time::ZERO, address(1)).unwrap();
        assert_eq!([0; 2].map(|_| account.request(Time::ZERO, &limits)), [Ok(()); 2]);
        rates.close(address(1));
        let account = rates.open(Time::ZERO, address(1)).unwrap();
        assert_eq!(account.request(Time::ZERO, &limits), Err(Duration::from_secs(1)));
    }

    #[test]
    fn addresses_that_are_full_again_make_room() {
        let mut rates = Rates::new(limits(1, 1, 9), 3);
        for number in 0..3 {
            rates.open(Time::ZERO, address(number)).unwrap();
            rates.close(address(number));
        }
        rates.open(Time::from_secs(1), address(9)).unwrap();
        assert_eq!((rates.len(), rates.forgotten()), (2, 0));
    }

    #[test]
    fn a_flood_of_addresses_forgets_no_address_at_its_limit() {
        let mut rates = Rates::new(limits(1, 5, 9), 4);
        for _ in 0..5 {
            rates.open(Time::ZERO, address(1)).unwrap();
            rates.close(address(1));
        }
        for number in 100..200 {
            rates.open(Time::ZERO, address(number)).unwrap();
            rates.close(address(number));
        }
        assert_eq!((rates.len(), rates.forgotten()), (4, 97));
        assert_eq!(rates.open(Time::ZERO, address(1)).unwrap_err(), Refusal::Rate);
    }

    #[test]
    fn a_table_full_of_open_connections_takes_no_more() {
        let mut rates = Rates::new(limits(1, 1, 1), 2);
        rates.open(Time::ZERO, address(1)).unwrap();
        rates.open(Time::ZERO, address(2)).unwrap();
        assert_eq!(rates.open(Time::ZERO, address(3)).unwrap_err(), Refusal::Full);
        rates.close(address(1));
        assert!(rates.open(Time::ZERO, address(3)).is_ok());
    }

    proptest! {
        #[test]
        fn the_table_keeps_its_bound_and_its_counts(
            steps in prop::collection::vec((0..12_u32, any::<bool>(), 0..400_u64), 1..400),
            most in 1..8_usize,
            open in 1..4_u32,
        ) {
            let mut rates = Rates::new(limits(2, 3, open), most);
            let mut held = std::collections::BTreeMap::<u32, u32>::new();
            let mut now = Time::ZERO;
            for (number, opens, wait) in steps {
                now += Duration::from_millis(wait);
                let held_now = held.entry(number).or_default();
                if opens {
                    let opened = rates.open(now, address(number)).is_ok();
                    *held_now += u32::from(opened);
                    prop_assert!(*held_now <= open);
                } else if *held_now > 0 {
                    rates.close(address(number));
                    *held_now -= 1;
                }
                prop_assert!(rates.len() <= most);
                let idle = rates.entries.values().filter(|entry| entry.open == 0).count();
                prop_assert_eq!(rates.idle.len(), idle);
                for (number, count) in &held {
                    let entry = rates.entries.get(&Client::from(address(*number)));
                    prop_assert_eq!(entry.map_or(0, |entry| entry.open), *count);
                }
            }
            // A client that waits is served again.
            for (number, count) in held {
                (0..count).for_each(|_| rates.close(address(number)));
            }
            now += Duration::from_secs(10);
            prop_assert!(rates.open(now, address(50)).is_ok() && rates.open(now, address(0)).is_ok() == (most > 1));
        }
    }
}
