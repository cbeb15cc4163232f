//! nginx.

use std::path::Path;
use std::process::Command;

use marcato_lab::Lab;
use marcato_web::Identity;
use rustix::process::Signal;
use tempfile::TempDir;

use super::super::site::{Site, TYPES};
use super::{Plan, Running, files, inherited, program};
use crate::error::SimulationError;

/// Starts nginx with a socket that is open already, as it passes those on when it replaces itself.
pub(super) fn start(
    lab: &Lab,
    plan: &Plan<'_>,
    listener: &std::net::TcpListener,
) -> Result<Running, SimulationError> {
    // Small records and chunks: nothing that is less urgent is ahead by more than 4 kB.
    let lean = "ssl_buffer_size 4k; http2_chunk_size 4k; open_file_cache max=1000;";
    let listen = plan.port.to_string();
    let files = files(plan.site, plan.identity, |directory| configuration(directory, &listen, 1, lean))?;
    let mut command = command(files.path());
    command.env("NGINX", format!("{};", inherited(listener)?));
    // Killed, it would leave its workers behind.
    program(lab, command, files, Signal::TERM)
}

/// nginx as it comes, at an address: its files, and the command that starts it. It may keep files open.
pub(in super::super) fn plain(
    site: &Site,
    identity: &Identity,
    listen: &str,
    workers: usize,
    caches: bool,
) -> Result<(TempDir, Command), SimulationError> {
    let more = if caches { "open_file_cache max=1000;" } else { "" };
    let files = files(site, identity, |directory| configuration(directory, listen, workers, more))?;
    let command = command(files.path());
    Ok((files, command))
}

fn command(files: &Path) -> Command {
    let mut command = Command::new("nginx");
    command.arg("-c").arg(files.join("configuration")).arg("-e").arg(files.join("errors"));
    command
}

fn configuration(directory: &Path, listen: &str, workers: usize, more: &str) -> String {
    let dir = directory.display();
    let types: String =
        TYPES.iter().map(|(extension, content_type)| format!("{content_type} {extension}; ")).collect();
    format!(
        "user root; worker_processes {workers}; daemon off; pid {dir}/pid; error_log {dir}/errors;
        events {{}}
        http {{
            access_log off; keepalive_requests 1000000000; sendfile on;
            types {{ {types} }}
            client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c;
            uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;
            server {{
                listen {listen} ssl http2; root {dir}/site;
                ssl_certificate {dir}/chain.pem; ssl_certificate_key {dir}/key.pem; ssl_protocols TLSv1.3;
                {more}
            }}
        }}"
    )
}
