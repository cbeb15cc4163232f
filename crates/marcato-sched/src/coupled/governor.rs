//! State machine of coupled mode.

use marcato_units::{Bytes, Duration, Priority, PrioritySet, Rate, Time};

use super::meter::Meter;
use super::mode::{Counters, Mode, Transition};
use super::probe::Probe;
use super::rule::{Fast, Round, Rule, Step};
use super::train::Trains;

/// Packets that may always be in flight.
const FLOOR: u64 = 4;
/// Time after which the cap dips, to see the least round trip again.
const BASE_AGE: Duration = Duration::from_secs(10);
/// Round trips with a queue of others before a test.
const HOT: u32 = 4;
/// Round trips, and their time, without a queue before competing ends.
const CALM: (u32, Duration) = (20, Duration::from_secs(5));
/// Round trips without growth before startup ends.
const FLAT: u32 = 3;
/// Least time between tests, and the first and largest factor for it.
///
/// Each test leaves our part of the queue to others, which keep some of it. docs/results.md has what more and
/// fewer tests gave.
const TEST_EVERY: Duration = Duration::from_secs(1);
const BACKOFF_FROM: u32 = 4;
const BACKOFF: u32 = 32;
/// Time without losses after which others in the queue are coupled as well.
const LOSSLESS: Duration = Duration::from_secs(5);
/// Time in steady mode after which competing begins anew.
const FLAPPING: Duration = Duration::from_secs(20);

/// Configuration of a [`Governor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoupledConfig {
    /// Bytes of a full packet.
    pub mss: Bytes,
    /// Levels that are urgent.
    pub urgent: PrioritySet,
    /// Interval at which the engine is asked for samples; zero if there is one for each acknowledgement.
    pub poll: Duration,
    /// Packets that our own data may keep in the queue, at least one. More of them cost delay, and save goodput
    /// where the rate of the path varies.
    pub aim: u64,
}

impl CoupledConfig {
    /// Default of [`aim`](Self::aim).
    pub const AIM: u64 = 2;

    /// P0 and P1 are urgent, there is a sample for each acknowledgement, and two packets may stand in the queue.
    pub const fn new(mss: Bytes) -> Self {
        let urgent = PrioritySet::one(Priority::P0).with(Priority::P1);
        Self { mss, urgent, poll: Duration::ZERO, aim: Self::AIM }
    }

    /// Bytes that our own data may keep in the queue.
    fn alpha(&self, rate: Rate) -> Bytes {
        self.least(rate) + self.mss * self.aim.max(1) - self.mss * Self::AIM
    }

    /// Bytes in the queue at the default aim: less would cost goodput at a constant rate.
    fn least(&self, rate: Rate) -> Bytes {
        if self.poll.is_zero() {
            return self.mss * Self::AIM;
        }
        // The queue shrinks until the next sample by what leaves it meanwhile, and the round trips seen
        // are those of packets in the middle of that. At rates at which it is several packets,
        // acknowledgements of two packets are seen together as well. Never less than with a sample for
        // each acknowledgement: at 1 Mbit/s, a packet less costs 7 % of goodput.
        let between = rate.bytes_in(self.poll);
        let polled = self.mss + (between * 5 / 2).min(self.mss * 2) + between / 2;
        polled.max(self.mss * 2)
    }
}

/// Measurements of the engine at an acknowledgement, or when it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Bytes acknowledged since the connection began.
    pub delivered: Bytes,
    /// Bytes sent, and neither acknowledged nor lost.
    pub in_flight: Bytes,
    /// Round trip of a packet with data. One without is shorter by its time on the link.
    pub rtt: Option<Duration>,
    /// Set if a packet was lost since the last sample.
    pub lost: bool,
    /// Set if urgent data waits, here or in the engine.
    pub urgent: bool,
}

/// Bounds on what may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Bound for background data.
    pub background: Bytes,
    /// Bound for urgent data.
    pub urgent: Bytes,
}

/// Stage of the judgement of a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judging {
    /// More is in flight than the cap allows.
    Drain,
    /// Packets that were sent before come back, until so many bytes are delivered.
    Skip(Bytes),
    /// A round trip is measured, until so many bytes are delivered.
    Measure(Bytes),
    /// Background data is held back, to empty the pipe.
    Idle,
}

/// Governor of what is in flight. Times are those of the caller's clock.
#[derive(Clone, Copy, Debug)]
pub struct Governor<R = Fast> {
    config: CoupledConfig,
    rule: R,
    mode: Mode,
    since: Time,
    cap: Bytes,
    base: Duration,
    base_seen: Time,
    rtt: Duration,
    delivered: Bytes,
    meter: Meter,
    trains: Trains,
    probe: Probe,
    judging: Judging,
    /// Of the round that is measured: its least round trip, most in flight, and whether the cap bound.
    least: Option<Duration>,
    most: Bytes,
    bound: bool,
    lost: bool,
    /// Time of the last loss.
    lost_at: Option<Time>,
    /// Bytes in flight, and delivered, when urgent data came.
    urgent: Option<(Bytes, Bytes)>,
    /// Startup: rounds without growth, and rate and peak at the last growth.
    flat: u32,
    grown: Rate,
    peak: Rate,
    /// Steady: rounds with a queue of others; cap before a dip.
    hot: u32,
    dip: Option<Bytes>,
    /// Compete: rounds without a queue, and since when.
    calm: u32,
    calm_since: Time,
    tested: (Time, Rate),
    test_at: Time,
    backoff: u32,
    /// Time at which competing ended last.
    left: Option<Time>,
    /// Test and squeeze: mode and rate before.
    before: (Mode, Rate),
    counters: Counters,
}

const fn no_cap(cap: Bytes) -> bool {
    cap.get() == u64::MAX
}

impl Governor<Fast> {
    /// Governor with the default rule.
    pub fn new(config: CoupledConfig) -> Self {
        Self::with_rule(config, Fast::default())
    }
}

impl<R: Rule> Governor<R> {
    /// Governor with a rule of the caller's.
    pub fn with_rule(config: CoupledConfig, rule: R) -> Self {
        Self {
            config,
            rule,
            mode: Mode::Startup,
            since: Time::ZERO,
            cap: Bytes::new(u64::MAX),
            base: Duration::MAX,
            base_seen: Time::ZERO,
            rtt: Duration::ZERO,
            delivered: Bytes::ZERO,
            meter: Meter::new(),
            trains: Trains::default(),
            probe: Probe::default(),
            judging: Judging::Measure(Bytes::ZERO),
            least: None,
            most: Bytes::ZERO,
            bound: false,
            lost: false,
            lost_at: None,
            urgent: None,
            flat: 0,
            grown: Rate::ZERO,
            peak: Rate::ZERO,
            hot: 0,
            dip: None,
            calm: 0,
            calm_since: Time::ZERO,
            tested: (Time::ZERO, Rate::ZERO),
            test_at: Time::ZERO,
            backoff: 1,
            left: None,
            before: (Mode::Startup, Rate::ZERO),
            counters: Counters::default(),
        }
    }

    /// Mode of the governor.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Bound on what is in flight while only background data waits; `None` if there is no bound.
    pub const fn cap(&self) -> Option<Bytes> {
        if no_cap(self.cap) { None } else { Some(self.cap) }
    }

    /// Counts since the beginning.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Levels that are urgent.
    pub const fn urgent(&self) -> PrioritySet {
        self.config.urgent
    }

    /// Rate at which background data may be sent in startup; `None` before the bottleneck's rate is known, and in all
    /// other modes.
    ///
    /// A window that doubles leaves twice as fast as the bottleneck sends it on. Half of it then stands in the queue,
    /// although all of it fits the path. At the bottleneck's rate it does not, and the bottleneck is as busy. A
    /// sixteenth more finds what the estimate is short of.
    pub fn pace(&self) -> Option<Rate> {
        let peak = self.trains.peak().as_bps();
        (self.mode == Mode::Startup && peak > 0).then(|| Rate::from_bps(peak.saturating_add(peak / 16)))
    }

    /// Returns how much may be in flight. It changes with the next sample.
    pub fn allowance(&self) -> Allowance {
        let mss = self.config.mss;
        if no_cap(self.cap) {
            return Allowance { background: self.cap, urgent: self.cap };
        }
        let (in_flight, before) = self.urgent.unwrap_or((Bytes::ZERO, self.delivered));
        // No burst: one packet more for each two that are acknowledged, after the first window.
        let later = (self.delivered - before - in_flight) / 2;
        // A packet is enough while the pipe empties: with nothing in flight, no sample would come.
        let background = if self.probe.holds() { mss } else { self.cap };
        Allowance { background, urgent: self.cap.max(in_flight) + mss * 2 + later }
    }

    /// Returns whether a chunk may join the bytes outstanding, which are those in flight and those that the
    /// engine has not sent yet. Takes note if it may not: the cap is then the bound of this round trip, and
    /// not the engine.
    pub fn admits(&mut self, urgent: bool, outstanding: Bytes, chunk: Bytes) -> bool {
        let allowance = self.allowance();
        let bound = if urgent { allowance.urgent } else { allowance.background };
        // A chunk may be larger than any cap: with nothing outstanding, no acknowledgement would come.
        let admitted = outstanding.is_zero() || outstanding + chunk <= bound;
        if !admitted {
            self.held();
        }
        admitted
    }

    /// Takes note that the cap held data back.
    pub const fn held(&mut self) {
        self.bound = true;
    }

    /// Sets the bytes of a full packet, which path MTU discovery (RFC 8899) has changed.
    pub const fn set_mss(&mut self, mss: Bytes) {
        self.config.mss = mss;
    }

    /// Takes note of measurements while the engine does not apply the cap yet, and judges nothing.
    ///
    /// Once the engine's own queue stands, the least round trip is not to be seen any more. So it has
    /// to be measured before.
    pub fn observe(&mut self, now: Time, sample: &Sample) {
        self.delivered = sample.delivered;
        self.since = now;
        if let Some(rtt) = sample.rtt {
            self.rtt = rtt;
            if rtt <= self.base {
                (self.base, self.base_seen) = (rtt, now);
            }
            self.meter.delivered(now, sample.delivered, rtt, self.config.mss);
        }
    }

    /// Takes note of an acknowledgement, or of what the engine says when it is asked. Returns the change
    /// of the mode, if there is one.
    pub fn sample(&mut self, now: Time, sample: &Sample) -> Option<Transition> {
        let (mode, mss) = (self.mode, self.config.mss);
        let newly = sample.delivered - self.delivered;
        self.delivered = sample.delivered;
        self.lost |= sample.lost;
        self.lost_at = if sample.lost { Some(now) } else { self.lost_at };
        self.most = self.most.max(sample.in_flight);
        self.urgent = sample.urgent.then(|| self.urgent.unwrap_or((sample.in_flight, sample.delivered)));
        if let Some(rtt) = sample.rtt {
            self.rtt = rtt;
            if rtt <= self.base {
                (self.base, self.base_seen) = (rtt, now);
            }
            self.meter.delivered(now, sample.delivered, rtt, mss);
            if mode == Mode::Startup {
                self.trains.acknowledged(now, sample.delivered, rtt, mss, self.config.poll.is_zero());
            }
        }
        if self.base == Duration::MAX {
            return None;
        }
        self.probe(now, sample);
        if mode == Mode::Startup {
            self.follow_trains(now);
        } else if mode == Mode::Compete && !no_cap(self.cap) {
            // The window comes back at the pace of acknowledgements.
            self.cap += newly;
        }
        self.judge(now, sample);
        let time = &mut self.counters.time[mode as usize];
        *time = time.saturating_add(now.since(self.since));
        self.since = now;
        (self.mode != mode).then(|| {
            self.counters.transitions += 1;
            Transition { at: now, from: mode, to: self.mode }
        })
    }

    /// Empties the pipe when a controller like BBR would give up its window to do so.
    fn probe(&mut self, now: Time, sample: &Sample) {
        let mss = self.config.mss;
        let free = !sample.lost && self.cap > mss * FLOOR * 2;
        self.probe.sample(now, sample.in_flight, sample.rtt.unwrap_or(self.rtt), mss, free);
        if self.mode == Mode::Steady && self.dip.is_none() && self.probe.begin(now, self.base) {
            self.judging = Judging::Idle;
        } else if self.probe.end(now, sample.in_flight, self.base) {
            self.judging = Judging::Skip(sample.delivered + sample.in_flight);
        }
    }

    fn judge(&mut self, now: Time, sample: &Sample) {
        let until = sample.delivered + sample.in_flight;
        match self.judging {
            Judging::Drain if sample.in_flight <= self.cap => self.judging = Judging::Skip(until),
            Judging::Skip(end) if sample.delivered >= end => self.begin_round(until),
            Judging::Measure(end) => {
                self.least = match (self.least, sample.rtt) {
                    (Some(least), Some(rtt)) => Some(least.min(rtt)),
                    (least, rtt) => least.or(rtt),
                };
                let Some(least) = self.least.filter(|_| sample.delivered >= end) else { return };
                self.counters.rounds += 1;
                let rate = self.meter.rate(self.rtt, self.config.mss);
                let queueing = least.saturating_sub(self.base);
                let Self { cap, bound, most, base, .. } = *self;
                let queued = rate.bytes_in(queueing);
                let round = Round { cap, bound, most, rate, base, queueing, queued };
                // A cut in here starts its own judgement.
                self.begin_round(until);
                self.round_ended(now, &round, least);
                self.lost = false;
            }
            Judging::Drain | Judging::Skip(_) | Judging::Idle => {}
        }
    }

    const fn begin_round(&mut self, until: Bytes) {
        self.judging = Judging::Measure(until);
        (self.least, self.most, self.bound) = (None, Bytes::ZERO, false);
    }

    /// Judges nothing until what was sent before has come back.
    const fn skip(&mut self) {
        if let Judging::Measure(until) = self.judging {
            self.judging = Judging::Skip(until);
        }
    }

    /// Sets a smaller cap. Nothing is judged until its effect can be seen.
    fn cut(&mut self, cap: Bytes) {
        self.cap = cap.max(self.config.mss * FLOOR);
        self.judging = Judging::Drain;
        self.counters.cuts += 1;
    }

    /// Queueing delay above which the queue is not our own.
    fn threshold(&self) -> Duration {
        let mss = self.config.mss;
        let longest = self.meter.longest();
        let own = longest.transmission_time((self.config.alpha(longest) + mss * 3 / 2) * 3 / 2);
        own.max(self.base / 10)
    }

    /// Queueing delay in a test above which the queue is that of others.
    fn left_over(&self, now: Time, rate: Rate) -> Duration {
        let mss = self.config.mss;
        let few = if self.lost_at.is_some_and(|at| now.since(at) < LOSSLESS) {
            rate.transmission_time(mss * 2).min(self.base / 5 + Duration::from_millis(2))
        } else {
            // Coupled flows beside ours keep as many packets each, and lose none: flows that fill the queue do.
            rate.transmission_time(self.config.alpha(rate) + mss * 3 / 2).min(self.base / 3)
        };
        (self.threshold() / 2).max(few)
    }

    fn round_ended(&mut self, now: Time, round: &Round, least: Duration) {
        match self.mode {
            Mode::Startup => self.startup_round(round),
            Mode::Steady => self.steady_round(now, round, least),
            Mode::Compete => self.compete_round(now, round),
            Mode::Squeeze => {
                // Less in flight, and nearly the same rate: the queue was ours.
                if u128::from(round.rate.as_bps()) * 1000 >= u128::from(self.before.1.as_bps()) * 925 {
                    self.test(round);
                } else {
                    self.compete(now, self.before.1, self.backoff * 4);
                }
            }
            Mode::Test => {
                if round.queueing > self.left_over(now, round.rate) {
                    let from_compete = self.before.0 == Mode::Compete;
                    let backoff = if from_compete { self.backoff * 4 } else { self.again(now) };
                    // The test made the rate smaller: the one before counts.
                    self.compete(now, self.before.1, backoff);
                } else {
                    if self.before.0 == Mode::Compete {
                        self.left = Some(now);
                    } else {
                        self.meter.forget(round.rate);
                    }
                    self.steady();
                }
            }
        }
    }

    fn follow_trains(&mut self, now: Time) {
        let peak = self.trains.peak();
        let alpha = self.config.alpha(peak);
        if peak > Rate::ZERO {
            self.cap = peak.bytes_in(self.base) + alpha;
            self.cap = self.cap.max(self.config.mss * FLOOR);
        }
        if self.lost {
            self.lost = false;
            let rate = self.meter.rate(self.rtt, self.config.mss).max(peak);
            if peak == Rate::ZERO {
                // Nothing of ours has stood in a queue yet: others have filled it. What they keep there
                // is part of each round trip seen so far, so that Steady mode would not notice them.
                self.compete(now, rate, BACKOFF_FROM);
                return;
            }
            self.cut(rate.bytes_in(self.base) + alpha);
            self.steady();
        }
    }

    fn startup_round(&mut self, round: &Round) {
        let (mss, base) = (self.config.mss, self.base);
        let alpha = self.config.alpha(round.rate);
        let tolerated = (base / 8).max(Duration::from_millis(2)).max(round.rate.transmission_time(alpha));
        let grew = |now: Rate, before: Rate| u128::from(now.as_bps()) * 4 >= u128::from(before.as_bps()) * 5;
        let peak = self.trains.peak();
        if round.queueing > tolerated {
            self.cut(round.rate.bytes_in(base) + alpha);
            self.steady();
        } else if round.bound && !grew(peak, self.peak) {
            self.steady();
        } else if grew(round.rate, self.grown) {
            (self.flat, self.grown) = (0, round.rate);
        } else {
            self.flat += 1;
            if self.flat >= FLAT {
                self.cap = round.rate.bytes_in(base).max(round.most * 11 / 10) + alpha;
                self.cap = self.cap.max(mss * FLOOR);
                self.steady();
            }
        }
        self.peak = peak;
    }

    fn steady(&mut self) {
        self.mode = Mode::Steady;
        self.rule.restart();
        (self.hot, self.dip) = (0, None);
    }

    fn steady_round(&mut self, now: Time, round: &Round, least: Duration) {
        let alpha = self.config.alpha(round.rate);
        if let Some(cap) = self.dip.take() {
            // The least round trip may have become longer: a route has changed.
            (self.base, self.base_seen) = (least, now);
            self.cap = cap;
            self.skip();
            return;
        }
        let (threshold, was_hot) = (self.threshold(), self.hot > 0);
        self.hot = if round.queueing > threshold { self.hot.saturating_add(1) } else { 0 };
        let squeezed = round.rate.as_bps() < self.meter.longest().as_bps() / 2;
        if self.lost && was_hot && squeezed && round.queueing > threshold / 2 {
            self.compete(now, round.rate, self.again(now));
            return;
        }
        if self.hot >= HOT && squeezed {
            self.test(round);
            return;
        }
        if now.since(self.base_seen) > BASE_AGE {
            self.dip = Some(self.cap);
            // Our own queue, and what its estimate may be wrong by.
            self.cut(self.cap - alpha - self.config.least(round.rate) - self.config.mss);
            return;
        }
        match self.rule.step(round, self.config.mss, alpha) {
            Step::Keep => {}
            Step::Grow(cap) => self.cap = cap,
            Step::Cut(cap) => self.cut(cap),
        }
    }

    /// Factor of the time until the next test, when competing begins.
    fn again(&self, now: Time) -> u32 {
        // Soon after it ended: the test misled.
        if self.left.is_some_and(|left| now.since(left) < FLAPPING) { self.backoff * 4 } else { BACKOFF_FROM }
    }

    /// Begins to compete, at this rate.
    fn compete(&mut self, now: Time, rate: Rate, backoff: u32) {
        self.backoff = backoff.clamp(1, BACKOFF);
        self.mode = Mode::Compete;
        (self.calm, self.tested) = (0, (now, rate));
        let wait = self.rtt.saturating_mul(10).saturating_mul(self.backoff);
        self.test_at = now + wait.max(TEST_EVERY);
    }

    fn compete_round(&mut self, now: Time, round: &Round) {
        if !round.bound {
            self.cap = Bytes::new(u64::MAX);
        }
        let threshold = self.threshold();
        if round.queueing <= threshold {
            if self.calm == 0 {
                self.calm_since = now;
            }
            self.calm += 1;
            if self.calm >= CALM.0 && now.since(self.calm_since) >= CALM.1 {
                self.cap = round.rate.bytes_in(self.base).max(round.most) + self.config.alpha(round.rate);
                self.left = Some(now);
                self.steady();
            }
            return;
        }
        self.calm = 0;
        let (tested, rate) = self.tested;
        let faster = round.rate.as_bps() > rate.as_bps().saturating_add(rate.as_bps() / 2)
            && now.since(tested) >= self.rtt.saturating_mul(10).saturating_mul((self.backoff / 4).max(1));
        if (now < self.test_at && !faster) || round.queueing < threshold.saturating_mul(2) {
            return;
        }
        if round.queueing <= self.base.saturating_mul(4) {
            self.test(round);
        } else {
            (self.before, self.mode) = ((Mode::Compete, round.rate), Mode::Squeeze);
            self.cut(round.most * 3 / 4);
        }
    }

    fn test(&mut self, round: &Round) {
        let from = if self.mode == Mode::Steady { Mode::Steady } else { Mode::Compete };
        (self.before, self.mode) = ((from, round.rate), Mode::Test);
        self.cut(round.rate.bytes_in(self.base));
    }
}

#[cfg(test)]
mod rounds;
#[cfg(test)]
mod tests;
