//! Senders that answer nothing, in the clothes of QUIC.

use marcato_sim::{Host, HostContext, Incoming, Outgoing, RouteId};
use marcato_units::{Bytes, Duration, Rate, Stream, Time};
use marcato_wire::Ecn;

/// What the third bit of a flood's packets does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Spin {
    /// It stays as it is.
    Constant(bool),
    /// It is drawn for each packet. RFC 9000 §17.4 recommends that of ends that do not take part.
    Random,
    /// It flips after so many packets, in turn: what makes windows look as if they shrank.
    Flips([u32; 4]),
}

/// When a flood sends and when it does not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pulse {
    /// How long it does.
    pub(super) on: Duration,
    /// From one beginning to the next.
    pub(super) period: Duration,
}

/// The length of a flood's datagrams.
const PAYLOAD: usize = 1200;
/// A datagram that begins as the first packet of a QUIC connection does.
const INITIAL: [u8; 6] = [0xc3, 0, 0, 0, 1, 8];

/// Sends at a constant rate from a time on, whatever becomes of it.
pub(super) struct Flood {
    gap: Duration,
    next: Time,
    start: Time,
    /// Of each period it sends so long.
    pulse: Option<Pulse>,
    spin: Spin,
    bit: bool,
    run: u32,
    turn: usize,
    /// Whether the first datagram looks like the beginning of a connection.
    greets: bool,
    stream: Option<Stream>,
    route: Option<RouteId>,
}

impl Flood {
    /// One of this rate of IP packets.
    pub(super) fn new(rate: Rate, spin: Spin, start: Time) -> Self {
        let len = Bytes::new(PAYLOAD as u64 + 28);
        Self {
            gap: rate.transmission_time(len),
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

    /// In pulses.
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
            payload.push(0x40 | u8::from(self.flip()) << 5);
        }
        payload.resize(PAYLOAD, 0);
        self.next += self.gap;
        if let Some(Pulse { on, period }) = self.pulse {
            let since = self.next.since(self.start).as_nanos();
            let phase = since % period.as_nanos();
            if phase >= on.as_nanos() {
                self.next += Duration::from_nanos(u64::try_from(period.as_nanos() - phase).unwrap_or(0));
            }
        }
        // As QUIC does, it says that it understands marks.
        self.route.map(|route| Outgoing::over(route).ecn(Ecn::Ect0))
    }

    fn next_timer(&self) -> Option<Time> {
        Some(self.next)
    }
}

/// The other end of a flood: says one thing, and takes what comes.
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
