//! Fixed-point factor.

use core::fmt;

use marcato_units::Bytes;

/// Factor, share or loss rate, in units of 2^-32: integer arithmetic gives the same result on every
/// machine.
///
/// ```
/// use marcato_sched::lowprio::Fraction;
/// use marcato_units::Bytes;
///
/// assert_eq!(Fraction::per_mille(950).of(Bytes::kb(100)), Bytes::kb(95));
/// assert_eq!(Fraction::ratio(Bytes::new(1), Bytes::new(4)), Fraction::per_mille(250));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fraction(u64);

const ONE: u64 = 1 << 32;

impl Fraction {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// One.
    pub const ONE: Self = Self(ONE);

    /// Creates a fraction from thousandths, rounded to the nearest 2^-32.
    pub const fn per_mille(thousandths: u32) -> Self {
        Self(((thousandths as u64) * ONE + 500) / 1000)
    }

    /// Creates a fraction from millionths, rounded to the nearest 2^-32.
    pub const fn ppm(millionths: u32) -> Self {
        Self(((millionths as u64) * ONE + 500_000) / 1_000_000)
    }

    /// Returns `part / whole`, at most one; zero if `whole` is zero.
    pub fn ratio(part: Bytes, whole: Bytes) -> Self {
        if whole.is_zero() {
            return Self::ZERO;
        }
        let ratio = u128::from(part.get()) * u128::from(ONE) / u128::from(whole.get());
        Self(u64::try_from(ratio).map_or(ONE, |ratio| ratio.min(ONE)))
    }

    /// Multiplies a number of bytes by this factor, rounded to the nearest byte.
    pub fn of(self, bytes: Bytes) -> Bytes {
        let product = (u128::from(bytes.get()) * u128::from(self.0) + u128::from(ONE / 2)) >> 32;
        Bytes::new(u64::try_from(product).unwrap_or(u64::MAX))
    }

    /// Multiplies this factor by another, rounded down.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let product = (u128::from(self.0) * u128::from(other.0)) >> 32;
        Self(u64::try_from(product).unwrap_or(u64::MAX))
    }

    /// Adds two factors.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the mean of `self` and `news`, in which `news` has this weight.
    #[must_use]
    pub fn moved_to(self, news: Self, weight: Self) -> Self {
        if news >= self {
            Self(self.0 + Self(news.0 - self.0).times(weight).0)
        } else {
            Self(self.0 - Self(self.0 - news.0).times(weight).0)
        }
    }

    /// Converts to a float, for printing and charts.
    #[expect(clippy::cast_precision_loss, reason = "a view for people")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / ONE as f64
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousandths_and_millionths_are_rounded_to_the_nearest() {
        assert_eq!(Fraction::ppm(250_000), Fraction::per_mille(250));
        assert_eq!(Fraction::ppm(1_000_000), Fraction::ONE);
        // 2^32 / 10^6 = 4294.967 and 2^32 / 10^3 = 4294967.296.
        assert_eq!((Fraction::ppm(1).0, Fraction::per_mille(1).0), (4295, 4_294_967));
        assert!((Fraction::per_mille(250).as_f64() - 0.25).abs() < f64::EPSILON);
    }

    #[test]
    fn a_mean_lies_between_and_can_arrive() {
        let (half, none) = (Fraction::per_mille(500), Fraction::ZERO);
        assert_eq!(half.moved_to(none, Fraction::ONE), none);
        assert_eq!(none.moved_to(half, Fraction::ONE), half);
        assert_eq!(Fraction::ONE.moved_to(none, half), half);
        assert_eq!(half.moved_to(none, Fraction::ZERO), half);
    }

    #[test]
    fn no_ratio_is_more_than_the_whole() {
        assert_eq!(Fraction::ratio(Bytes::new(5), Bytes::ZERO), Fraction::ZERO);
        assert_eq!(Fraction::ratio(Bytes::MAX, Bytes::new(1)), Fraction::ONE);
        assert_eq!(Fraction::ratio(Bytes::MAX, Bytes::MAX), Fraction::ONE);
    }
}
