//! Packet manager: chooses the next piece of the stream for each module (PLT §3.2).

use std::collections::VecDeque;

use marcato_units::{Bytes, Priority};

use crate::ranges::Ranges;

/// Piece of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Mapping from the HCM's sequence to the stream: `seq` corresponds to `offset`, and so on from
/// there.
#[derive(Clone, Copy, Debug)]
struct Binding {
    seq: u64,
    offset: u64,
}

/// Packet manager: assigns pieces of the stream to the modules.
#[derive(Debug)]
pub(crate) struct Manager {
    mss: u64,
    /// Bytes written by the application.
    pub(crate) written: u64,
    /// Priority of the latest bytes written.
    pub(crate) priority: Priority,
    /// Least urgent priority of new data for the HCM. `runs` has the priorities of written data:
    /// each run ends before its offset.
    high_for: Option<Priority>,
    runs: VecDeque<(u64, Priority)>,
    /// First byte that neither module has sent.
    next: u64,
    /// Pieces that the LCM has lost and the HCM has not sent yet, in the order of the losses.
    lost: VecDeque<Piece>,
    lost_bytes: u64,
    /// Mappings of what the HCM has sent and not been acknowledged. Pieces adjacent in both spaces
    /// are merged.
    bindings: VecDeque<Binding>,
    /// Literal reading of the receiver window: size of the buffer, and acknowledged ranges of the
    /// stream.
    buffer: Option<(u64, Ranges)>,
    pub(crate) repairs: u64,
    pub(crate) repaired: u64,
}

impl Manager {
    pub(crate) fn new(mss: u64, buffer: Option<Bytes>, high_for: Option<Priority>) -> Self {
        Self {
            mss,
            written: 0,
            priority: Priority::default(),
            high_for,
            runs: VecDeque::new(),
            next: 0,
            lost: VecDeque::new(),
            lost_bytes: 0,
            bindings: VecDeque::new(),
            buffer: buffer.map(|buffer| (buffer.get(), Ranges::default())),
            repairs: 0,
            repaired: 0,
        }
    }

    /// Records bytes written by the application.
    pub(crate) fn write(&mut self, len: u64, priority: Priority) {
        self.written += len;
        self.priority = priority;
        if self.high_for.is_some() && len > 0 {
            match self.runs.back_mut() {
                Some((end, last)) if *last == priority => *end = self.written,
                _ => self.runs.push_back((self.written, priority)),
            }
        }
    }

    /// Returns true if the next new data is not urgent enough for the HCM.
    fn is_low_only(&self) -> bool {
        self.high_for.is_some_and(|most| {
            let after = self.runs.partition_point(|&(end, _)| end <= self.next);
            self.runs.get(after).is_some_and(|&(_, priority)| priority > most)
        })
    }

    /// Returns the bytes that wait for repair by the HCM.
    pub(crate) fn waiting(&self) -> u64 {
        self.lost_bytes
    }

    /// Returns the length of the next piece of new data; 0 if there is none, or none that may be
    /// sent.
    pub(crate) fn new_len(&self) -> u64 {
        let len = self.mss.min(self.written - self.next);
        match &self.buffer {
            Some((buffer, acked))
                if self.next + len > acked.covering(0).map_or(0, |(_, end)| end) + buffer =>
            {
                0
            }
            _ => len,
        }
    }

    /// Returns the greatest payload of the HCM's next new segment.
    pub(crate) fn next_len(&self) -> u64 {
        self.lost.front().map_or_else(|| self.new_len(), |piece| piece.len)
    }

    /// Returns the same, or 0 if new data is left to the LCM. If the LCM cannot move, the HCM takes
    /// everything.
    pub(crate) fn high_len(&self, low_moves: bool) -> u64 {
        if low_moves && self.lost.is_empty() && self.is_low_only() { 0 } else { self.next_len() }
    }

    /// Binds `len` bytes that the HCM sends as `seq`: losses first, then new data.
    pub(crate) fn bind(&mut self, seq: u64, len: u64) {
        let offset = match self.lost.front_mut() {
            Some(piece) => {
                let offset = piece.offset;
                piece.offset += len;
                piece.len -= len;
                if piece.len == 0 {
                    self.lost.pop_front();
                }
                self.lost_bytes -= len;
                self.repairs += 1;
                self.repaired += len;
                offset
            }
            None => {
                let offset = self.next;
                self.next += len;
                offset
            }
        };
        let follows =
            self.bindings.back().is_some_and(|last| offset == last.offset.wrapping_add(seq - last.seq));
        if !follows {
            self.bindings.push_back(Binding { seq, offset });
        }
    }

    /// Returns the stream offset of this number of the HCM's sequence, unless already acknowledged.
    pub(crate) fn offset_of(&self, seq: u64) -> Option<u64> {
        let after = self.bindings.partition_point(|binding| binding.seq <= seq);
        let binding = self.bindings.get(after.checked_sub(1)?)?;
        Some(binding.offset + (seq - binding.seq))
    }

    /// Records that the HCM's sequence is acknowledged from `from` up to `una`; later mappings stay
    /// valid.
    pub(crate) fn on_high_acked(&mut self, from: u64, una: u64) {
        if let Some((_, acked)) = &mut self.buffer {
            let mut at = from;
            let after = self.bindings.partition_point(|binding| binding.seq <= from);
            for index in after.saturating_sub(1)..self.bindings.len() {
                let Binding { seq, offset } = self.bindings[index];
                let end = self.bindings.get(index + 1).map_or(una, |next| next.seq.min(una));
                if seq <= at && at < end {
                    acked.insert(offset + (at - seq), offset + (end - seq));
                    at = end;
                }
                if end >= una {
                    break;
                }
            }
        }
        while self.runs.front().is_some_and(|&(end, _)| end <= self.next) {
            self.runs.pop_front();
        }
        while self.bindings.get(1).is_some_and(|second| second.seq <= una) {
            self.bindings.pop_front();
        }
    }

    /// Records that a piece of the LCM has been acknowledged.
    pub(crate) fn on_low_acked(&mut self, piece: Piece) {
        if let Some((_, acked)) = &mut self.buffer {
            acked.insert(piece.offset, piece.offset + piece.len);
        }
    }

    /// Takes a piece of new data for the LCM.
    pub(crate) fn take_new(&mut self) -> Piece {
        let piece = Piece { offset: self.next, len: self.new_len() };
        self.next += piece.len;
        piece
    }

    /// Takes a lost piece back for the LCM.
    pub(crate) fn take_lost(&mut self) -> Option<Piece> {
        let piece = self.lost.pop_front()?;
        self.lost_bytes -= piece.len;
        Some(piece)
    }

    /// Leaves a lost piece of the LCM to the HCM.
    pub(crate) fn on_lost(&mut self, piece: Piece) {
        self.lost.push_back(piece);
        self.lost_bytes += piece.len;
    }

    /// Returns the bytes that the HCM could send: new data and losses.
    pub(crate) fn available(&self) -> u64 {
        self.written - self.next + self.lost_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(buffer: Option<Bytes>) -> Manager {
        Manager { written: 10_000, ..Manager::new(1000, buffer, None) }
    }

    #[test]
    fn non_urgent_data_goes_high_only_if_lost_or_if_low_stalls() {
        let mut manager = Manager::new(1000, None, Some(Priority::P1));
        manager.write(1000, Priority::P1);
        manager.write(1500, Priority::P2);
        assert_eq!(manager.high_len(true), 1000);
        manager.bind(1, 1000);
        assert_eq!((manager.high_len(true), manager.high_len(false), manager.new_len()), (0, 1000, 1000));
        let low = manager.take_new();
        manager.on_lost(low);
        assert_eq!(manager.high_len(true), 1000);
        manager.bind(1001, 1000);
        assert_eq!((manager.high_len(true), manager.high_len(false)), (0, 500));
        manager.write(1000, Priority::P0);
        manager.take_new();
        assert_eq!(manager.high_len(true), 500, "what is left is urgent");
    }

    #[test]
    fn the_high_module_takes_what_was_lost_before_what_is_new() {
        let mut manager = manager(None);
        manager.bind(1, 1000);
        let low = manager.take_new();
        assert_eq!(low, Piece { offset: 1000, len: 1000 });
        manager.bind(1001, 1000);
        manager.on_lost(low);
        manager.bind(2001, 1000);
        manager.bind(3001, 1000);
        let found: Vec<_> = [1, 1000, 1001, 2001, 2500, 3001].map(|seq| manager.offset_of(seq)).to_vec();
        assert_eq!(found, [0, 999, 2000, 1000, 1499, 3000].map(Some));
        assert_eq!((manager.repairs, manager.waiting()), (1, 0));
        manager.on_high_acked(1, 2001);
        assert_eq!(manager.offset_of(1000), None);
        assert_eq!(manager.offset_of(2001), Some(1000));
    }

    #[test]
    fn a_reassembly_buffer_bounds_how_far_either_goes_ahead() {
        let mut manager = manager(Some(Bytes::kb(3)));
        let low = [manager.take_new(), manager.take_new()];
        manager.bind(1, 1000);
        assert_eq!(manager.new_len(), 0);
        manager.on_low_acked(low[1]);
        assert_eq!(manager.new_len(), 0, "the first is missing");
        manager.on_lost(low[0]);
        assert_eq!(manager.next_len(), 1000, "repairs are always allowed");
        manager.bind(1001, 1000);
        manager.on_high_acked(1, 1001);
        assert_eq!(manager.new_len(), 0);
        manager.on_high_acked(1001, 2001);
        assert_eq!(manager.take_new(), Piece { offset: 3000, len: 1000 });
    }
}
