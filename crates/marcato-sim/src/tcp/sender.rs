//! Sending half of a connection: buffered data, window, pacing and loss recovery.

use std::collections::VecDeque;

use marcato_units::{Bytes, Duration, Priority, Rate, Stream, Time};

use super::config::TcpEnd;
use super::congestion::{self, AckEvent, CongestionControl, LossState, Signal};
use super::prr::Prr;
use super::rack::{Rack, RackState};
use super::rate::RateEstimator;
use super::rto::RtoEstimator;
use super::scoreboard::{DUP_THRESH, Scoreboard, Sent};
use super::tlp::Tlp;
use super::undo::{Reordering, Undo};
use super::usage::Usage;
use super::{LossDetection, Nagle, TcpConfigError};

/// Recovery state of the sender; it ends when `snd_una` reaches `point`.
#[derive(Clone, Debug)]
enum Recovery {
    Open,
    /// Fast recovery (RFC 6675 §5), or a reduction for ECN.
    Fast {
        point: u64,
        /// True if ECN was the reason and nothing has been lost.
        echo: bool,
        prr: Prr,
        /// Window that proportional rate reduction allows.
        window: u64,
        /// True until the first retransmission, which ignores the window. RFC 6675 §5 step 4.3.
        first: bool,
    },
    /// Recovery after a timeout.
    Timeout {
        point: u64,
        /// True until the first retransmission, which ignores what is in flight. RFC 6298 §5.4.
        first: bool,
        /// True while F-RTO may still find that nothing was lost. RFC 5682 §3.1.
        frto: bool,
        /// True from an acknowledgement to the next if new data leaves before retransmissions.
        /// RFC 5682 §3.1 step 2b.
        new_first: bool,
    },
}

/// Fields of a segment that concern the sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckInfo<'a> {
    /// Sequence number of the other end's segment, which decides whether its window is newer.
    pub(crate) seq: u64,
    pub(crate) ack: u64,
    /// SACK blocks as 64-bit sequence numbers.
    pub(crate) sack: &'a [(u64, u64)],
    pub(crate) window: u64,
    /// Duplicate that it reports. RFC 2883.
    pub(crate) dsack: Option<(u64, u64)>,
    /// True if the segment carries neither data nor SYN or FIN.
    pub(crate) is_bare: bool,
    pub(crate) ece: bool,
    /// Round trip of the echoed timestamp.
    pub(crate) timestamp_rtt: Option<Duration>,
}

/// Segment to send, without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) seq: u64,
    pub(crate) payload: u32,
    pub(crate) fin: bool,
    pub(crate) priority: Option<Priority>,
    pub(crate) retransmission: bool,
}

impl Outgoing {
    /// Retransmission of a segment.
    fn again(sent: &Sent) -> Self {
        Self {
            seq: sent.seq,
            payload: short(sent.end - sent.seq - u64::from(sent.fin)),
            fin: sent.fin,
            priority: sent.priority,
            retransmission: true,
        }
    }
}

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SenderCounters {
    pub(crate) segments: u64,
    pub(crate) retransmissions: u64,
    pub(crate) timeouts: u64,
    pub(crate) reductions: u64,
    pub(crate) tail_probes: u64,
    pub(crate) undone: u64,
}

#[derive(Debug)]
pub(crate) struct Sender {
    mss: u64,
    send_buffer: u64,
    /// True if the last write has filled the buffer.
    is_full: bool,
    notsent_lowat: Option<u64>,
    slow_start_after_idle: bool,
    idle_decay: bool,
    safe_ack: bool,
    /// Use of the window, if it is judged once a round trip.
    usage: Option<Usage>,
    pace_without_rate: bool,
    /// First segments that are not paced and have not left yet.
    unpaced: u32,
    /// Selective acknowledgements. Without SACK, duplicate acknowledgements are counted (RFC 6582).
    pub(crate) sack: bool,
    /// Greatest burst. `burst` is what may still leave of the current one.
    offload: Option<u64>,
    burst: u64,
    /// Part of the window that waits for a full burst. It counts as used, since Linux grows the
    /// window in this case too.
    held_back: u64,
    /// Greatest payload of the next new segment, under PLT.
    pub(crate) chunk: u64,
    /// Delays the FIN under PLT, as data in flight in the low layer may return to this sender.
    pub(crate) hold_fin: bool,
    /// SND.UNA. `nxt` is SND.NXT, and `written` is one beyond the last byte written.
    pub(crate) una: u64,
    pub(crate) nxt: u64,
    pub(crate) written: u64,
    /// Priorities of unsent data: each run ends before its sequence number.
    runs: VecDeque<(u64, Priority)>,
    /// True once the application has closed; the FIN has sequence number `written`.
    closed: bool,
    fin_sent: bool,
    peer_window: u64,
    /// Window of the last acknowledgement.
    peer_window_before: u64,
    /// SND.WL1 and SND.WL2: segment of the last window update. RFC 9293 §3.10.7.4.
    window_update: (u64, u64),
    board: Scoreboard,
    rto: RtoEstimator,
    rto_at: Option<Time>,
    persist_at: Option<Time>,
    probe: bool,
    /// RACK state, if it detects losses. `rack_at` is the time of its next check.
    rack: Option<Rack>,
    rack_at: Option<Time>,
    tlp: Tlp,
    recovery: Recovery,
    /// True if reductions that prove spurious are undone; `undo` is the latest that still may.
    undoes: bool,
    undo: Option<Undo>,
    /// Degree of reordering, if the threshold of duplicate acknowledgements adapts to it.
    reordering: Option<Reordering>,
    nagle: Nagle,
    /// End of the last small segment sent (`snd_sml` of Linux).
    small_end: u64,
    congestion: Box<dyn CongestionControl>,
    rate: RateEstimator,
    /// Bytes delivered in total.
    delivered: u64,
    min_rtt: Option<Duration>,
    /// Round trip of the last acknowledgement that had one, until taken.
    pub(crate) rtt: Option<Duration>,
    /// Round trip that the latest acknowledgement gave.
    pub(crate) latest_rtt: Option<Duration>,
    pace_at: Time,
    last_sent_at: Time,
    /// Sets CWR on the next new segment. RFC 3168 §6.1.2.
    pub(crate) announce_cwr: bool,
    /// Echoes of ECN up to this number refer to a window already reduced.
    ecn_point: u64,
    pub(crate) counters: SenderCounters,
}

impl Sender {
    pub(crate) fn new(end: &TcpEnd, stream: Stream) -> Result<Self, TcpConfigError> {
        let config = &end.tcp;
        Ok(Self {
            mss: u64::from(config.mss),
            send_buffer: config.send_buffer.get(),
            is_full: false,
            notsent_lowat: config.notsent_lowat.map(|lowat| lowat.get().max(1)),
            slow_start_after_idle: config.slow_start_after_idle,
            idle_decay: config.idle_decay,
            safe_ack: config.safe_ack,
            usage: config.usage_by_round.then(Usage::default),
            pace_without_rate: config.pacing,
            unpaced: config.unpaced_segments,
            sack: config.sack,
            offload: config.segmentation_offload.map(Bytes::get),
            burst: 0,
            held_back: 0,
            chunk: u64::MAX,
            hold_fin: false,
            una: 0,
            nxt: 1,
            written: 1,
            runs: VecDeque::new(),
            closed: false,
            fin_sent: false,
            peer_window: 0,
            peer_window_before: 0,
            window_update: (0, 0),
            board: Scoreboard::default(),
            rto: RtoEstimator::new(config.initial_rto, config.min_rto, config.max_rto)
                .with_margin(config.rto_margin),
            rto_at: None,
            persist_at: None,
            probe: false,
            rack: (config.loss_detection == LossDetection::Rack).then(Rack::default),
            rack_at: None,
            tlp: Tlp::default(),
            recovery: Recovery::Open,
            undoes: config.undo,
            undo: None,
            reordering: (config.undo && config.loss_detection == LossDetection::DupThresh)
                .then_some(Reordering::new(DUP_THRESH)),
            nagle: config.nagle,
            small_end: 0,
            congestion: congestion::build(end, stream)?,
            rate: RateEstimator::default(),
            delivered: 0,
            min_rtt: None,
            rtt: None,
            latest_rtt: None,
            pace_at: Time::ZERO,
            last_sent_at: Time::ZERO,
            announce_cwr: false,
            ecn_point: 0,
            counters: SenderCounters::default(),
        })
    }

    /// Completes the handshake. `rtt` is its round trip, if its segments were sent once, `echo_rtt`
    /// that of its echoed timestamp, and `resent` how often its SYN or SYN-ACK was sent again.
    pub(crate) fn on_established(
        &mut self,
        now: Time,
        rtt: Option<Duration>,
        echo_rtt: Option<Duration>,
        resent: u32,
        window: u64,
    ) {
        self.una = 1;
        self.peer_window = window;
        self.peer_window_before = window;
        self.last_sent_at = now;
        if let Some(rtt) = rtt {
            self.rto.sample(rtt);
            self.min_rtt = Some(rtt);
            self.rtt = Some(rtt);
        } else if let Some(rtt) = echo_rtt {
            // RFC 7323 §4: the timestamp tells which transmission was answered.
            self.rto.sample(rtt);
        } else if resent > 0 {
            // RFC 6298 §5.7.
            self.rto.raise(Duration::from_secs(3));
        }
        if resent > 1 {
            // RFC 5681 §3.1: the initial window after a lost SYN or SYN-ACK is one segment. RFC 6928
            // §2 allows a single loss, since the timeout of one second may be spurious.
            self.congestion.on_lost_handshake();
        }
        self.congestion.on_established(now, rtt);
    }

    /// Returns the free space of the send buffer.
    pub(crate) fn room(&self) -> u64 {
        self.send_buffer.saturating_sub(self.written - self.una.max(1))
    }

    /// Returns true if the buffer takes data. With bursts, one that was full does so from two thirds down,
    /// so that there is data for them. Linux, `sk_stream_is_writable`.
    fn has_room(&self) -> bool {
        let wakes_late = self.is_full && self.offload.is_some();
        self.room() >= if wakes_late { self.send_buffer.div_ceil(3) } else { 1 }
    }

    /// Returns the bytes written and never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.written - self.nxt.min(self.written)
    }

    /// Returns true if the application is asked for more data.
    pub(crate) fn is_writable(&self) -> bool {
        !self.closed && self.has_room() && self.notsent_lowat.is_none_or(|lowat| self.unsent() < lowat)
    }

    /// Buffers `len` bytes, or as many as fit. Returns how many.
    pub(crate) fn write(&mut self, len: u64, priority: Priority) -> u64 {
        if self.closed || len == 0 {
            return 0;
        }
        self.note_application_limit();
        let taken = len.min(self.room());
        self.is_full = self.room() == taken;
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
    pub(crate) fn take_back(&mut self, len: u64) {
        self.written -= len.min(self.unsent());
        while let Some(&(_, priority)) = self.runs.back() {
            let before =
                self.runs.len().checked_sub(2).and_then(|at| self.runs.get(at)).map_or(self.nxt, |run| run.0);
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

    /// Returns the bytes that a segment of `len` bytes counts as in the window.
    fn weight(&self, len: u64) -> u64 {
        if self.congestion.counts_segments() { self.mss } else { len }
    }

    /// Returns the greatest payload of a new segment.
    fn most(&self) -> u64 {
        self.mss.min(self.chunk)
    }

    /// Returns true if everything, the FIN included, has been acknowledged.
    pub(crate) fn finished(&self) -> bool {
        self.fin_sent && self.una > self.written
    }

    pub(crate) fn pipe(&self) -> u64 {
        self.board.pipe()
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.rto.srtt()
    }

    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    pub(crate) fn rto(&self) -> Duration {
        self.rto.rto()
    }

    pub(crate) fn ssthresh(&self) -> u64 {
        self.congestion.ssthresh()
    }

    pub(crate) fn lost(&self) -> u64 {
        self.board.lost_bytes
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the window in force: the congestion control's, or that of proportional rate
    /// reduction.
    pub(crate) fn cwnd(&self) -> u64 {
        match &self.recovery {
            Recovery::Fast { window, .. } if self.congestion.uses_prr() => *window,
            _ => self.congestion.cwnd(),
        }
    }

    /// Returns the pacing rate: the congestion control's, or that of the window if pacing is on.
    /// The latter is as in Linux: twice the window per round trip in slow start up to half of the
    /// threshold, and 1.2 times the window from there on.
    pub(crate) fn pacing_rate(&self) -> Option<Rate> {
        self.congestion.pacing_rate().or_else(|| self.window_rate().filter(|_| self.pace_without_rate))
    }

    /// Returns the rate by which Linux paces if the congestion control has none, and by which it
    /// cuts bursts in any case.
    fn window_rate(&self) -> Option<Rate> {
        let srtt = self.rto.srtt()?;
        let cwnd = self.congestion.cwnd();
        // Linux, `tcp_update_pacing_rate`: slow start that nears its threshold is paced like
        // congestion avoidance.
        let percent = if cwnd < self.congestion.ssthresh() / 2 { 200 } else { 120 };
        Some(Rate::from_bytes_over(Bytes::new(cwnd * percent / 100), srtt))
    }

    /// Returns how much new data may leave in one burst with `room` bytes of free window; `None` if
    /// it should wait for more room.
    fn burst(&self, now: Time, room: u64) -> Option<u64> {
        let Some(most) = self.offload.filter(|_| self.burst == 0) else { return Some(self.burst) };
        let rate = self.congestion.pacing_rate().or_else(|| self.window_rate());
        // Linux: sk_pacing_shift 10, tcp_min_tso_segs 2, tcp_tso_win_divisor 3.
        let millisecond = rate.map_or(0, |rate| rate.bytes_in(Duration::from_millis(1)).get());
        let goal = millisecond.min(most).min(self.cwnd() / 3).max(2 * self.mss).min(self.unsent());
        let half = self.rto.srtt().map_or(Duration::ZERO, |srtt| srtt / 2);
        let urged = self.board.is_empty()
            || !matches!(self.recovery, Recovery::Open)
            || now - self.last_sent_at >= half;
        (room >= goal || urged).then_some(goal)
    }

    pub(crate) fn loss_state(&self) -> LossState {
        match self.recovery {
            Recovery::Open => LossState::Open,
            Recovery::Fast { echo: true, .. } => LossState::Reduction,
            Recovery::Fast { .. } => LossState::Recovery,
            Recovery::Timeout { .. } => LossState::Loss,
        }
    }

    /// Handles an acknowledgement. Returns true if it moved SND.UNA.
    pub(crate) fn on_ack(&mut self, now: Time, info: AckInfo<'_>) -> bool {
        // Acknowledges data never sent, or is older than another acknowledgement.
        if info.ack > self.nxt || info.ack < self.una {
            return false;
        }
        // RFC 9293 §3.10.7.4: an older segment must not restore an older window.
        if info.ack > self.una || (info.seq, info.ack) >= self.window_update {
            self.peer_window = info.window;
            self.window_update = (info.seq, info.ack);
        }
        let prior_in_flight = self.board.pipe();
        let prior_una = self.una;
        // RFC 5681 §2: definition of a duplicate acknowledgement.
        let duplicate = !self.sack
            && info.ack == self.una
            && info.is_bare
            && info.window == self.peer_window_before
            && !self.board.is_empty();
        self.peer_window_before = info.window;
        // A duplicate shows that a segment has left the network, but not which. The first one
        // behind the hole is assumed.
        let guess = if duplicate { self.board.next_unknown() } else { None };
        let (mut delivered, mut first_sent, mut last_sent) = (0u64, None::<Time>, None::<Time>);
        // True if a segment was delivered that was sent before the timeout, and only then.
        let mut original = false;
        let before_timeout = match self.recovery {
            Recovery::Timeout { point, frto: true, .. } => point,
            _ => 0,
        };
        let (rate, rack, min_rtt) = (&mut self.rate, &mut self.rack, self.min_rtt);
        // Without SACK, what was delivered is a guess.
        let (mut reordering, mss) = (self.reordering.as_mut().filter(|_| self.sack), self.mss);
        let fack = reordering.as_ref().map_or(0, |reordering| reordering.fack());
        let total = &mut self.delivered;
        if let Some(rack) = rack {
            rack.begin_ack();
        }
        let mut note = |sent: &Sent, timestamp_rtt| {
            *total += sent.end - sent.seq;
            delivered += sent.weight;
            original |= !sent.ambiguous && sent.end <= before_timeout;
            if let Some(reordering) = &mut reordering {
                reordering.on_delivered(sent.end);
                if !sent.ambiguous {
                    reordering.on_overtaken(sent.seq, fack, mss);
                }
            }
            rate.on_delivered(now, sent.weight, &sent.stamp);
            if let Some(rack) = rack {
                rack.on_delivered(now, sent, min_rtt, timestamp_rtt);
            }
            // Karn's rule, RFC 6298 §3: a retransmitted segment gives no round trip.
            if !sent.ambiguous {
                first_sent = Some(first_sent.map_or(sent.sent_at, |t| t.min(sent.sent_at)));
                last_sent = Some(last_sent.map_or(sent.sent_at, |t| t.max(sent.sent_at)));
            }
        };
        if info.ack > self.una {
            self.una = info.ack;
            self.board.ack(info.ack, |sent| note(sent, info.timestamp_rtt));
        }
        for &(start, end) in info.sack.iter().chain(&guess) {
            if start >= self.una && end <= self.nxt && start < end {
                // RFC 7323 §4.3: the echo belongs to a segment in order, never to a SACKed one.
                self.board.sack(start, end, |sent| note(sent, None));
            }
        }
        let newly_acked = self.una - prior_una;
        let undone = self.undo_spurious(now, &info, prior_una, original);
        if !self.sack && newly_acked > 0 {
            self.on_progress_without_sack();
        }
        if let Some(sent_at) = first_sent {
            self.rto.sample(now - sent_at);
        } else if let Some(rtt) = info.timestamp_rtt.filter(|_| newly_acked > 0) {
            // Only retransmissions were acknowledged; the timestamp identifies the transmission.
            // RFC 7323 §4.
            self.rto.sample(rtt);
        }
        let rtt = last_sent.map(|sent_at| now - sent_at);
        if let Some(rtt) = rtt {
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
            self.rtt = Some(rtt);
        }
        self.latest_rtt = rtt;
        self.congestion.on_echo(newly_acked, self.una, self.nxt, info.ece);
        let recovered = self.leave_recovery(now) && !undone;
        self.advance_frto(newly_acked > 0, delivered > 0);
        let newly_lost = self.detect_losses(now, info.dsack.is_some(), recovered);
        let in_flight = self.nxt - prior_una;
        if self.tlp.on_ack(self.una, info.dsack.map(|(_, end)| end), {
            info.is_bare && newly_acked == 0 && info.sack.is_empty()
        }) && matches!(self.recovery, Recovery::Open)
            && !self.board.has_losses()
        {
            // RFC 8985 §7.4: the probe repaired a loss, so the window is reduced at once.
            self.counters.reductions += 1;
            self.congestion.on_congestion(now, in_flight, Signal::Loss);
            self.congestion.on_recovered(now);
            self.announce_cwr = true;
            self.undo = None;
        }
        self.enter_recovery(now, in_flight, info.ece);

        let event = AckEvent {
            now,
            una: self.una,
            nxt: self.nxt,
            newly_acked,
            delivered,
            newly_lost,
            prior_in_flight: prior_in_flight + self.held_back,
            used: self.used(prior_in_flight),
            in_flight: self.board.pipe(),
            rtt,
            srtt: self.rto.srtt(),
            rate: self.rate.sample(now, self.min_rtt),
            total_delivered: self.rate.delivered,
            total_lost: self.board.lost_bytes,
            state: self.loss_state(),
            next_send: self.pace_at,
            burst_rate: self.offload.and_then(|_| self.window_rate()),
        };
        self.congestion.on_ack(&event);
        if self.congestion.limits_itself() {
            self.rate.mark_app_limited(self.board.pipe());
        }
        if let Recovery::Fast { prr, window, .. } = &mut self.recovery
            && self.congestion.uses_prr()
            && delivered > 0
        {
            let pipe = self.board.pipe();
            let grows = !self.safe_ack || newly_acked > 0 && newly_lost == 0;
            let sndcnt = prr.on_ack(delivered, pipe, self.congestion.ssthresh(), self.mss, grows);
            *window = pipe + sndcnt;
        }
        if newly_acked > 0 {
            // RFC 6298 §5.2 and §5.3: stop the timer if nothing is outstanding, otherwise restart
            // it.
            self.rto_at = (!self.board.is_empty()).then(|| now + self.rto.rto());
        }
        if !self.may_probe() {
            self.tlp.pto_at = None;
        } else if newly_acked > 0 {
            self.tlp.arm(now, self.rto.srtt(), self.board.is_single(), self.rto_at);
        }
        if self.peer_window > 0 && self.persist_at.take().is_some() {
            // The intervals of probes tell nothing about the path.
            self.rto.end_back_off();
        }
        newly_acked > 0
    }

    /// Handles progress without SACK. In recovery, a partial acknowledgement shows that the next
    /// segment is lost (RFC 6582 §3.2 step 3); otherwise all assumptions about segments in flight
    /// are void.
    #[cold]
    fn on_progress_without_sack(&mut self) {
        match self.recovery {
            Recovery::Fast { point, echo: false, .. } if self.una < point => self.board.lose_first(),
            Recovery::Timeout { .. } => {}
            _ => self.board.forget_sacked(),
        }
    }

    /// Detects losses by RACK or DupThresh. Returns the bytes newly marked.
    fn detect_losses(&mut self, now: Time, dsack: bool, recovered: bool) -> u64 {
        let Some(rack) = &mut self.rack else {
            let dup_thresh = self.reordering.map_or(DUP_THRESH, |reordering| reordering.degree);
            return self.board.detect_losses(self.mss, dup_thresh);
        };
        rack.update_reo_wnd(RackState {
            una: self.una,
            nxt: self.nxt,
            dsack,
            in_recovery: matches!(
                self.recovery,
                Recovery::Fast { echo: false, .. } | Recovery::Timeout { .. }
            ),
            recovered,
            segs_sacked: self.board.segs_sacked(),
            min_rtt: self.min_rtt,
            srtt: self.rto.srtt(),
        });
        let (lost, next) = self.board.detect_losses_by_time(now, rack);
        self.rack_at = next;
        lost
    }

    /// Returns true if the tail may be probed. RFC 8985 §7.2.
    fn may_probe(&self) -> bool {
        self.rack.is_some()
            && !self.board.is_empty()
            && self.board.segs_sacked() == 0
            && matches!(self.recovery, Recovery::Open | Recovery::Fast { echo: true, .. })
    }

    /// Undoes the latest reduction if this acknowledgement shows that it was spurious. `original` is
    /// F-RTO's sign. Returns true if it was undone.
    fn undo_spurious(&mut self, now: Time, info: &AckInfo<'_>, prior_una: u64, original: bool) -> bool {
        let Some(undo) = &mut self.undo else { return false };
        if info.ece {
            // RFC 4015 §3.2: a mark asks for the reduction in any case.
            self.undo = None;
            return false;
        }
        let dsack = info.dsack.filter(|&(start, end)| end <= prior_una || self.board.was_resent(start));
        if let Some((start, end)) = dsack {
            undo.on_duplicate(end, (end - start).div_ceil(self.mss));
        }
        let (reported, progress) = (undo.is_reported(), self.una > prior_una);
        let late = progress && undo.is_late(now, info.timestamp_rtt);
        let (spurious, unmark) = match self.recovery {
            // Duplicates may be reported after the recovery.
            Recovery::Open => (reported, false),
            Recovery::Fast { echo: true, .. } => (false, false),
            Recovery::Fast { point, .. } if self.una >= point => (reported || late, false),
            // As in Linux, the fate of outstanding retransmissions is awaited.
            Recovery::Fast { .. } if reported => (true, false),
            Recovery::Fast { .. } => (late && self.board.resent_out() == 0, true),
            Recovery::Timeout { .. } => (original || progress && (reported || late), true),
        };
        if late && !matches!(self.recovery, Recovery::Open) {
            if let Some(reordering) = &mut self.reordering {
                reordering.on_overtaken(prior_una, reordering.fack(), self.mss);
            }
            if let Some(rack) = &mut self.rack {
                rack.see_reordering();
            }
        }
        if spurious {
            if unmark {
                self.board.unmark_losses();
            }
            if reported && let Some(rack) = &mut self.rack {
                rack.keep_window();
            }
            self.undo = None;
            self.recovery = Recovery::Open;
            self.congestion.on_spurious(now);
            // Linux, `tcp_ecn_withdraw_cwr`.
            self.announce_cwr = false;
            self.counters.undone += 1;
        }
        spurious
    }

    /// Takes F-RTO's step after an acknowledgement that did not show an original. RFC 5682 §3.1.
    fn advance_frto(&mut self, progress: bool, delivered: bool) {
        let has_new = self.unsent() > 0 && self.una + self.peer_window > self.nxt;
        let Recovery::Timeout { point, frto, new_first, .. } = &mut self.recovery else { return };
        *new_first = false;
        if !*frto {
            return;
        }
        if self.nxt > *point {
            // Step 3a: an acknowledgement of what was sent since then alone shows a real loss.
            *frto = progress || !delivered;
        } else if progress {
            // Step 2b: new data leaves first. Without any, retransmissions go on.
            *new_first = has_new;
            *frto = has_new;
        }
    }

    /// Leaves recovery if it is complete. Returns true if it has just ended.
    fn leave_recovery(&mut self, now: Time) -> bool {
        match self.recovery {
            Recovery::Fast { point, .. } if self.una >= point => {
                self.recovery = Recovery::Open;
                self.congestion.on_recovered(now);
            }
            // After a timeout the window has grown from one segment, and stays as it is.
            Recovery::Timeout { point, .. } if self.una >= point => self.recovery = Recovery::Open,
            _ => return false,
        }
        true
    }

    /// Begins a recovery for losses or an ECN echo. `in_flight` is what was outstanding before this
    /// acknowledgement, which counts as delivered during recovery.
    fn enter_recovery(&mut self, now: Time, in_flight: u64, ece: bool) {
        let echoed = ece && self.una > self.ecn_point;
        // Data sent after the last reduction and lost requires another one, even if the recovery
        // that has just ended has already retransmitted it.
        let lost = self.board.has_losses();
        match &mut self.recovery {
            Recovery::Open if lost || echoed => {
                self.counters.reductions += 1;
                self.undo =
                    (lost && !ece && self.undoes).then(|| Undo::new(self.una, self.board.resent_out()));
                self.congestion.on_congestion(now, in_flight, if lost { Signal::Loss } else { Signal::Ecn });
                self.recovery = Recovery::Fast {
                    point: self.nxt,
                    echo: !lost,
                    prr: Prr::new(in_flight),
                    window: self.board.pipe(),
                    first: self.board.has_lost(),
                };
                self.ecn_point = self.nxt;
                // RFC 3168 §6.1.2: CWR reports every reduction, whatever its reason.
                self.announce_cwr = true;
                if lost {
                    self.tlp.cancel();
                }
            }
            // RFC 3168 §6.1.2: at most one reduction per window. The loss is repaired without
            // another.
            Recovery::Fast { point, echo: echo @ true, first, .. } if lost => {
                *echo = false;
                self.tlp.cancel();
                *point = self.nxt;
                *first = self.board.has_lost();
            }
            _ => {}
        }
    }

    /// Returns the earliest expiry of a timer of this half.
    pub(crate) fn timer_at(&self) -> Option<Time> {
        [self.rto_at, self.persist_at, self.rack_at, self.tlp.pto_at].into_iter().flatten().min()
    }

    /// Returns the time at which pacing releases the next segment, if only pacing delays it.
    pub(crate) fn paced_until(&mut self, now: Time) -> Option<Time> {
        (self.pace_at > now && self.next_kind(self.pace_at).is_some()).then_some(self.pace_at)
    }

    /// Handles the timers that have expired at `now`.
    pub(crate) fn on_timer(&mut self, now: Time) {
        if self.persist_at.is_some_and(|at| at <= now) {
            // RFC 9293 §3.8.6.1: probe a closed window, at growing intervals.
            self.persist_at = None;
            self.probe = true;
            self.rto.back_off();
        }
        if self.rack_at.is_some_and(|at| at <= now) {
            // RFC 8985 §6.3: no acknowledgement came within the reordering window.
            let lost = self.detect_losses(now, false, false);
            if lost > 0 {
                self.enter_recovery(now, self.nxt - self.una, false);
            }
        }
        if self.tlp.pto_at.is_some_and(|at| at <= now) {
            self.tlp.pto_at = None;
            // RFC 8985 §7.3: the retransmission timer restarts with the probe.
            self.tlp.due = true;
            self.rto_at = Some(now + self.rto.rto());
        }
        if self.rto_at.is_some_and(|at| at <= now) {
            self.rto_at = None;
            if self.board.is_empty() {
                return;
            }
            let first = !matches!(self.recovery, Recovery::Timeout { .. });
            self.counters.timeouts += 1;
            // A timeout in a recovery is judged with that, and what is still in flight shows nothing.
            // Linux, `tcp_enter_loss`.
            let repairs = matches!(self.recovery, Recovery::Fast { echo: false, .. });
            if first && !repairs {
                self.undo = self.undoes.then(|| Undo::new(self.una, self.board.resent_out()));
            }
            if !self.sack {
                // Without SACK, segments marked as delivered were assumptions.
                self.board.forget_sacked();
            }
            self.congestion.on_rto(now, self.nxt - self.una, first);
            // RFC 8985 §6.3: segments sent too recently to be acknowledged are not lost.
            let rack = self.rack.as_ref();
            self.board.mark_lost_on_timeout(|sent| rack.is_some_and(|rack| rack.lost_at(sent.sent_at) > now));
            self.rack_at = None;
            self.tlp.cancel();
            let frto = self.sack && self.undo.is_some() && !repairs;
            self.recovery = Recovery::Timeout { point: self.nxt, first: true, frto, new_first: false };
            self.ecn_point = self.nxt;
            self.announce_cwr = true;
            // RFC 6298 §5.5 and §5.6: back off and restart the timer.
            self.rto.back_off();
            self.rto_at = Some(now + self.rto.rto());
            self.pace_at = now;
        }
    }

    /// Returns the kind of segment that would leave next without pacing.
    fn next_kind(&mut self, now: Time) -> Option<Kind> {
        let pipe = self.board.pipe();
        let cwnd = self.cwnd();
        if matches!(self.recovery, Recovery::Timeout { new_first: true, .. }) {
            let kind = self.next_new(now, pipe, cwnd);
            let Recovery::Timeout { point, frto, new_first, .. } = &mut self.recovery else { return kind };
            if kind.is_some() || self.nxt > *point {
                return kind;
            }
            // RFC 5682 §3.1 step 2b: no new data can leave, so the losses are repaired.
            (*frto, *new_first) = (false, false);
        }
        let urged = matches!(
            self.recovery,
            Recovery::Fast { first: true, .. } | Recovery::Timeout { first: true, .. }
        );
        if let Some(lost) = self.board.next_lost()
            // With nothing in flight, one segment leaves even if its FIN exceeds the window by a
            // byte.
            && (urged || pipe == 0 || pipe + lost.weight <= cwnd)
        {
            return Some(Kind::Retransmission);
        }
        self.next_new(now, pipe, cwnd)
    }

    /// Returns the kind of new segment that would leave next without pacing.
    fn next_new(&mut self, now: Time, pipe: u64, cwnd: u64) -> Option<Kind> {
        if self.una == 0 {
            return None;
        }
        let window_edge = self.una + self.peer_window;
        let unsent = self.unsent();
        if unsent > 0 {
            let most = unsent.min(self.most());
            let len = most.min(window_edge.saturating_sub(self.nxt));
            // RFC 9293 §3.8.6.2.1: a window that would shorten a segment waits, unless nothing is
            // outstanding.
            let silly = len < most && !self.board.is_empty();
            let fits = len > 0 && !silly && !self.is_held_by_nagle(len) && pipe + self.weight(len) <= cwnd;
            let burst = self.burst(now, cwnd.saturating_sub(pipe)).filter(|_| fits)?;
            return Some(Kind::New { len, burst });
        }
        let fin = self.closed && !self.hold_fin && !self.fin_sent && pipe < cwnd.max(1);
        fin.then_some(Kind::Fin)
    }

    /// Returns true if a new segment of this length waits for acknowledgements. The last segment
    /// before a close does not, as in Linux.
    fn is_held_by_nagle(&self, len: u64) -> bool {
        let is_last = self.closed && !self.hold_fin && self.nxt + len == self.written;
        len < self.most()
            && !is_last
            && match self.nagle {
                Nagle::Off => false,
                // RFC 9293 §3.7.4.
                Nagle::Standard => self.nxt > self.una,
                Nagle::Minshall => self.small_end > self.una,
            }
    }

    /// Returns the next segment that may leave now.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Outgoing> {
        if self.probe {
            self.probe = false;
            // An old sequence number makes the receiver answer with its window.
            return Some(Outgoing {
                seq: self.una - 1,
                payload: 0,
                fin: false,
                priority: None,
                retransmission: true,
            });
        }
        if self.tlp.due {
            self.tlp.due = false;
            if let Some(probe) = self.tail_probe(now) {
                return Some(probe);
            }
        }
        if self.una == 0 || self.pace_at > now && self.burst == 0 {
            return None;
        }
        let idle = self.board.is_empty();
        self.held_back = 0;
        let Some(kind) = self.next_kind(now) else {
            self.burst = 0;
            let (pipe, cwnd) = (self.board.pipe(), self.cwnd());
            let room = cwnd.saturating_sub(pipe).min((self.una + self.peer_window).saturating_sub(self.nxt));
            if self.unsent() > 0 && room >= self.mss && self.burst(now, room).is_none() {
                self.held_back = cwnd - pipe;
                self.note_usage(true);
            }
            self.note_send_limit(now);
            return None;
        };
        if idle {
            let (idle, rto) = (now - self.last_sent_at, self.rto.rto());
            let expired = self.slow_start_after_idle && idle > rto;
            self.congestion.on_idle_restart(now, self.rate.is_app_limited(), expired && !self.idle_decay);
            if expired && self.idle_decay {
                let timeouts = (idle.as_nanos() - 1) / rto.as_nanos().max(1);
                self.congestion.on_idle_decay(u32::try_from(timeouts).unwrap_or(u32::MAX));
            }
        }
        let stamp = self.rate.on_sent(now, idle);
        let outgoing = match kind {
            Kind::Retransmission => {
                let sent = self.board.resend(now, stamp)?;
                if self.rack.is_some() {
                    self.board.watch(&sent);
                }
                if let Some(undo) = &mut self.undo {
                    undo.on_resent(now);
                }
                if let Recovery::Timeout { first, .. } = &mut self.recovery {
                    *first = false;
                }
                if let Recovery::Fast { first, .. } = &mut self.recovery {
                    *first = false;
                    if sent.seq <= self.una {
                        // RFC 6675 §5.1: restarts the timer for the retransmission of the first
                        // hole.
                        self.rto_at = None;
                    }
                }
                self.counters.retransmissions += 1;
                Outgoing::again(&sent)
            }
            Kind::New { len, burst } => {
                self.burst = burst.saturating_sub(len);
                let priority = self.take_priority(self.nxt + len);
                let fin = self.closed && !self.hold_fin && self.nxt + len == self.written;
                self.send_new(now, len, fin, priority, stamp)
            }
            Kind::Fin => self.send_new(now, 0, true, None, stamp),
        };
        self.note_sent(now, &outgoing);
        if !outgoing.retransmission && self.may_probe() {
            self.tlp.arm(now, self.rto.srtt(), self.board.is_single(), self.rto_at);
        }
        Some(outgoing)
    }

    /// Returns a tail loss probe: a new segment if the other end's window has room, otherwise the
    /// last one again. It ignores the congestion window. RFC 8985 §7.3.
    fn tail_probe(&mut self, now: Time) -> Option<Outgoing> {
        if !self.may_probe() {
            return None;
        }
        let room = (self.una + self.peer_window).saturating_sub(self.nxt);
        let len = self.unsent().min(self.most()).min(room);
        let stamp = self.rate.on_sent(now, false);
        let outgoing = if len > 0 {
            let priority = self.take_priority(self.nxt + len);
            let fin = self.closed && !self.hold_fin && self.nxt + len == self.written;
            self.send_new(now, len, fin, priority, stamp)
        } else {
            let sent = self.board.resend_last(now, stamp)?;
            self.board.watch(&sent);
            self.counters.retransmissions += 1;
            Outgoing::again(&sent)
        };
        self.counters.tail_probes += 1;
        self.tlp.on_sent(self.nxt, outgoing.retransmission);
        self.note_sent(now, &outgoing);
        Some(outgoing)
    }

    fn note_sent(&mut self, now: Time, outgoing: &Outgoing) {
        self.counters.segments += 1;
        self.last_sent_at = now;
        let bytes = u64::from(outgoing.payload);
        if let Recovery::Fast { prr, .. } = &mut self.recovery {
            prr.on_sent(bytes);
        }
        // The window ends sending where no whole segment is left of it.
        self.note_usage(self.board.pipe() + self.mss > self.cwnd());
        if self.unpaced > 0 {
            // Linux, `tcp_update_skb_after_send`: the first ten segments leave at once.
            self.unpaced -= 1;
        } else if let Some(rate) = self.pacing_rate() {
            self.pace_at = self.pace_at.max(now) + rate.transmission_time(Bytes::new(bytes));
        }
        if self.rto_at.is_none() {
            self.rto_at = Some(now + self.rto.rto());
        }
    }

    fn note_usage(&mut self, limited: bool) {
        if let Some(usage) = &mut self.usage {
            usage.note(self.una, self.nxt, limited);
        }
    }

    /// Returns the bytes of the window that count as used at an acknowledgement.
    fn used(&self, prior_in_flight: u64) -> u64 {
        self.usage.map_or(prior_in_flight + self.held_back, |usage| usage.of(self.cwnd()))
    }

    fn send_new(
        &mut self,
        now: Time,
        len: u64,
        fin: bool,
        priority: Option<Priority>,
        stamp: super::rate::DeliveryStamp,
    ) -> Outgoing {
        let seq = self.nxt;
        let end = seq + len + u64::from(fin);
        if len < self.most() {
            self.small_end = end;
        }
        let weight = self.weight(end - seq);
        self.fin_sent |= fin;
        self.nxt = end;
        self.board.push(Sent {
            seq,
            end,
            weight,
            priority,
            fin,
            sent_at: now,
            stamp,
            sacked: false,
            lost: false,
            resent: false,
            ambiguous: false,
        });
        Outgoing { seq, payload: short(len), fin, priority, retransmission: false }
    }

    /// Returns the most urgent priority of the bytes up to `end`, which are about to leave.
    fn take_priority(&mut self, end: u64) -> Option<Priority> {
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

    /// Marks samples as limited by the application if it writes later than the path could have carried
    /// more. Linux, `tcp_rate_check_app_limited`.
    fn note_application_limit(&mut self) {
        if self.unsent() < self.mss && self.board.pipe() < self.cwnd() && !self.board.has_lost() {
            self.rate.mark_app_limited(self.board.pipe());
        }
    }

    fn note_send_limit(&mut self, now: Time) {
        let window_edge = self.una + self.peer_window;
        if self.unsent() > 0 && window_edge <= self.nxt && self.board.is_empty() && self.persist_at.is_none()
        {
            self.persist_at = Some(now + self.rto.rto());
        }
    }
}

enum Kind {
    Retransmission,
    /// New data; `burst` bytes may leave at once, including this segment.
    New {
        len: u64,
        burst: u64,
    },
    Fin,
}

/// Length of a segment as 32 bits: it is at most an MSS.
fn short(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
