//! Data that the application has written, until it is acknowledged.

use std::collections::VecDeque;

use marcato_units::Priority;

use super::Tcp;

/// Send buffer: its bounds, the priorities of unsent data, and the end of the stream.
///
/// Arguments `una` and `nxt` are SND.UNA and SND.NXT.
#[derive(Clone, Debug)]
pub(crate) struct SendBuffer {
    capacity: u64,
    notsent_lowat: Option<u64>,
    /// True if segments leave in bursts, for which there must be data.
    feeds_bursts: bool,
    /// True if the last write has filled the buffer.
    is_full: bool,
    /// One beyond the last byte written.
    pub(crate) written: u64,
    /// Priorities of unsent data: each run ends before its sequence number.
    runs: VecDeque<(u64, Priority)>,
    /// True once the application has closed; the FIN has sequence number `written`.
    closed: bool,
    /// Delays the FIN under PLT, as data in flight in the low layer may return to this sender.
    pub(crate) hold_fin: bool,
    pub(crate) fin_sent: bool,
}

impl SendBuffer {
    pub(crate) fn new(config: &Tcp) -> Self {
        Self {
            capacity: config.send_buffer.get(),
            notsent_lowat: config.notsent_lowat.map(|lowat| lowat.get().max(1)),
            feeds_bursts: config.segmentation_offload.is_some(),
            is_full: false,
            written: 1,
            runs: VecDeque::new(),
            closed: false,
            hold_fin: false,
            fin_sent: false,
        }
    }

    /// Returns the free space.
    pub(crate) fn room(&self, una: u64) -> u64 {
        self.capacity.saturating_sub(self.written - una.max(1))
    }

    /// Returns true if the buffer takes data. With bursts, one that was full does so from two thirds down.
    /// Linux, `sk_stream_is_writable`.
    fn has_room(&self, una: u64) -> bool {
        let wakes_late = self.is_full && self.feeds_bursts;
        self.room(una) >= if wakes_late { self.capacity.div_ceil(3) } else { 1 }
    }

    /// Returns the bytes written and never sent.
    pub(crate) fn unsent(&self, nxt: u64) -> u64 {
        self.written - nxt.min(self.written)
    }

    /// Returns true if the application is asked for more data.
    pub(crate) fn is_writable(&self, una: u64, nxt: u64) -> bool {
        !self.closed && self.has_room(una) && self.notsent_lowat.is_none_or(|lowat| self.unsent(nxt) < lowat)
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Buffers `len` bytes, or as many as fit. Returns how many.
    pub(crate) fn write(&mut self, una: u64, len: u64, priority: Priority) -> u64 {
        let taken = len.min(self.room(una));
        self.is_full = self.room(una) == taken;
        if taken > 0 {
            self.written += taken;
            match self.runs.back_mut() {
                Some((end, last)) if *last == priority => *end = self.written,
                _ => self.runs.push_back((self.written, priority)),
            }
        }
        taken
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Removes the last `len` unsent bytes, which the low layer has sent. PLT only.
    pub(crate) fn take_back(&mut self, nxt: u64, len: u64) {
        self.written -= len.min(self.unsent(nxt));
        while let Some(&(_, priority)) = self.runs.back() {
            let before =
                self.runs.len().checked_sub(2).and_then(|at| self.runs.get(at)).map_or(nxt, |run| run.0);
            self.runs.pop_back();
            if before < self.written {
                self.runs.push_back((self.written, priority));
                break;
            }
        }
    }

    /// Adds `len` bytes that the low layer failed to deliver, even after the close. PLT only.
    pub(crate) fn put_back(&mut self, len: u64, priority: Priority) {
        if len == 0 {
            return;
        }
        self.written += len;
        match self.runs.back_mut() {
            Some((end, _)) => *end = self.written,
            None => self.runs.push_back((self.written, priority)),
        }
    }

    /// Returns the most urgent priority of the bytes up to `end`, which are about to leave.
    pub(crate) fn take_priority(&mut self, end: u64) -> Option<Priority> {
        let mut urgent: Option<Priority> = None;
        while let Some(&(run_end, priority)) = self.runs.front() {
            urgent = Some(urgent.map_or(priority, |u| u.min(priority)));
            if run_end > end {
                break;
            }
            self.runs.pop_front();
            if run_end == end {
                break;
            }
        }
        urgent
    }

    /// Returns true if a segment that ends at `end` has the last byte, so that the FIN leaves with it.
    pub(crate) fn ends_at(&self, end: u64) -> bool {
        self.closed && !self.hold_fin && end == self.written
    }

    /// Returns true if everything but the FIN has been sent.
    pub(crate) fn is_fin_due(&self) -> bool {
        self.closed && !self.hold_fin && !self.fin_sent
    }

    /// Returns true if everything, the FIN included, has been acknowledged.
    pub(crate) fn is_finished(&self, una: u64) -> bool {
        self.fin_sent && una > self.written
    }
}
