//! RED, compared with the equations of Floyd and Jacobson's paper.

use marcato_queue::{Discipline, Limit, LimitError, Ppm, Red, RedConfig, RedError, RedThresholds, Verdict};
use marcato_units::{Bytes, Duration, Seed, Time};
use marcato_wire::Ecn;
use proptest::prelude::*;

use crate::common::Probe;

/// Configuration whose average follows at once, so that a constant queue is the average.
fn at_once() -> RedConfig {
    RedConfig { w_q: Ppm::ONE, limit: Limit::Packets(1_000_000), ecn: true, ..RedConfig::default() }
}

fn red(config: RedConfig) -> Red<Probe> {
    Red::new(config, Seed::new(1).stream("red")).unwrap()
}

/// Queue that is filled to `packets`, in spite of RED's drops.
fn filled(config: RedConfig, packets: u64) -> Red<Probe> {
    let mut queue = red(config);
    while queue.backlog().packets < packets {
        queue.enqueue(Time::ZERO, Probe::new(0).with_ecn(Ecn::Ect0)).lost();
    }
    queue
}

/// Numbers of packets that arrive from one signal to the next, that one included, at a queue that
/// is kept constant.
///
/// A signal is a mark or a drop.
fn gaps(queue: &mut Red<Probe>, signals: usize) -> Vec<u64> {
    let (mut gaps, mut gap) = (Vec::new(), 0);
    while gaps.len() < signals {
        let marked = queue.counters().marked.packets;
        let verdict = queue.enqueue(Time::ZERO, Probe::new(0).with_ecn(Ecn::Ect0));
        gap += 1;
        assert!(gap < 1_000_000, "no signal comes");
        if verdict == Verdict::Queued {
            queue.dequeue(Time::ZERO);
        }
        if verdict != Verdict::Queued || queue.counters().marked.packets > marked {
            gaps.push(gap);
            gap = 0;
        }
    }
    gaps
}

#[test]
fn between_the_thresholds_gaps_are_uniform_with_mean_by_p_b() {
    // p_b = max_p (avg - min_th) / (max_th - min_th), and the gap is uniform from 1 to 1/p_b: §4
    // and §7.
    for (waits, inverse) in [(6, 100), (10, 20), (14, 12)] {
        let mut queue = filled(at_once(), waits);
        gaps(&mut queue, 1);
        let gaps = gaps(&mut queue, 20_000);
        assert!(gaps.iter().all(|gap| (1..=inverse).contains(gap)), "{waits} wait");
        let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
        let p_b = 0.1 * (waits - 5) as f64 / 10.0;
        let expected = f64::midpoint(1.0, 1.0 / p_b);
        assert!((mean / expected - 1.0).abs() < 0.03, "{waits} wait: {mean} instead of {expected}");
        // All quarters of the range are equally likely.
        let quarter = gaps.iter().filter(|&&gap| gap as f64 <= 0.25 / p_b).count() as f64 / gaps.len() as f64;
        assert!((quarter - (0.25 / p_b).floor() * p_b).abs() < 0.02, "{waits} wait: {quarter}");
    }
}

/// An overflow is a signal to the sender, too: the gap to the next one begins anew.
#[test]
fn an_overflow_begins_a_new_gap() {
    // Eleven wait when a packet arrives: p_b is 0.06, and no gap is longer than 17.
    let mut queue = filled(RedConfig { limit: Limit::Packets(12), ..at_once() }, 12);
    let (mut gap, mut longest, mut signals) = (0u64, 0, 0);
    for arrival in 0..20_000 {
        if arrival % 8 == 0 {
            assert!(queue.enqueue(Time::ZERO, Probe::new(0).with_ecn(Ecn::Ect0)).lost().is_some());
        }
        queue.dequeue(Time::ZERO);
        let marked = queue.counters().marked.packets;
        assert_eq!(queue.enqueue(Time::ZERO, Probe::new(0).with_ecn(Ecn::Ect0)), Verdict::Queued);
        gap += 1;
        if queue.counters().marked.packets > marked {
            (longest, signals, gap) = (gap.max(longest), signals + 1, 0);
        }
    }
    assert!(signals > 500 && longest > 34, "{signals} signals, {longest} packets apart");
}

/// Fig. 2 of the paper: below min_th the count is forgotten, so packets from before it bring no signal nearer.
#[test]
fn an_average_below_min_th_begins_a_new_gap() {
    let mut queue = filled(at_once(), 8);
    let (mut gap, mut longest, mut signals) = (0u64, 0, 0);
    let mut send = |queue: &mut Red<Probe>| {
        let marked = queue.counters().marked.packets;
        assert_eq!(queue.enqueue(Time::ZERO, Probe::new(0).with_ecn(Ecn::Ect0)), Verdict::Queued);
        gap += 1;
        if queue.counters().marked.packets > marked {
            (longest, signals, gap) = (gap.max(longest), signals + 1, 0);
        }
    };
    for round in 0..20_000 {
        if round % 30 == 0 {
            // The next packet finds three, and some more restore the queue.
            (0..5).for_each(|_| _ = queue.dequeue(Time::ZERO));
            (0..5).for_each(|_| send(&mut queue));
        }
        // Seven wait when a packet arrives: p_b is 0.02, and a gap that goes on ends with 50.
        queue.dequeue(Time::ZERO);
        send(&mut queue);
    }
    assert!(signals > 200 && longest > 60, "{signals} signals, {longest} packets apart");
}

#[test]
fn the_second_packet_of_a_burst_finds_the_first() {
    let mut queue = red(at_once());
    for found in 0..4 {
        queue.enqueue(Time::ZERO, Probe::new(0)).lost();
        assert_eq!(queue.average(), found);
    }
}

#[test]
fn packets_at_min_th_count_towards_the_next_signal() {
    for seed in 0..200 {
        let mut queue: Red<Probe> = Red::new(at_once(), Seed::new(seed).stream("red")).unwrap();
        let send = |queue: &mut Red<Probe>| {
            queue.enqueue(Time::ZERO, Probe::new(0).with_ecn(Ecn::Ect0)).lost();
            queue.counters().marked.packets > 0
        };
        // Six wait, of which the last arrival found five: the average is min_th, and p_b is 0.
        while queue.backlog().packets < 6 {
            assert!(!send(&mut queue));
        }
        for _ in 0..50 {
            queue.dequeue(Time::ZERO);
            assert!(!send(&mut queue));
        }
        // p_b is now 0.01, so a signal comes within 100 packets of the first that counted.
        let gap = (1..).find(|_| {
            let signalled = send(&mut queue);
            queue.dequeue(Time::ZERO);
            signalled
        });
        assert!(gap.unwrap() <= 51, "{gap:?} packets with seed {seed}");
    }
}

#[test]
fn below_min_th_there_is_no_signal_even_in_a_burst() {
    let mut queue = filled(at_once(), 4);
    for _ in 0..100_000 {
        assert_eq!(queue.enqueue(Time::ZERO, Probe::new(0)), Verdict::Queued);
        queue.dequeue(Time::ZERO);
    }
    // §4.1: with min_th 5 and w_q 0.0042, a burst of 50 packets into an empty queue passes.
    let mut queue = red(RedConfig { w_q: Ppm::new(4200), ..RedConfig::default() });
    for id in 0..50 {
        assert_eq!(queue.enqueue(Time::ZERO, Probe::new(id)), Verdict::Queued);
    }
    assert_eq!(queue.average(), 4);
}

proptest! {
    /// At a queue of q the average approaches q as q (1 - (1 - w_q)^n). In an idle time of m
    /// packets it falls by (1 - w_q)^m. It is rounded down, and each update rounds by 2^-16, of
    /// which 1/w_q add up: 0.03.
    #[test]
    fn the_average_is_exponentially_weighted(
        w_q in 500u32..200_000, waits in 20u64..2000, n in 1i32..1000, m in 0u32..5000,
    ) {
        let thresholds = RedThresholds::Packets { min_th: 1 << 30, max_th: 1 << 31 };
        let config = RedConfig { w_q: Ppm::new(w_q), thresholds, limit: Limit::Packets(1 << 20), ..RedConfig::default() };
        let w = f64::from(w_q) / 1e6;
        let mut queue = red(config);
        // Each arrival while the queue fills finds one packet more.
        let mut expected = 0.0;
        for found in 0..waits {
            queue.enqueue(Time::ZERO, Probe::new(0)).lost();
            expected += w * (found as f64 - expected);
        }
        for _ in 0..n {
            queue.enqueue(Time::ZERO, Probe::new(0)).lost();
            queue.dequeue(Time::ZERO);
        }
        let waits = waits as f64;
        let mut expected = waits - (waits - expected) * (1.0 - w).powi(n);
        prop_assert!((queue.average() as f64 - expected).abs() < 1.1, "{} instead of {expected}", queue.average());
        // It falls to a shorter queue in the same way as it rose.
        while queue.backlog().packets > 2 {
            queue.dequeue(Time::ZERO);
        }
        for _ in 0..n {
            queue.enqueue(Time::ZERO, Probe::new(0)).lost();
            queue.dequeue(Time::ZERO);
            expected += w * (2.0 - expected);
        }
        prop_assert!((queue.average() as f64 - expected).abs() < 1.1, "{} instead of {expected}", queue.average());
        while queue.dequeue(Time::ZERO).is_some() {}
        let s = config.s.as_nanos() as u64;
        let now = Time::from_nanos(s * u64::from(m) + s / 2);
        queue.enqueue(now, Probe::new(0)).lost();
        let expected = expected * (1.0 - w).powi(i32::try_from(m).unwrap());
        prop_assert!((queue.average() as f64 - expected).abs() < 1.1, "{} instead of {expected}", queue.average());
    }
}

#[test]
fn above_max_th_the_gentle_drop_probability_rises_to_one() {
    for (waits, p_b) in [(15, 0.1), (20, 0.4), (25, 0.7)] {
        let mut queue = filled(at_once(), waits);
        gaps(&mut queue, 1);
        let before = *queue.counters();
        let gaps = gaps(&mut queue, 10_000);
        let after = *queue.counters();
        // Marks are for averages below max_th: RFC 3168 §7.
        assert_eq!((after.marked, after.overflowed), (before.marked, before.overflowed));
        assert_eq!(after.dropped.packets - before.dropped.packets, 10_000);
        let longest = gaps.iter().copied().max().unwrap();
        assert_eq!(longest, (1.0_f64 / p_b).ceil() as u64, "{waits} wait");
    }
    // From twice max_th on, or from max_th on without the gentle variant, nothing passes.
    for (gentle, bound) in [(true, 30), (false, 15)] {
        let mut queue = red(RedConfig { gentle, ..at_once() });
        for _ in 0..10_000 {
            queue.enqueue(Time::ZERO, Probe::new(0)).lost();
        }
        assert_eq!(queue.backlog().packets, bound);
        assert_eq!(queue.counters().overflowed.packets, 0);
    }
}

#[test]
fn unmarkable_packets_are_dropped_whatever_their_size() {
    let thresholds = RedThresholds::Bytes { min_th: Bytes::new(5000), max_th: Bytes::new(15_000) };
    let share = |len: u64, ecn: Ecn| {
        let mut queue = red(RedConfig { thresholds, ..at_once() });
        // With 10 000 bytes waiting, p_b is 1/20.
        while queue.backlog().bytes < Bytes::new(10_000) {
            queue.enqueue(Time::ZERO, Probe::new(0).with_len(100).with_ecn(Ecn::Ect0)).lost();
        }
        let before = *queue.counters();
        for _ in 0..40_000 {
            let packet = Probe::new(0).with_len(len).with_ecn(ecn);
            queue.enqueue(Time::ZERO, packet).lost();
            while queue.backlog().bytes > Bytes::new(10_000) {
                queue.dequeue(Time::ZERO);
            }
        }
        let after = *queue.counters();
        let signals =
            after.marked.packets + after.dropped.packets - before.marked.packets - before.dropped.packets;
        (signals as f64 / 40_000.0, after.marked.packets - before.marked.packets)
    };
    // Gaps of 10.5 packets in the mean.
    let (marked, marks) = share(100, Ecn::Ect0);
    assert!((marked * 10.5 - 1.0).abs() < 0.03 && marks > 0, "{marked}");
    for len in [100, 1000] {
        let (dropped, marks) = share(len, Ecn::NotEct);
        assert!((dropped * 10.5 - 1.0).abs() < 0.03 && marks == 0, "{len} bytes: {dropped}");
    }
}

#[test]
fn configurations_that_cannot_work_are_errors() {
    let made = |config| Red::<Probe>::new(config, Seed::new(1).stream("red")).map(|_| ());
    let good = RedConfig::default();
    assert_eq!(made(good), Ok(()));
    assert_eq!(made(RedConfig { limit: Limit::Packets(0), ..good }), Err(LimitError::NoPackets.into()));
    let thresholds = RedThresholds::Packets { min_th: 15, max_th: 15 };
    let error = RedError::Thresholds { min_th: 15, max_th: 15 };
    assert_eq!(made(RedConfig { thresholds, ..good }), Err(error));
    assert_eq!(
        error.to_string(),
        "min_th 15 is not below max_th 15: set max_th to at least twice min_th, at most 2^40"
    );
    let huge = RedThresholds::Bytes { min_th: Bytes::ZERO, max_th: Bytes::new((1 << 40) + 1) };
    assert!(matches!(made(RedConfig { thresholds: huge, ..good }), Err(RedError::Thresholds { .. })));
    assert_eq!(made(RedConfig { max_p: Ppm::new(0), ..good }), Err(RedError::ZeroProbability));
    assert_eq!(made(RedConfig { w_q: Ppm::new(0), ..good }), Err(RedError::ZeroWeight));
    assert_eq!(made(RedConfig { s: Duration::ZERO, ..good }), Err(RedError::ZeroTime));
}
