//! Tests of the command line of `marcato validate`. The measurements are tested in their own crate.

use std::ffi::OsString;

use marcato_cli::{Status, run};
use marcato_papers::Registry;

/// Runs the command, and returns its status, standard output and standard error.
fn marcato(line: &str) -> (Status, String, String) {
    let (mut out, mut err) = (vec![], vec![]);
    let arguments = ["marcato"].into_iter().chain(line.split_whitespace()).map(OsString::from);
    let status = run(&Registry::default(), arguments, &mut out, &mut err);
    (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn a_wrong_command_line_is_status_2_and_says_why() {
    for (line, said) in [
        ("validate mathis", "mathis"),
        ("validate --world lab", "--world"),
        ("validate --format yaml", "text, json, csv"),
        ("validate --repeat 0", "1..=1000"),
        ("validate --repeat 2 --seed 9223372036854775807", "choose a smaller seed"),
        ("validate --seed 9223372036854775808", "a seed is 0 to 9223372036854775807"),
        ("validate --jobs 5000", "give 1 to 4096"),
    ] {
        let (status, out, err) = marcato(line);
        assert_eq!((status, out.as_str()), (Status::Error, ""), "{line}");
        assert!(err.contains(said), "{line}: {err}");
    }
}

#[test]
fn validation_needs_no_paper_and_explains_its_status() {
    let (status, out, _) = marcato("validate --help");
    assert_eq!(status, Status::Ok);
    assert!(out.contains("--quick") && out.contains("1 when one lies outside"), "{out}");
}
