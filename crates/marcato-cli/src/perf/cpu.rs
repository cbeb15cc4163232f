//! CPU time of this process.

use std::time::Duration;

use serde_json::{Value, json};

/// Ticks per second of `/proc/self/stat`: the kernel's ABI fixes them (`USER_HZ`).
const TICKS: u64 = 100;

/// CPU time of all threads, to 10 ms; zero if the system does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl CpuTime {
    /// Returns the CPU time that this process has used.
    pub(crate) fn now() -> Self {
        std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| Self::of(&stat)).unwrap_or_default()
    }

    /// Reads the content of `/proc/self/stat` (proc_pid_stat(5)).
    fn of(stat: &str) -> Option<Self> {
        // The second field, the program's name in parentheses, may have spaces itself. User and
        // system time are fields 14 and 15.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut next = || Some(Duration::from_millis(fields.next()?.parse::<u64>().ok()? * 1000 / TICKS));
        Some(Self { user: next()?, system: next()? })
    }

    /// Returns the CPU time used since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }

    pub(crate) fn json(self) -> Value {
        json!({"user": self.user.as_secs_f64(), "system": self.system.as_secs_f64()})
    }

    pub(crate) fn words(self) -> String {
        format!("{:.2} user and {:.2} system", self.user.as_secs_f64(), self.system.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_times_follow_a_name_with_spaces() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 2519 0 0 0 150 25 3 4 20 0 3 0 57 1 2";
        let expected = CpuTime { user: Duration::from_millis(1500), system: Duration::from_millis(250) };
        assert_eq!(CpuTime::of(stat), Some(expected));
        assert_eq!(CpuTime::of("7 (a) S 1"), None);
        assert_eq!(expected.since(expected), CpuTime::default());
    }
}
