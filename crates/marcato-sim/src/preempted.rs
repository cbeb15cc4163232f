//! Low class of a link that pre-empts.

use marcato_queue::{Discipline, Packet as _};
use marcato_units::{Bytes, Duration, Rate, Time};

use crate::agenda::Agenda;
use crate::event::Event;
use crate::link::Account;
use crate::packet::Packet;
use crate::wire::Wire;

/// Packet in transmission, in one part or several.
struct Sending {
    packet: Packet,
    /// Duration of the whole transmission, and the remaining part.
    whole: Duration,
    left: Duration,
    /// Beginning of the current part; `None` while paused.
    since: Option<Time>,
}

/// Low class of a link that pre-empts. It sends in the gaps of the high class: a packet in
/// transmission pauses at the end of a gap and resumes in the next.
///
/// It has its own queue and wire, which the high class never sees. So the high class behaves
/// identically, to the nanosecond, with and without it.
pub(crate) struct Preempted {
    pub(crate) queue: Box<dyn Discipline<Packet>>,
    pub(crate) wire: Wire,
    sending: Option<Sending>,
    /// Time of the event that will try to send or finish a transmission; events at other times are
    /// stale.
    wake_at: Option<Time>,
}

/// State of the high class at the transmitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum High {
    /// Idle: the low class may send.
    Idle,
    /// Sending until that time, and perhaps longer.
    Sends(Time),
    /// About to send; it will wake the low class when it does.
    Waits,
}

/// Parameters and counters that the two classes of a link share.
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

    /// Returns the number of packets between queue and far end.
    pub(crate) fn in_flight(&self) -> u64 {
        self.wire.flight.in_flight() as u64 + u64::from(self.sending.is_some())
    }

    /// Returns the bytes of the packet in transmission, framing included, that have not left at
    /// `now`.
    pub(crate) fn rest(&self, now: Time, framing: Bytes) -> f64 {
        let Some(Sending { packet, whole, left, since }) = &self.sending else { return 0.0 };
        let left = since.map_or(*left, |since| left.saturating_sub(now - since));
        if left.is_zero() {
            return 0.0;
        }
        (packet.len() + framing).get() as f64 * left.as_secs_f64() / whole.as_secs_f64()
    }

    /// Returns true if the event at `now` is the scheduled one, and clears it.
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

    /// Advances transmissions: pauses or resumes the current one, or starts the next.
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
            // A transmission at rate 0 would never end, so the packet waits in the queue.
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

    /// Puts a packet on the wire after its last bit was sent.
    fn sent(&mut self, now: Time, shared: &mut Shared<'_>, agenda: &mut Agenda<Event>) {
        let Some(Sending { packet, .. }) = self.sending.take() else { return };
        let due = now + shared.delay;
        self.wire.put(due, shared.up, packet, agenda, &mut shared.account);
    }
}
