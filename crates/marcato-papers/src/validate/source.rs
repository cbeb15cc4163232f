//! Poisson process of packets of equal or of exponentially distributed size, and its receiver.

use marcato_sim::{Host, HostContext, Incoming, Outgoing, RouteId};
use marcato_units::{Duration, Stream, Time};

/// Bytes of IPv4 and UDP headers.
const HEADERS: u64 = 28;
/// Least packet length: each packet carries its sending time.
const MIN_PACKET: u64 = HEADERS + 8;

/// Distribution of packet lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// Equal lengths.
    Equal,
    /// Exponentially distributed, to the byte. A packet is at least as long as its headers: for a
    /// mean of 4000 bytes, this adds 0.004 %.
    Exponential,
}

/// Sender of packets until a given time.
pub(super) struct Source {
    pub(super) sizes: Sizes,
    /// Mean length of the IP packet.
    pub(super) mean: u64,
    /// Mean time between two packets.
    pub(super) gap: Duration,
    pub(super) until: Time,
    streams: Option<(Stream, Stream)>,
    next: Time,
    due: bool,
}

impl Source {
    pub(super) fn new(sizes: Sizes, mean: u64, gap: Duration, until: Time) -> Self {
        Self { sizes, mean, gap, until, streams: None, next: Time::MAX, due: false }
    }

    fn schedule(&mut self, now: Time) {
        if let Some((gaps, _)) = &mut self.streams {
            // Two packets in one nanosecond would be one timer.
            self.next = now + gaps.exponential(self.gap).max(Duration::from_nanos(1));
        }
    }

    fn len(&mut self) -> u64 {
        let Some((_, sizes)) = &mut self.streams else { return self.mean };
        match self.sizes {
            Sizes::Equal => self.mean,
            Sizes::Exponential => {
                // A nanosecond stands for a thousandth of a byte.
                let thousandths = sizes.exponential(Duration::from_nanos(self.mean * 1000)).as_nanos();
                u64::try_from(thousandths / 1000).unwrap_or(u64::MAX).clamp(MIN_PACKET, 65_535)
            }
        }
    }
}

impl Host for Source {
    fn start(&mut self, now: Time, context: &HostContext<'_>) {
        self.streams = Some((context.stream("gaps"), context.stream("sizes")));
        self.schedule(now);
    }

    fn datagram(&mut self, _now: Time, _incoming: Incoming, _context: &HostContext<'_>) {}

    fn timer(&mut self, now: Time, _context: &HostContext<'_>) {
        if now >= self.next {
            self.due = true;
            self.schedule(now);
        }
    }

    fn transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
        if !std::mem::take(&mut self.due) {
            return None;
        }
        let len = usize::try_from(self.len() - HEADERS).ok()?;
        payload.resize(len, 0);
        payload.get_mut(..8)?.copy_from_slice(&now.as_nanos().to_be_bytes());
        Some(Outgoing::over(RouteId::new(0)))
    }

    fn next_timer(&self) -> Option<Time> {
        (self.next < self.until).then_some(self.next)
    }
}

/// A packet that arrived: its sending time, its arrival, and its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) sent: Time,
    pub(super) came: Time,
    pub(super) len: u64,
}

/// Receiver that records all packets.
#[derive(Default)]
pub(super) struct Taker(pub(super) Vec<Taken>);

impl Host for Taker {
    fn datagram(&mut self, now: Time, incoming: Incoming, _context: &HostContext<'_>) {
        let stamp = incoming.payload.get(..8).and_then(|bytes| bytes.try_into().ok());
        let sent = Time::from_nanos(stamp.map_or(0, u64::from_be_bytes));
        self.0.push(Taken { sent, came: now, len: incoming.payload.len() as u64 + HEADERS });
    }

    fn transmit(&mut self, _now: Time, _payload: &mut Vec<u8>) -> Option<Outgoing> {
        None
    }
}
