//! Step marking: the packets that are marked.

use marcato_queue::{
    Discipline, Limit, LimitError, StepMark, StepMarkConfig, StepMarkError, StepThreshold, Verdict,
};
use marcato_units::{Bytes, Duration, Time};
use marcato_wire::Ecn;

use crate::common::{Probe, bytes};

fn queue(limit: Limit, threshold: StepThreshold) -> StepMark<Probe> {
    StepMark::new(StepMarkConfig { limit, threshold }).unwrap()
}

/// Dequeues all packets at `now`, and returns the marked ones.
fn marks(queue: &mut StepMark<Probe>, now: Time) -> Vec<u64> {
    std::iter::from_fn(|| queue.dequeue(now))
        .filter(|probe| probe.ecn == Ecn::Ce)
        .map(|probe| probe.id)
        .collect()
}

#[test]
fn only_packets_that_find_k_waiting_are_marked() {
    // Ten packets of 1500 bytes arrive together. The fifth finds four packets, or 6000 bytes.
    for threshold in [StepThreshold::Packets(4), StepThreshold::Bytes(Bytes::new(7499))] {
        let mut queue = queue(Limit::Packets(100), threshold);
        for id in 0..10 {
            let packet = Probe::new(id).with_ecn(Ecn::Ect0);
            assert_eq!(queue.enqueue(Time::ZERO, packet), Verdict::Queued);
        }
        assert_eq!(queue.counters().marked.packets, 6, "{threshold:?}");
        assert_eq!(marks(&mut queue, Time::ZERO), [4, 5, 6, 7, 8, 9]);
    }
    let mut exact = queue(Limit::Packets(100), StepThreshold::Bytes(Bytes::new(7500)));
    for id in 0..10 {
        exact.enqueue(Time::ZERO, Probe::new(id).with_ecn(Ecn::Ect0)).lost();
    }
    assert_eq!(marks(&mut exact, Time::ZERO), [5, 6, 7, 8, 9], "K bytes are not above K");
}

#[test]
fn a_packet_that_waited_longer_than_the_threshold_is_marked() {
    let threshold = Duration::from_micros(50);
    for (nanos, marked) in [(49_999, false), (50_000, false), (50_001, true)] {
        let mut queue = queue(Limit::Packets(100), StepThreshold::Sojourn(threshold));
        queue.enqueue(Time::from_secs(1), Probe::new(0).with_ecn(Ecn::Ect1)).lost();
        let now = Time::from_secs(1) + Duration::from_nanos(nanos);
        assert_eq!(!marks(&mut queue, now).is_empty(), marked, "{nanos} ns");
    }
}

#[test]
fn packets_that_cannot_be_marked_pass_until_the_buffer_is_full() {
    let mut queue = queue(Limit::Packets(3), StepThreshold::Packets(1));
    for id in 0..3 {
        assert_eq!(queue.enqueue(Time::ZERO, Probe::new(id)), Verdict::Queued);
    }
    let late = Probe::new(3).with_ecn(Ecn::Ect0);
    assert_eq!(queue.enqueue(Time::ZERO, late.clone()), Verdict::Dropped(late));
    assert_eq!((queue.counters().marked.packets, queue.counters().overflowed.packets), (0, 1));
}

#[test]
fn configurations_that_cannot_work_are_errors() {
    let made = |limit, threshold| StepMark::<Probe>::new(StepMarkConfig { limit, threshold }).map(|_| ());
    assert_eq!(made(Limit::Packets(0), StepThreshold::Packets(1)), Err(LimitError::NoPackets.into()));
    let error = StepMarkError::Threshold { threshold: 10, limit: 10 };
    assert_eq!(made(Limit::Packets(10), StepThreshold::Packets(10)), Err(error));
    assert_eq!(made(bytes(10), StepThreshold::Bytes(Bytes::new(10))), Err(error));
    assert_eq!(
        error.to_string(),
        "a threshold of 10 is never exceeded in a buffer of 10: set it below the limit"
    );
    assert_eq!(made(Limit::Packets(10), StepThreshold::Packets(9)), Ok(()));
    assert_eq!(made(Limit::Packets(10), StepThreshold::Bytes(Bytes::new(99))), Ok(()));
}
