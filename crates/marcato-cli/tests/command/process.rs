//! Tests of the program as a process: exit statuses and streams.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use marcato_papers::Registry;

fn marcato(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_marcato")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_version_goes_to_standard_output() {
    let output = marcato(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    let (version, commit) = (env!("CARGO_PKG_VERSION"), marcato_report::COMMIT);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("marcato {version} ({commit})\n"));
    assert!(output.stderr.is_empty());
}

#[test]
fn a_wrong_command_line_exits_2_with_nothing_on_stdout() {
    for arguments in [
        &["papers", "nothing"][..],
        &["papers", "cats", "--nothing"],
        &["nothing"],
        &["papers", "plt", "--world", "moon"],
    ] {
        let output = marcato(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_closed_standard_output_is_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_marcato"))
        .args(["papers", "--help"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[test]
fn the_help_lists_papers_by_names_that_stand_alone() {
    let help = String::from_utf8(marcato(&["papers", "--help"]).stdout).unwrap();
    for name in marcato_papers::registry().names().into_iter().chain([Registry::ALL]) {
        assert!(help.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}: {help}");
    }
}

/// Link that follows a trace, whose path is relative.
const SCENARIO: &str = r#"
name = "piped"
duration = "2 s"
nodes = ["client", "server"]

[[link]]
between = ["client", "server"]
trace = "lte.trace"
delay = "10 ms"

[[flow]]
name = "bulk"
kind = "tcp"
from = "client"
to = "server"
size = "20 kB"

[grid]
vary = { "flow.bulk.congestion" = ["reno", "cubic"] }
"#;

/// Runs `marcato sim -` on a text in this directory.
fn piped(directory: &Path, arguments: &[&str], text: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_marcato"))
        .args(["sim", "-"])
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_combination_repeats_where_it_was_printed() {
    let base = tempfile::tempdir().unwrap();
    let below = base.path().join("some where");
    std::fs::create_dir(&below).unwrap();
    std::fs::write(below.join("lte.trace"), "1\n2\n3\n").unwrap();
    std::fs::write(below.join("a.toml"), SCENARIO).unwrap();
    let printed = |line: &str| {
        let program = env!("CARGO_BIN_EXE_marcato");
        let line = line.replacen("marcato", &format!("'{program}'"), 1) + " --format json";
        let output = Command::new("sh").args(["-c", &line]).current_dir(base.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let all = printed("marcato sim 'some where/a.toml'");
    let one = &all["rows"][0];
    let again = printed(one["repeat_with"].as_str().unwrap());
    let metric = one["metric"].as_str().unwrap().strip_prefix("flow.bulk.").unwrap();
    assert_eq!(again["flows"][0][metric], one["mean"], "{metric}");
}

#[test]
fn a_standard_output_that_is_full_is_an_error_with_a_reason() {
    for arguments in [&["--version"][..], &["--help"], &["completions", "bash"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_marcato")).args(arguments).stdout(full).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(err.starts_with("error: cannot write to standard output: "), "{arguments:?}: {err}");
    }
}

#[test]
fn a_terminal_without_a_width_gets_lines_of_several_words() {
    let help = |columns: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
        let output = command.args(["perf", "client", "--help"]).env("COLUMNS", columns).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(help("0"), help("100"));
}

#[test]
fn a_scenario_from_stdin_reads_traces_in_the_working_directory() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("lte.trace"), "1\n2\n3\n").unwrap();
    let output = piped(directory.path(), &["--format", "json"], SCENARIO.as_bytes());
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), err.as_str()), (Some(0), ""));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["rows"][0]["repeat_with"], "marcato sim - --set flow.bulk.congestion=reno");
    let wrong = SCENARIO.replace("20 kB", "20");
    let output = piped(directory.path(), &[], wrong.as_bytes());
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err.contains("<stdin>:16:8: `20` has no unit"), "{err}");
}
