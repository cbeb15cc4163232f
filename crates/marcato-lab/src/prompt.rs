//! Threads that are woken in time.

use std::num::NonZeroU64;

/// Request to the kernel to wake a thread as near to its deadlines as it can, also on a busy machine:
/// without timer slack, which is 50 us by default, and before other threads, which needs privileges. A
/// lab works without either, but delays packets by the lateness.
#[derive(Debug)]
pub struct Prompt {
    /// Priority of the thread before, if it was raised.
    before: Option<i32>,
}

impl Prompt {
    /// Makes the request for the present thread.
    pub fn thread() -> Self {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let thread = Some(rustix::thread::gettid());
        let before = rustix::process::getpriority_process(thread).ok();
        let raised = rustix::process::setpriority_process(thread, -20).is_ok();
        Self { before: before.filter(|_| raised) }
    }
}

impl Drop for Prompt {
    /// Gives the thread that drops it its old priority back; it should be the same thread.
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), before);
        }
    }
}
