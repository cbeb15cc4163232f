//! Sites and their routes.

use http::HeaderValue;
use marcato_document::form::Flag;
use marcato_document::{Faults, Keyed as _, Keys, Place, Table, Value, keyed};

use super::certificate::CertificateSource;
use super::content::{self, Content, ContentKeys, Named};
use super::error_pages::{self, ErrorPage};
use super::fields::HSTS;
use super::form::{By, Serve};
use super::handling::Handling;
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
    /// Pages for errors, those of one status first.
    pub error_pages: Vec<ErrorPage>,
    /// True if the pages replace errors of origins as well as the server's own.
    pub intercepts_errors: bool,
    /// Handling of requests and responses.
    pub handling: Handling,
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
    /// Path that replaces that of the route in requests, without a slash at its end.
    pub rewrite: Option<String>,
    /// Content.
    pub content: Content,
    /// Paths that are tried where a directory has no file.
    pub try_files: Vec<String>,
    /// True to compress responses, false to leave them; `None` for what holds for all contents of the kind.
    pub compress: Option<bool>,
    /// Handling of requests and responses, without what the route has from its site.
    pub handling: Handling,
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
    error_pages: Vec<ErrorPage>,
    intercepts_errors: bool,
    compress: Option<bool>,
    handling: Handling,
}

struct RouteDraft {
    path: String,
    is_exact: bool,
    strips_prefix: bool,
    rewrite: Option<String>,
    compress: Option<bool>,
    handling: Handling,
    try_files: Vec<String>,
    content: Named,
}

/// Keys of a site.
#[derive(Default)]
pub(super) struct SiteKeys {
    hosts: Vec<(HostPattern, Place)>,
    default: bool,
    certificate: Option<Located<CertificateSource>>,
    content: ContentKeys,
    handling: Handling,
    hsts: Option<HeaderValue>,
    error_pages: Vec<ErrorPage>,
    intercept_errors: bool,
    compress: Option<bool>,
    routes: Vec<RouteDraft>,
}

keyed! {
    SiteKeys, "a site", |of: Serve|, onto Self::default(), flatten content: ContentKeys, flatten handling: Handling;
    /// names of the site, as `"example.org"`, or `"*.example.org"` for all directly below it
    "hosts" => hosts: By(hosts), own("none");
    /// answers requests for hosts that no other site has
    "default" => default: Flag, own("`true` for a site alone without `hosts`, otherwise `false`");
    /// `"self-signed"`, `"acme"`, or a table with [files](#keys-of-a-certificate)
    "certificate" => certificate: By(CertificateSource::read), optional("required with TLS");
    /// `Strict-Transport-Security`: true, false or a [table](#keys-of-hsts)
    "hsts" => hsts: HSTS, own("`false`");
    /// files for responses with an error, by their status: `{ 404 = "404.html", 5xx = "error.html" }`
    "error-pages" => error_pages: By(error_pages::read), own("none");
    /// uses `error-pages` for errors of origins too
    "intercept-errors" => intercept_errors: Flag, own();
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
    rewrite: Option<String>,
    content: ContentKeys,
    handling: Handling,
    compress: Option<bool>,
}

keyed! {
    RouteKeys, "a route", |of: Serve|, onto Self::default(), flatten content: ContentKeys, flatten handling: Handling;
    /// path with which its requests begin, as `"/api"`
    "path" => path: By(path), need("give the path with which its requests begin, as \"/api\"");
    /// requests of exactly this path
    "exact" => exact: Flag, own();
    /// removes the path from requests
    "strip-prefix" => strip_prefix: Flag, own();
    /// path that replaces the route's own in requests, as `"/v2"`
    "rewrite" => rewrite: By(path), optional("none");
    /// [compresses](#compression) responses
    "compress" => compress: Flag, optional("as the site");
}

impl Draft {
    pub(super) fn read(table: &Table, faults: &Faults) -> Option<Self> {
        let keys = Keys::open(table, &SiteKeys::SCHEMA, faults);
        let of = SiteKeys::read(&keys, &Serve)?;
        let SiteKeys { hosts, certificate, mut content, handling, hsts, compress, mut routes, .. } = of;
        let try_files = std::mem::take(&mut content.try_files);
        if let Some(content) = content.named(&keys) {
            if routes.iter().any(|route| route.path.is_empty() && !route.is_exact) {
                faults.add(table.place, "the site has a route of `/` beside its own content: remove one");
            }
            routes.push(RouteDraft {
                path: String::new(),
                is_exact: false,
                strips_prefix: false,
                rewrite: None,
                compress: None,
                handling: Handling::default(),
                try_files,
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
            error_pages: of.error_pages,
            intercepts_errors: of.intercept_errors,
            compress,
            handling,
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
            let RouteDraft { path, is_exact, strips_prefix, rewrite, compress, handling, try_files, content } =
                route;
            let compress = compress.or(self.compress);
            if let Some(content) = resolve(content) {
                routes.push(Route {
                    path,
                    is_exact,
                    strips_prefix,
                    rewrite,
                    content,
                    try_files,
                    compress,
                    handling,
                });
            }
        }
        let hosts = self.hosts.into_iter().map(|(host, _)| host).collect();
        Site {
            hosts,
            is_default,
            certificate,
            routes,
            hsts: self.hsts,
            error_pages: self.error_pages,
            intercepts_errors: self.intercepts_errors,
            handling: self.handling,
        }
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
        let RouteKeys { path, exact, strip_prefix, rewrite, mut content, handling, compress } = of;
        if strip_prefix && rewrite.is_some() {
            keys.fault("rewrite", "`rewrite` stands beside `strip-prefix`: remove one");
        }
        if rewrite.is_some() && keys.has("redirect") {
            keys.fault("rewrite", "a redirect passes no request on: write the path into its target");
        }
        Some(Self {
            path,
            is_exact: exact,
            strips_prefix: strip_prefix,
            rewrite,
            compress,
            handling,
            try_files: std::mem::take(&mut content.try_files),
            content: content.named(&keys)?,
        })
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
        let of = if key == "path" { " of a route" } else { "" };
        keys.fault(key, format!("{path:?} is no path{of}: {remedy}"));
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
