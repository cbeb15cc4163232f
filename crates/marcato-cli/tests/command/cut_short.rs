//! Tests of commands that end early: by an interrupt, or because a disk is full.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::yield_now;

use crate::over_one_link;

/// Transfer of which a series and a capture are recorded.
fn cut() -> String {
    let flows = over_one_link(
        "name = \"cut\"\nduration = \"2 s\"",
        "rate = \"4 Mbit/s\"\ndelay = \"10 ms\"",
        &[["file", "tcp", "size = \"200 kB\""]],
    );
    flows + RECORD
}

const RECORD: &str = "[record]\nseries = [\"flow.file.cwnd\"]\npcap = [\"bottleneck\"]\n";

fn scenario(text: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("cut.toml"), directory.path().join("out"));
    fs::write(&file, text).unwrap();
    (directory, file, out)
}

/// Returns every file below a directory, by its name.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).into_iter().flatten().map(Result::unwrap);
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.path().is_dir());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut found: BTreeMap<_, _> =
        files.iter().map(|entry| (name(&entry.path()), fs::read(entry.path()).unwrap())).collect();
    for below in directories {
        found.extend(self::files(&below.path()));
    }
    found
}

/// Runs the command where no file may exceed `blocks` of 512 bytes. Writes then fail as on a full
/// disk.
fn with_files_of_at_most(blocks: u32, arguments: &[&str]) -> Output {
    let line = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
    let shell =
        Command::new("sh").args(["-c", &line, "sh", env!("CARGO_BIN_EXE_marcato")]).args(arguments).output();
    shell.unwrap()
}

/// Returns the error of a command that could not write a file, and what it printed nevertheless.
fn unwritten(output: &Output) -> (String, String) {
    assert_eq!(output.status.code(), Some(2));
    let [said, printed] =
        [&output.stderr, &output.stdout].map(|bytes| String::from_utf8(bytes.clone()).unwrap());
    assert_eq!(said.matches("cannot write").count(), 1, "one message: {said}");
    (said, printed)
}

/// Returns the error of a command that has no result, since its captures could not be written.
fn refused(output: &Output) -> String {
    let (said, printed) = unwritten(output);
    assert_eq!(printed, "");
    said
}

#[test]
fn a_full_disk_leaves_a_run_as_it_was() {
    let (_directory, file, out) = scenario(&cut());
    let arguments = ["sim", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
    refused(&with_files_of_at_most(4, &arguments));
    assert_eq!(files(&out), BTreeMap::new(), "the capture came first, and was too long");
    assert_eq!(with_files_of_at_most(1_000_000, &arguments).status.code(), Some(0));
    let whole = files(&out);
    assert!(whole["bottleneck.there.pcap"].len() > 20_000 && whole["report.html"].len() > 4096);
    for blocks in [4, 1] {
        let said = refused(&with_files_of_at_most(blocks, &arguments));
        assert!(said.contains("bottleneck.there.pcap"), "{said}");
        assert_eq!(files(&out), whole);
    }
    // Without the capture, the report is the first file that is too large.
    let (_directory, file, out) = scenario(&cut().replace("pcap = [\"bottleneck\"]", ""));
    let arguments = ["sim", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let (said, printed) = unwritten(&with_files_of_at_most(32, &arguments));
    assert!(said.contains("report.html"), "{said}");
    assert!(printed.contains("file") && printed.contains("Mbit/s"), "the result is not lost: {printed}");
    assert!(files(&out).keys().all(|name| !name.starts_with('.') && name != "report.html"));
}

#[test]
fn a_grid_on_a_full_disk_fails_with_one_message_and_can_resume() {
    let (_directory, file, out) = scenario(&(cut() + "[grid]\nseeds = 6\n"));
    let arguments = ["sim", file.to_str().unwrap(), "--out", out.to_str().unwrap(), "--jobs", "1"];
    let said = refused(&with_files_of_at_most(1, &arguments));
    assert!(said.contains("seed=1.json"), "{said}");
    let kept = format!(
        "0 of 6 runs are complete and kept in `{}`: run the same command again to continue",
        out.display()
    );
    assert!(said.contains(&kept), "{said}");
    assert_eq!(files(&out).into_keys().collect::<Vec<_>>(), ["manifest.json"]);
    assert_eq!(with_files_of_at_most(1_000_000, &arguments).status.code(), Some(0));
}

#[test]
fn a_full_disk_leaves_no_part_of_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let (said, printed) =
        unwritten(&with_files_of_at_most(8, &["demo", "--loads", "1", "--out", out.to_str().unwrap()]));
    assert!(said.contains("report.html"), "{said}");
    assert!(printed.contains("Marcato"), "{printed}");
    assert!(!out.exists());
}

#[test]
fn a_directory_that_cannot_be_is_refused_before_anything_runs() {
    let (_directory, file, _) = scenario(&cut());
    // No experiment could have run: each takes seconds, and shows no row.
    for command in [
        &["validate"][..],
        &["papers", "plt"],
        &["demo"],
        &["sim", file.to_str().unwrap()],
        &["lab", "compare", file.to_str().unwrap()],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_marcato"))
            .args(command)
            .args(["--out", "/proc/none/out"])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{command:?}: {said}");
        assert!(said.contains("/proc/none/out") || command[0] == "lab", "{command:?}: {said}");
    }
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until the process handles SIGINT.
fn listens(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    let caught = |text: &str| {
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim();
        u64::from_str_radix(mask, 16).ok()
    };
    // SIGINT is signal 2, which is bit 1 of the mask.
    // SIGTERM, which is handled after it, is signal 15.
    while caught(&fs::read_to_string(&status).unwrap()).unwrap() & 0x4002 != 0x4002 {
        yield_now();
    }
}

/// Interrupts the process, and returns its standard error.
fn interrupt(child: Child) -> String {
    end(child, "INT")
}

/// Sends a signal to the process, which ends as after an interrupt, and returns its standard error.
fn end(child: Child, signal: &str) -> String {
    let number = child.id().to_string();
    let line = format!("kill -{signal} \"$0\"");
    assert!(Command::new("sh").args(["-c", &line, &number]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(output.stdout.is_empty());
    said
}

#[test]
fn an_interrupted_grid_says_what_is_kept_and_goes_on_from_there() {
    let text = cut().replace(RECORD, "");
    let (_directory, file, out) =
        scenario(&format!("{text}\n[grid]\nvary = {{ duration = [\"1 s\", \"1000000 s\"] }}\n"));
    let endless = text.replace("size = \"200 kB\"\n", "");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace(&text, &endless)).unwrap();
    let arguments = ["sim", file.to_str().unwrap(), "--out", out.to_str().unwrap(), "--jobs", "1"];
    let child = start(&arguments);
    while !out.join("runs/duration=1s,seed=1.json").exists() {
        yield_now();
    }
    let said = interrupt(child);
    let expected = format!(
        "interrupted: 1 of 2 runs are complete and kept in `{}`: run the same command again to continue\n",
        out.display()
    );
    assert_eq!(said, expected);
    assert_eq!(files(&out).into_keys().collect::<Vec<_>>(), ["duration=1s,seed=1.json", "manifest.json"]);
    // The command resumes: the completed run is not repeated.
    let child = start(&[&arguments[..], &["--resume"]].concat());
    listens(&child);
    assert_eq!(interrupt(child), expected);
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    let endless = cut().replace("size = \"200 kB\"\n", "").replace("\"2 s\"", "\"1000000 s\"");
    let (_directory, file, out) = scenario(&endless);
    let child = start(&["sim", file.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    // Captures have started once a file exists.
    while files(&out).is_empty() {
        yield_now();
    }
    let said = interrupt(child);
    assert!(
        said.starts_with("interrupted: after ") && said.contains("of 1000000 simulated seconds"),
        "{said}"
    );
    assert!(
        said.ends_with("nothing was written; the same command starts again from the beginning\n"),
        "{said}"
    );
    assert!(!out.exists());
}

#[test]
fn a_request_to_end_is_as_an_interrupt_and_leaves_no_directory() {
    let (_directory, _, out) = scenario("");
    for command in [&["validate"][..], &["papers", "plt"], &["demo", "--loads", "100"]] {
        let child = start(&[command, &["--out", out.to_str().unwrap()]].concat());
        listens(&child);
        let said = end(child, "TERM");
        assert!(said.contains("interrupted: no report was written"), "{command:?}: {said}");
        assert!(!out.exists(), "{command:?}");
    }
}

#[test]
fn an_interrupted_experiment_says_what_is_kept() {
    let child = start(&["papers", "plt"]);
    listens(&child);
    let said = interrupt(child);
    assert!(said.contains("interrupted: nothing is kept; with --out DIR, long experiments keep"), "{said}");
    let directory = tempfile::tempdir().unwrap();
    let runs = directory.path().join("runs");
    fs::create_dir(&runs).unwrap();
    for name in ["a.json", "b.json", "c.part"] {
        fs::write(runs.join(name), "").unwrap();
    }
    let child = start(&["papers", "plt", "--out", directory.path().to_str().unwrap()]);
    listens(&child);
    let said = interrupt(child);
    let kept = format!("are kept in `{}`: run the same command again to continue", runs.display());
    assert!(said.contains("completed runs, ") && said.contains(&kept), "{said}");
}
