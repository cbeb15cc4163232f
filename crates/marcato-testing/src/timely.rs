use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::skip::skip;

/// Time that a thread of the meter sleeps.
const STEP: Duration = Duration::from_millis(1);
/// Measurements before a machine counts as too busy.
const ATTEMPTS: usize = 5;

/// Held by the measurement of a test program that runs: two would disturb each other.
static CLOCK: Mutex<()> = Mutex::new(());

/// Returns a measurement against the clock that this machine had the processor for; `None`, and counts the test as
/// skipped, if several were disturbed.
///
/// A thread sleeps for a millisecond, again and again, while `measure` runs. If it is often woken late, then so were
/// threads that were measured: what they did says nothing about the code, and is measured again. `pause` is the longest
/// lateness that the test's bounds allow for once. 99 % of the wake-ups stay within two fifths of it.
#[track_caller]
pub fn timely<T>(package: &str, pause: Duration, mut measure: impl FnMut() -> T) -> Option<T> {
    // A test that failed while it measured disturbs no other.
    let _alone = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let mut said = String::new();
    for _ in 0..ATTEMPTS {
        let pulse = Pulse::begin();
        let measured = measure();
        let late = pulse.end();
        let [usual, longest] = [late.usual, late.longest].map(|late| late.as_secs_f64() * 1e3);
        said = format!("threads woke up to {longest:.1} ms late, and 1 of 100 times {usual:.1} ms or more");
        eprintln!("{said}");
        if late.usual <= pause * 2 / 5 && late.longest <= pause {
            return Some(measured);
        }
    }
    skip(package, &format!("the machine is too busy to measure times: {said}"));
    None
}

/// Lateness of the wake-ups of a thread.
struct Lateness {
    /// Lateness that 99 % of them stayed within.
    usual: Duration,
    longest: Duration,
}

/// Meter of how late this machine wakes threads.
struct Pulse {
    ended: Arc<AtomicBool>,
    thread: thread::JoinHandle<Vec<Duration>>,
}

impl Pulse {
    fn begin() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let thread = thread::spawn(move || {
            let mut late = Vec::new();
            while !seen.load(Ordering::Relaxed) {
                let begun = Instant::now();
                thread::sleep(STEP);
                late.push(begun.elapsed().saturating_sub(STEP));
            }
            late
        });
        Self { ended, thread }
    }

    fn end(self) -> Lateness {
        self.ended.store(true, Ordering::Relaxed);
        let mut late = self.thread.join().unwrap_or_default();
        late.sort_unstable();
        let at = |place: usize| late.get(place).copied().unwrap_or(Duration::MAX);
        Lateness { usual: at(late.len() * 99 / 100), longest: at(late.len().saturating_sub(1)) }
    }
}
