//! Program of classic BPF by which the kernel gives datagrams to the drivers that own them.
//!
//! The program computes the keyed hash of the connection ID and chooses the socket
//! (`SO_ATTACH_REUSEPORT_CBPF`). No privilege is needed. It runs for each datagram, or each batch of them.

use marcato_quic::Steering;

use crate::sys::Instruction;

// Codes of `linux/bpf_common.h`. Registers are A, X and sixteen words of memory.
/// A = word, or byte, of the datagram.
const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
/// A = constant, A = memory, X = memory, memory = A.
const LOAD_CONSTANT: u16 = 0x00;
const LOAD: u16 = 0x60;
const LOAD_X: u16 = 0x61;
const STORE: u16 = 0x02;
/// A = A with a constant ...
const OR_X: u16 = 0x4c;
const SHIFT_LEFT: u16 = 0x64;
const SHIFT_RIGHT: u16 = 0x74;
const REMAINDER: u16 = 0x94;
const XOR: u16 = 0xa4;
/// ... or with X.
const ADD_X: u16 = 0x0c;
const XOR_X: u16 = 0xac;
/// Jumps, always or if bits are set.
const JUMP: u16 = 0x05;
const JUMP_IF_SET: u16 = 0x45;
/// Ends with the value of A.
const RETURN: u16 = 0x16;

/// Places in memory: the state of the hash is at 0 to 3.
const FIRST: u32 = 4;
const SECOND: u32 = 5;
const SCRATCH: u32 = 6;

/// Returns the program that computes [`Steering::owner`] from the UDP payload. For a datagram that is
/// too short the kernel returns 0.
pub(super) fn program(steering: &Steering) -> Vec<Instruction> {
    let mut program = Program::default();
    // RFC 8999 §5: the ID follows the first byte of a short header. In a long one, version and
    // length come between them.
    program.op(LOAD_BYTE, 0);
    program.0.push(Instruction { code: JUMP_IF_SET, if_true: 5, if_false: 0, value: 0x80 });
    for (at, end) in [(1, true), (6, false)] {
        for (word, place) in [(at, FIRST), (at + 4, SECOND)] {
            program.op(LOAD_WORD, word);
            program.op(STORE, place);
        }
        if end {
            program.op(JUMP, 4);
        }
    }
    let [low, high] = steering.key();
    for (place, value) in (0..).zip([low, high, low ^ 0x6c79_6765, high ^ 0x7465_6462]) {
        program.op(LOAD_CONSTANT, value);
        program.op(STORE, place);
    }
    for word in [FIRST, SECOND] {
        program.xor(3, word);
        program.round();
        program.xor(0, word);
    }
    let length = 8 << 24;
    program.xor_constant(3, length);
    program.round();
    program.xor_constant(0, length);
    program.xor_constant(2, 0xff);
    for _ in 0..3 {
        program.round();
    }
    program.op(LOAD, 1);
    program.op(LOAD_X, 3);
    program.op(XOR_X, 0);
    program.op(REMAINDER, u32::from(steering.members().get()));
    program.op(RETURN, 0);
    program.0
}

/// Program under construction.
#[derive(Default)]
struct Program(Vec<Instruction>);

impl Program {
    fn op(&mut self, code: u16, value: u32) {
        self.0.push(Instruction { code, if_true: 0, if_false: 0, value });
    }

    /// Memory at `to` ^= memory at `by`.
    fn xor(&mut self, to: u32, by: u32) {
        self.op(LOAD, to);
        self.op(LOAD_X, by);
        self.op(XOR_X, 0);
        self.op(STORE, to);
    }

    fn xor_constant(&mut self, to: u32, value: u32) {
        self.op(LOAD, to);
        self.op(XOR, value);
        self.op(STORE, to);
    }

    fn add(&mut self, to: u32, by: u32) {
        self.op(LOAD, to);
        self.op(LOAD_X, by);
        self.op(ADD_X, 0);
        self.op(STORE, to);
    }

    /// Rotates the memory at `at`, and leaves the result in A only.
    fn rotate(&mut self, at: u32, bits: u32) {
        self.op(LOAD, at);
        self.op(SHIFT_RIGHT, 32 - bits);
        self.op(STORE, SCRATCH);
        self.op(LOAD, at);
        self.op(SHIFT_LEFT, bits);
        self.op(LOAD_X, SCRATCH);
        self.op(OR_X, 0);
    }

    fn rotate_and_xor(&mut self, at: u32, bits: u32, by: u32) {
        self.rotate(at, bits);
        self.op(LOAD_X, by);
        self.op(XOR_X, 0);
        self.op(STORE, at);
    }

    /// Round of HalfSipHash.
    fn round(&mut self) {
        self.add(0, 1);
        self.rotate_and_xor(1, 5, 0);
        self.rotate(0, 16);
        self.op(STORE, 0);
        self.add(2, 3);
        self.rotate_and_xor(3, 8, 2);
        self.add(0, 3);
        self.rotate_and_xor(3, 7, 0);
        self.add(2, 1);
        self.rotate_and_xor(1, 13, 2);
        self.rotate(2, 16);
        self.op(STORE, 2);
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use marcato_units::{Bytes, Layer, Seed};

    use super::*;
    use crate::quic::socket::Socket;

    /// Returns the place of the socket that a datagram has arrived at.
    fn arrived_at(sockets: &[std::net::UdpSocket]) -> Option<usize> {
        sockets.iter().position(|socket| socket.recv(&mut [0; 100]).is_ok())
    }

    #[test]
    fn the_kernel_finds_the_owner_that_the_steering_names() {
        let steering = Steering::new([0x1234_5678, 0xfedc_ba98], NonZeroU8::new(5).unwrap());
        let bind = |addr: &str| {
            let socket = std::net::UdpSocket::bind(addr).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let first = bind(any);
            let reference = socket2::SockRef::from(&first);
            crate::sys::share_port(&reference).unwrap();
            crate::sys::steer(&reference, &program(&steering)).unwrap_err();
            let mut sockets = vec![first];
            for _ in 1..5 {
                let addr = sockets[0].local_addr().unwrap();
                let domain = socket2::Domain::for_address(addr);
                let further = socket2::Socket::new(domain, socket2::Type::DGRAM, None).unwrap();
                further.set_nonblocking(true).unwrap();
                crate::sys::share_port(&socket2::SockRef::from(&further)).unwrap();
                further.bind(&addr.into()).unwrap();
                sockets.push(further.into());
            }
            crate::sys::steer(&socket2::SockRef::from(&sockets[0]), &program(&steering)).unwrap();
            let (from, mut random) = (bind(any), Seed::new(1).stream("datagrams"));
            let mut counts = [0; 5];
            for round in 0..2000 {
                let mut datagram: Vec<u8> = (0..30).map(|_| random.next_u64().to_le_bytes()[0]).collect();
                datagram.truncate(if round % 10 == 0 { round / 10 % 20 } else { 30 });
                from.send_to(&datagram, sockets[0].local_addr().unwrap()).unwrap();
                let owner = usize::from(steering.owner(&datagram));
                assert_eq!(arrived_at(&sockets), Some(owner), "{datagram:?}");
                counts[owner] += 1;
            }
            assert!(counts.iter().all(|count| *count > 200), "{counts:?}");
        }
    }

    #[tokio::test]
    async fn two_endpoints_do_not_share_an_address_unawares() {
        let bind = |addr| Socket::bind(addr, Layer::High, Bytes::kb(100));
        let first = bind(([127, 0, 0, 1], 0).into()).unwrap();
        first.share().unwrap();
        let _second = first.another(Bytes::kb(100)).unwrap();
        assert_eq!(bind(first.addr).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    }
}
