//! Number of bytes.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// Number of bytes. `kB` is 1000 bytes throughout Marcato.
///
/// Subtraction saturates at zero, addition and multiplication at the largest value: a number of
/// bytes is never negative and never wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);
    /// Largest number of bytes.
    pub const MAX: Self = Self(u64::MAX);

    /// `bytes` bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// `kilobytes` times 1000 bytes.
    pub const fn kb(kilobytes: u64) -> Self {
        Self(kilobytes.saturating_mul(1_000))
    }

    /// Number as an integer.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns whether the number is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Sum, or `None` if it does not fit.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}

impl From<u32> for Bytes {
    fn from(bytes: u32) -> Self {
        Self(u64::from(bytes))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Mul<u64> for Bytes {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Bytes {
    type Output = Self;
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_saturate_instead_of_wrapping() {
        assert_eq!(Bytes::new(1) - Bytes::new(2), Bytes::ZERO);
        assert_eq!(Bytes::MAX + Bytes::new(1), Bytes::MAX);
        assert_eq!(Bytes::MAX * 2, Bytes::MAX);
        assert_eq!(Bytes::MAX.checked_add(Bytes::new(1)), None);
    }
}
