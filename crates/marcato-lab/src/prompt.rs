//! Threads that are woken in time.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;

use marcato_units::Duration;
use rustix::event::{PollFd, PollFlags, Timespec};

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

    /// Waits until a descriptor can be read from, but no longer than `at_most`. The timeout counts
    /// nanoseconds; that of `epoll_wait` counts whole milliseconds, and rounds up.
    ///
    /// # Errors
    ///
    /// Those of the kernel, except for an interruption by a signal, which ends the wait.
    pub fn wait(&self, descriptor: &impl AsFd, at_most: Duration) -> io::Result<()> {
        let nanos = i64::try_from(at_most.as_nanos()).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
        match rustix::event::poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
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

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_lasts_for_its_time_unless_data_comes() {
        let prompt = Prompt::thread();
        let (mut writer, mut reader) = UnixStream::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        let mut byte = [0];
        let (began, time) = (Instant::now(), Duration::from_millis(5));
        prompt.wait(&reader, time).unwrap();
        assert!(began.elapsed() >= time);
        assert_eq!(reader.read(&mut byte).unwrap_err().kind(), ErrorKind::WouldBlock);
        std::thread::scope(|scope| {
            scope.spawn(|| writer.write_all(b"a").unwrap());
            prompt.wait(&reader, Duration::from_secs(3600)).unwrap();
        });
        assert_eq!((reader.read(&mut byte).unwrap(), byte), (1, *b"a"));
    }
}
