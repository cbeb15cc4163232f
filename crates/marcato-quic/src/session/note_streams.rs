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

    fn put(&mut self, stream: StreamId, frame: Payload) -> Put {
        let mut chunks = [frame];
        match self.conn.send_stream(stream).write_chunks(&mut &mut chunks[..]) {
            Ok(_) if chunks[0].is_empty() => Put::Whole,
            Ok(_) | Err(WriteError::Blocked) => {
                let [rest] = chunks;
                Put::Blocked(rest)
            }
            // The peer no longer reads this stream.
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => Put::Void,
        }
    }

    fn finish(&mut self, stream: StreamId) {
        let _ = self.conn.send_stream(stream).finish();
    }
}
