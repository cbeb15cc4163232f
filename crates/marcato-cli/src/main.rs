//! The command `marcato`. Its code is in the library crate of this package.

use std::process::ExitCode;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(u8::from(marcato_cli::run_process()))
}
