//! Writes the manual pages of `marcato` and of its commands into a directory: `cargo run --example man -- target/man`.

use std::io::{Error, Result};
use std::path::PathBuf;

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.ok_or_else(|| Error::other("give the directory to write into"))?;
    std::fs::create_dir_all(&directory)?;
    clap_mangen::generate_to(marcato_cli::command(&marcato_papers::registry()), &directory)
}
