//! Coupled mode on paths as people have them: jitter, routes that change, traffic on the way back, and fellows.

use marcato_sched::coupled::Mode;
use marcato_sim::scenario::Outcome;

use crate::outcome::outcome;

/// One-way delay of 22.5 ms, the wire time of 20 kB in 14 segments at 12 Mbit/s, and that of a packet, in ms.
const LIMIT: f64 = 22.5 + (20_000.0 + 14.0 * 52.0 + 1500.0) * 8.0 / 12e3;

/// Late messages of 20 kB beside endless background data, for 100 s over 12 Mbit/s, 45 ms and three products of queue, with
/// these keys of the link and of the flow, and these tables.
fn run(coupled: &str, link: &str, keys: &str, tables: &str) -> Outcome {
    let tcp = r#"tcp = { send-buffer = "64 MB", receive-buffer = "64 MB" }"#;
    run_over("messages", coupled, link, &format!("{keys}\n{tcp}"), tables)
}

/// Runs the messages of [`run`] over this kind of flow.
fn run_over(kind: &str, coupled: &str, link: &str, keys: &str, tables: &str) -> Outcome {
    outcome(&format!(
        r#"
        name = "wild"
        duration = "120 s"
        warm-up = "20 s"
        nodes = ["sender", "receiver"]
        [[link]]
        name = "bottleneck"
        between = ["sender", "receiver"]
        rate = "12 Mbit/s"
        delay = "22500 us"
        queue = {{ kind = "droptail", limit = "202500 B" }}
        {link}
        [[flow]]
        name = "ours"
        kind = "{kind}"
        from = "sender"
        to = "receiver"
        bulk = "p3"
        sources = [{{ period = "1 s", jitter = "300 ms", size = "20 kB", priority = "p0" }}]
        coupled = "{coupled}"
        {keys}
        {tables}
        "#
    ))
}

/// Runs without and with coupled mode.
fn both(link: &str, keys: &str, tables: &str) -> [Outcome; 2] {
    ["off", "fast"].map(|coupled| run(coupled, link, keys, tables))
}

/// Median of the completion times over the limit, of the latter so many percent of the messages of our flows.
fn median(outcome: &Outcome, percent: usize) -> f64 {
    let flows = outcome.flows.iter().filter(|flow| flow.name.starts_with("ours"));
    let mut times: Vec<f64> = flows
        .flat_map(|flow| {
            let times = flow.completions();
            let skipped = times.len() * (100 - percent) / 100;
            times.into_iter().skip(skipped)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2] / LIMIT
}

/// Part of the goodput that coupled mode costs.
fn cost([plain, coupled]: &[Outcome; 2]) -> f64 {
    1.0 - coupled.flows[0].goodput / plain.flows[0].goodput
}

/// Largest share of the time that one of our flows had no cap.
fn competing(outcome: &Outcome) -> f64 {
    let shares = outcome.flows.iter().filter_map(|flow| flow.coupled?.share(Mode::Compete));
    shares.fold(0.0, f64::max)
}

#[test]
fn jitter_is_no_queue_and_costs_no_goodput() {
    for most in [5, 10] {
        let link = format!(r#"jitter = {{ kind = "uniform", most = "{most} ms" }}"#);
        for congestion in ["cubic", "bbr"] {
            let runs = both(&link, &format!("congestion = '{congestion}'"), "");
            assert!(cost(&runs) <= 0.015, "{most} ms, {congestion}: {}", cost(&runs));
            let [plain, coupled] = runs.map(|run| median(&run, 100));
            assert!(coupled < 0.5 * plain, "{most} ms, {congestion}: {coupled} of {plain}");
        }
    }
}

#[test]
fn a_path_that_became_longer_is_coupled_again() {
    for (more, delay) in [(10.0, 32_500), (50.0, 72_500)] {
        let link = format!(r#"changes = [{{ at = "40 s", way = "there", delay = "{delay} us" }}]"#);
        for congestion in ["cubic", "bbr"] {
            let runs = both(&link, &format!("congestion = '{congestion}'"), "");
            assert!(cost(&runs) <= 0.02, "{more} ms, {congestion}: {}", cost(&runs));
            // From 60 s on: within 20 s of the change.
            let (limit, after) = (1.0 + more / LIMIT, median(&runs[1], 60));
            assert!(after <= 1.15 * limit, "{more} ms, {congestion}: {after} of {limit}");
            assert!(competing(&runs[1]) < 0.05, "{more} ms, {congestion}: {}", competing(&runs[1]));
        }
    }
}

/// A way back of 50 Mbit/s with a product of queue, and a download that fills it.
const WAY_BACK: &str = r#"back = { rate = "50 Mbit/s", queue = { kind = "droptail", limit = "281250 B" } }"#;
const DOWNLOAD: &str = r#"
    [[flow]]
    name = "down"
    kind = "tcp"
    from = "receiver"
    to = "sender"
    tcp = { send-buffer = "1 MB" }
"#;

#[test]
fn a_download_is_no_queue_of_ours_over_quic_either() {
    // Only the peer's clock tells. The cost of one run is between 0 and 8 %.
    const SEEDS: u64 = 6;
    let runs = (1..=SEEDS).map(|seed| {
        let tables = format!("{DOWNLOAD}\n[grid]\nseeds = [{seed}]");
        ["off", "fast"].map(|coupled| run_over("quic", coupled, WAY_BACK, "", &tables))
    });
    let mut costs = 0.0;
    for runs in runs {
        costs += cost(&runs);
        assert!(competing(&runs[1]) < 0.1, "{}", competing(&runs[1]));
        let [plain, coupled] = runs.map(|run| median(&run, 100));
        assert!(coupled < 2.0 && plain > 3.0, "{coupled} of {plain}");
    }
    assert!(costs <= 0.05 * SEEDS as f64, "{costs}");
}

#[test]
fn a_download_on_the_way_back_is_no_queue_of_ours() {
    let runs = both(WAY_BACK, "", DOWNLOAD);
    assert!(cost(&runs) <= 0.05, "{}", cost(&runs));
    assert!(competing(&runs[1]) < 0.1, "{}", competing(&runs[1]));
    let [plain, coupled] = runs.map(|run| median(&run, 100));
    assert!(coupled < 2.0 && plain > 3.0, "{coupled} of {plain}");
}

#[test]
fn chunks_of_a_coupled_flow_are_whole_segments() {
    // The default chunk of 1460 B is 12 B more than a segment: a small one would go between two full ones.
    let runs = both("", "", "");
    assert!(cost(&runs) <= 0.005, "{}", cost(&runs));
    assert!(median(&runs[1], 100) <= 1.1, "{}", median(&runs[1], 100));
}

#[test]
fn acknowledgements_of_eight_segments_cost_no_goodput() {
    let keys = r#"tcp-to = { delayed-ack = { every = 8 }, receive-buffer = "64 MB" }"#;
    let runs = both("", keys, "");
    assert!(cost(&runs) <= 0.015, "{}", cost(&runs));
    let [plain, coupled] = runs.map(|run| median(&run, 100));
    assert!(coupled < 0.5 * plain, "{coupled} of {plain}");
}

#[test]
fn coupled_flows_together_take_nobody_for_a_competitor() {
    for count in [2, 4] {
        let outcome = run("fast", "", &format!("count = {count}"), "");
        assert!(competing(&outcome) < 0.05, "{count}: {}", competing(&outcome));
        let goodput: Vec<f64> = outcome.flows.iter().map(|flow| flow.goodput).collect();
        let (least, sum) = (goodput.iter().copied().fold(f64::MAX, f64::min), goodput.iter().sum::<f64>());
        assert!(sum > 11.4 && least > 0.6 * sum / f64::from(count), "{count}: {goodput:?}");
    }
}

#[test]
fn bbr_below_a_lean_feeder_learns_that_the_path_is_full() {
    // In its startup, it keeps twice the bandwidth-delay product in the queue: a median of 3.6.
    let run = run("off", "", "congestion = 'bbr'\nchunk = '1448 B'", "");
    let median = median(&run, 100);
    assert!(median < 1.3, "{median}");
    assert!(run.flows[0].goodput > 11.2, "{}", run.flows[0].goodput);
}
