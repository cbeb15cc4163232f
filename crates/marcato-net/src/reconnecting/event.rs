//! Events of a reconnecting client.

use std::sync::Arc;

use marcato_units::Time;

use crate::error::{Closed, ConnectError};
use crate::event::Missable;

/// Change of a [`Reconnecting`](crate::Reconnecting) client that the application may want to know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReconnectingEvent {
    /// There is a [connection](crate::Reconnecting::connection) again, or for the first time. Its
    /// own settings are those of a new one: lanes that were added, sources and thresholds are to
    /// be set again.
    Connected,
    /// The connection was lost.
    Lost(Closed),
    /// An attempt to connect failed.
    Failed(Arc<ConnectError>),
    /// The next attempt begins at this time, as of [`Reconnecting::now`](crate::Reconnecting::now).
    NextAttempt(Time),
    /// This number of received messages was discarded. The application has taken none of them since
    /// the loss of their connection, and four further ones were lost meanwhile.
    Discarded(u64),
    /// The reader was too slow, and lost this number of events.
    Missed(u64),
}

impl Missable for ReconnectingEvent {
    fn missed(events: u64) -> Self {
        Self::Missed(events)
    }
}
