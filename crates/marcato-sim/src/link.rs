//! A link: a queue, a transmitter, and a wire on which packets are under way.

use std::any::Any;

use marcato_queue::{Backlog, Counters, Discipline, DropTail, Packet as _, Strict, Tally, Verdict};
use marcato_units::{Bytes, Duration, Layer, Rate, Seed, Time};
use marcato_wire::Ecn;

use crate::agenda::Agenda;
use crate::change::LinkChange;
use crate::event::Event;
use crate::jitter::Jitter;
use crate::load::{self, Course, Load};
use crate::loss::Loss;
use crate::packet::Packet;
use crate::preempted::{High, Preempted, Shared};
use crate::record::TapPoint;
use crate::sojourn::Sojourns;
use crate::tally::FlowTallies;
use crate::trace::{Opportunities, Trace};
use crate::wire::Wire;

/// A queue before a transmitter: any discipline for packets of the simulator. After the run get it back by
/// [`Network::queue`](crate::Network::queue).
pub trait LinkQueue: Discipline<Packet> + Any {}

impl<D: Discipline<Packet> + Any> LinkQueue for D {}

/// One direction of a link, as it shall be.
pub struct LinkConfig {
    /// How fast packets leave; `None` is at once.
    pub rate: Option<Rate>,
    /// When packets leave, in the place of a rate: of that only matters whether it is [`Rate::ZERO`], in which case
    /// opportunities pass unused.
    pub trace: Option<Trace>,
    /// Propagation delay.
    pub delay: Duration,
    /// What is added to the delay of each packet.
    pub jitter: Option<Jitter>,
    /// The largest IP packet that the link takes; `None` is any. A larger one is dropped before the queue, and nobody
    /// is told: there is no ICMP here.
    pub mtu: Option<Bytes>,
    /// Bytes that the link adds to each IP packet: 2 for PPP, 18 for Ethernet with its check sequence.
    pub framing: Bytes,
    /// Whether the ECN field of each packet that comes is cleared, as some devices on the Internet do: neither does the
    /// queue find anything to mark, nor does the receiver learn of marks that were made before.
    pub bleaches: bool,
    /// What the wire loses, after the queue let it out.
    pub loss: Loss,
    /// Probability that a packet that is not lost comes out twice, the copy directly behind its original. Drawn for each
    /// packet, lost ones included, from a stream of its own: `duplication/<link>`.
    pub duplication: f64,
    /// The queue before the transmitter. Its limits count IP bytes, without framing.
    pub queue: Box<dyn LinkQueue>,
    /// Whether the queue [observes](Discipline::observe) what comes out of the link back. It stands where that ends.
    pub observes: bool,
    /// How much later than its rate allows the next packet leaves, whenever one had to wait for another.
    ///
    /// So does a shaper whose bucket holds no more than a packet, such as a token bucket filter with a burst of one: when
    /// it has run dry it sleeps until there are tokens for the next, the timer that wakes it is late, and what would have
    /// come into the bucket meanwhile does not fit. The link then carries a packet per transmission time and lateness.
    pub wakes_late: Duration,
    /// Where the link pre-empts, the queue of [`Layer::Low`], and the other one is the high class's alone: a low packet
    /// leaves in the gaps between high ones. One that is being sent when a high one comes stops, and goes on after it
    /// where it stopped, without a byte more. Packets of the two classes are lost and jittered by draws of their own.
    /// So the high class leaves, is dropped and arrives to the nanosecond as if there were no low one. Without a rate,
    /// or by a trace, each packet leaves in one instant, and the two queues are served as by [`Strict`].
    pub low: Option<Box<dyn Discipline<Packet>>>,
}

impl LinkConfig {
    /// A link of this rate and delay with a drop-tail queue of 1000 packets, and of all else nothing: no framing, no
    /// jitter, no loss, no MTU.
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

    /// A link that only delays.
    pub fn delay_only(delay: Duration) -> Self {
        Self { rate: None, ..Self::new(Rate::MAX, delay) }
    }

    /// A link that sends by `trace`, with 4 bytes of framing as in mahimahi, and otherwise as [`new`](Self::new).
    pub fn from_trace(trace: Trace, delay: Duration) -> Self {
        Self { framing: Bytes::new(4), ..Self::delay_only(delay).trace(trace) }
    }

    /// With this queue.
    #[must_use]
    pub fn queue(self, queue: impl Discipline<Packet> + 'static) -> Self {
        Self { queue: Box::new(queue), ..self }
    }

    /// With a queue that [observes](Self::observes) what comes the other way.
    #[must_use]
    pub fn observing(self) -> Self {
        Self { observes: true, ..self }
    }

    /// [Clearing](Self::bleaches) the ECN field.
    #[must_use]
    pub fn bleaching(self) -> Self {
        Self { bleaches: true, ..self }
    }

    /// With a shaper that [wakes](Self::wakes_late) so late.
    #[must_use]
    pub fn wakes_late(self, wakes_late: Duration) -> Self {
        Self { wakes_late, ..self }
    }

    /// Pre-empting [`Layer::Low`], with this queue for it.
    #[must_use]
    pub fn preempt(self, low: impl Discipline<Packet> + 'static) -> Self {
        Self { low: Some(Box::new(low)), ..self }
    }

    /// With this loss on the wire.
    #[must_use]
    pub fn loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// Duplicates each packet with this probability.
    #[must_use]
    pub fn duplication(self, duplication: f64) -> Self {
        Self { duplication, ..self }
    }

    /// With `framing` bytes added to each packet.
    #[must_use]
    pub fn framing(self, framing: Bytes) -> Self {
        Self { framing, ..self }
    }

    /// Sending by this trace instead of the rate.
    #[must_use]
    pub fn trace(self, trace: Trace) -> Self {
        Self { trace: Some(trace), ..self }
    }

    /// With this added to the delay of each packet.
    #[must_use]
    pub fn jitter(self, jitter: Jitter) -> Self {
        Self { jitter: Some(jitter), ..self }
    }

    /// For IP packets of at most `mtu`.
    #[must_use]
    pub fn mtu(self, mtu: Bytes) -> Self {
        Self { mtu: Some(mtu), ..self }
    }
}

/// What a link has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets handed to the link.
    pub offered: u64,
    /// Packets that its queue dropped, at either end of the queue.
    pub dropped: u64,
    /// Packets larger than the link's MTU.
    pub too_big: u64,
    /// Packets that the wire lost, or that met the link while it was down.
    pub lost: u64,
    /// Copies that the wire made.
    pub duplicated: u64,
    /// How often a low packet that was being sent stopped for a high one.
    pub preempted: u64,
    /// Packets that came out at the far end, copies included.
    pub delivered: u64,
    /// IP bytes that came out at the far end, likewise.
    pub delivered_bytes: Bytes,
    /// What was put on the wire, framing and later losses included: what occupies the link.
    pub carried_bytes: Bytes,
}

pub(crate) struct Link {
    pub(crate) name: String,
    id: u32,
    rate: Option<Rate>,
    /// When packets may leave, if not by the rate.
    opportunities: Option<Box<Opportunities>>,
    delay: Duration,
    framing: Bytes,
    pub(crate) mtu: Option<Bytes>,
    bleaches: bool,
    up: bool,
    pub(crate) queue: Box<dyn LinkQueue>,
    /// What queues did that others have replaced. Packets that moved over count in their last queue.
    replaced: Counters,
    /// When the packet on the transmitter is out; with a trace, the opportunity after it if that is known.
    free_at: Time,
    /// Where there is a rate: the latest packet on the transmitter, by its length there and when it began.
    latest: (Bytes, Time),
    /// What could have been carried, if not by a trace.
    course: Course,
    wakes_late: Duration,
    /// When an event will call [`ready`](Self::ready); any other that comes is out of date.
    wake_at: Option<Time>,
    /// Whether the transmitter is free and the queue lets nothing out before then, unless something comes that may pass.
    held: bool,
    /// The link back, if its queue observes what comes out here.
    pub(crate) observer: Option<u32>,
    wire: Wire,
    /// The low class, if it is pre-empted.
    low: Option<Box<Preempted>>,
    pub(crate) counters: LinkCounters,
    /// How long packets wait, if that is noted.
    pub(crate) sojourns: Option<Box<Sojourns>>,
}

/// What keeps account of a link's packets.
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

    /// Hands a packet that has waited elsewhere to a queue.
    #[inline]
    fn move_to(&mut self, now: Time, packet: Packet, queue: &mut (impl Discipline<Packet> + ?Sized)) {
        match queue.enqueue_with(now, packet, &mut |displaced| self.dropped(displaced)) {
            Verdict::Queued => {}
            Verdict::Dropped(packet) => self.dropped(packet),
        }
    }

    /// A queue has dropped a packet.
    #[cold]
    pub(crate) fn dropped(&mut self, mut packet: Packet) {
        if let Some(sojourns) = self.sojourns {
            sojourns.forget(&mut packet.stamp);
        }
        self.counters.dropped += 1;
        self.tallies.dropped(packet);
    }

    /// A wire has lost a packet.
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
            rate: config.rate,
            opportunities: config.trace.map(|trace| Box::new(Opportunities::new(trace))),
            delay: config.delay,
            framing: config.framing,
            mtu: config.mtu,
            bleaches: config.bleaches,
            up: true,
            queue,
            replaced: Counters::default(),
            free_at: Time::ZERO,
            latest: (Bytes::ZERO, Time::ZERO),
            course: Course::new(config.rate),
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
        self.rate = Some(rate);
        // What is being sent goes on at the rate at which it began.
        self.course.change(self.free_at.max(now), rate);
        // After an outage nothing else would wake the transmitter.
        if self.free_at <= now && (self.wake_at.is_none() || self.held) {
            self.transmit(now, agenda, tallies);
        }
        self.serve_low(now, agenda, tallies);
    }

    /// Takes the link up or down. While it is down, every packet that is offered, begins to leave, or would come
    /// out at the far end is lost.
    pub(crate) fn set_up(&mut self, up: bool) {
        self.up = up;
    }

    /// Makes another change.
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
                    self.wire.shorten(reorder);
                    if let Some(low) = &mut self.low {
                        low.wire.shorten(reorder);
                    }
                }
                self.delay = delay;
            }
            LinkChange::Loss(loss) => {
                if let Some(low) = &mut self.low {
                    low.wire.set_loss(loss.clone());
                }
                self.wire.set_loss(loss);
            }
            LinkChange::Queue { queue, low } => {
                self.change_queue(now, queue, low, tallies);
                if self.free_at <= now && (self.wake_at.is_none() || self.held) {
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

    /// How fast packets leave now; `None` is at once.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// What it has carried up to `now`, and could have.
    pub(crate) fn load(&self, now: Time) -> Load {
        let carried = self.counters.carried_bytes.get() as f64;
        if let Some(opportunities) = &self.opportunities {
            let carried = carried - opportunities.promised(now);
            return Load { carried, capacity: opportunities.capacity(now) };
        }
        let high = load::rest(self.latest.0, self.latest.1, self.free_at, now);
        let low = self.low.as_ref().map_or(0.0, |low| low.rest(now, self.framing));
        Load { carried: carried - high - low, capacity: self.course.at(now) }
    }

    /// How long what waits would take to leave at the present rate; `None` if it never would.
    pub(crate) fn drain_time(&self) -> Option<Duration> {
        let (_, backlog) = self.queue_counters();
        let on_wire = backlog.bytes + self.framing * backlog.packets;
        match self.rate {
            Some(Rate::ZERO) => backlog.is_empty().then_some(Duration::ZERO),
            Some(rate) => Some(rate.transmission_time(on_wire)),
            None => Some(Duration::ZERO),
        }
    }

    /// Packets on the line, and one that is held up.
    pub(crate) fn under_way(&self) -> u64 {
        self.wire.len() as u64 + self.low.as_ref().map_or(0, |low| low.under_way())
    }

    /// What the queues have done, and what waits in them.
    pub(crate) fn queue_counters(&self) -> (Counters, Backlog) {
        let (counters, backlog) = (self.replaced + *self.queue.counters(), self.queue.backlog());
        match &self.low {
            None => (counters, backlog),
            Some(low) => (counters + *low.queue.counters(), backlog + low.queue.backlog()),
        }
    }

    /// Takes a packet in.
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
        // Before a link that sends at once nothing waits, unless its queue holds it back.
        if self.rate.is_none() && self.opportunities.is_none() && self.queue.pass(now, &packet) {
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
        if self.free_at <= now {
            self.transmit(now, agenda, tallies);
        } else {
            self.wake(now, agenda);
        }
    }

    /// The transmitter is free again.
    pub(crate) fn ready(&mut self, now: Time, agenda: &mut Agenda<Event>, tallies: &mut FlowTallies) {
        if self.wake_at != Some(now) {
            // The queue has let something out earlier.
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
        self.came(now, packet, tallies)
    }

    /// Takes the low packet that arrives now off its wire; `None` if the link is down.
    pub(crate) fn low_arrive(
        &mut self,
        now: Time,
        agenda: &mut Agenda<Event>,
        tallies: &mut FlowTallies,
    ) -> Option<Packet> {
        let packet = self.low.as_mut()?.wire.take(agenda)?;
        self.came(now, packet, tallies)
    }

    /// The low class has sent something, or may begin to.
    pub(crate) fn low_ready(&mut self, now: Time, agenda: &mut Agenda<Event>, tallies: &mut FlowTallies) {
        if self.low.as_mut().is_some_and(|low| low.is_due(now)) {
            self.serve_low(now, agenda, tallies);
        }
    }

    fn serve_low(&mut self, now: Time, agenda: &mut Agenda<Event>, tallies: &mut FlowTallies) {
        let (Some(low), Some(rate)) = (&mut self.low, self.rate) else { return };
        let high = if self.free_at > now {
            High::Sends(self.free_at)
        } else if self.queue.backlog().is_empty() || rate == Rate::ZERO {
            // In an outage nothing begins, but what has begun is sent.
            High::Idle
        } else {
            High::Waits
        };
        let (id, delay, framing, up) = (self.id, self.delay, self.framing, self.up);
        let account = Account { counters: &mut self.counters, tallies, sojourns: &mut self.sojourns };
        low.serve(now, high, &mut Shared { id, rate, delay, framing, up, account }, agenda);
    }

    /// A packet comes out at the far end; `None` if the link is down.
    fn came(&mut self, now: Time, packet: Packet, tallies: &mut FlowTallies) -> Option<Packet> {
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

    /// Enters when to look again, if anything waits.
    fn wake(&mut self, now: Time, agenda: &mut Agenda<Event>) {
        self.held = false;
        if self.queue.backlog().is_empty() {
            return;
        }
        let at = if self.free_at > now {
            self.free_at + self.wakes_late
        } else {
            // The queue holds back what waits. Time goes on whatever it says.
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
        // A packet that began to leave at rate 0 would occupy the link for ever: it waits in the queue instead.
        if self.rate == Some(Rate::ZERO) {
            return;
        }
        // Without a rate the transmitter is free at once, so the queue empties in one go.
        while self.free_at <= now {
            if let Some(opportunities) = &mut self.opportunities {
                let next = opportunities.next(now);
                if next > now {
                    self.free_at = next;
                    break;
                }
            }
            let mut account = Account { counters: &mut self.counters, tallies, sojourns: &mut self.sojourns };
            let Some(packet) = self.queue.dequeue_with(now, &mut |packet| account.dropped(packet)) else {
                break;
            };
            self.depart(now, packet, agenda, tallies);
        }
        self.wake(now, agenda);
        self.serve_low(now, agenda, tallies);
    }

    /// A packet leaves the queue for the wire.
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
        let out_at = match (&mut self.opportunities, self.rate) {
            (Some(opportunities), _) => {
                self.free_at = opportunities.take(on_wire);
                self.free_at
            }
            (None, Some(rate)) => {
                self.free_at = now + rate.transmission_time(on_wire);
                self.latest = (on_wire, now);
                self.free_at
            }
            (None, None) => now,
        };
        let mut account = Account { counters: &mut self.counters, tallies, sojourns: &mut self.sojourns };
        self.wire.put(out_at + self.delay, self.up, packet, agenda, &mut account);
    }
}

/// Moves what waits in `old` to `new`. Returns what `old` has done, without the packets that moved: they count in `new`.
fn move_over<Q: Discipline<Packet> + ?Sized>(
    now: Time,
    old: &mut Q,
    new: &mut Q,
    account: &mut Account<'_>,
) -> Counters {
    let mut moved = Tally::default();
    let mut at = now;
    while !old.backlog().is_empty() {
        // Its sojourn goes on in the new queue.
        if let Some(packet) = old.dequeue_with(at, &mut |packet| account.dropped(packet)) {
            moved.packets += 1;
            moved.bytes += packet.len();
            account.move_to(now, packet, new);
        } else if let Some(ready) = old.next_ready(at).filter(|&ready| ready > at) {
            // A queue that holds packets back, such as one half of a link that is split, gives them up here.
            at = ready;
        } else {
            break;
        }
    }
    let mut done = *old.counters();
    for tally in [&mut done.enqueued, &mut done.dequeued] {
        tally.packets -= moved.packets;
        tally.bytes -= moved.bytes;
    }
    done
}
