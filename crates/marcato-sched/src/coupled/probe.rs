//! Schedule of a controller that gives up its window to measure the least round trip.
//!
//! BBR's estimate of the least round trip expires after ten seconds. In ProbeRTT, BBR then keeps four
//! packets in flight for 200 ms, and urgent data waits for the window (draft-cardwell-iccrg-bbr-
//! congestion-control-00, §4.3.5). It skips ProbeRTT if it restarts from idle: then the acknowledgement
//! that comes after the expiry measures an empty path anyway. [`Probe`] recognises ProbeRTT by what is in
//! flight. From then on, it empties the pipe when the next one is due: that takes one round trip in place
//! of one and 200 ms, and urgent data finds the whole window.

use marcato_units::{Bytes, Duration, Time};

/// Packets in flight during ProbeRTT, and its duration from when no more are.
const WINDOW: u64 = 4;
const LENGTH: Duration = Duration::from_millis(200);
/// Age at which the estimate expires.
const EXPIRY: Duration = Duration::from_secs(10);
/// Time for which a receiver may delay the acknowledgement of the last packet, and a margin.
const DELAYED_ACK: Duration = Duration::from_millis(45);
/// Margin for the time of the expiry.
const SLACK: Duration = Duration::from_millis(5);

/// Detector of ProbeRTT, and schedule of the idle instants that prevent the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Probe {
    /// First and last sample of a time with one to four packets in flight.
    low: Option<(Time, Time)>,
    /// Expiry of the controller's estimate, and the estimate; `None` before a ProbeRTT was seen.
    expiry: Option<(Time, Duration)>,
    holds: bool,
}

impl Probe {
    /// Takes note of an acknowledgement. `free` is set if neither losses nor the cap explain that few
    /// packets are in flight.
    pub(super) fn sample(&mut self, now: Time, in_flight: Bytes, rtt: Duration, mss: Bytes, free: bool) {
        let ends = in_flight > mss * WINDOW;
        match self.low {
            Some((begin, last)) if ends => {
                self.low = None;
                // It lasts for a round trip at least, and acknowledgements may come once in each.
                if (LENGTH..=LENGTH + rtt * 2).contains(&now.since(begin)) && free {
                    // The window came back with the acknowledgement before.
                    self.expiry = Some((last + EXPIRY, rtt));
                    return;
                }
            }
            // A sender that has nothing to send has nothing in flight; ProbeRTT has not.
            _ if ends || in_flight.is_zero() || !free => self.low = None,
            low => self.low = Some((low.map_or(now, |(begin, _)| begin), now)),
        }
        if let Some((expiry, least)) = &mut self.expiry
            && (now > *expiry || rtt < *least)
        {
            (*expiry, *least) = (now + EXPIRY, rtt);
        }
    }

    /// Begins to hold background data back if the estimate expires soon. Returns whether it did.
    pub(super) fn begin(&mut self, now: Time, base: Duration) -> bool {
        // A round trip to empty the pipe. Urgent data of that time may take half of one more.
        let lead = base * 3 / 2 + DELAYED_ACK;
        let soon = self.expiry.is_some_and(|(expiry, _)| now <= expiry && now + lead >= expiry);
        let begins = soon && !self.holds;
        self.holds |= begins;
        begins
    }

    /// Stops to hold background data back if what is sent now is acknowledged after the expiry, or if
    /// the estimate was renewed. Returns whether it did.
    pub(super) fn end(&mut self, now: Time, in_flight: Bytes, base: Duration) -> bool {
        let over = self.expiry.is_none_or(|(expiry, _)| {
            let renewed = now + EXPIRY / 2 < expiry;
            renewed || (in_flight.is_zero() && now + base > expiry + SLACK)
        });
        let ends = self.holds && over;
        self.holds &= !ends;
        ends
    }

    /// Returns whether a ProbeRTT was ever seen.
    #[cfg(test)]
    pub(super) const fn known(&self) -> bool {
        self.expiry.is_some()
    }

    /// Returns whether background data is held back.
    pub(super) const fn holds(&self) -> bool {
        self.holds
    }
}
