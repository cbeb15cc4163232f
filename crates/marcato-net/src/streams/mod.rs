//! Plain QUIC streams and datagrams for any application protocol, in the order of the application.
//!
//! The interface is that of other QUIC libraries: connections, streams that send and streams that receive. The wire is plain QUIC,
//! so the peer may be any implementation. What is different is the order: each stream has
//! [`Parameters`] that say which bytes leave first, and they may change at any time. Bytes stay here until
//! their turn comes, so that what is written last and is most urgent leaves next. [Coupled mode](crate::Config::coupled)
//! keeps the queue at the bottleneck short as soon as a connection has urgent and background streams.
//!
//! ```
//! use marcato_net::streams::{Endpoint, Parameters, StreamsConfig, Urgency};
//! use marcato_net::{ClientSecurity, Identity, Remote, ServerSecurity, Trust};
//! use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let identity = Identity::self_signed("files.example")?;
//! let trust = Trust::Certificate(identity.certificate().ok_or("none")?.clone());
//! let config = StreamsConfig::new("files/1");
//! let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
//! let server = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await?;
//!
//! let to = Remote::new(server.local_addrs()[0], ClientSecurity::trusting("files.example", trust));
//! let client = Endpoint::connect(&config, to).await?;
//! let (mut send, mut recv) = client.open_bi().await?;
//! // The most urgent of eight, and the following bytes are among the least urgent.
//! send.set_order(Parameters::sequential(Urgency::MOST));
//! send.write_all(b"get index").await?;
//! send.finish()?;
//!
//! let connection = server.accept().await?;
//! let (mut answer, mut question) = connection.accept_bi().await?;
//! let mut asked = String::new();
//! question.read_to_string(&mut asked).await?;
//! answer.write_all(asked.as_bytes()).await?;
//! answer.finish()?;
//!
//! let mut answered = String::new();
//! recv.read_to_string(&mut answered).await?;
//! assert_eq!(answered, "get index");
//! client.close(0, b"done");
//! # Ok(())
//! # }
//! ```

mod connection;
mod endpoint;
mod recv;
mod send;
mod waiter;

pub use crate::plain::{ReadError, SendDatagramError, StreamOver, WriteError};
pub use connection::Connection;
pub use endpoint::{Endpoint, StreamsConfig};
pub use marcato_quic::streams::{End, StreamId};
pub use marcato_sched::exchange::{GroupId, Parameters, Urgency, Weight, WeightError};
pub use recv::RecvStream;
pub use send::SendStream;
pub use waiter::Waiter;
