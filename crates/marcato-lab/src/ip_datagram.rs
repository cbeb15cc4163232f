//! Packet type of emulated links between TUN devices.

use marcato_queue::{FlowKey, Packet};
use marcato_units::{Bytes, Layer, Time};
use marcato_wire::{Ecn, IpPacket, PacketError, Transport};

use crate::link::{LinkPacket, invert};

/// Bytes before the packet that a TUN device with offload adds: `struct virtio_net_hdr`.
const VNET_HEADER: usize = 10;

/// IP packet from a TUN device, with everything that queues look at.
///
/// Unlike a [`Datagram`](crate::Datagram) it shows its ECN code point, which queues may change, its
/// DSCP and its transport header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpDatagram {
    /// Frame of the device: perhaps an offload header, then the packet.
    frame: Vec<u8>,
    /// Offset of the packet in the frame.
    at: usize,
    packet: IpPacket,
    flow: FlowKey,
    reverse: FlowKey,
    entered: Time,
}

impl IpDatagram {
    /// Reads a frame of a TUN device, with an offload header if `offload`. Flows are named under a
    /// `secret` that strangers should not know.
    ///
    /// # Errors
    ///
    /// If it is no IP packet. The frame is returned, so that its memory can be used again.
    pub fn read(frame: Vec<u8>, offload: bool, secret: u64) -> Result<Self, (PacketError, Vec<u8>)> {
        let at = if offload { VNET_HEADER.min(frame.len()) } else { 0 };
        let packet = match IpPacket::parse(&frame[at..]) {
            Ok(packet) => packet,
            Err(error) => return Err((error, frame)),
        };
        let flow = FlowKey::of(&packet.flow, secret);
        let reverse = FlowKey::of(&packet.flow.reversed(), secret);
        Ok(Self { frame, at, packet, flow, reverse, entered: Time::ZERO })
    }

    /// Frame to be written to a TUN device.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Packet without an offload header.
    pub fn bytes(&self) -> &[u8] {
        &self.frame[self.at..]
    }

    /// Headers of the packet.
    pub const fn headers(&self) -> &IpPacket {
        &self.packet
    }

    /// Takes the frame, so that its memory can be used again.
    pub fn into_frame(self) -> Vec<u8> {
        self.frame
    }

    /// Returns whether it is for a group of hosts.
    pub fn is_multicast(&self) -> bool {
        self.packet.flow.destination.is_multicast()
    }

    /// Clears the ECN field, as some devices do.
    pub fn bleach(&mut self) {
        self.set_ecn(Ecn::NotEct);
    }

    fn set_ecn(&mut self, ecn: Ecn) {
        self.packet.ecn = ecn;
        let bytes = &mut self.frame[self.at..];
        let before = u16::from_be_bytes([bytes[0], bytes[1]]);
        match before >> 12 {
            // The traffic class is the low half of the first byte and the high half of the second.
            6 => bytes[1] = bytes[1] & !0x30 | (ecn as u8) << 4,
            _ => {
                bytes[1] = bytes[1] & !0x03 | ecn as u8;
                let after = u16::from_be_bytes([bytes[0], bytes[1]]);
                let sum = u16::from_be_bytes([bytes[10], bytes[11]]);
                bytes[10..12].copy_from_slice(&updated(sum, before, after).to_be_bytes());
            }
        }
    }
}

/// Checksum of a header in which one word has changed. RFC 1624 §3, eq. 3.
fn updated(sum: u16, before: u16, after: u16) -> u16 {
    let add = |a: u16, b: u16| {
        let (sum, carry) = a.overflowing_add(b);
        sum + u16::from(carry)
    };
    !add(add(!sum, !before), after)
}

impl Packet for IpDatagram {
    fn len(&self) -> Bytes {
        Bytes::new(self.bytes().len() as u64)
    }

    fn flow(&self) -> FlowKey {
        self.flow
    }

    fn ecn(&self) -> Ecn {
        self.packet.ecn
    }

    fn mark_ce(&mut self) {
        self.set_ecn(Ecn::Ce);
    }

    fn layer(&self) -> Layer {
        self.packet.layer()
    }

    fn reverse(&self) -> FlowKey {
        self.reverse
    }

    fn transport(&self) -> Transport {
        self.packet.transport
    }
}

impl LinkPacket for IpDatagram {
    fn enter(&mut self, now: Time) {
        self.entered = now;
    }

    fn entered(&self) -> Time {
        self.entered
    }

    fn corrupt(&mut self, draw: u64) {
        // The header of the device is not on the wire.
        invert(&mut self.frame[self.at..], draw);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// IPv4 header of a UDP datagram with this type of service, and its checksum.
    fn ipv4(tos: u8, id: u16) -> Vec<u8> {
        let mut header = vec![0x45, tos, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        header[4..6].copy_from_slice(&id.to_be_bytes());
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header.extend([0, 7, 0, 9, 0, 8, 0, 0]);
        header
    }

    /// Checksum of the first 20 bytes. RFC 1071.
    fn checksum(header: &[u8]) -> u16 {
        let words = header[..20].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
    }

    #[test]
    fn a_marked_ipv6_packet_keeps_its_dscp_and_flow_label() {
        let mut packet = vec![0x60, 0x2f, 0xff, 0xff, 0, 8, 17, 64];
        packet.extend([0; 32]);
        packet.extend([0, 7, 0, 9, 0, 8, 0, 0]);
        // Traffic class 0x02: ECT(0).
        let mut read = IpDatagram::read(packet.clone(), false, 1).unwrap();
        assert_eq!((read.ecn(), read.layer()), (Ecn::Ect0, Layer::High));
        read.mark_ce();
        packet[1] = 0x3f;
        assert_eq!((read.bytes(), read.ecn()), (&packet[..], Ecn::Ce));
        read.bleach();
        assert_eq!(read.bytes()[..4], [0x60, 0x0f, 0xff, 0xff]);
    }

    #[test]
    fn dscp_le_is_the_low_layer() {
        let read = IpDatagram::read(ipv4(0x04, 0), false, 1).unwrap();
        assert_eq!(read.layer(), Layer::Low);
    }

    #[test]
    fn the_reverse_flow_is_that_of_the_answer() {
        let mut answer = ipv4(0, 0);
        answer[12..20].rotate_left(4);
        answer[20..24].rotate_left(2);
        let [there, back] = [ipv4(0, 0), answer].map(|packet| IpDatagram::read(packet, false, 9).unwrap());
        assert_eq!((there.flow(), there.reverse()), (back.reverse(), back.flow()));
        assert_ne!(there.flow(), back.flow());
    }

    #[test]
    fn an_offload_header_is_kept_and_does_not_count() {
        let frame = [vec![7; VNET_HEADER], ipv4(0, 0)].concat();
        let read = IpDatagram::read(frame.clone(), true, 1).unwrap();
        assert_eq!((read.len(), read.frame()), (Bytes::new(28), &frame[..]));
        let (_, same) = IpDatagram::read(vec![1; 4], true, 1).unwrap_err();
        assert_eq!(same, [1; 4]);
    }

    proptest! {
        #[test]
        fn marking_leaves_a_correct_checksum(tos in any::<u8>(), id in any::<u16>()) {
            let mut read = IpDatagram::read(ipv4(tos, id), false, 1).unwrap();
            read.mark_ce();
            let mut expected = ipv4(tos | 3, id);
            prop_assert_eq!(checksum(read.bytes()), 0);
            prop_assert_eq!(read.bytes(), &expected[..]);
            read.bleach();
            expected = ipv4(tos & !3, id);
            prop_assert_eq!(read.bytes(), &expected[..]);
        }
    }
}
