//! Reader of links.

use marcato_units::{Bytes, Duration, Rate, Time};

use super::queue::{Before, queue};
use super::{link_name, overlay};
use crate::document::{Item, Table};
use crate::fault::Faults;
use crate::keys::{Keys, Kind, check_name};
use crate::limit::MAX_LIST;
use crate::link::{Added, Capacity, Change, Direction, GilbertElliott, Jitter, Link, Loss, Way};
use crate::queue::Queue;
use crate::schema;

/// Smallest MTU. RFC 791 §3.2: every module must forward 68 octets without fragmenting them.
const LEAST_MTU: Bytes = Bytes::new(68);
/// Largest MTU. RFC 791 §3.1: the largest value of the total length field.
const MOST_MTU: Bytes = Bytes::new(65_535);

/// Placeholder for a rate that could not be read, so that only the rate is a fault.
const MEANT: Capacity = Capacity::Rate(Rate::from_mbps(1000));

pub(super) fn link(table: &Table, duration: Duration, faults: &Faults) -> Link {
    let keys = Keys::open(table, &schema::LINK, faults);
    let mut between = [String::new(), String::new()];
    if keys.need("between", "say which two nodes it joins, for example between = [\"client\", \"server\"]") {
        let ends = keys.strings("between", MAX_LIST);
        match ends.as_slice() {
            [(a, _), (b, _)] => between = [(*a).to_owned(), (*b).to_owned()],
            other if keys.list("between", MAX_LIST).is_some_and(|list| list.len() == other.len()) => {
                keys.fault("between", format!("a link joins two nodes, not {}", other.len()));
            }
            _ => {}
        }
    }
    let name = match keys.item("name") {
        Some(item) => keys
            .string("name")
            .filter(|name| check_name("link", name, item.place, faults))
            .map(ToOwned::to_owned),
        None => link_name(table),
    };
    let mtu = keys.size("mtu").unwrap_or(Bytes::new(1500));
    if !(LEAST_MTU..=MOST_MTU).contains(&mtu) {
        keys.fault("mtu", format!("`mtu` is 68 B to 65535 B, not {}", crate::quantity::size(mtu)));
    }
    let there = direction(&keys, mtu);
    let back = match keys.table("back") {
        Some(back) => {
            Keys::open(back, &schema::BACK, faults);
            // `back` inherits the link's keys, and its own `rate` replaces an inherited `trace`, or
            // the reverse.
            let merged = overlay(table, back, |key| schema::BACK.has(key), ["rate", "trace"]);
            direction(&Keys::open(&merged, &schema::BACK, faults), mtu)
        }
        None => there.clone(),
    };
    let changes = changes(&keys, duration, mtu, [&there, &back]);
    Link { name: name.unwrap_or_default(), between, mtu, there, back, changes }
}

fn direction(keys: &Keys<'_>, mtu: Bytes) -> Direction {
    let rate = match (keys.item("rate"), keys.item("trace")) {
        (Some(_), Some(_)) => {
            keys.fault("trace", "a link has a `rate` or a `trace`: leave one of them out");
            keys.some_rate("rate").map_or(MEANT, Capacity::Rate)
        }
        (Some(_), None) => keys.some_rate("rate").map_or(MEANT, Capacity::Rate),
        (None, Some(_)) => {
            let path = keys.string("trace").unwrap_or("?");
            if path.is_empty() {
                keys.fault("trace", "`trace` is empty: say the path of a file, relative to this one");
            }
            Capacity::Trace(path.to_owned())
        }
        (None, None) => Capacity::Unlimited,
    };
    let before = Before { rate: fixed(&rate), mtu };
    Direction {
        rate,
        delay: keys.span("delay").unwrap_or_default(),
        framing: keys.size("framing").unwrap_or_default(),
        queue: keys
            .item("queue")
            .map_or_else(|| Some(Queue::default()), |item| queue(item, before, keys.faults))
            .unwrap_or_default(),
        loss: loss(keys).unwrap_or_default(),
        jitter: jitter(keys),
        duplication: keys.probability("duplication").unwrap_or(0.0),
        bleach_ecn: keys.boolean("bleach-ecn").unwrap_or(false),
    }
}

#[derive(Clone, Copy)]
enum LossName {
    None,
    Random,
    Every,
    Script,
    GilbertElliott,
}

const LOSSES: &[Kind<LossName>] = &[
    ("none", LossName::None, &schema::LOSS_NONE),
    ("random", LossName::Random, &schema::LOSS_RANDOM),
    ("every", LossName::Every, &schema::LOSS_EVERY),
    ("script", LossName::Script, &schema::LOSS_SCRIPT),
    ("gilbert-elliott", LossName::GilbertElliott, &schema::GILBERT_ELLIOTT),
];

fn loss(keys: &Keys<'_>) -> Option<Loss> {
    let (name, tagged) = keys.tagged("loss", LOSSES)?;
    let keys = tagged.keys();
    match name {
        LossName::None => Some(Loss::None),
        LossName::Random => {
            keys.need("probability", "say how much is lost, for example probability = 0.01");
            Some(Loss::Random { probability: keys.probability("probability")? })
        }
        LossName::Every => {
            keys.need("packets", "say which, for example packets = 1000");
            Some(Loss::Every { packets: keys.integer("packets", 1..=u64::MAX)? })
        }
        LossName::Script => {
            keys.need("packets", "say which, counted from 0, for example packets = [0, 10, 11]");
            let items = keys.list("packets", MAX_LIST)?;
            let read = |item| crate::keys::integer_of("packets", item, 0..=u64::MAX, keys.faults);
            let packets: Vec<u64> = items.iter().filter_map(read).collect();
            if !packets.is_sorted_by(|a, b| a < b) {
                keys.fault("packets", "`packets` are in order, each once: sort them");
            }
            Some(Loss::Script { packets })
        }
        LossName::GilbertElliott => gilbert_elliott(&keys).map(Loss::GilbertElliott),
    }
}

fn gilbert_elliott(keys: &Keys<'_>) -> Option<GilbertElliott> {
    let by_mean = ["mean", "burst"].iter().any(|key| keys.item(key).is_some());
    let by_chain = ["p", "r", "loss-good", "loss-bad"].iter().any(|key| keys.item(key).is_some());
    if by_mean && by_chain {
        keys.faults.add(keys.here(), "say `mean` and `burst`, or `p` and `r`, not some of each".to_owned());
        return None;
    }
    if by_mean {
        let there = [
            keys.need("mean", "say which share is lost, for example mean = 0.01"),
            keys.need("burst", "say how many packets are lost in a row on average, for example burst = 5"),
        ];
        let (mean, burst) = (keys.number("mean", 0.0..=0.99), keys.number("burst", 1.0..=1e9));
        if there != [true, true] {
            return None;
        }
        // In the chain's stationary distribution, p / (p + r) is the share of the bad state.
        let r = 1.0 / burst?;
        let p = mean? * r / (1.0 - mean?);
        if p > 1.0 {
            keys.fault(
                "burst",
                "bursts that short cannot lose so much: say a longer `burst` or a lower `mean`",
            );
            return None;
        }
        return Some(GilbertElliott { p, r, loss_good: 0.0, loss_bad: 1.0 });
    }
    keys.need("p", "say how likely a packet is the first of a burst, for example p = 0.001");
    keys.need("r", "say how likely a packet is the first after a burst, for example r = 0.2");
    let (p, r) = (keys.probability("p"), keys.probability("r"));
    let loss_good = keys.probability("loss-good").unwrap_or(0.0);
    let loss_bad = keys.probability("loss-bad").unwrap_or(1.0);
    let (p, r) = (p?, r?);
    if p + r == 0.0 {
        keys.fault("p", "with `p` and `r` of 0 the state never changes: say `none` or `random`");
        return None;
    }
    Some(GilbertElliott { p, r, loss_good, loss_bad })
}

#[derive(Clone, Copy)]
enum JitterName {
    None,
    Uniform,
    Normal,
    Exponential,
}

const JITTERS: &[Kind<JitterName>] = &[
    ("none", JitterName::None, &schema::JITTER_NONE),
    ("uniform", JitterName::Uniform, &schema::JITTER_UNIFORM),
    ("normal", JitterName::Normal, &schema::JITTER_NORMAL),
    ("exponential", JitterName::Exponential, &schema::JITTER_EXPONENTIAL),
];

fn jitter(keys: &Keys<'_>) -> Option<Jitter> {
    let (name, tagged) = keys.tagged("jitter", JITTERS)?;
    let keys = tagged.keys();
    let advice = "say how much is added to the delay on average, for example mean = \"2 ms\"";
    let reorder = !matches!(name, JitterName::None) && keys.boolean("reorder").unwrap_or(false);
    let added = match name {
        JitterName::None => return None,
        JitterName::Uniform => {
            keys.need("most", "say how much is added to the delay at most, for example most = \"4 ms\"");
            let least = keys.span("least").unwrap_or_default();
            let most = keys.some_span("most")?;
            if least > most {
                keys.fault("least", "`least` is above `most`: swap them");
            }
            Added::Uniform { least, most }
        }
        JitterName::Normal => {
            keys.need("mean", advice);
            keys.need("deviation", "say by how much it varies, for example deviation = \"1 ms\"");
            let (mean, deviation) = (keys.span("mean"), keys.some_span("deviation"));
            Added::Normal { mean: mean?, deviation: deviation? }
        }
        JitterName::Exponential => {
            keys.need("mean", advice);
            Added::Exponential { mean: keys.some_span("mean")? }
        }
    };
    Some(Jitter { added, reorder })
}

/// Reads the changes of a link, in order of time.
fn changes(keys: &Keys<'_>, duration: Duration, mtu: Bytes, of: [&Direction; 2]) -> Vec<Change> {
    let read = |table| {
        let keys = Keys::open(table, &schema::CHANGE, keys.faults);
        Some((change(&keys, duration, of)?, keys))
    };
    let mut changes: Vec<(Change, Keys<'_>)> = keys.tables("changes", MAX_LIST).filter_map(read).collect();
    changes.sort_by_key(|(change, _)| change.at);
    // A limit in time becomes bytes at the rate in force at that moment.
    let mut rates = of.map(|direction| fixed(&direction.rate));
    for (change, keys) in &mut changes {
        let concerned = concerned(change.way);
        // A new rate applies to the queue of the same change.
        for (rate, _) in rates.iter_mut().zip(concerned).filter(|(_, concerned)| *concerned) {
            *rate = change.rate.or(*rate);
        }
        if let Some(item) = keys.item("queue") {
            let before: Vec<Before> = rates
                .iter()
                .zip(concerned)
                .filter(|(_, concerned)| *concerned)
                .map(|(&rate, _)| Before { rate, mtu })
                .collect();
            change.queue = changed_queue(item, &before, keys);
            let starts = |direction: &Direction| preempts(&direction.queue);
            let before = of.iter().zip(concerned).filter(|(_, concerned)| *concerned);
            if let Some(queue) = &change.queue
                && before.clone().any(|(direction, _)| starts(direction) != preempts(queue))
            {
                keys.fault(
                    "queue",
                    "a link pre-empts from the beginning or never: give its `queue` and this one the same `preempt`",
                );
            }
        }
    }
    changes.into_iter().map(|(change, _)| change).collect()
}

/// Returns whether a change applies to each of the two directions.
const fn concerned(way: Way) -> [bool; 2] {
    match way {
        Way::Both => [true, true],
        Way::There => [true, false],
        Way::Back => [false, true],
    }
}

const fn fixed(rate: &Capacity) -> Option<Rate> {
    match rate {
        Capacity::Rate(rate) => Some(*rate),
        Capacity::Unlimited | Capacity::Trace(_) => None,
    }
}

const fn preempts(queue: &Queue) -> bool {
    matches!(queue, Queue::Strict { preempt: true, .. })
}

/// Reads a change's queue in front of each of these transmitters. It must be the same for all of
/// them.
fn changed_queue(item: &Item, before: &[Before], keys: &Keys<'_>) -> Option<Queue> {
    let (first, others) = before.split_first()?;
    let one = queue(item, *first, keys.faults)?;
    // Only limits in time depend on the transmitter, so equal rates give equal queues.
    let differs = |other: &Before| {
        other.rate != first.rate && queue(item, *other, &keys.faults.fresh()).as_ref() != Some(&one)
    };
    if others.iter().any(differs) {
        keys.fault(
            "queue",
            "this limit in time is not the same in both directions, whose rates differ: say a change for each `way`",
        );
    }
    Some(one)
}

fn change(keys: &Keys<'_>, duration: Duration, of: [&Direction; 2]) -> Option<Change> {
    keys.need("at", "say when, for example at = \"10 s\"");
    let at = keys.span("at");
    if at.is_some_and(|at| at >= duration) {
        keys.fault(
            "at",
            format!(
                "a change at or after the end of the run, {}, changes nothing",
                crate::quantity::span(duration)
            ),
        );
    }
    let way = keys
        .word("way", &[("both", Way::Both), ("there", Way::There), ("back", Way::Back)])
        .unwrap_or_default();
    if ["rate", "up", "delay", "loss", "queue"].iter().all(|key| keys.item(key).is_none()) {
        let problem =
            "this change changes nothing: say a `rate`, a `delay`, a `loss`, a `queue`, or up = false";
        keys.faults.add(keys.here(), problem.to_owned());
    }
    let rate: Option<Rate> = keys.rate("rate");
    let mut changed = of.iter().zip(concerned(way)).filter(|(_, concerned)| *concerned);
    if rate.is_some() && changed.any(|(direction, _)| !matches!(direction.rate, Capacity::Rate(_))) {
        keys.fault("rate", "this link has no `rate` that could change: give it one to begin with");
    }
    if keys.item("reorder").is_some() && keys.item("delay").is_none() {
        keys.fault("reorder", "`reorder` is about packets with a shorter `delay`: say one, or leave it out");
    }
    let reorder = keys.boolean("reorder").unwrap_or(true);
    let (up, delay, loss) = (keys.boolean("up"), keys.span("delay"), loss(keys));
    Some(Change { rate, up, delay, reorder, loss, ..Change::new(Time::ZERO + at?, way) })
}
