//! What is in flight, and what is known of it. RFC 6675.
//!
//! No acknowledgement makes the scoreboard walk what is in flight. Segments are found by binary search; each is
//! marked delivered once and lost once; a pointer, the *edge*, remembers below which everything has been judged.

use std::collections::VecDeque;

use marcato_units::{Priority, Time};

use super::rate::DeliveryStamp;
use crate::ranges::Ranges;

/// A segment that was sent and is not yet cumulatively acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) seq: u64,
    /// One beyond its last byte; a FIN counts one.
    pub(crate) end: u64,
    pub(crate) priority: Option<Priority>,
    pub(crate) fin: bool,
    pub(crate) sent_at: Time,
    pub(crate) stamp: DeliveryStamp,
    pub(crate) sacked: bool,
    pub(crate) lost: bool,
    /// Sent again since it was last marked lost: it counts in the pipe again.
    pub(crate) resent: bool,
    /// Sent more than once, ever: its round trip is ambiguous (Karn).
    pub(crate) ambiguous: bool,
}

impl Sent {
    fn bytes(&self) -> u64 {
        self.end - self.seq
    }

    /// Bytes that this segment has in the network, by RFC 6675's estimate.
    fn in_pipe(&self) -> u64 {
        if self.sacked || (self.lost && !self.resent) { 0 } else { self.bytes() }
    }
}

/// RFC 6675 §2: DupThresh.
const DUP_THRESH: u64 = 3;

#[derive(Clone, Debug, Default)]
pub(crate) struct Scoreboard {
    /// In sequence order, without gaps.
    segments: VecDeque<Sent>,
    /// What was SACKed, as ranges, so that repeated blocks cost nothing.
    sacked: Ranges,
    /// RFC 6675 §4: the estimate of what is in the network, kept up to date.
    pipe: u64,
    /// Every segment below is SACKed or has been marked lost.
    edge: u64,
    /// SACKed segments and bytes at or above the edge.
    sacked_above: (u64, u64),
    /// Segments marked lost and, as far as known, not sent again; ascending; stale entries are skipped.
    lost: VecDeque<u64>,
    /// Segments marked lost and neither acknowledged nor SACKed since.
    losses: u64,
    /// Bytes marked lost in total.
    pub(crate) lost_bytes: u64,
}

impl Scoreboard {
    pub(crate) fn pipe(&self) -> u64 {
        self.pipe
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(crate) fn push(&mut self, sent: Sent) {
        self.pipe += sent.bytes();
        self.segments.push_back(sent);
    }

    /// Takes everything below `ack` out; `delivered` sees each segment that was not SACKed before.
    pub(crate) fn ack(&mut self, ack: u64, mut delivered: impl FnMut(&Sent)) {
        while let Some(front) = self.segments.front_mut() {
            if front.end <= ack {
                self.pipe -= front.in_pipe();
                self.losses -= u64::from(front.lost && !front.sacked);
                if front.sacked {
                    if front.seq >= self.edge {
                        self.sacked_above.0 -= 1;
                        self.sacked_above.1 -= front.bytes();
                    }
                } else {
                    delivered(front);
                }
                self.segments.pop_front();
            } else {
                if front.seq < ack {
                    // The middle of a segment: a receiver whose window cut it. The rest keeps its state.
                    let part = Sent { end: ack, ..front.clone() };
                    if front.in_pipe() > 0 {
                        self.pipe -= part.bytes();
                    }
                    if !front.sacked {
                        delivered(&part);
                    }
                    front.seq = ack;
                }
                break;
            }
        }
        self.sacked.remove_below(ack);
        self.edge = self.edge.max(ack);
    }

    /// Marks what lies within `start..end` as SACKed; `delivered` sees each segment for which that is news.
    pub(crate) fn sack(&mut self, start: u64, end: u64, mut delivered: impl FnMut(&Sent)) {
        // Whole segments only: a block that ends within one says nothing about it yet.
        let first = self.segments.partition_point(|s| s.seq < start);
        let beyond = self.segments.partition_point(|s| s.end <= end);
        if first >= beyond {
            return;
        }
        let (start, end) = (self.segments[first].seq, self.segments[beyond - 1].end);
        let mut from = start;
        while let Some((gap, gap_end)) = self.sacked.first_gap(from, end) {
            let first = self.segments.partition_point(|s| s.seq < gap);
            for segment in self.segments.range_mut(first..) {
                if segment.end > gap_end {
                    break;
                }
                if segment.sacked {
                    continue;
                }
                self.pipe -= segment.in_pipe();
                self.losses -= u64::from(segment.lost);
                segment.sacked = true;
                if segment.seq >= self.edge {
                    self.sacked_above.0 += 1;
                    self.sacked_above.1 += segment.bytes();
                }
                delivered(segment);
            }
            from = gap_end;
        }
        self.sacked.insert(start, end);
    }

    /// RFC 6675 §4, IsLost: a segment is lost once three segments, or more than (DupThresh - 1)·SMSS bytes, above
    /// it have been SACKed. (The RFC asks for three *discontiguous* sequences or the bytes; counting segments, as
    /// Linux does, also covers short ones.) Returns the bytes newly marked.
    pub(crate) fn detect_losses(&mut self, smss: u64) -> u64 {
        let before = self.lost_bytes;
        if self.sacked_above.0 == 0 {
            return 0;
        }
        let mut at = self.segments.partition_point(|s| s.seq < self.edge);
        while let Some(segment) = self.segments.get_mut(at) {
            let own = if segment.sacked { (1, segment.bytes()) } else { (0, 0) };
            let above = (self.sacked_above.0 - own.0, self.sacked_above.1 - own.1);
            if above.0 < DUP_THRESH && above.1 <= (DUP_THRESH - 1) * smss {
                break;
            }
            if !segment.sacked && !segment.lost {
                self.pipe -= segment.in_pipe();
                self.losses += 1;
                segment.lost = true;
                segment.resent = false;
                self.lost_bytes += segment.bytes();
                self.lost.push_back(segment.seq);
            }
            self.edge = segment.end;
            self.sacked_above = above;
            at += 1;
        }
        self.lost_bytes - before
    }

    /// The timer expired: everything that was not SACKed is taken for lost. Walks what is in flight, once per
    /// expiry. Returns the bytes newly marked.
    pub(crate) fn mark_all_lost(&mut self) -> u64 {
        let before = self.lost_bytes;
        self.lost.clear();
        for segment in &mut self.segments {
            if segment.sacked {
                continue;
            }
            if !segment.lost || segment.resent {
                self.lost_bytes += segment.bytes();
            }
            self.losses += u64::from(!segment.lost);
            segment.lost = true;
            segment.resent = false;
            self.lost.push_back(segment.seq);
        }
        self.pipe = 0;
        // Everything has been judged; what is SACKed from now on lies above the edge or is a retransmission.
        self.edge = self.segments.back().map_or(self.edge, |s| s.end);
        self.sacked_above = (0, 0);
        self.lost_bytes - before
    }

    /// The first segment that is lost and not sent again.
    pub(crate) fn next_lost(&mut self) -> Option<&mut Sent> {
        while let Some(&seq) = self.lost.front() {
            let at = self.segments.partition_point(|s| s.end <= seq);
            match self.segments.get(at) {
                Some(s) if s.lost && !s.sacked && !s.resent => return self.segments.get_mut(at),
                _ => {
                    self.lost.pop_front();
                }
            }
        }
        None
    }

    /// The segment that [`next_lost`](Self::next_lost) gave goes out again.
    pub(crate) fn resend(&mut self, now: Time, stamp: DeliveryStamp) -> Option<Sent> {
        let segment = self.next_lost()?;
        segment.resent = true;
        segment.ambiguous = true;
        segment.sent_at = now;
        segment.stamp = stamp;
        let copy = segment.clone();
        self.pipe += copy.bytes();
        self.lost.pop_front();
        Some(copy)
    }

    /// Whether anything is known to have been lost and has not arrived since, sent again or not.
    pub(crate) fn has_losses(&self) -> bool {
        self.losses > 0
    }

    /// Whether anything is lost and not sent again.
    pub(crate) fn has_lost(&mut self) -> bool {
        self.next_lost().is_some()
    }

    /// The pipe counted from scratch: what the running count must equal.
    #[cfg(test)]
    fn pipe_by_walking(&self) -> u64 {
        self.segments.iter().map(Sent::in_pipe).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::rate::RateEstimator;
    use proptest::prelude::*;

    fn board(segments: u64, len: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        let mut rate = RateEstimator::default();
        for i in 0..segments {
            board.push(Sent {
                seq: i * len,
                end: (i + 1) * len,
                priority: None,
                fin: false,
                sent_at: Time::ZERO,
                stamp: rate.on_sent(Time::ZERO, i == 0),
                sacked: false,
                lost: false,
                resent: false,
                ambiguous: false,
            });
        }
        board
    }

    fn resend(board: &mut Scoreboard) -> Option<u64> {
        let stamp = RateEstimator::default().on_sent(Time::ZERO, false);
        board.resend(Time::ZERO, stamp).map(|s| s.seq)
    }

    #[test]
    fn the_third_segment_sacked_above_a_hole_makes_it_lost() {
        let mut board = board(10, 1000);
        board.sack(1000, 2000, |_| ());
        assert_eq!(board.detect_losses(1000), 0);
        board.sack(2000, 3000, |_| ());
        assert_eq!(board.detect_losses(1000), 0);
        board.sack(3000, 4000, |_| ());
        assert_eq!(board.detect_losses(1000), 1000);
        // Ten sent, three SACKed, one lost.
        assert_eq!(board.pipe(), 6000);
        assert_eq!(resend(&mut board), Some(0));
        assert_eq!(resend(&mut board), None);
        assert_eq!(board.pipe(), 7000);
    }

    #[test]
    fn a_repeated_block_is_no_news() {
        let mut board = board(10, 1000);
        let mut news = 0;
        for _ in 0..3 {
            board.sack(4000, 6000, |_| news += 1);
        }
        assert_eq!(news, 2);
    }

    #[test]
    fn a_segment_is_sacked_when_all_of_it_is() {
        let mut board = board(3, 1000);
        let mut news = Vec::new();
        for (start, end) in [(1000, 1500), (1200, 2000), (1000, 2000)] {
            board.sack(start, end, |s| news.push(s.seq));
            news.push(u64::MAX);
        }
        assert_eq!(news, [u64::MAX, u64::MAX, 1000, u64::MAX]);
    }

    #[test]
    fn what_was_sacked_is_not_sent_again_after_a_timeout() {
        let mut board = board(5, 1000);
        board.sack(1000, 2000, |_| ());
        board.mark_all_lost();
        assert_eq!(board.pipe(), 0);
        let order: Vec<_> = std::iter::from_fn(|| resend(&mut board)).collect();
        assert_eq!(order, [0, 2000, 3000, 4000]);
    }

    proptest! {
        /// Whatever is acknowledged, SACKed, lost and resent in whatever order, the running pipe is the true one,
        /// each byte is reported delivered once, and what is judged lost is what RFC 6675 says.
        #[test]
        fn the_running_counts_are_the_true_ones(ops in prop::collection::vec((0u8..5, 0u64..40, 1u64..6), 1..80)) {
            let mut board = board(40, 10);
            let (mut delivered, mut una) = (0u64, 0u64);
            for (op, at, len) in ops {
                match op {
                    0 => {
                        una = una.max((at * 10 / 4).min(400));
                        board.ack(una, |s| delivered += s.bytes());
                    }
                    1 | 2 => {
                        let (start, end) = ((at * 10).max(una), ((at + len) * 10).min(400));
                        // A receiver that holds the byte at `una` would have acknowledged it.
                        if start > una && start < end {
                            board.sack(start, end, |s| delivered += s.bytes());
                        }
                        board.detect_losses(10);
                    }
                    3 => {
                        resend(&mut board);
                    }
                    _ if at == 0 => {
                        board.mark_all_lost();
                    }
                    _ => {}
                }
                prop_assert_eq!(board.pipe(), board.pipe_by_walking());
                let losses = board.segments.iter().filter(|s| s.lost && !s.sacked).count();
                prop_assert_eq!(board.losses, losses as u64);
                let sacked: u64 = board.segments.iter().filter(|s| s.sacked).map(Sent::bytes).sum();
                prop_assert_eq!(delivered, una + sacked);
                for (i, segment) in board.segments.iter().enumerate() {
                    let above = board.segments.iter().skip(i + 1).filter(|s| s.sacked).count();
                    if above >= 3 {
                        prop_assert!(segment.sacked || segment.lost, "{:?}", segment);
                    }
                }
            }
        }
    }
}
