//! Files are served whole, in parts, compressed, or not at all.
#![cfg(feature = "server")]

use std::convert::Infallible;
use std::fs::{self, File, FileTimes};
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes as Payload;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use marcato_units::Bytes;
use marcato_web::files::{FileBody, Files, FilesConfig, FilesError};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower_service::Service;

const HOUR: Duration = Duration::from_secs(3600);

/// Sun, 06 Nov 1994 08:49:37 GMT.
const MODIFIED: Duration = Duration::from_secs(784_111_777);

/// Directory `root`, its service, and a file `secret` outside.
struct Site {
    outer: TempDir,
    files: Files,
    runtime: Runtime,
}

impl Site {
    /// Site with the given files, which are old, so that they have strong entity tags.
    fn new(files: &[(&str, &[u8])]) -> Self {
        Self::with(files, |_| {})
    }

    fn with(files: &[(&str, &[u8])], configure: impl FnOnce(&mut FilesConfig)) -> Self {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        let mut config = FilesConfig::new(&root);
        configure(&mut config);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let site = Self { outer, files: Files::new(config).unwrap(), runtime };
        for (path, content) in files {
            site.write(path, content, MODIFIED);
        }
        site
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.outer.path().join("root").join(path)
    }

    /// Writes a file in place, with a modification time.
    fn write(&self, path: &str, content: &[u8], modified: Duration) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        touch(&path, modified);
    }

    /// Response whose body was not read yet.
    fn begin(&self, method: Method, uri: &str, fields: &[(&str, &str)]) -> Response<FileBody> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        let result: Result<_, Infallible> = self.runtime.block_on(self.files.clone().call(request));
        let Ok(response) = result;
        response
    }

    fn ask(&self, method: Method, uri: &str, fields: &[(&str, &str)]) -> Response<Payload> {
        let (parts, body) = self.begin(method, uri, fields).into_parts();
        let content = self.runtime.block_on(body.collect()).unwrap().to_bytes();
        Response::from_parts(parts, content)
    }

    fn get(&self, uri: &str, fields: &[(&str, &str)]) -> Response<Payload> {
        self.ask(Method::GET, uri, fields)
    }

    fn status(&self, uri: &str) -> u16 {
        self.get(uri, &[]).status().as_u16()
    }

    fn body(&self, uri: &str) -> Payload {
        self.get(uri, &[]).into_body()
    }
}

fn touch(path: &Path, modified: Duration) {
    let times = FileTimes::new().set_modified(UNIX_EPOCH + modified);
    File::options().write(true).open(path).unwrap().set_times(times).unwrap();
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

/// Content whose slices differ.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[test]
fn a_file_is_served_with_its_fields() {
    let site = Site::with(&[("a/b.txt", b"hello")], |config| {
        config.cache_control = Some("max-age=60".parse().unwrap());
    });
    for _ in 0..2 {
        let response = site.get("/a/b.txt?x=1", &[]);
        assert_eq!((response.status(), &response.body()[..]), (StatusCode::OK, &b"hello"[..]));
        for (name, value) in [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", "5"),
            ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("accept-ranges", "bytes"),
            ("cache-control", "max-age=60"),
            ("x-content-type-options", "nosniff"),
            ("vary", ""),
            ("content-encoding", ""),
        ] {
            assert_eq!(field(response.headers(), name), value, "{name}");
        }
        assert!(field(response.headers(), "etag").starts_with("\"5-"));
    }
    let counters = site.files.counters();
    assert_eq!((counters.hits, counters.misses, counters.cached_files), (1, 1, 1));
}

#[test]
fn only_get_head_and_options_are_allowed() {
    let site = Site::new(&[("a", b"x")]);
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::CONNECT, Method::TRACE] {
        let response = site.ask(method, "/a", &[]);
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(field(response.headers(), "allow"), "GET, HEAD, OPTIONS");
    }
    let response = site.ask(Method::OPTIONS, "/a", &[]);
    assert_eq!((response.status(), response.body().len()), (StatusCode::NO_CONTENT, 0));
    assert_eq!(field(response.headers(), "allow"), "GET, HEAD, OPTIONS");
}

#[test]
fn head_has_the_fields_of_get() {
    let big = content(70_000);
    let site = Site::with(
        &[("a.txt", b"hello"), ("a.txt.br", b"x"), ("big", &big), ("d/x", b"y"), ("i/index.html", b"z")],
        |config| {
            config.listing = true;
            config.cached_file = Bytes::new(1000);
        },
    );
    let tag = field(site.get("/a.txt", &[]).headers(), "etag").to_owned();
    let fields: [&[(&str, &str)]; 4] =
        [&[], &[("accept-encoding", "br")], &[("if-none-match", &tag)], &[("if-match", "\"other\"")]];
    for uri in ["/a.txt", "/big", "/d", "/d/", "/i/", "/none", "/../x", "/.x", "/%zz"] {
        for fields in fields {
            let (get, head) = (site.get(uri, fields), site.ask(Method::HEAD, uri, fields));
            assert_eq!((get.status(), get.headers()), (head.status(), head.headers()), "{uri} {fields:?}");
            assert!(head.body().is_empty());
            if get.status() != StatusCode::NOT_MODIFIED {
                assert_eq!(field(get.headers(), "content-length"), get.body().len().to_string());
            }
        }
    }
    // RFC 9110 §14.2: ranges exist for GET only.
    assert_eq!(site.ask(Method::HEAD, "/big", &[("range", "bytes=0-0")]).status(), StatusCode::OK);
}

#[test]
fn traversal_never_leaves_the_root() {
    let site = Site::new(&[("a/b", b"x"), (".env", b"hidden"), (".well-known/acme", b"token")]);
    for (uri, status) in [
        ("/../secret", 400),
        ("/a/../../secret", 400),
        ("/%2e%2e/secret", 400),
        ("/.%2e/secret", 400),
        ("/..%2fsecret", 400),
        ("/a%2f..%2f..%2fsecret", 400),
        ("/..%5csecret", 400),
        ("/a%00", 400),
        ("/a%ff", 400),
        ("/a%", 400),
        ("/%252e%252e/secret", 404),
        ("//secret", 404),
        ("/.env", 404),
        ("/%2eenv", 404),
        ("/a/b/c", 404),
        ("/a/b/", 404),
        ("/", 404),
        ("//a//./b", 200),
        ("/.well-known/acme", 200),
    ] {
        let response = site.get(uri, &[]);
        assert_eq!(response.status(), status, "{uri}");
        assert_ne!(&response.body()[..], b"secret", "{uri}");
    }
    let counters = site.files.counters();
    assert_eq!((counters.refused, counters.not_found), (12, 5));
}

#[test]
fn dot_files_are_served_on_demand() {
    let site = Site::with(&[(".env", b"x")], |config| config.hidden = true);
    assert_eq!(site.status("/.env"), 200);
}

#[test]
fn symbolic_links_stay_below_the_root() {
    let site = Site::new(&[("a/b", b"inside")]);
    symlink("a/b", site.path("inside")).unwrap();
    symlink(site.path("a"), site.path("absolute")).unwrap();
    symlink("../secret", site.path("outside")).unwrap();
    symlink(site.outer.path(), site.path("outer")).unwrap();
    assert_eq!((site.body("/inside"), site.body("/absolute/b")), ("inside".into(), "inside".into()));
    assert_eq!((site.status("/outside"), site.status("/outer/secret")), (404, 404));
    assert_eq!(site.files.counters().refused, 2);
}

#[test]
fn a_file_that_becomes_an_escape_is_dropped() {
    let site = Site::with(&[("a", b"old")], |config| config.revalidate = Duration::ZERO);
    assert_eq!(site.body("/a"), "old");
    fs::remove_file(site.path("a")).unwrap();
    symlink("../secret", site.path("a")).unwrap();
    assert_eq!((site.status("/a"), site.files.counters().cached_files), (404, 0));
}

#[test]
fn directories_redirect_to_a_trailing_slash() {
    let site = Site::new(&[("a b/c:d/index.html", b"index")]);
    for (uri, location) in [
        ("/a%20b", "./a%20b/"),
        ("/a%20b/c:d?q=1&r", "./c%3Ad/?q=1&r"),
        ("//a%20b", "./a%20b/"),
        ("/a%20b/c:d", "./c%3Ad/"),
    ] {
        let response = site.get(uri, &[]);
        assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
        assert_eq!(field(response.headers(), "location"), location);
    }
    assert_eq!(site.body("/a%20b/c:d/"), "index");
}

#[test]
fn the_first_existing_index_is_served() {
    let site = Site::with(&[("a/two.htm", b"2"), ("one.html/x", b""), ("two.htm", b"root")], |config| {
        config.index = vec!["one.html".to_owned(), "two.htm".to_owned()];
    });
    assert_eq!((site.body("/a/"), site.body("/")), ("2".into(), "root".into()));
    site.write("a/one.html", b"1", MODIFIED);
    assert_eq!(site.body("/a/"), "1");
    assert_eq!((site.status("/one.html/"), site.status("/none/")), (404, 404));
}

#[test]
fn unusable_configurations_are_refused() {
    let site = Site::new(&[]);
    let create = |config| Files::new(config).map(|_| ());
    let config = FilesConfig::new(site.outer.path().join("secret"));
    assert!(matches!(create(config), Err(FilesError::NotDirectory { .. })));
    assert!(matches!(create(FilesConfig::new(site.path("none"))), Err(FilesError::Root { .. })));
    for name in ["", "..", "a/b", "/etc/passwd", "a\0"] {
        let config = FilesConfig { index: vec![name.to_owned()], ..FilesConfig::new(site.path("")) };
        assert!(matches!(create(config), Err(FilesError::Index { .. })), "{name}");
    }
}

#[test]
fn listings_are_sorted_escaped_and_without_hidden_names() {
    let names: [(&str, &[u8]); 6] = [
        ("d/b", b""),
        ("d/<i>&\"'", b""),
        ("d/a/x", b""),
        ("d/.hidden", b""),
        // It is served in the root alone.
        ("d/.well-known/x", b""),
        ("d/c d", b""),
    ];
    let site = Site::with(&names, |config| config.listing = true);
    symlink("../../secret", site.path("d/outside")).unwrap();
    symlink("a", site.path("d/inside")).unwrap();
    let response = site.get("/d/", &[]);
    assert_eq!(field(response.headers(), "content-type"), "text/html; charset=utf-8");
    let html = String::from_utf8(response.body().to_vec()).unwrap();
    let links: Vec<_> = html.lines().filter(|line| line.starts_with("<li>")).collect();
    assert_eq!(
        links,
        [
            "<li><a href=\"../\">../</a>",
            "<li><a href=\"./%3Ci%3E%26%22%27\">&lt;i&gt;&amp;&quot;&#39;</a>",
            "<li><a href=\"./a/\">a/</a>",
            "<li><a href=\"./b\">b</a>",
            "<li><a href=\"./c%20d\">c d</a>",
            "<li><a href=\"./inside/\">inside/</a>",
        ]
    );
    let tag = field(response.headers(), "etag");
    assert_eq!(site.get("/d/", &[("if-none-match", tag)]).status(), StatusCode::NOT_MODIFIED);
    assert_eq!((site.status("/none/"), site.status("/d/b/")), (404, 404));
    assert_eq!(Site::new(&names).status("/d/"), 404);
}

#[test]
fn conditions_are_evaluated_on_files() {
    let site = Site::with(&[("a", b"0123456789")], |config| {
        config.cache_control = Some("max-age=60".parse().unwrap());
    });
    let tag = field(site.get("/a", &[]).headers(), "etag").to_owned();
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let earlier = "Sun, 06 Nov 1994 08:49:36 GMT";
    let table: [(&[(&str, &str)], u16); 13] = [
        (&[("if-none-match", &tag)], 304),
        (&[("if-none-match", "\"x\""), ("if-modified-since", date)], 200),
        (&[("if-modified-since", date)], 304),
        (&[("if-modified-since", earlier)], 200),
        (&[("if-match", &tag)], 200),
        (&[("if-match", "\"x\"")], 412),
        (&[("if-unmodified-since", earlier)], 412),
        (&[("if-match", "\"x\""), ("if-none-match", &tag)], 412),
        (&[("if-none-match", &tag), ("range", "bytes=0-1")], 304),
        (&[("if-range", &tag), ("range", "bytes=0-1")], 206),
        (&[("if-range", date), ("range", "bytes=0-1")], 206),
        (&[("if-range", "\"x\""), ("range", "bytes=0-1")], 200),
        (&[("if-range", "\"x\""), ("range", "bytes=99-")], 200),
    ];
    for (fields, status) in table {
        let response = site.get("/a", fields);
        assert_eq!(response.status(), status, "{fields:?}");
        if status == 304 {
            assert!(response.body().is_empty());
            assert_eq!(field(response.headers(), "etag"), tag);
            assert_eq!(field(response.headers(), "cache-control"), "max-age=60");
        }
    }
}

#[test]
fn files_of_this_second_have_weak_tags() {
    let site = Site::with(&[], |config| config.revalidate = Duration::ZERO);
    // A modification time in the future is recent at any speed of this test.
    site.write("a", b"new", UNIX_EPOCH.elapsed().unwrap() + HOUR);
    let response = site.get("/a", &[]);
    let tag = field(response.headers(), "etag");
    assert!(tag.starts_with("W/"));
    assert_eq!(site.get("/a", &[("if-none-match", tag)]).status(), StatusCode::NOT_MODIFIED);
    let fields = [("if-range", tag), ("range", "bytes=0-0")];
    assert_eq!(site.get("/a", &fields).status(), StatusCode::OK);
    touch(&site.path("a"), MODIFIED);
    assert!(field(site.get("/a", &[]).headers(), "etag").starts_with('"'));
}

#[test]
fn unsatisfiable_ranges_tell_the_length() {
    let site = Site::new(&[("a", b"0123456789"), ("empty", b"")]);
    let response = site.get("/a", &[("range", "bytes=10-")]);
    assert_eq!(response.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(field(response.headers(), "content-range"), "bytes */10");
    let response = site.get("/empty", &[("range", "bytes=0-")]);
    assert_eq!(field(response.headers(), "content-range"), "bytes */0");
    assert_eq!(site.get("/empty", &[("range", "bytes=-5")]).status(), StatusCode::OK);
    assert!(site.body("/empty").is_empty());
}

#[test]
fn several_ranges_are_sent_as_parts() {
    let site = Site::new(&[("a.txt", b"0123456789")]);
    let response = site.get("/a.txt", &[("range", "bytes=7-, 0-1")]);
    assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
    let content_type = field(response.headers(), "content-type").to_owned();
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let part = |range: &str, text: &str| {
        format!(
            "--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/10\r\n\r\n{text}\r\n"
        )
    };
    let expected = [part("7-9", "789"), part("0-1", "01"), format!("--{boundary}--\r\n")].concat();
    assert_eq!(response.body(), &expected);
    assert_eq!(field(response.headers(), "content-length"), expected.len().to_string());
    assert_eq!(field(response.headers(), "content-range"), "");
    for range in ["bytes=0-5,5-6", "bytes=0-0,1-1,2-2,3-3,4-4,5-5,6-6,7-7,8-8", "lines=0-1", "bytes=2-1"] {
        assert_eq!(site.get("/a.txt", &[("range", range)]).body(), "0123456789", "{range}");
    }
    let twice = [("range", "bytes=0-1"), ("range", "bytes=3-4")];
    assert_eq!(site.get("/a.txt", &twice).status(), StatusCode::OK);
}

/// Parts of a response by their `Content-Range`; all of the content for a response without one.
fn parts(response: &Response<Payload>) -> Vec<(Range<usize>, Vec<u8>)> {
    let range = |text: &str| {
        let (range, _) = text.strip_prefix("bytes ").unwrap().split_once('/').unwrap();
        let (first, last) = range.split_once('-').unwrap();
        first.parse::<usize>().unwrap()..last.parse::<usize>().unwrap() + 1
    };
    let body = response.body();
    let content_type = field(response.headers(), "content-type");
    let Some(boundary) = content_type.strip_prefix("multipart/byteranges; boundary=") else {
        let whole = 0..body.len();
        let content_range = field(response.headers(), "content-range");
        return vec![(if content_range.is_empty() { whole } else { range(content_range) }, body.to_vec())];
    };
    let mut rest = &body[..];
    let mut parts = Vec::new();
    while let Some(part) = rest.strip_prefix(format!("--{boundary}\r\n").as_bytes()) {
        let end = part.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&part[..end]).unwrap();
        let range = range(head.split("Content-Range: ").nth(1).unwrap());
        let content = &part[end + 4..][..range.len()];
        parts.push((range, content.to_vec()));
        rest = part[end + 4 + content.len()..].strip_prefix(b"\r\n").unwrap();
    }
    assert_eq!(rest, format!("--{boundary}--\r\n").as_bytes());
    parts
}

/// Ranges that a request for `first-last` members means; `None` if the whole file is to be sent.
fn meaning(members: &[(Option<usize>, Option<usize>)], len: usize) -> Option<Vec<Range<usize>>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for member in members {
        let range = match *member {
            (None, None) => return None,
            (Some(first), Some(last)) if last < first => return None,
            (Some(first), last) => first..last.map_or(len, |last| len.min(last + 1)),
            (None, Some(suffix)) => len.saturating_sub(suffix)..len,
        };
        if range.start < len && !range.is_empty() {
            ranges.push(range);
        }
    }
    let overlaps = |(index, range): (usize, &Range<usize>)| {
        ranges[..index].iter().any(|other| range.start < other.end && other.start < range.end)
    };
    (members.len() <= 8 && !ranges.iter().enumerate().any(overlaps)).then_some(ranges)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ranges_are_slices_of_the_file(
        requests in proptest::collection::vec(
            proptest::collection::vec((any::<Option<u16>>(), any::<Option<u16>>()), 1..10),
            1..8,
        ),
        len in 1..200_000_usize,
        stretch in 1..4_usize,
    ) {
        let file = content(len);
        let files = [("a.bin", file.as_slice())];
        let cached = Site::new(&files);
        let streamed = Site::with(&files, |config| config.cached_file = Bytes::ZERO);
        for request in requests {
            let scale = |at: Option<u16>| at.map(|at| usize::from(at) * stretch);
            let members: Vec<_> =
                request.into_iter().map(|(first, last)| (scale(first), scale(last))).collect();
            let write = |at: &Option<usize>| at.map_or(String::new(), |at| at.to_string());
            let values: Vec<_> =
                members.iter().map(|(first, last)| format!("{}-{}", write(first), write(last))).collect();
            let value = format!("bytes={}", values.join(", "));
            for site in [&cached, &streamed] {
                let response = site.get("/a.bin", &[("range", &value)]);
                let length = response.body().len().to_string();
                prop_assert_eq!(field(response.headers(), "content-length"), length);
                match meaning(&members, len) {
                    None => {
                        prop_assert_eq!(response.status(), StatusCode::OK);
                        prop_assert_eq!(&response.body()[..], &file[..]);
                    }
                    Some(ranges) if ranges.is_empty() => {
                        prop_assert_eq!(response.status(), StatusCode::RANGE_NOT_SATISFIABLE);
                    }
                    Some(ranges) => {
                        prop_assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
                        let parts = parts(&response);
                        let sent: Vec<_> = parts.iter().map(|(range, _)| range.clone()).collect();
                        prop_assert_eq!(sent, ranges);
                        for (range, part) in parts {
                            prop_assert_eq!(&part[..], &file[range]);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn any_range_field_gets_a_slice(value in "(bytes=)?[0-9, -]{0,16}", len in 0..40_usize) {
        let file = content(len);
        let site = Site::new(&[("a", &file)]);
        let response = site.get("/a", &[("range", &value)]);
        if response.status() != StatusCode::RANGE_NOT_SATISFIABLE {
            for (range, part) in parts(&response) {
                prop_assert_eq!(&part[..], &file[range]);
            }
        }
    }

    #[test]
    fn no_path_reaches_the_secret(path in "(/|%2f|\\.|%2e|a|%5c|%00|b|secret|root){0,12}") {
        let site = Site::with(&[("a/b", b"x")], |config| {
            config.hidden = true;
            config.listing = true;
        });
        let response = site.get(&format!("/{path}"), &[]);
        prop_assert!(matches!(response.status().as_u16(), 200 | 308 | 400 | 404));
        prop_assert_ne!(&response.body()[..], b"secret");
        prop_assert!(!response.body().windows(8).any(|window| window == b">secret<"));
    }
}

#[test]
fn precompressed_files_are_chosen_by_weight() {
    let site = Site::new(&[
        ("x.js", b"identity"),
        ("x.js.br", b"brotli"),
        ("x.js.zst", b"zstd"),
        ("x.js.gz", b"gzip"),
    ]);
    for (accepted, encoding, content) in [
        ("gzip, deflate, br, zstd", "br", "brotli"),
        ("gzip;q=0.9, zstd;q=1.0, br;q=0", "zstd", "zstd"),
        ("gzip", "gzip", "gzip"),
        ("identity, gzip;q=0.5", "", "identity"),
        ("deflate", "", "identity"),
        ("", "", "identity"),
    ] {
        let response = site.get("/x.js", &[("accept-encoding", accepted)]);
        assert_eq!(field(response.headers(), "content-encoding"), encoding, "{accepted}");
        assert_eq!(field(response.headers(), "content-type"), "text/javascript; charset=utf-8");
        assert_eq!(field(response.headers(), "vary"), "accept-encoding");
        assert_eq!(response.body(), content);
    }
    assert_eq!(field(site.get("/x.js.gz", &[]).headers(), "content-type"), "application/gzip");
}

#[test]
fn each_encoding_has_its_own_tag_and_ranges() {
    let site = Site::new(&[("x.js", b"identity"), ("x.js.gz", b"zipped--")]);
    let gzip = ("accept-encoding", "gzip");
    let plain = field(site.get("/x.js", &[]).headers(), "etag").to_owned();
    let zipped = field(site.get("/x.js", &[gzip]).headers(), "etag").to_owned();
    assert_ne!(plain, zipped);
    let response = site.get("/x.js", &[gzip, ("if-none-match", &zipped)]);
    assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(field(response.headers(), "vary"), "accept-encoding");
    assert_eq!(site.get("/x.js", &[gzip, ("if-none-match", &plain)]).status(), StatusCode::OK);
    assert_eq!(site.get("/x.js", &[gzip, ("range", "bytes=0-2")]).body(), "zip");
}

#[test]
fn compression_needs_permission_and_an_original() {
    let files: [(&str, &[u8]); 3] = [("x.js", b"identity"), ("x.js.br", b"brotli"), ("y.js.br", b"alone")];
    let brotli = [("accept-encoding", "br")];
    let site = Site::with(&files, |config| config.precompressed = false);
    let response = site.get("/x.js", &brotli);
    assert_eq!((response.body(), field(response.headers(), "vary")), (&"identity".into(), ""));
    assert_eq!(Site::new(&files).get("/y.js", &brotli).status(), StatusCode::NOT_FOUND);
}

#[test]
fn a_variant_older_than_its_file_is_never_served() {
    let files: [(&str, &[u8]); 4] =
        [("x.js", b"identity"), ("x.js.br", b"brotli"), ("x.js.zst", b"zstd"), ("x.js.gz", b"gzip")];
    let site = Site::with(&files, |config| config.revalidate = Duration::ZERO);
    let modify = |name: &str, seconds, nanoseconds| {
        touch(&site.path(name), MODIFIED + Duration::new(seconds, nanoseconds));
    };
    let get = |accepted: &str| site.get("/x.js", &[("accept-encoding", accepted)]);
    modify("x.js", 0, 5);
    modify("x.js.br", 0, 4);
    modify("x.js.zst", 0, 5);
    modify("x.js.gz", 1, 0);
    for (accepted, content) in [("br, zstd, gzip", "zstd"), ("br, gzip", "gzip"), ("br", "identity")] {
        let response = get(accepted);
        assert_eq!(
            (response.body(), field(response.headers(), "vary")),
            (&content.into(), "accept-encoding")
        );
    }
    assert_eq!(site.files.counters().stale, 3);
    // A tool that copies no more than seconds does not make it older.
    modify("x.js.br", 0, 0);
    assert_eq!(get("br").body(), "brotli");
    // All of them are older: nothing of the choice is left.
    modify("x.js", 2, 0);
    let response = get("br, zstd, gzip");
    assert_eq!((response.body(), field(response.headers(), "vary")), (&"identity".into(), ""));
    assert_eq!(site.files.counters().stale, 6);
}

#[test]
fn a_file_larger_than_the_cache_is_read_in_chunks() {
    let large = content(100_000);
    for (cache, is_held) in [(200_000, true), (99_999, false)] {
        let site = Site::with(&[("large", &large)], |config| config.cache = Bytes::new(cache));
        let mut body = site.begin(Method::GET, "/large", &[]).into_body();
        let first = site.runtime.block_on(body.frame()).unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len() == large.len(), is_held, "{} bytes", first.len());
        let rest = site.runtime.block_on(body.collect()).unwrap().to_bytes();
        assert_eq!([first, rest].concat(), large);
    }
}

#[test]
fn only_regular_files_are_served() {
    let site = Site::with(&[("a", b"x")], |config| config.listing = true);
    let made = std::process::Command::new("mkfifo").arg(site.path("pipe")).status().unwrap();
    assert!(made.success());
    std::os::unix::net::UnixListener::bind(site.path("socket")).unwrap();
    symlink("/dev/null", site.path("device")).unwrap();
    assert_eq!(["/a", "/pipe", "/socket", "/device"].map(|path| site.status(path)), [200, 404, 404, 404]);
    let listing = String::from_utf8(site.body("/").to_vec()).unwrap();
    assert_eq!(listing.matches("<li>").count(), 1, "{listing}");
}

#[test]
fn a_compressed_file_has_no_variants_of_its_own() {
    let site = Site::new(&[("x.js.gz", b"gzip"), ("x.js.gz.gz", b"twice"), ("x.js.gz.br", b"twice")]);
    let response = site.get("/x.js.gz", &[("accept-encoding", "gzip, br")]);
    assert_eq!((response.body(), field(response.headers(), "content-encoding")), (&"gzip".into(), ""));
}

#[test]
fn a_file_that_may_have_changed_without_a_trace_is_read_again() {
    let site = Site::with(&[("old", b"x")], |config| config.revalidate = Duration::ZERO);
    // Any change before that time may leave it.
    let later = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + HOUR;
    site.write("new", b"y", later);
    for (path, again) in [("/old", (1, 0)), ("/new", (0, 1))] {
        site.body(path);
        let before = site.files.counters();
        site.body(path);
        let after = site.files.counters();
        assert_eq!((after.hits - before.hits, after.misses - before.misses), again, "{path}");
    }
}

#[test]
fn an_escaping_variant_is_ignored() {
    let site = Site::new(&[("x.js", b"identity")]);
    symlink("../secret", site.path("x.js.br")).unwrap();
    assert_eq!(site.get("/x.js", &[("accept-encoding", "br")]).body(), "identity");
}

#[test]
fn files_in_memory_are_served_until_their_check() {
    let site = Site::with(&[("a", b"old"), ("d/index.html", b"index")], |config| config.revalidate = HOUR);
    assert_eq!((site.body("/a"), site.body("/d/")), ("old".into(), "index".into()));
    let before = site.files.counters();
    site.write("a", b"new", MODIFIED + HOUR);
    for _ in 0..5 {
        assert_eq!((site.body("/a"), site.body("/d/")), ("old".into(), "index".into()));
    }
    let after = site.files.counters();
    assert_eq!((after.hits - before.hits, after.misses), (10, before.misses));
    assert_eq!((after.revalidations, after.blocking), (0, before.blocking));
}

#[test]
fn changes_are_noticed_by_a_check() {
    let site = Site::with(&[("a", b"old"), ("a.gz", b"zip")], |config| config.revalidate = Duration::ZERO);
    let gzip = [("accept-encoding", "gzip")];
    assert_eq!(site.get("/a", &gzip).body(), "zip");
    assert_eq!((site.body("/a"), site.body("/a")), ("old".into(), "old".into()));
    let counters = site.files.counters();
    assert_eq!((counters.hits, counters.misses, counters.revalidations), (1, 2, 2));

    // Another time of modification. Its variant has become too old until it is written again.
    site.write("a", b"new", MODIFIED + HOUR);
    assert_eq!((site.body("/a"), site.get("/a", &gzip).into_body()), ("new".into(), "new".into()));
    site.write("a.gz", b"zip", MODIFIED + HOUR);
    assert_eq!((site.body("/a"), site.get("/a", &gzip).into_body()), ("new".into(), "zip".into()));
    // Another length, with the same time.
    site.write("a", b"longer", MODIFIED + HOUR);
    assert_eq!(site.body("/a"), "longer");
    // Another file, with the same length and time.
    site.write("b", b"LONGER", MODIFIED + HOUR);
    fs::rename(site.path("b"), site.path("a")).unwrap();
    assert_eq!(site.body("/a"), "LONGER");
    // A variant that vanishes.
    fs::remove_file(site.path("a.gz")).unwrap();
    let response = site.get("/a", &gzip);
    assert_eq!((response.body(), field(response.headers(), "vary")), (&"LONGER".into(), ""));
    // A file that vanishes.
    fs::remove_file(site.path("a")).unwrap();
    assert_eq!((site.status("/a"), site.files.counters().cached_files), (404, 0));
}

#[test]
fn a_large_file_replaces_a_small_one_in_memory() {
    let site = Site::with(&[("a", b"small")], |config| {
        config.revalidate = Duration::ZERO;
        config.cached_file = Bytes::new(10);
    });
    assert_eq!(site.body("/a"), "small");
    site.write("a", b"not so small", MODIFIED);
    assert_eq!((site.body("/a"), site.files.counters().cached_files), ("not so small".into(), 0));
}

#[test]
fn memory_has_a_bound() {
    let file = content(1000);
    let names: Vec<_> = (0..20).map(|index| format!("f{index}")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), file.as_slice())).collect();
    let site = Site::with(&files, |config| config.cache = Bytes::new(10_000));
    for name in &names {
        assert_eq!(site.body(&format!("/{name}")), file);
        assert!(site.files.counters().cached <= Bytes::new(10_000));
    }
    let counters = site.files.counters();
    assert!(counters.cached_files > 1);
    assert_eq!(counters.evictions + counters.cached_files, 20);
    let unbuffered = Site::with(&files, |config| config.cache = Bytes::ZERO);
    assert_eq!((unbuffered.body("/f0"), unbuffered.files.counters().cached), (file.into(), Bytes::ZERO));
}

#[test]
fn large_files_are_streamed() {
    let file = content(3 << 20);
    let site = Site::new(&[("big", &file)]);
    assert_eq!((site.body("/big"), site.files.counters().cached_files), (file.clone().into(), 0));
    let response = site.get("/big", &[("range", "bytes=-70000")]);
    assert_eq!(&response.body()[..], &file[file.len() - 70_000..]);
}

#[test]
fn a_file_that_shrinks_ends_its_body_with_an_error() {
    let site = Site::new(&[("big", &content(3 << 20))]);
    let mut body = site.begin(Method::GET, "/big", &[]).into_body();
    let mut next = || site.runtime.block_on(body.frame());
    next().unwrap().unwrap();
    File::options().write(true).open(site.path("big")).unwrap().set_len(100).unwrap();
    assert_eq!(next().unwrap().unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(next().is_none());
}

#[test]
fn clones_share_memory_and_futures_are_send() {
    const fn send<T: Send>(value: T) -> T {
        value
    }
    let site = Site::new(&[("a", b"x")]);
    let future = send(site.files.clone().call(Request::get("/a").body(()).unwrap()));
    let Ok(response) = site.runtime.block_on(future);
    send(response.into_body());
    assert_eq!((site.body("/a"), site.files.counters().hits), ("x".into(), 1));
}

#[test]
fn files_are_served_outside_of_a_runtime() {
    let site = Site::new(&[("big", &content(2 << 20))]);
    let mut future = std::pin::pin!(site.files.clone().call(Request::get("/big").body(()).unwrap()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Ok(response)) = future.as_mut().poll(&mut context) else {
        panic!("a response outside of a runtime is ready")
    };
    assert_eq!(response.status(), StatusCode::OK);
}
