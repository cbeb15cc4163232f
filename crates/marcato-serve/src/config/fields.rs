//! Response fields that a site or a route adds.

use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderName, HeaderValue};
use marcato_document::{Item, Value};

use super::error::Faults;
use super::keys::Keys;

/// Most fields of a site or a route.
const MAX_FIELDS: usize = 64;

/// Fields that the server itself writes.
const OWN: [HeaderName; 5] = [CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING, UPGRADE];

/// Reads the table `headers`: fields and their values.
pub(super) fn read(keys: &Keys<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields = Vec::new();
    let Some(table) = keys.table("headers") else { return fields };
    if table.entries.len() > MAX_FIELDS {
        keys.fault(
            "headers",
            format!("`headers` has {} fields: give at most {MAX_FIELDS}", table.entries.len()),
        );
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
    fields
}

/// Reads `hsts` (RFC 6797): true, or a table.
pub(super) fn read_hsts(item: &Item, faults: &Faults) -> Option<HeaderValue> {
    /// A year, which lists of browsers ask for.
    const USUAL: Duration = Duration::from_secs(31_536_000);
    let (age, subdomains, preload) = match &item.value {
        Value::Boolean(false) => return None,
        Value::Boolean(true) => (USUAL, false, false),
        Value::Table(table) => {
            let known = ["max-age", "include-subdomains", "preload"];
            let keys = Keys::open(table, "`hsts`", &known, faults);
            let age = keys.span("max-age", Duration::ZERO..=10 * USUAL).unwrap_or(USUAL);
            let subdomains = keys.boolean("include-subdomains").unwrap_or(false);
            let preload = keys.boolean("preload").unwrap_or(false);
            if preload && (!subdomains || age < USUAL) {
                let remedy = "add `include-subdomains = true`, and a `max-age` of at least \"8760 h\"";
                keys.fault("preload", format!("browsers do not preload this: {remedy}"));
            }
            (age, subdomains, preload)
        }
        other => {
            faults.add(item.place, format!("`hsts` is true or a table, not {}", other.what()));
            return None;
        }
    };
    let subdomains = if subdomains { "; includeSubDomains" } else { "" };
    let preload = if preload { "; preload" } else { "" };
    HeaderValue::try_from(format!("max-age={}{subdomains}{preload}", age.as_secs())).ok()
}
