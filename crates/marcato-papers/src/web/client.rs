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
use tokio_rustls::client::TlsStream;

use super::server::NAME;
use super::site::{File, Site, letters};
use super::weights::{Weighted, Weights};
use crate::error::SimulationError;
use crate::lab::failed;

/// Bytes of the stylesheet.
pub(super) const STYLE: u64 = 25_000;
/// File of the page, and how the client asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) name: &'static str,
    pub(super) length: u64,
    pub(super) urgency: u8,
    pub(super) incremental: bool,
    pub(super) destination: &'static str,
}

const fn image(name: &'static str) -> Asked {
    Asked { name, length: 20_000, urgency: 5, incremental: true, destination: "image" }
}

/// Files of the page. The stylesheet is the last, and late.
pub(super) const FILES: [Asked; 5] = [
    Asked { name: "analytics.js", length: 150_000, urgency: 5, incremental: false, destination: "script" },
    image("1.jpg"),
    image("2.jpg"),
    image("3.jpg"),
    Asked { name: "late.css", length: STYLE, urgency: 0, incremental: false, destination: "style" },
];

/// The page's files, as the servers have them.
pub(super) fn site() -> Site {
    Site::new(FILES.map(|file| File::new(file.name, letters(file.length))))
}

/// Signals of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signalled {
    /// The field `priority` of RFC 9218.
    Header,
    /// Weights and dependencies of RFC 7540.
    Weights,
    /// Field and weights, as Chromium sends them.
    Both,
    /// Neither. Servers know the destination and the content type.
    Nothing,
}

impl Signalled {
    pub(super) const ALL: [Self; 4] = [Self::Header, Self::Weights, Self::Both, Self::Nothing];

    /// Name in row ids.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Weights => "weights",
            Self::Both => "both",
            Self::Nothing => "none",
        }
    }

    /// Name for people.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Header => "the field alone",
            Self::Weights => "weights alone",
            Self::Both => "field and weights",
            Self::Nothing => "nothing",
        }
    }

    const fn has_header(self) -> bool {
        matches!(self, Self::Header | Self::Both)
    }

    const fn has_weights(self) -> bool {
        matches!(self, Self::Weights | Self::Both)
    }
}

/// Windows of the client: those of Chromium.
pub(super) const WINDOW: u32 = 6 << 20;
pub(super) const CONNECTION_WINDOW: u32 = 15 << 20;
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

/// Opens a connection with TLS.
pub(super) async fn secured(
    addr: SocketAddr,
    tls: Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, SimulationError> {
    let stream = connect(addr).await?;
    stream.set_nodelay(true).map_err(failed)?;
    let name = ServerName::try_from(NAME).map_err(failed)?;
    TlsConnector::from(tls).connect(name, stream).await.map_err(failed)
}

/// Loads the page once, on a new connection. The stylesheet is asked for after `delay`.
pub(super) async fn load(
    addr: SocketAddr,
    tls: Arc<ClientConfig>,
    delay: Duration,
    signalled: Signalled,
) -> Result<Loaded, SimulationError> {
    load_files(addr, tls, delay, signalled, FILES).await
}

/// Loads these files once, as [`load`] does. The last of them is late.
pub(super) async fn load_files(
    addr: SocketAddr,
    tls: Arc<ClientConfig>,
    delay: Duration,
    signalled: Signalled,
    files: [Asked; 5],
) -> Result<Loaded, SimulationError> {
    let weights = Weights::default();
    let stream = Weighted::new(secured(addr, tls).await?, weights.clone());
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    let (client, connection) = builder.handshake::<_, Bytes>(stream).await.map_err(failed)?;
    let driver = tokio::spawn(async move { _ = connection.await });
    let mut client = client.ready().await.map_err(failed)?;

    let mut reads = JoinSet::new();
    let began = Instant::now();
    let [early @ .., style] = files;
    let ask = async |client: &mut SendRequest<Bytes>, file: Asked, reads: &mut JoinSet<Read>| {
        if signalled.has_weights() {
            weights.push(file.urgency);
        }
        ask(client, file, signalled, reads).await
    };
    for file in early {
        ask(&mut client, file, &mut reads).await?;
    }
    tokio::time::sleep_until((began + delay).into()).await;
    let asked = Instant::now();
    ask(&mut client, style, &mut reads).await?;
    let mut late = None;
    while let Some(read) = reads.join_next().await {
        let (name, at) = read.map_err(failed)??;
        if name == style.name {
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

/// Waits until a server listens.
pub(super) fn listens(addr: SocketAddr) -> Result<(), SimulationError> {
    listens_within(addr, START)
}

/// Waits until a server listens, for as long as there is patience.
pub(super) fn listens_within(addr: SocketAddr, patience: Duration) -> Result<(), SimulationError> {
    let until = Instant::now() + patience;
    loop {
        match std::net::TcpStream::connect_timeout(&addr, START) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(failed(error)),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

type Read = Result<(&'static str, Instant), SimulationError>;

/// Asks for a file, and reads it in a task.
async fn ask(
    client: &mut SendRequest<Bytes>,
    Asked { name, length, urgency, incremental, destination }: Asked,
    signalled: Signalled,
    reads: &mut JoinSet<Read>,
) -> Result<(), SimulationError> {
    poll_fn(|cx| client.poll_ready(cx)).await.map_err(failed)?;
    let mut request = Request::get(format!("https://{NAME}/{name}")).header("sec-fetch-dest", destination);
    if signalled.has_header() {
        let incremental = if incremental { ", i" } else { "" };
        request = request.header("priority", format!("u={urgency}{incremental}"));
    }
    let request = request.body(()).map_err(failed)?;
    let (response, _) = client.send_request(request, true).map_err(failed)?;
    reads.spawn(async move {
        let response = response.await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(SimulationError::Lab(format!("{name}: status {}", response.status())));
        }
        let (mut body, mut received) = (response.into_body(), 0);
        while let Some(data) = body.data().await {
            let data = data.map_err(failed)?;
            body.flow_control().release_capacity(data.len()).map_err(failed)?;
            received += data.len() as u64;
        }
        if received != length {
            return Err(SimulationError::Lab(format!("{name}: {received} of {length} bytes")));
        }
        Ok((name, Instant::now()))
    });
    Ok(())
}
