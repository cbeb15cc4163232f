//! State that the tasks of a connection share.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use http::request::Parts;
use marcato_net::streams::{Connection, Parameters, Urgency};
use marcato_sched::order::StreamId;
use tokio::time::Instant;

use super::transport::Outgoing;
use crate::decision::Decision;
use crate::hints::{decide_request, decide_response, request_hints};
use crate::record::Record;
use crate::resets::Resets;
use crate::server::Context;
use crate::signals::{Protocol, Signals};
use crate::update::{Http3UpdateError, Update};

/// Most frames of a control stream between two requests, as over HTTP/2.
const MAX_FRAMES: u32 = 1000;
/// Difference between the numbers of two streams of one kind (RFC 9000 §2.1).
const STEP: u64 = 4;

/// State that the tasks of a connection share: the signals of its client, and its open requests.
pub(super) struct Shared {
    connection: Connection,
    context: Arc<Context>,
    state: Mutex<State>,
}

struct State {
    signals: Signals,
    /// Stream that was accepted last, until the task of its request takes it.
    accepted: Option<Arc<Outgoing>>,
    /// Stream of the latest request.
    latest: Option<u64>,
    /// First stream that is not accepted any more.
    limit: Option<u64>,
    open: HashMap<StreamId, Open>,
    resets: Resets,
    /// Frames of the client's control stream since the latest request.
    frames: u32,
    /// True once the client has asked for some responses before others.
    orders: bool,
    /// True once the client has violated the protocol.
    violated: bool,
}

/// Open request.
struct Open {
    outgoing: Arc<Outgoing>,
    record: Record,
}

impl Shared {
    pub(super) fn new(connection: Connection, context: Arc<Context>) -> Self {
        let state = State {
            signals: Signals::new(Protocol::Http3, context.config.limits.streams as usize),
            accepted: None,
            latest: None,
            limit: None,
            open: HashMap::new(),
            resets: Resets::default(),
            frames: 0,
            orders: false,
            violated: false,
        };
        Self { connection, context, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a stream of the client. Returns false if it is one of those that are not accepted any more.
    pub(super) fn accept(&self, outgoing: &Arc<Outgoing>) -> bool {
        let mut state = self.state();
        let is_accepted = state.limit.is_none_or(|limit| outgoing.id() < limit);
        if is_accepted {
            state.latest = state.latest.max(Some(outgoing.id()));
            state.accepted = Some(Arc::clone(outgoing));
        }
        is_accepted
    }

    /// Takes the stream that was accepted last.
    pub(super) fn take_accepted(&self) -> Option<Arc<Outgoing>> {
        self.state().accepted.take()
    }

    /// Accepts no more streams than have arrived.
    pub(super) fn drain(&self) {
        let mut state = self.state();
        let limit = state.latest.map_or(0, |latest| latest + STEP);
        state.limit.get_or_insert(limit);
    }

    /// Opens a request: decides about its urgency, and puts its response into the order. `None` if the client has too many.
    pub(super) fn request(self: &Arc<Self>, head: &Parts, outgoing: &Arc<Outgoing>) -> Option<Entry> {
        let id = StreamId(outgoing.id());
        let mut state = self.state();
        state.frames = 0;
        let hints = request_hints(&head.headers, head.uri.path());
        let decision =
            decide_request(&mut state.signals, &self.context.config.guess, id, &head.headers, &hints).ok()?;
        outgoing.set_order(decision.parameters);
        if decision.source.is_of_ordering_client() && !mem::replace(&mut state.orders, true) {
            // Urgent data will come: what is in flight before it decides how long that takes.
            self.connection.expect(Parameters::sequential(Urgency::MOST));
        }
        let record = Record::begin(head, decision, &self.context);
        state.open.insert(id, Open { outgoing: Arc::clone(outgoing), record });
        state.follow();
        drop(state);
        Some(Entry { shared: Arc::clone(self), id, decision, complete: false })
    }

    /// Follows an update of a priority, which the client has sent on its control stream.
    pub(super) fn update(&self, update: Result<Update, Http3UpdateError>) {
        match update {
            Ok(update) => {
                let mut state = self.state();
                // Over HTTP/3 there are never too many: the oldest make room.
                let _ = state.signals.update(update);
                state.follow();
            }
            Err(error) => {
                if let Some(code) = error.code() {
                    self.violation(code.number(), &error.to_string());
                }
            }
        }
    }

    /// Counts frames of the client's control stream. Too many of them between two requests are a violation.
    pub(super) fn frames(&self, count: u32) {
        let is_spent = {
            let mut state = self.state();
            state.frames = state.frames.saturating_add(count);
            state.frames > MAX_FRAMES
        };
        if is_spent {
            self.violation(super::REFUSED, "too many frames without a request");
        }
    }

    /// Ends the connection because its client violates the protocol. What follows is no other violation.
    fn violation(&self, code: u64, reason: &str) {
        if mem::replace(&mut self.state().violated, true) {
            return;
        }
        self.context.counters.violations.one();
        self.connection.close(code, reason.as_bytes());
    }
}

impl State {
    /// Follows signals that have changed the order.
    fn follow(&mut self) {
        while let Some((id, decision)) = self.signals.next_change() {
            if let Some(open) = self.open.get_mut(&id) {
                open.record.decide(decision);
                open.outgoing.set_order(decision.parameters);
            }
        }
    }
}

/// Open request of a connection. When it is dropped, the request is over and logged.
pub(super) struct Entry {
    shared: Arc<Shared>,
    id: StreamId,
    /// Decision about the request.
    pub(super) decision: Decision,
    /// True once the response has arrived as a whole.
    pub(super) complete: bool,
}

impl Entry {
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.shared.context
    }

    /// Looks at the record of the request.
    pub(super) fn record(&self, look: impl FnOnce(&mut Record)) {
        if let Some(open) = self.shared.state().open.get_mut(&self.id) {
            look(&mut open.record);
        }
    }

    /// Decides about the urgency of a response by its head.
    pub(super) fn respond(&self, headers: &HeaderMap) {
        let mut state = self.shared.state();
        let table = &self.shared.context.config.guess;
        let Some(decision) = decide_response(&mut state.signals, table, self.id, headers) else { return };
        if let Some(open) = state.open.get_mut(&self.id) {
            open.record.decide(decision);
            open.outgoing.set_order(decision.parameters);
        }
    }

    /// Notes content that was put into the order.
    pub(super) fn passed(&self, bytes: usize) {
        let mut state = self.shared.state();
        let Some(open) = state.open.get_mut(&self.id) else { return };
        let levels = self.shared.context.config.levels();
        let level = levels.level(open.record.decision.parameters.urgency);
        open.record.granted(Instant::now(), bytes, level);
        self.shared.context.counters.grant(level, bytes);
    }

    /// Notes that the client has reset the response. Too many are a violation.
    pub(super) fn reset_by_client(&self) {
        self.shared.context.counters.cancelled.one();
        let is_spent = {
            let mut state = self.shared.state();
            state.resets.reset();
            state.resets.is_spent()
        };
        if is_spent {
            self.shared.violation(super::REFUSED, "too many responses were reset");
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let open = {
            let mut state = self.shared.state();
            let _ = state.signals.close(self.id);
            if self.complete {
                state.resets.complete();
            }
            state.open.remove(&self.id)
        };
        if let Some(mut open) = open {
            open.record.complete = self.complete;
            self.shared.context.log(&open.record);
        }
    }
}
