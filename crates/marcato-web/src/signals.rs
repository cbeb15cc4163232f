//! Signals of one connection.
//!
//! An absent `priority` field is not the default. It means `u=3` from a client that has shown RFC 9218, and
//! nothing from any other: only the latter have guesses. A parameter that is absent in a response keeps the
//! client's value (RFC 9218 §8).

use std::collections::BTreeSet;

use marcato_sched::order::StreamId;
use marcato_sched::streams::StreamMap;
use thiserror::Error;

use crate::decision::{Decision, Evidence};
use crate::error_code::ErrorCode;
use crate::frames::Event;
use crate::guess::Guess;
use crate::priority::PriorityField;
use crate::tree::{Tree, TreeChange, TreeCounters};
use crate::update::{Update, Updates};

/// Version of HTTP on a connection with several streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/2: streams open in ascending order, and there are weights.
    Http2,
    /// HTTP/3: streams open in any order (RFC 9000 §2.1).
    Http3,
}

/// Counts of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SignalCounters {
    /// Requests with a `priority` field.
    pub headers: u64,
    /// Fields of requests and responses that were unusable, and count as empty.
    pub malformed: u64,
    /// PRIORITY_UPDATE frames.
    pub updates: u64,
    /// PRIORITY_UPDATE frames of streams that had ended.
    pub late_updates: u64,
    /// PRIORITY frames that changed a stream or group.
    pub reprioritised: u64,
}

/// Signals of one connection, and the decision for each open request.
///
/// A server feeds it the events of its [`FrameReader`](crate::FrameReader) (HTTP/2) or the updates
/// from the control stream (HTTP/3), and reports requests, responses and their ends. Each request and
/// response returns a [`Decision`]. [`next_change`](Self::next_change) returns decisions that a later
/// signal has changed.
///
/// ```
/// use marcato_sched::order::StreamId;
/// use marcato_web::{Protocol, Signals, Source, Update};
///
/// let mut signals = Signals::new(Protocol::Http3, 100);
/// let image = StreamId(4);
/// let decision = signals.request(image, [b"u=4, i".as_slice()], None)?;
/// assert_eq!((decision.parameters.to_string().as_str(), decision.source), ("u=4, i", Source::Header));
///
/// // The image scrolls into view.
/// signals.update(Update::from_http3(Update::HTTP3_REQUEST_TYPE, b"\x04u=2, i")?)?;
/// let (stream, decision) = signals.next_change().unwrap();
/// assert_eq!((stream, decision.parameters.to_string().as_str()), (image, "u=2, i"));
/// assert_eq!((decision.source, signals.next_change()), (Source::Update, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Signals {
    protocol: Protocol,
    limit: usize,
    /// True once the client has shown a signal of RFC 9218.
    extensible: bool,
    /// True if SETTINGS_NO_RFC7540_PRIORITIES is 1.
    no_weights: bool,
    tree: Tree,
    updates: Updates,
    requests: StreamMap<Request>,
    changed: BTreeSet<StreamId>,
    /// Newest request of HTTP/2; 0 before the first.
    newest: StreamId,
    counters: SignalCounters,
}

/// Open request.
#[derive(Clone, Copy, Debug)]
struct Request {
    evidence: Evidence,
    decision: Decision,
}

impl Signals {
    /// Creates the signals of a connection whose client may have `limit` requests open: the setting
    /// SETTINGS_MAX_CONCURRENT_STREAMS, or the limit of bidirectional streams.
    ///
    /// Every table has this bound.
    pub const fn new(protocol: Protocol, limit: usize) -> Self {
        Self {
            protocol,
            limit,
            extensible: false,
            no_weights: false,
            tree: Tree::new(limit),
            updates: Updates::new(limit),
            requests: StreamMap::new(),
            changed: BTreeSet::new(),
            newest: StreamId(0),
            counters: SignalCounters {
                headers: 0,
                malformed: 0,
                updates: 0,
                late_updates: 0,
                reprioritised: 0,
            },
        }
    }

    /// Reads an event of HTTP/2.
    ///
    /// # Errors
    /// [`UpdateError`] if the client has prioritised more streams than it may open.
    pub fn event(&mut self, event: Event) -> Result<(), UpdateError> {
        match event {
            Event::Update(update) => return self.update(update),
            Event::NoRfc7540Priorities(no_weights) => {
                // RFC 9218 §2.1: after a 1, weights MUST be ignored. Such a client knows RFC 9218, so
                // that its absent fields have a meaning.
                self.no_weights = no_weights;
                if no_weights {
                    self.show_extensible();
                }
            }
            Event::Headers { .. } | Event::Priority { .. } if self.no_weights => {}
            Event::Headers { stream, dependency } => {
                if self.tree.open(stream, dependency) == TreeChange::Group {
                    self.decide_all();
                }
            }
            Event::Priority { stream, dependency } => {
                let change = self.tree.prioritise(stream, dependency);
                if change != TreeChange::Nothing {
                    self.counters.reprioritised += 1;
                }
                match change {
                    TreeChange::Nothing => {}
                    TreeChange::Stream => self.decide(stream),
                    TreeChange::Group => self.decide_all(),
                }
            }
        }
        Ok(())
    }

    /// Reads an update: of an open request, or of one that has not arrived.
    ///
    /// # Errors
    /// [`UpdateError`] if a client of HTTP/2 has prioritised more streams than it may open. One of
    /// HTTP/3 makes the store drop its oldest update.
    pub fn update(&mut self, update: Update) -> Result<(), UpdateError> {
        self.counters.updates += 1;
        self.show_extensible();
        if let Some(request) = self.requests.get_mut(update.stream) {
            request.evidence.update = Some(update.field);
            self.decide(update.stream);
            return Ok(());
        }
        if self.protocol == Protocol::Http2 {
            // RFC 9218 §7.1: frames of closed streams may be discarded.
            if update.stream <= self.newest {
                self.counters.late_updates += 1;
                return Ok(());
            }
            // RFC 9218 §7.1: prioritised idle streams and active ones together MUST NOT exceed the
            // limit. A server MUST answer with PROTOCOL_ERROR.
            if !self.updates.contains(update.stream) && self.updates.len() + self.requests.len() >= self.limit
            {
                return Err(UpdateError { limit: self.limit });
            }
        }
        self.updates.keep(update);
        Ok(())
    }

    /// Opens a request with the lines of its `priority` field, none if it is absent.
    ///
    /// Requests of HTTP/2 are reported in the order of their streams.
    ///
    /// # Errors
    /// [`RequestError`] if the request is open already, or too many are. Nothing changes then.
    pub fn request<'a>(
        &mut self,
        stream: StreamId,
        priority: impl IntoIterator<Item = &'a [u8]>,
        guess: Option<Guess>,
    ) -> Result<Decision, RequestError> {
        if self.requests.contains(stream) {
            return Err(RequestError::AlreadyOpen);
        }
        if self.requests.len() >= self.limit {
            return Err(RequestError::TooMany { limit: self.limit });
        }
        let header = self.field(priority);
        if header.is_some() {
            self.counters.headers += 1;
            self.show_extensible();
        }
        let update = self.updates.take(stream);
        if self.protocol == Protocol::Http2 {
            self.updates.forget_before(stream);
            self.newest = self.newest.max(stream);
        }
        let evidence = Evidence { update, header, guess, ..Evidence::default() };
        let evidence = self.complete(stream, evidence);
        let decision = evidence.decide();
        self.requests.insert(stream, Request { evidence, decision });
        Ok(decision)
    }

    /// Adds the origin's response: the lines of its `priority` field, and the guess that its other
    /// fields allow. Without a guess that of the request stays.
    ///
    /// # Errors
    /// [`UnknownRequest`] if the request is not open.
    pub fn response<'a>(
        &mut self,
        stream: StreamId,
        priority: impl IntoIterator<Item = &'a [u8]>,
        guess: Option<Guess>,
    ) -> Result<Decision, UnknownRequest> {
        let origin = self.field(priority).unwrap_or_default();
        // What the connection knows is in the evidence already: each change of it decides again.
        let Request { evidence, decision } = self.requests.get_mut(stream).ok_or(UnknownRequest)?;
        evidence.origin = origin;
        evidence.guess = guess.or(evidence.guess);
        *decision = evidence.decide();
        let decision = *decision;
        self.settle(stream);
        Ok(decision)
    }

    /// Forgets a request, whose response has been sent or reset.
    ///
    /// # Errors
    /// [`UnknownRequest`] if the request is not open.
    pub fn close(&mut self, stream: StreamId) -> Result<(), UnknownRequest> {
        self.requests.remove(stream).ok_or(UnknownRequest)?;
        self.settle(stream);
        self.tree.close(stream);
        Ok(())
    }

    /// Decision for an open request; `None` for any other.
    pub fn decision(&self, stream: StreamId) -> Option<Decision> {
        self.requests.get(stream).map(|request| request.decision)
    }

    /// Returns a decision that a signal has changed since it was last returned; `None` after the last.
    pub fn next_change(&mut self) -> Option<(StreamId, Decision)> {
        let stream = self.changed.pop_first()?;
        Some((stream, self.decision(stream)?))
    }

    /// Guess that is kept for an open request, for [`GuessTable::response`](crate::GuessTable::response).
    pub fn guess(&self, stream: StreamId) -> Option<Guess> {
        self.requests.get(stream)?.evidence.guess
    }

    /// True once guesses no longer count: the client has shown a signal of RFC 9218, so that an absent one
    /// means the default.
    pub const fn ignores_guesses(&self) -> bool {
        self.extensible
    }

    /// Number of open requests.
    pub fn open(&self) -> usize {
        self.requests.len()
    }

    /// Counts since the beginning.
    pub const fn counters(&self) -> SignalCounters {
        self.counters
    }

    /// Counts of the tree of weights.
    pub const fn tree_counters(&self) -> TreeCounters {
        self.tree.counters()
    }

    /// Updates of requests that have not arrived.
    pub const fn waiting(&self) -> &Updates {
        &self.updates
    }

    /// Parses a field; `None` if it has no line. An unusable one is empty: only its absence could be
    /// taken for a client without RFC 9218.
    fn field<'a>(&mut self, lines: impl IntoIterator<Item = &'a [u8]>) -> Option<PriorityField> {
        let mut lines = lines.into_iter().peekable();
        lines.peek()?;
        let parsed = PriorityField::combine(lines);
        self.counters.malformed += u64::from(parsed.is_err());
        Some(parsed.unwrap_or_default())
    }

    /// Notes that the caller knows the decision for a request.
    fn settle(&mut self, stream: StreamId) {
        // It is empty but for clients that change their mind.
        if !self.changed.is_empty() {
            self.changed.remove(&stream);
        }
    }

    /// Adds what the connection knows to the signals of a request.
    fn complete(&self, stream: StreamId, evidence: Evidence) -> Evidence {
        let weights = if self.no_weights { None } else { self.tree.urgency(stream) };
        Evidence { extensible: self.extensible, weights, ..evidence }
    }

    /// Decides again about a request, if it is open.
    fn decide(&mut self, stream: StreamId) {
        let Some(Request { evidence, decision }) = self.requests.get(stream).copied() else { return };
        let evidence = self.complete(stream, evidence);
        let new = evidence.decide();
        self.requests.insert(stream, Request { evidence, decision: new });
        if new != decision {
            self.changed.insert(stream);
        }
    }

    fn decide_all(&mut self) {
        let streams: Vec<StreamId> = self.requests.iter().map(|(stream, _)| stream).collect();
        for stream in streams {
            self.decide(stream);
        }
    }

    fn show_extensible(&mut self) {
        if !self.extensible {
            self.extensible = true;
            self.decide_all();
        }
    }
}

/// Error returned when a client of HTTP/2 has prioritised more streams than it may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("more than {limit} streams are open or prioritised: close the connection with PROTOCOL_ERROR")]
pub struct UpdateError {
    /// Most open requests.
    pub limit: usize,
}

impl UpdateError {
    /// Code with which the connection is closed (RFC 9218 §7.1).
    pub const fn code(self) -> ErrorCode {
        ErrorCode::Http2Protocol
    }
}

/// Error returned when a request is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The stream has an open request.
    #[error("the stream has an open request: close that one first")]
    AlreadyOpen,
    /// The limit of open requests is reached.
    #[error("{limit} requests are open already: refuse this stream, or close a request")]
    TooMany {
        /// Most open requests.
        limit: usize,
    },
}

/// Error returned when a stream has no open request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the stream has no open request: forget the stream")]
pub struct UnknownRequest;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::decision::Source;
    use crate::tree::{Dependency, Weight};
    use proptest::prelude::*;

    const NONE: [&[u8]; 0] = [];

    fn update(stream: u64, value: &str) -> Update {
        Update { stream: StreamId(stream), field: PriorityField::parse(value.as_bytes()).unwrap() }
    }

    fn guess(value: &str) -> Option<Guess> {
        let parameters = PriorityField::parse(value.as_bytes()).unwrap().parameters();
        Some(Guess { parameters, source: Source::Destination })
    }

    fn weighted(parent: u64, weight: u16, exclusive: bool) -> Dependency {
        Dependency { parent: StreamId(parent), weight: Weight::new(weight).unwrap(), exclusive }
    }

    fn headers(stream: u64, parent: u64, weight: u16, exclusive: bool) -> Event {
        Event::Headers { stream: StreamId(stream), dependency: Some(weighted(parent, weight, exclusive)) }
    }

    fn show(decision: Decision) -> (String, Source) {
        (decision.parameters.to_string(), decision.source)
    }

    fn changes(signals: &mut Signals) -> Vec<(u64, String)> {
        std::iter::from_fn(|| signals.next_change())
            .map(|(stream, decision)| (stream.0, decision.parameters.to_string()))
            .collect()
    }

    #[test]
    fn updates_wait_for_their_request() {
        let mut signals = Signals::new(Protocol::Http3, 10);
        signals.update(update(8, "u=5")).unwrap();
        signals.update(update(8, "u=1")).unwrap();
        assert_eq!(signals.waiting().len(), 1);
        let decision = signals.request(StreamId(8), [b"u=4, i".as_slice()], None).unwrap();
        assert_eq!(show(decision), ("u=1".into(), Source::Update));
        assert_eq!((signals.waiting().len(), signals.next_change()), (0, None));
    }

    #[test]
    fn absent_fields_mean_the_default_once_one_was_seen() {
        let mut signals = Signals::new(Protocol::Http2, 10);
        let first = signals.request(StreamId(1), NONE, guess("u=0, i")).unwrap();
        assert_eq!(show(first), ("u=0, i".into(), Source::Destination));
        signals.request(StreamId(3), [b"u=2".as_slice()], guess("u=1")).unwrap();
        let absent = signals.request(StreamId(5), NONE, guess("u=1")).unwrap();
        assert_eq!(show(absent), ("u=3".into(), Source::Default));
        // The guess for the first request is taken back.
        assert_eq!(changes(&mut signals), [(1, "u=3".into())]);
    }

    #[test]
    fn unusable_fields_are_empty_and_not_absent() {
        let mut signals = Signals::new(Protocol::Http2, 10);
        let decision = signals.request(StreamId(1), [b"u=,".as_slice()], guess("u=0")).unwrap();
        assert_eq!(show(decision), ("u=3".into(), Source::Header));
        assert_eq!((signals.counters().malformed, signals.counters().headers), (1, 1));
    }

    #[test]
    fn any_signal_of_rfc_9218_ends_guesses() {
        for event in [Event::NoRfc7540Priorities(true), Event::Update(update(9, "u=1"))] {
            let mut signals = Signals::new(Protocol::Http2, 10);
            signals.event(event).unwrap();
            let decision = signals.request(StreamId(1), NONE, guess("u=0")).unwrap();
            assert_eq!(show(decision), ("u=3".into(), Source::Default), "{event:?}");
        }
        let mut signals = Signals::new(Protocol::Http2, 10);
        signals.event(Event::NoRfc7540Priorities(false)).unwrap();
        let decision = signals.request(StreamId(1), NONE, guess("u=0")).unwrap();
        assert_eq!(decision.source, Source::Destination);
    }

    #[test]
    fn weights_are_ignored_if_the_client_says_so() {
        let mut signals = Signals::new(Protocol::Http2, 10);
        signals.event(Event::NoRfc7540Priorities(true)).unwrap();
        signals.event(headers(1, 0, 256, true)).unwrap();
        assert_eq!(signals.request(StreamId(1), NONE, None).unwrap().source, Source::Default);
        signals.event(Event::Priority { stream: StreamId(1), dependency: weighted(0, 1, true) }).unwrap();
        assert_eq!((signals.next_change(), signals.counters().reprioritised), (None, 0));
    }

    #[test]
    fn weights_that_arrived_before_the_setting_are_ignored_too() {
        let mut signals = Signals::new(Protocol::Http2, 10);
        signals.event(headers(1, 0, 256, true)).unwrap();
        signals.event(Event::NoRfc7540Priorities(true)).unwrap();
        assert_eq!(signals.request(StreamId(1), NONE, None).unwrap().source, Source::Default);
    }

    #[test]
    fn priority_frames_change_decisions() {
        let mut signals = Signals::new(Protocol::Http2, 10);
        signals.event(headers(1, 0, 147, true)).unwrap();
        let decision = signals.request(StreamId(1), NONE, guess("u=2, i")).unwrap();
        assert_eq!(show(decision), ("u=3, i".into(), Source::Weights));
        let raised = Event::Priority { stream: StreamId(1), dependency: weighted(0, 220, true) };
        signals.event(raised).unwrap();
        signals.event(raised).unwrap();
        assert_eq!(changes(&mut signals), [(1, "u=1, i".into())]);
        assert_eq!(signals.counters().reprioritised, 1);
    }

    #[test]
    fn moved_groups_change_their_members() {
        let mut signals = Signals::new(Protocol::Http2, 10);
        signals.event(Event::Priority { stream: StreamId(3), dependency: weighted(0, 201, false) }).unwrap();
        for stream in [15, 17] {
            signals.event(headers(stream, 3, 22, false)).unwrap();
            signals.request(StreamId(stream), NONE, None).unwrap();
        }
        signals.event(Event::Priority { stream: StreamId(3), dependency: weighted(0, 1, false) }).unwrap();
        assert_eq!(changes(&mut signals), [(15, "u=6".into()), (17, "u=6".into())]);
    }

    #[test]
    fn a_group_that_opens_is_none_for_its_members() {
        let mut signals = Signals::new(Protocol::Http2, 10);
        signals.event(Event::Priority { stream: StreamId(21), dependency: weighted(0, 241, false) }).unwrap();
        signals.event(headers(15, 21, 220, false)).unwrap();
        let decision = signals.request(StreamId(15), NONE, None).unwrap();
        assert_eq!(show(decision), ("u=0".into(), Source::Weights));
        signals.event(headers(21, 0, 16, false)).unwrap();
        // The weight alone tells the urgency now.
        assert_eq!(changes(&mut signals), [(15, "u=1".into())]);
    }

    #[test]
    fn responses_add_the_origins_field_and_a_better_guess() {
        let mut signals = Signals::new(Protocol::Http2, 10);
        signals.request(StreamId(1), NONE, guess("u=2, i")).unwrap();
        assert_eq!(signals.guess(StreamId(1)), guess("u=2, i"));
        let decision = signals.response(StreamId(1), NONE, guess("u=4, i")).unwrap();
        assert_eq!(show(decision), ("u=4, i".into(), Source::Destination));
        let decision = signals.response(StreamId(1), [b"u=1".as_slice()], None).unwrap();
        assert_eq!(show(decision), ("u=1, i".into(), Source::Origin));
        // A later update does not replace what the origin has set.
        signals.update(update(1, "u=6")).unwrap();
        assert_eq!(changes(&mut signals), [(1, "u=1".into())]);
        assert_eq!(signals.response(StreamId(3), NONE, None), Err(UnknownRequest));
    }

    #[test]
    fn guesses_count_until_the_client_has_shown_a_signal() {
        let decisions = |guess: Option<Guess>, signal: bool| {
            let mut signals = Signals::new(Protocol::Http2, 10);
            if signal {
                signals.request(StreamId(1), [b"u=1".as_slice()], None).unwrap();
            }
            let request = signals.request(StreamId(3), NONE, guess).unwrap();
            let response = signals.response(StreamId(3), NONE, guess).unwrap();
            (signals.ignores_guesses(), show(request), show(response))
        };
        let default = ("u=3".to_owned(), Source::Default);
        assert_eq!(decisions(guess("u=5"), true), (true, default.clone(), default.clone()));
        assert_eq!(decisions(None, true), (true, default.clone(), default));
        let guessed = ("u=5".to_owned(), Source::Destination);
        assert_eq!(decisions(guess("u=5"), false), (false, guessed.clone(), guessed));
    }

    #[test]
    fn late_updates_are_discarded() {
        let mut signals = Signals::new(Protocol::Http2, 10);
        signals.request(StreamId(5), NONE, None).unwrap();
        signals.close(StreamId(5)).unwrap();
        signals.update(update(5, "u=1")).unwrap();
        signals.update(update(3, "u=1")).unwrap();
        assert_eq!((signals.counters().late_updates, signals.waiting().len()), (2, 0));
        assert_eq!(signals.close(StreamId(5)), Err(UnknownRequest));
    }

    #[test]
    fn updates_of_skipped_streams_are_forgotten() {
        let mut signals = Signals::new(Protocol::Http2, 10);
        signals.update(update(3, "u=1")).unwrap();
        signals.update(update(5, "u=1")).unwrap();
        signals.request(StreamId(5), NONE, None).unwrap();
        assert!(signals.waiting().is_empty());
        let mut signals = Signals::new(Protocol::Http3, 10);
        signals.update(update(4, "u=1")).unwrap();
        signals.request(StreamId(8), NONE, None).unwrap();
        assert!(signals.waiting().contains(StreamId(4)));
    }

    #[test]
    fn http2_clients_may_prioritise_as_many_as_they_may_open() {
        let mut signals = Signals::new(Protocol::Http2, 2);
        signals.request(StreamId(1), NONE, None).unwrap();
        signals.update(update(3, "u=1")).unwrap();
        signals.update(update(3, "u=2")).unwrap();
        let error = signals.update(update(5, "u=2")).unwrap_err();
        assert_eq!((error, error.code()), (UpdateError { limit: 2 }, ErrorCode::Http2Protocol));
        signals.close(StreamId(1)).unwrap();
        assert_eq!(signals.update(update(5, "u=2")), Ok(()));
    }

    #[test]
    fn http3_updates_beyond_the_limit_drop_the_oldest() {
        let mut signals = Signals::new(Protocol::Http3, 2);
        for stream in [0, 4, 8] {
            signals.update(update(stream, "u=1")).unwrap();
        }
        assert_eq!((signals.waiting().len(), signals.waiting().dropped()), (2, 1));
    }

    #[test]
    fn requests_have_a_limit() {
        let mut signals = Signals::new(Protocol::Http2, 1);
        signals.request(StreamId(1), NONE, None).unwrap();
        assert_eq!(signals.request(StreamId(1), NONE, None), Err(RequestError::AlreadyOpen));
        assert_eq!(signals.request(StreamId(3), NONE, None), Err(RequestError::TooMany { limit: 1 }));
        signals.close(StreamId(1)).unwrap();
        assert_eq!((signals.open(), signals.decision(StreamId(1))), (0, None));
        assert!(signals.request(StreamId(3), NONE, None).is_ok());
    }

    proptest! {
        #[test]
        fn tables_stay_bounded_and_decisions_current(
            http3 in any::<bool>(),
            limit in 0..5_usize,
            steps in proptest::collection::vec((0..8_u8, 0..16_u64, 0..16_u64, any::<u8>()), 0..120),
        ) {
            let protocol = if http3 { Protocol::Http3 } else { Protocol::Http2 };
            let mut signals = Signals::new(protocol, limit);
            let mut known = BTreeMap::new();
            for (step, stream, parent, byte) in steps {
                let stream = StreamId(stream);
                let dependency =
                    Dependency { parent: StreamId(parent), weight: Weight::from_wire(byte), exclusive: byte & 1 == 0 };
                let value = format!("u={}", byte & 7);
                match step {
                    0 => drop(signals.event(Event::Headers { stream, dependency: Some(dependency) })),
                    1 => drop(signals.event(Event::Priority { stream, dependency })),
                    2 => drop(signals.update(update(stream.0, &value))),
                    3 => if let Ok(decision) = signals.request(stream, NONE, guess(&value)) {
                        known.insert(stream, decision);
                    },
                    4 => if let Ok(decision) = signals.request(stream, [value.as_bytes()], None) {
                        known.insert(stream, decision);
                    },
                    5 => if let Ok(decision) = signals.response(stream, [value.as_bytes()], None) {
                        known.insert(stream, decision);
                    },
                    6 => if signals.close(stream).is_ok() {
                        known.remove(&stream);
                    },
                    _ => drop(signals.event(Event::NoRfc7540Priorities(byte < 40))),
                }
                known.extend(std::iter::from_fn(|| signals.next_change()));
                prop_assert_eq!(known.len(), signals.open());
                for (stream, decision) in &known {
                    prop_assert_eq!(signals.decision(*stream), Some(*decision));
                }
                prop_assert!(signals.open() <= limit && signals.waiting().len() <= limit);
                prop_assert!(signals.tree.len() <= limit + Tree::MAX_GROUPS);
            }
        }
    }
}
