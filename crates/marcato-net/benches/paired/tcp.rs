//! TCP without Marcato: an application that writes block after block, and urgent messages as they
//! arise. Data leaves in the order of writing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes as Payload;
use marcato_quic::Identity;
use rustls::pki_types::{CertificateDer, ServerName};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::body::{HEADER, Kind, Tally, Unframer, WRITE, framed};
use crate::stack::Stack;
use crate::worker::{Failure, Flow, NAME, Work, client_tls, server_tls};

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Prepares a socket as `marcato-net` does, except that the kernel's buffers may fill.
fn prepare(stream: &TcpStream) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    if allows("cubic") {
        SockRef::from(stream).set_tcp_congestion(b"cubic")?;
    }
    Ok(())
}

/// Returns whether this process may choose this congestion controller: an ordinary user may not
/// choose all of them. Without CUBIC, all connections use the system's default.
pub(crate) fn allows(controller: &str) -> bool {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .is_ok_and(|socket| socket.set_tcp_congestion(controller.as_bytes()).is_ok())
}

pub(crate) async fn receive(
    stack: Stack,
    at: IpAddr,
    identity: &Identity,
    tally: Arc<Tally>,
) -> Result<SocketAddr, Failure> {
    let tls = if stack.is_tls() { Some(TlsAcceptor::from(Arc::new(server_tls(identity)?))) } else { None };
    let listener = TcpListener::bind(SocketAddr::new(at, 0)).await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, tally) = (tls.clone(), Arc::clone(&tally));
            tokio::spawn(async move {
                prepare(&stream)?;
                let mut stream: Box<dyn Stream> = match tls {
                    Some(tls) => Box::new(tls.accept(stream).await?),
                    None => Box::new(stream),
                };
                let mut unframer = Unframer::default();
                let mut bytes = vec![0; WRITE];
                loop {
                    match stream.read(&mut bytes).await? {
                        0 => return Ok::<(), Failure>(()),
                        len => unframer.feed(&bytes[..len], &tally),
                    }
                }
            });
        }
    });
    Ok(addr)
}

pub(crate) async fn connect(
    stack: Stack,
    to: SocketAddr,
    certificate: CertificateDer<'static>,
) -> Result<Arc<dyn Flow>, Failure> {
    let tls =
        if stack.is_tls() { Some(TlsConnector::from(Arc::new(client_tls(certificate)?))) } else { None };
    let mut streams = Vec::new();
    for _ in 0..if stack == Stack::TcpTlsTwo { 2 } else { 1 } {
        let stream = TcpStream::connect(to).await?;
        prepare(&stream)?;
        let stream: Box<dyn Stream> = match &tls {
            Some(tls) => Box::new(tls.connect(ServerName::try_from(NAME)?, stream).await?),
            None => Box::new(stream),
        };
        streams.push(Mutex::new(stream));
    }
    Ok(Arc::new(Tcp(streams)))
}

struct Tcp(Vec<Mutex<Box<dyn Stream>>>);

impl Tcp {
    /// Writes to the first connection, or urgent data to the last.
    async fn write(&self, urgent: bool, bytes: &[u8]) -> Result<(), Failure> {
        let stream = if urgent { self.0.last() } else { self.0.first() };
        let mut stream = stream.ok_or("no connection")?.lock().await;
        stream.write_all(bytes).await?;
        Ok(stream.flush().await?)
    }
}

impl Flow for Tcp {
    fn bulk(&self, body: Payload) -> Work<'_> {
        Box::pin(async move {
            // The header, then write by write, so that urgent data may come in between.
            for part in body.chunks(WRITE - HEADER) {
                self.write(false, &framed(Kind::Bulk, part)).await?;
            }
            Ok(())
        })
    }

    fn urgent(&self, body: Payload) -> Work<'_> {
        Box::pin(async move { self.write(true, &framed(Kind::Urgent, &body)).await })
    }
}
