//! CoDel: drops or marks packets while the minimum sojourn time stays above a target for an
//! interval.
//!
//! References: RFC 8289 (the algorithm; §5 is the pseudocode whose names are used here), RFC 3168
//! §5 (marks).
//!
//! # Deviations from RFC 8289
//!
//! - `first_above_time` is an `Option` instead of a time of which 0 means "not set": in virtual
//!   time 0 is a time.
//! - The control law is exact. `interval / sqrt(count)` is `isqrt(interval² / count)`, which is the
//!   true value rounded down to a nanosecond: rounding down under the root as well loses nothing.
//! - Linux instead keeps 1/sqrt(count) in 16 bits and improves it by one Newton step per drop, in
//!   units of 1.024 us. Starting from 1, its second step is 0.5 instead of 0.7071; 2.6 % are
//!   missing at count 3, 0.6 % at 8 and 0.1 % at 20. So Linux drops earlier at first: after 0, 100,
//!   150, 206 and 255 ms, where the law and this queue drop after 0, 100, 170.7, 228.4 and 278.4. A
//!   queue that stays above the target loses 34 packets in its first second there, 33 here.
//! - ECN: the RFC leaves marking to the implementation. As in Linux, a mark replaces a drop. The
//!   packet then leaves, so one dequeue marks at most once, however late it is.
//! - `maxpacket` is configured: the RFC allows the link's MTU or the largest packet seen.

use alloc::collections::VecDeque;

use marcato_units::{Bytes, Duration, Stream, Time};

use crate::nanos::after;
use crate::{Backlog, Configuration, Counters, Discipline, Limit, LimitError, Packet, Verdict};

/// Number of intervals after the dropping state for which CoDel remembers its drop count. RFC 8289
/// §5.5.
const REMEMBERED_INTERVALS: u64 = 16;

/// Configuration of a [`Codel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodelConfig {
    /// Acceptable sojourn time of a standing queue. RFC 8289 §4: 5 to 10 % of the interval.
    pub target: Duration,
    /// Time for which the sojourn time must stay at or above the target before the first drop.
    ///
    /// RFC 8289 §4: a round trip of most of the connections that use the link.
    pub interval: Duration,
    /// Room of the buffer. A packet that finds the queue full is dropped, with ECN too.
    pub limit: Limit,
    /// MTU of the link, link-layer header included. CoDel drops nothing from a queue that has no
    /// more than this left.
    pub maxpacket: Bytes,
    /// Mark packets that are [ECN-capable](marcato_wire::Ecn::is_capable) instead of dropping them.
    pub ecn: bool,
}

impl Default for CodelConfig {
    /// Target 5 ms, interval 100 ms (RFC 8289 §4), 1000 packets, Ethernet's 1514 bytes, drops.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            limit: Limit::Packets(1000),
            maxpacket: Bytes::new(1514),
            ecn: false,
        }
    }
}

/// Error returned for a [`CodelConfig`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodelError {
    /// The limit admits nothing.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The target is zero.
    #[error("a target of 0 is always exceeded: set it to 5 to 10 % of the interval")]
    ZeroTarget,
    /// The interval is zero.
    #[error("an interval of 0 leaves no time to observe a queue: set it to a typical round-trip time")]
    ZeroInterval,
    /// The target or the interval is longer than a run can be.
    #[error("target and interval must be shorter than 584 years: set them to 5 ms and 100 ms")]
    TooLong,
    /// The largest packet is zero.
    #[error("a largest packet of 0 bytes is not possible: set it to the link's MTU")]
    ZeroMaxpacket,
    /// No packet of the largest size fits into the buffer.
    #[error("a limit of {limit} cannot hold a packet of {maxpacket}: raise the limit")]
    LimitBelowMaxpacket {
        /// Configured limit.
        limit: Bytes,
        /// Configured largest packet.
        maxpacket: Bytes,
    },
}

/// CoDel with a tail-drop limit: first in, first out.
///
/// It drops at the head, on the way out; [`dequeue_with`](Discipline::dequeue_with) hands over the
/// dropped packets.
///
/// `target` may exceed `interval`, as in one of CRQ's experiments: this is unusual, but defined.
#[derive(Clone, Debug)]
pub struct Codel<P> {
    /// In nanoseconds, as all spans below: they are compared once per packet.
    target: u64,
    interval: u64,
    limit: Limit,
    maxpacket: Bytes,
    ecn: bool,

    queue: VecDeque<Waiting<P>>,
    backlog: Backlog,
    counters: Counters,

    /// Time at which the sojourn time will have been at or above the target for an interval; `None`
    /// while it is below.
    first_above_time: Option<Time>,
    /// Time of the next drop. Meaningful while dropping, and for [`REMEMBERED_INTERVALS`]
    /// thereafter.
    drop_next: Time,
    /// Packets dropped since the dropping state was entered, plus those remembered then.
    count: u64,
    /// `count` at the entry to the dropping state.
    lastcount: u64,
    /// Set in the dropping state.
    dropping: bool,
}

/// Packet and its time of arrival.
#[derive(Clone, Debug)]
struct Waiting<P> {
    since: Time,
    packet: P,
}

/// Head of the queue, and whether it may be dropped: `dodequeue_result` of RFC 8289 §5.
struct Dodequeue<P> {
    p: Option<P>,
    ok_to_drop: bool,
}

impl<P: Packet> Codel<P> {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// [`CodelError`] if the configuration cannot work.
    pub fn new(config: CodelConfig) -> Result<Self, CodelError> {
        let limit = config.limit.checked()?;
        if config.target.is_zero() {
            return Err(CodelError::ZeroTarget);
        }
        if config.interval.is_zero() {
            return Err(CodelError::ZeroInterval);
        }
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).map_err(|_| CodelError::TooLong);
        if config.maxpacket.is_zero() {
            return Err(CodelError::ZeroMaxpacket);
        }
        if let Limit::Bytes(limit) = limit
            && limit < config.maxpacket
        {
            return Err(CodelError::LimitBelowMaxpacket { limit, maxpacket: config.maxpacket });
        }
        Ok(Self {
            target: nanos(config.target)?,
            interval: nanos(config.interval)?,
            limit,
            maxpacket: config.maxpacket,
            ecn: config.ecn,
            queue: VecDeque::new(),
            backlog: Backlog::default(),
            counters: Counters::default(),
            first_above_time: None,
            drop_next: Time::ZERO,
            count: 0,
            lastcount: 0,
            dropping: false,
        })
    }

    /// Returns whether the queue is in the dropping state: it drops or marks packets at growing
    /// frequency.
    pub const fn is_dropping(&self) -> bool {
        self.dropping
    }

    /// Drops the head to make room for other packets, which the caller counts.
    pub(crate) fn drop_head(&mut self) -> Option<P> {
        let Waiting { packet, .. } = self.queue.pop_front()?;
        self.backlog.pop(packet.len());
        self.counters.overflow(&packet);
        Some(packet)
    }

    /// Drops the packet that came last, for a caller that cannot make room for it.
    pub(crate) fn drop_tail(&mut self) -> Option<P> {
        let Waiting { packet, .. } = self.queue.pop_back()?;
        self.backlog.pop(packet.len());
        self.counters.overflow(&packet);
        Some(packet)
    }

    /// Takes the head and judges it by its sojourn time. RFC 8289 §5.6.
    fn dodequeue(&mut self, now: Time) -> Dodequeue<P> {
        let Some(Waiting { since, packet }) = self.queue.pop_front() else {
            // The queue is empty: it cannot be above the target.
            self.first_above_time = None;
            return Dodequeue { p: None, ok_to_drop: false };
        };
        self.backlog.pop(packet.len());
        let sojourn_time = now.as_nanos().saturating_sub(since.as_nanos());
        let mut ok_to_drop = false;
        if sojourn_time < self.target || self.backlog.bytes <= self.maxpacket {
            // RFC 8289 §5.6: went below, or no more than an MTU is left, which would not keep the
            // link busy. The sojourn time must then stay above for an interval again.
            self.first_above_time = None;
        } else {
            match self.first_above_time {
                // RFC 8289 §5.6: just went above. Drop only if it is still above an interval later.
                None => self.first_above_time = Some(after(now, self.interval)),
                Some(first_above_time) => ok_to_drop = now >= first_above_time,
            }
        }
        Dodequeue { p: Some(packet), ok_to_drop }
    }

    /// Marks `packet`, if that is allowed, and returns whether it was.
    fn mark(&mut self, packet: &mut P) -> bool {
        if !self.ecn || !packet.ecn().is_capable() {
            return false;
        }
        packet.mark_ce();
        self.counters.marked.count(packet.len());
        true
    }

    /// Drops `packet` as a signal of congestion.
    fn drop_packet(&mut self, packet: P, on_drop: &mut dyn FnMut(P)) {
        self.counters.dropped.count(packet.len());
        on_drop(packet);
    }

    /// Enters the dropping state. RFC 8289 §5.5.
    fn start_dropping(&mut self, now: Time) {
        self.dropping = true;
        // RFC 8289 §5.5: if the last dropping state ended recently, begin with the drop rate that
        // controlled the queue then.
        let delta = self.count - self.lastcount;
        // `drop_next` may lie ahead of now: then no time has passed since.
        let since_drop_next = now.as_nanos().saturating_sub(self.drop_next.as_nanos());
        let recently = since_drop_next < self.interval.saturating_mul(REMEMBERED_INTERVALS);
        self.count = if delta > 1 && recently { delta } else { 1 };
        self.drop_next = self.control_law(now, self.count);
        self.lastcount = self.count;
    }

    /// Time of the next drop, if the last of `count` drops was at `t`. RFC 8289 §5.6.
    fn control_law(&self, t: Time, count: u64) -> Time {
        after(t, span_between_drops(self.interval, count))
    }
}

/// `interval / sqrt(count)`, rounded down. `count` is at least 1.
fn span_between_drops(interval: u64, count: u64) -> u64 {
    match interval.checked_mul(interval) {
        Some(squared) => (squared / count).isqrt(),
        // Above 4.29 s the square needs more bits; its quotient's root is at most the interval.
        None => {
            let squared = u128::from(interval) * u128::from(interval);
            u64::try_from((squared / u128::from(count)).isqrt()).unwrap_or(interval)
        }
    }
}

impl Configuration for CodelConfig {
    type Error = CodelError;
    type Queue<P: Packet + Send + 'static> = Codel<P>;

    fn build<P: Packet + Send + 'static>(&self, _: Stream) -> Result<Codel<P>, CodelError> {
        Codel::new(*self)
    }

    fn is_random(&self) -> bool {
        false
    }

    fn marks(&self) -> bool {
        self.ecn
    }

    fn limit(&self) -> Limit {
        self.limit
    }
}

impl<P: Packet> Discipline<P> for Codel<P> {
    fn enqueue_with(&mut self, now: Time, packet: P, _on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        match self.limit.take(packet, &mut self.backlog, &mut self.counters) {
            Ok(packet) => {
                self.queue.push_back(Waiting { since: now, packet });
                Verdict::Queued
            }
            Err(packet) => Verdict::Dropped(packet),
        }
    }

    /// RFC 8289 §5.5, with marks.
    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let mut r = self.dodequeue(now);
        if self.dropping {
            if !r.ok_to_drop {
                // The sojourn time is below the target: leave the dropping state.
                self.dropping = false;
            }
            // RFC 8289 §5.5: several drops are due if the link was busy or the caller late.
            while self.dropping
                && now >= self.drop_next
                && let Some(mut packet) = r.p.take()
            {
                self.count = self.count.saturating_add(1);
                if self.mark(&mut packet) {
                    self.drop_next = self.control_law(self.drop_next, self.count);
                    r.p = Some(packet);
                    break;
                }
                self.drop_packet(packet, on_drop);
                r = self.dodequeue(now);
                if r.ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if r.ok_to_drop
            && let Some(mut packet) = r.p.take()
        {
            if self.mark(&mut packet) {
                r.p = Some(packet);
            } else {
                self.drop_packet(packet, on_drop);
                r = self.dodequeue(now);
            }
            self.start_dropping(now);
        }
        let packet = r.p?;
        self.counters.dequeued.count(packet.len());
        Some(packet)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        // A dequeue then returns a packet: CoDel drops none that leaves `maxpacket` or less behind
        // it, hence never the last.
        if self.queue.is_empty() { None } else { Some(now) }
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowKey;
    use marcato_units::Layer;
    use marcato_wire::Ecn;
    use proptest::prelude::*;

    struct Full;

    impl Packet for Full {
        fn len(&self) -> Bytes {
            Bytes::new(1514)
        }
        fn flow(&self) -> FlowKey {
            FlowKey::new(0)
        }
        fn ecn(&self) -> Ecn {
            Ecn::NotEct
        }
        fn mark_ce(&mut self) {}
        fn layer(&self) -> Layer {
            Layer::High
        }
    }

    /// RFC 8289 §5.5: `now - drop_next < 16 * interval`.
    #[test]
    fn a_dropping_state_is_remembered_for_under_sixteen_intervals() {
        let ended = Time::from_secs(7);
        for (nanos, count) in [(1_599_999_999, 32), (1_600_000_000, 1)] {
            let mut codel = Codel::<Full>::new(CodelConfig::default()).unwrap();
            (codel.count, codel.lastcount, codel.drop_next) = (40, 8, ended);
            codel.start_dropping(after(ended, nanos));
            assert_eq!((codel.count, codel.lastcount), (count, count));
        }
    }

    proptest! {
        #[test]
        fn the_control_law_is_exact(interval in 1u64.., count in 1u64..) {
            let span = u128::from(span_between_drops(interval, count));
            let (interval, count) = (u128::from(interval), u128::from(count));
            // span <= interval / sqrt(count) < span + 1, squared. Products that do not fit are
            // larger in any case.
            prop_assert!((span * span).checked_mul(count).is_some_and(|low| low <= interval * interval));
            prop_assert!(((span + 1) * (span + 1)).checked_mul(count).is_none_or(|high| high > interval * interval));
        }
    }
}
