//! Packet as a router's queue reads it: flow, ECN, length, and clear-text fields of the transport
//! header.
//!
//! References: IEEE 802.1Q and 802.1ad (tags), RFC 791 (IPv4), RFC 8200 §4 (IPv6 and its extension
//! headers), RFC 4302 §2.2 (the authentication header counts its length in another unit), RFC 2474
//! and RFC 3168 (DSCP and ECN), RFC 8622 (the DSCP of lower effort).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use marcato_units::{Bytes, Layer};

use crate::{Ecn, FlowTuple, QuicHeader, TcpSegment};

/// Largest number of VLAN tags before the IP header: one of a provider and one of a customer.
pub const MAX_VLAN_TAGS: usize = 2;
/// Largest number of IPv6 extension headers that are skipped.
pub const MAX_EXTENSION_HEADERS: usize = 8;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_PPPOE: u16 = 0x8864;
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
const ETHERNET_HEADER: usize = 14;
const VLAN_TAG: usize = 4;
/// Header of a PPPoE session, and the protocol of PPP.
const PPPOE_HEADERS: usize = 8;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
/// DSCP LE. RFC 8622 §9.
const DSCP_LE: u8 = 0b00_0001;

/// IP packet as a queue sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpPacket {
    /// Flow of the packet.
    pub flow: FlowTuple,
    /// Length of the IP packet, by its own header.
    pub len: Bytes,
    /// Six bits of the differentiated services code point.
    pub dscp: u8,
    /// ECN code point.
    pub ecn: Ecn,
    /// Clear-text fields of the transport header.
    pub transport: Transport,
}

impl IpPacket {
    /// Class that the code point asks for: DSCP LE is [`Layer::Low`]. RFC 8622.
    pub const fn layer(&self) -> Layer {
        if self.dscp == DSCP_LE { Layer::Low } else { Layer::High }
    }
}

/// Clear-text fields of a transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transport {
    /// No fields: a fragment, another protocol, or a truncated header.
    #[default]
    Opaque,
    /// TCP segment.
    Tcp(TcpSegment),
    /// UDP datagram.
    Udp {
        /// Number of bytes after the UDP header.
        payload: u32,
        /// Beginning of the payload, read as QUIC; `None` if it is too short for that.
        quic: Option<QuicHeader>,
    },
}

/// Error returned for bytes that are no readable IP packet. A queue should serve such packets as
/// any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The bytes end within a header.
    #[error("{header} needs {needed} bytes but only {left} are left: capture more of the packet")]
    Truncated {
        /// Name of the header.
        header: &'static str,
        /// Number of bytes of the header.
        needed: usize,
        /// Number of bytes that are left.
        left: usize,
    },
    /// The frame does not carry IP.
    #[error("ethertype {0:#06x} is not IP: let the frame pass unread")]
    NotIp(u16),
    /// The frame carries PPP, but no IP in it.
    #[error("PPP protocol {0:#06x} is not IP: let the frame pass unread")]
    NotIpInPpp(u16),
    /// The frame has more VLAN tags than [`MAX_VLAN_TAGS`].
    #[error("more than 2 VLAN tags: let the frame pass unread")]
    Tags,
    /// The version is neither 4 nor 6, or differs from the ethertype's.
    #[error("IP version {0} is not supported, or does not match the ethertype")]
    Version(u8),
    /// A length in the header contradicts another.
    #[error("the length of {len} bytes in the {header} header is less than the header's own")]
    Length {
        /// Name of the header.
        header: &'static str,
        /// Length that it gives.
        len: usize,
    },
    /// The packet has more IPv6 extension headers than [`MAX_EXTENSION_HEADERS`].
    #[error("more than 8 IPv6 extension headers: let the packet pass unread")]
    Extensions,
}

impl IpPacket {
    /// Reads an Ethernet frame without its checksum: up to two VLAN tags (802.1Q or 802.1ad), the
    /// headers of a PPPoE session (RFC 2516) if there are any, then IPv4 or IPv6.
    ///
    /// ```
    /// use marcato_wire::{IpPacket, PacketError};
    /// let arp = [[0xff; 12].as_slice(), &[0x08, 0x06], &[0; 28]].concat();
    /// assert_eq!(IpPacket::parse_ethernet(&arp), Err(PacketError::NotIp(0x0806)));
    /// ```
    ///
    /// # Errors
    /// [`PacketError`] if the frame has no IP packet, or one whose headers contradict themselves.
    pub fn parse_ethernet(frame: &[u8]) -> Result<Self, PacketError> {
        let mut at = ETHERNET_HEADER;
        let mut ethertype = ethertype_before(frame, at)?;
        // Tags of 802.1Q and 802.1ad, and the ethertype of switches before 802.1ad.
        for _ in 0..MAX_VLAN_TAGS {
            if !is_tag(ethertype) {
                break;
            }
            at += VLAN_TAG;
            ethertype = ethertype_before(frame, at)?;
        }
        if ethertype == ETHERTYPE_PPPOE {
            at += PPPOE_HEADERS;
            // RFC 2516 §4: PPP's protocol follows the session's header.
            ethertype = match ethertype_before(frame, at)? {
                PPP_IPV4 => ETHERTYPE_IPV4,
                PPP_IPV6 => ETHERTYPE_IPV6,
                other => return Err(PacketError::NotIpInPpp(other)),
            };
        }
        let packet = frame.get(at..).unwrap_or(&[]);
        match ethertype {
            ETHERTYPE_IPV4 => Self::parse_ipv4(packet),
            ETHERTYPE_IPV6 => Self::parse_ipv6(packet),
            tag if is_tag(tag) => Err(PacketError::Tags),
            other => Err(PacketError::NotIp(other)),
        }
    }

    /// Reads an IP packet without a link-layer header, such as a TUN device gives.
    ///
    /// # Errors
    /// [`PacketError`] if it is no IP packet, or one whose headers contradict themselves.
    pub fn parse(packet: &[u8]) -> Result<Self, PacketError> {
        match packet.first().map(|first| first >> 4) {
            Some(4) => Self::parse_ipv4(packet),
            Some(6) => Self::parse_ipv6(packet),
            Some(version) => Err(PacketError::Version(version)),
            None => Err(PacketError::Truncated { header: "an IP header", needed: 1, left: 0 }),
        }
    }

    fn parse_ipv4(packet: &[u8]) -> Result<Self, PacketError> {
        let name = "an IPv4 header";
        let header = chunk::<IPV4_HEADER>(packet, name)?;
        let version = header[0] >> 4;
        if version != 4 {
            return Err(PacketError::Version(version));
        }
        let ihl = usize::from(header[0] & 0x0f) * 4;
        if ihl < IPV4_HEADER {
            return Err(PacketError::Length { header: "IPv4", len: ihl });
        }
        if packet.len() < ihl {
            return Err(PacketError::Truncated { header: name, needed: ihl, left: packet.len() });
        }
        let total = match usize::from(u16::from_be_bytes([header[2], header[3]])) {
            // Segmentation offload made the packet too large for 16 bits.
            0 => packet.len(),
            total if total < ihl => return Err(PacketError::Length { header: "IPv4", len: total }),
            total => total,
        };
        let source: [u8; 4] = [header[12], header[13], header[14], header[15]];
        let destination: [u8; 4] = [header[16], header[17], header[18], header[19]];
        // More fragments follow, or some came before. RFC 791 §3.1.
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        Ok(Self::above_ip(
            header[1],
            total,
            (IpAddr::V4(Ipv4Addr::from(source)), IpAddr::V4(Ipv4Addr::from(destination))),
            Upper {
                protocol: header[9],
                fragment,
                bytes: packet.get(ihl..).unwrap_or(&[]),
                len: total - ihl,
            },
        ))
    }

    fn parse_ipv6(packet: &[u8]) -> Result<Self, PacketError> {
        let header = chunk::<IPV6_HEADER>(packet, "an IPv6 header")?;
        let version = header[0] >> 4;
        if version != 6 {
            return Err(PacketError::Version(version));
        }
        let total = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
            // RFC 2675: a jumbogram; or a packet made by segmentation offload.
            0 => packet.len(),
            payload => IPV6_HEADER + payload,
        };
        let addresses = (
            IpAddr::V6(Ipv6Addr::from(chunk_at(header, 8))),
            IpAddr::V6(Ipv6Addr::from(chunk_at(header, 24))),
        );
        let (protocol, at, fragment) = skip_extensions(packet, header[6])?;
        if total < at {
            return Err(PacketError::Length { header: "IPv6", len: total });
        }
        Ok(Self::above_ip(
            header[0] << 4 | header[1] >> 4,
            total,
            addresses,
            Upper { protocol, fragment, bytes: packet.get(at..).unwrap_or(&[]), len: total - at },
        ))
    }

    /// Packet of `total` bytes with `traffic_class`, from the first to the second of `addresses`.
    fn above_ip(traffic_class: u8, total: usize, addresses: (IpAddr, IpAddr), upper: Upper<'_>) -> Self {
        let (ports, transport) = upper.read();
        Self {
            flow: FlowTuple {
                protocol: upper.protocol,
                source: addresses.0,
                destination: addresses.1,
                source_port: ports.0,
                destination_port: ports.1,
            },
            len: Bytes::new(total as u64),
            dscp: traffic_class >> 2,
            ecn: Ecn::from_bits(traffic_class),
            transport,
        }
    }
}

/// Payload of an IP packet: its protocol, the bytes at hand, and its length by the IP header.
struct Upper<'a> {
    protocol: u8,
    fragment: bool,
    bytes: &'a [u8],
    len: usize,
}

impl Upper<'_> {
    /// Ports and clear-text fields; 0, 0 and none for fragments and other protocols.
    fn read(&self) -> ((u16, u16), Transport) {
        const NONE: ((u16, u16), Transport) = ((0, 0), Transport::Opaque);
        if self.fragment {
            return NONE;
        }
        let bytes = self.bytes.get(..self.len).unwrap_or(self.bytes);
        let transport = match self.protocol {
            FlowTuple::TCP => match TcpSegment::parse(bytes, self.len) {
                Some(segment) => Transport::Tcp(segment),
                None => Transport::Opaque,
            },
            FlowTuple::UDP if bytes.len() >= UDP_HEADER => udp(bytes, self.len),
            _ => return NONE,
        };
        // A TCP header that is malformed further on still has ports.
        let Some(&[s0, s1, d0, d1]) = bytes.first_chunk() else { return NONE };
        ((u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])), transport)
    }
}

/// UDP datagram of `len` bytes that `bytes` begin with; they hold at least its header.
fn udp(bytes: &[u8], len: usize) -> Transport {
    let payload = bytes.get(UDP_HEADER..).unwrap_or(&[]);
    let length = u32::try_from(len - UDP_HEADER).unwrap_or(u32::MAX);
    Transport::Udp { payload: length, quic: QuicHeader::parse(payload) }
}

const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8 | 0x9100)
}

/// Two bytes before `end`.
fn ethertype_before(frame: &[u8], end: usize) -> Result<u16, PacketError> {
    match frame.get(end - 2..end) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(PacketError::Truncated { header: "an Ethernet header", needed: end, left: frame.len() }),
    }
}

/// First `N` bytes.
fn chunk<'a, const N: usize>(bytes: &'a [u8], header: &'static str) -> Result<&'a [u8; N], PacketError> {
    bytes.first_chunk().ok_or(PacketError::Truncated { header, needed: N, left: bytes.len() })
}

/// The 16 bytes of an address at `at`, which is within the header.
fn chunk_at(header: &[u8; IPV6_HEADER], at: usize) -> [u8; 16] {
    let mut address = [0; 16];
    address.copy_from_slice(&header[at..at + 16]);
    address
}

/// Skips the extension headers after the IPv6 header, which names `next`. RFC 8200 §4.
///
/// Returns the transport's protocol, its offset, and whether the packet is a fragment.
fn skip_extensions(packet: &[u8], mut next: u8) -> Result<(u8, usize, bool), PacketError> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION: u8 = 60;
    const MOBILITY: u8 = 135;
    const HIP: u8 = 139;
    const SHIM6: u8 = 140;
    let name = "an IPv6 extension header";
    let mut at = IPV6_HEADER;
    // One turn more than headers: it finds that no other one follows.
    for _ in 0..=MAX_EXTENSION_HEADERS {
        if !matches!(
            next,
            HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY | HIP | SHIM6
        ) {
            return Ok((next, at, false));
        }
        let rest = packet.get(at..).unwrap_or(&[]);
        let head = chunk::<8>(rest, name)?;
        if next == FRAGMENT {
            // RFC 6946: a fragment header with offset 0 and without more fragments belongs to a
            // whole packet.
            if u16::from_be_bytes([head[2], head[3]]) & 0xfff9 != 0 {
                return Ok((head[0], at + 8, true));
            }
            at += 8;
        } else {
            let units = usize::from(head[1]);
            // RFC 4302 §2.2: the authentication header counts words of 4 bytes, less 2. RFC 8200
            // §4: others count units of 8 bytes, less 1.
            let len = if next == AUTHENTICATION { (units + 2) * 4 } else { (units + 1) * 8 };
            if rest.len() < len {
                return Err(PacketError::Truncated { header: name, needed: len, left: rest.len() });
            }
            at += len;
        }
        next = head[0];
    }
    Err(PacketError::Extensions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TcpFlags, TcpTimestamps};
    use std::vec::Vec;

    const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6];

    fn tcp(options: &[u8], payload: usize) -> Vec<u8> {
        #[allow(clippy::cast_possible_truncation, reason = "at most 10 words")]
        let offset = 5 + (options.len() / 4) as u8;
        let mut bytes = std::vec![0x01, 0xbb, 0xc3, 0x50, 0, 0, 0, 7, 0, 0, 0, 9, offset << 4, 0x10, 0, 0];
        bytes.extend([0; 4]);
        bytes.extend(options);
        bytes.resize(bytes.len() + payload, 0xaa);
        bytes
    }

    fn udp(payload: &[u8]) -> Vec<u8> {
        let len = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
        let mut bytes = std::vec![0x01, 0xbb, 0xc3, 0x50, len[0], len[1], 0, 0];
        bytes.extend(payload);
        bytes
    }

    /// An IPv4 packet with ECT(0), `options` and the flags and offset `fragment`.
    fn ipv4(protocol: u8, options: &[u8], fragment: u16, upper: &[u8]) -> Vec<u8> {
        let ihl = 5 + u8::try_from(options.len() / 4).unwrap();
        let len = u16::try_from(usize::from(ihl) * 4 + upper.len()).unwrap().to_be_bytes();
        let fragment = fragment.to_be_bytes();
        let mut bytes = std::vec![0x40 | ihl, 0x02, len[0], len[1], 0, 1, fragment[0], fragment[1]];
        bytes.extend([64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
        bytes.extend(options);
        bytes.extend(upper);
        bytes
    }

    const SOURCE: [u8; 16] = [0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    const DESTINATION: [u8; 16] = [0xfe, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    /// An IPv6 packet with DSCP LE and CE.
    fn ipv6(next: u8, after: &[u8]) -> Vec<u8> {
        let len = u16::try_from(after.len()).unwrap().to_be_bytes();
        let mut bytes = std::vec![0x60, 0x70, 0, 0, len[0], len[1], next, 64];
        bytes.extend(SOURCE);
        bytes.extend(DESTINATION);
        bytes.extend(after);
        bytes
    }

    fn ethernet(tags: &[u16], ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = std::vec![0x02; 12];
        for tag in tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0x20, 0x07]);
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(packet);
        frame
    }

    fn ports(packet: &IpPacket) -> (u16, u16) {
        (packet.flow.source_port, packet.flow.destination_port)
    }

    #[test]
    fn a_tcp_segment_is_read_whole() {
        let packet = IpPacket::parse(&ipv4(6, &[], 0x4000, &tcp(&TIMESTAMPS, 100))).unwrap();
        assert_eq!(packet.len, Bytes::new(152));
        assert_eq!((packet.ecn, packet.dscp, packet.layer()), (Ecn::Ect0, 0, Layer::High));
        assert_eq!(ports(&packet), (443, 50_000));
        let Transport::Tcp(segment) = packet.transport else { panic!("{packet:?}") };
        assert_eq!((segment.seq, segment.ack, segment.payload), (7, 9, 100));
        assert_eq!(segment.flags, TcpFlags::ACK);
        assert_eq!(segment.timestamps, Some(TcpTimestamps { value: 5, echo: 6 }));
    }

    #[test]
    fn a_udp_datagram_is_read_whole() {
        let payload = [0xc3, 0, 0, 0, 1, 8];
        let packet = IpPacket::parse(&ipv4(17, &[], 0, &udp(&payload))).unwrap();
        assert_eq!(packet.len, Bytes::new(34));
        assert_eq!(packet.flow.source, IpAddr::from([192, 0, 2, 1]));
        assert_eq!(packet.flow.destination, IpAddr::from([198, 51, 100, 7]));
        assert_eq!((packet.flow.protocol, ports(&packet)), (17, (443, 50_000)));
        let quic = QuicHeader::parse(&payload);
        assert!(quic.is_some());
        assert_eq!(packet.transport, Transport::Udp { payload: 6, quic });
    }

    #[test]
    fn a_udp_header_alone_is_a_datagram_and_a_byte_less_is_none() {
        let alone = udp(&[]);
        let packet = IpPacket::parse(&ipv4(17, &[], 0, &alone)).unwrap();
        assert_eq!(packet.transport, Transport::Udp { payload: 0, quic: None });
        let packet = IpPacket::parse(&ipv4(17, &[], 0, &alone[..7])).unwrap();
        assert_eq!((ports(&packet), packet.transport), ((0, 0), Transport::Opaque));
    }

    #[test]
    fn an_ipv6_header_is_read_whole() {
        let mut bytes = ipv6(17, &udp(&[]));
        // DSCP EF (46) and ECT(1).
        (bytes[0], bytes[1]) = (0x6b, 0x90);
        let packet = IpPacket::parse(&bytes).unwrap();
        assert_eq!((packet.dscp, packet.ecn), (46, Ecn::Ect1));
        assert_eq!(packet.flow.source, IpAddr::from(SOURCE));
        assert_eq!(packet.flow.destination, IpAddr::from(DESTINATION));
    }

    /// Defect 11 of the prototype: it took byte 23 of any frame for an IPv4 protocol.
    #[test]
    fn frames_without_ip_are_never_read_as_tcp_or_udp() {
        let tcp = ipv4(6, &[], 0, &tcp(&[], 10));
        for ethertype in [0x0806, 0x8863, 0x88cc, 0x0026, 0xffff] {
            assert_eq!(
                IpPacket::parse_ethernet(&ethernet(&[], ethertype, &tcp)),
                Err(PacketError::NotIp(ethertype)),
                "the bytes would make a good IPv4 packet, but the frame does not say that they are one"
            );
        }
        // Where a session of PPPoE names its protocol, this packet has its flags and fragment offset.
        let session = IpPacket::parse_ethernet(&ethernet(&[], ETHERTYPE_PPPOE, &tcp));
        assert!(matches!(session, Err(PacketError::NotIpInPpp(_))), "{session:?}");
        assert_eq!(
            IpPacket::parse_ethernet(&ethernet(&[], ETHERTYPE_IPV6, &tcp)),
            Err(PacketError::Version(4))
        );
        assert_eq!(IpPacket::parse(&[0x50; 40]), Err(PacketError::Version(5)));
    }

    /// Defect 11: a tag moved all fields by four bytes.
    #[test]
    fn up_to_two_vlan_tags_change_nothing_and_three_are_refused() {
        let packet = ipv6(17, &udp(&[0x61; 20]));
        let bare = IpPacket::parse(&packet).unwrap();
        for tags in [&[][..], &[0x8100], &[0x88a8], &[0x88a8, 0x8100], &[0x8100, 0x8100], &[0x9100, 0x8100]] {
            assert_eq!(IpPacket::parse_ethernet(&ethernet(tags, ETHERTYPE_IPV6, &packet)), Ok(bare));
        }
        assert_eq!(
            IpPacket::parse_ethernet(&ethernet(&[0x8100; 3], ETHERTYPE_IPV6, &packet)),
            Err(PacketError::Tags)
        );
    }

    #[test]
    fn a_session_of_pppoe_carries_both_families_behind_any_tags() {
        for (packet, ppp) in
            [(ipv4(17, &[], 0, &udp(&[0x61; 20])), 0x21), (ipv6(17, &udp(&[0x61; 20])), 0x57)]
        {
            let session = [&[0x11, 0, 0, 7, 0, 0, 0, ppp][..], &packet].concat();
            for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
                assert_eq!(
                    IpPacket::parse_ethernet(&ethernet(tags, ETHERTYPE_PPPOE, &session)),
                    IpPacket::parse(&packet)
                );
            }
        }
        let control = [0x11, 0, 0, 7, 0, 0, 0xc0, 0x21];
        let refused = IpPacket::parse_ethernet(&ethernet(&[], ETHERTYPE_PPPOE, &control));
        assert_eq!(refused, Err(PacketError::NotIpInPpp(0xc021)));
        let cut = IpPacket::parse_ethernet(&ethernet(&[], ETHERTYPE_PPPOE, &control[..7]));
        assert!(matches!(cut, Err(PacketError::Truncated { .. })), "{cut:?}");
    }

    /// Defect 12: the transport was always read at byte 34.
    #[test]
    fn ipv4_options_move_the_transport() {
        let upper = tcp(&[], 40);
        let plain = IpPacket::parse(&ipv4(6, &[], 0, &upper)).unwrap();
        for words in 1..=10 {
            let packet = IpPacket::parse(&ipv4(6, &std::vec![1; words * 4], 0, &upper)).unwrap();
            assert_eq!((packet.flow, packet.transport), (plain.flow, plain.transport));
            assert_eq!(packet.len, Bytes::new(20 + 4 * words as u64 + 60));
        }
    }

    /// Defect 12: fragments were read as if they had a transport header each.
    #[test]
    fn all_fragments_of_a_datagram_are_one_flow_without_ports() {
        let upper = udp(&[0x61; 100]);
        let fragments = [0x2000, 0x2010, 0x0020].map(|fragment| ipv4(17, &[], fragment, &upper));
        let [first, middle, last] = fragments.map(|bytes| IpPacket::parse(&bytes).unwrap());
        assert_eq!(first.flow, middle.flow);
        assert_eq!(first.flow, last.flow);
        assert_eq!(ports(&first), (0, 0));
        assert_eq!([first, middle, last].map(|packet| packet.transport), [Transport::Opaque; 3]);
        let whole = IpPacket::parse(&ipv4(17, &[], 0x4000, &upper)).unwrap();
        assert_ne!(whole.flow, first.flow, "don't fragment is no fragment");
        let header = |offset: u16| {
            let [high, low] = offset.to_be_bytes();
            [[17, 0, high, low, 0, 0, 0, 9].as_slice(), &upper].concat()
        };
        let six = [0x0001, 0x0081, 0x0100].map(|offset| IpPacket::parse(&ipv6(44, &header(offset))).unwrap());
        assert!(six.iter().all(|packet| packet.flow == six[0].flow && ports(packet) == (0, 0)));
        let atomic = IpPacket::parse(&ipv6(44, &header(0))).unwrap();
        assert_eq!(ports(&atomic), (443, 50_000), "RFC 6946: a fragment that is the whole packet");
    }

    /// Defect 13: a frame of exactly 54 bytes was refused.
    #[test]
    fn a_bare_acknowledgement_is_read() {
        let frame = ethernet(&[], ETHERTYPE_IPV4, &ipv4(6, &[], 0, &tcp(&[], 0)));
        assert_eq!(frame.len(), 54);
        let packet = IpPacket::parse_ethernet(&frame).unwrap();
        assert!(matches!(packet.transport, Transport::Tcp(TcpSegment { payload: 0, ack: 9, .. })));
    }

    #[test]
    fn padding_of_short_frames_is_no_payload() {
        let mut frame = ethernet(&[], ETHERTYPE_IPV4, &ipv4(6, &[], 0, &tcp(&[], 0)));
        frame.resize(60, 0);
        let packet = IpPacket::parse_ethernet(&frame).unwrap();
        assert_eq!(packet.len, Bytes::new(40));
        assert!(matches!(packet.transport, Transport::Tcp(TcpSegment { payload: 0, .. })));
    }

    /// Defect 16: lengths were assumed to be below 1500.
    #[test]
    fn a_packet_larger_than_any_ethernet_frame_has_its_true_length() {
        let packet = IpPacket::parse(&ipv4(6, &[], 0, &tcp(&[], 65_000))).unwrap();
        assert!(matches!(packet.transport, Transport::Tcp(TcpSegment { payload: 65_000, .. })));
        let mut jumbo = ipv6(6, &tcp(&[], 60_000));
        jumbo[4..6].fill(0);
        jumbo.resize(150_000, 0);
        let packet = IpPacket::parse(&jumbo).unwrap();
        assert_eq!(packet.len, Bytes::new(150_000));
        assert!(matches!(packet.transport, Transport::Tcp(TcpSegment { payload: 149_940, .. })));
    }

    #[test]
    fn headers_suffice_where_the_payload_was_not_captured() {
        let whole = ipv4(6, &[], 0, &tcp(&TIMESTAMPS, 1000));
        assert_eq!(IpPacket::parse(&whole[..52]), IpPacket::parse(&whole));
    }

    #[test]
    fn up_to_eight_ipv6_extension_headers_are_skipped() {
        let upper = udp(&[0xc0, 0, 0, 0, 1]);
        let chain = |count: usize| {
            let mut after = Vec::new();
            for left in (0..count).rev() {
                after.extend([if left == 0 { 17 } else { 60 }, 1]);
                after.extend([0; 14]);
            }
            after.extend(&upper);
            IpPacket::parse(&ipv6(if count == 0 { 17 } else { 60 }, &after))
        };
        let plain = chain(0).unwrap();
        assert_eq!((plain.ecn, plain.dscp, plain.layer()), (Ecn::Ce, 1, Layer::Low));
        assert_eq!(plain.flow.protocol, 17);
        for count in 1..=8 {
            let packet = chain(count).unwrap();
            assert_eq!((packet.flow, packet.transport), (plain.flow, plain.transport));
        }
        assert_eq!(chain(9), Err(PacketError::Extensions));
        // An authentication header counts in words of four bytes, less two.
        let mut authenticated = std::vec![17, 4, 0, 0];
        authenticated.extend([0; 20]);
        authenticated.extend(&upper);
        assert_eq!(IpPacket::parse(&ipv6(51, &authenticated)).unwrap().transport, plain.transport);
    }

    #[test]
    fn protocols_without_a_parser_are_opaque_and_have_no_ports() {
        for protocol in [1, 47, 50, 58, 132] {
            let packet = IpPacket::parse(&ipv4(protocol, &[], 0, &[0x61; 40])).unwrap();
            assert_eq!((ports(&packet), packet.transport), ((0, 0), Transport::Opaque));
        }
    }

    #[test]
    fn lengths_that_contradict_themselves_are_refused() {
        let mut short_header = ipv4(6, &[], 0, &tcp(&[], 0));
        short_header[0] = 0x44;
        assert_eq!(IpPacket::parse(&short_header), Err(PacketError::Length { header: "IPv4", len: 16 }));
        let mut short_total = ipv4(6, &[], 0, &tcp(&[], 0));
        short_total[2..4].copy_from_slice(&[0, 19]);
        assert_eq!(IpPacket::parse(&short_total), Err(PacketError::Length { header: "IPv4", len: 19 }));
        let error = IpPacket::parse(&[0x45; 10]).unwrap_err();
        assert_eq!(error, PacketError::Truncated { header: "an IPv4 header", needed: 20, left: 10 });
        assert_eq!(
            std::string::ToString::to_string(&error),
            "an IPv4 header needs 20 bytes but only 10 are left: capture more of the packet"
        );
    }

    /// RFC 791 §3.1: of the three bits before the offset, the first is reserved and the second is
    /// Don't Fragment.
    #[test]
    fn the_reserved_flag_makes_no_fragment() {
        let upper = udp(&[0x61; 100]);
        let whole = IpPacket::parse(&ipv4(17, &[], 0, &upper)).unwrap();
        for flags in [0x4000, 0x8000, 0xc000] {
            assert_eq!(IpPacket::parse(&ipv4(17, &[], flags, &upper)), Ok(whole), "{flags:#x}");
        }
        for flags in [0x2000, 0xa000, 0x8001, 0x9fff] {
            let fragment = IpPacket::parse(&ipv4(17, &[], flags, &upper)).unwrap();
            assert_eq!((ports(&fragment), fragment.transport), ((0, 0), Transport::Opaque), "{flags:#x}");
        }
    }

    #[test]
    fn a_packet_of_headers_alone_is_one_and_a_byte_less_is_none() {
        let options = [1; 8];
        let alone = ipv4(6, &options, 0, &[]);
        let packet = IpPacket::parse(&alone).unwrap();
        assert_eq!(
            (packet.len, ports(&packet), packet.transport),
            (Bytes::new(28), (0, 0), Transport::Opaque)
        );
        let mut short = alone;
        short[3] -= 1;
        assert_eq!(IpPacket::parse(&short), Err(PacketError::Length { header: "IPv4", len: 27 }));
        // An extension header and no next one.
        let extension = [59, 0, 1, 4, 0, 0, 0, 0];
        let alone = ipv6(60, &extension);
        let packet = IpPacket::parse(&alone).unwrap();
        assert_eq!((packet.len, packet.flow.protocol), (Bytes::new(48), 59));
        let mut short = alone;
        short[5] -= 1;
        assert_eq!(IpPacket::parse(&short), Err(PacketError::Length { header: "IPv6", len: 47 }));
        // The header of a fragment, likewise.
        let mut short = ipv6(44, &[17, 0, 0, 1, 0, 0, 0, 9]);
        assert!(IpPacket::parse(&short).is_ok());
        short[5] -= 1;
        assert_eq!(IpPacket::parse(&short), Err(PacketError::Length { header: "IPv6", len: 47 }));
    }
}
