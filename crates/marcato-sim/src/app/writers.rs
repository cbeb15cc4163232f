//! Several writers that share one connection, like the threads of a program without a Conductor.

use std::collections::VecDeque;

use marcato_sched::conductor::Message;
use marcato_units::{Bytes, Priority};

use super::plan::{Plan, Planned, PlannedApp};
use super::{Socket, Tag};

/// Greatest size of one write: the buffer with which programs copy.
const PIECE: Bytes = Bytes::new(16 << 10);

/// Messages of writers that take turns at a socket.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    /// Index, from 0, of each priority's writer.
    writer: [usize; Priority::COUNT],
    waiting: Vec<VecDeque<(Tag, Priority, Bytes)>>,
    /// Index of the writer whose turn it is.
    turn: usize,
    /// Greatest size of one write.
    piece: Bytes,
}

impl Turns {
    /// Writers that each write one piece of at most 16 KiB per turn.
    pub(crate) fn new(writer: [usize; Priority::COUNT]) -> Self {
        let count = writer.into_iter().max().map_or(1, |last| last + 1);
        Self { writer, waiting: vec![VecDeque::new(); count], turn: 0, piece: PIECE }
    }

    /// One writer, which writes whole messages in their order.
    pub(crate) fn fifo() -> Self {
        Self { piece: Bytes::MAX, ..Self::new([0; Priority::COUNT]) }
    }

    pub(crate) fn is_fifo(&self) -> bool {
        self.waiting.len() == 1
    }

    /// Returns true if the writer of a priority has nothing to write.
    pub(crate) fn is_idle(&self, priority: Priority) -> bool {
        self.waiting[self.writer[priority.index()]].is_empty()
    }

    pub(crate) fn accept(&mut self, tag: Tag, message: &Message) {
        let writer = self.writer[message.priority.index()];
        self.waiting[writer].push_back((tag, message.priority, message.len));
    }

    /// Writes while the socket takes data.
    pub(crate) fn write(&mut self, socket: &mut Socket<'_>) {
        let mut idle = 0;
        while idle < self.waiting.len() {
            let Some((tag, priority, left)) = self.waiting[self.turn].front_mut() else {
                idle += 1;
                self.turn = (self.turn + 1) % self.waiting.len();
                continue;
            };
            idle = 0;
            let taken = socket.write((*left).min(self.piece), *priority, *tag);
            if taken.is_zero() && !left.is_zero() {
                // A writer that found no room keeps its turn.
                return;
            }
            *left -= taken;
            if left.is_zero() {
                self.waiting[self.turn].pop_front();
            }
            self.turn = (self.turn + 1) % self.waiting.len();
        }
    }
}

/// Application whose messages are split among writers that take turns at the socket. Each writes
/// one piece of at most 16 KiB per turn, or as much of it as fits. A writer keeps the order of its
/// own messages. The label of a message is its index in the plan.
///
/// Short messages wait less than with [`fifo`](Self::fifo): only for data in the send buffer, not
/// for what another writer has not yet written.
#[derive(Clone, Debug)]
pub struct Writers {
    plan: Plan,
    turns: Turns,
}

impl Writers {
    /// Writers with this plan; messages of the same time keep their order. `writer` is the index,
    /// from 0, of each priority's writer.
    pub fn new(plan: Vec<Planned>, writer: [usize; Priority::COUNT]) -> Self {
        Self { plan: Plan::new(plan), turns: Turns::new(writer) }
    }

    /// One writer, which writes each message of a plan at its time, one after the other.
    pub fn fifo(plan: Vec<Planned>) -> Self {
        Self { plan: Plan::new(plan), turns: Turns::fifo() }
    }
}

impl PlannedApp for Writers {
    fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    fn accept(&mut self, tag: Tag, message: Message, _socket: &mut Socket<'_>) {
        self.turns.accept(tag, &message);
    }

    fn write(&mut self, socket: &mut Socket<'_>) {
        self.turns.write(socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Collector, Congestion, LinkConfig, Network, Side, Tcp, TcpFlow};
    use marcato_units::{Duration, Rate, Seed, Time};

    #[test]
    fn a_short_message_overtakes_unwritten_data_of_another_writer() {
        let mut net = Network::new(Seed::new(1));
        let (client, server) = (net.node("client"), net.node("server"));
        let link = || LinkConfig::new(Rate::from_mbps(2), Duration::from_millis(10));
        net.link(client, server, link(), link());
        let config = Tcp { send_buffer: Bytes::new(65_536), ..Tcp::with(Congestion::Reno) };
        let plan = vec![
            Planned::now(Bytes::kb(5_000), Priority::P4),
            Planned::now(Bytes::new(200), Priority::P0).after(Duration::from_secs(5)),
        ];
        let app = Writers::new(plan, [0, 0, 0, 0, 1]);
        let flow =
            net.tcp(TcpFlow::new(client, server, config, app).server_app(Collector::default())).unwrap();
        net.run_until(Time::from_secs(10));
        let at = net.app::<Collector>(flow, Side::Server).unwrap().complete(Tag(1), Bytes::new(200)).unwrap();
        // It waits for the send buffer, 65 536 bytes at 2 Mbit/s and headers: 272 ms; the file
        // takes 20 s.
        let delay = (at - Time::from_secs(5)).as_secs_f64();
        assert!((0.2..0.4).contains(&delay), "{delay} s");
    }
}
