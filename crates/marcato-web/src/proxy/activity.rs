//! Time of the last byte of an exchange.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use marcato_units::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Time of the last byte in either direction of an exchange.
#[derive(Debug)]
pub(super) struct Activity {
    start: Instant,
    /// Nanoseconds since the start: a century fits.
    last: AtomicU64,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    pub(super) fn touch(&self) {
        let nanoseconds = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    pub(super) fn last(&self) -> Instant {
        self.start + Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }

    /// Waits until there was no byte for a time.
    pub(super) async fn silence(&self, idle: Duration) {
        loop {
            let end = self.last() + idle;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }
}

/// Timer of a body that is awaited.
///
/// It runs only while the body is pending, so that a slow receiver does not end it.
#[derive(Debug)]
pub(super) struct IdleTimer {
    activity: Arc<Activity>,
    idle: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    armed: bool,
}

impl IdleTimer {
    pub(super) const fn new(activity: Arc<Activity>, idle: Duration) -> Self {
        Self { activity, idle, sleep: None, armed: false }
    }

    /// Books a frame and stops the timer.
    pub(super) fn progress(&mut self) {
        self.activity.touch();
        self.armed = false;
    }

    /// Polls the timer of a pending body. It is ready after a silence of both directions.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.armed {
            self.arm(Instant::now() + self.idle);
        }
        loop {
            let Some(sleep) = self.sleep.as_mut() else { return Poll::Ready(()) };
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // The other direction may have moved bytes meanwhile.
            let end = self.activity.last() + self.idle;
            if end <= Instant::now() {
                return Poll::Ready(());
            }
            self.arm(end);
        }
    }

    fn arm(&mut self, end: Instant) {
        self.armed = true;
        match self.sleep.as_mut() {
            Some(sleep) => sleep.as_mut().reset(end),
            None => self.sleep = Some(Box::pin(sleep_until(end))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::advance;

    const IDLE: Duration = Duration::from_secs(10);

    fn timer() -> (Arc<Activity>, IdleTimer) {
        let activity = Arc::new(Activity::new());
        (Arc::clone(&activity), IdleTimer::new(activity, IDLE))
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_body_ends_after_the_idle_time() {
        let (_, mut timer) = timer();
        let start = Instant::now();
        poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(start.elapsed(), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_polls_does_not_count() {
        let (_, mut timer) = timer();
        timer.progress();
        advance(IDLE * 3).await;
        let start = Instant::now();
        poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(start.elapsed(), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_other_direction_extends_the_time() {
        let (activity, mut timer) = timer();
        let start = Instant::now();
        let other = async {
            advance(IDLE / 2).await;
            activity.touch();
        };
        tokio::join!(poll_fn(|cx| timer.poll(cx)), other);
        assert_eq!(start.elapsed(), IDLE + IDLE / 2);
    }
}
