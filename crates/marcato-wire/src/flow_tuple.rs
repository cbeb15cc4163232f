//! Identity of a packet's flow: protocol, addresses and ports.

use core::hash::Hasher;
use core::net::IpAddr;

use siphasher::sip::SipHasher13;

/// 5-tuple of a flow. Two packets with equal tuples belong to one flow, in one direction.
///
/// **Fragments** have ports 0, as only a datagram's first fragment carries its ports. So all
/// fragments of a datagram are one flow, which they share with the other fragments between the two
/// hosts. Protocols without ports have ports 0 as well.
///
/// ```
/// use marcato_wire::FlowTuple;
/// let tuple = FlowTuple {
///     protocol: FlowTuple::TCP,
///     source: [192, 0, 2, 1].into(),
///     destination: [198, 51, 100, 7].into(),
///     source_port: 443,
///     destination_port: 50_000,
/// };
/// assert_eq!(tuple.reversed().reversed(), tuple);
/// assert_ne!(tuple.key(1), tuple.reversed().key(1));
/// // The protocol is part of it: the same addresses and ports over UDP are another flow.
/// assert_ne!(tuple.key(1), FlowTuple { protocol: FlowTuple::UDP, ..tuple }.key(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowTuple {
    /// Protocol above IP, as numbered by IANA.
    pub protocol: u8,
    /// Address of the sender.
    pub source: IpAddr,
    /// Address of the receiver.
    pub destination: IpAddr,
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
}

impl FlowTuple {
    /// Protocol number of TCP.
    pub const TCP: u8 = 6;
    /// Protocol number of UDP.
    pub const UDP: u8 = 17;

    /// Flow in the other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            protocol: self.protocol,
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }

    /// 64-bit name of the flow, by SipHash-1-3 under `secret`; it is the same on every machine.
    ///
    /// Without the secret, nobody can choose two tuples that share a name. Of a million flows, two
    /// share one by chance with probability 3 in 10^8.
    pub fn key(&self, secret: u64) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(secret, !secret);
        let ports = u32::from(self.source_port) << 16 | u32::from(self.destination_port);
        // The family and the protocol in one word, so that ::a.b.c.d never collides with a.b.c.d.
        let kind = |family: u32| family << 8 | u32::from(self.protocol);
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                hasher.write_u64(u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits()));
                hasher.write_u64(u64::from(kind(4)) << 32 | u64::from(ports));
            }
            (source, destination) => {
                for address in [source, destination] {
                    let bits = match address {
                        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
                        IpAddr::V6(address) => address.to_bits(),
                    };
                    hasher.write(&bits.to_be_bytes());
                }
                hasher.write_u64(u64::from(kind(6)) << 32 | u64::from(ports));
            }
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    fn tuple(protocol: u8, source: IpAddr, destination: IpAddr, ports: (u16, u16)) -> FlowTuple {
        FlowTuple { protocol, source, destination, source_port: ports.0, destination_port: ports.1 }
    }

    #[test]
    fn an_ipv4_flow_and_the_same_flow_mapped_into_ipv6_are_two() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let four = tuple(6, a.into(), b.into(), (1, 2));
        let six = tuple(6, a.to_ipv6_mapped().into(), b.to_ipv6_mapped().into(), (1, 2));
        assert_ne!(four.key(0), six.key(0));
    }

    /// The expected keys come from another program: SipHash-1-3 in Python, over the same words in
    /// little-endian order.
    #[test]
    fn keys_are_the_same_on_every_machine() {
        let four = [[192, 0, 2, 1], [198, 51, 100, 7]].map(IpAddr::from);
        let six = [1, 2].map(|last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]));
        assert_eq!(tuple(6, four[0], four[1], (443, 50_000)).key(1), 0x5154_3152_c49a_b086);
        assert_eq!(tuple(17, six[0], six[1], (443, 50_000)).key((1 << 63) + 5), 0x1955_d640_c4e4_d561);
    }

    proptest! {
        #[test]
        fn tuples_of_ipv4_that_differ_have_different_keys(
            a in any::<u32>(), b in any::<u32>(), ports in any::<(u16, u16)>(),
            protocol in any::<u8>(), bit in 0u32..32, secret in any::<u64>(),
        ) {
            let four = |bits| IpAddr::V4(Ipv4Addr::from_bits(bits));
            let key = tuple(protocol, four(a), four(b), ports).key(secret);
            let (address, port) = (1 << bit, 1 << (bit % 16));
            prop_assert_ne!(tuple(protocol, four(a ^ address), four(b), ports).key(secret), key);
            prop_assert_ne!(tuple(protocol, four(a), four(b ^ address), ports).key(secret), key);
            prop_assert_ne!(tuple(protocol ^ 1, four(a), four(b), ports).key(secret), key);
            prop_assert_ne!(tuple(protocol, four(a), four(b), (ports.0 ^ port, ports.1)).key(secret), key);
            prop_assert_ne!(tuple(protocol, four(a), four(b), (ports.0, ports.1 ^ port)).key(secret), key);
        }

        #[test]
        fn tuples_that_differ_have_different_keys(
            a in any::<u128>(), b in any::<u128>(), ports in any::<(u16, u16)>(),
            protocol in any::<u8>(), bit in 0u32..128, secret in any::<u64>(),
        ) {
            let six = |bits| IpAddr::V6(Ipv6Addr::from_bits(bits));
            let flow = tuple(protocol, six(a), six(b), ports);
            let key = flow.key(secret);
            prop_assert_eq!(flow.key(secret), key);
            prop_assert_ne!(flow.key(secret ^ 1), key);
            prop_assert_ne!(tuple(protocol, six(a ^ 1 << bit), six(b), ports).key(secret), key);
            prop_assert_ne!(tuple(protocol, six(a), six(b ^ 1 << bit), ports).key(secret), key);
            prop_assert_ne!(tuple(protocol ^ 1, six(a), six(b), ports).key(secret), key);
            prop_assert_ne!(tuple(protocol, six(a), six(b), (ports.0 ^ 1, ports.1)).key(secret), key);
            prop_assert_ne!(tuple(protocol, six(a), six(b), (ports.0, ports.1 ^ 1)).key(secret), key);
            prop_assert_eq!(flow.reversed().key(secret) == key, a == b && ports.0 == ports.1);
        }
    }
}
