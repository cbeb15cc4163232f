//! Access log: lines on their way from the connections to standard output.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use marcato_web::{Log, Record};
use tokio::sync::mpsc;

/// Lines that wait to be printed. If standard output is slower than the requests, later lines are
/// counted and dropped: a reader of the log never delays a response.
const WAITING: usize = 10_000;

/// Access log, on the side of the connections.
#[derive(Clone)]
pub(crate) struct Access {
    lines: mpsc::Sender<String>,
    missed: Arc<AtomicU64>,
}

impl Access {
    /// Creates a log, and the lines to be printed.
    pub(crate) fn new() -> (Self, mpsc::Receiver<String>) {
        let (lines, printed) = mpsc::channel(WAITING);
        (Self { lines, missed: Arc::default() }, printed)
    }

    /// Returns the receiver of the records.
    pub(crate) fn log(&self) -> Log {
        let Self { lines, missed } = self.clone();
        Arc::new(move |record: &Record| {
            if lines.try_send(format!("{record}\n")).is_err() {
                missed.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// Number of lines that were dropped.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}
