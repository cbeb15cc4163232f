//! Controller of the low layer over a modelled path, and its invariants for any sequence of
//! reports.

use marcato_sched::lowprio::{Adaptive, Epoch, Fraction, Growth, Lcm, LcmConfig, Target};
use marcato_units::{Bytes, Duration, Seed, Stream, Time};
use proptest::prelude::*;

const PACKET: Bytes = Bytes::kb(1);

/// Path that loses each packet with a probability, and all packets beyond its pipe. One step is one
/// epoch and one round trip: feedback for a step's packets arrives in the next.
struct Path {
    pipe: u64,
    loss: f64,
    stream: Stream,
    sent: u64,
    step: u64,
}

impl Path {
    fn new(pipe: u64, loss: f64) -> Self {
        Self { pipe, loss, stream: Seed::new(1).stream("path"), sent: 0, step: 0 }
    }

    fn step(&mut self, lcm: &mut Lcm) -> u64 {
        let now = Time::from_millis(100 * self.step);
        lcm.on_epoch(now);
        let through = self.sent.min(self.pipe);
        let wire = (0..through).filter(|_| self.stream.chance(self.loss)).count() as u64;
        lcm.on_acked(now, PACKET * (through - wire));
        lcm.on_lost(now, PACKET * (self.sent - through + wire));
        self.sent = 0;
        while lcm.room(PACKET * self.sent) >= PACKET {
            self.sent += 1;
            lcm.on_sent(now, PACKET, PACKET * self.sent);
        }
        self.step += 1;
        through - wire
    }

    /// Returns the mean packets carried per step over `steps`, after a warm-up as long.
    fn carried(&mut self, lcm: &mut Lcm, steps: u64) -> f64 {
        for _ in 0..steps {
            self.step(lcm);
        }
        (0..steps).map(|_| self.step(lcm)).sum::<u64>() as f64 / steps as f64
    }
}

fn paper() -> Lcm {
    Lcm::new(LcmConfig { initial_window: Bytes::kb(100), ..LcmConfig::paper() })
        .expect("a configuration that works")
}

fn adaptive() -> Lcm {
    let target = Target::Adaptive(Adaptive::new());
    Lcm::new(LcmConfig { target, initial_window: Bytes::kb(100), ..LcmConfig::paper() })
        .expect("a configuration that works")
}

#[test]
fn a_clean_pipe_is_kept_full() {
    let carried = Path::new(2500, 0.0).carried(&mut paper(), 1000);
    assert!(carried > 0.9 * 2500.0, "{carried}");
}

#[test]
fn loss_below_the_target_changes_little() {
    let carried = Path::new(2500, 0.001).carried(&mut paper(), 1000);
    assert!(carried > 0.9 * 2500.0, "{carried}");
}

#[test]
fn steady_loss_above_the_target_makes_a_fixed_target_collapse() {
    let carried = Path::new(2500, 0.01).carried(&mut paper(), 1000);
    assert!(carried < 0.1 * 2500.0, "{carried}");
}

#[test]
fn an_adaptive_target_tolerates_loss_independent_of_the_window() {
    let mut lcm = adaptive();
    let carried = Path::new(2500, 0.01).carried(&mut lcm, 2000);
    assert!(carried > 0.8 * 2500.0, "{carried}, path loss {}", lcm.path_loss());
}

#[test]
fn an_adaptive_target_takes_no_overflow_for_the_path_s_own_loss() {
    let mut lcm = adaptive();
    let mut path = Path::new(2500, 0.0);
    path.carried(&mut lcm, 1000);
    let before = lcm.counters();
    for _ in 0..2000 {
        path.step(&mut lcm);
    }
    let after = lcm.counters();
    let lost = Fraction::ratio(after.lost - before.lost, after.sent - before.sent).as_f64();
    let mut fixed = paper();
    let mut path = Path::new(2500, 0.0);
    path.carried(&mut fixed, 1500);
    let by_fixed = Fraction::ratio(fixed.counters().lost, fixed.counters().sent).as_f64();
    assert!(lost < 1.5 * by_fixed, "{lost} instead of {by_fixed}");
}

#[test]
fn an_adaptive_target_forgets_loss_that_has_ended() {
    let mut lcm = adaptive();
    let mut path = Path::new(2500, 0.01);
    path.carried(&mut lcm, 1000);
    assert!(lcm.path_loss() > Fraction::per_mille(4), "{}", lcm.path_loss());
    path.loss = 0.0;
    path.carried(&mut lcm, 1000);
    assert!(lcm.path_loss() < Fraction::per_mille(4), "{}", lcm.path_loss());
}

#[derive(Clone, Debug)]
enum Op {
    Wait(u64),
    Send(u64),
    Ack(u64),
    Lose(u64),
    Timeout,
    Limited,
    Rtt(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0u64..400).prop_map(Op::Wait),
        (1u64..200).prop_map(Op::Send),
        (0u64..200).prop_map(Op::Ack),
        (0u64..50).prop_map(Op::Lose),
        Just(Op::Timeout),
        Just(Op::Limited),
        (0u64..300).prop_map(Op::Rtt),
    ]
}

fn config() -> impl Strategy<Value = LcmConfig> {
    let targets = prop_oneof![
        (1u32..100).prop_map(|mu| Target::Fixed(Fraction::per_mille(mu))),
        Just(Target::Adaptive(Adaptive { enough: 2, ..Adaptive::new() })),
    ];
    (targets, 1u32..=1000, any::<bool>(), any::<bool>(), 1u64..500, 0u64..2000).prop_map(
        |(target, weight, fixed, limited, initial, least)| LcmConfig {
            target,
            weight: Fraction::per_mille(weight),
            epoch: if fixed { Epoch::Fixed(Duration::from_millis(100)) } else { Epoch::RoundTrip },
            growth: if limited { Growth::WhenLimited } else { Growth::Always },
            initial_window: PACKET * initial,
            max_window: PACKET * 600,
            least_window: Bytes::new(least),
            ..LcmConfig::paper()
        },
    )
}

proptest! {
    /// The window stays within its bounds, and moves only at the end of epochs and by timeouts.
    /// Loss rates are shares, and counters add up. If there is no room with nothing in flight, the
    /// next epoch makes some.
    #[test]
    fn any_sequence_of_reports_keeps_the_window_in_bounds(config in config(), ops in prop::collection::vec(op(), 1..200)) {
        let mut lcm = Lcm::new(config).unwrap();
        let (mut now, mut in_flight) = (Time::ZERO, Bytes::ZERO);
        for op in ops {
            let (window, epochs, timeouts) = (lcm.window(), lcm.counters().epochs, lcm.counters().timeouts);
            match op {
                Op::Wait(ms) => {
                    now += Duration::from_millis(ms);
                    lcm.on_epoch(now);
                }
                Op::Send(packets) => for _ in 0..packets {
                    if lcm.room(in_flight) < PACKET {
                        break;
                    }
                    in_flight += PACKET;
                    lcm.on_sent(now, PACKET, in_flight);
                },
                Op::Ack(packets) => {
                    let bytes = in_flight.min(PACKET * packets);
                    in_flight -= bytes;
                    lcm.on_acked(now, bytes);
                }
                Op::Lose(packets) => {
                    let bytes = in_flight.min(PACKET * packets);
                    in_flight -= bytes;
                    lcm.on_lost(now, bytes);
                }
                Op::Timeout => lcm.on_timeout(now, std::mem::take(&mut in_flight)),
                Op::Limited => lcm.on_limited(now),
                Op::Rtt(ms) => lcm.on_rtt(Duration::from_millis(ms)),
            }
            let counters = lcm.counters();
            if counters.epochs == epochs && counters.timeouts == timeouts {
                prop_assert_eq!(lcm.window(), window);
            }
            prop_assert!((config.least_window..=config.max_window).contains(&lcm.window()));
            prop_assert!(lcm.loss_rate() <= Fraction::ONE);
            prop_assert!(lcm.target() > Fraction::ZERO && lcm.target() < Fraction::ONE);
            prop_assert_eq!(counters.sent, counters.acked + counters.lost + in_flight);
            if let Some(next) = lcm.next_epoch() {
                prop_assert!(next > now);
                if lcm.room(Bytes::ZERO) < PACKET {
                    let mut later = lcm;
                    later.on_epoch(next);
                    prop_assert!(later.room(Bytes::ZERO) >= PACKET);
                }
            } else {
                prop_assert!(lcm.room(in_flight) >= PACKET);
            }
        }
    }

    /// Equal reports give equal results, however often epochs are checked.
    #[test]
    fn asking_more_often_changes_nothing(waits in prop::collection::vec(0u64..250, 1..60), often in 1u64..20) {
        let (mut rarely, mut frequently) = (paper(), paper());
        let mut now = Time::ZERO;
        for (i, wait) in waits.into_iter().enumerate() {
            for part in 0..often {
                frequently.on_epoch(now + Duration::from_micros(wait * 1000 * part / often));
            }
            now += Duration::from_millis(wait);
            for lcm in [&mut rarely, &mut frequently] {
                lcm.on_sent(now, PACKET * 100, PACKET * 7500);
                lcm.on_acked(now, PACKET * 90);
                if i % 7 == 3 {
                    lcm.on_lost(now, PACKET);
                }
            }
            prop_assert_eq!(rarely.window(), frequently.window());
            prop_assert_eq!(rarely.counters(), frequently.counters());
        }
    }
}
