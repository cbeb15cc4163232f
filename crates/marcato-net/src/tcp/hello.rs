//! Hello of a connection without TLS.
//!
//! With TLS, application-layer protocol negotiation names the protocol. Without it, each end sends
//! the protocol's name first (`docs/wire.md`), so that a peer of another protocol, or one that
//! expects TLS, is detected before a connection is reported.

use std::io;

use tokio::net::TcpStream;

/// First bytes of either end.
pub(super) const HELLO: &[u8; 10] = b"marcato/2\n";

/// Reason for which the exchange failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HelloError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer's first bytes are no hello.
    #[error("the peer speaks another protocol or expects tls")]
    Other,
    /// The peer closed the connection before its hello.
    #[error("the peer closed the connection before its hello")]
    Ended,
}

/// Sends our hello and waits for the peer's. Neither end waits for the other's first.
pub(super) async fn exchange(stream: &TcpStream) -> Result<(), HelloError> {
    let mut rest = &HELLO[..];
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if is_transient(&error) => {}
            // The peer's bytes tell more than the failed write.
            Err(_) => break,
        }
    }
    let mut expected = &HELLO[..];
    while !expected.is_empty() {
        stream.readable().await?;
        // No byte after the hello is read: it belongs to a frame.
        let mut bytes = [0; HELLO.len()];
        match stream.try_read(&mut bytes[..expected.len()]) {
            Ok(0) => return Err(HelloError::Ended),
            Ok(len) => {
                let (now, later) = expected.split_at(len);
                if bytes[..len] != *now {
                    return Err(HelloError::Other);
                }
                expected = later;
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
