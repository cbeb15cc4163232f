//! Simulated seconds of a CWR run per second on one core: two paths of 100 Mbit/s and 50 ms, loss
//! 0.05 %, 10 kB every 100 ms with saturating background data, encryption included.
//!
//! `cargo bench -p marcato-sim --bench quic`

use std::time::Instant;

use marcato_quic::{Batch, Congestion, Identity, Pacing, PathScheduler, SessionConfig, Trust};
use marcato_sched::conductor::{Config, Debt, Redundancy};
use marcato_sched::schedule::CwrConfig;
use marcato_sim::quic::{Background, MessageCollector, Periodic, QuicHost, QuicRole, Traffic};
use marcato_sim::{DatagramFlow, FlowId, LinkConfig, Loss, Network, Route, Side};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

const SIMULATED: u64 = 30;

fn network(path_scheduler: PathScheduler, redundancy: Redundancy) -> (Network, FlowId) {
    let mut net = Network::new(Seed::new(1));
    let [first, second, server] = ["client/1", "client/2", "server"].map(|name| net.node(name));
    for client in [first, second] {
        let link = || LinkConfig::new(Rate::from_mbps(100), Duration::from_millis(25));
        net.link(client, server, link(), link().loss(Loss::Random(0.0005)));
    }
    let identity = Identity::self_signed("server").expect("a name");
    let trust = Trust::Certificate(identity.certificate().expect("one").clone());
    let config = SessionConfig {
        conductor: Config::with_debt(Debt::strict()),
        path_scheduler,
        congestion: Congestion::NewReno { loss_reduction_factor: 0.7 },
        pacing: Pacing::Off,
        batch: Batch::ONE,
        initial_mtu: 1350,
        mtu_discovery: false,
        ..SessionConfig::default()
    };
    let source = Periodic { redundancy, ..Periodic::new(Duration::from_millis(100), Bytes::kb(10)) };
    let traffic = Traffic::new(vec![source]).background(Background::default());
    let role = QuicRole::Client { trust, name: "server".to_owned() };
    let epoch = Instant::now();
    let client = QuicHost::new(role, config.clone(), epoch, MessageCollector::default());
    let host = QuicHost::new(QuicRole::Server { identity }, config, epoch, traffic);
    let routes = vec![Route::new(first, server), Route::new(second, server)];
    let flow = net.datagrams(DatagramFlow::new(client, host, routes)).expect("routes exist");
    (net, flow)
}

fn main() {
    let cwr = CwrConfig::paper();
    println!("{SIMULATED} simulated seconds; best of 3");
    for (name, scheduler, redundancy) in [
        ("LowRTT", PathScheduler::LowRtt, Redundancy::Once),
        ("CWR", PathScheduler::Cwr(cwr), Redundancy::Once),
        ("CWR+RED", PathScheduler::CwrRed(cwr), Redundancy::EveryLane),
    ] {
        let mut best = f64::MAX;
        let mut goodput = 0.0;
        for _ in 0..3 {
            let (mut net, flow) = network(scheduler, redundancy);
            let began = Instant::now();
            net.run_until(Time::from_secs(SIMULATED));
            best = best.min(began.elapsed().as_secs_f64());
            let collector: &MessageCollector =
                net.host::<QuicHost>(flow, Side::Client).and_then(QuicHost::app).expect("a collector");
            let bytes: Bytes = collector.bytes.iter().copied().sum();
            goodput = bytes.get() as f64 * 8e-6 / SIMULATED as f64;
        }
        let rate = SIMULATED as f64 / best;
        println!("{name:>8}: {rate:.0} simulated seconds per CPU second, at {goodput:.1} Mbit/s");
    }
}
