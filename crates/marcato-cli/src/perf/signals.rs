//! Signals that end a client's run or a server early.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Interrupts (Ctrl-C) and requests to end (SIGTERM, as `timeout` sends them), from its creation on.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Begins to receive the signals. They no longer end the process by themselves.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Resolves at the next signal.
    pub(super) async fn came(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
