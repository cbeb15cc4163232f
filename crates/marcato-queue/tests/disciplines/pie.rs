//! PIE, compared with the equations of RFC 8033.

use std::collections::VecDeque;

use marcato_queue::{Discipline, Limit, LimitError, Pie, PieConfig, PieError, Ppm, Verdict};
use marcato_units::{Bytes, Duration, Seed, Time};
use marcato_wire::Ecn;
use proptest::prelude::*;

use crate::common::Probe;

/// In nanoseconds.
const T_UPDATE: u64 = 15_000_000;
const QDELAY_REF: f64 = 0.015;

fn pie(config: PieConfig) -> Pie<Probe> {
    Pie::new(config, Seed::new(1).stream("pie")).unwrap()
}

fn roomy() -> PieConfig {
    PieConfig { limit: Limit::Packets(1_000_000), ..PieConfig::default() }
}

/// Next drop probability by the controller of §4.2 and §5.5, in floating point.
fn next_drop_prob(drop_prob: f64, current_qdelay: f64, qdelay_old: f64) -> f64 {
    let mut p = 0.125 * (current_qdelay - QDELAY_REF) + 1.25 * (current_qdelay - qdelay_old);
    p /= match drop_prob {
        _ if drop_prob < 0.000_001 => 2048.0,
        _ if drop_prob < 0.000_01 => 512.0,
        _ if drop_prob < 0.000_1 => 128.0,
        _ if drop_prob < 0.001 => 32.0,
        _ if drop_prob < 0.01 => 8.0,
        _ if drop_prob < 0.1 => 2.0,
        _ => 1.0,
    };
    if drop_prob >= 0.1 {
        p = p.min(0.02);
    }
    let decay = if current_qdelay == 0.0 && qdelay_old == 0.0 { 0.98 } else { 1.0 };
    ((drop_prob + p) * decay).clamp(0.0, 1.0)
}

/// Produces latencies in a queue, one per period, by packets that are too few and small to be
/// dropped.
///
/// Calls `each` after every call, with the latencies in seconds at the steps that this call made.
fn show(latencies: &[u64], mut each: impl FnMut(&Pie<Probe>, &[f64])) {
    const MICROSECOND: u64 = 1000;
    let mut queue = pie(roomy());
    // The first packet starts the clock. Each other one leaves right before a step, after the
    // wanted latency.
    let origin = 1_000_000_000;
    let step = |number: usize| origin + (number as u64 + 1) * T_UPDATE;
    let leaves = |number: usize| step(number) - MICROSECOND;
    let comes = |number: usize| leaves(number) - latencies[number];
    queue.enqueue(Time::from_nanos(origin), Probe::new(0).with_len(1)).lost();
    queue.dequeue(Time::from_nanos(origin));
    let last = latencies.len();
    let mut events: Vec<(u64, bool, usize)> = (0..last)
        .flat_map(|number| [(comes(number), false, number), (leaves(number), true, number)])
        .chain([(step(last), true, last)])
        .collect();
    events.sort_unstable();
    let mut steps = 0;
    for (at, leaving, number) in events {
        let mut due = Vec::new();
        while steps < last && step(steps) <= at {
            // Zero if nothing waits; else that of the last packet that left, or the head's so far.
            let head = (steps + 1..last).find(|&other| comes(other) <= step(steps));
            let latency = head.map_or(0, |head| latencies[steps].max(step(steps) - comes(head)));
            due.push(latency as f64 / 1e9);
            steps += 1;
        }
        if leaving {
            queue.dequeue(Time::from_nanos(at));
        } else {
            let packet = Probe::new(number as u64).with_len(1);
            assert_eq!(queue.enqueue(Time::from_nanos(at), packet), Verdict::Queued);
        }
        if steps < last {
            each(&queue, &due);
        }
    }
}

proptest! {
    /// For any latencies. Each rises by less than a period, so that packets leave in order.
    #[test]
    fn the_drop_probability_follows_the_controllers_equations(
        rises in prop::collection::vec(prop_oneof![6 => 0i64..14_000_000, 1 => -80_000_000i64..0], 1..400),
    ) {
        let mut latency = 0i64;
        let latencies: Vec<u64> = rises.iter().map(|rise| {
            latency = (latency + rise).clamp(1, 200_000_000);
            latency.unsigned_abs()
        }).collect();
        let (mut drop_prob, mut old) = (0.0, 0.0);
        let mut worst = 0.0f64;
        show(&latencies, |queue, due| {
            for &latency in due {
                drop_prob = next_drop_prob(drop_prob, latency, old);
                old = latency;
            }
            worst = worst.max((f64::from(queue.drop_prob().get()) / 1e6 - drop_prob).abs());
        });
        prop_assert!(worst < 2e-6, "off by {worst}");
    }
}

/// Queue at which the latency was twice the reference for `periods` periods, and the time.
fn congested(config: PieConfig, periods: u64) -> (Pie<Probe>, Time) {
    let mut queue = pie(config);
    let (mut now, mut id) = (Time::from_secs(1), 0);
    for _ in 0..periods * 15 {
        // A packet arrives every millisecond and leaves 30 ms later.
        id += 1;
        if queue.enqueue(now, Probe::new(id).with_ecn(Ecn::Ect0)) == Verdict::Queued
            && queue.backlog().packets > 30
        {
            queue.dequeue(now);
        }
        now += Duration::from_millis(1);
    }
    (queue, now)
}

#[test]
fn a_burst_is_allowed_until_the_allowance_is_used_up() {
    // The latency is too high from 8 ms on. The allowance is 150 ms, which are ten steps. §4.4.
    let (queue, _) = congested(roomy(), 9);
    assert_eq!(queue.counters().dropped.packets, 0);
    assert!(queue.drop_prob() > Ppm::default());
    let (queue, _) = congested(roomy(), 100);
    assert!(queue.counters().dropped.packets > 0);
    assert_eq!(queue.counters().overflowed.packets, 0);
    let (queue, _) = congested(PieConfig { max_burst: Duration::from_secs(50), ..roomy() }, 100);
    assert_eq!(queue.counters().dropped.packets, 0);
}

#[test]
fn gaps_between_drops_stay_close_to_those_of_the_probability() {
    // At one instant the probability does not change. §5.4: a drop comes when the sum of
    // probabilities is between 0.85 and 8.5.
    let (mut queue, now) = congested(roomy(), 60);
    // Makes the step that is due.
    queue.dequeue(now);
    let drop_prob = f64::from(queue.drop_prob().get()) / 1e6;
    assert!((0.001..0.05).contains(&drop_prob), "{drop_prob}");
    let (mut gaps, mut gap) = (Vec::new(), 0u32);
    while gaps.len() < 5000 {
        gap += 1;
        match queue.enqueue(now, Probe::new(0)) {
            Verdict::Queued => _ = queue.dequeue(now),
            Verdict::Dropped(_) => gaps.push(std::mem::take(&mut gap)),
        }
    }
    let bounds = (0.85 / drop_prob).floor()..=(8.5 / drop_prob).ceil() + 1.0;
    // The first gap began before.
    assert!(gaps.iter().skip(1).all(|&gap| bounds.contains(&f64::from(gap))), "{drop_prob}");
    // Nothing for 0.85/p packets, and then with p each: 1.85/p in the mean.
    let mean = f64::from(gaps.iter().sum::<u32>()) / 5000.0;
    assert!((mean * drop_prob / 1.85 - 1.0).abs() < 0.05, "{mean} at {drop_prob}");
}

#[test]
fn nothing_is_dropped_from_two_packets_or_a_short_queue() {
    let (mut queue, now) = congested(roomy(), 100);
    while queue.backlog().packets > 2 {
        queue.dequeue(now);
    }
    // Two packets of MEAN_PKTSIZE wait: §4.1.
    for id in 0..10_000 {
        assert_eq!(queue.enqueue(now, Probe::new(id)), Verdict::Queued);
        queue.dequeue(now);
    }
    // With small packets many may wait.
    let config = PieConfig { mean_pktsize: Bytes::new(1_000_000), ..roomy() };
    assert_eq!(congested(config, 100).0.counters().dropped.packets, 0);
}

#[test]
fn packets_are_marked_below_a_tenth_and_dropped_above() {
    let config = PieConfig { mark_ecnth: Some(PieConfig::MARK_ECNTH), ..roomy() };
    let mut seen = [0; 2];
    let (mut queue, mut now) = (pie(config), Time::from_secs(1));
    for id in 0..6000 {
        let before = *queue.counters();
        let high = queue.drop_prob() >= PieConfig::MARK_ECNTH;
        let verdict = queue.enqueue(now, Probe::new(id).with_ecn(Ecn::Ect0));
        // A step may have happened in between.
        let still = (queue.drop_prob() >= PieConfig::MARK_ECNTH) == high;
        let (dropped, marked) =
            (verdict != Verdict::Queued, queue.counters().marked.packets > before.marked.packets);
        assert!(!(still && (high && marked || !high && dropped)), "{:?}", queue.drop_prob());
        seen[usize::from(dropped)] += u32::from(dropped || marked);
        if queue.backlog().packets > 30 {
            queue.dequeue(now);
        }
        now += Duration::from_millis(1);
    }
    assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
    // Packets that are not capable of ECN are dropped at any probability.
    let (mut queue, now) = congested(config, 30);
    assert!(queue.drop_prob() < PieConfig::MARK_ECNTH);
    let lost = (0..10_000).filter(|&id| {
        let lost = queue.enqueue(now, Probe::new(id)).lost().is_some();
        if !lost {
            queue.dequeue(now);
        }
        lost
    });
    assert!(lost.count() > 0);
}

/// A queue that packets enter every millisecond and leave after a chosen latency.
struct Steady {
    queue: Pie<Probe>,
    now: Time,
    /// Arrivals of the packets that wait.
    came: VecDeque<Time>,
}

impl Steady {
    fn new(config: PieConfig) -> Self {
        Self { queue: pie(config), now: Time::from_secs(1), came: VecDeque::new() }
    }

    /// Enqueues a packet every millisecond. Each leaves after `latency`, a multiple of 0.5 ms, or not at all. Returns the
    /// time of the first drop in milliseconds from the begin.
    fn run(&mut self, milliseconds: u64, latency: Option<Duration>) -> Option<u64> {
        let mut first = None;
        for half in 0..2 * milliseconds {
            if half % 2 == 0 {
                match self.queue.enqueue(self.now, Probe::new(half)) {
                    Verdict::Queued => self.came.push_back(self.now),
                    Verdict::Dropped(_) => _ = first.get_or_insert(half / 2),
                }
            }
            let due = |since: &Time| latency.is_some_and(|latency| *since + latency <= self.now);
            while self.came.front().is_some_and(due) {
                self.came.pop_front();
                self.queue.dequeue(self.now);
            }
            self.now += Duration::from_micros(500);
        }
        first
    }
}

#[test]
fn the_burst_allowance_returns_below_half_the_reference_latency() {
    // Steep enough for drops within a few steps once the allowance is spent. §4.4.
    let steep = PieConfig { alpha: 10_000, beta: 100_000, ..roomy() };
    for (latency, allowed) in [(5_500, true), (7_500, false), (10_500, false)] {
        let mut steady = Steady::new(steep);
        assert_eq!(steady.run(1000, Some(Duration::from_micros(latency))), None);
        assert_eq!(steady.queue.drop_prob(), Ppm::default());
        let first = steady.run(400, None).expect("a link that has stopped ends in drops");
        // Ten steps of the allowance, of which the first may come at once.
        assert_eq!(first >= 135, allowed, "after {first} ms at a latency of {latency} us");
    }
}

/// §4.4 wants both the present latency and the last one below half of the reference.
#[test]
fn one_calm_step_between_others_returns_no_burst_allowance() {
    // Below the reference latency, the drop probability stays zero without `beta`.
    let mut steady = Steady::new(PieConfig { alpha: 100_000, beta: 0, ..roomy() });
    for _ in 0..40 {
        for latency in [5_500, 10_500] {
            assert_eq!(steady.run(15, Some(Duration::from_micros(latency))), None);
            assert_eq!(steady.queue.drop_prob(), Ppm::default());
        }
    }
    let first = steady.run(400, None).expect("a link that has stopped ends in drops");
    assert!(first < 135, "the allowance returned: {first} ms");
}

#[test]
fn low_latency_prevents_drops_while_drop_prob_is_below_a_fifth() {
    // §4.1: no drops while qdelay_old is below half of QDELAY_REF and drop_prob below 0.2.
    let flat = PieConfig { alpha: 1000, beta: 0, ..roomy() };
    for (target, latency, protected) in
        [(150_000, 5_500, true), (150_000, 7_500, false), (150_000, 10_500, false), (500_000, 5_500, false)]
    {
        let mut steady = Steady::new(flat);
        while steady.queue.drop_prob() < Ppm::new(target) {
            steady.run(15, None);
        }
        steady.run(30, Some(Duration::from_micros(latency)));
        let probability = steady.queue.drop_prob().get();
        assert!(probability.abs_diff(target) < 40_000, "{probability}");
        // At one instant, so that no step comes between, and with room above two packets.
        let now = steady.now;
        for id in 0..10 {
            steady.queue.enqueue(now, Probe::new(id)).lost();
        }
        let before = steady.queue.counters().dropped.packets;
        for id in 0..1000 {
            if steady.queue.enqueue(now, Probe::new(id)) == Verdict::Queued {
                steady.queue.dequeue(now);
            }
        }
        let dropped = steady.queue.counters().dropped.packets - before;
        assert_eq!(dropped == 0, protected, "{dropped} dropped at {target} and {latency} us");
    }
}

#[test]
fn at_the_marking_threshold_itself_packets_are_dropped() {
    // §5.1 marks below the threshold. One is a probability that the controller reaches exactly.
    let config = PieConfig { alpha: 1000, mark_ecnth: Some(Ppm::ONE), ..roomy() };
    let mut queue = pie(config);
    let (mut now, mut id) = (Time::from_secs(1), 0);
    while queue.drop_prob() < Ppm::ONE {
        queue.enqueue(now, Probe::new(id).with_ecn(Ecn::Ect0)).lost();
        (now, id) = (now + Duration::from_millis(1), id + 1);
    }
    let before = *queue.counters();
    assert!(before.marked.packets > 0);
    for id in 0..100 {
        queue.enqueue(now, Probe::new(id).with_ecn(Ecn::Ect0)).lost();
    }
    let after = *queue.counters();
    assert_eq!(after.marked, before.marked);
    assert!(after.dropped.packets > before.dropped.packets);
}

#[test]
fn an_overloaded_link_settles_at_the_reference_latency() {
    // 1000 packets per second leave, 1200 arrive: a sixth is dropped, and the latency approaches
    // QDELAY_REF.
    let mut queue = pie(roomy());
    let mut latencies = Vec::new();
    let (mut came, mut lost) = (0u32, 0u32);
    let mut sent = std::collections::HashMap::new();
    for tick in 0..600_000u64 {
        let now = Time::from_micros(tick * 100);
        if tick * 3 % 25 < 3 {
            let packet = Probe::new(tick);
            sent.insert(tick, now);
            let dropped = queue.enqueue(now, packet).lost().is_some();
            if tick > 300_000 {
                came += 1;
                lost += u32::from(dropped);
            }
        }
        if tick % 10 == 0
            && let Some(packet) = queue.dequeue(now)
            && tick > 300_000
        {
            latencies.push((now - sent[&packet.id]).as_secs_f64());
        }
    }
    let mean = latencies.iter().sum::<f64>() / latencies.len() as f64;
    assert!((0.013..0.017).contains(&mean), "{mean} s");
    let share = f64::from(lost) / f64::from(came);
    assert!((share - 1.0 / 6.0).abs() < 0.005, "{share}");
}

#[test]
fn steps_that_are_made_late_give_the_result_of_a_timer() {
    let (mut asked, now) = congested(roomy(), 100);
    let (mut left, _) = congested(roomy(), 100);
    for queue in [&mut asked, &mut left] {
        while queue.dequeue(now).is_some() {}
    }
    let before = asked.drop_prob();
    for millisecond in 1..=500 {
        assert_eq!(asked.dequeue(now + Duration::from_millis(millisecond)), None);
    }
    left.dequeue(now + Duration::from_millis(500));
    assert_eq!(asked.drop_prob(), left.drop_prob());
    assert!(asked.drop_prob() < before);
    // The probability of an idle queue decays, and then a burst is allowed again.
    let later = now + Duration::from_secs(100);
    assert_eq!(left.dequeue(later), None);
    assert_eq!(left.drop_prob(), Ppm::default());
    for id in 0..10_000 {
        assert_eq!(left.enqueue(later, Probe::new(id)), Verdict::Queued);
    }
    // The largest time, and time running backwards, do no harm.
    for now in [Time::MAX, Time::ZERO, Time::MAX, Time::from_secs(1)] {
        left.dequeue(now);
        left.enqueue(now, Probe::new(0)).lost();
    }
    let counters = left.counters();
    let ends = counters.dequeued.packets + counters.dropped.packets + left.backlog().packets;
    assert_eq!(counters.enqueued.packets, ends);
}

#[test]
fn the_latency_of_a_stopped_link_is_that_of_the_head() {
    let mut queue = pie(roomy());
    let start = Time::from_secs(1);
    for id in 0..10 {
        assert_eq!(queue.enqueue(start, Probe::new(id)), Verdict::Queued);
    }
    // Nothing leaves for half a second, so that no sojourn time is known.
    let mut expected = 0.0;
    for step in 1..=33u32 {
        let latency = f64::from(step) * 0.015;
        expected = next_drop_prob(expected, latency, latency - 0.015);
    }
    queue.enqueue(start + Duration::from_millis(500), Probe::new(10)).lost();
    let drop_prob = f64::from(queue.drop_prob().get()) / 1e6;
    assert!((drop_prob - expected).abs() < 2e-6, "{drop_prob} instead of {expected}");
}

#[test]
fn configurations_that_cannot_work_are_errors() {
    let made = |config| Pie::<Probe>::new(config, Seed::new(1).stream("pie")).map(|_| ());
    let good = PieConfig::default();
    assert_eq!(made(good), Ok(()));
    assert_eq!(made(PieConfig { limit: Limit::Packets(0), ..good }), Err(LimitError::NoPackets.into()));
    assert_eq!(made(PieConfig { qdelay_ref: Duration::ZERO, ..good }), Err(PieError::ZeroReference));
    assert_eq!(made(PieConfig { t_update: Duration::ZERO, ..good }), Err(PieError::ZeroPeriod));
    assert_eq!(made(PieConfig { max_burst: Duration::MAX, ..good }), Err(PieError::TooLong));
    assert_eq!(made(PieConfig { beta: 2_000_000, ..good }), Err(PieError::TooHeavy));
    assert_eq!(
        PieError::TooLong.to_string(),
        "qdelay_ref, t_update and max_burst must be shorter than 100 s: set them to 15, 15 and 150 ms"
    );
}
