//! Code points by which packets are marked.

use marcato_document::form::Text;
use marcato_document::{Keyed as _, Keys, Value, keyed};
use marcato_net::{CodePoints, Dscp};
use marcato_units::Priority;

use super::form::{Placed, Serve};
use super::located::Located;

/// Keys of `[marks]`.
#[derive(Default)]
pub(super) struct MarkKeys {
    p0: Option<Located<String>>,
    p1: Option<Located<String>>,
    p2: Option<Located<String>>,
    p3: Option<Located<String>>,
    p4: Option<Located<String>>,
}

keyed! {
    MarkKeys, "[marks]", |of: Serve|, onto Self::default();
    /// code point of responses of urgency 0: a name such as `"ef"`, or a number
    "p0" => p0: Placed(Text), optional("`\"af41\"`");
    /// of urgency 1 and 2
    "p1" => p1: Placed(Text), optional("`\"af21\"`");
    /// of urgency 3
    "p2" => p2: Placed(Text), optional("`\"cs0\"`");
    /// of urgency 4 and 5
    "p3" => p3: Placed(Text), optional("`\"cs0\"`");
    /// of urgency 6 and 7
    "p4" => p4: Placed(Text), optional("`\"le\"`");
}

/// Reads `marks`: true, false or a table.
pub(super) fn read(keys: &Keys<'_>, key: &'static str) -> Option<Option<CodePoints>> {
    let table = match &keys.item(key)?.value {
        Value::Boolean(flag) => return Some(flag.then(CodePoints::default)),
        Value::Table(table) => MarkKeys::open(table, keys.faults, &Serve)?,
        other => {
            keys.fault(key, format!("`{key}` is true, false or a table, not {}", other.what()));
            return None;
        }
    };
    let mut points = CodePoints::default();
    for (level, text) in Priority::ALL.into_iter().zip([table.p0, table.p1, table.p2, table.p3, table.p4]) {
        let Some(Located { value, place }) = text else { continue };
        match value.parse::<Dscp>() {
            Ok(dscp) => points.set(level, dscp),
            Err(error) => keys.faults.add(place, error.to_string()),
        }
    }
    Some(Some(points))
}
