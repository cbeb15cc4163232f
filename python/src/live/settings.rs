//! Configuration of connections.

use std::collections::HashMap;

use marcato_net::{Bytes, Config, Coupling, Engine, Limits, LongMessages};
use marcato_units::Worded as _;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Names of the limits, as in [`Limits`].
const LIMITS: [&str; 14] = [
    "queued",
    "unfinished",
    "streamed",
    "max_message",
    "open_messages",
    "open",
    "unread",
    "unread_messages",
    "surplus",
    "unreliable",
    "missed",
    "memory",
    "receipts",
    "requests",
];

/// Settings of an endpoint, as Python gives them.
#[derive(FromPyObject)]
pub(crate) struct Settings {
    #[pyo3(item)]
    engine: String,
    #[pyo3(item)]
    alpn: Vec<String>,
    #[pyo3(item)]
    coupled: String,
    #[pyo3(item)]
    long_messages: String,
    #[pyo3(item)]
    layered: bool,
    #[pyo3(item)]
    drivers: usize,
    /// Values in bytes or in messages, by name.
    #[pyo3(item)]
    limits: HashMap<String, u64>,
}

/// Returns the value of a name, or an error with the names that exist.
fn choice<T: Copy>(what: &str, given: &str, names: &[(&str, T)]) -> PyResult<T> {
    names.iter().find(|(name, _)| *name == given).map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<_> = names.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        PyValueError::new_err(format!("`{what}` is {}, not `{given}`", all.join(" or ")))
    })
}

impl Settings {
    /// Returns the configuration.
    pub(super) fn config(&self) -> PyResult<Config> {
        let engine = choice("engine", &self.engine, &[("quic", Engine::Quic), ("tcp", Engine::Tcp)])?;
        let coupled = choice("coupled", &self.coupled, Coupling::WORDS)?;
        let mut config = Config { coupled, ..Config::new(engine) };
        config.alpn = self.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let longs = [("refuse", LongMessages::Refuse), ("stream", LongMessages::Stream)];
        config.limits.long_messages = choice("long_messages", &self.long_messages, &longs)?;
        config.quic.drivers = self.drivers;
        for (name, value) in &self.limits {
            set(&mut config.limits, name, *value)?;
        }
        Ok(config.layered(self.layered))
    }
}

/// Sets a limit.
fn set(limits: &mut Limits, name: &str, value: u64) -> PyResult<()> {
    let count = usize::try_from(value).unwrap_or(usize::MAX);
    let bytes = Bytes::new(value);
    match name {
        "queued" => limits.queued = bytes,
        "unfinished" => limits.unfinished = count,
        "streamed" => limits.streamed = bytes,
        "max_message" => limits.max_message = bytes,
        "open_messages" => limits.open_messages = count,
        "open" => limits.open = bytes,
        "unread" => limits.unread = bytes,
        "unread_messages" => limits.unread_messages = count,
        "surplus" => limits.surplus = bytes,
        "unreliable" => limits.unreliable = bytes,
        "missed" => limits.missed = count,
        "memory" => limits.memory = bytes,
        "receipts" => limits.receipts = count,
        "requests" => limits.requests = count,
        other => {
            let names = LIMITS.join(", ");
            return Err(PyValueError::new_err(format!("there is no limit `{other}`: give one of {names}")));
        }
    }
    Ok(())
}
