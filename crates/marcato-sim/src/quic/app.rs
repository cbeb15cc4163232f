//! Applications at the ends of QUIC sessions.

use std::any::Any;

use marcato_quic::{Event, Piece, Session};
use marcato_units::Time;

use crate::host::HostContext;

/// Application at one end of a session. Every method has a default that does nothing.
///
/// After the run, [`Network::host`](crate::Network::host) and
/// [`QuicHost::app`](crate::quic::QuicHost::app) return it.
#[expect(unused_variables, reason = "the defaults do nothing")]
pub trait QuicApp: Any {
    /// Handles the start of the host, before there is a session.
    fn start(&mut self, now: Time, host: &HostContext<'_>) {}
    /// Handles an event of the session.
    fn event(&mut self, event: &Event, context: &mut QuicContext<'_>) {}
    /// Handles a received piece of a message.
    fn received(&mut self, piece: Piece, context: &mut QuicContext<'_>) {}
    /// Returns true if the application reads received data. Otherwise the data stays in the
    /// session, and flow control slows the peer down. Called after each event and timer.
    fn reads(&self) -> bool {
        true
    }
    /// Handles the timer at the time that [`next_timer`](Self::next_timer) returned.
    fn timer(&mut self, context: &mut QuicContext<'_>) {}
    /// Handles a session with nothing to send. An application that saturates it sends more messages
    /// and returns `true`.
    fn idle(&mut self, context: &mut QuicContext<'_>) -> bool {
        false
    }
    /// Returns when to call [`timer`](Self::timer).
    fn next_timer(&self) -> Option<Time> {
        None
    }
}

/// Application that receives everything and does nothing.
impl QuicApp for () {}

/// Application's view of its session.
pub struct QuicContext<'a> {
    pub(super) now: Time,
    pub(super) session: &'a mut Session,
}

impl QuicContext<'_> {
    /// Returns the current virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the session.
    pub fn session(&mut self) -> &mut Session {
        self.session
    }
}
