//! Stage of a response: what its handler has produced and the connection has not sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, Response};

use crate::inbox::Bell;

/// Most interim responses that wait.
const MAX_INTERIM: usize = 8;

/// Stage of a response, between the task of its handler and that of its connection.
///
/// The handler waits while [`limit`](Self::new) bytes or more are staged. A single piece may exceed the
/// limit: the handler has it in memory anyway.
#[derive(Debug)]
pub(crate) struct Stage {
    state: Mutex<State>,
    /// Bell of the stream, which the stage rings when it is woken.
    bell: Bell,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes from which on the handler waits.
    limit: usize,
    interim: VecDeque<Response<()>>,
    head: Option<Head>,
    /// True once the connection may take the head. The first bytes then go with it.
    announced: bool,
    pieces: VecDeque<Bytes>,
    /// Bytes of the pieces, and those of them that the connection has not been told of.
    staged: usize,
    fresh: usize,
    end: Option<End>,
    /// True once there was an end. The handler's task may fail after it without harm.
    ended: bool,
    /// Handler that waits for room.
    handler: Option<Waker>,
    /// True if the handler waits, for room or for its own source. It goes on by itself if not.
    rests: bool,
    /// True once the connection takes nothing more.
    closed: bool,
}

/// Head of a final response.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) response: Response<()>,
    /// True if the response ends with it.
    pub(crate) is_end: bool,
}

/// End of a response.
#[derive(Debug)]
pub(crate) enum End {
    /// All of it has been produced, with these trailers.
    Complete(Option<HeaderMap>),
    /// The handler failed: the rest will never come.
    Failed,
}

/// Progress of a handler since it was last taken.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) interim: VecDeque<Response<()>>,
    pub(crate) head: Option<Head>,
    /// Bytes produced.
    pub(crate) bytes: usize,
    pub(crate) end: Option<End>,
}

impl Stage {
    pub(crate) fn new(bell: Bell, limit: usize) -> Self {
        Self { state: Mutex::new(State { limit, ..State::default() }), bell }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the connection of what was put on the stage.
    ///
    /// A handler that can go on at once does not call it: the head then leaves with the first bytes, and
    /// the last bytes with the end.
    pub(crate) fn announce(&self) {
        let mut state = self.state();
        state.announced |= state.head.is_some();
        drop(state);
        self.bell.ring();
    }
}

impl Wake for Stage {
    fn wake(self: Arc<Self>) {
        self.bell.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.bell.ring();
    }
}

/// Calls of the handler's task.
impl Stage {
    /// Puts an interim response on the stage. Returns false if too many wait, or the final response has
    /// been produced.
    pub(crate) fn interim(&self, response: Response<()>) -> bool {
        let mut state = self.state();
        // The head is on the stage until the connection takes it.
        let is_final = state.head.is_some() || state.announced;
        let accepted = !state.closed && !is_final && state.interim.len() < MAX_INTERIM;
        if accepted {
            state.interim.push_back(response);
        }
        drop(state);
        self.announce();
        accepted
    }

    /// Puts the head on the stage. [`announce`](Self::announce) tells the connection.
    pub(crate) fn head(&self, response: Response<()>, is_end: bool) {
        let mut state = self.state();
        state.head = Some(Head { response, is_end });
        if is_end {
            state.end = Some(End::Complete(None));
            state.ended = true;
        }
    }

    /// Puts a piece on the stage. [`announce`](Self::announce) tells the connection.
    pub(crate) fn push(&self, piece: Bytes) {
        let mut state = self.state();
        state.rests = false;
        if piece.is_empty() || state.closed || state.ended {
            return;
        }
        state.staged += piece.len();
        state.fresh += piece.len();
        state.pieces.push_back(piece);
    }

    /// Ends the response, and tells the connection.
    pub(crate) fn complete(&self, trailers: Option<HeaderMap>) {
        self.end(End::Complete(trailers));
    }

    /// Gives the response up, and tells the connection. Nothing happens if it is complete.
    pub(crate) fn fail(&self) {
        self.end(End::Failed);
    }

    fn end(&self, end: End) {
        let mut state = self.state();
        if !state.ended && !state.closed {
            state.end = Some(end);
            state.ended = true;
            drop(state);
            self.announce();
        }
    }

    /// Waits until less is staged than the limit. Returns false if the connection takes nothing more.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.state();
        if state.closed {
            return Poll::Ready(false);
        }
        if state.staged < state.limit {
            return Poll::Ready(true);
        }
        state.handler = Some(cx.waker().clone());
        state.rests = true;
        drop(state);
        self.announce();
        Poll::Pending
    }

    /// Notes that the handler waits for its own source, and tells the connection of what is staged.
    pub(crate) fn rest(&self) {
        self.state().rests = true;
        self.announce();
    }
}

/// Calls of the connection's task.
impl Stage {
    /// Asks for a look at the stream.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// True if more of the response is about to come: the handler has not said that it waits, or the
    /// connection has not taken all that it was given.
    pub(crate) fn is_filling(&self) -> bool {
        let state = self.state();
        !state.closed && (state.fresh > 0 || state.end.is_some() || !state.rests && !state.ended)
    }

    /// Takes the handler's progress. Its bytes stay on the stage.
    pub(crate) fn progress(&self) -> Progress {
        self.bell.answer();
        let mut state = self.state();
        let interim = std::mem::take(&mut state.interim);
        // A handler that fails before its head has none to announce.
        if !state.announced && state.head.is_some() {
            return Progress { interim, ..Progress::default() };
        }
        Progress {
            interim,
            head: state.head.take(),
            bytes: std::mem::take(&mut state.fresh),
            end: state.end.take(),
        }
    }

    /// Takes `count` bytes, fewer only if fewer are staged. They are copied only if they span pieces.
    pub(crate) fn take(&self, count: usize) -> Bytes {
        let mut state = self.state();
        let count = count.min(state.staged);
        let taken = match state.pieces.front_mut() {
            Some(first) if first.len() > count => first.split_to(count),
            Some(first) if first.len() == count => {
                let whole = std::mem::take(first);
                state.pieces.pop_front();
                whole
            }
            _ => {
                let mut joined = BytesMut::with_capacity(count);
                while let Some(first) = state.pieces.front_mut()
                    && joined.len() < count
                {
                    let part = first.len().min(count - joined.len());
                    joined.extend_from_slice(&first[..part]);
                    first.advance(part);
                    if first.is_empty() {
                        state.pieces.pop_front();
                    }
                }
                joined.freeze()
            }
        };
        state.staged -= taken.len();
        let handler = if state.staged < state.limit { state.handler.take() } else { None };
        state.rests &= handler.is_none();
        drop(state);
        if let Some(handler) = handler {
            handler.wake();
        }
        taken
    }

    /// Takes the first piece, or its first bytes if it is longer than `most`; `None` if nothing is staged. Nothing is copied.
    #[cfg(feature = "http3")]
    pub(crate) fn take_piece(&self, most: usize) -> Option<Bytes> {
        let count = self.state().pieces.front()?.len().min(most);
        Some(self.take(count))
    }

    /// Changes the limit. A handler that waits sees it when bytes are next taken.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.state().limit = limit;
    }

    /// Bytes on the stage.
    pub(crate) fn staged(&self) -> usize {
        self.state().staged
    }

    /// Drops everything: the connection takes nothing more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.pieces.clear();
        (state.staged, state.fresh) = (0, 0);
        if let Some(handler) = state.handler.take() {
            drop(state);
            handler.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use marcato_sched::order::StreamId;
    use proptest::prelude::*;

    use super::*;
    use crate::inbox::Inbox;

    fn stage(limit: usize) -> (Stage, Arc<Inbox>) {
        let inbox = Arc::new(Inbox::default());
        (Stage::new(Bell::new(StreamId(1), Arc::clone(&inbox)), limit), inbox)
    }

    fn has_room(stage: &Stage) -> Poll<bool> {
        stage.poll_room(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_handler_waits_while_the_limit_is_staged() {
        let (stage, inbox) = stage(100);
        stage.push(Bytes::from(vec![1; 99]));
        assert_eq!(has_room(&stage), Poll::Ready(true));
        stage.push(Bytes::from(vec![2; 500]));
        assert_eq!((has_room(&stage), inbox.take()), (Poll::Pending, Some(StreamId(1))));
        assert_eq!(stage.progress().bytes, 599);
        stage.take(500);
        assert_eq!(has_room(&stage), Poll::Ready(true));
    }

    #[test]
    fn a_handler_that_has_pushed_goes_on_until_it_rests() {
        let (stage, _) = stage(100);
        stage.rest();
        assert!(!stage.is_filling());
        stage.push(Bytes::from_static(b"piece"));
        assert_eq!((stage.progress().bytes, stage.is_filling()), (5, true));
        stage.rest();
        assert!(!stage.is_filling());
    }

    #[test]
    fn a_handler_follows_a_changed_limit() {
        let (stage, _) = stage(100);
        stage.push(Bytes::from(vec![1; 150]));
        assert!(has_room(&stage).is_pending());
        stage.set_limit(1000);
        assert_eq!((has_room(&stage), stage.staged()), (Poll::Ready(true), 150));
        stage.set_limit(100);
        assert!(has_room(&stage).is_pending());
    }

    #[test]
    fn a_head_waits_for_its_first_bytes_until_it_is_announced() {
        let (stage, _) = stage(100);
        stage.head(Response::new(()), false);
        assert!(stage.progress().head.is_none());
        stage.push(Bytes::from_static(b"first"));
        stage.announce();
        let progress = stage.progress();
        assert_eq!((progress.head.is_some(), progress.bytes), (true, 5));
    }

    #[test]
    fn a_stage_is_filling_until_its_handler_says_that_it_waits() {
        let (stage, _) = stage(10);
        assert!(stage.is_filling(), "the handler has not begun");
        stage.push(Bytes::from_static(b"0123456789"));
        assert!(has_room(&stage).is_pending() && stage.is_filling(), "the connection knows nothing of it");
        stage.progress();
        assert!(!stage.is_filling(), "the handler waits for room");
        stage.take(1);
        assert!(stage.is_filling(), "the handler was woken");
        stage.rest();
        assert!(!stage.is_filling(), "the handler waits for its source");
        stage.push(Bytes::from_static(b"x"));
        assert!(stage.is_filling(), "its source had more");
        stage.complete(None);
        assert!(stage.is_filling(), "the end is not taken");
        stage.progress();
        assert!(!stage.is_filling(), "nothing follows an end");
    }

    #[test]
    fn a_closed_stage_ends_its_handler_and_keeps_nothing() {
        let (stage, _) = stage(10);
        stage.push(Bytes::from_static(b"0123456789"));
        stage.close();
        stage.push(Bytes::from_static(b"more"));
        assert_eq!((has_room(&stage), stage.progress().bytes), (Poll::Ready(false), 0));
        assert!(stage.take(5).is_empty());
    }

    #[test]
    fn a_handler_that_fails_after_the_end_changes_nothing() {
        let (stage, _) = stage(10);
        stage.complete(None);
        stage.fail();
        assert!(matches!(stage.progress().end, Some(End::Complete(None))));
        stage.fail();
        stage.push(Bytes::from_static(b"late"));
        let progress = stage.progress();
        assert!(progress.end.is_none() && progress.bytes == 0, "{progress:?}");
    }

    #[test]
    fn interim_responses_are_bounded_and_come_before_the_head() {
        let (stage, _) = stage(10);
        let accepted = (0..20).filter(|_| stage.interim(Response::new(()))).count();
        stage.head(Response::new(()), true);
        assert_eq!((accepted, stage.interim(Response::new(()))), (MAX_INTERIM, false));
        assert_eq!(stage.progress().interim.len(), MAX_INTERIM);
    }

    proptest! {
        #[test]
        fn bytes_leave_in_order_however_they_are_cut(
            pieces in prop::collection::vec(0..40_usize, 0..20),
            takes in prop::collection::vec(0..60_usize, 0..40),
        ) {
            let (stage, _) = stage(usize::MAX);
            let mut next = (0..=u8::MAX).cycle();
            let all: Vec<u8> = pieces.iter().flat_map(|len| {
                let piece: Vec<u8> = next.by_ref().take(*len).collect();
                stage.push(Bytes::from(piece.clone()));
                piece
            }).collect();
            prop_assert_eq!(stage.progress().bytes, all.len());
            let mut left = all.as_slice();
            for count in takes {
                let taken = stage.take(count);
                prop_assert_eq!(taken.len(), count.min(left.len()));
                prop_assert_eq!(taken.as_ref(), &left[..taken.len()]);
                left = &left[taken.len()..];
            }
        }
    }
}
