//! Interrupts (Ctrl-C) while results are being made.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::{SigId, flag, low_level};

/// The exit status of a command that was interrupted: 128 + SIGINT, as shells have it.
pub(crate) const STATUS: u8 = 130;

/// Notes an interrupt, so that a command can say what is kept and end by itself. A second interrupt ends the process at once.
#[derive(Debug)]
pub(crate) struct Interrupt {
    came: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Interrupt {
    /// Listens until it is dropped.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn listen() -> io::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        // In this order: the first interrupt is noted after it was found not to be the second.
        let second = flag::register_conditional_shutdown(SIGINT, i32::from(STATUS), Arc::clone(&came))?;
        let first = flag::register(SIGINT, Arc::clone(&came))?;
        Ok(Self { came, registered: vec![second, first] })
    }

    /// Returns whether an interrupt has come.
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

/// Ends the process on an interrupt, for work that cannot be asked to stop.
#[derive(Debug)]
pub(crate) struct EndsOnInterrupt {
    handle: signal_hook::iterator::Handle,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EndsOnInterrupt {
    /// Until it is dropped, an interrupt prints what `say` returns on standard error, and ends the process with [`STATUS`].
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn saying(say: impl FnOnce() -> String + Send + 'static) -> io::Result<Self> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT])?;
        let handle = signals.handle();
        let thread = std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                // Behind whatever progress is shown.
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
            // It cannot have panicked but by standard error's failure, which nobody could be told.
            let _ = thread.join();
        }
    }
}
