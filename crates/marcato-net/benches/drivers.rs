//! One driver of a QUIC server against two: the throughput of several clients over loopback, and the
//! processor time of the server.
//!
//! The server is a process of its own, so that its processor time can be told from that of the
//! clients. Each number of drivers is measured in turn, several times, and medians are printed. On
//! two cores the clients compete with the server, so the ratio of throughputs is a lower bound; the
//! last columns show the cores that each side used.
//!
//! `cargo bench -p marcato-net --bench drivers -- [seconds] [rounds]`

#[path = "paired/clock.rs"]
mod clock;

use std::io::{BufRead as _, Write as _};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes as Payload;
use marcato_net::{
    ClientSecurity, Config, Connection, Endpoint, Engine, Identity, Message, Remote, ServerSecurity, Trust,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const NAME: &str = "drivers.test";
const CLIENTS: usize = 8;
/// Workloads by name, with the length of their messages.
const WORKLOADS: [(&str, usize); 2] = [("bulk, 1 MB messages", 1 << 20), ("messages of 100 bytes", 100)];

/// Counters of the server at one moment.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: u64,
    cpu: u64,
    bytes: u64,
    messages: u64,
    handed_over: u64,
    /// Processor time of this process, which runs the clients.
    clients: u64,
}

/// Result of one measurement.
#[derive(Clone, Copy, Debug)]
struct Sample {
    mbytes_per_s: f64,
    messages_per_s: f64,
    cpu_ns_per_byte: f64,
    cpu_us_per_message: f64,
    server_cores: f64,
    client_cores: f64,
    /// Share of the clients' packets that were lost, in percent.
    lost: f64,
    handed_over: u64,
}

/// Server process, which ends on drop.
struct Server {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Server {
    fn spawn(drivers: usize) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").arg(drivers.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let input = child.stdin.take().ok_or("a server without input")?;
        let output = BufReader::new(child.stdout.take().ok_or("a server without output")?).lines();
        Ok(Self { _child: child, input, output })
    }

    async fn line(&mut self) -> Result<String, Failure> {
        let line = tokio::time::timeout(Duration::from_secs(30), self.output.next_line()).await??;
        Ok(line.ok_or("the server has ended")?)
    }

    async fn mark(&mut self) -> Result<Mark, Failure> {
        self.input.write_all(b"mark\n").await?;
        let line = self.line().await?;
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [at, cpu, bytes, messages, handed_over] = numbers[..] else {
            return Err(format!("not a mark: {line}").into());
        };
        Ok(Mark { at, cpu, bytes, messages, handed_over, clients: clock::cpu() })
    }
}

/// Runs the server: it counts what it receives, and answers each line of input with a mark.
fn serve(drivers: usize) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (bytes, messages) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let identity = Identity::self_signed(NAME)?;
    let certificate = identity.certificate().ok_or("no certificate")?.to_vec();
    let mut config = Config::new(Engine::Quic);
    config.quic.drivers = drivers;
    let at = [std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()];
    let endpoint = runtime.block_on(Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)))?;
    let endpoint = Arc::new(endpoint);
    let hex: String = certificate.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{} {hex}", endpoint.local_addrs()[0]);
    let accepting = {
        let (endpoint, bytes, messages) = (Arc::clone(&endpoint), Arc::clone(&bytes), Arc::clone(&messages));
        async move {
            while let Ok(connection) = endpoint.accept().await {
                let (bytes, messages) = (Arc::clone(&bytes), Arc::clone(&messages));
                tokio::spawn(async move {
                    while let Ok(received) = connection.recv().await {
                        bytes.fetch_add(received.bytes.len() as u64, Relaxed);
                        messages.fetch_add(1, Relaxed);
                    }
                });
            }
        }
    };
    runtime.spawn(accepting);
    for line in std::io::stdin().lock().lines() {
        line?;
        let handed_over = endpoint.stats().handed_over;
        let (bytes, messages) = (bytes.load(Relaxed), messages.load(Relaxed));
        let mut out = std::io::stdout().lock();
        writeln!(out, "{} {} {bytes} {messages} {handed_over}", clock::now(), clock::cpu())?;
        out.flush()?;
    }
    Ok(())
}

/// Sends messages of this length without a pause.
async fn send(connection: Connection, len: usize) {
    let body = Payload::from(vec![7; len]);
    while connection.send(Message::new(body.clone())).await.is_ok() {}
}

async fn measure(drivers: usize, len: usize, span: Duration) -> Result<Sample, Failure> {
    let mut server = Server::spawn(drivers)?;
    let line = server.line().await?;
    let (addr, hex) = line.split_once(' ').ok_or("the server does not say where it listens")?;
    let byte = |at| u8::from_str_radix(hex.get(at..at + 2).unwrap_or_default(), 16);
    let certificate = (0..hex.len()).step_by(2).map(byte).collect::<Result<Vec<u8>, _>>()?;
    let trust = Trust::Certificate(certificate.into());
    let remote = Remote::new(addr.parse()?, ClientSecurity::trusting(NAME, trust));
    let (mut senders, mut connections) = (tokio::task::JoinSet::new(), Vec::new());
    for _ in 0..CLIENTS {
        let connection = Endpoint::connect(&Config::new(Engine::Quic), &remote).await?;
        connections.push(connection.clone());
        senders.spawn(send(connection, len));
    }
    // The windows open first.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let from = server.mark().await?;
    tokio::time::sleep(span).await;
    let to = server.mark().await?;
    senders.abort_all();
    let lanes: Vec<_> = connections.iter().flat_map(|connection| connection.stats().lanes).collect();
    let packets: [u64; 2] =
        [lanes.iter().map(|lane| lane.lost).sum(), lanes.iter().map(|lane| lane.sent).sum()];
    let seconds = (to.at - from.at) as f64 / 1e9;
    let (bytes, messages) = ((to.bytes - from.bytes) as f64, (to.messages - from.messages) as f64);
    let (cpu, clients) = ((to.cpu - from.cpu) as f64, (to.clients - from.clients) as f64);
    Ok(Sample {
        mbytes_per_s: bytes / seconds / 1e6,
        messages_per_s: messages / seconds,
        cpu_ns_per_byte: cpu / bytes,
        cpu_us_per_message: cpu / messages / 1e3,
        server_cores: cpu / seconds / 1e9,
        client_cores: clients / seconds / 1e9,
        lost: 100.0 * packets[0] as f64 / packets[1] as f64,
        handed_over: to.handed_over,
    })
}

fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

async fn compare(span: Duration, rounds: usize) -> Result<(), Failure> {
    println!("{CLIENTS} clients over loopback, medians of {rounds} measurements of {span:?} each");
    for (name, len) in WORKLOADS {
        let mut samples = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (drivers, samples) in (1..).zip(&mut samples) {
                samples.push(measure(drivers, len, span).await?);
            }
        }
        println!("\n{name}");
        println!(
            "drivers    MB/s  messages/s  server ns/byte  µs/message  cores of server, clients  lost %  handed over"
        );
        for (drivers, samples) in (1..).zip(&samples) {
            let handed_over: u64 = samples.iter().map(|sample| sample.handed_over).sum();
            println!(
                "{drivers:>7} {:>7.1} {:>11.0} {:>15.2} {:>11.2} {:>16.2}, {:>7.2} {:>7.2} {handed_over:>12}",
                median(samples, |sample| sample.mbytes_per_s),
                median(samples, |sample| sample.messages_per_s),
                median(samples, |sample| sample.cpu_ns_per_byte),
                median(samples, |sample| sample.cpu_us_per_message),
                median(samples, |sample| sample.server_cores),
                median(samples, |sample| sample.client_cores),
                median(samples, |sample| sample.lost),
            );
        }
        let ratio = |of: fn(&Sample) -> f64| {
            let mut ratios: Vec<f64> =
                samples[0].iter().zip(&samples[1]).map(|(one, two)| of(two) / of(one)).collect();
            ratios.sort_by(f64::total_cmp);
            (ratios[ratios.len() / 2], ratios[0], ratios[ratios.len() - 1])
        };
        let (rate, least, most) = ratio(|sample| sample.mbytes_per_s);
        println!("throughput, 2 drivers : 1: {rate:.2} ({least:.2} to {most:.2})");
        let (cost, least, most) = ratio(|sample| sample.cpu_ns_per_byte);
        println!("server's time per byte, 2 drivers : 1: {cost:.2} ({least:.2} to {most:.2})");
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    // Cargo passes `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [role, drivers] = &arguments[..]
        && role == "serve"
    {
        return serve(drivers.parse()?);
    }
    let mut numbers = arguments.iter().map(|argument| argument.parse::<u32>());
    let seconds = numbers.next().transpose()?.unwrap_or(4);
    let rounds = numbers.next().transpose()?.unwrap_or(5).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(compare(Duration::from_secs(seconds.into()), usize::try_from(rounds)?))
}
