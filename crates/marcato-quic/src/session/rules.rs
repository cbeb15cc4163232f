//! Rules of a session, between two ends in virtual time.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use bytes::Bytes as Payload;
use marcato_identity::{Identity, Trust};
use marcato_sched::conductor::{MessageId, Redundancy};
use marcato_sched::coupled::{Coupling, Mode};
use marcato_sched::lane::LaneId;
use marcato_sched::lowprio::LcmConfig;
use marcato_stream::CloseReason;
use marcato_units::{Bytes, Duration, Layer, Priority, Time};
use marcato_wire::{Ecn, EndReason, ErrorCode, Exchange, Fate, MessageNumber};
use noq_proto::VarInt;

use super::pair::{Pair, Who, address, body, message};
use super::{Closed, MAX_NOTES, Message, SendError};
use crate::config::{Pacing, PathScheduler, SessionConfig, StreamUse};
use crate::controller::Congestion;
use crate::endpoint::{ResetKey, SocketId};
use crate::event::{Event, LaneLoss};
use crate::inbox::InboxLimits;
use crate::lane::{LaneRequest, LaneState};
use crate::low::{LowLanes, Retry};

use Who::{Client, Server};

/// Pair with the same configuration at both ends.
fn pair(round_trips: &[u64], config: &SessionConfig) -> Pair {
    Pair::new(round_trips, config, config)
}

/// Waits until the client's message is delivered, and returns the time.
fn delivery(pair: &mut Pair, message: MessageId) -> Time {
    pair.run_until(|pair| pair.delivered(Client, message).is_some());
    pair.delivered(Client, message).unwrap()
}

#[test]
fn a_message_arrives_whole_over_one_lane() {
    let mut pair = pair(&[20], &SessionConfig::default());
    let id = pair.send(Client, message(Priority::P2, 300_000));
    delivery(&mut pair, id);
    let received = pair.received(Server);
    assert_eq!(received.len(), 1);
    assert!(received[0].priority == Priority::P2 && received[0].body == body(300_000));
}

/// Coupled mode has nothing to protect before.
#[test]
fn coupled_mode_acts_once_both_kinds_of_messages_were_sent() {
    let config = SessionConfig { coupled: Coupling::Auto, ..SessionConfig::default() };
    let mut pair = pair(&[20], &config);
    let acts = |pair: &mut Pair| pair.session(Client).coupling().any(|(_, state)| state.acts);
    for (priority, expected) in [(Priority::P4, false), (Priority::P2, false), (Priority::P1, true)] {
        pair.deliver(Client, message(priority, 50_000));
        pair.pass(Duration::from_millis(100));
        assert_eq!(acts(&mut pair), expected, "{priority}");
    }
}

#[test]
fn empty_messages_arrive_in_every_way() {
    for streams in [StreamUse::PerMessage, StreamUse::Reuse] {
        let config = SessionConfig { streams, ..SessionConfig::default() };
        let mut pair = pair(&[20, 50], &config);
        for lane in 0..2 {
            pair.line(lane, Client).loss = 0.3;
        }
        let now = pair.now;
        let all = [
            pair.send(Client, message(Priority::P2, 0)),
            pair.send(Client, message(Priority::P0, 0).with_redundancy(Redundancy::EveryLane)),
            {
                let session = pair.session(Client);
                let long = session.begin_long();
                let part = |len| message(Priority::P3, len);
                let empty = session.send_part(now, long, part(0), false);
                assert_eq!(empty, Err(SendError::EmptyPart));
                session.send_part(now, long, part(700), false).unwrap();
                session.send_part(now, long, part(0), true).unwrap()
            },
        ];
        for id in all {
            delivery(&mut pair, id);
        }
        let lens: Vec<_> = pair.received(Server).iter().map(|message| message.body.len()).collect();
        assert_eq!(lens.iter().sum::<usize>(), 700, "{lens:?}");
        assert_eq!(lens.len(), 3);
    }
}

/// The level continues where it stopped, also after a loss, and the others do not notice.
#[test]
fn a_level_that_the_peer_holds_stops_no_other() {
    let mut pair = pair(&[20], &SessionConfig::default());
    pair.line(0, Client).loss = 0.1;
    let file = pair.send(Client, message(Priority::P4, 3_000_000));
    pair.pass(Duration::from_millis(60));
    pair.session(Server).hold(Priority::P4, true);
    pair.pass(Duration::from_secs(2));
    let held = pair.session(Client).queued().bytes;
    assert!(!held.is_zero());
    let urgent = pair.send(Client, message(Priority::P0, 30_000));
    delivery(&mut pair, urgent);
    assert_eq!((pair.session(Client).queued().bytes, pair.delivered(Client, file)), (held, None));
    pair.session(Server).hold(Priority::P4, false);
    delivery(&mut pair, file);
    assert!(pair.received(Server).iter().map(|message| message.body.len()).eq([30_000, 3_000_000]));
}

/// The peer hears of the end only when it has everything.
#[test]
fn one_direction_ends_and_the_other_goes_on() {
    let config = SessionConfig { datagrams: Some(Bytes::kb(100)), ..SessionConfig::default() };
    let mut pair = pair(&[20], &config);
    pair.line(0, Client).loss = 0.1;
    let last = pair.send(Client, message(Priority::P4, 300_000));
    pair.session(Client).finish();
    let now = pair.now;
    let refused = pair.session(Client).send(now, message(Priority::P0, 1));
    assert_eq!(refused, Err(SendError::Finished));
    pair.run_until(|pair| pair.events(Server).any(|event| *event == Event::Finished));
    assert_eq!(pair.received(Server)[0].body.len(), 300_000);
    delivery(&mut pair, last);
    let back = pair.send(Server, message(Priority::P2, 50_000));
    pair.run_until(|pair| pair.delivered(Server, back).is_some());
    // After the last message, even one that nobody acknowledges, the end is reported at once.
    let now = pair.now;
    let unreliable = message(Priority::P2, 100).unreliable();
    pair.session(Server).send(now, unreliable).unwrap();
    pair.session(Server).finish();
    pair.run_until(|pair| pair.events(Client).any(|event| *event == Event::Finished));
}

#[test]
fn a_message_arrives_whole_over_two_lanes() {
    let config = SessionConfig { path_scheduler: PathScheduler::RoundRobin, ..SessionConfig::default() };
    let mut pair = pair(&[20, 50], &config);
    for lane in 0..2 {
        pair.line(lane, Client).loss = 0.05;
    }
    let id = pair.send(Client, message(Priority::P2, 300_000));
    delivery(&mut pair, id);
    assert!(pair.received(Server)[0].body == body(300_000));
    let carried: Vec<_> = pair.session(Client).lanes().map(|(_, _, stats)| stats.acked).collect();
    assert!(carried.iter().all(|bytes| *bytes > Bytes::new(50_000)), "{carried:?}");
}

#[test]
fn an_urgent_message_overtakes_one_in_progress() {
    // With ten packets per round trip, the long message takes dozens of round trips.
    let config = SessionConfig { initial_window: Some(Bytes::new(12_000)), ..SessionConfig::default() };
    let mut pair = pair(&[100], &config);
    let long = pair.send(Client, message(Priority::P4, 2_000_000));
    pair.pass(Duration::from_millis(250));
    let offered = pair.now;
    let urgent = pair.send(Client, message(Priority::P0, 5000));
    let arrived = delivery(&mut pair, urgent);
    // One round trip for the window to open, and one for the message.
    assert!(arrived <= offered + Duration::from_millis(210), "{:?}", arrived.since(offered));
    assert_eq!(pair.delivered(Client, long), None);
    delivery(&mut pair, long);
    assert!(pair.received(Server).iter().map(|message| message.body.len()).eq([5000, 2_000_000]));
}

#[test]
fn data_on_a_dead_lane_is_repaired_on_the_other() {
    let config = SessionConfig { path_scheduler: PathScheduler::RoundRobin, ..SessionConfig::default() };
    let mut pair = pair(&[40, 40], &config);
    let id = pair.send(Client, message(Priority::P1, 200_000));
    pair.pass(Duration::from_millis(10));
    pair.kill(1);
    delivery(&mut pair, id);
    assert!(pair.received(Server)[0].body == body(200_000));
    assert!(pair.events(Client).any(|event| matches!(event, Event::LaneStalled(_))));
    let down = |event: &Event| matches!(event, Event::LaneDown { .. });
    assert!(!pair.events(Client).any(down), "the lane was closed first");
    assert!(pair.stats(Client).reinjected > 0);
}

/// Urgent messages every 20 ms, with and without bulk data, while either lane dies.
#[test]
fn a_dead_lane_delays_no_urgent_message_by_250_ms() {
    for (dead, bulk) in [(0, false), (1, false), (0, true), (1, true)] {
        let mut pair = pair(&[40, 50], &SessionConfig::default());
        if bulk {
            pair.send(Client, message(Priority::P4, 4_000_000));
        }
        let mut sent = Vec::new();
        for number in 0..200 {
            if number == 25 {
                pair.kill(dead);
            }
            sent.push(pair.now);
            pair.send(Client, message(Priority::P0, 1000));
            pair.pass(Duration::from_millis(20));
        }
        pair.pass(Duration::from_secs(1));
        let urgent: Vec<_> =
            pair.received(Server).iter().filter(|message| message.priority == Priority::P0).collect();
        assert_eq!(urgent.len(), sent.len());
        // Messages of one level may overtake each other, so the n-th arrival is compared.
        let slowest = urgent.iter().zip(&sent).map(|(message, at)| message.at.since(*at)).max();
        assert!(slowest < Some(Duration::from_millis(250)), "lane {dead}, bulk {bulk}: {slowest:?}");
    }
}

/// The sender also learns in time that its messages have arrived. Acknowledgements and control
/// frames of the receiver may be lost with the lane, and cannot be sent again by another.
#[test]
fn a_dead_lane_delays_no_acknowledgement_by_250_ms() {
    let (path_scheduler, reopen) = (PathScheduler::RoundRobin, Some(Retry::default()));
    let config = SessionConfig { path_scheduler, reopen, ..SessionConfig::default() };
    for dead in 0..2 {
        for cut in 0..40 {
            let mut pair = pair(&[2, 2], &config);
            pair.report_at_once(Server);
            let sent: Vec<_> =
                (0..30).map(|_| pair.send(Client, message(Priority::P2, 100_000).with_receipt())).collect();
            pair.pass(Duration::from_micros(5000 + 203 * cut));
            pair.kill(dead);
            let limit = pair.now + Duration::from_millis(250);
            pair.run_until(|pair| {
                sent.iter().all(|id| pair.delivered(Client, *id).is_some())
                    && reported(pair).len() == sent.len()
            });
            assert!(pair.now <= limit, "lane {dead}, cut {cut}: {:?} too late", pair.now.since(limit));
        }
    }
}

/// A report leaves on a lane that has died, while nothing else is in flight. No rule for data in
/// flight notices that. The lane that works must not be taken for the dead one.
#[test]
fn a_report_on_a_dead_lane_is_sent_again_by_another() {
    let reopen = Some(Retry::default());
    let config = SessionConfig { reopen, keep_alive: None, ..SessionConfig::default() };
    for (dead, round_trips) in [(0, [2, 10]), (1, [10, 2]), (0, [10, 2]), (1, [2, 10])] {
        let mut pair = pair(&round_trips, &config);
        let id = pair.send(Client, message(Priority::P2, 1000).with_receipt());
        delivery(&mut pair, id);
        pair.pass(Duration::from_millis(100));
        pair.kill(dead);
        pair.session(Server).report(MessageNumber(0), Fate::Taken);
        pair.pass(Duration::from_millis(500));
        assert_eq!(reported(&pair), [(Some(id), Fate::Taken)], "lane {dead} of {round_trips:?}");
        for who in [Client, Server] {
            let lost = pair.events(who).filter_map(|event| match event {
                Event::LaneDown { lane, .. } => *lane,
                _ => None,
            });
            assert!(lost.map(LaneId::index).all(|lane| lane == dead), "{who:?}, lane {dead}");
        }
    }
}

/// A loss among control frames is a matter of the engine, and no reason to close a lane.
#[test]
fn lost_reports_close_no_lane() {
    let config = SessionConfig { reopen: Some(Retry::default()), ..SessionConfig::default() };
    let mut pair = pair(&[20, 40], &config);
    pair.report_at_once(Server);
    for lane in 0..2 {
        for who in [Client, Server] {
            pair.line(lane, who).loss = 0.01;
        }
    }
    for _ in 0..300 {
        pair.send(Client, message(Priority::P2, 1000).with_receipt());
        pair.pass(Duration::from_millis(70));
    }
    pair.pass(Duration::from_secs(2));
    assert_eq!(reported(&pair).len(), 300);
    for who in [Client, Server] {
        assert!(!pair.events(who).any(|event| matches!(event, Event::LaneDown { .. })), "{who:?}");
    }
}

/// A lane that was lost comes back by itself, and both ends hear of it.
#[test]
fn a_lost_lane_reopens_by_itself() {
    let retry = Retry { first: Duration::from_secs(1), longest: Duration::from_secs(8) };
    let path_scheduler = PathScheduler::RoundRobin;
    let config = SessionConfig { reopen: Some(retry), path_scheduler, ..SessionConfig::default() };
    for lost in 0..2 {
        let mut pair = pair(&[40, 40], &config);
        pair.kill(lost);
        // Something has to be sent for the silence to be noticed.
        for _ in 0..200 {
            pair.send(Client, message(Priority::P2, 10_000));
            pair.pass(Duration::from_millis(100));
        }
        let lane = LaneId::new(u8::try_from(lost).unwrap());
        let down = pair.events(Client).find_map(|event| match event {
            Event::LaneDown { lane: down, reason, reopens_at } if *down == lane => {
                Some((reason.clone(), *reopens_at))
            }
            _ => None,
        });
        let (reason, reopens_at) = down.unwrap_or_else(|| panic!("lane {lost} was not given up"));
        assert_eq!(reason, LaneLoss::Silent);
        assert!(reopens_at.is_some());
        pair.revive(lost);
        // The longest delay, and the engine's attempts before it.
        pair.pass(Duration::from_secs(20));
        for who in [Client, Server] {
            assert!(pair.events(who).any(|event| matches!(event, Event::LaneUp(_))), "{who:?}");
            let up = pair.session(who).lanes().filter(|(_, state, _)| *state == LaneState::Up);
            assert_eq!(up.count(), 2, "{who:?}, lane {lost}");
        }
    }
}

#[test]
fn a_lane_that_an_application_removed_stays_closed() {
    let retry = Retry { first: Duration::from_secs(1), longest: Duration::from_secs(8) };
    let config = SessionConfig { reopen: Some(retry), ..SessionConfig::default() };
    for by in [Client, Server] {
        let mut pair = pair(&[40, 40], &config);
        let now = pair.now;
        let lane = LaneId::new(1).unwrap();
        pair.session(by).remove_lane(now, lane).unwrap();
        pair.pass(Duration::from_secs(20));
        let up = pair.session(Client).lanes().filter(|(_, state, _)| *state == LaneState::Up);
        assert_eq!(up.count(), 1, "removed by {by:?}");
    }
}

#[test]
fn a_level_without_credit_does_not_stop_the_others() {
    // The urgent message may have 16 kB in flight on its stream: twelve round trips.
    let server = SessionConfig { stream_window: Bytes::new(16_384), ..SessionConfig::default() };
    let client = SessionConfig { initial_window: Some(Bytes::new(100_000)), ..SessionConfig::default() };
    let mut pair = Pair::new(&[100], &client, &server);
    let wide = pair.send(Client, message(Priority::P1, 120_000));
    let other = pair.send(Client, message(Priority::P3, 10_000));
    let offered = pair.now;
    let arrived = delivery(&mut pair, other);
    assert!(arrived <= offered + Duration::from_millis(160), "{:?}", arrived.since(offered));
    assert_eq!(pair.delivered(Client, wide), None);
    assert!(pair.stats(Client).flow_blocked > 0);
    delivery(&mut pair, wide);
}

#[test]
fn unread_unreliable_messages_are_bounded() {
    // Four messages of 100 bytes, each counted with 64 more.
    let config = SessionConfig { datagrams: Some(Bytes::new(4 * 164)), ..SessionConfig::default() };
    let mut pair = pair(&[20], &config);
    for index in 0..10 {
        let (now, body) = (pair.now, Payload::from(vec![index; 100]));
        pair.session(Client).send(now, Message::new(body).with_priority(Priority::P1).unreliable()).unwrap();
    }
    pair.pass(Duration::from_millis(100));
    let stats = pair.stats(Server);
    assert_eq!((stats.datagrams_received, stats.datagrams_dropped), (10, 6));
    let read = std::iter::from_fn(|| pair.session(Server).read_datagram());
    assert_eq!(read.map(|datagram| datagram.body[0]).collect::<Vec<_>>(), [6, 7, 8, 9]);
}

/// Reports that the client's events tell of.
fn reported(pair: &Pair) -> Vec<(Option<MessageId>, Fate)> {
    let reported = |event: &Event| match event {
        Event::Reported { message, fate } => Some((*message, *fate)),
        _ => None,
    };
    pair.events(Client).filter_map(reported).collect()
}

#[test]
fn the_sender_learns_the_fate_of_its_message_once() {
    let mut pair = pair(&[20], &SessionConfig::default());
    let plain = pair.send(Client, message(Priority::P2, 1000));
    let asked: Vec<_> =
        (0..2).map(|_| pair.send(Client, message(Priority::P2, 300_000).with_receipt())).collect();
    for id in [plain, asked[0], asked[1]] {
        delivery(&mut pair, id);
    }
    assert_eq!(reported(&pair), []);
    // The second one twice, and one that asked for none.
    for (number, fate) in [(1, Fate::Taken), (2, Fate::Discarded), (2, Fate::Taken), (0, Fate::Taken)] {
        pair.session(Server).report(MessageNumber(number), fate);
    }
    assert!(!pair.session(Server).finish_reports());
    pair.pass(Duration::from_millis(100));
    let expected = [
        (Some(asked[0]), Fate::Taken),
        (Some(asked[1]), Fate::Discarded),
        (None, Fate::Taken),
        (None, Fate::Taken),
    ];
    assert_eq!(reported(&pair), expected);
    assert!(pair.session(Server).finish_reports());
    assert_eq!(pair.events(Server).filter(|event| **event == Event::ReportsArrived).count(), 1);
    // Without reports there is nothing to wait for.
    assert!(pair.session(Client).finish_reports());
}

/// The network takes nothing, so there is no grant that would remove what has expired.
#[test]
fn a_message_expires_in_time_while_nothing_can_leave() {
    let mut pair = pair(&[20], &SessionConfig { keep_alive: None, ..SessionConfig::default() });
    pair.kill(0);
    pair.send(Client, message(Priority::P1, 3_000_000));
    pair.pass(Duration::from_millis(30));
    let lifetime = Some(Duration::from_millis(77));
    let id = pair.send(Client, Message { lifetime, ..message(Priority::P3, 1000) });
    let deadline = pair.now + Duration::from_millis(77);
    pair.pass(Duration::from_millis(100));
    let dropped =
        |(_, event): &&(Time, Event)| matches!(event, Event::Dropped { message, .. } if *message == id);
    let (at, _) = pair.timed_events(Client).find(dropped).unwrap();
    assert_eq!(at.since(deadline), Duration::from_nanos(1));
}

#[test]
fn a_cancelled_message_awaits_no_report() {
    let mut pair = pair(&[20], &SessionConfig::default());
    let id = pair.send(Client, message(Priority::P2, 3_000_000).with_receipt());
    pair.pass(Duration::from_millis(15));
    let now = pair.now;
    pair.session(Client).cancel(now, id).unwrap();
    pair.session(Server).report(MessageNumber(0), Fate::Taken);
    pair.pass(Duration::from_millis(100));
    assert_eq!(reported(&pair), [(None, Fate::Taken)]);
}

#[test]
fn the_requester_learns_that_a_reply_was_abandoned() {
    let mut pair = pair(&[20], &SessionConfig::default());
    let ended = |pair: &Pair| {
        let ended = |event: &Event| match event {
            Event::ExchangeEnded { exchange, reason } => Some((*exchange, *reason)),
            _ => None,
        };
        pair.events(Client).filter_map(ended).collect::<Vec<_>>()
    };
    let reply = |exchange, len| Message { exchange: Exchange::Reply(exchange), ..message(Priority::P2, len) };
    let sent = pair.send(Server, reply(7, 3_000_000));
    let unsent = pair.send(Server, reply(8, 1000));
    let whole = pair.send(Server, Message { priority: Priority::P0, ..reply(9, 1000) });
    pair.pass(Duration::from_millis(15));
    let now = pair.now;
    for id in [sent, unsent] {
        pair.session(Server).cancel(now, id).unwrap();
    }
    pair.pass(Duration::from_millis(200));
    assert!(pair.delivered(Server, whole).is_some());
    assert_eq!(ended(&pair), [(7, EndReason::Unanswered), (8, EndReason::Unanswered)]);
    assert!(pair.received(Client).iter().map(|message| message.body.len()).eq([1000]));
}

#[test]
fn reports_without_credit_wait_and_close_nothing() {
    const COUNT: u64 = 3 * MAX_NOTES as u64;
    let client = SessionConfig {
        receive_window: Bytes::new(20_000),
        inbox: InboxLimits { unread: Bytes::new(5000), ..InboxLimits::default() },
        ..SessionConfig::default()
    };
    let mut pair = Pair::new(&[20], &client, &SessionConfig::default());
    pair.stop_reading(Client);
    pair.send(Server, message(Priority::P0, 100_000));
    pair.pass(Duration::from_secs(1));
    for number in 0..COUNT {
        pair.session(Server).report(MessageNumber(number), Fate::Taken);
    }
    pair.pass(Duration::from_secs(1));
    let load = pair.session(Server).load();
    assert!(load.notes < MAX_NOTES / 2 && load.reports > MAX_NOTES, "{load:?}");
    assert!(pair.session(Server).is_open());
    assert_eq!(pair.events(Server).filter(|event| **event == Event::Readable).count(), 0);
    // With credit they leave, and the owner learns that it can read again.
    for _ in 0..100 {
        let now = pair.now;
        while pair.session(Client).read(now).is_some() {}
        pair.pass(Duration::from_millis(20));
    }
    assert_eq!((reported(&pair).len() as u64, pair.session(Server).reports()), (COUNT, 0));
    assert_eq!(pair.events(Server).filter(|event| **event == Event::Readable).count(), 1);
}

#[test]
fn too_many_notes_close_the_session() {
    // The server owes one DONE per message, and the client has no credit for any.
    let client = SessionConfig {
        streams: StreamUse::Reuse,
        receive_window: Bytes::new(20_000),
        inbox: InboxLimits { unread: Bytes::new(5000), ..InboxLimits::default() },
        ..SessionConfig::default()
    };
    let server = SessionConfig { max_streams: 10_000, ..SessionConfig::default() };
    let server = SessionConfig { inbox: InboxLimits { streams: 10_000, ..InboxLimits::default() }, ..server };
    let mut pair = Pair::new(&[20], &client, &server);
    pair.session(Client).hold(Priority::P4, true);
    pair.stop_reading(Client);
    pair.send(Server, message(Priority::P0, 100_000));
    pair.pass(Duration::from_secs(1));
    let send = |pair: &mut Pair, count| {
        for _ in 0..count {
            pair.send(Client, message(Priority::P1, 1));
        }
        pair.pass(Duration::from_secs(2));
    };
    send(&mut pair, MAX_NOTES);
    assert_eq!(pair.session(Server).load().notes, MAX_NOTES);
    assert!(pair.session(Server).is_open());
    // A receiver that reads nothing does not learn of a message of which nothing has left.
    pair.send(Server, message(Priority::P4, 1000).with_lifetime(Duration::from_millis(1)));
    pair.pass(Duration::from_millis(10));
    assert_eq!((pair.session(Server).load().notes, pair.stats(Server).unreported), (MAX_NOTES, 1));
    send(&mut pair, 1);
    let closed = pair.events(Server).find_map(|event| match event {
        Event::Closed { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    assert_eq!(
        closed,
        Some("the peer grants too little flow-control credit: too many control frames are queued")
    );
}

/// Texts of errors decide nothing.
#[test]
fn the_end_of_a_session_has_the_code_of_the_peer() {
    for code in [ErrorCode::NoError, ErrorCode::Aborted, ErrorCode::LimitExceeded] {
        let mut pair = pair(&[20], &SessionConfig::default());
        pair.pass(Duration::from_millis(200));
        let now = pair.now;
        pair.session(Client).close(now, code, "finished, aborted");
        pair.pass(Duration::from_millis(200));
        let codes = [Client, Server].map(|who| {
            pair.events(who).find_map(|event| match event {
                Event::Closed { code, .. } => Some(*code),
                _ => None,
            })
        });
        assert_eq!(codes, [Some(None), Some(Some(code.get()))]);
    }
}

#[test]
fn acknowledgements_leave_although_all_gates_are_shut() {
    let mut pair = pair(&[100], &SessionConfig::default());
    pair.line(0, Client).loss = 0.2;
    // The client loses data again and again, so its engine holds retransmissions without room.
    pair.send(Client, message(Priority::P2, 1_000_000));
    pair.send(Server, message(Priority::P2, 3_000_000));
    pair.pass(Duration::from_secs(5));
    assert!(pair.stats(Client).overdrawn > 0);
    // Longest time that two full packets waited at the client until anything left.
    let mut times: Vec<_> = pair.passed.iter().filter(|passed| passed.from == Client).collect();
    times.sort_by_key(|passed| passed.left);
    let mut arrivals: Vec<_> = pair
        .passed
        .iter()
        .filter(|passed| passed.from == Server && passed.len > 1000)
        .filter_map(|passed| passed.arrives.filter(|at| *at <= pair.now))
        .collect();
    arrivals.sort();
    let waits = arrivals.windows(2).filter_map(|two| {
        let left = times.iter().map(|passed| passed.left).find(|left| *left >= two[1])?;
        Some(left.since(two[1]))
    });
    let longest = waits.max().unwrap();
    // RFC 9000 §13.2.1: at most max_ack_delay, which is 25 ms unless negotiated.
    assert!(longest <= Duration::from_millis(25), "{longest:?}");
}

/// A client that refuses the server's certificate closes in one datagram for each packet number
/// space. Both ends learn of it within a round trip.
#[test]
fn a_refused_certificate_ends_within_a_round_trip() {
    let stranger = Identity::self_signed("stranger").unwrap();
    let trust = Trust::Certificate(stranger.certificate().unwrap().clone());
    let config = SessionConfig::default();
    let mut pair = Pair::begin(&[40], &config, &config, Some(trust));
    pair.pass(Duration::from_secs(10));
    for (who, by) in [(Client, 40), (Server, 60)] {
        let closed = |(_, event): &&(Time, Event)| matches!(event, Event::Closed { .. });
        let (at, _) = pair.timed_events(who).find(closed).unwrap();
        assert_eq!(*at, Time::ZERO + Duration::from_millis(by), "{who:?}");
    }
    let sent = pair.passed.iter().filter(|passed| passed.from == Client && passed.left > Time::ZERO);
    // RFC 9000 §10.2.3: the close leaves in Initial and Handshake packets.
    assert!((1..=4).contains(&sent.count()), "{:?}", pair.passed);
}

#[test]
fn a_full_socket_stops_no_lane_but_its_own() {
    let mut pair = pair(&[20, 50], &SessionConfig::default());
    let acked = |pair: &mut Pair| pair.session(Client).lanes().map(|(_, _, stats)| stats.acked).collect();
    let before: Vec<Bytes> = acked(&mut pair);
    pair.set_room(0, 0);
    let id = pair.send(Client, message(Priority::P2, 300_000));
    delivery(&mut pair, id);
    assert!(pair.received(Server)[0].body == body(300_000));
    let after = acked(&mut pair);
    assert_eq!(after[0], before[0]);
    assert!(after[1] > Bytes::new(300_000), "{after:?}");
    // With room again, the lane of the shorter round trip carries the next one.
    pair.set_room(0, usize::MAX);
    let id = pair.send(Client, message(Priority::P2, 5000));
    let sent = pair.now;
    assert!(delivery(&mut pair, id).since(sent) <= Duration::from_millis(25));
}

#[test]
fn urgent_data_leaves_first_once_a_full_socket_has_room() {
    let mut pair = pair(&[20], &SessionConfig::default());
    pair.set_room(0, 4);
    let bulk = pair.send(Client, message(Priority::P4, 100_000));
    pair.pass(Duration::from_millis(5));
    let urgent = pair.send(Client, message(Priority::P0, 1000));
    pair.pass(Duration::from_millis(5));
    let sent = pair.now;
    pair.set_room(0, usize::MAX);
    assert!(delivery(&mut pair, urgent).since(sent) <= Duration::from_millis(20));
    assert_eq!(pair.received(Server).first().map(|first| first.priority), Some(Priority::P0));
    delivery(&mut pair, bulk);
}

/// RFC 9002 §7.8: a window that is not fully used does not grow.
#[test]
fn no_window_grows_while_the_socket_is_the_limit() {
    let window = |pair: &mut Pair| pair.session(Client).lanes().next().unwrap().0.cwnd;
    let mut pair = pair(&[100], &SessionConfig::default());
    pair.send(Client, message(Priority::P2, 2_000_000));
    pair.pass(Duration::from_millis(450));
    let before = window(&mut pair);
    // A round trip has room for 20 datagrams, and the window for more than 100.
    for _ in 0..100 {
        pair.set_room(0, 1);
        pair.pass(Duration::from_millis(5));
    }
    let grown = window(&mut pair);
    assert!(grown.get() <= before.get() * 11 / 10, "{before} to {grown}");
    pair.set_room(0, usize::MAX);
    pair.send(Client, message(Priority::P2, 4_000_000));
    pair.pass(Duration::from_millis(400));
    assert!(window(&mut pair) > grown);
}

#[test]
fn a_socket_with_room_again_wakes_the_sessions_that_wait() {
    let mut pair = pair(&[20], &SessionConfig { keep_alive: None, ..SessionConfig::default() });
    // Reading would wake them as well.
    pair.stop_reading(Client);
    pair.set_room(0, 0);
    pair.send(Client, message(Priority::P2, 1000));
    pair.pass(Duration::from_millis(5));
    assert_eq!(pair.passed.len(), 0);
    pair.set_room(0, usize::MAX);
    pair.pass(Duration::ZERO);
    assert_eq!(pair.passed.len(), 1);
}

/// Pair whose client has delivered background data in coupled mode. Flow control bounds the rate, which the
/// governor sees.
fn with_a_steady_cap() -> Pair {
    let server = SessionConfig { stream_window: Bytes::new(60_000), ..SessionConfig::default() };
    let initial_window = Some(Bytes::new(1_000_000));
    let client = SessionConfig { coupled: Coupling::On, initial_window, ..SessionConfig::default() };
    let mut pair = Pair::new(&[40], &client, &server);
    let bulk = pair.send(Client, message(Priority::P3, 2_000_000));
    delivery(&mut pair, bulk);
    pair.pass(Duration::from_millis(100));
    pair
}

#[test]
fn no_window_grows_while_the_cap_is_the_limit() {
    let mut pair = with_a_steady_cap();
    let window = |pair: &mut Pair| pair.session(Client).lanes().next().unwrap().0.cwnd;
    let before = window(&mut pair);
    let all: Vec<_> = (0..20).map(|_| pair.send(Client, message(Priority::P0, 50_000))).collect();
    pair.run_until(|pair| all.iter().all(|id| pair.delivered(Client, *id).is_some()));
    let after = window(&mut pair);
    assert!(after.get() <= before.get() * 21 / 20, "{before} to {after}");
}

#[test]
fn lost_data_takes_the_lane_that_the_scheduler_names() {
    let (initial_window, pacing) = (Some(Bytes::new(20_000)), Pacing::Off);
    let mut pair = pair(&[200, 20], &SessionConfig { initial_window, pacing, ..SessionConfig::default() });
    // The quick lane is full, so part of the message leaves on the slow one, and is lost.
    pair.line(0, Client).loss = 1.0;
    let first = pair.send(Client, message(Priority::P2, 30_000));
    pair.pass(Duration::ZERO);
    pair.line(0, Client).loss = 0.0;
    // What follows on the slow lane shows the loss, a round trip later.
    pair.send(Client, message(Priority::P2, 30_000));
    let sent = pair.now;
    delivery(&mut pair, first);
    let arrived = pair.received(Server).iter().map(|message| message.at.since(sent));
    // The quick lane has room again, and takes half of its round trip of 20 ms.
    assert_eq!(arrived.max(), Some(Duration::from_millis(210)));
}

#[test]
fn a_stream_whose_copy_ended_early_is_reset() {
    let (path_scheduler, streams) = (PathScheduler::Selective(Priority::P1), StreamUse::Reuse);
    let stream_window = Bytes::new(60_000);
    let config = SessionConfig { path_scheduler, streams, stream_window, ..SessionConfig::default() };
    let mut pair = pair(&[20, 20], &config);
    let first = pair.send(Client, message(Priority::P1, 300_000));
    pair.pass(Duration::from_millis(5));
    pair.kill(1);
    delivery(&mut pair, first);
    pair.revive(1);
    for _ in 0..20 {
        let id = pair.send(Client, message(Priority::P1, 10_000));
        delivery(&mut pair, id);
        pair.pass(Duration::from_millis(100));
    }
    let received: Vec<_> = pair.received(Server).iter().map(|message| message.body.clone()).collect();
    assert!(received[0] == body(300_000) && received[1..].iter().all(|again| *again == body(10_000)));
    // One stream for each lane is used again and again. The third was that of the copy.
    assert_eq!((pair.stats(Client).streams, pair.session(Server).inbox.load().streams), (3, 2));
}

#[test]
fn a_listener_without_room_refuses_before_the_handshake() {
    let config = SessionConfig::default();
    let mut pair = Pair::begin(&[40], &config, &config, None);
    pair.endpoint(Server).set_room(0);
    pair.pass(Duration::from_secs(1));
    let closed = |(_, event): &&(Time, Event)| matches!(event, Event::Closed { .. });
    let (at, _) = pair.timed_events(Client).find(closed).unwrap();
    assert_eq!(*at, Time::ZERO + Duration::from_millis(40));
    assert_eq!(pair.timed_events(Server).count(), 0);
    assert_eq!(pair.endpoint(Server).stats().refused, 1);
}

#[test]
fn the_reason_of_an_end_is_known_before_its_event() {
    let mut pair = pair(&[20], &SessionConfig::default());
    let now = pair.now;
    assert_eq!(pair.session(Client).closed(), None);
    pair.session(Server).close(now, ErrorCode::NoError, "finished");
    pair.pass(Duration::from_millis(15));
    let by_peer = Closed::ByPeer(CloseReason::default());
    assert_eq!(pair.session(Client).closed(), Some(&by_peer));
    let closed = |event: &Event| matches!(event, Event::Closed { code: Some(0), .. });
    assert!(pair.events(Client).any(closed));
}

/// RFC 9000 §10.3: an endpoint that has lost its state resets the connections of its peers.
#[test]
fn a_server_that_restarts_with_its_key_ends_old_sessions() {
    let ended = |pair: &Pair| {
        let closed = |(_, event): &&(Time, Event)| matches!(event, Event::Closed { .. });
        pair.timed_events(Client).find(closed).map(|(at, _)| *at)
    };
    for (key, resets) in [(Some(ResetKey([7; 64])), true), (None, false)] {
        let mut pair = pair(&[40], &SessionConfig::default());
        pair.restart_server(key);
        let sent = pair.now;
        pair.send(Client, message(Priority::P2, 1000));
        pair.pass(Duration::from_secs(5));
        assert_eq!(ended(&pair), resets.then_some(sent + Duration::from_millis(40)));
    }
}

/// The engine closes on one path only. That must not be one that has stopped answering.
#[test]
fn an_end_leaves_on_a_lane_that_answers() {
    let config = SessionConfig { path_scheduler: PathScheduler::RoundRobin, ..SessionConfig::default() };
    for (by, to) in [(Client, Server), (Server, Client)] {
        for dead in 0..2 {
            let mut pair = pair(&[20, 20], &config);
            pair.send(by, message(Priority::P2, 4_000_000));
            pair.pass(Duration::from_millis(100));
            pair.kill(dead);
            // More than a round trip, and less than the time after which the lane is stalled.
            pair.pass(Duration::from_millis(45));
            let stalled = |event: &Event| matches!(event, Event::LaneStalled(_));
            assert!(!pair.events(by).any(stalled));
            let now = pair.now;
            pair.session(by).close(now, ErrorCode::NoError, "finished");
            pair.pass(Duration::from_secs(60));
            let closed = |(_, event): &&(Time, Event)| matches!(event, Event::Closed { .. });
            let (at, event) = pair.timed_events(to).find(closed).unwrap();
            assert!(at.since(now) <= Duration::from_millis(10), "by {by:?}, lane {dead}: {event:?}");
        }
    }
}

/// Packets of all sizes arrive whole, and on the loopback interface the size is known at once.
#[test]
fn large_packets_arrive_whole_despite_losses() {
    for (initial_mtu, loss) in [(1200, 0.05), (1472, 0.05), (4096, 0.05), (4096, 0.3)] {
        let config = SessionConfig { initial_mtu, ..SessionConfig::default() };
        let mut pair = pair(&[5, 2], &config);
        for lane in 0..2 {
            pair.line(lane, Client).loss = loss;
        }
        let all: Vec<_> = (0..20).map(|_| pair.send(Client, message(Priority::P4, 1 << 20))).collect();
        for id in all {
            delivery(&mut pair, id);
        }
        pair.pass(Duration::from_secs(1));
        let received = pair.received(Server);
        assert_eq!(received.len(), 20, "{initial_mtu}");
        assert!(received.iter().all(|message| message.body == body(1 << 20)), "{initial_mtu}");
    }
}

/// An end that follows its peer announces a backup, too. Its announcement may arrive when the peer has
/// already returned the lane to service: it is no wish, and must not be followed in turn.
#[test]
fn a_lane_returns_to_service_after_a_silence_of_any_length() {
    let config = SessionConfig { path_scheduler: PathScheduler::RoundRobin, ..SessionConfig::default() };
    let mut stalls = 0;
    for silence in (100..700).step_by(20) {
        let mut pair = pair(&[80, 80], &config);
        let send_for = |pair: &mut Pair, millis: u64| {
            for _ in 0..millis / 10 {
                pair.send(Client, message(Priority::P2, 3000));
                pair.pass(Duration::from_millis(10));
            }
        };
        send_for(&mut pair, 500);
        pair.line(1, Client).loss = 1.0;
        send_for(&mut pair, silence);
        pair.line(1, Client).loss = 0.0;
        send_for(&mut pair, 6000);
        stalls += pair.events(Client).filter(|event| matches!(event, Event::LaneStalled(_))).count();
        for who in [Client, Server] {
            let backups = pair.events(who).filter(|event| matches!(event, Event::LaneBackup { .. })).count();
            assert!(backups <= 4, "{silence} ms: {who:?} hears of {backups} changes");
            let views: Vec<_> =
                pair.session(who).lanes().map(|(view, state, _)| (view.backup, state)).collect();
            assert_eq!(views, [(false, LaneState::Up); 2], "{silence} ms: {who:?}");
        }
    }
    assert!(stalls >= 10, "{stalls}");
}

/// Its status may arrive before the lane is validated.
#[test]
fn a_lane_requested_as_a_backup_is_one_for_both_ends() {
    for round_trip in [10, 20, 40] {
        let config = SessionConfig::default();
        let mut pair = Pair::begin(&[20, round_trip], &config, &config, None);
        pair.run_until(|pair| pair.session(Client).is_open());
        let request = LaneRequest { backup: true, ..LaneRequest::new(SocketId(1), address(Server, 1)) };
        pair.session(Client).add_lane(Time::ZERO, request).unwrap();
        pair.run_until(|pair| pair.events(Server).any(|event| matches!(event, Event::LaneUp(_))));
        pair.pass(Duration::from_millis(200));
        for who in [Client, Server] {
            let id = pair.send(who, message(Priority::P2, 300_000));
            pair.run_until(|pair| pair.delivered(who, id).is_some());
            let lanes: Vec<_> = pair.session(who).lanes().collect();
            let backups: Vec<bool> = lanes.iter().map(|(view, ..)| view.backup).collect();
            assert_eq!(backups, [false, true], "{who:?}, {round_trip} ms");
            let packets: Vec<u64> = lanes.iter().map(|(.., stats)| stats.packets).collect();
            assert!(packets[0] > 200 && packets[1] < 20, "{who:?}, {round_trip} ms: {packets:?}");
        }
    }
}

#[test]
fn a_backup_that_the_peer_wants_is_followed_once_it_is_no_echo() {
    let mut pair = pair(&[80, 80], &SessionConfig::default());
    let spare = |pair: &mut Pair, who, backup| {
        let now = pair.now;
        let lane = pair.session(who).lanes().nth(1).unwrap().0.id;
        pair.session(who).set_backup(now, lane, backup).unwrap();
        pair.pass(Duration::from_millis(200));
    };
    let is_backup = |pair: &mut Pair| pair.session(Client).lanes().nth(1).unwrap().0.backup;
    for who in [Client, Server] {
        spare(&mut pair, who, true);
    }
    spare(&mut pair, Client, false);
    assert!(!is_backup(&mut pair), "it may be an echo of the client's own");
    pair.pass(Duration::from_millis(150));
    assert!(is_backup(&mut pair), "the server still wants it");
    spare(&mut pair, Server, false);
    assert!(!is_backup(&mut pair));
}

/// A peer sends no acknowledgements by a backup. Those of a backup's packets return by another lane too, and it
/// is that lane which is silent.
#[test]
fn a_backup_is_not_blamed_for_the_silence_of_another_lane() {
    let config = SessionConfig { path_scheduler: PathScheduler::RoundRobin, ..SessionConfig::default() };
    let mut pair = pair(&[40, 40], &config);
    let sent = [0; 2].map(|_| pair.send(Client, message(Priority::P2, 1000)));
    pair.pass(Duration::ZERO);
    let now = pair.now;
    assert!(pair.session(Client).lanes().all(|(view, ..)| !view.in_flight.is_zero()));
    // The server learns of it before it acknowledges the only packet of the first lane.
    pair.session(Client).set_backup(now, LaneId::FIRST, true).unwrap();
    pair.line(1, Server).loss = 1.0;
    for id in sent {
        delivery(&mut pair, id);
    }
    let stalled = pair.events(Client).filter_map(|event| match event {
        Event::LaneStalled(lane) => Some(lane.index()),
        _ => None,
    });
    assert_eq!(stalled.collect::<Vec<_>>(), [1]);
}

/// Stalls and recoveries of a client's lanes, in their order.
fn changes(pair: &Pair) -> Vec<(usize, bool)> {
    let change = |event: &Event| match event {
        Event::LaneStalled(lane) => Some((lane.index(), false)),
        Event::LaneRecovered(lane) => Some((lane.index(), true)),
        _ => None,
    };
    pair.events(Client).filter_map(change).collect()
}

#[test]
fn the_silence_of_all_lanes_is_reported_once_and_so_is_its_end() {
    for lanes in [&[40][..], &[40, 60]] {
        let mut pair = pair(lanes, &SessionConfig::default());
        let send_for = |pair: &mut Pair, millis: u64| {
            for _ in 0..millis / 100 {
                pair.send(Client, message(Priority::P2, 3000));
                pair.pass(Duration::from_millis(100));
            }
        };
        send_for(&mut pair, 500);
        let set_loss = |pair: &mut Pair, loss| {
            for lane in 0..lanes.len() {
                pair.line(lane, Client).loss = loss;
                pair.line(lane, Server).loss = loss;
            }
        };
        set_loss(&mut pair, 1.0);
        send_for(&mut pair, 5000);
        let down: Vec<_> = (0..lanes.len()).map(|lane| (lane, false)).collect();
        let mut seen = changes(&pair);
        seen.sort_unstable();
        assert_eq!(seen, down);
        if lanes.len() == 1 {
            assert!(pair.session(Client).lanes().all(|(_, state, _)| state == LaneState::Stalled));
        }
        set_loss(&mut pair, 0.0);
        send_for(&mut pair, 20_000);
        let mut seen = changes(&pair);
        seen.sort_unstable();
        let both = down.iter().flat_map(|&(lane, _)| [(lane, false), (lane, true)]);
        assert_eq!(seen, both.collect::<Vec<_>>());
        assert!(pair.session(Client).lanes().all(|(_, state, _)| state == LaneState::Up));
    }
}

/// A silent lane may be the one that works: the acknowledgements of its packets return by the other, which is
/// dead. Each end judges by what it sends itself, so both may doubt, and close, different lanes.
#[test]
fn no_end_closes_the_lane_that_works() {
    let (mut cases, mut lost) = (0, Vec::new());
    let directions = [&[Client][..], &[Server], &[Client, Server]];
    let schedulers = [PathScheduler::RoundRobin, SessionConfig::default().path_scheduler];
    for (round_trips, dead, reports) in
        [([10, 2], 0, false), ([80, 5], 0, false), ([5, 80], 1, true), ([10, 2], 0, true)]
    {
        for (stopped, senders) in directions.iter().flat_map(|it| directions.iter().map(move |by| (it, by))) {
            for path_scheduler in schedulers {
                let config = SessionConfig {
                    path_scheduler,
                    reopen: Some(Retry::default()),
                    ..SessionConfig::default()
                };
                let mut pair = pair(&round_trips, &config);
                if reports {
                    pair.report_at_once(Server);
                }
                let mut sent = Vec::new();
                for round in 0..40 {
                    if round == 10 {
                        pair.pass(Duration::from_millis(50));
                        stopped.iter().for_each(|who| pair.line(dead, *who).loss = 1.0);
                    }
                    for who in *senders {
                        sent.push((*who, pair.send(*who, message(Priority::P2, 3000).with_receipt())));
                    }
                    pair.pass(Duration::from_millis(20));
                }
                pair.pass(Duration::from_secs(5));
                cases += 1;
                if sent.iter().any(|(who, id)| pair.delivered(*who, *id).is_none()) {
                    let rule = (path_scheduler == PathScheduler::RoundRobin).then_some("round robin");
                    lost.push((round_trips, *stopped, *senders, reports, rule));
                }
            }
        }
    }
    assert!(lost.is_empty(), "{} of {cases}: {lost:?}", lost.len());
}

/// RFC 9000 §9 leaves paths to the client. Should both ends close another lane at the same moment all the
/// same, the client opens one again before the server gives up.
#[test]
fn a_session_outlives_lanes_that_both_ends_close_at_once() {
    // Lanes that fail often are reopened late, but not the last.
    let retry = Retry { first: Duration::from_secs(20), longest: Duration::from_secs(60) };
    let config = SessionConfig { reopen: Some(retry), ..SessionConfig::default() };
    for (by_client, round_trips) in [(0, [20, 30]), (1, [20, 30]), (0, [100, 10]), (1, [100, 10])] {
        let mut pair = pair(&round_trips, &config);
        let before = pair.send(Client, message(Priority::P2, 100_000));
        pair.pass(Duration::from_millis(5));
        let now = pair.now;
        let lane = |index| LaneId::new(index).unwrap();
        assert!(pair.session(Client).close_silent(now, lane(by_client)));
        assert!(pair.session(Server).close_silent(now, lane(1 - by_client)));
        for id in [before, pair.send(Client, message(Priority::P0, 1000))] {
            delivery(&mut pair, id);
        }
        let back = pair.send(Server, message(Priority::P2, 100_000));
        pair.run_until(|pair| pair.delivered(Server, back).is_some());
        assert!(pair.now.since(now) < Duration::from_secs(5), "{:?}", pair.now.since(now));
        for who in [Client, Server] {
            assert!(!pair.events(who).any(|event| matches!(event, Event::Closed { .. })), "{who:?}");
        }
    }
}

/// Nothing overtakes a batch. At this rate, a packet takes far longer than a batch may; nothing is more
/// urgent than P0.
#[test]
fn only_the_most_urgent_level_leaves_in_batches_at_a_low_rate() {
    for level in Priority::ALL {
        let mut pair = pair(&[100], &SessionConfig::default());
        pair.send(Client, message(level, 100_000));
        let (now, most) = (pair.now, NonZeroUsize::new(10).unwrap());
        let (mut buf, mut packets) = (Vec::new(), Vec::new());
        while let Some(transmit) = pair.endpoint(Client).poll_transmit(now, most, &mut buf) {
            packets.push(transmit.len.div_ceil(transmit.segment.unwrap_or(transmit.len)));
            buf.clear();
        }
        assert_eq!(packets.iter().any(|packets| *packets > 1), level == Priority::P0, "{level}: {packets:?}");
    }
}

/// Its controller learns that its window is too small, although the data leaves at once.
#[test]
fn a_full_high_lane_grows_while_a_low_one_takes_its_data() {
    // A controller that lets its window grow only if that is the limit, and a low lane with room.
    let congestion = Congestion::LowPriority(LcmConfig::marcato());
    let low_lanes = Some(LowLanes { test: None, ..LowLanes::default() });
    let initial_window = Some(Bytes::new(1_000_000));
    let config = SessionConfig {
        congestion,
        low_lanes,
        initial_window,
        pacing: Pacing::Off,
        ..SessionConfig::default()
    }
    .layered();
    let mut pair = Pair::begin(&[40, 40], &config, &config, None);
    pair.run_until(|pair| pair.session(Client).is_open());
    let low = LaneRequest::new(SocketId(1), address(Server, 1));
    let low = LaneRequest { layer: Layer::Low, congestion: Some(Congestion::Cubic), ..low };
    pair.session(Client).add_lane(Time::ZERO, low).unwrap();
    pair.run_until(|pair| pair.events(Server).any(|event| matches!(event, Event::LaneUp(_))));
    pair.pass(Duration::from_millis(200));
    let cwnd = |pair: &mut Pair| pair.session(Client).lanes().next().unwrap().0.cwnd;
    let before = cwnd(&mut pair);
    for _ in 0..100 {
        pair.send(Client, message(Priority::P4, 200_000));
        pair.pass(Duration::from_millis(100));
    }
    assert!(
        before < Bytes::new(200_000) && cwnd(&mut pair) >= Bytes::new(200_000),
        "{before}, {}",
        cwnd(&mut pair)
    );
}

/// A batch is one grant: at once, a level gets no more than it may owe.
#[test]
fn a_batch_is_no_longer_than_its_level_may_owe() {
    let longest = [Priority::P3, Priority::P4].map(|level| {
        // At this rate, the data of a millisecond is longer than any batch.
        let initial_window = Some(Bytes::new(1_000_000));
        let mut pair = pair(&[1], &SessionConfig { initial_window, ..SessionConfig::default() });
        pair.send(Client, message(level, 300_000));
        let (now, most) = (pair.now, NonZeroUsize::new(64).unwrap());
        let (mut buf, mut longest) = (Vec::new(), 0);
        while let Some(transmit) = pair.endpoint(Client).poll_transmit(now, most, &mut buf) {
            longest = longest.max(transmit.len);
            buf.clear();
        }
        longest
    });
    // P3 may owe 6 kB. P4 owes nobody.
    assert!((3000..=6000).contains(&longest[0]) && longest[1] > 6000, "{longest:?}");
}

/// The lane that is left has a small window, and much is to be sent again on it.
#[test]
fn urgent_data_does_not_wait_for_data_that_is_sent_again() {
    let config = SessionConfig { path_scheduler: PathScheduler::RoundRobin, ..SessionConfig::default() };
    let mut pair = pair(&[40, 40], &config);
    pair.line(0, Client).loss = 0.1;
    pair.send(Client, message(Priority::P4, 20_000_000));
    pair.pass(Duration::from_millis(250));
    pair.line(0, Client).loss = 0.0;
    pair.kill(1);
    pair.run_until(|pair| pair.events(Client).any(|event| matches!(event, Event::LaneStalled(_))));
    let (sent, urgent) = (pair.now, pair.send(Client, message(Priority::P1, 1000)));
    // A round trip until there is room, and another one.
    let took = delivery(&mut pair, urgent).since(sent);
    assert!(took <= Duration::from_millis(100), "{took:?}");
    assert!(pair.session(Client).repairs.waits(Priority::P4));
}

/// Messages of which a report is awaited are bounded. However one ends, its place is free again.
#[test]
fn places_of_reports_are_free_again_after_every_end() {
    let config = SessionConfig { max_unfinished: 1, ..SessionConfig::default() };
    let mut pair = pair(&[20], &config);
    pair.report_at_once(Server);
    // Of this level nothing leaves, so its messages expire.
    pair.session(Server).hold(Priority::P4, true);
    pair.pass(Duration::from_millis(100));
    for round in 0..3 {
        // A part of it has left when it is cancelled.
        let cancelled = pair.send(Client, message(Priority::P2, 3_000_000).with_receipt());
        pair.pass(Duration::from_millis(15));
        let now = pair.now;
        pair.session(Client).cancel(now, cancelled).unwrap();

        let brief = message(Priority::P4, 1000).with_receipt().with_lifetime(Duration::from_millis(15));
        pair.send(Client, brief);
        pair.pass(Duration::from_millis(30));

        // The peer stops reading it.
        let declined = pair.send(Client, message(Priority::P2, 3_000_000).with_receipt());
        pair.pass(Duration::from_millis(15));
        let outbox = &pair.session(Client).outbox;
        let carrier = outbox.find(declined).and_then(|key| outbox.get(key)).unwrap().carriers[0].stream;
        pair.session(Server).conn.recv_stream(carrier).stop(VarInt::from_u32(7)).unwrap();
        pair.run_until(|pair| pair.events(Client).any(|event| *event == Event::Declined(declined)));

        let taken = pair.send(Client, message(Priority::P2, 1000).with_receipt());
        pair.run_until(|pair| reported(pair).contains(&(Some(taken), Fate::Taken)));
        assert_eq!(reported(&pair).len(), round + 1);
        delivery(&mut pair, taken);
    }
}

/// Otherwise short packets of new messages would take the room that a full packet of lost data waits for.
#[test]
fn new_data_waits_behind_lost_data_of_its_level() {
    let config = SessionConfig { initial_window: Some(Bytes::new(12_000)), ..SessionConfig::default() };
    let mut pair = pair(&[40], &config);
    let first = pair.send(Client, message(Priority::P2, 200_000));
    pair.line(0, Client).loss = 0.2;
    let mut seen = 0;
    while pair.delivered(Client, first).is_none() {
        for level in [Priority::P2, Priority::P3] {
            pair.send(Client, message(level, 100));
        }
        pair.pass(Duration::from_millis(1));
        let session = pair.session(Client);
        if session.send.is_held() && session.send.next_owed().is_some_and(|(level, _)| level == Priority::P2)
        {
            let offered = session.offered();
            let levels = Priority::ALL.map(|level| offered.contains(level));
            assert_eq!(levels, [true, true, false, false, false]);
            seen += 1;
        }
    }
    assert!(seen > 10, "lost data waited {seen} times");
}

/// The scheduler sees windows only, and a batch is fed at once.
#[test]
fn a_batch_of_urgent_data_ends_where_the_cap_does() {
    let mut pair = with_a_steady_cap();
    let state = pair.session(Client).coupling().next().unwrap().1;
    let cap = state.cap.filter(|_| state.mode == Mode::Steady).unwrap();
    // A window, and the packets of which one acknowledgement tells here: sixteen at most.
    assert!((Bytes::new(50_000)..Bytes::new(110_000)).contains(&cap), "{cap}");
    for _ in 0..10 {
        pair.send(Client, message(Priority::P0, 50_000));
    }
    let (now, most) = (pair.now, NonZeroUsize::new(64).unwrap());
    let (mut buf, mut longest) = (Vec::new(), 0);
    while let Some(transmit) = pair.endpoint(Client).poll_transmit(now, most, &mut buf) {
        longest = longest.max(transmit.len.div_ceil(transmit.segment.unwrap_or(transmit.len)));
        buf.clear();
    }
    let view = pair.session(Client).lanes().next().unwrap().0;
    assert!(longest > 5 && view.cwnd > cap * 4, "{longest} packets, {view:?}");
    let packet = Bytes::new(1500);
    assert!(view.in_flight > cap && view.in_flight <= cap + packet * 2, "{} of {cap}", view.in_flight);
}

/// Of a retransmission by the engine, the session knows no bytes. All that was lost before is sent again.
#[test]
fn data_that_was_lost_twice_is_repaired_by_another_lane() {
    let config = SessionConfig { path_scheduler: PathScheduler::RoundRobin, ..SessionConfig::default() };
    for cut in 0..12 {
        let mut pair = pair(&[40, 40], &config);
        for lane in 0..2 {
            pair.line(lane, Client).loss = 0.3;
        }
        let all: Vec<_> = (0..10).map(|_| pair.send(Client, message(Priority::P2, 20_000))).collect();
        pair.pass(Duration::from_millis(60 + 5 * cut));
        pair.kill(1);
        pair.line(0, Client).loss = 0.0;
        let dead = pair.now;
        pair.run_until(|pair| all.iter().all(|id| pair.delivered(Client, *id).is_some()));
        let took = pair.now.since(dead);
        let repairs: u64 = pair.session(Client).lanes().map(|(_, _, stats)| stats.repairs).sum();
        assert!(repairs > 0 && took < Duration::from_secs(1), "cut {cut}: {repairs} repairs, {took:?}");
    }
}

/// A repair may be lost as well, with a lane that dies soon after the first.
#[test]
fn lanes_that_die_one_after_the_other_lose_nothing() {
    // With little room, a repair waits for long in the midst of its stream.
    let initial_window = Some(Bytes::new(5000));
    let path_scheduler = PathScheduler::RoundRobin;
    let reopen = Some(Retry::default());
    let config = SessionConfig { path_scheduler, initial_window, reopen, ..SessionConfig::default() };
    for cut in 0..40 {
        let mut pair = pair(&[40, 40, 60], &config);
        let all: Vec<_> = (0..10).map(|_| pair.send(Client, message(Priority::P2, 30_000))).collect();
        pair.pass(Duration::from_millis(15));
        pair.kill(1);
        pair.pass(Duration::from_millis(80 + 3 * cut));
        pair.kill(0);
        let dead = pair.now;
        pair.run_until(|pair| all.iter().all(|id| pair.delivered(Client, *id).is_some()));
        assert!(pair.now.since(dead) < Duration::from_secs(2), "cut {cut}: {:?}", pair.now.since(dead));
        assert!(pair.received(Server).iter().all(|message| message.body == body(30_000)), "cut {cut}");
    }
}

/// Lost slivers would be sent again many to a packet, of which the peer's engine forgets some.
#[test]
fn a_full_packet_of_new_data_has_no_sliver_of_lost_data() {
    // P0 leaves although no window has room, and lost data stays in the engine meanwhile.
    let path_scheduler = PathScheduler::Selective(Priority::P0);
    let mut pair = pair(&[40], &SessionConfig { path_scheduler, ..SessionConfig::default() });
    pair.line(0, Client).loss = 0.1;
    pair.send(Client, message(Priority::P4, 3_000_000));
    let (mut buf, mut full) = (Vec::new(), 0);
    for _ in 0..1000 {
        pair.pass(Duration::from_millis(1));
        if !pair.session(Client).send.is_held() {
            continue;
        }
        pair.send(Client, message(Priority::P0, 20_000));
        loop {
            let (now, session) = (pair.now, pair.session(Client));
            let (held, stats, mtu) = (session.send.is_held(), session.stats(), session.mtu());
            let frames = session.engine_stats().frame_tx.stream;
            let Some(_) = pair.endpoint(Client).poll_transmit(now, NonZeroUsize::MIN, &mut buf) else {
                break;
            };
            pair.send_datagram(Client, 0, buf.as_slice().into());
            buf.clear();
            let session = pair.session(Client);
            let (new, held) = (session.stats().first - stats.first, held && session.send.is_held());
            if held && new + Bytes::new(100) > mtu {
                full += 1;
                assert_eq!(session.engine_stats().frame_tx.stream - frames, 1, "{new} of {mtu}");
            }
        }
    }
    assert!(full > 20, "{full} packets");
}

/// The engine reports no credit on a stream that is reset.
#[test]
fn a_level_goes_on_once_the_message_without_credit_is_cancelled() {
    let server = SessionConfig {
        stream_window: Bytes::new(16_384),
        inbox: InboxLimits { unread: Bytes::new(5000), ..InboxLimits::default() },
        ..SessionConfig::default()
    };
    let mut pair = Pair::new(&[20], &SessionConfig::default(), &server);
    pair.stop_reading(Server);
    let wide = pair.send(Client, message(Priority::P1, 120_000));
    let waiting = pair.send(Client, message(Priority::P1, 1000));
    pair.pass(Duration::from_millis(200));
    assert!(pair.stats(Client).flow_blocked > 0 && pair.delivered(Client, waiting).is_none());
    let now = pair.now;
    pair.session(Client).cancel(now, wide).unwrap();
    delivery(&mut pair, waiting);
}

#[test]
fn sessions_of_an_endpoint_take_turns() {
    let identity = Identity::self_signed("server").unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let config = SessionConfig::default();
    let mut pair = pair(&[20], &config);
    pair.endpoint(Server).listen(&identity, config.clone()).unwrap();
    pair.connect_again(&crate::crypto::client(&trust, vec![marcato_wire::ALPN.to_vec()]).unwrap(), &config);
    pair.run_until(|pair| pair.session(Client).is_open());
    pair.pass(Duration::from_secs(1));
    let (now, most) = (pair.now, NonZeroUsize::MIN);
    let client = pair.endpoint(Client);
    let sessions: Vec<_> = client.sessions().collect();
    assert_eq!(sessions.len(), 2);
    for id in &sessions {
        client.session(*id).unwrap().send(now, message(Priority::P2, 100_000)).unwrap();
    }
    let mut buf = Vec::new();
    for _ in 0..10 {
        assert!(client.poll_transmit(now, most, &mut buf).is_some());
    }
    let chunks: Vec<_> = sessions.iter().map(|id| client.peek(*id).unwrap().stats().chunks).collect();
    assert!(chunks.iter().all(|chunks| *chunks > 2), "{chunks:?}");
}

/// Its session is still draining, but no application will accept it.
#[test]
fn a_failed_handshake_frees_its_place_at_once() {
    let identity = Identity::self_signed("server").unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let config = SessionConfig::default();
    let mut pair = Pair::begin(&[40], &config, &config, None);
    pair.endpoint(Server).listen(&identity, config.clone()).unwrap();
    pair.endpoint(Server).set_room(1);
    // The client refuses the certificate, which is not the one that it trusts.
    pair.run_until(|pair| pair.endpoint(Server).stats().failed == 1);
    assert_eq!(pair.endpoint(Server).stats().sessions, 1);
    pair.connect_again(&crate::crypto::client(&trust, vec![marcato_wire::ALPN.to_vec()]).unwrap(), &config);
    pair.run_until(|pair| pair.session(Client).is_open());
    assert_eq!(pair.endpoint(Server).stats().refused, 0);
}

/// Anyone can make an endpoint answer, also faster than its socket takes the answers.
#[test]
fn answers_to_strangers_are_bounded() {
    let config = SessionConfig::default();
    let mut pair = pair(&[20], &config);
    let (now, to) = (pair.now, pair.session(Client).route(LaneId::FIRST).unwrap().1);
    pair.endpoint(Server).set_room(0);
    let identity = Identity::self_signed("server").unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let tls = crate::crypto::client(&trust, vec![marcato_wire::ALPN.to_vec()]).unwrap();
    for port in 2000..2300 {
        let client = pair.endpoint(Client);
        let tls = std::sync::Arc::clone(&tls);
        client.connect_with(now, SocketId(0), to, "server", tls, config.clone()).unwrap();
        let mut buf = Vec::new();
        client.poll_transmit(now, NonZeroUsize::MIN, &mut buf).unwrap();
        let from = SocketAddr::from(([10, 0, 0, 1], port));
        let server = pair.endpoint(Server);
        server.handle_datagram(now, SocketId(0), from, Ecn::NotEct, buf.as_slice().into());
    }
    let (server, mut buf) = (pair.endpoint(Server), Vec::new());
    let answers = std::iter::from_fn(|| server.poll_transmit(now, NonZeroUsize::MIN, &mut buf)).count();
    assert_eq!((server.stats().refused, answers), (300, 256));
}

/// With many losses, lanes stall and recover again and again. A repair may then be in the midst of a stream that is
/// reset.
#[test]
fn repairs_of_lanes_that_stall_and_recover_lose_nothing() {
    let config = SessionConfig { path_scheduler: PathScheduler::LowRtt, ..SessionConfig::default() };
    for (by_client, by_server) in [(0.17, 0.15), (0.2, 0.1), (0.15, 0.2), (0.25, 0.15)] {
        let mut pair = pair(&[20, 50], &config);
        for lane in 0..2 {
            pair.line(lane, Client).loss = by_client;
            pair.line(lane, Server).loss = by_server;
        }
        let mut all = Vec::new();
        for round in 0..60 {
            let of_client = [(Priority::P4, 40_000 + 977 * round), (Priority::P0, 1000 + 37 * round)];
            let of_client = of_client.into_iter().chain([(Priority::P2, 3000 + 91 * round)]);
            if round % 3 != 2 {
                all.extend(of_client.map(|(level, len)| (Client, pair.send(Client, message(level, len)))));
            }
            if round % 3 != 1 {
                all.push((Server, pair.send(Server, message(Priority::P4, 50_000))));
            }
            pair.pass(Duration::from_millis(7));
        }
        pair.run_until(|pair| all.iter().all(|(who, id)| pair.delivered(*who, *id).is_some()));
        let stalls = pair.events(Client).filter(|event| matches!(event, Event::LaneStalled(_))).count();
        assert!(stalls > 2, "{stalls} stalls");
        assert!(pair.received(Server).iter().all(|message| message.body == body(message.body.len())));
    }
}

/// Packets of two marks could overtake each other in a router, and would then look lost: RFC 7657 §5.1.
#[test]
fn a_lane_keeps_its_level_while_anything_is_in_flight() {
    let mut pair = pair(&[20, 50], &SessionConfig::default());
    let levels = |pair: &mut Pair, from| {
        let mut levels: Vec<_> = pair.passed.iter().filter(|passed| passed.from == from).collect();
        // Acknowledgements alone have the level of their lane too, which is none where no data has left.
        levels.retain(|passed| passed.len > 600);
        let mut levels: Vec<_> = levels.into_iter().map(|passed| passed.level).collect();
        levels.dedup();
        pair.passed.clear();
        levels
    };
    let bulk = pair.send(Client, message(Priority::P4, 2_000_000));
    pair.pass(Duration::from_millis(100));
    let urgent = pair.send(Client, message(Priority::P0, 3000));
    delivery(&mut pair, urgent);
    assert!(pair.delivered(Client, bulk).is_none(), "the bulk is in flight");
    delivery(&mut pair, bulk);
    assert_eq!(levels(&mut pair, Client), [Some(Priority::P4)]);
    for level in [Priority::P0, Priority::P3, Priority::P1] {
        pair.pass(Duration::from_secs(1));
        pair.passed.clear();
        let next = pair.send(Client, message(level, 3000));
        delivery(&mut pair, next);
        assert_eq!(levels(&mut pair, Client), [Some(level)]);
    }
    pair.deliver(Server, message(Priority::P2, 3000));
    assert_eq!(levels(&mut pair, Server), [Some(Priority::P2)]);
}
