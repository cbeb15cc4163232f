//! Traps: assessment of a flow's response to congestion signals.
//!
//! References: CRQ §III-A (SpinTrap, TCPTrap and the criteria), RFC 9000 §17.4 (spin bit), RFC 7323
//! (timestamps), RFC 9293 §3.4 (sequence numbers), RFC 3168 §6.1.2 (one reaction per window).
//!
//! A [`Trap`] watches one flow, at the queue that signals to it. It divides the flow's time into
//! **cycles**, keeps what was sent in each as a [`Window`], and books every signal of the queue in
//! the cycle to which it belongs. If the windows after a signalled cycle are smaller than that
//! cycle's, this is a vote for the flow, and otherwise one against it. Votes make the [`Verdict`],
//! one for loss and one for marks.
//!
//! # Three sets of rules
//!
//! | | [`paper`](TrapConfig::paper) | [`authors`](TrapConfig::authors) | [`marcato`](TrapConfig::marcato) |
//! |---|---|---|---|
//! | source | the rules as printed | behaviour of the authors' program | our own rules |
//! | cycle of TCP | data, its acknowledgement, and the acknowledgement of the data that came with it | data and its acknowledgement: half a round trip | a round trip, from timestamps, else from sequence numbers and the handshake |
//! | cycle of QUIC | each flip of the spin bit | each flip, the first one from 0 | a round trip, from flips that held for 4 packets |
//! | window | bytes in the cycle | bytes in the cycle | bytes over time |
//! | a signal belongs to the cycle | in which it was given | in which it was given | in which its packet arrived |
//! | a response is looked for | two cycles later | two cycles later | one to three cycles later |
//! | only if | the window at the signal is above 4 MSS | the later window is at least 4 MSS | as the paper |
//! | votes | all count, for ever | all count, for ever | age; a verdict falls at 3/8 and rises at 5/8 |
//! | falls without a signal | ignored | ignored | subtracted |
//! | a response | is 90 % or less | is 90 % or less | or smaller by an eighth of a segment per mark; and beyond the rate's own variation, or with less of TCP in flight |
//!
//! The thresholds of `marcato` stand in one table, in `trap/marcato.rs`.
//!
//! # Limits of `marcato`
//!
//! **Late timers and full queues.** A TCP sender's response shows for one round trip in its rate if
//! the queue never empties, and not at all beside timers that are late by milliseconds. It shows in
//! what is in flight until the window has grown again, so the judge looks there, too. A sender and a
//! receiver that work together can make acknowledgements say what they like, as a QUIC sender can
//! with its spin bit. But a constant rate stays refused, whatever is in flight.
//!
//! **Random arrivals.** A flow whose packets come at random sends less in one of the next three
//! cycles as a matter of course. A fall is therefore compared with the variation: how far the rate
//! leaves a straight line from cycle to cycle, in the mean.
//!
//! | signals | least fall, in variations |
//! |---|---|
//! | loss | 1 1/4 |
//! | marks | 1 |
//! | marks, less than one packet in 32 | 1 1/2, or 1 3/4 if the rate is uneven |
//! | loss, three of the last eight cycles signalled | 1, for two cycles |
//! | marks, six of the last eight cycles signalled | 2 1/2, for two cycles |
//!
//! The last two rows are for signals that come all the time: every fall then follows one. A fall by
//! chance, or a pulse's end, is over by the second cycle. Senders pay for this if they share a link
//! with many others in windows of a few packets. Their responses drown in their own noise more
//! often, and they stay in the standard queue.
//!
//! The largest falls of senders alone on a link of 50 Mbit/s, from the 30th cycle on (floods:
//! several seeds and rates):
//!
//! | flow | queue | round trip | median fall | fall in variations: 5th percentile | median | 95th percentile |
//! |---|---|---|---|---|---|---|
//! | Reno | drop-tail | 5 ms | 50 % | 23 | 28 | 36 |
//! | CUBIC | drop-tail | 5 ms | 32 % | 3.6 | 5.0 | 5.5 |
//! | CUBIC | CoDel at 0.1 ms | 5 ms | 30 % | 4.1 | 4.2 | 4.3 |
//! | DCTCP | CoDel at 0.1 ms, marking | 5 ms | 13 % | 1.1 | 1.2 | 1.2 |
//! | Poisson flood | drop-tail | 5 ms | 17 % | -0.6 | 0.6 | 1.8 |
//! | Poisson flood | CoDel, marking | 100 ms | 3.2 % | -0.6 | 0.5 | 1.6 |
//! | DCTCP | CoDel, marking | 100 ms | 0.0 % | 0.0 | 0.0 | 1.1 |
//!
//! Of the falls of both floods that last for two cycles, 95 % are below 1.1 variations, and half
//! are none.
//!
//! **CUBIC and Reno competing with a flood** of the link's rate, 100 Mbit/s over 20 ms at CoDel,
//! are classified correctly 0.4 to 12 s after they began, depending on phase. If the flood leaves a
//! sender four segments or less per round trip, the sender is not judged at all (CRQ §III-A1). It
//! stays in the standard queue, with the flood.
//!
//! **Floods that follow a clock** send less after signals because they do so anyway. Where all
//! cycles are signalled, there are none to compare with.
//!
//! - A sender that pauses between bursts yields one low cycle per pause, however long that is, and
//!   earns nothing. Of 120 Mbit/s into 50 over 5 or 20 ms, for half of every 10 ms to 2 s, no cycle
//!   is classified as responsive.
//! - A sender that continues at a lower rate for two cycles or more, and returns before many
//!   signals went unanswered, is classified as responsive. With 120 and 20 Mbit/s for 10 ms each,
//!   or 120 and 5 for 20 ms each, over 5 ms and with spin flips of its own choice, it is so in 99 %
//!   of its cycles where the queue drops.
//! - With waves of 5 ms, or of 50 and more, or with spin flips that follow its round trip, it is so
//!   in 7 % at most.
//!
//! Such waves rise as fast as they fall, but so does a sender whose window is a few packets. A rule
//! was tried that ignored a fall if the rate had risen by three quarters of it before. It still
//! accepted the slower wave. Under it, CUBIC and Reno competing with floods, at various rates,
//! round trips and queues, were in the responsive queue for 55 % of 40 s, where they are for 73 %.
//!
//! **DCTCP over a long round trip**, the table's last line, answers each mark by half a segment in
//! balance, which is when it grows by as much: then there is nothing to see. A round trip of 100 ms
//! has 420 packets. Its responses to the first marks after slow start are 1.9, 1.1, 0.8 and 0.8 %.
//! From then on half of them leave as many packets in the cycle as before. A Poisson flood of the
//! same rate falls by more than all of these every other time. So the first responses count. Where
//! marks are so few and the rate so even, a response that cannot be seen is no vote against the
//! flow. No rule that counts packets can do more: a flow of constant rate looks the same as DCTCP
//! in balance, until it is marked more.
//!
//! **Pauses** of more than four round trips are not judged, be it that the application had nothing
//! to send or that the retransmission timer ran.
//!
//! # Traffic that a trap must see
//!
//! - `marcato`, QUIC: the flow's own direction only.
//! - TCP, all rules: both directions, as CRQ §III-A2 says. [`Trap::forward`] takes the flow's
//!   packets, and [`Trap::backward`] those that pass the other way. A TCP flow of which only one
//!   direction is seen has no cycles, remains [`Unclassified`](Verdict::Unclassified), and so stays
//!   in the standard queue.
//!
//! # Made for a port to the kernel
//!
//! The kernel (eBPF) will run a port of this machine, so it uses only integers, shifts, products
//! and comparisons: no division, no loop without a constant bound, no allocation, 288 bytes per
//! flow at most. Time is counted in ticks of 1024 ns and wraps around. The results of all three
//! sets of rules for some flows, cycle by cycle, are recorded in this crate's
//! `tests/vectors/trap.txt`, to compare the other implementation with.

mod assessment;
mod config;
mod majority;
mod marcato;
mod rtt;
mod spin;
mod tcp;
mod window;

use marcato_units::{Duration, Time};
use marcato_wire::{QuicHeader, TcpSegment, Transport};

use assessment::Assessment;
pub use config::{
    Booking, Counting, Cycles, Evidence, Floor, Judge, Response, TrapConfig, TrapError, WindowUnit,
};
use rtt::{MAX_RTT, SmoothedRtt};
use spin::SpinTrap;
use tcp::TcpTrap;
pub use window::Window;

/// Congestion signal of a queue to a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// The queue dropped a packet.
    Loss,
    /// The queue marked a packet CE.
    Ecn,
}

impl Signal {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Loss, Self::Ecn];
}

/// Verdict on a flow's response to one kind of signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// No verdict: there were no signals, no cycles, or not enough of them. CRQ §III-C.
    #[default]
    Unclassified,
    /// The flow answers the signals.
    Responsive,
    /// The flow does not answer the signals.
    Unresponsive,
}

/// Numbers of cycles that a flow spent under each verdict. Cycles under neither were unclassified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scores {
    /// All cycles.
    pub cycles: u32,
    /// Cycles at whose end the flow was responsive, by signal: loss, ECN.
    pub responsive: [u32; 2],
    /// Cycles at whose end the flow was unresponsive, by signal.
    pub unresponsive: [u32; 2],
}

impl Scores {
    /// Responsiveness score of CRQ §IV-B, in thousandths: responsive cycles of all. `None` before
    /// the first.
    pub fn raw(&self, signal: Signal) -> Option<u32> {
        thousandths(self.responsive[signal as usize], self.cycles)
    }

    /// Responsive cycles, in thousandths of those in which there was a verdict. `None` before the
    /// first.
    pub fn assessed(&self, signal: Signal) -> Option<u32> {
        let responsive = self.responsive[signal as usize];
        thousandths(responsive, responsive.saturating_add(self.unresponsive[signal as usize]))
    }
}

/// `part` of `whole`, in thousandths; for reports only, as no rule divides.
fn thousandths(part: u32, whole: u32) -> Option<u32> {
    u32::try_from((u64::from(part) * 1000).checked_div(u64::from(whole))?).ok()
}

/// Name of the cycle in which a packet arrived, so that a later signal by this packet is booked
/// there.
///
/// It is valid for the next 255 cycles of its flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CycleId(u8);

/// Kind of flow that a trap is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrapKind {
    /// QUIC: SpinTrap.
    Spin,
    /// TCP: TCPTrap.
    Tcp,
}

/// Length of a tick: 2^10 ns.
const TICK_SHIFT: u32 = 10;
/// Length of a cycle, in round trips as a power of two, from which on the flow paused: its sender
/// had nothing to send, or gave up for a while. Neither speaks of a response to the signals before.
const PAUSE_SHIFT: u32 = 2;
/// Part of a round trip, as a power of two, that a cycle may be shorter.
const SLACK_SHIFT: u32 = 4;

/// Ticks at `now`, modulo 2^32: 73 minutes.
#[allow(clippy::cast_possible_truncation, reason = "modulo 2^32")]
const fn ticks(now: Time) -> u32 {
    (now.as_nanos() >> TICK_SHIFT) as u32
}

/// Assessment of one flow. It keeps no configuration: all calls must be given the same.
///
/// ```
/// use marcato_queue::trap::{Signal, Trap, TrapConfig, TrapKind, Verdict};
/// use marcato_units::Time;
/// use marcato_wire::{QuicHeader, Transport};
///
/// let config = TrapConfig::paper();
/// let mut trap = Trap::new(TrapKind::Spin);
/// // 20 packets per cycle of 10 ms, and a loss in the second; from the fourth on, 10.
/// for (cycle, packets) in [20, 20, 20, 10, 10].into_iter().enumerate() {
///     for _ in 0..packets {
///         let quic = Some(QuicHeader::Short { fixed: true, spin: cycle % 2 == 1 });
///         let packet = Transport::Udp { payload: 1200, quic };
///         trap.forward(&config, Time::from_millis(10 * cycle as u64), &packet);
///     }
///     if cycle == 1 {
///         trap.signal(&config, Signal::Loss, trap.cycle_id());
///     }
/// }
/// assert_eq!(trap.verdict(Signal::Loss), Verdict::Responsive);
/// assert_eq!(trap.verdict(Signal::Ecn), Verdict::Unclassified);
/// ```
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Trap {
    // Every packet needs these fields and the first of the assessment's; the rest is for packets
    // that end a cycle. With many flows, a packet costs as much as the cache lines that it touches.
    /// Beginning of the cycle, in ticks.
    since: u32,
    /// Bytes of payload in the cycle so far.
    bytes: u32,
    /// Last bytes in flight in the cycle that are known; 0 if none are.
    flight: u32,
    /// Packets seen, counted up to 2.
    packets: u8,
    tracker: Tracker,
    assessment: Assessment,
}

/// Tracker of a flow's cycles or round trips.
#[derive(Clone, Debug)]
enum Tracker {
    Spin(SpinTrap),
    Tcp(TcpTrap),
}

impl Tracker {
    const fn rtt(&self) -> SmoothedRtt {
        match self {
            Self::Spin(spin) => spin.rtt(),
            Self::Tcp(tcp) => tcp.rtt(),
        }
    }
}

/// Place of a packet with regard to cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Boundary {
    /// The packet belongs to the current cycle.
    Within,
    /// The packet ends the current cycle and is the first of the next.
    Ends,
}

impl Trap {
    /// Creates a trap for a flow of which nothing was seen.
    pub const fn new(kind: TrapKind) -> Self {
        Self {
            tracker: match kind {
                TrapKind::Spin => Tracker::Spin(SpinTrap::new()),
                TrapKind::Tcp => Tracker::Tcp(TcpTrap::new()),
            },
            assessment: Assessment::new(),
            since: 0,
            bytes: 0,
            flight: 0,
            packets: 0,
        }
    }

    /// Kind of flow that the trap is for.
    pub const fn kind(&self) -> TrapKind {
        match self.tracker {
            Tracker::Spin(_) => TrapKind::Spin,
            Tracker::Tcp(_) => TrapKind::Tcp,
        }
    }

    /// Takes note of a packet of the flow that arrives at `now`, and returns the window of the
    /// cycle that it ends, if any.
    ///
    /// Verdicts change only at the end of a cycle. Packets of another kind than the trap's change
    /// nothing.
    pub fn forward(&mut self, config: &TrapConfig, now: Time, packet: &Transport) -> Option<Window> {
        let now = ticks(now);
        let (payload, mut boundary) = match (&mut self.tracker, packet) {
            (Tracker::Tcp(tcp), Transport::Tcp(segment)) => {
                (segment.payload, tcp.forward(config.cycles, now, segment))
            }
            (Tracker::Spin(spin), &Transport::Udp { payload, quic }) => {
                let boundary = match quic {
                    Some(QuicHeader::Short { spin: bit, .. }) => spin.forward(config.cycles, now, bit),
                    // RFC 9000 §17.4: only short headers have a spin bit. Packets with long headers
                    // count all the same.
                    Some(QuicHeader::Long { .. }) | None => Boundary::Within,
                };
                (payload, boundary)
            }
            _ => return None,
        };
        let first = self.packets == 0;
        self.packets = if first { 1 } else { 2 };
        if first {
            self.since = now;
        }
        let elapsed = now.wrapping_sub(self.since);
        if config.cycles == Cycles::RoundTrip {
            boundary = self.boundary_by_time(now, elapsed);
        }
        let mut ended = None;
        if boundary == Boundary::Ends {
            let window = Window { bytes: self.bytes, ticks: elapsed.max(1) };
            self.assessment.close(config, window, self.flight);
            self.begin_cycle(now);
            ended = Some(window);
        }
        // The authors create a flow's state from its first packet without counting that one.
        if !(first && config.counting == Counting::Authors) {
            self.bytes = self.bytes.saturating_add(payload);
        }
        if let Tracker::Tcp(tcp) = &self.tracker {
            let flight = tcp.flight();
            if flight > 0 {
                self.flight = flight;
            }
        }
        ended
    }

    const fn begin_cycle(&mut self, now: u32) {
        (self.since, self.bytes, self.flight) = (now, 0, 0);
    }

    /// Ends cycles that are as long as a round trip, whatever packet begins them.
    ///
    /// Rates are over time, so cycles need not be in step with round trips. If they were, senders
    /// that make round trips look short or long would matter, and so would a round trip that a loss
    /// held open.
    fn boundary_by_time(&mut self, now: u32, elapsed: u32) -> Boundary {
        let rtt = self.tracker.rtt().ticks();
        if rtt == 0 || elapsed >= rtt << PAUSE_SHIFT {
            // There is no round trip to measure by, or the flow paused.
            if rtt != 0 || elapsed >= MAX_RTT {
                self.assessment.forget();
                self.begin_cycle(now);
            }
            return Boundary::Within;
        }
        // A round trip is measured a little long rather than short, and a sender may send its
        // window in one burst per round trip. A cycle that waited for the whole measure would often
        // include a second window, and the rate would seem uneven.
        if elapsed >= rtt - (rtt >> SLACK_SHIFT) { Boundary::Ends } else { Boundary::Within }
    }

    /// Takes note of a packet that passes the other way at `now`: cycles of TCP need its
    /// acknowledgements.
    pub fn backward(&mut self, config: &TrapConfig, now: Time, packet: &Transport) {
        if let (Tracker::Tcp(tcp), Transport::Tcp(segment)) = (&mut self.tracker, packet) {
            tcp.backward(config.cycles, ticks(now), segment);
        }
    }

    /// Name of the current cycle; right after [`forward`](Self::forward), that of the packet.
    pub const fn cycle_id(&self) -> CycleId {
        self.assessment.cycle_id()
    }

    /// Takes note of a signal that the queue gave by a packet of the cycle `came`.
    pub fn signal(&mut self, config: &TrapConfig, signal: Signal, came: CycleId) {
        // The authors begin to count with the second packet: the first creates the entry in which
        // they count.
        if config.counting == Counting::Authors && self.packets < 2 {
            return;
        }
        self.assessment.signal(config, signal, came);
    }

    /// Takes note of the flow's move to another queue: earlier signals are reset. CRQ §III-B3.
    pub fn changed_queue(&mut self, config: &TrapConfig) {
        self.assessment.changed_queue(config);
    }

    /// Verdict on the flow's response to `signal`.
    pub const fn verdict(&self, signal: Signal) -> Verdict {
        self.assessment.verdict(signal)
    }

    /// Numbers of cycles under each verdict.
    pub const fn scores(&self) -> &Scores {
        &self.assessment.scores
    }

    /// Votes so far: for and against.
    ///
    /// Under [`Judge::Marcato`] few of these still matter, as votes age. Answers that may have been
    /// the end of slow start are counted here and matter nowhere else.
    pub const fn votes(&self, signal: Signal) -> (u32, u32) {
        self.assessment.votes(signal)
    }

    /// Shows every number of the state, by name and in a fixed order, to compare it with another
    /// implementation's. Signed numbers are shown modulo 2^32. A name may stand for several numbers.
    pub fn inspect(&self, put: &mut dyn FnMut(&'static str, u32)) {
        put("since", self.since);
        put("bytes", self.bytes);
        put("flight", self.flight);
        put("packets", self.packets.into());
        match &self.tracker {
            Tracker::Spin(spin) => spin.inspect(put),
            Tracker::Tcp(tcp) => tcp.inspect(put),
        }
        self.assessment.inspect(put);
    }

    /// Smoothed round trip of the flow; zero if it is not known, or if the rules do not need it.
    pub fn round_trip(&self) -> Duration {
        Duration::from_nanos(u64::from(self.tracker.rtt().ticks()) << TICK_SHIFT)
    }
}

/// Returns whether the sequence number or timestamp `a` is `b` or later, modulo 2^32. RFC 9293
/// §3.4, RFC 7323 §5.
#[allow(clippy::cast_possible_wrap, reason = "the sign of the difference orders numbers modulo 2^32")]
const fn at_or_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 >= 0
}

/// Returns whether `a` is later than `b`, modulo 2^32.
const fn after(a: u32, b: u32) -> bool {
    a != b && at_or_after(a, b)
}

/// Returns whether the acknowledgement number of `segment` is significant. RFC 9293 §3.1.
const fn acknowledges(segment: &TcpSegment) -> bool {
    segment.flags.has(marcato_wire::TcpFlags::ACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_thousandths_of_all_or_of_assessed_cycles() {
        let scores = Scores { cycles: 400, responsive: [100, 0], unresponsive: [25, 0] };
        assert_eq!([Signal::Loss, Signal::Ecn].map(|signal| scores.raw(signal)), [Some(250), Some(0)]);
        assert_eq!([Signal::Loss, Signal::Ecn].map(|signal| scores.assessed(signal)), [Some(800), None]);
        assert_eq!(Scores::default().raw(Signal::Loss), None);
    }

    #[test]
    fn a_flow_takes_at_most_288_bytes() {
        assert!(size_of::<Trap>() <= 288, "{} bytes", size_of::<Trap>());
    }

    #[test]
    fn a_packet_that_ends_no_cycle_needs_the_first_128_bytes() {
        use std::mem::offset_of;
        assert!(offset_of!(Trap, tracker) + size_of::<Tracker>() <= 128);
        let end = offset_of!(Trap, assessment) + Assessment::HOT;
        assert!(end <= 128, "{end} bytes");
    }

    #[test]
    fn numbers_are_compared_modulo_2_32() {
        assert!(at_or_after(5, 5) && !after(5, 5));
        assert!(after(0, u32::MAX) && !at_or_after(u32::MAX, 0));
        assert!(after(0x8000_0000, 1) && !after(1, 0x8000_0000));
    }
}
