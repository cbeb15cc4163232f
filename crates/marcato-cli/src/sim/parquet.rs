//! Frames as Parquet.

use std::io::Write;
use std::sync::Arc;

use marcato_report::VERSION;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::frame::{Cells, Column, Frame};

/// Parquet file written in parts, each as a row group without compression.
///
/// Columns are strings (UTF-8), 64-bit integers and doubles; numbers may be missing.
pub(crate) struct Writer<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> Writer<W> {
    /// Creates a file with the columns of `like`, without its rows.
    ///
    /// # Errors
    /// When `out` fails.
    pub(crate) fn new(out: W, like: &Frame) -> Result<Self, ParquetError> {
        let fields = like.columns().iter().map(|column| field(column).map(Arc::new));
        let fields = fields.collect::<Result<_, _>>()?;
        let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
        let properties = WriterProperties::builder()
            .set_created_by(format!("marcato version {VERSION}"))
            // Rows are few and mostly distinct, so a dictionary would save nothing.
            .set_dictionary_enabled(false)
            .build();
        SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties)).map(Self)
    }

    /// Adds the rows of `frame`, whose columns are those of the file.
    ///
    /// # Errors
    /// When the destination fails.
    pub(crate) fn add(&mut self, frame: &Frame) -> Result<(), ParquetError> {
        let mut group = self.0.next_row_group()?;
        for Column { cells, .. } in frame.columns() {
            let Some(mut column) = group.next_column()? else { break };
            match cells {
                Cells::Text(cells) => {
                    let values: Vec<ByteArray> =
                        cells.iter().map(|cell| ByteArray::from(cell.as_str())).collect();
                    column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
                }
                Cells::Count(cells) => {
                    let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
                    let values: Vec<i64> = cells.iter().flatten().copied().map(whole).collect();
                    column.typed::<Int64Type>().write_batch(&values, Some(&present(cells)), None)?;
                }
                Cells::Number(cells) => {
                    let values: Vec<f64> = cells.iter().flatten().copied().collect();
                    column.typed::<DoubleType>().write_batch(&values, Some(&present(cells)), None)?;
                }
            }
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes the footer, and returns the destination.
    ///
    /// # Errors
    /// When the destination fails.
    pub(crate) fn finish(self) -> Result<W, ParquetError> {
        self.0.into_inner()
    }
}

/// Returns the frame as a Parquet file of one row group.
///
/// # Errors
/// None that a frame could cause: its columns have the types of the schema.
pub(crate) fn of(frame: &Frame) -> Result<Vec<u8>, ParquetError> {
    let mut writer = Writer::new(Vec::new(), frame)?;
    writer.add(frame)?;
    writer.finish()
}

/// Returns the definition levels of a column: 1 where a cell has a value.
fn present<T>(cells: &[Option<T>]) -> Vec<i16> {
    cells.iter().map(|cell| i16::from(cell.is_some())).collect()
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, repetition, logical) = match column.cells {
        Cells::Text(_) => (Physical::BYTE_ARRAY, Repetition::REQUIRED, Some(LogicalType::String)),
        Cells::Count(_) => (Physical::INT64, Repetition::OPTIONAL, None),
        Cells::Number(_) => (Physical::DOUBLE, Repetition::OPTIONAL, None),
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    #[test]
    fn a_reader_gets_back_what_was_written() {
        let bytes = of(&super::super::frame::tests::frame()).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get_string(0).unwrap(), "a,\"b\"");
        assert_eq!((rows[0].get_long(1).unwrap(), rows[0].get_double(2).unwrap()), (3, 0.1));
        assert!(rows[1].get_long(1).is_err() && rows[1].get_double(2).is_err());
    }

    #[test]
    fn the_same_frame_gives_the_same_bytes() {
        let frame = super::super::frame::tests::frame();
        assert_eq!(of(&frame).unwrap(), of(&frame).unwrap());
        assert!(of(&Frame::new().number::<f64>("x", [])).is_ok());
    }
}
