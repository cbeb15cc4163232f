//! One test of all readers of packets: none panics, and none claims more than its bytes have.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::string::bytes_regex;
use proptest::test_runner::{Config, TestRunner};

use crate::{IpPacket, QuicHeader, TcpOptions, Transport, Unreliable, VarInt};

/// Name of a reader, inputs whose first bytes it accepts, and a call that tells if the result is possible.
type Reader = (&'static str, &'static str, fn(&[u8]) -> bool);

fn carries_less_than_its_length(packet: IpPacket) -> bool {
    let payload = match packet.transport {
        Transport::Opaque => 0,
        Transport::Tcp(segment) => u64::from(segment.payload),
        Transport::Udp { payload, .. } => u64::from(payload),
    };
    payload < packet.len.get()
}

const READERS: &[Reader] = &[
    ("IPv4", "(?s-u:\\x45.{8}[\\x06\\x11].{0,180})", |bytes| {
        IpPacket::parse(bytes).map_or(true, carries_less_than_its_length)
    }),
    ("IPv6", "(?s-u:[\\x60-\\x6f].{5}[\\x00\\x06\\x11\\x2b\\x2c\\x33\\x3c].{0,180})", |bytes| {
        IpPacket::parse(bytes).map_or(true, carries_less_than_its_length)
    }),
    ("Ethernet", "(?s-u:.{12}(\\x08\\x00\\x45|\\x86\\xdd\\x60).{0,180})", |bytes| {
        IpPacket::parse_ethernet(bytes).map_or(true, carries_less_than_its_length)
    }),
    ("TCP options", "(?s-u:([\\x00-\\x08\\xfd\\xfe][\\x00-\\x0c].{0,10}){0,8})", |bytes| {
        TcpOptions::new(bytes).count() <= bytes.len()
    }),
    ("QUIC", "(?s-u:[\\x40-\\xff].{0,60})", |bytes| QuicHeader::parse(bytes).is_none() || !bytes.is_empty()),
    ("unreliable message", "(?s-u:[\\x00-\\x05].{0,30})", |bytes| {
        Unreliable::decode(bytes).map_or(true, |message| message.body.len() + 1 == bytes.len())
    }),
    ("number", "(?s-u:.{0,9})", |bytes| VarInt::decode(bytes).map_or(true, |(_, len)| len <= bytes.len())),
];

#[test]
fn no_bytes_make_a_reader_panic_or_claim_too_much() {
    for &(name, near, holds) in READERS {
        let noise = vec(any::<u8>(), 0..200).boxed();
        let near = bytes_regex(near).unwrap().boxed();
        let config = Config { cases: 1000, ..Config::default() };
        let run = TestRunner::new(config).run(&prop_oneof![1 => noise, 3 => near], |bytes| {
            prop_assert!(holds(&bytes));
            Ok(())
        });
        assert!(run.is_ok(), "{name}: {run:?}");
    }
}
