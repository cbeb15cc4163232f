//! Two states that the engine keeps per connection rather than per path: the key phase and the spin
//! bit.

use std::time::Duration;

use marcato_units::{Bytes, Time};
use noq_proto::PathId;

use super::pair::{CHUNK, Lane, Pair, Setup, Who};

/// Feeds three packets to lane 1 for each on lane 0, without loss, and far more than a first key
/// phase lasts (10 to 1000). Returns the packets declared lost on each lane, and the congestion
/// events that they caused.
fn taken_for_lost(seed: u64, slow: u64) -> [(u64, u64); 2] {
    let lanes = vec![Lane::delay_ms(0, 10), Lane::delay_ms(1, slow)];
    let mut pair = Setup::new(seed, lanes).window(Bytes::kb(200)).establish();
    pair.host(Who::Client).fed = true;
    let stream = pair.stream(Who::Client);
    let mut fed = 0;
    let limit = pair.now + Duration::from_secs(5);
    pair.run(limit, |pair| {
        if fed < 1500 && pair.settle(Who::Client) {
            for lane in [0, 1, 1, 1] {
                if fed < 1500 && pair.has_room(Who::Client, lane) {
                    fed += 1;
                    pair.feed(Who::Client, lane, stream, CHUNK);
                }
            }
        }
        pair.wake_at(pair.now + Duration::from_micros(500));
        pair.host(Who::Server).read.iter().map(|piece| piece.len).sum::<usize>() == 1500 * CHUNK
    });
    assert_eq!(fed, 1500);
    assert!(pair.passed.iter().all(|passed| !passed.dropped));
    let read: usize = pair.host(Who::Server).read.iter().map(|piece| piece.len).sum();
    assert_eq!(read, 1500 * CHUNK);
    [0u32, 1].map(|lane| {
        let stats = pair.engine(Who::Client).path_stats(PathId::from(lane)).unwrap();
        (stats.lost_packets, stats.congestion_events)
    })
}

#[test]
fn a_key_update_loses_undropped_packets_of_the_slower_lane() {
    let unequal: Vec<_> = (1..=4).map(|seed| taken_for_lost(seed, 30)).collect();
    let equal: Vec<_> = (1..=4).map(|seed| taken_for_lost(seed, 10)).collect();
    eprintln!("{unequal:?} {equal:?}");
    assert!(unequal.iter().any(|lanes| lanes[1].0 > 0 && lanes[1].1 > 0), "{unequal:?}");
    assert!(unequal.iter().all(|lanes| lanes[0] == (0, 0)), "{unequal:?}");
    assert!(equal.iter().flatten().all(|&lost| lost == (0, 0)), "{equal:?}");
}

/// Returns the spans between changes of the spin bit in the client's packets on each lane.
fn edges(seed: u64, lanes: Vec<Lane>) -> Vec<Vec<Duration>> {
    let count = lanes.len();
    let mut pair: Pair = Setup::new(seed, lanes).window(Bytes::kb(100)).establish();
    pair.host(Who::Client).fed = true;
    let stream = pair.stream(Who::Client);
    let start = pair.now;
    let mut next: Time = start;
    let mut fed = 0;
    pair.run(start + Duration::from_secs(1), |pair| {
        if pair.now >= next && pair.settle(Who::Client) {
            pair.feed(Who::Client, fed % count, stream, 500);
            fed += 1;
            next = pair.now + Duration::from_millis(1);
        }
        pair.wake_at(next);
        false
    });
    let edges_of = |lane: usize| {
        let bits = pair.passed.iter().filter(|passed| passed.from == Who::Client && passed.lane == lane);
        let bits: Vec<(Time, bool)> = bits.filter_map(|passed| Some((passed.at, passed.spin?))).collect();
        let changes: Vec<Time> =
            bits.windows(2).filter(|two| two[0].1 != two[1].1).map(|two| two[1].0).collect();
        changes.windows(2).map(|two| two[1].since(two[0])).collect()
    };
    (0..count).map(edges_of).collect()
}

/// Returns whether all spans are about the round trip of 20 ms.
fn clean(spans: &[Duration]) -> bool {
    spans.len() > 30 && spans.iter().all(|span| (19..=23).contains(&span.as_millis()))
}

#[test]
fn the_spin_bit_shows_the_rtt_of_a_single_path_unless_hidden() {
    let seeds = 1..=40;
    let shown = seeds.clone().filter(|&seed| clean(&edges(seed, vec![Lane::delay_ms(0, 10)])[0])).count();
    eprintln!("{shown} of 40");
    // Each side hides it in one connection of eight, and both have to show it.
    assert!((24..=37).contains(&shown), "{shown} of 40");
}

#[test]
fn the_spin_bit_of_two_paths_used_in_turn_is_noise() {
    let lanes = || vec![Lane::delay_ms(0, 10), Lane::delay_ms(1, 30)];
    for seed in 1..=4 {
        for spans in edges(seed, lanes()) {
            let (shortest, longest) = (spans.iter().min().unwrap(), spans.iter().max().unwrap());
            eprintln!("{} edges from {shortest:?} to {longest:?}", spans.len());
            assert!(*longest > *shortest * 3, "{shortest:?} to {longest:?}");
        }
    }
}
