//! Rules of the owner's interface: what a session accepts, and when the other end learns of it.

use std::num::NonZeroUsize;
use std::sync::Arc;

use marcato_sched::conductor::Removal;
use marcato_sched::lane::LaneId;
use marcato_units::{Bytes, Duration, Layer, Priority, Time};
use marcato_wire::{EndReason, ErrorCode, Fate, MessageNumber};

use super::pair::{Pair, Who, address, message};
use super::views::Views;
use super::{Closed, LaneError, SendError};
use crate::config::{Pacing, PathScheduler, SessionConfig, StreamUse};
use crate::controller::Congestion;
use crate::endpoint::SocketId;
use crate::event::{Event, LaneLoss, LowLaneChange};
use crate::lane::{LaneRequest, LaneState};
use crate::low::Retry;

use Who::{Client, Server};

fn lane(index: usize) -> LaneId {
    LaneId::new(u8::try_from(index).unwrap()).unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Pair with the same configuration at both ends.
fn pair(round_trips: &[u64], config: &SessionConfig) -> Pair {
    Pair::new(round_trips, config, config)
}

/// Returns the time of the first such event at one end.
fn time_of(pair: &Pair, who: Who, which: impl Fn(&Event) -> bool) -> Option<Time> {
    pair.timed_events(who).find(|(_, event)| which(event)).map(|(at, _)| *at)
}

/// Nothing waits for the next packet or timer: the client learns of it half a round trip later, to the nanosecond.
#[test]
fn every_act_of_the_owner_leaves_at_once() {
    type Act = (&'static str, fn(&mut Pair, Time), fn(&Event) -> bool);
    let acts: [Act; 12] = [
        (
            "a message",
            |pair, _| _ = pair.send(Server, message(Priority::P2, 100)),
            |event| *event == Event::Readable,
        ),
        (
            "an unreliable message",
            |pair, _| _ = pair.send(Server, message(Priority::P2, 100).unreliable()),
            |event| *event == Event::Datagram,
        ),
        (
            "a part of a long message",
            |pair, now| {
                let long = pair.session(Server).begin_long();
                pair.session(Server).send_part(now, long, message(Priority::P2, 100), false).unwrap();
            },
            |event| *event == Event::Readable,
        ),
        (
            "a report",
            |pair, _| pair.session(Server).report(MessageNumber(0), Fate::Taken),
            |event| matches!(event, Event::Reported { fate: Fate::Taken, .. }),
        ),
        (
            "the end of an exchange",
            |pair, _| pair.session(Server).end_exchange(5, EndReason::Unanswered),
            |event| *event == Event::ExchangeEnded { exchange: 5, reason: EndReason::Unanswered },
        ),
        ("the end of messages", |pair, _| pair.session(Server).finish(), |event| *event == Event::Finished),
        (
            "a backup",
            |pair, now| pair.session(Server).set_backup(now, lane(1), true).unwrap(),
            |event| *event == Event::LaneBackup { lane: lane(1), backup: true },
        ),
        (
            "the end of a lane",
            |pair, now| pair.session(Server).remove_lane(now, lane(1)).unwrap(),
            |event| {
                let reason = LaneLoss::ClosedByPeer;
                *event == Event::LaneDown { lane: Some(lane(1)), reason, reopens_at: None }
            },
        ),
        (
            "a cancellation",
            |pair, now| {
                let sent = pair.send(Server, message(Priority::P2, 3_000_000));
                pair.endpoint(Server).poll_transmit(now, NonZeroUsize::MIN, &mut Vec::new()).unwrap();
                pair.session(Server).cancel(now, sent).unwrap();
            },
            |event| matches!(event, Event::GivenUp { code, .. } if *code == Removal::Cancelled as u64),
        ),
        (
            "the cancellation of a long message",
            |pair, now| {
                let long = pair.session(Server).begin_long();
                pair.session(Server).send_part(now, long, message(Priority::P2, 3_000_000), false).unwrap();
                pair.endpoint(Server).poll_transmit(now, NonZeroUsize::MIN, &mut Vec::new()).unwrap();
                pair.session(Server).cancel_long(now, long);
            },
            |event| matches!(event, Event::GivenUp { code, .. } if *code == Removal::Cancelled as u64),
        ),
        (
            "the end of the session",
            |pair, now| pair.session(Server).close(now, ErrorCode::NoError, "finished"),
            |event| matches!(event, Event::Closed { code: Some(_), .. }),
        ),
        (
            "the end of the control stream",
            |pair, _| {
                pair.session(Server).report(MessageNumber(0), Fate::Taken);
                assert!(!pair.session(Server).finish_reports());
            },
            |event| matches!(event, Event::Reported { .. }),
        ),
    ];
    for (what, act, noticed) in acts {
        let config = SessionConfig { datagrams: Some(Bytes::kb(10)), ..SessionConfig::default() };
        let mut pair = pair(&[20, 20], &config);
        let now = pair.now;
        act(&mut pair, now);
        pair.pass(ms(100));
        assert_eq!(time_of(&pair, Client, noticed), Some(now + ms(10)), "{what}");
    }
}

#[test]
fn a_held_level_stops_half_a_round_trip_later() {
    let mut pair = pair(&[20], &SessionConfig::default());
    for held in [true, false] {
        pair.session(Server).hold(Priority::P4, held);
        for (wait, holds) in [(9, !held), (1, held)] {
            pair.pass(ms(wait));
            assert_eq!(!pair.session(Client).offered().contains(Priority::P4), holds, "{held} after {wait}");
        }
    }
}

/// P0 may exceed the limit by an eighth. What has left gives way to nothing.
#[test]
fn a_session_takes_as_many_messages_as_its_limit() {
    let config = SessionConfig { max_unfinished: 16, ..SessionConfig::default() };
    let mut pair = pair(&[20], &config);
    let now = pair.now;
    let offer = |pair: &mut Pair, level| pair.session(Client).send(now, message(level, 10));
    let busy = |priority| Err(SendError::Busy { priority });
    let queued: Vec<_> = (0..16).map(|_| offer(&mut pair, Priority::P3).unwrap()).collect();
    assert_eq!(offer(&mut pair, Priority::P4), busy(Priority::P4));
    assert_eq!(offer(&mut pair, Priority::P3), busy(Priority::P3));
    // Of the less urgent ones, the oldest gives way.
    offer(&mut pair, Priority::P1).unwrap();
    pair.pass(Duration::ZERO);
    let dropped = pair.events(Client).find_map(|event| match event {
        Event::Dropped { message, sent, reason } => Some((*message, *sent, *reason)),
        _ => None,
    });
    assert_eq!(dropped, Some((queued[0], Bytes::ZERO, Removal::Evicted)));
    assert_eq!(pair.session(Client).unfinished(), 16);
    // All have left.
    assert_eq!(pair.session(Client).queued().messages, 0);
    for level in [Priority::P4, Priority::P1] {
        assert_eq!(offer(&mut pair, level), busy(level));
    }
    for _ in 0..2 {
        offer(&mut pair, Priority::P0).unwrap();
    }
    assert_eq!(offer(&mut pair, Priority::P0), busy(Priority::P0));
    pair.pass(ms(100));
    assert_eq!(pair.session(Client).unfinished(), 0);
    assert!(offer(&mut pair, Priority::P4).is_ok());
}

#[test]
fn an_unreliable_message_fits_one_packet_or_is_refused() {
    let on = SessionConfig { datagrams: Some(Bytes::kb(100)), ..SessionConfig::default() };
    let mut accepting = pair(&[20], &on);
    let now = accepting.now;
    let most = accepting.session(Client).max_datagram().unwrap();
    assert!((1100..1500).contains(&most), "{most}");
    let offer =
        |pair: &mut Pair, len| pair.session(Client).send(now, message(Priority::P2, len).unreliable());
    assert_eq!(
        offer(&mut accepting, most + 1),
        Err(SendError::TooLongForDatagram { limit: Bytes::new(most as u64) })
    );
    let sent = offer(&mut accepting, most).unwrap();
    accepting.passed.clear();
    accepting.pass(ms(50));
    assert_eq!(time_of(&accepting, Client, |event| *event == Event::Sent(sent)), Some(now));
    assert_eq!(accepting.session(Server).read_datagram().map(|datagram| datagram.body.len()), Some(most));
    let stats = [Client, Server].map(|who| accepting.stats(who));
    assert_eq!((stats[0].datagrams_sent, stats[1].datagrams_received), (1, 1));
    // One packet, and the acknowledgement.
    assert_eq!(accepting.passed.iter().filter(|passed| passed.from == Client).count(), 1);
    let mut refusing = Pair::new(&[20], &on, &SessionConfig::default());
    assert_eq!(refusing.session(Client).max_datagram(), None);
    assert_eq!(offer(&mut refusing, 1), Err(SendError::NoDatagrams));
}

#[test]
fn lanes_that_cannot_be_are_errors() {
    let config = SessionConfig { max_lanes: 3, ..SessionConfig::default() };
    let mut pair = pair(&[20, 20, 20, 20], &SessionConfig { max_lanes: 4, ..config.clone() });
    let now = pair.now;
    let request = |index| LaneRequest::new(SocketId(index), address(Server, index));
    assert_eq!(pair.session(Server).add_lane(now, request(1)), Err(LaneError::NotAClient));
    let elsewhere = LaneRequest::new(SocketId(1), address(Client, 9));
    assert_eq!(pair.session(Client).add_lane(now, elsewhere), Err(LaneError::TooMany { limit: 4 }));
    for who in [Client, Server] {
        assert_eq!(pair.session(who).remove_lane(now, lane(7)), Err(LaneError::Unknown));
        assert_eq!(pair.session(who).set_backup(now, lane(7), true), Err(LaneError::Unknown));
    }
    // A lane that closes has a place no longer, and its address is free again.
    pair.session(Client).remove_lane(now, lane(3)).unwrap();
    assert_eq!(
        pair.session(Client).add_lane(now, request(1)),
        Err(LaneError::SameRemote { remote: request(1).remote })
    );
    pair.session(Client).add_lane(now, request(3)).unwrap();
    assert_eq!(pair.session(Client).add_lane(now, elsewhere), Err(LaneError::TooMany { limit: 4 }));
    pair.pass(ms(500));
    let up = |pair: &mut Pair| {
        pair.session(Client).lanes().filter(|(_, state, _)| *state == LaneState::Up).count()
    };
    assert_eq!(up(&mut pair), 4);
    for index in [3, 2, 1] {
        let (now, ids) = (pair.now, pair.session(Client).lanes().map(|it| it.0.id).collect::<Vec<_>>());
        pair.session(Client).remove_lane(now, ids[index]).unwrap();
        pair.pass(ms(500));
    }
    let now = pair.now;
    assert_eq!(pair.session(Client).remove_lane(now, lane(0)), Err(LaneError::Last));
    assert_eq!(up(&mut pair), 1);
}

/// A lane that the peer spares may be dead in the other direction. That is worse than one merely unwanted here.
#[test]
fn a_backup_of_this_end_is_preferred_to_one_of_the_peer() {
    for (follow_peer_backup, expected) in [(true, [true, false]), (false, [false, true])] {
        let config = SessionConfig { follow_peer_backup, ..SessionConfig::default() };
        let mut pair = pair(&[20, 20], &config);
        for (who, spared) in [(Server, 0), (Client, 1)] {
            let now = pair.now;
            pair.session(who).set_backup(now, lane(spared), true).unwrap();
            pair.pass(ms(300));
        }
        let backups: Vec<_> = pair.session(Client).lanes().map(|(view, ..)| view.backup).collect();
        assert_eq!(backups, expected, "follow_peer_backup = {follow_peer_backup}");
    }
}

/// The receiver learns of a message that missed its deadline, but not of one that was cancelled unsent.
#[test]
fn an_unsent_message_is_reported_only_if_it_expired() {
    let mut pair = pair(&[20], &SessionConfig::default());
    pair.session(Server).hold(Priority::P4, true);
    pair.pass(ms(50));
    let cancelled = pair.send(Client, message(Priority::P4, 1000));
    let brief = message(Priority::P4, 1000).with_lifetime(ms(30));
    let (sent_at, expired) = (pair.now, pair.send(Client, brief));
    let now = pair.now;
    pair.session(Client).cancel(now, cancelled).unwrap();
    pair.pass(ms(100));
    let dropped: Vec<_> = pair
        .events(Client)
        .filter_map(|event| match event {
            Event::Dropped { message, sent, reason } => Some((*message, *sent, *reason)),
            _ => None,
        })
        .collect();
    let unsent = |message, reason| (message, Bytes::ZERO, reason);
    assert_eq!(dropped, [unsent(cancelled, Removal::Cancelled), unsent(expired, Removal::Expired)]);
    let given_up: Vec<_> = pair
        .timed_events(Server)
        .filter_map(|(at, event)| match event {
            Event::GivenUp { code, .. } => Some((at.since(sent_at).as_nanos() / 1_000_000, *code)),
            _ => None,
        })
        .collect();
    assert_eq!(given_up, [(40, Removal::Expired as u64)]);
    assert_eq!((pair.session(Client).unfinished(), pair.stats(Client).unreported), (0, 0));
}

#[test]
fn a_session_ends_once_and_takes_nothing_afterwards() {
    let mut pair = pair(&[20, 20], &SessionConfig::default());
    pair.send(Client, message(Priority::P2, 1_000_000));
    pair.pass(ms(25));
    let now = pair.now;
    pair.session(Client).close(now, ErrorCode::LimitExceeded, "first");
    pair.session(Client).close(now, ErrorCode::Aborted, "second");
    pair.pass(ms(10));
    for who in [Client, Server] {
        let ends: Vec<_> = pair
            .events(who)
            .filter_map(|event| match event {
                Event::Closed { code, .. } => Some(*code),
                _ => None,
            })
            .collect();
        let code = (who == Server).then_some(ErrorCode::LimitExceeded.get());
        assert_eq!(ends, [code], "{who:?}");
        let last = pair.events(who).last().cloned();
        assert!(matches!(last, Some(Event::Closed { .. })), "{who:?}: {last:?}");
    }
    let now = pair.now;
    let refused = pair.session(Client).send(now, message(Priority::P0, 1));
    assert_eq!(refused, Err(SendError::Closed(Closed::Local)));
    assert!(matches!(pair.session(Server).send(now, message(Priority::P0, 1)), Err(SendError::Closed(_))));
    assert!(!pair.session(Client).is_open() && !pair.session(Server).is_open());
}

/// Lane 0 carries the acknowledgements of both, so it is the one that an end doubts first.
#[test]
fn a_silent_lane_stalls_and_is_given_up_at_exact_times() {
    let idle = ms(3000);
    for (dead, reopen) in [(0, false), (1, false), (0, true), (1, true)] {
        let retry = Retry { first: ms(400), longest: Duration::from_secs(60) };
        let config = SessionConfig {
            path_scheduler: PathScheduler::RoundRobin,
            lane_idle_timeout: Some(idle),
            reopen: reopen.then_some(retry),
            keep_alive: Some(ms(50)),
            ..SessionConfig::default()
        };
        let mut pair = pair(&[40, 80], &config);
        pair.kill(dead);
        let sent_at = pair.now;
        let all = [0; 2].map(|_| pair.send(Client, message(Priority::P2, 1000)));
        let srtt = pair.session(Client).lanes().nth(dead).unwrap().0.srtt;
        // 2.5 round trips, and at least one and 50 ms.
        let patience = (srtt * 5 / 2).max(srtt + ms(50));
        pair.pass(Duration::from_secs(4));
        for id in all {
            assert!(pair.delivered(Client, id).is_some_and(|at| at < sent_at + patience + ms(200)));
        }
        let what = format!("lane {dead}, reopened: {reopen}");
        let stalled = time_of(&pair, Client, |event| *event == Event::LaneStalled(lane(dead))).unwrap();
        assert_eq!(stalled.since(sent_at).as_nanos() / 1000, patience.as_nanos() / 1000, "{what}");
        assert_eq!(
            time_of(&pair, Client, |event| *event == Event::LaneStalled(lane(1 - dead))),
            None,
            "{what}"
        );
        let down = pair.timed_events(Client).find_map(|(at, event)| match event {
            Event::LaneDown { lane, reason, reopens_at } => Some((*at, *lane, reason.clone(), *reopens_at)),
            _ => None,
        });
        let gone = stalled + if reopen { patience } else { idle };
        // Up for longer than the first delay, a lane is reopened at once. That of the handshake has no such record.
        let reopens_at = reopen.then(|| if dead == 0 { gone + retry.first } else { gone });
        assert_eq!(down, Some((gone, Some(lane(dead)), LaneLoss::Silent, reopens_at)), "{what}");
    }
}

/// The counters of a lane are held against the datagrams that the lines have seen.
#[test]
fn the_counters_of_a_lane_are_those_of_its_line() {
    for loss in [0.0, 0.1] {
        let config = SessionConfig { mtu_discovery: false, keep_alive: None, ..SessionConfig::default() };
        let mut pair = pair(&[20], &config);
        let before = pair.session(Client).lanes().next().unwrap().2;
        let stats = pair.stats(Client);
        pair.line(0, Client).loss = loss;
        let id = pair.send(Client, message(Priority::P2, 400_000));
        pair.run_until(|pair| pair.delivered(Client, id).is_some());
        pair.pass(ms(500));
        let after = pair.session(Client).lanes().next().unwrap().2;
        let passed: Vec<_> = pair.passed.iter().filter(|passed| passed.from == Client).collect();
        // Those of 100 bytes at most only acknowledge.
        let data: Vec<_> = passed.iter().filter(|passed| passed.len > 100).collect();
        let (packets, bytes) = (after.packets - before.packets, (after.bytes - before.bytes).get());
        let sent: u64 = passed.iter().map(|passed| passed.len as u64).sum();
        assert!(
            packets >= data.len() as u64 && packets <= passed.len() as u64,
            "{packets} of {}",
            passed.len()
        );
        assert!(bytes <= sent && bytes * 100 >= sent * 98, "{bytes} of {sent} bytes");
        let lost = data.iter().filter(|passed| passed.arrives.is_none()).count() as u64;
        assert_eq!(lost > 0, loss > 0.0);
        let counted = after.lost - before.lost;
        // Packets before the last ones, whose loss only a probe shows, are all found.
        assert!(counted <= lost + lost / 10 && counted + 4 >= lost, "{counted} of {lost} losses");
        let acked = (after.acked - before.acked).get();
        assert!(
            acked <= bytes && acked * 100 >= bytes * if lost > 0 { 80 } else { 99 },
            "{acked} of {bytes}"
        );
        assert_eq!(after.repairs > before.repairs, lost > 0);
        assert!((after.reductions > before.reductions) == (lost > 0) && after.stalls == 0, "{after:?}");
        let now = pair.stats(Client);
        // A packet carries 1100 to 1200 bytes of the message. The stream ends after 128 KiB each.
        assert!((333..=370).contains(&(now.chunks - stats.chunks)), "{}", now.chunks - stats.chunks);
        assert_eq!((now.streams - stats.streams, now.copies, now.reinjected), (4, 0, 0));
        assert!(((now.first - stats.first).get() / 1000).abs_diff(420) < 20, "{}", now.first);
        let load = pair.session(Client).load();
        assert_eq!((load.in_flight, load.retransmissions, load.repairs, load.unfinished), (0, 0, 0, 0));
    }
}

/// docs/wire.md, "Frames": all frames of a message name the level of the first.
#[test]
fn a_message_has_the_level_at_which_it_began_to_leave() {
    for (began, expected) in [(false, Priority::P1), (true, Priority::P4)] {
        let mut pair = pair(&[20], &SessionConfig::default());
        let moved = pair.send(Client, message(Priority::P4, 100_000));
        if began {
            pair.pass(Duration::ZERO);
        }
        let other = pair.send(Client, message(Priority::P2, 300_000));
        pair.session(Client).reprioritise(moved, Priority::P1).unwrap();
        pair.run_until(|pair| {
            pair.delivered(Client, other).is_some() && pair.delivered(Client, moved).is_some()
        });
        let received: Vec<_> =
            pair.received(Server).iter().map(|message| (message.priority, message.body.len())).collect();
        // It overtakes the other in any case.
        assert_eq!(received, [(expected, 100_000), (Priority::P2, 300_000)], "began: {began}");
    }
}

#[test]
fn a_part_that_expires_takes_the_whole_message_with_it() {
    let mut pair = pair(&[20], &SessionConfig::default());
    let now = pair.now;
    let long = pair.session(Client).begin_long();
    let part = |len| message(Priority::P3, len);
    let first = pair.session(Client).send_part(now, long, part(30_000), false).unwrap();
    pair.pass(ms(100));
    assert!(pair.delivered(Client, first).is_some() && pair.received(Server).is_empty());
    pair.session(Server).hold(Priority::P3, true);
    pair.pass(ms(50));
    let now = pair.now;
    let brief = pair.session(Client).send_part(now, long, part(500).with_lifetime(ms(20)), false).unwrap();
    let last = pair.session(Client).send_part(now, long, part(500), true).unwrap();
    assert_eq!(pair.session(Client).waiting(long), Bytes::new(1000));
    pair.pass(ms(100));
    let dropped: Vec<_> = pair
        .events(Client)
        .filter_map(|event| match event {
            Event::Dropped { message, reason, .. } => Some((*message, *reason)),
            _ => None,
        })
        .collect();
    assert!(dropped.contains(&(brief, Removal::Expired)), "{dropped:?}");
    assert!(dropped.iter().any(|(message, _)| *message == last), "{dropped:?}");
    let given_up =
        |event: &&Event| matches!(event, Event::GivenUp { code, .. } if *code == Removal::Expired as u64);
    assert_eq!(pair.events(Server).filter(given_up).count(), 1);
    let now = pair.now;
    let more = pair.session(Client).send_part(now, long, part(1), true);
    assert_eq!((more, pair.session(Client).waiting(long)), (Err(SendError::Ended), Bytes::ZERO));
    pair.session(Server).hold(Priority::P3, false);
    let after = pair.send(Client, message(Priority::P3, 10));
    pair.run_until(|pair| pair.delivered(Client, after).is_some());
    assert_eq!((pair.session(Client).unfinished(), pair.received(Server).len()), (0, 1));
}

/// It will never read the reports, so nothing is gained by waiting.
#[test]
fn a_peer_that_stops_the_control_stream_has_all_reports() {
    let mut pair = pair(&[20], &SessionConfig::default());
    pair.session(Server).report(MessageNumber(0), Fate::Taken);
    pair.pass(ms(50));
    let control = pair.session(Server).control.unwrap();
    pair.session(Server).report(MessageNumber(1), Fate::Taken);
    pair.line(0, Server).loss = 1.0;
    assert!(!pair.session(Server).finish_reports());
    pair.pass(ms(1));
    pair.line(0, Server).loss = 0.0;
    pair.session(Client).conn.recv_stream(control).stop(noq_proto::VarInt::from_u32(1)).unwrap();
    pair.session(Client).send.request_look();
    let now = pair.now;
    pair.pass(ms(30));
    assert_eq!(time_of(&pair, Server, |event| *event == Event::ReportsArrived), Some(now + ms(10)));
    assert!(pair.session(Server).finish_reports());
}

/// RFC 9000 §13.2.1: an acknowledgement waits for 25 ms at most, also while the engine holds lost data for which no
/// window has room.
#[test]
fn one_packet_is_acknowledged_in_time_while_data_is_held() {
    let mut pair = pair(&[100], &SessionConfig::default());
    pair.line(0, Client).loss = 0.3;
    pair.send(Client, message(Priority::P2, 2_000_000));
    let mut seen = 0;
    for _ in 0..100 {
        pair.pass(ms(50));
        if !pair.session(Client).send.is_held() {
            continue;
        }
        let (sent_at, from) = (pair.now, pair.passed.len());
        pair.send(Server, message(Priority::P2, 600));
        pair.pass(ms(90));
        let arrival = pair.passed[from..].iter().find(|passed| passed.from == Server && passed.len > 600);
        let arrival = arrival.and_then(|passed| passed.arrives).unwrap();
        assert_eq!(arrival, sent_at + ms(50));
        let answers = pair.passed[from..].iter().filter(|passed| passed.from == Client);
        let waited =
            answers.map(|passed| passed.left).find(|left| *left >= arrival).map(|left| left.since(arrival));
        assert!(waited.is_some_and(|waited| waited <= ms(25)), "{waited:?} after {arrival:?}");
        seen += 1;
    }
    assert!(seen >= 5, "{seen}");
}

/// Acknowledgements leave on the first lane. Only a session that manages low lanes keeps those behind the high ones.
#[test]
fn without_layers_a_low_lane_is_one_like_any_other() {
    let config = SessionConfig::default();
    let mut pair = Pair::begin(&[20, 20], &config, &config, None);
    pair.run_until(|pair| pair.session(Client).is_open());
    let request = |index| LaneRequest::new(SocketId(index), address(Server, index));
    let (now, low) = (pair.now, LaneRequest { layer: Layer::Low, ..request(1) });
    pair.session(Client).add_lane(now, low).unwrap();
    pair.pass(ms(500));
    let now = pair.now;
    pair.session(Client).remove_lane(now, lane(0)).unwrap();
    pair.pass(Duration::from_secs(2));
    let now = pair.now;
    pair.session(Client).add_lane(now, request(0)).unwrap();
    pair.pass(Duration::from_secs(2));
    let downs = pair.events(Client).filter(|event| matches!(event, Event::LaneDown { .. })).count();
    assert_eq!(downs, 1);
    let lanes: Vec<_> = pair.session(Client).lanes().map(|(view, state, _)| (view.layer, state)).collect();
    assert!(
        lanes.contains(&(Layer::Low, LaneState::Up)) && lanes.contains(&(Layer::High, LaneState::Up)),
        "{lanes:?}"
    );
}

/// The least round trip belongs to the path, which is another one then.
#[test]
fn a_lane_that_has_moved_is_measured_anew() {
    let mut pair = pair(&[40], &SessionConfig::default());
    let exchange = |pair: &mut Pair| {
        pair.deliver(Server, message(Priority::P2, 20_000));
        pair.session(Server).lanes.iter().next().unwrap().rtt.least.unwrap()
    };
    let before = exchange(&mut pair);
    assert!(before < ms(45), "{before:?}");
    for who in [Client, Server] {
        pair.line(0, who).delay = ms(60);
    }
    assert_eq!(exchange(&mut pair), before);
    pair.client_moved_to = Some(([10, 0, 0, 1], 2000).into());
    pair.send(Client, message(Priority::P2, 1000));
    pair.run_until(|pair| pair.events(Server).any(|event| *event == Event::LaneMoved(lane(0))));
    pair.pass(Duration::from_secs(1));
    let after = exchange(&mut pair);
    // It is the least of smoothed ones, which were on their way from 40 ms to 120.
    assert!(after > ms(60), "{after:?}");
}

#[test]
fn a_lane_has_the_latest_and_the_least_of_its_round_trips() {
    let mut pair = pair(&[40], &SessionConfig::default());
    for (there, back, expected) in [(20, 20, 40), (20, 50, 40), (5, 5, 10)] {
        for (who, delay) in [(Client, there), (Server, back)] {
            pair.line(0, who).delay = ms(delay);
        }
        pair.deliver(Client, message(Priority::P2, 20_000));
        let (latest, least) = pair.session(Client).round_trips(lane(0)).unwrap();
        assert_eq!(least, ms(expected));
        // The last acknowledgement may wait for 25 ms (RFC 9000 §18.2).
        assert!((ms(there + back)..=ms(there + back + 25)).contains(&latest), "{latest:?}");
    }
}

/// The engine builds the controller of another address by itself, and has one kind for all lanes.
#[test]
fn a_lane_that_has_moved_keeps_its_congestion_control() {
    let config = SessionConfig::default();
    let mut pair = Pair::begin_with(&[40], &config, &config, None, Some(Congestion::Bbr3));
    // Of the controllers, BBR alone has a rate.
    let has_rate = |pair: &mut Pair| {
        pair.deliver(Server, message(Priority::P2, 20_000));
        pair.session(Server).lanes.iter().next().unwrap().gate.pacing_rate().is_some()
    };
    pair.run_until(|pair| pair.session(Client).is_open());
    pair.pass(Duration::from_secs(1));
    let gate = |pair: &mut Pair| Arc::as_ptr(&pair.session(Server).lanes.iter().next().unwrap().gate);
    let before = gate(&mut pair);
    assert!(has_rate(&mut pair));
    pair.client_moved_to = Some(([10, 7, 0, 1], 2000).into());
    pair.send(Client, message(Priority::P2, 1000));
    pair.run_until(|pair| pair.events(Server).any(|event| *event == Event::LaneMoved(lane(0))));
    assert_ne!(gate(&mut pair), before, "the engine kept the controller");
    assert!(has_rate(&mut pair));
}

/// Packets in which a message of this length leaves, one after the other.
fn packets(pair: &mut Pair, len: u64) -> usize {
    pair.passed.clear();
    let sent = pair.send(Client, message(Priority::P2, usize::try_from(len).unwrap()));
    pair.pass(Duration::ZERO);
    let packets = pair.passed.len();
    pair.run_until(|pair| pair.delivered(Client, sent).is_some());
    packets
}

/// Longest message that leaves in so many packets, of those up to a length that does not.
fn longest_in(pair: &mut Pair, count: usize, mut over: u64) -> u64 {
    let mut fits = 1;
    while over - fits > 1 {
        let middle = fits.midpoint(over);
        if packets(pair, middle) <= count {
            fits = middle;
        } else {
            over = middle;
        }
    }
    fits
}

#[test]
fn only_the_first_packet_of_a_message_has_room_for_a_header() {
    let initial_window = Some(Bytes::new(1_000_000));
    let config = SessionConfig { initial_window, pacing: Pacing::Off, ..SessionConfig::default() };
    let mut pair = pair(&[40], &config);
    let payload = SessionConfig::payload(pair.session(Client).mtu()).get();
    let counts = [1, 2, 3, 7];
    let longest = counts.map(|count| longest_in(&mut pair, count, (count as u64 + 1) * payload));
    let header = payload - longest[0];
    assert!((1..=marcato_wire::MAX_SINGLE_HEADER as u64).contains(&header), "{header}");
    assert_eq!(longest, counts.map(|count| count as u64 * payload - header));
}

/// A stream whose message was cancelled is over at both ends, so that it counts no more against those that the peer allows.
#[test]
fn cancelled_messages_leave_room_for_further_reusable_streams() {
    let config = SessionConfig { streams: StreamUse::Reuse, max_streams: 4, ..SessionConfig::default() };
    let mut pair = pair(&[20], &config);
    for _ in 0..12 {
        let cancelled = pair.send(Client, message(Priority::P2, 3_000_000));
        pair.pass(ms(30));
        let now = pair.now;
        pair.session(Client).cancel(now, cancelled).unwrap();
        pair.pass(ms(300));
    }
    let last = pair.send(Client, message(Priority::P2, 100));
    pair.pass(ms(500));
    assert!(pair.delivered(Client, last).is_some());
    assert_eq!(pair.received(Server).len(), 1);
}

/// High lanes keep the session's controller, and a request that names one gets it.
#[test]
fn only_low_lanes_get_the_controller_of_the_low_layer() {
    let layered = SessionConfig::default().layered();
    for (config, manages) in [(layered, true), (SessionConfig::default(), false)] {
        let mut pair = pair(&[20], &config);
        let session = pair.session(Client);
        let request = |layer, congestion| LaneRequest {
            layer,
            congestion,
            ..LaneRequest::new(SocketId(1), address(Server, 1))
        };
        let filled = |layer, own| session.as_layered(request(layer, own)).congestion;
        assert_eq!(filled(Layer::High, None), None);
        let low = filled(Layer::Low, None);
        assert_eq!(matches!(low, Some(Congestion::LowPriority(_))), manages, "{low:?}");
        for layer in [Layer::High, Layer::Low] {
            assert_eq!(filled(layer, Some(Congestion::RENO)), Some(Congestion::RENO));
            assert_eq!(session.manages(layer), manages && layer == Layer::Low);
        }
    }
}

/// Changes of the low lanes at one end.
fn low_changes(pair: &Pair, who: Who) -> Vec<LowLaneChange> {
    let events = pair.events(who);
    events
        .filter_map(|event| if let Event::LowLane { change, .. } = event { Some(*change) } else { None })
        .collect()
}

#[test]
fn a_low_lane_tells_once_that_it_is_alone_and_once_it_is_not() {
    let retry = Retry { first: Duration::from_secs(1), longest: Duration::from_secs(1) };
    let config = SessionConfig { reopen: Some(retry), ..SessionConfig::default().layered() };
    let mut pair = Pair::begin(&[20, 20], &config, &config, None);
    pair.run_until(|pair| pair.session(Client).is_open());
    let request = LaneRequest::new(SocketId(1), address(Server, 1));
    let (now, low) = (pair.now, LaneRequest { layer: Layer::Low, ..request });
    pair.session(Client).add_lane(now, low).unwrap();
    pair.pass(ms(500));
    let exchange = |pair: &mut Pair| pair.deliver(Client, message(Priority::P4, 100_000));
    exchange(&mut pair);
    assert_eq!(low_changes(&pair, Client), []);
    pair.kill(0);
    for _ in 0..3 {
        exchange(&mut pair);
    }
    assert_eq!(low_changes(&pair, Client), [LowLaneChange::Alone]);
    pair.revive(0);
    for _ in 0..30 {
        exchange(&mut pair);
        pair.pass(ms(200));
    }
    assert_eq!(low_changes(&pair, Client), [LowLaneChange::Alone, LowLaneChange::Relieved]);
}

#[test]
fn a_backup_takes_over_at_once_when_the_other_lane_is_closed() {
    let mut pair = pair(&[20, 20], &SessionConfig::default());
    let now = pair.now;
    pair.session(Client).set_backup(now, lane(1), true).unwrap();
    pair.pass(ms(300));
    let is_spared = |pair: &mut Pair| pair.session(Client).lanes.get(lane(1)).unwrap().backup.is_announced();
    assert!(is_spared(&mut pair));
    let now = pair.now;
    pair.session(Client).remove_lane(now, lane(0)).unwrap();
    pair.pass(Duration::ZERO);
    assert!(!is_spared(&mut pair));
}

/// A level that must wait is followed by the next one, which has its own view of each lane.
#[test]
fn each_view_of_the_lanes_replaces_the_one_before() {
    let mut pair = pair(&[20, 50], &SessionConfig::default());
    let (now, mut views) = (pair.now, Views::new());
    for level in Priority::ALL {
        pair.session(Client).view(now, level, Bytes::new(1200), true, &mut views);
        assert_eq!(views.iter().map(|view| view.id).collect::<Vec<_>>(), [lane(0), lane(1)]);
    }
}
