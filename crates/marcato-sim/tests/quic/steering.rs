//! Tests that every packet leaves on its intended lane, and every byte arrives once.

use std::collections::BTreeSet;

use marcato_quic::{PathScheduler, SessionConfig, StreamUse};
use marcato_sched::conductor::Redundancy;
use marcato_sched::schedule::CwrConfig;
use marcato_sim::{Loss, Side};
use marcato_units::Priority;
use proptest::prelude::*;

use crate::common::*;

const SCHEDULERS: [PathScheduler; 5] = [
    PathScheduler::LowRtt,
    PathScheduler::RoundRobin,
    PathScheduler::Cwr(CwrConfig::paper()),
    PathScheduler::CwrRed(CwrConfig::paper()),
    PathScheduler::Selective(Priority::P0),
];

/// Urgent messages, half of them on every lane, with background data.
fn mixed(direction: u64) -> Peer {
    let urgent = every(at(200), ms(20), 40, Priority::P0, 4000).map(|(at, mut message)| {
        if at.as_nanos() / 1_000_000 % 40 == 0 {
            message.redundancy = Redundancy::EveryLane;
        }
        (at, message)
    });
    let small = every(at(205), ms(7), 80, Priority::P2, 300 + usize::try_from(direction).unwrap());
    Peer::new().sending(urgent.chain(small)).filling(Priority::P4, at(1000))
}

#[test]
fn any_scheduler_controller_and_loss_delivers_once_on_its_lane() {
    let mut seed = 0;
    for scheduler in SCHEDULERS {
        for congestion in CONTROLLERS {
            for loss in [0.0, 0.01, 0.05] {
                seed += 1;
                let config = SessionConfig { path_scheduler: scheduler, congestion, ..Default::default() };
                let paths = [(10, 10), (10, 25)]
                    .map(|(mbps, delay)| path(mbps, delay).map(|link| link.loss(Loss::Random(loss))));
                let (client, server) = match seed % 3 {
                    0 => (mixed(0), Peer::new()),
                    1 => (Peer::new(), mixed(1)),
                    _ => (mixed(0), mixed(1)),
                };
                let mut pair = Pair::new(seed, &config, paths.into(), client, server);
                pair.run(20_000);
                let what = format!("{scheduler:?} {congestion:?} {loss} {}", seed % 3);
                for side in [Side::Client, Side::Server] {
                    let stats = pair.session(side).stats();
                    assert_eq!(stats.misrouted, 0, "{what}: {stats:?}");
                }
                pair.assert_delivered(Side::Client);
                pair.assert_delivered(Side::Server);
                pair.assert_clean();
            }
        }
    }
}

#[derive(Clone, Debug)]
struct World {
    seed: u64,
    paths: Vec<Line>,
    messages: Vec<Sent>,
    outages: Vec<Outage>,
    acts: Vec<Done>,
    /// Index into [`SCHEDULERS`].
    scheduler: usize,
    /// Index into [`CONTROLLERS`].
    congestion: usize,
    reuse: bool,
}

/// One path, the same in both directions.
#[derive(Clone, Copy, Debug)]
struct Line {
    mbps: u64,
    /// One-way delay in ms.
    delay: u64,
    lost_per_mille: u32,
    queued_packets: u64,
}

/// Message of an application. Times are in ms.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: u64,
    from: Side,
    level: u8,
    len: usize,
    on_every_lane: bool,
    /// Time after its offer at which it is cancelled.
    cancelled_after: Option<u64>,
}

/// Time for which one direction of a path carries nothing, in ms.
#[derive(Clone, Copy, Debug)]
struct Outage {
    path: usize,
    from: Side,
    at: u64,
    lasts: u64,
}

/// Action of one end on one of its lanes, at a time in ms.
#[derive(Clone, Copy, Debug)]
struct Done {
    at: u64,
    by: Side,
    lane: u8,
    act: Act,
}

/// Action on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Spare(bool),
    Remove,
    Add,
    Move(bool),
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        any::<bool>().prop_map(Act::Spare),
        Just(Act::Remove),
        Just(Act::Add),
        any::<bool>().prop_map(Act::Move),
    ]
}

/// Performs an action on a lane, if it is possible.
fn act(pair: &mut Pair, side: Side, index: u8, what: Act) {
    use marcato_sched::lane::LaneId;
    use marcato_sim::Rebinding;
    let lane = LaneId::new(index).unwrap();
    let path = usize::from(index);
    match what {
        Act::Spare(spare) => {
            let _ = pair.with(side, |session, now| session.set_backup(now, lane, spare));
        }
        Act::Remove => {
            let _ = pair.with(side, |session, now| session.remove_lane(now, lane));
        }
        Act::Add if path < pair.links.len() => {
            let _ = pair.add_lane(path);
        }
        Act::Move(port) if path < pair.links.len() => {
            let rebinding = if port { Rebinding::Port } else { Rebinding::Ip };
            let route = pair.route(path);
            pair.net.rebind(pair.flow, Side::Client, route, rebinding).unwrap();
        }
        Act::Add | Act::Move(_) => {}
    }
}

fn side() -> impl Strategy<Value = Side> {
    any::<bool>().prop_map(|client| if client { Side::Client } else { Side::Server })
}

fn worlds() -> impl Strategy<Value = World> {
    let path = (2..50u64, 1..60u64, 0..50u32, 20..200u64).prop_map(
        |(mbps, delay, lost_per_mille, queued_packets)| Line { mbps, delay, lost_per_mille, queued_packets },
    );
    let message = (
        0..1500u64,
        side(),
        0..5u8,
        prop_oneof![1..100usize, 1000..3000usize, 10_000..200_000usize],
        any::<bool>(),
        prop::option::weighted(0.2, 0..200u64),
    )
        .prop_map(|(at, from, level, len, on_every_lane, cancelled_after)| Sent {
            at,
            from,
            level,
            len,
            on_every_lane,
            cancelled_after,
        });
    let outage = (0..4usize, side(), 100..2000u64, 1..3000u64).prop_map(|(path, from, at, lasts)| Outage {
        path,
        from,
        at,
        lasts,
    });
    let done =
        (0..2500u64, side(), 0..4u8, acts()).prop_map(|(at, by, lane, act)| Done { at, by, lane, act });
    (
        any::<u64>(),
        prop::collection::vec(path, 1..4),
        prop::collection::vec(message, 1..40),
        prop::collection::vec(outage, 0..3),
        prop::collection::vec(done, 0..6),
        0..SCHEDULERS.len(),
        0..CONTROLLERS.len(),
        any::<bool>(),
    )
        .prop_map(|(seed, paths, messages, outages, acts, scheduler, congestion, reuse)| World {
            seed,
            paths,
            messages,
            outages,
            acts,
            scheduler,
            congestion,
            reuse,
        })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Send,
    Cancel,
    Act,
}

fn check(world: &World) {
    use marcato_quic::{Event, Message};
    let config = SessionConfig {
        path_scheduler: SCHEDULERS[world.scheduler],
        congestion: CONTROLLERS[world.congestion],
        streams: if world.reuse { StreamUse::Reuse } else { StreamUse::PerMessage },
        ..Default::default()
    };
    // The engine challenges an address that has moved for at most three PTOs. Without a response by
    // then, it neither acknowledges anything there any more nor closes the path. So where addresses
    // move, nothing is lost: neither at random, nor for lack of room, nor by a second move before
    // validation. Each moves once.
    let moves = world.acts.iter().any(|done| matches!(done.act, Act::Move(_)));
    let paths = world.paths.iter().map(|line| {
        path(line.mbps, line.delay).map(|link| {
            link.loss(Loss::Random(if moves { 0.0 } else { f64::from(line.lost_per_mille) / 1000.0 }))
                .queue(short_queue(if moves { 100_000 } else { line.queued_packets }))
        })
    });
    let mut pair = Pair::new(world.seed, &config, paths.collect(), Peer::new(), Peer::new());
    for outage in world.outages.iter().filter(|_| !moves) {
        if let Some(&(up, down)) = pair.links.get(outage.path) {
            let link = if outage.from == Side::Client { up } else { down };
            pair.net.set_link_up_at(link, at(outage.at), false);
            pair.net.set_link_up_at(link, at(outage.at + outage.lasts), true);
        }
    }
    let mut steps = Vec::new();
    for (index, sent) in world.messages.iter().enumerate() {
        steps.push((sent.at, index, Step::Send));
        if let Some(after) = sent.cancelled_after {
            steps.push((sent.at + after, index, Step::Cancel));
        }
    }
    steps.extend(world.acts.iter().enumerate().map(|(index, done)| (done.at, index, Step::Act)));
    steps.sort();
    let mut moved = BTreeSet::new();
    let mut ids = vec![None; world.messages.len()];
    for (when, index, step) in steps {
        pair.run(when + 300);
        let side = if step == Step::Act { world.acts[index].by } else { world.messages[index].from };
        if pair.host(side).session().is_none() {
            continue;
        }
        let sent = match step {
            Step::Send => world.messages[index],
            Step::Cancel => {
                if let Some(id) = ids[index] {
                    let _ = pair.with(side, |session, now| session.cancel(now, id));
                }
                continue;
            }
            Step::Act => {
                let done = world.acts[index];
                if matches!(done.act, Act::Move(_)) && !moved.insert(done.lane) {
                    continue;
                }
                act(&mut pair, side, done.lane, done.act);
                continue;
            }
        };
        let mut message =
            Message::new(body(index as u64, sent.len)).with_priority(Priority::ALL[usize::from(sent.level)]);
        if sent.on_every_lane {
            message.redundancy = Redundancy::EveryLane;
        }
        ids[index] = Some(pair.send(side, message));
    }
    pair.run(60_000);
    let ended = |side: Side| pair.peer(side).count(|event| matches!(event, Event::Closed { .. })) > 0;
    if ended(Side::Client) || ended(Side::Server) || pair.host(Side::Server).session().is_none() {
        // One end removed its last lane while the other's last was silent, or moved. Everything
        // that arrived, arrived once.
        assert!(!world.acts.is_empty() || !world.outages.is_empty());
        return;
    }
    for side in [Side::Client, Side::Server] {
        let Some(session) = pair.host(side).session() else { continue };
        let other = if side == Side::Client { Side::Server } else { Side::Client };
        let peer = pair.peer(side);
        let dropped: Vec<_> = peer
            .events
            .iter()
            .filter_map(
                |(_, event)| if let Event::Dropped { message, .. } = event { Some(*message) } else { None },
            )
            .collect();
        let kept = peer.sent.iter().filter(|sent| !dropped.contains(&sent.id));
        let mut kept: Vec<_> = kept.map(|it| (it.priority, it.len, it.hash)).collect();
        kept.sort_unstable();
        assert_eq!(kept, pair.peer(other).complete(), "from the {side:?}: {:?}", session.load());
        let delivered = peer.count(|event| matches!(event, Event::Delivered(_)));
        assert_eq!(delivered, kept.len(), "from the {side:?}");
    }
    pair.assert_clean();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(24), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn data_that_was_not_dropped_arrives_once_in_any_network(world in worlds()) {
        check(&world);
    }
}

/// The engine filled the rest of a packet with a short piece of a loss. When many such pieces were
/// retransmitted in one packet, the receiver's engine lost some of them, and acknowledged them all
/// the same.
#[test]
fn no_byte_is_lost_with_exceeded_windows_and_short_queues() {
    let line = |mbps, delay, queued_packets| Line { mbps, delay, lost_per_mille: 0, queued_packets };
    let sent = |at, level, len| Sent {
        at,
        from: Side::Client,
        level,
        len,
        on_every_lane: false,
        cancelled_after: None,
    };
    check(&World {
        seed: 9_728_686_970_427_422_312,
        paths: vec![line(41, 15, 26), line(14, 20, 20), line(2, 1, 20)],
        messages: vec![sent(384, 1, 139_676), sent(0, 1, 33_205), sent(386, 0, 143_409)],
        outages: Vec::new(),
        acts: Vec::new(),
        scheduler: 4,
        congestion: 2,
        reuse: false,
    });
}

/// Each end repeated its last packets of the handshake through an outage, together with lost data.
/// The session waited for acknowledgements of the former, of which the engine reports none.
#[test]
fn lost_packets_of_the_handshake_hold_nothing_back() {
    let outage = |from, lasts| Outage { path: 0, from, at: 100, lasts };
    check(&World {
        seed: 14_745_941_751_126_337_300,
        paths: vec![Line { mbps: 7, delay: 22, lost_per_mille: 14, queued_packets: 20 }],
        messages: vec![Sent {
            at: 180,
            from: Side::Client,
            level: 0,
            len: 1,
            on_every_lane: false,
            cancelled_after: None,
        }],
        outages: vec![outage(Side::Client, 930), outage(Side::Server, 2076)],
        acts: Vec::new(),
        scheduler: 0,
        congestion: 0,
        reuse: false,
    });
}
