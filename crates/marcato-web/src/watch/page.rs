//! Waterfalls of the last connections, as a page.
//!
//! Whatever clients have chosen is text of the report's page, which escapes it.

use marcato_report::Figure;
use marcato_report::chart::{Axis, Colour, Interval, IntervalChart};
use marcato_report::page::{Cell, Column, Page, Section, Table};
use marcato_units::{Duration, Priority};

use crate::trace::{ConnectionTrace, ResponseTrace, Traces};

/// Connections that are drawn: the latest.
const CONNECTIONS: usize = 8;
/// Responses of a connection that are drawn: the latest.
const ROWS: usize = 40;
/// Characters of a target that are shown beside its row: the last ones.
const LABEL: usize = 30;

/// Time from the request to the end of the response, or to the latest that is known of it.
const OPEN: &str = "open";
/// Time from the first byte that could be sent to the first that left.
const WAITING: &str = "waiting";
/// Colour of each level.
const LEVELS: [Colour; Priority::COUNT] =
    [Colour::Vermilion, Colour::Orange, Colour::Green, Colour::Blue, Colour::Purple];

/// Draws the page.
pub(super) fn draw(traces: &Traces) -> String {
    let ids = traces.ids();
    let mut page = Page::new("Last connections").without_script().about(
        "Each bar is a response, from its request to its end. Grey is the wait of its first bytes for more urgent \
         ones; colours are the levels at which its bytes left. Load the page again for later ones.",
    );
    for connection in ids.iter().take(CONNECTIONS).filter_map(|id| traces.get(*id)) {
        page = page.section(section(&connection));
    }
    if ids.len() > CONNECTIONS {
        let mut rest = Section::new("Earlier connections");
        for id in &ids[CONNECTIONS..] {
            rest = rest.link(format!("trace of connection {id}"), file(*id));
        }
        page = page.section(rest);
    }
    if ids.is_empty() {
        page = page.section(Section::new("No request yet"));
    }
    page.to_html()
}

/// Name of a trace, relative to the page.
fn file(id: u64) -> String {
    format!("trace/{id}.sqlog")
}

fn section(connection: &ConnectionTrace) -> Section {
    let kept = connection.responses();
    let forgotten = kept.forgotten + kept.responses.len().saturating_sub(ROWS) as u64;
    let first = kept.responses.len().saturating_sub(ROWS);
    let shown: Vec<(u64, &ResponseTrace)> = (forgotten..).zip(kept.responses.range(first..)).collect();
    let title = format!("Connection {} from {}", connection.id, connection.peer);
    let mut section = Section::new(title);
    if forgotten > 0 {
        section = section.text(format!("Only the latest responses are shown: {forgotten} were before them."));
    }
    let figure = Figure::new(format!("connection-{}", connection.id), chart(&shown), "");
    let table = Table::new(
        "Times of the request, of the first bytes that could be sent, and of the first and last that were",
    )
    .column(Column::text("target"))
    .columns(["status", "priority", "source", "end"].map(Column::text))
    .column(Column::number("bytes"))
    .columns(["asked", "ready", "first", "last"].map(|name| Column::number(name).unit("ms")))
    .rows(shown.iter().map(|(number, response)| row(*number, response)));
    section.figure(figure).table(table).link("trace (qlog)", file(connection.id))
}

fn chart(shown: &[(u64, &ResponseTrace)]) -> IntervalChart {
    let axis = Axis::new("time since the connection began", "ms");
    let mut chart = IntervalChart::new("Responses", axis).overlaid().outlined(OPEN);
    chart = chart.colour(OPEN, Colour::Grey).colour(WAITING, Colour::Grey);
    for (level, colour) in Priority::ALL.into_iter().zip(LEVELS) {
        chart = chart.colour(level.to_string(), colour);
    }
    for (number, response) in shown {
        let row = format!("{number} {}", short(&response.target));
        let (first, last) = (response.spans.first(), response.spans.last());
        let latest = [
            Some(response.asked_at),
            response.head.map(|(at, ..)| at),
            response.supplied_at,
            last.map(|span| span.to),
            response.end.map(|(at, _)| at),
        ];
        let until = latest.into_iter().flatten().max().unwrap_or_default();
        let span = |category: &str, from, to| Interval::new(&row, category, ms(from), ms(to));
        chart = chart.interval(span(OPEN, response.asked_at, until).label(label(response)));
        if let (Some(supplied_at), Some(first)) = (response.supplied_at, first) {
            chart = chart.interval(span(WAITING, supplied_at, first.from));
        }
        chart =
            chart.intervals(response.spans.iter().map(|one| span(&one.level.to_string(), one.from, one.to)));
    }
    chart
}

/// Size and urgency of a response, at the end of its bar.
fn label(response: &ResponseTrace) -> String {
    let size = response.bytes.get();
    let size = if size < 1000 { format!("{size} B") } else { format!("{:.0} kB", size as f64 / 1e3) };
    match response.decision() {
        Some(decision) => format!("{size}, {} {}", decision.parameters, decision.source),
        None => size,
    }
}

fn row(number: u64, response: &ResponseTrace) -> Vec<Cell> {
    let decision = response.decision();
    let text = |text: Option<String>| Cell::text(text.unwrap_or_else(|| "–".to_owned()));
    let time = |at: Option<Duration>| Cell::number(at.map(ms));
    vec![
        Cell::text(&response.target).note(format!("{number} {} {:?}", response.method, response.version)),
        text(response.head.map(|(_, status, _)| status.as_u16().to_string())),
        text(decision.map(|decision| decision.parameters.to_string())),
        text(decision.map(|decision| decision.source.to_string())),
        text(response.end.map(|(_, outcome)| outcome.name().to_owned())),
        Cell::valued(response.bytes.get().to_string(), response.bytes.get() as f64),
        time(Some(response.asked_at)),
        time(response.supplied_at),
        time(response.spans.first().map(|span| span.from)),
        time(response.spans.last().map(|span| span.to)),
    ]
}

/// End of a target, without its query: names of files differ there.
fn short(target: &str) -> String {
    let path = target.split('?').next().unwrap_or(target);
    let length = path.chars().count();
    if length <= LABEL {
        return path.to_owned();
    }
    format!("…{}", path.chars().skip(length - LABEL).collect::<String>())
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::response;

    #[test]
    fn names_of_clients_are_text_and_no_markup() {
        let mut hostile = response("/");
        hostile.target = "/<script>\"onload='x'?<img src=x>".into();
        let table = Table::new("t").column(Column::text("target")).row(row(1, &hostile));
        let figure = Figure::new("f", chart(&[(1, &hostile)]), "");
        let html =
            Page::new("t").without_script().section(Section::new("s").figure(figure).table(table)).to_html();
        assert!(html.matches("&lt;script&gt;").count() >= 2, "{html}");
        for markup in ["<script", "<img", "\"onload", "onload='"] {
            assert!(!html.contains(markup), "{markup}: {html}");
        }
    }

    #[test]
    fn the_end_of_a_long_target_is_shown() {
        assert_eq!(short("/a/b.css?v=1"), "/a/b.css");
        let long = format!("/{}/site.css", "x".repeat(100));
        assert_eq!((short(&long).chars().count(), short(&long).ends_with("/site.css")), (LABEL + 1, true));
    }
}
