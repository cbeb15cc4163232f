//! Results of a session's TLS handshake.

use marcato_identity::PeerIdentity;
use noq_proto::crypto::rustls::HandshakeData;
use rustls::pki_types::CertificateDer;

use super::Session;

impl Session {
    /// Returns the certificates that the peer has presented; `None` without any, or before the end
    /// of the handshake.
    pub fn peer_identity(&self) -> Option<PeerIdentity> {
        let chain = self.conn.crypto_session().peer_identity()?;
        PeerIdentity::new(*chain.downcast::<Vec<CertificateDer<'static>>>().ok()?)
    }

    /// Fills `out` with keying material of the session (RFC 8446 §7.5), which the peer gets for the
    /// same label and context. Returns `false` if the handshake is not complete, or for an empty or
    /// too long `out`.
    pub fn export_keying_material(&self, out: &mut [u8], label: &[u8], context: &[u8]) -> bool {
        self.conn.crypto_session().export_keying_material(out, label, context).is_ok()
    }

    /// Returns the application's protocol that was negotiated; `None` before that.
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.conn.crypto_session().handshake_data()?.downcast::<HandshakeData>().ok()?.protocol
    }
}
