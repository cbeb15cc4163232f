//! Properties of every discipline, under random operations.

use std::collections::VecDeque;

use marcato_queue::{
    Codel, CodelConfig, Discipline, DropTail, DropTailConfig, DualPi2, DualPi2Config, Limit, Packet, Pie,
    PieConfig, Policer, PolicerConfig, Ppm, PushOut, PushOutConfig, Red, RedConfig, RedThresholds, StepMark,
    StepMarkConfig, StepThreshold, Strict, StrictConfig, Tally, Verdict,
};
use marcato_units::{Bytes, Duration, Layer, Rate, Seed, Time};
use marcato_wire::Ecn;
use proptest::prelude::*;

use crate::common::Probe;

#[derive(Clone, Debug)]
enum Operation {
    Enqueue { len: u64, ecn: Ecn, layer: Layer },
    Dequeue,
    Wait(Duration),
}

fn operation() -> impl Strategy<Value = Operation> {
    let ecn = (0u8..4).prop_map(Ecn::from_bits);
    let layer = prop_oneof![Just(Layer::High), Just(Layer::Low)];
    prop_oneof![
        5 => (prop_oneof![0u64..3000, Just(1514)], ecn, layer)
            .prop_map(|(len, ecn, layer)| Operation::Enqueue { len, ecn, layer }),
        4 => Just(Operation::Dequeue),
        2 => (0u64..60_000_000).prop_map(|nanos| Operation::Wait(Duration::from_nanos(nanos))),
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        (1u64..50).prop_map(Limit::Packets),
        (1514u64..60_000).prop_map(|bytes| Limit::Bytes(Bytes::new(bytes))),
    ]
}

/// Configuration of any discipline.
#[derive(Clone, Copy, Debug)]
enum Kind {
    DropTail(DropTailConfig),
    Codel(CodelConfig),
    Strict(StrictConfig),
    StrictCodel { high: CodelConfig, low: CodelConfig },
    PushOut(PushOutConfig),
    StepMark(StepMarkConfig),
    Red(RedConfig),
    Pie(PieConfig),
    DualPi2(DualPi2Config),
    Policer { policer: PolicerConfig, queue: CodelConfig },
}

fn step_mark() -> impl Strategy<Value = StepMarkConfig> {
    prop_oneof![
        (2u64..50, 0u64..50).prop_map(|(limit, threshold)| StepMarkConfig {
            limit: Limit::Packets(limit),
            threshold: StepThreshold::Packets(threshold % limit),
        }),
        (1514u64..60_000, 0u64..60_000).prop_map(|(limit, threshold)| StepMarkConfig {
            limit: Limit::Bytes(Bytes::new(limit)),
            threshold: StepThreshold::Bytes(Bytes::new(threshold % limit)),
        }),
        (limit(), 0u64..40).prop_map(|(limit, threshold)| StepMarkConfig {
            limit,
            threshold: StepThreshold::Sojourn(Duration::from_millis(threshold)),
        }),
    ]
}

fn red() -> impl Strategy<Value = RedConfig> {
    let thresholds = (0u64..20, 1u64..20, any::<bool>()).prop_map(|(min_th, more, bytes)| {
        let max_th = min_th + more;
        if bytes {
            RedThresholds::Bytes { min_th: Bytes::new(min_th * 1000), max_th: Bytes::new(max_th * 1000) }
        } else {
            RedThresholds::Packets { min_th, max_th }
        }
    });
    (limit(), thresholds, 1u32..=1_000_000, 1u32..=1_000_000, any::<bool>(), any::<bool>()).prop_map(
        |(limit, thresholds, max_p, w_q, gentle, ecn)| RedConfig {
            limit,
            thresholds,
            max_p: Ppm::new(max_p),
            w_q: Ppm::new(w_q),
            gentle,
            ecn,
            ..RedConfig::default()
        },
    )
}

fn pie() -> impl Strategy<Value = PieConfig> {
    let span = |least: u64| (least..40).prop_map(Duration::from_millis);
    (limit(), span(1), span(1), span(0), 0u32..5000, 0u32..20_000, any::<bool>()).prop_map(
        |(limit, qdelay_ref, t_update, max_burst, alpha, beta, ecn)| PieConfig {
            limit,
            qdelay_ref,
            t_update,
            max_burst,
            alpha,
            beta,
            mark_ecnth: ecn.then_some(PieConfig::MARK_ECNTH),
            ..PieConfig::default()
        },
    )
}

fn dualpi2() -> impl Strategy<Value = DualPi2Config> {
    let span = || (1u64..40).prop_map(Duration::from_millis);
    (limit(), span(), span(), span(), 1u32..=16, 1u32..256).prop_map(
        |(limit, target, t_update, step, k, classic)| DualPi2Config {
            limit,
            target,
            t_update,
            step,
            k,
            classic,
            ..DualPi2Config::default()
        },
    )
}

fn kind() -> impl Strategy<Value = Kind> {
    let droptail = || limit().prop_map(|limit| DropTailConfig { limit });
    let codel = || {
        (limit(), any::<bool>(), 1u64..20, 1u64..200).prop_map(|(limit, ecn, target, interval)| CodelConfig {
            target: Duration::from_millis(target),
            interval: Duration::from_millis(interval),
            limit,
            ecn,
            ..CodelConfig::default()
        })
    };
    prop_oneof![
        droptail().prop_map(Kind::DropTail),
        codel().prop_map(Kind::Codel),
        (droptail(), droptail()).prop_map(|(high, low)| Kind::Strict(StrictConfig { high, low })),
        (codel(), codel()).prop_map(|(high, low)| Kind::StrictCodel { high, low }),
        limit().prop_map(|limit| Kind::PushOut(PushOutConfig { limit })),
        step_mark().prop_map(Kind::StepMark),
        red().prop_map(Kind::Red),
        pie().prop_map(Kind::Pie),
        dualpi2().prop_map(Kind::DualPi2),
        (1u64..20_000, 1u64..20_000, codel()).prop_map(|(kbps, burst, queue)| Kind::Policer {
            policer: PolicerConfig { rate: Rate::from_kbps(kbps), burst: Bytes::new(burst) },
            queue,
        }),
    ]
}

impl Kind {
    fn build(self) -> Box<dyn Discipline<Probe>> {
        match self {
            Self::DropTail(config) => Box::new(DropTail::new(config).unwrap()),
            Self::Codel(config) => Box::new(Codel::new(config).unwrap()),
            Self::Strict(config) => Box::new(Strict::new(config).unwrap()),
            Self::StrictCodel { high, low } => {
                Box::new(Strict::of(Codel::new(high).unwrap(), Codel::new(low).unwrap()))
            }
            Self::PushOut(config) => Box::new(PushOut::new(config).unwrap()),
            Self::StepMark(config) => Box::new(StepMark::new(config).unwrap()),
            Self::Red(config) => Box::new(Red::new(config, Seed::new(1).stream("red")).unwrap()),
            Self::Policer { policer, queue } => {
                Box::new(Policer::new(policer, Codel::new(queue).unwrap()).unwrap())
            }
            Self::Pie(config) => Box::new(Pie::new(config, Seed::new(1).stream("pie")).unwrap()),
            Self::DualPi2(config) => Box::new(DualPi2::new(config, Seed::new(1).stream("dualpi2")).unwrap()),
        }
    }

    /// Whether high and low packets are served apart.
    fn serves_classes(self) -> bool {
        matches!(self, Self::Strict(_) | Self::StrictCodel { .. } | Self::PushOut(_))
    }

    /// Whether packets are refused for which there would be room.
    fn drops_early(self) -> bool {
        matches!(self, Self::Red(_) | Self::Pie(_) | Self::DualPi2(_) | Self::Policer { .. })
    }

    /// Whether these backlogs of the high and the low class are within the limits; a discipline
    /// without classes has all in the high one.
    fn permits(self, high: Tally, low: Tally) -> bool {
        let within = |limit: Limit, waits: Tally| match limit {
            Limit::Packets(packets) => waits.packets <= packets,
            Limit::Bytes(bytes) => waits.bytes <= bytes,
        };
        match self {
            Self::DropTail(config) => within(config.limit, high),
            Self::Codel(config) => within(config.limit, high),
            Self::Strict(config) => within(config.high.limit, high) && within(config.low.limit, low),
            Self::StrictCodel { high: config, low: below } => {
                within(config.limit, high) && within(below.limit, low)
            }
            Self::PushOut(config) => within(config.limit, high + low),
            Self::StepMark(config) => within(config.limit, high),
            Self::Red(config) => within(config.limit, high),
            Self::Pie(config) => within(config.limit, high),
            Self::DualPi2(config) => within(config.limit, high + low),
            Self::Policer { queue, .. } => within(queue.limit, high),
        }
    }
}

fn tally(tally: &mut Tally, packet: &Probe) {
    tally.packets += 1;
    tally.bytes += packet.len();
}

/// Position of packet `id` in the queue.
fn position(waiting: &VecDeque<Probe>, id: u64) -> Option<usize> {
    waiting.iter().position(|packet| packet.id == id)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_discipline_conserves_orders_limits_and_never_idles(
        kind in kind(),
        operations in prop::collection::vec(operation(), 1..400),
    ) {
        let mut queue = kind.build();
        let by_class = kind.serves_classes();
        let mut now = Time::ZERO;
        let mut next = 0;
        // Caller's view: all waiting packets, per class in order of arrival, and the fate of the
        // rest.
        let mut waiting = [VecDeque::new(), VecDeque::new()];
        let by_code_point = matches!(kind, Kind::DualPi2(_));
        let class = |packet: &Probe| match packet.ecn {
            Ecn::NotEct | Ecn::Ect0 => usize::from(by_code_point || by_class && packet.layer == Layer::Low),
            Ecn::Ect1 | Ecn::Ce => usize::from(by_class && packet.layer == Layer::Low),
        };
        let (mut enqueued, mut dequeued, mut dropped) = (Tally::default(), Tally::default(), Tally::default());
        let (mut overflowed, mut marked) = (Tally::default(), Tally::default());
        for operation in operations {
            match operation {
                Operation::Wait(span) => now += span,
                Operation::Enqueue { len, ecn, layer } => {
                    let packet = Probe { id: next, len, ecn, layer };
                    next += 1;
                    tally(&mut enqueued, &packet);
                    let class_of_packet = class(&packet);
                    let mut displaced = Vec::new();
                    match queue.enqueue_with(now, packet.clone(), &mut |lost| displaced.push(lost)) {
                        Verdict::Queued => waiting[class_of_packet].push_back(packet),
                        Verdict::Dropped(lost) => {
                            prop_assert_eq!(&lost, &packet);
                            tally(&mut dropped, &lost);
                            tally(&mut overflowed, &lost);
                        }
                    }
                    for lost in displaced {
                        prop_assert!(lost.id + 1 < next, "a refused packet is handed back once");
                        let class = class(&lost);
                        let at = position(&waiting[class], lost.id);
                        prop_assert!(at.is_some(), "{lost:?} was pushed out but did not wait");
                        waiting[class].remove(at.unwrap());
                        tally(&mut dropped, &lost);
                        tally(&mut overflowed, &lost);
                    }
                }
                Operation::Dequeue => {
                    let mut gone = Vec::new();
                    let packet = queue.dequeue_with(now, &mut |packet| gone.push(packet));
                    let something_waited = waiting.iter().any(|class| !class.is_empty());
                    prop_assert_eq!(packet.is_some(), something_waited, "work conservation");
                    for lost in &gone {
                        // Dropped from the head: losses are in order as well.
                        let head = waiting[class(lost)].pop_front();
                        prop_assert_eq!(head.as_ref(), Some(lost));
                        tally(&mut dropped, lost);
                    }
                    if let Some(packet) = packet {
                        // A mark may have changed the code point by which it waited.
                        let is_head = |class: &usize| {
                            waiting[*class].front().is_some_and(|head: &Probe| head.id == packet.id)
                        };
                        let class = if by_code_point { [0, 1].into_iter().find(is_head) } else { Some(class(&packet)) };
                        let head = class.and_then(|class| waiting[class].pop_front());
                        prop_assert_eq!(head.as_ref().map(|head| head.id), Some(packet.id), "order within a class");
                        let before = head.unwrap();
                        prop_assert_eq!(before.len, packet.len);
                        if before.ecn != packet.ecn {
                            prop_assert!(before.ecn.is_capable() && packet.ecn == Ecn::Ce);
                            tally(&mut marked, &packet);
                        }
                        if by_class && packet.layer == Layer::Low {
                            prop_assert!(waiting[0].is_empty(), "low left before high");
                        }
                        tally(&mut dequeued, &packet);
                    }
                }
            }
            let backlog = queue.backlog();
            let [high, low] = waiting.each_ref().map(|class: &VecDeque<Probe>| {
                let mut waits = Tally::default();
                class.iter().for_each(|packet| tally(&mut waits, packet));
                waits
            });
            let waits = high + low;
            prop_assert_eq!(Tally { packets: backlog.packets, bytes: backlog.bytes }, waits);
            prop_assert!(kind.permits(high, low), "{high:?} and {low:?} exceed the limit");
            prop_assert_eq!(queue.next_ready(now), (backlog.packets > 0).then_some(now));
            let counters = queue.counters();
            prop_assert_eq!(counters.enqueued, enqueued);
            prop_assert_eq!(counters.dequeued, dequeued);
            prop_assert_eq!(counters.dropped, dropped);
            if kind.drops_early() {
                prop_assert!(counters.overflowed.packets <= overflowed.packets);
            } else {
                prop_assert_eq!(counters.overflowed, overflowed);
            }
            prop_assert_eq!(enqueued, dequeued + dropped + waits);
            // A packet that arrived with CE may be counted as marked without a visible change.
            prop_assert!(counters.marked.packets >= marked.packets);
            prop_assert!(counters.marked.packets <= dequeued.packets + waits.packets);
        }
    }

    /// A queue that packets bypass and a queue that takes them in behave alike.
    #[test]
    fn a_bypass_equals_an_enqueue_and_a_dequeue(
        kind in kind(),
        operations in prop::collection::vec(operation(), 1..200),
    ) {
        let (mut asked, mut stored) = (kind.build(), kind.build());
        let mut now = Time::ZERO;
        for (id, operation) in (0u64..).zip(operations) {
            match operation {
                Operation::Enqueue { len, ecn, layer } => {
                    let packet = Probe { ecn, layer, ..Probe::new(id).with_len(len) };
                    let verdict = stored.enqueue(now, packet.clone());
                    if asked.pass(now, &packet) {
                        prop_assert_eq!(verdict, Verdict::Queued);
                        prop_assert_eq!(stored.dequeue(now), Some(packet));
                        prop_assert!(stored.backlog().is_empty());
                    } else {
                        prop_assert_eq!(asked.enqueue(now, packet), verdict);
                    }
                }
                Operation::Dequeue => prop_assert_eq!(asked.dequeue(now), stored.dequeue(now)),
                Operation::Wait(span) => now += span,
            }
            prop_assert_eq!(asked.backlog(), stored.backlog());
            prop_assert_eq!(asked.counters(), stored.counters());
        }
    }
}
