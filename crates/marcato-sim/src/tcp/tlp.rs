//! Tail loss probes, which elicit an acknowledgement of the last segments before the retransmission
//! timer expires. RFC 8985 §7.

use marcato_units::{Duration, Time};

/// TLP.max_ack_delay of RFC 8985 §7.2: greatest delay of an acknowledgement of a single segment.
/// Linux adds the same.
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);

/// Probe whose outcome is not yet known.
#[derive(Clone, Copy, Debug)]
struct Episode {
    /// TLP.end_seq: SND.NXT when it was sent.
    end_seq: u64,
    /// TLP.is_retrans: true if it was a retransmission.
    is_retrans: bool,
}

/// State of a connection's tail loss probes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tlp {
    /// Expiry of the probe timeout.
    pub(crate) pto_at: Option<Time>,
    /// True if it has expired and a probe is due.
    pub(crate) due: bool,
    episode: Option<Episode>,
}

impl Tlp {
    /// Starts the probe timer, which does not outlast the retransmission timer (RFC 8985 §7.2).
    /// `single` means that one segment is in flight. While the outcome of a probe is unknown, there
    /// is no other (§7.3).
    pub(crate) fn arm(&mut self, now: Time, srtt: Option<Duration>, single: bool, rto_at: Option<Time>) {
        let delay = if single { MAX_ACK_DELAY } else { Duration::ZERO };
        let pto = srtt.map_or(Duration::from_secs(1), |srtt| srtt * 2 + delay);
        self.pto_at = rto_at.filter(|_| self.episode.is_none()).map(|rto_at| rto_at.min(now + pto));
    }

    /// Records a probe, whose end is SND.NXT.
    pub(crate) fn on_sent(&mut self, nxt: u64, is_retrans: bool) {
        self.due = false;
        self.episode = Some(Episode { end_seq: nxt, is_retrans });
    }

    /// Cancels the timer and the last probe, as recovery repairs all losses.
    pub(crate) fn cancel(&mut self) {
        *self = Self::default();
    }

    /// Returns true if this acknowledgement shows that the probe repaired a loss that would
    /// otherwise remain unknown. `dsack` is the end of the duplicate that it reports.
    /// `is_duplicate` means that it brings neither progress nor SACK. RFC 8985 §7.4.
    pub(crate) fn on_ack(&mut self, ack: u64, dsack: Option<u64>, is_duplicate: bool) -> bool {
        let Some(episode) = self.episode.filter(|episode| ack >= episode.end_seq) else { return false };
        if !episode.is_retrans || dsack == Some(episode.end_seq) {
            // Both the probe and the original arrived.
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
    fn a_probe_waits_two_srtt_and_any_ack_delay_but_at_most_the_rto() {
        let srtt = Some(Duration::from_millis(100));
        for (srtt, single, rto_at, pto_at) in [
            (srtt, false, 9_000, 1_200),
            (srtt, true, 9_000, 1_400),
            (srtt, true, 1_300, 1_300),
            (None, false, 9_000, 2_000),
        ] {
            let mut tlp = Tlp::default();
            tlp.arm(at(1_000), srtt, single, Some(at(rto_at)));
            assert_eq!(tlp.pto_at, Some(at(pto_at)), "{srtt:?} {single} {rto_at}");
        }
    }

    #[test]
    fn the_acknowledgement_of_a_probe_gives_its_outcome() {
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
