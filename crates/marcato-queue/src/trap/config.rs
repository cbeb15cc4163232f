//! Rules of a trap.

use marcato_units::Bytes;

/// Division of a flow's time into cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cycles {
    /// Cycles of the authors' program, with its slips.
    ///
    /// TCP: data and its acknowledgement. Comparisons are plain, so that wrapping upsets them, and
    /// whatever segment ends a cycle measures the next, be it a retransmission. QUIC: every flip of
    /// the spin bit, the first one from 0.
    Half,
    /// Cycles of CRQ Fig. 2.
    ///
    /// TCP: both halves, of which the second is empty where the other host sends no data. QUIC:
    /// every flip of the spin bit.
    Matched,
    /// Cycles of one round trip of the path.
    ///
    /// The round trip is measured by timestamps (RFC 7323), by sequence numbers and the handshake,
    /// or by flips of the spin bit that held.
    RoundTrip,
}

/// Measure by which windows are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowUnit {
    /// Bytes in the cycle. CRQ §III-A1.
    Bytes,
    /// Bytes over the cycle's length: a sender that makes its cycles shorter does not send less.
    Rate,
}

/// Least window for a flow to be judged: one that has already backed off is not. CRQ §III-A1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Floor {
    /// The window at the signal must be above this. CRQ §III-A1.
    AtSignal(Bytes),
    /// The later window must be at least this: a flow that backs off below it gets no credit. The
    /// authors' program.
    AtResponse(Bytes),
}

/// Cycles after the signal in which a response is looked for: it counts if it shows in any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Response {
    /// First cycle: 1 is the cycle after the signal's.
    pub first: u8,
    /// Last cycle; at most 3.
    pub last: u8,
}

/// Rule that makes votes of windows after signals, and a [`Verdict`](super::Verdict) of votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Judge {
    /// Majority of all votes: each signalled cycle has one, all count alike for ever, and as many
    /// for as against are enough. CRQ §III-A1.
    Majority,
    /// Marcato's own rule, which separates responses from chance.
    ///
    /// - A vote weighs an eighth (the first ones more), and signals answered by one response have
    ///   one vote together. A verdict takes three votes: 5/8 of the weight to become responsive,
    ///   and 3/8 to become unresponsive.
    /// - The share of falls that come without a signal is subtracted from the share of those that
    ///   follow one.
    /// - A fall must also exceed the usual variation of the flow's rate from cycle to cycle, so
    ///   that a flow whose packets come at random earns nothing either where every cycle is
    ///   signalled and there is nothing to compare with. There the fall must last for two cycles.
    /// - After marks, a window is also reduced if it is smaller by an eighth of a segment for each
    ///   mark: a sender such as DCTCP (RFC 8257) reduces by what was marked, not by a fixed part.
    /// - A flow of even rate is not called unresponsive because its answer to a few marks cannot be
    ///   seen, nor any flow because slow start hid its answer.
    Marcato,
}

/// Separation of losses and marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// One verdict on each kind. CRQ §III-C.
    Separate,
    /// Signals of both kinds count for both verdicts, which are then equal.
    Combined,
}

/// Cycle in which a signal is booked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Booking {
    /// Cycle in which the queue gave the signal.
    Given,
    /// Cycle in which the packet that carries the signal arrived: the sender will compare with that
    /// window, however long the packet waited.
    Arrival,
}

/// Counting of signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counting {
    /// Every signal of this queue counts, up to 255 in a cycle.
    Exact,
    /// Signals count as in the authors' program.
    ///
    /// Losses of a flow's first packet do not count, 256 losses in a cycle become one in the cycle
    /// before, and marks of other queues count too.
    Authors,
}

/// Rules by which a [`Trap`](super::Trap) judges. Start from one of the presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TrapConfig {
    /// Division of a flow's time into cycles.
    pub cycles: Cycles,
    /// Measure by which windows are compared.
    pub window: WindowUnit,
    /// Largest response, in percent of the window at the signal. CRQ §III-A1: 90.
    pub threshold: u8,
    /// Least window for a flow to be judged. CRQ §III-A1: four maximum segment sizes.
    pub floor: Floor,
    /// Cycles after the signal in which a response is looked for. CRQ §III-A1: the second.
    pub response: Response,
    /// Rule that makes votes and verdicts. CRQ §III-A1: the majority.
    pub judge: Judge,
    /// Separation of losses and marks.
    pub evidence: Evidence,
    /// Cycle in which a signal is booked.
    pub booking: Booking,
    /// Counting of signals.
    pub counting: Counting,
    /// Number of cycles after a change of queue in which signals do not count.
    ///
    /// CRQ §III-B3 leaves more than 0 to future work: even with 0 the next vote is two cycles away.
    pub reassess: u8,
}

/// Four segments of 1500 bytes, as the authors' program counts them.
const FOUR_SEGMENTS: Bytes = Bytes::new(6000);

impl TrapConfig {
    /// Rules as printed in CRQ §III.
    ///
    /// A signal may be given after the cycle of its packet has ended. The paper does not say in
    /// which of the two cycles it counts; its "window at the time of a congestion signal" is read
    /// as that of the moment it is given.
    pub const fn paper() -> Self {
        Self {
            cycles: Cycles::Matched,
            window: WindowUnit::Bytes,
            threshold: 90,
            floor: Floor::AtSignal(FOUR_SEGMENTS),
            response: Response { first: 2, last: 2 },
            judge: Judge::Majority,
            evidence: Evidence::Separate,
            booking: Booking::Given,
            counting: Counting::Exact,
            reassess: 0,
        }
    }

    /// Rules of the authors' published program, slips included.
    pub const fn authors() -> Self {
        Self {
            cycles: Cycles::Half,
            floor: Floor::AtResponse(FOUR_SEGMENTS),
            counting: Counting::Authors,
            ..Self::paper()
        }
    }

    /// Marcato's own rules.
    ///
    /// The other presets look at the second cycle only, and so miss a response that was over by
    /// then (CRQ §IV-B says so of CUBIC at a low RTT). This one looks at the first to the third.
    pub const fn marcato() -> Self {
        Self {
            cycles: Cycles::RoundTrip,
            window: WindowUnit::Rate,
            response: Response { first: 1, last: 3 },
            judge: Judge::Marcato,
            booking: Booking::Arrival,
            reassess: 2,
            ..Self::paper()
        }
    }

    /// Checks these rules and returns them.
    ///
    /// # Errors
    /// [`TrapError`] if they cannot work.
    pub const fn checked(self) -> Result<Self, TrapError> {
        if self.threshold == 0 || self.threshold > 100 {
            return Err(TrapError::Threshold(self.threshold));
        }
        let Response { first, last } = self.response;
        if first == 0 || first > last || last > 3 {
            return Err(TrapError::Response { first, last });
        }
        Ok(self)
    }
}

impl Default for TrapConfig {
    fn default() -> Self {
        Self::marcato()
    }
}

/// Error returned for a [`TrapConfig`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrapError {
    /// The threshold makes no window, or every window, a response.
    #[error("a threshold of {0} % is not possible: set it to 1 to 100, such as 90")]
    Threshold(u8),
    /// The cycles do not exist, or their windows are no longer known.
    #[error(
        "a response cannot be found in cycles {first} to {last} after a signal: choose from cycles 1 to 3, which are kept"
    )]
    Response {
        /// First cycle.
        first: u8,
        /// Last cycle.
        last: u8,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_cannot_work_are_errors() {
        for preset in [TrapConfig::paper(), TrapConfig::authors(), TrapConfig::marcato()] {
            assert_eq!(preset.checked(), Ok(preset));
            for threshold in [0, 101] {
                assert_eq!(
                    TrapConfig { threshold, ..preset }.checked(),
                    Err(TrapError::Threshold(threshold))
                );
            }
            for (first, last) in [(0, 2), (3, 2), (1, 4)] {
                let response = Response { first, last };
                assert_eq!(
                    TrapConfig { response, ..preset }.checked(),
                    Err(TrapError::Response { first, last })
                );
            }
        }
    }

    #[test]
    fn marcato_compares_rates_and_waits_two_cycles_after_a_change() {
        let config = TrapConfig::marcato();
        assert_eq!((config.window, config.reassess), (WindowUnit::Rate, 2));
        assert_eq!(config.response, Response { first: 1, last: 3 });
    }

    #[test]
    fn responses_span_cycles_1_to_3_and_thresholds_1_to_100_percent() {
        let paper = TrapConfig::paper();
        for (first, last, works) in [(1, 3, true), (3, 3, true), (1, 4, false), (0, 1, false), (2, 1, false)]
        {
            let config = TrapConfig { response: Response { first, last }, ..paper };
            assert_eq!(config.checked().is_ok(), works, "{first} to {last}");
        }
        for (threshold, works) in [(0, false), (1, true), (100, true), (101, false)] {
            assert_eq!(TrapConfig { threshold, ..paper }.checked().is_ok(), works, "{threshold} %");
        }
    }
}
