//! Traces: how the responses of the last connections left.

mod connection;
mod qlog;
mod response;

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use connection::{ConnectionTrace, Traced};
pub(crate) use response::Outcome;
#[cfg(feature = "watch")]
pub(crate) use response::ResponseTrace;
#[cfg(all(test, feature = "watch"))]
pub(crate) use response::tests::response;

/// Traces of the last connections, in memory.
///
/// A trace has the progress of each response: its request, the decisions about its urgency and their sources, its
/// head, and when its bytes left. The last connections with a request are kept, of each the last 128 responses. A
/// response takes 3 kB at most. Targets of requests are kept as they are, with their queries.
///
/// ```
/// use marcato_web::{Config, Server, Traces};
///
/// let traces = Traces::new(32);
/// let mut config = Config::default();
/// config.traces = Some(traces.clone());
/// let server = Server::with_config(config);
/// // Later, for a program such as qvis:
/// for id in traces.ids() {
///     let qlog = traces.qlog(id);
/// }
/// ```
#[derive(Clone)]
pub struct Traces(Arc<Ring>);

struct Ring {
    most: usize,
    next: AtomicU64,
    connections: Mutex<VecDeque<Arc<ConnectionTrace>>>,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("most", &self.0.most).finish_non_exhaustive()
    }
}

impl Traces {
    /// Connections that are kept by default: 32.
    pub const CONNECTIONS: usize = 32;

    /// Creates traces of at most `most` connections, and of one at least.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Ring { most: most.max(1), next: AtomicU64::new(1), connections: Mutex::default() }))
    }

    /// Identifiers of the connections, the latest first.
    pub fn ids(&self) -> Vec<u64> {
        self.connections().iter().rev().map(|connection| connection.id).collect()
    }

    /// Returns the trace of a connection in the format qlog (draft-ietf-quic-qlog-main-schema-13), as a JSON text
    /// sequence (RFC 7464); `None` if the connection is not kept.
    ///
    /// Its events are `web:request`, `web:decision`, `web:response`, `web:available`, `web:granted`, `web:ended`
    /// and `web:coupled`.
    pub fn qlog(&self, id: u64) -> Option<String> {
        self.get(id).map(|connection| qlog::write(&connection))
    }

    /// Returns a new trace. It is listed with its first request.
    pub(crate) fn connection(&self, peer: SocketAddr) -> Arc<ConnectionTrace> {
        let id = self.0.next.fetch_add(1, Relaxed);
        Arc::new(ConnectionTrace::new(id, peer, Arc::downgrade(&self.0)))
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<ConnectionTrace>> {
        self.connections().iter().find(|connection| connection.id == id).cloned()
    }

    fn connections(&self) -> MutexGuard<'_, VecDeque<Arc<ConnectionTrace>>> {
        self.0.connections()
    }
}

impl Ring {
    fn list(&self, connection: &Arc<ConnectionTrace>) {
        let mut connections = self.connections();
        let oldest = if connections.len() == self.most { connections.pop_front() } else { None };
        connections.push_back(Arc::clone(connection));
        drop(connections);
        drop(oldest);
    }

    fn connections(&self) -> MutexGuard<'_, VecDeque<Arc<ConnectionTrace>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::response::tests::response;
    use super::*;

    #[test]
    fn the_last_connections_with_requests_are_kept() {
        let traces = Traces::new(2);
        let ask = |path: &str| {
            let connection = traces.connection("192.0.2.1:5".parse().unwrap());
            let (head, ()) = Request::get(path).body(()).unwrap().into_parts();
            connection.request(&head, response(path).decision().unwrap());
            connection.id
        };
        let ids = [ask("/a"), ask("/b"), ask("/c")];
        traces.connection("192.0.2.1:5".parse().unwrap());
        assert_eq!(traces.ids(), [ids[2], ids[1]]);
        assert!(traces.get(ids[0]).is_none() && traces.qlog(ids[2]).is_some());
    }
}
