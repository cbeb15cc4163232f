//! Reader of TCP options.

use marcato_units::Bytes;

use super::{overlay, renamed};
use crate::document::Table;
use crate::fault::Faults;
use crate::flow::TcpEnds;
use crate::keys::{Chosen, Keys, Kind, Read};
use crate::plugin::PluginKind;
use crate::schema;
use crate::tcp::{Congestion, DelayedAck, Growth, LossDetection, LowLayer, PriorityOption, Tcp};

/// Largest window that window scaling can offer. RFC 7323 §2.3.
const MOST_RECEIVE_BUFFER: Bytes = Bytes::new(1 << 30);

/// Reads both ends of a flow's connections: `tcp` for both, `congestion` of the flow itself, and
/// `tcp-to` for differences of the far end.
pub(super) fn ends(flow: &Keys<'_>) -> TcpEnds {
    let faults = flow.faults;
    let mut table = flow.table("tcp").cloned().unwrap_or_else(|| Table::empty(flow.here()));
    if let Some(congestion) = flow.item("congestion") {
        if table.get("congestion").is_some() {
            flow.fault("congestion", "`congestion` is said here and in `tcp`: leave one of them out");
        }
        table.set(renamed("congestion", congestion), congestion.clone());
    }
    let from = tcp(&table, faults);
    let to = match flow.table("tcp-to") {
        Some(to) => tcp(&overlay(&table, to, |_| true, ["", ""]), faults),
        None => from.clone(),
    };
    if from.low_layer.is_some() != to.low_layer.is_some() {
        flow.fault("tcp-to", "one end has a low layer and the other does not: both need one, or neither");
    }
    TcpEnds { from, to }
}

/// Built-in congestion controls, each with the reader of its keys.
pub(super) const CONGESTIONS: &[Kind<Read<Congestion>>] = &[
    ("reno", |_| Congestion::Reno, &schema::CONGESTION_PLAIN),
    ("cubic", cubic, &schema::CUBIC),
    ("dctcp", |_| Congestion::Dctcp, &schema::CONGESTION_PLAIN),
    ("bbr", |_| Congestion::Bbr, &schema::CONGESTION_PLAIN),
];

fn congestion(keys: &Keys<'_>) -> Option<Congestion> {
    Some(match keys.chosen("congestion", CONGESTIONS, PluginKind::Congestion)? {
        Chosen::BuiltIn(read, tagged) => read(&tagged.keys()),
        Chosen::Plugin(plugin) => Congestion::Plugin(plugin),
    })
}

fn cubic(keys: &Keys<'_>) -> Congestion {
    Congestion::Cubic {
        hystart: keys.boolean("hystart").unwrap_or(true),
        fast_convergence: keys.boolean("fast-convergence").unwrap_or(true),
    }
}

fn tcp(table: &Table, faults: &Faults) -> Tcp {
    let keys = Keys::open(table, &schema::TCP, faults);
    let default = Tcp::default();
    let mss = keys.size("mss").unwrap_or(Bytes::from(default.mss));
    let fitting = u32::try_from(mss.get()).ok().filter(|mss| (1..=65_535).contains(mss));
    if fitting.is_none() {
        keys.fault("mss", format!("`mss` is 1 B to 65535 B, not {}", crate::quantity::size(mss)));
    }
    let tcp = Tcp {
        congestion: congestion(&keys).unwrap_or(default.congestion),
        mss: fitting.unwrap_or(default.mss),
        initial_window: keys.small("initial-window", 1..=100_000).unwrap_or(default.initial_window),
        initial_ssthresh: initial_ssthresh(&keys),
        growth: growth(&keys).unwrap_or(default.growth),
        send_buffer: keys.some_size("send-buffer").unwrap_or(default.send_buffer),
        receive_buffer: keys.some_size("receive-buffer").unwrap_or(default.receive_buffer),
        receive_buffer_from: optional_size(&keys, "receive-buffer-from"),
        notsent_lowat: optional_size(&keys, "notsent-lowat"),
        delayed_ack: keys
            .table("delayed-ack")
            .map_or_else(DelayedAck::default, |table| delayed_ack(table, faults)),
        min_rto: keys.some_span("min-rto").unwrap_or(default.min_rto),
        max_rto: keys.some_span("max-rto").unwrap_or(default.max_rto),
        initial_rto: keys.some_span("initial-rto").unwrap_or(default.initial_rto),
        timestamps: keys.boolean("timestamps").unwrap_or(default.timestamps),
        sack: keys.boolean("sack").unwrap_or(default.sack),
        ecn: keys.boolean("ecn").unwrap_or(default.ecn),
        priority_option: priority_option(&keys),
        loss_detection: keys
            .word(
                "loss-detection",
                &[("rack", LossDetection::Rack), ("dup-thresh", LossDetection::DupThresh)],
            )
            .unwrap_or(default.loss_detection),
        pacing: keys.boolean("pacing").unwrap_or(default.pacing),
        segmentation_offload: optional_size(&keys, "segmentation-offload"),
        slow_start_after_idle: keys.boolean("slow-start-after-idle").unwrap_or(default.slow_start_after_idle),
        low_layer: low_layer(&keys),
    };
    check(&keys, &tcp);
    tcp
}

/// Reads a number of segments, or "none". The far end needs "none" to override the near end's
/// number.
fn initial_ssthresh(keys: &Keys<'_>) -> Option<u32> {
    let is_none = keys.item("initial-ssthresh")?.as_str() == Some("none");
    if is_none { None } else { keys.small("initial-ssthresh", 1..=1_000_000) }
}

const GROWTHS: &[Kind<bool>] =
    &[("bytes", true, &schema::GROWTH_BYTES), ("acks", false, &schema::GROWTH_ACKS)];

fn growth(keys: &Keys<'_>) -> Option<Growth> {
    let (by_bytes, tagged) = keys.tagged("growth", GROWTHS)?;
    if !by_bytes {
        return Some(Growth::Acknowledgements);
    }
    Some(
        tagged
            .keys()
            .small("limit", 1..=1_000_000)
            .map_or_else(Growth::default, |limit| Growth::Bytes { limit }),
    )
}

/// Reads a size, or "none". The far end needs "none" to override the near end's size.
fn optional_size(keys: &Keys<'_>, key: &str) -> Option<Bytes> {
    if keys.item(key)?.as_str() == Some("none") { None } else { keys.some_size(key) }
}

fn priority_option(keys: &Keys<'_>) -> Option<PriorityOption> {
    let words = [
        ("none", None),
        ("rfc6994", Some(PriorityOption::Rfc6994)),
        ("short", Some(PriorityOption::Short)),
        ("authors", Some(PriorityOption::Authors)),
    ];
    keys.word("priority-option", &words).flatten()
}

const LOW_LAYERS: &[Kind<Option<LowLayer>>] = &[
    ("none", None, &schema::LOW_LAYER_NONE),
    ("paper", Some(LowLayer::PAPER), &schema::LOW_LAYER),
    ("marcato", Some(LowLayer::MARCATO), &schema::LOW_LAYER),
];

fn low_layer(keys: &Keys<'_>) -> Option<LowLayer> {
    let (preset, tagged) = keys.tagged("low-layer", LOW_LAYERS)?;
    let preset = preset?;
    let keys = tagged.keys();
    // Some keys take a word instead of a number.
    let says = |key, word| keys.item(key).is_some_and(|item| item.as_str() == Some(word));
    let high_for = match says("high-for", "all") {
        true => None,
        false => keys.priority("high-for").or(preset.high_for),
    };
    let low = LowLayer {
        target: match says("target", "found") {
            true => None,
            false => keys.number("target", 0.000_001..=0.999).or(preset.target),
        },
        epoch: match says("epoch", "round-trip") {
            true => None,
            false => keys.some_span("epoch").or(preset.epoch),
        },
        initial_window: keys.small("initial-window", 1..=1_000_000).unwrap_or(preset.initial_window),
        most_window: keys.small("most-window", 1..=1_000_000).unwrap_or(preset.most_window),
        min_rto: keys.some_span("min-rto").unwrap_or(preset.min_rto),
        first_rto: keys.span("first-rto").unwrap_or(preset.first_rto),
        retransmissions: keys
            .small("retransmissions", 0..=255)
            .and_then(|often| u8::try_from(often).ok())
            .unwrap_or(preset.retransmissions),
        ack_layer: keys.layer("ack-layer").unwrap_or(preset.ack_layer),
        ack_every: keys.small("ack-every", 1..=4).unwrap_or(preset.ack_every),
        high_for,
    };
    if low.initial_window > low.most_window {
        keys.fault("initial-window", "`initial-window` is above `most-window`: lower it");
    }
    Some(low)
}

/// Checks the limits that the simulator's TCP would refuse, and reports them at their place.
fn check(keys: &Keys<'_>, tcp: &Tcp) {
    let mss = Bytes::from(tcp.mss);
    for (key, buffer) in [("send-buffer", tcp.send_buffer), ("receive-buffer", tcp.receive_buffer)] {
        if buffer < mss {
            keys.fault(
                key,
                format!("`{key}` is smaller than a segment of {}: raise it", crate::quantity::size(mss)),
            );
        }
    }
    if tcp.receive_buffer > MOST_RECEIVE_BUFFER {
        keys.fault("receive-buffer", "`receive-buffer` is at most 1 GiB, all that window scaling can offer");
    }
    if tcp.receive_buffer_from.is_some_and(|from| from < mss || from > tcp.receive_buffer) {
        keys.fault(
            "receive-buffer-from",
            "`receive-buffer-from` is at least `mss` and at most `receive-buffer`",
        );
    }
    if tcp.min_rto > tcp.max_rto {
        keys.fault("min-rto", "`min-rto` is above `max-rto`: lower it");
    }
    // RFC 8985 §4: a connection MUST use SACK for RACK-TLP.
    if !tcp.sack && tcp.loss_detection == LossDetection::Rack {
        keys.fault("sack", "rack goes by selective acknowledgements: say loss-detection = \"dup-thresh\" beside sack = false");
    }
    if tcp.initial_ssthresh.is_some() && tcp.congestion == Congestion::Bbr {
        keys.fault("initial-ssthresh", "bbr has no slow start threshold: leave it out");
    }
    if tcp.congestion == Congestion::Dctcp && !tcp.ecn {
        keys.fault(
            "congestion",
            "dctcp lives on marks: say ecn = true in the flow's `tcp`, or choose another congestion control",
        );
    }
}

fn delayed_ack(table: &Table, faults: &Faults) -> DelayedAck {
    let keys = Keys::open(table, &schema::DELAYED_ACK, faults);
    let default = DelayedAck::default();
    DelayedAck {
        every: keys.small("every", 1..=1000).unwrap_or(default.every),
        timeout: keys.some_span("timeout").unwrap_or(default.timeout),
        first_at_once: keys.boolean("first-at-once").unwrap_or(default.first_at_once),
        urgent_at_once: keys.boolean("urgent-at-once").unwrap_or(default.urgent_at_once),
    }
}
