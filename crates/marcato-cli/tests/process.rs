//! The program itself: exit statuses and streams.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::Read;
use std::process::{Command, Output, Stdio};

fn marcato(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_marcato")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_version_goes_to_standard_output() {
    let output = marcato(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("marcato {}\n", env!("CARGO_PKG_VERSION")));
    assert!(output.stderr.is_empty());
}

#[test]
fn a_wrong_command_line_exits_2_and_leaves_standard_output_alone() {
    for arguments in [
        &["papers", "nothing"][..],
        &["papers", "cats", "--nothing"],
        &["nothing"],
        &["papers", "cats", "--world", "lab"],
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
