//! Tests of flows that come and go.

use marcato_sim::{
    Bulk, Congestion, Distribution, FlowArrivals, FlowOutcome, FlowProcess, FlowRecord, FlowTally,
    LinkConfig, Loss, Network, ProcessId, ProcessStats, Side, SpawnError, Tcp, TcpFlow,
};
use marcato_units::{Bytes, Duration, Rate, Time};
use proptest::prelude::*;

use crate::world::World;

/// Two hosts on a link of 20 Mbit/s, 10 ms one way, with room for 50 packets.
fn world(seed: u64, loss: f64) -> World {
    World::new(seed, 20, 10, 50, [Loss::Random(loss), Loss::Random(loss)])
}

fn sizes() -> Distribution<Bytes> {
    Distribution::truncated_pareto(1.5, Bytes::kb(20), Bytes::kb(500)).unwrap()
}

fn process(world: &World, arrivals: FlowArrivals) -> FlowProcess {
    FlowProcess::new(world.client, world.server, Tcp::with(Congestion::Reno), sizes(), arrivals)
}

/// Checks the invariants of a process at any moment.
fn check(net: &Network, id: ProcessId) {
    let stats = net.process_stats(id);
    let ProcessStats { spawned, completed, failed, reset, open, unrecorded, .. } = stats;
    assert_eq!(spawned, completed + failed + reset + open);
    let records = net.flow_records(id);
    assert_eq!(records.len() as u64 + unrecorded, spawned - open);
    assert_eq!(net.open_flows(id).len() as u64, open);
    for record in records {
        match record.outcome() {
            FlowOutcome::Completed => {
                assert_eq!(record.received(), record.size());
                assert!(record.start() < record.first_sent_at().unwrap());
                assert!(record.first_sent_at() < record.first_received_at());
                assert!(record.first_received_at() <= record.last_received_at());
                assert!(record.completion().unwrap() >= Duration::from_millis(30), "{record:?}");
            }
            _ => assert!(record.received() <= record.size() && record.completion().is_none()),
        }
    }
}

#[test]
fn every_flow_of_a_process_transfers_its_size_and_is_gone() {
    let mut world = world(1, 0.0);
    let flows = process(&world, FlowArrivals::PerSecond(50.0)).stop(Time::from_secs(20));
    let id = world.net.spawn(flows).unwrap();
    world.net.run_until(Time::from_secs(30));
    check(&world.net, id);
    let stats = world.net.process_stats(id);
    // Poisson count with mean 1000: five standard deviations.
    assert!((842..=1158).contains(&stats.spawned), "{stats:?}");
    assert_eq!((stats.completed, stats.open, stats.refused), (stats.spawned, 0, 0));
    // Each number occurs once.
    let mut numbers: Vec<_> = world.net.flow_records(id).iter().map(FlowRecord::number).collect();
    numbers.sort_unstable();
    assert!((0..).zip(&numbers).all(|(expected, &number)| expected == number));
    // Once their timers have expired, all packets are accounted for.
    let sides = [stats.from_clients, stats.from_servers];
    for (FlowTally { sent, arrived, dropped, .. }, link) in sides.into_iter().zip([world.there, world.back]) {
        assert_eq!(sent, arrived + dropped);
        assert_eq!(sent, world.net.link_counters(link).offered);
    }
}

#[test]
fn the_slots_of_flows_that_are_gone_are_used_again() {
    let mut world = world(1, 0.0);
    let flows = process(&world, FlowArrivals::PerSecond(50.0));
    let id = world.net.spawn(flows).unwrap();
    world.net.run_until(Time::from_secs(20));
    let early = world.net.flow_slots();
    world.net.run_until(Time::from_secs(200));
    check(&world.net, id);
    assert!(world.net.process_stats(id).spawned > 9_000);
    // A flow keeps its slot for a second or so, until its last timer expires: 50 or 60 of them,
    // more in a burst.
    let late = world.net.flow_slots();
    assert!(late < 250 && early < 250, "{early} slots after 20 s, {late} after 200 s");
}

#[test]
fn an_offered_load_is_carried() {
    let mut world = world(2, 0.0);
    let sizes = Distribution::exponential(Bytes::kb(20)).unwrap();
    let flows = process(&world, FlowArrivals::Offering(Rate::from_mbps(10)));
    let id = world.net.spawn(FlowProcess { sizes, ..flows }).unwrap();
    world.net.run_until(Time::from_secs(100));
    let received: Bytes = world.net.flow_records(id).iter().map(FlowRecord::received).sum();
    // 6250 flows whose sizes have a standard deviation equal to the mean: of the sum it is 1.8 %;
    // five of them.
    let share = received.get() as f64 * 8.0 / 100.0 / 10e6;
    assert!((0.91..1.09).contains(&share), "{share}");
}

#[test]
fn a_download_comes_from_the_server() {
    let mut world = world(3, 0.0);
    let flows = process(&world, FlowArrivals::PerSecond(5.0)).sender(Side::Server);
    let id = world.net.spawn(flows).unwrap();
    world.net.run_until(Time::from_secs(20));
    check(&world.net, id);
    let bytes = |link| world.net.link_counters(link).delivered_bytes;
    assert!(bytes(world.back) > bytes(world.there) * 5);
}

#[test]
fn more_than_may_be_open_at_once_are_refused_and_counted() {
    let mut world = world(4, 0.0);
    // 40 Mbit/s offered to 20.
    let flows = process(&world, FlowArrivals::Offering(Rate::from_mbps(40))).most_at_once(30);
    let id = world.net.spawn(flows).unwrap();
    world.net.run_until(Time::from_secs(20));
    check(&world.net, id);
    let stats = world.net.process_stats(id);
    assert_eq!(stats.most_open, 30);
    assert!(stats.refused > 1_000, "{stats:?}");
}

#[test]
fn records_beyond_the_bound_are_only_counted() {
    let mut world = world(5, 0.0);
    let flows = FlowProcess { most_records: 7, ..process(&world, FlowArrivals::PerSecond(20.0)) };
    let id = world.net.spawn(flows).unwrap();
    world.net.run_until(Time::from_secs(5));
    check(&world.net, id);
    assert_eq!(world.net.flow_records(id).len(), 7);
    assert!(world.net.process_stats(id).unrecorded > 20);
}

#[test]
fn handshakes_that_nobody_answers_are_given_up() {
    let mut world = world(6, 0.0);
    world.net.set_link_up_at(world.there, Time::ZERO, false);
    let flows = process(&world, FlowArrivals::PerSecond(10.0)).stop(Time::from_secs(2));
    let id = world.net.spawn(flows).unwrap();
    world.net.run_until(Time::from_secs(300));
    check(&world.net, id);
    let stats = world.net.process_stats(id);
    assert!(stats.spawned > 0);
    assert_eq!((stats.failed, stats.open), (stats.spawned, 0));
    assert_eq!(stats.from_clients.sent, 7 * stats.spawned);
}

#[test]
fn an_invalid_process_gives_its_reason() {
    let mut world = world(7, 0.0);
    let alone = world.net.node("alone");
    for arrivals in [
        FlowArrivals::PerSecond(0.0),
        FlowArrivals::PerSecond(f64::NAN),
        FlowArrivals::PerSecond(-1.0),
        FlowArrivals::Offering(Rate::ZERO),
        FlowArrivals::Gaps(Distribution::constant(Duration::ZERO)),
    ] {
        let flows = process(&world, arrivals);
        assert_eq!(world.net.spawn(flows), Err(SpawnError::Arrivals), "{arrivals:?}");
    }
    let flows = FlowProcess { server: alone, ..process(&world, FlowArrivals::PerSecond(1.0)) };
    assert!(matches!(world.net.spawn(flows), Err(SpawnError::Route(_))));
    let config = Tcp { mss: 0, ..Tcp::with(Congestion::Reno) };
    let flows = FlowProcess { client_config: config.into(), ..process(&world, FlowArrivals::PerSecond(1.0)) };
    assert!(matches!(world.net.spawn(flows), Err(SpawnError::Config(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Under any losses, the counts are consistent all the time, and one seed gives one result.
    #[test]
    fn accounts_are_in_order_and_one_seed_gives_one_result(
        seed in any::<u64>(), loss in 0.0f64..0.2, rate in 1.0f64..100.0, most in 1u64..60, download in any::<bool>(),
    ) {
        let run = || {
            let mut world = world(seed, loss);
            let flows = process(&world, FlowArrivals::PerSecond(rate)).most_at_once(most);
            let side = if download { Side::Server } else { Side::Client };
            let id = world.net.spawn(flows.sender(side).stop(Time::from_secs(10))).unwrap();
            for s in 1..=12 {
                // Debug builds check conservation at the end of each.
                world.net.run_until(Time::from_secs(s));
                check(&world.net, id);
                assert!(world.net.process_stats(id).most_open <= most);
            }
            let open = world.net.open_flows(id);
            (world.net.process_stats(id), world.net.flow_records(id).to_vec(), open, world.net.events())
        };
        prop_assert_eq!(run(), run());
    }

    /// A process elsewhere, or a second one, does not change the draws of a flow or process.
    #[test]
    fn a_process_elsewhere_changes_nothing(seed in any::<u64>(), before in any::<bool>()) {
        let run = |beside: bool| {
            let mut world = world(seed, 0.01);
            let elsewhere = |net: &mut Network| {
                let (a, b) = (net.node("a"), net.node("b"));
                let link = || LinkConfig::new(Rate::from_mbps(3), Duration::from_millis(7));
                net.link(a, b, link(), link());
                let arrivals = FlowArrivals::PerSecond(20.0);
                net.spawn(FlowProcess::new(a, b, Tcp::with(Congestion::Reno), sizes(), arrivals)).unwrap();
            };
            if beside && before {
                elsewhere(&mut world.net);
            }
            let bulk = TcpFlow::new(world.client, world.server, Tcp::with(Congestion::Reno), Bulk::new(Bytes::kb(900)));
            let bulk = world.net.tcp(bulk).unwrap();
            let id = world.net.spawn(process(&world, FlowArrivals::PerSecond(20.0))).unwrap();
            if beside && !before {
                elsewhere(&mut world.net);
            }
            world.net.run_until(Time::from_secs(8));
            let net = &world.net;
            (net.tcp_stats(bulk, Side::Client), net.flow_records(id).to_vec(), net.process_stats(id))
        };
        prop_assert_eq!(run(false), run(true));
    }
}
