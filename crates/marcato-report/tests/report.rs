//! Tests of a report, from rows to the files that are written.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::fs;

use marcato_report::chart::{Axis, BarChart, Bars, DotChart, Dots, LineChart, MOST_SERIES, Series};
use marcato_report::page::{self, Page};
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
                .figure(Figure::new("bars", bars, "Lower is better, 1 < 2.")),
        )
        .section(Section::new("Tail").figure(Figure::new("tail", tail, "Tail.")))
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
fn all_text_of_an_experiment_is_escaped() {
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
    assert!(html.contains("Table &amp; figure</caption>") && html.contains("scope=\"row\""));
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

/// Page with these figures.
fn page(figures: impl IntoIterator<Item = Figure>) -> Page {
    Page::new("t").section(figures.into_iter().fold(page::Section::new("s"), page::Section::figure))
}

fn axes(title: &str) -> LineChart {
    LineChart::new(title, Axis::new("rate", "Mbit/s"), Axis::new("delay", "ms"))
}

/// Series number `index`, which reaches from `index` to ten times that.
fn series(index: u32) -> Series {
    let at = f64::from(index);
    Series::line(format!("series {index}"), [(at, at), (10.0 * at, 10.0 * at)])
}

/// Class of the colour of the first line after the legend's name.
fn colour<'a>(svg: &'a str, name: &str) -> &'a str {
    let before = svg.split(&format!(">{name}</text>")).next().unwrap();
    before.rsplit("mc-s-").next().unwrap().split('"').next().unwrap()
}

/// Labels of ticks, in order.
fn ticks(svg: &str) -> Vec<&str> {
    let lines = svg.lines().filter(|line| line.contains("<text") && line.contains("mc-soft"));
    lines.filter_map(|line| line.split('>').nth(1)?.split('<').next()).collect()
}

#[test]
fn a_page_shows_six_series_of_a_chart_and_folds_the_others() {
    let chart = (1..=14).fold(axes("Delay"), |chart, index| chart.series(series(index)));
    let page = page([Figure::new("delay", chart, "")]);
    let html = page.to_html();
    let body = html.split("<figure").nth(1).unwrap();
    let (open, folded) = body.split_once("<details>").unwrap();
    let named = |text: &str| (1..=14).filter(|at| text.contains(&format!(">series {at}</text>"))).count();
    assert_eq!((named(open), named(folded), MOST_SERIES), (6, 8, 6));
    // Parts are opened by the browser itself: the page needs no script for them.
    let summaries: Vec<&str> =
        html.split("<summary>").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
    let second = "6 more: series 7, series 8, series 9, series 10, series 11, series 12";
    assert_eq!(summaries, [second, "2 more: series 13, series 14"]);
    // All parts have the axes of the whole, and files of their own.
    let images = page.images();
    let ids: Vec<&str> = images.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["delay", "delay-part-2", "delay-part-3"]);
    assert!(images.iter().all(|(_, svg)| ticks(svg) == ticks(&images[0].1)), "{:?}", ticks(&images[0].1));
    assert!(ticks(&images[0].1).contains(&"140"), "{:?}", ticks(&images[0].1));
    assert!(images.iter().all(|(_, svg)| html.contains(svg.trim())));
    assert_balanced(&html);
}

#[test]
fn bars_and_dots_of_more_than_six_series_are_split_too() {
    let names = (1..=7).map(|at| (format!("series {at}"), f64::from(at)));
    let bars =
        names.clone().fold(BarChart::new("b", Axis::new("x", "")).groups(["g"]), |chart, (name, at)| {
            chart.bars(Bars::new(name, [at]))
        });
    let dots = names.fold(DotChart::new("d", Axis::new("x", "")).rows(["g"]), |chart, (name, at)| {
        chart.dots(Dots::new(name, [at]))
    });
    let page = page([Figure::new("bars", bars, ""), Figure::new("dots", dots, "")]);
    let images = page.images();
    let ids: Vec<&str> = images.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["bars", "bars-part-2", "dots", "dots-part-2"]);
    assert!(ticks(&images[0].1).contains(&"8") && ticks(&images[2].1).contains(&"6"));
    assert!(images[1].1.contains("g, series 7: 7") && images[3].1.contains("g, series 7: 7"));
    assert!(!images[0].1.contains("series 7") && !images[2].1.contains("series 7"));
    assert_eq!(page.to_html().matches("<summary>1 more: series 7</summary>").count(), 2);
}

#[test]
fn series_of_one_colour_stay_in_one_image() {
    // Four flows, simulated and then measured: pairs of one colour, which are not neighbours.
    let flow = |at: u32| format!("flow {at}");
    let chart = (1..=4).fold(axes("Delay"), |chart, at| chart.series(series(at).like(flow(at))));
    let lab = |at: u32| Series::line(format!("{}, lab", flow(at)), [(1.0, f64::from(at))]).like(flow(at));
    let chart = (1..=4).fold(chart, |chart, at| chart.series(lab(at).dashed()));
    let images = page([Figure::new("delay", chart, "")]).images();
    assert_eq!(images.len(), 2);
    for at in 1..=4 {
        let [one, other] = [format!("series {at}"), format!("flow {at}, lab")];
        let with = images.iter().filter(|(_, svg)| svg.contains(&format!(">{one}</text>")));
        let with: Vec<&str> = with.map(|(_, svg)| svg.as_str()).collect();
        assert_eq!(with.len(), 1);
        assert_eq!(colour(with[0], &one), colour(with[0], &other), "flow {at}");
    }
}

#[test]
fn a_series_keeps_its_colour_in_all_figures_and_parts() {
    let many = (1..=8).fold(axes("Delay"), |chart, index| chart.series(series(index)));
    let few = axes("Loss").series(series(8)).series(series(3));
    let dots = DotChart::new("Goodput", Axis::new("goodput", "Mbit/s")).rows(["codel"]);
    let dots = dots.dots(Dots::new("series 3", [1.0]).intervals([0.5])).dots(Dots::new("series 8", [1.0]));
    let page =
        page([Figure::new("many", many, ""), Figure::new("few", few, ""), Figure::new("dots", dots, "")]);
    let images = page.images();
    let [first, second, few, dots] = [0, 1, 2, 3].map(|at: usize| images[at].1.as_str());
    assert_eq!(colour(first, "series 3"), colour(few, "series 3"));
    assert_eq!(colour(second, "series 8"), colour(few, "series 8"));
    assert_ne!(colour(few, "series 3"), colour(few, "series 8"));
    let whisker = dots.lines().find(|line| line.contains("mc-whisker mc-s-")).unwrap();
    assert!(whisker.contains(&format!("mc-whisker mc-s-{}\"", colour(few, "series 3"))), "{whisker}");
    // Images on their own are those of the page.
    let figures = [axes("Delay").series(series(1)), axes("Loss").series(series(2)).series(series(1))];
    let figures = figures.map(|chart| Figure::new("f", chart, "caption"));
    let drawn = Figure::images(&figures);
    assert_eq!(colour(&drawn[0].1, "series 1"), colour(&drawn[1].1, "series 1"));
    assert_eq!(drawn[0].2, "caption");
}

#[test]
fn several_series_have_whiskers_in_their_own_colours() {
    let whiskers = |chart: LineChart| {
        let svg = chart.to_svg();
        let classes =
            svg.lines().filter_map(|line| line.strip_prefix("<path class=\"mc-whisker")?.split('"').next());
        classes.map(str::to_owned).collect::<Vec<_>>()
    };
    let with = |at| series(at).intervals([0.5, 0.5]).marks();
    assert_eq!(whiskers(axes("t").series(with(1))), ["", ""]);
    let both = whiskers(axes("t").series(with(1)).series(with(2)));
    assert_eq!(both, [" mc-s-blue", " mc-s-blue", " mc-s-vermilion", " mc-s-vermilion"]);
}

#[test]
fn captions_that_only_repeat_the_title_are_not_shown() {
    let figure = |caption: &str| Figure::new("f", axes("Queue of the link").series(series(1)), caption);
    for repeated in ["", "Queue of the link", "queue of the link."] {
        assert!(!page([figure(repeated)]).to_html().contains("<figcaption"), "{repeated}");
    }
    assert!(page([figure("All seeds.")]).to_html().contains("<figcaption>All seeds.</figcaption>"));
    // A table keeps its caption for screen readers, below a heading that shows it.
    let table = |caption: &str| {
        let table = page::Table::new(caption).column(page::Column::text("a")).row(["b"]);
        Page::new("t").section(page::Section::new("Flows").table(table)).to_html()
    };
    assert!(table("Flows").contains("<caption class=\"heard\">Flows</caption>"));
    assert!(table("After the warm-up").contains("<caption>After the warm-up</caption>"));
}

#[test]
fn a_folded_figure_opens_by_its_title() {
    let chart = || axes("Delay of flow 9").series(series(1));
    let html = page([Figure::new("a", chart(), "").folded(), Figure::new("b", chart(), "")]).to_html();
    let folded = "<details>\n<summary>Delay of flow 9</summary>\n<figure id=\"a\">";
    assert!(html.contains(folded) && html.contains("</figure>\n</details>\n<figure id=\"b\">"), "{html}");
    assert_balanced(&html);
}

#[test]
fn a_part_of_a_figure_never_replaces_another_figure() {
    let directory = tempfile::tempdir().unwrap();
    let many = (1..=8).fold(axes("Delay"), |chart, index| chart.series(series(index)));
    let section = Section::new("Parts")
        .figure(Figure::new("delay-part-2", axes("Other").series(series(1)), ""))
        .figure(Figure::new("delay", many, ""));
    let error = report().section(section).write(&directory.path().join("out")).unwrap_err();
    assert!(matches!(error, WriteError::DuplicateFigure { id } if id == "delay-part-2"));
}
