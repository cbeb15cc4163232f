//! QUIC's variable-length integers. RFC 9000 §16.

use core::fmt;

/// Integer below 2^62 in 1, 2, 4 or 8 bytes, as its first two bits say. RFC 9000 §16.
///
/// ```
/// use marcato_wire::VarInt;
/// let mut out = [0; 8];
/// let written = VarInt::new(494_878_333).and_then(|value| value.encode(&mut out));
/// assert_eq!(written, Some(4));
/// assert_eq!(out[..4], [0x9d, 0x7f, 0x3e, 0x7d]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VarInt(u64);

impl VarInt {
    /// Largest integer: 2^62 − 1.
    pub const MAX: Self = Self((1 << 62) - 1);
    /// Largest number of bytes of one integer.
    pub const MAX_LEN: usize = 8;

    /// Integer `value`, or `None` if it is 2^62 or more.
    pub const fn new(value: u64) -> Option<Self> {
        if value <= Self::MAX.0 { Some(Self(value)) } else { None }
    }

    /// Value of the integer.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Number of bytes that [`encode`](Self::encode) writes: the fewest that hold the integer.
    pub const fn encoded_len(self) -> usize {
        match self.0 {
            0..=0x3f => 1,
            0x40..=0x3fff => 2,
            0x4000..=0x3fff_ffff => 4,
            _ => 8,
        }
    }

    /// Writes the integer in the fewest bytes that hold it, and returns their number.
    ///
    /// If `out` is shorter, writes nothing and returns `None`.
    pub fn encode(self, out: &mut [u8]) -> Option<usize> {
        let len = self.encoded_len();
        // RFC 9000 §16: the two most significant bits of the first byte are the base 2 logarithm of
        // the length.
        let tag = u64::from(len.trailing_zeros()) << (8 * len - 2);
        let bytes = (self.0 | tag).to_be_bytes();
        out.get_mut(..len)?.copy_from_slice(&bytes[8 - len..]);
        Some(len)
    }

    /// Reads the integer that `bytes` begin with, and returns it with its number of bytes.
    ///
    /// The integer may take more bytes than it needs: RFC 9000 §16 allows a sender to do so.
    ///
    /// # Errors
    /// [`Truncated`] if `bytes` end before it does.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), Truncated> {
        let &first = bytes.first().ok_or(Truncated { needed: 1 })?;
        let len = 1 << (first >> 6);
        let bytes = bytes.get(..len).ok_or(Truncated { needed: len })?;
        let rest = bytes.iter().skip(1);
        let value = rest.fold(u64::from(first & 0x3f), |value, &byte| (value << 8) | u64::from(byte));
        Ok((Self(value), len))
    }
}

impl From<u32> for VarInt {
    fn from(value: u32) -> Self {
        Self(u64::from(value))
    }
}

impl fmt::Display for VarInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Error returned if an integer is longer than the given bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the integer takes {needed} bytes: read more")]
pub struct Truncated {
    /// Number of bytes of the integer, as far as known: 1 if none are given.
    pub needed: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_u32_keeps_its_value() {
        assert_eq!(VarInt::from(u32::MAX).get(), u64::from(u32::MAX));
    }

    #[test]
    fn the_examples_of_rfc_9000_appendix_a_1_are_read_and_written() {
        let examples: [(&[u8], u64); 4] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ];
        for (bytes, value) in examples {
            assert_eq!(VarInt::decode(bytes), Ok((VarInt(value), bytes.len())));
            let mut out = [0; 8];
            assert_eq!(VarInt(value).encode(&mut out), Some(bytes.len()));
            assert_eq!(&out[..bytes.len()], bytes);
        }
        assert_eq!(
            VarInt::decode(&[0x40, 0x25]),
            Ok((VarInt(37), 2)),
            "the appendix reads 37 from two bytes too"
        );
    }

    #[test]
    fn the_largest_integer_fits_and_the_next_does_not() {
        let mut out = [0; 8];
        assert_eq!(VarInt::MAX.encode(&mut out), Some(8));
        assert_eq!(out, [0xff; 8]);
        assert_eq!(VarInt::decode(&out), Ok((VarInt::MAX, 8)));
        assert_eq!(VarInt::new((1 << 62) - 1), Some(VarInt::MAX));
        assert_eq!(VarInt::new(1 << 62), None);
        assert_eq!(VarInt::MAX.encode(&mut out[..7]), None);
    }

    /// RFC 9000 §16, Table 4.
    #[test]
    fn each_length_ends_where_the_table_of_rfc_9000_says() {
        let first_beyond = [(1, 64), (2, 16_384), (4, 1_073_741_824)];
        for (len, beyond) in first_beyond {
            assert_eq!(VarInt(beyond - 1).encoded_len(), len);
            assert_eq!(VarInt(beyond).encoded_len(), 2 * len);
        }
    }

    proptest! {
        #[test]
        fn integers_are_read_back_and_truncated_ones_name_their_length(
            value in 0..=VarInt::MAX.get(), shift in 0u32..62
        ) {
            let value = VarInt(value >> shift);
            let mut out = [0; 8];
            let len = value.encode(&mut out).unwrap();
            prop_assert_eq!(len, value.encoded_len());
            prop_assert_eq!(VarInt::decode(&out), Ok((value, len)));
            prop_assert_eq!(VarInt::decode(&[]), Err(Truncated { needed: 1 }));
            for cut in 1..len {
                prop_assert_eq!(VarInt::decode(&out[..cut]), Err(Truncated { needed: len }));
            }
        }
    }
}
