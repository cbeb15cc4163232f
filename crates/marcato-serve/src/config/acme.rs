//! Account at an authority that issues certificates by ACME.

use std::path::PathBuf;
use std::time::Duration;

use marcato_document::{Place, Table};

use super::error::Faults;
use super::keys::Keys;
use super::located::Located;

/// Directory of Let's Encrypt.
const PRODUCTION: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Directory of Let's Encrypt for tries, whose certificates nobody trusts.
const STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// Account at an authority that issues certificates by ACME (RFC 8555), with TLS-ALPN-01 (RFC 8737).
#[derive(Clone, Debug, PartialEq)]
pub struct Acme {
    /// Directory for the account's key and the certificates. Only the owner should read it.
    pub state: Located<PathBuf>,
    /// URL of the authority's directory.
    pub directory: String,
    /// Contacts, as `mailto:` URLs.
    pub contacts: Vec<String>,
    /// Authority (PEM) of the directory's own certificate; the system's if absent.
    pub ca: Option<Located<PathBuf>>,
    /// Time before a certificate's end at which it is renewed.
    pub renew_before: Duration,
}

impl Acme {
    const KEYS: [&'static str; 7] =
        ["state", "directory", "staging", "contact", "terms-agreed", "ca", "renew-before"];

    pub(crate) fn read(table: &Table, faults: &Faults) -> Option<Self> {
        let keys = Keys::open(table, "[acme]", &Self::KEYS, faults);
        keys.need("state", "name a directory for the account's key and the certificates");
        keys.need("terms-agreed", "read the authority's terms, and write true if you agree");
        if keys.boolean("terms-agreed") == Some(false) {
            keys.fault(
                "terms-agreed",
                "no certificate is issued without the terms: write true if you agree, or remove [acme]",
            );
        }
        let staging = keys.boolean("staging");
        let directory = keys.string("directory");
        if let (Some(true), Some(_)) = (staging, directory) {
            keys.fault("staging", "`staging` is for the default `directory`: remove one");
        }
        if let Some(url) = directory.filter(|url| !is_https(url)) {
            keys.fault("directory", format!("{url:?} is no URL of a directory: begin with https://"));
        }
        let mut contacts = Vec::new();
        for (contact, place) in keys.strings("contact", 10) {
            contacts.extend(read_contact(contact, place, faults));
        }
        let path = |key: &str| keys.string(key).map(|text| Located::at(keys.place(key), PathBuf::from(text)));
        let hour = Duration::from_secs(3600);
        let renew_before = keys.span("renew-before", hour..=hour * 24 * 365);
        let usual = if staging == Some(true) { STAGING } else { PRODUCTION };
        let ca = path("ca");
        Some(Self {
            state: path("state")?,
            directory: directory.unwrap_or(usual).to_owned(),
            contacts,
            ca,
            renew_before: renew_before.unwrap_or(hour * 24 * 30),
        })
    }
}

fn is_https(url: &str) -> bool {
    url.parse::<http::Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some())
}

fn read_contact(contact: &str, place: Place, faults: &Faults) -> Option<String> {
    let (scheme, address) = contact.split_once(':').unwrap_or(("mailto", contact));
    let is_address = address.split_once('@').is_some_and(|(user, host)| {
        !user.is_empty() && !host.is_empty() && !address.contains(char::is_whitespace)
    });
    if scheme != "mailto" || !is_address {
        faults.add(place, format!("{contact:?} is no contact: write \"mailto:admin@example.org\""));
        return None;
    }
    Some(format!("mailto:{address}"))
}
