//! Access log.

use std::path::PathBuf;

use marcato_document::form::Words;
use marcato_document::keyed;
use marcato_web::LogFormat;

use super::form::{FlagOr, PATH, Serve};
use super::located::Located;

/// Settings of the access log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessLog {
    /// Format of its lines.
    pub format: LogFormat,
    /// File to which lines are appended; standard output if absent.
    pub file: Option<Located<PathBuf>>,
}

/// Form of `access-log`.
pub(super) const FORM: FlagOr<AccessLog, Option<AccessLog>> =
    FlagOr { flag: |is_on| is_on.then(AccessLog::default), table: Some };

keyed! {
    AccessLog, "[access-log]", |of: Serve|, onto Self::default();
    /// [format](#log) of a line: `"pairs"`, `"common"`, `"combined"`, `"json"`
    "format" => format: Words(&LogFormat::NAMES), own();
    /// file to which lines are appended
    "file" => file: PATH, optional("standard output");
}
