//! Clocks: the one that all processes of a machine share, and each process's own.

use rustix::time::{ClockId, clock_gettime};

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0))
}

/// Returns nanoseconds of CLOCK_MONOTONIC: the same in each process and each network namespace of a
/// machine.
pub(crate) fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Returns the processor time of this process in nanoseconds, in user mode and in the kernel, over
/// all threads. The kernel's work in softirqs counts for the interrupted process.
pub(crate) fn cpu() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}
