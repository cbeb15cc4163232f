//! Fingerprint of a certificate.

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;

/// SHA-256 of a certificate: short enough to be read out.
///
/// ```
/// use marcato_identity::{Fingerprint, Identity};
/// let shown = Identity::self_signed("printer.example")?.fingerprint().ok_or("it has a certificate")?;
/// assert_eq!(shown.to_string().parse::<Fingerprint>()?, shown);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Error returned for a text that is no [`Fingerprint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint has 64 hexadecimal digits, with or without colons between them")]
pub struct FingerprintError;

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    /// Parses 64 hexadecimal digits, with or without colons, as `openssl x509 -fingerprint -sha256`
    /// prints them.
    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let mut bytes = [0; 32];
        let mut digits = text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16));
        let mut digit = || digits.next().flatten().and_then(|digit| u8::try_from(digit).ok());
        for byte in &mut bytes {
            let (high, low) = (digit().ok_or(FingerprintError)?, digit().ok_or(FingerprintError)?);
            *byte = high << 4 | low;
        }
        if digits.next().is_some() { Err(FingerprintError) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;

    #[test]
    fn a_fingerprint_is_read_as_it_is_printed_here_and_by_openssl() {
        let shown = Identity::self_signed("a.example").unwrap().fingerprint().unwrap();
        assert_eq!(shown.to_string().parse(), Ok(shown));
        let pairs: Vec<String> = shown.0.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(pairs.join(":").parse(), Ok(shown));
        let text = shown.to_string();
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replacen(&text[..1], "g", 1), "ä"] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(FingerprintError), "{wrong}");
        }
    }
}
