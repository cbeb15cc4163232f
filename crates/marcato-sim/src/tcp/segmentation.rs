//! Division of the stream into segments.

use super::{Nagle, Tcp};

/// Lengths of new segments, and the rule by which short ones wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segmentation {
    pub(crate) mss: u64,
    /// Bound on the payload of the next new segment, under PLT.
    pub(crate) chunk: Option<u64>,
    nagle: Nagle,
    /// End of the last small segment sent (`snd_sml` of Linux).
    small_end: u64,
}

impl Segmentation {
    pub(crate) fn new(config: &Tcp) -> Self {
        Self { mss: u64::from(config.mss), chunk: None, nagle: config.nagle, small_end: 0 }
    }

    /// Returns the greatest payload of a new segment.
    pub(crate) fn most(&self) -> u64 {
        self.chunk.map_or(self.mss, |chunk| chunk.min(self.mss))
    }

    /// Returns true if a new segment of this length waits for acknowledgements while the bytes from
    /// `una` to `nxt` are in flight.
    pub(crate) fn is_held_by_nagle(&self, len: u64, una: u64, nxt: u64) -> bool {
        len < self.most()
            && match self.nagle {
                Nagle::Off => false,
                // RFC 9293 §3.7.4.
                Nagle::Standard => nxt > una,
                Nagle::Minshall => self.small_end > una,
            }
    }

    /// Records a new segment of `len` bytes that ends at `end`.
    pub(crate) fn on_sent(&mut self, len: u64, end: u64) {
        if len < self.most() {
            self.small_end = end;
        }
    }
}
