//! Traces in the format qlog.

use std::time::UNIX_EPOCH;

use marcato_units::Duration;
use serde_json::{Value, json};

use super::connection::ConnectionTrace;
use super::response::ResponseTrace;

/// Separator of records (RFC 7464 §2.2).
const SEPARATOR: char = '\u{1e}';
/// Schema of the events. They are no events of a standard.
const SCHEMA: &str = "urn:marcato:qlog:web-00";

/// Writes a trace as a JSON text sequence.
pub(super) fn write(connection: &ConnectionTrace) -> String {
    let began = connection.began_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let header = json!({
        "file_schema": "urn:ietf:params:qlog:file:sequential",
        "serialization_format": "application/qlog+json-seq",
        "title": "marcato",
        "trace": {
            "title": connection.peer.to_string(),
            "common_fields": {
                "group_id": connection.id.to_string(),
                "time_format": "relative_to_epoch",
                "reference_time": { "clock_type": "system", "epoch": "1970-01-01T00:00:00.000Z" },
            },
            "vantage_point": { "type": "server" },
            "event_schemas": [SCHEMA],
        },
    });
    let kept = connection.responses();
    let mut events = Vec::new();
    for (number, response) in (kept.forgotten..).zip(&kept.responses) {
        of_response(number, response, &mut events);
    }
    for change in &kept.changes {
        let cap = change.cap.map(marcato_units::Bytes::get);
        events.push((change.at, "web:coupled", json!({ "mode": change.mode.name(), "cap": cap })));
    }
    // The sort is stable: events of one time stay in their order.
    events.sort_by_key(|(at, ..)| *at);
    let mut out = String::new();
    let mut record = |value: &Value| {
        out.push(SEPARATOR);
        out.push_str(&value.to_string());
        out.push('\n');
    };
    record(&header);
    for (at, name, data) in events {
        record(&json!({ "time": milliseconds(began + at), "name": name, "data": data }));
    }
    out
}

/// Time of an event, its name, and its data.
type Event = (Duration, &'static str, Value);

fn of_response(number: u64, response: &ResponseTrace, events: &mut Vec<Event>) {
    let ResponseTrace {
        method,
        target,
        version,
        asked_at,
        decisions,
        head,
        supplied_at,
        spans,
        bytes,
        end,
        ..
    } = response;
    let request = json!({
        "response": number,
        "method": method.as_str(),
        "target": target,
        "version": format!("{version:?}"),
    });
    events.push((*asked_at, "web:request", request));
    for (at, decision) in decisions {
        let priority = decision.parameters.to_string();
        let data = json!({ "response": number, "priority": priority, "source": decision.source.name() });
        events.push((*at, "web:decision", data));
    }
    if let Some((at, status, length)) = head {
        let data = json!({ "response": number, "status": status.as_u16(), "length": length });
        events.push((*at, "web:response", data));
    }
    if let Some(at) = supplied_at {
        events.push((*at, "web:available", json!({ "response": number })));
    }
    for span in spans {
        let data = json!({
            "response": number,
            "offset": span.offset.get(),
            "length": span.len.get(),
            "level": span.level.to_string(),
            // The last of these bytes left so many milliseconds after the first.
            "duration": milliseconds(span.to - span.from),
        });
        events.push((span.from, "web:granted", data));
    }
    if let Some((at, outcome)) = end {
        let data = json!({ "response": number, "outcome": outcome.name(), "length": bytes.get() });
        events.push((*at, "web:ended", data));
    }
}

/// Milliseconds with the digits of microseconds.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
