//! Response fields that a site or a route adds.

use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderName, HeaderValue};
use marcato_document::form::{Flag, SpanWithin};
use marcato_document::{Keys, keyed};

use super::form::{FlagOr, Serve};

/// Most fields of a site or a route.
const MAX_FIELDS: usize = 64;

/// Fields that the server itself writes.
const OWN: [HeaderName; 5] = [CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING, UPGRADE];

/// Reads the table `headers`: fields and their values.
pub(super) fn read(keys: &Keys<'_>, key: &'static str) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let table = keys.table(key)?;
    let mut fields = Vec::new();
    if table.entries.len() > MAX_FIELDS {
        keys.fault(key, format!("`{key}` has {} fields: give at most {MAX_FIELDS}", table.entries.len()));
    }
    for (key, item) in table.entries.iter().take(MAX_FIELDS) {
        let name = HeaderName::try_from(key.name.as_str());
        match &name {
            Err(_) => {
                keys.faults.add(key.place, format!("`{}` is no name of a header field", key.name));
            }
            Ok(name) if OWN.contains(name) => {
                keys.faults.add(key.place, format!("`{name}` is written by the server itself: remove it"));
            }
            Ok(name) if *name == http::header::STRICT_TRANSPORT_SECURITY => {
                keys.faults.add(key.place, format!("`{name}` has a key of its own: write `hsts = true`"));
            }
            Ok(_) => {}
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
