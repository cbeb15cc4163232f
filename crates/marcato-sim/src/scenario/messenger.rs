//! Application that sends the messages of sources over TCP, through a Conductor or without one.

use std::collections::{HashMap, VecDeque};

use marcato_scenario::flow::{Feeder as FeederName, Messages};
use marcato_scenario::traffic::{Release, Source};
use marcato_sched::conductor::{Conductor, DebtError, Grant, Message, MessageId, Removals, Slab};
use marcato_sched::coupled::CoupledConfig;
use marcato_sched::feeder::{Engine, Feeder, Mode};
use marcato_units::{Bytes, Duration, Priority, Seed, Stream, Time};

use super::convert;
use super::outcome::{Completion, Single, Timed, Times};
use crate::{App, Collector, Coupled, Socket, Tag};

/// Greatest size of one write, as in [`Writers`](crate::Writers).
const PIECE: Bytes = Bytes::new(16 << 10);

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
    Conducted {
        conductor: Box<Conductor<Slab, Removals>>,
        feeder: Feeder,
        coupled: Option<Box<Coupled>>,
        tags: HashMap<MessageId, Tag>,
    },
    Fifo(VecDeque<(Tag, Priority, Bytes)>),
    Writers {
        waiting: [VecDeque<(Tag, Priority, Bytes)>; Priority::COUNT],
        turn: usize,
    },
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
        let coupled = convert::coupling(messages.messaging.coupled)
            .map(|aim| Box::new(Coupled::new(CoupledConfig { aim, ..CoupledConfig::new(mss) })));
        let conducted = |feeder| {
            let conductor =
                Conductor::new(convert::conductor(messages.messaging.preset, messages.messaging.chunk))?;
            let conductor = conductor.observed_by(Removals::default());
            Ok(Order::Conducted { conductor: Box::new(conductor), feeder, coupled, tags: HashMap::new() })
        };
        let order = match messages.feeder {
            FeederName::Conductor => conducted(Feeder::lean(messages.messaging.chunk))?,
            FeederName::Greedy => conducted(Feeder::greedy(messages.messaging.chunk))?,
            FeederName::Fifo => Order::Fifo(VecDeque::new()),
            FeederName::Writers => Order::Writers { waiting: Default::default(), turn: 0 },
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
        let mut refused = false;
        match &mut self.order {
            Order::Conducted { conductor, feeder, tags, .. } => {
                match conductor.offer(at, message) {
                    Ok(id) => {
                        tags.insert(id, tag);
                    }
                    Err(_) => refused = true,
                }
                if let Mode::Greedy { .. } = feeder.mode() {
                    // The authors' socket decides once within each Send, before the next one.
                    feeder.run_once(at, conductor, &mut Lane { socket, tags });
                }
            }
            Order::Fifo(waiting) => waiting.push_back((tag, message.priority, message.len)),
            Order::Writers { waiting, .. } => {
                waiting[message.priority.index()].push_back((tag, message.priority, message.len));
            }
        }
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
                Order::Conducted { conductor, .. } => {
                    conductor.counters().level(bulk.priority).queued.bytes < bulk.size
                }
                Order::Fifo(waiting) => waiting.is_empty() || any,
                Order::Writers { waiting, .. } => waiting[bulk.priority.index()].is_empty(),
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
            Order::Conducted { conductor, feeder, coupled, tags } => {
                let now = socket.now();
                let mut lane = Lane { socket, tags };
                match coupled {
                    None => {
                        feeder.run(now, conductor, &mut lane);
                    }
                    Some(coupled) => coupled.run(feeder, now, conductor, &mut lane),
                }
                for removed in conductor.observer_mut().take() {
                    tags.remove(&removed.id);
                }
            }
            Order::Fifo(waiting) => {
                while let Some((tag, priority, left)) = waiting.front_mut() {
                    *left -= socket.write(*left, *priority, *tag);
                    if !left.is_zero() {
                        return;
                    }
                    waiting.pop_front();
                }
            }
            Order::Writers { waiting, turn } => {
                let mut idle = 0;
                while idle < waiting.len() {
                    let Some((tag, priority, left)) = waiting[*turn].front_mut() else {
                        idle += 1;
                        *turn = (*turn + 1) % waiting.len();
                        continue;
                    };
                    idle = 0;
                    let taken = socket.write((*left).min(PIECE), *priority, *tag);
                    if taken.is_zero() {
                        return;
                    }
                    *left -= taken;
                    if left.is_zero() {
                        waiting[*turn].pop_front();
                    }
                    *turn = (*turn + 1) % waiting.len();
                }
            }
        }
    }

    /// Returns the governor of coupled mode, if there is one.
    pub(super) fn coupled(&self) -> Option<&Coupled> {
        match &self.order {
            Order::Conducted { coupled, .. } => coupled.as_deref(),
            Order::Fifo(_) | Order::Writers { .. } => None,
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
        let Order::Conducted { conductor, coupled: Some(coupled), .. } = &mut self.order else {
            return false;
        };
        coupled.acknowledged(socket, conductor);
        true
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        self.armed = self.armed.filter(|&at| at > socket.now());
        self.take_due(socket);
    }
}

/// Simulated TCP connection as the feeder's engine.
struct Lane<'a, 'b> {
    socket: &'a mut Socket<'b>,
    tags: &'a mut HashMap<MessageId, Tag>,
}

impl Engine for Lane<'_, '_> {
    fn room(&self) -> Bytes {
        self.socket.room()
    }

    fn unsent(&self) -> Bytes {
        self.socket.unsent()
    }

    fn in_flight(&self) -> Bytes {
        self.socket.in_flight()
    }

    fn feed(&mut self, grant: &Grant) -> Bytes {
        let tag = self.tags.get(&grant.message).copied().unwrap_or_default();
        let taken = self.socket.write(grant.len, grant.priority, tag);
        if grant.fin && taken == grant.len {
            self.tags.remove(&grant.message);
        }
        taken
    }
}
