//! Configuration of a session.

use std::net::IpAddr;
use std::sync::Arc;

use marcato_sched::conductor::Config as ConductorConfig;
use marcato_sched::coupled::{CoupledConfig, Coupling};
use marcato_sched::lane::MAX_LANES;
use marcato_sched::lowprio::{Lcm, LcmConfigError};
use marcato_sched::reserve::Framing;
use marcato_sched::schedule::{
    Cwr, CwrConfig, CwrConfigError, CwrRed, Layered, LayeredConfig, LowRtt, RoundRobin, Selective,
};
use marcato_units::{Bytes, Duration, Priority, PrioritySet};
use noq_proto::{MtuDiscoveryConfig, TransportConfig, VarInt};

use crate::controller::Congestion;
use crate::gate::GateFactory;
use crate::inbox::InboxLimits;
use crate::low::{LowLanes, Retry};
use crate::scheduler::{Scheduler, SchedulerFactory};
use crate::streams::{Protocol, StreamsConfig, StreamsConfigError};

/// Bytes of a full packet that stream data does not use: its header with an 8-byte connection ID,
/// the frame's own header, the AEAD's tag, and room for an acknowledgement that the engine may add.
/// With 70 bytes or more, no chunk was ever seen to spill into a second packet.
pub(crate) const HEADROOM: Bytes = Bytes::new(80);

/// Bytes of a full packet that stream data does not use while the engine has data to retransmit.
///
/// That is too little for the engine to add a sliver of that data, yet room for most
/// acknowledgements. The engine begins a frame where more than 25 bytes are left, and headers take
/// 30 or more. Lost slivers would be retransmitted many to a packet. Of two dozen small frames of
/// one stream in one packet, the engine forgets some: in unordered reading it takes the count of
/// the bytes read for an offset, and drops earlier bytes when it tidies up.
pub(crate) const TIGHT: Bytes = Bytes::new(52);

/// Largest UDP payload on the loopback interface, in bytes.
///
/// Beyond 32 KiB of packets that carry frames of one stream, unread, the engine tidies up and forgets
/// some, as [`TIGHT`] describes. That also holds for a few lost packets of 1200 bytes that are
/// retransmitted together in one of 9000, so packets here have one size from the beginning.
const LARGEST_PACKET: u16 = 4096;

/// Bytes that a full packet counts against the congestion window beyond its stream bytes.
pub(crate) const OVERHEAD: Bytes = Bytes::new(44);

/// Largest UDP payload in an Ethernet frame, below IPv4.
pub(crate) const ETHERNET: u16 = 1472;

/// Buffer for DATAGRAM frames in the engine, in bytes: more than one packet can bring, however
/// small the frames.
const ENGINE_DATAGRAMS: usize = 4 << 20;

/// Lane scheduler of a session.
///
/// To add one, add its variant here, and its constructor to `build`, which does not compile without
/// it. If it can choose among the high lanes of two layers, add it to [`BaseScheduler`], too. One
/// of another crate needs a [`SchedulerFactory`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathScheduler {
    /// Fastest lane with room.
    LowRtt,
    /// Lanes in rotation.
    RoundRobin,
    /// Congestion window reservation (CWR). The session sets its framing.
    Cwr(CwrConfig),
    /// Congestion window reservation with redundancy (CWR-RED). The session sets its framing.
    CwrRed(CwrConfig),
    /// Redundancy that ignores the window, for messages at least as urgent as this priority: for
    /// comparison only.
    Selective(Priority),
    /// Low lanes carry what high ones have no room for; the base scheduler chooses among high ones.
    Layered(BaseScheduler, LayeredConfig),
}

/// Scheduler of the high lanes in [`PathScheduler::Layered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseScheduler {
    /// Fastest lane with room.
    LowRtt,
    /// Lanes in rotation.
    RoundRobin,
    /// Congestion window reservation (CWR). The session sets its framing.
    Cwr(CwrConfig),
    /// Congestion window reservation with redundancy (CWR-RED). The session sets its framing.
    CwrRed(CwrConfig),
}

impl From<BaseScheduler> for PathScheduler {
    fn from(base: BaseScheduler) -> Self {
        match base {
            BaseScheduler::LowRtt => Self::LowRtt,
            BaseScheduler::RoundRobin => Self::RoundRobin,
            BaseScheduler::Cwr(config) => Self::Cwr(config),
            BaseScheduler::CwrRed(config) => Self::CwrRed(config),
        }
    }
}

impl PathScheduler {
    fn build(self, framing: Framing) -> Result<Scheduler, CwrConfigError> {
        let framed = |config: CwrConfig| CwrConfig { framing, ..config };
        Ok(match self {
            Self::LowRtt => Box::new(LowRtt::new()),
            Self::RoundRobin => Box::new(RoundRobin::new()),
            Self::Cwr(config) => Box::new(Cwr::new(framed(config))?),
            Self::CwrRed(config) => Box::new(CwrRed::new(framed(config))?),
            Self::Selective(threshold) => Box::new(Selective::new(threshold)),
            Self::Layered(base, config) => Box::new(Layered::new(Self::from(base).build(framing)?, config)),
        })
    }
}

/// Pacing of packets over a round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// None: all that the window allows leaves at once. Do not combine with BBR: without pacing it
    /// was seen to double the round-trip time.
    Off,
    /// The session paces all data except the most urgent level, which leaves at once if the window
    /// allows.
    #[default]
    Session,
    /// The session paces data of every level.
    Strict,
}

/// Growth of a lane's window while a part of it has to stay empty for a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// By the bytes acknowledged, as controllers do. A lane that reserves grows more slowly (CWR,
    /// Table I).
    #[default]
    Acknowledged,
    /// By the bytes acknowledged plus a share for the part kept from background data, as if that
    /// had been filled. A window underused only because of a reservation then grows as fast as a
    /// full one.
    Credited,
}

/// Streams that carry messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamUse {
    /// A new unidirectional stream for each copy of each message.
    #[default]
    PerMessage,
    /// A reused bidirectional stream, once the receiver has acknowledged its message on it (CWR
    /// §III-B).
    Reuse,
}

/// Time after which a silent lane counts as stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Smoothed round-trip times without an acknowledgement, in thousandths, with data in flight
    /// ...
    pub rtts: u32,
    /// ... but at least one round-trip time and this: acknowledgements may be delayed.
    pub floor: Duration,
}

impl Default for Stall {
    /// 2.5 round-trip times, at least one and 50 ms: twice the acknowledgement delay that QUIC
    /// allows by default.
    fn default() -> Self {
        Self { rtts: 2500, floor: Duration::from_millis(50) }
    }
}

/// Bound on the packets handed to the engine at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Limit of packets, all of one message and on one lane.
    pub packets: usize,
    /// Time in which the lane sends the batch at most, so that more urgent data waits no longer.
    /// The most urgent level is exempt: nothing can be more urgent.
    pub span: Duration,
}

impl Batch {
    /// One packet at a time.
    pub const ONE: Self = Self { packets: 1, span: Duration::ZERO };
}

impl Default for Batch {
    fn default() -> Self {
        Self { packets: 10, span: Duration::from_micros(200) }
    }
}

/// Configuration of a session. The [default](Self::default) is for general use; the
/// reproduction of CWR documents the settings that it changes.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Protocol above QUIC: messages, or plain streams of another protocol.
    pub protocol: Protocol,
    /// Rules of the Conductor, which chooses the next bytes.
    pub conductor: ConductorConfig,
    /// Lane scheduler.
    pub path_scheduler: PathScheduler,
    /// Lane scheduler of another crate, in place of `path_scheduler`. Of
    /// [`PathScheduler::Layered`], it replaces the scheduler of the high lanes.
    pub own_scheduler: Option<SchedulerFactory>,
    /// Controller of lanes whose request names none.
    pub congestion: Congestion,
    /// Initial window in bytes; `None` for the controller's own choice.
    pub initial_window: Option<Bytes>,
    /// Pacing.
    pub pacing: Pacing,
    /// Growth of windows with a reservation.
    pub growth: Growth,
    /// Streams that carry messages.
    pub streams: StreamUse,
    /// Packets handed to the engine at once.
    pub batch: Batch,
    /// Time after which a silent lane counts as stalled.
    pub stall: Stall,
    /// Follows the peer's request to use a lane only while no other is available, instead of only
    /// reporting it. Both ends also make that request for a lane that does not answer.
    pub follow_peer_backup: bool,
    /// UDP payload of a full packet until larger ones are known to pass: 1200 to 65 527 bytes.
    pub initial_mtu: u16,
    /// Probes for larger packets, up to `mtu_limit`.
    pub mtu_discovery: bool,
    /// Largest UDP payload that is probed for (1452 bytes: Ethernet, below IPv6).
    pub mtu_limit: u16,
    /// UDP payload of a full packet if the peer's address is one of this host: 1200 to 4096 bytes
    /// (4096). There, memory alone limits packets, so nothing is probed for.
    pub loopback_mtu: u16,
    /// Distance in packets, behind an acknowledged one, at which a packet is declared lost (RFC
    /// 9002 §6.1.1). `u32::MAX` leaves it to time alone.
    pub packet_threshold: u32,
    /// Round-trip times after which a packet older than an acknowledged one is declared lost (RFC
    /// 9002 §6.1.2).
    pub time_threshold: f32,
    /// Round-trip time assumed before one was measured.
    pub initial_rtt: Duration,
    /// Limit of lanes, 1 to 16.
    pub max_lanes: u8,
    /// Time without any packet after which the connection is closed.
    pub idle_timeout: Duration,
    /// Time without an acknowledgement after which a stalled lane is closed, if something has arrived on
    /// another since it stalled; `None` for never. High lanes close much earlier if they are [reopened](Self::reopen).
    pub lane_idle_timeout: Option<Duration>,
    /// Schedule by which a client reopens a high lane that was lost; `None` for never. Lanes that
    /// either end has removed stay closed. Low lanes have [their own](LowLanes::retry).
    ///
    /// With a schedule, either end closes a lane that has been silent for twice the time of a
    /// [stall](Self::stall) if another answers, and the client reopens it at once: acknowledgements and
    /// control frames that were lost with it leave by another lane only when its path is closed. If both
    /// ends close different lanes and none is left, the client reopens the last at once, however often it
    /// failed.
    pub reopen: Option<Retry>,
    /// Interval of keep-alives on a quiet lane; `None` for none.
    pub keep_alive: Option<Duration>,
    /// Shows observers on the path the round-trip time by the spin bit (RFC 9000 §17.4). One in
    /// eight connections hides it nevertheless, and with more than one active path it shows noise.
    pub spin: bool,
    /// Bounds of the data that the peer can make us hold.
    pub inbox: InboxLimits,
    /// Streams that the peer may have open, of each kind: at least 2.
    pub max_streams: u32,
    /// Bytes that the peer may send on one stream before we have read them. Above 2 MB, an engine
    /// that is read too late closes the connection.
    pub stream_window: Bytes,
    /// Bytes that the peer may send on all streams before we have read them.
    pub receive_window: Bytes,
    /// Initial receive window in bytes, which grows with the peer's data per round trip, up to
    /// `receive_window`. `None`: the window is `receive_window` from the start.
    pub receive_window_from: Option<Bytes>,
    /// Limit of unacknowledged bytes sent, on all streams.
    pub send_window: Bytes,
    /// Limit of messages that are queued or not wholly acknowledged. P0 may exceed it by an eighth.
    pub max_unfinished: usize,
    /// Limit of the bytes of unread unreliable messages, each counted with 64 more; beyond it the
    /// oldest are dropped. `None` disables them in both directions, and the peer is informed.
    pub datagrams: Option<Bytes>,
    /// Directory into which each session writes a log in the qlog format
    /// (draft-ietf-quic-qlog-main-schema). The cost is high: for debugging.
    #[cfg(feature = "qlog")]
    pub qlog: Option<std::path::PathBuf>,
    /// Reports each change of a window as an event, for analysis.
    pub trace_windows: bool,
    /// Management of lanes of the low layer. `None` treats them like all others, for networks whose
    /// treatment of the layers is known.
    pub low_lanes: Option<LowLanes>,
    /// Coupled mode: keeps background data out of the queue that urgent data (P0 and P1) meets, on
    /// lanes of the high layer ([`coupled`](marcato_sched::coupled)). Off by default: the
    /// reproductions of papers measure their controllers alone.
    pub coupled: Coupling,
    /// Levels for which coupled mode keeps the queue short: P0 and P1 by default. All others are background.
    pub urgent: PrioritySet,
    /// Packets of background data that coupled mode lets stand in the queue
    /// ([`CoupledConfig::queued_packets`](marcato_sched::coupled::CoupledConfig)): 2 by default.
    pub queued_packets: u64,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            protocol: Protocol::default(),
            conductor: ConductorConfig::default(),
            path_scheduler: PathScheduler::Cwr(CwrConfig::marcato()),
            own_scheduler: None,
            congestion: Congestion::default(),
            initial_window: None,
            pacing: Pacing::default(),
            growth: Growth::default(),
            streams: StreamUse::default(),
            batch: Batch::default(),
            stall: Stall::default(),
            follow_peer_backup: true,
            initial_mtu: 1200,
            mtu_discovery: true,
            mtu_limit: 1452,
            loopback_mtu: LARGEST_PACKET,
            packet_threshold: 3,
            time_threshold: 9.0 / 8.0,
            initial_rtt: Duration::from_millis(333),
            max_lanes: 8,
            idle_timeout: Duration::from_secs(30),
            lane_idle_timeout: Some(Duration::from_secs(10)),
            reopen: None,
            keep_alive: Some(Duration::from_secs(3)),
            spin: true,
            inbox: InboxLimits::default(),
            max_streams: 4096,
            stream_window: Bytes::new(1 << 20),
            receive_window: Bytes::new(16 << 20),
            receive_window_from: None,
            send_window: Bytes::new(32 << 20),
            max_unfinished: 65_536,
            datagrams: None,
            #[cfg(feature = "qlog")]
            qlog: None,
            trace_windows: false,
            low_lanes: None,
            coupled: Coupling::Off,
            urgent: PrioritySet::URGENT,
            queued_packets: CoupledConfig::QUEUED_PACKETS,
        }
    }
}

/// Error returned for an invalid session configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionConfigError {
    /// The Conductor's rules are invalid.
    #[error("invalid configuration of the conductor: {0}")]
    Conductor(#[from] marcato_sched::conductor::DebtError),
    /// The lane scheduler's configuration is invalid.
    #[error("invalid configuration of the lane scheduler: {0}")]
    PathScheduler(#[from] CwrConfigError),
    /// The configuration of plain streams is invalid.
    #[error(transparent)]
    PlainStreams(#[from] StreamsConfigError),
    /// There is no lane, or more than there are identifiers.
    #[error("max_lanes is {asked}: set 1 to {MAX_LANES}")]
    Lanes {
        /// Value given.
        asked: u8,
    },
    /// The configuration of the low lanes' controller is invalid.
    #[error("invalid configuration of the low layer's controller: {0}")]
    LowPriority(#[from] LcmConfigError),
    /// The limit of the discovery of larger packets is too high.
    #[error("packets of {asked} bytes are too large to be probed for: set at most 1472")]
    MtuLimit {
        /// Limit given.
        asked: u16,
    },
    /// The packet size on the loopback interface is out of range.
    #[error("the loopback mtu is {asked} bytes: set 1200 to 4096")]
    LoopbackMtu {
        /// Value given.
        asked: u16,
    },
    /// The packet size is below QUIC's minimum, or above UDP's maximum.
    #[error("the initial mtu is {asked} bytes: set 1200 to 65527")]
    Mtu {
        /// Value given.
        asked: u16,
    },
    /// The control stream occupies one permanently.
    #[error("with {asked} streams of each kind, a control stream leaves none for messages: allow at least 2")]
    Streams {
        /// Value given.
        asked: u32,
    },
    /// The stream window is too large for the engine's reassembly.
    #[error("a stream window of {asked} exceeds the limit of the engine's reassembly: set at most 2 MB")]
    StreamWindow {
        /// Value given.
        asked: Bytes,
    },
    /// The receive window would have to shrink.
    #[error("receive_window_from {from} exceeds receive_window {most}: raise receive_window")]
    ReceiveWindow {
        /// Initial window given.
        from: Bytes,
        /// Largest window given.
        most: Bytes,
    },
    /// A timeout is too long for the wire format.
    #[error("{what} cannot be encoded: set less than {limit:?}")]
    TooLong {
        /// Name of the setting.
        what: &'static str,
        /// Exclusive upper bound.
        limit: Duration,
    },
    /// A setting that must be at least one is zero.
    #[error("{what} must not be zero")]
    Zero {
        /// Name of the setting.
        what: &'static str,
    },
}

/// Exclusive upper bound of all timeouts.
const LONGEST: Duration = Duration::from_secs(1 << 30);

impl SessionConfig {
    /// Returns this configuration with low lanes for the data that high ones have no room for: PLT.
    /// The scheduler so far now chooses among the high lanes.
    #[must_use]
    pub fn layered(self) -> Self {
        let base = match self.path_scheduler {
            PathScheduler::LowRtt | PathScheduler::Selective(_) => BaseScheduler::LowRtt,
            PathScheduler::RoundRobin => BaseScheduler::RoundRobin,
            PathScheduler::Cwr(config) => BaseScheduler::Cwr(config),
            PathScheduler::CwrRed(config) => BaseScheduler::CwrRed(config),
            PathScheduler::Layered(base, _) => base,
        };
        let layers = match self.path_scheduler {
            PathScheduler::Layered(_, layers) => layers,
            _ => LayeredConfig::default(),
        };
        let low_lanes = Some(self.low_lanes.unwrap_or_default());
        Self { path_scheduler: PathScheduler::Layered(base, layers), low_lanes, ..self }
    }

    /// Stream bytes in a full packet of this size.
    pub(crate) fn payload(mtu: Bytes) -> Bytes {
        mtu - HEADROOM
    }

    /// Stream bytes in a full packet while the engine has data to retransmit.
    pub(crate) fn tight_payload(mtu: Bytes) -> Bytes {
        mtu - TIGHT
    }

    /// Bytes that messages count against windows.
    pub(crate) fn framing(&self) -> Framing {
        let payload = Self::payload(Bytes::from(u32::from(self.initial_mtu)));
        Framing::new(payload, OVERHEAD).unwrap_or(Framing::NONE)
    }

    /// Builds the lane scheduler of a session.
    pub(crate) fn scheduler(&self) -> Result<Scheduler, CwrConfigError> {
        let framing = self.framing();
        Ok(match (&self.own_scheduler, self.path_scheduler) {
            (None, built_in) => built_in.build(framing)?,
            (Some(own), PathScheduler::Layered(_, layers)) => {
                Box::new(Layered::new(own.build(framing), layers))
            }
            (Some(own), _) => own.build(framing),
        })
    }

    pub(crate) fn validate(&self) -> Result<(), SessionConfigError> {
        self.conductor.debt.validate(self.conductor.chunk)?;
        self.path_scheduler.build(self.framing())?;
        if let Some(low) = &self.low_lanes {
            Lcm::new(low.controller)?;
        }
        if let Congestion::LowPriority(config) = self.congestion {
            Lcm::new(config)?;
        }
        if self.max_lanes == 0 || usize::from(self.max_lanes) > MAX_LANES {
            return Err(SessionConfigError::Lanes { asked: self.max_lanes });
        }
        // RFC 9000 §14: QUIC must not use a path that cannot carry datagrams of 1200 bytes.
        if !(1200..=65_527).contains(&self.initial_mtu) {
            return Err(SessionConfigError::Mtu { asked: self.initial_mtu });
        }
        if self.mtu_limit > ETHERNET {
            return Err(SessionConfigError::MtuLimit { asked: self.mtu_limit });
        }
        if !(1200..=LARGEST_PACKET).contains(&self.loopback_mtu) {
            return Err(SessionConfigError::LoopbackMtu { asked: self.loopback_mtu });
        }
        if let Some(streams) = self.protocol.streams() {
            streams.validate()?;
        }
        if self.max_streams < 2 {
            return Err(SessionConfigError::Streams { asked: self.max_streams });
        }
        if self.stream_window > Bytes::kb(2000) {
            return Err(SessionConfigError::StreamWindow { asked: self.stream_window });
        }
        if let Some(from) = self.receive_window_from.filter(|from| *from > self.receive_window) {
            return Err(SessionConfigError::ReceiveWindow { from, most: self.receive_window });
        }
        for (what, span) in [
            ("the idle timeout", self.idle_timeout),
            ("a lane's idle timeout", self.lane_idle_timeout.unwrap_or_default()),
            ("the keep-alive interval", self.keep_alive.unwrap_or_default()),
            ("the initial round-trip time", self.initial_rtt),
            ("the stall's floor", self.stall.floor),
        ] {
            if span >= LONGEST {
                return Err(SessionConfigError::TooLong { what, limit: LONGEST });
            }
        }
        for (what, zero) in [
            ("the number of packets in a batch", self.batch.packets == 0),
            ("the number of unfinished messages", self.max_unfinished == 0),
            ("the stream window", self.stream_window.is_zero()),
            ("the receive window", self.receive_window_from.unwrap_or(self.receive_window).is_zero()),
            ("the send window", self.send_window.is_zero()),
        ] {
            if zero {
                return Err(SessionConfigError::Zero { what });
            }
        }
        Ok(())
    }

    /// Returns the engine's configuration. Each connection needs its own, because it makes the
    /// gates of its lanes.
    pub(crate) fn transport(&self, peer: IpAddr) -> Arc<TransportConfig> {
        let varint = |bytes: Bytes| VarInt::from_u64(bytes.get()).unwrap_or(VarInt::MAX);
        let local = peer.to_canonical().is_loopback();
        let mtu = if local { self.loopback_mtu.max(self.initial_mtu) } else { self.initial_mtu };
        let limit = |of: fn(&StreamsConfig) -> u32| {
            VarInt::from_u32(self.protocol.streams().map_or(self.max_streams, of))
        };
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_uni_streams(limit(|streams| streams.max_unidirectional))
            .max_concurrent_bidi_streams(limit(|streams| streams.max_bidirectional))
            .stream_receive_window(varint(self.stream_window))
            // The session takes them out of the engine at once, so the engine drops none uncounted.
            .datagram_receive_buffer_size(self.datagrams.map(|_| ENGINE_DATAGRAMS))
            .datagram_send_buffer_size(ENGINE_DATAGRAMS)
            .receive_window(varint(self.receive_window_from.unwrap_or(self.receive_window)))
            .send_window(self.send_window.get())
            // Without it, an interrupted stream is finished before any other, whatever its
            // priority.
            .send_fairness(true)
            .packet_threshold(self.packet_threshold)
            .time_threshold(self.time_threshold)
            .initial_rtt(self.initial_rtt)
            .initial_mtu(mtu)
            .min_mtu(if local { mtu } else { mtu.min(1200) })
            .mtu_discovery_config((self.mtu_discovery && !local).then(|| {
                let mut discovery = MtuDiscoveryConfig::default();
                discovery.upper_bound(self.mtu_limit.max(mtu));
                discovery
            }))
            .max_idle_timeout(self.idle_timeout.try_into().ok())
            // The session itself closes silent lanes.
            .default_path_max_idle_timeout(None)
            .default_path_keep_alive_interval(self.keep_alive)
            .allow_spin(self.spin)
            .congestion_controller_factory(Arc::new(GateFactory {
                congestion: self.congestion,
                initial_window: self.initial_window,
                engine_paces: false,
                trace_windows: self.trace_windows,
            }));
        if self.protocol.streams().is_none_or(|streams| streams.multipath) {
            transport.max_concurrent_multipath_paths(u32::from(self.max_lanes));
        }
        #[cfg(feature = "qlog")]
        if let Some(dir) = &self.qlog {
            transport.qlog_from_path(dir, "marcato");
        }
        Arc::new(transport)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_layers_keep_what_chose_among_all_lanes_for_the_high_ones() {
        let base = |config: &SessionConfig| match config.path_scheduler {
            PathScheduler::Layered(base, _) => PathScheduler::from(base),
            other => panic!("{other:?}"),
        };
        let cwr = CwrConfig::marcato();
        for scheduler in [
            PathScheduler::LowRtt,
            PathScheduler::RoundRobin,
            PathScheduler::Cwr(cwr),
            PathScheduler::CwrRed(cwr),
        ] {
            let config = SessionConfig { path_scheduler: scheduler, ..SessionConfig::default() }.layered();
            assert_eq!(base(&config), scheduler);
            assert_eq!(config.clone().layered().path_scheduler, config.path_scheduler);
            assert!(config.low_lanes.is_some() && config.validate().is_ok());
        }
        let selective = PathScheduler::Selective(Priority::P0);
        let config = SessionConfig { path_scheduler: selective, ..SessionConfig::default() }.layered();
        assert_eq!(base(&config), PathScheduler::LowRtt);
    }

    #[test]
    fn an_own_scheduler_replaces_the_built_in_one_in_both_layers() {
        use marcato_sched::schedule::{Choice, Fresh};
        use marcato_sched::{LaneId, LaneView, Purpose};
        use marcato_units::{Layer, Time};

        /// Takes the last lane that it may use, with room or without.
        struct Last;
        impl marcato_sched::schedule::LaneScheduler for Last {
            fn choose(&mut self, _: Time, lanes: &[LaneView], _: Purpose, _: Bytes) -> Choice {
                lanes
                    .iter()
                    .rev()
                    .find(|lane| lane.usable)
                    .map_or(Choice::Wait(marcato_sched::schedule::Wait::NoLane), |lane| Choice::One(lane.id))
            }
        }

        let id = |index| LaneId::new(index).unwrap();
        let high = |index| LaneView::new(id(index), Bytes::kb(10), Duration::from_millis(10));
        let lanes = [high(0), high(1), LaneView { layer: Layer::Low, ..high(2) }];
        let choose = |config: &SessionConfig| {
            let purpose = Purpose::New(Fresh::new(1, Priority::P2, Bytes::kb(1)));
            config.scheduler().unwrap().choose(Time::ZERO, &lanes, purpose, Bytes::kb(1))
        };
        let own_scheduler = Some(SchedulerFactory::new("last", |_| Box::new(Last)));
        let config = SessionConfig { path_scheduler: PathScheduler::LowRtt, ..SessionConfig::default() };
        assert_eq!(choose(&config), Choice::One(id(0)));
        let config = SessionConfig { own_scheduler, ..config };
        assert_eq!(choose(&config), Choice::One(id(2)));
        assert_eq!(choose(&config.layered()), Choice::One(id(1)));
    }

    #[test]
    fn a_low_lane_s_controller_is_checked_wherever_it_is_named() {
        let controller = marcato_sched::lowprio::LcmConfig { packet: Bytes::ZERO, ..Default::default() };
        let low_lanes = Some(LowLanes { controller, ..LowLanes::default() });
        let config = SessionConfig { low_lanes, ..SessionConfig::default() };
        assert!(matches!(config.validate(), Err(SessionConfigError::LowPriority(_))));
        let config =
            SessionConfig { congestion: Congestion::LowPriority(controller), ..SessionConfig::default() };
        assert!(matches!(config.validate(), Err(SessionConfigError::LowPriority(_))));
    }

    #[test]
    fn a_receiver_holds_what_its_peer_may_have_sent_behind_one_gap() {
        let config = SessionConfig::default();
        let InboxLimits { ahead, ahead_pieces_per_message, pieces, .. } = config.inbox;
        assert!(ahead >= config.send_window);
        let smallest = SessionConfig::payload(Bytes::new(1200));
        let behind = config.send_window.get() / smallest.get();
        assert!(ahead_pieces_per_message as u64 > behind && pieces as u64 > behind);
    }

    /// RFC 9002 §6.1.1, §6.1.2 and §6.2.2; RFC 9000 §14; and the documentation of the fields.
    #[test]
    fn the_defaults_are_those_that_the_documentation_names() {
        let config = SessionConfig::default();
        let ms = Duration::from_millis;
        assert_eq!((config.packet_threshold, config.initial_rtt), (3, ms(333)));
        assert!((config.time_threshold - 1.125).abs() < 1e-6);
        assert_eq!(
            (config.initial_mtu, config.mtu_discovery, config.mtu_limit, config.loopback_mtu),
            (1200, true, 1452, 4096)
        );
        assert_eq!((config.stall.rtts, config.stall.floor), (2500, ms(50)));
        assert_eq!((config.batch.packets, config.batch.span), (10, Duration::from_micros(200)));
        assert_eq!(Retry::default(), Retry { first: ms(1000), longest: ms(60_000) });
        assert_eq!((config.idle_timeout, config.lane_idle_timeout), (ms(30_000), Some(ms(10_000))));
        assert_eq!((config.keep_alive, config.max_lanes, config.reopen), (Some(ms(3000)), 8, None));
        assert_eq!(
            (config.pacing, config.growth, config.streams),
            (Pacing::Session, Growth::Acknowledged, StreamUse::PerMessage)
        );
        assert_eq!((config.coupled, config.queued_packets, config.datagrams), (Coupling::Off, 2, None));
        assert!(
            config.follow_peer_backup && config.spin && !config.trace_windows && config.low_lanes.is_none()
        );
    }

    #[expect(clippy::cast_possible_truncation, reason = "the values are small")]
    /// Each bound is that of its documentation or of a wire format: the last value that holds, and the first that does
    /// not.
    #[test]
    fn settings_are_refused_beyond_their_bounds_only() {
        type Change = fn(&mut SessionConfig, u64);
        let bounds: [(&str, Change, &[u64], &[u64]); 10] = [
            ("max_lanes", |config, value| config.max_lanes = value as u8, &[1, 16], &[0, 17]),
            (
                "initial_mtu",
                |config, value| config.initial_mtu = value as u16,
                &[1200, 65_527],
                &[1199, 65_528],
            ),
            (
                "loopback_mtu",
                |config, value| config.loopback_mtu = value as u16,
                &[1200, 4096],
                &[1199, 4097],
            ),
            ("mtu_limit", |config, value| config.mtu_limit = value as u16, &[1200, 1472], &[1473]),
            ("max_streams", |config, value| config.max_streams = value as u32, &[2, 4096], &[0, 1]),
            (
                "stream_window",
                |config, value| config.stream_window = Bytes::new(value),
                &[1, 2_000_000],
                &[0, 2_000_001],
            ),
            ("send_window", |config, value| config.send_window = Bytes::new(value), &[1], &[0]),
            ("max_unfinished", |config, value| config.max_unfinished = value as usize, &[1], &[0]),
            (
                "idle_timeout",
                |config, value| config.idle_timeout = Duration::from_secs(value),
                &[1, (1 << 30) - 1],
                &[1 << 30],
            ),
            (
                "receive_window_from",
                |config, value| config.receive_window_from = Some(Bytes::new(value)),
                &[1, 16 << 20],
                &[(16 << 20) + 1],
            ),
        ];
        for (name, change, good, bad) in bounds {
            for (values, valid) in [(good, true), (bad, false)] {
                for value in values {
                    let mut config = SessionConfig::default();
                    change(&mut config, *value);
                    assert_eq!(config.validate().is_ok(), valid, "{name} {value}");
                }
            }
        }
    }
}
