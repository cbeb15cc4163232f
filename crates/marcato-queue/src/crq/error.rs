//! Errors of a [`CrqConfig`](super::CrqConfig).

use marcato_units::{Bytes, Rate};

use super::Class;
use crate::trap::TrapError;
use crate::{CodelError, FlowTableError, FqCodelError, LimitError};

/// Error returned for a [`CrqConfig`](super::CrqConfig) that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrqError {
    /// The rules of assessment cannot work.
    #[error(transparent)]
    Trap(#[from] TrapError),
    /// The table of flows cannot work.
    #[error(transparent)]
    Flows(#[from] FlowTableError),
    /// A queue's buffer admits nothing, or no packet of the largest size.
    #[error("the {class:?} queue: {error}")]
    Buffer {
        /// Queue with this buffer.
        class: Class,
        /// Error of the buffer's limit.
        #[source]
        error: LimitError,
    },
    /// A queue's CoDel cannot work.
    #[error("the {class:?} queue: {error}")]
    Codel {
        /// Queue with this CoDel.
        class: Class,
        /// Error of CoDel.
        #[source]
        error: CodelError,
    },
    /// A queue's FQ-CoDel cannot work.
    #[error("the {class:?} queue: {error}")]
    FqCodel {
        /// Queue with this FQ-CoDel.
        class: Class,
        /// Error of FQ-CoDel.
        #[source]
        error: FqCodelError,
    },
    /// The place for young flows has nothing of the link, or leaves nothing to others.
    #[error("{0} thousandths of the link for young flows: set 1 to 999, such as 750")]
    YoungMost(u16),
    /// Each queue of a split link has its part alone, and none is left for young flows.
    #[error("a split link has no place for young flows: share it by weights, or leave `young` out")]
    YoungSplit,
    /// The allowance of a young flow is 0, or too large to be counted.
    #[error("an allowance of {0} for young flows: set 1 B to 1 GiB, such as 500 kB")]
    Allowance(Bytes),
    /// A flow would never regain its allowance.
    #[error("at {0} a flow never regains its allowance: set 8 kbit/s or more, such as 128 kbit/s")]
    Regain(Rate),
    /// The number of accounts of young flows is 0 or too large.
    #[error("{0} accounts of young flows are not possible: use 1 to 16777216, such as 16384")]
    Accounts(u32),
    /// A queue has no share.
    #[error("the {0:?} queue has a share of 0 and would never send: give it 1 or more")]
    ZeroShare(Class),
    /// A queue's part of the link is 0 bit/s, so that it has no BDP and cannot be split.
    #[error("the {0:?} queue's share of the rate is 0 bit/s: set the link's rate")]
    ZeroRate(Class),
    /// A buffer by fill rate measures over no time, or its least exceeds its most.
    #[error("the {0:?} queue: a buffer by fill rate needs a span, such as 100 ms, and least <= most")]
    FillRate(Class),
    /// A buffer by fill rate may be too small for a packet after an idle span.
    #[error(
        "the {class:?} queue: after an idle span a least buffer of {least} holds no packet of {mtu}: set `least` to that or more"
    )]
    FillRateLeast {
        /// Queue with this buffer.
        class: Class,
        /// Configured least room.
        least: Bytes,
        /// Size of the largest packet.
        mtu: Bytes,
    },
    /// The standard queue's guaranteed share leaves no priority to others.
    #[error(
        "a least share of {0} thousandths leaves responsive flows nothing: set it below 1000, such as 50"
    )]
    Least(u16),
    /// A split queue may never send a packet.
    #[error("a burst of {burst} is less than a packet of {mtu}: allow at least that")]
    Burst {
        /// Configured burst.
        burst: Bytes,
        /// Size of the largest packet.
        mtu: Bytes,
    },
}
