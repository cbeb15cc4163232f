//! Traps: does a flow answer congestion signals?
//!
//! References: CRQ §III-A (SpinTrap, TCPTrap and the criteria), RFC 9000 §17.4 (spin bit), RFC 7323 (timestamps), RFC 9293
//! §3.4 (sequence numbers), RFC 3168 §6.1.2 (one reaction per window).
//!
//! A [`Trap`] watches one flow, at the queue that signals to it. It divides the flow's time into **cycles**, keeps what
//! was sent in each as a [`Window`], and books every signal that the queue gave in the cycle it belongs to. If the
//! windows after a signalled cycle are smaller than that cycle's, this is a vote for the flow, and otherwise one against
//! it; votes make the [`Verdict`], one for loss and one for marks.
//!
//! # Three sets of rules
//!
//! | | [`paper`](TrapConfig::paper) | [`authors`](TrapConfig::authors) | [`marcato`](TrapConfig::marcato) |
//! |---|---|---|---|
//! | what it is | the rules as printed | as the authors' program behaves | what we think is right |
//! | cycle of TCP | data, its acknowledgement, and the acknowledgement of the data that came with it | data and its acknowledgement: half a loop | a whole loop, from timestamps, else from sequence numbers and the handshake |
//! | cycle of QUIC | each flip of the spin bit | each flip, the first one from 0 | a whole loop, from flips that held for 4 packets |
//! | window | bytes in the cycle | bytes in the cycle | bytes over time |
//! | a signal belongs to the cycle | when it was given | when it was given | in which its packet came |
//! | a response is looked for | two cycles later | two cycles later | one to three cycles later |
//! | only if | the window at the signal is above 4 MSS | the later window is at least 4 MSS | as the paper |
//! | votes | all count, for ever | all count, for ever | age; a verdict falls at 3/8 and rises at 5/8 |
//! | dips without a signal | are not looked at | are not looked at | are taken off |
//! | a response | is 90 % or less | is 90 % or less | or as much less as an eighth of a segment per mark; and more than chance makes of the rate |
//!
//! # What `marcato` can see, and what it cannot
//!
//! A flow whose packets come at random sends less in one of the next three cycles as a matter of course. What it falls by is
//! therefore compared with how far its rate bends from cycle to cycle: a loss asks for 1 1/4 of the mean bend, marks ask for
//! one, and if less than one packet in 32 is marked for 1 1/2, or 1 3/4 if the rate is uneven. Where signals come all the
//! time, every fall follows one, and it must last for two cycles: of one mean bend after a loss if three of the last eight
//! cycles were signalled to, of 2 1/2 after marks if six were. A dip by chance, or a pulse's end, is over by then. The
//! price is paid by senders that share a link with many others in windows of a few packets: their answers drown in their own
//! noise more often, and they stay in the standard queue. With senders alone on a link of 50 Mbit/s (of several seeds and
//! rates for floods), from the 30th cycle on, the largest falls are:
//!
//! | flow | queue | loop | half are below | in mean bends: 5 % are below | half | 95 % |
//! |---|---|---|---|---|---|---|
//! | Reno | drop-tail | 5 ms | 50 % | 23 | 28 | 36 |
//! | CUBIC | drop-tail | 5 ms | 32 % | 3.6 | 5.0 | 5.5 |
//! | CUBIC | CoDel at 0.1 ms | 5 ms | 30 % | 4.1 | 4.2 | 4.3 |
//! | DCTCP | CoDel at 0.1 ms, marking | 5 ms | 13 % | 1.1 | 1.2 | 1.2 |
//! | Poisson flood | drop-tail | 5 ms | 17 % | -0.6 | 0.6 | 1.8 |
//! | Poisson flood | CoDel, marking | 100 ms | 3.2 % | -0.6 | 0.5 | 1.6 |
//! | DCTCP | CoDel, marking | 100 ms | 0.0 % | 0.0 | 0.0 | 1.1 |
//!
//! Of the falls of both floods that last for two cycles, 95 % are below 1.1 mean bends, and half are none.
//!
//! **CUBIC and Reno beside a flood** of the link's rate, 100 Mbit/s over 20 ms at CoDel, are taken for what they are 0.4 to
//! 12 s after they began, as it happens. If the flood leaves a sender no more than four segments per loop, it is not judged at
//! all, as CRQ §III-A1 says; it stays in the standard queue, with the flood.
//!
//! **Floods that go up and down by the clock** send less after signals because they do so anyway, and where all cycles are
//! signalled to there are none to compare with. Who falls silent in between has but one low cycle, however long that is, and
//! earns nothing: of 120 Mbit/s into 50 over 5 or 20 ms, for half of every 10 ms to 2 s, no cycle is called responsive. But who
//! goes on at a lower rate for two cycles or more, and is back before many signals went unanswered, is taken in: with 120
//! and 20 Mbit/s for 10 ms each, or 120 and 5 for 20 ms each, over 5 ms and with spin flips of its own choice, in 99 % of its
//! cycles where the queue drops. With waves of 5 ms, or of 50 and more, or with spin flips that tell of its loop, it is in 7 %
//! at most. Such waves rise as fast as they fall, but so does a sender whose window is a few packets: a rule that took no fall
//! for an answer before which the rate had risen by three quarters of it still took in the slower wave, and CUBIC and Reno
//! beside floods, at various rates, loops and queues, were in the responsive queue for 55 % of 40 s, where they are for 73 %.
//!
//! **DCTCP over a long loop**, the table's last line, answers each mark by half a segment when it is in balance, which is when
//! it grows by as much: then there is nothing to see. A loop of 100 ms has 420 packets. Its answers to the first marks after
//! slow start are 1.9, 1.1, 0.8 and 0.8 %; from then on half of them leave as many packets in the cycle as before. A Poisson
//! flood of the same rate falls by more than all of these every other time. So the first answers are taken for what they are;
//! and where marks are so few and the rate so even, an answer that cannot be seen is no vote against the flow. No rule that
//! counts packets can do more: a flow of constant rate looks the same as DCTCP in balance, until it is marked more.
//!
//! Nor does a trap judge what a flow does in a pause of more than four loops, be it that its application had nothing to send or
//! that its retransmission timer ran.
//!
//! # What a trap must see
//!
//! - `marcato`, QUIC: the flow's own direction only.
//! - TCP, all rules: both directions, as CRQ §III-A2 says: [`Trap::forward`] is told of the flow's packets, and
//!   [`Trap::backward`] of those that pass the other way. A TCP flow of which only one direction is seen has no cycles,
//!   remains [`Unclassified`](Verdict::Unclassified), and so stays in the standard queue.
//!
//! # Written to be written again
//!
//! The same machine is to run in the kernel, so there are only integers, shifts, products and comparisons here: no
//! division, no loop without a constant bound, no allocation, 256 bytes per flow at most. Time is counted in ticks of
//! 1024 ns and wraps around. What all three sets of rules make of some flows, cycle by cycle, is recorded in this crate's
//! `tests/vectors/trap.txt`, for the other implementation to be held against.

mod assessment;
mod config;
mod spin;
mod tcp;

use marcato_units::{Bytes, Duration, Time};
use marcato_wire::{QuicHeader, TcpSegment, Transport};

use assessment::Assessment;
pub use config::{
    Booking, Counting, Cycles, Evidence, Floor, Response, TrapConfig, TrapError, Votes, WindowUnit,
};
use spin::SpinTrap;
use tcp::TcpTrap;

/// What a queue says to a sender when there is congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// It dropped a packet.
    Loss,
    /// It marked a packet CE.
    Ecn,
}

impl Signal {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Loss, Self::Ecn];
}

/// Whether a flow answers one kind of signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// There were no signals, no cycles, or not enough of them.
    #[default]
    Unclassified,
    /// It does.
    Responsive,
    /// It does not.
    Unresponsive,
}

/// What a flow sent in one cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    bytes: u32,
    /// How long the cycle was, in ticks.
    ticks: u32,
}

impl Window {
    /// Bytes of payload, retransmitted ones included.
    pub const fn bytes(self) -> Bytes {
        Bytes::new(self.bytes as u64)
    }

    /// How long the cycle was, in steps of 1.024 us.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos((self.ticks as u64) << TICK_SHIFT)
    }
}

/// In how many cycles a flow was under which verdict. Cycles under neither were unclassified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scores {
    /// All cycles.
    pub cycles: u32,
    /// Those at whose end the flow was responsive, by signal: loss, ECN.
    pub responsive: [u32; 2],
    /// Those at whose end it was unresponsive.
    pub unresponsive: [u32; 2],
}

impl Scores {
    /// The responsiveness score of CRQ §IV-B, in thousandths: responsive cycles of all. `None` before the first.
    pub fn raw(&self, signal: Signal) -> Option<u32> {
        thousandths(self.responsive[signal as usize], self.cycles)
    }

    /// Responsive cycles, in thousandths of those in which there was a verdict. `None` before the first.
    pub fn assessed(&self, signal: Signal) -> Option<u32> {
        let responsive = self.responsive[signal as usize];
        thousandths(responsive, responsive.saturating_add(self.unresponsive[signal as usize]))
    }
}

/// For reports only: no rule divides.
fn thousandths(part: u32, whole: u32) -> Option<u32> {
    u32::try_from((u64::from(part) * 1000).checked_div(u64::from(whole))?).ok()
}

/// Names the cycle in which a packet came, so that a signal that it gets later is booked there. It is good for
/// the next 255 cycles of its flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp(u8);

/// What kind of flow a trap is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrapKind {
    /// QUIC: SpinTrap.
    Spin,
    /// TCP: TCPTrap.
    Tcp,
}

/// A tick is 2^10 ns.
const TICK_SHIFT: u32 = 10;
/// From here on a flow's loop is no loop, and what waits for its end waits no longer: 8.6 s.
const LONGEST_LOOP: u32 = 1 << 23;
/// In a cycle of so many loops, as a power of two, the flow paused: its sender had nothing to send, or gave up for a
/// while. Neither speaks of a response to the signals before.
const PAUSE_SHIFT: u32 = 2;
/// A cycle may end when all but this part of its loop's length is over, as a power of two.
const SLACK_SHIFT: u32 = 4;

/// The ticks at `now`, modulo 2^32: 73 minutes.
#[allow(clippy::cast_possible_truncation, reason = "modulo 2^32")]
const fn ticks(now: Time) -> u32 {
    (now.as_nanos() >> TICK_SHIFT) as u32
}

/// Watches one flow. It keeps no configuration: the same must be passed to all of its calls.
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
///         trap.signal(&config, Signal::Loss, trap.stamp());
///     }
/// }
/// assert_eq!(trap.verdict(Signal::Loss), Verdict::Responsive);
/// assert_eq!(trap.verdict(Signal::Ecn), Verdict::Unclassified);
/// ```
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Trap {
    // Every packet needs this, and the first of the assessment's fields; the rest only those that end a cycle. With many
    // flows the cache lines that a packet touches are what it costs.
    /// When the cycle began, in ticks.
    since: u32,
    /// What was sent in it.
    bytes: u32,
    /// Whether a packet was seen, and whether a second was.
    packets: u8,
    loops: Loops,
    assessment: Assessment,
}

/// What tells a flow's loops.
#[derive(Clone, Debug)]
enum Loops {
    Spin(SpinTrap),
    Tcp(TcpTrap),
}

/// What a packet says of cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beat {
    /// It belongs to the cycle.
    Within,
    /// It is the first of the next.
    Ends,
}

impl Trap {
    /// A trap for a flow of which nothing was seen.
    pub const fn new(kind: TrapKind) -> Self {
        Self {
            loops: match kind {
                TrapKind::Spin => Loops::Spin(SpinTrap::new()),
                TrapKind::Tcp => Loops::Tcp(TcpTrap::new()),
            },
            assessment: Assessment::new(),
            since: 0,
            bytes: 0,
            packets: 0,
        }
    }

    /// What kind of flow it is for.
    pub const fn kind(&self) -> TrapKind {
        match self.loops {
            Loops::Spin(_) => TrapKind::Spin,
            Loops::Tcp(_) => TrapKind::Tcp,
        }
    }

    /// Takes note of a packet of the flow that arrives at `now`, and returns the window of the cycle that it ends, if it
    /// ends one. Verdicts change only then. Packets of another kind than the trap's change nothing.
    pub fn forward(&mut self, config: &TrapConfig, now: Time, packet: &Transport) -> Option<Window> {
        let now = ticks(now);
        let (payload, mut beat) = match (&mut self.loops, packet) {
            (Loops::Tcp(tcp), Transport::Tcp(segment)) => {
                (segment.payload, tcp.forward(config.cycles, now, segment))
            }
            (Loops::Spin(spin), &Transport::Udp { payload, quic }) => {
                let beat = match quic {
                    Some(QuicHeader::Short { spin: bit, .. }) => spin.forward(config.cycles, now, bit),
                    // The first packets of a connection have long headers: they count, but have no spin bit.
                    Some(QuicHeader::Long { .. }) | None => Beat::Within,
                };
                (payload, beat)
            }
            _ => return None,
        };
        let first = self.packets == 0;
        self.packets = if first { 1 } else { 2 };
        if first {
            self.since = now;
        }
        let elapsed = now.wrapping_sub(self.since);
        if config.cycles == Cycles::Loop {
            beat = self.beat_of_time(now, elapsed);
        }
        let mut ended = None;
        if beat == Beat::Ends {
            let window = Window { bytes: self.bytes, ticks: elapsed.max(1) };
            self.assessment.close(config, window);
            (self.since, self.bytes) = (now, 0);
            ended = Some(window);
        }
        // The authors make a flow's state of its first packet without counting that.
        if !(first && config.counting == Counting::Authors) {
            self.bytes = self.bytes.saturating_add(payload);
        }
        ended
    }

    /// Cycles of a loop's length, whoever begins them. Rates are over time, so cycles need not be in step with loops:
    /// but both a sender that makes loops look short or long, and a loop that a loss held open, would matter if they were.
    fn beat_of_time(&mut self, now: u32, elapsed: u32) -> Beat {
        let length = match &self.loops {
            Loops::Spin(spin) => spin.length(),
            Loops::Tcp(tcp) => tcp.length(),
        };
        if length == 0 || elapsed >= length << PAUSE_SHIFT {
            // Nothing to measure by, or a pause.
            if length != 0 || elapsed >= LONGEST_LOOP {
                self.assessment.forget();
                (self.since, self.bytes) = (now, 0);
            }
            return Beat::Within;
        }
        // A loop is measured a little long rather than short, and a sender may send its window at a stroke, once per loop: a
        // cycle that waited for the whole measure would often take in a second window, and the rate would seem uneven.
        if elapsed >= length - (length >> SLACK_SHIFT) { Beat::Ends } else { Beat::Within }
    }

    /// Takes note of a packet that passes the other way at `now`: TCP's cycles need its acknowledgements.
    pub fn backward(&mut self, config: &TrapConfig, now: Time, packet: &Transport) {
        if let (Loops::Tcp(tcp), Transport::Tcp(segment)) = (&mut self.loops, packet) {
            tcp.backward(config.cycles, ticks(now), segment);
        }
    }

    /// Names the current cycle. Asked after [`forward`](Self::forward), it is that of the packet.
    pub const fn stamp(&self) -> Stamp {
        self.assessment.stamp()
    }

    /// Takes note that the queue gave a signal, by a packet that came in the cycle that `came` names.
    pub fn signal(&mut self, config: &TrapConfig, signal: Signal, came: Stamp) {
        // The authors begin to count with the second packet: the first makes the entry that is then counted in.
        if config.counting == Counting::Authors && self.packets < 2 {
            return;
        }
        self.assessment.signal(config, signal, came);
    }

    /// Takes note that the flow now goes through another queue: what was signalled before is not held against it.
    /// CRQ §III-B3.
    pub fn changed_queue(&mut self, config: &TrapConfig) {
        self.assessment.changed_queue(config);
    }

    /// Whether the flow answers `signal`.
    pub const fn verdict(&self, signal: Signal) -> Verdict {
        self.assessment.verdict(signal)
    }

    /// In how many cycles it was under which verdict.
    pub const fn scores(&self) -> &Scores {
        &self.assessment.scores
    }

    /// The votes so far: for and against. With [aged votes](Votes::Aged), of which few matter, all are counted here; so are
    /// answers that may have been the end of slow start, which do not matter at all.
    pub const fn votes(&self, signal: Signal) -> (u32, u32) {
        self.assessment.votes(signal)
    }

    /// How long the flow's loop is taken to be; zero if that is not known, or if the rules do not ask.
    pub fn loop_length(&self) -> Duration {
        let ticks = match &self.loops {
            Loops::Spin(spin) => spin.length(),
            Loops::Tcp(tcp) => tcp.length(),
        };
        Window { bytes: 0, ticks }.duration()
    }
}

/// Keeps a smoothed length of loops, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Length(u32);

impl Length {
    const fn new() -> Self {
        Self(0)
    }

    /// Takes `sample` into account, by a quarter, or by half if it is much longer. One sample at most halves or doubles what it is compared with: a loop
    /// that stayed open because of a loss is not the path's.
    fn take(&mut self, sample: u32) {
        let sample = sample.clamp(1, LONGEST_LOOP);
        if self.0 == 0 {
            self.0 = sample;
            return;
        }
        let sample = sample.clamp((self.0 >> 1).max(1), self.0 << 1);
        // A queue that fills makes the loop grow fast, and a response must not be looked for too early.
        let grows = sample > self.0 + (self.0 >> 2);
        let shift = if grows { 1 } else { 2 };
        self.0 = self.0 - (self.0 >> shift) + (sample >> shift);
        self.0 = self.0.max(1);
    }
}

/// Whether the sequence number or timestamp `a` is `b` or later, modulo 2^32. RFC 9293 §3.4, RFC 7323 §5.
#[allow(clippy::cast_possible_wrap, reason = "that is how numbers modulo 2^32 are compared")]
const fn at_or_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 >= 0
}

/// Whether `a` is later than `b`, modulo 2^32.
const fn after(a: u32, b: u32) -> bool {
    a != b && at_or_after(a, b)
}

/// Whether `segment` acknowledges anything.
const fn acknowledges(segment: &TcpSegment) -> bool {
    segment.flags.has(marcato_wire::TcpFlags::ACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_thousandths_of_all_cycles_or_of_those_with_a_verdict() {
        let scores = Scores { cycles: 400, responsive: [100, 0], unresponsive: [25, 0] };
        assert_eq!([Signal::Loss, Signal::Ecn].map(|signal| scores.raw(signal)), [Some(250), Some(0)]);
        assert_eq!([Signal::Loss, Signal::Ecn].map(|signal| scores.assessed(signal)), [Some(800), None]);
        assert_eq!(Scores::default().raw(Signal::Loss), None);
    }

    #[test]
    fn a_flow_takes_at_most_256_bytes() {
        assert!(size_of::<Trap>() <= 256, "{} bytes", size_of::<Trap>());
    }

    #[test]
    fn a_packet_that_ends_no_cycle_needs_the_first_128_bytes() {
        use std::mem::offset_of;
        assert!(offset_of!(Trap, loops) + size_of::<Loops>() <= 128);
        let end = offset_of!(Trap, assessment) + Assessment::HOT;
        assert!(end <= 128, "{end} bytes");
    }

    #[test]
    fn a_length_follows_its_samples_and_no_single_one_throws_it() {
        let mut length = Length::new();
        length.take(1000);
        assert_eq!(length.0, 1000);
        length.take(1_000_000);
        assert_eq!(length.0, 1500);
        for _ in 0..100 {
            length.take(5000);
        }
        assert!((4990..=5000).contains(&length.0), "{}", length.0);
        for _ in 0..100 {
            length.take(0);
        }
        assert!((1..8).contains(&length.0), "{}", length.0);
    }

    #[test]
    fn a_sample_more_than_a_quarter_longer_counts_by_half() {
        for (sample, expected) in [(124, 106), (125, 106), (126, 113)] {
            let mut length = Length::new();
            length.take(100);
            length.take(sample);
            assert_eq!(length.0, expected, "{sample}");
        }
    }

    #[test]
    fn numbers_are_compared_modulo_2_32() {
        assert!(at_or_after(5, 5) && !after(5, 5));
        assert!(after(0, u32::MAX) && !at_or_after(u32::MAX, 0));
        assert!(after(0x8000_0000, 1) && !after(1, 0x8000_0000));
    }
}
