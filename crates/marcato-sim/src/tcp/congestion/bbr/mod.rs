//! BBR version 1, as in Linux.
//!
//! Sources: Cardwell et al., "BBR: Congestion-Based Congestion Control" (CACM 60(2), 2017);
//! draft-cardwell-iccrg-bbr-congestion-control-00; constants as in Linux. Two later additions of
//! Linux are included: compensation for aggregated acknowledgements, and the long-term rate of
//! paths with a policer. Units are bytes, but every segment counts as a full one, since Linux counts
//! packets.

mod long_term;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use long_term::LongTerm;
use marcato_units::{Bytes, Duration, Rate, Stream, Time};

use super::max_filter::MaxFilter;
use super::{AckEvent, CongestionControl, LossState, Signal};

/// Gain in units of 1/256.
type Gain = u64;
const UNIT: Gain = 256;
/// 2/ln 2, as Linux rounds it: 2885/1000 + 1/256 = 739/256.
const HIGH_GAIN: Gain = 739;
/// Inverse of the startup gain: drains the queue of startup in one round trip.
const DRAIN_GAIN: Gain = 88;
const CWND_GAIN: Gain = 2 * UNIT;
/// Pacing gains of a cycle: one round faster, one slower, six at the estimated rate.
const CYCLE: [Gain; 8] = [UNIT * 5 / 4, UNIT * 3 / 4, UNIT, UNIT, UNIT, UNIT, UNIT, UNIT];
/// Number of phases in which a cycle may begin: all except the slow one.
const CYCLE_STARTS: u64 = 7;
/// Rounds in the window of the maximum rate.
const BW_ROUNDS: u64 = 10;
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
const MIN_CWND_SEGMENTS: u64 = 4;
/// Growth that continues startup, which ends after three rounds that grew the rate by less than a
/// quarter.
const FULL_BW_GROWTH: Gain = UNIT * 5 / 4;
const FULL_BW_ROUNDS: u32 = 3;
/// Margin of the pacing rate below the estimated rate, so that the queue drains.
const PACING_MARGIN_PERCENT: u64 = 1;
/// Rounds per slot of the two-slot maximum of aggregated acknowledgements; the next two constants
/// bound it.
const EXTRA_ACKED_ROUNDS: u32 = 5;
const EXTRA_ACKED_MAX: Duration = Duration::from_millis(100);
const ACK_EPOCH_RESET: u64 = 1 << 20;
/// Pacing rate in bit/s below which one segment leaves at a time, otherwise at least two.
const MIN_TSO_RATE: u64 = 1_200_000;
const GSO_MAX: u64 = 65_536 - 1 - 320;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// Acknowledgements in excess of the estimated rate.
#[derive(Clone, Copy, Debug, Default)]
struct Aggregation {
    extra: [u64; 2],
    slot: usize,
    rounds: u32,
    epoch_at: Time,
    epoch_acked: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    mss: u64,
    initial_window: u64,
    stream: Stream,
    mode: Mode,
    cwnd: u64,
    prior_cwnd: u64,
    ssthresh: u64,
    pacing_rate: u64,
    pacing_gain: Gain,
    cwnd_gain: Gain,
    /// Maximum filter of the delivery rate, in bytes per second.
    max_bw: MaxFilter,
    round_count: u64,
    round_start: bool,
    next_round_delivered: u64,
    full_bw: u64,
    full_bw_count: u32,
    full_bw_reached: bool,
    min_rtt: Option<Duration>,
    min_rtt_at: Time,
    probe_rtt_done_at: Option<Time>,
    probe_rtt_round_done: bool,
    cycle_index: usize,
    cycle_at: Time,
    idle_restart: bool,
    prior_state: LossState,
    packet_conservation: bool,
    has_seen_rtt: bool,
    delivered: u64,
    delivered_at: Time,
    lost: u64,
    lt: LongTerm,
    aggregation: Aggregation,
}

impl Bbr {
    pub(crate) fn new(mss: u64, initial_window: u64, stream: Stream) -> Self {
        let mut bbr = Self {
            mss,
            initial_window,
            stream,
            mode: Mode::Startup,
            cwnd: initial_window,
            prior_cwnd: 0,
            ssthresh: u64::MAX,
            pacing_rate: 0,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            max_bw: MaxFilter::default(),
            round_count: 0,
            round_start: false,
            next_round_delivered: 0,
            full_bw: 0,
            full_bw_count: 0,
            full_bw_reached: false,
            min_rtt: None,
            min_rtt_at: Time::ZERO,
            probe_rtt_done_at: None,
            probe_rtt_round_done: false,
            cycle_index: 0,
            cycle_at: Time::ZERO,
            idle_restart: false,
            prior_state: LossState::Open,
            packet_conservation: false,
            has_seen_rtt: false,
            delivered: 0,
            delivered_at: Time::ZERO,
            lost: 0,
            lt: LongTerm::default(),
            aggregation: Aggregation::default(),
        };
        // Before the first measurement, Linux assumes a millisecond.
        bbr.init_pacing_rate(Duration::from_millis(1));
        bbr
    }

    /// Returns the estimated rate in bytes per second.
    fn bw(&self) -> u64 {
        if self.lt.use_bw { self.lt.bw } else { self.max_bw.max() }
    }

    fn init_pacing_rate(&mut self, rtt: Duration) {
        let bw = Rate::from_bytes_over(Bytes::new(self.cwnd), rtt).as_bytes_per_sec();
        self.pacing_rate = Self::bw_to_pacing_rate(bw, HIGH_GAIN);
    }

    fn bw_to_pacing_rate(bw: u64, gain: Gain) -> u64 {
        mul_div(bw, gain * (100 - PACING_MARGIN_PERCENT), UNIT * 100)
    }

    fn set_pacing_rate(&mut self, ack_srtt: Option<Duration>, bw: u64, gain: Gain) {
        if !self.has_seen_rtt
            && let Some(srtt) = ack_srtt
        {
            self.has_seen_rtt = true;
            self.init_pacing_rate(srtt);
        }
        let rate = Self::bw_to_pacing_rate(bw, gain);
        if self.full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// Returns the bandwidth-delay product times gain, rounded up to a segment; the initial window
    /// before the first measurement.
    fn bdp(&self, bw: u64, gain: Gain) -> u64 {
        let Some(min_rtt) = self.min_rtt else { return self.initial_window };
        let bdp = Rate::from_bps(bw.saturating_mul(8)).bytes_in(min_rtt).get();
        mul_div(bdp, gain, UNIT).next_multiple_of(self.mss)
    }

    /// Returns the number of segments that leave together: those of a millisecond, at least one or
    /// two, at most 127.
    fn tso_segs_goal(&self) -> u64 {
        let least = if self.pacing_rate < MIN_TSO_RATE / 8 { 1 } else { 2 };
        ((self.pacing_rate >> 10).min(GSO_MAX) / self.mss).max(least).min(0x7f)
    }

    /// Adds to `cwnd` what batches and delayed acknowledgements need to avoid a stall.
    fn quantization_budget(&self, cwnd: u64) -> u64 {
        let cwnd = cwnd + 3 * self.tso_segs_goal() * self.mss;
        let mut cwnd = cwnd.next_multiple_of(2 * self.mss);
        if self.mode == Mode::ProbeBw && self.cycle_index == 0 {
            cwnd += 2 * self.mss;
        }
        cwnd
    }

    fn inflight(&self, bw: u64, gain: Gain) -> u64 {
        self.quantization_budget(self.bdp(bw, gain))
    }

    /// Returns the bytes in the network when the segment now being paced leaves.
    fn in_net_at_departure(&self, ack: &AckEvent, in_flight: u64) -> u64 {
        let wait = ack.next_send.since(ack.now);
        let delivered = Rate::from_bps(self.bw().saturating_mul(8)).bytes_in(wait).get();
        let mut at_departure = in_flight;
        if self.pacing_gain > UNIT {
            at_departure += self.tso_segs_goal() * self.mss;
        }
        at_departure.saturating_sub(delivered)
    }

    fn save_cwnd(&mut self) {
        if !is_repairing(self.prior_state) && self.mode != Mode::ProbeRtt {
            self.prior_cwnd = self.cwnd;
        } else {
            self.prior_cwnd = self.prior_cwnd.max(self.cwnd);
        }
    }

    fn update_bw(&mut self, ack: &AckEvent) {
        self.round_start = false;
        let Some(interval) = ack.rate.interval.filter(|_| ack.rate.delivered > 0) else { return };
        if ack.rate.prior_delivered >= self.next_round_delivered {
            self.next_round_delivered = self.delivered;
            self.round_count += 1;
            self.round_start = true;
            self.packet_conservation = false;
        }
        self.long_term_sampling(ack.newly_lost > 0, ack.rate.is_app_limited);
        let bw = Rate::from_bytes_over(Bytes::new(ack.rate.delivered), interval).as_bytes_per_sec();
        // A sample limited by the application counts only if it raises the estimate.
        if !ack.rate.is_app_limited || bw >= self.max_bw.max() {
            self.max_bw.update(BW_ROUNDS, self.round_count, bw);
        }
    }

    fn update_aggregation(&mut self, ack: &AckEvent) {
        if ack.delivered == 0 || ack.rate.interval.is_none() {
            return;
        }
        let bw = self.bw();
        let cwnd = self.cwnd;
        let a = &mut self.aggregation;
        if self.round_start {
            a.rounds += 1;
            if a.rounds >= EXTRA_ACKED_ROUNDS {
                a.rounds = 0;
                a.slot ^= 1;
                a.extra[a.slot] = 0;
            }
        }
        let span = self.delivered_at.since(a.epoch_at);
        let mut expected = Rate::from_bps(bw.saturating_mul(8)).bytes_in(span).get();
        // The epoch restarts when acknowledgements no longer exceed the rate, or its count grows
        // large.
        if a.epoch_acked <= expected || a.epoch_acked + ack.delivered >= ACK_EPOCH_RESET * self.mss {
            a.epoch_acked = 0;
            a.epoch_at = self.delivered_at;
            expected = 0;
        }
        a.epoch_acked += ack.delivered;
        let extra = a.epoch_acked.saturating_sub(expected).min(cwnd);
        a.extra[a.slot] = a.extra[a.slot].max(extra);
    }

    fn aggregation_cwnd(&self) -> u64 {
        if !self.full_bw_reached {
            return 0;
        }
        let most = Rate::from_bps(self.bw().saturating_mul(8)).bytes_in(EXTRA_ACKED_MAX).get();
        self.aggregation.extra[0].max(self.aggregation.extra[1]).min(most)
    }

    fn is_next_cycle_phase(&self, ack: &AckEvent) -> bool {
        let is_full_length = self.min_rtt.is_some_and(|min| self.delivered_at.since(self.cycle_at) > min);
        if self.pacing_gain == UNIT {
            return is_full_length;
        }
        let in_flight = self.in_net_at_departure(ack, ack.prior_in_flight);
        let bw = self.max_bw.max();
        if self.pacing_gain > UNIT {
            // Ends after the minimum round trip, with losses or with the requested amount in
            // flight.
            return is_full_length
                && (ack.newly_lost > 0 || in_flight >= self.inflight(bw, self.pacing_gain));
        }
        // The slow phase ends early once the queue of the fast phase has drained.
        is_full_length || in_flight <= self.inflight(bw, UNIT)
    }

    fn advance_cycle_phase(&mut self) {
        self.cycle_index = (self.cycle_index + 1) % CYCLE.len();
        self.cycle_at = self.delivered_at;
    }

    fn reset_probe_bw(&mut self) {
        self.mode = Mode::ProbeBw;
        let back = usize::try_from(self.stream.below(CYCLE_STARTS)).unwrap_or(0);
        self.cycle_index = CYCLE.len() - 1 - back;
        self.advance_cycle_phase();
    }

    fn reset_mode(&mut self) {
        if self.full_bw_reached {
            self.reset_probe_bw();
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn check_full_bw(&mut self, ack: &AckEvent) {
        if self.full_bw_reached || !self.round_start || ack.rate.is_app_limited {
            return;
        }
        if self.max_bw.max() >= mul_div(self.full_bw, FULL_BW_GROWTH, UNIT) {
            self.full_bw = self.max_bw.max();
            self.full_bw_count = 0;
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_reached = self.full_bw_count >= FULL_BW_ROUNDS;
    }

    fn check_drain(&mut self, ack: &AckEvent) {
        if self.mode == Mode::Startup && self.full_bw_reached {
            self.mode = Mode::Drain;
            self.ssthresh = self.inflight(self.max_bw.max(), UNIT);
        }
        if self.mode == Mode::Drain
            && self.in_net_at_departure(ack, ack.in_flight) <= self.inflight(self.max_bw.max(), UNIT)
        {
            self.reset_probe_bw();
        }
    }

    fn check_probe_rtt_done(&mut self, now: Time) {
        if self.probe_rtt_done_at.is_none_or(|done| now <= done) {
            return;
        }
        self.min_rtt_at = now;
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        self.reset_mode();
    }

    fn update_min_rtt(&mut self, ack: &AckEvent) {
        let expired = ack.now > self.min_rtt_at + MIN_RTT_WINDOW;
        // A single short segment may have waited for a delayed acknowledgement. Its round trip must
        // not become the minimum only because the old one has aged out.
        let is_single_runt = ack.newly_acked < self.mss
            && ack.delivered <= self.mss
            && ack.prior_in_flight == ack.delivered
            && ack.rate.delivered == ack.delivered;
        if let Some(rtt) = ack.rtt
            && ((expired && !is_single_runt) || self.min_rtt.is_none_or(|min| rtt < min))
        {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = ack.now;
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_cwnd();
            self.probe_rtt_done_at = None;
        }
        if self.mode == Mode::ProbeRtt {
            // The probe lasts 200 ms and at least a round trip, from when four segments are in
            // flight.
            match self.probe_rtt_done_at {
                None if ack.in_flight <= MIN_CWND_SEGMENTS * self.mss => {
                    self.probe_rtt_done_at = Some(ack.now + PROBE_RTT_TIME);
                    self.probe_rtt_round_done = false;
                    self.next_round_delivered = self.delivered;
                }
                None => {}
                Some(_) => {
                    if self.round_start {
                        self.probe_rtt_round_done = true;
                    }
                    if self.probe_rtt_round_done {
                        self.check_probe_rtt_done(ack.now);
                    }
                }
            }
        }
        if ack.rate.delivered > 0 {
            self.idle_restart = false;
        }
    }

    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBw => (if self.lt.use_bw { UNIT } else { CYCLE[self.cycle_index] }, CWND_GAIN),
            Mode::ProbeRtt => (UNIT, UNIT),
        };
    }

    /// Keeps what is in flight on entry to recovery, and restores the earlier window at its end.
    /// Returns true if the window is settled.
    fn set_cwnd_to_recover_or_restore(&mut self, ack: &AckEvent) -> bool {
        if ack.newly_lost > 0 {
            self.cwnd = self.cwnd.saturating_sub(ack.newly_lost).max(self.mss);
        }
        // The first round of recovery conserves packets: it sends what was delivered, no more.
        if ack.state == LossState::Recovery && self.prior_state != LossState::Recovery {
            self.packet_conservation = true;
            self.next_round_delivered = self.delivered;
            self.cwnd = ack.in_flight + ack.delivered;
        } else if is_repairing(self.prior_state) && !is_repairing(ack.state) {
            self.cwnd = self.cwnd.max(self.prior_cwnd);
            self.packet_conservation = false;
        }
        self.prior_state = ack.state;
        if self.packet_conservation {
            self.cwnd = self.cwnd.max(ack.in_flight + ack.delivered);
            return true;
        }
        false
    }

    fn set_cwnd(&mut self, ack: &AckEvent, bw: u64) {
        if ack.delivered > 0 && !self.set_cwnd_to_recover_or_restore(ack) {
            let target = self.quantization_budget(self.bdp(bw, self.cwnd_gain) + self.aggregation_cwnd());
            if self.full_bw_reached {
                self.cwnd = (self.cwnd + ack.delivered).min(target);
            } else if self.cwnd < target || self.delivered < self.initial_window {
                self.cwnd += ack.delivered;
            }
            self.cwnd = self.cwnd.max(MIN_CWND_SEGMENTS * self.mss);
        }
        if self.mode == Mode::ProbeRtt {
            self.cwnd = self.cwnd.min(MIN_CWND_SEGMENTS * self.mss);
        }
    }
}

/// Returns true in recovery from loss. BBRv1 ignores ECN, so a reduction does not count.
fn is_repairing(state: LossState) -> bool {
    matches!(state, LossState::Recovery | LossState::Loss)
}

/// Returns `value * by / of` without intermediate overflow.
fn mul_div(value: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(of)).unwrap_or(u64::MAX)
}

impl CongestionControl for Bbr {
    fn on_ack(&mut self, ack: &AckEvent) {
        self.delivered = ack.total_delivered;
        self.lost = ack.total_lost;
        if ack.delivered > 0 {
            self.delivered_at = ack.now;
        }
        self.update_bw(ack);
        self.update_aggregation(ack);
        if self.mode == Mode::ProbeBw && self.is_next_cycle_phase(ack) {
            self.advance_cycle_phase();
        }
        self.check_full_bw(ack);
        self.check_drain(ack);
        self.update_min_rtt(ack);
        self.update_gains();
        let bw = self.bw();
        self.set_pacing_rate(ack.srtt, bw, self.pacing_gain);
        self.set_cwnd(ack, bw);
    }

    fn on_congestion(&mut self, _now: Time, _in_flight: u64, _signal: Signal) {
        self.save_cwnd();
    }

    fn on_recovered(&mut self, _now: Time) {}

    fn on_rto(&mut self, _now: Time, _in_flight: u64, _first: bool) {
        self.save_cwnd();
        self.prior_state = LossState::Loss;
        self.full_bw = 0;
        self.round_start = true;
        self.long_term_sampling(true, false);
        // Linux allows one segment in the loss state.
        self.cwnd = self.mss;
    }

    fn on_spurious(&mut self, _now: Time) {
        // Linux, `bbr_undo_cwnd`: the slow-down may have looked like a full pipe. The end of the
        // recovery restores the window.
        (self.full_bw, self.full_bw_count) = (0, 0);
    }

    fn on_lost_handshake(&mut self) {
        self.cwnd = self.mss;
    }

    fn on_idle_restart(&mut self, now: Time, app_limited: bool, _expired: bool) {
        if !app_limited {
            return;
        }
        self.idle_restart = true;
        self.aggregation.epoch_at = now;
        self.aggregation.epoch_acked = 0;
        match self.mode {
            Mode::ProbeBw => self.set_pacing_rate(None, self.bw(), UNIT),
            Mode::ProbeRtt => self.check_probe_rtt_done(now),
            Mode::Startup | Mode::Drain => {}
        }
    }

    fn on_established(&mut self, now: Time, rtt: Option<Duration>) {
        self.min_rtt = rtt;
        self.min_rtt_at = now;
        self.delivered_at = now;
        self.aggregation.epoch_at = now;
        self.long_term_reset_interval();
        if let Some(rtt) = rtt {
            self.has_seen_rtt = true;
            self.init_pacing_rate(rtt);
        }
    }

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(Rate::from_bps(self.pacing_rate.saturating_mul(8)))
    }

    fn uses_prr(&self) -> bool {
        false
    }

    fn counts_segments(&self) -> bool {
        true
    }

    fn limits_itself(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }
}
