//! Small frames about messages, which wait until the engine has credit for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes as Payload;
use marcato_wire::{Frame, MAX_FRAME_HEADER};
use noq_proto::{Dir, StreamId};

/// Limit of frames about abandoned or received messages that wait for the peer's credit. The
/// session closes if a peer grants no credit and exceeds it.
pub const MAX_NOTES: usize = 4096;

/// Number of waiting frames from which on the receiver is not informed of messages that it has
/// never seen.
const MANY_NOTES: usize = MAX_NOTES / 4;

/// Result of writing a frame to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// All of the frame was written.
    Whole,
    /// The stream has no credit for this rest of the frame.
    Blocked(Payload),
    /// The peer no longer reads the stream.
    Void,
}

/// Streams that frames are written to.
pub(super) trait Streams {
    /// Returns the control stream, and opens it if necessary; `None` if the peer does not allow it.
    fn control(&mut self) -> Option<StreamId>;
    /// Writes a frame to a stream.
    fn put(&mut self, stream: StreamId, frame: Payload) -> Put;
    /// Finishes our half of a stream.
    fn finish(&mut self, stream: StreamId);
}

/// Frames to be written as soon as their streams accept them.
///
/// A stream that has refused bytes is tried again only after [`wake`](Self::wake). A peer may let
/// thousands of frames wait, so neither a new frame nor new credit of one stream may cost an attempt
/// for each of them.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Frames by stream, oldest first; `None` is the control stream. No queue is empty.
    waiting: BTreeMap<Option<StreamId>, VecDeque<Note>>,
    /// Streams to be tried, by the number of their oldest frame.
    ready: BTreeMap<u64, Option<StreamId>>,
    /// Number of waiting frames.
    len: usize,
    /// Number of the next frame.
    next: u64,
    /// The peer's bidirectional streams of which the peer's half is finished and ours is not.
    ended: BTreeSet<StreamId>,
}

/// Frame, or the rest of one, and its number in the order of arrival.
#[derive(Debug)]
struct Note {
    number: u64,
    bytes: Payload,
}

impl Notes {
    /// Adds a frame for a stream; `None` is the control stream.
    pub(super) fn push(&mut self, stream: Option<StreamId>, frame: &Frame) {
        let mut header = [0; MAX_FRAME_HEADER];
        let Ok(len) = frame.encode(&mut header) else { return };
        let note = Note { number: self.next, bytes: Payload::copy_from_slice(&header[..len]) };
        self.next += 1;
        self.len += 1;
        let queue = self.waiting.entry(stream).or_default();
        // A frame behind others has to wait for them.
        if queue.is_empty() {
            self.ready.insert(note.number, stream);
        }
        queue.push_back(note);
    }

    /// Number of waiting frames.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is room for frames that a receiver can do without.
    pub(super) const fn has_room(&self) -> bool {
        self.len < MANY_NOTES
    }

    /// Returns whether there is room for reports. They wait elsewhere, because a peer may make this
    /// end owe more of them.
    pub(super) const fn takes_reports(&self) -> bool {
        self.len < MANY_NOTES / 2
    }

    /// Returns whether more frames wait than [`MAX_NOTES`].
    pub(super) const fn is_over_limit(&self) -> bool {
        self.len > MAX_NOTES
    }

    /// Records that a stream may have credit again, or that it has ended.
    pub(super) fn wake(&mut self, stream: StreamId) {
        self.wake_target(Some(stream));
    }

    fn wake_target(&mut self, target: Option<StreamId>) {
        if let Some(oldest) = self.waiting.get(&target).and_then(VecDeque::front) {
            self.ready.insert(oldest.number, target);
        }
    }

    /// Writes frames, as far as their streams have credit, in the order of their arrival. A stream
    /// without credit does not stop the others. Returns whether the engine has something new to
    /// send.
    pub(super) fn write(&mut self, streams: &mut impl Streams) -> bool {
        // The control stream may have to be opened first, and the engine does not always report that
        // it allows one.
        self.wake_target(None);
        let mut news = false;
        while let Some((_, target)) = self.ready.pop_first() {
            let Some(stream) = target.or_else(|| streams.control()) else { continue };
            let Some(queue) = self.waiting.get_mut(&target) else { continue };
            let Some(note) = queue.front_mut() else { continue };
            let put = streams.put(stream, std::mem::take(&mut note.bytes));
            if let Put::Blocked(rest) = put {
                note.bytes = rest;
                continue;
            }
            queue.pop_front();
            self.len -= 1;
            if let Some(next) = queue.front() {
                self.ready.insert(next.number, target);
            } else {
                self.waiting.remove(&target);
            }
            if put == Put::Whole {
                news = true;
                self.finish(stream, streams);
            }
        }
        news
    }

    /// Records that the peer has finished its half of a bidirectional stream. Returns whether the
    /// engine has something new to send.
    pub(super) fn end(&mut self, stream: StreamId, streams: &mut impl Streams) -> bool {
        self.ended.insert(stream);
        self.finish(stream, streams)
    }

    /// Finishes our half of a stream that the peer opened, once its half is finished and all frames
    /// for it are written. Otherwise the stream would count forever against those that the peer may
    /// open.
    fn finish(&mut self, stream: StreamId, streams: &mut impl Streams) -> bool {
        let over = stream.dir() == Dir::Bi
            && self.ended.contains(&stream)
            && !self.waiting.contains_key(&Some(stream));
        if over {
            self.ended.remove(&stream);
            streams.finish(stream);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use marcato_wire::MessageNumber;
    use noq_proto::Side;

    use super::*;

    /// Streams that accept a number of bytes each.
    #[derive(Default)]
    struct Fake {
        control: Option<StreamId>,
        credit: BTreeMap<StreamId, usize>,
        written: Vec<(StreamId, Payload)>,
        attempts: usize,
        finished: Vec<StreamId>,
    }

    impl Streams for Fake {
        fn control(&mut self) -> Option<StreamId> {
            self.control
        }

        fn put(&mut self, stream: StreamId, mut frame: Payload) -> Put {
            self.attempts += 1;
            let Some(credit) = self.credit.get_mut(&stream) else { return Put::Void };
            let taken = frame.split_to(frame.len().min(*credit));
            *credit -= taken.len();
            if !taken.is_empty() {
                self.written.push((stream, taken));
            }
            if frame.is_empty() { Put::Whole } else { Put::Blocked(frame) }
        }

        fn finish(&mut self, stream: StreamId) {
            self.finished.push(stream);
        }
    }

    impl Fake {
        /// Returns the bytes written to a stream.
        fn on(&self, stream: StreamId) -> Vec<u8> {
            let written = self.written.iter().filter(|(on, _)| *on == stream);
            written.flat_map(|(_, bytes)| bytes.iter().copied()).collect()
        }
    }

    fn bi(index: u64) -> StreamId {
        StreamId::new(Side::Server, Dir::Bi, index)
    }

    fn done(id: u64) -> Frame {
        Frame::Done { id: MessageNumber(id) }
    }

    fn encoded(ids: &[u64]) -> Vec<u8> {
        let mut header = [0; MAX_FRAME_HEADER];
        let one = |id: &u64| {
            let len = done(*id).encode(&mut header).unwrap();
            header[..len].to_vec()
        };
        ids.iter().flat_map(one).collect()
    }

    #[test]
    fn frames_wait_for_the_control_stream() {
        let (mut notes, mut streams) = (Notes::default(), Fake::default());
        notes.push(None, &done(1));
        assert!(!notes.write(&mut streams));
        assert_eq!(notes.len(), 1);
        streams.control = Some(bi(0));
        streams.credit.insert(bi(0), 100);
        assert!(notes.write(&mut streams));
        assert_eq!((notes.len(), streams.on(bi(0))), (0, encoded(&[1])));
    }

    #[test]
    fn a_stream_without_credit_does_not_stop_the_others() {
        let (mut notes, mut streams) = (Notes::default(), Fake::default());
        streams.credit.extend([(bi(0), 0), (bi(1), 100)]);
        for (stream, id) in [(0, 1), (0, 2), (1, 3)] {
            notes.push(Some(bi(stream)), &done(id));
        }
        assert!(notes.write(&mut streams));
        assert_eq!((notes.len(), streams.on(bi(1))), (2, encoded(&[3])));
    }

    #[test]
    fn frames_of_a_stream_keep_their_order_over_several_attempts() {
        let (mut notes, mut streams) = (Notes::default(), Fake::default());
        for id in 1000..1010 {
            notes.push(Some(bi(0)), &done(id));
        }
        while notes.len() > 0 {
            streams.credit.insert(bi(0), 1);
            notes.wake(bi(0));
            notes.write(&mut streams);
        }
        assert_eq!(streams.on(bi(0)), encoded(&(1000..1010).collect::<Vec<_>>()));
    }

    #[test]
    fn frames_are_written_in_the_order_of_their_arrival() {
        let (mut notes, mut streams) = (Notes::default(), Fake::default());
        streams.credit.extend([(bi(0), 0), (bi(1), 0)]);
        let order = [(1, 1), (0, 2), (1, 3), (0, 4)];
        for (stream, id) in order {
            notes.push(Some(bi(stream)), &done(id));
        }
        assert!(!notes.write(&mut streams));
        streams.credit.extend([(bi(0), 100), (bi(1), 100)]);
        notes.wake(bi(0));
        notes.wake(bi(1));
        assert!(notes.write(&mut streams));
        assert_eq!(streams.written, order.map(|(stream, id)| (bi(stream), Payload::from(encoded(&[id])))));
    }

    /// A peer that grants no credit decides the number of waiting frames.
    #[test]
    fn waiting_frames_cost_no_attempts() {
        let (mut notes, mut streams) = (Notes::default(), Fake::default());
        for id in 0..100 {
            streams.credit.insert(bi(id), 0);
            notes.push(Some(bi(id)), &done(id));
            notes.push(Some(bi(id)), &done(id));
            notes.write(&mut streams);
        }
        assert_eq!((notes.len(), streams.attempts), (200, 100));
        streams.credit.insert(bi(7), 100);
        notes.wake(bi(7));
        notes.wake(bi(200));
        assert!(notes.write(&mut streams));
        assert_eq!((notes.len(), streams.attempts), (198, 102));
    }

    #[test]
    fn frames_for_a_stream_that_nobody_reads_are_forgotten() {
        let (mut notes, mut streams) = (Notes::default(), Fake::default());
        notes.push(Some(bi(0)), &done(1));
        assert!(!notes.write(&mut streams));
        assert_eq!(notes.len(), 0);
    }

    #[test]
    fn a_stream_is_finished_once_its_last_frame_is_written() {
        let (mut notes, mut streams) = (Notes::default(), Fake::default());
        streams.credit.insert(bi(0), 0);
        notes.push(Some(bi(0)), &done(1));
        assert!(!notes.end(bi(0), &mut streams));
        assert!(streams.finished.is_empty());
        streams.credit.insert(bi(0), 100);
        notes.wake(bi(0));
        assert!(notes.write(&mut streams));
        assert_eq!(streams.finished, [bi(0)]);
    }

    #[test]
    fn a_stream_without_frames_is_finished_at_once() {
        let (mut notes, mut streams) = (Notes::default(), Fake::default());
        assert!(notes.end(bi(0), &mut streams));
        assert!(!notes.end(StreamId::new(Side::Server, Dir::Uni, 0), &mut streams));
        assert_eq!(streams.finished, [bi(0)]);
    }

    #[test]
    fn the_limit_is_exceeded_by_one_frame_more() {
        let mut notes = Notes::default();
        for id in 0..MAX_NOTES as u64 {
            assert_eq!(notes.has_room(), notes.len() < MANY_NOTES);
            notes.push(None, &done(id));
        }
        assert!(!notes.is_over_limit());
        notes.push(None, &done(0));
        assert!(notes.is_over_limit());
    }
}
