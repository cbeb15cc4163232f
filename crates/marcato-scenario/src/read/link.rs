//! Reader of links.

use marcato_document::form::Single as _;
use marcato_document::{Faults, Item, Keyed as _, Keys, Table};
use marcato_units::{Bytes, Duration, Rate, Time, Worded as _};

use super::{link_name, overlay};
use crate::amount::Transmitter;
use crate::kinded::kind_of;
use crate::limit::MAX_LIST;
use crate::link::{CHANGE, Capacity, Change, Direction, LINK, Link, Loss, Way};
use crate::names::check_name;
use crate::queue::{Queue, Strict, queue};

/// Smallest MTU. RFC 791 §3.2: every module must forward 68 octets without fragmenting them.
const LEAST_MTU: Bytes = Bytes::new(68);
/// Largest MTU. RFC 791 §3.1: the largest value of the total length field.
const MOST_MTU: Bytes = Bytes::new(65_535);

pub(super) fn link(table: &Table, duration: Duration, faults: &Faults) -> Link {
    let keys = Keys::open(table, &LINK, faults);
    let mut between = [String::new(), String::new()];
    if keys.need("between", "state which two nodes it joins, for example between = [\"client\", \"server\"]")
    {
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
        keys.fault("mtu", format!("`mtu` is 68 B to 65535 B, not {}", marcato_document::quantity::size(mtu)));
    }
    let direction = |keys: &Keys<'_>| Direction::read(keys, &mtu).unwrap_or_default();
    let there = direction(&keys);
    let back = match keys.table("back") {
        Some(back) => {
            Keys::open(back, &Direction::SCHEMA, faults);
            // `back` inherits the link's keys, and its own `rate` replaces an inherited `trace`, or
            // the reverse.
            let merged = overlay(table, back, |key| Direction::SCHEMA.has(key), ["rate", "trace"]);
            direction(&Keys::open(&merged, &Direction::SCHEMA, faults))
        }
        None => there.clone(),
    };
    let changes = changes(&keys, duration, mtu, [&there, &back]);
    Link { name: name.unwrap_or_default(), between, mtu, there, back, changes }
}

/// Reads the changes of a link, in order of time.
fn changes(keys: &Keys<'_>, duration: Duration, mtu: Bytes, of: [&Direction; 2]) -> Vec<Change> {
    let read = |table| {
        let keys = Keys::open(table, &CHANGE, keys.faults);
        Some((change(&keys, duration, of)?, keys))
    };
    let mut changes: Vec<(Change, Keys<'_>)> = keys.tables("changes", MAX_LIST).filter_map(read).collect();
    changes.sort_by_key(|(change, _)| change.at);
    // A limit in time becomes bytes at the rate in force at that moment.
    let mut rates = of.map(|direction| direction.rate.fixed());
    for (change, keys) in &mut changes {
        let concerned = concerned(change.way);
        // A new rate applies to the queue of the same change.
        for (rate, _) in rates.iter_mut().zip(concerned).filter(|(_, concerned)| *concerned) {
            *rate = change.rate.or(*rate);
        }
        if let Some(item) = keys.item("queue") {
            let before: Vec<Transmitter> = rates
                .iter()
                .zip(concerned)
                .filter(|(_, concerned)| *concerned)
                .map(|(&rate, _)| Transmitter { rate, mtu })
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

const fn preempts(queue: &Queue) -> bool {
    matches!(queue, Queue::Strict(Strict { preempt: true, .. }))
}

/// Reads a change's queue in front of each of these transmitters. It must be the same for all of
/// them.
fn changed_queue(item: &Item, before: &[Transmitter], keys: &Keys<'_>) -> Option<Queue> {
    let (first, others) = before.split_first()?;
    let one = queue(item, *first, keys.faults)?;
    // Only limits in time depend on the transmitter, so equal rates give equal queues.
    let differs = |other: &Transmitter| {
        other.rate != first.rate && queue(item, *other, &keys.faults.fresh()).as_ref() != Some(&one)
    };
    if others.iter().any(differs) {
        keys.fault(
            "queue",
            "this limit in time is not the same in both directions, whose rates differ: give a change for each `way`",
        );
    }
    Some(one)
}

fn change(keys: &Keys<'_>, duration: Duration, of: [&Direction; 2]) -> Option<Change> {
    keys.need("at", "state when, for example at = \"10 s\"");
    let at = keys.span("at");
    if at.is_some_and(|at| at >= duration) {
        keys.fault(
            "at",
            format!(
                "a change at or after the end of the run, {}, has no effect",
                marcato_document::quantity::span(duration)
            ),
        );
    }
    let way = keys.word("way", Way::WORDS).unwrap_or_default();
    if ["rate", "up", "delay", "loss", "queue"].iter().all(|key| keys.item(key).is_none()) {
        let problem =
            "this change has no effect: set a `rate`, a `delay`, a `loss`, a `queue`, or up = false";
        keys.faults.add(keys.here(), problem.to_owned());
    }
    let rate: Option<Rate> = keys.rate("rate");
    let mut changed = of.iter().zip(concerned(way)).filter(|(_, concerned)| *concerned);
    if rate.is_some() && changed.any(|(direction, _)| !matches!(direction.rate, Capacity::Rate(_))) {
        keys.fault("rate", "this link has no `rate` that could change: give it one to begin with");
    }
    if keys.item("reorder").is_some() && keys.item("delay").is_none() {
        keys.fault("reorder", "`reorder` is about packets with a shorter `delay`: give one, or leave it out");
    }
    let reorder = keys.boolean("reorder").unwrap_or(true);
    let (up, delay, loss) =
        (keys.boolean("up"), keys.span("delay"), kind_of::<Loss>().read_one(keys, "loss", &()));
    Some(Change { rate, up, delay, reorder, loss, ..Change::new(Time::ZERO + at?, way) })
}
