//! Tests of messages: urgency, cancellation, limits, flow control, streams.

use std::collections::BTreeMap;

use marcato_quic::inbox::InboxLimits;
use marcato_quic::{Congestion, Event, Message, PathScheduler, SendError, SessionConfig, StreamUse};
use marcato_sched::conductor::{CancelError, Redundancy, Removal};
use marcato_sched::schedule::{Budget, CwrConfig};
use marcato_sim::{Loss, Side};
use marcato_units::{Bytes, Duration, Priority};

use crate::common::*;

fn one_lane(mbps: u64, delay: u64) -> Vec<PathSpec> {
    vec![path(mbps, delay).map(|link| link.queue(short_queue(60)))]
}

#[test]
fn messages_of_all_sizes_arrive() {
    let sizes =
        [0, 1, 2, 35, 36, 37, 1083, 1084, 1119, 1120, 1121, 1371, 1372, 1373, 1452, 20_000, 10_000_000];
    let plan = (0u64..)
        .zip(sizes)
        .map(|(index, len)| (at(100), Message::new(body(index, len)).with_priority(Priority::P2)));
    let mut pair =
        Pair::new(1, &SessionConfig::default(), one_lane(100, 5), Peer::new().sending(plan), Peer::new());
    pair.run(4000);
    pair.assert_delivered(Side::Client);
    pair.assert_clean();
}

#[test]
fn ten_thousand_messages_at_once_arrive_in_their_order() {
    let plan = every(at(100), Duration::ZERO, 10_000, Priority::P2, 100);
    let mut pair =
        Pair::new(2, &SessionConfig::default(), one_lane(50, 10), Peer::new().sending(plan), Peer::new());
    pair.run(10_000);
    pair.assert_delivered(Side::Client);
    // Numbers are assigned when messages begin to leave, which within a level is the order of
    // sending.
    let sent: Vec<u64> = pair.peer(Side::Client).sent.iter().map(|sent| sent.hash).collect();
    let received: Vec<u64> = pair.peer(Side::Server).received.values().map(|message| message.hash).collect();
    assert!(sent == received);
    pair.assert_clean();
    // Beyond the limit of unfinished messages, no more are accepted.
    let config = SessionConfig { max_unfinished: 100, ..Default::default() };
    let plan = every(at(100), Duration::ZERO, 150, Priority::P2, 100);
    let mut pair = Pair::new(2, &config, one_lane(50, 10), Peer::new().sending(plan), Peer::new());
    pair.run(1000);
    assert_eq!((pair.peer(Side::Client).sent.len(), pair.peer(Side::Client).refused), (100, 50));
}

#[test]
fn an_urgent_message_evicts_background_from_a_full_outbox() {
    let config = SessionConfig { max_unfinished: 100, ..Default::default() };
    let mut plan: Vec<_> = every(at(100), Duration::ZERO, 100, Priority::P4, 2000).collect();
    plan.extend(every(at(101), Duration::ZERO, 10, Priority::P0, 200));
    let mut pair = Pair::new(2, &config, one_lane(1, 10), Peer::new().sending(plan), Peer::new());
    pair.run(10_000);
    let client = pair.peer(Side::Client);
    assert_eq!((client.sent.len(), client.refused), (110, 0));
    let evicted = |event: &Event| matches!(event, Event::Dropped { reason: Removal::Evicted, .. });
    assert_eq!(client.count(evicted), 10);
    let delivered = |event: &Event| matches!(event, Event::Delivered(_));
    assert_eq!(client.count(delivered), 100);
    assert_eq!(pair.delays(Side::Client, Priority::P0).len(), 10);
    assert_eq!(pair.session(Side::Client).load().unfinished, 0);
}

#[test]
fn urgent_messages_pass_a_saturating_load_except_queued_packets() {
    for congestion in CONTROLLERS {
        // 20 Mbit/s, 20 ms, 30 packets of queue.
        let config =
            SessionConfig { congestion, path_scheduler: PathScheduler::LowRtt, ..Default::default() };
        let paths = vec![path(20, 20).map(|link| link.queue(short_queue(30)))];
        let client = Peer::new()
            .sending(every(at(2000), ms(37), 100, Priority::P0, 1000))
            .filling(Priority::P4, at(6000));
        let mut pair = Pair::new(3, &config, paths, client, Peer::new());
        pair.run(10_000);
        pair.assert_delivered(Side::Client);
        let mut delays = pair.delays(Side::Client, Priority::P0);
        delays.sort();
        // A packet of 1480 bytes takes 0.592 ms. 30 wait, one is in transmission, one is the
        // message's: 19 ms. What exceeds the window waits for an acknowledgement, and those arrive
        // at the rate of the bottleneck.
        let bound = ms(20) + Duration::from_micros(592 * 33);
        let median = delays[50];
        assert!(median <= bound, "{congestion:?}: {median:?}");
        // Three later packets reveal a loss, and the repair arrives a round trip later; after two
        // losses, twice that.
        assert!(delays[99] < ms(200), "{congestion:?}: {:?}", delays[99]);
    }
}

#[test]
fn an_urgent_or_raised_message_passes_a_large_earlier_one() {
    // Four megabytes of P4 are sent, then 100 kB of P1, or 100 kB of P4 that is made P1 later. When
    // the urgent message is complete, only what had already left of the other has arrived.
    for later in [false, true] {
        let mut pair = Pair::new(4, &SessionConfig::default(), one_lane(100, 5), Peer::new(), Peer::new());
        pair.run(100);
        pair.send(Side::Client, Message::new(body(1, 4_000_000)).with_priority(Priority::P4));
        pair.run(120);
        let priority = if later { Priority::P4 } else { Priority::P1 };
        let id = pair.send(Side::Client, Message::new(body(2, 100_000)).with_priority(priority));
        if later {
            pair.run(122);
            pair.with(Side::Client, |session, _| session.reprioritise(id, Priority::P1)).unwrap();
        }
        let mut urgent = None;
        while urgent.is_none() && pair.net.now() < at(1000) {
            pair.net.run_until(pair.net.now() + ms(1));
            let done = |message: &&Received| message.len == 100_000 && message.done.is_some();
            urgent = pair.peer(Side::Server).received.values().find(done).copied();
        }
        // It had not begun, so the receiver knows only the new level.
        assert_eq!(urgent.map(|message| message.priority), Some(Priority::P1), "later: {later}");
        let before = pair.peer(Side::Server).bytes[Priority::P4.index()];
        // 20 ms at 100 Mbit/s are 250 kB; slow start does not reach that.
        assert!(before < 300_000, "{before} bytes came before");
        pair.run(4000);
        let lens = |all: Vec<(Priority, u64, u64)>| {
            all.into_iter().map(|(_, len, hash)| (len, hash)).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(lens(pair.peer(Side::Client).handed()), lens(pair.peer(Side::Server).complete()));
        pair.assert_clean();
    }
}

#[test]
fn a_message_can_be_cancelled_until_it_has_been_sent_in_full() {
    let mut pair = Pair::new(5, &SessionConfig::default(), one_lane(20, 10), Peer::new(), Peer::new());
    pair.run(100);
    let big = pair.send(Side::Client, Message::new(body(1, 2_000_000)).with_priority(Priority::P2));
    let behind = pair.send(Side::Client, Message::new(body(2, 50_000)).with_priority(Priority::P2));
    let small = pair.send(Side::Client, Message::new(body(3, 500)).with_priority(Priority::P0));
    pair.run(300);
    let cancel = |pair: &mut Pair, id| pair.with(Side::Client, |session, now| session.cancel(now, id));
    // It has left in full.
    assert_eq!(cancel(&mut pair, small), Err(CancelError::Unknown));
    cancel(&mut pair, big).unwrap();
    cancel(&mut pair, behind).unwrap();
    assert_eq!(cancel(&mut pair, big), Err(CancelError::Unknown));
    pair.run(2000);
    let dropped: Vec<_> = pair
        .peer(Side::Client)
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Dropped { message, sent, reason } => Some((*message, !sent.is_zero(), *reason)),
            _ => None,
        })
        .collect();
    assert_eq!(dropped, [(big, true, Removal::Cancelled), (behind, false, Removal::Cancelled)]);
    // The control stream notifies the receiver of the message that had begun to arrive.
    let given_up = pair.peer(Side::Server).count(|event| matches!(event, Event::GivenUp { .. }));
    assert_eq!((given_up, pair.peer(Side::Server).complete().len()), (1, 1));
    assert_eq!(pair.session(Side::Server).received().given_up, 1);
    pair.assert_clean();
}

#[test]
fn expired_and_discarded_messages_are_reported_at_both_ends() {
    let mut pair = Pair::new(6, &SessionConfig::default(), one_lane(8, 10), Peer::new(), Peer::new());
    pair.run(100);
    // 1 MB/s: the first takes a second.
    let first = pair.send(Side::Client, Message::new(body(1, 1_000_000)).with_priority(Priority::P2));
    let mut brief = Message::new(body(2, 1000)).with_priority(Priority::P2);
    brief.lifetime = Some(ms(300));
    let brief = pair.send(Side::Client, brief);
    let mut partial = Message::new(body(3, 1_000_000)).with_priority(Priority::P3);
    partial.partial_ok = true;
    let partial = pair.send(Side::Client, partial);
    pair.run(1800);
    let tally = pair.with(Side::Client, |session, now| session.discard_less_urgent_than(now, Priority::P2));
    assert_eq!(tally.messages, 1);
    let refused = pair.with(Side::Client, |session, now| {
        session.send(now, Message::new(body(4, 10)).with_priority(Priority::P4))
    });
    assert_eq!(refused, Err(SendError::Discarding { threshold: Priority::P2 }));
    pair.run(4000);
    let dropped: BTreeMap<_, _> = pair
        .peer(Side::Client)
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Dropped { message, reason, .. } => Some((*message, *reason)),
            _ => None,
        })
        .collect();
    assert_eq!(dropped, BTreeMap::from([(brief, Removal::Expired), (partial, Removal::Discarded)]));
    assert!(pair.peer(Side::Client).count(|event| *event == Event::Delivered(first)) == 1);
    let reported: Vec<_> = pair
        .peer(Side::Server)
        .events
        .iter()
        .filter_map(|(_, event)| if let Event::GivenUp { code, .. } = event { Some(*code) } else { None })
        .collect();
    // Includes the message of which nothing had left: its deadline was missed.
    assert_eq!(reported, [Removal::Expired as u64, Removal::Discarded as u64]);
    pair.assert_clean();
}

#[test]
fn a_slow_reader_slows_the_sender_and_receives_everything_later() {
    let inbox = InboxLimits { unread: Bytes::kb(100), ..Default::default() };
    let config = SessionConfig {
        stream_window: Bytes::kb(64),
        receive_window: Bytes::kb(256),
        inbox,
        ..Default::default()
    };
    let client =
        Peer::new().sending(every(at(300), ms(100), 40, Priority::P0, 2000)).filling(Priority::P4, at(5000));
    let server = Peer::new().deaf(at(1000), at(4000));
    let mut pair = Pair::new(7, &config, one_lane(20, 10), client, server);
    pair.run(1500);
    let background = |pair: &Pair| pair.session(Side::Client).conducted().level(Priority::P4).granted.bytes;
    let urgent = |pair: &Pair| pair.session(Side::Client).conducted().level(Priority::P0).granted.bytes;
    let stuck = (background(&pair), urgent(&pair));
    let polls = pair.session(Side::Client).stats().polls;
    let load = pair.session(Side::Server).inbox_load();
    pair.run(3900);
    let later = pair.session(Side::Server).inbox_load();
    // The inbox's bound, a stream window that was read at once beyond it, and data in the engine.
    let held = later.unread + later.ahead + later.parked;
    assert!(held <= Bytes::kb(100 + 64), "{later:?}");
    assert_eq!(load.unread, later.unread);
    // Background data has no credit on its stream; urgent data has, and continues while the
    // connection has some.
    assert_eq!(background(&pair), stuck.0);
    assert_eq!(urgent(&pair), stuck.1 + Bytes::new(24 * 2000));
    // It waits, without repeated attempts.
    let polled = pair.session(Side::Client).stats().polls - polls;
    assert!(polled < 400, "{polled}");
    pair.run(20_000);
    pair.assert_delivered(Side::Client);
    pair.assert_clean();
}

#[test]
fn a_message_without_stream_credit_does_not_block_other_levels() {
    // The window of a stream is a fraction of the path's capacity; the reader is fast.
    let config = SessionConfig { stream_window: Bytes::kb(8), ..Default::default() };
    let client =
        Peer::new().sending(every(at(1000), ms(40), 50, Priority::P0, 3000)).filling(Priority::P4, at(3000));
    let mut pair = Pair::new(8, &config, one_lane(20, 30), client, Peer::new());
    pair.run(20_000);
    pair.assert_delivered(Side::Client);
    assert!(pair.session(Side::Client).stats().flow_blocked > 50);
    let worst = pair.delays(Side::Client, Priority::P0).into_iter().max().unwrap();
    // Nothing waits in the network: one way, and three packets of 0.6 ms.
    assert!(worst < ms(33), "{worst:?}");
    pair.assert_clean();
}

#[test]
fn a_message_without_a_stream_does_not_block_others_with_one() {
    // One for the control stream, one for a message; of bidirectional ones, two for messages.
    for streams in [StreamUse::PerMessage, StreamUse::Reuse] {
        let config = SessionConfig { max_streams: 2, streams, ..Default::default() };
        let mut pair = Pair::new(9, &config, one_lane(20, 10), Peer::new(), Peer::new());
        pair.run(100);
        pair.send(Side::Client, Message::new(body(1, 300_000)).with_priority(Priority::P4));
        pair.run(150);
        for index in 2..20 {
            pair.send(Side::Client, Message::new(body(index, 3000)).with_priority(Priority::P0));
        }
        let given_up = pair.send(Side::Client, Message::new(body(20, 1_000_000)).with_priority(Priority::P1));
        pair.run(700);
        let cancelled = pair.with(Side::Client, |session, now| session.cancel(now, given_up));
        assert_eq!(cancelled, Ok(()), "{streams:?}");
        pair.send(Side::Client, Message::new(body(21, 3000)).with_priority(Priority::P0));
        pair.run(5000);
        let complete = pair.peer(Side::Server).complete().len();
        assert_eq!(complete, 20, "{streams:?}");
        let reported = pair.peer(Side::Server).count(|event| matches!(event, Event::GivenUp { .. }));
        assert_eq!(reported, 1, "{streams:?}");
        pair.assert_clean();
    }
}

#[test]
fn streams_are_used_again_once_their_message_is_acknowledged() {
    for (scheduler, redundancy, loss) in [
        (PathScheduler::LowRtt, Redundancy::Once, 0.0),
        (PathScheduler::LowRtt, Redundancy::Once, 0.03),
        (PathScheduler::CwrRed(CwrConfig::paper()), Redundancy::EveryLane, 0.0),
        (PathScheduler::CwrRed(CwrConfig::paper()), Redundancy::EveryLane, 0.03),
    ] {
        let config =
            SessionConfig { streams: StreamUse::Reuse, path_scheduler: scheduler, ..Default::default() };
        let plan = every(at(200), ms(20), 400, Priority::P0, 3000).map(|(at, mut message)| {
            message.redundancy = redundancy;
            (at, message)
        });
        let paths = [path(20, 10), path(20, 30)].map(|path| path.map(|link| link.loss(Loss::Random(loss))));
        let mut pair = Pair::new(10, &config, paths.into(), Peer::new().sending(plan), Peer::new());
        pair.run(12_000);
        pair.assert_delivered(Side::Client);
        let stats = pair.session(Side::Client).stats();
        if redundancy == Redundancy::EveryLane {
            // Losses shrink the windows, and data that does not fit both is not duplicated.
            assert!(stats.copies > if loss > 0.0 { 200 } else { 1100 }, "{stats:?}");
        }
        // A round trip of 60 ms is three messages; losses keep some streams for longer, and end
        // them.
        let most = if loss > 0.0 { 120 } else { 12 };
        assert!(pair.streams_opened(Side::Client) <= most, "{}", pair.streams_opened(Side::Client));
        pair.assert_clean();
    }
}

#[test]
fn streams_that_were_reset_are_given_back_by_the_peer() {
    // Far more cancelled messages than the limit of streams.
    let config = SessionConfig { streams: StreamUse::Reuse, max_streams: 4, ..Default::default() };
    let mut pair = Pair::new(11, &config, one_lane(20, 10), Peer::new(), Peer::new());
    for round in 0..30 {
        pair.run(100 + round * 100);
        let id = pair.send(Side::Client, Message::new(body(round, 500_000)).with_priority(Priority::P1));
        pair.run(100 + round * 100 + 50);
        let _ = pair.with(Side::Client, |session, now| session.cancel(now, id));
    }
    pair.send(Side::Client, Message::new(body(99, 5000)).with_priority(Priority::P1));
    pair.run(6000);
    assert_eq!(pair.peer(Side::Server).complete().len(), 1);
    pair.assert_clean();
}

#[test]
fn copies_arrive_unless_both_lanes_lose_them_and_leave_no_state() {
    let mean = |scheduler, redundancy, seed| {
        // A controller that does not respond to random losses.
        let congestion = Congestion::Bbr3;
        let config = SessionConfig { path_scheduler: scheduler, congestion, ..Default::default() };
        let plan = every(at(200), ms(50), 200, Priority::P0, 8000).map(|(at, mut message)| {
            message.redundancy = redundancy;
            (at, message)
        });
        let paths = [path(50, 15), path(50, 20)].map(|path| path.map(|link| link.loss(Loss::Random(0.05))));
        let mut pair = Pair::new(seed, &config, paths.into(), Peer::new().sending(plan), Peer::new());
        pair.run(15_000);
        pair.assert_delivered(Side::Client);
        pair.assert_clean();
        let delays = pair.delays(Side::Client, Priority::P0);
        let sum: Duration = delays.iter().sum();
        let inbox = pair.session(Side::Server).received();
        (sum / 200, pair.session(Side::Client).stats().copies, inbox)
    };
    let red = PathScheduler::CwrRed(CwrConfig::paper());
    // 200 messages are too few to distinguish means that differ by 8 ms: their error is about 1 ms.
    let (mut both, mut single) = (Duration::ZERO, Duration::ZERO);
    for seed in 1..=10 {
        both += mean(red, Redundancy::EveryLane, seed).0 / 10;
        let (once, none, _) = mean(red, Redundancy::Once, seed);
        single += once / 10;
        assert_eq!(none, 0);
    }
    let (_, copies, inbox) = mean(red, Redundancy::EveryLane, 12);
    // Eight packets, each lost with 5 %: a single lane needs a repair for a third of the messages.
    // Both lanes lose the same packet with 0.25 %.
    assert!(copies > 700, "{copies}");
    assert!(both < ms(25) && both + ms(8) < single, "{both:?} against {single:?}");
    // Lost headers were known from the copies.
    assert!(inbox.announced > 0, "{inbox:?}");
}

#[test]
fn copies_end_where_something_could_not_be_sent_twice() {
    // Both lanes have room for the message when it begins; then one loses its packets, and its
    // window shrinks.
    let config = SessionConfig {
        path_scheduler: PathScheduler::CwrRed(CwrConfig::paper()),
        initial_window: Some(Bytes::kb(200)),
        ..Default::default()
    };
    let plan = every(at(500), ms(400), 10, Priority::P0, 150_000).map(|(at, mut message)| {
        message.redundancy = Redundancy::EveryLane;
        (at, message)
    });
    let paths = [path(20, 10), path(5, 20)].map(|path| path.map(|link| link.queue(short_queue(20))));
    let mut pair = Pair::new(13, &config, paths.into(), Peer::new().sending(plan), Peer::new());
    pair.run(15_000);
    let stats = pair.session(Side::Client).stats();
    assert!(stats.copies > 0 && stats.copies < stats.chunks, "{stats:?}");
    pair.assert_delivered(Side::Client);
    pair.assert_clean();
}

#[test]
fn copies_keep_to_their_budget_even_of_messages_of_one_packet() {
    // The last chunk of a message is duplicated when nothing of the message is left to send. Here
    // it is the only chunk.
    let budget = Budget::new(Bytes::kb(20), 100).unwrap();
    for len in [1000, 10_000] {
        let config = SessionConfig {
            path_scheduler: PathScheduler::CwrRed(CwrConfig { budget, ..CwrConfig::paper() }),
            initial_window: Some(Bytes::kb(200)),
            ..Default::default()
        };
        let plan = every(at(500), ms(10), 500, Priority::P0, len).map(|(at, mut message)| {
            message.redundancy = Redundancy::EveryLane;
            (at, message)
        });
        let paths = vec![path(50, 10), path(50, 10)];
        let mut pair = Pair::new(3, &config, paths, Peer::new().sending(plan), Peer::new());
        pair.run(8000);
        pair.assert_delivered(Side::Client);
        let stats = pair.session(Side::Client).stats();
        let limit = budget.limit(stats.first);
        assert!(stats.copied <= limit, "{:?} of {limit:?}, {stats:?}", stats.copied);
        // There is room for all copies: only the budget prevents some. A message is duplicated in
        // full or not at all.
        assert!(stats.copied + Bytes::new(len as u64 + 1000) > limit, "{:?} of {limit:?}", stats.copied);
    }
}
