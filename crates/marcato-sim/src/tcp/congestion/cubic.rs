//! CUBIC: RFC 9438, with HyStart as in Linux. The sender implements recovery.
//!
//! Names are those of the RFC. Windows are in segments, as in its equations, in floating point.
//! Only additions, multiplications, divisions and a cube root in software are used, so that every
//! machine computes the same.

use marcato_units::{Duration, Time};

use super::hystart::{HyStart, Spreading};
use super::hystart_plus_plus::HyStartPlusPlus;
use super::{AckEvent, CongestionControl, LossState, Signal, Start};
use crate::tcp::config::GrowthRule as _;
use crate::tcp::{Cubic as CubicConfig, Growth};

/// C of RFC 9438 §5.1, in segments per cubic second.
const C: f64 = 0.4;
/// Multiplicative decrease factor. RFC 9438 §4.6.
const BETA_CUBIC: f64 = 0.7;
/// Additive increase for which W_est grows as fast as Reno's window. RFC 9438 §4.3.
const ALPHA_CUBIC: f64 = 3.0 * (1.0 - BETA_CUBIC) / (1.0 + BETA_CUBIC);

/// Acknowledged segments for which a window without W_max grows by at least one, with early growth:
/// 5 % per round trip. Linux, `bictcp_update` of `tcp_cubic.c`; not in RFC 9438.
const EARLY_GROWTH: f64 = 20.0;

/// Epoch of congestion avoidance. RFC 9438 §4.1.2.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// t_epoch: beginning of the epoch. It moves on by times in which the window was not in use.
    t_epoch: Time,
    /// K: time for the cubic function to return to W_max, in seconds.
    k: f64,
    /// Window at the plateau of the cubic function.
    w_max: f64,
    /// W_est: estimate of Reno's window.
    w_est: f64,
}

impl Epoch {
    /// W_cubic(t), with `t` in seconds. RFC 9438 §4.2, figure 1.
    fn w_cubic(&self, t: f64) -> f64 {
        let d = t - self.k;
        C * d * d * d + self.w_max
    }
}

/// State before a reduction, to which a spurious one returns. RFC 9438 §4.9.
#[derive(Clone, Copy, Debug)]
struct Prior {
    cwnd: f64,
    ssthresh: f64,
    w_max: Option<f64>,
    cwnd_prior: f64,
    epoch: Option<Epoch>,
}

/// CUBIC's window.
#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    smss: u64,
    initial_window: f64,
    growth: Growth,
    reduce_window: bool,
    fast_convergence: bool,
    early_growth: bool,
    hystart: Option<HyStart>,
    hystart_plus_plus: Option<Box<HyStartPlusPlus>>,
    /// Congestion window in segments; `ssthresh` is the slow start threshold, also in segments.
    cwnd: f64,
    ssthresh: f64,
    /// W_max: window just before the last reduction, or less by fast convergence. `None` before the
    /// first reduction and after a timeout. RFC 9438 §4.8.
    w_max: Option<f64>,
    /// cwnd_prior: window at the last reduction.
    cwnd_prior: f64,
    epoch: Option<Epoch>,
    /// Arrival time of the last acknowledgement in congestion avoidance.
    last_ack_at: Time,
    prior: Option<Box<Prior>>,
}

impl Cubic {
    pub(crate) fn new(start: Start, config: CubicConfig, spreading: Spreading) -> Self {
        let Start { smss, window, ssthresh, growth, reduce_window, .. } = start;
        let hystart_plus_plus = start.hystart_plus_plus();
        let initial_window = window as f64 / smss as f64;
        Self {
            smss,
            initial_window,
            growth,
            reduce_window,
            fast_convergence: config.fast_convergence,
            early_growth: config.early_growth,
            hystart: (config.hystart && hystart_plus_plus.is_none()).then(|| HyStart::new(spreading)),
            hystart_plus_plus,
            cwnd: initial_window,
            ssthresh: if ssthresh == u64::MAX { f64::INFINITY } else { ssthresh as f64 / smss as f64 },
            w_max: None,
            cwnd_prior: 0.0,
            epoch: None,
            last_ack_at: Time::ZERO,
            prior: None,
        }
    }

    /// Keeps the state before a reduction.
    fn keep(&mut self) {
        let Self { cwnd, ssthresh, w_max, cwnd_prior, epoch, .. } = *self;
        self.prior = Some(Box::new(Prior { cwnd, ssthresh, w_max, cwnd_prior, epoch }));
    }

    fn segments(&self, bytes: u64) -> f64 {
        bytes as f64 / self.smss as f64
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "windows are positive; a cast saturates"
    )]
    fn bytes(&self, segments: f64) -> u64 {
        if segments.is_finite() { (segments * self.smss as f64) as u64 } else { u64::MAX }
    }

    /// Sets W_max and the threshold for a reduction. RFC 9438 §4.6 and §4.7. As in Reno, the flight
    /// size counts if it is below the window, as an unused window proves nothing.
    fn reduce(&mut self, in_flight: u64) {
        // In whole segments, as in Linux. A fraction could not be sent, and must not decide whether
        // this maximum is below the last.
        let used = if self.reduce_window { self.cwnd } else { self.segments(in_flight).min(self.cwnd) };
        let used = used.floor().max(1.0);
        self.cwnd_prior = used;
        let below = self.w_max.is_some_and(|w_max| used < w_max);
        self.w_max =
            Some(if below && self.fast_convergence { used * (1.0 + BETA_CUBIC) / 2.0 } else { used });
        self.ssthresh = (used * BETA_CUBIC).max(2.0);
        self.epoch = None;
    }

    fn slow_start(&mut self, ack: &AckEvent, acked: u64) {
        // As in Reno: half of the window must be in use, and growth per acknowledgement is bounded.
        if ack.used.saturating_mul(2) < self.cwnd() {
            return;
        }
        let is_initial = |hystart: &HyStartPlusPlus| self.ssthresh() == hystart.initial_ssthresh;
        if self.hystart_plus_plus.as_deref().is_some_and(is_initial)
            && let Some(hystart) = &mut self.hystart_plus_plus
        {
            match hystart.on_ack(acked, ack.rtt, [ack.una, ack.nxt]) {
                Some(growth) => self.cwnd += self.segments(growth),
                None => self.ssthresh = self.cwnd,
            }
            return;
        }
        let most = self.growth.most_in_slow_start(self.smss, ack.state == LossState::Loss);
        self.cwnd += self.segments(acked.min(most));
    }

    fn congestion_avoidance(&mut self, ack: &AckEvent, acked: u64) {
        if ack.used + self.smss < self.cwnd() {
            // RFC 9438 §5.8: times limited by the application do not count for the cubic function.
            if let Some(epoch) = &mut self.epoch {
                epoch.t_epoch += ack.now - self.last_ack_at;
            }
            self.last_ack_at = ack.now;
            return;
        }
        self.last_ack_at = ack.now;
        let cwnd = self.cwnd;
        // RFC 9438 §4.2: K by figure 2. Without a W_max above the window, as after slow start
        // without loss (§4.10) or a timeout (§4.8), K is 0 and growth begins at the window.
        let w_max = self.w_max.unwrap_or(0.0).max(cwnd);
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            t_epoch: ack.now,
            k: libm::cbrt((w_max - cwnd) / C),
            w_max,
            w_est: cwnd,
        });
        let t = (ack.now - epoch.t_epoch).as_secs_f64();
        let rtt = ack.srtt.unwrap_or(Duration::ZERO).as_secs_f64();
        let segments_acked = acked as f64 / self.smss as f64;
        // RFC 9438 §4.3, figure 4. From cwnd_prior on, W_est grows as fast as Reno.
        let alpha = if epoch.w_est >= self.cwnd_prior { 1.0 } else { ALPHA_CUBIC };
        epoch.w_est += alpha * segments_acked / cwnd;
        if epoch.w_cubic(t) < epoch.w_est {
            // Reno-friendly region.
            self.cwnd = cwnd.max(epoch.w_est);
        } else {
            // RFC 9438 §4.4 and §4.5: target by figure 3.
            let target = epoch.w_cubic(t + rtt).clamp(cwnd, 1.5 * cwnd);
            self.cwnd = cwnd + (target - cwnd) / cwnd * segments_acked;
        }
        if self.early_growth && self.w_max.is_none() {
            // The cubic function begins flat, where no loss says that the window is near its best.
            self.cwnd = self.cwnd.max(cwnd + segments_acked / EARLY_GROWTH);
        }
    }
}

impl CongestionControl for Cubic {
    fn on_ack(&mut self, ack: &AckEvent) {
        let in_slow_start = self.cwnd < self.ssthresh;
        if let (Some(hystart), Some(rtt)) = (&mut self.hystart, ack.rtt) {
            // A recovery has just drained the queue, so round trips show none.
            let settled = self.epoch.is_none_or(|epoch| ack.now - epoch.t_epoch >= Duration::from_secs(1));
            let window = in_slow_start.then_some(self.cwnd);
            if settled && hystart.on_ack(ack.now, rtt, [ack.una, ack.nxt], window, ack.burst_rate) {
                self.ssthresh = self.cwnd;
                return;
            }
        }
        // SACKed bytes counted earlier: the acknowledgement that ends a recovery covers a whole
        // window.
        let acked = self.growth.counted(ack.newly_acked.min(ack.delivered), self.smss);
        if matches!(ack.state, LossState::Recovery | LossState::Reduction) || acked == 0 {
            return;
        }
        if in_slow_start {
            self.slow_start(ack, acked);
        } else {
            self.congestion_avoidance(ack, acked);
        }
    }

    fn on_congestion(&mut self, _now: Time, in_flight: u64, signal: Signal) {
        match signal {
            Signal::Loss => self.keep(),
            Signal::Ecn => self.prior = None,
        }
        self.reduce(in_flight);
        self.cwnd = self.ssthresh;
    }

    fn on_recovered(&mut self, _now: Time) {
        self.cwnd = self.ssthresh;
    }

    fn on_rto(&mut self, _now: Time, in_flight: u64, first: bool) {
        if first {
            self.keep();
            self.reduce(in_flight);
        }
        // RFC 9438 §4.8: the next congestion avoidance begins with K = 0 at its initial window.
        self.w_max = None;
        self.epoch = None;
        self.cwnd = 1.0;
        if let Some(hystart) = &mut self.hystart {
            hystart.reset();
        }
    }

    fn on_idle_restart(&mut self, now: Time, _app_limited: bool, expired: bool) {
        if let Some(epoch) = &mut self.epoch {
            epoch.t_epoch += now - self.last_ack_at.max(epoch.t_epoch);
            self.last_ack_at = now;
        }
        self.cwnd = super::restarted(self.cwnd, self.initial_window, expired);
    }

    fn on_idle_decay(&mut self, timeouts: u32) {
        self.ssthresh = self.ssthresh.max(self.cwnd * 0.75);
        self.cwnd = super::decayed(self.cwnd, self.initial_window, timeouts);
    }

    fn on_spurious(&mut self, _now: Time) {
        // RFC 9438 §4.9: a window that has grown beyond the earlier one keeps its newer values.
        let Some(prior) = self.prior.take().filter(|prior| self.cwnd <= prior.cwnd) else { return };
        let Prior { cwnd, ssthresh, w_max, cwnd_prior, epoch } = *prior;
        (self.cwnd, self.ssthresh, self.w_max, self.cwnd_prior) = (cwnd, ssthresh, w_max, cwnd_prior);
        self.epoch = epoch;
    }

    fn on_lost_handshake(&mut self) {
        self.cwnd = 1.0;
    }

    fn on_established(&mut self, _now: Time, _rtt: Option<Duration>) {}

    fn cwnd(&self) -> u64 {
        self.bytes(self.cwnd)
    }

    fn ssthresh(&self) -> u64 {
        self.bytes(self.ssthresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// CUBIC flow whose window is acknowledged once per round trip, segment by segment.
    struct Path {
        cubic: Cubic,
        now: Time,
        una: u64,
    }

    impl Path {
        fn new(config: CubicConfig) -> Self {
            Self {
                cubic: Cubic::new(Start::plain(1000, 10_000), config, Spreading::default()),
                now: Time::ZERO,
                una: 1,
            }
        }

        fn ack(&mut self, rtt: Duration, state: LossState) {
            self.una += 1000;
            let cwnd = self.cubic.cwnd();
            self.cubic.on_ack(&AckEvent {
                now: self.now,
                una: self.una,
                nxt: self.una + cwnd,
                in_flight: cwnd,
                rtt: Some(rtt),
                srtt: Some(rtt),
                ..AckEvent::of(1000, cwnd, state)
            });
        }

        /// One round trip.
        fn round(&mut self) {
            let segments = self.cubic.cwnd() / 1000;
            for _ in 0..segments {
                self.now += RTT / u32::try_from(segments).unwrap();
                self.ack(RTT, LossState::Open);
            }
        }
    }

    fn without_hystart() -> CubicConfig {
        CubicConfig { hystart: false, ..CubicConfig::default() }
    }

    /// A window of 1000 segments is reached again after K = cbrt(1000·0.3/0.4) = 9.086 s, with slow
    /// growth around it.
    #[test]
    fn the_window_comes_back_to_its_maximum_after_k() {
        let mut path = Path::new(without_hystart());
        path.cubic.cwnd = 1000.0;
        path.cubic.on_congestion(path.now, 1_000_000, Signal::Loss);
        assert_eq!((path.cubic.cwnd(), path.cubic.ssthresh()), (700_000, 700_000));
        let mut seen = Vec::new();
        for _ in 0..140 {
            path.round();
            seen.push(path.cubic.cwnd);
        }
        let epoch = path.cubic.epoch.unwrap();
        assert!((epoch.k - 9.086).abs() < 0.001, "{}", epoch.k);
        for (seconds, window) in [(3, 909.86), (6, 988.24), (9, 1000.0), (12, 1009.9)] {
            let window: f64 = window;
            let seen = seen[seconds * 10 - 1];
            assert!((seen / window - 1.0).abs() < 0.01, "{seconds} s: {seen} for {window}");
        }
    }

    /// RFC 9438 §4.9: a spurious reduction leaves the cubic function where it was.
    #[test]
    fn a_spurious_reduction_leaves_the_cubic_function_as_before() {
        let reductions: [fn(&mut Cubic); 2] = [
            |cubic| cubic.on_congestion(Time::ZERO, 1_000_000, Signal::Loss),
            |cubic| cubic.on_rto(Time::ZERO, 1_000_000, true),
        ];
        for reduce in reductions {
            let mut path = Path::new(without_hystart());
            path.cubic.cwnd = 1000.0;
            path.cubic.on_congestion(path.now, 1_000_000, Signal::Loss);
            path.round();
            path.round();
            let before = format!("{:?}", Cubic { prior: None, ..path.cubic.clone() });
            reduce(&mut path.cubic);
            assert!(path.cubic.cwnd() < 600_000);
            path.cubic.on_spurious(path.now);
            assert_eq!(format!("{:?}", path.cubic), before);
        }
        // Values that are newer than the restored ones stay.
        let mut path = Path::new(without_hystart());
        path.cubic.on_congestion(path.now, 10_000, Signal::Loss);
        path.cubic.cwnd = 20.0;
        path.cubic.on_spurious(path.now);
        assert_eq!((path.cubic.cwnd(), path.cubic.ssthresh()), (20_000, 7000));
        // A mark is never spurious.
        path.cubic.on_congestion(path.now, 20_000, Signal::Ecn);
        path.cubic.on_spurious(path.now);
        assert_eq!(path.cubic.cwnd(), 14_000);
    }

    /// RFC 9438 §4.3: in a small window Reno's growth applies: 0.529 segments per round trip up to
    /// the last maximum, then one.
    #[test]
    fn a_small_window_grows_as_reno_would() {
        let mut path = Path::new(without_hystart());
        path.cubic.cwnd = 20.0;
        path.cubic.on_congestion(path.now, 20_000, Signal::Loss);
        for _ in 0..10 {
            path.round();
        }
        let grown = path.cubic.cwnd - 14.0;
        // The cubic function alone gives 20 - 0.4·(2.47 - 1)³ = 18.7 after a second; on a path of
        // 10 ms it would not.
        assert!(grown > 4.0, "{grown}");
        let mut path = Path::new(without_hystart());
        path.cubic.cwnd = 20.0;
        path.cubic.on_congestion(path.now, 20_000, Signal::Loss);
        let mut windows = Vec::new();
        for _ in 0..30 {
            let segments = path.cubic.cwnd() / 1000;
            for _ in 0..segments {
                path.now += Duration::from_millis(1) / u32::try_from(segments).unwrap();
                path.ack(Duration::from_millis(1), LossState::Open);
            }
            windows.push(path.cubic.cwnd);
        }
        // Ten rounds at 0.529 from 14: 19.3; beyond 20, one per round.
        assert!((windows[9] - 19.2).abs() < 0.3, "{windows:?}");
        assert!((windows[29] - windows[19] - 10.0).abs() < 1.0, "{windows:?}");
    }

    #[test]
    fn fast_convergence_reduces_w_max_further_at_a_second_reduction() {
        for (fast_convergence, w_max) in [(true, 680.0), (false, 800.0)] {
            let mut path = Path::new(CubicConfig { fast_convergence, ..without_hystart() });
            path.cubic.cwnd = 1000.0;
            path.cubic.on_congestion(path.now, 1_000_000, Signal::Loss);
            assert_eq!(path.cubic.w_max, Some(1000.0));
            path.cubic.cwnd = 800.0;
            path.cubic.on_congestion(path.now, 800_000, Signal::Loss);
            assert_eq!(path.cubic.w_max, Some(w_max));
            assert_eq!(path.cubic.cwnd(), 560_000);
        }
    }

    #[test]
    fn after_a_timeout_cubic_growth_starts_where_slow_start_ends() {
        let mut path = Path::new(without_hystart());
        path.cubic.cwnd = 100.0;
        path.cubic.on_rto(path.now, 100_000, true);
        assert_eq!((path.cubic.cwnd(), path.cubic.ssthresh()), (1000, 70_000));
        while path.cubic.cwnd < 70.0 {
            path.round();
        }
        path.round();
        let epoch = path.cubic.epoch.unwrap();
        assert_eq!(epoch.k, 0.0);
        assert!((70.0..72.0).contains(&epoch.w_max), "{epoch:?}");
    }

    /// Without a maximum, 100 segments grow by 5 % a round trip for as long as the cubic function and
    /// Reno grow less: to 163 in ten round trips. A loss ends it.
    #[test]
    fn a_window_without_maximum_grows_by_a_twentieth_per_round_trip() {
        let grown = |early_growth: bool, lost: bool| {
            let mut path = Path::new(CubicConfig { early_growth, ..without_hystart() });
            (path.cubic.cwnd, path.cubic.ssthresh) = (100.0, 100.0);
            path.cubic.w_max = lost.then_some(100.0);
            (0..10).for_each(|_| path.round());
            path.cubic.cwnd
        };
        assert!((160.0..165.0).contains(&grown(true, false)), "{}", grown(true, false));
        assert!((109.0..111.0).contains(&grown(false, false)), "{}", grown(false, false));
        assert_eq!(grown(true, true), grown(false, true));
    }

    #[test]
    fn idle_time_is_no_time_of_growth() {
        let mut path = Path::new(without_hystart());
        path.cubic.cwnd = 1000.0;
        path.cubic.on_congestion(path.now, 1_000_000, Signal::Loss);
        for _ in 0..20 {
            path.round();
        }
        let before = path.cubic.cwnd;
        path.now += Duration::from_secs(100);
        path.cubic.on_idle_restart(path.now, true, false);
        path.round();
        assert!(path.cubic.cwnd - before < 30.0, "{before} to {}", path.cubic.cwnd);
    }

    #[test]
    fn slow_start_ends_where_round_trips_grow() {
        let mut path = Path::new(CubicConfig::default());
        for _ in 0..3 {
            path.round();
        }
        assert!(path.cubic.cwnd >= 64.0 && path.cubic.ssthresh.is_infinite(), "{:?}", path.cubic);
        // An eighth of 100 ms, 12.5 ms, is the threshold for the least of a round's first samples.
        for _ in 0..80 {
            path.ack(RTT + Duration::from_millis(14), LossState::Open);
        }
        assert_eq!(path.cubic.ssthresh, path.cubic.cwnd.min(path.cubic.ssthresh));
        assert!(path.cubic.ssthresh.is_finite());
    }
}
