//! Explicit congestion notification (ECN): the last two bits of the IPv4 TOS octet and of the IPv6
//! traffic class.
//!
//! References: RFC 3168 §5, figure 1; RFC 8311, which gives ECT(1) to experiments such as L4S (RFC
//! 9331).

/// ECN code point of an IP packet.
///
/// ```
/// use marcato_wire::Ecn;
/// // DSCP LE (RFC 8622) with ECT(0).
/// let tos = 0b0000_0110;
/// assert_eq!(Ecn::from_bits(tos), Ecn::Ect0);
/// assert_eq!(Ecn::Ce.to_bits(), 0b11);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Not-ECT, 0b00: the transport does not understand marks, so that a queue can signal by drops
    /// only.
    #[default]
    NotEct,
    /// ECT(1), 0b01: the transport understands marks; L4S by RFC 9331.
    Ect1,
    /// ECT(0), 0b10: the transport understands marks.
    Ect0,
    /// CE, 0b11: congestion experienced, the mark itself.
    Ce,
}

impl Ecn {
    /// Code point in the two low bits of `octet`; the six DSCP bits above them are ignored.
    pub const fn from_bits(octet: u8) -> Self {
        match octet & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Octet with the code point in its two low bits; the other bits are zero.
    pub const fn to_bits(self) -> u8 {
        match self {
            Self::NotEct => 0b00,
            Self::Ect1 => 0b01,
            Self::Ect0 => 0b10,
            Self::Ce => 0b11,
        }
    }

    /// Returns whether a queue may mark the packet instead of dropping it. RFC 3168 §5.
    ///
    /// The packet is ECT, or already carries the mark, which a second queue cannot make stronger.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_point_is_read_and_written_whatever_the_dscp() {
        for octet in 0..=u8::MAX {
            assert_eq!(Ecn::from_bits(octet).to_bits(), octet & 0b11);
        }
    }

    #[test]
    fn only_not_ect_cannot_be_marked() {
        let capable = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce].map(Ecn::is_capable);
        assert_eq!(capable, [false, true, true, true]);
    }
}
