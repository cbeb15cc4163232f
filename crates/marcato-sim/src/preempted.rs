//! The low class of a link that pre-empts.

use marcato_queue::{Discipline, Packet as _};
use marcato_units::{Bytes, Duration, Rate, Time};

use crate::agenda::Agenda;
use crate::event::Event;
use crate::link::Account;
use crate::packet::Packet;
use crate::wire::Wire;

/// The packet that is being sent, in one go or in several.
struct Sending {
    packet: Packet,
    /// How long its transmission takes, and what is left of that.
    whole: Duration,
    left: Duration,
    /// Since when it has been on the wire again; `None` while it is held up.
    since: Option<Time>,
}

/// The low class of a link that pre-empts: it sends in the gaps that the high class leaves, and when one ends, what was
/// being sent stops and goes on in the next.
///
/// It has its own queue and wire, and the high class sees none of them. That is what makes the high class the
/// same to the nanosecond whether there is a low one or not.
pub(crate) struct Preempted {
    pub(crate) queue: Box<dyn Discipline<Packet>>,
    pub(crate) wire: Wire,
    sending: Option<Sending>,
    /// When an event will look whether something has been sent or may be; any other that comes is out of date.
    wake_at: Option<Time>,
}

/// What the high class does with the transmitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum High {
    /// Nothing: there is a gap.
    Idle,
    /// It sends a packet until then, and perhaps more.
    Sends(Time),
    /// It is about to send, and will wake the low class when it does.
    Waits,
}

/// What the two classes of a link share.
pub(crate) struct Shared<'a> {
    pub(crate) id: u32,
    pub(crate) rate: Rate,
    pub(crate) delay: Duration,
    pub(crate) framing: Bytes,
    pub(crate) up: bool,
    pub(crate) account: Account<'a>,
}

impl Preempted {
    pub(crate) fn new(queue: Box<dyn Discipline<Packet>>, wire: Wire) -> Self {
        Self { queue, wire, sending: None, wake_at: None }
    }

    /// Packets between queue and far end.
    pub(crate) fn under_way(&self) -> u64 {
        self.wire.len() as u64 + u64::from(self.sending.is_some())
    }

    /// Bytes of the packet that is being sent, and its framing, that have not left at `now`.
    pub(crate) fn rest(&self, now: Time, framing: Bytes) -> f64 {
        let Some(Sending { packet, whole, left, since }) = &self.sending else { return 0.0 };
        let left = since.map_or(*left, |since| left.saturating_sub(now - since));
        if left.is_zero() {
            return 0.0;
        }
        (packet.len() + framing).get() as f64 * left.as_secs_f64() / whole.as_secs_f64()
    }

    /// Whether the event that comes now is the one that is waited for.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        let due = self.wake_at == Some(now);
        if due {
            self.wake_at = None;
        }
        due
    }

    fn wake(&mut self, at: Time, link: u32, agenda: &mut Agenda<Event>) {
        if self.wake_at.is_none_or(|before| at < before) {
            self.wake_at = Some(at);
            agenda.at(at, Event::LowReady { link });
        }
    }

    /// Sends what can be sent now, and stops what cannot.
    pub(crate) fn serve(
        &mut self,
        now: Time,
        high: High,
        shared: &mut Shared<'_>,
        agenda: &mut Agenda<Event>,
    ) {
        loop {
            if let Some(sending) = &mut self.sending {
                if let Some(since) = sending.since {
                    sending.left = sending.left.saturating_sub(now - since);
                    sending.since = Some(now);
                }
                if sending.left.is_zero() {
                    self.sent(now, shared, agenda);
                    continue;
                }
                match high {
                    High::Idle => {
                        sending.since = Some(now);
                        let done = now + sending.left;
                        self.wake(done, shared.id, agenda);
                    }
                    High::Sends(until) => {
                        shared.account.counters.preempted += u64::from(sending.since.take().is_some());
                        self.wake(until, shared.id, agenda);
                    }
                    High::Waits => sending.since = None,
                }
                return;
            }
            if let High::Sends(until) = high
                && !self.queue.backlog().is_empty()
            {
                self.wake(until, shared.id, agenda);
            }
            // At rate 0 a packet would be sent for ever: it waits in the queue instead.
            if high != High::Idle || shared.rate == Rate::ZERO {
                return;
            }
            let dequeued = self.queue.dequeue_with(now, &mut |packet| shared.account.dropped(packet));
            let Some(mut packet) = dequeued else { return };
            if let Some(sojourns) = shared.account.sojourns {
                sojourns.leave(now, &mut packet.stamp);
            }
            let on_wire = packet.len() + shared.framing;
            shared.account.counters.carried_bytes += on_wire;
            let left = shared.rate.transmission_time(on_wire);
            self.sending = Some(Sending { packet, whole: left, left, since: Some(now) });
        }
    }

    /// The last of a packet is on the line.
    fn sent(&mut self, now: Time, shared: &mut Shared<'_>, agenda: &mut Agenda<Event>) {
        let Some(Sending { packet, .. }) = self.sending.take() else { return };
        let due = now + shared.delay;
        self.wire.put(due, shared.up, packet, agenda, &mut shared.account);
    }
}
