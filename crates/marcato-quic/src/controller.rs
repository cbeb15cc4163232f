//! Choice of a lane's congestion controller.

use std::sync::Arc;
use std::time::Instant;

use marcato_sched::lowprio::LcmConfig;
use marcato_units::Bytes;
use noq_proto::congestion::{Bbr3Config, Controller, ControllerFactory, CubicConfig, NewRenoConfig};

use crate::low_controller::LowPriority;

/// Congestion controller of a lane. Lanes are not coupled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Congestion {
    /// NewReno (RFC 9002 §7).
    NewReno {
        /// Factor by which a loss multiplies the window. RFC 9002 recommends 0.5; the
        /// implementation that CWR builds on used 0.7.
        loss_reduction_factor: f32,
    },
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR, version 3 (draft-ietf-ccwg-bbr). It needs pacing.
    Bbr3,
    /// PLT's controller of the low layer (PLT §3.1). It takes all capacity it can get, so it is
    /// only for lanes that the network serves last. Its own initial window applies, not the
    /// session's.
    LowPriority(LcmConfig),
}

impl Congestion {
    /// NewReno as in RFC 9002.
    pub const RENO: Self = Self::NewReno { loss_reduction_factor: 0.5 };

    /// Builds a controller of this kind.
    pub(crate) fn build(self, now: Instant, mtu: u16, initial_window: Option<Bytes>) -> Box<dyn Controller> {
        match self {
            Self::NewReno { loss_reduction_factor } => {
                let mut config = NewRenoConfig::default();
                config.loss_reduction_factor(loss_reduction_factor);
                if let Some(window) = initial_window {
                    config.initial_window(window.get());
                }
                Arc::new(config).build(now, mtu)
            }
            Self::Cubic => {
                let mut config = CubicConfig::default();
                if let Some(window) = initial_window {
                    config.initial_window(window.get());
                }
                Arc::new(config).build(now, mtu)
            }
            Self::Bbr3 => {
                let mut config = Bbr3Config::default();
                if let Some(window) = initial_window {
                    config.initial_window(window.get());
                }
                Arc::new(config).build(now, mtu)
            }
            Self::LowPriority(config) => {
                let low = LowPriority::new(now, mtu, config);
                // A lane may bring an invalid configuration. The default, which is valid, replaces
                // it.
                match low.or_else(|_| LowPriority::new(now, mtu, LcmConfig::marcato())) {
                    Ok(low) => Box::new(low),
                    Err(_) => Self::RENO.build(now, mtu, initial_window),
                }
            }
        }
    }
}
