//! Invariants for every valid configuration and every sequence of offers and grants.

use std::collections::HashMap;

use marcato_sched::conductor::{Conductor, Config, Debt, Message, MessageId};
use marcato_units::{Bytes, Priority, Seed, Time};
use proptest::prelude::*;

use crate::common::{CHUNK, Waits, level, rules};

const NOW: Time = Time::ZERO;

#[derive(Clone, Copy, Debug)]
enum Op {
    Offer(Priority, u64),
    Grant(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let grant = prop_oneof![2 => Just(CHUNK.get()), 1 => 1..=CHUNK.get()].prop_map(Op::Grant);
    let len = prop_oneof![1u64..10, 1u64..3000, 5_000u64..30_000];
    let op = prop_oneof![2 => (level(), len).prop_map(|(level, len)| Op::Offer(level, len)), 5 => grant];
    prop::collection::vec(op, 1..600)
}

fn conductor(rules: Debt) -> Conductor {
    Conductor::new(Config { chunk: CHUNK, ..Config::with_debt(rules) }).expect("valid rules")
}

fn waits(conductor: &Conductor, level: Priority) -> bool {
    conductor.counters().level(level).queued.messages > 0
}

fn standing(conductor: &Conductor) -> [(bool, bool); 5] {
    Priority::ALL.map(|level| (waits(conductor, level), !conductor.is_in_debt(level)))
}

proptest! {
    #![proptest_config(crate::common::cases())]

    #[test]
    fn grants_keep_the_order_of_bytes_and_messages_within_a_level(rules in rules(), ops in ops()) {
        let mut conductor = conductor(rules);
        let mut sent: HashMap<MessageId, u64> = HashMap::new();
        let mut order: [Vec<MessageId>; 5] = Default::default();
        let mut begun: [Vec<MessageId>; 5] = Default::default();
        for op in ops {
            match op {
                Op::Offer(level, len) => {
                    let id = conductor.offer(NOW, Message::new(Bytes::new(len), level)).unwrap();
                    order[level.index()].push(id);
                }
                Op::Grant(budget) => if let Some(grant) = conductor.grant(NOW, Bytes::new(budget)) {
                    let offset = sent.entry(grant.message).or_default();
                    prop_assert_eq!(grant.offset.get(), *offset);
                    *offset += grant.len.get();
                    let begun = &mut begun[grant.priority.index()];
                    if begun.last() != Some(&grant.message) {
                        begun.push(grant.message);
                    }
                    prop_assert_eq!(conductor.message(grant.message).is_none(), grant.fin);
                },
            }
        }
        for (order, begun) in order.iter().zip(&begun) {
            prop_assert!(order.starts_with(begun), "each message is begun once, in the order of the offers");
        }
    }

    #[test]
    fn whenever_anything_waits_something_is_granted(rules in rules(), ops in ops()) {
        let mut conductor = conductor(rules);
        for op in ops {
            match op {
                Op::Offer(level, len) => { conductor.offer(NOW, Message::new(Bytes::new(len), level)).unwrap(); }
                Op::Grant(budget) => {
                    let waiting = !conductor.is_empty();
                    prop_assert_eq!(conductor.grant(NOW, Bytes::new(budget)).is_some(), waiting);
                }
            }
        }
    }

    #[test]
    fn no_level_waits_longer_than_its_bound(rules in rules(), ops in ops()) {
        let mut conductor = conductor(rules);
        let mut measured = Waits::default();
        let bounds = Priority::ALL.map(|level| (rules.wait_bound(level, CHUNK), rules.wait_bound_in_debt(level, CHUNK)));
        for op in ops {
            match op {
                Op::Offer(level, len) => { conductor.offer(NOW, Message::new(Bytes::new(len), level)).unwrap(); }
                Op::Grant(budget) => {
                    let before = standing(&conductor);
                    let Some(grant) = conductor.grant(NOW, Bytes::new(budget)) else { continue };
                    measured.count(grant.priority, grant.len, before);
                    for (l, (eligible, any)) in bounds.iter().enumerate() {
                        prop_assert!(eligible.is_none_or(|bound| measured.eligible[l] <= bound.get()), "P{l} eligible");
                        prop_assert!(any.is_none_or(|bound| measured.any[l] <= bound.get()), "P{l}");
                    }
                }
            }
        }
    }

    #[test]
    fn p0_is_served_next_if_eligible_or_else_once_its_debt_is_paid(
        rules in rules(),
        ops in ops(),
        urgent in prop::collection::vec((0usize..600, 1u64..=3), 1..40),
    ) {
        let mut conductor = conductor(rules);
        // While P0 waits in debt: D_0 - L_0 at its arrival, and the bytes that whole chunks have
        // paid back since.
        let mut owed: Option<(u64, f64)> = None;
        for (i, op) in ops.into_iter().enumerate() {
            for &(_, kilobytes) in urgent.iter().filter(|(at, _)| *at == i) {
                let alone = !waits(&conductor, Priority::P0);
                conductor.offer(NOW, Message::new(Bytes::kb(kilobytes), Priority::P0)).unwrap();
                if alone && conductor.is_in_debt(Priority::P0) {
                    let low = rules.watermarks[0].expect("in debt").low;
                    owed = Some(((conductor.debt(Priority::P0) - low).get(), 0.0));
                }
            }
            match op {
                Op::Offer(level, len) if level != Priority::P0 => {
                    // Whole chunks, so that no payback loses a fraction.
                    let len = len.next_multiple_of(CHUNK.get());
                    conductor.offer(NOW, Message::new(Bytes::new(len), level)).unwrap();
                }
                Op::Offer(..) => {}
                Op::Grant(_) => {
                    let (waited, eligible) = standing(&conductor)[0];
                    let Some(grant) = conductor.grant(NOW, CHUNK) else { continue };
                    if grant.priority == Priority::P0 || !waited {
                        owed = None;
                        continue;
                    }
                    prop_assert!(!eligible, "P0 waited, eligible, and {} was served", grant.priority);
                    let Some((debt, paid)) = &mut owed else { continue };
                    // (D_0 - L_0) / M_j bytes of level j pay all but the last byte; the chunk that
                    // pays it may have begun.
                    prop_assert!(*paid <= *debt as f64, "paid {paid} of {debt} and P0 still waited");
                    let m = rules.multipliers[grant.priority.index()].as_thousandths();
                    *paid += grant.len.get() as f64 * f64::from(m) / 1000.0;
                }
            }
        }
    }
}

/// Returns the longest wait of eligible P4, in bytes of others. Levels for which `keep` is true
/// stay busy.
fn worst_wait_of_p4(steps: usize, mut keep: impl FnMut(usize, Priority) -> bool) -> u64 {
    let mut conductor = conductor(Debt::authors());
    let mut measured = Waits::default();
    for step in 0..steps {
        for level in Priority::ALL {
            // One chunk per message, so that a level can stop at any chunk.
            if !waits(&conductor, level) && (level == Priority::P4 || keep(step, level)) {
                conductor.offer(NOW, Message::new(CHUNK, level)).expect("there is room");
            }
        }
        let before = standing(&conductor);
        let grant = conductor.grant(NOW, CHUNK).expect("P4 always waits");
        measured.count(grant.priority, grant.len, before);
    }
    assert_eq!(conductor.counters().redistributions, 0, "P4 is never in debt");
    measured.worst_eligible[Priority::P4.index()]
}

#[test]
fn p4_is_served_within_its_bound_behind_saturating_levels() {
    let bound = Debt::authors().wait_bound(Priority::P4, CHUNK).unwrap();
    assert_eq!(bound, Bytes::new(233_500));
    let saturated = worst_wait_of_p4(20_000, |_, _| true);
    // Levels with on-off traffic: each is busy or not for a random while.
    let mut worst = saturated;
    for seed in 0..60 {
        let mut random = Seed::new(seed).stream("arrivals");
        let mut busy = [true; 5];
        worst = worst.max(worst_wait_of_p4(5_000, |_, level| {
            if random.below(25) == 0 {
                busy[level.index()] = random.below(3) > 0;
            }
            busy[level.index()]
        }));
    }
    println!(
        "P4 waited at most {saturated} B behind saturating levels, {worst} B behind varying ones; bound {bound}"
    );
    assert!(worst <= bound.get(), "{worst}");
    // The bound is not loose: constantly busy levels come within a factor of two of it.
    assert!(saturated * 2 > bound.get(), "{saturated}");
}
