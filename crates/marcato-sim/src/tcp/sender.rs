//! Sending half of a connection: it joins buffer, windows, timers, pacing and loss recovery.

use marcato_units::{Duration, Priority, Rate, Stream, Time};

use super::config::{TcpConfigError, TcpEnd};
use super::congestion::{AckEvent, LossState, Signal};
use super::pacing::{Pacing, window_rate};
use super::peer_window::PeerWindow;
use super::rack::RackState;
use super::rate::DeliveryStamp;
use super::recovery::{Left, Recovery};
use super::samples::Samples;
use super::scoreboard::{Scoreboard, Sent};
use super::segmentation::Segmentation;
use super::send_buffer::SendBuffer;
use super::timers::Timers;
use super::window::CongestionWindow;

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
    /// Selective acknowledgements. Without SACK, duplicate acknowledgements are counted (RFC 6582).
    pub(crate) sack: bool,
    /// SND.UNA. `nxt` is SND.NXT.
    pub(crate) una: u64,
    pub(crate) nxt: u64,
    pub(crate) segments: Segmentation,
    pub(crate) buffer: SendBuffer,
    peer: PeerWindow,
    board: Scoreboard,
    pub(crate) recovery: Recovery,
    timers: Timers,
    pacing: Pacing,
    window: CongestionWindow,
    pub(crate) samples: Samples,
    pub(crate) counters: SenderCounters,
}

impl Sender {
    pub(crate) fn new(end: &TcpEnd, stream: Stream) -> Result<Self, TcpConfigError> {
        let config = &end.tcp;
        Ok(Self {
            sack: config.sack,
            una: 0,
            nxt: 1,
            segments: Segmentation::new(config),
            buffer: SendBuffer::new(config),
            peer: PeerWindow::default(),
            board: Scoreboard::default(),
            recovery: Recovery::new(config),
            timers: Timers::new(config),
            pacing: Pacing::new(config),
            window: CongestionWindow::new(end, stream)?,
            samples: Samples::default(),
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
        self.peer = PeerWindow::new(window);
        self.window.last_sent_at = now;
        if let Some(rtt) = rtt {
            self.timers.rto.sample(rtt);
            self.samples.min_rtt = Some(rtt);
            self.samples.rtt = Some(rtt);
        } else if let Some(rtt) = echo_rtt {
            // RFC 7323 §4: the timestamp tells which transmission was answered.
            self.timers.rto.sample(rtt);
        } else if resent > 0 {
            // RFC 6298 §5.7.
            self.timers.rto.raise(Duration::from_secs(3));
        }
        if resent > 1 {
            // RFC 5681 §3.1: the initial window after a lost SYN or SYN-ACK is one segment. RFC 6928
            // §2 allows a single loss, since the timeout of one second may be spurious.
            self.window.control.on_lost_handshake();
        }
        self.window.control.on_established(now, rtt);
    }

    /// Returns the free space of the send buffer.
    pub(crate) fn room(&self) -> u64 {
        self.buffer.room(self.una)
    }

    /// Returns the bytes written and never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.buffer.unsent(self.nxt)
    }

    /// Returns true if the application is asked for more data.
    pub(crate) fn is_writable(&self) -> bool {
        self.buffer.is_writable(self.una, self.nxt)
    }

    /// Buffers `len` bytes, or as many as fit. Returns how many.
    pub(crate) fn write(&mut self, len: u64, priority: Priority) -> u64 {
        if self.buffer.is_closed() || len == 0 {
            return 0;
        }
        self.note_application_limit();
        self.buffer.write(self.una, len, priority)
    }

    /// Returns the bytes that a segment of `len` bytes counts as in the window.
    fn weight(&self, len: u64) -> u64 {
        if self.window.control.counts_segments() { self.segments.mss } else { len }
    }

    /// Returns true if everything, the FIN included, has been acknowledged.
    pub(crate) fn finished(&self) -> bool {
        self.buffer.is_finished(self.una)
    }

    pub(crate) fn pipe(&self) -> u64 {
        self.board.pipe()
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.timers.rto.srtt()
    }

    pub(crate) fn rto(&self) -> Duration {
        self.timers.rto.rto()
    }

    pub(crate) fn ssthresh(&self) -> u64 {
        self.window.control.ssthresh()
    }

    pub(crate) fn lost(&self) -> u64 {
        self.board.lost_bytes
    }

    /// Returns the window in force: the congestion control's, or that of proportional rate
    /// reduction.
    pub(crate) fn cwnd(&self) -> u64 {
        let prr = self.recovery.window().filter(|_| self.window.control.uses_prr());
        prr.unwrap_or_else(|| self.window.control.cwnd())
    }

    pub(crate) fn pacing_rate(&self) -> Option<Rate> {
        self.pacing.rate(&*self.window.control, self.timers.rto.srtt())
    }

    /// Returns how much new data may leave in one burst with `room` bytes of free window; `None` if
    /// it should wait for more room.
    fn burst(&self, now: Time, room: u64) -> Option<u64> {
        let left = self.pacing.left();
        let Some(offload) = self.pacing.offload.filter(|_| left == 0) else { return Some(left) };
        let (control, srtt) = (&*self.window.control, self.timers.rto.srtt());
        let rate = control.pacing_rate().or_else(|| window_rate(control, srtt));
        // Linux: sk_pacing_shift 10, tcp_min_tso_segs 2, tcp_tso_win_divisor 3.
        let millisecond = rate.map_or(0, |rate| rate.bytes_in(Duration::from_millis(1)).get());
        let goal =
            millisecond.min(offload.most).min(self.cwnd() / 3).max(2 * self.segments.mss).min(self.unsent());
        let half = srtt.map_or(Duration::ZERO, |srtt| srtt / 2);
        let urged =
            self.board.is_empty() || !self.recovery.is_open() || now - self.window.last_sent_at >= half;
        (room >= goal || urged).then_some(goal)
    }

    pub(crate) fn loss_state(&self) -> LossState {
        self.recovery.loss_state()
    }

    /// Handles an acknowledgement. Returns true if it moved SND.UNA.
    pub(crate) fn on_ack(&mut self, now: Time, info: AckInfo<'_>) -> bool {
        // Acknowledges data never sent, or is older than another acknowledgement.
        if info.ack > self.nxt || info.ack < self.una {
            return false;
        }
        let same_window = self.peer.on_ack(&info, self.una);
        let prior_in_flight = self.board.pipe();
        let prior_una = self.una;
        // RFC 5681 §2: definition of a duplicate acknowledgement.
        let duplicate =
            !self.sack && info.ack == self.una && info.is_bare && same_window && !self.board.is_empty();
        // A duplicate shows that a segment has left the network, but not which. The first one
        // behind the hole is assumed.
        let guess = if duplicate { self.board.next_unknown() } else { None };
        let (mut delivered, mut first_sent, mut last_sent) = (0u64, None::<Time>, None::<Time>);
        // True if a segment was delivered that was sent before the timeout, and only then.
        let mut original = false;
        let before_timeout = self.recovery.frto_point().unwrap_or(0);
        let Samples { rate, delivered: total, min_rtt, .. } = &mut self.samples;
        let (rack, min_rtt) = (&mut self.recovery.rack, *min_rtt);
        // Without SACK, what was delivered is a guess.
        let (mut reordering, mss) =
            (self.recovery.reordering.as_mut().filter(|_| self.sack), self.segments.mss);
        let fack = reordering.as_ref().map_or(0, |reordering| reordering.fack());
        if let Some(rack) = rack {
            rack.begin_ack();
        }
        let mut note = |sent: &Sent, timestamp_rtt, is_guess: bool| {
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
            // Karn's rule, RFC 6298 §3: a retransmitted segment gives no round trip. Nor does a guess.
            if !sent.ambiguous && !is_guess {
                first_sent = Some(first_sent.map_or(sent.sent_at, |t| t.min(sent.sent_at)));
                last_sent = Some(last_sent.map_or(sent.sent_at, |t| t.max(sent.sent_at)));
            }
        };
        if info.ack > self.una {
            self.una = info.ack;
            self.board.ack(info.ack, |sent| note(sent, info.timestamp_rtt, false));
        }
        for &(start, end) in info.sack.iter().chain(&guess) {
            if start >= self.una && end <= self.nxt && start < end {
                // RFC 7323 §4.3: the echo belongs to a segment in order, never to a SACKed one.
                self.board.sack(start, end, |sent| note(sent, None, guess.is_some()));
            }
        }
        let newly_acked = self.una - prior_una;
        let ends = [prior_una, self.una];
        let undone = self.recovery.end_spurious(now, &info, ends, original, &mut self.board, mss);
        if undone {
            self.window.control.on_spurious(now);
            self.counters.undone += 1;
        }
        if !self.sack && newly_acked > 0 {
            self.recovery.on_progress_without_sack(self.una, &mut self.board);
        }
        if let Some(sent_at) = first_sent {
            self.timers.rto.sample(now - sent_at);
        } else if let Some(rtt) = info.timestamp_rtt.filter(|_| newly_acked > 0) {
            // Only retransmissions were acknowledged; the timestamp identifies the transmission.
            // RFC 7323 §4.
            self.timers.rto.sample(rtt);
        }
        let rtt = last_sent.map(|sent_at| now - sent_at);
        self.samples.on_rtt(rtt);
        self.window.control.on_echo(newly_acked, self.una, self.nxt, info.ece);
        let left = self.recovery.leave(self.una);
        if left == Left::Reduction {
            self.window.control.on_recovered(now);
        }
        let recovered = left != Left::No && !undone;
        let has_new = self.unsent() > 0 && self.peer.room(self.una, self.nxt) > 0;
        self.recovery.advance_frto(self.nxt, newly_acked > 0, delivered > 0, has_new);
        let newly_lost = self.detect_losses(now, info.dsack.is_some(), recovered);
        let in_flight = self.nxt - prior_una;
        if self.timers.tlp.on_ack(self.una, info.dsack.map(|(_, end)| end), {
            info.is_bare && newly_acked == 0 && info.sack.is_empty()
        }) && self.recovery.is_open()
            && !self.board.has_losses()
        {
            // RFC 8985 §7.4: the probe repaired a loss, so the window is reduced at once.
            self.counters.reductions += 1;
            self.window.control.on_congestion(now, in_flight, Signal::Loss);
            self.window.control.on_recovered(now);
            self.recovery.on_repaired_by_probe();
        }
        self.enter_recovery(now, in_flight, info.ece);

        let event = AckEvent {
            now,
            una: self.una,
            nxt: self.nxt,
            newly_acked,
            delivered,
            newly_lost,
            prior_in_flight: prior_in_flight + self.pacing.held_back(),
            used: self.window.used(|| self.cwnd(), prior_in_flight + self.pacing.held_back()),
            in_flight: self.board.pipe(),
            rtt,
            srtt: self.timers.rto.srtt(),
            rate: self.samples.rate.sample(now, self.samples.min_rtt),
            total_delivered: self.samples.rate.delivered,
            total_lost: self.board.lost_bytes,
            state: self.loss_state(),
            next_send: self.pacing.at,
            burst_rate: self.pacing.offload.and_then(|_| window_rate(&*self.window.control, self.srtt())),
        };
        self.window.control.on_ack(&event);
        if self.window.control.limits_itself() {
            self.samples.rate.mark_app_limited(self.board.pipe());
        }
        if self.window.control.uses_prr() && delivered > 0 {
            let (ssthresh, pipe) = (self.ssthresh(), self.board.pipe());
            let is_safe = newly_acked > 0 && newly_lost == 0;
            self.recovery.reduce(delivered, ssthresh, self.segments.mss, pipe, is_safe);
        }
        if newly_acked > 0 {
            // RFC 6298 §5.2 and §5.3: stop the timer if nothing is outstanding, otherwise restart
            // it.
            self.timers.rto_at = (!self.board.is_empty()).then(|| now + self.timers.rto.rto());
        }
        if !self.recovery.may_probe(&self.board) {
            self.timers.tlp.pto_at = None;
        } else if newly_acked > 0 {
            self.timers.arm_probe(now, self.board.is_single());
        }
        if self.peer.is_open() {
            self.timers.on_open_window();
        }
        newly_acked > 0
    }

    /// Detects losses. Returns the bytes newly marked.
    fn detect_losses(&mut self, now: Time, dsack: bool, recovered: bool) -> u64 {
        let state = RackState {
            una: self.una,
            nxt: self.nxt,
            dsack,
            in_recovery: self.recovery.repairs(),
            recovered,
            segs_sacked: self.board.segs_sacked(),
            min_rtt: self.samples.min_rtt,
            srtt: self.srtt(),
        };
        let (lost, next) = self.recovery.detect_losses(now, &mut self.board, self.segments.mss, state);
        self.timers.rack_at = next;
        lost
    }

    /// Begins a recovery for losses or an ECN echo, with `in_flight` bytes outstanding before.
    fn enter_recovery(&mut self, now: Time, in_flight: u64, ece: bool) {
        let (ends, tlp) = ([self.una, self.nxt], &mut self.timers.tlp);
        if let Some(signal) = self.recovery.enter(ends, in_flight, ece, &mut self.board, tlp) {
            self.counters.reductions += 1;
            self.window.control.on_congestion(now, in_flight, signal);
        }
    }

    /// Returns the earliest expiry of a timer of this half.
    pub(crate) fn timer_at(&self) -> Option<Time> {
        self.timers.earliest()
    }

    /// Returns the time at which pacing releases the next segment, if only pacing delays it.
    pub(crate) fn paced_until(&mut self, now: Time) -> Option<Time> {
        let at = self.pacing.at;
        (at > now && self.next_kind(at).is_some()).then_some(at)
    }

    /// Handles the timers that have expired at `now`.
    pub(crate) fn on_timer(&mut self, now: Time) {
        self.timers.on_persist_timer(now);
        if self.timers.rack_expired(now) {
            // RFC 8985 §6.3: no acknowledgement came within the reordering window.
            let lost = self.detect_losses(now, false, false);
            if lost > 0 {
                self.enter_recovery(now, self.nxt - self.una, false);
            }
        }
        self.timers.on_tail_timer(now);
        if !self.timers.rto_expired(now) || self.board.is_empty() {
            return;
        }
        self.counters.timeouts += 1;
        let first = self.recovery.on_timeout(now, [self.una, self.nxt], self.sack, &mut self.board);
        self.window.control.on_rto(now, self.nxt - self.una, first);
        self.timers.on_timeout(now);
        self.pacing.at = now;
    }

    /// Returns the kind of segment that would leave next without pacing.
    fn next_kind(&mut self, now: Time) -> Option<Kind> {
        let pipe = self.board.pipe();
        let cwnd = self.cwnd();
        if self.recovery.is_new_first() {
            let kind = self.next_new(now, pipe, cwnd);
            if kind.is_some() || !self.recovery.gives_up_frto(self.nxt) {
                return kind;
            }
        }
        let urged = self.recovery.is_urged();
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
        let unsent = self.unsent();
        if unsent > 0 {
            let most = unsent.min(self.segments.most());
            let len = most.min(self.peer.room(self.una, self.nxt));
            // RFC 9293 §3.8.6.2.1: a window that would shorten a segment waits, unless nothing is
            // outstanding.
            let silly = len < most && !self.board.is_empty();
            let fits = len > 0 && !silly && !self.is_held_by_nagle(len) && pipe + self.weight(len) <= cwnd;
            let burst = self.burst(now, cwnd.saturating_sub(pipe)).filter(|_| fits)?;
            return Some(Kind::New { len, burst });
        }
        (self.buffer.is_fin_due() && pipe < cwnd.max(1)).then_some(Kind::Fin)
    }

    /// Returns true if a new segment of this length waits for acknowledgements. The last segment
    /// before a close does not, as in Linux.
    fn is_held_by_nagle(&self, len: u64) -> bool {
        let is_last = self.buffer.ends_at(self.nxt + len);
        !is_last && self.segments.is_held_by_nagle(len, self.una, self.nxt)
    }

    /// Returns the next segment that may leave now.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Outgoing> {
        if self.timers.take_window_probe() {
            // An old sequence number makes the receiver answer with its window.
            return Some(Outgoing {
                seq: self.una - 1,
                payload: 0,
                fin: false,
                priority: None,
                retransmission: true,
            });
        }
        if std::mem::take(&mut self.timers.tlp.due)
            && let Some(probe) = self.tail_probe(now)
        {
            return Some(probe);
        }
        if self.una == 0 || self.pacing.is_early(now) {
            return None;
        }
        let idle = self.board.is_empty();
        self.pacing.hold_back(0);
        let Some(kind) = self.next_kind(now) else {
            self.pacing.set_left(0);
            let (pipe, cwnd) = (self.board.pipe(), self.cwnd());
            let room = cwnd.saturating_sub(pipe).min(self.peer.room(self.una, self.nxt));
            if self.unsent() > 0 && room >= self.segments.mss && self.burst(now, room).is_none() {
                self.pacing.hold_back(cwnd - pipe);
                self.window.note_usage(self.una, self.nxt, true);
            }
            self.note_send_limit(now);
            return None;
        };
        if idle {
            self.window.on_idle(now, self.timers.rto.rto(), self.samples.rate.is_app_limited());
        }
        let stamp = self.samples.rate.on_sent(now, idle);
        let outgoing = match kind {
            Kind::Retransmission => {
                let sent = self.board.resend(now, stamp)?;
                if self.recovery.rack.is_some() {
                    self.board.watch(&sent);
                }
                if self.recovery.on_resent(now, sent.seq, self.una) {
                    // RFC 6675 §5.1: restarts the timer for the retransmission of the first hole.
                    self.timers.rto_at = None;
                }
                self.counters.retransmissions += 1;
                Outgoing::again(&sent)
            }
            Kind::New { len, burst } => {
                self.pacing.set_left(burst.saturating_sub(len));
                self.send_data(now, len, stamp)
            }
            Kind::Fin => self.send_new(now, 0, true, None, stamp),
        };
        self.note_sent(now, &outgoing);
        if !outgoing.retransmission && self.recovery.may_probe(&self.board) {
            self.timers.arm_probe(now, self.board.is_single());
        }
        Some(outgoing)
    }

    /// Returns a tail loss probe: a new segment if the other end's window has room, otherwise the
    /// last one again. It ignores the congestion window. RFC 8985 §7.3.
    fn tail_probe(&mut self, now: Time) -> Option<Outgoing> {
        if !self.recovery.may_probe(&self.board) {
            return None;
        }
        let len = self.unsent().min(self.segments.most()).min(self.peer.room(self.una, self.nxt));
        let stamp = self.samples.rate.on_sent(now, false);
        let outgoing = if len > 0 {
            self.send_data(now, len, stamp)
        } else {
            let sent = self.board.resend_last(now, stamp)?;
            self.board.watch(&sent);
            self.counters.retransmissions += 1;
            Outgoing::again(&sent)
        };
        self.counters.tail_probes += 1;
        self.timers.tlp.on_sent(self.nxt, outgoing.retransmission);
        self.note_sent(now, &outgoing);
        Some(outgoing)
    }

    fn note_sent(&mut self, now: Time, outgoing: &Outgoing) {
        self.counters.segments += 1;
        self.window.last_sent_at = now;
        let bytes = u64::from(outgoing.payload);
        self.recovery.on_sent(bytes);
        // The window ends sending where no whole segment is left of it.
        let limited = self.board.pipe() + self.segments.mss > self.cwnd();
        self.window.note_usage(self.una, self.nxt, limited);
        self.pacing.on_sent(now, bytes, self.pacing_rate());
        if self.timers.rto_at.is_none() {
            self.timers.restart(now);
        }
    }

    /// Sends the next `len` bytes, with the FIN if they are the last.
    fn send_data(&mut self, now: Time, len: u64, stamp: DeliveryStamp) -> Outgoing {
        let end = self.nxt + len;
        let (fin, priority) = (self.buffer.ends_at(end), self.buffer.take_priority(end));
        self.send_new(now, len, fin, priority, stamp)
    }

    fn send_new(
        &mut self,
        now: Time,
        len: u64,
        fin: bool,
        priority: Option<Priority>,
        stamp: DeliveryStamp,
    ) -> Outgoing {
        let seq = self.nxt;
        let end = seq + len + u64::from(fin);
        self.segments.on_sent(len, end);
        let weight = self.weight(end - seq);
        self.buffer.fin_sent |= fin;
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

    /// Marks samples as limited by the application if it writes later than the path could have carried
    /// more. Linux, `tcp_rate_check_app_limited`.
    fn note_application_limit(&mut self) {
        if self.unsent() < self.segments.mss && self.board.pipe() < self.cwnd() && !self.board.has_lost() {
            self.samples.rate.mark_app_limited(self.board.pipe());
        }
    }

    fn note_send_limit(&mut self, now: Time) {
        if self.unsent() > 0 && self.peer.room(self.una, self.nxt) == 0 && self.board.is_empty() {
            self.timers.await_window(now);
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
