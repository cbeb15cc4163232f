//! Properties of every scenario.

use std::fmt::Write as _;

use marcato_scenario::{Overrides, Scenario, explain};
use proptest::prelude::*;

/// Strategy for one of these texts.
fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(texts)
}

fn queue() -> impl Strategy<Value = String> {
    let simple = one_of(&[
        r#""droptail""#,
        r#""codel""#,
        r#"{ kind = "droptail", limit = "50 packets" }"#,
        r#"{ kind = "droptail", limit = "64 KiB" }"#,
        r#"{ kind = "droptail", limit = "40 ms" }"#,
        r#"{ kind = "codel", target = "0.5 ms", interval = "20 ms", ecn = true, limit = "300 kB" }"#,
        r#"{ kind = "push-out", limit = "70 packets" }"#,
        r#""fq-codel""#,
        r#""crq""#,
        r#"{ kind = "crq", preset = "authors", standard = "droptail", sharing = "split", ecn = true, limit = "2 MB", flows = 100 }"#,
        r#"{ kind = "crq", preset = "paper", sharing = "strict", target = "1 ms" }"#,
        r#"{ kind = "crq", sharing = "strict", standard-least = 0.125 }"#,
        r#"{ kind = "crq", young-share = 0, standard = "fq-codel" }"#,
        r#"{ kind = "crq", preset = "paper", young-share = 0.25, young-allowance = "64 KiB", young-regain = "1 Mbit/s", responsive = "fq-codel" }"#,
        r#""step-mark""#,
        r#"{ kind = "step-mark", threshold = "0.05 ms", limit = "1 MB" }"#,
        r#"{ kind = "step-mark", threshold = "90 kB" }"#,
        r#""red""#,
        r#"{ kind = "red", min-threshold = "30 kB", max-threshold = "90 kB", max-probability = 0.02, weight = 0.001953, gentle = false, ecn = true, idle = "12 us" }"#,
        r#""pie""#,
        r#"{ kind = "pie", target = "20 ms", update = "30 ms", burst = "100 ms", alpha = 0.25, beta = 2.5, ecn = true, limit = "4 MB" }"#,
        r#"{ kind = "fq-codel", flows = 3, quantum = "300 B", ecn = false, limit = "4 MB" }"#,
    ]);
    let inner = one_of(&[
        r#""red""#,
        r#""pie""#,
        r#""step-mark""#,
        r#""codel""#,
        r#""fq-codel""#,
        r#"{ kind = "droptail", limit = "9 packets" }"#,
    ]);
    prop_oneof![
        simple.prop_map(ToOwned::to_owned),
        (inner, one_of(&[r#""droptail""#]), any::<bool>()).prop_map(|(high, low, preempt)| {
            format!(r#"{{ kind = "strict", high = {high}, low = {low}, preempt = {preempt} }}"#)
        }),
    ]
}

fn loss() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(r#""none""#.to_owned()),
        (0.0..=1.0f64).prop_map(|p| format!(r#"{{ kind = "random", probability = {p:?} }}"#)),
        (1u64..=1_000_000).prop_map(|n| format!(r#"{{ kind = "every", packets = {n} }}"#)),
        proptest::collection::btree_set(0u64..1000, 0..6)
            .prop_map(|set| format!(r#"{{ kind = "script", packets = {:?} }}"#, Vec::from_iter(set))),
        (0.0..0.3f64, 1.0..50.0f64).prop_filter_map("no such chain", |(mean, burst)| {
            (mean / (1.0 - mean) <= burst)
                .then(|| format!(r#"{{ kind = "gilbert-elliott", mean = {mean:?}, burst = {burst:?} }}"#))
        }),
        (0.0..=1.0f64, 0.001..=1.0f64, 0.0..=1.0f64).prop_map(|(p, r, good)| format!(
            r#"{{ kind = "gilbert-elliott", p = {p:?}, r = {r:?}, loss-good = {good:?} }}"#
        )),
    ]
}

fn jitter() -> impl Strategy<Value = &'static str> {
    one_of(&[
        r#""none""#,
        r#"{ kind = "uniform", most = "3 ms" }"#,
        r#"{ kind = "uniform", least = "1 ms", most = "3 ms", reorder = true }"#,
        r#"{ kind = "normal", mean = "2 ms", deviation = "1 ms" }"#,
        r#"{ kind = "exponential", mean = "1.5 ms", reorder = true }"#,
    ])
}

fn link() -> impl Strategy<Value = String> {
    let rate = (1u64..10_000_000_000).prop_map(|bits| format!("{bits} bit/s"));
    let back = prop_oneof![
        Just(String::new()),
        Just("back = { rate = \"1 Mbit/s\", loss = \"none\" }\n".to_owned())
    ];
    let change = (queue(), loss(), 0u64..1_000_000_000, any::<bool>());
    (rate, 0u64..1_000_000_000, queue(), loss(), jitter(), back, any::<bool>(), change).prop_filter_map(
        "a limit in time may be less than a packet",
        |(rate, delay, queue, loss, jitter, back, changes, later)| {
            let mut text = format!("rate = \"{rate}\"\ndelay = \"{delay} ns\"\nqueue = {queue}\nloss = {loss}\n");
            let _ = writeln!(text, "jitter = {jitter}\n{back}framing = \"18 B\"\nbleach-ecn = {changes}\nduplication = {:?}", later.2 as f64 / 1e9);
            if changes {
                let (later, loss, delay, reorder) = later;
                let _ = write!(text, "changes = [{{ at = \"2 s\", up = false }}, {{ at = \"1 s\", way = \"back\", rate = \"0 bit/s\" }}");
                let _ = write!(text, ", {{ at = \"3 s\", way = \"there\", delay = \"{delay} ns\", reorder = {reorder}, loss = {loss} }}");
                // A change must not switch pre-emption on or off.
                if later.contains("preempt = true") == queue.contains("preempt = true") {
                    let _ = write!(text, ", {{ at = \"3 s\", way = \"there\", queue = {later} }}");
                }
                text += "]\n";
            }
            Some(text)
        },
    )
}

fn flow() -> impl Strategy<Value = String> {
    let tcp = one_of(&[
        "",
        "congestion = \"reno\"\n",
        "congestion = { kind = \"cubic\", hystart = false }\n",
        "tcp = { congestion = \"dctcp\", ecn = true, mss = \"1 kB\" }\n",
        "congestion = \"bbr\"\ntcp = { notsent-lowat = \"16 KiB\" }\ntcp-to = { notsent-lowat = \"none\" }\n",
        "tcp = { low-layer = \"paper\", send-buffer = \"64 MB\" }\n",
        "tcp = { low-layer = { kind = \"marcato\", target = 0.0123, epoch = \"30 ms\", initial-min-rto = \"400 ms\", initial-window = 7, high-for = \"p1\" } }\n",
        "tcp = { low-layer = { kind = \"paper\", target = \"found\", epoch = \"round-trip\", high-for = \"all\", ack-every = 3 } }\n",
        "tcp = { segmentation-offload = \"64 KiB\" }\ntcp-to = { segmentation-offload = \"none\" }\n",
        "tcp = { delayed-ack = { every = 1 }, timestamps = false, min-rto = \"1 s\" }\n",
        "tcp = { sack = false, loss-detection = \"dup-thresh\", initial-rto = \"3 s\", growth = \"acks\" }\nstart-jitter = \"20 ms\"\n",
        "tcp = { initial-ssthresh = 40, growth = { kind = \"bytes\", limit = 8 } }\ntcp-to = { initial-ssthresh = \"none\", growth = \"bytes\" }\n",
        "tcp = { priority-option = \"rfc6994\" , mss = \"1400 B\", receive-buffer-from = \"64 KiB\" }\n",
    ]);
    let kind = one_of(&[
        "kind = \"tcp\"\n",
        "kind = \"tcp\"\nsize = \"1 MB\"\npriority = \"p1\"\n",
        "kind = \"tcp\"\non = \"1 s\"\noff = { kind = \"exponential\", mean = \"2 s\" }\n",
        "kind = \"tcp-process\"\nload = \"1 Mbit/s\"\nsize = { kind = \"pareto\", shape = 1.3, mean = \"20 kB\", most = \"1 MB\" }\n",
        "kind = \"tcp-process\"\narrivals = \"3 /s\"\nsize = { kind = \"exponential\", mean = \"20 kB\" }\n",
        "kind = \"request-response\"\nresponse = { kind = \"log-normal\", mean = \"20 kB\", sigma = 0.7 }\nrequests = 4\n",
        "kind = \"request-response\"\nresponse = \"3 kB\"\nthink = \"20 ms\"\n",
        "kind = \"messages\"\nbulk = \"p3\"\ncoupled = { kind = \"fast\", queued-packets = 7 }\n",
        "kind = \"messages\"\nbulk = \"p4\"\nsources = [{ period = \"20 ms\", size = \"300 B\", jitter = \"3 ms\" }]\n",
        "kind = \"messages\"\nfeeder = \"writers\"\nmessages = [{ name = \"late\", after = \"1 s\", size = \"2 kB\" }, { size = \"1 MB\", lifetime = \"2 s\" }]\n",
    ]);
    let other = one_of(&[
        "kind = \"udp\"\nrate = \"123456 bit/s\"\narrivals = \"poisson\"\n",
        "kind = \"udp\"\nrate = \"1 Mbit/s\"\npayload = \"99 B\"\non = \"1 s\"\noff = \"1 s\"\n",
        "kind = \"udp\"\nrate = \"1 Mbit/s\"\npayload = { kind = \"exponential\", mean = \"99 B\" }\nmost-payload = \"300 B\"\n",
        "kind = \"udp\"\nrate = \"1 Mbit/s\"\npayload = { kind = \"file\", file = \"x\", order = \"random\" }\n",
        "kind = \"udp\"\nrate = \"9 Mbit/s\"\narrivals = \"ticks\"\ntick = \"2 ms\"\n",
        "kind = \"quic\"\nbulk = [\"p4\", { priority = \"p3\", size = \"20 kB\" }]\nscheduler = \"cwr-red\"\n",
        "kind = \"quic\"\nbulk = \"p2\"\nscheduler = { kind = \"cwr\", preset = \"paper\", learn = true }\ncontroller = \"new-reno\"\n",
        "kind = \"quic\"\nmessages = [{ size = \"1 kB\" }]\nscheduler = { kind = \"selective\", threshold = \"p1\" }\nlayer = \"low\"\n",
        "kind = \"quic\"\nbulk = \"p4\"\npaths = [[\"n0\", \"n1\"], { from = \"n0\", to = \"n1\", layer = \"low\" }]\nlayered = true\n",
    ]);
    prop_oneof![(kind, tcp).prop_map(|(kind, tcp)| format!("{kind}{tcp}")), other.prop_map(ToOwned::to_owned),]
}

prop_compose! {
    /// Strategy for valid files.
    fn file()(
        links in proptest::collection::vec(link(), 1..4),
        flows in proptest::collection::vec((flow(), 1u32..4), 1..4),
        warm_up in 0u64..9_999,
        seed in 0u64..1 << 60,
    ) -> String {
        let nodes: Vec<String> = (0..=links.len()).map(|n| format!("n{n}")).collect();
        let mut text = format!("name = \"any\"\nduration = \"10 s\"\nwarm-up = \"{warm_up} ms\"\nseed = {seed}\nnodes = {nodes:?}\n");
        for (n, link) in links.iter().enumerate() {
            let _ = write!(text, "[[link]]\nname = \"l{n}\"\nbetween = [\"n{n}\", \"n{}\"]\n{link}", n + 1);
        }
        for (n, (flow, count)) in flows.iter().enumerate() {
            let last = links.len();
            let _ = write!(text, "[[flow]]\nname = \"f{n}\"\ncount = {count}\nstagger = \"1 s\"\n{flow}");
            // A session with `paths` has no `from` and `to`.
            if !flow.contains("paths") {
                let _ = write!(text, "from = \"n0\"\nto = \"n{last}\"\n");
            }
        }
        text + "[record]\nseries = \"all\"\npcap = [\"l0\"]\n" + [r#"snaplen = "whole""#, r#"pcap-format = "pcapng""#, r#"snaplen = "900 B""#][links.len() % 3] + "\n[grid]\nseeds = 2\nvary = { \"link.l0.delay\" = [\"1 ms\", \"2 ms\"] }\n"
    }
}

/// Parses a generated file, which is valid except where a slow link turns a limit in time into less
/// than a packet.
fn parse(text: &str) -> Option<Scenario> {
    match Scenario::parse("any.toml", text) {
        Ok(scenario) => Some(scenario),
        Err(error) => {
            for fault in error.faults() {
                assert!(fault.problem.contains("cannot hold"), "{error}\n{text}");
            }
            None
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_written_scenario_reads_back_the_same(text in file()) {
        let Some(scenario) = parse(&text) else { return Ok(()) };
        for run in scenario.runs() {
            let written = run.experiment.to_toml();
            let again = Scenario::parse("again.toml", &written).unwrap_or_else(|error| panic!("{error}\n{written}"));
            prop_assert_eq!(again.experiment(), &run.experiment);
            // Writing is idempotent, so that files can be compared.
            prop_assert_eq!(again.experiment().to_toml(), written);
        }
    }

    #[test]
    fn the_command_of_a_run_repeats_it(text in file()) {
        let Some(scenario) = parse(&text) else { return Ok(()) };
        prop_assert_eq!(explain(&scenario), explain(&scenario));
        for run in scenario.runs() {
            let set = run.settings.iter().map(|one| format!("{}={}", one.key, one.value)).collect();
            let overrides = Overrides { set, seed: Some(run.seed.get()), ..Overrides::default() };
            let again = Scenario::parse_with("any.toml", &text, &overrides).unwrap();
            prop_assert_eq!(again.count(), 1);
            prop_assert_eq!(again.run(0).unwrap().experiment, run.experiment);
        }
    }

    #[test]
    fn a_file_with_a_hole_never_panics_and_each_fault_has_a_place(
        text in file(), from in any::<prop::sample::Index>(), len in 0usize..40, with in ".{0,6}"
    ) {
        let from = from.index(text.len());
        let end = (from + len).min(text.len());
        // Generated text is ASCII, so every index is a character boundary.
        let broken = format!("{}{with}{}", &text[..from], &text[end..]);
        if let Err(error) = Scenario::parse("broken.toml", &broken) {
            prop_assert!(!error.faults().is_empty());
            let lines = broken.matches('\n').count() + 1;
            for fault in error.faults() {
                prop_assert!((1..=lines).contains(&fault.line) && fault.column >= 1, "{fault}");
                prop_assert!(!fault.problem.is_empty() && fault.width >= 1);
            }
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
