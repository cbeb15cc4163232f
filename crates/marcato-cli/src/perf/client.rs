//! `marcato perf client`: sends messages, and receives reports of their arrival from the server.

use std::collections::VecDeque;
use std::io::Write;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use marcato_net::{
    ClientSecurity, Closed, ConfigError, ConnectError, Connection, Endpoint, LaneConfig, LaneStats, Message,
    Named, Remote, ReserveError, Target,
};
use marcato_quic::{Fingerprint, Trust};
use marcato_sched::conductor::Redundancy;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_units::{Bytes, Layer, Priority, Seed};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::clock::{self, Exchange, Offset};
use super::cpu::CpuTime;
use super::interval::Intervals;
use super::outcome::{Clock, LaneOutcome, Outcome, SourceOutcome};
use super::plan::{EngineName, LaneSpec, PORT, PathName, Plan, PlanError, StreamName};
use super::protocol::{Hello, Refusal, Reply, Report, Request, SourceKind, Total};
use super::quantity::{shown_size, shown_span};
use super::send::{Bulk, Periodic, Releases, Sending, Span, lock};
use super::{NAME, PerfError, SILENCE};
use crate::Status;
use crate::arguments::{Format, PerfClient};
use crate::output;

/// Time within which a perf server answers.
const ANSWER: Duration = Duration::from_secs(5);
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
/// Tolerated delay of a source's release: the runtime's timers have a resolution of 1 ms.
const JITTER: Duration = Duration::from_millis(2);
/// Length of the random data with which messages are filled repeatedly.
const FILLING: usize = 1 << 16;
/// Default duration, and that of a run that ends with an amount of data.
const DURATION: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(3600);

pub(crate) fn run(asked: &PerfClient, stdout: &mut dyn Write) -> Result<Status, PerfError> {
    let plan = plan(asked)?;
    let mut log = asked.logfile.as_deref().map(super::log).transpose()?;
    let stdout: &mut dyn Write = match &mut log {
        Some(log) => log,
        None => stdout,
    };
    super::outcome::prepare(asked.out.as_deref(), asked.svg.as_deref())?;
    let (sender, lines) = mpsc::unbounded_channel();
    let sender = (asked.format() == Format::Text).then_some(sender);
    let runtime = super::runtime()?;
    let (outcome, end) = runtime.block_on(printing(measure(asked, &plan, sender), lines, stdout))?;
    // Files are written before anything is printed, so that a failed write shows as an error first.
    outcome.write(asked.out.as_deref(), asked.svg.as_deref())?;
    let printed = match asked.format() {
        Format::Text => outcome.to_text(),
        Format::Json => outcome.to_json(),
        Format::Csv => outcome.to_csv(),
    };
    output::print(stdout, &printed).map_err(PerfError::Print)?;
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
    stdout: &mut dyn Write,
) -> Result<T, PerfError> {
    tokio::pin!(run);
    let done = loop {
        tokio::select! {
            Some(line) = lines.recv() => output::print(stdout, &line).map_err(PerfError::Print)?,
            done = &mut run => break done,
        }
    };
    while let Ok(line) = lines.try_recv() {
        output::print(stdout, &line).map_err(PerfError::Print)?;
    }
    done
}

/// Returns the plan for these arguments, with defaults for what they leave open.
fn plan(asked: &PerfClient) -> Result<Plan, PerfError> {
    let tcp = asked.engine == EngineName::Tcp;
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
        sources: if nothing { vec![usual("100ms:10kB:p0")?] } else { asked.sources.clone() },
        bulk: if nothing { Some("p4".parse().map_err(PerfError::Usage)?) } else { asked.bulk },
        bitrate: asked.bitrate,
        bytes: asked.bytes,
        unreliable: asked.unreliable,
        path,
        layered: asked.layered,
        stream: asked.stream_scheduler,
        duration: asked.duration.unwrap_or(if asked.bytes.is_some() { LONGEST } else { DURATION }),
        warm_up: asked.warm_up,
        backlog: asked.backlog,
        seed: asked.seed,
        raw: asked.raw,
    };
    plan.check(1 + asked.lanes.len())?;
    Ok(plan)
}

/// Returns the certificates to accept, and the server's name to verify.
fn security(asked: &PerfClient, host: &str) -> Result<ClientSecurity, PerfError> {
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
    let by_name = host.parse::<IpAddr>().is_err() && asked.name.is_none();
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
        spec.local.map_or(lane, |local| lane.from((local, 0).into()))
    };
    let lanes = lanes.iter().zip(addrs).map(lane).collect();
    Ok(Remote { lanes, security }.into())
}

/// Information received from the server so far.
#[derive(Default)]
struct Heard {
    offset: Offset,
    /// Number of the open clock request, and the time at which it was sent.
    asked: Option<(u64, u64)>,
    /// Arrival time of each message of each source, in ns of the server's clock.
    arrived: Vec<Vec<Option<u64>>>,
    arrivals: usize,
    /// Bytes that the server has of the last source, which is the bulk data if there is any.
    last_source: u64,
    /// Latest report up to the start of the measured interval, and the latest within it.
    first: Option<(i128, Vec<Total>)>,
    last: Option<(i128, Vec<Total>)>,
    /// Times and byte counts of the last reports, for the progress line.
    recent: VecDeque<(i128, u64)>,
    intervals: Intervals,
    /// CPU time of this process when the run began, and that which the server reports of the run.
    cpu_before: CpuTime,
    cpu_server: CpuTime,
    done: bool,
}

/// Measured interval, in ns of the local clock.
#[derive(Clone, Copy)]
struct Counted {
    from: i128,
    to: i128,
}

impl Heard {
    fn report(&mut self, report: Report, counted: Counted, releases: &Releases) {
        let at = self.offset.ours(report.at);
        let bytes = report.totals.iter().map(|total| total.bytes).fold(0, u64::saturating_add);
        self.last_source = report.totals.last().map_or(0, |total| total.bytes);
        self.recent.push_back((at, bytes));
        if self.recent.len() > 10 {
            self.recent.pop_front();
        }
        if at <= counted.from || self.first.is_none() {
            self.first = Some((at, report.totals));
        } else if at <= counted.to || self.last.is_none() {
            self.last = Some((at, report.totals));
        }
        let releases = lock(releases);
        // Completion times are of the best offset so far. The result uses the best of the run.
        for arrival in report.arrivals {
            let source = usize::from(arrival.source);
            // An arrival of a message that was never sent is ignored: the server's reports are not
            // trusted.
            let Some(sent) = releases.get(source) else { continue };
            let Ok(sequence) = usize::try_from(arrival.sequence) else { continue };
            let Some(released) = sent.get(sequence) else { continue };
            let arrived = &mut self.arrived[source];
            if arrived.len() <= sequence {
                arrived.resize(sequence + 1, None);
            }
            if arrived[sequence].replace(arrival.at).is_none() {
                self.arrivals += 1;
                let took = self.offset.ours(arrival.at) - i128::from(*released);
                self.intervals.arrived(took as f64 / 1e6);
            }
        }
        self.cpu_server = CpuTime {
            user: Duration::from_micros(report.user),
            system: Duration::from_micros(report.system),
        };
        self.done |= report.last;
    }

    /// Returns the rate over about the last second, in Mbit/s.
    fn rate(&self) -> f64 {
        let (Some(first), Some(last)) = (self.recent.front(), self.recent.back()) else { return 0.0 };
        mbps(last.1.saturating_sub(first.1), last.0 - first.0)
    }
}

fn mbps(bytes: u64, ns: i128) -> f64 {
    if ns <= 0 { 0.0 } else { bytes as f64 * 8e3 / ns as f64 }
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

/// Performs the handshake, and returns whether the server is on this host.
async fn greet(connection: &Connection, plan: &Plan, server: &str) -> Result<bool, PerfError> {
    let kinds = plan.sources.iter().map(|_| SourceKind { each: true });
    let sources = kinds.chain(plan.bulk.map(|_| SourceKind { each: false })).collect();
    let nonce = clock::random();
    let mark = clock::host_mark(&nonce);
    // A server that refuses may have closed the connection already. Its reply can still be read, so
    // an error of sending is kept for later.
    let said = say(connection, &Request::Hello(Hello { nonce, host: mark, sources })).await;
    let server = || server.to_owned();
    match timeout(ANSWER, hear(connection)).await {
        Err(_) => Err(PerfError::Silent { server: server() }),
        Ok(Err(error)) => Err(said.err().unwrap_or(error)),
        Ok(Ok(reply)) => match reply {
            Reply::Welcome { host } => Ok(host == mark),
            Reply::Refused(Refusal::Busy) => Err(PerfError::Busy { server: server() }),
            Reply::Refused(Refusal::Version) => Err(PerfError::Version { server: server() }),
            _ => Err(PerfError::Refused { server: server() }),
        },
    }
}

/// Exchanges clock readings repeatedly, before any load could delay the replies.
async fn compare_clocks(connection: &Connection, heard: &Mutex<Heard>) -> Result<(), PerfError> {
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
                lock(heard).offset.learn(Exchange { sent, received, answered, returned });
                break;
            }
        }
    }
    Ok(())
}

async fn measure(
    asked: &PerfClient,
    plan: &Plan,
    lines: Option<mpsc::UnboundedSender<String>>,
) -> Result<(Outcome, End), PerfError> {
    let target = target(asked).await?;
    let server = asked.addr.remote.clone();
    let config = plan.config(asked.connect_timeout);
    let connection = match Endpoint::connect(&config, target).await {
        Ok(connection) => connection,
        Err(ConnectError::Config(ConfigError::Trust(error))) => {
            return Err(PerfError::Usage(format!(
                "{error}; or name the server's certificate with --fingerprint or --ca"
            )));
        }
        Err(ConnectError::Unknown { host: name, source }) => return Err(PerfError::Resolve { name, source }),
        Err(error) => return Err(error.into()),
    };
    let same_host = greet(&connection, plan, &server).await?;
    let heard = Mutex::new(Heard {
        offset: Offset::new(same_host),
        arrived: vec![Vec::new(); plan.sources.len()],
        intervals: Intervals::new(asked.interval, plan.warm_up, lines),
        ..Heard::default()
    });
    timeout(ANSWER, compare_clocks(&connection, &heard))
        .await
        .map_err(|_| PerfError::Silent { server: server.clone() })??;
    let lanes = (1 + asked.lanes.len()) * if plan.layered { 2 } else { 1 };
    wait_for_lanes(&connection, lanes).await;
    let is_low = |lane: &LaneStats| lane.layer == Layer::Low && lane.usable;
    if plan.layered && !connection.stats().lanes.iter().any(is_low) {
        let first = connection.remote_addr().map_or(0, |addr| addr.port());
        return Err(PerfError::NoLowLane { server, port: first.saturating_add(1) });
    }
    let (outcome, end) = load(&connection, plan, &heard, &server, asked.idle_timeout).await?;
    if end == End::Lost || timeout(FAREWELL, connection.close()).await.is_err() {
        connection.abort();
    }
    Ok((outcome, end))
}

/// Waits until all lanes are usable, up to [`FAREWELL`]; further lanes follow the first.
async fn wait_for_lanes(connection: &Connection, lanes: usize) {
    let until = Instant::now() + FAREWELL;
    while connection.stats().lanes.iter().filter(|lane| lane.usable).count() < lanes && Instant::now() < until
    {
        sleep(Duration::from_millis(10)).await;
    }
}

/// Resolves when the user interrupts the run (Ctrl-C).
async fn interrupted() -> PerfError {
    match tokio::signal::ctrl_c().await {
        Ok(()) => PerfError::Interrupted,
        // Without a handler, the operating system ends the process on an interrupt.
        Err(_) => std::future::pending().await,
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

/// Sends everything planned, and waits for it to arrive. If the run is cut short, the outcome has
/// the measurements until then and the reason.
async fn load(
    connection: &Connection,
    plan: &Plan,
    heard: &Mutex<Heard>,
    server: &str,
    idle: Duration,
) -> Result<(Outcome, End), PerfError> {
    let releases: Releases = Arc::new(Mutex::new(vec![Vec::new(); plan.sources.len()]));
    let mut stream = Seed::new(plan.seed).stream("perf/filling");
    let filling: Vec<u8> = (0..FILLING / 8).flat_map(|_| stream.next_u64().to_be_bytes()).collect();
    let span = Span::new(plan.duration);
    let over = watch::Sender::new(false);
    let mut sending = Sending {
        connection: connection.clone(),
        span,
        releases: Arc::clone(&releases),
        filling: filling.into(),
        mixer: None,
        over: over.clone(),
    };
    let counted = Counted {
        from: i128::from(span.begin_ns) + ns(plan.warm_up),
        to: i128::from(span.begin_ns) + ns(plan.duration),
    };
    {
        let mut heard = lock(heard);
        heard.cpu_before = CpuTime::now();
        heard.intervals.begin(span.begin_ns.into());
        if plan.bytes.is_some() && plan.warm_up.is_zero() {
            // A limited amount may have arrived before the first report.
            let none = vec![Total::default(); plan.sources.len() + 1];
            heard.first = Some((span.begin_ns.into(), none));
        }
    }
    let mut tasks = JoinSet::new();
    let bulk_index = u8::try_from(plan.sources.len()).unwrap_or(u8::MAX);
    let bulk_level = plan.bulk.map(|bulk| plan.level(bulk.priority));
    if plan.stream == StreamName::Rr {
        let wholes = sending.mixed();
        let bulk = plan.bulk.map(|bulk| (bulk_index, bulk));
        // The mixer ends when all senders are dropped, so it must not hold one itself.
        let mixing = Sending { mixer: None, ..sending.clone() };
        tasks.spawn(mixing.mix(wholes, plan.level(Priority::P2), bulk));
    } else if let (Some(bulk), Some(level)) = (plan.bulk, bulk_level) {
        tasks.spawn(sending.clone().bulk(Bulk {
            index: bulk_index,
            spec: bulk,
            level,
            backlog: plan.backlog,
            bitrate: plan.bitrate,
            bytes: plan.bytes,
            unreliable: plan.unreliable,
        }));
    }
    for (index, spec) in (0u8..).zip(&plan.sources) {
        let mut draw = Seed::new(plan.seed).stream(&format!("perf/source/{index}"));
        let period = u64::try_from(spec.period.as_nanos()).unwrap_or(u64::MAX);
        let phase = Duration::from_nanos(draw.below(period));
        let reserved = plan.reserves();
        if reserved {
            let source = Source::new(spec.period, spec.size, connection.now() + phase);
            let jitter = JITTER.min(spec.period / 4);
            let declared = connection.reserve(SourceKey(index.into()), source.with_jitter(jitter));
            declared.map_err(|error: ReserveError| PerfError::Reserve(error))?;
        }
        let redundancy = if plan.path == PathName::CwrRed && plan.engine == EngineName::Quic {
            Redundancy::EveryLane
        } else {
            Redundancy::Once
        };
        let level = plan.level(spec.priority);
        tasks.spawn(sending.clone().periodic(Periodic {
            index,
            spec: *spec,
            phase,
            level,
            reserved,
            redundancy,
        }));
    }
    drop(sending);
    let finished = Notify::new();
    let mut watched = Vec::new();
    let listening = listen(connection, heard, counted, &releases, &finished, server, idle);
    tokio::pin!(listening);
    let work = async {
        watch(connection, plan, span, heard, &mut tasks, &mut watched, over.subscribe()).await?;
        // The server reads the urgent end of the data before bulk data that it has received.
        let bulk = plan.bytes.filter(|_| *over.borrow()).unwrap_or_default();
        drain(heard, &releases, bulk, &mut tasks, &finished).await?;
        finish(connection, heard, &finished, server, LINGER).await
    };
    let cut = tokio::select! {
        done = work => done.err(),
        // `listen` ends only when nothing more can be received.
        error = &mut listening => Some(error),
        error = interrupted() => Some(error),
    };
    tasks.shutdown().await;
    let end = match cut {
        None | Some(PerfError::Unconfirmed { .. }) => End::Planned,
        Some(PerfError::Interrupted) => End::Interrupted,
        Some(_) => End::Lost,
    };
    if end == End::Interrupted {
        // Data that arrived since the last report is worth a short wait. The result is marked
        // incomplete in either case.
        tokio::select! {
            _ = finish(connection, heard, &finished, server, FAREWELL) => {}
            _ = listening => {}
        }
    }
    let lanes = watched.into_iter().filter_map(Watched::outcome).collect();
    let cut = cut.map(|error| error.to_string());
    Ok((outcome(plan, &lock(heard), &lock(&releases), counted, lanes, cut), end))
}

fn ns(span: Duration) -> i128 {
    i128::try_from(span.as_nanos()).unwrap_or(i128::MAX)
}

/// Processes messages of the server until the connection ends, or until the server is silent for
/// `idle`. A server reports ten times a second.
async fn listen(
    connection: &Connection,
    heard: &Mutex<Heard>,
    counted: Counted,
    releases: &Releases,
    finished: &Notify,
    server: &str,
    idle: Duration,
) -> PerfError {
    loop {
        let reply = match timeout(idle, hear(connection)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => return error,
            Err(_) => return PerfError::Quiet { server: server.to_owned(), idle: shown_span(idle) },
        };
        let now = clock::now();
        let mut heard = lock(heard);
        match reply {
            Reply::Pong { number, received, answered } => {
                // Only a reply to the latest request has a known time of sending. Others are
                // ignored.
                if let Some((_, sent)) = heard.asked.take_if(|(asked, _)| *asked == number) {
                    heard.offset.learn(Exchange { sent, received, answered, returned: now });
                }
            }
            Reply::Report(report) => {
                heard.report(report, counted, releases);
                finished.notify_waiters();
            }
            Reply::Welcome { .. } | Reply::Refused(_) => return PerfError::Lost(Closed::ByPeer),
        }
    }
}

/// Samples of one lane.
#[derive(Clone, Debug, Default)]
struct Watched {
    first: Option<LaneStats>,
    last: Option<LaneStats>,
    looks: u64,
    srtt: Duration,
    cwnd: u64,
    unsent: u64,
    most_unsent: u64,
}

/// Samples the lanes, draws progress and exchanges clock readings, until the end. The samples in
/// `watched` remain even if this future is dropped.
async fn watch(
    connection: &Connection,
    plan: &Plan,
    span: Span,
    heard: &Mutex<Heard>,
    tasks: &mut JoinSet<Result<(), marcato_net::SendError>>,
    watched: &mut Vec<Watched>,
    mut over: watch::Receiver<bool>,
) -> Result<(), PerfError> {
    let spinner = !lock(heard).intervals.prints();
    let bar = if spinner { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut pinged = span.begin;
    let mut number = FIRST_PINGS;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = sleep_until(span.end) => break,
            _ = over.wait_for(|over| *over) => break,
            // A source that has sent all its messages may end early.
            Some(ended) = tasks.join_next() => {
                joined(ended)?;
                continue;
            }
        }
        let now = Instant::now();
        let stats = connection.stats();
        if now >= span.begin + plan.warm_up {
            for lane in &stats.lanes {
                // Lanes may disappear, and new ones may appear.
                match watched.iter_mut().find(|watched| watched.last.is_some_and(|last| last.id == lane.id)) {
                    Some(watched) => watched.look(*lane),
                    None => watched.push(Watched::begin(*lane)),
                }
            }
        }
        if now >= pinged + PINGS {
            pinged = now;
            number += 1;
            lock(heard).asked = Some((number, clock::now()));
            say(connection, &Request::Ping { number }).await?;
        }
        let srtts: Vec<String> =
            stats.lanes.iter().map(|lane| format!("{:.1}", lane.srtt.as_secs_f64() * 1e3)).collect();
        let mut heard = lock(heard);
        let report = heard.recent.back().copied();
        // A sample just after the end belongs to the last interval.
        let ran = (now - span.begin).min(plan.duration);
        heard.intervals.look(ran, report, &stats.lanes);
        bar.set_message(format!(
            "{:.1} of {} · {:.2} Mbit/s · {} messages · srtt {} ms",
            (now - span.begin).as_secs_f64(),
            shown_span(plan.duration),
            heard.rate(),
            heard.arrivals,
            srtts.join(", ")
        ));
        bar.tick();
    }
    let mut heard = lock(heard);
    let report = heard.recent.back().copied();
    let ran = (Instant::now() - span.begin).min(plan.duration);
    heard.intervals.finish(ran, report, &connection.stats().lanes);
    Ok(())
}

fn joined(
    ended: Result<Result<(), marcato_net::SendError>, tokio::task::JoinError>,
) -> Result<(), PerfError> {
    match ended {
        Ok(sent) => Ok(sent?),
        Err(error) => Err(PerfError::Usage(format!("a task of the generator failed: {error}"))),
    }
}

/// Waits for data in flight and for this much bulk data, up to [`LINGER`].
async fn drain(
    heard: &Mutex<Heard>,
    releases: &Releases,
    bulk: Bytes,
    tasks: &mut JoinSet<Result<(), marcato_net::SendError>>,
    reported: &Notify,
) -> Result<(), PerfError> {
    let until = Instant::now() + LINGER;
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            joined(ended)?;
        }
        loop {
            let news = reported.notified();
            let sent: usize = lock(releases).iter().map(Vec::len).sum();
            let all = {
                let heard = lock(heard);
                heard.arrivals >= sent && heard.last_source >= bulk.get()
            };
            if all {
                return Ok::<_, PerfError>(());
            }
            news.await;
        }
    };
    if let Ok(result) = tokio::time::timeout_at(until, all).await {
        result?;
    }
    tasks.shutdown().await;
    Ok(())
}

/// Announces the end of the data, and waits for the server's last report.
async fn finish(
    connection: &Connection,
    heard: &Mutex<Heard>,
    reported: &Notify,
    server: &str,
    patience: Duration,
) -> Result<(), PerfError> {
    say(connection, &Request::Finish).await?;
    let last = async {
        loop {
            let news = reported.notified();
            if lock(heard).done {
                return;
            }
            news.await;
        }
    };
    timeout(patience, last).await.map_err(|_| PerfError::Unconfirmed { server: server.to_owned() })
}

impl Watched {
    fn begin(lane: LaneStats) -> Self {
        let mut watched = Self::default();
        watched.look(lane);
        watched
    }

    fn look(&mut self, lane: LaneStats) {
        self.first.get_or_insert(lane);
        self.last = Some(lane);
        self.looks += 1;
        self.srtt += lane.srtt;
        self.cwnd += lane.cwnd.get();
        self.unsent += lane.backlog.get();
        self.most_unsent = self.most_unsent.max(lane.backlog.get());
    }

    fn outcome(self) -> Option<LaneOutcome> {
        let (first, last) = (self.first?, self.last?);
        let mean = |sum: u64| Bytes::new(sum / self.looks.max(1));
        Some(LaneOutcome {
            local: last.local,
            remote: last.remote,
            layer: last.layer,
            srtt_ms: self.srtt.as_secs_f64() * 1e3 / self.looks.max(1) as f64,
            cwnd: mean(self.cwnd),
            unsent: mean(self.unsent),
            most_unsent: Bytes::new(self.most_unsent),
            packets: last.sent.saturating_sub(first.sent),
            lost: last.lost.saturating_sub(first.lost),
        })
    }
}

fn outcome(
    plan: &Plan,
    heard: &Heard,
    releases: &[Vec<u64>],
    counted: Counted,
    lanes: Vec<LaneOutcome>,
    cut: Option<String>,
) -> Outcome {
    let offset = &heard.offset;
    let sources = plan.sources.iter().zip(releases).zip(&heard.arrived).map(|((spec, released), arrived)| {
        let count = |(_, released): &(usize, &u64)| i128::from(**released) >= counted.from;
        let took = |(sequence, released): (usize, &u64)| {
            let arrived = arrived.get(sequence).copied().flatten();
            match arrived {
                Some(at) => Some((offset.ours(at) - i128::from(*released)) as f64 / 1e6),
                // In a run that was cut short, a missing message might still have arrived, so it is
                // not counted as infinite.
                None => cut.is_none().then_some(f64::INFINITY),
            }
        };
        let sent = released.iter().enumerate().filter(count).count();
        let mct_ms = released.iter().enumerate().filter(count).filter_map(took).collect();
        let begin = counted.to - ns(plan.duration);
        let row = |(sequence, released): (usize, &u64)| {
            let since = (i128::from(*released) - begin) as f64 / 1e9;
            (since, took((sequence, released)).filter(|took| took.is_finite()))
        };
        let raw = plan.raw.then(|| released.iter().enumerate().filter(count).map(row).collect());
        SourceOutcome { spec: *spec, sent, mct_ms, raw }
    });
    let (seconds, bytes) = match (&heard.first, &heard.last) {
        (Some((from, before)), Some((to, after))) => {
            let gained =
                after.iter().zip(before).map(|(after, before)| after.bytes.saturating_sub(before.bytes));
            ((to - from) as f64 / 1e9, gained.collect())
        }
        _ => (0.0, Vec::new()),
    };
    let priorities = plan.sources.iter().map(|source| source.priority);
    let priorities = priorities.chain(plan.bulk.map(|bulk| bulk.priority));
    let mut by_priority = [0; Priority::COUNT];
    for (priority, bytes) in priorities.zip(bytes) {
        by_priority[priority.index()] += bytes;
    }
    Outcome {
        plan: plan.clone(),
        sources: sources.collect(),
        seconds,
        by_priority: by_priority.map(Bytes::new),
        lanes,
        clock: Clock {
            shared: offset.is_shared(),
            offset_ms: offset.offset_ns() as f64 / 1e6,
            error_ms: offset.error_ns() as f64 / 1e6,
            exchanges: offset.exchanges(),
        },
        cpu: [CpuTime::now().since(heard.cpu_before), heard.cpu_server],
        intervals: heard.intervals.finished().to_vec(),
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
