//! Rule for the cap in a queue that is our own.

use marcato_units::{Bytes, Rate};

use super::round::{CapChange, Round};

/// Rule like FAST's: as many bytes in the queue as allowed, at any rate.
///
/// A rule like Copa's, a rate of one packet in half of the queueing delay, was tried on cellular traces: it kept
/// about twice the median delay at the same goodput (docs/results.md).
#[derive(Clone, Copy, Debug)]
pub(super) struct Fast {
    /// Packets by which the cap grows next, less one.
    extra: u64,
    /// Rate of the round before.
    rate: Rate,
}

impl Fast {
    pub(super) const fn new() -> Self {
        Self { extra: 0, rate: Rate::ZERO }
    }

    /// Returns the change of `cap` after a round trip, given the size of a packet and the bytes that the queue may
    /// hold.
    pub(super) fn step(
        &mut self,
        cap: Bytes,
        round: &Round,
        mss: Bytes,
        alpha: Bytes,
        longest: Rate,
    ) -> CapChange {
        let (queued, bdp) = (round.queued(), round.bdp());
        let before = core::mem::replace(&mut self.rate, round.rate);
        if queued > alpha + mss * 3 / 2 {
            // A batch that the path holds passes the bottleneck, and leaves nothing there. A smaller cap would split it,
            // and an application that waits for its acknowledgement would gain nothing by that.
            if round.dry {
                return CapChange::Keep;
            }
            self.extra = 0;
            return CapChange::Cut(if round.bound { cap - (queued - alpha) } else { bdp + alpha });
        }
        if !round.bound {
            self.extra = 0;
            // Room for the controller below: otherwise cap and window hold each other. Urgent data
            // that passed the cap is no measure of what the path holds; the rate is.
            let room = round.most.min(bdp) * 11 / 10 + alpha;
            return if queued < alpha && room > cap { CapChange::Set(room) } else { CapChange::Keep };
        }
        if queued + mss < alpha {
            let step = mss * (self.extra + 1);
            // Close to the aim, not beyond it.
            let by = if queued < mss / 2 { step } else { step.min(alpha - queued) };
            let known = longest.bytes_in(round.base + round.back) + alpha;
            let was_faster = u128::from(round.rate.as_bps()) * 5 < u128::from(longest.as_bps()) * 4;
            let grows = round.rate.as_bps() > before.as_bps() + before.as_bps() / 8;
            if queued < mss / 2 && was_faster && grows && known > cap + by * 2 {
                return CapChange::Raise(known);
            }
            self.extra = (2 * self.extra + 1).min((cap / 4).get() / mss.get().max(1));
            return CapChange::Set(cap + by);
        }
        CapChange::Keep
    }
}

#[cfg(test)]
mod tests {
    use marcato_units::{Duration, Rate};

    use super::*;

    const MSS: Bytes = Bytes::new(1000);

    #[test]
    fn a_queue_that_a_batch_leaves_behind_is_cut_and_no_other() {
        let rate = Rate::from_mbps(8);
        let round = Round::at(rate, Duration::from_millis(40), Duration::from_millis(20));
        for bound in [false, true] {
            let step = |dry| Fast::new().step(MSS * 50, &Round { dry, bound, ..round }, MSS, MSS * 2, rate);
            assert_eq!(step(true), CapChange::Keep, "{bound}");
            assert!(matches!(step(false), CapChange::Cut(_)), "{bound}");
        }
    }

    #[test]
    fn room_above_the_cap_follows_the_rate_and_not_a_burst() {
        let (rate, base) = (Rate::from_mbps(8), Duration::from_millis(40));
        let round = Round { bound: false, most: MSS * 60, ..Round::at(rate, base, Duration::ZERO) };
        let step = |most| Fast::new().step(MSS * 40, &Round { most, ..round }, MSS, MSS * 2, rate);
        // 40 packets on the path, a tenth of that, and two in the queue.
        assert_eq!(step(MSS * 60), CapChange::Set(MSS * 46));
        assert_eq!(step(MSS * 40), CapChange::Set(MSS * 46));
        assert_eq!(step(MSS * 20), CapChange::Keep);
    }
}
