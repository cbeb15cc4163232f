//! No streams of a peer make the inbox panic, exceed its limits, lose count of bytes, or deliver a
//! message out of order.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use marcato_quic::inbox::{Inbox, InboxError, InboxLimits, Side};
use marcato_units::{Bytes as ByteCount, Priority};
use marcato_wire::{
    Duplicate, EndReason, Exchange, Fate, Frame, MAX_FRAME_HEADER, MessageFrame, MessageNumber,
};

const LIMITS: InboxLimits = InboxLimits {
    unread: ByteCount::new(500),
    unread_pieces: 40,
    unread_messages: 6,
    open_messages: 8,
    ahead: ByteCount::new(600),
    ahead_pieces_per_message: 20,
    parked_per_stream: ByteCount::new(200),
    parked: ByteCount::new(400),
    pieces: 60,
    streams: 12,
    gaps_per_stream: 16,
    gaps: 60,
    streams_per_message: 8,
    id_gaps: 8,
    hints: 8,
    actions: 40,
};

/// The input as small numbers, with zeroes after its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// Reads a frame of small numbers.
fn frame(input: &mut Input<'_>) -> Frame {
    let id = input.byte();
    let number = MessageNumber(u64::from(id & 0x1f));
    match id >> 5 {
        0 => Frame::Reset { id: number, code: 0 },
        1 => match input.byte() % 3 {
            0 => Frame::Done { id: number },
            1 => Frame::Report { id: number, fate: Fate::Taken },
            _ => Frame::End { exchange: number.0, reason: EndReason::Withdrawn },
        },
        _ => {
            let (flags, offset, len) = (input.byte(), input.byte(), input.byte());
            Frame::Message(MessageFrame {
                id: number,
                // The same priority for each frame of a message, so that more than the first frame
                // is accepted.
                priority: Priority::ALL[usize::from(id & 0x1f) % Priority::COUNT],
                offset: ByteCount::new(u64::from(offset & 0x3f)),
                len: ByteCount::new(u64::from(len & 0x3f)),
                last: flags & 1 != 0 || len & 0x3f == 0,
                receipt: flags & 2 != 0,
                report: id & 1 != 0,
                exchange: if id & 2 != 0 { Exchange::Request(u64::from(id)) } else { Exchange::None },
                duplicate: (flags & 4 != 0)
                    .then_some(Duplicate { index: (flags >> 3) & 1, copies: 2 + (flags >> 4) % 4 }),
            })
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut inbox = Inbox::new(Side::Client, LIMITS);
    let mut sent: BTreeMap<u64, u64> = BTreeMap::new();
    let mut read_to: BTreeMap<u64, u64> = BTreeMap::new();
    let mut complete = BTreeSet::new();
    let (mut read, mut fed) = (0, 0);
    let mut failed: Option<InboxError> = None;
    while !input.0.is_empty() {
        let operation = input.byte();
        let id = u64::from(input.byte() & 0x3f);
        let end = sent.entry(id).or_default();
        let result = match operation & 7 {
            // A frame and its payload or a part of it, at the end of the stream, possibly after a
            // gap.
            0..=2 => {
                let mut header = [0; MAX_FRAME_HEADER];
                let frame = frame(&mut input);
                let len = frame.encode(&mut header).expect("small numbers can be written");
                let payload = if let Frame::Message(message) = frame { message.len.get() } else { 0 };
                let from = u64::from(operation >> 3) % (len as u64 + 1);
                let mut chunk = header[from as usize..len].to_vec();
                chunk.resize(chunk.len() + (payload as usize * usize::from(operation >> 6) / 3), 0);
                let at = *end + from;
                *end += len as u64 + payload;
                fed += chunk.len() as u64;
                inbox.stream_data(id, at, chunk.into())
            }
            // Arbitrary bytes at an arbitrary place.
            3 | 4 => {
                let at = u64::from(input.byte());
                let chunk = input.bytes(usize::from(operation >> 3));
                fed += chunk.len() as u64;
                inbox.stream_data(id, at, Bytes::copy_from_slice(chunk))
            }
            5 => inbox.stream_finished(id, if operation & 8 == 0 { *end } else { u64::from(input.byte()) }),
            6 if operation & 8 == 0 => inbox.stream_reset(id),
            6 => {
                inbox.poll();
                failed.map_or(Ok(()), Err)
            }
            _ => {
                if let Some(piece) = inbox.read() {
                    let message = piece.message.0;
                    assert!(!complete.contains(&message));
                    let read_to = read_to.entry(message).or_default();
                    assert_eq!(piece.offset.get(), *read_to);
                    *read_to += piece.bytes.len() as u64;
                    read += piece.bytes.len() as u64;
                    assert!(piece.last || !piece.bytes.is_empty());
                    if piece.last {
                        complete.insert(message);
                    }
                }
                failed.map_or(Ok(()), Err)
            }
        };
        if let Err(error) = result {
            assert_eq!(*failed.get_or_insert(error), error);
        }
        let (load, counters) = (inbox.load(), inbox.counters());
        assert_eq!(counters.accepted, ByteCount::new(read) + load.unread + load.ahead + counters.discarded);
        if failed.is_none() {
            // Frame headers are not counted in either.
            let seen =
                counters.accepted + counters.duplicate + counters.repeated + counters.late + load.parked;
            assert!(seen.get() <= fed);
            assert!(load.open_messages <= LIMITS.open_messages);
            assert!(load.open_messages + load.unread_messages <= LIMITS.most_messages());
            assert!(load.ahead <= LIMITS.ahead && load.parked <= LIMITS.parked);
            assert!(load.unread + load.ahead + load.parked <= LIMITS.most_bytes());
            assert!(load.ahead_pieces + load.parked_pieces <= LIMITS.pieces);
            assert!(load.unread_pieces + load.ahead_pieces + load.parked_pieces <= LIMITS.most_pieces());
            assert!(load.streams <= LIMITS.streams && load.gaps <= LIMITS.gaps);
            assert!(load.hints <= LIMITS.hints && load.id_gaps <= LIMITS.id_gaps);
            assert!(load.actions <= LIMITS.actions);
            assert!(inbox.wants_data() || load.unread_pieces > 0 || load.unread_messages > 0);
        }
    }
});
