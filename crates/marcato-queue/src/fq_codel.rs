//! FQ-CoDel: one queue with CoDel for each of many groups of flows, served by deficit round robin,
//! sparse flows first.
//!
//! References: RFC 8290 (§4.1 enqueue, §4.2 dequeue, §5.2 parameters), RFC 8289 (CoDel).
//!
//! # Deviations from RFC 8290
//!
//! - Flows are assigned to queues by a hash of their [`FlowKey`](crate::FlowKey), which stands for
//!   the 5-tuple, and a configured `perturbation`.
//! - If the limit is exceeded, packets are dropped from the head of the queue with most bytes until
//!   the backlog fits again (§4.1). The arriving packet counts as part of its queue. It is refused
//!   if the drops reach it.
//! - Linux drops up to 64 packets at once. Here one arrival drops as few as needed, and 2048 at
//!   most. The packet is refused if that is not enough: an IP packet of 64 KiB that displaces
//!   packets of 40 bytes needs 1639. Each drop takes back an arrival, so the mean is at most one
//!   per packet.
//! - A tournament tree finds the queue with most bytes, in a number of steps that is the logarithm
//!   of the number of queues.
//! - CoDel's "one MTU left" refers to the flow's own queue, as in RFC 8289; Linux refers to all
//!   queues together.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use marcato_units::{Bytes, Stream, Time};

use crate::{
    Backlog, Codel, CodelConfig, CodelError, Configuration, Counters, Discipline, FlowKey, Limit, LimitError,
    Packet, Verdict,
};

/// Upper bound of the turns that one packet may cost its queue.
const MOST_TURNS: i64 = 64;
/// Upper bound of the packets that are dropped to make room for one.
const MOST_DROPS: u32 = 2048;

/// Configuration of an [`FqCodel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FqCodelConfig {
    /// CoDel of each queue. Its limit is that of all queues together.
    pub codel: CodelConfig,
    /// Number of queues, rounded up to a power of two.
    pub flows: u32,
    /// Number of bytes that a queue may send in its turn.
    pub quantum: Bytes,
    /// Secret that is mixed into flow keys, so that nobody can predict which flows share a queue.
    pub perturbation: u64,
}

impl Default for FqCodelConfig {
    /// RFC 8290 §5.2: 1024 queues, 10 240 packets, quantum of 1514 bytes, CoDel with 5 and 100 ms
    /// that marks.
    fn default() -> Self {
        Self {
            codel: CodelConfig { limit: Limit::Packets(10_240), ecn: true, ..CodelConfig::default() },
            flows: 1024,
            quantum: Bytes::new(1514),
            perturbation: 0,
        }
    }
}

/// Error returned for an [`FqCodelConfig`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FqCodelError {
    /// The configuration of CoDel cannot work.
    #[error(transparent)]
    Codel(#[from] CodelError),
    /// The number of queues is zero or too large.
    #[error("{0} queues are not possible: use 1 to 65536, such as 1024")]
    Flows(u32),
    /// The quantum is zero, so that no queue would ever send.
    #[error("a quantum of 0 bytes gives no queue a turn: set it to the link's MTU")]
    ZeroQuantum,
}

/// List that a queue is in. RFC 8290 §4.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum List {
    /// Neither list: the queue is empty.
    #[default]
    None,
    New,
    Old,
}

#[derive(Clone, Debug)]
struct Flow<P> {
    codel: Codel<P>,
    /// Number of bytes that it may still send in its turn.
    deficit: i64,
    list: List,
}

/// Fair queuing with CoDel.
#[derive(Clone, Debug)]
pub struct FqCodel<P> {
    flows: Vec<Flow<P>>,
    new_flows: VecDeque<u32>,
    old_flows: VecDeque<u32>,
    /// Tournament tree: the winner between `2i` and `2i + 1` is at `i`, and the queues are at the
    /// end.
    fattest: Vec<u32>,
    limit: Limit,
    quantum: i64,
    perturbation: u64,
    backlog: Backlog,
    counters: Counters,
}

impl<P: Packet> FqCodel<P> {
    /// Creates empty queues.
    ///
    /// # Errors
    /// [`FqCodelError`] if the configuration cannot work.
    pub fn new(config: FqCodelConfig) -> Result<Self, FqCodelError> {
        if config.flows == 0 || config.flows > 65_536 {
            return Err(FqCodelError::Flows(config.flows));
        }
        if config.quantum.is_zero() {
            return Err(FqCodelError::ZeroQuantum);
        }
        let limit = config.codel.limit.checked().map_err(|error: LimitError| CodelError::from(error))?;
        // Checks the rest, the packet size against the limit included.
        Codel::<P>::new(config.codel)?;
        let number = config.flows.next_power_of_two();
        let mut flows = Vec::new();
        for _ in 0..number {
            // `Self` enforces the common limit.
            let codel = Codel::new(CodelConfig { limit: Limit::Packets(u64::MAX), ..config.codel })?;
            flows.push(Flow { codel, deficit: 0, list: List::None });
        }
        let number = number as usize;
        let mut fattest = alloc::vec![0; number];
        for at in (1..number).rev() {
            fattest[at] = Self::left_of(&fattest, number, 2 * at);
        }
        Ok(Self {
            flows,
            new_flows: VecDeque::with_capacity(number),
            old_flows: VecDeque::with_capacity(number),
            fattest,
            limit,
            quantum: i64::try_from(config.quantum.get()).unwrap_or(i64::MAX).min(1 << 32),
            perturbation: config.perturbation,
            backlog: Backlog::default(),
            counters: Counters::default(),
        })
    }

    /// Number of active queues: those in the list of new or of old queues. RFC 8290 §4.
    pub fn active(&self) -> usize {
        self.new_flows.len() + self.old_flows.len()
    }

    /// Queue that stands at `at` in a tournament of `number`.
    #[allow(clippy::cast_possible_truncation, reason = "at most 65536 queues")]
    fn left_of(fattest: &[u32], number: usize, at: usize) -> u32 {
        if at >= number { (at - number) as u32 } else { fattest[at] }
    }

    /// Replays the rounds that queue `index` takes part in.
    fn weigh(&mut self, index: usize) {
        let number = self.flows.len();
        let mut at = (index + number) / 2;
        while at >= 1 {
            let [left, right] = [2 * at, 2 * at + 1].map(|at| Self::left_of(&self.fattest, number, at));
            let bytes = |flow: u32| self.flows[flow as usize].codel.backlog().bytes;
            self.fattest[at] = if bytes(right) > bytes(left) { right } else { left };
            at /= 2;
        }
    }

    /// Drops heads of the queue with most bytes until the backlog fits the limit. RFC 8290 §4.1.
    ///
    /// Returns the packet that just came last to queue `index`, if it was dropped.
    fn make_room(&mut self, index: usize, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let mut drops = 0;
        while !self.limit.holds(self.backlog) {
            let fattest = self.fattest();
            let flow = &mut self.flows[fattest];
            // A single packet in the queue of the arriving packet is that packet.
            let itself = fattest == index && flow.codel.backlog().packets == 1;
            if drops < MOST_DROPS
                && !itself
                && let Some(packet) = flow.codel.drop_head()
            {
                self.displaced(fattest, &packet);
                drops += 1;
                on_drop(packet);
            } else {
                let packet = self.flows[index].codel.drop_tail()?;
                self.displaced(index, &packet);
                return Some(packet);
            }
        }
        None
    }

    /// Counts the loss of a packet that queue `index` dropped to make room.
    fn displaced(&mut self, index: usize, packet: &P) {
        self.backlog.pop(packet.len());
        self.counters.overflow(packet);
        self.weigh(index);
    }

    /// Queue with most bytes.
    fn fattest(&self) -> usize {
        // With one queue there is no tournament.
        self.fattest.get(1).copied().unwrap_or(0) as usize
    }

    #[allow(clippy::cast_possible_truncation, reason = "any bits of the hash are as good")]
    fn index_of(&self, key: FlowKey) -> usize {
        (key.mixed(self.perturbation) >> 32) as usize & (self.flows.len() - 1)
    }
}

impl Configuration for FqCodelConfig {
    type Error = FqCodelError;
    type Queue<P: Packet + Send + 'static> = FqCodel<P>;

    fn build<P: Packet + Send + 'static>(&self, _: Stream) -> Result<FqCodel<P>, FqCodelError> {
        FqCodel::new(*self)
    }

    fn is_random(&self) -> bool {
        false
    }

    fn marks(&self) -> bool {
        self.codel.ecn
    }

    fn limit(&self) -> Limit {
        self.codel.limit
    }
}

impl<P: Packet> Discipline<P> for FqCodel<P> {
    /// Takes a packet. RFC 8290 §4.1.
    fn enqueue_with(&mut self, now: Time, packet: P, on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        let len = packet.len();
        self.counters.enqueued.count(len);
        if !self.limit.admits(Backlog::default(), len) {
            // The packet would not even fit into empty queues.
            self.counters.overflow(&packet);
            return Verdict::Dropped(packet);
        }
        let index = self.index_of(packet.flow());
        // A queue's own limit is out of reach.
        let _ = self.flows[index].codel.enqueue(now, packet);
        self.backlog.push(len);
        self.weigh(index);
        if !self.limit.holds(self.backlog)
            && let Some(packet) = self.make_room(index, on_drop)
        {
            return Verdict::Dropped(packet);
        }
        let flow = &mut self.flows[index];
        if flow.list == List::None {
            (flow.list, flow.deficit) = (List::New, self.quantum);
            #[allow(clippy::cast_possible_truncation, reason = "at most 65536 queues")]
            self.new_flows.push_back(index as u32);
        }
        Verdict::Queued
    }

    /// Removes the next packet. RFC 8290 §4.2.
    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        loop {
            let (list, index) = match (self.new_flows.front(), self.old_flows.front()) {
                (Some(&index), _) => (List::New, index),
                (None, Some(&index)) => (List::Old, index),
                (None, None) => return None,
            };
            let flow = &mut self.flows[index as usize];
            let lists = (&mut self.new_flows, &mut self.old_flows);
            // RFC 8290 §4.2: a queue without credit gets a quantum and goes to the end of the old
            // queues.
            if flow.deficit <= 0 {
                flow.deficit = flow.deficit.saturating_add(self.quantum);
                flow.list = List::Old;
                if list == List::New {
                    lists.0.pop_front()
                } else {
                    lists.1.pop_front()
                };
                lists.1.push_back(index);
                continue;
            }
            let backlog = &mut self.backlog;
            let counters = &mut self.counters;
            let marked = flow.codel.counters().marked.packets;
            let packet = flow.codel.dequeue_with(now, &mut |packet| {
                backlog.pop(packet.len());
                counters.dropped.count(packet.len());
                on_drop(packet);
            });
            let Some(packet) = packet else {
                if list == List::New {
                    lists.0.pop_front()
                } else {
                    lists.1.pop_front()
                };
                // RFC 8290 §4.2: an empty new queue goes to the end of the old ones. Otherwise a
                // flow could stay new, and so keep its priority, by always sending just before its
                // queue would be served.
                if list == List::New && !lists.1.is_empty() {
                    flow.list = List::Old;
                    lists.1.push_back(index);
                } else {
                    flow.list = List::None;
                }
                self.weigh(index as usize);
                continue;
            };
            if flow.codel.counters().marked.packets > marked {
                self.counters.marked.count(packet.len());
            }
            // A packet costs a bounded number of turns, however long it claims to be: that bounds
            // the loop above.
            let cost = i64::try_from(packet.len().get()).unwrap_or(i64::MAX);
            flow.deficit -= cost.min(self.quantum.saturating_mul(MOST_TURNS));
            self.backlog.pop(packet.len());
            self.counters.dequeued.count(packet.len());
            self.weigh(index as usize);
            return Some(packet);
        }
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        if self.backlog.is_empty() { None } else { Some(now) }
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
