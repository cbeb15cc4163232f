//! TLS sessions of clients, which later connections resume.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use marcato_identity::{Identity, Trust};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};

use crate::engine::Engine;
use crate::error::ConfigError;
use crate::signal::lock;

/// Limit of the peers whose sessions are kept.
const PEERS: usize = 16;
/// Limit of the different certificates of each: with more, no early data is sent.
const CHAINS: usize = 8;
/// Limit of the tickets of each, all of them of one server name.
const TICKETS: usize = 8;

/// TLS sessions of a client, which later connections resume (RFC 8446 §2.2).
///
/// A resumed handshake carries no certificates and needs fewer operations with keys. It costs as
/// many round trips as a full one. [`ClientSecurity`](crate::ClientSecurity) and
/// [`Named`](crate::Named) have sessions of their own, which their clones share: connecting again
/// with the same value, or with a clone of it, resumes a session, unless the server refuses.
/// [`Connection::resumed`](crate::Connection::resumed) tells.
///
/// A resumed session is trusted like a full handshake:
///
/// - It is resumed only with an equal trust, server name, certificate of this end, list of
///   protocols and engine.
/// - The certificates of the original handshake are checked again, for example for their validity
///   period. If they are no longer accepted, the client forgets the session, and connects with a
///   full handshake instead.
///
/// Tickets are used once. At most 128 are kept, for up to 16 peers. With
/// [custom](crate::ClientSecurity::Custom) configurations, their own store is used and their own
/// rules hold.
///
/// ```
/// use marcato_net::{ClientSecurity, Config, Endpoint, Identity, Message, Remote, ServerSecurity, Trust};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::default();
/// let identity = Identity::self_signed("chat.example")?;
/// let trust = Trust::Certificate(identity.certificate().ok_or("none")?.clone());
/// let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
/// let server = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await?;
/// let remote = Remote::new(server.local_addrs()[0], ClientSecurity::trusting("chat.example", trust));
///
/// let first = Endpoint::connect(&config, &remote).await?;
/// // The server's tickets follow its handshake; they have come with the acknowledgement.
/// # let accepted = server.accept().await?;
/// first.send(Message::new("hello")).await?.acknowledged().await?;
/// let second = Endpoint::connect(&config, &remote).await?;
/// assert!(!first.resumed() && second.resumed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sessions {
    /// Configurations with their sessions, the latest used last; `None` if no session is resumed.
    kept: Option<Arc<Mutex<VecDeque<Kept>>>>,
    /// Time at which certificates are checked again, instead of the present.
    #[cfg(test)]
    pub(crate) at: Option<UnixTime>,
}

/// Everything that two connections have in common if one resumes the session of the other.
#[derive(Clone, PartialEq)]
pub(crate) struct Peer {
    pub(crate) engine: Engine,
    pub(crate) alpn: Vec<Vec<u8>>,
    pub(crate) name: String,
    pub(crate) trust: Trust,
    pub(crate) identity: Option<Identity>,
}

struct Kept {
    peer: Peer,
    tls: Arc<ClientConfig>,
    /// Certificates that a ticket may belong to.
    #[cfg_attr(not(feature = "quic"), expect(dead_code, reason = "only QUIC has early data"))]
    witness: Arc<Witness>,
}

/// Verifier that remembers the certificates it has accepted. TLS does not reveal to which of them a
/// ticket belongs before the handshake is complete.
#[derive(Debug)]
struct Witness {
    verifier: Arc<dyn ServerCertVerifier>,
    /// Chains accepted; `None` once there were too many.
    accepted: Mutex<Option<Vec<Vec<CertificateDer<'static>>>>>,
}

impl Witness {
    fn new(verifier: Arc<dyn ServerCertVerifier>) -> Arc<Self> {
        Arc::new(Self { verifier, accepted: Mutex::new(Some(Vec::new())) })
    }

    fn remember(&self, certificate: &CertificateDer<'_>, others: &[CertificateDer<'_>]) {
        let mut accepted = lock(&self.accepted);
        let Some(chains) = &mut *accepted else { return };
        let chain = || std::iter::once(certificate).chain(others);
        if chains.iter().any(|known| known.iter().eq(chain())) {
            return;
        }
        if chains.len() >= CHAINS {
            *accepted = None;
            return;
        }
        chains.push(chain().map(|certificate| certificate.clone().into_owned()).collect());
    }

    /// Returns whether every certificate that it has accepted for this name is accepted now.
    #[cfg(feature = "quic")]
    fn accepts_all(&self, name: &ServerName<'_>, now: UnixTime) -> bool {
        let accepted = lock(&self.accepted);
        let verified = |chain: &Vec<CertificateDer<'static>>| {
            let Some((certificate, others)) = chain.split_first() else { return false };
            self.verifier.verify_server_cert(certificate, others, name, &[], now).is_ok()
        };
        accepted.as_ref().is_some_and(|chains| chains.iter().all(verified))
    }
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.verifier.verify_server_cert(certificate, others, name, ocsp_response, now)?;
        self.remember(certificate, others);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.verifier.requires_raw_public_keys()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.verifier.root_hint_subjects()
    }
}

impl Default for Sessions {
    /// Sessions that no other value shares.
    fn default() -> Self {
        Self {
            kept: Some(Arc::default()),
            #[cfg(test)]
            at: None,
        }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("peers", &self.kept.as_ref().map(|kept| lock(kept).len())).finish()
    }
}

impl Sessions {
    /// Resumes no session. A server cannot link connections of this end by their tickets then.
    pub const fn none() -> Self {
        Self {
            kept: None,
            #[cfg(test)]
            at: None,
        }
    }

    /// Returns the TLS configuration for a peer, which holds its sessions.
    pub(crate) fn tls(&self, peer: &Peer) -> Result<Arc<ClientConfig>, ConfigError> {
        let make = |resumption| -> Result<_, ConfigError> {
            let witness = Witness::new(peer.trust.verifier()?);
            let mut tls = peer.trust.client_tls_as(peer.identity.as_ref())?;
            tls.alpn_protocols.clone_from(&peer.alpn);
            tls.enable_early_data = false;
            tls.resumption = resumption;
            tls.dangerous().set_certificate_verifier(Arc::clone(&witness) as Arc<dyn ServerCertVerifier>);
            Ok((Arc::new(tls), witness))
        };
        let Some(kept) = &self.kept else { return Ok(make(Resumption::disabled())?.0) };
        let known = |kept: &mut VecDeque<Kept>| {
            let at = kept.iter().position(|kept| kept.peer == *peer)?;
            let found = kept.remove(at)?;
            let tls = Arc::clone(&found.tls);
            kept.push_back(found);
            Some(tls)
        };
        if let Some(tls) = known(&mut lock(kept)) {
            return Ok(tls);
        }
        let (tls, witness) = make(Resumption::in_memory_sessions(TICKETS))?;
        let mut kept = lock(kept);
        // Another connection may have been quicker.
        if let Some(tls) = known(&mut kept) {
            return Ok(tls);
        }
        if kept.len() >= PEERS {
            kept.pop_front();
        }
        kept.push_back(Kept { peer: peer.clone(), tls: Arc::clone(&tls), witness });
        Ok(tls)
    }

    /// Returns the TLS configuration for a peer, with early data (RFC 8446 §2.3); `None` unless
    /// every certificate that its sessions may belong to is accepted now.
    #[cfg(feature = "quic")]
    pub(crate) fn early_tls(&self, peer: &Peer) -> Option<Arc<ClientConfig>> {
        let name = ServerName::try_from(peer.name.as_str()).ok()?;
        let kept = lock(self.kept.as_ref()?);
        let kept = kept.iter().find(|kept| kept.peer == *peer)?;
        if !kept.witness.accepts_all(&name, self.now()) {
            return None;
        }
        // It shares the tickets.
        let mut tls = ClientConfig::clone(&kept.tls);
        tls.enable_early_data = true;
        Some(Arc::new(tls))
    }

    /// Returns the time at which certificates are checked again.
    pub(crate) fn now(&self) -> UnixTime {
        #[cfg(test)]
        if let Some(at) = self.at {
            return at;
        }
        UnixTime::now()
    }

    /// Forgets the sessions of a peer.
    pub(crate) fn forget(&self, peer: &Peer) {
        if let Some(kept) = &self.kept {
            lock(kept).retain(|kept| kept.peer != *peer);
        }
    }
}

impl Peer {
    /// Describes the server of this name.
    pub(crate) fn new(
        engine: Engine,
        alpn: &[Vec<u8>],
        name: &str,
        trust: Trust,
        identity: Option<&Identity>,
    ) -> Self {
        Self { engine, alpn: alpn.to_vec(), name: name.to_owned(), trust, identity: identity.cloned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u64) -> Peer {
        let alpn = vec![number.to_be_bytes().to_vec()];
        let fingerprint = marcato_identity::Fingerprint::of(&vec![7].into());
        let trust = Trust::Fingerprint(fingerprint);
        Peer { engine: Engine::Tcp, alpn, name: "server.test".to_owned(), trust, identity: None }
    }

    #[test]
    fn equal_peers_share_a_configuration_and_others_do_not() {
        let sessions = Sessions::default();
        let first = sessions.tls(&peer(0)).unwrap();
        assert!(Arc::ptr_eq(&first, &sessions.clone().tls(&peer(0)).unwrap()));
        let others = [
            peer(1),
            Peer { engine: Engine::Quic, ..peer(0) },
            Peer { name: "other.test".to_owned(), ..peer(0) },
            Peer { trust: Trust::Certificate(vec![7].into()), ..peer(0) },
            Peer { identity: Some(Identity::self_signed("client.test").unwrap()), ..peer(0) },
        ];
        for other in others {
            assert!(other != peer(0));
            if let Ok(tls) = sessions.tls(&other) {
                assert!(!Arc::ptr_eq(&first, &tls));
            }
        }
        sessions.forget(&peer(0));
        assert!(!Arc::ptr_eq(&first, &sessions.tls(&peer(0)).unwrap()));
        let none = Sessions::none();
        assert!(!Arc::ptr_eq(&none.tls(&peer(0)).unwrap(), &none.tls(&peer(0)).unwrap()));
    }

    /// A ticket may belong to any of them, and one that was forgotten could not be checked again.
    #[cfg(feature = "quic")]
    #[test]
    fn with_too_many_certificates_no_data_is_early() {
        // A fingerprint is of the certificate alone, whatever follows it in the chain.
        let witness = Witness::new(peer(0).trust.verifier().unwrap());
        let name = ServerName::try_from("server.test").unwrap();
        let accepts = |count: usize| {
            for number in 0..count {
                witness.remember(&vec![7].into(), &[number.to_be_bytes().to_vec().into()]);
            }
            witness.accepts_all(&name, UnixTime::now())
        };
        assert!(accepts(CHAINS) && accepts(CHAINS));
        assert!(!accepts(CHAINS + 1) && !accepts(1));
    }

    #[test]
    fn the_peers_used_last_are_kept() {
        let sessions = Sessions::default();
        let first = sessions.tls(&peer(0)).unwrap();
        let second = sessions.tls(&peer(1)).unwrap();
        for number in 2..=PEERS as u64 {
            // The first stays in use.
            sessions.tls(&peer(0)).unwrap();
            sessions.tls(&peer(number)).unwrap();
        }
        assert!(Arc::ptr_eq(&first, &sessions.tls(&peer(0)).unwrap()));
        assert!(!Arc::ptr_eq(&second, &sessions.tls(&peer(1)).unwrap()));
        assert_eq!(sessions.kept.as_ref().map(|kept| lock(kept).len()), Some(PEERS));
    }
}
