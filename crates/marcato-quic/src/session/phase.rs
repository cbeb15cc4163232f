//! Phase of a session, from the handshake to the end, and of its sending direction.

/// Phase of a session. Phases follow in this order; a session may skip some, and never returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// The engine runs the handshake alone.
    #[default]
    Handshake,
    /// The handshake goes on, and early data leaves (at a client) or has arrived (at a server).
    Early,
    /// The handshake is complete: messages leave.
    Established,
    /// The handshake is confirmed (RFC 9001 §4.1.2): lanes may be opened as well.
    Confirmed,
    /// The session has ended.
    Closed,
}

impl Phase {
    /// Moves on to `next`; returns `false` and changes nothing if the session is already there or
    /// beyond.
    ///
    /// A server confirms the handshake as it completes, and the engine reports the confirmation
    /// first. The completion that follows then changes nothing.
    pub(super) fn advance(&mut self, next: Self) -> bool {
        let later = *self < next;
        *self = next.max(*self);
        later
    }

    /// Returns whether the handshake goes on with early data (RFC 8446 §2.3).
    pub(super) const fn is_early(self) -> bool {
        matches!(self, Self::Early)
    }

    /// Returns whether all messages may leave.
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Established | Self::Confirmed)
    }

    /// Returns whether lanes may be opened.
    pub(super) const fn is_confirmed(self) -> bool {
        matches!(self, Self::Confirmed)
    }

    /// Returns whether the session has ended.
    pub(super) const fn is_closed(self) -> bool {
        matches!(self, Self::Closed)
    }
}

/// Progress of the end of sending, while the other direction goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Finish {
    /// Messages are accepted.
    #[default]
    Open,
    /// FINISH follows once all messages are acknowledged.
    Wanted,
    /// FINISH has left.
    Sent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_confirmed_before_it_is_established() {
        let mut phase = Phase::default();
        assert!(phase.advance(Phase::Confirmed));
        assert!(!phase.advance(Phase::Established));
        assert!(phase.is_open() && phase.is_confirmed());
    }

    #[test]
    fn early_data_does_not_open_a_session() {
        let mut phase = Phase::default();
        assert!(phase.advance(Phase::Early) && phase.is_early());
        assert!(!phase.is_open() && !phase.is_confirmed());
        assert!(phase.advance(Phase::Established) && !phase.is_early());
        assert!(!phase.advance(Phase::Early) && phase.is_open());
    }

    #[test]
    fn lanes_open_only_once_the_handshake_is_confirmed() {
        let mut phase = Phase::default();
        phase.advance(Phase::Established);
        assert!(phase.is_open() && !phase.is_confirmed());
    }

    #[test]
    fn a_session_ends_once_and_for_all() {
        let mut phase = Phase::default();
        assert!(!phase.is_open());
        assert!(phase.advance(Phase::Closed));
        for next in [Phase::Established, Phase::Confirmed, Phase::Closed] {
            assert!(!phase.advance(next));
            assert!(phase.is_closed() && !phase.is_open() && !phase.is_confirmed());
        }
    }
}
