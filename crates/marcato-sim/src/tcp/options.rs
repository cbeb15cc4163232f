//! Encoding of a segment's options.

use marcato_wire::{CatsOption, MAX_OPTIONS, SackBlock, SackBlocks, TcpOption, emit_options};

use super::PriorityOption;
use super::connection::SynOptions;
use super::segment::Segment;

/// Greatest number of options in a segment; each byte of padding counts as one.
const MOST: usize = 12;

/// Writes the options of `segment`, whose sender's SYN has the options `syn`, in the order and with
/// the padding of Linux. Returns their length in bytes.
pub(crate) fn emit(segment: &Segment, syn: SynOptions, out: &mut [u8; MAX_OPTIONS]) -> usize {
    let mut options = [TcpOption::Nop; MOST];
    let mut count = 0;
    let mut push = |option| {
        options[count] = option;
        count += 1;
    };
    if segment.flags.syn {
        push(TcpOption::Mss(syn.mss));
    }
    if let Some((value, echo)) = segment.timestamps {
        // A SYN has SACK permitted where other segments have two no-operations.
        if segment.flags.syn && segment.sack_permitted {
            push(TcpOption::SackPermitted);
        } else {
            push(TcpOption::Nop);
            push(TcpOption::Nop);
        }
        push(TcpOption::Timestamps { value, echo });
    } else if segment.flags.syn && segment.sack_permitted {
        push(TcpOption::Nop);
        push(TcpOption::Nop);
        push(TcpOption::SackPermitted);
    }
    if segment.flags.syn {
        push(TcpOption::Nop);
        push(TcpOption::WindowScale(syn.scale));
    }
    if !segment.sack.as_slice().is_empty() {
        let mut blocks = SackBlocks::new();
        for &(start, end) in segment.sack.as_slice() {
            blocks.push(SackBlock { start, end });
        }
        push(TcpOption::Nop);
        push(TcpOption::Nop);
        push(TcpOption::Sack(blocks));
    }
    if let Some(priority) = segment.priority {
        let form = match syn.form {
            PriorityOption::Rfc6994 => CatsOption::Rfc6994,
            PriorityOption::Short => CatsOption::Short,
            PriorityOption::Authors => CatsOption::Authors,
        };
        push(TcpOption::Cats { priority, form });
    }
    // `Segment::fit_sack` has removed SACK blocks until the options fit.
    emit_options(&options[..count], out).unwrap_or(0)
}
