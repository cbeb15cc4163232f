//! Waiting of Python's event loops for futures of Rust.
//!
//! An event loop polls the future of an [`Operation`] itself, on its own thread. The threads of the
//! runtime do no more than ring: they put a number into the [`Wakeups`] of the loop, and write a
//! byte into a socket that it watches.
//!
//! - A result passes from the future to the coroutine in one step of the loop. A cancelled
//!   coroutine drops its future before that, and futures of `marcato-net` lose nothing then. The
//!   crate `pyo3-async-runtimes` would take the result in a task of its own. It drops the result if
//!   the coroutine was cancelled meanwhile, and a received message would be lost.
//! - No thread of the runtime attaches to the interpreter. It need not wait for the lock, and
//!   cannot hold up the interpreter's exit or call a closed loop.
//! - A result that is known at once costs no switch of threads.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle};

/// Limit of the runtime's threads. They encrypt and pass on messages; Python's lock admits one
/// thread of the application at a time anyway.
const THREADS: usize = 4;

/// Runtime of this process, once it is used.
static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);

/// Number of forks between this process and the one that loaded the module.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Future of an operation. It ends attached to the interpreter, as it is polled so.
type Pending = Pin<Box<dyn Future<Output = PyResult<Py<PyAny>>> + Send>>;

/// Locks a mutex, even after a panic of another thread.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the runtime, which this starts if necessary.
pub(super) fn runtime() -> PyResult<Handle> {
    let mut runtime = lock(&RUNTIME);
    if let Some(handle) = &*runtime {
        return Ok(handle.clone());
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    let started =
        Builder::new_multi_thread().worker_threads(threads).thread_name("marcato").enable_all().build()?;
    let handle = started.handle().clone();
    // Its threads end with the process: connections that are open then need no farewell, and joining
    // the threads could hold up the exit.
    std::mem::forget(started);
    Ok(runtime.insert(handle).clone())
}

/// Forgets the runtime in the child of a fork, where its threads do not exist.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // No thread holds this lock while the interpreter forks: a holder is attached to it.
    *lock(&RUNTIME) = None;
}

/// Returns the number of the runtime's tasks that have not ended.
#[pyfunction]
pub(crate) fn live_tasks() -> usize {
    lock(&RUNTIME).as_ref().map_or(0, |handle| handle.metrics().num_alive_tasks())
}

/// Object of the runtime that a fork leaves to the parent. The child neither uses nor drops it: a
/// lock in it may be held by a thread that exists in the parent only.
pub(super) struct Own<T> {
    value: Option<T>,
    forks: u32,
}

impl<T> Own<T> {
    pub(super) fn new(value: T) -> Self {
        Self { value: Some(value), forks: FORKS.load(Ordering::Relaxed) }
    }

    fn is_ours(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// Returns the object, except in the child of a fork.
    pub(super) fn get(&self) -> PyResult<&T> {
        self.value.as_ref().filter(|_| self.is_ours()).ok_or_else(|| {
            PyRuntimeError::new_err("a forked process cannot use the transport of its parent: connect again")
        })
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.value.take());
        }
    }
}

/// Numbers of the operations of one event loop that can go on.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Wakeups(Arc<Rung>);

/// Part of [`Wakeups`] that other threads use.
struct Rung {
    /// At most one entry for each operation that is pending.
    numbers: Mutex<Vec<u64>>,
    /// End that the loop watches. It lives as long as the other, so that no write is a broken pipe.
    reader: UnixStream,
    writer: UnixStream,
}

impl Rung {
    fn ring(&self, number: u64) {
        let is_first = {
            let mut numbers = lock(&self.numbers);
            numbers.push(number);
            numbers.len() == 1
        };
        // One byte wakes the loop for all numbers that it has not taken. A full socket has bytes.
        if is_first {
            let _ = (&self.writer).write(&[1]);
        }
    }
}

#[pymethods]
impl Wakeups {
    #[new]
    fn new() -> PyResult<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Self(Arc::new(Rung { numbers: Mutex::default(), reader, writer })))
    }

    /// Returns the descriptor that becomes readable when an operation can go on.
    fn fileno(&self) -> RawFd {
        self.0.reader.as_raw_fd()
    }

    /// Takes the numbers of the operations that can go on.
    fn take(&self) -> PyResult<Vec<u64>> {
        // Before the numbers: one that comes in between writes another byte.
        match (&self.0.reader).read(&mut [0; 64]) {
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Err(error.into());
            }
            _ => {}
        }
        Ok(std::mem::take(&mut *lock(&self.0.numbers)))
    }
}

/// Waker of one operation.
struct Alarm {
    rung: Arc<Rung>,
    number: u64,
    /// Set from a ring to the next poll, so that each poll rings once.
    has_rung: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.has_rung.swap(true, Ordering::AcqRel) {
            self.rung.ring(self.number);
        }
    }
}

/// Future that an event loop polls.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Operation {
    pending: Own<Mutex<Option<Pending>>>,
    runtime: Handle,
    alarm: OnceLock<Arc<Alarm>>,
}

impl Operation {
    /// Creates an operation of a future. It does nothing until it is polled.
    ///
    /// `object` turns the value of the future into one of Python, `exception` its error.
    pub(super) fn of<T: 'static, E: 'static>(
        future: impl Future<Output = Result<T, E>> + Send + 'static,
        object: fn(Python<'_>, T) -> PyResult<Py<PyAny>>,
        exception: fn(Python<'_>, &E) -> PyErr,
    ) -> PyResult<Self> {
        let pending: Pending = Box::pin(async move {
            let result = future.await;
            Python::attach(|py| match result {
                Ok(value) => object(py, value),
                Err(error) => Err(exception(py, &error)),
            })
        });
        Ok(Self { pending: Own::new(Mutex::new(Some(pending))), runtime: runtime()?, alarm: OnceLock::new() })
    }

    /// Creates an operation of a future that has no error.
    pub(super) fn sure<T: 'static>(
        future: impl Future<Output = T> + Send + 'static,
        object: fn(Python<'_>, T) -> PyResult<Py<PyAny>>,
    ) -> PyResult<Self> {
        let future = async move { Ok::<T, Infallible>(future.await) };
        Self::of(future, object, |_, &never| match never {})
    }
}

#[pymethods]
impl Operation {
    /// Polls the future, and returns its result in a tuple; `None` while it is pending.
    ///
    /// `wakeups` get `number` when it can go on.
    fn poll(&self, wakeups: &Wakeups, number: u64) -> PyResult<Option<(Py<PyAny>,)>> {
        let mut pending = lock(self.pending.get()?);
        let Some(future) = pending.as_mut() else {
            return Err(PyIndexError::new_err("the operation has ended: begin another"));
        };
        let alarm = self.alarm.get_or_init(|| {
            Arc::new(Alarm { rung: Arc::clone(&wakeups.0), number, has_rung: AtomicBool::new(false) })
        });
        alarm.has_rung.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(alarm));
        let _guard = self.runtime.enter();
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => Ok(None),
            Poll::Ready(result) => {
                *pending = None;
                result.map(|result| Some((result,)))
            }
        }
    }

    /// Drops the future: the operation is cancelled, unless it has ended.
    fn cancel(&self) {
        if let Ok(pending) = self.pending.get() {
            let _guard = self.runtime.enter();
            *lock(pending) = None;
        }
    }
}

/// Object with futures that borrow it mutably, for which several operations wait.
///
/// Each poll makes a future anew, so that no operation holds the object while it waits.
pub(super) struct Many<T> {
    value: Mutex<T>,
    waiting: Arc<Waiting>,
}

/// Wakers of the operations that wait for an object.
#[derive(Default)]
struct Waiting(Mutex<(u64, Vec<(u64, Waker)>)>);

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let wakers = std::mem::take(&mut lock(&self.0).1);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// Place of an operation among those that wait.
struct Place {
    number: u64,
    waiting: Arc<Waiting>,
}

impl Place {
    fn new(waiting: &Arc<Waiting>) -> Self {
        let mut inner = lock(&waiting.0);
        inner.0 += 1;
        Self { number: inner.0, waiting: Arc::clone(waiting) }
    }

    fn set(&self, waker: &Waker) {
        let wakers = &mut lock(&self.waiting.0).1;
        if !wakers.iter().any(|(number, _)| *number == self.number) {
            wakers.push((self.number, waker.clone()));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.waiting.0).1.retain(|(number, _)| *number != self.number);
    }
}

impl<T> Many<T> {
    pub(super) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), waiting: Arc::default() }
    }

    /// Locks the object, for a call that does not wait.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.value)
    }

    /// Wakes all operations that wait, after the object was changed.
    pub(super) fn wake(&self) {
        Arc::clone(&self.waiting).wake();
    }

    /// Waits until `poll` is ready.
    pub(super) async fn wait<R>(&self, mut poll: impl FnMut(&mut T, &mut Context<'_>) -> Poll<R>) -> R {
        let place = Place::new(&self.waiting);
        // The object remembers one waker: the common one, which wakes all operations.
        let common = Waker::from(Arc::clone(&self.waiting));
        poll_fn(|context| {
            place.set(context.waker());
            poll(&mut lock(&self.value), &mut Context::from_waker(&common))
        })
        .await
    }
}
