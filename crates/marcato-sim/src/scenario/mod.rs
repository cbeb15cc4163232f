//! Scenarios and their results: [`build`] makes a network of an [`Experiment`], and [`World::run`]
//! runs it and returns the results.
//!
//! [`Experiment`]: marcato_scenario::Experiment
//!
//! All measurements cover the time from the end of the warm-up to the end of the run. Measuring
//! changes nothing: a network built by hand from the same parts does the same, event by event.
//!
//! ```
//! use marcato_scenario::flow::{Flow, FlowKind, TcpEnds, TcpFlow};
//! use marcato_scenario::link::{Capacity, Direction, Link, Loss};
//! use marcato_scenario::{Experiment, record::Record};
//! use marcato_sim::scenario::{Traces, build};
//! use marcato_units::{Bytes, Duration, Layer, Rate, Seed, Time};
//!
//! let way = || Direction {
//!     rate: Capacity::Rate(Rate::from_mbps(10)),
//!     delay: Duration::from_millis(10),
//!     framing: Bytes::ZERO,
//!     queue: Default::default(),
//!     loss: Loss::None,
//!     jitter: None,
//!     duplication: 0.0,
//!     bleach_ecn: false,
//! };
//! let link = Link {
//!     name: "bottleneck".into(),
//!     between: ["client".into(), "server".into()],
//!     mtu: Bytes::new(1500),
//!     there: way(),
//!     back: way(),
//!     changes: vec![],
//! };
//! let flow = Flow {
//!     name: "bulk".into(),
//!     from: "client".into(),
//!     to: "server".into(),
//!     also: vec![],
//!     count: 1,
//!     stagger: Duration::ZERO,
//!     start: Time::ZERO,
//!     start_jitter: Duration::ZERO,
//!     stop: None,
//!     layer: Layer::High,
//!     kind: FlowKind::Tcp(TcpFlow::new(TcpEnds::default())),
//! };
//! let experiment = Experiment {
//!     name: "one flow".into(),
//!     about: String::new(),
//!     duration: Duration::from_secs(10),
//!     warm_up: Duration::from_secs(2),
//!     seed: Seed::new(1),
//!     nodes: vec!["client".into(), "server".into()],
//!     links: vec![link],
//!     flows: vec![flow],
//!     record: Record::default(),
//! };
//! let outcome = build(&experiment, &Traces::new())?.run(&mut |_: Time| ())?;
//! assert!((9.0..9.7).contains(&outcome.flows[0].goodput));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod build;
mod convert;
mod error;
mod fabric;
mod flows;
mod group;
mod messenger;
mod observed;
mod outcome;
mod plugins;
mod quic;
mod sampler;
mod warning;
mod workload;
mod world;

use std::collections::BTreeMap;

pub use build::{build, build_on, build_with};
pub use error::BuildError;
pub use fabric::{Advance, Fabric};
pub use group::GroupOutcome;
pub use outcome::{
    Alone, Completion, FlowOutcome, LaneOutcome, LinkOutcome, LowLayerOutcome, Outcome, SeriesOutcome, Times,
    Waiting,
};
pub use plugins::{PluginError, Plugins, QueueSite};
pub use warning::Warning;
pub use workload::{MAX_RELEASES, Release, Workload};
pub use world::{Watcher, World};

/// Traces that links follow, by the path in the experiment
/// ([`Experiment::traces`](marcato_scenario::Experiment::traces)).
pub type Traces = BTreeMap<String, crate::Trace>;
