//! Tests that programs in other languages do what they promise, with the header and the library of this build.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use marcato::abi::MARCATO_ABI;
use marcato_testing::{Need, absent};

const ENGINES: [&str; 2] = ["quic", "tcp"];

/// Directory with the libraries, as they are built: that of the test programs.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Puts the shared library into a directory under the names that it has where it is installed. A program asks for the one
/// with the version of the interface.
fn install(into: &Path) {
    for name in ["libmarcato.so".to_owned(), format!("libmarcato.so.{MARCATO_ABI}")] {
        symlink(built().join("libmarcato.so"), into.join(name)).unwrap();
    }
}

fn of_crate(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a command to its end, and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Compiles the example in C as `compiler` does, and returns the program.
fn compiled(compiler: &str, arguments: &[&str], into: &Path) -> PathBuf {
    let program = into.join("urgent");
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-I"]).arg(of_crate("include"));
    command.arg(of_crate("examples/c/urgent.c")).args(arguments).arg("-o").arg(&program);
    run(&mut command);
    program
}

/// Arguments that link the shared library in a directory, and find it when the program runs.
fn shared(directory: &Path) -> [String; 3] {
    install(directory);
    let at = directory.display();
    [format!("-L{at}"), "-lmarcato".to_owned(), format!("-Wl,-rpath,{at}")]
}

#[test]
fn a_c_program_sends_by_priority_over_both_engines() {
    if absent!(Need::Program("cc")) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let shared = shared(directory.path());
    let program = compiled("cc", &shared.each_ref().map(String::as_str), directory.path());
    let expected = std::fs::read_to_string(of_crate("examples/c/expected.txt")).unwrap();
    for engine in ENGINES {
        assert_eq!(run(Command::new(&program).arg(engine)), expected, "{engine}");
    }
}

#[test]
fn the_static_library_has_all_that_a_program_needs() {
    if absent!(Need::Program("cc")) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let library = built().join("libmarcato.a").display().to_string();
    // As `Libs.private` in marcato.pc says.
    let program = compiled("cc", &[&library, "-lpthread", "-ldl", "-lm", "-lgcc_s"], directory.path());
    let expected = std::fs::read_to_string(of_crate("examples/c/expected.txt")).unwrap();
    assert_eq!(run(Command::new(program).arg("quic")), expected);
}

#[test]
fn the_header_is_one_of_cpp_too() {
    if absent!(Need::Program("c++")) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("version.cpp");
    std::fs::write(
        &source,
        "#include <marcato.h>\n#include <cstdio>\nint main() { std::puts(marcato_version()); }\n",
    )
    .unwrap();
    let program = directory.path().join("version");
    let mut command = Command::new("c++");
    command.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(of_crate("include")).arg(&source);
    run(command.args(shared(directory.path())).arg("-o").arg(&program));
    assert_eq!(run(&mut Command::new(program)).trim(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn memory_of_a_c_program_is_used_as_it_may_be() {
    if absent!(Need::Program("cc"), Need::Program("valgrind")) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let shared = shared(directory.path());
    let program = compiled("cc", &shared.each_ref().map(String::as_str), directory.path());
    for engine in ENGINES {
        let mut command = Command::new("valgrind");
        // Memory that is still reachable at the end belongs to tables that live as long as the process. Values that were
        // never written are not looked at: valgrind does not follow the assembler of `ring`, and takes each tag of
        // AES-GCM for one.
        command.args(["--quiet", "--error-exitcode=9", "--undef-value-errors=no", "--leak-check=full"]);
        command.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
        run(command.arg(&program).arg(engine));
    }
}

#[test]
fn a_go_program_sends_by_priority_over_both_engines() {
    if absent!(Need::Program("cc"), Need::Program("go")) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("urgent");
    let mut command = Command::new("go");
    command.args(["build", "-o"]).arg(&program).arg(".").current_dir(of_crate("examples/go"));
    command.env("CGO_CFLAGS", format!("-I{}", of_crate("include").display()));
    command
        .env("CGO_LDFLAGS", shared(directory.path()).join(" "))
        .env("CGO_ENABLED", "1")
        .env("GOFLAGS", "-mod=mod");
    run(&mut command);
    for engine in ENGINES {
        let printed = run(Command::new(&program).arg(engine));
        assert_eq!(printed, "P0, 5 bytes\nP4, 4000000 bytes\nthe line is delivered\n", "{engine}");
    }
}

#[test]
fn a_python_program_sends_by_priority_over_both_engines() {
    if absent!(Need::Program("python3")) {
        return;
    }
    for engine in ENGINES {
        let mut command = Command::new("python3");
        command.arg(of_crate("examples/python/urgent.py")).arg(engine);
        let printed = run(command.env("MARCATO_LIBRARY", built().join("libmarcato.so")));
        assert_eq!(printed, "P0, 5 bytes\nP4, 4000000 bytes\nthe line is delivered\n", "{engine}");
    }
}
