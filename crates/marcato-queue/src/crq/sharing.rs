//! Division of the link between the queues. CRQ §III-B4 and §V.

use marcato_units::{Bytes, Rate, Time};

use super::young::YOUNG;
use super::{Class, CrqConfig, CrqError};

/// Division of the link between the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// By shares while several queues have packets; otherwise one has the whole link.
    Weighted,
    /// Each queue has its share and never more, whether others have packets or not: the effect of
    /// CRQ's prototype.
    Split {
        /// Bytes that a queue may send at once after it was late or idle. At least one packet.
        burst: Bytes,
    },
    /// Responsive queues first, ECN before loss. The standard queue has what they leave, and at
    /// least its share. CRQ §III-B4.
    Strict {
        /// Least share of the link for the standard queue while packets wait in it, in thousandths,
        /// below 1000.
        ///
        /// With 0, as in the paper, responsive flows that fill the link starve all others, new
        /// flows included.
        least: u16,
    },
}

impl Sharing {
    /// Default of [`Strict`](Self::Strict)'s `least`: 5 % of the link.
    pub const STANDARD_LEAST: u16 = 50;
}

/// Virtual time advances by 2^12 per byte of a queue with all the shares.
const VIRTUAL_SHIFT: u32 = 12;
/// Whole link, in thousandths.
const WHOLE: u16 = 1000;
/// Most bytes that one packet is charged for, so that sums cannot overflow.
const MAX_PACKET: u64 = 1 << 32;
const STANDARD: usize = Class::Standard as usize;

/// One queue's part of the link. Only the fields of the chosen [`Sharing`] are in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Weighted: lead over the link's virtual time, which is bytes sent over the share, in a unit
    /// of its own.
    lead: u64,
    /// Weighted: virtual time per byte.
    per_byte: u64,
    /// Split: time at which the next packet may leave.
    ready: Time,
    /// Split: the queue's part of the link's rate.
    rate: Rate,
    /// Split: time by which `ready` may lag behind, in nanoseconds.
    slack: u64,
}

impl Share {
    /// Share of a queue that does not exist.
    pub(super) const NONE: Self = Self { lead: 0, per_byte: 0, ready: Time::MAX, rate: Rate::ZERO, slack: 0 };

    /// Part of `share` in `shares`, which is `rate`.
    pub(super) fn new(config: &CrqConfig, share: u16, shares: u64, rate: Rate) -> Result<Self, CrqError> {
        let slack = match config.sharing {
            Sharing::Split { burst } if burst < config.mtu => {
                return Err(CrqError::Burst { burst, mtu: config.mtu });
            }
            Sharing::Split { burst } => {
                u64::try_from(rate.transmission_time(burst).as_nanos()).unwrap_or(u64::MAX)
            }
            Sharing::Weighted | Sharing::Strict { .. } => 0,
        };
        let per_byte = (shares << VIRTUAL_SHIFT) / u64::from(share);
        Ok(Self { lead: 0, per_byte, ready: Time::ZERO, rate, slack })
    }

    /// Split: `ready`, or the earliest time that the burst allows if that is later.
    fn ready_at(&self, now: Time) -> Time {
        self.ready.max(Time::from_nanos(now.as_nanos().saturating_sub(self.slack)))
    }
}

/// Choice of the queue that sends next. `waits` says of a queue whether packets wait in it.
#[derive(Clone, Debug)]
pub(super) struct Scheduler {
    sharing: Sharing,
    shares: [Share; Class::ALL.len()],
    /// Strict: bytes that the standard queue may send before others, in thousandths; negative after
    /// it did.
    owed: i64,
    /// Largest part of the link for young flows while others wait, in thousandths. Without a place
    /// for these, nothing waits there.
    most: u16,
    /// Bytes that others may send before young flows, in thousandths; negative after they did.
    ahead: i64,
}

impl Scheduler {
    /// Checks what concerns all queues together.
    pub(super) const fn checked(sharing: Sharing) -> Result<Sharing, CrqError> {
        match sharing {
            Sharing::Strict { least } if least >= WHOLE => Err(CrqError::Least(least)),
            possible => Ok(possible),
        }
    }

    pub(super) const fn new(sharing: Sharing, shares: [Share; Class::ALL.len()], most: u16) -> Self {
        Self { sharing, shares, owed: 0, most, ahead: 0 }
    }

    /// Queue that sends next at `now`, if one may.
    pub(super) fn next(&self, now: Time, waits: impl Fn(usize) -> bool) -> Option<usize> {
        // Of equals, ECN-responsive flows go before loss-responsive ones, and those before others.
        let classes = || (0..YOUNG).rev().filter(|&class| waits(class));
        if waits(YOUNG) && (self.ahead <= 0 || classes().next().is_none()) {
            return Some(YOUNG);
        }
        match self.sharing {
            Sharing::Strict { .. } => {
                if self.owed > 0 && waits(STANDARD) {
                    Some(STANDARD)
                } else {
                    classes().next()
                }
            }
            Sharing::Weighted => classes().min_by_key(|&class| self.shares[class].lead),
            Sharing::Split { .. } => classes()
                .filter(|&class| self.shares[class].ready <= now)
                .min_by_key(|&class| self.shares[class].ready),
        }
    }

    /// Takes note of a packet that arrives at `now` in the empty queue `class`.
    pub(super) fn wake(&mut self, now: Time, class: usize) {
        // An idle queue earns no credit beyond the burst.
        let share = &mut self.shares[class];
        share.ready = share.ready_at(now);
    }

    /// Accounts for `len` bytes that `class` sent at `now`.
    pub(super) fn charge(&mut self, now: Time, class: usize, len: Bytes, waits: impl Fn(usize) -> bool) {
        let bytes = len.get().min(MAX_PACKET);
        self.charge_young(class, bytes, &waits);
        if class == YOUNG {
            return;
        }
        match self.sharing {
            Sharing::Weighted => {
                // The link's virtual time moves up to that of the queue that sent. A queue is
                // behind only while it is idle, and earns no credit by it.
                let passed = self.shares[class].lead;
                for share in &mut self.shares[..YOUNG] {
                    share.lead = share.lead.saturating_sub(passed);
                }
                let share = &mut self.shares[class];
                share.lead = bytes.saturating_mul(share.per_byte);
            }
            Sharing::Split { .. } => {
                let share = &mut self.shares[class];
                let time = u64::try_from(share.rate.transmission_time(len).as_nanos()).unwrap_or(u64::MAX);
                share.ready = Time::from_nanos(share.ready_at(now).as_nanos().saturating_add(time));
            }
            Sharing::Strict { least } => {
                // At most 2^32 bytes times 1000 at once, which turns the sign: the sum stays within
                // that, both ways.
                let of = |share: u16| i64::try_from(bytes * u64::from(share)).unwrap_or(i64::MAX);
                if class != STANDARD {
                    self.owed = self.owed.saturating_add(of(least));
                    if !waits(STANDARD) {
                        // An idle queue earns no credit.
                        self.owed = self.owed.min(0);
                    }
                } else if (0..YOUNG).any(|other| other != STANDARD && waits(other)) {
                    self.owed = self.owed.saturating_sub(of(WHOLE - least));
                }
            }
        }
    }

    /// Keeps young flows to their part of the link: what they send beyond it is ahead of the others.
    fn charge_young(&mut self, class: usize, bytes: u64, waits: impl Fn(usize) -> bool) {
        // As under strict sharing, at most 2^32 bytes times 1000 at once, which turns the sign.
        let of = |share: u16| i64::try_from(bytes * u64::from(share)).unwrap_or(i64::MAX);
        if class != YOUNG {
            self.ahead = self.ahead.saturating_sub(of(self.most));
            if !waits(YOUNG) {
                // An idle place earns no credit.
                self.ahead = self.ahead.max(0);
            }
        } else if (0..YOUNG).any(&waits) {
            self.ahead = self.ahead.saturating_add(of(WHOLE - self.most));
        } else {
            // Nobody was passed.
            self.ahead = self.ahead.min(0);
        }
    }

    /// Earliest time, `now` or later, at which one of the queues that wait may send.
    pub(super) fn next_ready(&self, now: Time, waits: impl Fn(usize) -> bool) -> Option<Time> {
        let waiting = (0..self.shares.len()).filter(|&class| waits(class));
        match self.sharing {
            Sharing::Weighted | Sharing::Strict { .. } => waiting.map(|_| now).next(),
            Sharing::Split { .. } => waiting.map(|class| self.shares[class].ready.max(now)).min(),
        }
    }
}

#[cfg(test)]
mod tests {
    use marcato_units::Duration;

    use super::*;

    #[test]
    fn queues_that_were_idle_for_unequal_times_are_equals() {
        let rate = Rate::from_mbps(10);
        let mut config = CrqConfig::new(rate, Duration::from_millis(20), true);
        config.sharing = Sharing::Split { burst: config.mtu };
        let share = Share::new(&config, 1, 3, rate).unwrap();
        let mut scheduler = Scheduler::new(config.sharing, [share; Class::ALL.len()], 500);
        let responsive = Class::EcnResponsive as usize;
        let waits = |class| class == STANDARD || class == responsive;
        // The standard queue has been idle for longer, which earns it nothing.
        scheduler.charge(Time::ZERO, responsive, config.mtu, waits);
        let now = Time::from_secs(10);
        scheduler.wake(now, STANDARD);
        scheduler.wake(now, responsive);
        assert_eq!(scheduler.next(now, waits), Some(responsive));
    }
}
