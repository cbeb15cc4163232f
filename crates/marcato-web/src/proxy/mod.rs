//! Reverse proxy: passes requests to origins, and their responses back.
//!
//! [`Proxy`] is a [`tower_service::Service`]. Bodies stream in both directions, at the pace of the
//! slower side, and trailers pass with them.
//!
//! ```
//! use marcato_web::proxy::{Proxy, ProxyConfig};
//!
//! let proxy = Proxy::new(ProxyConfig::to("http://127.0.0.1:3000"))?;
//! assert!(proxy.counters().upstreams[0].healthy);
//! # Ok::<(), marcato_web::proxy::ProxyError>(())
//! ```
//!
//! # Requests
//!
//! | part | rule |
//! |---|---|
//! | framing that two servers could read differently | refused with 400, or 501 for unknown codings |
//! | segments of one dot or two in the path, also escaped | refused with 400 |
//! | TRACE, which an origin answers with the cookies and credentials of the request | refused with 501 |
//! | fields of one connection (RFC 9110 §7.6.1) | removed, except `TE: trailers` and real upgrades |
//! | `Host` | the client's, or the upstream's ([`ProxyConfig::preserve_host`]) |
//! | `Forwarded` (RFC 7239), `X-Forwarded-For`, `-Proto`, `-Host` | written; those of strangers are removed |
//! | fields whose names fold to those above, as `X_Forwarded_For` | removed, of anyone |
//! | `Via` (RFC 9110 §7.6.3) | added to responses, and to requests by [`ProxyConfig::via_to_origins`] |
//! | `priority` (RFC 9218 §8) | passed on in both directions |
//!
//! The peer's address is read from the extension [`PeerAddr`](crate::PeerAddr), the scheme from the
//! URI. Early hints go to the extension [`EarlyHints`](crate::EarlyHints).
//!
//! # Failures
//!
//! | case | effect |
//! |---|---|
//! | no connection, or the request was never sent | retried with any method |
//! | connection broken before the response | retried if the method is idempotent (RFC 9110 §9.2.2) |
//! | more of the request's body was taken than [`ProxyConfig::kept_body`] | not retried |
//! | no usable response | 502 |
//! | no connection or no head in time | 504, without a retry for a late head |
//! | all healthy upstreams full | 503 |
//! | client's body broken, silent or longer than its limit | 400, 408 or 413 |
//! | response broken after its head | the body ends with [`ProxyBodyError`] |
//!
//! # Tunnels
//!
//! The server offers extended CONNECT unless
//! [`Config::extended_connect`](crate::Config::extended_connect) is false.
//!
//! An upgrade of HTTP/1.1 is passed on if the request has [`hyper::upgrade::OnUpgrade`] as an
//! extension. Upgrades to HTTP itself are ignored. An extended CONNECT with [`h2::ext::Protocol`]
//! `websocket` becomes an upgrade of HTTP/1.1 (RFC 8441). Other CONNECT requests are answered with
//! 501, and so are upgrades to an upstream of `h2c`: give such an origin another address for them.
//!
//! When the [server](crate::Server) ends, both sides of a WebSocket get a close frame with the status 1001
//! (RFC 6455 §7.4.1), and 5 s to answer. Tunnels of other protocols go on within its
//! [grace](crate::Limits::grace).
//!
//! # Limits
//! - Of interim responses, only 103 is passed on, and only from HTTP/1.1 to HTTP/2. The server
//!   sends 100 by itself.
//! - Trailers of a request reach an upstream of HTTP/1.1 only if its `Trailer` field names them.
//! - Upstreams of `https` need TLS 1.3.
//! - Idle connections that are too old are closed when the next request comes, not before.
//! - Upstreams have one connection of HTTP/2 each. Requests above its limit of streams wait for it.

mod activity;
mod balance;
mod body;
mod choice;
mod complaints;
mod config;
mod connect;
mod counters;
mod error;
mod exchange;
mod farewell;
mod forward;
mod forwarded;
mod guard;
mod headers;
mod health;
mod origin;
mod pool;
mod retry;
mod upgrade;
mod upload;
mod upstream;
mod websocket;

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Request, Response};
use http_body::Body;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tower_service::Service;

pub use body::{ProxyBody, ProxyBodyError};
pub use config::{Balance, HealthConfig, PassiveConfig, ProxyConfig, Roots, TrustedForwarders};
pub use counters::{ProxyCounters, UpstreamState};
pub use error::ProxyError;
pub use upstream::{Upstream, UpstreamError};

use connect::TlsConfigs;
use forward::Shared;
use origin::Origin;
use upstream::Scheme;

/// Reverse proxy. Clones share its connections, its health checks and its counters.
#[derive(Clone)]
pub struct Proxy(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    /// Health checks, which end with the last clone.
    checks: Vec<AbortHandle>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for check in &self.checks {
            check.abort();
        }
    }
}

/// Future of a response.
pub type ProxyFuture = Pin<Box<dyn Future<Output = Result<Response<ProxyBody>, Infallible>> + Send>>;

impl Proxy {
    /// Creates a proxy, and begins its health checks.
    ///
    /// # Errors
    /// [`ProxyError`] if the configuration is not usable, if no root certificate is found for an
    /// upstream of `https`, or if health checks are to begin outside a runtime.
    pub fn new(config: ProxyConfig) -> Result<Self, ProxyError> {
        let targets = config.targets()?;
        let tls = if targets.iter().any(|target| target.scheme == Scheme::Tls) {
            Some(TlsConfigs::new(&config.roots)?)
        } else {
            None
        };
        let mut origins = Vec::with_capacity(targets.len());
        for (upstream, target) in config.upstreams.iter().zip(targets) {
            origins.push(Arc::new(Origin::new(upstream, target, &config, tls.as_ref())?));
        }
        let mut checks = Vec::new();
        if let Some(health) = &config.health {
            let runtime = Handle::try_current().map_err(|_| ProxyError::NoRuntime)?;
            let path = PathAndQuery::try_from(health.path.as_str())
                .map_err(|_| ProxyError::HealthPath { path: health.path.clone() })?;
            for origin in &origins {
                let check = Arc::clone(origin).check_health(health.clone(), path.clone());
                checks.push(runtime.spawn(check).abort_handle());
            }
        }
        Ok(Self(Arc::new(Inner { shared: Arc::new(Shared::new(config, origins)), checks })))
    }

    /// Snapshot of the counters and of the upstreams' state.
    pub fn counters(&self) -> ProxyCounters {
        self.0.shared.counters()
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("counters", &self.counters()).finish()
    }
}

impl<B> Service<Request<B>> for Proxy
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<ProxyBody>;
    type Error = Infallible;
    type Future = ProxyFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Requests above the bound are answered with 503 at once: they do not queue here.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ProxyFuture {
        let shared = Arc::clone(&self.0.shared);
        Box::pin(async move { Ok(forward::forward(&shared, request).await) })
    }
}
