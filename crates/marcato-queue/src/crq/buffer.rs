//! Room of a queue's buffer: fixed, one BDP, or by fill rate. CRQ §IV-A and §V.

use marcato_units::{Bytes, Duration, Rate, Time};

use super::{Class, CrqError};
use crate::Limit;

/// Room of a queue's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// Number of packets of any size.
    Packets(u64),
    /// Number of bytes in packets of any size.
    Bytes(Bytes),
    /// Bandwidth-delay product: the queue's share of the link times this round-trip time. CRQ
    /// §IV-A.
    Bdp(Duration),
    /// Bytes that came to the queue in the last spans, smoothed, within bounds. CRQ §V.
    FillRate {
        /// Length of a span.
        span: Duration,
        /// Lower bound.
        least: Bytes,
        /// Upper bound.
        most: Bytes,
    },
}

impl Buffer {
    /// Fixed limit of the buffer in the queue of `class`, which has `rate` of the link, and the
    /// limit that follows the fill rate, if any.
    pub(super) fn sized(
        self,
        class: Class,
        rate: Rate,
        mtu: Bytes,
    ) -> Result<(Limit, Option<FillRate>), CrqError> {
        let mut fill_rate = None;
        let limit = match self {
            Self::Packets(packets) => Limit::Packets(packets),
            Self::Bytes(bytes) => Limit::Bytes(bytes),
            Self::Bdp(rtt) => Limit::Bytes(rate.bytes_in(rtt)),
            Self::FillRate { span, least, most } => {
                let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
                if nanos == 0 || least > most {
                    return Err(CrqError::FillRate(class));
                }
                if least < mtu {
                    return Err(CrqError::FillRateLeast { class, least, mtu });
                }
                fill_rate = Some(FillRate::new(nanos, least, most));
                Limit::Bytes(most)
            }
        };
        Ok((limit.checked().map_err(|error| CrqError::Buffer { class, error })?, fill_rate))
    }
}

/// Limit that follows the bytes that arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillRate {
    /// In nanoseconds.
    span: u64,
    least: u64,
    most: u64,
    /// Beginning of the current span.
    since: Time,
    /// Bytes that arrived in the current span.
    arrived: u64,
    /// Bytes that arrive in a span, smoothed.
    smoothed: u64,
}

impl FillRate {
    const fn new(span: u64, least: Bytes, most: Bytes) -> Self {
        Self { span, least: least.get(), most: most.get(), since: Time::ZERO, arrived: 0, smoothed: 0 }
    }

    /// Takes note of `len` bytes that arrive, and returns the number of bytes that may wait.
    pub(super) fn arrive(&mut self, now: Time, len: Bytes) -> u64 {
        let spans = now.as_nanos().saturating_sub(self.since.as_nanos()) / self.span;
        if spans > 0 {
            self.smoothed = u64::midpoint(self.smoothed, self.arrived);
            // The same for each span in which nothing arrived: it halves the smoothed number.
            self.smoothed >>= (spans - 1).min(63);
            self.arrived = 0;
            self.since =
                Time::from_nanos(self.since.as_nanos().saturating_add(spans.saturating_mul(self.span)));
        }
        self.arrived = self.arrived.saturating_add(len.get());
        self.smoothed.clamp(self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_rates_need_a_span_and_ordered_bounds_of_at_least_an_mtu() {
        let mtu = Bytes::new(1514);
        let sized = |span, least, most| {
            let [least, most] = [least, most].map(Bytes::new);
            let buffer = Buffer::FillRate { span: Duration::from_millis(span), least, most };
            buffer
                .sized(Class::Standard, Rate::from_mbps(10), mtu)
                .map(|(limit, rate)| (limit, rate.is_some()))
        };
        assert_eq!(sized(100, 1514, 1514), Ok((Limit::Bytes(mtu), true)));
        assert_eq!(sized(100, 1514, 3000), Ok((Limit::Bytes(Bytes::new(3000)), true)));
        let refused = CrqError::FillRate(Class::Standard);
        assert_eq!((sized(0, 1514, 3000), sized(100, 3000, 2999)), (Err(refused), Err(refused)));
        let least = Bytes::new(1513);
        let refused = CrqError::FillRateLeast { class: Class::Standard, least, mtu };
        assert_eq!(sized(100, 1513, 3000), Err(refused));
    }

    #[test]
    fn a_buffer_follows_arrivals_and_halves_in_each_silent_span() {
        let mut rate = FillRate::new(100_000_000, Bytes::new(100), Bytes::new(5000));
        let mut arrive = |millis, len| rate.arrive(Time::from_millis(millis), Bytes::new(len));
        assert_eq!([arrive(0, 8000), arrive(99, 8000)], [100, 100]);
        // Half of the bytes of the first span, and no more than the upper bound.
        assert_eq!(arrive(100, 1000), 5000);
        assert_eq!(arrive(200, 0), 4500);
        // Four spans: half for the last one that was measured, in which nothing arrived, and three
        // more halves.
        assert_eq!(arrive(600, 0), 4500 / 16);
        assert_eq!(arrive(60_000, 0), 100);
    }
}
