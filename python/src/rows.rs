//! Rows of sweeps, as Parquet files.

use std::path::PathBuf;

use marcato_report::AtomicFile;
use marcato_results::{Frame, parquet};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::table::Table;

/// Returns the SHA-256 of these texts, each with its length.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "a list of Python becomes a vector")]
pub(crate) fn fingerprint(parts: Vec<String>) -> String {
    marcato_results::fingerprint(parts.iter().map(String::as_str))
}

/// Returns the unit that the name of a column ends with, as people write it; empty if there is none.
#[pyfunction]
pub(crate) fn unit(column: &str) -> &'static str {
    marcato_results::sheet::head(column).1
}

/// Column of rows to write: its name, its type, and its cells.
type Column<'py> = (String, String, Bound<'py, PyAny>);

/// Returns these columns as a frame.
fn framed(columns: Vec<Column<'_>>) -> PyResult<Frame> {
    columns.into_iter().try_fold(Frame::new(), |frame, (name, kind, cells)| match kind.as_str() {
        "text" => Ok(frame.text(&name, cells.extract::<Vec<String>>()?)),
        "count" => Ok(frame.count(&name, cells.extract::<Vec<Option<u64>>>()?)),
        "number" => Ok(frame.number(&name, cells.extract::<Vec<Option<f64>>>()?)),
        _ => Err(PyValueError::new_err(format!("a column is text, count or number, not {kind}"))),
    })
}

/// Creates a table of these columns.
#[pyfunction]
pub(crate) fn make_table(columns: Vec<Column<'_>>) -> PyResult<Table> {
    Table::of(&framed(columns)?)
}

/// Writes a Parquet file of these columns at once: readers see all of it or nothing.
#[pyfunction]
pub(crate) fn write_rows(py: Python<'_>, path: PathBuf, columns: Vec<Column<'_>>) -> PyResult<()> {
    let frame = framed(columns)?;
    py.detach(|| {
        let bytes = parquet::of(&frame).map_err(|error| PyOSError::new_err(error.to_string()))?;
        AtomicFile::write(&path, bytes)
            .map_err(|error| PyOSError::new_err(format!("cannot write `{}`: {error}", path.display())))
    })
}

/// Reads Parquet files that [`write_rows`] wrote as one table. A column that a file lacks is empty
/// in its rows.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "a list of Python becomes a vector")]
pub(crate) fn read_rows(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Table> {
    let frame = py.detach(|| {
        let read = |path: &PathBuf| {
            let bytes = std::fs::read(path).map_err(|error| error.to_string());
            let frame = bytes.and_then(|bytes| parquet::read(bytes).map_err(|error| error.to_string()));
            frame
                .map_err(|problem| PyOSError::new_err(format!("cannot read `{}`: {problem}", path.display())))
        };
        let frames = paths.iter().map(read).collect::<PyResult<Vec<Frame>>>()?;
        Frame::stacked(&frames)
            .map_err(|name| PyValueError::new_err(format!("the column `{name}` has several types")))
    })?;
    Table::of(&frame)
}
