//! The CATS experiments as a whole: every claim holds, every row is documented, every byte repeats.

mod documented;

use marcato_papers::{Registry, Report, RunOptions, Silent, registry};

fn run(seed: u64) -> Report {
    let registry = registry();
    let experiment = registry.select("cats").expect("cats is registered")[0];
    let options = RunOptions::repeated(seed, 1).expect("one seed");
    Registry::run(experiment, &options, &mut Silent).expect("cats runs")
}

#[test]
fn every_value_lies_in_its_band() {
    let report = run(1);
    let outside: Vec<_> = report.document().rows().iter().filter(|row| row.ok() == Some(false)).collect();
    assert!(outside.is_empty(), "{outside:#?}");
    assert!(report.document().count().ok >= 34, "the tables' claims are made at all");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let (first, second) = (run(3), run(3));
    assert_eq!(first.document().to_json(), second.document().to_json());
    assert_eq!(first.to_html(), second.to_html());
}

#[test]
fn every_row_is_documented_and_every_documented_row_is_printed() {
    documented::check(&run(1));
}
