//! Decisions made before any run.

use super::scale::Plan;
use super::{Answer, Ask};
use crate::plan::Runs;

/// Settings that the paper leaves open, with their values here.
pub(super) fn declared(_: &mut Plan) -> Ask {
    Box::new(|_: &Runs| {
        Answer::new("What was declared before any run, and what differs from the paper", TEXT, Vec::new())
    })
}

const TEXT: &str = "Two paths of 100 Mbit/s, 0.05 % random loss on the way of the data and none on that of the \
    acknowledgements, and queues of 2000 packets: more than any window here, so that nothing else is lost after slow \
    start, which is over within the warm-up. The server sends, in datagrams of 1350 bytes; NewReno for each path by \
    itself, no pacing; urgent messages first (P0), beside P4 data without end; one packet handed to the engine at a \
    time. Sources are declared when the session begins, all released for the first time at the same instant.\n\n\
    The paper does not say to how much a loss reduces a window. From its own Table I and arithmetic, and before any \
    run, the factor 0.7 was chosen to be checked; 0.5 is shown beside it, from shorter runs, and of its growth \
    nothing is claimed. The bands, too, are older than the first run: Table I within 15 %; the median completion \
    time of messages for which room is held within the one-way delay, their packets at the link's rate, and 2 ms.\n\n\
    The paper ran MP-QUIC over machines of Emulab. Here another engine, noq, runs unmodified in virtual time, with \
    RFC 9002's loss detection instead of early retransmit, a new stream for each message instead of streams that are \
    used again once acknowledged, and hosts that take no time. A duplicate whose twin is complete is not waited for. \
    Acknowledgements that carry nothing else leave on the first path that is no backup.";
