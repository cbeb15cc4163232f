//! Rows listed in docs/rows.md.

use std::collections::BTreeSet;

use marcato_report::Report;

/// Expands a pattern: `a.{b,c}.p{0..2}` is a.b.p0, a.b.p1, and so on.
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

/// Checks that the rows of a report are the documented ones of its paper.
pub(crate) fn check(report: &Report) {
    let paper = format!("{}.", report.document().paper());
    let printed: BTreeSet<String> = report.document().rows().iter().map(|row| row.id().to_owned()).collect();
    let documented: BTreeSet<String> = include_str!("../../../../docs/rows.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .flat_map(|(pattern, _)| expand(pattern))
        .filter(|id| id.starts_with(&paper))
        .collect();
    let undocumented: Vec<_> = printed.difference(&documented).collect();
    let missing: Vec<_> = documented.difference(&printed).collect();
    assert!(undocumented.is_empty(), "not in docs/rows.md: {undocumented:#?}");
    assert!(missing.is_empty(), "in docs/rows.md and not printed: {missing:#?}");
    for figure in report.figures() {
        let svg = figure.svg();
        let title = svg.split("<title>").nth(1).and_then(|rest| rest.split('<').next()).unwrap_or_default();
        let repeated = figure.caption().to_lowercase().contains(&title.to_lowercase());
        assert!(!repeated, "the caption of `{}` repeats its title: {}", figure.id(), figure.caption());
    }
}
