//! Listeners of any kind, and the byte streams of their connections.

use std::any::Any;
use std::future::Future;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Source of connections that a [`Server`](crate::Server) serves.
///
/// It is implemented for tokio's listeners of TCP and of Unix sockets. Another kind, such as one that
/// limits connections, accepts from one of these. Whatever a single connection has to say first, such as
/// the PROXY protocol, is better read in a task of its own, which then calls
/// [`serve_connection`](crate::Server::serve_connection): a listener that waits for one client accepts no
/// other.
pub trait Listener: Send {
    /// Byte stream of a connection. One of the kernel's TCP is measured, and keeps little unsent; in others
    /// order holds as far as they take no more than they can send.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for a connection, and returns it with the address of its client. The future can be dropped
    /// without loss.
    ///
    /// # Errors
    /// If no connection can be accepted now. The server asks again after a moment.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;

    /// Returns the address at which clients connect by TCP; `None` of any other listener. HTTP/3 is answered on the UDP port of
    /// the same number.
    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }
}

impl Listener for TcpListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        Self::accept(self).await
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Self::local_addr(self).ok()
    }
}

/// Clients of a Unix socket have no address: it is `[::]:0`, which is no address of this machine.
#[cfg(unix)]
impl Listener for tokio::net::UnixListener {
    type Io = tokio::net::UnixStream;

    async fn accept(&mut self) -> io::Result<(Self::Io, SocketAddr)> {
        let (stream, _) = Self::accept(self).await?;
        Ok((stream, (Ipv6Addr::UNSPECIFIED, 0).into()))
    }
}

/// Byte stream of any kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Byte stream of a connection, by how it is carried.
pub(crate) enum Transport {
    Tcp(TcpStream),
    Other(Box<dyn Stream>),
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Other(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl Transport {
    /// Recognises a socket of the kernel's TCP.
    pub(crate) fn new<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(io: T) -> Self {
        let mut io = Some(io);
        let any: &mut dyn Any = &mut io;
        if let Some(stream) = any.downcast_mut::<Option<TcpStream>>().and_then(Option::take) {
            return Self::Tcp(stream);
        }
        match io {
            Some(io) => Self::Other(Box::new(io)),
            // It is taken above only.
            None => Self::Other(Box::new(tokio::io::empty())),
        }
    }
}

/// Byte stream whose first bytes were read already.
pub(crate) struct Begun<T> {
    first: Vec<u8>,
    at: usize,
    rest: T,
}

impl<T: AsyncRead + Unpin> Begun<T> {
    /// Reads as many bytes as a text has, or up to the first that differs. Returns whether all are the same.
    ///
    /// # Errors
    /// If the stream ends before.
    pub(crate) async fn read(mut rest: T, text: &[u8]) -> io::Result<(bool, Self)> {
        let mut first = Vec::with_capacity(text.len());
        let mut buffer = [0; 32];
        while first.len() < text.len() && text.starts_with(&first) {
            let most = (text.len() - first.len()).min(buffer.len());
            let Some(room) = buffer.get_mut(..most) else { break };
            let read = rest.read(room).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            first.extend_from_slice(room.get(..read).unwrap_or_default());
        }
        Ok((first == text, Self { first, at: 0, rest }))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Begun<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match this.first.get(this.at..).filter(|first| !first.is_empty()) {
            Some(first) => {
                let count = first.len().min(buf.remaining());
                buf.put_slice(first.get(..count).unwrap_or_default());
                this.at += count;
                Poll::Ready(Ok(()))
            }
            None => Pin::new(&mut this.rest).poll_read(cx, buf),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Begun<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.rest.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.rest).poll_flush(cx))?;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_shutdown(cx)
    }
}
