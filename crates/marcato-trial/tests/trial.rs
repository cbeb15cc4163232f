//! Flows of scenarios over the sockets of a lab, beside their simulation.
//!
//! These tests need root, or user namespaces with access to `/dev/net/tun`, and are skipped without.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests")]

use marcato_lab::{LabOptions, Traces};
use marcato_scenario::{Experiment, Scenario};
use marcato_sim::scenario::{Outcome, build};
use marcato_testing::{Need, absent, timely};
use marcato_units::Time;

fn experiment(text: &str) -> Experiment {
    Scenario::parse("test.toml", text).unwrap().run(0).unwrap().experiment
}

/// Runs an experiment in a lab; `None` where there can be none.
fn trial(experiment: &Experiment) -> Option<Outcome> {
    if absent!(Need::Lab) {
        return None;
    }
    match marcato_trial::open(experiment, &Traces::new(), LabOptions::default()) {
        Ok(world) => Some(world.run(&mut |_: Time| ()).unwrap()),
        Err(error) => panic!("{error}"),
    }
}

/// Runs an experiment in a lab, for results that depend on real time; `None` also on a machine that is too busy.
fn timed(experiment: &Experiment) -> Option<Outcome> {
    if absent!(Need::Lab) {
        return None;
    }
    timely(env!("CARGO_PKG_NAME"), PAUSE, || trial(experiment)).flatten()
}

/// Runs an experiment in a lab, and in the simulator.
fn both(experiment: &Experiment) -> Option<[Outcome; 2]> {
    let lab = timed(experiment)?;
    Some([lab, build(experiment, &Traces::new()).unwrap().run(&mut |_: Time| ()).unwrap()])
}

/// Two hosts joined by a link of 20 Mbit/s and 10 ms, with a queue of one bandwidth-delay product, and
/// a flow of this kind and keys from one to the other.
fn scenario(kind: &str, keys: &str) -> Experiment {
    through(r#"{ kind = "droptail", limit = "50 kB" }"#, kind, keys)
}

/// Two hosts joined as in [`scenario`], by a link with this queue.
fn through(queue: &str, kind: &str, keys: &str) -> Experiment {
    experiment(&format!(
        r#"
        name = "test"
        duration = "3 s"
        nodes = ["client", "server"]
        [[link]]
        name = "link"
        between = ["client", "server"]
        rate = "20 Mbit/s"
        delay = "10 ms"
        queue = {queue}
        [[flow]]
        name = "flow"
        kind = "{kind}"
        from = "client"
        to = "server"
        {keys}
        "#
    ))
}

/// Longest pause of the machine that [`TIMES`] allows for: it adds a sixth to a time of 30 ms, once.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
/// Share that a time may differ by: the machine wakes threads late, and Linux's first acknowledgements are its own.
const TIMES: f64 = 0.15;
/// Share that an amount over the whole run may differ by.
const AMOUNTS: f64 = 0.05;

fn assert_near(lab: f64, sim: f64, share: f64, what: &str) {
    eprintln!("{what}: {:.3} of the simulator's", lab / sim);
    assert!((lab / sim - 1.0).abs() <= share, "{what}: lab {lab}, simulation {sim}");
}

#[test]
fn a_transfer_takes_as_long_as_in_the_simulator() {
    let experiment = scenario("tcp", r#"size = "2 MB""#);
    let Some([lab, sim]) = both(&experiment) else { return };
    let [lab_flow, sim_flow] = [&lab, &sim].map(|outcome| &outcome.flows[0]);
    assert_eq!(lab_flow.bytes, sim_flow.bytes);
    assert_near(lab_flow.completions()[0], sim_flow.completions()[0], TIMES, "completion time");
    // Headers and acknowledgements are those of the simulator, byte by byte, but for retransmissions.
    assert_near(
        lab.links[0].bytes.get() as f64,
        sim.links[0].bytes.get() as f64,
        AMOUNTS,
        "bytes of the link",
    );
    assert!(lab_flow.sent > 1300 && lab_flow.min_rtt.unwrap() > 20.0, "{lab_flow:?}");
    assert_eq!(lab.links[0].drops, lab_flow.losses, "each drop is of this flow");
}

#[test]
fn packets_of_udp_arrive_at_their_rate_and_delay() {
    let experiment = scenario(
        "udp",
        r#"
            rate = "1 Mbit/s"
            payload = "500 B"
        "#,
    );
    let Some([lab, sim]) = both(&experiment) else { return };
    let [lab_flow, sim_flow] = [&lab, &sim].map(|outcome| &outcome.flows[0]);
    assert_near(lab_flow.goodput, sim_flow.goodput, AMOUNTS, "goodput");
    // 528 bytes at 20 Mbit/s take 0.2 ms beyond the 10 ms. Timers may add to that.
    assert!((10.2..20.0).contains(&lab_flow.delay.unwrap()), "{lab_flow:?}");
    assert_eq!(lab_flow.losses, 0);
}

#[test]
fn a_flood_fills_the_link_and_the_rest_is_lost() {
    let experiment = scenario("udp", r#"rate = "30 Mbit/s""#);
    let Some([lab, sim]) = both(&experiment) else { return };
    let [lab_link, sim_link] = [&lab, &sim].map(|outcome| &outcome.links[0]);
    assert_near(lab_link.throughput, sim_link.throughput, AMOUNTS, "throughput");
    assert!(lab_link.utilisation.unwrap() > 0.9, "{lab_link:?}");
    // The queue is full all the time: 50 kB at 20 Mbit/s.
    assert_near(
        lab_link.queue_delay.unwrap().p50.as_secs_f64(),
        sim_link.queue_delay.unwrap().p50.as_secs_f64(),
        AMOUNTS,
        "queue delay",
    );
    assert_near(lab_link.waiting.mean_bytes, sim_link.waiting.mean_bytes, AMOUNTS, "backlog");
    assert_near(lab.flows[0].losses as f64, sim.flows[0].losses as f64, AMOUNTS, "losses");
}

#[test]
fn a_queue_judges_the_kernels_tcp_as_it_does_the_simulators() {
    let flood = r#"
            [[flow]]
            name = "flood"
            kind = "udp"
            from = "client"
            to = "server"
            rate = "5 Mbit/s"
        "#;
    let crq = r#"{ kind = "crq", target = "1 ms", interval = "20 ms" }"#;
    let Some(both) = both(&through(crq, "tcp", flood)) else { return };
    for outcome in both {
        let [tcp, flood] = [0, 1].map(|flow| outcome.flows[flow].report.unwrap());
        assert!(tcp.scores.cycles > 10 && tcp.responsive().unwrap() > 0.3, "{tcp:?}");
        // It leaves the place of young flows, and stays where it then is.
        assert_eq!((flood.responsive(), flood.changes), (None, 1), "{flood:?}");
        // Bytes are counted by the verdict at their time, which the flow of TCP has for most of the run. Its part of the
        // link bounds the share.
        let part = outcome.flows[0].goodput / (outcome.flows[0].goodput + outcome.flows[1].goodput);
        let share = outcome.links[0].responsive.unwrap() / part;
        eprintln!("share of TCP's bytes that count as responsive: {share:.3}");
        assert!((0.4..=1.0).contains(&share), "{share}");
    }
}

#[test]
fn requests_are_answered_in_the_sizes_of_the_simulator() {
    let experiment = scenario(
        "request-response",
        r#"
            response = { kind = "exponential", mean = "20 kB" }
            think = "50 ms"
            requests = 10
        "#,
    );
    let Some([lab, sim]) = both(&experiment) else { return };
    let [lab_flow, sim_flow] = [&lab, &sim].map(|outcome| &outcome.flows[0]);
    assert_eq!((lab_flow.bytes, lab_flow.times[0].done.len()), (sim_flow.bytes, 10));
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    assert_near(mean(&lab_flow.times[0].done), mean(&sim_flow.times[0].done), TIMES, "mean response time");
}

#[test]
fn a_process_opens_the_connections_of_the_simulator() {
    let experiment = scenario(
        "tcp-process",
        r#"
            arrivals = "20 /s"
            size = { kind = "exponential", mean = "20 kB" }
        "#,
    );
    let Some([lab, sim]) = both(&experiment) else { return };
    let [lab_times, sim_times] = [&lab, &sim].map(|outcome| &outcome.flows[0].times[0]);
    assert_eq!(lab_times.released, sim_times.released);
    assert!(lab_times.done.len() + 3 >= sim_times.done.len(), "{lab_times:?}");
    assert_near(lab.flows[0].bytes.get() as f64, sim.flows[0].bytes.get() as f64, AMOUNTS, "bytes");
}

#[test]
fn urgent_messages_overtake_a_file_over_the_kernels_tcp() {
    let experiment = scenario(
        "messages",
        r#"
            bulk = "p4"
            sources = [{ period = "100 ms", size = "1 kB", priority = "p0" }]
        "#,
    );
    let Some(lab) = timed(&experiment) else { return };
    let flow = &lab.flows[0];
    assert!(flow.goodput > 15.0, "{flow:?}");
    let source = flow.times.iter().find(|times| times.name == "source-1").unwrap();
    assert!(source.done.len() >= 25, "{source:?}");
    // The queue of the link alone holds 20 ms, and the send buffer would hold 100 ms more.
    let mut times = source.done.clone();
    times.sort_by(f64::total_cmp);
    assert!(times[times.len() / 2] < 80.0, "{times:?}");
}

#[test]
fn a_watermark_of_one_segment_stops_no_stream() {
    let experiment = scenario(
        "messages",
        r#"
        # Linux acknowledges the first segments one by one, and so leaves slow start at a smaller window.
        tcp = { notsent-lowat = "1448 B", delayed-ack = { quick = 16 } }
        chunk = "1448 B"
        messages = [
            { name = "file", size = "2 MB", priority = "p4" },
            { name = "late", after = "300 ms", size = "20 kB", priority = "p0" },
        ]
        "#,
    );
    let Some([lab, sim]) = both(&experiment) else { return };
    for (lab, sim) in lab.flows[0].times.iter().zip(&sim.flows[0].times) {
        assert_eq!((&lab.name, lab.done.len()), (&sim.name, 1), "{lab:?}");
        assert_near(lab.done[0], sim.done[0], TIMES, &lab.name);
    }
}

#[test]
fn sessions_of_quic_use_both_paths() {
    let experiment = experiment(
        r#"
        name = "two-paths"
        duration = "3 s"
        [topology]
        kind = "multipath"
        paths = 2
        rate = "10 Mbit/s"
        delay = "10 ms"
        [[flow]]
        name = "both"
        kind = "quic"
        paths = [["client-1", "server-1"], ["client-2", "server-2"]]
        bulk = "p4"
        sources = [{ period = "100 ms", size = "1 kB", priority = "p0" }]
        "#,
    );
    let Some([lab, sim]) = both(&experiment) else { return };
    assert_near(lab.flows[0].goodput, sim.flows[0].goodput, AMOUNTS, "goodput");
    for (lab, sim) in lab.flows[0].lanes.iter().zip(&sim.flows[0].lanes) {
        assert_near(lab.bytes.get() as f64, sim.bytes.get() as f64, AMOUNTS, &lab.name);
    }
}

#[test]
fn marks_of_a_queue_reach_sessions_of_quic() {
    let experiment = experiment(
        r#"
        name = "marks"
        duration = "4 s"
        nodes = ["client", "server"]
        [[link]]
        between = ["client", "server"]
        rate = "10 Mbit/s"
        delay = "10 ms"
        queue = { kind = "codel", ecn = true }
        [[flow]]
        name = "bulk"
        kind = "quic"
        paths = [["client", "server"]]
        bulk = "p4"
        "#,
    );
    let Some([lab, sim]) = both(&experiment) else { return };
    for outcome in [&lab, &sim] {
        let link = &outcome.links[0];
        // Marks without an echo would end ECN, and CoDel would drop.
        assert!(link.marks > 0 && link.drops == 0, "{} marks, {} drops", link.marks, link.drops);
    }
    assert_near(lab.flows[0].goodput, sim.flows[0].goodput, AMOUNTS, "goodput");
}

#[test]
fn options_that_the_kernel_lacks_are_refused_or_warned_of() {
    let flow = |tcp: &str| scenario("tcp", &format!("tcp = {{ {tcp} }}"));
    let refused = |tcp: &str| {
        let opened = marcato_trial::open(&flow(tcp), &Traces::new(), LabOptions::default());
        opened.err().map(|error| error.to_string())
    };
    if absent!(Need::Lab) {
        return;
    }
    let error = refused("low-layer = \"paper\"").unwrap();
    assert!(error.contains("the kernel's TCP has no low layer"), "{error}");
    let error = refused("mss = \"1400 B\", priority-option = \"short\"").unwrap();
    assert!(error.contains("the kernel's TCP has no option with a priority"), "{error}");
    let warnings = |tcp: &str| -> Vec<String> {
        trial(&flow(tcp)).unwrap().warnings.iter().map(ToString::to_string).collect()
    };
    let said = warnings("initial-window = 4, min-rto = \"300 ms\"");
    let expected =
        "the flow `flow` asks for `initial-window`, `min-rto`, which the kernel's TCP decides by itself";
    assert!(said.iter().any(|warning| warning == expected), "{said:?}");
    // Linux's own bursts are no wish that it ignores.
    let said = warnings("segmentation-offload = \"64 KiB\"");
    assert!(!said.iter().any(|warning| warning.contains("decides by itself")), "{said:?}");
    let said = warnings("segmentation-offload = \"32 KiB\"");
    assert!(said.iter().any(|warning| warning.contains("`segmentation-offload`")), "{said:?}");
}

#[test]
fn captures_of_a_trial_hold_its_packets() {
    struct Keep(Vec<u8>);
    impl marcato_sim::scenario::Watcher for Keep {
        fn time(&mut self, _: Time) {}
        fn captured(&mut self, _: &str, _: bool, _: &[u8]) {}
        fn captured_together(&mut self, part: &[u8]) {
            self.0.extend(part);
        }
    }
    let record = "[record]\npcap = [\"link\"]\npcap-format = \"pcapng\"";
    let experiment = scenario("tcp", &format!("size = \"100 kB\"\n{record}"));
    if absent!(Need::Lab) {
        return;
    }
    let opened = marcato_trial::open(&experiment, &Traces::new(), LabOptions::default());
    let mut keep = Keep(Vec::new());
    let outcome = opened.unwrap().run(&mut keep).unwrap();
    // Enhanced packet blocks have type 6, and each names its length.
    let (mut at, mut packets) = (0, 0);
    while at < keep.0.len() {
        let word = |at: usize| u32::from_le_bytes(keep.0[at..at + 4].try_into().unwrap());
        packets += u64::from(word(at) == 6);
        at += word(at + 4) as usize;
    }
    assert_eq!(packets, outcome.links.iter().map(|link| link.delivered).sum::<u64>());
    assert!(packets > 100, "{packets}");
}
