//! Deadlines: answers about time, and books after them.

use std::collections::BTreeMap;

use marcato_sched::Debt;
use marcato_sched::exchange::{Deadline, Exchange, GroupId, Late, Rules, SupplyError};
use marcato_sched::order::StreamId;
use marcato_units::{Bytes, Duration, Rate, Time};
use proptest::prelude::*;

use super::invariants::{STREAMS, apply, grouped, grouping, open, ops};
use super::{can_send, exchange, incremental, index, sequential};
use crate::common::{CHUNK, cases, rules};

/// A millisecond for each 1000 bytes.
const RATE: Rate = Rate::from_mbps(8);
const DELAY: Duration = Duration::from_millis(20);
const NOW: Time = Time::from_millis(1000);

fn expire(exchange: &mut Exchange, now: Time) -> (Vec<Late>, Option<Time>) {
    let mut late = Vec::new();
    let next = exchange.expire(now, RATE, DELAY, |response| late.push(response));
    (late, next)
}

fn due(exchange: &mut Exchange, stream: u64, ms: u64, drops: bool) {
    let deadline = Deadline { at: Time::from_millis(ms), drops };
    exchange.response_mut(StreamId(stream)).expect("it is open").set_deadline(Some(deadline));
}

fn filled(responses: &[(u64, marcato_sched::exchange::Parameters, u64)]) -> Exchange {
    let mut exchange = exchange(Rules::Fixed(Debt::strict()));
    for &(stream, parameters, bytes) in responses {
        let mut response = exchange.open(StreamId(stream), parameters).expect("a new stream");
        response.supply(Bytes::new(bytes)).expect("within the limit");
    }
    exchange
}

#[test]
fn a_response_that_arrives_in_time_is_not_reported() {
    let mut exchange = filled(&[(0, sequential(1), 5000), (4, sequential(3), 2000)]);
    // 7 ms for both, and 20 ms on the way.
    due(&mut exchange, 4, 1027, true);
    assert_eq!(expire(&mut exchange, NOW), (vec![], Some(NOW + Duration::from_nanos(1))));
    let (late, next) = expire(&mut exchange, NOW + Duration::from_nanos(1));
    assert_eq!((late.len(), late[0].stream, late[0].begun, next), (1, StreamId(4), false, None));
    let closed = late[0].closed.expect("the deadline drops it");
    assert_eq!((closed.granted, closed.dropped), (Bytes::ZERO, Bytes::new(2000)));
    let counters = exchange.counters();
    assert_eq!((counters.late, counters.expired, counters.dropped), (1, 1, Bytes::new(2000)));
    assert_eq!((exchange.responses(), exchange.staged()), (1, Bytes::new(5000)));
}

#[test]
fn begun_responses_are_closed_and_their_bytes_returned() {
    let mut exchange = filled(&[(0, sequential(3), 3000)]);
    let grant = exchange.grant(CHUNK).unwrap();
    due(&mut exchange, 0, 1022, true);
    let (late, _) = expire(&mut exchange, NOW);
    let closed = late[0].closed.unwrap();
    assert!(late[0].begun && exchange.is_idle());
    assert_eq!((closed.granted, closed.returned, closed.dropped), (CHUNK, CHUNK, CHUNK * 2));
    assert_eq!((exchange.outstanding(), exchange.staged()), (Bytes::ZERO, Bytes::ZERO));
    assert!(exchange.refuse(grant, Bytes::ZERO).is_err());
}

#[test]
fn a_deadline_that_does_not_drop_is_reported_once() {
    let mut exchange = filled(&[(0, sequential(3), 3000)]);
    due(&mut exchange, 0, 1000, false);
    let (late, next) = expire(&mut exchange, NOW);
    assert_eq!((late[0].closed, late[0].arrival, next), (None, Time::from_millis(1023), None));
    assert_eq!(expire(&mut exchange, NOW), (vec![], None));
    assert_eq!(exchange.grant(CHUNK).unwrap().stream, StreamId(0));
    // A new deadline is looked at anew.
    due(&mut exchange, 0, 1022, false);
    assert_eq!(expire(&mut exchange, NOW).0.len(), 1);
    exchange.response_mut(StreamId(0)).unwrap().set_deadline(None);
    assert_eq!(expire(&mut exchange, Time::from_secs(10)), (vec![], None));
}

#[test]
fn dropped_bytes_are_no_longer_ahead_of_others() {
    let mut exchange = filled(&[(0, sequential(3), 9000), (4, sequential(3), 9000)]);
    due(&mut exchange, 0, 1025, true);
    due(&mut exchange, 4, 1035, true);
    let (late, next) = expire(&mut exchange, NOW);
    assert_eq!(late.iter().map(|late| late.stream.0).collect::<Vec<_>>(), [0]);
    assert_eq!(next, Some(Time::from_millis(1006) + Duration::from_nanos(1)));
}

#[test]
fn outstanding_bytes_of_what_is_dropped_are_no_longer_ahead() {
    let mut exchange = filled(&[(0, sequential(3), 3000), (4, sequential(3), 9000)]);
    assert_eq!(exchange.grant(CHUNK).unwrap().stream, StreamId(0));
    due(&mut exchange, 0, 1000, true);
    due(&mut exchange, 4, 1029, true);
    let (late, _) = expire(&mut exchange, NOW);
    assert_eq!(late.iter().map(|late| (late.stream.0, late.begun)).collect::<Vec<_>>(), [(0, true)]);
}

#[test]
fn only_bytes_that_precede_for_certain_are_ahead() {
    let of_group = |group| sequential(3).in_group(GroupId(group));
    let mut exchange = filled(&[
        // Takes turns with the others of its order.
        (0, incremental(3).in_group(GroupId(1)), 50_000),
        (4, of_group(1), 1000),
        // Precedes by order.
        (8, of_group(1).ordered(1), 2000),
        // Shares.
        (12, of_group(2), 50_000),
        // Less urgent.
        (16, sequential(4), 50_000),
        // Held.
        (20, sequential(0), 50_000),
    ]);
    exchange.response_mut(StreamId(20)).unwrap().hold();
    for stream in [4, 20] {
        due(&mut exchange, stream, 0, false);
    }
    let (late, _) = expire(&mut exchange, NOW);
    let arrivals: BTreeMap<_, _> = late.iter().map(|late| (late.stream.0, late.arrival)).collect();
    assert_eq!(arrivals, [(4, Time::from_millis(1023)), (20, Time::from_millis(1070))].into());
}

/// A level sends before others for certain only until it is in debt.
#[test]
fn debts_limit_the_bytes_ahead() {
    let mut exchange = exchange(Rules::Fixed(Debt::authors()));
    for (stream, urgency) in [(0, 0), (4, 3)] {
        exchange.open(StreamId(stream), sequential(urgency)).unwrap().supply(Bytes::kb(100)).unwrap();
    }
    for (granted, ahead) in [(0, 60), (59, 1), (60, 0)] {
        while exchange.counters().total_granted() < Bytes::kb(granted) {
            let grant = exchange.grant(CHUNK).unwrap();
            exchange.response_mut(grant.stream).unwrap().sent(grant.len).unwrap();
        }
        due(&mut exchange, 4, 0, false);
        assert_eq!(expire(&mut exchange, NOW).0[0].arrival, Time::from_millis(1120 + ahead));
    }
}

#[test]
fn without_a_rate_only_the_delay_counts() {
    let mut exchange = filled(&[(0, sequential(3), 90_000)]);
    due(&mut exchange, 0, 1020, true);
    let mut late = 0;
    let next = exchange.expire(NOW, Rate::ZERO, DELAY, |_| late += 1);
    assert_eq!((late, next), (0, Some(NOW + Duration::from_nanos(1))));
    assert_eq!(exchange.expire(next.unwrap(), Rate::ZERO, Duration::MAX, |_| late += 1), None);
    assert_eq!((late, exchange.responses()), (1, 0));
}

#[test]
fn a_response_closed_by_its_deadline_takes_no_bytes() {
    let mut exchange = filled(&[(0, sequential(3), 1000)]);
    due(&mut exchange, 0, 0, true);
    expire(&mut exchange, NOW);
    assert!(exchange.response_mut(StreamId(0)).is_none());
    let mut response = exchange.open(StreamId(0), sequential(3)).unwrap();
    response.finish();
    assert_eq!((response.view().deadline, response.supply(CHUNK)), (None, Err(SupplyError::Finished)));
}

proptest! {
    #![proptest_config(cases())]

    /// Everything is granted after the answer, and leaves at the rate. Nothing that was reported arrives in
    /// time, or before the time that was reported.
    #[test]
    fn nothing_is_reported_that_could_arrive(
        rules in rules(),
        grouping in grouping(),
        ops in ops(),
        deadlines in prop::collection::vec(0u64..60_000, index(STREAMS)),
    ) {
        let mut exchange = grouped(rules, grouping);
        let mut latest = None;
        for op in ops {
            apply(&mut exchange, op, &mut latest);
        }
        let at = |stream: StreamId| NOW + DELAY + Duration::from_micros(deadlines[index(stream.0)]);
        let set = |exchange: &mut Exchange, only: &dyn Fn(StreamId) -> bool| for response in open(exchange) {
            let deadline = Deadline { at: at(response.stream), drops: false };
            let deadline = Some(deadline).filter(|_| only(response.stream));
            exchange.response_mut(response.stream).unwrap().set_deadline(deadline);
        };
        set(&mut exchange, &|_| true);
        let (late, next) = expire(&mut exchange.clone(), NOW);
        // It says when another one is late.
        if let Some(next) = next {
            let reported = |stream| late.iter().any(|late| late.stream == stream);
            let mut then = exchange.clone();
            set(&mut then, &|stream| !reported(stream));
            prop_assert_eq!(expire(&mut then, Time::from_nanos(next.as_nanos() - 1)).0, vec![]);
            prop_assert!(!expire(&mut then, next).0.is_empty());
        }
        let (mut left, mut arrivals) = (exchange.outstanding(), BTreeMap::new());
        while let Some(grant) = exchange.grant(CHUNK) {
            left += grant.len;
            arrivals.insert(grant.stream, NOW + RATE.transmission_time(left) + DELAY);
        }
        for late in late {
            prop_assert!(late.arrival > at(late.stream));
            if let Some(arrival) = arrivals.get(&late.stream) {
                prop_assert!(*arrival >= late.arrival, "{arrival} is before {}", late.arrival);
            }
        }
    }

    /// In the order of one group without debts, the answer is exact.
    #[test]
    fn everything_that_cannot_arrive_is_reported(
        responses in prop::collection::vec((0u8..8, -2i64..3, 1u64..9000, 0u64..60_000), 1..16),
    ) {
        let mut exchange = exchange(Rules::Fixed(Debt::strict()));
        let mut due = BTreeMap::new();
        for (stream, (urgency, order, bytes, micros)) in (0..).zip(responses) {
            let mut response = exchange.open(StreamId(stream), sequential(urgency).ordered(order)).unwrap();
            response.supply(Bytes::new(bytes)).unwrap();
            let at = NOW + DELAY + Duration::from_micros(micros);
            response.set_deadline(Some(Deadline { at, drops: false }));
            due.insert(StreamId(stream), at);
        }
        let (late, _) = expire(&mut exchange, NOW);
        let (mut left, mut arrivals) = (Bytes::ZERO, BTreeMap::new());
        while let Some(grant) = exchange.grant(CHUNK) {
            left += grant.len;
            arrivals.insert(grant.stream, NOW + RATE.transmission_time(left) + DELAY);
        }
        let expected: BTreeMap<_, _> = arrivals.into_iter().filter(|(stream, at)| *at > due[stream]).collect();
        prop_assert_eq!(late.into_iter().map(|late| (late.stream, late.arrival)).collect::<BTreeMap<_, _>>(), expected);
    }

    #[test]
    fn every_byte_of_what_is_dropped_leaves_the_books(
        rules in rules(),
        ops in ops(),
        deadlines in prop::collection::vec((0u64..1100, any::<bool>()), 1..60),
    ) {
        let mut exchange = exchange(Rules::Fixed(rules));
        let mut latest = None;
        for (number, op) in ops.into_iter().enumerate() {
            apply(&mut exchange, op, &mut latest);
            let (ms, drops) = deadlines[number % deadlines.len()];
            if exchange.response(StreamId(number as u64 % STREAMS)).is_some() {
                due(&mut exchange, number as u64 % STREAMS, ms, drops);
            }
            if number % 7 == 0 {
                let (late, _) = expire(&mut exchange, NOW);
                for late in late {
                    prop_assert_eq!(late.closed.is_some(), exchange.response(late.stream).is_none());
                    prop_assert!(late.closed.is_none_or(|closed| late.begun != closed.granted.is_zero()));
                }
            }
            let responses = open(&exchange);
            prop_assert_eq!(exchange.outstanding(), responses.iter().map(|r| r.outstanding).sum());
            prop_assert_eq!(exchange.staged(), responses.iter().map(|r| r.staged).sum());
            prop_assert_eq!(exchange.is_idle(), !responses.iter().any(can_send));
            let counters = exchange.counters();
            prop_assert_eq!(counters.supplied, counters.total_granted() + counters.dropped + exchange.staged());
            prop_assert_eq!(counters.opened, counters.closed + responses.len() as u64);
            prop_assert!(exchange.deadlines() <= responses.iter().filter(|r| r.deadline.is_some()).count());
        }
    }
}
