//! Tests of coupled mode over a simulated TCP: urgent data that comes late finds the bottleneck's queue empty.

use marcato_scenario::record::{FlowMetric, Series};
use marcato_sched::coupled::Mode;
use marcato_sim::scenario::Outcome;
use marcato_units::Duration;

use crate::outcome::outcome;

/// One-way delay of 40 ms, the wire time of 20 kB in 14 segments at 10 Mbit/s, and that of a packet, in ms.
const LIMIT: f64 = 40.0 + (20_000.0 + 14.0 * 52.0 + 1500.0) * 8.0 / 10e3;

/// Runs a flow over 10 Mbit/s and 80 ms, with these of its keys, beside these tables.
fn run(keys: &str, tables: &str) -> Outcome {
    let text = format!(
        r#"
        name = "late"
        duration = "38 s"
        warm-up = "8 s"
        nodes = ["sender", "receiver"]
        [[link]]
        name = "bottleneck"
        between = ["sender", "receiver"]
        rate = "10 Mbit/s"
        delay = "40 ms"
        queue = {{ kind = "droptail", limit = "400 kB" }}
        [[flow]]
        name = "ours"
        kind = "messages"
        from = "sender"
        to = "receiver"
        chunk = "1448 B"
        {keys}
        [flow.tcp]
        send-buffer = "16 MB"
        receive-buffer = "16 MB"
        {tables}
        "#
    );
    outcome(&text)
}

/// Late messages of 20 kB beside endless background data, with these keys.
fn late(keys: &str) -> Outcome {
    let traffic = r#"
        bulk = "p3"
        sources = [{ period = "1 s", jitter = "300 ms", size = "20 kB", priority = "p0" }]
    "#;
    run(&format!("{traffic}{keys}"), "")
}

/// Completion times of messages, as multiples of the limit, in ascending order.
fn ratios(outcome: &Outcome) -> Vec<f64> {
    let mut ratios: Vec<f64> = outcome.flows[0].completions().into_iter().map(|ms| ms / LIMIT).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

#[test]
fn late_urgent_data_finds_the_queue_empty() {
    for (congestion, median, most) in [("cubic", 1.15, 1.25), ("reno", 1.15, 1.25), ("bbr", 1.2, 1.4)] {
        let of = |coupled| late(&format!("congestion = '{congestion}'\ncoupled = '{coupled}'"));
        let (plain, coupled) = (of("off"), of("fast"));
        let held = ratios(&coupled);
        // A message that meets no packet on the wire is sooner by that one.
        let least = (LIMIT - 1.2) / LIMIT;
        assert!(held.len() >= 29 && held[0] >= 0.999 * least, "{congestion}: {held:?}");
        assert!(held[held.len() / 2] <= median, "{congestion}: {held:?}");
        // BBR empties the path for 200 ms when it has not seen its least round trip for 10 s. The first one
        // is that of the SYN, which no packet with data reaches.
        let last = held.len() - if congestion == "bbr" { 2 } else { 1 };
        assert!(held[last] <= most, "{congestion}: {held:?}");
        let (with, without) = (coupled.flows[0].goodput, plain.flows[0].goodput);
        assert!(with >= 0.985 * without, "{congestion}: {with} of {without} Mbit/s");
        if congestion != "bbr" {
            let queued = ratios(&plain);
            assert!(queued[queued.len() / 2] > 2.0, "{congestion}: {queued:?}");
        }
    }
}

#[test]
fn a_flow_alone_is_steady_nearly_all_the_time() {
    let counters = late("coupled = 'fast'").flows[0].coupled.unwrap();
    assert!(counters.share(Mode::Steady).unwrap() > 0.98, "{counters:?}");
    assert_eq!(counters.share(Mode::Compete).unwrap(), 0.0);
    assert!(late("").flows[0].coupled.is_none());
}

#[test]
fn beside_another_flow_the_governor_steps_aside() {
    let other = r#"
        [[flow]]
        name = "other"
        kind = "tcp"
        from = "sender"
        to = "receiver"
        [flow.tcp]
        send-buffer = "16 MB"
        receive-buffer = "16 MB"
    "#;
    let traffic = "bulk = 'p3'\ncoupled = 'fast'";
    let outcome = run(traffic, other);
    let share = outcome.flows[0].coupled.unwrap().share(Mode::Compete).unwrap();
    // The other begins at the same time, and is seen after 3.4 s; a test takes 0.5 s.
    assert!(share > 0.85, "{share} of the time in compete");
    // Two flows of CUBIC share 9.66 Mbit/s; this one steps back until it sees the other, a tenth of the run, and where it
    // tests for it: 3.7 Mbit/s of 4.8.
    assert!(
        (3.6..4.9).contains(&outcome.flows[0].goodput),
        "{} Mbit/s beside CUBIC",
        outcome.flows[0].goodput
    );
}

#[test]
fn cap_and_mode_are_recorded_as_series() {
    let outcome = run(
        "bulk = 'p3'\ncoupled = 'fast'",
        "[record]\nevery = '1 s'\nseries = ['flow.ours.cap', 'flow.ours.mode']",
    );
    let last = |metric| {
        let series = outcome
            .series
            .iter()
            .find(|it| matches!(&it.series, Series::Flow { metric: of, .. } if *of == metric));
        series.unwrap().points.last().unwrap().1
    };
    assert_eq!(last(FlowMetric::Mode), Some(1.0));
    // 100 kB fill the path.
    assert!((98e3..112e3).contains(&last(FlowMetric::Cap).unwrap()), "{:?}", last(FlowMetric::Cap));
}

/// Runs a session over two paths of 10 and 5 Mbit/s and 80 ms, or over the first of them, with these
/// keys. Its background is endless, and messages of 20 kB come late.
fn session(paths: usize, keys: &str) -> Outcome {
    let path = |index: usize| format!("[\"sender-{index}\", \"receiver-{index}\"]");
    let paths = (1..=paths).map(path).collect::<Vec<_>>().join(", ");
    let text = format!(
        r#"
        name = "late"
        duration = "38 s"
        warm-up = "8 s"
        nodes = ["sender-1", "receiver-1", "sender-2", "receiver-2"]
        [[link]]
        name = "first"
        between = ["sender-1", "receiver-1"]
        rate = "10 Mbit/s"
        delay = "40 ms"
        queue = {{ kind = "droptail", limit = "400 kB" }}
        [[link]]
        name = "second"
        between = ["sender-2", "receiver-2"]
        rate = "5 Mbit/s"
        delay = "40 ms"
        queue = {{ kind = "droptail", limit = "200 kB" }}
        [[flow]]
        name = "ours"
        kind = "quic"
        paths = [{paths}]
        bulk = "p3"
        sources = [{{ period = "1 s", jitter = "300 ms", size = "20 kB", priority = "p0" }}]
        {keys}
        [record]
        every = "1 s"
        series = ["flow.ours.cap", "flow.ours.mode"]
        "#
    );
    outcome(&text)
}

/// Last value of a series.
fn last(outcome: &Outcome, metric: FlowMetric) -> Option<f64> {
    let is_it = |series: &Series| matches!(series, Series::Flow { metric: of, .. } if *of == metric);
    outcome.series.iter().find(|it| is_it(&it.series)).unwrap().points.last()?.1
}

#[test]
fn a_session_couples() {
    let plain = session(1, "");
    assert!(plain.flows[0].coupled.is_none());
    assert_eq!((last(&plain, FlowMetric::Cap), last(&plain, FlowMetric::Mode)), (None, None));
    let median = |outcome: &Outcome| ratios(outcome)[ratios(outcome).len() / 2];
    assert!(median(&plain) > 2.0, "{:?}", ratios(&plain));
    let coupled = session(1, "coupled = 'fast'");
    assert!(median(&coupled) < 1.2, "{:?}", ratios(&coupled));
    let (with, without) = (coupled.flows[0].goodput, plain.flows[0].goodput);
    assert!(with >= 0.985 * without, "{with} of {without} Mbit/s");
    let counters = coupled.flows[0].coupled.unwrap();
    assert!(counters.share(Mode::Steady).unwrap() > 0.9, "{counters:?}");
    assert_eq!(last(&coupled, FlowMetric::Mode), Some(1.0));
    // 100 kB fill the path.
    let cap = last(&coupled, FlowMetric::Cap).unwrap();
    assert!((96e3..112e3).contains(&cap), "{cap}");
}

#[test]
fn caps_and_counts_of_a_session_are_the_sums_of_its_lanes() {
    let [one, both] = [1, 2].map(|paths| session(paths, "coupled = 'fast'"));
    // 100 kB and 50 kB fill the paths.
    let cap = last(&both, FlowMetric::Cap).unwrap();
    assert!((144e3..170e3).contains(&cap), "{cap}");
    let time = |outcome: &Outcome| outcome.flows[0].coupled.unwrap().time.iter().sum::<Duration>();
    let ratio = time(&both).as_secs_f64() / time(&one).as_secs_f64();
    assert!((1.9..2.1).contains(&ratio), "{ratio}: each lane has its time");
}
