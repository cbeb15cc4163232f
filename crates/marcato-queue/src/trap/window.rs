//! Data sent in one cycle.

use marcato_units::{Bytes, Duration};

use super::{TICK_SHIFT, TrapConfig, WindowUnit};

/// Bytes that a flow sent in one cycle, and the length of the cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    pub(super) bytes: u32,
    /// Length of the cycle, in ticks.
    pub(super) ticks: u32,
}

impl Window {
    /// Bytes of payload, retransmitted ones included.
    pub const fn bytes(self) -> Bytes {
        Bytes::new(self.bytes as u64)
    }

    /// Length of the cycle, in steps of 1.024 us.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos((self.ticks as u64) << TICK_SHIFT)
    }

    /// Returns whether `after` is the threshold's part of this window or less, or at least
    /// `reduction` bytes less; a reduction of 0 bytes does not count.
    pub(super) fn is_reduced_to(self, after: Self, config: &TrapConfig, reduction: u32) -> bool {
        // A cycle's length is below 2^25 ticks (four round trips), its bytes are kept below 2^31:
        // no product reaches 2^63.
        let (before_ticks, after_ticks) = match config.window {
            WindowUnit::Bytes => (1, 1),
            WindowUnit::Rate => (self.ticks.min(1 << 25), after.ticks.min(1 << 25)),
        };
        let bytes = |window: Self| u64::from(window.bytes.min(1 << 31));
        // Cross products compare rates without a division: what each window would be if both cycles
        // were equally long.
        let sent = bytes(after) * u64::from(before_ticks);
        let was = |bytes: u64| bytes * u64::from(after_ticks);
        100 * sent <= u64::from(config.threshold) * was(bytes(self))
            || reduction > 0 && sent <= was(bytes(self).saturating_sub(u64::from(reduction)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_window_is_too_large_to_compare() {
        let config = TrapConfig::marcato();
        let huge = Window { bytes: u32::MAX, ticks: u32::MAX };
        let small = Window { bytes: 1, ticks: u32::MAX };
        assert!(!huge.is_reduced_to(huge, &config, 0));
        assert!(huge.is_reduced_to(small, &config, 0));
        assert!(!small.is_reduced_to(huge, &config, 0));
    }
}
