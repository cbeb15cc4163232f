//! Tables that other libraries take through the C interface of Arrow.

use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int64Builder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchIterator};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field, Schema};
use marcato_results::{Cells, Frame, parquet};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};

/// Table in Arrow's memory layout.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Table {
    batch: RecordBatch,
}

impl Table {
    /// Creates the table of a frame.
    pub(crate) fn of(frame: &Frame) -> PyResult<Self> {
        let mut fields = Vec::new();
        let mut arrays: Vec<ArrayRef> = Vec::new();
        for column in frame.columns() {
            let (array, kind, nullable): (ArrayRef, _, _) = match &column.cells {
                Cells::Text(cells) => {
                    let mut builder = StringBuilder::new();
                    cells.iter().for_each(|cell| builder.append_value(cell));
                    (Arc::new(builder.finish()), DataType::Utf8, false)
                }
                Cells::Count(cells) => {
                    let mut builder = Int64Builder::with_capacity(cells.len());
                    let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
                    cells.iter().for_each(|cell| builder.append_option(cell.map(whole)));
                    (Arc::new(builder.finish()), DataType::Int64, true)
                }
                Cells::Number(cells) => {
                    let mut builder = Float64Builder::with_capacity(cells.len());
                    cells.iter().for_each(|cell| builder.append_option(*cell));
                    (Arc::new(builder.finish()), DataType::Float64, true)
                }
            };
            fields.push(
                Field::new(&column.name, kind, nullable).with_metadata(parquet::metadata(&column.name)),
            );
            arrays.push(array);
        }
        let schema = Arc::new(Schema::new(fields));
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(frame.len()));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { batch })
    }

    fn list<'py>(&self, py: Python<'py>, place: usize) -> PyResult<Bound<'py, PyList>> {
        let array = self.batch.column(place);
        match array.data_type() {
            DataType::Utf8 => PyList::new(py, array.as_string::<i32>().iter().collect::<Vec<_>>()),
            DataType::Int64 => PyList::new(py, array.as_primitive::<Int64Type>().iter().collect::<Vec<_>>()),
            _ => PyList::new(py, array.as_primitive::<Float64Type>().iter().collect::<Vec<_>>()),
        }
    }
}

#[pymethods]
impl Table {
    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Returns names and types of the columns.
    fn kinds(&self) -> Vec<(String, &'static str)> {
        let kind = |field: &Arc<Field>| match field.data_type() {
            DataType::Utf8 => "text",
            DataType::Int64 => "count",
            _ => "number",
        };
        self.batch.schema().fields().iter().map(|field| (field.name().clone(), kind(field))).collect()
    }

    /// Returns the columns as `make_table` takes them: name, type and cells of each.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, &'static str, Bound<'py, PyList>)>> {
        let kinds = self.kinds().into_iter().enumerate();
        kinds.map(|(place, (name, kind))| Ok((name, kind, self.list(py, place)?))).collect()
    }

    /// Returns a column as a list; `None` stands for a missing value.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let place = self.batch.schema().index_of(name).map_err(|_| PyKeyError::new_err(name.to_owned()))?;
        self.list(py, place)
    }

    /// Returns the columns as lists, by name.
    fn to_pydict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for (place, field) in self.batch.schema().fields().iter().enumerate() {
            columns.set_item(field.name(), self.list(py, place)?)?;
        }
        Ok(columns)
    }

    /// Exports the schema: <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref())
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Exports the table as a stream of one batch, without a copy.
    ///
    /// A producer may ignore `requested_schema`, and this one does: casts are left to consumers.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }
}
