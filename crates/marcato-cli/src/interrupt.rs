//! Interrupts (Ctrl-C) during the computation of results.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::{SigId, flag, low_level};

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
    /// Handles interrupts until the value is dropped.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn listen() -> io::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        // The order matters: the shutdown checks the flag before the first interrupt sets it.
        // Otherwise the first interrupt would already end the process.
        let second = flag::register_conditional_shutdown(SIGINT, i32::from(STATUS), Arc::clone(&came))?;
        let first = flag::register(SIGINT, Arc::clone(&came))?;
        Ok(Self { came, registered: vec![second, first] })
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

/// Ends the process on an interrupt, for work that cannot be stopped otherwise.
#[derive(Debug)]
pub(crate) struct EndsOnInterrupt {
    handle: signal_hook::iterator::Handle,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EndsOnInterrupt {
    /// Handles interrupts until the value is dropped: one prints the result of `say` on standard
    /// error, and ends the process with [`STATUS`].
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn saying(say: impl FnOnce() -> String + Send + 'static) -> io::Result<Self> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT])?;
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
