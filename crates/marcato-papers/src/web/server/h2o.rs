//! h2o.

use std::path::Path;
use std::process::Command;

use marcato_lab::Lab;
use rustix::process::Signal;

use super::super::site::TYPES;
use super::{Plan, Running, files, inherited, program};
use crate::error::SimulationError;

/// Starts h2o with a socket that is open already, as `Server::Starter` does.
pub(super) fn start(
    lab: &Lab,
    plan: &Plan<'_>,
    listener: &std::net::TcpListener,
) -> Result<Running, SimulationError> {
    let port = plan.port;
    let files = files(plan.site, plan.identity, |directory| configuration(directory, port))?;
    let mut command = Command::new("h2o");
    command.arg("-c").arg(files.path().join("configuration"));
    command.env("SERVER_STARTER_PORT", format!("0.0.0.0:{port}={}", inherited(listener)?));
    program(lab, command, files, Signal::KILL)
}

/// Configuration that writes only what TCP can send now, on links of every kind: by default h2o does so
/// from 50 ms of round trip on, and up to a window of 64 kB.
fn configuration(directory: &Path, port: u16) -> String {
    let dir = directory.display();
    let types: String = TYPES
        .iter()
        .map(|(extension, content_type)| format!("  \"{content_type}\": \".{extension}\"\n"))
        .collect();
    format!(
        "user: root
num-threads: 1
pid-file: {dir}/pid
error-log: {dir}/errors
http2-latency-optimization-min-rtt: 10
http2-latency-optimization-max-additional-delay: 1
http2-latency-optimization-max-cwnd: 1000000
http2-reprioritize-blocking-assets: ON
file.mime.addtypes:
{types}listen:
  host: 0.0.0.0
  port: {port}
  ssl:
    certificate-file: {dir}/chain.pem
    key-file: {dir}/key.pem
    minimum-version: TLSv1.2
    neverbleed: OFF
    ocsp-update-interval: 0
hosts:
  default:
    paths:
      \"/\":
        file.dir: {dir}/site
"
    )
}
