//! Drop-tail: the limit is exact.

use marcato_queue::{Backlog, Discipline, DropTail, DropTailConfig, Limit, LimitError, Tally, Verdict};
use marcato_units::{Bytes, Time};

use crate::common::{Probe, bytes, drain};

fn droptail(limit: Limit) -> DropTail<Probe> {
    DropTail::new(DropTailConfig { limit }).unwrap()
}

#[test]
fn the_packet_limit_is_exact() {
    let mut queue = droptail(Limit::Packets(3));
    for id in 0..3 {
        assert_eq!(queue.enqueue(Time::ZERO, Probe::new(id)), Verdict::Queued);
    }
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(3)), Verdict::Dropped(Probe::new(3)));
    assert_eq!(queue.dequeue(Time::ZERO), Some(Probe::new(0)));
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(4)), Verdict::Queued);
    assert_eq!(drain(&mut queue, Time::ZERO), [1, 2, 4]);
}

#[test]
fn the_byte_limit_is_exact_and_a_smaller_packet_may_still_fit() {
    let mut queue = droptail(bytes(3000));
    let verdicts = [1500, 1000, 501, 500, 1]
        .map(|len| matches!(queue.enqueue(Time::ZERO, Probe::new(len).with_len(len)), Verdict::Queued));
    assert_eq!(verdicts, [true, true, false, true, false]);
    assert_eq!(queue.backlog(), Backlog { packets: 3, bytes: Bytes::new(3000) });
    assert_eq!(queue.counters().overflowed, Tally { packets: 2, bytes: Bytes::new(502) });
}

#[test]
fn a_length_that_would_overflow_is_refused() {
    let mut queue = droptail(Limit::Bytes(Bytes::MAX));
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(0)), Verdict::Queued);
    let huge = Probe::new(1).with_len(u64::MAX);
    assert_eq!(queue.enqueue(Time::ZERO, huge.clone()), Verdict::Dropped(huge));
}

#[test]
fn a_limit_that_admits_nothing_is_an_error() {
    let made = |limit| DropTail::<Probe>::new(DropTailConfig { limit }).map(|_| ());
    assert_eq!(made(Limit::Packets(0)), Err(LimitError::NoPackets));
    assert_eq!(made(bytes(0)), Err(LimitError::NoBytes));
    assert_eq!(made(bytes(1)), Ok(()));
}

#[test]
fn a_packet_passes_an_empty_queue_alone() {
    let mut queue = droptail(bytes(1500));
    assert!(queue.pass(Time::ZERO, &Probe::new(0).with_len(1500)));
    assert!(!queue.pass(Time::ZERO, &Probe::new(1).with_len(1501)), "longer than the queue");
    let tally = Tally { packets: 1, bytes: Bytes::new(1500) };
    assert_eq!((queue.counters().enqueued, queue.counters().dequeued), (tally, tally));
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(2).with_len(100)), Verdict::Queued);
    assert!(!queue.pass(Time::ZERO, &Probe::new(3).with_len(100)), "it would overtake");
    assert_eq!(queue.counters().dequeued, tally);
}
