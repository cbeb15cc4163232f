//! Plug-ins: congestion controls, queues, lane schedulers and workloads that another crate implements.
//!
//! A scenario names a plug-in like a built-in kind. The reader knows its name and the names of its
//! parameters from [`PluginNames`]. The simulator knows its implementation.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use marcato_document::quantity::{self, Of};
use marcato_document::{AddedKinds, Fault, float, quote};
use marcato_units::{Bytes, Duration, Rate};

use crate::amount::Transmitter;
use crate::kinded::Kinded;
use crate::names::wrong_name;
use crate::queue::Queue;
use crate::quic::Scheduler;
use crate::tcp::Congestion;

/// Part of a scenario that a plug-in can provide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PluginKind {
    /// Congestion control of a TCP connection.
    Congestion,
    /// Queue of a link.
    Queue,
    /// Lane scheduler of a QUIC session.
    Scheduler,
    /// Source of messages of a flow.
    Workload,
}

impl PluginKind {
    /// Returns the noun in messages, for example "congestion control".
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Congestion => "congestion control",
            Self::Queue => "queue",
            Self::Scheduler => "lane scheduler",
            Self::Workload => "workload",
        }
    }

    /// Returns the names of the built-in parts of this kind, which no plug-in can have.
    pub fn built_in(self) -> Box<dyn Iterator<Item = &'static str>> {
        match self {
            Self::Congestion => Box::new(<Congestion as Kinded<()>>::KINDS.iter().map(|(name, ..)| *name)),
            Self::Queue => Box::new(<Queue as Kinded<Transmitter>>::KINDS.iter().map(|(name, ..)| *name)),
            Self::Scheduler => Box::new(<Scheduler as Kinded<()>>::KINDS.iter().map(|(name, ..)| *name)),
            Self::Workload => Box::new(std::iter::empty()),
        }
    }
}

/// Plug-in that a scenario names, with its parameters. The position does not matter to equality.
#[derive(Clone, Debug, Default)]
pub struct Plugin {
    /// Name, as registered.
    pub name: String,
    /// Parameters that the scenario gives.
    pub parameters: Parameters,
    /// Position at which the scenario chooses it; `None` if no file does.
    pub position: Option<Position>,
}

impl PartialEq for Plugin {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, parameters, position: _ } = self;
        (name, parameters) == (&other.name, &other.parameters)
    }
}

impl Plugin {
    /// Creates a plug-in without parameters.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Returns the plug-in as a table of TOML.
    pub(crate) fn toml(&self) -> String {
        let value = |value: &Parameter| match value {
            Parameter::Number(number) => float(*number),
            Parameter::Text(text) => quote(text),
            Parameter::Flag(flag) => flag.to_string(),
        };
        let parameters = self.parameters.iter().map(|(key, one)| format!(", {key} = {}", value(one)));
        format!("{{ kind = {}{} }}", quote(&self.name), parameters.collect::<String>())
    }
}

/// Position in a scenario's file, or the option that replaces a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Name of the file in messages, or the option and its key: `--set flow.bulk.congestion`.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Column, counted in characters from 1.
    pub column: usize,
}

impl From<Fault> for Position {
    fn from(fault: Fault) -> Self {
        let Fault { file, line, column, .. } = fault;
        Self { file, line, column }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An option is identified by its key.
        if self.file.starts_with("--") {
            return f.write_str(&self.file);
        }
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// Number. Whole numbers are exact up to 2^53.
    Number(f64),
    /// Text; a quantity with a unit is one, too.
    Text(String),
    /// True or false.
    Flag(bool),
}

impl Parameter {
    const fn what(&self) -> &'static str {
        match self {
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::Flag(_) => "true or false",
        }
    }
}

impl From<f64> for Parameter {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Parameter {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<bool> for Parameter {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// Parameters of a plug-in, by name. Each getter returns `None` for a parameter that the scenario
/// does not give.
///
/// ```
/// use marcato_scenario::plugin::Parameters;
///
/// let parameters = Parameters::default().with("decrease", 0.7).with("target", "5 ms");
/// assert_eq!(parameters.number("decrease", 0.1..=0.9)?, Some(0.7));
/// assert_eq!(parameters.span("target")?.unwrap().as_millis(), 5);
/// assert_eq!(parameters.flag("gentle")?, None);
/// let error = parameters.number("decrease", 0.8..=0.9).unwrap_err();
/// assert_eq!(error.to_string(), "`decrease` is 0.8 to 0.9, not 0.7");
/// # Ok::<(), marcato_scenario::plugin::ParameterError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters(BTreeMap<String, Parameter>);

impl Parameters {
    /// Adds a parameter, or replaces its value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Parameter>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Returns names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns a value of any type.
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.0.get(name)
    }

    /// Returns a number within `range`.
    ///
    /// # Errors
    /// [`ParameterError`] for a value of another type or outside the range.
    pub fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ParameterError> {
        match self.get(name) {
            None => Ok(None),
            Some(Parameter::Number(number)) if range.contains(number) => Ok(Some(*number)),
            Some(Parameter::Number(found)) => Err(ParameterError::Range {
                name: name.to_owned(),
                least: *range.start(),
                most: *range.end(),
                found: *found,
            }),
            Some(other) => Err(ParameterError::wrong(name, "a number", other)),
        }
    }

    /// Returns a text.
    ///
    /// # Errors
    /// [`ParameterError`] for a value of another type.
    pub fn text(&self, name: &str) -> Result<Option<&str>, ParameterError> {
        match self.get(name) {
            None => Ok(None),
            Some(Parameter::Text(text)) => Ok(Some(text)),
            Some(other) => Err(ParameterError::wrong(name, "a string", other)),
        }
    }

    /// Returns true or false.
    ///
    /// # Errors
    /// [`ParameterError`] for a value of another type.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ParameterError> {
        match self.get(name) {
            None => Ok(None),
            Some(Parameter::Flag(flag)) => Ok(Some(*flag)),
            Some(other) => Err(ParameterError::wrong(name, "true or false", other)),
        }
    }

    /// Returns a span of time, for example `"20 ms"`.
    ///
    /// # Errors
    /// [`ParameterError`] for anything else.
    pub fn span(&self, name: &str) -> Result<Option<Duration>, ParameterError> {
        Ok(self.quantity(name, Of::Span)?.map(Duration::from_nanos))
    }

    /// Returns a size, for example `"60 kB"`.
    ///
    /// # Errors
    /// [`ParameterError`] for anything else.
    pub fn size(&self, name: &str) -> Result<Option<Bytes>, ParameterError> {
        Ok(self.quantity(name, Of::Size)?.map(Bytes::new))
    }

    /// Returns a rate, for example `"10 Mbit/s"`.
    ///
    /// # Errors
    /// [`ParameterError`] for anything else.
    pub fn rate(&self, name: &str) -> Result<Option<Rate>, ParameterError> {
        Ok(self.quantity(name, Of::Rate)?.map(Rate::from_bps))
    }

    fn quantity(&self, name: &str, of: Of) -> Result<Option<u64>, ParameterError> {
        match self.get(name) {
            None => Ok(None),
            Some(Parameter::Text(text)) => quantity::read(text, of)
                .map(Some)
                .map_err(|problem| ParameterError::Quantity { name: name.to_owned(), problem }),
            Some(other) => Err(ParameterError::wrong(name, of.what(), other)),
        }
    }
}

/// Error returned for a parameter whose value does not fit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParameterError {
    /// The value has another type.
    #[error("`{name}` is {wanted}, not {found}")]
    Type {
        /// Parameter.
        name: String,
        /// Type that it should have.
        wanted: &'static str,
        /// Type that it has.
        found: &'static str,
    },
    /// The number is too small or too large.
    #[error("`{name}` is {least} to {most}, not {found}")]
    Range {
        /// Parameter.
        name: String,
        /// Least value.
        least: f64,
        /// Greatest value.
        most: f64,
        /// Value given.
        found: f64,
    },
    /// The text is not a quantity of the unit.
    #[error("`{name}`: {problem}")]
    Quantity {
        /// Parameter.
        name: String,
        /// Problem and remedy.
        problem: String,
    },
}

impl ParameterError {
    fn wrong(name: &str, wanted: &'static str, found: &Parameter) -> Self {
        Self::Type { name: name.to_owned(), wanted, found: found.what() }
    }
}

/// Names of the plug-ins that a scenario may use, with the names of their parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginNames(pub(crate) AddedKinds);

impl PluginNames {
    /// Adds a plug-in.
    ///
    /// # Errors
    /// [`PluginNameError`] if a name has characters that a scenario cannot write, or is taken.
    pub fn add(&mut self, kind: PluginKind, name: &str, parameters: &[&str]) -> Result<(), PluginNameError> {
        if let Some(problem) = wrong_name(kind.noun(), name) {
            return Err(PluginNameError::Name(problem));
        }
        // A queue that begins with a digit would be taken for its limit.
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(PluginNameError::Start { kind, name: name.to_owned() });
        }
        if kind.built_in().any(|one| one == name) {
            return Err(PluginNameError::BuiltIn { kind, name: name.to_owned() });
        }
        let mut keys: Vec<String> = Vec::new();
        for &parameter in parameters {
            if let Some(problem) = wrong_name("parameter", parameter) {
                return Err(PluginNameError::Name(problem));
            }
            // `kind` holds the plug-in's own name.
            if parameter == "kind" || keys.iter().any(|key| key == parameter) {
                let (name, parameter) = (name.to_owned(), parameter.to_owned());
                return Err(PluginNameError::Parameter { kind, name, parameter });
            }
            keys.push(parameter.to_owned());
        }
        if !self.0.add(kind.noun(), name, keys) {
            return Err(PluginNameError::Twice { kind, name: name.to_owned() });
        }
        Ok(())
    }
}

/// Error returned for a plug-in that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginNameError {
    /// A name is empty, too long, or has characters that a scenario cannot write.
    #[error("{0}")]
    Name(String),
    /// The name does not begin with a letter.
    #[error("the name `{name}` of a {} does not begin with a letter: choose another", .kind.noun())]
    Start {
        /// Kind.
        kind: PluginKind,
        /// Name.
        name: String,
    },
    /// A built-in part has the name.
    #[error("the {} `{name}` is built in: choose another name", .kind.noun())]
    BuiltIn {
        /// Kind.
        kind: PluginKind,
        /// Name.
        name: String,
    },
    /// Another plug-in of the kind has the name.
    #[error("there are two plug-ins for the {} `{name}`: rename one", .kind.noun())]
    Twice {
        /// Kind.
        kind: PluginKind,
        /// Name.
        name: String,
    },
    /// A parameter is called `kind`, or has the name of another.
    #[error("the {} `{name}` cannot have this parameter `{parameter}`: rename it", .kind.noun())]
    Parameter {
        /// Kind.
        kind: PluginKind,
        /// Name of the plug-in.
        name: String,
        /// Name of the parameter.
        parameter: String,
    },
}
