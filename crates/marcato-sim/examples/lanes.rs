//! Two lanes of 100 Mbit/s, one periodic source beside saturating background: `cargo run --release -p marcato-sim
//! --example lanes [lowrtt|cwr|cwr-red] [period ms] [size kB] [seconds]`.

use std::time::Instant;

use marcato_quic::{
    Congestion, Event, Growth, Identity, Pacing, PathScheduler, SessionConfig, StreamUse, Trust,
};
use marcato_sched::conductor::{Config, Debt, Redundancy};
use marcato_sched::schedule::CwrConfig;
use marcato_sim::quic::{Background, MessageCollector, Periodic, QuicHost, QuicRole, Traffic};
use marcato_sim::{DatagramFlow, LinkConfig, Loss, Network, Route, Side};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let scheduler = arguments.next().unwrap_or_else(|| "cwr".to_owned());
    let period: u64 = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let size: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(60), |text| text.parse())?;
    let cwr = CwrConfig::paper();
    let path_scheduler = match scheduler.as_str() {
        "lowrtt" => PathScheduler::LowRtt,
        "cwr" => PathScheduler::Cwr(cwr),
        "cwr-red" => PathScheduler::CwrRed(cwr),
        other => return Err(format!("{other} is none of lowrtt, cwr and cwr-red").into()),
    };
    let mut config = SessionConfig {
        path_scheduler,
        conductor: Config::with_debt(Debt::strict()),
        congestion: Congestion::NewReno { loss_reduction_factor: 0.7 },
        pacing: Pacing::Off,
        growth: Growth::Acknowledged,
        streams: StreamUse::PerMessage,
        initial_mtu: 1350,
        mtu_discovery: false,
        ..SessionConfig::default()
    };
    config.lane_idle_timeout = None;

    let mut net = Network::new(Seed::new(1));
    let [c1, c2, server] = ["client/1", "client/2", "server"].map(|name| net.node(name));
    for client in [c1, c2] {
        let link = || LinkConfig::new(Rate::from_mbps(100), Duration::from_millis(25));
        let down = link().loss(Loss::Random(0.0005));
        net.link(client, server, link(), down);
    }
    let identity = Identity::self_signed("server")?;
    let trust = Trust::Certificate(identity.certificate().ok_or("no certificate")?.clone());
    let epoch = Instant::now();
    let redundancy = if scheduler == "cwr-red" { Redundancy::EveryLane } else { Redundancy::Once };
    let source = Periodic {
        redundancy,
        first: Time::from_secs(1),
        ..Periodic::new(Duration::from_millis(period), Bytes::kb(size))
    };
    let traffic = Traffic::new(vec![source]).background(Background::default());
    let client = QuicHost::new(
        QuicRole::Client { trust, name: "server".to_owned() },
        config.clone(),
        epoch,
        MessageCollector::default(),
    );
    let server_host = QuicHost::new(QuicRole::Server { identity }, config, epoch, traffic);
    let routes = vec![Route::new(c1, server), Route::new(c2, server)];
    let flow = net.datagrams(DatagramFlow::new(client, server_host, routes))?;
    let began = Instant::now();
    net.run_until(Time::from_secs(seconds));
    let took = began.elapsed();

    let client: &QuicHost = net.host(flow, Side::Client).ok_or("no client")?;
    let server: &QuicHost = net.host(flow, Side::Server).ok_or("no server")?;
    let collector: &MessageCollector = client.app().ok_or("no collector")?;
    let traffic: &Traffic = server.app().ok_or("no traffic")?;
    let mut times: Vec<f64> =
        collector.completions.iter().map(|it| (it.completed - it.created).as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len() - 1));
    println!("error {:?} {:?}", client.error(), server.error());
    println!("released {} refused {} completed {}", traffic.released, traffic.refused, times.len());
    if !times.is_empty() {
        println!("mct min {:?} p50 {:?} p99 {:?} p999 {:?}", times[0], at(0.5), at(0.99), at(0.999));
    }
    println!("bytes {:?}", collector.bytes.map(|bytes| bytes.get() as f64 * 8e-6 / seconds as f64));
    if let Some(session) = server.session() {
        println!("{:?}", session.stats());
        for (view, state, stats) in session.lanes() {
            println!("{view:?} {state:?} {stats:?}");
        }
        println!("unused {:?}", session.unused());
    }
    if let Some(session) = client.session() {
        println!("{:?}", session.received());
        for (view, state, stats) in session.lanes() {
            println!("client {view:?} {state:?} {stats:?}");
        }
    }
    println!("{seconds} simulated s in {:.2} s", took.as_secs_f64());
    let _ = Event::Connected;
    Ok(())
}
