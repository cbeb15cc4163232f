//! CRQ below classes of a tree that somebody else has set up.

use marcato_kernel::{
    Attachment, ClassId, Configuration, Counter, Device, Queue, QueueKind, Seat, Shaper, Tree, YoungPlace,
    YoungQueue,
};
use marcato_units::{Bytes, Rate};

use crate::encapsulation::{flow, frame, send, signals};
use crate::net::{Net, run};
use crate::{SHAPER, configuration};

/// Payload of each packet, and the IP packet.
const PAYLOAD: usize = 1200;
const PACKET: u64 = 1228;
/// Packets that a flow may send as a young one.
const ALLOWED: u64 = 10;

/// Puts CRQ below classes of a device of the router.
fn attach(net: &Net, device: &str, shaper: &Shaper, classes: &[&str]) -> (Attachment, Vec<Seat>) {
    let classes: Vec<ClassId> = classes.iter().map(|class| class.parse().unwrap()).collect();
    net.on(0, || {
        let device = Device::find(device).unwrap();
        let tree = Tree::read(&device.name).unwrap();
        let seats = tree.seats(&classes, &[], false).unwrap();
        let commands = seats.iter().flat_map(|seat| shaper.commands_below(&device, seat, false));
        commands.for_each(|command| drop(command.run().unwrap()));
        let place = YoungPlace {
            priority: shaper.young_priority(),
            allowance: Bytes::new(ALLOWED * PACKET),
            regain: Rate::from_kbps(8),
            secret: 1,
        };
        let configuration =
            Configuration { young: shaper.young.map(|_| place), ..configuration(&device, shaper.priority()) };
        let attachment =
            Attachment::attach_below(net.pins.path(), &device, &seats, &configuration, 1024).unwrap();
        (attachment, seats)
    })
}

/// Tree of two classes that borrow everything, by turns: of flows from the ports 8192 to 8447, and of all others.
fn tree(net: &Net, rate: &str) {
    net.tc("qdisc add dev wan root handle 1: htb default 20");
    net.tc(&format!("class add dev wan parent 1: classid 1:1 htb rate {rate} quantum 1514"));
    for class in ["1:10", "1:20"] {
        net.tc(&format!(
            "class add dev wan parent 1:1 classid {class} htb rate 8bit ceil {rate} quantum 1514"
        ));
    }
    net.tc("filter add dev wan parent 1: protocol ip prio 1 u32 match ip sport 8192 0xff00 flowid 1:10");
}

#[test]
fn a_class_with_crq_has_its_queues_and_borrows_as_before() {
    let Some(net) = Net::new("below") else { return };
    // So slow that packets are sent faster than they leave, also on a busy machine.
    tree(&net, "200kbit");
    let young = Some(YoungQueue { share: 75, kind: QueueKind::DropTail });
    let (attachment, seats) = attach(&net, "wan", &Shaper { young, ..SHAPER }, &["1:10"]);
    let receiver = net.receiver();
    let sender = |port| net.sender(port);
    let arrivals = || net.arrivals(&receiver);
    // The addresses of the link are known from then on.
    sender(6000).send(&[0; PAYLOAD]).unwrap();
    assert_eq!(arrivals(), [6000]);
    let other = sender(7000);
    for _ in 0..60 {
        other.send(&[0; PAYLOAD]).unwrap();
    }
    // Of its packets, those beyond the allowance wait in the standard queue.
    let flood = sender(8192);
    for _ in 0..ALLOWED + 40 {
        flood.send(&[0; PAYLOAD]).unwrap();
    }
    let fresh = sender(8193);
    for _ in 0..ALLOWED {
        fresh.send(&[0; PAYLOAD]).unwrap();
    }
    let arrived = arrivals();
    assert_eq!(arrived.len(), 120);
    let is_below = |port: &u16| (8192..8448).contains(port);
    // While both classes wait, two queues of the one have no more than the one queue of the other.
    let begin = arrived.iter().position(is_below).unwrap();
    let end = [true, false].map(|below| arrived.iter().rposition(|port| is_below(port) == below).unwrap());
    let both = &arrived[begin..end[0].min(end[1])];
    let below = both.iter().filter(|port| is_below(port)).count();
    assert!(
        both.len() > 60 && (2 * below).abs_diff(both.len()) < both.len() / 8,
        "{below} of {}",
        both.len()
    );
    // And within the class, the young flow has passed most of the flood.
    let last = arrived.iter().rposition(|port| *port == 8193).unwrap();
    let flooded = arrived[..last].iter().filter(|port| **port == 8192).count();
    // Ten of its own, a sixth as many as the young ones, and those that left before these came.
    assert!(flooded < 23, "{flooded} of 50 before the last young packet");
    let count = |counter| attachment.counter(counter).unwrap().packets;
    // Packets of the other class are none of CRQ's.
    assert_eq!((count(Counter::Young), count(Counter::Standard)), (2 * ALLOWED, 40));
    let leaf = |minor: &str| net.leaf("wan", &format!("{:x}:{minor}", seats[0].handle)).packets;
    assert_eq!((leaf("30"), leaf("10"), leaf("20")), (2 * ALLOWED, 40, 0));
}

#[test]
fn flows_of_a_class_are_judged_and_their_drops_booked() {
    let Some(net) = Net::new("judge") else { return };
    tree(&net, "20mbit");
    // Traffic of the client is in the other class.
    let (attachment, seats) = attach(&net, "wan", &SHAPER, &["1:20"]);
    net.send(4_000_000);
    let count = |counter| attachment.counter(counter).unwrap().packets;
    let queues = || ["10", "20"].map(|minor| net.leaf("wan", &format!("{:x}:{minor}", seats[0].handle)));
    let seen = || {
        let counters = [Counter::Standard, Counter::Responsive].map(count);
        (counters, queues().map(|queue| queue.packets + queue.drops + queue.qlen))
    };
    // The last acknowledgement may be between the two.
    let mut both = seen();
    for _ in 0..1000 {
        if both.0 == both.1 {
            break;
        }
        both = seen();
    }
    assert_eq!(both.0, both.1, "packets that were sent to the queues, and that these have seen");
    let (drops, unknown) = (count(Counter::Drops), count(Counter::UnknownSignals));
    eprintln!("{drops} drops, {:?} packets in the queues", both.0);
    let lost = queues().iter().map(|queue| queue.drops).sum::<u64>();
    assert!(drops > 0 && drops <= lost && unknown == 0, "{drops} of {lost} drops, {unknown} unknown");
    assert!(both.0[0] + both.0[1] > 2700);
}

#[test]
fn classes_below_the_queues_of_a_device_have_crq() {
    const QUEUES: usize = 4;
    let Some(net) = Net::new("mq") else { return };
    net.add_many(QUEUES);
    let classes: Vec<String> = (1..=QUEUES).map(|number| format!("1{number}:10")).collect();
    for number in 1..=QUEUES {
        net.tc(&format!("qdisc add dev many parent 7:{number} handle 1{number}: htb default 10"));
        net.tc(&format!(
            "class add dev many parent 1{number}: classid 1{number}:10 htb rate 5mbit quantum 1514"
        ));
    }
    let names: Vec<&str> = classes.iter().map(String::as_str).collect();
    let shaper = Shaper { rate: Rate::from_mbps(5), ..SHAPER };
    let (attachment, seats) = attach(&net, "many", &shaper, &names);
    let leaf = |seat: &Seat| net.leaf("many", &format!("{:x}:10", seat.handle));
    let all = || seats.iter().map(|seat| leaf(seat).drops).sum::<u64>();
    for number in 0..2 * QUEUES {
        let flow = flow(number, 4);
        let before = all();
        send(&net, "many", &frame(&flow, &[], false), 300);
        let dropped = all() - before;
        assert!(dropped > 20, "{dropped} drops of flow {number}");
        assert_eq!(signals(&attachment, &flow), [dropped, 0], "flow {number}");
    }
    let used = seats.iter().filter(|seat| leaf(seat).packets > 0).count();
    assert!(used > 1, "flows of {used} transmit queues");
    assert_eq!(attachment.counter(Counter::UnknownSignals).unwrap().packets, 0);
    let seen = |queue: Queue| queue.packets + queue.drops + queue.qlen;
    let sent: u64 = seats.iter().map(|seat| seen(leaf(seat))).sum();
    assert_eq!(attachment.counter(Counter::Standard).unwrap().packets, sent);
}

// Debian's kernels have all of them: `make test-kernel`.
#[test]
fn queues_of_classes_are_put_back_with_their_options() {
    let Some(net) = Net::new("leaf") else { return };
    tree(&net, "20mbit");
    let class: ClassId = "1:10".parse().unwrap();
    let queue = || {
        let queues = net.on(0, || Queue::all("wan").unwrap());
        let leaf = queues.into_iter().find(|queue| queue.parent.as_deref() == Some("1:10"));
        leaf.map(|queue| (queue.kind, queue.handle, queue.options))
    };
    let mut kinds = 0;
    for words in [
        "pfifo limit 77",
        "handle 99: bfifo limit 33000",
        "pfifo_head_drop limit 55",
        "codel limit 500 target 7ms interval 80ms ecn",
        "codel noecn",
        "fq_codel limit 1001 flows 512 quantum 300 target 6ms interval 90ms memory_limit 4Mb drop_batch 32 noecn",
        "fq_codel",
        "cake bandwidth 15mbit diffserv4 nat wash ingress ack-filter dual-dsthost rtt 50ms ptm overhead 30 mpu 68 memlimit 2Mb",
        "cake raw besteffort no-split-gso",
        "cake",
    ] {
        let made = run("tc", &format!("-n {} qdisc replace dev wan parent 1:10 {words}", net.names[0]));
        match made {
            Err(why) if why.contains("unknown") => continue,
            made => drop(made.unwrap()),
        }
        kinds += 1;
        let before = queue().unwrap();
        net.on(0, || {
            let device = Device::find("wan").unwrap();
            let seats = Tree::read("wan").unwrap().seats(&[class], &[], false).unwrap();
            let run = |command: &marcato_kernel::TcCommand| drop(command.run().unwrap());
            SHAPER.commands_below(&device, &seats[0], false).iter().for_each(run);
            let tree = Tree::read("wan").unwrap();
            assert!(tree.has(&seats[0]), "{words}");
            run(&tree.undo(&seats[0]));
        });
        assert_eq!(queue().unwrap(), before, "{words}");
        net.tc("qdisc del dev wan parent 1:10");
    }
    assert!(kinds >= 3, "{kinds} kinds of queue");
    assert_eq!(queue(), None);
}
