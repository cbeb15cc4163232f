//! Tests of flows: their messages, ends and kinds, and the errors of invalid ones.

use marcato_scenario::flow::{Feeder, FlowKind, Listed, Payload};
use marcato_scenario::queue::Queue;
use marcato_scenario::traffic::{DebtRules, Message, Size};
use marcato_scenario::{Overrides, Scenario, explain};
use marcato_units::Bytes;

/// Scenario with one flow, whose keys begin in line 10.
fn of_flow(flow: &str) -> String {
    format!(
        "name = \"t\"\nduration = \"10 s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"8 \
         Mbit/s\"\ndelay = \"10 ms\"\n\n[[flow]]\n{flow}"
    )
}

/// Name and ends of a flow.
const F: &str = "name = \"f\"\nfrom = \"a\"\nto = \"b\"\n";

fn read(text: &str) -> Scenario {
    Scenario::parse("t.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the faults of a text, each with line and column.
fn faults(text: &str) -> Vec<String> {
    faults_with(text, &[])
}

fn faults_with(text: &str, set: &[&str]) -> Vec<String> {
    let overrides =
        Overrides { set: set.iter().map(|&set| set.to_owned()).collect(), ..Overrides::default() };
    let error = match Scenario::parse_with("t.toml", text, &overrides) {
        Ok(_) => return Vec::new(),
        Err(error) => error,
    };
    error.faults().iter().map(|fault| format!("{}:{}: {}", fault.line, fault.column, fault.problem)).collect()
}

#[test]
fn messages_have_names_that_are_written_and_explained() {
    let messages = "kind = \"messages\"\nmessages = [{ name = \"late\", after = \"1 s\", size = \"2 kB\" }, { name = \
                    \"page\", size = \"1 kB\" }, { size = \"3 kB\" }]\n";
    let scenario = read(&of_flow(&format!("{F}{messages}")));
    let FlowKind::Messages(kind) = &scenario.experiment().flows[0].kind else { panic!("messages") };
    let names: Vec<Option<&str>> =
        kind.messaging.messages.iter().map(|it: &Message| it.name.as_deref()).collect();
    assert_eq!(names, [Some("page"), None, Some("late")]);
    assert_eq!(read(&scenario.experiment().to_toml()).experiment(), scenario.experiment());
    assert!(explain(&scenario).contains("3 messages (6 kB; by name: page, late)"), "{}", explain(&scenario));
}

#[test]
fn coupled_mode_is_a_word_or_a_table_with_packets() {
    let of =
        |coupled: &str| of_flow(&format!("{F}kind = \"messages\"\nbulk = \"p3\"\ncoupled = {coupled}\n"));
    let written = |coupled| read(&of(coupled)).experiment().to_toml();
    for (coupled, packets) in [(r#""fast""#, 2), (r#"{ kind = "fast", queued-packets = 8 }"#, 8)] {
        let text = written(coupled);
        assert!(text.contains(&format!("queued-packets = {packets}")), "{text}");
        assert_eq!(read(&text).experiment().to_toml(), text);
    }
    for (wrong, word) in [
        (r#"{ kind = "fast", queued-packets = 0 }"#, "queued-packets"),
        (r#"{ kind = "fast", queued-packets = 1001 }"#, "queued-packets"),
        (r#"{ kind = "off", queued-packets = 8 }"#, "queued-packets"),
        (r#""slow""#, "slow"),
    ] {
        let faults = faults(&of(wrong));
        assert!(faults.len() == 1 && faults[0].starts_with("15:"), "{wrong}: {faults:?}");
        assert!(faults[0].contains(word), "{wrong}: {faults:?}");
    }
}

#[test]
fn a_message_has_a_name_that_nothing_else_has() {
    let named = |names: [&str; 2]| {
        let [one, two] = names;
        let messages = format!(
            "kind = \"messages\"\nmessages = [{{ name = \"{one}\", size = \"1 kB\" }}, {{ name = \"{two}\", size = \"1 kB\" }}]\n"
        );
        faults(&of_flow(&format!("{F}{messages}")))
    };
    assert_eq!(named(["a", "b"]), [""; 0]);
    assert_eq!(named(["a", "a"]), ["14:53: there are two messages `a`: rename one"]);
    for taken in ["messages", "source-1", "bulk-2"] {
        let says = format!("14:22: `{taken}` is the name of other lines of the results: choose another");
        assert_eq!(named([taken, "b"]), [says]);
    }
    assert_eq!(
        named(["a.b", "b"]),
        ["14:22: '.' cannot be in the name of a message: letters, digits, - and _ can"]
    );
}

/// Scenario of a `messages` or `quic` flow, with the keys of both kinds and this grid.
fn page(kind: &str, grid: &str) -> String {
    let keys = "feeder = \"conductor\"\npreset = \"paper\"\nchunk = \"1000 B\"\ncongestion = \"reno\"\npaths = [[\"a\", \
                \"b\"]]\ncontroller = \"new-reno\"\nbulk = \"p4\"\n";
    of_flow(&format!("{F}kind = \"{kind}\"\n{keys}[grid]\nvary = {{ {grid} }}\n"))
}

#[test]
fn a_grid_over_feeders_applies_conductor_keys_to_conductor_only() {
    let flow = format!(
        "{F}kind = \"messages\"\npreset = \"paper\"\nchunk = \"1000 B\"\nfeeder = \"fifo\"\nbulk = \"p4\"\n"
    );
    let alone = of_flow(&flow);
    assert_eq!(
        faults(&alone),
        [
            "14:10: `preset` is the conductor's, and this feeder has none: leave it out",
            "15:9: `chunk` is the conductor's, and this feeder has none: leave it out"
        ]
    );
    let varied =
        format!("{alone}[grid]\nvary = {{ \"flow.f.feeder\" = [\"fifo\", \"writers\", \"conductor\"] }}\n");
    let feeders: Vec<_> = read(&varied)
        .runs()
        .map(|run| match &run.experiment.flows[0].kind {
            FlowKind::Messages(kind) => (kind.feeder, kind.messaging.preset, kind.messaging.chunk.get()),
            kind => panic!("{kind:?}"),
        })
        .collect();
    assert_eq!(feeders[0], (Feeder::Fifo, DebtRules::Marcato, 1460));
    assert_eq!(feeders[2], (Feeder::Conductor, DebtRules::Paper, 1000));
    // The same holds for `--set`, except that a key given by `--set` itself has to fit.
    let conducted = alone.replace("\"fifo\"", "\"conductor\"");
    assert_eq!(faults_with(&conducted, &["flow.f.feeder=fifo"]), [""; 0]);
    let [fault] = &faults_with(&conducted, &["flow.f.feeder=fifo", "flow.f.preset=authors"])[..] else {
        panic!("one fault")
    };
    assert!(
        fault.starts_with(
            "1:15: `preset` is the conductor's, and this feeder has none: leave it out, or vary both in one"
        ),
        "{fault}"
    );
}

#[test]
fn a_grid_over_kinds_leaves_each_kind_its_keys() {
    assert!(faults(&page("messages", "")).len() > 1);
    for base in ["messages", "quic"] {
        let scenario = read(&page(base, "\"flow.f.kind\" = [\"messages\", \"quic\"]"));
        let runs: Vec<_> = scenario.runs().collect();
        let FlowKind::Messages(messages) = &runs[0].experiment.flows[0].kind else { panic!("messages") };
        assert_eq!(messages.tcp.from.congestion.name(), "reno");
        let FlowKind::Quic(quic) = &runs[1].experiment.flows[0].kind else { panic!("quic") };
        assert_eq!((quic.controller.name(), quic.messaging.preset), ("new-reno", DebtRules::Paper));
        for run in runs {
            assert_eq!(*read(&run.experiment.to_toml()).experiment(), run.experiment);
        }
    }
    // A key that the grid itself varies has to fit every combination.
    let both = page(
        "quic",
        "\"flow.f.kind\" = [\"messages\", \"quic\"], \"flow.f.congestion\" = [\"reno\", \"cubic\"]",
    );
    assert_eq!(
        faults(&both),
        ["22:48: `congestion` is a key of a tcp flow, but this is a quic flow: leave it out"]
    );
}

#[test]
fn a_grid_sets_what_belongs_together_at_once() {
    let grid = "\"flow.f\" = [{ feeder = \"fifo\" }, { feeder = \"conductor\", preset = \"authors\" }, { kind = \"quic\" }]";
    let text = page("messages", grid);
    let scenario = read(&text);
    let kinds: Vec<String> = scenario
        .runs()
        .map(|run| match &run.experiment.flows[0].kind {
            FlowKind::Messages(kind) => format!("{:?} {}", kind.feeder, kind.messaging.preset.name()),
            kind => kind.name().to_owned(),
        })
        .collect();
    assert_eq!(kinds, ["Fifo marcato", "Conductor authors", "quic"]);
    for run in scenario.runs() {
        let set: Vec<String> = run.settings.iter().map(|one| format!("{}={}", one.key, one.value)).collect();
        let overrides = Overrides { set, seed: Some(run.seed.get()), ..Overrides::default() };
        let again =
            Scenario::parse_with("t.toml", &text, &overrides).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((again.count(), again.run(0).unwrap().experiment), (1, run.experiment));
    }
    assert_eq!(
        faults_with(&text, &["flow.f.feeder=writers"]),
        ["1:1: the grid varies `flow.f` with its `feeder`: set flow.f as a whole instead"]
    );
    assert_eq!(faults_with(&text, &["flow.f.start=1 s"]), [""; 0]);
    assert_eq!(
        faults_with(&of_flow(&format!("{F}kind = \"tcp\"\n")), &["flow.f=3"]),
        ["1:1: state which setting of flow `f`, for example flow.f.start"]
    );
}

#[test]
fn a_grid_over_kinds_of_queues_leaves_each_queue_its_keys() {
    let queue = "queue = { kind = \"droptail\", limit = \"50 packets\", target = \"1 ms\" }";
    let text = of_flow(&format!("{F}kind = \"tcp\"\n")).replace("delay = \"10 ms\"", queue);
    assert_eq!(
        faults(&text),
        ["7:52: `target` is a key of a codel queue, but this is a droptail queue: leave it out"]
    );
    let varied = format!("{text}[grid]\nvary = {{ \"link.a-b.queue.kind\" = [\"droptail\", \"codel\"] }}\n");
    let queues: Vec<_> =
        read(&varied).runs().map(|run| run.experiment.links[0].there.queue.clone()).collect();
    assert_eq!((queues[0].kind(), queues[1].kind()), ("droptail", "codel"));
    let Queue::Codel(codel) = &queues[1] else { panic!("codel") };
    assert_eq!(codel.target, marcato_units::Duration::from_millis(1));
}

/// Dumbbell with `pairs` pairs and one flow.
fn dumbbell(pairs: u32, flow: &str) -> String {
    format!(
        "name = \"t\"\nduration = \"10 s\"\n[topology]\nkind = \"dumbbell\"\npairs = {pairs}\nrate = \"8 Mbit/s\"\ndelay = \"10 \
         ms\"\n[[flow]]\nname = \"f\"\n{flow}"
    )
}

#[test]
fn instances_take_the_pairs_of_nodes_in_turn() {
    let ends = |flow: &str| {
        let scenario = read(&dumbbell(3, flow));
        let experiment = scenario.experiment();
        assert_eq!(read(&experiment.to_toml()).experiment(), experiment);
        let flow = &experiment.flows[0];
        (0..flow.count).map(|number| flow.ends_of(number).join(">")).collect::<Vec<_>>()
    };
    assert_eq!(
        ends("kind = \"tcp\"\nfrom = \"client-*\"\nto = \"server-*\"\ncount = 4\n"),
        ["client-1>server-1", "client-2>server-2", "client-3>server-3", "client-1>server-1"]
    );
    assert_eq!(
        ends(
            "kind = \"udp\"\nrate = \"1 Mbit/s\"\nfrom = [\"client-2\", \"client-1\"]\nto = \"server-3\"\ncount = 3\n"
        ),
        ["client-2>server-3", "client-1>server-3", "client-2>server-3"]
    );
    assert_eq!(
        ends("kind = \"tcp\"\nfrom = \"client-3\"\nto = [\"server-1\", \"server-2\"]\ncount = 2\n"),
        ["client-3>server-1", "client-3>server-2"]
    );
    let quic = "kind = \"quic\"\nbulk = \"p4\"\nlayer = \"low\"\nfrom = \"client-*\"\nto = \"server-*\"\ncount = 3\n";
    assert_eq!(ends(quic)[2], "client-3>server-3");
    let scenario = read(&dumbbell(3, quic));
    let [path] = &scenario.experiment().flows[0].paths_of(1)[..] else { panic!("one path") };
    assert_eq!((path.from.as_str(), path.layer), ("client-2", marcato_units::Layer::Low));
    let explained = explain(&read(&dumbbell(6, &quic.replace("count = 3", "count = 6"))));
    assert!(explained.contains("client-4 -> left") && explained.contains("and 2 more pairs"), "{explained}");
}

#[test]
fn pairs_that_do_not_fit_are_refused_each_at_its_place() {
    let of = |ends: &str| faults(&dumbbell(3, &format!("kind = \"tcp\"\n{ends}\n")));
    assert_eq!(
        of("from = \"client-*\"\nto = \"server-*\"\ncount = 2"),
        ["13:9: there are 3 pairs of nodes for 2 of these flows: write count = 3 or more"]
    );
    assert_eq!(
        of("from = \"client-*\"\nto = \"server-1\""),
        ["11:8: there are 3 pairs of nodes for 1 of these flows: write count = 3 or more"]
    );
    assert_eq!(
        of("from = \"client-*\"\nto = [\"server-1\", \"server-2\"]\ncount = 3"),
        ["12:6: `from` names 3 nodes and `to` 2: name as many of each, or one"]
    );
    assert_eq!(
        of("from = [\"client-1\", \"client-9\"]\nto = \"server-*\"\ncount = 3"),
        ["12:6: `from` names 2 nodes and `to` 3: name as many of each, or one"]
    );
    assert_eq!(
        of("from = [\"client-1\", \"clint-2\"]\nto = \"server-1\"\ncount = 3"),
        ["11:21: there is no node `clint-2`: did you mean `client-2`?"]
    );
    assert_eq!(
        of("from = [\"client-1\", \"client-1\"]\nto = \"server-1\"\ncount = 3"),
        ["11:21: the pair from `client-1` to `server-1` is given twice: remove one"]
    );
    assert_eq!(
        of("from = \"cleint-*\"\nto = \"server-1\"\ncount = 3"),
        ["11:8: no node is called `cleint-*`: did you mean `client-1`?"]
    );
    assert_eq!(of("from = []\nto = \"server-1\""), ["11:8: `from` names no node: state which"]);
    assert_eq!(of("from = 3\nto = \"server-1\""), ["11:8: `from` is a string, not a number"]);
}

#[test]
fn a_pattern_follows_the_pairs_that_a_grid_varies() {
    let flow = "kind = \"tcp\"\nfrom = \"client-*\"\nto = \"server-*\"\ncount = 8\n[grid]\nvary = { topology.pairs = [1, 4] }\n";
    let scenario = read(&dumbbell(2, flow));
    let pairs: Vec<usize> = scenario.runs().map(|run| run.experiment.flows[0].pairs().count()).collect();
    assert_eq!(pairs, [1, 4]);
}

/// Scenario of ten seconds with an event in each second.
const BUSY: &str = r#"name = "busy"
duration = "10 s"
nodes = ["a", "b"]

[[link]]
name = "l"
between = ["a", "b"]
rate = "8 Mbit/s"
delay = "10 ms"
changes = [{ at = "3 s", rate = "4 Mbit/s" }, { at = "7 s", rate = "2 Mbit/s" }]

[[flow]]
name = "early"
kind = "tcp"
from = "a"
to = "b"
stop = "9 s"

[[flow]]
name = "twins"
kind = "tcp"
from = "a"
to = "b"
count = 3
stagger = "3 s"

[[flow]]
name = "talk"
kind = "messages"
from = "a"
to = "b"
start = "1 s"
messages = [{ after = "1 s", size = "1 kB" }, { after = "6 s", size = "1 kB" }]
sources = [{ period = "1 s", size = "1 kB" }, { first = "5 s", period = "1 s", size = "1 kB" }]

[[flow]]
name = "late"
kind = "udp"
from = "a"
to = "b"
rate = "1 Mbit/s"
start = "8 s"

[record]
series = ["flow.late.throughput", "flow.twins.cwnd", "link.l.queue"]
"#;

#[test]
fn a_shortened_run_drops_everything_past_its_end_and_lists_it() {
    let overrides = Overrides { set: vec!["duration=3 s".to_owned()], ..Overrides::default() };
    let scenario =
        Scenario::parse_with("busy.toml", BUSY, &overrides).unwrap_or_else(|error| panic!("{error}"));
    let notes = [
        "2 of 2 changes of link `l`",
        "2 of 3 flows `twins`",
        "1 of 2 messages of flow `talk`",
        "1 of 2 sources of flow `talk`",
        "the flow `late`, which would start at 8 s",
    ];
    assert_eq!(scenario.notes(), notes);
    assert_eq!(scenario.run(0).unwrap().notes, notes);
    let explained = explain(&scenario);
    assert!(
        explained.contains(&format!("left out, since the run ends at 3 s\n  {}\n", notes.join("\n  "))),
        "{explained}"
    );
    let experiment = scenario.experiment();
    let names: Vec<&str> = experiment.flows.iter().map(|flow| flow.name.as_str()).collect();
    // Only the first instance of `twins` is left, and it keeps its numbered name.
    assert_eq!(names, ["early", "twins-1", "talk"]);
    let series: Vec<String> = experiment.record.series.iter().map(ToString::to_string).collect();
    assert_eq!(series, ["flow.twins-1.cwnd", "link.l.queue"]);
    // The shortened experiment is itself a valid scenario.
    assert_eq!(read(&experiment.to_toml()).experiment(), experiment);
    // A run at least as long as the file's leaves out nothing.
    for duration in ["duration=10 s", "duration=1 h"] {
        let overrides = Overrides { set: vec![duration.to_owned()], ..Overrides::default() };
        let whole = Scenario::parse_with("busy.toml", BUSY, &overrides).unwrap();
        assert_eq!((whole.notes().len(), whole.experiment().flows.len()), (0, 4));
    }
}

#[test]
fn a_duration_that_is_varied_cuts_each_run_by_itself() {
    let text = format!("{BUSY}[grid]\nvary = {{ duration = [\"2 s\", \"5 s\", \"10 s\"] }}\n");
    let scenario = read(&text);
    let counts: Vec<usize> = scenario.runs().map(|run| run.experiment.flows.len()).collect();
    let notes: Vec<usize> = scenario.runs().map(|run| run.notes.len()).collect();
    assert_eq!((counts, notes), (vec![3, 3, 4], vec![5, 5, 0]));
}

#[test]
fn events_past_a_files_own_end_and_runs_without_flows_are_wrong() {
    let short = BUSY.replace("duration = \"10 s\"", "duration = \"5 s\"");
    assert_eq!(
        faults(&short),
        [
            "10:54: a change at or after the end of the run, 5 s, has no effect",
            "25:11: the last of 3 flows would start at 6 s, but the run ends at 5 s: stagger them less",
            "33:12: a message comes at or after the end of the run, 5 s: send it earlier",
            "34:11: a source begins at or after the end of the run, 5 s: let it begin earlier",
            "42:9: the flow starts at or after the end of the run, 5 s: start it earlier"
        ]
    );
    let late =
        BUSY.replace("stop = \"9 s\"", "start = \"2 s\"").replace("stagger = \"3 s\"", "start = \"2 s\"");
    assert_eq!(
        faults_with(&late, &["duration=1 s"]),
        ["1:10: the run ends at 1 s, before any flow starts: let it run longer"]
    );
    let swapped = BUSY.replace(
        "{ period = \"1 s\", size = \"1 kB\" }, { first = \"5 s\", period = \"1 s\", size = \"1 kB\" }",
        "{ first = \"5 s\", period = \"1 s\", size = \"1 kB\" }, { period = \"1 s\", size = \"1 kB\" }",
    );
    assert_eq!(
        faults_with(&swapped, &["duration=5 s"]),
        [
            "34:11: a source begins only 4 s after the flow, when the run is over, and another stands behind it: put it last \
             (with --set duration=5 s)"
        ]
    );
}

/// UDP flow with these keys.
fn udp(keys: &str) -> String {
    of_flow(&format!("{F}kind = \"udp\"\nrate = \"1 Mbit/s\"\n{keys}\n"))
}

#[test]
fn payloads_are_drawn_up_to_what_fits() {
    let payload = |keys: &str| {
        let scenario = read(&udp(keys));
        let experiment = scenario.experiment();
        assert_eq!(read(&experiment.to_toml()).experiment(), experiment);
        match &experiment.flows[0].kind {
            FlowKind::Udp(udp) => (udp.payload.clone(), explain(&scenario)),
            kind => panic!("{kind:?}"),
        }
    };
    let mean = Bytes::new(600);
    assert_eq!(payload("").0, Payload::Constant(Bytes::new(1200)));
    assert_eq!(payload("payload = { kind = \"constant\", size = \"99 B\" }").0, Bytes::new(99).into());
    let (drawn, explained) = payload("payload = { kind = \"exponential\", mean = \"600 B\" }");
    assert_eq!(drawn, Payload::Drawn { size: Size::Exponential { mean }, most: Bytes::new(1472) });
    assert!(explained.contains("payload 600 B (exponential), at most 1472 B"), "{explained}");
    let (drawn, _) =
        payload("payload = { kind = \"log-normal\", mean = \"600 B\", sigma = 1 }\nmost-payload = \"1 kB\"");
    assert_eq!(drawn, Payload::Drawn { size: Size::LogNormal { mean, sigma: 1.0 }, most: Bytes::kb(1) });
    let (listed, _) = payload("payload = { kind = \"file\", file = \"x.txt\", order = \"random\" }");
    assert_eq!(listed, Payload::Listed(Listed { file: "x.txt".into(), is_random: true, list: None }));
}

#[test]
fn payloads_that_cannot_be_are_refused() {
    for (keys, says) in [
        (
            "payload = \"1473 B\"",
            "15:11: the largest packet of this flow has 1501 B (its payload and 28 B of headers), but `a-b` lets 1500 B through: lower `payload` to 1472 B, or raise the link's `mtu`",
        ),
        (
            "payload = { kind = \"exponential\", mean = \"1 kB\" }\nmost-payload = \"2 kB\"",
            "16:16: the largest packet of this flow has 2028 B (`most-payload` and 28 B of headers), but `a-b` lets 1500 B through: lower `most-payload` to 1472 B, or raise the link's `mtu`",
        ),
        (
            "payload = \"1 kB\"\nmost-payload = \"1 kB\"",
            "16:16: `most-payload` applies to drawn payloads only: remove it",
        ),
        (
            "payload = { kind = \"file\" }",
            "15:11: sizes from a file needs `file`: state which, with a size in bytes in each line, for example file = \"sizes.txt\"",
        ),
        (
            "payload = { kind = \"file\", file = \"\" }",
            "15:35: `file` is empty: give the path of a file, relative to this one",
        ),
        (
            "payload = { kind = \"file\", file = \"x\", order = \"last\" }",
            "15:48: `order` is \"last\": there are `in-turn`, `random`",
        ),
        (
            "payload = { kind = \"pareto\", mean = \"1 kB\" }",
            "15:11: a pareto size needs `shape`: state how heavy its tail is, for example shape = 1.2",
        ),
    ] {
        assert_eq!(faults(&udp(keys)), [says], "{keys}");
    }
}

#[test]
fn sizes_are_read_beside_the_scenario_and_errors_name_the_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.toml");
    let load = |sizes: Option<&str>| {
        if let Some(sizes) = sizes {
            std::fs::write(directory.path().join("sizes.txt"), sizes).unwrap();
        }
        std::fs::write(&path, udp("payload = { kind = \"file\", file = \"sizes.txt\" }")).unwrap();
        Scenario::load(&path, &Overrides::default()).map_err(|error| {
            format!("{}:{}: {}", error.faults()[0].line, error.faults()[0].column, error.faults()[0].problem)
        })
    };
    assert!(load(None).unwrap_err().starts_with("15:35: the sizes `sizes.txt`: cannot be read: "));
    assert_eq!(
        load(Some("40\nforty\n")).unwrap_err(),
        "15:35: the sizes `sizes.txt`: line 2: \"forty\" is no size in bytes, 1 to 65507"
    );
    assert_eq!(
        load(Some("40\n1472\n1473\n")).unwrap_err(),
        "15:11: the largest packet of this flow has 1501 B (line 3 of its file and 28 B of headers), but `a-b` lets 1500 B through: \
         raise the link's `mtu` to 1501 B"
    );
    let scenario = load(Some("40\n1472\n")).unwrap();
    assert!(
        explain(&scenario).contains("payload from sizes.txt in turn (2 sizes, mean 756 B, at most 1472 B)")
    );
    let experiment = scenario.run(0).unwrap().experiment;
    let sizes: Vec<_> = experiment.sizes().map(|(file, list)| (file, list.as_slice().to_vec())).collect();
    assert_eq!(sizes, [("sizes.txt", vec![40, 1472])]);
}
