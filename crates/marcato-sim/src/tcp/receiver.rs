//! Receiving half of a connection.

use marcato_units::{Duration, Priority, PrioritySet, Time};

use super::right_sizing::RightSizing;
use super::segment::{MAX_SACK_BLOCKS, SackBlocks};
use super::{DelayedAck, Tcp};
use crate::ranges::Ranges;

/// Received data and pending acknowledgements. Sequence numbers have 64 bits and start at 0 with
/// the SYN, so that they never wrap.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    /// RCV.NXT: next byte expected.
    pub(crate) next: u64,
    /// Sequence number of the other end's FIN, once known.
    fin_at: Option<u64>,
    /// Last.ACK.sent: latest acknowledgement number sent. RFC 7323 §4.3.
    pub(crate) acked: u64,
    /// Ranges that arrived beyond `next`.
    beyond: Ranges,
    /// One byte of each range that changed last, the most recent first, which is the order of SACK
    /// blocks. RFC 2018 §4.
    recent: [u64; MAX_SACK_BLOCKS],
    /// Duplicate range that arrived since the last acknowledgement. RFC 2883.
    dsack: Option<(u64, u64)>,
    buffer: u64,
    right_sizing: Option<RightSizing>,
    /// Bytes that the application has not read.
    unread: u64,
    /// True while the application reads; `most_read` is what it takes at once.
    reading: bool,
    most_read: u64,
    mss: u64,
    /// Right edge of the window as last offered; it never moves back.
    offered: u64,
    pub(crate) scale: u32,
    delayed_ack: DelayedAck,
    /// Segments received since the last acknowledgement.
    pending: u32,
    pub(crate) ack_at: Option<Time>,
    pub(crate) ack_now: bool,
    seen_data: bool,
    /// Segments that are yet to be acknowledged one by one.
    quick: u32,
    last_data_at: Option<Time>,
    /// Acknowledgement of what arrived before marks began or ended: its number, and the echo that
    /// it carries. RFC 8257 §3.2.
    pub(crate) early: Option<(u64, bool)>,
    /// Echo of ECN marks, on until the sender reports a reduction. RFC 3168 §6.1.3.
    pub(crate) echo_ce: bool,
}

impl Receiver {
    pub(crate) fn new(config: &Tcp) -> Self {
        let limit = config.receive_buffer.get();
        let buffer = config.receive_buffer_from.map_or(limit, |from| from.get());
        // RFC 7323 §2.3: least shift with which the buffer fits 16 bits, at most 14.
        let scale = (64 - (limit >> 16).leading_zeros()).min(14);
        Self {
            next: 0,
            acked: 0,
            fin_at: None,
            beyond: Ranges::default(),
            recent: [u64::MAX; MAX_SACK_BLOCKS],
            dsack: None,
            right_sizing: (buffer < limit).then(|| RightSizing::new(limit, u64::from(config.mss))),
            buffer,
            unread: 0,
            reading: true,
            most_read: u64::MAX,
            mss: u64::from(config.mss),
            offered: 0,
            scale,
            delayed_ack: config.delayed_ack,
            pending: 0,
            ack_at: None,
            ack_now: false,
            seen_data: false,
            quick: 0,
            last_data_at: None,
            early: None,
            echo_ce: false,
        }
    }

    /// Handles the other end's SYN.
    pub(crate) fn on_syn(&mut self) {
        self.next = 1;
        self.acked = 1;
        self.offered = 1 + u64::from(self.syn_window());
    }

    /// Returns the window of a SYN, which is never scaled. RFC 7323 §2.2.
    pub(crate) fn syn_window(&self) -> u32 {
        u32::from(u16::try_from(self.buffer).unwrap_or(u16::MAX))
    }

    /// Sets the echo for later acknowledgements by the mark of a data segment. If the mark changes,
    /// what was received before is acknowledged with the old echo. Returns true then: the segment
    /// itself must be acknowledged at once. RFC 8257 §3.2.
    pub(crate) fn note_mark(&mut self, ce: bool) -> bool {
        if ce == self.echo_ce {
            return false;
        }
        if self.pending > 0 {
            self.early = Some((self.next, self.echo_ce));
            self.acked = self.next;
            self.pending = 0;
            self.ack_at = None;
        }
        self.echo_ce = ce;
        true
    }

    /// Adapts the buffer after a data segment; `echo_rtt` is the round trip of its echoed
    /// timestamp.
    pub(crate) fn size_buffer(&mut self, now: Time, echo_rtt: Option<Duration>) {
        if let Some(right_sizing) = &mut self.right_sizing
            && let Some(size) = right_sizing.on_data(now, self.next, self.offered, echo_rtt)
        {
            self.buffer = self.buffer.max(size);
        }
    }

    /// Renews the segments that are acknowledged one by one, if data begins to arrive or has paused
    /// for a retransmission timeout. Linux, `tcp_event_data_recv`.
    pub(crate) fn note_pause(&mut self, now: Time, rto: Duration) {
        if self.last_data_at.replace(now).is_none_or(|last| now - last > rto) {
            self.quick = self.delayed_ack.quick;
        }
    }

    /// Handles a data segment. Returns the number of new stream bytes in order.
    pub(crate) fn on_data(&mut self, now: Time, seq: u64, len: u64, priority: Option<Priority>) -> u64 {
        // RFC 9293 §3.10.7.4: data outside the window is cut off; a segment without data inside is
        // answered by an acknowledgement.
        let end = (seq + len).min(self.offered);
        let start = seq.max(self.next);
        if start >= end {
            self.ack_now = true;
            // RFC 2883 §4: the next acknowledgement reports the duplicate.
            if seq < self.next && len > 0 {
                self.dsack = Some((seq, (seq + len).min(self.next)));
            }
            return 0;
        }
        if start > self.next {
            if self.beyond.first_gap(start, end).is_none() {
                self.dsack = Some((start, end));
            }
            self.beyond.insert(start, end);
            self.note_recent(start);
            // RFC 5681 §4.2: out-of-order data is acknowledged at once.
            self.ack_now = true;
            return 0;
        }
        let before = self.next;
        let filled_gap = !self.beyond.is_empty();
        self.next = end;
        if filled_gap {
            if let Some((_, covered)) = self.beyond.covering(end) {
                self.next = covered;
            }
            self.beyond.remove_below(self.next);
        }
        let mut in_order = self.next - before;
        // The FIN takes a sequence number, but is no byte of the stream.
        if self.fin_at.is_some_and(|fin| self.next > fin) {
            in_order -= 1;
        }
        self.unread += in_order;
        self.pending += 1;
        let urgent = self.delayed_ack.urgent_at_once
            && priority.is_some_and(|level| PrioritySet::URGENT.contains(level));
        let first = self.delayed_ack.first_at_once && !self.seen_data;
        self.seen_data = true;
        let quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(1);
        // RFC 5681 §4.2: a segment that fills a gap is acknowledged at once.
        if filled_gap || urgent || first || quick || self.pending >= self.delayed_ack.every {
            self.ack_now = true;
        } else if self.ack_at.is_none() {
            self.ack_at = Some(now + self.delayed_ack.timeout);
        }
        in_order
    }

    /// Returns true if `seq` is in the receive window. RFC 9293 §3.4.
    pub(crate) fn is_in_window(&self, seq: u64) -> bool {
        (self.next..self.offered).contains(&seq)
    }

    /// Returns true if a segment fits the window as a whole, or is a duplicate.
    pub(crate) fn takes_all(&self, seq: u64, len: u64) -> bool {
        seq + len <= self.offered
    }

    /// Records that the other end's data ends before `seq`.
    pub(crate) fn on_fin(&mut self, seq: u64) {
        if self.fin_at.is_none() && seq >= self.next {
            self.fin_at = Some(seq);
            // The FIN takes a sequence number.
            self.offered = self.offered.max(seq + 1);
        }
    }

    /// Returns true if everything up to the other end's FIN has arrived.
    pub(crate) fn finished(&self) -> bool {
        self.fin_at.is_some_and(|fin| self.next > fin)
    }

    /// Records that an acknowledgement leaves.
    pub(crate) fn on_ack_sent(&mut self) {
        self.acked = self.next;
        self.pending = 0;
        self.ack_at = None;
        self.ack_now = false;
        self.dsack = None;
    }

    /// Returns the window to offer, rounded down to a multiple of the window scale.
    pub(crate) fn window(&mut self) -> u32 {
        let room = self.buffer.saturating_sub(self.unread);
        let edge = self.offered.max(self.next + ((room >> self.scale) << self.scale));
        // RFC 9293 §3.8.6.2.2: what is unread must not open the window by less than a segment.
        let edge = if self.unread > 0 && edge - self.offered < self.least() { self.offered } else { edge };
        self.offered = edge;
        u32::try_from(edge - self.next).unwrap_or(u32::MAX)
    }

    /// Sets whether the application reads from now on; [`read`](Self::read) returns what is
    /// buffered.
    pub(crate) fn set_reading(&mut self, reading: bool) {
        self.reading = reading;
        if reading && self.unread > 0 {
            // RFC 9293 §3.8.6.2.2: a window that opens by half of the buffer or a segment is
            // announced at once. Linux, `tcp_cleanup_rbuf`: among many small reads, only while half
            // of the window is closed.
            let left = self.unread.saturating_sub(self.most_read);
            let opens = (self.next + self.buffer).saturating_sub(self.offered + left);
            let closed = self.most_read == u64::MAX || 2 * (self.offered - self.next) <= self.buffer;
            self.ack_now |= closed && opens >= self.least();
        }
    }

    /// Bounds what one read takes.
    pub(crate) fn bound_reads(&mut self, most: u64) {
        self.most_read = most.max(1);
    }

    /// Returns the least growth of the window that is announced. RFC 9293 §3.8.6.2.2.
    fn least(&self) -> u64 {
        self.mss.min(self.buffer / 2)
    }

    /// Returns true if the application has read all that arrived in order.
    pub(crate) fn is_read(&self) -> bool {
        self.unread == 0
    }

    /// Takes the data in order, if the application reads.
    pub(crate) fn read(&mut self) -> Option<u64> {
        if !self.reading {
            return None;
        }
        let bytes = self.unread.min(self.most_read);
        self.unread -= bytes;
        if let Some(right_sizing) = &mut self.right_sizing {
            right_sizing.on_read(bytes);
        }
        Some(bytes)
    }

    /// Returns the SACK blocks to send; `wire` shortens a sequence number.
    pub(crate) fn sack_blocks(&self, wire: impl Fn(u64) -> u32) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        // RFC 2883 §4: the duplicate comes first.
        if let Some((start, end)) = self.dsack {
            blocks.push(wire(start), wire(end));
        }
        if self.beyond.is_empty() {
            return blocks;
        }
        let repeats = blocks.as_slice().len();
        let mut reported = [(0, 0); MAX_SACK_BLOCKS];
        for &point in &self.recent {
            let Some(range) = self.beyond.covering(point) else { continue };
            let n = blocks.as_slice().len() - repeats;
            if n + repeats < MAX_SACK_BLOCKS && !reported[..n].contains(&range) {
                reported[n] = range;
                blocks.push(wire(range.0), wire(range.1));
            }
        }
        // RFC 2018 §4: an acknowledgement says if more has arrived than it covers, even if the ranges that changed last
        // have been delivered since.
        if blocks.as_slice().len() == repeats
            && let Some(range) = self.beyond.last()
        {
            blocks.push(wire(range.0), wire(range.1));
        }
        blocks
    }

    fn note_recent(&mut self, point: u64) {
        let range = self.beyond.covering(point);
        let known = self.recent.iter().position(|&p| self.beyond.covering(p) == range);
        let upto = known.unwrap_or(MAX_SACK_BLOCKS - 1);
        self.recent[..=upto].rotate_right(1);
        self.recent[0] = point;
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "test numbers are small, or wrap on purpose")]
mod tests {
    use super::*;
    use crate::tcp::Congestion;
    use marcato_units::{Bytes, Duration};
    use proptest::prelude::*;

    fn receiver(every: u32) -> Receiver {
        let mut receiver = Receiver::new(&Tcp {
            receive_buffer: Bytes::new(60_000),
            delayed_ack: DelayedAck { every, first_at_once: false, ..DelayedAck::default() },
            ..Tcp::with(Congestion::Reno)
        });
        receiver.on_syn();
        receiver
    }

    fn sack(receiver: &Receiver) -> Vec<(u32, u32)> {
        receiver.sack_blocks(|seq| seq as u32).as_slice().to_vec()
    }

    #[test]
    fn every_second_segment_is_acknowledged() {
        let mut r = receiver(2);
        assert_eq!(r.on_data(Time::ZERO, 1, 1000, None), 1000);
        assert!(!r.ack_now);
        assert_eq!(r.ack_at, Some(Time::ZERO + Duration::from_millis(40)));
        assert_eq!(r.on_data(Time::ZERO, 1001, 1000, None), 1000);
        assert!(r.ack_now);
    }

    #[test]
    fn quick_acknowledgements_come_at_the_start_and_after_a_pause() {
        let mut r = receiver(2);
        r.delayed_ack.quick = 3;
        let rto = Duration::from_millis(200);
        let mut seq = 1;
        let mut arrives = |r: &mut Receiver, at: u64| {
            r.note_pause(Time::ZERO + Duration::from_millis(at), rto);
            r.on_data(Time::ZERO, seq, 1000, None);
            seq += 1000;
            let at_once = r.ack_now;
            if at_once {
                r.on_ack_sent();
            }
            at_once
        };
        assert_eq!([0, 1, 2, 3, 4, 5].map(|at| arrives(&mut r, at)), [true, true, true, false, true, false]);
        // 200 ms are no pause; 201 ms are.
        assert_eq!([205, 406, 407, 408, 409].map(|at| arrives(&mut r, at)), [true, true, true, true, false]);
    }

    #[test]
    fn urgent_segments_need_not_wait_for_a_second() {
        let mut r = receiver(2);
        r.delayed_ack.urgent_at_once = true;
        r.on_data(Time::ZERO, 1, 1000, Some(Priority::P2));
        assert!(!r.ack_now);
        r.on_ack_sent();
        r.on_data(Time::ZERO, 1001, 1000, Some(Priority::P1));
        assert!(r.ack_now);
    }

    #[test]
    fn the_block_that_changed_last_is_reported_first() {
        let mut r = receiver(1);
        for seq in [2001, 4001, 6001, 8001] {
            r.on_data(Time::ZERO, seq, 1000, None);
        }
        assert_eq!(sack(&r), [(8001, 9001), (6001, 7001), (4001, 5001)]);
        r.on_data(Time::ZERO, 3001, 500, None);
        assert_eq!(sack(&r), [(2001, 3501), (8001, 9001), (6001, 7001)]);
        r.on_data(Time::ZERO, 1, 2000, None);
        assert_eq!(r.next, 3501);
        assert_eq!(sack(&r), [(8001, 9001), (6001, 7001)]);
    }

    #[test]
    fn filling_a_gap_delivers_everything_behind_it_at_once() {
        let mut r = receiver(2);
        r.on_data(Time::ZERO, 1001, 2000, None);
        r.on_ack_sent();
        assert_eq!(r.on_data(Time::ZERO, 1, 1000, None), 3000);
        assert!(r.ack_now);
    }

    #[test]
    fn unread_data_closes_the_window_and_reading_opens_it() {
        let mut r = receiver(2);
        r.set_reading(false);
        r.on_data(Time::ZERO, 1, 60_000, None);
        assert_eq!(r.window(), 0);
        // Beyond the window: cut off and answered.
        r.on_ack_sent();
        assert_eq!(r.on_data(Time::ZERO, 60_001, 1000, None), 0);
        assert!(r.ack_now);
        r.on_ack_sent();
        assert_eq!(r.read(), None);
        r.set_reading(true);
        assert!(r.ack_now);
        assert_eq!(r.read(), Some(60_000));
        assert_eq!(r.window(), 60_000);
    }

    #[test]
    fn small_reads_open_the_window_by_a_segment_at_least() {
        let mut r = receiver(2);
        r.mss = 1000;
        r.bound_reads(400);
        r.set_reading(false);
        r.on_data(Time::ZERO, 1, 60_000, None);
        assert_eq!(r.window(), 0);
        r.on_ack_sent();
        let windows: Vec<_> = (0..6)
            .map(|_| {
                r.set_reading(true);
                let announced = std::mem::take(&mut r.ack_now);
                assert_eq!(r.read(), Some(400));
                r.set_reading(false);
                (announced, r.window())
            })
            .collect();
        let later = [(false, 1200), (false, 1200), (true, 2400)];
        assert_eq!(windows, [[(false, 0), (false, 0), (true, 1200)], later].concat());
    }

    /// Linux, `tcp_cleanup_rbuf`.
    #[test]
    fn small_reads_announce_nothing_while_the_window_is_open() {
        for (unread, announces) in [(20_000, false), (40_000, true)] {
            let mut r = receiver(2);
            r.mss = 1000;
            r.bound_reads(1000);
            r.set_reading(false);
            r.on_data(Time::ZERO, 1, unread, None);
            assert_eq!(u64::from(r.window()), 60_000 - unread);
            r.on_ack_sent();
            r.set_reading(true);
            assert_eq!(r.ack_now, announces, "{unread}");
        }
    }

    #[test]
    fn the_fin_is_not_data() {
        let mut r = receiver(1);
        r.on_fin(1001);
        assert!(!r.finished());
        assert_eq!(r.on_data(Time::ZERO, 1, 1001, None), 1000);
        assert!(r.finished());
    }
    /// RFC 2018 §4. Four ranges are one more than are remembered.
    #[test]
    fn an_old_range_is_still_reported_when_later_ones_are_delivered() {
        let mut r = receiver(2);
        for start in [9001, 7001, 5001, 3001] {
            r.on_data(Time::ZERO, start, 1000, None);
        }
        assert_eq!(sack(&r), [(3001, 4001), (5001, 6001), (7001, 8001)]);
        r.on_data(Time::ZERO, 1, 8000, None);
        assert_eq!((r.next, sack(&r)), (8001, vec![(9001, 10_001)]));
    }

    /// Bytes that arrived, one by one, and what a receiver has to say of them.
    struct Model {
        arrived: Vec<bool>,
        /// Time of the last change of each byte's range, in steps.
        changed: Vec<usize>,
        next: usize,
        unread: usize,
        offered: usize,
        pending: u32,
        /// Most ranges at once since there were none: what a receiver remembers of their order is bounded.
        most_ranges: usize,
    }

    const BUFFER: usize = 600;
    const MSS: usize = 100;

    impl Model {
        /// Greatest range of bytes beyond the next one that holds this byte.
        fn range(&self, at: usize) -> (usize, usize) {
            let start = (self.next..=at).rev().take_while(|at| self.arrived[*at]).last().unwrap();
            let end = (at..self.arrived.len()).find(|at| !self.arrived[*at]).unwrap();
            (start, end)
        }

        /// Ranges beyond the next byte, the one that changed last first.
        fn ranges(&self) -> Vec<(u32, u32)> {
            let all = (self.next + 1..self.offered).filter(|at| self.arrived[*at]);
            let mut ranges: Vec<_> = all.map(|at| self.range(at)).collect();
            ranges.dedup();
            ranges.sort_by_key(|(start, end)| {
                self.changed[*start..*end].iter().max().map(|at| usize::MAX - at)
            });
            ranges.into_iter().map(|(start, end)| (start as u32, end as u32)).collect()
        }
    }

    proptest! {
        /// A receiver does with any segments and reads what a list of bytes does, looked at as a whole.
        #[test]
        fn any_segments_and_reads_do_what_a_list_of_bytes_does(
            every in 1u32..4,
            ops in prop::collection::vec((0u8..8, 0usize..9, 1usize..250), 1..120),
        ) {
            let mut r = Receiver::new(&Tcp {
                receive_buffer: Bytes::new(BUFFER as u64),
                mss: MSS as u32,
                delayed_ack: DelayedAck { every, first_at_once: false, ..DelayedAck::NONE },
                ..Tcp::with(Congestion::Reno)
            });
            r.on_syn();
            let size = 120 * 250;
            let mut model = Model {
                arrived: vec![false; size], changed: vec![0; size], next: 1, unread: 0, offered: 1 + BUFFER, pending: 0,
                most_ranges: 0,
            };
            for (step, (op, back, len)) in ops.into_iter().enumerate() {
                let now = Time::from_millis(step as u64);
                match op {
                    // Segments begin up to four hundred bytes before the next byte, or behind it.
                    0..=4 => {
                        let seq = (model.next + 100 * back).saturating_sub(400).max(1);
                        let seq = if op == 0 { model.next } else { seq };
                        let end = (seq + len).min(model.offered);
                        let new = (seq.max(model.next)..end).filter(|at| !model.arrived[*at]).count();
                        let holes = (model.next..size).any(|at| model.arrived[at]);
                        let (before, had_timer) = (model.next, r.ack_at);
                        for at in seq.max(model.next)..end {
                            (model.arrived[at], model.changed[at]) = (true, step + 1);
                        }
                        while model.arrived[model.next] {
                            model.next += 1;
                        }
                        let ranges = model.ranges().len();
                        model.most_ranges = if ranges == 0 { 0 } else { model.most_ranges.max(ranges) };
                        let in_order = model.next - before;
                        model.unread += in_order;
                        prop_assert_eq!(r.on_data(now, seq as u64, len as u64, None), in_order as u64);
                        if in_order == 0 {
                            prop_assert!(r.ack_now, "out of order, or nothing new");
                        } else {
                            model.pending += 1;
                            if holes || model.pending >= every {
                                prop_assert!(r.ack_now, "a gap was filled, or enough segments came");
                            } else if !r.ack_now {
                                prop_assert_eq!(r.ack_at, had_timer.or(Some(now + DelayedAck::NONE.timeout)));
                            }
                        }
                        // RFC 2883 §4: what came twice is reported first.
                        let duplicate = if seq < model.next && end <= before.max(seq) {
                            Some((seq as u32, (seq + len).min(before) as u32))
                        } else if in_order == 0 && new == 0 && end > seq {
                            Some((seq as u32, end as u32))
                        } else {
                            None
                        };
                        if let Some(duplicate) = duplicate {
                            prop_assert_eq!(sack(&r).first().copied(), Some(duplicate));
                        }
                    }
                    5 | 6 => {
                        let room = BUFFER - model.unread;
                        let edge = model.offered.max(model.next + room);
                        // RFC 9293 §3.8.6.2.2: less than a segment is not worth an update while data is unread.
                        if model.unread == 0 || edge - model.offered >= MSS {
                            model.offered = edge;
                        }
                        prop_assert_eq!(r.window() as usize, model.offered - model.next);
                        r.on_ack_sent();
                        model.pending = 0;
                        prop_assert!(!r.ack_now && r.ack_at.is_none());
                        let (blocks, ranges) = (sack(&r), model.ranges());
                        prop_assert_eq!(blocks.is_empty(), ranges.is_empty());
                        // The one that changed last is first. Merged ranges may leave fewer than three.
                        let remembers = model.most_ranges <= 3;
                        prop_assert!(blocks.len() <= 3 && (!remembers || blocks.first() == ranges.first()), "{:?} of {:?}", blocks, ranges);
                        prop_assert!(blocks.iter().all(|block| ranges.contains(block)), "{:?} of {:?}", blocks, ranges);
                    }
                    _ => {
                        r.set_reading(back % 2 == 0);
                        let expected = (back % 2 == 0).then_some(model.unread as u64);
                        prop_assert_eq!(r.read(), expected);
                        model.unread -= expected.unwrap_or(0) as usize;
                        prop_assert_eq!(r.is_read(), model.unread == 0);
                    }
                }
                prop_assert_eq!(r.next, model.next as u64);
                for (seq, inside) in [(model.next - 1, false), (model.next, model.next < model.offered),
                    (model.offered - 1, model.next < model.offered), (model.offered, false)] {
                    prop_assert_eq!(r.is_in_window(seq as u64), inside);
                }
            }
        }
    }
}
