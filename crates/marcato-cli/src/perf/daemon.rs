//! Server that runs in the background.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::PerfError;
use crate::Status;
use crate::output;

/// Beginning of the line that ends the greeting of a server in the background.
pub(crate) const PID: &str = "pid ";

/// Starts this process's command line again in the background, and prints its greeting.
///
/// The new process has a process group of its own, so that no signal of the terminal reaches it. A
/// fork would lose the threads of this process.
pub(crate) fn start(stdout: &mut dyn Write) -> Result<Status, PerfError> {
    let program = std::env::current_exe().map_err(PerfError::Runtime)?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(PerfError::Runtime)?;
    if let Some(said) = child.stdout.take() {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            output::print(stdout, &format!("{line}\n")).map_err(PerfError::Print)?;
            if line.starts_with(PID) {
                return Ok(Status::Ok);
            }
        }
    }
    // The server has ended before it was ready.
    let mut error = String::new();
    if let Some(said) = &mut child.stderr {
        said.read_to_string(&mut error).map_err(PerfError::Runtime)?;
    }
    child.wait().map_err(PerfError::Runtime)?;
    Err(PerfError::Daemon(error.trim().trim_start_matches("error: ").to_owned()))
}
