//! The clocks that all processes of one machine share, and the one that each has for itself.

use rustix::time::{ClockId, clock_gettime};

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0))
}

/// Nanoseconds of CLOCK_MONOTONIC: the same in each process and each network namespace of a machine.
pub(crate) fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

/// What this process has used of processors, in user mode and in the kernel, all threads together. What the kernel does
/// for it in softirqs counts for whoever is interrupted.
pub(crate) fn cpu() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}
