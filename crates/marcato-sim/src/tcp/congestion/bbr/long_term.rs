//! Long-term rate of paths with a policer, which passes a bucket of data and then drops.

use marcato_units::{Bytes, Duration, Rate, Time};

use super::{Bbr, Mode, UNIT};

// At least 4 rounds, at most 16; loss of 50/256; rates equal within 1/8 or 4 kbit/s; used for 48
// rounds.
const LT_MIN_ROUNDS: u64 = 4;
const LT_LOSS_THRESHOLD: u64 = 50;
const LT_BW_RATIO: u64 = UNIT / 8;
const LT_BW_DIFF: u64 = 4000 / 8;
const LT_MAX_ROUNDS: u64 = 48;

/// Sampling of the long-term rate that a policer allows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LongTerm {
    pub(super) is_sampling: bool,
    pub(super) rounds: u64,
    pub(super) use_bw: bool,
    pub(super) bw: u64,
    pub(super) last_at: Time,
    pub(super) last_delivered: u64,
    pub(super) last_lost: u64,
}

impl Bbr {
    pub(super) fn long_term_reset_interval(&mut self) {
        self.lt.last_at = self.delivered_at;
        self.lt.last_delivered = self.delivered;
        self.lt.last_lost = self.lost;
        self.lt.rounds = 0;
    }

    pub(super) fn long_term_reset(&mut self) {
        self.lt.bw = 0;
        self.lt.use_bw = false;
        self.lt.is_sampling = false;
        self.long_term_reset_interval();
    }

    /// Samples the rate between two losses, which behind a policer is the policer's rate. Two such
    /// intervals of equal rate are taken as evidence of one.
    pub(super) fn long_term_sampling(&mut self, has_losses: bool, is_app_limited: bool) {
        if self.lt.use_bw {
            if self.mode == Mode::ProbeBw && self.round_start {
                self.lt.rounds += 1;
                if self.lt.rounds >= LT_MAX_ROUNDS {
                    self.long_term_reset();
                    self.reset_probe_bw();
                }
            }
            return;
        }
        if !self.lt.is_sampling {
            if !has_losses {
                return;
            }
            self.long_term_reset_interval();
            self.lt.is_sampling = true;
        }
        // The application, not a policer, limits the rate in this interval.
        if is_app_limited {
            self.long_term_reset();
            return;
        }
        if self.round_start {
            self.lt.rounds += 1;
        }
        if self.lt.rounds < LT_MIN_ROUNDS {
            return;
        }
        if self.lt.rounds > 4 * LT_MIN_ROUNDS {
            self.long_term_reset();
            return;
        }
        // The interval ends at a loss: the policer's bucket is then empty.
        if !has_losses {
            return;
        }
        let lost = self.lost - self.lt.last_lost;
        let delivered = self.delivered - self.lt.last_delivered;
        if delivered == 0 || lost * UNIT < LT_LOSS_THRESHOLD * delivered {
            return;
        }
        let span = self.delivered_at.since(self.lt.last_at);
        if span < Duration::from_millis(1) {
            return;
        }
        let bw = Rate::from_bytes_over(Bytes::new(delivered), span).as_bytes_per_sec();
        if self.lt.bw != 0 {
            let diff = bw.abs_diff(self.lt.bw);
            if diff * UNIT <= LT_BW_RATIO * self.lt.bw || diff <= LT_BW_DIFF {
                self.lt.bw = u64::midpoint(bw, self.lt.bw);
                self.lt.use_bw = true;
                self.pacing_gain = UNIT;
                self.lt.rounds = 0;
                return;
            }
        }
        self.lt.bw = bw;
        self.long_term_reset_interval();
    }
}
