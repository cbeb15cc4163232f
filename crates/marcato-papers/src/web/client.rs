//! Client of the web experiments: one connection of HTTP/2, and a stylesheet that it asks for late.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use marcato_net::rustls::ClientConfig;
use marcato_net::rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::server::NAME;
use crate::error::SimulationError;
use crate::lab::failed;

/// Bytes of the stylesheet.
pub(super) const STYLE: u64 = 25_000;
/// Path and bytes of each file of the page, and how the client asks for it: the field `priority` and the
/// destination. The stylesheet is the last, and late.
pub(super) const FILES: [(&str, u64, &str, &str); 5] = [
    ("/analytics.js", 150_000, "u=5", "script"),
    ("/1.jpg", 20_000, "u=5, i", "image"),
    ("/2.jpg", 20_000, "u=5, i", "image"),
    ("/3.jpg", 20_000, "u=5, i", "image"),
    ("/late.css", STYLE, "u=0", "style"),
];
/// Windows of the client: those of Chromium.
const WINDOW: u32 = 6 << 20;
const CONNECTION_WINDOW: u32 = 15 << 20;
/// Time for a server to begin to listen.
const START: Duration = Duration::from_secs(5);

/// Times of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loaded {
    /// From the request of the stylesheet to its last byte.
    pub(super) late: Duration,
    /// From the first request to the last byte of all files.
    pub(super) all: Duration,
}

/// Loads the page once, on a new connection. The stylesheet is asked for after `delay`.
pub(super) async fn load(
    addr: SocketAddr,
    tls: Arc<ClientConfig>,
    delay: Duration,
) -> Result<Loaded, SimulationError> {
    let stream = connect(addr).await?;
    stream.set_nodelay(true).map_err(failed)?;
    let name = ServerName::try_from(NAME).map_err(failed)?;
    let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(failed)?;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    let (client, connection) = builder.handshake::<_, Bytes>(stream).await.map_err(failed)?;
    let driver = tokio::spawn(async move { _ = connection.await });
    let mut client = client.ready().await.map_err(failed)?;

    let mut reads = JoinSet::new();
    let began = Instant::now();
    let [early @ .., style] = FILES;
    for file in early {
        ask(&mut client, file, &mut reads).await?;
    }
    tokio::time::sleep_until((began + delay).into()).await;
    let asked = Instant::now();
    ask(&mut client, style, &mut reads).await?;
    let mut late = None;
    while let Some(read) = reads.join_next().await {
        let (path, at) = read.map_err(failed)??;
        if path == style.0 {
            late = Some(at - asked);
        }
    }
    let all = began.elapsed();
    driver.abort();
    Ok(Loaded { late: late.ok_or(SimulationError::Missing("stylesheet"))?, all })
}

/// Connects as soon as the server listens.
async fn connect(addr: SocketAddr) -> Result<TcpStream, SimulationError> {
    let until = Instant::now() + START;
    loop {
        match TcpStream::connect(addr).await {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > until => return Err(failed(error)),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

type Read = Result<(&'static str, Instant), SimulationError>;

/// Asks for a file, and reads it in a task.
async fn ask(
    client: &mut SendRequest<Bytes>,
    (path, length, priority, destination): (&'static str, u64, &str, &str),
    reads: &mut JoinSet<Read>,
) -> Result<(), SimulationError> {
    poll_fn(|cx| client.poll_ready(cx)).await.map_err(failed)?;
    let request = Request::get(format!("https://{NAME}{path}"))
        .header("priority", priority)
        .header("sec-fetch-dest", destination)
        .body(())
        .map_err(failed)?;
    let (response, _) = client.send_request(request, true).map_err(failed)?;
    reads.spawn(async move {
        let response = response.await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(SimulationError::Lab(format!("{path}: status {}", response.status())));
        }
        let (mut body, mut received) = (response.into_body(), 0);
        while let Some(data) = body.data().await {
            let data = data.map_err(failed)?;
            body.flow_control().release_capacity(data.len()).map_err(failed)?;
            received += data.len() as u64;
        }
        if received != length {
            return Err(SimulationError::Lab(format!("{path}: {received} of {length} bytes")));
        }
        Ok((path, Instant::now()))
    });
    Ok(())
}
