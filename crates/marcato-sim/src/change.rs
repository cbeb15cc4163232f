//! Changes of a link during a run.

use marcato_link::Loss;
use marcato_queue::Discipline;
use marcato_units::Duration;

use crate::link::LinkQueue;
use crate::packet::Packet;

/// Change of one direction of a link, made by
/// [`Network::change_link_at`](crate::Network::change_link_at). Rates and outages have methods of
/// their own: [`set_rate_at`](crate::Network::set_rate_at) and
/// [`set_link_up_at`](crate::Network::set_link_up_at).
pub enum LinkChange {
    /// Propagation delay for packets that begin to leave from then on. Packets in flight keep
    /// theirs.
    Delay {
        /// New propagation delay.
        delay: Duration,
        /// Lets a packet with a shorter delay overtake those in flight, as with netem and ns-3. If
        /// false, it arrives no earlier than the last of them; a link whose jitter keeps packets in
        /// order always does so.
        reorder: bool,
    },
    /// Loss model, which restarts from its initial state. It continues the link's random stream, so
    /// that two runs with different changes draw the same numbers until the first of them.
    Loss(Loss),
    /// Queue discipline. Waiting packets move over in the order in which the old queue releases
    /// them at that instant. Its AQM may drop or mark some of them, and the new queue drops those
    /// without room; both are counted. The new queue measures their sojourn from the change, and
    /// has no state of the old one.
    Queue {
        /// New queue; on a link that pre-empts, that of the high class.
        queue: Box<dyn LinkQueue>,
        /// New queue of the low class. `None` keeps that of a link that pre-empts. A link that does
        /// not pre-empt serves the two queues by strict priority.
        low: Option<Box<dyn Discipline<Packet>>>,
    },
}
