//! Hosts that a certificate covers.

use std::collections::HashSet;
use std::net::IpAddr;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Hosts that a certificate covers: its names of DNS and its addresses (RFC 9525 §6).
///
/// Requests ask for them, so they are read from the certificate once.
#[derive(Debug, Default)]
pub(crate) struct Covered {
    exact: HashSet<String>,
    /// Names whose direct children a wildcard covers.
    below: HashSet<String>,
    addresses: HashSet<IpAddr>,
}

impl Covered {
    /// Reads a certificate in DER. One that cannot be read covers nothing.
    pub(crate) fn of(certificate: &[u8]) -> Self {
        let mut covered = Self::default();
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return covered };
        let Ok(Some(names)) = certificate.subject_alternative_name() else { return covered };
        for name in &names.value.general_names {
            match name {
                GeneralName::DNSName(name) => {
                    let name = name.to_ascii_lowercase();
                    match name.strip_prefix("*.") {
                        // Clients accept no certificate for all names of a top-level domain.
                        Some(parent) if parent.contains('.') => _ = covered.below.insert(parent.to_owned()),
                        Some(_) => {}
                        None => _ = covered.exact.insert(name),
                    }
                }
                GeneralName::IPAddress(bytes) => covered.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        covered
    }

    /// Returns whether a host, in lower case and without a final dot, is covered.
    pub(crate) fn has(&self, host: &str) -> bool {
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.addresses.contains(&address);
        }
        // RFC 9525 §6.3: an asterisk stands for one label.
        let is_below = host.split_once('.').is_some_and(|(_, parent)| self.below.contains(parent));
        self.exact.contains(host) || is_below
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(bytes.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::client::verify_server_name;
    use rustls::pki_types::ServerName;
    use rustls::server::ParsedCertificate;

    use super::*;
    use crate::certificates::signed;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        /// Clients decide by the rules of the TLS library.
        #[test]
        fn hosts_are_covered_as_clients_see_it(
            names in prop::collection::vec("(\\*\\.)?[ab](\\.[ab]){0,2}|127\\.0\\.0\\.[12]|::[12]", 1..4),
            hosts in prop::collection::vec("[ab](\\.[ab]){0,3}|127\\.0\\.0\\.[123]|::[123]", 1..20),
        ) {
            let identity = signed(rcgen::CertificateParams::new(names.clone()).unwrap()).unwrap();
            let certificate = identity.certificate().unwrap().clone();
            let covered = Covered::of(&certificate);
            let parsed = ParsedCertificate::try_from(&certificate).unwrap();
            for host in hosts {
                let name = ServerName::try_from(host.clone()).unwrap();
                let expected = verify_server_name(&parsed, &name).is_ok();
                prop_assert_eq!(covered.has(&host), expected, "{} by {:?}", host, names);
            }
        }
    }

    #[test]
    fn an_asterisk_stands_for_one_label_below_two() {
        let names = ["*.a.b".to_owned(), "*.c".to_owned()];
        let identity = signed(rcgen::CertificateParams::new(names).unwrap()).unwrap();
        let covered = Covered::of(identity.certificate().unwrap());
        let of = |host| covered.has(host);
        assert_eq!((of("x.a.b"), of("a.b"), of("y.x.a.b"), of("x.c")), (true, false, false, false));
    }

    #[test]
    fn bytes_that_are_no_certificate_cover_nothing() {
        assert!(!Covered::of(b"damaged").has("a.test"));
    }
}
