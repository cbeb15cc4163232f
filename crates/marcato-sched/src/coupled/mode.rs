//! Modes of the governor, and counts of what it did.

use marcato_units::{Duration, Time};

/// Mode of the governor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The rate of the path is not known yet: the cap follows trains of packets.
    Startup,
    /// The queue is our own: the cap keeps it at a few packets.
    Steady,
    /// Others keep the queue full: there is no cap.
    Compete,
    /// Our part of the queue is taken away, to see whether any is left.
    Test,
    /// The window is a quarter smaller, to see whether our rate falls with it.
    Squeeze,
    /// The cap is a quarter larger, to see whether our rate grows with it.
    Lift,
}

impl Mode {
    /// Number of modes.
    pub const COUNT: usize = 6;
    /// All modes, in the order of [`Counters::time`].
    pub const ALL: [Self; Self::COUNT] =
        [Self::Startup, Self::Steady, Self::Compete, Self::Test, Self::Squeeze, Self::Lift];

    /// Name of the mode, as in series and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Steady => "steady",
            Self::Compete => "compete",
            Self::Test => "test",
            Self::Squeeze => "squeeze",
            Self::Lift => "lift",
        }
    }
}

/// Change of the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Time of the change.
    pub at: Time,
    /// Mode before.
    pub from: Mode,
    /// Mode from now on.
    pub to: Mode,
}

/// Counts of a governor since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Round trips that were judged.
    pub rounds: u64,
    /// Times that the cap was cut.
    pub cuts: u64,
    /// Changes of the mode.
    pub transitions: u64,
    /// Time in each mode, by its place in [`Mode`].
    pub time: [Duration; Mode::COUNT],
}

impl core::ops::AddAssign for Counters {
    /// Adds the counts of another governor, such as that of another lane.
    fn add_assign(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.cuts += other.cuts;
        self.transitions += other.transitions;
        for (time, more) in self.time.iter_mut().zip(other.time) {
            *time = time.saturating_add(more);
        }
    }
}

impl Counters {
    /// Share of the time that was spent in a mode; `None` before any.
    #[must_use]
    pub fn share(&self, mode: Mode) -> Option<f64> {
        let all: Duration = self.time.iter().sum();
        (!all.is_zero()).then(|| self.time[mode as usize].as_secs_f64() / all.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_two_governors_add_up() {
        let mut time = [Duration::ZERO; Mode::COUNT];
        time[Mode::Steady as usize] = Duration::from_secs(3);
        let mut sum = Counters { rounds: 5, cuts: 2, transitions: 1, time };
        time[Mode::Compete as usize] = Duration::from_secs(4);
        sum += Counters { rounds: 1, cuts: 1, transitions: 2, time };
        assert_eq!((sum.rounds, sum.cuts, sum.transitions), (6, 3, 3));
        assert_eq!((sum.share(Mode::Steady), sum.share(Mode::Compete)), (Some(0.6), Some(0.4)));
    }
}
