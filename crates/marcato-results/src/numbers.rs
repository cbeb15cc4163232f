//! Numbers of a document, by name.

use serde_json::Value;

/// Numbers with their names, in order.
pub type Numbers = Vec<(String, f64)>;

/// Returns the numbers of a run's document by name: `flow.NAME.METRIC`, `flow.NAME.WHAT.METRIC`,
/// `group.NAME.METRIC`, `link.NAME.METRIC`, `link.NAME.back.METRIC`.
pub fn numbers(document: &str) -> Numbers {
    let document: Value = serde_json::from_str(document).unwrap_or_default();
    let mut all = Vec::new();
    let list = |of: &Value, key: &str| of.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let word = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut add = |stem: &str, of: &Value| {
        for (key, value) in of.as_object().into_iter().flatten() {
            // NaN stands for a missing number, which the means leave out.
            if value.is_null() || value.is_number() {
                all.push((format!("{stem}.{key}"), value.as_f64().unwrap_or(f64::NAN)));
            }
        }
    };
    for flow in list(&document, "flows") {
        let stem = format!("flow.{}", word(&flow, "flow"));
        add(&stem, &flow);
        for (key, name) in [("times", "what"), ("lanes", "lane")] {
            for part in list(&flow, key) {
                add(&format!("{stem}.{}", word(&part, name)), &part);
            }
        }
    }
    for group in list(&document, "groups") {
        add(&format!("group.{}", word(&group, "group")), &group);
    }
    for link in list(&document, "links") {
        let back = if word(&link, "direction") == "back" { ".back" } else { "" };
        add(&format!("link.{}{back}", word(&link, "link")), &link);
    }
    all
}
