//! Writes the compiled eBPF programs of this build to files, for builds on machines without clang: those of CRQ, and
//! those of marks.
//!
//! ```console
//! cargo run -p marcato-kernel --example object -- crq.bpf.o marks.bpf.o
//! MARCATO_BPF_OBJECT=$PWD/crq.bpf.o MARCATO_BPF_MARKS_OBJECT=$PWD/marks.bpf.o cargo build --release -p marcato-cli
//! ```

use std::process::ExitCode;

use marcato_kernel::{MARKS_OBJECT, OBJECT};

fn main() -> ExitCode {
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    if paths.is_empty() || paths.len() > 2 {
        eprintln!("name the files to write, such as crq.bpf.o marks.bpf.o");
        return ExitCode::from(2);
    }
    for (path, object) in paths.iter().zip([OBJECT, MARKS_OBJECT]) {
        if object.is_empty() {
            eprintln!("this build has no eBPF programs: install clang and libbpf-dev, and build again");
            return ExitCode::from(2);
        }
        if let Err(error) = std::fs::write(path, object) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
