//! Helpers of the tests over real sockets.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes as Payload;
use marcato_net::{
    ClientSecurity, CloseReason, Closed, Config, Connection, Endpoint, EndpointStats, ListenError,
    LocalAddress, Remote, ServerSecurity,
};
use marcato_quic::{Identity, Trust};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const NAME: &str = "marcato.test";
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.expect("it takes far too long")
}

pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    pub(crate) trust: Trust,
}

pub(crate) async fn server(config: &Config) -> Server {
    server_at(config, &[localhost().into()]).await
}

/// Returns any port of the loopback interface.
pub(crate) fn localhost() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

pub(crate) async fn server_at(config: &Config, at: &[LocalAddress]) -> Server {
    try_server_at(config, at).await.unwrap()
}

/// Returns a server at these addresses, unless another program has one of them.
pub(crate) async fn try_server_at(config: &Config, at: &[LocalAddress]) -> Result<Server, ListenError> {
    let identity = Identity::self_signed(NAME).unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let endpoint = Endpoint::listen(config, at, &ServerSecurity::Tls(identity)).await?;
    Ok(Server { endpoint, trust })
}

impl Server {
    pub(crate) fn remote(&self) -> Remote {
        Remote::new(self.endpoint.local_addrs()[0], ClientSecurity::trusting(NAME, self.trust.clone()))
    }
}

/// Returns a client and its server, configured with `config`.
pub(crate) async fn pair(config: &Config) -> (Connection, Connection, Server) {
    let server = server(config).await;
    let remote = server.remote();
    let (client, accepted) =
        within(async { tokio::join!(Endpoint::connect(config, &remote), server.endpoint.accept()) }).await;
    (client.unwrap(), accepted.unwrap(), server)
}

/// Waits until the endpoint's statistics satisfy `wanted`.
pub(crate) async fn until(endpoint: &Endpoint, wanted: impl Fn(&EndpointStats) -> bool) -> EndpointStats {
    within(async {
        loop {
            let stats = endpoint.stats();
            if wanted(&stats) {
                return stats;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Exchanges hellos with the other end of a plain TCP connection.
pub(crate) async fn greet(peer: &mut TcpStream) {
    peer.write_all(b"marcato/2\n").await.unwrap();
    let mut hello = [0; 10];
    peer.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"marcato/2\n");
}

/// Returns a connection over plain TCP to a peer without an application.
pub(crate) async fn with_a_bare_peer(config: &Config) -> (Connection, TcpStream) {
    let listener = TcpListener::bind(localhost()).await.unwrap();
    let remote = Remote::new(listener.local_addr().unwrap(), ClientSecurity::Plaintext);
    let greeted = async {
        let (mut peer, _) = listener.accept().await.unwrap();
        greet(&mut peer).await;
        peer
    };
    let (client, peer) = within(async { tokio::join!(Endpoint::connect(config, &remote), greeted) }).await;
    (client.unwrap(), peer)
}

/// Returns bytes that encode their number and share nothing with those of another.
pub(crate) fn body(number: u64, len: usize) -> Payload {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    bytes.extend_from_slice(&number.to_be_bytes());
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(len.max(1));
    bytes.into()
}

pub(crate) fn number_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

/// Closes both ends, and checks that both report a regular end.
pub(crate) async fn close(client: Connection, server: Connection) {
    let (ours, theirs) = within(async { tokio::join!(client.close(), server.closed()) }).await;
    assert_eq!((ours, theirs), (Ok(()), Closed::ByPeer(CloseReason::default())));
}

/// Defines each of these as a test over each engine.
#[allow(unused_macros, reason = "not every test is over both")]
macro_rules! for_both_engines {
    ($($test:ident)*) => {
        mod tcp { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test(marcato_net::Engine::Tcp).await; }
        )* }
        mod quic { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test(marcato_net::Engine::Quic).await; }
        )* }
    };
}
#[allow(unused_imports, reason = "not every test is over both")]
pub(crate) use for_both_engines;
