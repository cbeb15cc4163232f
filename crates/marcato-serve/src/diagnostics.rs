//! Messages about the server's own work, such as an origin that cannot be reached.

use std::io;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{fmt, registry};

/// Messages about the server's own work, on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    /// Least urgent messages that are written.
    pub level: LogLevel,
    /// True for an object of JSON on each line.
    pub is_json: bool,
}

/// Urgency of a message. Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// None.
    Off,
    /// Errors.
    Error,
    /// Warnings, such as the reason of a response with status 502 or 504.
    #[default]
    Warn,
    /// Changes of state, such as an origin that is healthy again.
    Info,
    /// Whatever helps to find a fault.
    Debug,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
        }
    }
}

impl Diagnostics {
    /// Writes messages from now on. Nothing happens if the program has another receiver of them already.
    pub fn begin(self) {
        // Libraries below tell of every frame: they warn at most.
        let others = LevelFilter::from(self.level.min(LogLevel::Warn));
        let targets = Targets::new().with_default(others).with_target("marcato", self.level);
        let layer = fmt::layer().with_writer(io::stderr).with_ansi(false).log_internal_errors(false);
        // Another receiver is the program's choice.
        let _ = match self.is_json {
            true => {
                let layer = layer.json().flatten_event(true).with_current_span(false).with_span_list(false);
                tracing::subscriber::set_global_default(registry().with(targets).with(layer))
            }
            false => tracing::subscriber::set_global_default(registry().with(targets).with(layer)),
        };
    }
}
