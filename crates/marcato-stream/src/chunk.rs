//! Size of the chunks that the feeder hands to the kernel.

use marcato_units::{Bytes, Duration, Rate};

/// Overhead of a TLS 1.3 record: header, content type and tag (RFC 8446 §5.2).
const RECORD_OVERHEAD: u64 = 5 + 1 + 16;
/// Plaintext of the largest record (RFC 8446 §5.1).
const RECORD: u64 = 1 << 14;

/// Size of the chunks that the feeder hands to the transport: the data that the connection sends in
/// a time span, within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRule {
    /// Time span (1 ms).
    pub span: Duration,
    /// Lower bound in segments (1).
    pub min_segments: u32,
    /// Upper bound in bytes (64 kB).
    pub max: Bytes,
    /// Upper bound in bytes while no urgent message has come for a while (256 kB). System calls
    /// then cost less, and no message gains from a finer order.
    pub quiet_max: Bytes,
    /// Time without a message of P0 or P1 after which `quiet_max` holds (1 s).
    pub quiet_after: Duration,
}

impl Default for ChunkRule {
    fn default() -> Self {
        Self {
            span: Duration::from_millis(1),
            min_segments: 1,
            max: Bytes::new(64 << 10),
            quiet_max: Bytes::new(256 << 10),
            quiet_after: Duration::from_secs(1),
        }
    }
}

impl ChunkRule {
    /// Returns the bytes of a chunk on the wire, at this delivery rate. Chunks are whole segments,
    /// so that no small segment goes between full ones. If less than a segment leaves in the rule's
    /// span, one is the least that keeps the wire full. If more than the largest chunk does, system
    /// calls would cost more than a finer order gains.
    ///
    /// `quiet` means that no urgent message has come for [`quiet_after`](Self::quiet_after).
    pub fn on_wire(&self, mss: Bytes, rate: Rate, quiet: bool) -> Bytes {
        let mss = mss.get().max(1);
        let least = u64::from(self.min_segments.max(1)) * mss;
        let max = if quiet { self.max.max(self.quiet_max) } else { self.max };
        let most = (max.get() / mss * mss).max(mss);
        let wanted = rate.bytes_in(self.span).get() / mss * mss;
        Bytes::new(wanted.max(least).min(most))
    }
}

/// Returns the plaintext bytes of a chunk. A chunk of one TLS record ends with the record. One of
/// several ends at most a record's overhead before its last segment does.
pub fn plain(wire: Bytes, tls: bool) -> usize {
    let wire = wire.get();
    let plain =
        if tls { wire - (wire.div_ceil(RECORD + RECORD_OVERHEAD) * RECORD_OVERHEAD).min(wire) } else { wire };
    usize::try_from(plain.max(1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_segments_when_slow_and_large_when_fast() {
        let rule = ChunkRule::default();
        let mss = Bytes::new(1448);
        let segments = |mbps| rule.on_wire(mss, Rate::from_mbps(mbps), false).get() as f64 / 1448.0;
        assert_eq!([0, 2, 20, 40].map(segments), [1.0, 1.0, 1.0, 3.0]);
        assert_eq!([100, 1000, 40_000].map(segments), [8.0, 45.0, 45.0]);
        // On loopback, a segment can exceed the largest chunk.
        assert_eq!(rule.on_wire(Bytes::new(65_483), Rate::from_mbps(1), false), Bytes::new(65_483));
        assert_eq!(rule.on_wire(Bytes::new(70_000), Rate::MAX, false), Bytes::new(70_000));
    }

    #[test]
    fn chunks_grow_without_urgent_data_up_to_their_span() {
        let rule = ChunkRule::default();
        let size = |mbps| rule.on_wire(Bytes::new(1000), Rate::from_mbps(mbps), true).get();
        assert_eq!([1, 100, 1000, 40_000].map(size), [1000, 12_000, 125_000, 262_000]);
    }

    #[test]
    fn records_end_where_their_chunk_does() {
        for segments in 1..45 {
            let wire = Bytes::new(segments * 1448);
            let plain = plain(wire, true) as u64;
            let encrypted = plain + plain.div_ceil(RECORD) * RECORD_OVERHEAD;
            let short = wire.get() - encrypted;
            assert!(
                short <= if segments <= 11 { 0 } else { RECORD_OVERHEAD },
                "{segments} segments: {short} B short"
            );
        }
        assert_eq!(plain(Bytes::new(1448), false), 1448);
        assert_eq!(plain(Bytes::new(10), true), 1);
    }
}
