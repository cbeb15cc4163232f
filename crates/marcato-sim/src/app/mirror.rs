//! Application that sends part of what it reads back.

use marcato_units::{Bytes, Priority};

use super::{App, Socket, Tag};

/// Application that writes back one byte for each `one_of` that it reads. It closes when the other
/// end has closed and all is written. The share of each piece read is rounded down, as CRQ's client
/// does with halves.
#[derive(Clone, Debug)]
pub struct Mirror {
    one_of: u64,
    owed: Bytes,
    finished: bool,
}

impl Mirror {
    /// Sends one byte of `one_of` back; 0 counts as 1.
    pub fn one_of(one_of: u64) -> Self {
        Self { one_of: one_of.max(1), owed: Bytes::ZERO, finished: false }
    }

    /// Sends half of everything back. CRQ §IV-B.
    pub fn half() -> Self {
        Self::one_of(2)
    }

    fn write(&mut self, socket: &mut Socket<'_>) {
        if !self.owed.is_zero() {
            self.owed -= socket.write(self.owed, Priority::default(), Tag::default());
        }
        if self.finished && self.owed.is_zero() {
            socket.close();
        }
    }
}

impl App for Mirror {
    fn writable(&mut self, socket: &mut Socket<'_>) {
        self.write(socket);
    }

    fn received(&mut self, _tag: Tag, bytes: Bytes, socket: &mut Socket<'_>) {
        self.owed += bytes / self.one_of;
        self.write(socket);
    }

    fn finished(&mut self, socket: &mut Socket<'_>) {
        self.finished = true;
        self.write(socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bulk, Congestion, LinkConfig, Network, Side, Tcp, TcpFlow};
    use marcato_units::{Duration, Rate, Seed, Time};

    #[test]
    fn a_half_size_echo_beyond_the_send_buffer_ends_and_both_close() {
        let mut net = Network::new(Seed::new(1));
        let (client, server) = (net.node("client"), net.node("server"));
        // The reverse direction is the slower one.
        let link = |mbps| LinkConfig::new(Rate::from_mbps(mbps), Duration::from_millis(10));
        net.link(client, server, link(2), link(20));
        let config = Tcp { send_buffer: Bytes::kb(20), ..Tcp::with(Congestion::Reno) };
        let flow = net
            .tcp(TcpFlow::new(client, server, config, Mirror::half()).server_app(Bulk::new(Bytes::kb(1000))))
            .unwrap();
        net.run_until(Time::from_secs(20));
        assert_eq!(net.reception(flow, Side::Client).bytes, Bytes::kb(1000));
        let back = net.reception(flow, Side::Server).bytes.get();
        // Each piece that is read may lose half a byte.
        assert!((499_000..=500_000).contains(&back), "{back}");
        assert!(net.is_finished(flow, Side::Client) && net.is_finished(flow, Side::Server));
    }
}
