//! Runs on other engines, by the Python package.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Command, Stdio};

use marcato_report::{COMMIT, VERSION};
use marcato_scenario::Scenario;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::error::{Kept, SimError};
use super::store::Store;
use crate::arguments::Sim;
use crate::interrupt::Interrupt;

/// Environment variable that names the interpreter.
const VARIABLE: &str = "MARCATO_PYTHON";

/// Error of handing runs over.
#[derive(Debug, Error)]
pub(crate) enum HandoverError {
    #[error(
        "--runs-on needs a file that the package can read, too: save the scenario, and give its path instead of `-`"
    )]
    Input,
    #[error(
        "this scenario is one run, which an engine cannot divide: leave out --runs-on, or give a scenario with [grid]"
    )]
    OneRun,
    #[error(
        "cannot start the Python interpreter `{}`: {source}; name one in the variable {VARIABLE}",
        python.display()
    )]
    Python { python: OsString, source: std::io::Error },
    #[error(
        "`{}` cannot import the package `pymarcato`: install it (`pip install maturin && maturin develop --release -m \
         python/Cargo.toml`), or name an interpreter that has it in the variable {VARIABLE}",
        .0.display()
    )]
    NotInstalled(OsString),
    #[error("the package cannot run this on `{engine}`: {problem}")]
    Failed { engine: String, problem: String },
    #[error("the package ended without an answer ({0})")]
    NoAnswer(std::process::ExitStatus),
}

/// Runs to execute, for `pymarcato._handover`.
#[derive(Serialize)]
struct Order<'a> {
    version: &'a str,
    commit: &'a str,
    file: &'a str,
    set: &'a [String],
    seed: Option<u64>,
    on: &'a str,
    /// Number of each run, and the path of its document.
    runs: Vec<(usize, String)>,
}

/// Answer of `pymarcato._handover`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Done { failed: Vec<(usize, String)> },
    Error { error: String },
}

/// Has the package execute the runs that `store` lacks. It writes their documents into the store.
///
/// # Errors
/// If the package is missing or of another version, if its engine fails, or if runs failed.
pub(super) fn fill(
    asked: &Sim,
    engine: &str,
    scenario: &Scenario,
    store: &Store,
    interrupt: &Interrupt,
) -> Result<(), SimError> {
    let runs: Vec<(usize, String)> = scenario
        .runs()
        .enumerate()
        .filter(|(_, run)| store.load(&run.id).is_none())
        .map(|(number, run)| (number, store.run(&run.id).display().to_string()))
        .collect();
    if runs.is_empty() {
        return Ok(());
    }
    let python = std::env::var_os(VARIABLE).unwrap_or_else(|| "python3".into());
    let started = |source| HandoverError::Python { python: python.clone(), source };
    let imported = Command::new(&python)
        .args(["-c", "import pymarcato"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(started)?;
    if !imported.success() {
        return Err(HandoverError::NotInstalled(python).into());
    }
    let order = Order {
        version: VERSION,
        commit: COMMIT,
        file: scenario.file(),
        set: &asked.set,
        seed: asked.seed,
        on: engine,
        runs,
    };
    let mut child = Command::new(&python)
        .args(["-m", "pymarcato._handover"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(started)?;
    // Serialising strings and numbers cannot fail.
    let text = serde_json::to_string(&order).unwrap_or_default();
    if let Some(mut input) = child.stdin.take() {
        // A package that ends early says so by its status.
        let _ = input.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(started)?;
    let count = scenario.count();
    if interrupt.came() {
        let done = scenario.runs().filter(|run| store.load(&run.id).is_some()).count();
        let kept = match &asked.out {
            Some(out) => Kept::Runs { directory: out.clone(), done, of: count },
            None => Kept::NoDirectory { done, of: count },
        };
        return Err(SimError::Interrupted(kept));
    }
    match serde_json::from_slice(&output.stdout) {
        Ok(Answer::Done { failed }) if failed.is_empty() => Ok(()),
        Ok(Answer::Done { failed }) => {
            let name = |number| scenario.run(number).map(|run| run.id).unwrap_or_default();
            let problem = |(number, problem)| SimError::Run { id: name(number), problem }.to_string();
            Err(SimError::Runs { count, problems: failed.into_iter().map(problem).collect() })
        }
        Ok(Answer::Error { error }) => {
            Err(HandoverError::Failed { engine: engine.to_owned(), problem: error }.into())
        }
        Err(_) => Err(HandoverError::NoAnswer(output.status).into()),
    }
}
