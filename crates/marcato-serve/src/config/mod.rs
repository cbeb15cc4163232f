//! Configuration of a server: sites, origins, listeners and limits.
//!
//! [`Config::parse`] reads a text, without a look at any other file. It reports all errors together.

mod access;
mod acme;
mod admission;
mod certificate;
mod compression;
mod content;
mod error;
mod error_pages;
mod fields;
mod form;
mod guess;
mod handling;
mod host;
mod limits;
mod listen;
mod located;
mod marks;
mod origin;
mod printed;
mod rates;
mod redirect;
mod site;
mod watch;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use ipnet::IpNet;
use marcato_document::form::{Flag, SpanWithin, Words, one_of};
use marcato_document::nearest::hint;
use marcato_document::schema::Schema;
use marcato_document::{Faults, Keyed as _, Keys, Place, Sources, keyed};
use marcato_net::{CodePoints, Coupling};
use marcato_web::files::FilesConfig;
use marcato_web::proxy::{HealthConfig, PassiveConfig};
use marcato_web::{GuessTable, Limits};

pub use access::AccessLog;
pub use acme::Acme;
pub use admission::{Admission, User};
pub use certificate::CertificateSource;
pub use compression::Compress;
pub use content::Content;
pub use error::ConfigError;
pub use error_pages::ErrorPage;
pub use handling::{FieldChanges, Handling};
pub use host::{HostError, HostPattern};
pub use listen::{Listen, ListenAt};
pub use located::Located;
pub use origin::OriginConfig;
pub use redirect::Redirect;
pub use site::{Route, Site};
pub use watch::Watch;

use content::Named;
pub(crate) use content::PATH;
use form::{By, FORMAT, PATH as FILE, Serve, section};
use listen::MAX_LISTENERS;
use rates::Rates;
use site::Draft;

/// Largest file.
const MAX_FILE: usize = 1 << 20;
/// Most sites.
const MAX_SITES: usize = 1000;
/// Most origins.
const MAX_ORIGINS: usize = 1000;

/// Version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246), with forward secrecy and authenticated encryption alone.
    V1_2,
    /// TLS 1.3 (RFC 8446).
    #[default]
    V1_3,
}

/// Words of `min-tls`.
const TLS_VERSIONS: &[(&str, TlsVersion)] = &[("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];

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
    /// Networks of proxies in front, whose `X-Forwarded-For` tells the client for [access](Admission).
    pub trusted_proxies: Vec<IpNet>,
    /// Guesses for clients that signal nothing.
    pub guess: GuessTable,
    /// Coupled mode.
    pub coupled: Coupling,
    /// Code points by which packets of responses are marked; `None` for no marks.
    pub marks: Option<CodePoints>,
    /// True if HTTP/3 is answered on the UDP port of each listener with TLS (true).
    pub http3: bool,
    /// Lowest version of TLS (1.3).
    pub min_tls: TlsVersion,
    /// Authority (PEM) of the certificates that clients may present.
    pub client_ca: Option<Located<PathBuf>>,
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
            trusted_proxies: Vec::new(),
            guess: GuessTable::default(),
            coupled: Coupling::default(),
            marks: None,
            http3: true,
            min_tls: TlsVersion::default(),
            client_ca: None,
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
        let faults = Faults::new(&FORMAT, &Rc::new(sources.clone()));
        let lists = ["listen", "site", "origin", "route"];
        let (root, is_readable) =
            marcato_document::parse(0, text, &lists, |place, problem| faults.add(place, problem));
        if !is_readable {
            faults.into_result()?;
            return Err(ConfigError::whole(name, "is not TOML"));
        }
        let keys = Keys::open(&root, &Root::SCHEMA, &faults);
        let root = Root::read(&keys, &Serve).unwrap_or_default();
        let mut config = root.config;
        config.trusted = root.rates.set(&mut config.limits);
        config.read_sites(root.sites, &keys);
        if !keys.has("client-ca") {
            let routes = config.sites.iter().flat_map(|site| site.routes.iter().map(|route| &route.handling));
            let all = config.sites.iter().map(|site| &site.handling).chain(routes);
            for asked in
                all.filter_map(|handling| handling.access.as_ref()).map(|rule| &rule.client_certificate)
            {
                if asked.value {
                    let problem = "there is no authority of clients: add `client-ca = \"clients.pem\"`";
                    faults.add(asked.place, problem);
                }
            }
        }
        faults.into_result()?;
        Ok(Self { sources, ..config })
    }

    /// Returns a text of the configuration as it takes effect: with the default of each key that it omits. It reads back to
    /// the same, if relative paths start from the same directory.
    ///
    /// # Errors
    /// All errors of the text, each with its place.
    pub fn print(name: &str, text: &str) -> Result<String, ConfigError> {
        Self::parse(name, text)?;
        // It has no errors.
        let (root, _) = marcato_document::parse(0, text, &[], |_, _| {});
        Ok(printed::printed(&root))
    }

    /// Returns a collector of faults that refer to this configuration.
    pub(crate) fn faults(&self) -> Faults {
        Faults::new(&FORMAT, &Rc::new(self.sources.clone()))
    }

    fn read_sites(&mut self, mut drafts: Vec<Draft>, keys: &Keys<'_>) {
        let faults = keys.faults;
        if !keys.has("listen") {
            faults.add(Place::START, "no listener is given: add [[listen]] with `address = \"[::]:443\"`");
        }
        if !keys.has("site") {
            faults.add(Place::START, "no site is given: add [[site]] with a `directory` or an `origin`");
        }
        let mut names: HashMap<String, usize> = HashMap::new();
        let mut default: Option<usize> = None;
        let is_alone = drafts.len() == 1;
        for (index, draft) in drafts.iter().enumerate() {
            let place = draft.place;
            for (host, place) in &draft.hosts {
                if names.insert(host.to_string(), index).is_some_and(|other| other != index) {
                    faults.add(*place, format!("another site has `{host}` too: remove one"));
                }
            }
            let is_default = draft.is_default.is_some() || is_alone && draft.hosts.is_empty();
            if !draft.is_named && !is_default {
                faults.add(place, "the site has no name: add `hosts`, or `default = true`");
            }
            if is_default && default.replace(index).is_some() {
                let place = draft.is_default.unwrap_or(place);
                faults.add(place, "there are two default sites: remove `default` from one");
            }
        }
        let has_tls = self.listen.iter().any(|listen| !listen.plaintext);
        let known: Vec<String> = self.origins.iter().map(|origin| origin.name.clone()).collect();
        for (index, mut draft) in drafts.drain(..).enumerate() {
            let place = draft.place;
            let certificate = draft.certificate.take();
            if has_tls && !draft.has_certificate {
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
                let by_dns = self.acme.as_ref().is_some_and(|acme| !acme.dns_hook.is_empty());
                for (host, place) in draft.hosts.iter().filter(|(host, _)| host.is_wildcard() && !by_dns) {
                    // RFC 8737 §3: the names of TLS-ALPN-01 are no wildcards.
                    let remedy = "list its names, or give files";
                    faults.add(*place, format!("ACME by TLS-ALPN-01 issues nothing for `{host}`: {remedy}"));
                }
                if !has_tls && keys.several("listen", MAX_LISTENERS).len() == self.listen.len() {
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

/// Whole file, as it is read.
#[derive(Default)]
pub(crate) struct Root {
    config: Config,
    sites: Vec<Draft>,
    rates: Rates,
}

keyed! {
    Root, "the file", |of: Serve|, onto Self::default();
    /// [listeners](#keys-of-a-listener), each under `[[listen]]`
    "listen" => config.listen: By(listeners), own("required");
    /// [sites](#keys-of-a-site), each under `[[site]]`
    "site" => sites: By(sites), own("required");
    /// [origins](#keys-of-an-origin), each under `[[origin]]`
    "origin" => config.origins: By(origins), own("none");
    /// [account](#keys-of-acme) for certificates by ACME
    "acme" => config.acme: By(Acme::read), optional("none");
    /// [bounds](#keys-of-limits) of what clients may use
    "limits" => config.limits: section::<Limits>(), own("the defaults");
    /// [rates](#keys-of-rates) of client addresses
    "rates" => rates: section::<Rates>(), own("no limit");
    /// networks of proxies in front of this server: [`access`](#keys-of-access) then knows a client by their `X-Forwarded-For`
    "trusted-proxies" => config.trusted_proxies: By(rates::networks), own("none");
    /// [guesses](#keys-of-guess) for clients that signal nothing
    "guess" => config.guess: By(guess::read), own("the defaults");
    /// [coupled mode](coupled.md): `"auto"`, `"on"`, `"off"`
    "coupled" => config.coupled: one_of::<Coupling>(), own();
    /// marks of packets for the network: true, false or a [table](#keys-of-marks)
    "marks" => config.marks: By(marks::read), own("`false`");
    /// answers [HTTP/3](#http3) on the UDP port of each listener with TLS
    "http3" => config.http3: Flag, own();
    /// lowest version of TLS: `"1.3"`, or `"1.2"` for old clients
    "min-tls" => config.min_tls: Words(TLS_VERSIONS), own();
    /// authority (PEM) of the certificates that clients may present; [`access`](#keys-of-access) asks for one
    "client-ca" => config.client_ca: FILE, optional("none");
    /// bounds the order of urgency by [debts](#order); without them, the most urgent response has all of a connection
    "debts" => config.debts: Flag, own();
    /// compression of responses: true, false or a [table](#keys-of-compression)
    "compression" => config.compression: compression::FORM, own("as its keys say");
    /// line for each request: true, false or a [table](#keys-of-access-log)
    "access-log" => config.access_log: access::FORM, own("`true`");
    /// time between two looks at the files of certificates
    "certificate-check" => config.certificate_check: SpanWithin(Duration::from_secs(1)..=limits::DAY), own();
    /// address of the [metrics](#metrics), as `"127.0.0.1:9187"`
    "metrics" => config.metrics: By(listen::address), optional("none");
    /// page of the last connections: true, false or a [table](#keys-of-watch)
    "watch" => config.watch: watch::FORM, own("`false`");
}

fn listeners(keys: &Keys<'_>, key: &'static str) -> Option<Vec<Listen>> {
    let mut listeners: Vec<Listen> = Vec::new();
    for table in keys.tables(key, MAX_LISTENERS) {
        let Some(listen) = Listen::read(table, keys.faults) else { continue };
        if listeners.iter().any(|other| other.at == listen.at) {
            keys.faults.add(listen.at.place, format!("{} has two listeners: remove one", listen.at.value));
        }
        listeners.push(listen);
    }
    Some(listeners)
}

fn origins(keys: &Keys<'_>, key: &'static str) -> Option<Vec<OriginConfig>> {
    let mut origins: Vec<OriginConfig> = Vec::new();
    for table in keys.tables(key, MAX_ORIGINS) {
        // One whose name is unknown is nothing that a site could mean.
        let origin = OriginConfig::open(table, keys.faults, &Serve);
        let Some(origin) = origin.filter(|origin| !origin.name.is_empty()) else { continue };
        if origins.iter().any(|other| other.name == origin.name) {
            let problem = format!("there is another origin `{}`: rename one", origin.name);
            keys.faults.add(table.place_of("name"), problem);
        }
        origins.push(origin);
    }
    Some(origins)
}

fn sites(keys: &Keys<'_>, key: &'static str) -> Option<Vec<Draft>> {
    Some(keys.tables(key, MAX_SITES).filter_map(|table| Draft::read(table, keys.faults)).collect())
}

/// Returns the keys of all tables, with their meanings and defaults. `docs/serve.md` has their rows.
pub fn reference() -> impl Iterator<Item = Schema> {
    [
        Root::SCHEMA,
        listen::ListenKeys::SCHEMA,
        site::SiteKeys::SCHEMA,
        site::RouteKeys::SCHEMA,
        content::ContentKeys::SCHEMA,
        Handling::SCHEMA,
        Admission::SCHEMA,
        FilesConfig::SCHEMA,
        redirect::RedirectKeys::SCHEMA,
        certificate::CertificateFiles::SCHEMA,
        fields::Hsts::SCHEMA,
        OriginConfig::SCHEMA,
        origin::UpstreamKeys::SCHEMA,
        HealthConfig::SCHEMA,
        PassiveConfig::SCHEMA,
        acme::AcmeKeys::SCHEMA,
        compression::CompressKeys::SCHEMA,
        Limits::SCHEMA,
        Rates::SCHEMA,
        rates::Rate::SCHEMA,
        guess::GuessKeys::SCHEMA,
        marks::MarkKeys::SCHEMA,
        AccessLog::SCHEMA,
        Watch::SCHEMA,
    ]
    .into_iter()
}
