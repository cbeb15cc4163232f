//! Handling of requests: files to try, pages for errors, fields, rewrites, bounds of bodies, and who is served.

use std::io::Write as _;
use std::net::TcpStream;

use crate::versions::{Versions, telling};
use crate::{PLAIN, Running, TLS, ask, get, got, response};

/// Server of the site `a.test` with these lines, over TLS.
fn site(lines: &str) -> (Running, Versions) {
    let running = Running::start(&format!(
        "{TLS}\n[[site]]\nhosts = 'a.test'\ncertificate = {{ chain = 'a.pem', key = 'a.key' }}\n{lines}"
    ));
    let versions = Versions::of(&running, "a");
    (running, versions)
}

#[test]
fn files_that_are_absent_are_tried_at_other_paths() {
    let (running, client) = site(
        "directory = 'a'\ntry-files = ['{path}.html', '/index.html']\n[[site.route]]\npath = '/app'\n\
         strip-prefix = true\ndirectory = 'b'\ntry-files = '/index.html'",
    );
    std::fs::write(running.path("a/about.html"), "about").unwrap();
    assert_eq!(client.get("/about").told(), (200, "about"));
    assert_eq!(client.get("/about/").told(), (200, "about"));
    assert_eq!(client.get("/deep/link?x=1").told(), (200, "site a"));
    assert_eq!(client.get("/deep/link").field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(client.get("/app/deep/link").told(), (200, "site b"));
    assert_eq!(client.get_with("/deep", &[("range", "bytes=0-3")]).told(), (206, "site"));
    // The root is not left, and other methods are no files.
    assert_eq!(client.get("/%2e%2e/b/index.html").status, 400);
    assert_eq!(client.ask("POST", "/deep", &[], "x").status, 405);
}

#[test]
fn pages_for_errors_replace_the_content_alone() {
    let origin = telling();
    let lines = |intercept: bool| {
        format!(
            "directory = 'a'\nerror-pages = {{ 404 = 'gone.html', 5xx = 'down.json' }}\n\
             intercept-errors = {intercept}\nheaders = {{ x-site = 'a' }}\n[[site.route]]\npath = '/status'\n\
             origin = '{origin}'\n[[site.route]]\npath = '/down'\norigin = 'http://127.0.0.1:1'"
        )
    };
    let running = |intercept: bool| {
        let text = format!(
            "{TLS}\n[[site]]\nhosts = 'a.test'\ncertificate = {{ chain = 'a.pem', key = 'a.key' }}\n{}",
            lines(intercept)
        );
        let dir = crate::directory(&text);
        std::fs::write(dir.path().join("gone.html"), "<p>gone").unwrap();
        std::fs::write(dir.path().join("down.json"), "{}").unwrap();
        Running::of(crate::command(dir.path()).spawn().unwrap(), dir)
    };
    let server = running(false);
    let client = Versions::of(&server, "a");
    let gone = client.get("/none");
    assert_eq!(gone.told(), (404, "<p>gone"));
    assert_eq!(gone.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!((gone.field("content-length"), gone.field("x-site")), (Some("7"), Some("a")));
    assert_eq!(client.ask("HEAD", "/none", &[], "").told(), (404, ""));
    let down = client.get("/down");
    assert_eq!((down.told(), down.field("content-type")), ((502, "{}"), Some("application/json")));
    // An error of the origin is its own, unless it is asked for.
    assert!(client.get("/status/404").content.starts_with("get /status/404"));
    let server = running(true);
    let client = Versions::of(&server, "a");
    assert_eq!(client.get("/status/404").told(), (404, "<p>gone"));
    assert_eq!(client.get("/status/503").told(), (503, "{}"));
    assert!(client.get("/status/403").content.starts_with("get /status/403"));
}

#[test]
fn pages_for_errors_are_read_again_with_the_file() {
    let text = format!("{PLAIN}\n[[site]]\ndirectory = 'a'\n");
    let mut running = Running::start(&text);
    assert_eq!(got(&running.addrs[0], &get("a", "/none")).2, "not found\n");
    let with_pages = format!("{text}error-pages = {{ 4xx = 'page.txt' }}");
    let said = running.reload(&with_pages);
    let problem = "serve.toml:7:23: ";
    assert!(said.starts_with("configuration not reloaded: ") && said.contains(problem), "{said}");
    // The rest of the complaint shows the line of the file.
    for _ in 0..2 {
        running.line();
    }
    for page in ["one", "two"] {
        std::fs::write(running.path("page.txt"), page).unwrap();
        assert_eq!(running.reload(&with_pages), "configuration reloaded");
        assert_eq!(got(&running.addrs[0], &get("a", "/none")).2, page);
    }
}

#[test]
fn fields_are_set_and_removed_in_both_directions() {
    let (_running, client) = site(&format!(
        "origin = '{}'\nheaders = {{ x-site = 'a', x-both = 'site' }}\nremove-headers = ['Server']\n\
         request-headers = {{ x-key = 'site', x-user = 'nobody' }}\nremove-request-headers = ['cookie', 'x-key']\n\
         [[site.route]]\npath = '/route'\norigin = '{0}'\nheaders = {{ x-both = 'route' }}\n\
         remove-headers = ['x-site', 'x-origin']\nrequest-headers = {{ x-key = 'route' }}\n\
         remove-request-headers = 'x-user'",
        telling()
    ));
    let fields = [("cookie", "a=b"), ("x-key", "client"), ("x-key", "again"), ("x-user", "root")];
    let reply = client.get_with("/", &fields);
    assert_eq!((reply.field("server"), reply.field("x-site")), (None, Some("a")));
    assert_eq!((reply.field("x-both"), reply.field("x-origin")), (Some("site"), Some("yes")));
    let told: Vec<&str> = reply.content.lines().filter(|line| line.starts_with("x-")).collect();
    assert!(told.contains(&"x-key: site") && told.contains(&"x-user: nobody"), "{told:?}");
    assert!(!reply.content.contains("client") && !reply.content.contains("cookie"), "{}", reply.content);
    let reply = client.get_with("/route", &fields);
    assert_eq!((reply.field("x-both"), reply.field("x-site")), (Some("route"), None));
    assert_eq!(reply.field("x-origin"), None);
    assert!(reply.content.contains("x-key: route") && !reply.content.contains("x-user"), "{}", reply.content);
}

#[test]
fn a_client_cannot_name_a_set_field_in_connection() {
    let running = Running::start(&format!(
        "{PLAIN}\n[[site]]\norigin = '{}'\nrequest-headers = {{ x-user = 'ann' }}",
        telling()
    ));
    let fields =
        "connection: x-user, X-Other\r\nconnection: keep-alive ,X-User\r\nx-other: 1\r\nx-user: root\r\n";
    let (head, content) = ask(
        &mut TcpStream::connect(&running.addrs[0]).unwrap(),
        &format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n"),
    );
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(content.contains("x-user: ann") && !content.contains("x-other"), "{content}");
}

#[test]
fn rewrites_change_the_path_that_the_content_sees() {
    let (_running, client) = site(&format!(
        "directory = 'a'\n[[site.route]]\npath = '/api'\nrewrite = '/v2/x'\norigin = '{0}'\n\
         [[site.route]]\npath = '/one'\nexact = true\nrewrite = '/index.html'\ndirectory = 'b'\n\
         [[site.route]]\npath = '/bare'\nrewrite = '/'\norigin = '{0}'",
        telling()
    ));
    let asked = |path: &str| client.get(path).content.lines().next().unwrap().to_owned();
    assert_eq!(asked("/api/a%20b//c?d=/e"), "get /v2/x/a%20b//c?d=/e http/1.1");
    assert_eq!(asked("/api"), "get /v2/x http/1.1");
    assert_eq!(asked("/api?q"), "get /v2/x?q http/1.1");
    assert_eq!(asked("/bare"), "get / http/1.1");
    assert_eq!(asked("/bare//x"), "get //x http/1.1");
    assert_eq!(client.get("/one").told(), (200, "site b"));
    assert_eq!(client.get("/one/more").status, 404);
    // The proxy still takes no dot segments.
    assert_eq!(client.get("/api/%2e%2e/x").status, 400);
}

#[test]
fn bodies_beyond_their_limit_are_refused() {
    let (running, client) = site(&format!(
        "origin = '{0}'\nbody-limit = '1 KiB'\n[[site.route]]\npath = '/more'\norigin = '{0}'\nbody-limit = '2 KiB'",
        telling()
    ));
    let (fits, beyond) = ("x".repeat(1024), "x".repeat(1025));
    assert!(client.ask("POST", "/", &[], &fits).content.ends_with("\nbody 1024\n"));
    assert_eq!(client.ask("POST", "/", &[], &beyond).status, 413);
    assert!(client.ask("POST", "/more", &[], &beyond).content.ends_with("\nbody 1025\n"));
    assert_eq!(client.ask("POST", "/more", &[], &"x".repeat(2049)).status, 413);
    // A length that is not announced is counted.
    for (len, status) in [(1024, "http/1.1 200"), (1025, "http/1.1 413")] {
        let mut stream = running.tls("a.test", "a").unwrap();
        let head = "POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n";
        let body = format!("{:x}\r\n{}\r\n0\r\n\r\n", len, "x".repeat(len));
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        assert!(response(&mut stream).0.starts_with(status), "{len}");
    }
}

/// Credentials of Ann, whose password is `secret`, and of someone else.
const ANN: (&str, &str) = ("authorization", "Basic YW5uOnNlY3JldA==");
const WRONG: (&str, &str) = ("authorization", "Basic YW5uOndyb25n");

/// Rule that asks for Ann's password.
fn ann() -> String {
    format!("access = {{ users = {{ ann = '{}' }}, realm = 'inner' }}", bcrypt::hash("secret", 4).unwrap())
}

#[test]
fn a_password_is_asked_for_before_anything_else() {
    let (_running, client) = site(&format!(
        "directory = 'a'\n{ann}\n[[site.route]]\npath = '/open'\ndirectory = 'b'\nstrip-prefix = true\naccess = {{}}\n\
         [[site.route]]\npath = '/api'\norigin = '{origin}'\nbody-limit = '0 B'\nremove-request-headers = 'authorization'\n\
         [[site.route]]\npath = '/old'\nredirect = '/new'",
        ann = ann(),
        origin = telling()
    ));
    for path in ["/", "/none", "/api", "/old", "/..", "/%2e%2e/x"] {
        for fields in [&[][..], &[WRONG]] {
            let reply = client.get_with(path, fields);
            assert_eq!(reply.status, 401, "{path}");
            let challenge = "Basic realm=\"inner\", charset=\"UTF-8\"";
            assert_eq!(reply.field("www-authenticate"), Some(challenge), "{path}");
        }
    }
    assert_eq!(client.ask("POST", "/api", &[], "too long").status, 401);
    assert_eq!(client.get_with("/", &[ANN]).told(), (200, "site a"));
    assert_eq!(client.get_with("/old", &[ANN]).status, 308);
    let told = client.get_with("/api", &[ANN]);
    assert!(told.status == 200 && !told.content.contains("authorization"), "{told:?}");
    assert_eq!(client.ask("POST", "/api", &[ANN], "too long").status, 413);
    assert_eq!(client.get("/open/").told(), (200, "site b"));
}

#[test]
fn no_other_path_leads_past_a_rule() {
    let (running, client) = site(&format!(
        "directory = '.'\ntry-files = ['{{path}}.html', '/x/inner.html']\n\
         [[site.route]]\npath = '/private'\ndirectory = '.'\n{ann}\n\
         [[site.route]]\npath = '/about.html'\nexact = true\ndirectory = '.'\n{ann}\n\
         [[site.route]]\npath = '/x'\ndirectory = '.'\n{ann}\n\
         [[site.route]]\npath = '/alias'\nrewrite = '/private'\ndirectory = '.'\n\
         [[site.route]]\npath = '/strip'\nstrip-prefix = true\ndirectory = '.'\n\
         [[site.route]]\npath = '/other'\nrewrite = '/private'\ndirectory = 'a'\n\
         [[site.route]]\npath = '/try'\nstrip-prefix = true\ndirectory = '.'\ntry-files = '/private/index.html'",
        ann = ann()
    ));
    std::fs::create_dir_all(running.path("private")).unwrap();
    std::fs::create_dir_all(running.path("x")).unwrap();
    std::fs::create_dir_all(running.path("a/private")).unwrap();
    for (file, content) in [
        ("private/index.html", "private"),
        ("about.html", "about"),
        ("x/inner.html", "inner"),
        ("a/private/index.html", "other"),
    ] {
        std::fs::write(running.path(file), content).unwrap();
    }
    for path in [
        "/private/index.html",
        "/%70rivate/index.html",
        "//private/index.html",
        "/./private/index.html",
        "/private%2findex.html",
        "/x/%2e./private/index.html",
        "/a/../private/index.html",
        "/alias/index.html",
        "/strip/private/index.html",
        "/strip/%70rivate/index.html",
        "/about.html",
        "/%61bout.html",
        "/strip/about.html",
    ] {
        assert_eq!(client.get(path).status, 401, "{path}");
    }
    // A path that is tried is not under the rule of the request.
    for path in ["/about", "/none", "/try/none"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    assert_eq!(client.get("/a/").told(), (200, "site a"));
    // Another content below the same path has rules of its own.
    assert_eq!(client.get("/other/index.html").told(), (200, "other"));
    assert_eq!(client.get_with("/alias/index.html", &[ANN]).told(), (200, "private"));
    assert_eq!(client.get_with("/%70rivate/index.html", &[ANN]).told(), (200, "private"));
}

#[test]
fn networks_are_refused_by_the_address_that_proxies_tell() {
    let lines =
        "directory = 'a'\naccess = { allow = ['198.51.100.0/24', '127.0.0.1'], deny = '198.51.100.7' }";
    let (_running, client) = site(lines);
    assert_eq!(client.get("/").status, 200);
    // No proxy is trusted: what the client says of itself counts for nothing.
    assert_eq!(client.get_with("/", &[("x-forwarded-for", "203.0.113.1")]).status, 200);
    let running = Running::start(&format!(
        "trusted-proxies = ['127.0.0.0/8']\n{PLAIN}\n[[site]]\n{lines}\nheaders = {{ x-site = 'a' }}"
    ));
    for (said, status) in [
        ("198.51.100.1", 200),
        ("203.0.113.1", 403),
        ("198.51.100.7", 403),
        ("198.51.100.1, 203.0.113.1", 403),
        ("203.0.113.1, 198.51.100.1, 127.0.0.9", 200),
        ("unknown", 403),
    ] {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {said}\r\n\r\n");
        let (found, head, _) = got(&running.addrs[0], &request);
        assert!(found == status && head.contains("\r\nx-site: a\r\n"), "{said}: {head}");
    }
}

#[test]
fn a_rule_changes_when_the_file_is_read_again() {
    let text = format!("{PLAIN}\n[[site]]\ndirectory = 'a'\n");
    let mut running = Running::start(&text);
    assert_eq!(got(&running.addrs[0], &get("a", "/")).0, 200);
    assert_eq!(running.reload(&format!("{text}{}", ann())), "configuration reloaded");
    let mut stream = TcpStream::connect(&running.addrs[0]).unwrap();
    assert!(ask(&mut stream, &get("a", "/")).0.starts_with("http/1.1 401"));
    let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{}: {}\r\n\r\n", ANN.0, ANN.1);
    assert!(ask(&mut stream, &request).0.starts_with("http/1.1 200"));
    assert_eq!(running.reload(&format!("{text}access = {{ deny = '127.0.0.1' }}")), "configuration reloaded");
    assert!(ask(&mut stream, &request).0.starts_with("http/1.1 403"));
    assert_eq!(running.reload(&text), "configuration reloaded");
    assert!(ask(&mut stream, &get("a", "/")).0.starts_with("http/1.1 200"));
}
