//! Redirects.

use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode, Uri};
use marcato_document::form::{Flag, Single, SomeText};
use marcato_document::{Keyed as _, Keys, Value, keyed};

use super::form::{Placed, Serve};
use super::located::Located;

/// Redirect to another path or another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Target: an absolute path, or a URL.
    pub to: String,
    /// Status: 301, 302, 307 or 308.
    pub status: StatusCode,
    /// True to append the rest of the request's path, and its query.
    pub keep_path: bool,
}

/// Keys of a redirect.
pub(super) struct RedirectKeys {
    to: Option<Located<String>>,
    status: StatusCode,
    keep_path: Option<bool>,
}

impl Default for RedirectKeys {
    fn default() -> Self {
        Self { to: None, status: StatusCode::PERMANENT_REDIRECT, keep_path: None }
    }
}

keyed! {
    RedirectKeys, "a redirect", |of: Serve|, onto Self::default();
    /// target: a path or a URL
    "to" => to: Placed(SomeText), need("give a path, as \"/new\", or a URL, as \"https://example.org\"");
    /// 308 or 301 for good, 307 or 302 for now
    "status" => status: Status, own();
    /// appends the rest of the request's path, and its query
    "keep-path" => keep_path: Flag, optional("`true` if the target is a host alone");
}

/// Status of a redirect.
struct Status;

impl Single<Serve> for Status {
    type Value = StatusCode;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &Serve) -> Option<StatusCode> {
        let status = keys.small(key, 100..=999)?;
        if !matches!(status, 301 | 302 | 307 | 308) {
            let remedy = "use 308 or 301 for good, 307 or 302 for now";
            keys.fault(key, format!("`status` is {status}: {remedy}"));
        }
        StatusCode::from_u16(u16::try_from(status).ok()?).ok()
    }

    fn toml(&self, status: &StatusCode) -> String {
        status.as_u16().to_string()
    }
}

impl Redirect {
    /// Reads a target, or a table.
    pub(super) fn read(keys: &Keys<'_>, key: &'static str) -> Option<Self> {
        let item = keys.item(key)?;
        let RedirectKeys { to, status, keep_path } = match &item.value {
            Value::String(to) => {
                let to = Some(Located::at(item.place, to.to_string()));
                RedirectKeys { to, ..RedirectKeys::default() }
            }
            Value::Table(table) => RedirectKeys::open(table, keys.faults, &Serve)?,
            other => {
                let problem = format!("`redirect` is a target or a table with `to`, not {}", other.what());
                keys.fault(key, problem);
                return None;
            }
        };
        let Located { value: to, place } = to?;
        let is_path = to.starts_with('/') && !to.starts_with("//") && PathAndQuery::try_from(&*to).is_ok();
        let url = to.parse::<Uri>().ok().filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|it| !it.is_empty())
        });
        if !is_path && url.is_none() || HeaderValue::from_str(&to).is_err() {
            let remedy = "give a path, as \"/new\", or a URL, as \"https://example.org\"";
            keys.faults.add(place, format!("{to:?} is no target: {remedy}"));
            return None;
        }
        let is_host_alone = url.is_some_and(|uri| matches!(uri.path(), "" | "/") && uri.query().is_none());
        Some(Self { to, status, keep_path: keep_path.unwrap_or(is_host_alone) })
    }

    /// Returns the target for a request: `rest` is its path behind that of the route.
    pub(crate) fn location(&self, rest: &str, query: Option<&str>) -> Option<HeaderValue> {
        if !self.keep_path {
            return HeaderValue::from_str(&self.to).ok();
        }
        let (base, rest) = (self.to.trim_end_matches('/'), rest.trim_start_matches('/'));
        let query = query.map_or(String::new(), |query| format!("?{query}"));
        HeaderValue::from_str(&format!("{base}/{rest}{query}")).ok()
    }
}
