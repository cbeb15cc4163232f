//! Acknowledgements that this end owes the peer.

/// Length in bytes up to which a datagram is taken to carry hardly more than acknowledgements. Such
/// a datagram needs no acknowledgement.
const ACKS_ONLY: usize = 150;

/// Number of unanswered datagrams from which on an acknowledgement is due (RFC 9000 §13.2.2).
const MANY: u32 = 2;

/// Received datagrams that may require an acknowledgement, since one could last leave.
///
/// The engine decides on acknowledgements; this is an estimate from outside. It matters while the
/// engine holds data, because acknowledgements then leave only with data.
#[derive(Debug, Default)]
pub(super) struct AckDebt {
    unanswered: u32,
    /// Set when the engine's timer for delayed acknowledgements may have expired.
    overdue: bool,
}

impl AckDebt {
    /// Records a datagram of `len` bytes that has arrived.
    pub(super) fn arrived(&mut self, len: usize) {
        if len > ACKS_ONLY {
            self.unanswered = self.unanswered.saturating_add(1);
        }
    }

    /// Records that a timer of the engine has expired. It may have been that of a delayed
    /// acknowledgement.
    pub(super) fn timer_expired(&mut self) {
        self.overdue = self.unanswered > 0;
    }

    /// Records that acknowledgements could leave: any data packet carries them.
    pub(super) fn answered(&mut self) {
        *self = Self::default();
    }

    /// Returns whether the peer must not wait any longer.
    pub(super) const fn is_due(&self) -> bool {
        self.unanswered >= MANY || self.overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_datagrams_require_an_acknowledgement() {
        let mut debt = AckDebt::default();
        debt.arrived(1200);
        assert!(!debt.is_due());
        debt.arrived(ACKS_ONLY + 1);
        assert!(debt.is_due());
    }

    #[test]
    fn acknowledgements_require_none() {
        let mut debt = AckDebt::default();
        for _ in 0..100 {
            debt.arrived(ACKS_ONLY);
        }
        debt.timer_expired();
        assert!(!debt.is_due());
    }

    #[test]
    fn one_datagram_is_answered_when_the_timer_expires() {
        let mut debt = AckDebt::default();
        debt.arrived(1200);
        debt.timer_expired();
        assert!(debt.is_due());
        debt.answered();
        assert!(!debt.is_due());
        debt.timer_expired();
        assert!(!debt.is_due());
    }
}
