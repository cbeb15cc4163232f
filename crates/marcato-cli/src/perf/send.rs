//! What sends: periodic sources, background data, and, where packets of messages take turns, who mixes them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use marcato_net::{Connection, Message, MessageHandle, SendError};
use marcato_sched::conductor::Redundancy;
use marcato_sched::order::{RoundRobin, StreamId, StreamOrder};
use marcato_sched::reserve::SourceKey;
use marcato_units::{Bytes, Priority};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::clock;
use super::plan::{BulkSpec, SourceSpec};
use super::protocol::Piece;

/// Where messages that are mixed are cut: what a QUIC packet of the least size carries.
const PIECE: Bytes = Bytes::new(1120);
/// How often the mixer looks how much has left.
const MIX: Duration = Duration::from_millis(1);
/// Messages that wait to be mixed. Beyond them, a source waits.
const MIXED: usize = 4096;

/// When a run begins and ends, on both of our clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) begin: Instant,
    /// The same moment in ns of [`clock::now`].
    pub(crate) begin_ns: u64,
    pub(crate) end: Instant,
}

impl Span {
    pub(crate) fn new(duration: Duration) -> Self {
        let (begin, begin_ns) = (Instant::now(), clock::now());
        Self { begin, begin_ns, end: begin + duration }
    }

    /// A moment in ns of [`clock::now`].
    fn ns(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.begin).as_nanos();
        self.begin_ns.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

/// When the messages of each source were released, in ns; in the order of their numbers.
pub(crate) type Releases = Arc<Mutex<Vec<Vec<u64>>>>;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all that send have in common.
#[derive(Clone)]
pub(crate) struct Sending {
    pub(crate) connection: Connection,
    pub(crate) span: Span,
    pub(crate) releases: Releases,
    /// What messages are filled with: nothing that compresses.
    pub(crate) filling: Arc<[u8]>,
    /// Where messages go that are to be mixed.
    pub(crate) mixer: Option<mpsc::Sender<Whole>>,
}

/// A message before it is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    source: u8,
    sequence: u64,
    len: Bytes,
}

/// Background messages that may still wait before the connection. Dropped, it takes them back, so that a run that is
/// interrupted closes its connection as quickly as one that ends.
struct Waiting(VecDeque<MessageHandle>);

impl Drop for Waiting {
    fn drop(&mut self) {
        for handle in &self.0 {
            // A message that has left cannot be taken back.
            let _ = handle.cancel();
        }
    }
}

/// A source and how its messages are offered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Periodic {
    pub(crate) index: u8,
    pub(crate) spec: SourceSpec,
    /// How long after the beginning its first message is due.
    pub(crate) phase: Duration,
    /// The level that it is offered at.
    pub(crate) level: Priority,
    /// Whether room is kept for it.
    pub(crate) reserved: bool,
    pub(crate) redundancy: Redundancy,
}

impl Sending {
    /// So many bytes of a message, of which the header is the beginning.
    fn body(&self, piece: &Piece, len: Bytes) -> Vec<u8> {
        let len = usize::try_from(len.get()).unwrap_or(usize::MAX);
        let mut body = Vec::with_capacity(len);
        piece.encode(&mut body);
        while body.len() < len {
            let more = (len - body.len()).min(self.filling.len());
            body.extend_from_slice(&self.filling[..more]);
        }
        body
    }

    fn whole(&self, source: u8, sequence: u64, len: Bytes) -> Vec<u8> {
        self.body(&Piece { source, sequence, offset: 0, total: len.get() }, len)
    }

    /// Sends a message in each period, until the end.
    ///
    /// A message is released when the source wakes for it; where the source was held up by the message before, because
    /// as much waited as may, it is released when it was due. So what waits before the connection counts.
    pub(crate) async fn periodic(self, source: Periodic) -> Result<(), SendError> {
        let Periodic { index, spec, .. } = source;
        let mut due = self.span.begin + source.phase;
        for sequence in 0.. {
            if due >= self.span.end {
                break;
            }
            let released = if Instant::now() >= due {
                self.span.ns(due)
            } else {
                sleep_until(due).await;
                clock::now()
            };
            lock(&self.releases)[usize::from(index)].push(released);
            if let Some(mixer) = &self.mixer {
                // A mixer that is gone has met with the end of the connection, which others tell of.
                let _ = mixer.send(Whole { source: index, sequence, len: spec.size }).await;
            } else {
                let mut message = Message::new(self.whole(index, sequence, spec.size))
                    .with_priority(source.level)
                    .with_redundancy(source.redundancy);
                if source.reserved {
                    message = message.from_source(SourceKey(index.into()));
                }
                self.connection.send(message).await?;
            }
            due += spec.period;
        }
        Ok(())
    }

    /// Keeps as much waiting as may wait, until the end; then takes back what has not left.
    pub(crate) async fn bulk(
        self,
        index: u8,
        spec: BulkSpec,
        level: Priority,
        backlog: Bytes,
    ) -> Result<(), SendError> {
        // No more than these can wait.
        let most = usize::try_from(backlog.get() / spec.size.get()).unwrap_or(usize::MAX) + 2;
        let mut waiting = Waiting(VecDeque::new());
        let mut sequence = 0;
        let end = sleep_until(self.span.end);
        tokio::pin!(end);
        loop {
            let message = Message::new(self.whole(index, sequence, spec.size)).with_priority(level);
            tokio::select! {
                sent = self.connection.send(message) => waiting.0.push_back(sent?),
                () = &mut end => break,
            }
            sequence += 1;
            if waiting.0.len() > most {
                waiting.0.pop_front();
            }
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    /// Takes a packet of each message in turn (CWR §III-C, Fig. 2a). The Conductor underneath gets pieces of one level,
    /// and so few that what waits there is gone within two looks at it.
    pub(crate) async fn mix(
        self,
        mut wholes: mpsc::Receiver<Whole>,
        level: Priority,
        bulk: Option<(u8, BulkSpec)>,
    ) -> Result<(), SendError> {
        let mut order = RoundRobin::new(MIXED);
        let mut open: HashMap<u64, (Whole, Bytes)> = HashMap::new();
        let (mut next, mut bulk_sent, mut bulk_open) = (0, 0, None);
        let mut granted = Bytes::ZERO;
        let mut ticks = interval(MIX);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut over = false;
        loop {
            let mut enter =
                |whole: Whole, open: &mut HashMap<u64, (Whole, Bytes)>, order: &mut RoundRobin| {
                    next += 1;
                    if order.write(StreamId(next), level, whole.len).is_ok() {
                        open.insert(next, (whole, Bytes::ZERO));
                    }
                    next
                };
            tokio::select! {
                _ = ticks.tick() => {}
                whole = wholes.recv(), if !over && open.len() < MIXED - 1 => match whole {
                    Some(whole) => { enter(whole, &mut open, &mut order); }
                    None => over = true,
                },
            }
            let running = Instant::now() < self.span.end;
            let stats = self.connection.stats();
            let at = stats.conducted.level(level);
            let left = at.granted.bytes - granted;
            granted = at.granted.bytes;
            let mut quota = (left * 2 + PIECE * 4).get().saturating_sub(at.queued.bytes.get());
            while quota > 0 {
                if let (Some((source, spec)), None, true) = (bulk, bulk_open, running) {
                    let whole = Whole { source, sequence: bulk_sent, len: spec.size };
                    bulk_open = Some(enter(whole, &mut open, &mut order));
                    bulk_sent += 1;
                }
                let Some(front) = order.peek(Bytes::new(1)) else { break };
                let Some(&(whole, offset)) = open.get(&front.stream.0) else { break };
                if bulk_open == Some(front.stream.0) && !running {
                    // What is left of it is not worth anything any more.
                    order.reset(front.stream);
                    open.remove(&front.stream.0);
                    continue;
                }
                // All pieces of a message are of about one length, so that none is shorter than its header.
                let pieces = whole.len.get().div_ceil(PIECE.get()).max(1);
                let Some(frame) = order.next(Bytes::new(whole.len.get().div_ceil(pieces))) else { break };
                let piece = Piece {
                    source: whole.source,
                    sequence: whole.sequence,
                    offset: offset.get(),
                    total: whole.len.get(),
                };
                let body = self.body(&piece, frame.len);
                self.connection.send(Message::new(body).with_priority(level)).await?;
                quota = quota.saturating_sub(frame.len.get());
                let offset = offset + frame.len;
                if offset < whole.len {
                    open.insert(front.stream.0, (whole, offset));
                } else {
                    open.remove(&front.stream.0);
                    if bulk_open == Some(front.stream.0) {
                        bulk_open = None;
                    }
                }
            }
            if over && open.is_empty() {
                return Ok(());
            }
        }
    }

    /// Whoever mixes, and where to hand messages over.
    pub(crate) fn mixed(&mut self) -> mpsc::Receiver<Whole> {
        let (sender, wholes) = mpsc::channel(64);
        self.mixer = Some(sender);
        wholes
    }
}
