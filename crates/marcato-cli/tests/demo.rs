//! Test of `marcato demo` with a short run over real sockets.
//!
//! It does not test the speed of the machine, but only bounds that the link enforces on any
//! machine.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
    command.arg("demo").args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn both_schemes_deliver_page_and_source_no_faster_than_the_link() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let arguments = ["--loads", "1", "--seed", "7", "--format", "json", "--out", out.to_str().unwrap()];
    let output = demo(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    // A claim may fail on a busy machine. A report is written in any case.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["world"], &document["seeds"]), (&"lab".into(), &serde_json::json!([7])));
    assert_eq!(document["config"]["rate"], "2 Mbit/s");
    let rows = document["rows"].as_array().unwrap();
    let value = |id: &str| {
        let row = rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("there is no {id}"));
        row["measured"].as_f64().unwrap_or_else(|| panic!("{id} was not measured"))
    };
    for scheme in ["fifo", "marcato"] {
        for (group, bytes) in [8_000.0, 25_000.0, 40_000.0, 60_000.0, 150_000.0].into_iter().enumerate() {
            // 50 ms of delay, and 4 µs for each byte.
            let limit = 50.0 + bytes * 0.004;
            let there = value(&format!("demo.page.{scheme}.p{group}"));
            assert!(there >= limit, "{scheme}: P{group} after {there} ms");
        }
        assert!(value(&format!("demo.load.{scheme}")) >= 50.0 + 283_000.0 * 0.004);
        assert!(value(&format!("demo.source.{scheme}.p50")) >= 51.0);
        assert!(value(&format!("demo.source.{scheme}.messages")) > 10.0);
        // 283 kB in packets of at most 1452 bytes.
        assert!(value(&format!("demo.link.{scheme}.delivered")) >= 195.0);
        assert_eq!(value(&format!("demo.link.{scheme}.lost")), 0.0);
    }
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.matches("<svg").count() == 3 && !html.contains("src="), "it needs nothing from outside");
    for word in [" paper", ">paper", ">band", "unclaimed"] {
        assert!(!html.split("<script>").next().unwrap().contains(word), "a demo reproduces no paper: {word}");
    }
    assert!(html.contains(">FIFO</th>") && html.contains(">Marcato over FIFO</th>"));
    assert!(out.join("page.svg").exists() && out.join("source-tail.svg").exists());
}

#[test]
fn a_bad_environment_exits_2_at_once_with_a_clear_message() {
    for (arguments, said) in [
        (&["--out", "/proc/none"][..], "cannot write `/proc/none`"),
        (&["--loss", "2"], "'--loss <P>': give a probability from 0 to below 1, for example 0.02 for 2 %"),
        (&["--loss", "nan"], "give a probability from 0 to below 1"),
        (&["--loss", "1"], "give a probability from 0 to below 1"),
        (&["--loads", "0"], "1..=100"),
        (&["--queue", "best"], "droptail, codel"),
    ] {
        let output = demo(arguments);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(output.stdout.is_empty() && err.contains(said), "{arguments:?}: {err}");
        assert!(!err.contains("loopback") && !err.contains("firewall"), "{err}");
    }
}
