//! State and counters as dictionaries, which classes of Python hold.

use marcato_net::{ConnectionStats, EndpointStats, LaneStats, Layer, Priority};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::shared::level;

/// Returns the state of a connection.
pub(super) fn connection<'py>(py: Python<'py>, stats: &ConnectionStats) -> PyResult<Bound<'py, PyDict>> {
    let lanes = stats.lanes.iter().map(|one| lane(py, one)).collect::<PyResult<Vec<_>>>()?;
    let levels = Priority::ALL.map(|priority| levels(py, stats, priority));
    let levels = levels.into_iter().collect::<PyResult<Vec<_>>>()?;
    let values = PyDict::new(py);
    values.set_item("lanes", PyTuple::new(py, lanes)?)?;
    values.set_item("levels", PyTuple::new(py, levels)?)?;
    values.set_item("received_bytes", stats.received.bytes.get())?;
    values.set_item("missed_messages", stats.received.missed)?;
    values.set_item("unread_peak_bytes", stats.received.unread_peak.get())?;
    values.set_item("reading_stops", stats.received.stops)?;
    values.set_item("coupled_mode", stats.coupled.map(|coupled| coupled.mode.name()))?;
    values
        .set_item("coupled_cap_bytes", stats.coupled.and_then(|coupled| coupled.cap).map(|cap| cap.get()))?;
    Ok(values)
}

fn lane<'py>(py: Python<'py>, lane: &LaneStats) -> PyResult<Bound<'py, PyDict>> {
    let values = PyDict::new(py);
    values.set_item("id", lane.id.index())?;
    values.set_item("local_address", lane.local.map(|addr| addr.to_string()))?;
    values.set_item("remote_address", lane.remote.map(|addr| addr.to_string()))?;
    let layer = match lane.layer {
        Layer::High => "high",
        Layer::Low => "low",
    };
    values.set_item("layer", layer)?;
    values.set_item("is_usable", lane.usable)?;
    values.set_item("srtt_ms", lane.srtt.as_secs_f64() * 1e3)?;
    values.set_item("cwnd_bytes", lane.cwnd.get())?;
    values.set_item("in_flight_bytes", lane.in_flight.get())?;
    values.set_item("backlog_bytes", lane.backlog.get())?;
    values.set_item("sent_packets", lane.sent)?;
    values.set_item("sent_bytes", lane.sent_bytes.get())?;
    values.set_item("lost_packets", lane.lost)?;
    Ok(values)
}

fn levels<'py>(py: Python<'py>, stats: &ConnectionStats, priority: Priority) -> PyResult<Bound<'py, PyDict>> {
    let of = stats.level(priority);
    let values = PyDict::new(py);
    values.set_item("priority", level(priority))?;
    values.set_item("queued_messages", of.backlog.messages)?;
    values.set_item("queued_bytes", of.backlog.bytes.get())?;
    values.set_item("sent_messages", of.sent.messages)?;
    values.set_item("sent_bytes", of.sent.bytes.get())?;
    values.set_item("unfinished_messages", of.unfinished)?;
    values.set_item("expired_messages", of.expired)?;
    values.set_item("dropped_messages", of.dropped)?;
    values.set_item("received_messages", of.received.messages)?;
    values.set_item("received_bytes", of.received.bytes.get())?;
    Ok(values)
}

/// Returns the load of a listener.
pub(super) fn listener<'py>(py: Python<'py>, stats: &EndpointStats) -> PyResult<Bound<'py, PyDict>> {
    let values = PyDict::new(py);
    values.set_item("connections", stats.connections)?;
    values.set_item("handshakes", stats.handshakes)?;
    values.set_item("held_bytes", stats.held.get())?;
    values.set_item("accepted", stats.accepted)?;
    values.set_item("refused", stats.refused)?;
    values.set_item("crowded", stats.crowded)?;
    values.set_item("retried", stats.retried)?;
    values.set_item("failed", stats.failed)?;
    Ok(values)
}
