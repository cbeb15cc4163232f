//! Coupled mode over sockets, in a lab: a message of 20 kB at P0 beside background data, by `marcato-net`
//! over the kernel's TCP with TLS, or over QUIC.
//!
//! A ratio is the time from `send` to `recv`, divided by the physical limit: one-way delay, serialisation
//! of the message's packets, and one packet, which may have begun to leave. The limit is that of the path
//! without its trouble.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use marcato_lab::{Lab, Traces};
use marcato_net::{
    ClientSecurity, Config, Connection, CoupledStats, Coupling, Endpoint, Engine, Identity, Message, Remote,
    ServerSecurity, TcpCongestion, Trust,
};
use marcato_quic::Congestion;
use marcato_sched::coupled::Mode;
use marcato_sim::Trace;
use marcato_units::{Bytes, Priority, Rate, Seed};

use crate::error::SimulationError;
use crate::lab::{failed, joined, on_host};

/// Name in the server's certificate.
const NAME: &str = "coupled.marcato";
const PORT: u16 = 443;
/// Length of an urgent message, and of one of the background.
const URGENT: u64 = 20_000;
const BACKGROUND: usize = 8 << 10;
/// Mean time between urgent messages. It is at least half of that: none waits for the one before.
const EVERY: Duration = Duration::from_secs(1);
/// Time after the last urgent message.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of a packet, and of those its headers with TCP's timestamps, and what TLS adds to a record.
const PACKET: u64 = 1500;
const HEADERS: u64 = 20 + 32;
const RECORD: u64 = 5 + 1 + 16;
/// Bytes that QUIC adds to a packet: IP, UDP, a short header, the seal, and the head of a frame.
const QUIC: u64 = 20 + 8 + 13 + 16 + 8;
/// Port of the download that other programs make, and bytes of each of its writes.
const DOWNLOAD: u16 = 80;
const WRITE: usize = 64 << 10;
/// Time at which a path changes.
const CHANGE: Duration = Duration::from_secs(15);
/// Bytes of a batch, after which the sender waits for its acknowledgement.
const BATCH: usize = 100_000;
/// Name of the trace of a radio link.
const TRACE: &str = "wifi.trace";

/// Transport with its congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    TcpCubic,
    TcpBbr,
    QuicCubic,
    QuicBbr,
}

impl Transport {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::TcpCubic, Self::TcpBbr, Self::QuicCubic, Self::QuicBbr];

    /// Name in row ids.
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::TcpCubic => "tcp-cubic",
            Self::TcpBbr => "tcp-bbr",
            Self::QuicCubic => "quic-cubic",
            Self::QuicBbr => "quic-bbr",
        }
    }

    /// Congestion control.
    pub(crate) const fn congestion(self) -> &'static str {
        match self {
            Self::TcpCubic | Self::QuicCubic => "cubic",
            Self::TcpBbr | Self::QuicBbr => "bbr",
        }
    }

    fn config(self, coupled: Coupling) -> Config {
        let (engine, tcp, quic) = match self {
            Self::TcpCubic => (Engine::Tcp, TcpCongestion::Cubic, Congestion::Cubic),
            Self::TcpBbr => (Engine::Tcp, TcpCongestion::Bbr, Congestion::Bbr3),
            Self::QuicCubic => (Engine::Quic, TcpCongestion::Cubic, Congestion::Cubic),
            Self::QuicBbr => (Engine::Quic, TcpCongestion::Bbr, Congestion::Bbr3),
        };
        let mut config = Config::new(engine);
        config.tcp.congestion = Some(tcp);
        config.quic.session.congestion = quic;
        config.coupled = coupled;
        config
    }

    /// Bytes on the wire of a message of this length.
    fn wire(self, length: u64) -> u64 {
        let overhead = match self {
            Self::TcpCubic | Self::TcpBbr => HEADERS + RECORD,
            Self::QuicCubic | Self::QuicBbr => QUIC,
        };
        length + length.div_ceil(PACKET - overhead) * overhead
    }
}

/// Trouble of a path, or of its traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Situation {
    /// None.
    Constant,
    /// Uniform jitter up to so many ms, each way.
    Jitter(u64),
    /// The path becomes so many ms longer, once.
    Step(u64),
    /// A download of another program queues on the way back.
    Download,
    /// Packets leave in bursts at random times, as a radio link gives them.
    Wifi,
    /// The background waits for its acknowledgement after each batch, as a replicated log does.
    Log,
}

impl Situation {
    /// All of them.
    pub(crate) const ALL: [Self; 7] = [
        Self::Constant,
        Self::Jitter(5),
        Self::Jitter(10),
        Self::Step(10),
        Self::Download,
        Self::Wifi,
        Self::Log,
    ];

    /// Name in row ids.
    pub(crate) fn id(self) -> String {
        match self {
            Self::Constant => "constant".to_owned(),
            Self::Jitter(most) => format!("jitter-{most}"),
            Self::Step(more) => format!("step-{more}"),
            Self::Download => "download".to_owned(),
            Self::Wifi => "wifi".to_owned(),
            Self::Log => "log".to_owned(),
        }
    }

    /// Name in words.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Constant => "a constant line".to_owned(),
            Self::Jitter(most) => format!("jitter up to {most} ms each way"),
            Self::Step(more) => format!("the path becomes {more} ms longer"),
            Self::Download => "a download queues on the way back".to_owned(),
            Self::Wifi => "bursts of a radio link".to_owned(),
            Self::Log => "background that waits for each 100 kB".to_owned(),
        }
    }
}

/// Path, a transport on it, and the trouble.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) mbit: u64,
    /// Base round trip in ms.
    pub(crate) rtt: u64,
    /// Buffer in bandwidth-delay products.
    pub(crate) bdp: u64,
    pub(crate) transport: Transport,
    pub(crate) situation: Situation,
}

impl Cell {
    /// Constant lines under the kernel's TCP: three, each with two congestion controls.
    pub(crate) fn constant() -> impl Iterator<Item = Self> {
        let links = [(2, 100, 2), (10, 40, 4), (30, 20, 2)];
        let situation = Situation::Constant;
        links.into_iter().flat_map(move |(mbit, rtt, bdp)| {
            [Transport::TcpCubic, Transport::TcpBbr].map(|transport| Self {
                mbit,
                rtt,
                bdp,
                transport,
                situation,
            })
        })
    }

    /// One line in each situation, under each transport.
    pub(crate) fn wild() -> impl Iterator<Item = Self> {
        Situation::ALL.into_iter().flat_map(|situation| {
            Transport::ALL.map(|transport| Self { mbit: 20, rtt: 40, bdp: 3, transport, situation })
        })
    }

    /// Least completion time of an urgent message.
    fn limit(&self) -> Duration {
        let bytes = Bytes::new(self.transport.wire(URGENT) + PACKET);
        let serialisation = Rate::from_mbps(self.mbit).transmission_time(bytes);
        Duration::from_millis(self.rtt) / 2 + serialisation
    }

    fn scenario(&self, seed: u64) -> String {
        let Self { mbit, rtt, bdp, situation, .. } = self;
        let products = |mbit: u64| Rate::from_mbps(mbit).bytes_in(Duration::from_millis(rtt * bdp)).get();
        let queue = products(*mbit);
        let delay = rtt * 500;
        let capacity = match situation {
            Situation::Wifi => format!(r#"trace = "{TRACE}""#),
            _ => format!(r#"rate = "{mbit} Mbit/s""#),
        };
        let trouble = match situation {
            Situation::Jitter(most) => format!(r#", jitter = {{ kind = "uniform", most = "{most} ms" }}"#),
            Situation::Step(more) => format!(
                r#", changes = [{{ at = "{} ms", way = "there", delay = "{} us" }}]"#,
                CHANGE.as_millis(),
                delay + more * 1000
            ),
            // What comes back has its own rate: a home's download.
            Situation::Download => format!(
                r#", back = {{ rate = "50 Mbit/s", queue = {{ kind = "droptail", limit = "{} B" }} }}"#,
                products(50)
            ),
            Situation::Wifi => r#", back = { rate = "100 Mbit/s" }"#.to_owned(),
            Situation::Constant | Situation::Log => String::new(),
        };
        format!(
            r#"
            name = "coupled"
            duration = "600 s"
            seed = {seed}
            nodes = ["sender", "receiver"]
            link = [{{ name = "bottleneck", between = ["sender", "receiver"], {capacity},
                      delay = "{delay} us", queue = {{ kind = "droptail", limit = "{queue} B" }}{trouble} }}]
            [[flow]]
            name = "messages"
            kind = "tcp"
            from = "sender"
            to = "receiver"
            "#
        )
    }

    /// Traces of the links.
    fn traces(&self, seed: u64) -> Result<Traces, SimulationError> {
        match self.situation {
            Situation::Wifi => Ok(Traces::from([(TRACE.to_owned(), radio(self.mbit, seed)?)])),
            _ => Ok(Traces::new()),
        }
    }
}

/// Trace of a radio link of this mean rate: a burst of 4 to 32 packets, then a wait of 0.5 to 1.5 times
/// what these packets take.
fn radio(mbit: u64, seed: u64) -> Result<Trace, SimulationError> {
    let mut random = Seed::new(seed).stream("coupled.radio");
    let packet = PACKET as f64 * 8.0 / (mbit as f64 * 1000.0);
    let mut at = 0.0;
    let mut millis = Vec::new();
    while at < 60_000.0 {
        let burst = 4.0 + 28.0 * random.unit();
        at += burst * packet * (0.5 + random.unit());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than a minute")]
        millis.extend(std::iter::repeat_n(at as u32, burst as usize));
    }
    Trace::from_millis(millis).map_err(failed)
}

/// Measurements of a run, after its warm-up.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Ratios of all urgent messages, in ascending order; infinite if a message did not arrive.
    pub(crate) ratios: Vec<f64>,
    /// Rate at which background data arrived.
    pub(crate) goodput: Rate,
    /// Processor time of the sender's thread over the whole run, system calls included.
    pub(crate) processor: Duration,
    /// Final state of coupled mode; `None` if it never acted.
    pub(crate) coupled: Option<CoupledStats>,
}

impl Measured {
    /// Share of the time in which coupled mode had no cap, in percent.
    pub(crate) fn compete(&self) -> f64 {
        100.0 * self.coupled.as_ref().and_then(|stats| stats.counters.share(Mode::Compete)).unwrap_or(0.0)
    }

    /// Ratio that this share of the messages does not exceed (nearest rank).
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let rank = (share * self.ratios.len() as f64).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
        let at = (rank as usize).saturating_sub(1).min(self.ratios.len().saturating_sub(1));
        self.ratios.get(at).copied().unwrap_or(f64::INFINITY)
    }
}

/// State of a sender at its end.
struct Sent {
    /// Times at which urgent messages were sent.
    urgent: Vec<Instant>,
    began: Instant,
    processor: Duration,
    coupled: Option<CoupledStats>,
}

/// Arrivals at a receiver.
struct Arrived {
    /// Urgent messages by number.
    urgent: Vec<(usize, Instant)>,
    /// Bytes of the background and their times, when a message of it was complete.
    background: Vec<(Instant, u64)>,
}

/// Times of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Time until measuring begins. Urgent messages are sent from its first second on.
    pub(crate) warm: Duration,
    /// Time of measuring.
    pub(crate) span: Duration,
}

impl Times {
    /// Time of the whole run.
    pub(crate) fn whole(self) -> Duration {
        self.warm + self.span
    }
}

impl Default for Times {
    fn default() -> Self {
        Self { warm: Duration::from_secs(5), span: Duration::from_secs(40) }
    }
}

/// Runs a cell for a time, with coupled mode or without.
pub(crate) fn measure(
    cell: &Cell,
    coupled: Coupling,
    times: Times,
    seed: u64,
) -> Result<Measured, SimulationError> {
    let experiment = crate::lab::experiment(&cell.scenario(seed))?;
    let lab = Lab::open(&experiment, &cell.traces(seed)?, Default::default()).map_err(failed)?;
    let config = cell.transport.config(coupled);
    let identity = Identity::self_signed(NAME).map_err(failed)?;
    let trust = identity.certificate().cloned().ok_or(SimulationError::Missing("certificate"))?;
    let (address, _) = lab.addresses("sender").ok_or(SimulationError::Missing("sender"))?;
    let Times { warm, span } = times;
    let patience = warm + span + Duration::from_secs(30);
    if cell.situation == Situation::Download {
        download(&lab, address, warm + span)?;
    }
    let batches = cell.situation == Situation::Log;

    let (ready, listens) = sync_channel(1);
    let settings = config.clone();
    let server = on_host(&lab, "sender", patience, move || async move {
        let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let endpoint = Endpoint::listen(&settings, &[at.into()], &ServerSecurity::Tls(identity)).await;
        let endpoint = endpoint.map_err(failed)?;
        let _ = ready.send(());
        let connection = endpoint.accept().await.map_err(failed)?;
        send(&connection, warm + span, batches, seed).await
    })?;
    // If the server cannot listen, its thread says why.
    let _ = listens.recv();
    let client = on_host(&lab, "receiver", patience, move || async move {
        let security = ClientSecurity::trusting(NAME, Trust::Certificate(trust));
        let remote = Remote::new(SocketAddr::new(IpAddr::V4(address), PORT), security);
        let connection = Endpoint::connect(&config, remote).await.map_err(failed)?;
        Ok(receive(&connection, warm + span + GRACE).await)
    })?;
    let (sent, arrived) = (joined(server)?, joined(client)?);

    let limit = cell.limit().as_secs_f64();
    let from = sent.began + warm;
    let until = from + span;
    let mut ratios: Vec<f64> = sent
        .urgent
        .iter()
        .enumerate()
        .filter(|(_, at)| **at >= from)
        .map(|(number, at)| {
            let arrival = arrived.urgent.iter().find(|(other, _)| *other == number);
            arrival.map_or(f64::INFINITY, |(_, arrival)| (*arrival - *at).as_secs_f64() / limit)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let within = arrived.background.iter().filter(|(at, _)| (from..until).contains(at));
    let bytes = Bytes::new(within.map(|(_, bytes)| bytes).sum());
    let goodput = Rate::from_bytes_over(bytes, span);
    Ok(Measured { ratios, goodput, processor: sent.processor, coupled: sent.coupled })
}

/// Starts a download of other programs, from the receiver to the sender, over the kernel's TCP. It ends with
/// the lab, or after this time.
fn download(lab: &Lab, sender: Ipv4Addr, span: Duration) -> Result<(), SimulationError> {
    let (ready, listens) = sync_channel(1);
    let until = Instant::now() + span;
    let sink = move || -> std::io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, DOWNLOAD))?;
        let _ = ready.send(());
        let mut buffer = vec![0; WRITE];
        let mut stream = listener.accept()?.0;
        stream.set_read_timeout(Some(GRACE))?;
        while Instant::now() < until && stream.read(&mut buffer)? > 0 {}
        Ok(())
    };
    let source = move || -> std::io::Result<()> {
        let mut stream = TcpStream::connect((sender, DOWNLOAD))?;
        stream.set_write_timeout(Some(GRACE))?;
        while Instant::now() < until {
            stream.write_all(&[0; WRITE])?;
        }
        Ok(())
    };
    lab.thread("sender", sink).map_err(failed)?;
    // If it cannot listen, there is no download, and the source's connection is refused.
    let _ = listens.recv();
    lab.thread("receiver", source).map_err(failed)?;
    Ok(())
}

/// Sends background data, and urgent messages at random times. The background never pauses, unless it is in
/// batches: then it waits for the acknowledgement of each.
async fn send(
    connection: &Connection,
    span: Duration,
    batches: bool,
    seed: u64,
) -> Result<Sent, SimulationError> {
    let began = Instant::now();
    let over = began + span;
    let length = if batches { BATCH } else { BACKGROUND };
    let background = async {
        loop {
            let message = Message::new(vec![0; length]).with_priority(Priority::P3);
            let Ok(mut handle) = connection.send(message).await else { return };
            if batches && handle.acknowledged().await.is_err() {
                return;
            }
        }
    };
    let mut urgent = Vec::new();
    let mut gaps = Seed::new(seed).stream("coupled.urgent");
    let urgent_messages = async {
        tokio::time::sleep(EVERY).await;
        while Instant::now() + GRACE < over {
            let mut body = vec![0; usize::try_from(URGENT).unwrap_or(0)];
            body[..8].copy_from_slice(&(urgent.len() as u64).to_be_bytes());
            urgent.push(Instant::now());
            let message = Message::new(body).with_priority(Priority::P0);
            connection.send(message).await.map_err(failed)?;
            tokio::time::sleep(EVERY.mul_f64(0.5 + gaps.unit())).await;
        }
        tokio::time::sleep_until(over.into()).await;
        Ok::<_, SimulationError>(())
    };
    tokio::select! {
        () = background => return Err(SimulationError::Missing("connection to its end")),
        done = urgent_messages => done?,
    }
    let coupled = connection.stats().coupled;
    let processor = processor_time();
    connection.abort();
    Ok(Sent { urgent, began, processor, coupled })
}

/// Receives for this time, or until the sender ends the connection: the packet that says so may be lost in a
/// full queue.
async fn receive(connection: &Connection, span: Duration) -> Arrived {
    let until = Instant::now() + span;
    let mut arrived = Arrived { urgent: Vec::new(), background: Vec::new() };
    while let Ok(Ok(message)) = tokio::time::timeout_at(until.into(), connection.recv()).await {
        let now = Instant::now();
        if message.priority == Priority::P0 {
            let number = message.bytes.first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
            arrived.urgent.push((usize::try_from(number).unwrap_or(usize::MAX), now));
        } else {
            arrived.background.push((now, message.bytes.len() as u64));
        }
    }
    arrived
}

/// Processor time of this thread; zero if the kernel does not tell.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
    Duration::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use marcato_testing::{Need, absent, timely};

    use super::*;

    /// Runs a cell; `None` where there can be no lab.
    fn measured(cell: &Cell, coupled: Coupling, times: Times) -> Option<Measured> {
        (!absent!(Need::Lab)).then(|| measure(cell, coupled, times, 1).unwrap())
    }

    fn cell(transport: Transport) -> Cell {
        Cell { mbit: 30, rtt: 20, bdp: 2, transport, situation: Situation::Constant }
    }

    #[test]
    fn coupled_mode_acts_on_a_kernels_connection_and_says_so() {
        let cell = cell(Transport::TcpCubic);
        let times = Times { warm: EVERY, span: GRACE + EVERY };
        // Urgent messages are sent for a second: a sender that is woken later than that sends none.
        let run = timely(env!("CARGO_PKG_NAME"), EVERY / 2, || measured(&cell, Coupling::Auto, times));
        let Some(Some(run)) = run else { return };
        assert!(!run.ratios.is_empty() && run.quantile(1.0).is_finite(), "{run:?}");
        assert!(run.goodput > Rate::ZERO && run.goodput < Rate::from_mbps(cell.mbit), "{run:?}");
        assert!(run.coupled.is_some_and(|stats| stats.counters.rounds > 0 && stats.looks > 0), "{run:?}");
    }

    #[test]
    fn the_limit_is_delay_and_packets() {
        let cell = Cell { mbit: 10, rtt: 40, ..cell(Transport::TcpCubic) };
        // 20 kB in 15 packets of 74 B overhead, and one packet of 1500 B: 22 610 B.
        assert_eq!(cell.limit(), Duration::from_micros(20_000 + 18_088));
    }
}
