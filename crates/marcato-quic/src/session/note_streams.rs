//! Streams of the engine that notes are written to.

use bytes::Bytes as Payload;
use marcato_units::Priority;
use noq_proto::{Connection, Dir, StreamId, WriteError};

use super::engine_priority;
use super::notes::{Put, Streams};

/// Streams of a connection, and its control stream.
pub(super) struct NoteStreams<'a> {
    pub(super) conn: &'a mut Connection,
    /// Control stream, once the peer has allowed it.
    pub(super) control: &'a mut Option<StreamId>,
}

impl Streams for NoteStreams<'_> {
    fn control(&mut self) -> Option<StreamId> {
        if self.control.is_none() {
            *self.control = self.conn.streams().open(Dir::Uni);
            if let Some(stream) = *self.control {
                let _ = self.conn.send_stream(stream).set_priority(engine_priority(Priority::P0));
            }
        }
        *self.control
    }

    fn put(&mut self, stream: StreamId, mut frame: Payload) -> Put {
        let mut stream = self.conn.send_stream(stream);
        // A refusal, and not a part taken, makes the engine report new credit.
        while !frame.is_empty() {
            let mut chunks = [frame];
            let written = stream.write_chunks(&mut &mut chunks[..]);
            [frame] = chunks;
            match written {
                Ok(_) => {}
                Err(WriteError::Blocked) => return Put::Blocked(frame),
                // The peer no longer reads this stream.
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return Put::Void,
            }
        }
        Put::Whole
    }

    fn finish(&mut self, stream: StreamId) {
        let _ = self.conn.send_stream(stream).finish();
    }
}
