//! Rows of a run, with their provenance.

use serde::Serialize;

use crate::{COMMIT, Config, Provenance, Row, VERSION, World, csv};

/// Rows of a run, with everything needed to run it again.
///
/// Its JSON has exactly these keys, in this order: `paper`, `world`, `version`, `commit`, `seeds`,
/// `quick`, `config`, `rows`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    paper: String,
    world: World,
    version: String,
    commit: String,
    seeds: Vec<u64>,
    quick: bool,
    config: Config,
    rows: Vec<Row>,
}

/// Numbers of rows that are ok, outside their bands, and without a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Rows inside their bands.
    pub ok: usize,
    /// Rows outside their bands.
    pub outside: usize,
    /// Rows that claim no band.
    pub unclaimed: usize,
}

impl core::fmt::Display for Count {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ok, {} outside, {} unclaimed", self.ok, self.outside, self.unclaimed)
    }
}

impl Document {
    /// Creates the document of `paper`, run by this version of Marcato, without rows.
    pub fn new(paper: impl Into<String>, provenance: impl Into<Provenance>) -> Self {
        let Provenance { world, seeds, quick } = provenance.into();
        Self {
            paper: paper.into(),
            world,
            version: VERSION.to_owned(),
            commit: COMMIT.to_owned(),
            seeds,
            quick,
            config: Config::new(),
            rows: vec![],
        }
    }

    /// Sets the configuration, replacing any other.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Adds a row.
    #[must_use]
    pub fn row(mut self, row: Row) -> Self {
        self.rows.push(row);
        self
    }

    /// Adds rows.
    #[must_use]
    pub fn with_rows(mut self, rows: impl IntoIterator<Item = Row>) -> Self {
        self.rows.extend(rows);
        self
    }

    /// Joins documents into one named `paper`. Each part's configuration is kept under the part's
    /// name, and all parts get this provenance.
    pub fn join(paper: impl Into<String>, provenance: impl Into<Provenance>, parts: &[&Self]) -> Self {
        let config = parts.iter().fold(Config::new(), |whole, part| {
            let settings: serde_json::Map<_, _> =
                part.config.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
            whole.set(part.paper.as_str(), settings)
        });
        let rows = parts.iter().flat_map(|part| part.rows.iter().cloned());
        Self::new(paper, provenance).config(config).with_rows(rows)
    }

    /// The paper's short name.
    pub fn paper(&self) -> &str {
        &self.paper
    }

    /// World of the runs: virtual time or the lab.
    pub const fn world(&self) -> World {
        self.world
    }

    /// Version of Marcato that made the runs.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Commit that the program was built from.
    pub fn commit(&self) -> &str {
        &self.commit
    }

    /// Seeds, one run for each.
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// Returns true for a shortened run.
    pub const fn quick(&self) -> bool {
        self.quick
    }

    /// Configuration of the run.
    pub const fn settings(&self) -> &Config {
        &self.config
    }

    /// Rows in the order in which they were added.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Counts the rows that are ok, outside their bands, and unclaimed.
    pub fn count(&self) -> Count {
        self.rows.iter().fold(Count::default(), |mut count, row| {
            match row.ok() {
                Some(true) => count.ok += 1,
                Some(false) => count.outside += 1,
                None => count.unclaimed += 1,
            }
            count
        })
    }

    /// Returns true if no row is outside its band.
    pub fn holds(&self) -> bool {
        self.count().outside == 0
    }

    /// The document as JSON, indented, with a newline at its end.
    pub fn to_json(&self) -> String {
        // Only strings, finite numbers and maps with string keys: serialising them cannot fail.
        serde_json::to_string_pretty(self).map(|json| json + "\n").unwrap_or_default()
    }

    /// The document as CSV (RFC 4180, except for bare newlines), one line per row. The row's own
    /// columns are followed by `world`, `version`, `commit`, `seeds` (space-separated), `quick` and
    /// `config` (compact JSON), with the same values on every line. The column `paper` is the
    /// published value, as in the JSON rows. Null is empty.
    pub fn to_csv(&self) -> String {
        csv::of(self)
    }

    /// World, seeds, version and commit of the run, on one line.
    pub(crate) fn provenance(&self) -> String {
        let seeds = match self.seeds.as_slice() {
            [one] => format!("seed {one}"),
            [first, .., last] => format!("seeds {first} to {last}"),
            [] => "no seed".to_owned(),
        };
        let quick = if self.quick { ", quick" } else { "" };
        format!("world {}, {seeds}{quick}, Marcato {} ({})", self.world, self.version, self.commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;

    fn row(id: &str) -> Row {
        Row::new(id, "time", Unit::Ms)
    }

    fn document() -> Document {
        Document::new("cats", Provenance::of_seeds([3, 4]))
            .config(Config::new().set("rtt_ms", 120).set("cc", "bbr1"))
            .row(row("cats.a").paper(130.0).samples(&[130.0, 131.0]).within_percent(1.0))
            .row(row("cats.b").measured(0.25).at_most(0.125))
            .row(row("cats.c").measured(f64::NAN))
    }

    #[test]
    fn the_json_has_exactly_the_documented_shape() {
        let expected = r#"{
  "paper": "cats",
  "world": "virtual",
  "version": "VERSION",
  "commit": "COMMIT",
  "seeds": [
    3,
    4
  ],
  "quick": false,
  "config": {
    "rtt_ms": 120,
    "cc": "bbr1"
  },
  "rows": [
    {
      "id": "cats.a",
      "what": "time",
      "unit": "ms",
      "paper": 130.0,
      "measured": 130.5,
      "virtual": null,
      "n": 2,
      "ci95": 6.353102368087349,
      "lo": 128.7,
      "hi": 131.3,
      "ok": true
    },
    {
      "id": "cats.b",
      "what": "time",
      "unit": "ms",
      "paper": null,
      "measured": 0.25,
      "virtual": null,
      "n": 1,
      "ci95": null,
      "lo": null,
      "hi": 0.125,
      "ok": false
    },
    {
      "id": "cats.c",
      "what": "time",
      "unit": "ms",
      "paper": null,
      "measured": null,
      "virtual": null,
      "n": 1,
      "ci95": null,
      "lo": null,
      "hi": null,
      "ok": null
    }
  ]
}
"#;
        assert_eq!(document().to_json(), expected.replace("VERSION", VERSION).replace("COMMIT", COMMIT));
    }

    #[test]
    fn the_rows_are_counted_by_what_became_of_their_claims() {
        assert_eq!(document().count(), Count { ok: 1, outside: 1, unclaimed: 1 });
        assert_eq!(document().count().to_string(), "1 ok, 1 outside, 1 unclaimed");
        assert!(!document().holds());
    }

    #[test]
    fn a_joined_document_keeps_every_row_and_configuration() {
        let provenance = Provenance::of_seeds([3, 4]);
        let other =
            Document::new("plt", provenance.clone()).config(Config::new().set("bdp", 2500)).row(row("plt.a"));
        let whole = Document::join("all", provenance, &[&document(), &other]);
        assert_eq!(whole.paper(), "all");
        assert_eq!(
            whole.rows().iter().map(Row::id).collect::<Vec<_>>(),
            ["cats.a", "cats.b", "cats.c", "plt.a"]
        );
        assert_eq!(
            serde_json::to_string(whole.settings()).unwrap(),
            r#"{"cats":{"cc":"bbr1","rtt_ms":120},"plt":{"bdp":2500}}"#
        );
    }
}
