//! Tests of the CATS experiments as a whole: claims, documentation of rows, repeatable bytes.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use marcato_papers::{Registry, RunOptions, Silent, registry};
use marcato_report::Report;
use marcato_testing::{Need, absent};

/// The report of the first seed, which several tests look at: its run takes longer than all that they ask.
fn first() -> &'static Report {
    static FIRST: OnceLock<Report> = OnceLock::new();
    FIRST.get_or_init(|| run(1))
}

fn run(seed: u64) -> Report {
    run_with(&RunOptions::repeated(seed, 1).expect("one seed"))
}

fn run_with(options: &RunOptions) -> Report {
    let registry = registry();
    let experiment = registry.select("cats").expect("cats is registered")[0];
    Registry::run(experiment, options, &mut Silent).expect("cats runs")
}

#[test]
fn every_value_lies_in_its_band_or_is_known_not_to() {
    // The list has one reader, which `.ci/long` uses too.
    if absent!(Need::Program("python3")) {
        return;
    }
    let report = first();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut check = Command::new(root.join("tools/known-rows/check"));
    check.arg("/dev/stdin").arg(root.join(".ci/known-rows-cats"));
    let mut check =
        check.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The end of the rows is the end of the pipe.
    check.stdin.take().unwrap().write_all(report.document().to_csv().as_bytes()).unwrap();
    let said = check.wait_with_output().unwrap();
    let text = [said.stdout, said.stderr].concat();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&text));
    assert!(report.document().count().ok >= 34, "the tables' claims are made at all");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let again = run(1);
    assert_eq!(first().document().to_json(), again.document().to_json());
    assert_eq!(first().to_html(), again.to_html());
}

#[test]
fn every_row_is_documented_and_every_documented_row_is_printed() {
    crate::documented::check(first());
}

#[test]
fn a_quick_report_says_that_it_is_one_and_describes_itself() {
    const BANNER: &str = "Its figures are not comparable with the paper's.";
    let (full, quick) = (first(), run_with(&RunOptions::default().shortened(true)));
    assert!(!full.to_text().contains(BANNER) && full.to_html().contains("from second 30 to second 120"));
    assert!(
        quick.to_text().contains(BANNER) && quick.to_html().contains("not comparable with the paper&#39;s")
    );
    assert!(quick.to_html().contains("from second 30 to second 60"));
}

#[test]
fn the_scorecard_has_every_printed_value_within_its_band() {
    let report = first();
    let printed: Vec<_> = report.document().rows().iter().filter(|row| row.paper_value().is_some()).collect();
    assert!(printed.len() >= 30 && printed.iter().all(|row| row.ok().is_some()));
    let said = format!("{} values that the paper prints: {0} within their band, 0 outside", printed.len());
    let html = report.to_html();
    assert!(report.to_text().contains(&said) && html.contains(&said));
    let card = html.find("id=\"scorecard\"").expect("a scorecard");
    assert!(card < html.find("<h2 id=\"table-i").expect("the first section"));
}
