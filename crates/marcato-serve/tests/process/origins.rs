//! Origins: Unix sockets, the choice of an upstream, and the PROXY protocol on both sides.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;

use marcato_web::{ProxyHeader, ProxyVersion};

use crate::versions::{Versions, tell, telling};
use crate::{PLAIN, Running, TLS, ask, get, got, response};

/// Server of `a.test` over TLS with this origin.
fn site(origin: &str) -> (Running, Versions) {
    let running = Running::start(&format!(
        "{TLS}\n[[site]]\nhosts = 'a.test'\ncertificate = {{ chain = 'a.pem', key = 'a.key' }}\n{origin}"
    ));
    let versions = Versions::of(&running, "a");
    (running, versions)
}

#[test]
fn an_origin_is_asked_over_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.sock");
    let (_running, client) = site(&format!("origin = 'unix:{}'", path.display()));
    assert_eq!(client.get("/").status, 502);
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || tell(&stream, &stream, ""));
        }
    });
    let told = client.get("/x?y");
    assert!(told.status == 200 && told.content.starts_with("get /x?y http/1.1\n"), "{told:?}");
    assert!(told.content.contains("\nhost: a.test\n"), "{told:?}");
    assert!(client.ask("POST", "/", &[], "body").content.ends_with("\nbody 4\n"));
}

/// Origins that tell their names, and an `[[origin]]` of them.
fn named(names: &'static [&'static str], keys: &str) -> String {
    let urls: Vec<String> = names.iter().map(|name| format!("'{}'", named_origin(name))).collect();
    format!("origin = 'app'\n[[origin]]\nname = 'app'\nto = [{}]\n{keys}", urls.join(", "))
}

fn named_origin(name: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || tell(&stream, &stream, &format!("{name}\n")));
        }
    });
    format!("http://{addr}")
}

const THREE: &[&str] = &["one", "two", "three"];

/// First line of a response's content.
fn first(content: &str) -> String {
    content.lines().next().unwrap().to_owned()
}

#[test]
fn paths_and_addresses_belong_to_an_upstream() {
    let (_running, client) = site(&named(THREE, "balance = 'path'"));
    let upstreams: Vec<String> =
        (0..24).map(|path| first(&client.get(&format!("/{path}")).content)).collect();
    let again: Vec<String> = (0..24).map(|path| first(&client.get(&format!("/{path}")).content)).collect();
    assert_eq!(upstreams, again);
    // By chance, all paths have the same upstream once in 10^11.
    assert!(upstreams.iter().any(|upstream| *upstream != upstreams[0]), "{upstreams:?}");
    let (_running, client) = site(&named(THREE, "balance = 'address'"));
    let upstreams: Vec<String> = (0..8).map(|path| first(&client.get(&format!("/{path}")).content)).collect();
    assert_eq!(upstreams, vec![upstreams[0].clone(); 8]);
}

#[test]
fn upstreams_take_turns() {
    let running = Running::start(&format!("{PLAIN}\n[[site]]\n{}", named(THREE, "balance = 'turns'")));
    let asked: Vec<String> = (0..6).map(|_| first(&got(&running.addrs[0], &get("a", "/")).2)).collect();
    assert_eq!(asked, ["one", "two", "three", "one", "two", "three"]);
}

#[test]
fn a_cookie_ties_a_client_to_its_upstream() {
    let running = Running::start(&format!(
        "{PLAIN}[[listen]]\naddress = '127.0.0.2:0'\n[[site]]\nhosts = 'a.test'\ncertificate = {{ chain = 'a.pem', key = 'a.key' }}\n{}",
        named(THREE, "balance = 'cookie'\ncookie = 'lb'")
    ));
    let ask =
        |cookie: &str| got(&running.addrs[0], &format!("GET / HTTP/1.1\r\nhost: a.test\r\n{cookie}\r\n"));
    let cookie_of = |head: &str| {
        let field = head.lines().find_map(|line| line.strip_prefix("set-cookie: lb=")).map(str::to_owned);
        field.map(|field| {
            field.split_once(';').map(|(value, rest)| (value.to_owned(), rest.to_owned())).unwrap()
        })
    };
    let (_, head, content) = ask("");
    let (value, attributes) = cookie_of(&head).unwrap();
    assert_eq!(attributes, " path=/; httponly; samesite=lax");
    for _ in 0..6 {
        let (_, head, again) = ask(&format!("cookie: a=b; lb={value}; c=d\r\n"));
        assert_eq!((first(&again), cookie_of(&head)), (first(&content), None));
    }
    // A value that is no upstream's is replaced.
    for wrong in ["0123456789abcdef", "x", ""] {
        assert!(cookie_of(&ask(&format!("cookie: lb={wrong}\r\n")).1).is_some());
    }
    let mut secure = Versions::of(&running, "a");
    secure.addr = running.addrs[1].parse().unwrap();
    let tied = secure.get_with("/", &[("cookie", &format!("lb={value}"))]);
    assert_eq!((first(&tied.content), tied.field("set-cookie")), (first(&content), None));
    let mut stream = running.tls_at(1, "a.test", "a");
    let (head, _) = crate::ask(&mut stream, &get("a.test", "/"));
    assert!(cookie_of(&head).unwrap().1.ends_with("; secure"), "{head}");
}

#[test]
fn a_cookie_leads_elsewhere_once_its_upstream_is_down() {
    let down = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = down.local_addr().unwrap();
    // It accepts nothing and tells nobody: the first that asks is refused.
    drop(down);
    let origin = format!(
        "origin = 'app'\n[[origin]]\nname = 'app'\nto = ['http://{at}', '{}']\nbalance = 'cookie'",
        named_origin("up")
    );
    let running = Running::start(&format!("{PLAIN}\n[[site]]\n{origin}"));
    let (status, head, content) = got(&running.addrs[0], &get("a", "/"));
    assert!(status == 200 && first(&content) == "up" && head.contains("\r\nset-cookie: upstream="), "{head}");
}

/// Header of a client for both versions of the PROXY protocol.
fn headers(client: SocketAddr) -> [Vec<u8>; 2] {
    let to = "198.51.100.1:443".parse().unwrap();
    [ProxyVersion::V1, ProxyVersion::V2].map(|version| ProxyHeader::Client(client).write(version, to))
}

#[test]
fn a_balancer_tells_of_the_client() {
    let origin = telling();
    let text = |networks: &str| {
        format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nplaintext = true\nproxy-protocol = {networks}\n\
             [[listen]]\naddress = '127.0.0.2:0'\nproxy-protocol = {networks}\n[[site]]\nhosts = 'a.test'\n\
             default = true\ncertificate = {{ chain = 'a.pem', key = 'a.key' }}\norigin = '{origin}'\n\
             access = {{ deny = '203.0.113.0/24' }}"
        )
    };
    let running = Running::start(&text("['127.0.0.0/8', '::1']"));
    for header in headers("192.0.2.9:50000".parse().unwrap()) {
        let mut stream = TcpStream::connect(&running.addrs[0]).unwrap();
        stream.write_all(&header).unwrap();
        let (head, content) = ask(&mut stream, &get("a.test", "/"));
        assert!(
            head.starts_with("http/1.1 200") && content.contains("\nx-forwarded-for: 192.0.2.9\n"),
            "{content}"
        );
        // With TLS behind it, in one piece.
        let mut stream = TcpStream::connect(&running.addrs[1]).unwrap();
        stream.write_all(&header).unwrap();
        let mut stream = running.tls_over(stream, "a.test", "a");
        let (head, content) = ask(&mut stream, &get("a.test", "/"));
        assert!(
            head.starts_with("http/1.1 200") && content.contains("\nx-forwarded-for: 192.0.2.9\n"),
            "{content}"
        );
        // HTTP/3 is not told of.
        assert!(!head.contains("alt-svc"), "{head}");
    }
    // Rules of access see that client.
    for header in headers("203.0.113.1:50000".parse().unwrap()) {
        let mut stream = TcpStream::connect(&running.addrs[0]).unwrap();
        stream.write_all(&header).unwrap();
        assert!(ask(&mut stream, &get("a.test", "/")).0.starts_with("http/1.1 403"));
    }
    // The balancer itself.
    let mut stream = TcpStream::connect(&running.addrs[0]).unwrap();
    stream.write_all(b"PROXY UNKNOWN\r\n").unwrap();
    assert!(ask(&mut stream, &get("a.test", "/")).1.contains("\nx-forwarded-for: 127.0.0.1\n"));
    // Nothing is served without a header.
    let mut stream = TcpStream::connect(&running.addrs[0]).unwrap();
    stream.write_all(get("a.test", "/").as_bytes()).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

#[test]
fn strangers_tell_of_no_client_and_balancers_are_reloaded() {
    let text = |networks: &str| {
        format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nplaintext = true\nproxy-protocol = '{networks}'\n[[site]]\norigin = '{}'",
            telling()
        )
    };
    let mut running = Running::start(&text("192.0.2.0/24"));
    assert!(got(&running.addrs[0], &get("a", "/")).2.contains("\nx-forwarded-for: 127.0.0.1\n"));
    let mut stream = TcpStream::connect(&running.addrs[0]).unwrap();
    stream.write_all(b"PROXY TCP4 192.0.2.9 198.51.100.1 50000 443\r\n").unwrap();
    assert!(response(&mut stream).0.starts_with("http/1.1 400"));
    // The listener keeps its socket, and the next connection needs a header.
    assert_eq!(running.reload(&text("127.0.0.0/8")), "configuration reloaded");
    let mut stream = TcpStream::connect(&running.addrs[0]).unwrap();
    stream.write_all(b"PROXY TCP4 192.0.2.9 198.51.100.1 50000 443\r\n").unwrap();
    assert!(ask(&mut stream, &get("a", "/")).1.contains("\nx-forwarded-for: 192.0.2.9\n"));
}

/// Origin that tells of the header that each connection begins with.
fn introduced() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let stream = stream.unwrap();
                let mut reader = BufReader::new(&stream);
                let (header, len) = ProxyHeader::parse(reader.fill_buf().unwrap()).unwrap().unwrap();
                reader.consume(len);
                tell(reader, &stream, &format!("{header:?}\n"))
            });
        }
    });
    format!("http://{addr}")
}

#[test]
fn origins_are_told_of_the_client_of_each_connection() {
    for version in ["v1", "v2"] {
        let running = Running::start(&format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nplaintext = true\nproxy-protocol = '127.0.0.1'\n[[site]]\norigin = 'app'\n\
             [[origin]]\nname = 'app'\nto = '{}'\nproxy-protocol = '{version}'",
            introduced()
        ));
        // Each request has a connection of its own, also those of one client.
        for client in ["192.0.2.9:50000", "[2001:db8::7]:50001"] {
            let mut stream = TcpStream::connect(&running.addrs[0]).unwrap();
            stream.write_all(&headers(client.parse().unwrap())[1]).unwrap();
            for _ in 0..2 {
                let (_, content) = ask(&mut stream, &get("a", "/"));
                assert_eq!(first(&content), format!("Client({client})"), "{version}");
            }
        }
    }
}
