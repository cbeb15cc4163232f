//! Fields that a site or a route sets or removes.

use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, EXPECT, FORWARDED, HOST, MAX_FORWARDS,
    STRICT_TRANSPORT_SECURITY, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderName, HeaderValue};
use marcato_document::form::{Flag, SpanWithin};
use marcato_document::{Keys, keyed};

use super::form::{FlagOr, Serve, each};

/// Most fields of a table, and most names of a list.
const MAX_FIELDS: usize = 64;

/// Fields that the server itself writes: those of one connection (RFC 9110 §7.6.1), and those that frame a message.
const OWN: [HeaderName; 10] = [
    CONNECTION,
    CONTENT_LENGTH,
    DATE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
];

/// Direction of the messages whose fields are changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Requests,
    Responses,
}

/// Change of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Set,
    Remove,
}

/// Reads the table `headers`: fields of responses and their values.
pub(super) fn of_responses(keys: &Keys<'_>, key: &'static str) -> Option<Vec<(HeaderName, HeaderValue)>> {
    set(keys, key, Of::Responses)
}

/// Reads the table `request-headers`: fields of requests and their values.
pub(super) fn of_requests(keys: &Keys<'_>, key: &'static str) -> Option<Vec<(HeaderName, HeaderValue)>> {
    set(keys, key, Of::Requests)
}

/// Reads the list `remove-headers`.
pub(super) fn removed_from_responses(keys: &Keys<'_>, key: &'static str) -> Option<Vec<HeaderName>> {
    Some(each(keys, key, MAX_FIELDS, |name, _| named(name, Of::Responses, Change::Remove)))
}

/// Reads the list `remove-request-headers`.
pub(super) fn removed_from_requests(keys: &Keys<'_>, key: &'static str) -> Option<Vec<HeaderName>> {
    Some(each(keys, key, MAX_FIELDS, |name, _| named(name, Of::Requests, Change::Remove)))
}

fn set(keys: &Keys<'_>, key: &'static str, of: Of) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let table = keys.table(key)?;
    let mut fields = Vec::new();
    if table.entries.len() > MAX_FIELDS {
        keys.fault(key, format!("`{key}` has {} fields: give at most {MAX_FIELDS}", table.entries.len()));
    }
    for (key, item) in table.entries.iter().take(MAX_FIELDS) {
        let name = named(&key.name, of, Change::Set);
        if let Err(problem) = &name {
            keys.faults.add(key.place, problem);
        }
        let value = item.as_str().and_then(|text| HeaderValue::from_str(text).ok());
        match (name, value) {
            (Ok(name), Some(value)) => fields.push((name, value)),
            (_, None) => {
                let remedy = "give a string without control characters";
                keys.faults.add(item.place, format!("the value of `{}` cannot be sent: {remedy}", key.name));
            }
            _ => {}
        }
    }
    Some(fields)
}

/// Returns the name of a field that may be changed, or what is wrong with it.
fn named(text: &str, of: Of, change: Change) -> Result<HeaderName, String> {
    let Ok(name) = HeaderName::try_from(text) else {
        return Err(format!("`{text}` is no name of a header field"));
    };
    if OWN.contains(&name) || name.as_str().starts_with("sec-websocket-") {
        return Err(format!("`{name}` is written by the server itself: remove it"));
    }
    let is_claim =
        name == FORWARDED || name.as_str() == "x-real-ip" || name.as_str().starts_with("x-forwarded-");
    match of {
        Of::Responses if name == STRICT_TRANSPORT_SECURITY => {
            Err(format!("`{name}` has a key of its own: write `hsts = true`"))
        }
        // The content could no longer be read without them.
        Of::Responses if change == Change::Remove && [CONTENT_ENCODING, CONTENT_RANGE].contains(&name) => {
            Err(format!("`{name}` says how to read the content: do not remove it"))
        }
        Of::Requests if name == HOST => {
            Err("`host` chooses the site: see `preserve-host` of an origin for another one".to_owned())
        }
        Of::Requests if name == EXPECT || name == MAX_FORWARDS => {
            Err(format!("`{name}` is for the server itself: remove it"))
        }
        Of::Requests if is_claim => {
            Err(format!("`{name}` is written by the proxy: see `trusted-forwarders` of an origin"))
        }
        _ => Ok(name),
    }
}

/// A year, which lists of browsers ask for.
const YEAR: Duration = Duration::from_secs(31_536_000);

/// Keys of `hsts` (RFC 6797).
pub(super) struct Hsts {
    max_age: Duration,
    subdomains: bool,
    preload: bool,
}

/// Form of `hsts`.
pub(super) const HSTS: FlagOr<Hsts, Option<HeaderValue>> =
    FlagOr { flag: |is_on| Hsts::USUAL.value().filter(|_| is_on), table: |hsts| hsts.value() };

keyed! {
    Hsts, "`hsts`", |of: Serve|, onto Self::USUAL, check can_preload;
    /// time for which browsers use `https` alone: a year, or `"8760 h"`
    "max-age" => max_age: SpanWithin(Duration::ZERO..=Duration::from_secs(10 * YEAR.as_secs())), own();
    /// the same for names below the host
    "include-subdomains" => subdomains: Flag, own();
    /// permission for the lists of browsers
    "preload" => preload: Flag, own();
}

fn can_preload(hsts: &mut Hsts, keys: &Keys<'_>) {
    if hsts.preload && (!hsts.subdomains || hsts.max_age < YEAR) {
        let remedy = "add `include-subdomains = true`, and a `max-age` of at least \"8760 h\"";
        keys.fault("preload", format!("browsers do not preload this: {remedy}"));
    }
}

impl Hsts {
    const USUAL: Self = Self { max_age: YEAR, subdomains: false, preload: false };

    /// Returns the value of `Strict-Transport-Security`.
    fn value(&self) -> Option<HeaderValue> {
        let subdomains = if self.subdomains { "; includeSubDomains" } else { "" };
        let preload = if self.preload { "; preload" } else { "" };
        HeaderValue::try_from(format!("max-age={}{subdomains}{preload}", self.max_age.as_secs())).ok()
    }
}
