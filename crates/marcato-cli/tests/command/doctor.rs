//! Tests of `marcato doctor` as a process.

use std::process::Command;

use marcato_testing::{Need, absent};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_marcato");

/// Returns the document that a command prints.
fn document(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), err.as_ref()), (Some(0), ""));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn row<'a>(document: &'a Value, name: &str) -> &'a Value {
    document["features"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap()
}

#[test]
fn the_document_has_a_remedy_for_each_feature_that_is_missing() {
    let document = document(Command::new(PROGRAM).args(["doctor", "--format", "json"]));
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(document["kernel"], release.trim());
    let rows = document["features"].as_array().unwrap();
    assert_eq!(rows.len(), 17);
    for row in rows {
        assert_eq!(row["remedy"].is_null(), row["state"] == "yes", "{row}");
    }
    let text = Command::new(PROGRAM).arg("doctor").output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    for row in rows {
        let [name, state] = ["name", "state"].map(|key| row[key].as_str().unwrap());
        let line = format!("  {name:<15}  {state}");
        assert!(text.lines().any(|shown| shown.starts_with(&line)), "{line}\n{text}");
    }
}

#[test]
fn the_root_of_a_user_namespace_is_denied_programs_of_ebpf() {
    if absent!(Need::UserNamespaces) {
        return;
    }
    let inside = document(Command::new("unshare").args(["-Urn", PROGRAM, "doctor", "--format", "json"]));
    assert_eq!(row(&inside, "BPF")["state"], "denied", "{inside}");
    // Queues of its own namespace it may have, if the kernel has them.
    let outside = document(Command::new(PROGRAM).args(["doctor", "--format", "json"]));
    for name in ["HTB", "CoDel", "fq"] {
        assert_eq!(row(&inside, name)["state"], row(&outside, name)["state"], "{name}");
    }
}
