//! Steering: a chunk fed while one gate is open leaves on that lane, at once and in one packet.

use std::collections::BTreeSet;

use bytes::Bytes as Payload;
use marcato_units::{Bytes, Seed, Time};

use super::pair::{CHUNK, Fed, Lane, Link, MTU, Noted, Pair, Setup, Who};
use crate::controller::Congestion;
use crate::gate::GateEvent;

const SIDES: [Who; 2] = [Who::Client, Who::Server];

fn two_lanes(loss: f64) -> Vec<Lane> {
    vec![Lane::new(0, Link::delay_ms(10).loss(loss)), Lane::new(1, Link::delay_ms(15).loss(loss))]
}

/// Feeds `chunks` of `len` bytes on each side, on lanes chosen at random, and runs until all have
/// been read. Returns the chosen lane and the packets of each chunk.
fn feed_at_random(pair: &mut Pair, seed: u64, chunks: usize, len: usize) -> Vec<(usize, Fed)> {
    let mut lanes = Seed::new(seed).stream("lane choice");
    let streams = SIDES.map(|who| {
        pair.host(who).fed = true;
        (who, pair.stream(who))
    });
    let mut fed = Vec::new();
    let mut left = [chunks; 2];
    let mut next = [0; 2].map(|_: usize| usize::from(lanes.chance(0.5)));
    pair.run(Time::from_secs(60), |pair| {
        for (who, stream) in streams {
            let side = who as usize;
            while left[side] > 0 && pair.settle(who) && pair.has_room(who, next[side]) {
                fed.push((next[side], pair.feed(who, next[side], stream, len)));
                left[side] -= 1;
                next[side] = usize::from(lanes.chance(0.5));
            }
        }
        SIDES
            .iter()
            .all(|&who| pair.host(who).read.iter().map(|piece| piece.len).sum::<usize>() == chunks * len)
    });
    for who in SIDES {
        assert_eq!(pair.host(who).lost(), None);
        let read: usize = pair.host(who).read.iter().map(|piece| piece.len).sum();
        assert_eq!(read, chunks * len, "{who:?} has not read everything by {}", pair.now);
    }
    fed
}

/// Returns whether a chunk left as one packet on the chosen lane.
fn steered((lane, fed): &(usize, Fed)) -> bool {
    fed.left == [*lane] && fed.sent.len() == 1 && fed.sent[0].0 == *lane
}

#[test]
fn every_chunk_leaves_at_once_on_the_lane_that_is_open() {
    for congestion in [Congestion::RENO, Congestion::Cubic, Congestion::Bbr3] {
        for (seed, loss) in [(1, 0.0), (2, 0.01), (3, 0.05)] {
            let mut pair = Setup::new(seed, two_lanes(loss)).congestion(congestion).establish();
            let fed = feed_at_random(&mut pair, seed, 300, CHUNK);
            let wrong: Vec<_> = fed.iter().filter(|chunk| !steered(chunk)).collect();
            assert!(wrong.is_empty(), "{congestion:?}, loss {loss}: {wrong:?}");
            assert_eq!(fed.len(), 600);
        }
    }
}

#[test]
fn every_packet_that_was_sent_is_acknowledged_or_lost() {
    let mut pair = Setup::new(4, two_lanes(0.05)).establish();
    let fed = feed_at_random(&mut pair, 4, 500, CHUNK);
    pair.pass(std::time::Duration::from_secs(3));
    let mut open: [BTreeSet<(usize, u64)>; 2] = Default::default();
    for (side, who) in SIDES.into_iter().enumerate() {
        for &Noted { lane, what, .. } in &pair.host(who).noted {
            let known = match what {
                GateEvent::Sent { pn, .. } => open[side].insert((lane, pn)),
                GateEvent::Acked { pn, .. } | GateEvent::Lost { pn, .. } => open[side].remove(&(lane, pn)),
                GateEvent::Window { .. } => true,
            };
            assert!(known, "{who:?}: {what:?} on lane {lane}");
        }
        assert!(open[side].is_empty(), "{who:?}: {:?}", open[side]);
    }
    assert!(fed.iter().all(|(_, fed)| fed.sent.len() == 1));
}

/// Counts those of 6000 chunks, `shorter` than a packet by this many bytes, that needed a second
/// packet. The window stays constant.
fn spilled(seed: u64, window: Bytes, loss: f64, shorter: usize) -> usize {
    let lanes =
        vec![Lane::new(0, Link::delay_ms(40).loss(loss)), Lane::new(1, Link::delay_ms(60).loss(loss))];
    let steady = Congestion::NewReno { loss_reduction_factor: 0.999 };
    let mut pair = Setup::new(seed, lanes).window(window).congestion(steady).establish();
    let fed = feed_at_random(&mut pair, seed, 3000, usize::from(MTU) - shorter);
    for (lane, chunk) in &fed {
        // The rest follows at once on the same lane, if the engine is polled before the gate is
        // shut.
        assert!(chunk.left == [*lane] || chunk.left == [*lane; 2], "meant for lane {lane}: {chunk:?}");
    }
    fed.iter().filter(|(_, fed)| fed.left.len() > 1).count()
}

#[test]
fn an_80_byte_margin_fits_a_chunk_unless_acks_have_many_ranges() {
    let (narrow, wide) = (Bytes::kb(60), Bytes::kb(1000));
    assert_eq!(spilled(1, narrow, 0.0, 80), 0);
    assert_eq!(spilled(1, wide, 0.0, 80), 0);
    // Acknowledgements that may not leave alone yet ride along. Without loss they take less than 80
    // bytes and more than 60.
    let tight = spilled(1, wide, 0.0, 60);
    assert!((10..180).contains(&tight), "{tight}");
    // With loss a wide window has gaps, each of which lengthens the ACK frame: no fixed margin is
    // safe.
    let holes = spilled(1, wide, 0.01, 80);
    assert!((10..180).contains(&holes), "{holes}");
}

#[test]
fn datagram_frames_are_steered_and_reported_acked_or_lost() {
    let mut pair = Setup::new(5, two_lanes(0.05)).establish();
    let largest = pair.engine(Who::Client).datagrams().max_size();
    assert_eq!(largest, Some(1414));
    pair.host(Who::Client).fed = true;
    let mut lanes = Seed::new(5).stream("lane choice");
    let mut next = 0;
    let mut fed = Vec::new();
    pair.run(Time::from_secs(20), |pair| {
        while fed.len() < 500 && pair.settle(Who::Client) && pair.has_room(Who::Client, next) {
            let chunk = pair.feed_by(Who::Client, next, |connection| {
                connection.datagrams().send(Payload::from(vec![0; CHUNK]), false).unwrap();
            });
            fed.push((next, chunk));
            next = usize::from(lanes.chance(0.5));
        }
        fed.len() == 500
    });
    pair.pass(std::time::Duration::from_secs(3));
    assert_eq!(fed.iter().filter(|chunk| steered(chunk)).count(), 500);

    let mut received = 0;
    while pair.engine(Who::Server).datagrams().recv().is_some() {
        received += 1;
    }
    let sent: BTreeSet<(usize, u64)> = fed.iter().map(|(_, fed)| fed.sent[0]).collect();
    let reported = |acked: bool, pair: &mut Pair| {
        let noted = &pair.host(Who::Client).noted;
        noted
            .iter()
            .filter(|noted| match noted.what {
                GateEvent::Acked { pn, .. } => acked && sent.contains(&(noted.lane, pn)),
                GateEvent::Lost { pn, .. } => !acked && sent.contains(&(noted.lane, pn)),
                _ => false,
            })
            .count()
    };
    // Lost datagrams are not retransmitted. A late acknowledgement turns a received one into a
    // loss.
    let (acked, lost) = (reported(true, &mut pair), reported(false, &mut pair));
    assert_eq!(acked + lost, 500);
    assert!((acked..=acked + 2).contains(&received), "{received} received, {acked} acknowledged");
    assert!(lost > 10, "{lost}");
}
