//! Conversion of a report into a page.

use crate::page::{self, Cell, Column, Page, Table};
use crate::scorecard::{FAR, Scorecard, Tally};
use crate::{Report, Row, text};

/// Implements [`Report::to_page`].
pub(crate) fn of(report: &Report) -> Page {
    let document = report.document();
    let page = Page::new(report.title())
        .about(report.about())
        .provenance(document.provenance())
        .summary(format!("Rows: {}.", document.count()));
    let page = report.banner().into_iter().fold(page, Page::banner);
    let page = match report.scorecard() {
        Some(card) => page.summary(format!("{}.", card.tally())).section(scorecard(&card)),
        None => page,
    };
    let page = report.sections().iter().fold(page, |page, section| {
        let start = page::Section::new(section.title()).text(section.body());
        let drawn = section.figures().iter().cloned().fold(start, page::Section::figure);
        page.section(drawn.table(table(section.title(), report.column(), &report.rows_of(section))))
    });
    let others = report.other_rows();
    let page = if others.is_empty() {
        page
    } else {
        let title = "Other rows";
        page.section(page::Section::new(title).table(table(title, report.column(), &others)))
    };
    if document.settings().is_empty() {
        return page;
    }
    let columns = [Column::text("setting"), Column::text("value")];
    let settings = document.settings().iter().fold(
        Table::new("What was configured").columns(columns),
        |table, (name, value)| {
            // A string is shown without its quotes, everything else as JSON.
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            table.row([name.to_owned(), value])
        },
    );
    page.section(page::Section::new("Configuration").table(settings))
}

/// Section with every published value next to the measured one, after counts by table and figure.
fn scorecard(card: &Scorecard<'_>) -> page::Section {
    let count = |count: usize| Cell::valued(count.to_string(), count as f64);
    let columns = ["values", "within band", "outside", "unclaimed"].map(Column::number);
    let far = Column::number("deviation above").unit(format!("{FAR} %"));
    let counts = Table::new("Values that the paper prints, by table and figure")
        .column(Column::text("where"))
        .columns(columns)
        .columns([far, Column::number("of them claimed")]);
    let line = |name: &str, tally: Tally| {
        let Tally { values, within, outside, unclaimed, far, far_claimed } = tally;
        let numbers = [values, within, outside, unclaimed, far, far_claimed].map(count);
        [Cell::text(name)].into_iter().chain(numbers).collect::<Vec<_>>()
    };
    let each = card.groups.iter().map(|group| line(&group.name, Tally::of(group.rows.iter().copied())));
    let counts = counts.rows(each);
    let counts = if card.groups.len() > 1 { counts.row(line("all", card.tally())) } else { counts };
    let columns = [
        Column::text("what"),
        Column::text("where"),
        Column::text("unit"),
        Column::number("paper"),
        Column::number("measured"),
        Column::number("deviation"),
        Column::number("deviation").unit("%"),
        Column::text("band, or reason for none"),
    ];
    let values = card.rows().map(|(place, row)| {
        let signed = |value: Option<f64>| match value {
            Some(value) => Cell::valued(text::signed(Some(value)), value),
            None => Cell::number(None),
        };
        let claim = Cell::text(text::claim(card, row));
        [
            Cell::text(row.what()).note(row.id()),
            Cell::text(place),
            Cell::text(row.unit().to_string()),
            Cell::number(row.paper_value()),
            Cell::interval(row.measured_value(), row.ci95()),
            signed(row.deviation()),
            signed(row.deviation_percent()),
            match row.ok() {
                Some(true) => claim.good(),
                Some(false) => claim.bad(),
                None => claim.muted(),
            },
        ]
    });
    let values =
        Table::new("Every value that the paper prints, and what was measured").columns(columns).rows(values);
    let section = page::Section::new("Scorecard").table(counts).table(values);
    let reasons = card.reasons.iter().enumerate();
    let reasons: Vec<String> = reasons.map(|(at, reason)| format!("[{}] {reason}.", at + 1)).collect();
    if reasons.is_empty() {
        section
    } else {
        section.text(format!("Why no band is claimed:\n\n{}", reasons.join("\n\n")))
    }
}

fn table(title: &str, against: &str, rows: &[&Row]) -> Table {
    let lab = rows.iter().any(|row| row.virtual_value().is_some());
    let repeated = rows.iter().any(|row| row.n() > 1);
    let mut columns =
        vec![Column::text("what"), Column::text("unit"), Column::number(against), Column::number("measured")];
    if lab {
        columns.push(Column::number("virtual"));
    }
    if repeated {
        columns.push(Column::number("n"));
    }
    columns.extend([Column::number("band"), Column::text("ok")]);
    let lines = rows.iter().map(|row| {
        let mut cells = vec![
            Cell::text(row.what()).note(row.id()),
            Cell::text(row.unit().to_string()),
            Cell::number(row.paper_value()),
            Cell::interval(row.measured_value(), row.ci95()),
        ];
        if lab {
            cells.push(Cell::number(row.virtual_value()));
        }
        if repeated {
            cells.push(Cell::valued(row.n().to_string(), f64::from(row.n())));
        }
        cells.extend([Cell::text(text::band(row)), verdict(row)]);
        cells
    });
    Table::new(title).columns(columns).rows(lines)
}

/// Result of the claim, in words and by colour: colour alone is not seen by everyone.
fn verdict(row: &Row) -> Cell {
    match row.ok() {
        Some(true) => Cell::text("✓ ok").good(),
        Some(false) => Cell::text("✗ outside").bad(),
        None => Cell::text("–").muted(),
    }
}
