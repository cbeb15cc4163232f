//! `marcato lab proxy` as a process, with its HTTP API.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Time that only a failure takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Running proxies. They are killed with the value.
struct Running {
    child: Child,
    lines: Vec<String>,
}

impl Running {
    /// Starts proxies, which print this number of lines.
    fn start(arguments: &[&str], lines: usize) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
        command.args(["lab", "proxy"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines().take(lines);
        let said: Vec<String> = said.map(Result::unwrap).collect();
        assert_eq!(said.len(), lines, "{said:?}");
        Self { child, lines: said }
    }

    /// Starts a proxy before this target, with a link.
    fn before(target: SocketAddr, rest: &[&str]) -> Self {
        let target = target.to_string();
        let listen = if target.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" };
        Self::start(&[&["--listen", listen, "--to", &target], rest].concat(), 1)
    }

    /// Starts the API alone.
    fn api() -> (Self, Api) {
        let running = Self::start(&["--api", "127.0.0.1:0"], 1);
        let api = Api(running.lines[0].strip_prefix("api http://").unwrap().parse().unwrap());
        (running, api)
    }

    /// Address of a proxy, by its line.
    fn addr(&self, line: usize) -> SocketAddr {
        self.lines[line].split(' ').nth(2).unwrap().parse().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Client of the API.
#[derive(Clone, Copy)]
struct Api(SocketAddr);

impl Api {
    /// Returns the status and the body of the response to a request.
    fn raw(self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = patient(self.0);
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let status = response.split(' ').nth(1).unwrap().parse().unwrap();
        (status, response.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    fn send(self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, text) = self.raw(method, path, "", &body);
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    fn get(self, path: &str) -> (u16, Value) {
        self.send("GET", path, &Value::Null)
    }

    fn post(self, path: &str, body: &Value) -> (u16, Value) {
        self.send("POST", path, body)
    }

    /// Makes a proxy before a target, and returns its address.
    fn proxy(self, name: &str, target: SocketAddr) -> SocketAddr {
        let asked = json!({ "name": name, "listen": "127.0.0.1:0", "upstream": target.to_string() });
        let (status, made) = self.post("/proxies", &asked);
        assert_eq!(status, 201, "{made}");
        made["listen"].as_str().unwrap().parse().unwrap()
    }

    /// Adds a toxic to the proxy `p`.
    fn poison(self, kind: &str, stream: &str, attributes: &Value) {
        let asked = json!({ "type": kind, "stream": stream, "attributes": attributes });
        let (status, made) = self.post("/proxies/p/toxics", &asked);
        assert_eq!(status, 200, "{made}");
    }
}

fn patient(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Server that sends back what it reads, and then `bye` after its client's end.
fn echo(addr: &str) -> SocketAddr {
    let listener = TcpListener::bind(addr).unwrap();
    let own = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream?;
                std::io::copy(&mut stream.try_clone()?, &mut stream)?;
                stream.write_all(b"bye")
            });
        }
    });
    own
}

/// Sends bytes, and reads as many.
fn round_trip(stream: &mut TcpStream, bytes: &[u8]) -> Duration {
    let begun = Instant::now();
    stream.write_all(bytes).unwrap();
    let mut answer = vec![0; bytes.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, bytes);
    begun.elapsed()
}

/// Returns true if a connection was reset, and not just ended.
fn is_reset(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 16]) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_proxied_connection_has_the_rate_and_delay_of_its_link() {
    let proxy = Running::before(echo("127.0.0.1:0"), &["--link", "8 Mbit/s, 20 ms"]);
    let mut stream = patient(proxy.addr(0));
    assert!(round_trip(&mut stream, b"ping") >= Duration::from_millis(40));
    // 100 kB with the headers of their segments take 103.6 ms each way, one behind the other.
    let bytes: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let mut sender = stream.try_clone().unwrap();
    let sent = bytes.clone();
    let begun = Instant::now();
    let sending = std::thread::spawn(move || {
        sender.write_all(&sent).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let mut came = Vec::new();
    stream.read_to_end(&mut came).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(143), "{:?}", begun.elapsed());
    sending.join().unwrap();
    // The end of one direction left the other one open.
    let (echoed, bye) = came.split_at(bytes.len());
    assert!(echoed == bytes && bye == b"bye", "{} bytes", came.len());
}

#[test]
fn proxies_of_ipv6_carry_both_protocols() {
    let proxy = Running::before(echo("[::1]:0"), &["--link", "1 ms"]);
    assert!(proxy.addr(0).is_ipv6());
    round_trip(&mut patient(proxy.addr(0)), b"six");
    let server = UdpSocket::bind("[::1]:0").unwrap();
    let proxy = Running::before(server.local_addr().unwrap(), &["--udp", "--link", "1 ms"]);
    let client = UdpSocket::bind("[::1]:0").unwrap();
    client.connect(proxy.addr(0)).unwrap();
    let mut datagram = [0; 64];
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    client.send(b"six").unwrap();
    let (length, from) = server.recv_from(&mut datagram).unwrap();
    server.send_to(&datagram[..length], from).unwrap();
    assert_eq!(client.recv(&mut datagram).unwrap(), 3);
}

#[test]
fn a_target_that_refuses_resets_its_client() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_running, api) = Running::api();
    let addr = api.proxy("p", closed);
    assert!(is_reset(&mut patient(addr)));
    assert_eq!(api.get("/proxies/p/counters").1["unreachable"], 1);
}

#[test]
fn a_slow_reader_stops_its_sender_within_bounds() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_running, api) = Running::api();
    let addr = api.proxy("p", listener.local_addr().unwrap());
    // All that is sent waits in the proxy for an hour.
    api.poison("latency", "downstream", &json!({ "latency": 3_600_000 }));
    let _client = patient(addr);
    let (mut server, _) = listener.accept().unwrap();
    // Until the system and the proxy take no more.
    server.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let (mut sent, piece) = (0, vec![0; 65_536]);
    loop {
        match server.write(&piece) {
            Ok(length) => sent += length,
            // A pause is the end only if the proxy may be full.
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                if sent >= 4 << 20 {
                    break;
                }
            }
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 64 << 20, "the proxy holds {sent} bytes");
    }
}

#[test]
fn a_killed_proxy_leaves_its_port_and_ends_its_connections() {
    let target = echo("127.0.0.1:0");
    let mut proxy = Running::before(target, &[]);
    let addr = proxy.addr(0);
    let mut stream = patient(addr);
    round_trip(&mut stream, b"alive");
    proxy.child.kill().unwrap();
    proxy.child.wait().unwrap();
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    let again = Running::start(&["--listen", &addr.to_string(), "--to", &target.to_string()], 1);
    round_trip(&mut patient(again.addr(0)), b"again");
}

#[test]
fn an_interrupted_proxy_prints_what_it_carried() {
    let mut proxy = Running::before(echo("127.0.0.1:0"), &[]);
    round_trip(&mut patient(proxy.addr(0)), &[0; 5000]);
    let process = rustix::process::Pid::from_child(&proxy.child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert!(proxy.child.wait().unwrap().success());
    let mut said = String::new();
    proxy.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let row: Vec<&str> = said.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row, ["proxy", "tcp", "1", "0", "0", "5", "5", "0"], "{said}");
}

#[test]
fn datagrams_of_several_clients_pass_a_link_that_duplicates() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let link = ["--udp", "--link", "5 ms, up duplicate 100 %"];
    let proxy = Running::before(server.local_addr().unwrap(), &link);
    let clients = [(); 3].map(|()| {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.connect(proxy.addr(0)).unwrap();
        client
    });
    let mut datagram = [0; 64];
    for (number, client) in (0_u8..).zip(&clients) {
        let begun = Instant::now();
        client.send(&[number; 10]).unwrap();
        // Each comes twice, and each answer goes to its own client.
        for _ in 0..2 {
            let (length, from) = server.recv_from(&mut datagram).unwrap();
            assert_eq!(datagram[..length], [number; 10]);
            server.send_to(&[number], from).unwrap();
        }
        for _ in 0..2 {
            assert_eq!((client.recv(&mut datagram).unwrap(), datagram[0]), (1, number));
        }
        assert!(begun.elapsed() >= Duration::from_millis(10));
    }
}

#[test]
fn datagrams_that_a_toxic_loses_are_counted() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let (_running, api) = Running::api();
    let asked = json!({ "name": "p", "protocol": "udp", "upstream": server.local_addr().unwrap().to_string(),
        "toxics": [{ "type": "loss", "stream": "upstream", "attributes": { "share": 1.0 } }] });
    let (status, made) = api.post("/proxies", &asked);
    assert_eq!(status, 201, "{made}");
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(made["listen"].as_str().unwrap().parse::<SocketAddr>().unwrap()).unwrap();
    client.send(b"lost").unwrap();
    let begun = Instant::now();
    while api.get("/proxies/p/counters").1["discarded"] != 1 {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(api.send("DELETE", "/proxies/p/toxics/loss_upstream", &Value::Null).0, 204);
    client.send(b"kept").unwrap();
    let mut datagram = [0; 64];
    let (length, _) = server.recv_from(&mut datagram).unwrap();
    assert_eq!(&datagram[..length], b"kept");
    let (status, refused) = api.post("/proxies/p/toxics", &json!({ "type": "slicer" }));
    assert_eq!(status, 400, "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("a proxy of udp has no such toxic"), "{refused}");
}

#[test]
fn toxics_act_on_open_connections_until_they_are_removed() {
    let (_running, api) = Running::api();
    let mut stream = patient(api.proxy("p", echo("127.0.0.1:0")));
    round_trip(&mut stream, b"before");
    api.poison("latency", "downstream", &json!({ "latency": 150, "jitter": 0 }));
    assert!(round_trip(&mut stream, b"slow") >= Duration::from_millis(150));
    let (status, changed) =
        api.post("/proxies/p/toxics/latency_downstream", &json!({ "attributes": { "latency": 250 } }));
    assert_eq!((status, &changed["attributes"]), (200, &json!({ "latency": 250, "jitter": 0 })));
    assert!(round_trip(&mut stream, b"slower") >= Duration::from_millis(250));
    assert_eq!(api.post("/reset", &Value::Null).0, 204);
    assert_eq!(api.get("/proxies/p/toxics"), (200, json!([])));
    round_trip(&mut stream, b"after");
    // 40 kB at 100 kB in a second, less what may leave ahead of its time.
    api.poison("bandwidth", "upstream", &json!({ "rate": 100 }));
    assert!(round_trip(&mut stream, &[7; 40_000]) >= Duration::from_millis(350));
}

#[test]
fn limits_timeouts_and_resets_end_connections() {
    let (_running, api) = Running::api();
    let addr = api.proxy("p", echo("127.0.0.1:0"));
    api.poison("limit_data", "downstream", &json!({ "bytes": 3 }));
    let mut stream = patient(addr);
    stream.write_all(b"12345").unwrap();
    let mut came = Vec::new();
    // The system resets what was not read.
    let _ = stream.read_to_end(&mut came);
    assert_eq!(came, b"123");
    api.post("/reset", &Value::Null);
    api.poison("timeout", "upstream", &json!({ "timeout": 100 }));
    let (begun, mut stream) = (Instant::now(), patient(addr));
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    assert!(begun.elapsed() >= Duration::from_millis(100));
    api.post("/reset", &Value::Null);
    api.poison("reset_peer", "downstream", &json!({ "timeout": 50 }));
    let (begun, mut stream) = (Instant::now(), patient(addr));
    assert!(is_reset(&mut stream));
    assert!(begun.elapsed() >= Duration::from_millis(50));
    api.post("/reset", &Value::Null);
    api.poison("slow_close", "downstream", &json!({ "delay": 120 }));
    let mut stream = patient(addr);
    let begun = Instant::now();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut came = Vec::new();
    stream.read_to_end(&mut came).unwrap();
    assert!(came == b"bye" && begun.elapsed() >= Duration::from_millis(120), "{came:?}");
}

#[test]
fn a_disabled_proxy_refuses_until_it_is_enabled() {
    let (_running, api) = Running::api();
    let addr = api.proxy("p", echo("127.0.0.1:0"));
    let mut stream = patient(addr);
    round_trip(&mut stream, b"on");
    let (status, off) = api.post("/proxies/p", &json!({ "enabled": false }));
    assert_eq!((status, &off["enabled"]), (200, &json!(false)));
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    assert_eq!(TcpStream::connect(addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let (status, on) = api.post("/proxies/p", &json!({ "enabled": true }));
    assert_eq!((status, &on["listen"]), (200, &json!(addr.to_string())));
    round_trip(&mut patient(addr), b"on again");
    assert_eq!(api.send("DELETE", "/proxies/p", &Value::Null).0, 204);
    assert_eq!(TcpStream::connect(addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn the_api_answers_as_clients_of_toxiproxy_expect() {
    let (_running, api) = Running::api();
    let (status, version) = api.get("/version");
    assert!(status == 200 && version["version"].is_string(), "{version}");
    let target = echo("127.0.0.1:0");
    let addr = api.proxy("p", target);
    let proxy = json!({ "name": "p", "listen": addr.to_string(), "upstream": target.to_string(), "enabled": true, "toxics": [] });
    assert_eq!(api.get("/proxies"), (200, json!({ "p": proxy })));
    assert_eq!(api.get("/proxies/p"), (200, proxy));
    api.poison("latency", "upstream", &json!({ "latency": 5 }));
    let toxic = json!({ "name": "latency_upstream", "type": "latency", "stream": "upstream", "toxicity": 1.0,
        "attributes": { "latency": 5, "jitter": 0 } });
    assert_eq!(api.get("/proxies/p/toxics/latency_upstream"), (200, toxic.clone()));
    assert_eq!(api.get("/proxies/p").1["toxics"], json!([toxic]));
    let populated = json!([{ "name": "p", "listen": "127.0.0.1:0", "upstream": target.to_string() },
        { "name": "a b", "listen": "127.0.0.1:0", "upstream": target.to_string(), "enabled": false }]);
    let (status, made) = api.post("/populate", &populated);
    assert_eq!((status, made["proxies"].as_array().unwrap().len()), (201, 2), "{made}");
    assert_eq!(api.get("/proxies/a%20b").1["enabled"], json!(false));
    for (method, path, body, expected) in [
        ("GET", "/proxies/none", Value::Null, 404),
        ("POST", "/proxies", json!({ "name": "p", "upstream": "127.0.0.1:1" }), 409),
        ("POST", "/proxies", json!({ "name": "q" }), 400),
        ("POST", "/proxies", json!({ "name": "q", "upstream": "127.0.0.1:1", "link": "12 Mbps" }), 400),
        ("POST", "/proxies", json!({ "name": "q", "upstream": "127.0.0.1:1", "link": "loss 1 %" }), 400),
        (
            "POST",
            "/proxies",
            json!({ "name": "q", "upstream": "127.0.0.1:1", "listen": addr.to_string() }),
            201,
        ),
        // Clients in Go write `null` for what they do not set.
        (
            "POST",
            "/proxies",
            json!({ "name": "go", "upstream": "127.0.0.1:1", "listen": "", "toxics": null }),
            201,
        ),
        ("POST", "/proxies/p/toxics", json!({ "type": "timeout", "attributes": null }), 200),
        ("POST", "/proxies", json!([]), 400),
        ("POST", "/proxies/p/toxics", json!({ "type": "lag" }), 400),
        ("POST", "/proxies/p/toxics", json!({ "type": "loss", "attributes": { "share": 0.1 } }), 400),
        ("GET", "/proxies/p/toxics/none", Value::Null, 404),
        ("DELETE", "/proxies/none", Value::Null, 404),
        ("PUT", "/proxies", Value::Null, 405),
        ("GET", "/elsewhere", Value::Null, 404),
    ] {
        let (status, answer) = api.send(method, path, &body);
        assert_eq!(status, expected, "{method} {path} {body}: {answer}");
        assert!(
            status < 300 || answer["status"] == json!(expected) && answer["error"].is_string(),
            "{answer}"
        );
    }
    // The port of another proxy is taken.
    let taken = api.get("/proxies/q").1["listen"].clone();
    let (status, refused) =
        api.post("/proxies", &json!({ "name": "r", "upstream": "127.0.0.1:1", "listen": taken }));
    assert_eq!(status, 500, "{refused}");
    // Pages in a browser have no say.
    assert_eq!(api.raw("POST", "/reset", "Origin: http://example.com\r\n", "").0, 403);
    assert_eq!(api.raw("POST", "/reset", "User-Agent: Mozilla/5.0\r\n", "").0, 403);
    assert_eq!(api.raw("POST", "/proxies", "", &" ".repeat(2 << 20)).0, 400);
}

#[test]
fn proxies_of_a_file_and_wrong_arguments() {
    let directory = tempfile::tempdir().unwrap();
    let target = echo("127.0.0.1:0").to_string();
    let (json_file, toml_file) =
        (directory.path().join("proxies.json"), directory.path().join("proxies.toml"));
    let list = json!([{ "name": "a", "listen": "127.0.0.1:0", "upstream": target, "enabled": true },
        { "name": "b", "upstream": target, "link": "60 ms" }]);
    std::fs::write(&json_file, list.to_string()).unwrap();
    let proxies = Running::start(&["--file", json_file.to_str().unwrap()], 2);
    round_trip(&mut patient(proxies.addr(0)), b"a");
    assert!(round_trip(&mut patient(proxies.addr(1)), b"b") >= Duration::from_millis(120));
    std::fs::write(&toml_file, format!("[[proxy]]\nname = \"c\"\nto = \"{target}\"\nlink = \"1 ms\"\n"))
        .unwrap();
    let proxies = Running::start(&["--file", toml_file.to_str().unwrap(), "--api", "127.0.0.1:0"], 2);
    assert!(proxies.lines[0].starts_with("c tcp 127.0.0.1:") && proxies.lines[1].starts_with("api http://"));
    round_trip(&mut patient(proxies.addr(0)), b"c");

    std::fs::write(&json_file, r#"[{"name":"a","upstream":"127.0.0.1:1","link":"fast"}]"#).unwrap();
    for (arguments, message) in [
        (&[][..], "there is nothing to do: name --listen and --to, a --file, or an --api"),
        (&["--listen", "127.0.0.1:0"], "--to <ADDR>"),
        (&["--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--link", "codel"], "leave `codel` out"),
        (&["--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--loss", "1%"], "leave `loss` out"),
        (&["--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--link", "1 ms", "--link", "2 ms"], "one link"),
        (&["--listen", "192.0.2.1:9", "--to", "127.0.0.1:1"], "cannot listen on 192.0.2.1:9"),
        (&["--file", json_file.to_str().unwrap()], "proxies.json: link: `fast` is no piece of a link"),
        (&["--file", "/nonexistent"], "/nonexistent: No such file"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
        let ended = command.args(["lab", "proxy"]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(message), "{arguments:?}: {said}");
    }
}
