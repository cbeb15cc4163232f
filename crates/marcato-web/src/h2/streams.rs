//! Open streams of a connection, and what their responses wait for.

use std::cmp::Ordering;
use std::mem;
use std::time::Duration;

use marcato_sched::exchange::{Exchange, LevelTable, Parameters};
use marcato_sched::order::StreamId;
use marcato_sched::streams::StreamMap;
use marcato_units::Bytes;
use tokio::time::Instant;

use super::refill::{Pace, Pause, Refills, Supply};
use super::stream::Stream;

/// Most bytes that a connection stages beyond what each of its responses may.
const MORE_STAGED: usize = 256 << 10;

/// Open streams of a connection, and what their responses wait for.
#[derive(Default)]
pub(super) struct Streams {
    open: StreamMap<Box<Stream>>,
    /// Responses whose stage may be filled in a moment.
    refills: Refills,
    /// Pace at which the latest response began.
    begins: Pace,
    /// Responses whose stages have more than usual, or may. The last one has the turn.
    enlarged: Vec<StreamId>,
    /// Earliest time at which a response may have stalled; `None` if none waits for credit.
    stall_at: Option<Instant>,
    /// Number of the round of grants.
    round: u64,
}

impl Streams {
    pub(super) const fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.open.get_mut(id).map(|stream| &mut **stream)
    }

    /// Stream with the least id.
    pub(super) fn first(&self) -> Option<StreamId> {
        self.open.first().map(|(id, _)| id)
    }

    /// Adds a stream. If its handler waits, it may begin in a moment, and less urgent ones then follow it.
    pub(super) fn insert(&mut self, id: StreamId, mut stream: Stream, waits_for_handler: bool) {
        if waits_for_handler {
            let now = Instant::now();
            stream.empty_since = Some(now);
            self.refills.note(id, now, self.begins);
        }
        self.open.insert(id, Box::new(stream));
    }

    pub(super) fn remove(&mut self, id: StreamId) -> Option<Box<Stream>> {
        self.refills.forget(id);
        self.open.remove(id)
    }

    /// Notes that the head of a response was sent, with content if its stage has any.
    pub(super) fn begun(&mut self, id: StreamId, has_content: bool) {
        let Some(stream) = self.open.get_mut(id) else { return };
        let now = Instant::now();
        if let Some(since) = stream.empty_since.take() {
            self.begins = Pace::of(now - since);
        }
        if !has_content {
            // What follows a head of an origin is often there already.
            self.emptied(id, now);
        }
    }

    /// Notes that the stage of a response is empty, and its end unknown.
    pub(super) fn emptied(&mut self, id: StreamId, now: Instant) {
        let Some(stream) = self.open.get_mut(id) else { return };
        stream.empty_since = Some(now);
        self.refills.note(id, now, stream.pace);
    }

    /// Notes that a response waits for credit, of which it has had some or none.
    pub(super) fn waits_for_credit(&mut self, id: StreamId, has_had: bool, now: Instant, stall: Duration) {
        let Some(stream) = self.open.get_mut(id) else { return };
        stream.held = true;
        stream.ring();
        if has_had || stream.stalled_since.is_none() {
            stream.stalled_since = Some(now);
            let at = now + stall;
            self.stall_at = Some(self.stall_at.map_or(at, |earliest| earliest.min(at)));
        }
    }

    /// Earliest time at which a response may have stalled; `None` if none waits for credit.
    pub(super) const fn stall_at(&self) -> Option<Instant> {
        self.stall_at
    }

    /// Begins a round of grants.
    pub(super) const fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Notes a grant. Returns true if the response has had one in this round.
    pub(super) fn granted(&mut self, id: StreamId) -> bool {
        let round = self.round;
        self.open.get_mut(id).is_some_and(|stream| mem::replace(&mut stream.round, round) == round)
    }

    /// Returns the responses for which the client has given no credit for this long.
    pub(super) fn stalled(&mut self, now: Instant, stall: Duration) -> Vec<StreamId> {
        let waits = self.open.iter().filter_map(|(id, stream)| Some((id, stream.stalled_since? + stall)));
        let (stalled, waiting): (Vec<_>, Vec<_>) = waits.partition(|(_, at)| *at <= now);
        self.stall_at = waiting.into_iter().map(|(_, at)| at).min();
        stalled.into_iter().map(|(id, _)| id).collect()
    }

    /// Notes that other tasks have had a turn.
    pub(super) fn turn(&mut self) {
        self.refills.turn();
    }

    /// Reason for which the latest grant was put off; `None` if it was not.
    pub(super) const fn pause(&self) -> Option<Pause> {
        self.refills.reason()
    }

    /// Ends the pause: the next grant is decided anew.
    pub(super) const fn resume(&mut self) {
        self.refills.resume();
    }

    /// True if the response whose turn it is gives way to one that goes before it and is about to have
    /// bytes.
    pub(super) fn gives_way(&mut self, exchange: &Exchange, levels: &LevelTable) -> bool {
        let Self { refills, open, .. } = self;
        if refills.is_empty() {
            return false;
        }
        let Some(next) = exchange.peek() else { return false };
        let supply = |id| match (open.get(id), exchange.response(id)) {
            (Some(stream), Some(response)) if response.staged.is_zero() && !response.finished => {
                if stream.stage.is_filling() { Supply::Filling } else { Supply::Resting }
            }
            // It has not begun.
            (Some(_), None) => Supply::Resting,
            _ => Supply::Settled,
        };
        let precedes = |id| {
            let parameters = open.get(id).map(|stream| stream.record.decision.parameters);
            parameters.is_some_and(|own| precedes((id, own), (next.stream, next.parameters), levels))
        };
        refills.pause(Instant::now(), supply, precedes)
    }

    /// Lets the response whose turn it is stage two chunks more, so that its source has the time of one for its next
    /// piece. Those before it keep what they have staged, and get no more than usual. An incremental one does not:
    /// its turns would become longer while another one's source is asked.
    pub(super) fn enlarge(&mut self, id: StreamId, usual: usize, chunk: Bytes) {
        if self.enlarged.last() == Some(&id) {
            return;
        }
        let more = usize::try_from(chunk.get()).unwrap_or(usize::MAX).saturating_mul(2).min(MORE_STAGED);
        let open = &self.open;
        let mut beyond = 0;
        self.enlarged.retain(|enlarged| {
            let Some(stream) = open.get(*enlarged) else { return false };
            stream.stage.set_limit(usual);
            let staged = stream.stage.staged().saturating_sub(usual);
            let keeps = *enlarged != id && staged > 0;
            beyond += if keeps { staged } else { 0 };
            keeps
        });
        if more > usual
            && beyond + more <= MORE_STAGED
            && let Some(stream) = open.get(id)
            && !stream.record.decision.parameters.incremental
        {
            stream.stage.set_limit(usual.saturating_add(more));
            self.enlarged.push(id);
        }
    }
}

/// True if a response goes before the one whose turn it is, once it has bytes.
fn precedes(
    (stream, own): (StreamId, Parameters),
    (next, of_next): (StreamId, Parameters),
    levels: &LevelTable,
) -> bool {
    let rank = |parameters: Parameters| (parameters.level_in(levels), parameters.urgency);
    let takes_turns = own.incremental || of_next.incremental;
    match rank(own).cmp(&rank(of_next)) {
        Ordering::Less => true,
        Ordering::Equal => !takes_turns && stream < next,
        Ordering::Greater => false,
    }
}
