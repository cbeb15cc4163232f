//! Options of a server with one site.

use std::net::SocketAddr;
use std::path::PathBuf;

use marcato_net::Coupling;

/// Options of a server with one site, as a command line gives them.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Content of the site.
    pub content: Content,
    /// Addresses to listen at.
    pub listen: Vec<SocketAddr>,
    /// Use of TLS.
    pub tls: Tls,
    /// Coupled mode.
    pub coupled: Coupling,
    /// Permission to print a line for each request.
    pub access_log: bool,
}

/// Content of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Files of a directory.
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// Permission to list directories without an index.
        listing: bool,
    },
    /// Responses of an origin, by its URI.
    Origin(String),
}

/// Use of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// None: HTTP in cleartext.
    Cleartext,
    /// TLS with a new certificate that no authority has signed.
    SelfSigned,
    /// TLS with a certificate from files, read again at SIGHUP.
    Files {
        /// Certificate chain (PEM).
        chain: PathBuf,
        /// Key of the certificate (PEM).
        key: PathBuf,
    },
}
