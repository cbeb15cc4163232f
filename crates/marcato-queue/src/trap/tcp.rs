//! TCPTrap: cycles from sequence numbers, acknowledgements and timestamps. CRQ §III-A2 and Fig. 2.

use marcato_wire::{TcpFlags, TcpSegment};

use super::rtt::{MAX_RTT, SmoothedRtt};
use super::{Boundary, Cycles, acknowledges, after, at_or_after};

/// Packet that a flow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Packet of this host to begin with.
    Idle,
    /// Answer of the other host.
    Out,
    /// Answer of this host to that.
    Back,
}

#[derive(Clone, Debug)]
pub(super) struct TcpTrap {
    /// Number after the last that this host sent.
    sent: Option32,
    /// Number after the last that the other host sent.
    received: Option32,

    // Sequence numbers.
    stage: Stage,
    /// Acknowledgement that the other host owes, the eACK of CRQ §III-A2.
    expected: u32,
    /// Half: last acknowledgement of the other host. Matched: the one that this host owes. Round
    /// trip: the highest of the other host.
    answer: u32,
    /// Time at which `expected` was set.
    since: u32,
    /// Time since which this host owes an acknowledgement of `owed`.
    owed_since: u32,
    /// Number that this host owes an acknowledgement of, if it does: its side's half of the round
    /// trip.
    owed: Option32,
    /// Shortest time in which this host's side answered; 0 if that was never seen.
    near: u32,

    // Timestamps.
    echo_stage: Stage,
    /// Timestamp whose echo is awaited: this host's in [`Stage::Out`], the other's in
    /// [`Stage::Back`].
    mark: u32,
    /// Time at which this host's timestamp of `mark` passed.
    marked: u32,
    /// Latest timestamp of this host.
    value: Option32,
    /// Latest timestamp of the other host.
    reverse_value: Option32,

    rtt: SmoothedRtt,
    /// Last round trip that timestamps measured; 0 if none.
    last: u32,
    /// Set once the other host has acknowledged something: `answer` in round trips.
    answered: bool,
    /// Set while a loss is repaired: until the other host acknowledges `recover`.
    recovering: bool,
    recover: u32,
}

/// Number modulo 2^32, or none.
#[derive(Clone, Copy, Debug, Default)]
struct Option32 {
    some: bool,
    number: u32,
}

impl Option32 {
    const fn none() -> Self {
        Self { some: false, number: 0 }
    }

    const fn some(number: u32) -> Self {
        Self { some: true, number }
    }

    /// Moves up to `number` if that is later, and returns whether it was.
    fn advance(&mut self, number: u32) -> bool {
        let newer = !self.some || after(number, self.number);
        if newer {
            *self = Self::some(number);
        }
        newer
    }
}

impl TcpTrap {
    pub(super) const fn new() -> Self {
        Self {
            sent: Option32::none(),
            received: Option32::none(),
            stage: Stage::Idle,
            expected: 0,
            answer: 0,
            since: 0,
            owed_since: 0,
            owed: Option32::none(),
            near: 0,
            echo_stage: Stage::Idle,
            mark: 0,
            marked: 0,
            value: Option32::none(),
            reverse_value: Option32::none(),
            rtt: SmoothedRtt::new(),
            last: 0,
            answered: false,
            recovering: false,
            recover: 0,
        }
    }

    pub(super) fn inspect(&self, put: &mut dyn FnMut(&'static str, u32)) {
        let mut number = |name, of: Option32| {
            put(name, of.number);
            put(name, of.some.into());
        };
        number("tcp sent", self.sent);
        number("tcp received", self.received);
        number("tcp owed", self.owed);
        number("tcp value", self.value);
        number("tcp reverse_value", self.reverse_value);
        put("tcp expected", self.expected);
        put("tcp answer", self.answer);
        put("tcp since", self.since);
        put("tcp owed_since", self.owed_since);
        put("tcp near", self.near);
        put("tcp mark", self.mark);
        put("tcp marked", self.marked);
        put("tcp rtt", self.rtt.ticks());
        put("tcp last", self.last);
        put("tcp stage", self.stage as u32);
        put("tcp echo_stage", self.echo_stage as u32);
        put("tcp answered", self.answered.into());
        put("tcp recovering", self.recovering.into());
        put("tcp recover", self.recover);
    }

    /// Bytes that this host has sent and the other has not acknowledged; 0 where acknowledgements do not
    /// tell, as during a repair.
    pub(super) const fn flight(&self) -> u32 {
        if !self.answered || !self.sent.some || self.recovering {
            return 0;
        }
        // Another trap may see acknowledgements of what it did not see sent.
        if after(self.sent.number, self.answer) { self.sent.number.wrapping_sub(self.answer) } else { 0 }
    }

    pub(super) const fn rtt(&self) -> SmoothedRtt {
        self.rtt
    }

    pub(super) fn forward(&mut self, cycles: Cycles, now: u32, segment: &TcpSegment) -> Boundary {
        if cycles != Cycles::Half && segment.flags.has(TcpFlags::SYN) {
            // RFC 9293 §3.4.1: a new connection on the same ports has an initial sequence number of
            // its own, so the numbers of the last one mean nothing.
            (self.sent, self.value) = (Option32::none(), Option32::none());
            (self.stage, self.echo_stage) = (Stage::Idle, Stage::Idle);
            (self.last, self.answered, self.recovering) = (0, false, false);
        }
        match cycles {
            Cycles::Half => self.forward_half(segment),
            Cycles::Matched => self.forward_matched(segment),
            Cycles::RoundTrip => {
                self.forward_round_trip(now, segment);
                Boundary::Within
            }
        }
    }

    pub(super) fn backward(&mut self, cycles: Cycles, now: u32, segment: &TcpSegment) {
        if cycles != Cycles::Half && segment.flags.has(TcpFlags::SYN) {
            (self.received, self.reverse_value) = (Option32::none(), Option32::none());
            self.owed = Option32::none();
            (self.answered, self.recovering) = (false, false);
        }
        match cycles {
            // The last acknowledgement, not the highest: the comparison recovers once it has
            // wrapped around.
            Cycles::Half if acknowledges(segment) => self.answer = segment.ack,
            Cycles::Half => {}
            Cycles::Matched => self.backward_matched(segment),
            Cycles::RoundTrip => self.backward_round_trip(now, segment),
        }
    }

    /// Takes note of this host's segment as the authors' program does, whose condition for both
    /// halves is never reached.
    ///
    /// It compares as if nothing wrapped, counts neither SYN nor FIN, and measures the next cycle
    /// by whatever segment ends one.
    fn forward_half(&mut self, segment: &TcpSegment) -> Boundary {
        let known = self.sent.some;
        self.sent = Option32::some(segment.seq);
        if known && self.answer < self.expected {
            return Boundary::Within;
        }
        self.expected = segment.seq.wrapping_add(segment.payload);
        if known { Boundary::Ends } else { Boundary::Within }
    }

    /// Takes note of this host's segment as in CRQ Fig. 2.
    fn forward_matched(&mut self, segment: &TcpSegment) -> Boundary {
        let mut boundary = Boundary::Within;
        if self.stage == Stage::Back && acknowledges(segment) && at_or_after(segment.ack, self.answer) {
            boundary = Boundary::Ends;
            self.stage = Stage::Idle;
        }
        let new = self.sent.advance(segment.end()) && segment.sequence_len() > 0;
        if self.stage == Stage::Idle && new {
            (self.stage, self.expected) = (Stage::Out, segment.end());
        }
        boundary
    }

    /// Takes note of the other host's segment as in CRQ Fig. 2.
    fn backward_matched(&mut self, segment: &TcpSegment) {
        self.received.advance(segment.end());
        if self.stage == Stage::Out && acknowledges(segment) && at_or_after(segment.ack, self.expected) {
            // If this segment has data, this host has yet to acknowledge them. If not, it has
            // acknowledged all data, and its next segment ends the cycle (CRQ §III-A2, asymmetric
            // traffic).
            (self.stage, self.answer) = (Stage::Back, self.received.number);
        }
    }

    /// Measures the round trip by this host's segment.
    fn forward_round_trip(&mut self, now: u32, segment: &TcpSegment) {
        // RFC 9293 §3.5.2: a reset may acknowledge a segment that this host never accepted, or
        // carry sequence number 0.
        if segment.flags.has(TcpFlags::RST) {
            return;
        }
        // This host's half of the round trip: from data for it to its acknowledgement of them.
        if self.owed.some && acknowledges(segment) && at_or_after(segment.ack, self.owed.number) {
            let near = now.wrapping_sub(self.owed_since).max(1);
            self.near = if self.near == 0 { near } else { self.near.min(near) };
            self.owed = Option32::none();
        }
        // RFC 6298 §3 (Karn's algorithm): an acknowledgement of a retransmission does not say which
        // copy it answers, so only new data begin a measurement.
        let new = self.sent.advance(segment.end()) && segment.sequence_len() > 0;
        if self.stage == Stage::Out && now.wrapping_sub(self.since) > MAX_RTT {
            self.stage = Stage::Idle;
        }
        if self.stage == Stage::Idle && new {
            (self.stage, self.expected, self.since) = (Stage::Out, segment.end(), now);
        }
        if let Some(timestamps) = segment.timestamps {
            self.forward_timestamps(now, segment, timestamps.value, timestamps.echo);
        }
    }

    /// Measures the round trip by this host's timestamps.
    fn forward_timestamps(&mut self, now: u32, segment: &TcpSegment, value: u32, echo: u32) {
        if self.echo_stage == Stage::Back && acknowledges(segment) && at_or_after(echo, self.mark) {
            // RFC 7323 §4.3: after a loss, or while acknowledgements are delayed, the echo is that
            // of an older segment. It comes a round trip late, but seldom twice in a row.
            let sample = now.wrapping_sub(self.marked).max(1);
            self.rtt.sample(if self.last == 0 { sample } else { sample.min(self.last) });
            self.last = sample;
            self.echo_stage = Stage::Idle;
        }
        if self.echo_stage != Stage::Idle && now.wrapping_sub(self.marked) > MAX_RTT {
            self.echo_stage = Stage::Idle;
        }
        // Only the first packet of a clock's tick: an echo of the tick may answer any packet that
        // carries it.
        if self.value.advance(value) && self.echo_stage == Stage::Idle {
            (self.echo_stage, self.mark, self.marked) = (Stage::Out, value, now);
        }
    }

    /// Takes note of an acknowledgement: a second one alike tells of a loss, which is repaired once
    /// all that was sent by then is acknowledged. RFC 5681 §3.2, RFC 6582.
    fn follow_acknowledgement(&mut self, segment: &TcpSegment) {
        if !self.answered || after(segment.ack, self.answer) {
            (self.answer, self.answered) = (segment.ack, true);
            self.recovering &= !at_or_after(segment.ack, self.recover);
        } else if segment.ack == self.answer
            && segment.sequence_len() == 0
            && !self.recovering
            && self.sent.some
            && after(self.sent.number, self.answer)
        {
            (self.recovering, self.recover) = (true, self.sent.number);
        }
    }

    /// Measures the round trip by the other host's segment.
    fn backward_round_trip(&mut self, now: u32, segment: &TcpSegment) {
        if segment.flags.has(TcpFlags::RST) {
            return;
        }
        let new = self.received.advance(segment.end()) && segment.sequence_len() > 0;
        if new && !self.owed.some {
            (self.owed, self.owed_since) = (Option32::some(segment.end()), now);
        }
        if acknowledges(segment) {
            self.follow_acknowledgement(segment);
        }
        if self.stage == Stage::Out && acknowledges(segment) && at_or_after(segment.ack, self.expected) {
            self.stage = Stage::Idle;
            // Timestamps measure the whole round trip, and then this half is not needed.
            if !self.value.some {
                let far = now.wrapping_sub(self.since);
                // Half of the round trip stands for the other one if this host was never seen to
                // answer.
                let near = if self.near == 0 { far } else { self.near };
                self.rtt.sample(far.saturating_add(near));
            }
        }
        if let Some(timestamps) = segment.timestamps {
            // Only the first packet of the other clock's tick, for the same reason.
            let first = self.reverse_value.advance(timestamps.value);
            if self.echo_stage == Stage::Out
                && first
                && acknowledges(segment)
                && at_or_after(timestamps.echo, self.mark)
            {
                (self.echo_stage, self.mark) = (Stage::Back, timestamps.value);
            }
        }
    }
}
