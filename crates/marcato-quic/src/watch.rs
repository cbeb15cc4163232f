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

use marcato_sched::lane::{LaneId, MAX_LANES};
use marcato_units::{Bytes, Duration, Time};

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
/// Packets of a high lane that have to be acknowledged in each part.
const ENOUGH: u64 = 5;
/// Round trips of a pause in which losses are counted.
const LONG_PAUSE: u32 = 12;
/// Losses required while low lanes send before rates are compared ...
const MANY_LOST: u64 = 8;
/// ... and loss rate required: less harms little.
const RATE: f64 = 0.002;
/// Losses that have to be expected in pauses before rates are compared: a Poisson variable of mean
/// 12 is below 4 once in 400 times.
const EXPECTED: f64 = 12.0;
/// Time until losses are compared again, once they were found as frequent in pauses.
const LOSS_GAP: Duration = Duration::from_secs(60);
/// Number of packets of a low loss rate that are remembered: older ones count less and less.
const REMEMBERED: u64 = 10_000;
/// Lower bound of the round trip used: timers are not exact.
const SHORTEST: Duration = Duration::from_millis(10);

/// Acknowledgements and losses of a high lane's packets.
#[derive(Clone, Copy, Debug, Default)]
struct Feedback {
    acked: u64,
    lost: u64,
    /// Sum of their round trips, in µs.
    micros: u64,
}

impl Feedback {
    const NONE: [Self; MAX_LANES] = [Self { acked: 0, lost: 0, micros: 0 }; MAX_LANES];

    fn mean(&self) -> Duration {
        Duration::from_micros(self.micros / self.acked.max(1))
    }

    fn total(&self) -> u64 {
        self.acked + self.lost
    }

    fn rate(&self) -> f64 {
        self.lost as f64 / self.total().max(1) as f64
    }

    fn age(&mut self) {
        if self.total() > REMEMBERED {
            self.acked /= 2;
            self.lost /= 2;
        }
    }
}

/// Part of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Between comparisons: the next begins with an acknowledgement on a low lane, but not before
    /// this time.
    Rest(Time),
    Before,
    Pause,
    After,
    /// Low lanes do harm and are stopped. They are retried at this time.
    Stopped(Time),
}

/// Result of the watch.
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
pub(crate) struct Watch {
    test: PriorityTest,
    part: Part,
    since: Time,
    /// Time from which on packets must have been sent to count.
    counts_from: Time,
    until: Time,
    now: [Feedback; MAX_LANES],
    before: [Feedback; MAX_LANES],
    pause: [Feedback; MAX_LANES],
    /// Bytes acknowledged on all lanes in this part; `low_bytes` are those on low lanes.
    bytes: Bytes,
    low_bytes: Bytes,
    /// Transmission time of a packet of 1500 bytes at the rate before the pause.
    packet_time: Duration,
    /// Totals while low lanes sent (`on`) and while they paused (`off`).
    on: Feedback,
    off: Feedback,
    /// Time before which losses are not compared, and interval to the comparison after that.
    losses_from: Time,
    loss_gap: Duration,
    /// Time of the last counted loss on each lane, and of the last acknowledgement on a low lane.
    lost_at: [Time; MAX_LANES],
    low_at: Time,
    rtt: Duration,
    /// Set while losses are compared: pauses are long.
    suspect: bool,
    score: u32,
    gap: Duration,
    retest: Duration,
}

impl Watch {
    pub(crate) fn new(test: PriorityTest, now: Time) -> Self {
        Self {
            test,
            part: Part::Rest(now),
            since: now,
            counts_from: now,
            until: now,
            now: Feedback::NONE,
            before: Feedback::NONE,
            pause: Feedback::NONE,
            bytes: Bytes::ZERO,
            low_bytes: Bytes::ZERO,
            packet_time: Duration::ZERO,
            on: Feedback::default(),
            off: Feedback::default(),
            losses_from: now,
            loss_gap: LOSS_GAP,
            lost_at: [Time::ZERO; MAX_LANES],
            low_at: Time::ZERO,
            rtt: SHORTEST,
            suspect: false,
            score: 0,
            gap: test.gap,
            retest: test.retest,
        }
    }

    /// Returns whether low lanes have to send nothing now.
    pub(crate) const fn is_off(&self) -> bool {
        matches!(self.part, Part::Pause | Part::Stopped(_))
    }

    /// Returns the time to [look](Self::look) even without an acknowledgement.
    pub(crate) const fn next_timeout(&self) -> Option<Time> {
        match self.part {
            Part::Rest(_) => None,
            Part::Before | Part::Pause | Part::After => Some(self.until),
            Part::Stopped(until) => Some(until),
        }
    }

    /// Records that a packet on a high lane was acknowledged after `took`.
    pub(crate) fn acked(&mut self, now: Time, lane: LaneId, took: Duration, bytes: Bytes) {
        match self.part {
            Part::Stopped(_) => return,
            // Packets are counted between comparisons, too, while low lanes send.
            Part::Rest(_) if !self.low_sends(now) => return,
            _ => {}
        }
        self.bytes += bytes;
        // Only packets sent after the part's settling time count.
        if now.since(self.counts_from) >= took {
            self.counted().acked += 1;
            let feedback = &mut self.now[lane.index()];
            feedback.acked += 1;
            feedback.micros += u64::try_from(took.as_micros()).unwrap_or(u64::MAX >> 16).min(u64::MAX >> 16);
        }
    }

    /// Records that a packet on a high lane is lost.
    pub(crate) fn lost(&mut self, now: Time, lane: LaneId) {
        match self.part {
            Part::Stopped(_) => return,
            Part::Rest(_) if !self.low_sends(now) => return,
            _ => {}
        }
        let at = &mut self.lost_at[lane.index()];
        // The time of sending is unknown; losses of packets from before the part are detected
        // within its settling time.
        if now >= self.counts_from && now.since(*at) >= self.rtt {
            *at = now;
            self.counted().lost += 1;
        }
    }

    fn low_sends(&self, now: Time) -> bool {
        now.since(self.low_at) < self.rtt
    }

    /// Totals to which losses count now.
    fn counted(&mut self) -> &mut Feedback {
        if self.part == Part::Pause { &mut self.off } else { &mut self.on }
    }

    /// Records that a packet on a low lane was acknowledged; `rtt` is the slowest high lane's
    /// round-trip time.
    pub(crate) fn low_acked(&mut self, now: Time, bytes: Bytes, rtt: Duration) {
        self.low_at = now;
        self.rtt = rtt.max(SHORTEST);
        match self.part {
            Part::Rest(until) if now >= until => self.begin(now, Part::Before, BEFORE, 0, rtt),
            Part::Rest(_) | Part::Stopped(_) | Part::Pause => return,
            Part::Before | Part::After => {}
        }
        self.bytes += bytes;
        self.low_bytes += bytes;
    }

    fn begin(&mut self, now: Time, part: Part, rtts: u32, settle: u32, rtt: Duration) {
        let rtt = rtt.max(SHORTEST);
        self.part = part;
        self.since = now;
        self.counts_from = now + rtt * settle;
        self.until = now + rtt * rtts;
        self.now = Feedback::NONE;
        self.bytes = Bytes::ZERO;
        self.low_bytes = Bytes::ZERO;
    }

    fn rest(&mut self, until: Time) {
        self.part = Part::Rest(until);
    }

    /// Advances the test if a part has ended; `rtt` is the slowest high lane's round-trip time.
    pub(crate) fn look(&mut self, now: Time, rtt: Duration) -> Option<Finding> {
        if self.next_timeout().is_none_or(|at| at > now) {
            return None;
        }
        match self.part {
            Part::Rest(_) => {}
            Part::Before if self.is_conclusive() => self.pause(now, rtt),
            // Too little is sent for a comparison, and so too little to do harm.
            Part::Before => self.rest(now + rtt),
            Part::Pause => {
                self.pause = self.now;
                self.begin(now, Part::After, AFTER, SETTLE, rtt);
            }
            Part::After => return self.judge(now, rtt),
            Part::Stopped(_) => {
                // One more harmful comparison is enough.
                self.score = self.test.harmful.saturating_sub(1);
                (self.on, self.off) = Default::default();
                self.rest(now);
                return Some(Finding::TryAgain);
            }
        }
        None
    }

    /// Returns whether low lanes carry enough, and high ones have enough acknowledgements, for a
    /// comparison.
    fn is_conclusive(&self) -> bool {
        self.low_bytes * 10 >= self.bytes && self.now.iter().any(|feedback| feedback.acked >= ENOUGH)
    }

    fn pause(&mut self, now: Time, rtt: Duration) {
        self.before = self.now;
        let nanos = now.since(self.since).as_nanos() * 1500 / u128::from(self.bytes.get().max(1));
        self.packet_time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let rtts = if self.suspect { LONG_PAUSE } else { PAUSE };
        self.begin(now, Part::Pause, rtts, SETTLE, rtt);
    }

    fn judge(&mut self, now: Time, rtt: Duration) -> Option<Finding> {
        let conclusive = self.is_conclusive();
        let verdict = match (self.compare_losses(now), self.compare_round_trips()) {
            (Some(Verdict::Harm), _) => {
                self.score = self.test.harmful;
                Verdict::Harm
            }
            (_, Some(Verdict::Harm)) => {
                self.score += 1;
                Verdict::Harm
            }
            (Some(Verdict::Suspect), _) => Verdict::Suspect,
            (Some(verdict), _) | (None, Some(verdict)) => verdict,
            (None, None) => {
                self.rest(now + rtt);
                return None;
            }
        };
        self.suspect = verdict == Verdict::Suspect;
        match verdict {
            Verdict::Harm if self.score >= self.test.harmful => {
                self.part = Part::Stopped(now + self.retest);
                self.retest = (self.retest * 2).min(self.test.longest_retest);
                return Some(Finding::Harm);
            }
            Verdict::Harm | Verdict::Suspect => self.gap = self.test.gap,
            Verdict::Clear => {
                self.score = self.score.saturating_sub(1);
                if self.score == 0 {
                    self.rest(now + self.gap);
                    if self.gap >= self.test.longest_gap {
                        // The low lanes have done no harm for long.
                        self.retest = self.test.retest;
                    }
                    self.gap = (self.gap * 2).min(self.test.longest_gap);
                    return None;
                }
            }
        }
        // The measurement after this pause also serves as the one before the next.
        if conclusive {
            self.pause(now, rtt);
        } else {
            self.rest(now + rtt);
        }
        None
    }

    /// Compares round trips; `None` if a part has too few acknowledgements.
    fn compare_round_trips(&self) -> Option<Verdict> {
        let mut verdict = None;
        for ((before, pause), after) in self.before.iter().zip(&self.pause).zip(&self.now) {
            if before.acked < ENOUGH || pause.acked < ENOUGH || after.acked < ENOUGH {
                continue;
            }
            let alone = pause.mean();
            // The lesser of both: a queue that fills or drains steadily raises only one of them.
            let with = before.mean().min(after.mean());
            // A packet may meet a low one already in transmission, even with strict priority. So up
            // to three packet times are allowed.
            let allowed = (alone * self.test.longer / 1000).max(self.test.floor).max(self.packet_time * 3);
            if with > alone + allowed {
                return Some(Verdict::Harm);
            }
            verdict = Some(Verdict::Clear);
        }
        verdict
    }

    /// Compares loss rates; `None` if there is nothing to compare.
    fn compare_losses(&mut self, now: Time) -> Option<Verdict> {
        let with = self.on.rate();
        if now < self.losses_from || self.on.lost < MANY_LOST || with < RATE {
            // Old rates say little about the present.
            self.on.age();
            self.off.age();
            return None;
        }
        let expected = with * self.off.total() as f64;
        let allowed = self.off.lost as f64 * f64::from(self.test.lossier) / 1000.0;
        // Once pauses have more losses than the final comparison allows, its result is certain.
        if expected.max(allowed) < EXPECTED {
            return Some(Verdict::Suspect);
        }
        let lossier = expected > allowed;
        (self.on, self.off) = Default::default();
        if lossier {
            return Some(Verdict::Harm);
        }
        self.losses_from = now + self.loss_gap;
        self.loss_gap = (self.loss_gap * 2).min(self.test.longest_retest);
        Some(Verdict::Clear)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIGH: LaneId = LaneId::FIRST;
    const STEP: Duration = Duration::from_millis(1);

    /// Network in which one packet per millisecond is sent on either lane.
    struct World {
        watch: Watch,
        now: Time,
        findings: Vec<(Time, Finding)>,
        /// Milliseconds in which low lanes sent nothing.
        off: u64,
        round_trips: u64,
    }

    impl World {
        fn new() -> Self {
            let watch = Watch::new(PriorityTest::default(), Time::ZERO);
            Self { watch, now: Time::ZERO, findings: Vec::new(), off: 0, round_trips: 0 }
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
                let off = self.watch.is_off();
                let rtt = rtt(self.now, off);
                self.round_trips += 1;
                if lost(self.round_trips, off) {
                    self.watch.lost(self.now, HIGH);
                } else {
                    self.watch.acked(self.now, HIGH, rtt, Bytes::new(1200));
                }
                if off {
                    self.off += 1;
                } else {
                    self.watch.low_acked(self.now, Bytes::new(1200), rtt);
                }
                if let Some(finding) = self.watch.look(self.now, rtt) {
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
        assert!(matches!(world.watch.part, Part::Stopped(_)));
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
        let mut watch = Watch::new(PriorityTest::default(), Time::ZERO);
        let mut now = Time::ZERO;
        while now < Time::from_secs(60) {
            now += ms(24);
            let rtt = ms(if watch.is_off() { 30 } else { 42 });
            watch.acked(now, HIGH, rtt, Bytes::new(1500));
            if !watch.is_off() {
                watch.low_acked(now, Bytes::new(1500), rtt);
            }
            assert_eq!(watch.look(now, rtt), None, "{now:?}");
        }
    }

    #[test]
    fn a_session_that_rests_needs_no_timer() {
        let mut watch = Watch::new(PriorityTest::default(), Time::ZERO);
        assert_eq!(watch.next_timeout(), None);
        watch.low_acked(Time::from_secs(1), Bytes::new(1200), ms(80));
        let until = watch.next_timeout().unwrap();
        assert_eq!(until, Time::from_millis(1320));
        assert_eq!(watch.look(until, ms(80)), None);
        assert_eq!(watch.next_timeout(), None);
        assert!(!watch.is_off());
    }
}
