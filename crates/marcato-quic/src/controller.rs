//! Which congestion controller a lane gets.

use std::sync::Arc;
use std::time::Instant;

use marcato_sched::lowprio::LcmConfig;
use marcato_units::Bytes;
use noq_proto::congestion::{Bbr3Config, Controller, ControllerFactory, CubicConfig, NewRenoConfig};

use crate::low_controller::LowPriority;

/// The congestion controller of a lane. Lanes are not coupled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Congestion {
    /// NewReno (RFC 9002 §7).
    NewReno {
        /// What is left of the window after a loss. RFC 9002 says 0.5; the implementation that CWR builds on used 0.7.
        loss_reduction_factor: f32,
    },
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR, version 3 (draft-ietf-ccwg-bbr). It needs pacing.
    Bbr3,
    /// PLT's controller of the low layer (PLT §3.1). It takes what it can get: it is for lanes that the network serves
    /// last, and for no others. Its window begins as it says, whatever the session's do.
    LowPriority(LcmConfig),
}

impl Congestion {
    /// NewReno as RFC 9002 has it.
    pub const RENO: Self = Self::NewReno { loss_reduction_factor: 0.5 };

    /// A controller of this kind.
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
                // A configuration that a lane brings along and that cannot be: the default, which can.
                match low.or_else(|_| LowPriority::new(now, mtu, LcmConfig::marcato())) {
                    Ok(low) => Box::new(low),
                    Err(_) => Self::RENO.build(now, mtu, initial_window),
                }
            }
        }
    }
}
