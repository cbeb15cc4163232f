//! Unreliable messages, each in a QUIC DATAGRAM frame (RFC 9221). `docs/wire.md`, "Unreliable
//! messages".

use marcato_units::Priority;

/// Number of bytes before an unreliable message's own.
pub const UNRELIABLE_HEADER: usize = 1;

/// Unreliable message: one DATAGRAM frame.
///
/// ```
/// use marcato_units::Priority;
/// use marcato_wire::Unreliable;
/// let message = Unreliable { priority: Priority::P1, body: b"17.5" };
/// let mut frame = vec![message.header()];
/// frame.extend_from_slice(message.body);
/// assert_eq!(frame, b"\x0117.5");
/// assert_eq!(Unreliable::decode(&frame), Ok(message));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unreliable<'a> {
    /// Priority of the message.
    pub priority: Priority,
    /// Bytes of the message.
    pub body: &'a [u8],
}

/// Error returned for the payload of a DATAGRAM frame that is no unreliable message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreliableError {
    /// The header is missing.
    #[error("an unreliable message begins with its priority: send at least that byte")]
    Empty,
    /// The priority does not exist.
    #[error("priority {value} is unknown: it must be 0 (P0) to 4 (P4)")]
    Priority {
        /// Value instead of a priority.
        value: u8,
    },
}

impl<'a> Unreliable<'a> {
    /// Header: the byte before the message's own.
    pub const fn header(&self) -> u8 {
        self.priority as u8
    }

    /// Reads the payload of a DATAGRAM frame.
    ///
    /// # Errors
    /// [`UnreliableError`] if it is no unreliable message. The peer then broke the protocol.
    pub fn decode(payload: &'a [u8]) -> Result<Self, UnreliableError> {
        let (&value, body) = payload.split_first().ok_or(UnreliableError::Empty)?;
        let priority = Priority::ALL.get(usize::from(value)).copied();
        Ok(Self { priority: priority.ok_or(UnreliableError::Priority { value })?, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        assert_eq!(Unreliable::decode(&[]), Err(UnreliableError::Empty));
        assert_eq!(Unreliable::decode(&[5, 1]), Err(UnreliableError::Priority { value: 5 }));
        let last = Unreliable { priority: Priority::P4, body: &[9] };
        assert_eq!(Unreliable::decode(&[last.header(), 9]), Ok(last));
        let empty = Unreliable { priority: Priority::P0, body: &[] };
        assert_eq!(Unreliable::decode(&[empty.header()]), Ok(empty));
    }
}
