//! CoDel: times and kinds of its signals, and the end of the dropping state.

use marcato_queue::{Codel, CodelConfig, CodelError, Discipline, Limit, LimitError, Verdict};
use marcato_units::{Bytes, Duration, Time};
use marcato_wire::Ecn;

use crate::common::{Probe, bytes};

/// One dequeue per tick.
const TICK: Duration = Duration::from_micros(10);

/// Configuration without a limit, so that only the control law drops.
fn roomy() -> CodelConfig {
    CodelConfig { limit: Limit::Packets(u64::MAX), ..CodelConfig::default() }
}

/// Queue that has held `packets` packets since time zero.
fn overloaded(config: CodelConfig, packets: u64, ecn: Ecn) -> Codel<Probe> {
    let mut queue = Codel::new(config).unwrap();
    for id in 0..packets {
        assert_eq!(queue.enqueue(Time::ZERO, Probe::new(id).with_ecn(ecn)), Verdict::Queued);
    }
    queue
}

/// Dequeues once per tick from `from` to `to` and returns the times of drops and marks.
fn signals(queue: &mut Codel<Probe>, from: Time, to: Time) -> Vec<Time> {
    let mut signals = Vec::new();
    let mut now = from;
    while now < to {
        let mut dropped = 0;
        let packet = queue.dequeue_with(now, &mut |_| dropped += 1).unwrap();
        if packet.ecn == Ecn::Ce {
            dropped += 1;
        }
        signals.extend((0..dropped).map(|_| now));
        now += TICK;
    }
    signals
}

/// Asserts that `signals`, counted from the first, are at `expected` milliseconds, which are
/// rounded to a tenth.
///
/// A signal comes with the first tick at or after the time of the control law.
fn assert_at(signals: &[Time], expected: &[f64]) {
    for (signal, expected) in signals.iter().zip(expected) {
        let at = (*signal - signals[0]).as_secs_f64() * 1e3;
        let late = at - expected;
        assert!((-0.05..=0.05 + 0.01).contains(&late), "signal at {at} ms instead of {expected} ms");
    }
    assert!(signals.len() >= expected.len());
}

/// Drop times in milliseconds: 100 ms times the sum of 1/sqrt(k). RFC 8289 §5.6.
const SCHEDULE: [f64; 8] = [0.0, 100.0, 170.7, 228.4, 278.4, 323.2, 364.0, 401.8];

#[test]
fn an_overloaded_queue_drops_at_the_times_of_the_control_law() {
    let mut queue = overloaded(roomy(), 200_000, Ecn::Ect0);
    let drops = signals(&mut queue, Time::ZERO, Time::from_millis(1105));
    // The sojourn time reaches the target at 5 ms; a full interval later the first packet is
    // dropped.
    assert_eq!(drops[0], Time::from_millis(105));
    assert_at(&drops, &SCHEDULE);
    // The law's own count: its 33rd drop comes after 994.2 ms and its 34th after 1011.6 ms.
    assert_eq!(drops.len(), 33);
    assert_eq!(queue.counters().dropped.packets, 33);
    assert_eq!(queue.counters().overflowed.packets, 0);
    assert_eq!(queue.counters().marked.packets, 0);
    assert!(queue.is_dropping());
}

#[test]
fn with_ecn_packets_are_marked_at_the_times_of_the_drops() {
    let mut dropping = overloaded(roomy(), 200_000, Ecn::Ect0);
    let drops = signals(&mut dropping, Time::ZERO, Time::from_secs(1));
    let mut marking = overloaded(CodelConfig { ecn: true, ..roomy() }, 200_000, Ecn::Ect0);
    let marks = signals(&mut marking, Time::ZERO, Time::from_secs(1));
    assert_eq!(marks, drops);
    assert_eq!(marking.counters().dropped.packets, 0);
    assert_eq!(marking.counters().marked.packets, u64::try_from(marks.len()).unwrap());
}

#[test]
fn with_ecn_packets_that_cannot_be_marked_are_dropped() {
    let mut queue = overloaded(CodelConfig { ecn: true, ..roomy() }, 200_000, Ecn::NotEct);
    assert_at(&signals(&mut queue, Time::ZERO, Time::from_secs(1)), &SCHEDULE);
    assert_eq!(queue.counters().marked.packets, 0);
    assert!(queue.counters().dropped.packets > 8);
}

#[test]
fn with_ecn_a_full_buffer_still_drops() {
    let config = CodelConfig { ecn: true, limit: Limit::Packets(2), ..CodelConfig::default() };
    let mut queue = overloaded(config, 2, Ecn::Ect0);
    let late = Probe::new(2).with_ecn(Ecn::Ect0);
    assert_eq!(queue.enqueue(Time::ZERO, late.clone()), Verdict::Dropped(late));
    assert_eq!(queue.counters().overflowed.packets, 1);
    assert_eq!(queue.counters().marked.packets, 0);
}

#[test]
fn nothing_is_dropped_before_an_interval_at_or_above_target() {
    // Exactly at the target counts as above; a nanosecond below does not.
    for (sojourn, expected) in [(5_000_000, true), (4_999_999, false)] {
        let mut queue = Codel::new(roomy()).unwrap();
        let mut drops = Vec::new();
        for tick in 0..30_000 {
            let now = Time::from_micros(tick * 10);
            queue.enqueue(now, Probe::new(tick)).lost();
            if tick >= 500 {
                // The head arrived `sojourn` ago: earlier packets have left.
                let then = Time::from_micros((tick - 500) * 10) + Duration::from_nanos(sojourn);
                queue.dequeue_with(then, &mut |_| drops.push(then));
            }
        }
        assert_eq!(!drops.is_empty(), expected, "with a sojourn time of {sojourn} ns");
        if let Some(first) = drops.first() {
            assert_eq!(*first, Time::from_millis(105));
        }
    }
}

#[test]
fn a_sojourn_time_below_the_target_ends_the_dropping_state() {
    let mut queue = overloaded(roomy(), 20_000, Ecn::NotEct);
    signals(&mut queue, Time::ZERO, Time::from_millis(150));
    assert!(queue.is_dropping());
    while queue.dequeue(Time::from_millis(150)).is_some() {}
    let now = Time::from_millis(151);
    for id in 0..10 {
        queue.enqueue(now, Probe::new(id)).lost();
    }
    assert!(queue.dequeue(now + Duration::from_millis(4)).is_some());
    assert!(!queue.is_dropping());
}

/// Signals of a second overload: `first` of overload and a `pause` of an empty queue come before
/// it.
fn signals_after_a_pause(first: Duration, pause: Duration) -> Vec<Time> {
    let mut queue = overloaded(roomy(), 200_000, Ecn::NotEct);
    let end = Time::ZERO + first;
    signals(&mut queue, Time::ZERO, end);
    assert!(queue.is_dropping());
    while queue.dequeue(end).is_some() {}
    assert!(!queue.is_dropping());
    let again = end + pause;
    for id in 0..100_000 {
        assert_eq!(queue.enqueue(again, Probe::new(id)), Verdict::Queued);
    }
    signals(&mut queue, again, again + Duration::from_millis(600))
}

#[test]
fn dropping_that_ended_recently_resumes_at_its_last_rate() {
    // In 105 to 1105 ms there are 33 drops, and count - lastcount is 32: 33 drops, the first of
    // which set both to 1. The queue is drained at one instant at the end: nothing is dropped then,
    // as drop_next lies ahead.
    let resumed = signals_after_a_pause(Duration::from_millis(1105), Duration::from_millis(500));
    let span = |count: f64| 100.0 / count.sqrt();
    assert_at(&resumed, &[0.0, span(32.0), span(32.0) + span(33.0), span(32.0) + span(33.0) + span(34.0)]);
}

#[test]
fn sixteen_intervals_later_dropping_begins_anew() {
    // drop_next is at 105 + 1011.6 ms. The next dropping state begins 105 ms after the second
    // overload.
    let first = Duration::from_millis(1105);
    let drop_next = 105.0 + 1011.56;
    let reentry = |pause: u64| 1105.0 + f64::from(u32::try_from(pause).unwrap()) + 105.0 - drop_next;
    assert!(reentry(1500) < 1600.0 && reentry(1510) > 1600.0);
    let soon = signals_after_a_pause(first, Duration::from_millis(1500));
    assert_at(&soon, &[0.0, 100.0 / 32f64.sqrt()]);
    let late = signals_after_a_pause(first, Duration::from_millis(1510));
    assert_at(&late, &SCHEDULE);
}

#[test]
fn a_dropping_state_that_dropped_once_is_not_remembered() {
    let resumed = signals_after_a_pause(Duration::from_millis(150), Duration::from_millis(10));
    assert_at(&resumed, &SCHEDULE);
}

#[test]
fn a_late_dequeue_catches_up_with_drops_but_marks_once() {
    for (ecn, lost, marked) in [(false, 4, 0), (true, 0, 1)] {
        let mut queue = overloaded(CodelConfig { ecn, ..roomy() }, 100, Ecn::Ect0);
        assert!(queue.dequeue(Time::from_millis(5)).is_some());
        assert!(queue.dequeue(Time::from_millis(105)).is_some());
        let before = *queue.counters();
        // The drops due at +100, +170.7, +228.4 and +278.4 ms.
        assert!(queue.dequeue(Time::from_millis(105 + 300)).is_some());
        assert_eq!(queue.counters().dropped.packets - before.dropped.packets, lost);
        assert_eq!(queue.counters().marked.packets - before.marked.packets, marked);
    }
}

#[test]
fn a_queue_of_one_mtu_never_drops() {
    let mut queue = Codel::new(roomy()).unwrap();
    queue.enqueue(Time::ZERO, Probe::new(0).with_len(1514)).lost();
    for second in 1..1000 {
        // One packet waits behind the one that leaves, for a second each.
        let now = Time::from_secs(second);
        queue.enqueue(now, Probe::new(second).with_len(1514)).lost();
        assert_eq!(queue.dequeue(now).map(|packet| packet.id), Some(second - 1));
    }
    assert_eq!(queue.counters().dropped.packets, 0);
    assert!(!queue.is_dropping());
}

#[test]
fn a_queue_of_a_byte_more_than_one_mtu_drops() {
    let mut queue = Codel::new(roomy()).unwrap();
    queue.enqueue(Time::ZERO, Probe::new(0).with_len(1515)).lost();
    for second in 1..10 {
        queue.enqueue(Time::from_secs(second), Probe::new(second).with_len(1515)).lost();
        queue.dequeue(Time::from_secs(second));
    }
    assert!(queue.counters().dropped.packets > 0);
}

#[test]
fn an_interval_shorter_than_the_target_works() {
    // CRQ, Fig. 4: target 0.1 ms, interval 0.01 ms.
    let config =
        CodelConfig { target: Duration::from_micros(100), interval: Duration::from_micros(10), ..roomy() };
    let mut queue = overloaded(config, 100_000, Ecn::NotEct);
    let drops = signals(&mut queue, Time::ZERO, Time::from_millis(1));
    assert_eq!(drops[0], Time::from_micros(110));
    assert!(drops.len() > 100);
}

#[test]
fn extreme_times_and_time_running_backwards_do_no_harm() {
    let mut queue = overloaded(roomy(), 1000, Ecn::NotEct);
    for now in [Time::MAX, Time::ZERO, Time::MAX, Time::MAX, Time::from_secs(1), Time::MAX] {
        queue.dequeue(now);
    }
    let counters = queue.counters();
    assert_eq!(
        counters.enqueued.packets,
        counters.dequeued.packets + counters.dropped.packets + queue.backlog().packets
    );
}

#[test]
fn configurations_that_cannot_work_are_errors() {
    let made = |config| Codel::<Probe>::new(config).map(|_| ());
    let default = CodelConfig::default();
    assert_eq!(made(default), Ok(()));
    let limit = CodelConfig { limit: Limit::Packets(0), ..default };
    assert_eq!(made(limit), Err(CodelError::Limit(LimitError::NoPackets)));
    let target = CodelConfig { target: Duration::ZERO, ..default };
    assert_eq!(made(target), Err(CodelError::ZeroTarget));
    let interval = CodelConfig { interval: Duration::ZERO, ..default };
    assert_eq!(made(interval), Err(CodelError::ZeroInterval));
    assert_eq!(made(CodelConfig { interval: Duration::MAX, ..default }), Err(CodelError::TooLong));
    assert_eq!(made(CodelConfig { maxpacket: Bytes::ZERO, ..default }), Err(CodelError::ZeroMaxpacket));
    let small = CodelConfig { limit: bytes(1513), ..default };
    let error = CodelError::LimitBelowMaxpacket { limit: Bytes::new(1513), maxpacket: Bytes::new(1514) };
    assert_eq!(made(small), Err(error));
    assert_eq!(error.to_string(), "a limit of 1513 B cannot hold a packet of 1514 B: raise the limit");
}
