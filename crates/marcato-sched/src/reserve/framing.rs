//! Bytes that a message counts against a congestion window.

use marcato_units::Bytes;
use thiserror::Error;

/// Conversion of a message's length to the bytes that it counts against a congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Framing {
    payload: Bytes,
    overhead: Bytes,
}

/// Error returned for an invalid framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FramingError {
    /// Packets would carry no byte of a message.
    #[error("a packet has to carry at least one byte of a message")]
    ZeroPayload,
}

impl Framing {
    /// Framing without overhead: sizes are given as they count.
    pub const NONE: Self = Self { payload: Bytes::MAX, overhead: Bytes::ZERO };

    /// Creates a framing of packets with up to `payload` bytes of a message and `overhead` other
    /// bytes.
    ///
    /// # Errors
    ///
    /// If `payload` is zero.
    pub const fn new(payload: Bytes, overhead: Bytes) -> Result<Self, FramingError> {
        if payload.is_zero() {
            return Err(FramingError::ZeroPayload);
        }
        Ok(Self { payload, overhead })
    }

    /// Returns the bytes that `len` bytes of one message count against a window.
    pub const fn wire(&self, len: Bytes) -> Bytes {
        let packets = len.get().div_ceil(self.payload.get());
        Bytes::new(len.get().saturating_add(packets.saturating_mul(self.overhead.get())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_count_too() {
        let framing = Framing::new(Bytes::new(1300), Bytes::new(50)).unwrap();
        assert_eq!(framing.wire(Bytes::kb(10)), Bytes::new(10_400));
        assert_eq!(framing.wire(Bytes::ZERO), Bytes::ZERO);
        assert_eq!(framing.wire(Bytes::MAX), Bytes::MAX);
        assert_eq!(Framing::NONE.wire(Bytes::kb(10)), Bytes::kb(10));
        assert_eq!(Framing::new(Bytes::ZERO, Bytes::ZERO), Err(FramingError::ZeroPayload));
    }
}
