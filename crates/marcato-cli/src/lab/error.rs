//! Errors of `marcato lab`.

use std::io;

use marcato_lab::HostError;
use marcato_scenario::ScenarioError;
use thiserror::Error;

use crate::sim::SimError;

/// Error of a lab, or of a command in it.
#[derive(Debug, Error)]
pub(crate) enum LabError {
    #[error("no command was given: write it behind `--`")]
    NoCommand,
    #[error("the scenario cannot be run:\n{0}")]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Brief(#[from] marcato_scenario::brief::BriefError),
    #[error(
        "there is no network: name the file of a scenario, or describe a link, for example --link \"12 Mbit/s, 20 ms\""
    )]
    NoNetwork,
    #[error("the link cannot be made: {0}")]
    Links(String),
    #[error(
        "there are several links, and --{option} is for one: write it in their texts, for example --link \"20 ms, {option} …\""
    )]
    SeveralLinks { option: &'static str },
    #[error("a proxy has one link: leave one --link out, or put proxies in a row")]
    OneLink,
    #[error(
        "there is nothing to do: name --listen and --to, a --file, or an --api by which proxies are made"
    )]
    NoProxy,
    #[error("{file}: {problem}")]
    ProxyFile { file: String, problem: String },
    #[error(transparent)]
    Proxy(#[from] marcato_lab::proxy::ProxyError),
    #[error("cannot serve the API on {addr}: {source}")]
    Api { addr: String, source: io::Error },
    #[error("cannot start a runtime: {0}")]
    Runtime(io::Error),
    #[error("the scenario has no run: give its grid a value of each key")]
    NoRun,
    #[error("there is no link `{name}` to capture: name one of {known}")]
    NoLink { name: String, known: String },
    #[error(transparent)]
    Trace(Box<SimError>),
    #[error(transparent)]
    Run(Box<SimError>),
    #[error("{source}{hint}", source = .0, hint = hint(.0))]
    Lab(#[from] marcato_lab::LabError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Enter(#[from] marcato_lab::EnterError),
    #[error("cannot listen for interrupts: {0}")]
    Interrupt(io::Error),
    #[error("cannot write the statistics: {0}")]
    Stats(io::Error),
    #[error("cannot write the packets: {0}")]
    Record(io::Error),
    #[error("cannot wait for the command: {0}")]
    Wait(io::Error),
    #[error("cannot remove what labs have left: {0}")]
    Clean(io::Error),
    #[error("the self-test failed at {what}: {source}")]
    Selftest { what: &'static str, source: io::Error },
    #[error("cannot write to standard output: {0}")]
    Print(io::Error),
}

/// Points at `marcato doctor` where the system has refused something.
fn hint(error: &marcato_lab::LabError) -> String {
    use marcato_lab::LabError::{Namespace, Wiring};
    match error {
        Namespace { .. } | Wiring { .. } => format!("\n{}", crate::doctor::HINT),
        _ => String::new(),
    }
}

impl LabError {
    /// Exit status of a command that runs another one: those of `env`, `timeout` and `chroot`. A command in a lab seldom
    /// has one of them.
    pub(crate) fn status_of_no_command(&self) -> u8 {
        match self {
            Self::Host(HostError::Command { source, .. }) if source.kind() == io::ErrorKind::NotFound => 127,
            Self::Host(HostError::Command { .. }) => 126,
            _ => 125,
        }
    }

    /// Returns whether the user has ended the command.
    pub(crate) fn is_interruption(&self) -> bool {
        matches!(self, Self::Run(error) if matches!(**error, SimError::Interrupted(_)))
    }
}
