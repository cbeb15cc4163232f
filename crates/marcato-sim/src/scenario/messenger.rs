//! Application that sends the messages of sources over TCP, through a Conductor or without one.

use marcato_scenario::flow::{Feeder as FeederName, Messages};
use marcato_scenario::tcp::Congestion;
use marcato_scenario::traffic::{Release, Source};
use marcato_sched::conductor::{Conductor, DebtError, Message};
use marcato_sched::coupled::CoupledConfig;
use marcato_sched::feeder::Feeder;
use marcato_units::{Bytes, Duration, Seed, Stream, Time};

use super::convert;
use super::outcome::{Completion, Single, Timed, Times};
use crate::app::{Conducting, Turns};
use crate::{App, Collector, Coupled, Socket, Tag};

/// Message that was released. Its label is its index among all released messages.
#[derive(Clone, Copy, Debug)]
struct Released {
    /// Index among sources, single messages and bulk, in this order.
    group: usize,
    at: Time,
    size: Bytes,
    refused: bool,
}

/// State of a source's releases.
struct Clock {
    source: Source,
    sequence: u32,
    origin: Time,
    next: Time,
    stream: Stream,
}

impl Clock {
    /// Returns the time of the next release without jitter.
    fn due(&self) -> Time {
        self.origin + self.source.first + self.source.period.saturating_mul(self.sequence)
    }

    fn begin(&mut self, origin: Time) {
        self.origin = origin;
        self.next = self.due();
    }

    fn advance(&mut self) {
        self.sequence = self.sequence.saturating_add(1);
        self.next = match self.source.release {
            Release::Periodic => self.due(),
            Release::Jittered(jitter) => {
                let nanos = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX);
                let offset = self.stream.below(nanos.saturating_mul(2).saturating_add(1));
                self.due() + Duration::from_nanos(offset) - jitter
            }
            Release::Poisson => self.next + self.stream.exponential(self.source.period),
        };
    }
}

/// Order in which messages reach the socket.
enum Order {
    Conducted(Box<Conducting>),
    Turns(Turns),
}

/// Segments that are left unsent below a controller that measures rates. Paced, two leave at once.
const RESERVED_SEGMENTS: u64 = 2;

/// Feeder that keeps little unsent, and as much as the congestion control needs. A flow that sets its own
/// watermark has the feeder of CATS, whatever that does to BBR.
pub(super) fn lean(messages: &Messages) -> Feeder {
    let chunk = messages.messaging.chunk;
    match messages.tcp.from.congestion {
        Congestion::Bbr if messages.tcp.from.notsent_lowat.is_none() => {
            Feeder::lean_above(chunk, Bytes::new(messages.tcp.from.mss.into()) * RESERVED_SEGMENTS)
        }
        _ => Feeder::lean(chunk),
    }
}

/// Application that sends messages of sources, single messages, and bulk data that fills the
/// remaining room.
pub(super) struct Messenger {
    messages: Messages,
    clocks: Vec<Clock>,
    /// Index of the next single message.
    planned: usize,
    origin: Time,
    /// Time from which nothing is released.
    stop: Time,
    order: Order,
    released: Vec<Released>,
    armed: Option<Time>,
}

impl Messenger {
    /// Creates the application of the flow `name`.
    pub(super) fn new(name: &str, messages: &Messages, stop: Time, seed: Seed) -> Result<Self, DebtError> {
        let mss = Bytes::new(messages.tcp.from.mss.into());
        let conducted = |feeder| -> Result<_, DebtError> {
            let conductor =
                Conductor::new(convert::conductor(messages.messaging.preset, messages.messaging.chunk))?;
            let mut conducting = Box::new(Conducting::new(conductor, feeder));
            conducting.coupled = convert::coupling(messages.messaging.coupled).map(|queued_packets| {
                Coupled::new(CoupledConfig { queued_packets, ..CoupledConfig::new(mss) })
            });
            Ok(Order::Conducted(conducting))
        };
        let order = match messages.feeder {
            FeederName::Conductor => conducted(lean(messages))?,
            FeederName::Greedy => conducted(Feeder::greedy(messages.messaging.chunk))?,
            FeederName::Fifo => Order::Turns(Turns::fifo()),
            FeederName::Writers => Order::Turns(Turns::new(std::array::from_fn(|priority| priority))),
        };
        let clock = |(index, &source): (usize, &Source)| Clock {
            source,
            sequence: 0,
            origin: Time::ZERO,
            next: Time::MAX,
            stream: seed.stream(&format!("messages/{name}/source/{index}")),
        };
        Ok(Self {
            clocks: messages.messaging.sources.iter().enumerate().map(clock).collect(),
            messages: messages.clone(),
            planned: 0,
            origin: Time::ZERO,
            stop,
            order,
            released: Vec::new(),
            armed: None,
        })
    }

    /// Returns the time of the next release, with the index of its source, or `None` for a single
    /// message.
    fn next(&self) -> Option<(Time, Option<usize>)> {
        let sources = self.clocks.iter().enumerate().map(|(index, clock)| (clock.next, Some(index)));
        let planned =
            self.messages.messaging.messages.get(self.planned).map(|it| (self.origin + it.after, None));
        sources.chain(planned).min_by_key(|&(at, _)| at).filter(|&(at, _)| at < self.stop)
    }

    /// Releases a message.
    fn release(&mut self, group: usize, message: Message, socket: &mut Socket<'_>) {
        let at = socket.now();
        let tag = Tag(self.released.len() as u64);
        let refused = match &mut self.order {
            Order::Conducted(conducting) => conducting.accept(tag, message, socket).is_err(),
            Order::Turns(turns) => {
                turns.accept(tag, &message);
                false
            }
        };
        self.released.push(Released { group, at, size: message.len, refused });
    }

    fn take_due(&mut self, socket: &mut Socket<'_>) {
        while let Some((at, source)) = self.next() {
            if at > socket.now() {
                if self.armed.is_none_or(|armed| at < armed) {
                    self.armed = Some(at);
                    socket.set_timer(at, 0);
                }
                break;
            }
            let Some(index) = source else {
                let it = &self.messages.messaging.messages[self.planned];
                let message = Message { lifetime: it.lifetime, ..Message::new(it.size, it.priority) };
                self.planned += 1;
                self.release(self.clocks.len(), message, socket);
                continue;
            };
            let Source { size, priority, lifetime, .. } = self.clocks[index].source;
            self.clocks[index].advance();
            self.release(index, Message { lifetime, ..Message::new(size, priority) }, socket);
        }
        self.write(socket);
    }

    /// Releases enough bulk data to keep the socket busy. Returns true if it released any.
    fn fill(&mut self, socket: &mut Socket<'_>) -> bool {
        if socket.now() >= self.stop {
            return false;
        }
        let mut any = false;
        for index in 0..self.messages.messaging.bulk.len() {
            let bulk = self.messages.messaging.bulk[index];
            let is_short = match &self.order {
                Order::Conducted(conducting) => {
                    conducting.conductor.counters().level(bulk.priority).queued.bytes < bulk.size
                }
                Order::Turns(turns) => turns.is_idle(bulk.priority) || turns.is_fifo() && any,
            };
            if is_short {
                any = true;
                let group = self.clocks.len() + 1 + index;
                self.release(group, Message::new(bulk.size, bulk.priority), socket);
                // If the Conductor refuses for lack of room, another attempt would be refused
                // again, without end.
                any &= !self.released.last().is_some_and(|released| released.refused);
            }
        }
        any
    }

    fn write(&mut self, socket: &mut Socket<'_>) {
        loop {
            let before = socket.room();
            self.feed(socket);
            let took = socket.room() != before;
            if !(self.fill(socket) || took) || socket.room().is_zero() || !socket.is_writable() {
                return;
            }
        }
    }

    /// Moves released data into the socket, as far as it fits.
    fn feed(&mut self, socket: &mut Socket<'_>) {
        match &mut self.order {
            Order::Conducted(conducting) => conducting.write(socket, |_, _| ()),
            Order::Turns(turns) => turns.write(socket),
        }
    }

    /// Returns the governor of coupled mode, if there is one.
    pub(super) fn coupled(&self) -> Option<&Coupled> {
        match &self.order {
            Order::Conducted(conducting) => conducting.coupled.as_ref(),
            Order::Turns(_) => None,
        }
    }

    /// Returns the completion times of messages released from `from` on, as recorded by
    /// `collector`.
    pub(super) fn times(&self, collector: &Collector, from: Time, timed: &mut Timed<'_>) -> Vec<Times> {
        let sources = self.messages.messaging.sources.iter().enumerate();
        let mut all: Vec<Times> = sources
            .map(|(index, it)| Times::empty(format!("source-{}", index + 1), Some(it.priority)))
            .collect();
        let bulk = self.messages.messaging.bulk.iter().enumerate();
        let mut bulk: Vec<Times> =
            bulk.map(|(index, it)| Times::empty(format!("bulk-{}", index + 1), Some(it.priority))).collect();
        let mut singles = Vec::new();
        for (tag, released) in (0..).zip(&self.released) {
            // Single messages are few, so each counts; those of a source count only from `from` on.
            let is_single = released.group == self.clocks.len();
            if released.at >= timed.until || released.at < from && !is_single {
                continue;
            }
            let done = collector.complete(Tag(tag), released.size);
            let group = match released.group.checked_sub(self.clocks.len()) {
                None => &mut all[released.group],
                Some(0) => {
                    singles.push(Single { at: released.at, is_refused: released.refused, done });
                    continue;
                }
                Some(number) => &mut bulk[number - 1],
            };
            let one = Completion::of(released.size, released.at, done);
            group.judge(Completion { is_refused: released.refused, ..one }, timed);
        }
        all.extend(Times::of_singles(&self.messages.messaging, &singles, from, timed));
        all.extend(bulk);
        all
    }
}

impl App for Messenger {
    fn start(&mut self, socket: &mut Socket<'_>) {
        self.origin = socket.now();
        for clock in &mut self.clocks {
            clock.begin(self.origin);
        }
        self.take_due(socket);
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        self.write(socket);
    }

    fn acknowledged(&mut self, socket: &mut Socket<'_>) -> bool {
        match &mut self.order {
            Order::Conducted(conducting) => conducting.acknowledged(socket),
            Order::Turns(_) => false,
        }
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        self.armed = self.armed.filter(|&at| at > socket.now());
        self.take_due(socket);
    }
}
