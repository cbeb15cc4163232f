//! One direction of a link: a queue, a transmitter, and a line with packets in flight.
//!
//! Each event has the time at which it is due, regardless of when a call processes it. After a late
//! call, the transmitter has still sent its packets back to back, and each arrives at the resulting
//! time. A late timer therefore delays packets by its own lateness, but never makes the link slower
//! than its rate.

use std::collections::VecDeque;

use marcato_queue::{Discipline, DropTail, Packet};
use marcato_units::{Bytes, Duration, Rate, Seed, Stream, Time};

/// Most packets on a line. Only links with a disproportionate bandwidth-delay product reach it:
/// 65 536 packets of 1200 bytes are 6 Gbit/s for 100 ms.
pub const MAX_UNDER_WAY: usize = 65_536;

/// Configuration of one direction of a link.
pub struct LinkConfig<P> {
    /// Rate of the transmitter.
    pub rate: Rate,
    /// Propagation delay of each packet after its transmission.
    pub delay: Duration,
    /// Probability, from 0 to 1, that a packet is lost after its transmission.
    pub loss: f64,
    /// Queue discipline before the transmitter, which takes one packet at a time.
    pub queue: Box<dyn Discipline<P> + Send>,
}

impl<P: Packet + Send + 'static> LinkConfig<P> {
    /// Creates a link without loss, behind a drop-tail queue of 1000 packets.
    pub fn new(rate: Rate, delay: Duration) -> Self {
        Self { rate, delay, loss: 0.0, queue: Box::new(DropTail::default()) }
    }

    /// Sets the queue discipline.
    #[must_use]
    pub fn queue(self, queue: impl Discipline<P> + Send + 'static) -> Self {
        Self { queue: Box::new(queue), ..self }
    }

    /// Sets the loss probability of each packet.
    #[must_use]
    pub fn loss(self, loss: f64) -> Self {
        Self { loss, ..self }
    }
}

/// Error returned for an invalid link configuration.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum LinkError {
    /// The rate is zero, so no packet would ever be sent.
    #[error("a link of rate 0 carries nothing: give it a rate")]
    NoRate,
    /// The loss is not a probability.
    #[error("a loss of {loss} is no probability: give one from 0 to 1")]
    Loss {
        /// Given loss.
        loss: f64,
    },
}

/// Counters of a link. At any time `offered = delivered + dropped + lost + discarded`, plus the
/// packets queued or in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets sent into the link.
    pub offered: u64,
    /// Packets that its queue dropped, at either end of the queue.
    pub dropped: u64,
    /// Packets that the line lost.
    pub lost: u64,
    /// Packets discarded because the line was full: see [`MAX_UNDER_WAY`].
    pub discarded: u64,
    /// Packets that came out at the far end.
    pub delivered: u64,
    /// Bytes of delivered packets, headers included.
    pub delivered_bytes: Bytes,
    /// Longest backlog of the queue, in bytes.
    pub longest_queue: Bytes,
}

/// One direction of a link. Time never runs backwards from one call to the next.
pub struct Link<P> {
    rate: Rate,
    delay: Duration,
    loss: f64,
    stream: Stream,
    queue: Box<dyn Discipline<P> + Send>,
    /// End of the transmission of the packet taken last.
    free_at: Time,
    line: VecDeque<(Time, P)>,
    counters: LinkCounters,
}

impl<P: Packet> Link<P> {
    /// Creates an empty link. Losses are drawn from the stream `loss/NAME` of `seed`.
    ///
    /// # Errors
    ///
    /// If it has no rate, or its loss is no probability.
    pub fn new(name: &str, config: LinkConfig<P>, seed: Seed) -> Result<Self, LinkError> {
        let LinkConfig { rate, delay, loss, queue } = config;
        if rate == Rate::ZERO {
            return Err(LinkError::NoRate);
        }
        if !(0.0..=1.0).contains(&loss) {
            return Err(LinkError::Loss { loss });
        }
        let stream = seed.stream(&format!("loss/{name}"));
        let (free_at, line, counters) = (Time::ZERO, VecDeque::new(), LinkCounters::default());
        Ok(Self { rate, delay, loss, stream, queue, free_at, line, counters })
    }

    /// Enqueues a packet.
    pub fn send(&mut self, now: Time, packet: P) {
        self.transmit(now);
        self.counters.offered += 1;
        let dropped = &mut self.counters.dropped;
        if self.queue.enqueue_with(now, packet, &mut |_| *dropped += 1).lost().is_some() {
            *dropped += 1;
        }
        self.counters.longest_queue = self.counters.longest_queue.max(self.queue.backlog().bytes);
        // An idle transmitter begins now, not when it became idle.
        self.free_at = self.free_at.max(now);
        self.transmit(now);
    }

    /// Returns the next packet that has come out by `now`.
    pub fn poll(&mut self, now: Time) -> Option<P> {
        self.transmit(now);
        self.line.front().filter(|(at, _)| *at <= now)?;
        let (_, packet) = self.line.pop_front()?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += packet.len();
        Some(packet)
    }

    /// Returns the time of the next call of [`poll`](Self::poll), if nothing is sent until then. No
    /// packet comes out earlier; perhaps none does even then.
    pub fn next_event(&self) -> Option<Time> {
        let arrival = self.line.front().map(|(at, _)| *at);
        let departure = self.queue.next_ready(self.free_at);
        arrival.into_iter().chain(departure).min()
    }

    /// Counters since the link was made.
    pub const fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Packets queued or in flight.
    pub fn inside(&self) -> u64 {
        self.queue.backlog().packets + self.line.len() as u64
    }

    /// Puts packets whose transmission has begun by `now` on the line, each at its own time.
    fn transmit(&mut self, now: Time) {
        while let Some(ready) = self.queue.next_ready(self.free_at).filter(|ready| *ready <= now) {
            let counters = &mut self.counters;
            let Some(packet) = self.queue.dequeue_with(ready, &mut |_| counters.dropped += 1) else {
                // The queue has dropped all its packets, or its ready time was wrong.
                self.free_at = ready;
                if self.queue.backlog().is_empty() {
                    return;
                }
                match self.queue.next_ready(ready) {
                    Some(later) if later > ready => continue,
                    _ => return,
                }
            };
            // A packet that the line loses has occupied the transmitter, too.
            self.free_at = ready + self.rate.transmission_time(packet.len());
            if self.stream.chance(self.loss) {
                self.counters.lost += 1;
            } else if self.line.len() >= MAX_UNDER_WAY {
                self.counters.discarded += 1;
            } else {
                self.line.push_back((self.free_at + self.delay, packet));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use marcato_queue::{Codel, CodelConfig, DropTailConfig, FlowKey, Limit};
    use proptest::prelude::*;

    use super::*;
    use crate::Datagram;

    /// Creates a datagram that occupies a link like this many bytes.
    fn packet(number: u8, bytes: usize) -> Datagram {
        Datagram::new(FlowKey::new(0), vec![number; bytes - 28])
    }

    fn link(config: LinkConfig<Datagram>) -> Link<Datagram> {
        Link::new("test", config, Seed::new(1)).unwrap()
    }

    /// Returns all arrivals with the times at which they are due, polled at these times only.
    fn arrivals(link: &mut Link<Datagram>, at: impl IntoIterator<Item = Time>) -> Vec<(Time, u8)> {
        let mut arrived = Vec::new();
        for now in at {
            while let Some(packet) = link.poll(now) {
                arrived.push((now, packet.payload()[0]));
            }
        }
        arrived
    }

    #[test]
    fn a_packet_takes_its_transmission_time_and_the_delay() {
        // 1000 bytes at 2 Mbit/s: 4 ms.
        let mut link = link(LinkConfig::new(Rate::from_mbps(2), Duration::from_millis(50)));
        link.send(Time::from_millis(10), packet(1, 1000));
        link.send(Time::from_millis(10), packet(2, 1000));
        assert_eq!(link.next_event(), Some(Time::from_millis(14)), "the second leaves");
        assert!(link.poll(Time::from_micros(63_999)).is_none());
        assert_eq!(link.poll(Time::from_millis(64)).unwrap().payload()[0], 1);
        assert_eq!(link.next_event(), Some(Time::from_millis(68)));
        assert!(link.poll(Time::from_micros(67_999)).is_none());
        assert_eq!(link.poll(Time::from_millis(68)).unwrap().payload()[0], 2);
        assert_eq!((link.next_event(), link.inside()), (None, 0));
    }

    #[test]
    fn a_link_polled_late_delivers_what_was_due_and_loses_no_time() {
        let config = || LinkConfig::new(Rate::from_mbps(2), Duration::from_millis(50));
        let (mut watched, mut late) = (link(config()), link(config()));
        for number in 0..100 {
            watched.send(Time::ZERO, packet(number, 1000));
            late.send(Time::ZERO, packet(number, 1000));
        }
        let at = |number: u64| Time::from_millis(4 * number + 54);
        let watched = arrivals(&mut watched, (0..100).map(at));
        assert_eq!(watched, (0..100).map(|number| (at(number.into()), number)).collect::<Vec<_>>());
        // Polled only once in the middle, and then at the end: all that is due has arrived.
        let mid = arrivals(&mut late, [Time::from_millis(4 * 50 + 54)]);
        assert_eq!(mid.len(), 51);
        assert_eq!(arrivals(&mut late, [at(99)]).len(), 49);
    }

    #[test]
    fn an_idle_transmitter_saves_nothing_up() {
        let mut link = link(LinkConfig::new(Rate::from_mbps(2), Duration::ZERO));
        link.send(Time::ZERO, packet(0, 1000));
        assert!(link.poll(Time::from_millis(4)).is_some());
        link.send(Time::from_secs(1), packet(1, 1000));
        assert!(link.poll(Time::from_millis(1003)).is_none());
        assert!(link.poll(Time::from_millis(1004)).is_some());
    }

    #[test]
    fn what_finds_the_queue_full_is_dropped_and_counted() {
        let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(2) }).unwrap();
        let mut link = link(LinkConfig::new(Rate::from_mbps(2), Duration::ZERO).queue(queue));
        for number in 0..4 {
            link.send(Time::ZERO, packet(number, 1000));
        }
        // One is being sent, and two are queued.
        assert_eq!((link.counters().dropped, link.inside()), (1, 3));
        assert_eq!(arrivals(&mut link, [Time::from_secs(1)]).len(), 3);
    }

    #[test]
    fn codel_sees_when_packets_leave_and_not_when_somebody_looks() {
        // Twice the link's capacity, for 2 s; polled after every packet, or only at the end.
        let run = |looks: bool| {
            let queue = Codel::new(CodelConfig::default()).unwrap();
            let mut link = link(LinkConfig::new(Rate::from_mbps(2), Duration::ZERO).queue(queue));
            for number in 0..1000u64 {
                let now = Time::from_millis(2 * number);
                link.send(now, packet(0, 1000));
                if looks {
                    while link.poll(now).is_some() {}
                }
            }
            while link.poll(Time::from_secs(60)).is_some() {}
            *link.counters()
        };
        let (often, once) = (run(true), run(false));
        assert!(often.dropped > 50, "{often:?}");
        assert_eq!(often, once);
    }

    #[test]
    fn loss_is_that_of_the_seed() {
        let lost = |seed| {
            let config = LinkConfig::new(Rate::from_mbps(1000), Duration::ZERO).loss(0.1);
            let mut link = Link::new("test", config, Seed::new(seed)).unwrap();
            let sent = |number: u64| (Time::from_millis(number), packet(0, 100));
            (0..10_000).map(sent).for_each(|(now, packet)| link.send(now, packet));
            link.counters().lost
        };
        // Of 10 000 at 10 %, the standard deviation is 30; the tolerance is five of them.
        assert!((850..=1150).contains(&lost(1)), "{}", lost(1));
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let error = |rate, loss| {
            let config: LinkConfig<Datagram> = LinkConfig::new(rate, Duration::ZERO).loss(loss);
            Link::new("test", config, Seed::new(1)).err()
        };
        assert_eq!(error(Rate::ZERO, 0.0), Some(LinkError::NoRate));
        assert_eq!(error(Rate::MAX, 1.5), Some(LinkError::Loss { loss: 1.5 }));
        assert!(matches!(error(Rate::MAX, f64::NAN), Some(LinkError::Loss { .. })));
        assert_eq!(error(Rate::MAX, 1.0), None);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_track_of_and_the_rate_is_kept(
            steps in prop::collection::vec((0u64..20_000, 28usize..1500, any::<bool>()), 1..200),
            mbps in 1u64..50, packets in 1u64..20, loss in 0.0..0.5f64,
        ) {
            let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(packets) }).unwrap();
            let rate = Rate::from_mbps(mbps);
            let config = LinkConfig::new(rate, Duration::from_millis(3)).queue(queue).loss(loss);
            let mut link = Link::new("test", config, Seed::new(5)).unwrap();
            let mut now = Time::ZERO;
            let (mut last, mut bytes) = (Time::ZERO, Bytes::ZERO);
            for (gap, len, look) in steps {
                now += Duration::from_micros(gap);
                link.send(now, Datagram::new(FlowKey::new(0), vec![0; len - 28]));
                if look {
                    let due = link.next_event();
                    while let Some(packet) = link.poll(now) {
                        prop_assert!(due.unwrap() <= now);
                        bytes += packet.len();
                        last = now;
                    }
                }
                let counters = *link.counters();
                let out = counters.delivered + counters.dropped + counters.lost + counters.discarded;
                prop_assert_eq!(counters.offered, out + link.inside());
                prop_assert_eq!(counters.delivered_bytes, bytes);
                // Transmission began at the first packet, possibly at time zero.
                prop_assert!(bytes <= rate.bytes_in(last.since(Time::ZERO)) + Bytes::new(1));
            }
            // Followed from event to event, the link empties.
            while let Some(at) = link.next_event() {
                prop_assert!(at >= now || link.poll(now).is_some());
                now = now.max(at);
                while link.poll(now).is_some() {}
            }
            prop_assert_eq!(link.inside(), 0);
        }
    }
}
