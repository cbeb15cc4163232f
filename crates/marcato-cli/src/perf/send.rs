//! Senders: periodic sources, background data, and a mixer for packets of several messages in turn.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use marcato_net::{Connection, Message, MessageHandle, SendError};
use marcato_sched::conductor::Redundancy;
use marcato_sched::order::{RoundRobin, StreamId};
use marcato_sched::reserve::SourceKey;
use marcato_units::{Bytes, Priority, Rate};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::clock;
use super::load::{BulkSpec, MIN_MESSAGE, SourceSpec};
use super::protocol::Piece;
use super::released::Released;

/// Length of mixed pieces: the payload of a QUIC packet of the smallest size.
const MIXED_PIECE: Bytes = Bytes::new(1120);
/// Interval at which the mixer checks the amount sent.
const MIX: Duration = Duration::from_millis(1);
/// Largest number of messages in the mixer. Beyond it, sources wait.
const MIXED: usize = 4096;

/// Start and end of a run, on both local clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) begin: Instant,
    /// Start in ns of [`clock::now`].
    pub(crate) begin_ns: u64,
    pub(crate) end: Instant,
}

impl Span {
    pub(crate) fn new(duration: Duration) -> Self {
        let (begin, begin_ns) = (Instant::now(), clock::now());
        Self { begin, begin_ns, end: begin + duration }
    }

    /// Converts a time to ns of [`clock::now`].
    fn ns(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.begin).as_nanos();
        self.begin_ns.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

/// State that all senders share.
#[derive(Clone)]
pub(crate) struct Sending {
    pub(crate) connection: Connection,
    pub(crate) span: Span,
    pub(crate) released: Arc<Released>,
    /// Incompressible data with which messages are filled.
    pub(crate) filling: Arc<[u8]>,
    /// Channel to the mixer; `None` if messages are sent directly.
    pub(crate) mixer: Option<mpsc::Sender<Whole>>,
    /// Set when the run ends before its time, because all of a limited amount has been delivered.
    pub(crate) over: watch::Sender<bool>,
}

/// Message before it is cut into pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    source: u8,
    sequence: u64,
    /// Release in ns of [`clock::now`].
    released: u64,
    len: Bytes,
}

/// Background messages that may still be queued in the connection.
///
/// Dropping this cancels them, so that an interrupted run closes its connection as quickly as a
/// complete one.
struct Waiting {
    source: u8,
    messages: VecDeque<(MessageHandle, Bytes)>,
    released: Arc<Released>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for (handle, len) in &self.messages {
            // A message that has been sent completely cannot be cancelled.
            if handle.cancel().is_ok() {
                self.released.take_back(self.source, *len);
            }
        }
    }
}

/// Source, with the way in which its messages are offered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Periodic {
    pub(crate) index: u8,
    pub(crate) spec: SourceSpec,
    /// Time from the start until the first message is due.
    pub(crate) phase: Duration,
    /// Level at which messages are offered.
    pub(crate) level: Priority,
    /// Set if the source has a reservation.
    pub(crate) reserved: bool,
    pub(crate) redundancy: Redundancy,
}

/// Waits until a message has been delivered. The end of the connection is reported elsewhere.
async fn delivered(handle: &mut MessageHandle) {
    let _ = handle.acknowledged().await;
}

/// Bulk data, with the way in which its messages are offered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bulk {
    pub(crate) index: u8,
    pub(crate) spec: BulkSpec,
    /// Level at which messages are offered.
    pub(crate) level: Priority,
    /// Most bytes of the level that wait before the connection.
    pub(crate) backlog: Bytes,
    /// Rate; `None` for as much as fits.
    pub(crate) bitrate: Option<Rate>,
    /// Amount after whose delivery the run ends.
    pub(crate) bytes: Option<Bytes>,
    /// Set if messages are unreliable, and so fit one packet each.
    pub(crate) unreliable: bool,
}

impl Sending {
    /// Returns `len` bytes of a message, beginning with the header.
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

    fn whole(&self, Whole { source, sequence, released, len }: Whole) -> Vec<u8> {
        self.body(&Piece { source, sequence, released, offset: 0, total: len.get() }, len)
    }

    /// Sends a message in each period, until the end.
    ///
    /// A message is released when the source wakes for it. If a full queue has delayed the source,
    /// the message counts as released when it was due. Waiting in front of the connection is thus
    /// measured. If the machine has woken the source late, messages that were due meanwhile count as
    /// released with the late one, and not before it.
    pub(crate) async fn periodic(self, source: Periodic) -> Result<(), SendError> {
        let Periodic { index, spec, .. } = source;
        let mut over = self.over.subscribe();
        let mut due = self.span.begin + source.phase;
        let mut last = 0;
        for sequence in 0.. {
            if due >= self.span.end {
                break;
            }
            let at = if Instant::now() >= due {
                self.span.ns(due)
            } else {
                tokio::select! {
                    () = sleep_until(due) => clock::now(),
                    _ = over.wait_for(|over| *over) => break,
                }
            };
            let released = at.max(last);
            last = released;
            self.released.push(index, released, spec.size);
            let whole = Whole { source: index, sequence, released, len: spec.size };
            if let Some(mixer) = &self.mixer {
                // A closed channel means that the connection has ended, which is reported
                // elsewhere.
                let _ = mixer.send(whole).await;
            } else {
                let mut message = Message::new(self.whole(whole))
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

    /// Keeps the backlog full, or a pace, until the end, then cancels the messages that have not
    /// been sent. A limited amount ends the run once it has been delivered.
    pub(crate) async fn bulk(self, bulk: Bulk) -> Result<(), SendError> {
        // Largest number of messages that can be queued. Handles of older ones are no longer
        // needed.
        let size = bulk.spec.size;
        let most = usize::try_from(bulk.backlog.get() / size.get()).unwrap_or(usize::MAX) + 2;
        let (source, released) = (bulk.index, Arc::clone(&self.released));
        let mut waiting = Waiting { source, messages: VecDeque::new(), released };
        let mut sent = Bytes::ZERO;
        let end = sleep_until(self.span.end);
        tokio::pin!(end);
        for sequence in 0.. {
            let left = bulk.bytes.map_or(size, |bytes| Bytes::new(bytes.get().saturating_sub(sent.get())));
            if left == Bytes::ZERO {
                break;
            }
            // The last message has at least its header.
            let mut len = size.min(left).max(MIN_MESSAGE);
            if bulk.unreliable {
                len = len.min(self.connection.max_unreliable().unwrap_or(len));
            }
            let offer = async {
                if let Some(rate) = bulk.bitrate {
                    sleep_until(self.span.begin + rate.transmission_time(sent)).await;
                }
                let whole = Whole { source, sequence, released: clock::now(), len };
                let message = Message::new(self.whole(whole)).with_priority(bulk.level);
                let message = if bulk.unreliable { message.unreliable() } else { message };
                self.connection.send(message).await
            };
            tokio::select! {
                handle = offer => waiting.messages.push_back((handle?, len)),
                () = &mut end => return Ok(()),
            }
            sent += len;
            self.released.count(source, len);
            if waiting.messages.len() > most
                && let Some((mut oldest, _)) = waiting.messages.pop_front()
                && bulk.bytes.is_some()
            {
                delivered(&mut oldest).await;
            }
            tokio::task::consume_budget().await;
        }
        tokio::select! {
            () = async { for (handle, _) in &mut waiting.messages { delivered(handle).await } } => {}
            () = &mut end => return Ok(()),
        }
        self.over.send_replace(true);
        Ok(())
    }

    /// Sends a packet of each message in turn (CWR §III-C, Fig. 2a).
    ///
    /// The Conductor below receives pieces of one level, and only as many as leave it within about
    /// two ticks.
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
                    if order.write(StreamId(next), whole.len).is_ok() {
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
            let mut quota = (left * 2 + MIXED_PIECE * 4).get().saturating_sub(at.queued.bytes.get());
            while quota > 0 {
                if let (Some((source, spec)), None, true) = (bulk, bulk_open, running) {
                    let whole = Whole { source, sequence: bulk_sent, released: clock::now(), len: spec.size };
                    self.released.count(source, spec.size);
                    bulk_open = Some(enter(whole, &mut open, &mut order));
                    bulk_sent += 1;
                }
                let Some(front) = order.peek(Bytes::new(1)) else { break };
                let Some(&(whole, offset)) = open.get(&front.stream.0) else { break };
                if bulk_open == Some(front.stream.0) && !running {
                    // The rest of a background message is worthless after the end.
                    self.released.take_back(whole.source, whole.len);
                    order.reset(front.stream);
                    open.remove(&front.stream.0);
                    continue;
                }
                // Pieces of equal length: a short last piece could be shorter than its header.
                let pieces = whole.len.get().div_ceil(MIXED_PIECE.get()).max(1);
                let Some(frame) = order.next(Bytes::new(whole.len.get().div_ceil(pieces))) else { break };
                let piece = Piece {
                    source: whole.source,
                    sequence: whole.sequence,
                    released: whole.released,
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

    /// Directs messages to a mixer, and returns the channel from which it receives them.
    pub(crate) fn mixed(&mut self) -> mpsc::Receiver<Whole> {
        let (sender, wholes) = mpsc::channel(64);
        self.mixer = Some(sender);
        wholes
    }
}
