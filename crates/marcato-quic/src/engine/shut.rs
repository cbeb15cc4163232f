//! Packets that pass a shut gate. The engine checks for room whenever the connection has anything
//! pending, and then for every packet, acknowledgements included.

use std::collections::BTreeMap;
use std::time::Duration;

use marcato_units::Bytes;
use noq_proto::{Event, PathEvent, PathId, PathStatus, StreamId, VarInt};

use super::pair::{CHUNK, Lane, Pair, Setup, Who};
use crate::gate::GateEvent;

fn two_lanes() -> Vec<Lane> {
    vec![Lane::delay_ms(0, 10), Lane::delay_ms(1, 15)]
}

fn write(pair: &mut Pair, who: Who, len: usize) -> StreamId {
    let stream = pair.stream(who);
    assert_eq!(pair.engine(who).send_stream(stream).write(&vec![0; len]), Ok(len));
    stream
}

fn acked(pair: &mut Pair, who: Who) -> usize {
    let noted = &pair.host(who).noted;
    noted.iter().filter(|noted| matches!(noted.what, GateEvent::Acked { .. })).count()
}

fn read(pair: &mut Pair, who: Who) -> usize {
    pair.host(who).read.iter().map(|piece| piece.len).sum()
}

fn datagrams(pair: &Pair, from: Who) -> usize {
    pair.passed.iter().filter(|passed| passed.from == from).count()
}

#[test]
fn acknowledgements_pass_shut_gates_while_nothing_is_pending() {
    let mut pair = Setup::new(1, two_lanes()).establish();
    pair.shut_all(Who::Client, true);
    write(&mut pair, Who::Server, 10_000);
    pair.pass(Duration::from_millis(150));
    assert_eq!(acked(&mut pair, Who::Server), 8);
    assert_eq!(pair.blocked(Who::Client), 0);
}

#[test]
fn a_pending_chunk_and_shut_gates_hold_acknowledgements_back() {
    let mut pair = Setup::new(1, two_lanes()).establish();
    pair.shut_all(Who::Client, true);
    write(&mut pair, Who::Client, CHUNK);
    write(&mut pair, Who::Server, 10_000);
    pair.pass(Duration::from_millis(150));
    assert_eq!(datagrams(&pair, Who::Client), 0);
    assert_eq!(acked(&mut pair, Who::Server), 0);
    assert_eq!(read(&mut pair, Who::Client), 10_000);
    assert!(pair.blocked(Who::Client) > 0);

    // They ride along as soon as one gate is open, whichever path they belong to.
    pair.gate(Who::Client, 1).set_shut(false);
    pair.pass(Duration::from_millis(50));
    assert!(acked(&mut pair, Who::Server) >= 8);
    assert_eq!(read(&mut pair, Who::Server), CHUNK);
    assert!(pair.passed.iter().filter(|passed| passed.from == Who::Client).all(|passed| passed.lane == 1));
}

/// Returns the longest time that the server waits for an acknowledgement over a round trip of 100
/// ms. Meanwhile the first packet of the client's full window is lost and has to be retransmitted.
fn longest_wait(overdraft: Bytes) -> Duration {
    let mut pair = Setup::new(1, vec![Lane::delay_ms(0, 50)]).window(Bytes::kb(60)).establish();
    pair.host(Who::Client).fed = true;
    let (bulk, ticks) = (pair.stream(Who::Client), pair.stream(Who::Server));
    pair.gate(Who::Client, 0).set_overdraft(overdraft);
    for milli in 0..250 {
        if pair.has_room(Who::Client, 0) && milli < 40 {
            pair.link(0, Who::Client).dead = milli == 0;
            pair.feed(Who::Client, 0, bulk, CHUNK);
            pair.link(0, Who::Client).dead = false;
        }
        pair.engine(Who::Server).send_stream(ticks).write(&[0; 100]).unwrap();
        pair.pass(Duration::from_millis(1));
    }
    let mut sent = BTreeMap::new();
    let mut longest = Duration::ZERO;
    for noted in &pair.host(Who::Server).noted {
        match noted.what {
            GateEvent::Sent { pn, .. } => drop(sent.insert(pn, noted.at)),
            GateEvent::Acked { pn, .. } => longest = longest.max(noted.at.since(sent[&pn])),
            _ => {}
        }
    }
    longest
}

#[test]
fn a_retransmission_that_waits_for_room_delays_acknowledgements() {
    // A loss halves the window, so there is no room until half of it has been acknowledged. Until
    // then the engine has data pending, and no acknowledgement passes. Room beyond the window ends
    // that.
    let (without, with) = (longest_wait(Bytes::new(0)), longest_wait(Bytes::kb(60)));
    eprintln!("{without:?} {with:?}");
    assert!(without >= Duration::from_millis(110), "{without:?}");
    assert!(with <= Duration::from_millis(104), "{with:?}");
}

/// Opens a second path while the server has data pending or not, and its first gate shut. The new
/// gate stays open, or is shut before anything leaves. Returns whether the client could establish
/// the path, and whether it gave it up.
fn open(pending: bool, born_shut: bool) -> (bool, bool) {
    let mut pair = Setup::new(1, vec![Lane::delay_ms(0, 10)]).establish();
    pair.add(Lane::delay_ms(1, 15));
    pair.shut_all(Who::Server, true);
    if pending {
        write(&mut pair, Who::Server, CHUNK);
    }
    let (tuple, now) = (pair.tuple(1, Who::Client), pair.instant());
    let id = pair.engine(Who::Client).open_path(tuple, PathStatus::Available, now).unwrap();
    let until = pair.now + Duration::from_secs(5);
    pair.run(until, |pair| {
        if born_shut {
            pair.shut_all(Who::Server, true);
        }
        false
    });
    let host = pair.host(Who::Client);
    let given_up = host.events.iter().any(|event| matches!(event, Event::Path(PathEvent::Abandoned { .. })));
    (host.established.contains(&id), given_up)
}

#[test]
fn path_validation_needs_an_open_gate_or_no_pending_data() {
    assert_eq!(open(false, true), (true, false));
    assert_eq!(open(true, false), (true, false));
    // The client does not give it up either: it stays half open until the gate opens or the path
    // idles out.
    assert_eq!(open(true, true), (false, false));
}

#[test]
fn a_timeout_probe_carries_a_pending_chunk_despite_shut_gates() {
    let mut pair = Setup::new(1, two_lanes()).establish();
    let stream = pair.stream(Who::Client);
    pair.link(1, Who::Client).dead = true;
    pair.feed(Who::Client, 1, stream, CHUNK);
    pair.link(1, Who::Client).dead = false;
    // This chunk is meant for lane 0, and stays in the engine while time passes.
    write(&mut pair, Who::Client, 500);
    pair.pass(Duration::from_secs(1));
    let lanes: Vec<usize> =
        pair.host(Who::Server).read.iter().filter(|piece| piece.len == 500).map(|piece| piece.lane).collect();
    assert_eq!(lanes, [1]);
}

#[test]
fn a_poll_with_all_gates_shut_reveals_whether_data_is_pending() {
    let mut pair = Setup::new(1, two_lanes()).establish();
    assert!(!pair.holds_data(Who::Client));
    let stream = write(&mut pair, Who::Client, 3 * CHUNK);
    assert!(pair.holds_data(Who::Client));
    assert!(pair.settle(Who::Client));
    assert!(!pair.holds_data(Who::Client));

    // Control frames count as data, and so does the end of a stream.
    pair.engine(Who::Client).send_stream(stream).finish().unwrap();
    assert!(pair.holds_data(Who::Client));
    assert!(!pair.engine(Who::Client).has_pending_retransmits());
    assert!(pair.settle(Who::Client));
    let stream = write(&mut pair, Who::Client, 10);
    pair.settle(Who::Client);
    pair.engine(Who::Client).send_stream(stream).reset(VarInt::from_u32(1)).unwrap();
    assert!(pair.engine(Who::Client).has_pending_retransmits());
    assert!(pair.holds_data(Who::Client));
    assert!(pair.settle(Who::Client));

    // A lost chunk counts once the engine has detected the loss.
    let stream = pair.stream(Who::Client);
    pair.link(0, Who::Client).dead = true;
    pair.feed(Who::Client, 0, stream, CHUNK);
    pair.link(0, Who::Client).dead = false;
    for _ in 0..4 {
        pair.feed(Who::Client, 0, stream, CHUNK);
    }
    assert!(!pair.holds_data(Who::Client));
    pair.pass(Duration::from_millis(22));
    assert!(pair.holds_data(Who::Client));
}

#[test]
fn a_close_passes_shut_gates_and_pending_data() {
    let mut pair = Setup::new(1, two_lanes()).establish();
    pair.shut_all(Who::Client, true);
    write(&mut pair, Who::Client, CHUNK);
    let now = pair.instant();
    pair.engine(Who::Client).close(now, VarInt::from_u32(7), "done".into());
    pair.pass(Duration::from_millis(50));
    assert!(pair.host(Who::Server).lost().is_some());
}

#[test]
fn packet_numbers_of_the_handshake_come_again() {
    // The three packet number spaces of path 0 share one controller, which gets a number without
    // its space.
    let mut pair = Setup::new(1, two_lanes()).start();
    pair.pass(Duration::from_millis(200));
    let mut sent: Vec<u64> = pair
        .host(Who::Client)
        .noted
        .iter()
        .filter_map(|noted| match noted.what {
            GateEvent::Sent { pn, .. } => Some(pn),
            _ => None,
        })
        .collect();
    let all = sent.len();
    sent.sort_unstable();
    sent.dedup();
    assert!(sent.len() < all, "{sent:?}");
    assert_eq!(pair.engine(Who::Client).paths(), [PathId::ZERO]);
}
