//! The paths on which theory is tried: as few things beside the one in question as can be.

use crate::error::SimulationError;
use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_sim::{
    Bulk, DelayedAck, FlowId, LinkConfig, LossDetection, Network, Packet, Side, TcpConfig, TcpFlow,
};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

/// With its 40 bytes of headers a segment makes a packet of 1000 bytes.
pub(super) const MSS: u32 = 960;
/// One way on most paths.
pub(super) const ONE_WAY: Duration = Duration::from_millis(40);
/// There and back, in seconds.
pub(super) const RTT: f64 = 0.08;

/// TCP as formulas know it: an acknowledgement per segment, and no limit but the congestion window.
pub(super) fn plain() -> TcpConfig {
    TcpConfig {
        mss: MSS,
        timestamps: false,
        delayed_ack: DelayedAck::NONE,
        send_buffer: Bytes::new(1 << 30),
        receive_buffer: Bytes::new(1 << 30),
        ..TcpConfig::default()
    }
}

/// The same with the loss detection of textbooks, which leaves tails to the timer.
pub(super) fn textbook() -> TcpConfig {
    TcpConfig { loss_detection: LossDetection::DupThresh, ..plain() }
}

/// First in, first out, with room for `packets`.
pub(super) fn fifo(packets: u64) -> Result<DropTail<Packet>, SimulationError> {
    Ok(DropTail::new(DropTailConfig { limit: Limit::Packets(packets) })?)
}

/// A link on which nothing waits long, nor is dropped: 10 Gbit/s.
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
        config: TcpConfig,
    ) -> Result<Self, SimulationError> {
        let mut net = Network::new(seed);
        let (client, server) = (net.node("client"), net.node("server"));
        net.link(client, server, there, back);
        let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::endless()))?;
        Ok(Self { net, flow })
    }

    /// Payload per second that arrives from `from` on for `span`.
    pub(super) fn goodput(&mut self, from: Time, span: Duration) -> f64 {
        self.net.run_until(from);
        let before = self.net.reception(self.flow, Side::Server).bytes;
        self.net.run_until(from + span);
        let arrived = self.net.reception(self.flow, Side::Server).bytes - before;
        arrived.get() as f64 / span.as_secs_f64()
    }

    /// Payload per second over whole cycles: from the first reduction of the window after `from` to the one `cycles`
    /// later. A reduction is seen to within `step`.
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

    /// Runs until so many more reductions have been seen; when that was, and how many bytes have arrived.
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

/// How long a reduction is waited for.
const PATIENCE: Duration = Duration::from_secs(86_400);

/// Bytes per second in Mbit/s.
pub(super) fn mbps(bytes_per_second: f64) -> f64 {
    bytes_per_second * 8.0 / 1e6
}

/// The nearest whole number; 0 for what is below.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
pub(super) fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// The nearest nanosecond.
pub(super) fn seconds(value: f64) -> Duration {
    Duration::from_nanos(whole(value * 1e9))
}
