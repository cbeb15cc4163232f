//! Arguments of the command line.

use std::ffi::OsString;
#[cfg(target_os = "linux")]
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, value_parser};
use clap_complete::Shell;
#[cfg(target_os = "linux")]
use marcato_kernel::{Dscp, PIN_DIRECTORY};
use marcato_net::Coupling;
use marcato_papers::{Registry, RunOptions, SeedError};
use marcato_quic::Fingerprint;
use marcato_report::{COMMIT, VERSION, World};
#[cfg(target_os = "linux")]
use marcato_units::Priority;
use marcato_units::{Bytes, Rate, Seed};

#[cfg(target_os = "linux")]
use crate::crq::{LEAST_FLOWS, MOST_FLOWS, PresetName, Selection, Settings};
use crate::perf::load::{BulkSpec, SourceSpec};
use crate::perf::plan::{EngineName, LaneSpec, coupling_help};
use crate::perf::scheduler::{PathName, StreamName};
use crate::perf::{self, quantity};
#[cfg(target_os = "linux")]
use crate::run::{OfLevel, of_level};
use crate::words::words;

/// Version, with the commit of the build.
static PROGRAM: LazyLock<String> = LazyLock::new(|| format!("{VERSION} ({COMMIT})"));

/// Sends urgent network data first: transport, web server, router queues, and a simulator.
#[derive(Debug, Parser)]
#[command(
    name = "marcato",
    version = PROGRAM.as_str(),
    after_help = "Examples:
  marcato sim examples/codel-cubic.toml --out out/codel
  marcato papers cats --out out/cats
  marcato demo --out out/demo

`marcato COMMAND --help` has examples of each command."
)]
struct Marcato {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the experiments of a paper, of coupled mode or of the web server, and compares them with
    /// published values
    ///
    /// The exit status is 0 when every row lies in its band, 1 when one lies outside, and 2 when the
    /// experiments could not be run. `web` needs --world lab. `all` runs the experiments that exist in the
    /// chosen world.
    #[command(after_help = "Examples:
  marcato papers cats --out out/cats
  marcato papers cats --export figures
  marcato papers figures --out out/figures
  marcato papers cwr --repeat 5 --jobs 4 --out out/cwr
  marcato papers all --quick --format csv > rows.csv")]
    Papers(Papers),

    /// Compares the simulator with theory
    ///
    /// The rows cover formulas of TCP's throughput, CUBIC, BBR, DCTCP, CoDel, queueing theory, priority
    /// queues, and exact transfer times. Each row has the theoretical and the simulated value. Most have a
    /// band, the interval in which the simulated value must lie. The exit status is 0 when every row lies
    /// in its band, 1 when one lies outside, and 2 when nothing could be run.
    #[command(after_help = "Examples:
  marcato validate
  marcato validate --quick --jobs 2
  marcato validate --repeat 5 --out out/validate")]
    Validate(Validate),

    /// Loads web pages over real sockets through an emulated link, first come first served and with Marcato
    ///
    /// Over QUIC the page is that of the CATS paper, beside a source of small critical messages. Over
    /// HTTP/2, Chromium loads a page if it is installed; otherwise a built-in client does. The emulated
    /// links need no privileges. If the system allows network namespaces, the link of HTTP/2 runs between
    /// two of them, and the page is also loaded over the kernel's TCP. Otherwise a relay on the loopback
    /// interface stands in for the link of HTTP/2. The exit status is 0 when urgent data arrived earlier
    /// with Marcato, 1 when it did not, and 2 when nothing could be run.
    #[command(after_help = "Examples:
  marcato demo --out out/demo
  marcato demo --loads 10 --queue droptail --loss 0.02
  marcato demo --open")]
    Demo(Demo),

    /// Measures message completion times and throughput of each priority between two hosts
    ///
    /// Start `marcato perf server` on one host. It prints the command for clients, with the fingerprint of
    /// its certificate: `marcato perf client HOST --fingerprint HEX`. With --cert, the server shows a
    /// certificate of yours, which clients check by --ca or the system's root certificates.
    #[command(after_help = "Examples:
  marcato perf server --cert chain.pem --key key.pem
  marcato perf client server.example --ca ca.pem --duration 30s")]
    Perf(Perf),

    /// Runs a scenario in virtual time, or every combination of its grid with every seed
    ///
    /// The exit status is 0 when everything ran, 1 when a claim of the file is off, and 2 when something
    /// could not be run.
    #[command(after_help = "Examples:
  marcato sim examples/codel-cubic.toml --explain
  marcato sim examples/codel-cubic.toml --set topology.queue=codel --seed 1 --out out/codel
  marcato sim examples/reno-loss.toml --jobs 2 --format csv > means.csv
  cat examples/cats.toml | marcato sim -")]
    Sim(Sim),

    /// Runs real programs on a scenario's network: hosts are network namespaces, links are emulated (Linux)
    ///
    /// It needs root, or a system that lets users create user namespaces and open /dev/net/tun.
    #[cfg(target_os = "linux")]
    #[command(after_help = "Examples:
  marcato lab run examples/codel-cubic.toml -- ping -c 3 server-1
  marcato lab shell examples/multipath.toml --host client-1
  marcato lab selftest")]
    Lab(Lab),

    /// Puts congestion-responsive queuing (CRQ) on a network device of this host (Linux)
    ///
    /// Begin with `monitor`, which observes flows and alters no packet and no queue. CRQ needs root, or the
    /// capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and iproute2.
    #[cfg(target_os = "linux")]
    #[command(after_help = "Examples:
  marcato crq monitor eth0
  marcato crq monitor eth0 --duration 1d --every 1m --report eth0.html
  marcato crq attach eth0 --rate 95mbit --dry-run
  marcato crq status eth0 --live
  marcato crq detach eth0")]
    Crq(Crq),

    /// Says what this machine's kernel allows, what is lost without it, and how to get it (Linux)
    ///
    /// The examination changes nothing. It covers eBPF, queue disciplines, namespaces and options of sockets.
    /// `denied` means that this process may not use a feature, or may not ask for it: run the command as
    /// the user who will run the others.
    #[cfg(target_os = "linux")]
    #[command(after_help = "Examples:
  marcato doctor
  marcato doctor --format json")]
    Doctor(Doctor),

    /// Runs a command whose sockets are marked: by priority, by code point, or by rules (Linux)
    ///
    /// The command runs in a control group of its own. Programs of eBPF set DSCP and SO_PRIORITY of its sockets,
    /// and replace those that the command sets. It needs root, or the capabilities CAP_BPF, CAP_NET_ADMIN
    /// and CAP_PERFMON, and a hierarchy of cgroup v2 that it may write to. Signals are passed on. The exit status is that of the
    /// command, 128 and the number of a signal that ended it, or 2 if it could not be run. Packets are
    /// marked, and no more: a network has to have a queue that looks at the mark.
    #[cfg(target_os = "linux")]
    #[command(after_help = "Examples:
  marcato run --priority p0 -- ssh server.example
  marcato run --priority p4 -- rsync -a photos server.example:
  marcato run --rules rules.toml -- sh
  marcato run --list")]
    Run(Run),

    /// Serves a directory, or proxies to an origin server, over HTTP/1.1 and HTTP/2, urgent responses first
    ///
    /// The server sends first what a page needs first. It uses the priorities that browsers send, or the
    /// type of the file if they send none. With --config, it serves several sites by host name. On SIGINT
    /// or SIGTERM it finishes open requests and ends. SIGHUP reloads the configuration and the certificates
    /// and reopens the access log; SIGUSR1 only reopens the log. The access log goes to standard output,
    /// messages of the server to standard error.
    #[command(after_help = "Examples:
  marcato serve site
  marcato serve --to 127.0.0.1:3000
  marcato serve site --listen :443 --cert chain.pem --key key.pem
  marcato serve site --plaintext --listen localhost:8080 --listing
  marcato serve site --metrics 127.0.0.1:9187 --watch
  marcato serve --config /etc/marcato/serve.toml --check
  marcato serve --to unix:/run/app.sock --print-config")]
    Serve(Serve),

    /// Prints a script that completes command lines in a shell
    ///
    /// Save the script where your shell loads completions, as in these examples.
    #[command(after_help = "Examples:
  marcato completions bash > ~/.local/share/bash-completion/completions/marcato
  marcato completions zsh > ~/.zfunc/_marcato
  marcato completions fish > ~/.config/fish/completions/marcato.fish")]
    Completions(Completions),

    /// Writes the pages of the manual into a directory
    ///
    /// For those who make packages: `marcato.1`, and one page for each command.
    #[command(hide = true)]
    Manual(Manual),
}

/// Arguments of `marcato serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Directory whose files are served
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,

    /// Origin server to which requests are proxied: http://, https://, h2c:// or unix:/PATH; http:// without a scheme
    #[arg(long, value_name = "URL", conflicts_with = "directory", value_parser = origin)]
    pub(crate) to: Option<String>,

    /// File with sites, listeners and limits (TOML)
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "directory", "to", "listen", "cert", "key", "plaintext", "listing", "coupled", "no_http3", "quiet",
            "metrics", "watch", "access_log", "access_log_format",
        ]
    )]
    pub(crate) config: Option<PathBuf>,

    /// Report all errors of the file, and everything it names that cannot be opened; serve nothing
    #[arg(long, requires = "config")]
    pub(crate) check: bool,

    /// Print the configuration as a file, with the default of each key that it omits; serve nothing
    #[arg(long, conflicts_with = "check")]
    pub(crate) print_config: bool,

    /// Address to listen on, such as 192.0.2.1:443, localhost:8080 or :8080; may be repeated
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8443", value_parser = listening)]
    pub(crate) listen: Vec<Listening>,

    /// Certificate chain (PEM) [default: a new self-signed certificate for localhost]
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,

    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,

    /// Serve without TLS. Browsers then use HTTP/1.1, which cannot reorder responses
    #[arg(long, conflicts_with_all = ["cert", "key"])]
    pub(crate) plaintext: bool,

    /// List directories that have no index.html
    #[arg(long, conflicts_with = "to")]
    pub(crate) listing: bool,

    /// When to limit less urgent data in flight, so that the bottleneck's queue stays short
    #[arg(long, value_parser = words(coupling_help), default_value_t)]
    pub(crate) coupled: Coupling,

    /// Do not answer HTTP/3 on the UDP ports of the same numbers
    #[arg(long)]
    pub(crate) no_http3: bool,

    /// Write no access log
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// File of the access log, instead of standard output
    #[arg(long, value_name = "FILE", conflicts_with = "quiet")]
    pub(crate) access_log: Option<PathBuf>,

    /// Format of the access log
    #[arg(long, value_enum, default_value_t = LineFormat::Pairs, conflicts_with = "quiet")]
    pub(crate) access_log_format: LineFormat,

    /// Lowest severity of the server's messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LevelName::Warn)]
    pub(crate) log_level: LevelName,

    /// Format of the server's messages
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = MessageFormat::Text)]
    pub(crate) log_format: MessageFormat,

    /// Address at which Prometheus reads metrics, at /metrics
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<std::net::SocketAddr>,

    /// Keep the last connections in memory, and show them at /.marcato/ to clients on this machine
    #[arg(long)]
    pub(crate) watch: bool,
}

/// Addresses of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listening(pub(crate) Vec<std::net::SocketAddr>);

/// Reads an address to listen at: one with a port, a name with a port, or a port alone for all addresses.
fn listening(text: &str) -> Result<Listening, String> {
    if let Ok(addr) = text.parse() {
        return Ok(Listening(vec![addr]));
    }
    let remedy = "write 192.0.2.1:443, localhost:8080, or :8080 for all addresses";
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port: u16 = port.parse().map_err(|_| format!("no port: {remedy}"))?;
    if matches!(host, "" | "*") {
        // Sockets of IPv6 take both versions. A system may have none.
        let all = ["[::]:0", "0.0.0.0:0"];
        let mut bound = all.iter().filter_map(|addr| std::net::UdpSocket::bind(addr).ok()?.local_addr().ok());
        let any = bound.next().map_or(std::net::Ipv4Addr::UNSPECIFIED.into(), |addr| addr.ip());
        return Ok(Listening(vec![(any, port).into()]));
    }
    let found = std::net::ToSocketAddrs::to_socket_addrs(&(host, port));
    let mut addrs: Vec<_> =
        found.map_err(|error| format!("{host} is not known ({error}): {remedy}"))?.collect();
    addrs.dedup();
    if addrs.is_empty() {
        return Err(format!("{host} has no address: {remedy}"));
    }
    Ok(Listening(addrs))
}

/// Reads an origin: a URL, or a host with a port.
#[expect(clippy::unnecessary_wraps, reason = "the parser of a value returns a result")]
fn origin(text: &str) -> Result<String, String> {
    Ok(if text.contains("://") || text.starts_with("unix:") {
        text.to_owned()
    } else {
        format!("http://{text}")
    })
}

/// Format of the lines of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LineFormat {
    /// Pairs of key=value
    Pairs,
    /// Common Log Format
    Common,
    /// Common Log Format with referer and user agent
    Combined,
    /// Object of JSON
    Json,
}

/// Severity of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LevelName {
    /// None
    Off,
    /// Errors
    Error,
    /// Warnings, such as the reason of a response with status 502
    Warn,
    /// Changes of state, such as an origin that is healthy again
    Info,
    /// Whatever helps to find a fault
    Debug,
}

/// Format of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MessageFormat {
    /// Line of text
    Text,
    /// Object of JSON
    Json,
}

/// Arguments of `marcato lab`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) action: LabAction,
}

/// Action of `marcato lab`.
#[cfg(target_os = "linux")]
#[derive(Debug, Subcommand)]
pub(crate) enum LabAction {
    /// Runs a command on a host, and prints what the links carried
    ///
    /// The exit status is that of the command; 127 if it was not found, 126 if it could not be started, and 125 if
    /// there was no lab. Hosts know each other
    /// by name. When the command ends, the lab kills all that it left running.
    #[command(after_help = "Examples:
  marcato lab run --link '12 Mbit/s, 20 ms, codel' -- ping -c 3 server
  marcato lab run --link lte --loss 1% -- sh -c 'marcato lab exec server -- iperf3 -sD; \
      sleep 1; iperf3 -c server'
  marcato lab run examples/codel-cubic.toml -- ping -c 3 server-1
  marcato lab run examples/codel-cubic.toml --host server-1 -- sh -c 'iperf3 -s -D; sleep 1000'")]
    Run(LabRun),

    /// Runs a shell on a host
    #[command(after_help = "Examples:
  marcato lab shell --link '12 Mbit/s, 20 ms' --up '1 Mbit/s'
  marcato lab shell examples/codel-cubic.toml
  marcato lab shell examples/multipath.toml --host server-1")]
    Shell(LabShell),

    /// Runs a command on another host, inside a lab
    ///
    /// The lab is that of the command or shell from which it is called.
    #[command(after_help = "Examples:
  marcato lab exec server-1 -- iperf3 -s
  marcato lab run examples/codel-cubic.toml -- sh -c 'marcato lab exec server-1 -- iperf3 -sD; \
      sleep 1; iperf3 -c server-1'")]
    Exec(LabExec),

    /// Makes the connections of a program worse, without privileges: a proxy of TCP or UDP with a link and faults
    ///
    /// Clients connect to the address of --listen instead of that of --to. Bytes take the rate and the delay of the
    /// link; all connections share it. Faults are added while it works, by the HTTP API of --api, which has the paths and
    /// documents of toxiproxy. It works until it is interrupted, and then prints what it carried.
    #[command(after_help = "Examples:
  marcato lab proxy --listen 127.0.0.1:9000 --to 127.0.0.1:8080 --link '12 Mbit/s, 20 ms'
  marcato lab proxy --listen 127.0.0.1:5353 --to 127.0.0.1:53 --udp --link '50 ms' --loss 5%
  marcato lab proxy --file proxies.json --api 127.0.0.1:8474")]
    Proxy(LabProxy),

    /// Runs a scenario's flows over the kernel's sockets, and reports the same quantities as `marcato sim`
    ///
    /// TCP and its congestion control are the kernel's. Messages, requests and QUIC sessions come from the
    /// simulator's code, over real sockets. A trial takes as long as the scenario. If the scenario has a
    /// grid, its first run is used; choose another with --set and --seed.
    #[command(after_help = "Examples:
  marcato lab trial examples/codel-cubic.toml
  marcato lab trial examples/multipath.toml --seed 2 --out out/trial")]
    Trial(LabTrial),

    /// Compares simulation and lab: every run of a scenario in both
    ///
    /// Each table and chart of the report shows both, and by how much the lab differs from the simulation.
    /// The runs take place one after another, each as long as its scenario.
    #[command(after_help = "Examples:
  marcato lab compare examples/codel-cubic.toml --out out/compare
  marcato lab compare examples/codel-cubic.toml --seed 1 --format csv")]
    Compare(LabTrial),

    /// Kills commands that outlived their lab
    ///
    /// A lab that ends in order kills all of its processes. If `marcato lab` itself is killed, the kernel
    /// kills the commands that it started, but not the processes that these started in turn. This command
    /// kills those.
    #[command(after_help = "Examples:
  marcato lab clean --dry-run
  marcato lab clean")]
    Clean(LabClean),

    /// Measures the precision and speed of labs on this machine
    ///
    /// The table names each target. The exit status is 0 when all targets were met, 1 when one was missed,
    /// and 2 if the lab could not be created.
    #[command(after_help = "Examples:
  marcato lab selftest
  marcato lab selftest --span 10 --format json")]
    Selftest(LabSelftest),
}

#[cfg(target_os = "linux")]
impl LabAction {
    /// Returns whether it has the exit status of another command.
    pub(crate) const fn runs_a_command(&self) -> bool {
        matches!(self, Self::Run(_) | Self::Shell(_) | Self::Exec(_))
    }
}

/// Arguments of `marcato lab run`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct LabRun {
    #[command(flatten)]
    pub(crate) network: LabNetwork,

    /// The command, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Arguments of `marcato lab shell`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct LabShell {
    #[command(flatten)]
    pub(crate) network: LabNetwork,
}

/// Arguments of `marcato lab exec`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct LabExec {
    /// The host
    pub(crate) host: String,

    /// The command, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Network of a lab, and the host of its command.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct LabNetwork {
    /// The scenario; its flows are not started, and it needs none. `-` reads it from standard input. Instead of a file,
    /// --link describes a link
    pub(crate) file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) shape: LabShape,

    /// Host of the command [default: where the first flow begins, or else the first node]
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,

    /// Override a key of the file, for example link.bottleneck.rate="5 Mbit/s"; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Seed of losses and jitter [default: that of the file]
    #[arg(long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<u64>,

    /// Keep TCP segments of up to 64 kB whole. This is faster, but queues, losses and rates act on whole
    /// segments
    #[arg(long)]
    pub(crate) offload: bool,

    /// Do not print what the links carried
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Write the rate, queue, drops and losses of each link into this file, as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,

    /// Interval of --stats and --live
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = quantity::span_or_seconds)]
    pub(crate) every: Duration,

    /// Show the rate, queue and drops of each link on standard error while the command runs
    #[arg(long)]
    pub(crate) live: bool,

    /// Write the packets that reach their hosts into this file, as pcapng with an interface for each
    /// direction of a link
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,

    /// Capture what comes out of this link instead, also if it goes on from there; may be repeated
    #[arg(long, value_name = "LINK", requires = "pcap")]
    pub(crate) pcap_link: Vec<String>,

    /// Write every event of every packet into this file, as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) packets: Option<PathBuf>,
}

/// Link of a lab without a file: between the hosts `client` and `server`.
#[cfg(target_os = "linux")]
#[derive(Debug, Default, Args)]
pub(crate) struct LabShape {
    /// Link between `client` and `server`, instead of a file, for example '12 Mbit/s, 20 ms, codel'. Repeated, the
    /// links follow each other. Pieces: a rate, a delay (one way), a queue (droptail, codel, fq-codel, pie, crq), a
    /// preset (3g, lte, 5g, wifi, dsl, cable, geo, leo), or a word with a value: up, down, rtt, loss, jitter, reorder,
    /// duplicate, corrupt, trace, mtu, limit
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    pub(crate) link: Vec<String>,

    /// Pieces that hold from the client to the server only
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    pub(crate) up: Option<String>,

    /// Pieces that hold from the server to the client only
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    pub(crate) down: Option<String>,

    /// Share of packets that are lost, for example 1%
    #[arg(long, value_name = "SHARE", conflicts_with = "file")]
    pub(crate) loss: Option<String>,

    /// Variation of the delay: 5 ms is up to 5 ms less or more. Packets keep their order
    #[arg(long, value_name = "SPAN", conflicts_with = "file")]
    pub(crate) jitter: Option<String>,

    /// Share of packets that skip the delay, and so overtake others
    #[arg(long, value_name = "SHARE", conflicts_with = "file")]
    pub(crate) reorder: Option<String>,

    /// Share of packets that arrive twice
    #[arg(long, value_name = "SHARE", conflicts_with = "file")]
    pub(crate) duplicate: Option<String>,

    /// Share of packets of which one bit is inverted
    #[arg(long, value_name = "SHARE", conflicts_with = "file")]
    pub(crate) corrupt: Option<String>,

    /// File in mahimahi's format, instead of a rate: a millisecond on each line, at which 1504 bytes may leave
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) trace: Option<String>,
}

/// Arguments of `marcato lab trial` and `marcato lab compare`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct LabTrial {
    /// The scenario; `-` reads it from standard input
    pub(crate) file: PathBuf,

    /// Override a key of the file, for example link.bottleneck.rate="5 Mbit/s"; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Run with this seed only [default: the first seed of the file for `trial`, all for `compare`]
    #[arg(long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<u64>,

    /// Keep TCP segments of up to 64 kB whole. This is faster, but queues, losses and rates act on whole
    /// segments
    #[arg(long)]
    pub(crate) offload: bool,

    /// Write tables, series, figures, captures and a report into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Format of the results on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Arguments of `marcato lab proxy`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct LabProxy {
    /// Address on which clients connect; port 0 lets the system choose
    #[arg(long, value_name = "ADDR", requires = "to")]
    pub(crate) listen: Option<String>,

    /// Address of the target
    #[arg(long, value_name = "ADDR", requires = "listen")]
    pub(crate) to: Option<String>,

    /// Pass on datagrams of UDP instead of connections of TCP
    #[arg(long, requires = "listen")]
    pub(crate) udp: bool,

    #[command(flatten)]
    pub(crate) shape: LabShape,

    /// Proxies in a file: a list as that of toxiproxy in JSON, or tables [[proxy]] in TOML
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Serve the HTTP API on this address. toxiproxy's is 127.0.0.1:8474
    #[arg(long, value_name = "ADDR")]
    pub(crate) api: Option<String>,

    /// Seed of losses, jitter and slices [default: 1]
    #[arg(long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<u64>,

    /// Do not print what the proxies carried
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Arguments of `marcato lab clean`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct LabClean {
    /// Print what would be killed, and kill nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `marcato lab selftest`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct LabSelftest {
    /// Seconds of each measurement
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u16).range(1..=3600))]
    pub(crate) span: u16,

    /// Format of the results on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Arguments of `marcato crq`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct Crq {
    #[command(subcommand)]
    pub(crate) action: CrqAction,
}

/// Action of `marcato crq`.
#[cfg(target_os = "linux")]
#[derive(Debug, Subcommand)]
pub(crate) enum CrqAction {
    /// Watches a device's flows and shows their verdicts, without altering a packet or a queue
    ///
    /// The command attaches eBPF programs that only observe. It removes them when it ends, also by Ctrl-C
    /// or SIGTERM. After SIGKILL they stay; `marcato crq detach` removes them.
    #[command(after_help = "Examples:
  marcato crq monitor eth0
  marcato crq monitor eth0 --duration 10m --every 1m --format json > flows.jsonl")]
    Monitor(CrqMonitor),

    /// Puts two queues on a device, and the programs that choose between them for each flow
    ///
    /// Queues and programs stay after the command has ended. If something else removes the programs, all
    /// traffic uses the standard queue, at the full rate.
    #[command(after_help = "Examples:
  marcato crq attach eth0 --rate 95mbit --dry-run
  marcato crq attach eth0 --rate 1gbit --standard droptail --responsive codel-ecn
  marcato crq attach ifb0 --rate 475mbit --reverse eth0
  marcato crq attach eth0 --parent 1:10 --parent 1:20
  marcato crq attach eth1 --rate 950mbit --subscribers ShapedDevices.csv
  marcato crq attach eth0 --config /etc/marcato/crq/eth0.toml")]
    Attach(CrqAttach),

    /// Shows queues, verdicts and flows of a device, or of all that have CRQ
    #[command(after_help = "Examples:
  marcato crq status
  marcato crq status --all
  marcato crq status eth0 --live --addresses
  marcato crq status eth0 --format json --top 0")]
    Status(CrqStatus),

    /// Changes settings of a device that has CRQ, and keeps what is known of its flows
    ///
    /// A setting that is not given stays as it is.
    #[command(after_help = "Examples:
  marcato crq set eth0 --share 60
  marcato crq set eth0 --rate 90mbit --preset paper --dry-run")]
    Set(CrqSet),

    /// Takes CRQ off a device, which gets the system's default queue
    #[command(after_help = "Examples:
  marcato crq detach eth0
  marcato crq detach eth0 --dry-run")]
    Detach(CrqDetach),

    /// Reads the file of a device's subscribers again, and changes what has changed
    ///
    /// A mistake in the file changes nothing. Other subscribers keep their packets and verdicts.
    #[command(after_help = "Examples:
  marcato crq reload eth1
  marcato crq reload eth1 --dry-run")]
    Reload(CrqReload),

    /// Removes programs whose device was deleted, in any network namespace
    ///
    /// `attach` does this too, and `detach` for the device's name.
    #[command(after_help = "Examples:
  marcato crq clean --dry-run
  marcato crq clean")]
    Clean(CrqClean),

    /// Serves the metrics of all devices that have CRQ to Prometheus
    #[command(after_help = "Examples:
  marcato crq metrics
  marcato crq metrics --listen [::1]:9469")]
    Metrics(CrqMetrics),
}

/// Arguments of `marcato crq monitor`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct CrqMonitor {
    /// Rules by which flows are judged [default: marcato]
    #[arg(long, value_enum)]
    pub(crate) preset: Option<PresetName>,

    /// Number of flows that are followed at the same time [default: 16384]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(i64::from(LEAST_FLOWS)..=i64::from(MOST_FLOWS)))]
    pub(crate) flows: Option<u32>,

    /// Device by which the other direction of the flows leaves, if it does not enter by the device itself [default: for an IFB, the device whose packets are redirected to it]
    #[arg(long, value_name = "DEV")]
    pub(crate) reverse: Option<String>,

    /// Time after which the command ends [default: at Ctrl-C]
    #[arg(long, value_name = "SPAN", value_parser = quantity::span_or_seconds)]
    pub(crate) duration: Option<Duration>,

    /// Write a page into this file at the end: shares by verdict, the largest unresponsive flows (with
    /// addresses if --addresses is given), and what attach would have done
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) show: CrqShow,

    #[command(flatten)]
    pub(crate) change: CrqChange,
}

/// Arguments of `marcato crq attach`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct CrqAttach {
    /// TOML file of settings with the names of these flags; a flag overrides the file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) settings: Settings,

    /// Replace a root queue that somebody else configured, or a queue of a class that could not be put back
    #[arg(long)]
    pub(crate) replace: bool,

    #[command(flatten)]
    pub(crate) change: CrqChange,
}

/// Arguments of `marcato crq status`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct CrqStatus {
    /// The network device [default: all that have CRQ]
    pub(crate) device: Option<String>,

    /// Show it again at each interval, with rates, until Ctrl-C
    #[arg(long, requires = "device")]
    pub(crate) live: bool,

    /// List the attachments of all network namespaces, also of devices that are gone
    #[arg(long, conflicts_with = "device")]
    pub(crate) all: bool,

    /// Show the queues of this subscriber only, instead of those who sent most
    #[arg(long, value_name = "NAME", requires = "device", conflicts_with = "live")]
    pub(crate) subscriber: Option<String>,

    #[command(flatten)]
    pub(crate) show: CrqShow,

    #[command(flatten)]
    pub(crate) pins: CrqPins,
}

/// Arguments of `marcato crq set`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct CrqSet {
    #[command(flatten)]
    pub(crate) settings: Settings,

    #[command(flatten)]
    pub(crate) change: CrqChange,
}

/// Arguments of `marcato crq detach`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct CrqDetach {
    #[command(flatten)]
    pub(crate) change: CrqChange,
}

/// Arguments of `marcato crq reload`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct CrqReload {
    #[command(flatten)]
    pub(crate) change: CrqChange,
}

/// Arguments of `marcato crq clean`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct CrqClean {
    /// Name what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) pins: CrqPins,
}

/// Arguments of `marcato crq metrics`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct CrqMetrics {
    /// Address and port of the server, which answers GET /metrics
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9469")]
    pub(crate) listen: SocketAddr,

    /// Number of subscribers of each device that have series, those who sent most
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) subscribers: usize,

    #[command(flatten)]
    pub(crate) pins: CrqPins,
}

/// Device whose queues or programs change.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct CrqChange {
    /// The network device
    pub(crate) device: String,

    /// Print each change that the command would make to the system, and make none
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) pins: CrqPins,
}

/// Place where the programs of all devices are pinned.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct CrqPins {
    /// Directory in which the eBPF programs are pinned, on a file system of type bpf
    #[arg(long, value_name = "DIR", default_value = PIN_DIRECTORY)]
    pub(crate) pins: PathBuf,
}

/// Form in which `marcato crq` shows a device.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct CrqShow {
    /// Interval of a live view, and of JSON lines
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = quantity::span_or_seconds)]
    pub(crate) every: Duration,

    /// Number of flows, and of subscribers, to show, the largest first; 0 for all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,

    /// Show addresses and ports of flows, which reveal who communicates with whom
    #[arg(long)]
    pub(crate) addresses: bool,

    /// Format on standard output
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) format: OutputFormat,
}

#[cfg(target_os = "linux")]
impl CrqShow {
    pub(crate) fn selection(&self) -> Selection {
        let subscribers = if self.top == 0 { usize::MAX } else { self.top };
        Selection { top: self.top, addresses: self.addresses, subscribers }
    }
}

/// Arguments of `marcato doctor`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Format of the results on standard output
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) format: OutputFormat,
}

/// Arguments of `marcato run`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("marks").required(true)))]
pub(crate) struct Run {
    /// Priority of all sockets: p0 (critical) to p4 (background)
    #[arg(long, value_name = "P", value_parser = quantity::priority, group = "marks")]
    pub(crate) priority: Option<Priority>,

    /// Code point of all sockets: a name such as ef, af41, le or nqb, or a number from 0 to 63
    #[arg(long, value_name = "NAME", group = "marks")]
    pub(crate) dscp: Option<Dscp>,

    /// File with rules by port, address, protocol and SO_MARK (TOML)
    #[arg(long, value_name = "FILE", group = "marks")]
    pub(crate) rules: Option<PathBuf>,

    /// Code point of a priority, such as p0=ef; may be repeated [default: p0=af41, p1=af21, p2=cs0, p3=cs0, p4=le]
    #[arg(long, value_name = "P=NAME", value_parser = of_level, conflicts_with_all = ["dscp", "list"])]
    pub(crate) code_point: Vec<OfLevel>,

    /// Put the priority into each TCP segment as well, as an option that the other end has to know
    #[arg(long, conflicts_with_all = ["dscp", "rules", "list"])]
    pub(crate) option: bool,

    /// File that keeps the peers that refuse the option, for three days
    #[arg(long, value_name = "FILE", requires = "option")]
    pub(crate) option_peers: Option<PathBuf>,

    /// Print no notes about sockets without a mark
    #[arg(long)]
    pub(crate) quiet: bool,

    /// List the commands that run now
    #[arg(long, group = "marks", conflicts_with = "command")]
    pub(crate) list: bool,

    /// Format of the list
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) format: OutputFormat,

    /// The command, with its arguments
    #[arg(last = true, required_unless_present = "list", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Formats of `marcato crq`, `marcato doctor` and `marcato run`.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Aligned tables
    Text,
    /// One JSON document on a line
    Json,
}

/// Arguments of `marcato completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Arguments of `marcato manual`.
#[derive(Debug, Args)]
pub(crate) struct Manual {
    /// The directory, which is created if it is not there
    pub(crate) directory: PathBuf,
}

/// Arguments of `marcato sim`.
#[derive(Debug, Args)]
pub(crate) struct Sim {
    /// The scenario; `-` reads it from standard input, and traces are then relative to the working
    /// directory
    pub(crate) file: PathBuf,

    /// Print what would run, and run nothing
    #[arg(long)]
    pub(crate) explain: bool,

    /// Run with this seed only [default: the seeds of the file]
    #[arg(long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<u64>,

    /// Apply the settings of [quick], for a shorter or smaller run
    #[arg(long)]
    pub(crate) quick: bool,

    /// Print the claims alone
    #[arg(long, conflicts_with = "explain")]
    pub(crate) claims: bool,

    /// Judge this claim alone, and run only what it needs
    #[arg(long, value_name = "ID", conflicts_with_all = ["explain", "claims", "out", "runs_on", "resume"])]
    pub(crate) claim: Option<String>,

    /// Override a key of the file, for example link.bottleneck.rate="5 Mbit/s"; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Write tables, series, figures, captures and a report into this directory; for a grid, one document
    /// per run and one with the means
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Format of the results on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    /// Number of concurrent runs [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=4096))]
    pub(crate) jobs: Option<u16>,

    /// Let the Python package run a grid, on dask://HOST:PORT, ray, or local (Python processes)
    #[arg(long, value_name = "ENGINE", value_parser = engine, conflicts_with_all = ["jobs", "explain"])]
    pub(crate) runs_on: Option<String>,

    /// Fail if the directory of --out has no runs of this grid
    ///
    /// A grid always continues from the completed runs in that directory, and never repeats them. The
    /// option guards against a wrong directory.
    #[arg(long)]
    pub(crate) resume: bool,
}

/// Arguments of `marcato demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Serve a page on two ports of this host instead, until Ctrl-C: for your own browser to load it through the
    /// emulated link, first come first served and with Marcato
    #[arg(long, conflicts_with_all = ["loads", "queue", "loss", "seed", "out", "format"])]
    pub(crate) open: bool,

    /// Number of page loads with each scheme
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=100))]
    pub(crate) loads: u32,

    /// Queue discipline before the link
    #[arg(long, value_enum, default_value_t = QueueName::Codel)]
    pub(crate) queue: QueueName,

    /// Probability that the link loses a packet
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = loss)]
    pub(crate) loss: f64,

    /// Seed of the losses, and of the time at which the source of messages starts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed)]
    pub(crate) seed: u64,

    /// Write report.html, rows.json, rows.csv and the figures into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Format of the rows on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Queue disciplines of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueName {
    /// First in, first out, with room for one bandwidth-delay product
    Droptail,
    /// CoDel (RFC 8289)
    Codel,
}

/// Arguments of `marcato perf`.
#[derive(Debug, Args)]
pub(crate) struct Perf {
    #[command(subcommand)]
    pub(crate) role: PerfRole,
}

/// The two ends of a measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum PerfRole {
    /// Receives messages from clients, and sends what they ask for, until it is stopped
    #[command(after_help = "Examples:
  marcato perf server
  marcato perf server --listen 0.0.0.0:4433 --cert chain.pem --key key.pem
  marcato perf server --engine quic --layered --once")]
    Server(PerfServer),
    /// Sends or requests messages, and prints their completion times
    ///
    /// The exit status is 0 when the run is complete, 130 after an interrupt, and 2 when it was cut
    /// short otherwise or there is no result.
    #[command(after_help = "Examples:
  marcato perf client server.example --ca ca.pem
  marcato perf client 192.0.2.1 --ca ca.pem --engine tcp --source 20ms:10kB --bulk p4 --duration 5s --warm-up 1s
  marcato perf client 192.0.2.1 --lane 198.51.100.1 --path-scheduler cwr-red --out out/perf
  marcato perf client server.example --ca ca.pem --reverse --parallel 4 --bulk p2")]
    Client(Box<PerfClient>),
}

/// Arguments of `marcato perf server`.
#[derive(Debug, Args)]
pub(crate) struct PerfServer {
    /// Address to listen on, for TCP and UDP; repeat it for each further lane (network path) [default: all
    /// addresses of IPv6 and IPv4]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<LaneSpec>,

    /// Port of listen addresses that name none
    #[arg(short, long, value_name = "N", default_value_t = perf::plan::PORT)]
    pub(crate) port: u16,

    /// Run in the background, once the addresses are open
    #[arg(short = 'D', long)]
    pub(crate) daemon: bool,

    /// Set in the process that `--daemon` starts
    #[arg(long, hide = true)]
    pub(crate) detached: bool,

    /// Write the number of the process into this file
    #[arg(short = 'I', long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,

    /// Append the output to this file instead of printing it
    #[arg(long, value_name = "FILE")]
    pub(crate) logfile: Option<PathBuf>,

    /// Open a low lane (DSCP LE) beside each lane, at the next port, for clients with --layered (QUIC)
    #[arg(long)]
    pub(crate) layered: bool,

    /// When to limit the background data in flight that the server sends, so that urgent data finds a short
    /// queue
    #[arg(long, value_parser = words(coupling_help), default_value_t)]
    pub(crate) coupled: Coupling,

    /// Mark the packets that the server sends with the DSCP of their level, on Linux
    #[arg(long)]
    pub(crate) marks: bool,

    /// Engine to serve [default: both]
    #[arg(long, value_enum)]
    pub(crate) engine: Option<EngineName>,

    /// Use this certificate chain (PEM) instead of a new self-signed certificate
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,

    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,

    /// Maximum number of concurrent connections of clients
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one)]
    pub(crate) max_clients: usize,

    /// Longest run in which a client may have this server send
    #[arg(
        long, value_name = "SPAN", default_value = "60m", value_parser = quantity::span_or_seconds,
        alias = "server-max-duration"
    )]
    pub(crate) max_duration: Duration,

    /// Highest rate per connection at which a client may have this server send; clients must then give
    /// --bitrate for bulk data; 0 for any [default: 0]
    #[arg(long, value_name = "RATE", value_parser = quantity::rate_or_none, alias = "server-bitrate-limit")]
    pub(crate) max_bitrate: Option<Rate>,

    /// Scheduler that chooses lanes for the data that the server sends (QUIC)
    #[arg(long, value_enum, default_value_t = PathName::Cwr)]
    pub(crate) path_scheduler: PathName,

    /// Most bytes of each priority that may wait for a connection; a longer message is refused
    #[arg(long, value_name = "SIZE", default_value = "1MB", value_parser = perf::backlog)]
    pub(crate) backlog: Bytes,

    /// End after the first client
    #[arg(short = '1', long)]
    pub(crate) once: bool,
}

/// Arguments of `marcato perf client`.
#[derive(Debug, Args)]
pub(crate) struct PerfClient {
    /// The server: HOST, HOST:PORT (4433), or HOST:PORT@LOCAL to leave from a local address
    #[arg(value_name = "ADDR")]
    pub(crate) addr: LaneSpec,

    /// Port of the server's addresses that have none [default: 4433]
    #[arg(short, long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,

    /// The transport
    #[arg(long, value_enum, default_value_t = EngineName::Quic)]
    pub(crate) engine: EngineName,

    /// Further lane (network path) to the server, at another of its addresses or ports; may be repeated
    #[arg(long = "lane", value_name = "ADDR")]
    pub(crate) lanes: Vec<LaneSpec>,

    /// Open a low lane (DSCP LE) beside each lane, for data that the lane's congestion window does not
    /// admit (QUIC); the server needs --layered too
    #[arg(long)]
    pub(crate) layered: bool,

    /// When to limit the background data in flight that the client sends, so that urgent data finds a short
    /// queue
    #[arg(long, value_parser = words(coupling_help), default_value_t)]
    pub(crate) coupled: Coupling,

    /// Mark the packets that the client sends with the DSCP of their level, on Linux
    #[arg(long)]
    pub(crate) marks: bool,

    /// Let the server send and this client receive
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    pub(crate) reverse: bool,

    /// Send and receive at once, the same load in each direction
    #[arg(long)]
    pub(crate) bidir: bool,

    /// Number of concurrent connections, each with all sources; they share the --bytes
    #[arg(
        short = 'P', long, value_name = "N", default_value_t = 1,
        value_parser = value_parser!(u8).range(1..=i64::from(perf::protocol::MAX_CONNECTIONS))
    )]
    pub(crate) parallel: u8,

    /// A message of this size in each period: PERIOD:SIZE[:PRIORITY], for example 100ms:10kB:p0;
    /// may be repeated
    #[arg(long = "source", value_name = "SPEC")]
    pub(crate) sources: Vec<SourceSpec>,

    /// Endless background data: PRIORITY[:SIZE], in messages of 64kB by default
    ///
    /// If neither --source nor --bulk is given, the client sends a source 100ms:10kB:p0 beside bulk data of
    /// p4.
    #[arg(long, value_name = "SPEC")]
    pub(crate) bulk: Option<BulkSpec>,

    /// Rate of the bulk data, for example 10Mbit/s or 10M; 0 for as much as fits [default: 0]
    #[arg(short, long, value_name = "RATE", value_parser = quantity::rate_or_none)]
    pub(crate) bitrate: Option<Rate>,

    /// End once this amount of bulk data has been delivered, for example 10MB or 1G (1024^3)
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = quantity::amount)]
    pub(crate) bytes: Option<Bytes>,

    /// Send bulk data in unreliable messages of at most one packet (QUIC); lost ones are not
    /// retransmitted
    #[arg(short, long)]
    pub(crate) unreliable: bool,

    /// Scheduler that chooses the lane of data [default: cwr; lowrtt with --stream-scheduler rr]
    #[arg(long, value_enum)]
    pub(crate) path_scheduler: Option<PathName>,

    /// Order in which messages are sent
    #[arg(long, value_enum, default_value_t = StreamName::Cats)]
    pub(crate) stream_scheduler: StreamName,

    /// Time for which messages are sent; a plain number means seconds, and 0 a day, which Ctrl-C or SIGTERM ends
    /// [default: 10s, or one hour with --bytes]
    #[arg(short = 't', long, value_name = "SPAN", value_parser = quantity::span_or_seconds)]
    pub(crate) duration: Option<Duration>,

    /// Initial part of the duration that is not measured
    #[arg(long, value_name = "SPAN", default_value = "0s", value_parser = quantity::span_or_seconds)]
    pub(crate) warm_up: Duration,

    /// Most bytes of each priority that may wait for a connection [default: 1MB]
    #[arg(long, value_name = "SIZE", value_parser = perf::backlog)]
    pub(crate) backlog: Option<Bytes>,

    /// Seed of the times at which the sources start
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed)]
    pub(crate) seed: u64,

    /// Pin the certificate with this fingerprint (SHA-256), which the server prints
    #[arg(long, value_name = "HEX", value_parser = perf::fingerprint, conflicts_with = "ca")]
    pub(crate) fingerprint: Option<Fingerprint>,

    /// Accept certificates signed by one in this file (PEM) [default: the system's root certificates]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// The name that the server's certificate is for [default: the host in ADDR]
    #[arg(long, value_parser = perf::plan::ascii_name)]
    pub(crate) name: Option<String>,

    /// Time after which a connection attempt fails
    #[arg(long, value_name = "SPAN", default_value = "5s", value_parser = quantity::span_or_seconds)]
    pub(crate) connect_timeout: Duration,

    /// Report goodput, completion times and lanes of each such span while the run goes on
    ///
    /// A plain number means seconds. Text has a line for each interval, JSON the array `intervals`.
    #[arg(short, long, value_name = "SPAN", value_parser = perf::interval)]
    pub(crate) interval: Option<Duration>,

    /// End the run, marked incomplete, if the server is silent for this long
    ///
    /// The server reports ten times a second. The values measured until then are printed and marked
    /// incomplete.
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = perf::idle_timeout)]
    pub(crate) idle_timeout: Duration,

    /// Format of the result on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    /// Print the result as JSON: --format json
    #[arg(short = 'J', long, conflicts_with = "format")]
    pub(crate) json: bool,

    /// Add the release and the completion time of each message to the JSON document
    #[arg(long)]
    pub(crate) raw: bool,

    /// Append the output to this file instead of printing it
    #[arg(long, value_name = "FILE")]
    pub(crate) logfile: Option<PathBuf>,

    /// Draw the distributions of the completion times into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Write result.json, result.csv, result.txt and mct.svg into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

impl PerfClient {
    /// Returns the format of the result.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// Parses a probability of loss, from 0 to below 1. With 1, nothing would ever arrive.
fn loss(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(loss) if (0.0..1.0).contains(&loss) => Ok(loss),
        _ => Err("give a probability from 0 to below 1, for example 0.02 for 2 %".to_owned()),
    }
}

/// Parses the name of an engine of the Python package.
fn engine(text: &str) -> Result<String, String> {
    let is_dask = text.strip_prefix("dask://").is_some_and(|address| address.contains(':'));
    if is_dask || text == "ray" || text == "local" {
        Ok(text.to_owned())
    } else {
        Err("an engine is dask://HOST:PORT, ray or local".to_owned())
    }
}

/// Parses a seed.
fn seed(text: &str) -> Result<u64, String> {
    let seed = text.parse().ok().filter(|seed| *seed <= Seed::MAX);
    seed.ok_or_else(|| format!("a seed is 0 to {}", Seed::MAX))
}

/// Parses the number of concurrent runs.
fn jobs(text: &str) -> Result<NonZeroU16, String> {
    let jobs = text.parse().ok().filter(|jobs: &NonZeroU16| jobs.get() <= 4096);
    jobs.ok_or_else(|| "give 1 to 4096".to_owned())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=4096) => Ok(number),
        _ => Err("give 1 to 4096".to_owned()),
    }
}

/// Arguments of `marcato papers`.
#[derive(Debug, Args)]
pub(crate) struct Papers {
    /// The paper, all of them, or a directory of scenarios with claims
    pub(crate) paper: String,

    /// Print the file, the point of its grid and the command of a row that a file measures; run nothing
    #[arg(long, value_name = "ROW", conflicts_with = "out")]
    pub(crate) explain: Option<String>,

    /// Write the scenario files of the paper into this directory, to copy and change; run nothing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "explain"])]
    pub(crate) export: Option<PathBuf>,

    /// World to run in
    #[arg(long, value_enum, default_value_t = WorldName::Virtual)]
    pub(crate) world: WorldName,

    #[command(flatten)]
    pub(crate) runs: Runs,

    /// Write report.html, rows.json, rows.csv and the figures into this directory
    ///
    /// With `all`, each paper has a subdirectory. Long experiments keep completed runs in `runs`. The same
    /// command, run again with the same binary, reuses them and so continues where it was interrupted.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Arguments of `marcato validate`.
#[derive(Debug, Args)]
pub(crate) struct Validate {
    #[command(flatten)]
    pub(crate) runs: Runs,

    /// Write report.html, rows.json, rows.csv and the figures into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Runs of an experiment, and the format of its rows.
#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// Shorten the runs, and widen the bands of random rows or leave them out
    #[arg(long)]
    pub(crate) quick: bool,

    /// The seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed)]
    pub(crate) seed: u64,

    /// Number of seeds; the results are means with 95 % confidence intervals
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = value_parser!(u32).range(1..=i64::from(RunOptions::MOST_RUNS))
    )]
    pub(crate) repeat: u32,

    /// Number of concurrent runs [default: the number of cores]
    ///
    /// The number does not change results. Short experiments always run one after the other.
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub(crate) jobs: Option<NonZeroU16>,

    /// Format of the rows on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

impl Runs {
    /// Options of these runs.
    pub(crate) fn options(&self) -> Result<RunOptions, SeedError> {
        Ok(RunOptions::repeated(self.seed, self.repeat)?.shortened(self.quick).at_once(self.jobs))
    }
}

/// Output format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned tables
    Text,
    /// One JSON document
    Json,
    /// One line per row, flow or source
    Csv,
}

/// Worlds in which experiments run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorldName {
    /// Virtual time: the simulator
    Virtual,
    /// Real time: real sockets, between network namespaces with emulated links (Linux)
    Lab,
}

impl From<WorldName> for World {
    fn from(name: WorldName) -> Self {
        match name {
            WorldName::Virtual => Self::Virtual,
            WorldName::Lab => Self::Lab,
        }
    }
}

/// Returns the definition of the command line. Its papers are those of the registry.
pub(crate) fn command(registry: &Registry) -> clap::Command {
    // clap only lists the papers. The registry checks the name, as its error says more than clap's.
    let mut listed: Vec<String> =
        registry.iter().map(|one| format!("\n{:<8} {}", one.name(), one.about())).collect();
    let about = if listed.is_empty() {
        "The paper; no experiment is built into this program yet".to_owned()
    } else {
        listed.push(format!("\n{:<8} Every one of them, in order", Registry::ALL));
        format!("The paper:{}", listed.concat())
    };
    let command = Marcato::command()
        .mut_subcommand("papers", |papers| papers.mut_arg("paper", |argument| argument.help(about)));
    #[cfg(target_os = "linux")]
    let command = command.mut_subcommand("crq", |crq| crq.mut_subcommand("set", keeps_other_settings));
    command
}

/// Replaces the defaults in the help of `marcato crq set`. It shares the flags of `attach`, but keeps each
/// setting that is not given.
#[cfg(target_os = "linux")]
fn keeps_other_settings(set: clap::Command) -> clap::Command {
    set.mut_args(|argument| {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        match help.split_once(" [default: ") {
            Some((meaning, _)) => argument.help(format!("{meaning} [default: unchanged]")),
            None => argument,
        }
    })
}

/// Adds a pointer to the error of a command line as iperf3's users write it.
fn pointed(mut error: clap::Error, given: &[OsString]) -> clap::Error {
    let words: Vec<&str> = given.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let pointer = match words[..] {
        ["perf", "-s" | "--server", ..] => "a server is `marcato perf server`",
        ["perf", "-c" | "--client", ..] => "a client is `marcato perf client HOST`",
        ["perf", "server", ..] if words.contains(&"-s") => "leave -s out: this is the server already",
        ["perf", "client", ..] if words.iter().any(|word| matches!(*word, "-c" | "--client")) => {
            "leave -c out: the host stands alone, as in `marcato perf client HOST`"
        }
        _ => return error,
    };
    if error.kind() == ErrorKind::UnknownArgument {
        // clap guesses at similar options, which would be misleading here.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![pointer.to_owned().into()]));
    }
    error
}

/// Parses the command line.
pub(crate) fn parse<I>(registry: &Registry, arguments: I) -> Result<Command, clap::Error>
where
    I: IntoIterator<Item = OsString>,
{
    let mut commands = command(registry);
    if std::env::var("COLUMNS").is_ok_and(|columns| columns.trim() == "0") {
        // A terminal that does not know its width says 0. clap would put each word on a line of its own.
        commands = commands.term_width(100);
    }
    let given: Vec<OsString> = arguments.into_iter().collect();
    let matches = commands.try_get_matches_from_mut(&given).map_err(|error| pointed(error, &given))?;
    let asked = Marcato::from_arg_matches(&matches)?.command;
    if let Command::Serve(Serve { directory: None, to: None, config: None, .. }) = &asked
        && let Some(serve) = commands.find_subcommand_mut("serve")
    {
        let remedy = "give a directory, an origin by --to URL, or a file with sites by --config FILE";
        return Err(serve.error(ErrorKind::MissingRequiredArgument, remedy));
    }
    Ok(asked)
}
