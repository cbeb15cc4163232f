//! Tests of the CWR experiments as a whole: claims of a quick run, documentation of rows.

use marcato_papers::{Registry, RunOptions, Silent, registry};

#[test]
#[ignore = "takes two minutes"]
fn claims_of_a_quick_run_hold_and_its_rows_are_documented() {
    let registry = registry();
    let experiment = registry.select("cwr").expect("cwr is registered")[0];
    let options = RunOptions::default().shortened(true);
    let report = Registry::run(experiment, &options, &mut Silent).expect("cwr runs");
    crate::documented::check(&report);
    let outside: Vec<_> = report.document().rows().iter().filter(|row| row.ok() == Some(false)).collect();
    assert!(outside.is_empty(), "{outside:#?}");
    // Claimed are the median completion times of both reserving schedulers, in each cell and with
    // both factors, except messages of 50 kB with the smaller factor. Queues must have dropped
    // nothing. Beyond the paper, outages lose and repeat nothing, and copies keep within their
    // budget.
    assert_eq!(report.document().count().ok, 12 + 8 + 1 + 24 + 3);
}
