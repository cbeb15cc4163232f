//! Time to the first verdict of the kernel's programs on single flows: congestion controls, rates, round trips and
//! queues.
//!
//! In real time, and as root. `.ci/long crq-kernel` prints the table on this kernel and on Debian's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Instant;

use marcato_kernel::{Attachment, Configuration, Counter, Device, Queue};
use marcato_queue::Class;
use marcato_queue::trap::TrapConfig;
use marcato_testing::skip;
use marcato_units::{Duration, Rate};

use super::kernel::{Kind, at_router, kinds, missing};
use crate::error::SimulationError;
use crate::lab;

/// Senders that answer losses; BBR version 1 does not, or by chance.
const RESPONSIVE: [&str; 3] = ["cubic", "reno", "dctcp"];
/// Round trip by which `marcato crq attach` sizes queues, by default.
const SIZED_FOR: Duration = Duration::from_millis(100);
/// Time from the first loss within which a responsive flow is to be in the responsive queue.
const WITHIN: Duration = Duration::from_secs(3);
const LASTS: Duration = Duration::from_secs(12);
const LOOK: std::time::Duration = std::time::Duration::from_millis(10);
/// Number of looks at the flows for each look at the queues, which starts a program.
const LOOKS_AT_QUEUES: u32 = 32;

/// Traffic of a cell.
#[derive(Clone, Copy)]
enum Traffic<'a> {
    Tcp(&'a str),
    Flood,
}

struct Cell<'a> {
    kind: Kind,
    traffic: Traffic<'a>,
    rate: Rate,
    rtt: Duration,
}

/// Facts of a cell's flow, with times from its first packet that was seen.
#[derive(Default)]
struct Seen {
    first_loss: Option<std::time::Duration>,
    responsive: Option<std::time::Duration>,
    losses: u32,
    /// Drops that the queues themselves have counted, up to a moment before the end.
    dropped: u64,
    /// Share of the time since the first loss in which it was in the responsive queue, in %.
    stayed: f64,
}

/// Looks at the largest flow, and at the queues of the device, until told to stop. The thread has the network namespace of
/// its caller.
fn watch(attachment: Attachment, device: String, stop: Arc<AtomicBool>) -> JoinHandle<(Attachment, Seen)> {
    spawn(move || {
        let mut seen = Seen::default();
        let (mut began, mut looks, mut hits) = (None, 0_u32, 0_u32);
        for look in 0_u32.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            sleep(LOOK);
            if look % LOOKS_AT_QUEUES == 0 {
                // The device goes with the lab, before this is told to stop.
                let root = Queue::all(&device).ok().and_then(|queues| queues.into_iter().next());
                seen.dropped = root.map_or(seen.dropped, |root| root.drops);
            }
            let Some((_, flow)) = attachment.flows().max_by_key(|(_, flow)| flow.bytes) else { continue };
            let now = began.get_or_insert_with(Instant::now).elapsed();
            seen.losses = flow.signals[0];
            if flow.signals[0] > 0 {
                seen.first_loss.get_or_insert(now);
            }
            let responsive = flow.queue == Some(Class::Responsive);
            if responsive {
                seen.responsive.get_or_insert(now);
            }
            if seen.first_loss.is_some() {
                looks += 1;
                hits += u32::from(responsive);
            }
        }
        seen.stayed = 100.0 * f64::from(hits) / f64::from(looks.max(1));
        (attachment, seen)
    })
}

impl Cell<'_> {
    fn scenario(&self) -> String {
        let flow = match self.traffic {
            Traffic::Tcp(by) => {
                format!(r#"kind = "tcp", tcp = {{ congestion = "{by}", ecn = {} }}"#, by == "dctcp")
            }
            Traffic::Flood => {
                let rate = self.rate.as_bps() / 10 * 15;
                format!(r#"kind = "udp", rate = "{rate} bit/s", payload = "1448 B""#)
            }
        };
        format!(
            r#"
            name = "crq-matrix"
            duration = "{lasts} ms"
            seed = 1
            nodes = ["web", "router", "client"]
            link = [
                {{ name = "web", between = ["web", "router"], delay = "{quarter} us" }},
                {{ name = "down", between = ["router", "client"], delay = "{quarter} us" }},
            ]
            flow = [{{ name = "flow", from = "web", to = "client", {flow} }}]
            "#,
            lasts = LASTS.as_millis(),
            quarter = self.rtt.as_micros() / 4,
        )
    }

    /// Attaches the programs at the router, and begins to watch.
    fn attach(
        &self,
        lab: &marcato_lab::Lab,
        stop: Arc<AtomicBool>,
    ) -> Result<JoinHandle<(Attachment, Seen)>, SimulationError> {
        let shaper = self.kind.shaper(self.rate, SIZED_FOR);
        at_router(lab, 1, move |name| {
            let device = Device::find(name).map_err(lab::failed)?;
            let run = |command: &marcato_kernel::TcCommand| command.run().map(drop).map_err(lab::failed);
            shaper.commands(&device).iter().try_for_each(run)?;
            let configuration = Configuration {
                priority: shaper.priority(),
                netns: device.netns,
                ifindex: device.ifindex,
                ethernet: device.ethernet,
                ..Configuration::watching(TrapConfig::marcato())
            };
            let attachment = Attachment::hold(&device, &configuration, 1024).map_err(lab::failed)?;
            Ok(watch(attachment, device.name, stop))
        })
    }

    /// Runs the cell; also returns the packets that went to the responsive queue.
    fn run(&self) -> Result<(Seen, u64), SimulationError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut watched = None;
        lab::run_prepared(&self.scenario(), |lab| {
            watched = Some(self.attach(lab, stop.clone())?);
            Ok(())
        })?;
        stop.store(true, Ordering::Relaxed);
        let watched = watched.ok_or(SimulationError::Missing("lab"))?;
        let (attachment, seen) = watched.join().map_err(|_| SimulationError::Missing("end of a thread"))?;
        Ok((seen, attachment.counter(Counter::Responsive).map_err(lab::failed)?.packets))
    }
}

fn seconds(time: Option<std::time::Duration>) -> String {
    time.map_or_else(|| "never".to_owned(), |time| format!("{:.2} s", time.as_secs_f64()))
}

/// A list of words of the environment, or these if there are none.
fn chosen(name: &str, words: &str) -> Vec<String> {
    let asked = std::env::var(name).ok().filter(|asked| !asked.trim().is_empty());
    asked.as_deref().unwrap_or(words).split_whitespace().map(str::to_owned).collect()
}

#[test]
#[ignore = "sends for minutes in real time"]
fn single_flows_are_responsive_within_3_s_and_floods_never() {
    let missing = missing();
    if !missing.is_empty() {
        return skip(env!("CARGO_PKG_NAME"), &format!("this system lacks {}", missing.join("; ")));
    }
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let mut senders = chosen("CRQ_MATRIX_SENDERS", "cubic bbr reno dctcp");
    senders.retain(|by| known.split_whitespace().any(|has| has == by));
    let number = |word: &String| word.parse::<u64>().unwrap();
    let rates: Vec<u64> = chosen("CRQ_MATRIX_MBPS", "6 20 100").iter().map(number).collect();
    let trips: Vec<u64> = chosen("CRQ_MATRIX_MS", "10 40 100").iter().map(number).collect();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let (mut asked, mut good, mut floods) = (0_u32, 0_u32, 0_u64);
    let mut kinds = kinds().unwrap();
    kinds.retain(|kind| *kind != Kind::CodelEcn);
    let all = kinds.iter().map(|kind| kind.id()).collect::<Vec<_>>().join(" ");
    let queues = chosen("CRQ_MATRIX_QUEUES", &all);
    kinds.retain(|kind| queues.iter().any(|queue| queue == kind.id()));
    for kind in kinds {
        for &mbps in &rates {
            for &ms in &trips {
                let cell = |traffic| {
                    let (rate, rtt) = (Rate::from_mbps(mbps), Duration::from_millis(ms));
                    Cell { kind, traffic, rate, rtt }.run().unwrap()
                };
                for by in &senders {
                    let (seen, _) = cell(Traffic::Tcp(by));
                    let wait =
                        seen.responsive.zip(seen.first_loss).map(|(then, loss)| then.saturating_sub(loss));
                    // Without a loss there is nothing to answer.
                    if RESPONSIVE.contains(&by.as_str()) && seen.first_loss.is_some() {
                        asked += 1;
                        good += u32::from(wait.is_some_and(|wait| wait <= WITHIN));
                    }
                    eprintln!(
                        "crq.matrix {} {} {mbps} Mbit/s {ms} ms {by}: first of {} losses ({} by the queues) at {}, then {}, and there {:.0} % of the time",
                        release.trim(),
                        kind.id(),
                        seen.losses,
                        seen.dropped,
                        seconds(seen.first_loss),
                        seconds(wait),
                        seen.stayed,
                    );
                }
                floods += cell(Traffic::Flood).1;
            }
        }
    }
    eprintln!(
        "crq.matrix {}: {good} of {asked} responsive flows within 3 s; {floods} packets of floods",
        release.trim()
    );
    assert!(good * 100 >= asked * 95, "{good} of {asked}");
    assert_eq!(floods, 0);
}
