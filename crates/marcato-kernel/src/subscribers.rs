//! Subscribers of a device: a class of one tree for each, with CRQ below it, found by the packet's address.
//!
//! - *A packet finds its class by one look-up.* `crq_egress` asks a trie for the longest prefix of the address on the
//!   subscribers' side, and names the subscriber's queue in `skb->priority`. One filter at the root takes the class from
//!   there, and the HTB below it the queue: no subscriber has a filter of its own.
//! - *Prefixes change at once.* Keys of the trie begin with a generation. A new one is written beside the old one, and one
//!   number in the configuration says which of them counts.
//! - *Packets of nobody* have a class too, with CRQ, which borrows what subscribers leave.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use marcato_units::Rate;

use crate::shaper::Shaper;
use crate::tree::{ClassId, Seat};

/// Address, or block of addresses, of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// Most prefixes of a device. A change needs room for twice as many.
    pub const MOST: usize = 1 << 17;

    /// Returns whether this is one of IPv4.
    pub const fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Address as 16 bytes, and the number of its bits that count: those of IPv4 stand behind `::ffff:0:0/96`.
    pub(crate) fn bits(&self) -> ([u8; 16], u32) {
        match self.address {
            IpAddr::V4(address) => (address.to_ipv6_mapped().octets(), 96 + u32::from(self.len)),
            IpAddr::V6(address) => (address.octets(), self.len.into()),
        }
    }

    /// Bits of an address, the first one first, without those behind the prefix.
    fn masked(address: IpAddr, len: u8) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no address: write 192.0.2.7, 192.0.2.0/24 or 2001:db8::/56");
        let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let is_number = |len: &&str| len.bytes().all(|byte| byte.is_ascii_digit());
        let len = match len {
            None => most,
            Some(len) => Some(len).filter(is_number).and_then(|len| len.parse().ok()).ok_or_else(wrong)?,
        };
        if len > most {
            return Err(wrong());
        }
        let first = Self { address: Self::masked(address, len), len };
        if first.address != address {
            return Err(format!(
                "{text} has bits behind its prefix: write {first}, or {address} for one address"
            ));
        }
        Ok(first)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.is_ipv4() { 32 } else { 128 };
        if self.len == whole {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.len)
        }
    }
}

/// Subscriber with a class of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Name, at most [`MOST_NAME`](Self::MOST_NAME) bytes.
    pub name: String,
    /// Number of the class, and of the queue below it.
    pub handle: u16,
    /// Rate that the subscriber always has.
    pub min: Rate,
    /// Rate that it may use while others leave it.
    pub max: Rate,
}

impl Subscriber {
    /// Most bytes of a name.
    pub const MOST_NAME: usize = 63;
    /// Most subscribers of a device: the kernel has 32767 handles for queues that it names, and each has three.
    pub const MOST: usize = 10_000;
    /// Subscribers that the kernel's map has room for: those that come stand beside those that leave.
    pub(crate) const ROOM: u32 = 2 * 10_000;
    /// First handle.
    pub const FIRST: u16 = 0x1000;
    /// Handle of the class for packets of nobody.
    pub const OTHERS: u16 = 0x0fff;
    /// Numbers of the handles of subscribers' queues, and of that of nobody's packets.
    pub const HANDLES: std::ops::RangeInclusive<u16> = Self::OTHERS..=0x7fff;
    /// Bytes in the kernel's map: `struct subscriber` of `bpf/subscribers.h`.
    pub(crate) const LEN: usize = 80;

    /// Place of the queue below the class.
    pub fn seat(&self) -> Seat {
        Seat {
            class: ClassId { major: Shaper::MAJOR, minor: self.handle },
            handle: self.handle,
            before: None,
        }
    }

    pub(crate) fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let name = self.name.as_bytes();
        let len = name.len().min(Self::MOST_NAME);
        bytes[..len].copy_from_slice(&name[..len]);
        bytes[64..72].copy_from_slice(&self.min.as_bps().to_ne_bytes());
        bytes[72..].copy_from_slice(&self.max.as_bps().to_ne_bytes());
        bytes
    }

    pub(crate) fn from_bytes(handle: u16, bytes: &[u8; Self::LEN]) -> Self {
        let rate = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            Rate::from_bps(u64::from_ne_bytes(word))
        };
        let name = bytes[..64].split(|byte| *byte == 0).next().unwrap_or_default();
        Self { name: String::from_utf8_lossy(name).into_owned(), handle, min: rate(64), max: rate(72) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_are_read_and_shown_in_the_same_way() {
        for text in ["192.0.2.7", "192.0.2.0/24", "0.0.0.0/0", "2001:db8::/56", "fd00::1", "::/0"] {
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(prefix("192.0.2.7/32").to_string(), "192.0.2.7");
        for (text, said) in [
            ("192.0.2.7/24", "write 192.0.2.0/24, or 192.0.2.7 for one address"),
            ("2001:db8::1/64", "write 2001:db8::/64, or 2001:db8::1"),
            ("192.0.2.0/33", "is no address"),
            ("2001:db8::/129", "is no address"),
            ("192.0.2.0/+8", "is no address"),
            ("192.0.2.0/", "is no address"),
            ("here", "is no address"),
        ] {
            assert!(text.parse::<Prefix>().unwrap_err().contains(said), "{text}");
        }
    }

    #[test]
    fn prefixes_of_both_families_are_apart_in_one_trie() {
        let (address, bits) = prefix("192.0.2.0/24").bits();
        assert_eq!((&address[8..], bits), (&[0, 0, 0xff, 0xff, 192, 0, 2, 0][..], 120));
        let (address, bits) = prefix("2001:db8::/32").bits();
        assert_eq!((&address[..5], bits), (&[0x20, 1, 0xd, 0xb8, 0][..], 32));
        assert_eq!(prefix("0.0.0.0/0").bits().1, 96);
    }

    #[test]
    fn a_subscriber_is_kept_in_the_kernel_as_it_is() {
        let subscriber = Subscriber {
            name: "Straße 7".to_owned(),
            handle: 0x1234,
            min: Rate::from_kbps(64),
            max: Rate::from_mbps(500),
        };
        assert_eq!(Subscriber::from_bytes(0x1234, &subscriber.to_bytes()), subscriber);
        let seat = subscriber.seat();
        assert_eq!((seat.class.to_string(), seat.handle), ("c4:1234".to_owned(), 0x1234));
        let longest = Subscriber { name: "x".repeat(Subscriber::MOST_NAME), ..subscriber };
        assert_eq!(Subscriber::from_bytes(0x1234, &longest.to_bytes()), longest);
    }
}
