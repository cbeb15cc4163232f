//! Tests of the sender and reader of real TCP connections over a simulated TCP.

use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_sched::conductor::Message;
use marcato_sched::{Conductor, Config, Feeder};
use marcato_sim::{
    Collector, Conducted, Congestion, FlowId, Framed, LinkConfig, Loss, Network, Planned, Side, Tag, Tcp,
    TcpFlow,
};
use marcato_stream::{Limits, MissedReason, NotDelivered};
use marcato_units::{Bytes, Duration, Priority, Rate, Seed, Time};
use proptest::prelude::*;

const CHUNK: Bytes = Bytes::new(1448);

fn tcp() -> Tcp {
    Tcp { notsent_lowat: Some(CHUNK), ..Tcp::with(Congestion::Reno) }
}

fn link(loss: f64) -> LinkConfig {
    let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(30) }).unwrap();
    LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20)).loss(Loss::Random(loss)).queue(queue)
}

fn framed(seed: u64, loss: f64, plans: [Vec<Planned>; 2]) -> (Network, FlowId) {
    let mut net = Network::new(Seed::new(seed));
    let (left, right) = (net.node("left"), net.node("right"));
    net.link(left, right, link(loss), link(loss));
    let (client, server) = Framed::pair(Config::default(), Limits::default(), CHUNK, plans).unwrap();
    let flow = net.tcp(TcpFlow::new(left, right, tcp(), client).server_app(server)).unwrap();
    (net, flow)
}

fn end(net: &Network, flow: FlowId, side: Side) -> &Framed {
    net.app(flow, side).unwrap()
}

fn planned() -> impl Strategy<Value = Vec<Planned>> {
    let one = (0..2000u64, 1..30_000u64, 0..5usize).prop_map(|(after, len, level)| {
        Planned::now(Bytes::new(len), Priority::ALL[level]).after(Duration::from_millis(after))
    });
    prop::collection::vec(one, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_message_arrives_once_over_a_lossy_link(
        seed in any::<u64>(),
        up in planned(),
        down in planned(),
    ) {
        let (mut net, flow) = framed(seed, 0.02, [up.clone(), down.clone()]);
        net.run_until(Time::from_secs(60));
        for (from, to, mut plan) in [(Side::Client, Side::Server, up), (Side::Server, Side::Client, down)] {
            plan.sort_by_key(|planned| planned.after);
            let receiver = end(&net, flow, to);
            prop_assert_eq!(receiver.violation(), None);
            let mut arrived: Vec<_> = receiver
                .received()
                .iter()
                .map(|(_, message)| (message.priority, message.bytes.to_vec()))
                .collect();
            let mut sent: Vec<_> = plan
                .iter()
                .enumerate()
                .map(|(index, planned)| {
                    let len = usize::try_from(planned.message.len.get()).unwrap();
                    (planned.message.priority, vec![u8::try_from(index).unwrap(); len])
                })
                .collect();
            arrived.sort();
            sent.sort();
            prop_assert!(arrived == sent, "from the {:?}", from);
            let mut outcomes = end(&net, flow, from).outcomes();
            outcomes.sort_by_key(|(tag, _)| *tag);
            let delivered: Vec<_> = (0..sent.len() as u64).map(|index| (Tag(index), Ok(()))).collect();
            prop_assert_eq!(outcomes, delivered);
        }
    }
}

/// Time at which message `index` is complete, framed and by the Conductor alone.
fn both(plan: Vec<Planned>, index: u64) -> (Time, Time) {
    let (mut net, flow) = framed(1, 0.0, [plan.clone(), vec![]]);
    net.run_until(Time::from_secs(20));
    let byte = u8::try_from(index).unwrap();
    let received = end(&net, flow, Side::Server).received();
    let framed = received.iter().find(|(_, message)| message.bytes[0] == byte).unwrap().0;

    let mut net = Network::new(Seed::new(1));
    let (left, right) = (net.node("left"), net.node("right"));
    net.link(left, right, link(0.0), link(0.0));
    let conductor = Conductor::new(Config { chunk: CHUNK, ..Config::default() }).unwrap();
    let len = plan[usize::try_from(index).unwrap()].message.len;
    let app = Conducted::new(conductor, Feeder::lean(CHUNK), plan);
    let flow = net.tcp(TcpFlow::new(left, right, tcp(), app).server_app(Collector::logging())).unwrap();
    net.run_until(Time::from_secs(20));
    let collector: &Collector = net.app(flow, Side::Server).unwrap();
    (framed, collector.complete(Tag(index), len).unwrap())
}

#[test]
fn frames_cost_an_urgent_message_less_than_two_chunks() {
    let plan = vec![
        Planned::now(Bytes::kb(2000), Priority::P4),
        Planned::now(Bytes::kb(20), Priority::P0).after(Duration::from_millis(900)),
    ];
    let (framed, counted) = both(plan, 1);
    let chunk = Rate::from_mbps(10).transmission_time(CHUNK);
    assert!(framed < counted + chunk * 2 && counted < framed + chunk * 2, "{framed} against {counted}");
    assert!(framed < Time::from_millis(1100), "{framed}: it overtook two megabytes");
}

#[test]
fn an_expired_message_is_reported_to_both_ends() {
    let late = Message { lifetime: Some(Duration::from_millis(50)), ..Message::new(CHUNK, Priority::P4) };
    let plan = vec![
        Planned::now(Bytes::kb(500), Priority::P4),
        Planned { after: Duration::from_millis(100), message: late },
    ];
    let (mut net, flow) = framed(1, 0.0, [plan, vec![]]);
    net.run_until(Time::from_secs(5));
    let outcomes = end(&net, flow, Side::Client).outcomes();
    assert_eq!(outcomes, [(Tag(1), Err(NotDelivered::Expired)), (Tag(0), Ok(()))]);
    let missed = end(&net, flow, Side::Server).missed();
    let reasons: Vec<_> = missed.iter().map(|(_, missed)| (missed.reason, missed.received)).collect();
    assert_eq!(reasons, [(MissedReason::Expired, Bytes::ZERO)]);
}
