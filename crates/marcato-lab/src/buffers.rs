//! Buffers of TCP for the paths of a lab.
//!
//! The kernel sizes the buffers of each connection by itself, up to a limit that suits a few megabytes in flight:
//! 6 MB of receive buffer, half of them for its own records, are 3 MB or 300 Mbit/s at 80 ms. The hosts of a lab
//! have as much as the bandwidth-delay products of their paths need.

use std::time::Duration;

use marcato_scenario::Experiment;
use marcato_scenario::link::{Capacity, Link};
use marcato_scenario::path::{Map, Route};
use marcato_units::{Bytes, Rate};

use crate::build::Traces;

/// Largest buffer.
const MOST: Bytes = Bytes::new(512 << 20);
/// Rate assumed for paths without one.
const FAST: Rate = Rate::from_mbps(1000);
/// Bandwidth-delay products in a buffer: one in flight and one in queues, and as much for the kernel's records.
const PRODUCTS: u64 = 4;

/// Returns the largest buffer that a connection between two nodes of the experiment needs.
pub(crate) fn needed(experiment: &Experiment, traces: &Traces) -> Bytes {
    let map = Map::new(experiment);
    let mut most = Bytes::ZERO;
    for (number, from) in experiment.nodes.iter().enumerate() {
        for to in &experiment.nodes[number + 1..] {
            let (Some(there), Some(back)) = (map.route(from, to), map.route(to, from)) else { continue };
            let round_trip = delay(&there).saturating_add(delay(&back));
            let rate = rate(&there, traces).max(rate(&back, traces));
            let product = u128::from(rate.as_bps()) * round_trip.as_nanos() / 8_000_000_000;
            most = most.max(Bytes::new(u64::try_from(product).unwrap_or(u64::MAX)));
        }
    }
    Bytes::new(most.get().saturating_mul(PRODUCTS)).min(MOST)
}

/// Returns the longest delay that a route has at any time.
fn delay(route: &Route<'_>) -> Duration {
    let of = |link: &Link, back: bool| {
        let way = if back { &link.back } else { &link.there };
        let later = link.changes_of(back).filter_map(|change| change.delay);
        later.chain([way.delay]).max().unwrap_or_default()
    };
    route.hops.iter().fold(Duration::ZERO, |sum, hop| sum.saturating_add(of(hop.link, hop.back)))
}

/// Returns the highest rate that a route has at any time.
fn rate(route: &Route<'_>, traces: &Traces) -> Rate {
    let of = |link: &Link, back: bool| {
        let way = if back { &link.back } else { &link.there };
        let first = match &way.rate {
            Capacity::Rate(rate) => Some(*rate),
            Capacity::Trace(path) => traces.get(path).map(marcato_link::Trace::mean_rate),
            Capacity::Unlimited => None,
        };
        first.map(|first| link.changes_of(back).filter_map(|change| change.rate).fold(first, Rate::max))
    };
    route.hops.iter().filter_map(|hop| of(hop.link, hop.back)).min().unwrap_or(FAST)
}

/// Returns the values of a file such as `tcp_rmem` (tcp(7)) with this maximum, if it is above the present one.
pub(crate) fn raised(values: &str, most: Bytes) -> Option<String> {
    let mut values = values.split_whitespace();
    let (least, usual, present) = (values.next()?, values.next()?, values.next()?);
    let is_more = present.parse::<u64>().is_ok_and(|present| most.get() > present);
    is_more.then(|| format!("{least} {usual} {}", most.get()))
}

#[cfg(test)]
mod tests {
    use marcato_scenario::Reader;
    use marcato_scenario::brief::{Brief, Ways, scenario};

    use super::*;

    fn of(texts: &[&str]) -> u64 {
        let brief = |text: &&str| {
            let mut brief = Brief::default();
            brief.add("--link", Ways::Both, text).unwrap();
            brief
        };
        let text = scenario(&texts.iter().map(brief).collect::<Vec<_>>(), None).unwrap();
        let scenario = Reader::new().without_flows().parse("test", &text).unwrap();
        needed(scenario.experiment(), &Traces::new()).get()
    }

    #[test]
    fn buffers_follow_the_products_of_the_paths() {
        // 700 Mbit/s for 80 ms are 7 MB.
        assert_eq!(of(&["700 Mbit/s, 40 ms"]), 4 * 7_000_000);
        assert_eq!(of(&["up 700 Mbit/s, down 1 Mbit/s, up 60 ms, down 20 ms"]), 4 * 7_000_000);
        // The slowest link of a row counts, and all delays.
        assert_eq!(of(&["5 Gbit/s", "700 Mbit/s, 10 ms", "700 Mbit/s, 30 ms", "1 Gbit/s"]), 4 * 7_000_000);
        assert_eq!(of(&["8 ms"]), 4 * 2_000_000);
        assert_eq!((of(&["1 Gbit/s"]), of(&["100 Gbit/s, 1 s"])), (0, 512 << 20));
        // The longest path of handovers has at most 30 ms.
        let leo = of(&["leo"]);
        assert!(leo > 4 * 1_112_500 && leo <= 4 * 1_335_000, "{leo}");
    }

    #[test]
    fn a_maximum_is_raised_and_never_lowered() {
        let more = raised("4096\t131072\t6291456\n", Bytes::new(7_000_000));
        assert_eq!(more.as_deref(), Some("4096 131072 7000000"));
        assert_eq!(raised("4096 131072 6291456", Bytes::new(6_291_456)), None);
        assert_eq!((raised("", Bytes::MAX), raised("a b c", Bytes::MAX)), (None, None));
    }
}
