//! Streams that carry messages: opening them, and writing to them.
//!
//! A message is sent in ranges of 128 KiB, one stream each, because for each packet the engine searches all
//! the data that it holds of a stream. Copies of a range use neighbouring streams. The header of each copy
//! gives the payload offset of all, so the receiver can merge them even if some headers are lost
//! (`docs/wire.md`).

use bytes::Bytes as Payload;
use marcato_sched::lane::{LaneId, LaneSet};
use marcato_units::Bytes;
use marcato_wire::{Duplicate, Exchange, Frame, MAX_FRAME_HEADER, MAX_SINGLE_HEADER, MessageFrame};
use noq_proto::{Dir, StreamId, WriteError};

use super::{Session, engine_priority};
use crate::config::StreamUse;
use crate::outbox::{Carrier, Key, Outgoing, Role, Run};

/// Result of handing a chunk to the engine.
pub(super) enum Written {
    /// Bytes of the message that the engine accepted.
    Some(u64),
    /// There is no flow-control credit.
    Blocked,
    /// The receiver wants no more of the message, or the stream is closed.
    Refused,
}

impl Session {
    /// Returns the most bytes that the header before the chunk at `offset` may take.
    pub(super) fn header_len(&self, key: Key, offset: u64) -> u64 {
        let Some(message) = self.outbox.get(key) else { return MAX_FRAME_HEADER as u64 };
        if message.unreliable || message.carrier_of(Role::Main, offset).is_some() {
            return 0;
        }
        let most = if message.exchange == Exchange::None { MAX_SINGLE_HEADER } else { MAX_FRAME_HEADER };
        most as u64
    }

    pub(super) fn header_left(&self, key: Key, stream: StreamId) -> u64 {
        let message = self.outbox.get(key);
        let carrier = message.and_then(|message| message.carriers.iter().find(|it| it.stream == stream));
        carrier.map_or(0, |carrier| carrier.header.len() as u64)
    }

    /// Returns the run that a new stream carries. A stream for reuse is free only when all of its
    /// message has arrived: a message on several could exceed the streams that the peer allows.
    fn run_from(&self, start: u64, message: &Outgoing) -> Run {
        match self.config.streams {
            StreamUse::Reuse if message.part.is_none() => Run { start, end: message.len() },
            _ => Run::from(start, message.len()),
        }
    }

    /// Returns the stream that carries the data from `offset` on, and its run; opens the stream if
    /// necessary.
    pub(super) fn main_carrier(&mut self, key: Key, offset: Bytes) -> Option<(StreamId, Run)> {
        let message = self.outbox.get(key)?;
        if let Some(main) = message.carrier_of(Role::Main, offset.get()) {
            return Some((main.stream, main.run));
        }
        let run = self.run_from(offset.get(), message);
        let last = message.ends_with(run);
        Some((self.open_carrier(key, Role::Main, run, last, None)?, run))
    }

    /// Returns the stream that carries the data from `offset` on, its run, and the lane that the
    /// stream has to itself. Opens streams for the copies on the other lanes if there are none yet.
    pub(super) fn copied_carriers(
        &mut self,
        key: Key,
        offset: Bytes,
        lanes: LaneSet,
    ) -> Option<(StreamId, Run, LaneId)> {
        let message = self.outbox.get(key)?;
        let at = offset.get();
        if !message.carriers.iter().any(|carrier| carrier.role != Role::Repair && carrier.run.contains(at)) {
            let run = self.run_from(at, message);
            let last = message.ends_with(run);
            let copies = u8::try_from(lanes.len()).ok()?;
            let announced = self.config.streams == StreamUse::PerMessage || message.part.is_some();
            let duplicate = |index| announced.then_some(Duplicate { index, copies });
            let home = lanes.first()?;
            let main = self.open_carrier(key, Role::Main, run, last, duplicate(0))?;
            for (index, lane) in (1..).zip(lanes.without(LaneSet::one(home)).iter()) {
                // Without credit for another stream, the run has no copy there.
                self.open_carrier(key, Role::Copy(lane), run, last, duplicate(index));
            }
            return Some((main, run, home));
        }
        let copied: LaneSet = message
            .carriers
            .iter()
            .filter(|carrier| carrier.run.contains(at))
            .filter_map(|carrier| if let Role::Copy(lane) = carrier.role { Some(lane) } else { None })
            .collect();
        let (main, run) = self.main_carrier(key, offset)?;
        Some((main, run, lanes.without(copied).first().or(lanes.first())?))
    }

    /// Opens a stream for a run of a message; `None` if the peer allows none now.
    pub(super) fn open_carrier(
        &mut self,
        key: Key,
        role: Role,
        run: Run,
        last: bool,
        duplicate: Option<Duplicate>,
    ) -> Option<StreamId> {
        let part = self.outbox.get(key)?.part;
        // A stream for reuse is free only when all of its message has arrived, so parts would wait
        // for parts.
        let reuse = self.config.streams == StreamUse::Reuse && role != Role::Repair && part.is_none();
        let idle = if reuse { self.outbox.idle_stream() } else { None };
        let dir = if reuse { Dir::Bi } else { Dir::Uni };
        if !self.credit.allows_streams() && idle.is_none() {
            return None;
        }
        let fresh = || self.conn.streams().open(dir).inspect(|_| self.stats.streams += 1);
        let Some(stream) = idle.or_else(fresh) else {
            // None opens before the peer allows more. Messages already begun continue; the peer may
            // allow none until they end.
            self.credit.stop_streams();
            self.send.request_look();
            return None;
        };
        let id = self.outbox.number(key)?;
        let early = self.is_restricted();
        let message = self.outbox.get(key)?;
        let (priority, base) = (message.priority, message.base());
        let (report, exchange) = (message.report, message.exchange);
        let len = Bytes::new(message.payload(run).len() as u64);
        if message.awaits_report() && message.is_new() {
            self.reports.expect(id, message.id);
        }
        self.stats.early += u64::from(early && message.is_new());
        let frame = Frame::Message(MessageFrame {
            id,
            priority: self.outbox.announced_priority(key)?,
            offset: Bytes::new(base + run.start),
            len,
            last,
            receipt: reuse,
            report,
            exchange,
            duplicate,
        });
        let mut header = [0; MAX_FRAME_HEADER];
        let len = frame.encode(&mut header).ok()?;
        let header = Payload::copy_from_slice(&header[..len]);
        let _ = self.conn.send_stream(stream).set_priority(engine_priority(priority));
        let carrier =
            Carrier { stream, role, run, written: run.start, header, acknowledged: false, ended: false };
        self.outbox.add_carrier(key, carrier);
        Some(stream)
    }

    /// Stops the copies on these lanes, because some chunk was not sent twice.
    pub(super) fn end_copies(&mut self, key: Key, lanes: LaneSet) {
        let Some(message) = self.outbox.get_mut(key).filter(|message| message.is_copied()) else { return };
        for carrier in &mut message.carriers {
            if let Role::Copy(lane) = carrier.role {
                carrier.ended |= lanes.contains(lane);
            }
        }
    }

    /// Writes a chunk, preceded by its frame header if still unsent, and finishes the stream if it
    /// is the last.
    pub(super) fn write(&mut self, key: Key, stream: StreamId, chunk: Run) -> Written {
        let Some(message) = self.outbox.get_mut(key) else { return Written::Refused };
        let body = message.payload(chunk);
        let is_empty = message.body.is_empty();
        let single = self.config.streams == StreamUse::PerMessage || message.part.is_some();
        let Some(carrier) = message.carrier_mut(stream) else { return Written::Refused };
        let header = carrier.header.clone();
        let mut chunks = [header.clone(), body];
        let taken = match self.conn.send_stream(stream).write_chunks(&mut &mut chunks[..]) {
            Ok(taken) => taken,
            Err(WriteError::Blocked) => return Written::Blocked,
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return Written::Refused,
        };
        let of_header = taken.min(header.len());
        carrier.header = header.slice(of_header..);
        // An empty message has left with its header.
        let written = if is_empty && carrier.header.is_empty() { 1 } else { (taken - of_header) as u64 };
        carrier.written += written;
        let finished = carrier.written == carrier.run.end;
        if finished && (single || carrier.role == Role::Repair) {
            let _ = self.conn.send_stream(stream).finish();
        }
        Written::Some(written)
    }
}
