//! Codecs: encoders that take and give as much as there is room for.

use std::fmt;

use brotli::enc::encode::{BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct};
use brotli::enc::{BrotliAlloc, StandardAlloc};
use flate2::{Compress, FlushCompress, Status};
use marcato_units::Bytes;
use thiserror::Error;
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use super::config::CompressionError;
use crate::encoding::Coding;

/// Largest window, as a power of two. RFC 9659 §3 lets clients refuse more than 8 MiB of Zstandard; a smaller one
/// bounds the memory of each response.
const MAX_WINDOW: u32 = 18;
/// Largest window of Brotli, whose encoder needs several times as much.
const MAX_BROTLI_WINDOW: u32 = 17;
/// Smallest window of Zstandard and of Brotli (RFC 7932 §9.1), as a power of two.
const MIN_WINDOW: u32 = 10;
/// Largest table of matches of Zstandard, as a power of two.
const MAX_TABLE: u32 = 16;

/// Coding and its level.
///
/// Levels end where a step would keep its thread for more than some milliseconds, or an encoder needs more than
/// 4 MiB. Precompressed files have the slower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Zstandard (RFC 8878), of level 1 to 9.
    Zstd(u8),
    /// Brotli (RFC 7932), of level 0 to 6.
    Brotli(u8),
    /// Gzip (RFC 1952), of level 1 to 9.
    Gzip(u8),
}

impl Codec {
    /// Zstandard of its default level.
    pub const ZSTD: Self = Self::Zstd(3);
    /// Brotli of the level that takes about as long as the others.
    pub const BROTLI: Self = Self::Brotli(4);
    /// Gzip of its default level.
    pub const GZIP: Self = Self::Gzip(6);

    /// Name in `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd(_) => "zstd",
            Self::Brotli(_) => "br",
            Self::Gzip(_) => "gzip",
        }
    }

    /// Lowest and highest level.
    pub const fn levels(self) -> (u8, u8) {
        match self {
            Self::Zstd(_) | Self::Gzip(_) => (1, 9),
            Self::Brotli(_) => (0, 6),
        }
    }

    pub(super) const fn coding(self) -> Coding {
        match self {
            Self::Zstd(_) => Coding::Zstd,
            Self::Brotli(_) => Coding::Brotli,
            Self::Gzip(_) => Coding::Gzip,
        }
    }

    /// Level.
    pub const fn level(self) -> u8 {
        match self {
            Self::Zstd(level) | Self::Brotli(level) | Self::Gzip(level) => level,
        }
    }

    pub(super) fn check(self) -> Result<(), CompressionError> {
        let ((least, most), level) = (self.levels(), self.level());
        if (least..=most).contains(&level) {
            return Ok(());
        }
        Err(CompressionError::Level { coding: self.name(), level, least, most })
    }

    /// Bound of the memory of an encoder.
    pub(super) const fn memory(self) -> Bytes {
        match self {
            Self::Zstd(_) => Bytes::new(1792 << 10),
            // Tables grow with the level.
            Self::Brotli(..=3) => Bytes::new(1536 << 10),
            Self::Brotli(4) => Bytes::new(2560 << 10),
            Self::Brotli(_) => Bytes::new(4 << 20),
            Self::Gzip(_) => Bytes::new(320 << 10),
        }
    }

    /// Creates an encoder for content of a length, if that is known.
    ///
    /// # Errors
    /// [`CodecError`] if memory is lacking.
    pub(super) fn encoder(self, len: Option<u64>) -> Result<Encoder, CodecError> {
        // Smaller content needs less memory. Content of unknown length gets the most.
        let window = len.map_or(MAX_WINDOW, |len| u64::BITS - len.saturating_sub(1).leading_zeros());
        let window = window.clamp(MIN_WINDOW, MAX_WINDOW);
        let kind = match self {
            Self::Zstd(level) => {
                let mut context = CCtx::try_create().ok_or(CodecError)?;
                let table = window.min(MAX_TABLE);
                for parameter in [
                    CParameter::CompressionLevel(level.into()),
                    CParameter::WindowLog(window),
                    CParameter::HashLog(table),
                    CParameter::ChainLog(table),
                ] {
                    context.set_parameter(parameter).map_err(|_| CodecError)?;
                }
                Kind::Zstd(context)
            }
            Self::Brotli(level) => {
                let mut state = Box::new(BrotliEncoderStateStruct::new(StandardAlloc::default()));
                prepare_brotli(&mut state, level, len, window.min(MAX_BROTLI_WINDOW));
                Kind::Brotli(state)
            }
            Self::Gzip(level) => Kind::Gzip(Compress::new_gzip(flate2::Compression::new(level.into()), 15)),
        };
        Ok(Encoder(kind))
    }
}

/// Error of an encoder: its memory is lacking, or it contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the encoder of a compressed response failed: look at the memory of the process")]
pub(super) struct CodecError;

/// Encoder of a response.
pub(super) struct Encoder(Kind);

enum Kind {
    Zstd(CCtx<'static>),
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Gzip(Compress),
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Zstd(_) => "Zstd",
            Kind::Brotli(_) => "Brotli",
            Kind::Gzip(_) => "Gzip",
        })
    }
}

/// Purpose of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// More content follows.
    Process,
    /// A decoder is to get all content so far.
    Flush,
    /// The content is over.
    Finish,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes of input that were taken.
    pub(super) read: usize,
    /// Bytes of output that were written.
    pub(super) wrote: usize,
    /// True if the purpose is achieved. Otherwise another step is needed, with more room or the rest of the input.
    pub(super) done: bool,
}

impl Encoder {
    /// Takes input and writes output, as far as there is room.
    ///
    /// # Errors
    /// [`CodecError`] if the encoder fails. It must not be used after that.
    pub(super) fn step(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        purpose: Purpose,
    ) -> Result<Step, CodecError> {
        match &mut self.0 {
            Kind::Zstd(context) => zstd(context, input, output, purpose),
            Kind::Brotli(state) => brotli(state, input, output, purpose),
            Kind::Gzip(compress) => gzip(compress, input, output, purpose),
        }
    }
}

fn zstd(
    context: &mut CCtx<'static>,
    input: &[u8],
    output: &mut [u8],
    purpose: Purpose,
) -> Result<Step, CodecError> {
    let (mut from, mut into) = (InBuffer::around(input), OutBuffer::around(output));
    let directive = match purpose {
        Purpose::Process => ZSTD_EndDirective::ZSTD_e_continue,
        Purpose::Flush => ZSTD_EndDirective::ZSTD_e_flush,
        Purpose::Finish => ZSTD_EndDirective::ZSTD_e_end,
    };
    let left = context.compress_stream2(&mut into, &mut from, directive).map_err(|_| CodecError)?;
    let (read, wrote) = (from.pos(), into.pos());
    // What is left is an estimate while more content follows.
    let done = read == input.len() && (purpose == Purpose::Process || left == 0);
    Ok(Step { read, wrote, done })
}

/// Sets the parameters of an encoder.
fn prepare_brotli<A: BrotliAlloc>(
    state: &mut BrotliEncoderStateStruct<A>,
    level: u8,
    len: Option<u64>,
    window: u32,
) {
    let size = len.and_then(|len| u32::try_from(len).ok()).unwrap_or(0);
    for (parameter, value) in [
        (BrotliEncoderParameter::BROTLI_PARAM_QUALITY, level.into()),
        (BrotliEncoderParameter::BROTLI_PARAM_LGWIN, window),
        (BrotliEncoderParameter::BROTLI_PARAM_SIZE_HINT, size),
    ] {
        state.set_parameter(parameter, value);
    }
}

fn brotli<A: BrotliAlloc>(
    state: &mut BrotliEncoderStateStruct<A>,
    input: &[u8],
    output: &mut [u8],
    purpose: Purpose,
) -> Result<Step, CodecError> {
    let operation = match purpose {
        Purpose::Process => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
        Purpose::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
        Purpose::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
    };
    let (mut unread, mut read, mut room, mut wrote) = (input.len(), 0, output.len(), 0);
    let succeeded = state.compress_stream(
        operation,
        &mut unread,
        input,
        &mut read,
        &mut room,
        output,
        &mut wrote,
        &mut None,
        &mut |_, _, _, _| {},
    );
    if !succeeded {
        return Err(CodecError);
    }
    let done = unread == 0
        && match purpose {
            Purpose::Process | Purpose::Flush => !state.has_more_output(),
            Purpose::Finish => state.is_finished(),
        };
    Ok(Step { read, wrote, done })
}

fn gzip(
    compress: &mut Compress,
    input: &[u8],
    output: &mut [u8],
    purpose: Purpose,
) -> Result<Step, CodecError> {
    let flush = match purpose {
        Purpose::Process => FlushCompress::None,
        Purpose::Flush => FlushCompress::Sync,
        Purpose::Finish => FlushCompress::Finish,
    };
    let (read, wrote) = (compress.total_in(), compress.total_out());
    let status = compress.compress(input, output, flush).map_err(|_| CodecError)?;
    let past = |now: u64, before: u64| usize::try_from(now - before).map_err(|_| CodecError);
    let (read, wrote) = (past(compress.total_in(), read)?, past(compress.total_out(), wrote)?);
    let done = read == input.len()
        && match purpose {
            Purpose::Process => true,
            // A flush is complete once it leaves room.
            Purpose::Flush => wrote < output.len(),
            Purpose::Finish => status == Status::StreamEnd,
        };
    Ok(Step { read, wrote, done })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use brotli::{Allocator, SliceWrapper};

    /// Allocator that counts what is in use.
    #[derive(Clone, Default)]
    struct Counting(Rc<Cell<(usize, usize)>>);

    impl<T: Clone + Default> Allocator<T> for Counting {
        type AllocatedMemory = <StandardAlloc as Allocator<T>>::AllocatedMemory;

        fn alloc_cell(&mut self, len: usize) -> Self::AllocatedMemory {
            let (used, most) = self.0.get();
            let used = used + len * size_of::<T>();
            self.0.set((used, most.max(used)));
            StandardAlloc::default().alloc_cell(len)
        }

        fn free_cell(&mut self, data: Self::AllocatedMemory) {
            let (used, most) = self.0.get();
            self.0.set((used - size_of_val(data.slice()), most));
        }
    }

    impl BrotliAlloc for Counting {}

    /// Text and noise, so that each kind of table fills.
    fn content() -> Vec<u8> {
        let mut state = 1_u32;
        (0..3 << 20)
            .map(|at: u32| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let noise = state.to_be_bytes()[0];
                if at >> 16 & 1 == 0 { noise & 0x3f | 0x40 } else { noise }
            })
            .collect()
    }

    #[test]
    fn encoders_stay_within_their_bound() {
        let content = content();
        let mut output = vec![0; 1 << 16];
        for level in 1..=9 {
            let codec = Codec::Zstd(level);
            let mut encoder = codec.encoder(None).unwrap();
            let mut rest = &content[..];
            while !rest.is_empty() {
                let step = encoder.step(rest, &mut output, Purpose::Process).unwrap();
                rest = &rest[step.read..];
                let Kind::Zstd(context) = &encoder.0 else { panic!("of Zstandard") };
                let size = context.sizeof() as u64;
                assert!(size <= codec.memory().get(), "{codec:?} {size}");
            }
        }
        for level in 0..=6 {
            let codec = Codec::Brotli(level);
            let counting = Counting::default();
            let mut state = BrotliEncoderStateStruct::new(counting.clone());
            prepare_brotli(&mut state, level, None, MAX_BROTLI_WINDOW);
            let mut rest = &content[..];
            while !rest.is_empty() {
                let piece = &rest[..rest.len().min(1 << 14)];
                let step = brotli(&mut state, piece, &mut output, Purpose::Process).unwrap();
                rest = &rest[step.read..];
            }
            while !brotli(&mut state, &[], &mut output, Purpose::Finish).unwrap().done {}
            let most = counting.0.get().1 as u64;
            assert!(most <= codec.memory().get(), "{codec:?} {most}");
        }
    }
}
