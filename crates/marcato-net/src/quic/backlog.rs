//! Local backlog: the data that the kernel holds below a socket.
//!
//! Urgent data waits behind it, so it is kept to the time of a chunk, as the kernel does for TCP
//! (TCP small queues). The rate at which the kernel's queue drains decides, without a clock or a
//! socket here.
//!
//! It limits `SO_SNDBUF` to four milliseconds of that rate. `tools/local-backlog/run` measures the effect.

use marcato_units::{Bytes, Duration, Rate, Time};

/// Time in which the kernel sends a full backlog.
///
/// The owner refills it when half is left, so it must answer within half of this to keep the link
/// busy. With 2 ms, a busy machine of two cores left 4 to 11 % of a link unused; with 4 ms, 1 to
/// 2 %. Where the limit itself holds the rate back, the rate still doubles with each adjustment.
const SPAN: Duration = Duration::from_millis(4);
/// Smallest limit: four full packets, of which the kernel reports room for two at once.
const LEAST: Bytes = Bytes::new(5000);
/// Interval between adjustments of a backlog that was full.
const OFTEN: Duration = Duration::from_millis(5);
/// Interval between adjustments of one that was not.
const RARELY: Duration = Duration::from_millis(100);

/// Backlog of one socket.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Bytes handed to the kernel so far.
    written: Bytes,
    /// Bytes that had left the kernel at the last adjustment, and its time.
    drained: Bytes,
    adjusted_at: Option<Time>,
    /// The socket was full since then.
    was_full: bool,
    limit: Bytes,
    /// Largest limit.
    most: Bytes,
}

impl Backlog {
    pub(super) fn new(most: Bytes) -> Self {
        Self {
            written: Bytes::ZERO,
            drained: Bytes::ZERO,
            adjusted_at: None,
            was_full: false,
            limit: Bytes::ZERO,
            most: most.max(LEAST),
        }
    }

    /// Records bytes that the kernel has taken.
    pub(super) fn wrote(&mut self, bytes: Bytes) {
        self.written += bytes;
    }

    /// Records that the kernel took no more.
    pub(super) const fn filled(&mut self) {
        self.was_full = true;
    }

    /// Returns whether the limit is to be adjusted.
    pub(super) fn is_due(&self, now: Time) -> bool {
        let interval = if self.was_full { OFTEN } else { RARELY };
        self.adjusted_at.is_none_or(|at| now.since(at) >= interval)
    }

    /// Adjusts the limit, while the kernel holds `unsent` bytes. Returns it if it has changed by
    /// so much that a system call is worth it.
    pub(super) fn adjust(&mut self, now: Time, unsent: Bytes) -> Option<Bytes> {
        let drained = Bytes::new(self.written.get().saturating_sub(unsent.get()));
        let left = Bytes::new(drained.get().saturating_sub(self.drained.get()));
        let span = self.adjusted_at.map_or(Duration::ZERO, |at| now.since(at));
        let mut limit = if span.is_zero() { LEAST } else { Rate::from_bytes_over(left, span).bytes_in(SPAN) };
        // A backlog that was not full shows what the application sent, not what the kernel can.
        if !self.was_full {
            limit = limit.max(self.limit);
        }
        limit = limit.clamp(LEAST, self.most);
        (self.drained, self.adjusted_at, self.was_full) = (drained, Some(now), false);
        let changed = limit.get().abs_diff(self.limit.get()) > self.limit.get() / 8;
        changed.then(|| {
            self.limit = limit;
            limit
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills a backlog for a second, as far as its limit allows, over a link of this rate, and
    /// returns the limit. The owner looks after it every 100 µs.
    fn filled(backlog: &mut Backlog, from: Time, rate: Rate, queued: &mut Bytes) -> Bytes {
        let tick = Duration::from_micros(100);
        let mut now = from;
        let mut limit = backlog.limit.max(LEAST);
        while now < from + Duration::from_secs(1) {
            if backlog.is_due(now) {
                limit = backlog.adjust(now, *queued).unwrap_or(limit);
            }
            let room = limit.get().saturating_sub(queued.get());
            backlog.wrote(Bytes::new(room));
            *queued += Bytes::new(room);
            backlog.filled();
            *queued = Bytes::new(queued.get().saturating_sub(rate.bytes_in(tick).get()));
            now += tick;
        }
        limit
    }

    #[test]
    fn a_full_backlog_lasts_four_milliseconds() {
        for (mbps, least, most) in [(2, 5000, 5000), (20, 8900, 11_300), (1000, 440_000, 565_000)] {
            let mut backlog = Backlog::new(Bytes::kb(4000));
            let rate = Rate::from_mbps(mbps);
            let limit = filled(&mut backlog, Time::ZERO, rate, &mut Bytes::new(0));
            assert!((least..=most).contains(&limit.get()), "{mbps} Mbit/s: {limit}");
        }
    }

    #[test]
    fn a_backlog_follows_a_link_that_becomes_slower() {
        let mut backlog = Backlog::new(Bytes::kb(4000));
        let mut queued = Bytes::ZERO;
        filled(&mut backlog, Time::ZERO, Rate::from_mbps(1000), &mut queued);
        let limit = filled(&mut backlog, Time::from_secs(1), Rate::from_mbps(20), &mut queued);
        assert!(limit <= Bytes::new(11_300), "{limit}");
    }

    #[test]
    fn an_application_that_pauses_leaves_the_limit_as_it_was() {
        let mut backlog = Backlog::new(Bytes::kb(4000));
        let limit = filled(&mut backlog, Time::ZERO, Rate::from_mbps(1000), &mut Bytes::new(0));
        backlog.adjust(Time::from_millis(1005), Bytes::ZERO);
        for second in 2..5 {
            assert!(backlog.is_due(Time::from_secs(second)));
            assert_eq!(backlog.adjust(Time::from_secs(second), Bytes::ZERO), None);
        }
        assert!(backlog.limit >= limit * 7 / 8);
    }
    #[test]
    fn a_full_backlog_is_adjusted_often_and_by_an_eighth_at_least() {
        let ms = Time::from_millis;
        let mut backlog = Backlog::new(Bytes::kb(40));
        assert!(backlog.is_due(Time::ZERO));
        assert_eq!(backlog.adjust(Time::ZERO, Bytes::ZERO), Some(LEAST));
        assert!(!backlog.is_due(ms(99)) && backlog.is_due(ms(100)));
        backlog.filled();
        assert!(!backlog.is_due(ms(4)) && backlog.is_due(ms(5)));
        // Bytes that leave in 5 ms, and the limit for 4 ms of that rate.
        let (mut now, mut unsent) = (Time::ZERO, Bytes::ZERO);
        for (left, expected) in [
            (20_000, Some(16_000)),
            (22_500, None),
            (22_600, Some(18_080)),
            (60_000, Some(40_000)),
            (2000, Some(5000)),
        ] {
            now += OFTEN;
            backlog.wrote(Bytes::new(left + 1000));
            backlog.filled();
            // 1000 bytes more stay in the kernel with each round.
            unsent += Bytes::new(1000);
            assert_eq!(backlog.adjust(now, unsent), expected.map(Bytes::new), "{left}");
        }
        // Nothing left, and the socket was not full: that says nothing.
        assert_eq!(backlog.adjust(now + RARELY, Bytes::new(5000)), None);
        // A limit below the least is raised to it.
        assert_eq!(Backlog::new(Bytes::new(1)).adjust(Time::ZERO, Bytes::ZERO), Some(LEAST));
    }
}
