//! Pool of connections to one upstream.
//!
//! It is our own, as the pool of hyper-util's client cannot be asked for a fresh connection, by which a retry
//! avoids a second one that the upstream has closed. Nor does it count its connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::client::conn::{http1, http2};
use marcato_units::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::connect::{ConnectError, Connected, Connector, Purpose};
use super::counters::Tally;
use super::upload::Outbound;
use super::upstream::Scheme;

/// Pool of connections to one upstream: one of HTTP/2, or idle ones of HTTP/1.1.
pub(super) struct Pool {
    connector: Connector,
    connect_timeout: Duration,
    idle_timeout: Duration,
    max_idle: usize,
    idle: Mutex<Vec<Idle>>,
    http2: Mutex<Option<http2::SendRequest<Outbound>>>,
    /// Held while a connection of HTTP/2 is made, so that requests share it.
    connecting: tokio::sync::Mutex<()>,
    /// False once ALPN has chosen HTTP/1.1: requests then need not wait for each other's
    /// connections.
    shares: AtomicBool,
    tally: Arc<Tally>,
}

struct Idle {
    sender: http1::SendRequest<Outbound>,
    since: Instant,
}

/// Connection taken from the pool.
pub(super) struct Checkout {
    pub(super) connection: Connected,
    /// True if the connection has carried a request before.
    pub(super) reused: bool,
}

impl Pool {
    pub(super) fn new(
        connector: Connector,
        connect_timeout: Duration,
        idle_timeout: Duration,
        max_idle: usize,
        tally: Arc<Tally>,
    ) -> Self {
        // A connection whose client the origin was told of serves no other.
        let max_idle = if connector.tells_client() { 0 } else { max_idle };
        let shares = connector.scheme() != Scheme::Http1 && !connector.tells_client();
        Self {
            connector,
            connect_timeout,
            idle_timeout,
            max_idle,
            idle: Mutex::default(),
            http2: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            shares: AtomicBool::new(shares),
            tally,
        }
    }

    /// Takes a connection, and makes one if there is none or if a fresh one is asked for.
    pub(super) async fn checkout(
        &self,
        purpose: Purpose,
        fresh: bool,
        client: Option<SocketAddr>,
    ) -> Result<Checkout, ConnectError> {
        if purpose == Purpose::Upgrade && self.connector.scheme() == Scheme::Http2 {
            return Err(ConnectError::NoUpgrade);
        }
        if !fresh && let Some(connection) = self.ready(purpose) {
            return Ok(Checkout { connection, reused: true });
        }
        timeout(self.connect_timeout, self.connect(purpose, fresh, client))
            .await
            .unwrap_or(Err(ConnectError::Timeout))
    }

    async fn connect(
        &self,
        purpose: Purpose,
        fresh: bool,
        client: Option<SocketAddr>,
    ) -> Result<Checkout, ConnectError> {
        let shares = purpose == Purpose::Requests && self.shares.load(Ordering::Relaxed);
        let _guard = if shares { Some(self.connecting.lock().await) } else { None };
        if shares
            && !fresh
            && let Some(connection) = self.ready(purpose)
        {
            return Ok(Checkout { connection, reused: true });
        }
        let connection = self.connector.connect(purpose, client).await?;
        self.tally.connections.one();
        match &connection {
            Connected::Http2(sender) => *lock(&self.http2) = Some(sender.clone()),
            Connected::Http1(_) if purpose == Purpose::Requests => {
                self.shares.store(false, Ordering::Relaxed);
            }
            Connected::Http1(_) => {}
        }
        Ok(Checkout { connection, reused: false })
    }

    /// Takes a connection that is open, as far as is known.
    fn ready(&self, purpose: Purpose) -> Option<Connected> {
        if purpose == Purpose::Requests {
            let mut http2 = lock(&self.http2);
            match http2.as_ref() {
                Some(sender) if !sender.is_closed() => return Some(Connected::Http2(sender.clone())),
                _ => *http2 = None,
            }
        }
        let mut idle = lock(&self.idle);
        self.prune(&mut idle);
        // The most recently used one is the least likely to be closed.
        idle.pop().map(|idle| Connected::Http1(idle.sender))
    }

    /// Puts a connection back that is ready for the next request.
    fn put_back(&self, sender: http1::SendRequest<Outbound>) {
        if sender.is_closed() {
            return;
        }
        let mut idle = lock(&self.idle);
        self.prune(&mut idle);
        if idle.len() >= self.max_idle {
            self.tally.dropped.one();
            return;
        }
        idle.push(Idle { sender, since: Instant::now() });
    }

    fn prune(&self, idle: &mut Vec<Idle>) {
        idle.retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < self.idle_timeout);
    }

    /// Most fields of a response.
    pub(super) const fn most_fields(&self) -> usize {
        self.connector.most_fields()
    }

    pub(super) fn idle(&self) -> usize {
        lock(&self.idle).len()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connection of HTTP/1.1 that a response occupies.
///
/// It returns to the pool when the response is complete, and is closed if the response is dropped.
pub(super) struct Lease {
    pool: Arc<Pool>,
    sender: http1::SendRequest<Outbound>,
}

impl Lease {
    pub(super) const fn new(pool: Arc<Pool>, sender: http1::SendRequest<Outbound>) -> Self {
        Self { pool, sender }
    }

    /// Returns the connection to the pool as soon as it is ready.
    pub(super) fn finish(self) {
        let Self { pool, mut sender } = self;
        if sender.is_ready() {
            pool.put_back(sender);
        } else if !sender.is_closed()
            && let Ok(runtime) = Handle::try_current()
        {
            // The connection has yet to read the end of the response, or to send the rest of the
            // request.
            let pool = Arc::downgrade(&pool);
            runtime.spawn(async move {
                if sender.ready().await.is_ok()
                    && let Some(pool) = pool.upgrade()
                {
                    pool.put_back(sender);
                }
            });
        }
    }
}
