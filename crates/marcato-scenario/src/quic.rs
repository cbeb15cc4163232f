//! Prioritised messages over multipath QUIC.

use marcato_units::{Bytes, Duration, Layer, Priority};

use crate::plugin::Plugin;
use crate::traffic::{Bulk, Message, Preset, Source};

/// Session of prioritised messages over multipath QUIC. The client opens it and sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Quic {
    /// Paths, each of which becomes a lane. The session begins on the first.
    pub paths: Vec<Path>,
    /// Lane scheduler.
    pub scheduler: Scheduler,
    /// Restricts low-layer paths to what high-layer paths have no room for (PLT).
    pub layered: bool,
    /// Congestion controller of each lane.
    pub controller: Controller,
    /// Initial window of each lane; `None` leaves the controller's default.
    pub initial_window: Option<Bytes>,
    /// Rules of debt.
    pub preset: Preset,
    /// Largest chunk that the Conductor grants.
    pub chunk: Bytes,
    /// Messages that are sent once, in order of time.
    pub messages: Vec<Message>,
    /// Periodic sources.
    pub sources: Vec<Source>,
    /// Bulk data, which fills all remaining room.
    pub bulk: Vec<Bulk>,
    /// Component that paces packets.
    pub pacing: Pacing,
    /// Growth of windows with a reserved part.
    pub growth: Growth,
    /// Streams that carry messages.
    pub streams: StreamUse,
    /// Number of packets handed to the engine at once.
    pub batch: u32,
    /// Initial UDP payload size.
    pub initial_mtu: Bytes,
    /// Enables path MTU discovery.
    pub mtu_discovery: bool,
    /// Packet threshold of loss detection: number of later packets after which one is declared
    /// lost.
    pub packet_threshold: u32,
    /// Time threshold of loss detection, in round-trip times.
    pub time_threshold: f64,
    /// Round-trip time assumed before the first measurement.
    pub initial_rtt: Duration,
}

/// Path of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Name of the node at the client's end.
    pub from: String,
    /// Name of the node at the server's end.
    pub to: String,
    /// Class in which the network serves the path.
    pub layer: Layer,
}

/// Lane scheduler: chooses lanes for packets.
#[derive(Clone, Debug, PartialEq)]
pub enum Scheduler {
    /// Lane of lowest round-trip time with room.
    LowRtt,
    /// Lanes in turn.
    RoundRobin,
    /// Congestion window reservation.
    Cwr(Reserving),
    /// Congestion window reservation with redundancy.
    CwrRed(Reserving),
    /// Redundancy that ignores the window, for data of this level and above; for comparison only.
    Selective(Priority),
    /// Scheduler of another crate.
    Plugin(Plugin),
}

impl Scheduler {
    /// Returns the name used in a file.
    pub fn name(&self) -> &str {
        match self {
            Self::LowRtt => "low-rtt",
            Self::RoundRobin => "round-robin",
            Self::Cwr(_) => "cwr",
            Self::CwrRed(_) => "cwr-red",
            Self::Selective(_) => "selective",
            Self::Plugin(plugin) => &plugin.name,
        }
    }
}

/// Parameters of congestion window reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserving {
    /// Least urgent level that may use the reserved window.
    pub threshold: Priority,
    /// Part of each window, in thousandths, that reservations leave to background data.
    pub background_share: u32,
    /// Learns the periods of sources that are named but not declared.
    pub learn: bool,
    /// Limit on duplicate bytes; `None` for no limit.
    pub budget: Option<Budget>,
}

impl Reserving {
    /// Parameters of the paper.
    pub const PAPER: Self = Self { threshold: Priority::P0, background_share: 0, learn: false, budget: None };
    /// Parameters for use: at most half of a window is reserved, sources are learned, and
    /// duplicates have a budget.
    pub const MARCATO: Self =
        Self { threshold: Priority::P0, background_share: 500, learn: true, budget: Some(Budget::DEFAULT) };
}

/// Limit on duplicate bytes: a fixed allowance plus a share of first transmissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes allowed in any case.
    pub allowance: Bytes,
    /// Further bytes allowed, in thousandths of the bytes sent for the first time.
    pub share: u32,
}

impl Budget {
    /// 100 kB plus a tenth of first transmissions.
    pub const DEFAULT: Self = Self { allowance: Bytes::kb(100), share: 100 };
}

/// Congestion controller of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Controller {
    /// NewReno (RFC 9002 §7).
    NewReno {
        /// Factor applied to the window after a loss.
        loss_reduction: f64,
    },
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, version 3. It needs pacing.
    Bbr3,
}

impl Controller {
    /// Returns the name used in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewReno { .. } => "new-reno",
            Self::Cubic => "cubic",
            Self::Bbr3 => "bbr3",
        }
    }
}

/// Component that spreads packets over a round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// No pacing.
    Off,
    /// Pacing by the session, except for data of the most urgent level.
    #[default]
    Session,
    /// Pacing by the session, for data of every level.
    Strict,
}

/// Growth of a lane's window while a part of it must stay empty for a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// Growth by acknowledged bytes.
    #[default]
    Acknowledged,
    /// Growth as if the acknowledged bytes had filled the reserved part as well.
    Credited,
}

/// Streams that carry messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamUse {
    /// New stream for each copy of each message.
    #[default]
    PerMessage,
    /// Stream reused once the receiver has acknowledged its message (CWR §III-B).
    Reuse,
}
