//! Tests of BBR with constructed acknowledgements.

use super::*;
use crate::tcp::rate::RateSample;
use marcato_units::Seed;

const MSS: u64 = 1000;
const RTT: Duration = Duration::from_millis(100);

/// Path of `bw` bytes per second and 100 ms that acknowledges one round at a time.
struct Path {
    bbr: Bbr,
    now: Time,
    delivered: u64,
    /// Bytes lost in each round.
    losing: u64,
    lost: u64,
}

impl Path {
    fn new() -> Self {
        let mut bbr = Bbr::new(MSS, 10 * MSS, Seed::new(1).stream("bbr"));
        bbr.on_established(Time::ZERO, Some(RTT));
        Self { bbr, now: Time::ZERO, delivered: 0, losing: 0, lost: 0 }
    }

    /// Handles one acknowledgement per round, whose sample shows `bw`; afterwards `in_flight` bytes
    /// are outstanding.
    fn round(&mut self, bw: u64, prior_in_flight: u64, in_flight: u64) {
        self.now += RTT + Duration::from_millis(1);
        let prior_delivered = self.delivered;
        let newly = bw / 10;
        self.delivered += newly;
        self.lost += self.losing;
        self.bbr.on_ack(&AckEvent {
            now: self.now,
            newly_lost: self.losing,
            in_flight,
            rtt: Some(RTT),
            srtt: Some(RTT),
            rate: RateSample {
                prior_delivered,
                delivered: newly,
                interval: Some(RTT),
                is_app_limited: false,
            },
            total_delivered: self.delivered,
            total_lost: self.lost,
            next_send: self.now,
            ..AckEvent::of(newly, prior_in_flight, LossState::Open)
        });
    }
}

#[test]
fn the_gains_are_those_of_linux() {
    assert_eq!((HIGH_GAIN, DRAIN_GAIN), (2885 * UNIT / 1000 + 1, 88));
    assert_eq!(CYCLE[0], 320);
    assert_eq!(CYCLE[1], 192);
    assert_eq!(CYCLE.iter().sum::<u64>(), 8 * UNIT, "a cycle sends on average what the path carries");
}

#[test]
fn startup_ends_after_three_rounds_without_growth_and_drains() {
    let mut path = Path::new();
    for bw in [100_000, 200_000, 400_000] {
        path.round(bw, 10 * MSS, 80 * MSS);
        assert_eq!(path.bbr.mode, Mode::Startup);
        assert_eq!(path.bbr.pacing_rate, bw * HIGH_GAIN * 99 / (UNIT * 100));
    }
    for _ in 0..2 {
        path.round(400_000, 10 * MSS, 80 * MSS);
        assert_eq!(path.bbr.mode, Mode::Startup);
    }
    path.round(400_000, 10 * MSS, 80 * MSS);
    assert_eq!(path.bbr.mode, Mode::Drain);
    assert_eq!(path.bbr.pacing_gain, DRAIN_GAIN);
    path.round(400_000, 10 * MSS, 40 * MSS);
    assert_eq!(path.bbr.mode, Mode::ProbeBw);
    // Two products of 40 segments, three batches of two, and the aggregation: here a whole round.
    let product = 2 * 40 * MSS;
    assert_eq!(path.bbr.bdp(400_000, CWND_GAIN), product);
    assert_eq!(path.bbr.aggregation_cwnd(), 40 * MSS);
    assert!(path.bbr.cwnd <= product + 40 * MSS + (6 + 2 + 2) * MSS);
}

#[test]
fn the_cycle_never_begins_slow_and_passes_all_phases_in_order() {
    for seed in 0..50 {
        let mut path = Path::new();
        path.bbr.stream = Seed::new(seed).stream("bbr");
        for bw in [400_000; 5] {
            path.round(bw, 10 * MSS, 40 * MSS);
        }
        assert_eq!(path.bbr.mode, Mode::ProbeBw);
        assert_ne!(path.bbr.pacing_gain, UNIT * 3 / 4, "seed {seed}");
        let first = path.bbr.cycle_index;
        for step in 1..=8 {
            path.round(400_000, 60 * MSS, 40 * MSS);
            assert_eq!(path.bbr.cycle_index, (first + step) % 8, "seed {seed}");
            assert_eq!(path.bbr.pacing_gain, CYCLE[path.bbr.cycle_index]);
        }
    }
}

#[test]
fn after_ten_seconds_four_segments_probe_for_the_round_trip() {
    let mut path = Path::new();
    for _ in 0..99 {
        path.round(400_000, 40 * MSS, 40 * MSS);
    }
    assert_eq!(path.bbr.mode, Mode::ProbeBw);
    path.round(400_000, 40 * MSS, 40 * MSS);
    assert_eq!(path.bbr.mode, Mode::ProbeRtt);
    assert_eq!(path.bbr.cwnd(), 4 * MSS);
    assert!(path.bbr.limits_itself());
    // 200 ms and a round with four in flight, then back to the earlier window.
    for _ in 0..4 {
        path.round(40_000, 4 * MSS, 4 * MSS);
    }
    assert_eq!(path.bbr.mode, Mode::ProbeBw);
    assert!(path.bbr.cwnd() > 40 * MSS);
}

#[test]
fn the_first_pace_comes_from_the_handshake() {
    let path = Path::new();
    // Ten segments in 100 ms, times 2.887, less 1 %.
    assert_eq!(path.bbr.pacing_rate, 100_000 * HIGH_GAIN * 99 / (UNIT * 100));
}

/// Acknowledgement of one segment of `len` bytes, alone in flight, after `rtt`. It counts
/// as a full one.
fn single(now: Time, len: u64, rtt: Duration) -> AckEvent {
    AckEvent {
        now,
        newly_acked: len,
        in_flight: 0,
        rtt: Some(rtt),
        srtt: Some(rtt),
        rate: RateSample { prior_delivered: 0, delivered: MSS, interval: Some(rtt), is_app_limited: true },
        total_delivered: MSS,
        next_send: now,
        ..AckEvent::of(MSS, MSS, LossState::Open)
    }
}

#[test]
fn a_late_connection_without_an_rtt_does_not_enter_probe_rtt() {
    let mut bbr = Bbr::new(MSS, 10 * MSS, Seed::new(1).stream("bbr"));
    let opened = Time::from_secs(100);
    bbr.on_established(opened, None);
    bbr.on_ack(&single(opened + RTT, MSS, RTT));
    assert_eq!(bbr.mode, Mode::Startup);
    assert_eq!(bbr.min_rtt, Some(RTT));
}

/// Linux, `bbr_update_min_rtt`: the queue has drained while nothing was sent.
#[test]
fn the_first_acknowledgement_after_a_long_pause_probes_nothing() {
    for (paused, mode) in [(true, Mode::Startup), (false, Mode::ProbeRtt)] {
        let mut bbr = Bbr::new(MSS, 10 * MSS, Seed::new(1).stream("bbr"));
        bbr.on_established(Time::ZERO, Some(RTT));
        bbr.on_idle_restart(Time::from_secs(11), paused, false);
        bbr.on_ack(&single(Time::from_secs(11) + RTT, MSS, RTT));
        assert_eq!(bbr.mode, mode, "{paused}");
    }
}

#[test]
fn a_single_runt_does_not_renew_the_least_round_trip() {
    let delayed = RTT + Duration::from_millis(40);
    for (len, min_rtt) in [(MSS / 2, RTT), (MSS, delayed)] {
        let mut bbr = Bbr::new(MSS, 10 * MSS, Seed::new(1).stream("bbr"));
        bbr.on_established(Time::ZERO, Some(RTT));
        bbr.on_ack(&single(Time::from_secs(11), len, delayed));
        assert_eq!(bbr.min_rtt, Some(min_rtt), "{len} bytes");
    }
}

/// Two intervals that end with 20 % loss and show the same rate, as behind a policer.
#[test]
fn the_rate_of_a_policer_is_found_and_used_for_48_rounds() {
    let mut path = Path::new();
    for _ in 0..6 {
        path.round(400_000, 10 * MSS, 40 * MSS);
    }
    assert_eq!(path.bbr.mode, Mode::ProbeBw);
    let mut rounds = 0;
    while !path.bbr.lt.use_bw {
        // Every fifth round loses as much as it delivers: 20 % of all.
        rounds += 1;
        assert!(rounds < 30, "never found");
        path.losing = if rounds % 5 == 0 { 50_000 } else { 0 };
        path.round(200_000, 10 * MSS, 40 * MSS);
    }
    path.losing = 0;
    let bw = path.bbr.bw();
    assert!((190_000..=210_000).contains(&bw), "{bw}");
    assert_eq!(path.bbr.pacing_gain, UNIT);
    let mut used = 0;
    while path.bbr.lt.use_bw {
        path.round(200_000, 10 * MSS, 40 * MSS);
        used += 1;
    }
    assert_eq!(used, 48);
}

/// The window of Linux's `bbr_set_cwnd`, computed from the path: no more than it is grown at once, and no less than four
/// segments.
#[test]
fn the_window_is_two_products_with_room_for_batches() {
    for bw in [20_000, 150_000, 400_000, 10_000_000] {
        let mut path = Path::new();
        // The sixth round makes the first one's aggregation old: it was the whole of a round.
        for _ in 0..40 {
            path.round(bw, 60 * MSS, bw / 10);
        }
        assert_eq!((path.bbr.mode, path.bbr.bw()), (Mode::ProbeBw, bw));
        for _ in 0..8 {
            path.round(bw, 1_000_000_000, bw / 10);
            let product = (bw / 10 * 2).next_multiple_of(MSS);
            // Linux sends at least a segment at a time, two from 1.2 Mbit/s on, or a millisecond's worth.
            let batch = (path.bbr.pacing_rate / 1024 / MSS)
                .max(if path.bbr.pacing_rate < 150_000 { 1 } else { 2 })
                .min(65);
            let target = (product + path.bbr.aggregation_cwnd() + 3 * batch * MSS).next_multiple_of(2 * MSS)
                + if path.bbr.cycle_index == 0 { 2 * MSS } else { 0 };
            // A round's worth may be added at once, so that the window is at its target.
            assert_eq!(path.bbr.cwnd(), target, "{bw} bytes per second, phase {}", path.bbr.cycle_index);
        }
    }
}

#[test]
fn application_limited_samples_raise_the_rate_and_end_nothing() {
    let limited = |path: &mut Path, bw: u64| {
        path.now += RTT;
        let prior_delivered = path.delivered;
        path.delivered += bw / 10;
        path.bbr.on_ack(&AckEvent {
            now: path.now,
            rtt: Some(RTT),
            srtt: Some(RTT),
            rate: RateSample {
                prior_delivered,
                delivered: bw / 10,
                interval: Some(RTT),
                is_app_limited: true,
            },
            total_delivered: path.delivered,
            next_send: path.now,
            ..AckEvent::of(bw / 10, 10 * MSS, LossState::Open)
        });
    };
    let mut path = Path::new();
    path.round(100_000, 10 * MSS, 80 * MSS);
    for _ in 0..9 {
        limited(&mut path, 50_000);
        assert_eq!((path.bbr.bw(), path.bbr.mode), (100_000, Mode::Startup));
    }
    limited(&mut path, 120_000);
    assert_eq!((path.bbr.bw(), path.bbr.mode), (120_000, Mode::Startup));
    // Limited rounds leave the maximum of ten rounds as it was.
    for _ in 0..30 {
        limited(&mut path, 50_000);
    }
    assert_eq!(path.bbr.bw(), 120_000);
    path.round(60_000, 10 * MSS, 80 * MSS);
    assert_eq!(path.bbr.bw(), 60_000);
}

/// Linux, `bbr_set_cwnd_to_recover_or_restore`.
#[test]
fn a_recovery_conserves_packets_for_a_round_and_then_restores() {
    let mut path = Path::new();
    for _ in 0..20 {
        path.round(400_000, 60 * MSS, 40 * MSS);
    }
    let window = path.bbr.cwnd();
    let step = |path: &mut Path, delivered: u64, lost: u64, in_flight: u64, state, round: bool| {
        path.now += Duration::from_millis(5);
        let prior_delivered = if round { path.delivered } else { 0 };
        path.delivered += delivered;
        path.lost += lost;
        path.bbr.on_ack(&AckEvent {
            now: path.now,
            newly_lost: lost,
            in_flight,
            rtt: Some(RTT),
            srtt: Some(RTT),
            rate: RateSample { prior_delivered, delivered, interval: Some(RTT), is_app_limited: false },
            total_delivered: path.delivered,
            total_lost: path.lost,
            next_send: path.now,
            ..AckEvent::of(delivered, in_flight + delivered + lost, state)
        });
        path.bbr.cwnd()
    };
    path.bbr.on_congestion(path.now, 40 * MSS, Signal::Loss);
    // What is in flight and what was delivered, and no more.
    assert_eq!(step(&mut path, 2 * MSS, MSS, 30 * MSS, LossState::Recovery, false), 32 * MSS);
    assert_eq!(step(&mut path, MSS, 0, 31 * MSS, LossState::Recovery, false), 32 * MSS);
    assert_eq!(step(&mut path, 3 * MSS, 0, 33 * MSS, LossState::Recovery, false), 36 * MSS);
    // After a round, it grows by what is delivered, less what is lost.
    assert_eq!(step(&mut path, 2 * MSS, 0, 33 * MSS, LossState::Recovery, true), 38 * MSS);
    assert_eq!(step(&mut path, MSS, 4 * MSS, 20 * MSS, LossState::Recovery, false), 35 * MSS);
    assert!(step(&mut path, MSS, 0, 20 * MSS, LossState::Open, false) >= window, "{window}");
    // A timeout leaves one segment, and four once something is delivered.
    path.bbr.on_rto(path.now, 20 * MSS, true);
    assert_eq!(path.bbr.cwnd(), MSS);
    assert_eq!(step(&mut path, MSS, 0, 0, LossState::Loss, false), 4 * MSS);
    assert!(step(&mut path, MSS, 0, 0, LossState::Open, false) >= window, "{window}");
}

#[test]
fn sampling_for_a_policer_needs_time_and_many_losses() {
    for (losing, millis, found) in [(25_000, 101, true), (15_000, 101, false), (25_000, 0, false)] {
        let mut path = Path::new();
        for _ in 0..6 {
            path.round(400_000, 10 * MSS, 40 * MSS);
        }
        for round in 1..40 {
            path.losing = if round % 5 == 0 { losing } else { 0 };
            let now = path.now;
            path.round(200_000, 10 * MSS, 40 * MSS);
            if millis == 0 {
                path.now = now;
            }
        }
        assert_eq!(path.bbr.lt.use_bw, found, "{losing} of 100 kB in {millis} ms");
    }
}

/// Linux counts the phases of a cycle by the time of the latest delivery.
#[test]
fn an_acknowledgement_that_delivers_nothing_ends_no_phase() {
    for (delivered, ends) in [(0, false), (MSS, true)] {
        let mut path = Path::new();
        while path.bbr.mode != Mode::ProbeBw || path.bbr.cycle_index != 3 {
            path.round(400_000, 60 * MSS, 40 * MSS);
        }
        path.bbr.on_ack(&AckEvent {
            now: path.now + RTT + Duration::from_millis(1),
            rtt: None,
            total_delivered: path.delivered + delivered,
            next_send: path.now,
            ..AckEvent::of(delivered, 40 * MSS, LossState::Open)
        });
        assert_eq!(path.bbr.cycle_index == 4, ends, "{delivered} bytes");
    }
}
