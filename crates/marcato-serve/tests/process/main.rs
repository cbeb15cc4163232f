//! The server as a process: sites, certificates, reloads, and words with a supervisor.
//!
//! A test starts its own binary again, as a server that runs until it is told to end.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod handling;
mod log;
mod names;
mod origins;
mod tls;
mod versions;

use std::io::{BufRead as _, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::Arc;

use marcato_serve::{Diagnostics, LogLevel, Source};
use marcato_web::Identity;
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use tempfile::TempDir;
use tokio::net::TcpSocket;

/// Variable that makes this binary a server of that file.
const SERVED: &str = "MARCATO_SERVE_TEST_FILE";

/// Variable that makes it tell of its own work: in JSON, as text, or in JSON with all that helps to find a fault.
const DIAGNOSED: &str = "MARCATO_SERVE_TEST_LOG";

/// With the variable [`SERVED`], this test is the server of the others. Without, it starts one of a file that does not exist.
#[test]
fn a_configuration_that_does_not_exist_is_named() {
    let Some(file) = std::env::var_os(SERVED) else {
        let empty = tempfile::tempdir().unwrap();
        let output = command(empty.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // The harness begins the line.
        assert!(text.lines().any(|line| line.contains("! ") && line.contains("serve.toml")), "{text}");
        return;
    };
    if let Some(format) = std::env::var_os(DIAGNOSED) {
        let level = if format == "debug" { LogLevel::Debug } else { LogLevel::Warn };
        Diagnostics { level, is_json: format != "text" }.begin();
    }
    let mut print = |text: &str| {
        let mut stdout = std::io::stdout().lock();
        // The harness prints to the same output: lines of the server begin with a mark.
        text.lines().try_for_each(|line| writeln!(stdout, "> {line}")).and_then(|()| stdout.flush())
    };
    if let Err(error) = marcato_serve::run(&Source::File(file.into()), &mut print) {
        for line in error.to_string().lines() {
            println!("! {line}");
        }
    }
}

/// Server that is killed if a test fails.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Addresses, in the order of the listeners.
    addrs: Vec<String>,
    /// Lines of the start, up to the last listener.
    hello: Vec<String>,
    dir: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "a_configuration_that_does_not_exist_is_named",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env(SERVED, dir.join("serve.toml")).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

impl Running {
    /// Starts a server of a text in a directory with `a/index.html`, `b/index.html` and certificates.
    fn start(text: &str) -> Self {
        let dir = directory(text);
        let child = command(dir.path()).spawn().unwrap();
        Self::of(child, dir)
    }

    fn of(mut child: Child, dir: TempDir) -> Self {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut running = Self { child, lines, addrs: Vec::new(), hello: Vec::new(), dir };
        running.addresses();
        running
    }

    /// Reads lines until the last listener has been named.
    fn addresses(&mut self) {
        let listeners = self.text().matches("[[listen]]").count();
        let mut addrs = Vec::new();
        while addrs.len() < listeners {
            let line = self.line();
            addrs.extend(
                line.strip_prefix("listening on ").map(|url| url.rsplit('/').next().unwrap().to_owned()),
            );
            self.hello.push(line);
        }
        self.addrs = addrs;
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("serve.toml")).unwrap()
    }

    /// Next line of the server, other than those of requests.
    fn line(&mut self) -> String {
        loop {
            let line = self.lines.next().unwrap().unwrap();
            if let Some(error) = line.strip_prefix("! ") {
                panic!("the server ended: {error}");
            }
            if let Some(line) = line.strip_prefix("> ")
                && !line.starts_with("time=")
            {
                return line.to_owned();
            }
        }
    }

    /// Starts a server that tells of its own work, and returns those lines.
    fn diagnosed(text: &str, format: &str) -> (Self, Lines<BufReader<ChildStderr>>) {
        let dir = directory(text);
        let mut child = command(dir.path()).env(DIAGNOSED, format).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        (Self::of(child, dir), said)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Replaces the file, and has it read.
    fn reload(&mut self, text: &str) -> String {
        std::fs::write(self.dir.path().join("serve.toml"), text).unwrap();
        self.signal(Signal::HUP);
        self.line()
    }

    /// Ends the server, and returns its last line.
    fn end(&mut self) -> String {
        self.signal(Signal::TERM);
        assert!(self.line().starts_with("ending: "));
        self.line()
    }

    fn certificate(&self, name: &str) -> CertificateDer<'static> {
        let path = |kind: &str| self.dir.path().join(format!("{name}.{kind}"));
        Identity::from_pem_files(path("pem"), path("key")).unwrap().certificate().unwrap().clone()
    }

    /// Opens a connection with TLS, for a name of a certificate.
    fn tls(&self, name: &str, certificate: &str) -> Result<Tls, std::io::Error> {
        self.tls_of(name, &self.trusting(&[certificate]).into())
    }

    /// Client that accepts these certificates.
    fn trusting(&self, certificates: &[&str]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(self.certificate(certificate)).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    /// Opens a connection with TLS to another listener.
    fn tls_at(&self, listener: usize, name: &str, certificate: &str) -> Tls {
        self.tls_over(TcpStream::connect(&self.addrs[listener]).unwrap(), name, certificate)
    }

    /// Begins TLS on a connection that is open.
    fn tls_over(&self, stream: TcpStream, name: &str, certificate: &str) -> Tls {
        shaken(stream, name, &self.trusting(&[certificate]).into()).unwrap()
    }

    fn tls_of(&self, name: &str, config: &Arc<ClientConfig>) -> Result<Tls, std::io::Error> {
        shaken(TcpStream::connect(&self.addrs[0]).unwrap(), name, config)
    }
}

fn shaken(stream: TcpStream, name: &str, config: &Arc<ClientConfig>) -> Result<Tls, std::io::Error> {
    {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn directory(text: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        std::fs::write(dir.path().join(name).join("index.html"), format!("site {name}")).unwrap();
        certify(dir.path(), name, &[&format!("{name}.test")]);
    }
    certify(dir.path(), "c", &["*.b.test"]);
    std::fs::write(dir.path().join("serve.toml"), text).unwrap();
    dir
}

/// Writes a certificate for names, and its key.
fn certify(dir: &Path, file: &str, names: &[&str]) {
    let key = rcgen::KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let identity = Identity::new(
        vec![certificate.der().clone()],
        rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
    );
    std::fs::write(dir.join(format!("{file}.key")), identity.key_pem()).unwrap();
    std::fs::write(dir.join(format!("{file}.pem")), identity.chain_pem()).unwrap();
}

/// Address at which nothing listens. As long as its socket is kept, only one who names it can listen there:
/// no other test has it by chance.
fn reserved() -> (SocketAddr, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    (socket.local_addr().unwrap(), socket)
}

/// Replaces a file that has a certificate and its key, at once.
fn renew(dir: &Path, name: &str) {
    certify(dir, name, &[&format!("{name}.test")]);
    let read = |kind: &str| std::fs::read_to_string(dir.join(format!("{name}.{kind}"))).unwrap();
    std::fs::write(dir.join("next"), read("pem") + &read("key")).unwrap();
    std::fs::rename(dir.join("next"), dir.join(format!("{name}.both"))).unwrap();
}

/// Sends a request on a connection, and returns the head and the content of its response.
fn ask(stream: &mut (impl Read + Write), request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).unwrap();
    response(stream)
}

fn response(stream: &mut impl Read) -> (String, String) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut content = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut content).unwrap();
    (head, String::from_utf8(content).unwrap())
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")
}

/// Status and content of a request on a connection of its own.
fn got(addr: &str, request: &str) -> (u16, String, String) {
    let (head, content) = ask(&mut TcpStream::connect(addr).unwrap(), request);
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head, content)
}

const PLAIN: &str = "[[listen]]\naddress = '127.0.0.1:0'\nplaintext = true\n";
const TLS: &str = "[[listen]]\naddress = '127.0.0.1:0'\n";

#[test]
fn requests_reach_the_site_of_their_host_and_its_longest_route() {
    let running = Running::start(&format!(
        "{PLAIN}
[[site]]
hosts = ['a.test', '*.a.test']
directory = 'a'
headers = {{ X-Site = 'a', X-Both = 'site' }}
hsts = true
[[site.route]]
path = '/b'
directory = 'b'
strip-prefix = true
headers = {{ X-Both = 'route' }}
[[site.route]]
path = '/b/old'
redirect = {{ to = '/new', status = 301, keep-path = true }}
[[site.route]]
path = '/b/exact'
exact = true
redirect = 'https://b.test'
[[site]]
hosts = 'b.test'
default = true
directory = 'b'
"
    ));
    let at = &running.addrs[0];
    let content = |host: &str, path: &str| got(at, &get(host, path)).2;
    assert_eq!(content("a.test", "/"), "site a");
    assert_eq!(content("A.Test.:8080", "/"), "site a");
    assert_eq!(content("www.a.test", "/"), "site a");
    assert_eq!(content("x.www.a.test", "/"), "site b");
    assert_eq!(content("b.test", "/"), "site b");
    assert_eq!(content("unknown.test", "/"), "site b");
    assert_eq!(content("a.test", "/b/index.html?q"), "site b");
    let (status, head, _) = got(at, &get("a.test", "/b/"));
    assert!(
        status == 200 && head.contains("\r\nx-site: a\r\n") && head.contains("\r\nx-both: route\r\n"),
        "{head}"
    );
    // RFC 6797 §7.2.
    assert!(!head.contains("strict-transport-security"), "{head}");
    assert_eq!(got(at, &get("a.test", "/bad")).0, 404);
    let (status, head, _) = got(at, &get("a.test", "/b/old/page?x=1"));
    assert!(status == 301 && head.contains("\r\nlocation: /new/page?x=1\r\n"), "{head}");
    let (status, head, _) = got(at, &get("a.test", "/b/exact"));
    assert!(status == 308 && head.contains("\r\nlocation: https://b.test/\r\n"), "{head}");
    assert_eq!(got(at, &get("a.test", "/b/exact/")).0, 308);
    assert_eq!(got(at, &get("a.test", "/b/exact/more")).0, 404);
    // HTTP/1.0 needs no host (RFC 9112 §3.2).
    assert_eq!(got(at, "GET / HTTP/1.0\r\n\r\n").2, "site b");
    assert_eq!(got(at, "GET / HTTP/1.1\r\n\r\n").0, 400);
    assert_eq!(got(at, "GET / HTTP/1.1\r\nhost: :80\r\n\r\n").0, 400);
    assert_eq!(got(at, "GET / HTTP/1.1\r\nhost: a.test\r\nhost: b.test\r\n\r\n").0, 400);
    assert_eq!(got(at, "GET http://a.test/ HTTP/1.1\r\nhost: b.test\r\n\r\n").2, "site a");
}

#[test]
fn an_exact_route_comes_before_an_equal_path() {
    let route = |more: &str| format!("[[site.route]]\npath = '/x'\n{more}\n");
    let (exact, below) = (route("exact = true\nredirect = '/exact'"), route("redirect = '/below'"));
    for routes in [format!("{exact}{below}"), format!("{below}{exact}")] {
        let running = Running::start(&format!("{PLAIN}[[site]]\n{routes}"));
        for (path, location) in [("/x", "/exact"), ("/x/", "/exact"), ("/x/y", "/below")] {
            let head = got(&running.addrs[0], &get("a.test", path)).1;
            assert!(head.contains(&format!("\r\nlocation: {location}\r\n")), "{path}: {head}");
        }
    }
}

#[test]
fn unknown_hosts_are_misdirected_without_a_default_site() {
    let running = Running::start(&format!(
        "{PLAIN}[[site]]\nhosts = 'a.test'\ndirectory = 'a'\n[[site]]\nhosts = 'b.test'\ndirectory = 'b'\n"
    ));
    assert_eq!(got(&running.addrs[0], &get("c.test", "/")).0, 421);
    assert_eq!(got(&running.addrs[0], "GET / HTTP/1.0\r\n\r\n").0, 421);
}

#[test]
fn each_site_has_its_certificate_and_others_answer_421() {
    let files = |name: &str| {
        format!(
            "[[site]]\nhosts = '{name}.test'\ndirectory = '{name}'\nhsts = true\ncertificate = {{ chain = '{name}.pem', key = '{name}.key' }}\n"
        )
    };
    let mut running = Running::start(&format!("{TLS}{}{}", files("a"), files("b")));
    let mut a = running.tls("a.test", "a").unwrap();
    let (head, content) = ask(&mut a, &get("a.test", "/"));
    assert_eq!(content, "site a");
    assert!(head.contains("\r\nstrict-transport-security: max-age=31536000\r\n"), "{head}");
    // The certificate of this connection is not for that host (RFC 9110 §15.5.20).
    assert!(ask(&mut a, &get("b.test", "/")).0.starts_with("http/1.1 421 "));
    assert_eq!(ask(&mut running.tls("b.test", "b").unwrap(), &get("b.test", "/")).1, "site b");
    running.tls("c.test", "a").unwrap_err();
    // One certificate for both: browsers then ask on one connection.
    certify(running.dir.path(), "a", &["a.test", "b.test"]);
    let text = running.text();
    assert_eq!(running.reload(&text), "configuration reloaded");
    let mut both = running.tls("a.test", "a").unwrap();
    assert_eq!(ask(&mut both, &get("b.test", "/")).1, "site b");
}

#[test]
fn a_reload_changes_sites_and_drops_no_request() {
    let text = |dir: &str| format!("{PLAIN}[[site]]\ndirectory = '{dir}'\n");
    let mut running = Running::start(&text("a"));
    // One response is under way: more than sockets hold.
    let long = "x".repeat(32 << 20);
    std::fs::write(running.dir.path().join("a/long"), &long).unwrap();
    let mut slow = TcpStream::connect(&running.addrs[0]).unwrap();
    slow.write_all(get("a.test", "/long").as_bytes()).unwrap();
    slow.read_exact(&mut [0; 1]).unwrap();
    let mut kept = TcpStream::connect(&running.addrs[0]).unwrap();
    assert_eq!(ask(&mut kept, &get("a.test", "/")).1, "site a");
    for round in 0..20 {
        let next = if round % 2 == 0 { "b" } else { "a" };
        // Requests are asked while the file is read.
        running.signal(Signal::HUP);
        ask(&mut kept, &get("a.test", "/"));
        assert_eq!(running.line(), "configuration reloaded");
        assert_eq!(running.reload(&text(next)), "configuration reloaded");
        // The same connection meets the new site.
        assert_eq!(ask(&mut kept, &get("a.test", "/")).1, format!("site {next}"));
    }
    // The first byte was read above.
    let (head, content) = response(&mut slow);
    assert!(head.starts_with("ttp/1.1 200 ") && content == long, "{head}");
    assert_eq!(running.end(), "served 42 requests on 2 connections");
}

#[test]
fn a_faulty_file_leaves_the_old_sites_and_says_all_errors() {
    let mut running = Running::start(&format!("{PLAIN}[[site]]\ndirectory = 'a'\n"));
    let said = running.reload(&format!("{PLAIN}[limits]\nidel = '1 s'\n[[site]]\ndirectory = 1\n"));
    assert!(
        said.starts_with("configuration not reloaded: ")
            && said.contains("serve.toml:5:1: `idel` is not a key"),
        "{said}"
    );
    let said: Vec<String> = (0..5).map(|_| running.line()).collect();
    assert!(said[2].contains("serve.toml:7:13: `directory` is a string, not a number"), "{said:?}");
    assert_eq!(got(&running.addrs[0], &get("a.test", "/")).2, "site a");
    // The second pass: all that cannot be opened.
    let said = running.reload(&format!(
        "{PLAIN}[[listen]]\naddress = '192.0.2.1:1'\n[[site]]\ndirectory = '/nowhere'\ncertificate = {{ chain = 'a.pem', key = 'b.key' }}\n"
    ));
    assert!(said.contains("serve.toml:7:13: the root /nowhere cannot be opened"), "{said}");
    let said: Vec<String> = (0..5).map(|_| running.line()).collect();
    assert!(said[2].contains("serve.toml:8:25: the key in "), "{said:?}");
    assert_eq!(got(&running.addrs[0], &get("a.test", "/")).2, "site a");
}

#[test]
fn a_directory_that_is_gone_is_told_at_a_reload() {
    let text = format!("{PLAIN}[[site]]\ndirectory = 'a'\n");
    let mut running = Running::start(&text);
    std::fs::remove_dir_all(running.path("a")).unwrap();
    let said = running.reload(&text);
    assert!(said.starts_with("configuration not reloaded: ") && said.contains("cannot be opened"), "{said}");
}

#[test]
fn the_start_tells_which_certificates_nobody_has_signed() {
    let running = Running::start(&format!(
        "{TLS}[[site]]\nhosts = 'a.test'\ndirectory = 'a'\ncertificate = {{ chain = 'a.pem', key = 'a.key' }}\n\
         [[site]]\nhosts = 'b.test'\ndirectory = 'b'\ncertificate = 'self-signed'\n"
    ));
    let told: Vec<(bool, bool)> = running
        .hello
        .iter()
        .filter(|line| line.contains(": certificate "))
        .map(|line| (line.starts_with("b.test: "), line.contains("self-signed")))
        .collect();
    assert_eq!(told, [(false, false), (true, true)], "{:?}", running.hello);
}

#[test]
fn listeners_that_stay_are_kept_and_others_end() {
    let site = "[[site]]\nhosts = 'a.test'\ndirectory = 'a'\ncertificate = 'self-signed'\n";
    let mut running = Running::start(&format!("{PLAIN}{site}"));
    let mut kept = TcpStream::connect(&running.addrs[0]).unwrap();
    ask(&mut kept, &get("a.test", "/"));
    let (free, _reserved) = reserved();
    let second = format!("[[listen]]\naddress = '{free}'\nplaintext = true\n");
    assert_eq!(running.reload(&format!("{PLAIN}{second}{site}")), "configuration reloaded");
    assert_eq!(got(&free.to_string(), &get("a.test", "/")).2, "site a");
    let redirect = format!("[[listen]]\naddress = '{free}'\nredirect-to-https = true\nhttps-port = 8443\n");
    assert_eq!(running.reload(&format!("{PLAIN}{redirect}{site}")), "configuration reloaded");
    let (status, head, _) = got(&free.to_string(), &get("a.test:80", "/x?y"));
    assert!(status == 308 && head.contains("\r\nlocation: https://a.test:8443/x?y\r\n"), "{head}");
    // RFC 9112 §3.2.4: the whole server has no path.
    let (status, head, _) = got(&free.to_string(), "OPTIONS * HTTP/1.1\r\nhost: a.test\r\n\r\n");
    assert!(status == 308 && head.contains("\r\nlocation: https://a.test:8443/\r\n"), "{head}");
    let mut idle = TcpStream::connect(free).unwrap();
    ask(&mut idle, &get("a.test", "/"));
    assert_eq!(running.reload(&format!("{PLAIN}{site}")), "configuration reloaded");
    // The connection ends in order: nothing more comes.
    assert_eq!(idle.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(ask(&mut kept, &get("a.test", "/")).1, "site a");
    // The same socket is for TLS from now on, and for cleartext again.
    let site = site.replace("'self-signed'", "{ chain = 'a.pem', key = 'a.key' }");
    assert_eq!(running.reload(&format!("{TLS}{site}")), "configuration reloaded");
    assert_eq!(ask(&mut running.tls("a.test", "a").unwrap(), &get("a.test", "/")).1, "site a");
    assert_eq!(running.reload(&format!("{PLAIN}{site}")), "configuration reloaded");
    assert_eq!(got(&running.addrs[0], &get("a.test", "/")).2, "site a");
}

#[test]
fn a_certificate_whose_file_changes_is_presented() {
    let mut running = Running::start(&format!(
        "certificate-check = '1 s'\n{TLS}[[site]]\nhosts = 'a.test'\ndirectory = 'a'\ncertificate = {{ chain = 'a.pem', key = 'a.key' }}\n"
    ));
    let before = running.certificate("a");
    let mut open = running.tls("a.test", "a").unwrap();
    std::fs::write(running.dir.path().join("a.key"), "damaged").unwrap();
    assert!(running.line().starts_with("certificate not reloaded: "));
    for _ in 0..2 {
        running.line();
    }
    certify(running.dir.path(), "a", &["a.test"]);
    // A look between the two files finds a key that does not fit.
    while running.line() != "certificate reloaded" {}
    assert_ne!(running.certificate("a"), before);
    assert_eq!(ask(&mut running.tls("a.test", "a").unwrap(), &get("a.test", "/")).1, "site a");
    assert_eq!(ask(&mut open, &get("a.test", "/")).1, "site a");
}

#[test]
fn a_certificate_that_stays_damaged_is_told_of_once() {
    let site = |name: &str| {
        format!(
            "[[site]]\nhosts = '{name}.test'\ndirectory = '{name}'\ncertificate = {{ chain = '{name}.both', key = '{name}.both' }}\n"
        )
    };
    let dir = directory(&format!("certificate-check = '1 s'\n{TLS}{}{}", site("a"), site("b")));
    renew(dir.path(), "a");
    renew(dir.path(), "b");
    let mut running = Running::of(command(dir.path()).spawn().unwrap(), dir);
    std::fs::write(running.path("a.both"), "damaged").unwrap();
    assert!(running.line().starts_with("certificate not reloaded: "));
    // The rest of the complaint shows the line of the file.
    for _ in 0..2 {
        running.line();
    }
    // The one before stays.
    assert_eq!(ask(&mut running.tls("a.test", "a").unwrap(), &get("a.test", "/")).1, "site a");
    // The look that finds this one finds the other still damaged.
    renew(running.dir.path(), "b");
    assert_eq!(running.line(), "certificate reloaded");
    assert_eq!(ask(&mut running.tls("b.test", "b").unwrap(), &get("b.test", "/")).1, "site b");
    // Another fault is told of.
    std::fs::remove_file(running.path("a.both")).unwrap();
    assert!(running.line().starts_with("certificate not reloaded: "));
}

#[test]
fn sessions_of_a_replaced_certificate_are_not_resumed() {
    let mut running = Running::start(&format!(
        "{TLS}[[site]]\nhosts = 'a.test'\ndirectory = 'a'\ncertificate = {{ chain = 'a.pem', key = 'a.key' }}\n"
    ));
    certify(running.dir.path(), "next", &["a.test"]);
    let config = Arc::new(running.trusting(&["a", "next"]));
    let kind = |running: &Running| {
        let mut stream = running.tls_of("a.test", &config).unwrap();
        // The session comes before the response.
        assert_eq!(ask(&mut stream, &get("a.test", "/")).1, "site a");
        stream.conn.handshake_kind().unwrap()
    };
    assert_eq!(kind(&running), HandshakeKind::Full);
    assert_eq!(kind(&running), HandshakeKind::Resumed);
    let text = running.text();
    assert_eq!(running.reload(&text), "configuration reloaded");
    assert_eq!(kind(&running), HandshakeKind::Resumed);
    for file in ["pem", "key"] {
        std::fs::rename(running.path(&format!("next.{file}")), running.path(&format!("a.{file}"))).unwrap();
    }
    assert_eq!(running.reload(&text), "configuration reloaded");
    assert_eq!(kind(&running), HandshakeKind::Full);
}

#[test]
fn only_an_authority_alone_gets_its_own_certificate() {
    let running = Running::start(&format!(
        "{TLS}[[site]]\nhosts = 'a.test'\ndirectory = 'a'\ncertificate = {{ chain = 'a.pem', key = 'a.key' }}\n"
    ));
    let mut config = running.trusting(&["a"]);
    // RFC 8737 §3: a client that offers more is none.
    config.alpn_protocols = vec![b"acme-tls/1".to_vec(), b"http/1.1".to_vec()];
    let mut stream = running.tls_of("a.test", &config.clone().into()).unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(ask(&mut stream, &get("a.test", "/")).1, "site a");
    config.alpn_protocols.truncate(1);
    // No name is being checked.
    running.tls_of("a.test", &config.into()).unwrap_err();
}

#[test]
fn a_reload_changes_when_certificates_are_looked_at() {
    let text = |check: &str| {
        format!(
            "certificate-check = '{check}'\n{TLS}[[site]]\nhosts = 'a.test'\ndirectory = 'a'\ncertificate = {{ chain = 'a.both', key = 'a.both' }}\n"
        )
    };
    let dir = directory(&text("1 h"));
    renew(dir.path(), "a");
    let mut running = Running::of(command(dir.path()).spawn().unwrap(), dir);
    assert_eq!(running.reload(&text("1 s")), "configuration reloaded");
    renew(running.dir.path(), "a");
    assert_eq!(running.line(), "certificate reloaded");
}

#[test]
fn limits_of_a_reload_count_for_new_connections() {
    let text = |limit: &str| format!("{PLAIN}[limits]\nheader-list = '{limit}'\n[[site]]\ndirectory = 'a'\n");
    let mut running = Running::start(&text("64 KiB"));
    let long = format!("GET / HTTP/1.1\r\nhost: a.test\r\nx: {}\r\n\r\n", "y".repeat(20_000));
    assert_eq!(got(&running.addrs[0], &long).0, 200);
    assert_eq!(running.reload(&text("8 KiB")), "configuration reloaded");
    assert_eq!(got(&running.addrs[0], &long).0, 431);
}

#[test]
fn sockets_of_a_supervisor_are_used_and_it_is_told() {
    let text = "[[listen]]\nsocket = 'web'\nplaintext = true\n[[site]]\ndirectory = 'a'\n";
    let dir = directory(text);
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap().to_string();
    let notified = UnixDatagram::bind(dir.path().join("notify")).unwrap();
    let inner = command(dir.path());
    let mut child = Command::new("sh");
    // The socket becomes descriptor 3, of the process that has this number (sd_listen_fds(3)).
    child.args(["-c", "exec 3<&0 </dev/null; LISTEN_PID=$$ exec \"$@\"", "sh"]);
    child.arg(inner.get_program()).args(inner.get_args());
    child.env(SERVED, dir.path().join("serve.toml")).env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "web");
    child.env("NOTIFY_SOCKET", dir.path().join("notify"));
    child.stdin(Stdio::from(OwnedFd::from(socket))).stdout(Stdio::piped());
    let mut running = Running::of(child.spawn().unwrap(), dir);
    assert_eq!(running.addrs, std::slice::from_ref(&addr));
    assert_eq!(got(&addr, &get("a.test", "/")).2, "site a");
    let mut told = [0; 256];
    let mut next = || {
        let read = notified.recv(&mut told).unwrap();
        String::from_utf8_lossy(&told[..read]).into_owned()
    };
    assert_eq!(next().trim_end(), "READY=1");
    assert_eq!(running.reload(text), "configuration reloaded");
    assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(next().trim_end(), "READY=1");
    let other = running.reload(&text.replace("'web'", "'wed'"));
    assert!(other.contains("the supervisor has no socket `wed`: did you mean `web`?"), "{other}");
    for _ in 0..2 {
        running.line();
    }
    running.end();
    assert!(
        next().starts_with("RELOADING=1")
            && next().trim_end() == "READY=1"
            && next().trim_end() == "STOPPING=1"
    );
}

#[test]
fn metrics_name_directories_and_origins_also_after_a_reload() {
    let (free, _reserved) = reserved();
    let text = |rest: &str| format!("metrics = '{free}'\n{PLAIN}[[site]]\ndefault = true\n{rest}\n");
    let mut running = Running::start(&text("directory = 'a'"));
    let metrics = || got(&free.to_string(), &get("localhost", "/metrics")).2;
    assert_eq!(got(&running.addrs[0], &get("a.test", "/")).0, 200);
    let directory = running.dir.path().join("a").display().to_string();
    let shown = metrics();
    for line in [
        "marcato_web_requests_begun_total 1".to_owned(),
        format!("marcato_web_files_misses_total{{directory=\"{directory}\"}} 1"),
    ] {
        assert!(shown.lines().any(|other| other == line), "{line}: {shown}");
    }
    // The directory goes on, with its files in memory.
    assert_eq!(running.reload(&text("directory = 'a'\nhsts = true")), "configuration reloaded");
    assert_eq!(got(&running.addrs[0], &get("a.test", "/")).0, 200);
    let (shown, hit) = (metrics(), format!("marcato_web_files_hits_total{{directory=\"{directory}\"}} 1"));
    assert!(shown.lines().any(|other| other == hit), "{shown}");
    assert_eq!(running.reload(&text("origin = 'http://127.0.0.1:9'")), "configuration reloaded");
    let shown = metrics();
    let line =
        "marcato_web_upstream_healthy{origin=\"http://127.0.0.1:9\",upstream=\"http://127.0.0.1:9\"} 1";
    assert!(shown.lines().any(|other| other == line) && !shown.contains(&directory), "{shown}");
    let said = running.reload(&format!("{PLAIN}[[site]]\ndefault = true\ndirectory = 'a'\n"));
    assert!(said.ends_with("`metrics` and `watch` change when the server is started again"), "{said}");
    running.reload(&text("directory = 'a'"));
    assert_eq!(running.reload(&text("directory = 'b'")), "configuration reloaded");
    let said = running.reload(&format!("watch = true\n{}", text("directory = 'b'")));
    assert!(said.ends_with("`metrics` and `watch` change when the server is started again"), "{said}");
    // What serves has them in use, so that another server cannot.
    let again = said_at_the_start(&text("directory = 'a'"));
    assert!(again.contains(&format!("cannot serve metrics at {free}: ")), "{again}");
}

#[test]
fn metrics_count_what_is_compressed() {
    let (free, _reserved) = reserved();
    let running = Running::start(&format!("metrics = '{free}'\n{PLAIN}[[site]]\ndirectory = 'a'\n"));
    std::fs::write(running.path("a/long.html"), "word ".repeat(1000)).unwrap();
    assert!(zipped(&running.addrs[0], "/long.html").contains("\r\ncontent-encoding: gzip\r\n"));
    let shown = got(&free.to_string(), &get("localhost", "/metrics")).2;
    let line = "marcato_web_compressed_responses_total{coding=\"gzip\"} 1";
    assert!(shown.lines().any(|other| other == line), "{shown}");
}

/// What a server says that cannot begin.
fn said_at_the_start(text: &str) -> String {
    let dir = directory(text);
    String::from_utf8(command(dir.path()).output().unwrap().stdout).unwrap()
}

#[test]
fn the_last_connections_are_shown_if_asked_for() {
    let site = format!("{PLAIN}[[site]]\ndefault = true\ndirectory = 'a'\n");
    let running = Running::start(&format!("watch = true\n{site}"));
    assert_eq!(got(&running.addrs[0], &get("a.test", "/?<secret>")).0, 400);
    assert_eq!(got(&running.addrs[0], &get("a.test", "/?shown")).0, 200);
    let page = |running: &Running| got(&running.addrs[0], &get(&running.addrs[0], "/.marcato/"));
    let (status, head, content) = page(&running);
    assert!(status == 200 && head.contains("content-security-policy: default-src 'none'"), "{head}");
    assert!(content.contains("/?shown") && content.contains("<svg"), "{content}");
    assert_eq!(got(&running.addrs[0], &get("a.test", "/.marcato/")).0, 404);
    assert_eq!(page(&Running::start(&site)).0, 404);
}

#[test]
fn rates_are_limited_if_asked_for_also_by_a_reload() {
    let site = format!("{PLAIN}[[site]]\ndefault = true\ndirectory = 'a'\n");
    let rates = "[rates]\nrequests = { per-second = 1, burst = 3 }\n";
    let mut running = Running::start(&site);
    let statuses = |running: &Running| {
        let mut stream = TcpStream::connect(&running.addrs[0]).unwrap();
        let mut statuses: Vec<u16> = Vec::new();
        // One may come back each second, so there are enough of them however slow this is.
        while statuses.len() < 200 && statuses.last() != Some(&429) {
            let (head, _) = ask(&mut stream, &get("a.test", "/"));
            statuses.push(head.split(' ').nth(1).unwrap().parse().unwrap());
        }
        statuses
    };
    assert_eq!(statuses(&running), [200; 200]);
    assert_eq!(running.reload(&format!("{site}{rates}")), "configuration reloaded");
    let limited = statuses(&running);
    assert!(limited.len() > 3 && limited.last() == Some(&429), "{limited:?}");
    let trusted = format!("{site}{rates}trusted = '127.0.0.1'\n");
    assert_eq!(running.reload(&trusted), "configuration reloaded");
    assert_eq!(statuses(&running), [200; 200]);
}

/// Head of the response to a request that accepts gzip.
fn zipped(addr: &str, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: a.test\r\naccept-encoding: gzip\r\n\r\n");
    response(&mut {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    })
    .0
}

#[test]
fn directories_are_compressed_and_origins_on_demand() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = origin.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in origin.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut request = Vec::new();
                let mut byte = [0];
                while stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    request.push(byte[0]);
                    if request.ends_with(b"\r\n\r\n") {
                        request.clear();
                        let head =
                            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 20000\r\n\r\n";
                        let response = [head.as_bytes(), &[b'x'; 20_000]].concat();
                        stream.write_all(&response).unwrap();
                    }
                }
            });
        }
    });
    let text = format!(
        "compression = true
{PLAIN}
[[site]]
hosts = 'a.test'
directory = 'a'
[[site.route]]
path = '/plain'
directory = 'a'
strip-prefix = true
compress = false
[[site.route]]
path = '/kept'
directory = 'a'
strip-prefix = true
headers = {{ Cache-Control = 'no-transform' }}
[[site.route]]
path = '/origin'
origin = 'http://{to}'
[[site.route]]
path = '/asked'
origin = 'http://{to}'
compress = true
"
    );
    let mut running = Running::start(&text);
    std::fs::write(running.dir.path().join("a/page.html"), "page ".repeat(2000)).unwrap();
    let at = running.addrs[0].clone();
    let compressed = || {
        ["/page.html", "/plain/page.html", "/kept/page.html", "/origin", "/asked"]
            .map(|path| zipped(&at, path).contains("\r\ncontent-encoding: gzip\r\n"))
    };
    assert_eq!(compressed(), [true, false, false, true, true]);
    assert!(zipped(&at, "/origin").contains("\r\nvary: accept-encoding\r\n"));
    assert_eq!(running.reload(&text.replacen("compression = true", "", 1)), "configuration reloaded");
    assert_eq!(compressed(), [true, false, false, false, true]);
    assert!(!zipped(&at, "/origin").contains("vary"));
    assert_eq!(running.reload(&text.replacen("true", "false", 1)), "configuration reloaded");
    assert_eq!(compressed(), [false, false, false, false, true]);
}
