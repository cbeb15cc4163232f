//! Responses are compressed for those who accept it, and for nobody else.
#![cfg(all(feature = "compression", feature = "proxy"))]

use std::convert::Infallible;
use std::fs::{self, File, FileTimes};
use std::future::poll_fn;
use std::io::Read as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes as Payload;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::channel::Channel;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper_util::rt::TokioIo;
use marcato_units::Bytes;
use marcato_web::compression::{Codec, CompressedBody, Compression, CompressionConfig, CompressionError};
use marcato_web::files::{Files, FilesConfig};
use marcato_web::proxy::{Proxy, ProxyConfig};
use marcato_web::{BoxError, Server, WebService};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::support::{Running, fetch, read, run, until};

type TestBody = UnsyncBoxBody<Payload, BoxError>;

/// Content of the kind that compresses.
fn text(len: usize) -> Vec<u8> {
    let lines =
        (0_u64..).flat_map(|line| format!("line {line} has {} words\n", line * line % 97).into_bytes());
    lines.take(len).collect()
}

/// Content that does not compress.
fn noise(salt: u8, len: usize) -> Vec<u8> {
    let mut state = u32::from(salt) + 1;
    let next = std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    next.take(len).collect()
}

fn full(content: impl Into<Payload>) -> TestBody {
    UnsyncBoxBody::new(Full::new(content.into()).map_err(Into::into))
}

/// Response with these fields.
fn response<B>(fields: &[(&str, &str)], body: B) -> Response<B> {
    let mut response = Response::builder();
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(body).unwrap()
}

/// Decodes as far as the bytes reach. True if they are the whole of a coding.
fn decode(coding: &str, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut content = Vec::new();
    let is_whole = match coding {
        "" => {
            content.extend_from_slice(bytes);
            true
        }
        "gzip" => flate2::read::GzDecoder::new(bytes).read_to_end(&mut content).is_ok(),
        "br" => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut content).is_ok(),
        "zstd" => {
            let mut context = zstd_safe::DCtx::create();
            let mut from = zstd_safe::InBuffer::around(bytes);
            loop {
                let mut piece = vec![0; 1 << 16];
                let mut into = zstd_safe::OutBuffer::around(&mut piece[..]);
                let left = context.decompress_stream(&mut into, &mut from).unwrap();
                let wrote = into.pos();
                content.extend_from_slice(&piece[..wrote]);
                if left == 0 || wrote == 0 && from.pos() == bytes.len() {
                    break left == 0;
                }
            }
        }
        other => panic!("{other} is no coding"),
    };
    (content, is_whole)
}

/// Content of a whole coding.
fn whole(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let (content, is_whole) = decode(coding, bytes);
    assert!(is_whole, "{coding} is cut off");
    content
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Over {
    Http1,
    Http2,
}

const BOTH: [Over; 2] = [Over::Http1, Over::Http2];

/// Sends a request over a connection of its own.
async fn begin(
    running: &Running,
    over: Over,
    method: Method,
    path: &str,
    fields: &[(&str, &str)],
) -> Response<TestBody> {
    let target = if over == Over::Http1 { path.to_owned() } else { format!("http://test{path}") };
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    match over {
        Over::Http1 => {
            let stream = TokioIo::new(TcpStream::connect(running.addr).await.unwrap());
            let (mut send, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            let request = request.header("host", "test").body(Empty::<Payload>::new()).unwrap();
            // The sender ends the connection once it is dropped, which is after the body.
            let response = send.send_request(request).await.unwrap();
            response.map(|body| {
                UnsyncBoxBody::new(body.map_frame(move |frame| (&send, frame).1).map_err(Into::into))
            })
        }
        Over::Http2 => {
            let mut client = running.client().await;
            let response = fetch(&mut client, request.body(()).unwrap()).await;
            response.map(|mut body| {
                let frames = poll_fn_stream(move |cx| {
                    let _ = &client;
                    match body.poll_data(cx) {
                        Poll::Ready(Some(Ok(data))) => {
                            _ = body.flow_control().release_capacity(data.len());
                            Poll::Ready(Some(Ok(Frame::data(data))))
                        }
                        Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
                        Poll::Ready(None) => match body.poll_trailers(cx) {
                            Poll::Ready(Ok(Some(trailers))) => {
                                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
                            }
                            Poll::Ready(Ok(None)) => Poll::Ready(None),
                            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error.into()))),
                            Poll::Pending => Poll::Pending,
                        },
                        Poll::Pending => Poll::Pending,
                    }
                });
                UnsyncBoxBody::new(StreamBody::new(frames))
            })
        }
    }
}

type Frames = Result<Frame<Payload>, BoxError>;

/// Stream of what a function yields.
fn poll_fn_stream<F>(poll: F) -> impl futures_core::Stream<Item = Frames> + Send
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<Frames>> + Send + Unpin,
{
    struct PollFn<F>(F);
    impl<F: FnMut(&mut Context<'_>) -> Poll<Option<Frames>> + Unpin> futures_core::Stream for PollFn<F> {
        type Item = Frames;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frames>> {
            (self.0)(cx)
        }
    }
    PollFn(poll)
}

async fn ask(
    running: &Running,
    over: Over,
    method: Method,
    path: &str,
    fields: &[(&str, &str)],
) -> Response<Vec<u8>> {
    let (head, body) = begin(running, over, method, path, fields).await.into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes().to_vec())
}

async fn get(running: &Running, over: Over, path: &str, fields: &[(&str, &str)]) -> Response<Vec<u8>> {
    ask(running, over, Method::GET, path, fields).await
}

/// Directory of old files, whose tags are strong.
fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        let modified = UNIX_EPOCH + Duration::from_secs(784_111_777);
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_times(FileTimes::new().set_modified(modified))
            .unwrap();
    }
    directory
}

async fn serve(service: impl WebService) -> Running {
    Running::start(Server::new(), service).await
}

/// Server of a directory, compressed.
async fn site(files: &[(&str, &[u8])]) -> (Running, Compression, TempDir) {
    let directory = directory(files);
    let compression = Compression::default();
    let files = Files::new(FilesConfig::new(directory.path())).unwrap();
    (serve(compression.around(files)).await, compression, directory)
}

/// Service that makes its response from the path and the fields of a request.
fn answering<F>(answer: F) -> impl WebService
where
    F: Fn(&str) -> Response<TestBody> + Clone + Send + 'static,
{
    let service = tower::service_fn(move |request: Request<marcato_web::Body>| {
        let response = answer(request.uri().path());
        async move { Ok::<_, Infallible>(response) }
    });
    Compression::default().around(service)
}

#[test]
fn files_have_the_coding_that_their_client_prefers() {
    run(async {
        let page = text(100_000);
        let (running, compression, _directory) = site(&[("page.html", &page)]).await;
        for over in BOTH {
            for (accepted, coding) in [
                ("gzip, deflate, br, zstd", "zstd"),
                ("gzip, deflate, br", "br"),
                ("gzip", "gzip"),
                ("zstd;q=0.4, br;q=0.5, gzip;q=0.6", "gzip"),
                ("zstd;q=0, br;q=0, gzip;q=0.001", "gzip"),
                ("*", "zstd"),
                ("*, zstd;q=0", "br"),
                ("identity, gzip;q=0.5", ""),
                ("*;q=0", ""),
                ("deflate", ""),
                ("", ""),
            ] {
                let response = get(&running, over, "/page.html", &[("accept-encoding", accepted)]).await;
                let headers = response.headers();
                assert_eq!(field(headers, "content-encoding"), coding, "{accepted}");
                assert_eq!(field(headers, "vary"), "accept-encoding");
                assert_eq!(field(headers, "etag").starts_with("W/"), !coding.is_empty());
                for name in ["content-length", "accept-ranges"] {
                    assert_eq!(headers.contains_key(name), coding.is_empty(), "{name} {accepted}");
                }
                assert_eq!(whole(coding, response.body()), page);
                assert!(coding.is_empty() || response.body().len() < page.len() / 3);
            }
        }
        let counters = compression.counters();
        assert_eq!((counters.zstd, counters.brotli, counters.gzip), (4, 4, 6));
        assert_eq!(counters.read, Bytes::new(14 * 100_000));
        assert!(counters.written < counters.read && counters.written > Bytes::ZERO);
        until(|| compression.counters().encoders == 0).await;
        assert_eq!(compression.counters().memory, Bytes::ZERO);
    });
}

#[test]
fn head_has_the_fields_of_get_when_compressed() {
    run(async {
        let (page, small) = (text(50_000), text(511));
        let files: [(&str, &[u8]); 4] =
            [("page.html", &page), ("small.html", &small), ("image.png", &page), ("ready.js", &page)];
        let (running, compression, directory) = site(&files).await;
        fs::write(directory.path().join("ready.js.br"), b"brotli").unwrap();
        for over in BOTH {
            for path in ["/page.html", "/small.html", "/image.png", "/ready.js", "/none.html"] {
                for accepted in ["zstd", "br", "gzip", ""] {
                    let fields = [("accept-encoding", accepted)];
                    let mut heads = Vec::new();
                    for method in [Method::GET, Method::HEAD] {
                        let response = ask(&running, over, method, path, &fields).await;
                        let (mut head, _) = response.into_parts();
                        // RFC 9112 §6.1: HEAD may have it, and need not.
                        head.headers.remove("transfer-encoding");
                        head.headers.remove("date");
                        heads.push((head.status, head.headers));
                    }
                    assert_eq!(heads[0], heads[1], "{over:?} {path} {accepted}");
                }
            }
        }
        // HEAD takes no encoder: of each version, one file in three codings, and the other without a ready `.br` in two.
        let counters = compression.counters();
        assert_eq!((counters.zstd, counters.brotli, counters.gzip), (4, 2, 4));
    });
}

#[test]
fn ready_and_foreign_codings_are_not_compressed_again() {
    run(async {
        let page = text(20_000);
        let (running, compression, _directory) = site(&[("a.js", &page), ("a.js.gz", b"zipped")]).await;
        let origin = serve(tower::service_fn(|_: Request<marcato_web::Body>| async {
            let fields = [("content-type", "text/css"), ("content-encoding", "deflate"), ("etag", "\"x\"")];
            Ok::<_, Infallible>(response(&fields, full(text(20_000))))
        }))
        .await;
        let proxied = serve(
            compression.around(Proxy::new(ProxyConfig::to(format!("http://{}", origin.addr))).unwrap()),
        )
        .await;
        for over in BOTH {
            let ready = get(&running, over, "/a.js", &[("accept-encoding", "gzip")]).await;
            assert_eq!(
                (field(ready.headers(), "content-encoding"), &ready.body()[..]),
                ("gzip", &b"zipped"[..])
            );
            assert!(field(ready.headers(), "etag").starts_with('"'));
            // A coding that no file has is made.
            let made = get(&running, over, "/a.js", &[("accept-encoding", "br")]).await;
            assert_eq!(
                (field(made.headers(), "content-encoding"), whole("br", made.body())),
                ("br", page.clone())
            );
            assert_eq!(made.headers().get_all("vary").iter().count(), 1);
            let foreign = get(&proxied, over, "/", &[("accept-encoding", "gzip, zstd")]).await;
            assert_eq!(field(foreign.headers(), "content-encoding"), "deflate");
            assert_eq!((foreign.body(), field(foreign.headers(), "etag")), (&text(20_000), "\"x\""));
        }
        let counters = compression.counters();
        assert_eq!((counters.zstd, counters.brotli, counters.gzip), (0, 2, 0));
    });
}

#[test]
fn responses_that_must_not_be_changed_are_not() {
    let page = text(20_000);
    let cases: [(&str, &[(&str, &str)]); 13] = [
        ("/no-transform", &[("content-type", "text/html"), ("cache-control", "max-age=1, no-transform")]),
        ("/content-digest", &[("content-type", "text/html"), ("content-digest", "sha-256=:AA==:")]),
        ("/repr-digest", &[("content-type", "text/html"), ("repr-digest", "sha-256=:AA==:")]),
        ("/digest", &[("content-type", "text/html"), ("digest", "sha-256=AA==")]),
        ("/content-md5", &[("content-type", "text/html"), ("content-md5", "AA==")]),
        ("/range", &[("content-type", "text/html"), ("content-range", "bytes 0-19999/20000")]),
        ("/image", &[("content-type", "image/png")]),
        ("/untyped", &[]),
        ("/events", &[("content-type", "text/event-stream; charset=utf-8")]),
        ("/grpc", &[("content-type", "application/grpc")]),
        ("/grpc-web", &[("content-type", "application/grpc-web+proto")]),
        ("/grpc-json", &[("content-type", "application/grpc+json")]),
        ("/identity", &[("content-type", "text/html"), ("content-encoding", "identity")]),
    ];
    let content = page.clone();
    let service = answering(move |path| {
        let (_, fields) = cases.iter().find(|(name, _)| *name == path).unwrap();
        response(fields, full(content.clone()))
    });
    run(async {
        let running = serve(service).await;
        for (path, fields) in cases {
            for over in BOTH {
                let response = get(&running, over, path, &[("accept-encoding", "gzip, br, zstd")]).await;
                let expected =
                    fields.iter().find(|(name, _)| *name == "content-encoding").map_or("", |it| it.1);
                let (headers, body) = (response.headers(), response.body());
                assert_eq!((field(headers, "content-encoding"), body), (expected, &page), "{path}");
                assert_eq!(field(headers, "vary"), "", "{path}");
            }
        }
    });
}

#[test]
fn responses_without_content_say_nothing_of_codings() {
    run(async {
        let service = answering(|path| {
            let mut response = response(&[("content-type", "text/html"), ("etag", "\"a\"")], full(""));
            *response.status_mut() = path[1..].parse().unwrap();
            response
        });
        let running = serve(service).await;
        for over in BOTH {
            for path in ["/204", "/205", "/304"] {
                let response = get(&running, over, path, &[("accept-encoding", "gzip, identity;q=0")]).await;
                let headers = response.headers();
                assert_eq!((field(headers, "vary"), field(headers, "etag")), ("", "\"a\""), "{path}");
                assert!(!headers.contains_key("content-encoding"), "{path}");
            }
        }
    });
}

#[test]
fn a_copy_of_another_type_keeps_its_strong_tag() {
    run(async {
        let service = answering(|path| {
            let fields = [("content-type", &path[1..]), ("etag", "\"a\"")];
            let mut response = response(&fields, full(""));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        });
        let running = serve(service).await;
        for over in BOTH {
            for (path, tag) in [("/text/css", "W/\"a\""), ("/image/png", "\"a\"")] {
                let fields = [("accept-encoding", "gzip"), ("if-none-match", "W/\"a\"")];
                let response = get(&running, over, path, &fields).await;
                assert_eq!(field(response.headers(), "etag"), tag, "{path}");
            }
        }
    });
}

#[test]
fn requests_that_forbid_it_or_cannot_have_it_get_identity() {
    run(async {
        let page = text(20_000);
        let (running, _, _directory) = site(&[("a.html", &page)]).await;
        let fields = [("accept-encoding", "gzip"), ("cache-control", "no-transform")];
        for over in BOTH {
            let response = get(&running, over, "/a.html", &fields).await;
            assert_eq!(response.body(), &page);
            assert_eq!(field(response.headers(), "vary"), "accept-encoding");
        }
        // A body that ends with its connection may have been cut off.
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        let request = b"GET /a.html HTTP/1.0\r\naccept-encoding: gzip\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        assert!(got.ends_with(&page));
    });
}

#[test]
fn small_content_stays_as_it_is_unless_that_is_refused() {
    run(async {
        let (small, least) = (text(511), text(512));
        let files: [(&str, &[u8]); 3] = [("small.css", &small), ("least.css", &least), ("empty.css", b"")];
        let (running, _, _directory) = site(&files).await;
        for over in BOTH {
            for (path, accepted, coding) in [
                ("/small.css", "gzip", ""),
                ("/least.css", "gzip", "gzip"),
                ("/small.css", "gzip, identity;q=0", "gzip"),
                ("/small.css", "br, *;q=0", "br"),
                ("/small.css", "gzip, *;q=0, identity", ""),
                ("/empty.css", "gzip, identity;q=0", ""),
            ] {
                let response = get(&running, over, path, &[("accept-encoding", accepted)]).await;
                assert_eq!(field(response.headers(), "content-encoding"), coding, "{path} {accepted}");
                assert_eq!(field(response.headers(), "vary"), "accept-encoding");
                let expected = files.iter().find(|(name, _)| path.ends_with(name)).unwrap().1;
                assert_eq!(whole(coding, response.body()), expected);
            }
        }
    });
}

#[test]
fn a_client_validates_its_compressed_copy() {
    run(async {
        let page = text(20_000);
        let (running, _, _directory) = site(&[("a.html", &page)]).await;
        let gzip = ("accept-encoding", "gzip");
        for over in BOTH {
            let strong = field(get(&running, over, "/a.html", &[]).await.headers(), "etag").to_owned();
            let weak = field(get(&running, over, "/a.html", &[gzip]).await.headers(), "etag").to_owned();
            assert_eq!(weak, format!("W/{strong}"));
            for tag in [&weak, &format!("\"other\", {weak}"), &strong] {
                let response = get(&running, over, "/a.html", &[gzip, ("if-none-match", tag)]).await;
                let expected = if *tag == strong { &strong } else { &weak };
                assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
                assert_eq!(field(response.headers(), "etag"), expected);
                let varies = if *tag == strong { "" } else { "accept-encoding" };
                assert_eq!(field(response.headers(), "vary"), varies);
                assert!(response.body().is_empty() && !response.headers().contains_key("content-encoding"));
            }
            // RFC 9110 §13.1.1: a weak tag names no version for a change.
            let response = get(&running, over, "/a.html", &[gzip, ("if-match", &weak)]).await;
            assert_eq!(response.status(), StatusCode::PRECONDITION_FAILED);
        }
    });
}

#[test]
fn ranges_are_those_of_the_content_as_it_is() {
    run(async {
        let page = text(20_000);
        let (running, compression, _directory) = site(&[("a.html", &page), ("a.png", &page)]).await;
        let (gzip, range) = (("accept-encoding", "gzip"), ("range", "bytes=100-1099"));
        let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
        for over in BOTH {
            let strong = field(get(&running, over, "/a.html", &[]).await.headers(), "etag").to_owned();
            let weak = format!("W/{strong}");
            for fields in [vec![gzip, range], vec![gzip, range, ("if-range", &strong)]] {
                let response = get(&running, over, "/a.html", &fields).await;
                let headers = response.headers();
                assert_eq!(
                    (response.status(), &response.body()[..]),
                    (StatusCode::PARTIAL_CONTENT, &page[100..1100])
                );
                assert_eq!(
                    (field(headers, "etag"), field(headers, "content-encoding")),
                    (strong.as_str(), "")
                );
                assert_eq!(
                    (field(headers, "vary"), field(headers, "content-length")),
                    ("accept-encoding", "1000")
                );
            }
            // Neither tells that the client holds a part of the content as it is.
            for condition in [weak.as_str(), modified] {
                let response = get(&running, over, "/a.html", &[gzip, range, ("if-range", condition)]).await;
                assert_eq!(
                    (response.status(), field(response.headers(), "content-encoding")),
                    (StatusCode::OK, "gzip")
                );
                assert_eq!(whole("gzip", response.body()), page);
            }
            // A client that takes no coding has no other content of that date.
            let response = get(&running, over, "/a.html", &[range, ("if-range", modified)]).await;
            assert_eq!(
                (response.status(), &response.body()[..]),
                (StatusCode::PARTIAL_CONTENT, &page[100..1100])
            );
            let several = ("range", "bytes=0-1, 4-5");
            let response = get(&running, over, "/a.html", &[gzip, several]).await;
            assert_eq!(
                (response.status(), field(response.headers(), "content-encoding")),
                (StatusCode::PARTIAL_CONTENT, "")
            );
        }
        assert_eq!(compression.counters().gzip, 2 * 2);
    });
}

#[test]
fn a_piece_arrives_before_the_next_one_is_made() {
    run(async {
        for over in BOTH {
            for coding in ["zstd", "br", "gzip"] {
                let (mut sender, body) = Channel::<Payload, BoxError>::new(1);
                let body = Arc::new(std::sync::Mutex::new(Some(body)));
                let service = answering(move |_| {
                    let body = body.lock().unwrap().take().unwrap();
                    response(&[("content-type", "application/x-ndjson")], UnsyncBoxBody::new(body))
                });
                let running = serve(service).await;
                let accepted = [("accept-encoding", coding)];
                let mut expected = b"first\n".to_vec();
                sender.send_data(Payload::from_static(b"first\n")).await.unwrap();
                let got = begin(&running, over, Method::GET, "/", &accepted).await;
                assert_eq!(field(got.headers(), "content-encoding"), coding);
                let (mut body, mut bytes) = (got.into_body(), Vec::new());
                for number in 0..20 {
                    while decode(coding, &bytes).0 != expected {
                        bytes.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
                    }
                    // A flush of what does not compress takes several steps.
                    let piece = match number % 2 {
                        0 => text(number * 1000 + 1),
                        _ => noise(u8::try_from(number).unwrap(), number * 2000 + 1),
                    };
                    expected.extend_from_slice(&piece);
                    sender.send_data(piece.into()).await.unwrap();
                }
                drop(sender);
                bytes.extend_from_slice(&body.collect().await.unwrap().to_bytes());
                assert_eq!(whole(coding, &bytes), expected);
            }
        }
    });
}

#[test]
fn trailers_and_failures_follow_the_compressed_content() {
    run(async {
        let service = answering(|path| {
            let fails = path == "/fails";
            let mut frames = vec![Ok(Frame::data(Payload::from(text(30_000))))];
            if fails {
                frames.push(Err("broken".into()));
            } else {
                frames.push(Ok(Frame::trailers(
                    [("x-end".parse().unwrap(), "yes".parse().unwrap())].into_iter().collect(),
                )));
            }
            let mut frames = frames.into_iter();
            let stream = poll_fn_stream(move |_| Poll::Ready(frames.next()));
            response(&[("content-type", "text/plain")], UnsyncBoxBody::new(StreamBody::new(stream)))
        });
        let running = serve(service).await;
        for coding in ["zstd", "br", "gzip"] {
            let accepted = [("accept-encoding", coding)];
            let got = begin(&running, Over::Http2, Method::GET, "/", &accepted).await;
            let collected = got.into_body().collect().await.unwrap();
            assert_eq!(collected.trailers().map(|it| field(it, "x-end").to_owned()), Some("yes".to_owned()));
            assert_eq!(whole(coding, &collected.to_bytes()), text(30_000));
            // The stream is reset, before its head or after it.
            let mut client = running.client().await;
            let request =
                Request::get("http://test/fails").header("accept-encoding", coding).body(()).unwrap();
            if let Ok(response) = client.send_request(request, true).unwrap().0.await {
                read(response).await.unwrap_err();
            }
            // The last chunk would make the content a whole one (RFC 9112 §7.1).
            let mut stream = TcpStream::connect(running.addr).await.unwrap();
            let request = format!("GET /fails HTTP/1.1\r\nhost: test\r\naccept-encoding: {coding}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut got = Vec::new();
            // The connection may also be reset.
            _ = stream.read_to_end(&mut got).await;
            assert!(!got.ends_with(b"\r\n0\r\n\r\n"));
        }
    });
}

#[test]
fn a_compressed_body_is_over_once_it_has_failed() {
    for coding in ["zstd", "br", "gzip"] {
        let compression = Compression::default();
        // More than a frame is ready when the body fails.
        let mut frames = vec![Ok(Frame::data(noise(0, 30_000).into())), Err("broken".into())].into_iter();
        let frames = poll_fn_stream(move |_| Poll::Ready(frames.next()));
        let mut body = compressed(&compression, coding, UnsyncBoxBody::new(StreamBody::new(frames)));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let failed = loop {
            match Pin::new(&mut body).poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
                Poll::Ready(other) => break other,
            }
        };
        assert_eq!(failed.unwrap().unwrap_err().to_string(), "broken");
        assert!(body.is_end_stream());
        assert!(matches!(Pin::new(&mut body).poll_frame(&mut cx), Poll::Ready(None)));
        let counters = compression.counters();
        // The failure is that of the body.
        assert_eq!((counters.encoders, counters.memory, counters.failed), (0, Bytes::ZERO, 0));
    }
}

#[test]
fn flushed_output_leaves_before_more_input_is_taken() {
    for coding in ["zstd", "br", "gzip"] {
        let compression = Compression::default();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        // A source as fast as the encoder: whenever it is asked a second time, its next piece is ready.
        let frames = poll_fn_stream(move |cx| match count.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => Poll::Ready(Some(Ok(Frame::data(Payload::from_static(b"data: 1\n\n"))))),
            _ => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        });
        let mut body = compressed(&compression, coding, UnsyncBoxBody::new(StreamBody::new(frames)));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for pieces in 1..4 {
            let frame = Pin::new(&mut body).poll_frame(&mut cx);
            assert!(matches!(frame, Poll::Ready(Some(Ok(_)))), "{coding}");
            assert_eq!(asked.load(Ordering::Relaxed), 2 * pieces, "{coding}");
        }
    }
}

#[test]
fn responses_beyond_the_memory_are_sent_as_they_are() {
    run(async {
        let mut config = CompressionConfig::default();
        // One encoder of gzip, and not a byte more.
        config.memory = Bytes::new(320 << 10);
        let compression = Compression::new(config).unwrap();
        let (hold, held) = Channel::<Payload, BoxError>::new(1);
        let held = Arc::new(std::sync::Mutex::new(Some(held)));
        let service = tower::service_fn(move |request: Request<marcato_web::Body>| {
            let body = match request.uri().path() {
                "/held" => UnsyncBoxBody::new(held.lock().unwrap().take().unwrap()),
                _ => full(text(20_000)),
            };
            async move { Ok::<_, Infallible>(response(&[("content-type", "text/css")], body)) }
        });
        let running = serve(compression.around(service)).await;
        let accepted = [("accept-encoding", "gzip")];
        let first = begin(&running, Over::Http2, Method::GET, "/held", &accepted).await;
        assert_eq!(field(first.headers(), "content-encoding"), "gzip");
        assert_eq!(compression.counters().encoders, 1);
        for over in BOTH {
            let response = get(&running, over, "/", &accepted).await;
            assert_eq!((field(response.headers(), "content-encoding"), response.body()), ("", &text(20_000)));
            assert_eq!(field(response.headers(), "vary"), "accept-encoding");
            assert_eq!(field(response.headers(), "content-length"), "20000");
        }
        assert_eq!((compression.counters().crowded, compression.counters().gzip), (2, 1));
        // A client that goes away gives its memory back.
        drop((first, hold));
        until(|| compression.counters().encoders == 0).await;
        assert_eq!(compression.counters().memory, Bytes::ZERO);
        let response = get(&running, Over::Http2, "/", &accepted).await;
        assert_eq!(field(response.headers(), "content-encoding"), "gzip");
    });
}

#[test]
fn responses_of_an_origin_are_compressed_on_their_way() {
    run(async {
        let origin = serve(tower::service_fn(|request: Request<marcato_web::Body>| async move {
            let fields =
                [("content-type", "application/json"), ("etag", "\"v1\""), ("accept-ranges", "bytes")];
            let mut response = response(&fields, full(text(200_000)));
            if request.headers().contains_key("if-none-match") {
                (*response.status_mut(), *response.body_mut()) = (StatusCode::NOT_MODIFIED, full(""));
            }
            Ok::<_, Infallible>(response)
        }))
        .await;
        let compression = Compression::default();
        let proxy = Proxy::new(ProxyConfig::to(format!("http://{}", origin.addr))).unwrap();
        let running = serve(compression.around(proxy)).await;
        for over in BOTH {
            for coding in ["zstd", "br", "gzip"] {
                let accepted = ("accept-encoding", coding);
                let response = get(&running, over, "/", &[accepted]).await;
                let headers = response.headers();
                assert_eq!(
                    (field(headers, "content-encoding"), field(headers, "etag")),
                    (coding, "W/\"v1\"")
                );
                assert_eq!(field(headers, "vary"), "accept-encoding");
                assert!(!headers.contains_key("accept-ranges") && !headers.contains_key("content-length"));
                assert_eq!(whole(coding, response.body()), text(200_000));
                let response = get(&running, over, "/", &[accepted, ("if-none-match", "W/\"v1\"")]).await;
                assert_eq!(field(response.headers(), "etag"), "W/\"v1\"");
            }
        }
    });
}

#[test]
fn a_router_of_axum_has_it_as_a_layer() {
    run(async {
        use axum::routing::get as route;
        let page = || async { ([("content-type", "text/html")], text(5000)) };
        let router = axum::Router::new().route("/", route(page)).layer(Compression::default());
        let running = serve(router).await;
        for over in BOTH {
            let response = get(&running, over, "/", &[("accept-encoding", "zstd")]).await;
            assert_eq!(whole("zstd", response.body()), text(5000));
        }
    });
}

/// Counter of the times that a task was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Compressed body of a response, without a server.
fn compressed(compression: &Compression, coding: &str, body: TestBody) -> CompressedBody<TestBody> {
    let mut request = Request::get("/").header("accept-encoding", coding).body(()).unwrap();
    let negotiated = compression.negotiate(&mut request);
    let response = negotiated.apply(response(&[("content-type", "text/css")], body));
    assert!(response.body().is_compressed());
    response.into_body()
}

#[test]
fn a_large_piece_leaves_others_their_turn() {
    for coding in ["zstd", "br", "gzip"] {
        let compression = Compression::default();
        let page = text(4 << 20);
        let mut body = compressed(&compression, coding, full(page.clone()));
        let woken = Arc::new(Woken::default());
        let waker = Arc::clone(&woken).into();
        let mut cx = Context::from_waker(&waker);
        let (mut bytes, mut before, mut since, mut turns) = (Vec::new(), 0, 0, 0);
        loop {
            let polled = Pin::new(&mut body).poll_frame(&mut cx);
            let read = compression.counters().read.get();
            since += read - before;
            before = read;
            // Input since a task last gave way.
            assert!(since <= 48 << 10, "{coding}: {since} bytes in one turn");
            match polled {
                Poll::Pending => {
                    (since, turns) = (0, turns + 1);
                    assert_eq!(woken.0.load(Ordering::Relaxed), turns, "nothing else would wake it");
                }
                Poll::Ready(Some(frame)) => {
                    let data = frame.unwrap().into_data().unwrap();
                    assert!(!data.is_empty() && data.len() <= 16 << 10);
                    bytes.extend_from_slice(&data);
                }
                Poll::Ready(None) => break,
            }
        }
        assert!(body.is_end_stream() && turns > 80, "{turns}");
        assert_eq!(whole(coding, &bytes), page);
    }
}

#[test]
fn an_encoder_ends_although_its_client_reads_slowly() {
    run(async {
        for coding in ["zstd", "br", "gzip"] {
            let compression = Compression::default();
            // It is compressed to more than a frame, and to less than an encoder may be ahead.
            let page = [text(60_000), noise(0, 40_000)].concat();
            let mut body = compressed(&compression, coding, full(page.clone()));
            let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!((first.len(), compression.counters().encoders), (16 << 10, 1));
            let second = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!((second.len(), compression.counters().encoders), (16 << 10, 0));
            assert_eq!(compression.counters().memory, Bytes::ZERO);
            let rest = body.collect().await.unwrap().to_bytes();
            assert_eq!(whole(coding, &[first, second, rest].concat()), page);
        }
    });
}

#[test]
fn the_level_of_a_coding_is_used() {
    run(async {
        let page = text(300_000);
        for levels in [
            [Codec::Zstd(1), Codec::Zstd(9)],
            [Codec::Brotli(0), Codec::Brotli(6)],
            [Codec::Gzip(1), Codec::Gzip(9)],
        ] {
            let mut lens = Vec::new();
            for codec in levels {
                let mut config = CompressionConfig::default();
                config.codecs = vec![codec];
                let compression = Compression::new(config).unwrap();
                let body = compressed(&compression, codec.name(), full(page.clone()));
                lens.push(body.collect().await.unwrap().to_bytes().len());
            }
            // A higher one makes mostly, but not always, less.
            assert_ne!(lens[0], lens[1], "{levels:?}");
        }
    });
}

#[test]
fn the_head_of_an_unknown_length_has_a_coding() {
    // The service leaves out the content, and its length with it: that of GET is known to nobody.
    let mut request = Request::head("/").header("accept-encoding", "gzip").body(()).unwrap();
    let negotiated = Compression::default().negotiate(&mut request);
    let response = negotiated.apply(response(&[("content-type", "text/css")], full("")));
    assert_eq!(response.headers()["content-encoding"], "gzip");
}

#[test]
fn configurations_that_cannot_be_used_are_refused() {
    let with = |change: fn(&mut CompressionConfig)| {
        let mut config = CompressionConfig::default();
        change(&mut config);
        Compression::new(config).map(|_| ())
    };
    assert_eq!(with(|_| {}), Ok(()));
    assert_eq!(with(|config| config.codecs.clear()), Err(CompressionError::NoCodec));
    assert_eq!(with(|config| config.codecs.push(Codec::Gzip(1))), Err(CompressionError::Twice("gzip")));
    assert_eq!(with(|config| config.types.push("text".into())), Err(CompressionError::Type("text".into())));
    for (codec, coding, level, least, most) in [
        (Codec::Zstd(0), "zstd", 0, 1, 9),
        (Codec::Zstd(10), "zstd", 10, 1, 9),
        (Codec::Brotli(7), "br", 7, 0, 6),
        (Codec::Gzip(0), "gzip", 0, 1, 9),
        (Codec::Gzip(10), "gzip", 10, 1, 9),
    ] {
        let mut config = CompressionConfig::default();
        config.codecs = vec![codec];
        let error = CompressionError::Level { coding, level, least, most };
        assert_eq!(Compression::new(config).unwrap_err(), error);
    }
    // Each of its types and each level is one.
    for codec in [Codec::ZSTD, Codec::BROTLI, Codec::GZIP] {
        let (least, most) = codec.levels();
        for level in least..=most {
            let mut config = CompressionConfig::default();
            config.codecs = vec![match codec {
                Codec::Zstd(_) => Codec::Zstd(level),
                Codec::Brotli(_) => Codec::Brotli(level),
                Codec::Gzip(_) => Codec::Gzip(level),
            }];
            let compression = Compression::new(config).unwrap();
            let body = compressed(&compression, codec.name(), full(text(300_000)));
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let bytes = runtime.block_on(body.collect()).unwrap().to_bytes();
            assert_eq!(whole(codec.name(), &bytes), text(300_000), "{codec:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_pieces_come_out_as_they_went_in(
        pieces in prop::collection::vec((0..70_000_usize, any::<u8>(), any::<bool>()), 0..8),
        coding in prop::sample::select(vec!["zstd", "br", "gzip"]),
    ) {
        let made: Vec<Vec<u8>> = pieces
            .iter()
            .map(|(len, salt, is_noise)| {
                if *is_noise { noise(*salt, *len) } else { text(*len) }
            })
            .collect();
        let waits: Vec<bool> = pieces.iter().map(|(_, salt, _)| salt % 3 == 0).collect();
        let mut waiting = made.clone().into_iter().zip(waits);
        let mut held: Option<Vec<u8>> = None;
        // Some pieces let the encoder wait once, which flushes what it has.
        let stream = poll_fn_stream(move |cx| {
            if let Some(piece) = held.take() {
                return Poll::Ready(Some(Ok(Frame::data(piece.into()))));
            }
            match waiting.next() {
                Some((piece, true)) => {
                    held = Some(piece);
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Some((piece, false)) => Poll::Ready(Some(Ok(Frame::data(piece.into())))),
                None => Poll::Ready(None),
            }
        });
        let compression = Compression::default();
        let body = compressed(&compression, coding, UnsyncBoxBody::new(StreamBody::new(stream)));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = runtime.block_on(body.collect()).unwrap().to_bytes();
        prop_assert_eq!(whole(coding, &bytes), made.concat());
        let counters = compression.counters();
        prop_assert_eq!(counters.written.get(), bytes.len() as u64);
        prop_assert_eq!((counters.encoders, counters.memory), (0, Bytes::ZERO));
    }
}

/// Waits for a future that may need to be polled more than once.
#[test]
fn a_service_that_is_not_ready_is_waited_for() {
    #[derive(Clone, Default)]
    struct Late(bool);
    impl Service<Request<()>> for Late {
        type Response = Response<TestBody>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<TestBody>, Infallible>>;

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Ready(Ok(()));
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            assert!(self.0, "called before it was ready");
            std::future::ready(Ok(response(&[("content-type", "text/css")], full(text(1000)))))
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut service = Compression::default().around(Late::default());
        poll_fn(|cx| Service::<Request<()>>::poll_ready(&mut service, cx)).await.unwrap();
        let request = Request::get("/").header("accept-encoding", "br").body(()).unwrap();
        let response = service.call(request).await.unwrap();
        assert_eq!(whole("br", &response.into_body().collect().await.unwrap().to_bytes()), text(1000));
    });
}
