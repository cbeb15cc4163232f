//! No packet makes the parser panic, and the result does not depend on the bytes around the packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use marcato_wire::{IpPacket, Transport};

fuzz_target!(|bytes: &[u8]| {
    let framed = IpPacket::parse_ethernet(bytes);
    let Ok(packet) = IpPacket::parse(bytes) else {
        if let Ok(packet) = framed {
            check(&packet);
        }
        return;
    };
    check(&packet);
    // The same packet in a frame, bare and behind two tags.
    let ethertype: [u8; 2] = if bytes[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    let mut frame = vec![0; 12];
    frame.extend(ethertype);
    frame.extend(bytes);
    assert_eq!(IpPacket::parse_ethernet(&frame), Ok(packet));
    frame.splice(12..12, [0x88, 0xa8, 0, 1, 0x81, 0, 0, 2]);
    assert_eq!(IpPacket::parse_ethernet(&frame), Ok(packet));
});

fn check(packet: &IpPacket) {
    assert_eq!(packet.flow.reversed().reversed(), packet.flow);
    assert_eq!(packet.flow.key(1), packet.flow.key(1));
    let payload = match packet.transport {
        Transport::Opaque => return,
        Transport::Tcp(segment) => segment.payload,
        Transport::Udp { payload, .. } => payload,
    };
    assert!(u64::from(payload) < packet.len.get());
}
