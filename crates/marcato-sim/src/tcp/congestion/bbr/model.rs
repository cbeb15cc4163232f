//! BBR held against a plain model of it, over long random connections.
//!
//! The model follows the published description and Linux's order of steps. It keeps all measurements instead of filters,
//! and works everything out anew for each acknowledgement.

use super::*;
use crate::tcp::rate::RateSample;
use marcato_units::Seed;

const MSS: u64 = 1000;
const INITIAL: u64 = 10 * MSS;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn delivered_in(bytes_per_second: u64, span: Duration) -> u64 {
    Rate::from_bps(bytes_per_second * 8).bytes_in(span).get()
}

fn per_second(bytes: u64, span: Duration) -> u64 {
    Rate::from_bytes_over(Bytes::new(bytes), span).as_bytes_per_sec()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Startup,
    Drain,
    /// Place in the cycle of eight gains.
    Cruise(usize),
    Probe,
}

/// Interval between losses in which a policer's rate is measured.
#[derive(Clone, Copy, Debug)]
struct Interval {
    at: Time,
    delivered: u64,
    lost: u64,
    rounds: u64,
}

struct Model {
    stream: Stream,
    phase: Phase,
    window: u64,
    kept_window: u64,
    threshold: u64,
    pace: u64,
    /// Gain of the pace in 256ths.
    gain: u64,
    /// Maximum of the measured rates; the filter has tests of its own.
    rates: MaxFilter,
    round: u64,
    round_begins: bool,
    round_until: u64,
    /// Rate at which startup grew last, and the rounds without growth since.
    plateau: (u64, u32),
    full: bool,
    least: Option<(Duration, Time)>,
    probe_until: Option<Time>,
    probe_saw_a_round: bool,
    phase_at: Time,
    after_idle: bool,
    state: LossState,
    conserving: bool,
    measured: bool,
    delivered: u64,
    delivered_at: Time,
    lost: u64,
    sampling: Option<Interval>,
    interval_rate: u64,
    policed: Option<(u64, u64)>,
    /// Aggregation: the excess of each group of five rounds, two of them kept, and the epoch.
    excess: [u64; 2],
    group_rounds: u32,
    epoch: (Time, u64),
}

fn repairs(state: LossState) -> bool {
    state == LossState::Recovery || state == LossState::Loss
}

impl Model {
    fn new(stream: Stream, rtt: Duration) -> Self {
        let mut model = Self {
            stream,
            phase: Phase::Startup,
            window: INITIAL,
            kept_window: 0,
            threshold: u64::MAX,
            pace: 0,
            gain: 739,
            rates: MaxFilter::default(),
            round: 0,
            round_begins: false,
            round_until: 0,
            plateau: (0, 0),
            full: false,
            least: Some((rtt, Time::ZERO)),
            probe_until: None,
            probe_saw_a_round: false,
            phase_at: Time::ZERO,
            after_idle: false,
            state: LossState::Open,
            conserving: false,
            measured: true,
            delivered: 0,
            delivered_at: Time::ZERO,
            lost: 0,
            sampling: None,
            interval_rate: 0,
            policed: None,
            excess: [0; 2],
            group_rounds: 0,
            epoch: (Time::ZERO, 0),
        };
        model.pace = paced(per_second(INITIAL, rtt), 739);
        model
    }

    fn rate(&self) -> u64 {
        self.policed.map_or(self.rates.max(), |(rate, _)| rate)
    }

    /// Segments of a millisecond, from one or two up to 127.
    fn batch(&self) -> u64 {
        let least = if self.pace * 8 < 1_200_000 { 1 } else { 2 };
        ((self.pace / 1024).min(65_215) / MSS).clamp(least, 127)
    }

    /// `gain` products of rate and round trip in whole segments, and room for batches.
    fn target(&self, rate: u64, gain: u64, more: u64) -> u64 {
        let product = self
            .least
            .map_or(INITIAL, |(least, _)| (delivered_in(rate, least) * gain / 256).div_ceil(MSS) * MSS);
        let even = (product + more + 3 * self.batch() * MSS).div_ceil(2 * MSS) * 2 * MSS;
        even + if self.phase == Phase::Cruise(0) { 2 * MSS } else { 0 }
    }

    fn at_departure(&self, ack: &AckEvent, in_flight: u64) -> u64 {
        let batch = if self.gain > 256 { self.batch() * MSS } else { 0 };
        (in_flight + batch).saturating_sub(delivered_in(self.rate(), ack.next_send.since(ack.now)))
    }

    fn cruise(&mut self) {
        // A cycle begins anywhere but in the slow phase.
        let back = usize::try_from(self.stream.below(7)).unwrap();
        self.phase = Phase::Cruise((8 - back) % 8);
        self.phase_at = self.delivered_at;
    }

    fn begin_interval(&self) -> Interval {
        Interval { at: self.delivered_at, delivered: self.delivered, lost: self.lost, rounds: 0 }
    }

    fn forget_policer(&mut self) {
        (self.sampling, self.interval_rate, self.policed) = (None, 0, None);
    }

    fn sample_policer(&mut self, losses: bool, app_limited: bool) {
        let round = u64::from(self.round_begins);
        if let Some((_, rounds)) = &mut self.policed {
            if let Phase::Cruise(_) = self.phase {
                *rounds += round;
                if *rounds >= 48 {
                    self.forget_policer();
                    self.cruise();
                }
            }
            return;
        }
        if self.sampling.is_none() && losses {
            self.sampling = Some(self.begin_interval());
        }
        let Some(interval) = &mut self.sampling else { return };
        if app_limited {
            return self.forget_policer();
        }
        interval.rounds += round;
        let interval = *interval;
        if interval.rounds > 16 {
            return self.forget_policer();
        }
        let (lost, delivered) = (self.lost - interval.lost, self.delivered - interval.delivered);
        let span = self.delivered_at.since(interval.at);
        let much = delivered > 0 && lost * 256 >= 50 * delivered;
        if interval.rounds < 4 || !losses || !much || span < ms(1) {
            return;
        }
        let (now, before) = (per_second(delivered, span), self.interval_rate);
        if before > 0 && (now.abs_diff(before) * 8 <= before || now.abs_diff(before) <= 500) {
            self.policed = Some(((now + before) / 2, 0));
            self.gain = 256;
            return;
        }
        self.interval_rate = now;
        self.sampling = Some(self.begin_interval());
    }

    fn measure(&mut self, ack: &AckEvent) {
        self.round_begins = false;
        let Some(interval) = ack.rate.interval.filter(|_| ack.rate.delivered > 0) else { return };
        if ack.rate.prior_delivered >= self.round_until {
            self.round_until = self.delivered;
            self.round += 1;
            self.round_begins = true;
            self.conserving = false;
        }
        self.sample_policer(ack.newly_lost > 0, ack.rate.is_app_limited);
        let rate = per_second(ack.rate.delivered, interval);
        if !ack.rate.is_app_limited || rate >= self.rates.max() {
            self.rates.update(10, self.round, rate);
        }
    }

    fn aggregate(&mut self, ack: &AckEvent) {
        if ack.delivered == 0 || ack.rate.interval.is_none() {
            return;
        }
        if self.round_begins {
            self.group_rounds += 1;
            if self.group_rounds == 5 {
                self.group_rounds = 0;
                self.excess = [0, self.excess[0]];
            }
        }
        let (since, acked) = self.epoch;
        let expected = delivered_in(self.rate(), self.delivered_at.since(since));
        let (expected, acked) = if acked <= expected || acked + ack.delivered >= (1 << 20) * MSS {
            self.epoch.0 = self.delivered_at;
            (0, ack.delivered)
        } else {
            (expected, acked + ack.delivered)
        };
        self.epoch.1 = acked;
        let excess = acked.saturating_sub(expected).min(self.window);
        self.excess[0] = self.excess[0].max(excess);
    }

    fn cycle(&mut self, ack: &AckEvent) {
        let Phase::Cruise(place) = self.phase else { return };
        let long = self.least.is_some_and(|(least, _)| self.delivered_at.since(self.phase_at) > least);
        let in_flight = self.at_departure(ack, ack.prior_in_flight);
        let rate = self.rates.max();
        let over = match self.gain {
            256 => long,
            gain if gain > 256 => long && (ack.newly_lost > 0 || in_flight >= self.target(rate, gain, 0)),
            _ => long || in_flight <= self.target(rate, 256, 0),
        };
        if over {
            self.phase = Phase::Cruise((place + 1) % 8);
            self.phase_at = self.delivered_at;
        }
    }

    fn judge_the_pipe(&mut self, ack: &AckEvent) {
        let rate = self.rates.max();
        if !self.full && self.round_begins && !ack.rate.is_app_limited {
            if rate >= self.plateau.0 * 5 / 4 {
                self.plateau = (rate, 0);
            } else {
                self.plateau.1 += 1;
                self.full = self.plateau.1 >= 3;
            }
        }
        if self.phase == Phase::Startup && self.full {
            self.phase = Phase::Drain;
            self.threshold = self.target(rate, 256, 0);
        }
        if self.phase == Phase::Drain && self.at_departure(ack, ack.in_flight) <= self.target(rate, 256, 0) {
            self.cruise();
        }
    }

    fn keep_window(&mut self) {
        let least = if repairs(self.state) || self.phase == Phase::Probe { self.kept_window } else { 0 };
        self.kept_window = self.window.max(least);
    }

    fn end_probe(&mut self, now: Time) {
        if self.probe_until.is_some_and(|until| now > until) {
            if let Some((_, at)) = &mut self.least {
                *at = now;
            }
            self.window = self.window.max(self.kept_window);
            if self.full { self.cruise() } else { self.phase = Phase::Startup }
        }
    }

    fn probe(&mut self, ack: &AckEvent) {
        let expired = self.least.is_none_or(|(_, at)| ack.now > at + ms(10_000));
        let runt = ack.newly_acked < MSS
            && [ack.prior_in_flight, ack.rate.delivered] == [ack.delivered; 2]
            && ack.delivered <= MSS;
        let smaller = |rtt| self.least.is_none_or(|(least, _)| rtt < least);
        if let Some(rtt) = ack.rtt.filter(|rtt| smaller(*rtt) || expired && !runt) {
            self.least = Some((rtt, ack.now));
        }
        if expired && !self.after_idle && self.phase != Phase::Probe {
            self.keep_window_before_probe();
            self.probe_until = None;
        }
        if self.phase == Phase::Probe {
            if self.probe_until.is_none() {
                if ack.in_flight <= 4 * MSS {
                    self.probe_until = Some(ack.now + ms(200));
                    self.probe_saw_a_round = false;
                    self.round_until = self.delivered;
                }
            } else {
                self.probe_saw_a_round |= self.round_begins;
                if self.probe_saw_a_round {
                    self.end_probe(ack.now);
                }
            }
        }
        self.after_idle &= ack.rate.delivered == 0;
    }

    /// The mode changes first, as in Linux: the window kept is then at least the one kept before.
    fn keep_window_before_probe(&mut self) {
        self.phase = Phase::Probe;
        self.keep_window();
    }

    fn set_window(&mut self, ack: &AckEvent) {
        if ack.delivered > 0 {
            if ack.newly_lost > 0 {
                self.window = self.window.saturating_sub(ack.newly_lost).max(MSS);
            }
            let (before, now) = (self.state, ack.state);
            self.state = now;
            if now == LossState::Recovery && before != LossState::Recovery {
                self.conserving = true;
                self.round_until = self.delivered;
                self.window = ack.in_flight + ack.delivered;
            } else if repairs(before) && !repairs(now) {
                self.conserving = false;
                self.window = self.window.max(self.kept_window);
            }
            if self.conserving {
                self.window = self.window.max(ack.in_flight + ack.delivered);
            } else {
                let gain = match self.phase {
                    Phase::Startup | Phase::Drain => 739,
                    Phase::Cruise(_) => 512,
                    Phase::Probe => 256,
                };
                let most = delivered_in(self.rate(), ms(100));
                let excess = if self.full { self.excess[0].max(self.excess[1]).min(most) } else { 0 };
                let target = self.target(self.rate(), gain, excess);
                if self.full {
                    self.window = (self.window + ack.delivered).min(target);
                } else if self.window < target || self.delivered < INITIAL {
                    self.window += ack.delivered;
                }
                self.window = self.window.max(4 * MSS);
            }
        }
        if self.phase == Phase::Probe {
            self.window = self.window.min(4 * MSS);
        }
    }

    fn set_pace(&mut self, srtt: Option<Duration>, gain: u64) {
        if let Some(srtt) = srtt.filter(|_| !self.measured) {
            self.measured = true;
            self.pace = paced(per_second(self.window, srtt), 739);
        }
        let pace = paced(self.rate(), gain);
        if self.full || pace > self.pace {
            self.pace = pace;
        }
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        (self.delivered, self.lost) = (ack.total_delivered, ack.total_lost);
        if ack.delivered > 0 {
            self.delivered_at = ack.now;
        }
        self.measure(ack);
        self.aggregate(ack);
        self.cycle(ack);
        self.judge_the_pipe(ack);
        self.probe(ack);
        self.gain = match self.phase {
            Phase::Startup => 739,
            Phase::Drain => 88,
            Phase::Cruise(0) if self.policed.is_none() => 320,
            Phase::Cruise(1) if self.policed.is_none() => 192,
            Phase::Cruise(_) | Phase::Probe => 256,
        };
        self.set_pace(ack.srtt, self.gain);
        self.set_window(ack);
    }

    fn on_rto(&mut self) {
        self.keep_window();
        self.state = LossState::Loss;
        self.plateau.0 = 0;
        self.round_begins = true;
        self.sample_policer(true, false);
        self.window = MSS;
    }

    fn on_idle_restart(&mut self, now: Time) {
        self.after_idle = true;
        self.epoch = (now, 0);
        match self.phase {
            Phase::Cruise(_) => self.set_pace(None, 256),
            Phase::Probe => self.end_probe(now),
            Phase::Startup | Phase::Drain => {}
        }
    }
}

fn paced(rate: u64, gain: u64) -> u64 {
    rate * gain * 99 / 25_600
}

/// Connection that lives through stretches of different kinds, acknowledgement by acknowledgement.
struct Walk {
    bbr: Bbr,
    model: Model,
    random: Stream,
    now: Time,
    delivered: u64,
    lost: u64,
    in_flight: u64,
    state: LossState,
    /// Totals delivered when the last round trips began, for samples.
    marks: Vec<(Time, u64)>,
    seen: [u32; 8],
}

impl Walk {
    fn new(seed: u64) -> Self {
        let rtt = ms(40);
        let stream = || Seed::new(seed).stream("bbr");
        let mut bbr = Bbr::new(MSS, INITIAL, stream());
        bbr.on_established(Time::ZERO, Some(rtt));
        Self {
            bbr,
            model: Model::new(stream(), rtt),
            random: Seed::new(seed).stream("walk"),
            now: Time::ZERO,
            delivered: 0,
            lost: 0,
            in_flight: INITIAL,
            state: LossState::Open,
            marks: vec![(Time::ZERO, 0)],
            seen: [0; 8],
        }
    }

    /// One acknowledgement, `span` after the last, of `segments`, after which `lost` are known to be lost.
    fn ack(&mut self, span: Duration, segments: u64, lost: u64, app_limited: bool) {
        self.now += span;
        let newly = segments * MSS;
        let prior_in_flight = self.in_flight.max(newly + lost * MSS);
        self.delivered += newly;
        self.lost += lost * MSS;
        self.in_flight = prior_in_flight - newly - lost * MSS;
        // The sample is that of a segment that left about a round trip ago.
        let back = self.random.below(3) + 1;
        let mark = self.marks.len().saturating_sub(usize::try_from(back).unwrap() + 3);
        let (sent, prior) = self.marks[mark];
        let interval = (self.now > sent).then(|| self.now.since(sent));
        let runt = self.random.chance(0.05);
        let ack = AckEvent {
            now: self.now,
            newly_acked: if runt { newly / 2 } else { newly },
            delivered: newly,
            newly_lost: lost * MSS,
            prior_in_flight,
            in_flight: self.in_flight,
            rtt: self.random.chance(0.9).then(|| ms(40) + ms(self.random.below(20))),
            srtt: Some(ms(45)),
            rate: RateSample {
                prior_delivered: prior,
                delivered: if newly > 0 { self.delivered - prior } else { 0 },
                interval,
                is_app_limited: app_limited,
            },
            total_delivered: self.delivered,
            total_lost: self.lost,
            state: self.state,
            next_send: self.now + ms(self.random.below(4)),
            ..AckEvent::of(newly, prior_in_flight, self.state)
        };
        self.bbr.on_ack(&ack);
        self.model.on_ack(&ack);
        self.marks.push((self.now, self.delivered));
        self.check("an acknowledgement");
        let window = self.bbr.cwnd();
        // The window is filled, now and then not wholly.
        let share = if self.random.chance(0.2) { self.random.below(4) + 1 } else { 4 };
        self.in_flight = self.in_flight.max(window / MSS * MSS * share / 4);
    }

    fn check(&mut self, what: &str) {
        let (bbr, model) = (&self.bbr, &self.model);
        assert_eq!(
            (bbr.cwnd(), bbr.ssthresh(), bbr.pacing_rate().unwrap().as_bytes_per_sec(), bbr.limits_itself()),
            (model.window, model.threshold, model.pace, model.phase == Phase::Probe),
            "after {what} at {:?}: {:?} {:?}",
            self.now,
            bbr.mode,
            model.phase
        );
        let seen = match model.phase {
            Phase::Startup => 0,
            Phase::Drain => 1,
            Phase::Cruise(0) => 2,
            Phase::Cruise(1) => 3,
            Phase::Cruise(_) => 4,
            Phase::Probe => 5,
        };
        self.seen[seen] += 1;
        self.seen[6] += u32::from(model.policed.is_some());
        self.seen[7] += u32::from(model.conserving);
    }

    fn stretch(&mut self) {
        let kind = self.random.below(8);
        let pace = self.random.below(6) + 1;
        let span = ms(self.random.below(12) + 3);
        for step in 0..self.random.below(150) + 20 {
            let (mostly, seldom) = (self.random_bool(0.7), self.random_bool(0.1));
            match kind {
                // A steady path, without and with a policer that drops a quarter of each tenth acknowledgement on.
                0 | 1 => self.ack(span, pace, 0, false),
                2 | 3 => self.ack(span, pace, u64::from(step % 3 == 0) * (pace / 2 + 1), false),
                // An application with little to send.
                4 => self.ack(span, pace.min(2), 0, mostly),
                // Aggregation: nothing for long, then much at once.
                5 if step % 10 > 0 => self.ack(ms(0), 0, 0, false),
                5 => self.ack(ms(30), pace * 4, 0, false),
                _ => {
                    let (span, segments) = (ms(self.random.below(60)), self.random.below(5));
                    let lost = if self.random_bool(0.1) { self.random.below(3) } else { 0 };
                    self.ack(span, segments, lost, seldom);
                    self.disturb();
                }
            }
        }
    }

    fn random_bool(&mut self, chance: f64) -> bool {
        self.random.chance(chance)
    }

    /// A change of the state of recovery, a timeout, or a pause.
    fn disturb(&mut self) {
        match self.random.below(40) {
            0 if self.state == LossState::Open => {
                self.bbr.on_congestion(self.now, self.in_flight, Signal::Loss);
                self.model.keep_window();
                self.state = LossState::Recovery;
            }
            1 if self.state == LossState::Open => {
                self.bbr.on_congestion(self.now, self.in_flight, Signal::Ecn);
                self.model.keep_window();
                self.state = LossState::Reduction;
            }
            2 => {
                self.bbr.on_rto(self.now, self.in_flight, true);
                self.model.on_rto();
                self.state = LossState::Loss;
                self.check("a timeout");
            }
            3 => {
                self.now += ms(self.random.below(8000));
                let app_limited = self.random_bool(0.8);
                self.bbr.on_idle_restart(self.now, app_limited, true);
                if app_limited {
                    self.model.on_idle_restart(self.now);
                }
                self.in_flight = 0;
                self.check("a pause");
            }
            4 if self.state != LossState::Open => {
                self.bbr.on_spurious(self.now);
                self.model.plateau = (0, 0);
                self.state = LossState::Open;
            }
            5..12 if self.state != LossState::Open => {
                self.bbr.on_recovered(self.now);
                self.state = LossState::Open;
            }
            _ => {}
        }
    }
}

#[test]
fn bbr_does_what_a_plain_model_of_it_does() {
    let mut seen = [0; 8];
    for seed in 0..60 {
        let mut walk = Walk::new(seed);
        for _ in 0..25 {
            walk.stretch();
        }
        for (sum, count) in seen.iter_mut().zip(walk.seen) {
            *sum += count;
        }
    }
    // Each phase, a policer's rate, and the conservation of packets.
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
}
