//! Worker process of one end: reads orders line by line from its standard input, and answers on its
//! standard output. It ends with its input.

use std::future::Future;
use std::io::{BufRead as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes as Payload;
use marcato_quic::Identity;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use tokio::runtime::Handle;

use crate::body::{self, BLOCK, CHECKED, Tally};
use crate::stack::Stack;
use crate::{clock, marcato, quic, streams, tcp};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Work<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// Name in the certificates.
pub(crate) const NAME: &str = "paired.test";
/// Marcato's own protocol name is not used, but ALPN needs some name.
const ALPN: &[u8] = b"paired";

/// Bytes that the engine has accepted and the peer has not acknowledged, and the losses so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    pub(crate) in_flight: u64,
    pub(crate) unsent: u64,
    pub(crate) lost: u64,
}

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Check,
    Bulk,
    Urgent,
}

impl Purpose {
    const ALL: [Self; 3] = [Self::Check, Self::Bulk, Self::Urgent];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Bulk => "bulk",
            Self::Urgent => "urgent",
        }
    }
}

/// Sending end of a connection. Each call ends when the stack has accepted the data.
pub(crate) trait Flow: Send + Sync {
    fn bulk(&self, body: Payload) -> Work<'_>;
    fn urgent(&self, body: Payload) -> Work<'_>;
    fn ahead(&self) -> Ahead {
        Ahead::default()
    }
}

/// TLS as in `marcato-net`: the same provider and its order of ciphers, without resumption.
pub(crate) fn client_tls(certificate: CertificateDer<'static>) -> Result<rustls::ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let mut tls =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    Ok(tls)
}

pub(crate) fn server_tls(identity: &Identity) -> Result<rustls::ServerConfig, Failure> {
    let (chain, key) = identity.parts();
    let mut tls =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    Ok(tls)
}

/// Runs one end, on one thread, so that the two ends of a connection have a core each if there are
/// two.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut arguments = arguments.iter().map(String::as_str);
        let mut next = || arguments.next().ok_or("a worker needs more arguments");
        let role = next()?;
        let stack = Stack::named(next()?).ok_or("no such stack")?;
        match role {
            "receive" => {
                let at: IpAddr = next()?.parse()?;
                let name = next()?;
                let purpose = Purpose::ALL.into_iter().find(|purpose| purpose.name() == name);
                let purpose = purpose.ok_or("no such purpose")?;
                let mtu = next()?.parse()?;
                let tally = Arc::new(Tally::new(purpose == Purpose::Check));
                receive(stack, at, purpose, mtu, &tally).await?;
                obey(move |_, line| answer(&tally, line));
            }
            "send" => {
                let to: SocketAddr = next()?.parse()?;
                let certificate = body::unhex(next()?).ok_or("no certificate")?.into();
                let mtu = next()?.parse()?;
                let flow = match stack {
                    Stack::Noq | Stack::NoqOne => {
                        quic::noq::connect(stack == Stack::Noq, to, certificate, mtu).await?
                    }
                    Stack::Quinn => quic::quinn::connect(true, to, certificate, mtu).await?,
                    Stack::Tcp | Stack::TcpTls | Stack::TcpTlsTwo => {
                        tcp::connect(stack, to, certificate).await?
                    }
                    Stack::MarcatoStreams => streams::connect(to, certificate, mtu).await?,
                    _ => marcato::connect(stack, to, certificate, mtu).await?,
                };
                say("connected");
                obey(move |handle, line| order(&flow, handle, line));
            }
            other => return Err(format!("no worker is to {other}").into()),
        }
        std::future::pending::<()>().await;
        Ok(())
    })
}

async fn receive(
    stack: Stack,
    at: IpAddr,
    purpose: Purpose,
    mtu: u16,
    tally: &Arc<Tally>,
) -> Result<(), Failure> {
    let identity = Identity::self_signed(NAME)?;
    let certificate = identity.certificate().ok_or("no certificate")?;
    let tally = Arc::clone(tally);
    let addr = match stack {
        Stack::Noq | Stack::NoqOne => quic::noq::receive(at, &identity, tally, mtu)?,
        Stack::Quinn => quic::quinn::receive(at, &identity, tally, mtu)?,
        Stack::Tcp | Stack::TcpTls | Stack::TcpTlsTwo => tcp::receive(stack, at, &identity, tally).await?,
        Stack::MarcatoStreams => streams::receive(at, &identity, tally, mtu).await?,
        _ => marcato::receive(stack, at, purpose, &identity, tally, mtu).await?,
    };
    say(&format!("listening {addr} {}", body::hex(certificate)));
    Ok(())
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // If the reader has closed the pipe, the input has ended as well.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Answers line by line, on a separate thread.
fn obey(mut with: impl FnMut(&Handle, &str) -> Result<String, Failure> + Send + 'static) {
    let handle = Handle::current();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            match with(&handle, &line) {
                Ok(answer) => say(&answer),
                Err(error) => say(&format!("failed {error}")),
            }
        }
        std::process::exit(0);
    });
}

fn mark(bytes: u64) -> String {
    format!("{} {bytes} {}", clock::now(), clock::cpu())
}

/// Answers an order at the receiving end.
fn answer(tally: &Tally, line: &str) -> Result<String, Failure> {
    match line {
        "mark" => Ok(mark(tally.bytes())),
        "urgent" => {
            let all: Vec<String> =
                tally.urgents().iter().map(|(number, took)| format!("{number}:{took}")).collect();
            Ok(all.join(" "))
        }
        "hash" => {
            let (bytes, urgents, [bulk, urgent]) = tally.hashed().ok_or("nothing was hashed")?;
            Ok(format!("{bytes} {urgents} {} {}", body::hex(bulk.as_ref()), body::hex(urgent.as_ref())))
        }
        other => Err(format!("cannot {other}").into()),
    }
}

/// Performs an order at the sending end.
fn order(flow: &Arc<dyn Flow>, handle: &Handle, line: &str) -> Result<String, Failure> {
    let mut words = line.split(' ');
    let flow = Arc::clone(flow);
    match words.next() {
        Some("mark") => Ok(mark(0)),
        Some("bulk") => {
            handle.spawn(async move {
                let block = Payload::from(vec![0; BLOCK]);
                loop {
                    if let Err(error) = flow.bulk(block.clone()).await {
                        eprintln!("bulk data stopped: {error}");
                        return;
                    }
                }
            });
            Ok("begun".to_owned())
        }
        Some("check") => wait(handle, async move {
            flow.bulk(body::pattern(1, CHECKED)).await?;
            flow.urgent(body::urgent(0, 0)).await?;
            Ok("sent".to_owned())
        }),
        Some("urgent") => {
            let count: u32 = words.next().unwrap_or_default().parse()?;
            let interval = Duration::from_millis(words.next().unwrap_or_default().parse()?);
            wait(handle, async move {
                let mut handed = Vec::new();
                let mut clock = tokio::time::interval(interval);
                clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                for number in 0..count {
                    clock.tick().await;
                    let Ahead { in_flight, unsent, lost } = flow.ahead();
                    handed.push(format!("{number}:{in_flight}:{unsent}:{lost}"));
                    let flow = Arc::clone(&flow);
                    let message = body::urgent(number, clock::now());
                    // A message that cannot be handed over at once waits in a task, while the next
                    // one is made.
                    tokio::spawn(async move {
                        if let Err(error) = flow.urgent(message).await {
                            eprintln!("an urgent message was not taken: {error}");
                        }
                    });
                }
                Ok(handed.join(" "))
            })
        }
        _ => Err(format!("cannot {line}").into()),
    }
}

fn wait(
    handle: &Handle,
    work: impl Future<Output = Result<String, Failure>> + Send + 'static,
) -> Result<String, Failure> {
    let (sender, receiver) = mpsc::channel();
    handle.spawn(async move {
        let _ = sender.send(work.await);
    });
    receiver.recv()?
}
