//! Reader of flows.

use marcato_units::{Bytes, Duration, Rate, Time};

use super::messages::{CHUNK, messaging};
use super::tcp::ends;
use super::traffic::{UdpSizes, frequency, on_off, pause, size, udp_sizes};
use crate::document::{Table, Value};
use crate::fault::Faults;
use crate::flow::{
    Feeder, Flow, FlowKind, Listed, Messages, PacketArrivals, Payload, RequestResponse, TcpEnds, TcpFlow,
    TcpProcess, UdpFlow,
};
use crate::keys::{Keys, Kind, check_name, tagged_of};
use crate::limit::{MAX_FLOWS, MAX_NODES};
use crate::nearest::hint;
use crate::schema;
use crate::sizes::SizeList;
use crate::traffic::{Arrivals, Pause, Preset, Size};

#[derive(Clone, Copy)]
enum Name {
    Tcp,
    Udp,
    TcpProcess,
    RequestResponse,
    Messages,
    Quic,
}

const KINDS: &[Kind<Name>] = &[
    ("tcp", Name::Tcp, &schema::TCP_FLOW),
    ("udp", Name::Udp, &schema::UDP_FLOW),
    ("tcp-process", Name::TcpProcess, &schema::TCP_PROCESS),
    ("request-response", Name::RequestResponse, &schema::REQUEST_RESPONSE),
    ("messages", Name::Messages, &schema::MESSAGES),
    ("quic", Name::Quic, &schema::QUIC),
];

/// Largest payload of a UDP packet over IPv4. RFC 768, RFC 791.
const MOST_PAYLOAD: Bytes = Bytes::new(SizeList::LARGEST as u64);
/// Default upper limit of drawn payloads: with 28 B of headers they fill Ethernet's 1500 B.
const USUAL_MOST: Bytes = Bytes::new(1472);

pub(super) fn flow(table: &Table, nodes: &[String], faults: &Faults) -> Flow {
    let item =
        crate::document::Item { value: crate::document::Value::Table(table.clone()), place: table.place };
    let Some((kind, tagged)) = tagged_of("flow", &item, KINDS, faults) else {
        return nothing(table, nodes, faults);
    };
    let keys = tagged.keys();
    let name = if keys.need("name", "say what it is called, for example name = \"bulk\"") {
        keys.string("name").filter(|name| check_name("flow", name, keys.place("name"), faults))
    } else {
        None
    };
    let layer = keys.layer("layer").unwrap_or_default();
    let has_paths = matches!(kind, Name::Quic) && keys.item("paths").is_some();
    if has_paths {
        for key in ["from", "to"] {
            if keys.item(key).is_some() && (keys.is_set(key) || !keys.is_chosen("kind")) {
                keys.fault(key, format!("the session's `paths` say where it leads: leave `{key}` out"));
            }
        }
    } else {
        keys.need("from", "say which node sends");
        keys.need("to", "say which node receives");
    }
    let most = u32::try_from(MAX_FLOWS).unwrap_or(u32::MAX);
    let count = keys.small("count", 1..=most).unwrap_or(1);
    let mut pairs = if has_paths { Vec::new() } else { pairs(&keys, nodes, count) }.into_iter();
    let [mut from, mut to] = pairs.next().unwrap_or_default();
    let kind = match kind {
        Name::Tcp => FlowKind::Tcp(TcpFlow {
            tcp: ends(&keys),
            size: keys.some_size("size"),
            priority: keys.priority("priority").unwrap_or_default(),
            on_off: on_off(&keys),
        }),
        Name::Udp => udp(&keys),
        Name::TcpProcess => process(&keys),
        Name::RequestResponse => request_response(&keys),
        Name::Messages => messages(&keys),
        Name::Quic => {
            let ends = (!has_paths).then_some([from.as_str(), to.as_str()]);
            FlowKind::Quic(Box::new(super::quic::quic(&keys, ends, layer)))
        }
    };
    if let FlowKind::Quic(quic) = &kind
        && let Some(first) = quic.paths.first()
    {
        (from, to) = (first.from.clone(), first.to.clone());
    }
    let start = keys.span("start").unwrap_or_default();
    let stop = keys.span("stop");
    let start_jitter = keys.span("start-jitter").unwrap_or_default();
    if stop.is_some_and(|stop| stop <= start) {
        keys.fault("stop", "the flow stops before it starts: say a later `stop`");
    } else if stop.is_some_and(|stop| stop < start.saturating_add(start_jitter)) {
        keys.fault("start-jitter", "the flow might stop before it starts: say less, or a later `stop`");
    }
    Flow {
        name: name.unwrap_or_default().to_owned(),
        from,
        to,
        also: pairs.collect(),
        count,
        stagger: keys.span("stagger").unwrap_or_default(),
        start: Time::ZERO + start,
        start_jitter,
        stop: stop.map(|stop| Time::ZERO + stop),
        layer,
        kind,
    }
}

/// Returns the pairs of nodes that `from` and `to` name, over which `count` instances are spread.
fn pairs(keys: &Keys<'_>, nodes: &[String], count: u32) -> Vec<[String; 2]> {
    let (from, to) = (ends_named(keys, "from", nodes), ends_named(keys, "to", nodes));
    // A list that could not be read was already reported.
    let (Some(from), Some(to)) = (from, to) else { return Vec::new() };
    let many = from.len().max(to.len());
    if [&from, &to].iter().any(|ends| ends.len() != many && ends.len() != 1) {
        let (from, to) = (from.len(), to.len());
        keys.fault("to", format!("`from` names {from} nodes and `to` {to}: name as many, or one"));
        return Vec::new();
    }
    if many > count as usize {
        let place = if keys.item("count").is_some() { "count" } else { "from" };
        let problem =
            format!("there are {many} pairs of nodes for {count} of these flows: say count = {many} or more");
        keys.fault(place, problem);
        return Vec::new();
    }
    let mut pairs: Vec<[String; 2]> = Vec::new();
    let all = from.iter().cycle().zip(to.iter().cycle()).take(many);
    for (from, to) in all {
        pairs.push([from.clone(), to.clone()]);
    }
    pairs
}

/// Returns the nodes that `from` or `to` names: one, a list, or all whose names match a pattern
/// with a `*`. If there are none, the fault has been reported.
fn ends_named(keys: &Keys<'_>, key: &str, nodes: &[String]) -> Option<Vec<String>> {
    let item = keys.item(key)?;
    if let Value::Array(items) = &item.value {
        let names: Vec<String> =
            keys.strings(key, MAX_NODES).into_iter().map(|(name, _)| name.to_owned()).collect();
        if items.is_empty() {
            keys.fault(key, format!("`{key}` names no node: say which"));
        }
        return (!names.is_empty() && names.len() == items.len()).then_some(names);
    }
    let name = keys.string(key)?;
    let Some((before, after)) = name.split_once('*') else { return Some(vec![name.to_owned()]) };
    let fits = |node: &&String| {
        node.len() > before.len() + after.len() && node.starts_with(before) && node.ends_with(after)
    };
    let found: Vec<String> = nodes.iter().filter(fits).cloned().collect();
    if found.is_empty() {
        if !keys.faults.has_names("node") {
            return None;
        }
        let advice = hint(name, nodes.iter().map(String::as_str));
        keys.fault(key, format!("no node is called `{name}`: {advice}"));
        return None;
    }
    Some(found)
}

/// Returns a placeholder for a flow of unknown kind, and checks the keys that all kinds share.
fn nothing(table: &Table, nodes: &[String], faults: &Faults) -> Flow {
    let mut ends = TcpEnds::default();
    // Packets this small fit every link, so the placeholder adds no fault.
    (ends.from.mss, ends.to.mss) = (1, 1);
    let tcp = TcpFlow { tcp: ends, size: None, priority: Default::default(), on_off: None };
    // The kind determines the other keys, so unknown keys cannot be judged.
    let keys = Keys::trusting(table, &schema::TCP_FLOW, faults);
    let name = keys.string("name").filter(|name| check_name("flow", name, keys.place("name"), faults));
    let most = u32::try_from(MAX_FLOWS).unwrap_or(u32::MAX);
    let count = keys.small("count", 1..=most).unwrap_or(1);
    let [from, to] = pairs(&keys, nodes, count).into_iter().next().unwrap_or_default();
    Flow {
        name: name.unwrap_or_default().to_owned(),
        from,
        to,
        also: Vec::new(),
        count,
        stagger: keys.span("stagger").unwrap_or_default(),
        start: Time::ZERO + keys.span("start").unwrap_or_default(),
        start_jitter: keys.span("start-jitter").unwrap_or_default(),
        stop: keys.span("stop").map(|stop| Time::ZERO + stop),
        layer: keys.layer("layer").unwrap_or_default(),
        kind: FlowKind::Tcp(tcp),
    }
}

fn udp(keys: &Keys<'_>) -> FlowKind {
    keys.need("rate", "say how fast it sends, for example rate = \"1 Mbit/s\"");
    let payload = payload(keys).unwrap_or(Payload::Constant(Bytes::new(1200)));
    let tick = keys.some_span("tick").unwrap_or(Duration::from_millis(1));
    let arrivals = [
        ("constant", PacketArrivals::Constant),
        ("poisson", PacketArrivals::Poisson),
        ("ticks", PacketArrivals::Ticks { every: tick }),
    ];
    let arrivals = keys.word("arrivals", &arrivals).unwrap_or_default();
    if keys.item("tick").is_some() && !matches!(arrivals, PacketArrivals::Ticks { .. }) {
        keys.fault("tick", "`tick` is of packets that leave by a clock: say arrivals = \"ticks\"");
    }
    let on_off = on_off(keys);
    if on_off.is_some() && arrivals != PacketArrivals::Constant {
        keys.fault(
            "arrivals",
            "packets that are on and off leave at equal distances: leave `arrivals` out, or `on` and `off`",
        );
    }
    FlowKind::Udp(UdpFlow {
        rate: keys.some_rate("rate").unwrap_or(Rate::from_bps(1)),
        payload,
        arrivals,
        on_off,
    })
}

/// Reads the payload of a UDP flow's packets.
fn payload(keys: &Keys<'_>) -> Option<Payload> {
    let most = keys.some_size("most-payload");
    let (key, said) = match udp_sizes(keys, "payload")? {
        UdpSizes::Drawn(Size::Constant(bytes)) => ("payload", Payload::Constant(bytes)),
        UdpSizes::Drawn(size) => {
            let most = most.unwrap_or(USUAL_MOST);
            let key = if keys.item("most-payload").is_some() { "most-payload" } else { "payload" };
            (key, Payload::Drawn { size, most })
        }
        UdpSizes::Listed { file, is_random } => {
            ("payload", Payload::Listed(Listed { file, is_random, list: None }))
        }
    };
    if !matches!(said, Payload::Drawn { .. }) && keys.item("most-payload").is_some() {
        keys.fault("most-payload", "`most-payload` is of payloads that are drawn: leave it out");
    }
    let most = match said {
        Payload::Constant(bytes) => bytes,
        Payload::Drawn { most, .. } => most,
        Payload::Listed(_) => Bytes::ZERO,
    };
    if most > MOST_PAYLOAD {
        keys.fault(key, "a udp packet carries at most 65507 B: say less");
    }
    Some(said)
}

fn process(keys: &Keys<'_>) -> FlowKind {
    keys.need("size", "say how much each connection sends, for example size = \"100 kB\"");
    let arrivals = match (keys.item("arrivals"), keys.item("load")) {
        (Some(_), Some(_)) => {
            keys.fault("load", "say `arrivals` or `load`, not both: each follows from the other");
            None
        }
        (None, None) => {
            keys.need("arrivals", "say how often one begins, for example arrivals = \"5 /s\"; or `load`");
            None
        }
        (Some(_), None) => frequency(keys, "arrivals").map(Arrivals::Every),
        (None, Some(_)) => keys.some_rate("load").map(Arrivals::Load),
    };
    FlowKind::TcpProcess(TcpProcess {
        tcp: ends(keys),
        arrivals: arrivals.unwrap_or(Arrivals::Every(marcato_units::Duration::from_secs(1_000_000))),
        size: size(keys, "size").unwrap_or(Size::Constant(Bytes::kb(1))),
        most_open: keys.small("most-open", 1..=100_000).unwrap_or(1000),
    })
}

fn request_response(keys: &Keys<'_>) -> FlowKind {
    keys.need("response", "say how long an answer is, for example response = \"100 kB\"");
    FlowKind::RequestResponse(RequestResponse {
        tcp: ends(keys),
        request: keys.some_size("request").unwrap_or(Bytes::new(200)),
        response: size(keys, "response").unwrap_or(Size::Constant(Bytes::kb(1))),
        think: pause(keys, "think").unwrap_or(Pause::Constant(Default::default())),
        requests: keys.integer("requests", 1..=u64::MAX),
    })
}

fn messages(keys: &Keys<'_>) -> FlowKind {
    let mut messaging = messaging(keys);
    let feeders = [
        ("conductor", Feeder::Conductor),
        ("greedy", Feeder::Greedy),
        ("fifo", Feeder::Fifo),
        ("writers", Feeder::Writers),
    ];
    let feeder = keys.word("feeder", &feeders).unwrap_or_default();
    if matches!(feeder, Feeder::Fifo | Feeder::Writers) {
        (messaging.preset, messaging.chunk) = (Preset::default(), CHUNK);
        for key in ["preset", "chunk"] {
            // A grid over feeders has the keys of every feeder in one file, so only keys given by
            // `--set` are refused.
            if keys.is_set(key) {
                let problem = format!(
                    "`{key}` is the conductor's, and this feeder has none: leave it out, or vary both in one, for example \
                     \"flow.NAME\" = [{{ feeder = \"fifo\" }}, {{ feeder = \"conductor\", {key} = … }}]"
                );
                keys.fault(key, problem);
            } else if keys.item(key).is_some() && !keys.is_chosen("feeder") {
                keys.fault(
                    key,
                    format!("`{key}` is the conductor's, and this feeder has none: leave it out"),
                );
            }
        }
    }
    FlowKind::Messages(Box::new(Messages {
        tcp: ends(keys),
        feeder,
        preset: messaging.preset,
        chunk: messaging.chunk,
        messages: messaging.messages,
        sources: messaging.sources,
        bulk: messaging.bulk,
    }))
}
