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
