//! Writes the compiled eBPF programs of this build to a file, for builds on machines without clang.
//!
//! ```console
//! cargo run -p marcato-kernel --example object -- crq.bpf.o
//! MARCATO_BPF_OBJECT=$PWD/crq.bpf.o cargo build --release -p marcato-cli
//! ```

use std::process::ExitCode;

use marcato_kernel::OBJECT;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("name the file to write, such as crq.bpf.o");
        return ExitCode::from(2);
    };
    if OBJECT.is_empty() {
        eprintln!("this build has no eBPF programs: install clang and libbpf-dev, and build again");
        return ExitCode::from(2);
    }
    if let Err(error) = std::fs::write(&path, OBJECT) {
        eprintln!("{}: {error}", path.display());
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}
