//! Lines of the server about requests, and about faults of its origins.

use std::thread;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};

use super::*;

/// Origin that reads a request and does this with its connection.
pub(crate) fn origin(mut answer: impl FnMut(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap());
        }
    });
    addr
}

/// Reads the head of a request.
fn head(stream: &mut TcpStream) -> Vec<u8> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    head
}

/// Origin that answers with these bytes.
pub(crate) fn saying(bytes: &'static [u8]) -> SocketAddr {
    origin(move |mut stream| {
        head(&mut stream);
        stream.write_all(bytes).unwrap();
    })
}

/// TLS of a server that presents this certificate.
fn presenting_chain(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Arc<ServerConfig> {
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config)
}

/// Origin whose certificate an authority has signed that nobody knows.
fn presenting() -> SocketAddr {
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "nobody");
    let key = rcgen::KeyPair::generate().unwrap();
    let chain = vec![params.self_signed(&key).unwrap().der().clone()];
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let config = presenting_chain(chain, key);
    origin(move |mut stream| {
        let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        // The client ends the handshake.
        while connection.is_handshaking() && connection.complete_io(&mut stream).is_ok() {}
    })
}

#[test]
fn each_fault_of_an_origin_is_told_with_its_reason() {
    // They are kept, so that their connections stay open.
    // Connections that stay open, without a word.
    let mut kept = Vec::new();
    let (refusing, _reserved) = reserved();
    let faults = [
        ("refused", format!("http://{refusing}"), 502, "Connection refused"),
        ("unknown", format!("https://localhost:{}", presenting().port()), 502, "UnknownIssuer"),
        ("malformed", format!("http://{}", saying(b"nonsense\r\n\r\n")), 502, "response is malformed"),
        (
            "lengths",
            format!(
                "http://{}",
                saying(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab")
            ),
            502,
            "content-length",
        ),
        ("closed", format!("http://{}", saying(b"")), 502, "connection broke before the response"),
        ("late", format!("http://{}", origin(move |stream| kept.push(stream))), 504, "response is late"),
    ];
    let mut text = PLAIN.to_owned();
    for (name, url, ..) in &faults {
        let timeout = if *name == "late" { "50 ms" } else { "60 s" };
        text += &format!(
            "[[origin]]\nname = '{name}'\nto = '{url}'\nretries = 0\nresponse-timeout = '{timeout}'\nca = 'b.pem'\n"
        );
        text += &format!("[[site]]\nhosts = '{name}.test'\norigin = '{name}'\n");
    }
    let (running, mut said) = Running::diagnosed(&text, "json");
    for (name, url, status, reason) in &faults {
        assert_eq!(got(&running.addrs[0], &get(&format!("{name}.test"), "/")).0, *status, "{name}");
        let line = said.next().unwrap().unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["level"], "WARN", "{line}");
        assert_eq!(line["origin"], url.as_str(), "{line}");
        assert_eq!(line["outcome"], status.to_string(), "{line}");
        assert!(line["message"].as_str().unwrap().contains(reason), "{line}");
    }
}

#[test]
fn warnings_name_the_keys_of_the_file() {
    // Connections that stay open after these bytes; without any, at once.
    let keeping = |bytes: &'static [u8]| {
        let mut kept = Vec::new();
        let addr = origin(move |mut stream| {
            if !bytes.is_empty() {
                head(&mut stream);
                stream.write_all(bytes).unwrap();
            }
            kept.push(stream);
        });
        addr.port()
    };
    let (tell, told) = std::sync::mpsc::channel();
    let mut kept = Vec::new();
    let busy = origin(move |mut stream| {
        tell.send(head(&mut stream)).unwrap();
        kept.push(stream);
    });
    // It closes the connection as the second request comes.
    let leaving = origin(|mut stream| {
        head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        head(&mut stream);
    });
    let many = saying(b"HTTP/1.1 200 OK\r\na: b\r\nc: d\r\n\r\n");
    let cut = keeping(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no");
    let faults = [
        ("late", format!("http://127.0.0.1:{}", keeping(b"")), vec![("response-timeout", "'50 ms'")]),
        ("mute", format!("https://127.0.0.1:{}", keeping(b"")), vec![("connect-timeout", "'50 ms'")]),
        ("many", format!("http://{many}"), vec![("response-head", "'1 KiB'"), ("response-fields", "1")]),
        ("cut", format!("http://127.0.0.1:{cut}"), vec![("body-idle-timeout", "'50 ms'")]),
        ("busy", format!("http://{busy}"), vec![("max-in-flight", "1")]),
        ("leaving", format!("http://{leaving}"), vec![("idle-timeout", "'60 s'")]),
    ];
    let mut text = PLAIN.to_owned();
    for (name, url, keys) in &faults {
        text += &format!("[[origin]]\nname = '{name}'\nto = '{url}'\nretries = 0\nca = 'b.pem'\n");
        keys.iter().for_each(|(key, value)| text += &format!("{key} = {value}\n"));
        text += &format!("[[site]]\nhosts = '{name}.test'\norigin = '{name}'\n");
    }
    let (running, mut said) = Running::diagnosed(&text, "json");
    let addr = &running.addrs[0];
    let mut busy = TcpStream::connect(addr).unwrap();
    busy.write_all(get("busy.test", "/").as_bytes()).unwrap();
    told.recv().unwrap();
    assert_eq!(got(addr, &get("leaving.test", "/")).2, "ok");
    for (name, url, keys) in &faults {
        let mut stream = TcpStream::connect(addr).unwrap();
        // Only a request of a method that is not idempotent is not sent again.
        let request = format!("POST / HTTP/1.1\r\nhost: {name}.test\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let line: serde_json::Value = serde_json::from_str(&said.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["origin"], url.as_str(), "{line}");
        let words = line["message"].as_str().unwrap().split('`').skip(1).step_by(2);
        assert!(words.eq(keys.iter().map(|(key, _)| *key)), "{line}");
    }
}

#[test]
fn a_fault_that_a_retry_repaired_is_told() {
    let (refusing, _reserved) = reserved();
    let working = saying(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let text = format!(
        "{PLAIN}[[origin]]\nname = 'o'\nto = ['http://{refusing}', 'http://{working}']\n[[site]]\norigin = 'o'\n"
    );
    let (running, mut said) = Running::diagnosed(&text, "json");
    assert_eq!(got(&running.addrs[0], &get("a.test", "/")).2, "ok");
    let line: serde_json::Value = serde_json::from_str(&said.next().unwrap().unwrap()).unwrap();
    assert_eq!(
        (&line["origin"], &line["outcome"]),
        (&format!("http://{refusing}").into(), &"retried".into()),
        "{line}"
    );
}

#[test]
fn a_flood_of_faults_is_told_in_few_lines_and_counted() {
    let (refusing, _reserved) = reserved();
    let url = format!("http://{refusing}");
    // Every request fails: none finds the upstream at rest.
    let passive = "passive = { failures = 1000000, rest = '1 s' }";
    let text = format!(
        "access-log = false\n{PLAIN}[[origin]]\nname = 'down'\nto = '{url}'\nretries = 0\n{passive}\n[[site]]\norigin = 'down'\n"
    );
    let (mut running, said) = Running::diagnosed(&text, "text");
    let mut stream = TcpStream::connect(&running.addrs[0]).unwrap();
    for _ in 0..200 {
        assert!(ask(&mut stream, &get("a.test", "/")).0.starts_with("http/1.1 502 "));
    }
    drop(stream);
    running.end();
    let lines: Vec<String> = said.map(Result::unwrap).filter(|line| line.contains(&url)).collect();
    // Five in 10 s, so that a machine would have to be very slow for more than these.
    assert!((5..100).contains(&lines.len()), "{} lines", lines.len());
    assert!(lines[0].contains(" WARN ") && lines[0].contains("outcome=\"502\""), "{}", lines[0]);
    let omitted = |line: &String| line.split("omitted=").nth(1).map_or(0, |it| it.parse::<usize>().unwrap());
    assert!(lines.iter().map(|line| 1 + omitted(line)).sum::<usize>() <= 200);
}

#[test]
fn libraries_tell_of_no_frames_when_faults_are_looked_for() {
    let (refusing, _reserved) = reserved();
    let text = format!("{PLAIN}[[site]]\norigin = 'http://{refusing}'\n");
    let (mut running, said) = Running::diagnosed(&text, "debug");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(&running.addrs[0]).await.unwrap();
        let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(async move { _ = connection.await });
        let request = http::Request::trace("http://a.test/").body(()).unwrap();
        assert_eq!(send.send_request(request, true).unwrap().0.await.unwrap().status(), 501);
    });
    // The connection ends with it.
    drop(runtime);
    running.end();
    let lines: Vec<serde_json::Value> =
        said.map_while(|line| serde_json::from_str(&line.unwrap()).ok()).collect();
    assert!(lines.iter().any(|line| line["message"] == "request rejected"), "{lines:?}");
    assert!(lines.iter().all(|line| line["target"].as_str().unwrap().starts_with("marcato")), "{lines:?}");
}

/// Waits until a file has this many lines.
fn lines_of(path: &Path, count: usize) -> Vec<String> {
    // Patience, which ends only a test that would hang.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while std::time::Instant::now() < end {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.matches('\n').count() >= count {
            return text.lines().map(str::to_owned).collect();
        }
        thread::yield_now();
    }
    panic!("{} has fewer than {count} lines", path.display());
}

#[test]
fn the_log_goes_to_a_file_that_is_opened_again_after_its_move() {
    let text = |log: &str| format!("{log}\n{PLAIN}[[site]]\ndirectory = 'a'\n");
    let log = "access-log = { format = 'json', file = 'access.log' }";
    let mut running = Running::start(&text(log));
    let path = running.path("access.log");
    let request =
        "GET /?first HTTP/1.1\r\nhost: a.test:81\r\nreferer: http://b.test/\r\nuser-agent: \"\u{e9}\r\n\r\n";
    got(&running.addrs[0], request);
    let line: serde_json::Value = serde_json::from_str(&lines_of(&path, 1)[0]).unwrap();
    for (key, expected) in [
        ("host", "a.test:81"),
        ("uri", "http://a.test:81/?first"),
        ("referer", "http://b.test/"),
        ("user_agent", "\"\u{e9}"),
        ("version", "HTTP/1.1"),
    ] {
        assert_eq!(line[key], expected, "{line}");
    }
    assert!(line["time"].as_str().unwrap().starts_with("20") && line["status"] == 200, "{line}");
    assert_eq!((&line["bytes"], &line["complete"]), (&6.into(), &true.into()), "{line}");
    for (round, signal) in [Signal::USR1, Signal::HUP].into_iter().enumerate() {
        std::fs::rename(&path, running.path(&format!("access.log.{round}"))).unwrap();
        running.signal(signal);
        let said = running.line();
        assert!(matches!(&*said, "access log reopened" | "configuration reloaded"), "{said}");
        got(&running.addrs[0], &get("a.test", &format!("/?round{round}")));
        let lines = lines_of(&path, 1);
        assert!(lines.len() == 1 && lines[0].contains(&format!("?round{round}")), "{lines:?}");
    }
    // A file that cannot be opened leaves the one before in place.
    let said = running.reload(&text("access-log = { file = 'none/access.log' }"));
    assert!(said.starts_with("configuration not reloaded: "), "{said}");
    for _ in 0..2 {
        running.line();
    }
    got(&running.addrs[0], &get("a.test", "/?last"));
    running.end();
    running.child.wait().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.lines().nth(1).is_some_and(|line| line.contains("?last")), "{text}");
}

#[test]
fn metrics_take_no_lines_from_the_log() {
    let (free, _reserved) = reserved();
    let running = Running::start(&format!(
        "metrics = '{free}'\naccess-log = {{ file = 'access.log' }}\n{PLAIN}[[site]]\ndirectory = 'a'\n"
    ));
    got(&running.addrs[0], &get("a.test", "/?counted"));
    assert!(lines_of(&running.path("access.log"), 1)[0].contains("/?counted"));
    assert!(got(&free.to_string(), &get("localhost", "/metrics")).2.contains("_requests_begun_total 1\n"));
}

#[test]
fn a_check_writes_no_log() {
    let dir =
        directory(&format!("access-log = {{ file = 'access.log' }}\n{PLAIN}[[site]]\ndirectory = 'a'\n"));
    let (log, source) = (dir.path().join("access.log"), Source::File(dir.path().join("serve.toml")));
    marcato_serve::check(&source).unwrap();
    assert!(!log.exists());
    std::fs::write(&log, "before\n").unwrap();
    marcato_serve::check(&source).unwrap();
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "before\n");
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    let error = marcato_serve::check(&source).unwrap_err().to_string();
    assert!(error.contains("access.log cannot be opened"), "{error}");
}

#[test]
fn logs_have_the_common_formats_too() {
    let text = |format: &str| {
        format!(
            "access-log = {{ format = '{format}', file = '{format}.log' }}\n{PLAIN}[[site]]\ndirectory = 'a'\n"
        )
    };
    let mut running = Running::start(&text("common"));
    let request = "GET /?q HTTP/1.1\r\nhost: a.test\r\nuser-agent: a \"b\"\r\n\r\n";
    got(&running.addrs[0], request);
    let line = &lines_of(&running.path("common.log"), 1)[0];
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    assert!(line.ends_with(" +0000] \"GET /?q HTTP/1.1\" 200 6"), "{line}");
    assert_eq!(running.reload(&text("combined")), "configuration reloaded");
    got(&running.addrs[0], request);
    let line = &lines_of(&running.path("combined.log"), 1)[0];
    assert!(line.ends_with(" \"GET /?q HTTP/1.1\" 200 6 \"-\" \"a \\\"b\\\"\""), "{line}");
}

/// Server whose log is a pipe, and the end of the pipe that is read.
fn logging_to_a_pipe() -> (Running, std::fs::File) {
    let text = format!("access-log = {{ file = 'pipe' }}\n{PLAIN}[[site]]\ndirectory = 'a'\n");
    let dir = directory(&text);
    let path = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Nobody waits for the other end once this one has both.
    let both = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let reader = std::fs::File::open(&path).unwrap();
    let running = Running::of(command(dir.path()).spawn().unwrap(), dir);
    drop(both);
    (running, reader)
}

#[test]
fn lines_that_wait_for_a_slow_file_are_written_at_the_end() {
    let (mut running, reader) = logging_to_a_pipe();
    // Far more than a pipe holds.
    const REQUESTS: usize = 100;
    let target = format!("/?{}", "x".repeat(4000));
    let mut stream = TcpStream::connect(&running.addrs[0]).unwrap();
    for _ in 0..REQUESTS {
        assert_eq!(ask(&mut stream, &get("a.test", &target)).1, "site a");
    }
    drop(stream);
    running.signal(Signal::TERM);
    assert!(running.line().starts_with("ending: "));
    // One byte at a time: a server that did not wait for its lines would be gone before.
    let text: Vec<u8> = BufReader::with_capacity(1, reader).bytes().map(Result::unwrap).collect();
    assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), REQUESTS);
    assert_eq!(running.line(), format!("served {REQUESTS} requests on 1 connections"));
}

#[test]
fn lines_that_nobody_reads_are_counted() {
    let (mut running, reader) = logging_to_a_pipe();
    // More than 10 000 lines wait, and what the pipe and a batch hold.
    const REQUESTS: usize = 12_000;
    const AT_ONCE: usize = 100;
    let mut stream = BufReader::new(TcpStream::connect(&running.addrs[0]).unwrap());
    let requests = get("a.test", "/").repeat(AT_ONCE);
    for _ in 0..REQUESTS / AT_ONCE {
        stream.get_mut().write_all(requests.as_bytes()).unwrap();
        for _ in 0..AT_ONCE {
            assert_eq!(response(&mut stream).1, "site a");
        }
    }
    drop(stream);
    running.signal(Signal::TERM);
    assert!(running.line().starts_with("ending: "));
    let read = BufReader::new(reader).lines().count();
    assert!(read < REQUESTS);
    let missing = REQUESTS - read;
    assert_eq!(
        running.line(),
        format!(
            "served {REQUESTS} requests on 1 connections; {missing} lines of the log are missing, because they were not read in time"
        )
    );
}

#[test]
fn a_reload_changes_the_keys_of_an_origin() {
    let origin = saying(b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 2\r\n\r\nok");
    let text = |fields: u32| {
        format!(
            "{PLAIN}[[origin]]\nname = 'o'\nto = 'http://{origin}'\nresponse-fields = {fields}\n[[site]]\norigin = 'o'\n"
        )
    };
    let mut running = Running::start(&text(1));
    assert_eq!(got(&running.addrs[0], &get("a.test", "/")).0, 502);
    assert_eq!(running.reload(&text(2)), "configuration reloaded");
    assert_eq!(got(&running.addrs[0], &get("a.test", "/")).2, "ok");
}

/// Origin of HTTP/1.1 over TLS that answers all requests with 200.
fn secure(identity: &Identity) -> SocketAddr {
    let (chain, key) = identity.parts();
    let config = presenting_chain(chain, key);
    origin(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
            head.push(byte[0]);
        }
        // A client that does not accept the certificate has gone.
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
    })
}

#[test]
fn a_reload_reads_the_authority_of_an_origin_again() {
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path(), "origin", &["localhost"]);
    let path = |kind: &str| dir.path().join(format!("origin.{kind}"));
    let port = secure(&Identity::from_pem_files(path("pem"), path("key")).unwrap()).port();
    let text = format!(
        "{PLAIN}[[origin]]\nname = 'o'\nto = 'https://localhost:{port}'\nretries = 0\nca = 'ca.pem'\n[[site]]\norigin = 'o'\n"
    );
    let served = directory(&text);
    std::fs::copy(served.path().join("b.pem"), served.path().join("ca.pem")).unwrap();
    let mut running = Running::of(command(served.path()).spawn().unwrap(), served);
    assert_eq!(got(&running.addrs[0], &get("a.test", "/")).0, 502);
    std::fs::copy(path("pem"), running.path("ca.pem")).unwrap();
    assert_eq!(running.reload(&text), "configuration reloaded");
    assert_eq!(got(&running.addrs[0], &get("a.test", "/")).2, "ok");
}
