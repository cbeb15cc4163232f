//! FQ-CoDel: a queue with a CoDel of its own for each of many groups of flows, served in turn, those with little to
//! send first.
//!
//! References: RFC 8290 (§4.1 enqueue, §4.2 dequeue, §5.2 parameters), RFC 8289 (CoDel).
//!
//! # Where this leaves RFC 8290
//!
//! - Flows are put into queues by a mix of their [`FlowKey`](crate::FlowKey), which stands for the 5-tuple, and a
//!   configured `perturbation`.
//! - When there is no room, packets are dropped from the head of the queue with most bytes until the backlog fits the limit
//!   again (§4.1). The packet that arrived counts into its queue. It is refused if the drops reach it.
//! - Linux drops up to 64 packets at once; here one arrival costs as few as fit it, and 2048 at most. The packet is refused
//!   if that is not enough: an IP packet of 64 KiB that displaces packets of 40 bytes needs 1639. Each drop takes back an
//!   arrival, so the mean is at most one per packet.
//! - The queue with most bytes is found by a tournament, in as many steps as the logarithm of their number.
//! - CoDel's "one MTU left" looks at the flow's own queue, as RFC 8289 has it; Linux looks at all queues together.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use marcato_units::{Bytes, Time};

use crate::{
    Backlog, Codel, CodelConfig, CodelError, Counters, Discipline, FlowKey, Limit, LimitError, Packet,
    Verdict,
};

/// The most turns that one packet may cost its queue.
const MOST_TURNS: i64 = 64;
/// The most packets that are dropped to make room for one.
const MOST_DROPS: u32 = 2048;

/// How an [`FqCodel`] is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FqCodelConfig {
    /// What each queue does. Its limit is that of all queues together.
    pub codel: CodelConfig,
    /// Into how many queues flows are sorted; rounded up to a power of two.
    pub flows: u32,
    /// How many bytes a queue may send in its turn.
    pub quantum: Bytes,
    /// Mixed into flow keys, so that no one can foresee whom they share a queue with.
    pub perturbation: u64,
}

impl Default for FqCodelConfig {
    /// RFC 8290 §5.2: 1024 queues, 10 240 packets, 1514 bytes, CoDel with 5 and 100 ms that marks.
    fn default() -> Self {
        Self {
            codel: CodelConfig { limit: Limit::Packets(10_240), ecn: true, ..CodelConfig::default() },
            flows: 1024,
            quantum: Bytes::new(1514),
            perturbation: 0,
        }
    }
}

/// Why an [`FqCodelConfig`] cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FqCodelError {
    /// What CoDel is to do cannot work.
    #[error(transparent)]
    Codel(#[from] CodelError),
    /// There are no queues, or more than makes sense.
    #[error("{0} queues cannot be: use 1 to 65536, such as 1024")]
    Flows(u32),
    /// No queue would ever send.
    #[error("a quantum of 0 bytes gives no queue a turn: set it to the link's MTU")]
    ZeroQuantum,
}

/// Which list a queue is in. RFC 8290 §4.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum List {
    /// Neither: it is empty.
    #[default]
    None,
    New,
    Old,
}

#[derive(Clone, Debug)]
struct Flow<P> {
    codel: Codel<P>,
    /// How many bytes it may still send in its turn.
    deficit: i64,
    list: List,
}

/// Fair queues with CoDel.
#[derive(Clone, Debug)]
pub struct FqCodel<P> {
    flows: Vec<Flow<P>>,
    new_flows: VecDeque<u32>,
    old_flows: VecDeque<u32>,
    /// A tournament: the winner between `2i` and `2i + 1` is at `i`, and the queues are at the end.
    fattest: Vec<u32>,
    limit: Limit,
    quantum: i64,
    perturbation: u64,
    backlog: Backlog,
    counters: Counters,
}

impl<P: Packet> FqCodel<P> {
    /// Empty queues.
    ///
    /// # Errors
    /// [`FqCodelError`] if the configuration could not work.
    pub fn new(config: FqCodelConfig) -> Result<Self, FqCodelError> {
        if config.flows == 0 || config.flows > 65_536 {
            return Err(FqCodelError::Flows(config.flows));
        }
        if config.quantum.is_zero() {
            return Err(FqCodelError::ZeroQuantum);
        }
        let limit = config.codel.limit.checked().map_err(|error: LimitError| CodelError::from(error))?;
        // Checks the rest, the limit included.
        Codel::<P>::new(config.codel)?;
        let number = config.flows.next_power_of_two();
        let mut flows = Vec::new();
        for _ in 0..number {
            // The common limit is kept here.
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

    /// How many queues hold packets now.
    pub fn active(&self) -> usize {
        self.new_flows.len() + self.old_flows.len()
    }

    /// Who stands at `at` in a tournament of `number`.
    #[allow(clippy::cast_possible_truncation, reason = "at most 65536 queues")]
    fn left_of(fattest: &[u32], number: usize, at: usize) -> u32 {
        if at >= number { (at - number) as u32 } else { fattest[at] }
    }

    /// Plays again the rounds that queue `index` takes part in.
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
    /// Returns the packet that just came last to queue `index`, if it had to go.
    fn make_room(&mut self, index: usize, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let mut drops = 0;
        while !self.limit.holds(self.backlog) {
            let fattest = self.fattest();
            let flow = &mut self.flows[fattest];
            // What is alone in the queue of the packet that came is that packet.
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

    /// Counts a packet out that went from queue `index` for want of room.
    fn displaced(&mut self, index: usize, packet: &P) {
        self.backlog.pop(packet.len());
        self.counters.overflow(packet);
        self.weigh(index);
    }

    /// The queue with most bytes.
    fn fattest(&self) -> usize {
        // With one queue there is no tournament.
        self.fattest.get(1).copied().unwrap_or(0) as usize
    }

    #[allow(clippy::cast_possible_truncation, reason = "any bits of the mix will do")]
    fn index_of(&self, key: FlowKey) -> usize {
        let mixed = (key.get() ^ self.perturbation).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 32) as usize & (self.flows.len() - 1)
    }
}

impl<P: Packet> Discipline<P> for FqCodel<P> {
    /// RFC 8290 §4.1.
    fn enqueue_with(&mut self, now: Time, packet: P, on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        let len = packet.len();
        self.counters.enqueued.count(len);
        if !self.limit.admits(Backlog::default(), len) {
            // However much were dropped, it would not fit.
            self.counters.overflow(&packet);
            return Verdict::Dropped(packet);
        }
        let index = self.index_of(packet.flow());
        // Its own limit is out of reach.
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

    /// RFC 8290 §4.2.
    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        loop {
            let (list, index) = match (self.new_flows.front(), self.old_flows.front()) {
                (Some(&index), _) => (List::New, index),
                (None, Some(&index)) => (List::Old, index),
                (None, None) => return None,
            };
            let flow = &mut self.flows[index as usize];
            let lists = (&mut self.new_flows, &mut self.old_flows);
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
                // A new queue that has become empty waits behind the old ones, lest it be new again at once.
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
            // However long a packet claims to be, it costs so many turns at most: the loop above is bounded.
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
