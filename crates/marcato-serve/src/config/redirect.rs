//! Redirects.

use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode, Uri};
use marcato_document::{Item, Value};

use super::error::Faults;
use super::keys::Keys;

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

impl Redirect {
    pub(crate) fn read(item: &Item, faults: &Faults) -> Option<Self> {
        let (to, place, status, keep_path) = match &item.value {
            Value::String(to) => (Some(&**to), item.place, None, None),
            Value::Table(table) => {
                let keys = Keys::open(table, "a redirect", &["to", "status", "keep-path"], faults);
                keys.need("to", "give a path, as \"/new\", or a URL, as \"https://example.org\"");
                let status = keys.whole("status", 100..=999);
                if let Some(status) = status.filter(|status| !matches!(status, 301 | 302 | 307 | 308)) {
                    let remedy = "use 308 or 301 for good, 307 or 302 for now";
                    keys.fault("status", format!("`status` is {status}: {remedy}"));
                }
                (keys.string("to"), keys.place("to"), status, keys.boolean("keep-path"))
            }
            other => {
                let problem = format!("`redirect` is a target or a table with `to`, not {}", other.what());
                faults.add(item.place, problem);
                return None;
            }
        };
        let to = to?;
        let is_path = to.starts_with('/') && !to.starts_with("//") && PathAndQuery::try_from(to).is_ok();
        let url = to.parse::<Uri>().ok().filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|it| !it.is_empty())
        });
        if !is_path && url.is_none() || HeaderValue::from_str(to).is_err() {
            let remedy = "give a path, as \"/new\", or a URL, as \"https://example.org\"";
            faults.add(place, format!("{to:?} is no target: {remedy}"));
            return None;
        }
        let is_host_alone = url.is_some_and(|uri| matches!(uri.path(), "" | "/") && uri.query().is_none());
        let status = status.and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok());
        Some(Self {
            to: to.to_owned(),
            status: status.unwrap_or(StatusCode::PERMANENT_REDIRECT),
            keep_path: keep_path.unwrap_or(is_host_alone),
        })
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
