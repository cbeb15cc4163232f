//! Threads that carry connections.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Threads that carry connections, each with a runtime of its own.
///
/// A connection stays on its thread, with its handlers and their tasks: nothing of a request crosses
/// threads. A handler that computes for long delays the other connections of its thread. Clones share the
/// threads, which end with the last of them.
#[derive(Clone, Debug)]
pub struct Workers(Arc<[Worker]>);

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// Connections on the thread.
    open: Arc<AtomicUsize>,
    /// End of the thread: dropping it ends the thread.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    /// Starts threads.
    ///
    /// # Errors
    /// If the system has no more threads or file descriptors.
    pub fn new(count: NonZeroUsize) -> io::Result<Self> {
        (0..count.get()).map(Worker::start).collect::<io::Result<_>>().map(Self)
    }

    /// Starts as many threads as the system can run at once.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn one_per_core() -> io::Result<Self> {
        Self::new(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns a seat on the thread that has the fewest connections.
    pub(crate) fn seat(&self) -> Option<Seat> {
        let worker = self.0.iter().min_by_key(|worker| worker.open.load(Relaxed))?;
        worker.open.fetch_add(1, Relaxed);
        Some(Seat { runtime: worker.runtime.clone(), open: Arc::clone(&worker.open) })
    }
}

/// Seat of a connection on a thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    runtime: Handle,
    open: Arc<AtomicUsize>,
}

impl Seat {
    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

impl Worker {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || {
            // Without a sender the thread ends, too.
            let _ = runtime.block_on(ended);
            // A read of a disk that hangs keeps no program from its end.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(format!("web-{number}")).spawn(run)?;
        Ok(Self { runtime: handle, open: Arc::default(), end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.end.take());
        let Some(thread) = self.thread.take() else { return };
        // A task of the thread may hold the last clone. A thread cannot wait for itself.
        if thread.thread().id() != std::thread::current().id() {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_go_to_the_thread_that_has_the_fewest() {
        let workers = Workers::new(NonZeroUsize::new(2).unwrap()).unwrap();
        let mut seats: Vec<Seat> = (0..4).filter_map(|_| workers.seat()).collect();
        let open = || workers.0.iter().map(|worker| worker.open.load(Relaxed)).collect::<Vec<_>>();
        assert_eq!(open(), [2, 2]);
        seats.remove(0);
        assert_eq!(open(), [1, 2]);
        seats.extend(workers.seat());
        assert_eq!((workers.count(), open()), (2, vec![2, 2]));
    }

    #[test]
    fn threads_end_with_the_last_clone() {
        let workers = Workers::new(NonZeroUsize::MIN).unwrap();
        let seat = workers.seat().unwrap();
        let clone = workers.clone();
        drop(workers);
        let on = seat.runtime().spawn(async { std::thread::current().name().map(str::to_owned) });
        let runtime = Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(on).unwrap().as_deref(), Some("web-0"));
        drop(clone);
        let late = seat.runtime().spawn(async {});
        assert!(runtime.block_on(late).unwrap_err().is_cancelled());
    }
}
