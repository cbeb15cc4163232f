//! Tests of lanes that open, close, fall silent and move.

use marcato_quic::{Event, LaneError, LaneLoss, LaneState, PathScheduler, Session, SessionConfig};
use marcato_sched::lane::LaneId;
use marcato_sim::{Family, LinkId, Rebinding, Series, Side};
use marcato_units::{Bytes, Priority, Time};

use crate::common::*;

fn lane(index: u8) -> LaneId {
    LaneId::new(index).unwrap()
}

fn state(session: &Session, index: u8) -> Option<LaneState> {
    session.lanes().find(|(view, ..)| view.id == lane(index)).map(|(_, state, _)| state)
}

fn cut(pair: &mut Pair, links: &[LinkId], from: Time, to: Time) {
    for &link in links {
        pair.net.set_link_up_at(link, from, false);
        pair.net.set_link_up_at(link, to, true);
    }
}

/// Directions of a path that are cut.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    Both,
    Up,
    Down,
}

/// Server that sends 20 kB each 50 ms for 4 s over two lanes of 10 ms and 30 ms one way; one path
/// is cut at 1 s. The queues hold 50 packets, 30 ms.
fn cut_at_one_second(seed: u64, path_index: usize, which: Cut, until: Time, fill: bool) -> Pair {
    let mut server = Peer::new().sending(every(at(200), ms(50), 80, Priority::P1, 20_000));
    if fill {
        server = server.filling(Priority::P4, at(4000));
    }
    let config = SessionConfig { path_scheduler: PathScheduler::LowRtt, ..Default::default() };
    let paths = [path(20, 10), path(20, 30)].map(|path| path.map(|link| link.queue(short_queue(50))));
    let mut pair = Pair::new(seed, &config, paths.into(), Peer::new(), server);
    let (up, down) = pair.links[path_index];
    let links: &[LinkId] = match which {
        Cut::Both => &[up, down],
        Cut::Up => &[up],
        Cut::Down => &[down],
    };
    cut(&mut pair, links, at(1003), until);
    pair
}

#[test]
fn data_stuck_on_either_silent_lane_arrives_within_a_second() {
    for path_index in [0, 1] {
        for which in [Cut::Both, Cut::Up, Cut::Down] {
            for fill in [false, true] {
                let what = format!("path {path_index}, {which:?}, background: {fill}");
                let mut pair = cut_at_one_second(7, path_index, which, at(60_000), fill);
                pair.run(40_000);
                pair.assert_delivered(Side::Server);
                let worst = pair.delays(Side::Server, Priority::P1).into_iter().max().unwrap();
                assert!(worst < ms(1000), "{what}: {worst:?}");
            }
        }
    }
}

#[test]
fn a_lane_that_was_cut_is_used_again_when_it_answers() {
    for path_index in [0, 1] {
        let mut pair = cut_at_one_second(8, path_index, Cut::Both, at(2500), true);
        pair.run(2400);
        let index = u8::try_from(path_index).unwrap();
        assert_eq!(state(pair.session(Side::Server), index), Some(LaneState::Stalled));
        pair.run(4000);
        assert_eq!(state(pair.session(Side::Server), index), Some(LaneState::Up));
        let before = pair.session(Side::Server).lanes().nth(path_index).unwrap().2.packets;
        let recovered = pair.peer(Side::Server).first(|event| *event == Event::LaneRecovered(lane(index)));
        // The interval between probes doubles: 1.5 s after the cut they are at most 1.6 s apart.
        assert!(recovered.is_some_and(|time| time < at(4200)), "{recovered:?}");
        pair.run(30_000);
        pair.assert_delivered(Side::Server);
        assert!(before > 1000, "path {path_index}: {before} packets");
        pair.assert_clean();
    }
}

#[test]
fn a_lane_that_stays_silent_is_given_up_after_its_idle_timeout() {
    let mut pair = cut_at_one_second(9, 1, Cut::Both, at(60_000), false);
    pair.run(16_000);
    for side in [Side::Client, Side::Server] {
        let peer = pair.peer(side);
        let down = |event: &Event| matches!(event, Event::LaneDown { lane: Some(it), .. } if *it == lane(1));
        let time = peer.first(down).unwrap();
        // 10 s after the last packet arrived on it, at either end.
        assert!(time > at(10_000) && time < at(11_400), "{side:?}: {time:?}");
        assert_eq!(pair.session(side).lanes().count(), 1);
    }
    pair.assert_delivered(Side::Server);
    pair.assert_clean();
}

#[test]
fn after_both_lanes_fail_all_data_takes_the_one_that_recovers() {
    for back in [0, 1] {
        let server = Peer::new().sending(every(at(200), ms(50), 60, Priority::P1, 20_000));
        let config = SessionConfig { path_scheduler: PathScheduler::LowRtt, ..Default::default() };
        let paths = vec![path(20, 10), path(20, 30)];
        let mut pair = Pair::new(11, &config, paths, Peer::new(), server);
        for (index, (up, down)) in pair.links.clone().into_iter().enumerate() {
            let until = if index == back { at(3000) } else { at(100_000) };
            cut(&mut pair, &[up, down], at(1000), until);
        }
        // The path is back at 3 s. By then each is probed every 1.2 to 2 s, in turn.
        pair.run(8000);
        pair.assert_delivered(Side::Server);
        pair.run(20_000);
        pair.assert_clean();
    }
}

/// Client that sends 5 kB each 20 ms until 4 s.
fn steady_client() -> Peer {
    Peer::new().sending(every(at(100), ms(20), 200, Priority::P1, 5000))
}

#[test]
fn lanes_are_added_and_removed_under_load_but_never_the_last() {
    let config = SessionConfig { max_lanes: 2, ..Default::default() };
    let mut pair = Pair::new(12, &config, vec![path(20, 10), path(20, 20)], steady_client(), steady_client());
    pair.run(1000);
    let (route, remote) = (1, pair.address(Side::Server, 1));
    // The limit of lanes is reached.
    assert_eq!(pair.add_lane(route), Err(LaneError::TooMany { limit: 2 }));
    assert_eq!(
        pair.with(Side::Client, |session, now| session.remove_lane(now, lane(9))),
        Err(LaneError::Unknown)
    );
    pair.with(Side::Client, |session, now| session.remove_lane(now, lane(1))).unwrap();
    // A lane cannot be removed twice, and the last lane not at all.
    assert!(matches!(
        pair.with(Side::Client, |session, now| session.remove_lane(now, lane(1))),
        Err(LaneError::Engine(_))
    ));
    assert_eq!(
        pair.with(Side::Client, |session, now| session.remove_lane(now, lane(0))),
        Err(LaneError::Last)
    );
    // A lane to the same address again at once: it waits until the old one is closed.
    pair.add_lane(route).unwrap();
    assert_eq!(pair.add_lane(route), Err(LaneError::TooMany { limit: 2 }));
    pair.run(2000);
    assert_eq!(pair.session(Side::Client).load().requests, 0);
    for side in [Side::Client, Side::Server] {
        assert_eq!(
            pair.session(side).lanes().filter(|(_, state, _)| *state == LaneState::Up).count(),
            2,
            "{side:?}"
        );
    }
    let closed = |side: Side, reason: LaneLoss| {
        pair.peer(side)
            .count(|event| matches!(event, Event::LaneDown { lane: Some(it), reason: why, .. } if *it == lane(1) && *why == reason))
    };
    assert_eq!(
        (closed(Side::Client, LaneLoss::Closed), closed(Side::Server, LaneLoss::ClosedByPeer)),
        (1, 1)
    );
    // The first may be removed as well, once there is another.
    pair.with(Side::Client, |session, now| session.remove_lane(now, lane(0))).unwrap();
    assert!(remote.port() > 0);
    pair.run(8000);
    for side in [Side::Client, Side::Server] {
        assert_eq!(pair.session(side).lanes().count(), 1, "{side:?}");
        pair.assert_delivered(side);
        let worst = pair.delays(side, Priority::P1).into_iter().max().unwrap();
        assert!(worst < ms(300), "{side:?}: {worst:?}");
    }
    pair.assert_clean();
}

/// A level that waits for credit waits on a stream. If the stream is abandoned with its lane, new
/// credit must still be noticed.
#[test]
fn a_lane_may_go_while_the_receive_window_is_full() {
    let config = SessionConfig {
        path_scheduler: PathScheduler::RoundRobin,
        receive_window: Bytes::kb(100),
        ..Default::default()
    };
    let mut waited = 0;
    for round in 0..60 {
        let client = Peer::new().sending(every(at(200), ms(1), 20, Priority::P2, 60_000));
        let mut pair = Pair::new(31 + round, &config, vec![path(20, 10), path(20, 10)], client, Peer::new());
        pair.run(250 + 3 * round);
        let leaves = lane(u8::from(round % 2 == 0));
        pair.with(Side::Client, |session, now| session.remove_lane(now, leaves)).unwrap();
        pair.run(6000);
        waited += pair.session(Side::Client).stats().flow_blocked;
        pair.assert_delivered(Side::Client);
        pair.assert_clean();
    }
    assert!(waited > 60, "{waited}");
}

#[test]
fn only_clients_open_lanes_and_no_two_share_a_remote_address() {
    let mut pair = Pair::new(
        13,
        &SessionConfig::default(),
        vec![path(20, 10), path(20, 20)],
        steady_client(),
        Peer::new(),
    );
    // Requests before the handshake wait, as did that of the second path.
    assert_eq!(pair.run(5).session(Side::Client).load().requests, 1);
    let remote = pair.address(Side::Server, 1);
    assert_eq!(pair.add_lane(1), Err(LaneError::SameRemote { remote }));
    pair.run(1000);
    assert_eq!(pair.add_lane(1), Err(LaneError::SameRemote { remote }));
    let request = marcato_quic::LaneRequest::new(marcato_quic::SocketId(0), remote);
    let refused = pair.with(Side::Server, |session, now| session.add_lane(now, request));
    assert_eq!(refused, Err(LaneError::NotAClient));
    pair.run(6000);
    pair.assert_delivered(Side::Client);
}

#[test]
fn two_lanes_with_equal_addresses_steer_if_their_ports_differ() {
    use marcato_sim::{LinkConfig, Network, Route};
    use marcato_units::{Layer, Rate, Seed};
    let mut net = Network::new(Seed::new(14));
    let [near, far] = ["client", "server"].map(|name| net.node(name));
    let link = || LinkConfig::new(Rate::from_mbps(20), ms(10));
    let links = vec![net.link(near, far, link(), link())];
    // PLT: one path, two layers.
    let routes = vec![Route::new(near, far), Route { layer: Layer::Low, ..Route::new(near, far) }];
    let config = SessionConfig { path_scheduler: PathScheduler::RoundRobin, ..Default::default() };
    let mut pair = Setup::new(14, &config).over(net, links, routes, steady_client(), steady_client());
    pair.run(8000);
    for side in [Side::Client, Side::Server] {
        assert_eq!(pair.session(side).stats().misrouted, 0);
        let lanes: Vec<_> =
            pair.session(side).lanes().map(|(view, _, stats)| (view.layer, stats.packets > 200)).collect();
        // The server takes the layer from the socket at which the lane arrived.
        assert_eq!(lanes, [(Layer::High, true), (Layer::Low, true)], "{side:?}");
        pair.assert_delivered(side);
        for index in [0, 1] {
            let route = pair.route(index);
            let stats = pair.net.route_stats(pair.flow, side, route).unwrap();
            assert!(stats.misdirected == 0 && stats.sent > 200, "{side:?}: {stats:?}");
        }
    }
    pair.assert_clean();
}

#[test]
fn removing_a_lane_unknown_to_the_peer_makes_room_for_another() {
    let config = SessionConfig::default();
    let mut pair = Pair::new(16, &config, vec![path(20, 10), path(20, 10)], steady_client(), Peer::new());
    // The path's first packets are lost.
    let (up, _) = pair.links[1];
    cut(&mut pair, &[up], Time::ZERO, at(1000));
    pair.run(300);
    assert_eq!(state(pair.session(Side::Client), 1), Some(LaneState::Opening));
    pair.with(Side::Client, |session, now| session.remove_lane(now, lane(1))).unwrap();
    pair.add_lane(1).unwrap();
    pair.run(5000);
    for side in [Side::Client, Side::Server] {
        assert_eq!(state(pair.session(side), 1), Some(LaneState::Up), "{side:?}");
    }
    pair.run(10_000);
    pair.assert_delivered(Side::Client);
    pair.assert_clean();
}

#[test]
fn the_only_lane_that_is_up_cannot_be_removed_while_one_opens() {
    let config = SessionConfig::default();
    let mut pair = Pair::new(17, &config, vec![path(20, 10), path(20, 10)], steady_client(), Peer::new());
    let (up, _) = pair.links[1];
    cut(&mut pair, &[up], Time::ZERO, at(1000));
    pair.run(300);
    let remove = |session: &mut Session, now| session.remove_lane(now, lane(0));
    assert_eq!(pair.with(Side::Client, remove), Err(LaneError::Last));
    pair.run(3000);
    assert_eq!(pair.with(Side::Client, remove), Ok(()));
    pair.run(10_000);
    pair.assert_delivered(Side::Client);
    pair.assert_clean();
}

#[test]
fn a_lane_survives_a_new_port_and_a_new_address() {
    for family in [Family::V4, Family::V6] {
        for rebinding in [Rebinding::Port, Rebinding::Ip] {
            for index in [0, 1] {
                let what = format!("{family:?} {rebinding:?} lane {index}");
                let config =
                    SessionConfig { path_scheduler: PathScheduler::RoundRobin, ..Default::default() };
                let setup = Setup { family, ..Setup::new(15, &config) };
                let paths = vec![path(20, 10), path(20, 20)];
                let mut pair = setup.pair(paths, steady_client(), steady_client());
                pair.run(1000);
                let route = pair.route(index);
                let fresh = pair.net.rebind(pair.flow, Side::Client, route, rebinding).unwrap();
                pair.run(10_000);
                for side in [Side::Client, Side::Server] {
                    pair.assert_delivered(side);
                    let worst = pair.delays(side, Priority::P1).into_iter().max().unwrap();
                    // Packets in flight to the old address are lost, and the new one takes a round
                    // trip to validate.
                    assert!(worst < ms(500), "{what} {side:?}: {worst:?}");
                }
                let server = pair.peer(Side::Server);
                let id = lane(u8::try_from(index).unwrap());
                assert_eq!(server.count(|event| *event == Event::LaneMoved(id)), 1, "{what}");
                assert_eq!(server.count(|event| matches!(event, Event::LaneDown { .. })), 0, "{what}");
                assert!(pair.net.route_stats(pair.flow, Side::Server, route).unwrap().sent > 100);
                assert_eq!(pair.address(Side::Client, index), fresh);
                // Neither end counts packets as in flight that are not.
                for side in [Side::Client, Side::Server] {
                    let stalls: u64 = pair.session(side).lanes().map(|(.., stats)| stats.stalls).sum();
                    assert!(stalls <= 2, "{what} {side:?}: {stalls}");
                }
                pair.assert_clean();
            }
        }
    }
}

#[test]
fn a_backup_lane_is_idle_until_the_other_dies_then_carries_all() {
    let config = SessionConfig { path_scheduler: PathScheduler::LowRtt, ..Default::default() };
    let paths = vec![path(20, 30), path(20, 10)];
    let server = Peer::new().sending(every(at(300), ms(20), 300, Priority::P1, 5000));
    let mut pair = Pair::new(16, &config, paths, Peer::new(), server);
    pair.run(250);
    // The faster lane is the backup.
    pair.with(Side::Client, |session, now| session.set_backup(now, lane(1), true)).unwrap();
    pair.run(2000);
    let reported = Event::LaneBackup { lane: lane(1), backup: true };
    assert_eq!(pair.peer(Side::Server).count(|event| *event == reported), 1);
    let packets = |pair: &Pair| pair.session(Side::Server).lanes().nth(1).unwrap().2.packets;
    let quiet = packets(&pair);
    assert!(quiet < 20, "{quiet}");
    let (up, down) = pair.links[0];
    cut(&mut pair, &[up, down], at(2000), at(4000));
    pair.run(3500);
    assert!(packets(&pair) > quiet + 200, "{} after {quiet}", packets(&pair));
    pair.run(12_000);
    pair.assert_delivered(Side::Server);
    let worst = pair.delays(Side::Server, Priority::P1).into_iter().max().unwrap();
    assert!(worst < ms(400), "{worst:?}");
    // The first is back, so the backup is idle again.
    let views: Vec<bool> = pair.session(Side::Server).lanes().map(|(view, ..)| view.backup).collect();
    assert_eq!(views, [false, true]);
    pair.assert_clean();
}

#[test]
fn acknowledgements_use_the_first_lane_that_is_not_a_backup() {
    // As the engine's documentation states: with lanes of 10 ms and 30 ms one way, the second
    // measures 30 + 10 ms.
    let config = SessionConfig {
        path_scheduler: PathScheduler::RoundRobin,
        follow_peer_backup: false,
        ..Default::default()
    };
    let paths = vec![path(100, 10), path(100, 30)];
    let server = Peer::new().sending(every(at(300), ms(20), 400, Priority::P1, 5000));
    let mut pair = Pair::new(17, &config, paths, Peer::new(), server);
    pair.run(3000);
    let srtts = |pair: &Pair| {
        pair.session(Side::Server).lanes().map(|(view, ..)| view.srtt.as_millis()).collect::<Vec<_>>()
    };
    let before = srtts(&pair);
    assert!((20..=23).contains(&before[0]) && (40..=43).contains(&before[1]), "{before:?}");
    pair.with(Side::Client, |session, now| session.set_backup(now, lane(0), true)).unwrap();
    pair.run(8000);
    let after = srtts(&pair);
    assert!((40..=43).contains(&after[0]) && (60..=63).contains(&after[1]), "{after:?}");
    pair.run(10_000);
    pair.assert_delivered(Side::Server);
}

#[test]
fn a_series_shows_the_windows_and_round_trips_of_lanes() {
    let config = SessionConfig { path_scheduler: PathScheduler::LowRtt, ..Default::default() };
    let server = Peer::new().filling(Priority::P4, at(3_000));
    let mut pair = Pair::new(1, &config, vec![path(20, 10), path(20, 30)], Peer::new(), server);
    let mut series = Series::new(ms(100));
    series.lanes("server", pair.flow, Side::Server, 3).unwrap();
    series.run_until(&mut pair.net, at(2_500)).unwrap();
    let column = |name: &str| series.column(&format!("lane.server.{name}")).unwrap();
    for (lane, round_trip) in [(0, 0.020), (1, 0.060)] {
        // Before the handshake there are no lanes; then each has a window, data in flight, and its
        // path's delay.
        assert!(column(&format!("{lane}.cwnd_bytes"))[0].is_nan());
        assert!(column(&format!("{lane}.cwnd_bytes"))[10..].iter().all(|&cwnd| cwnd > 10_000.0));
        assert!(column(&format!("{lane}.in_flight_bytes"))[10..].iter().all(|&flight| flight > 0.0));
        assert!(column(&format!("{lane}.srtt_seconds"))[10..].iter().all(|&srtt| srtt >= round_trip));
    }
    let srtt = |lane| *column(&format!("{lane}.srtt_seconds")).last().unwrap();
    let session = pair.session(Side::Server);
    let seen: Vec<_> = session.lanes().map(|(view, ..)| view.srtt.as_secs_f64()).collect();
    assert_eq!(seen, [srtt(0), srtt(1)]);
    // There is no third lane.
    assert!(column("2.cwnd_bytes").iter().all(|cwnd| cwnd.is_nan()));
}
