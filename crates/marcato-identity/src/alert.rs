//! Alerts with which a peer ends a handshake.

use rustls::AlertDescription as Alert;

/// Returns the meaning of a TLS alert that concerns identities or protocols, for the end that has
/// received it; `None` for others.
pub fn explain_alert(code: u8) -> Option<&'static str> {
    Some(match Alert::from(code) {
        Alert::CertificateRequired => {
            "the server requires a certificate of its clients: present an identity that it accepts"
        }
        Alert::CertificateExpired => {
            "the peer rejects our certificate, which is out of its validity period: renew it, and check the clocks"
        }
        Alert::CertificateRevoked => "the peer rejects our certificate, which was revoked: renew it",
        Alert::UnknownCA => {
            "the peer does not know the authority of our certificate: present one that it accepts"
        }
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateUnknown
        | Alert::AccessDenied => "the peer does not accept our certificate: present one that it accepts",
        Alert::NoApplicationProtocol => {
            "the server speaks none of the protocols offered: let both ends name a common one in `alpn`"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_about_certificates_and_protocols_are_explained() {
        assert!(explain_alert(116).unwrap().contains("requires a certificate"));
        assert!(explain_alert(48).unwrap().contains("authority"));
        assert!(explain_alert(120).unwrap().contains("protocols"));
        // RFC 8446 §6.1: close_notify reports no error.
        assert_eq!(explain_alert(0), None);
    }
}
