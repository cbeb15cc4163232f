//! Fields of a QUIC packet that every observer can read.
//!
//! References: RFC 8999 §5 (invariants of all versions: header form, version), RFC 9000 §17.2 and
//! §17.4 (long header types, the fixed bit, the spin bit of version 1), RFC 9369 §3 (version 2
//! numbers the types differently), RFC 9287 (endpoints may agree to clear the fixed bit).

/// Versions of QUIC whose headers this crate can read beyond the invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuicVersion {
    /// 0x00000001. RFC 9000.
    V1,
    /// 0x6b3343cf. RFC 9369.
    V2,
}

impl QuicVersion {
    /// Version that `number` names, if it is known.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0x0000_0001 => Some(Self::V1),
            0x6b33_43cf => Some(Self::V2),
            _ => None,
        }
    }

    /// Number on the wire.
    pub const fn number(self) -> u32 {
        match self {
            Self::V1 => 0x0000_0001,
            Self::V2 => 0x6b33_43cf,
        }
    }
}

/// Type of a packet with a long header. RFC 9000 §17.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuicLongType {
    /// First packets of either end.
    Initial,
    /// Early data of the client.
    ZeroRtt,
    /// Rest of the handshake.
    Handshake,
    /// Request of the server for a token.
    Retry,
}

/// Beginning of a UDP payload, read as QUIC.
///
/// **Any** payload whose first byte has the two highest bits 01 looks like a short header. Only a
/// [long header](Self::Long) of a [known version](QuicVersion), seen before, makes it QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuicHeader {
    /// Long header: the first bit is 1, and four bytes of version follow the first byte. RFC 8999
    /// §5.1.
    ///
    /// Packets behind it in the datagram, with a short header or not, are ignored: the beginning of
    /// the next packet is protected in some versions, and no spin bit is worth a guess.
    Long {
        /// Version; 0 is a version negotiation.
        version: u32,
        /// Type of the packet, if the version is known.
        ///
        /// The fixed bit is no evidence against QUIC: a server clears it from its own first packet
        /// on if the client's first packet allowed that (RFC 9287).
        kind: Option<QuicLongType>,
    },
    /// Short header: the first bit is 0. RFC 8999 §5.2.
    Short {
        /// Fixed bit. RFC 9000 §17.3.1: 1 in versions 1 and 2, unless both ends agreed to grease
        /// it.
        fixed: bool,
        /// Spin bit. RFC 9000 §17.4.
        spin: bool,
    },
}

impl QuicHeader {
    /// Reads the first bytes of a UDP payload; `None` if they are too few for the header form of
    /// the first bit.
    ///
    /// ```
    /// use marcato_wire::{QuicHeader, QuicLongType};
    /// let initial = QuicHeader::parse(&[0xc3, 0, 0, 0, 1, 8]);
    /// assert_eq!(initial, Some(QuicHeader::Long { version: 1, kind: Some(QuicLongType::Initial) }));
    /// assert_eq!(QuicHeader::parse(&[0x61]), Some(QuicHeader::Short { fixed: true, spin: true }));
    /// assert_eq!(QuicHeader::parse(&[0xc3, 0, 0]), None);
    /// ```
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let &first = payload.first()?;
        let fixed = first & 0x40 != 0;
        if first & 0x80 == 0 {
            return Some(Self::Short { fixed, spin: first & 0x20 != 0 });
        }
        let &[v0, v1, v2, v3] = payload.get(1..)?.first_chunk()?;
        let version = u32::from_be_bytes([v0, v1, v2, v3]);
        // RFC 9000 table 5; RFC 9369 §3.2 moves every type up by one.
        let bits = match QuicVersion::from_number(version) {
            Some(QuicVersion::V1) => Some(first >> 4),
            Some(QuicVersion::V2) => Some((first >> 4).wrapping_sub(1)),
            None => None,
        };
        let kind = bits.map(|bits| match bits & 0b11 {
            0b00 => QuicLongType::Initial,
            0b01 => QuicLongType::ZeroRtt,
            0b10 => QuicLongType::Handshake,
            _ => QuicLongType::Retry,
        });
        Some(Self::Long { version, kind })
    }

    /// Version, if this is a long header of a known one.
    pub const fn known_version(self) -> Option<QuicVersion> {
        match self {
            Self::Long { version, kind: Some(_) } => QuicVersion::from_number(version),
            Self::Long { .. } | Self::Short { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Defect 15 of the prototype: it compared the type with values that it can never have.
    #[test]
    fn every_long_header_type_of_both_versions_is_recognised() {
        use QuicLongType::{Handshake, Initial, Retry, ZeroRtt};
        let kind = |first: u8, version: u32| {
            let [a, b, c, d] = version.to_be_bytes();
            match QuicHeader::parse(&[first, a, b, c, d]) {
                Some(QuicHeader::Long { version: read, kind }) if read == version => kind,
                other => panic!("{other:?}"),
            }
        };
        for low in 0..16 {
            // With the fixed bit and without it (RFC 9287).
            for form in [0xc0, 0x80] {
                let kinds = |version| [0, 1, 2, 3].map(|bits: u8| kind(form | bits << 4 | low, version));
                assert_eq!(kinds(1), [Initial, ZeroRtt, Handshake, Retry].map(Some));
                assert_eq!(kinds(0x6b33_43cf), [Retry, Initial, ZeroRtt, Handshake].map(Some));
                assert_eq!(kinds(0xff00_001d), [None; 4], "a draft that is not known");
            }
        }
    }

    /// Defect 15: the spin bit of a datagram that begins with a long header was guessed from a
    /// protected bit.
    #[test]
    fn a_datagram_that_begins_with_a_long_header_has_no_spin_bit() {
        for first in 0x80..=0xff_u8 {
            let coalesced = [first, 0, 0, 0, 1, 0, 0, 0x60, 1, 2, 3];
            assert!(matches!(QuicHeader::parse(&coalesced), Some(QuicHeader::Long { .. })));
        }
    }

    #[test]
    fn the_fixed_and_the_spin_bit_are_where_rfc_9000_puts_them() {
        for first in 0..0x80_u8 {
            let header = QuicHeader::Short { fixed: first & 0x40 == 0x40, spin: first & 0x20 == 0x20 };
            assert_eq!(QuicHeader::parse(&[first]), Some(header));
            assert_eq!(header.known_version(), None);
        }
        assert_eq!(QuicHeader::parse(&[]), None);
        assert_eq!(QuicHeader::parse(&[0x80, 0, 0, 0]), None);
    }

    #[test]
    fn version_numbers_are_those_of_the_rfcs() {
        for version in [QuicVersion::V1, QuicVersion::V2] {
            assert_eq!(QuicVersion::from_number(version.number()), Some(version));
        }
        assert_eq!(QuicVersion::from_number(0), None, "version negotiation is no version");
        let known =
            |number| QuicHeader::Long { version: number, kind: Some(QuicLongType::Initial) }.known_version();
        assert_eq!([1, 0x6b33_43cf, 2].map(known), [Some(QuicVersion::V1), Some(QuicVersion::V2), None]);
    }
}
