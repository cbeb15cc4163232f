//! Capacities and thresholds of queues: packets, bytes, or the bytes that a link carries in a span.

use marcato_document::form::Single;
use marcato_document::quantity::{Of, is_of, size};
use marcato_document::{Keys, Value, quantity_of, quote};
use marcato_queue::Limit;
use marcato_units::{Bytes, Duration, Rate};

/// Transmitter behind a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transmitter {
    /// Rate; `None` if it has no constant one.
    pub(crate) rate: Option<Rate>,
    pub(crate) mtu: Bytes,
}

/// Capacity of a queue, which must hold a packet of the link's MTU.
pub(crate) struct Capacity;

impl Single<Transmitter> for Capacity {
    type Value = Limit;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, at: &Transmitter) -> Option<Limit> {
        amount(keys, key, at, at.mtu)
    }

    fn toml(&self, limit: &Limit) -> String {
        quote(&limit_text(*limit))
    }
}

/// Formats a capacity as in files.
pub(crate) fn limit_text(limit: Limit) -> String {
    match limit {
        Limit::Packets(packets) => format!("{packets} packets"),
        Limit::Bytes(bytes) => size(bytes),
    }
}

/// Reads an amount of packets, or of at least `least` bytes, under `key`.
pub(crate) fn amount(keys: &Keys<'_>, key: &str, at: &Transmitter, least: Bytes) -> Option<Limit> {
    let item = keys.item(key)?;
    let fault = |problem: String| {
        keys.faults.add(item.place, problem);
        None
    };
    let text = match &item.value {
        Value::String(text) => text,
        Value::Integer(number) => {
            return fault(format!(
                "`{key}` is a number of packets or bytes and needs a unit: write \"{number} packets\", not {number}"
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
            0 => fault(format!("a {key} of 0 packets lets nothing in: give at least \"1 packets\"")),
            packets => Some(Limit::Packets(packets)),
        };
    }
    let bytes = if is_of(text, Of::Span) {
        let span = Duration::from_nanos(quantity_of(key, item, Of::Span, keys.faults)?);
        match at.rate {
            Some(rate) => rate.bytes_in(span),
            None => {
                return fault(format!(
                    "`{text}` of a link without a fixed rate is no amount: give packets or bytes"
                ));
            }
        }
    } else if is_of(text, Of::Size) {
        Bytes::new(quantity_of(key, item, Of::Size, keys.faults)?)
    } else {
        return fault(format!(
            "`{text}` is not a {key}: give packets (\"100 packets\"), bytes (\"60 kB\"), or for how long the link is busy \
             (\"50 ms\")"
        ));
    };
    if bytes < least {
        let (bytes, mtu) = (size(bytes), size(at.mtu));
        return fault(format!("a limit of {bytes} cannot hold a packet of the link's mtu, {mtu}: raise it"));
    }
    Some(Limit::Bytes(bytes))
}
