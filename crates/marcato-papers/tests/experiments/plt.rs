//! Tests of the PLT experiments as a whole: claims of a quick run, documentation of rows.

use marcato_papers::{Registry, RunOptions, Silent, registry};

#[test]
fn claims_of_a_quick_run_hold_and_its_rows_are_documented() {
    let registry = registry();
    let experiment = registry.select("plt").expect("plt is registered")[0];
    let options = RunOptions::default().shortened(true);
    let report = Registry::run(experiment, &options, &mut Silent).expect("plt runs");
    crate::documented::check(&report);
    let outside: Vec<_> = report.document().rows().iter().filter(|row| row.ok() == Some(false)).collect();
    assert!(outside.is_empty(), "{outside:#?}");
    // Pre-empted low packets change nothing, with and without random loss; and the page over two
    // layers.
    assert_eq!(report.document().count().ok, 2 + 2);
}
