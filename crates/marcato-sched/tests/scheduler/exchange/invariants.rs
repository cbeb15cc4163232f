//! Invariants for every valid configuration and every sequence of calls.

use std::collections::BTreeMap;

use marcato_sched::Debt;
use marcato_sched::conductor::{Conductor, Config as ConductorConfig, Message, MessageId};
use marcato_sched::exchange::{
    Config, Exchange, Grant, GroupId, Grouping, LevelTable, Parameters, Response, ResponseMut, Rules,
    Urgency, Weight,
};
use marcato_sched::order::StreamId;
use marcato_units::{Bytes, Priority, Rate, Time};
use proptest::prelude::*;

use super::{can_send, config, exchange, index, urgency};
use crate::common::{CHUNK, Waits, cases, level, rules};

pub(super) const STREAMS: u64 = 16;

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Open(u64, Parameters),
    Supply(u64, u64),
    Finish(u64),
    Hold(u64),
    Release(u64),
    Reprioritise(u64, Parameters),
    Close(u64),
    Weight(u64, u16),
    Grant(u64),
    Refuse(prop::sample::Index),
    Sent(u64, u64),
}

/// Generates parameters of HTTP, and such with groups, orders and levels.
fn parameters() -> impl Strategy<Value = Parameters> {
    let of_http = (0u8..8, any::<bool>())
        .prop_map(|(u, incremental)| Parameters { incremental, ..Parameters::sequential(urgency(u)) });
    let grouped =
        (prop_oneof![0u8..4, Just(255)], any::<bool>(), prop::option::of(level()), 0u64..4, -2i64..3);
    let grouped = grouped.prop_map(|(u, incremental, level, group, order)| Parameters {
        urgency: Urgency::exact(u),
        incremental,
        level,
        group: GroupId(group),
        order,
    });
    prop_oneof![of_http, grouped]
}

pub(super) fn grouping() -> impl Strategy<Value = Grouping> {
    prop::sample::select(&[Grouping::WithinUrgency, Grouping::AboveUrgency][..])
}

pub(super) fn grouped(rules: Debt, grouping: Grouping) -> Exchange {
    let config = Config { grouping, ..config(Rules::Fixed(rules)) };
    let mut exchange = Exchange::new(config).expect("valid rules");
    exchange.set_weight(GroupId(1), Weight::new(7).expect("not zero")).expect("the first");
    exchange
}

fn op() -> impl Strategy<Value = Op> {
    let stream = || 0..STREAMS;
    prop_oneof![
        4 => (stream(), parameters()).prop_map(|(s, p)| Op::Open(s, p)),
        6 => (stream(), prop_oneof![0u64..20, 1u64..6000]).prop_map(|(s, n)| Op::Supply(s, n)),
        1 => stream().prop_map(Op::Finish),
        1 => stream().prop_map(Op::Hold),
        2 => stream().prop_map(Op::Release),
        1 => (stream(), parameters()).prop_map(|(s, p)| Op::Reprioritise(s, p)),
        1 => stream().prop_map(Op::Close),
        1 => (0u64..4, prop_oneof![1u16..40, 1u16..]).prop_map(|(group, weight)| Op::Weight(group, weight)),
        12 => prop_oneof![2 => Just(CHUNK.get()), 1 => 1..=CHUNK.get()].prop_map(Op::Grant),
        1 => any::<prop::sample::Index>().prop_map(Op::Refuse),
        2 => (stream(), 0u64..3000).prop_map(|(s, n)| Op::Sent(s, n)),
    ]
}

pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..500)
}

/// Applies `op` to the exchange, whatever comes of it. Returns the grant if there was one.
pub(super) fn apply(exchange: &mut Exchange, op: Op, latest: &mut Option<Grant>) -> Option<Grant> {
    let mut on = |stream, change: &dyn Fn(&mut ResponseMut<'_>)| {
        if let Some(mut response) = exchange.response_mut(StreamId(stream)) {
            change(&mut response);
        }
    };
    match op {
        Op::Open(stream, parameters) => _ = exchange.open(StreamId(stream), parameters),
        Op::Supply(stream, bytes) => on(stream, &|response| _ = response.supply(Bytes::new(bytes))),
        Op::Finish(stream) => on(stream, &|response| response.finish()),
        Op::Hold(stream) => on(stream, &|response| response.hold()),
        Op::Release(stream) => on(stream, &|response| response.release()),
        Op::Reprioritise(stream, parameters) => on(stream, &|response| response.reprioritise(parameters)),
        Op::Close(stream) => _ = exchange.close(StreamId(stream)),
        Op::Weight(group, weight) => {
            exchange.set_weight(GroupId(group), Weight::new(weight).expect("not zero")).expect("few groups");
        }
        Op::Sent(stream, bytes) => on(stream, &|response| _ = response.sent(Bytes::new(bytes))),
        Op::Grant(budget) => {
            let grant = exchange.grant(Bytes::new(budget));
            *latest = grant.or(*latest);
            return grant;
        }
        Op::Refuse(taken) => {
            if let Some(grant) = latest.take() {
                let taken = taken.index(usize::try_from(grant.len.get()).expect("a chunk") + 1);
                _ = exchange.refuse(grant, Bytes::new(taken as u64));
            }
        }
    }
    None
}

pub(super) fn open(exchange: &Exchange) -> Vec<Response> {
    (0..STREAMS).filter_map(|stream| exchange.response(StreamId(stream))).collect()
}

fn standing(exchange: &Exchange) -> [(bool, bool); 5] {
    Priority::ALL.map(|level| (exchange.waiting().contains(level), !exchange.is_in_debt(level)))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_exchange_never_idles_while_a_response_can_send(rules in rules(), ops in ops()) {
        let mut exchange = exchange(Rules::Fixed(rules));
        let mut latest = None;
        for op in ops {
            let sends = open(&exchange).iter().any(can_send);
            prop_assert_eq!(exchange.is_idle(), !sends);
            prop_assert_eq!(exchange.peek().is_some(), sends);
            let grant = apply(&mut exchange, op, &mut latest);
            if matches!(op, Op::Grant(_)) {
                prop_assert_eq!(grant.is_some(), sends);
            }
        }
    }

    /// The held responses are those of every third stream. The other exchange never knows them.
    #[test]
    fn a_held_response_changes_nothing_for_the_others(rules in rules(), grouping in grouping(), ops in ops()) {
        let (mut with, mut without) = (grouped(rules, grouping), grouped(rules, grouping));
        let (mut latest, mut latest_without) = (None, None);
        for op in ops {
            let stream = match op {
                Op::Open(s, _) | Op::Supply(s, _) | Op::Finish(s) | Op::Hold(s) | Op::Release(s)
                | Op::Reprioritise(s, _) | Op::Close(s) | Op::Sent(s, _) => Some(s),
                Op::Grant(_) | Op::Refuse(_) | Op::Weight(..) => None,
            };
            if stream.is_some_and(|stream| stream % 3 == 0) {
                if !matches!(op, Op::Release(_)) {
                    apply(&mut with, op, &mut latest);
                }
                if let Op::Open(stream, _) = op {
                    with.response_mut(StreamId(stream)).unwrap().hold();
                }
                continue;
            }
            let expected = apply(&mut without, op, &mut latest_without);
            prop_assert_eq!(apply(&mut with, op, &mut latest), expected);
        }
    }

    #[test]
    fn debts_bound_the_wait_of_every_level(rules in rules(), ops in ops()) {
        let mut exchange = exchange(Rules::Fixed(rules));
        let (mut measured, mut latest) = (Waits::default(), None);
        let bounds = Priority::ALL.map(|level| (rules.wait_bound(level, CHUNK), rules.wait_bound_in_debt(level, CHUNK)));
        // A refusal takes back what was counted. The bounds hold for what is granted.
        for op in ops.into_iter().filter(|op| !matches!(op, Op::Refuse(_))) {
            let before = standing(&exchange);
            match apply(&mut exchange, op, &mut latest) {
                Some(grant) => measured.count(grant.priority, grant.len, before),
                // A level that can no longer send, between grants, does not wait.
                None => measured.stop(standing(&exchange)),
            }
            for (l, (eligible, any)) in bounds.iter().enumerate() {
                prop_assert!(eligible.is_none_or(|bound| measured.eligible[l] <= bound.get()), "P{l} eligible");
                prop_assert!(any.is_none_or(|bound| measured.any[l] <= bound.get()), "P{l}");
            }
        }
    }

    /// Every level always has bytes, and the rate changes all the time.
    #[test]
    fn waits_stay_bounded_while_the_rate_changes(
        rates in prop::collection::vec((1u64..50, 1u64..400), 1..20),
        levels in prop::collection::vec(0u8..8, 2..5),
    ) {
        let mut exchange = exchange(Rules::FollowRate);
        for &u in &levels {
            _ = exchange.open(StreamId(u.into()), Parameters::sequential(urgency(u)));
        }
        let most = rates.iter().map(|(rate, _)| *rate).max().expect("at least one");
        let chunk = Bytes::kb(20);
        let largest = Debt::web_at(Rate::from_mbps(most), chunk);
        // A conversion truncates a debt by less than a byte. At a rate 50 times higher that may be 50 bytes
        // of each level, which pay back at most twice as many.
        let slack = rates.len() as u64 * 50 * 5 * 2;
        let mut measured = Waits::default();
        for (rate, grants) in rates {
            exchange.set_rate(Rate::from_mbps(rate), chunk);
            for _ in 0..grants {
                for &u in &levels {
                    _ = exchange.response_mut(StreamId(u.into())).unwrap().supply(chunk);
                }
                let before = standing(&exchange);
                let grant = exchange.grant(chunk).expect("every level waits");
                measured.count(grant.priority, grant.len, before);
                for (l, level) in Priority::ALL.into_iter().enumerate() {
                    let bound = largest.wait_bound(level, chunk).expect("all have watermarks");
                    prop_assert!(measured.eligible[l] <= bound.get() + slack, "P{l} eligible");
                    let bound = largest.wait_bound_in_debt(level, chunk).expect("all have watermarks");
                    prop_assert!(measured.any[l] <= bound.get() + slack, "P{l}");
                }
            }
        }
    }

    #[test]
    fn outstanding_returns_to_zero_after_any_resets(rules in rules(), ops in ops(), last in any::<u64>()) {
        let mut exchange = exchange(Rules::Fixed(rules));
        let mut latest = None;
        for op in ops {
            apply(&mut exchange, op, &mut latest);
            let responses = open(&exchange);
            prop_assert_eq!(exchange.outstanding(), responses.iter().map(|r| r.outstanding).sum());
            prop_assert_eq!(exchange.staged(), responses.iter().map(|r| r.staged).sum());
            prop_assert_eq!(exchange.responses(), responses.len());
            let counters = exchange.counters();
            prop_assert_eq!(counters.supplied, counters.total_granted() + counters.dropped + exchange.staged());
        }
        for i in 0..STREAMS {
            let stream = StreamId((i + last % STREAMS) % STREAMS);
            _ = exchange.close(stream);
            // The transport drops its buffer late.
            prop_assert!(exchange.response_mut(stream).is_none());
        }
        prop_assert_eq!((exchange.outstanding(), exchange.staged()), (Bytes::ZERO, Bytes::ZERO));
        prop_assert!(exchange.is_idle() && exchange.grant(CHUNK).is_none());
        prop_assert_eq!(exchange.counters().opened, exchange.counters().closed);
    }

    #[test]
    fn bytes_leave_in_the_order_in_which_they_were_supplied(rules in rules(), ops in ops()) {
        let mut exchange = exchange(Rules::Fixed(rules));
        let (mut latest, mut sent) = (None, BTreeMap::new());
        for op in ops {
            let refused = latest;
            if let Some(grant) = apply(&mut exchange, op, &mut latest) {
                let offset: &mut Bytes = sent.entry(grant.stream).or_default();
                prop_assert_eq!(grant.offset, *offset);
                *offset += grant.len;
                prop_assert!(!grant.len.is_zero() || grant.fin);
                let response = exchange.response(grant.stream).expect("it is open");
                prop_assert_eq!(grant.fin, response.finished && response.staged.is_zero());
            }
            match (op, refused) {
                (Op::Close(stream), _) => _ = sent.remove(&StreamId(stream)),
                (Op::Refuse(_), Some(grant)) => if let Some(response) = exchange.response(grant.stream) {
                    sent.insert(grant.stream, response.granted);
                },
                _ => {}
            }
        }
    }

    /// Every other grant is made and taken back first.
    #[test]
    fn a_refused_grant_leaves_no_trace(rules in rules(), grouping in grouping(), ops in ops()) {
        let (mut with, mut without) = (grouped(rules, grouping), grouped(rules, grouping));
        let (mut latest, mut latest_without) = (None, None);
        for (number, op) in ops.into_iter().enumerate() {
            if let Op::Grant(budget) = op
                && number % 2 == 0
                && let Some(grant) = with.grant(Bytes::new(budget))
            {
                with.refuse(grant, Bytes::ZERO).unwrap();
            }
            if matches!(op, Op::Refuse(_)) {
                continue;
            }
            let expected = apply(&mut without, op, &mut latest_without);
            prop_assert_eq!(apply(&mut with, op, &mut latest), expected);
        }
        let refusals = with.counters().refusals;
        prop_assert_eq!(with.counters(), &marcato_sched::exchange::Counters { refusals, ..*without.counters() });
    }

    #[test]
    fn urgency_order_and_request_hold_within_a_level(rules in rules(), grouping in grouping(), ops in ops()) {
        let mut exchange = grouped(rules, grouping);
        let mut latest = None;
        for op in ops {
            let before: Vec<Response> = open(&exchange).into_iter().filter(can_send).collect();
            let level = |r: &Response| r.parameters.level_in(&LevelTable::DEFAULT);
            let Some(grant) = apply(&mut exchange, op, &mut latest) else { continue };
            let served = before.iter().find(|r| r.stream == grant.stream).expect("it could send");
            prop_assert_eq!(grant.priority, level(served));
            let served = served.parameters;
            for other in before.iter().filter(|r| level(r) == grant.priority && r.stream != grant.stream) {
                let (stream, other) = (other.stream, other.parameters);
                if grouping == Grouping::WithinUrgency || other.group == served.group {
                    prop_assert!(other.urgency >= served.urgency);
                }
                if (other.group, other.urgency) == (served.group, served.urgency) {
                    prop_assert!(other.order <= served.order);
                    if other.order == served.order && !other.incremental && !served.incremental {
                        prop_assert!(stream > grant.stream);
                    }
                }
            }
        }
    }

    /// Groups that always have bytes, each by two streams.
    #[test]
    fn busy_groups_share_by_weight_within_one_grant(
        weights in prop::collection::vec(prop_oneof![1u16..20, any::<u16>().prop_map(|w| w.max(1))], 2..8),
        budgets in prop::collection::vec(1..=CHUNK.get(), 300),
        grouping in grouping(),
    ) {
        let mut exchange = grouped(Debt::strict(), grouping);
        let mut sent = vec![0u128; weights.len()];
        for (group, &weight) in weights.iter().enumerate() {
            exchange.set_weight(GroupId(group as u64), Weight::new(weight).unwrap()).unwrap();
            for stream in [2 * group as u64, 2 * group as u64 + 1] {
                let parameters = Parameters::sequential(urgency(3)).in_group(GroupId(group as u64));
                exchange.open(StreamId(stream), parameters).unwrap().supply(Bytes::kb(100)).unwrap();
            }
        }
        let mut largest = 0;
        for budget in budgets {
            let grant = exchange.grant(Bytes::new(budget)).unwrap();
            largest = grant.len.get().max(largest);
            sent[(grant.stream.0 / 2) as usize] += u128::from(grant.len.get());
            exchange.response_mut(grant.stream).unwrap().supply(grant.len).unwrap();
            for (a, &of_a) in sent.iter().zip(&weights) {
                for (b, &of_b) in sent.iter().zip(&weights) {
                    // a / w_a - b / w_b <= largest / w_a, and a unit of rounding.
                    let [of_a, of_b] = [of_a, of_b].map(u128::from);
                    prop_assert!(a * of_b <= b * of_a + u128::from(largest + 1) * of_b);
                }
            }
        }
    }

    /// Groups that begin and pause. Shares are compared while both can send.
    #[test]
    fn groups_that_come_and_go_share_within_two_grants(
        ops in prop::collection::vec((0u64..5, any::<bool>(), 1..=CHUNK.get()), 1..400),
        grouping in grouping(),
    ) {
        let mut exchange = grouped(Debt::strict(), grouping);
        exchange.set_weight(GroupId(1), Weight::DEFAULT).unwrap();
        for group in 0..5 {
            let parameters = Parameters::sequential(urgency(3)).in_group(GroupId(group));
            let mut response = exchange.open(StreamId(group), parameters).unwrap();
            response.supply(Bytes::kb(100)).unwrap();
            response.hold();
        }
        // Bytes of both since both could send.
        let mut since = [[(0, 0); 5]; 5];
        let mut busy = [false; 5];
        for (group, begins, budget) in ops {
            let mut response = exchange.response_mut(StreamId(group)).unwrap();
            if begins { response.release() } else { response.hold() }
            if busy[index(group)] != begins {
                busy[index(group)] = begins;
                (0..5).for_each(|other| {
                    since[index(group)][other] = (0, 0);
                    since[other][index(group)] = (0, 0);
                });
            }
            let Some(grant) = exchange.grant(Bytes::new(budget)) else { continue };
            exchange.response_mut(grant.stream).unwrap().supply(grant.len).unwrap();
            let served = index(grant.stream.0);
            for other in (0..5).filter(|&other| other != served && busy[other]) {
                since[served][other].0 += grant.len.get();
                since[other][served].1 += grant.len.get();
                let (own, others) = since[served][other];
                // A group alone may have got a whole chunk before. Those that share get a turn at a time.
                prop_assert!(own <= others + (CHUNK + CHUNK / 2).get(), "{own} and {others}");
            }
        }
    }

    /// Responses of one urgency that always have bytes.
    #[test]
    fn incremental_responses_get_every_other_turn(
        sequential in 0u64..3,
        incremental in 1u64..8,
        budgets in prop::collection::vec(1..=CHUNK.get(), 100),
    ) {
        let mut exchange = exchange(Rules::Fixed(Debt::strict()));
        for stream in 0..sequential + incremental {
            exchange.open(StreamId(stream), Parameters { incremental: stream >= sequential, ..Parameters::sequential(urgency(3)) }).unwrap();
            exchange.response_mut(StreamId(stream)).unwrap().supply(Bytes::kb(100)).unwrap();
        }
        let (mut turns, mut previous) = (Vec::new(), None);
        for budget in budgets {
            let grant = exchange.grant(Bytes::new(budget)).unwrap();
            let is_incremental = grant.stream.0 >= sequential;
            if sequential > 0 {
                prop_assert_ne!(previous.replace(is_incremental), Some(is_incremental));
            }
            if sequential + incremental > 1 {
                prop_assert!(grant.len <= CHUNK / 2);
            }
            if is_incremental {
                turns.push(grant.stream.0 - sequential);
            } else {
                prop_assert_eq!(grant.stream, StreamId(0));
            }
        }
        prop_assert!(turns.iter().enumerate().all(|(i, turn)| *turn == i as u64 % incremental));
    }

    /// A Conductor that has a message at each level with a waiting response chooses the same level.
    #[test]
    fn levels_are_chosen_as_the_conductor_does(rules in rules(), ops in ops()) {
        let mut exchange = exchange(Rules::Fixed(rules));
        let mut conductor = Conductor::new(ConductorConfig { chunk: CHUNK, ..ConductorConfig::with_debt(rules) }).unwrap();
        let mut messages: [Option<MessageId>; 5] = [None; 5];
        let mut latest = None;
        // A Conductor grants no end without bytes.
        for op in ops.into_iter().filter(|op| !matches!(op, Op::Finish(_))) {
            for level in Priority::ALL {
                match (exchange.waiting().contains(level), &mut messages[level.index()]) {
                    (true, message @ None) => {
                        let endless = Message::new(Bytes::new(1 << 20), level);
                        *message = Some(conductor.offer(Time::ZERO, endless).unwrap());
                    }
                    (false, message @ Some(_)) => _ = conductor.cancel(message.take().expect("there is one")),
                    _ => {}
                }
            }
            if matches!(op, Op::Refuse(_)) {
                continue;
            }
            let Some(grant) = apply(&mut exchange, op, &mut latest) else { continue };
            let expected = conductor.grant(Time::ZERO, grant.len).expect("a level waits");
            prop_assert_eq!((grant.priority, grant.len), (expected.priority, expected.len));
            for level in Priority::ALL {
                prop_assert_eq!(exchange.debt(level), conductor.debt(level));
                prop_assert_eq!(exchange.is_in_debt(level), conductor.is_in_debt(level));
            }
        }
    }
}
