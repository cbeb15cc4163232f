//! Metrics in the text format of Prometheus.

mod collector;
mod requests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use tower_service::Service;

use crate::body::Body;
use crate::config::Log;
use crate::files::Files;
use crate::record::Record;
use crate::server::Server;
use collector::Collected;
use requests::Requests;

/// Type of OpenMetrics 1.0, which Prometheus reads.
const TYPE: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Metrics of servers, file services and proxies, in the text format of Prometheus.
///
/// Clones share all of it. It is a tower service too, which answers `GET /metrics`. Serve it at an address of its
/// own, since the metrics name the upstreams.
///
/// ```
/// use marcato_web::{Config, Metrics, Server};
///
/// let metrics = Metrics::new();
/// let mut config = Config::default();
/// // Requests by level, source and status, and their times, come from the records of the log.
/// config.log = Some(metrics.log(config.log.take()));
/// let server = Server::with_config(config);
/// metrics.watch(&server);
/// assert!(metrics.encode().contains("marcato_web_open_connections 0"));
/// ```
///
/// The number of series does not depend on what clients do: labels are levels, sources of decisions, classes
/// of status, and the names that the program gives.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    requests: Requests,
    watched: Arc<Mutex<Watched>>,
}

/// Sources of the values that are read on request.
#[derive(Default)]
struct Watched {
    servers: Vec<Server>,
    files: BTreeMap<String, Files>,
    #[cfg(feature = "proxy")]
    proxies: BTreeMap<String, crate::proxy::Proxy>,
    #[cfg(feature = "compression")]
    compression: Option<crate::compression::Compression>,
    others: Vec<Other>,
}

/// Counter of a program, with a value for each of the names of a label.
struct Other {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    read: Box<dyn Fn() -> Vec<(&'static str, u64)> + Send>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Creates metrics of nothing yet.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("marcato_web");
        let requests = Requests::register(&mut registry);
        let watched = Arc::<Mutex<Watched>>::default();
        registry.register_collector(Box::new(Collected(Arc::clone(&watched))));
        Self(Arc::new(Inner { registry, requests, watched }))
    }

    /// Adds a server. The values of several servers are summed.
    pub fn watch(&self, server: &Server) {
        self.watched().servers.push(server.clone());
    }

    /// Adds a file service under the name of its directory, in place of an earlier one of that name.
    pub fn watch_files(&self, directory: &str, files: &Files) {
        self.watched().files.insert(directory.to_owned(), files.clone());
    }

    /// Adds a proxy under the name of its origin, in place of an earlier one of that name.
    #[cfg(feature = "proxy")]
    pub fn watch_proxy(&self, origin: &str, proxy: &crate::proxy::Proxy) {
        self.watched().proxies.insert(origin.to_owned(), proxy.clone());
    }

    /// Adds the compression of responses, in place of an earlier one.
    #[cfg(feature = "compression")]
    pub fn watch_compression(&self, compression: &crate::compression::Compression) {
        self.watched().compression = Some(compression.clone());
    }

    /// Adds a counter of the program, in place of an earlier one of that name: `read` returns its value for each of
    /// the names of a label, which must always be the same.
    pub fn watch_counter(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        read: impl Fn() -> Vec<(&'static str, u64)> + Send + 'static,
    ) {
        let mut watched = self.watched();
        watched.others.retain(|other| other.name != name);
        watched.others.push(Other { name, help, label, read: Box::new(read) });
    }

    /// Removes all file services, proxies and the compression, before those of another configuration are added.
    pub fn forget_sites(&self) {
        let mut watched = self.watched();
        watched.files.clear();
        #[cfg(feature = "proxy")]
        watched.proxies.clear();
        #[cfg(feature = "compression")]
        {
            watched.compression = None;
        }
    }

    /// Returns a log that counts the records, and passes them on.
    pub fn log(&self, next: Option<Log>) -> Log {
        let metrics = self.clone();
        Arc::new(move |record: &Record| {
            metrics.0.requests.observe(record);
            if let Some(next) = &next {
                next(record);
            }
        })
    }

    /// Returns all values in the text format of OpenMetrics, which Prometheus reads.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut out, &self.0.registry);
        out
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service<Request<Body>> for Metrics {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut response = Response::new(Full::default());
        if request.uri().path() != "/metrics" {
            *response.status_mut() = StatusCode::NOT_FOUND;
        } else if !matches!(*request.method(), Method::GET | Method::HEAD) {
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        } else {
            *response.body_mut() = Full::from(self.encode());
            response.headers_mut().insert(CONTENT_TYPE, TYPE);
        }
        ready(Ok(response))
    }
}
