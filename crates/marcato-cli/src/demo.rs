//! `marcato demo`: the web page of the CATS paper over real QUIC sockets, through an emulated link,
//! alone and beside a periodic source; and a page over HTTP/2.
//!
//! Sender, link and receiver run in this process, each on its own sockets of the loopback
//! interface. All times are therefore of one clock.

#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod open;
#[cfg(target_os = "linux")]
mod web;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use marcato_lab::{Datagram, LinkConfig, LinkCounters, Loss, OpenError, UdpLink};
use marcato_net::{
    AcceptError, ClientSecurity, Closed, Config, ConnectError, Connection, Endpoint, Engine, ListenError,
    Message, Remote, SendError, ServerSecurity,
};
use marcato_papers::cats_page::{GROUPS, NAMES, ORDER};
use marcato_papers::{Progress as _, RunOptions, SeedError};
use marcato_queue::{Codel, CodelConfig, DropTail, DropTailConfig, Limit};
use marcato_quic::{Identity, IdentityError, Trust};
use marcato_report::chart::{Axis, BarChart, Bars, LineChart, Series};
use marcato_report::page::{self, Cell, Column, Page};
use marcato_report::{
    AtomicFile, COMMIT, Config as Settings, Document, Figure, Mean, Percentile, Row, Samples, Unit, VERSION,
    World,
};
use marcato_units::{Bytes, Priority, Rate, Seed};
use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout};

use crate::Status;
use crate::arguments::{Demo, Format, QueueName};
use crate::interrupt::EndsOnInterrupt;
use crate::output::{self, Directory};
use crate::progress::Bar;
use crate::table::Table;

/// Link in each direction: the bottleneck of CATS §III-A.
const RATE: Rate = Rate::from_mbps(2);
const DELAY: Duration = Duration::from_millis(50);
/// Capacity of the drop-tail queue: the bytes that the link carries in a round trip of 100 ms.
const BUFFER: Bytes = Bytes::kb(25);
/// Period of the source of small critical messages, such as keystrokes or commands.
const PERIOD: Duration = Duration::from_millis(20);
/// Time for which the source's messages are received after the page.
const AFTER: Duration = Duration::from_millis(500);
const SIZE: usize = 250;
/// Most loads beside the source with each scheme. Each has about 90 of its messages.
const MOST_LOADS_BESIDE: u32 = 3;
/// Whole page with Marcato over that of first come, first served: nothing is lost by the order, except what the
/// machine's other work adds.
const WHOLE: f64 = 1.01;
/// Timeout of a load, which normally takes 1.5 s.
const PATIENCE: Duration = Duration::from_secs(30);
const NAME: &str = "demo.marcato";
/// First byte of a message of the source. Messages of the page begin with the number of their
/// group.
const SOURCE: u8 = 0xff;

/// Error that prevents the demo.
#[derive(Debug, Error)]
pub(crate) enum DemoError {
    #[error("cannot start: {0}")]
    Runtime(io::Error),
    #[error("{0}: the demo needs the loopback interface (127.0.0.1) and free UDP ports on it")]
    Listen(#[from] ListenError),
    #[error("{0}: the demo needs the loopback interface (127.0.0.1) and free UDP ports on it")]
    Link(#[from] OpenError),
    #[error("cannot create the queue: {0}")]
    Queue(String),
    #[error("{0}: allow UDP on the loopback interface in the firewall, or lower --loss")]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Accept(#[from] AcceptError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error("the connection ended before the page was complete: {0}")]
    Closed(#[from] Closed),
    #[error("the page was not complete after {PATIENCE:?}: reduce the load of this machine, or lower --loss")]
    TooSlow,
    #[error(transparent)]
    Seed(#[from] SeedError),
    #[error("cannot write `{}`: {source}; choose another directory with --out", path.display())]
    Out { path: PathBuf, source: io::Error },
    #[error("cannot write to standard output: {0}")]
    Print(io::Error),
    #[error("cannot listen for interrupts: {0}")]
    Interrupt(io::Error),
    #[cfg(target_os = "linux")]
    #[error("cannot serve the page: {0}")]
    Open(#[from] marcato_papers::WebDemoError),
    #[cfg(not(target_os = "linux"))]
    #[error("--open needs Linux: run the demo without it, or on Linux")]
    Elsewhere,
}

/// Order in which messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// First in, first out: all messages have the same level.
    Fifo,
    /// Conductor with the defaults of `marcato-net`.
    Marcato,
}

impl Scheme {
    const BOTH: [Self; 2] = [Self::Fifo, Self::Marcato];

    const fn id(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Marcato => "marcato",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "FIFO",
            Self::Marcato => "Marcato",
        }
    }

    /// Returns the level at which data of this priority is sent.
    fn level(self, priority: Priority) -> Priority {
        match self {
            Self::Fifo => Priority::P2,
            Self::Marcato => priority,
        }
    }
}

/// Results of one load of the page. Times are in ms since the page was offered.
#[derive(Clone, Debug)]
struct Load {
    /// Arrival time of each group.
    done: [f64; Priority::COUNT],
    /// Release time and completion time of each message of the source.
    source: Vec<(f64, f64)>,
    forward: LinkCounters,
}

impl Load {
    /// Returns the time by which all groups up to this priority had arrived.
    fn upto(&self, priority: Priority) -> f64 {
        self.done[..=priority.index()].iter().copied().fold(0.0, f64::max)
    }
}

/// Loads with each scheme, in the order of [`Scheme::BOTH`].
type Loads = [Vec<Load>; 2];

/// All loads of a run.
#[derive(Clone, Debug, Default)]
struct Measured {
    /// The page, with nothing beside it.
    alone: Loads,
    /// The page beside the periodic source.
    beside: Loads,
}

pub(crate) fn run(asked: &Demo, stdout: &mut dyn Write) -> Result<Status, DemoError> {
    if asked.open {
        #[cfg(target_os = "linux")]
        return open::run(asked, stdout);
        #[cfg(not(target_os = "linux"))]
        return Err(DemoError::Elsewhere);
    }
    let open =
        |out: &PathBuf| Directory::open(out).map_err(|source| DemoError::Out { path: out.clone(), source });
    let directory = Arc::new(asked.out.as_ref().map(open).transpose()?);
    // A process can become root of a user namespace only while it has one thread.
    #[cfg(target_os = "linux")]
    crate::lab::privileges();
    let ends = EndsOnInterrupt::leaving(&directory).map_err(DemoError::Interrupt)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(DemoError::Runtime)?;
    let loads = runtime.block_on(all(asked))?;
    let mut parts = Vec::from(parts(&loads));
    #[cfg(target_os = "linux")]
    parts.extend([web::part(asked), kernel::part(asked)]);
    let options = RunOptions::repeated(asked.seed, asked.loads)?.in_world(World::Lab);
    let rows = parts.iter().flat_map(|part| part.rows.iter().cloned());
    let document = Document::new("demo", &options).config(settings(asked)).with_rows(rows);
    drop(ends);
    // Rows that cannot be written are printed nevertheless.
    let write = |out: &PathBuf| write(out, &page(asked, &loads, &parts, &document), &document);
    let written = asked.out.as_ref().map_or(Ok(()), write);
    let printed = match asked.format {
        Format::Text => text(&parts, &document),
        Format::Json => document.to_json(),
        Format::Csv => document.to_csv(),
    };
    output::print(stdout, &printed).map_err(DemoError::Print)?;
    written?;
    Ok(if document.holds() { Status::Ok } else { Status::Outside })
}

fn write(out: &Path, page: &Page, document: &Document) -> Result<(), DemoError> {
    let file = |name: &str, content: &str| {
        let path = out.join(name);
        AtomicFile::write(&path, content).map_err(|source| DemoError::Out { path, source })
    };
    file("report.html", &page.to_html())?;
    file("rows.json", &document.to_json())?;
    file("rows.csv", &document.to_csv())?;
    page.images().into_iter().try_for_each(|(id, svg)| file(&format!("{id}.svg"), &svg))
}

/// Runs all loads.
async fn all(asked: &Demo) -> Result<Measured, DemoError> {
    let identity = Identity::self_signed(NAME)?;
    let trust = identity.certificate().cloned().map(Trust::Certificate);
    let security =
        trust.map_or_else(|| ClientSecurity::verified(NAME), |t| ClientSecurity::trusting(NAME, t));
    let mut config = Config::new(Engine::Quic);
    // The link stands for one outside this host.
    config.quic.session.loopback_mtu = config.quic.session.mtu_limit;
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let endpoint = Endpoint::listen(&config, &[at.into()], &ServerSecurity::Tls(identity)).await?;
    let mut measured = Measured::default();
    let mut progress = Bar::new();
    let beside = asked.loads.min(MOST_LOADS_BESIDE);
    for (is_beside, count, loads, name) in [
        (false, asked.loads, &mut measured.alone, "loading the page"),
        (true, beside, &mut measured.beside, "loading the page beside a source"),
    ] {
        progress.begin(name, Some(u64::from(count) * 2));
        for number in 0..u64::from(count) {
            // Alternating the schemes exposes both to the same disturbances of this machine.
            for (scheme, loads) in Scheme::BOTH.into_iter().zip(&mut *loads) {
                let load = load(asked, scheme, number, is_beside, &config, &endpoint, &security);
                loads.push(timeout(PATIENCE, load).await.map_err(|_| DemoError::TooSlow)??);
                progress.advance(1);
            }
        }
    }
    Ok(measured)
}

fn link(asked: &Demo) -> Result<LinkConfig<Datagram>, DemoError> {
    let link = LinkConfig::new(RATE, DELAY).loss(Loss::Random(asked.loss));
    Ok(match asked.queue {
        QueueName::Droptail => {
            let queue = DropTail::new(DropTailConfig { limit: Limit::Bytes(BUFFER) });
            link.queue(queue.map_err(|error| DemoError::Queue(error.to_string()))?)
        }
        QueueName::Codel => {
            let queue = Codel::new(CodelConfig::default());
            link.queue(queue.map_err(|error| DemoError::Queue(error.to_string()))?)
        }
    })
}

/// Loads the page once, over a new connection and a new link; beside the periodic source if asked.
async fn load(
    asked: &Demo,
    scheme: Scheme,
    number: u64,
    is_beside: bool,
    config: &Config,
    endpoint: &Endpoint,
    security: &ClientSecurity,
) -> Result<Load, DemoError> {
    // Both schemes use the same random draws; each load uses others.
    let seed = Seed::new(asked.seed.wrapping_add(number));
    let server = endpoint.local_addrs().first().copied();
    let server = server.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let between = UdpLink::open(server, link(asked)?, link(asked)?, seed).await?;
    let remote = Remote::new(between.addr(), security.clone());
    let connected = async { Endpoint::connect(config, &remote).await.map_err(DemoError::from) };
    let accepted = async { endpoint.accept().await.map_err(DemoError::from) };
    let (sender, receiver) = tokio::try_join!(connected, accepted)?;
    let period = u64::try_from(PERIOD.as_nanos()).unwrap_or(u64::MAX);
    let phase = Duration::from_nanos(seed.stream("demo/source").below(period));

    let began = Instant::now();
    for priority in ORDER {
        let group = priority.index();
        let len = usize::try_from(GROUPS[group].get()).unwrap_or(0);
        let body = vec![u8::try_from(group).unwrap_or(SOURCE); len];
        sender.send(Message::new(body).with_priority(scheme.level(priority))).await?;
    }
    let mut released = Vec::new();
    let received = if is_beside {
        tokio::select! {
            received = receive(&receiver, AFTER) => received?,
            error = release(&sender, scheme, began + phase, &mut released) => return Err(error.into()),
        }
    } else {
        receive(&receiver, Duration::ZERO).await?
    };
    let forward = between.forward();
    // Data still in flight is no longer needed.
    sender.abort();
    receiver.abort();

    let ms = |at: Instant| at.saturating_duration_since(began).as_secs_f64() * 1e3;
    let source = received.source.iter().filter_map(|&(sequence, at)| {
        let released = *released.get(usize::try_from(sequence).ok()?)?;
        Some((ms(released), ms(at) - ms(released)))
    });
    Ok(Load { done: received.done.map(ms), source: source.collect(), forward })
}

/// Releases a message of the source in each period, without end, and records the release times.
async fn release(
    sender: &Connection,
    scheme: Scheme,
    mut due: Instant,
    released: &mut Vec<Instant>,
) -> SendError {
    loop {
        sleep_until(due).await;
        let mut body = vec![SOURCE; SIZE];
        let sequence = u32::try_from(released.len()).unwrap_or(u32::MAX);
        body[1..5].copy_from_slice(&sequence.to_be_bytes());
        released.push(Instant::now());
        let message = Message::new(body).with_priority(scheme.level(Priority::P0));
        if let Err(error) = sender.send(message).await {
            return error;
        }
        due += PERIOD;
    }
}

/// Arrivals, with their times.
struct Arrived {
    done: [Instant; Priority::COUNT],
    /// Messages of the source, by their sequence numbers.
    source: Vec<(u32, Instant)>,
}

/// Receives messages until this time past the end of the page. Under FIFO, the most delayed
/// messages of the source arrive right after the page.
async fn receive(receiver: &Connection, after: Duration) -> Result<Arrived, Closed> {
    let mut done = [None; Priority::COUNT];
    let mut source = Vec::new();
    // Completion time of the page, and the time until which to continue.
    let mut page = None;
    loop {
        let message = receiver.recv().await?;
        let now = Instant::now();
        match message.bytes.first() {
            Some(&SOURCE) => {
                let number = message.bytes.get(1..5).and_then(|bytes| bytes.try_into().ok());
                source.push((number.map_or(u32::MAX, u32::from_be_bytes), now));
            }
            Some(&group) => {
                if let Some(done) = done.get_mut(usize::from(group)) {
                    *done = Some(now);
                }
            }
            None => {}
        }
        if let ([Some(p0), Some(p1), Some(p2), Some(p3), Some(p4)], None) = (done, page) {
            page = Some(([p0, p1, p2, p3, p4], now + after));
        }
        if let Some((done, until)) = page
            && now >= until
        {
            return Ok(Arrived { done, source });
        }
    }
}

/// Returns one value per load, of which a row computes the mean and its confidence interval.
fn means(loads: &[Load], value: impl Fn(&Load) -> f64) -> Vec<f64> {
    loads.iter().map(value).collect()
}

/// Part of the results, with the measurements of both schemes.
struct Part {
    title: &'static str,
    text: String,
    rows: Vec<Row>,
    figures: Vec<Figure>,
}

/// Rows of a moment of the page with each scheme, and their ratio, with its claim if there is one.
fn moment(id: &str, name: &str, upto: Priority, loads: &Loads, claim: Option<f64>) -> Vec<Row> {
    let each = Scheme::BOTH.into_iter().zip(loads);
    let mut rows: Vec<Row> = each
        .map(|(scheme, loads)| {
            let what = format!("{name}, {}", scheme.name());
            let row = Row::new(format!("demo.{id}.{}", scheme.id()), what, Unit::Ms);
            row.samples(&means(loads, |load| load.upto(upto)))
        })
        .collect();
    let pairs = loads[0].iter().zip(&loads[1]);
    let ratios: Vec<f64> = pairs.map(|(fifo, marcato)| marcato.upto(upto) / fifo.upto(upto)).collect();
    let row = Row::new(format!("demo.{id}.ratio"), format!("{name}, Marcato over FIFO"), Unit::Ratio);
    let row = row.samples(&ratios);
    rows.push(match claim {
        Some(most) => row.at_most(most),
        None => row,
    });
    rows
}

fn took(loads: &[Load]) -> Samples {
    loads.iter().flat_map(|load| load.source.iter().map(|(_, took)| *took)).collect()
}

fn parts(Measured { alone, beside }: &Measured) -> [Part; 4] {
    let each = || Scheme::BOTH.into_iter().zip(alone);
    let mut page = Vec::new();
    for (scheme, loads) in each() {
        for priority in Priority::ALL {
            let group = priority.index();
            let what = format!("{} complete, {}", NAMES[group], scheme.name());
            let row = Row::new(format!("demo.page.{}.p{group}", scheme.id()), what, Unit::Ms);
            page.push(row.samples(&means(loads, |load| load.done[group])));
        }
    }
    let user = [
        moment("fcp", "first contentful paint (P0, P1)", Priority::P1, alone, Some(1.0)),
        moment("tti", "time to interactive (P0 to P2)", Priority::P2, alone, Some(1.0)),
        moment("load", "whole page", Priority::P4, alone, Some(WHOLE)),
    ]
    .concat();
    // With Marcato, the source's messages share the link with the page, which takes longer by them. With FIFO they
    // arrive after it. No bound is claimed for the whole page: it depends on the number of messages.
    let mut source = [
        moment("beside.fcp", "first contentful paint beside it", Priority::P1, beside, Some(1.0)),
        moment("beside.load", "whole page beside it", Priority::P4, beside, None),
    ]
    .concat();
    for (scheme, loads) in Scheme::BOTH.into_iter().zip(beside) {
        let samples = took(loads);
        let percentiles = [
            ("p50", "median", Percentile::P50),
            ("p99", "99 %", Percentile::P99),
            ("max", "longest", Percentile::MAX),
        ];
        for (id, name, percentile) in percentiles {
            let what = format!("message of the source, {name}, {}", scheme.name());
            let row = Row::new(format!("demo.source.{}.{id}", scheme.id()), what, Unit::Ms);
            source.push(row.measured(samples.percentile(percentile).unwrap_or(f64::NAN)));
        }
        let row = Row::new(
            format!("demo.source.{}.messages", scheme.id()),
            format!("messages of the source, {}", scheme.name()),
            Unit::Count,
        );
        source.push(row.measured(samples.len() as f64));
    }
    let mut network = Vec::new();
    for (scheme, loads) in each() {
        let row = |id: &str, what: &str| {
            let what = format!("{what}, {}", scheme.name());
            Row::new(format!("demo.link.{}.{id}", scheme.id()), what, Unit::Count)
        };
        let count = |value: fn(&LinkCounters) -> u64| means(loads, |load| value(&load.forward) as f64);
        network
            .push(row("delivered", "datagrams that passed the link").samples(&count(|link| link.delivered)));
        network.push(row("dropped", "datagrams dropped by its queue").samples(&count(|link| link.dropped)));
        network.push(row("lost", "datagrams lost on its line").samples(&count(|link| link.lost)));
        let longest = count(|link| link.longest_queue.get());
        network.push(row("queue", "bytes in its queue, at most").samples(&longest));
    }
    [
        Part {
            title: "The page alone: completion of each group",
            text: "Groups of 8, 25, 40, 60 and 150 kB, handed over at once and the least urgent first \
                   (CATS §III-A). Times run from the hand-over until the receiving application has all of \
                   a group."
                .to_owned(),
            rows: page,
            figures: vec![],
        },
        Part {
            title: "The page alone: user-visible times",
            text: format!(
                "The order of the bytes is all that differs: the whole page takes at most {WHOLE} of its time."
            ),
            rows: user,
            figures: vec![],
        },
        Part {
            title: "The page beside a periodic source: message completion time, one way",
            text: format!(
                "{SIZE} bytes of P0 every {PERIOD:?}, from the page's hand-over to {AFTER:?} after its \
                 end. With a delay of {DELAY:?}, none can take less than about 51 ms. The whole page takes longer \
                 with Marcato by the messages that arrive before its end; with FIFO they arrive after it.",
            ),
            rows: source,
            figures: vec![],
        },
        Part { title: "The link, with the page alone", text: String::new(), rows: network, figures: vec![] },
    ]
}

/// Quantity measured with both schemes, and the ratio where there is one.
#[derive(Default)]
struct Compared<'a> {
    /// Common part of the rows' ids, without the scheme.
    id: String,
    what: &'a str,
    unit: Option<Unit>,
    /// Rows for FIFO, Marcato and their ratio.
    rows: [Option<&'a Row>; 3],
}

const WAYS: [(&str, &str); 3] = [("fifo", "FIFO"), ("marcato", "Marcato"), ("ratio", "Marcato over FIFO")];

/// Groups the rows of a part by quantity.
fn compared(rows: &[Row]) -> Vec<Compared<'_>> {
    let mut all: Vec<Compared<'_>> = Vec::new();
    for row in rows {
        let parts: Vec<&str> = row.id().split('.').collect();
        let Some(way) = WAYS.iter().position(|(id, _)| parts.contains(id)) else { continue };
        let id = parts.into_iter().filter(|part| *part != WAYS[way].0).collect::<Vec<_>>().join(".");
        let place = all.iter().position(|one| one.id == id).unwrap_or_else(|| {
            all.push(Compared { id, ..Compared::default() });
            all.len() - 1
        });
        if WAYS[way].0 != "ratio" {
            all[place].what = row.what().strip_suffix(&format!(", {}", WAYS[way].1)).unwrap_or(row.what());
            all[place].unit = Some(row.unit());
        }
        all[place].rows[way] = Some(row);
    }
    all
}

/// Returns the verdict as a sentence.
fn verdict(document: &Document) -> &'static str {
    let failed: Vec<&str> =
        document.rows().iter().filter(|row| row.ok() == Some(false)).map(Row::id).collect();
    match failed[..] {
        [] => "Urgent data arrived earlier with Marcato, and the whole page no later.",
        ["demo.load.ratio"] => {
            "Urgent data arrived earlier with Marcato, but the whole page later: repeat the run on an idle machine."
        }
        _ => "Urgent data did not arrive earlier with Marcato: repeat the run on an idle machine.",
    }
}

fn text(parts: &[Part], document: &Document) -> String {
    let mut text = String::new();
    for part in parts {
        if part.rows.is_empty() {
            text += &format!("{}\n  {}\n\n", part.title, part.text);
            continue;
        }
        let compared = compared(&part.rows);
        let has_ratio = compared.iter().any(|one| one.rows[2].is_some());
        let ways = &WAYS[..if has_ratio { 3 } else { 2 }];
        let mut table =
            Table::new(["what", "unit"].into_iter().chain(ways.iter().map(|(_, name)| *name))).words(2);
        for one in &compared {
            let cells = ways.iter().zip(one.rows).map(|(_, row)| match row {
                Some(row) => match (row.measured_value(), row.ci95()) {
                    (Some(value), Some(ci95)) => format!("{} ± {}", number(value), number(ci95)),
                    (Some(value), None) => number(value),
                    (None, _) => "-".to_owned(),
                },
                None => String::new(),
            });
            let unit = one.unit.map(|unit| unit.to_string()).unwrap_or_default();
            table.row([one.what.to_owned(), unit].into_iter().chain(cells));
        }
        text += &format!("{}\n{table}\n", part.title);
    }
    text + verdict(document) + "\n"
}

/// Formats a number with the digits that a measurement in real time justifies.
fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value.abs() < 10.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    }
}

fn page(asked: &Demo, loads: &Measured, parts: &[Part], document: &Document) -> Page {
    let about = "The web page of CATS is loaded over real QUIC sockets of this host, through an emulated link of \
                 2 Mbit/s and 50 ms each way: alone first, then beside a periodic source. A page over HTTP/2 uses such a link, too. First come, first served is compared with \
                 Marcato. The run is in real time: its values vary with the machine's other load.";
    let page = Page::new("Marcato: what matters first")
        .about(about)
        .provenance(format!(
            "{} loads each way, seed {}, Marcato {VERSION} ({COMMIT})",
            asked.loads, asked.seed
        ))
        .summary(verdict(document));
    let charts = [completion(&loads.alone), tail(&loads.beside), course(&loads.beside)];
    let page = page.section(charts.into_iter().fold(page::Section::new("Charts"), page::Section::figure));
    let page = parts.iter().fold(page, |page, part| {
        if part.rows.is_empty() {
            return page.section(page::Section::new(part.title).text(&part.text));
        }
        let compared = compared(&part.rows);
        let has_ratio = compared.iter().any(|one| one.rows[2].is_some());
        let ways = &WAYS[..if has_ratio { 3 } else { 2 }];
        let columns = [Column::text("what"), Column::text("unit")];
        let columns = columns.into_iter().chain(ways.iter().map(|(_, name)| Column::number(*name)));
        let rows = compared.iter().map(|one| {
            let unit = one.unit.map(|unit| unit.to_string()).unwrap_or_default();
            let cells = ways.iter().zip(one.rows).map(|(_, row)| match row {
                Some(row) => Cell::interval(row.measured_value(), row.ci95()),
                None => Cell::text(""),
            });
            [Cell::text(one.what), Cell::text(unit)].into_iter().chain(cells).collect::<Vec<_>>()
        });
        let table = page::Table::new(part.title).columns(columns).rows(rows);
        let section = page::Section::new(part.title).text(&part.text).table(table);
        page.section(part.figures.iter().cloned().fold(section, page::Section::figure))
    });
    let said =
        document.settings().iter().map(|(key, value)| format!("{key} = {value}\n")).collect::<String>();
    page.section(page::Section::new("Configuration").code(said))
}

/// Queue discipline, as a scenario names it.
#[cfg(target_os = "linux")]
fn queue(asked: &Demo) -> String {
    match asked.queue {
        QueueName::Droptail => format!("{{ kind = \"droptail\", limit = \"{} B\" }}", BUFFER.get()),
        QueueName::Codel => "\"codel\"".to_owned(),
    }
}

fn settings(asked: &Demo) -> Settings {
    let (queue, buffer) = match asked.queue {
        QueueName::Droptail => ("droptail", BUFFER.to_string()),
        QueueName::Codel => ("codel", "target 5 ms, interval 100 ms, 1000 packets".to_owned()),
    };
    Settings::new()
        .set("engine", "quic")
        .set("rate", RATE.to_string())
        .set("one_way_delay_ms", 50)
        .set("queue", queue)
        .set("buffer", buffer)
        .set("loss", asked.loss)
        .set("loads", asked.loads)
        .set("source_period_ms", 20)
        .set("source_bytes", SIZE)
        .set("congestion", "cubic")
        .set("fifo", "all messages at one level")
        .set("marcato", "Debt::marcato, lane scheduler cwr")
        .set("coupled", "auto")
}

fn completion(loads: &Loads) -> Figure {
    let chart = BarChart::new("Completion of each group of the page", Axis::new("since the hand-over", "ms"));
    let chart = Scheme::BOTH.into_iter().zip(loads).fold(chart.groups(NAMES), |chart, (scheme, loads)| {
        let mean = |priority: Priority| {
            Mean::of(&loads.iter().map(|load| load.done[priority.index()]).collect::<Vec<_>>())
        };
        let means = Priority::ALL.map(mean);
        let intervals = means.iter().map(|mean| mean.ci95.unwrap_or(f64::NAN));
        chart.bars(Bars::new(scheme.name(), means.iter().map(|mean| mean.value)).intervals(intervals))
    });
    let means = match loads[0].len() {
        0 | 1 => "One load.",
        _ => "Means over all loads, with their 95 % confidence intervals.",
    };
    Figure::new(
        "page",
        chart,
        format!(
            "{means} Urgent groups complete first. Both send the same bytes, with nothing beside the page."
        ),
    )
}

fn tail(loads: &Loads) -> Figure {
    let few = loads.iter().map(|loads| took(loads).len()).max().unwrap_or(0).max(10);
    let axis = Axis::new("message completion time, one way", "ms");
    let chart =
        LineChart::ccdf("CCDF of the source's completion times", axis, true).down_to(1.0 / few as f64);
    let chart = Scheme::BOTH.into_iter().zip(loads).fold(chart, |chart, (scheme, loads)| {
        chart.series(Series::ccdf(scheme.name(), took(loads).sorted().iter().copied()))
    });
    Figure::new("source-tail", chart, "All loads together.")
}

fn course(loads: &Loads) -> Figure {
    let chart = LineChart::new(
        "Messages of the source while the page loads",
        Axis::new("released, since the page was handed over", "ms"),
        Axis::new("message completion time, one way", "ms"),
    );
    let chart = Scheme::BOTH.into_iter().zip(loads).fold(chart, |chart, (scheme, loads)| {
        let mut points = loads.first().map(|load| load.source.clone()).unwrap_or_default();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.series(Series::line(scheme.name(), points).marks())
    });
    let caption = "The first load. First come, first served, a message waits for all of the page that is \
                   queued before it. With Marcato it waits only for data that the network already holds.";
    Figure::new("source-course", chart, caption)
}
