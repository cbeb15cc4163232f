//! Network that carries the flows of a run: the simulator's, or a lab.

use std::ops::{Deref, DerefMut};

use marcato_sim::Network;
use marcato_sim::scenario::Fabric;
use marcato_units::Time;

use crate::error::SimulationError;

/// Fabric that runs by itself.
trait Carry: Fabric {
    fn run_until(&mut self, until: Time) -> Result<(), SimulationError>;

    /// Simulator's network, if it is one.
    fn simulator(&mut self) -> Option<&mut Network> {
        None
    }
}

impl Carry for Network {
    fn run_until(&mut self, until: Time) -> Result<(), SimulationError> {
        self.run_until(until);
        Ok(())
    }

    fn simulator(&mut self) -> Option<&mut Network> {
        Some(self)
    }
}

#[cfg(target_os = "linux")]
impl Carry for marcato_trial::SocketFabric {
    fn run_until(&mut self, until: Time) -> Result<(), SimulationError> {
        marcato_sim::scenario::Advance::advance(self, until).map_err(crate::lab::failed)
    }
}

/// Network of a run: virtual time, or real time with the kernel's TCP.
pub(crate) struct Carrier(Box<dyn Carry>);

impl From<Network> for Carrier {
    fn from(net: Network) -> Self {
        Self(Box::new(net))
    }
}

impl Carrier {
    /// Opens the lab of a scenario, whose own flows are not started. Returns it with a time by which
    /// an experiment will have set up its flows.
    #[cfg(target_os = "linux")]
    pub(crate) fn lab(scenario: &str) -> Result<(Self, Time), SimulationError> {
        use marcato_units::Duration;

        use crate::lab;

        let experiment = lab::experiment(scenario)?;
        let fabric = marcato_trial::SocketFabric::open(&experiment, &Default::default(), Default::default());
        let fabric = fabric.map_err(lab::failed)?;
        let start = fabric.lab().now() + Duration::from_millis(100);
        Ok((Self(Box::new(fabric)), start))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn lab(_: &str) -> Result<(Self, Time), SimulationError> {
        Err(SimulationError::Lab("a lab needs Linux: run the experiment in virtual time".into()))
    }

    /// Runs the flows until this time.
    pub(crate) fn run_until(&mut self, until: Time) -> Result<(), SimulationError> {
        self.0.run_until(until)
    }

    /// Simulator's network, which some experiments change during a run.
    pub(crate) fn simulator(&mut self) -> Result<&mut Network, SimulationError> {
        self.0.simulator().ok_or(SimulationError::Missing("simulator, which it needs"))
    }
}

impl Deref for Carrier {
    type Target = dyn Fabric;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl DerefMut for Carrier {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
    }
}
