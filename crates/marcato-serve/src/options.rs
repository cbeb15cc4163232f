//! Options of a server with one site.

use std::net::SocketAddr;
use std::path::PathBuf;

use marcato_document::quote;
use marcato_net::Coupling;
use marcato_units::Worded as _;
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

impl Options {
    /// Returns the same as the text of a configuration file.
    pub(crate) fn to_toml(&self) -> String {
        let path = |path: &std::path::Path| quote(&path.to_string_lossy());
        let mut text = String::new();
        let coupled = Coupling::WORDS.iter().find(|(_, value)| *value == self.coupled);
        let mut line = |key: &str, value: String| text.push_str(&format!("{key} = {value}\n"));
        line("coupled", quote(coupled.map_or("auto", |(word, _)| *word)));
        line("http3", self.http3.to_string());
        if let Some(metrics) = self.metrics {
            line("metrics", quote(&metrics.to_string()));
        }
        line("watch", self.watch.to_string());
        let access_log = self.access_log.as_ref().map_or("false".to_owned(), |log| {
            let format = marcato_web::LogFormat::NAMES.iter().find(|(_, format)| *format == log.format);
            let file =
                log.file.as_ref().map_or(String::new(), |file| format!(", file = {}", path(&file.value)));
            format!("{{ format = {}{file} }}", quote(format.map_or("pairs", |(word, _)| *word)))
        });
        line("access-log", access_log);
        for listen in &self.listen {
            let plaintext = self.tls == Tls::Cleartext;
            let address = quote(&listen.to_string());
            text.push_str(&format!("[[listen]]\naddress = {address}\nplaintext = {plaintext}\n"));
        }
        let certificate = match &self.tls {
            Tls::Cleartext | Tls::SelfSigned => quote("self-signed"),
            Tls::Files { chain, key } => format!("{{ chain = {}, key = {} }}", path(chain), path(key)),
        };
        let content = match &self.content {
            Content::Directory { path: directory, listing } => {
                format!("directory = {}\nfiles = {{ listing = {listing} }}\n", path(directory))
            }
            Content::Origin(uri) => format!("origin = {}\n", quote(uri)),
        };
        text.push_str(&format!("[[site]]\ndefault = true\ncertificate = {certificate}\n{content}"));
        text
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_their_file_are_the_same() {
        let options = Options {
            content: Content::Directory { path: "a \"b\"".into(), listing: true },
            listen: vec!["127.0.0.1:8443".parse().unwrap(), "[::1]:80".parse().unwrap()],
            tls: Tls::SelfSigned,
            coupled: Coupling::Off,
            http3: false,
            access_log: Some(AccessLog {
                format: marcato_web::LogFormat::Json,
                file: Some(PathBuf::from("log").into()),
            }),
            metrics: Some("127.0.0.1:9187".parse().unwrap()),
            watch: true,
        };
        let tls = Tls::Files { chain: "c".into(), key: "k".into() };
        let content = Content::Origin("unix:/a".to_owned());
        let other = Options { tls, content, access_log: None, watch: false, ..options.clone() };
        for options in [options.clone(), other, Options { tls: Tls::Cleartext, ..options }] {
            let text = options.to_toml();
            let read = Config::parse("options", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let direct = Config::from(&options);
            assert_eq!((read.listen, read.sites), (direct.listen, direct.sites), "{text}");
            assert_eq!((read.origins, read.access_log), (direct.origins, direct.access_log), "{text}");
            assert_eq!(
                (read.coupled, read.http3, read.watch),
                (direct.coupled, direct.http3, direct.watch),
                "{text}"
            );
            assert_eq!(read.metrics, direct.metrics, "{text}");
        }
    }
}
