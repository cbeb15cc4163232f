//! Statistics of the links of a lab.

use marcato_lab::Lab;

use crate::table::Table;

/// Returns a table of what each direction of each link carried.
pub(super) fn table(lab: &Lab) -> String {
    let span = lab.now().since(marcato_units::Time::ZERO).as_secs_f64();
    let mut table =
        Table::new(["link", "direction", "packets", "Mbit/s", "dropped", "lost", "longest queue, B"]);
    for (name, directions) in lab.stats() {
        for (way, stats) in ["there", "back"].into_iter().zip(directions) {
            let link = stats.link;
            // A count of bits fits: it is for people to read.
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let rate = link.delivered_bytes.get() as f64 * 8e-6 / span;
            table.row([
                name.to_owned(),
                way.to_owned(),
                link.delivered.to_string(),
                format!("{rate:.3}"),
                (link.dropped + link.too_big + link.discarded + stats.refused).to_string(),
                link.lost.to_string(),
                link.longest_queue.get().to_string(),
            ]);
        }
    }
    table.words(2).to_string()
}
