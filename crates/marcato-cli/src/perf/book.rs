//! Account of the data that one end of a connection receives.

use std::collections::HashMap;

use super::protocol::{Piece, Total};

/// Largest number of partly received messages. One more ends the run.
pub(crate) const MOST_OPEN: usize = 4096;

/// Reason why received data ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BookError {
    #[error("it sent data of a source that was not announced")]
    Source,
    #[error("it left more than {MOST_OPEN} messages unfinished")]
    TooManyOpen,
}

/// Account of the received data. A peer can grow it to at most [`MOST_OPEN`] messages.
#[derive(Debug)]
pub(crate) struct Book {
    totals: Vec<Total>,
    /// Bytes received of each incomplete message.
    open: HashMap<(u8, u64), u64>,
}

impl Book {
    /// Creates the account of this number of sources.
    pub(crate) fn new(sources: usize) -> Self {
        Self { totals: vec![Total::default(); sources], open: HashMap::new() }
    }

    /// Counts a piece of this length, and returns whether its message is complete.
    pub(crate) fn take(&mut self, piece: &Piece, len: u64) -> Result<bool, BookError> {
        let total = self.totals.get_mut(usize::from(piece.source)).ok_or(BookError::Source)?;
        total.bytes += len;
        // The decoder refuses pieces that extend beyond their message, so complete messages have
        // exactly their length.
        if len < piece.total {
            let key = (piece.source, piece.sequence);
            if !self.open.contains_key(&key) && self.open.len() >= MOST_OPEN {
                return Err(BookError::TooManyOpen);
            }
            let so_far = self.open.entry(key).or_default();
            *so_far += len;
            if *so_far < piece.total {
                return Ok(false);
            }
            self.open.remove(&key);
        }
        total.messages += 1;
        Ok(true)
    }

    /// Returns the amount received of each source.
    pub(crate) fn totals(&self) -> &[Total] {
        &self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(source: u8, sequence: u64, offset: u64, total: u64) -> Piece {
        Piece { source, sequence, released: 0, offset, total }
    }

    #[test]
    fn a_message_arrives_once_all_its_pieces_have_in_any_order() {
        let mut book = Book::new(2);
        assert_eq!(book.take(&piece(0, 0, 600, 1000), 400), Ok(false));
        assert_eq!(book.take(&piece(0, 1, 0, 500), 500), Ok(true));
        assert_eq!(book.take(&piece(0, 0, 0, 1000), 600), Ok(true));
        assert_eq!(book.take(&piece(1, 0, 0, 64), 64), Ok(true));
        assert_eq!(book.totals(), [Total { messages: 2, bytes: 1500 }, Total { messages: 1, bytes: 64 }]);
        assert!(book.open.is_empty());
    }

    #[test]
    fn open_messages_and_sources_of_a_peer_are_bounded() {
        let mut book = Book::new(2);
        for sequence in 0..MOST_OPEN as u64 {
            assert_eq!(book.take(&piece(0, sequence, 0, 100), 50), Ok(false));
        }
        assert_eq!(book.take(&piece(0, 1 << 40, 0, 100), 50), Err(BookError::TooManyOpen));
        assert_eq!(book.take(&piece(0, 7, 50, 100), 50), Ok(true));
        assert_eq!(book.take(&piece(2, 0, 0, 100), 50), Err(BookError::Source));
    }
}
