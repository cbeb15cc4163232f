//! Settings of a reconnecting client.

use std::time::Duration;

use marcato_units::Seed;

use crate::error::ConfigError;

/// Settings of a [`Reconnecting`](crate::Reconnecting) client: the times of its attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconnectConfig {
    /// Longest delay before the first new attempt (200 ms). It doubles with each failure, up to
    /// [`longest`](Self::longest). Each delay is drawn at random between half of its bound and all
    /// of it, so that the clients of a server that was lost do not return at once.
    pub first: Duration,
    /// Limit of the delays (30 s). A connection that was up for this long counts as a success: the
    /// delays begin anew after it.
    pub longest: Duration,
    /// Time without such a success after which the client ends (10 min); `None` for never.
    pub give_up_after: Option<Duration>,
    /// Connects again also if the peer has closed the connection, as a server does that restarts
    /// (off).
    pub after_close_by_peer: bool,
    /// Seed of the delays; one of the system's if `None`.
    pub seed: Option<Seed>,
}

impl Default for ReconnectConfig {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            longest: Duration::from_secs(30),
            give_up_after: Some(Duration::from_secs(600)),
            after_close_by_peer: false,
            seed: None,
        }
    }
}

impl ReconnectConfig {
    /// Checks the settings: without delays, a server that refuses connections would be flooded.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        for (limit, delay) in [("first", self.first), ("longest", self.longest)] {
            if delay.is_zero() {
                return Err(ConfigError::Zero { limit });
            }
        }
        Ok(())
    }
}
