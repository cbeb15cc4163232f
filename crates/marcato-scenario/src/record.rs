//! What is written down during a run.

use marcato_units::{Bytes, Duration};

/// What is written down during a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// How often series are sampled.
    pub every: Duration,
    /// Which series.
    pub series: Vec<Series>,
    /// What is captured of packets.
    pub pcap: Pcap,
}

/// What is captured of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcap {
    /// The links whose packets are captured, by name.
    pub links: Vec<String>,
    /// How much of each packet is kept, headers included; `None`: all of it.
    pub snaplen: Option<Bytes>,
    /// Into which files.
    pub format: CaptureFormat,
}

impl Default for Pcap {
    /// Nothing; if there were links, 128 bytes of each packet, in a file for each direction.
    fn default() -> Self {
        Self { links: Vec::new(), snaplen: Some(Bytes::new(128)), format: CaptureFormat::Pcap }
    }
}

/// How captured packets become files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureFormat {
    /// A pcap file for each direction of each link.
    #[default]
    Pcap,
    /// One pcapng file for all of them, with the secrets that decrypt QUIC.
    PcapNg,
}

impl CaptureFormat {
    /// Its name, as a file has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::PcapNg => "pcapng",
        }
    }
}

impl Default for Record {
    /// Nothing; if there were series, every 100 ms.
    fn default() -> Self {
        Self { every: Duration::from_millis(100), series: Vec::new(), pcap: Pcap::default() }
    }
}

/// A number that is sampled over time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Series {
    /// Of a flow; of each of its instances, if it has several.
    Flow {
        /// The flow, by name.
        flow: String,
        /// What.
        metric: FlowMetric,
    },
    /// Of a link, in one direction.
    Link {
        /// The link, by name.
        link: String,
        /// Which direction: `link.NAME.METRIC` is there, `link.NAME.back.METRIC` is back.
        back: bool,
        /// What.
        metric: LinkMetric,
    },
}

impl std::fmt::Display for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flow { flow, metric } => write!(f, "flow.{flow}.{}", metric.name()),
            Self::Link { link, back: false, metric } => write!(f, "link.{link}.{}", metric.name()),
            Self::Link { link, back: true, metric } => write!(f, "link.{link}.back.{}", metric.name()),
        }
    }
}

macro_rules! metrics {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $variant),+ }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name, as a file has it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}

metrics! {
    /// What can be sampled of a flow.
    FlowMetric {
        /// The congestion window, in bytes; of QUIC, of all lanes together.
        Cwnd = "cwnd",
        /// The slow-start threshold, in bytes. TCP.
        Ssthresh = "ssthresh",
        /// Bytes in flight.
        InFlight = "in-flight",
        /// The window of the low layer, in bytes, headers included. TCP with a low layer.
        LowWindow = "low-window",
        /// The smoothed round-trip time, in ms; of QUIC, of the fastest lane.
        Srtt = "srtt",
        /// The rate at which it is paced, in Mbit/s, if it is.
        PacingRate = "pacing-rate",
        /// Payload that arrived since the last sample, in Mbit/s.
        Throughput = "throughput",
        /// Retransmissions so far.
        Retransmissions = "retransmissions",
        /// Packets dropped or lost on the way so far.
        Losses = "losses",
        /// The mean one-way delay of what arrived since the last sample, in ms.
        Delay = "delay",
    }
}

metrics! {
    /// What can be sampled of a direction of a link.
    LinkMetric {
        /// Bytes that wait.
        Queue = "queue",
        /// Packets that wait.
        QueuePackets = "queue-packets",
        /// Mean sojourn time in the queue of the packets that left it since the last sample, in ms.
        QueueDelay = "queue-delay",
        /// IP bytes that came out since the last sample, in Mbit/s.
        Throughput = "throughput",
        /// The share of the link's rate that was used since the last sample.
        Utilisation = "utilisation",
        /// Packets that the queue dropped so far.
        Drops = "drops",
        /// Packets that the wire lost so far.
        Losses = "losses",
        /// Packets that the queue marked so far.
        Marks = "marks",
    }
}
