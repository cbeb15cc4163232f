//! Strict priority by the Linux kernel: HTB at the device of a router.

use std::process::{Command, Stdio};

use marcato_lab::Lab;
use marcato_units::Rate;

use crate::error::SimulationError;
use crate::lab::failed;

/// TOS byte of DSCP LE, and the part of it that is the DSCP (RFC 8622).
const LE: &str = "0x04 0xfc";

/// Has the kernel shape one direction of a link, with a class for DSCP LE that is served last.
///
/// Each class holds `limit` packets. HTB serves what a class is guaranteed before it looks at
/// priorities, so the guarantees are the smallest that there are.
pub(super) fn shape(lab: &Lab, link: usize, rate: Rate, limit: u64) -> Result<(), SimulationError> {
    let (host, device) = lab.device(link, false).ok_or(SimulationError::Missing("link"))?;
    let (rate, guarantee) = (rate.as_bps(), "rate 8bit quantum 1514 burst 3k cburst 3k");
    let commands = [
        "qdisc add dev DEV root handle 1: htb default 10".to_owned(),
        format!(
            "class add dev DEV parent 1: classid 1:1 htb rate {rate}bit ceil {rate}bit burst 3k cburst 3k"
        ),
        format!("class add dev DEV parent 1:1 classid 1:10 htb {guarantee} ceil {rate}bit prio 0"),
        format!("class add dev DEV parent 1:1 classid 1:20 htb {guarantee} ceil {rate}bit prio 1"),
        format!("qdisc add dev DEV parent 1:10 pfifo limit {limit}"),
        format!("qdisc add dev DEV parent 1:20 pfifo limit {limit}"),
        format!("filter add dev DEV parent 1: protocol ip prio 1 u32 match ip dsfield {LE} flowid 1:20"),
    ];
    commands.iter().try_for_each(|command| tc(lab, host, &command.replace("DEV", device)))
}

/// Runs `tc` of iproute2 on a host.
fn tc(lab: &Lab, host: &str, line: &str) -> Result<(), SimulationError> {
    let mut command = Command::new("tc");
    command
        .args(line.split_ascii_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = lab.spawn(host, command).map_err(failed)?;
    let done = child.wait_with_output().map_err(failed)?;
    match done.status.success() {
        true => Ok(()),
        false => Err(failed(format!("`tc {line}`: {}", String::from_utf8_lossy(&done.stderr).trim()))),
    }
}
