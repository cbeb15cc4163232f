//! Measurement of lanes during one part of a comparison.

use marcato_sched::lane::{LaneId, MAX_LANES};
use marcato_units::{Bytes, Duration, Time};

/// Packets of a high lane that have to be acknowledged in each part.
const ENOUGH: u64 = 5;

/// Round trips of a high lane's packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrips {
    acked: u64,
    /// Sum of them, in µs.
    micros: u64,
}

impl RoundTrips {
    /// Mean round trip; `None` if too few packets were acknowledged.
    pub(super) fn mean(&self) -> Option<Duration> {
        (self.acked >= ENOUGH).then(|| Duration::from_micros(self.micros / self.acked))
    }
}

/// Measurement of all lanes from `since` to `until`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measurement {
    since: Time,
    pub(super) until: Time,
    /// High lanes.
    pub(super) lanes: [RoundTrips; MAX_LANES],
    /// Bytes acknowledged on all lanes; `low_bytes` are those on low lanes.
    bytes: Bytes,
    low_bytes: Bytes,
}

impl Measurement {
    pub(super) const fn new(since: Time, until: Time) -> Self {
        let lanes = [RoundTrips { acked: 0, micros: 0 }; MAX_LANES];
        Self { since, until, lanes, bytes: Bytes::ZERO, low_bytes: Bytes::ZERO }
    }

    /// Records bytes of a high lane, and their round trip if they were sent in this part.
    pub(super) fn acked(&mut self, lane: LaneId, took: Option<Duration>, bytes: Bytes) {
        self.bytes += bytes;
        if let Some(took) = took {
            let lane = &mut self.lanes[lane.index()];
            lane.acked += 1;
            lane.micros += u64::try_from(took.as_micros()).unwrap_or(u64::MAX).min(u64::MAX >> 16);
        }
    }

    /// Records bytes of a low lane.
    pub(super) fn low_acked(&mut self, bytes: Bytes) {
        self.bytes += bytes;
        self.low_bytes += bytes;
    }

    /// Returns whether low lanes carry enough, and high ones have enough acknowledgements, for a
    /// comparison.
    pub(super) fn is_conclusive(&self) -> bool {
        self.low_bytes * 10 >= self.bytes && self.lanes.iter().any(|lane| lane.mean().is_some())
    }

    /// Transmission time of a packet of 1500 bytes at the rate measured.
    pub(super) fn packet_time(&self, now: Time) -> Duration {
        let nanos = now.since(self.since).as_nanos() * 1500 / u128::from(self.bytes.get().max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
