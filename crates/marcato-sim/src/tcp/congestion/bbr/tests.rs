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
