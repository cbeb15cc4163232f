//! Server of a test, and clients that speak frame by frame.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use h2::RecvStream;
use h2::client::{self, SendRequest};
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use marcato_web::{Body, BoxError, Config, Record, Server, WebService};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tower::ServiceExt as _;
use tower::util::BoxCloneService;

/// Patience of a test. It ends only those that would hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test on a runtime of its own, and fails it if it hangs.
pub(crate) fn run(test: impl Future<Output = ()>) {
    run_for(PATIENCE, test);
}

/// Runs a test on a runtime of its own, and fails it if it takes longer.
pub(crate) fn run_for(patience: Duration, test: impl Future<Output = ()>) {
    run_object(patience, Box::pin(test));
}

/// Runs a test as an object, so that the runtime is not compiled for each of them.
fn run_object(patience: Duration, test: Pin<Box<dyn Future<Output = ()> + '_>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(patience, test).await.expect("the test hangs") });
}

/// Lets all tasks run until a condition holds. Fails the test if it never does.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "the test hangs");
        tokio::task::yield_now().await;
    }
}

/// Configuration of a server whose records are kept, and these.
pub(crate) fn recording() -> (Config, Arc<Mutex<Vec<Record>>>) {
    let records: Arc<Mutex<Vec<Record>>> = Arc::default();
    let kept = Arc::clone(&records);
    let mut config = Config::default();
    config.log = Some(Arc::new(move |record: &Record| kept.lock().unwrap().push(record.clone())));
    (config, records)
}

/// Most bytes of a piece that a source has at once: as much as is staged by default.
pub(crate) const PIECE: usize = 16 << 10;

/// Content whose pieces are there already, as those of a file in the page cache. It holds something as a handler
/// would hold a file, or a connection to an origin.
pub(crate) struct Pieces<H>(usize, H);

impl<H> Pieces<H> {
    pub(crate) const fn holding(length: usize, held: H) -> Self {
        Self(length, held)
    }
}

impl<H: Unpin> futures_core::Stream for Pieces<H> {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let len = self.0.min(PIECE);
        self.0 -= len;
        Poll::Ready((len > 0).then(|| Ok(Frame::data(vec![b'x'; len].into()))))
    }
}

type ErasedService = BoxCloneService<Request<Body>, Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>;

/// Service as an object, so that the server is compiled once for all tests, and not for each service of theirs.
pub(crate) fn erased(service: impl WebService) -> ErasedService {
    BoxCloneService::new(
        service
            .map_response(|response| response.map(|body| Erased(Box::pin(body)).boxed_unsync()))
            .map_err(Into::into),
    )
}

/// Content with its hints, for data and errors of any kind.
struct Erased<B>(Pin<Box<B>>);

impl<B: HttpBody<Error: Into<BoxError>>> HttpBody for Erased<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let whole = |mut data: B::Data| data.copy_to_bytes(data.remaining());
        self.0
            .as_mut()
            .poll_frame(cx)
            .map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(whole)).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Server that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) addr: SocketAddr,
    end: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Starts a server whose congestion control is the same on every machine: BBR, the default of some, is left more
    /// bytes to send than another one.
    pub(crate) async fn start(server: Server, service: impl WebService) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        SockRef::from(&listener).set_tcp_congestion(b"reno").unwrap();
        Self::start_at(listener, server, service).await
    }

    pub(crate) async fn start_at(listener: TcpListener, server: Server, service: impl WebService) -> Self {
        Self::start_erased(listener, server, erased(service))
    }

    fn start_erased(listener: TcpListener, server: Server, service: ErasedService) -> Self {
        let addr = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let served = server.clone();
        let task = tokio::spawn(async move {
            served.serve_until(listener, service, async { _ = ended.await }).await;
        });
        Self { server, addr, end, task }
    }

    /// Ends the server once its requests are finished.
    pub(crate) async fn end(self) -> Server {
        drop(self.end);
        self.task.await.unwrap();
        self.server
    }

    pub(crate) async fn client(&self) -> SendRequest<Bytes> {
        self.client_with(&mut client::Builder::new()).await
    }

    pub(crate) async fn client_with(&self, builder: &mut client::Builder) -> SendRequest<Bytes> {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        let (send, connection) = builder.handshake(stream).await.unwrap();
        tokio::spawn(async move { _ = connection.await });
        send.ready().await.unwrap()
    }

    /// Response to a request of HTTP/1.1, as text.
    pub(crate) async fn http1(&self, path: &str, fields: &str) -> String {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{fields}connection: close\r\n\r\n", self.addr);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }
}

pub(crate) fn get(path: &str) -> Request<()> {
    Request::get(format!("http://test{path}")).body(()).unwrap()
}

pub(crate) fn get_with(path: &str, priority: &str) -> Request<()> {
    let mut request = get(path);
    request.headers_mut().insert("priority", priority.parse().unwrap());
    request
}

pub(crate) async fn fetch(client: &mut SendRequest<Bytes>, request: Request<()>) -> Response<RecvStream> {
    poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
    client.send_request(request, true).unwrap().0.await.unwrap()
}

pub(crate) async fn read(response: Response<RecvStream>) -> Result<Vec<u8>, h2::Error> {
    let (mut body, mut content) = (response.into_body(), Vec::new());
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        content.extend_from_slice(&data);
    }
    Ok(content)
}

/// Client of HTTP/2 that sends and reads frames.
pub(crate) struct RawClient(pub(crate) TcpStream);

/// Frame of a server: its type, flags, stream and payload.
pub(crate) type RawFrame = (u8, u8, u32, Vec<u8>);

impl RawClient {
    /// Connects, and sends the preface with these settings.
    pub(crate) async fn connect(addr: SocketAddr, settings: &[u8]) -> Self {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, settings)].concat();
        stream.write_all(&preface).await.unwrap();
        Self(stream)
    }

    pub(crate) async fn send(&mut self, frames: &[u8]) {
        self.0.write_all(frames).await.unwrap();
    }

    /// Returns the next frame; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<RawFrame> {
        let mut header = [0; 9];
        self.0.read_exact(&mut header).await.ok()?;
        let len = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let mut payload = vec![0; len];
        self.0.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes(header[5..9].try_into().unwrap());
        Some((header[3], header[4], stream, payload))
    }

    /// Returns the code of GOAWAY with which the server closes; `None` if it has not said one.
    pub(crate) async fn goaway(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some((kind, _, _, payload)) = self.next().await {
            if kind == 7 {
                code = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
        }
        code
    }
}

/// Bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// HEADERS with a whole request for a path.
pub(crate) fn headers(stream: u32, path: &str) -> Vec<u8> {
    frame(1, 5, stream, &fields(path))
}

/// Fields of a request, compressed (RFC 7541): three of the static table, and a path.
pub(crate) fn fields(path: &str) -> Vec<u8> {
    [b"\x82\x86\x41\x04test\x44".as_slice(), &[u8::try_from(path.len()).unwrap()], path.as_bytes()].concat()
}
