//! Probabilities and weights without floating point.

/// Probability or weight in millionths, from 0 to 1.
///
/// ```
/// use marcato_queue::Ppm;
/// assert_eq!(Ppm::new(20_000).to_string(), "2 %");
/// assert_eq!(Ppm::new(2_000_000), Ppm::ONE);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppm(u32);

impl Ppm {
    /// Certainty.
    pub const ONE: Self = Self(1_000_000);

    /// Value of `millionths`; more than a million of them are one.
    pub const fn new(millionths: u32) -> Self {
        if millionths > Self::ONE.0 { Self::ONE } else { Self(millionths) }
    }

    /// Number of millionths.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Value in units of 2^-`bits`, rounded down; `bits` is at most 44.
    pub(crate) const fn scaled(self, bits: u32) -> u64 {
        ((self.0 as u64) << bits) / Self::ONE.0 as u64
    }
}

impl core::fmt::Display for Ppm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        if rest == 0 {
            return write!(f, "{whole} %");
        }
        let (mut rest, mut digits) = (rest, 4);
        while rest % 10 == 0 {
            (rest, digits) = (rest / 10, digits - 1);
        }
        write!(f, "{whole}.{rest:0digits$} %")
    }
}
