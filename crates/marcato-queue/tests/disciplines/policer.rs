//! Token bucket before a queue.

use marcato_queue::{Discipline, DropTail, Policer, PolicerConfig, PolicerError};
use marcato_units::{Bytes, Duration, Rate, Time};
use proptest::prelude::*;

use crate::common::Probe;

fn policer(rate: Rate, burst: u64) -> Policer<DropTail<Probe>> {
    Policer::new(PolicerConfig { rate, burst: Bytes::new(burst) }, DropTail::default()).unwrap()
}

/// Returns whether the queue takes a packet of this length.
fn passes(queue: &mut impl Discipline<Probe>, now: Time, len: u64) -> bool {
    queue.enqueue(now, Probe::new(0).with_len(len)).lost().is_none()
}

#[test]
fn a_full_bucket_lets_its_burst_pass_and_a_pause_fills_no_more() {
    let mut queue = policer(Rate::from_mbps(8), 3000);
    for now in [Time::ZERO, Time::from_secs(100)] {
        assert!(passes(&mut queue, now, 1500) && passes(&mut queue, now, 1500));
        assert!(!passes(&mut queue, now, 1));
    }
    // A packet that is too long takes no tokens from the next.
    let later = Time::from_secs(100) + Duration::from_millis(1);
    assert!(!passes(&mut queue, later, 1001) && passes(&mut queue, later, 1000));
}

#[test]
fn fractions_of_a_byte_are_kept() {
    // Three bytes a second: one every third of a second, and not a nanosecond earlier.
    let mut queue = policer(Rate::from_bps(24), 1);
    assert!(passes(&mut queue, Time::ZERO, 1));
    let third = Time::from_nanos(333_333_333);
    assert!(!passes(&mut queue, third, 1));
    assert!(passes(&mut queue, third + Duration::from_nanos(1), 1));
}

#[test]
fn policed_packets_count_as_dropped_and_not_as_overflow() {
    let mut queue = policer(Rate::from_mbps(8), 1500);
    assert!(passes(&mut queue, Time::ZERO, 1500) && !passes(&mut queue, Time::ZERO, 700));
    assert!(queue.dequeue(Time::ZERO).is_some());
    let counters = queue.counters();
    assert_eq!((counters.enqueued.packets, counters.enqueued.bytes), (2, Bytes::new(2200)));
    assert_eq!((counters.dropped.packets, counters.dropped.bytes), (1, Bytes::new(700)));
    assert_eq!((counters.overflowed.packets, counters.dequeued.packets), (0, 1));
}

#[test]
fn a_policer_that_lets_nothing_pass_is_refused() {
    let new = |rate, burst| {
        let config = PolicerConfig { rate, burst: Bytes::new(burst) };
        Policer::new(config, DropTail::<Probe>::default()).map(|_| ())
    };
    assert_eq!(new(Rate::ZERO, 1500), Err(PolicerError::Rate));
    assert_eq!(new(Rate::from_mbps(1), 0), Err(PolicerError::Burst));
}

proptest! {
    /// In every span, at most the burst and the tokens of the span pass. A packet is dropped only if
    /// it would exceed them in the span since some earlier time.
    #[test]
    fn no_span_has_more_than_its_tokens_and_none_are_wasted(
        kbps in 1u64..100_000, burst in 1u64..10_000,
        packets in prop::collection::vec((0u64..50_000_000, 1u64..2000), 1..60)
    ) {
        let rate = Rate::from_kbps(kbps);
        let mut queue = policer(rate, burst);
        let mut now = Time::ZERO;
        let mut passed: Vec<(Time, u64)> = Vec::new();
        // Bits and nanoseconds, so that the sums are exact.
        let tokens = |from: Time, to: Time| {
            u128::from(burst) * 8_000_000_000 + u128::from(rate.as_bps()) * (to - from).as_nanos()
        };
        for (gap, len) in packets {
            now += Duration::from_nanos(gap);
            let takes = passes(&mut queue, now, len);
            let parts = |len: u64| u128::from(len) * 8_000_000_000;
            let mut sum = parts(len);
            let mut fits = sum <= parts(burst);
            for &(at, len) in passed.iter().rev() {
                sum += parts(len);
                fits &= sum <= tokens(at, now);
            }
            prop_assert_eq!(takes, fits);
            if takes {
                passed.push((now, len));
            }
        }
    }
}
