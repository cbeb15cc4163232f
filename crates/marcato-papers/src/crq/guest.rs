//! Senders beyond the paper's: a video call, and a flow that stops responding for a while.

use std::collections::BTreeSet;

use marcato_sim::{App, Host, HostContext, Incoming, Outgoing, RouteId, Socket, Tag};
use marcato_units::{Bytes, Duration, Priority, Rate, Time};

/// Time between two frames.
const FRAME: Duration = Duration::from_millis(33);
/// Initial rate of the call's encoder in bit/s, with its bounds.
const INITIAL_RATE: u64 = 1_000_000;
const MIN_RATE: u64 = 150_000;
const MAX_RATE: u64 = 4_000_000;

/// A video call: a frame every 33 ms over TCP, from an encoder that adapts to the path. Its rate
/// falls by 15 % if a frame still waits at the sender when the next is due, and rises by 2 %
/// otherwise.
pub(super) struct Call {
    bps: u64,
    frame: u64,
    /// Time at which each frame was written.
    pub(super) written: Vec<Time>,
}

impl Call {
    pub(super) const fn new() -> Self {
        Self { bps: INITIAL_RATE, frame: 0, written: Vec::new() }
    }
}

impl App for Call {
    fn connected(&mut self, socket: &mut Socket<'_>) {
        self.timer(0, socket);
    }

    fn timer(&mut self, _: u32, socket: &mut Socket<'_>) {
        let rate = if socket.unsent().is_zero() { self.bps * 102 / 100 } else { self.bps * 85 / 100 };
        self.bps = rate.clamp(MIN_RATE, MAX_RATE);
        let bytes = Rate::from_bps(self.bps).bytes_in(FRAME);
        // A frame that finds no room is not sent: the encoder skips it.
        if socket.room() >= bytes {
            socket.write(bytes, Priority::P0, Tag(self.frame));
            self.written.push(socket.now());
            self.frame += 1;
        }
        socket.set_timer(socket.now() + FRAME, 0);
    }
}

/// Receiver of frames that records their delays. A frame is complete when the next one begins, or
/// else with its last byte.
#[derive(Default)]
pub(super) struct Viewer {
    /// Arrival of the latest byte of each frame.
    pub(super) last: Vec<Time>,
    pub(super) bytes: Bytes,
}

impl App for Viewer {
    fn received(&mut self, tag: Tag, bytes: Bytes, socket: &mut Socket<'_>) {
        let frame = usize::try_from(tag.0).unwrap_or(usize::MAX);
        if frame == self.last.len() {
            self.last.push(socket.now());
        } else if let Some(last) = self.last.last_mut() {
            *last = socket.now();
        }
        self.bytes += bytes;
    }
}

/// Payload of a packet of [`Turncoat`], and of its acknowledgements.
const PAYLOAD: usize = 1200;
const ANSWER: usize = 40;
/// Reordering threshold: a packet is lost when one sent this many later is acknowledged.
const REORDERING: u32 = 3;
/// First bytes of a QUIC connection's first packet, as in [`flood`](super::flood).
const INITIAL: [u8; 6] = [0xc3, 0, 0, 0, 1, 8];

/// A sender that looks like QUIC, with an honest spin bit. It halves its window once per round trip
/// in which a packet was lost or marked, except during a given time.
pub(super) struct Turncoat {
    /// Start and end of the time in which it does not respond.
    deaf: (Time, Time),
    window: f64,
    next: u32,
    /// Packets in flight, by number.
    flying: BTreeSet<u32>,
    highest: u32,
    /// First packet sent after the last reduction. Losses and marks of earlier packets cause no
    /// further reduction.
    recovered: u32,
    spin: bool,
    greeted: bool,
    last_heard: Time,
    route: Option<RouteId>,
}

impl Turncoat {
    pub(super) fn new(deaf: (Time, Time)) -> Self {
        Self {
            deaf,
            window: 10.0,
            next: 1,
            flying: BTreeSet::new(),
            highest: 0,
            recovered: 0,
            spin: false,
            greeted: false,
            last_heard: Time::ZERO,
            route: None,
        }
    }

    fn reduce(&mut self, now: Time, of: u32) {
        // One reduction per recovery period, as in RFC 9002 §7.3.2.
        if of >= self.recovered && !(self.deaf.0..self.deaf.1).contains(&now) {
            self.window = (self.window / 2.0).max(4.0);
            self.recovered = self.next;
        }
    }
}

/// Reads a packet: its spin bit, its number, and whether it reports a mark.
fn read(payload: &[u8]) -> Option<(bool, u32, bool)> {
    let &[first, a, b, c, d, marked] = payload.first_chunk()?;
    Some((first & 0x20 != 0, u32::from_be_bytes([a, b, c, d]), marked != 0)).filter(|_| first & 0x80 == 0)
}

fn write(payload: &mut Vec<u8>, spin: bool, number: u32, marked: bool, len: usize) {
    // Fixed bit and spin bit of a short header. RFC 9000 §17.3.1.
    payload.push(0x40 | u8::from(spin) << 5);
    payload.extend_from_slice(&number.to_be_bytes());
    payload.push(u8::from(marked));
    payload.resize(len, 0);
}

impl Host for Turncoat {
    fn start(&mut self, _: Time, context: &HostContext<'_>) {
        self.route = context.routes().next();
    }

    fn datagram(&mut self, now: Time, incoming: Incoming, _: &HostContext<'_>) {
        let Some((spin, number, marked)) = read(&incoming.payload) else { return };
        self.last_heard = now;
        if number >= self.highest {
            // The server reflects the spin bit. RFC 9000 §17.4.
            self.spin = spin;
            self.highest = number;
        }
        if self.flying.remove(&number) {
            // Congestion avoidance only: the runs are long enough without slow start.
            self.window += 1.0 / self.window;
        }
        if marked {
            self.reduce(now, number);
        }
        let lost = number.saturating_sub(REORDERING);
        while let Some(&oldest) = self.flying.first()
            && oldest < lost
        {
            self.flying.remove(&oldest);
            self.reduce(now, oldest);
        }
    }

    fn timer(&mut self, now: Time, _: &HostContext<'_>) {
        // No acknowledgement arrived: all packets in flight are lost.
        self.flying.clear();
        self.window = 4.0;
        self.last_heard = now;
    }

    fn transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
        let route = self.route?;
        if !self.greeted {
            (self.greeted, self.last_heard) = (true, now);
            payload.extend_from_slice(&INITIAL);
            payload.resize(PAYLOAD, 0);
            return Some(Outgoing::over(route).ecn(marcato_wire::Ecn::Ect0));
        }
        if self.flying.len() as f64 >= self.window {
            return None;
        }
        write(payload, self.spin, self.next, false, PAYLOAD);
        self.flying.insert(self.next);
        self.next += 1;
        Some(Outgoing::over(route).ecn(marcato_wire::Ecn::Ect0))
    }

    fn next_timer(&self) -> Option<Time> {
        Some(self.last_heard + Duration::from_secs(1))
    }
}

/// Acknowledges each packet of [`Turncoat`] with its number, whether it was marked, and the
/// inverted spin bit.
#[derive(Default)]
pub(super) struct Answerer {
    highest: u32,
    spin: bool,
    owed: Option<(u32, bool)>,
    greeted: bool,
    route: Option<RouteId>,
}

impl Host for Answerer {
    fn start(&mut self, _: Time, context: &HostContext<'_>) {
        self.route = context.routes().next();
    }

    fn datagram(&mut self, _: Time, incoming: Incoming, _: &HostContext<'_>) {
        let Some((spin, number, _)) = read(&incoming.payload) else { return };
        if number >= self.highest {
            // The client inverts the spin bit. RFC 9000 §17.4.
            (self.highest, self.spin) = (number, !spin);
        }
        self.owed = Some((number, incoming.ecn == marcato_wire::Ecn::Ce));
    }

    fn transmit(&mut self, _: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
        let route = self.route?;
        if !self.greeted {
            self.greeted = true;
            payload.extend_from_slice(&INITIAL);
            payload.resize(PAYLOAD, 0);
            return Some(Outgoing::over(route));
        }
        let (number, marked) = self.owed.take()?;
        write(payload, self.spin, number, marked, ANSWER);
        Some(Outgoing::over(route))
    }
}
