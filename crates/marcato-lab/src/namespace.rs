//! Network namespace of a host.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use crate::sys;

type Job = Box<dyn FnOnce() + Send>;

/// Network namespace, which a thread keeps. It has no name: the kernel removes it with everything in
/// it when the thread and all commands in it have ended, also after a crash.
#[derive(Debug)]
pub(crate) struct Namespace {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// Number of the thread in `/proc/PID/task`.
    task: i32,
}

impl Namespace {
    /// Creates a namespace, in which `host` is the name of the host, and of the thread.
    pub(crate) fn new(host: &str) -> io::Result<Self> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let (ready, opened) = mpsc::sync_channel(1);
        let name = host.to_owned();
        let thread = std::thread::Builder::new().name(format!("lab {host}")).spawn(move || {
            let opened =
                sys::leave_namespaces().and_then(|()| Ok(rustix::system::sethostname(name.as_bytes())?));
            let failed = opened.is_err();
            let task = rustix::thread::gettid().as_raw_nonzero().get();
            let _ = ready.send(opened.map(|()| task));
            if !failed {
                waiting.iter().for_each(|job| job());
            }
        })?;
        let task = opened.recv().map_err(|_| gone())??;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), task })
    }

    /// Number of the thread that keeps the namespace, in `/proc/PID/task` of this process.
    pub(crate) const fn task(&self) -> i32 {
        self.task
    }

    /// Runs a job inside, and returns its result.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (done, result) = mpsc::sync_channel(1);
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        let job = move || {
            let _ = done.send(job());
        };
        jobs.send(Box::new(job)).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread of the namespace has ended")
}
