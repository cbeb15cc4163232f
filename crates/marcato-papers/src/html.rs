//! A report as a page.

use crate::page::{self, Cell, Column, Page, Table};
use crate::{Report, Row, text};

/// See [`Report::to_page`].
pub(crate) fn of(report: &Report) -> Page {
    let document = report.document();
    let page = Page::new(report.title())
        .about(report.about())
        .provenance(document.provenance())
        .summary(format!("Rows: {}.", document.count()));
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

/// Never by colour alone.
fn verdict(row: &Row) -> Cell {
    match row.ok() {
        Some(true) => Cell::text("✓ ok").good(),
        Some(false) => Cell::text("✗ outside").bad(),
        None => Cell::text("–").muted(),
    }
}
