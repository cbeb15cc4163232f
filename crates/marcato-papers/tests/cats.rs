//! The CATS experiments as a whole: every claim holds, every row is documented, every byte repeats.

use std::collections::BTreeSet;

use marcato_papers::{Registry, Report, RunOptions, Silent, registry};

fn run(seed: u64) -> Report {
    let registry = registry();
    let experiment = registry.select("cats").expect("cats is registered")[0];
    let options = RunOptions::repeated(seed, 1).expect("one seed");
    Registry::run(experiment, &options, &mut Silent).expect("cats runs")
}

/// `a.{b,c}.p{0..2}` is a.b.p0, a.b.p1, and so on.
fn expand(pattern: &str) -> Vec<String> {
    let Some((head, rest)) = pattern.split_once('{') else { return vec![pattern.to_owned()] };
    let (inside, tail) = rest.split_once('}').expect("a closing brace");
    let choices: Vec<String> = match inside.split_once("..") {
        Some((first, last)) => {
            let bound = |text: &str| text.parse::<u32>().expect("a number");
            (bound(first)..=bound(last)).map(|n| n.to_string()).collect()
        }
        None => inside.split(',').map(str::to_owned).collect(),
    };
    choices
        .iter()
        .flat_map(|choice| expand(tail).into_iter().map(move |tail| format!("{head}{choice}{tail}")))
        .collect()
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
    let printed: BTreeSet<String> = run(1).document().rows().iter().map(|row| row.id().to_owned()).collect();
    let documented: BTreeSet<String> = include_str!("../../../docs/rows.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .flat_map(|(pattern, _)| expand(pattern))
        .filter(|id| id.starts_with("cats."))
        .collect();
    let undocumented: Vec<_> = printed.difference(&documented).collect();
    let missing: Vec<_> = documented.difference(&printed).collect();
    assert!(undocumented.is_empty(), "not in docs/rows.md: {undocumented:#?}");
    assert!(missing.is_empty(), "in docs/rows.md and not printed: {missing:#?}");
}
