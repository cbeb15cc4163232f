//! Errors as exceptions of the package.

use std::fmt::Display;

use marcato_net::{
    ChangeError, CloseReason, Closed, ConnectError, ListenError, LongSendError, Missed, NoReply,
    NotDelivered, RequestError, SendError,
};
use marcato_scenario::ScenarioError;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

/// Returns an exception that the package defines in `pymarcato._errors`.
fn exception<'py>(py: Python<'py>, class: &str, arguments: impl PyCallArgs<'py>) -> PyErr {
    let made = || -> PyResult<Bound<'py, PyAny>> {
        py.import("pymarcato._errors")?.getattr(class)?.call1(arguments)
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception for the faults of a scenario.
pub(crate) fn faults(py: Python<'_>, error: &ScenarioError) -> PyErr {
    let faults: Vec<_> = error
        .faults()
        .iter()
        .map(|fault| {
            let at = (fault.file.as_str(), fault.line, fault.column, fault.width);
            (at.0, at.1, at.2, at.3, fault.problem.as_str(), fault.text.as_str())
        })
        .collect();
    exception(py, "ScenarioError", (error.to_string(), faults))
}

/// Returns the exception for a run that failed.
pub(crate) fn run(py: Python<'_>, error: impl Display) -> PyErr {
    exception(py, "RunError", (error.to_string(),))
}

/// Returns the exception for a run that took longer than its limit.
pub(crate) fn late(py: Python<'_>, limit: std::time::Duration) -> PyErr {
    let text = format!(
        "the run was not complete after {} s: allow it more time, or make it shorter",
        limit.as_secs_f64()
    );
    exception(py, "TimeLimitError", (text,))
}

/// Returns the exception for a connection that has ended.
pub(crate) fn closed(py: Python<'_>, closed: &Closed) -> PyErr {
    let none = CloseReason::default();
    let (kind, given) = match closed {
        Closed::Local => ("local", &none),
        Closed::ByPeer(given) => ("by-peer", given),
        Closed::Aborted(given) => ("aborted", given),
        Closed::Finished => ("finished", &none),
        _ => ("lost", &none),
    };
    let text = match closed {
        Closed::Finished => format!("{closed}: close the connection, or go on sending"),
        end => format!("{end}: connect again"),
    };
    exception(py, "ConnectionClosed", (text, kind, given.code, given.text.as_str()))
}

/// Returns the exception for a connection that could not be established.
pub(crate) fn connect(py: Python<'_>, error: &ConnectError) -> PyErr {
    let kind = match error {
        ConnectError::Config(_) => "config",
        ConnectError::Bind { .. } => "bind",
        ConnectError::Unknown { .. } => "unknown-host",
        ConnectError::Unreachable { .. } => "unreachable",
        ConnectError::Tls { .. } => "tls",
        ConnectError::NotPlaintext { .. } => "not-plaintext",
        ConnectError::NotTls { .. } => "not-tls",
        ConnectError::Protocol { .. } => "protocol",
        ConnectError::TimedOut { .. } => "timed-out",
        _ => "ended",
    };
    let text = match error {
        ConnectError::TimedOut { .. } => format!("{error}: check the address and the engine"),
        ConnectError::Unreachable { .. } => format!("{error}: check the address, and whether it listens"),
        ConnectError::Unknown { .. } => format!("{error}: check the name"),
        other => other.to_string(),
    };
    exception(py, "ConnectError", (text, kind))
}

/// Returns the exception for an endpoint that cannot listen.
pub(crate) fn listen(py: Python<'_>, error: &ListenError) -> PyErr {
    exception(py, "ListenError", (error.to_string(),))
}

/// Returns the exception for an identity or a trust that cannot be used.
pub(crate) fn identity(py: Python<'_>, error: impl Display) -> PyErr {
    exception(py, "IdentityError", (error.to_string(),))
}

/// Returns the exception for a message that was not accepted for sending.
pub(crate) fn send(py: Python<'_>, error: &SendError) -> PyErr {
    let kind = match error {
        SendError::Closed(end) => return closed(py, end),
        SendError::Finished => "finished",
        SendError::TooLong { .. } | SendError::TooLongForDatagram { .. } => "too-long",
        SendError::NeedsReliable => "needs-reliable",
        SendError::Withdrawn => "withdrawn",
        SendError::NoDatagrams => "no-datagrams",
        SendError::Discarding { .. } => "discarding",
        SendError::Busy { .. } => "busy",
        _ => "ended",
    };
    let text = match error {
        SendError::TooLong { limit } => format!(
            "the message is longer than the limit of {limit} in the queue: send it with `stream`, or raise the limit `queued`"
        ),
        SendError::NoDatagrams => {
            "the peer accepts no unreliable messages: send it reliably, or raise the peer's limit `unreliable`".to_owned()
        }
        SendError::Discarding { threshold } => format!(
            "messages less urgent than {threshold} are being discarded: send it as urgent, or accept its level again"
        ),
        other => other.to_string(),
    };
    exception(py, "SendError", (text, kind))
}

/// Returns the exception for a message that was not delivered, or not taken.
pub(crate) fn not_delivered(py: Python<'_>, error: &NotDelivered) -> PyErr {
    let kind = match error {
        NotDelivered::Cancelled => "cancelled",
        NotDelivered::Expired => "expired",
        NotDelivered::Discarded => "discarded",
        NotDelivered::Shed => "shed",
        NotDelivered::Evicted => "evicted",
        NotDelivered::Declined => "declined",
        NotDelivered::Unwanted => "unwanted",
        NotDelivered::NotTaken(_) => "not-taken",
        NotDelivered::NoReceipt => "no-receipt",
        _ => "closed",
    };
    let text = match error {
        NotDelivered::NoReceipt => {
            "the message was sent without a receipt: send it with `receipt=True`".to_owned()
        }
        NotDelivered::Evicted => {
            "the message was evicted for a more urgent one: send it again later, or raise the limit `queued`"
                .to_owned()
        }
        NotDelivered::Expired => {
            "the message was not sent within its lifetime: give it a longer one, or a more urgent priority"
                .to_owned()
        }
        other => other.to_string(),
    };
    let end = match error {
        NotDelivered::Closed(end) | NotDelivered::NotTaken(end) => Some(closed(py, end)),
        _ => None,
    };
    caused(py, exception(py, "DeliveryError", (text, kind)), end)
}

/// Returns the exception for a request without a reply.
pub(crate) fn request(py: Python<'_>, error: &RequestError) -> PyErr {
    match error {
        RequestError::Send(error) => send(py, error),
        RequestError::NotDelivered(error) => not_delivered(py, error),
        RequestError::NoReply(NoReply::Refused) => {
            let text =
                "the peer has too many open requests: send fewer at once, or raise its limit `requests`";
            exception(py, "RequestError", (text, "refused"))
        }
        RequestError::NoReply(NoReply::Closed(end)) => {
            let text = format!("the connection ended before the reply arrived: {end}");
            let end = closed(py, end);
            caused(py, exception(py, "RequestError", (text, "closed")), Some(end))
        }
        _ => {
            let text = "the application of the peer did not reply: let it answer each request that it takes";
            exception(py, "RequestError", (text, "unanswered"))
        }
    }
}

/// Returns the exception for a request that has been answered.
pub(crate) fn answered(py: Python<'_>) -> PyErr {
    let text = "the request has been answered, or its answer was cancelled: answer each request once";
    exception(py, "SendError", (text, "answered"))
}

/// Returns the exception for a message that is sent piece by piece.
pub(crate) fn stream(py: Python<'_>, error: &LongSendError) -> PyErr {
    match error {
        LongSendError::Send(SendError::Ended) => {
            exception(py, "SendError", ("the message is complete or was abandoned: begin another", "ended"))
        }
        LongSendError::Send(error) => send(py, error),
        LongSendError::NotDelivered(error) => not_delivered(py, error),
        other => exception(py, "SendError", (other.to_string(), "ended")),
    }
}

/// Returns the exception for a message that its sender has abandoned.
pub(crate) fn missed(py: Python<'_>, missed: &Missed) -> PyErr {
    exception(py, "MissedError", (missed.to_string(), missed.number.0, missed.received.get()))
}

/// Returns the exception for a message that can no longer be changed.
pub(crate) fn change(py: Python<'_>, error: &ChangeError) -> PyErr {
    let text = match error {
        ChangeError::TooLate => {
            "no bytes of the message are queued any more, it is sent or was removed: change it sooner"
                .to_owned()
        }
        other => other.to_string(),
    };
    exception(py, "ChangeError", (text,))
}

/// Returns the exception for a lane that cannot be changed.
pub(crate) fn lane(py: Python<'_>, error: impl Display) -> PyErr {
    exception(py, "LaneError", (error.to_string(),))
}

/// Returns an exception with another one as its cause.
fn caused(py: Python<'_>, error: PyErr, cause: Option<PyErr>) -> PyErr {
    error.set_cause(py, cause);
    error
}
