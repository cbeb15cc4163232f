//! Rates of client addresses.

use std::num::NonZeroU32;

use ipnet::IpNet;
use marcato_document::Table;
use marcato_web::{Limits, RateLimit};

use super::error::Faults;
use super::keys::Keys;

const KEYS: [&str; 5] = ["requests", "connections", "open", "addresses", "trusted"];
/// Most networks of a list.
const MAX_NETWORKS: usize = 1000;

/// Reads `[rates]` into the limits. Returns the networks without limits.
pub(super) fn read(table: &Table, limits: &mut Limits, faults: &Faults) -> Vec<IpNet> {
    let keys = Keys::open(table, "[rates]", &KEYS, faults);
    limits.request_rate = rate(&keys, "requests");
    limits.connection_rate = rate(&keys, "connections");
    limits.open_per_address = keys.whole("open", 1..=1_000_000).and_then(NonZeroU32::new);
    if let Some(addresses) = keys.whole("addresses", 1..=10_000_000) {
        limits.addresses = addresses as usize;
    }
    networks(&keys, "trusted")
}

/// Reads a rate with its burst.
fn rate(keys: &Keys<'_>, key: &str) -> Option<RateLimit> {
    if keys.item(key).is_some_and(|item| item.as_table().is_none()) {
        keys.fault(key, format!("`{key}` is a table: write {{ per-second = 50, burst = 100 }}"));
        return None;
    }
    let table = keys.table(key)?;
    let rate = Keys::open(table, "a rate", &["per-second", "burst"], keys.faults);
    rate.need("per-second", "give a whole number, as 50");
    rate.need("burst", "give what may pass at once, as 100");
    let number = |key| rate.whole(key, 1..=1_000_000);
    Some(RateLimit::new(number("per-second")?, number("burst")?))
}

/// Reads a list of networks. An address alone is one too.
pub(super) fn networks(keys: &Keys<'_>, key: &str) -> Vec<IpNet> {
    let mut found = Vec::new();
    for (text, place) in keys.strings(key, MAX_NETWORKS) {
        match text.parse::<IpNet>().or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from)) {
            Ok(network) => found.push(network),
            Err(_) => keys
                .faults
                .add(place, format!("{text:?} is no network: write \"192.0.2.0/24\" or \"2001:db8::/32\"")),
        }
    }
    found
}
