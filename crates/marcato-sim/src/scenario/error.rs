//! Errors of building a world.

use marcato_quic::IdentityError;
use marcato_scenario::plugin::{PluginKind, Position};
use marcato_sched::conductor::DebtError;
use marcato_sched::schedule::BudgetError;

use super::plugins::PluginError;
use crate::{DistributionError, FlowError, GilbertElliottError, SpawnError};

/// Error returned if a world cannot be built. Reading a scenario from a file already excludes most
/// of them.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A link or flow names a node that does not exist.
    #[error("{what} names the node `{node}`, which does not exist: add it to the nodes")]
    NoSuchNode {
        /// Link or flow.
        what: String,
        /// Node.
        node: String,
    },
    /// A series records a link or flow that does not exist.
    #[error("`{0}` is recorded, which does not exist: record a link or flow that does")]
    NothingToRecord(String),
    /// A link follows a trace that was not passed in.
    #[error("the link `{link}` follows the trace `{trace}`, which was not loaded: pass it in the traces")]
    NoSuchTrace {
        /// Link.
        link: String,
        /// Path of the trace.
        trace: String,
    },
    /// The configuration of a queue is invalid.
    #[error("the queue of link `{link}`: {source}")]
    Queue {
        /// Link.
        link: String,
        /// Error of the discipline, for example [`LimitError`](marcato_queue::LimitError).
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The model of bursts of losses is invalid.
    #[error("the losses of link `{link}`: {source}")]
    Bursts {
        /// Link.
        link: String,
        /// Error of the model.
        source: GilbertElliottError,
    },
    /// The experiment names a plug-in that was not registered.
    #[error("the {what} names the {} `{name}`, which is not registered: add it to the plug-ins", .kind.noun())]
    NoSuchPlugin {
        /// Link or flow.
        what: String,
        /// Kind of the plug-in.
        kind: PluginKind,
        /// Name.
        name: String,
    },
    /// The constructor of a plug-in failed.
    #[error("{}the {} `{name}` of the {what}: {source}", before(.position.as_ref()), .kind.noun())]
    Plugin {
        /// Position at which the scenario names the plug-in; `None` if no file does.
        position: Option<Position>,
        /// Link or flow.
        what: String,
        /// Kind of the plug-in.
        kind: PluginKind,
        /// Name.
        name: String,
        /// Error of the constructor.
        source: PluginError,
    },
    /// A workload releases what no flow can send.
    #[error("the workload `{workload}` of the flow `{flow}`: {problem}")]
    Workload {
        /// Flow.
        flow: String,
        /// Name of the workload.
        workload: String,
        /// Problem and remedy.
        problem: String,
    },
    /// The network refuses a flow.
    #[error("the flow `{flow}`: {source}")]
    Flow {
        /// Flow.
        flow: String,
        /// Error of the flow.
        source: FlowError,
    },
    /// The network refuses a process.
    #[error("the flow `{flow}`: {source}")]
    Spawn {
        /// Flow.
        flow: String,
        /// Error of the process.
        source: SpawnError,
    },
    /// A distribution of sizes or durations is invalid.
    #[error("the flow `{flow}`: {source}")]
    Distribution {
        /// Flow.
        flow: String,
        /// Error of the distribution.
        source: DistributionError,
    },
    /// A flow takes its sizes from a file that was not read.
    #[error(
        "the flow `{flow}` takes its sizes from `{file}`, which was not loaded: load the scenario from its file"
    )]
    NoSizes {
        /// Flow.
        flow: String,
        /// Path of the file.
        file: String,
    },
    /// An on-off flow has arrivals other than constant.
    #[error(
        "the flow `{0}` is on and off, but its packets are not sent at constant intervals: set arrivals = \"constant\""
    )]
    ArrivalsOnOff(String),
    /// A Conductor does not work with the flow's chunk size.
    #[error("the flow `{flow}`: {source}")]
    Debt {
        /// Flow.
        flow: String,
        /// Error of the Conductor.
        source: DebtError,
    },
    /// The bound on copies is invalid.
    #[error("the flow `{flow}`: {source}")]
    Budget {
        /// Flow.
        flow: String,
        /// Error of the bound.
        source: BudgetError,
    },
    /// The server of a session has no certificate.
    #[error("the flow `{flow}`: {source}")]
    Identity {
        /// Flow.
        flow: String,
        /// Error of the certificate.
        source: IdentityError,
    },
    /// The configuration of a session's end is invalid.
    #[error("the flow `{flow}`: {problem}")]
    Session {
        /// Flow.
        flow: String,
        /// Description of the error.
        problem: String,
    },
}

/// Returns a position at the beginning of a message.
fn before(position: Option<&Position>) -> String {
    position.map_or_else(String::new, |position| format!("{position}: "))
}
