//! Certificates that a client accepts.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    VerifierBuilderError, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor, verify_server_name,
};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::fingerprint::Fingerprint;
use crate::identity::{Identity, IdentityError};
use crate::pem::{Pem, PemError};

/// Certificates that a client accepts. Two trusts in [roots](Self::Roots) are equal if they share
/// them.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Every valid certificate for the server's name that is signed by one of these roots, directly
    /// or by intermediate authorities.
    Roots(Arc<RootCertStore>),
    /// Every valid certificate for the server's name that is signed by one of these authorities,
    /// directly or by intermediate ones.
    Authority(Vec<CertificateDer<'static>>),
    /// Exactly this certificate, agreed on beforehand, and no other with its key or its signature.
    /// It may be self-signed, and may be that of an authority (as OpenSSL makes it by default). Its
    /// validity period counts, and so do its names, if it has any.
    Certificate(CertificateDer<'static>),
    /// Only the certificate with this fingerprint, whatever its name and validity period.
    Fingerprint(Fingerprint),
}

impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Roots(one), Self::Roots(other)) => Arc::ptr_eq(one, other),
            (Self::Authority(one), Self::Authority(other)) => one == other,
            (Self::Certificate(one), Self::Certificate(other)) => one == other,
            (Self::Fingerprint(one), Self::Fingerprint(other)) => one == other,
            _ => false,
        }
    }
}

impl Trust {
    /// Reads authorities from a PEM file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is damaged, or has no certificate that can be an authority's.
    pub fn from_pem_file(authorities: impl AsRef<Path>) -> Result<Self, PemError> {
        Self::read(&Pem::read(authorities.as_ref())?)
    }

    /// Reads authorities from PEM data.
    ///
    /// ```
    /// # let authority = marcato_identity::Identity::self_signed("authority.example")?;
    /// # let pem = authority.chain_pem();
    /// use marcato_identity::Trust;
    ///
    /// let Trust::Authority(certificates) = Trust::from_pem(pem.as_bytes())? else { panic!() };
    /// assert_eq!(certificates.first(), authority.certificate());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the data is damaged, or has no certificate that can be an authority's.
    pub fn from_pem(authorities: &[u8]) -> Result<Self, PemError> {
        Self::read(&Pem::of(authorities))
    }

    fn read(pem: &Pem) -> Result<Self, PemError> {
        let authorities = pem.certificates()?;
        roots(&authorities).map_err(|source| PemError::Unusable { origin: pem.origin.clone(), source })?;
        Ok(Self::Authority(authorities))
    }

    /// Returns a TLS 1.3 configuration for a client with this trust, without ALPN protocols.
    ///
    /// # Errors
    ///
    /// If a certificate cannot be used, or no authority is given.
    pub fn client_tls(&self) -> Result<ClientConfig, IdentityError> {
        self.client_tls_as(None)
    }

    /// Returns a TLS 1.3 configuration for a client with this trust, which presents an identity to
    /// servers that ask for one. It has no ALPN protocols.
    ///
    /// # Errors
    ///
    /// If a certificate or a key cannot be used, or no authority is given.
    pub fn client_tls_as(&self, identity: Option<&Identity>) -> Result<ClientConfig, IdentityError> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier()?);
        let Some(identity) = identity else { return Ok(config.with_no_client_auth()) };
        let (chain, key) = identity.parts();
        Ok(config.with_client_auth_cert(chain, key)?)
    }

    /// Returns the verifier of a client with this trust.
    ///
    /// # Errors
    ///
    /// If a certificate cannot be used, or no authority is given.
    pub fn verifier(&self) -> Result<Arc<dyn ServerCertVerifier>, IdentityError> {
        let provider = Arc::new(ring::default_provider());
        let pin = match self {
            Self::Roots(roots) => return of_roots(Arc::clone(roots), provider),
            Self::Authority(authorities) => return of_roots(roots(authorities)?, provider),
            Self::Certificate(certificate) => {
                let roots = roots(std::slice::from_ref(certificate))?;
                Pin::Certificate { certificate: certificate.clone(), roots }
            }
            Self::Fingerprint(fingerprint) => Pin::Fingerprint(*fingerprint),
        };
        Ok(Arc::new(Pinned { pin, provider }))
    }
}

/// Returns a verifier that accepts what these roots have signed.
fn of_roots(
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, IdentityError> {
    match WebPkiServerVerifier::builder_with_provider(roots, provider).build() {
        Ok(verifier) => Ok(verifier),
        Err(VerifierBuilderError::NoRootAnchors) => Err(IdentityError::NoAuthority),
        Err(error) => Err(Error::General(error.to_string()).into()),
    }
}

pub(crate) fn roots(certificates: &[CertificateDer<'static>]) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    certificates.iter().try_for_each(|certificate| roots.add(certificate.clone()))?;
    Ok(Arc::new(roots))
}

/// Error returned for a peer whose certificate is not the pinned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer presented the certificate {presented}, but {expected} was expected")]
struct Mismatch {
    expected: Fingerprint,
    presented: Fingerprint,
}

/// Certificate agreed on beforehand.
#[derive(Debug)]
enum Pin {
    /// The certificate, which is also the only one in `roots`.
    Certificate {
        certificate: CertificateDer<'static>,
        roots: Arc<RootCertStore>,
    },
    Fingerprint(Fingerprint),
}

/// Verifier that accepts a peer with the pinned certificate and its key.
#[derive(Debug)]
struct Pinned {
    pin: Pin,
    provider: Arc<CryptoProvider>,
}

/// Checks the validity period of a certificate that is its own root.
pub(crate) fn check_period(
    certificate: &ParsedCertificate<'_>,
    roots: &RootCertStore,
    now: UnixTime,
    provider: &CryptoProvider,
) -> Result<(), Error> {
    let algorithms = provider.signature_verification_algorithms.all;
    match verify_server_cert_signed_by_trust_anchor(certificate, roots, &[], now, algorithms) {
        // The period is checked before anything else. A path to a root (RFC 5280 §6.1) adds
        // nothing to a certificate that is known itself: an authority's is none for servers,
        // and one signed by others is not its own root.
        Err(Error::InvalidCertificate(
            error @ (CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
            | CertificateError::BadEncoding),
        )) => Err(Error::InvalidCertificate(error)),
        _ => Ok(()),
    }
}

/// Checks the name of a pinned certificate, if it has names.
fn check_name(certificate: &ParsedCertificate<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    match verify_server_name(certificate, name) {
        // RFC 9525 §2: names are those of `subjectAltName`. OpenSSL makes certificates without it
        // by default.
        Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }))
            if presented.is_empty() =>
        {
            Ok(())
        }
        result => result,
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let presented = Fingerprint::of(end_entity);
        let mismatch = |expected| Error::Other(OtherError(Arc::new(Mismatch { expected, presented })));
        match &self.pin {
            Pin::Fingerprint(expected) if presented != *expected => return Err(mismatch(*expected)),
            Pin::Fingerprint(_) => {}
            Pin::Certificate { certificate, .. } if certificate != end_entity => {
                return Err(mismatch(Fingerprint::of(certificate)));
            }
            Pin::Certificate { certificate, roots } => {
                let certificate = ParsedCertificate::try_from(certificate)?;
                check_period(&certificate, roots, now, &self.provider)?;
                check_name(&certificate, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    use rustls::{ClientConnection, ServerConfig, ServerConnection};

    use super::*;

    const NAME: &str = "server.test";

    type Chain = (Vec<CertificateDer<'static>>, KeyPair);

    fn params(names: &[&str], authority: bool) -> CertificateParams {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        if authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params
    }

    fn self_signed(params: &CertificateParams) -> Chain {
        let key = KeyPair::generate().unwrap();
        (vec![params.self_signed(&key).unwrap().der().clone()], key)
    }

    /// Returns the certificate of a server, signed by an authority, and the authority's.
    fn signed(params: &CertificateParams) -> (Chain, CertificateDer<'static>) {
        let mut of_authority = self::params(&[], true);
        of_authority.distinguished_name.push(rcgen::DnType::CommonName, "authority");
        let (authority, issuer) = self_signed(&of_authority);
        let issuer = Issuer::new(of_authority, issuer);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().der().clone();
        ((vec![certificate], key), authority[0].clone())
    }

    /// Completes a handshake in memory, as far as the client agrees.
    fn connect(trust: &Trust, (chain, key): &Chain, name: &'static str) -> Result<(), Error> {
        let provider = Arc::new(ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain.clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into())?;
        handshake(trust, server, name)
    }

    fn handshake(trust: &Trust, server: ServerConfig, name: &'static str) -> Result<(), Error> {
        let mut server = ServerConnection::new(Arc::new(server))?;
        let client = Arc::new(trust.client_tls().unwrap());
        let mut client = ClientConnection::new(client, ServerName::try_from(name).unwrap())?;
        while client.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut &wire[..]).unwrap();
            server.process_new_packets()?;
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut &wire[..]).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    fn pin(chain: &Chain) -> Trust {
        Trust::Certificate(chain.0[0].clone())
    }

    #[test]
    fn a_pinned_certificate_is_accepted_in_every_form() {
        let leaf = self_signed(&params(&[NAME], false));
        let authority = self_signed(&params(&[NAME], true));
        // By default, OpenSSL sets CA:TRUE and no alternative names.
        let openssl = self_signed(&params(&[], true));
        let (of_authority, _) = signed(&params(&[NAME], false));
        for chain in [leaf, authority, openssl, of_authority] {
            assert_eq!(connect(&pin(&chain), &chain, NAME), Ok(()));
        }
    }

    #[test]
    fn a_pinned_authority_vouches_for_no_other_certificate() {
        let (server, authority) = signed(&params(&[NAME], false));
        let error = connect(&Trust::Certificate(authority.clone()), &server, NAME).unwrap_err();
        assert!(error.to_string().contains("was expected"), "{error}");
        // A chain that contains the pinned certificate is not enough.
        let chain = (vec![server.0[0].clone(), authority.clone()], server.1);
        assert!(connect(&Trust::Certificate(authority), &chain, NAME).is_err());
    }

    #[test]
    fn a_pinned_certificate_needs_its_own_key() {
        let ours = self_signed(&params(&[NAME], true));
        let other = KeyPair::generate().unwrap();
        for trust in [pin(&ours), Trust::Fingerprint(Fingerprint::of(&ours.0[0]))] {
            // The builder's own check of the key is bypassed, so that the client's has to suffice.
            let provider = ring::default_provider();
            let key = PrivatePkcs8KeyDer::from(other.serialize_der()).into();
            let key = provider.key_provider.load_private_key(key).unwrap();
            let stolen = CertifiedKey::new(ours.0.clone(), key);
            let server = ServerConfig::builder_with_provider(Arc::new(provider))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(SingleCertAndKey::from(stolen)));
            let error = handshake(&trust, server, NAME).unwrap_err();
            assert_eq!(error, Error::InvalidCertificate(CertificateError::BadSignature));
        }
    }

    #[test]
    fn a_pinned_certificate_counts_only_for_its_time_and_names() {
        let mut old = params(&[NAME], false);
        old.not_after = date_time_ymd(2001, 1, 1);
        let mut old_authority = params(&[NAME], true);
        old_authority.not_after = date_time_ymd(2001, 1, 1);
        let mut early = params(&[NAME], true);
        early.not_before = date_time_ymd(4000, 1, 1);
        for params in [old, old_authority, early] {
            let chain = self_signed(&params);
            let error = connect(&pin(&chain), &chain, NAME).unwrap_err();
            assert!(matches!(error, Error::InvalidCertificate(_)), "{error}");
            // A fingerprint names a certificate whatever its time.
            let fingerprint = Trust::Fingerprint(Fingerprint::of(&chain.0[0]));
            assert_eq!(connect(&fingerprint, &chain, "other.test"), Ok(()));
        }
        let chain = self_signed(&params(&[NAME], true));
        assert!(connect(&pin(&chain), &chain, "other.test").is_err());
    }

    #[test]
    fn an_authority_vouches_for_valid_certificates_of_the_name() {
        let (server, authority) = signed(&params(&[NAME], false));
        let trust = Trust::Authority(vec![authority]);
        assert_eq!(connect(&trust, &server, NAME), Ok(()));
        assert!(connect(&trust, &server, "other.test").is_err());
        // Another authority's certificate for the same name.
        assert!(connect(&trust, &signed(&params(&[NAME], false)).0, NAME).is_err());
        assert!(connect(&trust, &self_signed(&params(&[NAME], false)), NAME).is_err());
        let mut old = params(&[NAME], false);
        old.not_after = date_time_ymd(2001, 1, 1);
        let (server, authority) = signed(&old);
        assert!(connect(&Trust::Authority(vec![authority]), &server, NAME).is_err());
        let none = Trust::Authority(Vec::new()).client_tls();
        assert!(matches!(none, Err(IdentityError::NoAuthority)), "{none:?}");
    }
}
