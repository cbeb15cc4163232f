//! Rate in bits per second.

use core::fmt;
use core::time::Duration;

use crate::Bytes;

/// Rate in bits per second.
///
/// ```
/// use marcato_units::{Bytes, Duration, Rate};
/// // The bottleneck of the CATS paper carries a 1058-byte segment in 4.232 ms.
/// let bottleneck = Rate::from_mbps(2);
/// assert_eq!(bottleneck.transmission_time(Bytes::new(1058)), Duration::from_micros(4232));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Rate of a link that sends nothing.
    pub const ZERO: Self = Self(0);
    /// Largest rate.
    pub const MAX: Self = Self(u64::MAX);

    /// Rate of `bits` bits per second.
    pub const fn from_bps(bits: u64) -> Self {
        Self(bits)
    }

    /// Rate of `kilobits` times 1000 bits per second.
    pub const fn from_kbps(kilobits: u64) -> Self {
        Self(kilobits.saturating_mul(1_000))
    }

    /// Rate of `megabits` times 1 000 000 bits per second.
    pub const fn from_mbps(megabits: u64) -> Self {
        Self(megabits.saturating_mul(1_000_000))
    }

    /// Rate at which `bytes` pass in `span`; zero for an empty span.
    pub fn from_bytes_over(bytes: Bytes, span: Duration) -> Self {
        let nanos = span.as_nanos();
        if nanos == 0 {
            return Self::ZERO;
        }
        let bits = u128::from(bytes.get()) * 8 * 1_000_000_000 / nanos;
        Self(u64::try_from(bits).unwrap_or(u64::MAX))
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Whole bytes per second.
    pub const fn as_bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// Megabits per second, with their fraction: for reports, not for decisions.
    pub fn as_mbps_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Time that `bytes` occupy a link of this rate, rounded up to a nanosecond.
    ///
    /// So no link ever carries more than its rate. At [`Rate::ZERO`] the time is [`Duration::MAX`],
    /// or zero for no bytes.
    pub fn transmission_time(self, bytes: Bytes) -> Duration {
        if self.0 == 0 {
            return if bytes.is_zero() { Duration::ZERO } else { Duration::MAX };
        }
        // Bits times 10^9 fit in 64 bits up to 2.3 GB at once: packets never need 128 bits.
        const FAST: u64 = u64::MAX / 8_000_000_000;
        let nanos = if bytes.get() <= FAST {
            (bytes.get() * 8_000_000_000).div_ceil(self.0)
        } else {
            let wide = (u128::from(bytes.get()) * 8_000_000_000).div_ceil(u128::from(self.0));
            u64::try_from(wide).unwrap_or(u64::MAX)
        };
        Duration::from_nanos(nanos)
    }

    /// Number of whole bytes that pass in `span`.
    pub fn bytes_in(self, span: Duration) -> Bytes {
        let bytes = u128::from(self.0).saturating_mul(span.as_nanos()) / 8_000_000_000;
        Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits != 0 && bits % 1_000_000 == 0 => write!(f, "{} Mbit/s", bits / 1_000_000),
            bits if bits != 0 && bits % 1_000 == 0 => write!(f, "{} kbit/s", bits / 1_000),
            bits => write!(f, "{bits} bit/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_link_of_rate_zero_never_delivers() {
        assert_eq!(Rate::ZERO.transmission_time(Bytes::new(1)), Duration::MAX);
        assert_eq!(Rate::ZERO.transmission_time(Bytes::ZERO), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn transmission_never_exceeds_the_rate(bps in 1u64..100_000_000_000, bytes in 0u64..1_000_000_000_000) {
            let rate = Rate::from_bps(bps);
            let took = rate.transmission_time(Bytes::new(bytes));
            prop_assert!(rate.bytes_in(took) >= Bytes::new(bytes));
            if took > Duration::ZERO {
                prop_assert!(rate.bytes_in(took - Duration::from_nanos(1)) <= Bytes::new(bytes));
            }
        }

        #[test]
        fn a_rate_survives_conversion_to_bytes_and_back(bps in 1u64..100_000_000_000) {
            let rate = Rate::from_bps(bps * 8);
            let bytes = rate.bytes_in(Duration::from_secs(1));
            prop_assert_eq!(Rate::from_bytes_over(bytes, Duration::from_secs(1)), rate);
        }
    }
}
