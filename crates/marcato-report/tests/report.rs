//! Tests of a report, from rows to the files that are written.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::fs;

use marcato_report::chart::{Axis, BarChart, Bars, LineChart, Series};
use marcato_report::{Config, Document, Figure, Provenance, Report, Row, Section, Unit, WriteError};

fn report() -> Report {
    let provenance = Provenance::of_seeds([1, 2]);
    let row = |id: &str| Row::new(id, "P0 <complete> & \"done\"", Unit::Ms);
    let document = Document::new("demo", provenance)
        .config(Config::new().set("bottleneck", "2 Mbit/s <one way>").set("rtt_ms", 120))
        .row(row("demo.a").paper(130.0).samples(&[130.0, 130.5]).within_percent(1.0))
        .row(row("demo.b").paper(282.0).measured(1293.0).within_percent(1.0))
        .row(row("demo.c").measured(7.0));
    let bars = BarChart::new("Bars of <P0>", Axis::new("completion", "ms"))
        .groups(["P0", "P1"])
        .bars(Bars::new("paper & co", [130.0, 282.0]).outlined())
        .bars(Bars::new("measured", [130.25, 1293.0]));
    let tail = LineChart::ccdf("Tail", Axis::new("one-way delay", "ms"), true)
        .series(Series::ccdf("all", [1.0, 2.0, 4.0, 8.0]));
    Report::new("Demo <1>", "What is \"shown\" & why.", document)
        .section(
            Section::new("Table & figure")
                .text("First <b>paragraph</b>.\n\nSecond.")
                .rows(["demo.a", "demo.b"])
                .figure(Figure::new("bars", bars.to_svg(), "Lower is better, 1 < 2.")),
        )
        .section(Section::new("Tail").figure(Figure::new("tail", tail.to_svg(), "Tail.")))
}

/// Checks that every start tag has its end tag, in order. The parser is just enough to notice
/// unescaped text.
fn assert_balanced(html: &str) {
    const VOID: [&str; 2] = ["meta", "br"];
    let mut open: Vec<&str> = vec![];
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('!') || tag.ends_with('/') {
            continue;
        }
        let name = tag.trim_start_matches('/').split_whitespace().next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes another element");
        } else if !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[test]
fn the_page_is_well_formed_and_needs_nothing_from_outside() {
    let html = report().to_html();
    assert_balanced(&html);
    for outside in ["src=", "url(", "@import"] {
        assert!(!html.contains(outside), "the page contains {outside}");
    }
    let links: Vec<&str> = html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(links.len() >= 6, "{links:?}");
    for link in links {
        let anchor = link.strip_prefix('#').expect("links stay on the page");
        assert_eq!(html.matches(&format!("id=\"{anchor}\"")).count(), 1, "{anchor}");
    }
    let without_namespace = html.replace("http://www.w3.org/2000/svg", "");
    assert!(!without_namespace.contains("://"));
}

#[test]
fn whatever_an_experiment_says_is_escaped() {
    let html = report().to_html();
    assert!(html.contains("<title>Demo &lt;1&gt;</title>"));
    assert!(html.contains("What is &quot;shown&quot; &amp; why."));
    assert!(html.contains("<p>First &lt;b&gt;paragraph&lt;/b&gt;.</p>\n<p>Second.</p>"));
    assert!(html.contains("P0 &lt;complete&gt; &amp; &quot;done&quot;"));
    assert!(html.contains("2 Mbit/s &lt;one way&gt;"));
    assert!(html.contains("Lower is better, 1 &lt; 2."));
    assert!(html.contains("paper &amp; co"));
}

#[test]
fn the_page_says_what_ran_and_what_became_of_every_row() {
    let html = report().to_html();
    assert!(html.contains("world virtual, seeds 1 to 2, Marcato "));
    assert!(html.contains("Rows: 1 ok, 1 outside, 1 unclaimed."));
    assert!(html.contains("✓ ok") && html.contains("✗ outside"));
    // Rows that no section shows are listed separately.
    assert!(html.contains("<h2 id=\"other-rows\">Other rows") && html.contains("demo.c"));
    assert!(html.contains("<caption>Table &amp; figure</caption>") && html.contains("scope=\"row\""));
}

#[test]
fn writing_makes_the_page_the_rows_and_each_figure() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("deep/er");
    report().write(&out).unwrap();
    let names: BTreeSet<_> =
        fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(
        names.iter().collect::<Vec<_>>(),
        ["bars.svg", "report.html", "rows.csv", "rows.json", "tail.svg"]
    );
    assert_eq!(fs::read_to_string(out.join("rows.json")).unwrap(), report().document().to_json());
    assert_eq!(fs::read_to_string(out.join("rows.csv")).unwrap(), report().document().to_csv());
    // Writing twice is no error, and gives the same bytes.
    let before = fs::read(out.join("report.html")).unwrap();
    report().write(&out).unwrap();
    assert_eq!(before, fs::read(out.join("report.html")).unwrap());
}

#[test]
fn an_inconsistent_report_is_refused_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let figure = |id: &str| Section::new("s").figure(Figure::new(id, "<svg/>", ""));
    let twice = Document::new("demo", Provenance::of_seeds([1]))
        .row(Row::new("demo.a", "", Unit::Ms))
        .row(Row::new("demo.a", "", Unit::Ms));
    assert!(matches!(
        report().section(Section::new("s").rows(["demo.z"])).write(&out),
        Err(WriteError::UnknownRow { .. })
    ));
    assert!(matches!(report().section(figure("bars")).write(&out), Err(WriteError::DuplicateFigure { .. })));
    for name in ["../up", "", "Upper", "a/b", "a.b"] {
        assert!(matches!(report().section(figure(name)).write(&out), Err(WriteError::FigureName { .. })));
    }
    assert!(matches!(Report::new("t", "", twice).write(&out), Err(WriteError::DuplicateRow { .. })));
    assert!(!out.exists());
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = report().write(&file.join("below")).unwrap_err().to_string();
    assert!(error.starts_with("cannot write `") && error.contains("below"), "{error}");
}
