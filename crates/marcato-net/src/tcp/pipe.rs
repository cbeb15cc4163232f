//! Bytes of a connection, encrypted with TLS or plain.

use std::io::{self, BufRead as _, IoSlice, Read, Write};
use std::sync::{Arc, Mutex};

use marcato_identity::PeerIdentity;
use rustls::{Connection, HandshakeKind};
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use crate::signal::lock;
use crate::tls::Handshake;

/// Converts between our bytes and those on the wire. It holds at most one chunk that the socket has
/// not accepted.
pub(crate) enum Pipe {
    Plain { out: Vec<u8>, at: usize },
    Tls(Arc<Mutex<Connection>>),
}

/// Socket that reports at once that it would block.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Socket<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl Pipe {
    pub(crate) const fn plain() -> Self {
        Self::Plain { out: Vec::new(), at: 0 }
    }

    pub(crate) fn tls(mut connection: Connection) -> Self {
        // A chunk is accepted whole; there is never more than one.
        connection.set_buffer_limit(None);
        Self::Tls(Arc::new(Mutex::new(connection)))
    }

    /// Returns the results of the handshake; `None` in plaintext.
    pub(crate) fn handshake(&self) -> Option<Handshake> {
        let Self::Tls(connection) = self else { return None };
        let connection = lock(connection);
        let chain = connection.peer_certificates().map(<[_]>::to_vec);
        let alpn = connection.alpn_protocol().map(<[u8]>::to_vec);
        let resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let server_name = match &*connection {
            Connection::Server(server) => server.server_name().map(str::to_owned),
            Connection::Client(_) => None,
        };
        Some(Handshake { peer: chain.and_then(PeerIdentity::new), alpn, resumed, server_name })
    }

    /// Returns the TLS connection; `None` in plaintext.
    pub(crate) fn session(&self) -> Option<Arc<Mutex<Connection>>> {
        if let Self::Tls(connection) = self { Some(Arc::clone(connection)) } else { None }
    }

    pub(crate) const fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Returns whether the socket has not accepted everything yet.
    pub(crate) fn is_pending(&self) -> bool {
        match self {
            Self::Plain { out, at } => *at < out.len(),
            Self::Tls(connection) => lock(connection).wants_write(),
        }
    }

    /// Accepts a chunk, and leaves an empty buffer for the next one.
    pub(crate) fn queue(&mut self, chunk: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Plain { out, at } => {
                if *at == out.len() {
                    // Without TLS the bytes are not copied again.
                    std::mem::swap(out, chunk);
                    *at = 0;
                } else {
                    out.extend_from_slice(chunk);
                }
                chunk.clear();
                Ok(())
            }
            Self::Tls(connection) => lock(connection).writer().write_all(chunk),
        }
    }

    /// Queues TLS's closing alert; without TLS, does nothing.
    pub(crate) fn queue_end(&mut self) {
        if let Self::Tls(connection) = self {
            lock(connection).send_close_notify();
        }
    }

    /// Hands bytes to the socket, as far as it accepts them. Returns the number that it accepted.
    pub(crate) fn flush(&mut self, stream: &TcpStream) -> io::Result<usize> {
        let mut all = 0;
        while self.is_pending() {
            let written = match self {
                Self::Plain { out, at } => stream.try_write(&out[*at..]).inspect(|written| *at += written),
                Self::Tls(connection) => lock(connection).write_tls(&mut Socket(stream)),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => all += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Reads decrypted bytes from the socket. None are added to `buf` if the peer has ended its
    /// direction.
    pub(crate) fn read(&mut self, stream: &TcpStream, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        let connection = match self {
            Self::Plain { .. } => {
                let read = stream.try_read(buf.initialize_unfilled())?;
                buf.advance(read);
                return Ok(());
            }
            Self::Tls(connection) => connection,
        };
        let mut connection = lock(connection);
        loop {
            let mut reader = connection.reader();
            match reader.fill_buf() {
                Ok(plain) => {
                    let taken = plain.len().min(buf.remaining());
                    buf.put_slice(&plain[..taken]);
                    reader.consume(taken);
                    return Ok(());
                }
                // RFC 8446 §6.1: without close_notify, the end of the data may have been cut off. Reading
                // then fails with `UnexpectedEof`.
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) => {}
            }
            connection.read_tls(&mut Socket(stream))?;
            connection
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    /// Decrypts bytes from the wire and passes ours to `plain`. Returns whether the peer has ended
    /// its direction.
    pub(crate) fn receive<E: From<io::Error> + From<rustls::Error>>(
        &mut self,
        mut wire: &[u8],
        scratch: &mut [u8],
        mut plain: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let connection = match self {
            Self::Plain { .. } => return plain(wire).map(|()| false),
            Self::Tls(connection) => connection,
        };
        let mut connection = lock(connection);
        loop {
            let state = connection.process_new_packets()?;
            let mut rest = state.plaintext_bytes_to_read();
            while rest > 0 {
                let read = connection.reader().read(scratch)?;
                plain(&scratch[..read])?;
                rest = rest.saturating_sub(read.max(1));
            }
            if state.peer_has_closed() {
                return Ok(true);
            }
            if wire.is_empty() {
                return Ok(false);
            }
            connection.read_tls(&mut wire)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn chunks_that_are_queued_together_leave_together() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(addr), listener.accept());
        let (near, far) = (near.unwrap(), far.unwrap().0);
        let mut pipe = Pipe::plain();
        for chunk in [b"first", b"other"] {
            let mut chunk = chunk.to_vec();
            pipe.queue(&mut chunk).unwrap();
            assert!(chunk.is_empty() && pipe.is_pending());
        }
        near.writable().await.unwrap();
        assert_eq!(pipe.flush(&near).unwrap(), 10);
        far.readable().await.unwrap();
        let mut read = [0; 20];
        let len = far.try_read(&mut read).unwrap();
        assert_eq!(&read[..len], b"firstother");
    }
}
