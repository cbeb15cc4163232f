//! Work distributed over all cores.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Number of cores; 1 if the operating system does not say.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Runs every job on up to `cores` threads, starting them in order, and passes each outcome to
/// `done` in the order of completion.
///
/// # Errors
///
/// Returns the first failure, after which no further job begins.
pub(crate) fn spread<J: Sync, O: Send, E: Send>(
    cores: usize,
    jobs: &[J],
    work: impl Fn(&J) -> Result<O, E> + Sync,
    mut done: impl FnMut(&J, O),
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..cores.min(jobs.len()) {
            let (send, next, work) = (send.clone(), &next, &work);
            scope.spawn(move || {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver is gone after a failure: no further job is needed.
                    if send.send((job, work(job))).is_err() {
                        break;
                    }
                }
            });
        }
        // The receiver ends when the last thread has dropped its sender.
        drop(send);
        for (job, outcome) in receive {
            // A failure moves the counter past the last job, so that no thread begins another.
            done(job, outcome.inspect_err(|_| next.store(jobs.len(), Ordering::Relaxed))?);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_done_once_on_any_number_of_cores() {
        let jobs: Vec<u32> = (0..100).collect();
        for cores in [1, 3, 200] {
            let mut squares = vec![None; jobs.len()];
            spread(
                cores,
                &jobs,
                |&job| Ok::<_, ()>(job * job),
                |&job, square| {
                    assert_eq!(squares[job as usize].replace(square), None);
                },
            )
            .unwrap();
            assert!(squares.into_iter().zip(&jobs).all(|(square, job)| square == Some(job * job)));
        }
    }

    #[test]
    fn the_first_failure_ends_it_all() {
        let jobs: Vec<u32> = (0..1000).collect();
        for cores in [1, 3] {
            let fail = |&job: &u32| if job % 10 == 7 { Err(job % 10) } else { Ok(job) };
            assert_eq!(spread(cores, &jobs, fail, |_, _| {}), Err(7));
        }
    }
}
