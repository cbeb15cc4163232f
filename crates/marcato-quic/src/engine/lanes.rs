//! Paths: opening, moving and failing, and the path that acknowledgements take.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use marcato_units::{Bytes, Time};
use noq_proto::{Event, PathError, PathEvent, PathId, PathStatus, VarInt};

use super::pair::{CHUNK, Lane, Pair, Setup, Who};
use crate::gate::GateEvent;

fn two_lanes(first: u64, second: u64) -> Vec<Lane> {
    vec![Lane::delay_ms(0, first), Lane::delay_ms(1, second)]
}

fn path(number: u32) -> PathId {
    PathId::from(number)
}

fn read(pair: &mut Pair, who: Who) -> usize {
    pair.host(who).read.iter().map(|piece| piece.len).sum()
}

/// Pair whose client has just changed its address on lane 1, and the state that the server kept.
struct Moved {
    pair: Pair,
    same_gate: bool,
    same_path: bool,
}

fn moved(lanes: Vec<Lane>, to: SocketAddr) -> Moved {
    let mut pair = Setup::new(1, lanes).establish();
    for who in [Who::Client, Who::Server] {
        pair.host(who).fed = true;
    }
    let before = pair.gate(Who::Server, 1);
    let paths = pair.engine(Who::Server).paths();
    pair.rebind(1, to);
    let hello = pair.stream(Who::Client);
    pair.feed(Who::Client, 1, hello, 100);
    // Long enough for the client's packet to arrive, too short for an answer to the challenge.
    pair.pass(Duration::from_millis(16));
    let same_path = pair.engine(Who::Server).paths() == paths;
    assert_eq!(pair.engine(Who::Server).network_path(path(1)).unwrap().remote(), to);
    let same_gate = Arc::ptr_eq(&before, &pair.gate(Who::Server, 1));
    Moved { pair, same_gate, same_path }
}

/// Checks that a chunk fed to a lane under validation stays in the engine, and leaves by the next
/// open gate.
fn is_unusable_for_a_round_trip(pair: &mut Pair) {
    let stream = pair.stream(Who::Server);
    let fed = pair.feed(Who::Server, 1, stream, CHUNK);
    assert_eq!((fed.sent, fed.left), (vec![], vec![]));
    pair.gate(Who::Server, 0).set_shut(false);
    assert_eq!(pair.flush(Who::Server), [0]);
    pair.pass(Duration::from_millis(60));
    let fed = pair.feed(Who::Server, 1, stream, CHUNK);
    assert_eq!(fed.left, [1]);
    pair.pass(Duration::from_millis(60));
    assert_eq!(read(pair, Who::Client), 2 * CHUNK);
}

fn ipv6(number: u16, port: u16) -> Lane {
    let address = |host: u16, port| SocketAddr::from(([0xfd00, 0, 0, number, 0, 0, 0, host], port));
    Lane::delay_ms(0, if number == 0 { 10 } else { 15 }).at(address(1, port), address(2, 443))
}

#[test]
fn a_new_ipv4_port_keeps_the_gate_but_pauses_the_lane_one_rtt() {
    let mut moved = moved(two_lanes(10, 15), SocketAddr::from(([10, 0, 1, 1], 2000)));
    assert!(moved.same_path && moved.same_gate);
    is_unusable_for_a_round_trip(&mut moved.pair);
}

#[test]
fn a_new_ipv6_port_or_peer_address_gives_the_path_a_new_gate() {
    let mut other_port = moved(vec![ipv6(0, 1000), ipv6(1, 1000)], ipv6(1, 2000).client);
    assert!(other_port.same_path && !other_port.same_gate);
    is_unusable_for_a_round_trip(&mut other_port.pair);

    let mut other_address = moved(two_lanes(10, 15), SocketAddr::from(([10, 0, 9, 1], 1000)));
    assert!(other_address.same_path && !other_address.same_gate);
    is_unusable_for_a_round_trip(&mut other_address.pair);
}

#[test]
fn packets_from_before_a_move_are_acknowledged_without_a_word() {
    let mut pair = Setup::new(1, two_lanes(10, 15)).establish();
    for who in [Who::Client, Who::Server] {
        pair.host(who).fed = true;
    }
    let gate = pair.gate(Who::Server, 1);
    let (stream, hello) = (pair.stream(Who::Server), pair.stream(Who::Client));
    let fed: Vec<u64> = (0..4).map(|_| pair.feed(Who::Server, 1, stream, CHUNK).sent[0].1).collect();
    pair.pass(Duration::from_millis(5));
    pair.rebind(1, SocketAddr::from(([10, 0, 1, 1], 2000)));
    pair.feed(Who::Client, 1, hello, 100);
    pair.pass(Duration::from_millis(500));
    assert_eq!(read(&mut pair, Who::Client), 4 * CHUNK);
    let reported = pair.host(Who::Server).noted.iter().filter(|noted| match noted.what {
        GateEvent::Acked { pn, .. } | GateEvent::Lost { pn, .. } => noted.lane == 1 && fed.contains(&pn),
        _ => false,
    });
    assert_eq!(reported.count(), 0);
    // The engine nevertheless corrects the sum of bytes in flight.
    assert_eq!(gate.in_flight(), Bytes::new(0));
}

/// Feeds one chunk to lane 1, which then fails in both directions, while the client feeds lane 0.
/// Returns the time at which the chunk has been read.
fn delivered_from_a_black_hole(setup: Setup, close_after: Option<Duration>) -> Option<Duration> {
    let mut pair = setup.establish();
    pair.host(Who::Client).fed = true;
    let (stuck, healthy) = (pair.stream(Who::Client), pair.stream(Who::Client));
    // Before it closes a path, the session has measured the round trip several times.
    for tick in 0..close_after.map_or(0, |_| 30) {
        assert!(pair.settle(Who::Client));
        pair.feed(Who::Client, tick % 2, healthy, 200);
        pair.pass(Duration::from_millis(10));
    }
    pair.set_dead(1, true);
    pair.feed(Who::Client, 1, stuck, CHUNK);
    let start = pair.now;
    let mut last = start;
    let mut closed = false;
    let mut delivered = None;
    pair.run(start + Duration::from_secs(20), |pair| {
        let now = pair.now;
        if close_after.is_some_and(|after| now.since(start) >= after) && !closed {
            closed = true;
            let instant = pair.instant();
            pair.engine(Who::Client).close_path(instant, path(1), VarInt::from_u32(0)).unwrap();
        }
        if now.since(last) >= Duration::from_millis(10) && pair.settle(Who::Client) {
            last = now;
            let fed = pair.feed(Who::Client, 0, healthy, 200);
            assert_eq!(fed.left, [0]);
        }
        let piece = pair.host(Who::Server).read.iter().find(|piece| piece.stream == stuck);
        delivered = piece.map(|piece| piece.at.since(start));
        delivered.is_some()
    });
    if delivered.is_none() {
        assert!(pair.host(Who::Server).read.len() > 500);
        assert_eq!(pair.host(Who::Client).lost(), None);
    }
    delivered
}

#[test]
fn a_chunk_on_a_dead_lane_stays_until_the_path_closes_or_idles() {
    let setup = || Setup::new(1, two_lanes(10, 15));
    assert_eq!(delivered_from_a_black_hole(setup(), None), None);

    let closed = delivered_from_a_black_hole(setup(), Some(Duration::from_millis(100))).unwrap();
    let idled = setup().tune(|_, config| {
        config.default_path_max_idle_timeout(Some(Duration::from_secs(1)));
        config.default_path_keep_alive_interval(Some(Duration::from_millis(300)));
    });
    let idled = delivered_from_a_black_hole(idled, None).unwrap();
    eprintln!("closed after 100 ms: {closed:?}; idled out after 1 s: {idled:?}");
    // The sum of the peer's PATH_ABANDON and three probe timeouts.
    assert!((Duration::from_millis(250)..Duration::from_millis(550)).contains(&closed), "{closed:?}");
    assert!((Duration::from_millis(1000)..Duration::from_millis(1500)).contains(&idled), "{idled:?}");
}

#[test]
fn a_lane_that_carries_data_one_way_idles_out_although_it_works() {
    // Its acknowledgements return on path 0, so nothing arrives on it at the sender. The receiver's
    // keep-alives do not help, because received packets postpone them.
    let mut pair = Setup::new(1, two_lanes(10, 15))
        .tune(|_, config| {
            config.default_path_max_idle_timeout(Some(Duration::from_secs(1)));
            config.default_path_keep_alive_interval(Some(Duration::from_millis(300)));
        })
        .establish();
    pair.host(Who::Client).fed = true;
    let stream = pair.stream(Who::Client);
    let start = pair.now;
    let mut last = start;
    let mut fed = 0;
    let abandoned = |event: &Event| matches!(event, Event::Path(PathEvent::Abandoned { .. }));
    pair.run(start + Duration::from_secs(5), |pair| {
        if pair.now.since(last) >= Duration::from_millis(20) && pair.settle(Who::Client) {
            last = pair.now;
            assert_eq!(pair.feed(Who::Client, 1, stream, 200).left, [1]);
            fed += 1;
        }
        pair.wake_at(last + Duration::from_millis(20));
        pair.host(Who::Client).events.iter().any(abandoned)
    });
    let after = pair.now.since(start);
    let arrived = pair.host(Who::Server).read.len();
    eprintln!("abandoned after {after:?}; {arrived} of {fed} chunks had arrived");
    assert!(after < Duration::from_millis(1100), "{after:?}");
    assert!(fed > 20 && arrived + 2 >= fed, "{arrived} of {fed}");
}

/// Returns the round trips that the client measures on each lane while it feeds both in turn.
fn round_trips(backup: bool) -> [Duration; 2] {
    let mut pair = Setup::new(1, two_lanes(10, 30)).establish();
    if backup {
        pair.engine(Who::Server).set_path_status(path(0), PathStatus::Backup).unwrap();
    }
    pair.host(Who::Client).fed = true;
    let stream = pair.stream(Who::Client);
    let start = pair.now;
    let mut ticks = 0;
    pair.run(start + Duration::from_secs(3), |pair| {
        while pair.now >= start + Duration::from_millis(5 * ticks) && pair.settle(Who::Client) {
            let lane = (ticks % 2) as usize;
            pair.feed(Who::Client, lane, stream, 500);
            ticks += 1;
        }
        // The run moves from event to event; this creates one.
        pair.wake_at(start + Duration::from_millis(5 * ticks));
        pair.now > start + Duration::from_secs(2)
    });
    [0, 1].map(|lane| pair.engine(Who::Client).rtt(path(lane)).unwrap())
}

#[test]
fn acks_of_all_lanes_return_on_the_lowest_available_path() {
    let near = |measured: Duration, millis: u64| {
        let expected = Duration::from_millis(millis);
        let tolerance = Duration::from_millis(1);
        assert!(measured.abs_diff(expected) < tolerance, "{measured:?}, not {expected:?}");
    };
    let [first, second] = round_trips(false);
    eprintln!("{first:?} {second:?}");
    near(first, 20);
    near(second, 40);
    // If path 0 is a backup at the receiver, they take the other one.
    let [first, second] = round_trips(true);
    eprintln!("{first:?} {second:?}");
    near(first, 40);
    near(second, 60);
}

/// Feeds ten chunks to two lanes between the same two hosts in turn. Returns, for each side, the
/// number that left by the socket of their lane.
fn by_the_right_socket(client_ports: [u16; 2], server_ports: [u16; 2], local_ip_known: bool) -> [usize; 2] {
    let lane = |number: usize| {
        Lane::delay_ms(0, 10).at(
            SocketAddr::from(([10, 0, 0, 1], client_ports[number])),
            SocketAddr::from(([10, 0, 0, 2], server_ports[number])),
        )
    };
    [Who::Client, Who::Server].map(|who| {
        let mut setup = Setup::new(1, vec![lane(0), lane(1)]);
        setup.local_ip_known = local_ip_known;
        let mut pair = setup.establish();
        pair.host(who).fed = true;
        let stream = pair.stream(who);
        let fed = (0..10).map(|number| (number % 2, pair.feed(who, number % 2, stream, CHUNK)));
        fed.filter(|(lane, fed)| {
            // The engine counts the packet for the right path, even if it leaves by the wrong
            // socket.
            assert_eq!(fed.sent.iter().map(|(lane, _)| *lane).collect::<Vec<_>>(), [*lane]);
            fed.left == [*lane]
        })
        .count()
    })
}

#[test]
fn two_lanes_between_two_hosts_need_two_ports_on_both_sides() {
    for local_ip_known in [true, false] {
        assert_eq!(by_the_right_socket([1000, 1001], [443, 444], local_ip_known), [10, 10]);
    }
    // A destination identifies the socket only if no other lane has it.
    assert_eq!(by_the_right_socket([1000, 1001], [443, 443], true), [5, 5]);
    assert_eq!(by_the_right_socket([1000, 1000], [443, 444], true), [10, 5]);
}

/// Returns the number of datagrams in 400 ms, while the client has ten chunks to send.
fn datagrams(any_socket: bool) -> usize {
    let lane = |number: u8, port| {
        Lane::delay_ms(number, 10)
            .at(SocketAddr::from(([10, 0, 0, 1], port)), SocketAddr::from(([10, 0, 0, 2], 443)))
    };
    let mut setup = Setup::new(1, vec![lane(0, 1000), lane(0, 1001)]);
    setup.any_socket = any_socket;
    let mut pair = setup.establish();
    let stream = pair.stream(Who::Client);
    pair.engine(Who::Client).send_stream(stream).write(&[0; 10 * CHUNK]).unwrap();
    pair.pass(Duration::from_millis(400));
    pair.passed.len()
}

#[test]
fn a_path_that_uses_any_socket_is_challenged_endlessly() {
    let (kept, any) = (datagrams(false), datagrams(true));
    eprintln!("{kept} and {any} datagrams");
    assert!(kept < 40, "{kept}");
    assert!(any > 1000, "{any}");
}

#[test]
fn only_the_client_can_open_paths_once_it_has_remote_cids() {
    let mut pair = Setup::new(1, two_lanes(10, 15)).start();
    let tuple = pair.tuple(1, Who::Client);
    let mut outcomes = Vec::new();
    pair.run(Time::from_secs(1), |pair| {
        let now = pair.instant();
        let outcome = pair.engine(Who::Client).open_path(tuple, PathStatus::Available, now);
        if outcomes.last() != Some(&outcome) {
            outcomes.push(outcome);
        }
        outcome.is_ok()
    });
    eprintln!("{outcomes:?}");
    assert_eq!(
        outcomes,
        [Err(PathError::MultipathNotNegotiated), Err(PathError::RemoteCidsExhausted), Ok(path(1)),]
    );

    let tuple = pair.tuple(1, Who::Server);
    pair.pass(Duration::from_millis(200));
    let now = pair.instant();
    let outcome = pair.engine(Who::Server).open_path(tuple, PathStatus::Available, now);
    assert_eq!(outcome, Err(PathError::ServerSideNotAllowed));
}

#[test]
fn more_paths_than_both_sides_allow_are_refused() {
    let lanes = (0..4).map(|number| Lane::delay_ms(number, 10)).collect();
    let mut pair = Setup::new(1, lanes).tune(|who, config| {
        config.max_concurrent_multipath_paths(if who == Who::Client { 8 } else { 3 });
    });
    let mut pair = {
        let extra = pair.lanes.pop().unwrap();
        let mut pair = pair.establish();
        pair.add(extra);
        pair
    };
    let (tuple, now) = (pair.tuple(3, Who::Client), pair.instant());
    let outcome = pair.engine(Who::Client).open_path(tuple, PathStatus::Available, now);
    assert_eq!(outcome, Err(PathError::MaxPathIdReached));
}
