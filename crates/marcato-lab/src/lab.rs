//! Lab: a scenario's hosts as network namespaces, and its links between them.
//!
//! It needs root, or a user namespace with access to `/dev/net/tun`.
//!
//! - A host is a network namespace without a name. A thread keeps it, and commands of the host are children
//!   of that thread, which the kernel kills with it. With the last process, the kernel removes the namespace
//!   and its devices, so nothing has to be removed after a crash. Only children of children can outlive a
//!   lab. They carry the variable `MARCATO_LAB`, by which [`Leftover`](crate::Leftover) finds them.
//! - `MARCATO_LAB_HOSTS` names the thread of each host. With it, a process below a command of the lab enters
//!   another host (`marcato lab exec`).
//! - A node of a scenario is an interface. Nodes where the paths of one flow begin are one host, with a
//!   routing table for each of its addresses.
//! - Addresses are the simulator's (node n has 10.0.0.n, counted from 1, and fd00::n), and belong to the
//!   loopback device. TUN devices have none, so a link needs no subnet.
//! - One thread moves packets. It reads each from a device, sends it into a link, and writes what comes out
//!   at the time that the link has computed: timer slack does not accumulate. Queues see and change the ECN
//!   field of real packets, and see DSCP and transport headers.
//! - By default, the kernel segments before the device, so queues see packets of MTU size. With
//!   `LabOptions::offload` they see up to 64 kB at once.
//!
//! Pre-emption within a packet is missing: no real transmitter of Ethernet has it.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Child, Command};

use marcato_link::DelaySummary;
use marcato_queue::{FlowKey, FlowReport};
use marcato_scenario::Experiment;
use marcato_scenario::brief::Disorder;
use marcato_scenario::link;
use marcato_units::{Bytes, Time};
use marcato_wire::FlowTuple;

use crate::buffers;
use crate::build::{Traces, build};
use crate::clock::LabClock;
use crate::emulator::{Direction, DirectionStats, Emulator, Wire};
use crate::entrance::{HOSTS, host_list};
use crate::ip_datagram::IpDatagram;
use crate::leftover::{Leftover, VARIABLE, mark};
use crate::link::{Link, LinkCounters, LinkMeasurement, Sojourns, Watcher};
use crate::namespace::Namespace;
use crate::plan::{NodePlan, Plan, PlanError};
use crate::sys;
use crate::wiring::{Device, WiringError, wire};

/// Options of a lab that a scenario does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabOptions {
    /// Passes TCP segments of up to 64 kB whole. That is faster by far, and distorts queues, losses
    /// and rates, which then act on 64 kB at once.
    pub offload: bool,
}

/// Error returned when a lab cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// No lab can be made of the experiment.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The system gives no network namespace.
    #[error(
        "cannot create a network namespace for {host}: {source}; run as root, or where users may create user \
         namespaces"
    )]
    Namespace {
        /// Name of the host.
        host: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A host cannot be set up.
    #[error("host {host}: {source}")]
    Wiring {
        /// Name of the host.
        host: String,
        /// Reason.
        source: WiringError,
    },
    /// The emulator cannot be started.
    #[error("cannot start the emulator: {0}")]
    Emulator(io::Error),
    /// A link has an invalid configuration.
    #[error("link `{link}`: {problem}")]
    Link {
        /// Name of the link.
        link: String,
        /// Problem and its remedy.
        problem: String,
    },
}

/// Error returned when a command cannot be run in a host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The lab has no such host.
    #[error("there is no host `{name}` in this lab: name one of {known}")]
    Unknown {
        /// Given name.
        name: String,
        /// Names of all hosts.
        known: String,
    },
    /// The command cannot be started.
    #[error("cannot run `{program}` on {host}: {source}")]
    Command {
        /// Name of the program.
        program: String,
        /// Name of the host.
        host: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The thread of the host has ended.
    #[error("host {host}: {source}")]
    Gone {
        /// Name of the host.
        host: String,
        /// Error.
        source: io::Error,
    },
}

/// Host of a lab.
struct Host {
    /// Its nodes; the name of the first is its own.
    nodes: Vec<NodePlan>,
    namespace: Namespace,
}

impl Host {
    fn name(&self) -> &str {
        self.nodes.first().map_or("", |node| &node.name)
    }
}

/// Running lab. Dropping it removes its hosts and links, and ends the commands in them. The kernel
/// does the same if the process is killed.
pub struct Lab {
    // The emulator stops before its devices disappear, and they before the hosts.
    emulator: Emulator,
    links: Vec<String>,
    /// For each link, the hosts at its ends and their devices.
    wires: Vec<[(usize, String); 2]>,
    hosts: Vec<Host>,
    /// Secret under which queues name flows.
    secret: u64,
}

impl Lab {
    /// Opens the lab of an experiment. Its flows are not started.
    ///
    /// # Errors
    ///
    /// If the experiment cannot be emulated, or the system gives no namespaces or devices.
    pub fn open(experiment: &Experiment, traces: &Traces, options: LabOptions) -> Result<Self, LabError> {
        Self::open_with(experiment, traces, options, &[])
    }

    /// Opens the lab of an experiment, and disturbs packets: `disorder` has both directions of each link, in their
    /// order, and may be shorter.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(
        experiment: &Experiment,
        traces: &Traces,
        options: LabOptions,
        disorder: &[[Disorder; 2]],
    ) -> Result<Self, LabError> {
        let plan = Plan::new(experiment)?;
        let mut directions = Vec::new();
        for (number, link) in experiment.links.iter().enumerate() {
            let [there, back] = disorder.get(number).copied().unwrap_or_default();
            let one = |back, disorder| direction(experiment, link, back, traces, options, disorder);
            directions.push([one(false, there)?, one(true, back)?]);
        }
        let names = names(&plan);
        let buffer = buffers::needed(experiment, traces);
        let mut ends: Vec<[Option<crate::tun::Tun>; 2]> = plan.wires.iter().map(|_| [None, None]).collect();
        let mut hosts = Vec::new();
        for (number, host) in plan.hosts.iter().enumerate() {
            let failed = |source| LabError::Namespace { host: host.name.clone(), source };
            let namespace = Namespace::new(&host.name).map_err(failed)?;
            let (mut devices, mut places) = (Vec::new(), Vec::new());
            for (place, (wires, link)) in plan.wires.iter().zip(&experiment.links).enumerate() {
                for (end, (_, name)) in wires.iter().enumerate().filter(|(_, (at, _))| *at == number) {
                    devices.push(Device { name: name.clone(), mtu: link.mtu, offload: options.offload });
                    places.push((place, end));
                }
            }
            let (task, names) = (host.clone(), names.clone());
            let wired = namespace.run(move || wire(&task, &devices, &names, buffer)).map_err(failed)?;
            let wired = wired.map_err(|source| LabError::Wiring { host: host.name.clone(), source })?;
            for ((place, end), tun) in places.into_iter().zip(wired) {
                ends[place][end] = Some(tun);
            }
            hosts.push(Host { nodes: host.nodes.clone(), namespace });
        }
        let wires = ends.into_iter().zip(directions).filter_map(|([a, b], directions)| {
            let [there, back] = directions;
            Some(Wire { ends: [a?, b?], directions: [there, back] })
        });
        let secret = experiment.seed.stream("lab/flows").next_u64();
        let emulator = Emulator::start(wires.collect(), secret).map_err(LabError::Emulator)?;
        let links = experiment.links.iter().map(|link| link.name.clone()).collect();
        Ok(Self { emulator, links, wires: plan.wires, hosts, secret })
    }

    /// Names of the hosts. A host with several interfaces has the name of the first.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(Host::name)
    }

    /// Host of which a node is an interface.
    fn host(&self, node: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.nodes.iter().any(|known| known.name == node))
    }

    /// Host and device by which packets of one direction of a link leave, for example for `tc`.
    pub fn device(&self, link: usize, back: bool) -> Option<(&str, &str)> {
        let (host, device) = &self.wires.get(link)?[usize::from(back)];
        Some((self.hosts.get(*host)?.name(), device))
    }

    /// Time since the links began to work.
    pub fn now(&self) -> Time {
        self.emulator.clock().now()
    }

    /// Time up to which all events of packets have been passed to their [observers](Self::watch): those that follow
    /// are later.
    pub fn settled(&self) -> Time {
        self.emulator.settled()
    }

    /// Addresses of the host to which one direction of a link leads: packets for others go on from there.
    pub fn arrivals(&self, link: usize, back: bool) -> Vec<IpAddr> {
        let end = self.wires.get(link).map(|ends| &ends[usize::from(!back)]);
        let host = end.and_then(|(host, _)| self.hosts.get(*host));
        let nodes = host.into_iter().flat_map(|host| &host.nodes);
        nodes.flat_map(|node| [IpAddr::V4(node.addresses.0), IpAddr::V6(node.addresses.1)]).collect()
    }

    /// Clock that shows the [time](Self::now) of this lab, also on other threads.
    pub fn clock(&self) -> LabClock {
        self.emulator.clock()
    }

    /// Name of the host of which a node is an interface; `None` if the lab has no such node.
    pub fn host_of(&self, node: &str) -> Option<&str> {
        self.host(node).map(Host::name)
    }

    /// Addresses of a node; `None` if the lab has no such node.
    pub fn addresses(&self, node: &str) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let mut nodes = self.hosts.iter().flat_map(|host| &host.nodes);
        nodes.find(|known| known.name == node).map(|node| node.addresses)
    }

    /// Counters of a direction of the link with this number, in the scenario's order.
    pub fn counters(&self, link: usize, back: bool) -> Option<LinkCounters> {
        self.emulator.link(link, back.into(), |link, _| *link.counters())
    }

    /// Measurements of a direction of the link with this number, in the scenario's order.
    pub fn measurement(&self, link: usize, back: bool) -> Option<LinkMeasurement> {
        self.emulator.link(link, back.into(), Link::measurement)
    }

    /// Sojourn times in a direction of the link with this number, in the scenario's order.
    pub fn sojourns(&self, link: usize, back: bool) -> Option<Sojourns> {
        self.emulator.link(link, back.into(), Link::sojourns)
    }

    /// Bytes that a direction of a link was offered: of flows that its queue called responsive, and of
    /// all. `None` if the queue judges no flows.
    pub fn judged(&self, link: usize, back: bool) -> Option<[Bytes; 2]> {
        self.emulator.link(link, back.into(), |link, _| link.judged())?
    }

    /// Report of the queue of a direction of a link on the packets of a flow; `None` if the queue
    /// judges no flows, or does not know this one.
    pub fn flow_report(&self, link: usize, back: bool, flow: &FlowTuple) -> Option<FlowReport> {
        let key = FlowKey::of(flow, self.secret);
        self.emulator.link(link, back.into(), |link, _| link.report(key))?
    }

    /// Times by which packets of a direction of a link arrived later than the link had computed, as the
    /// emulator was not woken in time; `None` before the first packet.
    pub fn lateness(&self, link: usize, back: bool) -> Option<DelaySummary> {
        self.emulator.link(link, back.into(), |link, _| link.lateness())?
    }

    /// Begins new [measurements](Self::measurement) of the queue of a direction of a link.
    pub fn restart_measurement(&self, link: usize, back: bool) {
        self.emulator.link(link, back.into(), Link::restart_measurement);
    }

    /// Passes all packets of a direction of a link to an observer from now on, in place of an earlier
    /// one.
    pub fn watch(&self, link: usize, back: bool, watcher: Box<dyn Watcher<IpDatagram>>) {
        self.emulator.link(link, back.into(), |link, _| link.watch(watcher));
    }

    /// Statistics of each link, by name: the direction there, and the direction back.
    pub fn stats(&self) -> Vec<(&str, [DirectionStats; 2])> {
        self.links.iter().map(String::as_str).zip(self.emulator.stats()).collect()
    }

    /// Starts a command on a host, which may be named by any of its interfaces. The kernel kills the
    /// command when the lab ends.
    ///
    /// # Errors
    ///
    /// If there is no such host, or the command cannot be started.
    pub fn spawn(&self, host: &str, mut command: Command) -> Result<Child, HostError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.env(VARIABLE, mark()).env(HOSTS, host_list(&self.tasks()));
        let started = self.run(host, move || sys::bind_to_thread(&mut command).spawn())?;
        started.map_err(|source| HostError::Command { program, host: host.to_owned(), source })
    }

    /// Ends every command of this process's labs, and what they have started in turn. Dropping the lab
    /// ends only the commands themselves.
    ///
    /// # Errors
    ///
    /// If `/proc` cannot be read, or the kernel does not allow it.
    pub fn end_commands(&self) -> io::Result<()> {
        let own = mark();
        Leftover::of(|marks| marks.contains(&own))?.iter().try_for_each(Leftover::kill)
    }

    /// Names of all nodes, each with the thread that keeps the namespaces of its host.
    fn tasks(&self) -> Vec<(&str, i32)> {
        let of = self.hosts.iter().flat_map(|host| host.nodes.iter().map(move |node| (host, node)));
        of.map(|(host, node)| (node.name.as_str(), host.namespace.task())).collect()
    }

    /// Runs a function on a thread in the network namespace of a host. Sockets that it opens belong
    /// to the host, wherever they are used later.
    ///
    /// # Errors
    ///
    /// If there is no such host.
    pub fn run<T: Send + 'static>(
        &self,
        host: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HostError> {
        let Some(found) = self.host(host) else {
            let known = self.hosts().collect::<Vec<_>>().join(", ");
            return Err(HostError::Unknown { name: host.to_owned(), known });
        };
        found.namespace.run(job).map_err(|source| HostError::Gone { host: host.to_owned(), source })
    }

    /// Starts a thread in the network namespace of a host, as its own work takes long.
    ///
    /// # Errors
    ///
    /// If there is no such host, or the system gives no thread.
    pub fn thread<T: Send + 'static>(
        &self,
        host: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<std::thread::JoinHandle<T>, HostError> {
        // A new thread begins in the namespaces of the one that starts it.
        let started = self.run(host, move || std::thread::Builder::new().spawn(job))?;
        started.map_err(|source| HostError::Gone { host: host.to_owned(), source })
    }
}

/// Names of all nodes with their addresses, as in `/etc/hosts`.
fn names(plan: &Plan) -> String {
    let mut names = String::from("127.0.0.1 localhost\n::1 localhost\n");
    for node in plan.hosts.iter().flat_map(|host| &host.nodes) {
        let (v4, v6) = node.addresses;
        let _ = writeln!(names, "{v4} {0}\n{v6} {0}", node.name);
    }
    names
}

/// Builds one direction of a link.
fn direction(
    experiment: &Experiment,
    link: &link::Link,
    back: bool,
    traces: &Traces,
    options: LabOptions,
    disorder: Disorder,
) -> Result<Direction, LabError> {
    // The devices have the same limit, except for what is segmented later.
    let mtu = (!options.offload).then_some(link.mtu);
    let made = build(link, back, traces, experiment.seed, mtu, disorder);
    let made = made.map_err(|problem| LabError::Link { link: link.name.clone(), problem })?;
    let bleaches = if back { link.back.bleach_ecn } else { link.there.bleach_ecn };
    Ok(Direction { link: made, bleaches })
}
