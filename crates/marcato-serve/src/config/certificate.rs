//! Certificates of sites.

use std::path::PathBuf;

use marcato_document::nearest::hint;
use marcato_document::{Item, Place, Value};

use super::error::Faults;
use super::keys::Keys;
use super::located::Located;

/// Source of a site's certificate.
#[derive(Clone, Debug, PartialEq)]
pub enum CertificateSource {
    /// A new one that no authority has signed, for development.
    SelfSigned,
    /// Files in PEM, which are read again when they change.
    Files {
        /// Certificate chain.
        chain: Located<PathBuf>,
        /// Key of the certificate.
        key: Located<PathBuf>,
    },
    /// An authority, by ACME (RFC 8555).
    Acme,
}

impl CertificateSource {
    pub(crate) fn read(item: &Item, faults: &Faults) -> Option<Located<Self>> {
        let source = match &item.value {
            Value::String(text) => match &**text {
                "self-signed" => Some(Self::SelfSigned),
                "acme" => Some(Self::Acme),
                other => {
                    let advice = hint(other, ["self-signed", "acme"]);
                    let file = "; files are written as { chain = \"chain.pem\", key = \"key.pem\" }";
                    faults.add(item.place, format!("`certificate` is {other:?}: {advice}{file}"));
                    None
                }
            },
            Value::Table(table) => {
                let keys = Keys::open(table, "a certificate", &["chain", "key"], faults);
                keys.need("chain", "name the file of its certificates (PEM)");
                keys.need("key", "name the file of its private key (PEM)");
                let path = |key: &str| keys.string(key).map(|text| located(keys.place(key), text));
                let (chain, key) = (path("chain"), path("key"));
                Some(Self::Files { chain: chain?, key: key? })
            }
            other => {
                let problem = format!(
                    "`certificate` is \"self-signed\", \"acme\" or a table with `chain` and `key`, not {}",
                    other.what()
                );
                faults.add(item.place, problem);
                None
            }
        };
        source.map(|source| Located::at(item.place, source))
    }
}

fn located(place: Place, text: &str) -> Located<PathBuf> {
    Located::at(place, PathBuf::from(text))
}
