//! Versions of TLS, certificates of clients, and addresses at their limits.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::versions::Versions;
use crate::{PLAIN, Running, TLS, ask, get, got};

const SITE: &str =
    "[[site]]\nhosts = 'a.test'\ncertificate = { chain = 'a.pem', key = 'a.key' }\ndirectory = 'a'\n";

#[test]
fn tls_1_2_is_served_if_it_is_asked_for() {
    let mut running = Running::start(&format!("{TLS}{SITE}"));
    let old = |running: &Running, alpn: &[u8]| {
        let mut roots = RootCertStore::empty();
        roots.add(running.certificate("a")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let mut config = builder
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        running.tls_of("a.test", &Arc::new(config))
    };
    assert!(old(&running, b"http/1.1").is_err());
    assert_eq!(running.reload(&format!("min-tls = '1.2'\n{TLS}{SITE}")), "configuration reloaded");
    let mut stream = old(&running, b"http/1.1").unwrap();
    assert_eq!(stream.conn.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_2));
    assert_eq!(ask(&mut stream, &get("a.test", "/")).1, "site a");
    assert_eq!(old(&running, b"h2").unwrap().conn.alpn_protocol(), Some(&b"h2"[..]));
    // Newer clients have what they had, over all versions of HTTP.
    assert_eq!(Versions::of(&running, "a").get("/").told(), (200, "site a"));
    let stream = running.tls("a.test", "a").unwrap();
    assert_eq!(stream.conn.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    assert_eq!(running.reload(&format!("{TLS}{SITE}")), "configuration reloaded");
    assert!(old(&running, b"http/1.1").is_err());
}

#[test]
fn http2_is_served_over_tls_1_2() {
    let running = Running::start(&format!("min-tls = '1.2'\n{TLS}{SITE}"));
    let mut client = Versions::of(&running, "a");
    let mut roots = RootCertStore::empty();
    roots.add(running.certificate("a")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    client.tls = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    assert_eq!(client.get_over_tcp("h2", "/").told(), (200, "site a"));
    assert_eq!(client.get_over_tcp("http/1.1", "/").told(), (200, "site a"));
}

/// Authority that issues certificates to clients.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: rcgen::Issuer::new(params, key), pem }
    }

    fn issue(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["client.test".to_owned()]).unwrap();
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    }

    /// Client that presents a certificate.
    fn client(&self, running: &Running) -> Versions {
        let mut client = Versions::of(running, "a");
        let mut roots = RootCertStore::empty();
        roots.add(running.certificate("a")).unwrap();
        let (chain, key) = self.issue();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        client.tls = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .unwrap();
        client
    }
}

#[test]
fn parts_of_a_site_ask_for_certificates_of_clients() {
    let (own, other) = (Authority::new(), Authority::new());
    let text = format!(
        "client-ca = 'clients.pem'\n{TLS}{SITE}[[site.route]]\npath = '/inner'\ndirectory = 'b'\nstrip-prefix = true\n\
         access = {{ client-certificate = true }}"
    );
    let dir = crate::directory(&text);
    std::fs::write(dir.path().join("clients.pem"), &own.pem).unwrap();
    let mut running = Running::of(crate::command(dir.path()).spawn().unwrap(), dir);
    let anyone = Versions::of(&running, "a");
    assert_eq!(anyone.get("/").told(), (200, "site a"));
    assert_eq!(anyone.get("/inner/").status, 403);
    let known = own.client(&running);
    assert_eq!(known.get("/inner/").told(), (200, "site b"));
    assert_eq!(known.get("/").told(), (200, "site a"));
    // A certificate of another authority ends the handshake, which the client learns with its first read.
    let stranger = Arc::new(other.client(&running).tls);
    let refused = |running: &Running| {
        let stream = running.tls_of("a.test", &stranger);
        stream.and_then(|mut stream| {
            use std::io::{Read as _, Write as _};
            stream.write_all(get("a.test", "/").as_bytes())?;
            stream.read(&mut [0; 1]).map(drop)
        })
    };
    assert!(refused(&running).is_err());
    // Another authority takes its place.
    std::fs::write(running.path("clients.pem"), &other.pem).unwrap();
    assert_eq!(running.reload(&text), "configuration reloaded");
    assert!(refused(&running).is_ok());
    assert_eq!(other.client(&running).get("/inner/").told(), (200, "site b"));
}

#[test]
fn a_warning_names_the_address_at_its_limit() {
    let text =
        format!("{PLAIN}[[site]]\ndirectory = 'a'\n[rates]\nrequests = {{ per-second = 1, burst = 1 }}\n");
    let (running, mut said) = Running::diagnosed(&text, "json");
    assert_eq!(got(&running.addrs[0], &get("a", "/")).0, 200);
    while got(&running.addrs[0], &get("a", "/")).0 != 429 {}
    let line = said.next().unwrap().unwrap();
    for part in ["\"address\":\"127.0.0.1\"", "\"refused\":\"request\"", "raise `requests` of [rates]"] {
        assert!(line.contains(part), "{line}");
    }
}
