//! Local backlog: the data that the kernel holds below each socket.
//!
//! Urgent data waits behind it, so it is kept to a chunk's time, as the kernel does for TCP (TCP
//! small queues).

use marcato_quic::{Endpoint, SocketId};
use marcato_units::{Bytes, Duration, Rate, Time};

/// Time in which the network takes the backlog at twice the lanes' rates. In slow start the rate
/// doubles in a round trip.
const SPAN: Duration = Duration::from_millis(1);
/// Smallest limit: four full packets, of which the kernel reports room for two at once.
const LEAST: Bytes = Bytes::new(5000);
/// Interval between adjustments while no socket is full.
const RARELY: Duration = Duration::from_millis(100);
/// Interval between adjustments while one is.
const OFTEN: Duration = Duration::from_millis(1);
/// Sessions for which an adjustment may take place after each interval. With more, intervals grow,
/// so that the work per time does not.
const SESSIONS: usize = 64;

/// Limits of the sockets' backlogs, and the time of the next adjustment.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Limit of each socket.
    limits: Vec<Bytes>,
    /// Limits of the adjustment in progress.
    next: Vec<Bytes>,
    adjusted_at: Option<Time>,
}

impl Backlog {
    /// Returns whether an adjustment is due; `full` means that a socket is full.
    pub(super) fn is_due(&self, now: Time, full: bool, sessions: usize) -> bool {
        let interval = if full { OFTEN } else { RARELY };
        let interval = interval.saturating_mul(u32::try_from(1 + sessions / SESSIONS).unwrap_or(u32::MAX));
        self.adjusted_at.is_none_or(|at| now.since(at) >= interval)
    }

    /// Calculates the limits from the lanes' rates, and passes those that have changed to `set`.
    pub(super) fn adjust(
        &mut self,
        now: Time,
        endpoint: &Endpoint,
        sockets: usize,
        most: Bytes,
        mut set: impl FnMut(usize, Bytes),
    ) {
        self.adjusted_at = Some(now);
        self.next.clear();
        self.next.resize(sockets, Bytes::ZERO);
        for session in endpoint.sessions().filter_map(|id| endpoint.peek(id)) {
            for (view, ..) in session.lanes() {
                let Some((SocketId(socket), _)) = session.route(view.id) else { continue };
                if let Some(limit) = self.next.get_mut(usize::from(socket)) {
                    // Little's law. The window says nothing where the socket is the limit.
                    let rate = Rate::from_bytes_over(view.in_flight, view.srtt);
                    *limit += rate.bytes_in(SPAN) * 2;
                }
            }
        }
        self.limits.resize(sockets, Bytes::ZERO);
        for (socket, (limit, next)) in self.limits.iter_mut().zip(&self.next).enumerate() {
            let next = (*next).max(LEAST).min(most.max(LEAST));
            // A system call for every small change would cost more than it gains.
            let change = next.get().abs_diff(limit.get());
            if limit.is_zero() || change > limit.get() / 8 {
                *limit = next;
                set(socket, next);
            }
        }
    }

    /// Forgets a socket's limit, because the socket was replaced.
    pub(super) fn forget(&mut self, socket: usize) {
        if let Some(limit) = self.limits.get_mut(socket) {
            *limit = Bytes::ZERO;
        }
        self.adjusted_at = None;
    }
}
