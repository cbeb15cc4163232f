//! On-off traffic over TCP.

use marcato_units::{Bytes, Duration, Priority, Stream};

use super::{App, FlowStreams, Socket, Tag};
use crate::distribution::Distribution;

/// Bytes per write: small against a send buffer, and large enough that the number of writes does
/// not matter.
const PIECE: Bytes = Bytes::new(16 << 10);

/// Application that writes without end while on and nothing while off. It begins with an on span,
/// and never closes.
///
/// Data in the send buffer at the end of a span still leaves. If the edges matter, give the flow a
/// [`notsent_lowat`](crate::Tcp::notsent_lowat) of a few segments. The unsent data is then at
/// most 16 KiB more than that. Spans are drawn from a stream that is named after the flow.
///
/// ```
/// use marcato_sim::{Congestion, Distribution, LinkConfig, Network, OnOff, Side, Tcp, TcpFlow};
/// use marcato_units::{Bytes, Duration, Rate, Seed, Time};
///
/// let mut net = Network::new(Seed::new(1));
/// let (client, server) = (net.node("client"), net.node("server"));
/// let link = || LinkConfig::new(Rate::from_mbps(8), Duration::from_millis(5));
/// net.link(client, server, link(), link());
/// let on = Distribution::constant(Duration::from_secs(1));
/// let off = Distribution::exponential(Duration::from_secs(1))?;
/// let config = Tcp { notsent_lowat: Some(Bytes::kb(6)), ..Tcp::default() };
/// let flow = net.tcp(TcpFlow::new(client, server, config, OnOff::new(on, off)))?;
/// net.run_until(Time::from_secs(20));
/// let spans = net.app::<OnOff>(flow, Side::Client).map(OnOff::spans);
/// assert!(spans.is_some_and(|spans| spans > 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OnOff {
    on: Distribution<Duration>,
    off: Distribution<Duration>,
    stream: Option<Stream>,
    is_on: bool,
    spans: u64,
    priority: Priority,
    tag: Tag,
}

impl OnOff {
    /// Traffic with these distributions of on and off spans.
    pub fn new(on: Distribution<Duration>, off: Distribution<Duration>) -> Self {
        Self {
            on,
            off,
            stream: None,
            is_on: false,
            spans: 0,
            priority: Priority::default(),
            tag: Tag::default(),
        }
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Returns true during an on span.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns the number of on spans begun.
    pub fn spans(&self) -> u64 {
        self.spans
    }

    fn turn(&mut self, socket: &mut Socket<'_>) {
        self.is_on = !self.is_on;
        self.spans += u64::from(self.is_on);
        let spans = if self.is_on { self.on } else { self.off };
        let Some(stream) = &mut self.stream else { return };
        // At least a nanosecond, so that time advances.
        let span = spans.draw(stream).max(Duration::from_nanos(1));
        socket.set_timer(socket.now() + span, 0);
    }
}

impl App for OnOff {
    fn named(&mut self, streams: &FlowStreams<'_>) {
        self.stream = Some(streams.stream("onoff"));
    }

    fn start(&mut self, socket: &mut Socket<'_>) {
        self.turn(socket);
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        if self.is_on {
            socket.write(PIECE, self.priority, self.tag);
        }
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        self.turn(socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Collector, Congestion, LinkConfig, Network, Side, Tcp, TcpFlow};
    use marcato_queue::{DropTail, DropTailConfig, Limit};
    use marcato_units::{Rate, Seed, Time};

    #[test]
    fn nothing_is_sent_while_it_is_off() {
        let mut net = Network::new(Seed::new(1));
        let (client, server) = (net.node("client"), net.node("server"));
        let link = || {
            let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(20) }).unwrap();
            LinkConfig::new(Rate::from_mbps(8), Duration::from_millis(5)).queue(queue)
        };
        net.link(client, server, link(), link());
        let second = Distribution::constant(Duration::from_secs(1));
        let config = Tcp { notsent_lowat: Some(Bytes::kb(6)), ..Tcp::with(Congestion::Reno) };
        let app = OnOff::new(second, second);
        let flow =
            net.tcp(TcpFlow::new(client, server, config, app).server_app(Collector::logging())).unwrap();
        net.run_until(Time::from_secs(10));
        assert_eq!(net.app::<OnOff>(flow, Side::Client).unwrap().spans(), 6);
        let log = net.app::<Collector>(flow, Side::Server).unwrap().log();
        // 22 kB unsent and a queue of 20 packets have left after 52 ms; only a lost tail waits for
        // the timer.
        let off =
            |at: Time| at.as_nanos() / 1_000_000_000 % 2 == 1 && at.as_nanos() % 1_000_000_000 > 600_000_000;
        assert!(log.iter().all(|(at, _, _)| !off(*at)), "bytes came in the middle of an off span");
        let bytes: u64 = log.iter().map(|(_, _, bytes)| bytes.get()).sum();
        // Five on spans of 1 s at 8 Mbit/s, less what slow start leaves unused.
        assert!((3_500_000..5_000_000).contains(&bytes), "{bytes}");
    }
}
