//! An independent model of Reno under loss, to validate the simulator: packets in rounds, no
//! network, no clock.
//!
//! The simulator sends segments over links and has sequence numbers, timers and SACK. This model
//! has a window of packets that return in the order in which they left, a round trip later, or are
//! lost. Both share only RFC 5681's additive increase and halving, three duplicates, and RFC 6937's
//! half of the deliveries in recovery.

use std::collections::VecDeque;

use marcato_units::Stream;

/// Parameters of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aimd {
    /// Packets per acknowledgement.
    pub(super) per_ack: u64,
    /// True if growth counts acknowledged packets, as RFC 3465; false if it counts
    /// acknowledgements, as the formula with b.
    pub(super) counts_packets: bool,
}

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
struct Flying {
    lost: bool,
    /// True for a retransmission, which delivers nothing new.
    again: bool,
    number: u64,
}

impl Aimd {
    /// Model with an acknowledgement per packet.
    pub(super) const PLAIN: Self = Self { per_ack: 1, counts_packets: true };

    /// New packets delivered per round trip, measured over `packets` of them. Each packet is lost
    /// with probability `p` independently, or, without a `stream`, exactly every (1/p)th is.
    pub(super) fn rate(self, p: f64, packets: u64, mut stream: Option<Stream>) -> f64 {
        let every = super::path::whole(1.0 / p);
        let mut sent = 0u64;
        let mut lose = move || match &mut stream {
            Some(stream) => stream.chance(p),
            None => {
                sent += 1;
                sent.is_multiple_of(every)
            }
        };
        let mut window = super::path::whole(super::formula::mathis_window(p)).max(4);
        let (mut credit, mut number, mut rounds, mut fresh) = (0, 0, 0u64, 0u64);
        let mut flying: VecDeque<Flying> = VecDeque::new();
        // Packets known to be missing; and, in recovery, missing ones that were sent after it
        // began.
        let (mut holes, mut late) = (0u64, 0u64);
        // Retransmissions in flight: recovery lasts until all have arrived.
        let (mut open, mut duplicates) = (0u64, 0u64);
        let mut recovery: Option<Recovery> = None;
        let mut send = |again: bool, number: &mut u64, next: &mut VecDeque<Flying>| {
            *number += 1;
            next.push_back(Flying { lost: lose(), again, number: *number });
        };
        // The first tenth is warm-up.
        let (mut before, warm) = (None, packets / 10);
        while fresh < packets {
            if before.is_none() && fresh >= warm {
                before = Some((fresh, rounds));
            }
            rounds += 1;
            if flying.is_empty() {
                // The run begins; or all packets are lost, and only the timer can detect it.
                if number > 0 {
                    (rounds, window) = (rounds + 2, 2);
                }
                (credit, duplicates, recovery, open, holes, late) = (0, 0, None, 0, 0, 0);
                for _ in 0..window {
                    send(false, &mut number, &mut flying);
                }
            }
            let mut next = VecDeque::with_capacity(flying.len() + 2);
            // As acknowledgements of this round arrive, new packets leave.
            while let Some(packet) = flying.pop_front() {
                fresh += u64::from(!packet.again);
                open -= u64::from(packet.again);
                if packet.lost {
                    let new = recovery.is_some_and(|state| !packet.again && packet.number > state.until);
                    *(if new { &mut late } else { &mut holes }) += 1;
                    continue;
                }
                let pipe = |next: &VecDeque<Flying>| (flying.len() + next.len()) as u64;
                if recovery.is_none() && holes > 0 {
                    duplicates += 1;
                    if duplicates >= 3 {
                        let (threshold, flight) = ((window / 2).max(2), pipe(&next) + holes + duplicates);
                        recovery = Some(Recovery { threshold, flight, delivered: 0, out: 0, until: number });
                    }
                }
                if let Some(state) = &mut recovery {
                    state.delivered += 1;
                    // RFC 6937: proportional while the pipe exceeds the threshold, otherwise one
                    // more than was delivered. The first retransmission leaves at once.
                    let now = pipe(&next);
                    let due = if now > state.threshold {
                        (state.delivered * state.threshold).div_ceil(state.flight).saturating_sub(state.out)
                    } else {
                        let limit = state.delivered.saturating_sub(state.out).max(1) + 1;
                        limit.min(state.threshold.saturating_sub(now))
                    };
                    for _ in 0..due.max(u64::from(state.delivered == 1)) {
                        state.out += 1;
                        let again = holes > 0;
                        holes -= u64::from(again);
                        open += u64::from(again);
                        send(again, &mut number, &mut next);
                    }
                    // Recovery ends when everything sent before it has arrived.
                    if packet.number >= state.until && holes == 0 && open == 0 {
                        (window, credit, recovery) = (state.threshold, 0, None);
                        (holes, late) = (late, 0);
                        duplicates = if holes > 0 { 2 } else { 0 };
                    }
                    continue;
                }
                if holes == 0 {
                    // Growth per acknowledgement of `per_ack` packets, or, when packets are
                    // counted, by each packet's part.
                    credit += 1;
                    let needed = if self.counts_packets { window } else { window * self.per_ack };
                    if credit >= needed {
                        credit -= needed;
                        window += 1;
                    }
                }
                while pipe(&next) + holes < window {
                    send(false, &mut number, &mut next);
                }
            }
            flying = next;
        }
        let (from, began) = before.unwrap_or((0, 0));
        (fresh - from) as f64 / (rounds - began) as f64
    }
}

/// RFC 6937's variables, and the last packet sent before recovery began.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    threshold: u64,
    flight: u64,
    delivered: u64,
    out: u64,
    until: u64,
}

#[cfg(test)]
mod tests {
    use marcato_units::Seed;

    use super::super::formula::{OTT, mathis_constant};
    use super::*;

    #[test]
    fn regular_losses_give_the_square_root_law() {
        let c = Aimd::PLAIN.rate(1e-4, 2_000_000, None) * 0.01;
        assert!((c / mathis_constant(1.0) - 1.0).abs() < 0.02, "{c}");
    }

    #[test]
    fn an_ack_of_two_packets_counts_once_unless_packets_are_counted() {
        let counted = Aimd { per_ack: 2, counts_packets: false }.rate(1e-4, 4_000_000, None) * 0.01;
        assert!((counted / mathis_constant(2.0) - 1.0).abs() < 0.02, "{counted}");
        let bytes = Aimd { per_ack: 2, counts_packets: true }.rate(1e-4, 4_000_000, None) * 0.01;
        assert!((bytes / mathis_constant(1.0) - 1.0).abs() < 0.02, "{bytes}");
    }

    #[test]
    fn independent_losses_give_otts_constant() {
        // 4000 losses: half of the spread of a cycle over their root is 0.8 %, and three times that
        // 2.4 %. Whole windows add 1 %.
        let stream = Seed::new(1).stream("aimd");
        let c = Aimd::PLAIN.rate(1e-4, 40_000_000, Some(stream)) * 0.01;
        assert!((c / OTT - 1.0).abs() < 0.035, "{c}");
    }
}
