//! Strict priority, with one buffer per class and with a shared buffer.

use marcato_queue::{
    Backlog, Codel, CodelConfig, Counters, Discipline, DropTail, DropTailConfig, Limit, LimitError, PushOut,
    PushOutConfig, Strict, StrictConfig, StrictError, Verdict,
};
use marcato_units::{Bytes, Duration, Time};

use crate::common::{Probe, drain};

fn strict(high: u64, low: u64) -> Strict<DropTail<Probe>, DropTail<Probe>> {
    Strict::new(config(high, low)).unwrap()
}

fn config(high: u64, low: u64) -> StrictConfig {
    let class = |packets| DropTailConfig { limit: Limit::Packets(packets) };
    StrictConfig { high: class(high), low: class(low) }
}

fn push_out(packets: u64) -> PushOut<Probe> {
    PushOut::new(PushOutConfig { limit: Limit::Packets(packets) }).unwrap()
}

#[test]
fn a_high_packet_overtakes_every_low_one() {
    let mut queue = strict(10, 10);
    for id in 0..5 {
        assert_eq!(queue.enqueue(Time::ZERO, Probe::low(id)), Verdict::Queued);
    }
    assert_eq!(queue.dequeue(Time::ZERO), Some(Probe::low(0)));
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(100)), Verdict::Queued);
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(101)), Verdict::Queued);
    assert_eq!(drain(&mut queue, Time::ZERO), [100, 101, 1, 2, 3, 4]);
}

/// Departure times of high packets from a link that carries a packet per millisecond from `queue`.
///
/// `low` low packets arrive every millisecond, and a high one every third.
fn departures_of_high(mut queue: impl Discipline<Probe>, low: u64) -> Vec<(u64, Time)> {
    let mut left = Vec::new();
    for millisecond in 0..1000 {
        let now = Time::from_millis(millisecond);
        for _ in 0..low {
            queue.enqueue(now, Probe::low(millisecond)).lost();
        }
        if millisecond % 3 == 0 {
            assert_eq!(
                queue
                    .enqueue(now, Probe::new(millisecond))
                    .lost()
                    .filter(|lost| *lost == Probe::new(millisecond)),
                None
            );
        }
        if let Some(packet) = queue.dequeue(now)
            && packet.layer == marcato_units::Layer::High
        {
            left.push((packet.id, now));
        }
    }
    left
}

#[test]
fn low_packets_never_delay_high_ones() {
    let alone = departures_of_high(strict(10, 10), 0);
    assert_eq!(alone.len(), 334);
    assert_eq!(departures_of_high(strict(10, 10), 5), alone);
    assert_eq!(departures_of_high(push_out(10), 5), alone);
}

#[test]
fn a_full_buffer_of_one_class_takes_no_room_from_the_other() {
    let mut queue = strict(2, 3);
    let mut queued = |packet| matches!(queue.enqueue(Time::ZERO, packet), Verdict::Queued);
    assert_eq!([0, 1, 2, 3].map(|id| queued(Probe::low(id))), [true, true, true, false]);
    assert_eq!([4, 5, 6].map(|id| queued(Probe::new(id))), [true, true, false]);
    assert_eq!(queue.high().backlog().packets, 2);
    assert_eq!(queue.low().counters().overflowed.packets, 1);
    assert_eq!(queue.counters().overflowed.packets, 2);
}

#[test]
fn a_limit_that_admits_nothing_names_its_class() {
    let made = |high, low| Strict::<DropTail<Probe>, _>::new(config(high, low)).map(|_| ());
    assert_eq!(made(0, 1), Err(StrictError::High(LimitError::NoPackets)));
    assert_eq!(made(1, 0), Err(StrictError::Low(LimitError::NoPackets)));
    assert_eq!(made(1, 1), Ok(()));
}

#[test]
fn any_discipline_serves_as_a_class() {
    let high: Box<dyn Discipline<Probe>> = Box::new(Codel::new(CodelConfig::default()).unwrap());
    let low = DropTail::new(DropTailConfig::default()).unwrap();
    let mut queue = Strict::of(high, low);
    for id in 0..300 {
        assert_eq!(queue.enqueue(Time::ZERO, Probe::new(id)), Verdict::Queued);
        assert_eq!(queue.enqueue(Time::ZERO, Probe::low(id)), Verdict::Queued);
    }
    let mut dropped = 0;
    let mut left = 0;
    let mut now = Time::ZERO;
    while queue.dequeue_with(now, &mut |_| dropped += 1).is_some() {
        left += 1;
        now += Duration::from_millis(1);
    }
    // CoDel drops the losses of the high class, and the whole reports them.
    assert!(dropped > 0);
    assert_eq!(queue.counters().dropped.packets, dropped);
    assert_eq!(queue.counters().dequeued.packets, left);
    assert_eq!(left + dropped, 600);
    assert_eq!(queue.low().counters().dropped.packets, 0);
}

#[test]
fn a_high_packet_pushes_the_last_low_one_out_of_a_full_buffer() {
    let mut queue = push_out(3);
    for id in 0..3 {
        assert_eq!(queue.enqueue(Time::ZERO, Probe::low(id).with_len(100)), Verdict::Queued);
    }
    let mut displaced = Vec::new();
    let verdict = queue.enqueue_with(Time::ZERO, Probe::new(10), &mut |packet| displaced.push(packet));
    assert_eq!(verdict, Verdict::Queued);
    assert_eq!(displaced, [Probe::low(2).with_len(100)]);
    assert_eq!(queue.backlog().bytes, Bytes::new(1700));
    assert_eq!(queue.counters().overflowed.bytes, Bytes::new(100));
    assert_eq!(drain(&mut queue, Time::ZERO), [10, 0, 1]);
}

#[test]
fn a_low_packet_never_pushes_anything_out() {
    let mut queue = push_out(2);
    assert_eq!(queue.enqueue(Time::ZERO, Probe::low(0)), Verdict::Queued);
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(1)), Verdict::Queued);
    assert_eq!(queue.enqueue(Time::ZERO, Probe::low(2)), Verdict::Dropped(Probe::low(2)));
}

#[test]
fn a_buffer_full_of_high_packets_drops_the_next_one() {
    let mut queue = push_out(2);
    for id in 0..2 {
        assert_eq!(queue.enqueue(Time::ZERO, Probe::new(id)), Verdict::Queued);
    }
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(2)), Verdict::Dropped(Probe::new(2)));
    for limit in [Limit::Packets(0), Limit::Bytes(Bytes::ZERO)] {
        assert!(PushOut::<Probe>::new(PushOutConfig { limit }).is_err());
    }
}

#[test]
fn with_a_byte_limit_only_as_many_low_packets_go_as_needed() {
    let mut queue = PushOut::new(PushOutConfig { limit: Limit::Bytes(Bytes::new(4000)) }).unwrap();
    queue.enqueue(Time::ZERO, Probe::new(0).with_len(1000)).lost();
    for id in 1..=30 {
        assert_eq!(queue.enqueue(Time::ZERO, Probe::low(id).with_len(100)), Verdict::Queued);
    }
    let mut displaced = Vec::new();
    // 1450 bytes need the room of 15 packets of 100 bytes, the last that arrived.
    let verdict =
        queue.enqueue_with(Time::ZERO, Probe::new(31).with_len(1450), &mut |lost| displaced.push(lost.id));
    assert_eq!(verdict, Verdict::Queued);
    assert_eq!(displaced, (16..=30).rev().collect::<Vec<_>>());
    assert_eq!(queue.counters().overflowed.packets, 15);
    assert_eq!(queue.backlog().bytes, Bytes::new(3950));
    // 1600 bytes do not fit beside the high packets alone: then no low packet is dropped in vain.
    let refused = Probe::new(32).with_len(1600);
    let verdict = queue.enqueue_with(Time::ZERO, refused.clone(), &mut |lost| displaced.push(lost.id));
    assert_eq!((verdict, displaced.len()), (Verdict::Dropped(refused), 15));
    let low: Vec<u64> = (1..=15).collect();
    assert_eq!(drain(&mut queue, Time::ZERO), [vec![0, 31], low].concat());
}

/// A queue that keeps the packets that it observes, and never has any of its own.
#[derive(Default)]
struct Listener {
    heard: Vec<u64>,
    counters: Counters,
}

impl Discipline<Probe> for Listener {
    fn enqueue_with(&mut self, _: Time, packet: Probe, _: &mut dyn FnMut(Probe)) -> Verdict<Probe> {
        Verdict::Dropped(packet)
    }

    fn observe(&mut self, _: Time, packet: &Probe) {
        self.heard.push(packet.id);
    }

    fn dequeue_with(&mut self, _: Time, _: &mut dyn FnMut(Probe)) -> Option<Probe> {
        None
    }

    fn next_ready(&self, _: Time) -> Option<Time> {
        None
    }

    fn backlog(&self) -> Backlog {
        Backlog::default()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[test]
fn both_classes_observe_the_packets_of_the_other_way() {
    let mut queue = Box::new(Strict::of(Listener::default(), Listener::default()));
    // By name, so that the box itself is asked.
    <Box<_> as Discipline<Probe>>::observe(&mut queue, Time::ZERO, &Probe::new(7));
    <Box<_> as Discipline<Probe>>::observe(&mut queue, Time::ZERO, &Probe::low(8));
    assert_eq!((&queue.high().heard, &queue.low().heard), (&vec![7, 8], &vec![7, 8]));
}

#[test]
fn a_boxed_queue_lets_packets_pass_as_its_content_does() {
    let class = DropTailConfig { limit: Limit::Packets(1) };
    let mut queue: Box<DropTail<Probe>> = Box::new(DropTail::new(class).unwrap());
    assert!(<Box<_> as Discipline<Probe>>::pass(&mut queue, Time::ZERO, &Probe::new(0)));
    assert_eq!(queue.counters().dequeued.packets, 1);
}
