//! Steering of datagrams to the endpoint of a group that owns their connection.

use std::fmt;
use std::num::NonZeroU8;

/// Length of the connection IDs that endpoints issue.
pub(crate) const ID_LEN: usize = 8;
/// Bit of the first byte that long headers have (RFC 8999 §5.1).
const LONG_HEADER: u8 = 0x80;
/// Offset of the destination connection ID in long headers (RFC 8999 §5.1) ...
const LONG_ID: usize = 6;
/// ... and in short headers (RFC 8999 §5.2).
const SHORT_ID: usize = 1;

/// Rule by which the destination connection ID of a datagram names a member of a group of
/// endpoints.
///
/// An endpoint issues only IDs that name itself. The ID of a client's first packets is random, and
/// so spreads new connections evenly. A keyed hash maps IDs to members: RFC 9000 §5.1 forbids IDs
/// from which an observer can tell that two belong to the same connection, and an index in the
/// clear would tell that some do not. Without the key, clients cannot aim at a member either.
///
/// The hash is HalfSipHash-1-3 with 32 bits of result, of the two words of the ID's first 8 bytes in
/// network byte order. It needs nothing but 32-bit arithmetic, so a classic BPF program can compute
/// it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Steering {
    key: [u32; 2],
    members: NonZeroU8,
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steering").field("members", &self.members).finish_non_exhaustive()
    }
}

impl Steering {
    /// Creates the rule for a number of members. The key has to be secret.
    pub const fn new(key: [u32; 2], members: NonZeroU8) -> Self {
        Self { key, members }
    }

    /// Returns the key of the hash.
    pub const fn key(&self) -> [u32; 2] {
        self.key
    }

    /// Returns the number of members.
    pub const fn members(&self) -> NonZeroU8 {
        self.members
    }

    /// Returns the index of the member that a datagram belongs to; 0 for one that is too short to
    /// belong to any.
    pub fn owner(&self, datagram: &[u8]) -> u8 {
        let is_long = datagram.first().is_some_and(|first| first & LONG_HEADER != 0);
        let at = if is_long { LONG_ID } else { SHORT_ID };
        let id = datagram.get(at..at + ID_LEN).and_then(|id| <[u8; ID_LEN]>::try_from(id).ok());
        id.map_or(0, |id| self.member(id))
    }

    /// Returns the index of the member that an ID names.
    pub(crate) fn member(&self, id: [u8; ID_LEN]) -> u8 {
        let [a, b, c, d, e, f, g, h] = id;
        let hash = half_sip_hash(self.key, [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes));
        // The remainder is less than a number of 8 bits.
        u8::try_from(hash % u32::from(self.members.get())).unwrap_or(0)
    }
}

/// HalfSipHash-1-3 of 8 bytes, given as two words.
fn half_sip_hash(key: [u32; 2], words: [u32; 2]) -> u32 {
    let mut v = [key[0], key[1], key[0] ^ 0x6c79_6765, key[1] ^ 0x7465_6462];
    // The last word of a message holds its length in the highest byte.
    for word in [words[0], words[1], 8 << 24] {
        v[3] ^= word;
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..3 {
        round(&mut v);
    }
    v[1] ^ v[3]
}

/// Round of HalfSipHash.
const fn round(v: &mut [u32; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(5) ^ v[0];
    v[0] = v[0].rotate_left(16);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(8) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(7) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[2];
    v[2] = v[2].rotate_left(16);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steering(members: u8) -> Steering {
        Steering::new([0x0302_0100, 0x0706_0504], NonZeroU8::new(members).unwrap())
    }

    /// The vector for 8 bytes in Linux's `lib/tests/siphash_kunit.c`: the bytes 0 to 7, under the
    /// key of the same bytes.
    #[test]
    fn the_hash_is_the_one_that_others_call_by_its_name() {
        assert_eq!(half_sip_hash([0x0302_0100, 0x0706_0504], [0x0302_0100, 0x0706_0504]), 0x5779_99b1);
    }

    #[test]
    fn both_headers_are_read_where_their_id_begins() {
        let steering = steering(64);
        let id = [9, 8, 7, 6, 5, 4, 3, 2];
        let short = [&[0x40][..], &id, &[0; 20]].concat();
        let long = [&[0xc0, 0, 0, 0, 1, 8][..], &id, &[8; 20]].concat();
        let member = steering.member(id);
        assert_ne!(member, 0);
        assert_eq!((steering.owner(&short), steering.owner(&long)), (member, member));
        for cut in [&[][..], &short[..8], &long[..13]] {
            assert_eq!(steering.owner(cut), 0);
        }
    }

    #[test]
    fn random_ids_name_all_members_equally_often() {
        let steering = steering(5);
        let mut counts = [0; 5];
        for number in 0..50_000u64 {
            counts[usize::from(steering.member(number.to_be_bytes()))] += 1;
        }
        // Five standard deviations of a binomial distribution are 450.
        assert!(counts.iter().all(|count| (9550..=10_450).contains(count)), "{counts:?}");
    }
}
