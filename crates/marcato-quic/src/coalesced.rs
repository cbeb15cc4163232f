//! Packets of a datagram that end with the handshake.

use marcato_wire::{QuicHeader, QuicLongType, VarInt};

/// Appends the lengths of the packets with a long header at the beginning of `datagram`, which this
/// end has built. RFC 9000 §12.2: they stand before the packet with a short header.
///
/// The gates report packet numbers without their number space. The engine forgets the packets of
/// the handshake when it discards their keys (RFC 9001 §4.9), and then reports neither an
/// acknowledgement nor a loss. So a lane must not wait for one.
pub(crate) fn long_packets(datagram: &[u8], lengths: &mut Vec<usize>) {
    let mut rest = datagram;
    while let Some(len) = long_packet(rest) {
        lengths.push(len);
        rest = rest.get(len..).unwrap_or_default();
    }
}

/// Returns the length of the packet with a long header at the beginning of `bytes`. RFC 9000 §17.2.
fn long_packet(bytes: &[u8]) -> Option<usize> {
    let header = QuicHeader::parse(bytes)?;
    header.known_version()?;
    let QuicHeader::Long { kind: Some(kind), .. } = header else { return None };
    // First byte, version.
    let mut rest = bytes.get(5..)?;
    for _connection_id in 0..2 {
        let (&len, tail) = rest.split_first()?;
        rest = tail.get(usize::from(len)..)?;
    }
    match kind {
        // RFC 9000 §17.2.5: a Retry packet has no length and stands alone.
        QuicLongType::Retry => return Some(bytes.len()),
        QuicLongType::Initial => {
            let token = varint(&mut rest)?;
            rest = rest.get(token..)?;
        }
        QuicLongType::ZeroRtt | QuicLongType::Handshake => {}
    }
    let length = varint(&mut rest)?;
    Some((bytes.len() - rest.len()).saturating_add(length))
}

/// Takes a length from the front of `bytes`.
fn varint(bytes: &mut &[u8]) -> Option<usize> {
    let (value, len) = VarInt::decode(bytes).ok()?;
    *bytes = bytes.get(len..)?;
    usize::try_from(value.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(datagram: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        long_packets(datagram, &mut lengths);
        lengths
    }

    /// Handshake packet of version 1 with `payload` bytes behind its length.
    fn handshake(payload: u8) -> Vec<u8> {
        let mut packet = vec![0xe0, 0, 0, 0, 1, 2, 7, 7, 1, 9, payload];
        packet.resize(packet.len() + usize::from(payload), 0x55);
        packet
    }

    #[test]
    fn the_initial_packet_of_rfc_9001_has_1200_bytes() {
        // RFC 9001 §A.2: the unprotected header of the client's Initial packet.
        let header = [0xc3, 0, 0, 0, 1, 8, 0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08, 0, 0, 0x44, 0x9e];
        let mut datagram = header.to_vec();
        datagram.resize(1200, 0);
        assert_eq!(lengths(&datagram), [1200]);
    }

    #[test]
    fn long_packets_stand_before_the_short_one() {
        let first = handshake(20);
        let both = [first.clone(), handshake(30)].concat();
        let with_short = [both.clone(), vec![0x40; 60]].concat();
        assert_eq!(lengths(&first), [31]);
        assert_eq!(lengths(&both), [31, 41]);
        assert_eq!(lengths(&with_short), [31, 41]);
        assert_eq!(lengths(&with_short[72..]), []);
    }

    #[test]
    fn a_token_lengthens_an_initial_packet_only() {
        let token = [0xc0, 0, 0, 0, 1, 0, 0, 3, 1, 2, 3, 5, 0, 0, 0, 0, 0];
        assert_eq!(lengths(&token), [17]);
        let retry = [0xf0, 0, 0, 0, 1, 0, 0, 3, 1, 2, 3];
        assert_eq!(lengths(&retry), [11]);
    }

    #[test]
    fn headers_that_end_early_count_as_nothing() {
        let whole = handshake(20);
        for len in 0..11 {
            assert_eq!(lengths(&whole[..len]), [], "{len} bytes");
        }
        let unknown_version = [0xe0, 0, 0, 0, 9, 0, 0, 1, 0];
        assert_eq!(lengths(&unknown_version), []);
    }
}
