//! Proxies and toxics as documents of JSON, in the form that clients of toxiproxy know.

use marcato_lab::Traces;
use marcato_lab::proxy::{NamedToxic, Protocol, ProxyConfig, ProxyView, Side, Toxic};
use marcato_scenario::brief::{Brief, BriefLink, Ways};
use marcato_scenario::link::Capacity;
use marcato_units::{Bytes, Duration, Rate};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Proxy as a client or a file describes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Given {
    pub(super) name: String,
    pub(super) listen: Option<String>,
    #[serde(alias = "to")]
    pub(super) upstream: Option<String>,
    pub(super) enabled: Option<bool>,
    pub(super) protocol: Option<String>,
    pub(super) link: Option<String>,
    /// Clients in Go write `null` for none.
    pub(super) toxics: Option<Vec<GivenToxic>>,
}

/// Toxic as a client or a file describes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GivenToxic {
    pub(super) name: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) stream: Option<String>,
    pub(super) toxicity: Option<f64>,
    pub(super) attributes: Option<Map<String, Value>>,
}

/// Returns the configuration of a proxy.
pub(super) fn config(given: Given) -> Result<ProxyConfig, String> {
    let missing = |field: &str| format!("missing required field: {field}");
    if given.name.is_empty() {
        return Err(missing("name"));
    }
    let protocol = match given.protocol.as_deref() {
        None | Some("tcp") => Protocol::Tcp,
        Some("udp") => Protocol::Udp,
        Some(other) => return Err(format!("`{other}` is no protocol: write tcp or udp")),
    };
    let mut config = ProxyConfig {
        name: given.name,
        protocol,
        listen: given.listen.filter(|to| !to.is_empty()).unwrap_or_else(|| "127.0.0.1:0".to_owned()),
        target: given.upstream.filter(|to| !to.is_empty()).ok_or_else(|| missing("upstream"))?,
        enabled: given.enabled.unwrap_or(true),
        ..ProxyConfig::default()
    };
    if let Some(text) = given.link {
        let mut brief = Brief::default();
        brief.add("link", Ways::Both, &text).map_err(|error| error.to_string())?;
        set_link(&mut config, &brief)?;
    }
    config.toxics = given.toxics.into_iter().flatten().map(toxic).collect::<Result<_, _>>()?;
    Ok(config)
}

/// Gives a proxy the link of a text, and reads its traces.
pub(super) fn set_link(config: &mut ProxyConfig, brief: &Brief) -> Result<(), String> {
    let link = brief.link().map_err(|error| error.to_string())?;
    config.traces = traces(&link)?;
    config.link = Some(link);
    Ok(())
}

fn traces(link: &BriefLink) -> Result<Traces, String> {
    let mut traces = Traces::new();
    for way in [&link.link.there, &link.link.back] {
        if let Capacity::Trace(path) = &way.rate {
            let failed = |problem: String| format!("the trace `{path}`: {problem}");
            let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
            let trace = text.parse().map_err(|error: marcato_lab::TraceError| failed(error.to_string()))?;
            traces.insert(path.clone(), trace);
        }
    }
    Ok(traces)
}

/// Returns a new toxic. Its name is that of its type and stream, if it has none.
pub(super) fn toxic(given: GivenToxic) -> Result<NamedToxic, String> {
    let side = match given.stream.as_deref() {
        None | Some("" | "downstream") => Side::Downstream,
        Some("upstream") => Side::Upstream,
        Some(_) => return Err("stream was invalid, can be either upstream or downstream".to_owned()),
    };
    let kind = given.kind.unwrap_or_default();
    let toxic = built(&kind, &given.attributes.unwrap_or_default())?;
    let name = given.name.filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| format!("{kind}_{}", stream(side)));
    Ok(NamedToxic { name, side, toxicity: toxicity(given.toxicity.unwrap_or(1.0))?, toxic })
}

/// Returns a toxic with some attributes changed.
pub(super) fn changed(old: &NamedToxic, given: GivenToxic) -> Result<NamedToxic, String> {
    let (kind, mut attributes) = parts(&old.toxic);
    attributes.extend(given.attributes.into_iter().flatten());
    let toxicity = toxicity(given.toxicity.unwrap_or(old.toxicity))?;
    Ok(NamedToxic { toxicity, toxic: built(kind, &attributes)?, ..old.clone() })
}

fn toxicity(value: f64) -> Result<f64, String> {
    match (0.0..=1.0).contains(&value) {
        true => Ok(value),
        false => Err(format!("a toxicity of {value} is no probability: give one from 0 to 1")),
    }
}

/// Builds a toxic from its type and attributes. Those that are missing are 0.
fn built(kind: &str, attributes: &Map<String, Value>) -> Result<Toxic, String> {
    let number = |name: &str| -> Result<u64, String> {
        match attributes.get(name) {
            None | Some(Value::Null) => Ok(0),
            Some(value) => {
                let whole = value.as_u64().or_else(|| {
                    // Some languages write whole numbers with a point.
                    let float =
                        value.as_f64().filter(|float| (0.0..=9e15).contains(float) && float.fract() == 0.0);
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "it is whole and below 2^53"
                    )]
                    float.map(|float| float as u64)
                });
                whole.ok_or_else(|| format!("attribute `{name}`: {value} is no whole number of at least 0"))
            }
        }
    };
    // 30 days: no test waits longer, and sums of a few do not overflow.
    let millis = |name: &str| Ok::<_, String>(Duration::from_millis(number(name)?.min(30 * 86_400_000)));
    let share = |name: &str| match attributes.get(name).and_then(Value::as_f64) {
        Some(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("attribute `{name}` is missing or no probability: give one from 0 to 1")),
    };
    Ok(match kind {
        "latency" => Toxic::Latency { latency: millis("latency")?, jitter: millis("jitter")? },
        // Kilobytes in a second.
        "bandwidth" => Toxic::Bandwidth { rate: Rate::from_kbps(number("rate")?.saturating_mul(8)) },
        "slow_close" => Toxic::SlowClose { delay: millis("delay")? },
        "timeout" => Toxic::Timeout { timeout: millis("timeout")? },
        "reset_peer" => Toxic::ResetPeer { timeout: millis("timeout")? },
        "slicer" => Toxic::Slicer {
            average: Bytes::new(number("average_size")?.clamp(1, 1 << 30)),
            variation: Bytes::new(number("size_variation")?.min(1 << 30)),
            delay: Duration::from_micros(number("delay")?.min(30 * 86_400_000_000)),
        },
        "limit_data" => Toxic::LimitData { bytes: Bytes::new(number("bytes")?) },
        "loss" => Toxic::Loss(share("share")?),
        "reorder" => Toxic::Reorder(share("share")?),
        "duplicate" => Toxic::Duplicate(share("share")?),
        "corrupt" => Toxic::Corrupt(share("share")?),
        other => {
            return Err(format!(
                "invalid toxic type: `{other}` is none of latency, bandwidth, slow_close, timeout, reset_peer, slicer, \
                 limit_data; for udp loss, reorder, duplicate, corrupt"
            ));
        }
    })
}

/// Returns the type and the attributes of a toxic.
fn parts(toxic: &Toxic) -> (&'static str, Map<String, Value>) {
    let millis = |span: &Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let (kind, attributes) = match toxic {
        Toxic::Latency { latency, jitter } => {
            ("latency", json!({ "latency": millis(latency), "jitter": millis(jitter) }))
        }
        Toxic::Bandwidth { rate } => ("bandwidth", json!({ "rate": rate.as_bps() / 8000 })),
        Toxic::SlowClose { delay } => ("slow_close", json!({ "delay": millis(delay) })),
        Toxic::Timeout { timeout } => ("timeout", json!({ "timeout": millis(timeout) })),
        Toxic::ResetPeer { timeout } => ("reset_peer", json!({ "timeout": millis(timeout) })),
        Toxic::Slicer { average, variation, delay } => (
            "slicer",
            json!({
                "average_size": average.get(),
                "size_variation": variation.get(),
                "delay": u64::try_from(delay.as_micros()).unwrap_or(u64::MAX),
            }),
        ),
        Toxic::LimitData { bytes } => ("limit_data", json!({ "bytes": bytes.get() })),
        Toxic::Loss(share) => ("loss", json!({ "share": share })),
        Toxic::Reorder(share) => ("reorder", json!({ "share": share })),
        Toxic::Duplicate(share) => ("duplicate", json!({ "share": share })),
        Toxic::Corrupt(share) => ("corrupt", json!({ "share": share })),
    };
    let Value::Object(attributes) = attributes else { return (kind, Map::new()) };
    (kind, attributes)
}

fn stream(side: Side) -> &'static str {
    match side {
        Side::Upstream => "upstream",
        Side::Downstream => "downstream",
    }
}

/// Returns the document of a toxic.
pub(super) fn of_toxic(toxic: &NamedToxic) -> Value {
    let (kind, attributes) = parts(&toxic.toxic);
    json!({
        "name": toxic.name,
        "type": kind,
        "stream": stream(toxic.side),
        "toxicity": toxic.toxicity,
        "attributes": attributes,
    })
}

/// Returns the document of a proxy.
pub(super) fn of_proxy(view: &ProxyView) -> Value {
    let config = &view.config;
    json!({
        "name": config.name,
        "listen": config.listen,
        "upstream": config.target,
        "enabled": config.enabled,
        "toxics": config.toxics.iter().map(of_toxic).collect::<Vec<_>>(),
    })
}

/// Returns the document of the counters of a proxy.
pub(super) fn of_counters(view: &ProxyView) -> Value {
    let counters = view.counters;
    json!({
        "protocol": protocol(view.config.protocol),
        "accepted": counters.accepted,
        "open": counters.open,
        "refused": counters.refused,
        "unreachable": counters.unreachable,
        "bytes_up": counters.bytes_up,
        "bytes_down": counters.bytes_down,
        "discarded": counters.discarded,
    })
}

/// Returns the name of a protocol.
pub(super) const fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<NamedToxic, String> {
        toxic(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn each_toxic_is_written_as_it_was_read() {
        for (kind, attributes) in [
            ("latency", r#"{"latency":100,"jitter":5}"#),
            ("bandwidth", r#"{"rate":125}"#),
            ("slow_close", r#"{"delay":7}"#),
            ("timeout", r#"{"timeout":0}"#),
            ("reset_peer", r#"{"timeout":12}"#),
            ("slicer", r#"{"average_size":64,"size_variation":8,"delay":10}"#),
            ("limit_data", r#"{"bytes":1000}"#),
            ("loss", r#"{"share":0.5}"#),
            ("corrupt", r#"{"share":1.0}"#),
        ] {
            let text = format!(
                r#"{{"type":"{kind}","stream":"upstream","toxicity":0.5,"attributes":{attributes}}}"#
            );
            let written = of_toxic(&read(&text).unwrap());
            assert_eq!(written["name"], format!("{kind}_upstream"));
            assert_eq!((&written["type"], &written["stream"]), (&json!(kind), &json!("upstream")));
            assert_eq!(written["toxicity"], json!(0.5));
            assert_eq!(written["attributes"], serde_json::from_str::<Value>(attributes).unwrap());
        }
    }

    #[test]
    fn a_changed_toxic_keeps_what_is_not_named() {
        let old =
            read(r#"{"name":"slow","type":"latency","attributes":{"latency":100,"jitter":5}}"#).unwrap();
        let given = serde_json::from_str(r#"{"attributes":{"jitter":7.0}}"#).unwrap();
        let new = changed(&old, given).unwrap();
        let millis = Duration::from_millis;
        assert_eq!(new.toxic, Toxic::Latency { latency: millis(100), jitter: millis(7) });
        assert_eq!((new.name.as_str(), new.toxicity), ("slow", 1.0));
    }

    #[test]
    fn wrong_toxics_are_refused_with_the_field() {
        for (text, part) in [
            (r#"{"type":"lag"}"#, "invalid toxic type: `lag`"),
            (r#"{"type":"latency","stream":"sideways"}"#, "stream was invalid"),
            (r#"{"type":"latency","attributes":{"latency":-1}}"#, "attribute `latency`: -1"),
            (r#"{"type":"latency","attributes":{"latency":"1"}}"#, "attribute `latency`"),
            (r#"{"type":"latency","toxicity":2}"#, "a toxicity of 2"),
            (r#"{"type":"loss","attributes":{"share":3}}"#, "attribute `share`"),
            (r#"{}"#, "invalid toxic type"),
        ] {
            let message = read(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
