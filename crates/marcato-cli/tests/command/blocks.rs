//! Runs commands as documents and `--help` print them, and compares what they print.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use super::documented::{documents, marcato, root, visible};

/// Beginnings of commands that are not run here, each with the reason.
const LEFT_OUT: [(&str, &str); 24] = [
    ("marcato papers", "minutes; crates/marcato-papers and `.ci/long` run the experiments"),
    ("marcato validate", "minutes without optimisation; `.ci/long` runs it"),
    ("marcato demo", "a minute of real traffic; tests/demo.rs runs it"),
    ("marcato perf", "needs two ends; tests/perf.rs runs both"),
    ("marcato lab", "needs namespaces, and programs such as ping; tests/lab.rs runs labs"),
    ("marcato crq", "needs root and a device; tests/crq.rs runs it on devices of its own"),
    ("marcato run", "needs root; tests/run.rs runs it in namespaces of its own"),
    ("sudo marcato run", "as above"),
    ("tshark ", "reads a capture that is not there; a test of crates/marcato-kernel reads one"),
    ("marcato serve", "serves until it is stopped; serve.rs runs it"),
    ("curl ", "asks a proxy that is not there; proxy.rs asks one"),
    ("make ", "builds this program"),
    ("sudo make ", "installs on the machine"),
    ("cargo ", "builds this program"),
    ("git ", "changes the working copy"),
    ("python ", "makes an environment of Python"),
    ("pip ", "installs packages from the network"),
    ("maturin ", "builds the Python package"),
    ("ip ", "changes the machine's devices"),
    ("tc ", "changes the machine's queues"),
    ("install ", "installs on the machine"),
    ("cc ", "compiles a program in C; marcato-ffi's tests/programs.rs does so"),
    ("LD_LIBRARY_PATH=", "runs that program; the same tests do"),
    ("systemctl ", "starts services of the machine"),
];

/// Command of a page, with the lines that the page shows as its output.
struct Shown {
    place: String,
    line: String,
    output: Vec<String>,
}

/// Returns the commands of the blocks of a page.
fn of_page(place: &str, text: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    for block in text.split("```").skip(1).step_by(2) {
        let Some(block) = ["console\n", "sh\n"].iter().find_map(|kind| block.strip_prefix(kind)) else {
            continue;
        };
        let has_prompts = block.contains("$ ") && block.starts_with("$ ");
        for line in block.lines() {
            let command = if has_prompts { line.strip_prefix("$ ") } else { Some(line) };
            let new = || Shown { place: place.to_owned(), line: String::new(), output: Vec::new() };
            match command {
                // Lines that continue a command are indented.
                Some(line) if !line.starts_with(' ') => {
                    found.push(Shown { line: line.replace("./target/release/", ""), ..new() });
                }
                Some(line) => found.last_mut().unwrap().line += &format!("\n{line}"),
                None => found.last_mut().unwrap().output.push(line.to_owned()),
            }
        }
    }
    found
}

/// Returns every command of documents and of examples in `--help`. Those of `docs/start/` belong together: `start.rs`
/// runs them.
fn all() -> Vec<Shown> {
    let pages =
        documents().into_iter().filter(|(path, _)| !path.parent().is_some_and(|of| of.ends_with("start")));
    let mut found: Vec<Shown> =
        pages.flat_map(|(path, text)| of_page(&path.display().to_string(), &text)).collect();
    let mut open = vec![marcato()];
    while let Some(command) = open.pop() {
        open.extend(visible(&command).cloned());
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = help.split("\n\n").next().unwrap_or_default().replace("Examples:\n", "");
        let block = examples.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
        let block = block.collect::<Vec<_>>().join("\n");
        found.extend(of_page(&format!("{} --help", command.get_name()), &format!("```sh\n{block}\n```")));
    }
    found
}

/// Runs a command as printed, in a directory with the examples of this repository.
fn run(directory: &Path, line: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_marcato")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.display());
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .current_dir(directory)
        .env("PATH", path)
        .env("HOME", directory)
        .output()
        .unwrap()
}

#[test]
fn commands_of_documents_run_as_they_are_printed() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("examples"), directory.path().join("examples")).unwrap();
    for below in [".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions"] {
        std::fs::create_dir_all(directory.path().join(below)).unwrap();
    }
    let (mut ran, mut compared, mut used) = (BTreeSet::new(), 0, BTreeSet::new());
    for Shown { place, line, output } in all() {
        // A synopsis is no command.
        if ["<", "[--", "…"].iter().any(|sign| line.contains(sign)) {
            continue;
        }
        if let Some((begin, _)) = LEFT_OUT.iter().find(|(begin, _)| line.starts_with(begin)) {
            used.insert(*begin);
            continue;
        }
        // Other programs could change the machine: a new one has to be listed above.
        let is_ours = line.starts_with("marcato ") || line.starts_with("cat examples/");
        assert!(is_ours, "{place}: {line}: give the reason to leave it out");
        if output.is_empty() && !ran.insert(line.clone()) {
            continue;
        }
        // Commands of several pages write into the same directory.
        let _ = std::fs::remove_dir_all(directory.path().join("out"));
        let ended = run(directory.path(), &line);
        let [out, err] = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(ended.status.code(), Some(0), "{place}: {line}: {err}");
        // Pages leave lines out where they print `…`, and keep the order of the others.
        let mut printed = out.lines();
        for shown in output.iter().filter(|shown| !shown.trim().is_empty() && *shown != "…") {
            assert!(
                printed.any(|line| line.trim_end() == shown.trim_end()),
                "{place}: {line}: {shown}\n{out}"
            );
            compared += 1;
        }
    }
    assert!(ran.len() >= 8 && compared >= 15, "{ran:?}, {compared} lines");
    let unused: Vec<_> = LEFT_OUT.iter().filter(|(begin, _)| !used.contains(begin)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}
