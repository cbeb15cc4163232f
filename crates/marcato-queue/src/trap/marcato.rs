//! Judge of [`TrapConfig::marcato`]: separates responses to signals from chance.
//!
//! A flow whose packets arrive at random also sends less in some cycle after a signal. A reduction
//! as in CRQ §III-A1 is therefore a response only under these conditions:
//!
//! 1. The rate falls by more than it usually varies from cycle to cycle. The **variation** is the
//!    mean absolute second difference of the binary logarithm of the rate.
//! 2. If most of the last cycles were signalled, the fall lasts for two cycles.
//! 3. The share of falls without a signal (**controls**) is subtracted from the share of falls
//!    after one.
//!
//! Votes age, and the verdict has hysteresis.
//!
//! # What is in flight
//!
//! Where a flow's acknowledgements are seen, a response shows in what is **in flight**: the bytes
//! that it has sent and that are not acknowledged. A window that was reduced leaves less of them,
//! in every cycle until it has grown again. The rate shows it for one round trip only if the queue
//! never empties, and a timer or a burst that is late by a few milliseconds hides it: what one cycle
//! lacks then comes in the next. Linux's CUBIC at 20 Mbit/s over 20 ms was refused half of its votes
//! for this. So
//!
//! - a reduction within the variation is a response if the flight of the last two cycles is lower,
//!   by a fifth, than in the cycle at the signal;
//! - such a response counts for three votes, so that one is enough for a verdict;
//! - losses may be repaired for many cycles, in which acknowledgements do not tell the flight: the
//!   judge then **waits** for it. If it does not fall, that is a refusal. Until then, only a rate that
//!   falls by a quarter is a response: a flow beside a flood repairs most of the time;
//! - falls of the flight without a signal are subtracted as those of the rate are.
//!
//! A lower flight alone is no response: it also falls if others leave room in the queue. QUIC's
//! acknowledgements cannot be seen, and its flows are judged by their rates.
//!
//! # Thresholds
//!
//! | constant | value | unit | reason |
//! |---|---|---|---|
//! | [`RISE`] | 5/8 | share of votes | responsive from here on; the gap to `FALL` keeps a flow in its queue (CRQ §III-B3) |
//! | [`FALL`] | 3/8 | share of votes | unresponsive up to here |
//! | [`LEAST_VOTES`] | 3 | votes | fewer give no verdict |
//! | [`AGE_SHIFT`] | 3 | power of two | the latest vote weighs at least 1/8, so eight votes against end any majority (7/8 to the eighth is below 3/8) |
//! | [`QUIET`] | 7 | cycles | a control needs the current and the last 6 cycles unsignalled: no response reaches into it |
//! | [`STEADY_LOSS`] | 3 | of the last 8 cycles | with losses in as many, any fall follows a loss |
//! | [`OVERFLOW`] | 2 | cycles | losses go on for the round trip until the response; cycles are not aligned to it |
//! | [`STEADY_MARKS`] | 6 | of the last 8 cycles | the same for marks; DCTCP in balance at a queue that marks early is marked in 4 or 5 |
//! | [`SETTLED`] | 16 | samples | the first samples of the variation are those of slow start and its end |
//! | [`NOISE_SHIFT`] | 3 | power of two | a sample of the variation weighs 1/8, once there are as many |
//! | [`AFTER_LOSS`] | 20 | 1/16 of the variation | fall asked for after a loss |
//! | [`AFTER_MARKS`] | 16 | 1/16 of the variation | after marks: a sender that answers each mark a little varies all the time |
//! | [`AFTER_FEW_MARKS`] | 24 | 1/16 of the variation | after so few marks that a response may be too small to see, at an even rate |
//! | [`AFTER_FEW_MARKS_UNEVENLY`] | 28 | 1/16 of the variation | as above, at an uneven rate |
//! | [`UNDER_STEADY_LOSS`] | 16 | 1/16 of the variation | for each of two cycles, where losses are steady |
//! | [`UNDER_STEADY_MARKS`] | 40 | 1/16 of the variation | for each of two cycles, where marks are steady: a sender that answers does not stay there |
//! | [`FEW`] | 32 | packets of 1500 bytes per mark | marks are few if there are fewer |
//! | [`EVEN`] | 64 | 2^-12 of an octave, 1.1 % | a rate is even if its variation is below |
//! | [`PER_MARK`] | 188 | bytes per mark | a reduction by this is enough: a quarter of what DCTCP in balance answers a mark by, half a segment |
//! | [`FLIGHT_FELL`] | 82 | 2^-8 of an octave | a flight of 80 % is lower: CUBIC leaves 70 %, and the path before the queue keeps its part of the rest |
//! | [`QUARTER`] | 106 | 2^-8 of an octave | 75 %: the fall of the rate that counts although losses are repaired; CUBIC falls to 70 % |
//! | [`TENTH`] | 39 | 2^-8 of an octave | 90 %: the fall of the rate beside a lower flight; a flight that grows by as much is not answered yet |
//! | [`GREW`] | 150 | 2^-8 of an octave | a flight that grew by half in two cycles is in slow start, and a quarter more is BBR's probe |
//! | [`LEAST_FLIGHT`] | 3213 | 2^-8 of an octave | 6000 bytes: of less, one packet is more than a fifth |
//! | [`WAIT`] | 32 | cycles | an overflow that ends slow start takes up to 20 to repair, while the round trip grows tenfold and is measured late |
//! | [`KNOWN`] | 4 | cycles | once repaired, a lower flight shows in the second cycle, or in the eighth at last |
//! | [`VISIBLE`] | 3000 | bytes | least reduction after few marks: a window may begin and end between any two packets, so one packet is nothing |
//!
//! The factors of the variation follow from a Poisson flow. Its variation is 1.95 standard
//! deviations of its log rate, and its fall from one window to another has 1.41 of them:
//!
//! | fall, in variations | the largest of three falls exceeds it | both of two cycles in a row are lower by it |
//! |---|---|---|
//! | 1 | 1 in 4 | 1 in 26 |
//! | 1 1/4 | 1 in 7 | |
//! | 1 1/2 | 1 in 12 | |
//! | 1 3/4 | 1 in 22 | |
//! | 2 | 1 in 50 | |
//! | 2 1/2 | 1 in 200 | 1 in 43 000 |

use super::assessment::{History, KEPT, Ruling};
use super::{Response, Signal, TrapConfig, Verdict, Window};

/// Share of votes if all are for a flow.
const ONE: u16 = 1 << 12;
const RISE: u16 = 5 * (ONE >> 3);
const FALL: u16 = 3 * (ONE >> 3);
const LEAST_VOTES: u8 = 3;
const AGE_SHIFT: u32 = 3;
/// One bit per cycle, the lowest for the current one.
const QUIET: u8 = 0x7f;
const STEADY_LOSS: u32 = 3;
const OVERFLOW: u8 = 2;
const STEADY_MARKS: u32 = 6;
const SETTLED: u8 = 16;
const NOISE_SHIFT: u32 = 3;
const AFTER_LOSS: u32 = 20;
const AFTER_MARKS: u32 = 16;
const AFTER_FEW_MARKS: u32 = 24;
const AFTER_FEW_MARKS_UNEVENLY: u32 = 28;
const UNDER_STEADY_LOSS: u32 = 16;
const UNDER_STEADY_MARKS: u32 = 40;
const FEW: u32 = 32;
/// Bytes of a full packet.
const FULL: u32 = 1500;
const EVEN: u16 = 4 << 4;
const PER_MARK: u32 = 188;
const VISIBLE: u32 = 2 * FULL;
/// In 2^-8 of an octave, as the logarithms below.
const FLIGHT_FELL: i32 = 82;
const TENTH: i32 = 39;
const QUARTER: u32 = 106;
const LEAST_FLIGHT: i16 = 3213;
const GREW: i16 = 150;
const WAIT: u8 = 32;
const KNOWN: u8 = 4;

/// Exponentially aged share of votes for a flow.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// In units of 1/[`ONE`].
    part: u16,
    /// Votes so far, counted up to 2^[`AGE_SHIFT`].
    votes: u8,
}

impl Share {
    const fn new() -> Self {
        Self { part: 0, votes: 0 }
    }

    /// Takes a vote into account: by all of it, a half, another half, four quarters, and eighths
    /// from then on.
    fn vote(&mut self, hit: bool) {
        self.votes = (self.votes + 1).min(1 << AGE_SHIFT);
        let shift = self.votes.ilog2();
        let target = if hit { ONE } else { 0 };
        self.part = self.part - (self.part >> shift) + (target >> shift);
    }

    /// Lets the votes so far count as enough for a verdict.
    fn assure(&mut self) {
        self.votes = self.votes.max(LEAST_VOTES);
    }
}

/// Variation of the rate: mean absolute second difference of its logarithm.
#[derive(Clone, Copy, Debug)]
struct Noise {
    /// In 2^-12 of an octave.
    mean: u16,
    /// Samples so far, counted up to 255.
    samples: u8,
}

impl Noise {
    const fn new() -> Self {
        Self { mean: 0, samples: 0 }
    }

    /// Takes a second difference in 2^-8 of an octave into account: by all of it, a half, another
    /// half, four quarters, and eighths from then on. So the mean is as right after two samples as
    /// after many.
    fn take(&mut self, difference: u16) {
        // A sample counts as twice the mean at most. Otherwise the sender's own responses, each of
        // which changes the rate's slope two or three times, would count as its noise.
        let difference = if self.samples < 4 { difference } else { difference.min((self.mean >> 3) + 1) };
        self.samples = self.samples.saturating_add(1);
        let shift = self.samples.ilog2().min(NOISE_SHIFT);
        self.mean = self.mean - (self.mean >> shift) + ((difference << 4) >> shift);
    }

    /// Returns whether `fall`, in 2^-8 of an octave, is at least `sixteenths` of the variation.
    fn is_exceeded(self, fall: u32, sixteenths: u32) -> bool {
        fall << 8 >= u32::from(self.mean) * sixteenths
    }
}

/// Signals of one cycle, as far as they determine the expected response.
#[derive(Clone, Copy, Debug)]
struct Signals {
    /// Number of marks; 0 for losses.
    marks: u32,
    /// Set if the marks are so few that a response may be too small to see.
    few: bool,
    /// Set if a response that cannot be seen then counts as no refusal.
    excused: bool,
}

impl Signals {
    /// Reduction in bytes that is enough for a response.
    fn reduction(self) -> u32 {
        let reduction = PER_MARK * self.marks;
        if self.few { reduction.max(VISIBLE) } else { reduction }
    }
}

/// State of the judge for one flow.
#[derive(Clone, Debug)]
pub(super) struct Marcato {
    /// Share of answered signals, by kind of signal.
    shares: [Share; 2],
    /// Share of controls in which the rate fell.
    control: Share,
    /// Cycles to end before the next control.
    control_in: u8,
    /// Number of known rates, counted up to 3.
    known: u8,
    noise: Noise,
    /// Logarithms of the last rates, in 2^-8 of an octave, latest first.
    rates: [i16; KEPT],
    /// Logarithms of the bytes in flight at the end of the last cycles, likewise; 0 if not known.
    flights: [i16; KEPT],
    wait: Wait,
}

/// Wait for the flight of a flow to fall after a signal.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Logarithms of the flight and of the rate in the cycle at the signal.
    flight: i16,
    rate: i16,
    /// Cycles to end before the wait is over, of which one with a flight that is known and grows no more
    /// counts as [`KNOWN`]; 0 if there is
    /// none.
    cycles: u8,
    signal: Signal,
    /// Set once the flow had its vote on the signal.
    voted: bool,
    /// Set once a cycle was reduced.
    reduced: bool,
}

impl Marcato {
    pub(super) const fn new() -> Self {
        Self {
            shares: [Share::new(); 2],
            control: Share::new(),
            control_in: 0,
            known: 0,
            noise: Noise::new(),
            rates: [0; KEPT],
            flights: [0; KEPT],
            wait: Wait { flight: 0, rate: 0, cycles: 0, signal: Signal::Loss, voted: false, reduced: false },
        }
    }

    pub(super) fn inspect(&self, put: &mut dyn FnMut(&'static str, u32)) {
        for share in self.shares.iter().chain([&self.control]) {
            put("share part", share.part.into());
            put("share votes", share.votes.into());
        }
        put("control_in", self.control_in.into());
        put("known", self.known.into());
        put("noise mean", self.noise.mean.into());
        put("noise samples", self.noise.samples.into());
        for rate in self.rates {
            put("rate", i32::from(rate).cast_unsigned());
        }
        for flight in self.flights {
            put("flight log", i32::from(flight).cast_unsigned());
        }
        let Wait { flight, rate, cycles, signal, voted, reduced } = self.wait;
        put("wait flight", i32::from(flight).cast_unsigned());
        put("wait rate", i32::from(rate).cast_unsigned());
        put("wait cycles", cycles.into());
        put("wait signal", signal as u32);
        put("wait voted", voted.into());
        put("wait reduced", reduced.into());
    }

    /// Forgets the rates, as the next cycle cannot be compared with the last.
    pub(super) fn forget(&mut self) {
        self.known = 0;
        self.changed_queue();
    }

    /// Forgets what was in flight, as another queue holds more or less of it.
    pub(super) fn changed_queue(&mut self) {
        self.flights = [0; KEPT];
        self.wait.cycles = 0;
    }

    /// Records the rate of a cycle that ended and how far it leaves the line through the two
    /// before, and what was in flight.
    ///
    /// The second difference counts neither steady growth, such as slow start's, nor the flat parts
    /// of a sawtooth, but all of what comes at random.
    pub(super) fn record(&mut self, window: Window, flight: u32) {
        self.flights.rotate_right(1);
        self.flights[0] = logarithm(flight);
        let rate = logarithm(window.bytes) - logarithm(window.ticks);
        self.rates.rotate_right(1);
        self.rates[0] = rate;
        self.known = (self.known + 1).min(3);
        if self.known == 3 {
            let [now, before, earlier, ..] = self.rates.map(i32::from);
            #[allow(clippy::cast_possible_truncation, reason = "at most 2^8")]
            let difference = (now - 2 * before + earlier).unsigned_abs().min(1 << 8) as u16;
            self.noise.take(difference);
        }
    }

    /// Rules on the cycle in which the queue gave `count` times `signal`, and votes.
    pub(super) fn rule(
        &mut self,
        config: &TrapConfig,
        history: History<'_>,
        signal: Signal,
        count: u32,
    ) -> Ruling {
        let last = config.response.last;
        let signals = self.signals(config, history, if signal == Signal::Ecn { count } else { 0 });
        let share = signal as usize;
        let before = self.flight_before(last);
        let reduced = self.reduced(config, history, signals);
        let answered = self.answer(config, history, signals);
        // RFC 6675 §5: losses while others are repaired are answered together. A flow beside a flood repairs most of
        // the time: a rate that falls by a quarter counts all the same.
        if signal == Signal::Loss && before == 0 && self.is_acknowledged() {
            return match answered.filter(|&after| self.fall(last, last - after) >= QUARTER) {
                Some(after) => {
                    self.shares[share].vote(true);
                    Ruling::Answered(after)
                }
                None => Ruling::Withheld,
            };
        }
        if let Some(after) = answered {
            self.shares[share].vote(true);
            self.await_flight(last, signal, true, reduced.is_some());
            return Ruling::Answered(after);
        }
        if let Some(after) = reduced
            && self.has_lower_flight(before)
        {
            self.shares[share].vote(true);
            self.shares[share].assure();
            return Ruling::Answered(after);
        }
        if signal == Signal::Loss && self.is_acknowledged() {
            // The sender cannot know of the loss yet, repairs it, or has sent less since.
            let now = self.flights[0];
            let grew = now == 0 || i32::from(now) - i32::from(before) >= TENTH;
            if before >= LEAST_FLIGHT && (grew || reduced.is_some()) {
                self.await_flight(last, signal, false, reduced.is_some());
                return Ruling::Withheld;
            }
        }
        // The flow was still answering earlier signals when these came, and has not grown since
        // (RFC 3168 §6.1.2: one reaction per window).
        if self.is_answer(config, history, last + 1, last, signals) || signals.excused {
            return Ruling::Withheld;
        }
        match self.answer_in_slow_start(config, history, signals) {
            // Slow start's variation may hide a response: it is counted, but decides nothing.
            Some(after) => Ruling::Answered(after),
            None => {
                self.shares[share].vote(false);
                Ruling::Refused
            }
        }
    }

    /// Votes on a stretch of cycles without signals: does the rate fall all the same?
    pub(super) fn control(&mut self, config: &TrapConfig, history: History<'_>) {
        if self.control_in > 0 {
            self.control_in -= 1;
            return;
        }
        if history.signalled & QUIET == 0 && history.is_large_enough(config) {
            let signals = self.signals(config, history, 0);
            let before = self.flight_before(config.response.last);
            // A repair still belongs to the signals before.
            if self.wait.cycles > 0 && self.flights[0] == 0 {
                return;
            }
            self.control.vote(if before >= LEAST_FLIGHT {
                self.has_lower_flight(before)
            } else {
                self.answer(config, history, signals).is_some()
            });
            // The next control shares no cycle with this one.
            self.control_in = config.response.last;
        }
    }

    /// Verdict that follows `before`.
    pub(super) const fn verdict(&self, signal: Signal, before: Verdict) -> Verdict {
        let share = self.shares[signal as usize];
        let part = share.part.saturating_sub(self.control.part);
        if share.votes < LEAST_VOTES {
            Verdict::Unclassified
        } else if part >= RISE {
            Verdict::Responsive
        } else if part <= FALL {
            Verdict::Unresponsive
        } else {
            before
        }
    }

    /// Response that `marks` in the cycle at the signal ask for.
    ///
    /// A sender that answers each mark by half a segment, as DCTCP in balance does, may seem not to
    /// answer a few. It is then not called unresponsive, but every fall that is taken for a
    /// response must stand out. A flow of uneven rate has no such excuse: it falls by chance, and
    /// if the falls that do not come were not counted, chance would be on its side.
    fn signals(&self, config: &TrapConfig, history: History<'_>, marks: u32) -> Signals {
        let before = history.windows[usize::from(config.response.last)].bytes;
        let few = marks > 0 && marks * (FEW * FULL) < before;
        Signals { marks, few, excused: few && self.noise.mean < EVEN }
    }

    /// First cycle after the one at the signal that is a response, if any.
    fn answer(&self, config: &TrapConfig, history: History<'_>, signals: Signals) -> Option<u8> {
        let Response { first, last } = config.response;
        (first..=last).find(|&after| self.is_answer(config, history, last, last - after, signals))
    }

    /// Returns whether the flow's acknowledgements tell what is in flight, or did before a loss that is
    /// now repaired.
    fn is_acknowledged(&self) -> bool {
        self.wait.cycles > 0 || self.flights.iter().any(|&flight| flight > 0)
    }

    /// Logarithm of the flight that a signal `last` cycles ago is to be compared with; 0 if not known.
    ///
    /// It is the least of that cycle and of the two before, unless it grew by half in these, as in slow start: BBR
    /// has a quarter more in flight while it probes, meets a full queue, and then returns to what it had.
    fn flight_before(&self, last: u8) -> i16 {
        let last = usize::from(last);
        let now = self.flights[last];
        let known = self.flights[last..=last + 2].iter().filter(|&&flight| flight > 0);
        let least = known.min().copied().unwrap_or(0);
        if now == 0 || now - least >= GREW { now } else { least }
    }

    /// Returns whether less was in flight in each of the last two cycles than in one with the
    /// logarithm `before`, by as much as a response leaves away.
    fn has_lower_flight(&self, before: i16) -> bool {
        let is_lower = |now: &i16| *now > 0 && i32::from(before) - i32::from(*now) >= FLIGHT_FELL;
        before >= LEAST_FLIGHT && self.flights[..2].iter().all(is_lower)
    }

    /// First cycle with a reduced window, whatever the variation.
    ///
    /// It is reduced from the cycle at the signal or the one before: what came late in one came early
    /// in the other.
    fn reduced(&self, config: &TrapConfig, history: History<'_>, signals: Signals) -> Option<u8> {
        let Response { first, last } = config.response;
        (first..=last).find(|&after| {
            [last, last + 1].into_iter().any(|before| {
                self.fall(before, last - after) > 0
                    && history.is_reduced(config, before, last - after, signals.reduction())
            })
        })
    }

    /// Begins to wait for a lower flight than in the cycle `last` cycles ago, if it is known and none
    /// is awaited.
    fn await_flight(&mut self, last: u8, signal: Signal, voted: bool, reduced: bool) {
        let (flight, rate) = (self.flight_before(last), self.rates[usize::from(last)]);
        if self.wait.cycles == 0 && flight >= LEAST_FLIGHT {
            self.wait = Wait { flight, rate, cycles: WAIT, signal, voted, reduced };
            self.confirm();
        }
    }

    /// Looks for the awaited flight in the cycle that ended.
    pub(super) fn confirm(&mut self) {
        if self.wait.cycles == 0 {
            return;
        }
        // While the flight grows, the sender cannot know of the loss yet.
        let now = self.flights[0];
        let is_settled = now > 0 && i32::from(now) - i32::from(self.wait.flight) < TENTH;
        let passed = if is_settled { KNOWN } else { 1 };
        self.wait.cycles = self.wait.cycles.saturating_sub(passed);
        self.wait.reduced |= i32::from(self.wait.rate) - i32::from(self.rates[0]) >= TENTH;
        let is_lower = self.wait.reduced && self.has_lower_flight(self.wait.flight);
        let share = &mut self.shares[self.wait.signal as usize];
        if is_lower {
            if !self.wait.voted {
                share.vote(true);
            }
            share.assure();
            self.wait.cycles = 0;
        } else if self.wait.cycles == 0 && !self.wait.voted {
            share.vote(false);
        }
    }

    /// First cycle with a reduced window, whatever the variation, while that is slow start's.
    fn answer_in_slow_start(
        &self,
        config: &TrapConfig,
        history: History<'_>,
        signals: Signals,
    ) -> Option<u8> {
        if self.noise.samples > SETTLED {
            return None;
        }
        let Response { first, last } = config.response;
        (first..=last).find(|&after| {
            self.fall(last, last - after) > 0
                && history.is_reduced(config, last, last - after, signals.reduction())
        })
    }

    /// Returns whether the window `after` cycles ago answers the signal in the one `before` cycles
    /// ago.
    fn is_answer(
        &self,
        config: &TrapConfig,
        history: History<'_>,
        before: u8,
        after: u8,
        signals: Signals,
    ) -> bool {
        // Under steady signals the next window must be low, too: a fall by chance, or a pulse's
        // end, is over by then.
        self.is_low(config, history, before, after, signals)
            && (!is_steady(config, history, signals)
                || after > 0 && self.is_low(config, history, before, after - 1, signals))
    }

    /// Returns whether the window `after` cycles ago is lower than the one `before` cycles ago by
    /// at least a response.
    fn is_low(
        &self,
        config: &TrapConfig,
        history: History<'_>,
        before: u8,
        after: u8,
        signals: Signals,
    ) -> bool {
        history.is_reduced(config, before, after, signals.reduction())
            && self.is_beyond_noise(config, history, before, after, signals)
    }

    /// Fall of the logarithm of the rate between two cycles, given by age; 0 if it rose.
    fn fall(&self, before: u8, after: u8) -> u32 {
        let fall = i32::from(self.rates[usize::from(before)]) - i32::from(self.rates[usize::from(after)]);
        fall.max(0).unsigned_abs()
    }

    /// Returns whether the rate fell by more than chance explains.
    fn is_beyond_noise(
        &self,
        config: &TrapConfig,
        history: History<'_>,
        before: u8,
        after: u8,
        signals: Signals,
    ) -> bool {
        let factor = match (signals, is_steady(config, history, signals)) {
            (Signals { marks: 0, .. }, true) => UNDER_STEADY_LOSS,
            (Signals { marks: 0, .. }, false) => AFTER_LOSS,
            (_, true) => UNDER_STEADY_MARKS,
            (Signals { excused: true, .. }, false) => AFTER_FEW_MARKS,
            (Signals { few: true, .. }, false) => AFTER_FEW_MARKS_UNEVENLY,
            (_, false) => AFTER_MARKS,
        };
        let fall = self.fall(before, after);
        fall > 0 && self.noise.is_exceeded(fall, factor)
    }
}

/// Returns whether so many of the last cycles were signalled that any fall follows a signal.
///
/// The judged cycle and the losses that follow it without a gap, for up to [`OVERFLOW`] cycles, are
/// one overflow of the queue. No sender can answer the first loss before a round trip has passed,
/// so these losses do not tell a steady shortage from a single overflow.
fn is_steady(config: &TrapConfig, history: History<'_>, signals: Signals) -> bool {
    if signals.marks > 0 {
        return history.signalled.count_ones() >= STEADY_MARKS;
    }
    let judged = config.response.last;
    let cycles = (judged.saturating_sub(OVERFLOW)..=judged).rev().map(|age| 1 << age);
    let later: u8 = cycles.take_while(|cycle| history.signalled & cycle != 0).skip(1).sum();
    (history.signalled & !later).count_ones() >= STEADY_LOSS
}

/// Logarithm to base 2 of `number`, or of 1 if it is 0, in 2^-8, rounded down: 8 squarings give 8
/// binary places.
fn logarithm(number: u32) -> i16 {
    let number = number.max(1);
    let whole = number.ilog2();
    // Between 1 and 2, with 31 binary places.
    let mut mantissa = u64::from(number) << (31 - whole);
    #[allow(clippy::cast_possible_truncation, reason = "at most 31")]
    let mut logarithm = whole as i16;
    for _ in 0..8 {
        mantissa = (mantissa * mantissa) >> 31;
        let carry = mantissa >> 32 != 0;
        mantissa >>= u32::from(carry);
        logarithm = logarithm << 1 | i16::from(carry);
    }
    logarithm
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: TrapConfig = TrapConfig::marcato();

    /// The window of a cycle of one tick.
    const fn bytes(bytes: u32) -> Window {
        Window { bytes, ticks: 1 }
    }

    fn judge(mean: u16, samples: u8) -> Marcato {
        Marcato { noise: Noise { mean, samples }, ..Marcato::new() }
    }

    fn marks(marks: u32) -> Signals {
        Signals { marks, few: false, excused: false }
    }

    #[test]
    fn thresholds_are_those_of_the_table() {
        assert_eq!((RISE * 8, FALL * 8), (5 * ONE, 3 * ONE));
        assert_eq!((ONE, EVEN, VISIBLE), (4096, 64, 3000));
    }

    #[test]
    fn a_vote_weighs_less_the_more_there_are_and_an_eighth_at_least() {
        let mut share = Share::new();
        let parts = [true, false, false, false, false, false, false, false, false].map(|hit| {
            share.vote(hit);
            share.part
        });
        assert_eq!(parts, [4096, 2048, 1024, 768, 576, 432, 324, 284, 249]);
        assert_eq!(share.votes, 8);
    }

    #[test]
    fn from_the_fifth_on_a_sample_counts_at_most_twice_the_mean() {
        let after = |samples: &[u16]| {
            let mut noise = Noise::new();
            samples.iter().for_each(|&sample| noise.take(sample));
            (noise.mean, noise.samples)
        };
        assert_eq!(after(&[8, 8, 8, 100]), (128 - 32 + 400, 4));
        // Twice 8 and the rounding: 17.
        assert_eq!(after(&[8, 8, 8, 8, 100]), (128 - 32 + 68, 5));
        assert_eq!(after(&[8; 255]), (128, 255));
        assert_eq!(after(&[8; 300]), (128, 255));
    }

    #[test]
    fn the_variation_is_the_second_difference_of_the_rate() {
        let variation = |windows: &[u32]| {
            let mut judge = Marcato::new();
            windows.iter().for_each(|&window| judge.record(bytes(window), 0));
            (judge.noise.mean, judge.noise.samples)
        };
        assert_eq!(variation(&[1 << 10, 1 << 11]), (0, 0), "two rates have no second difference");
        assert_eq!(variation(&[1 << 10, 1 << 11, 1 << 12]), (0, 1), "steady growth is no variation");
        // An octave, in 2^-12, is the most that counts.
        assert_eq!(variation(&[1 << 10, 1 << 10, 1 << 11]), (4096, 1));
        assert_eq!(variation(&[1 << 10, 1 << 10, 1 << 20]), (4096, 1));
        let mut judge = Marcato::new();
        for _ in 0..3 {
            judge.record(bytes(1 << 10), 0);
        }
        judge.forget();
        judge.record(bytes(1 << 20), 0);
        judge.record(bytes(1 << 10), 0);
        assert_eq!(judge.noise.samples, 1, "rates before a pause are not compared");
        judge.record(bytes(1 << 10), 0);
        assert_eq!(judge.noise.samples, 2);
    }

    #[test]
    fn each_kind_of_signal_asks_for_a_fall_of_its_own() {
        // A mean of 256 makes a fall and its factor the same number.
        let few = Signals { marks: 1, few: true, excused: false };
        let excused = Signals { excused: true, ..few };
        for (signals, signalled, factor) in [
            (marks(0), 0b11, AFTER_LOSS),
            (marks(0), 0b111, UNDER_STEADY_LOSS),
            (marks(1), 0b1_1111, AFTER_MARKS),
            (marks(1), 0b11_1111, UNDER_STEADY_MARKS),
            (few, 0b1, AFTER_FEW_MARKS_UNEVENLY),
            (excused, 0b1, AFTER_FEW_MARKS),
        ] {
            let history = History { windows: &[Window::default(); KEPT], signalled };
            for (short, expected) in [(0, true), (1, false)] {
                let mut judge = judge(256, 20);
                judge.rates[3] = i16::try_from(factor - short).unwrap();
                assert_eq!(
                    judge.is_beyond_noise(&CONFIG, history, 3, 0, signals),
                    expected,
                    "{signals:?}, {signalled:b}"
                );
            }
        }
        // Where nothing varies, no fall is none.
        let history = History { windows: &[Window::default(); KEPT], signalled: 0 };
        assert!(!judge(0, 20).is_beyond_noise(&CONFIG, history, 3, 0, marks(0)));
    }

    #[test]
    fn losses_until_the_response_are_one_overflow() {
        let steady = |signalled: u8| {
            is_steady(&CONFIG, History { windows: &[Window::default(); KEPT], signalled }, marks(0))
        };
        // The signal that is judged came three cycles ago.
        assert_eq!(CONFIG.response.last, 3);
        assert!(!steady(0b0000_1110), "the round trip of an overflow touches three cycles");
        assert!(!steady(0b0010_1110));
        assert!(!steady(0b0000_1111), "one loss after it");
        assert!(steady(0b0001_1111), "and one before it");
        assert!(steady(0b0011_1110), "losses before it");
        assert!(steady(0b0000_1011), "losses after a gap");
        assert!(steady(0b0101_1000));
    }

    #[test]
    fn marks_under_1_in_32_packets_are_few_and_excused_at_even_rate() {
        let signals = |marks, before, mean| {
            let mut windows = [Window::default(); KEPT];
            windows[3] = bytes(before);
            judge(mean, 20).signals(&CONFIG, History { windows: &windows, signalled: 0 }, marks)
        };
        let seen = |signals: Signals| (signals.few, signals.excused);
        assert_eq!(seen(signals(1, 48_000, 0)), (false, false));
        assert_eq!(seen(signals(1, 48_001, 63)), (true, true));
        assert_eq!(seen(signals(1, 48_001, 64)), (true, false));
        assert_eq!(seen(signals(2, 96_000, 0)), (false, false));
        assert_eq!(seen(signals(0, 1_000_000, 0)), (false, false), "a loss is no mark");
        // 188 bytes per mark, and what can be seen at least.
        assert_eq!(signals(1, 48_000, 0).reduction(), 188);
        assert_eq!(signals(1, 48_001, 0).reduction(), 3000);
        assert_eq!(signals(16, 1_000_000, 0).reduction(), 3008);
    }

    #[test]
    fn a_ruling_is_withheld_during_an_answer_and_on_excused_marks() {
        // Windows in kB, latest first; the signal came three cycles ago.
        let rule = |kilobytes: [u32; 5], mean: u16, signal: Signal| {
            let mut windows = [Window::default(); KEPT];
            let mut judge = judge(mean, 20);
            for (age, kilobytes) in kilobytes.into_iter().enumerate() {
                windows[age] = bytes(kilobytes * 1000);
                judge.rates[age] = logarithm(kilobytes * 1000);
            }
            let ruling = judge.rule(&CONFIG, History { windows: &windows, signalled: 1 << 3 }, signal, 1);
            (ruling, judge.shares[signal as usize].votes)
        };
        assert_eq!(rule([50, 50, 50, 100, 100], 0, Signal::Loss), (Ruling::Answered(1), 1));
        assert_eq!(rule([50, 50, 50, 50, 100], 0, Signal::Loss), (Ruling::Withheld, 0));
        assert_eq!(rule([50, 50, 50, 50, 50], 0, Signal::Loss), (Ruling::Refused, 1));
        // One mark in 100 kB, at an even rate and at an uneven one.
        assert_eq!(rule([100; 5], EVEN - 1, Signal::Ecn), (Ruling::Withheld, 0));
        assert_eq!(rule([100; 5], EVEN, Signal::Ecn), (Ruling::Refused, 1));
    }

    /// A judge of a flow whose rate varies so much that no fall stands out: it had a loss three cycles ago, `now` in
    /// flight in the last two cycles and `before` in the earlier ones, and the last window is of so many kB after 100.
    fn uneven(now: i16, before: i16, kilobytes: u32) -> (Marcato, [Window; KEPT]) {
        let mut windows = [bytes(100_000); KEPT];
        windows[0] = bytes(1000 * kilobytes);
        let mut judge = judge(u16::MAX, 20);
        judge.rates = windows.map(|window| logarithm(window.bytes));
        judge.flights = [now, now, before, before, before, before, before, before];
        (judge, windows)
    }

    fn rule(judge: &mut Marcato, windows: &[Window; KEPT]) -> Ruling {
        judge.rule(&CONFIG, History { windows, signalled: 1 << 3 }, Signal::Loss, 1)
    }

    #[test]
    fn less_in_flight_makes_a_reduction_a_sure_response() {
        const BEFORE: i16 = 4000;
        #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
        const FELL: i16 = FLIGHT_FELL as i16;
        let ruled = |fall: i16, kilobytes: u32| {
            let (mut judge, windows) = uneven(BEFORE - fall, BEFORE, kilobytes);
            (rule(&mut judge, &windows), judge.shares[0].votes, judge.wait.cycles)
        };
        assert_eq!(ruled(FELL, 90), (Ruling::Answered(3), LEAST_VOTES, 0));
        assert_eq!(ruled(FELL - 1, 90), (Ruling::Withheld, 0, WAIT - KNOWN), "it may still fall");
        // A lower flight alone may be others' doing.
        assert_eq!(ruled(FELL, 91), (Ruling::Refused, 1, 0));
        let (mut judge, windows) = uneven(LEAST_FLIGHT - 1 - FELL, LEAST_FLIGHT - 1, 50);
        assert_eq!(rule(&mut judge, &windows), Ruling::Refused, "a packet less is nothing");
    }

    #[test]
    fn a_flight_that_does_not_fall_in_eight_cycles_is_a_refusal() {
        // Losses are repaired: acknowledgements do not tell the flight. One cycle has passed with that.
        for (flight, cycles) in [(0, WAIT - 1), (46_341, WAIT / KNOWN)] {
            let (mut judge, windows) = uneven(0, 4000, 50);
            assert_eq!(rule(&mut judge, &windows), Ruling::Withheld);
            for cycle in 0..cycles {
                assert_eq!(judge.shares[0].votes, 0, "{cycle}");
                judge.record(bytes(100_000), flight);
                judge.confirm();
            }
            assert_eq!((judge.shares[0].votes, judge.shares[0].part, judge.wait.cycles), (1, 0, 0));
        }
    }

    #[test]
    fn a_repair_is_no_control() {
        let windows = [bytes(100_000); KEPT];
        let votes = |flights: [i16; KEPT], cycles: u8| {
            let mut judge = judge(256, 20);
            (judge.flights, judge.wait.cycles) = (flights, cycles);
            judge.control(&CONFIG, History { windows: &windows, signalled: 0 });
            (judge.control.votes, judge.control.part)
        };
        let [known, mut repairs, mut low] = [[4000; KEPT]; 3];
        repairs[0] = 0;
        low[..2].fill(3000);
        assert_eq!(votes(known, 0), (1, 0));
        assert_eq!(votes(low, 0), (1, ONE), "a flight that falls without a signal");
        assert_eq!(votes(repairs, 1), (0, 0));
        assert_eq!(votes([0; KEPT], 0), (1, 0), "acknowledgements are not seen");
    }

    #[test]
    fn without_a_lower_rate_a_lower_flight_is_a_refusal() {
        let (mut judge, windows) = uneven(0, 4000, 100);
        assert_eq!(rule(&mut judge, &windows), Ruling::Withheld);
        for _ in 0..WAIT / KNOWN {
            judge.record(bytes(100_000), 1 << 15);
            judge.confirm();
        }
        assert_eq!((judge.shares[0].votes, judge.shares[0].part), (1, 0));
    }

    #[test]
    fn a_flight_that_falls_after_the_repair_is_a_sure_response() {
        let (mut judge, windows) = uneven(0, 4000, 50);
        rule(&mut judge, &windows);
        // Logarithms 3840, for 4000.
        for votes in [0, LEAST_VOTES] {
            judge.record(bytes(100_000), 1 << 15);
            judge.confirm();
            assert_eq!(judge.shares[0].votes, votes);
        }
        assert_eq!((judge.shares[0].part, judge.wait.cycles), (ONE, 0));
        // Another queue holds more or less.
        rule(&mut judge, &windows);
        judge.changed_queue();
        assert_eq!((judge.flights, judge.wait.cycles), ([0; KEPT], 0));
    }

    #[test]
    fn a_control_needs_seven_quiet_cycles_that_no_other_shares() {
        let windows = [bytes(100_000); KEPT];
        let votes = |signalled: u8, cycles: usize| {
            let mut judge = judge(256, 20);
            for _ in 0..cycles {
                judge.control(&CONFIG, History { windows: &windows, signalled });
            }
            judge.control.votes
        };
        assert_eq!([0x80, 0x40, 0x01].map(|signalled| votes(signalled, 1)), [1, 0, 0]);
        assert_eq!([1, 4, 5, 8, 9].map(|cycles| votes(0, cycles)), [1, 1, 2, 2, 3]);
        // A flow that has backed off says nothing.
        let small = [bytes(6000); KEPT];
        let mut judge = judge(256, 20);
        judge.control(&CONFIG, History { windows: &small, signalled: 0 });
        assert_eq!(judge.control.votes, 0);
    }

    #[test]
    fn the_verdict_changes_at_five_and_three_eighths() {
        let verdict = |part, votes, control| {
            let mut judge = judge(0, 20);
            judge.shares[0] = Share { part, votes };
            judge.control.part = control;
            judge.verdict(Signal::Loss, Verdict::Responsive)
        };
        assert_eq!(verdict(ONE, 2, 0), Verdict::Unclassified);
        assert_eq!(verdict(RISE, 3, 0), Verdict::Responsive);
        assert_eq!(verdict(FALL, 3, 0), Verdict::Unresponsive);
        // In between it stays, and falls without a signal are subtracted.
        assert_eq!(verdict(FALL + 1, 3, 0), Verdict::Responsive);
        assert_eq!(verdict(ONE, 3, ONE - FALL), Verdict::Unresponsive);
        let mut judge = judge(0, 20);
        judge.shares[0] = Share { part: RISE - 1, votes: 3 };
        assert_eq!(judge.verdict(Signal::Loss, Verdict::Unresponsive), Verdict::Unresponsive);
    }

    #[test]
    fn slow_start_is_over_after_sixteen_samples() {
        let mut windows = [bytes(100_000); KEPT];
        windows[0] = bytes(50_000);
        let history = History { windows: &windows, signalled: 1 << 3 };
        let answer = |samples: u8, fall: i16| {
            let mut judge = judge(u16::MAX, samples);
            judge.rates[3] = fall;
            judge.answer_in_slow_start(&CONFIG, history, marks(0))
        };
        assert_eq!((answer(16, 256), answer(17, 256)), (Some(3), None));
        assert_eq!(answer(16, 0), None, "the rate did not fall, although a shorter cycle has fewer bytes");
    }

    #[test]
    fn the_logarithm_is_exact_to_a_256th_of_an_octave() {
        for exponent in 0..32 {
            assert_eq!(i32::from(logarithm(1 << exponent)), exponent << 8);
        }
        for number in [3, 1000, 1448, 65_535, 1_000_003, u32::MAX] {
            let exact = f64::from(number).log2() * 256.0;
            let error = exact - f64::from(logarithm(number));
            assert!((-0.001..1.001).contains(&error), "{number}: {error}");
        }
        assert_eq!(logarithm(0), 0);
    }
}
