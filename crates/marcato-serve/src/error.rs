//! Errors of a server.

use std::io;

use crate::config::ConfigError;

/// Error returned when nothing can be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration has errors, or something that it names cannot be opened.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The sockets of the supervisor cannot be used.
    #[error("cannot use the sockets of the supervisor: {0}; give sockets that listen for TCP")]
    Sockets(#[source] io::Error),
    /// A listener cannot begin.
    #[error("cannot begin to listen: {0}")]
    Listen(#[source] io::Error),
    /// The TLS library refuses its configuration.
    #[error("tls cannot be set up, report this as a bug: {0}")]
    Tls(#[from] rustls::Error),
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
