//! Rates of client addresses.

use std::num::NonZeroU32;

use ipnet::IpNet;
use marcato_document::form::{Count, Small};
use marcato_document::{Keyed as _, Keys, keyed};
use marcato_web::{Limits, RateLimit};

use super::form::{By, Serve, each};

/// Most networks of a list.
const MAX_NETWORKS: usize = 1000;
/// Highest rate in a second, and largest burst.
const MAX_RATE: u32 = 1_000_000;

/// Keys of `[rates]`.
pub(super) struct Rates {
    requests: Option<RateLimit>,
    connections: Option<RateLimit>,
    open: Option<NonZeroU32>,
    addresses: usize,
    trusted: Vec<IpNet>,
}

impl Default for Rates {
    fn default() -> Self {
        let Limits { request_rate, connection_rate, open_per_address, addresses, .. } = Limits::default();
        let (requests, connections, open) = (request_rate, connection_rate, open_per_address);
        Self { requests, connections, open, addresses, trusted: Vec::new() }
    }
}

keyed! {
    Rates, "[rates]", |of: Serve|, onto Self::default();
    /// requests of an address: a table with `per-second` and `burst`
    "requests" => requests: By(rate), optional("no limit");
    /// new connections of an address: a table with `per-second` and `burst`
    "connections" => connections: By(rate), optional("no limit");
    /// connections of an address at once
    "open" => open: By(|keys, key| NonZeroU32::new(keys.small(key, 1..=1_000_000)?)), optional("no limit");
    /// addresses whose rates are known
    "addresses" => addresses: Count(1..=10_000_000), own();
    /// networks whose addresses have no rates
    "trusted" => trusted: By(networks), own("none");
}

impl Rates {
    /// Sets the limits. Returns the networks without limits.
    pub(super) fn set(self, limits: &mut Limits) -> Vec<IpNet> {
        limits.request_rate = self.requests;
        limits.connection_rate = self.connections;
        limits.open_per_address = self.open;
        limits.addresses = self.addresses;
        self.trusted
    }
}

/// Keys of a rate.
pub(super) struct Rate {
    per_second: u32,
    burst: u32,
}

keyed! {
    Rate, "a rate", |of: Serve|, onto Rate { per_second: 1, burst: 1 };
    /// requests or connections in a second
    "per-second" => per_second: Small(1..=MAX_RATE), need("give a whole number, as 50");
    /// requests or connections that may pass at once
    "burst" => burst: Small(1..=MAX_RATE), need("give what may pass at once, as 100");
}

/// Reads a rate with its burst.
fn rate(keys: &Keys<'_>, key: &'static str) -> Option<RateLimit> {
    let Some(table) = keys.item(key)?.as_table() else {
        keys.fault(key, format!("`{key}` is a table: write {{ per-second = 50, burst = 100 }}"));
        return None;
    };
    let Rate { per_second, burst } = Rate::open(table, keys.faults, &Serve)?;
    Some(RateLimit::new(per_second, burst))
}

/// Reads a list of networks. An address alone is one too.
pub(super) fn networks(keys: &Keys<'_>, key: &'static str) -> Option<Vec<IpNet>> {
    Some(each(keys, key, MAX_NETWORKS, |text, _| {
        let address = || text.parse::<std::net::IpAddr>().map(IpNet::from);
        text.parse::<IpNet>()
            .or_else(|_| address())
            .map_err(|_| format!("{text:?} is no network: write \"192.0.2.0/24\" or \"2001:db8::/32\""))
    }))
}
