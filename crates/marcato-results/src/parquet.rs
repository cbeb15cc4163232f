//! Frames as Parquet.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_schema::{DataType as Arrow, Field, Schema};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use marcato_report::VERSION;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::frame::{Cells, Column, Frame};
use crate::sheet::head;

/// Parquet file written in parts, each as a row group without compression.
///
/// Columns are strings (UTF-8), 64-bit integers and doubles; numbers may be missing. Readers that know Arrow see
/// the unit of a column in the metadata of its field.
pub struct Writer<W: Write + Send> {
    file: SerializedFileWriter<Held<W>>,
    columns: usize,
}

/// Destination that keeps the end of a file, from its footer on, instead of writing it.
struct Held<W> {
    out: W,
    end: Option<Vec<u8>>,
}

impl<W: Write> Write for Held<W> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        match &mut self.end {
            Some(end) => end.write(part),
            None => self.out.write(part),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Rewrites the orders of these columns in the footer that a file ends with to the order of their type.
///
/// For doubles the library writes an order that the Parquet format got late (IEEE 754's total order), and Polars
/// before 1.43 refuses files with it. The orders say how statistics were compared. Cells are finite, for which both
/// orders agree but for the sign of zero, and readers of the old order must not rely on that sign.
fn compatible(end: &mut [u8], columns: usize) {
    /// Union of Thrift's compact protocol with an empty structure: the number of the field in the upper half of a byte.
    const TYPE_ORDER: [u8; 3] = [0x1c, 0, 0];
    const TOTAL_ORDER: [u8; 3] = [0x2c, 0, 0];
    // Behind the orders, which are the last field, there are the stop of the structure, the length and the magic.
    let Some(stop) = end.len().checked_sub(9) else { return };
    let Some(first) = stop.checked_sub(3 * columns) else { return };
    let (orders, _) = end[first..stop].as_chunks_mut::<3>();
    if orders.iter().all(|order| matches!(*order, TYPE_ORDER | TOTAL_ORDER)) {
        orders.fill(TYPE_ORDER);
    }
}

impl<W: Write + Send> Writer<W> {
    /// Creates a file with the columns of `like`, without its rows.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn new(out: W, like: &Frame) -> Result<Self, ParquetError> {
        let fields = like.columns().iter().map(|column| field(column).map(Arc::new));
        let fields = fields.collect::<Result<_, _>>()?;
        let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
        let properties = WriterProperties::builder()
            .set_created_by(format!("marcato version {VERSION}"))
            // Rows are few and mostly distinct, so a dictionary would save nothing.
            .set_dictionary_enabled(false)
            .set_key_value_metadata(Some(vec![KeyValue::new("ARROW:schema".to_owned(), arrow(like))]))
            .build();
        let out = Held { out, end: None };
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
        Ok(Self { file, columns: like.columns().len() })
    }

    /// Adds the rows of `frame`, whose columns are those of the file.
    ///
    /// # Errors
    /// When the destination fails.
    pub fn add(&mut self, frame: &Frame) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
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
    pub fn finish(mut self) -> Result<W, ParquetError> {
        self.file.inner_mut().end = Some(Vec::new());
        let Held { mut out, end } = self.file.into_inner()?;
        let mut end = end.unwrap_or_default();
        compatible(&mut end, self.columns);
        out.write_all(&end)?;
        Ok(out)
    }
}

/// Returns the frame as a Parquet file of one row group.
///
/// # Errors
/// None that a frame could cause: its columns have the types of the schema.
pub fn of(frame: &Frame) -> Result<Vec<u8>, ParquetError> {
    let mut writer = Writer::new(Vec::new(), frame)?;
    writer.add(frame)?;
    writer.finish()
}

/// Converts to the error of the file system, if that was the cause.
pub(crate) fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// Reads a Parquet file that [`of`] or a [`Writer`] wrote.
///
/// # Errors
/// When the bytes are no such file.
pub fn read(bytes: Vec<u8>) -> Result<Frame, ParquetError> {
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes))?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let mut cells: Vec<(String, Cells)> = Vec::new();
    for column in schema.columns() {
        let empty = match column.physical_type() {
            Physical::BYTE_ARRAY => Cells::Text(Vec::new()),
            Physical::INT64 => Cells::Count(Vec::new()),
            Physical::DOUBLE => Cells::Number(Vec::new()),
            other => {
                let problem = format!("the column `{}` has the type {other}", column.name());
                return Err(ParquetError::General(problem));
            }
        };
        cells.push((column.name().to_owned(), empty));
    }
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group)?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        for (place, (_, cells)) in cells.iter_mut().enumerate() {
            match (group.get_column_reader(place)?, cells) {
                (ColumnReader::ByteArrayColumnReader(column), Cells::Text(all)) => {
                    let text = |cell: &ByteArray| Ok(cell.as_utf8()?.to_owned());
                    let read = optional(column, rows)?;
                    let words = read.iter().map(|cell| cell.as_ref().map_or(Ok(String::new()), text));
                    all.extend(words.collect::<Result<Vec<String>, ParquetError>>()?);
                }
                (ColumnReader::Int64ColumnReader(column), Cells::Count(all)) => {
                    let count = |cell: Option<i64>| cell.map(|count| u64::try_from(count).unwrap_or(0));
                    all.extend(optional(column, rows)?.into_iter().map(count));
                }
                (ColumnReader::DoubleColumnReader(column), Cells::Number(all)) => {
                    all.extend(optional(column, rows)?);
                }
                _ => return Err(ParquetError::General("a column changes its type".to_owned())),
            }
        }
    }
    Ok(cells.into_iter().fold(Frame::new(), |frame, (name, cells)| match cells {
        Cells::Text(cells) => frame.text(&name, cells),
        Cells::Count(cells) => frame.count(&name, cells),
        Cells::Number(cells) => frame.number(&name, cells),
    }))
}

/// Reads the cells of a column of one row group.
fn optional<T: DataType>(
    mut column: ColumnReaderImpl<T>,
    rows: usize,
) -> Result<Vec<Option<T::T>>, ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let mut read = 0;
    while read < rows {
        let (records, ..) = column.read_records(rows - read, Some(&mut levels), None, &mut values)?;
        if records == 0 {
            return Err(ParquetError::EOF("a row group ends early".to_owned()));
        }
        read += records;
    }
    if levels.is_empty() {
        return Ok(values.into_iter().map(Some).collect());
    }
    let mut values = values.into_iter();
    Ok(levels.into_iter().map(|level| if level > 0 { values.next() } else { None }).collect())
}

/// Returns the definition levels of a column: 1 where a cell has a value.
fn present<T>(cells: &[Option<T>]) -> Vec<i16> {
    cells.iter().map(|cell| i16::from(cell.is_some())).collect()
}

/// Returns the metadata of a column's field: its unit, as people write it, if its name ends with one.
pub fn metadata(column: &str) -> HashMap<String, String> {
    let (_, unit) = head(column);
    if unit.is_empty() { HashMap::new() } else { HashMap::from([("unit".to_owned(), unit.to_owned())]) }
}

/// Returns the schema of a frame as Arrow's libraries keep it in a Parquet file: a message of Arrow's IPC format in
/// Base64, which has what Parquet itself has no place for.
fn arrow(frame: &Frame) -> String {
    let fields = frame.columns().iter().map(|Column { name, cells }| {
        let (kind, nullable) = match cells {
            Cells::Text(_) => (Arrow::Utf8, false),
            Cells::Count(_) => (Arrow::Int64, true),
            Cells::Number(_) => (Arrow::Float64, true),
        };
        Field::new(name, kind, nullable).with_metadata(metadata(name))
    });
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let message = IpcDataGenerator::default()
        .schema_to_bytes_with_dictionary_tracker(
            &schema,
            &mut DictionaryTracker::new(true),
            &IpcWriteOptions::default(),
        )
        .ipc_message;
    // Arrow Columnar Format, "Encapsulated message format": a continuation, the length, and the message.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    BASE64_STANDARD.encode([&[0xff; 4][..], &length.to_le_bytes(), &message].concat())
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
    use parquet::record::RowAccessor;

    #[test]
    fn a_reader_gets_back_what_was_written() {
        let bytes = of(&crate::frame::tests::frame()).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get_string(0).unwrap(), "a,\"b\"");
        assert_eq!((rows[0].get_long(1).unwrap(), rows[0].get_double(2).unwrap()), (3, 0.1));
        assert!(rows[1].get_long(1).is_err() && rows[1].get_double(2).is_err());
    }

    #[test]
    fn columns_have_orders_that_older_readers_know() {
        use parquet::basic::ColumnOrder;
        let frame = crate::frame::tests::frame();
        for frame in [frame.clone(), Frame::new().number("delay_ms", vec![Some(0.5); 5000])] {
            let reader = SerializedFileReader::new(bytes::Bytes::from(of(&frame).unwrap())).unwrap();
            let orders = reader.metadata().file_metadata().column_orders().unwrap();
            assert_eq!(orders.len(), frame.columns().len());
            assert!(
                orders.iter().all(|order| matches!(order, ColumnOrder::TYPE_DEFINED_ORDER(_))),
                "{orders:?}"
            );
            assert_eq!(read(of(&frame).unwrap()).unwrap(), frame);
        }
    }

    #[test]
    fn a_file_of_several_groups_reads_back_as_one_frame() {
        let frame = crate::frame::tests::frame();
        let mut writer = Writer::new(Vec::new(), &frame).unwrap();
        writer.add(&frame).unwrap();
        writer.add(&frame).unwrap();
        let read = read(writer.finish().unwrap()).unwrap();
        assert_eq!(read, Frame::stacked(&[frame.clone(), frame]).unwrap());
        assert!(super::read(b"PAR1".to_vec()).is_err());
    }

    #[test]
    fn the_same_frame_gives_the_same_bytes() {
        let frame = crate::frame::tests::frame();
        assert_eq!(of(&frame).unwrap(), of(&frame).unwrap());
        assert!(of(&Frame::new().number::<f64>("x", [])).is_ok());
    }
}
