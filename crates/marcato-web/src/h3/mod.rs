//! HTTP/3: a connection whose responses leave by priority.
//!
//! The order is that of the plain streams below (`marcato_net::streams`): each response is a stream with the parameters that
//! its signals give it, and its bytes wait there until their turn comes. So nothing here grants or budgets, as HTTP/2 has to.
//! Reading frames and fields is the work of the library `h3`.
//!
//! A task drives a connection. Each request has a task that reads its head, lets its handler run, and writes
//! what that puts on its stage.
//!
//! | file | contents |
//! |---|---|
//! | `transport` | plain streams as the library wants them |
//! | `shared` | signals and open requests, which the tasks of a connection share |
//! | `driver` | the task of the connection: it accepts requests, and ends |
//! | `request` | the task of a request, up to its handler |
//! | `response` | the rest of it: the response |
//! | `upload` | body of a request |
//!
//! WebSockets (RFC 9220) are not offered: the library knows two protocols of extended CONNECT, and theirs is none of them.
//! Clients open them over HTTP/1.1 or HTTP/2.

mod driver;
mod request;
mod response;
mod shared;
mod transport;
mod upload;

use std::sync::Arc;

use marcato_net::streams::{Connection, StreamsConfig};
use marcato_units::Bytes;

use crate::config::{Config, KEPT_FREE_FOR};
use crate::early_end::EarlyEnd;
use crate::handler::WebService;
use crate::server::{Context, Shutdown};
use driver::Driver;
pub(crate) use upload::Upload;

/// Name of the protocol (RFC 9114 §3.1).
pub(crate) const ALPN: &[u8] = b"h3";

/// Code for a client that is not served (RFC 9114 §8.1): `H3_EXCESSIVE_LOAD`.
pub(crate) const REFUSED: u64 = 0x107;
/// Unidirectional streams that a client may have open. It needs three (RFC 9114 §6.2); more are reserved ones,
/// which are read and ignored.
const UNIDIRECTIONAL: u32 = 8;
/// Most bytes of a response that wait for their turn.
const STREAM_BUFFER: Bytes = Bytes::new(64 << 10);
/// Most bytes of fields that the library can take: more of them would make it panic.
const MAX_FIELDS: u64 = 64 << 10;

/// Returns the configuration of the plain streams below.
pub(crate) fn streams(config: &Config) -> StreamsConfig {
    let limits = &config.limits;
    let mut streams = StreamsConfig::new(ALPN);
    streams.streams.max_bidirectional = limits.streams;
    streams.streams.max_unidirectional = UNIDIRECTIONAL;
    streams.streams.stream_buffer = STREAM_BUFFER;
    streams.streams.buffer = STREAM_BUFFER * u64::from(limits.streams.clamp(16, 128));
    streams.streams.max_datagrams = 1;
    streams.streams.order = config.exchange;
    let transport = &mut streams.transport;
    transport.coupled = config.coupled;
    transport.marks = config.marks;
    transport.peers.connections = limits.connections;
    transport.peers.handshake_timeout = limits.handshake;
    let session = &mut transport.quic.session;
    session.datagrams = None;
    session.urgent = KEPT_FREE_FOR;
    // The clocks of the connection end it earlier, in order.
    session.idle_timeout = limits.idle + limits.grace;
    session.stream_window = Bytes::from(limits.upload_window);
    session.receive_window = Bytes::from(limits.upload_window) * 4;
    session.receive_window_from = None;
    // A browser that has nothing to ask is not kept awake.
    session.keep_alive = None;
    streams
}

/// Serves a connection of HTTP/3 until it ends.
///
/// # Errors
/// If the connection breaks, or the client violates the protocol.
pub(crate) async fn serve<S>(
    connection: Connection,
    service: S,
    context: Arc<Context>,
    shutdown: Shutdown,
) -> Result<(), EarlyEnd>
where
    S: WebService,
{
    let result = Driver::begin(&connection, service, context).await?.run(shutdown).await;
    // Everything that was finished has arrived.
    connection.close(::h3::error::Code::H3_NO_ERROR.value(), b"");
    result
}
