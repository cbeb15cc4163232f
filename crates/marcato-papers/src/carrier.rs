//! Network that carries the flows of a run: the simulator's, or a lab.

use marcato_sim::scenario::Fabric;
use marcato_sim::{App, DatagramFlow, FlowId, Host, LinkCounters, LinkId, Network, Reception, Side, TcpFlow};
use marcato_units::Time;

use crate::error::SimulationError;

/// Network of a run.
pub(crate) enum Carrier {
    /// Virtual time.
    Virtual(Box<Network>),
    /// Real time, with the kernel's TCP.
    #[cfg(target_os = "linux")]
    Lab(Box<marcato_trial::SocketFabric>),
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
        Ok((Self::Lab(Box::new(fabric)), start))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn lab(_: &str) -> Result<(Self, Time), SimulationError> {
        Err(SimulationError::Lab("a lab needs Linux: run the experiment in virtual time".into()))
    }

    /// Adds a TCP flow.
    pub(crate) fn tcp(&mut self, flow: TcpFlow) -> Result<FlowId, SimulationError> {
        Ok(match self {
            Self::Virtual(net) => net.tcp(flow)?,
            #[cfg(target_os = "linux")]
            Self::Lab(fabric) => Fabric::tcp(&mut **fabric, flow)?,
        })
    }

    /// Adds a flow of datagrams.
    pub(crate) fn datagrams(&mut self, flow: DatagramFlow) -> Result<FlowId, SimulationError> {
        Ok(match self {
            Self::Virtual(net) => net.datagrams(flow)?,
            #[cfg(target_os = "linux")]
            Self::Lab(fabric) => Fabric::datagrams(&mut **fabric, flow)?,
        })
    }

    /// Time so far.
    pub(crate) fn now(&self) -> Time {
        self.fabric().now()
    }

    /// Runs the flows until this time.
    pub(crate) fn run_until(&mut self, until: Time) -> Result<(), SimulationError> {
        match self {
            Self::Virtual(net) => net.run_until(until),
            #[cfg(target_os = "linux")]
            Self::Lab(fabric) => {
                marcato_sim::scenario::Advance::advance(&mut **fabric, until).map_err(crate::lab::failed)?;
            }
        }
        Ok(())
    }

    /// Application at an end of a flow, if it is an `A`.
    pub(crate) fn app<A: App>(&self, flow: FlowId, side: Side) -> Option<&A> {
        self.fabric().app(flow, side)
    }

    /// Host at an end of a datagram flow, if it is an `H`.
    pub(crate) fn host<H: Host>(&self, flow: FlowId, side: Side) -> Option<&H> {
        self.fabric().host(flow, side)
    }

    /// Counters of a direction of a link.
    pub(crate) fn link_counters(&self, link: LinkId) -> LinkCounters {
        self.fabric().link_counters(link)
    }

    pub(crate) fn reception(&self, flow: FlowId, side: Side) -> Reception {
        self.fabric().reception(flow, side)
    }

    /// Simulator's network, which some experiments change during a run.
    pub(crate) fn simulator(&mut self) -> Result<&mut Network, SimulationError> {
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
            Self::Lab(fabric) => &**fabric,
        }
    }
}
