//! Clients that ask a server the same over HTTP/1.1, HTTP/2 and HTTP/3, and an origin that tells of its requests.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::ClientConfig;

use crate::Running;

/// Response to a request: status, the fields that no version of HTTP decides, and content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) content: String,
}

impl Reply {
    fn new(status: u16, headers: &HeaderMap, content: &[u8]) -> Self {
        let differ = ["date", "alt-svc", "connection", "via", "transfer-encoding"];
        let fields = headers.iter().filter(|(name, _)| !differ.contains(&name.as_str()));
        let mut headers: Vec<_> =
            fields.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        headers.sort();
        Self { status, headers, content: String::from_utf8(content.to_vec()).unwrap() }
    }

    /// Returns the value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    /// Returns status and content.
    pub(crate) fn told(&self) -> (u16, &str) {
        (self.status, &self.content)
    }
}

/// Client of a server with TLS.
pub(crate) struct Versions {
    pub(crate) tls: ClientConfig,
    host: String,
    pub(crate) addr: SocketAddr,
}

impl Versions {
    /// Client of the first listener of a server, for a host whose certificate it accepts.
    pub(crate) fn of(running: &Running, certificate: &str) -> Self {
        let tls = running.trusting(&[certificate]);
        Self { tls, host: format!("{certificate}.test"), addr: running.addrs[0].parse().unwrap() }
    }

    /// Asks for a path over all versions, and checks that they answer alike.
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.get_with(path, &[])
    }

    /// Asks for a path with fields.
    pub(crate) fn get_with(&self, path: &str, fields: &[(&'static str, &str)]) -> Reply {
        self.ask("GET", path, fields, "")
    }

    /// Asks for a path with fields and a body.
    pub(crate) fn ask(&self, method: &str, path: &str, fields: &[(&'static str, &str)], body: &str) -> Reply {
        let request = || {
            let uri = format!("https://{}{path}", self.host);
            let mut request =
                Request::builder().method(method).uri(uri).body(Bytes::from(body.to_owned())).unwrap();
            for (name, value) in fields {
                request.headers_mut().append(*name, HeaderValue::from_str(value).unwrap());
            }
            request
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let http1 = self.over_tcp("http/1.1", request()).await;
            assert_eq!(http1, self.over_tcp("h2", request()).await, "HTTP/2, {method} {path}");
            assert_eq!(http1, self.over_quic(request()).await, "HTTP/3, {method} {path}");
            http1
        })
    }

    /// Asks for a path over one version, with TCP below.
    pub(crate) fn get_over_tcp(&self, alpn: &str, path: &str) -> Reply {
        let request = Request::get(format!("https://{}{path}", self.host)).body(Bytes::new()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.over_tcp(alpn, request))
    }

    async fn over_tcp(&self, alpn: &str, request: Request<Bytes>) -> Reply {
        let mut tls = self.tls.clone();
        tls.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let stream = tokio::net::TcpStream::connect(self.addr).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
        let stream = connector.connect(self.host.clone().try_into().unwrap(), stream).await.unwrap();
        let io = TokioIo::new(stream);
        let mut request = request.map(Full::new);
        let response = if alpn == "h2" {
            let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
            let (mut send, connection) = handshake.await.unwrap();
            tokio::spawn(connection);
            send.send_request(request).await.unwrap()
        } else {
            let (mut send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            request.headers_mut().insert("host", HeaderValue::from_str(&self.host).unwrap());
            *request.uri_mut() = request.uri().path_and_query().unwrap().as_str().parse().unwrap();
            send.send_request(request).await.unwrap()
        };
        let (head, body) = response.into_parts();
        let content = body.collect().await.unwrap().to_bytes();
        Reply::new(head.status.as_u16(), &head.headers, &content)
    }

    async fn over_quic(&self, request: Request<Bytes>) -> Reply {
        let mut tls = self.tls.clone();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let endpoint = quinn::Endpoint::client("0.0.0.0:0".parse().unwrap()).unwrap();
        let connection = endpoint.connect_with(config, self.addr, &self.host).unwrap().await.unwrap();
        let (mut driver, mut requests) =
            h3::client::new(h3_quinn::Connection::new(connection)).await.unwrap();
        let driver = tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        let (mut head, body) = request.into_parts();
        if !body.is_empty() {
            head.headers.insert("content-length", body.len().into());
        }
        let mut stream = requests.send_request(Request::from_parts(head, ())).await.unwrap();
        if !body.is_empty() {
            // The server may ask to stop, and answers nonetheless.
            let _ = stream.send_data(body).await;
        }
        let _ = stream.finish().await;
        let head = stream.recv_response().await.unwrap();
        let mut content = Vec::new();
        while let Some(mut data) = stream.recv_data().await.unwrap() {
            let len = data.remaining();
            content.extend_from_slice(&data.copy_to_bytes(len));
        }
        driver.abort();
        Reply::new(head.status().as_u16(), head.headers(), &content)
    }
}

/// Origin that answers each request with its head and the length of its body. The status is that of a path `/status/…`.
pub(crate) fn telling() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || tell(&stream, &stream, ""));
        }
    });
    format!("http://{addr}")
}

/// Answers the requests of a connection, each with a first line, its head, and the length of its body.
pub(crate) fn tell(read: impl std::io::Read, mut write: impl std::io::Write, first: &str) -> Option<()> {
    let mut reader = BufReader::new(read);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let head = head.trim_end().replace("\r\n", "\n").to_ascii_lowercase();
        let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let mut body = 0;
        if value("transfer-encoding").is_some() {
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
                let len = usize::from_str_radix(line.trim(), 16).unwrap();
                let mut chunk = vec![0; len + 2];
                reader.read_exact(&mut chunk).ok()?;
                body += len;
                if len == 0 {
                    break;
                }
            }
        } else if let Some(len) = value("content-length") {
            body = len.parse().unwrap();
            reader.read_exact(&mut vec![0; body]).ok()?;
        }
        let path = head.split(' ').nth(1).unwrap();
        // Versions of HTTP have their fields in orders of their own.
        let (line, fields) = head.split_once('\n').unwrap_or((&head, ""));
        let mut fields: Vec<&str> = fields.lines().collect();
        fields.sort_unstable();
        let told = fields.join("\n");
        let status = path.strip_prefix("/status/").unwrap_or("200");
        let text = format!("{first}{line}\n{told}\nbody {body}\n");
        let len = text.len();
        let fields = "server: origin\r\nx-origin: yes\r\nx-both: origin\r\n";
        write!(write, "HTTP/1.1 {status} told\r\n{fields}content-length: {len}\r\n\r\n{text}").ok()?;
    }
}
