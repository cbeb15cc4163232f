//! Prioritised messages over multipath QUIC.

use marcato_units::{Bytes, Duration, Layer, Priority};

use crate::traffic::{Bulk, Message, Preset, Source};

/// Prioritised messages over multipath QUIC: one session. The client opens it and sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Quic {
    /// Its paths, each of which becomes a lane: the session begins on the first.
    pub paths: Vec<Path>,
    /// Which lane scheduler it uses.
    pub scheduler: Scheduler,
    /// Whether paths of the low layer carry only what those of the high one have no room for (PLT).
    pub layered: bool,
    /// The congestion control of each lane.
    pub controller: Controller,
    /// Where each lane's window begins; `None`: the controller's own choice.
    pub initial_window: Option<Bytes>,
    /// The rules of debt.
    pub preset: Preset,
    /// The largest chunk that the Conductor grants.
    pub chunk: Bytes,
    /// Messages that are sent once, in order of time.
    pub messages: Vec<Message>,
    /// Periodic sources.
    pub sources: Vec<Source>,
    /// Data that fills whatever room there is.
    pub bulk: Vec<Bulk>,
    /// Who spreads packets over a round trip.
    pub pacing: Pacing,
    /// How reserved windows grow.
    pub growth: Growth,
    /// Which streams carry messages.
    pub streams: StreamUse,
    /// How many packets are handed to the engine at once.
    pub batch: u32,
    /// The UDP payload that the session begins with.
    pub initial_mtu: Bytes,
    /// Whether it looks for a larger one.
    pub mtu_discovery: bool,
    /// After how many later packets one is believed lost.
    pub packet_threshold: u32,
    /// After how much of a round trip one is believed lost.
    pub time_threshold: f64,
    /// What a round trip is believed to take before one was measured.
    pub initial_rtt: Duration,
}

/// A path of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The node at the client's end, by name.
    pub from: String,
    /// The node at the server's end, by name.
    pub to: String,
    /// The class in which the network serves it.
    pub layer: Layer,
}

/// Chooses lanes for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// The fastest lane with room.
    LowRtt,
    /// One lane after the other.
    RoundRobin,
    /// Congestion window reservation.
    Cwr(Reserving),
    /// Congestion window reservation with redundancy.
    CwrRed(Reserving),
    /// Redundancy that ignores the window, for data of this level and above: for comparison only.
    Selective(Priority),
}

impl Scheduler {
    /// Its name, as a file has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LowRtt => "low-rtt",
            Self::RoundRobin => "round-robin",
            Self::Cwr(_) => "cwr",
            Self::CwrRed(_) => "cwr-red",
            Self::Selective(_) => "selective",
        }
    }
}

/// How congestion window reservation is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserving {
    /// Data of this level and above is urgent: it may use what is reserved.
    pub threshold: Priority,
    /// The part of each window, in thousandths, that reservations leave to background data.
    pub background_share: u32,
    /// Whether periods are learned from sources that are named but not declared.
    pub learn: bool,
    /// How much may be sent twice; `None`: without bound.
    pub budget: Option<Budget>,
}

impl Reserving {
    /// As the paper has it.
    pub const PAPER: Self = Self { threshold: Priority::P0, background_share: 0, learn: false, budget: None };
    /// For use: at most half of a window is reserved, sources are learned, and copies have a budget.
    pub const MARCATO: Self =
        Self { threshold: Priority::P0, background_share: 500, learn: true, budget: Some(Budget::DEFAULT) };
}

/// How much may be sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// So many bytes in any case.
    pub allowance: Bytes,
    /// And this part of what is sent for the first time, in thousandths.
    pub share: u32,
}

impl Budget {
    /// 100 kB and a tenth.
    pub const DEFAULT: Self = Self { allowance: Bytes::kb(100), share: 100 };
}

/// The congestion control of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Controller {
    /// NewReno (RFC 9002 §7).
    NewReno {
        /// What is left of the window after a loss.
        loss_reduction: f64,
    },
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, version 3. It needs pacing.
    Bbr3,
}

impl Controller {
    /// Its name, as a file has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewReno { .. } => "new-reno",
            Self::Cubic => "cubic",
            Self::Bbr3 => "bbr3",
        }
    }
}

/// Who spreads packets over a round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Nobody.
    Off,
    /// The session, all but data of the most urgent level.
    #[default]
    Session,
    /// The session, data of every level.
    Strict,
}

/// How the window of a lane grows while a part of it has to stay empty for a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// By what is acknowledged.
    #[default]
    Acknowledged,
    /// As if what is acknowledged had filled the reserved part, too.
    Credited,
}

/// Which streams carry messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamUse {
    /// A new stream for each copy of each message.
    #[default]
    PerMessage,
    /// A stream again, once the receiver has acknowledged its message on it (CWR §III-B).
    Reuse,
}
