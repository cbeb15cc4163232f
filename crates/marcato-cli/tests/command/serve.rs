//! `marcato serve` as a process: files, the log, and its end.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::TcpSocket;

/// Server that is killed if a test fails.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    addr: String,
    /// Lines before the address.
    hello: Vec<String>,
    _site: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts a server of a directory.
    fn start(arguments: &[&str]) -> Self {
        let site = tempfile::tempdir().unwrap();
        std::fs::write(site.path().join("index.html"), "<h1>first</h1>").unwrap();
        let directory = site.path().to_str().unwrap().to_owned();
        Self::of(&directory, arguments, site)
    }

    fn of(site: &str, arguments: &[&str], kept: TempDir) -> Self {
        let mut all = vec![site, "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        Self::with(&all, kept)
    }

    fn with(arguments: &[&str], kept: TempDir) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_marcato"))
            .arg("serve")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut hello = Vec::new();
        let addr = loop {
            let line = lines.next().unwrap().unwrap();
            if let Some(url) = line.strip_prefix("listening on ") {
                break url.rsplit('/').next().unwrap().to_owned();
            }
            hello.push(line);
        };
        Self { child, lines, addr, hello, _site: kept }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }
}

/// Response to a request of HTTP/1.1.
fn get(addr: &str) -> String {
    get_path(addr, "/")
}

fn get_path(addr: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn an_origin_is_served_through_another() {
    let origin = Running::start(&["--plaintext"]);
    let to = format!("--to=http://{}", origin.addr);
    let proxy = Running::of(&to, &["--plaintext", "--quiet"], tempfile::tempdir().unwrap());
    let response = get(&proxy.addr);
    assert!(
        response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("<h1>first</h1>"),
        "{response}"
    );
    assert!(response.contains("\r\nvia: "), "{response}");
    drop(origin);
    assert!(get(&proxy.addr).starts_with("HTTP/1.1 502 "));
}

#[test]
fn files_are_served_and_logged_until_a_signal() {
    let mut running = Running::start(&["--plaintext"]);
    let response = get(&running.addr);
    assert!(
        response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("<h1>first</h1>"),
        "{response}"
    );
    let logged = running.line();
    assert!(
        logged.contains("method=GET uri=http://localhost/ ") && logged.contains("status=200 bytes=14 "),
        "{logged}"
    );
    running.signal(Signal::TERM);
    assert!(running.line().starts_with("ending: "));
    assert_eq!(running.line(), "served 1 requests on 1 connections");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
}

#[test]
fn operators_see_metrics_and_the_last_connections_if_they_ask() {
    let running = Running::start(&["--plaintext", "--metrics", "127.0.0.1:0", "--watch"]);
    let metrics = running.hello.iter().find_map(|line| line.strip_prefix("metrics at http://")).unwrap();
    let (addr, path) = metrics.split_once('/').unwrap();
    get_path(&running.addr, "/?of=mine");
    let shown = get_path(addr, &format!("/{path}"));
    assert!(shown.contains("\nmarcato_web_requests_begun_total 1\n"), "{shown}");
    assert!(get_path(&running.addr, "/.marcato/").contains("/?of=mine"));
    let without = Running::start(&["--plaintext"]);
    assert!(get_path(&without.addr, "/.marcato/").starts_with("HTTP/1.1 404 "));
}

#[test]
fn a_certificate_is_read_again_at_sighup() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let write = || {
        let identity = marcato_net::Identity::self_signed("localhost").unwrap();
        std::fs::write(&cert, identity.chain_pem()).unwrap();
        std::fs::write(&key, identity.key_pem()).unwrap();
    };
    write();
    let arguments = ["--cert", cert.to_str().unwrap(), "--key", key.to_str().unwrap()];
    let mut running = Running::start(&arguments);
    write();
    running.signal(Signal::HUP);
    assert_eq!(running.line(), "certificate reloaded");
    std::fs::write(&cert, "damaged").unwrap();
    running.signal(Signal::HUP);
    assert!(running.line().starts_with("certificate not reloaded: "));
    // The one before is still presented.
    TcpStream::connect(&running.addr).unwrap();
    running.signal(Signal::INT);
    assert!(running.line().starts_with("ending: "));
}

#[test]
fn a_configuration_is_served_checked_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for site in ["a", "b"] {
        std::fs::create_dir(path(site)).unwrap();
        std::fs::write(path(site) + "/index.html", format!("site {site}")).unwrap();
    }
    let file = path("serve.toml");
    let write = |site: &str, more: &str| {
        let listen = "[[listen]]\naddress = '127.0.0.1:0'\nplaintext = true\n";
        std::fs::write(&file, format!("{listen}[[site]]\ndirectory = '{site}'\n{more}")).unwrap();
    };
    let check = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
        let output = command.args(["serve", "--config", &file, "--check"]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    write("a", "");
    assert_eq!(check().0, Some(0));
    let mut running = Running::with(&["--config", &file], tempfile::tempdir().unwrap());
    assert!(get(&running.addr).ends_with("site a"));
    assert!(running.line().contains("status=200"));
    write("b", "");
    running.signal(Signal::HUP);
    assert_eq!(running.line(), "configuration reloaded");
    assert!(get(&running.addr).ends_with("site b"));
    // All errors are told at once, each with its place.
    write("b", "[limits]\nidel = '1 s'\nstall = 1\n");
    let (code, error) = check();
    assert!(
        code == Some(2) && error.contains("serve.toml:7:1: `idel`") && error.contains("serve.toml:8:9: "),
        "{code:?} {error}"
    );
}

#[test]
fn an_error_names_the_directory_address_or_file() {
    for (arguments, part) in [
        (&["/nowhere/at/all"][..], "/nowhere/at/all"),
        (&[".", "--listen", "192.0.2.1:1"], "192.0.2.1:1"),
        (&[".", "--cert", "a.pem", "--key", "b.pem"], "a.pem"),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_marcato")).arg("serve").args(arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(part), "{error}");
    }
}

/// Socket whose address nothing listens at. As long as it is kept, only one who names the address can listen
/// there: no other test has it by chance.
fn reserved() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

#[test]
fn addresses_need_neither_scheme_nor_number() {
    let origin = Running::start(&["--plaintext"]);
    let to = format!("--to={}", origin.addr);
    let reserved = reserved();
    let port = reserved.local_addr().unwrap().port();
    for listen in [format!(":{port}"), "localhost:0".to_owned(), ":0".to_owned()] {
        let arguments = ["--listen", &listen, &to, "--plaintext", "--quiet"];
        let proxy = Running::with(&arguments, tempfile::tempdir().unwrap());
        let port = proxy.addr.rsplit(':').next().unwrap();
        let response = get(&format!("localhost:{port}"));
        assert!(response.ends_with("<h1>first</h1>"), "{listen}: {response}");
    }
}

#[test]
fn a_command_without_a_source_says_which_there_are() {
    let said = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_marcato")).arg("serve").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = said(&[]);
    assert_eq!(code, Some(2));
    for part in ["give a directory", "--to URL", "--config FILE", "Usage: marcato serve"] {
        assert!(error.contains(part), "{error}");
    }
    for listen in ["8o80", "nowhere.invalid:80", "1.2.3.4:99999"] {
        let (code, error) = said(&[".", "--listen", listen]);
        assert!(code == Some(2) && error.contains("localhost:8080"), "{error}");
    }
}

#[test]
fn the_reason_of_a_502_is_on_standard_error_as_asked() {
    let reserved = reserved();
    let port = reserved.local_addr().unwrap().port();
    let said = |arguments: &[&str]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_marcato"))
            .args(["serve", "--listen=127.0.0.1:0", "--plaintext", &format!("--to=localhost:{port}")])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url =
            lines.find_map(|line| line.unwrap().strip_prefix("listening on http://").map(str::to_owned));
        assert!(get(&url.unwrap()).starts_with("HTTP/1.1 502 "));
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        // The log is read to its end, so that the server can write it.
        lines.for_each(drop);
        String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap()
    };
    let origin = format!("http://localhost:{port}");
    let text = said(&[]);
    assert!(text.contains(" WARN ") && text.contains(&origin) && text.contains("refused"), "{text}");
    let json = said(&["--log-format=json"]);
    let line: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!((&line["level"], &line["origin"]), (&"WARN".into(), &origin.into()), "{line}");
    assert_eq!(said(&["--log-level=error"]), "");
}

#[test]
fn printed_options_are_a_file_that_serves_the_same() {
    let site = tempfile::tempdir().unwrap();
    std::fs::write(site.path().join("index.html"), "printed").unwrap();
    let marcato = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_marcato")).arg("serve").args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let directory = site.path().to_str().unwrap();
    let printed = marcato(&[directory, "--listen", "127.0.0.1:0", "--plaintext", "--print-config"]);
    assert!(
        printed.contains("\nhttp3 = true\n") && printed.contains("\n[limits]\nconnections = 10000\n"),
        "{printed}"
    );
    let file = site.path().join("serve.toml");
    std::fs::write(&file, &printed).unwrap();
    let file = file.to_str().unwrap().to_owned();
    assert_eq!(marcato(&["--config", &file, "--print-config"]), printed);
    let running = Running::with(&["--config", &file], site);
    assert!(get(&running.addr).ends_with("printed"));
}
