//! TCP segment in virtual time: the header fields in use, and the length of the payload.

use marcato_units::Priority;

use super::PriorityOption;

/// Length of a TCP header without options, in bytes.
pub(crate) const TCP_HEADER: u32 = 20;
/// Length of the timestamps option and two no-operations before it. RFC 7323 appendix A.
pub(crate) const TIMESTAMPS: u32 = 12;
/// Length of a SYN's options: maximum segment size (4), window scale after a no-operation (1 + 3).
const SYN_OPTIONS: u32 = 8;
/// Length of SACK permitted after two no-operations. With timestamps, Linux puts it in place of
/// theirs.
const SACK_PERMITTED: u32 = 4;
/// Greatest length of all options. RFC 9293 §3.1.
const MAX_OPTIONS: u32 = 40;
/// Greatest number of SACK blocks next to timestamps. RFC 2018 §3.
pub(crate) const MAX_SACK_BLOCKS: usize = 3;

/// SACK blocks of a segment in order, the most recent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(u32, u32); MAX_SACK_BLOCKS],
    len: u8,
}

impl SackBlocks {
    /// Returns the blocks.
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.len)]
    }

    /// Adds a block, unless there are already three.
    pub(crate) fn push(&mut self, start: u32, end: u32) {
        if let Some(slot) = self.blocks.get_mut(usize::from(self.len)) {
            *slot = (start, end);
            self.len += 1;
        }
    }
}

/// Control bits. RFC 9293 §3.1, RFC 3168 §6.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// SYN: opens the connection.
    pub syn: bool,
    /// ACK: the acknowledgement number is valid.
    pub ack: bool,
    /// FIN: this end sends no more data.
    pub fin: bool,
    /// RST: the connection does not exist, or no longer.
    pub rst: bool,
    /// ECE: ECN echo.
    pub ece: bool,
    /// CWR: congestion window reduced.
    pub cwr: bool,
}

/// TCP segment: header fields, and the length of the payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of the first byte, modulo 2^32.
    pub seq: u32,
    /// Next sequence number expected from the other end, modulo 2^32.
    pub ack: u32,
    /// Window in bytes, with its scale applied.
    pub window: u32,
    /// Payload length in bytes.
    pub payload: u32,
    /// Control bits.
    pub flags: Flags,
    /// Timestamp value and echo reply, in milliseconds. RFC 7323 §3.
    pub timestamps: Option<(u32, u32)>,
    /// SACK permitted, in a SYN. RFC 2018 §2.
    pub sack_permitted: bool,
    /// Ranges that arrived beyond `ack`. RFC 2018.
    pub sack: SackBlocks,
    /// Priority of the payload, with the priority option. CATS §II-D2.
    pub priority: Option<Priority>,
}

impl Segment {
    /// Removes the oldest SACK blocks until the options fit the header.
    pub(crate) fn fit_sack(&mut self, form: PriorityOption) {
        while self.sack.len > 0 && self.header_len(form) > TCP_HEADER + MAX_OPTIONS {
            self.sack.len -= 1;
        }
    }

    /// Returns the length of the SACK option with two no-operations before it.
    pub(crate) fn sack_len(&self) -> u32 {
        match u32::from(self.sack.len) {
            0 => 0,
            blocks => 4 + 8 * blocks,
        }
    }

    /// Returns the length of the TCP header with its options, for this form of the priority option.
    pub(crate) fn header_len(&self, form: PriorityOption) -> u32 {
        let mut options = 0;
        if self.flags.syn {
            options += SYN_OPTIONS;
            if self.timestamps.is_none() && self.sack_permitted {
                options += SACK_PERMITTED;
            }
        }
        if self.timestamps.is_some() {
            options += TIMESTAMPS;
        }
        options += self.sack_len();
        if self.priority.is_some() {
            options += form.bytes();
        }
        TCP_HEADER + options.next_multiple_of(4)
    }

    /// Returns the segment's length in sequence numbers: its payload, and one each for SYN and FIN.
    pub(crate) fn sequence_len(&self) -> u32 {
        self.payload + u32::from(self.flags.syn) + u32::from(self.flags.fin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::SynOptions;
    use crate::tcp::options;
    use marcato_wire::{CatsOption, SackBlock, TcpOption, TcpOptions};

    #[test]
    fn a_cats_data_segment_is_1056_bytes_without_its_link_header() {
        let segment = Segment {
            payload: 1000,
            timestamps: Some((0, 0)),
            priority: Some(Priority::P0),
            ..Segment::default()
        };
        let ip = crate::packet::IPV4_HEADER;
        assert_eq!(ip + segment.header_len(PriorityOption::Authors) + segment.payload, 1056);
        assert_eq!(ip + segment.header_len(PriorityOption::Short) + segment.payload, 1056);
        assert_eq!(ip + segment.header_len(PriorityOption::Rfc6994) + segment.payload, 1060);
        let plain = Segment { priority: None, ..segment };
        assert_eq!(ip + plain.header_len(PriorityOption::Short) + plain.payload, 1052);
    }

    #[test]
    fn a_full_header_stays_within_sixty_bytes() {
        let mut sack = SackBlocks::default();
        for i in 0..9 {
            sack.push(i, i + 1);
        }
        let ack = Segment { timestamps: Some((1, 1)), sack, ..Segment::default() };
        assert_eq!(ack.sack.as_slice().len(), MAX_SACK_BLOCKS);
        assert_eq!(ack.header_len(PriorityOption::Short), 20 + 12 + 28);
    }

    #[test]
    fn headers_are_as_long_as_real_options_make_them() {
        let forms = [PriorityOption::Rfc6994, PriorityOption::Short, PriorityOption::Authors];
        let mut seen = 0;
        for (form, syn, stamped, blocks, priority) in forms
            .into_iter()
            .flat_map(|form| (0..32u32).map(move |i| (form, i & 1 != 0, i & 2 != 0, i >> 2 & 3, i & 16 != 0)))
        {
            if syn && (blocks > 0 || priority) {
                continue;
            }
            let mut sack = SackBlocks::default();
            for i in 0..blocks {
                sack.push(10 * i, 10 * i + 5);
            }
            let mut segment = Segment {
                flags: Flags { syn, ack: true, ..Flags::default() },
                timestamps: stamped.then_some((1, 2)),
                sack_permitted: syn,
                sack,
                priority: priority.then_some(Priority::P1),
                ..Segment::default()
            };
            segment.fit_sack(form);
            let mut bytes = [0; 40];
            let written = options::emit(&segment, SynOptions { mss: 1460, scale: 7, form }, &mut bytes);
            assert_eq!(segment.header_len(form) as usize, 20 + written, "{form:?} {segment:?}");
            // Parsing returns the same options.
            let read: Vec<_> = TcpOptions::new(&bytes[..written]).map(Result::unwrap).collect();
            let has = |option| read.contains(&option);
            assert_eq!(has(TcpOption::Mss(1460)), syn);
            assert_eq!(has(TcpOption::WindowScale(7)), syn);
            assert_eq!(has(TcpOption::SackPermitted), syn);
            assert_eq!(has(TcpOption::Timestamps { value: 1, echo: 2 }), stamped);
            let mut sack = marcato_wire::SackBlocks::new();
            for &(start, end) in segment.sack.as_slice() {
                assert!(sack.push(SackBlock { start, end }));
            }
            assert_eq!(has(TcpOption::Sack(sack)), !segment.sack.as_slice().is_empty());
            let form = match form {
                PriorityOption::Rfc6994 => CatsOption::Rfc6994,
                PriorityOption::Short => CatsOption::Short,
                PriorityOption::Authors => CatsOption::Authors,
            };
            assert_eq!(has(TcpOption::Cats { priority: Priority::P1, form }), priority);
            seen += 1;
        }
        assert_eq!(seen, 3 * 18);
    }
}
