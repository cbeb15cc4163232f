//! Errors of `marcato serve`.

use std::io;
use std::net::SocketAddr;

use marcato_identity::{IdentityError, PemError};
use marcato_web::files::FilesError;
use marcato_web::proxy::ProxyError;

/// Error returned when nothing can be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The origin cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The directory cannot be served.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The certificate or its key cannot be read.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The address cannot be listened at.
    #[error("cannot listen at {addr}: {source}; choose another with --listen")]
    Listen {
        /// Address.
        addr: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The system gives no threads.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] io::Error),
    /// The system delivers no signals.
    #[error("cannot handle signals: {0}")]
    Signals(#[source] io::Error),
    /// Standard output is closed or full.
    #[error("cannot write to standard output: {0}")]
    Print(#[source] io::Error),
}
