//! Receiving side of a session: merges stream bytes, in any order of arrival, into messages.
//!
//! A message may arrive on several streams at once: full copies over several lanes, or ranges that
//! were sent again because a lane stalled. The inbox merges them by message and offset. It hands
//! each byte out once and in order, the most urgent message first, and reports the streams that are
//! no longer needed. The rules are those of `docs/wire.md`.
//!
//! **Order does not matter.** Chunks of a stream may arrive in any order and more than once. Once
//! the header of a frame is known, the inbox places its payload, even if earlier payload is
//! missing. Bytes that arrive ahead of their header are *parked*. If the header of a copy is lost,
//! the header of another copy on a neighbouring stream replaces it.
//!
//! **Payload is never copied**, only cut ([`Payload::slice`]). Where copies overlap, the first to
//! arrive counts. Comparing later bytes would require keeping those handed out, so equality is not
//! checked.
//!
//! **Everything a peer can grow has a limit** ([`InboxLimits`]): some are back-pressure
//! ([`wants_data`](Inbox::wants_data)), the others fatal. A chunk costs O(log n) in the pieces
//! held, plus the pieces that it overlaps.

mod assembly;
mod error;
mod limits;
mod output;
mod ranges;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes as Payload;
use marcato_units::{Bytes, Priority};
use marcato_wire::{Decoded, Duplicate, Frame, MAX_FRAME_HEADER, MessageFrame, MessageNumber, VarInt};

use assembly::{Assembly, Held};
pub use error::InboxError;
pub use limits::{InboxLimit, InboxLimits};
pub use output::{Action, InboxCounters, InboxLoad, Piece};
pub(crate) use ranges::RangeSet;
pub use stream::Side;
use stream::{Body, Kind, Stream, is_bidirectional};

/// Length of `bytes`, as an offset in a stream or message.
fn length(bytes: &Payload) -> u64 {
    bytes.len() as u64
}

/// Cuts the first `len` bytes off, or all if they are fewer.
fn cut(bytes: &mut Payload, len: u64) -> Payload {
    bytes.split_to(usize::try_from(len).map_or(bytes.len(), |len| len.min(bytes.len())))
}

/// Frame known from the header of another copy.
#[derive(Clone, Copy, Debug)]
struct Hint {
    frame: MessageFrame,
    /// Offset in its stream at which the frame begins.
    at: u64,
    /// Offset in its stream at which the payload begins.
    start: u64,
}

/// Merges the bytes of streams into messages.
///
/// ```
/// use bytes::Bytes;
/// use marcato_quic::inbox::{Inbox, InboxLimits, Side};
/// let mut inbox = Inbox::new(Side::Server, InboxLimits::default());
/// // Message 7, P0, its whole 5 bytes; what comes first is the end of the stream.
/// inbox.stream_data(2, 8, Bytes::from_static(b"llo"))?;
/// assert_eq!(inbox.read(), None);
/// inbox.stream_data(2, 0, Bytes::from_static(b"\x01\x07\x00\x01\x00\x05he"))?;
/// inbox.stream_finished(2, 11)?;
/// assert_eq!(inbox.read().map(|piece| piece.bytes), Some(Bytes::from_static(b"he")));
/// let piece = inbox.read();
/// assert!(piece.is_some_and(|piece| piece.last && piece.offset.get() == 2));
/// # Ok::<(), marcato_quic::inbox::InboxError>(())
/// ```
#[derive(Debug)]
pub struct Inbox {
    side: Side,
    limits: InboxLimits,
    /// Set while the handshake is not complete.
    early: bool,
    /// Streams with missing bytes.
    streams: BTreeMap<u64, Stream>,
    /// Streams that are finished or no longer needed, by their number within their kind.
    closed: [RangeSet; 4],
    control: Option<u64>,
    /// Frames known from other copies, by the stream that carries them.
    hints: BTreeMap<u64, Hint>,
    /// Messages that are open, or complete and not wholly read.
    messages: BTreeMap<MessageNumber, Assembly>,
    /// Messages that are complete or were abandoned.
    settled: RangeSet,
    /// Messages with data to read, most urgent first.
    readable: BTreeSet<(Priority, MessageNumber)>,
    actions: VecDeque<Action>,
    load: InboxLoad,
    counters: InboxCounters,
    failed: Option<InboxError>,
}

impl Inbox {
    /// Creates an inbox for the end `side` of a connection.
    pub fn new(side: Side, limits: InboxLimits) -> Self {
        Self {
            side,
            limits,
            early: false,
            streams: BTreeMap::new(),
            closed: Default::default(),
            control: None,
            hints: BTreeMap::new(),
            messages: BTreeMap::new(),
            settled: RangeSet::default(),
            readable: BTreeSet::new(),
            actions: VecDeque::new(),
            load: InboxLoad::default(),
            counters: InboxCounters::default(),
            failed: None,
        }
    }

    /// Sets whether what is added from now on is early data, added before the handshake is complete
    /// (RFC 8446 §2.3). Initially it is not.
    pub fn set_early(&mut self, early: bool) {
        self.early = early;
    }

    /// Accepts `bytes` that arrived on `stream`; their first has the given `offset` in the stream.
    ///
    /// Chunks may come in any order, overlap and be repeated. Bytes of streams that are no longer
    /// needed are ignored.
    ///
    /// # Errors
    /// [`InboxError`] if the peer broke a rule or exceeded a limit. The connection is then lost:
    /// every later call of this, [`stream_finished`](Self::stream_finished) and
    /// [`stream_reset`](Self::stream_reset) returns the same error.
    pub fn stream_data(&mut self, stream: u64, offset: u64, bytes: Payload) -> Result<(), InboxError> {
        self.unless_failed(|inbox| inbox.data(stream, offset, bytes))
    }

    /// Records that `stream` ends at `final_size`: its FIN arrived. Earlier bytes may still be
    /// missing.
    ///
    /// # Errors
    /// The errors of [`stream_data`](Self::stream_data).
    pub fn stream_finished(&mut self, stream: u64, final_size: u64) -> Result<(), InboxError> {
        self.unless_failed(|inbox| inbox.finished(stream, final_size))
    }

    /// Records that the peer reset `stream`. Its bytes that arrived count, except those parked for
    /// a header.
    ///
    /// # Errors
    /// The errors of [`stream_data`](Self::stream_data).
    pub fn stream_reset(&mut self, stream: u64) -> Result<(), InboxError> {
        self.unless_failed(|inbox| inbox.reset(stream))
    }

    /// Takes the next piece of the most urgent readable message; `None` if nothing can be read now.
    /// Among messages of one priority, the one that the peer began first goes first.
    ///
    /// The pieces of a message come in order and without gap or overlap; the last is marked.
    pub fn read(&mut self) -> Option<Piece> {
        let &(priority, number) = self.readable.first()?;
        let message = self.messages.get_mut(&number)?;
        let (before, report, exchange, early) =
            (message.held(), message.report, message.exchange, message.early);
        let (offset, bytes, last) = message.read();
        self.load.replace(before, message.held());
        if last || !message.is_readable() {
            self.readable.remove(&(priority, number));
        }
        if last {
            self.messages.remove(&number);
            // If the inbox failed between the last byte and the settling, the message was not
            // counted.
            self.load.unread_messages = self.load.unread_messages.saturating_sub(1);
        }
        Some(Piece {
            message: number,
            priority,
            report,
            exchange,
            early,
            offset: Bytes::new(offset),
            bytes,
            last,
        })
    }

    /// Returns whether [`read`](Self::read) would return a piece: bytes, or the end of a message.
    pub fn is_readable(&self) -> bool {
        !self.readable.is_empty()
    }

    /// Takes the next action, in the order in which they arose. Poll until `None` after each input.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns whether the session should read from the engine. If not, it [reads](Self::read)
    /// first, or leaves all data in the engine so that flow control slows the peer down. Ask before
    /// every [`stream_data`](Self::stream_data).
    ///
    /// It is never false while nothing can be read, so a caller that waits for it cannot wait
    /// forever.
    pub fn wants_data(&self) -> bool {
        let InboxLimits { unread, unread_pieces, unread_messages, .. } = self.limits;
        self.readable.is_empty()
            || (self.load.unread < unread
                && self.load.unread_pieces < unread_pieces
                && self.load.unread_messages < unread_messages)
    }

    /// Returns the counters since the inbox was created.
    pub fn counters(&self) -> &InboxCounters {
        &self.counters
    }

    /// Returns the current load.
    pub fn load(&self) -> InboxLoad {
        InboxLoad {
            open_messages: self.messages.len().saturating_sub(self.load.unread_messages),
            streams: self.streams.len(),
            hints: self.hints.len(),
            id_gaps: self.settled.gaps(),
            actions: self.actions.len(),
            ..self.load
        }
    }

    fn unless_failed(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<(), InboxError>,
    ) -> Result<(), InboxError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = step(self).and_then(|()| self.check_limits());
        self.failed = result.err();
        result
    }
}

/// Input from the peer.
impl Inbox {
    fn data(&mut self, id: u64, offset: u64, bytes: Payload) -> Result<(), InboxError> {
        let kind = self.kind(id)?;
        // RFC 9000 §19.8: the largest offset of a stream is 2^62 - 1.
        let end = offset.checked_add(length(&bytes)).filter(|&end| end <= VarInt::MAX.get());
        let end = end.ok_or(InboxError::StreamTooLong { stream: id })?;
        if bytes.is_empty() {
            return Ok(());
        }
        if self.is_closed(id) {
            self.counters.late += Bytes::new(length(&bytes));
            return Ok(());
        }
        let stream = self.streams.entry(id).or_insert_with(|| Stream::new(kind));
        if stream.final_size.is_some_and(|last| end > last) {
            return Err(InboxError::FinalSize { stream: id, end });
        }
        stream.reach = stream.reach.max(end);
        let mut new = 0;
        let mut at = offset;
        // Only bytes that are new to the stream continue.
        while let Some(stream) = self.streams.get_mut(&id)
            && let Some((from, to)) = stream.seen.first_gap(at, end)
        {
            let gaps = stream.seen.gaps();
            stream.seen.insert(from, to);
            self.load.gaps = self.load.gaps + stream.seen.gaps() - gaps;
            if stream.seen.gaps() > self.limits.gaps_per_stream {
                return Err(limit(InboxLimit::GapsPerStream, self.limits.gaps_per_stream));
            }
            let mut rest = bytes.slice(..);
            cut(&mut rest, from - offset);
            self.place(id, from, cut(&mut rest, to - from))?;
            new += to - from;
            at = to;
        }
        self.counters.repeated += Bytes::new(length(&bytes) - new);
        self.go_on(id)
    }

    fn finished(&mut self, id: u64, end: u64) -> Result<(), InboxError> {
        let kind = self.kind(id)?;
        if end > VarInt::MAX.get() {
            return Err(InboxError::StreamTooLong { stream: id });
        }
        if self.is_closed(id) {
            return Ok(());
        }
        let stream = self.streams.entry(id).or_insert_with(|| Stream::new(kind));
        // RFC 9000 §4.5: the final size never changes, and no data lies beyond it.
        if stream.reach > end || stream.final_size.is_some_and(|last| last != end) {
            return Err(InboxError::FinalSize { stream: id, end });
        }
        stream.final_size = Some(end);
        self.go_on(id)
    }

    fn reset(&mut self, id: u64) -> Result<(), InboxError> {
        self.kind(id)?;
        if self.is_closed(id) {
            return Ok(());
        }
        self.counters.resets += 1;
        self.close(id)
    }

    /// Returns the kind of a stream by its id.
    fn kind(&self, id: u64) -> Result<Kind, InboxError> {
        let kind = Kind::of(id, self.side).filter(|_| id <= VarInt::MAX.get());
        kind.ok_or(InboxError::NotReceiving { stream: id })
    }

    fn is_closed(&self, id: u64) -> bool {
        self.closed_like(id).contains(id >> 2)
    }

    fn closed_like(&self, id: u64) -> &RangeSet {
        let [a, b, c, d] = &self.closed;
        match id & 3 {
            0 => a,
            1 => b,
            2 => c,
            _ => d,
        }
    }
}

/// Streams.
impl Inbox {
    /// Places bytes of a stream, which begin at `at` and are new to it: parks or delivers them.
    fn place(&mut self, id: u64, mut at: u64, mut bytes: Payload) -> Result<(), InboxError> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let (known, start, end) = match &stream.body {
            // The own header of an announced body has not arrived: it is expected at the cursor.
            Some(body) if body.announced => (stream.cursor, body.start, body.end),
            Some(body) => (body.start, body.start, body.end),
            None => (stream.cursor, u64::MAX, u64::MAX),
        };
        let payload = stream.body.map(|body| body.frame);

        let late = length(&cut(&mut bytes, known.saturating_sub(at)));
        self.counters.late += Bytes::new(late);
        at += late;

        let header = cut(&mut bytes, start.saturating_sub(at));
        let header_len = length(&header);
        if header_len > 0 && stream.ended {
            return Err(InboxError::AfterMessage { stream: id, at: stream.cursor });
        }
        self.park(id, at, header)?;
        at += header_len;

        let body = cut(&mut bytes, end.saturating_sub(at));
        if !bytes.is_empty() {
            return Err(InboxError::AfterMessage { stream: id, at: end });
        }
        match payload {
            Some(frame) if !body.is_empty() => {
                self.deliver(frame.id, frame.offset.get() + (at - start), body, self.early)
            }
            _ => Ok(()),
        }
    }

    /// Parks bytes until their header arrives.
    fn park(&mut self, id: u64, at: u64, bytes: Payload) -> Result<(), InboxError> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        self.load.parked += Bytes::new(length(&bytes));
        self.load.parked_pieces += 1;
        self.counters.parked_peak = self.counters.parked_peak.max(self.load.parked);
        if self.early {
            stream.early_to = stream.early_to.max(at + length(&bytes));
        }
        stream.park(at, &bytes);
        if stream.parked_bytes > self.limits.parked_per_stream.get() {
            return Err(limit_bytes(InboxLimit::ParkedPerStream, self.limits.parked_per_stream));
        }
        Ok(())
    }

    /// Takes the next parked piece below `end`.
    fn unpark_below(&mut self, id: u64, end: u64) -> Option<(u64, Payload)> {
        let stream = self.streams.get_mut(&id)?;
        let pieces = stream.parked.len();
        let piece = stream.unpark_below(end)?;
        self.load.parked -= Bytes::new(length(&piece.1));
        self.load.parked_pieces = self.load.parked_pieces + stream.parked.len() - pieces;
        Some(piece)
    }

    /// Reads the headers that have arrived, settles messages that are complete, and closes the
    /// stream at its end.
    fn go_on(&mut self, id: u64) -> Result<(), InboxError> {
        while self.next_frame(id)? {}
        if let Some(Stream { body: Some(body), .. }) = self.streams.get(&id) {
            self.settle_if_complete(body.frame.id)?;
        }
        self.close_if_at_end(id)
    }

    /// Reads the header at the cursor, and returns whether another may follow at once.
    fn next_frame(&mut self, id: u64) -> Result<bool, InboxError> {
        let Some(stream) = self.streams.get(&id) else { return Ok(false) };
        if stream.ended || stream.body.is_some_and(|body| !body.announced) {
            return Ok(false);
        }
        let at = stream.cursor;
        let mut header = [0; MAX_FRAME_HEADER];
        let filled = stream.peek(&mut header);
        let decoded = Frame::decode(header.get(..filled).unwrap_or_default());
        let decoded = decoded.map_err(|error| InboxError::Frame { stream: id, at, error })?;
        let Decoded::Frame { frame, len } = decoded else {
            // The header does not end at the offset given by the other copy's.
            if let Some(body) = stream.body.filter(|body| at + filled as u64 >= body.start) {
                return Err(InboxError::DuplicateDiffers { stream: id, message: body.frame.id });
            }
            // A hint is of use only if bytes are parked.
            if stream.body.is_none() && !stream.parked.is_empty() {
                self.use_hint(id)?;
            }
            return Ok(false);
        };
        let start = at + len as u64;
        while self.unpark_below(id, start).is_some() {}
        self.counters.frames += 1;
        let misplaced = InboxError::Misplaced { stream: id, at };
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(false) };
        if stream.kind == Kind::Undecided {
            stream.kind = Kind::Messages;
            if !matches!(frame, Frame::Message(_)) {
                stream.kind = Kind::Control;
                if self.control.replace(id).is_some() {
                    return Err(InboxError::SecondControlStream { stream: id });
                }
            }
        }
        match (stream.kind, frame) {
            (Kind::Messages, Frame::Message(frame)) => {
                self.begin(id, frame, at, start)?;
                return Ok(false);
            }
            (Kind::Control, Frame::Reset { id: message, code }) => {
                stream.cursor = start;
                self.give_up(message, code)?;
            }
            (Kind::Control | Kind::Replies, Frame::Done { id: message }) => {
                stream.cursor = start;
                self.counters.acknowledged += 1;
                self.actions.push_back(Action::Acknowledged { stream: id, message });
            }
            (Kind::Control, Frame::Report { id: message, fate }) => {
                stream.cursor = start;
                self.counters.reported += 1;
                self.actions.push_back(Action::Reported { message, fate });
            }
            (Kind::Control, Frame::End { exchange, reason }) => {
                stream.cursor = start;
                self.counters.ended += 1;
                self.actions.push_back(Action::Ended { exchange, reason });
            }
            (Kind::Control, Frame::Finish) => {
                stream.cursor = start;
                self.actions.push_back(Action::Finished);
            }
            (Kind::Control, Frame::Hold { priority, held }) => {
                stream.cursor = start;
                self.actions.push_back(Action::Held { priority, held });
            }
            (Kind::Control, Frame::Watch { interval }) => {
                stream.cursor = start;
                self.actions.push_back(Action::Watched { interval });
            }
            (Kind::Control, Frame::Clock { time }) => {
                stream.cursor = start;
                self.actions.push_back(Action::Clock { time });
            }
            _ => return Err(misplaced),
        }
        // One chunk may contain many of these frames, so the limit is checked after each.
        self.check_limits()?;
        Ok(true)
    }

    /// Processes a MESSAGE frame whose header occupies `at` to `start`.
    fn begin(&mut self, id: u64, frame: MessageFrame, at: u64, start: u64) -> Result<(), InboxError> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if let Some(body) = &mut stream.body {
            if body.frame != frame || body.start != start {
                return Err(InboxError::DuplicateDiffers { stream: id, message: body.frame.id });
            }
            body.announced = false;
            stream.cursor = body.end;
            self.hints.remove(&id);
            return Ok(());
        }
        if let Some(hint) = self.hints.remove(&id)
            && hint.at == at
            && (hint.frame != frame || hint.start != start)
        {
            return Err(InboxError::DuplicateDiffers { stream: id, message: hint.frame.id });
        }
        self.adopt(id, frame, start, false)?;
        self.announce_duplicates(id, frame, at, start)
    }

    /// Sets the stream's current frame to `frame`, whose payload begins at `start`.
    fn adopt(&mut self, id: u64, frame: MessageFrame, start: u64, announced: bool) -> Result<(), InboxError> {
        let end = start.checked_add(frame.len.get()).filter(|&end| end <= VarInt::MAX.get());
        let end = end.ok_or(InboxError::StreamTooLong { stream: id })?;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        stream.kind = Kind::Messages;
        stream.body = Some(Body { frame, start, end, announced });
        if !announced {
            stream.cursor = end;
        }
        if stream.reach > end {
            return Err(InboxError::AfterMessage { stream: id, at: end });
        }
        match stream.final_size {
            Some(last) if last < end => return Err(InboxError::CutShort { stream: id, end: last }),
            Some(last) if last > end => return Err(InboxError::AfterMessage { stream: id, at: end }),
            _ => {}
        }
        if self.settled.contains(frame.id.0) {
            return self.dismiss(id, &mut false);
        }
        let open = self.messages.len().saturating_sub(self.load.unread_messages);
        let message = match self.messages.entry(frame.id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if open >= self.limits.open_messages => {
                return Err(limit(InboxLimit::OpenMessages, self.limits.open_messages));
            }
            Entry::Vacant(new) => new.insert(Assembly::new(&frame)),
        };
        message.admit(&frame)?;
        message.early |= self.early;
        message.carriers.insert(id);
        if message.carriers.len() > self.limits.streams_per_message {
            return Err(limit(InboxLimit::StreamsPerMessage, self.limits.streams_per_message));
        }
        // Bytes of an announced body that are parked below `start` belong to its own header.
        let header = if announced { self.take_header(id, start) } else { Vec::new() };
        while let Some((at, bytes)) = self.unpark_below(id, end) {
            let early = self.streams.get(&id).is_some_and(|stream| at < stream.early_to);
            self.deliver(frame.id, frame.offset.get() + (at - start), bytes, early)?;
        }
        for (at, bytes) in header {
            self.park(id, at, bytes)?;
        }
        self.settle_if_complete(frame.id)
    }

    /// Takes the parked bytes of a header that ends at `start`: at most as many pieces as a header
    /// has bytes.
    fn take_header(&mut self, id: u64, start: u64) -> Vec<(u64, Payload)> {
        std::iter::from_fn(|| self.unpark_below(id, start)).collect()
    }

    /// Records for the streams of the other copies which frame they carry. docs/wire.md, "Copies".
    fn announce_duplicates(
        &mut self,
        id: u64,
        frame: MessageFrame,
        at: u64,
        start: u64,
    ) -> Result<(), InboxError> {
        let Some(Duplicate { index: own, copies }) = frame.duplicate else { return Ok(()) };
        let broken = InboxError::DuplicateDiffers { stream: id, message: frame.id };
        let first = id.checked_sub(4 * u64::from(own)).ok_or(broken)?;
        for index in (0..copies).filter(|&index| index != own) {
            let other = first + 4 * u64::from(index);
            if other > VarInt::MAX.get() {
                return Err(broken);
            }
            if self.is_closed(other) {
                continue;
            }
            let known = self.streams.get(&other);
            if known.is_some_and(|stream| stream.ended || stream.cursor > at || stream.body.is_some()) {
                continue;
            }
            let frame = MessageFrame { duplicate: Some(Duplicate { index, copies }), ..frame };
            self.hints.insert(other, Hint { frame, at, start });
            if self.hints.len() > self.limits.hints {
                // Stream numbers count up, so the least is the oldest.
                self.hints.pop_first();
                self.counters.hints_evicted += 1;
            }
            if self.streams.get(&other).is_some_and(|stream| !stream.parked.is_empty()) {
                self.use_hint(other)?;
                self.close_if_at_end(other)?;
            }
        }
        Ok(())
    }

    /// Places the bytes parked on a stream by the header of another copy.
    fn use_hint(&mut self, id: u64) -> Result<(), InboxError> {
        let Some(stream) = self.streams.get(&id) else { return Ok(()) };
        let Some(&hint) = self.hints.get(&id).filter(|hint| hint.at <= stream.cursor) else { return Ok(()) };
        self.hints.remove(&id);
        if hint.at < stream.cursor {
            return Ok(());
        }
        if !matches!(stream.kind, Kind::Undecided | Kind::Messages) || stream.ended {
            return Err(InboxError::DuplicateDiffers { stream: id, message: hint.frame.id });
        }
        self.counters.announced += 1;
        self.adopt(id, hint.frame, hint.start, true)
    }

    /// Ends the use of a stream for a settled message. `answered` records that DONE was sent on the
    /// control stream.
    fn dismiss(&mut self, id: u64, answered: &mut bool) -> Result<(), InboxError> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let Some(body) = stream.body.take() else { return Ok(()) };
        stream.cursor = body.end;
        let has_arrived = stream.seen.floor() >= body.end;
        let answer_here = body.frame.receipt && is_bidirectional(id);
        stream.ended = !answer_here;
        while let Some((at, bytes)) = self.unpark_below(id, body.end) {
            if at >= body.start {
                self.counters.late += Bytes::new(length(&bytes));
            }
        }
        if answer_here || (body.frame.receipt && !std::mem::replace(answered, true)) {
            self.counters.dones += 1;
            self.actions.push_back(Action::Done { stream: id, message: body.frame.id });
        }
        if !answer_here && !has_arrived {
            self.counters.stops += 1;
            self.actions.push_back(Action::Stop { stream: id });
            return self.close(id);
        }
        self.close_if_at_end(id)
    }

    /// Closes a stream whose bytes have all arrived, or fails if it must not end there.
    fn close_if_at_end(&mut self, id: u64) -> Result<(), InboxError> {
        let Some(stream) = self.streams.get(&id) else { return Ok(()) };
        let Some(last) = stream.final_size else { return Ok(()) };
        match stream.body {
            Some(body) if last < body.end => Err(InboxError::CutShort { stream: id, end: last }),
            Some(body) if last > body.end => Err(InboxError::AfterMessage { stream: id, at: body.end }),
            None if last < stream.cursor => Err(InboxError::CutShort { stream: id, end: last }),
            None if stream.ended && last > stream.cursor => {
                Err(InboxError::AfterMessage { stream: id, at: stream.cursor })
            }
            _ if !stream.has_arrived() => Ok(()),
            // A stream that requests a receipt stays open until DONE is sent.
            Some(body) if body.frame.receipt => Ok(()),
            // The remaining bytes are an incomplete header.
            None if last > stream.cursor => Err(InboxError::CutShort { stream: id, end: last }),
            _ => self.close(id),
        }
    }

    /// Forgets a stream, except that it is closed.
    fn close(&mut self, id: u64) -> Result<(), InboxError> {
        if let Some(stream) = self.streams.remove(&id) {
            self.load.parked -= Bytes::new(stream.parked_bytes);
            self.load.parked_pieces -= stream.parked.len();
            self.load.gaps -= stream.seen.gaps();
            if let Some(body) = stream.body
                && let Some(message) = self.messages.get_mut(&body.frame.id)
            {
                message.carriers.remove(&id);
            }
        }
        self.hints.remove(&id);
        let [a, b, c, d] = &mut self.closed;
        let closed = match id & 3 {
            0 => a,
            1 => b,
            2 => c,
            _ => d,
        };
        closed.insert_one(id >> 2);
        if closed.gaps() > self.limits.streams {
            return Err(limit(InboxLimit::Streams, self.limits.streams));
        }
        Ok(())
    }
}

/// Messages.
impl Inbox {
    /// Adds `bytes` at `offset` to a message. `early` says whether they arrived before the handshake
    /// was complete.
    fn deliver(
        &mut self,
        number: MessageNumber,
        offset: u64,
        bytes: Payload,
        early: bool,
    ) -> Result<(), InboxError> {
        let Some(message) = self.messages.get_mut(&number).filter(|message| !message.is_complete()) else {
            self.counters.late += Bytes::new(length(&bytes));
            return Ok(());
        };
        message.early |= early;
        let before = message.held();
        let len = length(&bytes);
        let new = message.insert(offset, bytes);
        let held = message.held();
        self.counters.accepted += Bytes::new(new);
        self.counters.duplicate += Bytes::new(len - new);
        self.load.replace(before, held);
        self.counters.ahead_peak = self.counters.ahead_peak.max(self.load.ahead);
        self.counters.unread_peak = self.counters.unread_peak.max(self.load.unread);
        if message.is_readable() {
            self.readable.insert((message.priority, number));
        }
        if held.ahead_pieces > self.limits.ahead_pieces_per_message {
            return Err(limit(InboxLimit::AheadPiecesPerMessage, self.limits.ahead_pieces_per_message));
        }
        Ok(())
    }

    /// Settles a message once it is complete.
    fn settle_if_complete(&mut self, number: MessageNumber) -> Result<(), InboxError> {
        let Some(message) = self.messages.get_mut(&number).filter(|message| message.is_complete()) else {
            return Ok(());
        };
        if self.settled.contains(number.0) {
            return Ok(());
        }
        let carriers = std::mem::take(&mut message.carriers);
        self.readable.insert((message.priority, number));
        self.load.unread_messages += 1;
        self.counters.completed += 1;
        self.settle(number, &carriers)
    }

    /// Abandons a message at its sender's request, unless it is complete.
    fn give_up(&mut self, number: MessageNumber, code: u64) -> Result<(), InboxError> {
        if self.settled.contains(number.0) {
            return Ok(());
        }
        let mut carriers = BTreeSet::new();
        if let Some(message) = self.messages.remove(&number) {
            let held = message.held();
            self.readable.remove(&(message.priority, number));
            self.counters.discarded += Bytes::new(held.unread) + Bytes::new(held.ahead);
            self.load.replace(held, Held::default());
            carriers = message.carriers;
        }
        self.counters.given_up += 1;
        self.actions.push_back(Action::Reset { message: number, code });
        self.settle(number, &carriers)
    }

    /// Records that a message is settled, and ends the use of its streams for it.
    fn settle(&mut self, number: MessageNumber, carriers: &BTreeSet<u64>) -> Result<(), InboxError> {
        self.settled.insert_one(number.0);
        if self.settled.gaps() > self.limits.id_gaps {
            return Err(limit(InboxLimit::IdGaps, self.limits.id_gaps));
        }
        let mut answered = false;
        carriers.iter().try_for_each(|&id| self.dismiss(id, &mut answered))
    }

    /// Checks the limits that are not checked on insertion.
    fn check_limits(&self) -> Result<(), InboxError> {
        let limits = &self.limits;
        let load = &self.load;
        let counts = [
            (self.streams.len(), limits.streams, InboxLimit::Streams),
            (load.ahead_pieces + load.parked_pieces, limits.pieces, InboxLimit::Pieces),
            (load.gaps, limits.gaps, InboxLimit::Gaps),
            (self.actions.len(), limits.actions, InboxLimit::Actions),
        ];
        if let Some((_, most, which)) = counts.into_iter().find(|&(count, most, _)| count > most) {
            return Err(limit(which, most));
        }
        let bytes =
            [(load.ahead, limits.ahead, InboxLimit::Ahead), (load.parked, limits.parked, InboxLimit::Parked)];
        if let Some((_, most, which)) = bytes.into_iter().find(|&(count, most, _)| count > most) {
            return Err(limit_bytes(which, most));
        }
        // When a gap closes, bytes counted as ahead or parked become readable at once. The caller
        // could not prevent that.
        let held = load.unread + load.ahead + load.parked;
        let pieces = load.unread_pieces + load.ahead_pieces + load.parked_pieces;
        let overfed = held > limits.most_bytes()
            || pieces > limits.most_pieces()
            || self.messages.len() > limits.most_messages();
        if overfed { Err(InboxError::Overfed) } else { Ok(()) }
    }
}

impl InboxLoad {
    /// Replaces a message's share of the load.
    fn replace(&mut self, before: Held, now: Held) {
        self.unread = self.unread - Bytes::new(before.unread) + Bytes::new(now.unread);
        self.unread_pieces = self.unread_pieces - before.unread_pieces + now.unread_pieces;
        self.ahead = self.ahead - Bytes::new(before.ahead) + Bytes::new(now.ahead);
        self.ahead_pieces = self.ahead_pieces - before.ahead_pieces + now.ahead_pieces;
    }
}

fn limit(limit: InboxLimit, most: usize) -> InboxError {
    InboxError::Limit { limit, most: most as u64 }
}

fn limit_bytes(limit: InboxLimit, most: Bytes) -> InboxError {
    InboxError::Limit { limit, most: most.get() }
}
