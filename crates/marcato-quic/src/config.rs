//! How a session is set up.

use std::sync::Arc;

use marcato_sched::conductor::Config as ConductorConfig;
use marcato_sched::lane::MAX_LANES;
use marcato_sched::lowprio::{Lcm, LcmConfigError};
use marcato_sched::reserve::Framing;
use marcato_sched::schedule::{
    Cwr, CwrConfig, CwrConfigError, CwrRed, Layered, LayeredConfig, LowRtt, RoundRobin, Selective,
};
use marcato_units::{Bytes, Duration, Priority};
use noq_proto::{MtuDiscoveryConfig, TransportConfig, VarInt};

use crate::controller::Congestion;
use crate::gate::GateFactory;
use crate::inbox::InboxLimits;
use crate::low::LowLanes;
use crate::scheduler::Scheduler;

/// What a full packet holds back from stream data: its header with an 8-byte connection ID, the frame's own header, the
/// AEAD's tag, and room for an acknowledgement that the engine may add. With 70 bytes or more, no chunk was ever seen
/// to spill into a second packet.
pub(crate) const HEADROOM: Bytes = Bytes::new(80);

/// What it holds back while the engine has something to send again: too little for the engine to fill with a sliver of
/// that (it begins a frame where more than 25 bytes are left, and headers take 30 or more), yet room for most
/// acknowledgements. Slivers that are lost in turn go again many to a packet, and of two dozen small frames of one stream
/// in one packet the engine forgets some: out of order, it takes the count of the bytes read for an offset, and drops
/// what lies before it when it tidies up.
pub(crate) const TIGHT: Bytes = Bytes::new(52);

/// What a full packet counts against the congestion window beyond the stream bytes that it carries.
pub(crate) const OVERHEAD: Bytes = Bytes::new(44);

/// What the engine may hold of DATAGRAM frames: more than one packet can bring, however small they are.
const ENGINE_DATAGRAMS: usize = 4 << 20;

/// Which lane scheduler a session uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathScheduler {
    /// The fastest lane with room.
    LowRtt,
    /// One lane after the other.
    RoundRobin,
    /// Congestion window reservation. Its framing is set by the session.
    Cwr(CwrConfig),
    /// Congestion window reservation with redundancy. Its framing is set by the session.
    CwrRed(CwrConfig),
    /// Redundancy that ignores the window: for comparison only.
    Selective(Priority),
    /// Low lanes take what high ones have no room for; among those, another chooses.
    Layered(BaseScheduler, LayeredConfig),
}

/// What chooses among the high lanes of [`PathScheduler::Layered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseScheduler {
    /// The fastest lane with room.
    LowRtt,
    /// One lane after the other.
    RoundRobin,
    /// Congestion window reservation. Its framing is set by the session.
    Cwr(CwrConfig),
    /// Congestion window reservation with redundancy. Its framing is set by the session.
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
    pub(crate) fn build(self, framing: Framing) -> Result<Scheduler, CwrConfigError> {
        let framed = |config: CwrConfig| CwrConfig { framing, ..config };
        Ok(match self {
            Self::LowRtt => Scheduler::LowRtt(LowRtt::new()),
            Self::RoundRobin => Scheduler::RoundRobin(RoundRobin::new()),
            Self::Cwr(config) => Scheduler::Cwr(Box::new(Cwr::new(framed(config))?)),
            Self::CwrRed(config) => Scheduler::CwrRed(Box::new(CwrRed::new(framed(config))?)),
            Self::Selective(threshold) => Scheduler::Selective(Box::new(Selective::new(threshold))),
            Self::Layered(base, config) => {
                let base = Self::from(base).build(framing)?;
                Scheduler::Layered(Box::new(Layered::new(base, config)))
            }
        })
    }
}

/// Who spreads packets over a round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Nobody: what the window allows leaves at once. BBR must not be run so: without pacing it was seen to double the
    /// round-trip time.
    Off,
    /// The session, all but data of the most urgent level, which leaves at once if the window allows.
    #[default]
    Session,
    /// The session, data of every level.
    Strict,
}

/// How the window of a lane grows while a part of it has to stay empty for a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// By what is acknowledged, as the controllers have it. A lane that reserves grows more slowly (CWR, Table I).
    #[default]
    Acknowledged,
    /// As if what is acknowledged had filled the part that background data was kept from, too. A window that is
    /// under-used only because it is reserved then grows as fast as a full one.
    Credited,
}

/// Which streams carry messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamUse {
    /// A new unidirectional stream for each copy of each message.
    #[default]
    PerMessage,
    /// A bidirectional stream again, once the receiver has acknowledged its message on it (CWR §III-B).
    Reuse,
}

/// When a lane that stays silent is believed dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// After so many smoothed round-trip times without an acknowledgement, in thousandths, with data in flight ...
    pub rtts: u32,
    /// ... but not before one round-trip time and this: acknowledgements may be delayed.
    pub floor: Duration,
}

impl Default for Stall {
    /// 2.5 round-trip times, at least one and 50 ms: twice the acknowledgement delay that QUIC allows by default.
    fn default() -> Self {
        Self { rtts: 2500, floor: Duration::from_millis(50) }
    }
}

/// How many packets are handed to the engine at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// At most so many, all of one message and on one lane.
    pub packets: usize,
    /// At most what the lane sends in this time, so that something more urgent waits no longer than that. Data of the
    /// most urgent level is not held to it: nothing can be more urgent.
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

/// How a session behaves. The [default](Self::default) is for use; what the reproduction of CWR changes stands with it.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Whose bytes leave next.
    pub conductor: ConductorConfig,
    /// On which lanes.
    pub path_scheduler: PathScheduler,
    /// The controller of a lane that asks for none of its own.
    pub congestion: Congestion,
    /// Where its window begins; `None` for the controller's own choice.
    pub initial_window: Option<Bytes>,
    /// Who paces.
    pub pacing: Pacing,
    /// How reserved windows grow.
    pub growth: Growth,
    /// Which streams carry messages.
    pub streams: StreamUse,
    /// How many packets at once.
    pub batch: Batch,
    /// When a lane is believed dead.
    pub stall: Stall,
    /// Whether the peer's wish to have a lane used only while no other can be is followed, and not only reported. Both
    /// ends also express it for a lane that does not answer.
    pub heed_backup: bool,
    /// UDP payload of a full packet until more is known to pass: 1200 to 65 527 bytes.
    pub initial_mtu: u16,
    /// Whether larger packets are probed for.
    pub mtu_discovery: bool,
    /// After how many later packets one is declared lost (RFC 9002 §6.1.1). `u32::MAX` leaves it to time alone.
    pub packet_threshold: u32,
    /// After how many round-trip times a packet older than an acknowledged one is declared lost (RFC 9002 §6.1.2).
    pub time_threshold: f32,
    /// What a round trip is believed to take before one was measured.
    pub initial_rtt: Duration,
    /// The most lanes, 1 to 16.
    pub max_lanes: u8,
    /// After how long without any packet the connection is given up.
    pub idle_timeout: Duration,
    /// After how long without an acknowledgement of what was sent on it one lane is given up, if there is another;
    /// `None` for never.
    pub lane_idle_timeout: Option<Duration>,
    /// How often a quiet lane is kept alive; `None` for never.
    pub keep_alive: Option<Duration>,
    /// Whether observers on the path may see the round-trip time (RFC 9000 §17.4). One in eight connections does not
    /// show it all the same, and with more than one active path what it shows is noise.
    pub spin: bool,
    /// Bounds on what the peer can make us keep.
    pub inbox: InboxLimits,
    /// Streams that the peer may have open, of each kind: at least 2.
    pub max_streams: u32,
    /// What the peer may send on one stream before we have read it. Above 2 MB, an engine that is read too late
    /// closes the connection.
    pub stream_window: Bytes,
    /// What the peer may send on all streams before we have read it.
    pub receive_window: Bytes,
    /// Begin with a receive window of this size and let it grow with what the peer sends in a round trip, up to
    /// `receive_window`. `None`: it is as large as it may be from the start.
    pub receive_window_from: Option<Bytes>,
    /// What we may have sent and not seen acknowledged, on all streams.
    pub send_window: Bytes,
    /// Messages that wait, or that have left and whose end has not been acknowledged. P0 may exceed it by an eighth.
    pub max_unfinished: usize,
    /// Bytes of unreliable messages that have come and were not taken, each counted with 64 more; beyond them the oldest
    /// are dropped. `None` if there are to be none, either way: the peer is told so.
    pub datagrams: Option<Bytes>,
    /// A directory into which each session writes a file of what it does, in the format of qlog
    /// (draft-ietf-quic-qlog-main-schema). It costs much: for looking into things.
    #[cfg(feature = "qlog")]
    pub qlog: Option<std::path::PathBuf>,
    /// Whether each change of a window is reported as an event, for those who study them.
    pub trace_windows: bool,
    /// What is particular to lanes of the low layer. `None` if they are lanes like all others, which is for networks
    /// of which something else is known.
    pub low_lanes: Option<LowLanes>,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            conductor: ConductorConfig::default(),
            path_scheduler: PathScheduler::Cwr(CwrConfig::marcato()),
            congestion: Congestion::default(),
            initial_window: None,
            pacing: Pacing::default(),
            growth: Growth::default(),
            streams: StreamUse::default(),
            batch: Batch::default(),
            stall: Stall::default(),
            heed_backup: true,
            initial_mtu: 1200,
            mtu_discovery: true,
            packet_threshold: 3,
            time_threshold: 9.0 / 8.0,
            initial_rtt: Duration::from_millis(333),
            max_lanes: 8,
            idle_timeout: Duration::from_secs(30),
            lane_idle_timeout: Some(Duration::from_secs(10)),
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
        }
    }
}

/// Why a session cannot be set up so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionConfigError {
    /// The Conductor's rules.
    #[error("the conductor cannot be configured so: {0}")]
    Conductor(#[from] marcato_sched::conductor::DebtError),
    /// The lane scheduler's.
    #[error("the lane scheduler cannot be configured so: {0}")]
    PathScheduler(#[from] CwrConfigError),
    /// No lane, or more than there are names for.
    #[error("a session has 1 to {MAX_LANES} lanes, not {asked}")]
    Lanes {
        /// What was asked for.
        asked: u8,
    },
    /// The controller of low lanes.
    #[error("the low layer's controller cannot be configured so: {0}")]
    LowPriority(#[from] LcmConfigError),
    /// Smaller than every QUIC packet may be, or larger than UDP's.
    #[error("an initial mtu of {asked} bytes is not between 1200 and 65527")]
    Mtu {
        /// What was asked for.
        asked: u16,
    },
    /// The control stream takes one for ever.
    #[error("with {asked} streams of each kind, a control stream leaves none for messages: allow at least 2")]
    Streams {
        /// What was asked for.
        asked: u32,
    },
    /// A window that the engine cannot survive.
    #[error("a stream window of {asked} lets the engine's assembler fail: give at most 2 MB")]
    StreamWindow {
        /// What was asked for.
        asked: Bytes,
    },
    /// The receive window would have to shrink.
    #[error("a receive window that begins with {from} may not end with {most}: raise receive_window")]
    ReceiveWindow {
        /// What it was to begin with.
        from: Bytes,
        /// And what it may be.
        most: Bytes,
    },
    /// Chunks would not fit the watermarks.
    #[error("{what} is too long for the wire: give less than {limit:?}")]
    TooLong {
        /// Which setting.
        what: &'static str,
        /// What it must stay below.
        limit: Duration,
    },
    /// Zero of something of which at least one is needed.
    #[error("{what} must not be zero")]
    Zero {
        /// Which setting.
        what: &'static str,
    },
}

/// No timeout is longer.
const LONGEST: Duration = Duration::from_secs(1 << 30);

impl SessionConfig {
    /// The same, with low lanes for what high ones have no room for: PLT. Among the high ones, what chose among all
    /// chooses now.
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

    /// The same while the engine has something to send again.
    pub(crate) fn tight_payload(mtu: Bytes) -> Bytes {
        mtu - TIGHT
    }

    /// What messages count against windows.
    pub(crate) fn framing(&self) -> Framing {
        let payload = Self::payload(Bytes::from(u32::from(self.initial_mtu)));
        Framing::new(payload, OVERHEAD).unwrap_or(Framing::NONE)
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
        if !(1200..=65_527).contains(&self.initial_mtu) {
            return Err(SessionConfigError::Mtu { asked: self.initial_mtu });
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

    /// The engine's own configuration. Each connection needs its own: the gates of its lanes are made by it.
    pub(crate) fn transport(&self) -> Arc<TransportConfig> {
        let varint = |bytes: Bytes| VarInt::from_u64(bytes.get()).unwrap_or(VarInt::MAX);
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_uni_streams(VarInt::from_u32(self.max_streams))
            .max_concurrent_bidi_streams(VarInt::from_u32(self.max_streams))
            .stream_receive_window(varint(self.stream_window))
            // They are taken out of the engine as they come, so that it drops none uncounted.
            .datagram_receive_buffer_size(self.datagrams.map(|_| ENGINE_DATAGRAMS))
            .datagram_send_buffer_size(ENGINE_DATAGRAMS)
            .receive_window(varint(self.receive_window_from.unwrap_or(self.receive_window)))
            .send_window(self.send_window.get())
            // Without it, an interrupted stream is finished before any other, whatever its priority.
            .send_fairness(true)
            .packet_threshold(self.packet_threshold)
            .time_threshold(self.time_threshold)
            .initial_rtt(self.initial_rtt)
            .initial_mtu(self.initial_mtu)
            .min_mtu(self.initial_mtu.min(1200))
            .mtu_discovery_config(self.mtu_discovery.then(MtuDiscoveryConfig::default))
            .max_idle_timeout(self.idle_timeout.try_into().ok())
            // The session gives up silent lanes by itself.
            .default_path_max_idle_timeout(None)
            .default_path_keep_alive_interval(self.keep_alive)
            .allow_spin(self.spin)
            .max_concurrent_multipath_paths(u32::from(self.max_lanes))
            .congestion_controller_factory(Arc::new(GateFactory {
                congestion: self.congestion,
                initial_window: self.initial_window,
                engine_paces: false,
                trace_windows: self.trace_windows,
            }));
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
}
