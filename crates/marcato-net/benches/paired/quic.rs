//! QUIC without Marcato: bulk data on one stream, each urgent message on a separate stream of
//! higher priority.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use marcato_quic::Identity;
use rustls::pki_types::CertificateDer;
use socket2::{Domain, Protocol, Socket, Type};

use crate::worker::{Failure, client_tls, server_tls};

/// Flow-control window of one stream, in bytes; more than any of the links has in flight. It is the
/// largest that the engine survives unread.
pub(crate) const STREAM_WINDOW: u64 = 2_000_000;
/// Flow-control windows of the connection, as in `marcato-net`.
pub(crate) const RECEIVE_WINDOW: u32 = 16 << 20;
pub(crate) const SEND_WINDOW: u64 = 32 << 20;
/// Buffer size that `marcato-net` requests for its sockets, in each direction.
const SOCKET_BUFFER: usize = 4_000_000;

fn socket(at: SocketAddr) -> Result<UdpSocket, Failure> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    Ok(socket.into())
}

/// Module for one engine. The same code serves both, because they have a common ancestor and still
/// the same interfaces.
macro_rules! engine {
    ($engine:ident, [$($option:ident($value:expr))*], |$stream:ident| $chunk:expr) => {
        pub(crate) mod $engine {
            use std::net::IpAddr;

            use ::$engine::crypto::rustls::{QuicClientConfig, QuicServerConfig};
            use ::$engine::{
                ClientConfig, Connection, Endpoint, EndpointConfig, RecvStream, SendStream, ServerConfig,
                TokioRuntime, TransportConfig, VarInt,
            };
            use bytes::Bytes as Payload;
            use tokio::sync::Mutex;

            use super::*;
            use crate::body::{Kind, Tally, Unframer, framed};
            use crate::link::ETHERNET;
            use crate::worker::{Flow, NAME, Work};

            fn transport(offload: bool, mtu: u16) -> Arc<TransportConfig> {
                let mut transport = TransportConfig::default();
                transport
                    .stream_receive_window(VarInt::try_from(STREAM_WINDOW).expect("a small number"))
                    .receive_window(VarInt::from_u32(RECEIVE_WINDOW))
                    .send_window(SEND_WINDOW)
                    // Without it, one datagram is made per poll.
                    .enable_segmentation_offload(offload);
                if mtu != ETHERNET {
                    // As Marcato's on the loopback interface: one size from the beginning.
                    transport.initial_mtu(mtu).min_mtu(mtu).mtu_discovery_config(None);
                }
                $(transport.$option($value);)*
                Arc::new(transport)
            }

            fn endpoint(mtu: u16) -> Result<EndpointConfig, Failure> {
                let mut config = EndpointConfig::default();
                config.max_udp_payload_size(mtu.max(1472))?;
                Ok(config)
            }

            pub(crate) fn receive(
                at: IpAddr,
                identity: &Identity,
                tally: Arc<Tally>,
                mtu: u16,
            ) -> Result<SocketAddr, Failure> {
                let crypto = QuicServerConfig::try_from(server_tls(identity)?)?;
                let mut config = ServerConfig::with_crypto(Arc::new(crypto));
                config.transport_config(transport(true, mtu));
                let socket = socket(SocketAddr::new(at, 0))?;
                let runtime = Arc::new(TokioRuntime);
                let endpoint = Endpoint::new(endpoint(mtu)?, Some(config), socket, runtime)?;
                let addr = endpoint.local_addr()?;
                tokio::spawn(async move {
                    let Some(incoming) = endpoint.accept().await else { return };
                    let Ok(connection) = incoming.await else { return };
                    while let Ok(stream) = connection.accept_uni().await {
                        tokio::spawn(read(stream, Arc::clone(&tally)));
                    }
                });
                Ok(addr)
            }

            async fn read(mut $stream: RecvStream, tally: Arc<Tally>) {
                let mut unframer = Unframer::default();
                while let Ok(Some(chunk)) = $chunk.await {
                    unframer.feed(&chunk.bytes, &tally);
                }
            }

            pub(crate) async fn connect(
                offload: bool,
                to: SocketAddr,
                certificate: CertificateDer<'static>,
                mtu: u16,
            ) -> Result<Arc<dyn Flow>, Failure> {
                let crypto = QuicClientConfig::try_from(client_tls(certificate)?)?;
                let mut config = ClientConfig::new(Arc::new(crypto));
                config.transport_config(transport(offload, mtu));
                let socket = socket(([0, 0, 0, 0], 0).into())?;
                let runtime = Arc::new(TokioRuntime);
                let endpoint = Endpoint::new(endpoint(mtu)?, None, socket, runtime)?;
                let connection = endpoint.connect_with(config, to, NAME)?.await?;
                let bulk = Mutex::new(connection.open_uni().await?);
                Ok(Arc::new(Quic { _endpoint: endpoint, connection, bulk }))
            }

            struct Quic {
                _endpoint: Endpoint,
                connection: Connection,
                bulk: Mutex<SendStream>,
            }

            impl Flow for Quic {
                fn bulk(&self, body: Payload) -> Work<'_> {
                    Box::pin(async move {
                        let mut stream = self.bulk.lock().await;
                        stream.write_all(&framed(Kind::Bulk, &[])[..1]).await?;
                        let len = u32::try_from(body.len())?;
                        stream.write_all(&len.to_be_bytes()).await?;
                        stream.write_chunk(body).await?;
                        Ok(())
                    })
                }

                fn urgent(&self, body: Payload) -> Work<'_> {
                    Box::pin(async move {
                        let mut stream = self.connection.open_uni().await?;
                        // Bulk data has 0.
                        stream.set_priority(10)?;
                        stream.write_chunk(framed(Kind::Urgent, &body)).await?;
                        stream.finish()?;
                        Ok(())
                    })
                }
            }
        }
    };
}

/// Chunk of a stream.
struct Chunk {
    bytes: bytes::Bytes,
}

engine!(
    noq,
    // Setting of Marcato's sessions, which they use even with one lane.
    [max_concurrent_multipath_paths(8)],
    |stream| async { stream.read_chunk(usize::MAX).await.map(|chunk| chunk.map(|bytes| Chunk { bytes })) }
);
engine!(quinn, [], |stream| stream.read_chunk(usize::MAX, true));
