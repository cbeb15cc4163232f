//! Errors of simulated runs, which all experiments share.

use marcato_queue::{CodelError, CrqError, FqCodelError, LimitError, StepMarkError, StrictError};
use marcato_quic::IdentityError;
use marcato_sched::conductor::{DebtError, OfferError};
use marcato_sim::{DistributionError, FlowError, SpawnError, TapError};
use thiserror::Error;

use crate::FilesError;

/// A simulated run that could not be set up, or did not end as its experiment needs.
#[derive(Debug, Error)]
pub(crate) enum SimulationError {
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Sizes(#[from] DistributionError),
    #[error(transparent)]
    Tap(#[from] TapError),
    #[error(transparent)]
    Queue(#[from] LimitError),
    #[error(transparent)]
    Codel(#[from] CodelError),
    #[error(transparent)]
    FqCodel(#[from] FqCodelError),
    #[error(transparent)]
    Crq(#[from] CrqError),
    #[error(transparent)]
    Strict(#[from] StrictError),
    #[error(transparent)]
    StepMark(#[from] StepMarkError),
    #[error(transparent)]
    Debt(#[from] DebtError),
    #[error(transparent)]
    Offer(#[from] OfferError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The run lacks a host, session, sample or outcome that it should have.
    #[error("a run has no {0}: this is a defect of the experiment")]
    Missing(&'static str),
    /// A host could not open its session.
    #[error("an end could not be started: {0}")]
    Begin(String),
    /// A lab could not be opened, or could not go on.
    #[error("{0}")]
    Lab(String),
    /// A transfer was still in progress when the run ended.
    #[error("{0} did not arrive within the time of the run: run it for longer")]
    Incomplete(String),
}
