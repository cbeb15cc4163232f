//! Admission to full queues: less urgent messages make room for more urgent ones.

use marcato_sched::conductor::{
    Conductor, Config, Debt, Event, Fixed, Message, MessageId, OfferError, Removal, Slab, Store, Tally,
};
use marcato_units::{Bytes, Duration, Priority, Time};
use proptest::prelude::*;

use crate::common::{CHUNK, level};

const START: Time = Time::ZERO;

fn bounded(messages: usize, bytes: u64) -> Config {
    let max_queued = Bytes::new(bytes);
    Config { chunk: CHUNK, max_messages: messages, max_queued, ..Config::with_debt(Debt::strict()) }
}

fn message(len: u64, priority: Priority) -> Message {
    Message::new(Bytes::new(len), priority)
}

#[test]
fn expired_background_behind_a_live_head_blocks_no_urgent_offer() {
    let mut conductor = Conductor::new(bounded(100, 1_000_000)).unwrap();
    conductor.offer(START, message(1000, Priority::P4)).unwrap();
    for _ in 0..99 {
        let stale = message(1000, Priority::P4).with_lifetime(Duration::from_millis(10));
        conductor.offer(START, stale).unwrap();
    }
    // The head is partly sent and may not be dropped.
    conductor.grant(START, Bytes::new(1)).unwrap();
    let later = Time::from_millis(11);
    assert!(conductor.offer(later, message(100, Priority::P0)).is_ok());
    let background = conductor.counters().level(Priority::P4);
    assert_eq!(
        (background.expired.messages, background.evicted.messages, background.queued.messages),
        (99, 0, 1)
    );
}

#[test]
fn eviction_takes_no_more_than_needed_least_urgent_oldest_first() {
    let mut removed = Vec::new();
    let ids: Vec<MessageId>;
    {
        let mut conductor = Conductor::new(bounded(100, 10_000)).unwrap().observed_by(|event| {
            if let Event::Removed { id, reason, rest, .. } = event {
                removed.push((id, reason, rest.get()));
            }
        });
        let plan = [(3000, Priority::P3), (2000, Priority::P4), (2000, Priority::P4), (3000, Priority::P2)];
        ids = plan.map(|(len, priority)| conductor.offer(START, message(len, priority)).unwrap()).to_vec();
        // Evicting two messages of P4 is not enough for 4500 bytes, and a message of P2 evicts none
        // of P2.
        conductor.offer(START, message(4500, Priority::P2)).unwrap();
        let full = Err(OfferError::TooManyBytes { limit: Bytes::new(10_000) });
        assert_eq!(conductor.offer(START, message(2501, Priority::P2)), full);
        assert_eq!(conductor.offer(START, message(9_000, Priority::P4)), full);
        assert_eq!(conductor.counters().total().evicted, Tally { messages: 3, bytes: Bytes::new(7000) });
    }
    let evicted = |id: usize, len| (ids[id], Removal::Evicted, len);
    assert_eq!(removed, [evicted(1, 2000), evicted(2, 2000), evicted(0, 3000)]);
}

#[test]
fn nothing_is_evicted_in_vain() {
    let mut conductor = Conductor::new(bounded(100, 10_000)).unwrap();
    conductor.offer(START, message(6000, Priority::P1)).unwrap();
    conductor.offer(START, message(4000, Priority::P4)).unwrap();
    assert!(conductor.offer(START, message(4001, Priority::P2)).is_err());
    assert_eq!(conductor.queued().messages, 2);
}

#[test]
fn a_message_under_way_stays_unless_a_part_of_it_is_of_use() {
    for (partial, kept) in [(false, 1), (true, 0)] {
        let mut conductor = Conductor::new(bounded(2, 1_000_000)).unwrap();
        let begun = Message { partial_ok: partial, ..message(3000, Priority::P4) };
        conductor.offer(START, begun).unwrap();
        conductor.grant(START, CHUNK).unwrap();
        conductor.offer(START, message(1000, Priority::P4)).unwrap();
        conductor.offer(START, message(1000, Priority::P1)).unwrap();
        assert_eq!(conductor.queued().messages, 2, "partial delivery {partial}");
        assert_eq!(conductor.offer(START, message(1000, Priority::P1)).is_ok(), partial);
        assert_eq!(conductor.counters().level(Priority::P4).queued.messages, kept);
    }
}

#[test]
fn behind_what_may_not_be_dropped_p0_has_a_reserve() {
    let mut conductor = Conductor::new(bounded(16, 16_000)).unwrap();
    // One message that fills the queue, and is partly sent.
    conductor.offer(START, message(16_000, Priority::P4)).unwrap();
    conductor.grant(START, Bytes::new(1)).unwrap();
    let full = |limit| Err(OfferError::TooManyBytes { limit: Bytes::new(limit) });
    assert_eq!(conductor.offer(START, message(2, Priority::P1)), full(16_000));
    conductor.offer(START, message(2001, Priority::P0)).unwrap();
    assert_eq!(conductor.offer(START, message(1, Priority::P0)), full(18_000));
    assert_eq!(
        conductor.offer(START, message(16_001, Priority::P0)),
        Err(OfferError::TooLong { limit: Bytes::new(16_000) })
    );
}

/// Queues this many partly sent messages, each moved behind those before it, so that none may be
/// dropped.
fn stuck<S: Store>(conductor: &mut Conductor<S>, messages: usize) {
    for _ in 0..messages {
        let id = conductor.offer(START, message(100, Priority::P3)).expect("there is room");
        conductor.grant(START, Bytes::new(1)).expect("it waits");
        conductor.reprioritise(id, Priority::P4).expect("it waits");
    }
}

#[test]
fn the_reserve_holds_for_messages_too_and_in_a_fixed_store() {
    let mut conductor = Conductor::new(bounded(16, 1_000_000)).unwrap();
    stuck(&mut conductor, 16);
    let full = |limit| Err(OfferError::TooManyMessages { limit });
    assert_eq!(conductor.offer(START, message(1, Priority::P1)), full(16));
    for _ in 0..2 {
        conductor.offer(START, message(1, Priority::P0)).unwrap();
    }
    assert_eq!(conductor.offer(START, message(1, Priority::P0)), full(18));

    let mut conductor = Conductor::with_store(bounded(1000, 1_000_000), Fixed::<16>::new()).unwrap();
    stuck(&mut conductor, 14);
    assert_eq!(conductor.offer(START, message(1, Priority::P1)), full(14));
    for _ in 0..2 {
        conductor.offer(START, message(1, Priority::P0)).unwrap();
    }
    assert_eq!(conductor.offer(START, message(1, Priority::P0)), full(16));
    // A store for one message has no room for a reserve.
    let mut conductor = Conductor::with_store(bounded(1000, 1_000_000), Fixed::<1>::new()).unwrap();
    conductor.offer(START, message(1, Priority::P4)).unwrap();
    conductor.offer(START, message(1, Priority::P0)).unwrap();
    assert_eq!(conductor.offer(START, message(1, Priority::P0)), full(1));
}

#[test]
fn room_made_for_the_caller_is_that_of_the_expired_first() {
    let mut conductor = Conductor::new(Config::default()).unwrap();
    let patient = conductor.offer(START, message(1, Priority::P4)).unwrap();
    let stale = message(1, Priority::P3).with_lifetime(Duration::from_millis(1));
    conductor.offer(START, stale).unwrap();
    assert!(conductor.make_room(Time::from_millis(2), Priority::P2));
    assert!(conductor.message(patient).is_some());
    assert!(!conductor.make_room(Time::from_millis(2), Priority::P4));
    assert!(conductor.make_room(Time::from_millis(2), Priority::P3));
    assert!(conductor.is_empty());
}

#[derive(Clone, Debug)]
enum Op {
    Offer(Message),
    Grant(u64),
    /// Takes the latest grant back, all of it or half.
    Refuse(bool),
    Move(usize, Priority),
    Wait(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let lifetime =
        prop_oneof![2 => Just(None), 1 => (0u64..30).prop_map(|ms| Some(Duration::from_millis(ms)))];
    let message = (1u64..4000, level(), lifetime, prop::bool::weighted(0.2)).prop_map(
        |(len, priority, lifetime, partial_ok)| Message { lifetime, partial_ok, ..message(len, priority) },
    );
    prop_oneof![
        8 => message.prop_map(Op::Offer),
        4 => (1..=CHUNK.get()).prop_map(Op::Grant),
        1 => any::<bool>().prop_map(Op::Refuse),
        2 => (any::<usize>(), level()).prop_map(|(pick, to)| Op::Move(pick, to)),
        1 => (0u64..20).prop_map(Op::Wait),
    ]
}

/// Runs `ops`, and checks each refused offer. P0's reserve holds these messages and bytes.
fn run<S: Store>(
    mut conductor: Conductor<S>,
    bytes: u64,
    reserve: (u64, u64),
    ops: Vec<Op>,
) -> Result<(), TestCaseError> {
    let mut known: Vec<(MessageId, Message)> = Vec::new();
    let (mut now, mut latest) = (START, None);
    // Less urgent messages exceed their bounds if they were moved down from P0, or were returned by
    // the engine.
    let mut overrun = false;
    for op in ops {
        match op {
            Op::Offer(message) => {
                let offered = conductor.offer(now, message);
                if let Ok(id) = offered {
                    known.push((id, message));
                }
                // Messages that may not be evicted for it: as urgent or more so, or partly sent.
                let mut stays = Tally::default();
                for (id, kept) in &known {
                    let Some(pending) = conductor.message(*id) else { continue };
                    let under_way = !pending.sent.is_zero() && !kept.partial_ok;
                    if Some(*id) != offered.ok() && (pending.priority <= message.priority || under_way) {
                        stays.messages += 1;
                        stays.bytes += pending.rest();
                    }
                }
                let waiting = conductor.counters().level(Priority::P0).queued;
                match offered {
                    Ok(_) => {}
                    Err(OfferError::TooManyMessages { limit }) => {
                        prop_assert!(stays.messages >= limit as u64);
                    }
                    Err(OfferError::TooManyBytes { limit }) => {
                        prop_assert!(stays.bytes + message.len > limit);
                    }
                    Err(error) => prop_assert!(false, "{error}"),
                }
                let fits =
                    waiting.messages < reserve.0 && waiting.bytes.get() + message.len.get() <= reserve.1;
                if message.priority == Priority::P0 && fits && !overrun {
                    prop_assert!(offered.is_ok(), "{offered:?}");
                }
                prop_assert!(conductor.queued().bytes.get() <= bytes + reserve.1 + CHUNK.get());
            }
            Op::Grant(budget) => latest = conductor.grant(now, Bytes::new(budget)).or(latest),
            Op::Refuse(half) => {
                if let Some(grant) = latest {
                    let taken = if half { grant.len / 2 } else { Bytes::ZERO };
                    overrun |= conductor.refuse(grant, taken).is_ok() && grant.fin;
                }
            }
            Op::Move(pick, to) => {
                if let Some((id, _)) = pick.checked_rem(known.len()).map(|at| known[at]) {
                    let from = conductor.message(id).map(|pending| pending.priority);
                    overrun |= from == Some(Priority::P0) && to != Priority::P0;
                    let _ = conductor.reprioritise(id, to);
                }
            }
            Op::Wait(ms) => now += Duration::from_millis(ms),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::common::cases())]

    #[test]
    fn droppable_less_urgent_messages_never_cause_a_refused_offer(
        ops in prop::collection::vec(op(), 1..200),
        messages in 1usize..30,
    ) {
        let config = bounded(messages, 20_000);
        let reserve = messages.div_ceil(8);
        // A store with exactly this many slots takes the reserve from them.
        let conductor = Conductor::with_store(config, Slab::new(messages)).expect("valid rules");
        run(conductor, 20_000, (if messages > 1 { reserve as u64 } else { 0 }, 2500), ops.clone())?;
        run(Conductor::new(config).expect("valid rules"), 20_000, (reserve as u64, 2500), ops.clone())?;
        let conductor = Conductor::with_store(bounded(1000, 20_000), Fixed::<9>::new()).expect("valid rules");
        run(conductor, 20_000, (2, 2500), ops)?;
    }
}
