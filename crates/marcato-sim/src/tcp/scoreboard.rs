//! Scoreboard of segments in flight. RFC 6675.
//!
//! No acknowledgement walks all segments in flight. Segments are found by binary search, and each
//! is marked delivered once, and lost once per transmission. The *edge* separates segments already
//! judged from those above. First transmissions leave in sequence order, so the edge also passes
//! them in order of time, as RACK does. A separate queue holds retransmissions in order of time.

use std::collections::VecDeque;

use marcato_units::{Priority, Time};

use super::rack::Rack;
use super::rate::DeliveryStamp;
use crate::ranges::Ranges;

/// Segment that was sent and is not yet cumulatively acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) seq: u64,
    /// One beyond its last byte; a FIN counts one.
    pub(crate) end: u64,
    /// Bytes that it counts as in the window: its own, or those of a full segment.
    pub(crate) weight: u64,
    pub(crate) priority: Option<Priority>,
    pub(crate) fin: bool,
    pub(crate) sent_at: Time,
    pub(crate) stamp: DeliveryStamp,
    pub(crate) sacked: bool,
    pub(crate) lost: bool,
    /// True if retransmitted since last marked lost, or as a tail loss probe: it counts once in the
    /// pipe.
    pub(crate) resent: bool,
    /// True if ever sent more than once: its round trip is ambiguous (Karn).
    pub(crate) ambiguous: bool,
}

impl Sent {
    fn bytes(&self) -> u64 {
        self.end - self.seq
    }

    /// Returns true if a retransmission of it, marked lost before, is outstanding.
    fn is_resent_out(&self) -> bool {
        self.lost && self.resent && !self.sacked
    }

    fn resend(&mut self, now: Time, stamp: DeliveryStamp) {
        self.resent = true;
        self.ambiguous = true;
        self.sent_at = now;
        self.stamp = stamp;
    }

    /// Returns the bytes that this segment has in the network, by RFC 6675's estimate.
    fn in_pipe(&self) -> u64 {
        if self.sacked || (self.lost && !self.resent) { 0 } else { self.weight }
    }
}

/// DupThresh of RFC 6675 §2.
pub(crate) const DUP_THRESH: u64 = 3;

#[derive(Clone, Debug, Default)]
pub(crate) struct Scoreboard {
    /// Segments in sequence order, without gaps.
    segments: VecDeque<Sent>,
    /// SACKed ranges, so that repeated blocks cost nothing.
    sacked: Ranges,
    /// Running estimate of the bytes in the network. RFC 6675 §4.
    pipe: u64,
    /// Edge: every segment below is SACKed, marked lost or retransmitted.
    edge: u64,
    /// SACKed segments and bytes at or above the edge.
    sacked_above: (u64, u64),
    /// Number of SACKed segments.
    segs_sacked: u64,
    /// Retransmissions in order of time; stale entries are skipped. RACK only.
    resends: VecDeque<(Time, u64)>,
    /// Lost segments to retransmit, ascending; stale entries are skipped.
    lost: VecDeque<u64>,
    /// Number of segments marked lost and neither acknowledged nor SACKed since.
    losses: u64,
    /// Number of retransmissions of lost segments among the outstanding.
    resent_out: u64,
    /// Bytes marked lost in total.
    pub(crate) lost_bytes: u64,
}

impl Scoreboard {
    pub(crate) fn pipe(&self) -> u64 {
        self.pipe
    }

    /// Returns RACK.segs_sacked.
    pub(crate) fn segs_sacked(&self) -> u64 {
        self.segs_sacked
    }

    /// Returns true if exactly one segment is outstanding.
    pub(crate) fn is_single(&self) -> bool {
        self.segments.len() == 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(crate) fn push(&mut self, sent: Sent) {
        self.pipe += sent.weight;
        self.segments.push_back(sent);
    }

    /// Removes everything below `ack`; `delivered` receives each segment that was not SACKed
    /// before.
    pub(crate) fn ack(&mut self, ack: u64, mut delivered: impl FnMut(&Sent)) {
        while let Some(front) = self.segments.front_mut() {
            if front.end <= ack {
                self.pipe -= front.in_pipe();
                self.losses -= u64::from(front.lost && !front.sacked);
                self.resent_out -= u64::from(front.is_resent_out());
                if front.sacked {
                    self.segs_sacked -= 1;
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
                    // The acknowledgement ends within a segment: the receiver's window cut it. The
                    // rest keeps its state.
                    let weight = front.weight.saturating_sub(front.end - ack);
                    let part = Sent { end: ack, weight, ..front.clone() };
                    if front.in_pipe() > 0 {
                        self.pipe -= part.weight;
                    }
                    if !front.sacked {
                        delivered(&part);
                    } else if front.seq >= self.edge {
                        self.sacked_above.1 -= ack - front.seq;
                    }
                    front.seq = ack;
                    front.weight -= weight;
                }
                break;
            }
        }
        self.sacked.remove_below(ack);
        self.edge = self.edge.max(ack);
    }

    /// Marks segments within `start..end` as SACKed; `delivered` receives each newly SACKed
    /// segment.
    pub(crate) fn sack(&mut self, start: u64, end: u64, mut delivered: impl FnMut(&Sent)) {
        // Only whole segments count: a block that ends within a segment is ignored for that
        // segment.
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
                self.resent_out -= u64::from(segment.is_resent_out());
                segment.sacked = true;
                self.segs_sacked += 1;
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

    /// Returns the first segment, after the lowest one, that is not assumed delivered. Without SACK
    /// only.
    pub(crate) fn next_unknown(&self) -> Option<(u64, u64)> {
        let first = self.segments.front()?.end;
        let start = self.sacked.covering(first).map_or(first, |(_, end)| end);
        let at = self.segments.partition_point(|s| s.seq < start);
        self.segments.get(at).map(|segment| (segment.seq, segment.end))
    }

    /// Marks the first segment lost, even if it was assumed delivered; another is then assumed
    /// delivered in its place. Without SACK only.
    pub(crate) fn lose_first(&mut self) {
        let Some(first) = self.segments.front_mut() else { return };
        if !first.sacked {
            if !first.lost {
                self.mark_lost(0);
                self.judge_first();
            }
            return;
        }
        first.sacked = false;
        first.lost = false;
        self.segs_sacked -= 1;
        if first.seq >= self.edge {
            self.sacked_above.0 -= 1;
            self.sacked_above.1 -= first.bytes();
        }
        // `mark_lost` subtracts the segment from the pipe, so it must be in it.
        first.resent = true;
        self.pipe += first.weight;
        let end = first.end;
        self.sacked.remove_below(end);
        self.mark_lost(0);
        self.judge_first();
        if let Some((start, end)) = self.next_unknown() {
            self.sack(start, end, |_| ());
        }
    }

    /// Moves the edge past the first segment.
    fn judge_first(&mut self) {
        if let Some(first) = self.segments.front() {
            self.edge = self.edge.max(first.end);
        }
    }

    /// Clears all SACK marks, as without SACK they were assumptions. Walks all segments, once per
    /// recovery.
    pub(crate) fn forget_sacked(&mut self) {
        if self.segs_sacked == 0 {
            return;
        }
        for segment in &mut self.segments {
            if std::mem::take(&mut segment.sacked) {
                self.losses += u64::from(segment.lost);
                self.resent_out += u64::from(segment.is_resent_out());
                self.pipe += segment.in_pipe();
            }
        }
        self.sacked = Ranges::default();
        self.segs_sacked = 0;
        self.sacked_above = (0, 0);
    }

    /// Marks lost segments by IsLost of RFC 6675 §4: DupThresh segments, or more than (DupThresh -
    /// 1)·SMSS bytes, above a segment have been SACKed. Returns the bytes newly marked.
    ///
    /// The RFC asks for three *discontiguous* sequences or the bytes. Counting segments, as Linux
    /// does, also covers short ones.
    pub(crate) fn detect_losses(&mut self, smss: u64, dup_thresh: u64) -> u64 {
        let before = self.lost_bytes;
        if self.sacked_above.0 == 0 {
            return 0;
        }
        let mut at = self.segments.partition_point(|s| s.seq < self.edge);
        while let Some(segment) = self.segments.get_mut(at) {
            let own = if segment.sacked { (1, segment.bytes()) } else { (0, 0) };
            let above = (self.sacked_above.0 - own.0, self.sacked_above.1 - own.1);
            if above.0 < dup_thresh && above.1 <= (dup_thresh - 1) * smss {
                // Segments further up have no more SACKed data above them.
                break;
            }
            if !segment.sacked && !segment.lost {
                self.pipe -= segment.in_pipe();
                self.losses += 1;
                segment.lost = true;
                segment.resent = false;
                self.lost_bytes += segment.weight;
                self.lost.push_back(segment.seq);
            }
            self.edge = segment.end;
            self.sacked_above = above;
            at += 1;
        }
        self.lost_bytes - before
    }

    /// Marks lost segments by RFC 8985 §6.2 step 5: sent before the latest delivered segment, and
    /// outstanding for a round trip and the reordering window. Returns the bytes newly marked, and
    /// the time at which the next segment counts as lost.
    ///
    /// The RFC waits once until all outstanding segments would be lost. Here each is marked at its
    /// own time, at no extra cost.
    pub(crate) fn detect_losses_by_time(&mut self, now: Time, rack: &Rack) -> (u64, Option<Time>) {
        let before = self.lost_bytes;
        let mut next = None;
        // Most often nothing is missing, and the search can start at the first segment.
        let mut at = match self.segments.front() {
            Some(first) if first.seq < self.edge => self.segments.partition_point(|s| s.seq < self.edge),
            _ => 0,
        };
        while let Some(segment) = self.segments.get(at) {
            if segment.sacked {
                self.sacked_above.0 -= 1;
                self.sacked_above.1 -= segment.bytes();
            } else if !segment.lost && !segment.resent {
                if !rack.is_past(segment) {
                    // First transmissions are in order of time, so later ones are not past either.
                    break;
                }
                let lost_at = rack.lost_at(segment.sent_at);
                if lost_at > now {
                    next = Some(lost_at);
                    break;
                }
                self.mark_lost(at);
            }
            self.edge = self.segments[at].end;
            at += 1;
        }
        // Retransmissions are out of sequence order; their queue holds them in order of time.
        while let Some(&(sent_at, seq)) = self.resends.front() {
            let at = self.segments.partition_point(|s| s.end <= seq);
            if let Some(segment) =
                self.segments.get(at).filter(|s| s.resent && !s.sacked && s.sent_at == sent_at)
            {
                if !rack.is_past(segment) {
                    break;
                }
                let lost_at = rack.lost_at(sent_at);
                if lost_at > now {
                    next = Some(next.map_or(lost_at, |next: Time| next.min(lost_at)));
                    break;
                }
                self.mark_lost(at);
            }
            self.resends.pop_front();
        }
        (self.lost_bytes - before, next)
    }

    /// Marks the segment at this index, which is in the pipe, as lost.
    fn mark_lost(&mut self, at: usize) {
        let segment = &mut self.segments[at];
        self.pipe -= segment.in_pipe();
        self.losses += u64::from(!segment.lost);
        self.resent_out -= u64::from(segment.is_resent_out());
        segment.lost = true;
        segment.resent = false;
        self.lost_bytes += segment.weight;
        // First transmissions are marked in order. A lost retransmission sorts before segments that
        // still wait.
        let seq = segment.seq;
        match self.lost.back() {
            Some(&last) if last >= seq => {
                let place = self.lost.partition_point(|&s| s < seq);
                if self.lost.get(place) != Some(&seq) {
                    self.lost.insert(place, seq);
                }
            }
            _ => self.lost.push_back(seq),
        }
    }

    /// Marks un-SACKed segments lost when the timer expires, except those that `keep` returns true
    /// for; the first is lost in any case. Walks all segments, once per expiry. Returns the bytes
    /// newly marked.
    pub(crate) fn mark_lost_on_timeout(&mut self, keep: impl Fn(&Sent) -> bool) -> u64 {
        let before = self.lost_bytes;
        self.lost.clear();
        let mut first = true;
        for segment in &mut self.segments {
            if segment.sacked {
                continue;
            }
            if !first && keep(segment) && (!segment.lost || segment.resent) {
                continue;
            }
            first = false;
            if !segment.lost || segment.resent {
                self.lost_bytes += segment.weight;
            }
            self.losses += u64::from(!segment.lost);
            segment.lost = true;
            segment.resent = false;
            self.lost.push_back(segment.seq);
        }
        self.recount();
        self.lost_bytes - before
    }

    /// Takes back that segments were marked lost: nothing was. Retransmissions stay outstanding, and
    /// count once in the pipe. Walks all segments, once per recovery.
    pub(crate) fn unmark_losses(&mut self) {
        for segment in &mut self.segments {
            if !segment.sacked {
                segment.lost = false;
            }
        }
        self.lost.clear();
        self.losses = 0;
        self.recount();
    }

    /// Counts anew after a walk that has marked segments.
    fn recount(&mut self) {
        let segments = &self.segments;
        self.pipe = segments.iter().map(Sent::in_pipe).sum();
        self.resent_out = segments.iter().map(|s| u64::from(s.is_resent_out())).sum();
        self.resends.retain(|&(sent_at, seq)| {
            let at = segments.partition_point(|s| s.end <= seq);
            segments.get(at).is_some_and(|s| s.resent && s.sent_at == sent_at)
        });
        // All segments below the new edge are judged; only a retransmission can be SACKed there
        // from now on.
        let open = segments.iter().position(|s| !s.sacked && !s.lost && !s.resent);
        self.edge = match open {
            Some(at) => segments[at].seq,
            None => segments.back().map_or(self.edge, |s| s.end),
        };
        let above = segments.iter().skip(open.unwrap_or(segments.len())).filter(|s| s.sacked);
        self.sacked_above = above.fold((0, 0), |(n, bytes), s| (n + 1, bytes + s.bytes()));
    }

    /// Returns the number of retransmissions of lost segments that are outstanding.
    pub(crate) fn resent_out(&self) -> u64 {
        self.resent_out
    }

    /// Returns true if the outstanding segment with this sequence number was sent more than once.
    pub(crate) fn was_resent(&self, seq: u64) -> bool {
        let at = self.segments.partition_point(|s| s.end <= seq);
        self.segments.get(at).is_some_and(|s| s.ambiguous)
    }

    /// Returns the first lost segment that has not been retransmitted.
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

    /// Retransmits the segment that [`next_lost`](Self::next_lost) returned.
    pub(crate) fn resend(&mut self, now: Time, stamp: DeliveryStamp) -> Option<Sent> {
        let segment = self.next_lost()?;
        segment.resend(now, stamp);
        let copy = segment.clone();
        self.pipe += copy.weight;
        self.resent_out += 1;
        self.lost.pop_front();
        Some(copy)
    }

    /// Adds a retransmission to RACK's queue.
    pub(crate) fn watch(&mut self, sent: &Sent) {
        self.resends.push_back((sent.sent_at, sent.seq));
    }

    /// Retransmits the last segment as a tail loss probe, unless it is SACKed or marked lost. The
    /// pipe counts it once, as the first transmission is most likely lost.
    pub(crate) fn resend_last(&mut self, now: Time, stamp: DeliveryStamp) -> Option<Sent> {
        let segment = self.segments.back_mut().filter(|s| !s.sacked && !s.lost)?;
        segment.resend(now, stamp);
        Some(segment.clone())
    }

    /// Returns true if a segment marked lost has not been delivered since, retransmitted or not.
    pub(crate) fn has_losses(&self) -> bool {
        self.losses > 0
    }

    /// Returns true if a lost segment has not been retransmitted.
    pub(crate) fn has_lost(&mut self) -> bool {
        self.next_lost().is_some()
    }

    /// Pipe computed from scratch, which the running count must equal.
    #[cfg(test)]
    fn pipe_by_walking(&self) -> u64 {
        self.segments.iter().map(Sent::in_pipe).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::rate::RateEstimator;
    use marcato_units::Duration;
    use proptest::prelude::*;

    fn board(segments: u64, len: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        let mut rate = RateEstimator::default();
        for i in 0..segments {
            board.push(Sent {
                seq: i * len,
                end: (i + 1) * len,
                weight: len,
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

    /// Holds the running counts against a walk over all segments.
    fn assert_counts(board: &Scoreboard) {
        let count = |which: &dyn Fn(&Sent) -> bool| board.segments.iter().filter(|s| which(s)).count() as u64;
        assert_eq!(board.pipe(), board.pipe_by_walking());
        assert_eq!(board.losses, count(&|s| s.lost && !s.sacked));
        assert_eq!(board.segs_sacked(), count(&|s| s.sacked));
        assert_eq!(board.resent_out(), count(&|s| s.lost && s.resent && !s.sacked));
        let above = board.segments.iter().filter(|s| s.sacked && s.seq >= board.edge);
        let above = above.fold((0, 0), |(segments, bytes), s| (segments + 1, bytes + s.end - s.seq));
        assert_eq!(board.sacked_above, above);
        assert_eq!(board.has_losses(), count(&|s| s.lost && !s.sacked) > 0);
    }

    #[test]
    fn the_third_segment_sacked_above_a_hole_makes_it_lost() {
        let mut board = board(10, 1000);
        board.sack(1000, 2000, |_| ());
        assert_eq!(board.detect_losses(1000, DUP_THRESH), 0);
        board.sack(2000, 3000, |_| ());
        assert_eq!(board.detect_losses(1000, DUP_THRESH), 0);
        board.sack(3000, 4000, |_| ());
        assert_eq!(board.detect_losses(1000, DUP_THRESH), 1000);
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
    fn sacked_data_is_not_sent_again_after_a_timeout() {
        let mut board = board(5, 1000);
        board.sack(1000, 2000, |_| ());
        board.mark_lost_on_timeout(|_| false);
        assert_eq!(board.pipe(), 0);
        let order: Vec<_> = std::iter::from_fn(|| resend(&mut board)).collect();
        assert_eq!(order, [0, 2000, 3000, 4000]);
    }

    proptest! {
        /// Under any sequence of acknowledgements, SACKs, losses and retransmissions, the running
        /// pipe is exact. Each byte is reported delivered once, and lost segments are those of RFC
        /// 6675.
        #[test]
        fn the_running_counts_are_the_true_ones(ops in prop::collection::vec((0u8..6, 0u64..40, 1u64..6), 1..80)) {
            let mut board = board(40, 10);
            let (mut delivered, mut una) = (0u64, 0u64);
            // Set while losses were looked for since they were last taken back.
            let mut judged = true;
            for (op, at, len) in ops {
                judged = op != 5 && (judged || matches!(op, 1 | 2));
                match op {
                    0 => {
                        una = una.max((at * 10 / 4).min(400));
                        board.ack(una, |s| delivered += s.bytes());
                    }
                    1 | 2 => {
                        let (start, end) = ((at * 10).max(una), ((at + len) * 10).min(400));
                        // A receiver that has the byte at `una` would have acknowledged it.
                        if start > una && start < end {
                            board.sack(start, end, |s| delivered += s.bytes());
                        }
                        board.detect_losses(10, DUP_THRESH);
                    }
                    3 => {
                        resend(&mut board);
                    }
                    4 if at < 2 => {
                        let lost = board.lost_bytes;
                        let news = board.pipe();
                        prop_assert_eq!(board.mark_lost_on_timeout(|_| false), news);
                        prop_assert_eq!((board.lost_bytes - lost, board.pipe()), (news, 0));
                    }
                    // It was all a mistake.
                    5 if at < 2 => {
                        board.unmark_losses();
                        prop_assert!(!board.has_losses() && board.resend(Time::ZERO, RateEstimator::default().on_sent(Time::ZERO, false)).is_none());
                    }
                    _ => {}
                }
                assert_counts(&board);
                let sacked: u64 = board.segments.iter().filter(|s| s.sacked).map(Sent::bytes).sum();
                prop_assert_eq!(delivered, una + sacked);
                for (i, segment) in board.segments.iter().enumerate().filter(|_| judged) {
                    let above = board.segments.iter().skip(i + 1).filter(|s| s.sacked).count();
                    if above >= 3 {
                        // A retransmission stays one although its loss was taken back.
                        prop_assert!(segment.sacked || segment.lost || segment.resent, "{:?}", segment);
                    }
                }
            }
        }

        /// Without SACK, each duplicate acknowledgement stands for some segment behind the first one.
        #[test]
        fn assumptions_without_sack_keep_the_counts_true(
            ops in prop::collection::vec((0u8..7, 0u64..40), 1..100),
        ) {
            let mut board = board(40, 10);
            let mut una = 0u64;
            for (op, at) in ops {
                match op {
                    0 | 1 => {
                        let guess = board.next_unknown();
                        let behind = board.segments.iter().skip(1).find(|s| !s.sacked).map(|s| (s.seq, s.end));
                        prop_assert_eq!(guess, behind);
                        if let Some((start, end)) = guess {
                            let before = board.segs_sacked();
                            board.sack(start, end, |_| ());
                            prop_assert_eq!(board.segs_sacked(), before + 1);
                        }
                        board.detect_losses(10, DUP_THRESH);
                    }
                    2 => {
                        una = una.max((una + at * 10 / 8).min(400));
                        board.ack(una, |_| ());
                    }
                    3 => {
                        let (first, sacked) = (board.segments.front().map(|s| s.seq), board.segs_sacked());
                        let assumed = board.segments.front().is_some_and(|s| s.sacked);
                        let more = board.segments.iter().skip(1).any(|s| !s.sacked);
                        board.lose_first();
                        let front = board.segments.front();
                        prop_assert!(front.is_none_or(|s| Some(s.seq) == first && s.lost && !s.sacked));
                        // Another takes its place, if there is one.
                        prop_assert_eq!(board.segs_sacked(), sacked - u64::from(assumed && !more));
                    }
                    4 => _ = resend(&mut board),
                    5 if at < 8 => {
                        board.forget_sacked();
                        prop_assert_eq!(board.segs_sacked(), 0);
                    }
                    _ if at < 4 => {
                        board.forget_sacked();
                        board.mark_lost_on_timeout(|_| false);
                        prop_assert_eq!(board.pipe(), 0);
                    }
                    _ => {}
                }
                assert_counts(&board);
            }
        }

        /// The edge and the queue of retransmissions find the same losses as RFC 8985's walk over
        /// all segments, and the running counts stay exact.
        #[test]
        fn losses_by_time_are_those_that_a_walk_finds(ops in prop::collection::vec((0u8..7, 0u64..40, 1u64..6), 1..120)) {
            let mut board = Scoreboard::default();
            let mut rack = Rack::default();
            let mut rate = RateEstimator::default();
            let (mut now, mut una, mut nxt) = (Time::ZERO, 0u64, 0u64);
            for (op, at, len) in ops {
                now += Duration::from_millis(len * 3);
                let stamp = rate.on_sent(now, false);
                let mut sent_again = None;
                match op {
                    0 | 1 => for _ in 0..len {
                        board.push(Sent {
                            seq: nxt, end: nxt + 10, weight: 10, priority: None, fin: false, sent_at: now, stamp,
                            sacked: false, lost: false, resent: false, ambiguous: false,
                        });
                        nxt += 10;
                    },
                    2 => {
                        una = una.max((una + len * 10).min(nxt));
                        board.ack(una, |s| rack.on_delivered(now, s, None, None));
                    }
                    3 | 4 => {
                        let (start, end) = (una + 10 * (1 + at), (una + 10 * (1 + at + len)).min(nxt));
                        if start < end {
                            board.sack(start, end, |s| rack.on_delivered(now, s, None, None));
                        }
                    }
                    5 => sent_again = board.resend(now, stamp),
                    _ if at < 5 => {
                        board.mark_lost_on_timeout(|s| rack.lost_at(s.sent_at) > now);
                    }
                    _ => sent_again = board.resend_last(now, stamp),
                }
                if let Some(sent) = sent_again {
                    board.watch(&sent);
                }
                let expected: Vec<u64> = board.segments.iter()
                    .filter(|s| !s.sacked)
                    .filter(|s| (s.lost && !s.resent) || (rack.is_past(s) && rack.lost_at(s.sent_at) <= now))
                    .map(|s| s.seq)
                    .collect();
                let next = board.segments.iter()
                    .filter(|s| !s.sacked && (!s.lost || s.resent) && rack.is_past(s))
                    .map(|s| rack.lost_at(s.sent_at))
                    .filter(|&lost_at| lost_at > now)
                    .min();
                prop_assert_eq!(board.detect_losses_by_time(now, &rack).1, next);
                let lost: Vec<u64> =
                    board.segments.iter().filter(|s| s.lost && !s.resent && !s.sacked).map(|s| s.seq).collect();
                prop_assert_eq!(&lost, &expected);
                // All of them are retransmitted, in order.
                let mut copy = board.clone();
                let order: Vec<_> = std::iter::from_fn(|| resend(&mut copy)).collect();
                prop_assert_eq!(order, expected);
                assert_counts(&board);
            }
        }
    }
}
