//! Repetition of a run over several seeds.

use marcato_report::Row;

use crate::{Progress, RunError, RunOptions};

/// Runs `run` once per seed and returns each row's mean, with its 95 % confidence interval and `n`.
///
/// `run` is called in the order of the seeds, and must report the same rows every time. Texts,
/// units, published values and bands are those of the first run.
///
/// ```
/// use marcato_papers::{RunOptions, Silent, over_seeds};
/// use marcato_report::{Row, Unit};
/// let options = RunOptions::repeated(1, 3)?;
/// let rows = over_seeds(&options, &mut Silent, |seed, _| {
///     Ok(vec![Row::new("demo.seed", "the seed itself", Unit::Count).measured(seed as f64)])
/// })?;
/// assert_eq!((rows[0].measured_value(), rows[0].n()), (Some(2.0), 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns the first error of `run`, or [`RunError::UnevenRows`] if one run reports other rows than
/// the first.
pub fn over_seeds(
    options: &RunOptions,
    progress: &mut dyn Progress,
    mut run: impl FnMut(u64, &mut dyn Progress) -> Result<Vec<Row>, RunError>,
) -> Result<Vec<Row>, RunError> {
    let mut runs: Vec<Vec<Row>> = Vec::with_capacity(options.seeds().len());
    for &seed in options.seeds() {
        let rows = run(seed, progress)?;
        if let Some(first) = runs.first() {
            same_rows(seed, first, &rows)?;
        }
        runs.push(rows);
    }
    let count = runs.first().map_or(0, Vec::len);
    Ok((0..count)
        .filter_map(|index| {
            let rows: Vec<&Row> = runs.iter().filter_map(|rows| rows.get(index)).collect();
            Row::mean_of(&rows)
        })
        .collect())
}

fn same_rows(seed: u64, first: &[Row], rows: &[Row]) -> Result<(), RunError> {
    if first.len() != rows.len() {
        let detail = format!("{} rows instead of {}", rows.len(), first.len());
        return Err(RunError::UnevenRows { seed, detail });
    }
    match first.iter().zip(rows).find(|(a, b)| a.id() != b.id()) {
        Some((a, b)) => {
            let detail = format!("`{}` where the first has `{}`", b.id(), a.id());
            Err(RunError::UnevenRows { seed, detail })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;
    use marcato_report::Unit;

    fn options(repeat: u32) -> RunOptions {
        RunOptions::repeated(10, repeat).unwrap()
    }

    #[test]
    fn one_run_is_passed_on_as_it_is() {
        let row = Row::new("a.b", "b", Unit::Ms).measured(3.0).paper(3.0).within_percent(1.0);
        let rows = over_seeds(&options(1), &mut Silent, |_, _| Ok(vec![row.clone()])).unwrap();
        assert_eq!(rows, [row]);
    }

    #[test]
    fn a_claim_is_judged_on_the_mean() {
        let rows = over_seeds(&options(2), &mut Silent, |seed, _| {
            let value = if seed == 10 { 0.0 } else { 10.0 };
            Ok(vec![Row::new("a.b", "b", Unit::Ms).measured(value).within(4.0, 6.0)])
        })
        .unwrap();
        assert_eq!((rows[0].measured_value(), rows[0].n(), rows[0].ok()), (Some(5.0), 2, Some(true)));
    }

    #[test]
    fn a_verdict_that_fails_once_does_not_hold() {
        let rows =
            over_seeds(&options(3), &mut Silent, |seed, _| Ok(vec![Row::verdict("a.b", "b", seed != 11)]))
                .unwrap();
        assert_eq!(rows[0].ok(), Some(false));
    }

    #[test]
    fn uneven_runs_are_refused() {
        let named = |id: &str| vec![Row::new(id, "x", Unit::Ms).measured(1.0)];
        let other = over_seeds(&options(2), &mut Silent, |seed, _| Ok(named(&format!("a.{seed}"))));
        assert!(other.unwrap_err().to_string().contains("`a.11` where the first has `a.10`"));
        let fewer =
            over_seeds(&options(2), &mut Silent, |seed, _| Ok(if seed == 10 { named("a") } else { vec![] }));
        assert!(fewer.unwrap_err().to_string().contains("0 rows instead of 1"));
    }
}
