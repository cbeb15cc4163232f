//! Cost of the simulator: CPU time, user and system, and memory.
//!
//! `cargo run --release -p marcato-sim --example cost` prints a table in Markdown. Each world runs
//! in a separate process, so that its peak memory can be measured (Linux only). `cost <name>` runs
//! one of them. `cost count <flows> <seconds>` runs CUBIC flows and reads no clock: for valgrind, which
//! has none that rustix takes.

use std::process::Command;

use marcato_sim::{LinkId, Loss, Network};
use marcato_units::{Duration, Time};
use rustix::time::{ClockId, clock_gettime};

#[path = "../benches/worlds/mod.rs"]
mod worlds;

/// World: its name, constructor and duration.
struct World {
    name: &'static str,
    make: fn() -> (Network, LinkId),
    seconds: u64,
}

const WORLDS: [World; 9] = [
    World { name: "race", make: || worlds::race(Loss::None), seconds: 200 },
    World { name: "race at loss 1e-4", make: || worlds::race(Loss::Random(1e-4)), seconds: 1000 },
    World { name: "window of 100 packets", make: || window(100), seconds: 1000 },
    World { name: "window of 1000 packets", make: || window(1_000), seconds: 200 },
    World { name: "window of 10 000 packets", make: || window(10_000), seconds: 200 },
    World { name: "1 CUBIC flow", make: || worlds::cubic(1), seconds: 20 },
    World { name: "10 CUBIC flows", make: || worlds::cubic(10), seconds: 20 },
    World { name: "100 CUBIC flows", make: || worlds::cubic(100), seconds: 10 },
    World { name: "1000 CUBIC flows", make: || worlds::cubic(1000), seconds: 20 },
];

/// Names of the memory measurements.
const FLOWS: &str = "memory of a flow";
const PACKETS: &str = "memory of a packet";

fn window(packets: u64) -> (Network, LinkId) {
    worlds::one_flow(20_000, packets, Loss::None)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => {}
        [count, flows, seconds] if count == "count" => return counted(flows.parse()?, seconds.parse()?),
        [name, ..] => return run(name),
    }
    let itself = std::env::current_exe()?;
    println!(
        "| world | simulated s | CPU s per simulated s | packets | ns per packet | events | ns per event | memory |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let names = WORLDS.iter().map(|world| world.name).chain([FLOWS, PACKETS]);
    for name in names {
        if name == FLOWS {
            println!();
        }
        if !Command::new(&itself).arg(name).status()?.success() {
            return Err(format!("{name} failed").into());
        }
    }
    Ok(())
}

/// Runs so many CUBIC flows, and prints the numbers of packets and events.
fn counted(flows: u32, seconds: u64) -> Result<(), Box<dyn std::error::Error>> {
    let (mut net, link) = worlds::cubic(flows);
    net.run_until(Time::from_secs(seconds));
    println!("{} packets, {} events", net.link_counters(link).delivered, net.events());
    Ok(())
}

fn run(name: &str) -> Result<(), Box<dyn std::error::Error>> {
    match name {
        FLOWS => memory_of_a_flow(),
        PACKETS => memory_of_a_packet(),
        name => {
            let known = || WORLDS.iter().find(|world| world.name == name);
            cost(known().ok_or("there is no such world: run cost without arguments for all of them")?);
        }
    }
    Ok(())
}

/// Runs a world and prints its row.
fn cost(&World { name, make, seconds }: &World) {
    let begun = cpu();
    let (mut net, link) = make();
    net.run_until(Time::from_secs(seconds));
    let spent = cpu().saturating_sub(begun).as_secs_f64();
    let (packets, events) = (net.link_counters(link).delivered, net.events());
    let per = |count: u64| spent * 1e9 / count as f64;
    println!(
        "| {name} | {seconds} | {:.4} | {packets} | {:.0} | {events} | {:.0} | {} |",
        spent / seconds as f64,
        per(packets),
        per(events),
        memory("VmHWM:").map_or("unknown".to_owned(), |bytes| format!("{:.1} MB", bytes as f64 / 1e6)),
    );
}

/// Prints the memory of a flow before it sends anything, both ends together.
fn memory_of_a_flow() {
    const FLOWS: u32 = 50_000;
    let before = memory("VmRSS:");
    let net = worlds::waiting(FLOWS);
    let after = memory("VmRSS:");
    if let (Some(before), Some(after)) = (before, after) {
        println!(
            "A TCP flow that sends nothing: {} bytes, both ends together.",
            (after - before) / u64::from(FLOWS)
        );
    }
    drop(net);
}

/// Prints the memory of a packet that is sent and not yet acknowledged: on the wire, and at both
/// ends.
fn memory_of_a_packet() {
    let before = memory("VmRSS:");
    let (mut net, link) = worlds::one_flow(u64::MAX, 800_000, Loss::None);
    let made = memory("VmRSS:");
    // At 250 Mbit/s, slow start fills the window in some 26 s.
    net.run_until(Time::from_secs(60));
    let after = memory("VmRSS:");
    let (_, waiting) = net.queue_counters(link);
    if let (Some(before), Some(made), Some(after)) = (before, made, after) {
        println!(
            "A packet under way: {} bytes, at {} packets of which {} wait in the queue; the network with one flow {} kB.",
            (after - made) / 800_000,
            800_000,
            waiting.packets,
            (made - before) / 1000,
        );
    }
}

/// CPU time of this process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A value of `/proc/self/status`, in bytes.
fn memory(what: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(what))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}
