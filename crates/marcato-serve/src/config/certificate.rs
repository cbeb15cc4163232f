//! Certificates of sites.

use std::path::PathBuf;

use marcato_document::nearest::hint;
use marcato_document::{Keyed as _, Keys, Value, keyed};

use super::form::{PATH, Serve};
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

/// Keys of a certificate from files.
#[derive(Default)]
pub(super) struct CertificateFiles {
    chain: Option<Located<PathBuf>>,
    key: Option<Located<PathBuf>>,
}

keyed! {
    CertificateFiles, "a certificate", |of: Serve|, onto Self::default();
    /// certificate chain (PEM)
    "chain" => chain: PATH, need("name the file of its certificates (PEM)");
    /// key of the certificate (PEM)
    "key" => key: PATH, need("name the file of its private key (PEM)");
}

impl CertificateSource {
    /// Reads a word, or a table with files.
    pub(super) fn read(keys: &Keys<'_>, key: &'static str) -> Option<Located<Self>> {
        let item = keys.item(key)?;
        let source = match &item.value {
            Value::String(text) => match &**text {
                "self-signed" => Self::SelfSigned,
                "acme" => Self::Acme,
                other => {
                    let advice = hint(other, ["self-signed", "acme"]);
                    let file = "; files are written as { chain = \"chain.pem\", key = \"key.pem\" }";
                    keys.fault(key, format!("`certificate` is {other:?}: {advice}{file}"));
                    return None;
                }
            },
            Value::Table(table) => {
                let CertificateFiles { chain, key } = CertificateFiles::open(table, keys.faults, &Serve)?;
                Self::Files { chain: chain?, key: key? }
            }
            other => {
                let other = other.what();
                let wanted = "\"self-signed\", \"acme\" or a table with `chain` and `key`";
                keys.fault(key, format!("`certificate` is {wanted}, not {other}"));
                return None;
            }
        };
        Some(Located::at(item.place, source))
    }
}
