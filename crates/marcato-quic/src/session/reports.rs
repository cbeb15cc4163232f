//! Reports about messages that the application has taken: those awaited from the peer, and those
//! owed to it. The ends of exchanges take the same way to the peer.

use std::collections::VecDeque;

use marcato_sched::conductor::MessageId;
use marcato_wire::{Frame, MessageNumber};
use rustc_hash::FxHashMap;

/// Progress of the end of the control stream, so that all reports arrive before the connection is
/// closed. docs/wire.md, "On QUIC".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// The stream ends after the frames that wait for it.
    Wanted,
    /// The end has been handed to the engine.
    Sent,
    /// The peer has acknowledged the stream and its end, or reads it no longer.
    Acknowledged,
}

/// Reports of one session.
#[derive(Debug, Default)]
pub(super) struct Reports {
    // This end chose all keys, in sequence, so a peer cannot insert colliding ones.
    /// Messages that the peer has not reported about: as many as the owner sends with a receipt.
    awaited: FxHashMap<MessageNumber, MessageId>,
    /// Frames that wait until few other small frames do. The owner bounds them.
    owed: VecDeque<Frame>,
    /// Set while reports wait although they could have been written.
    blocked: bool,
    /// Set once a report was written.
    any: bool,
    end: End,
}

impl Reports {
    /// Awaits a report about a message of this end.
    pub(super) fn expect(&mut self, number: MessageNumber, message: MessageId) {
        self.awaited.insert(number, message);
    }

    /// Stops awaiting a report, and returns its message.
    pub(super) fn take(&mut self, number: MessageNumber) -> Option<MessageId> {
        self.awaited.remove(&number)
    }

    /// Number of awaited reports.
    pub(super) fn awaited(&self) -> usize {
        self.awaited.len()
    }

    /// Adds a frame about a message or a request of the peer.
    pub(super) fn push(&mut self, frame: Frame) {
        self.owed.push_back(frame);
    }

    /// Number of reports that wait.
    pub(super) fn owed(&self) -> usize {
        self.owed.len()
    }

    /// Takes the frame of the oldest report that waits.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let frame = self.owed.pop_front()?;
        self.any = true;
        Some(frame)
    }

    /// Records that as many reports were written as possible. Returns whether the last of those
    /// that had to wait has left.
    pub(super) fn wrote(&mut self) -> bool {
        let waits = !self.owed.is_empty();
        std::mem::replace(&mut self.blocked, waits) && !waits
    }

    /// Lets the control stream end. Returns whether nothing more has to be waited for.
    pub(super) fn finish(&mut self) -> bool {
        if self.end == End::Open {
            let none = !self.any && self.owed.is_empty();
            self.end = if none { End::Acknowledged } else { End::Wanted };
        }
        self.end == End::Acknowledged
    }

    /// Returns whether the control stream has to be finished now, once: `idle` states whether no
    /// small frame waits.
    pub(super) fn ends_now(&mut self, idle: bool) -> bool {
        let now = self.end == End::Wanted && self.owed.is_empty() && idle;
        if now {
            self.end = End::Sent;
        }
        now
    }

    /// Records that the control stream has ended at the peer. Returns whether the owner waits for
    /// that.
    pub(super) fn ended(&mut self) -> bool {
        let waits = matches!(self.end, End::Wanted | End::Sent);
        self.end = End::Acknowledged;
        waits
    }
}

#[cfg(test)]
mod tests {
    use marcato_wire::Fate;

    use super::*;

    fn report(id: u64) -> Frame {
        Frame::Report { id: MessageNumber(id), fate: Fate::Taken }
    }

    #[test]
    fn nothing_is_waited_for_without_reports() {
        assert!(Reports::default().finish());
    }

    #[test]
    fn the_end_waits_for_the_last_report() {
        let mut reports = Reports::default();
        reports.push(report(3));
        assert!(!reports.finish());
        assert!(!reports.ends_now(true));
        assert_eq!(reports.next(), Some(report(3)));
        assert!(!reports.ends_now(false));
        assert!(reports.ends_now(true) && !reports.ends_now(true));
        assert!(!reports.finish());
        assert!(reports.ended() && reports.finish() && !reports.ended());
    }

    #[test]
    fn the_owner_hears_once_that_waiting_reports_have_left() {
        let mut reports = Reports::default();
        assert!(!reports.wrote());
        reports.push(report(0));
        assert!(!reports.wrote() && reports.owed() == 1);
        reports.next();
        assert!(reports.wrote() && !reports.wrote());
    }
}
