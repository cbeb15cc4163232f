//! `marcato perf client`: sends messages, and receives reports of their arrival from the server.

use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use marcato_net::{
    ClientSecurity, CloseReason, Closed, ConfigError, ConnectError, Connection, Endpoint, LaneConfig,
    LaneStats, Message, Named, Remote, Target,
};
use marcato_quic::{Fingerprint, Trust};
use marcato_units::{Bytes, Layer, Priority};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout, timeout_at};

use super::book::{Book, BookError};
use super::clock::{self, Exchange, Offset};
use super::cpu::CpuTime;
use super::direction::{Direction, Mode};
use super::generator::{Generator, GeneratorError, Origin};
use super::interval::{Interval, Intervals};
use super::lane::LaneSample;
use super::log::Log;
use super::measured::{Counted, Measured, ns};
use super::outcome::{Clock, ConnectionOutcome, Outcome};
use super::plan::{BACKLOG, EngineName, LaneSpec, PORT, Plan, PlanError, is_address};
use super::protocol::{Hello, HostMark, Refusal, Reply, Report, Request, SourceKind};
use super::quantity::{shown_size, shown_span};
use super::released::lock;
use super::scheduler::{PathName, StreamName};
use super::send::Span;
use super::signals::Signals;
use super::{NAME, PerfError, SILENCE};
use crate::Status;
use crate::arguments::{Format, PerfClient};

/// Time within which a perf server answers.
const ANSWER: Duration = Duration::from_secs(5);
/// Time in which a server usually answers the first packet.
const ANSWERED: Duration = Duration::from_millis(500);
/// Number of clock exchanges before anything is sent.
const FIRST_PINGS: u64 = 10;
/// Interval between clock exchanges after that.
const PINGS: Duration = Duration::from_secs(1);
/// Interval of sampling the lanes and of redrawing the progress line.
const LOOK: Duration = Duration::from_millis(100);
/// Time for which messages may still arrive after the end.
const LINGER: Duration = Duration::from_secs(10);
/// Time limit of closing the connection, of the last report after an interrupt, and of lane setup.
const FAREWELL: Duration = Duration::from_secs(2);
/// Default duration, and that of a run that ends with an amount of data.
const DURATION: Duration = Duration::from_secs(10);
const MAX_DURATION: Duration = Duration::from_secs(3600);
/// Duration of a run that a signal is to end.
const ENDLESS: Duration = Duration::from_secs(86_400);

pub(crate) fn run(asked: &PerfClient, stdout: &mut dyn Write) -> Result<Status, PerfError> {
    let plan = plan(asked)?;
    let mut log = Log::open(asked.logfile.as_deref(), stdout)?;
    // Held until the files are written: without a result, it leaves no empty directory.
    let _directory = super::outcome::prepare(asked.out.as_deref(), asked.svg.as_deref())?;
    let (sender, lines) = mpsc::unbounded_channel();
    let sender = (asked.format() == Format::Text).then_some(sender);
    let runtime = super::runtime()?;
    let (outcome, end) = runtime.block_on(printing(measure(asked, &plan, sender), lines, &mut log))?;
    // The result is printed also if it cannot be written: it is not lost.
    let written = outcome.write(asked.out.as_deref(), asked.svg.as_deref());
    let printed = match asked.format() {
        Format::Text => outcome.to_text(),
        Format::Json => outcome.to_json(),
        Format::Csv => outcome.to_csv(),
    };
    log.write(&printed);
    written?;
    log.end()?;
    match (end, outcome.cut) {
        (End::Interrupted, _) => Err(PerfError::Interrupted),
        (_, Some(reason)) => Err(PerfError::Incomplete(reason)),
        (_, None) => Ok(Status::Ok),
    }
}

/// Prints lines while a run goes on, and returns its result.
async fn printing<T>(
    run: impl Future<Output = Result<T, PerfError>>,
    mut lines: mpsc::UnboundedReceiver<String>,
    log: &mut Log<'_>,
) -> Result<T, PerfError> {
    tokio::pin!(run);
    let done = loop {
        tokio::select! {
            Some(line) = lines.recv() => log.write(&line),
            done = &mut run => break done,
        }
    };
    while let Ok(line) = lines.try_recv() {
        log.write(&line);
    }
    done
}

/// Returns the plan for these arguments, with defaults for what they leave open.
fn plan(asked: &PerfClient) -> Result<Plan, PerfError> {
    let tcp = asked.engine == EngineName::Tcp;
    let mode = match (asked.reverse, asked.bidir) {
        (true, _) => Mode::Reverse,
        (_, true) => Mode::Both,
        _ => Mode::Forward,
    };
    let options =
        [("--path-scheduler", asked.path_scheduler.is_some()), ("--backlog", asked.backlog.is_some())];
    if let Some((option, _)) = options.into_iter().find(|(_, given)| *given && mode == Mode::Reverse) {
        return Err(PlanError::ServerSends { option }.into());
    }
    let path = match asked.path_scheduler {
        Some(_) if tcp => return Err(PlanError::PathOverTcp.into()),
        Some(path) => path,
        None if tcp || asked.stream_scheduler == StreamName::Rr => PathName::Lowrtt,
        None => PathName::Cwr,
    };
    let nothing = asked.sources.is_empty() && asked.bulk.is_none();
    let usual = |text: &str| text.parse().map_err(PerfError::Usage);
    let plan = Plan {
        engine: asked.engine,
        mode,
        connections: asked.parallel,
        sources: if nothing { vec![usual("100ms:10kB:p0")?] } else { asked.sources.clone() },
        bulk: if nothing { Some("p4".parse().map_err(PerfError::Usage)?) } else { asked.bulk },
        bitrate: asked.bitrate.filter(|rate| rate.as_bps() > 0),
        bytes: asked.bytes,
        unreliable: asked.unreliable,
        path,
        layered: asked.layered,
        coupled: asked.coupled,
        marks: asked.marks,
        stream: asked.stream_scheduler,
        duration: match asked.duration {
            Some(Duration::ZERO) => ENDLESS,
            Some(duration) => duration,
            None if asked.bytes.is_some() => MAX_DURATION,
            None => DURATION,
        },
        warm_up: asked.warm_up,
        backlog: asked.backlog.unwrap_or(BACKLOG),
        seed: asked.seed,
        raw: asked.raw,
    };
    plan.check(1 + asked.lanes.len())?;
    Ok(plan)
}

/// Returns the certificates to accept, and the server's name to verify.
fn security(asked: &PerfClient, host: &str) -> Result<ClientSecurity, PerfError> {
    // A zone is no part of the address that a certificate is for.
    let host = host.split('%').next().unwrap_or(host);
    let named = |usual: &str| asked.name.clone().unwrap_or_else(|| usual.to_owned());
    if let Some(fingerprint) = asked.fingerprint {
        return Ok(ClientSecurity::trusting(named(NAME), Trust::Fingerprint(fingerprint)));
    }
    let Some(path) = &asked.ca else { return Ok(ClientSecurity::verified(named(host))) };
    Ok(ClientSecurity::trusting(named(host), Trust::from_pem_file(path)?))
}

/// Returns the server by its name if there is one lane to it, so that all its addresses are tried;
/// otherwise by the first address of each lane.
async fn target(asked: &PerfClient) -> Result<Target, PerfError> {
    let port = asked.port.unwrap_or(PORT);
    let (host, at) = asked.addr.host_port(port).map_err(PerfError::Usage)?;
    let security = security(asked, &host)?;
    let by_name = !is_address(&host) && asked.name.is_none();
    if by_name && asked.lanes.is_empty() && asked.addr.local.is_none() {
        let named = Named::new(&format!("{host}:{at}"));
        return Ok(match security {
            ClientSecurity::Tls { trust: Some(trust), .. } => named.trusting(trust).into(),
            _ => named.into(),
        });
    }
    let lanes: Vec<LaneSpec> = std::iter::once(&asked.addr).chain(&asked.lanes).cloned().collect();
    let addrs = super::resolve_all(&lanes, port).await?;
    let lane = |(spec, addr): (&LaneSpec, std::net::SocketAddr)| {
        let lane = LaneConfig::new(addr);
        spec.local.map_or(lane, |local| lane.from(leaving_from(local, addr)))
    };
    let lanes = lanes.iter().zip(addrs).map(lane).collect();
    Ok(Remote { lanes, security }.into())
}

/// Returns the local address of a lane to this server. A link-local address needs a zone, which is the server's.
fn leaving_from(local: IpAddr, server: SocketAddr) -> SocketAddr {
    match (local, server) {
        (IpAddr::V6(ip), SocketAddr::V6(server)) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, 0, 0, server.scope_id()).into()
        }
        _ => (local, 0).into(),
    }
}

/// Resolves once every address has refused a datagram by ICMP: nothing listens there. QUIC would only notice that
/// nobody answers. The datagram is none of QUIC, so a server ignores it. A relay may take its sender for another
/// client, so nothing is sent while an answer may still be on its way.
async fn refused(addrs: Vec<SocketAddr>) -> SocketAddr {
    sleep(ANSWERED).await;
    let mut refused = None;
    for addr in addrs {
        if !refuses(addr).await {
            return std::future::pending().await;
        }
        refused.get_or_insert(addr);
    }
    match refused {
        Some(addr) => addr,
        None => std::future::pending().await,
    }
}

/// Returns whether an address refuses a datagram. It does not return while nothing comes back.
async fn refuses(addr: SocketAddr) -> bool {
    let any: SocketAddr = match addr {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Only a connected socket is told of the refusal.
    let Ok(socket) = UdpSocket::bind(any).await else { return false };
    if socket.connect(addr).await.is_err() || socket.send(&[0]).await.is_err() {
        return false;
    }
    let mut answer = [0; 1];
    matches!(socket.recv(&mut answer).await, Err(error) if error.kind() == ErrorKind::ConnectionRefused)
}

/// Information about one connection so far.
struct Heard {
    offset: Offset,
    /// Number of the open clock request, and the time at which it was sent.
    asked: Option<(u64, u64)>,
    /// Measurements of each direction, the client's first.
    measured: Vec<Measured>,
    /// Account of the data from the server.
    book: Book,
    /// Lanes of the server, as it reports them.
    lanes: Vec<LaneSample>,
    /// CPU time of the server since the run began.
    cpu: CpuTime,
    done: bool,
}

impl Heard {
    fn of(&mut self, direction: Direction) -> Option<&mut Measured> {
        self.measured.iter_mut().find(|measured| measured.direction == direction)
    }

    fn report(&mut self, report: Report) {
        let at = self.offset.ours(report.at);
        let offset = self.offset.clone();
        if let Some(forward) = self.of(Direction::Forward) {
            forward.totals(at, &report.totals);
            for arrival in report.arrivals {
                forward.forward_arrival(arrival.source, arrival.sequence, arrival.at, &offset);
            }
        }
        if let (Some(progress), Some(reverse)) = (report.progress, self.of(Direction::Reverse)) {
            reverse.reported(progress.released, progress.ended);
            let lanes: Vec<LaneSample> = progress.lanes.iter().map(LaneSample::from).collect();
            reverse.look(clock::now(), &lanes);
            self.lanes = lanes;
        }
        self.cpu = CpuTime {
            user: Duration::from_micros(report.user),
            system: Duration::from_micros(report.system),
        };
        self.done |= report.last;
    }

    /// Takes the totals of the data that has arrived from the server until now.
    fn look(&mut self) {
        let now = clock::now().into();
        let totals = self.book.totals().to_vec();
        if let Some(reverse) = self.of(Direction::Reverse) {
            reverse.totals(now, &totals);
        }
    }
}

/// One connection of a run.
struct Link {
    /// Number within the run, counted from 0.
    number: u8,
    connection: Connection,
    heard: Mutex<Heard>,
    /// Set for each direction, the client's first, once a limited amount has been delivered.
    over: Vec<watch::Sender<bool>>,
}

impl Link {
    /// Returns the lanes of the sender in this direction.
    fn lanes(&self, direction: Direction) -> Vec<LaneSample> {
        match direction {
            Direction::Forward => self.connection.stats().lanes.iter().map(LaneSample::from).collect(),
            Direction::Reverse => lock(&self.heard).lanes.clone(),
        }
    }

    /// Returns whether everything has arrived, in both directions.
    fn is_complete(&self) -> bool {
        let heard = lock(&self.heard);
        heard.measured.iter().zip(&self.over).all(|(measured, over)| {
            let limit = measured.load.bulk.and_then(|bulk| bulk.bytes).filter(|_| *over.borrow());
            measured.is_complete(limit.map_or(0, Bytes::get))
        })
    }
}

/// Connections and settings of a run.
struct Run {
    plan: Plan,
    server: String,
    links: Vec<Link>,
    span: Span,
    /// Longest silence of the server.
    idle: Duration,
    /// Signals that the server has reported something.
    news: Notify,
    /// CPU time of this process when the run began.
    cpu: CpuTime,
    /// Lane scheduler of the server, if it sends over QUIC.
    server_path: Option<PathName>,
    /// Channel for the lines of intervals; `None` if they are not printed.
    printed: Option<mpsc::UnboundedSender<String>>,
    /// Lines of intervals so far, and the intervals of all connections together, for each
    /// direction.
    lines: Mutex<(String, Vec<Vec<Interval>>)>,
}

async fn say(connection: &Connection, request: &Request) -> Result<(), PerfError> {
    let mut out = Vec::new();
    request.encode(&mut out);
    connection.send(Message::new(out).with_priority(Priority::P0)).await?;
    Ok(())
}

async fn hear(connection: &Connection) -> Result<Reply, PerfError> {
    Ok(Reply::decode(&connection.recv().await?.bytes)?)
}

/// Server's answer to a client's first message.
struct Welcome {
    same_host: bool,
    /// Lane scheduler of the server; `None` over TCP.
    path: Option<PathName>,
}

/// Performs the handshake of a connection, counted from 0, of the run with this nonce.
async fn greet(
    connection: &Connection,
    plan: &Plan,
    number: u8,
    nonce: [u8; 16],
    server: &str,
) -> Result<Welcome, PerfError> {
    let load = plan.load(number);
    let kinds = load.sources.iter().map(|_| SourceKind { each: true });
    let kinds = kinds.chain(load.bulk.map(|_| SourceKind { each: false }));
    let mark: HostMark = clock::host_mark(&nonce);
    let hello = Hello {
        nonce,
        host: mark,
        number,
        connections: plan.connections,
        sources: kinds.filter(|_| plan.mode.is_forward()).collect(),
        load: Some(load).filter(|_| plan.mode.is_reverse()),
    };
    // A server that refuses may have closed the connection already. Its reply can still be read, so
    // an error of sending is kept for later.
    let said = say(connection, &Request::Hello(hello)).await;
    match timeout(ANSWER, hear(connection)).await {
        Err(_) => Err(PerfError::Silent { server: server.to_owned() }),
        Ok(Err(error)) => Err(said.err().unwrap_or(error)),
        Ok(Ok(reply)) => match reply {
            Reply::Welcome { host, path } => Ok(Welcome { same_host: host == mark, path }),
            Reply::Refused(refusal) => Err(PerfError::Refused(refusal.advice(server))),
            _ => Err(PerfError::Refused(Refusal::Protocol.advice(server))),
        },
    }
}

/// Exchanges clock readings repeatedly, before any load could delay the replies.
async fn compare_clocks(connection: &Connection, offset: &mut Offset) -> Result<(), PerfError> {
    for number in 0..FIRST_PINGS {
        let sent = clock::now();
        say(connection, &Request::Ping { number }).await?;
        loop {
            // Reports may arrive in between. They are ignored, as nothing of the run has been sent
            // yet.
            if let Reply::Pong { number: answer, received, answered } = hear(connection).await?
                && answer == number
            {
                let returned = clock::now();
                offset.learn(Exchange { sent, received, answered, returned });
                break;
            }
        }
    }
    Ok(())
}

async fn connect(asked: &PerfClient, plan: &Plan) -> Result<Connection, PerfError> {
    let target = target(asked).await?;
    let config = plan.config(asked.connect_timeout);
    let addrs = match asked.engine {
        EngineName::Quic => {
            let (host, port) = asked.addr.host_port(asked.port.unwrap_or(PORT)).map_err(PerfError::Usage)?;
            tokio::net::lookup_host((host, port)).await.map_or_else(|_| Vec::new(), Iterator::collect)
        }
        // TCP is told of it by the kernel.
        EngineName::Tcp => Vec::new(),
    };
    let connected = tokio::select! {
        connected = Endpoint::connect(&config, target) => connected,
        addr = refused(addrs) => {
            let source = std::io::Error::from(ErrorKind::ConnectionRefused);
            Err(ConnectError::Unreachable { addr, source })
        }
    };
    connected.map_err(|error| match error {
        ConnectError::NotTls { addr } => PerfError::NotPerf { addr },
        ConnectError::Config(ConfigError::Trust(error)) => {
            PerfError::Usage(format!("{error}; or name the server's certificate with --fingerprint or --ca"))
        }
        ConnectError::Unknown { host: name, source } => PerfError::Resolve { name, source },
        error => error.into(),
    })
}

/// Prepares one connection of a run, counted from 0, until it is ready for data.
async fn prepare(
    connection: &Connection,
    asked: &PerfClient,
    plan: &Plan,
    number: u8,
    nonce: [u8; 16],
) -> Result<(Offset, Welcome), PerfError> {
    let server = &asked.addr.remote;
    let welcome = greet(connection, plan, number, nonce, server).await?;
    let mut offset = Offset::new(welcome.same_host);
    timeout(ANSWER, compare_clocks(connection, &mut offset))
        .await
        .map_err(|_| PerfError::Silent { server: server.clone() })??;
    let lanes = (1 + asked.lanes.len()) * if plan.layered { 2 } else { 1 };
    wait_for_lanes(connection, lanes).await;
    let is_low = |lane: &LaneStats| lane.layer == Layer::Low && lane.usable;
    if plan.layered && !connection.stats().lanes.iter().any(is_low) {
        let first = connection.remote_addr().map_or(0, |addr| addr.port());
        return Err(PerfError::NoLowLane { server: server.clone(), port: first.saturating_add(1) });
    }
    Ok((offset, welcome))
}

/// Closes connections, at once if the server is lost. Without a close, the server would wait for the
/// client and keep its place.
async fn close(connections: impl Iterator<Item = Connection>, lost: bool) {
    let mut closing = JoinSet::new();
    for connection in connections {
        closing.spawn(async move {
            if lost || timeout(FAREWELL, connection.close()).await.is_err() {
                connection.abort();
            }
        });
    }
    closing.join_all().await;
}

/// Opens the connections of a run. If one fails, all are closed.
async fn open(asked: &PerfClient, plan: &Plan) -> Result<Vec<(Connection, Offset, Welcome)>, PerfError> {
    let nonce = clock::random();
    let mut opened: Vec<(Connection, Offset, Welcome)> = Vec::new();
    for number in 0..plan.connections {
        let (failed, error) = match connect(asked, plan).await {
            Err(error) => (None, error),
            Ok(connection) => match prepare(&connection, asked, plan, number, nonce).await {
                Err(error) => (Some(connection), error),
                Ok((offset, welcome)) => {
                    opened.push((connection, offset, welcome));
                    continue;
                }
            },
        };
        close(opened.into_iter().map(|(connection, ..)| connection).chain(failed), false).await;
        return Err(error);
    }
    Ok(opened)
}

async fn measure(
    asked: &PerfClient,
    plan: &Plan,
    lines: Option<mpsc::UnboundedSender<String>>,
) -> Result<(Outcome, End), PerfError> {
    let mut signals = Signals::listen().map_err(PerfError::Runtime)?;
    let opened = tokio::select! {
        opened = open(asked, plan) => opened?,
        () = signals.came() => return Err(PerfError::NothingMeasured),
    };
    let path = opened.first().and_then(|(_, _, welcome)| welcome.path);
    let span = Span::new(plan.duration);
    let begin = i128::from(span.begin_ns);
    let counted = Counted { begin, from: begin + ns(plan.warm_up), to: begin + ns(plan.duration) };
    let link = |(number, (connection, offset, _)): (u8, (Connection, Offset, Welcome))| {
        let measured = |direction: &Direction| {
            let mut intervals = Intervals::new(asked.interval, plan.warm_up);
            intervals.begin(begin);
            Measured::new(*direction, plan.load(number), counted, intervals)
        };
        let directions = plan.mode.directions();
        let heard = Heard {
            offset,
            asked: None,
            measured: directions.iter().map(measured).collect(),
            book: Book::new(plan.load(number).len()),
            lanes: Vec::new(),
            cpu: CpuTime::default(),
            done: false,
        };
        let over = directions.iter().map(|_| watch::Sender::new(false)).collect();
        Link { number, connection, heard: Mutex::new(heard), over }
    };
    let run = Run {
        plan: plan.clone(),
        server: asked.addr.remote.clone(),
        links: (0..).zip(opened).map(link).collect(),
        span,
        idle: asked.idle_timeout,
        news: Notify::new(),
        cpu: CpuTime::now(),
        server_path: path.filter(|_| plan.mode.is_reverse()),
        printed: lines.filter(|_| asked.interval.is_some()),
        lines: Mutex::new((String::new(), vec![Vec::new(); plan.mode.directions().len()])),
    };
    let run = Arc::new(run);
    let loaded = load(&run, &mut signals).await;
    let lost = matches!(loaded, Ok((_, End::Lost)));
    close(run.links.iter().map(|link| link.connection.clone()), lost).await;
    loaded
}

/// Waits until all lanes are usable, up to [`FAREWELL`]; further lanes follow the first.
async fn wait_for_lanes(connection: &Connection, lanes: usize) {
    let until = Instant::now() + FAREWELL;
    while connection.stats().lanes.iter().filter(|lane| lane.usable).count() < lanes && Instant::now() < until
    {
        sleep(Duration::from_millis(10)).await;
    }
}

/// Reason why sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Planned end.
    Planned,
    /// Interrupt by the user; the connection is still usable.
    Interrupted,
    /// Silence or failure of the server.
    Lost,
}

/// Sends everything planned, lets the server send, and waits for all of it to arrive. If the run is
/// cut short, the outcome has the measurements until then and the reason.
async fn load(run: &Arc<Run>, signals: &mut Signals) -> Result<(Outcome, End), PerfError> {
    let mut generator = Generator::default();
    for link in &run.links {
        if run.plan.mode.is_reverse() {
            say(&link.connection, &Request::Start).await?;
        }
        let mut heard = lock(&link.heard);
        let Some(forward) = heard.of(Direction::Forward) else { continue };
        let origin = Origin {
            connection: &link.connection,
            direction: Direction::Forward,
            number: link.number,
            path: run.plan.own_path(),
            backlog: run.plan.backlog,
        };
        let released = Arc::clone(&forward.released);
        generator.add(&origin, &forward.load, run.span, released, link.over[0].clone())?;
    }
    let mut listening = JoinSet::new();
    for index in 0..run.links.len() {
        let run = Arc::clone(run);
        listening.spawn(async move { listen(&run, index).await });
    }
    let work = async {
        watch(run, &mut generator).await?;
        drain(run, &mut generator).await?;
        finish(run, LINGER).await
    };
    let cut = tokio::select! {
        done = work => done.err(),
        // `listen` ends only when nothing more can be received on its connection.
        Some(ended) = listening.join_next() => Some(match ended {
            Ok(error) => error,
            Err(error) => GeneratorError::from(error).into(),
        }),
        () = signals.came() => Some(PerfError::Interrupted),
    };
    generator.stop().await;
    let end = match cut {
        None | Some(PerfError::Unconfirmed { .. }) => End::Planned,
        Some(PerfError::Interrupted) => End::Interrupted,
        Some(_) => End::Lost,
    };
    if end == End::Interrupted {
        // Data that arrived since the last report is worth a short wait. The result is marked
        // incomplete in either case.
        tokio::select! {
            _ = finish(run, FAREWELL) => {}
            _ = listening.join_next() => {}
        }
    }
    listening.shutdown().await;
    let cut = cut.map(|error| error.to_string());
    Ok((outcome(run, cut), end))
}

/// Processes messages of the server until the connection ends, or until the server is silent for too
/// long. A server reports ten times a second.
async fn listen(run: &Run, index: usize) -> PerfError {
    let link = &run.links[index];
    loop {
        let received = match timeout(run.idle, link.connection.recv()).await {
            Ok(Ok(received)) => received,
            Ok(Err(error)) => return error.into(),
            Err(_) => {
                return PerfError::Quiet { server: run.server.clone(), idle: shown_span(run.idle) };
            }
        };
        match run.take(link, &received.bytes) {
            Ok(false) => {}
            // The server may close this connection while others go on.
            Ok(true) => return std::future::pending().await,
            Err(error) => return error,
        }
    }
}

impl Link {
    /// Marks the server's part as over, once it has sent a limited amount that has arrived.
    fn check_end(&self) {
        let mut heard = lock(&self.heard);
        let Heard { measured, book, .. } = &mut *heard;
        let parts = measured.iter().zip(&self.over);
        for (reverse, over) in parts.filter(|(measured, _)| measured.direction == Direction::Reverse) {
            let limit = reverse.load.bulk.and_then(|bulk| bulk.bytes);
            let arrived = book.totals().last().map_or(0, |total| total.bytes);
            if reverse.has_ended() && limit.is_some_and(|limit| arrived >= limit.get()) {
                over.send_if_modified(|over| !std::mem::replace(over, true));
            }
        }
        // Totals at the moment at which the last byte has arrived, as the run ends there.
        if self.over.last().is_some_and(|over| *over.borrow()) {
            heard.look();
        }
    }
}

/// Resolves once limited amounts have been delivered on all connections and in all directions.
async fn all_over(run: &Run) {
    for over in run.links.iter().flat_map(|link| &link.over) {
        // The sender lives as long as the run.
        let _ = over.subscribe().wait_for(|over| *over).await;
    }
}

/// Samples the lanes, draws progress and exchanges clock readings, until the end.
async fn watch(run: &Run, generator: &mut Generator) -> Result<(), PerfError> {
    let (plan, span) = (&run.plan, run.span);
    let bar = if run.printed.is_none() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut pinged = span.begin;
    let mut number = FIRST_PINGS;
    let over = all_over(run);
    tokio::pin!(over);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = sleep_until(span.end) => break,
            () = &mut over => break,
            // A source that has sent all its messages may end early.
            Some(ended) = generator.next() => {
                ended?;
                continue;
            }
        }
        let now = Instant::now();
        run.look();
        if now >= pinged + PINGS {
            pinged = now;
            number += 1;
            for link in &run.links {
                lock(&link.heard).asked = Some((number, clock::now()));
                say(&link.connection, &Request::Ping { number }).await?;
            }
        }
        // A sample just after the end belongs to the last interval.
        run.finish_interval((now - span.begin).min(plan.duration), false);
        bar.set_message(run.progress(now));
        bar.tick();
    }
    run.look();
    run.finish_interval((Instant::now() - span.begin).min(plan.duration), true);
    Ok(())
}

impl Run {
    /// Takes a message of the server, and returns whether it is its last.
    fn take(&self, link: &Link, message: &[u8]) -> Result<bool, PerfError> {
        let now = clock::now();
        let wrong = |error| PerfError::Data { server: self.server.clone(), error };
        let reply = Reply::decode(message)?;
        let mut heard = lock(&link.heard);
        match reply {
            Reply::Pong { number, received, answered } => {
                // Only a reply to the latest request has a known time of sending. Others are
                // ignored.
                if let Some((_, sent)) = heard.asked.take_if(|(asked, _)| *asked == number) {
                    heard.offset.learn(Exchange { sent, received, answered, returned: now });
                }
                Ok(false)
            }
            Reply::Report(report) => {
                heard.report(report);
                let done = heard.done;
                drop(heard);
                link.check_end();
                self.news.notify_waiters();
                Ok(done)
            }
            Reply::Data(piece) => {
                let whole = heard.book.take(&piece, message.len() as u64).map_err(wrong)?;
                let offset = heard.offset.clone();
                let reverse = heard.of(Direction::Reverse).ok_or(BookError::Source).map_err(wrong)?;
                if whole {
                    reverse.reverse_arrival(piece.source, piece.sequence, piece.released, now, &offset);
                }
                let ended = reverse.has_ended();
                drop(heard);
                if ended {
                    link.check_end();
                    self.news.notify_waiters();
                }
                Ok(false)
            }
            Reply::Welcome { .. } | Reply::Refused(_) => {
                Err(PerfError::Lost(Closed::ByPeer(CloseReason::default())))
            }
        }
    }

    /// Samples the data that has arrived from the server, and the lanes of this end.
    fn look(&self) {
        for link in &self.links {
            let lanes = link.lanes(Direction::Forward);
            let mut heard = lock(&link.heard);
            heard.look();
            if let Some(forward) = heard.of(Direction::Forward) {
                forward.look(clock::now(), &lanes);
            }
        }
    }

    /// Ends the current interval if its time is over or the run ends, and prints its lines.
    fn finish_interval(&self, ran: Duration, ends: bool) {
        let several = self.links.len() > 1;
        let mut lines = lock(&self.lines);
        let (text, sums) = &mut *lines;
        let before = text.len();
        for (direction, sums) in self.plan.mode.directions().iter().zip(sums) {
            let (mut parts, mut times) = (Vec::new(), Vec::new());
            for link in &self.links {
                let lanes = link.lanes(*direction);
                let mut heard = lock(&link.heard);
                let Some(measured) = heard.of(*direction) else { continue };
                let latest = measured.latest();
                if (ends || measured.intervals.is_due(ran))
                    && let Some(took) = measured.intervals.finish(ran, latest, &lanes)
                {
                    times.extend(took);
                    parts.extend(measured.intervals.finished().last().cloned());
                }
            }
            let name = match (self.plan.mode, several) {
                (Mode::Both, true) => format!(" {direction}"),
                (Mode::Both, false) => direction.to_string(),
                (Mode::Forward | Mode::Reverse, _) => String::new(),
            };
            for (number, part) in (1..).zip(&parts).filter(|_| several) {
                *text += &part.line(&format!("[{number}{name}] "), true);
            }
            if let Some(sum) = Interval::sum(&parts, times) {
                let label = match (several, name.is_empty()) {
                    (true, _) => format!("[all{name}] "),
                    (false, true) => String::new(),
                    (false, false) => format!("[{name}] "),
                };
                *text += &sum.line(&label, !several);
                sums.push(sum);
            }
        }
        if let Some(printed) = self.printed.as_ref().filter(|_| text.len() > before) {
            // The receiver lives as long as the run.
            let _ = printed.send(text[before..].to_owned());
        }
    }

    /// Returns the line that shows the progress.
    fn progress(&self, now: Instant) -> String {
        let (mut rate, mut arrivals, mut srtts) = (0.0, 0, Vec::new());
        for link in &self.links {
            let heard = lock(&link.heard);
            for measured in &heard.measured {
                rate += measured.rate();
                arrivals += measured.arrivals();
            }
            let lanes = link.connection.stats().lanes;
            srtts.extend(lanes.iter().map(|lane| format!("{:.1}", lane.srtt.as_secs_f64() * 1e3)));
        }
        format!(
            "{:.1} of {} · {rate:.2} Mbit/s · {arrivals} messages · srtt {} ms",
            (now - self.span.begin).as_secs_f64(),
            shown_span(self.plan.duration),
            srtts.join(", ")
        )
    }
}

/// Waits for data in flight, up to [`LINGER`], and for all of a limited amount that has ended the
/// run: the server reads the urgent end of the data before bulk data that it has received.
async fn drain(run: &Run, generator: &mut Generator) -> Result<(), PerfError> {
    let until = Instant::now() + LINGER;
    let all = async {
        while let Some(ended) = generator.next().await {
            ended?;
        }
        loop {
            let news = run.news.notified();
            tokio::pin!(news);
            // News between the look and the wait must not be lost.
            news.as_mut().enable();
            if run.links.iter().all(Link::is_complete) {
                return Ok::<_, PerfError>(());
            }
            news.await;
        }
    };
    if let Ok(result) = timeout_at(until, all).await {
        result?;
    }
    generator.stop().await;
    Ok(())
}

/// Announces the end of the run, and waits for the server's last reports.
async fn finish(run: &Run, patience: Duration) -> Result<(), PerfError> {
    for link in &run.links {
        say(&link.connection, &Request::Finish).await?;
    }
    let last = async {
        loop {
            let news = run.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if run.links.iter().all(|link| lock(&link.heard).done) {
                return;
            }
            news.await;
        }
    };
    timeout(patience, last).await.map_err(|_| PerfError::Unconfirmed { server: run.server.clone() })
}

fn outcome(run: &Run, cut: Option<String>) -> Outcome {
    let connection = |(number, link): (usize, &Link)| {
        let heard = lock(&link.heard);
        let offset = &heard.offset;
        let flow = |measured: &Measured| measured.outcome(number, offset, cut.is_some(), run.plan.raw);
        ConnectionOutcome {
            flows: heard.measured.iter().map(flow).collect(),
            clock: Clock {
                shared: offset.is_shared(),
                offset_ms: offset.offset_ns() as f64 / 1e6,
                error_ms: offset.error_ns() as f64 / 1e6,
                exchanges: offset.exchanges(),
            },
        }
    };
    let connections = (1..).zip(&run.links).map(connection).collect();
    // All connections are of one process at the server, which reports its CPU time on each.
    let server = run.links.iter().map(|link| lock(&link.heard).cpu);
    let server = server.max_by_key(|cpu| cpu.user + cpu.system).unwrap_or_default();
    let (lines, intervals) = lock(&run.lines).clone();
    Outcome {
        plan: run.plan.clone(),
        server_path: run.server_path,
        connections,
        intervals,
        lines,
        cpu: [CpuTime::now().since(run.cpu), server],
        cut,
    }
}

/// Parses a fingerprint from the command line.
pub(crate) fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    text.parse().map_err(|error: marcato_quic::FingerprintError| error.to_string())
}

/// Parses the longest silence of a server. A server reports every 100 ms, and both ends close a
/// silent connection after [`SILENCE`].
pub(crate) fn idle_timeout(text: &str) -> Result<Duration, String> {
    let idle = super::quantity::span(text)?;
    if idle < Duration::from_millis(500) || idle > SILENCE {
        return Err(format!("give an idle timeout of 500ms to {}, not {text}", shown_span(SILENCE)));
    }
    Ok(idle)
}

/// Parses a backlog, which must have room for a message.
pub(crate) fn backlog(text: &str) -> Result<Bytes, String> {
    let bytes = super::quantity::size(text)?;
    if bytes < Bytes::kb(1) || bytes > Bytes::kb(1_000_000) {
        return Err(format!("give a backlog of 1kB to 1000MB, not {}", shown_size(bytes)));
    }
    Ok(bytes)
}
