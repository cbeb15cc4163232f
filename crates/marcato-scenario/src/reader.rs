//! Reader of scenarios.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use marcato_document::AddedKinds;

use crate::fault::ScenarioError;
use crate::plugin::PluginNames;
use crate::scenario::{Overrides, Scenario};

/// Reader of scenarios, with settings from the command line and the names of plug-ins.
///
/// ```
/// use marcato_scenario::Reader;
/// use marcato_scenario::plugin::{PluginKind, PluginNames};
///
/// let mut names = PluginNames::default();
/// names.add(PluginKind::Congestion, "aimd", &["decrease"])?;
/// let text = r#"
///   name = "own"
///   duration = "10 s"
///   nodes = ["client", "server"]
///   link = [{ between = ["client", "server"], rate = "10 Mbit/s", delay = "20 ms" }]
///
///   [[flow]]
///   name = "bulk"
///   kind = "tcp"
///   from = "client"
///   to = "server"
///   congestion = { kind = "aimd", decrease = 0.7 }
/// "#;
/// let scenario = Reader::new().plugins(&names).parse("own.toml", text)?;
/// assert!(marcato_scenario::explain(&scenario).contains("tcp aimd (decrease 0.7), bulk data"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Reader {
    pub(crate) overrides: Overrides,
    pub(crate) plugins: Rc<AddedKinds>,
    pub(crate) files: Rc<BTreeMap<String, String>>,
    pub(crate) without_flows: bool,
}

impl Reader {
    /// Creates a reader without settings and plug-ins.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the settings from the command line.
    #[must_use]
    pub fn overrides(mut self, overrides: &Overrides) -> Self {
        self.overrides = overrides.clone();
        self
    }

    /// Sets the plug-ins that scenarios may name.
    #[must_use]
    pub fn plugins(mut self, names: &PluginNames) -> Self {
        self.plugins = Rc::new(names.0.clone());
        self
    }

    /// Accepts a scenario without flows and without a duration: a network for programs that send of themselves.
    #[must_use]
    pub fn without_flows(mut self) -> Self {
        self.without_flows = true;
        self
    }

    /// Sets the contents of files that scenarios name, by path as in the scenario. These are not read
    /// from the file system.
    #[must_use]
    pub fn files(mut self, files: BTreeMap<String, String>) -> Self {
        self.files = Rc::new(files);
        self
    }

    /// Reads a scenario from text, and the files that it names. `name` is its path in messages, and
    /// files are relative to the directory of that path.
    ///
    /// ```
    /// use marcato_scenario::Reader;
    ///
    /// let text = r#"
    ///   name = "traced"
    ///   duration = "10 s"
    ///   nodes = ["client", "server"]
    ///   link = [{ between = ["client", "server"], trace = "mobile.down", delay = "20 ms" }]
    ///   flow = [{ name = "bulk", kind = "tcp", from = "client", to = "server" }]
    /// "#;
    /// let files = [("mobile.down".to_owned(), "1\n2\n5\n".to_owned())].into();
    /// let scenario = Reader::new().files(files).read("traced.toml", text)?;
    /// assert_eq!(scenario.named_files().collect::<Vec<_>>(), ["mobile.down"]);
    /// # Ok::<(), marcato_scenario::ScenarioError>(())
    /// ```
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn read(&self, name: &str, text: &str) -> Result<Scenario, ScenarioError> {
        Scenario::read_by(self, name, text)
    }

    /// Reads a scenario from text: [`Scenario::parse_with`].
    ///
    /// # Errors
    /// All faults of the scenario or of the settings, each with its place.
    pub fn parse(&self, name: &str, text: &str) -> Result<Scenario, ScenarioError> {
        Scenario::parse_by(self, name, text)
    }

    /// Reads a scenario from a file: [`Scenario::load`].
    ///
    /// # Errors
    /// As [`parse`](Self::parse); or if the file or a trace cannot be read.
    pub fn load(&self, path: &Path) -> Result<Scenario, ScenarioError> {
        Scenario::load_by(self, path)
    }

    /// Reads a scenario from `input`: [`Scenario::load_from`].
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_from(&self, input: impl std::io::Read) -> Result<Scenario, ScenarioError> {
        Scenario::load_from_by(self, input)
    }
}
