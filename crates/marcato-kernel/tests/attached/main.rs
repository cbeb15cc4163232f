//! Programs on a device between two network namespaces, with real TCP and the kernel's queues.
//!
//! They need root, and are skipped without.
//!
//! Every drop that `tc -s` counts is booked to its flow, if the kernel runs tracing programs in the task that
//! was interrupted. The kernel that these tests were written on leaves out one task. A drop that is not
//! booked is a signal less for its flow. `tools/kernel-tests/run` runs these tests on Debian's 6.1 and 6.12,
//! which have CoDel and FQ-CoDel. 6.1 has no tcx, no reasons of queue drops, and an older verifier.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod below;
mod encapsulation;
mod marks;
mod net;
mod option;
mod reverse;
mod subscribers;
mod young;

use std::net::UdpSocket;

use marcato_kernel::{
    Attachment, Configuration, Counter, Device, FlowState, Queue, QueueKind, Shaper, TcCommand, TcError,
};
use marcato_queue::trap::{TrapConfig, TrapKind};
use marcato_testing::skip;
use marcato_units::{Duration, Rate};

use self::net::{Net, Offloads};

const SHAPER: Shaper = Shaper {
    rate: Rate::from_mbps(20),
    share: 50,
    standard: QueueKind::DropTail,
    responsive: QueueKind::DropTail,
    round_trip: Duration::from_millis(10),
    young: None,
};

fn configuration(device: &Device, priority: [u32; 2]) -> Configuration {
    Configuration {
        priority,
        netns: device.netns,
        ifindex: device.ifindex,
        ethernet: device.ethernet,
        ..Configuration::watching(TrapConfig::marcato())
    }
}

/// Attaches the programs to the device.
fn attach(net: &Net, priority: [u32; 2]) -> Attachment {
    net.on(0, || {
        let device = Device::find("wan").unwrap();
        Attachment::attach(net.pins.path(), &device, &configuration(&device, priority), 1024).unwrap()
    })
}

/// Takes the programs off the device.
fn detach(net: &Net) {
    net.on(0, || {
        let device = Device::find("wan").unwrap();
        Attachment::detach(net.pins.path(), &device).unwrap();
    });
}

fn trap_value(state: &FlowState, name: &str) -> u32 {
    state.trap.iter().find(|(of, _)| *of == name).unwrap().1
}

/// The flow that sent more than so many packets, and there is one only.
fn only_flow(attachment: &Attachment, packets: u64) -> FlowState {
    let mut flows: Vec<_> = attachment.flows().filter(|(_, state)| state.packets > packets).collect();
    assert_eq!(flows.len(), 1, "{flows:?}");
    flows.remove(0).1
}

// Packets are sent, and so dropped, by the test's own thread. Answers to acknowledgements run over whatever task they
// interrupt, and a kernel may keep tracing programs from some tasks.
#[test]
fn every_drop_of_the_queues_is_booked_to_its_flow() {
    let Some(net) = Net::new("drop") else { return };
    net.shape(&SHAPER);
    let attachment = attach(&net, SHAPER.priority());
    let (client, _server) = greeted(&net);
    // Faster than 20 Mbit/s, into a queue of some packets. The spin bit changes at each tenth.
    for number in 0..1000 {
        let mut packet = [0; 1200];
        packet[0] = 0x40 | if number / 10 % 2 == 0 { 0x20 } else { 0 };
        client.send(&packet).unwrap();
    }
    let [drops, unknown] =
        [Counter::Drops, Counter::UnknownSignals].map(|counter| attachment.counter(counter).unwrap().packets);
    eprintln!("{drops} drops");
    assert!(drops > 100);
    assert_eq!((drops, unknown), (net.drops(), 0));
    let flow = only_flow(&attachment, 100);
    assert_eq!((flow.kind, u64::from(flow.signals[0])), (Some(TrapKind::Spin), drops));
}

/// QUIC's ends on either side of the router's device, after both have greeted: the sender, and the receiver.
fn greeted(net: &Net) -> (UdpSocket, UdpSocket) {
    const LONG_HEADER: [u8; 20] = [0xc0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let [client, server] = [(0, "10.9.8.1:4433"), (1, "10.9.8.2:443")]
        .map(|(end, at)| net.on(end, || UdpSocket::bind(at).unwrap()));
    client.connect("10.9.8.2:443").unwrap();
    server.connect("10.9.8.1:4433").unwrap();
    for (from, to) in [(&client, &server), (&server, &client)] {
        from.send(&LONG_HEADER).unwrap();
        assert_eq!(to.recv(&mut [0; 2000]).unwrap(), LONG_HEADER.len());
    }
    (client, server)
}

#[test]
fn joined_packets_fill_queues_and_count_by_their_segments() {
    const SEGMENT: i32 = 1200;
    const SEGMENTS: u64 = 20;
    const BURSTS: u64 = 10;
    const BURST: u64 = 10;
    let Some(net) = Net::with("join", Offloads::On) else { return };
    // So slow that little leaves between a burst and a look at the queue.
    net.shape(&Shaper { rate: Rate::from_mbps(1), ..SHAPER });
    let attachment = attach(&net, SHAPER.priority());
    let (client, _server) = greeted(&net);
    nix::sys::socket::setsockopt(&client, nix::sys::socket::sockopt::UdpGsoSegment, &SEGMENT).unwrap();
    // Without those of no flow: in the seconds that this takes, the kernel may ask for the neighbour's address again.
    let sent = || {
        let [all, other] =
            [Counter::Standard, Counter::Unreadable].map(|counter| attachment.counter(counter).unwrap());
        (all.packets - other.packets, all.bytes - other.bytes)
    };
    let before = sent();
    let joined = [0x40; 1200 * 20];
    let mut most = 0;
    for _ in 0..BURSTS {
        for _ in 0..BURST {
            client.send(&joined).unwrap();
        }
        let queues = net.on(0, || Queue::all("wan").unwrap());
        most = most.max(queues[0].backlog.get());
    }
    // A burst has 250 kB, for which a queue of 20 packets had room.
    let limit = 80_000;
    assert!((limit / 2..=limit).contains(&most), "{most} bytes waited");
    let after = sent();
    let frame = 14 + 20 + 8 + 1200;
    let segments = BURSTS * BURST * SEGMENTS;
    assert_eq!(after.0 - before.0, segments);
    assert_eq!(after.1 - before.1, segments * frame, "with the headers of each segment");
    // The kernel counts a joined packet that it drops as one.
    let [drops, unknown] =
        [Counter::Drops, Counter::UnknownSignals].map(|counter| attachment.counter(counter).unwrap().packets);
    assert_eq!((drops, unknown), (net.drops() * SEGMENTS, 0));
    assert!(drops > 0);
    let flow = only_flow(&attachment, 100);
    assert_eq!((flow.packets - segments, u64::from(flow.signals[0])), (0, drops));
    assert_eq!(flow.bytes, segments * (frame - 14));
}

#[test]
fn tcp_of_the_kernel_is_followed_through_its_cycles() {
    for (name, offloads) in [("tcp", Offloads::Off), ("tso", Offloads::On)] {
        let Some(net) = Net::with(name, offloads) else { return };
        net.shape(&SHAPER);
        let attachment = attach(&net, SHAPER.priority());
        net.send(4_000_000);
        let [drops, standard, responsive, unknown] =
            [Counter::Drops, Counter::Standard, Counter::Responsive, Counter::UnknownSignals]
                .map(|counter| attachment.counter(counter).unwrap().packets);
        eprintln!("{offloads:?}: {drops} drops, {standard} and {responsive} packets in the queues");
        assert!(drops > 0 && (offloads == Offloads::On || drops <= net.drops()), "{offloads:?}");
        assert_eq!(unknown, 0);
        assert!(standard + responsive > 2700);
        let flow = only_flow(&attachment, 2700);
        assert_eq!((flow.kind, u64::from(flow.signals[0])), (Some(TrapKind::Tcp), drops));
        assert!(trap_value(&flow, "cycles") > 10, "{flow:?}");
    }
}

#[test]
fn queues_change_under_traffic_and_keep_its_flows() {
    let Some(net) = Net::new("set") else { return };
    let run = |commands: Vec<TcCommand>| net.on(0, || commands.iter().for_each(|it| drop(it.run().unwrap())));
    net.shape(&SHAPER);
    let attachment = attach(&net, SHAPER.priority());
    net.send(200_000);
    let flows = attachment.flows().count();
    let faster = Shaper { rate: Rate::from_mbps(100), share: 80, ..SHAPER };
    run(faster.changes(&net.on(0, || Device::find("wan").unwrap())));
    net.send(200_000);
    assert_eq!(attachment.flows().count(), flows + 1);
    let queues = net.on(0, || Queue::all("wan").unwrap());
    let kinds: Vec<_> = queues.iter().map(|queue| queue.kind.as_str()).collect();
    // Programs are at clsact where there is no tcx.
    let kinds: Vec<_> = kinds.into_iter().filter(|kind| *kind != "clsact").collect();
    assert_eq!(kinds, ["htb", "bfifo", "bfifo"]);
    assert!(queues[0].packets > 260, "{queues:?}");
    assert!(
        net.tc("class show dev wan").contains("c4:20 parent c4:1 leaf c420: prio 0 rate 80Mbit ceil 100Mbit")
    );
    run(vec![Shaper::undo("wan")]);
    assert!(net.on(0, || Queue::all("wan").unwrap())[0].is_default());
}

// Debian's kernels have several disciplines: `make test-kernel`.
#[test]
fn a_queue_of_another_kind_takes_the_place_of_the_first() {
    let Some(net) = Net::new("kinds") else { return };
    net.shape(&SHAPER);
    let device = net.on(0, || Device::find("wan").unwrap());
    for standard in [QueueKind::Codel, QueueKind::FqCodel, QueueKind::CodelEcn, QueueKind::DropTail] {
        let changes = Shaper { standard, ..SHAPER }.changes(&device);
        let changed = net.on(0, || changes.iter().try_for_each(|command| command.run().map(drop)));
        if let Err(why @ TcError::Kind { .. }) = changed {
            skip(env!("CARGO_PKG_NAME"), &why.to_string());
            assert_eq!(net.leaf("wan", "c4:10").kind, "bfifo", "a refusal leaves the queue that was there");
            continue;
        }
        changed.unwrap();
        let kind = if standard == QueueKind::DropTail { "bfifo" } else { "codel" };
        assert!(net.leaf("wan", "c4:10").kind.ends_with(kind), "{standard:?}");
        net.send(100_000);
    }
}

#[test]
fn without_its_programs_all_traffic_has_the_standard_queue() {
    let Some(net) = Net::new("open") else { return };
    net.shape(&SHAPER);
    drop(attach(&net, SHAPER.priority()));
    detach(&net);
    net.send(1_000_000);
    assert!(net.of_class("c4:10 ", "Sent ") > 1_000_000);
    assert_eq!(net.of_class("c4:20 ", "Sent "), 0);
    // It takes the share of the other queue too.
    let borrowed = net.of_class("c4:10 ", "borrowed: ");
    assert!(borrowed > 100, "{borrowed} packets at the expense of the responsive queue");
}

#[test]
fn more_flows_than_the_map_has_room_for_all_get_through() {
    const ROOM: u32 = 16;
    const FLOWS: u64 = 40;
    let Some(net) = Net::new("full") else { return };
    net.shape(&SHAPER);
    let attachment = net.on(0, || {
        let device = Device::find("wan").unwrap();
        Attachment::hold(&device, &configuration(&device, SHAPER.priority()), ROOM).unwrap()
    });
    for _ in 0..FLOWS {
        net.send(10_000);
    }
    let counter = |counter| attachment.counter(counter).unwrap().packets;
    assert!(counter(Counter::FlowsAdded) >= FLOWS);
    assert!(attachment.flows().count() <= ROOM as usize);
    assert!(counter(Counter::Standard) + counter(Counter::Responsive) >= FLOWS * 7);
}

/// Sends by TCP through a standard queue of a kind, and returns the kernel's own count of its drops, of its
/// marks, and the attachment. `None` where the kernel lacks the discipline.
fn congested(name: &str, kind: QueueKind) -> Option<(u64, u64, Attachment)> {
    let net = Net::new(name)?;
    let shaper = Shaper {
        rate: Rate::from_mbps(10),
        round_trip: Duration::from_millis(200),
        standard: kind,
        ..SHAPER
    };
    if !net.can_shape(&shaper) {
        return None;
    }
    for end in [1, 2] {
        net.on(end, || std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1").unwrap());
    }
    let attachment = attach(&net, [shaper.priority()[0]; 2]);
    net.send(3_000_000);
    let queues: Vec<serde_json::Value> = serde_json::from_str(&net.tc("-s -j qdisc show dev wan")).unwrap();
    let standard = queues.iter().find(|queue| queue["parent"] == "c4:10").unwrap();
    let count = |name: &str| standard[name].as_u64().unwrap_or(0);
    Some((count("drops"), count("ecn_mark"), attachment))
}

// Debian's kernels have CoDel: `make test-kernel`.
#[test]
fn every_drop_of_codel_is_booked_to_its_flow() {
    for (name, kind) in [("codel", QueueKind::Codel), ("fq", QueueKind::FqCodel)] {
        let Some((drops, marks, attachment)) = congested(name, kind) else { continue };
        eprintln!("{drops} drops of {kind:?}");
        assert!(drops > 2 && marks == 0, "{drops} drops, {marks} marks");
        let flow = only_flow(&attachment, 1000);
        assert_eq!((u64::from(flow.signals[0]), flow.signals[1]), (drops, 0), "{kind:?}: {flow:?}");
        assert_eq!(attachment.counter(Counter::Drops).unwrap().packets, drops);
    }
}

#[test]
fn every_mark_of_codel_is_booked_to_its_flow() {
    let Some((drops, marks, attachment)) = congested("ecn", QueueKind::CodelEcn) else { return };
    eprintln!("{marks} marks");
    assert!(marks > 2, "{drops} drops, {marks} marks");
    let flow = only_flow(&attachment, 1000);
    assert_eq!((u64::from(flow.signals[1]), u64::from(flow.signals[0])), (marks, drops), "{flow:?}");
    assert_eq!(attachment.counter(Counter::Marks).unwrap().packets, marks);
}

/// Rate at which TCP gets through, in Mbit/s of its own bytes.
fn goodput(net: &Net, bytes: usize) -> f64 {
    let begun = std::time::Instant::now();
    net.send(bytes);
    8e-6 * f64::from(u32::try_from(bytes).unwrap()) / begun.elapsed().as_secs_f64()
}

#[test]
#[ignore = "measures rates in real time"]
fn traffic_has_the_full_rate_whatever_fails() {
    const BYTES: usize = 6_000_000;
    let Some(net) = Net::new("rate") else { return };
    net.shape(&SHAPER);
    let never = goodput(&net, BYTES);
    // The loader's process is gone, its pins are there.
    drop(attach(&net, SHAPER.priority()));
    let killed = goodput(&net, BYTES);
    detach(&net);
    let unloaded = goodput(&net, BYTES);
    // Every connection takes the place of the flow before.
    let attachment = net.on(0, || {
        let device = Device::find("wan").unwrap();
        Attachment::hold(&device, &configuration(&device, SHAPER.priority()), 1).unwrap()
    });
    let full = goodput(&net, BYTES);
    drop(attachment);
    eprintln!(
        "goodput at 20 Mbit/s: queues only {never:.2}, daemon killed {killed:.2}, programs unloaded {unloaded:.2}, map full {full:.2} Mbit/s"
    );
    for rate in [killed, unloaded, full] {
        assert!(rate > 0.9 * never, "{rate} of {never} Mbit/s");
    }
}

#[test]
fn an_attachment_of_a_killed_process_can_be_detached() {
    let Some(net) = Net::new("left") else { return };
    drop(attach(&net, [0; 2]));
    let device = net.on(0, || Device::find("wan").unwrap());
    let directory = std::fs::read_dir(net.pins.path()).unwrap().next().unwrap().unwrap().path();
    // As if it had been killed before the last classifier and the last map had their pins. Without tcx,
    // classifiers have none.
    let _ = std::fs::remove_file(directory.join("crq_ingress"));
    std::fs::remove_file(directory.join("note")).unwrap();
    assert!(net.on(0, || Attachment::open(net.pins.path(), &device).is_err()));
    detach(&net);
    assert!(!directory.exists());
    attach(&net, [0; 2]);
    detach(&net);
}

#[test]
fn an_attachment_outlives_its_process_and_is_taken_off_whole() {
    let Some(net) = Net::new("pin") else { return };
    // As if the process had ended: the value is dropped.
    let mut attachment = attach(&net, [0; 2]);
    attachment.set_note("rate = 20").unwrap();
    assert!(attachment.set_note(&"x".repeat(20_000)).is_err());
    drop(attachment);
    net.send(100_000);
    let device = net.on(0, || Device::find("wan").unwrap());
    let mut attachment = Attachment::open(net.pins.path(), &device).unwrap();
    assert_eq!(attachment.note().unwrap(), "rate = 20");
    let before = attachment.counter(Counter::Standard).unwrap().packets;
    assert!(before > 60, "{before}");
    let flows = attachment.flows().count();
    assert!(flows > 0);
    attachment.configure(&configuration(&device, [0; 2])).unwrap();
    assert_eq!(attachment.flows().count(), flows, "a new configuration forgets no flow");
    let again = net.on(0, || {
        Attachment::attach(net.pins.path(), &device, &configuration(&device, [0; 2]), 64)
            .err()
            .unwrap()
            .to_string()
    });
    assert!(again.contains("already"), "{again}");
    drop(attachment);
    detach(&net);
    let left = std::fs::read_dir(net.pins.path())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    assert_eq!(left.filter(|name| name.starts_with("crq-")).count(), 0);
    assert!(Attachment::open(net.pins.path(), &device).err().unwrap().to_string().contains("not on"));
    net.send(100_000);
}
