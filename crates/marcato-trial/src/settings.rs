//! Settings of TCP that the kernel has: of a host, and of a socket.
//!
//! The kernel decides some options by itself; a flow that sets one gets a warning. Options without which a
//! flow would mean something else are refused. Hosts keep no metrics of earlier connections
//! (`tcp_no_metrics_save`), which would carry thresholds from one flow to the next.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use marcato_lab::Lab;
use marcato_scenario::Experiment;
use marcato_scenario::flow::FlowKind;
use marcato_scenario::tcp::{Congestion, DelayedAck, Nagle, Tcp};
use marcato_scenario::traffic::Coupling;
use marcato_sim::scenario::BuildError;
use marcato_sim::{FlowError, TcpEnd};
use marcato_units::{Bytes, Duration, Layer};
use socket2::Socket;

use crate::error::TrialError;
use crate::route_socket::tos;

/// Bytes of the timestamps option and its padding, which the kernel counts in its MSS. RFC 7323
/// appendix A.
const TIMESTAMPS: u32 = 12;

/// Setting of a host that a flow can ask for: its key, its file, and the value that is written for
/// true.
type Switch = (&'static str, &'static str, fn(&Tcp) -> bool, [&'static str; 2]);

const SWITCHES: [Switch; 4] = [
    ("sack", "tcp_sack", |tcp| tcp.sack, ["0", "1"]),
    ("timestamps", "tcp_timestamps", |tcp| tcp.timestamps, ["0", "1"]),
    // 2 lets the other end ask for it, which is the kernel's default.
    ("ecn", "tcp_ecn", |tcp| tcp.ecn, ["2", "1"]),
    ("slow-start-after-idle", "tcp_slow_start_after_idle", |tcp| tcp.slow_start_after_idle, ["0", "1"]),
];

/// Sets up the kernels of all hosts as the flows of an experiment ask.
pub(crate) fn prepare_hosts(lab: &Lab, experiment: &Experiment) -> Result<(), TrialError> {
    let hosts: Vec<String> = lab.hosts().map(str::to_owned).collect();
    for host in &hosts {
        // Otherwise a connection would begin with the threshold and round trip of an earlier one.
        set(lab, host, "tcp_no_metrics_save", "1")?;
    }
    let mut asked: BTreeMap<(String, &str), (bool, &Switch)> = BTreeMap::new();
    for flow in &experiment.flows {
        let Some(tcp) = flow.kind.tcp() else { continue };
        for [from, to] in flow.pairs() {
            for (node, tcp) in [(from, &tcp.from), (to, &tcp.to)] {
                let Some(host) = lab.host_of(node) else { continue };
                for switch in &SWITCHES {
                    let (key, wanted) = (switch.0, switch.2(tcp));
                    let known = asked.entry((host.to_owned(), key)).or_insert((wanted, switch));
                    if known.0 != wanted {
                        return Err(TrialError::Settings { node: node.to_owned(), key });
                    }
                }
            }
        }
    }
    for ((host, _), (wanted, (_, file, _, values))) in &asked {
        set(lab, host, file, values[usize::from(*wanted)])?;
    }
    Ok(())
}

/// Writes a setting of a host's TCP.
fn set(lab: &Lab, host: &str, setting: &'static str, value: &'static str) -> Result<(), TrialError> {
    // The file shows the settings of the namespace of the thread that opens it.
    let write = move || std::fs::write(Path::new("/proc/sys/net/ipv4").join(setting), value);
    let failed = |source| TrialError::Setting { node: host.to_owned(), setting, source };
    lab.run(host, write)?.map_err(failed)
}

/// Applies the options of one end to its socket, before it is connected or listens.
pub(crate) fn prepare_socket(socket: &Socket, tcp: &Tcp, layer: Layer) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(tcp.nagle == Nagle::Off)?;
    socket.set_tos_v4(tos(layer))?;
    let options = if tcp.timestamps { TIMESTAMPS } else { 0 };
    socket.set_tcp_mss(tcp.mss + options)?;
    if let Some(lowat) = tcp.notsent_lowat {
        socket.set_tcp_notsent_lowat(u32::try_from(lowat.get()).unwrap_or(u32::MAX))?;
    }
    let default = Tcp::default();
    let size = |bytes: Bytes| usize::try_from(bytes.get()).unwrap_or(usize::MAX).min(i32::MAX as usize / 2);
    // The kernel's own buffers grow to these defaults.
    if tcp.send_buffer != default.send_buffer {
        socket.set_send_buffer_size(size(tcp.send_buffer))?;
    }
    if tcp.receive_buffer != default.receive_buffer {
        socket.set_recv_buffer_size(size(tcp.receive_buffer))?;
    }
    // Scenarios name a congestion control as the kernel does.
    let name = tcp.congestion.name();
    socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("this kernel has no congestion control `{name}`: load its module, or choose another"),
        )
    })
}

/// Returns an error for options that would change the meaning of a flow if the kernel ignored them.
pub(crate) fn check(end: &TcpEnd) -> Result<(), FlowError> {
    let refused = |what: &str| {
        Err(FlowError::Refused(format!(
            "the kernel's TCP has no {what}: remove it, or simulate the scenario"
        )))
    };
    if end.plt.is_some() {
        return refused("low layer");
    }
    if end.tcp.priority_option.is_some() {
        return refused("option with a priority");
    }
    if end.own_congestion.is_some() {
        return refused("congestion control that is a plug-in");
    }
    Ok(())
}

/// Returns an error for a flow in coupled mode over the kernel's TCP.
///
/// Its governor would see measurements of the last event of the socket, which may be several round trips
/// old: the kernel announces no acknowledgements. `marcato-net` asks for them while it holds data back.
pub(crate) fn check_coupled(experiment: &Experiment) -> Result<(), BuildError> {
    for flow in &experiment.flows {
        if let FlowKind::Messages(messages) = &flow.kind
            && messages.messaging.coupled != Coupling::Off
        {
            let source = FlowError::Refused(
                "`coupled` is not for messages over the kernel's TCP: set it to \"off\", simulate the \
                 scenario, or measure coupled mode with `marcato perf --engine tcp`"
                    .to_owned(),
            );
            return Err(BuildError::Flow { flow: flow.name.clone(), source });
        }
    }
    Ok(())
}

/// Returns a warning for each flow that asks for what the kernel decides by itself.
pub(crate) fn warnings(experiment: &Experiment) -> Vec<String> {
    let mut all = Vec::new();
    for flow in &experiment.flows {
        let Some(ends) = flow.kind.tcp() else { continue };
        let mut keys: Vec<&str> = [&ends.from, &ends.to].into_iter().flat_map(ignored).collect();
        keys.sort_unstable();
        keys.dedup();
        if !keys.is_empty() {
            let keys = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            all.push(format!(
                "the flow `{}` asks for {keys}, which the kernel's TCP decides by itself",
                flow.name
            ));
        }
    }
    all
}

/// TCP with what Linux does and the defaults of scenarios leave out.
fn linux() -> Tcp {
    let usual = Tcp::default();
    Tcp {
        delayed_ack: DelayedAck { quick: 16, ..usual.delayed_ack },
        unpaced_segments: 10,
        rto_margin: Duration::from_millis(200),
        segmentation_offload: Some(Bytes::new(64 << 10)),
        ..usual
    }
}

/// Returns whether a setting is neither the default nor what Linux does. A scenario with the default
/// asks for a simpler simulation, not for another kernel.
fn is_ignored<T: PartialEq>(tcp: &Tcp, of: impl Fn(&Tcp) -> T) -> bool {
    ![Tcp::default(), linux()].iter().any(|known| of(known) == of(tcp))
}

/// Keys of one end that the kernel ignores.
fn ignored(tcp: &Tcp) -> impl Iterator<Item = &'static str> {
    let is_cubic = matches!(tcp.congestion, Congestion::Cubic(_));
    let keys = [
        ("initial-window", is_ignored(tcp, |tcp| tcp.initial_window)),
        ("initial-ssthresh", is_ignored(tcp, |tcp| tcp.initial_ssthresh)),
        ("growth", is_ignored(tcp, |tcp| tcp.growth)),
        ("receive-buffer-from", is_ignored(tcp, |tcp| tcp.receive_buffer_from)),
        ("delayed-ack", is_ignored(tcp, |tcp| tcp.delayed_ack)),
        ("min-rto", is_ignored(tcp, |tcp| tcp.min_rto)),
        ("rto-margin", is_ignored(tcp, |tcp| tcp.rto_margin)),
        ("max-rto", is_ignored(tcp, |tcp| tcp.max_rto)),
        ("initial-rto", is_ignored(tcp, |tcp| tcp.initial_rto)),
        ("loss-detection", is_ignored(tcp, |tcp| tcp.loss_detection)),
        ("undo", is_ignored(tcp, |tcp| tcp.undo)),
        // The kernel's rule is Minshall's.
        ("nagle", tcp.nagle == Nagle::Standard),
        ("slow-start", is_ignored(tcp, |tcp| tcp.slow_start)),
        ("pacing", is_ignored(tcp, |tcp| tcp.pacing)),
        ("unpaced-segments", is_ignored(tcp, |tcp| tcp.unpaced_segments)),
        ("segmentation-offload", is_ignored(tcp, |tcp| tcp.segmentation_offload)),
        ("congestion", is_cubic && tcp.congestion != Congestion::CUBIC),
    ];
    keys.into_iter().filter_map(|(key, ignored)| ignored.then_some(key))
}

#[cfg(test)]
mod tests {
    use marcato_scenario::Scenario;

    use super::*;

    fn checked(flow: &str) -> Result<(), String> {
        let text = format!(
            r#"
            name = "test"
            duration = "3 s"
            nodes = ["client", "server"]
            link = [{{ name = "link", between = ["client", "server"], rate = "20 Mbit/s", delay = "10 ms" }}]
            [[flow]]
            name = "urgent"
            from = "client"
            to = "server"
            bulk = "p4"
            {flow}
            "#
        );
        let experiment = Scenario::parse("test.toml", &text).unwrap().run(0).unwrap().experiment;
        check_coupled(&experiment).map_err(|error| error.to_string())
    }

    #[test]
    fn coupled_messages_over_the_kernels_tcp_are_refused() {
        let problem = checked("kind = \"messages\"\ncoupled = \"fast\"").unwrap_err();
        assert!(problem.contains("`urgent`") && problem.contains("set it to \"off\""), "{problem}");
        // A session governs itself, in a lab as in the simulator.
        assert_eq!(checked("kind = \"quic\"\ncoupled = \"fast\""), Ok(()));
        assert_eq!(checked("kind = \"messages\""), Ok(()));
    }
}
