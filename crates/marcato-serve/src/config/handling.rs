//! Handling of requests and responses, which a site and its routes have in common.

use http::{HeaderName, HeaderValue};
use marcato_document::keyed;
use marcato_units::Bytes;

use super::admission::Admission;
use super::fields;
use super::form::{By, Serve, section};
use super::limits::size;

/// Largest bound of a body: 1 TiB.
const MAX_BODY: u64 = 1 << 40;

/// Handling of the requests of a site or a route, and of their responses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handling {
    /// Changes of requests before their content sees them.
    pub request: FieldChanges,
    /// Changes of all responses.
    pub response: FieldChanges,
    /// Most bytes of a request's body; `None` for no bound.
    pub body_limit: Option<Bytes>,
    /// Rule of who is served; `None` for that of the site, or for everyone.
    pub access: Option<Admission>,
}

/// Fields that are removed, and then those that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldChanges {
    /// Fields that are set, and replace others of their name.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Fields that are removed.
    pub remove: Vec<HeaderName>,
}

keyed! {
    Handling, "handling", |of: Serve|, onto Self::default();
    /// fields of all responses; those of a route replace those of its site
    "headers" => response.set: By(fields::of_responses), own("none");
    /// names of fields that are removed from responses, before `headers` are set
    "remove-headers" => response.remove: By(fields::removed_from_responses), own("none");
    /// fields of requests, as their content sees them; those of a route replace those of its site
    "request-headers" => request.set: By(fields::of_requests), own("none");
    /// names of fields that are removed from requests, before `request-headers` are set
    "remove-request-headers" => request.remove: By(fields::removed_from_requests), own("none");
    /// most bytes of a request's body; longer ones get 413. A route may raise or lower that of its site
    "body-limit" => body_limit: size(0, MAX_BODY), optional("no limit");
    /// [rule of who is served](#keys-of-access); the table of a route replaces that of its site, and `{}` is everyone
    "access" => access: section::<Admission>(), optional("everyone");
}

impl FieldChanges {
    /// Returns the changes of a route, with those of its site that the route does not replace.
    fn within(&self, site: &Self) -> Self {
        let is_known = |name: &HeaderName| self.set.iter().any(|(own, _)| own == name);
        let inherited = site.set.iter().filter(|(name, _)| !is_known(name) && !self.remove.contains(name));
        let set = inherited.chain(&self.set).cloned().collect();
        let remove = site.remove.iter().chain(&self.remove).cloned().collect();
        Self { set, remove }
    }
}

impl Handling {
    /// Returns the handling of a route, with what it has from its site.
    pub(crate) fn within(&self, site: &Self) -> Self {
        Self {
            request: self.request.within(&site.request),
            response: self.response.within(&site.response),
            body_limit: self.body_limit.or(site.body_limit),
            access: self.access.as_ref().or(site.access.as_ref()).cloned(),
        }
    }
}
