//! Server of metrics over HTTP: it answers GET /metrics, and nothing else.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
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

/// Returns the snapshots of all devices of this network namespace that have CRQ.
pub(super) fn snapshots(pins: &std::path::Path, selection: Selection) -> Result<Vec<Snapshot>, CrqError> {
    let devices = Device::all()?.into_iter().filter(|device| Attachment::exists(pins, device));
    devices.map(|device| Snapshot::take(&device, pins, selection)).collect()
}

/// Serves metrics until the future is dropped.
pub(super) async fn serve(listener: TcpListener, pins: PathBuf) -> std::io::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let pins = Arc::new(pins);
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        let (stream, _) = listener.accept().await?;
        let pins = Arc::clone(&pins);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| answer(request, Arc::clone(&pins)));
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).keep_alive(false);
            let served = server.serve_connection(TokioIo::new(stream), service);
            // A client that goes away, or never reads, is no matter of the server.
            let _ = tokio::time::timeout(CONNECTION_TIME, served).await;
            drop(place);
        });
    }
}

async fn answer(request: Request<Incoming>, pins: Arc<PathBuf>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            // It reads files and runs `ip` and `tc`.
            let read =
                tokio::task::spawn_blocking(move || snapshots(&pins, Selection { top: 1, addresses: false }))
                    .await;
            match read {
                Ok(Ok(snapshots)) => (StatusCode::OK, metrics::encode(&snapshots)),
                Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            }
        }
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "the metrics are at /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind =
        hyper::header::HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// Serves metrics at an address until the process is interrupted.
pub(super) fn run(
    at: SocketAddr,
    pins: PathBuf,
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
            served = serve(listener, pins) => served.map_err(failed),
            _ = tokio::signal::ctrl_c() => Ok(()),
            _ = end.recv() => Ok(()),
        }
    })
}
