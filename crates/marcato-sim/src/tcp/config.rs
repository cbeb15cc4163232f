//! Configuration of a TCP endpoint.

pub use marcato_scenario::tcp::{Cubic, DelayedAck, Growth, LossDetection, Nagle, PriorityOption, SlowStart};
use marcato_units::{Bytes, Duration};

use super::congestion::{Congestion, CongestionFactory};
use crate::plt::{PltConfig, PltConfigError};

/// Configuration of one end of a TCP connection.
///
/// The defaults that affect measurements are those of a current Linux host, with a payload of 1448
/// bytes (Ethernet, timestamps on).
#[derive(Clone, Debug, PartialEq)]
pub struct TcpConfig {
    /// Greatest payload of a segment, in bytes.
    pub mss: u32,
    /// Initial window, in segments. RFC 6928: 10.
    pub initial_window: u32,
    /// Initial slow start threshold, in segments; `None` is unbounded (RFC 5681 §3.1). BBR ignores
    /// it.
    pub initial_ssthresh: Option<u32>,
    /// Growth rule of the window under Reno, CUBIC and DCTCP.
    pub growth: Growth,
    /// Capacity for bytes that the application has written and that are not yet acknowledged.
    pub send_buffer: Bytes,
    /// Capacity for bytes that the application has not read; bounds the offered window.
    pub receive_buffer: Bytes,
    /// Initial size of the receive buffer, which then grows with the sender's window up to
    /// `receive_buffer`. This is dynamic right-sizing as in Linux, which begins with 128 KiB, half
    /// of which is window. `None` starts with the full buffer.
    pub receive_buffer_from: Option<Bytes>,
    /// Bound on unsent bytes below which the endpoint is writable, like the socket option
    /// `TCP_NOTSENT_LOWAT`. `None`: it is writable while the send buffer has room.
    pub notsent_lowat: Option<Bytes>,
    /// Rule for delayed acknowledgements.
    pub delayed_ack: DelayedAck,
    /// Least retransmission timeout. RFC 6298 §2.4 asks for one second; Linux uses 200 ms. Linux
    /// bounds only the variance's share, so its timeout is never below SRTT + 200 ms; here, as in
    /// the RFC, the bound applies to the sum.
    pub min_rto: Duration,
    /// Minimum of the timeout beyond the smoothed round trip. RFC 6298 has none; Linux adds 200 ms at
    /// least.
    pub rto_margin: Duration,
    /// Greatest retransmission timeout. RFC 6298 §2.5: at least 60 s.
    pub max_rto: Duration,
    /// Retransmission timeout of the SYN, and of data until a round trip has been measured; for
    /// data within `min_rto` and `max_rto`. RFC 6298 §2.1: one second.
    pub initial_rto: Duration,
    /// Timestamps option. RFC 7323.
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018), if both ends enable them. Without SACK, one loss is
    /// repaired per round trip (RFC 6582), and [`LossDetection::DupThresh`] is required.
    pub sack: bool,
    /// Explicit congestion notification. RFC 3168.
    pub ecn: bool,
    /// Form of the option that carries the priority in data segments; `None` sends no option. CATS
    /// §II-D2.
    pub priority_option: Option<PriorityOption>,
    /// Loss detection algorithm.
    pub loss_detection: LossDetection,
    /// Undoes reductions of the window that prove spurious, as Linux does: by echoed timestamps
    /// (Eifel, RFC 3522 and 4015), by duplicates that the other end reports for all retransmissions
    /// (RFC 2883), and after a timeout by F-RTO (RFC 5682, with SACK).
    /// [`LossDetection::DupThresh`] then adapts its threshold to reordering.
    pub undo: bool,
    /// Rule by which small segments wait.
    pub nagle: Nagle,
    /// Slow start of Reno, CUBIC and DCTCP.
    pub slow_start: SlowStart,
    /// Congestion control.
    pub congestion: Congestion,
    /// Congestion control of another crate, in place of `congestion`.
    pub own_congestion: Option<CongestionFactory>,
    /// Paces segments at a rate derived from the window, where the congestion control has no rate.
    pub pacing: bool,
    /// Number of first segments of a connection that are not paced, 10 in Linux.
    pub unpaced_segments: u32,
    /// Greatest burst of new data, as with segmentation by the network card (TSO, 64 kB in Linux).
    /// `None`: each segment leaves as soon as it may.
    ///
    /// A burst is what the pacing rate sends in a millisecond: at least two segments, and at most a
    /// third of the window. New data waits until a whole burst may leave, but not longer than half
    /// a round trip, and not while losses are being repaired.
    pub segmentation_offload: Option<Bytes>,
    /// Returns to the initial window after an idle time of one retransmission timeout. RFC 5681
    /// §4.1.
    pub slow_start_after_idle: bool,
    /// Instead of returning to it, halves the window for each timeout of idle time, as Linux does.
    /// RFC 2861 §3.
    pub idle_decay: bool,
    /// Reduces the window by its own size at a loss, as Linux does. Otherwise by what is in flight, if
    /// that is less. RFC 5681 eq. 4; RFC 9438 §4.6.
    pub reduce_window: bool,
    /// Lets the window of a recovery grow only by acknowledgements that move SND.UNA and show no
    /// further loss, as Linux does. Otherwise by all.
    pub safe_ack: bool,
    /// Counts what was in flight at its most in a round trip as the used part of the window, as
    /// Linux does. Otherwise what is in flight at each acknowledgement counts.
    pub usage_by_round: bool,
    /// Initial sequence number; `None` draws it from the run's seed.
    pub initial_sequence: Option<u32>,
    /// Priority-Layered Transport: a low layer sends what this TCP cannot. `None` at either end:
    /// plain TCP.
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
            rto_margin: Duration::ZERO,
            max_rto: Duration::from_secs(60),
            initial_rto: Duration::from_secs(1),
            timestamps: true,
            sack: true,
            ecn: false,
            priority_option: None,
            loss_detection: LossDetection::Rack,
            undo: true,
            nagle: Nagle::Off,
            slow_start: SlowStart::Standard,
            congestion: Congestion::Reno,
            own_congestion: None,
            pacing: false,
            unpaced_segments: 0,
            segmentation_offload: None,
            slow_start_after_idle: true,
            idle_decay: false,
            reduce_window: false,
            safe_ack: false,
            usage_by_round: false,
            initial_sequence: None,
            plt: None,
        }
    }
}

impl TcpConfig {
    /// Returns the initial window in bytes, for a congestion control.
    pub fn initial_cwnd(&self) -> u64 {
        u64::from(self.mss) * u64::from(self.initial_window)
    }

    /// Returns the initial slow start threshold in bytes, for a congestion control; [`u64::MAX`] is
    /// none.
    pub fn initial_threshold(&self) -> u64 {
        self.initial_ssthresh.map_or(u64::MAX, |segments| u64::from(self.mss) * u64::from(segments))
    }

    /// Returns true if the receiver echoes each ECN mark once (RFC 8257 §3.2), instead of until the
    /// sender reports a reduction (RFC 3168 §6.1.3).
    pub(crate) fn echoes_each_mark(&self) -> bool {
        match &self.own_congestion {
            None => self.congestion == Congestion::Dctcp,
            Some(own) => own.echoes_each_mark(),
        }
    }

    /// Returns the first error in this configuration.
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
        if self.own_congestion.is_none() && self.congestion == Congestion::Dctcp && !self.ecn {
            return Err(TcpConfigError::DctcpWithoutEcn);
        }
        if let Some(plt) = &self.plt {
            plt.check(self)?;
        }
        Ok(())
    }
}

/// Error returned for a [`TcpConfig`] that cannot work.
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
    /// `receive_buffer` exceeds the largest window that RFC 7323 can express.
    #[error("receive_buffer is above 1 GiB, the most that window scaling can offer (RFC 7323): lower it")]
    ReceiveBufferBeyondScale,
    /// `min_rto` is 0 or above `max_rto`.
    #[error("min_rto must be above 0 and at most max_rto")]
    RtoBounds,
    /// `initial_rto` is 0.
    #[error("initial_rto is 0: set the timeout of the first segment, for example to 1 s")]
    ZeroInitialRto,
    /// `initial_ssthresh` is 0.
    #[error("initial_ssthresh is 0: allow at least one segment, or leave it out")]
    ZeroSsthresh,
    /// `growth` has a limit of 0, so the window would never grow.
    #[error("growth has a limit of 0 segments: allow at least one")]
    ZeroGrowth,
    /// RACK requires SACK. RFC 8985 §4.
    #[error("rack requires sack: enable sack, or set loss_detection to DupThresh")]
    RackWithoutSack,
    /// `delayed_ack.every` is 0.
    #[error("delayed_ack.every is 0: set it to 1 to acknowledge every segment")]
    ZeroAckEvery,
    /// The configuration of the low layer is invalid.
    #[error("invalid configuration of plt: {0}")]
    Plt(#[from] PltConfigError),
    /// DCTCP requires ECN, as it responds to marks.
    #[error("dctcp requires ecn: enable ecn, or choose another congestion control")]
    DctcpWithoutEcn,
}

/// Effect of a [`Growth`] rule on a window.
pub(crate) trait GrowthRule {
    /// Returns how many of `acked` bytes count, for segments of `smss` bytes.
    fn counted(self, acked: u64, smss: u64) -> u64;

    /// Returns the greatest growth per acknowledgement in slow start, in bytes.
    fn most_in_slow_start(self, smss: u64, after_timeout: bool) -> u64;
}

impl GrowthRule for Growth {
    fn counted(self, acked: u64, smss: u64) -> u64 {
        match self {
            Self::Bytes { .. } => acked,
            Self::Acknowledgements => acked.min(smss),
        }
    }

    fn most_in_slow_start(self, smss: u64, after_timeout: bool) -> u64 {
        let limit = match self {
            // RFC 3465 §2.3: L is 1 in the slow start after a timeout.
            Self::Bytes { .. } if after_timeout => 1,
            Self::Bytes { limit } => u64::from(limit),
            Self::Acknowledgements => 1,
        };
        limit.saturating_mul(smss)
    }
}
