//! `marcato doctor`: features of this machine's kernel.

use std::io::{self, Write};

use marcato_kernel::{Feature, Finding, State, examine};
use serde::Serialize;
use thiserror::Error;

use crate::Status;
use crate::arguments::{Doctor, OutputFormat};
use crate::output;
use crate::table::Table;

/// Hint for messages about privileges and features that are missing.
pub(crate) const HINT: &str = "`marcato doctor` lists all that this system allows";

/// Error of the examination's report.
#[derive(Debug, Error)]
pub(crate) enum DoctorError {
    #[error("cannot write to standard output: {0}")]
    Print(#[from] io::Error),
}

/// Report of an examination.
#[derive(Debug, Serialize)]
struct Report {
    kernel: String,
    features: Vec<Row>,
}

/// Feature of a report. A feature that works needs no remedy.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    state: &'static str,
    found: String,
    without: &'static str,
    remedy: Option<&'static str>,
}

impl Row {
    fn new(finding: Finding) -> Self {
        let Finding { feature, state, found } = finding;
        let remedy = (state != State::Yes).then(|| remedy(feature, state));
        Self { name: feature.name(), state: named(state), found, without: feature.without(), remedy }
    }
}

const fn named(state: State) -> &'static str {
    match state {
        State::Yes => "yes",
        State::No => "no",
        State::Denied => "denied",
        State::Unknown => "unknown",
    }
}

/// Way to get a feature. A queue that could not be tried may be there: that is the first step.
fn remedy(feature: Feature, state: State) -> &'static str {
    let is_queue =
        matches!(feature, Feature::Clsact | Feature::Htb | Feature::Codel | Feature::FqCodel | Feature::Fq);
    match state {
        State::Denied if is_queue => "ask again as root",
        State::Unknown => "install util-linux and iproute2, and ask again",
        _ => feature.remedy(),
    }
}

/// Examines the kernel and prints what it allows.
pub(crate) fn run(asked: &Doctor, stdout: &mut dyn Write) -> Result<Status, DoctorError> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let report =
        Report { kernel: release.trim().to_owned(), features: examine().into_iter().map(Row::new).collect() };
    let text = match asked.format {
        OutputFormat::Json => serde_json::to_string(&report).map_err(io::Error::from)? + "\n",
        OutputFormat::Text => shown(&report),
    };
    output::print(stdout, &text)?;
    Ok(Status::Ok)
}

fn shown(report: &Report) -> String {
    let mut table = Table::new(["feature", "here", "found"]).words(3);
    for Row { name, state, found, .. } in &report.features {
        table.row([*name, *state, found.as_str()]);
    }
    let mut text = format!("Linux {}\n\n{table}", report.kernel);
    for Row { name, without, remedy, .. } in &report.features {
        if let Some(remedy) = remedy {
            text += &format!("\n{name}\n  without it: {without}\n  to get it: {remedy}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(state: State) -> Report {
        let features = Feature::ALL.into_iter();
        let rows = features.map(|feature| Row::new(Finding { feature, state, found: "found".to_owned() }));
        Report { kernel: "6.1.0".to_owned(), features: rows.collect() }
    }

    #[test]
    fn each_missing_feature_says_its_loss_and_its_remedy() {
        let text = shown(&report(State::No));
        for feature in Feature::ALL {
            let (name, without, remedy) = (feature.name(), feature.without(), feature.remedy());
            let lines = format!("\n{name}\n  without it: {without}\n  to get it: {remedy}\n");
            assert!(text.contains(&lines), "{lines}");
        }
        assert!(!shown(&report(State::Yes)).contains("to get it"));
        assert!(shown(&report(State::Denied)).contains("HTB\n  without it"));
        assert_eq!(remedy(Feature::Htb, State::Denied), "ask again as root");
        assert_eq!(remedy(Feature::Tun, State::Denied), Feature::Tun.remedy());
    }
}
