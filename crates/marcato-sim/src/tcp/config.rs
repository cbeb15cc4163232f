//! What a TCP endpoint is told before it starts.

use marcato_units::{Bytes, Duration};

use crate::plt::{PltConfig, PltConfigError};

/// How one end of a TCP connection behaves.
///
/// The defaults are those of a Linux host of today where they matter to a measurement, with a payload of 1448
/// bytes (Ethernet, timestamps on).
#[derive(Clone, Debug, PartialEq)]
pub struct TcpConfig {
    /// Most payload in a segment.
    pub mss: u32,
    /// Initial window, in segments. RFC 6928: 10.
    pub initial_window: u32,
    /// Initial slow start threshold, in segments; `None`: as high as can be (RFC 5681 §3.1). BBR has none.
    pub initial_ssthresh: Option<u32>,
    /// How acknowledgements make the window of Reno, CUBIC and DCTCP grow.
    pub growth: Growth,
    /// Bytes written and not yet acknowledged that the endpoint holds for the application.
    pub send_buffer: Bytes,
    /// Bytes that the receiver holds for its application; the window never offers more.
    pub receive_buffer: Bytes,
    /// Begin with a receive buffer of this size and let it grow with the sender's window, up to `receive_buffer`, as Linux
    /// does (dynamic right-sizing; Linux begins with 128 KiB, half of which is window). `None`: the buffer is as large as
    /// it may be from the start.
    pub receive_buffer_from: Option<Bytes>,
    /// When the endpoint calls itself writable: while fewer bytes than this are unsent, as the socket option
    /// `TCP_NOTSENT_LOWAT` does. `None`: while the send buffer has room.
    pub notsent_lowat: Option<Bytes>,
    /// When data is acknowledged.
    pub delayed_ack: DelayedAck,
    /// Least retransmission timeout: RFC 6298 §2.4 asks one second, Linux takes 200 ms. (Linux holds the variance's
    /// share to that, so that its timeout is never below SRTT + 200 ms; here, as in the RFC, it bounds the whole.)
    pub min_rto: Duration,
    /// Greatest retransmission timeout. RFC 6298 §2.5: at least 60 s.
    pub max_rto: Duration,
    /// Retransmission timeout of the SYN and until a round trip has been measured, within `min_rto` and `max_rto` for data.
    /// RFC 6298 §2.1: one second.
    pub initial_rto: Duration,
    /// Timestamps option. RFC 7323.
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018), if both ends have them. Without, losses are repaired one a round trip
    /// (RFC 6582), which needs [`LossDetection::DupThresh`].
    pub sack: bool,
    /// Explicit congestion notification. RFC 3168.
    pub ecn: bool,
    /// The form in which data segments carry their priority; `None`: not at all. CATS §II-D2.
    pub priority_option: Option<PriorityOption>,
    /// How losses are detected.
    pub loss_detection: LossDetection,
    /// Congestion control.
    pub congestion: Congestion,
    /// Space segments out at a rate derived from the window, where the congestion control has no rate of its own.
    pub pacing: bool,
    /// New data leaves in bursts of up to this much, as where the network card cuts segments (TSO, 64 kB in Linux): what
    /// the pacing rate makes in a millisecond, at least two segments, and a third of the window at most; and waits until
    /// so much may be sent, but not for longer than half a round trip nor while losses are being repaired. `None`:
    /// each segment leaves as soon as it may.
    pub segmentation_offload: Option<Bytes>,
    /// Fall back to the initial window after an idle retransmission timeout. RFC 5681 §4.1.
    pub slow_start_after_idle: bool,
    /// Initial sequence number; `None` draws it from the run's seed.
    pub initial_sequence: Option<u32>,
    /// Priority-Layered Transport: what this TCP cannot send, a low layer does. `None`, at either end: plain TCP.
    pub plt: Option<PltConfig>,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
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
            congestion: Congestion::Reno,
            pacing: false,
            segmentation_offload: None,
            slow_start_after_idle: true,
            initial_sequence: None,
            plt: None,
        }
    }
}

impl TcpConfig {
    /// The first thing in this configuration that cannot work.
    pub(crate) fn check(&self) -> Result<(), TcpConfigError> {
        if self.mss == 0 {
            return Err(TcpConfigError::ZeroMss);
        }
        if self.initial_window == 0 {
            return Err(TcpConfigError::ZeroInitialWindow);
        }
        if self.send_buffer < Bytes::from(self.mss) || self.receive_buffer < Bytes::from(self.mss) {
            return Err(TcpConfigError::BufferBelowSegment);
        }
        if self
            .receive_buffer_from
            .is_some_and(|from| from < Bytes::from(self.mss) || from > self.receive_buffer)
        {
            return Err(TcpConfigError::ReceiveBufferFrom);
        }
        if self.receive_buffer > Bytes::new(1 << 30) {
            return Err(TcpConfigError::ReceiveBufferBeyondScale);
        }
        if self.min_rto.is_zero() || self.min_rto > self.max_rto {
            return Err(TcpConfigError::RtoBounds);
        }
        if self.initial_rto.is_zero() {
            return Err(TcpConfigError::ZeroInitialRto);
        }
        if self.initial_ssthresh == Some(0) {
            return Err(TcpConfigError::ZeroSsthresh);
        }
        if self.growth == (Growth::Bytes { limit: 0 }) {
            return Err(TcpConfigError::ZeroGrowth);
        }
        if !self.sack && self.loss_detection == LossDetection::Rack {
            return Err(TcpConfigError::RackWithoutSack);
        }
        if self.delayed_ack.every == 0 {
            return Err(TcpConfigError::ZeroAckEvery);
        }
        if self.congestion == Congestion::Dctcp && !self.ecn {
            return Err(TcpConfigError::DctcpWithoutEcn);
        }
        if let Some(plt) = &self.plt {
            plt.check(self)?;
        }
        Ok(())
    }
}

/// Why a [`TcpConfig`] cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpConfigError {
    /// `mss` is 0.
    #[error("mss is 0: give segments at least one byte of payload")]
    ZeroMss,
    /// `initial_window` is 0.
    #[error("initial_window is 0: allow at least one segment")]
    ZeroInitialWindow,
    /// A buffer is smaller than a segment.
    #[error("a buffer is smaller than one segment: raise send_buffer and receive_buffer to at least mss")]
    BufferBelowSegment,
    /// `receive_buffer_from` is smaller than a segment or above `receive_buffer`.
    #[error("receive_buffer_from must be at least mss and at most receive_buffer")]
    ReceiveBufferFrom,
    /// The window field cannot say so much.
    #[error("receive_buffer is above 1 GiB, the most that window scaling can offer (RFC 7323): lower it")]
    ReceiveBufferBeyondScale,
    /// `min_rto` is 0 or above `max_rto`.
    #[error("min_rto must be above 0 and at most max_rto")]
    RtoBounds,
    /// `initial_rto` is 0.
    #[error("initial_rto is 0: say for how long to wait for the first answer, such as 1 s")]
    ZeroInitialRto,
    /// `initial_ssthresh` is 0.
    #[error("initial_ssthresh is 0: allow at least one segment, or leave it out")]
    ZeroSsthresh,
    /// The window would never grow.
    #[error("growth has a limit of 0 segments: allow at least one")]
    ZeroGrowth,
    /// RACK goes by what is selectively acknowledged. RFC 8985 §4.
    #[error("rack needs sack: set loss_detection to DupThresh, or leave sack on")]
    RackWithoutSack,
    /// `delayed_ack.every` is 0.
    #[error("delayed_ack.every is 0: say 1 to acknowledge every segment")]
    ZeroAckEvery,
    /// The low layer cannot be configured so.
    #[error("plt cannot be configured so: {0}")]
    Plt(#[from] PltConfigError),
    /// DCTCP has nothing to go by.
    #[error("dctcp lives on marks: set ecn, or choose another congestion control")]
    DctcpWithoutEcn,
}

/// When a receiver acknowledges. RFC 1122 §4.2.3.2, RFC 5681 §4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedAck {
    /// Acknowledge every so many data segments at the latest; 1 is every one.
    pub every: u32,
    /// Acknowledge after this long at the latest.
    pub timeout: Duration,
    /// Acknowledge the first data segment of the connection at once, so that its sender's window opens a segment
    /// earlier.
    pub first_at_once: bool,
    /// Acknowledge P0 and P1 segments at once. CATS §II-D2.
    pub urgent_at_once: bool,
}

impl Default for DelayedAck {
    fn default() -> Self {
        Self { every: 2, timeout: Duration::from_millis(40), first_at_once: true, urgent_at_once: false }
    }
}

impl DelayedAck {
    /// An acknowledgement for every segment.
    pub const NONE: Self =
        Self { every: 1, timeout: Duration::from_millis(40), first_at_once: true, urgent_at_once: false };
}

/// The form of the option that carries a segment's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityOption {
    /// Kind 254 with an experiment identifier, 5 bytes: the standard form (RFC 6994).
    Rfc6994,
    /// Kind 254, 3 bytes, as CATS §II-D2 has it.
    Short,
    /// Kind 253, 4 bytes, as the authors' program sends it.
    Authors,
}

impl PriorityOption {
    /// Bytes of the option, without padding.
    pub const fn len(self) -> u32 {
        match self {
            Self::Rfc6994 => 5,
            Self::Short => 3,
            Self::Authors => 4,
        }
    }

    /// Never: an option has a kind at least.
    pub const fn is_empty(self) -> bool {
        false
    }
}

/// How a sender finds out what was lost before its retransmission timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossDetection {
    /// By time, with probes of the tail: RACK-TLP (RFC 8985), as Linux does.
    Rack,
    /// By three segments above: RFC 6675, what textbooks and formulas mean. Tails and lost retransmissions wait for
    /// the timer.
    DupThresh,
}

/// How acknowledgements make a window grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// By the bytes that they acknowledge; in slow start one acknowledgement counts for `limit` segments at most, and for one
    /// after a timeout. RFC 3465, whose L is the limit.
    Bytes {
        /// L.
        limit: u32,
    },
    /// By their number: each counts for one segment, whatever it acknowledges. RFC 5681 §3.1.
    Acknowledgements,
}

impl Default for Growth {
    /// By bytes, two segments an acknowledgement at most.
    fn default() -> Self {
        Self::Bytes { limit: 2 }
    }
}

impl Growth {
    /// Of `acked` bytes those that count, where a segment has `smss`.
    pub(crate) fn counted(self, acked: u64, smss: u64) -> u64 {
        match self {
            Self::Bytes { .. } => acked,
            Self::Acknowledgements => acked.min(smss),
        }
    }

    /// The most that one acknowledgement adds to a window in slow start.
    pub(crate) fn most_in_slow_start(self, smss: u64, after_timeout: bool) -> u64 {
        let limit = match self {
            // RFC 3465 §2.3
            Self::Bytes { .. } if after_timeout => 1,
            Self::Bytes { limit } => u64::from(limit),
            Self::Acknowledgements => 1,
        };
        limit.saturating_mul(smss)
    }
}

/// Which congestion control a sender runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// Reno (RFC 5681) with byte counting (RFC 3465).
    Reno,
    /// CUBIC (RFC 9438).
    Cubic(Cubic),
    /// DCTCP (RFC 8257). As a receiver such an end echoes each mark once, instead of until it is told of a reduction:
    /// configure both ends so.
    Dctcp,
    /// BBR version 1, as in Linux.
    Bbr,
}

impl Congestion {
    /// CUBIC as Linux runs it.
    pub const CUBIC: Self = Self::Cubic(Cubic { hystart: true, fast_convergence: true });
}

/// What may be switched off in CUBIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cubic {
    /// Leave slow start when a queue begins to grow, as Linux does.
    pub hystart: bool,
    /// Remember less than the window that was reached if it was below the one before, to make room for newcomers.
    /// RFC 9438 §4.7.
    pub fast_convergence: bool,
}

impl Default for Cubic {
    fn default() -> Self {
        Self { hystart: true, fast_convergence: true }
    }
}
