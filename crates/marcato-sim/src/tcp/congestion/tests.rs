//! Rules that every window-based control has to keep, whatever function it grows by.

use marcato_units::Seed;

use super::*;
use crate::tcp::{Cubic, Tcp};

const SMSS: u64 = 1000;
const INITIAL: u64 = 10 * SMSS;

/// Each control with segments of 1000 bytes and an initial window of ten of them.
fn controls() -> Vec<(&'static str, Box<dyn CongestionControl>)> {
    let cubic = Cubic { hystart: false, ..Cubic::default() };
    let all = [("reno", Congestion::Reno), ("cubic", Congestion::Cubic(cubic)), ("dctcp", Congestion::Dctcp)];
    let build = |congestion| {
        let tcp = Tcp { mss: 1000, ..Tcp::with(congestion) };
        assert_eq!(tcp.initial_cwnd(), INITIAL);
        build(&tcp.into(), Seed::new(1).stream("controls")).unwrap()
    };
    all.into_iter().map(|(name, congestion)| (name, build(congestion))).collect()
}

fn ack(acked: u64, used: u64, state: LossState) -> AckEvent {
    AckEvent { srtt: Some(Duration::from_millis(100)), ..AckEvent::of(acked, used, state) }
}

/// Leads a control into congestion avoidance with a window of half of what is in flight.
fn avoid(control: &mut dyn CongestionControl, in_flight: u64) {
    for _ in 0..200 {
        if control.cwnd() >= in_flight {
            break;
        }
        control.on_ack(&ack(SMSS, control.cwnd(), LossState::Open));
    }
    control.on_congestion(Time::ZERO, in_flight, Signal::Loss);
    control.on_recovered(Time::ZERO);
}

#[test]
fn a_window_grows_only_if_it_is_used() {
    for (name, mut control) in controls() {
        // In slow start, half of it; a byte less is too little.
        for (used, grows) in [(INITIAL / 2 - 1, false), (INITIAL / 2, true)] {
            control.on_ack(&ack(SMSS, used, LossState::Open));
            assert_eq!(control.cwnd() - INITIAL, if grows { SMSS } else { 0 }, "{name}: {used}");
        }
        // Later, all but a segment.
        avoid(&mut *control, 40 * SMSS);
        let window = control.cwnd();
        assert_eq!(control.ssthresh(), window, "{name}");
        for _ in 0..2 * window / SMSS {
            control.on_ack(&ack(SMSS, window - SMSS - 1, LossState::Open));
        }
        assert_eq!(control.cwnd(), window, "{name}");
        for _ in 0..2 * window / SMSS {
            control.on_ack(&ack(SMSS, window - SMSS, LossState::Open));
        }
        assert!(control.cwnd() > window && control.cwnd() <= window + 3 * SMSS, "{name}: {}", control.cwnd());
    }
}

#[test]
fn a_window_grows_neither_in_recovery_nor_without_progress() {
    for (name, mut control) in controls() {
        for state in [LossState::Recovery, LossState::Reduction] {
            control.on_ack(&ack(5 * SMSS, INITIAL, state));
            assert_eq!(control.cwnd(), INITIAL, "{name}, {state:?}");
        }
        control.on_ack(&ack(0, INITIAL, LossState::Open));
        // What SACK has told before, the acknowledgement tells again.
        control.on_ack(&AckEvent { delivered: 0, ..ack(9 * SMSS, INITIAL, LossState::Open) });
        assert_eq!(control.cwnd(), INITIAL, "{name}");
        let counted = AckEvent { delivered: SMSS / 2, ..ack(9 * SMSS, INITIAL, LossState::Open) };
        control.on_ack(&counted);
        assert_eq!(control.cwnd(), INITIAL + SMSS / 2, "{name}");
    }
}

/// RFC 3465 §2.2 and §2.3: two segments at most, and one in the slow start after a timeout.
#[test]
fn one_acknowledgement_opens_the_window_by_a_bounded_amount() {
    for (name, mut control) in controls() {
        let Growth::Bytes { limit } = Growth::default() else { panic!("bytes are the default") };
        control.on_ack(&ack(9 * SMSS, INITIAL, LossState::Open));
        let most = (u64::from(limit) * SMSS).min(9 * SMSS);
        assert_eq!(control.cwnd(), INITIAL + most, "{name}");
        control.on_rto(Time::ZERO, INITIAL, true);
        assert_eq!(control.cwnd(), SMSS, "{name}");
        control.on_ack(&ack(9 * SMSS, SMSS, LossState::Loss));
        assert_eq!(control.cwnd(), 2 * SMSS, "{name}");
    }
}

/// RFC 5681 §3.1, eq. 4.
#[test]
fn a_timeout_leaves_one_segment_and_one_threshold() {
    for (name, mut control) in controls() {
        control.on_rto(Time::ZERO, INITIAL, true);
        let threshold = control.ssthresh();
        let expected = if name == "cubic" { 7 * SMSS } else { 5 * SMSS };
        assert_eq!((control.cwnd(), threshold), (SMSS, expected), "{name}");
        control.on_ack(&ack(SMSS, SMSS, LossState::Loss));
        control.on_rto(Time::ZERO, 2 * SMSS, false);
        assert_eq!((control.cwnd(), control.ssthresh()), (SMSS, threshold), "{name}");
        // A little that is lost leaves two segments.
        control.on_rto(Time::ZERO, SMSS, true);
        assert_eq!(control.ssthresh(), 2 * SMSS, "{name}");
    }
}

#[test]
fn a_reduction_counts_what_was_in_flight_and_not_the_window() {
    for (name, mut control) in controls() {
        control.on_congestion(Time::ZERO, 8 * SMSS, Signal::Loss);
        let expected = if name == "cubic" { 5600 } else { 4 * SMSS };
        assert_eq!((control.cwnd(), control.ssthresh()), (expected, expected), "{name}");
        control.on_spurious(Time::ZERO);
        assert_eq!((control.cwnd(), control.ssthresh()), (INITIAL, u64::MAX), "{name}");
        // More than the window counts as the window: limited transmit is not to.
        control.on_congestion(Time::ZERO, 30 * SMSS, Signal::Loss);
        let expected = if name == "cubic" { 7 * SMSS } else { 5 * SMSS };
        assert_eq!(control.cwnd(), expected, "{name}");
    }
}

/// RFC 5681 §4.1, RFC 2861 §3.
#[test]
fn an_idle_time_brings_the_initial_window_back_or_halves() {
    for (name, mut control) in controls() {
        for _ in 0..30 {
            control.on_ack(&ack(SMSS, control.cwnd(), LossState::Open));
        }
        assert_eq!(control.cwnd(), 40 * SMSS, "{name}");
        control.on_idle_restart(Time::ZERO, false, false);
        assert_eq!(control.cwnd(), 40 * SMSS, "{name}");
        control.on_rto(Time::ZERO, 4 * SMSS, true);
        control.on_spurious(Time::ZERO);
        assert_eq!(control.cwnd(), 40 * SMSS, "{name}");
        control.on_congestion(Time::ZERO, 40 * SMSS, Signal::Loss);
        let (window, before) = (control.cwnd(), control.ssthresh());
        control.on_idle_decay(1);
        assert_eq!((control.cwnd(), control.ssthresh()), ((window / 2).max(INITIAL), before), "{name}");
        control.on_idle_decay(9);
        assert_eq!(control.cwnd(), INITIAL, "{name}");
        control.on_rto(Time::ZERO, 4 * SMSS, true);
        // A window below the initial one stays, and three quarters of it are no more than the threshold.
        control.on_idle_decay(3);
        control.on_idle_restart(Time::ZERO, false, true);
        assert_eq!(control.cwnd(), SMSS, "{name}");
        for _ in 0..30 {
            control.on_ack(&ack(SMSS, control.cwnd(), LossState::Open));
        }
        let window = control.cwnd();
        assert!(window < INITIAL, "{name}: {window}");
        control.on_idle_decay(1);
        assert!(control.ssthresh() >= window / 4 * 3 && control.cwnd() == window, "{name}");
    }
}

#[test]
fn an_expired_idle_time_restarts_at_the_initial_window() {
    for (name, mut control) in controls() {
        control.on_ack(&ack(SMSS, INITIAL, LossState::Open));
        control.on_idle_restart(Time::ZERO, false, true);
        assert_eq!(control.cwnd(), INITIAL, "{name}");
        control.on_lost_handshake();
        assert_eq!(control.cwnd(), SMSS, "{name}");
    }
}

/// Bytes acknowledged before a timeout count towards no segment of growth after it.
#[test]
fn a_timeout_forgets_the_progress_towards_the_next_segment() {
    for (name, mut control) in controls().into_iter().filter(|(name, _)| *name != "cubic") {
        avoid(&mut *control, 40 * SMSS);
        assert_eq!(control.cwnd(), 20 * SMSS, "{name}");
        for _ in 0..19 {
            control.on_ack(&ack(SMSS, control.cwnd(), LossState::Open));
        }
        assert_eq!(control.cwnd(), 20 * SMSS, "{name}");
        control.on_rto(Time::ZERO, 20 * SMSS, true);
        let mut windows = Vec::new();
        for _ in 0..20 {
            control.on_ack(&ack(SMSS, control.cwnd(), LossState::Open));
            windows.push(control.cwnd() / SMSS);
        }
        let expected: Vec<u64> = (2..=10).chain([10; 9]).chain([11, 11]).collect();
        assert_eq!(windows, expected, "{name}");
    }
}
