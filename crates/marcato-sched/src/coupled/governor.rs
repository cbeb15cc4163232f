//! State machine of coupled mode.

use marcato_units::{Bytes, Duration, PrioritySet, Rate, Time};

use super::config::{CoupledConfig, FLOOR};
use super::demand::{Allowance, Allowed, Demand};
use super::lift_clock::LiftClock;
use super::mode::{Counters, Mode, Transition};
use super::path::Path;
use super::probe::Probe;
use super::round::{CapChange, Round};
use super::sample::Sample;
use super::startup::Startup;
use super::state::{Context, State};
use super::test_clock::TestClock;

/// Stage of the judgement of a round trip.
#[derive(Clone, Copy, Debug)]
enum Judging {
    /// More is in flight than the cap allows.
    Drain,
    /// The cap grows by half of what is delivered, up to a target.
    Raise { target: Bytes },
    /// Packets that were sent before come back, until so many bytes are delivered.
    Skip { until: Bytes },
    /// A round trip is measured, until so many bytes are delivered.
    Measure { until: Bytes, seen: Seen },
    /// Background data is held back, to empty the pipe.
    Idle,
}

/// Part of a round trip that has been seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Least round trip.
    least: Option<Duration>,
    /// Most bytes in flight.
    most: Bytes,
    /// Set if the cap held background data back.
    bound: bool,
    /// Set if urgent data waited or passed the cap.
    urgent: bool,
    /// Set if everything sent had arrived at some time.
    dry: bool,
    /// Beginning, and the bytes delivered until then.
    begin: (Time, Bytes),
    /// Sum of the bytes in flight at each sample, and the number of samples.
    flight: u64,
    samples: u64,
}

impl Judging {
    /// Measures a round trip from its beginning.
    fn measure(now: Time, delivered: Bytes, until: Bytes) -> Self {
        Self::Measure { until, seen: Seen { begin: (now, delivered), ..Seen::default() } }
    }
}

/// Bytes in flight, and delivered, when urgent data came.
#[derive(Clone, Copy, Debug)]
struct Burst {
    in_flight: Bytes,
    delivered: Bytes,
}

/// Governor of what is in flight. Times are those of the caller's clock.
#[derive(Clone, Copy, Debug)]
pub struct Governor {
    config: CoupledConfig,
    path: Path,
    state: State,
    cap: Option<Bytes>,
    judging: Judging,
    tests: TestClock,
    lifts: LiftClock,
    probe: Probe,
    urgent: Option<Burst>,
    counters: Counters,
}

impl Governor {
    /// Governor of a connection that has sent nothing yet.
    pub fn new(config: CoupledConfig) -> Self {
        Self {
            config,
            path: Path::new(),
            state: State::Startup(Startup::default()),
            cap: None,
            judging: Judging::measure(Time::ZERO, Bytes::ZERO, Bytes::ZERO),
            tests: TestClock::new(),
            lifts: LiftClock::new(),
            probe: Probe::default(),
            urgent: None,
            counters: Counters::default(),
        }
    }

    /// Mode of the governor.
    pub const fn mode(&self) -> Mode {
        self.state.mode()
    }

    /// Bound on what is in flight while only background data waits; `None` if there is no bound.
    pub const fn cap(&self) -> Option<Bytes> {
        self.cap
    }

    /// Least round trip; `None` before the first.
    pub fn base(&self) -> Option<Duration> {
        self.path.base()
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
    pub fn pace(&self) -> Option<Rate> {
        let State::Startup(startup) = &self.state else { return None };
        startup.pace()
    }

    /// Returns how much may be outstanding. It changes with the next sample.
    pub fn allowance(&self) -> Allowance {
        let mss = self.config.mss;
        let Some(cap) = self.cap else { return Allowance::UNBOUNDED };
        let none = Burst { in_flight: Bytes::ZERO, delivered: self.path.delivered };
        let Burst { in_flight, delivered } = self.urgent.unwrap_or(none);
        // No burst: one packet more for each two that are acknowledged, after the first window.
        let later = (self.path.delivered - delivered - in_flight) / 2;
        // A packet is enough while the pipe empties: with nothing in flight, no sample would come.
        let background = if self.probe.holds() { mss } else { cap };
        // A dip is for background data alone.
        let whole = if let State::Steady(steady) = &self.state { steady.cap_before_dip() } else { None };
        let urgent = cap.max(whole.unwrap_or(cap)).max(in_flight) + mss * 2 + later;
        Allowance { background, urgent }
    }

    /// Returns the bound on what may be outstanding while data of these levels waits.
    pub fn bound(&self, waiting: PrioritySet) -> Bytes {
        let allowance = self.allowance();
        if self.is_urgent(waiting) { allowance.urgent } else { allowance.background }
    }

    /// Returns whether one of these levels is urgent.
    pub fn is_urgent(&self, levels: PrioritySet) -> bool {
        !levels.and(self.config.urgent).is_empty()
    }

    /// Returns how much of a chunk may leave now. The only question of an engine about the cap.
    ///
    /// If background data is held back, the cap is the bound of this round trip, and not the engine. Urgent data
    /// that is held back says nothing about the cap.
    pub fn room(&mut self, demand: Demand, chunk: Bytes) -> Allowed {
        let bound = self.bound(demand.waiting);
        // A chunk may be larger than any cap: with nothing outstanding, no acknowledgement would come.
        if demand.outstanding.is_zero() || demand.outstanding + chunk <= bound {
            return Allowed::Upto(chunk);
        }
        if !self.is_urgent(demand.waiting)
            && let Judging::Measure { seen, .. } = &mut self.judging
        {
            seen.bound = true;
        }
        match bound - demand.outstanding {
            Bytes::ZERO => Allowed::Held,
            part => Allowed::Upto(part),
        }
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
        self.path.sample(now, sample, self.config.mss);
        self.path.sampled_at = now;
    }

    /// Takes note of an acknowledgement, or of what the engine says when it is asked. Returns the change
    /// of the mode, if there is one.
    pub fn sample(&mut self, now: Time, sample: &Sample) -> Option<Transition> {
        let before = self.mode();
        let newly = self.path.sample(now, sample, self.config.mss);
        if sample.lost {
            self.path.packet_lost(now);
        }
        let burst = Burst { in_flight: sample.in_flight, delivered: sample.delivered };
        self.urgent = sample.urgent.then(|| self.urgent.unwrap_or(burst));
        if let (State::Startup(startup), Some(rtt)) = (&mut self.state, sample.rtt) {
            startup.acknowledged(now, rtt, sample.back, &self.path, &self.config);
        }
        let base = self.path.base()?;
        self.probe(now, base, sample);
        match (self.state, &mut self.cap) {
            (State::Startup(startup), _) => {
                let next = startup.follow(base, &mut self.context(now));
                self.enter(next);
            }
            // The window comes back at the pace of acknowledgements.
            (State::Compete(_), Some(cap)) => {
                *cap += newly;
                self.path.noise.cap_changed();
            }
            _ => {}
        }
        self.judge(now, base, newly, sample);
        let time = &mut self.counters.time[before as usize];
        *time = time.saturating_add(now.since(self.path.sampled_at));
        self.path.sampled_at = now;
        let mode = self.mode();
        (mode != before).then(|| {
            self.counters.transitions += 1;
            Transition { at: now, from: before, to: mode }
        })
    }

    /// Empties the pipe when a controller like BBR would give up its window to do so.
    fn probe(&mut self, now: Time, base: Duration, sample: &Sample) {
        let mss = self.config.mss;
        let free = !sample.lost && self.cap.is_none_or(|cap| cap > mss * FLOOR * 2);
        self.probe.sample(now, sample.in_flight, sample.rtt.unwrap_or(self.path.rtt), mss, free);
        let may_hold = matches!(&self.state, State::Steady(steady) if steady.cap_before_dip().is_none());
        if may_hold && self.probe.begin(now, base) {
            self.judging = Judging::Idle;
        } else if self.probe.end(now, sample.in_flight, base) {
            self.judging = Judging::Skip { until: sample.delivered + sample.in_flight };
        }
    }

    /// Measures round trips, and has the mode judge each.
    fn judge(&mut self, now: Time, base: Duration, newly: Bytes, sample: &Sample) {
        let next = sample.delivered + sample.in_flight;
        match &mut self.judging {
            Judging::Drain if self.cap.is_none_or(|cap| sample.in_flight <= cap) => {
                self.judging = Judging::Skip { until: next };
            }
            Judging::Raise { target } => {
                let cap = self.cap.map_or(*target, |cap| (cap + newly / 2).min(*target));
                self.cap = Some(cap);
                if cap == *target {
                    self.judging = Judging::Skip { until: next };
                }
            }
            Judging::Skip { until } if sample.delivered >= *until => {
                self.judging = Judging::measure(now, sample.delivered, next);
            }
            Judging::Measure { until, seen } => {
                seen.most = seen.most.max(sample.in_flight);
                let (begun, from) = seen.begin;
                seen.flight = seen.flight.saturating_add(sample.in_flight.get());
                seen.samples += 1;
                seen.urgent |=
                    sample.urgent || self.cap.is_some_and(|cap| sample.in_flight > cap + self.config.mss);
                seen.dry |= sample.in_flight.is_zero();
                let rtt = sample.rtt.map(|rtt| rtt.saturating_sub(sample.back));
                seen.least = rtt.map_or(seen.least, |rtt| Some(seen.least.map_or(rtt, |it| it.min(rtt))));
                let Some(least) = seen.least.filter(|_| sample.delivered >= *until) else { return };
                let Seen { most, bound, urgent, dry, flight, samples, .. } = *seen;
                let (bytes, took) = (sample.delivered - from, now.since(begun));
                let flight = Bytes::new(flight / samples);
                let (rate, queueing) = (self.path.rate(self.config.mss), least.saturating_sub(base));
                let back = self.path.back;
                self.counters.rounds += 1;
                // A cut in here starts its own judgement.
                self.judging = Judging::measure(now, sample.delivered, next);
                self.round_ended(
                    now,
                    &Round {
                        bound,
                        urgent,
                        dry,
                        most,
                        flight,
                        bytes,
                        took,
                        rate,
                        base,
                        queueing,
                        back,
                        least,
                    },
                );
            }
            Judging::Drain | Judging::Skip { .. } | Judging::Idle => {}
        }
    }

    fn round_ended(&mut self, now: Time, round: &Round) {
        self.path.round(now, round, &self.config);
        let cap = self.cap.unwrap_or(Bytes::MAX);
        let next = self.state.next(cap, round, &mut self.context(now));
        self.enter(next);
        self.path.lost = false;
    }

    fn context(&mut self, now: Time) -> Context<'_> {
        Context {
            now,
            config: &self.config,
            path: &mut self.path,
            tests: &mut self.tests,
            lifts: &mut self.lifts,
        }
    }

    /// Enters a state, with its change of the cap.
    fn enter(&mut self, (state, change): (State, CapChange)) {
        self.state = state;
        let is_small = match change {
            CapChange::Keep => true,
            CapChange::Set(cap) => self.cap.is_some_and(|before| cap - before <= self.config.mss),
            _ => false,
        };
        if !is_small {
            self.path.noise.cap_changed();
        }
        match change {
            CapChange::Keep => {}
            CapChange::Set(cap) => self.cap = Some(cap),
            CapChange::Cut(cap) => {
                self.cap = Some(cap.max(self.config.floor()));
                self.judging = Judging::Drain;
                self.counters.cuts += 1;
            }
            CapChange::Raise(target) => self.judging = Judging::Raise { target },
            CapChange::Lift => self.cap = None,
        }
    }
}

#[cfg(test)]
mod rounds;
#[cfg(test)]
mod tests;
