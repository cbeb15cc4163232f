//! The governor above a simulated bottleneck.

use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use marcato_units::Priority;

use super::super::state::Before;
use super::super::steady::Steady;
use super::*;

const MSS: Bytes = Bytes::new(1500);
/// End of the warm-up of senders that are alone.
const WARM: Time = Time::from_secs(10);

/// Sender on a path: its data in flight, with the time at which each packet is acknowledged.
struct Sender {
    governor: Option<Governor>,
    /// Window of the engine below: it grows by a packet each round trip, and is halved at a loss.
    window: Bytes,
    slow_start: bool,
    flight: VecDeque<(Time, Time)>,
    delivered: Bytes,
    /// Packets that were lost, each with the time at which that is noticed.
    losses: VecDeque<Time>,
    recovered: Time,
    transitions: Vec<Transition>,
    /// Begins to send then, and stops then.
    active: (Time, Time),
}

impl Sender {
    fn new(governor: Option<Governor>) -> Self {
        Self {
            governor,
            window: MSS * 10,
            slow_start: true,
            flight: VecDeque::new(),
            delivered: Bytes::ZERO,
            losses: VecDeque::new(),
            recovered: Time::ZERO,
            transitions: Vec::new(),
            active: (Time::ZERO, Time::MAX),
        }
    }

    fn in_flight(&self) -> Bytes {
        MSS * (self.flight.len() + self.losses.len()) as u64
    }

    fn may_send(&mut self, now: Time) -> bool {
        let after = self.in_flight() + MSS;
        if now < self.active.0 || now >= self.active.1 || after > self.window {
            return false;
        }
        let Some(governor) = &mut self.governor else { return true };
        let demand = Demand { waiting: PrioritySet::one(Priority::P4), outstanding: after - MSS };
        governor.room(demand, MSS).is_whole(MSS)
    }

    fn next(&self) -> Option<Time> {
        let ack = self.flight.front().map(|&(at, _)| at);
        let loss = self.losses.front().copied();
        ack.into_iter().chain(loss).min()
    }

    /// Handles what has come until now.
    fn acknowledge(&mut self, now: Time) {
        while self.losses.front().is_some_and(|&at| at <= now) {
            let at = self.losses.pop_front().unwrap();
            let begin = self.recovered;
            if at > begin {
                self.window = (self.window / 2).max(MSS * 2);
                self.slow_start = false;
                // Losses of the same window count once.
                self.recovered = now + Duration::from_millis(50);
            }
            self.sample(now, None, true);
        }
        while self.flight.front().is_some_and(|&(at, _)| at <= now) {
            let (at, sent) = self.flight.pop_front().unwrap();
            self.delivered += MSS;
            let used = self.in_flight() + MSS * 4 >= self.window;
            let growth =
                if self.slow_start { MSS } else { Bytes::new(MSS.get() * MSS.get() / self.window.get()) };
            if used {
                self.window += growth;
            }
            self.sample(at, Some(at.since(sent)), false);
        }
    }

    fn sample(&mut self, now: Time, rtt: Option<Duration>, lost: bool) {
        let (delivered, in_flight) = (self.delivered, self.in_flight());
        let Some(governor) = &mut self.governor else { return };
        let sample = Sample { delivered, in_flight, rtt, back: Duration::ZERO, lost, urgent: false };
        self.transitions.extend(governor.sample(now, &sample));
        assert!(governor.cap().is_none_or(|cap| cap >= MSS * FLOOR), "{:?}", governor.cap());
    }
}

/// Bottleneck with a queue, and senders before it.
struct Network {
    rate: Rate,
    base: Duration,
    buffer: Duration,
    free: Time,
    now: Time,
    senders: Vec<Sender>,
    /// Bytes that the first sender had delivered at the end of the warm-up.
    warm: Bytes,
    /// Queueing delays of packets, with the times at which they were sent.
    delays: Vec<(Time, Duration)>,
}

impl Network {
    fn new(mbps: u64, rtt: u64, bdp: f64, senders: Vec<Sender>) -> Self {
        let base = Duration::from_millis(rtt);
        let (rate, buffer) = (Rate::from_mbps(mbps), base.mul_f64(bdp));
        Self {
            rate,
            base,
            buffer,
            free: Time::ZERO,
            now: Time::ZERO,
            senders,
            warm: Bytes::ZERO,
            delays: Vec::new(),
        }
    }

    fn run(&mut self, until: Duration) {
        let until = Time::ZERO + until;
        let tx = self.rate.transmission_time(MSS);
        while self.now < until {
            let mut order: Vec<usize> = (0..self.senders.len()).collect();
            order.rotate_left((self.now.as_nanos() / 7 % self.senders.len() as u64) as usize);
            for number in order {
                let sender = &mut self.senders[number];
                sender.acknowledge(self.now);
                while sender.may_send(self.now) {
                    let queueing = self.free.since(self.now);
                    if queueing > self.buffer {
                        sender.losses.push_back(self.now + self.buffer + self.base);
                        continue;
                    }
                    self.free = self.free.max(self.now) + tx;
                    sender.flight.push_back((self.free + self.base, self.now));
                    self.delays.push((self.now, queueing));
                }
            }
            let next = self.senders.iter().filter_map(Sender::next).min();
            let later = self.now + Duration::from_millis(1);
            self.now = next.unwrap_or(later).max(self.now + Duration::from_nanos(1)).min(later);
        }
    }

    /// Largest queueing delay of packets sent from then on.
    fn worst_delay(&self, from: Duration) -> Duration {
        let from = Time::ZERO + from;
        self.delays.iter().filter(|(at, _)| *at >= from).map(|(_, delay)| *delay).max().unwrap()
    }
}

fn alone(mbps: u64, rtt: u64, bdp: f64, governor: Governor) -> Network {
    let mut path = Network::new(mbps, rtt, bdp, std::vec![Sender::new(Some(governor))]);
    path.run(WARM.since(Time::ZERO));
    path.warm = path.senders[0].delivered;
    path.run(Duration::from_secs(40));
    path
}

/// Delay that a look may cause once in a while: it leaves a gap of an eighth of the cap in the pipe, which the next round
/// trip fills by a burst.
fn of_a_look(path: &Network) -> Duration {
    path.base / 8 + path.rate.transmission_time(MSS * 2)
}

fn governor() -> Governor {
    Governor::new(CoupledConfig::new(MSS))
}

/// Share of the rate that the first sender has from the tenth second on.
fn goodput(path: &Network) -> f64 {
    let ideal = path.rate.bytes_in(path.now.since(WARM));
    (path.senders[0].delivered - path.warm).get() as f64 / ideal.get() as f64
}

#[test]
fn alone_the_queue_holds_a_few_packets_at_the_full_rate() {
    for (mbps, rtt, bdp) in
        [(2, 100, 4.0), (10, 20, 1.0), (10, 100, 4.0), (10, 200, 1.0), (50, 20, 16.0), (50, 100, 1.0)]
    {
        let path = alone(mbps, rtt, bdp, governor());
        let packet = path.rate.transmission_time(MSS);
        let worst = path.worst_delay(Duration::from_secs(10));
        // Two packets that may stand there, one and a half before the cap is cut, and a burst of two.
        assert!(
            worst <= packet * 11 / 2 + of_a_look(&path),
            "{mbps} Mbit/s, {rtt} ms: {worst:?}, {packet:?} a packet"
        );
        assert!(goodput(&path) > 0.95, "{mbps} Mbit/s, {rtt} ms: {}", goodput(&path));
        let sender = &path.senders[0];
        let transitions: Vec<_> = sender.transitions.iter().map(|it| (it.from, it.to)).collect();
        assert_eq!(transitions, [(Mode::Startup, Mode::Steady)], "{mbps} Mbit/s, {rtt} ms");
    }
}

#[test]
fn the_aim_is_what_our_data_keeps_in_the_queue() {
    for aim in [1, 2, 4, 8, 16, 32] {
        let config = CoupledConfig { queued_packets: aim.into(), ..CoupledConfig::new(MSS) };
        let path = alone(10, 100, 4.0, Governor::new(config));
        let packet = path.rate.transmission_time(MSS);
        let worst = path.worst_delay(Duration::from_secs(10));
        let (least, most): (Duration, Duration) =
            (packet * (aim - 1), packet * (2 * aim + 7) / 2 + of_a_look(&path));
        assert!(least <= worst && worst <= most, "{aim} packets: {worst:?}, {packet:?} a packet");
        assert!(goodput(&path) > 0.95, "{aim} packets: {}", goodput(&path));
    }
}

#[test]
fn an_aim_of_none_counts_as_one() {
    let cap = |aim| {
        alone(10, 40, 4.0, Governor::new(CoupledConfig { queued_packets: aim, ..CoupledConfig::new(MSS) }))
    };
    let caps = [0, 1].map(|aim| cap(aim).senders[0].governor.unwrap().cap());
    assert_eq!(caps[0], caps[1]);
}

#[test]
fn slow_start_ends_before_it_fills_a_deep_buffer() {
    let path = alone(10, 40, 16.0, governor());
    assert!(path.worst_delay(Duration::ZERO) < path.base, "{:?}", path.worst_delay(Duration::ZERO));
}

#[test]
fn the_governor_steps_aside_for_a_greedy_flow_and_returns() {
    let mut other = Sender::new(None);
    other.active = (Time::ZERO + Duration::from_secs(10), Time::ZERO + Duration::from_secs(60));
    let mut path = Network::new(10, 40, 4.0, std::vec![Sender::new(Some(governor())), other]);
    path.run(Duration::from_secs(10));
    assert_eq!(path.senders[0].governor.unwrap().mode(), Mode::Steady);
    path.run(Duration::from_secs(20));
    let at = |path: &Network| path.senders[0].delivered;
    let before = at(&path);
    path.run(Duration::from_secs(60));
    let share = (at(&path) - before).get() as f64 / path.rate.bytes_in(Duration::from_secs(40)).get() as f64;
    let competed = path.senders[0].governor.unwrap().counters().time[Mode::Compete as usize];
    assert!(competed > Duration::from_secs(30), "{competed:?}");
    // Both follow one rule over one round trip: half each, but for what the tests cost.
    assert!((0.46..0.53).contains(&share), "{share}");
    path.run(Duration::from_secs(90));
    assert_eq!(path.senders[0].governor.unwrap().mode(), Mode::Steady);
    assert!(path.worst_delay(Duration::from_secs(85)) < Duration::from_millis(8));
}

#[test]
fn a_path_that_became_longer_is_known_after_ten_seconds() {
    let mut path = Network::new(2, 100, 4.0, std::vec![Sender::new(Some(governor()))]);
    path.run(Duration::from_secs(15));
    // Three packets more fill the path: at the old cap, the rate is 93 % of the link's.
    path.base = Duration::from_millis(120);
    path.run(Duration::from_secs(27));
    let before = path.senders[0].delivered;
    path.run(Duration::from_secs(40));
    let rate = (path.senders[0].delivered - before).get() as f64;
    let share = rate / path.rate.bytes_in(Duration::from_secs(13)).get() as f64;
    assert!(share > 0.985, "{share}");
    assert_eq!(path.senders[0].transitions.len(), 1, "from startup to steady");
}

#[test]
fn a_burst_of_others_is_no_reason_to_compete() {
    for packets in [60, 100, 150] {
        let mut other = Sender::new(None);
        other.window = MSS * packets;
        let begin = Time::from_secs(12);
        other.active = (begin, begin + Duration::from_millis(10));
        let mut path = Network::new(10, 40, 8.0, std::vec![Sender::new(Some(governor())), other]);
        path.run(Duration::from_secs(20));
        let worst = path.worst_delay(Duration::from_secs(12));
        assert!(worst > path.rate.transmission_time(MSS * (packets - 10)), "{packets}: {worst:?}");
        assert_eq!(path.senders[0].transitions.len(), 1, "{packets}: {:?}", path.senders[0].transitions);
    }
}

#[test]
fn urgent_data_may_pass_the_cap_by_a_bounded_amount() {
    let mut path = alone(10, 40, 1.0, governor());
    let sender = &mut path.senders[0];
    let (delivered, in_flight) = (sender.delivered, sender.in_flight());
    let governor = sender.governor.as_mut().unwrap();
    let cap = governor.cap().unwrap();
    let mut sample = |more: Bytes| {
        let sample = Sample {
            delivered: delivered + more,
            in_flight,
            rtt: None,
            back: Duration::ZERO,
            lost: false,
            urgent: true,
        };
        governor.sample(path.now, &sample);
        governor.allowance()
    };
    let at_first = sample(Bytes::ZERO);
    assert_eq!(at_first, Allowance { background: cap, urgent: cap.max(in_flight) + MSS * 2 });
    assert_eq!(sample(in_flight).urgent, at_first.urgent);
    assert_eq!(sample(in_flight + MSS * 8).urgent, at_first.urgent + MSS * 4);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn the_cap_neither_starves_a_constant_link_nor_fills_its_queue(
        mbps in 1u64..100, rtt in 5u64..300, bdp in 1.0f64..16.0,
    ) {
        // Eight packets of bandwidth-delay product: less, and the floor is a queue by itself.
        prop_assume!(mbps * rtt >= 8 * 12);
        let path = alone(mbps, rtt, bdp, governor());
        let packet = path.rate.transmission_time(MSS);
        prop_assert!(path.worst_delay(Duration::from_secs(10)) <= packet * 6 + of_a_look(&path), "{:?}", path.worst_delay(Duration::from_secs(10)));
        prop_assert!(goodput(&path) > 0.95, "{}", goodput(&path));
    }

    #[test]
    fn any_samples_keep_the_cap_above_the_floor(
        samples in proptest::collection::vec((0u64..50_000_000, 0u64..100_000, 0u64..1_000_000, any::<u8>()), 1..400)
    ) {
        let mut governor = governor();
        let refused = Demand { waiting: PrioritySet::one(Priority::P4), outstanding: Bytes::MAX };
        let (mut now, mut delivered) = (Time::ZERO, Bytes::ZERO);
        for (wait, bytes, in_flight, bits) in samples {
            now += Duration::from_nanos(wait);
            delivered += Bytes::new(bytes);
            let rtt = (bits & 1 == 1).then(|| Duration::from_nanos(wait * u64::from(bits)));
            let (lost, urgent) = (bits & 6 == 6, bits & 8 == 8);
            if bits & 16 == 16 {
                assert!(!governor.room(refused, MSS).is_whole(MSS) || governor.cap().is_none());
            }
            governor.sample(now, &Sample { delivered, in_flight: Bytes::new(in_flight), rtt, back: Duration::ZERO, lost, urgent });
            let allowance = governor.allowance();
            prop_assert!(allowance.background >= MSS * FLOOR && allowance.urgent >= allowance.background);
        }
    }
}

#[test]
fn a_queue_from_before_the_cap_goes_at_the_first_round_trip() {
    let mut governor = Governor::new(CoupledConfig::new(MSS));
    let mut sample = Sample {
        delivered: Bytes::ZERO,
        in_flight: MSS * 100,
        rtt: Some(Duration::from_millis(40)),
        back: Duration::ZERO,
        lost: false,
        urgent: false,
    };
    // A packet each millisecond: 40 fill the path, and 60 stand in the queue but for the first.
    for number in 1..500 {
        sample.delivered += MSS;
        sample.rtt = Some(Duration::from_millis(if number < 10 { 40 } else { 100 }));
        governor.observe(Time::from_millis(number), &sample);
        assert_eq!((governor.mode(), governor.cap()), (Mode::Startup, None));
    }
    assert_eq!(governor.counters(), Counters::default());
    sample.delivered += MSS;
    let transition = governor.sample(Time::from_millis(500), &sample);
    assert_eq!(transition.map(|it| (it.from, it.to)), Some((Mode::Startup, Mode::Steady)));
    assert_eq!(governor.cap(), Some(MSS * 42));
}

/// Acknowledgements of a first window as a kernel's connection saw them on a path of 2 Mbit/s and 100 ms, in ms
/// and bytes. Nothing is acknowledged before the first of them.
const FIRST_WINDOW: [(u64, u64, u64); 6] = [
    (102, 908, 102),
    (109, 2391, 108),
    (116, 3934, 113),
    (127, 6830, 115),
    (137, 9726, 123),
    (148, 12_622, 131),
];

#[test]
fn a_wait_for_the_first_window_is_no_slow_path() {
    let cap = |observed: bool| {
        let mut governor = Governor::new(CoupledConfig::new(Bytes::new(1448)));
        let mut sample = Sample {
            delivered: Bytes::new(675),
            in_flight: Bytes::new(15_000),
            rtt: Some(Duration::from_millis(101)),
            back: Duration::ZERO,
            lost: false,
            urgent: true,
        };
        if observed {
            governor.observe(Time::ZERO, &sample);
        } else {
            governor.sample(Time::ZERO, &sample);
        }
        for (at, delivered, rtt) in FIRST_WINDOW {
            sample.delivered = Bytes::new(delivered);
            sample.rtt = Some(Duration::from_millis(rtt));
            governor.sample(Time::from_millis(at), &sample);
        }
        governor.cap().unwrap()
    };
    // 25 kB are in flight on a full path.
    assert!(cap(true) > Bytes::kb(24), "{}", cap(true));
    // A round trip before that is no acknowledgement has to be observed for this reason.
    assert!(cap(false) < Bytes::kb(12), "{}", cap(false));
}

#[test]
fn a_queue_on_the_way_back_is_no_train() {
    let after = |back, loss| {
        let mut governor = governor();
        for packet in 1..=12 {
            // A packet each millisecond, and a round trip that grows by half of that.
            let (delivered, in_flight) = (MSS * packet, MSS * 12);
            let rtt = Some(Duration::from_micros(50_000 + packet * 500));
            let back = Duration::from_micros(if packet == 1 { 0 } else { back });
            let lost = loss && packet == 12;
            let sample = Sample { delivered, in_flight, rtt, back, lost, urgent: true };
            governor.sample(Time::from_millis(50 + packet), &sample);
        }
        (governor.mode(), governor.cap().is_some())
    };
    assert_eq!([0, 3000].map(|back| after(back, false)), [(Mode::Startup, true); 2]);
    assert_eq!(after(5000, false), (Mode::Startup, false));
    // A train may have been missed. So nobody else is blamed for a loss.
    assert_eq!(after(5000, true), (Mode::Steady, true));
}

#[test]
fn packets_that_became_larger_raise_the_floor() {
    // A train of eight packets, and the loss of the last.
    let mut governor = governor();
    governor.set_mss(MSS * 2);
    for packet in 1..=16 {
        let sample = Sample {
            delivered: MSS * packet,
            in_flight: MSS,
            rtt: Some(Duration::from_micros(packet * 500)),
            back: Duration::ZERO,
            lost: packet == 16,
            urgent: false,
        };
        governor.sample(Time::ZERO + Duration::from_micros(packet * 500), &sample);
    }
    assert_eq!(governor.mode(), Mode::Steady);
    assert_eq!(governor.cap(), Some(MSS * 8));
}

#[test]
fn the_queue_allowed_between_samples_grows_with_the_rate() {
    let config = CoupledConfig { poll: Duration::from_millis(1), ..CoupledConfig::new(Bytes::new(1000)) };
    let alpha = |mbps| config.alpha(Rate::from_mbps(mbps)).get();
    // A packet and 0.5 ms of data, and two packets more at rates at which acknowledgements are seen
    // together; at least two packets.
    assert_eq!([0, 2, 4, 8, 80].map(alpha), [2000, 2000, 2500, 3500, 8000]);
}

/// Acknowledgements of one sender: rounds of 40 ms with as many packets in flight as its window holds.
struct Acks {
    governor: Governor,
    now: Time,
    delivered: Bytes,
}

impl Acks {
    /// Sender whose cap is 43 packets.
    fn new() -> Self {
        let mut acks = Self { governor: governor(), now: Time::ZERO, delivered: Bytes::ZERO };
        acks.run(Duration::from_secs(1), 42);
        assert_eq!(
            (acks.governor.mode(), acks.governor.allowance().background > MSS * 40),
            (Mode::Steady, true)
        );
        acks
    }

    fn acknowledge(&mut self, after: Duration, in_flight: u64) {
        self.now += after;
        self.delivered += MSS;
        let rtt = Some(Duration::from_millis(40));
        let in_flight = MSS * in_flight;
        let sample = Sample {
            delivered: self.delivered,
            in_flight,
            rtt,
            back: Duration::ZERO,
            lost: false,
            urgent: false,
        };
        self.governor.sample(self.now, &sample);
    }

    /// A window of so many packets in each round trip, or what the cap allows.
    fn run(&mut self, length: Duration, window: u64) {
        let until = self.now + length;
        while self.now < until {
            let allowed = self.governor.allowance().background.get() / MSS.get();
            let window = if self.holds() { window } else { window.min(allowed) };
            self.acknowledge(Duration::from_millis(40) / u32::try_from(window).unwrap(), window);
        }
    }

    fn holds(&self) -> bool {
        self.governor.allowance().background == MSS
    }
}

#[test]
fn the_pipe_is_empty_when_bbr_would_give_up_its_window() {
    let mut acks = Acks::new();
    acks.run(Duration::from_millis(220), 4);
    let end = acks.now;
    acks.acknowledge(Duration::from_millis(10), 40);
    // The window came back at the last acknowledgement with four packets: so the next one is known.
    let expiry = end + Duration::from_secs(10);
    acks.run(expiry.since(acks.now) - Duration::from_millis(110), 42);
    assert!(!acks.holds());
    acks.run(Duration::from_millis(10), 42);
    assert!(acks.holds());
    let allowance = acks.governor.allowance();
    assert!(allowance.urgent > MSS * 40, "{allowance:?}");
    // The pipe empties. Until 40 ms before the expiry, one packet at a time: its restart would come too early.
    for in_flight in (0..42).rev() {
        acks.acknowledge(Duration::from_micros(500), in_flight);
        assert!(acks.holds(), "{in_flight}");
    }
    acks.acknowledge(Duration::from_millis(45), 0);
    assert!(acks.now < expiry && !acks.holds());
    // The acknowledgement after the expiry renews the estimate.
    acks.acknowledge(Duration::from_millis(40), 40);
    let renewed = acks.now;
    assert!(renewed > expiry);
    acks.run(Duration::from_millis(9890), 42);
    assert!(!acks.holds());
    acks.run(Duration::from_millis(10), 42);
    assert!(acks.holds());
}

#[test]
fn a_sender_that_stops_or_loses_is_not_taken_for_bbr() {
    for (window, length) in [(4, 100), (4, 400), (1, 150)] {
        let mut acks = Acks::new();
        acks.run(Duration::from_millis(length), window);
        acks.run(Duration::from_secs(11), 42);
        assert!(!acks.governor.probe.known(), "{window} packets for {length} ms");
    }
    // Nothing in flight: the application had nothing to send.
    let mut acks = Acks::new();
    acks.run(Duration::from_millis(110), 4);
    acks.acknowledge(Duration::ZERO, 0);
    acks.run(Duration::from_millis(110), 4);
    acks.run(Duration::from_secs(1), 42);
    assert!(!acks.governor.probe.known());
}

fn round(rate: Rate) -> Round {
    let base = Duration::from_millis(40);
    Round { most: MSS * 40, ..Round::at(rate, base, base) }
}

/// Governor in this state, on a path of 8 Mbit/s, before its first backoff is over.
fn within(state: State) -> Governor {
    let mut governor = governor();
    governor.path.renew(Time::ZERO, Duration::from_millis(40));
    governor.path.meter.forget(Rate::from_mbps(8));
    governor.tests.restart();
    governor.state = state;
    governor
}

#[test]
fn a_rate_made_small_by_a_test_does_not_make_others_look_fast() {
    let now = Time::from_secs(5);
    let rate = Rate::from_mbps(8);
    for state in [State::Test(Before::Compete(rate)), State::Squeeze { rate }] {
        let mut governor = within(state);
        governor
            .round_ended(now, &Round { queueing: Duration::from_millis(80), ..round(Rate::from_mbps(1)) });
        let State::Compete(competing) = governor.state else { panic!("{:?}", governor.state) };
        assert_eq!(competing.rate, rate);
    }
}

#[test]
fn the_pace_is_a_sixteenth_above_the_rate_of_the_bottleneck() {
    let mut governor = governor();
    let mut acknowledge = |packet, lost| {
        let at = Duration::from_millis(50 + packet);
        let (delivered, in_flight) = (MSS * packet, MSS * (10 - packet));
        let sample =
            Sample { delivered, in_flight, rtt: Some(at), back: Duration::ZERO, lost, urgent: false };
        governor.sample(Time::ZERO + at, &sample);
        (governor.mode(), governor.pace())
    };
    let paces: Vec<_> = (1..=8).map(|packet| acknowledge(packet, false)).collect();
    assert_eq!(paces[1], (Mode::Startup, None));
    // A packet of 1500 bytes each millisecond.
    assert_eq!(paces[7], (Mode::Startup, Some(Rate::from_kbps(12_750))));
    assert_eq!(acknowledge(9, true), (Mode::Steady, None));
}

#[test]
fn a_loss_without_a_queue_of_ours_is_caused_by_others() {
    let first = |packets: u64, lost| {
        let mut governor = governor();
        for packet in 1..=packets {
            let now = Time::ZERO + Duration::from_millis(50 + packet);
            // Each packet waits behind the one before: a train, once there are enough.
            let rtt = Duration::from_millis(50 + packet);
            let (delivered, in_flight) = (MSS * packet, MSS * (10 - packet));
            let sample = Sample {
                delivered,
                in_flight,
                rtt: Some(rtt),
                back: Duration::ZERO,
                lost: false,
                urgent: false,
            };
            assert_eq!(governor.sample(now, &sample), None);
        }
        let (delivered, in_flight) = (MSS * packets, MSS * (10 - packets));
        let sample = Sample { delivered, in_flight, rtt: None, back: Duration::ZERO, lost, urgent: false };
        governor.sample(Time::ZERO + Duration::from_millis(70), &sample);
        governor.mode()
    };
    assert_eq!((first(2, false), first(2, true)), (Mode::Startup, Mode::Compete));
    assert_eq!((first(8, false), first(8, true)), (Mode::Startup, Mode::Steady));
}

#[test]
fn a_test_without_losses_tolerates_what_coupled_flows_keep() {
    let mut path = Path::new();
    let (config, base) = (CoupledConfig::new(MSS), Duration::from_millis(60));
    path.meter.forget(Rate::from_mbps(20));
    let left_over =
        |path: &Path, mbps| path.left_over(Time::from_secs(10), Rate::from_mbps(mbps), base, &config);
    // Three and a half packets of 3 ms.
    assert_eq!(left_over(&path, 4), Duration::from_micros(10_500));
    // Of a small rate, no more than a third of the least round trip: others may have taken the rest.
    assert_eq!(left_over(&path, 1), Duration::from_millis(20));
    path.packet_lost(Time::from_secs(4));
    assert_eq!(left_over(&path, 4), Duration::from_micros(10_500));
    path.packet_lost(Time::from_secs(6));
    assert_eq!(left_over(&path, 4), Duration::from_millis(6));
}

#[test]
fn a_test_that_fails_makes_the_next_one_later() {
    let (now, rate) = (Time::from_secs(10), Rate::from_mbps(8));
    let tests = |before| {
        let mut governor = within(State::Test(before));
        governor.round_ended(now, &round(rate));
        assert_eq!(governor.mode(), Mode::Compete);
        governor.tests
    };
    let mut clock = TestClock::new();
    clock.restart();
    // From steady mode, it is the first.
    assert_eq!(tests(Before::Steady(rate)), clock);
    clock.others_remain();
    assert_eq!(tests(Before::Compete(rate)), clock);
}

#[test]
fn only_held_background_says_that_the_cap_was_the_bound() {
    let bound_by = |level| {
        let mut governor = within(State::Steady(Steady::new()));
        governor.cap = Some(MSS * 4);
        let demand = Demand { waiting: PrioritySet::one(level), outstanding: MSS * 9 };
        assert_eq!(governor.room(demand, MSS), Allowed::Held);
        let Judging::Measure { seen, .. } = governor.judging else { panic!("{:?}", governor.judging) };
        seen.bound
    };
    assert_eq!([Priority::P0, Priority::P1, Priority::P2].map(bound_by), [false, false, true]);
}

#[test]
fn of_a_chunk_the_part_below_the_cap_may_leave() {
    let mut governor = within(State::Steady(Steady::new()));
    governor.cap = Some(MSS * 4);
    let mut room = |packets| {
        let demand = Demand { waiting: PrioritySet::one(Priority::P4), outstanding: MSS * packets };
        governor.room(demand, MSS * 3)
    };
    // With nothing outstanding, no acknowledgement would come.
    let allowed = [Allowed::Upto(MSS * 3), Allowed::Upto(MSS * 3), Allowed::Upto(MSS * 2), Allowed::Held];
    assert_eq!([0, 1, 2, 4].map(&mut room), allowed);
    governor.cap = Some(MSS);
    let demand = Demand { waiting: PrioritySet::one(Priority::P4), outstanding: Bytes::ZERO };
    assert_eq!(governor.room(demand, MSS * 3), Allowed::Upto(MSS * 3));
}
