//! End of a TCP connection: its sender, its receiver and its state.

use marcato_scenario::tcp::{Congestion, PriorityOption};
use marcato_sched::lowprio::EpochReport;
use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Seed, Time};
use marcato_wire::Ecn;

use super::config::{TcpConfigError, TcpEnd};
use super::congestion::LossState;
use super::receiver::Receiver;
use super::segment::{Flags, MAX_SACK_BLOCKS, SackBlocks, Segment, TCP_HEADER, TIMESTAMPS};
use super::sender::{AckInfo, Outgoing, Sender};
use crate::app::ByteStream;
use crate::packet::IPV4_HEADER;
use crate::plt::{LowPacket, Plt, PltStats, Shift};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Listen,
    SynSent,
    SynReceived,
    Established,
    /// Reset by either end.
    Closed,
}

/// Counters and state of an end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpStats {
    /// Segments with data or FIN sent, retransmissions included.
    pub segments_sent: u64,
    /// Retransmissions among these segments.
    pub retransmissions: u64,
    /// Tail loss probes, either new segments or retransmissions, counted there too. RFC 8985 §7.
    pub tail_probes: u64,
    /// Expiries of the retransmission timer, also of that of the SYN or SYN-ACK.
    pub timeouts: u64,
    /// Window reductions for loss or ECN, timeouts excluded.
    pub reductions: u64,
    /// Reductions that proved spurious and were undone, timeouts included.
    pub undone: u64,
    /// Bytes that the other end has acknowledged or SACKed.
    pub delivered: Bytes,
    /// Congestion window in force.
    pub cwnd: Bytes,
    /// Slow start threshold.
    pub ssthresh: Bytes,
    /// Bytes in flight, by RFC 6675's estimate.
    pub in_flight: Bytes,
    /// Bytes that the application has written and that were never sent.
    pub unsent: Bytes,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Bytes that were taken for lost.
    pub lost: Bytes,
    /// Round-trip time that the latest acknowledgement gave; `None` if it gave none.
    pub rtt: Option<Duration>,
    /// Latest timestamp of the peer, in milliseconds of its clock (RFC 7323 §3.2); `None` without timestamps.
    pub peer_stamp: Option<u32>,
    /// Least round-trip time.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout in force.
    pub rto: Duration,
    /// Pacing rate, if paced.
    pub pacing_rate: Option<Rate>,
    /// State of loss recovery.
    pub state: LossState,
}

/// Options that are constant for a connection, and that its segments in virtual time therefore
/// omit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SynOptions {
    /// MSS option, which excludes the length of options. RFC 6691 §2.
    pub(crate) mss: u16,
    pub(crate) scale: u8,
    pub(crate) form: PriorityOption,
}

/// Effect of a segment on the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// New bytes of the stream in order.
    pub(crate) bytes: u64,
    /// True if the connection has just been established.
    pub(crate) connected: bool,
    /// True if the other end's stream has just ended.
    pub(crate) finished: bool,
    /// True if the other end has just reset the connection, or refused it.
    pub(crate) reset: bool,
    /// True if data of this end was acknowledged, so that the send buffer has more room.
    pub(crate) acked: bool,
    /// True if data of this end was acknowledged or SACKed.
    pub(crate) progressed: bool,
}

#[derive(Debug)]
pub(crate) struct Connection {
    config: TcpEnd,
    state: State,
    sender: Sender,
    receiver: Receiver,
    /// Initial sequence number of this end.
    isn: u32,
    peer_isn: u32,
    /// True if a SYN or SYN-ACK is to be sent.
    syn_due: bool,
    syn_sent_at: Time,
    syn_at: Option<Time>,
    syn_tries: u32,
    /// Expiries of the timer of the SYN or SYN-ACK.
    syn_timeouts: u32,
    /// True if both ends have agreed on timestamps; before that, if this end offers them. RFC 7323
    /// §3.2.
    timestamps: bool,
    /// Latest timestamp of the peer.
    peer_stamp: Option<u32>,
    /// TS.Recent: timestamp to echo. RFC 7323 §4.3.
    ts_recent: u32,
    ecn: bool,
    /// True once the other end's FIN and all data before it have arrived.
    peer_finished: bool,
    finish_reported: bool,
    /// Reset to be sent.
    rst: Option<Segment>,
    /// Low layer, if both ends have one.
    plt: Option<Box<Plt>>,
}

/// Attempts to send a SYN. The timeout doubles after each (RFC 6298 §2.1); Linux gives up after six
/// retransmissions.
const SYN_TRIES: u32 = 7;

impl Connection {
    /// End that has not begun. Its random streams are named after `name`.
    pub(crate) fn new(config: TcpEnd, seed: Seed, name: &str) -> Result<Self, TcpConfigError> {
        config.check()?;
        let isn = config.initial_sequence.unwrap_or_else(|| {
            u32::try_from(seed.stream(&format!("{name}/isn")).below(1 << 32)).unwrap_or(0)
        });
        let stream = seed.stream(&format!("{name}/congestion"));
        let plt = config.plt.map(|plt| Plt::new(plt, &config.tcp)).transpose()?.map(Box::new);
        Ok(Self {
            sender: Sender::new(&config, stream)?,
            receiver: Receiver::new(&config.tcp),
            timestamps: config.tcp.timestamps,
            peer_stamp: None,
            config,
            state: State::Listen,
            isn,
            peer_isn: 0,
            syn_due: false,
            syn_sent_at: Time::ZERO,
            syn_at: None,
            syn_tries: 0,
            syn_timeouts: 0,
            ts_recent: 0,
            ecn: false,
            peer_finished: false,
            finish_reported: false,
            rst: None,
            plt,
        })
    }

    /// Removes the low layer unless both ends have one.
    pub(crate) fn agree_on_layers(&mut self, peer: &mut Self) {
        if self.plt.is_none() || peer.plt.is_none() {
            self.plt = None;
            peer.plt = None;
        }
    }

    /// Begins the handshake.
    pub(crate) fn connect(&mut self) {
        self.state = State::SynSent;
        self.syn_due = true;
    }

    pub(crate) fn is_established(&self) -> bool {
        self.state == State::Established
    }

    pub(crate) fn write(&mut self, len: Bytes, priority: Priority) -> Bytes {
        let taken = self.sender.write(len.get(), priority);
        if let Some(plt) = &mut self.plt {
            plt.manager.write(taken, priority);
        }
        Bytes::new(taken)
    }

    pub(crate) fn room(&self) -> Bytes {
        Bytes::new(self.sender.room())
    }

    pub(crate) fn unsent(&self) -> Bytes {
        Bytes::new(self.sender.unsent())
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.sender.is_writable()
    }

    pub(crate) fn close(&mut self) {
        self.sender.buffer.close();
    }

    /// Aborts the connection: sends a reset to the other end and discards unsent data. RFC 9293
    /// §3.10.5.
    pub(crate) fn abort(&mut self) {
        if matches!(self.state, State::SynReceived | State::Established) {
            let flags = Flags { rst: true, ack: true, ..Flags::default() };
            let seq = wire(self.isn, self.sender.nxt);
            let ack = wire(self.peer_isn, self.receiver.next);
            self.rst = Some(Segment { seq, ack, flags, ..Segment::default() });
        }
        self.end();
    }

    /// Closes the connection without further segments.
    fn end(&mut self) {
        self.state = State::Closed;
        self.sender.buffer.close();
    }

    /// Returns true if everything written and the FIN have been acknowledged.
    pub(crate) fn all_acked(&self) -> bool {
        self.sender.finished()
    }

    pub(crate) fn set_reading(&mut self, reading: bool) {
        self.receiver.set_reading(reading);
    }

    pub(crate) fn bound_reads(&mut self, most: Bytes) {
        self.receiver.bound_reads(most.get());
    }

    /// Returns the stream offset one beyond the last byte written.
    pub(crate) fn write_offset(&self) -> u64 {
        self.plt.as_ref().map_or(self.sender.buffer.written - 1, |plt| plt.manager.written)
    }

    /// Returns true if the connection has a low layer.
    pub(crate) fn is_layered(&self) -> bool {
        self.plt.is_some()
    }

    /// Returns the counters of both layers; `None` without a low layer.
    pub(crate) fn plt_stats(&self) -> Option<PltStats> {
        self.plt.as_ref().map(|plt| plt.stats())
    }

    /// Returns the logged epochs of the low control module.
    pub(crate) fn lcm_epochs(&self) -> &[EpochReport] {
        self.plt.as_ref().map_or(&[], |plt| plt.epochs())
    }

    /// Returns the stream offset of the segment with sequence number `seq`; `None` if it has been
    /// acknowledged, or if the connection has no low layer and offsets follow from sequence
    /// numbers.
    pub(crate) fn stream_offset(&self, seq: u32) -> Option<u64> {
        let plt = self.plt.as_ref()?;
        plt.manager.offset_of(unwrap(self.sender.una, seq.wrapping_sub(self.isn)))
    }

    /// Sets the stream offset of the segment that arrives next.
    pub(crate) fn announce(&mut self, offset: Option<u64>) {
        if let Some(plt) = &mut self.plt {
            plt.incoming = offset;
        }
    }

    /// Handles a packet of the low layer.
    pub(crate) fn on_low(&mut self, now: Time, packet: &LowPacket) {
        // A peer that sends low packets has a connection. Until this end knows of it too, the
        // packets are lost.
        if self.state != State::Established {
            return;
        }
        let Some(plt) = &mut self.plt else { return };
        match packet {
            LowPacket::Data(data) => {
                plt.receiver.on_data(now, data.number.get());
                plt.reassembly.insert(data.offset.get(), u64::from(data.len), true);
            }
            LowPacket::Ack(ack) => {
                let shift = plt.module.on_ack(now, ack, &mut plt.manager);
                self.shift(shift);
            }
        }
    }

    /// Returns the next low packet that may leave now, with its length and layer.
    pub(crate) fn poll_low(&mut self, now: Time) -> Option<(LowPacket, u32, Layer)> {
        let plt = self.plt.as_mut().filter(|_| self.state == State::Established)?;
        if let Some(ack) = plt.receiver.take_ack() {
            let header = IPV4_HEADER + TCP_HEADER + if self.timestamps { TIMESTAMPS } else { 0 };
            return Some((LowPacket::Ack(ack), header + ack.options(), plt.receiver.layer));
        }
        let (window, srtt) = (self.sender.cwnd(), self.sender.srtt());
        let (data, len, shift) = plt.module.poll(now, &mut plt.manager, window, srtt)?;
        self.shift(shift);
        Some((LowPacket::Data(data), len, Layer::Low))
    }

    /// Moves data between the two modules.
    fn shift(&mut self, Shift { to_high, from_high }: Shift) {
        let Some(plt) = &self.plt else { return };
        self.sender.buffer.put_back(to_high, plt.manager.priority);
        self.sender.buffer.take_back(self.sender.nxt, from_high);
        debug_assert_eq!(self.sender.unsent(), plt.manager.available());
    }

    /// Returns the form in which segments carry their priority.
    pub(crate) fn priority_option(&self) -> PriorityOption {
        self.config.tcp.priority_option.unwrap_or(PriorityOption::Rfc6994)
    }

    /// Returns the options of this end's SYN: the MSS with room for options, and the window scale.
    pub(crate) fn syn_options(&self) -> SynOptions {
        let form = self.config.tcp.priority_option;
        let options =
            if self.config.tcp.timestamps { TIMESTAMPS } else { 0 } + form.map_or(0, PriorityOption::bytes);
        let mss = self.config.tcp.mss.saturating_add(options.next_multiple_of(4));
        SynOptions {
            mss: u16::try_from(mss).unwrap_or(u16::MAX),
            scale: u8::try_from(self.receiver.scale).unwrap_or(14),
            form: self.priority_option(),
        }
    }

    /// Takes the round trip of the latest acknowledgement, if any.
    pub(crate) fn take_rtt(&mut self) -> Option<Duration> {
        self.sender.samples.rtt.take()
    }

    pub(crate) fn stats(&self) -> TcpStats {
        let counters = self.sender.counters;
        TcpStats {
            segments_sent: counters.segments,
            retransmissions: counters.retransmissions,
            tail_probes: counters.tail_probes,
            timeouts: counters.timeouts + u64::from(self.syn_timeouts),
            reductions: counters.reductions,
            undone: counters.undone,
            delivered: Bytes::new(self.sender.samples.delivered),
            cwnd: Bytes::new(self.sender.cwnd()),
            ssthresh: Bytes::new(self.sender.ssthresh()),
            in_flight: Bytes::new(self.sender.pipe()),
            unsent: self.unsent(),
            lost: Bytes::new(self.sender.lost()),
            rtt: self.sender.samples.latest_rtt,
            srtt: self.sender.srtt(),
            min_rtt: self.sender.samples.min_rtt,
            peer_stamp: self.peer_stamp,
            rto: self.sender.rto(),
            pacing_rate: self.sender.pacing_rate(),
            state: self.sender.loss_state(),
        }
    }

    /// Handles a segment that arrived with this ECN code point.
    pub(crate) fn on_segment(&mut self, now: Time, segment: &Segment, ecn: Ecn) -> Delivered {
        let mut delivered = Delivered::default();
        if segment.flags.rst {
            delivered.reset = self.on_reset(segment);
            return delivered;
        }
        if self.state == State::Closed {
            self.refuse(segment);
            return delivered;
        }
        if segment.flags.syn {
            self.on_syn(now, segment, &mut delivered);
            return delivered;
        }
        if !segment.flags.ack {
            return delivered;
        }
        if matches!(self.state, State::Listen | State::SynSent) {
            // RFC 9293 §3.10.7.2 and §3.10.7.3: an acknowledgement of data never sent is answered
            // by a reset.
            self.refuse(segment);
            return delivered;
        }
        if let (Some((value, _)), true) = (segment.timestamps, self.timestamps) {
            self.peer_stamp = Some(value);
            // RFC 7323 §5 (PAWS): a timestamp older than TS.Recent marks an old duplicate. Linux lets
            // it be older by a tick (`TCP_PAWS_WINDOW`).
            if value.wrapping_add(1).wrapping_sub(self.ts_recent) >= 1 << 31 {
                self.receiver.ack_now = true;
                return delivered;
            }
            // RFC 7323 §4.3: if one acknowledgement covers several segments, the first one's
            // timestamp is echoed, so that the round trip includes the acknowledgement's delay.
            // §5.3: a duplicate is outside the window (R2), and must not set TS.Recent (R3). Late
            // originals would be discarded as older than their own retransmission.
            let (seq, len) = (self.peer_seq(segment), u64::from(segment.sequence_len()));
            if seq <= self.receiver.acked && seq + len.max(1) > self.receiver.next {
                self.ts_recent = value;
            }
        }
        if self.state == State::SynReceived {
            // RFC 9293 §3.10.7.4: the segment must acknowledge this end's SYN, as nothing else has
            // been sent.
            if segment.ack != self.isn.wrapping_add(1) {
                self.refuse(segment);
                return delivered;
            }
            self.establish(now, segment, &mut delivered);
        }
        let before = self.sender.samples.delivered;
        let acked = self.on_ack(now, segment);
        let progressed = self.sender.samples.delivered > before;
        self.on_payload(now, segment, ecn);
        Delivered { connected: delivered.connected, acked, progressed, ..self.read() }
    }

    /// Handles a reset. Returns true if it ends the connection.
    fn on_reset(&mut self, segment: &Segment) -> bool {
        let valid = match self.state {
            State::Listen | State::Closed => false,
            State::SynSent => segment.flags.ack && segment.ack == self.isn.wrapping_add(1),
            State::SynReceived | State::Established => {
                let seq = self.peer_seq(segment);
                // RFC 5961 §3.2: a reset within the window, but not at RCV.NXT, may be forged and
                // is answered by a challenge ACK. A genuine sender responds with a reset at
                // RCV.NXT.
                self.receiver.ack_now |= seq != self.receiver.next && self.receiver.is_in_window(seq);
                seq == self.receiver.next
            }
        };
        if valid {
            self.end();
        }
        valid
    }

    /// Answers a segment of no connection by a reset that its sender accepts. RFC 9293 §3.10.7.1.
    fn refuse(&mut self, segment: &Segment) {
        let mut flags = Flags { rst: true, ..Flags::default() };
        let (seq, ack) = if segment.flags.ack {
            (segment.ack, 0)
        } else {
            flags.ack = true;
            (0, segment.seq.wrapping_add(segment.sequence_len()))
        };
        self.rst = Some(Segment { seq, ack, flags, ..Segment::default() });
    }

    /// Returns the data that the application reads now, if it is reading.
    pub(crate) fn read(&mut self) -> Delivered {
        let Some(bytes) = self.receiver.read() else { return Delivered::default() };
        let bytes = self.plt.as_mut().map_or(bytes, |plt| plt.reassembly.read());
        let finished = self.peer_finished && !self.finish_reported && self.receiver.is_read();
        self.finish_reported |= finished;
        Delivered { bytes, finished, ..Delivered::default() }
    }

    /// Returns the segment's sequence number, extended to 64 bits.
    fn peer_seq(&self, segment: &Segment) -> u64 {
        unwrap(self.receiver.next, segment.seq.wrapping_sub(self.peer_isn))
    }

    fn on_syn(&mut self, now: Time, segment: &Segment, delivered: &mut Delivered) {
        let peer_offers_ecn = segment.flags.ece;
        match self.state {
            State::Listen => {
                self.peer_isn = segment.seq;
                self.receiver.on_syn();
                self.sender.sack &= segment.sack_permitted;
                self.state = State::SynReceived;
                self.timestamps &= segment.timestamps.is_some();
                // RFC 3168 §6.1.1: ECE and CWR in the SYN offer ECN; ECE alone in the SYN-ACK
                // accepts it.
                self.ecn = self.config.tcp.ecn && peer_offers_ecn && segment.flags.cwr;
                self.syn_due = true;
            }
            State::SynSent if segment.flags.ack && segment.ack == self.isn.wrapping_add(1) => {
                self.peer_isn = segment.seq;
                self.receiver.on_syn();
                self.sender.sack &= segment.sack_permitted;
                self.ecn = self.config.tcp.ecn && peer_offers_ecn && !segment.flags.cwr;
                self.timestamps &= segment.timestamps.is_some();
                if let Some((value, _)) = segment.timestamps {
                    self.ts_recent = value;
                }
                // The handshake's last acknowledgement leaves alone, before any data.
                self.receiver.ack_now = true;
                self.establish(now, segment, delivered);
                return;
            }
            // The other end has retransmitted its SYN, so the SYN-ACK was lost.
            State::SynReceived => self.syn_due = true,
            State::SynSent | State::Established => self.receiver.ack_now = true,
            State::Closed => {}
        }
        if let Some((value, _)) = segment.timestamps {
            self.ts_recent = value;
        }
    }

    fn establish(&mut self, now: Time, segment: &Segment, delivered: &mut Delivered) {
        self.state = State::Established;
        self.syn_at = None;
        self.syn_due = false;
        let rtt = (self.syn_tries == 1).then(|| now - self.syn_sent_at);
        let (echo_rtt, window) = (self.echo_rtt(now, segment), u64::from(segment.window));
        self.sender.on_established(now, rtt, echo_rtt, self.syn_tries - 1, window);
        delivered.connected = true;
    }

    fn on_ack(&mut self, now: Time, segment: &Segment) -> bool {
        let ack = unwrap(self.sender.una, segment.ack.wrapping_sub(self.isn));
        let mut sack = [(0, 0); MAX_SACK_BLOCKS];
        let blocks = segment.sack.as_slice();
        for (wide, &(start, end)) in sack.iter_mut().zip(blocks) {
            let near = self.sender.una;
            *wide = (unwrap(near, start.wrapping_sub(self.isn)), unwrap(near, end.wrapping_sub(self.isn)));
        }
        let sack = &sack[..blocks.len()];
        // RFC 2883 §4: a first block below the cumulative acknowledgement, or within the second
        // block, reports a duplicate.
        let dsack = match sack {
            [(start, end), ..] if start < end && *end <= ack => Some((*start, *end)),
            [(start, end), second, ..] if start < end && second.0 <= *start && *end <= second.1 => {
                Some((*start, *end))
            }
            _ => None,
        };
        let timestamp_rtt = self.echo_rtt(now, segment);
        let una = self.sender.una;
        let acked = self.sender.on_ack(
            now,
            AckInfo {
                seq: self.peer_seq(segment),
                ack,
                sack,
                window: u64::from(segment.window),
                dsack,
                is_bare: segment.sequence_len() == 0,
                ece: self.ecn && segment.flags.ece,
                timestamp_rtt,
            },
        );
        if let Some(plt) = &mut self.plt
            && acked
        {
            plt.manager.on_high_acked(una, self.sender.una);
        }
        acked
    }

    /// Returns the round trip according to the segment's echoed timestamp, in whole milliseconds.
    fn echo_rtt(&self, now: Time, segment: &Segment) -> Option<Duration> {
        let (_, echo) = segment.timestamps.filter(|_| self.timestamps)?;
        Some(Duration::from_millis(u64::from(timestamp(now).wrapping_sub(echo))))
    }

    fn on_payload(&mut self, now: Time, segment: &Segment, ecn: Ecn) {
        if self.ecn && self.config.echoes_each_mark() {
            self.receiver.ack_now |= segment.payload > 0 && self.receiver.note_mark(ecn == Ecn::Ce);
        } else {
            // RFC 3168 §6.1.3: echo CE until a segment with CWR arrives.
            if segment.flags.cwr {
                self.receiver.echo_ce = false;
            }
            if self.ecn && ecn == Ecn::Ce {
                self.receiver.echo_ce = true;
            }
        }
        let seq = self.peer_seq(segment);
        let len = u64::from(segment.sequence_len());
        if len == 0 {
            if seq < self.receiver.next {
                // RFC 9293 §3.10.7.4: a window probe is outside the window and is answered by
                // an acknowledgement.
                self.receiver.ack_now = true;
            }
            return;
        }
        if segment.flags.fin {
            self.receiver.on_fin(seq + u64::from(segment.payload));
        }
        // A segment that is cut at the window's edge is left out: its retransmission brings all of
        // it.
        if let Some(plt) = &mut self.plt
            && let Some(offset) = plt.incoming.take()
            && self.receiver.takes_all(seq, len)
        {
            plt.reassembly.insert(offset, u64::from(segment.payload), false);
        }
        self.receiver.note_pause(now, self.sender.rto());
        self.receiver.on_data(now, seq, len, segment.priority);
        self.receiver.size_buffer(now, self.echo_rtt(now, segment));
        if self.receiver.finished() && !self.peer_finished {
            self.peer_finished = true;
            self.receiver.ack_now = true;
        }
    }

    /// Returns the times at which [`on_timer`](Self::on_timer) must be called: for the sender's
    /// timers, the delayed acknowledgement, pacing, and the low layer.
    pub(crate) fn timers(&mut self, now: Time) -> [Option<Time>; 4] {
        let slow = match self.state {
            State::Closed => return [None; 4],
            State::Established => self.sender.timer_at(),
            _ => self.syn_at,
        };
        let pace = if self.state == State::Established { self.sender.paced_until(now) } else { None };
        [slow, self.receiver.ack_at, pace, self.plt.as_ref().and_then(|plt| plt.timer_at())]
    }

    /// Handles the timers that have expired at `now`; extra calls are harmless.
    ///
    /// Returns true if the handshake has just been abandoned.
    pub(crate) fn on_timer(&mut self, now: Time) -> bool {
        if self.state == State::Closed {
            return false;
        }
        if self.receiver.ack_at.is_some_and(|at| at <= now) {
            self.receiver.ack_at = None;
            self.receiver.ack_now = true;
        }
        if self.syn_at.is_some_and(|at| at <= now) {
            self.syn_at = None;
            self.syn_timeouts += 1;
            self.syn_due = self.syn_tries < SYN_TRIES;
            if !self.syn_due {
                return true;
            }
        }
        if self.state == State::Established {
            self.sender.on_timer(now);
        }
        if let Some(plt) = &mut self.plt {
            plt.receiver.on_timer(now);
            let shift = plt.module.on_timer(now, &mut plt.manager);
            self.shift(shift);
        }
        false
    }

    /// Returns the next segment to send, and the ECN code point of its IP packet.
    pub(crate) fn poll(&mut self, now: Time) -> Option<(Segment, Ecn)> {
        if let Some(rst) = self.rst.take() {
            return Some((rst, Ecn::NotEct));
        }
        if self.syn_due && self.state != State::Closed {
            self.syn_due = false;
            return Some((self.syn(now), Ecn::NotEct));
        }
        if self.state != State::Established {
            return None;
        }
        if let Some((ack, ece)) = self.receiver.early.take() {
            return Some((self.early_acknowledgement(now, ack, ece), Ecn::NotEct));
        }
        // The client acknowledges the SYN-ACK before it sends data.
        if self.receiver.ack_now && self.sender.nxt == 1 {
            return Some((self.acknowledgement(now), Ecn::NotEct));
        }
        if let Some(plt) = &self.plt {
            self.sender.segments.chunk = Some(plt.manager.high_len(plt.module.moves()));
            self.sender.buffer.hold_fin = plt.module.is_busy();
        }
        if let Some(outgoing) = self.sender.poll(now) {
            if let Some(plt) = &mut self.plt
                && !outgoing.retransmission
                && outgoing.payload > 0
            {
                plt.manager.bind(outgoing.seq, u64::from(outgoing.payload));
            }
            return Some(self.data(now, outgoing));
        }
        self.receiver.ack_now.then(|| (self.acknowledgement(now), Ecn::NotEct))
    }

    fn syn(&mut self, now: Time) -> Segment {
        let answer = self.state == State::SynReceived;
        self.syn_sent_at = now;
        self.syn_at = Some(now + self.config.tcp.initial_rto.saturating_mul(1 << self.syn_tries.min(6)));
        self.syn_tries += 1;
        let flags = Flags {
            syn: true,
            ack: answer,
            ece: if answer { self.ecn } else { self.config.tcp.ecn },
            cwr: !answer && self.config.tcp.ecn,
            ..Flags::default()
        };
        Segment {
            seq: self.isn,
            ack: if answer { self.peer_isn.wrapping_add(1) } else { 0 },
            window: self.receiver.syn_window(),
            flags,
            timestamps: self.stamp(now),
            sack_permitted: self.sender.sack,
            ..Segment::default()
        }
    }

    fn acknowledgement(&mut self, now: Time) -> Segment {
        let segment = Segment { seq: wire(self.isn, self.sender.nxt), ..self.header(now) };
        self.receiver.on_ack_sent();
        segment
    }

    /// Builds an acknowledgement of less than has arrived, with the same right edge of the window.
    fn early_acknowledgement(&mut self, now: Time, ack: u64, ece: bool) -> Segment {
        let next = self.receiver.next;
        let mut segment = Segment { seq: wire(self.isn, self.sender.nxt), ..self.header(now) };
        segment.ack = wire(self.peer_isn, ack);
        segment.window += short(next - ack);
        segment.flags.ece = ece;
        segment
    }

    fn data(&mut self, now: Time, outgoing: Outgoing) -> (Segment, Ecn) {
        let mut segment = self.header(now);
        segment.seq = wire(self.isn, outgoing.seq);
        segment.payload = outgoing.payload;
        segment.flags.fin = outgoing.fin;
        if self.config.tcp.priority_option.is_some() && outgoing.payload > 0 {
            segment.priority = outgoing.priority;
            segment.fit_sack(self.priority_option());
        }
        // A full segment with options must not exceed the path's packet size, for which the MSS
        // leaves room. SACK blocks that do not fit go on a separate acknowledgement, if one is due.
        // (RFC 6691 §3 would shorten the payload instead.)
        if outgoing.payload + segment.sack_len() > self.config.tcp.mss {
            segment.sack = SackBlocks::default();
            if !self.receiver.ack_now {
                self.receiver.on_ack_sent();
            }
        } else {
            self.receiver.on_ack_sent();
        }
        let fresh = !outgoing.retransmission && outgoing.payload > 0;
        if self.ecn && fresh && self.sender.recovery.announce_cwr {
            segment.flags.cwr = true;
            self.sender.recovery.announce_cwr = false;
        }
        // RFC 3168 §6.1.5: retransmissions MUST NOT be ECN-capable.
        let capable = if self.config.tcp.congestion == Congestion::Prague { Ecn::Ect1 } else { Ecn::Ect0 };
        (segment, if self.ecn && fresh { capable } else { Ecn::NotEct })
    }

    fn header(&mut self, now: Time) -> Segment {
        let peer_isn = self.peer_isn;
        Segment {
            ack: wire(peer_isn, self.receiver.next),
            window: self.receiver.window(),
            flags: Flags { ack: true, ece: self.ecn && self.receiver.echo_ce, ..Flags::default() },
            timestamps: self.stamp(now),
            sack: if self.sender.sack {
                self.receiver.sack_blocks(|seq| wire(peer_isn, seq))
            } else {
                SackBlocks::default()
            },
            ..Segment::default()
        }
    }

    fn stamp(&self, now: Time) -> Option<(u32, u32)> {
        self.timestamps.then(|| (timestamp(now), self.ts_recent))
    }
}

/// Timestamp clock in milliseconds, one ahead of the run so that 0 is never sent. RFC 7323 §5.4.
#[expect(clippy::cast_possible_truncation, reason = "the timestamp clock wraps by design")]
fn timestamp(now: Time) -> u32 {
    (now.as_nanos() / 1_000_000 + 1) as u32
}

/// Length of a segment's data, which fits 32 bits.
fn short(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Converts a 64-bit sequence number to its 32 bits on the wire.
#[expect(clippy::cast_possible_truncation, reason = "the wire carries the low 32 bits")]
fn wire(isn: u32, seq: u64) -> u32 {
    isn.wrapping_add(seq as u32)
}

/// Returns the 64-bit sequence number closest to `near` whose low 32 bits are `low`. Windows are
/// below 2^31 (RFC 9293 §3.4), so it is the right one.
#[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are what is compared")]
fn unwrap(near: u64, low: u32) -> u64 {
    let distance = low.wrapping_sub(near as u32).cast_signed();
    near.saturating_add_signed(i64::from(distance))
}

impl ByteStream for Connection {
    fn write(&mut self, len: Bytes, priority: Priority) -> Bytes {
        self.write(len, priority)
    }

    fn write_offset(&self) -> u64 {
        self.write_offset()
    }

    fn room(&self) -> Bytes {
        self.room()
    }

    fn unsent(&self) -> Bytes {
        self.unsent()
    }

    fn is_writable(&self) -> bool {
        self.is_writable()
    }

    fn is_established(&self) -> bool {
        self.is_established()
    }

    fn close(&mut self) {
        self.close();
    }

    fn abort(&mut self) {
        self.abort();
    }

    fn set_reading(&mut self, reading: bool) {
        self.set_reading(reading);
    }

    fn bound_reads(&mut self, most: Bytes) {
        self.bound_reads(most);
    }

    fn stats(&self) -> TcpStats {
        self.stats()
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "test numbers are small, or wrap on purpose")]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_survive_the_wrap() {
        for near in [0u64, 5, 1 << 31, (1 << 32) - 3, 1 << 32, 7 << 32] {
            for ahead in [0u64, 1, 1000, (1 << 31) - 1] {
                assert_eq!(unwrap(near, (near + ahead) as u32), near + ahead);
                assert_eq!(unwrap(near + ahead, near as u32), near);
            }
        }
    }
}
