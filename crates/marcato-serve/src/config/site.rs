//! Sites and their routes.

use http::{HeaderName, HeaderValue};
use marcato_document::form::Flag;
use marcato_document::{Faults, Keyed as _, Keys, Place, Table, Value, keyed};

use super::certificate::CertificateSource;
use super::content::{self, Content, ContentKeys, Named};
use super::fields::{self, HSTS};
use super::form::{By, Serve};
use super::host::HostPattern;
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
    pub(super) place: Place,
    pub(super) hosts: Vec<(HostPattern, Place)>,
    /// True if there is a key `hosts`, also one with faults.
    pub(super) has_hosts: bool,
    /// True if there is a key `hosts` or `default`.
    pub(super) is_named: bool,
    pub(super) is_default: Option<Place>,
    /// True if there is a key `certificate`, also one with faults.
    pub(super) has_certificate: bool,
    pub(super) certificate: Option<Located<CertificateSource>>,
    routes: Vec<RouteDraft>,
    hsts: Option<HeaderValue>,
    compress: Option<bool>,
    fields: Vec<(HeaderName, HeaderValue)>,
}

struct RouteDraft {
    path: String,
    is_exact: bool,
    strips_prefix: bool,
    compress: Option<bool>,
    fields: Vec<(HeaderName, HeaderValue)>,
    content: Named,
}

/// Keys of a site.
#[derive(Default)]
pub(super) struct SiteKeys {
    hosts: Vec<(HostPattern, Place)>,
    default: bool,
    certificate: Option<Located<CertificateSource>>,
    content: ContentKeys,
    hsts: Option<HeaderValue>,
    fields: Vec<(HeaderName, HeaderValue)>,
    compress: Option<bool>,
    routes: Vec<RouteDraft>,
}

keyed! {
    SiteKeys, "a site", |of: Serve|, onto Self::default(), flatten content: ContentKeys;
    /// names of the site, as `"example.org"`, or `"*.example.org"` for all directly below it
    "hosts" => hosts: By(hosts), own("none");
    /// answers requests for hosts that no other site has
    "default" => default: Flag, own("`true` for a site alone without `hosts`, otherwise `false`");
    /// `"self-signed"`, `"acme"`, or a table with [files](#keys-of-a-certificate)
    "certificate" => certificate: By(CertificateSource::read), optional("required with TLS");
    /// `Strict-Transport-Security`: true, false or a [table](#keys-of-hsts)
    "hsts" => hsts: HSTS, own("`false`");
    /// fields of all responses
    "headers" => fields: By(fields::read), own("none");
    /// [compresses](#compression) responses
    "compress" => compress: Flag, optional("as `compression` says");
    /// [routes](#keys-of-a-route), each under `[[site.route]]`
    "route" => routes: By(routes), own("none");
}

/// Keys of a route.
#[derive(Default)]
pub(super) struct RouteKeys {
    path: String,
    exact: bool,
    strip_prefix: bool,
    content: ContentKeys,
    fields: Vec<(HeaderName, HeaderValue)>,
    compress: Option<bool>,
}

keyed! {
    RouteKeys, "a route", |of: Serve|, onto Self::default(), flatten content: ContentKeys;
    /// path with which its requests begin, as `"/api"`
    "path" => path: By(path), need("give the path with which its requests begin, as \"/api\"");
    /// requests of exactly this path
    "exact" => exact: Flag, own();
    /// removes the path from requests
    "strip-prefix" => strip_prefix: Flag, own();
    /// fields of all responses; they replace those of the site
    "headers" => fields: By(fields::read), own("none");
    /// [compresses](#compression) responses
    "compress" => compress: Flag, optional("as the site");
}

impl Draft {
    pub(super) fn read(table: &Table, faults: &Faults) -> Option<Self> {
        let keys = Keys::open(table, &SiteKeys::SCHEMA, faults);
        let of = SiteKeys::read(&keys, &Serve)?;
        let SiteKeys { hosts, certificate, content, hsts, fields, compress, mut routes, .. } = of;
        if let Some(content) = content.named(&keys) {
            if routes.iter().any(|route| route.path.is_empty() && !route.is_exact) {
                faults.add(table.place, "the site has a route of `/` beside its own content: remove one");
            }
            routes.push(RouteDraft {
                path: String::new(),
                is_exact: false,
                strips_prefix: false,
                compress: None,
                fields: Vec::new(),
                content,
            });
        } else if !content::is_given(&keys) && !keys.has("route") {
            faults.add(
                table.place,
                "the site has no content: add a `directory`, an `origin`, a `redirect` or a [[site.route]]",
            );
        }
        // The most specific first: exact ones, then by length.
        routes.sort_by_key(|route| std::cmp::Reverse((route.path.len(), route.is_exact)));
        let is = |key: &str, value: Value| keys.item(key).is_some_and(|item| item.value == value);
        let has_hosts = keys.has("hosts") && !is("hosts", Value::Array(Vec::new()));
        Some(Self {
            place: table.place,
            hosts,
            has_hosts,
            is_named: has_hosts || keys.has("default") && !is("default", Value::Boolean(false)),
            is_default: of.default.then(|| keys.place("default")),
            has_certificate: keys.has("certificate"),
            certificate,
            routes,
            hsts,
            compress,
            fields,
        })
    }

    /// Returns the site, with its contents as `resolve` has them.
    pub(super) fn finish(
        self,
        certificate: Located<CertificateSource>,
        is_default: bool,
        mut resolve: impl FnMut(Named) -> Option<Content>,
    ) -> Site {
        let mut routes = Vec::with_capacity(self.routes.len());
        for route in self.routes {
            let RouteDraft { path, is_exact, strips_prefix, compress, fields, content } = route;
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
    fn read(table: &Table, faults: &Faults) -> Option<Self> {
        let keys = Keys::open(table, &RouteKeys::SCHEMA, faults);
        let of = RouteKeys::read(&keys, &Serve)?;
        if !content::is_given(&keys) {
            faults
                .add(table.place, "the route has no content: add a `directory`, an `origin` or a `redirect`");
        }
        let RouteKeys { path, exact: is_exact, strip_prefix: strips_prefix, content, fields, compress } = of;
        Some(Self { path, is_exact, strips_prefix, compress, fields, content: content.named(&keys)? })
    }
}

fn hosts(keys: &Keys<'_>, key: &'static str) -> Option<Vec<(HostPattern, Place)>> {
    let mut hosts: Vec<(HostPattern, Place)> = Vec::new();
    for (text, place) in keys.several_strings(key, MAX_HOSTS) {
        match HostPattern::parse(text) {
            Ok(host) if hosts.iter().any(|(other, _)| *other == host) => {
                keys.faults.add(place, format!("`{host}` is given twice: remove one"));
            }
            Ok(host) => hosts.push((host, place)),
            Err(error) => keys.faults.add(place, error.to_string()),
        }
    }
    Some(hosts)
}

fn routes(keys: &Keys<'_>, key: &'static str) -> Option<Vec<RouteDraft>> {
    let mut routes: Vec<RouteDraft> = Vec::new();
    for table in keys.tables(key, MAX_ROUTES) {
        let Some(route) = RouteDraft::read(table, keys.faults) else { continue };
        if routes.iter().any(|other| (&other.path, other.is_exact) == (&route.path, route.is_exact)) {
            let problem = format!("the site has another route of `{}`: remove one", shown(&route.path));
            keys.faults.add(table.place_of("path"), problem);
        }
        routes.push(route);
    }
    Some(routes)
}

/// Reads the path of a route, without a slash at its end.
fn path(keys: &Keys<'_>, key: &'static str) -> Option<String> {
    let path = keys.some_string(key)?;
    if !is_path(path) {
        let remedy = "begin with a slash, and write neither a query nor empty or dot segments";
        keys.fault(key, format!("{path:?} is no path of a route: {remedy}"));
    }
    Some(path.trim_end_matches('/').to_owned())
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
