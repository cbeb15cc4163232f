//! Structures of `bpf/*.h` as bytes: what goes into the kernel's maps.

use std::net::IpAddr;

use marcato_queue::trap::{Booking, Counting, Cycles, Evidence, Floor, Judge, TrapConfig, WindowUnit};
use marcato_queue::{Admission, QuicRule};
use marcato_units::{Bytes, Layer, Rate};
use marcato_wire::{FlowTuple, QuicHeader, TcpFlags, TcpSegment, TcpTimestamps, Transport};

use crate::codel::CodelText;

/// Configuration of the programs: `struct crq_config` of `bpf/config.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Rules by which flows are judged.
    pub trap: TrapConfig,
    /// Rule that recognises a UDP flow as QUIC.
    pub quic: QuicRule,
    /// Verdict that admits a flow to the responsive queue.
    pub admission: Admission,
    /// Priorities that name the HTB classes of the standard and the responsive queue; 0 leaves a
    /// packet's priority as it is.
    pub priority: [u32; 2],
    /// Place for flows that are young or sparse, if there is one.
    pub young: Option<YoungPlace>,
    /// Inode number of the device's network namespace.
    pub netns: u32,
    /// Number of the device.
    pub ifindex: u32,
    /// Set if packets of the device begin with an Ethernet header.
    pub ethernet: bool,
    /// Device by which the other direction leaves; `None` if that enters by the device itself.
    pub reverse: Option<Reverse>,
    /// Side on which packets have the address of their subscriber; `None` without subscribers.
    pub side: Option<Side>,
}

/// Side of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The packet is from the subscriber.
    Source,
    /// The packet is for the subscriber.
    Destination,
}

/// Device of the same network namespace by which the other direction of the flows leaves.
///
/// A device to which entering packets are redirected, such as an IFB, meets one direction only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reverse {
    /// Number of the device.
    pub ifindex: u32,
    /// Set if packets of the device begin with an Ethernet header.
    pub ethernet: bool,
}

/// Place for flows that are young or sparse, in the programs' units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YoungPlace {
    /// Priority that names the place's HTB class; 0 leaves a packet's priority as it is.
    pub priority: u32,
    /// Bytes that a flow may send at once, 1 B to 1 GiB.
    pub allowance: Bytes,
    /// Rate at which a flow regains its allowance, at least 8 kbit/s.
    pub regain: Rate,
    /// Secret of the hash by which flows share accounts.
    pub secret: u32,
}

impl YoungPlace {
    /// Largest number of bytes that the programs count.
    const MOST_BYTES: u64 = 1 << 30;

    /// Words of the place in the configuration: allowance, regained bytes in a step of 2^20 ns, secret.
    fn words(&self) -> [u32; 3] {
        let allowance = self.allowance.get().clamp(1, Self::MOST_BYTES);
        let regain = (u128::from(self.regain.as_bps()) << 20) / 8_000_000_000;
        let small = |bytes: u128| u32::try_from(bytes).unwrap_or(u32::MAX);
        [small(allowance.into()), small(regain.clamp(1, Self::MOST_BYTES.into())), self.secret]
    }
}

impl Configuration {
    /// Number of bytes in the kernel's map.
    pub(crate) const LEN: usize = 104;
    /// Place of the number of the reverse device among them.
    const REVERSE: usize = 48;
    /// Place of the generation of the subscribers' prefixes.
    const GENERATION: usize = 68;

    /// Configuration that judges by `trap` and changes nothing: for a device with Ethernet headers.
    pub const fn watching(trap: TrapConfig) -> Self {
        Self {
            trap,
            quic: QuicRule::Handshake,
            admission: Admission::Loss,
            priority: [0; 2],
            young: None,
            netns: 0,
            ifindex: 0,
            ethernet: true,
            reverse: None,
            side: None,
        }
    }

    /// Number of the reverse device in the bytes of a configuration, if it has one.
    pub(crate) fn reverse_in(bytes: &[u8; Self::LEN]) -> Option<u32> {
        let mut number = [0; 4];
        number.copy_from_slice(&bytes[Self::REVERSE..Self::REVERSE + 4]);
        Some(u32::from_ne_bytes(number)).filter(|number| *number > 0)
    }

    /// Generation of the subscribers' prefixes that counts.
    pub(crate) fn generation_in(bytes: &[u8; Self::LEN]) -> u32 {
        let mut number = [0; 4];
        number.copy_from_slice(&bytes[Self::GENERATION..Self::GENERATION + 4]);
        u32::from_ne_bytes(number)
    }

    /// Returns these bytes of a key with another generation.
    pub(crate) fn with_generation(mut bytes: [u8; Self::LEN], generation: u32) -> [u8; Self::LEN] {
        bytes[Self::GENERATION..Self::GENERATION + 4].copy_from_slice(&generation.to_ne_bytes());
        bytes
    }

    pub(crate) fn to_bytes(self, codel: CodelText) -> [u8; Self::LEN] {
        let trap = self.trap;
        let (floor, floor_bytes) = match trap.floor {
            Floor::AtSignal(bytes) => (0, bytes),
            Floor::AtResponse(bytes) => (1, bytes),
        };
        let mut out = Writer { bytes: [0; Self::LEN], at: 0 };
        out.put([
            match trap.cycles {
                Cycles::Half => 0,
                Cycles::Matched => 1,
                Cycles::RoundTrip => 2,
            },
            match trap.window {
                WindowUnit::Bytes => 0,
                WindowUnit::Rate => 1,
            },
            trap.threshold,
            floor,
            trap.response.first,
            trap.response.last,
            match trap.judge {
                Judge::Majority => 0,
                Judge::Marcato => 1,
            },
            match trap.evidence {
                Evidence::Separate => 0,
                Evidence::Combined => 1,
            },
            match trap.booking {
                Booking::Given => 0,
                Booking::Arrival => 1,
            },
            match trap.counting {
                Counting::Exact => 0,
                Counting::Authors => 1,
            },
            trap.reassess,
            match self.quic {
                QuicRule::FirstBit => 0,
                QuicRule::Version => 1,
                QuicRule::Handshake => 2,
            },
        ]);
        // A floor beyond 4 GB admits no window, as the largest one that the kernel counts is below.
        out.put(u32::try_from(floor_bytes.get()).unwrap_or(u32::MAX).to_ne_bytes());
        let young_priority = self.young.map_or(0, |young| young.priority);
        for priority in self.priority.into_iter().chain([young_priority]) {
            out.put(priority.to_ne_bytes());
        }
        out.put(self.netns.to_ne_bytes());
        out.put(self.ifindex.to_ne_bytes());
        let header = |ethernet| if ethernet { 14_u32 } else { 0 };
        out.put(header(self.ethernet).to_ne_bytes());
        let admission: u32 = match self.admission {
            Admission::Loss => 0,
            Admission::Ecn => 1,
            Admission::Any => 2,
        };
        out.put(admission.to_ne_bytes());
        out.put(header(self.reverse.map_or(self.ethernet, |reverse| reverse.ethernet)).to_ne_bytes());
        out.put(self.reverse.map_or(0, |reverse| reverse.ifindex).to_ne_bytes());
        for word in self.young.map_or([0; 3], |young| young.words()) {
            out.put(word.to_ne_bytes());
        }
        let side: u32 = match self.side {
            None => 0,
            Some(Side::Source) => 1,
            Some(Side::Destination) => 2,
        };
        out.put(side.to_ne_bytes());
        // The generation is that of the maps.
        out.put(0_u32.to_ne_bytes());
        for address in codel.into_iter().flatten() {
            out.put(address.to_ne_bytes());
        }
        out.bytes
    }
}

/// Writer of consecutive fields.
struct Writer {
    bytes: [u8; Configuration::LEN],
    at: usize,
}

impl Writer {
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        self.bytes[self.at..self.at + N].copy_from_slice(&field);
        self.at += N;
    }
}

/// Key of a flow in the kernel's map: `struct flow_key` of `bpf/packet.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub(crate) [u8; Self::LEN]);

impl FlowId {
    /// Number of bytes in the kernel's map.
    pub(crate) const LEN: usize = 40;

    /// Key of a flow.
    pub fn new(flow: &FlowTuple) -> Self {
        let mut bytes = [0; Self::LEN];
        let family = match (flow.source, flow.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                bytes[12..16].copy_from_slice(&source.octets());
                bytes[28..32].copy_from_slice(&destination.octets());
                4
            }
            (source, destination) => {
                let octets = |address| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                bytes[..16].copy_from_slice(&octets(source));
                bytes[16..32].copy_from_slice(&octets(destination));
                6
            }
        };
        bytes[32..34].copy_from_slice(&flow.source_port.to_be_bytes());
        bytes[34..36].copy_from_slice(&flow.destination_port.to_be_bytes());
        (bytes[36], bytes[37]) = (flow.protocol, family);
        Self(bytes)
    }

    /// Flow of this key.
    pub fn tuple(&self) -> FlowTuple {
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&self.0[at..at + 16]);
            match self.0[37] {
                4 => IpAddr::from([octets[12], octets[13], octets[14], octets[15]]),
                _ => IpAddr::from(octets),
            }
        };
        let port = |at: usize| u16::from_be_bytes([self.0[at], self.0[at + 1]]);
        FlowTuple {
            source: address(0),
            destination: address(16),
            source_port: port(32),
            destination_port: port(34),
            protocol: self.0[36],
        }
    }
}

/// Packet as the programs read it: `struct packet` of `bpf/packet.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPacket {
    /// Key of its flow.
    pub flow: FlowId,
    /// Length of the IP packet, by its own header.
    pub len: u32,
    /// Two bits of ECN.
    pub ecn: u8,
    /// Class that its code point asks for.
    pub layer: Layer,
    /// Clear-text fields of the transport header.
    pub transport: Transport,
}

impl ReadPacket {
    /// Number of bytes in the kernel's map.
    pub(crate) const LEN: usize = 80;

    pub(crate) fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let word = |index: usize| {
            let at = FlowId::LEN + 4 * index;
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut flow = [0; FlowId::LEN];
        flow.copy_from_slice(&bytes[..FlowId::LEN]);
        let [len, payload, seq, ack, value, echo] = std::array::from_fn(word);
        let [has_timestamps, flags, transport, ecn, quic, fixed, spin, greets] =
            std::array::from_fn(|index| bytes[FlowId::LEN + 24 + index]);
        let timestamps = (has_timestamps != 0).then_some(TcpTimestamps { value, echo });
        let flags = TcpFlags::from_bits(flags);
        let quic = match quic {
            1 => Some(QuicHeader::Short { fixed: fixed != 0, spin: spin != 0 }),
            // The programs keep no version, but whether it is a known one.
            2 if greets != 0 => QuicHeader::parse(&[0xc0, 0, 0, 0, 1]),
            2 => QuicHeader::parse(&[0xc0, 0, 0, 0, 0]),
            _ => None,
        };
        let transport = match transport {
            1 => Transport::Tcp(TcpSegment { seq, ack, flags, payload, timestamps }),
            2 => Transport::Udp { payload, quic },
            _ => Transport::Opaque,
        };
        // The number of segments stands before it.
        let layer = if bytes[FlowId::LEN + 36] == 0 { Layer::High } else { Layer::Low };
        Self { flow: FlowId(flow), len, ecn, layer, transport }
    }
}

/// Fields of the kernel's `struct __sk_buff` that a test run sets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context {
    /// `tstamp`, in nanoseconds.
    pub(crate) time: u64,
    /// The first words of `cb`.
    pub(crate) cb: [u32; 2],
}

impl Context {
    /// Number of bytes of `struct __sk_buff`.
    const LEN: usize = 192;
    /// Offsets of `cb` and `tstamp`, which are part of the kernel's interface.
    const CB: usize = 48;
    const TSTAMP: usize = 152;

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (word, at) in self.cb.into_iter().zip([Self::CB, Self::CB + 4]) {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[Self::TSTAMP..Self::TSTAMP + 8].copy_from_slice(&self.time.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_flow() {
        for (source, destination) in [("192.0.2.1", "198.51.100.7"), ("2001:db8::1", "2001:db8:ffff::2")] {
            let flow = FlowTuple {
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
                source_port: 443,
                destination_port: 50_000,
                protocol: FlowTuple::TCP,
            };
            assert_eq!(FlowId::new(&flow).tuple(), flow);
        }
    }
}
