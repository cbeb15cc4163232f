//! LEDBAT++ for background data: draft-irtf-iccrg-ledbat-plus-plus. The sender implements recovery.
//!
//! The window grows more slowly than Reno's, and shrinks once the queueing delay exceeds a target. At
//! times the sender leaves the path to others, to see its round trip without their queue and its own.
//! Names are those of the draft. Windows are in segments, in floating point. Delays are round trips
//! (§4.5), so no clocks have to agree.

use marcato_units::{Duration, Time};

use super::{AckEvent, CongestionControl, LossState, Signal, Start};
use crate::tcp::Growth;
use crate::tcp::config::GrowthRule as _;

/// Queueing delay that is aimed at.
const TARGET: Duration = Duration::from_millis(60);
/// Largest divisor of the growth. §4.2.
const MAX_DIVISOR: u128 = 16;
/// Factor of the relative excess of delay in a decrease. §4.3.
const CONSTANT: f64 = 1.0;
/// Smallest window in segments, which is also that of a slowdown. §4.4.
const MIN_WINDOW: f64 = 2.0;
/// Round trips of a slowdown, and between the first slow start and the slowdown after it. §4.4.
const FREEZE: u32 = 2;
/// Time between two slowdowns over the duration of one: a tenth of the time at most is lost. §4.4.
const INTERVAL: u32 = 9;
/// Minutes of which the least delays are kept.
const BASE_HISTORY: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// Latest round trips of which the least is the current delay. RFC 6817 §3.4.2.
const CURRENT_FILTER: usize = 4;

/// Least round trips of the last ten minutes, and latest ones.
#[derive(Clone, Debug)]
struct Delays {
    /// Least round trip of each minute, the current one last.
    base: [Duration; BASE_HISTORY],
    minute: Time,
    current: [Duration; CURRENT_FILTER],
    next: usize,
}

impl Delays {
    const fn new() -> Self {
        Self {
            base: [Duration::MAX; BASE_HISTORY],
            minute: Time::ZERO,
            current: [Duration::MAX; CURRENT_FILTER],
            next: 0,
        }
    }

    fn add(&mut self, now: Time, rtt: Duration) {
        // After a pause of more minutes than are kept, all are forgotten.
        for _ in 0..BASE_HISTORY {
            if now.since(self.minute) < MINUTE {
                break;
            }
            self.minute += MINUTE;
            self.base.rotate_left(1);
            self.base[BASE_HISTORY - 1] = Duration::MAX;
        }
        if now.since(self.minute) >= MINUTE {
            self.minute = now;
        }
        let last = &mut self.base[BASE_HISTORY - 1];
        *last = rtt.min(*last);
        self.current[self.next] = rtt;
        self.next = (self.next + 1) % CURRENT_FILTER;
    }

    /// Base delay; [`Duration::MAX`] before the first measurement.
    fn base(&self) -> Duration {
        self.base.iter().copied().min().unwrap_or(Duration::MAX)
    }

    fn queueing(&self) -> Duration {
        let current = self.current.iter().copied().min().unwrap_or(Duration::MAX);
        if current == Duration::MAX { Duration::ZERO } else { current.saturating_sub(self.base()) }
    }

    /// GAIN: growth over Reno's. §4.2.
    fn gain(&self) -> f64 {
        // ceil(2 * TARGET / base), and no division by zero.
        let divisor = (TARGET * 2).as_nanos().div_ceil(self.base().as_nanos().max(1));
        1.0 / divisor.clamp(1, MAX_DIVISOR) as f64
    }
}

/// Stage of the initial and periodic slowdowns. §4.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// First slow start.
    Start,
    /// Normal operation, with the time of the next slowdown.
    Steady(Time),
    /// Window of two segments, with beginning and end.
    Frozen(Time, Time),
    /// Slow start to the window before the slowdown, with the slowdown's beginning.
    RampUp(Time),
}

/// LEDBAT++'s window.
#[derive(Clone, Debug)]
pub(crate) struct LedbatPlusPlus {
    smss: u64,
    initial_window: f64,
    growth: Growth,
    /// W: congestion window in segments; `ssthresh` is the slow start threshold, also in segments.
    cwnd: f64,
    ssthresh: f64,
    delays: Delays,
    stage: Stage,
    srtt: Duration,
    /// The window changes once per round trip: when this is acknowledged.
    round_end: u64,
    /// Window, threshold and stage before the last reduction for a loss.
    prior: Option<(f64, f64, Stage)>,
}

impl LedbatPlusPlus {
    pub(crate) fn new(start: Start) -> Self {
        let Start { smss, window, ssthresh, growth, .. } = start;
        let initial_window = window as f64 / smss as f64;
        Self {
            smss,
            initial_window,
            growth,
            cwnd: initial_window,
            ssthresh: if ssthresh == u64::MAX { f64::INFINITY } else { ssthresh as f64 / smss as f64 },
            delays: Delays::new(),
            stage: Stage::Start,
            srtt: Duration::ZERO,
            round_end: 0,
            prior: None,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "windows are positive; a cast saturates"
    )]
    fn bytes(&self, segments: f64) -> u64 {
        if segments.is_finite() { (segments * self.smss as f64) as u64 } else { u64::MAX }
    }

    fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Begins and ends slowdowns.
    fn advance(&mut self, now: Time) {
        self.stage = match self.stage {
            // The first slow start has ended, by delay or loss: its queue goes soon.
            Stage::Start if !self.in_slow_start() => Stage::Steady(now + self.srtt * FREEZE),
            Stage::Steady(at) if now >= at && !self.in_slow_start() => {
                self.ssthresh = self.cwnd;
                self.cwnd = MIN_WINDOW;
                Stage::Frozen(now, now + self.srtt * FREEZE)
            }
            Stage::Frozen(began, until) if now >= until => Stage::RampUp(began),
            Stage::RampUp(began) if !self.in_slow_start() => Stage::Steady(now + now.since(began) * INTERVAL),
            stage => stage,
        };
    }

    fn slow_start(&mut self, ack: &AckEvent, acked: u64) {
        // §4.1: the first slow start ends at three quarters of the target. A later one has a threshold.
        if self.stage == Stage::Start && self.delays.queueing() > TARGET / 4 * 3 {
            self.ssthresh = self.cwnd;
            return;
        }
        // As in Reno: half of the window must be in use, and growth per acknowledgement is bounded.
        if ack.used.saturating_mul(2) < self.cwnd() {
            return;
        }
        let most = self.growth.most_in_slow_start(self.smss, ack.state == LossState::Loss);
        let segments = acked.min(most) as f64 / self.smss as f64;
        self.cwnd = (self.cwnd + self.delays.gain() * segments).min(self.ssthresh);
    }

    /// Changes the window after a round trip. §4.2 and §4.3.
    fn congestion_avoidance(&mut self, ack: &AckEvent) {
        let gain = self.delays.gain();
        let excess = self.delays.queueing().as_secs_f64() / TARGET.as_secs_f64() - 1.0;
        if excess > 0.0 {
            let change = (gain - CONSTANT * self.cwnd * excess).max(-self.cwnd / 2.0);
            self.cwnd = (self.cwnd + change).max(MIN_WINDOW);
            self.ssthresh = self.ssthresh.min(self.cwnd);
        } else if ack.used + self.smss >= self.cwnd() {
            self.cwnd += gain;
        }
    }
}

impl CongestionControl for LedbatPlusPlus {
    fn on_ack(&mut self, ack: &AckEvent) {
        if let Some(rtt) = ack.rtt {
            self.delays.add(ack.now, rtt);
        }
        self.srtt = ack.srtt.unwrap_or(self.srtt);
        self.advance(ack.now);
        let round = ack.una > self.round_end;
        if round {
            self.round_end = ack.nxt;
        }
        // SACKed bytes counted earlier: the acknowledgement that ends a recovery covers a whole
        // window.
        let acked = self.growth.counted(ack.newly_acked.min(ack.delivered), self.smss);
        if matches!(ack.state, LossState::Recovery | LossState::Reduction) || acked == 0 {
            return;
        }
        match self.stage {
            Stage::Frozen(..) => {}
            _ if self.in_slow_start() => self.slow_start(ack, acked),
            _ if round => self.congestion_avoidance(ack),
            _ => {}
        }
    }

    fn on_congestion(&mut self, _now: Time, in_flight: u64, signal: Signal) {
        self.prior = (signal == Signal::Loss).then_some((self.cwnd, self.ssthresh, self.stage));
        // As in Reno, by what was in flight. A slowdown has less in flight than it will return to.
        let frozen = matches!(self.stage, Stage::Frozen(..));
        let used = if frozen { self.ssthresh } else { (in_flight as f64 / self.smss as f64).min(self.cwnd) };
        self.ssthresh = (used / 2.0).max(MIN_WINDOW);
        self.cwnd = if frozen { MIN_WINDOW } else { self.ssthresh };
    }

    fn on_recovered(&mut self, _now: Time) {
        if !matches!(self.stage, Stage::Frozen(..)) {
            self.cwnd = self.ssthresh;
        }
    }

    fn on_rto(&mut self, now: Time, in_flight: u64, first: bool) {
        if first {
            self.prior = Some((self.cwnd, self.ssthresh, self.stage));
            let used = (in_flight as f64 / self.smss as f64).min(self.cwnd);
            self.ssthresh = (used / 2.0).max(MIN_WINDOW);
        }
        self.cwnd = 1.0;
        // A timeout has emptied the path as well.
        self.stage = Stage::RampUp(now);
    }

    fn on_idle_restart(&mut self, _now: Time, _app_limited: bool, expired: bool) {
        self.cwnd = super::restarted(self.cwnd, self.initial_window, expired);
    }

    fn on_idle_decay(&mut self, timeouts: u32) {
        self.ssthresh = self.ssthresh.max(self.cwnd * 0.75);
        self.cwnd = super::decayed(self.cwnd, self.initial_window, timeouts);
    }

    fn on_spurious(&mut self, _now: Time) {
        if let Some((cwnd, ssthresh, stage)) = self.prior.take() {
            self.cwnd = self.cwnd.max(cwnd);
            self.ssthresh = self.ssthresh.max(ssthresh);
            self.stage = stage;
        }
    }

    fn on_lost_handshake(&mut self) {
        self.cwnd = 1.0;
    }

    fn on_established(&mut self, _now: Time, rtt: Option<Duration>) {
        self.srtt = rtt.unwrap_or(self.srtt);
    }

    fn cwnd(&self) -> u64 {
        self.bytes(self.cwnd)
    }

    fn ssthresh(&self) -> u64 {
        self.bytes(self.ssthresh)
    }
}

#[cfg(test)]
mod tests {
    use marcato_scenario::Scenario;

    use super::*;
    use crate::scenario::build;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// Window in full use, whose data is acknowledged once per round trip, segment by segment.
    struct Path {
        ledbat: LedbatPlusPlus,
        now: Time,
        una: u64,
    }

    impl Path {
        fn new() -> Self {
            let ledbat = LedbatPlusPlus::new(Start::plain(1000, 10_000));
            Self { ledbat, now: Time::ZERO, una: 1 }
        }

        fn round(&mut self, rtt: Duration) {
            self.now += rtt;
            let window = self.ledbat.cwnd() / 1000;
            let nxt = self.una + 1000 * window;
            for _ in 0..window {
                self.una += 1000;
                self.ledbat.on_ack(&AckEvent {
                    now: self.now,
                    una: self.una,
                    nxt,
                    rtt: Some(rtt),
                    srtt: Some(rtt),
                    total_delivered: self.una,
                    next_send: self.now,
                    ..AckEvent::of(1000, 1000 * window, LossState::Open)
                });
            }
        }

        /// Runs until the first slowdown is over.
        fn steady() -> Self {
            let mut path = Self::new();
            path.round(ms(100));
            path.round(ms(150));
            for _ in 0..20 {
                path.round(ms(100));
            }
            assert!(matches!(path.ledbat.stage, Stage::Steady(_)), "{path:?}", path = path.ledbat);
            path
        }
    }

    #[test]
    fn growth_is_slower_on_short_paths() {
        for (base, divisor) in [(200, 1.0), (120, 1.0), (100, 2.0), (40, 3.0), (10, 12.0), (1, 16.0)] {
            let mut delays = Delays::new();
            delays.add(at(1), ms(base));
            assert_eq!(delays.gain(), 1.0 / divisor, "{base} ms");
        }
        assert_eq!(Delays::new().gain(), 1.0);
    }

    #[test]
    fn the_base_delay_is_forgotten_after_ten_minutes() {
        let mut delays = Delays::new();
        delays.add(at(1), ms(20));
        for minute in 1..=9 {
            delays.add(at(60_000 * minute), ms(50));
            assert_eq!(delays.base(), ms(20), "minute {minute}");
        }
        delays.add(at(600_000), ms(50));
        assert_eq!(delays.base(), ms(50));
        // The current delay is the least of four.
        delays.add(at(600_001), ms(90));
        assert_eq!(delays.queueing(), ms(0));
        for _ in 0..3 {
            delays.add(at(600_002), ms(80));
        }
        assert_eq!(delays.queueing(), ms(30));
        delays.add(at(10_000_000), ms(70));
        assert_eq!(delays.base(), ms(70));
    }

    #[test]
    fn slow_start_ends_at_three_quarters_of_the_target() {
        let mut path = Path::new();
        path.round(ms(100));
        path.round(ms(145));
        assert!(path.ledbat.in_slow_start());
        path.round(ms(146));
        assert!(!path.ledbat.in_slow_start());
    }

    #[test]
    fn a_slowdown_of_two_round_trips_follows_and_the_window_returns() {
        let mut path = Path::new();
        path.round(ms(100));
        path.round(ms(150));
        path.round(ms(100));
        let before = path.ledbat.ssthresh();
        path.round(ms(100));
        path.round(ms(100));
        assert_eq!(path.ledbat.cwnd(), 2000);
        assert!(matches!(path.ledbat.stage, Stage::Frozen(..)));
        while !matches!(path.ledbat.stage, Stage::Steady(_)) {
            path.round(ms(100));
        }
        assert!(path.ledbat.cwnd().abs_diff(before) <= 2000, "{} {before}", path.ledbat.cwnd());
    }

    #[test]
    fn slowdowns_take_a_tenth_of_the_time() {
        let mut path = Path::steady();
        let Stage::Steady(next) = path.ledbat.stage else { unreachable!() };
        let steady = |path: &Path| matches!(path.ledbat.stage, Stage::Steady(_));
        while steady(&path) {
            path.round(ms(100));
        }
        assert!(path.now >= next && path.now < next + ms(200));
        let began = path.now;
        while !steady(&path) {
            path.round(ms(100));
        }
        let Stage::Steady(next) = path.ledbat.stage else { unreachable!() };
        assert_eq!(next, path.now + path.now.since(began) * 9);
    }

    #[test]
    fn a_delay_above_the_target_shrinks_the_window_by_half_at_most() {
        for (queue, expected) in [(60, 20.5), (66, 18.5), (90, 10.5), (120, 10.0), (600, 10.0)] {
            let mut path = Path::steady();
            path.ledbat.stage = Stage::Steady(at(1_000_000));
            (path.ledbat.cwnd, path.ledbat.ssthresh) = (20.0, 20.0);
            path.ledbat.delays.current = [ms(100 + queue); CURRENT_FILTER];
            path.ledbat.round_end = 0;
            path.round(ms(100 + queue));
            // GAIN is a half.
            assert!((path.ledbat.cwnd - expected).abs() < 1e-6, "{queue} ms: {}", path.ledbat.cwnd);
        }
    }

    /// Goodputs of a LEDBAT++ flow and of this one over 10 Mbit/s, 40 ms and a queue of 160 ms, between two times.
    fn beside(other: &str, from: u64, until: u64) -> Vec<f64> {
        let text = format!(
            r#"
            name = "background"
            duration = "{until} s"
            warm-up = "{from} s"
            nodes = ["sender", "receiver"]
            [[link]]
            name = "bottleneck"
            between = ["sender", "receiver"]
            rate = "10 Mbit/s"
            delay = "20 ms"
            queue = {{ kind = "droptail", limit = "200 kB" }}
            [[flow]]
            name = "ours"
            kind = "tcp"
            from = "sender"
            to = "receiver"
            congestion = "ledbat++"
            {other}
            "#
        );
        let experiment = Scenario::parse("background.toml", &text).unwrap().run(0).unwrap().experiment;
        let outcome = build(&experiment, &Default::default()).unwrap().run(&mut |_: Time| ()).unwrap();
        outcome.flows.iter().map(|flow| flow.goodput).collect()
    }

    const CUBIC: &str = r#"
        [[flow]]
        name = "cubic"
        kind = "tcp"
        from = "sender"
        to = "receiver"
        congestion = "cubic"
        start = "20 s"
        stop = "50 s"
    "#;

    #[test]
    fn ledbat_fills_an_empty_link() {
        let goodput = beside("", 10, 70);
        assert!(goodput[0] > 8.0, "{goodput:?}");
    }

    #[test]
    fn ledbat_yields_to_cubic() {
        let goodput = beside(CUBIC, 25, 50);
        assert!(goodput[0] < 0.15 * goodput[1], "{goodput:?}");
    }

    #[test]
    fn ledbat_returns_within_a_minute_after_cubic_has_left() {
        let goodput = beside(CUBIC, 110, 130);
        assert!(goodput[0] > 8.0, "{goodput:?}");
    }
    #[test]
    fn a_spurious_timeout_leaves_window_threshold_and_stage() {
        let mut path = Path::steady();
        let before = (path.ledbat.cwnd, path.ledbat.ssthresh, format!("{:?}", path.ledbat.stage));
        path.ledbat.on_rto(path.now, path.ledbat.cwnd(), true);
        assert_eq!(path.ledbat.cwnd(), 1000);
        path.ledbat.on_rto(path.now, 1000, false);
        path.ledbat.on_spurious(path.now);
        let after = (path.ledbat.cwnd, path.ledbat.ssthresh, format!("{:?}", path.ledbat.stage));
        assert_eq!(after, before);
        // There is nothing more to undo.
        path.ledbat.on_rto(path.now, path.ledbat.cwnd(), true);
        path.ledbat.on_spurious(path.now);
        path.ledbat.cwnd = 2.0;
        path.ledbat.on_spurious(path.now);
        assert_eq!(path.ledbat.cwnd(), 2000);
    }

    /// §4.4: a slowdown lasts its two round trips, whatever ends meanwhile.
    #[test]
    fn a_recovery_that_ends_in_a_slowdown_leaves_its_window() {
        let mut path = Path::steady();
        path.ledbat.stage = Stage::Steady(path.now);
        path.round(ms(100));
        assert!(matches!(path.ledbat.stage, Stage::Frozen(..)), "{:?}", path.ledbat);
        let before = path.ledbat.ssthresh();
        path.ledbat.on_congestion(path.now, 2000, Signal::Loss);
        assert_eq!((path.ledbat.cwnd(), path.ledbat.ssthresh()), (2000, before / 2));
        path.ledbat.on_recovered(path.now);
        assert_eq!(path.ledbat.cwnd(), 2000);
        // Elsewhere it leads to the threshold.
        path.ledbat.stage = Stage::Steady(Time::MAX);
        path.ledbat.on_recovered(path.now);
        assert_eq!(path.ledbat.cwnd(), before / 2);
    }
}
