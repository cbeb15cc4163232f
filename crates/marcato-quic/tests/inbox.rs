//! Each message is read once, whole and in order, whatever the order, loss and repetition of its
//! copies. The inbox stays within its limits, whatever a hostile peer sends.
#![expect(clippy::cast_possible_truncation, reason = "test numbers are small, or wrap on purpose")]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes as Payload;
use marcato_quic::inbox::{Action, Inbox, InboxError, InboxLimits, Side};
use marcato_units::{Bytes, Priority, Seed, Stream};
use marcato_wire::{
    Duplicate, EndReason, Exchange, Fate, Frame, MAX_FRAME_HEADER, MessageFrame, MessageNumber,
};
use proptest::prelude::*;

/// Byte of message `id` at `offset`.
fn byte(id: u64, offset: u64) -> u8 {
    (id.wrapping_mul(31) + offset.wrapping_mul(7) + (offset >> 8)) as u8
}

fn header(frame: Frame) -> Vec<u8> {
    let mut out = [0; MAX_FRAME_HEADER];
    let len = frame.encode(&mut out).expect("the header fits");
    out[..len].to_vec()
}

fn shuffle<T>(items: &mut [T], random: &mut Stream) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// Checks every piece that is read.
#[derive(Default)]
struct Reader {
    read_to: BTreeMap<u64, u64>,
    complete: BTreeSet<u64>,
    bytes: u64,
    /// Set if the bytes themselves may be wrong.
    lied_to: bool,
}

impl Reader {
    /// Reads one piece, and returns whether there was one.
    fn read(&mut self, inbox: &mut Inbox, priority: impl Fn(u64) -> Priority) -> bool {
        let Some(piece) = inbox.read() else { return false };
        let id = piece.message.0;
        assert!(!self.complete.contains(&id), "message {id} goes on after its last piece");
        let read_to = self.read_to.entry(id).or_default();
        assert_eq!(piece.offset.get(), *read_to, "message {id} has a gap or an overlap");
        for &got in &piece.bytes {
            assert!(self.lied_to || got == byte(id, *read_to), "message {id} at {read_to}");
            *read_to += 1;
        }
        assert!(piece.last || !piece.bytes.is_empty(), "an empty piece says nothing");
        assert_eq!(piece.priority, priority(id));
        if piece.last {
            self.complete.insert(id);
        }
        self.bytes += piece.bytes.len() as u64;
        true
    }
}

/// One stream as it was sent.
struct Sent {
    id: u64,
    frame: MessageFrame,
    header: usize,
    bytes: Payload,
    /// Number of the run; streams with the same number are copies of each other.
    run: usize,
    kept: Vec<bool>,
}

impl Sent {
    fn header_kept(&self) -> bool {
        self.kept[..self.header].iter().all(|&kept| kept)
    }
}

/// Returns whether the surviving bytes of `message`'s streams complete it.
fn is_covered(sent: &[Sent], message: u64, len: u64) -> bool {
    let of_message = || sent.iter().filter(|sent| sent.frame.id.0 == message);
    let mut covered = vec![false; len as usize];
    let mut end_known = false;
    for stream in of_message() {
        let by_duplicate = stream.frame.duplicate.is_some()
            && of_message().any(|duplicate| duplicate.run == stream.run && duplicate.header_kept());
        if stream.header_kept() || by_duplicate {
            end_known |= stream.frame.last;
            let offset = stream.frame.offset.get() as usize;
            for (at, &kept) in stream.kept[stream.header..].iter().enumerate() {
                covered[offset + at] |= kept;
            }
        }
    }
    end_known && covered.into_iter().all(|covered| covered)
}

#[derive(Clone, Debug)]
struct Spec {
    len: u64,
    priority: usize,
    /// For each run: its end as a share of 256, its copies, and whether their frames announce them.
    runs: Vec<(u8, u8, bool)>,
    /// Overlapping ranges that are retransmitted.
    again: Vec<(u64, u64)>,
    bidirectional: bool,
    receipt: bool,
}

fn spec() -> impl Strategy<Value = Spec> {
    (
        0u64..300,
        0..Priority::COUNT,
        prop::collection::vec((any::<u8>(), 1u8..=3, any::<bool>()), 0..3),
        prop::collection::vec((0u64..300, 1u64..100), 0..3),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(len, priority, mut runs, again, bidirectional, receipt)| {
            runs.push((255, 1 + runs.len() as u8, true));
            Spec { len, priority, runs, again, bidirectional, receipt }
        })
}

/// Puts the messages on streams.
fn send(specs: &[Spec]) -> Vec<Sent> {
    let mut sent: Vec<Sent> = Vec::new();
    let mut next = [3u64, 1];
    let mut run = 0;
    for (id, spec) in specs.iter().enumerate() {
        let id = id as u64;
        let mut frame = |start: u64, end: u64, copies: u8, announced: bool| {
            run += 1;
            for index in 0..copies {
                let frame = MessageFrame {
                    id: MessageNumber(id),
                    priority: Priority::ALL[spec.priority],
                    offset: Bytes::new(start),
                    len: Bytes::new(end - start),
                    last: end == spec.len,
                    receipt: spec.receipt,
                    report: spec.receipt,
                    exchange: if spec.receipt { Exchange::Request(id) } else { Exchange::None },
                    duplicate: (announced && copies > 1).then_some(Duplicate { index, copies }),
                };
                let mut bytes = header(Frame::Message(frame));
                let header = bytes.len();
                bytes.extend((start..end).map(|offset| byte(id, offset)));
                let stream = &mut next[usize::from(spec.bidirectional)];
                let kept = vec![true; bytes.len()];
                sent.push(Sent { id: *stream, frame, header, bytes: bytes.into(), run, kept });
                *stream += 4;
            }
        };
        let mut start = 0;
        for &(share, copies, announced) in &spec.runs {
            let end = if share == 255 { spec.len } else { spec.len * u64::from(share) / 256 }.max(start);
            if end > start || (spec.len == 0 && share == 255) {
                frame(start, end, copies, announced);
                start = end;
            }
        }
        if start < spec.len {
            frame(start, spec.len, 1, false);
        }
        for &(start, len) in &spec.again {
            let end = (start + len).min(spec.len);
            if start < end {
                frame(start, end, 1, false);
            }
        }
    }
    sent
}

/// Event at the receiver.
enum Event {
    /// Bytes of a stream, by their range.
    Data(usize, usize, usize),
    Fin(usize),
}

/// Cuts the streams into chunks, loses the expendable ones, repeats and shuffles the rest.
fn transmit(specs: &[Spec], sent: &mut [Sent], random: &mut Stream) -> Vec<Event> {
    let mut chunks = Vec::new();
    for (place, stream) in sent.iter().enumerate() {
        let mut at = 0;
        while at < stream.bytes.len() {
            let end = (at + 1 + random.below(40) as usize).min(stream.bytes.len());
            chunks.push((place, at, end));
            at = end;
        }
    }
    shuffle(&mut chunks, random);
    let loss = random.unit();
    chunks.retain(|&(place, at, end)| {
        if !random.chance(loss) {
            return true;
        }
        sent[place].kept[at..end].fill(false);
        let id = sent[place].frame.id.0;
        let lost = is_covered(sent, id, specs[id as usize].len);
        if !lost {
            sent[place].kept[at..end].fill(true);
        }
        !lost
    });
    let mut events = Vec::new();
    for (place, at, end) in chunks {
        events.push(Event::Data(place, at, end));
        if random.chance(0.3) {
            // A repetition of a shifted range, without bytes that were lost.
            let kept = &sent[place].kept;
            let mut from = at + random.below((end - at) as u64) as usize;
            let mut to = end;
            while random.chance(0.9) && to < kept.len() && kept[to] {
                to += 1;
            }
            while random.chance(0.9) && from > 0 && kept[from - 1] {
                from -= 1;
            }
            events.push(Event::Data(place, from, to));
        }
    }
    events.extend((0..sent.len()).filter(|_| random.chance(0.7)).map(Event::Fin));
    shuffle(&mut events, random);
    events
}

proptest! {
    #[test]
    fn each_message_is_read_once_and_whole_whatever_its_copies_lose(
        specs in prop::collection::vec(spec(), 1..6), seed: u64
    ) {
        let mut random = Seed::new(seed).stream("network");
        let mut sent = send(&specs);
        let events = transmit(&specs, &mut sent, &mut random);

        let mut inbox = Inbox::new(Side::Client, InboxLimits::default());
        let mut reader = Reader::default();
        let mut stopped = BTreeSet::new();
        let mut done: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut arrived = 0;
        for event in events {
            match event {
                Event::Data(place, at, end) => {
                    let stream = &sent[place];
                    arrived += (end - at) as u64;
                    inbox.stream_data(stream.id, at as u64, stream.bytes.slice(at..end)).unwrap();
                }
                Event::Fin(place) => {
                    inbox.stream_finished(sent[place].id, sent[place].bytes.len() as u64).unwrap();
                }
            }
            assert_consistent(&inbox);
            while random.chance(0.5) && reader.read(&mut inbox, |id| Priority::ALL[specs[id as usize].priority]) {}
            assert_consistent(&inbox);
            while let Some(action) = inbox.poll() {
                match action {
                    Action::Stop { stream } => prop_assert!(stopped.insert(stream), "{} twice", stream),
                    Action::Done { stream, message } => done.entry(message.0).or_default().push(stream),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
        while reader.read(&mut inbox, |id| Priority::ALL[specs[id as usize].priority]) {}

        for (id, spec) in specs.iter().enumerate() {
            let id = id as u64;
            prop_assert!(reader.complete.contains(&id), "message {} is not complete", id);
            prop_assert_eq!(reader.read_to.get(&id).copied().unwrap_or(0), spec.len);
            let done = done.remove(&id).unwrap_or_default();
            prop_assert_eq!(done.is_empty(), !spec.receipt);
            let streams: BTreeSet<u64> = done.iter().copied().collect();
            prop_assert!(!spec.bidirectional || streams.len() == done.len(), "DONE twice on a stream");
        }
        for stream in &sent {
            let whole = stream.kept.iter().all(|&kept| kept);
            let reusable = stream.frame.receipt && stream.id & 2 == 0;
            prop_assert!(!(reusable && stopped.contains(&stream.id)), "a stream to be reused was stopped");
            prop_assert!(
                whole || reusable || !stream.header_kept() || stopped.contains(&stream.id),
                "stream {} goes on in vain", stream.id
            );
        }
        let load = inbox.load();
        prop_assert_eq!((load.open_messages, load.unread_messages, load.unread.get(), load.ahead.get()), (0, 0, 0, 0));
        prop_assert_eq!((load.id_gaps, load.unread_pieces, load.ahead_pieces), (0, 0, 0));
        // No byte counts twice: as news, as a copy, as a repetition, or as too late.
        let counters = inbox.counters();
        let counted = counters.accepted + counters.duplicate + counters.repeated + counters.late + load.parked;
        prop_assert!(counted.get() <= arrived, "{:?} of {}", counters, arrived);
        prop_assert!(counters.frames as usize <= sent.len());
        prop_assert_eq!(counters.stops as usize, stopped.len());
        prop_assert_eq!(inbox.counters().accepted.get(), specs.iter().map(|spec| spec.len).sum::<u64>());
        prop_assert_eq!(inbox.counters().completed, specs.len() as u64);
    }
}

/// Length of a hostile peer's longest stream: a frame of at most 380 bytes, or two, or twenty
/// without payload.
const LONGEST_CHUNK: u64 = 900;

/// Limits that a few bytes reach.
fn tight(random: &mut Stream) -> InboxLimits {
    let scale = 1 + random.below(20);
    let mut small = |most: u64| 1 + random.below(most * scale) as usize;
    InboxLimits {
        // No chunk is longer than this, so a caller that may still feed one stays below twice the
        // limit.
        unread: Bytes::new(LONGEST_CHUNK + small(400) as u64),
        unread_pieces: small(40),
        unread_messages: small(8),
        open_messages: small(12),
        ahead: Bytes::new(small(600) as u64),
        ahead_pieces_per_message: small(60),
        parked_per_stream: Bytes::new(small(200) as u64),
        parked: Bytes::new(small(600) as u64),
        pieces: small(100),
        streams: small(40),
        gaps_per_stream: small(40),
        gaps: small(120),
        streams_per_message: small(12),
        id_gaps: small(12),
        hints: small(20),
        actions: small(60),
    }
}

/// Checks that the load is within the limits: exactly, because a step that would exceed one fails.
fn assert_bounded(inbox: &Inbox, limits: &InboxLimits) {
    let load = inbox.load();
    assert!(load.open_messages <= limits.open_messages, "{load:?}");
    assert!(load.open_messages + load.unread_messages <= limits.most_messages(), "{load:?}");
    assert!(load.ahead <= limits.ahead && load.parked <= limits.parked, "{load:?}");
    assert!(load.unread + load.ahead + load.parked <= limits.most_bytes(), "{load:?}");
    assert!(load.ahead_pieces + load.parked_pieces <= limits.pieces, "{load:?}");
    assert!(load.unread_pieces + load.ahead_pieces + load.parked_pieces <= limits.most_pieces(), "{load:?}");
    assert!(load.streams <= limits.streams && load.gaps <= limits.gaps, "{load:?}");
    assert!(load.hints <= limits.hints && load.id_gaps <= limits.id_gaps, "{load:?}");
    assert!(load.actions <= limits.actions, "{load:?}");
}

/// Checks that bytes are held where pieces are, and each piece has a byte.
fn assert_consistent(inbox: &Inbox) {
    let load = inbox.load();
    let kinds = [
        (load.unread, load.unread_pieces),
        (load.ahead, load.ahead_pieces),
        (load.parked, load.parked_pieces),
    ];
    for (bytes, pieces) in kinds {
        assert!(bytes.is_zero() == (pieces == 0) && pieces as u64 <= bytes.get(), "{load:?}");
    }
}

/// Stream that keeps most rules, so that a hostile peer gets far.
fn hostile_stream(id: u64, lies: bool, random: &mut Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let control = id == 3 || random.chance(0.01);
    let frames = if control { 20 } else { 1 + u64::from(random.chance(0.005)) };
    for _ in 0..frames {
        let id = random.below(20);
        let len = id * 20;
        if random.chance(0.005) {
            bytes.extend((0..20).map(|_| random.next_u64() as u8));
        } else if control && random.chance(0.3) {
            bytes.extend(header(Frame::Reset { id: MessageNumber(id), code: 0 }));
        } else if control && random.chance(0.2) {
            bytes.extend(header(Frame::End { exchange: id, reason: EndReason::Withdrawn }));
        } else if control && random.chance(0.3) {
            let fate = if random.chance(0.5) { Fate::Taken } else { Fate::Discarded };
            bytes.extend(header(Frame::Report { id: MessageNumber(id), fate }));
        } else if control {
            bytes.extend(header(Frame::Done { id: MessageNumber(id) }));
        } else {
            let start = if random.chance(0.5) { 0 } else { random.below(len + 1) };
            let end = if random.chance(0.5) { len } else { start + 1 + random.below(len + 1) };
            let end = end.clamp(start, len);
            let frame = MessageFrame {
                id: MessageNumber(id),
                priority: Priority::ALL[(id % 5) as usize],
                offset: Bytes::new(start),
                len: Bytes::new(end - start),
                last: end == len || start == end,
                receipt: random.chance(0.5),
                report: id.is_multiple_of(3),
                exchange: if id.is_multiple_of(2) { Exchange::Reply(id) } else { Exchange::None },
                duplicate: (lies && random.chance(0.1))
                    .then(|| Duplicate { index: random.below(2) as u8, copies: 2 }),
            };
            bytes.extend(header(Frame::Message(frame)));
            bytes.extend((start..end).map(|offset| byte(id, offset)));
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_hostile_peer_neither_breaks_nor_swells_the_inbox(seed: u64) {
        let mut random = Seed::new(seed).stream("hostile");
        let limits = tight(&mut random);
        let mut inbox = Inbox::new(Side::Client, limits);
        // A peer that lies about copies has bytes misplaced, until the copy's own header reveals
        // it.
        let lies = random.chance(0.3);
        let mut reader = Reader { lied_to: lies, ..Reader::default() };
        let mut streams: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut failed: Option<InboxError> = None;
        let greedy = random.chance(0.5);
        for _ in 0..400 {
            // Streams of the peer, and occasionally one of ours.
            let id = 2 * random.below(60) + u64::from(!random.chance(0.001));
            let bytes = streams.entry(id).or_insert_with(|| hostile_stream(id, lies, &mut random));
            let result = match random.below(20) {
                0 => inbox.stream_finished(id, bytes.len() as u64),
                1 => inbox.stream_reset(id),
                2..=17 => {
                    let len = bytes.len() as u64;
                    let start = if random.chance(0.7) { 0 } else { random.below(len) };
                    let end = if random.chance(0.7) { len } else { start + random.below(len - start + 1) };
                    let (start, end) = (start as usize, end as usize);
                    let chunk = Payload::copy_from_slice(&bytes[start..end]);
                    if greedy || inbox.wants_data() { inbox.stream_data(id, start as u64, chunk) } else { Ok(()) }
                }
                18 => {
                    reader.read(&mut inbox, |id| Priority::ALL[(id % 5) as usize]);
                    failed.map_or(Ok(()), Err)
                }
                _ => {
                    inbox.poll();
                    failed.map_or(Ok(()), Err)
                }
            };
            match result {
                Ok(()) => {}
                Err(InboxError::Overfed) if !greedy => {
                    prop_assert!(false, "a caller that obeys wants_data() never overfeeds the inbox");
                }
                // After a failure every call fails in the same way, and none panics.
                Err(error) => prop_assert_eq!(*failed.get_or_insert(error), error),
            }
            if failed.is_none() {
                assert_bounded(&inbox, &limits);
                assert_consistent(&inbox);
            }
            let (load, counters) = (inbox.load(), inbox.counters());
            prop_assert_eq!(
                counters.accepted.get(),
                reader.bytes + (load.unread + load.ahead + counters.discarded).get(),
                "what was accepted was read, discarded or is held"
            );
        }
    }
}
