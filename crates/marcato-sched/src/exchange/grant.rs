//! Grants of an exchange, and what it tells of a response.

use marcato_units::{Bytes, Priority, Time};

use super::deadline::Deadline;
use super::parameters::Parameters;
use crate::order::StreamId;

/// One chunk of one response, to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Stream of the response.
    pub stream: StreamId,
    /// Offset of the first byte in the response.
    pub offset: Bytes,
    /// Number of bytes. Zero only with [`fin`](Self::fin), for a response whose end became known
    /// after its last byte was granted.
    pub len: Bytes,
    /// True if the response ends with these bytes.
    pub fin: bool,
    /// Level that the bytes are charged to.
    pub priority: Priority,
}

/// Chunk that the next grant would have if its budget were unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peek {
    /// Stream of the response.
    pub stream: StreamId,
    /// Level that the bytes would be charged to.
    pub priority: Priority,
    /// Offset of the first byte in the response.
    pub offset: Bytes,
    /// Most bytes of the grant: those staged, or one turn while responses or groups take turns.
    pub len: Bytes,
    /// True if the response would end with these bytes.
    pub fin: bool,
    /// Priority parameters of the response.
    pub parameters: Parameters,
}

/// Response that has been opened and not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Response {
    /// Stream of the response.
    pub stream: StreamId,
    /// Present priority parameters.
    pub parameters: Parameters,
    /// Bytes supplied and not yet granted.
    pub staged: Bytes,
    /// Bytes granted so far.
    pub granted: Bytes,
    /// Bytes granted that the transport has not yet sent.
    pub outstanding: Bytes,
    /// True while the response is held.
    pub held: bool,
    /// True if no byte will be added.
    pub finished: bool,
    /// True once its end has been granted.
    pub ended: bool,
    /// Deadline, if it has one.
    pub deadline: Option<Deadline>,
}

/// Response that cannot arrive in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Late {
    /// Stream of the response.
    pub stream: StreamId,
    /// Earliest time at which all that was supplied would have arrived.
    pub arrival: Time,
    /// True if bytes of it have been granted. The stream has then to be reset if the response was
    /// [closed](Self::closed).
    pub begun: bool,
    /// State at its end, if its [deadline](Deadline::drops) closed it; `None` if it goes on.
    pub closed: Option<Closed>,
}

/// State of a response when it was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Closed {
    /// Bytes granted.
    pub granted: Bytes,
    /// Bytes supplied that will never be granted.
    pub dropped: Bytes,
    /// Bytes granted that had not been sent. They no longer count as outstanding.
    pub returned: Bytes,
    /// True if its end had been granted.
    pub ended: bool,
}
