//! Plug-ins in scenarios: names, parameters, faults, and the texts that show them.

use marcato_scenario::flow::FlowKind;
use marcato_scenario::plugin::{Parameters, Plugin, PluginKind, PluginNameError, PluginNames};
use marcato_scenario::queue::Queue;
use marcato_scenario::quic::Scheduler;
use marcato_scenario::tcp::{Congestion, Cubic};
use marcato_scenario::{Overrides, Reader, Scenario, explain};

fn names() -> PluginNames {
    let mut names = PluginNames::default();
    names.add(PluginKind::Congestion, "aimd", &["decrease", "note", "smooth"]).unwrap();
    names.add(PluginKind::Queue, "head-drop", &["limit"]).unwrap();
    names.add(PluginKind::Scheduler, "cheapest", &[]).unwrap();
    names.add(PluginKind::Workload, "pages", &["images"]).unwrap();
    names
}

fn scenario(queue: &str, congestion: &str, scheduler: &str, grid: &str) -> String {
    format!(
        r#"name = "own"
duration = "10 s"
nodes = ["client", "server"]

[[link]]
between = ["client", "server"]
rate = "10 Mbit/s"
delay = "20 ms"
queue = {queue}

[[flow]]
name = "bulk"
kind = "tcp"
from = "client"
to = "server"
congestion = {congestion}

[[flow]]
name = "session"
kind = "quic"
from = "client"
to = "server"
scheduler = {scheduler}
bulk = "p4"
{grid}"#
    )
}

fn read(text: &str) -> Scenario {
    Reader::new().plugins(&names()).parse("own.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the first problem, with its line and column.
fn first(text: &str) -> (usize, usize, String) {
    let error = Reader::new().plugins(&names()).parse("own.toml", text).unwrap_err();
    let first = &error.faults()[0];
    (first.line, first.column, first.problem.clone())
}

fn congestion(of: &marcato_scenario::Experiment) -> &Congestion {
    let FlowKind::Tcp(tcp) = &of.flows[0].kind else { panic!("tcp") };
    &tcp.tcp.from.congestion
}

const OWN: [&str; 3] =
    [r#""head-drop""#, r#"{ kind = "aimd", decrease = 0.5, note = "a", smooth = true }"#, r#""cheapest""#];

#[test]
fn plugins_are_read_by_name_with_their_parameters() {
    let scenario = read(&scenario(OWN[0], OWN[1], OWN[2], ""));
    let experiment = scenario.experiment();
    let parameters = Parameters::default().with("decrease", 0.5).with("note", "a").with("smooth", true);
    let aimd = Plugin { parameters, ..Plugin::new("aimd") };
    assert_eq!(congestion(experiment), &Congestion::Plugin(aimd));
    assert_eq!(experiment.links[0].there.queue, Queue::Plugin(Plugin::new("head-drop")));
    let FlowKind::Quic(quic) = &experiment.flows[1].kind else { panic!("quic") };
    assert_eq!(quic.scheduler, Scheduler::Plugin(Plugin::new("cheapest")));
    assert!(experiment.is_random());
}

#[test]
fn a_scenario_with_plugins_reads_back_as_it_was_written() {
    let queue = r#"{ kind = "head-drop", limit = "20 packets" }"#;
    let first = read(&scenario(queue, OWN[1], OWN[2], ""));
    let again = read(&first.experiment().to_toml());
    assert_eq!(again.experiment(), first.experiment());
}

/// Returns a scenario with a workload in a flow of this kind.
fn with_workload(kind: &str, workload: &str) -> String {
    scenario(OWN[0], "\"reno\"", "\"cwr\"", "").replace(
        "kind = \"quic\"\nfrom = \"client\"\nto = \"server\"\nscheduler = \"cwr\"\nbulk = \"p4\"",
        &format!("kind = \"{kind}\"\nfrom = \"client\"\nto = \"server\"\nworkload = {workload}"),
    )
}

#[test]
fn a_workload_is_what_a_flow_sends() {
    for kind in ["messages", "quic"] {
        let read = read(&with_workload(kind, r#"{ kind = "pages", images = 6 }"#));
        let experiment = read.experiment();
        assert!(experiment.plugins().contains(&(PluginKind::Workload, "pages")) && experiment.is_random());
        assert_eq!(self::read(&experiment.to_toml()).experiment(), experiment);
        let text = explain(&read);
        assert!(text.contains(": messages of pages (images 6)"), "{text}");
    }
    let (.., problem) = first(&with_workload("messages", r#""page""#));
    assert_eq!(problem, "`page` is not a kind of workload: did you mean `pages`?");
    let (.., problem) = first(&with_workload("quic", r#"{ kind = "pages", pictures = 6 }"#));
    assert!(problem.starts_with("`pictures` is not a key of the workload pages: "), "{problem}");
    let error = Scenario::parse("own.toml", &with_workload("messages", r#""pages""#)).unwrap_err();
    let all: Vec<&str> = error.faults().iter().map(|fault| fault.problem.as_str()).collect();
    assert!(all.iter().any(|problem| problem.starts_with("no workload is registered")), "{all:?}");
}

#[test]
fn the_summary_names_plugins_and_their_parameters() {
    let text = explain(&read(&scenario(OWN[0], OWN[1], OWN[2], "")));
    assert!(text.contains("tcp aimd (decrease 0.5, note a, smooth true), bulk data"), "{text}");
    assert!(text.contains("quic on 1 lane by cheapest, cubic"), "{text}");
    let link = text.lines().find(|line| line.contains("head-drop")).unwrap();
    // The capacity of a plug-in is unknown, so no time is shown.
    assert!(link.trim_end().ends_with("head-drop  -      -"), "{link}");
}

#[test]
fn an_unknown_name_is_a_fault_that_lists_plugins_too() {
    let near = first(&scenario(OWN[0], r#""aimed""#, OWN[2], ""));
    assert_eq!(near, (16, 14, "`aimed` is not a kind of congestion: did you mean `aimd`?".to_owned()));
    let (line, _, problem) = first(&scenario(OWN[0], OWN[1], r#""zzzzzzzz""#, ""));
    let all = "`low-rtt`, `round-robin`, `cwr`, `cwr-red`, `selective`, `cheapest`";
    assert_eq!((line, problem), (23, format!("`zzzzzzzz` is not a kind of scheduler: there are {all}")));
}

#[test]
fn a_scheduler_has_the_spellings_of_perf_too() {
    for (spelled, expected) in [("lowrtt", Scheduler::LowRtt), ("rr", Scheduler::RoundRobin)] {
        let text = scenario(r#""droptail""#, r#""reno""#, &format!("\"{spelled}\""), "");
        let read = Scenario::parse("own.toml", &text).unwrap();
        let flows = &read.experiment().flows;
        let quic = flows.iter().find_map(|flow| match &flow.kind {
            FlowKind::Quic(quic) => Some(&quic.scheduler),
            _ => None,
        });
        assert_eq!(quic, Some(&expected), "{spelled}");
    }
}

#[test]
fn a_reader_without_plugins_knows_only_built_in_kinds() {
    let error = Scenario::parse("own.toml", &scenario(OWN[0], r#""reno""#, r#""cwr""#, "")).unwrap_err();
    assert_eq!(error.faults().len(), 1, "{error}");
    let problem = &error.faults()[0].problem;
    assert!(problem.starts_with("`head-drop` is not a kind of queue: there are `droptail`"), "{problem}");
}

#[test]
fn a_wrong_parameter_is_a_fault_with_its_position() {
    let with = |congestion: &str| first(&scenario(OWN[0], congestion, OWN[2], ""));
    let (line, column, problem) = with(r#"{ kind = "aimd", decraese = 0.5 }"#);
    let slip = "`decraese` is not a key of the congestion control aimd: did you mean `decrease`?";
    assert_eq!((line, column, problem.as_str()), (16, 31, slip));
    let (_, column, problem) = with(r#"{ kind = "aimd", decrease = [1] }"#);
    let list = "`decrease` is a number, a string, or true or false, not a list";
    assert_eq!((column, problem.as_str()), (42, list));
    let (.., problem) = with(r#"{ kind = "aimd", decrease = 9007199254740993 }"#);
    assert_eq!(problem, "`decrease` is at most 2^53 either way, not 9007199254740993");
    let (.., problem) = with(r#"{ kind = "cubic", decrease = 0.5 }"#);
    assert!(problem.starts_with("`decrease` is not a key of cubic: "), "{problem}");
    let (.., problem) = first(&scenario(OWN[0], OWN[1], r#"{ kind = "cheapest", budget = 1 }"#, ""));
    assert_eq!(problem, "`budget` is not a key of the lane scheduler cheapest: there is only `kind`");
}

#[test]
fn a_grid_compares_plugins_with_built_in_kinds() {
    let congestion = r#"{ kind = "cubic", hystart = false, decrease = 0.6 }"#;
    let grid = "[grid]\nvary = { \"flow.bulk.congestion.kind\" = [\"cubic\", \"aimd\"] }\n";
    let scenario = read(&scenario(OWN[0], congestion, OWN[2], grid));
    let runs: Vec<_> = scenario.runs().collect();
    assert_eq!(runs[1].id, "kind=aimd,seed=1");
    let cubic = Congestion::Cubic(Cubic { hystart: false, ..Cubic::LINUX });
    assert_eq!(congestion_of(&runs[0]), cubic);
    let parameters = Parameters::default().with("decrease", 0.6);
    assert_eq!(congestion_of(&runs[1]), Congestion::Plugin(Plugin { parameters, ..Plugin::new("aimd") }));
}

#[test]
fn a_plugin_knows_its_position() {
    let position = |scenario: &Scenario| match congestion(scenario.experiment()) {
        Congestion::Plugin(plugin) => plugin.position.as_ref().unwrap().to_string(),
        other => panic!("{other:?}"),
    };
    let text = scenario(OWN[0], OWN[1], OWN[2], "");
    let at = text.find(OWN[1]).unwrap();
    let line = text[..at].matches('\n').count() + 1;
    let column = at - text[..at].rfind('\n').unwrap();
    assert_eq!(position(&read(&text)), format!("own.toml:{line}:{column}"));
    let set = "flow.bulk.congestion={ kind = \"aimd\", decrease = 0.6 }";
    let overrides = Overrides { set: vec![set.to_owned()], ..Overrides::default() };
    let scenario = Reader::new().plugins(&names()).overrides(&overrides).parse("own.toml", &text).unwrap();
    assert_eq!(position(&scenario), "--set flow.bulk.congestion");
}

#[test]
fn the_line_that_repeats_a_run_names_its_plugins() {
    let line = |queue: &str, congestion: &str, scheduler: &str| {
        let scenario = read(&scenario(queue, congestion, scheduler, ""));
        scenario.one_line(&scenario.run(0).unwrap())
    };
    let plain = "marcato sim own.toml --seed 1";
    assert_eq!(line("\"codel\"", "\"cubic\"", "\"cwr\""), plain);
    let one = format!("{plain} # with the plug-in congestion control aimd");
    assert_eq!(line("\"codel\"", OWN[1], "\"cwr\""), one);
    let strict = r#"{ kind = "strict", low = "head-drop" }"#;
    let all = "congestion control aimd, queue head-drop, lane scheduler cheapest";
    assert_eq!(line(strict, OWN[1], OWN[2]), format!("{plain} # with the plug-ins {all}"));
}

fn congestion_of(run: &marcato_scenario::Run) -> Congestion {
    congestion(&run.experiment).clone()
}

#[test]
fn names_that_are_taken_or_cannot_be_written_are_refused() {
    let add = |kind, name: &str, parameters: &[&str]| names().add(kind, name, parameters).unwrap_err();
    for (kind, name, problem) in [
        (PluginKind::Congestion, "cubic", "the congestion control `cubic` is built in: choose another name"),
        (PluginKind::Queue, "codel", "the queue `codel` is built in: choose another name"),
        (PluginKind::Scheduler, "cwr-red", "the lane scheduler `cwr-red` is built in: choose another name"),
        (
            PluginKind::Congestion,
            "aimd",
            "there are two plug-ins for the congestion control `aimd`: rename one",
        ),
        (PluginKind::Queue, "2q", "the name `2q` of a queue does not begin with a letter: choose another"),
    ] {
        assert_eq!(add(kind, name, &[]).to_string(), problem);
    }
    assert!(matches!(add(PluginKind::Queue, "my queue", &[]), PluginNameError::Name(_)));
    assert!(matches!(add(PluginKind::Queue, "own", &["a b"]), PluginNameError::Name(_)));
    for parameters in [["a", "a"], ["a", "kind"]] {
        assert!(matches!(
            add(PluginKind::Queue, "own", &parameters),
            PluginNameError::Parameter { kind: PluginKind::Queue, .. }
        ));
    }
    // A name is taken within its kind only.
    assert_eq!(names().add(PluginKind::Queue, "cubic", &[]), Ok(()));
}
