//! Sites and their routes.

use http::{HeaderName, HeaderValue};
use marcato_document::{Place, Table, Value};

use super::certificate::CertificateSource;
use super::content::{self, Content, Named};
use super::error::Faults;
use super::fields;
use super::host::HostPattern;
use super::keys::Keys;
use super::located::Located;

/// Most names of a site.
const MAX_HOSTS: usize = 1000;
/// Most routes of a site.
const MAX_ROUTES: usize = 1000;

/// Site: names, a certificate and routes.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Names; none for a site that answers to all.
    pub hosts: Vec<HostPattern>,
    /// True for the site of requests whose host no other site has.
    pub is_default: bool,
    /// Source of the certificate.
    pub certificate: Located<CertificateSource>,
    /// Routes, those with longer paths first. The last one may have the path `/`.
    pub routes: Vec<Route>,
    /// Value of `Strict-Transport-Security` over TLS.
    pub hsts: Option<HeaderValue>,
    /// Fields of all responses.
    pub fields: Vec<(HeaderName, HeaderValue)>,
}

/// Route: a content below a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Path with which requests begin, without a slash at its end.
    pub path: String,
    /// True for requests of exactly this path.
    pub is_exact: bool,
    /// True to remove the path from requests.
    pub strips_prefix: bool,
    /// Content.
    pub content: Content,
    /// True to compress responses, false to leave them; `None` for what holds for all contents of the kind.
    pub compress: Option<bool>,
    /// Fields of all responses, which replace those of the site.
    pub fields: Vec<(HeaderName, HeaderValue)>,
}

/// Site as it is read: names of origins are not resolved.
pub(super) struct Draft {
    pub(super) hosts: Vec<(HostPattern, Place)>,
    /// True if there is a key `hosts`, also one with faults.
    pub(super) has_hosts: bool,
    /// True if there is a key `hosts` or `default`.
    pub(super) is_named: bool,
    pub(super) is_default: Option<Place>,
    pub(super) certificate: Option<Located<CertificateSource>>,
    pub(super) routes: Vec<(RouteDraft, Named)>,
    hsts: Option<HeaderValue>,
    compress: Option<bool>,
    fields: Vec<(HeaderName, HeaderValue)>,
}

pub(super) struct RouteDraft {
    path: String,
    is_exact: bool,
    strips_prefix: bool,
    compress: Option<bool>,
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl Draft {
    pub(super) fn read(table: &Table, faults: &Faults) -> Self {
        let own = ["hosts", "default", "certificate", "hsts", "headers", "compress", "route"];
        let known: Vec<&str> = own.into_iter().chain(content::KEYS).collect();
        let keys = Keys::open(table, "a site", &known, faults);
        let mut hosts: Vec<(HostPattern, Place)> = Vec::new();
        for (text, place) in keys.strings("hosts", MAX_HOSTS) {
            match HostPattern::parse(text) {
                Ok(host) if hosts.iter().any(|(other, _)| *other == host) => {
                    faults.add(place, format!("`{host}` is given twice: remove one"));
                }
                Ok(host) => hosts.push((host, place)),
                Err(error) => faults.add(place, error.to_string()),
            }
        }
        let is = |key: &str, value: Value| keys.item(key).is_some_and(|item| item.value == value);
        let has_hosts = keys.has("hosts") && !is("hosts", Value::Array(Vec::new()));
        let is_false = is("default", Value::Boolean(false));
        let mut routes = Vec::new();
        let mut paths: Vec<(String, bool)> = Vec::new();
        for table in keys.tables("route", MAX_ROUTES) {
            let Some((route, content)) = RouteDraft::read(table, faults) else { continue };
            let own = (route.path.clone(), route.is_exact);
            if paths.contains(&own) {
                let place = table.place_of("path");
                faults.add(place, format!("the site has another route of `{}`: remove one", shown(&own.0)));
            }
            paths.push(own);
            routes.push((route, content));
        }
        let has_content = ["directory", "origin", "redirect"].iter().any(|key| keys.has(key));
        if let Some(content) = content::read(&keys) {
            if paths.contains(&(String::new(), false)) {
                faults.add(table.place, "the site has a route of `/` beside its own content: remove one");
            }
            let whole = RouteDraft {
                path: String::new(),
                is_exact: false,
                strips_prefix: false,
                compress: None,
                fields: Vec::new(),
            };
            routes.push((whole, content));
        } else if !has_content && !keys.has("route") {
            faults.add(
                table.place,
                "the site has no content: add a `directory`, an `origin`, a `redirect` or a [[site.route]]",
            );
        }
        // The most specific first: exact ones, then by length.
        routes.sort_by_key(|(route, _)| std::cmp::Reverse((route.path.len(), route.is_exact)));
        Self {
            hosts,
            has_hosts,
            is_named: has_hosts || keys.has("default") && !is_false,
            is_default: keys.boolean("default").filter(|it| *it).map(|_| keys.place("default")),
            certificate: keys.item("certificate").and_then(|item| CertificateSource::read(item, faults)),
            routes,
            hsts: keys.item("hsts").and_then(|item| fields::read_hsts(item, faults)),
            compress: keys.boolean("compress"),
            fields: fields::read(&keys),
        }
    }

    /// Returns the site, with its contents as `resolve` has them.
    pub(super) fn finish(
        self,
        certificate: Located<CertificateSource>,
        is_default: bool,
        mut resolve: impl FnMut(Named) -> Option<Content>,
    ) -> Site {
        let mut routes = Vec::with_capacity(self.routes.len());
        for (route, content) in self.routes {
            let RouteDraft { path, is_exact, strips_prefix, compress, fields } = route;
            let compress = compress.or(self.compress);
            if let Some(content) = resolve(content) {
                routes.push(Route { path, is_exact, strips_prefix, content, compress, fields });
            }
        }
        let hosts = self.hosts.into_iter().map(|(host, _)| host).collect();
        Site { hosts, is_default, certificate, routes, hsts: self.hsts, fields: self.fields }
    }
}

impl RouteDraft {
    fn read(table: &Table, faults: &Faults) -> Option<(Self, Named)> {
        let own = ["path", "exact", "strip-prefix", "compress", "headers"];
        let known: Vec<&str> = own.into_iter().chain(content::KEYS).collect();
        let keys = Keys::open(table, "a route", &known, faults);
        keys.need("path", "give the path with which its requests begin, as \"/api\"");
        let path = keys.string("path");
        if let Some(path) = path.filter(|path| !is_path(path)) {
            let remedy = "begin with a slash, and write neither a query nor empty or dot segments";
            keys.fault("path", format!("{path:?} is no path of a route: {remedy}"));
        }
        if !["directory", "origin", "redirect"].iter().any(|key| keys.has(key)) {
            faults
                .add(table.place, "the route has no content: add a `directory`, an `origin` or a `redirect`");
        }
        let content = content::read(&keys);
        let route = Self {
            is_exact: keys.boolean("exact").unwrap_or(false),
            strips_prefix: keys.boolean("strip-prefix").unwrap_or(false),
            compress: keys.boolean("compress"),
            fields: fields::read(&keys),
            path: path.unwrap_or_default().trim_end_matches('/').to_owned(),
        };
        Some((route, content?))
    }
}

fn is_path(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let segments = rest.strip_suffix('/').unwrap_or(rest);
    http::uri::PathAndQuery::try_from(path).is_ok_and(|it| it.as_str() == path && it.query().is_none())
        && !path.contains('#')
        && (segments.is_empty() || !segments.split('/').any(|one| matches!(one, "" | "." | "..")))
}

/// Returns a route's path for people.
fn shown(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}
