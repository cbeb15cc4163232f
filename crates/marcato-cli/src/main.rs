//! The command `marcato`; see the library crate beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(u8::from(marcato_cli::run_process()))
}
