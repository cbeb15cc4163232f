//! Names that requests ask for: sites, certificates and redirects.

use http::{Request, StatusCode};
use rustls::DigitallySignedStruct;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::UnixTime;

use super::*;

/// Client that accepts any certificate.
#[derive(Debug)]
struct Blind;

impl ServerCertVerifier for Blind {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        let provider = rustls::crypto::ring::default_provider();
        provider.signature_verification_algorithms.supported_schemes()
    }
}

impl Running {
    /// Opens a connection that accepts any certificate. An address gives no name.
    fn blind(&self, name: &str) -> Tls {
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Blind))
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(connection, TcpStream::connect(&self.addrs[0]).unwrap())
    }
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

const CERTIFIED: &str = "certificate = { chain = 'a.pem', key = 'a.key' }\n";

#[test]
fn a_default_site_answers_for_no_name_beyond_its_certificate() {
    let site = "[[site]]\nhosts = 'a.test'\ndefault = true\ndirectory = 'a'\n";
    let mut running = Running::start(&format!("{TLS}{site}{CERTIFIED}"));
    for (name, host, expected) in [
        ("a.test", "a.test", 200),
        ("a.test", "other.test", 421),
        ("other.test", "other.test", 421),
        ("other.test", "a.test", 200),
        // Clients give no name for an address.
        ("127.0.0.1", "a.test", 200),
        ("127.0.0.1", "127.0.0.1", 421),
    ] {
        let (head, _) = ask(&mut running.blind(name), &get(host, "/"));
        assert_eq!(status(&head), expected, "{name} {host}");
    }
    // Clients accept this one for what they asked for.
    let own = format!("{TLS}[[site]]\ndirectory = 'a'\ncertificate = 'self-signed'\n");
    assert_eq!(running.reload(&own), "configuration reloaded");
    for (name, host, expected) in [
        ("localhost", "localhost", 200),
        ("other.test", "other.test", 200),
        ("127.0.0.1", "127.0.0.1", 200),
        ("localhost", "other.test", 421),
    ] {
        let (head, _) = ask(&mut running.blind(name), &get(host, "/"));
        assert_eq!(status(&head), expected, "{name} {host}");
    }
}

#[test]
fn redirects_to_https_lead_to_names_of_the_server_only() {
    let listen = "[[listen]]\naddress = '127.0.0.1:0'\nredirect-to-https = true\n[[listen]]\naddress = '127.0.0.2:0'\n";
    let of = |running: &Running, host: &str| {
        let (status, head, _) = got(&running.addrs[0], &get(host, "/x?y"));
        let location = head.lines().find_map(|line| line.strip_prefix("location: "));
        (status, location.unwrap_or_default().to_owned())
    };
    let default = "[[site]]\nhosts = ['*.b.test', 'a.test']\ndefault = true\ndirectory = 'a'\n";
    let mut running = Running::start(&format!("{listen}{default}{CERTIFIED}"));
    // The port of https is left out.
    assert_eq!(of(&running, "a.test:80"), (308, "https://a.test/x?y".to_owned()));
    assert_eq!(of(&running, "www.b.test"), (308, "https://www.b.test/x?y".to_owned()));
    assert_eq!(of(&running, "evil.test"), (308, "https://a.test/x?y".to_owned()));
    let (status, head, _) = got(&running.addrs[0], "GET /x HTTP/1.0\r\n\r\n");
    assert!(status == 308 && head.contains("\r\nlocation: https://a.test/x\r\n"), "{head}");
    // A site without names has those of its certificate.
    let unnamed = "[[site]]\ndirectory = 'a'\n";
    assert_eq!(running.reload(&format!("{listen}{unnamed}{CERTIFIED}")), "configuration reloaded");
    assert_eq!(of(&running, "a.test"), (308, "https://a.test/x?y".to_owned()));
    assert_eq!(of(&running, "evil.test"), (421, String::new()));
    let wildcard = "[[site]]\nhosts = '*.a.test'\ndefault = true\ndirectory = 'a'\n";
    assert_eq!(running.reload(&format!("{listen}{wildcard}{CERTIFIED}")), "configuration reloaded");
    assert_eq!(of(&running, "www.a.test"), (308, "https://www.a.test/x?y".to_owned()));
    assert_eq!(of(&running, "evil.test"), (421, String::new()));
    let other = listen.replace("redirect-to-https = true", "redirect-to-https = true\nhttps-port = 8443");
    assert_eq!(running.reload(&format!("{other}{default}{CERTIFIED}")), "configuration reloaded");
    assert_eq!(of(&running, "a.test"), (308, "https://a.test:8443/x?y".to_owned()));
}

#[test]
fn a_route_has_whole_segments_only() {
    let running = Running::start(&format!(
        "{PLAIN}[[site]]\ndirectory = 'a'\n[[site.route]]\npath = '/api'\nstrip-prefix = true\ndirectory = 'b'\n"
    ));
    std::fs::write(running.path("a/apis"), "apis of a").unwrap();
    std::fs::write(running.path("b/x"), "x of b").unwrap();
    let content = |path: &str| got(&running.addrs[0], &get("a.test", path)).2;
    assert_eq!(content("/apis"), "apis of a");
    assert_eq!(content("/api"), "site b");
    assert_eq!(content("/api/"), "site b");
    assert_eq!(content("/api/x"), "x of b");
}

#[test]
fn the_certificate_of_a_wildcard_is_for_all_names_below() {
    let running = Running::start(&format!(
        "{TLS}[[site]]\nhosts = 'a.test'\ndirectory = 'a'\ncertificate = {{ chain = 'a.pem', key = 'a.key' }}\n[[site]]\nhosts = '*.b.test'\ndirectory = 'b'\ncertificate = {{ chain = 'c.pem', key = 'c.key' }}\n"
    ));
    let mut www = running.tls("www.b.test", "c").unwrap();
    assert_eq!(ask(&mut www, &get("www.b.test", "/")).1, "site b");
    running.tls("b.test", "c").unwrap_err();
    running.tls("x.www.b.test", "c").unwrap_err();
}

#[test]
fn a_certificate_that_was_made_at_the_start_stays() {
    let site = "[[site]]\nhosts = 'a.test'\ndirectory = 'a'\ncertificate = 'self-signed'\n";
    let mut running = Running::start(&format!("{TLS}{site}"));
    let presented = |running: &Running| {
        let mut stream = running.blind("a.test");
        assert_eq!(ask(&mut stream, &get("a.test", "/")).1, "site a");
        stream.conn.peer_certificates().unwrap()[0].clone().into_owned()
    };
    let before = presented(&running);
    assert_eq!(running.reload(&format!("{TLS}{site}hsts = true\n")), "configuration reloaded");
    assert_eq!(presented(&running), before);
    // Other names need another one.
    let more = site.replace("'a.test'", "['a.test', 'c.test']");
    assert_eq!(running.reload(&format!("{TLS}{more}")), "configuration reloaded");
    assert_ne!(presented(&running), before);
}

#[test]
fn a_path_without_a_route_has_the_fields_of_its_site() {
    let running = Running::start(&format!(
        "{PLAIN}[[site]]\nhosts = 'a.test'\nheaders = {{ X-Site = 'a' }}\n[[site.route]]\npath = '/b'\ndirectory = 'b'\n"
    ));
    let (status, head, content) = got(&running.addrs[0], &get("a.test", "/"));
    assert!(status == 404 && head.contains("\r\nx-site: a\r\n"), "{head}");
    assert_eq!(content, "this site has nothing here\n");
}

#[test]
fn fields_of_a_site_replace_those_of_an_origin() {
    let origin =
        log::saying(b"HTTP/1.1 200 OK\r\nx-site: origin\r\nx-own: origin\r\ncontent-length: 0\r\n\r\n");
    let running = Running::start(&format!(
        "{PLAIN}[[site]]\nheaders = {{ X-Site = 'a' }}\norigin = 'http://{origin}'\n"
    ));
    let head = got(&running.addrs[0], &get("a.test", "/")).1;
    assert!(head.contains("\r\nx-site: a\r\n") && head.contains("\r\nx-own: origin\r\n"), "{head}");
    assert_eq!(head.matches("\r\nx-site: ").count(), 1, "{head}");
}

/// Listener that tells of each connection.
fn telling() -> (SocketAddr, std::sync::mpsc::Receiver<()>) {
    let (tell, told) = std::sync::mpsc::channel();
    // The connection closes without a word.
    (log::origin(move |_| _ = tell.send(())), told)
}

#[test]
fn a_reload_asks_another_authority() {
    // Patience, which ends only a test that would hang.
    let patience = std::time::Duration::from_secs(60);
    let ((first, asked), (second, asked_again)) = (telling(), telling());
    let text = |authority: SocketAddr| {
        format!(
            "{TLS}[[site]]\nhosts = 'a.test'\ndirectory = 'a'\ncertificate = 'acme'\n\
             [acme]\nstate = 'state'\nterms-agreed = true\ndirectory = 'https://{authority}/'\n"
        )
    };
    let mut running = Running::start(&text(first));
    asked.recv_timeout(patience).unwrap();
    running.reload(&text(second));
    asked_again.recv_timeout(patience).unwrap();
}

#[test]
fn a_stripped_path_keeps_its_query() {
    let running = Running::start(&format!(
        "{PLAIN}[[site]]\n[[site.route]]\npath = '/b'\nstrip-prefix = true\ndirectory = 'b'\n"
    ));
    std::fs::create_dir(running.path("b/sub")).unwrap();
    // The redirect of a directory has the query of its request.
    let (status, head, _) = got(&running.addrs[0], &get("a.test", "/b/sub?x=1&y"));
    assert!(status == 308 && head.contains("\r\nlocation: ./sub/?x=1&y\r\n"), "{head}");
}

#[test]
fn websockets_over_http2_are_offered_by_origins_alone() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (content, is_offered) in [("directory = 'a'", false), ("origin = 'http://127.0.0.1:9'", true)] {
        let running = Running::start(&format!("{PLAIN}[[site]]\n{content}\n"));
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(&running.addrs[0]).await.unwrap();
            let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(async move { _ = connection.await });
            // The server's settings come before its first response.
            let request = Request::get("http://a.test/").body(()).unwrap();
            send.send_request(request, true).unwrap().0.await.unwrap();
            assert_eq!(send.is_extended_connect_protocol_enabled(), is_offered, "{content}");
        });
    }
}

#[test]
fn requests_of_http2_name_one_host() {
    let running = Running::start(&format!(
        "{PLAIN}[[site]]\nhosts = 'a.test'\ndirectory = 'a'\n[[site]]\nhosts = 'b.test'\ndirectory = 'b'\n"
    ));
    let ask = async |authority: &str, host: Option<&str>| {
        let stream = tokio::net::TcpStream::connect(&running.addrs[0]).await.unwrap();
        let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(async move { _ = connection.await });
        let mut request = Request::get(format!("http://{authority}/")).body(()).unwrap();
        if let Some(host) = host {
            request.headers_mut().insert("host", host.parse().unwrap());
        }
        let response = send.send_request(request, true).unwrap().0.await.unwrap();
        let status = response.status();
        let mut body = response.into_body();
        let mut content = Vec::new();
        while let Some(data) = body.data().await {
            content.extend_from_slice(&data.unwrap());
        }
        (status, String::from_utf8(content).unwrap())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let a = (StatusCode::OK, "site a".to_owned());
        assert_eq!(ask("a.test", None).await, a);
        assert_eq!(ask("A.Test.", None).await, a);
        assert_eq!(ask("a.test", Some("a.test")).await, a);
        assert_eq!(ask("a.test", Some("A.test")).await, a);
        // RFC 9113 §8.3.1: a request whose names differ is malformed.
        for host in ["b.test", "a.test:80", "", "a test"] {
            assert_eq!(ask("a.test", Some(host)).await.0, StatusCode::BAD_REQUEST, "{host}");
        }
        assert_eq!(ask("c.test", None).await.0, StatusCode::MISDIRECTED_REQUEST);
    });
}
