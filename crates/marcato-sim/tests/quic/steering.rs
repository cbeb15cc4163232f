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
    /// Rate in Mbit/s, one-way delay, loss in thousandths, and queue length in packets of each
    /// path.
    paths: Vec<(u64, u64, u32, u64)>,
    /// Time, side, level and length of each message; true if on every lane; time of a cancellation.
    messages: Vec<(u64, bool, u8, usize, bool, Option<u64>)>,
    /// Path, direction (true if from the client), time and duration of each outage.
    outages: Vec<(usize, bool, u64, u64)>,
    /// Time, side, lane and action.
    acts: Vec<(u64, bool, u8, Act)>,
    scheduler: usize,
    congestion: usize,
    reuse: bool,
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

fn worlds() -> impl Strategy<Value = World> {
    let path = (2..50u64, 1..60u64, 0..50u32, 20..200u64);
    let message = (
        0..1500u64,
        any::<bool>(),
        0..5u8,
        prop_oneof![1..100usize, 1000..3000usize, 10_000..200_000usize],
        any::<bool>(),
        prop::option::weighted(0.2, 0..200u64),
    );
    (
        any::<u64>(),
        prop::collection::vec(path, 1..4),
        prop::collection::vec(message, 1..40),
        prop::collection::vec((0..4usize, any::<bool>(), 100..2000u64, 1..3000u64), 0..3),
        prop::collection::vec((0..2500u64, any::<bool>(), 0..4u8, acts()), 0..6),
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
    let moves = world.acts.iter().any(|(.., what)| matches!(what, Act::Move(_)));
    let paths = world.paths.iter().map(|&(mbps, delay, loss, packets)| {
        path(mbps, delay).map(|link| {
            link.loss(Loss::Random(if moves { 0.0 } else { f64::from(loss) / 1000.0 }))
                .queue(short_queue(if moves { 100_000 } else { packets }))
        })
    });
    let mut pair = Pair::new(world.seed, &config, paths.collect(), Peer::new(), Peer::new());
    for &(index, client, when, span) in world.outages.iter().filter(|_| !moves) {
        if let Some(&(up, down)) = pair.links.get(index) {
            let link = if client { up } else { down };
            pair.net.set_link_up_at(link, at(when), false);
            pair.net.set_link_up_at(link, at(when + span), true);
        }
    }
    let mut steps = Vec::new();
    for (index, &(when, .., cancel)) in world.messages.iter().enumerate() {
        steps.push((when, index, Step::Send));
        if let Some(after) = cancel {
            steps.push((when + after, index, Step::Cancel));
        }
    }
    steps.extend(world.acts.iter().enumerate().map(|(index, &(when, ..))| (when, index, Step::Act)));
    steps.sort();
    let mut moved = BTreeSet::new();
    let mut ids = vec![None; world.messages.len()];
    for (when, index, step) in steps {
        pair.run(when + 300);
        let client = if step == Step::Act { world.acts[index].1 } else { world.messages[index].1 };
        let side = if client { Side::Client } else { Side::Server };
        if pair.host(side).session().is_none() {
            continue;
        }
        let (_, _, priority, len, everywhere, _) = match step {
            Step::Send => world.messages[index],
            Step::Cancel => {
                if let Some(id) = ids[index] {
                    let _ = pair.with(side, |session, now| session.cancel(now, id));
                }
                continue;
            }
            Step::Act => {
                let (_, _, lane, what) = world.acts[index];
                if matches!(what, Act::Move(_)) && !moved.insert(lane) {
                    continue;
                }
                act(&mut pair, side, lane, what);
                continue;
            }
        };
        let mut message =
            Message::new(body(index as u64, len)).with_priority(Priority::ALL[usize::from(priority)]);
        if everywhere {
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
    check(&World {
        seed: 9_728_686_970_427_422_312,
        paths: vec![(41, 15, 0, 26), (14, 20, 0, 20), (2, 1, 0, 20)],
        messages: vec![
            (384, true, 1, 139_676, false, None),
            (0, true, 1, 33_205, false, None),
            (386, true, 0, 143_409, false, None),
        ],
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
fn no_packet_of_the_handshake_is_awaited() {
    check(&World {
        seed: 14_745_941_751_126_337_300,
        paths: vec![(7, 22, 14, 20)],
        messages: vec![(180, true, 0, 1, false, None)],
        outages: vec![(0, true, 100, 930), (0, false, 100, 2076)],
        acts: Vec::new(),
        scheduler: 0,
        congestion: 0,
        reuse: false,
    });
}
