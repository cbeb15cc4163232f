//! How an end of a TCP connection behaves.

use marcato_units::{Bytes, Duration, Layer, Priority};

/// The headers of IPv4 and TCP without options.
const HEADERS: u64 = 40;

/// How one end of a TCP connection behaves. The defaults are the simulator's: those of a Linux host of today where they
/// matter to a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// Congestion control.
    pub congestion: Congestion,
    /// Most payload in a segment, in bytes.
    pub mss: u32,
    /// Initial window, in segments.
    pub initial_window: u32,
    /// Initial slow start threshold, in segments; `None`: as high as can be.
    pub initial_ssthresh: Option<u32>,
    /// How acknowledgements make the window of Reno, CUBIC and DCTCP grow.
    pub growth: Growth,
    /// Bytes written and not yet acknowledged that the endpoint holds for the application.
    pub send_buffer: Bytes,
    /// Bytes that the receiver holds for its application.
    pub receive_buffer: Bytes,
    /// Begin with a receive buffer of this size and let it grow up to `receive_buffer`; `None`: it is as large as it may be
    /// from the start.
    pub receive_buffer_from: Option<Bytes>,
    /// Call the endpoint writable while fewer bytes than this are unsent; `None`: while the send buffer has room.
    pub notsent_lowat: Option<Bytes>,
    /// When data is acknowledged.
    pub delayed_ack: DelayedAck,
    /// Least retransmission timeout.
    pub min_rto: Duration,
    /// Greatest retransmission timeout.
    pub max_rto: Duration,
    /// Retransmission timeout of the SYN and until a round trip has been measured.
    pub initial_rto: Duration,
    /// Timestamps option (RFC 7323).
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018), if both ends have them.
    pub sack: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// The form in which data segments carry their priority; `None`: not at all.
    pub priority_option: Option<PriorityOption>,
    /// How losses are detected.
    pub loss_detection: LossDetection,
    /// Space segments out where the congestion control has no rate of its own.
    pub pacing: bool,
    /// Send in bursts of up to so much, as where the network card cuts segments; `None`: each segment on its own.
    pub segmentation_offload: Option<Bytes>,
    /// Fall back to the initial window after an idle retransmission timeout.
    pub slow_start_after_idle: bool,
    /// A second layer, which the network serves after this one (PLT); `None`: there is one layer. Both ends need it.
    pub low_layer: Option<LowLayer>,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            congestion: Congestion::CUBIC,
            mss: 1448,
            initial_window: 10,
            initial_ssthresh: None,
            growth: Growth::default(),
            send_buffer: Bytes::new(4 << 20),
            receive_buffer: Bytes::new(6 << 20),
            receive_buffer_from: None,
            notsent_lowat: None,
            delayed_ack: DelayedAck::default(),
            min_rto: Duration::from_millis(200),
            max_rto: Duration::from_secs(60),
            initial_rto: Duration::from_secs(1),
            timestamps: true,
            sack: true,
            ecn: false,
            priority_option: None,
            loss_detection: LossDetection::Rack,
            pacing: false,
            segmentation_offload: None,
            slow_start_after_idle: true,
            low_layer: None,
        }
    }
}

impl Tcp {
    /// Bytes of a full segment's IPv4 packet. RFC 791: 20, RFC 9293: 20, and the options of a data segment, padded.
    pub fn packet(&self) -> Bytes {
        let options = self.timestamp_option() + self.priority_option.map_or(0, PriorityOption::len);
        Bytes::new(HEADERS + options.next_multiple_of(4) + u64::from(self.mss))
    }

    /// Bytes of the longest IPv4 packet without payload: an acknowledgement with three SACK blocks (RFC 2018 §3), or, with
    /// a low layer, one of four ranges of low packets; without either a SYN, which has 20 bytes of options.
    pub fn acknowledgement(&self) -> Bytes {
        let ranges = match (self.low_layer, self.sack) {
            (Some(_), _) => 4,
            (None, true) => 3,
            (None, false) => return Bytes::new(HEADERS + 20),
        };
        Bytes::new(HEADERS + self.timestamp_option() + 4 + 8 * ranges)
    }

    /// Bytes of the timestamps option behind two no-operations. RFC 7323 appendix A.
    const fn timestamp_option(&self) -> u64 {
        if self.timestamps { 12 } else { 0 }
    }
}

/// How acknowledgements make a window grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// By the bytes that they acknowledge; in slow start one acknowledgement counts for so many segments at most (RFC 3465).
    Bytes {
        /// So many: L.
        limit: u32,
    },
    /// By their number (RFC 5681).
    Acknowledgements,
}

impl Default for Growth {
    /// By bytes, two segments an acknowledgement at most.
    fn default() -> Self {
        Self::Bytes { limit: 2 }
    }
}

/// Which congestion control a sender runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    Cubic {
        /// Leave slow start when a queue begins to grow.
        hystart: bool,
        /// Make room for newcomers (RFC 9438 §4.7).
        fast_convergence: bool,
    },
    /// DCTCP (RFC 8257). It needs ECN.
    Dctcp,
    /// BBR version 1.
    Bbr,
}

impl Congestion {
    /// CUBIC as Linux runs it.
    pub const CUBIC: Self = Self::Cubic { hystart: true, fast_convergence: true };

    /// Its name, as a file has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic { .. } => "cubic",
            Self::Dctcp => "dctcp",
            Self::Bbr => "bbr",
        }
    }
}

/// When a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedAck {
    /// Acknowledge every so many data segments at the latest; 1 is every one.
    pub every: u32,
    /// Acknowledge after this long at the latest.
    pub timeout: Duration,
    /// Acknowledge the first data segment of the connection at once.
    pub first_at_once: bool,
    /// Acknowledge P0 and P1 segments at once (CATS §II-D2).
    pub urgent_at_once: bool,
}

impl Default for DelayedAck {
    fn default() -> Self {
        Self { every: 2, timeout: Duration::from_millis(40), first_at_once: true, urgent_at_once: false }
    }
}

/// The form of the option that carries a segment's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityOption {
    /// Kind 254 with an experiment identifier, 5 bytes (RFC 6994).
    Rfc6994,
    /// Kind 254, 3 bytes (CATS §II-D2).
    Short,
    /// Kind 253, 4 bytes, as the authors' program sends it.
    Authors,
}

impl PriorityOption {
    const fn len(self) -> u64 {
        match self {
            Self::Rfc6994 => 5,
            Self::Short => 3,
            Self::Authors => 4,
        }
    }
}

/// How a sender finds out what was lost before its retransmission timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossDetection {
    /// By time, with probes of the tail (RFC 8985).
    Rack,
    /// By three segments above (RFC 6675).
    DupThresh,
}

/// The low layer of a connection: what cannot be sent otherwise is sent at low priority (PLT §3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowLayer {
    /// The rate of loss below which its window grows; `None`: it is found at run time.
    pub target: Option<f64>,
    /// After how long its window may change; `None`: a round trip.
    pub epoch: Option<Duration>,
    /// Its initial window, in full packets.
    pub initial_window: u32,
    /// The most that its window may be, in full packets.
    pub most_window: u32,
    /// Its least timeout.
    pub min_rto: Duration,
    /// The same until the first of its packets has been acknowledged, if that is more.
    pub first_rto: Duration,
    /// How often it sends a lost packet again before the high layer does.
    pub retransmissions: u8,
    /// The layer of the acknowledgements of its packets.
    pub ack_layer: Layer,
    /// Acknowledge every so many of its packets at the latest.
    pub ack_every: u32,
    /// New data that is less urgent than this goes low only; `None`: the high layer takes all.
    pub high_for: Option<Priority>,
}

impl LowLayer {
    /// As in PLT §4.1, whose windows are those of 250 Mbit/s and 80 ms in packets of 1000 bytes.
    pub const PAPER: Self = Self {
        target: Some(0.005),
        epoch: Some(Duration::from_millis(100)),
        initial_window: 2500,
        most_window: 7500,
        min_rto: Duration::from_millis(200),
        first_rto: Duration::ZERO,
        retransmissions: 0,
        ack_layer: Layer::Low,
        ack_every: 1,
        high_for: None,
    };

    /// For paths of which nothing is known: epochs of a round trip, a target that is found at run time, and patience with
    /// the first packets, which may have to wait.
    pub const MARCATO: Self = Self {
        target: None,
        epoch: None,
        initial_window: 100,
        most_window: 1_000_000,
        first_rto: Duration::from_secs(1),
        ..Self::PAPER
    };
}
