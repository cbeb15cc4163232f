//! Second reading of a configuration: its files, directories and origins.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use marcato_document::{Faults, Place};
use marcato_identity::PemError;
use marcato_web::Identity;
use marcato_web::compression::Compression;
use marcato_web::files::{Files, FilesConfig};
use marcato_web::proxy::{Proxy, ProxyConfig, Roots};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;

use crate::acme;
use crate::admission::Admission;
use crate::certificates::{Names, Presentable, Verifier, self_signed};
use crate::config::{self, CertificateSource, Config, ConfigError, Content, Located, OriginConfig, Site};
use crate::error_pages::ErrorPages;
use crate::router;

/// Name in a self-signed certificate of a site without names. Browsers warn of it under any other.
const NAME: &str = "localhost";

/// Everything that a configuration names, open.
///
/// What a new configuration shares with the previous one is taken over: origins keep their connections
/// and the state of their health, directories keep their cache.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) sites: Arc<router::Sites>,
    /// Certificate of each site; `None` for one that an authority has not issued yet.
    pub(crate) certificates: Vec<Option<Presentable>>,
    pub(crate) compression: Compression,
    /// Certificate of the authority of clients, as the file has it, and its verifier.
    clients: Option<(Vec<u8>, Verifier)>,
    files: Vec<(FilesConfig, Files)>,
    origins: HashMap<String, OpenOrigin>,
}

#[derive(Clone, Debug)]
struct OpenOrigin {
    config: OriginConfig,
    /// Authority's certificate, as the file has it.
    ca: Option<Vec<u8>>,
    proxy: Proxy,
}

impl Opened {
    /// Opens what a configuration names. It needs a runtime.
    ///
    /// # Errors
    /// All that cannot be opened, each with its place in the file.
    pub(crate) fn new(config: &Config, before: &Self) -> Result<Self, ConfigError> {
        let faults = config.faults();
        let mut opened = Self { compression: before.compression.clone(), ..Self::default() };
        // Equal ones go on, with their counters.
        if *opened.compression.config() != config.compression.how {
            match Compression::new(config.compression.how.clone()) {
                Ok(compression) => opened.compression = compression,
                Err(error) => faults.add(Place::START, error.to_string()),
            }
        }
        if let Some(file) = &config.client_ca {
            opened.clients = read_clients(&config.path(&file.value), before)
                .map_err(|problem| faults.add(file.place, problem))
                .ok();
        }
        for origin in &config.origins {
            opened.origins.extend(open_origin(config, origin, before, &faults));
        }
        let mut sites = router::Sites::new(config.trusted_proxies.clone(), before.sites.passwords());
        let mut contents: Vec<Content> = Vec::new();
        let has_tls = config.listen.iter().any(|listen| !listen.plaintext);
        for site in &config.sites {
            let admission = |rule: &Option<config::Admission>| {
                let rule = Admission::new(rule.as_ref()?);
                rule.is_strict().then(|| Arc::new(rule))
            };
            let own = admission(&site.handling.access);
            let routes = site.routes.iter().filter_map(|route| {
                let content = match &route.content {
                    Content::Redirect(redirect) => Some(router::Content::Redirect(redirect.clone())),
                    Content::Origin(name) => {
                        opened.origins.get(name).map(|origin| router::Content::Origin(origin.proxy.clone()))
                    }
                    Content::Files(files) => open_files(config, files, &mut opened.files, before, &faults),
                };
                let is_same = |other: &Content| match (other, &route.content) {
                    (Content::Files(one), Content::Files(other)) => one.value.root == other.value.root,
                    (one, other) => one == other,
                };
                let content_number = contents.iter().position(is_same).unwrap_or(contents.len());
                if content_number == contents.len() {
                    contents.push(route.content.clone());
                }
                let handling = route.handling.within(&site.handling);
                let of_kind = match &route.content {
                    Content::Files(_) => config.compression.directories,
                    Content::Origin(_) => config.compression.origins,
                    Content::Redirect(_) => false,
                };
                let compression = route.compress.unwrap_or(of_kind).then(|| opened.compression.clone());
                // Routes without a rule of their own share that of the site.
                let admission = match &route.handling.access {
                    Some(_) => admission(&route.handling.access),
                    None => own.clone(),
                };
                Some(router::Route {
                    path: route.path.clone(),
                    plain: router::plain(&route.path),
                    is_exact: route.is_exact,
                    rewrite: route.rewrite.clone().or_else(|| route.strips_prefix.then(String::new)),
                    content: content?,
                    content_number,
                    try_files: route.try_files.clone(),
                    compression,
                    request_fields: handling.request,
                    fields: handling.response,
                    body_limit: handling.body_limit.map(marcato_units::Bytes::get),
                    admission,
                })
            });
            let routes = routes.collect();
            let name = site.hosts.iter().find(|host| !host.is_wildcard()).map(|host| host.name().to_owned());
            let open = router::Site {
                routes,
                fields: site.handling.response.clone(),
                hsts: site.hsts.clone(),
                name,
                admission: own,
                error_pages: ErrorPages::read(config, site, &faults),
            };
            sites.add(&site.hosts, site.is_default, Arc::new(open));
        }
        opened.sites = Arc::new(sites);
        if has_tls {
            opened.certificates = read_certificates(config, &before.certificates, &faults);
        }
        faults.into_result()?;
        Ok(opened)
    }

    /// Reads the certificates again. Those that cannot be read stay.
    pub(crate) fn refresh(&mut self, config: &Config) -> (bool, Result<(), ConfigError>) {
        if self.certificates.is_empty() {
            return (false, Ok(()));
        }
        let faults = config.faults();
        let mut read = read_certificates(config, &self.certificates, &faults);
        let mut changed = false;
        for (next, current) in read.iter_mut().zip(&self.certificates) {
            if next.is_none() {
                next.clone_from(current);
            }
            let of = |it: &Option<Presentable>| it.as_ref().map(|it| it.identity.clone());
            changed |= of(next) != of(current);
        }
        self.certificates = read;
        (changed, faults.into_result().map_err(ConfigError::from))
    }

    /// Returns the verifier of clients' certificates, if they are asked for.
    pub(crate) fn clients(&self) -> Option<&Verifier> {
        self.clients.as_ref().map(|(_, verifier)| verifier)
    }

    /// Returns the file services, by their directories.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, &Files)> {
        self.files.iter().map(|(config, files)| (config.root.as_path(), files))
    }

    /// Returns the proxies, by the names of their origins.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = (&str, &Proxy)> {
        self.origins.iter().map(|(name, origin)| (name.as_str(), &origin.proxy))
    }

    /// Returns the certificates by the names of their sites.
    pub(crate) fn names(&self, config: &Config) -> Names {
        let mut names = Names::default();
        for (site, certificate) in config.sites.iter().zip(&self.certificates) {
            if let Some(certificate) = certificate {
                names.add(&site.hosts, site.is_default, certificate);
            }
        }
        names
    }
}

fn open_files(
    config: &Config,
    files: &Located<FilesConfig>,
    opened: &mut Vec<(FilesConfig, Files)>,
    before: &Opened,
    faults: &Faults,
) -> Option<router::Content> {
    let mut wanted = files.value.clone();
    wanted.root = config.path(&wanted.root);
    let known = opened.iter().chain(&before.files).find(|(other, _)| *other == wanted);
    let result = match known {
        // It may have been removed meanwhile.
        Some((_, files)) if wanted.root.is_dir() => Ok(files.clone()),
        _ => Files::new(wanted.clone()),
    };
    match result {
        Ok(files) => {
            opened.push((wanted, files.clone()));
            Some(router::Content::Files(files))
        }
        Err(error) => {
            faults.add(files.place, error.to_string());
            None
        }
    }
}

fn open_origin(
    config: &Config,
    origin: &OriginConfig,
    before: &Opened,
    faults: &Faults,
) -> Option<(String, OpenOrigin)> {
    let mut ca = None;
    let mut roots = Roots::Native;
    if let Some(file) = &origin.ca {
        match read_roots(&config.path(&file.value)) {
            Ok((bytes, store)) => (ca, roots) = (Some(bytes), Roots::Given(Arc::new(store))),
            Err(problem) => {
                faults.add(file.place, problem);
                return None;
            }
        }
    }
    if let Some(known) = before.origins.get(&origin.name)
        && known.config == *origin
        && known.ca == ca
    {
        return Some((origin.name.clone(), known.clone()));
    }
    match Proxy::new(ProxyConfig { roots, ..origin.proxy.clone() }) {
        Ok(proxy) => Some((origin.name.clone(), OpenOrigin { config: origin.clone(), ca, proxy })),
        Err(error) => {
            faults.add(origin.at.place, error.to_string());
            None
        }
    }
}

/// Reads the authority of clients' certificates. An equal one is taken over, so that sessions stay.
fn read_clients(path: &Path, before: &Opened) -> Result<(Vec<u8>, Verifier), String> {
    let (bytes, roots) = read_roots(path)?;
    if let Some(known) = before.clients.as_ref().filter(|(known, _)| *known == bytes) {
        return Ok(known.clone());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok((bytes, verifier.map_err(|error| format!("{} cannot be used: {error}", path.display()))?))
}

fn read_roots(path: &Path) -> Result<(Vec<u8>, RootCertStore), String> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| format!("{shown} is damaged: {error}"))?;
        store.add(certificate).map_err(|error| format!("{shown} has an unusable certificate: {error}"))?;
    }
    if store.is_empty() {
        return Err(format!("{shown} has no certificate: give PEM with a section `BEGIN CERTIFICATE`"));
    }
    Ok((bytes, store))
}

/// Reads the certificate of each site. Equal ones are taken over, so that sessions stay.
fn read_certificates(
    config: &Config,
    before: &[Option<Presentable>],
    faults: &Faults,
) -> Vec<Option<Presentable>> {
    let known = |identity: &Identity| before.iter().flatten().find(|it| it.identity == *identity).cloned();
    let read = |site: &Site| {
        let place = site.certificate.place;
        let (identity, place) = match &site.certificate.value {
            CertificateSource::SelfSigned => {
                let names: Vec<String> = match site.hosts.is_empty() {
                    true => vec![NAME.to_owned()],
                    false => site.hosts.iter().map(ToString::to_string).collect(),
                };
                // One that was made for the same names goes on.
                if let Some(made) = before.iter().flatten().find(|it| it.is_made_for(&names)) {
                    return Some(made.clone());
                }
                let made = self_signed(&names);
                return made.map_err(|error| faults.add(place, error.to_string())).ok();
            }
            CertificateSource::Files { chain, key } => {
                let paths = (config.path(&chain.value), config.path(&key.value));
                match Identity::from_pem_files(&paths.0, &paths.1) {
                    Ok(identity) => (identity, chain.place),
                    Err(error) => {
                        let of_key = names_file(&error).is_some_and(|file| *file == paths.1);
                        faults.add(if of_key { key.place } else { chain.place }, error.to_string());
                        return None;
                    }
                }
            }
            CertificateSource::Acme => {
                let state = config.acme.as_ref()?;
                let hosts: Vec<String> = site.hosts.iter().map(ToString::to_string).collect();
                let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
                (acme::stored(&config.path(&state.state.value), &hosts)?, place)
            }
        };
        if let Some(known) = known(&identity) {
            return Some(known);
        }
        match Presentable::new(identity) {
            Ok(presentable) => Some(presentable),
            Err(error) => {
                faults.add(place, format!("the certificate cannot be used: {error}"));
                None
            }
        }
    };
    config.sites.iter().map(read).collect()
}

/// Returns the file that an error is about.
fn names_file(error: &PemError) -> Option<&PathBuf> {
    use marcato_identity::PemOrigin::File;
    match error {
        PemError::Read { file, .. } => Some(file),
        PemError::Damaged { origin: File(file), .. }
        | PemError::NoKey { origin: File(file) }
        | PemError::Unusable { origin: File(file), .. } => Some(file),
        _ => None,
    }
}
