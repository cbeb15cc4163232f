//! Counters of the programs: the `enum` of `bpf/counters.h`.

/// Packets, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of packets, or of what else is counted.
    pub packets: u64,
    /// Their bytes, where packets are counted that leave.
    pub bytes: u64,
}

/// Quantity that the programs count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Packets sent to the standard queue.
    Standard,
    /// Packets sent to the responsive queue.
    Responsive,
    /// Packets sent to the place for young flows.
    Young,
    /// Packets of flows without a verdict on loss.
    LossUnclassified,
    /// Packets of flows that answer loss.
    LossResponsive,
    /// Packets of flows that do not.
    LossUnresponsive,
    /// Packets of flows without a verdict on marks.
    EcnUnclassified,
    /// Packets of flows that answer marks.
    EcnResponsive,
    /// Packets of flows that do not.
    EcnUnresponsive,
    /// Packets that cannot be assessed: other protocols, fragments, UDP that is not QUIC.
    Unassessed,
    /// Packets that are no readable IP.
    Unreadable,
    /// Flows that got a state.
    FlowsAdded,
    /// Flows that got none.
    MapFull,
    /// Packets whose flow's state another CPU held for too long. They are not assessed.
    Contended,
    /// Drops by the device's queues.
    Drops,
    /// Marks by the device's queues.
    Marks,
    /// Signals by packets without a state.
    UnknownSignals,
    /// Changes of queue.
    Changes,
    /// Packets sent to the standard queue that would have been young, but for an allowance that is
    /// used up.
    Outgrown,
}

impl Counter {
    /// Name in documents that programs read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Responsive => "responsive",
            Self::Young => "young",
            Self::LossUnclassified => "loss_unclassified",
            Self::LossResponsive => "loss_responsive",
            Self::LossUnresponsive => "loss_unresponsive",
            Self::EcnUnclassified => "ecn_unclassified",
            Self::EcnResponsive => "ecn_responsive",
            Self::EcnUnresponsive => "ecn_unresponsive",
            Self::Unassessed => "unassessed",
            Self::Unreadable => "unreadable",
            Self::FlowsAdded => "flows_added",
            Self::MapFull => "map_full",
            Self::Contended => "contended",
            Self::Drops => "drops",
            Self::Marks => "marks",
            Self::UnknownSignals => "unknown_signals",
            Self::Changes => "changes",
            Self::Outgrown => "outgrown",
        }
    }

    /// All counters, in the programs' order.
    pub const ALL: [Self; 19] = [
        Self::Standard,
        Self::Responsive,
        Self::Young,
        Self::LossUnclassified,
        Self::LossResponsive,
        Self::LossUnresponsive,
        Self::EcnUnclassified,
        Self::EcnResponsive,
        Self::EcnUnresponsive,
        Self::Unassessed,
        Self::Unreadable,
        Self::FlowsAdded,
        Self::MapFull,
        Self::Contended,
        Self::Drops,
        Self::Marks,
        Self::UnknownSignals,
        Self::Changes,
        Self::Outgrown,
    ];
}
