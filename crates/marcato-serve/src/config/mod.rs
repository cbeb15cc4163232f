//! Configuration of a server: sites, origins, listeners and limits.
//!
//! [`Config::parse`] reads a text, without a look at any other file. It reports all errors together.

mod access;
mod acme;
mod certificate;
mod compression;
mod content;
mod error;
mod fields;
mod guess;
mod host;
mod keys;
mod limits;
mod listen;
mod located;
mod origin;
mod rates;
mod redirect;
mod site;
mod watch;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use marcato_document::nearest::hint;
use marcato_document::{Place, Sources};
use marcato_net::Coupling;
use marcato_web::{GuessTable, Limits};

pub use access::AccessLog;
pub use acme::Acme;
pub use certificate::CertificateSource;
pub use compression::Compress;
pub use content::Content;
pub use error::ConfigError;
pub(crate) use error::Faults;
pub use host::{HostError, HostPattern};
pub use listen::{Listen, ListenAt};
pub use located::Located;
pub use origin::OriginConfig;
pub use redirect::Redirect;
pub use site::{Route, Site};
pub use watch::Watch;

use content::Named;
use keys::Keys;
use site::Draft;

/// Largest file.
const MAX_FILE: usize = 1 << 20;
/// Most sites.
const MAX_SITES: usize = 1000;
/// Most origins.
const MAX_ORIGINS: usize = 1000;

/// Keys of the whole file.
pub(crate) const ROOT: [&str; 14] = [
    "listen",
    "site",
    "origin",
    "acme",
    "limits",
    "rates",
    "guess",
    "coupled",
    "debts",
    "compression",
    "access-log",
    "certificate-check",
    "metrics",
    "watch",
];

/// Configuration of a server.
///
/// ```
/// use marcato_serve::config::Config;
///
/// let text = r#"
///     [[listen]]
///     address = "[::]:443"
///
///     [[site]]
///     hosts = ["example.org", "www.example.org"]
///     directory = "/srv/www"
///     certificate = { chain = "chain.pem", key = "key.pem" }
///
///     [[site.route]]
///     path = "/api"
///     origin = "http://127.0.0.1:3000"
/// "#;
/// let config = Config::parse("serve.toml", text)?;
/// assert_eq!(config.sites[0].routes[0].path, "/api");
///
/// let error = Config::parse("serve.toml", "[[listen]]\naddress = \":443\"\n[limits]\nidel = \"75 s\"").unwrap_err();
/// assert_eq!(error.faults().len(), 3);
/// # Ok::<(), marcato_serve::config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Listeners.
    pub listen: Vec<Listen>,
    /// Sites, in the order of the file.
    pub sites: Vec<Site>,
    /// Origins to which sites refer.
    pub origins: Vec<OriginConfig>,
    /// Account for certificates by ACME.
    pub acme: Option<Acme>,
    /// Bounds of what clients may use.
    pub limits: Limits,
    /// Networks whose addresses have no rates.
    pub trusted: Vec<IpNet>,
    /// Guesses for clients that signal nothing.
    pub guess: GuessTable,
    /// Coupled mode.
    pub coupled: Coupling,
    /// True if debts bound the order of urgency (true). Without them, the most urgent response has all of a connection.
    pub debts: bool,
    /// Compression of responses.
    pub compression: Compress,
    /// Line for each request; `None` for no log.
    pub access_log: Option<AccessLog>,
    /// Time between two looks at the files of certificates.
    pub certificate_check: Duration,
    /// Address of the metrics.
    pub metrics: Option<Located<SocketAddr>>,
    /// Page of the last connections.
    pub watch: Option<Watch>,
    /// Directory that relative paths start from.
    pub(crate) base: PathBuf,
    /// Texts that places refer to.
    pub(crate) sources: Sources,
}

impl Default for Config {
    /// Configuration without listeners and sites.
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            sites: Vec::new(),
            origins: Vec::new(),
            acme: None,
            limits: Limits::default(),
            trusted: Vec::new(),
            guess: GuessTable::default(),
            coupled: Coupling::default(),
            debts: true,
            compression: Compress::default(),
            access_log: Some(AccessLog::default()),
            certificate_check: Duration::from_secs(60),
            metrics: None,
            watch: None,
            base: PathBuf::new(),
            sources: Sources::default(),
        }
    }
}

impl Config {
    /// Reads a file. Relative paths in it start from its directory.
    ///
    /// # Errors
    /// All errors of the file, each with its place; or the one of reading it.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path)
            .map_err(|error| ConfigError::whole(&name, format!("cannot be read: {error}")))?;
        let text = marcato_document::text(bytes)
            .map_err(|error| ConfigError::whole(&name, format!("line {}: {error}", error.line)))?;
        let mut config = Self::parse(&name, &text)?;
        config.base = path.parent().map(Path::to_owned).unwrap_or_default();
        Ok(config)
    }

    /// Reads a text. `name` is the file's in messages.
    ///
    /// # Errors
    /// All errors of the text, each with its place.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        if text.len() > MAX_FILE {
            return Err(ConfigError::whole(name, format!("is larger than {MAX_FILE} bytes: shorten it")));
        }
        let sources = Sources(vec![(name.to_owned(), text.to_owned())]);
        let faults = Faults::default();
        let lists = ["listen", "site", "origin", "route"];
        let (root, is_readable) =
            marcato_document::parse(0, text, &lists, |place, problem| faults.add(place, problem));
        if !is_readable {
            faults.into_result(&sources)?;
            return Err(ConfigError::whole(name, "is not TOML".to_owned()));
        }
        let config = Self::read(&Keys::open(&root, "the file", &ROOT, &faults));
        faults.into_result(&sources)?;
        Ok(Self { sources, ..config })
    }

    fn read(keys: &Keys<'_>) -> Self {
        let faults = keys.faults;
        let mut config = Self::default();
        for table in keys.tables("listen", listen::MAX_LISTENERS) {
            let Some(listen) = Listen::read(table, faults) else { continue };
            if config.listen.iter().any(|other| other.at == listen.at) {
                faults.add(listen.at.place, format!("{} has two listeners: remove one", listen.at.value));
            }
            config.listen.push(listen);
        }
        if !keys.has("listen") {
            faults.add(Place::START, "no listener is given: add [[listen]] with `address = \"[::]:443\"`");
        }
        for table in keys.tables("origin", MAX_ORIGINS) {
            let Some(origin) = OriginConfig::read(table, faults) else { continue };
            if config.origins.iter().any(|other| other.name == origin.name) {
                let place = table.place_of("name");
                faults.add(place, format!("there is another origin `{}`: rename one", origin.name));
            }
            config.origins.push(origin);
        }
        config.acme = keys.table("acme").and_then(|table| Acme::read(table, faults));
        if let Some(table) = keys.table("limits") {
            config.limits = limits::read(table, faults);
        }
        if let Some(table) = keys.table("rates") {
            config.trusted = rates::read(table, &mut config.limits, faults);
        }
        if let Some(text) = keys.string("metrics") {
            match text.parse() {
                Ok(addr) => config.metrics = Some(Located::at(keys.place("metrics"), addr)),
                Err(_) => keys.fault(
                    "metrics",
                    format!("{text:?} is no address with a port: {}", listen::remedy(text)),
                ),
            }
        }
        config.watch = Watch::read(keys);
        config.compression = Compress::read(keys);
        if let Some(table) = keys.table("guess") {
            config.guess = guess::read(table, faults);
        }
        let coupled = [("auto", Coupling::Auto), ("on", Coupling::On), ("off", Coupling::Off)];
        limits::set(&mut config.coupled, keys.word("coupled", &coupled));
        limits::set(&mut config.debts, keys.boolean("debts"));
        config.access_log = AccessLog::read(keys);
        let check = Duration::from_secs(1)..=Duration::from_secs(86_400);
        limits::set(&mut config.certificate_check, keys.span("certificate-check", check));
        config.read_sites(keys);
        config
    }

    fn read_sites(&mut self, keys: &Keys<'_>) {
        let faults = keys.faults;
        let mut drafts: Vec<(Draft, Place)> = keys
            .tables("site", MAX_SITES)
            .into_iter()
            .map(|table| (Draft::read(table, faults), table.place))
            .collect();
        if !keys.has("site") {
            faults.add(Place::START, "no site is given: add [[site]] with a `directory` or an `origin`");
        }
        let mut names: HashMap<String, usize> = HashMap::new();
        let mut default: Option<usize> = None;
        let is_alone = drafts.len() == 1;
        for (index, (draft, place)) in drafts.iter().enumerate() {
            for (host, place) in &draft.hosts {
                if names.insert(host.to_string(), index).is_some_and(|other| other != index) {
                    faults.add(*place, format!("another site has `{host}` too: remove one"));
                }
            }
            let is_default = draft.is_default.is_some() || is_alone && draft.hosts.is_empty();
            if !draft.is_named && !is_default {
                faults.add(*place, "the site has no name: add `hosts`, or `default = true`");
            }
            if is_default && default.replace(index).is_some() {
                let place = draft.is_default.unwrap_or(*place);
                faults.add(place, "there are two default sites: remove `default` from one");
            }
        }
        let has_tls = self.listen.iter().any(|listen| !listen.plaintext);
        let known: Vec<String> = self.origins.iter().map(|origin| origin.name.clone()).collect();
        for (index, (mut draft, place)) in drafts.drain(..).enumerate() {
            let certificate = draft.certificate.take();
            if has_tls && certificate.is_none() && keys_lack_certificate(keys, index) {
                let remedy = "add `certificate = { chain = \"chain.pem\", key = \"key.pem\" }`, \"acme\" or \"self-signed\"";
                faults
                    .add(place, format!("the site has no certificate for the listeners with TLS: {remedy}"));
            }
            let certificate =
                certificate.unwrap_or_else(|| Located::at(place, CertificateSource::SelfSigned));
            if certificate.value == CertificateSource::Acme {
                if !keys.has("acme") {
                    faults
                        .add(certificate.place, "`certificate` is \"acme\", but there is no [acme]: add it");
                }
                if draft.hosts.is_empty() && !draft.has_hosts {
                    faults.add(certificate.place, "a certificate by ACME needs a name: add `hosts`");
                }
                for (host, place) in draft.hosts.iter().filter(|(host, _)| host.is_wildcard()) {
                    // RFC 8737 §3: the names of TLS-ALPN-01 are no wildcards.
                    let remedy = "list its names, or give files";
                    faults.add(*place, format!("ACME by TLS-ALPN-01 issues nothing for `{host}`: {remedy}"));
                }
                if !has_tls && keys.items("listen", listen::MAX_LISTENERS).len() == self.listen.len() {
                    faults.add(certificate.place, "ACME needs a listener with TLS: add one, at port 443");
                }
            }
            let origins = &mut self.origins;
            let site = draft.finish(certificate, default == Some(index), |named| match named {
                Named::Is(content) => Some(content),
                Named::Url(origin) => {
                    let name = origin.name.clone();
                    if !origins.iter().any(|other| other.name == name) {
                        origins.push(*origin);
                    }
                    Some(Content::Origin(name))
                }
                Named::Origin(name) => {
                    if known.contains(&name.value) {
                        return Some(Content::Origin(name.value));
                    }
                    let remedy = match known.is_empty() {
                        true => "give its URL, or add [[origin]]".to_owned(),
                        false => hint(&name.value, known.iter().map(String::as_str)),
                    };
                    faults.add(name.place, format!("there is no origin `{}`: {remedy}", name.value));
                    None
                }
            });
            self.sites.push(site);
        }
    }

    /// Returns a path of the file, as it is opened.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        self.base.join(path)
    }
}

/// Returns whether a site has no key `certificate`. One with a fault was reported already.
fn keys_lack_certificate(keys: &Keys<'_>, site: usize) -> bool {
    let tables = keys.items("site", MAX_SITES).iter().filter_map(|item| item.as_table());
    tables.into_iter().nth(site).is_some_and(|table| table.get("certificate").is_none())
}
