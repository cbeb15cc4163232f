//! TCPTrap: cycles from what TCP says in the clear. CRQ §III-A2 and Fig. 2.

use marcato_wire::{TcpFlags, TcpSegment};

use super::{Beat, Cycles, LONGEST_LOOP, Length, acknowledges, after, at_or_after};

/// What a flow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// For a packet to begin with.
    Idle,
    /// For the other host's answer.
    Out,
    /// For this host's answer to that.
    Back,
}

#[derive(Clone, Debug)]
pub(super) struct TcpTrap {
    /// The number after the last that this host sent, and whether there is one.
    sent: Option32,
    /// The number after the last that the other host sent.
    received: Option32,

    // Sequence numbers.
    stage: Stage,
    /// The acknowledgement that the other host owes.
    expected: u32,
    /// Half: the last acknowledgement of the other host. Matched: the one that this host owes.
    answer: u32,
    /// When `expected` was set.
    since: u32,
    /// Since when this host owes an acknowledgement of `owed`, if it does: the half of the loop on this host's side.
    owed_since: u32,
    owed: Option32,
    /// The shortest time this host's side took to answer; 0 if that was never seen.
    near: u32,

    // Timestamps.
    loop_stage: Stage,
    /// The timestamp whose echo is waited for: this host's in [`Stage::Out`], the other's in [`Stage::Back`].
    mark: u32,
    marked: u32,
    /// The latest timestamps of both.
    value: Option32,
    reverse_value: Option32,

    length: Length,
    /// How long the last loop took that timestamps closed; 0 if none did.
    last: u32,
}

/// A number modulo 2^32, or none.
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

    /// Moves up to `number`, if that is later, and says whether it was.
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
            loop_stage: Stage::Idle,
            mark: 0,
            marked: 0,
            value: Option32::none(),
            reverse_value: Option32::none(),
            length: Length::new(),
            last: 0,
        }
    }

    /// The length of the loop; 0 if it is not known.
    pub(super) const fn length(&self) -> u32 {
        self.length.0
    }

    pub(super) fn forward(&mut self, cycles: Cycles, now: u32, segment: &TcpSegment) -> Beat {
        if cycles != Cycles::Half && segment.flags.has(TcpFlags::SYN) {
            // The ports may be in use again: the numbers of the last connection mean nothing in this one.
            (self.sent, self.value) = (Option32::none(), Option32::none());
            (self.stage, self.loop_stage) = (Stage::Idle, Stage::Idle);
            self.last = 0;
        }
        match cycles {
            Cycles::Half => self.forward_half(segment),
            Cycles::Matched => self.forward_matched(segment),
            Cycles::Loop => {
                self.forward_loop(now, segment);
                Beat::Within
            }
        }
    }

    pub(super) fn backward(&mut self, cycles: Cycles, now: u32, segment: &TcpSegment) {
        if cycles != Cycles::Half && segment.flags.has(TcpFlags::SYN) {
            (self.received, self.reverse_value) = (Option32::none(), Option32::none());
            self.owed = Option32::none();
        }
        match cycles {
            // The last acknowledgement, not the highest: so the comparison recovers once it has wrapped around.
            Cycles::Half if acknowledges(segment) => self.answer = segment.ack,
            Cycles::Half => {}
            Cycles::Matched => self.backward_matched(segment),
            Cycles::Loop => self.backward_loop(now, segment),
        }
    }

    /// The authors' program, whose condition for both halves is never reached. It compares as if nothing wrapped, counts
    /// neither SYN nor FIN, and takes whatever segment ends a cycle as the measure of the next.
    fn forward_half(&mut self, segment: &TcpSegment) -> Beat {
        let known = self.sent.some;
        self.sent = Option32::some(segment.seq);
        if known && self.answer < self.expected {
            return Beat::Within;
        }
        self.expected = segment.seq.wrapping_add(segment.payload);
        if known { Beat::Ends } else { Beat::Within }
    }

    /// CRQ Fig. 2, this host's segments.
    fn forward_matched(&mut self, segment: &TcpSegment) -> Beat {
        let mut beat = Beat::Within;
        if self.stage == Stage::Back && acknowledges(segment) && at_or_after(segment.ack, self.answer) {
            beat = Beat::Ends;
            self.stage = Stage::Idle;
        }
        let new = self.sent.advance(segment.end()) && segment.sequence_len() > 0;
        if self.stage == Stage::Idle && new {
            (self.stage, self.expected) = (Stage::Out, segment.end());
        }
        beat
    }

    /// CRQ Fig. 2, the other host's segments.
    fn backward_matched(&mut self, segment: &TcpSegment) {
        self.received.advance(segment.end());
        if self.stage == Stage::Out && acknowledges(segment) && at_or_after(segment.ack, self.expected) {
            // If this segment has data, this host has yet to acknowledge them. If not, it has acknowledged all there is,
            // and its next segment ends the cycle.
            (self.stage, self.answer) = (Stage::Back, self.received.number);
        }
    }

    fn forward_loop(&mut self, now: u32, segment: &TcpSegment) {
        if segment.flags.has(TcpFlags::RST) {
            return;
        }
        // This host's side of the loop: from what came for it to its acknowledgement of that.
        if self.owed.some && acknowledges(segment) && at_or_after(segment.ack, self.owed.number) {
            let near = now.wrapping_sub(self.owed_since).max(1);
            self.near = if self.near == 0 { near } else { self.near.min(near) };
            self.owed = Option32::none();
        }
        // Only what was never sent before: an acknowledgement of a retransmission does not say which copy it answers.
        let new = self.sent.advance(segment.end()) && segment.sequence_len() > 0;
        if self.stage == Stage::Out && now.wrapping_sub(self.since) > LONGEST_LOOP {
            self.stage = Stage::Idle;
        }
        if self.stage == Stage::Idle && new {
            (self.stage, self.expected, self.since) = (Stage::Out, segment.end(), now);
        }
        if let Some(timestamps) = segment.timestamps {
            self.forward_timestamps(now, segment, timestamps.value, timestamps.echo);
        }
    }

    fn forward_timestamps(&mut self, now: u32, segment: &TcpSegment, value: u32, echo: u32) {
        if self.loop_stage == Stage::Back && acknowledges(segment) && at_or_after(echo, self.mark) {
            // An echo that a loss or a delayed acknowledgement kept back comes a loop late, but seldom twice in a row.
            let sample = now.wrapping_sub(self.marked).max(1);
            self.length.take(if self.last == 0 { sample } else { sample.min(self.last) });
            self.last = sample;
            self.loop_stage = Stage::Idle;
        }
        if self.loop_stage != Stage::Idle && now.wrapping_sub(self.marked) > LONGEST_LOOP {
            self.loop_stage = Stage::Idle;
        }
        // The first packet of a clock's tick only: an echo of the tick might answer any packet before it, too.
        if self.value.advance(value) && self.loop_stage == Stage::Idle {
            (self.loop_stage, self.mark, self.marked) = (Stage::Out, value, now);
        }
    }

    fn backward_loop(&mut self, now: u32, segment: &TcpSegment) {
        if segment.flags.has(TcpFlags::RST) {
            return;
        }
        let new = self.received.advance(segment.end()) && segment.sequence_len() > 0;
        if new && !self.owed.some {
            (self.owed, self.owed_since) = (Option32::some(segment.end()), now);
        }
        if self.stage == Stage::Out && acknowledges(segment) && at_or_after(segment.ack, self.expected) {
            self.stage = Stage::Idle;
            // With timestamps the whole loop is measured, and this half is not needed.
            if !self.value.some {
                let far = now.wrapping_sub(self.since);
                // If this host was never seen to answer, half a loop has to stand for the whole.
                let near = if self.near == 0 { far } else { self.near };
                self.length.take(far.saturating_add(near));
            }
        }
        if let Some(timestamps) = segment.timestamps {
            // The first packet of the other clock's tick, for the same reason.
            let first = self.reverse_value.advance(timestamps.value);
            if self.loop_stage == Stage::Out
                && first
                && acknowledges(segment)
                && at_or_after(timestamps.echo, self.mark)
            {
                (self.loop_stage, self.mark) = (Stage::Back, timestamps.value);
            }
        }
    }
}
