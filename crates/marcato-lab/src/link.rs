//! One direction of a link: a queue, a transmitter, and a line with packets in flight.
//!
//! Each event has the time at which it is due, regardless of when a call processes it. After a late
//! call, the transmitter has still sent its packets back to back, and each arrives at the resulting
//! time. A late timer therefore delays packets by its own lateness, but never makes the link slower
//! than its rate.
//!
//! Its rules are those of the simulator's links: the same packets, offered at the same times, are
//! lost, delayed and delivered alike. The transmitter and the wire are the same types (`marcato-link`).
//!
//! The two links around them stay apart: the simulator's schedules events, pre-empts low packets and counts
//! those of each flow; this one may be polled late, and tells an observer. `tests/simulated.rs` runs both
//! side by side: with random settings and changes, the same packets arrive at the same nanosecond. CoDel
//! drops the same packets whether the link is polled after each or only at the end.

use std::collections::VecDeque;

use marcato_link::{
    Arrival, DelaySummary, Histogram, Jitter, Load, Loss, Occupancy, Trace, Transmitter, Waiting, Wire,
};
use marcato_queue::{
    Backlog, Counters, Discipline, DropTail, FlowKey, FlowReport, Packet, Released, release,
};
use marcato_scenario::brief::Disorder;
use marcato_units::{Bytes, Duration, Rate, Seed, Stream, Time};

/// Most packets on a line. Only links with a disproportionate bandwidth-delay product reach it:
/// 65 536 packets of 1200 bytes are 6 Gbit/s for 100 ms.
pub const MAX_UNDER_WAY: usize = 65_536;

/// Packet that keeps the time at which it entered a link.
pub trait LinkPacket: Packet + Clone {
    /// Sets the time at which it entered.
    fn enter(&mut self, now: Time);

    /// Time at which it entered.
    fn entered(&self) -> Time;

    /// Inverts one of its bits, which `draw` chooses. Its headers as the link has read them stay.
    fn corrupt(&mut self, draw: u64);
}

/// Inverts a bit of a packet, if it has one.
pub(crate) fn invert(bytes: &mut [u8], draw: u64) {
    let bits = (bytes.len() as u64 * 8).max(1);
    let bit = draw % bits;
    if let Some(byte) = usize::try_from(bit / 8).ok().and_then(|at| bytes.get_mut(at)) {
        *byte ^= 1 << (bit % 8);
    }
}

/// Event of a packet on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketEvent {
    /// It was sent into the link.
    Offered,
    /// It was larger than the link's MTU.
    TooBig,
    /// The queue dropped it.
    Dropped,
    /// It left the queue, and its transmission began.
    Left,
    /// The line lost it, or the link was down.
    Lost,
    /// It came out at the far end.
    Arrived,
}

impl PacketEvent {
    /// Name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offered => "offered",
            Self::TooBig => "too big",
            Self::Dropped => "dropped",
            Self::Left => "left",
            Self::Lost => "lost",
            Self::Arrived => "arrived",
        }
    }
}

/// Observer of the packets of one direction of a link. It is called by the thread that moves packets,
/// so it must not wait for anything.
pub trait Watcher<P>: Send {
    /// Receives an event, with the time at which it was due. Times of successive events may run
    /// backwards by the lateness of a timer.
    fn note(&mut self, at: Time, event: PacketEvent, packet: &P);
}

/// Passes an event on if there is an observer.
fn tell<P>(watcher: &mut Option<Box<dyn Watcher<P>>>, at: Time, event: PacketEvent, packet: &P) {
    if let Some(watcher) = watcher {
        watcher.note(at, event, packet);
    }
}

/// Configuration of one direction of a link.
pub struct LinkConfig<P> {
    /// Rate of the transmitter; `None` sends at once.
    pub rate: Option<Rate>,
    /// Transmission opportunities, in place of a rate.
    pub trace: Option<Trace>,
    /// Propagation delay of each packet after its transmission.
    pub delay: Duration,
    /// Random addition to the delay of each packet.
    pub jitter: Option<Jitter>,
    /// Largest packet that the link takes; `None` is any. A larger one is dropped before the queue.
    pub mtu: Option<Bytes>,
    /// Bytes that the link adds to each packet: 18 for Ethernet with its check sequence.
    pub framing: Bytes,
    /// Loss of packets after their transmission.
    pub loss: Loss,
    /// Probability that a packet that is not lost arrives twice, the copy directly behind its
    /// original.
    pub duplication: f64,
    /// Probability that a packet skips the delay, and so overtakes those in flight. It needs no jitter.
    pub reordering: f64,
    /// Probability that one bit of a packet is inverted.
    pub corruption: f64,
    /// Queue discipline before the transmitter, which takes one packet at a time. Its limits count
    /// packets without framing.
    pub queue: Box<dyn Discipline<P> + Send>,
}

impl<P: Packet + Send + 'static> LinkConfig<P> {
    /// Creates a link without loss, behind a drop-tail queue of 1000 packets.
    pub fn new(rate: Rate, delay: Duration) -> Self {
        Self {
            rate: Some(rate),
            trace: None,
            delay,
            jitter: None,
            mtu: None,
            framing: Bytes::ZERO,
            loss: Loss::None,
            duplication: 0.0,
            reordering: 0.0,
            corruption: 0.0,
            queue: Box::new(DropTail::default()),
        }
    }

    /// Creates a link that only delays.
    pub fn delay_only(delay: Duration) -> Self {
        Self { rate: None, ..Self::new(Rate::MAX, delay) }
    }

    /// Creates a link that sends by `trace`, with 4 bytes of framing as in mahimahi.
    pub fn from_trace(trace: Trace, delay: Duration) -> Self {
        Self { framing: Bytes::new(4), trace: Some(trace), ..Self::delay_only(delay) }
    }

    /// Sets the queue discipline.
    #[must_use]
    pub fn queue(self, queue: impl Discipline<P> + Send + 'static) -> Self {
        Self { queue: Box::new(queue), ..self }
    }

    /// Sets the loss.
    #[must_use]
    pub fn loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// Sets the jitter added to the delay of each packet.
    #[must_use]
    pub fn jitter(self, jitter: Jitter) -> Self {
        Self { jitter: Some(jitter), ..self }
    }

    /// Sets the largest packet.
    #[must_use]
    pub fn mtu(self, mtu: Bytes) -> Self {
        Self { mtu: Some(mtu), ..self }
    }

    /// Sets the framing added to each packet.
    #[must_use]
    pub fn framing(self, framing: Bytes) -> Self {
        Self { framing, ..self }
    }

    /// Sets the probability that a packet is duplicated.
    #[must_use]
    pub fn duplication(self, duplication: f64) -> Self {
        Self { duplication, ..self }
    }

    /// Sets the probabilities that a packet skips the delay, and that a bit of it is inverted.
    #[must_use]
    pub fn disorder(self, Disorder { reordering, corruption }: Disorder) -> Self {
        Self { reordering, corruption, ..self }
    }
}

/// Change of a link at a time.
pub enum LinkChange<P> {
    /// New rate, for packets that have not begun to leave. Zero stops the link without losing
    /// packets.
    Rate(Rate),
    /// State, up or down. A link that is down loses each packet that is sent into it, begins to leave,
    /// or would arrive.
    Up(bool),
    /// New propagation delay, for packets that begin to leave from then on.
    Delay {
        /// New delay.
        delay: Duration,
        /// Lets packets with a shorter delay overtake those in flight. Otherwise they arrive no
        /// earlier than the last of them.
        reorder: bool,
    },
    /// New loss model. It continues the random stream of the old one.
    Loss(Loss),
    /// New queue. Packets that wait move over in the order in which the old queue releases them.
    Queue(Box<dyn Discipline<P> + Send>),
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
    /// The duplication is not a probability.
    #[error("a duplication of {duplication} is no probability: give one from 0 to 1")]
    Duplication {
        /// Given duplication.
        duplication: f64,
    },
    /// The reordering is not a probability.
    #[error("a reordering of {reordering} is no probability: give one from 0 to 1")]
    Reordering {
        /// Given reordering.
        reordering: f64,
    },
    /// The corruption is not a probability.
    #[error("a corruption of {corruption} is no probability: give one from 0 to 1")]
    Corruption {
        /// Given corruption.
        corruption: f64,
    },
}

/// Counters of a link. At any time `offered + duplicated = delivered + dropped + too_big + lost +
/// discarded`, plus the packets queued or in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets sent into the link.
    pub offered: u64,
    /// Packets that its queue dropped, at either end of the queue.
    pub dropped: u64,
    /// Packets larger than the link's MTU.
    pub too_big: u64,
    /// Packets that the line lost.
    pub lost: u64,
    /// Copies that the line made.
    pub duplicated: u64,
    /// Packets that skipped the delay.
    pub reordered: u64,
    /// Packets of which a bit was inverted.
    pub corrupted: u64,
    /// Packets discarded because the line was full: see [`MAX_UNDER_WAY`].
    pub discarded: u64,
    /// Packets that came out at the far end, copies included.
    pub delivered: u64,
    /// Bytes of delivered packets, headers included.
    pub delivered_bytes: Bytes,
    /// Longest backlog of the queue, in bytes.
    pub longest_queue: Bytes,
}

/// Measurements of a direction of a link since its beginning, or since the last
/// [restart](Link::restart_measurement).
#[derive(Clone, Debug, PartialEq)]
pub struct LinkMeasurement {
    /// Backlog of the queue over that time.
    pub waiting: Waiting,
    /// Backlog of the queue now.
    pub backlog: Backlog,
    /// Bytes carried since the beginning of the link, and those that it could have carried.
    pub load: Load,
    /// Packets that the queue has marked since the beginning of the link.
    pub marked: u64,
}

/// Sojourn times of the packets that have left the queue of a direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Sojourns {
    /// Packets that have left the queue since the beginning of the link.
    pub packets: u64,
    /// Sum of their sojourn times.
    pub sum: Duration,
    /// Sojourn times since the beginning, or since the last [restart](Link::restart_measurement).
    pub histogram: Histogram,
}

/// One direction of a link. Time never runs backwards from one call to the next.
pub struct Link<P> {
    transmitter: Transmitter,
    delay: Duration,
    mtu: Option<Bytes>,
    framing: Bytes,
    queue: Box<dyn Discipline<P> + Send>,
    /// Packets in flight, and the number of those before the next.
    wire: Wire<(Time, u64), P>,
    next: u64,
    up: bool,
    /// Changes to come, in order.
    changes: VecDeque<(Time, LinkChange<P>)>,
    /// Packets that have come out, except those that arrived while the link was down.
    out: VecDeque<(Time, P)>,
    counters: LinkCounters,
    /// Counters of queues that have been replaced, and the bytes that they judged.
    replaced: Counters,
    replaced_judged: [Bytes; 2],
    occupancy: Occupancy,
    sojourns: Sojourns,
    /// Bytes put on the wire, framing included.
    carried: Bytes,
    lateness: Histogram,
    watcher: Option<Box<dyn Watcher<P>>>,
    reordering: Chance,
    corruption: Chance,
}

/// Event of single packets, with the stream that it is drawn from.
struct Chance {
    probability: f64,
    stream: Stream,
}

impl Chance {
    /// Returns a number of the stream if the event occurs.
    fn draw(&mut self) -> Option<u64> {
        (self.probability > 0.0 && self.stream.chance(self.probability)).then(|| self.stream.next_u64())
    }
}

impl<P: LinkPacket> Link<P> {
    /// Creates an empty link. Losses are drawn from the stream `loss/NAME` of `seed`; jitter,
    /// duplication, reordering and corruption from streams of these names.
    ///
    /// # Errors
    ///
    /// If its rate is zero, or a probability is not from 0 to 1.
    pub fn new(name: &str, config: LinkConfig<P>, seed: Seed) -> Result<Self, LinkError> {
        let LinkConfig { rate, trace, delay, jitter, mtu, framing, loss, duplication, .. } = config;
        let LinkConfig { reordering, corruption, queue, .. } = config;
        if rate == Some(Rate::ZERO) {
            return Err(LinkError::NoRate);
        }
        if let Loss::Random(loss) = loss
            && !(0.0..=1.0).contains(&loss)
        {
            return Err(LinkError::Loss { loss });
        }
        if !(0.0..=1.0).contains(&duplication) {
            return Err(LinkError::Duplication { duplication });
        }
        if !(0.0..=1.0).contains(&reordering) {
            return Err(LinkError::Reordering { reordering });
        }
        if !(0.0..=1.0).contains(&corruption) {
            return Err(LinkError::Corruption { corruption });
        }
        let mut wire = Wire::new(loss, jitter, duplication, name, seed);
        if reordering > 0.0 {
            wire.shorten(true);
        }
        let chance =
            |what: &str, probability| Chance { probability, stream: seed.stream(&format!("{what}/{name}")) };
        Ok(Self {
            transmitter: Transmitter::new(rate, trace),
            delay,
            mtu,
            framing,
            queue,
            wire,
            next: 0,
            up: true,
            changes: VecDeque::new(),
            out: VecDeque::new(),
            counters: LinkCounters::default(),
            replaced: Counters::default(),
            replaced_judged: [Bytes::ZERO; 2],
            occupancy: Occupancy::default(),
            sojourns: Sojourns { packets: 0, sum: Duration::ZERO, histogram: Histogram::default() },
            carried: Bytes::ZERO,
            lateness: Histogram::default(),
            watcher: None,
            reordering: chance("reordering", reordering),
            corruption: chance("corruption", corruption),
        })
    }

    /// Schedules a change. Changes are scheduled in the order of their times.
    pub fn change_at(&mut self, at: Time, change: LinkChange<P>) {
        self.changes.push_back((at, change));
    }

    /// Passes all events of packets to an observer from now on, in place of an earlier one.
    pub fn watch(&mut self, watcher: Box<dyn Watcher<P>>) {
        self.watcher = Some(watcher);
    }

    /// Enqueues a packet.
    pub fn send(&mut self, now: Time, mut packet: P) {
        self.advance(now);
        packet.enter(now);
        self.counters.offered += 1;
        self.tell(now, PacketEvent::Offered, &packet);
        if !self.up {
            self.counters.lost += 1;
            self.tell(now, PacketEvent::Lost, &packet);
            return;
        }
        if self.mtu.is_some_and(|mtu| packet.len() > mtu) {
            self.counters.too_big += 1;
            self.tell(now, PacketEvent::TooBig, &packet);
            return;
        }
        self.enqueue(now, packet);
        self.counters.longest_queue = self.counters.longest_queue.max(self.queue.backlog().bytes);
        // An idle transmitter begins now, not when it became idle.
        self.transmitter.idle_until(now);
        self.transmit(now);
    }

    fn enqueue(&mut self, now: Time, packet: P) {
        let (counters, watcher) = (&mut self.counters, &mut self.watcher);
        let mut dropped = |packet: P| {
            counters.dropped += 1;
            tell(watcher, now, PacketEvent::Dropped, &packet);
        };
        if let Some(refused) = self.queue.enqueue_with(now, packet, &mut dropped).lost() {
            dropped(refused);
        }
        self.occupancy.set(now, 0, self.queue.backlog());
    }

    fn tell(&mut self, at: Time, event: PacketEvent, packet: &P) {
        tell(&mut self.watcher, at, event, packet);
    }

    /// Returns the next packet that has come out by `now`.
    pub fn poll(&mut self, now: Time) -> Option<P> {
        self.advance(now);
        let (at, packet) = loop {
            if let Some(out) = self.out.pop_front() {
                break out;
            }
            let at = self.wire.next_arrival().filter(|at| *at <= now)?;
            let (packet, _) = self.wire.pop()?;
            if let Some(packet) = self.arrive(at, packet) {
                break (at, packet);
            }
        };
        self.counters.delivered += 1;
        self.counters.delivered_bytes += packet.len();
        self.lateness.record(now.since(at));
        self.tell(at, PacketEvent::Arrived, &packet);
        Some(packet)
    }

    /// Returns a packet that arrives, unless the link is down.
    fn arrive(&mut self, at: Time, packet: P) -> Option<P> {
        if self.up {
            return Some(packet);
        }
        self.counters.lost += 1;
        self.tell(at, PacketEvent::Lost, &packet);
        None
    }

    /// Makes the changes that are due, each between the events before and after it.
    fn advance(&mut self, now: Time) {
        while self.changes.front().is_some_and(|(at, _)| *at <= now) {
            let Some((at, change)) = self.changes.pop_front() else { break };
            self.transmit(at);
            while let Some(arrival) = self.wire.next_arrival().filter(|arrival| *arrival <= at) {
                let arrived = self.wire.pop().and_then(|(packet, _)| self.arrive(arrival, packet));
                self.out.extend(arrived.map(|packet| (arrival, packet)));
            }
            self.change(at, change);
        }
        self.transmit(now);
    }

    fn change(&mut self, now: Time, change: LinkChange<P>) {
        match change {
            LinkChange::Rate(rate) => {
                self.transmitter.set_rate(now, rate);
                // A packet that waited for a rate begins now.
                self.transmitter.idle_until(now);
            }
            LinkChange::Up(up) => self.up = up,
            LinkChange::Delay { delay, reorder } => {
                if delay < self.delay {
                    self.wire.shorten(reorder);
                }
                self.delay = delay;
            }
            LinkChange::Loss(loss) => self.wire.set_loss(loss),
            LinkChange::Queue(queue) => {
                let mut old = std::mem::replace(&mut self.queue, queue);
                self.move_over(now, &mut *old);
                self.transmitter.idle_until(now);
            }
        }
    }

    /// Moves the packets of an old queue to the present one.
    fn move_over(&mut self, now: Time, old: &mut dyn Discipline<P>) {
        release(now, old, &mut |released| match released {
            Released::Packet(packet) => self.enqueue(now, packet),
            Released::Dropped(packet) => {
                self.counters.dropped += 1;
                self.tell(now, PacketEvent::Dropped, &packet);
            }
        });
        self.replaced = self.replaced + *old.counters();
        for (sum, judged) in self.replaced_judged.iter_mut().zip(old.judged().unwrap_or_default()) {
            *sum += judged;
        }
    }

    /// Returns the time of the next call of [`poll`](Self::poll), if nothing is sent until then. No
    /// packet comes out earlier; perhaps none does even then.
    pub fn next_event(&self) -> Option<Time> {
        let departure =
            self.queue.next_ready(self.transmitter.free_at()).filter(|_| !self.transmitter.is_stopped());
        let change = self.changes.front().map(|(at, _)| *at);
        // What has come out before a change is due at once.
        let out = self.out.front().map(|_| Time::ZERO);
        self.wire.next_arrival().into_iter().chain(departure).chain(change).chain(out).min()
    }

    /// Counters since the link was made.
    pub const fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Bytes in the queue.
    pub fn queued(&self) -> Bytes {
        self.queue.backlog().bytes
    }

    /// Measurements until `now`.
    pub fn measurement(&mut self, now: Time) -> LinkMeasurement {
        self.advance(now);
        LinkMeasurement {
            waiting: self.occupancy.until(now),
            backlog: self.queue.backlog(),
            load: self.transmitter.load(now, self.carried),
            marked: (self.replaced + *self.queue.counters()).marked.packets,
        }
    }

    /// Sojourn times until `now`.
    pub fn sojourns(&mut self, now: Time) -> Sojourns {
        self.advance(now);
        self.sojourns.clone()
    }

    /// Bytes offered to queues that judge flows, since the beginning of the link: of flows that they
    /// called responsive, and of all. `None` if the queue judges none.
    pub fn judged(&self) -> Option<[Bytes; 2]> {
        let judged = self.queue.judged()?;
        Some([0, 1].map(|of| self.replaced_judged[of] + judged[of]))
    }

    /// Report of the queue on a flow; `None` if it judges none, or does not know this one.
    pub fn report(&self, flow: FlowKey) -> Option<FlowReport> {
        self.queue.report(flow)
    }

    /// Times by which packets were polled later than they came out, since the beginning of the link;
    /// `None` before the first packet. Receivers see them as jitter.
    pub fn lateness(&self) -> Option<DelaySummary> {
        DelaySummary::of(&self.lateness)
    }

    /// Begins a new measurement of the queue at `now`.
    pub fn restart_measurement(&mut self, now: Time) {
        self.advance(now);
        self.occupancy.restart(now);
        self.sojourns.histogram = Histogram::default();
    }

    /// Shows the queue a packet of the other direction, for queues that judge flows by their answers.
    pub fn observe(&mut self, now: Time, packet: &P) {
        self.queue.observe(now, packet);
    }

    /// Packets queued or in flight.
    pub fn inside(&self) -> u64 {
        self.queue.backlog().packets + self.wire.in_flight() as u64 + self.out.len() as u64
    }

    /// Puts packets whose transmission has begun by `now` on the line, each at its own time.
    fn transmit(&mut self, now: Time) {
        if self.transmitter.is_stopped() {
            return;
        }
        while let Some(ready) =
            self.queue.next_ready(self.transmitter.free_at()).filter(|ready| *ready <= now)
        {
            if !self.transmitter.may_begin(ready) {
                // The packet waits in the queue, which may still drop it.
                continue;
            }
            let (counters, watcher) = (&mut self.counters, &mut self.watcher);
            let packet = self.queue.dequeue_with(ready, &mut |packet| {
                counters.dropped += 1;
                tell(watcher, ready, PacketEvent::Dropped, &packet);
            });
            self.occupancy.set(ready, 0, self.queue.backlog());
            let Some(packet) = packet else {
                // The queue has dropped all its packets, or its ready time was wrong.
                self.transmitter.idle_until(ready);
                if self.queue.backlog().is_empty() {
                    return;
                }
                match self.queue.next_ready(ready) {
                    Some(later) if later > ready => continue,
                    _ => return,
                }
            };
            let sojourn = ready.since(packet.entered());
            self.sojourns.packets += 1;
            self.sojourns.sum += sojourn;
            self.sojourns.histogram.record(sojourn);
            self.tell(ready, PacketEvent::Left, &packet);
            let on_wire = packet.len() + self.framing;
            self.carried += on_wire;
            let left_at = self.transmitter.begin(ready, on_wire);
            self.put(left_at, packet);
        }
    }

    /// Puts a packet that has left the transmitter on the line. A packet that the line loses has
    /// occupied the transmitter, too.
    fn put(&mut self, left_at: Time, mut packet: P) {
        let Some(Arrival { mut at, twice }) = self.wire.arrival(left_at + self.delay, self.up) else {
            self.counters.lost += 1;
            self.tell(left_at, PacketEvent::Lost, &packet);
            return;
        };
        if self.reordering.draw().is_some() {
            at = left_at;
            self.counters.reordered += 1;
        }
        if let Some(draw) = self.corruption.draw() {
            packet.corrupt(draw);
            self.counters.corrupted += 1;
        }
        let copy = twice.then(|| packet.clone());
        self.counters.duplicated += u64::from(twice);
        for packet in std::iter::once(packet).chain(copy) {
            if self.wire.in_flight() >= MAX_UNDER_WAY {
                self.counters.discarded += 1;
            } else {
                self.wire.push((at, self.next), packet);
                self.next += 1;
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
    fn reordered_packets_skip_the_delay_and_overtake() {
        let disorder = Disorder { reordering: 0.25, corruption: 0.0 };
        let mut link = link(LinkConfig::delay_only(Duration::from_millis(20)).disorder(disorder));
        let mut came = Vec::new();
        for at in 0..300_u64 {
            if let Ok(number) = u8::try_from(at) {
                link.send(Time::from_millis(at), packet(number, 100));
            }
            while let Some(packet) = link.poll(Time::from_millis(at)) {
                came.push((at, u64::from(packet.payload()[0])));
            }
        }
        assert_eq!(came.len(), 256);
        assert!(came.iter().all(|(at, sent)| [0, 20].contains(&(at - sent))), "{came:?}");
        let early = came.iter().filter(|(at, sent)| at == sent).count() as u64;
        assert_eq!(early, link.counters().reordered);
        // 256 packets at 25 %: the standard deviation is 6.9, the bound five of them.
        assert!((29..=99).contains(&early), "{early}");
        assert!(!came.is_sorted_by_key(|(_, sent)| *sent), "some overtake");
    }

    #[test]
    fn one_bit_of_corrupted_packets_is_inverted() {
        let disorder = Disorder { reordering: 0.0, corruption: 0.5 };
        let mut link = link(LinkConfig::delay_only(Duration::ZERO).disorder(disorder));
        let mut inverted = Vec::new();
        for _ in 0..400 {
            link.send(Time::ZERO, packet(0, 128));
            let came = link.poll(Time::ZERO).unwrap();
            inverted.push(came.payload().iter().map(|byte| byte.count_ones()).sum::<u32>());
        }
        assert!(inverted.iter().all(|bits| *bits <= 1), "{inverted:?}");
        let corrupted: u32 = inverted.iter().sum();
        assert_eq!(u64::from(corrupted), link.counters().corrupted);
        // 400 packets at 50 %: the standard deviation is 10, the bound five of them.
        assert!((150..=250).contains(&corrupted), "{corrupted}");
    }

    #[test]
    fn disorder_that_is_no_probability_is_refused() {
        for (reordering, corruption) in [(1.5, 0.0), (-0.1, 0.0), (0.0, 2.0), (f64::NAN, 0.0)] {
            let config = LinkConfig::<Datagram>::delay_only(Duration::ZERO);
            let config = config.disorder(Disorder { reordering, corruption });
            assert!(Link::new("test", config, Seed::new(1)).is_err(), "{reordering} {corruption}");
        }
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
    fn the_lateness_is_the_time_from_arrival_to_poll() {
        let mut link = link(LinkConfig::new(Rate::from_mbps(2), Duration::from_millis(50)));
        assert!(link.lateness().is_none());
        link.send(Time::ZERO, packet(1, 1000));
        link.send(Time::ZERO, packet(2, 1000));
        // They arrive at 54 and 58 ms.
        assert_eq!(arrivals(&mut link, [Time::from_millis(54), Time::from_millis(61)]).len(), 2);
        let late = link.lateness().unwrap();
        assert_eq!((late.count, late.min, late.max), (2, Duration::ZERO, Duration::from_millis(3)));
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
    fn packets_that_find_the_queue_full_are_dropped_and_counted() {
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
            let config = LinkConfig::new(Rate::from_mbps(1000), Duration::ZERO).loss(Loss::Random(0.1));
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
    fn a_link_by_a_trace_sends_at_its_opportunities() {
        // Opportunities at 1, 2, 2, 7, 8, ... ms, of 1504 bytes each.
        let trace = Trace::from_millis([1, 2, 2, 7]).unwrap();
        let mut link = link(LinkConfig::from_trace(trace, Duration::from_millis(10)));
        for number in 0..3 {
            link.send(Time::ZERO, packet(number, 1500));
        }
        // It shares an opportunity with the next one: 304 and 304 bytes.
        link.send(Time::from_millis(3), packet(3, 300));
        link.send(Time::from_millis(3), packet(4, 300));
        let at = (0..=20).map(Time::from_millis);
        let expected = [(11, 0), (12, 1), (12, 2), (17, 3), (17, 4)];
        assert_eq!(arrivals(&mut link, at), expected.map(|(at, number)| (Time::from_millis(at), number)));
    }

    #[test]
    fn a_link_without_a_rate_only_delays() {
        let mut link = link(LinkConfig::delay_only(Duration::from_millis(5)));
        link.send(Time::from_millis(1), packet(0, 1500));
        link.send(Time::from_millis(1), packet(1, 1500));
        assert_eq!(arrivals(&mut link, [Time::from_micros(5999)]), []);
        let at = Time::from_millis(6);
        assert_eq!(arrivals(&mut link, [at]), [(at, 0), (at, 1)]);
    }

    #[test]
    fn framing_takes_time_and_packets_beyond_the_mtu_take_none() {
        let config = LinkConfig::new(Rate::from_mbps(8), Duration::ZERO);
        let mut link = link(config.framing(Bytes::new(18)).mtu(Bytes::new(1000)));
        link.send(Time::ZERO, packet(0, 1001));
        link.send(Time::ZERO, packet(1, 1000));
        // 1018 bytes at a byte in a microsecond.
        assert_eq!(link.next_event(), Some(Time::from_micros(1018)));
        assert_eq!(arrivals(&mut link, [Time::from_micros(1018)]).len(), 1);
        assert_eq!((link.counters().too_big, link.counters().delivered), (1, 1));
    }

    #[test]
    fn packets_overtake_only_where_jitter_allows_it() {
        let numbers = |reorder| {
            let held = Jitter::held(0.2, Duration::from_millis(20)).unwrap().reorder(reorder);
            let config = LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(5)).jitter(held);
            let mut link = link(config);
            for number in 0..50 {
                link.send(Time::from_millis(number.into()), packet(number, 1000));
            }
            let arrived = arrivals(&mut link, (0..200).map(Time::from_millis));
            arrived.into_iter().map(|(_, number)| number).collect::<Vec<_>>()
        };
        assert!(numbers(false).is_sorted());
        let mut passed = numbers(true);
        assert!(!passed.is_sorted());
        passed.sort_unstable();
        assert_eq!(passed, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn a_copy_arrives_directly_behind_its_original() {
        let mut link = link(LinkConfig::new(Rate::from_mbps(8), Duration::ZERO).duplication(1.0));
        link.send(Time::ZERO, packet(0, 1000));
        link.send(Time::ZERO, packet(1, 1000));
        let numbers = |arrived: Vec<(Time, u8)>| arrived.into_iter().map(|it| it.1).collect::<Vec<_>>();
        assert_eq!(numbers(arrivals(&mut link, [Time::from_millis(1)])), [0, 0]);
        assert_eq!(numbers(arrivals(&mut link, [Time::from_millis(2)])), [1, 1]);
        assert_eq!((link.counters().duplicated, link.counters().delivered), (2, 4));
    }

    #[test]
    fn a_change_that_is_noticed_late_concerns_only_later_packets() {
        // 1000 bytes take 1 ms, and 8 ms after the change.
        let mut link = link(LinkConfig::new(Rate::from_mbps(8), Duration::ZERO));
        link.change_at(Time::from_micros(1500), LinkChange::Rate(Rate::from_mbps(1)));
        for number in 0..3 {
            link.send(Time::ZERO, packet(number, 1000));
        }
        let polls = [2000, 9999, 10_000].map(Time::from_micros);
        let expected = [(2000, 0), (2000, 1), (10_000, 2)];
        assert_eq!(arrivals(&mut link, polls), expected.map(|(at, number)| (Time::from_micros(at), number)));
    }

    #[test]
    fn a_link_of_rate_zero_stands_still_and_one_that_is_down_loses() {
        let mut link = link(LinkConfig::new(Rate::from_mbps(8), Duration::from_millis(1)));
        for (millis, change) in [
            (10, LinkChange::Rate(Rate::ZERO)),
            (30, LinkChange::Rate(Rate::from_mbps(8))),
            (50, LinkChange::Up(false)),
            (60, LinkChange::Up(true)),
        ] {
            link.change_at(Time::from_millis(millis), change);
        }
        let mut last = Time::ZERO;
        // The second would arrive, and the third is sent, while the link is down.
        let mut arrived = Vec::new();
        for (number, micros) in [(0, 20_000), (1, 48_500), (2, 55_000), (3, 70_000)] {
            let at = Time::from_micros(micros);
            let before = (0..100).map(Time::from_millis).filter(|poll| *poll < at && *poll >= last);
            arrived.extend(arrivals(&mut link, before));
            link.send(at, packet(number, 1000));
            last = at;
        }
        arrived.extend(arrivals(&mut link, (71..100).map(Time::from_millis)));
        let expected = [(32, 0), (72, 3)].map(|(at, number)| (Time::from_millis(at), number));
        assert_eq!(arrived, expected);
        assert_eq!(link.counters().lost, 2);
    }

    #[test]
    fn an_impossible_link_is_refused() {
        let error = |rate, loss| {
            let config: LinkConfig<Datagram> = LinkConfig::new(rate, Duration::ZERO).loss(Loss::Random(loss));
            Link::new("test", config, Seed::new(1)).err()
        };
        assert_eq!(error(Rate::ZERO, 0.0), Some(LinkError::NoRate));
        assert_eq!(error(Rate::MAX, 1.5), Some(LinkError::Loss { loss: 1.5 }));
        assert!(matches!(error(Rate::MAX, f64::NAN), Some(LinkError::Loss { .. })));
        assert_eq!(error(Rate::MAX, 1.0), None);
        let twice = LinkConfig::<Datagram>::new(Rate::MAX, Duration::ZERO).duplication(2.0);
        let error = Link::new("test", twice, Seed::new(1)).err();
        assert_eq!(error, Some(LinkError::Duplication { duplication: 2.0 }));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_track_of_and_the_rate_is_kept(
            steps in prop::collection::vec((0u64..20_000, 28usize..1500, any::<bool>()), 1..200),
            mbps in 1u64..50, packets in 1u64..20, loss in 0.0..0.5f64, duplication in 0.0..0.5f64, reorder in any::<bool>(),
        ) {
            let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(packets) }).unwrap();
            let rate = Rate::from_mbps(mbps);
            let config = LinkConfig::new(rate, Duration::from_millis(3)).queue(queue).loss(Loss::Random(loss));
            let jitter = Jitter::uniform(Duration::from_millis(5)).reorder(reorder);
            let config = config.jitter(jitter).duplication(duplication).mtu(Bytes::new(1400));
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
                let out = counters.delivered + counters.dropped + counters.too_big + counters.lost + counters.discarded;
                prop_assert_eq!(counters.offered + counters.duplicated, out + link.inside());
                prop_assert_eq!(counters.delivered_bytes, bytes);
                // Transmission began at the first packet, possibly at time zero.
                let copies = Bytes::new(1400) * counters.duplicated;
                prop_assert!(bytes <= rate.bytes_in(last.since(Time::ZERO)) + Bytes::new(1) + copies);
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
