//! Access log.

use std::path::PathBuf;

use marcato_document::Value;
use marcato_web::LogFormat;

use super::keys::Keys;
use super::limits::set;
use super::located::Located;

/// Settings of the access log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessLog {
    /// Format of its lines.
    pub format: LogFormat,
    /// File to which lines are appended; standard output if absent.
    pub file: Option<Located<PathBuf>>,
}

impl AccessLog {
    /// Reads `access-log`: true, false or a table. It is on by default.
    pub(super) fn read(keys: &Keys<'_>) -> Option<Self> {
        let Some(item) = keys.item("access-log") else { return Some(Self::default()) };
        match &item.value {
            Value::Boolean(is_on) => return is_on.then(Self::default),
            _ if item.as_table().is_some() => {}
            other => {
                keys.fault(
                    "access-log",
                    format!("`access-log` is true, false or a table, not {}", other.what()),
                );
                return None;
            }
        }
        let keys = Keys::open(keys.table("access-log")?, "[access-log]", &["format", "file"], keys.faults);
        let mut log = Self::default();
        set(&mut log.format, keys.word("format", &LogFormat::NAMES));
        log.file = keys.string("file").map(|text| Located::at(keys.place("file"), PathBuf::from(text)));
        Some(log)
    }
}
