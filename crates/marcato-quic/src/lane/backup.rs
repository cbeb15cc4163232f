//! Backup status of a lane, as either end announces it to the other.

use marcato_units::{Duration, Time};

/// Status that this end announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    Available,
    Backup,
    /// Available again, after a backup that the peer may still echo.
    Withdrawn {
        at: Time,
    },
}

/// Status that the peer announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Available,
    /// A backup that may be an echo of this end's. From `heeds_at` on it is not.
    Unclear {
        heeds_at: Option<Time>,
    },
    /// A backup because the peer wants to spare the lane.
    Backup,
}

/// Backup status of a lane at both ends.
///
/// The peer follows the status of this end, and announces that as well. So a backup counts as the
/// peer's wish only if this end announces none, and has not withdrawn one shortly before. Otherwise
/// both ends would follow each other's echoes without end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backup {
    own: Own,
    peer: Peer,
}

impl Backup {
    /// Status that both ends have given the path already, before it was validated.
    pub(crate) const fn new(own: bool, peer: bool) -> Self {
        let own = if own { Own::Backup } else { Own::Available };
        Self { own, peer: if peer { Peer::Backup } else { Peer::Available } }
    }

    /// Returns whether this end announces a backup.
    pub(crate) fn is_announced(&self) -> bool {
        self.own == Own::Backup
    }

    /// Returns whether the peer wants the lane used only while no other is available.
    pub(crate) fn is_peers_wish(&self) -> bool {
        self.peer == Peer::Backup
    }

    /// Records a status that was sent to the peer. An echo of an earlier one may arrive for as long
    /// as `echo`.
    pub(crate) fn announced(&mut self, now: Time, backup: bool, echo: Duration) {
        if backup {
            self.own = Own::Backup;
        } else if self.own == Own::Backup {
            self.own = Own::Withdrawn { at: now };
            // While this end had a lane for backup itself, it did not ask for the peer's reason.
            if let Peer::Unclear { heeds_at } = &mut self.peer {
                *heeds_at = Some(now + echo);
            }
        }
    }

    /// Takes a status of the peer. Returns whether its wish has changed.
    ///
    /// The engine also reports frames that were retransmitted. Taken for an echo, such a frame would
    /// return a dead lane to service, so one that repeats the status changes nothing.
    pub(crate) fn peer_announced(&mut self, now: Time, backup: bool, echo: Duration) -> bool {
        let before = self.peer;
        self.peer = match (backup, self.own) {
            (false, _) => Peer::Available,
            (true, _) if before != Peer::Available => before,
            (true, Own::Backup) => Peer::Unclear { heeds_at: None },
            (true, Own::Withdrawn { at }) if at + echo > now => Peer::Unclear { heeds_at: Some(at + echo) },
            (true, Own::Available | Own::Withdrawn { .. }) => Peer::Backup,
        };
        (before == Peer::Backup) != self.is_peers_wish()
    }

    /// Time from which a backup of the peer counts as its wish, if it has not withdrawn it.
    pub(crate) fn heeds_at(&self) -> Option<Time> {
        match self.peer {
            Peer::Unclear { heeds_at } => heeds_at,
            Peer::Available | Peer::Backup => None,
        }
    }

    /// Takes a backup of the peer as its wish if it can no longer be an echo. Returns whether the wish
    /// has changed.
    pub(crate) fn heed(&mut self, now: Time) -> bool {
        let due = self.heeds_at().is_some_and(|at| at <= now);
        if due {
            self.peer = if self.is_announced() { Peer::Unclear { heeds_at: None } } else { Peer::Backup };
        }
        due && self.is_peers_wish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: Duration = Duration::from_millis(100);

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// Status of a lane that this end had for backup until 10 ms.
    fn withdrawn(peer_echoes: bool) -> Backup {
        let mut backup = Backup::new(false, false);
        backup.announced(ms(0), true, ECHO);
        assert!(backup.is_announced());
        if peer_echoes {
            assert!(!backup.peer_announced(ms(5), true, ECHO));
        }
        backup.announced(ms(10), false, ECHO);
        assert!(!backup.is_announced());
        backup
    }

    #[test]
    fn an_echo_becomes_a_wish_unless_the_peer_withdraws_it_in_time() {
        let mut backup = withdrawn(true);
        assert_eq!((backup.is_peers_wish(), backup.heeds_at()), (false, Some(ms(110))));
        let mut echo = backup;
        assert!(!echo.peer_announced(ms(60), false, ECHO));
        assert_eq!((echo.heeds_at(), echo.heed(ms(200))), (None, false));
        assert!(!backup.heed(ms(109)) && backup.heed(ms(110)));
        assert!(backup.is_peers_wish() && !backup.heed(ms(111)));
    }

    #[test]
    fn a_backup_soon_after_a_withdrawn_one_may_be_its_echo() {
        let mut backup = withdrawn(false);
        assert_eq!(backup.heeds_at(), None);
        assert!(!backup.peer_announced(ms(109), true, ECHO));
        assert_eq!(backup.heeds_at(), Some(ms(110)));
        assert!(withdrawn(false).peer_announced(ms(110), true, ECHO));
    }

    #[test]
    fn no_echo_is_heeded_while_this_end_announces_a_backup() {
        let mut backup = withdrawn(true);
        backup.announced(ms(20), true, ECHO);
        assert!(!backup.heed(ms(110)));
        assert_eq!((backup.is_peers_wish(), backup.heeds_at()), (false, None));
        // This end had the lane for backup again, so its peer has the same time once more.
        backup.announced(ms(120), false, ECHO);
        assert_eq!(backup.heeds_at(), Some(ms(220)));
    }

    #[test]
    fn a_repeated_status_of_the_peer_changes_nothing() {
        let mut backup = Backup::new(false, false);
        let changes =
            [true, true, false, false, true].map(|status| backup.peer_announced(ms(1), status, ECHO));
        assert_eq!(changes, [true, false, true, false, true]);
        assert!(Backup::new(false, true).is_peers_wish());
        // A frame that was retransmitted does not tell whether its status is an echo.
        let mut echo = withdrawn(true);
        assert!(!echo.peer_announced(ms(120), true, ECHO) && !echo.is_peers_wish());
        // Nothing was withdrawn, so nothing can be echoed.
        backup.announced(ms(2), false, ECHO);
        assert_eq!((backup.is_peers_wish(), backup.heeds_at()), (true, None));
    }
}
