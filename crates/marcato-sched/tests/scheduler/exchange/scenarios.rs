//! Cases that show the order, one by one.

use marcato_sched::Debt;
use marcato_sched::conductor::Candidates;
use marcato_sched::exchange::{
    Config, ConfigError, Exchange, Grant, GroupId, Grouping, LevelTable, OpenError, Parameters, RefuseError,
    Rules, SentError, SupplyError, Urgency, Weight, WeightError,
};
use marcato_sched::order::StreamId;
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Rate};

use super::{config, exchange, incremental, sequential};
use crate::common::CHUNK;

fn strict() -> Exchange {
    exchange(Rules::Fixed(Debt::strict()))
}

/// Opens a response of `len` bytes.
fn whole(exchange: &mut Exchange, stream: u64, parameters: Parameters, len: u64) {
    endless(exchange, stream, parameters, len);
    exchange.response_mut(StreamId(stream)).expect("it is open").finish();
}

/// Opens a response whose end is not known, with `len` bytes so far.
fn endless(exchange: &mut Exchange, stream: u64, parameters: Parameters, len: u64) {
    let mut response = exchange.open(StreamId(stream), parameters).expect("a new stream");
    response.supply(Bytes::new(len)).expect("within the limit");
}

/// Grants chunks until no response can send, and returns the streams in that order.
fn order(exchange: &mut Exchange, chunk: u64) -> Vec<u64> {
    grants(exchange, chunk).into_iter().map(|grant| grant.stream.0).collect()
}

fn grants(exchange: &mut Exchange, chunk: u64) -> Vec<Grant> {
    std::iter::from_fn(|| exchange.grant(Bytes::new(chunk))).collect()
}

#[test]
fn sequential_responses_leave_in_the_order_of_requests() {
    let mut exchange = strict();
    for stream in [8, 0, 4] {
        whole(&mut exchange, stream, sequential(3), 2000);
    }
    assert_eq!(order(&mut exchange, 1000), [0, 0, 4, 4, 8, 8]);
}

#[test]
fn exact_urgency_orders_within_a_level() {
    let mut exchange = strict();
    whole(&mut exchange, 0, sequential(2), 500);
    whole(&mut exchange, 4, incremental(2), 500);
    whole(&mut exchange, 8, sequential(1), 500);
    whole(&mut exchange, 12, incremental(1), 500);
    assert_eq!(order(&mut exchange, 1000), [8, 12, 0, 4]);
}

#[test]
fn incremental_responses_take_turns() {
    let mut exchange = strict();
    for stream in [0, 4, 8] {
        whole(&mut exchange, stream, incremental(3), 1500);
    }
    // A turn has 500 bytes here, whatever the budget.
    assert_eq!(order(&mut exchange, 1000), [0, 4, 8, 0, 4, 8, 0, 4, 8]);
}

#[test]
fn a_turn_is_one_chunk_if_chunks_are_shorter() {
    let mut exchange = strict();
    whole(&mut exchange, 0, incremental(3), 600);
    whole(&mut exchange, 4, incremental(3), 600);
    let grants = grants(&mut exchange, 300);
    assert!(grants.iter().map(|grant| (grant.stream.0, grant.len.get())).eq([
        (0, 300),
        (4, 300),
        (0, 300),
        (4, 300)
    ]));
}

#[test]
fn a_sole_incremental_response_fills_every_budget() {
    let mut exchange = strict();
    whole(&mut exchange, 0, incremental(3), 2000);
    whole(&mut exchange, 4, incremental(4), 2000);
    assert_eq!(order(&mut exchange, 1000), [0, 0, 4, 4]);
}

#[test]
fn first_turns_come_before_later_ones() {
    let mut exchange = strict();
    whole(&mut exchange, 0, incremental(3), 2000);
    whole(&mut exchange, 4, incremental(3), 2000);
    assert_eq!(exchange.grant(CHUNK).unwrap().stream, StreamId(0));
    whole(&mut exchange, 12, incremental(3), 1000);
    whole(&mut exchange, 8, incremental(3), 1000);
    assert_eq!(order(&mut exchange, 1000)[..5], [4, 8, 12, 0, 4]);
}

#[test]
fn sequential_and_incremental_responses_alternate() {
    let mut exchange = strict();
    whole(&mut exchange, 0, incremental(3), 1000);
    whole(&mut exchange, 4, incremental(3), 1000);
    whole(&mut exchange, 8, sequential(3), 1000);
    whole(&mut exchange, 12, sequential(3), 500);
    assert_eq!(order(&mut exchange, 1000), [8, 0, 8, 4, 12, 0, 4]);
}

#[test]
fn an_event_does_not_wait_for_a_round_of_the_others() {
    let mut exchange = strict();
    endless(&mut exchange, 0, incremental(3), 100);
    for stream in [4, 8, 12] {
        endless(&mut exchange, stream, incremental(3), 5000);
    }
    assert_eq!((0..4).map(|_| exchange.grant(CHUNK).unwrap().stream.0).collect::<Vec<_>>(), [0, 4, 8, 12]);
    assert_eq!(exchange.grant(CHUNK).unwrap().stream, StreamId(4));
    // Its latest turn is the oldest. It has one turn, then the others go on.
    exchange.response_mut(StreamId(0)).unwrap().supply(Bytes::new(100)).unwrap();
    assert_eq!(exchange.grant(CHUNK).unwrap().stream, StreamId(0));
    exchange.response_mut(StreamId(0)).unwrap().supply(Bytes::new(100)).unwrap();
    assert_eq!((0..4).map(|_| exchange.grant(CHUNK).unwrap().stream.0).collect::<Vec<_>>(), [8, 12, 4, 0]);
}

#[test]
fn a_response_that_waits_for_bytes_keeps_its_place() {
    let mut exchange = strict();
    endless(&mut exchange, 0, sequential(3), 1000);
    whole(&mut exchange, 4, sequential(3), 3000);
    assert_eq!(exchange.grant(CHUNK).unwrap().stream, StreamId(0));
    assert_eq!(exchange.grant(CHUNK).unwrap().stream, StreamId(4));
    exchange.response_mut(StreamId(0)).unwrap().supply(Bytes::new(1000)).unwrap();
    assert_eq!(order(&mut exchange, 1000), [0, 4, 4]);
}

#[test]
fn a_held_response_does_not_hold_up_its_level() {
    let mut exchange = strict();
    whole(&mut exchange, 0, sequential(0), 1000);
    whole(&mut exchange, 4, sequential(0), 1000);
    whole(&mut exchange, 8, sequential(7), 1000);
    exchange.response_mut(StreamId(0)).unwrap().hold();
    assert_eq!(exchange.grant(CHUNK).unwrap().stream, StreamId(4));
    assert_eq!(exchange.waiting(), PrioritySet::one(Priority::P4));
    exchange.response_mut(StreamId(0)).unwrap().release();
    assert_eq!(order(&mut exchange, 1000), [0, 8]);
}

#[test]
fn a_reprioritised_response_moves_at_once() {
    let mut exchange = strict();
    whole(&mut exchange, 0, sequential(3), 2000);
    whole(&mut exchange, 4, sequential(3), 2000);
    assert_eq!(exchange.grant(CHUNK).unwrap().stream, StreamId(0));
    exchange.response_mut(StreamId(4)).unwrap().reprioritise(sequential(1));
    let grant = exchange.grant(CHUNK).unwrap();
    assert_eq!((grant.stream, grant.priority), (StreamId(4), Priority::P1));
    exchange.response_mut(StreamId(4)).unwrap().reprioritise(sequential(6));
    assert_eq!(order(&mut exchange, 1000), [0, 4]);
}

#[test]
fn the_end_rides_with_the_last_bytes_if_it_is_known() {
    let mut exchange = strict();
    whole(&mut exchange, 0, sequential(3), 1500);
    endless(&mut exchange, 4, sequential(3), 500);
    let ends = |exchange: &mut Exchange| {
        grants(exchange, 1000).iter().map(|g| (g.stream.0, g.len.get(), g.fin)).collect::<Vec<_>>()
    };
    assert_eq!(ends(&mut exchange), [(0, 1000, false), (0, 500, true), (4, 500, false)]);
    // Otherwise a grant without bytes announces it, once.
    exchange.response_mut(StreamId(4)).unwrap().finish();
    assert_eq!(ends(&mut exchange), [(4, 0, true)]);
    exchange.response_mut(StreamId(4)).unwrap().finish();
    assert!(exchange.is_idle());
}

#[test]
fn a_refused_end_is_granted_again() {
    let mut exchange = strict();
    endless(&mut exchange, 0, sequential(3), 500);
    exchange.grant(CHUNK).unwrap();
    exchange.response_mut(StreamId(0)).unwrap().finish();
    let end = exchange.grant(CHUNK).unwrap();
    exchange.refuse(end, Bytes::ZERO).unwrap();
    assert_eq!(exchange.grant(CHUNK), Some(end));
}

#[test]
fn only_the_latest_grant_can_be_refused_and_only_once() {
    let mut exchange = strict();
    whole(&mut exchange, 0, sequential(3), 3000);
    let first = exchange.grant(CHUNK).unwrap();
    let second = exchange.grant(CHUNK).unwrap();
    let taken = Bytes::new(400);
    assert_eq!(exchange.refuse(first, taken), Err(RefuseError::NotTheLatest));
    let more = Bytes::new(1001);
    let error = RefuseError::TakenExceedsGrant { taken: more, granted: CHUNK };
    assert_eq!(exchange.refuse(second, more), Err(error));
    assert_eq!(exchange.refuse(second, taken), Ok(()));
    assert_eq!(exchange.refuse(second, taken), Err(RefuseError::NotTheLatest));
    assert_eq!(exchange.grant(CHUNK).unwrap().offset, Bytes::new(1400));

    // A grant that was taken as a whole is final.
    let last = exchange.grant(CHUNK).unwrap();
    assert_eq!(exchange.refuse(last, last.len), Ok(()));
    assert_eq!(exchange.refuse(last, taken), Err(RefuseError::NotTheLatest));
}

#[test]
fn bytes_that_have_been_sent_cannot_be_refused() {
    let mut exchange = strict();
    whole(&mut exchange, 0, sequential(3), 3000);
    let grant = exchange.grant(CHUNK).unwrap();
    exchange.response_mut(StreamId(0)).unwrap().sent(Bytes::new(600)).unwrap();
    assert_eq!(exchange.refuse(grant, Bytes::new(500)), Err(RefuseError::Sent));
    assert_eq!(exchange.refuse(grant, Bytes::new(600)), Ok(()));
    assert_eq!(exchange.outstanding(), Bytes::ZERO);
}

#[test]
fn a_grant_of_a_closed_response_cannot_be_refused() {
    let mut exchange = strict();
    whole(&mut exchange, 0, sequential(3), 3000);
    let grant = exchange.grant(CHUNK).unwrap();
    let closed = exchange.close(StreamId(0)).unwrap();
    assert_eq!((closed.granted, closed.dropped, closed.returned), (CHUNK, CHUNK * 2, CHUNK));
    assert_eq!(exchange.refuse(grant, Bytes::ZERO), Err(RefuseError::NotTheLatest));
    // Not even if another response has its slot.
    whole(&mut exchange, 4, sequential(3), 3000);
    assert_eq!(exchange.refuse(grant, Bytes::ZERO), Err(RefuseError::NotTheLatest));
}

#[test]
fn closing_returns_what_the_transport_never_sent() {
    let mut exchange = strict();
    whole(&mut exchange, 0, sequential(3), 1000);
    whole(&mut exchange, 4, sequential(3), 1000);
    assert_eq!(order(&mut exchange, 1000), [0, 4]);
    exchange.response_mut(StreamId(0)).unwrap().sent(Bytes::new(300)).unwrap();
    assert_eq!(exchange.outstanding(), Bytes::new(1700));
    assert_eq!(
        exchange.close(StreamId(0)).map(|closed| (closed.returned.get(), closed.ended)),
        Some((700, true))
    );
    assert_eq!(exchange.outstanding(), Bytes::new(1000));
    // The buffer is dropped later, and finds nobody to report to.
    assert!(exchange.response_mut(StreamId(0)).is_none());
    let error = SentError { outstanding: Bytes::new(1000) };
    assert_eq!(exchange.response_mut(StreamId(4)).unwrap().sent(Bytes::new(1001)), Err(error));
    assert_eq!(exchange.close(StreamId(0)), None);
    exchange.response_mut(StreamId(4)).unwrap().sent(Bytes::new(1000)).unwrap();
    assert_eq!(exchange.outstanding(), Bytes::ZERO);
}

#[test]
fn open_responses_are_bounded_and_closing_makes_room() {
    let limit = 2;
    let rules = Rules::Fixed(Debt::strict());
    let mut exchange = Exchange::new(Config { max_responses: limit, ..config(rules) }).unwrap();
    exchange.open(StreamId(0), Parameters::default()).unwrap();
    assert_eq!(exchange.open(StreamId(0), Parameters::default()).err(), Some(OpenError::AlreadyOpen));
    assert_eq!(exchange.open(StreamId(1 << 62), Parameters::default()).err(), Some(OpenError::IdTooLarge));
    exchange.open(StreamId((1 << 62) - 1), Parameters::default()).unwrap();
    assert_eq!(exchange.open(StreamId(4), Parameters::default()).err(), Some(OpenError::TooMany { limit }));
    exchange.close(StreamId(0)).unwrap();
    exchange.open(StreamId(4), Parameters::default()).unwrap();
    let counters = exchange.counters();
    assert_eq!((counters.opened, counters.not_opened, counters.closed), (3, 3, 1));
    assert_eq!(exchange.responses(), 2);
}

#[test]
fn staged_bytes_are_bounded_and_grants_make_room() {
    let mut exchange = strict();
    let (stream, limit) = (StreamId(0), Bytes::kb(100));
    exchange.open(stream, Parameters::default()).unwrap();
    exchange.response_mut(stream).unwrap().supply(limit).unwrap();
    assert_eq!(
        exchange.response_mut(stream).unwrap().supply(Bytes::new(1)),
        Err(SupplyError::TooMuch { limit })
    );
    assert_eq!(
        exchange.response_mut(stream).unwrap().supply(Bytes::MAX),
        Err(SupplyError::TooMuch { limit })
    );
    exchange.grant(CHUNK).unwrap();
    exchange.response_mut(stream).unwrap().supply(CHUNK).unwrap();
    exchange.response_mut(stream).unwrap().finish();
    assert_eq!(exchange.response_mut(stream).unwrap().supply(Bytes::new(1)), Err(SupplyError::Finished));
    assert_eq!(exchange.staged(), limit);
}

#[test]
fn a_configuration_that_would_starve_a_level_is_refused() {
    let refused = |config| Exchange::new(config).map(|_| ());
    let rules = Rules::Fixed(Debt::authors());
    let debt = Debt::authors().validate(Bytes::kb(64)).unwrap_err();
    assert_eq!(refused(Config { chunk: Bytes::kb(64), ..config(rules) }), Err(ConfigError::Debt(debt)));
    assert_eq!(refused(Config { turn: Bytes::ZERO, ..config(rules) }), Err(ConfigError::TurnIsZero));
    assert_eq!(refused(Config { chunk: Bytes::kb(64), ..config(Rules::FollowRate) }), Ok(()));
}

/// A page at 10 Mbit/s. The presets for messages would send images after 60 kB of the stylesheet.
#[test]
fn a_long_stylesheet_leaves_before_the_images() {
    let mut exchange = Exchange::new(Config { max_staged: Bytes::kb(300), ..Config::default() }).unwrap();
    let chunk = Bytes::new(1400);
    exchange.set_rate(Rate::from_mbps(10), chunk);
    whole(&mut exchange, 0, incremental(3), 200_000);
    whole(&mut exchange, 4, sequential(0), 300_000);
    let mut sent = Bytes::ZERO;
    while sent < Bytes::kb(300) {
        let grant = exchange.grant(chunk).unwrap();
        assert_eq!(grant.stream, StreamId(4));
        sent += grant.len;
    }
}

#[test]
fn a_response_closes_by_itself_only_when_its_end_has_been_sent() {
    let mut exchange = exchange(Rules::FollowRate);
    let stream = StreamId(0);
    assert_eq!(exchange.close_sent(stream), None);
    whole(&mut exchange, 0, sequential(3), 1000);
    assert_eq!(exchange.close_sent(stream), None);
    let grant = exchange.grant(Bytes::new(1000)).unwrap();
    assert!(grant.fin);
    assert_eq!(exchange.close_sent(stream), None);
    exchange.response_mut(stream).unwrap().sent(Bytes::new(999)).unwrap();
    assert_eq!(exchange.close_sent(stream), None);
    exchange.response_mut(stream).unwrap().sent(Bytes::new(1)).unwrap();
    let closed = exchange.close_sent(stream).unwrap();
    assert_eq!((closed.granted, closed.returned, closed.ended), (Bytes::new(1000), Bytes::ZERO, true));
    assert_eq!((exchange.responses(), exchange.counters().closed), (0, 1));
}

/// A page at 2 Mbit/s, as Chromium asks for it.
#[test]
fn the_images_of_a_page_leave_before_its_deferred_scripts() {
    let mut exchange = Exchange::new(Config { max_staged: Bytes::kb(300), ..Config::default() }).unwrap();
    let chunk = Bytes::new(1400);
    exchange.set_rate(Rate::from_mbps(2), chunk);
    whole(&mut exchange, 0, sequential(3), 70_000);
    whole(&mut exchange, 4, incremental(1), 154_000);
    (2..7).for_each(|image| whole(&mut exchange, 4 * image, incremental(2), 8_000));
    let mut sent = Bytes::ZERO;
    while sent < Bytes::new(154_000 + 5 * 8_000) {
        let grant = exchange.grant(chunk).unwrap();
        assert_ne!(grant.stream, StreamId(0), "after {sent}");
        sent += grant.len;
    }
}

/// Watches starved behind streams that always had data (golang/go #58804).
#[test]
fn an_endless_urgent_stream_does_not_starve_a_watch() {
    let mut exchange = Exchange::new(Config::default()).unwrap();
    let (bulk, watch, chunk) = (StreamId(0), StreamId(4), Bytes::new(1400));
    let rate = Rate::from_mbps(20);
    exchange.set_rate(rate, chunk);
    exchange.open(bulk, sequential(0)).unwrap();
    exchange.open(watch, sequential(3)).unwrap();
    let bound = exchange.rules().wait_bound(Priority::P2, chunk).unwrap();
    let (mut waited, mut longest, mut events) = (Bytes::ZERO, Bytes::ZERO, 0);
    exchange.response_mut(bulk).unwrap().supply(chunk).unwrap();
    exchange.response_mut(watch).unwrap().supply(Bytes::new(200)).unwrap();
    for _ in 0..50_000 {
        let grant = exchange.grant(chunk).unwrap();
        exchange.response_mut(grant.stream).unwrap().sent(grant.len).unwrap();
        exchange.response_mut(grant.stream).unwrap().supply(grant.len).unwrap();
        if grant.stream == watch {
            (events, longest, waited) = (events + 1, longest.max(waited), Bytes::ZERO);
        } else {
            waited += grant.len;
        }
    }
    assert!(longest <= bound, "{longest} of at most {bound}");
    // An event waits for about the span of P0's watermark, two seconds. 70 MB take 28 s.
    assert!(longest <= rate.bytes_in(Duration::from_millis(2050)), "{longest}");
    assert!(events >= 13, "{events} events");
}

/// Debts are redistributed before a grant if all waiting levels are in debt. A refusal replays that.
#[test]
fn a_grant_that_is_taken_in_part_keeps_its_redistribution() {
    let mut exchange = exchange(Rules::Fixed(Debt::paper()));
    for (stream, urgency) in [(0, 0), (4, 1)] {
        exchange.open(StreamId(stream), sequential(urgency)).unwrap();
    }
    for _ in 0..1000 {
        for stream in [0, 4] {
            exchange.response_mut(StreamId(stream)).unwrap().supply(CHUNK).unwrap();
        }
        let (mut other, before) = (exchange.clone(), exchange.counters().redistributions);
        let grant = exchange.grant(CHUNK).unwrap();
        if exchange.counters().redistributions == before {
            exchange.grant(CHUNK).unwrap();
            continue;
        }
        let part = CHUNK / 2;
        exchange.refuse(grant, part).unwrap();
        assert_eq!(other.grant(part).unwrap().stream, grant.stream);
        for level in [Priority::P0, Priority::P1] {
            let [seen, expected] = [&exchange, &other].map(|it| (it.debt(level), it.is_in_debt(level)));
            assert_eq!(seen, expected, "{level}");
        }
        assert_eq!(exchange.counters().redistributions, before + 1);
        return;
    }
    panic!("the levels were never both in debt");
}

#[test]
fn watermarks_and_debts_follow_the_rate() {
    let mut exchange = exchange(Rules::FollowRate);
    let stream = StreamId(0);
    exchange.open(stream, sequential(0)).unwrap();
    endless(&mut exchange, 4, sequential(7), 1000);
    for _ in 0..128 {
        exchange.response_mut(stream).unwrap().supply(CHUNK).unwrap();
        assert_eq!(exchange.grant(CHUNK).unwrap().stream, stream);
    }
    // Half of the watermark stays half of it.
    assert_eq!((exchange.rules(), exchange.debt(Priority::P0)), (&Debt::web(), Bytes::kb(128)));
    exchange.set_rate(Rate::from_mbps(80), CHUNK);
    assert_eq!(exchange.rules(), &Debt::web_at(Rate::from_mbps(80), CHUNK));
    assert_eq!(exchange.debt(Priority::P0), Bytes::kb(10_000));
    // Fixed rules stay as they are.
    let mut fixed = strict();
    fixed.set_rate(Rate::from_mbps(80), CHUNK);
    assert_eq!(fixed.rules(), &Debt::strict());
}

fn of_group(group: u64) -> Parameters {
    sequential(3).in_group(GroupId(group))
}

#[test]
fn the_newest_of_a_group_leaves_first() {
    let mut exchange = strict();
    for (stream, order) in [(0, -1), (4, 7), (8, i64::MIN), (12, i64::MAX), (16, 7)] {
        whole(&mut exchange, stream, sequential(3).ordered(order), 2000);
    }
    assert_eq!(exchange.grant(CHUNK).unwrap().stream, StreamId(12));
    exchange.response_mut(StreamId(0)).unwrap().reprioritise(sequential(3).ordered(i64::MAX));
    assert_eq!(order(&mut exchange, 1000), [0, 0, 12, 4, 4, 16, 16, 8, 8]);
}

#[test]
fn incremental_responses_take_turns_within_their_order() {
    let mut exchange = strict();
    whole(&mut exchange, 0, incremental(3).ordered(1), 1000);
    whole(&mut exchange, 4, incremental(3).ordered(1), 1000);
    whole(&mut exchange, 8, incremental(3).ordered(2), 1000);
    whole(&mut exchange, 12, sequential(3).ordered(1), 1000);
    assert_eq!(order(&mut exchange, 1000), [8, 8, 12, 0, 12, 4, 0, 4]);
}

#[test]
fn groups_share_their_urgency_by_weight() {
    let mut exchange = strict();
    exchange.set_weight(GroupId(2), Weight::new(32).unwrap()).unwrap();
    whole(&mut exchange, 0, of_group(1), 1000);
    whole(&mut exchange, 4, of_group(2), 1000);
    whole(&mut exchange, 8, of_group(2).ordered(1), 1000);
    whole(&mut exchange, 12, sequential(2).in_group(GroupId(3)), 1000);
    // A turn has 500 bytes while groups share. The last one has no other beside it.
    assert_eq!(order(&mut exchange, 1000), [12, 0, 8, 8, 0, 4]);
}

/// Two equal subscriptions: without groups the older starved the other (moq-dev/moq #699).
#[test]
fn a_long_stream_does_not_delay_another_group() {
    let mut exchange = strict();
    whole(&mut exchange, 0, of_group(1), 100_000);
    assert_eq!(exchange.grant(CHUNK).unwrap().stream, StreamId(0));
    for stream in [4, 8] {
        whole(&mut exchange, stream, of_group(2), 500);
    }
    assert_eq!(order(&mut exchange, 1000)[..5], [0, 4, 0, 8, 0]);
}

#[test]
fn groups_may_stand_above_the_urgency() {
    let rules = Rules::Fixed(Debt::strict());
    let mut exchange = Exchange::new(Config { grouping: Grouping::AboveUrgency, ..config(rules) }).unwrap();
    let at = |urgency, group| Parameters {
        level: Some(Priority::P2),
        ..sequential(urgency).in_group(GroupId(group))
    };
    whole(&mut exchange, 0, at(5, 1), 1000);
    whole(&mut exchange, 4, at(0, 1), 1000);
    whole(&mut exchange, 8, at(7, 2), 1000);
    assert_eq!(order(&mut exchange, 1000), [4, 8, 4, 8, 0]);
}

#[test]
fn a_level_may_be_named_regardless_of_the_urgency() {
    let levels = LevelTable::from_thresholds([10, 20, 30, 40]);
    let mut exchange = Exchange::new(Config { levels, ..config(Rules::Fixed(Debt::strict())) }).unwrap();
    let exact = |urgency| Parameters::sequential(Urgency::exact(urgency));
    whole(&mut exchange, 0, exact(255), 100);
    whole(&mut exchange, 4, exact(35), 100);
    whole(&mut exchange, 8, exact(254).at_level(Priority::P0), 100);
    whole(&mut exchange, 12, exact(34), 100);
    let left: Vec<_> =
        grants(&mut exchange, 1000).iter().map(|grant| (grant.stream.0, grant.priority)).collect();
    assert_eq!(left, [(8, Priority::P0), (12, Priority::P3), (4, Priority::P3), (0, Priority::P4)]);
}

#[test]
fn weights_are_bounded_and_the_default_makes_room() {
    let rules = Rules::Fixed(Debt::strict());
    let mut exchange = Exchange::new(Config { max_weights: 1, ..config(rules) }).unwrap();
    let (one, two, heavy) = (GroupId(1), GroupId(2), Weight::new(100).unwrap());
    exchange.set_weight(one, heavy).unwrap();
    exchange.set_weight(one, Weight::new(50).unwrap()).unwrap();
    assert_eq!(exchange.set_weight(two, heavy), Err(WeightError::TooMany { limit: 1 }));
    assert_eq!((exchange.weight(one).get(), exchange.weight(two)), (50, Weight::DEFAULT));
    exchange.set_weight(one, Weight::DEFAULT).unwrap();
    exchange.set_weight(two, heavy).unwrap();
    assert_eq!(exchange.counters().weights_not_set, 1);
}

#[test]
fn a_weight_holds_for_responses_that_are_open() {
    for grouping in [Grouping::WithinUrgency, Grouping::AboveUrgency] {
        let mut exchange =
            Exchange::new(Config { grouping, ..config(Rules::Fixed(Debt::strict())) }).unwrap();
        for group in [0, 1] {
            whole(&mut exchange, group, of_group(group), 2000);
        }
        // The default group has a place of its own.
        exchange.set_weight(GroupId(0), Weight::new(48).unwrap()).unwrap();
        assert_eq!(order(&mut exchange, 1000), [0, 1, 0, 0, 0, 1, 1]);
    }
}

#[test]
fn a_level_that_waits_for_a_lane_is_passed_over() {
    let mut exchange = exchange(Rules::Fixed(Debt::strict()));
    whole(&mut exchange, 0, sequential(0), 1000);
    whole(&mut exchange, 4, sequential(7), 1500);
    let among = Candidates::ALL.waiting(Priority::P0);
    let peek = exchange.peek_among(among).unwrap();
    assert_eq!(
        (peek.stream, peek.priority, peek.len, peek.fin),
        (StreamId(4), Priority::P4, Bytes::new(1500), true)
    );
    assert_eq!(exchange.grant_among(CHUNK, among).unwrap().stream, StreamId(4));
    assert_eq!(exchange.peek_among(PrioritySet::one(Priority::P1)), None);
    assert_eq!(order(&mut exchange, 1000), [0, 4]);
}

/// A level in debt would overtake one that only waits for room again and again.
#[test]
fn a_debtor_does_not_overtake_a_protected_level() {
    let mut exchange = exchange(Rules::Fixed(Debt::authors()));
    endless(&mut exchange, 0, sequential(0), 100_000);
    endless(&mut exchange, 4, sequential(3), 100_000);
    while !exchange.is_in_debt(Priority::P0) {
        assert_eq!(exchange.grant(CHUNK).unwrap().priority, Priority::P0);
    }
    let waiting = Candidates::ALL.waiting(Priority::P2);
    assert_eq!((exchange.peek_among(waiting), exchange.grant_among(CHUNK, waiting)), (None, None));
    let blocked = Candidates::ALL.blocked(Priority::P2);
    assert_eq!(exchange.peek_among(blocked).map(|peek| peek.stream), Some(StreamId(0)));
}
