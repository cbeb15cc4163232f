//! Tests of the claims of a scenario, through `marcato sim`.

use std::fs;

use marcato_cli::{Status, run};
use marcato_papers::Registry;
use serde_json::Value;

const GRID: &str = r#"
name = "grid"
duration = "4 s"
warm-up = "1 s"
topology = { kind = "dumbbell", rate = "8 Mbit/s", delay = "10 ms", queue = "codel" }

[[flow]]
name = "bulk"
kind = "tcp"
from = "client-1"
to = "server-1"

[grid]
seeds = 2
vary = { "topology.queue" = ["codel", "droptail"] }

[quick]
duration = "2 s"
seeds = 1
"#;

const RATIO: &str = r#"
[[claim]]
id = "delay.codel"
what = "one-way delay, CoDel over drop-tail"
metric = "flow.bulk.delay_mean_ms"
at = { "topology.queue" = "codel" }
over = { "topology.queue" = "droptail" }
published = 0.1
source = "a paper, Table 1"
at-most = 0.5
"#;

/// Runs `marcato sim` with a file of this text; returns status, standard output and standard error.
fn sim(text: &str, more: &[&str]) -> (Status, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("grid.toml");
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let arguments = ["marcato", "sim", file].into_iter().chain(more.iter().copied());
    let (mut out, mut err) = (vec![], vec![]);
    let status = run(&Registry::default(), arguments.map(Into::into), &mut out, &mut err);
    let err = String::from_utf8(err).unwrap().replace(&format!("{}/", directory.path().display()), "");
    (status, String::from_utf8(out).unwrap(), err)
}

#[test]
fn a_claim_that_holds_exits_0_and_one_that_is_off_exits_1() {
    let held = format!("{GRID}{RATIO}");
    let (status, text, _) = sim(&held, &[]);
    assert_eq!(status, Status::Ok);
    assert!(text.contains("\nclaims: 1 held\n"), "{text}");
    let off = held.replace("at-most = 0.5", "at-least = 0.5");
    let (status, text, _) = sim(&off, &[]);
    assert_eq!((status, u8::from(status)), (Status::Outside, 1));
    assert!(text.contains("\nclaims: 1 off\n") && text.contains("delay.codel"), "{text}");
    let (status, ..) = sim(GRID, &[]);
    assert_eq!(status, Status::Ok);
}

#[test]
fn json_csv_and_parquet_have_the_claims() {
    let text = format!("{GRID}{RATIO}");
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let (_, json, _) = sim(&text, &["--format", "json", "--out", out.to_str().unwrap()]);
    let document: Value = serde_json::from_str(&json).unwrap();
    let claim = &document["claims"][0];
    for (key, value) in [
        ("claim", Value::from("delay.codel")),
        ("at", "topology.queue = codel".into()),
        ("over", "topology.queue = droptail".into()),
        ("unit", "ratio".into()),
        ("published", 0.1.into()),
        ("source", "a paper, Table 1".into()),
        ("n", 2.into()),
        ("at_most", 0.5.into()),
        ("at_least", Value::Null),
        ("verdict", "held".into()),
    ] {
        assert_eq!(claim[key], value, "{key}");
    }
    let (_, alone, _) = sim(&text, &["--format", "json", "--claims"]);
    assert_eq!(serde_json::from_str::<Value>(&alone).unwrap()["claims"][0], *claim);
    let (_, csv, _) = sim(&text, &["--format", "csv", "--claims"]);
    assert_eq!(csv, fs::read_to_string(out.join("claims.csv")).unwrap());
    assert_eq!(csv.lines().count(), 2);
    assert!(out.join("claims.parquet").exists());
    assert_eq!(json, fs::read_to_string(out.join("grid.json")).unwrap());
    // The table of means is as without claims.
    let first = |text: &str| sim(text, &["--format", "csv"]).1.lines().next().map(ToOwned::to_owned);
    assert_eq!(first(&text), first(GRID));
}

#[test]
fn the_only_run_of_a_scenario_has_claims_too() {
    let text = GRID.replace("\nvary = { \"topology.queue\" = [\"codel\", \"droptail\"] }", "");
    let claim = "[[claim]]\nid = \"all\"\nmetric = \"link.bottleneck.utilisation_percent\"\nat-least = 101\n";
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let arguments = ["--seed", "1", "--format", "json", "--out", out.to_str().unwrap()];
    let (status, json, err) = sim(&format!("{text}{claim}"), &arguments);
    assert_eq!(status, Status::Outside, "{err}");
    assert_eq!(json, fs::read_to_string(out.join("result.json")).unwrap());
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&document["claims"][0]["verdict"], &document["claims"][0]["unit"]),
        (&"off".into(), &"%".into())
    );
    assert!(out.join("claims.csv").exists());
}

#[test]
fn a_claim_that_needs_a_failed_run_is_not_judged() {
    // Half a bit per second is not a valid rate of a queue.
    let text = GRID.replace("queue = \"codel\"", "queue = { kind = \"crq\", sharing = \"split\" }").replace(
        "\"topology.queue\" = [\"codel\", \"droptail\"]",
        "\"topology.rate\" = [\"8 Mbit/s\", \"1 bit/s\"]",
    );
    let claim = |id: &str, rate: &str| {
        format!(
            "[[claim]]\nid = \"{id}\"\nmetric = \"flow.bulk.goodput_mbit_per_s\"\nat-least = 0\n\
             at = {{ \"topology.rate\" = \"{rate}\" }}\n"
        )
    };
    let text = format!("{text}{}{}", claim("fast", "8 Mbit/s"), claim("slow", "1 bit/s"));
    let (status, out, err) = sim(&text, &["--format", "csv"]);
    assert_eq!(status, Status::Error);
    assert!(err.starts_with("error: 2 of 4 runs failed:"), "{err}");
    let verdicts: Vec<&str> = out.lines().skip(1).filter_map(|line| line.rsplit(',').next()).collect();
    assert_eq!(verdicts, ["held", "not judged"]);
}

#[test]
fn a_claim_about_nothing_known_is_refused_before_any_run() {
    for (from, to, says) in [
        (
            "flow.bulk.delay_mean_ms",
            "flow.bulk.delay_men_ms",
            "24:10: the run has no metric `flow.bulk.delay_men_ms`: did you mean `flow.bulk.delay_mean_ms`?",
        ),
        (
            "flow.bulk.delay_mean_ms",
            "flow.bulk.delay_mean_ms +",
            "24:10: the expression ends too early: name a metric",
        ),
        (
            "at = { \"topology.queue\"",
            "at = { \"topology.queu\"",
            "25:8: the grid does not vary `topology.queu`: did you mean `topology.queue`?",
        ),
        (
            "at = { \"topology.queue\" = \"codel\"",
            "at = { \"topology.queue\" = \"codl\"",
            "25:27: the grid has no `topology.queue` of codl: did you mean `codel`?",
        ),
        (
            "at = { \"topology.queue\" = \"codel\" }\n",
            "",
            "the claim leaves `topology.queue` open, which the grid varies",
        ),
        ("at-most", "at-mots", "`at-mots` is not a key of a claim: did you mean `at-most`?"),
        ("at-most = 0.5", "unit = \"mS\"", "29:8: there is no unit `mS`: did you mean `ms`?"),
    ] {
        let from_line_2 = RATIO.replace(from, to);
        assert_ne!(from_line_2, RATIO, "{from}");
        let (status, out, err) = sim(&format!("{GRID}{from_line_2}"), &[]);
        assert_eq!((status, out.as_str()), (Status::Error, ""), "{err}");
        assert!(err.contains(says), "{says}\n{err}");
    }
}

#[test]
fn a_point_that_is_set_away_is_left_out() {
    let text = format!("{GRID}{RATIO}");
    let (status, out, _) = sim(&text, &["--set", "topology.queue=codel", "--claims"]);
    assert_eq!(status, Status::Ok);
    assert!(out.starts_with("claims: 1 left out\n"), "{out}");
}

#[test]
fn a_quick_run_has_the_settings_of_its_table() {
    let (_, json, _) = sim(GRID, &["--quick", "--format", "json"]);
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&document["config"]["duration"], &document["seeds"]), (&"2 s".into(), &vec![1].into()));
    assert!(document["rows"][0]["repeat_with"].as_str().unwrap().contains("grid.toml --quick --set"));
    // The command line has the last word.
    let (_, json, _) = sim(GRID, &["--quick", "--set", "duration=3 s", "--seed", "7", "--format", "json"]);
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&document["config"]["duration"], &document["seeds"]), (&"3 s".into(), &vec![7].into()));
    let wrong = GRID.replace("duration = \"2 s\"", "duration = \"1 s\"");
    let (status, _, err) = sim(&wrong, &[]);
    assert_eq!(status, Status::Error);
    assert!(
        err.contains("the warm-up ends no earlier than the run") && err.contains("(with --quick)"),
        "{err}"
    );
}

#[test]
fn claims_of_a_file_without_any_are_an_error() {
    let (status, _, err) = sim(GRID, &["--claims"]);
    assert_eq!(status, Status::Error);
    assert!(err.contains("this scenario has no claims"), "{err}");
}
