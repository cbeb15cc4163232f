//! Table of a grid's runs, one row each.

use std::collections::HashMap;

use marcato_results::{Frame, scaled};
use marcato_scenario::Setting;

use super::grid::Done;

/// Returns a row for each run: its name, its varied settings, its seed and every metric.
///
/// Settings that are quantities become numbers, with the unit in the column's name. All others are
/// words.
pub(super) fn frame(done: &[Done]) -> Frame {
    let keys = done.first().map_or(&[][..], |done| &done.run.settings);
    let frame = Frame::new().text("run", done.iter().map(|done| done.run.id.as_str()));
    let frame = (0..keys.len()).fold(frame, |frame, place| {
        let settings = done.iter().filter_map(|done| done.run.settings.get(place)).collect::<Vec<_>>();
        setting(frame, &settings)
    });
    let frame = frame.count("seed", done.iter().map(|done| done.run.seed.get()));
    // Runs may have different metrics; the cell of a missing one is empty.
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut metrics: Vec<(&str, Vec<Option<f64>>)> = Vec::new();
    for (row, one) in done.iter().enumerate() {
        for (name, value) in &one.numbers {
            let place = *places.entry(name).or_insert_with(|| {
                metrics.push((name, vec![None; done.len()]));
                metrics.len() - 1
            });
            metrics[place].1[row] = Some(*value);
        }
    }
    metrics.into_iter().fold(frame, |frame, (name, values)| frame.number(name, values))
}

/// Adds the column of one key.
fn setting(frame: Frame, settings: &[&Setting]) -> Frame {
    let Some(first) = settings.first() else { return frame };
    match scaled(settings) {
        Some(("", values)) => frame.number(&first.key, values),
        Some((unit, values)) => frame.number(&format!("{}_{unit}", first.key), values),
        None => frame.text(&first.key, settings.iter().map(|one| one.value.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(key: &str, values: &[&str]) -> String {
        let settings: Vec<Setting> =
            values.iter().map(|value| Setting { key: key.into(), value: (*value).into() }).collect();
        setting(Frame::new(), &settings.iter().collect::<Vec<_>>()).to_csv().replace('\n', " ")
    }

    #[test]
    fn quantities_are_numbers_of_one_unit_which_the_name_says() {
        for (values, said) in [
            (&["5 Mbit/s", "0.5 Gbit/s", "500 kbit/s"][..], "key_mbit_per_s 5 500 0.5 "),
            (&["10 ms", "2 s"], "key_ms 10 2000 "),
            (&["0 s", "2 min"], "key_s 0 120 "),
            (&["100 us"], "key_ms 0.1 "),
            (&["1.5 kB", "64 KiB"], "key_bytes 1500 65536 "),
            (&["1 packet", "30 packets"], "key_packets 1 30 "),
            (&["30 /min"], "key_per_s 0.5 "),
            (&["0.01", "3"], "key 0.01 3 "),
        ] {
            assert_eq!(column("key", values), said);
        }
    }

    #[test]
    fn settings_that_are_not_quantities_of_one_kind_stay_words() {
        assert_eq!(column("queue", &["codel", "droptail"]), "queue codel droptail ");
        assert_eq!(column("limit", &["30 packets", "60 kB"]), "limit 30 packets 60 kB ");
        assert_eq!(column("loss", &["none", "0.01"]), "loss none 0.01 ");
    }
}
