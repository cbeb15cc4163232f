//! Runs the commands of `docs/start/` as they are printed: each page in one shell, from its first line to its last.

use std::path::PathBuf;
use std::process::{Command, Output};

use marcato_testing::{Need, absent};

use super::documented::root;

/// Beginnings of commands that are not run here, each with the reason.
const LEFT_OUT: [(&str, &str); 3] = [
    ("sudo make install", "installs on the machine"),
    ("sudo apt install", "installs on the machine; .ci/long does so in a root of its own"),
    ("cargo run", "builds an example, which `cargo test -p marcato-net` does"),
];
/// Most commands of a page.
const MOST: usize = 5;
/// Network of its own, whose device `eth0` leads to a neighbour.
const SETUP: &str = r#"
set -e
ip link set lo up
if [ "$(id -u)" = 0 ] && [ "$initial" = yes ]; then
    mount --make-rprivate /
    mount -t sysfs sysfs /sys
    mount -t bpf bpf /sys/fs/bpf
fi
ip link add eth0 type veth peer name lan
ip link set eth0 up
ip link set lan up
sudo() { "$@"; }
"#;

fn page(name: &str) -> PathBuf {
    root().join("docs/start").join(name)
}

/// Returns the commands of the page's only block.
fn commands(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(page(name)).unwrap();
    let blocks: Vec<&str> = text.split("```").skip(1).step_by(2).collect();
    let [block] = blocks[..] else { panic!("{name} has {} blocks", blocks.len()) };
    block.strip_prefix("sh\n").unwrap().lines().map(str::to_owned).collect()
}

/// Runs the commands of a page in a network namespace, and stops at the first that fails.
fn run(name: &str) -> Output {
    let commands = commands(name);
    assert!((2..=MOST).contains(&commands.len()), "{name}: {commands:?}");
    let ran = commands.iter().filter(|line| !LEFT_OUT.iter().any(|(begin, _)| line.starts_with(begin)));
    let script = ran.fold(SETUP.to_owned(), |script, line| script + line + "\n");
    let directory = tempfile::tempdir().unwrap();
    for below in ["examples", "experiments"] {
        std::os::unix::fs::symlink(root().join(below), directory.path().join(below)).unwrap();
    }
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_marcato")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let is_root = Need::Root.missing().is_none();
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "150", "unshare", "--kill-child", "--fork", "--pid", "--net", "--mount"]);
    if !is_root {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["bash", "-c", &script]);
    command
        .env("PATH", path)
        .env("HOME", directory.path())
        .env("initial", if is_root { "yes" } else { "no" });
    command.current_dir(directory.path()).output().unwrap()
}

/// Output of a page whose commands all succeed.
fn said(name: &str) -> String {
    let output = run(name);
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{name}: {}\n{out}\n{err}", output.status);
    out
}

#[test]
fn the_page_for_web_operators_serves_a_site() {
    if absent!(Need::LabProcess, Need::Program("curl")) {
        return;
    }
    let out = said("web.md");
    assert!(
        out.contains("listening on https://127.0.0.1:8443") && out.contains("<h1>It works</h1>"),
        "{out}"
    );
}

#[test]
fn the_page_for_applications_measures_priorities() {
    if absent!(Need::LabProcess) {
        return;
    }
    let out = said("application.md");
    assert!(["P0", "P4"].iter().all(|level| out.contains(level)), "{out}");
}

#[test]
fn the_page_for_researchers_judges_claims() {
    if absent!(Need::LabProcess) {
        return;
    }
    let out = said("research.md");
    assert!(out.contains("verdict") || out.contains("holds"), "{out}");
}

#[test]
fn the_page_for_router_operators_attaches_and_detaches() {
    if absent!(Need::Root, Need::Programs(marcato_kernel::OBJECT), Need::KernelTypes, Need::Program("tc")) {
        return;
    }
    let out = said("router.md");
    assert!(out.contains("responsive") && out.contains("standard"), "{out}");
}

#[test]
fn every_page_has_a_test_and_is_listed() {
    let list = std::fs::read_to_string(page("README.md")).unwrap();
    let tests = include_str!("start.rs");
    let mut pages = 0;
    for entry in std::fs::read_dir(page("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name != "README.md" {
            assert!(list.contains(&format!("({name})")), "{name} is not in the list");
            assert!(tests.contains(&format!("said(\"{name}\")")), "{name} has no test");
            pages += 1;
        }
    }
    assert!(pages >= 4, "{pages}");
}
