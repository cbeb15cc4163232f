//! Caddy.

use std::path::Path;
use std::process::{Command, Stdio};

use marcato_lab::Lab;
use rustix::process::Signal;

use super::{NAME, Plan, Running, files, program};
use crate::error::SimulationError;
use crate::lab::failed;

/// Starts Caddy. It takes no socket that is open already, so the routes of its host choose the congestion
/// control.
pub(super) fn start(lab: &Lab, plan: &Plan<'_>) -> Result<Running, SimulationError> {
    route(lab, plan.congestion)?;
    let (port, http3) = (plan.port, plan.http3);
    let files = files(plan.site, plan.identity, |directory| configuration(directory, port, http3))?;
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(files.path().join("configuration"));
    command.env("HOME", files.path()).env("XDG_CONFIG_HOME", files.path());
    command.env("XDG_DATA_HOME", files.path());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    program(lab, command, files, Signal::KILL)
}

/// Sets the congestion control of all routes of the host `server`.
fn route(lab: &Lab, congestion: &str) -> Result<(), SimulationError> {
    let ip = |arguments: Vec<&str>| {
        let mut command = Command::new("ip");
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let done = lab.spawn("server", command).map_err(failed)?.wait_with_output().map_err(failed)?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        Err(SimulationError::Lab(format!("ip: {}", String::from_utf8_lossy(&done.stderr).trim())))
    };
    let own = |route: &&str| !["local", "broadcast"].iter().any(|kind| route.starts_with(kind));
    for route in ip(vec!["-4", "route", "show", "table", "all"])?.lines().filter(own) {
        let words = ["-4", "route", "change"].into_iter().chain(route.split_whitespace());
        ip(words.chain(["congctl", congestion]).collect())?;
    }
    Ok(())
}

fn configuration(directory: &Path, port: u16, http3: bool) -> String {
    let protocols = if http3 { "h1 h2 h3" } else { "h1 h2" };
    let dir = directory.display();
    format!(
        "{{
    admin off
    auto_https off
    servers {{
        protocols {protocols}
    }}
}}
https://{NAME}:{port} {{
    tls {dir}/chain.pem {dir}/key.pem
    root * {dir}/site
    file_server
}}
"
    )
}
