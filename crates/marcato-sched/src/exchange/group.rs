//! Groups of responses, and their weights.

use core::fmt;
use core::num::NonZeroU16;

/// Identifier of a group: responses that share the bytes of their urgency with other groups.
///
/// The number is the caller's choice, for example that of a subscription or of a send group. Responses
/// without a group belong to [`DEFAULT`](Self::DEFAULT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

impl GroupId {
    /// Group of the responses that name none: 0.
    pub const DEFAULT: Self = Self(0);
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}", self.0)
    }
}

/// Weight of a group, from 1 to 65 535. A group of twice the weight gets twice the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(NonZeroU16);

impl Weight {
    /// Weight of a group of which none was set: 16.
    pub const DEFAULT: Self = match Self::new(16) {
        Some(weight) => weight,
        None => Self(NonZeroU16::MIN),
    };

    /// Returns the weight of this number; `None` for zero.
    pub const fn new(weight: u16) -> Option<Self> {
        match NonZeroU16::new(weight) {
            Some(weight) => Some(Self(weight)),
            None => None,
        }
    }

    /// Number of the weight.
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Place of groups in the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Grouping {
    /// Groups share the bytes of their urgency: urgency before group.
    #[default]
    WithinUrgency,
    /// Groups share the bytes of their level, and urgency orders within a group, as the send groups of
    /// WebTransport do.
    AboveUrgency,
}
