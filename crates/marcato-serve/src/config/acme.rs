//! Account at an authority that issues certificates by ACME.

use std::path::PathBuf;
use std::time::Duration;

use marcato_document::form::{Flag, SpanWithin};
use marcato_document::{Keyed as _, Keys, Value, keyed};

use super::form::{By, PATH, Serve, each};
use super::limits::DAY;
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
    /// Program and its arguments that set and remove records of DNS, for checks by DNS-01; none for TLS-ALPN-01.
    pub dns_hook: Vec<String>,
}

/// Keys of `[acme]`.
#[derive(Default)]
pub(super) struct AcmeKeys {
    state: Option<Located<PathBuf>>,
    agreed: bool,
    contacts: Vec<String>,
    staging: bool,
    directory: Option<String>,
    ca: Option<Located<PathBuf>>,
    renew_before: Duration,
    dns_hook: Vec<String>,
}

keyed! {
    AcmeKeys, "[acme]", |of: Serve|, onto Self { renew_before: DAY * 30, ..Self::default() }, check are_possible;
    /// directory for the account's key and the certificates
    "state" => state: PATH, need("name a directory for the account's key and the certificates");
    /// agreement to the authority's terms
    "terms-agreed" => agreed: Flag, need("read the authority's terms, and write true if you agree");
    /// contacts of the account, as `"mailto:admin@example.org"`
    "contact" => contacts: By(contacts), own("none");
    /// tries without the limits of Let's Encrypt, for certificates that nobody trusts
    "staging" => staging: Flag, own();
    /// URL of the authority's directory
    "directory" => directory: By(directory), optional("Let's Encrypt");
    /// authority (PEM) of the directory's own certificate
    "ca" => ca: PATH, optional("those of the system");
    /// program and its arguments that set and remove [records of DNS](#wildcards): names are then checked by DNS-01, which wildcards need
    "dns-hook" => dns_hook: By(dns_hook), own("none: names are checked by TLS-ALPN-01");
    /// time before a certificate's end at which it is renewed: 30 days, or `"720 h"`
    "renew-before" => renew_before: SpanWithin(Duration::from_secs(3600)..=DAYS_365), own();
}

/// Longest time before a certificate's end.
const DAYS_365: Duration = Duration::from_secs(365 * DAY.as_secs());

fn are_possible(acme: &mut AcmeKeys, keys: &Keys<'_>) {
    if keys.item("terms-agreed").is_some_and(|item| item.value == Value::Boolean(false)) {
        keys.fault(
            "terms-agreed",
            "no certificate is issued without the terms: write true if you agree, or remove [acme]",
        );
    }
    if acme.staging && keys.has("directory") {
        keys.fault("staging", "`staging` is for the default `directory`: remove one");
    }
}

impl Acme {
    /// Reads `[acme]`.
    pub(super) fn read(keys: &Keys<'_>, key: &'static str) -> Option<Self> {
        let AcmeKeys { state, staging, directory, contacts, ca, renew_before, dns_hook, .. } =
            AcmeKeys::open(keys.table(key)?, keys.faults, &Serve)?;
        let usual = if staging { STAGING } else { PRODUCTION };
        let directory = directory.unwrap_or_else(|| usual.to_owned());
        Some(Self { state: state?, directory, contacts, ca, renew_before, dns_hook })
    }
}

fn directory(keys: &Keys<'_>, key: &'static str) -> Option<String> {
    let url = keys.some_string(key)?;
    if !is_https(url) {
        keys.fault(key, format!("{url:?} is no URL of a directory: begin with https://"));
    }
    Some(url.to_owned())
}

fn dns_hook(keys: &Keys<'_>, key: &'static str) -> Option<Vec<String>> {
    let hook = each(keys, key, 64, |text, _| match text.contains('\0') {
        true => Err("an argument cannot have a zero byte".to_owned()),
        false => Ok(text.to_owned()),
    });
    if !hook.first().is_some_and(|program| program.starts_with('/')) {
        keys.fault(key, "the program needs an absolute path: write [\"/usr/local/bin/dns-hook\"]");
    }
    Some(hook)
}

fn is_https(url: &str) -> bool {
    url.parse::<http::Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some())
}

fn contacts(keys: &Keys<'_>, key: &'static str) -> Option<Vec<String>> {
    Some(each(keys, key, 10, |contact, _| {
        let (scheme, address) = contact.split_once(':').unwrap_or(("mailto", contact));
        let is_address = address.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && !host.is_empty() && !address.contains(char::is_whitespace)
        });
        if scheme != "mailto" || !is_address {
            return Err(format!("{contact:?} is no contact: write \"mailto:admin@example.org\""));
        }
        Ok(format!("mailto:{address}"))
    }))
}
