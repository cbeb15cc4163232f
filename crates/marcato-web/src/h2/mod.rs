//! HTTP/2: a connection whose responses leave by priority.
//!
//! One task drives a connection. It takes all requests that have arrived, lets their handlers run, in
//! tasks of their own from where they wait, and grants chunks of the responses one at a time. A chunk passes three queues
//! that are first in, first out: that of the library, that of TLS, and the kernel's. So the next one is
//! granted only once little is left in them (CATS §II-C).
//!
//! A handler puts its response on a [`Stage`](crate::stage::Stage), which makes it wait once 16 KiB are staged. A bell then puts
//! the stream into the connection's inbox. The task tells the exchange (`marcato_sched::exchange`) of the
//! bytes, and grants one chunk at a time.
//!
//! - *Three queues below.* On slow connections the next chunk follows when little is outstanding in the first
//!   two and the kernel has sent the last. On fast ones a write that blocks ends the turn.
//! - *Nothing is lost in them.* Granted bytes are a buffer type of ours (`granted`). The library consumes it,
//!   or drops it with a stream that was reset. Both are booked. `tests/plane/server.rs` resets fifty
//!   responses and then reads another.
//! - *Flushes are ours.* The library flushes after every frame. The `wire` under it only collects, and the
//!   task sends when the library has nothing more.
//! - *The connection's window is ours too.* The library hands it out in the order in which streams asked. The
//!   reader of frames counts what the client allows, and nothing is asked for beyond it, so the window goes
//!   to the response whose turn it is when it opens. A stream without credit of its own is held.
//!
//! | file | contents |
//! |---|---|
//! | `driver` | the task: its turns, waits and end |
//! | `request`, `progress`, `grants` | its steps: requests are taken, handlers and clients followed, chunks granted |
//! | `streams`, `stream` | open streams, and what their responses wait for |
//! | `budget` | bytes of the next grant, by what the socket measures |
//! | `refill` | responses that less urgent ones give way to until they have more |
//! | `granted`, `wire` | granted bytes on their way through the library, and the byte stream under it |
//! | `tunnel` | streams that handlers take over |

mod budget;
mod driver;
mod granted;
mod grants;
mod progress;
mod refill;
mod request;
mod stream;
mod streams;
mod tunnel;
mod wire;

use std::future::{Future, poll_fn};
use std::sync::Arc;

use marcato_sched::exchange::Exchange;

use crate::early_end::EarlyEnd;
use crate::handler::WebService;
use crate::server::{Context, Shutdown};
use crate::signals::{Protocol, Signals};
use crate::socket::Socket;
use driver::Driver;
use granted::Granted;
pub(crate) use tunnel::{Tunnel, WEBSOCKET};
pub(crate) use wire::Violation;
use wire::Wire;

/// Serves a connection of HTTP/2 until it ends.
///
/// # Errors
/// If the connection breaks, or the client violates the protocol.
pub(crate) async fn serve<S>(
    socket: Socket,
    service: S,
    context: Arc<Context>,
    shutdown: Shutdown,
) -> Result<(), EarlyEnd>
where
    S: WebService,
{
    let limits = context.config.limits;
    let streams = limits.streams;
    let wire = Wire::new(
        socket.with_urgent(crate::config::KEPT_FREE_FOR),
        Signals::new(Protocol::Http2, streams as usize),
    );
    let mut builder = ::h2::server::Builder::new();
    builder
        .max_concurrent_streams(streams)
        .max_header_list_size(u32::try_from(limits.header_list.get()).unwrap_or(u32::MAX))
        .initial_window_size(limits.upload_window)
        .initial_connection_window_size(limits.upload_window.saturating_mul(4));
    if context.config.extended_connect {
        builder.enable_connect_protocol();
    }
    let mut handshake = Box::pin(builder.handshake::<_, Granted>(wire.clone()));
    let greeting = poll_fn(|cx| {
        let polled = handshake.as_mut().poll(cx);
        wire.inner().flush()?;
        polled.map_err(EarlyEnd::from)
    });
    let greeted = tokio::time::timeout(limits.handshake, greeting).await;
    let connection = greeted.map_err(|_| EarlyEnd::Silent)??;
    drop(handshake);
    let exchange =
        Exchange::new(context.config.exchange_for(streams)).map_err(|_| EarlyEnd::Configuration)?;
    let mut driver = Driver::new(connection, wire, exchange, service, context, shutdown);
    let result = poll_fn(|cx| driver.poll(cx)).await;
    driver.finish(result).await
}
