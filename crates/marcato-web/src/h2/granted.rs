//! Bytes of a response that have been granted, on their way through the library of HTTP/2.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes as Payload};
use marcato_sched::exchange::Exchange;
use marcato_sched::order::StreamId;
use marcato_units::Bytes;

/// Books of a connection, which the granted bytes report to.
#[derive(Clone, Debug)]
pub(super) struct Books(Arc<Mutex<Accounts>>);

/// Accounts of a connection.
#[derive(Debug)]
pub(super) struct Accounts {
    pub(super) exchange: Exchange,
    /// Bytes of content that take part of the connection's window: those sent, and those outstanding.
    pub(super) charged: u64,
}

impl Books {
    pub(super) fn new(exchange: Exchange) -> Self {
        Self(Arc::new(Mutex::new(Accounts { exchange, charged: 0 })))
    }

    /// Returns the accounts. Nothing of the library is called while they are borrowed: that may consume
    /// granted bytes.
    pub(super) fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // A panic of its own code leaves no partial state behind that matters: the connection ends.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Granted bytes. They are outstanding until the library has written them or drops them.
///
/// The library drops what a reset stream never sends, so nothing stays outstanding.
#[derive(Debug)]
pub(crate) struct Granted {
    bytes: Payload,
    stream: StreamId,
    books: Books,
}

impl Granted {
    pub(super) fn new(bytes: Payload, stream: StreamId, books: Books) -> Self {
        books.accounts().charged += bytes.len() as u64;
        Self { bytes, stream, books }
    }

    fn sent(&self, accounts: &mut Accounts, bytes: usize) {
        // A response that has been closed has nothing outstanding.
        if let Some(mut response) = accounts.exchange.response_mut(self.stream) {
            let sent = response.sent(Bytes::new(bytes as u64));
            debug_assert!(sent.is_ok(), "each byte is reported once");
        }
    }
}

impl Buf for Granted {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.sent(&mut self.books.accounts(), count);
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        let left = self.bytes.remaining();
        if left > 0 {
            let mut accounts = self.books.accounts();
            self.sent(&mut accounts, left);
            // What was never sent took nothing of the window.
            accounts.charged = accounts.charged.saturating_sub(left as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use marcato_sched::exchange::{Config, Parameters};

    use super::*;

    #[test]
    fn granted_bytes_return_when_written_or_dropped() {
        let stream = StreamId(1);
        let mut exchange = Exchange::new(Config::default()).unwrap();
        exchange.open(stream, Parameters::default()).unwrap().supply(Bytes::new(1000)).unwrap();
        exchange.grant(Bytes::new(1000)).unwrap();
        let books = Books::new(exchange);
        let outstanding = || books.accounts().exchange.outstanding().get();
        let charged = || books.accounts().charged;
        let mut granted = Granted::new(Payload::from(vec![0; 1000]), stream, books.clone());
        granted.advance(600);
        assert_eq!((outstanding(), charged()), (400, 1000));
        let copied = granted.copy_to_bytes(300);
        assert_eq!((copied.len(), outstanding()), (300, 100));
        drop(granted);
        assert_eq!((outstanding(), charged()), (0, 900));
    }

    #[test]
    fn granted_bytes_of_a_closed_response_are_gone() {
        let stream = StreamId(1);
        let mut exchange = Exchange::new(Config::default()).unwrap();
        exchange.open(stream, Parameters::default()).unwrap().supply(Bytes::new(10)).unwrap();
        exchange.grant(Bytes::new(10)).unwrap();
        let books = Books::new(exchange);
        let granted = Granted::new(Payload::from_static(&[0; 10]), stream, books.clone());
        books.accounts().exchange.close(stream).unwrap();
        drop(granted);
        assert_eq!(books.accounts().exchange.outstanding(), Bytes::ZERO);
    }
}
