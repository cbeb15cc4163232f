//! Progress of the responses of one connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use http::StatusCode;
use http::request::Parts;
use marcato_sched::coupled::Mode;
use marcato_units::{Bytes, Duration, Priority};
use tokio::time::Instant;

use super::Ring;
use super::response::{Outcome, ResponseTrace};
use crate::decision::Decision;

/// Most responses of a connection that are kept: the latest.
const MAX_RESPONSES: usize = 128;
/// Most changes of coupled mode that are kept: the latest.
const MAX_CHANGES: usize = 256;

/// Progress of the responses of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionTrace {
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) began_at: SystemTime,
    began: Instant,
    /// Ring that lists it once it has a request.
    ring: Weak<Ring>,
    listed: AtomicBool,
    state: Mutex<Responses>,
}

/// State of coupled mode from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) at: Duration,
    pub(crate) mode: Mode,
    /// Most bytes of ours in flight; `None` if there is no bound.
    pub(crate) cap: Option<Bytes>,
}

/// Responses of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Responses {
    pub(crate) responses: VecDeque<ResponseTrace>,
    /// Number of responses before the first of them.
    pub(crate) forgotten: u64,
    pub(crate) changes: VecDeque<Change>,
    /// Response that had the latest grant.
    latest: Option<u64>,
}

impl Responses {
    /// Returns a response; `None` if it was forgotten.
    fn get(&mut self, number: u64) -> Option<&mut ResponseTrace> {
        let index = usize::try_from(number.checked_sub(self.forgotten)?).ok()?;
        self.responses.get_mut(index)
    }
}

impl ConnectionTrace {
    pub(super) fn new(id: u64, peer: SocketAddr, ring: Weak<Ring>) -> Self {
        Self {
            id,
            peer,
            began_at: SystemTime::now(),
            began: Instant::now(),
            ring,
            listed: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Begins the trace of a response.
    pub(crate) fn request(self: &Arc<Self>, head: &Parts, decision: Decision) -> Traced {
        if !self.listed.swap(true, Relaxed)
            && let Some(ring) = self.ring.upgrade()
        {
            ring.list(self);
        }
        let at = self.began.elapsed();
        let mut state = self.state();
        if state.responses.len() == MAX_RESPONSES {
            state.responses.pop_front();
            state.forgotten += 1;
        }
        let number = state.forgotten + state.responses.len() as u64;
        state.responses.push_back(ResponseTrace::new(at, head, decision));
        drop(state);
        Traced { connection: Arc::clone(self), number }
    }

    /// Notes the state of coupled mode.
    pub(crate) fn coupled(&self, mode: Mode, cap: Option<Bytes>) {
        let mut state = self.state();
        if state.changes.back().is_some_and(|last| (last.mode, last.cap) == (mode, cap)) {
            return;
        }
        if state.changes.len() == MAX_CHANGES {
            state.changes.pop_front();
        }
        state.changes.push_back(Change { at: self.began.elapsed(), mode, cap });
    }

    /// Returns a copy of the responses.
    pub(crate) fn responses(&self) -> Responses {
        self.state().clone()
    }

    fn state(&self) -> MutexGuard<'_, Responses> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Response whose progress is noted.
#[derive(Clone, Debug)]
pub(crate) struct Traced {
    connection: Arc<ConnectionTrace>,
    number: u64,
}

impl Traced {
    pub(crate) fn decided(&self, decision: Decision) {
        self.note(Instant::now(), |response, at| response.decided(at, decision));
    }

    pub(crate) fn head(&self, status: StatusCode, length: Option<u64>) {
        self.note(Instant::now(), |response, at| response.head = Some((at, status, length)));
    }

    pub(crate) fn supplied(&self, now: Instant) {
        self.note(now, |response, at| _ = response.supplied_at.get_or_insert(at));
    }

    pub(crate) fn granted(&self, now: Instant, bytes: usize, level: Priority) {
        let at = now.saturating_duration_since(self.connection.began);
        let mut state = self.connection.state();
        let in_turn = state.latest.replace(self.number) == Some(self.number);
        if let Some(response) = state.get(self.number) {
            response.granted(at, bytes, level, in_turn);
        }
    }

    pub(crate) fn ended(&self, outcome: Outcome) {
        self.note(Instant::now(), |response, at| _ = response.end.get_or_insert((at, outcome)));
    }

    fn note(&self, now: Instant, note: impl FnOnce(&mut ResponseTrace, Duration)) {
        let at = now.saturating_duration_since(self.connection.began);
        if let Some(response) = self.connection.state().get(self.number) {
            note(response, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::Traces;
    use crate::trace::response::tests::response;

    #[test]
    fn the_latest_responses_are_kept_and_notes_of_old_ones_ignored() {
        let traces = Traces::new(2);
        let connection = traces.connection("192.0.2.1:5".parse().unwrap());
        let ask = |path: &str| {
            let (head, ()) = Request::get(path).body(()).unwrap().into_parts();
            connection.request(&head, response(path).decision().unwrap())
        };
        let first = ask("/first");
        let others: Vec<Traced> = (0..MAX_RESPONSES).map(|number| ask(&format!("/{number}"))).collect();
        first.granted(Instant::now(), 10, Priority::P0);
        others[0].granted(Instant::now(), 20, Priority::P1);
        let kept = connection.responses();
        assert_eq!((kept.responses.len(), kept.forgotten), (MAX_RESPONSES, 1));
        assert_eq!((kept.responses[0].target.as_str(), kept.responses[0].bytes.get()), ("/0", 20));
        assert!(kept.responses.range(1..).all(|response| response.bytes.is_zero()));
    }

    #[test]
    fn equal_states_of_coupled_mode_are_one_change() {
        let connection = Traces::new(1).connection("192.0.2.1:5".parse().unwrap());
        for cap in [None, None, Some(Bytes::kb(9)), Some(Bytes::kb(9)), None] {
            connection.coupled(Mode::ALL[0], cap);
        }
        assert_eq!(connection.responses().changes.len(), 3);
        (0..1000).for_each(|kb| connection.coupled(Mode::ALL[1], Some(Bytes::kb(kb))));
        assert_eq!(connection.responses().changes.len(), MAX_CHANGES);
    }
}
