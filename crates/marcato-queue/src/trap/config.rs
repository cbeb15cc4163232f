//! The rules by which a trap judges.

use marcato_units::Bytes;

/// What a cycle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cycles {
    /// TCP: data and its acknowledgement, as the authors' program has it, with its slips: plain comparisons that
    /// wrapping upsets, and a next cycle that is measured by whatever segment ended the last, be it a retransmission.
    /// QUIC: every flip of the spin bit, the first one from 0.
    Half,
    /// TCP: both halves of CRQ Fig. 2, of which the second is empty where the other host sends no data. QUIC: every flip
    /// of the spin bit.
    Matched,
    /// As long as a loop of the path, by timestamps (RFC 7323), by sequence numbers and the handshake, or by flips of
    /// the spin bit that held.
    Loop,
}

/// What windows are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowUnit {
    /// Bytes in the cycle. CRQ §III-A1.
    Bytes,
    /// Bytes over the cycle's length: a sender that makes its cycles shorter does not send less.
    Rate,
}

/// Which window must be large for a flow to be judged. CRQ §III-A1: a flow that has already backed off is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Floor {
    /// The one at the signal must be above this. CRQ §III-A1.
    AtSignal(Bytes),
    /// The later one must be at least this: a flow that backs off below it gets no credit. The authors' program.
    AtResponse(Bytes),
}

/// In which cycles after the signal a response is looked for: it is one if it shows in any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Response {
    /// The first: 1 is the cycle after the signal's.
    pub first: u8,
    /// The last; at most 3.
    pub last: u8,
}

/// What becomes of votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Votes {
    /// All count alike for ever, each signalled cycle has one, and as many for as against are enough. CRQ §III-A1.
    Lifetime,
    /// Each has an eighth of the say (the first ones more), signals answered by one response have one vote together, and
    /// it takes three votes for a verdict: 5/8 of the say to become responsive, and 3/8 to become unresponsive.
    Aged,
}

/// Whether loss and marks are judged apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// A verdict on each. CRQ §III-C.
    Separate,
    /// Signals of both kinds count for both verdicts, which are then the same.
    Combined,
}

/// Which cycle a signal is booked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Booking {
    /// The one in which the queue gave it.
    Given,
    /// The one in which the packet that carried it came: that is the window to which the sender will compare, however
    /// long the packet waited.
    Arrival,
}

/// How signals are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counting {
    /// Every one of this queue's, up to 255 in a cycle.
    Exact,
    /// As the authors' program does it: losses of a flow's first packet are not, 256 losses in a cycle become one in
    /// the cycle before, and marks that other queues gave count too.
    Authors,
}

/// The rules by which a [`Trap`](super::Trap) judges. Start from one of the presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TrapConfig {
    /// What a cycle is.
    pub cycles: Cycles,
    /// What windows are compared by.
    pub window: WindowUnit,
    /// A window is a response if it is so many percent of that at the signal, or less. CRQ §III-A1: 90.
    pub threshold: u8,
    /// A window is a response to marks also if it is less by so many bytes for each mark of the cycle at the signal: a
    /// sender such as DCTCP (RFC 8257) reduces by what was marked, not by a fixed part. 0: only the threshold counts.
    pub per_mark: u16,
    /// Which windows are large enough. CRQ §III-A1: four maximum segment sizes.
    pub floor: Floor,
    /// In which cycles after the signal a response is looked for. CRQ §III-A1: the second.
    pub response: Response,
    /// What becomes of votes.
    pub votes: Votes,
    /// Whether loss and marks are judged apart.
    pub evidence: Evidence,
    /// Which cycle a signal is booked in.
    pub booking: Booking,
    /// How signals are counted.
    pub counting: Counting,
    /// Take the share of dips that come without a signal off the share of those that come after one.
    pub controls: bool,
    /// A dip must also exceed what the flow's rate usually bends by from cycle to cycle, so that one whose packets come at
    /// random earns nothing either where every cycle is signalled to and there is nothing to compare with; there it must last
    /// for two cycles. Nor is a flow whose rate is even called unresponsive because its answer to a few marks cannot be seen, or
    /// because slow start hid one.
    pub beyond_noise: bool,
    /// For so many cycles after a change of queue, signals are not looked at. CRQ §III-B3 leaves more than 0 to future
    /// work: even then the next vote is two cycles away.
    pub reassess: u8,
}

/// Four segments of 1500 bytes, as the authors' program counts them.
const FOUR_SEGMENTS: Bytes = Bytes::new(6000);

/// A quarter of what DCTCP takes off its window for each mark when it is in balance: half a segment.
const EIGHTH_OF_A_SEGMENT: u16 = 188;

impl TrapConfig {
    /// The rules as they are printed in CRQ §III.
    ///
    /// The paper does not say in which of the two cycles a signal counts that is given after its packet's has ended: its
    /// "window at the time of a congestion signal" is read as that of the moment it is given.
    pub const fn paper() -> Self {
        Self {
            cycles: Cycles::Matched,
            window: WindowUnit::Bytes,
            threshold: 90,
            per_mark: 0,
            floor: Floor::AtSignal(FOUR_SEGMENTS),
            response: Response { first: 2, last: 2 },
            votes: Votes::Lifetime,
            evidence: Evidence::Separate,
            booking: Booking::Given,
            counting: Counting::Exact,
            controls: false,
            beyond_noise: false,
            reassess: 0,
        }
    }

    /// As the authors' published program behaves, slips included.
    pub const fn authors() -> Self {
        Self {
            cycles: Cycles::Half,
            floor: Floor::AtResponse(FOUR_SEGMENTS),
            counting: Counting::Authors,
            ..Self::paper()
        }
    }

    /// What we think is right.
    ///
    /// The other presets look at the second cycle only, and so miss a response that was over by then (CRQ §IV-B says so
    /// of CUBIC at a low RTT); this one looks at one to three.
    pub const fn marcato() -> Self {
        Self {
            cycles: Cycles::Loop,
            window: WindowUnit::Rate,
            per_mark: EIGHTH_OF_A_SEGMENT,
            response: Response { first: 1, last: 3 },
            votes: Votes::Aged,
            booking: Booking::Arrival,
            controls: true,
            beyond_noise: true,
            reassess: 2,
            ..Self::paper()
        }
    }

    /// These rules, if they can work.
    ///
    /// # Errors
    /// [`TrapError`] if they cannot.
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

/// Why a [`TrapConfig`] cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrapError {
    /// No window, or every window, would be a response.
    #[error("a threshold of {0} % cannot be: set it to 1 to 100, such as 90")]
    Threshold(u8),
    /// There are no such cycles, or their windows are no longer known.
    #[error("a response cannot be looked for in cycles {first} to {last} after a signal: 1 to 3 are kept")]
    Response {
        /// The first.
        first: u8,
        /// The last.
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
}
