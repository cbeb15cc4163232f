//! Link: a queue, a transmitter, and a wire that carries the packets in flight.

use std::any::Any;

use marcato_link::{Jitter, Load, Loss, Trace, Transmitter};
use marcato_queue::{
    Backlog, Counters, Discipline, DropTail, Packet as _, Released, Strict, Tally, Verdict, release,
};
use marcato_units::{Bytes, Duration, Layer, Rate, Seed, Time};
use marcato_wire::Ecn;

use crate::agenda::Agenda;
use crate::change::LinkChange;
use crate::event::Event;
use crate::packet::Packet;
use crate::preempted::{High, Preempted, Shared};
use crate::record::TapPoint;
use crate::sojourn::Sojourns;
use crate::tally::FlowTallies;
use crate::wire::Wire;

/// Queue before a transmitter: any discipline for packets of the simulator. After the run,
/// [`Network::queue`](crate::Network::queue) returns it.
pub trait LinkQueue: Discipline<Packet> + Any {}

impl<D: Discipline<Packet> + Any> LinkQueue for D {}

/// Configuration of one direction of a link.
pub struct LinkConfig {
    /// Transmission rate; `None` sends at once.
    pub rate: Option<Rate>,
    /// Transmission opportunities, in place of a rate. Of the rate, only [`Rate::ZERO`] then
    /// matters: opportunities pass unused.
    pub trace: Option<Trace>,
    /// Propagation delay.
    pub delay: Duration,
    /// Random addition to the delay of each packet.
    pub jitter: Option<Jitter>,
    /// Largest IP packet that the link takes; `None` is any. A larger one is dropped before the
    /// queue, without an ICMP message to the sender.
    pub mtu: Option<Bytes>,
    /// Bytes that the link adds to each IP packet: 2 for PPP, 18 for Ethernet with its check
    /// sequence.
    pub framing: Bytes,
    /// Clears the ECN field of each packet offered, as some devices on the Internet do. The queue
    /// then finds nothing to mark, and the receiver does not learn of earlier marks.
    pub bleaches: bool,
    /// Loss on the wire, after the queue.
    pub loss: Loss,
    /// Probability that a packet that is not lost arrives twice, the copy directly behind its
    /// original. It is drawn for each packet, lost ones included, from the stream
    /// `duplication/<link>`.
    pub duplication: f64,
    /// Queue before the transmitter. Its limits count IP bytes, without framing.
    pub queue: Box<dyn LinkQueue>,
    /// Lets the queue [observe](Discipline::observe) what comes out of the reverse link, which ends
    /// where this queue is.
    pub observes: bool,
    /// Additional delay before the next packet leaves, whenever one had to wait for another.
    ///
    /// It models a shaper whose bucket holds no more than a packet, such as a token bucket filter
    /// with a burst of one. A shaper that has run dry sleeps until there are tokens for the next
    /// packet, and its timer wakes it late. The tokens of that time do not fit the bucket. The link
    /// then carries one packet per transmission time plus this delay.
    pub wakes_late: Duration,
    /// Queue of [`Layer::Low`] on a link that pre-empts; the other queue then serves only the high
    /// class.
    ///
    /// A low packet leaves in the gaps between high ones. If a high packet arrives during its
    /// transmission, the low packet pauses, and resumes later without extra bytes. Each class has
    /// its own draws for loss and jitter. So packets of the high class leave, are dropped and
    /// arrive to the nanosecond as without a low class.
    ///
    /// Without a rate, or with a trace, each packet leaves in one instant, and the two queues are
    /// served as by [`Strict`].
    pub low: Option<Box<dyn Discipline<Packet>>>,
}

impl LinkConfig {
    /// Link of this rate and delay with a drop-tail queue of 1000 packets, and no framing, jitter,
    /// loss or MTU.
    pub fn new(rate: Rate, delay: Duration) -> Self {
        Self {
            rate: Some(rate),
            trace: None,
            delay,
            jitter: None,
            mtu: None,
            framing: Bytes::ZERO,
            bleaches: false,
            loss: Loss::None,
            duplication: 0.0,
            queue: Box::new(DropTail::default()),
            observes: false,
            wakes_late: Duration::ZERO,
            low: None,
        }
    }

    /// Link that only delays.
    pub fn delay_only(delay: Duration) -> Self {
        Self { rate: None, ..Self::new(Rate::MAX, delay) }
    }

    /// Link that sends by `trace`, with 4 bytes of framing as in mahimahi, and otherwise as
    /// [`new`](Self::new).
    pub fn from_trace(trace: Trace, delay: Duration) -> Self {
        Self { framing: Bytes::new(4), ..Self::delay_only(delay).trace(trace) }
    }

    /// Sets the queue discipline.
    #[must_use]
    pub fn queue(self, queue: impl Discipline<Packet> + 'static) -> Self {
        Self { queue: Box::new(queue), ..self }
    }

    /// Lets the queue [observe](Self::observes) the reverse link.
    #[must_use]
    pub fn observing(self) -> Self {
        Self { observes: true, ..self }
    }

    /// Enables [clearing](Self::bleaches) of the ECN field.
    #[must_use]
    pub fn bleaching(self) -> Self {
        Self { bleaches: true, ..self }
    }

    /// Sets the [lateness](Self::wakes_late) of the shaper.
    #[must_use]
    pub fn wakes_late(self, wakes_late: Duration) -> Self {
        Self { wakes_late, ..self }
    }

    /// Enables pre-emption of [`Layer::Low`], with this queue for it.
    #[must_use]
    pub fn preempt(self, low: impl Discipline<Packet> + 'static) -> Self {
        Self { low: Some(Box::new(low)), ..self }
    }

    /// Sets the loss on the wire.
    #[must_use]
    pub fn loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// Sets the probability that a packet is duplicated.
    #[must_use]
    pub fn duplication(self, duplication: f64) -> Self {
        Self { duplication, ..self }
    }

    /// Sets the framing added to each packet.
    #[must_use]
    pub fn framing(self, framing: Bytes) -> Self {
        Self { framing, ..self }
    }

    /// Sets a trace in place of the rate.
    #[must_use]
    pub fn trace(self, trace: Trace) -> Self {
        Self { trace: Some(trace), ..self }
    }

    /// Sets the jitter added to the delay of each packet.
    #[must_use]
    pub fn jitter(self, jitter: Jitter) -> Self {
        Self { jitter: Some(jitter), ..self }
    }

    /// Sets the largest IP packet.
    #[must_use]
    pub fn mtu(self, mtu: Bytes) -> Self {
        Self { mtu: Some(mtu), ..self }
    }
}

/// Packet counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets handed to the link.
    pub offered: u64,
    /// Packets that its queue dropped, on arrival or on departure.
    pub dropped: u64,
    /// Packets larger than the link's MTU.
    pub too_big: u64,
    /// Packets that the wire lost, or that met the link while it was down.
    pub lost: u64,
    /// Copies that the wire made.
    pub duplicated: u64,
    /// Number of times that a low packet in transmission paused for a high one.
    pub preempted: u64,
    /// Packets that arrived at the far end, copies included.
    pub delivered: u64,
    /// IP bytes that arrived at the far end, copies included.
    pub delivered_bytes: Bytes,
    /// Bytes put on the wire, framing and later losses included: what occupies the link.
    pub carried_bytes: Bytes,
}

pub(crate) struct Link {
    pub(crate) name: String,
    id: u32,
    transmitter: Transmitter,
    delay: Duration,
    framing: Bytes,
    pub(crate) mtu: Option<Bytes>,
    bleaches: bool,
    up: bool,
    pub(crate) queue: Box<dyn LinkQueue>,
    /// Counters of queues that have been replaced. Packets that moved over count in their last
    /// queue.
    replaced: Counters,
    wakes_late: Duration,
    /// Time of the event that will call [`ready`](Self::ready); events at other times are stale.
    wake_at: Option<Time>,
    /// True if the transmitter is free and the queue releases nothing before `wake_at`, unless a
    /// packet arrives that may pass.
    held: bool,
    /// Reverse link, if its queue observes this one.
    pub(crate) observer: Option<u32>,
    wire: Wire,
    /// Low class, if the link pre-empts it.
    low: Option<Box<Preempted>>,
    pub(crate) counters: LinkCounters,
    /// Sojourn times, if recorded.
    pub(crate) sojourns: Option<Box<Sojourns>>,
}

/// Counters in which a link records its packets.
pub(crate) struct Account<'a> {
    pub(crate) counters: &'a mut LinkCounters,
    pub(crate) tallies: &'a mut FlowTallies,
    pub(crate) sojourns: &'a mut Option<Box<Sojourns>>,
}

impl Account<'_> {
    /// Hands a packet to a queue.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        mut packet: Packet,
        queue: &mut (impl Discipline<Packet> + ?Sized),
    ) {
        if let Some(sojourns) = self.sojourns {
            sojourns.enter(now, &mut packet.stamp);
        }
        self.move_to(now, packet, queue);
    }

    /// Moves a packet from another queue to this one.
    #[inline]
    fn move_to(&mut self, now: Time, packet: Packet, queue: &mut (impl Discipline<Packet> + ?Sized)) {
        match queue.enqueue_with(now, packet, &mut |displaced| self.dropped(displaced)) {
            Verdict::Queued => {}
            Verdict::Dropped(packet) => self.dropped(packet),
        }
    }

    /// Records a packet that a queue dropped.
    #[cold]
    pub(crate) fn dropped(&mut self, mut packet: Packet) {
        if let Some(sojourns) = self.sojourns {
            sojourns.forget(&mut packet.stamp);
        }
        self.counters.dropped += 1;
        self.tallies.dropped(packet);
    }

    /// Records a packet that the wire lost.
    #[cold]
    pub(crate) fn lost(&mut self, packet: Packet) {
        self.counters.lost += 1;
        self.tallies.dropped(packet);
    }
}

impl Link {
    pub(crate) fn new(id: u32, name: String, config: LinkConfig, seed: Seed) -> Self {
        let has_gaps = config.rate.is_some() && config.trace.is_none();
        let (queue, low): (Box<dyn LinkQueue>, _) = match config.low {
            None => (config.queue, None),
            Some(low) if has_gaps => {
                let (name, arrival) = (format!("{name}/low"), Event::LowArrival { link: id });
                let wire =
                    Wire::new(config.loss.clone(), config.jitter, config.duplication, &name, seed, arrival);
                (config.queue, Some(Box::new(Preempted::new(low, wire))))
            }
            Some(low) => (Box::new(Strict::of(config.queue, low)), None),
        };
        let arrival = Event::Arrival { link: id };
        let wire = Wire::new(config.loss, config.jitter, config.duplication, &name, seed, arrival);
        Self {
            name,
            id,
            transmitter: Transmitter::new(config.rate, config.trace),
            delay: config.delay,
            framing: config.framing,
            mtu: config.mtu,
            bleaches: config.bleaches,
            up: true,
            queue,
            replaced: Counters::default(),
            wakes_late: config.wakes_late,
            wake_at: None,
            held: false,
            observer: None,
            wire,
            low,
            counters: LinkCounters::default(),
            sojourns: None,
        }
    }

    /// Changes the rate for every packet that has not begun to leave.
    pub(crate) fn set_rate(
        &mut self,
        now: Time,
        rate: Rate,
        agenda: &mut Agenda<Event>,
        tallies: &mut FlowTallies,
    ) {
        self.transmitter.set_rate(now, rate);
        // After an outage, no other event would wake the transmitter.
        if self.transmitter.free_at() <= now && (self.wake_at.is_none() || self.held) {
            self.transmit(now, agenda, tallies);
        }
        self.serve_low(now, agenda, tallies);
    }

    /// Takes the link up or down. A link that is down loses every packet that is offered, begins to
    /// leave, or would arrive.
    pub(crate) fn set_up(&mut self, up: bool) {
        self.up = up;
    }

    /// Applies a change of delay, loss or queue.
    #[cold]
    pub(crate) fn change(
        &mut self,
        now: Time,
        change: LinkChange,
        agenda: &mut Agenda<Event>,
        tallies: &mut FlowTallies,
    ) {
        match change {
            LinkChange::Delay { delay, reorder } => {
                if delay < self.delay {
                    self.wire.flight.shorten(reorder);
                    if let Some(low) = &mut self.low {
                        low.wire.flight.shorten(reorder);
                    }
                }
                self.delay = delay;
            }
            LinkChange::Loss(loss) => {
                if let Some(low) = &mut self.low {
                    low.wire.flight.set_loss(loss.clone());
                }
                self.wire.flight.set_loss(loss);
            }
            LinkChange::Queue { queue, low } => {
                self.change_queue(now, queue, low, tallies);
                if self.transmitter.free_at() <= now && (self.wake_at.is_none() || self.held) {
                    self.transmit(now, agenda, tallies);
                }
                self.serve_low(now, agenda, tallies);
            }
        }
    }

    fn change_queue(
        &mut self,
        now: Time,
        queue: Box<dyn LinkQueue>,
        low: Option<Box<dyn Discipline<Packet>>>,
        tallies: &mut FlowTallies,
    ) {
        let mut account = Account { counters: &mut self.counters, tallies, sojourns: &mut self.sojourns };
        let queue: Box<dyn LinkQueue> = match (low, &mut self.low) {
            (Some(low), Some(preempted)) => {
                let mut old = std::mem::replace(&mut preempted.queue, low);
                self.replaced = self.replaced + move_over(now, &mut old, &mut preempted.queue, &mut account);
                queue
            }
            (Some(low), None) => Box::new(Strict::of(queue, low)),
            (None, _) => queue,
        };
        let mut old = std::mem::replace(&mut self.queue, queue);
        self.replaced = self.replaced + move_over(now, &mut old, &mut self.queue, &mut account);
    }

    /// Returns the current transmission rate; `None` sends at once.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.transmitter.rate()
    }

    /// Returns the bytes carried up to `now`, and those that could have been.
    pub(crate) fn load(&self, now: Time) -> Load {
        let Load { carried, capacity } = self.transmitter.load(now, self.counters.carried_bytes);
        let low = self.low.as_ref().map_or(0.0, |low| low.rest(now, self.framing));
        Load { carried: carried - low, capacity }
    }

    /// Returns the time in which the backlog would leave at the current rate; `None` at rate 0.
    pub(crate) fn drain_time(&self) -> Option<Duration> {
        let (_, backlog) = self.queue_counters();
        let on_wire = backlog.bytes + self.framing * backlog.packets;
        match self.transmitter.rate() {
            Some(Rate::ZERO) => backlog.is_empty().then_some(Duration::ZERO),
            Some(rate) => Some(rate.transmission_time(on_wire)),
            None => Some(Duration::ZERO),
        }
    }

    /// Returns the number of packets on the wire, including a low packet in transmission.
    pub(crate) fn in_flight(&self) -> u64 {
        self.wire.flight.in_flight() as u64 + self.low.as_ref().map_or(0, |low| low.in_flight())
    }

    /// Returns the counters and the backlog of the queues.
    pub(crate) fn queue_counters(&self) -> (Counters, Backlog) {
        let (counters, backlog) = (self.replaced + *self.queue.counters(), self.queue.backlog());
        match &self.low {
            None => (counters, backlog),
            Some(low) => (counters + *low.queue.counters(), backlog + low.queue.backlog()),
        }
    }

    /// Accepts a packet.
    pub(crate) fn send(
        &mut self,
        now: Time,
        mut packet: Packet,
        agenda: &mut Agenda<Event>,
        tallies: &mut FlowTallies,
    ) {
        self.counters.offered += 1;
        tallies.pass(now, self.id, TapPoint::Entry, &packet);
        if self.bleaches {
            packet.ecn = Ecn::NotEct;
        }
        if !self.up {
            self.counters.lost += 1;
            tallies.dropped(packet);
            return;
        }
        if self.mtu.is_some_and(|mtu| packet.len() > mtu) {
            self.counters.too_big += 1;
            tallies.dropped(packet);
            return;
        }
        if let Some(low) = &mut self.low
            && packet.layer == Layer::Low
        {
            Account { counters: &mut self.counters, tallies, sojourns: &mut self.sojourns }.enqueue(
                now,
                packet,
                &mut low.queue,
            );
            self.serve_low(now, agenda, tallies);
            return;
        }
        // A link without rate or trace has no backlog, unless its queue holds packets back.
        if self.transmitter.sends_at_once() && self.queue.pass(now, &packet) {
            if let Some(sojourns) = &mut self.sojourns {
                sojourns.pass();
            }
            self.depart(now, packet, agenda, tallies);
            return;
        }
        Account { counters: &mut self.counters, tallies, sojourns: &mut self.sojourns }.enqueue(
            now,
            packet,
            &mut self.queue,
        );
        if self.wake_at.is_some() && !self.held {
            return;
        }
        if self.transmitter.free_at() <= now {
            self.transmit(now, agenda, tallies);
        } else {
            self.wake(now, agenda);
        }
    }

    /// Handles the end of a transmission.
    pub(crate) fn ready(&mut self, now: Time, agenda: &mut Agenda<Event>, tallies: &mut FlowTallies) {
        if self.wake_at != Some(now) {
            // Stale event: the queue has released a packet earlier.
            return;
        }
        self.wake_at = None;
        self.transmit(now, agenda, tallies);
    }

    /// Takes the packet that arrives now off the wire; `None` if the link is down.
    pub(crate) fn arrive(
        &mut self,
        now: Time,
        agenda: &mut Agenda<Event>,
        tallies: &mut FlowTallies,
    ) -> Option<Packet> {
        let packet = self.wire.take(agenda)?;
        self.arrived(now, packet, tallies)
    }

    /// Takes the low packet that arrives now off its wire; `None` if the link is down.
    pub(crate) fn low_arrive(
        &mut self,
        now: Time,
        agenda: &mut Agenda<Event>,
        tallies: &mut FlowTallies,
    ) -> Option<Packet> {
        let packet = self.low.as_mut()?.wire.take(agenda)?;
        self.arrived(now, packet, tallies)
    }

    /// Handles the end of a low transmission, or of the gap that the low class waits for.
    pub(crate) fn low_ready(&mut self, now: Time, agenda: &mut Agenda<Event>, tallies: &mut FlowTallies) {
        if self.low.as_mut().is_some_and(|low| low.is_due(now)) {
            self.serve_low(now, agenda, tallies);
        }
    }

    fn serve_low(&mut self, now: Time, agenda: &mut Agenda<Event>, tallies: &mut FlowTallies) {
        let (Some(low), Some(rate)) = (&mut self.low, self.transmitter.rate()) else { return };
        let free_at = self.transmitter.free_at();
        let high = if free_at > now {
            High::Sends(free_at)
        } else if self.queue.backlog().is_empty() || rate == Rate::ZERO {
            // In an outage no transmission begins, but one that has begun finishes.
            High::Idle
        } else {
            High::Waits
        };
        let (id, delay, framing, up) = (self.id, self.delay, self.framing, self.up);
        let account = Account { counters: &mut self.counters, tallies, sojourns: &mut self.sojourns };
        low.serve(now, high, &mut Shared { id, rate, delay, framing, up, account }, agenda);
    }

    /// Delivers a packet at the far end; `None` if the link is down.
    fn arrived(&mut self, now: Time, packet: Packet, tallies: &mut FlowTallies) -> Option<Packet> {
        if !self.up {
            self.counters.lost += 1;
            tallies.dropped(packet);
            return None;
        }
        self.counters.delivered += 1;
        self.counters.delivered_bytes += packet.len();
        tallies.pass(now, self.id, TapPoint::Exit, &packet);
        Some(packet)
    }

    /// Schedules the next attempt to send, if there is a backlog.
    fn wake(&mut self, now: Time, agenda: &mut Agenda<Event>) {
        self.held = false;
        if self.queue.backlog().is_empty() {
            return;
        }
        let free_at = self.transmitter.free_at();
        let at = if free_at > now {
            free_at + self.wakes_late
        } else {
            // The queue holds its packets back. The next attempt is at least 1 ns later, so that
            // time advances whatever the queue returns.
            self.held = true;
            let Some(at) = self.queue.next_ready(now).filter(|&at| at != Time::MAX) else { return };
            at.max(now + Duration::from_nanos(1))
        };
        if self.wake_at.is_none_or(|before| at < before) {
            self.wake_at = Some(at);
            agenda.at(at, Event::Ready { link: self.id });
        }
    }

    fn transmit(&mut self, now: Time, agenda: &mut Agenda<Event>, tallies: &mut FlowTallies) {
        if self.transmitter.is_stopped() {
            return;
        }
        // Without a rate, the transmitter is free at once, and the queue empties in one go.
        while self.transmitter.free_at() <= now && self.transmitter.may_begin(now) {
            let mut account = Account { counters: &mut self.counters, tallies, sojourns: &mut self.sojourns };
            let Some(packet) = self.queue.dequeue_with(now, &mut |packet| account.dropped(packet)) else {
                break;
            };
            self.depart(now, packet, agenda, tallies);
        }
        self.wake(now, agenda);
        self.serve_low(now, agenda, tallies);
    }

    /// Puts a packet from the queue on the wire.
    #[inline]
    fn depart(
        &mut self,
        now: Time,
        mut packet: Packet,
        agenda: &mut Agenda<Event>,
        tallies: &mut FlowTallies,
    ) {
        if let Some(sojourns) = &mut self.sojourns {
            sojourns.leave(now, &mut packet.stamp);
        }
        let on_wire = packet.len() + self.framing;
        self.counters.carried_bytes += on_wire;
        let out_at = self.transmitter.begin(now, on_wire);
        let mut account = Account { counters: &mut self.counters, tallies, sojourns: &mut self.sojourns };
        self.wire.put(out_at + self.delay, self.up, packet, agenda, &mut account);
    }
}

/// Moves the backlog of `old` to `new`. Returns the counters of `old` without the packets that
/// moved, which count in `new`.
fn move_over<Q: Discipline<Packet> + ?Sized>(
    now: Time,
    old: &mut Q,
    new: &mut Q,
    account: &mut Account<'_>,
) -> Counters {
    let mut moved = Tally::default();
    release(now, old, &mut |released| match released {
        // A packet's recorded sojourn continues in the new queue.
        Released::Packet(packet) => {
            moved.packets += 1;
            moved.bytes += packet.len();
            account.move_to(now, packet, new);
        }
        Released::Dropped(packet) => account.dropped(packet),
    });
    let mut done = *old.counters();
    for tally in [&mut done.enqueued, &mut done.dequeued] {
        tally.packets -= moved.packets;
        tally.bytes -= moved.bytes;
    }
    done
}
