//! Invented IP addresses and ports for the ends of routes.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::packet::{IPV4_HEADER, IPV6_HEADER};
use crate::topology::NodeId;

/// IP version of a datagram flow. It decides the form of addresses and the length of IP headers: 20
/// or 40 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the length of the IP header in bytes.
    pub(crate) const fn header(self) -> u32 {
        match self {
            Self::V4 => IPV4_HEADER,
            Self::V6 => IPV6_HEADER,
        }
    }
}

/// Part of an address that a NAT changes when it loses a binding and makes a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rebinding {
    /// Changes the port.
    Port,
    /// Changes the IP address; the port stays.
    Ip,
}

/// Address book with a port for each route and an IP address for each node.
///
/// Node n has 10.0.0.0 + n + 1 or `fd00::` + n + 1 (RFC 1918, RFC 4193). Its ports count up from
/// [`FIRST_PORT`](Self::FIRST_PORT), 1024. NAT addresses count up from 100.64.0.0/10, as behind a
/// carrier's NAT (RFC 6598), or `fd00:64::/32`. No address is ever reused.
#[derive(Default)]
pub(crate) struct AddressBook {
    /// Number of ports used at each node. The order of the map never matters: it is looked up, not
    /// iterated.
    ports: HashMap<NodeId, u16>,
    /// Number of NAT addresses used.
    assumed: u32,
}

impl AddressBook {
    const FIRST_PORT: u16 = 1024;

    /// Returns a new address and port at `node`; `None` if there is none left.
    pub(crate) fn give(&mut self, node: NodeId, family: Family) -> Option<SocketAddr> {
        let number = node.0 + 1;
        let ip = match family {
            // 10.0.0.0/8 without its broadcast address.
            Family::V4 if number < 0x00ff_ffff => Ipv4Addr::from_bits(0x0a00_0000 | number).into(),
            Family::V4 => return None,
            Family::V6 => Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(number)).into(),
        };
        Some(SocketAddr::new(ip, self.port(node)?))
    }

    /// Returns the successor of `current`, an address of a route that ends at `node`; `None` if
    /// none is left.
    pub(crate) fn rebind(
        &mut self,
        node: NodeId,
        current: SocketAddr,
        rebinding: Rebinding,
    ) -> Option<SocketAddr> {
        match rebinding {
            Rebinding::Port => Some(SocketAddr::new(current.ip(), self.port(node)?)),
            Rebinding::Ip => {
                let number = self.assumed + 1;
                if number >= 0x003f_ffff {
                    return None;
                }
                self.assumed = number;
                let ip: IpAddr = match current {
                    SocketAddr::V4(_) => Ipv4Addr::from_bits(0x6440_0000 | number).into(),
                    SocketAddr::V6(_) => Ipv6Addr::from_bits(0xfd00_0064 << 96 | u128::from(number)).into(),
                };
                Some(SocketAddr::new(ip, current.port()))
            }
        }
    }

    fn port(&mut self, node: NodeId) -> Option<u16> {
        let given = self.ports.entry(node).or_default();
        let port = Self::FIRST_PORT.checked_add(*given)?;
        *given += 1;
        Some(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(6);

    #[test]
    fn routes_of_one_node_differ_in_their_ports() {
        let mut book = AddressBook::default();
        let mut give = |node, family| book.give(node, family).unwrap().to_string();
        assert_eq!(give(NODE, Family::V4), "10.0.0.7:1024");
        assert_eq!(give(NODE, Family::V4), "10.0.0.7:1025");
        assert_eq!(give(NodeId(7), Family::V4), "10.0.0.8:1024");
        assert_eq!(give(NODE, Family::V6), "[fd00::7]:1026");
    }

    #[test]
    fn a_nat_assumes_a_new_port_or_a_new_address() {
        let mut book = AddressBook::default();
        for (family, port, ip) in [
            (Family::V4, "10.0.0.7:1025", "100.64.0.1:1025"),
            (Family::V6, "[fd00::7]:1027", "[fd00:64::2]:1027"),
        ] {
            let first = book.give(NODE, family).unwrap();
            let second = book.rebind(NODE, first, Rebinding::Port).unwrap();
            assert_eq!(second.to_string(), port);
            let third = book.rebind(NODE, second, Rebinding::Ip).unwrap();
            assert_eq!(third.to_string(), ip);
        }
    }

    #[test]
    fn ports_end_without_being_given_twice() {
        let mut book = AddressBook::default();
        let given: std::collections::BTreeSet<_> =
            std::iter::from_fn(|| book.give(NODE, Family::V4)).collect();
        assert_eq!(given.len(), 65_536 - 1024);
        assert_eq!(book.rebind(NODE, *given.first().unwrap(), Rebinding::Port), None);
    }
}
