//! Backlog before a transmitter over time.

use marcato_queue::Backlog;
use marcato_units::{Bytes, Time};

/// Backlog before a transmitter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waiting {
    /// Time average of packets.
    pub mean_packets: f64,
    /// Time average of bytes.
    pub mean_bytes: f64,
    /// Maximum of packets.
    pub most_packets: u64,
    /// Maximum of bytes.
    pub most_bytes: Bytes,
}

/// Integral of a backlog over time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occupancy {
    /// Beginning of the integral.
    from: Time,
    /// Time up to which it is computed.
    upto: Time,
    /// Backlog since then, of each queue.
    now: [Backlog; 2],
    /// Packets times nanoseconds. `bytes` is in bytes times nanoseconds.
    packets: u128,
    bytes: u128,
    most: Backlog,
}

impl Occupancy {
    /// Advances the integral to `now`, before the backlog changes.
    fn advance(&mut self, now: Time) {
        let span = now.since(self.upto).as_nanos();
        let waited = self.now[0] + self.now[1];
        self.packets += u128::from(waited.packets) * span;
        self.bytes += u128::from(waited.bytes.get()) * span;
        self.upto = self.upto.max(now);
    }

    /// Records the backlog of one of the transmitter's queues, 0 or 1, from `now` on.
    pub fn set(&mut self, now: Time, queue: usize, backlog: Backlog) {
        self.advance(now);
        self.now[queue] = backlog;
        let backlog = self.now[0] + self.now[1];
        self.most.packets = self.most.packets.max(backlog.packets);
        self.most.bytes = self.most.bytes.max(backlog.bytes);
    }

    /// Restarts the integral at `now`.
    pub fn restart(&mut self, now: Time) {
        let most = self.now[0] + self.now[1];
        *self = Self { from: now, upto: now, now: self.now, most, ..Self::default() };
    }

    /// Returns the summary of the backlog until `now`.
    pub fn until(&mut self, now: Time) -> Waiting {
        self.advance(now);
        let span = self.upto.since(self.from).as_nanos() as f64;
        let mean = |sum: u128| if span > 0.0 { sum as f64 / span } else { 0.0 };
        Waiting {
            mean_packets: mean(self.packets),
            mean_bytes: mean(self.bytes),
            most_packets: self.most.packets,
            most_bytes: self.most.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn packets_count_in_proportion_to_their_wait() {
        let mut seen = Occupancy::default();
        seen.set(Time::ZERO, 0, Backlog { packets: 2, bytes: Bytes::kb(3) });
        seen.set(ms(10), 0, Backlog { packets: 1, bytes: Bytes::kb(1) });
        let waiting = seen.until(ms(40));
        assert_eq!((waiting.mean_packets, waiting.mean_bytes), (1.25, 1500.0));
        assert_eq!((waiting.most_packets, waiting.most_bytes), (2, Bytes::kb(3)));
        seen.restart(ms(40));
        let waiting = seen.until(ms(50));
        assert_eq!((waiting.mean_packets, waiting.most_packets), (1.0, 1));
        seen.set(ms(50), 1, Backlog { packets: 3, bytes: Bytes::kb(3) });
        let waiting = seen.until(ms(60));
        assert_eq!((waiting.mean_packets, waiting.most_packets, waiting.most_bytes), (2.5, 4, Bytes::kb(4)));
    }
}
