//! Drain rate of the backlog, and detection of severe, persistent congestion (CATS §II-D3).

use marcato_units::{Bytes, Time};

use super::shed::Shedding;

/// Spans after which the usual rate counts as known.
const KNOWN: u32 = 8;
/// Reciprocal of the weight of the latest span in the usual rate.
const SLOW: u32 = 32;
/// Spans without any offer or grant after which the silence says nothing about congestion.
const UNSEEN: u32 = 4;

/// Rate at which bytes are granted, measured over spans of [`Shedding::SPAN`].
///
/// A span with a backlog throughout measures the rate that the transport carries. Any other span
/// gives a lower bound, and can only raise the usual rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// End of the current span; `None` before the first.
    ends: Option<Time>,
    /// Bytes granted in the current span.
    granted: Bytes,
    /// True if there was a backlog throughout the current span.
    busy: bool,
    /// Bytes usually granted per span: a mean over the latest spans that were not far below it.
    usual: Bytes,
    spans: u32,
    /// Start of the period in which the rate has been far below the usual one.
    fallen_since: Option<Time>,
    /// Start of the period in which the backlog, too, has exceeded its limit.
    severe_since: Option<Time>,
}

impl Drain {
    pub(super) const NEW: Self = Self {
        ends: None,
        granted: Bytes::ZERO,
        busy: false,
        usual: Bytes::ZERO,
        spans: 0,
        fallen_since: None,
        severe_since: None,
    };

    pub(super) fn granted(&mut self, bytes: Bytes) {
        self.granted += bytes;
    }

    /// Subtracts bytes that the engine did not take.
    pub(super) fn returned(&mut self, bytes: Bytes) {
        self.granted -= bytes;
    }

    /// Closes the spans that have ended by `now`. Returns true if one has, and congestion was
    /// severe and persistent at the end of the last. To be called before any change of the
    /// `backlog`.
    pub(super) fn look(&mut self, now: Time, backlog: Bytes, rules: &Shedding) -> bool {
        let waiting = !backlog.is_zero();
        self.busy &= waiting;
        let Some(ends) = self.ends.filter(|ends| now < *ends + Shedding::SPAN * UNSEEN) else {
            self.restart(now, waiting);
            return false;
        };
        let mut congested = false;
        let mut end = ends;
        while now >= end {
            congested = self.close(end, backlog, rules);
            self.busy = waiting;
            end += Shedding::SPAN;
        }
        self.ends = Some(end);
        congested
    }

    fn restart(&mut self, now: Time, waiting: bool) {
        *self = Self {
            ends: Some(now + Shedding::SPAN),
            busy: waiting,
            usual: self.usual,
            spans: self.spans,
            ..Self::NEW
        };
    }

    /// Closes a span; returns true if congestion was severe and persistent at its `end`.
    fn close(&mut self, end: Time, backlog: Bytes, rules: &Shedding) -> bool {
        let rate = core::mem::take(&mut self.granted);
        let product = |bytes: Bytes, by: u128| u128::from(bytes.get()) * by;
        // Conditions 1 and 2 of [`Shedding`]; the third follows below.
        let fallen = self.busy
            && self.spans >= KNOWN
            && product(rate, 1000) <= product(self.usual, u128::from(rules.fallen_to));
        if !fallen {
            (self.fallen_since, self.severe_since) = (None, None);
            if self.busy || rate > self.usual {
                self.learn(rate);
            }
            self.spans = self.spans.saturating_add(1);
            return false;
        }
        // The usual rate is frozen while the rate is far below it, until the path counts as
        // changed.
        let began = end - Shedding::SPAN;
        if end.since(*self.fallen_since.get_or_insert(began)) >= rules.adapts_after {
            (self.usual, self.fallen_since, self.severe_since) = (rate, None, None);
            return false;
        }
        if product(backlog, Shedding::SPAN.as_nanos()) <= product(rate, rules.drain.as_nanos()) {
            self.severe_since = None;
            return false;
        }
        end.since(*self.severe_since.get_or_insert(began)) >= rules.sustained
    }

    /// Updates the usual rate: a mean of all spans at first, and of the latest ones later.
    fn learn(&mut self, rate: Bytes) {
        let parts = u64::from(self.spans.saturating_add(1).min(SLOW));
        let (up, down) = (rate - self.usual, self.usual - rate);
        self.usual = self.usual + up / parts - down / parts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_units::Duration;

    const BACKLOG: Bytes = Bytes::kb(1000);

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn look(drain: &mut Drain, millis: u64) -> bool {
        drain.look(ms(millis), BACKLOG, &Shedding::default())
    }

    /// A known usual rate: 100 kB/s over 8 s.
    fn steady() -> Drain {
        let mut drain = Drain::NEW;
        look(&mut drain, 0);
        for second in 1..=8 {
            drain.granted(Bytes::kb(100));
            assert!(!look(&mut drain, second * 1000));
        }
        drain
    }

    #[test]
    fn a_quarter_of_the_usual_rate_for_three_seconds_is_congestion() {
        let mut drain = steady();
        let congested = [9, 10, 11, 12].map(|second| {
            drain.granted(Bytes::kb(25));
            look(&mut drain, second * 1000)
        });
        assert_eq!(congested, [false, false, true, true]);
        let mut drain = steady();
        let congested = [9, 10, 11, 12].map(|second| {
            drain.granted(Bytes::new(25_001));
            look(&mut drain, second * 1000)
        });
        assert_eq!(congested, [false; 4]);
    }

    #[test]
    fn bytes_that_the_engine_refused_have_not_left() {
        let mut drain = steady();
        let congested = [9, 10, 11].map(|second| {
            drain.granted(Bytes::kb(100));
            drain.returned(Bytes::kb(80));
            look(&mut drain, second * 1000)
        });
        assert_eq!(congested, [false, false, true]);
    }

    #[test]
    fn silence_counts_for_less_than_four_spans() {
        assert!(look(&mut steady(), 12_999));
        assert!(!look(&mut steady(), 13_000));
    }

    #[test]
    fn after_a_silence_the_usual_rate_is_still_known() {
        let mut drain = steady();
        assert!(!look(&mut drain, 20_000));
        let congested = [21, 22, 23].map(|second| {
            drain.granted(Bytes::kb(25));
            look(&mut drain, second * 1000)
        });
        assert_eq!(congested, [false, false, true]);
    }

    #[test]
    fn a_backlog_that_drains_within_two_seconds_is_no_congestion() {
        for (backlog, expected) in [(50_000, false), (50_001, true)] {
            let mut drain = steady();
            let congested = [9, 10, 11].map(|second| {
                drain.granted(Bytes::kb(25));
                drain.look(ms(second * 1000), Bytes::new(backlog), &Shedding::default())
            });
            assert_eq!(congested[2], expected);
        }
    }

    #[test]
    fn congestion_that_paused_has_to_last_anew() {
        // A span with a short backlog, or at the usual rate, begins the three seconds again.
        let short = (Bytes::kb(25), Bytes::new(50_000));
        let usual = (Bytes::kb(100), BACKLOG);
        for pause in [short, usual] {
            let mut drain = steady();
            let low = (Bytes::kb(25), BACKLOG);
            let mut second = 8;
            let congested = [low, low, pause, low, low, low].map(|(granted, backlog)| {
                second += 1;
                drain.granted(granted);
                drain.look(ms(second * 1000), backlog, &Shedding::default())
            });
            assert_eq!(congested, [false, false, false, false, false, true], "{pause:?}");
        }
    }

    #[test]
    fn a_minute_of_a_low_rate_is_counted_anew_after_a_usual_span() {
        let mut drain = steady();
        let mut usual_again = None;
        for second in 9..=120 {
            // The usual rate for one second after half a minute.
            drain.granted(Bytes::kb(if second == 40 { 100 } else { 25 }));
            look(&mut drain, second * 1000);
            if drain.usual < Bytes::kb(50) {
                usual_again.get_or_insert(second);
            }
        }
        assert_eq!(usual_again, Some(100));
    }

    #[test]
    fn after_a_minute_the_low_rate_is_the_usual_one() {
        let mut drain = steady();
        let congested: std::vec::Vec<_> = (9..=90)
            .map(|second| {
                drain.granted(Bytes::kb(25));
                look(&mut drain, second * 1000)
            })
            .collect();
        // From 11 s to 67 s, but not once the rate has been low for a minute.
        let seconds = congested.iter().filter(|congested| **congested).count();
        assert_eq!((seconds, congested[2], congested[58], congested[59]), (57, true, true, false));
    }

    #[test]
    fn the_usual_rate_is_first_a_mean_then_an_ewma_of_weight_1_32() {
        let mut drain = Drain::NEW;
        look(&mut drain, 0);
        for second in 1..=40 {
            drain.granted(Bytes::kb(if second % 2 == 0 { 200 } else { 100 }));
            look(&mut drain, second * 1000);
            if second == 8 {
                assert_eq!(drain.usual.get() / 1000, 150);
            }
        }
        let before = drain.usual;
        drain.granted(Bytes::kb(500));
        look(&mut drain, 41_000);
        assert_eq!(drain.usual - before, (Bytes::kb(500) - before) / 32);
        assert_eq!(Shedding::SPAN, Duration::from_secs(1));
    }
}
