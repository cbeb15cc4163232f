//! Words with a supervisor: systemd's protocol of readiness, and the sockets that it opened.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::time::Duration;

use listenfd::ListenFd;
use sd_notify::NotifyState;

/// Sockets that a supervisor has opened, by name. Some may have the same name.
#[derive(Debug, Default)]
pub(crate) struct Sockets(BTreeMap<String, Vec<TcpListener>>);

impl Sockets {
    /// Takes the sockets of this process. A later call finds none.
    pub(crate) fn take() -> io::Result<Self> {
        // The names stand beside the sockets, in the same order (sd_listen_fds(3)).
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':').filter(|name| !name.is_empty());
        let mut fds = ListenFd::from_env();
        let mut sockets = BTreeMap::<String, Vec<TcpListener>>::new();
        for index in 0..fds.len() {
            let name = names.next().unwrap_or("unknown").to_owned();
            if let Some(listener) = fds.take_tcp_listener(index)? {
                sockets.entry(name).or_default().push(listener);
            }
        }
        Ok(Self(sockets))
    }

    /// Returns the sockets of a name.
    pub(crate) fn of(&self, name: &str) -> &[TcpListener] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.keys().map(String::as_str)
    }
}

/// Tells the supervisor, if there is one, that the server is ready, also after a reload.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Tells the supervisor that the configuration is being read again.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// Tells the supervisor that open requests are being finished.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Tells the supervisor that the server still works.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// Returns the interval at which the supervisor is to be told that the server works: half of what it
/// asks for (sd_watchdog_enabled(3)).
pub(crate) fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

fn tell(states: &[NotifyState<'_>]) {
    // A supervisor that does not listen is no reason to end.
    let _ = sd_notify::notify(states);
}
