//! Rules before a queue.

use std::cell::RefCell;
use std::rc::Rc;

use marcato_queue::{
    Codel, CodelConfig, Discipline, Fate, Filter, Filtered, Limit, PushOut, PushOutConfig, StepMark,
    StepMarkConfig, StepThreshold, Tagged, Verdict,
};
use marcato_units::{Bytes, Time};
use marcato_wire::Ecn;

use crate::common::Probe;

/// Filter that drops packet 9, and writes down what it sees.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    fn note(&self, text: String) {
        self.0.borrow_mut().push(text);
    }
}

impl<Q: Discipline<Probe>> Filter<Probe, Q> for Log {
    fn arrives(&mut self, _: Time, packet: &mut Probe) -> Fate {
        if packet.id == 9 { Fate::Drop } else { Fate::Pass }
    }

    fn observes(&mut self, _: Time, packet: &Probe) {
        self.note(format!("observes {}", packet.id));
    }

    fn lost(&mut self, _: Time, packet: &Probe) {
        self.note(format!("lost {}", packet.id));
    }

    fn arrived(&mut self, _: Time, queue: &Q) {
        self.note(format!("{} wait", queue.backlog().packets));
    }

    fn left(&mut self, _: Time, packet: Option<&Probe>, queue: &Q) {
        let id = packet.map_or("none".to_owned(), |packet| packet.id.to_string());
        self.note(format!("left {id}, {} wait", queue.backlog().packets));
    }
}

#[test]
fn a_filter_sees_each_packet_and_all_of_them_are_counted() {
    let log = Log::default();
    let inner = PushOut::new(PushOutConfig { limit: Limit::Packets(1) }).unwrap();
    let mut queue = Filtered::of(inner, log.clone());
    queue.observe(Time::ZERO, &Probe::new(7));
    assert_eq!(queue.enqueue(Time::ZERO, Probe::low(1)), Verdict::Queued);
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(9)), Verdict::Dropped(Probe::new(9)));
    // The second pushes the first out, and leaves no room for the third.
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(2)), Verdict::Queued);
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(3)), Verdict::Dropped(Probe::new(3)));
    assert_eq!(queue.dequeue(Time::ZERO), Some(Probe::new(2)));
    assert_eq!(queue.dequeue(Time::ZERO), None);
    let seen = [
        "observes 7",
        "1 wait",
        "lost 9",
        "1 wait",
        "lost 1",
        "1 wait",
        "lost 3",
        "1 wait",
        "left 2, 0 wait",
        "left none, 0 wait",
    ];
    assert_eq!(*log.0.borrow(), seen);
    let all = queue.counters();
    assert_eq!([all.enqueued, all.dequeued, all.dropped].map(|tally| tally.packets), [4, 1, 3]);
    assert_eq!(all.dropped.bytes, Bytes::new(4500));
    assert_eq!(queue.queue().counters().enqueued.packets, 3, "it never saw the one that the filter dropped");
}

/// A queue drops packets of its own at either call.
#[test]
fn drops_of_a_queue_itself_pass_through_its_filter() {
    let pass = |_: Time, _: &mut Probe| Fate::Pass;
    let mut queue = Filtered::of(PushOut::new(PushOutConfig { limit: Limit::Packets(1) }).unwrap(), pass);
    let mut lost = Vec::new();
    for packet in [Probe::low(1), Probe::new(2)] {
        assert_eq!(
            queue.enqueue_with(Time::ZERO, packet, &mut |packet| lost.push(packet.id)),
            Verdict::Queued
        );
    }
    assert_eq!(lost, [1]);
    let mut queue = Filtered::of(Codel::new(CodelConfig::default()).unwrap(), pass);
    for id in 0..100 {
        queue.enqueue(Time::ZERO, Probe::new(id)).lost();
    }
    let (mut lost, mut left) = (Vec::new(), Vec::new());
    for at in 0..60 {
        let now = Time::from_millis(100 + 10 * at);
        left.extend(queue.dequeue_with(now, &mut |packet| lost.push(packet.id)).map(|packet| packet.id));
    }
    assert_eq!((lost.len(), left.len()), (queue.counters().dropped.packets as usize, 60));
    assert!(lost.len() > 2, "{lost:?}");
    // Each of the first packets was either lost or sent.
    let mut all = [lost, left].concat();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..all.len() as u64), "{all:?}");
}

#[test]
fn a_mark_on_a_tagged_packet_is_on_the_packet_too() {
    let config = StepMarkConfig { limit: Limit::Packets(9), threshold: StepThreshold::Packets(1) };
    let mut queue = StepMark::new(config).unwrap();
    for id in 0..3 {
        let packet = Tagged::new(Probe::new(id).with_ecn(Ecn::Ect0), "tag");
        assert!(queue.enqueue(Time::ZERO, packet).lost().is_none());
    }
    let left: Vec<_> = std::iter::from_fn(|| queue.dequeue(Time::ZERO)).collect();
    let marks: Vec<_> = left.iter().map(|it| (it.marked, it.packet.ecn, it.tag)).collect();
    let marked = (true, Ecn::Ce, "tag");
    assert_eq!(marks, [(false, Ecn::Ect0, "tag"), marked, marked]);
}

#[test]
fn a_closure_is_a_filter_that_may_mark() {
    let mark = |_: Time, packet: &mut Probe| {
        packet.len = 100;
        Fate::Pass
    };
    let mut queue = Filtered::of(marcato_queue::DropTail::default(), mark);
    assert_eq!(queue.enqueue(Time::ZERO, Probe::new(1)), Verdict::Queued);
    assert_eq!(queue.dequeue(Time::ZERO), Some(Probe::new(1).with_len(100)));
}
