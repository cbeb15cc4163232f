//! TCP options: reading those that anybody may have sent, and writing our own.
//!
//! References: RFC 9293 §3.1 and §3.2 (the list, EOL, NOP, MSS), RFC 7323 §2 and §3 (window scale,
//! timestamps), RFC 2018 §2 and §3 (SACK), RFC 6994 §3 (experimental kinds and their ExID), RFC
//! 4727 (kinds 253 and 254), CATS §II-D2 (the priority option).

use core::fmt;

use marcato_units::{Bytes, Priority};

/// Number of bytes for options in a TCP header: a data offset of 15 words less the fixed 20 bytes.
/// RFC 9293 §3.1.
pub const MAX_OPTIONS: usize = 40;

/// ExID of Marcato's experiment in options of kind 254 (RFC 6994 §3): "CATS" in the letters of
/// hexadecimal.
///
/// The value was chosen for Marcato and is **not registered** with IANA. RFC 6994 §3.1 requires
/// registration before deployment beyond one's own networks.
pub const CATS_EXID: u16 = 0xca75;

const EOL: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const EXPERIMENT_1: u8 = 253;
const EXPERIMENT_2: u8 = 254;

/// Block of data that arrived, from `start` (included) to `end` (excluded), in sequence numbers.
/// RFC 2018 §3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SackBlock {
    /// First sequence number of the block.
    pub start: u32,
    /// Sequence number after the block's last.
    pub end: u32,
}

/// Up to four [`SackBlock`]s, as more do not fit into a header. RFC 2018 §3.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SackBlocks {
    blocks: [SackBlock; Self::MAX],
    len: u8,
}

impl SackBlocks {
    /// Largest number of blocks that fit.
    pub const MAX: usize = 4;

    /// No blocks.
    pub const fn new() -> Self {
        Self { blocks: [SackBlock { start: 0, end: 0 }; Self::MAX], len: 0 }
    }

    /// Adds `block` after the others, and returns whether there was room.
    pub fn push(&mut self, block: SackBlock) -> bool {
        let Some(free) = self.blocks.get_mut(usize::from(self.len)) else { return false };
        *free = block;
        self.len += 1;
        true
    }

    /// Blocks in their order on the wire.
    pub fn as_slice(&self) -> &[SackBlock] {
        self.blocks.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// Form of the option that carries CATS's priority. CATS §II-D2.
///
/// In all forms the priority is one byte: 0 for [`Priority::P0`] to 4 for [`Priority::P4`]. Other
/// values are reserved, and [malformed](TcpOptionError::Priority) today.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CatsOption {
    /// Kind 254, length 5: [`CATS_EXID`], then the priority.
    ///
    /// This is the default: RFC 6994 §3 requires an ExID in every experimental option, and Linux
    /// lets BPF write no other form.
    #[default]
    Rfc6994,
    /// Kind 254, length 3: the priority only, as in CATS §II-D2.
    ///
    /// Without an ExID it cannot be distinguished from another experiment's option.
    Short,
    /// Kind 253, length 4: the priority, then a zero byte, as in the authors' simulation code.
    Authors,
}

/// TCP option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TcpOption<'a> {
    /// Kind 1: padding between options. RFC 9293 §3.2.
    Nop,
    /// Kind 2: largest segment that the sender of this SYN can receive. RFC 9293 §3.2.
    Mss(u16),
    /// Kind 3: number of bits by which windows are shifted, as sent. A receiver takes more than 14
    /// as 14. RFC 7323 §2.3.
    WindowScale(u8),
    /// Kind 4: the sender of this SYN understands SACK. RFC 2018 §2.
    SackPermitted,
    /// Kind 5: blocks that arrived out of order. RFC 2018 §3.
    Sack(SackBlocks),
    /// Kind 8: clocks of both ends. RFC 7323 §3.2.
    Timestamps {
        /// TSval: clock of the sender.
        value: u32,
        /// TSecr: TSval that it echoes.
        echo: u32,
    },
    /// Kinds 254 and 253: priority of the segment.
    Cats {
        /// Priority of the segment's data.
        priority: Priority,
        /// Form of the option.
        form: CatsOption,
    },
    /// Any other option, another experiment's included.
    Unknown {
        /// Kind of the option.
        kind: u8,
        /// Bytes after its length.
        data: &'a [u8],
    },
}

/// Error returned for malformed options. Offsets count from the first option byte, and are those of
/// an option's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpOptionError {
    /// The bytes exceed the room of any header. Nothing was read.
    #[error(
        "{len} bytes of options: a TCP header has room for 40, pass only those that its data offset covers"
    )]
    TooLong {
        /// Number of given bytes.
        len: usize,
    },
    /// The header ends before the option's length. Nothing after it can be read.
    #[error("option of kind {kind} at byte {at} has no length: the header ends")]
    NoLength {
        /// Kind of the option.
        kind: u8,
        /// Offset of the option.
        at: usize,
    },
    /// The length is 0 or 1, but it counts kind and length itself. Nothing after it can be read.
    #[error("option of kind {kind} at byte {at} has length {len}: it must be 2 or more")]
    LengthTooSmall {
        /// Kind of the option.
        kind: u8,
        /// Offset of the option.
        at: usize,
        /// Length that the option gives.
        len: u8,
    },
    /// The option is longer than the header. Nothing after it can be read.
    #[error("option of kind {kind} at byte {at} has length {len}: only {left} bytes are left")]
    Truncated {
        /// Kind of the option.
        kind: u8,
        /// Offset of the option.
        at: usize,
        /// Length that the option gives.
        len: u8,
        /// Number of bytes from its kind on.
        left: usize,
    },
    /// An option of this kind has another length. The options after it can be read.
    #[error("option of kind {kind} at byte {at} has length {len}, which this kind never has")]
    WrongLength {
        /// Kind of the option.
        kind: u8,
        /// Offset of the option.
        at: usize,
        /// Length that the option gives.
        len: u8,
    },
    /// A CATS option's priority is none of the five. The options after it can be read.
    #[error("CATS option at byte {at} has priority {value}: it must be 0 to 4")]
    Priority {
        /// Offset of the option.
        at: usize,
        /// Value instead of a priority.
        value: u8,
    },
}

/// Iterator over the options in a TCP header.
///
/// It ends at EOL, at the end of the bytes, or after the first error that hides the beginning of
/// the next option. It never panics, and takes at most as many steps as there are bytes.
///
/// ```
/// use marcato_wire::{TcpOption, TcpOptionError, TcpOptions};
/// let mut options = TcpOptions::new(&[1, 2, 4, 0x05, 0xb4, 8, 9]);
/// assert_eq!(options.next(), Some(Ok(TcpOption::Nop)));
/// assert_eq!(options.next(), Some(Ok(TcpOption::Mss(1460))));
/// assert_eq!(options.next(), Some(Err(TcpOptionError::Truncated { kind: 8, at: 5, len: 9, left: 2 })));
/// assert_eq!(options.next(), None);
/// ```
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> TcpOptions<'a> {
    /// Reads `bytes`, which are all bytes of a TCP header after the first 20.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Ends the iteration with `error`.
    fn stop(&mut self, error: TcpOptionError) -> Option<Result<TcpOption<'a>, TcpOptionError>> {
        self.at = self.bytes.len();
        Some(Err(error))
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, TcpOptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        if at == 0 && self.bytes.len() > MAX_OPTIONS {
            return self.stop(TcpOptionError::TooLong { len: self.bytes.len() });
        }
        let rest = self.bytes.get(at..)?;
        let (&kind, after_kind) = rest.split_first()?;
        match kind {
            EOL => {
                self.at = self.bytes.len();
                return None;
            }
            NOP => {
                self.at += 1;
                return Some(Ok(TcpOption::Nop));
            }
            _ => {}
        }
        let Some(&len) = after_kind.first() else {
            return self.stop(TcpOptionError::NoLength { kind, at });
        };
        if len < 2 {
            return self.stop(TcpOptionError::LengthTooSmall { kind, at, len });
        }
        let Some(data) = rest.get(2..usize::from(len)) else {
            return self.stop(TcpOptionError::Truncated { kind, at, len, left: rest.len() });
        };
        self.at += usize::from(len);
        Some(parse(kind, data).map_err(|malformed| match malformed {
            Malformed::Length => TcpOptionError::WrongLength { kind, at, len },
            Malformed::Priority(value) => TcpOptionError::Priority { at, value },
        }))
    }
}

impl core::iter::FusedIterator for TcpOptions<'_> {}

/// Defect of an option whose extent is known.
enum Malformed {
    Length,
    Priority(u8),
}

/// Option of `kind` with `data` after its length.
fn parse(kind: u8, data: &[u8]) -> Result<TcpOption<'_>, Malformed> {
    let cats = |value: u8, form| {
        let priority = Priority::from_index(usize::from(value)).ok_or(Malformed::Priority(value))?;
        Ok(TcpOption::Cats { priority, form })
    };
    let [exid_high, exid_low] = CATS_EXID.to_be_bytes();
    match (kind, data) {
        (MSS, &[high, low]) => Ok(TcpOption::Mss(u16::from_be_bytes([high, low]))),
        (WINDOW_SCALE, &[shift]) => Ok(TcpOption::WindowScale(shift)),
        (SACK_PERMITTED, []) => Ok(TcpOption::SackPermitted),
        (SACK, data) => sack(data).map(TcpOption::Sack).ok_or(Malformed::Length),
        (TIMESTAMPS, &[v0, v1, v2, v3, e0, e1, e2, e3]) => Ok(TcpOption::Timestamps {
            value: u32::from_be_bytes([v0, v1, v2, v3]),
            echo: u32::from_be_bytes([e0, e1, e2, e3]),
        }),
        (MSS | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMPS, _) => Err(Malformed::Length),
        // RFC 6994 §3: an option that begins with the ExID is ours, and must then have our length.
        (EXPERIMENT_2, &[high, low, ref rest @ ..]) if [high, low] == [exid_high, exid_low] => match *rest {
            [priority] => cats(priority, CatsOption::Rfc6994),
            _ => Err(Malformed::Length),
        },
        (EXPERIMENT_2, &[priority]) => cats(priority, CatsOption::Short),
        // Two bytes are also an ExID without data (RFC 6994 §3), whose first byte may be small. So
        // only the exact form of the authors counts, and any other is another experiment's.
        (EXPERIMENT_1, &[priority, 0]) if usize::from(priority) < Priority::COUNT => {
            cats(priority, CatsOption::Authors)
        }
        (kind, data) => Ok(TcpOption::Unknown { kind, data }),
    }
}

/// One to four blocks in `data`. RFC 2018 §3: 8 bytes each, and no option without any.
fn sack(data: &[u8]) -> Option<SackBlocks> {
    let (blocks, odd) = data.as_chunks::<8>();
    if blocks.is_empty() || !odd.is_empty() {
        return None;
    }
    let mut sack = SackBlocks::new();
    for &[s0, s1, s2, s3, e0, e1, e2, e3] in blocks {
        let block = SackBlock {
            start: u32::from_be_bytes([s0, s1, s2, s3]),
            end: u32::from_be_bytes([e0, e1, e2, e3]),
        };
        if !sack.push(block) {
            return None;
        }
    }
    Some(sack)
}

/// Error returned for options that cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The options exceed the header, or the buffer.
    #[error("options take {needed} bytes but there is room for {room}: omit some, SACK blocks first")]
    NoRoom {
        /// Number of bytes that they take, padding included.
        needed: usize,
        /// Number of bytes that the header or the buffer has for them.
        room: usize,
    },
    /// The SACK option has no blocks, and so no meaning. RFC 2018 §3.
    #[error("a SACK option without blocks is empty: omit it")]
    EmptySack,
    /// The option looks like one that this crate knows, or has no length on the wire, so that it
    /// would be read back as another option.
    #[error(
        "an unknown option of kind {kind} with these {len} bytes would be parsed as a known one: use that variant"
    )]
    NotUnknown {
        /// Kind of the option.
        kind: u8,
        /// Number of its data bytes.
        len: usize,
    },
}

impl TcpOption<'_> {
    /// Number of bytes of the option, without padding.
    pub const fn encoded_len(&self) -> usize {
        match self {
            Self::Nop => 1,
            Self::Mss(_) => 4,
            Self::WindowScale(_) => 3,
            Self::SackPermitted => 2,
            Self::Sack(blocks) => 2 + 8 * blocks.len as usize,
            Self::Timestamps { .. } => 10,
            Self::Cats { form, .. } => match form {
                CatsOption::Rfc6994 => 5,
                CatsOption::Short => 3,
                CatsOption::Authors => 4,
            },
            Self::Unknown { data, .. } => data.len().saturating_add(2),
        }
    }

    /// Checks that the option would be read back the same.
    fn check(&self) -> Result<(), EmitError> {
        match *self {
            Self::Sack(blocks) if blocks.as_slice().is_empty() => Err(EmitError::EmptySack),
            Self::Unknown { kind, data } => {
                let unknown =
                    !matches!(kind, EOL | NOP) && matches!(parse(kind, data), Ok(TcpOption::Unknown { .. }));
                if unknown { Ok(()) } else { Err(EmitError::NotUnknown { kind, len: data.len() }) }
            }
            _ => Ok(()),
        }
    }

    /// Writes the option's bytes to `out`, which has exactly [`encoded_len`](Self::encoded_len)
    /// bytes.
    fn write(&self, out: &mut [u8]) {
        let [exid_high, exid_low] = CATS_EXID.to_be_bytes();
        match *self {
            Self::Nop => out.copy_from_slice(&[NOP]),
            Self::Mss(mss) => {
                let [high, low] = mss.to_be_bytes();
                out.copy_from_slice(&[MSS, 4, high, low]);
            }
            Self::WindowScale(shift) => out.copy_from_slice(&[WINDOW_SCALE, 3, shift]),
            Self::SackPermitted => out.copy_from_slice(&[SACK_PERMITTED, 2]),
            Self::Sack(sack) => {
                let (head, blocks) = out.split_at_mut(2);
                head.copy_from_slice(&[SACK, 2 + 8 * sack.len]);
                for (out, block) in blocks.chunks_exact_mut(8).zip(sack.as_slice()) {
                    out[..4].copy_from_slice(&block.start.to_be_bytes());
                    out[4..].copy_from_slice(&block.end.to_be_bytes());
                }
            }
            Self::Timestamps { value, echo } => {
                out[..2].copy_from_slice(&[TIMESTAMPS, 10]);
                out[2..6].copy_from_slice(&value.to_be_bytes());
                out[6..].copy_from_slice(&echo.to_be_bytes());
            }
            Self::Cats { priority, form } => {
                #[allow(clippy::cast_possible_truncation, reason = "an index is below 5")]
                let priority = priority.index() as u8;
                match form {
                    CatsOption::Rfc6994 => {
                        out.copy_from_slice(&[EXPERIMENT_2, 5, exid_high, exid_low, priority]);
                    }
                    CatsOption::Short => out.copy_from_slice(&[EXPERIMENT_2, 3, priority]),
                    CatsOption::Authors => out.copy_from_slice(&[EXPERIMENT_1, 4, priority, 0]),
                }
            }
            Self::Unknown { kind, data } => {
                #[allow(clippy::cast_possible_truncation, reason = "at most 40 bytes")]
                let len = out.len() as u8;
                out[..2].copy_from_slice(&[kind, len]);
                out[2..].copy_from_slice(data);
            }
        }
    }
}

/// Number of bytes that `options` add to a TCP header: together, padded to whole 32-bit words. RFC
/// 9293 §3.1.
///
/// ```
/// use marcato_units::{Bytes, Priority};
/// use marcato_wire::{CatsOption, TcpOption, options_len};
/// let timestamps = TcpOption::Timestamps { value: 7, echo: 6 };
/// let cats = |form| TcpOption::Cats { priority: Priority::P0, form };
/// assert_eq!(options_len(&[timestamps]), Bytes::new(12));
/// // After timestamps, which leave two bytes of padding, every form of the priority adds a word ...
/// assert_eq!(options_len(&[timestamps, cats(CatsOption::Short)]), Bytes::new(16));
/// assert_eq!(options_len(&[timestamps, cats(CatsOption::Rfc6994)]), Bytes::new(16));
/// // ... but Linux puts two NOPs before timestamps, and then the longest form adds two.
/// let aligned = [TcpOption::Nop, TcpOption::Nop, timestamps, cats(CatsOption::Rfc6994)];
/// assert_eq!(options_len(&aligned), Bytes::new(20));
/// ```
pub fn options_len(options: &[TcpOption<'_>]) -> Bytes {
    Bytes::new(padded(options) as u64)
}

/// [`options_len`] as an index.
fn padded(options: &[TcpOption<'_>]) -> usize {
    options
        .iter()
        .fold(0usize, |sum, option| sum.saturating_add(option.encoded_len()))
        .checked_next_multiple_of(4)
        .unwrap_or(usize::MAX)
}

/// Writes `options` to the start of `out`, padded to whole 32-bit words, and returns the number of
/// bytes: [`options_len`].
///
/// The options stand in their order and without gaps. The padding is EOL and zeros (RFC 9293 §3.2).
/// Nothing is written on error.
///
/// ```
/// use marcato_wire::{TcpOption, emit_options};
/// let mut header = [0xff; 8];
/// let written = emit_options(&[TcpOption::Mss(1460), TcpOption::SackPermitted], &mut header)?;
/// assert_eq!(header[..written], [2, 4, 0x05, 0xb4, 4, 2, 0, 0]);
/// # Ok::<(), marcato_wire::EmitError>(())
/// ```
///
/// # Errors
/// [`EmitError`] if they do not fit into `out` or into a TCP header, or if one would be read back
/// as another.
pub fn emit_options(options: &[TcpOption<'_>], out: &mut [u8]) -> Result<usize, EmitError> {
    let needed = padded(options);
    let room = out.len().min(MAX_OPTIONS);
    if needed > room {
        return Err(EmitError::NoRoom { needed, room });
    }
    options.iter().try_for_each(TcpOption::check)?;
    let (mut rest, _) = out.split_at_mut(needed);
    for option in options {
        let (own, after) = rest.split_at_mut(option.encoded_len());
        option.write(own);
        rest = after;
    }
    rest.fill(EOL);
    Ok(needed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn read(bytes: &[u8]) -> Vec<Result<TcpOption<'_>, TcpOptionError>> {
        TcpOptions::new(bytes).collect()
    }

    fn cats(priority: Priority, form: CatsOption) -> TcpOption<'static> {
        TcpOption::Cats { priority, form }
    }

    #[test]
    fn a_syn_of_linux_is_read() {
        let bytes = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7];
        let options = [
            TcpOption::Mss(1460),
            TcpOption::SackPermitted,
            TcpOption::Timestamps { value: 9, echo: 0 },
            TcpOption::Nop,
            TcpOption::WindowScale(7),
        ];
        assert_eq!(read(&bytes), options.map(Ok));
        let mut out = [0; 20];
        assert_eq!(emit_options(&options, &mut out), Ok(20));
        assert_eq!(out, bytes);
    }

    #[test]
    fn the_forms_of_the_cats_option_have_their_documented_bytes() {
        let [high, low] = CATS_EXID.to_be_bytes();
        let forms: [(CatsOption, &[u8]); 3] = [
            (CatsOption::Rfc6994, &[254, 5, high, low, 3, 0, 0, 0]),
            (CatsOption::Short, &[254, 3, 3, 0]),
            (CatsOption::Authors, &[253, 4, 3, 0]),
        ];
        for (form, bytes) in forms {
            let mut out = [0xff; 8];
            let written = emit_options(&[cats(Priority::P3, form)], &mut out).unwrap();
            assert_eq!(&out[..written], bytes);
            assert_eq!(read(bytes), [Ok(cats(Priority::P3, form))]);
        }
        assert_eq!(CatsOption::default(), CatsOption::Rfc6994);
    }

    #[test]
    fn options_of_other_experiments_stay_unknown() {
        // TCP Fast Open's ExID, the authors' kind with something else in it, and an ExID that
        // begins like a priority.
        for bytes in
            [&[254, 4, 0xf9, 0x89][..], &[253, 4, 1, 1], &[253, 4, 5, 0], &[253, 3, 1], &[254, 4, 0, 0]]
        {
            let (kind, data) = (bytes[0], &bytes[2..]);
            assert_eq!(read(bytes), [Ok(TcpOption::Unknown { kind, data })]);
        }
    }

    #[test]
    fn malformed_options_are_named_by_place_and_reason() {
        use TcpOptionError as E;
        let [high, low] = CATS_EXID.to_be_bytes();
        let cases: [(&[u8], E); 11] = [
            (&[2], E::NoLength { kind: 2, at: 0 }),
            (&[1, 1, 77], E::NoLength { kind: 77, at: 2 }),
            (&[8, 0], E::LengthTooSmall { kind: 8, at: 0, len: 0 }),
            (&[99, 1, 0], E::LengthTooSmall { kind: 99, at: 0, len: 1 }),
            (&[2, 4, 5], E::Truncated { kind: 2, at: 0, len: 4, left: 3 }),
            (&[2, 3, 5], E::WrongLength { kind: 2, at: 0, len: 3 }),
            (&[5, 2], E::WrongLength { kind: 5, at: 0, len: 2 }),
            (&[5, 9, 0, 0, 0, 0, 0, 0, 0], E::WrongLength { kind: 5, at: 0, len: 9 }),
            (&[254, 3, 5], E::Priority { at: 0, value: 5 }),
            (&[1, 254, 5, high, low, 255], E::Priority { at: 1, value: 255 }),
            (&[254, 4, high, low], E::WrongLength { kind: 254, at: 0, len: 4 }),
        ];
        for (bytes, error) in cases {
            assert_eq!(read(bytes).last(), Some(&Err(error)), "{bytes:?}");
        }
        assert_eq!(read(&[1; 41]), [Err(E::TooLong { len: 41 })]);
        assert_eq!(
            std::format!("{}", E::Truncated { kind: 2, at: 0, len: 4, left: 3 }),
            "option of kind 2 at byte 0 has length 4: only 3 bytes are left"
        );
    }

    #[test]
    fn a_malformed_option_does_not_hide_the_next() {
        let read = read(&[254, 3, 9, 3, 3, 7]);
        assert_eq!(read, [Err(TcpOptionError::Priority { at: 0, value: 9 }), Ok(TcpOption::WindowScale(7))]);
    }

    #[test]
    fn nothing_is_read_after_the_end_of_the_list() {
        assert_eq!(read(&[1, 0, 2, 4, 5, 0xb4]), [Ok(TcpOption::Nop)]);
    }

    #[test]
    fn four_sack_blocks_fit_and_with_timestamps_three() {
        let mut blocks = SackBlocks::new();
        for start in 0..4 {
            assert!(blocks.push(SackBlock { start, end: start + 1 }));
        }
        assert!(!blocks.push(SackBlock::default()));
        let mut out = [0; MAX_OPTIONS];
        assert_eq!(emit_options(&[TcpOption::Sack(blocks)], &mut out), Ok(36));
        let timestamps = TcpOption::Timestamps { value: 0, echo: 0 };
        let room = Err(EmitError::NoRoom { needed: 44, room: 40 });
        assert_eq!(emit_options(&[timestamps, TcpOption::Sack(blocks)], &mut out), room);
        let mut three = SackBlocks::new();
        blocks.as_slice()[..3].iter().for_each(|block| assert!(three.push(*block)));
        assert_eq!(emit_options(&[timestamps, TcpOption::Sack(three)], &mut out), Ok(36));
    }

    #[test]
    fn an_option_that_would_be_read_as_another_is_refused() {
        let mut out = [0xff; MAX_OPTIONS];
        let unknown = |kind, data| TcpOption::Unknown { kind, data };
        for (kind, data) in [(0, &[][..]), (1, &[]), (2, &[0, 0]), (2, &[0]), (254, &[1]), (253, &[1, 0])] {
            let error = EmitError::NotUnknown { kind, len: data.len() };
            assert_eq!(emit_options(&[unknown(kind, data)], &mut out), Err(error));
        }
        assert_eq!(emit_options(&[TcpOption::Sack(SackBlocks::new())], &mut out), Err(EmitError::EmptySack));
        assert_eq!(out, [0xff; MAX_OPTIONS], "nothing is written on error");
        let huge = [0; 300];
        assert!(matches!(emit_options(&[unknown(99, &huge)], &mut out), Err(EmitError::NoRoom { .. })));
    }

    fn option() -> impl Strategy<Value = (TcpOption<'static>, Vec<u8>)> {
        let priority = (0usize..5).prop_map(|index| Priority::from_index(index).unwrap());
        let form = prop_oneof![Just(CatsOption::Rfc6994), Just(CatsOption::Short), Just(CatsOption::Authors)];
        let blocks = prop::collection::vec(any::<(u32, u32)>(), 1..=4).prop_map(|blocks| {
            let mut sack = SackBlocks::new();
            blocks.into_iter().for_each(|(start, end)| assert!(sack.push(SackBlock { start, end })));
            sack
        });
        let known = prop_oneof![
            Just(TcpOption::Nop),
            any::<u16>().prop_map(TcpOption::Mss),
            any::<u8>().prop_map(TcpOption::WindowScale),
            Just(TcpOption::SackPermitted),
            blocks.prop_map(TcpOption::Sack),
            any::<(u32, u32)>().prop_map(|(value, echo)| TcpOption::Timestamps { value, echo }),
            (priority, form).prop_map(|(priority, form)| cats(priority, form)),
        ];
        // The data of an unknown option is put in by the test, which owns it.
        let unknown = (9u8..253, prop::collection::vec(any::<u8>(), 0..12))
            .prop_map(|(kind, data)| (TcpOption::Unknown { kind, data: &[] }, data));
        prop_oneof![4 => known.prop_map(|option| (option, Vec::new())), 1 => unknown]
    }

    proptest! {
        #[test]
        fn written_options_are_read_back(parts in prop::collection::vec(option(), 0..8)) {
            let options: Vec<_> = parts.iter().map(|(option, data)| match *option {
                TcpOption::Unknown { kind, .. } => TcpOption::Unknown { kind, data },
                known => known,
            }).collect();
            let mut out = [0xff; MAX_OPTIONS];
            let needed = usize::try_from(options_len(&options).get()).unwrap();
            match emit_options(&options, &mut out) {
                Ok(written) => {
                    prop_assert_eq!(written, needed);
                    prop_assert_eq!(written % 4, 0);
                    prop_assert!(out[written..].iter().all(|byte| *byte == 0xff), "wrote beyond its end");
                    let back: Result<Vec<_>, _> = TcpOptions::new(&out[..written]).collect();
                    prop_assert_eq!(back, Ok(options));
                }
                Err(error) => {
                    prop_assert!(needed > MAX_OPTIONS);
                    prop_assert_eq!(error, EmitError::NoRoom { needed, room: MAX_OPTIONS });
                }
            }
        }
    }
}
