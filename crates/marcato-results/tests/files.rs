//! Tests of the files of a run: page, images and tables, as a reader gets them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::Path;

use marcato_report::{Figure, Percentile, Samples};
use marcato_results::{Tables, chart, document, write};
use marcato_scenario::Scenario;
use marcato_sim::scenario::build;
use marcato_units::Time;

/// Eight flows, a flow of three instances, and messages, through one queue.
fn scenario(duration: u32, period_ms: u32) -> String {
    let flow = |at: u32| {
        format!(
            "[[flow]]\nname = \"f{at}\"\nkind = \"tcp\"\nfrom = \"client\"\nto = \"server\"\nstart = \"{at}00 ms\"\n"
        )
    };
    let flows: String = (1..=8).map(flow).collect();
    let recorded: String =
        (1..=8).map(|at| format!("\"flow.f{at}.cwnd\", \"flow.f{at}.throughput\", ")).collect();
    format!(
        r#"
name = "page"
duration = "{duration} s"
warm-up = "1 s"
nodes = ["client", "server"]

[[link]]
name = "bottleneck"
between = ["client", "server"]
rate = "10 Mbit/s"
delay = "5 ms"
queue = {{ kind = "droptail", limit = "60 kB" }}

[[flow]]
name = "edits"
kind = "messages"
from = "client"
to = "server"
sources = [{{ period = "{period_ms} ms", size = "1 kB", priority = "p0" }}]

[[flow]]
name = "copies"
kind = "tcp"
from = "client"
to = "server"
count = 3
start-jitter = "100 ms"

{flows}
[record]
every = "100 ms"
series = [{recorded}"flow.f1.srtt", "flow.f8.srtt", "flow.edits.srtt", "link.bottleneck.queue", "link.bottleneck.utilisation"]
"#
    )
}

/// Runs a scenario, writes its files and calls `read` with their directory.
fn written<T>(text: &str, read: impl FnOnce(&Path) -> T) -> T {
    let run = Scenario::parse("page.toml", text).unwrap().run(0).unwrap();
    let world = build(&run.experiment, &Default::default()).unwrap();
    let outcome = world.run(&mut |_: Time| ()).unwrap();
    let tables = Tables::of(&outcome);
    let directory = tempfile::tempdir().unwrap();
    let json = document::json(&run, &outcome, &tables);
    write(directory.path(), &run, &outcome, &tables, &json).unwrap();
    read(directory.path())
}

fn file(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Section of a page with this anchor.
fn section<'a>(html: &'a str, anchor: &str) -> &'a str {
    let (_, rest) = html.split_once(&format!("<h2 id=\"{anchor}\"")).unwrap_or_else(|| panic!("{anchor}"));
    rest.split("</section>").next().unwrap()
}

/// Class of the colour of a line, by its name in the legend.
fn colour(svg: &str, name: &str) -> String {
    let (before, _) = svg.split_once(&format!(">{name}</text>")).unwrap_or_else(|| panic!("{name} in {svg}"));
    before.rsplit("mc-s-").next().unwrap().split('"').next().unwrap().to_owned()
}

/// Cells of a CSV column.
fn column(csv: &str, name: &str) -> Vec<String> {
    let mut lines = csv.lines().map(|line| line.split(','));
    let place = lines.next().unwrap().position(|head| head == name).unwrap_or_else(|| panic!("{name}"));
    lines.map(|mut cells| cells.nth(place).unwrap().to_owned()).collect()
}

#[test]
fn a_flow_keeps_its_colour_in_all_charts_of_the_page() {
    written(&scenario(4, 100), |out| {
        let html = file(out, "report.html");
        let [cwnd, goodput, srtt, completion] =
            ["cwnd.svg", "goodput.svg", "srtt.svg", "completion.svg"].map(|name| file(out, name));
        for at in 1..=6 {
            let name = format!("f{at}");
            assert_eq!(colour(&cwnd, &name), colour(&goodput, &name));
        }
        let rest = file(out, "goodput-part-2.svg");
        assert_eq!(colour(&rest, "f8"), colour(&srtt, "f8"));
        // The messages of a flow have its colour, whatever the line is called.
        assert_eq!(colour(&completion, "edits source-1"), colour(&srtt, "edits"));
        // Alone in its chart, that line would be blue, as the first flow is.
        assert_ne!(colour(&srtt, "edits"), colour(&srtt, "f1"));
        // The files are the images of the page.
        for svg in [cwnd, goodput, srtt, completion, rest] {
            assert!(html.contains(svg.trim()));
        }
    });
}

#[test]
fn a_chart_of_eight_flows_shows_six_and_unfolds_two() {
    written(&scenario(4, 100), |out| {
        let html = file(out, "report.html");
        let charts = section(&html, "charts");
        let cwnd = charts.split("<figure id=\"cwnd\">").nth(1).unwrap().split("</figure>").next().unwrap();
        let (shown, folded) = cwnd.split_once("<details>\n<summary>2 more: f7, f8</summary>").unwrap();
        for at in 1..=8 {
            let name = format!(">f{at}</text>");
            assert_eq!((shown.contains(&name), folded.contains(&name)), (at <= 6, at > 6), "f{at}");
        }
        let queue = charts.split("<figure id=\"queue\">").nth(1).unwrap().split("</figure>").next().unwrap();
        assert!(!queue.contains("<details>"));
    });
}

#[test]
fn the_page_of_one_run_has_the_table_of_groups() {
    written(&scenario(4, 100), |out| {
        let html = file(out, "report.html");
        let groups = section(&html, "groups");
        let csv = file(out, "groups.csv");
        assert!(
            groups.contains("<th scope=\"row\">copies</th>") && groups.contains("Jain index"),
            "{groups}"
        );
        let sum: f64 = column(&csv, "goodput_sum_mbit_per_s")[0].parse().unwrap();
        assert!(groups.contains(&format!("data-v=\"{sum}\"")), "{groups}");
    });
}

#[test]
fn captions_of_the_page_add_to_titles() {
    written(&scenario(4, 100), |out| {
        let html = file(out, "report.html");
        for figure in html.split("<figure ").skip(1).map(|rest| rest.split("</figure>").next().unwrap()) {
            let title = figure.split("<title>").nth(1).unwrap().split('<').next().unwrap().to_lowercase();
            let caption = figure.split("<figcaption>").nth(1).map(|rest| rest.split('<').next().unwrap());
            assert!(caption.is_none_or(|caption| !caption.to_lowercase().contains(&title)), "{caption:?}");
        }
        for section in html.split("<section>").skip(1).filter(|section| section.contains("<caption")) {
            let title = section.split("\">").nth(1).unwrap().split(" <a").next().unwrap().to_lowercase();
            let caption = section.split("<caption").nth(1).unwrap().split('>').nth(1).unwrap();
            assert!(!caption.to_lowercase().contains(&title), "{title}: {caption}");
        }
    });
}

#[test]
fn a_percentile_of_few_messages_says_which_message_it_is() {
    // 30 messages are measured in 3 s: of these, 95 % is the second longest, 99 % the longest.
    written(&scenario(4, 100), |out| {
        let html = file(out, "report.html");
        let (flows, times) = (file(out, "flows.csv"), file(out, "times.csv"));
        let count: usize = column(&flows, "completion_samples")[0].parse().unwrap();
        assert!((28..=30).contains(&count), "{count}");
        assert_eq!(column(&times, "completion_samples")[0], count.to_string());
        // A flow without completions has no number of them.
        assert_eq!(column(&flows, "completion_samples")[1], "");
        assert_eq!(column(&times, "completion_p99_ms"), column(&times, "completion_max_ms"));
        for anchor in ["flows", "completion-times"] {
            let table = section(&html, anchor);
            let notes: Vec<&str> =
                table.split("<br><small>").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
            assert_eq!(notes, [format!("2nd longest of {count}"), format!("longest of {count}")], "{anchor}");
        }
        assert!(html.contains(&format!("edits source-1 ({count}).</figcaption>")));
    });
}

#[test]
fn percentiles_of_many_messages_need_no_words() {
    // 800 messages.
    written(&scenario(9, 10), |out| {
        let html = file(out, "report.html");
        let csv = file(out, "flows.csv");
        let count: usize = column(&csv, "completion_samples")[0].parse().unwrap();
        assert!(count >= 700, "{count}");
        assert!(!html.contains("longest of") && !html.contains("five longest"));
        assert_ne!(column(&csv, "completion_p99_ms")[0], column(&csv, "completion_max_ms")[0]);
    });
}

#[test]
fn percentiles_in_files_are_those_of_the_completions() {
    let run = Scenario::parse("page.toml", &scenario(4, 100)).unwrap().run(0).unwrap();
    let outcome = build(&run.experiment, &Default::default()).unwrap().run(&mut |_: Time| ()).unwrap();
    let samples: Samples = outcome.flows[0].times[0].samples().collect();
    let of = |percentile| samples.percentile(percentile).unwrap().to_string();
    let csv = Tables::of(&outcome).times.to_csv();
    assert_eq!(column(&csv, "completion_p50_ms")[0], of(Percentile::P50));
    assert_eq!(column(&csv, "completion_p95_ms")[0], of(Percentile::P95));
    assert_eq!(column(&csv, "completion_p99_ms")[0], of(Percentile::P99));
    assert_eq!(column(&csv, "completion_max_ms")[0], of(Percentile::MAX));
}

#[test]
fn percentiles_from_histograms_say_that_they_are_bins() {
    written(&scenario(4, 100), |out| {
        let html = file(out, "report.html");
        let note = |anchor: &str| section(&html, anchor).split("<table").next().unwrap().to_owned();
        let links = note("links");
        let names = "Values of queue delay 50 %, queue delay 95 %, queue delay 99 % are the middles of histogram bins, within 1/32";
        assert!(links.contains(names), "{links}");
        assert!(note("flows").contains("Values of RTT 95 %, delay 95 % are the middles of histogram bins"));
        // Completion times are exact, and so are groups.
        assert!(!note("completion-times").contains("bins") && !note("groups").contains("bins"));
    });
}

#[test]
fn tables_and_charts_agree_with_the_link_that_they_describe() {
    written(&scenario(4, 100), |out| {
        let links = file(out, "links.csv");
        let there = |name: &str| column(&links, name)[0].parse::<f64>().unwrap();
        // 10 Mbit/s, kept busy by eleven flows, behind a queue of 60 kB: 48 ms and a packet.
        assert!((95.0..=100.0).contains(&there("utilisation_percent")));
        // In 3 s, one packet more or less is 0.004 Mbit/s.
        assert!((9.5..10.01).contains(&there("throughput_mbit_per_s")), "{links}");
        assert!((40.0..50.0).contains(&there("queue_delay_max_ms")));
        assert!((10.0..there("queue_delay_max_ms")).contains(&there("queue_delay_mean_ms")));
        assert!((50_000.0..=60_000.0).contains(&there("queue_max_bytes")));
        // Series are drawn in the units of their axes.
        let series = file(out, "series.csv");
        let most = |name: &str| {
            let cells = column(&series, name);
            cells.iter().filter_map(|cell| cell.parse::<f64>().ok()).fold(0.0, f64::max)
        };
        let highest = |name: &str, axis: &str| {
            let svg = file(out, name);
            assert!(svg.contains(&format!(">{axis}</text>")), "{axis}");
            let ticks = svg.lines().filter(|line| line.contains("text-anchor=\"end\""));
            let labels =
                ticks.filter_map(|line| line.split('>').nth(1)?.split('<').next()?.parse::<f64>().ok());
            labels.fold(0.0, f64::max)
        };
        let cwnd = (1..=8).map(|at| most(&format!("flow.f{at}.cwnd"))).fold(0.0, f64::max) / 1e3;
        let ratio = highest("cwnd.svg", "congestion window (kB)") / cwnd;
        assert!((1.0..2.5).contains(&ratio), "{ratio}");
        let queue = most("link.bottleneck.queue") / 1e3;
        let ratio = highest("queue.svg", "queue (kB)") / queue;
        assert!((1.0..2.5).contains(&ratio), "{ratio}");
        assert!((100.0..=150.0).contains(&highest("utilisation.svg", "utilisation of links (%)")));
    });
}

#[test]
fn both_worlds_of_a_flow_have_its_colour_and_one_is_dashed() {
    let run = Scenario::parse("page.toml", &scenario(4, 100)).unwrap().run(0).unwrap();
    let outcome = || build(&run.experiment, &Default::default()).unwrap().run(&mut |_: Time| ()).unwrap();
    let (one, other) = (outcome(), outcome());
    let worlds = [(", simulated", &one), (", lab", &other)];
    let flows = worlds.map(|(name, outcome)| (name, outcome.flows.as_slice()));
    let figures: Vec<Figure> =
        chart::overlaid("x-", &worlds).into_iter().chain(chart::completions_overlaid("x-", &flows)).collect();
    let images = Figure::images(&figures);
    let image = |id: &str| &images.iter().find(|(other, ..)| other == id).unwrap_or_else(|| panic!("{id}")).1;
    // Eight flows in two worlds: three pairs in an image.
    for (id, flows) in [("x-cwnd", ["f1", "f2", "f3"]), ("x-goodput-part-2", ["f4", "f5", "f6"])] {
        for flow in flows {
            let names = [", simulated", ", lab"].map(|world| format!("{flow}{world}"));
            assert_eq!(colour(image(id), &names[0]), colour(image(id), &names[1]), "{flow}");
        }
        // Three lines and their three keys in the legend.
        assert_eq!(image(id).matches("stroke-dasharray=\"6 4\"").count(), 6);
    }
    let completion = image("x-completion");
    let names = [", simulated", ", lab"].map(|world| format!("edits source-1{world}"));
    assert_eq!(colour(completion, &names[0]), colour(completion, &names[1]));
    assert_eq!(colour(completion, &names[0]), colour(image("x-srtt"), "edits, simulated"));
}
