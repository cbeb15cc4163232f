//! Formulas of theory. Windows are in packets, times in seconds, and shares are fractions of one.

use libm::{cbrt, pow, sqrt};

/// Constant of the square root law, for a sawtooth between W/2 and W that gains a packet per `b`
/// round trips. Mathis et al., "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm"
/// (1997), eq. 3.
pub(super) fn mathis_constant(b: f64) -> f64 {
    sqrt(3.0 / (2.0 * b))
}

/// Mean window of a Reno flow that loses every (1/p)th packet.
pub(super) fn mathis_window(p: f64) -> f64 {
    mathis_constant(1.0) / sqrt(p)
}

/// Constant of the square root law for independent losses, in the limit of p to 0. Ott, Kemperman
/// and Mathis (1996).
///
/// A window grows by 1 per round trip, so that W² grows by 2 for each packet sent, and a loss
/// halves W. So before losses W² is (2/p)·S, where S is the sum of E/4^k over independent
/// exponential E. A cycle of 1/p packets takes half of W, so the mean window is sqrt(2)/E(sqrt(S))
/// / sqrt(p). E(sqrt(S)) is 1.0798.
pub(super) const OTT: f64 = 1.3098;

/// Full model of Padhye, Firoiu, Towsley and Kurose (1998), eq. 31. Returns packets per round trip
/// for a loss probability `p`, `b` packets per acknowledgement, and a first timeout of `t0` round
/// trips.
pub(super) fn pftk_full(p: f64, b: f64, t0: f64) -> f64 {
    let c = (2.0 + b) / (3.0 * b);
    let w = c + sqrt(8.0 * (1.0 - p) / (3.0 * b * p) + c * c);
    // Eq. 24 and 28: the probability that a loss in a window of w ends in a timeout, and the
    // duration of timeouts.
    let q = 1.0 - p;
    let q3 = q * q * q;
    let timeout = ((1.0 - q3) * (1.0 + q3 * (1.0 - pow(q, w - 3.0))) / (1.0 - pow(q, w))).min(1.0);
    let f = 1.0
        + p
        + 2.0 * p * p
        + 4.0 * pow(p, 3.0)
        + 8.0 * pow(p, 4.0)
        + 16.0 * pow(p, 5.0)
        + 32.0 * pow(p, 6.0);
    (q / p + w + timeout / q) / (b / 2.0 * w + 1.0 + timeout * t0 * f / q)
}

/// Approximation of the model, eq. 32, which is the one usually cited.
pub(super) fn pftk_approximate(p: f64, b: f64, t0: f64) -> f64 {
    let timeouts = t0 * (3.0 * sqrt(3.0 * b * p / 8.0)).min(1.0) * p * (1.0 + 32.0 * p * p);
    1.0 / (sqrt(2.0 * b * p / 3.0) + timeouts)
}

/// Share of the link that one Reno flow uses whose buffer is `b` bandwidth-delay products. Its
/// window climbs from (1 + b)/2 to 1 + b products. Below one product a round trip's window takes a
/// round trip; above it the queue fills.
pub(super) fn utilisation(b: f64) -> f64 {
    if b >= 1.0 {
        return 1.0;
    }
    let full = b * (1.0 + b / 2.0);
    ((3.0 + b) * (1.0 - b) / 8.0 + full) / ((1.0 - b) / 2.0 + full)
}

/// Arrival of the last of `packets`, counted from `connect`. The window doubles each round trip
/// from `initial` on, until it fills a path of `rtt` with `packet` seconds for a packet. The link
/// is then busy to the end.
///
/// The time is a sum of four terms:
///
/// - a round trip for the handshake;
/// - a round trip for each round in which the window does not fill the path;
/// - half a round trip for the last packet's propagation;
/// - the transmission time of the other packets.
pub(super) fn slow_start_transfer(packets: f64, initial: f64, rtt: f64, packet: f64) -> f64 {
    let (mut window, mut sent, mut rounds) = (initial, 0.0, 0.0);
    while window < rtt / packet && sent + window < packets {
        sent += window;
        window *= 2.0;
        rounds += 1.0;
    }
    (1.5 + rounds) * rtt + (packets - sent) * packet
}

/// Constants C and beta of RFC 9438 §5.1.
const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// Mean window of CUBIC if every (1/p)th packet is lost: RFC 9438 §5.1, 1.0538·(RTT/p)^0.75 with
/// its constants.
pub(super) fn cubic_window(rtt: f64, p: f64) -> f64 {
    sqrt(sqrt(C * (3.0 + BETA) / (4.0 * (1.0 - BETA)))) * pow(rtt / p, 0.75)
}

/// K in seconds: RFC 9438 §4.2, figure 2.
pub(super) fn cubic_k(w_max: f64) -> f64 {
    cbrt(w_max * (1.0 - BETA) / C)
}

/// Window at which a periodic stage of CUBIC ends: its mean over (3 + beta)/4.
pub(super) fn cubic_w_max(rtt: f64, p: f64) -> f64 {
    cubic_window(rtt, p) / ((3.0 + BETA) / 4.0)
}

/// Mean window of a fluid model that takes the larger of the cubic function and Reno's window (RFC
/// 9438 §4.3). Either may be larger in the middle of a stage or at its end: then the mean exceeds
/// both formulas.
pub(super) fn cubic_or_reno_window(rtt: f64, p: f64) -> f64 {
    // Searches for the W_max at which a stage, from 0.7·W_max until W_max is reached again, carries
    // 1/p packets.
    let stage = |w_max: f64| {
        let (step, k) = (1e-3 * rtt.min(1.0), cubic_k(w_max));
        let alpha = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        let (mut t, mut packets) = (0.0, 0.0);
        loop {
            let d = t - k;
            let window = (C * d * d * d + w_max).max(BETA * w_max + alpha * t / rtt);
            if window >= w_max {
                return (packets, t);
            }
            packets += window / rtt * step;
            t += step;
        }
    };
    let (mut low, mut high) = (1.0, 1e6);
    for _ in 0..50 {
        let middle = sqrt(low * high);
        if stage(middle).0 < 1.0 / p { low = middle } else { high = middle }
    }
    let (packets, t) = stage(low);
    packets / t * rtt
}

/// Times of CoDel's drops from its first one on, in intervals: t + 1/sqrt(count). RFC 8289 §5.6.
pub(super) fn codel_drops(intervals: f64) -> Vec<f64> {
    let (mut times, mut t, mut count) = (Vec::new(), 0.0, 0.0);
    while t <= intervals {
        times.push(t);
        count += 1.0;
        t += 1.0 / sqrt(count);
    }
    times
}

/// Mean time that a packet waits before service in M/M/1, in service times.
pub(super) fn mm1_wait(rho: f64) -> f64 {
    rho / (1.0 - rho)
}

/// Mean wait in M/D/1, in service times: Pollaczek and Khinchine.
pub(super) fn md1_wait(rho: f64) -> f64 {
    rho / (2.0 * (1.0 - rho))
}

/// Standard error of the mean wait of `n` successive packets in M/M/1, in service times. Successive
/// waits are strongly correlated. Daley (1968); Whitt (1989), "Planning Queueing Simulations",
/// table 1.
pub(super) fn mm1_wait_error(rho: f64, n: f64) -> f64 {
    let variance = rho * (2.0 + 5.0 * rho - 4.0 * rho * rho + rho * rho * rho) / pow(1.0 - rho, 4.0);
    sqrt(variance / n)
}

/// DCTCP sawtooth of `n` synchronised flows over a pipe of `c_rtt` packets with the threshold `k`.
/// Alizadeh et al. (2010), §3.3.
#[derive(Clone, Copy, Debug)]
pub(super) struct DctcpSawtooth {
    /// alpha by their eq. 6, solved for it; sqrt(2/W*) is its approximation.
    pub(super) alpha: f64,
    /// Longest queue, eq. 10, and amplitude, eq. 8, in packets.
    pub(super) most: f64,
    pub(super) amplitude: f64,
}

impl DctcpSawtooth {
    pub(super) fn new(n: f64, c_rtt: f64, k: f64) -> Self {
        // W*: the window at which the queue reaches the threshold.
        let window = (c_rtt + k) / n;
        let share = (2.0 * window + 1.0) / ((window + 1.0) * (window + 1.0));
        // alpha²·(1 - alpha/4) = share, by fixed point: it contracts, since alpha is at most 1.
        let mut alpha = sqrt(share).min(1.0);
        for _ in 0..60 {
            alpha = sqrt(share / (1.0 - alpha / 4.0)).min(1.0);
        }
        Self { alpha, most: k + n, amplitude: n * (window + 1.0) * alpha / 2.0 }
    }
}

/// Jain's index of fairness.
pub(super) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use marcato_units::Seed;

    use super::*;

    fn near(value: f64, expected: f64, within: f64) {
        assert!((value - expected).abs() <= within, "{value} for {expected}");
    }

    #[test]
    fn the_square_root_law_has_the_constants_of_the_paper() {
        near(mathis_constant(1.0), 1.2247, 1e-4);
        near(mathis_constant(2.0), 0.866, 1e-4);
        // 1000-byte packets over 80 ms: 12.2 Mbit/s at 1e-4, 3.9 at 1e-3, 1.2 at 1e-2.
        for (p, rate) in [(1e-4, 12.2), (1e-3, 3.9), (1e-2, 1.2)] {
            near(mathis_window(p) / 0.08 * 8000.0 / 1e6, rate, 0.06);
        }
    }

    #[test]
    fn slow_start_doubles_until_the_path_is_full() {
        // 10, 20 and 40 packets leave half or more of the path of 100 idle. 80 do not fill it
        // either; 160 do.
        near(slow_start_transfer(1000.0, 10.0, 1.0, 0.01), 5.5 + (1000.0 - 150.0) * 0.01, 1e-9);
        // Packets that fit into the first window take the handshake, their own time and half a
        // round trip.
        near(slow_start_transfer(10.0, 10.0, 1.0, 0.01), 1.6, 1e-9);
    }

    #[test]
    fn the_independent_loss_constant_matches_a_monte_carlo_estimate() {
        // E(sqrt(S)) from 400 000 draws, each with a standard deviation of 0.4: 0.0007.
        let mut stream = Seed::new(1).stream("ott");
        let draws = 400_000;
        let sum: f64 = (0..draws)
            .map(|_| {
                let terms = (0..20).map(|k| -libm::log(1.0 - stream.unit()) / pow(4.0, f64::from(k)));
                sqrt(terms.sum())
            })
            .sum();
        near(sqrt(2.0) / (sum / f64::from(draws)), OTT, 0.004);
    }

    #[test]
    fn padhyes_forms_meet_the_square_root_law_where_losses_are_few() {
        for form in [pftk_full, pftk_approximate] {
            near(form(1e-6, 1.0, 5.0) / mathis_window(1e-6), 1.0, 0.02);
        }
        // Both are below the square root law at high loss, and the approximation is within a
        // quarter of the full model.
        for p in [0.005, 0.01, 0.02, 0.05] {
            let (full, approximate) = (pftk_full(p, 1.0, 5.0), pftk_approximate(p, 1.0, 5.0));
            assert!(full < mathis_window(p) * 1.1 && approximate < mathis_window(p));
            near(full / approximate, 1.0, 0.25);
        }
    }

    #[test]
    fn a_buffer_of_one_product_fills_the_link() {
        for (b, busy) in [(0.0, 0.75), (0.1, 0.818), (0.25, 0.893), (0.5, 0.964), (1.0, 1.0), (2.0, 1.0)] {
            near(utilisation(b), busy, 6e-4);
        }
    }

    #[test]
    fn cubics_mean_windows_are_those_of_the_rfcs_table() {
        for (p, window) in [(1e-4, 187.0), (1e-5, 1054.0), (1e-6, 5926.0), (1e-7, 33_325.0)] {
            near(cubic_window(0.1, p) / window, 1.0, 3e-3);
        }
        near(cubic_k(1000.0), 9.086, 1e-3);
        near(mathis_window(1e-2), 12.2, 0.1);
        near(mathis_window(1e-3), 38.7, 0.1);
    }

    #[test]
    fn cubic_or_reno_window_is_above_reno_and_near_a_dominant_curve() {
        near(cubic_or_reno_window(0.1, 1e-5) / cubic_window(0.1, 1e-5), 1.0, 0.01);
        near(cubic_or_reno_window(0.001, 1e-2) / mathis_window(1e-2), 1.0, 0.01);
        assert!(cubic_or_reno_window(0.1, 1e-3) > mathis_window(1e-3));
    }

    #[test]
    fn codel_drops_by_its_control_law() {
        let times = codel_drops(10.0);
        for (time, ms) in times.iter().zip([0.0, 100.0, 170.7, 228.4, 278.4, 323.2, 364.0, 401.8]) {
            near(time * 100.0, ms, 0.06);
        }
        // RFC 8289 without Linux's rounding has 33 drops in the first second.
        assert_eq!(times.len(), 33);
    }

    #[test]
    fn queues_wait_as_pollaczek_and_khinchine_say() {
        for (rho, mm1) in [(0.5, 1.0), (0.8, 4.0), (0.9, 9.0)] {
            near(mm1_wait(rho), mm1, 1e-12);
            near(md1_wait(rho), mm1 / 2.0, 1e-12);
        }
        // Whitt: at 0.9, 3.6e4 service times squared.
        near(mm1_wait_error(0.9, 1.0), 189.5, 0.5);
    }

    #[test]
    fn dctcps_alpha_is_near_its_approximation() {
        let one = DctcpSawtooth::new(1.0, 83.0, 40.0);
        near(one.alpha, sqrt(2.0 / 123.0), 0.01);
        near(one.amplitude, 0.5 * sqrt(2.0 * 123.0), 0.6);
        assert_eq!(one.most, 41.0);
    }

    #[test]
    fn equal_shares_are_fair() {
        near(jain(&[2.0, 2.0]), 1.0, 1e-12);
        near(jain(&[1.0, 0.0]), 0.5, 1e-12);
    }
}
