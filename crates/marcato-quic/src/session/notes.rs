//! Small frames about messages, which wait until the engine has credit for them.

use std::collections::{BTreeSet, VecDeque};

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
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Frames with their streams; `None` is the control stream.
    queue: VecDeque<(Option<StreamId>, Payload)>,
    /// The peer's bidirectional streams of which the peer's half is finished and ours is not.
    ended: BTreeSet<StreamId>,
}

impl Notes {
    /// Adds a frame for a stream; `None` is the control stream.
    pub(super) fn push(&mut self, stream: Option<StreamId>, frame: &Frame) {
        let mut header = [0; MAX_FRAME_HEADER];
        if let Ok(len) = frame.encode(&mut header) {
            self.queue.push_back((stream, Payload::copy_from_slice(&header[..len])));
        }
    }

    /// Number of waiting frames.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether there is room for frames that a receiver can do without.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < MANY_NOTES
    }

    /// Returns whether more frames wait than [`MAX_NOTES`].
    pub(super) fn is_over_limit(&self) -> bool {
        self.queue.len() > MAX_NOTES
    }

    /// Writes frames, as far as their streams have credit. A stream without credit does not stop
    /// the others. Returns whether the engine has something new to send.
    pub(super) fn write(&mut self, streams: &mut impl Streams) -> bool {
        let mut news = false;
        let mut stuck: Option<StreamId> = None;
        for _ in 0..self.queue.len() {
            let Some((stream, note)) = self.queue.pop_front() else { break };
            let target = match stream {
                Some(stream) => Some(stream),
                None => streams.control(),
            };
            let Some(target) = target.filter(|target| stuck != Some(*target)) else {
                self.queue.push_back((stream, note));
                continue;
            };
            match streams.put(target, note) {
                Put::Whole => {
                    news = true;
                    self.finish(target, streams);
                }
                Put::Blocked(rest) => {
                    // The rotation visits every frame, so the order on each stream is kept.
                    stuck = Some(target);
                    self.queue.push_back((stream, rest));
                }
                Put::Void => {}
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
            && self.queue.iter().all(|(on, _)| *on != Some(stream));
        if over {
            self.ended.remove(&stream);
            streams.finish(stream);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use marcato_wire::MessageNumber;
    use noq_proto::Side;

    use super::*;

    /// Streams that accept a number of bytes each.
    #[derive(Default)]
    struct Fake {
        control: Option<StreamId>,
        credit: BTreeMap<StreamId, usize>,
        written: Vec<(StreamId, Payload)>,
        finished: Vec<StreamId>,
    }

    impl Streams for Fake {
        fn control(&mut self) -> Option<StreamId> {
            self.control
        }

        fn put(&mut self, stream: StreamId, mut frame: Payload) -> Put {
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
            notes.write(&mut streams);
        }
        assert_eq!(streams.on(bi(0)), encoded(&(1000..1010).collect::<Vec<_>>()));
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
