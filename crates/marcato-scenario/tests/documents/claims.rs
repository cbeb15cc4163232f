//! Tests of claims as files have them.

use marcato_scenario::claim::{Band, Statistic};
use marcato_scenario::{Overrides, Scenario, ScenarioError};

const GRID: &str = r#"name = "grid"
duration = "4 s"
topology = { kind = "dumbbell", rate = "8 Mbit/s", delay = "10 ms" }
flow = [{ name = "bulk", kind = "tcp", from = "client-1", to = "server-1" }]
[grid]
seeds = 2
[grid.vary]
"topology.queue" = ["codel", { kind = "droptail", limit = "50 ms" }]
topology.rate = ["8 Mbit/s", "4 Mbit/s"]
[[claim]]
id = "x"
metric = "flow.bulk.rtt_mean_ms"
"#;

fn read(claim: &str, set: &[&str]) -> Result<Scenario, ScenarioError> {
    let set = set.iter().map(|&set| set.to_owned()).collect();
    Scenario::parse_with("grid.toml", &format!("{GRID}{claim}"), &Overrides { set, ..Overrides::default() })
}

fn problems(claim: &str) -> Vec<String> {
    let error = read(claim, &[]).unwrap_err();
    error.faults().iter().map(|fault| format!("{}: {}", fault.line, fault.problem)).collect()
}

const AT: &str =
    "at = { topology = { queue = { kind = \"droptail\", limit = \"50 ms\" }, rate = \"4 Mbit/s\" } }\n";

#[test]
fn points_are_written_as_keys_of_the_grid_in_either_way() {
    let quoted = "at = { \"topology.queue\" = { kind = \"droptail\", limit = \"50 ms\" }, \"topology.rate\" = \"4 Mbit/s\" }\n";
    let [nested, quoted] = [AT, quoted].map(|at| {
        read(&format!("{at}over = {{ topology.queue = \"codel\" }}"), &[]).unwrap().claims()[0].clone()
    });
    // `metric_place` and points are equal, as the claims differ only in how `at` is written.
    assert_eq!(nested, quoted);
    assert_eq!(nested.at.combination, Some(3));
    let over = nested.over.unwrap();
    assert_eq!(over.combination, Some(1));
    let values: Vec<&str> = over.settings.iter().map(|setting| setting.value.as_str()).collect();
    assert_eq!(values, ["codel", "4 Mbit/s"]);
}

#[test]
fn the_combination_of_a_point_is_that_of_its_runs() {
    let scenario = read(AT, &[]).unwrap();
    let point = &scenario.claims()[0].at;
    let run = scenario.run(point.combination.unwrap() * scenario.seeds().len()).unwrap();
    assert_eq!(run.settings, point.settings);
}

#[test]
fn a_setting_of_the_command_line_leaves_other_points_out() {
    let fixed = |set: &str| read(AT, &[set]).unwrap().claims()[0].at.combination;
    assert_eq!(fixed("topology.rate=4 Mbit/s"), Some(1));
    assert_eq!(fixed("topology.rate=2 Mbit/s"), None);
    // A key that is fixed need not be named.
    let open = "at = { topology.queue = \"codel\" }";
    assert_eq!(read(open, &["topology.rate=2 Mbit/s"]).unwrap().claims()[0].at.combination, Some(0));
}

#[test]
fn claims_have_their_band_and_statistic() {
    let band = |keys: &str| read(&format!("{AT}{keys}"), &[]).unwrap().claims()[0].band;
    assert_eq!(band(""), Band::None);
    assert_eq!(band("at-least = 1"), Band::Between(Some(1.0), None));
    assert_eq!(band("published = 3\nwithin = \"2.5 %\""), Band::Percent(2.5));
    assert_eq!(band("published = 3\nwithin = 0.1"), Band::Distance(0.1));
    let claim = read(&format!("{AT}statistic = \"max\""), &[]).unwrap().claims()[0].clone();
    assert_eq!((claim.statistic, claim.what.as_str()), (Statistic::Max, "flow.bulk.rtt_mean_ms"));
}

#[test]
fn faults_of_a_claim_have_their_line_and_remedy() {
    for (claim, says) in [
        (
            "",
            "10: the claim leaves `topology.queue` open, which the grid varies: add it to `at`, for example at = { \"topology.queue\" = \"codel\" }",
        ),
        ("at = \"codel\"", "13: `at` is a table of varied keys, not a string"),
        (
            "at = { topology.delay = \"1 ms\" }",
            "13: the grid does not vary `topology.delay`: there are `topology.queue`, `topology.rate`",
        ),
        ("over = {}", "14: `over` names no other point: give a varied key with another value"),
        ("at-least = 2\nat-most = 1", "15: `at-most` is below `at-least`: no value lies in this band"),
        ("within = 1", "14: `within` needs the value that the band lies around: add `published`"),
        (
            "published = 1\nwithin = \"1\"",
            "15: `within` is a distance or a share of the published value, for example \"1 %\"",
        ),
        (
            "published = 1\nwithin = 1\nat-least = 1",
            "15: a band is `within`, or `at-least` and `at-most`: leave one out",
        ),
        ("published = nan", "14: `published` is at least -179"),
        (
            "[[claim]]\nid = \"x y\"\nmetric = \"a.b\"\n",
            "15: an id has at most 128 letters, digits and `-_.@`: rename the claim",
        ),
        (
            "statistic = \"average\"",
            "14: `statistic` is \"average\": there are `mean`, `median`, `min`, `max`",
        ),
    ] {
        let at = if claim.is_empty() || claim.starts_with("at =") { "" } else { AT };
        let found = problems(&format!("{at}{claim}"));
        assert!(found.iter().any(|problem| problem.starts_with(says)), "{says}\n{found:?}");
    }
    let twice = format!("{AT}[[claim]]\nid = \"x\"\nmetric = \"flow.bulk.rtt_mean_ms\"\n{AT}");
    assert_eq!(problems(&twice), ["15: there are two claims `x`: rename one"]);
}
