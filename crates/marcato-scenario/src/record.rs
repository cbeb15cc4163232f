//! Data recorded during a run.

use marcato_units::{Bytes, Duration};

/// Data recorded during a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Sampling interval of the series.
    pub every: Duration,
    /// Series to record.
    pub series: Vec<Series>,
    /// Packet capture.
    pub pcap: Pcap,
}

/// Configuration of packet capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcap {
    /// Names of the links whose packets are captured.
    pub links: Vec<String>,
    /// Bytes kept of each packet, headers included; `None` keeps whole packets.
    pub snaplen: Option<Bytes>,
    /// File format.
    pub format: CaptureFormat,
}

impl Default for Pcap {
    /// Captures no link. The defaults for links that are added are 128 bytes of each packet and a
    /// file per direction.
    fn default() -> Self {
        Self { links: Vec::new(), snaplen: Some(Bytes::new(128)), format: CaptureFormat::Pcap }
    }
}

/// Format of capture files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureFormat {
    /// One pcap file for each direction of each link.
    #[default]
    Pcap,
    /// One pcapng file for all links, with the secrets that decrypt QUIC.
    PcapNg,
}

impl CaptureFormat {
    /// Returns the name used in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::PcapNg => "pcapng",
        }
    }
}

impl Default for Record {
    /// Records nothing. The default interval for series that are added is 100 ms.
    fn default() -> Self {
        Self { every: Duration::from_millis(100), series: Vec::new(), pcap: Pcap::default() }
    }
}

/// Value sampled over time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Series {
    /// Value of a flow, or of each of its instances.
    Flow {
        /// Name of the flow.
        flow: String,
        /// Sampled value.
        metric: FlowMetric,
    },
    /// Value of one direction of a link.
    Link {
        /// Name of the link.
        link: String,
        /// Direction: `link.NAME.METRIC` if false, `link.NAME.back.METRIC` if true.
        back: bool,
        /// Sampled value.
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
            /// All metrics.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name used in a file.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}

metrics! {
    /// Metric of a flow.
    FlowMetric {
        /// Congestion window in bytes; for QUIC, the sum over all lanes.
        Cwnd = "cwnd",
        /// Slow-start threshold in bytes; TCP only.
        Ssthresh = "ssthresh",
        /// Bytes in flight.
        InFlight = "in-flight",
        /// Window of the low layer in bytes, headers included; only TCP with a low layer.
        LowWindow = "low-window",
        /// Bound of coupled mode on what is in flight, in bytes; none while there is no bound. For QUIC, the
        /// sum over the lanes of the high layer; none while one of them has no bound.
        Cap = "cap",
        /// Mode of the governor of coupled mode: 0 startup, 1 steady, 2 compete, 3 test, 4 squeeze. For QUIC,
        /// that of the first lane.
        Mode = "mode",
        /// Smoothed round-trip time in ms; for QUIC, that of the fastest lane.
        Srtt = "srtt",
        /// Pacing rate in Mbit/s, if the flow is paced.
        PacingRate = "pacing-rate",
        /// Payload received since the last sample, in Mbit/s.
        Throughput = "throughput",
        /// Retransmissions so far.
        Retransmissions = "retransmissions",
        /// Packets dropped or lost in the network so far.
        Losses = "losses",
        /// Mean one-way delay of data received since the last sample, in ms.
        Delay = "delay",
    }
}

metrics! {
    /// Metric of one direction of a link.
    LinkMetric {
        /// Waiting bytes.
        Queue = "queue",
        /// Waiting packets.
        QueuePackets = "queue-packets",
        /// Mean sojourn time, in ms, of packets that left the queue since the last sample.
        QueueDelay = "queue-delay",
        /// IP bytes delivered since the last sample, in Mbit/s.
        Throughput = "throughput",
        /// Share of the link's rate used since the last sample.
        Utilisation = "utilisation",
        /// Packets dropped by the queue so far.
        Drops = "drops",
        /// Packets lost on the wire so far.
        Losses = "losses",
        /// Packets marked by the queue so far.
        Marks = "marks",
    }
}
