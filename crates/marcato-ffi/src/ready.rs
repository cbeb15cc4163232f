//! List of what is worth another call.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// Function that a program has called when the list gets its first entry.
pub(crate) type Notify = Box<dyn Fn() + Send + Sync>;

/// List of what is worth another call, in the order in which it became so, each entry once.
pub(crate) struct ReadyList {
    entries: Mutex<VecDeque<Arc<Signal>>>,
    changed: Condvar,
    /// Has one byte while the list has entries.
    reader: UnixStream,
    writer: UnixStream,
    notify: Mutex<Option<Arc<Notify>>>,
}

/// Waker for one event of one object.
pub(crate) struct Signal {
    /// Number of the object.
    pub(crate) object: u64,
    /// Event, a `MARCATO_ON_…`.
    pub(crate) event: u32,
    is_listed: AtomicBool,
    list: Weak<ReadyList>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        if let Some(list) = self.list.upgrade() {
            list.push(self);
        }
    }
}

impl ReadyList {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let entries = Mutex::default();
        Ok(Arc::new(Self { entries, changed: Condvar::new(), reader, writer, notify: Mutex::default() }))
    }

    /// Returns a waker that lists this event of this object.
    pub(crate) fn waker(self: &Arc<Self>, object: u64, event: u32) -> Waker {
        let (is_listed, list) = (AtomicBool::new(false), Arc::downgrade(self));
        Waker::from(Arc::new(Signal { object, event, is_listed, list }))
    }

    /// Returns the descriptor that is readable while the list has entries.
    pub(crate) fn fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    pub(crate) fn set_notify(&self, notify: Option<Notify>) {
        *lock(&self.notify) = notify.map(Arc::new);
    }

    fn push(&self, signal: Arc<Signal>) {
        if signal.is_listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut entries = lock(&self.entries);
        let is_first = entries.is_empty();
        entries.push_back(signal);
        if is_first {
            // The socket has room for one byte: the last one was taken when the list became empty.
            let _ = (&self.writer).write(&[1]);
        }
        drop(entries);
        self.changed.notify_all();
        if is_first {
            // Called without a lock, so that it may take or set another function.
            let notify = lock(&self.notify).clone();
            if let Some(notify) = notify {
                notify();
            }
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        lock(&self.entries).len()
    }

    /// Takes the first entry.
    pub(crate) fn next(&self) -> Option<Arc<Signal>> {
        let mut entries = lock(&self.entries);
        let signal = entries.pop_front()?;
        // From here on it can be listed again: what happens now has not been seen by the program.
        signal.is_listed.store(false, Ordering::Release);
        if entries.is_empty() {
            let _ = (&self.reader).read(&mut [0; 8]);
        }
        Some(signal)
    }

    /// Waits until the list has entries, and returns whether it has; `None` waits without end.
    pub(crate) fn wait(&self, within: Option<Duration>) -> bool {
        let until = within.and_then(|within| Instant::now().checked_add(within));
        let mut entries = lock(&self.entries);
        while entries.is_empty() {
            let Some(until) = until else {
                entries = self.changed.wait(entries).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            (entries, _) = self.changed.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left is still whole: each change is one assignment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
