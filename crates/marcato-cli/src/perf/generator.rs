//! Generator of a load: the senders of one end of a connection.

use std::sync::Arc;
use std::time::Duration;

use marcato_net::{Connection, ReserveError, SendError};
use marcato_sched::conductor::Redundancy;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_units::{Bytes, Priority, Seed};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::direction::Direction;
use super::load::Load;
use super::released::Released;
use super::scheduler::{PathName, StreamName};
use super::send::{Bulk, Periodic, Sending, Span};

/// Tolerated delay of a source's release: the runtime's timers have a resolution of 1 ms.
const JITTER: Duration = Duration::from_millis(2);
/// Length of the random data with which messages are filled repeatedly.
const FILLING: usize = 1 << 16;

/// Senders of loads. Dropping this ends them.
#[derive(Debug, Default)]
pub(crate) struct Generator {
    tasks: JoinSet<Result<(), SendError>>,
}

/// Reason why a sender ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GeneratorError {
    #[error(transparent)]
    Send(#[from] SendError),
    #[error("a task of the generator failed: {0}")]
    Task(#[from] JoinError),
}

/// Sender's end of a connection.
pub(crate) struct Origin<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) direction: Direction,
    /// Number of the connection within its run, counted from 0.
    pub(crate) number: u8,
    /// Lane scheduler; `None` over TCP.
    pub(crate) path: Option<PathName>,
    /// Most bytes of each level that wait before the connection.
    pub(crate) backlog: Bytes,
}

impl Origin<'_> {
    /// Returns the name of a source's random stream. Sources of different connections and
    /// directions have different phases.
    fn stream(&self, index: u8) -> String {
        let direction = if self.direction == Direction::Reverse { "reverse/" } else { "" };
        let connection =
            if self.number == 0 { String::new() } else { format!("connection/{}/", self.number) };
        format!("perf/{direction}{connection}source/{index}")
    }
}

impl Generator {
    /// Begins to send a load. `over` is set when a limited amount has been delivered.
    pub(crate) fn add(
        &mut self,
        from: &Origin<'_>,
        load: &Load,
        span: Span,
        released: Arc<Released>,
        over: watch::Sender<bool>,
    ) -> Result<(), ReserveError> {
        let mut stream = Seed::new(load.seed).stream("perf/filling");
        let filling: Vec<u8> = (0..FILLING / 8).flat_map(|_| stream.next_u64().to_be_bytes()).collect();
        let connection = from.connection.clone();
        let mut sending = Sending { connection, span, released, filling: filling.into(), mixer: None, over };
        let index = u8::try_from(load.sources.len()).unwrap_or(u8::MAX);
        if load.stream == StreamName::Rr {
            let wholes = sending.mixed();
            let bulk = load.bulk.map(|bulk| (index, bulk.spec));
            // The mixer ends when all senders are dropped, so it must not hold one itself.
            let mixing = Sending { mixer: None, ..sending.clone() };
            self.tasks.spawn(mixing.mix(wholes, load.stream.level(Priority::P2), bulk));
        } else if let Some(bulk) = load.bulk {
            self.tasks.spawn(sending.clone().bulk(Bulk {
                index,
                spec: bulk.spec,
                level: load.stream.level(bulk.spec.priority),
                backlog: from.backlog,
                bitrate: bulk.bitrate,
                bytes: bulk.bytes,
                unreliable: bulk.unreliable,
            }));
        }
        for (index, spec) in (0u8..).zip(&load.sources) {
            let mut draw = Seed::new(load.seed).stream(&from.stream(index));
            let period = u64::try_from(spec.period.as_nanos()).unwrap_or(u64::MAX);
            let phase = Duration::from_nanos(draw.below(period));
            // The mixer cuts messages into packets, for which no room can be reserved.
            let reserved = load.stream != StreamName::Rr && from.path.is_some_and(PathName::reserves);
            if reserved {
                let source = Source::new(spec.period, spec.size, from.connection.now() + phase);
                let jitter = JITTER.min(spec.period / 4);
                from.connection.reserve(SourceKey(index.into()), source.with_jitter(jitter))?;
            }
            let redundancy =
                if from.path == Some(PathName::CwrRed) { Redundancy::EveryLane } else { Redundancy::Once };
            let level = load.stream.level(spec.priority);
            let periodic = Periodic { index, spec: *spec, phase, level, reserved, redundancy };
            self.tasks.spawn(sending.clone().periodic(periodic));
        }
        Ok(())
    }

    /// Waits until the next sender has ended, and returns `None` once all have.
    pub(crate) async fn next(&mut self) -> Option<Result<(), GeneratorError>> {
        let ended = self.tasks.join_next().await?;
        Some(match ended {
            Ok(sent) => sent.map_err(GeneratorError::Send),
            Err(error) => Err(error.into()),
        })
    }

    /// Returns whether all senders have ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Stops all senders, and waits until they have.
    pub(crate) async fn stop(&mut self) {
        self.tasks.shutdown().await;
    }
}
