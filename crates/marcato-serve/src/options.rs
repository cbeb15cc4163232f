//! Options of a server with one site.

use std::net::SocketAddr;
use std::path::PathBuf;

use marcato_net::Coupling;
use marcato_web::files::FilesConfig;
use marcato_web::proxy::ProxyConfig;

use crate::config::{
    AccessLog, CertificateSource, Config, Handling, Listen, ListenAt, Located, OriginConfig, Route, Site,
    Watch,
};

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
    /// True if HTTP/3 is answered, beside the other versions.
    pub http3: bool,
    /// Line for each request; `None` for no log.
    pub access_log: Option<AccessLog>,
    /// Address of the metrics.
    pub metrics: Option<SocketAddr>,
    /// True for a page of the last connections.
    pub watch: bool,
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
    /// TLS with a certificate from files, which are read again when they change.
    Files {
        /// Certificate chain (PEM).
        chain: PathBuf,
        /// Key of the certificate (PEM).
        key: PathBuf,
    },
}

impl From<&Options> for Config {
    /// Returns the same as a configuration with one site.
    fn from(options: &Options) -> Self {
        use crate::config::Content as Of;
        let mut origins = Vec::new();
        let content = match &options.content {
            Content::Directory { path, listing } => {
                Of::Files(Located::from(FilesConfig { listing: *listing, ..FilesConfig::new(path) }))
            }
            Content::Origin(uri) => {
                origins.push(OriginConfig::new(uri, ProxyConfig::to(uri)));
                Of::Origin(uri.clone())
            }
        };
        let certificate = match &options.tls {
            Tls::Cleartext | Tls::SelfSigned => CertificateSource::SelfSigned,
            Tls::Files { chain, key } => {
                CertificateSource::Files { chain: chain.clone().into(), key: key.clone().into() }
            }
        };
        let route = Route {
            path: String::new(),
            is_exact: false,
            strips_prefix: false,
            rewrite: None,
            content,
            try_files: Vec::new(),
            compress: None,
            handling: Handling::default(),
        };
        let site = Site {
            hosts: Vec::new(),
            is_default: true,
            certificate: certificate.into(),
            routes: vec![route],
            hsts: None,
            error_pages: Vec::new(),
            intercepts_errors: false,
            handling: Handling::default(),
        };
        let listen = |addr: &SocketAddr| Listen {
            at: ListenAt::Address(*addr).into(),
            plaintext: options.tls == Tls::Cleartext,
            redirect_to_https: None,
            balancers: Vec::new(),
        };
        Self {
            listen: options.listen.iter().map(listen).collect(),
            sites: vec![site],
            origins,
            coupled: options.coupled,
            http3: options.http3,
            access_log: options.access_log.clone(),
            metrics: options.metrics.map(Located::from),
            watch: options.watch.then(Watch::default),
            ..Self::default()
        }
    }
}
