//! Fields of a TCP segment that an observer reads. RFC 9293 §3.1, RFC 7323 §3.2.

use crate::{TcpOption, TcpOptions};

/// Control bits of a segment, as in the header. RFC 9293 §3.1, RFC 3168 §6.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(u8);

impl TcpFlags {
    /// This end sends no more data.
    pub const FIN: Self = Self(0x01);
    /// The segment opens the connection.
    pub const SYN: Self = Self(0x02);
    /// The connection does not exist, or no longer.
    pub const RST: Self = Self(0x04);
    /// The acknowledgement number is significant.
    pub const ACK: Self = Self(0x10);

    /// Bits in `octet`.
    pub const fn from_bits(octet: u8) -> Self {
        Self(octet)
    }

    /// Octet of the header.
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// Returns whether all of `bits` are set.
    pub const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// Union of these bits and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Timestamps option: the sender's clock, and the clock of the other end that it echoes. RFC 7323
/// §3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TcpTimestamps {
    /// TSval: clock of the sender.
    pub value: u32,
    /// TSecr: echoed clock of the other end; significant only with [`TcpFlags::ACK`].
    pub echo: u32,
}

/// TCP segment as an observer sees it, ports excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpSegment {
    /// Sequence number of its first byte; of the SYN, if it carries one.
    pub seq: u32,
    /// Next sequence number expected from the other end; significant only with [`TcpFlags::ACK`].
    pub ack: u32,
    /// Control bits.
    pub flags: TcpFlags,
    /// Bytes of payload.
    pub payload: u32,
    /// Timestamps option.
    pub timestamps: Option<TcpTimestamps>,
}

/// Least number of bytes of a TCP header.
pub(crate) const MIN_HEADER: usize = 20;

impl TcpSegment {
    /// Reads a segment of `len` bytes, payload included, whose header `bytes` begin with.
    ///
    /// Returns `None` if the header does not fit into `bytes`, or not into `len`. Options that
    /// cannot be read are skipped; the others count.
    pub fn parse(bytes: &[u8], len: usize) -> Option<Self> {
        let header = bytes.first_chunk::<MIN_HEADER>()?;
        let offset = usize::from(header[12] >> 4) * 4;
        if offset < MIN_HEADER {
            return None;
        }
        let options = bytes.get(MIN_HEADER..offset)?;
        let word =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Some(Self {
            seq: word(4),
            ack: word(8),
            flags: TcpFlags(header[13]),
            payload: u32::try_from(len.checked_sub(offset)?).ok()?,
            timestamps: timestamps(options),
        })
    }

    /// Number of sequence numbers that the segment takes: SYN and FIN take one each. RFC 9293 §3.4.
    pub const fn sequence_len(&self) -> u32 {
        self.payload
            .wrapping_add(self.flags.has(TcpFlags::SYN) as u32)
            .wrapping_add(self.flags.has(TcpFlags::FIN) as u32)
    }

    /// Sequence number after its last.
    pub const fn end(&self) -> u32 {
        self.seq.wrapping_add(self.sequence_len())
    }
}

/// First timestamps option in `options`.
fn timestamps(options: &[u8]) -> Option<TcpTimestamps> {
    // RFC 7323 appendix A: two NOPs and the timestamps, which is all that most segments have.
    if let &[1, 1, 8, 10, v0, v1, v2, v3, e0, e1, e2, e3] = options {
        let value = u32::from_be_bytes([v0, v1, v2, v3]);
        return Some(TcpTimestamps { value, echo: u32::from_be_bytes([e0, e1, e2, e3]) });
    }
    TcpOptions::new(options).find_map(|option| match option {
        Ok(TcpOption::Timestamps { value, echo }) => Some(TcpTimestamps { value, echo }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn header(offset: u8, flags: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes = std::vec![0x01, 0xbb, 0xc3, 0x50, 0, 0, 0, 7, 0, 0, 0, 9, offset << 4, flags];
        bytes.extend([0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend(options);
        bytes
    }

    /// Defect 4 of the prototype.
    #[test]
    fn syn_and_fin_take_a_sequence_number_each() {
        for (flags, payload, end) in [(0x02, 0, 8), (0x12, 0, 8), (0x11, 5, 13), (0x10, 5, 12), (0x03, 0, 9)]
        {
            let segment = TcpSegment::parse(&header(5, flags, &[]), 20 + payload).unwrap();
            assert_eq!(segment.end(), end, "flags {flags:#x}");
        }
    }

    #[test]
    fn timestamps_are_found_wherever_they_stand() {
        let wanted = Some(TcpTimestamps { value: 1, echo: 2 });
        let plain: &[u8] = &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let behind_mss: &[u8] = &[2, 4, 5, 0xb4, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0];
        for (offset, options) in [(8, plain), (9, behind_mss)] {
            let segment = TcpSegment::parse(&header(offset, 0x10, options), 100).unwrap();
            assert_eq!(segment.timestamps, wanted);
            assert_eq!(segment.payload, 100 - u32::from(offset) * 4);
        }
        let broken: &[u8] = &[8, 9, 0, 0, 0, 1, 0, 0];
        assert_eq!(TcpSegment::parse(&header(7, 0x10, broken), 28).unwrap().timestamps, None);
    }

    #[test]
    fn every_byte_of_the_numbers_counts() {
        let mut bytes = header(5, 0x10, &[]);
        bytes[4..12].copy_from_slice(&[0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0]);
        let segment = TcpSegment::parse(&bytes, 20).unwrap();
        assert_eq!((segment.seq, segment.ack), (0x1234_5678, 0x9abc_def0));
    }

    #[test]
    fn flags_are_united_and_keep_their_bits() {
        let both = TcpFlags::SYN.with(TcpFlags::ACK);
        assert_eq!(both.to_bits(), 0x12);
        assert_eq!(both.with(TcpFlags::SYN), both, "a flag that is set stays set");
        assert_eq!(TcpFlags::from_bits(0x12), both);
    }

    #[test]
    fn a_header_that_does_not_fit_is_none() {
        assert_eq!(TcpSegment::parse(&header(4, 0x10, &[]), 20), None, "shorter than a header can be");
        assert_eq!(TcpSegment::parse(&header(6, 0x10, &[]), 24), None, "longer than the bytes");
        assert_eq!(TcpSegment::parse(&header(6, 0x10, &[0; 4]), 23), None, "longer than the segment");
        assert_eq!(TcpSegment::parse(&[0; 19], 19), None);
    }
}
