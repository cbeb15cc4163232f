//! Values that the CRQ paper prints, and the setting of its measurements.

use core::time::Duration;

use marcato_units::{Bytes, Rate};

/// Round-trip times (§IV-B).
pub const RTTS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];
/// Rate of the bottleneck of Fig. 4 (§IV-B).
pub const ASSESSED_AT: Rate = Rate::from_mbps(50);
/// Transfer of a flow of Fig. 4 (§IV-B).
pub const ASSESSED: Bytes = Bytes::kb(200_000);
/// Rate of the bottleneck of Fig. 5 (§IV-C).
pub const LINK: Rate = Rate::from_mbps(1000);
/// Transfer of a single flow of Fig. 5 (§IV-C1).
pub const SINGLE: Bytes = Bytes::kb(1_000_000);
/// Transfer of each of the many flows of Fig. 5 (§IV-C2).
pub const EACH: Bytes = Bytes::kb(100_000);
/// Number of those flows (§IV-C2).
pub const FLOWS: usize = 20;
/// Start of the unresponsive traffic (§IV-C1).
pub const UDP_FROM: Duration = Duration::from_secs(1);
/// Magnitude below which a cell of Fig. 5 counts as 0: its sign says nothing.
pub const SMALL: f64 = 0.1;

/// Congestion controllers (§IV-A). In QUIC, Marcato's BBR is version 3, and the paper's is
/// picoquic's adapted version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Control {
    /// CUBIC.
    Cubic,
    /// BBR.
    Bbr,
}

impl Control {
    /// Both controllers.
    pub const ALL: [Self; 2] = [Self::Cubic, Self::Bbr];

    /// Name in row ids and scenarios.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

/// Stack of the paper with its congestion controller (§IV-A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stack {
    /// QUIC, which the paper runs in one direction only.
    Quic(Control),
    /// TCP in one direction.
    OneWay(Control),
    /// TCP whose client mirrors half of the stream.
    BothWays(Control),
}

impl Stack {
    /// All stacks, in the order of the rows of Fig. 5.
    pub const ALL: [Self; 6] = [
        Self::Quic(Control::Bbr),
        Self::Quic(Control::Cubic),
        Self::OneWay(Control::Bbr),
        Self::OneWay(Control::Cubic),
        Self::BothWays(Control::Bbr),
        Self::BothWays(Control::Cubic),
    ];

    /// Name of the stack in the paper.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quic(Control::Bbr) => "QUIC BBR",
            Self::Quic(Control::Cubic) => "QUIC CUBIC",
            Self::OneWay(Control::Bbr) => "TCP BBR (u)",
            Self::OneWay(Control::Cubic) => "TCP CUBIC (u)",
            Self::BothWays(Control::Bbr) => "TCP BBR (b)",
            Self::BothWays(Control::Cubic) => "TCP CUBIC (b)",
        }
    }

    /// Name of the stack in row ids.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Quic(Control::Bbr) => "quic-bbr",
            Self::Quic(Control::Cubic) => "quic-cubic",
            Self::OneWay(Control::Bbr) => "tcp-bbr-u",
            Self::OneWay(Control::Cubic) => "tcp-cubic-u",
            Self::BothWays(Control::Bbr) => "tcp-bbr-b",
            Self::BothWays(Control::Cubic) => "tcp-cubic-b",
        }
    }

    /// Returns true for QUIC.
    pub const fn is_quic(self) -> bool {
        matches!(self, Self::Quic(_))
    }
}

/// Pairs of settings that Fig. 5 compares, by the queue of the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pair {
    /// Drop-tail, against CRQ with a responsive queue of CoDel and a drop-tail standard queue.
    DropTail,
    /// CoDel that drops, against the same CRQ.
    Codel,
    /// CoDel that drops in all queues.
    Drop,
    /// CoDel that marks in all queues.
    Ecn,
}

impl Pair {
    /// All pairs, in the order of the columns of Fig. 5.
    pub const ALL: [Self; 4] = [Self::DropTail, Self::Codel, Self::Drop, Self::Ecn];

    /// Name of the pair in row ids.
    pub const fn id(self) -> &'static str {
        match self {
            Self::DropTail => "dt-cd",
            Self::Codel => "codel-cd",
            Self::Drop => "drop",
            Self::Ecn => "ecn",
        }
    }

    /// Name of the pair in words: the baseline's queue, and CRQ's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropTail => "drop-tail vs CoDel/DT",
            Self::Codel => "CoDel vs CoDel/DT",
            Self::Drop => "CoDel, drop",
            Self::Ecn => "CoDel, ECN",
        }
    }
}

/// Fig. 5: mean FCT scores of single flows. Rows follow [`Stack::ALL`]; columns follow
/// [`Pair::ALL`], and within each pair [`RTTS`].
pub const FIGURE_5: [[f64; 8]; 6] = [
    [0.51, 0.06, 0.11, -0.02, -0.32, -0.04, -0.35, -0.11],
    [0.16, 0.22, -0.31, 0.23, -0.31, 0.25, 0.18, 0.00],
    [0.76, 0.51, -0.17, 0.02, -0.19, 0.06, -0.45, 0.06],
    [0.70, 0.53, 0.24, 0.11, 0.43, 0.16, 0.43, 0.17],
    [0.67, 0.50, -0.30, -0.02, -0.34, 0.02, -0.44, 0.02],
    [0.64, 0.52, 0.20, 0.04, 0.42, 0.11, 0.40, 0.15],
];
/// Fig. 5, last row: mean FCT scores of twenty flows together.
pub const FIGURE_5_MULTI: [f64; 8] = [0.66, 0.65, 0.19, 0.22, 0.31, 0.24, 0.32, 0.22];

/// FCT score (§IV-C): from -1 to 1, positive if the flow completes earlier under CRQ.
pub fn fct_score(baseline: f64, crq: f64) -> f64 {
    if baseline > crq { 1.0 - crq / baseline } else { baseline / crq - 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_what_the_papers_examples_say() {
        assert!((fct_score(10.0, 5.0) - 0.5).abs() < 1e-12, "to 50 % of the baseline");
        assert!((fct_score(1.0, 4.0) + 0.75).abs() < 1e-12, "larger by a factor of 4");
        assert_eq!(fct_score(3.0, 3.0), 0.0);
    }

    #[test]
    fn so_many_cells_are_large_and_so_many_small() {
        let singles =
            Stack::ALL.iter().zip(FIGURE_5).flat_map(|(stack, row)| row.map(|cell| (stack.is_quic(), cell)));
        let cells: Vec<_> = singles.chain(FIGURE_5_MULTI.map(|cell| (false, cell))).collect();
        let count = |of: fn(&(bool, f64)) -> bool| cells.iter().filter(|cell| of(cell)).count();
        assert_eq!(cells.len(), 56);
        assert_eq!(count(|(_, cell)| cell.abs() >= SMALL), 45);
        assert_eq!(count(|&(quic, cell)| !quic && cell.abs() >= SMALL), 33);
    }
}
