//! Packets as bytes.

use std::net::IpAddr;

use marcato_units::Stream;
use marcato_wire::{FlowTuple, QuicHeader, TcpSegment, Transport};

/// Flow between two hosts, with a client at `port`.
pub(super) fn tuple(protocol: u8, port: u16, version: u8) -> FlowTuple {
    let address = |host: u8| -> IpAddr {
        if version == 4 { [192, 0, 2, host].into() } else { [0xfd00, 0, 0, 0, 0, 0, 0, host.into()].into() }
    };
    FlowTuple {
        protocol,
        source: address(1),
        destination: address(2),
        source_port: 443,
        destination_port: port,
    }
}

/// Headers around a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wrapping {
    /// VLAN tags.
    tags: usize,
    pppoe: bool,
    /// Bytes of IPv4 options, or IPv6 extension headers.
    extra: usize,
}

impl Wrapping {
    pub(super) fn random(random: &mut Stream, version: u8) -> Self {
        let most = if version == 4 { 11 } else { 5 };
        let extra = if random.chance(0.3) { random.below(most) as usize } else { 0 };
        Self { tags: random.below(3) as usize, pppoe: random.chance(0.2), extra }
    }
}

pub(super) struct Frame<'a> {
    pub(super) flow: &'a FlowTuple,
    pub(super) transport: &'a Transport,
    pub(super) wrapping: Wrapping,
}

impl<'a> Frame<'a> {
    pub(super) fn new(flow: &'a FlowTuple, transport: &'a Transport) -> Self {
        Self { flow, transport, wrapping: Wrapping::default() }
    }
}

/// Bytes of a frame up to its transport header. The payload is left out, as in a capture; its
/// length is in the IP header.
pub(super) fn frame(frame: &Frame<'_>) -> Vec<u8> {
    let upper = match frame.transport {
        Transport::Tcp(segment) => tcp(frame.flow, segment),
        Transport::Udp { payload, quic } => udp(frame.flow, *payload, quic.as_ref()),
        Transport::Opaque => vec![0; 8],
    };
    let payload = match frame.transport {
        Transport::Tcp(segment) => segment.payload as usize,
        // The payload's first bytes are there.
        Transport::Udp { payload, .. } => *payload as usize + 8 - upper.len(),
        Transport::Opaque => 0,
    };
    let packet = match (frame.flow.source, frame.flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = 20 + 4 * frame.wrapping.extra;
            let total = u16::try_from(header + upper.len() + payload).unwrap().to_be_bytes();
            let mut bytes =
                vec![0x40 | u8::try_from(header / 4).unwrap(), 0, total[0], total[1], 0, 0, 0, 0, 64];
            bytes.extend([frame.flow.protocol, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            bytes.resize(header, 1);
            bytes
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let extensions = frame.wrapping.extra;
            let total = u16::try_from(8 * extensions + upper.len() + payload).unwrap().to_be_bytes();
            // Destination options, each of which names the next.
            let next = if extensions > 0 { 60 } else { frame.flow.protocol };
            let mut bytes = vec![0x60, 0, 0, 0, total[0], total[1], next, 64];
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            for left in (0..extensions).rev() {
                bytes.extend([if left > 0 { 60 } else { frame.flow.protocol }, 0, 1, 4, 0, 0, 0, 0]);
            }
            bytes
        }
        _ => panic!("a flow has one family"),
    };
    let version = packet[0] >> 4;
    let mut bytes = vec![2; 12];
    for _ in 0..frame.wrapping.tags {
        bytes.extend([0x81, 0x00, 0x20, 0x07]);
    }
    if frame.wrapping.pppoe {
        bytes.extend([0x88, 0x64, 0x11, 0, 0, 1, 0, 0, 0, if version == 4 { 0x21 } else { 0x57 }]);
    } else {
        bytes.extend(if version == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
    }
    bytes.extend(packet);
    bytes.extend(upper);
    bytes
}

fn ports(flow: &FlowTuple) -> [u8; 4] {
    let ([a, b], [c, d]) = (flow.source_port.to_be_bytes(), flow.destination_port.to_be_bytes());
    [a, b, c, d]
}

fn tcp(flow: &FlowTuple, segment: &TcpSegment) -> Vec<u8> {
    let mut bytes = ports(flow).to_vec();
    bytes.extend(segment.seq.to_be_bytes());
    bytes.extend(segment.ack.to_be_bytes());
    let offset: u8 = if segment.timestamps.is_some() { 8 } else { 5 };
    bytes.extend([offset << 4, segment.flags.to_bits(), 0xff, 0xff, 0, 0, 0, 0]);
    if let Some(timestamps) = segment.timestamps {
        bytes.extend([1, 1, 8, 10]);
        bytes.extend(timestamps.value.to_be_bytes());
        bytes.extend(timestamps.echo.to_be_bytes());
    }
    bytes
}

fn udp(flow: &FlowTuple, payload: u32, quic: Option<&QuicHeader>) -> Vec<u8> {
    let mut bytes = ports(flow).to_vec();
    bytes.extend(u16::try_from(payload + 8).unwrap().to_be_bytes());
    bytes.extend([0, 0]);
    match quic {
        Some(QuicHeader::Short { fixed, spin }) => {
            bytes.push(u8::from(*fixed) << 6 | u8::from(*spin) << 5);
        }
        Some(QuicHeader::Long { version, .. }) => {
            bytes.push(0xc0);
            bytes.extend(version.to_be_bytes());
        }
        // A long header that is cut off.
        None => bytes.extend([0xc0, 0, 0]),
    }
    bytes
}

/// Bytes like a packet's, with changes anywhere.
pub(super) fn any(random: &mut Stream) -> Vec<u8> {
    let version = if random.chance(0.5) { 4 } else { 6 };
    let protocol = [FlowTuple::TCP, FlowTuple::UDP, 50][random.below(3) as usize];
    let flow = tuple(protocol, random.next_u64() as u16, version);
    let (tcp, udp) = (TcpSegment { payload: 100, ..TcpSegment::default() }, 100);
    let quic = [
        None,
        Some(QuicHeader::Short { fixed: random.chance(0.5), spin: random.chance(0.5) }),
        Some(QuicHeader::Long { version: [0, 1, 2, 0x6b33_43cf][random.below(4) as usize], kind: None }),
    ][random.below(3) as usize];
    let transport = match protocol {
        FlowTuple::TCP => Transport::Tcp(tcp),
        FlowTuple::UDP => Transport::Udp { payload: udp, quic },
        _ => Transport::Opaque,
    };
    let wrapping = Wrapping::random(random, version);
    let mut bytes = frame(&Frame { flow: &flow, transport: &transport, wrapping });
    let header = bytes.len();
    bytes.extend((0..60).map(|_| random.next_u64() as u8));
    if protocol == FlowTuple::TCP && random.chance(0.7) {
        // Options: any bytes, often a list that can be read. The data offset stands 8 bytes before the
        // header's end.
        bytes[header - 8] = (random.below(11) as u8 + 5) << 4;
        let mut at = header;
        while at < header + 40 && random.chance(0.8) {
            let (kind, len) =
                [(1, 1), (2, 4), (8, 10), (5, 10), (8, 9), (0, 1), (30, 7), (3, 3)][random.below(8) as usize];
            bytes[at] = kind;
            bytes[at + 1] = if len > 1 { len as u8 } else { bytes[at + 1] };
            at += len;
        }
    }
    let changes = if random.chance(0.6) { random.below(4) } else { 0 };
    for _ in 0..changes {
        // Most fields stand in the first bytes.
        let bound = if random.chance(0.5) { 60 } else { bytes.len() as u64 };
        let at = random.below(bound) as usize;
        bytes[at] = random.next_u64() as u8;
    }
    if random.chance(0.2) {
        // The kernel's test run takes no frame without its link-layer header, and no plain IP packet
        // without its header.
        let plain = !wrapping.pppoe && wrapping.tags == 0;
        let least = if plain { 54 } else { 14 };
        bytes.truncate(least + random.below((bytes.len() - least) as u64 + 1) as usize);
    }
    bytes
}

/// A packet of which the kernel's programs keep no version and no type of long headers.
pub(super) fn as_the_kernel_sees(transport: Transport) -> Transport {
    let Transport::Udp { payload, quic: Some(header @ QuicHeader::Long { .. }) } = transport else {
        return transport;
    };
    let version = u8::from(header.known_version().is_some());
    Transport::Udp { payload, quic: QuicHeader::parse(&[0xc0, 0, 0, 0, version]) }
}
