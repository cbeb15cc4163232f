//! Drops and marks of packets behind every header that the classifier reads, as the kernel's tracepoints tell them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use marcato_kernel::{Attachment, Counter, Device, FlowId, QueueKind, Shaper};
use marcato_testing::skip;
use marcato_units::{Duration, Rate};
use marcato_wire::FlowTuple;
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, sendto, socket};

use crate::net::{Net, run};
use crate::{SHAPER, attach, configuration};

/// EtherTypes of the tags before a packet, and whether a PPPoE session carries it.
const HEADERS: [(&[u16], bool); 8] = [
    (&[], false),
    (&[0x8100], false),
    (&[0x88a8], false),
    (&[0x88a8, 0x8100], false),
    (&[0x8100, 0x8100], false),
    (&[], true),
    (&[0x8100], true),
    (&[0x88a8, 0x8100], true),
];

/// Flow of its own for these headers.
pub(crate) fn flow(number: usize, version: u8) -> FlowTuple {
    let host = |host: u8| -> IpAddr {
        if version == 4 {
            Ipv4Addr::new(192, 0, 2, host).into()
        } else {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into()
        }
    };
    FlowTuple {
        protocol: FlowTuple::TCP,
        source: host(1),
        destination: host(2),
        source_port: 443,
        destination_port: 5000 + u16::try_from(number).unwrap(),
    }
}

/// Frame with a packet of the flow.
pub(crate) fn frame(flow: &FlowTuple, tags: &[u16], pppoe: bool) -> Vec<u8> {
    let packet = packet(flow);
    let mut bytes = vec![2; 12];
    for tag in tags {
        bytes.extend(tag.to_be_bytes());
        bytes.extend([0x20, 0x07]);
    }
    let is_ipv4 = flow.source.is_ipv4();
    if pppoe {
        bytes.extend([0x88, 0x64, 0x11, 0, 0, 1]);
        bytes.extend(u16::try_from(packet.len() + 2).unwrap().to_be_bytes());
        bytes.extend([0, if is_ipv4 { 0x21 } else { 0x57 }]);
    } else {
        bytes.extend(if is_ipv4 { [0x08, 0x00] } else { [0x86, 0xdd] });
    }
    bytes.extend(packet);
    bytes
}

/// Packet with 1000 bytes of TCP, which says that marks are welcome.
fn packet(flow: &FlowTuple) -> Vec<u8> {
    const SEGMENT: u16 = 1000;
    let mut bytes = Vec::new();
    match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            bytes.extend([0x45, 2]);
            bytes.extend((20 + SEGMENT).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, flow.protocol, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            bytes.extend([0x60, 0x20, 0, 0]);
            bytes.extend(SEGMENT.to_be_bytes());
            bytes.extend([flow.protocol, 64]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
        _ => panic!("a flow has one family"),
    }
    let end = bytes.len() + usize::from(SEGMENT);
    bytes.extend(flow.source_port.to_be_bytes());
    bytes.extend(flow.destination_port.to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.resize(end, 0);
    bytes
}

/// Sends a frame so many times by a device of the router, as fast as the processor can.
pub(crate) fn send(net: &Net, device: &str, frame: &[u8], times: usize) {
    net.on(0, || {
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None).unwrap();
        let mut devices = nix::ifaddrs::getifaddrs().unwrap();
        let device: LinkAddr = devices
            .find_map(|it| {
                (it.interface_name == device).then(|| it.address?.as_link_addr().copied()).flatten()
            })
            .unwrap();
        for _ in 0..times {
            // A sender is told of a drop.
            let _ = sendto(socket.as_raw_fd(), frame, &device, MsgFlags::empty());
        }
    });
}

/// Signals of drops and of marks that a flow has.
pub(crate) fn signals(attachment: &Attachment, flow: &FlowTuple) -> [u64; 2] {
    let id = FlowId::new(flow);
    let (_, state) = attachment.flows().find(|(of, _)| *of == id).unwrap();
    state.signals.map(u64::from)
}

#[test]
fn drops_are_booked_behind_tags_and_pppoe_sessions() {
    let Some(net) = Net::new("headers") else { return };
    net.shape(&SHAPER);
    let attachment = attach(&net, SHAPER.priority());
    let mut booked = 0;
    for (number, (tags, pppoe)) in HEADERS.into_iter().enumerate() {
        for version in [4, 6] {
            let flow = flow(number, version);
            let before = net.drops();
            send(&net, "wan", &frame(&flow, tags, pppoe), 200);
            let dropped = net.drops() - before;
            assert!(dropped > 20, "{dropped} drops with {tags:x?}, PPPoE: {pppoe}, IPv{version}");
            assert_eq!(signals(&attachment, &flow), [dropped, 0], "{tags:x?}, PPPoE: {pppoe}, IPv{version}");
            booked += dropped;
        }
    }
    let counter = |counter| attachment.counter(counter).unwrap().packets;
    assert_eq!((counter(Counter::Drops), counter(Counter::UnknownSignals)), (booked, 0));
}

// Debian's kernels have CoDel: `make test-kernel`. It marks no packet in a PPPoE session.
#[test]
fn marks_are_booked_behind_tags() {
    let Some(net) = Net::new("marked") else { return };
    let shaper = Shaper {
        rate: Rate::from_mbps(8),
        round_trip: Duration::from_secs(2),
        young: None,
        standard: QueueKind::CodelEcn,
        ..SHAPER
    };
    if !net.can_shape(&shaper) {
        return;
    }
    let attachment = attach(&net, [shaper.priority()[0]; 2]);
    let mut sums = [0; 2];
    for (number, (tags, pppoe)) in HEADERS.into_iter().enumerate() {
        for version in [4, 6] {
            let flow = flow(number, version);
            let before = net.leaf("wan", "c4:10");
            // Half a second of the link.
            send(&net, "wan", &frame(&flow, tags, pppoe), 500);
            while net.leaf("wan", "c4:10").qlen > 0 {
                std::thread::yield_now();
            }
            let after = net.leaf("wan", "c4:10");
            let signals = signals(&attachment, &flow);
            assert_eq!(
                signals,
                [after.drops - before.drops, after.marks - before.marks],
                "{tags:x?}, PPPoE: {pppoe}, IPv{version}"
            );
            sums = [sums[0] + signals[0], sums[1] + signals[1]];
        }
    }
    eprintln!("{} drops, {} marks", sums[0], sums[1]);
    assert!(sums[1] > 10, "{sums:?}");
}

// Debian's kernels have the module ipip: `make test-kernel`.
#[test]
fn drops_are_booked_on_a_device_of_plain_ip() {
    let Some(net) = Net::new("plain") else { return };
    let router = &net.names[0];
    if let Err(why) =
        run("ip", &format!("-n {router} link add tunnel type ipip remote 10.9.8.2 local 10.9.8.1"))
    {
        skip(env!("CARGO_PKG_NAME"), &format!("the kernel has no ipip: {why}"));
        return;
    }
    run("ip", &format!("-n {router} link set tunnel addrgenmode none")).unwrap();
    run("ip", &format!("-n {router} addr add 10.9.6.1/24 dev tunnel")).unwrap();
    run("ip", &format!("-n {router} link set tunnel up")).unwrap();
    net.shape_device("tunnel", &SHAPER);
    let attachment = net.on(0, || {
        let device = Device::find("tunnel").unwrap();
        assert!(!device.ethernet);
        let configuration = configuration(&device, SHAPER.priority());
        Attachment::attach(net.pins.path(), &device, &configuration, 1024).unwrap()
    });
    for (number, version) in [4, 6].into_iter().enumerate() {
        let flow = flow(number, version);
        let before = net.leaf("tunnel", "c4:10").drops;
        send(&net, "tunnel", &packet(&flow), 200);
        let dropped = net.leaf("tunnel", "c4:10").drops - before;
        assert!(dropped > 20, "{dropped} drops with IPv{version}");
        assert_eq!(signals(&attachment, &flow), [dropped, 0], "IPv{version}");
    }
    assert_eq!(attachment.counter(Counter::UnknownSignals).unwrap().packets, 0);
}

// HTB takes the place of `mq` and of the queue of each transmit queue below it.
#[test]
fn drops_are_booked_on_a_device_of_several_transmit_queues() {
    const QUEUES: usize = 4;
    let Some(net) = Net::new("queues") else { return };
    net.add_many(QUEUES);
    let device = net.on(0, || Device::find("many").unwrap());
    assert_eq!(device.queues as usize, QUEUES);
    net.shape_device("many", &SHAPER);
    let attachment = net.on(0, || {
        Attachment::attach(net.pins.path(), &device, &configuration(&device, SHAPER.priority()), 1024)
            .unwrap()
    });
    // Flows that hash to any of the transmit queues.
    for number in 0..2 * QUEUES {
        let flow = flow(number, 4);
        let before = net.leaf("many", "c4:10").drops;
        send(&net, "many", &frame(&flow, &[], false), 200);
        let dropped = net.leaf("many", "c4:10").drops - before;
        assert!(dropped > 20, "{dropped} drops of flow {number}");
        assert_eq!(signals(&attachment, &flow), [dropped, 0], "flow {number}");
    }
    assert_eq!(attachment.counter(Counter::UnknownSignals).unwrap().packets, 0);
}
