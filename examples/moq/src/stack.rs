//! QUIC of either end, behind the traits that `moq-net` accepts.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use marcato_net::streams::{Endpoint, StreamsConfig, Urgency};
use marcato_net::{ClientSecurity, Coupling, Identity, Priority, Remote, ServerSecurity, Trust};
use marcato_webtransport::{Parameters, Session};
use moq_net::{ALPNS, origin};

use crate::Stack;

const NAME: &str = "moq.example";

/// Handle that keeps a session and its endpoint.
pub struct Connection {
    _session: moq_net::Session,
    _endpoint: Box<dyn std::any::Any>,
}

/// Returns the order that `moq-net`'s number means: 255 is its most urgent stream, 254 the next, by the priority of tracks and the
/// age of groups. Streams that were given none are those of the protocol itself.
fn order(number: i64) -> Parameters {
    // The two most urgent of the active groups are the catalog's and the newest of audio.
    let level = if number >= 253 { Priority::P1 } else { Priority::P3 };
    Parameters::sequential(Urgency::DEFAULT).at_level(level).ordered(number)
}

fn streams(stack: Stack) -> StreamsConfig {
    let mut config = StreamsConfig::new(ALPNS[0]);
    config.transport.coupled = if stack == Stack::Marcato { Coupling::Auto } else { Coupling::Off };
    // What waits here can still be overtaken or reset, but a reset is decided by what `moq-net` has not written yet.
    config.streams.stream_buffer = marcato_net::Bytes::new(32 << 10);
    config
}

fn session(connection: marcato_net::streams::Connection) -> Session {
    Session::new(connection).with_order(order)
}

fn client_tls(certificate: Vec<u8>) -> anyhow::Result<marcato_net::rustls::ClientConfig> {
    let mut tls = Trust::Certificate(certificate.into()).client_tls()?;
    tls.alpn_protocols = vec![ALPNS[0].into()];
    Ok(tls)
}

/// Accepts sessions without end, and publishes to each.
macro_rules! accept {
    ($accepted:expr, $publisher:ident) => {
        loop {
            let session = $accepted;
            let publisher = $publisher.consume();
            tokio::spawn(async move {
                let server = moq_net::Server::new().with_publisher(&publisher);
                match server.accept(Instant::now(), session).await {
                    Ok((session, driver)) => {
                        moq_net::time::run(driver).await;
                        drop(session);
                    }
                    Err(error) => eprintln!("a session failed: {error}"),
                }
            });
        }
    };
}

/// Server and client of quinn.
fn serve_quinn(at: SocketAddr, identity: &Identity, bbr: bool) -> anyhow::Result<quinn::Endpoint> {
    let mut tls = identity.server_tls(None)?;
    tls.alpn_protocols = vec![ALPNS[0].into()];
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls)?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    let mut transport = quinn::TransportConfig::default();
    if bbr {
        transport.congestion_controller_factory(Arc::new(quinn::congestion::BbrConfig::default()));
    }
    config.transport_config(Arc::new(transport));
    Ok(quinn::Endpoint::server(config, at)?)
}

async fn connect_quinn(
    to: SocketAddr,
    certificate: Vec<u8>,
) -> anyhow::Result<(web_transport_quinn::Session, quinn::Endpoint)> {
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(client_tls(certificate)?)?;
    let any = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let mut endpoint = quinn::Endpoint::client(any)?;
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
    let connection = endpoint.connect(to, NAME)?.await?;
    Ok((web_transport_quinn::Session::raw(connection), endpoint))
}

/// Serves the publisher's tracks until the program ends.
pub async fn serve(
    stack: Stack,
    at: SocketAddr,
    certificate: &Path,
    publisher: origin::Producer,
) -> anyhow::Result<()> {
    let identity = Identity::self_signed(NAME)?;
    tokio::fs::write(certificate, identity.certificate().context("no certificate")?).await?;
    match stack {
        Stack::Marcato | Stack::MarcatoPlain => {
            let security = ServerSecurity::Tls(identity);
            let endpoint = Endpoint::listen(&streams(stack), &[at.into()], &security).await?;
            accept!(session(endpoint.accept().await?), publisher)
        }
        Stack::QuinnCubic | Stack::QuinnBbr => {
            let endpoint = serve_quinn(at, &identity, stack == Stack::QuinnBbr)?;
            accept!(
                web_transport_quinn::Session::raw(endpoint.accept().await.context("closed")?.await?),
                publisher
            )
        }
    }
}

/// Connects to a publisher, whose tracks come to `subscriber`.
pub async fn connect(
    stack: Stack,
    to: SocketAddr,
    certificate: Vec<u8>,
    subscriber: origin::Producer,
) -> anyhow::Result<Connection> {
    let client = moq_net::Client::new().with_subscriber(subscriber);
    macro_rules! begin {
        ($session:expr, $endpoint:expr) => {{
            let (session, driver) = client.connect(Instant::now(), $session).await?;
            tokio::spawn(moq_net::time::run(driver));
            Ok(Connection { _session: session, _endpoint: Box::new($endpoint) })
        }};
    }
    match stack {
        Stack::Marcato | Stack::MarcatoPlain => {
            let security = ClientSecurity::trusting(NAME, Trust::Certificate(certificate.into()));
            let connection = Endpoint::connect(&streams(stack), Remote::new(to, security)).await?;
            begin!(session(connection), ())
        }
        Stack::QuinnCubic | Stack::QuinnBbr => {
            let (session, endpoint) = connect_quinn(to, certificate).await?;
            begin!(session, endpoint)
        }
    }
}
