//! Page of the last connections.

use ipnet::IpNet;
use marcato_document::Value;
use marcato_web::Traces;

use super::keys::Keys;
use super::rates::networks;

/// Settings of the page `/.marcato/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Connections that are kept.
    pub connections: usize,
    /// Networks whose clients see the page, besides this machine.
    pub allow: Vec<IpNet>,
}

impl Default for Watch {
    fn default() -> Self {
        Self { connections: Traces::CONNECTIONS, allow: Vec::new() }
    }
}

impl Watch {
    /// Reads `watch`: true, false or a table.
    pub(super) fn read(keys: &Keys<'_>) -> Option<Self> {
        let item = keys.item("watch")?;
        match &item.value {
            Value::Boolean(is_on) => return is_on.then(Self::default),
            _ if item.as_table().is_some() => {}
            other => {
                keys.fault("watch", format!("`watch` is true, false or a table, not {}", other.what()));
                return None;
            }
        }
        let keys = Keys::open(keys.table("watch")?, "[watch]", &["connections", "allow"], keys.faults);
        let mut watch = Self { allow: networks(&keys, "allow"), ..Self::default() };
        if let Some(connections) = keys.whole("connections", 1..=1000) {
            watch.connections = connections as usize;
        }
        Some(watch)
    }
}
