//! Test of whether the network serves the high layer before the low one.
//!
//! If it does, high lanes perform the same whether low ones send or not. If it does not, the low
//! lanes fill a common queue, and packets on high lanes take longer or are lost. So low lanes pause
//! occasionally. The test compares the high lanes' round trips in the pause with those before and
//! after it. It needs both, because queues also grow and shrink for other reasons.
//!
//! With short buffers, round trips show little and losses much. Losses are rare, so they are
//! accumulated over several pauses, which are longer then. Losses within a round trip count once,
//! because an overflowing queue drops many packets.

mod losses;
mod measurement;

use marcato_sched::lane::{LaneId, MAX_LANES};
use marcato_units::{Bytes, Duration, Time};

use losses::{Losses, Tally};
use measurement::{Measurement, RoundTrips};

/// Parameters of the test whether the network serves the high layer first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityTest {
    /// High lanes are harmed if their round trips are longer by this many thousandths while low
    /// lanes send ...
    pub longer: u32,
    /// ... and by this much ...
    pub floor: Duration,
    /// ... or if they lose packets this many times as often, in thousandths. The pauses compared
    /// must be enough to expect twelve losses in them, if pausing made no difference.
    pub lossier: u32,
    /// Comparisons of round trips that show harm, less those that show none, after which low lanes
    /// stop.
    pub harmful: u32,
    /// Time after a comparison without harm until the next one; each time it doubles, ...
    pub gap: Duration,
    /// ... up to this.
    pub longest_gap: Duration,
    /// Time after which stopped low lanes are retried; each time it doubles, ...
    pub retest: Duration,
    /// ... up to this.
    pub longest_retest: Duration,
}

impl Default for PriorityTest {
    /// 15 % and 5 ms longer, or three times the loss; three comparisons; after 1 s up to 60 s;
    /// retried after 5 minutes up to an hour.
    fn default() -> Self {
        Self {
            longer: 150,
            floor: Duration::from_millis(5),
            lossier: 3000,
            harmful: 3,
            gap: Duration::from_secs(1),
            longest_gap: Duration::from_secs(60),
            retest: Duration::from_secs(300),
            longest_retest: Duration::from_secs(3600),
        }
    }
}

/// Round trips of the slowest high lane that each part of a comparison lasts. Of the pause and of
/// the part after it, the first two do not count, because packets in flight have to drain.
const BEFORE: u32 = 4;
const PAUSE: u32 = 4;
const AFTER: u32 = 6;
const SETTLE: u32 = 2;
/// Round trips of a pause in which losses are counted.
const LONG_PAUSE: u32 = 12;
/// Lower bound of the round trip used: timers are not exact.
const SHORTEST: Duration = Duration::from_millis(10);

/// Phase of the test. A comparison has three parts.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "a session has one, which it keeps in place")]
enum Phase {
    /// Between comparisons: the next begins with an acknowledgement on a low lane, but not before
    /// this time.
    Rest(Time),
    Before(Measurement),
    Pause(Before, Measurement),
    After(Before, [RoundTrips; MAX_LANES], Measurement),
    /// Low lanes do harm and are stopped. They are retried at this time.
    Stopped(Time),
}

/// Result of the part before a pause.
#[derive(Clone, Copy, Debug)]
struct Before {
    lanes: [RoundTrips; MAX_LANES],
    /// Transmission time of a packet of 1500 bytes at the rate of that part.
    packet_time: Duration,
}

/// Result of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The network does not serve the high layer first.
    Harm,
    /// The low lanes are due to be retried.
    TryAgain,
}

/// Result of one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Harm,
    Clear,
    /// There are losses, but too few for a decision.
    Suspect,
}

/// State of the test.
#[derive(Debug)]
pub(crate) struct LayerTest {
    test: PriorityTest,
    phase: Phase,
    /// Time from which on packets must have been sent to count.
    counts_from: Time,
    losses: Losses,
    /// Time of the last counted loss on each lane.
    lost_at: [Option<Time>; MAX_LANES],
    /// Time of the last acknowledgement on a low lane.
    low_at: Option<Time>,
    rtt: Duration,
    /// Set while losses are compared: pauses are long.
    suspect: bool,
    score: u32,
    gap: Duration,
    retest: Duration,
}

impl LayerTest {
    pub(crate) fn new(test: PriorityTest, now: Time) -> Self {
        Self {
            test,
            phase: Phase::Rest(now),
            counts_from: now,
            losses: Losses::new(now),
            lost_at: [None; MAX_LANES],
            low_at: None,
            rtt: SHORTEST,
            suspect: false,
            score: 0,
            gap: test.gap,
            retest: test.retest,
        }
    }

    /// Returns whether low lanes have to send nothing now.
    pub(crate) const fn is_off(&self) -> bool {
        matches!(self.phase, Phase::Pause(..) | Phase::Stopped(_))
    }

    /// Returns the time to [look](Self::look) even without an acknowledgement.
    pub(crate) const fn next_timeout(&self) -> Option<Time> {
        match &self.phase {
            Phase::Rest(_) => None,
            Phase::Before(part) | Phase::Pause(_, part) | Phase::After(_, _, part) => Some(part.until),
            Phase::Stopped(until) => Some(*until),
        }
    }

    /// Records that a packet on a high lane was acknowledged after `took`.
    pub(crate) fn acked(&mut self, now: Time, lane: LaneId, took: Duration, bytes: Bytes) {
        // Only packets sent after the part's settling time count.
        let counts = now.since(self.counts_from) >= took;
        if let Some(tally) = self.counted(now).filter(|_| counts) {
            tally.acked += 1;
        }
        if let Phase::Before(part) | Phase::Pause(_, part) | Phase::After(_, _, part) = &mut self.phase {
            part.acked(lane, counts.then_some(took), bytes);
        }
    }

    /// Records that a packet on a high lane is lost.
    pub(crate) fn lost(&mut self, now: Time, lane: LaneId) {
        // The time of sending is unknown; losses of packets from before the part are detected
        // within its settling time.
        let last = self.lost_at[lane.index()];
        let counts = now >= self.counts_from && last.is_none_or(|at| now.since(at) >= self.rtt);
        if let Some(tally) = self.counted(now).filter(|_| counts) {
            tally.lost += 1;
            self.lost_at[lane.index()] = Some(now);
        }
    }

    /// Tally of packets that are reported now. Packets are counted between comparisons, too, while
    /// low lanes send.
    fn counted(&mut self, now: Time) -> Option<&mut Tally> {
        let low_sends = self.low_at.is_some_and(|at| now.since(at) < self.rtt);
        match self.phase {
            Phase::Stopped(_) => None,
            Phase::Rest(_) if !low_sends => None,
            Phase::Pause(..) => Some(&mut self.losses.off),
            Phase::Rest(_) | Phase::Before(_) | Phase::After(..) => Some(&mut self.losses.on),
        }
    }

    /// Records that a packet on a low lane was acknowledged; `rtt` is the slowest high lane's
    /// round-trip time.
    pub(crate) fn low_acked(&mut self, now: Time, bytes: Bytes, rtt: Duration) {
        self.low_at = Some(now);
        self.rtt = rtt.max(SHORTEST);
        if let Phase::Rest(until) = self.phase
            && now >= until
        {
            self.phase = Phase::Before(self.begin(now, BEFORE, 0, rtt));
        }
        if let Phase::Before(part) | Phase::After(_, _, part) = &mut self.phase {
            part.low_acked(bytes);
        }
    }

    /// Begins a part of this many round trips, of which the first `settle` do not count.
    fn begin(&mut self, now: Time, rtts: u32, settle: u32, rtt: Duration) -> Measurement {
        let rtt = rtt.max(SHORTEST);
        self.counts_from = now + rtt * settle;
        Measurement::new(now, now + rtt * rtts)
    }

    /// Advances the test if a part has ended; `rtt` is the slowest high lane's round-trip time.
    pub(crate) fn look(&mut self, now: Time, rtt: Duration) -> Option<Finding> {
        if self.next_timeout().is_none_or(|at| at > now) {
            return None;
        }
        let finding;
        (self.phase, finding) = self.next(now, rtt);
        finding
    }

    /// Returns the phase that follows the present one, and what that has found. The only place at
    /// which a phase ends.
    fn next(&mut self, now: Time, rtt: Duration) -> (Phase, Option<Finding>) {
        match self.phase {
            Phase::Rest(until) => (Phase::Rest(until), None),
            Phase::Before(part) if part.is_conclusive() => (self.pause(now, &part, rtt), None),
            // Too little is sent for a comparison, and so too little to do harm.
            Phase::Before(_) => (Phase::Rest(now + rtt), None),
            Phase::Pause(before, part) => {
                (Phase::After(before, part.lanes, self.begin(now, AFTER, SETTLE, rtt)), None)
            }
            Phase::After(before, pause, part) => {
                let verdict = self.judge(now, &before, &pause, &part.lanes);
                self.conclude(now, rtt, &part, verdict)
            }
            Phase::Stopped(_) => {
                // One more harmful comparison is enough.
                self.score = self.test.harmful.saturating_sub(1);
                self.losses.clear();
                (Phase::Rest(now), Some(Finding::TryAgain))
            }
        }
    }

    fn pause(&mut self, now: Time, part: &Measurement, rtt: Duration) -> Phase {
        let before = Before { lanes: part.lanes, packet_time: part.packet_time(now) };
        let rtts = if self.suspect { LONG_PAUSE } else { PAUSE };
        Phase::Pause(before, self.begin(now, rtts, SETTLE, rtt))
    }

    /// Judges a comparison; `None` if there was too little to compare.
    fn judge(
        &mut self,
        now: Time,
        before: &Before,
        pause: &[RoundTrips; MAX_LANES],
        after: &[RoundTrips; MAX_LANES],
    ) -> Option<Verdict> {
        match (self.losses.compare(now, &self.test), self.compare_round_trips(before, pause, after)) {
            (Some(Verdict::Harm), _) => {
                self.score = self.test.harmful;
                Some(Verdict::Harm)
            }
            (_, Some(Verdict::Harm)) => {
                self.score += 1;
                Some(Verdict::Harm)
            }
            (Some(verdict), _) => Some(verdict),
            (None, verdict) => verdict,
        }
    }

    /// Draws the conclusion of a comparison that ended with the measurement `after`.
    fn conclude(
        &mut self,
        now: Time,
        rtt: Duration,
        after: &Measurement,
        verdict: Option<Verdict>,
    ) -> (Phase, Option<Finding>) {
        let Some(verdict) = verdict else { return (Phase::Rest(now + rtt), None) };
        self.suspect = verdict == Verdict::Suspect;
        match verdict {
            Verdict::Harm if self.score >= self.test.harmful => {
                let until = now + self.retest;
                self.retest = (self.retest * 2).min(self.test.longest_retest);
                return (Phase::Stopped(until), Some(Finding::Harm));
            }
            Verdict::Harm | Verdict::Suspect => self.gap = self.test.gap,
            Verdict::Clear => {
                self.score = self.score.saturating_sub(1);
                if self.score == 0 {
                    let until = now + self.gap;
                    if self.gap >= self.test.longest_gap {
                        // The low lanes have done no harm for long.
                        self.retest = self.test.retest;
                    }
                    self.gap = (self.gap * 2).min(self.test.longest_gap);
                    return (Phase::Rest(until), None);
                }
            }
        }
        // The measurement after this pause also serves as the one before the next.
        let phase = if after.is_conclusive() { self.pause(now, after, rtt) } else { Phase::Rest(now + rtt) };
        (phase, None)
    }

    /// Compares round trips; `None` if a part has too few acknowledgements.
    fn compare_round_trips(
        &self,
        before: &Before,
        pause: &[RoundTrips; MAX_LANES],
        after: &[RoundTrips; MAX_LANES],
    ) -> Option<Verdict> {
        let mut verdict = None;
        for ((earlier, pause), after) in before.lanes.iter().zip(pause).zip(after) {
            let (Some(earlier), Some(alone), Some(after)) = (earlier.mean(), pause.mean(), after.mean())
            else {
                continue;
            };
            // The lesser of both: a queue that fills or drains steadily raises only one of them.
            let with = earlier.min(after);
            // A packet may meet a low one already in transmission, even with strict priority. So up
            // to three packet times are allowed.
            let allowed = (alone * self.test.longer / 1000).max(self.test.floor).max(before.packet_time * 3);
            if with > alone + allowed {
                return Some(Verdict::Harm);
            }
            verdict = Some(Verdict::Clear);
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIGH: LaneId = LaneId::FIRST;
    const STEP: Duration = Duration::from_millis(1);

    /// Network in which one packet per millisecond is sent on either lane.
    struct World {
        layers: LayerTest,
        now: Time,
        findings: Vec<(Time, Finding)>,
        /// Milliseconds in which low lanes sent nothing.
        off: u64,
        round_trips: u64,
    }

    impl World {
        fn new() -> Self {
            let layers = LayerTest::new(PriorityTest::default(), Time::ZERO);
            Self { layers, now: Time::ZERO, findings: Vec::new(), off: 0, round_trips: 0 }
        }

        /// Runs until `until`. A high packet takes `rtt` or is lost, depending on the time and on
        /// whether low lanes are off.
        fn run(
            &mut self,
            until: Time,
            rtt: impl Fn(Time, bool) -> Duration,
            lost: impl Fn(u64, bool) -> bool,
        ) {
            while self.now < until {
                self.now += STEP;
                let off = self.layers.is_off();
                let rtt = rtt(self.now, off);
                self.round_trips += 1;
                if lost(self.round_trips, off) {
                    self.layers.lost(self.now, HIGH);
                } else {
                    self.layers.acked(self.now, HIGH, rtt, Bytes::new(1200));
                }
                if off {
                    self.off += 1;
                } else {
                    self.layers.low_acked(self.now, Bytes::new(1200), rtt);
                }
                if let Some(finding) = self.layers.look(self.now, rtt) {
                    self.findings.push((self.now, finding));
                }
            }
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn never(_: u64, _: bool) -> bool {
        false
    }

    #[test]
    fn harmless_low_lanes_pause_less_than_one_percent_of_the_time() {
        let mut world = World::new();
        world.run(Time::from_secs(600), |_, _| ms(80), never);
        assert_eq!(world.findings, []);
        assert!(world.off < 6000, "{} ms", world.off);
    }

    #[test]
    fn a_longer_round_trip_while_low_lanes_send_stops_them() {
        let mut world = World::new();
        world.run(Time::from_secs(20), |_, off| ms(if off { 80 } else { 120 }), never);
        let (at, finding) = world.findings[0];
        assert_eq!((world.findings.len(), finding), (1, Finding::Harm));
        // Four, and three times ten round trips.
        assert!(at < Time::from_secs(4), "{at:?}");
        assert!(matches!(world.layers.phase, Phase::Stopped(_)));
        // They are retried after 300 s, 600 s, 1200 s …, and one comparison is enough then.
        world.run(Time::from_secs(1000), |_, off| ms(if off { 80 } else { 120 }), never);
        let again = |(at, finding): &(Time, Finding)| (*finding == Finding::TryAgain).then_some(*at);
        let times: Vec<_> = world.findings.iter().filter_map(again).collect();
        assert_eq!(times.len(), 2);
        assert!(times[0].since(at) == Duration::from_secs(300));
        assert!(times[1].since(times[0]) > Duration::from_secs(600));
        assert!(times[1].since(times[0]) < Duration::from_secs(602));
    }

    #[test]
    fn queues_that_fill_and_drain_by_themselves_stop_nothing() {
        // A sawtooth from 80 to 160 ms, with periods from half a second to twenty.
        for period in [500, 900, 1700, 3000, 7000, 20_000] {
            let mut world = World::new();
            let saw = |now: Time, _| ms(80 + now.as_nanos() / 1_000_000 % period * 80 / period);
            world.run(Time::from_secs(600), saw, never);
            assert_eq!(world.findings, [], "period {period} ms");
        }
    }

    #[test]
    fn only_losses_that_coincide_with_low_lanes_stop_them() {
        // One loss in 100, with low lanes only and practically no queue.
        let mut world = World::new();
        world.run(Time::from_secs(60), |_, _| ms(80), |n, off| !off && n % 100 == 0);
        assert_eq!(world.findings.len(), 1);
        assert!(world.findings[0].0 < Time::from_secs(15), "{:?}", world.findings);
        for every in [10, 100, 1000] {
            let mut world = World::new();
            world.run(Time::from_secs(600), |_, _| ms(80), |n, _| n % every == 0);
            assert_eq!(world.findings, [], "one of {every}");
        }
    }

    #[test]
    fn one_packet_s_time_is_no_harm() {
        // 1500 bytes at 1 Mbit/s take 12 ms: a high packet may wait that long for a low one in
        // transmission.
        let mut layers = LayerTest::new(PriorityTest::default(), Time::ZERO);
        let mut now = Time::ZERO;
        while now < Time::from_secs(60) {
            now += ms(24);
            let rtt = ms(if layers.is_off() { 30 } else { 42 });
            layers.acked(now, HIGH, rtt, Bytes::new(1500));
            if !layers.is_off() {
                layers.low_acked(now, Bytes::new(1500), rtt);
            }
            assert_eq!(layers.look(now, rtt), None, "{now:?}");
        }
    }

    #[test]
    fn a_session_that_rests_needs_no_timer() {
        let mut layers = LayerTest::new(PriorityTest::default(), Time::ZERO);
        assert_eq!(layers.next_timeout(), None);
        layers.low_acked(Time::from_secs(1), Bytes::new(1200), ms(80));
        let until = layers.next_timeout().unwrap();
        assert_eq!(until, Time::from_millis(1320));
        assert_eq!(layers.look(until, ms(80)), None);
        assert_eq!(layers.next_timeout(), None);
        assert!(!layers.is_off());
    }
}
