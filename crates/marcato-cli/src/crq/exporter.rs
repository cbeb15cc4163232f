//! Server of metrics over HTTP: it answers GET and HEAD of /metrics, and nothing else.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue, VARY};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use marcato_kernel::{Attachment, Device};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::snapshot::{Selection, Snapshot};
use super::{CrqError, metrics};

/// Largest number of connections at a time: more wait.
const CONNECTIONS: usize = 16;
/// Longest time for the header of a request.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// Longest time for a connection.
const CONNECTION_TIME: Duration = Duration::from_secs(60);

/// Type of a message for people.
const PLAIN: &str = "text/plain; charset=utf-8";

/// Returns the snapshots of all devices of this network namespace that have CRQ.
pub(super) fn snapshots(pins: &std::path::Path, selection: Selection) -> Result<Vec<Snapshot>, CrqError> {
    let devices = Device::all()?.into_iter().filter(|device| Attachment::exists(pins, device));
    devices.map(|device| Snapshot::take(&device, pins, selection)).collect()
}

/// Serves metrics until the future is dropped.
pub(super) async fn serve(listener: TcpListener, pins: PathBuf, subscribers: usize) -> std::io::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let pins = Arc::new(pins);
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        let (stream, _) = listener.accept().await?;
        let pins = Arc::clone(&pins);
        tokio::spawn(async move {
            let service =
                hyper::service::service_fn(move |request| answer(request, Arc::clone(&pins), subscribers));
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).keep_alive(false);
            let served = server.serve_connection(TokioIo::new(stream), service);
            // A client that goes away, or never reads, is no matter of the server.
            let _ = tokio::time::timeout(CONNECTION_TIME, served).await;
            drop(place);
        });
    }
}

/// Form of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    OpenMetrics,
    /// Text format 0.0.4 of Prometheus, which every scraper reads.
    Classic,
}

impl Form {
    /// Form that a request accepts. RFC 9110 §12.5.1: a weight of 0 refuses a form.
    fn of<B>(request: &Request<B>) -> Self {
        let accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let open = accepted.flat_map(|value| value.split(',')).any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let refused =
                parts.any(|part| matches!(part.trim_end_matches('0'), "q=" | "q=0." | "Q=" | "Q=0."));
            kind.eq_ignore_ascii_case("application/openmetrics-text") && !refused
        });
        if open { Self::OpenMetrics } else { Self::Classic }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    fn encode(self, snapshots: &[Snapshot]) -> String {
        let text = metrics::encode(snapshots);
        match self {
            Self::OpenMetrics => text,
            Self::Classic => metrics::classic(&text),
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    pins: Arc<PathBuf>,
    subscribers: usize,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let form = Form::of(&request);
    let (status, kind, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            // It reads files and runs `ip` and `tc`.
            let read = tokio::task::spawn_blocking(move || {
                snapshots(&pins, Selection { top: 1, addresses: false, subscribers })
            })
            .await;
            match read {
                Ok(Ok(snapshots)) => (StatusCode::OK, form.content_type(), form.encode(&snapshots)),
                Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("{error}\n")),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("{error}\n")),
            }
        }
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "use GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, PLAIN, "the metrics are at /metrics\n".to_owned()),
    };
    // The server sends a response to HEAD without its body.
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        // RFC 9110 §15.5.6.
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    Ok(response)
}

/// Serves metrics at an address until the process is interrupted.
pub(super) fn run(
    at: SocketAddr,
    pins: PathBuf,
    subscribers: usize,
    ready: impl FnOnce(SocketAddr) -> Result<(), CrqError>,
) -> Result<(), CrqError> {
    let failed = |source| CrqError::Serve { at, source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let listener = TcpListener::bind(at).await.map_err(failed)?;
        ready(listener.local_addr().map_err(failed)?)?;
        let mut end =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map_err(failed)?;
        tokio::select! {
            served = serve(listener, pins, subscribers) => served.map_err(failed),
            _ = tokio::signal::ctrl_c() => Ok(()),
            _ = end.recv() => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_are_for_those_who_ask_for_them() {
        let form = |accept: Option<&str>| {
            let request = accept.iter().fold(Request::builder(), |it, value| it.header(ACCEPT, *value));
            Form::of(&request.body(()).unwrap())
        };
        for accept in [
            "application/openmetrics-text",
            "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "text/plain, APPLICATION/OpenMetrics-Text; q=1",
        ] {
            assert_eq!(form(Some(accept)), Form::OpenMetrics, "{accept}");
        }
        for accept in [None, Some("*/*"), Some("text/html"), Some("application/openmetrics-text;q=0")] {
            assert_eq!(form(accept), Form::Classic, "{accept:?}");
        }
    }
}
