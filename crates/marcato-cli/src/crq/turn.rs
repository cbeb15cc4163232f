//! Turn to change what is attached: commands that run at one time would read what another is about to change.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Lock of the directory that holds a directory of pins, until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Turn(#[expect(dead_code, reason = "the lock goes with the file")] Option<File>);

impl Turn {
    /// Waits until no other command changes anything below these pins. A dry run changes nothing and needs no turn.
    ///
    /// Without a directory that it may lock, the command goes on: it is about to fail by itself, with a remedy.
    pub(super) fn take(pins: &Path, dry: bool) -> Self {
        if dry {
            return Self(None);
        }
        // The pins themselves are made by the first `attach`, which needs its turn too.
        let place = pins.ancestors().skip(1).find(|place| place.is_dir());
        let Some(place) = place.and_then(|place| File::open(place).ok()) else { return Self(None) };
        if flock(&place, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            eprintln!("note: waiting for another `marcato crq` to finish");
            if flock(&place, FlockOperation::LockExclusive).is_err() {
                return Self(None);
            }
        }
        Self(Some(place))
    }
}
