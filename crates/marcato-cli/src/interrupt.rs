//! Interrupts (Ctrl-C) and requests to end (SIGTERM) during the computation of results.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};

use crate::output::Directory;

/// Exit status of an interrupted command: 128 + SIGINT, as in shells.
pub(crate) const STATUS: u8 = 130;

/// Records an interrupt, so that a command can report what is kept and then end. A second interrupt
/// ends the process at once.
#[derive(Debug)]
pub(crate) struct Interrupt {
    came: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Interrupt {
    /// Handles interrupts and requests to end until the value is dropped. `timeout` sends such a request, and its
    /// user wants the results as after Ctrl-C.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn listen() -> io::Result<Self> {
        Self::listen_to(&[SIGINT, SIGTERM])
    }

    /// Handles interrupts of the terminal alone until the value is dropped.
    ///
    /// # Errors
    /// When the operating system refuses.
    #[cfg(target_os = "linux")]
    pub(crate) fn listen_to_terminal() -> io::Result<Self> {
        Self::listen_to(&[SIGINT])
    }

    /// Handles interrupts, requests to end, and the end of the terminal, until the value is dropped: for
    /// commands that have something to undo.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn listen_for_any_end() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        // nohup has it ignored, and that is to stay.
        if ignores(&status, SIGHUP) {
            Self::listen_to(&[SIGINT, SIGTERM])
        } else {
            Self::listen_to(&[SIGINT, SIGTERM, SIGHUP])
        }
    }

    fn listen_to(signals: &[i32]) -> io::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        let mut listening = Self { came, registered: Vec::new() };
        for &signal in signals {
            // The order matters: the shutdown checks the flag before the first interrupt sets it.
            // Otherwise the first interrupt would already end the process.
            let came = || Arc::clone(&listening.came);
            let second = flag::register_conditional_shutdown(signal, i32::from(STATUS), came())?;
            let first = flag::register(signal, came())?;
            listening.registered.extend([second, first]);
        }
        Ok(listening)
    }

    /// Returns whether an interrupt has arrived.
    pub(crate) fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }
}

/// Returns whether a process with this `/proc/self/status` ignores a signal.
pub(crate) fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Ends the process on an interrupt or a request to end, for work that cannot be stopped otherwise.
#[derive(Debug)]
pub(crate) struct EndsOnInterrupt {
    handle: signal_hook::iterator::Handle,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EndsOnInterrupt {
    /// Handles interrupts and requests to end as [`saying`](Self::saying) does, for a command that keeps nothing of an
    /// interrupted run: it leaves no empty directory.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn leaving(directory: &Arc<Option<Directory>>) -> io::Result<Self> {
        let made = Arc::clone(directory);
        Self::saying(move || {
            made.iter().for_each(Directory::leave);
            "no report was written; the same command starts again from the beginning".to_owned()
        })
    }

    /// Handles interrupts and requests to end until the value is dropped: one prints the result of `say` on standard
    /// error, and ends the process with [`STATUS`].
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn saying(say: impl FnOnce() -> String + Send + 'static) -> io::Result<Self> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let thread = std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                // The newline separates the message from a progress bar.
                eprintln!("\ninterrupted: {}", say());
                std::process::exit(i32::from(STATUS));
            }
        });
        Ok(Self { handle, thread: Some(thread) })
    }
}

impl Drop for EndsOnInterrupt {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // The thread can only panic if standard error fails, and then no report is possible.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_ignored_is_told_from_others() {
        let status = "Name:\tmarcato\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert_eq!([SIGHUP, SIGINT, SIGTERM].map(|signal| ignores(status, signal)), [true, false, false]);
        assert!(!ignores("", SIGHUP));
    }
}
