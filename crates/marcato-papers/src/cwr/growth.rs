//! Growth of a congestion window.

use marcato_quic::WindowChange;
use marcato_units::{Bytes, Duration, Time};

/// Record of a window in congestion avoidance.
///
/// A span lies between two reductions. Table I's growth is taken from the first to the last step up
/// of each span. It excludes the recovery after the reduction, in which a window stands still, and
/// the step that the next reduction cut off. [`per_rtt`](Self::per_rtt) is the sum of those changes
/// over the sum of those times, per nominal round-trip time.
///
/// [`whole_per_rtt`](Self::whole_per_rtt) is another reading of "the growth in congestion
/// avoidance": from the end of recovery, a round-trip time after the reduction, to the next
/// reduction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Windows {
    rtt: Duration,
    /// First and latest step up of the current span.
    steps: Option<(Step, Step)>,
    /// End of the current span's recovery, with the window at that time.
    recovered: Option<Step>,
    /// Change over all spans between their first and last steps up.
    stepwise: Change,
    /// Change over all spans from the end of recovery on.
    whole: Change,
    /// Present window, with the time of its last change.
    present: Option<Step>,
    /// Integral of the window in byte seconds, and its time in seconds.
    area: f64,
    seconds: f64,
}

/// Window at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    at: Time,
    window: Bytes,
}

/// Change of the window, with its duration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Change {
    bytes: f64,
    time: Duration,
}

impl Change {
    fn add(&mut self, from: Step, to: Step) {
        self.bytes += to.window.get() as f64 - from.window.get() as f64;
        self.time += to.at.since(from.at);
    }

    fn per(self, rtt: Duration) -> f64 {
        self.bytes * rtt.as_secs_f64() / self.time.as_secs_f64()
    }
}

impl Windows {
    /// Creates the record of a window on a path of this round-trip time.
    pub(super) fn new(rtt: Duration) -> Self {
        Self { rtt, ..Self::default() }
    }

    /// Records a change of the window. Before the measurement `counts` is false, and only the
    /// window itself is kept.
    pub(super) fn changed(&mut self, at: Time, change: WindowChange, window: Bytes, counts: bool) {
        let step = Step { at, window };
        self.pass(at, counts);
        self.present = Some(step);
        if !counts {
            return;
        }
        match change {
            WindowChange::Grew => {
                let first = self.steps.map_or(step, |(first, _)| first);
                self.steps = Some((first, step));
            }
            WindowChange::Reduced => {
                self.close(at);
                self.recovered = Some(Step { at: at + self.rtt, window });
            }
            // The window grew in slow start after persistent congestion, or a reduction was undone
            // (NewReno undoes none). No span starts or ends here.
            WindowChange::Opened | WindowChange::Restored => (self.steps, self.recovered) = (None, None),
        }
    }

    /// Closes the record at the end of the measurement.
    pub(super) fn until(mut self, end: Time) -> Self {
        self.pass(end, true);
        self.close(end);
        self
    }

    fn pass(&mut self, until: Time, counts: bool) {
        if let Some(Step { at, window }) = self.present.filter(|_| counts) {
            let seconds = until.since(at).as_secs_f64();
            self.area += window.get() as f64 * seconds;
            self.seconds += seconds;
        }
    }

    /// Ends the span at a reduction, or at the end of the measurement.
    fn close(&mut self, at: Time) {
        let steps = self.steps.take();
        if let Some((first, last)) = steps {
            self.stepwise.add(first, last);
        }
        if let Some(from) = self.recovered.take().filter(|from| from.at < at) {
            let window = steps.map_or(from.window, |(_, last)| last.window);
            self.whole.add(from, Step { at, window });
        }
    }

    /// Bytes per nominal round-trip time, from the first to the last step of each span; not a
    /// number if no span has two steps.
    pub(super) fn per_rtt(&self) -> f64 {
        self.stepwise.per(self.rtt)
    }

    /// Bytes per nominal round-trip time from the end of recovery to the next reduction.
    pub(super) fn whole_per_rtt(&self) -> f64 {
        self.whole.per(self.rtt)
    }

    /// Mean window over time, in bytes.
    pub(super) fn mean(&self) -> f64 {
        self.area / self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);

    #[test]
    fn growth_is_taken_from_first_to_last_step_between_reductions() {
        let mut windows = Windows::new(RTT);
        let mut at = |millis, change, window, counts| {
            windows.changed(Time::from_millis(millis), change, Bytes::new(window), counts);
        };
        use WindowChange::{Grew, Reduced};
        at(0, Grew, 50_000, false);
        at(100, Reduced, 10_000, true);
        // Recovery lasts until 150 ms. The first step does not count, and two more follow in 120
        // ms. The last 30 ms are cut off.
        at(200, Grew, 11_350, true);
        at(260, Grew, 12_700, true);
        at(320, Grew, 14_050, true);
        at(350, Reduced, 9_835, true);
        // A single step gives no growth between steps.
        at(450, Grew, 11_185, true);
        at(470, Reduced, 7_829, true);
        let windows = windows.until(Time::from_millis(470));
        assert!((windows.per_rtt() - 2.0 * 1350.0 * 50.0 / 120.0).abs() < 1e-9);
        assert!((windows.whole_per_rtt() - 4.0 * 1350.0 * 50.0 / (200.0 + 70.0)).abs() < 1e-9);
        // The area starts at 100 ms, with the window set before.
        let area = 100.0 * 50_000.0
            + 100.0 * 10_000.0
            + 60.0 * 11_350.0
            + 60.0 * 12_700.0
            + 30.0 * 14_050.0
            + 100.0 * 9_835.0
            + 20.0 * 11_185.0;
        assert!((windows.mean() - area / 470.0).abs() < 1e-9);
    }

    #[test]
    fn a_window_that_never_grew_has_no_growth() {
        assert!(Windows::new(RTT).until(Time::from_secs(1)).per_rtt().is_nan());
    }
}
