//! The command `marcato`. Its code is in the library crate of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(u8::from(marcato_cli::run_process()))
}
