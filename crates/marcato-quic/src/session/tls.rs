//! Results of a session's TLS handshake.

use marcato_identity::PeerIdentity;
use rustls::pki_types::CertificateDer;

use super::Session;
use crate::handshake::Results;

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

    /// Returns the TLS alert with which either end has ended the session (RFC 8446 §6), if one has.
    pub fn alert(&self) -> Option<u8> {
        self.alert
    }

    /// Returns the application's protocol that was negotiated; `None` before that.
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.handshake()?.protocol
    }

    /// Returns the name that the client has asked for (RFC 6066 §3), at a server; `None` before the handshake, and if it has
    /// asked for none.
    pub fn server_name(&self) -> Option<String> {
        self.handshake()?.server_name
    }

    /// Returns whether the session has resumed an earlier one of TLS (RFC 8446 §2.2); `false` before
    /// the end of the handshake, or before early data at a server. The peer's identity is that of
    /// the earlier one then.
    pub fn resumed(&self) -> bool {
        // Only a session that is resumed has early data: RFC 8446 §4.2.10.
        let early = self.is_early() && self.conn.side().is_server();
        early || self.handshake().is_some_and(|results| results.resumed)
    }

    fn handshake(&self) -> Option<Results> {
        Some(*self.conn.crypto_session().handshake_data()?.downcast().ok()?)
    }
}
