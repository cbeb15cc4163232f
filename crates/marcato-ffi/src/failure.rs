//! Failures as a C program sees them: a number for the program, and a text for people.

use std::cell::RefCell;
use std::ffi::{CStr, CString};

use marcato_net::{
    AcceptError, Cause, ChangeError, Closed, ConfigError, ConnectError, IdentityError, ListenError,
    LongSendError, NotDelivered, PemError, RequestError, SendError,
};

use crate::abi::{
    MARCATO_CLOSED, MARCATO_END, MARCATO_FULL, MARCATO_INVALID, MARCATO_IO, MARCATO_LOST,
    MARCATO_UNDELIVERED, MARCATO_UNKNOWN, MARCATO_UNREACHABLE, MARCATO_UNTRUSTED,
};

/// Failure of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    pub(crate) status: i32,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(status: i32, text: impl ToString) -> Self {
        Self { status, text: text.to_string() }
    }

    pub(crate) fn invalid(text: impl ToString) -> Self {
        Self::new(MARCATO_INVALID, text)
    }

    /// Failure for a number that names no object of this kind.
    pub(crate) fn unknown(number: u64, kind: &str) -> Self {
        Self::new(MARCATO_UNKNOWN, format!("{number} is no {kind} of this context, or has been released"))
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::invalid(error)
    }
}

impl From<PemError> for Failure {
    fn from(error: PemError) -> Self {
        Self::invalid(error)
    }
}

impl From<IdentityError> for Failure {
    fn from(error: IdentityError) -> Self {
        Self::invalid(error)
    }
}

impl From<ListenError> for Failure {
    fn from(error: ListenError) -> Self {
        let status = if matches!(error, ListenError::Config(_)) { MARCATO_INVALID } else { MARCATO_IO };
        Self::new(status, error)
    }
}

impl From<AcceptError> for Failure {
    fn from(error: AcceptError) -> Self {
        Self::new(MARCATO_CLOSED, error)
    }
}

impl From<&ConnectError> for Failure {
    fn from(error: &ConnectError) -> Self {
        let status = match error.cause() {
            _ if matches!(error, ConnectError::Config(_)) => MARCATO_INVALID,
            Cause::Tls { .. } => MARCATO_UNTRUSTED,
            _ => MARCATO_UNREACHABLE,
        };
        Self::new(status, error)
    }
}

impl From<Closed> for Failure {
    fn from(closed: Closed) -> Self {
        let status = match closed {
            Closed::Finished => MARCATO_END,
            Closed::Local | Closed::ByPeer(_) | Closed::Aborted(_) => MARCATO_CLOSED,
            _ => MARCATO_LOST,
        };
        Self::new(status, closed)
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Closed(closed) => closed.into(),
            SendError::Finished | SendError::Ended => Self::new(MARCATO_CLOSED, error),
            other => Self::invalid(other),
        }
    }
}

impl From<NotDelivered> for Failure {
    fn from(error: NotDelivered) -> Self {
        Self::new(MARCATO_UNDELIVERED, error)
    }
}

impl From<LongSendError> for Failure {
    fn from(error: LongSendError) -> Self {
        match error {
            LongSendError::Send(error) => error.into(),
            other => Self::new(MARCATO_UNDELIVERED, other),
        }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Send(error) => error.into(),
            other => Self::new(MARCATO_UNDELIVERED, other),
        }
    }
}

impl From<ChangeError> for Failure {
    fn from(error: ChangeError) -> Self {
        Self::new(MARCATO_UNDELIVERED, error)
    }
}

/// Failure because a context has as many objects as it may.
pub(crate) fn full(most: usize) -> Failure {
    Failure::new(MARCATO_FULL, format!("the context has {most} objects already: release those that are done"))
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the text of a failure for the thread that met it.
pub(crate) fn keep(text: &str) {
    // A text never ends early because of a zero within.
    let text = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    LAST.with(|last| last.replace(text));
}

/// Calls with the text of this thread's last failure.
pub(crate) fn last<R>(take: impl FnOnce(&CStr) -> R) -> R {
    LAST.with(|last| take(&last.borrow()))
}
