//! The governor above rounds of acknowledgements: which of them make it change its mode, and when.

use std::vec::Vec;

use marcato_units::Priority;

use super::*;

const MSS: Bytes = Bytes::new(1500);

/// Acknowledgements of a sender, a packet each, with as many packets in flight as the path and its queue hold,
/// or as the cap allows.
struct Rounds {
    governor: Governor,
    now: Time,
    delivered: Bytes,
    base: Duration,
    /// Time between packets at the full rate, and now.
    full: Duration,
    interval: Duration,
    /// Time that packets wait in the queue.
    queueing: Duration,
    /// The cap, and not the window of the engine, holds data back.
    bound: bool,
}

impl Rounds {
    /// Sender in steady mode, after a second.
    fn over(base: Duration, full: Duration) -> Self {
        let governor = Governor::new(CoupledConfig::new(MSS));
        let (now, delivered, queueing) = (Time::ZERO, Bytes::ZERO, Duration::ZERO);
        let mut rounds =
            Self { governor, now, delivered, base, full, interval: full, queueing, bound: false };
        while rounds.now < Time::from_secs(1) {
            rounds.round();
        }
        assert_eq!(rounds.governor.mode(), Mode::Steady);
        rounds
    }

    /// Sender of a packet each millisecond over 40 ms. Queues of more than 5.25 ms are not its own.
    fn new() -> Self {
        Self::over(Duration::from_millis(40), Duration::from_millis(1))
    }

    /// Sender beside others, which take all but a quarter of the rate.
    fn squeezed() -> Self {
        let mut rounds = Self::new();
        rounds.interval = rounds.full * 4;
        rounds.rounds(4);
        assert_eq!(rounds.queued(), Some(0));
        rounds
    }

    /// Sender that has begun to compete in the latest round, at a quarter of the rate.
    fn competing() -> Self {
        let mut rounds = Self::squeezed();
        rounds.wait(10);
        rounds.round();
        assert_eq!(rounds.lossy_round(), Mode::Compete);
        rounds
    }

    /// Rounds with a queue of others that steady mode has seen; `None` in other modes.
    fn queued(&self) -> Option<u32> {
        let State::Steady(steady) = &self.governor.state else { return None };
        Some(steady.queued_rounds)
    }

    fn acknowledge(&mut self, lost: bool) {
        self.now += self.interval;
        self.delivered += MSS;
        let rtt = self.base + self.queueing;
        let packets = u64::try_from(rtt.as_nanos() / self.interval.as_nanos()).unwrap();
        let in_flight = (MSS * packets).min(self.governor.allowance().background);
        let sample = Sample {
            delivered: self.delivered,
            in_flight,
            rtt: Some(rtt),
            back: Duration::ZERO,
            lost,
            urgent: false,
        };
        if self.bound {
            let refused = Demand { waiting: PrioritySet::one(Priority::P4), outstanding: Bytes::MAX };
            self.governor.room(refused, MSS);
        }
        self.governor.sample(self.now, &sample);
    }

    /// Acknowledges until a round is judged, and returns the mode.
    fn round(&mut self) -> Mode {
        let before = self.governor.counters().rounds;
        while self.governor.counters().rounds == before {
            self.acknowledge(false);
        }
        self.governor.mode()
    }

    fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            self.round();
        }
    }

    /// Loses a packet in the middle of a round.
    fn lossy_round(&mut self) -> Mode {
        self.acknowledge(false);
        self.acknowledge(true);
        self.round()
    }

    /// Sets the queueing delay in milliseconds.
    fn wait(&mut self, millis: u64) {
        self.queueing = Duration::from_millis(millis);
    }

    /// Lets rounds pass until the mode changes, at most two minutes. Returns the mode, and the time that passed.
    fn change(&mut self) -> (Mode, Duration) {
        let (mode, since) = (self.governor.mode(), self.now);
        while self.round() == mode && self.now.since(since) < Duration::from_secs(120) {}
        (self.governor.mode(), self.now.since(since))
    }
}

/// Asserts that a time is at least `least`, and at most a few round trips longer.
#[track_caller]
fn assert_soon_after(took: Duration, least: Duration, margin: Duration) {
    assert!(took >= least && took <= least + margin, "{took:?}, expected {least:?}");
}

#[test]
fn the_fourth_round_with_a_queue_of_others_leads_to_a_test() {
    let mut rounds = Rounds::squeezed();
    rounds.wait(10);
    let modes: Vec<_> = (0..4).map(|_| rounds.round()).collect();
    assert_eq!(modes, [Mode::Steady, Mode::Steady, Mode::Steady, Mode::Test]);
}

#[test]
fn rounds_with_a_queue_of_others_have_to_follow_each_other() {
    let mut rounds = Rounds::squeezed();
    for _ in 0..6 {
        for millis in [10, 10, 10, 0] {
            rounds.wait(millis);
            assert_eq!(rounds.round(), Mode::Steady);
        }
    }
}

#[test]
fn a_queue_is_no_matter_while_half_of_the_rate_is_left() {
    let mut rounds = Rounds::new();
    rounds.interval = Duration::from_micros(1900);
    rounds.rounds(4);
    rounds.queueing = Duration::from_micros(6500);
    assert!((0..20).all(|_| rounds.round() == Mode::Steady && rounds.queued() > Some(0)));
}

#[test]
fn a_loss_in_the_second_round_of_a_queue_leads_to_competing() {
    let mut rounds = Rounds::squeezed();
    rounds.wait(10);
    assert_eq!([rounds.lossy_round(), rounds.lossy_round()], [Mode::Steady, Mode::Compete]);
}

#[test]
fn a_loss_counts_for_its_own_round_only() {
    let mut rounds = Rounds::squeezed();
    rounds.lossy_round();
    rounds.wait(10);
    assert_eq!([(); 3].map(|()| rounds.round()), [Mode::Steady; 3]);
}

#[test]
fn a_loss_says_nothing_while_half_of_the_rate_is_left() {
    let mut rounds = Rounds::new();
    rounds.wait(6);
    assert!((0..20).all(|_| rounds.lossy_round() == Mode::Steady));
}

#[test]
fn a_competing_cap_grows_with_each_acknowledgement_and_goes() {
    let mut rounds = Rounds::competing();
    rounds.bound = true;
    for _ in 0..8 {
        let cap = rounds.governor.cap().unwrap();
        rounds.acknowledge(false);
        assert_eq!(rounds.governor.cap(), Some(cap + MSS));
    }
    rounds.round();
    assert!(rounds.governor.cap().is_some(), "it is still the bound");
    rounds.bound = false;
    // The round that had begun was bound.
    rounds.rounds(2);
    assert_eq!((rounds.governor.mode(), rounds.governor.cap()), (Mode::Compete, None));
}

#[test]
fn tests_that_fail_come_later_and_on_a_common_clock() {
    let mut rounds = Rounds::competing();
    rounds.wait(60);
    // Ten round trips of 100 ms, by factors of 4 and 16 or more: powers of two that are no shorter.
    for (period, least) in [(4, 2), (16, 8)] {
        let (mode, after) = rounds.change();
        assert_eq!((mode, rounds.round()), (Mode::Test, Mode::Compete));
        assert!(after >= Duration::from_secs(least), "{after:?}");
        let past = rounds.now.since(Time::ZERO).as_nanos() % Duration::from_secs(period).as_nanos();
        // The test is judged a few round trips after it was due.
        assert!(past < Duration::from_secs(1).as_nanos(), "{period} s: {:?}", rounds.now);
    }
}

#[test]
fn behind_a_base_of_long_ago_a_squeeze_comes_first() {
    let mut rounds = Rounds::competing();
    rounds.wait(60);
    let begin = rounds.now;
    let mut old = Vec::new();
    while rounds.now < begin + Duration::from_secs(200) {
        let (mode, _) = rounds.change();
        if rounds.now > begin + Duration::from_secs(62) {
            old.push(mode);
        }
    }
    let at = old.iter().position(|mode| *mode == Mode::Squeeze).unwrap();
    // The rate does not fall with the window, so that the drain follows. What it leaves may be the path itself: a lift.
    assert_eq!(old[at..at + 3], [Mode::Squeeze, Mode::Test, Mode::Lift], "{old:?}");
}

#[test]
fn on_a_short_path_tests_come_once_in_a_second() {
    let base = Duration::from_millis(2);
    let mut rounds = Rounds::over(base, Duration::from_micros(100));
    rounds.interval = rounds.full * 4;
    rounds.rounds(8);
    rounds.queueing = Duration::from_millis(1);
    rounds.round();
    assert_eq!(rounds.lossy_round(), Mode::Compete);
    rounds.queueing = base;
    let (mode, after) = rounds.change();
    assert_eq!(mode, Mode::Test);
    assert!(after >= Duration::from_millis(750) && after <= Duration::from_millis(1800), "{after:?}");
}

#[test]
fn a_queue_of_more_than_four_round_trips_is_squeezed_first() {
    for (millis, expected) in [(155, Mode::Test), (165, Mode::Squeeze)] {
        let mut rounds = Rounds::competing();
        rounds.wait(millis);
        assert_eq!(rounds.change().0, expected, "{millis} ms");
    }
}

#[test]
fn a_squeeze_that_costs_eight_percent_of_the_rate_hits_others() {
    for (percent, expected) in [(94, Mode::Test), (91, Mode::Compete)] {
        let mut rounds = Rounds::competing();
        rounds.wait(200);
        // A window that is used, so that three quarters of it are in flight after the cut.
        assert_eq!(rounds.change().0, Mode::Squeeze);
        rounds.interval = rounds.interval * 100 / percent;
        assert_eq!(rounds.change().0, expected, "{percent} %");
    }
}

#[test]
fn competing_ends_after_five_seconds_and_twenty_calm_rounds() {
    for (base, least) in [(40, 5000), (400, 20 * 400)] {
        let base = Duration::from_millis(base);
        let mut rounds = Rounds::competing();
        rounds.interval = rounds.full;
        rounds.base = base;
        rounds.governor.path.renew(rounds.now, base);
        // The last rounds with a queue of others, of more than a tenth of the round trip.
        rounds.queueing = base / 8 + Duration::from_millis(2);
        rounds.rounds(3);
        rounds.wait(0);
        let (mode, after) = rounds.change();
        assert_eq!(mode, Mode::Steady);
        assert_soon_after(after, Duration::from_millis(least), base * 3);
    }
}

#[test]
fn rounds_without_a_queue_have_to_follow_each_other() {
    let mut rounds = Rounds::competing();
    rounds.interval = rounds.full;
    for round in 0..2000 {
        // Too short for a test: less than twice what is not our own.
        rounds.wait(if round % 50 == 0 { 7 } else { 0 });
        assert_eq!(rounds.round(), Mode::Compete, "round {round}");
    }
}

#[test]
fn nothing_is_judged_while_more_than_the_cap_is_in_flight() {
    let mut rounds = Rounds::new();
    rounds.wait(10);
    let cuts = rounds.governor.counters().cuts;
    rounds.round();
    assert_eq!(rounds.governor.counters().cuts, cuts + 1);
    let (cap, judged) = (rounds.governor.cap().unwrap(), rounds.governor.counters().rounds);
    // Urgent data passes the cap.
    let pass = |rounds: &mut Rounds, in_flight| {
        rounds.now += rounds.interval;
        rounds.delivered += MSS;
        let rtt = Some(rounds.base + rounds.queueing);
        let sample = Sample {
            delivered: rounds.delivered,
            in_flight,
            rtt,
            back: Duration::ZERO,
            lost: false,
            urgent: true,
        };
        rounds.governor.sample(rounds.now, &sample);
    };
    (0..500).for_each(|_| pass(&mut rounds, cap + MSS));
    assert_eq!(rounds.governor.counters().rounds, judged);
    // What was in flight when the cap held again says nothing either.
    let in_flight = cap.get() / MSS.get();
    (0..in_flight * 2).for_each(|_| pass(&mut rounds, MSS * in_flight));
    assert_eq!(rounds.governor.counters().rounds, judged);
    pass(&mut rounds, MSS * in_flight);
    assert_eq!(rounds.governor.counters().rounds, judged + 1);
}

#[test]
fn startup_tolerates_a_queue_of_an_eighth_of_the_round_trip() {
    // A packet each millisecond, so that the two packets of the aim are less than that.
    for (micros, expected) in [(4900, Mode::Startup), (5100, Mode::Steady)] {
        let mut governor = Governor::new(CoupledConfig::new(MSS));
        let mut sample = Sample {
            delivered: Bytes::ZERO,
            in_flight: MSS * 45,
            rtt: Some(Duration::from_millis(40)),
            back: Duration::ZERO,
            lost: false,
            urgent: false,
        };
        for number in 1..200 {
            sample.delivered += MSS;
            governor.observe(Time::from_millis(number), &sample);
        }
        sample.delivered += MSS;
        sample.rtt = Some(Duration::from_millis(40) + Duration::from_micros(micros));
        governor.sample(Time::from_millis(200), &sample);
        assert_eq!(governor.mode(), expected, "{micros} µs");
    }
}

#[test]
fn the_latest_loss_decides_for_how_much_is_left_to_others() {
    let mut rounds = Rounds::new();
    let left = |rounds: &Rounds| {
        let Governor { path, config, .. } = &rounds.governor;
        path.left_over(rounds.now, Rate::from_mbps(4), rounds.base, config)
    };
    let rare = left(&rounds);
    for _ in 0..3 {
        rounds.lossy_round();
        let often = left(&rounds);
        assert!(often < rare, "{often:?} of {rare:?}");
        let until = rounds.now + Duration::from_secs(5);
        while rounds.now < until {
            rounds.round();
        }
        assert_eq!(left(&rounds), rare);
    }
}

#[test]
fn a_path_of_few_packets_is_not_taken_for_bbr() {
    for (packets, expected) in [(5, false), (30, true)] {
        let millis = Duration::from_millis(40);
        let mut rounds = Rounds::over(millis, millis / packets);
        let cap = rounds.governor.cap().unwrap();
        assert_eq!(cap <= MSS * FLOOR * 2, !expected, "{cap}");
        // Four packets in flight for as long as ProbeRTT lasts.
        rounds.interval = millis / 4;
        let until = rounds.now + Duration::from_millis(220);
        while rounds.now < until {
            rounds.acknowledge(false);
        }
        rounds.interval = rounds.full;
        (0..3).for_each(|_| rounds.acknowledge(false));
        assert_eq!(rounds.governor.probe.known(), expected, "{packets} packets");
    }
}
