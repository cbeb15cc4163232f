//! Tests of `marcato sim --runs-on` without the package; `python/tests` has those with it.

use std::path::Path;
use std::process::{Command, Output};

const GRID: &str = r#"
    name = "two"
    duration = "100 ms"
    nodes = ["a", "b"]
    link = [{ between = ["a", "b"], rate = "1 Mbit/s", delay = "1 ms" }]
    flow = [{ name = "bulk", kind = "tcp", from = "a", to = "b" }]
    grid = { seeds = 2 }
"#;

fn sim(python: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("two.toml"), GRID).unwrap();
    Command::new(env!("CARGO_BIN_EXE_marcato"))
        .current_dir(directory.path())
        .env("MARCATO_PYTHON", python)
        .arg("sim")
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap()
}

fn refused(python: &str, arguments: &[&str]) -> String {
    let output = sim(python, arguments);
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_interpreter_that_does_not_start_is_named() {
    let said = refused("/no/such/python", &["two.toml", "--runs-on", "local"]);
    assert!(said.contains("cannot start the Python interpreter `/no/such/python`"), "{said}");
}

#[test]
fn a_missing_package_is_told_with_its_installation() {
    // `false` imports nothing, whatever Python there is.
    let interpreter = ["/bin/false", "/usr/bin/false"].into_iter().find(|path| Path::new(path).exists());
    let said = refused(interpreter.unwrap(), &["two.toml", "--runs-on", "ray"]);
    assert!(
        said.contains("cannot import the package `pymarcato`: install it (`pip install maturin"),
        "{said}"
    );
}

#[test]
fn an_engine_that_does_not_exist_is_refused() {
    let said = refused("python3", &["two.toml", "--runs-on", "slurm"]);
    assert!(said.contains("an engine is dask://HOST:PORT, ray or local"), "{said}");
}

#[test]
fn one_run_and_standard_input_are_refused() {
    let said = refused("python3", &["two.toml", "--runs-on", "local", "--seed", "1"]);
    assert!(said.contains("this scenario is one run"), "{said}");
}
