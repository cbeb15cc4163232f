//! Events that a session reports to its owner.

use marcato_sched::conductor::{MessageId, Removal};
use marcato_sched::coupled::Transition;
use marcato_sched::lane::LaneId;
use marcato_units::{Bytes, Time};
use marcato_wire::{EndReason, Fate, MessageNumber};

use crate::streams::StreamEvent;

/// Reason for which a lane closed or failed to open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaneLoss {
    /// This end closed it.
    Closed,
    /// The peer closed it.
    ClosedByPeer,
    /// The lane was silent for too long.
    Silent,
    /// It could not be opened.
    Refused(String),
}

/// Change of state of a low lane, in addition to those of any lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LowLaneChange {
    /// The network does not, or no longer, serve the high layer first: high lanes suffer while low
    /// ones send. The lane carries only keep-alives until it is retried.
    Unprioritised,
    /// The lane sends again, to test again whether the network serves the high layer first.
    Retried,
    /// The lane carries all data, because no high lane works.
    Alone,
    /// A high lane works again.
    Relieved,
}

/// Kind of change of a congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowChange {
    /// It grew in slow start, or under a controller without such phases.
    Opened,
    /// It grew in congestion avoidance.
    Grew,
    /// It was reduced.
    Reduced,
    /// A reduction was undone, because packets declared lost have arrived.
    Restored,
}

/// Event of a session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is complete; messages leave from now on.
    Connected,
    /// Early data of a client that has resumed a TLS session has arrived at this server (RFC 8446
    /// §2.3). Messages leave from now on, and [`Connected`](Self::Connected) follows. Until then
    /// the data may be a replay, and nothing shows that the client is there.
    Early,
    /// The session has ended. No event follows.
    Closed {
        /// Reason, as text. With a code of an application
        /// ([`ErrorCode::Application`](marcato_wire::ErrorCode::Application)), it is the
        /// application's own.
        reason: String,
        /// Error code with which the peer's application closed it (`ErrorCode` of `marcato-wire`
        /// lists Marcato's); `None` if this end, the engine or the network ended it.
        code: Option<u64>,
    },
    /// There is data to [read](crate::Session::read).
    Readable,
    /// Event of a plain stream. Only with
    /// [`SessionConfig::protocol`](crate::SessionConfig::protocol).
    Stream(StreamEvent),
    /// The receiver has all of this message.
    Delivered(MessageId),
    /// This unreliable message has left. No later event reports its fate.
    Sent(MessageId),
    /// There is an unreliable message to [read](crate::Session::read_datagram).
    Datagram,
    /// The receiver wants no more of this message, although it does not have all of it.
    Declined(MessageId),
    /// The receiver reports about a message [with a receipt](crate::Message::with_receipt).
    Reported {
        /// Message concerned; of one handed over part by part, the last part. `None` if no report
        /// was awaited: the message was abandoned, or the peer invents reports.
        message: Option<MessageId>,
        /// Fate of the message.
        fate: Fate,
    },
    /// The peer has ended an exchange without a reply.
    ExchangeEnded {
        /// Number of the exchange, which may not exist.
        exchange: u64,
        /// Reason for its end.
        reason: EndReason,
    },
    /// The peer sends no more messages, and all of them have arrived.
    Finished,
    /// All reports of this end have arrived
    /// ([`Session::finish_reports`](crate::Session::finish_reports)).
    ReportsArrived,
    /// The rest of this message will not be sent.
    Dropped {
        /// Message that was dropped.
        message: MessageId,
        /// Bytes of it that had been handed to the engine.
        sent: Bytes,
        /// Reason for dropping it.
        reason: Removal,
    },
    /// The peer abandoned this message that it was sending. The bytes already read are void.
    GivenUp {
        /// Message that was abandoned.
        message: MessageNumber,
        /// Reason, as a code of the peer's application.
        code: u64,
    },
    /// A lane carries data from now on.
    LaneUp(LaneId),
    /// Packets on this lane were not acknowledged for too long. Data that is stuck there is also
    /// sent on other lanes, if there are any. It comes once, and not again before
    /// [`LaneRecovered`](Self::LaneRecovered).
    LaneStalled(LaneId),
    /// A stalled lane answers again.
    LaneRecovered(LaneId),
    /// The peer asks for this lane to be used only if no other is available, or withdraws that.
    LaneBackup {
        /// Lane concerned.
        lane: LaneId,
        /// Set if the lane is to be a backup.
        backup: bool,
    },
    /// A low lane changed state. Only with [`SessionConfig::low_lanes`](crate::SessionConfig).
    LowLane {
        /// Lane concerned.
        lane: LaneId,
        /// Change of its state.
        change: LowLaneChange,
    },
    /// The remote address of the lane has changed.
    LaneMoved(LaneId),
    /// A lane has closed, or could not be opened.
    LaneDown {
        /// Lane concerned; `None` if it never had an identifier.
        lane: Option<LaneId>,
        /// Reason for its end.
        reason: LaneLoss,
        /// Time at which it is reopened; `None` for never.
        reopens_at: Option<Time>,
    },
    /// Coupled mode has changed its mode on a lane. Only with
    /// [`SessionConfig::coupled`](crate::SessionConfig::coupled).
    Coupled {
        /// Lane concerned.
        lane: LaneId,
        /// Modes before and after, and the time of the change.
        transition: Transition,
    },
    /// The window of a lane has changed. Only with
    /// [`SessionConfig::trace_windows`](crate::SessionConfig).
    Window {
        /// Lane concerned.
        lane: LaneId,
        /// Time of the change.
        at: Time,
        /// Kind of change.
        change: WindowChange,
        /// Window after the change, in bytes.
        window: Bytes,
    },
}
