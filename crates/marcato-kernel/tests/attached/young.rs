//! Place for young flows, with the kernel's queues.

use std::net::UdpSocket;

use marcato_kernel::{Attachment, Configuration, Counter, Device, QueueKind, Shaper, YoungPlace, YoungQueue};
use marcato_units::{Bytes, Rate};

use super::net::Net;
use super::{SHAPER, configuration};

/// Payload of each packet, and the IP packet.
const PAYLOAD: usize = 1200;
const PACKET: u64 = 1228;
/// Packets that a flow may send as a young one.
const ALLOWED: u64 = 10;

/// A device with a place for young flows, with the programs; `None` where the kernel lacks the discipline.
fn with_place(name: &str, kind: QueueKind) -> Option<(Net, Attachment)> {
    let net = Net::new(name)?;
    // So slow that packets are sent faster than they leave, also on a busy machine.
    let rate = Rate::from_kbps(200);
    let shaper = Shaper { rate, young: Some(YoungQueue { share: 75, kind }), ..SHAPER };
    if !net.can_shape(&shaper) {
        return None;
    }
    let place = YoungPlace {
        priority: shaper.young_priority(),
        allowance: Bytes::new(ALLOWED * PACKET),
        regain: Rate::from_kbps(8),
        secret: 1,
    };
    let attachment = net.on(0, || {
        let device = Device::find("wan").unwrap();
        let configuration = Configuration { young: Some(place), ..configuration(&device, shaper.priority()) };
        Attachment::attach(net.pins.path(), &device, &configuration, 1024).unwrap()
    });
    Some((net, attachment))
}

// Debian's kernels have FQ-CoDel: `make test-kernel`.
#[test]
fn young_flows_pass_a_flood_which_keeps_a_part_of_the_link() {
    for (name, kind) in [("young", QueueKind::DropTail), ("young-fq", QueueKind::FqCodel)] {
        let Some((net, attachment)) = with_place(name, kind) else { continue };
        let receiver = net.receiver();
        let sender = |port| net.sender(port);
        let arrivals = || net.arrivals(&receiver);
        // The addresses of the link are known from then on.
        sender(6000).send(&[0; PAYLOAD]).unwrap();
        assert_eq!(arrivals(), [6000]);
        let flood = sender(7000);
        for _ in 0..ALLOWED + 50 {
            flood.send(&[0; PAYLOAD]).unwrap();
        }
        let young: Vec<UdpSocket> = (8000..8003).map(sender).collect();
        for _ in 0..ALLOWED {
            for socket in &young {
                socket.send(&[0; PAYLOAD]).unwrap();
            }
        }
        let arrived = arrivals();
        let last = arrived.iter().rposition(|&port| port >= 8000).unwrap();
        let flooded = arrived[..last].iter().filter(|&&port| port == 7000).count();
        // Its own allowance, some of which FQ-CoDel drops, and less than half of the others while young flows wait.
        let own = usize::try_from(ALLOWED).unwrap();
        let least = if kind == QueueKind::DropTail { own + 1 } else { 1 };
        assert!(
            (least..own + 25).contains(&flooded),
            "{kind:?}: {flooded} of 60 before the last young packet"
        );
        let count = |counter| attachment.counter(counter).unwrap().packets;
        assert_eq!(count(Counter::Young), 1 + 4 * ALLOWED, "{kind:?}");
        // Packets of address discovery are no IP.
        let others = count(Counter::Unreadable);
        assert_eq!((count(Counter::Standard), count(Counter::Outgrown)), (others + 50, 50), "{kind:?}");
        // FQ-CoDel drops those that wait for long.
        let [young, standard] = ["c4:30", "c4:10"].map(|class| net.leaf("wan", class));
        assert_eq!(young.packets + young.drops, 1 + 4 * ALLOWED, "{kind:?}");
        assert_eq!(standard.packets + standard.drops, others + 50, "{kind:?}");
    }
}
