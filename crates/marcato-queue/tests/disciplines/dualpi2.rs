//! DualPI2, compared with the equations of RFC 9332.

use marcato_queue::{Discipline, DualPi2, DualPi2Config, DualPi2Error, Limit, Verdict};
use marcato_units::{Duration, Seed, Time};
use marcato_wire::Ecn;

use crate::common::Probe;

const T_UPDATE: Duration = Duration::from_millis(16);

fn dualpi2(config: DualPi2Config) -> DualPi2<Probe> {
    DualPi2::new(config, Seed::new(1).stream("dualpi2")).unwrap()
}

fn l4s(id: u64) -> Probe {
    Probe::new(id).with_ecn(Ecn::Ect1)
}

#[test]
fn packets_with_ect1_or_ce_are_of_the_l_queue() {
    for (ecn, is_l4s) in [(Ecn::NotEct, false), (Ecn::Ect0, false), (Ecn::Ect1, true), (Ecn::Ce, true)] {
        let mut queue = dualpi2(DualPi2Config::default());
        assert_eq!(queue.enqueue(Time::ZERO, Probe::new(1).with_ecn(ecn)), Verdict::Queued);
        assert_eq!(queue.l4s_backlog().packets, u64::from(is_l4s), "{ecn:?}");
    }
}

#[test]
fn the_l_queue_leaves_first_and_the_other_gets_a_tenth() {
    let mut queue = dualpi2(DualPi2Config::default());
    for id in 0..4000 {
        queue.enqueue(Time::ZERO, l4s(id)).lost();
        queue.enqueue(Time::ZERO, Probe::new(10_000 + id)).lost();
    }
    let left: Vec<bool> = (0..2000).map(|_| queue.dequeue(Time::ZERO).unwrap().id < 10_000).collect();
    assert!(left[0]);
    let classic = left.iter().filter(|is_l4s| !**is_l4s).count();
    // 26 of 256 parts.
    assert!((200..=206).contains(&classic), "{classic} of 2000");
    // Never two in a row: the L queue waits for one packet at most.
    assert!(left.windows(2).all(|two| two[0] || two[1]));
}

#[test]
fn a_queue_that_was_alone_owes_the_other_nothing() {
    let mut queue = dualpi2(DualPi2Config::default());
    for id in 0..1000 {
        queue.enqueue(Time::ZERO, Probe::new(10_000 + id)).lost();
    }
    for _ in 0..500 {
        queue.dequeue(Time::ZERO);
    }
    for id in 0..100 {
        queue.enqueue(Time::ZERO, l4s(id)).lost();
    }
    let l4s_of_ten = (0..10).filter(|_| queue.dequeue(Time::ZERO).unwrap().id < 10_000).count();
    assert_eq!(l4s_of_ten, 9);
}

#[test]
fn packets_of_the_l_queue_are_marked_from_the_step_on() {
    for (micros, is_marked) in [(999, false), (1000, true), (5000, true)] {
        let mut queue = dualpi2(DualPi2Config::default());
        for id in 0..2 {
            queue.enqueue(Time::ZERO, l4s(id)).lost();
        }
        let now = Time::ZERO + Duration::from_micros(micros);
        assert_eq!(queue.dequeue(now).unwrap().ecn == Ecn::Ce, is_marked, "{micros} µs");
        // Behind the last packet nothing waits: no queue is built.
        assert_eq!(queue.dequeue(now).unwrap().ecn, Ecn::Ect1);
    }
}

#[test]
fn both_probabilities_follow_the_equations() {
    // A head that grows older by 16 ms with every step.
    let mut queue = dualpi2(DualPi2Config::default());
    queue.enqueue(Time::ZERO, Probe::new(0)).lost();
    let (mut base, mut prev_q) = (0.0f64, 0.0);
    for step in 1..=20u32 {
        let now = Time::ZERO + T_UPDATE * step;
        queue.enqueue(now, Probe::new(step.into())).lost();
        let cur_q = 0.016 * f64::from(step);
        base += 41.0 / 256.0 * (cur_q - 0.015) + 819.0 / 256.0 * (cur_q - prev_q);
        base = base.clamp(0.0, 0.5);
        prev_q = cur_q;
        let [classic, coupled] = [queue.classic_probability(), queue.coupled_probability()];
        assert!((classic - base * base).abs() < 1e-9, "step {step}: {classic} for {}", base * base);
        assert!((coupled - 2.0 * base).abs() < 1e-9, "step {step}: {coupled} for {}", 2.0 * base);
    }
    assert!(base >= 0.5, "the last steps are at the bound");
}

#[test]
fn a_long_classic_queue_marks_packets_of_the_l_queue() {
    let mut queue = dualpi2(DualPi2Config::default());
    for id in 0..2000 {
        queue.enqueue(Time::ZERO, Probe::new(10_000 + id)).lost();
    }
    // Four steps of a head that grows older.
    let now = Time::ZERO + T_UPDATE * 4;
    queue.enqueue(now, Probe::new(20_000)).lost();
    let expected = queue.coupled_probability();
    assert!((0.2..0.8).contains(&expected), "{expected}");
    let (mut marked, mut seen) = (0, 0);
    for id in 0..1000 {
        queue.enqueue(now, l4s(id)).lost();
        // It has not waited: only the coupling marks it.
        let packet = queue.dequeue(now).unwrap();
        if packet.id < 10_000 {
            seen += 1;
            marked += u32::from(packet.ecn == Ecn::Ce);
        }
    }
    assert!(seen > 800, "{seen}");
    assert!(
        (f64::from(marked) / f64::from(seen) - expected).abs() <= 0.002,
        "{marked} of {seen} for {expected}"
    );
}

#[test]
fn classic_packets_are_marked_or_dropped_by_the_square() {
    for ecn in [Ecn::Ect0, Ecn::NotEct] {
        let mut queue = dualpi2(DualPi2Config { limit: Limit::Packets(50_000), ..DualPi2Config::default() });
        for id in 0..20_000 {
            queue.enqueue(Time::ZERO, Probe::new(id).with_ecn(ecn)).lost();
        }
        let now = Time::ZERO + T_UPDATE * 5;
        queue.enqueue(now, Probe::new(0)).lost();
        let expected = queue.classic_probability();
        assert!((0.02..0.25).contains(&expected), "{expected}");
        while queue.backlog().packets > 1 {
            queue.dequeue(now);
        }
        let counters = queue.counters();
        let [signals, others] = match ecn {
            Ecn::Ect0 => [counters.marked.packets, counters.dropped.packets],
            _ => [counters.dropped.packets, counters.marked.packets],
        };
        // Three standard deviations of 20 000 draws are below 0.01.
        assert!((signals as f64 / 20_000.0 - expected).abs() < 0.01, "{signals} for {expected}");
        assert!(others <= 1, "{others}");
    }
}

#[test]
fn in_overload_both_queues_drop() {
    let mut queue = dualpi2(DualPi2Config { limit: Limit::Packets(50_000), ..DualPi2Config::default() });
    for id in 0..10_000 {
        queue.enqueue(Time::ZERO, l4s(id)).lost();
        queue.enqueue(Time::ZERO, Probe::new(10_000 + id).with_ecn(Ecn::Ect0)).lost();
    }
    let now = Time::ZERO + Duration::from_secs(2);
    let mut dropped = [0, 0];
    let mut left = 0;
    while queue.backlog().packets > 0 {
        let mut drops = Vec::new();
        if let Some(packet) = queue.dequeue_with(now, &mut |packet: Probe| drops.push(packet.id)) {
            assert!(
                packet.id >= 10_000 || packet.ecn == Ecn::Ce || queue.l4s_backlog().is_empty(),
                "all are marked"
            );
            left += 1;
        }
        for id in drops {
            dropped[usize::from(id >= 10_000)] += 1;
        }
    }
    // p_C is 25 % at most, with k = 2: of both queues, though the classic packets could be marked.
    for dropped in dropped {
        assert!((2350..=2650).contains(&dropped), "{dropped} of 10 000");
    }
    assert_eq!(left + dropped[0] + dropped[1], 20_000);
}

#[test]
fn both_queues_share_the_room() {
    let mut queue = dualpi2(DualPi2Config { limit: Limit::Packets(3), ..DualPi2Config::default() });
    queue.enqueue(Time::ZERO, l4s(0)).lost();
    queue.enqueue(Time::ZERO, Probe::new(1)).lost();
    queue.enqueue(Time::ZERO, l4s(2)).lost();
    assert_eq!(queue.enqueue(Time::ZERO, l4s(3)), Verdict::Dropped(l4s(3)));
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(4)), Verdict::Dropped(Probe::new(4)));
    assert_eq!(queue.counters().overflowed.packets, 2);
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    let made = |config| DualPi2::<Probe>::new(config, Seed::new(1).stream("dualpi2")).map(|_| ());
    let usual = DualPi2Config::default();
    assert_eq!(made(usual), Ok(()));
    let none = DualPi2Config { limit: Limit::Packets(0), ..usual };
    assert!(matches!(made(none), Err(DualPi2Error::Limit(_))));
    for zero in [
        DualPi2Config { target: Duration::ZERO, ..usual },
        DualPi2Config { t_update: Duration::ZERO, ..usual },
        DualPi2Config { step: Duration::ZERO, ..usual },
    ] {
        assert_eq!(made(zero), Err(DualPi2Error::Zero));
    }
    assert_eq!(made(DualPi2Config { step: Duration::from_secs(100), ..usual }), Err(DualPi2Error::TooLong));
    assert_eq!(made(DualPi2Config { alpha: u32::MAX, ..usual }), Err(DualPi2Error::TooHeavy));
    assert_eq!(made(DualPi2Config { k: 0, ..usual }), Err(DualPi2Error::Coupling(0)));
    assert_eq!(made(DualPi2Config { classic: 256, ..usual }), Err(DualPi2Error::Share(256)));
}
