//! Unresponsive senders that look like QUIC.

use marcato_sim::{Host, HostContext, Incoming, Outgoing, RouteId};
use marcato_units::{Bytes, Duration, Rate, Stream, Time};
use marcato_wire::Ecn;

/// Spin bit of a flood's packets: the third bit of the first byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Spin {
    /// Constant value.
    Constant(bool),
    /// Drawn for each packet. RFC 9000 §17.4 recommends random values to endpoints that disable the
    /// spin bit.
    Random,
    /// Flips after these numbers of packets, in turn, which makes windows look as if they shrank.
    Flips([u32; 4]),
}

/// On-off pattern of a flood.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pulse {
    /// Time for which the flood sends in each period.
    pub(super) on: Duration,
    /// Time between the starts of two pulses.
    pub(super) period: Duration,
    /// Rate between pulses; `None` for silence.
    pub(super) rest: Option<Rate>,
}

/// Length of a flood's datagrams.
const PAYLOAD: usize = 1200;
/// Length of their packets.
const LEN: Bytes = Bytes::new(PAYLOAD as u64 + 28);
/// First bytes of a QUIC connection's first packet: a long header of an Initial, version 1, and a
/// connection ID of 8 bytes. RFC 9000 §17.2.2.
const INITIAL: [u8; 6] = [0xc3, 0, 0, 0, 1, 8];

/// Sends at a constant rate from a time on, without responding to anything.
pub(super) struct Flood {
    gap: Duration,
    next: Time,
    start: Time,
    /// Pulses in which it sends; `None` for a steady flood.
    pulse: Option<Pulse>,
    spin: Spin,
    bit: bool,
    run: u32,
    turn: usize,
    /// True until the first datagram, which looks like the start of a connection, has been sent.
    greets: bool,
    stream: Option<Stream>,
    route: Option<RouteId>,
}

impl Flood {
    /// Creates a flood of this rate of IP packets.
    pub(super) fn new(rate: Rate, spin: Spin, start: Time) -> Self {
        Self {
            gap: rate.transmission_time(LEN),
            next: start,
            start,
            pulse: None,
            spin,
            bit: false,
            run: 0,
            turn: 0,
            greets: true,
            stream: None,
            route: None,
        }
    }

    /// Sends in pulses.
    pub(super) fn pulsed(self, pulse: Option<Pulse>) -> Self {
        Self { pulse, ..self }
    }

    fn flip(&mut self) -> bool {
        match self.spin {
            Spin::Constant(bit) => bit,
            Spin::Random => self.stream.as_mut().is_some_and(|stream| stream.chance(0.5)),
            Spin::Flips(turns) => {
                if self.run >= turns[self.turn] {
                    (self.run, self.bit) = (0, !self.bit);
                    self.turn = (self.turn + 1) % turns.len();
                }
                self.run += 1;
                self.bit
            }
        }
    }
}

impl Host for Flood {
    fn start(&mut self, _: Time, context: &HostContext<'_>) {
        self.stream = Some(context.stream("spin"));
        self.route = context.routes().next();
    }

    fn datagram(&mut self, _: Time, _: Incoming, _: &HostContext<'_>) {}

    fn transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
        if now < self.next {
            return None;
        }
        if std::mem::take(&mut self.greets) {
            payload.extend_from_slice(&INITIAL);
        } else {
            // Fixed bit and spin bit of a short header. RFC 9000 §17.3.1.
            payload.push(0x40 | u8::from(self.flip()) << 5);
        }
        payload.resize(PAYLOAD, 0);
        self.next += self.gap;
        if let Some(Pulse { on, period, rest }) = self.pulse {
            let since = self.next.since(self.start).as_nanos();
            let phase = since % period.as_nanos();
            if phase >= on.as_nanos() {
                self.next += match rest {
                    Some(rest) => rest.transmission_time(LEN).saturating_sub(self.gap),
                    // A datagram that is due in a pause waits for the next pulse.
                    None => Duration::from_nanos(u64::try_from(period.as_nanos() - phase).unwrap_or(0)),
                };
            }
        }
        // The datagram is marked as ECN-capable, as QUIC's are.
        self.route.map(|route| Outgoing::over(route).ecn(Ecn::Ect0))
    }

    fn next_timer(&self) -> Option<Time> {
        Some(self.next)
    }
}

/// Receiver of a flood: sends one datagram, and ignores all that arrive.
#[derive(Default)]
pub(super) struct Victim {
    route: Option<RouteId>,
}

impl Host for Victim {
    fn start(&mut self, _: Time, context: &HostContext<'_>) {
        self.route = context.routes().next();
    }

    fn datagram(&mut self, _: Time, _: Incoming, _: &HostContext<'_>) {}

    fn transmit(&mut self, _: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
        payload.extend_from_slice(&INITIAL);
        payload.resize(PAYLOAD, 0);
        self.route.take().map(Outgoing::over)
    }
}
