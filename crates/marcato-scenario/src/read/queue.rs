//! Reader of queues.

use marcato_units::{Bytes, Duration, Rate};

use crate::document::{Item, Value};
use crate::fault::Faults;
use crate::keys::{Chosen, Keys, Kind, chosen_of, quantity_of};
use crate::plugin::PluginKind;
use crate::quantity::{Of, is_of};
use crate::queue::{Codel, Crq, Limit, Pie, Queue, Red, Sharing, Standard, Threshold};
use crate::schema;
use crate::traffic::Preset;

/// Transmitter behind a queue.
#[derive(Clone, Copy)]
pub(super) struct Before {
    pub(super) rate: Option<Rate>,
    pub(super) mtu: Bytes,
}

/// Reader of the keys of a queue; `None` after a fault that leaves no queue.
type Read = fn(&Keys<'_>, Before) -> Option<Queue>;

/// Built-in queues, each with the reader of its keys.
pub(super) const KINDS: &[Kind<Read>] = &[
    ("droptail", |keys, before| Some(Queue::DropTail { limit: limit(keys, before) }), &schema::DROPTAIL),
    ("codel", |keys, before| Some(Queue::Codel(codel(keys, before, CODEL))), &schema::CODEL),
    ("fq-codel", |keys, before| Some(fq_codel(keys, before)), &schema::FQ_CODEL),
    ("crq", |keys, before| Some(Queue::Crq(crq(keys, before))), &schema::CRQ),
    ("step-mark", |keys, before| Some(step_mark(keys, before)), &schema::STEP_MARK),
    ("red", |keys, before| red(keys, before).map(Queue::Red), &schema::RED),
    ("pie", |keys, before| Some(Queue::Pie(pie(keys, before))), &schema::PIE),
    ("strict", |keys, before| Some(strict(keys, before)), &schema::STRICT),
    ("push-out", |keys, before| Some(Queue::PushOut { limit: limit(keys, before) }), &schema::PUSH_OUT),
];

/// Bytes that Ethernet's header adds to the MTU in CoDel's `maxpacket`.
const HEADER: Bytes = Bytes::new(14);

pub(super) fn queue(item: &Item, before: Before, faults: &Faults) -> Option<Queue> {
    match chosen_of("queue", item, KINDS, Some(PluginKind::Queue), faults)? {
        Chosen::BuiltIn(read, tagged) => read(&tagged.keys(), before),
        Chosen::Plugin(plugin) => Some(Queue::Plugin(plugin)),
    }
}

fn fq_codel(keys: &Keys<'_>, before: Before) -> Queue {
    Queue::FqCodel {
        codel: codel(keys, before, FQ_CODEL),
        // RFC 8290 §5.2: 1024 queues, and a quantum of a full Ethernet frame.
        flows: keys.small("flows", 1..=65_536).unwrap_or(1024),
        quantum: keys.some_size("quantum").unwrap_or(before.mtu + HEADER),
    }
}

fn strict(keys: &Keys<'_>, before: Before) -> Queue {
    let of = |key| {
        let item = keys.item(key)?;
        let queue = queue(item, before, keys.faults)?;
        if matches!(queue, Queue::Crq(_) | Queue::Strict { .. } | Queue::PushOut { .. }) {
            keys.faults.add(
                item.place,
                format!(
                    "a class of a strict queue is droptail, codel, fq-codel, step-mark, red or pie, not {}",
                    queue.kind()
                ),
            );
        }
        Some(queue)
    };
    let (high, low) = (of("high").unwrap_or_default(), of("low").unwrap_or_default());
    let preempt = keys.boolean("preempt").unwrap_or(false);
    if preempt && before.rate.is_none() {
        keys.fault(
            "preempt",
            "only a link with a `rate` takes time to send a packet that could be pre-empted",
        );
    }
    Queue::Strict { high: Box::new(high), low: Box::new(low), preempt }
}

/// Defaults of CoDel: its limit, and whether it marks.
type Unsaid = (Limit, bool);

const CODEL: Unsaid = (Limit::Packets(1000), false);
/// RFC 8290 §5.2.
const FQ_CODEL: Unsaid = (Limit::Packets(10_240), true);

fn codel(keys: &Keys<'_>, before: Before, (unsaid, marks): Unsaid) -> Codel {
    let codel = Codel {
        // RFC 8289 §4: 100 ms, a common round trip, and 5 % of it.
        target: keys.some_span("target").unwrap_or(Duration::from_millis(5)),
        interval: keys.some_span("interval").unwrap_or(Duration::from_millis(100)),
        limit: read_limit(keys, before).unwrap_or(unsaid),
        maxpacket: keys.some_size("maxpacket").unwrap_or(before.mtu + HEADER),
        ecn: keys.boolean("ecn").unwrap_or(marks),
    };
    if let Limit::Bytes(limit) = codel.limit
        && limit < codel.maxpacket
    {
        let (limit, maxpacket) = (crate::quantity::size(limit), crate::quantity::size(codel.maxpacket));
        keys.fault(
            "limit",
            format!("a limit of {limit} cannot hold codel's `maxpacket` of {maxpacket}: raise it"),
        );
    }
    codel
}

fn crq(keys: &Keys<'_>, before: Before) -> Crq {
    let presets = [("marcato", Preset::Marcato), ("authors", Preset::Authors), ("paper", Preset::Paper)];
    let standard = [("codel", Standard::Codel), ("droptail", Standard::DropTail)];
    let sharing = [("weighted", Sharing::Weighted), ("split", Sharing::Split), ("strict", Sharing::Strict)];
    let crq = Crq {
        codel: codel(keys, before, CODEL),
        standard: keys.word("standard", &standard).unwrap_or(Standard::Codel),
        preset: keys.word("preset", &presets).unwrap_or(Preset::Marcato),
        sharing: keys.word("sharing", &sharing).unwrap_or(Sharing::Weighted),
        standard_least: thousandths(keys, "standard-least", 0.9).unwrap_or(STANDARD_LEAST),
        flows: keys.small("flows", 8..=65_536).unwrap_or(4096),
    };
    if crq.sharing != Sharing::Strict && keys.item("standard-least").is_some() {
        keys.fault(
            "standard-least",
            "only `sharing = \"strict\"` has a least share: say that, or leave this out",
        );
    }
    if crq.sharing == Sharing::Split && before.rate.is_none() {
        keys.fault("sharing", "only a link with a `rate` can be split: say \"weighted\" or \"strict\"");
    }
    crq
}

fn step_mark(keys: &Keys<'_>, before: Before) -> Queue {
    let limit = limit(keys, before);
    // A span is a threshold of sojourn time here, whereas in a limit it stands for bytes.
    let sojourn =
        keys.item("threshold").filter(|item| item.as_str().is_some_and(|text| is_of(text, Of::Span)));
    let threshold = match sojourn {
        Some(_) => keys.some_span("threshold").map(Threshold::Sojourn),
        None => read_amount(keys, "threshold", before, Bytes::ZERO).map(Threshold::Waiting),
    };
    // K for 10 Gbit/s in the DCTCP paper, §3.4.
    let threshold = threshold.unwrap_or(Threshold::Waiting(Limit::Packets(65)));
    let never = match (threshold, limit) {
        (Threshold::Waiting(Limit::Packets(threshold)), Limit::Packets(limit)) => threshold >= limit,
        (Threshold::Waiting(Limit::Bytes(threshold)), Limit::Bytes(limit)) => threshold >= limit,
        _ => false,
    };
    if never {
        keys.fault("threshold", "a threshold at or above the `limit` is never exceeded: set it below");
    }
    Queue::StepMark { limit, threshold }
}

fn red(keys: &Keys<'_>, before: Before) -> Option<Red> {
    // Size of a small packet in the paper.
    let small = before.rate.map_or(Duration::from_micros(40), |rate| rate.transmission_time(Bytes::new(500)));
    let of = |key, packets| read_amount(keys, key, before, Bytes::ZERO).unwrap_or(Limit::Packets(packets));
    let red = Red {
        limit: limit(keys, before),
        min_threshold: of("min-threshold", 5),
        max_threshold: of("max-threshold", 15),
        max_probability: millionths(keys, "max-probability").unwrap_or(100_000),
        weight: millionths(keys, "weight").unwrap_or(2000),
        idle: keys.some_span("idle").unwrap_or(small.max(Duration::from_nanos(1))),
        gentle: keys.boolean("gentle").unwrap_or(true),
        ecn: keys.boolean("ecn").unwrap_or(false),
    };
    let (least, most) = match (red.min_threshold, red.max_threshold) {
        (Limit::Packets(least), Limit::Packets(most)) => (least, most),
        (Limit::Bytes(least), Limit::Bytes(most)) => (least.get(), most.get()),
        _ => {
            keys.fault(
                "max-threshold",
                "`min-threshold` and `max-threshold` have one unit: say packets or bytes in both",
            );
            return None;
        }
    };
    if least >= most || most > 1 << 40 {
        keys.fault("max-threshold", "`max-threshold` is above `min-threshold`: say at least twice that");
        return None;
    }
    Some(red)
}

fn pie(keys: &Keys<'_>, before: Before) -> Pie {
    const LONGEST: Duration = Duration::from_secs(99);
    // RFC 8033 §4.
    let span = |key, usual| {
        let span = keys.some_span(key).unwrap_or(Duration::from_millis(usual));
        if span > LONGEST {
            keys.fault(key, format!("`{key}` is at most 99 s, for example \"{usual} ms\""));
        }
        span
    };
    Pie {
        limit: limit(keys, before),
        target: span("target", 15),
        update: span("update", 15),
        burst: span("burst", 150),
        alpha: thousandths(keys, "alpha", 10.0).map_or(125, u32::from),
        beta: thousandths(keys, "beta", 10.0).map_or(1250, u32::from),
        ecn: keys.boolean("ecn").unwrap_or(false),
    }
}

/// Reads a probability above 0, in millionths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most a million and not negative"
)]
fn millionths(keys: &Keys<'_>, key: &str) -> Option<u32> {
    keys.number(key, 1e-6..=1.0).map(|part| (part * 1e6).round() as u32)
}

/// Default smallest share of CRQ's queue for unresponsive flows under strict sharing, in
/// thousandths.
const STANDARD_LEAST: u16 = 50;

/// Reads a number from 0 to `most`, in thousandths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 10 000 and not negative"
)]
fn thousandths(keys: &Keys<'_>, key: &str, most: f64) -> Option<u16> {
    keys.number(key, 0.0..=most).map(|share| (share * 1e3).round() as u16)
}

/// Reads a capacity: packets, bytes, or the bytes that the link carries in a span.
fn limit(keys: &Keys<'_>, before: Before) -> Limit {
    read_limit(keys, before).unwrap_or_default()
}

fn read_limit(keys: &Keys<'_>, before: Before) -> Option<Limit> {
    read_amount(keys, "limit", before, before.mtu)
}

/// Reads an amount of packets, or of at least `least` bytes, under `key`.
fn read_amount(keys: &Keys<'_>, key: &str, before: Before, least: Bytes) -> Option<Limit> {
    let item = keys.item(key)?;
    let fault = |problem: String| {
        keys.faults.add(item.place, problem);
        None
    };
    let text = match &item.value {
        Value::String(text) => text,
        Value::Integer(number) => {
            return fault(format!(
                "`{key}` is a number of packets or bytes and needs a unit: say \"{number} packets\", not {number}"
            ));
        }
        other => {
            return fault(format!(
                "`{key}` is for example \"100 packets\", \"60 kB\" or \"50 ms\", not {}",
                other.what()
            ));
        }
    };
    if is_of(text, Of::Packets) {
        return match quantity_of(key, item, Of::Packets, keys.faults)? {
            0 => fault(format!("a {key} of 0 packets lets nothing in: say at least \"1 packets\"")),
            packets => Some(Limit::Packets(packets)),
        };
    }
    let bytes = if is_of(text, Of::Span) {
        let span = Duration::from_nanos(quantity_of(key, item, Of::Span, keys.faults)?);
        match before.rate {
            Some(rate) => rate.bytes_in(span),
            None => {
                return fault(format!(
                    "`{text}` of a link without a fixed rate is no amount: say packets or bytes"
                ));
            }
        }
    } else if is_of(text, Of::Size) {
        Bytes::new(quantity_of(key, item, Of::Size, keys.faults)?)
    } else {
        return fault(format!(
            "`{text}` is not a {key}: say packets (\"100 packets\"), bytes (\"60 kB\"), or for how long the link is busy \
             (\"50 ms\")"
        ));
    };
    if bytes < least {
        let (bytes, mtu) = (crate::quantity::size(bytes), crate::quantity::size(before.mtu));
        return fault(format!("a limit of {bytes} cannot hold a packet of the link's mtu, {mtu}: raise it"));
    }
    Some(Limit::Bytes(bytes))
}
