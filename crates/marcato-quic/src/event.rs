//! What a session tells its owner.

use marcato_sched::conductor::{MessageId, Removal};
use marcato_sched::lane::LaneId;
use marcato_units::{Bytes, Time};
use marcato_wire::MessageNumber;

/// Why a lane is gone, or never came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneLoss {
    /// We closed it.
    Closed,
    /// The peer closed it.
    ClosedByPeer,
    /// Nothing was heard on it for too long.
    Silent,
    /// It could not be opened.
    Refused(String),
}

/// What becomes of a low lane, beside what may become of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LowLaneChange {
    /// The network does not serve the high layer first, or no longer: high lanes fare worse while low ones send. Nothing
    /// is sent on it but what keeps it alive, until it is tried again.
    Unprioritised,
    /// It is tried again whether the network serves the high layer first.
    Retried,
    /// It carries everything, because no high lane works.
    Alone,
    /// A high lane works again.
    Relieved,
}

/// How a window changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowChange {
    /// It grew in slow start, or under a controller that has no such phases.
    Opened,
    /// It grew in congestion avoidance.
    Grew,
    /// It was reduced.
    Reduced,
    /// A reduction was taken back: what had been declared lost has arrived.
    Restored,
}

/// Something that the owner of a session may want to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The handshake is done; messages leave from now on.
    Connected,
    /// The session is over. Nothing else follows.
    Closed {
        /// Why, in words.
        reason: String,
    },
    /// There is something to [read](crate::Session::read).
    Readable,
    /// The receiver has all of this message.
    Delivered(MessageId),
    /// This unreliable message has left. Nothing more will be known of it.
    Sent(MessageId),
    /// There is an unreliable message to [take](crate::Session::read_datagram).
    Datagram,
    /// The receiver wants no more of this message, although it does not have all of it.
    Declined(MessageId),
    /// The rest of this message will not be sent.
    Dropped {
        /// Which message.
        message: MessageId,
        /// How much of it had been handed to the engine.
        sent: Bytes,
        /// Why.
        reason: Removal,
    },
    /// The peer gave up this message that it was sending. What was read of it is void.
    GivenUp {
        /// Which message.
        message: MessageNumber,
        /// Why, in the peer's application's words.
        code: u64,
    },
    /// A lane carries data from now on.
    LaneUp(LaneId),
    /// Nothing has been heard for too long of what was sent on this lane; what is stuck there goes elsewhere too.
    LaneStalled(LaneId),
    /// A stalled lane answers again.
    LaneRecovered(LaneId),
    /// The peer wishes to have this lane used only if no other can be, or takes the wish back.
    LaneBackup {
        /// Which lane.
        lane: LaneId,
        /// Whether it is to be the last choice.
        backup: bool,
    },
    /// Something has become of a low lane. Only with [`SessionConfig::low_lanes`](crate::SessionConfig).
    LowLane {
        /// Which lane.
        lane: LaneId,
        /// What has become of it.
        change: LowLaneChange,
    },
    /// The address of the lane's other end has changed.
    LaneMoved(LaneId),
    /// A lane is gone.
    LaneDown {
        /// Which lane; `None` if it never had a name.
        lane: Option<LaneId>,
        /// Why.
        reason: LaneLoss,
    },
    /// The window of a lane has changed. Only with [`SessionConfig::trace_windows`](crate::SessionConfig).
    Window {
        /// Which lane.
        lane: LaneId,
        /// When.
        at: Time,
        /// How.
        change: WindowChange,
        /// To what.
        window: Bytes,
    },
}
