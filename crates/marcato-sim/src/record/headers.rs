//! Encoding of packet headers. RFC 791, RFC 8200, RFC 768, RFC 9293.

use std::net::{IpAddr, SocketAddr};

use marcato_units::Layer;
use marcato_wire::{Ecn, MAX_OPTIONS};

use crate::packet::{IPV4_HEADER, IPV6_HEADER, UDP_HEADER};
use crate::tcp::{Segment, SynOptions, options};

/// Greatest length of headers: IPv6 and TCP with all its options.
const MOST: usize = 40 + 60;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// DSCP of lower effort. RFC 8622.
const DSCP_LE: u8 = 1;

/// Fields of a packet's headers.
pub(crate) struct Headers<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) ecn: Ecn,
    pub(crate) layer: Layer,
    /// Number of links that the packet has passed.
    pub(crate) hop: u8,
    /// Length of the IP packet in bytes.
    pub(crate) len: u32,
    pub(crate) transport: Transport<'a>,
}

/// Transport header and payload.
pub(crate) enum Transport<'a> {
    Tcp {
        segment: &'a Segment,
        syn_options: SynOptions,
    },
    /// UDP with a payload of zeros.
    Udp {
        payload: u32,
    },
    /// UDP with a real payload.
    Datagram,
}

/// Encoded headers.
pub(crate) struct Written {
    bytes: [u8; MOST],
    len: usize,
}

impl Written {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn patch(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// Running sum of the Internet checksum. RFC 1071.
#[derive(Clone, Copy, Default)]
struct Sum(u64);

impl Sum {
    fn add(self, bytes: &[u8]) -> Self {
        let words = bytes.chunks(2).map(|pair| match *pair {
            [high, low] => u64::from(u16::from_be_bytes([high, low])),
            [high] => u64::from(u16::from_be_bytes([high, 0])),
            _ => 0,
        });
        Self(self.0 + words.sum::<u64>())
    }

    #[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits")]
    fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

/// Length field of a header: 0 if it does not fit, as in kernels whose network card cuts segments.
fn length(len: u32) -> u16 {
    u16::try_from(len).unwrap_or(0)
}

impl Headers<'_> {
    /// Encodes the headers with their checksums; `payload` are the bytes that follow, or empty for
    /// zeros.
    pub(crate) fn write(&self, payload: &[u8]) -> Written {
        let mut out = Written { bytes: [0; MOST], len: 0 };
        let (protocol, ip_len) = (
            match self.transport {
                Transport::Tcp { .. } => TCP,
                Transport::Udp { .. } | Transport::Datagram => UDP,
            },
            match self.source {
                SocketAddr::V4(_) => IPV4_HEADER,
                SocketAddr::V6(_) => IPV6_HEADER,
            },
        );
        let carried = self.len - ip_len;
        let pseudo = self.ip(&mut out, protocol, carried);
        let begin = out.len;
        let checksum = match &self.transport {
            Transport::Tcp { segment, syn_options } => {
                self.tcp(&mut out, segment, *syn_options);
                begin + 16
            }
            Transport::Udp { payload } => {
                self.udp(&mut out, payload + UDP_HEADER);
                begin + 6
            }
            Transport::Datagram => {
                self.udp(&mut out, carried);
                begin + 6
            }
        };
        // Headers have an even number of bytes, and zeros do not change the sum.
        let sum = pseudo.add(&out.bytes[begin..out.len]).add(payload).finish();
        // RFC 768: a checksum field of zero means no checksum, so a sum of zero is sent as ones.
        out.patch(checksum, if protocol == UDP && sum == 0 { 0xffff } else { sum });
        out
    }

    /// Writes the IP header; returns the sum of the pseudo header.
    fn ip(&self, out: &mut Written, protocol: u8, carried: u32) -> Sum {
        let dscp = match self.layer {
            Layer::High => 0,
            Layer::Low => DSCP_LE,
        };
        let class = dscp << 2 | self.ecn.to_bits();
        let ttl = 64u8.saturating_sub(self.hop);
        let pseudo = Sum::default().add(&carried.to_be_bytes()).add(&[0, protocol]);
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                out.put(&[0x45, class]);
                out.put(&length(self.len).to_be_bytes());
                // RFC 6864 §4.1: with don't-fragment set, the identification may have any value.
                out.put(&[0, 0, 0x40, 0, ttl, protocol, 0, 0]);
                out.put(&source.octets());
                out.put(&destination.octets());
                out.patch(10, Sum::default().add(&out.bytes[..20]).finish());
                pseudo.add(&source.octets()).add(&destination.octets())
            }
            (source, destination) => {
                let [source, destination] = [source, destination].map(|ip| match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                });
                out.put(&[0x60 | class >> 4, class << 4, 0, 0]);
                out.put(&length(carried).to_be_bytes());
                out.put(&[protocol, ttl]);
                out.put(&source);
                out.put(&destination);
                pseudo.add(&source).add(&destination)
            }
        }
    }

    fn ports(&self, out: &mut Written) {
        out.put(&self.source.port().to_be_bytes());
        out.put(&self.destination.port().to_be_bytes());
    }

    fn udp(&self, out: &mut Written, len: u32) {
        self.ports(out);
        out.put(&length(len).to_be_bytes());
        out.put(&[0, 0]);
    }

    #[expect(clippy::cast_possible_truncation, reason = "a header has at most 15 words")]
    fn tcp(&self, out: &mut Written, segment: &Segment, syn_options: SynOptions) {
        let mut options = [0; MAX_OPTIONS];
        let options_len = options::emit(segment, syn_options, &mut options);
        self.ports(out);
        out.put(&segment.seq.to_be_bytes());
        out.put(&segment.ack.to_be_bytes());
        let flags = &segment.flags;
        let bits = [flags.fin, flags.syn, flags.rst, false, flags.ack, false, flags.ece, flags.cwr];
        let bits = bits.into_iter().rev().fold(0u8, |bits, bit| bits << 1 | u8::from(bit));
        out.put(&[((5 + options_len / 4) << 4) as u8, bits]);
        // RFC 7323 §2.2: the window of a SYN is not scaled.
        let shift = if flags.syn { 0 } else { u32::from(syn_options.scale) };
        out.put(&u16::try_from(segment.window >> shift).unwrap_or(u16::MAX).to_be_bytes());
        out.put(&[0, 0, 0, 0]);
        out.put(&options[..options_len]);
    }
}
