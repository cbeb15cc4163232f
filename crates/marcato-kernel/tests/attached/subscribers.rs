//! Subscribers of a device: classes of one tree, found by address, with CRQ below each.

use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use std::{io, thread};

use marcato_kernel::{
    Attachment, Configuration, Counter, Device, Prefix, Queue, Shaper, Side, Subscriber, TcCommand,
};
use marcato_units::Rate;

use crate::encapsulation::{flow, frame, send as transmit};
use crate::net::{Net, run};
use crate::{SHAPER, configuration};

/// Rate of the link.
const LINK: Rate = Rate::from_mbps(100);
/// Many subscribers, and enough for what does not need so many: each takes time on an emulated processor.
const MANY: u16 = 1000;
const SOME: u16 = 40;
/// Subscribers that have hosts: the server's two addresses.
const ANNA: &str = "10.9.8.2";
const BERTA: &str = "10.9.8.3";

/// Handle of the subscriber with this number.
const fn handle(number: u16) -> u16 {
    Subscriber::FIRST + number
}

/// Puts so many subscribers with this rate on the router's device towards the server.
fn attach(net: &Net, subscribers: u16, each: Rate) -> Attachment {
    run("ip", &format!("-n {} addr add {BERTA}/24 dev eth0", net.names[1])).unwrap();
    let count = subscribers;
    let subscribers: Vec<Subscriber> = (0..count)
        .map(|number| Subscriber {
            name: format!("s{number}"),
            handle: handle(number),
            min: Rate::from_kbps(50),
            max: each,
        })
        .collect();
    let address = |number: u16| match number {
        0 => ANNA.to_owned(),
        1 => BERTA.to_owned(),
        number => format!("10.20.{}.{}", number / 250, number % 250),
    };
    let mut prefixes: Vec<(Prefix, u16)> =
        (0..count).map(|number| (address(number).parse().unwrap(), handle(number))).collect();
    prefixes
        .extend((0..count).map(|number| (format!("fd00:{number:x}::/32").parse().unwrap(), handle(number))));
    net.on(0, || {
        let begun = Instant::now();
        let device = Device::find("wan").unwrap();
        let mut commands = Shaper { rate: LINK, ..SHAPER }.commands_shared(&device);
        let each = Shaper { rate: each, ..SHAPER };
        commands.extend(subscribers.iter().flat_map(|it| each.commands_of(&device, it)));
        TcCommand::run_all(&commands).unwrap();
        let queues = begun.elapsed();
        let configuration =
            Configuration { side: Some(Side::Destination), ..configuration(&device, SHAPER.priority()) };
        let pins = net.pins.path();
        let attachment =
            Attachment::attach_subscribers(pins, &device, &subscribers, &prefixes, &configuration, 4096)
                .unwrap();
        eprintln!(
            "{count} subscribers: {} commands in {} ms, all in {} ms",
            commands.len(),
            queues.as_millis(),
            begun.elapsed().as_millis()
        );
        attachment
    })
}

/// Queue of a subscriber.
fn leaf(net: &Net, number: u16, minor: u16) -> Queue {
    net.leaf("wan", &format!("{:x}:{minor:x}", handle(number)))
}

/// Packets that the queue of a subscriber has seen, dropped ones too.
fn seen(net: &Net, number: u16, minor: u16) -> u64 {
    let queue = leaf(net, number, minor);
    queue.packets + queue.drops + queue.qlen
}

/// Packets that have left the queue of an unassessed subscriber, and those that it dropped, once it is empty.
fn emptied(net: &Net, number: u16) -> (u64, u64) {
    let mut reads = (0..500).map(|_| leaf(net, number, 0x10));
    let queue = reads.find(|queue| queue.qlen == 0).expect("the queue never empties");
    (queue.packets, queue.drops)
}

/// Sends until something has arrived, and returns the packets that it took: a flood of another test can fill what all
/// devices of a processor share.
fn reach(from: &UdpSocket, to: &UdpSocket) -> u64 {
    let arrives = |_: &u64| {
        from.send(&[0; 1200]).unwrap();
        to.recv(&mut [0; 2000]).is_ok()
    };
    (1..500).find(arrives).expect("nothing arrives")
}

/// Two numbers that are read one after the other, as soon as nothing comes between.
fn settled(read: impl Fn() -> (u64, u64)) -> (u64, u64) {
    let mut last = read();
    for _ in 0..500 {
        if last.0 == last.1 {
            break;
        }
        last = read();
    }
    last
}

#[test]
fn the_flood_of_one_subscriber_does_not_touch_another() {
    const FLOOD: u64 = 500;
    const OTHERS: u64 = 40;
    let Some(net) = Net::new("subscribers") else { return };
    let attachment = attach(&net, MANY, Rate::from_mbps(1));
    let receive = |address: &str| {
        let socket = net.on(1, || UdpSocket::bind((address, 9000)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        socket
    };
    let [anna, berta] = [ANNA, BERTA].map(receive);
    let sender = |to: &str| {
        let socket = net.on(0, || UdpSocket::bind("10.9.8.1:0").unwrap());
        socket.connect((to, 9000)).unwrap();
        socket
    };
    let (flood, quiet) = (sender(ANNA), sender(BERTA));
    // The addresses of the link are known from then on.
    reach(&flood, &anna);
    reach(&quiet, &berta);
    let before = [0, 1].map(|number| emptied(&net, number).0);
    let mut others = 0;
    for number in 0..FLOOD {
        // A sender is told of a drop.
        let _ = flood.send(&[0; 1200]);
        if number % (FLOOD / OTHERS) == 0 {
            quiet.send(&[0; 1200]).unwrap();
            others += 1;
        }
    }
    let (flooded, dropped) = emptied(&net, 0);
    let flooded = flooded + dropped - before[0];
    assert!(flooded == FLOOD && dropped > 100, "{dropped} of {flooded} of the flood dropped");
    let (left, dropped) = emptied(&net, 1);
    assert_eq!((left - before[1], dropped), (others, 0), "packets and drops of the other subscriber");
    // Packets of nobody have a class of their own.
    run("ip", &format!("-n {} addr add 10.9.8.9/24 dev eth0", net.names[1])).unwrap();
    let sent = reach(&sender("10.9.8.9"), &receive("10.9.8.9"));
    // Packets of address discovery are no IP.
    let class = format!("{:x}:10", Subscriber::OTHERS);
    let (queue, unreadable) = settled(|| {
        let unreadable = attachment.counter(Counter::Unreadable).unwrap().packets;
        (net.leaf("wan", &class).packets, unreadable + sent)
    });
    assert_eq!(queue, unreadable);
}

#[test]
fn a_responsive_flow_of_a_subscriber_leaves_its_flood() {
    let Some(net) = Net::new("inside") else { return };
    let attachment = attach(&net, SOME, Rate::from_mbps(10));
    let flood = net.on(2, || UdpSocket::bind("10.9.7.2:0").unwrap());
    flood.connect((ANNA, 9000)).unwrap();
    let _sink = net.on(1, || UdpSocket::bind((ANNA, 9000)).unwrap());
    let listener = net.on(1, || TcpListener::bind((ANNA, 0)).unwrap());
    let address = listener.local_addr().unwrap();
    // `tc` would take longer than the flow may pause.
    let responsive = || attachment.counter(Counter::Responsive).unwrap().packets;
    let received = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        io::copy(&mut stream, &mut io::sink()).unwrap_or_default()
    });
    let mut stream = net.on(2, || TcpStream::connect(address).unwrap());
    // Until the flow has left the flood, which sends as much as it does: enough for many verdicts.
    for _ in 0..4000 {
        if responsive() > 0 {
            break;
        }
        for _ in 0..20 {
            let _ = flood.send(&[0; 1000]);
        }
        stream.write_all(&[7; 20_000]).unwrap();
    }
    drop(stream);
    received.join().unwrap();
    let flows: Vec<_> = attachment.flows().map(|(_, state)| state).collect();
    assert!(responsive() > 0, "no packet in the responsive queue: {flows:?}");
    let (queue, counted) = settled(|| (seen(&net, 0, 0x20), responsive()));
    assert_eq!(queue, counted);
    // The flood has none of it: every packet there is of a flow that answers, and the other subscriber saw nothing.
    let followed: u64 = flows.iter().map(|flow| flow.packets).sum();
    let unassessed = attachment.counter(Counter::Unassessed).unwrap().packets;
    assert!(unassessed > 0 && attachment.counter(Counter::Responsive).unwrap().packets <= followed);
    assert_eq!(seen(&net, 1, 0x10) + seen(&net, 1, 0x20), 0);
}

#[test]
fn addresses_change_hands_and_the_longest_prefix_counts() {
    let Some(net) = Net::new("hands") else { return };
    let mut attachment = attach(&net, SOME, Rate::from_mbps(10));
    let anna = net.on(1, || UdpSocket::bind((ANNA, 9000)).unwrap());
    let socket = net.on(0, || UdpSocket::bind("10.9.8.1:0").unwrap());
    socket.connect((ANNA, 9000)).unwrap();
    let send = || {
        socket.send(&[0; 1200]).unwrap();
        anna.recv(&mut [0; 2000]).unwrap();
    };
    send();
    let prefix = |text: &str| -> Prefix { text.parse().unwrap() };
    // The longest prefix counts.
    attachment.set_prefixes(&[(prefix("10.9.0.0/16"), handle(7)), (prefix(ANNA), handle(8))]).unwrap();
    send();
    attachment.set_prefixes(&[(prefix("10.9.0.0/16"), handle(7))]).unwrap();
    send();
    assert_eq!([0, 7, 8].map(|number| seen(&net, number, 0x10)), [1; 3]);
    // A configuration keeps them.
    net.on(0, || {
        let device = Device::find("wan").unwrap();
        let side = Some(Side::Destination);
        attachment.configure(&Configuration { side, ..configuration(&device, SHAPER.priority()) }).unwrap();
    });
    send();
    assert_eq!(seen(&net, 7, 0x10), 2);
    // Both families, behind tags too.
    attachment.set_prefixes(&[(prefix("fd00::/64"), handle(9)), (prefix("192.0.2.2"), handle(10))]).unwrap();
    for (version, tags) in [(4, &[][..]), (6, &[]), (6, &[0x8100])] {
        transmit(&net, "wan", &frame(&flow(1, version), tags, false), 1);
    }
    assert_eq!([9, 10].map(|number| seen(&net, number, 0x10)), [2, 1]);
    assert_eq!(attachment.subscribers().unwrap().len(), usize::from(SOME));
}
