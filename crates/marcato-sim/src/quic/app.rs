//! What runs at an end of a QUIC session.

use std::any::Any;

use marcato_quic::{Event, Piece, Session};
use marcato_units::Time;

use crate::host::HostContext;

/// An application at one end of a session. Every method has a default that does nothing.
///
/// After the run get it back by [`Network::host`](crate::Network::host) and [`QuicHost::app`](crate::quic::QuicHost::app).
#[expect(unused_variables, reason = "the defaults do nothing")]
pub trait QuicApp: Any {
    /// The host exists; no session does.
    fn start(&mut self, now: Time, host: &HostContext<'_>) {}
    /// Something has happened in the session.
    fn event(&mut self, event: &Event, context: &mut QuicContext<'_>) {}
    /// A piece of a message has been received.
    fn received(&mut self, piece: Piece, context: &mut QuicContext<'_>) {}
    /// Whether it wants what has been received. If not, that stays in the session, and the peer is slowed down; it is
    /// asked again after each event and timer.
    fn reads(&self) -> bool {
        true
    }
    /// Time has come to [`next_timer`](Self::next_timer).
    fn timer(&mut self, context: &mut QuicContext<'_>) {}
    /// The session has nothing that it could send now. Whoever wants to saturate it hands over more; `true` if so.
    fn idle(&mut self, context: &mut QuicContext<'_>) -> bool {
        false
    }
    /// When [`timer`](Self::timer) wants to be called.
    fn next_timer(&self) -> Option<Time> {
        None
    }
}

/// Receives what comes and does nothing.
impl QuicApp for () {}

/// An application's view of its session.
pub struct QuicContext<'a> {
    pub(super) now: Time,
    pub(super) session: &'a mut Session,
}

impl QuicContext<'_> {
    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The session.
    pub fn session(&mut self) -> &mut Session {
        self.session
    }
}
