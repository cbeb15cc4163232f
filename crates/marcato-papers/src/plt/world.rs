//! Parts that all experiments of this paper share: its TCP, its PLT, and its routers.

use marcato_queue::{DropTail, DropTailConfig, Limit, LimitError, Strict, StrictConfig, StrictError};
use marcato_sched::LcmConfig;
use marcato_sim::{
    Congestion, DelayedAck, FlowId, LinkConfig, Loss, LossDetection, Network, Packet, PltConfig, Side, Tcp,
    TcpEnd,
};
use marcato_units::{Bytes, Duration};

use super::published::{PACKET, RATE, WINDOW};

/// Payload of a packet of 1000 bytes, with headers of IPv4 and of TCP without options.
pub(super) const PAYLOAD: u32 = PACKET - 40;

/// Initial window of the HCM, in packets. The paper does not give it; RFC 3390 allowed two such
/// packets, ns-2 has one or two. Long flows do not depend on it.
pub(super) const INITIAL_WINDOW: u32 = 2;

/// TCP as in §4.1, with or without a low layer. Packets of 1000 bytes are each acknowledged, losses
/// are found by duplicate acknowledgements (with SACK), and the receiver window is 3·BW·RTT.
pub(super) fn tcp(plt: Option<PltConfig>, congestion: Congestion) -> TcpEnd {
    let tcp = Tcp {
        mss: PAYLOAD,
        timestamps: false,
        initial_window: INITIAL_WINDOW,
        // Room for an infinite source: data that the LCM has lost waits in this buffer.
        send_buffer: Bytes::new(1 << 40),
        receive_buffer: Bytes::new(WINDOW * u64::from(PAYLOAD)),
        delayed_ack: DelayedAck::NONE,
        loss_detection: LossDetection::DupThresh,
        // ns-2's SACK undoes nothing.
        undo: false,
        congestion,
        ..Tcp::default()
    };
    TcpEnd { plt, ..tcp.into() }
}

/// PLT as in §4.1. Parameters that the paper leaves open are those of [`LcmConfig::paper`] and
/// [`PltConfig::new`].
pub(super) const fn plt() -> PltConfig {
    PltConfig::new(LcmConfig::paper())
}

/// PLT with the literal reading of §4.1's "max. receiver window": a reassembly buffer of that size.
pub(super) fn literal() -> PltConfig {
    PltConfig { reassembly: Some(Bytes::new(WINDOW * u64::from(PAYLOAD))), ..plt() }
}

/// Drop-tail configuration with room for `packets`.
pub(super) const fn droptail(packets: u64) -> DropTailConfig {
    DropTailConfig { limit: Limit::Packets(packets) }
}

/// Drop-tail queue with room for `packets`.
pub(super) fn queue(packets: u64) -> Result<DropTail<Packet>, LimitError> {
    DropTail::new(droptail(packets))
}

/// Router of the paper: strict priority and drop-tail, with room for `packets` in each class.
pub(super) fn strict(packets: u64) -> Result<Strict<DropTail<Packet>, DropTail<Packet>>, StrictError> {
    Strict::new(StrictConfig { high: droptail(packets), low: droptail(packets) })
}

/// Bottleneck: such a router before a link of 250 Mbit/s.
pub(super) fn bottleneck(delay: Duration, buffer: u64, loss: f64) -> Result<LinkConfig, StrictError> {
    Ok(LinkConfig::new(RATE, delay).queue(strict(buffer)?).loss(random(loss)))
}

/// Random loss of this share.
pub(super) fn random(loss: f64) -> Loss {
    if loss > 0.0 { Loss::Random(loss) } else { Loss::None }
}

/// Distinct bytes of the stream that have arrived at the server, in any order.
pub(super) fn received(net: &Network, flow: FlowId) -> u64 {
    match net.plt_stats(flow, Side::Server) {
        Some(stats) => stats.received.get(),
        None => net.reception(flow, Side::Server).bytes.get(),
    }
}

/// Goodput of `bytes` of the stream, in Mbit/s, counted as packets of 1000 bytes.
pub(super) fn goodput(bytes: u64, span: Duration) -> f64 {
    bytes as f64 * f64::from(PACKET) / f64::from(PAYLOAD) * 8e-6 / span.as_secs_f64()
}

/// Rate of a bottleneck in Mbit/s.
pub(super) fn link() -> f64 {
    RATE.as_mbps_f64()
}
