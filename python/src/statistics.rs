//! Statistics with the values of the command line.

use marcato_report::Mean;
use marcato_units::Seed;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Returns the mean of values, half of its 95 % confidence interval, and their number.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "a list of Python becomes a vector")]
pub(crate) fn mean(values: Vec<f64>) -> (f64, Option<f64>, u32) {
    let Mean { value, ci95, n } = Mean::of(&values);
    (value, ci95, n)
}

/// Returns Student's t of a two-sided 95 % interval.
#[pyfunction]
pub(crate) fn student_t(freedom: u32) -> Option<f64> {
    marcato_report::student_t(freedom)
}

/// Returns the 95 % percentile interval of the bootstrapped mean.
///
/// Efron and Tibshirani, An Introduction to the Bootstrap, 1993, §13.3.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "a list of Python becomes a vector")]
pub(crate) fn bootstrap(values: Vec<f64>, resamples: usize, seed: u64) -> PyResult<(f64, f64)> {
    if values.is_empty() || resamples == 0 {
        return Err(PyValueError::new_err("a bootstrap needs at least one value and one resample"));
    }
    let mut stream = Seed::new(seed).stream("bootstrap");
    let count = values.len() as u64;
    let mut means: Vec<f64> = (0..resamples)
        .map(|_| {
            let drawn = (0..count).filter_map(|_| values.get(usize::try_from(stream.below(count)).ok()?));
            drawn.sum::<f64>() / count as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let quantile = |per_mille: usize| means[(resamples * per_mille / 1000).min(resamples - 1)];
    Ok((quantile(25), quantile(975)))
}
