//! Reader of QUIC flows.

use marcato_units::{Bytes, Duration, Layer, Priority};

use super::messages::messaging;
use crate::document::{Item, Table, Value};
use crate::keys::{Chosen, Keys, Kind, Read};
use crate::limit::MAX_PATHS;
use crate::plugin::PluginKind;
use crate::quic::{Budget, Controller, Growth, Pacing, Path, Quic, Reserving, Scheduler, StreamUse};
use crate::schema;

/// Smallest UDP payload that a QUIC path must carry. RFC 9000 §14.
const LEAST_MTU: Bytes = Bytes::new(1200);
/// Largest UDP payload. RFC 9000 §18.2.
const MOST_MTU: Bytes = Bytes::new(65_527);

/// Reads a session. `ends` are the flow's `from` and `to`, if it has them.
pub(super) fn quic(keys: &Keys<'_>, ends: Option<[&str; 2]>, layer: Layer) -> Quic {
    let messaging = messaging(keys);
    let initial_mtu = keys.size("initial-mtu").unwrap_or(LEAST_MTU);
    if !(LEAST_MTU..=MOST_MTU).contains(&initial_mtu) {
        keys.fault(
            "initial-mtu",
            format!("`initial-mtu` is 1200 B to 65527 B, not {}", crate::quantity::size(initial_mtu)),
        );
    }
    let controller = controller(keys).unwrap_or(Controller::Cubic);
    let pacings = [("off", Pacing::Off), ("session", Pacing::Session), ("strict", Pacing::Strict)];
    let pacing = keys.word("pacing", &pacings).unwrap_or_default();
    if controller == Controller::Bbr3 && pacing == Pacing::Off {
        keys.fault(
            "pacing",
            "bbr3 without pacing doubles the round-trip time: say \"session\" or \"strict\"",
        );
    }
    let growths = [("acknowledged", Growth::Acknowledged), ("credited", Growth::Credited)];
    let uses = [("per-message", StreamUse::PerMessage), ("reuse", StreamUse::Reuse)];
    let paths = paths(keys, ends, layer);
    let layered = keys.boolean("layered").unwrap_or(false);
    if layered && [Layer::High, Layer::Low].iter().any(|one| paths.iter().all(|path| path.layer != *one)) {
        keys.fault(
            "layered",
            "two layers need a path each: say for example paths = [[\"client\", \"server\"], { from = \"client\", to = \
             \"server\", layer = \"low\" }]",
        );
    }
    Quic {
        paths,
        scheduler: scheduler(keys).unwrap_or(Scheduler::Cwr(Reserving::MARCATO)),
        layered,
        controller,
        initial_window: keys.some_size("initial-window"),
        preset: messaging.preset,
        chunk: messaging.chunk,
        messages: messaging.messages,
        sources: messaging.sources,
        bulk: messaging.bulk,
        pacing,
        growth: keys.word("growth", &growths).unwrap_or_default(),
        streams: keys.word("streams", &uses).unwrap_or_default(),
        batch: keys.small("batch", 1..=64).unwrap_or(10),
        initial_mtu,
        mtu_discovery: keys.boolean("mtu-discovery").unwrap_or(true),
        // Defaults: RFC 9002 §6.1.1, §6.1.2 and §6.2.2.
        packet_threshold: keys.small("packet-threshold", 1..=1_000_000).unwrap_or(3),
        time_threshold: keys.number("time-threshold", 1.0..=100.0).unwrap_or(9.0 / 8.0),
        initial_rtt: keys.some_span("initial-rtt").unwrap_or(Duration::from_millis(333)),
    }
}

fn paths(keys: &Keys<'_>, ends: Option<[&str; 2]>, layer: Layer) -> Vec<Path> {
    let Some(items) = keys.list("paths", MAX_PATHS) else {
        let path = |[from, to]: [&str; 2]| Path { from: from.to_owned(), to: to.to_owned(), layer };
        return ends.map(path).into_iter().collect();
    };
    if items.is_empty() {
        keys.fault("paths", "a session needs a path: say for example paths = [[\"client\", \"server\"]]");
    }
    let path = |item: &Item| match &item.value {
        Value::Array(_) => {
            let wrapped =
                Table { entries: vec![(super::renamed("paths", item), item.clone())], place: item.place };
            let ends = Keys::open(&wrapped, &schema::QUIC, keys.faults).strings("paths", MAX_PATHS);
            match ends.as_slice() {
                [(from, _), (to, _)] => Some(Path { from: (*from).to_owned(), to: (*to).to_owned(), layer }),
                other => {
                    keys.faults.add(
                        item.place,
                        format!("a path leads from one node to another, not along {}", other.len()),
                    );
                    None
                }
            }
        }
        Value::Table(table) => {
            let path = Keys::open(table, &schema::PATH, keys.faults);
            path.need("from", "say where it begins");
            path.need("to", "say where it ends");
            let name = |key| path.string(key).unwrap_or_default().to_owned();
            Some(Path { from: name("from"), to: name("to"), layer: path.layer("layer").unwrap_or(layer) })
        }
        other => {
            let what = other.what();
            keys.faults
                .add(item.place, format!("a path is for example [\"client\", \"server\"], not {what}"));
            None
        }
    };
    items.iter().filter_map(path).collect()
}

/// Built-in lane schedulers, each with the reader of its keys.
pub(super) const SCHEDULERS: &[Kind<Read<Scheduler>>] = &[
    ("low-rtt", |_| Scheduler::LowRtt, &schema::SCHEDULER_PLAIN),
    ("round-robin", |_| Scheduler::RoundRobin, &schema::SCHEDULER_PLAIN),
    ("cwr", |keys| Scheduler::Cwr(reserving(keys)), &schema::CWR),
    ("cwr-red", |keys| Scheduler::CwrRed(reserving(keys)), &schema::CWR_RED),
    ("selective", selective, &schema::SELECTIVE),
];

fn scheduler(keys: &Keys<'_>) -> Option<Scheduler> {
    Some(match keys.chosen("scheduler", SCHEDULERS, PluginKind::Scheduler)? {
        Chosen::BuiltIn(read, tagged) => read(&tagged.keys()),
        Chosen::Plugin(plugin) => Scheduler::Plugin(plugin),
    })
}

fn selective(keys: &Keys<'_>) -> Scheduler {
    Scheduler::Selective(keys.priority("threshold").unwrap_or(Priority::P0))
}

fn reserving(keys: &Keys<'_>) -> Reserving {
    let presets = [("paper", Reserving::PAPER), ("marcato", Reserving::MARCATO)];
    let preset = keys.word("preset", &presets).unwrap_or(Reserving::MARCATO);
    let budget = match keys.item("budget") {
        None => preset.budget,
        Some(item) if item.as_str() == Some("unlimited") => None,
        Some(Item { value: Value::Table(table), .. }) => {
            let keys = Keys::open(table, &schema::BUDGET, keys.faults);
            Some(Budget {
                allowance: keys.size("allowance").unwrap_or(Budget::DEFAULT.allowance),
                // The upper limit allows one copy on each of fifteen other lanes.
                share: keys.small("share", 0..=15_000).unwrap_or(Budget::DEFAULT.share),
            })
        }
        Some(_) => {
            keys.fault(
                "budget",
                "`budget` is \"unlimited\" or a table, for example { allowance = \"100 kB\", share = 100 }",
            );
            None
        }
    };
    Reserving {
        threshold: keys.priority("threshold").unwrap_or(preset.threshold),
        background_share: keys.small("background-share", 0..=1000).unwrap_or(preset.background_share),
        learn: keys.boolean("learn").unwrap_or(preset.learn),
        budget,
    }
}

#[derive(Clone, Copy)]
enum ControllerName {
    NewReno,
    Cubic,
    Bbr3,
}

const CONTROLLERS: &[Kind<ControllerName>] = &[
    ("new-reno", ControllerName::NewReno, &schema::NEW_RENO),
    ("cubic", ControllerName::Cubic, &schema::CONTROLLER_PLAIN),
    ("bbr3", ControllerName::Bbr3, &schema::CONTROLLER_PLAIN),
];

fn controller(keys: &Keys<'_>) -> Option<Controller> {
    let (name, tagged) = keys.tagged("controller", CONTROLLERS)?;
    let keys = tagged.keys();
    Some(match name {
        // RFC 9002 §7.3.2: half.
        ControllerName::NewReno => {
            Controller::NewReno { loss_reduction: keys.number("loss-reduction", 0.01..=0.99).unwrap_or(0.5) }
        }
        ControllerName::Cubic => Controller::Cubic,
        ControllerName::Bbr3 => Controller::Bbr3,
    })
}
