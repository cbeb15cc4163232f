//! Service of one client's connection at the server.

use std::sync::Arc;
use std::time::Duration;

use marcato_net::{Closed, Connection, Message, Received, ReserveError, SendError};
use marcato_units::Priority;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::book::{Book, BookError};
use super::bounds::Bounds;
use super::cpu::CpuTime;
use super::direction::Direction;
use super::generator::{Generator, GeneratorError, Origin};
use super::load::Load;
use super::protocol::{
    Arrival, Hello, MAX_ARRIVALS, MAX_REPORTED_LANES, Piece, Progress, ProtocolError, Refusal, Reply, Report,
    ReportedLane, Request, SourceKind, Total,
};
use super::released::Released;
use super::send::Span;
use super::{SILENCE, clock};

/// Interval of reports to a client.
const REPORTS: Duration = Duration::from_millis(100);
/// Time limit for a client's first message after connecting, and for its close after the end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Reason why a client was not served to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("it said something before it said who it is, or twice")]
    Order,
    #[error("it was refused: {0}")]
    Refused(String),
    #[error(transparent)]
    Book(#[from] BookError),
    #[error("it did not answer in time")]
    Silent,
    #[error(transparent)]
    Closed(#[from] Closed),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Generator(#[from] GeneratorError),
    #[error("cannot reserve room for its sources: {0}")]
    Reserve(#[from] ReserveError),
}

/// End of a client that was not served to its end, with the data exchanged until then.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) error: ClientError,
    /// Data; `None` if the client was not greeted.
    pub(crate) served: Option<Served>,
}

impl<E: Into<ClientError>> From<E> for Cut {
    fn from(error: E) -> Self {
        Self { error: error.into(), served: None }
    }
}

/// Data exchanged with a client.
#[derive(Debug)]
pub(crate) struct Served {
    /// Number of the connection within its run, counted from 0.
    pub(crate) number: u8,
    /// Number of connections of the run.
    pub(crate) connections: u8,
    /// Amount received of each source of the client.
    pub(crate) received: Vec<Total>,
    /// Amount sent of each source of the server; `None` if the client has asked for none.
    pub(crate) sent: Option<Vec<Total>>,
}

async fn say(connection: &Connection, reply: &Reply) -> Result<(), SendError> {
    let mut out = Vec::new();
    reply.encode(&mut out);
    connection.send(Message::new(out).with_priority(Priority::P0)).await.map(drop)
}

/// Refuses a client, and waits until it has read the refusal.
pub(crate) async fn refuse(connection: &Connection, refusal: Refusal) {
    if say(connection, &Reply::Refused(refusal)).await.is_ok() {
        // The client closes the connection after it has read the refusal.
        let _ = connection.close().await;
    }
}

/// Serves one connection to its end. `greeted` gets the nonce of the client's run.
pub(crate) async fn serve_one(
    connection: &Connection,
    bounds: &Bounds,
    greeted: impl FnOnce(&[u8; 16]),
) -> Result<Served, Cut> {
    let first = timeout(PATIENCE, connection.recv()).await.map_err(|_| ClientError::Silent)??;
    let refused = match Request::decode(&first.bytes) {
        Ok(Request::Hello(hello)) => match bounds.check(&hello) {
            Ok(()) => Ok(hello),
            Err(refusal) => Err((refusal, ClientError::Refused(refusal.to_string()))),
        },
        Ok(_) => return Err(ClientError::Order.into()),
        Err(error @ ProtocolError::Version { .. }) => Err((Refusal::Version, error.into())),
        Err(error) => Err((Refusal::Protocol, error.into())),
    };
    let hello = match refused {
        Ok(hello) => hello,
        Err((refusal, error)) => {
            let _ = timeout(PATIENCE, refuse(connection, refusal)).await;
            return Err(error.into());
        }
    };
    greeted(&hello.nonce);
    let mut service = Service::new(&hello, connection, bounds);
    say(connection, &Reply::Welcome { host: clock::host_mark(&hello.nonce), path: bounds.path }).await?;
    let ended = async {
        service.run().await?;
        say(connection, &Reply::Report(service.report(true))).await?;
        let _ = timeout(PATIENCE, connection.closed()).await;
        Ok(())
    };
    let ended: Result<(), ClientError> = ended.await;
    let served = Served {
        number: hello.number,
        connections: hello.connections,
        received: service.book.totals().to_vec(),
        sent: service.outgoing.map(|outgoing| outgoing.released.totals()),
    };
    match ended {
        Ok(()) => Ok(served),
        Err(error) => Err(Cut { error, served: Some(served) }),
    }
}

/// Load that the server sends.
struct Outgoing {
    load: Load,
    started: bool,
    released: Arc<Released>,
}

/// State of a connection. A client can grow it to at most [`MAX_ARRIVALS`] arrivals, besides the
/// [`Book`].
struct Service<'a> {
    connection: &'a Connection,
    bounds: &'a Bounds,
    /// Number of the connection within its run.
    number: u8,
    kinds: Vec<SourceKind>,
    /// CPU time of this process when the run began.
    cpu: CpuTime,
    book: Book,
    arrivals: Vec<Arrival>,
    outgoing: Option<Outgoing>,
    generator: Generator,
}

/// Action that follows a request.
enum Next {
    Nothing,
    Say(Reply),
    End,
}

impl<'a> Service<'a> {
    fn new(hello: &Hello, connection: &'a Connection, bounds: &'a Bounds) -> Self {
        let outgoing = hello.load.clone().map(|load| {
            let released = Arc::new(Released::new(load.len(), false));
            Outgoing { load, started: false, released }
        });
        Self {
            connection,
            bounds,
            number: hello.number,
            kinds: hello.sources.clone(),
            cpu: CpuTime::now(),
            book: Book::new(hello.sources.len()),
            arrivals: Vec::new(),
            outgoing,
            generator: Generator::default(),
        }
    }

    /// Receives, sends and reports until the client ends the run.
    async fn run(&mut self) -> Result<(), ClientError> {
        let connection = self.connection;
        let mut ticks = interval(REPORTS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                received = connection.recv() => {
                    heard = Instant::now();
                    match self.take(&received?, clock::now())? {
                        Next::Nothing => {}
                        Next::Say(reply) => say(connection, &reply).await?,
                        Next::End => {
                            self.generator.stop().await;
                            return Ok(());
                        }
                    }
                    // A full report is sent at once, which bounds the memory that a client can
                    // claim.
                    if self.arrivals.len() >= MAX_ARRIVALS {
                        say(connection, &Reply::Report(self.report(false))).await?;
                    }
                }
                Some(ended) = self.generator.next() => {
                    ended?;
                    // The client waits for the end of the data.
                    if self.generator.is_idle() {
                        say(connection, &Reply::Report(self.report(false))).await?;
                    }
                }
                _ = ticks.tick() => say(connection, &Reply::Report(self.report(false))).await?,
                () = sleep((heard + SILENCE).saturating_duration_since(Instant::now())) => {
                    return Err(ClientError::Silent);
                }
            }
        }
    }

    fn take(&mut self, received: &Received, at: u64) -> Result<Next, ClientError> {
        match Request::decode(&received.bytes)? {
            Request::Hello(_) => Err(ClientError::Order),
            Request::Ping { number } => {
                Ok(Next::Say(Reply::Pong { number, received: at, answered: clock::now() }))
            }
            Request::Data(piece) => {
                self.piece(piece, received.bytes.len() as u64, at).map(|()| Next::Nothing)
            }
            Request::Start => self.start().map(|()| Next::Nothing),
            Request::Finish => Ok(Next::End),
        }
    }

    fn piece(&mut self, piece: Piece, len: u64, at: u64) -> Result<(), ClientError> {
        if self.book.take(&piece, len)? && self.kinds[usize::from(piece.source)].each {
            self.arrivals.push(Arrival { source: piece.source, sequence: piece.sequence, at });
        }
        Ok(())
    }

    /// Begins to send the load, once.
    fn start(&mut self) -> Result<(), ClientError> {
        let outgoing = self.outgoing.as_mut().filter(|outgoing| !outgoing.started);
        let outgoing = outgoing.ok_or(ClientError::Order)?;
        outgoing.started = true;
        let origin = Origin {
            connection: self.connection,
            direction: Direction::Reverse,
            number: self.number,
            path: self.bounds.path,
            backlog: self.bounds.backlog,
        };
        let span = Span::new(outgoing.load.duration);
        let released = Arc::clone(&outgoing.released);
        Ok(self.generator.add(&origin, &outgoing.load, span, released, watch::Sender::new(false))?)
    }

    fn report(&mut self, last: bool) -> Report {
        let arrivals = std::mem::take(&mut self.arrivals);
        let CpuTime { user, system } = CpuTime::now().since(self.cpu);
        let us = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let progress = self.outgoing.as_ref().map(|outgoing| {
            let stats = self.connection.stats();
            Progress {
                ended: outgoing.started && self.generator.is_idle(),
                released: outgoing.released.totals().iter().map(|total| total.messages).collect(),
                lanes: stats.lanes.iter().take(MAX_REPORTED_LANES).map(ReportedLane::from).collect(),
            }
        });
        Report {
            at: clock::now(),
            last,
            user: us(user),
            system: us(system),
            totals: self.book.totals().to_vec(),
            arrivals,
            progress,
        }
    }
}
