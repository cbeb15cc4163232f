//! No text makes the scenario parser panic. Each fault has a place in the text. A valid scenario is
//! explained, and survives writing and reading unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use marcato_scenario::{Overrides, Scenario, explain};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // Text after a form feed is a setting from the command line.
    let (text, set) = match text.split_once('\x0c') {
        Some((text, set)) => (text, vec![set.to_owned()]),
        None => (text, Vec::new()),
    };
    // Texts of odd length are read as for a quick run.
    let quick = text.len() % 2 == 1;
    match Scenario::parse_with("fuzzed.toml", text, &Overrides { set, quick, ..Overrides::default() }) {
        Ok(scenario) => {
            assert!(!explain(&scenario).is_empty());
            for claim in scenario.claims() {
                let points = [Some(&claim.at), claim.over.as_ref(), claim.minus.as_ref()];
                let numbers = points.into_iter().flatten().filter_map(|point| point.combination);
                let count = scenario.count() / scenario.seeds().len();
                assert!(numbers.into_iter().all(|number| number < count));
            }
            let Some(run) = scenario.run(0) else { panic!("a scenario has a run") };
            assert!(!scenario.one_line(&run).is_empty());
            let written = run.experiment.to_toml();
            match Scenario::parse("written.toml", &written) {
                Ok(again) => assert_eq!(*again.experiment(), run.experiment),
                Err(error) => panic!("{error}\n{written}"),
            }
        }
        Err(error) => {
            assert!(!error.faults().is_empty() && !error.to_string().is_empty());
            let lines = text.matches('\n').count() + 1;
            for fault in error.faults() {
                // A setting may have several lines.
                assert!(fault.line >= 1 && fault.column >= 1 && fault.width >= 1);
                assert!(fault.file != "fuzzed.toml" || fault.line <= lines);
            }
        }
    }
});
