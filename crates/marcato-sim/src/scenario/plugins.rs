//! Plug-ins that scenarios may name.
//!
//! | part | trait | without scenarios | example in `crates/marcato-sim/examples/` |
//! |---|---|---|---|
//! | congestion control | `marcato_sim::tcp::congestion::CongestionControl` | `TcpEnd::own_congestion` | `own_congestion_control.rs` |
//! | queue | `marcato_queue::Discipline` | `LinkConfig::queue` | `own_queue.rs` |
//! | lane scheduler | `marcato_sched::schedule::LaneScheduler` | `SessionConfig::own_scheduler` | `own_lane_scheduler.rs` |
//! | workload | `marcato_sim::scenario::Workload` | | `own_workload.rs` |

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use marcato_queue::Discipline;
use marcato_quic::SchedulerFactory;
use marcato_scenario::plugin::{Parameters, Plugin, PluginKind, PluginNameError, PluginNames};
use marcato_units::{Bytes, Rate, Stream};

use super::error::BuildError;
use super::workload::Workload;
use crate::{CongestionFactory, Packet};

/// Error that the constructor of a plug-in returns, usually for a wrong parameter.
pub type PluginError = Box<dyn std::error::Error + Send + Sync>;

/// Constructors of the plug-ins of one kind, by name. Each makes a `T` for the place `S`.
type Constructors<T, S> =
    HashMap<String, Arc<dyn Fn(&Parameters, S) -> Result<T, PluginError> + Send + Sync>>;

/// Place of a queue in the network.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueSite {
    /// Rate of the transmitter; `None` if it is infinite, or follows a trace.
    pub rate: Option<Rate>,
    /// Largest IP packet that the link takes.
    pub mtu: Bytes,
    /// Random stream of this queue.
    pub stream: Stream,
}

impl QueueSite {
    /// Creates a place.
    pub const fn new(rate: Option<Rate>, mtu: Bytes, stream: Stream) -> Self {
        Self { rate, mtu, stream }
    }
}

/// Congestion controls, queues, lane schedulers and workloads of other crates, by the names that
/// scenarios use.
///
/// Each is registered with the names of its parameters and a constructor, which gets the values
/// that the scenario gives. The reader of the scenario takes the [names](Self::names), and
/// [`build_with`](super::build_with) the plug-ins.
///
/// ```
/// use marcato_queue::{DropTail, DropTailConfig, Limit};
/// use marcato_scenario::Reader;
/// use marcato_sim::scenario::{Plugins, Traces, build_with};
/// use marcato_units::{Bytes, Time};
///
/// let plugins = Plugins::new().queue("short", &["limit"], |parameters, _site| {
///     let limit = Limit::Bytes(parameters.size("limit")?.unwrap_or(Bytes::kb(15)));
///     Ok(Box::new(DropTail::new(DropTailConfig { limit })?))
/// })?;
/// let text = r#"
///   name = "short"
///   duration = "2 s"
///   nodes = ["client", "server"]
///
///   [[link]]
///   between = ["client", "server"]
///   rate = "10 Mbit/s"
///   delay = "20 ms"
///   queue = { kind = "short", limit = "7500 B" }
///
///   [[flow]]
///   name = "bulk"
///   kind = "tcp"
///   from = "client"
///   to = "server"
/// "#;
/// let scenario = Reader::new().plugins(plugins.names()).parse("short.toml", text)?;
/// let world = build_with(scenario.experiment(), &Traces::new(), &plugins)?;
/// let outcome = world.run(&mut |_: Time| ())?;
/// assert!(outcome.links[0].drops > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Plugins {
    names: PluginNames,
    congestions: Constructors<CongestionFactory, ()>,
    queues: Constructors<Box<dyn Discipline<Packet> + Send>, QueueSite>,
    schedulers: Constructors<SchedulerFactory, ()>,
    workloads: Constructors<Box<dyn Workload>, ()>,
}

impl Plugins {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the names, for [`Reader::plugins`](marcato_scenario::Reader::plugins).
    pub fn names(&self) -> &PluginNames {
        &self.names
    }

    /// Adds a congestion control of TCP. `make` is called for each end of each TCP flow.
    ///
    /// # Errors
    /// [`PluginNameError`] if a name has characters that a scenario cannot write, or is taken.
    pub fn congestion(
        mut self,
        name: &str,
        parameters: &[&str],
        make: impl Fn(&Parameters) -> Result<CongestionFactory, PluginError> + Send + Sync + 'static,
    ) -> Result<Self, PluginNameError> {
        self.names.add(PluginKind::Congestion, name, parameters)?;
        self.congestions.insert(name.to_owned(), Arc::new(move |parameters, ()| make(parameters)));
        Ok(self)
    }

    /// Adds a queue of links. `make` is called for each queue.
    ///
    /// # Errors
    /// As [`congestion`](Self::congestion).
    pub fn queue(
        mut self,
        name: &str,
        parameters: &[&str],
        make: impl Fn(&Parameters, QueueSite) -> Result<Box<dyn Discipline<Packet> + Send>, PluginError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Self, PluginNameError> {
        self.names.add(PluginKind::Queue, name, parameters)?;
        self.queues.insert(name.to_owned(), Arc::new(make));
        Ok(self)
    }

    /// Adds a lane scheduler of QUIC sessions. `make` is called for each session.
    ///
    /// # Errors
    /// As [`congestion`](Self::congestion).
    pub fn scheduler(
        mut self,
        name: &str,
        parameters: &[&str],
        make: impl Fn(&Parameters) -> Result<SchedulerFactory, PluginError> + Send + Sync + 'static,
    ) -> Result<Self, PluginNameError> {
        self.names.add(PluginKind::Scheduler, name, parameters)?;
        self.schedulers.insert(name.to_owned(), Arc::new(move |parameters, ()| make(parameters)));
        Ok(self)
    }

    /// Adds a workload of flows with messages. `make` is called for each instance of a flow.
    ///
    /// # Errors
    /// As [`congestion`](Self::congestion).
    pub fn workload(
        mut self,
        name: &str,
        parameters: &[&str],
        make: impl Fn(&Parameters) -> Result<Box<dyn Workload>, PluginError> + Send + Sync + 'static,
    ) -> Result<Self, PluginNameError> {
        self.names.add(PluginKind::Workload, name, parameters)?;
        self.workloads.insert(name.to_owned(), Arc::new(move |parameters, ()| make(parameters)));
        Ok(self)
    }

    /// Makes the congestion control of a flow.
    pub(super) fn make_congestion(
        &self,
        flow: &str,
        plugin: &Plugin,
    ) -> Result<CongestionFactory, BuildError> {
        make(&self.congestions, PluginKind::Congestion, plugin, (), || format!("flow `{flow}`"))
    }

    /// Makes a queue of a link.
    pub(super) fn make_queue(
        &self,
        link: &str,
        plugin: &Plugin,
        site: QueueSite,
    ) -> Result<Box<dyn Discipline<Packet> + Send>, BuildError> {
        make(&self.queues, PluginKind::Queue, plugin, site, || format!("link `{link}`"))
    }

    /// Makes the lane scheduler of a flow.
    pub(super) fn make_scheduler(&self, flow: &str, plugin: &Plugin) -> Result<SchedulerFactory, BuildError> {
        make(&self.schedulers, PluginKind::Scheduler, plugin, (), || format!("flow `{flow}`"))
    }

    /// Makes the workload of a flow.
    pub(super) fn make_workload(&self, flow: &str, plugin: &Plugin) -> Result<Box<dyn Workload>, BuildError> {
        make(&self.workloads, PluginKind::Workload, plugin, (), || format!("flow `{flow}`"))
    }
}

/// Makes `plugin` with its constructor. `what` names the user of the plug-in in errors.
fn make<T, S>(
    constructors: &Constructors<T, S>,
    kind: PluginKind,
    plugin: &Plugin,
    site: S,
    what: impl Fn() -> String,
) -> Result<T, BuildError> {
    let Plugin { name, parameters, position } = plugin;
    let make = constructors.get(name).ok_or_else(|| BuildError::NoSuchPlugin {
        what: what(),
        kind,
        name: name.clone(),
    })?;
    make(parameters, site).map_err(|source| BuildError::Plugin {
        position: position.clone(),
        what: what(),
        kind,
        name: name.clone(),
        source,
    })
}

impl fmt::Debug for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Plugins").field(&self.names).finish()
    }
}
