//! Rows, as tables and as one JSON document.

use serde_json::{Value, json};

/// Target of a row, set by the design.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    AtLeast(f64),
    AtMost(f64),
}

/// One value, with the least and the largest observed.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    pub(crate) range: Option<(f64, f64)>,
    pub(crate) asked: Option<Asked>,
    /// Number of runs or messages.
    pub(crate) n: usize,
}

impl Row {
    pub(crate) fn new(id: String, unit: &'static str, value: f64, n: usize) -> Self {
        Self { id, unit, value, range: None, asked: None, n }
    }

    /// Returns a row with the median and the range of these values.
    pub(crate) fn median(id: String, unit: &'static str, values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let range = sorted.first().copied().zip(sorted.last().copied());
        Self { range, ..Self::new(id, unit, percentile(&sorted, 50.0), values.len()) }
    }

    pub(crate) fn held(&self) -> Option<bool> {
        self.asked.map(|asked| match asked {
            Asked::AtLeast(least) => self.value >= least,
            Asked::AtMost(most) => self.value <= most,
        })
    }

    /// Returns the target, and whether it was met.
    pub(crate) fn verdict(&self) -> String {
        let Some(held) = self.held() else { return String::new() };
        let held = if held { "held" } else { "NOT HELD" };
        match self.asked {
            Some(Asked::AtLeast(least)) => format!(">= {least}: {held}"),
            Some(Asked::AtMost(most)) => format!("<= {most:.1}: {held}"),
            None => String::new(),
        }
    }

    fn json(&self) -> Value {
        let round =
            |value: f64| if value.is_finite() { json!((value * 1e4).round() / 1e4) } else { Value::Null };
        let (least, most) = match self.asked {
            Some(Asked::AtLeast(least)) => (round(least), Value::Null),
            Some(Asked::AtMost(most)) => (Value::Null, round(most)),
            None => (Value::Null, Value::Null),
        };
        json!({
            "id": self.id,
            "unit": self.unit,
            "measured": round(self.value),
            "min": self.range.map(|(least, _)| round(least)),
            "max": self.range.map(|(_, most)| round(most)),
            "n": self.n,
            "lo": least,
            "hi": most,
            "ok": self.held(),
        })
    }
}

/// Returns the value below which `percent` of the sorted values lie: the nearest rank.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank within the slice")]
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Results, and notes about measurements that were skipped.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) skipped: Vec<String>,
    pub(crate) failed: Vec<String>,
}

impl Report {
    pub(crate) fn json(&self, config: &Value) -> Value {
        json!({
            "bench": "paired",
            "version": env!("CARGO_PKG_VERSION"),
            "config": config,
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "skipped": self.skipped,
            "failed": self.failed,
        })
    }
}
