//! What all experiments of this paper share: TCP and PLT as the paper has them, and its routers.

use marcato_queue::{DropTail, DropTailConfig, Limit, LimitError, Strict, StrictConfig, StrictError};
use marcato_sched::LcmConfig;
use marcato_sim::{
    Congestion, DelayedAck, FlowId, LinkConfig, Loss, LossDetection, Network, Packet, PltConfig, Side,
    TcpConfig,
};
use marcato_units::{Bytes, Duration};

use super::published::{PACKET, RATE, WINDOW};

/// Payload of a packet of 1000 bytes: headers are of IPv4 and of TCP without options.
pub(super) const PAYLOAD: u32 = PACKET - 40;

/// The initial window of the HCM, in packets. The paper does not give it; RFC 3390 allowed two such packets, ns-2 has one
/// or two. Long flows do not depend on it.
pub(super) const INITIAL_WINDOW: u32 = 2;

/// TCP as in §4.1, with or without a low layer: packets of 1000 bytes, each acknowledged, losses by duplicate
/// acknowledgements (with SACK), a receiver window of 3·BW·RTT.
pub(super) fn tcp(plt: Option<PltConfig>, congestion: Congestion) -> TcpConfig {
    TcpConfig {
        mss: PAYLOAD,
        timestamps: false,
        initial_window: INITIAL_WINDOW,
        // An infinite source: what the LCM has lost waits in it.
        send_buffer: Bytes::new(1 << 40),
        receive_buffer: Bytes::new(WINDOW * u64::from(PAYLOAD)),
        delayed_ack: DelayedAck::NONE,
        loss_detection: LossDetection::DupThresh,
        congestion,
        plt,
        ..TcpConfig::default()
    }
}

/// PLT as in §4.1; what the paper leaves open as [`LcmConfig::paper`] and [`PltConfig::new`] have it.
pub(super) const fn plt() -> PltConfig {
    PltConfig::new(LcmConfig::paper())
}

/// PLT, if the "max. receiver window" of §4.1 is a buffer of that size in which the stream is put together.
pub(super) fn literal() -> PltConfig {
    PltConfig { reassembly: Some(Bytes::new(WINDOW * u64::from(PAYLOAD))), ..plt() }
}

/// A drop-tail buffer of so many packets.
pub(super) const fn droptail(packets: u64) -> DropTailConfig {
    DropTailConfig { limit: Limit::Packets(packets) }
}

/// A queue of so many packets.
pub(super) fn queue(packets: u64) -> Result<DropTail<Packet>, LimitError> {
    DropTail::new(droptail(packets))
}

/// A router of the paper: strict priority, drop-tail, a buffer of so many packets for each class.
pub(super) fn strict(packets: u64) -> Result<Strict<DropTail<Packet>, DropTail<Packet>>, StrictError> {
    Strict::new(StrictConfig { high: droptail(packets), low: droptail(packets) })
}

/// A bottleneck: such a router before 250 Mbit/s.
pub(super) fn bottleneck(delay: Duration, buffer: u64, loss: f64) -> Result<LinkConfig, StrictError> {
    Ok(LinkConfig::new(RATE, delay).queue(strict(buffer)?).loss(random(loss)))
}

/// Random loss of this share.
pub(super) fn random(loss: f64) -> Loss {
    if loss > 0.0 { Loss::Random(loss) } else { Loss::None }
}

/// Bytes of the stream that have arrived at the server, each counted once, whatever is missing before them.
pub(super) fn received(net: &Network, flow: FlowId) -> u64 {
    match net.plt_stats(flow, Side::Server) {
        Some(stats) => stats.received.get(),
        None => net.reception(flow, Side::Server).bytes.get(),
    }
}

/// The goodput of so many bytes of the stream, counted as packets of 1000 bytes, in Mbit/s.
pub(super) fn goodput(bytes: u64, span: Duration) -> f64 {
    bytes as f64 * f64::from(PACKET) / f64::from(PAYLOAD) * 8e-6 / span.as_secs_f64()
}

/// The rate of a bottleneck in Mbit/s.
pub(super) fn link() -> f64 {
    RATE.as_mbps_f64()
}
