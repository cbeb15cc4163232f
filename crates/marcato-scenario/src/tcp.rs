//! Configuration of one end of a TCP connection.

use marcato_units::{Bytes, Duration, Layer, Priority};

use crate::plugin::Plugin;

/// Length of IPv4 and TCP headers without options.
const HEADERS: u64 = 40;

/// Configuration of one end of a TCP connection. The defaults are the simulator's, which follow a
/// current Linux host where that matters to a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// Congestion control.
    pub congestion: Congestion,
    /// Largest payload of a segment, in bytes.
    pub mss: u32,
    /// Initial window, in segments.
    pub initial_window: u32,
    /// Initial slow-start threshold, in segments; `None` for no threshold.
    pub initial_ssthresh: Option<u32>,
    /// Growth of the window of Reno, CUBIC and DCTCP per acknowledgement.
    pub growth: Growth,
    /// Capacity for bytes written by the application and not yet acknowledged.
    pub send_buffer: Bytes,
    /// Capacity for bytes received and not yet read by the application.
    pub receive_buffer: Bytes,
    /// Initial receive buffer, which then grows up to `receive_buffer`; `None` uses
    /// `receive_buffer` from the start.
    pub receive_buffer_from: Option<Bytes>,
    /// Unsent bytes below which the endpoint is writable; `None` makes it writable while the send
    /// buffer has room.
    pub notsent_lowat: Option<Bytes>,
    /// Timing of acknowledgements.
    pub delayed_ack: DelayedAck,
    /// Smallest retransmission timeout.
    pub min_rto: Duration,
    /// Largest retransmission timeout.
    pub max_rto: Duration,
    /// Retransmission timeout of the SYN, and of all segments until a round trip has been measured.
    pub initial_rto: Duration,
    /// Timestamps option (RFC 7323).
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018), if both ends enable them.
    pub sack: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Form of the option with a data segment's priority; `None` sends no option.
    pub priority_option: Option<PriorityOption>,
    /// Algorithm of loss detection.
    pub loss_detection: LossDetection,
    /// Paces segments where the congestion control sets no rate.
    pub pacing: bool,
    /// Largest burst, as from a network card that cuts segments; `None` sends each segment
    /// separately.
    pub segmentation_offload: Option<Bytes>,
    /// Returns to the initial window after the connection was idle for a retransmission timeout.
    pub slow_start_after_idle: bool,
    /// Second layer, which the network serves after the first (PLT); `None` for one layer. Both
    /// ends need it.
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
    /// Returns the length of a full segment's IPv4 packet.
    ///
    /// Its headers have 20 B (RFC 791), 20 B (RFC 9293), and the padded options of a data segment.
    pub fn packet(&self) -> Bytes {
        let options = self.timestamp_option() + self.priority_option.map_or(0, PriorityOption::len);
        Bytes::new(HEADERS + options.next_multiple_of(4) + u64::from(self.mss))
    }

    /// Returns the length of the longest IPv4 packet without payload.
    ///
    /// This is an acknowledgement with three SACK blocks (RFC 2018 §3), or with four ranges of low
    /// packets if there is a low layer. Without SACK and low layer it is a SYN, which has 20 bytes
    /// of options.
    pub fn acknowledgement(&self) -> Bytes {
        let ranges = match (self.low_layer, self.sack) {
            (Some(_), _) => 4,
            (None, true) => 3,
            (None, false) => return Bytes::new(HEADERS + 20),
        };
        Bytes::new(HEADERS + self.timestamp_option() + 4 + 8 * ranges)
    }

    /// Returns the length of the timestamps option after two no-operations. RFC 7323 appendix A.
    const fn timestamp_option(&self) -> u64 {
        if self.timestamps { 12 } else { 0 }
    }
}

/// Growth of a window per acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Growth by acknowledged bytes. In slow start, one acknowledgement counts for at most `limit`
    /// segments (RFC 3465).
    Bytes {
        /// Limit L of RFC 3465, in segments.
        limit: u32,
    },
    /// Growth by the number of acknowledgements (RFC 5681).
    Acknowledgements,
}

impl Default for Growth {
    /// Returns growth by bytes, with at most two segments per acknowledgement.
    fn default() -> Self {
        Self::Bytes { limit: 2 }
    }
}

/// Congestion control of a sender.
#[derive(Clone, Debug, PartialEq)]
pub enum Congestion {
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    Cubic {
        /// Leaves slow start when a queue begins to grow (HyStart).
        hystart: bool,
        /// Releases bandwidth to new flows (fast convergence, RFC 9438 §4.7).
        fast_convergence: bool,
    },
    /// DCTCP (RFC 8257). It needs ECN.
    Dctcp,
    /// BBR version 1.
    Bbr,
    /// Congestion control of another crate.
    Plugin(Plugin),
}

impl Congestion {
    /// CUBIC as in Linux.
    pub const CUBIC: Self = Self::Cubic { hystart: true, fast_convergence: true };

    /// Returns the name used in a file.
    pub fn name(&self) -> &str {
        match self {
            Self::Reno => "reno",
            Self::Cubic { .. } => "cubic",
            Self::Dctcp => "dctcp",
            Self::Bbr => "bbr",
            Self::Plugin(plugin) => &plugin.name,
        }
    }
}

/// Timing of a receiver's acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedAck {
    /// Number of data segments after which an acknowledgement is due; 1 acknowledges every segment.
    pub every: u32,
    /// Time after which an acknowledgement is due.
    pub timeout: Duration,
    /// Acknowledges the first data segment of the connection at once.
    pub first_at_once: bool,
    /// Acknowledges P0 and P1 segments at once (CATS §II-D2).
    pub urgent_at_once: bool,
}

impl Default for DelayedAck {
    fn default() -> Self {
        Self { every: 2, timeout: Duration::from_millis(40), first_at_once: true, urgent_at_once: false }
    }
}

/// Form of the option that carries a segment's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityOption {
    /// Kind 254 with an experiment identifier, 5 bytes (RFC 6994).
    Rfc6994,
    /// Kind 254, 3 bytes (CATS §II-D2).
    Short,
    /// Kind 253, 4 bytes, as sent by the authors' program.
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

/// Algorithm that detects losses before the retransmission timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossDetection {
    /// Detection by time, with tail loss probes (RFC 8985).
    Rack,
    /// Detection by three segments above the gap (RFC 6675).
    DupThresh,
}

/// Low layer of a connection, which sends at low priority what the high layer cannot send (PLT §3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowLayer {
    /// Loss rate below which the window grows; `None` determines it at run time.
    pub target: Option<f64>,
    /// Interval between changes of the window; `None` for a round trip.
    pub epoch: Option<Duration>,
    /// Initial window, in full packets.
    pub initial_window: u32,
    /// Largest window, in full packets.
    pub most_window: u32,
    /// Smallest timeout.
    pub min_rto: Duration,
    /// Smallest timeout until the first low packet has been acknowledged; applies if it exceeds
    /// `min_rto`.
    pub first_rto: Duration,
    /// Number of low retransmissions of a packet before the high layer retransmits it.
    pub retransmissions: u8,
    /// Layer of the acknowledgements of low packets.
    pub ack_layer: Layer,
    /// Number of low packets after which an acknowledgement is due.
    pub ack_every: u32,
    /// Least urgent level of new data that may use the high layer; `None` for all levels.
    pub high_for: Option<Priority>,
}

impl LowLayer {
    /// Parameters of PLT §4.1, whose windows are for 250 Mbit/s and 80 ms in packets of 1000 bytes.
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

    /// Parameters for unknown paths.
    ///
    /// An epoch is a round trip, and the loss target is determined at run time. The first packets
    /// have a long timeout, as they may have to wait.
    pub const MARCATO: Self = Self {
        target: None,
        epoch: None,
        initial_window: 100,
        most_window: 1_000_000,
        first_rto: Duration::from_secs(1),
        ..Self::PAPER
    };
}
