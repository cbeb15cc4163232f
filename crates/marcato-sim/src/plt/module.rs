//! Low control module: packets in flight, loss detection and permission to send (PLT §3.1).

use std::collections::VecDeque;

use marcato_sched::lowprio::{EpochReport, Lcm};
use marcato_units::{Bytes, Duration, Time};

use super::config::PltConfigError;
use super::manager::{Manager, Piece};
use super::{LowAck, LowData, PltConfig, PltStats, Wide};
use crate::packet::IPV4_HEADER;
use crate::ranges::Ranges;
use crate::tcp::rto::RtoEstimator;
use crate::tcp::{TCP_HEADER, TIMESTAMPS, Tcp};

/// Low packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    offset: u64,
    sent_at: Time,
    len: u32,
    /// Number of earlier transmissions of its data in the low layer.
    tries: u8,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    InFlight,
    Acked,
    Lost,
}

/// Transfer of data between the modules, after the LCM has lost or sent something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shift {
    /// Bytes that the HCM must now send.
    pub(crate) to_high: u64,
    /// Bytes that the HCM no longer has to send.
    pub(crate) from_high: u64,
}

/// Sending half of the low layer.
///
/// An acknowledgement only visits the packets that it newly covers. Packets are found by index,
/// each is judged once, and `edge` separates judged from open ones.
#[derive(Debug)]
pub(crate) struct LowModule {
    lcm: Lcm,
    /// Packets from number `base` on.
    sent: VecDeque<Sent>,
    base: u64,
    /// Numbers acknowledged at or above `base`.
    acked: Ranges,
    largest: Option<u64>,
    /// Edge: every number below is acknowledged or lost.
    edge: u64,
    outstanding: u64,
    in_flight: Bytes,
    /// Lost pieces to retransmit in the low layer, with their number of transmissions.
    again: VecDeque<(Piece, u8)>,
    header: u32,
    retransmissions: u8,
    relief: Option<u32>,
    reordering: u64,
    back_off: bool,
    rto: RtoEstimator,
    initial_min_rto: Duration,
    rto_at: Option<Time>,
    /// Time at which a window below one packet has room again, if data waits for that.
    wake_at: Option<Time>,
    epochs: Option<Vec<EpochReport>>,
    counters: PltStats,
}

impl LowModule {
    pub(crate) fn new(config: &PltConfig, tcp: &Tcp) -> Result<Self, PltConfigError> {
        Ok(Self {
            lcm: Lcm::new(config.lcm)?,
            sent: VecDeque::new(),
            base: 0,
            acked: Ranges::default(),
            largest: None,
            edge: 0,
            outstanding: 0,
            in_flight: Bytes::ZERO,
            again: VecDeque::new(),
            header: IPV4_HEADER + TCP_HEADER + if tcp.timestamps { TIMESTAMPS } else { 0 },
            retransmissions: config.low_retransmissions,
            relief: config.relief,
            reordering: u64::from(config.reordering),
            back_off: config.back_off,
            rto: RtoEstimator::new(tcp.initial_rto, config.min_rto, tcp.max_rto.max(config.min_rto)),
            initial_min_rto: config.initial_min_rto,
            rto_at: None,
            wake_at: None,
            epochs: config.log_epochs.then(Vec::new),
            counters: PltStats::default(),
        })
    }

    /// Returns true if this module has data in flight or waiting for retransmission.
    pub(crate) fn is_busy(&self) -> bool {
        self.outstanding > 0 || !self.again.is_empty()
    }

    /// Returns true if its window holds a packet; otherwise at most one leaves in each epoch.
    pub(crate) fn moves(&self) -> bool {
        self.lcm.window() >= self.lcm.config().packet
    }

    pub(crate) fn timer_at(&self) -> Option<Time> {
        [self.rto_at, self.wake_at].into_iter().flatten().min()
    }

    pub(crate) fn epochs(&self) -> &[EpochReport] {
        self.epochs.as_deref().unwrap_or_default()
    }

    pub(crate) fn stats(&self) -> PltStats {
        PltStats {
            low_outstanding: self.outstanding,
            low_window: self.lcm.window(),
            low_in_flight: self.in_flight,
            low_srtt: self.rto.srtt(),
            loss_rate: self.lcm.loss_rate(),
            target: self.lcm.target(),
            lcm: self.lcm.counters(),
            ..self.counters
        }
    }

    fn wire(&self, len: u32) -> Bytes {
        Bytes::from(self.header + len)
    }

    fn note_epoch(&mut self) {
        if let Some(epochs) = &mut self.epochs
            && let Some(report) = self.lcm.take_report()
        {
            epochs.push(report);
        }
    }

    /// Returns the silence after which all packets in flight are lost.
    fn timeout(&self) -> Duration {
        let rto = self.rto.rto();
        if self.counters.low_acked == 0 { rto.max(self.initial_min_rto) } else { rto }
    }

    /// Returns the next low packet that may leave now, and its length. `window` is the HCM's,
    /// `srtt` its round-trip time.
    pub(crate) fn poll(
        &mut self,
        now: Time,
        manager: &mut Manager,
        window: u64,
        srtt: Option<Duration>,
    ) -> Option<(LowData, u32, Shift)> {
        self.wake_at = None;
        // PLT's second footnote.
        let relieves = self.relief.is_some_and(|part| manager.waiting() / u64::from(part) > window);
        let len = match self.again.front() {
            Some((piece, _)) => piece.len,
            None if relieves => manager.next_len(),
            None => manager.new_len(),
        };
        if len == 0 {
            return None;
        }
        self.lcm.on_epoch(now);
        self.note_epoch();
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let packet = self.lcm.config().packet;
        if self.lcm.room(self.in_flight) < self.wire(len).min(packet) {
            if self.lcm.window() < packet {
                self.wake_at = self.lcm.next_epoch();
            }
            return None;
        }
        let mut shift = Shift::default();
        let (piece, tries) = if let Some(again) = self.again.pop_front() {
            again
        } else {
            let lost = if relieves { manager.take_lost() } else { None };
            self.counters.low_resent += u64::from(lost.is_some());
            let piece = lost.unwrap_or_else(|| manager.take_new());
            shift.from_high = piece.len;
            (piece, 0)
        };
        self.counters.low_resent += u64::from(tries > 0);
        if self.rto.srtt().is_none()
            && let Some(srtt) = srtt
        {
            // The path's round trip is known already, at least from the handshake.
            self.rto.sample(srtt);
        }
        let number = self.base + self.sent.len() as u64;
        self.sent.push_back(Sent { offset: piece.offset, sent_at: now, len, tries, fate: Fate::InFlight });
        self.outstanding += 1;
        self.in_flight += self.wire(len);
        self.counters.low_sent += 1;
        self.lcm.on_sent(now, self.wire(len), self.in_flight);
        if self.rto_at.is_none() {
            self.rto_at = Some(now + self.timeout());
        }
        let data = LowData { number: Wide::new(number), offset: Wide::new(piece.offset), len };
        Some((data, self.header + len, shift))
    }

    /// Handles an acknowledgement.
    pub(crate) fn on_ack(&mut self, now: Time, ack: &LowAck, manager: &mut Manager) -> Shift {
        let next = self.base + self.sent.len() as u64;
        let (mut newly, mut latest) = (Bytes::ZERO, None::<Time>);
        for (start, end) in ack.ranges() {
            let (mut from, end) = (start.max(self.base), end.min(next));
            while from < end {
                let Some((gap, gap_end)) = self.acked.first_gap(from, end) else { break };
                for number in gap..gap_end {
                    let Some(sent) = self.sent.get_mut(index(number - self.base)) else { continue };
                    let (was, len) = (sent.fate, sent.len);
                    sent.fate = Fate::Acked;
                    latest = latest.max(Some(sent.sent_at));
                    let piece = Piece { offset: sent.offset, len: u64::from(len) };
                    if was == Fate::Lost {
                        self.counters.low_spurious += 1;
                        continue;
                    }
                    newly += Bytes::from(self.header + len);
                    self.outstanding -= 1;
                    self.counters.low_acked += 1;
                    manager.on_low_acked(piece);
                }
                self.acked.insert(gap, gap_end);
                from = gap_end;
            }
            if start < end {
                self.largest = self.largest.max(Some(end - 1));
            }
        }
        // Numbers are never reused, so the sample is unambiguous (Karn's rule, RFC 6298 §3).
        if let Some(sent_at) = latest {
            self.rto.sample(now - sent_at);
            if let Some(srtt) = self.rto.srtt() {
                self.lcm.on_rtt(srtt);
            }
        }
        self.in_flight -= newly;
        if !newly.is_zero() {
            self.lcm.on_acked(now, newly);
        }
        let (shift, lost) = self.detect_losses(manager);
        if !lost.is_zero() {
            self.in_flight -= lost;
            self.lcm.on_lost(now, lost);
        }
        self.note_epoch();
        self.forget_judged();
        if !newly.is_zero() || !lost.is_zero() {
            self.rto_at = (self.outstanding > 0).then(|| now + self.timeout());
        }
        shift
    }

    /// Marks packets lost that were sent `reordering` or more before the largest acknowledged.
    /// Returns the bytes in flight that were lost.
    fn detect_losses(&mut self, manager: &mut Manager) -> (Shift, Bytes) {
        let (mut shift, mut lost) = (Shift::default(), Bytes::ZERO);
        let Some(largest) = self.largest else { return (shift, lost) };
        while self.edge + self.reordering <= largest {
            let Some(at) = self.edge.checked_sub(self.base) else { break };
            let Some(sent) = self.sent.get_mut(index(at)) else { break };
            self.edge += 1;
            if sent.fate != Fate::InFlight {
                continue;
            }
            sent.fate = Fate::Lost;
            let Sent { offset, len, tries, .. } = *sent;
            lost += Bytes::from(self.header + len);
            self.outstanding -= 1;
            self.counters.low_lost += 1;
            let piece = Piece { offset, len: u64::from(len) };
            if tries < self.retransmissions {
                self.again.push_back((piece, tries + 1));
            } else {
                manager.on_lost(piece);
                shift.to_high += piece.len;
            }
        }
        (shift, lost)
    }

    fn forget_judged(&mut self) {
        // Lost packets are kept for a while, as they may still be acknowledged.
        const REMEMBERED: u64 = 64;
        while let Some(first) = self.sent.front()
            && (first.fate == Fate::Acked || (first.fate == Fate::Lost && self.base + REMEMBERED < self.edge))
        {
            self.sent.pop_front();
            self.base += 1;
        }
        self.acked.remove_below(self.base);
        self.edge = self.edge.max(self.base);
    }

    /// Handles the timers that have expired at `now`.
    pub(crate) fn on_timer(&mut self, now: Time, manager: &mut Manager) -> Shift {
        let mut shift = Shift::default();
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
        }
        if self.rto_at.is_none_or(|at| at > now) {
            return shift;
        }
        self.rto_at = None;
        if self.outstanding == 0 {
            return shift;
        }
        // Everything goes to the HCM at once, so that a starved layer does not stall the stream.
        for (piece, _) in self.again.drain(..) {
            manager.on_lost(piece);
            shift.to_high += piece.len;
        }
        for sent in &mut self.sent {
            if sent.fate == Fate::InFlight {
                sent.fate = Fate::Lost;
                manager.on_lost(Piece { offset: sent.offset, len: u64::from(sent.len) });
                shift.to_high += u64::from(sent.len);
                self.counters.low_lost += 1;
            }
        }
        self.base += self.sent.len() as u64;
        self.sent.clear();
        self.acked.remove_below(self.base);
        self.edge = self.base;
        self.outstanding = 0;
        self.counters.low_timeouts += 1;
        self.lcm.on_timeout(now, std::mem::take(&mut self.in_flight));
        self.note_epoch();
        if self.back_off {
            self.rto.back_off();
        }
        shift
    }
}

fn index(distance: u64) -> usize {
    usize::try_from(distance).unwrap_or(usize::MAX)
}
