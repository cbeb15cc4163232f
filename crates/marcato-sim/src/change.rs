//! Changes of a link during a run.

use marcato_queue::Discipline;
use marcato_units::Duration;

use crate::link::LinkQueue;
use crate::loss::Loss;
use crate::packet::Packet;

/// A change of one direction of a link, made by [`Network::change_link_at`](crate::Network::change_link_at). Rates and
/// outages have methods of their own: [`set_rate_at`](crate::Network::set_rate_at) and
/// [`set_link_up_at`](crate::Network::set_link_up_at).
pub enum LinkChange {
    /// Another propagation delay, for packets that begin to leave from then on. Packets under way keep theirs.
    Delay {
        /// The new delay.
        delay: Duration,
        /// Whether a packet with a shorter delay may overtake those under way, as with netem and ns-3. Otherwise it
        /// arrives no earlier than the last of them. A link whose jitter keeps packets in order does so here as well.
        reorder: bool,
    },
    /// Another loss model, which begins anew. It continues the link's random stream, so that two runs with different
    /// changes draw the same numbers until the first of them.
    Loss(Loss),
    /// Another queue. Waiting packets move over in the order in which the old queue lets them out at that instant. Its
    /// AQM may drop or mark some of them, and the new queue drops those without room; both are counted. The new queue
    /// measures their sojourn from the change, and knows nothing of what the old one learned.
    Queue {
        /// The new queue; where the link pre-empts, that of the high class.
        queue: Box<dyn LinkQueue>,
        /// The new queue of the low class. `None` leaves that of a link that pre-empts as it is. A link that does not
        /// pre-empt serves the two by strict priority.
        low: Option<Box<dyn Discipline<Packet>>>,
    },
}
