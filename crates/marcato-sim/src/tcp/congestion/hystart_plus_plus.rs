//! HyStart++: leaves slow start when round trips grow, by way of a slower start that may prove a
//! growth false. RFC 9406.
//!
//! Names are those of RFC 9406 §4.2. As §4.3 asks, it applies to the initial slow start only: while
//! the threshold has its initial value.

use marcato_units::Duration;

const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;
/// L without pacing, in segments. RFC 9406 §4.3.
const L: u64 = 8;

/// Conservative slow start (CSS).
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// cssBaselineMinRtt.
    baseline: Duration,
    /// Rounds that have ended since it began, the one in which it began included.
    rounds: u32,
}

/// State of the initial slow start.
#[derive(Clone, Debug)]
pub(crate) struct HyStartPlusPlus {
    /// Initial slow start threshold in bytes.
    pub(crate) initial_ssthresh: u64,
    /// Greatest growth per acknowledgement in bytes, L·SMSS.
    limit: u64,
    /// windowEnd.
    window_end: u64,
    /// lastRoundMinRTT and currentRoundMinRTT; [`Duration::MAX`] is infinity.
    last_round_min_rtt: Duration,
    current_round_min_rtt: Duration,
    /// rttSampleCount.
    rtt_sample_count: u32,
    css: Option<Conservative>,
}

impl HyStartPlusPlus {
    /// Begins a connection. `paced` means that its segments are paced, which needs no L.
    pub(crate) fn new(smss: u64, paced: bool, initial_ssthresh: u64) -> Self {
        Self {
            initial_ssthresh,
            limit: if paced { u64::MAX } else { L * smss },
            window_end: 0,
            last_round_min_rtt: Duration::MAX,
            current_round_min_rtt: Duration::MAX,
            rtt_sample_count: 0,
            css: None,
        }
    }

    /// Handles an acknowledgement of `acked` bytes in slow start. `una` and `nxt` are SND.UNA and
    /// SND.NXT. Returns the growth of the window; `None` if slow start must end now.
    pub(crate) fn on_ack(&mut self, acked: u64, rtt: Option<Duration>, [una, nxt]: [u64; 2]) -> Option<u64> {
        if una >= self.window_end {
            self.window_end = nxt;
            self.last_round_min_rtt = self.current_round_min_rtt;
            self.current_round_min_rtt = Duration::MAX;
            self.rtt_sample_count = 0;
            if let Some(css) = &mut self.css {
                css.rounds += 1;
                if css.rounds >= CSS_ROUNDS {
                    return None;
                }
            }
        }
        if let Some(rtt) = rtt {
            self.current_round_min_rtt = self.current_round_min_rtt.min(rtt);
            self.rtt_sample_count += 1;
        }
        let (current, last) = (self.current_round_min_rtt, self.last_round_min_rtt);
        if self.rtt_sample_count >= N_RTT_SAMPLE {
            match self.css {
                None if last < Duration::MAX => {
                    let thresh = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                    if current >= last + thresh {
                        self.css = Some(Conservative { baseline: current, rounds: 0 });
                    }
                }
                // The round trip has fallen again: its growth was no queue of this slow start.
                Some(css) if current < css.baseline => self.css = None,
                _ => {}
            }
        }
        let growth = acked.min(self.limit);
        Some(if self.css.is_some() { growth / CSS_GROWTH_DIVISOR } else { growth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Round of ten acknowledgements of 1000 bytes with this round trip; returns their growths.
    fn round(hystart: &mut HyStartPlusPlus, una: &mut u64, rtt: Duration) -> Vec<Option<u64>> {
        let nxt = *una + 10_000;
        (0..10)
            .map(|_| {
                *una += 1000;
                hystart.on_ack(1000, Some(rtt), [*una, nxt + 1000])
            })
            .collect()
    }

    fn start() -> (HyStartPlusPlus, u64) {
        let (mut hystart, mut una) = (HyStartPlusPlus::new(1000, false, u64::MAX), 1);
        assert_eq!(round(&mut hystart, &mut una, ms(80)), [Some(1000); 10]);
        (hystart, una)
    }

    #[test]
    fn a_growth_by_an_eighth_slows_the_start_from_the_eighth_sample() {
        for (rtt, slow) in [(89, false), (90, true)] {
            let (mut hystart, mut una) = start();
            let growths = round(&mut hystart, &mut una, ms(rtt));
            assert_eq!(growths[..7], [Some(1000); 7]);
            assert_eq!(growths[7..], [Some(if slow { 250 } else { 1000 }); 3]);
        }
    }

    #[test]
    fn the_threshold_is_between_4_and_16_ms() {
        for (base, growth) in [(8, 4), (1000, 16)] {
            for (added, slow) in [(growth - 1, false), (growth, true)] {
                let (mut hystart, mut una) = (HyStartPlusPlus::new(1000, false, u64::MAX), 1);
                round(&mut hystart, &mut una, ms(base));
                let growths = round(&mut hystart, &mut una, ms(base + added));
                assert_eq!(growths[9] == Some(250), slow, "{base} ms and {added} ms");
            }
        }
    }

    #[test]
    fn the_conservative_start_ends_after_five_rounds() {
        let (mut hystart, mut una) = start();
        let rounds: Vec<_> = (0..7).map(|_| round(&mut hystart, &mut una, ms(100))).collect();
        assert!(rounds[1..5].iter().all(|round| round[..] == [Some(250); 10]), "{rounds:?}");
        assert_eq!(rounds[5][0], None);
    }

    #[test]
    fn a_round_trip_that_falls_again_resumes_the_start() {
        let (mut hystart, mut una) = start();
        round(&mut hystart, &mut una, ms(100));
        let growths = round(&mut hystart, &mut una, ms(99));
        assert_eq!(growths[..7], [Some(250); 7]);
        assert_eq!(growths[7..], [Some(1000); 3]);
    }

    #[test]
    fn only_without_pacing_is_growth_bounded_by_8_segments() {
        for (paced, growth) in [(false, 8000), (true, 20_000)] {
            let mut hystart = HyStartPlusPlus::new(1000, paced, u64::MAX);
            assert_eq!(hystart.on_ack(20_000, None, [20_001, 40_001]), Some(growth));
        }
    }
}
