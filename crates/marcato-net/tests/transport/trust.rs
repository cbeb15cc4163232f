//! Forms of certificates and of trust, over both engines.

use crate::common::{NAME, for_both_engines, localhost, within};
use marcato_net::{
    ClientSecurity, Config, ConnectError, Connection, Endpoint, Engine, Identity, Remote, ServerSecurity,
    Trust,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

fn params(names: &[&str], authority: bool) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).unwrap();
    if authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    params
}

fn identity(certificate: &rcgen::Certificate, key: &KeyPair) -> Identity {
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Identity::new(vec![certificate.der().clone()], key.into())
}

fn self_signed(params: &CertificateParams) -> Identity {
    let key = KeyPair::generate().unwrap();
    identity(&params.self_signed(&key).unwrap(), &key)
}

/// Returns a server's identity, and the certificate of the authority that signed it.
fn signed(params: &CertificateParams) -> (Identity, CertificateDer<'static>) {
    let mut of_authority = self::params(&[], true);
    of_authority.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().unwrap();
    let authority = of_authority.self_signed(&key).unwrap().der().clone();
    let issuer = Issuer::new(of_authority, key);
    let key = KeyPair::generate().unwrap();
    (identity(&params.signed_by(&key, &issuer).unwrap(), &key), authority)
}

async fn connect(
    engine: Engine,
    server: &Identity,
    trust: Trust,
    name: &str,
) -> Result<Connection, ConnectError> {
    let config = Config::new(engine);
    let security = ServerSecurity::Tls(server.clone());
    let endpoint = Endpoint::listen(&config, &[localhost().into()], &security).await.unwrap();
    let remote = Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting(name, trust));
    within(Endpoint::connect(&config, &remote)).await
}

fn pin(identity: &Identity) -> Trust {
    Trust::Certificate(identity.certificate().unwrap().clone())
}

async fn a_pinned_certificate_is_accepted_in_every_form(engine: Engine) {
    let forms = [
        self_signed(&params(&[NAME], false)),
        self_signed(&params(&[NAME], true)),
        // By default, OpenSSL sets CA:TRUE and no alternative names.
        self_signed(&params(&[], true)),
        signed(&params(&[NAME], false)).0,
    ];
    for server in forms {
        connect(engine, &server, pin(&server), NAME).await.unwrap();
    }
}

async fn a_pinned_certificate_vouches_for_no_other_and_not_for_ever(engine: Engine) {
    let (server, authority) = signed(&params(&[NAME], false));
    connect(engine, &server, Trust::Certificate(authority), NAME).await.unwrap_err();
    let mut old = params(&[NAME], true);
    old.not_after = date_time_ymd(2001, 1, 1);
    let server = self_signed(&old);
    let error = connect(engine, &server, pin(&server), NAME).await.unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
}

async fn an_authority_vouches_for_valid_certificates_of_the_name(engine: Engine) {
    let (server, authority) = signed(&params(&[NAME], false));
    let trust = Trust::Authority(vec![authority]);
    connect(engine, &server, trust.clone(), NAME).await.unwrap();
    connect(engine, &server, trust.clone(), "another.test").await.unwrap_err();
    let (other, _) = signed(&params(&[NAME], false));
    connect(engine, &other, trust, NAME).await.unwrap_err();
    let mut old = params(&[NAME], false);
    old.not_after = date_time_ymd(2001, 1, 1);
    let (server, authority) = signed(&old);
    connect(engine, &server, Trust::Authority(vec![authority]), NAME).await.unwrap_err();
}

for_both_engines! {
    a_pinned_certificate_is_accepted_in_every_form
    a_pinned_certificate_vouches_for_no_other_and_not_for_ever
    an_authority_vouches_for_valid_certificates_of_the_name
}
