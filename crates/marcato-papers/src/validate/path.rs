//! Paths on which theory is checked, reduced to the effect in question.

use crate::error::SimulationError;
use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_sim::{
    Bulk, Congestion, DelayedAck, FlowId, LinkConfig, LossDetection, Network, Packet, Side, Tcp, TcpFlow,
};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

/// Payload of a segment: 40 bytes of headers make it a packet of 1000 bytes.
pub(super) const MSS: u32 = 960;
/// One-way delay of most paths.
pub(super) const ONE_WAY: Duration = Duration::from_millis(40);
/// Round-trip time in seconds.
pub(super) const RTT: f64 = 0.08;

/// TCP as in the formulas: an acknowledgement per segment, and only the congestion window as limit.
pub(super) fn plain() -> Tcp {
    Tcp {
        mss: MSS,
        timestamps: false,
        delayed_ack: DelayedAck::NONE,
        send_buffer: Bytes::new(1 << 30),
        receive_buffer: Bytes::new(1 << 30),
        undo: false,
        ..Tcp::with(Congestion::Reno)
    }
}

/// The plain TCP with textbook loss detection, which repairs tail losses by timeout only.
pub(super) fn textbook() -> Tcp {
    Tcp { loss_detection: LossDetection::DupThresh, ..plain() }
}

/// FIFO queue with room for `packets`.
pub(super) fn fifo(packets: u64) -> Result<DropTail<Packet>, SimulationError> {
    Ok(DropTail::new(DropTailConfig { limit: Limit::Packets(packets) })?)
}

/// Link of 10 Gbit/s without noticeable queueing and without drops.
pub(super) fn wide(delay: Duration) -> Result<LinkConfig, SimulationError> {
    Ok(LinkConfig::new(Rate::from_mbps(10_000), delay).queue(fifo(1_000_000)?))
}

/// One endless flow over one link.
pub(super) struct OneFlow {
    pub(super) net: Network,
    pub(super) flow: FlowId,
}

impl OneFlow {
    pub(super) fn new(
        seed: Seed,
        there: LinkConfig,
        back: LinkConfig,
        config: Tcp,
    ) -> Result<Self, SimulationError> {
        let mut net = Network::new(seed);
        let (client, server) = (net.node("client"), net.node("server"));
        net.link(client, server, there, back);
        let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::endless()))?;
        Ok(Self { net, flow })
    }

    /// Bytes of payload per second that arrive from `from` on for `span`.
    pub(super) fn goodput(&mut self, from: Time, span: Duration) -> f64 {
        self.net.run_until(from);
        let before = self.net.reception(self.flow, Side::Server).bytes;
        self.net.run_until(from + span);
        let arrived = self.net.reception(self.flow, Side::Server).bytes - before;
        arrived.get() as f64 / span.as_secs_f64()
    }

    /// Bytes of payload per second over whole cycles: from the first reduction of the window after
    /// `from` to the one `cycles` later. Reductions are detected to within `step`.
    pub(super) fn over_reductions(
        &mut self,
        from: Time,
        cycles: u64,
        step: Duration,
    ) -> Result<f64, SimulationError> {
        self.net.run_until(from);
        let begin = self.after_reductions(1, step)?;
        let end = self.after_reductions(cycles, step)?;
        Ok((end.1 - begin.1) as f64 / (end.0 - begin.0).as_secs_f64())
    }

    /// Runs until `more` further reductions have been detected. Returns the time, and the bytes
    /// that have arrived.
    fn after_reductions(&mut self, more: u64, step: Duration) -> Result<(Time, u64), SimulationError> {
        let reductions = |net: &Network, flow| {
            net.tcp_stats(flow, Side::Client)
                .map(|stats| stats.reductions)
                .ok_or(SimulationError::Missing("TCP flow"))
        };
        let until = reductions(&self.net, self.flow)? + more;
        let latest = self.net.now() + PATIENCE;
        while reductions(&self.net, self.flow)? < until {
            let now = self.net.now();
            if now > latest {
                return Err(SimulationError::Missing("reduction of the window within a simulated day"));
            }
            self.net.run_until(now + step);
        }
        Ok((self.net.now(), self.net.reception(self.flow, Side::Server).bytes.get()))
    }
}

/// Longest wait for a reduction.
const PATIENCE: Duration = Duration::from_secs(86_400);

/// Converts bytes per second to Mbit/s.
pub(super) fn mbps(bytes_per_second: f64) -> f64 {
    bytes_per_second * 8.0 / 1e6
}

/// Rounds to the nearest whole number; negative values become 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
pub(super) fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Rounds seconds to the nearest nanosecond.
pub(super) fn seconds(value: f64) -> Duration {
    Duration::from_nanos(whole(value * 1e9))
}
