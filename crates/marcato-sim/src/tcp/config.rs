//! Configuration of an end of TCP: a scenario's, and what no file can say.

use marcato_scenario::tcp::{Congestion, Growth, LowLayer, Tcp, TcpError};
use marcato_sched::lowprio::{Adaptive, Epoch, Fraction, LcmConfig, Target};
use marcato_units::Bytes;

use super::congestion::CongestionFactory;
use crate::plt::{PltConfig, PltConfigError};

/// Configuration of an end of TCP. A [`Tcp`] becomes one by `into()`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TcpEnd {
    /// Configuration that a file can give.
    pub tcp: Tcp,
    /// Congestion control of another crate, in place of that of `tcp`.
    pub own_congestion: Option<CongestionFactory>,
    /// Initial sequence number; `None` draws it from the run's seed.
    pub initial_sequence: Option<u32>,
    /// Priority-Layered Transport: a low layer sends what this TCP cannot. `None` at either end:
    /// plain TCP. It holds in place of `tcp.low_layer`, of which [`From`] makes it.
    pub plt: Option<PltConfig>,
}

impl From<Tcp> for TcpEnd {
    fn from(tcp: Tcp) -> Self {
        let plt = tcp.low_layer.map(|low| low_layer(&low, tcp.packet()));
        Self { tcp, own_congestion: None, initial_sequence: None, plt }
    }
}

/// Returns the low layer of a TCP whose full packets have this length.
fn low_layer(low: &LowLayer, packet: Bytes) -> PltConfig {
    let lcm = LcmConfig {
        target: low
            .target
            .map_or(Target::Adaptive(Adaptive::new()), |target| Target::Fixed(fraction(target))),
        epoch: low.epoch.map_or(Epoch::RoundTrip, Epoch::Fixed),
        initial_window: packet * u64::from(low.initial_window),
        max_window: packet * u64::from(low.most_window),
        packet,
        ..LcmConfig::paper()
    };
    PltConfig {
        low_retransmissions: low.retransmissions,
        ack_layer: low.ack_layer,
        ack_every: low.ack_every,
        min_rto: low.min_rto,
        initial_min_rto: low.initial_min_rto,
        high_for: low.high_for,
        ..PltConfig::new(lcm)
    }
}

/// Converts to a fraction with a precision of one millionth.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is below 1 was read from a file"
)]
fn fraction(of: f64) -> Fraction {
    Fraction::ppm((of * 1e6).round() as u32)
}

impl TcpEnd {
    /// Returns true if the receiver echoes each ECN mark once (RFC 8257 §3.2), instead of until the
    /// sender reports a reduction (RFC 3168 §6.1.3).
    pub(crate) fn echoes_each_mark(&self) -> bool {
        match &self.own_congestion {
            None => matches!(self.tcp.congestion, Congestion::Dctcp | Congestion::Prague),
            Some(own) => own.echoes_each_mark(),
        }
    }

    /// Returns the first error in this configuration, except for a plug-in without its factory.
    pub(crate) fn check(&self) -> Result<(), TcpConfigError> {
        if let Some(error) = self.tcp.errors().next() {
            return Err(error.into());
        }
        self.plt.map_or(Ok(()), |plt| Ok(plt.check(&self.tcp)?))
    }
}

/// Error returned for a [`TcpEnd`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpConfigError {
    /// The part that a file can give is invalid.
    #[error(transparent)]
    Tcp(#[from] TcpError),
    /// The congestion control is a plug-in that nothing builds.
    #[error("the congestion control is a plug-in: set own_congestion")]
    NoFactory,
    /// The configuration of the low layer is invalid.
    #[error("invalid configuration of plt: {0}")]
    Plt(#[from] PltConfigError),
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
