//! Network that carries the flows of a run: the simulator's, or a lab.

use marcato_sim::scenario::Fabric;
use marcato_sim::{App, FlowId, Network, Reception, Side, TcpFlow};
use marcato_units::Time;

use crate::error::SimulationError;

/// Network of a run.
pub(super) enum Carrier {
    /// Virtual time.
    Virtual(Box<Network>),
    /// Real time, with the kernel's TCP.
    #[cfg(target_os = "linux")]
    Lab(Box<marcato_trial::Ground>),
}

impl Carrier {
    /// Adds a TCP flow.
    pub(super) fn tcp(&mut self, flow: TcpFlow) -> Result<FlowId, SimulationError> {
        Ok(match self {
            Self::Virtual(net) => net.tcp(flow)?,
            #[cfg(target_os = "linux")]
            Self::Lab(ground) => Fabric::tcp(&mut **ground, flow)?,
        })
    }

    /// Time so far.
    pub(super) fn now(&self) -> Time {
        self.fabric().now()
    }

    /// Runs the flows until this time.
    pub(super) fn run_until(&mut self, until: Time) -> Result<(), SimulationError> {
        match self {
            Self::Virtual(net) => net.run_until(until),
            #[cfg(target_os = "linux")]
            Self::Lab(ground) => {
                marcato_sim::scenario::Advance::advance(&mut **ground, until)
                    .map_err(|error| SimulationError::Lab(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Application at an end of a flow, if it is an `A`.
    pub(super) fn app<A: App>(&self, flow: FlowId, side: Side) -> Option<&A> {
        self.fabric().app(flow, side)
    }

    pub(super) fn reception(&self, flow: FlowId, side: Side) -> Reception {
        self.fabric().reception(flow, side)
    }

    /// Simulator's network, which some experiments change during a run.
    pub(super) fn simulator(&mut self) -> Result<&mut Network, SimulationError> {
        match self {
            Self::Virtual(net) => Ok(net),
            #[cfg(target_os = "linux")]
            Self::Lab(_) => Err(SimulationError::Missing("simulator, which it needs")),
        }
    }

    fn fabric(&self) -> &dyn Fabric {
        match self {
            Self::Virtual(net) => &**net,
            #[cfg(target_os = "linux")]
            Self::Lab(ground) => &**ground,
        }
    }
}
