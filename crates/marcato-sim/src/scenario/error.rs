//! Why a world cannot be built.

use marcato_queue::{CodelError, CrqError, FqCodelError, LimitError, PieError, RedError, StepMarkError};
use marcato_quic::IdentityError;
use marcato_sched::conductor::DebtError;
use marcato_sched::schedule::BudgetError;

use crate::{DistributionError, FlowError, GilbertElliottError, SpawnError};

/// Why a world cannot be built. A scenario that was read from a file has been checked for most of it.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A link or flow names a node that there is not.
    #[error("{what} names the node `{node}`, which does not exist: add it to the nodes")]
    NoSuchNode {
        /// The link or flow.
        what: String,
        /// The node.
        node: String,
    },
    /// Something is recorded that there is not.
    #[error("`{0}` is recorded, which does not exist: record a link or flow that does")]
    NothingToRecord(String),
    /// A link follows a trace that was not handed over.
    #[error("the link `{link}` follows the trace `{trace}`, which was not read: hand it over")]
    NoSuchTrace {
        /// The link.
        link: String,
        /// The trace's path.
        trace: String,
    },
    /// A queue lets nothing in.
    #[error("the queue of link `{link}`: {source}")]
    Limit {
        /// The link.
        link: String,
        /// What is wrong.
        source: LimitError,
    },
    /// A CoDel queue cannot be configured so.
    #[error("the queue of link `{link}`: {source}")]
    Codel {
        /// The link.
        link: String,
        /// What is wrong.
        source: CodelError,
    },
    /// An FQ-CoDel queue cannot be configured so.
    #[error("the queue of link `{link}`: {source}")]
    FqCodel {
        /// The link.
        link: String,
        /// What is wrong.
        source: FqCodelError,
    },
    /// Error returned for a step-marking queue that cannot work.
    #[error("the queue of link `{link}`: {source}")]
    StepMark {
        /// The link.
        link: String,
        /// What is wrong.
        source: StepMarkError,
    },
    /// Error returned for a RED queue that cannot work.
    #[error("the queue of link `{link}`: {source}")]
    Red {
        /// The link.
        link: String,
        /// What is wrong.
        source: RedError,
    },
    /// Error returned for a PIE queue that cannot work.
    #[error("the queue of link `{link}`: {source}")]
    Pie {
        /// The link.
        link: String,
        /// What is wrong.
        source: PieError,
    },
    /// CRQ cannot be configured so.
    #[error("the queue of link `{link}`: {source}")]
    Crq {
        /// The link.
        link: String,
        /// What is wrong.
        source: CrqError,
    },
    /// Losses cannot come in such bursts.
    #[error("the losses of link `{link}`: {source}")]
    Bursts {
        /// The link.
        link: String,
        /// What is wrong.
        source: GilbertElliottError,
    },
    /// The network does not take a flow.
    #[error("the flow `{flow}`: {source}")]
    Flow {
        /// The flow.
        flow: String,
        /// What is wrong.
        source: FlowError,
    },
    /// A process cannot begin its flows.
    #[error("the flow `{flow}`: {source}")]
    Spawn {
        /// The flow.
        flow: String,
        /// What is wrong.
        source: SpawnError,
    },
    /// Sizes or spans cannot be distributed so.
    #[error("the flow `{flow}`: {source}")]
    Distribution {
        /// The flow.
        flow: String,
        /// What is wrong.
        source: DistributionError,
    },
    /// A flow takes its sizes from a file that was not read.
    #[error(
        "the flow `{flow}` takes its sizes from `{file}`, which was not read: load the scenario from its file"
    )]
    NoSizes {
        /// The flow.
        flow: String,
        /// The file's path.
        file: String,
    },
    /// Packets that are on and off would leave at random or by a clock.
    #[error(
        "the flow `{0}` is on and off, but its packets do not leave at equal distances: say arrivals = \"constant\""
    )]
    ArrivalsOnOff(String),
    /// A Conductor does not work with such chunks.
    #[error("the flow `{flow}`: {source}")]
    Debt {
        /// The flow.
        flow: String,
        /// What is wrong.
        source: DebtError,
    },
    /// Copies cannot be bounded so.
    #[error("the flow `{flow}`: {source}")]
    Budget {
        /// The flow.
        flow: String,
        /// What is wrong.
        source: BudgetError,
    },
    /// The server of a session has nothing to show.
    #[error("the flow `{flow}`: {source}")]
    Identity {
        /// The flow.
        flow: String,
        /// What is wrong.
        source: IdentityError,
    },
    /// An end of a session cannot be configured so.
    #[error("the flow `{flow}`: {problem}")]
    Session {
        /// The flow.
        flow: String,
        /// What is wrong.
        problem: String,
    },
}
