//! Short flows beside long ones and a flood, through CRQ with a place for young flows.

use marcato_queue::{Crq, CrqConfig};
use marcato_scenario::Scenario;
use marcato_sim::scenario::{Outcome, Traces, build};
use marcato_sim::{Distribution, FlowArrivals, FlowProcess, LinkConfig, Network, Packet, Tcp};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

/// Downloads of 300 kB, look-ups of one segment, and a call of 80 kbit/s, beside CUBIC, BBR and twice
/// the rate of the link in UDP.
fn beside_everything(queue: &str) -> Outcome {
    let scenario = format!(
        r#"
        name = "short"
        duration = "60 s"
        warm-up = "5 s"
        seed = 1
        nodes = ["server", "client"]
        [[link]]
        name = "access"
        between = ["server", "client"]
        rate = "20 Mbit/s"
        delay = "20 ms"
        queue = {queue}
        back = {{ rate = "100 Mbit/s", queue = "droptail" }}
        [[flow]]
        name = "cubic"
        kind = "tcp"
        from = "server"
        to = "client"
        [[flow]]
        name = "bbr"
        kind = "tcp"
        congestion = "bbr"
        from = "server"
        to = "client"
        [[flow]]
        name = "flood"
        kind = "udp"
        from = "server"
        to = "client"
        rate = "40 Mbit/s"
        start = "2 s"
        [[flow]]
        name = "download"
        kind = "tcp-process"
        from = "server"
        to = "client"
        arrivals = "1 /s"
        size = "300 kB"
        start = "5 s"
        [[flow]]
        name = "lookup"
        kind = "tcp-process"
        from = "server"
        to = "client"
        arrivals = "2 /s"
        size = "300 B"
        start = "5 s"
        [[flow]]
        name = "call"
        kind = "udp"
        from = "server"
        to = "client"
        rate = "80 kbit/s"
        payload = "172 B"
        start = "5 s"
        "#
    );
    let experiment = Scenario::parse("short.toml", &scenario).unwrap().run(0).unwrap().experiment;
    build(&experiment, &Traces::new()).unwrap().run(&mut |_: Time| ()).unwrap()
}

/// Median and 95th percentile of the completion times of the flow at this place, in ms. Transfers that
/// are open at the end count with the time so far.
fn times(outcome: &Outcome, flow: usize) -> [f64; 2] {
    let mut times = outcome.flows[flow].completions();
    assert!(times.len() >= 40, "{} transfers", times.len());
    times.sort_by(f64::total_cmp);
    [50, 95].map(|percent| times[(times.len() - 1) * percent / 100])
}

#[test]
fn short_flows_are_never_slower_than_with_fq_codel() {
    let fair = beside_everything(r#"{ kind = "fq-codel", limit = "250 kB" }"#);
    let paper = beside_everything(r#"{ kind = "crq", limit = "250 kB", young-share = 0 }"#);
    let single = beside_everything(r#"{ kind = "crq", limit = "250 kB" }"#);
    let both = r#"{ kind = "crq", limit = "250 kB", standard = "fq-codel", responsive = "fq-codel" }"#;
    let both = beside_everything(both);
    for young in [&single, &both] {
        for flow in [3, 4] {
            let [[fair_50, fair_95], [young_50, young_95], [paper_50, _]] =
                [&fair, young, &paper].map(|outcome| times(outcome, flow));
            assert!(young_50 <= 1.1 * fair_50, "flow {flow}: {young_50} and {fair_50} ms");
            assert!(young_95 <= 1.1 * fair_95, "flow {flow}: {young_95} and {fair_95} ms");
            // Without the place they begin beside the flood.
            assert!(paper_50 > 1.5 * fair_50, "flow {flow}: {paper_50} and {fair_50} ms");
        }
        let delay = |outcome: &Outcome| outcome.flows[5].delay_p95.unwrap();
        assert!(delay(young) <= 1.1 * delay(&fair), "{} and {} ms", delay(young), delay(&fair));
    }
    // If the flows of a queue are served fairly, the long ones have half of what young ones leave: the flood
    // cannot have more than its own queue's half.
    let young: f64 = both.flows[3..].iter().map(|flow| flow.goodput).sum();
    let long = both.flows[0].goodput + both.flows[1].goodput;
    assert!(long > 0.9 * (20.0 - young) / 2.0, "{long} Mbit/s beside {young} of young flows");
}

#[test]
fn successive_connections_of_a_process_are_flows_of_their_own() {
    let mut net = Network::new(Seed::new(1));
    let [server, client] = ["server", "client"].map(|name| net.node(name));
    let (rate, delay) = (Rate::from_mbps(20), Duration::from_millis(10));
    let config = CrqConfig::new(rate, 4 * delay, false);
    let queue = Crq::<Packet>::new(config).unwrap();
    let (down, _) =
        net.link(server, client, LinkConfig::new(rate, delay).queue(queue), LinkConfig::new(rate, delay));
    let arrivals = FlowArrivals::Gaps(Distribution::constant(Duration::from_secs(1)));
    let sizes = Distribution::constant(Bytes::kb(300));
    let downloads = net.spawn(FlowProcess::new(server, client, Tcp::default(), sizes, arrivals)).unwrap();
    net.run_until(Time::from_secs(20));
    let spawned = net.process_stats(downloads).spawned;
    assert!(spawned >= 19);
    assert_eq!(net.queue::<Crq<Packet>>(down).unwrap().table().created, spawned);
}
