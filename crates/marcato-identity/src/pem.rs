//! Certificates and keys in PEM (RFC 7468).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Origin of PEM data, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PemOrigin {
    /// This file.
    File(PathBuf),
    /// Bytes given by the application.
    Bytes,
}

impl fmt::Display for PemOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Bytes => f.write_str("the PEM data"),
        }
    }
}

/// Error returned for certificates and keys in PEM.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PemError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}", path = file.display())]
    Read {
        /// File named.
        file: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A section is damaged.
    #[error("{origin} is damaged ({reason}): write it again")]
    Damaged {
        /// Origin of the data.
        origin: PemOrigin,
        /// Reason, as text.
        reason: String,
    },
    /// The data has no certificate.
    #[error("{origin} has no certificate: give PEM with a section `BEGIN CERTIFICATE`")]
    NoCertificate {
        /// Origin of the data.
        origin: PemOrigin,
    },
    /// The data has no key, or an encrypted one.
    #[error(
        "{origin} has no private key: give PEM with a section `BEGIN PRIVATE KEY`, not encrypted with a passphrase"
    )]
    NoKey {
        /// Origin of the data.
        origin: PemOrigin,
    },
    /// TLS does not accept the certificate or the key.
    #[error("{origin} cannot be used: {source}")]
    Unusable {
        /// Origin of the certificate or the key.
        origin: PemOrigin,
        /// Error of TLS.
        source: rustls::Error,
    },
    /// The key belongs to another certificate.
    #[error(
        "the key in {key} does not fit the first certificate in {certificate}: give its own key, and put it before the certificates of authorities"
    )]
    OtherKey {
        /// Origin of the certificate.
        certificate: PemOrigin,
        /// Origin of the key.
        key: PemOrigin,
    },
}

/// PEM data and its origin.
pub(crate) struct Pem {
    bytes: Vec<u8>,
    pub(crate) origin: PemOrigin,
}

impl Pem {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), origin: PemOrigin::Bytes }
    }

    pub(crate) fn read(file: &Path) -> Result<Self, PemError> {
        let bytes = std::fs::read(file);
        let bytes = bytes.map_err(|source| PemError::Read { file: file.to_owned(), source })?;
        Ok(Self { bytes, origin: PemOrigin::File(file.to_owned()) })
    }

    fn damaged(&self, error: &pem::Error) -> PemError {
        // The engine's own text shows lines as lists of bytes.
        let reason = match error {
            pem::Error::MissingSectionEnd { .. } => "a section has no end".to_owned(),
            pem::Error::IllegalSectionStart { .. } => "the first line of a section is not valid".to_owned(),
            other => other.to_string(),
        };
        PemError::Damaged { origin: self.origin.clone(), reason }
    }

    /// Returns all certificates; at least one.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, PemError> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let certificates = read.map_err(|error| self.damaged(&error))?;
        if certificates.is_empty() {
            return Err(PemError::NoCertificate { origin: self.origin.clone() });
        }
        Ok(certificates)
    }

    /// Returns the first key.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, PemError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| match error {
            pem::Error::NoItemsFound => PemError::NoKey { origin: self.origin.clone() },
            error => self.damaged(&error),
        })
    }
}

/// Returns a section of PEM with lines of 64 characters (RFC 7468 §2).
pub(crate) fn section(label: &str, der: &[u8]) -> String {
    // RFC 4648 §4.
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in der.chunks(48) {
        for group in line.chunks(3) {
            let bits = group
                .iter()
                .enumerate()
                .fold(0u32, |bits, (i, byte)| bits | u32::from(*byte) << (16 - 8 * i));
            for digit in 0..4 {
                let index = (bits >> (18 - 6 * digit)) & 63;
                text.push(if digit <= group.len() { char::from(ALPHABET[index as usize]) } else { '=' });
            }
        }
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, Trust};

    fn pair() -> (String, String) {
        let identity = Identity::self_signed("a.test").unwrap();
        (identity.chain_pem(), identity.key_pem())
    }

    #[test]
    fn pem_is_written_in_lines_with_padding() {
        for (der, lines) in [
            (&b"Man"[..], "TWFu\n"),
            (b"Ma", "TWE=\n"),
            (b"M", "TQ==\n"),
            (b"\xfb\xff", "+/8=\n"),
            (&[0; 49], "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nAA==\n"),
        ] {
            assert_eq!(section("X", der), format!("-----BEGIN X-----\n{lines}-----END X-----\n"));
        }
    }

    #[test]
    fn an_identity_is_read_from_pem_with_the_texts_around_it() {
        let (certificate, key) = pair();
        let (other, _) = pair();
        let chain = format!("subject=a.test\n{certificate}\n# an authority\n{other}");
        let identity = Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        let alone = Identity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(identity.parts().0.len(), 2);
        assert_eq!(identity.fingerprint(), alone.fingerprint());
        // One file with both.
        let both = format!("{key}{certificate}");
        let both = Identity::from_pem(both.as_bytes(), both.as_bytes()).unwrap();
        assert_eq!(both.fingerprint(), alone.fingerprint());
    }

    #[test]
    fn errors_of_pem_name_the_reason() {
        let (certificate, key) = pair();
        let of = |certificate: &str, key: &str| {
            Identity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err()
        };
        assert!(matches!(of(&key, &key), PemError::NoCertificate { .. }));
        assert!(matches!(of(&certificate, &certificate), PemError::NoKey { .. }));
        assert!(matches!(of("", ""), PemError::NoCertificate { .. }));
        let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        assert!(matches!(of(&certificate, &encrypted), PemError::NoKey { .. }));
        let (_, strange) = pair();
        assert!(matches!(of(&certificate, &strange), PemError::OtherKey { .. }));
        let (cut, _) = certificate.split_at(certificate.len() / 2);
        assert!(matches!(of(cut, &key), PemError::Damaged { .. }));
        let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(of(empty, &key), PemError::Unusable { .. }));
        let empty = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(matches!(of(&certificate, empty), PemError::Unusable { .. }));
    }

    #[test]
    fn errors_of_pem_files_name_the_file() {
        let error = Identity::from_pem_files("/nowhere/chain.pem", "/nowhere/key.pem").unwrap_err();
        assert!(error.to_string().contains("/nowhere/chain.pem"), "{error}");
        let error = Trust::from_pem_file("/nowhere/ca.pem").unwrap_err();
        assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
    }

    #[test]
    fn authorities_are_read_from_pem() {
        let (first, key) = pair();
        let (second, _) = pair();
        let Trust::Authority(authorities) = Trust::from_pem(format!("{first}{second}").as_bytes()).unwrap()
        else {
            panic!("authorities");
        };
        assert_eq!(authorities.len(), 2);
        assert!(matches!(Trust::from_pem(key.as_bytes()), Err(PemError::NoCertificate { .. })));
        let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(Trust::from_pem(empty.as_bytes()), Err(PemError::Unusable { .. })));
    }
}
