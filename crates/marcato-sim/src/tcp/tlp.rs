//! Tail loss probes: ask for news of the last segments before the retransmission timer expires. RFC 8985 §7.

use marcato_units::{Duration, Time};

/// RFC 8985 §7.2, TLP.max_ack_delay: how long an acknowledgement of a single segment may be held back. Linux adds as
/// much.
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);

/// A probe that was sent and of which it is not known what it did.
#[derive(Clone, Copy, Debug)]
struct Episode {
    /// TLP.end_seq: SND.NXT when it was sent.
    end_seq: u64,
    /// TLP.is_retrans: it carried what had been sent before.
    is_retrans: bool,
}

/// Tail loss probes of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tlp {
    /// When the probe timeout expires.
    pub(crate) pto_at: Option<Time>,
    /// It has expired: a probe is due.
    pub(crate) due: bool,
    episode: Option<Episode>,
}

impl Tlp {
    /// RFC 8985 §7.2: the timer begins anew, not to outlast the retransmission timer. `lone` says that one segment is
    /// in flight. Until a probe is understood there is no other (§7.3).
    pub(crate) fn arm(&mut self, now: Time, srtt: Option<Duration>, lone: bool, rto_at: Option<Time>) {
        let delay = if lone { MAX_ACK_DELAY } else { Duration::ZERO };
        let pto = srtt.map_or(Duration::from_secs(1), |srtt| srtt * 2 + delay);
        self.pto_at = rto_at.filter(|_| self.episode.is_none()).map(|rto_at| rto_at.min(now + pto));
    }

    /// A probe has left, which ends at SND.NXT.
    pub(crate) fn on_sent(&mut self, nxt: u64, is_retrans: bool) {
        self.due = false;
        self.episode = Some(Episode { end_seq: nxt, is_retrans });
    }

    /// No probe, and no thought of the last one: recovery sees to everything.
    pub(crate) fn cancel(&mut self) {
        *self = Self::default();
    }

    /// RFC 8985 §7.4: whether this acknowledgement shows that the probe repaired a loss of which nobody would know
    /// otherwise. `dsack` is where the duplicate ends of which it speaks; `is_duplicate` says that it brings neither
    /// news nor SACK.
    pub(crate) fn on_ack(&mut self, ack: u64, dsack: Option<u64>, is_duplicate: bool) -> bool {
        let Some(episode) = self.episode.filter(|episode| ack >= episode.end_seq) else { return false };
        if !episode.is_retrans || dsack == Some(episode.end_seq) {
            // Both arrived, the probe and what it repeated.
            self.episode = None;
        } else if ack > episode.end_seq {
            self.episode = None;
            return true;
        } else if is_duplicate {
            self.episode = None;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn a_probe_waits_two_round_trips_or_as_long_as_the_other_end_may_hold_back_but_not_beyond_the_timer() {
        let srtt = Some(Duration::from_millis(100));
        for (srtt, lone, rto_at, pto_at) in [
            (srtt, false, 9_000, 1_200),
            (srtt, true, 9_000, 1_400),
            (srtt, true, 1_300, 1_300),
            (None, false, 9_000, 2_000),
        ] {
            let mut tlp = Tlp::default();
            tlp.arm(at(1_000), srtt, lone, Some(at(rto_at)));
            assert_eq!(tlp.pto_at, Some(at(pto_at)), "{srtt:?} {lone} {rto_at}");
        }
    }

    #[test]
    fn what_a_probe_did_is_told_by_what_comes_back() {
        for (is_retrans, ack, dsack, is_duplicate, repaired, settled) in [
            (true, 4_000, None, false, false, false),
            (true, 5_000, None, false, false, false),
            (true, 5_000, None, true, false, true),
            (true, 5_000, Some(5_000), false, false, true),
            (true, 6_000, None, false, true, true),
            (false, 6_000, None, false, false, true),
        ] {
            let mut tlp = Tlp::default();
            tlp.on_sent(5_000, is_retrans);
            let what = format!("{is_retrans} {ack} {dsack:?} {is_duplicate}");
            assert_eq!(tlp.on_ack(ack, dsack, is_duplicate), repaired, "{what}");
            assert_eq!(tlp.episode.is_none(), settled, "{what}");
        }
    }
}
