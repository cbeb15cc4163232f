//! Tests of `marcato sim`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use marcato_cli::{Status, run};
use marcato_papers::Registry;
use serde_json::Value;

use crate::over_one_link;

/// Runs the command, and returns its status, standard output and standard error.
fn marcato<S: Into<OsString>>(arguments: impl IntoIterator<Item = S>) -> (Status, String, String) {
    let (mut out, mut err) = (vec![], vec![]);
    let arguments =
        [OsString::from("marcato"), "sim".into()].into_iter().chain(arguments.into_iter().map(Into::into));
    let status = run(&Registry::default(), arguments, &mut out, &mut err);
    (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Returns every file below a directory, by its relative path.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                let name = entry.path().strip_prefix(directory).unwrap().to_owned();
                found.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

const ONE: &str = r#"
name = "one"
about = "two flows, of which one ends, through a short queue"
duration = "6 s"
warm-up = "1 s"
nodes = ["client", "server"]

[[link]]
name = "bottleneck"
between = ["client", "server"]
rate = "8 Mbit/s"
delay = "10 ms"
queue = { kind = "droptail", limit = "30 packets" }

[[flow]]
name = "bulk"
kind = "tcp"
from = "client"
to = "server"

[[flow]]
name = "file"
kind = "tcp"
from = "client"
to = "server"
start = "2 s"
size = "200 kB"

[record]
every = "100 ms"
series = ["flow.bulk.cwnd", "flow.file.cwnd", "flow.bulk.srtt", "link.bottleneck.queue"]
pcap = ["bottleneck"]
"#;

const GRID: &str = r#"
[grid]
seeds = 2
vary = { "flow.bulk.congestion" = ["reno", "cubic"], "link.bottleneck.delay" = ["10 ms", "20 ms"] }
"#;

/// Creates a directory with a scenario in it.
fn scenario(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("one.toml");
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap().to_owned();
    (directory, file)
}

/// Returns the last line on standard error after text output with a report.
fn named(out: &str) -> String {
    format!("report: {out}/report.html\n")
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().unwrap().to_owned()
}

#[test]
fn one_run_gives_the_same_bytes_in_every_file_each_time() {
    let (directory, file) = scenario(ONE);
    let [a, b] = ["a", "b"].map(|name| path(directory.path(), name));
    let printed = [&a, &b].map(|out| {
        let (status, printed, err) = marcato([&file, "--format", "json", "--out", out]);
        assert_eq!((status, err.as_str()), (Status::Ok, ""));
        printed
    });
    assert_eq!(printed[0], printed[1]);
    let found = files(Path::new(&a));
    assert_eq!(found, files(Path::new(&b)));
    let names: Vec<&str> = found.keys().map(|name| name.to_str().unwrap()).collect();
    let expected = [
        "bottleneck.back.pcap",
        "bottleneck.there.pcap",
        "completions.csv",
        "completions.parquet",
        "cwnd.svg",
        "flows.csv",
        "flows.parquet",
        "links.csv",
        "links.parquet",
        "manifest.json",
        "queue.svg",
        "report.html",
        "result.json",
        "series.csv",
        "series.parquet",
        "srtt.svg",
        "times.csv",
        "times.parquet",
    ];
    assert_eq!(names, expected);
    assert_eq!(found[Path::new("result.json")], printed[0].as_bytes());
    let html = String::from_utf8(found[Path::new("report.html")].clone()).unwrap();
    assert!(html.matches("<svg").count() == 3 && !html.contains("src="));
    // A capture begins with its magic number and has every packet.
    assert_eq!(found[Path::new("bottleneck.there.pcap")][..4], 0xa1b2_3c4d_u32.to_le_bytes());
    let (_, other, _) = marcato([&file, "--format", "json", "--seed", "2"]);
    assert_ne!(other, printed[0]);
}

#[test]
fn captures_of_all_links_are_one_file_if_that_is_asked_for() {
    let text = ONE.replace("pcap = [", "pcap-format = \"pcapng\"\nsnaplen = \"whole\"\npcap = [");
    let (directory, file) = scenario(&text);
    let out = path(directory.path(), "a");
    let (status, _, err) = marcato([&file, "--out", &out]);
    assert_eq!((status, err), (Status::Ok, named(&out)));
    let found = files(Path::new(&out));
    let captures: Vec<_> = found
        .keys()
        .filter(|name| name.to_str().unwrap().contains("pcap") || name.ends_with("quic.keys"))
        .collect();
    assert_eq!(captures, [Path::new("capture.pcapng")]);
    let capture = &found[Path::new("capture.pcapng")];
    assert_eq!(capture[..4], 0x0a0d_0d0a_u32.to_le_bytes());
    // 8 Mbit/s for six seconds.
    assert!(capture.len() > 5_000_000, "{}", capture.len());
}

#[test]
fn a_session_that_is_captured_leaves_its_secrets() {
    let session = "\n[[flow]]\nname = \"session\"\nkind = \"quic\"\nfrom = \"client\"\nto = \"server\"\nbulk = \"p3\"\n\n[record]";
    let (directory, file) = scenario(&ONE.replace("\n[record]", session));
    let out = path(directory.path(), "a");
    let (status, _, err) = marcato([&file, "--out", &out]);
    assert_eq!((status, err), (Status::Ok, named(&out)));
    let keys = String::from_utf8(files(Path::new(&out))[Path::new("quic.keys")].clone()).unwrap();
    assert!(keys.lines().any(|line| line.starts_with("SERVER_TRAFFIC_SECRET_0 ")), "{keys}");
}

#[test]
fn the_json_has_the_documented_keys_and_no_local_paths() {
    let (directory, file) = scenario(ONE);
    let (_, printed, _) = marcato([&file, "--format", "json"]);
    let json: Value = serde_json::from_str(&printed).unwrap();
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    let expected = [
        "commit", "config", "events", "flows", "groups", "left_out", "links", "random", "scenario", "seed",
        "settings", "version", "warnings",
    ];
    assert_eq!(keys, expected);
    assert_eq!(json["config"]["duration"], "6 s");
    assert!(!printed.contains(directory.path().to_str().unwrap()));
    let bulk = &json["flows"][0];
    assert!(bulk["goodput_mbit_per_s"].as_f64().is_some_and(|rate| (5.0..7.7).contains(&rate)), "{bulk}");
    let file = &json["flows"][1];
    assert_eq!((&file["received_bytes"], &file["times"][0]["completed"]), (&200_000.into(), &1.into()));
    assert!(json["links"][0]["utilisation_percent"].as_f64().is_some_and(|used| used > 90.0));
}

#[test]
fn csv_is_a_line_for_each_flow_and_text_an_aligned_table() {
    let (_directory, file) = scenario(ONE);
    let (_, csv, _) = marcato([&file, "--format", "csv"]);
    let lines: Vec<&str> = csv.lines().collect();
    assert!(
        lines[0].starts_with("flow,kind,start_s,finished_s,first_byte_ms,received_bytes,goodput_mbit_per_s,"),
        "{csv}"
    );
    assert!(lines[1].starts_with("bulk,tcp,0,,") && lines[2].starts_with("file,tcp,2,") && lines.len() == 3);
    let (_, text, _) = marcato([&file]);
    assert!(
        text.starts_with("one: two flows, of which one ends, through a short queue\nseed 1 (nothing is random: every seed gives the same), 6 s, "),
        "{text}"
    );
    assert!(text.contains("bottleneck  there"), "{text}");
}

#[test]
fn a_grid_is_byte_identical_at_any_thread_count_and_if_resumed() {
    let text = format!("{ONE}{GRID}").replace("pcap = [\"bottleneck\"]\n", "");
    let (directory, file) = scenario(&text);
    let [whole, cut] = ["whole", "cut"].map(|name| path(directory.path(), name));
    let (status, printed, err) = marcato([&file, "--out", &whole, "--jobs", "1"]);
    assert_eq!((status, err), (Status::Ok, named(&whole)), "{printed}");
    let (_, again, _) = marcato([&file, "--out", &cut, "--jobs", "3"]);
    assert_eq!(printed, again);
    let found = files(Path::new(&whole));
    assert_eq!(found, files(Path::new(&cut)));
    assert_eq!(found.keys().filter(|name| name.starts_with("runs/")).count(), 8);
    // State after an interrupt: some runs missing, one truncated, and no means yet.
    let runs: Vec<PathBuf> = found.keys().filter(|name| name.starts_with("runs")).cloned().collect();
    for name in ["grid.csv", "grid.json", "grid.parquet", "runs.csv", "runs.parquet", "report.html"] {
        fs::remove_file(Path::new(&cut).join(name)).unwrap();
    }
    fs::remove_file(Path::new(&cut).join(&runs[1])).unwrap();
    fs::write(Path::new(&cut).join(&runs[2]), "{\"flows\": [").unwrap();
    // A completed run is not repeated: its file's content is used.
    let kept = Path::new(&cut).join(&runs[5]);
    let made = fs::metadata(&kept).unwrap().modified().unwrap();
    let (status, resumed, _) = marcato([&file, "--out", &cut, "--resume"]);
    assert_eq!((status, resumed), (Status::Ok, printed));
    assert_eq!(found, files(Path::new(&cut)));
    assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), made);
}

#[test]
fn means_are_over_seeds_and_each_row_says_how_to_repeat_it() {
    let text = format!("{ONE}{GRID}").replace("pcap = [\"bottleneck\"]\n", "");
    let (_directory, file) = scenario(&text);
    let (_, printed, _) = marcato([&file, "--format", "json"]);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(json["seeds"], serde_json::json!([1, 2]));
    let rows = json["rows"].as_array().unwrap();
    let goodput = |row: &&Value| row["metric"] == "flow.bulk.goodput_mbit_per_s";
    let points: Vec<&Value> = rows.iter().filter(goodput).collect();
    assert_eq!(points.len(), 4);
    let last = points[3];
    assert_eq!((&last["flow.bulk.congestion"], &last["n"]), (&"cubic".into(), &2.into()));
    let line = last["repeat_with"].as_str().unwrap();
    let said =
        format!("marcato sim {file} --set flow.bulk.congestion=cubic --set \"link.bottleneck.delay=20 ms\"");
    assert_eq!(
        line.replace("--set link.bottleneck.delay=\"20 ms\"", "--set \"link.bottleneck.delay=20 ms\""),
        said
    );
    // Only that point, each seed separately.
    let of = |seed: &str| {
        let set = ["--set", "flow.bulk.congestion=cubic", "--set", "link.bottleneck.delay=20 ms"];
        let line = [&*file, "--format", "json", "--seed", seed].into_iter().chain(set);
        let (_, printed, err) = marcato(line);
        let json: Value = serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{err}"));
        json["flows"][0]["goodput_mbit_per_s"].as_f64().unwrap()
    };
    let mean = (of("1") + of("2")) / 2.0;
    assert!((last["mean"].as_f64().unwrap() - mean).abs() < 1e-9);
}

#[test]
fn grid_points_appear_side_by_side_with_their_defined_metrics() {
    let text = format!("{ONE}{GRID}").replace("pcap = [\"bottleneck\"]\n", "");
    let text = text.replace("start = \"2 s\"", "start = \"2 s\"\nstart-jitter = \"50 ms\"");
    let (_directory, file) = scenario(&text);
    let (_, printed, _) = marcato([&file]);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "one: 8 runs, means over seeds ± 95 % confidence intervals");
    assert_eq!(lines[2], "[1] flow.bulk.congestion = reno, link.bottleneck.delay = 10 ms");
    let row = |name: &str| lines.iter().find(|line| line.trim_start().starts_with(name));
    assert_eq!(row("flow.bulk.goodput_mbit_per_s").map(|line| line.matches('±').count()), Some(4));
    assert!(
        row("flow.file.completion_p50_ms").is_some() && row("link.bottleneck.utilisation_percent").is_some()
    );
    // A flow without an end has no completion time.
    assert_eq!(row("flow.bulk.completion_p50_ms"), None);
}

#[test]
fn a_directory_of_something_else_is_refused() {
    let text = format!("{ONE}{GRID}").replace("pcap = [\"bottleneck\"]\n", "").replace("6 s", "3 s");
    let (directory, file) = scenario(&text);
    let out = path(directory.path(), "out");
    let (status, _, err) = marcato([&file, "--out", &out, "--resume"]);
    assert_eq!(status, Status::Error);
    assert!(err.contains("has nothing to resume: leave out --resume"), "{err}");
    assert_eq!(marcato([&file, "--out", &out]).0, Status::Ok);
    let before = files(Path::new(&out));
    let (status, _, err) = marcato([&file, "--out", &out, "--set", "flow.file.size=100 kB"]);
    assert_eq!(status, Status::Error);
    assert!(
        err.contains("has results of another scenario, or of other settings: give another directory"),
        "{err}"
    );
    let manifest = Path::new(&out).join("manifest.json");
    let older = fs::read_to_string(&manifest).unwrap().replace(env!("CARGO_PKG_VERSION"), "0.0.7");
    fs::write(&manifest, &older).unwrap();
    let (status, _, err) = marcato([&file, "--out", &out]);
    assert_eq!(status, Status::Error);
    assert!(err.contains("has results of another version of this program (0.0.7 ("), "{err}");
    fs::write(&manifest, &before[Path::new("manifest.json")]).unwrap();
    assert_eq!(files(Path::new(&out)), before);
    let (status, _, err) = marcato([&file, "--resume"]);
    assert_eq!(status, Status::Error);
    assert!(err.contains("--resume needs --out"), "{err}");
}

#[test]
fn a_run_that_fails_is_named_and_the_others_are_done() {
    // Half a bit per second is not a valid rate.
    let grid = "\n[grid]\nvary = { \"link.bottleneck.rate\" = [\"8 Mbit/s\", \"1 bit/s\"] }\n";
    let text = ONE.replace("pcap = [\"bottleneck\"]\n", "") + grid;
    let text = text.replace(r#"kind = "droptail""#, r#"kind = "crq", sharing = "split""#);
    let (directory, file) = scenario(&text);
    let out = path(directory.path(), "out");
    let (status, printed, err) = marcato([&file, "--out", &out]);
    assert_eq!((status, printed.as_str()), (Status::Error, ""), "{err}");
    assert!(err.starts_with("error: 1 of 2 runs failed:\n  the run rate=1bit-s,seed=1 failed: "), "{err}");
    let found = files(Path::new(&out));
    let names: Vec<&str> = found.keys().map(|name| name.to_str().unwrap()).collect();
    assert_eq!(names, ["manifest.json", "runs/rate=8Mbit-s,seed=1.json"]);
}

#[test]
fn a_file_that_is_wrong_exits_2_and_each_line_is_named() {
    let (_directory, file) = scenario(&ONE.replace("8 Mbit/s", "8").replace("size =", "sise ="));
    let (status, out, err) = marcato([&file]);
    assert_eq!((status, u8::from(status), out.as_str()), (Status::Error, 2, ""));
    assert!(err.starts_with("error: the scenario cannot be run:\n"), "{err}");
    assert!(err.contains("one.toml:11:") && err.contains("one.toml:27:"), "{err}");
    let (status, _, err) = marcato(["/nowhere/none.toml"]);
    assert_eq!(status, Status::Error);
    assert!(err.contains("none.toml") && err.contains("cannot be read"), "{err}");
    let (_directory, file) = scenario(ONE);
    let (status, _, err) = marcato([&file, "--set", "flow.bulk.congestion=vegas"]);
    assert_eq!(status, Status::Error);
    assert!(err.contains("--set") && err.contains("vegas"), "{err}");
}

#[test]
fn explaining_runs_nothing() {
    let (directory, file) = scenario(&format!("{ONE}{GRID}"));
    let out = path(directory.path(), "out");
    let (status, printed, _) = marcato([&file, "--explain", "--out", &out]);
    assert_eq!(status, Status::Ok);
    assert!(printed.contains("bottleneck") && printed.contains("8 Mbit/s"), "{printed}");
    assert!(!Path::new(&out).exists());
}

/// Duration for each example in which all its events occur.
const EXAMPLES: [(&str, &str); 12] = [
    ("cats", "2 s"),
    ("cellular", "2 s"),
    ("codel-cubic", "21 s"),
    ("fifo-or-conductor", "2 s"),
    ("late-urgent", "6 s"),
    ("multipath", "2 s"),
    ("parking-lot", "2 s"),
    ("reno-loss", "2 s"),
    ("satellite", "143 s"),
    ("short-flows", "2 s"),
    ("two-layers", "2 s"),
    ("video-and-flood", "21 s"),
];

#[test]
fn every_example_runs_with_every_combination_of_its_grid() {
    let is_scenario = |path: &PathBuf| path.extension().is_some_and(|it| it == "toml");
    let found =
        fs::read_dir(examples()).unwrap().map(|entry| entry.unwrap().path()).filter(is_scenario).count();
    assert_eq!(found, EXAMPLES.len(), "an example is missing here");
    for (name, duration) in EXAMPLES {
        let file = examples().join(format!("{name}.toml")).into_os_string();
        let duration = format!("duration={duration}");
        let settings = ["--set", &duration, "--set", "warm-up=0 s", "--seed", "1", "--format", "csv"];
        let arguments = [file].into_iter().chain(settings.map(OsString::from));
        let (status, printed, err) = marcato(arguments);
        assert_eq!((status, err.as_str()), (Status::Ok, ""), "{name}");
        assert!(printed.contains("goodput_mbit_per_s"), "{name}: {printed}");
    }
}

#[test]
fn one_file_shows_a_page_first_in_first_out_against_a_conductor() {
    let file = examples().join("fifo-or-conductor.toml").into_os_string();
    let (status, printed, err) = marcato([file.clone(), "--format".into(), "json".into()]);
    assert_eq!((status, err.as_str()), (Status::Ok, ""));
    let json: Value = serde_json::from_str(&printed).unwrap();
    let completion = |feeder: &str, message: &str| {
        let metric = format!("flow.page.{message}.completion_p50_ms");
        let rows = json["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["flow.page.feeder"] == feeder && row["metric"] == *metric);
        row.unwrap_or_else(|| panic!("{metric} by {feeder}"))["mean"].as_f64().unwrap()
    };
    // 15 kB alone take 60 ms of the link and one or two round trips of 120 ms. Behind 1.42 MB they
    // take at least 5.7 s.
    assert!((120.0..600.0).contains(&completion("conductor", "html")), "{}", completion("conductor", "html"));
    assert!(completion("fifo", "html") > 5_700.0);
    assert!(completion("conductor", "styles") < completion("fifo", "styles") / 4.0);
    // Without a Conductor, analytics are sent first.
    assert!(completion("fifo", "analytics") < completion("conductor", "analytics"));
    let (_, text, _) = marcato([file]);
    for message in ["html", "styles", "fonts", "images", "analytics"] {
        assert!(text.contains(&format!("flow.page.{message}.completion_p50_ms")), "{text}");
    }
}

/// Flows of every kind with timed completions, some of which do not complete.
fn kinds() -> String {
    over_one_link(
        "name = \"kinds\"\nduration = \"4 s\"\nwarm-up = \"1 s\"",
        r#"rate = "4 Mbit/s"
        delay = "10 ms"
        queue = { kind = "droptail", limit = "50 packets" }"#,
        &[
            ["file", "tcp", "start = \"2 s\"\nsize = \"100 kB\""],
            [
                "pages",
                "tcp-process",
                "load = \"1 Mbit/s\"\nsize = { kind = \"exponential\", mean = \"10 kB\" }",
            ],
            ["calls", "request-response", "request = \"200 B\"\nresponse = \"5 kB\""],
            [
                "tcp-messages",
                "messages",
                r#"messages = [{ size = "2 kB", priority = "p1" }, { size = "40 MB", priority = "p4" }]
                sources = [{ period = "50 ms", size = "500 B", priority = "p0" }]"#,
            ],
            [
                "quic",
                "quic",
                r#"messages = [{ after = "1.5 s", size = "2 kB", priority = "p1" }]
                sources = [{ period = "20 ms", size = "500 B", priority = "p0" }]"#,
            ],
        ],
    )
}

/// Returns the rows of a CSV without commas in its cells, as maps from column names.
fn table(csv: &[u8]) -> Vec<BTreeMap<String, String>> {
    let mut lines = std::str::from_utf8(csv).unwrap().lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row =
        |line: &str| names.iter().map(ToString::to_string).zip(line.split(',').map(str::to_owned)).collect();
    lines.map(row).collect()
}

#[test]
fn completions_has_a_row_for_each_thing_that_times_counts() {
    let (directory, file) = scenario(&kinds());
    let out = path(directory.path(), "out");
    let (status, _, err) = marcato([&file, "--out", &out]);
    assert_eq!(status, Status::Ok, "{err}");
    let found = files(Path::new(&out));
    let [times, completions] = ["times.csv", "completions.csv"].map(|name| table(&found[Path::new(name)]));
    assert!(found.contains_key(Path::new("completions.parquet")));
    let kinds: Vec<String> = times.iter().map(|row| format!("{}/{}", row["flow"], row["what"])).collect();
    let expected = [
        "file/transfer",
        "pages/transfer",
        "calls/response",
        "tcp-messages/source-1",
        "tcp-messages/messages",
        "quic/source-1",
        "quic/messages",
    ];
    assert_eq!(kinds, expected);
    for row in &times {
        let of: Vec<_> = completions
            .iter()
            .filter(|one| one["flow"] == row["flow"] && one["what"] == row["what"])
            .collect();
        for state in ["completed", "unfinished", "refused"] {
            let count = of.iter().filter(|one| one["state"] == state).count();
            assert_eq!(count.to_string(), row[state], "{state} of {row:?}");
        }
        // The longest completion in the list equals the reported maximum.
        let took = |one: &&&BTreeMap<String, String>| {
            let second = |key: &str| one[key].parse::<f64>().ok();
            second("end_s").zip(second("start_s")).map(|(end, start)| (end - start) * 1e3)
        };
        let longest = of.iter().filter_map(|one| took(&one)).fold(0.0, f64::max);
        if let Ok(most) = row["completion_max_ms"].parse::<f64>() {
            assert!((longest - most).abs() < 1e-6, "{longest} {row:?}");
        }
    }
    let one = |what: &str, size: &str| {
        completions.iter().find(|one| one["what"] == what && one["size_bytes"] == size).unwrap()
    };
    assert_eq!(one("transfer", "100000")["start_s"], "2");
    assert_eq!(
        (&*one("messages", "40000000")["priority"], &*one("messages", "40000000")["end_s"]),
        ("P4", "")
    );
    assert_eq!(one("messages", "40000000")["state"], "unfinished");
}

#[test]
fn a_single_run_refuses_a_directory_of_anything_else() {
    let (directory, file) = scenario(&ONE.replace("6 s", "3 s"));
    let out = path(directory.path(), "out");
    assert_eq!(marcato([&file, "--out", &out]).0, Status::Ok);
    let before = files(Path::new(&out));
    // Repeating the same command is accepted.
    assert_eq!(marcato([&file, "--out", &out]).0, Status::Ok);
    for other in [&["--seed", "2"][..], &["--set", "flow.file.size=100 kB"], &["--set", "record.every=50 ms"]]
    {
        let (status, _, err) = marcato([&*file, "--out", &out].iter().chain(other));
        assert_eq!(status, Status::Error);
        assert!(err.contains("has results of another scenario, or of other settings"), "{err}");
    }
    assert_eq!(files(Path::new(&out)), before);
    fs::remove_file(Path::new(&out).join("manifest.json")).unwrap();
    let (status, _, err) = marcato([&file, "--out", &out]);
    assert_eq!(status, Status::Error, "results without a manifest are of nobody knows what: {err}");
}

#[test]
fn runs_has_a_row_for_each_run_with_settings_as_numbers() {
    let vary = r#"vary = { "link.bottleneck.rate" = ["8 Mbit/s", "500 kbit/s"], "link.bottleneck.delay" = ["10 ms"], "flow.bulk.congestion" = ["reno", "cubic"], "flow.file.size" = ["200 kB"] }"#;
    let text = ONE.replace("pcap = [\"bottleneck\"]\n", "") + "[grid]\nseeds = 2\n" + vary;
    let (directory, file) = scenario(&text.replace("6 s", "3 s"));
    let out = path(directory.path(), "out");
    assert_eq!(marcato([&file, "--out", &out]).0, Status::Ok);
    let found = files(Path::new(&out));
    assert!(found.contains_key(Path::new("runs.parquet")));
    let text = String::from_utf8(found[Path::new("runs.csv")].clone()).unwrap();
    // Names of runs contain commas.
    let lines: Vec<(&str, Vec<&str>)> = text
        .lines()
        .map(|line| {
            line.trim_start_matches('"').split_once(if line.starts_with('"') { "\"," } else { "," }).unwrap()
        })
        .map(|(run, rest)| (run, rest.split(',').collect()))
        .collect();
    let names = &lines[0].1;
    let settings = [
        "link.bottleneck.rate_mbit_per_s",
        "link.bottleneck.delay_ms",
        "flow.bulk.congestion",
        "flow.file.size_bytes",
        "seed",
    ];
    assert_eq!(names[..5], settings);
    assert_eq!(lines.len(), 9);
    assert_eq!(lines[8].1[..5], ["0.5", "10", "cubic", "200000", "2"]);
    let goodput = names.iter().position(|name| *name == "flow.bulk.goodput_mbit_per_s").unwrap();
    for (run, cells) in &lines[1..] {
        let document = &found[&PathBuf::from(format!("runs/{run}.json"))];
        let json: Value = serde_json::from_slice(document).unwrap();
        assert_eq!(cells.len(), names.len());
        assert_eq!(
            cells[goodput].parse::<f64>().ok(),
            json["flows"][0]["goodput_mbit_per_s"].as_f64(),
            "{run}"
        );
    }
}

#[test]
fn explaining_as_json_has_every_experiment_completely_said() {
    let (_directory, file) = scenario(&format!("{ONE}{GRID}"));
    let (status, printed, err) = marcato([&file, "--explain", "--format", "json"]);
    assert_eq!((status, err.as_str()), (Status::Ok, ""));
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&json["runs"], &json["seeds"]), (&8.into(), &serde_json::json!([1, 2])));
    let experiments = json["experiments"].as_array().unwrap();
    assert_eq!(experiments.len(), 4);
    let last = &experiments[3];
    assert_eq!(last["settings"]["link.bottleneck.delay"], "20 ms");
    assert_eq!(last["runs"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&last["config"]["duration"], &last["config"]["link"][0]["delay"]),
        (&"6 s".into(), &"20 ms".into())
    );
    let (status, printed, err) = marcato([&file, "--explain", "--format", "csv"]);
    assert_eq!((status, printed.as_str()), (Status::Error, ""));
    assert!(err.contains("leave out --format csv"), "{err}");
}

#[test]
fn warnings_are_in_the_table_the_document_and_the_report() {
    let (directory, file) = scenario(ONE);
    let out = path(directory.path(), "out");
    let lost = ["--set", "link.bottleneck.loss={ kind = \"random\", probability = 1.0 }"];
    let (status, printed, _) = marcato([&[file.as_str(), "--out", &out][..], &lost].concat());
    assert_eq!(status, Status::Ok);
    let warning = "nothing of the flow `bulk` arrived: check the mtu, loss, outages and queues on its path, and its start";
    assert!(printed.contains(&format!("\nwarning: {warning}\n")), "{printed}");
    let json: Value =
        serde_json::from_slice(&fs::read(directory.path().join("out/result.json")).unwrap()).unwrap();
    assert_eq!(json["warnings"][0], warning);
    let report = fs::read_to_string(directory.path().join("out/report.html")).unwrap();
    assert!(report.contains("class=\"banner\"") && report.contains("nothing of the flow"), "{report}");
    let (_, printed, _) = marcato([&file, "--format", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["warnings"], serde_json::json!([]));
}

#[test]
fn a_trace_is_read_by_one_parser_whether_explained_or_run() {
    let (directory, file) = scenario(&ONE.replace("rate = \"8 Mbit/s\"", "trace = \"radio.trace\""));
    fs::write(directory.path().join("radio.trace"), "1\n\n2\n3\n").unwrap();
    let problem = "the trace `radio.trace`: line 2: \"\" is no whole number of ms from 0 to 4294967295";
    for option in [&["--explain"][..], &[]] {
        let (status, _, err) = marcato([&[file.as_str()][..], option].concat());
        assert_eq!(status, Status::Error, "{err}");
        assert!(err.contains(problem), "{err}");
    }
}

/// Session over two paths, one of them lossy, with a concurrent TCP flow; for each controller with
/// repeatable results.
const QUIC: &str = r#"
name = "lanes"
duration = "3 s"

[topology]
kind = "multipath"
rate = "4 Mbit/s"
delay = "10 ms"
paths = [{ loss = { kind = "random", probability = 0.005 } }, { jitter = { kind = "uniform", most = "2 ms" } }]

[[flow]]
name = "session"
kind = "quic"
paths = [["client-1", "server-1"], ["client-2", "server-2"]]
bulk = "p4"
sources = [{ period = "50 ms", size = "2 kB", priority = "p0", jitter = "5 ms" }]

[[flow]]
name = "beside"
kind = "tcp"
from = "client-1"
to = "server-1"

[record]
every = "100 ms"
series = ["flow.session.cwnd", "flow.session.throughput", "link.path-1.queue"]
pcap = ["path-1"]
"#;

#[test]
fn quic_gives_the_same_bytes_in_every_file_but_captures() {
    let (directory, file) = scenario(QUIC);
    for controller in ["cubic", "new-reno"] {
        let set = format!("flow.session.controller={controller}");
        let outs = ["a", "b"].map(|name| path(directory.path(), &format!("{controller}-{name}")));
        let [printed, again] = outs.each_ref().map(|out| {
            let (status, printed, err) = marcato([&file, "--format", "json", "--set", &set, "--out", out]);
            assert_eq!((status, err.as_str()), (Status::Ok, ""));
            printed
        });
        assert_eq!(printed, again);
        let [first, second] = outs.each_ref().map(|out| files(Path::new(out)));
        assert!(first.len() > 10 && first.keys().eq(second.keys()), "{:?}", first.keys());
        for (name, content) in &first {
            // TLS keys come from the operating system's random numbers, and so do captures and the
            // keys that decrypt them.
            if name.extension().is_some_and(|extension| extension == "pcap" || extension == "keys") {
                assert_eq!(content.len(), second[name].len(), "{}", name.display());
            } else {
                assert!(*content == second[name], "{} differs", name.display());
            }
        }
    }
    let grid = format!(
        "{QUIC}[grid]\nseeds = 2\nvary = {{ \"flow.session.scheduler\" = [\"low-rtt\", \"cwr-red\"] }}\n"
    );
    fs::write(&file, grid).unwrap();
    let [one, two] = ["1", "2"].map(|jobs| {
        let out = path(directory.path(), &format!("grid-{jobs}"));
        let (status, printed, err) = marcato([&file, "--jobs", jobs, "--out", &out]);
        assert_eq!((status, err), (Status::Ok, named(&out)));
        (printed, files(Path::new(&out)))
    });
    assert!(one == two, "a grid of QUIC differs with the number of jobs");
}

#[test]
fn sums_of_instances_are_a_table_and_a_metric_of_grids() {
    let many = ONE.replace("size = \"200 kB\"", "size = \"200 kB\"\ncount = 3");
    let (directory, file) = scenario(&many);
    let out = path(directory.path(), "out");
    let (status, text, err) = marcato([&file, "--out", &out]);
    assert_eq!((status, err), (Status::Ok, named(&out)));
    assert!(text.contains("Jain's index"), "{text}");
    let groups = fs::read_to_string(Path::new(&out).join("groups.csv")).unwrap();
    let [head, line] = groups.lines().collect::<Vec<_>>()[..] else { panic!("{groups}") };
    assert!(
        head.starts_with("group,kind,members,goodput_sum_mbit_per_s,goodput_mean_mbit_per_s,jain_index,")
    );
    assert!(line.starts_with("file,tcp,3,"), "{line}");
    assert!(Path::new(&out).join("groups.parquet").exists());
    let (_, printed, _) = marcato([&file, "--format", "json"]);
    let json: Value = serde_json::from_str(&printed).unwrap();
    let index = json["groups"][0]["jain_index"].as_f64().unwrap();
    assert!((0.33..=1.0).contains(&index), "{index}");
    let (_directory, file) = scenario(&format!("{many}{GRID}").replace("pcap = [\"bottleneck\"]\n", ""));
    let (_, printed, _) = marcato([&file, "--format", "json", "--set", "flow.bulk.congestion=cubic"]);
    let json: Value = serde_json::from_str(&printed).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.iter().filter(|row| row["metric"] == "group.file.jain_index").count(), 2);
}

#[test]
fn a_shorter_run_says_what_it_leaves_out() {
    let (_directory, file) = scenario(ONE);
    let short = |format: &str| marcato([&file, "--set", "duration=2 s", "--format", format]);
    let (status, text, err) = short("text");
    assert_eq!((status, err.as_str()), (Status::Ok, ""));
    let note = "the flow `file`, which would start at 2 s";
    assert!(text.contains(&format!("left out, since they come after the end: {note}\n")), "{text}");
    let json: Value = serde_json::from_str(&short("json").1).unwrap();
    assert_eq!(json["left_out"], serde_json::json!([note]));
    assert_eq!(json["flows"].as_array().unwrap().len(), 1);
    let (_, printed, _) = marcato([&file, "--set", "duration=2 s", "--explain", "--format", "json"]);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(json["experiments"][0]["left_out"], serde_json::json!([note]));
}

/// Returns the text of each cell of the table with this caption, row by row, beginning with the
/// head.
fn cells(html: &str, caption: &str) -> Vec<Vec<String>> {
    let caption = format!(">{caption}</caption>");
    let table =
        html.split_once(&caption).unwrap_or_else(|| panic!("{caption}")).1.split_once("</table>").unwrap().0;
    let text = |cell: &str| {
        let mut parts = cell.split('>').skip(1).map(|part| part.split('<').next().unwrap());
        parts.by_ref().collect::<Vec<_>>().join("")
    };
    let row = |row: &str| row.replace("<th", "<td").split("<td").skip(1).map(text).collect();
    table.split("<tr>").skip(1).map(row).collect()
}

#[test]
fn a_run_report_shows_charts_then_tables_by_flow_then_scenario() {
    let (directory, file) = scenario(ONE);
    let out = path(directory.path(), "out");
    assert_eq!(marcato([&file, "--out", &out]).0, Status::Ok);
    let html = fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    let titles: Vec<&str> =
        html.split("<h2 id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(titles, ["charts", "flows", "completion-times", "links", "scenario"]);
    // The page has no part of a paper's report.
    for word in [" paper", ">paper", "band", "unclaimed", "Rows:"] {
        assert!(!html.split("<script>").next().unwrap().contains(word), "{word}");
    }
    let flows = cells(&html, "After the warm-up");
    assert_eq!(flows.len(), 3);
    assert_eq!(flows[0][..4], ["flow", "kind", "start s", "finished s"]);
    let column = flows[0].iter().position(|name| name == "goodput Mbit/s").unwrap();
    let csv = table(&fs::read(Path::new(&out).join("flows.csv")).unwrap());
    for (row, flow) in flows[1..].iter().zip(&csv) {
        assert_eq!((&row[0], row.len()), (&flow["flow"], flows[0].len()));
        let exact: f64 = flow["goodput_mbit_per_s"].parse().unwrap();
        assert!((row[column].parse::<f64>().unwrap() / exact - 1.0).abs() < 1e-3, "{row:?}");
    }
    // The scenario on the page is a file that runs.
    let said = html.split("<pre>").nth(1).unwrap().split("</pre>").next().unwrap().replace("&quot;", "\"");
    let (_other, again) = scenario(&said);
    let [first, second] = [&file, &again].map(|file| marcato([file, "--format", "csv"]).1);
    assert_eq!(first, second);
}

#[test]
fn a_grid_report_has_a_chart_for_each_key_and_intervals() {
    let text = format!("{ONE}{GRID}").replace("pcap = [\"bottleneck\"]\n", "");
    let text = text.replace("start = \"2 s\"", "start = \"2 s\"\nstart-jitter = \"50 ms\"");
    let (directory, file) = scenario(&text.replace("6 s", "3 s"));
    let out = path(directory.path(), "out");
    assert_eq!(marcato([&file, "--out", &out]).0, Status::Ok);
    let found = files(Path::new(&out));
    let html = String::from_utf8(found[Path::new("report.html")].clone()).unwrap();
    for key in ["flow.bulk.congestion", "link.bottleneck.delay"] {
        assert!(html.contains(&format!(">By {key} ")), "{key}");
    }
    for name in
        ["by-1-goodput-mbit-per-s-1.svg", "by-2-utilisation-percent-1.svg", "by-2-completion-p50-ms-1.svg"]
    {
        assert!(found.contains_key(Path::new(name)), "{name} of {:?}", found.keys());
    }
    let goodput = String::from_utf8(found[Path::new("by-1-goodput-mbit-per-s-1.svg")].clone()).unwrap();
    // Two flows and two delays for each of two congestion controls: marks in rows, and whiskers.
    let mark = |line: &&str| line.contains("<title>reno, ") || line.contains("<title>cubic, ");
    let marks: Vec<&str> = goodput.lines().filter(mark).collect();
    assert_eq!(marks.len(), 8);
    // Both seeds give one flow the same goodput at two points, which then have no whisker.
    let spread = marks.iter().filter(|mark| mark.contains(" ± ")).count();
    assert!(spread >= 4 && marks.iter().all(|mark| !mark.contains("<rect")), "{marks:?}");
    assert_eq!(goodput.matches("<path class=\"mc-whisker").count(), spread);
    assert!(html.contains("Marks are means over 2 seeds, whiskers their 95 % confidence intervals"));
    assert!(goodput.contains("bulk, delay 10 ms") && goodput.contains("file, delay 20 ms"));
    let flows = cells(
        &html,
        "Means over seeds ± half the width of their 95 % confidence intervals (Student&#39;s t)",
    );
    assert_eq!(flows[0][..4], ["flow.bulk.congestion", "link.bottleneck.delay", "of", "goodput Mbit/s"]);
    assert_eq!(flows.len(), 9);
    assert_eq!(flows[8][..3], ["cubic", "20 ms", "file"]);
    assert!(flows[8][3].contains(" ± "), "{:?}", flows[8]);
    let (_, printed, _) = marcato([&file, "--format", "json"]);
    let json: Value = serde_json::from_str(&printed).unwrap();
    let is_it = |row: &&Value| {
        row["metric"] == "flow.file.goodput_mbit_per_s"
            && row["flow.bulk.congestion"] == "cubic"
            && row["link.bottleneck.delay"] == "20 ms"
    };
    let mean = json["rows"].as_array().unwrap().iter().find(is_it).unwrap()["mean"].as_f64().unwrap();
    let shown: f64 = flows[8][3].split(' ').next().unwrap().parse().unwrap();
    assert!((shown / mean - 1.0).abs() < 1e-3);
    assert!(html.contains("--set flow.bulk.congestion=cubic"));
}

#[test]
fn a_grid_without_randomness_says_so_and_prints_no_intervals() {
    let text = format!("{ONE}{GRID}").replace("pcap = [\"bottleneck\"]\n", "").replace("6 s", "3 s");
    let (directory, file) = scenario(&text);
    let out = path(directory.path(), "out");
    let (_, printed, _) = marcato([&file, "--out", &out]);
    assert!(!printed.contains('±') && printed.contains("nothing in these runs is random"), "{printed}");
    let html = fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    assert!(html.contains("nothing in these runs is random") && !html.contains(" ± "));
    assert!(html.contains("Nothing is random, so they have no intervals.") && !html.contains("confidence"));
    let json: Value = serde_json::from_slice(&fs::read(Path::new(&out).join("grid.json")).unwrap()).unwrap();
    assert_eq!(json["random"], false);
    assert!(json["rows"].as_array().unwrap().iter().all(|row| row["ci95"].is_null()));
    // One random combination suffices for intervals, and combinations without randomness have none.
    let half = text.replace(
        "vary = {",
        "vary = { \"link.bottleneck.loss\" = [\"none\", { kind = \"random\", probability = 0.01 }],",
    );
    let (_directory, file) = scenario(&half);
    let (_, printed, _) = marcato([&file]);
    assert!(
        printed.contains("nothing is random in 4 of 8 combinations") && printed.contains('±'),
        "{printed}"
    );
    let (_directory, file) = scenario(ONE);
    let (_, printed, _) = marcato([&file]);
    assert!(printed.contains("seed 1 (nothing is random: every seed gives the same), 6 s"), "{printed}");
    let (_, printed, _) =
        marcato([&*file, "--set", "link.bottleneck.loss={ kind = \"random\", probability = 0.01 }"]);
    assert!(printed.contains("seed 1, 6 s"), "{printed}");
}

/// Grid of messages behind a transfer, by the rate of the link and a queue.
fn rates() -> String {
    let flows = over_one_link(
        "name = \"rates\"\nduration = \"8 s\"\nwarm-up = \"2 s\"",
        "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"codel\"",
        &[
            ["bulk", "tcp", "count = 2\nstart-jitter = \"100 ms\""],
            [
                "edits",
                "messages",
                r#"sources = [{ period = "100 ms", jitter = "30 ms", size = "1 kB", priority = "p0" }]"#,
            ],
        ],
    );
    flows
        + r#"
        [grid]
        seeds = 2
        vary = { "link.bottleneck.rate" = ["40 Mbit/s", "2 Mbit/s", "10 Mbit/s"], "link.bottleneck.queue" = ["codel", "fq-codel"] }
        "#
}

/// Runs a grid, and returns what it prints, its page and its directory.
fn grid(text: &str, more: &[&str]) -> (String, String, tempfile::TempDir) {
    let (directory, file) = scenario(text);
    let out = path(directory.path(), "out");
    let (status, printed, err) = marcato([&*file, "--out", &out].into_iter().chain(more.iter().copied()));
    assert_eq!(status, Status::Ok, "{err}");
    let html = fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    (printed, html, directory)
}

/// Chart of a page with this title.
fn drawn<'a>(html: &'a str, title: &str) -> &'a str {
    let label = format!("aria-label=\"{title}\"");
    html.split_once(&label).unwrap_or_else(|| panic!("{title}")).1.split("</figure>").next().unwrap()
}

/// Class of the colour of a line, by its name in the legend.
fn colour<'a>(svg: &'a str, name: &str) -> &'a str {
    let (before, _) = svg.split_once(&format!(">{name}</text>")).unwrap_or_else(|| panic!("{name} in {svg}"));
    before.rsplit("mc-s-").next().unwrap().split('"').next().unwrap()
}

/// Places of the marks of a line from left to right; the first mark of an image is that of the legend.
fn marks(svg: &str, name: &str) -> Vec<f64> {
    let class = colour(svg, name);
    let begins = ["circle class=\"mc-f-CLASS\" cx=\"", "path class=\"mc-f-CLASS\" d=\"M"];
    let begins = begins.map(|begin| format!("<{}", begin.replace("CLASS", class)));
    let rests =
        svg.lines().filter_map(|line| begins.iter().find_map(|begin| line.strip_prefix(begin.as_str())));
    rests.map(|rest| rest.split(['"', ' ']).next().unwrap().parse().unwrap()).skip(1).collect()
}

#[test]
fn a_quantity_has_an_axis_of_numbers_with_marks_to_scale() {
    let (_, html, _directory) = grid(&rates(), &[]);
    let chart = drawn(&html, "utilisation by rate");
    // The axis is logarithmic: 2 to 40 Mbit/s.
    assert!(chart.contains(">rate (Mbit/s)</text>"), "{chart}");
    let places = marks(chart, "bottleneck, queue codel");
    let [two, ten, forty] = places[..] else { panic!("{places:?} in {chart}") };
    let shares = (ten - two) / (forty - two);
    assert!((shares - 5f64.ln() / 20f64.ln()).abs() < 0.002, "{shares}");
    // Means of two seeds have whiskers, in the colours of their lines.
    let delay = drawn(&html, "completion 50 % of edits by rate");
    for name in ["queue codel", "queue fq-codel"] {
        let whisker = format!("<path class=\"mc-whisker mc-s-{}\"", colour(delay, name));
        assert_eq!(delay.matches(&whisker).count(), 3, "{name}");
    }
    // Below a ratio of 20, it is linear.
    let (_, html, _directory) =
        grid(&rates().replace("\"40 Mbit/s\"", "\"18 Mbit/s\""), &["--set", "link.bottleneck.queue=codel"]);
    let places = marks(drawn(&html, "utilisation by rate"), "bottleneck");
    let [two, ten, most] = places[..] else { panic!("{places:?}") };
    assert!(((ten - two) / (most - two) - 0.5).abs() < 0.002, "{places:?}");
    // Words have rows, not an axis.
    let (_, html, _directory) = grid(&rates(), &["--set", "link.bottleneck.rate=10 Mbit/s"]);
    assert!(drawn(&html, "utilisation by queue").contains(">fq-codel</text>"));
    assert!(!html.contains("aria-label=\"utilisation by rate\""));
}

#[test]
fn lines_of_a_grid_keep_their_colour_on_the_page() {
    let (_, html, _directory) = grid(&rates(), &["--set", "link.bottleneck.queue=codel"]);
    let colour = |title: &str, name: &str| colour(drawn(&html, title), name).to_owned();
    let goodput = ["bulk-1", "bulk-2", "edits"].map(|name| colour("goodput by rate", name));
    let delay = ["bulk-1", "bulk-2", "edits"].map(|name| colour("delay mean by rate", name));
    assert_eq!(goodput, delay);
    // A chart of one flow has no legend, and its line the colour of that flow.
    let alone = drawn(&html, "completion 50 % of edits by rate");
    assert!(alone.contains(&format!("<polyline class=\"mc-s-{}\"", goodput[2])) && goodput[2] != goodput[0]);
}

#[test]
fn one_seed_has_neither_means_nor_intervals() {
    let (printed, html, _directory) = grid(&rates(), &["--seed", "1"]);
    assert!(printed.starts_with("rates: 6 runs, values of one seed\n"), "{printed}");
    assert!(html.contains("6 combinations of settings, 1 seed each."));
    assert!(html.contains("Marks are values of one seed, so they have no intervals."));
    assert!(html.contains("<caption>Values of one seed</caption>"));
    let page = html.split("<h2 id=\"scenario\"").next().unwrap().to_lowercase();
    for word in ["confidence", "±", "means over", "<path class=\"mc-whisker"] {
        assert!(!page.contains(word) && !printed.contains(word), "{word}");
    }
    let (printed, html, _directory) = grid(&rates(), &[]);
    assert!(printed.starts_with("rates: 12 runs, means over seeds ± 95 % confidence intervals\n"));
    assert!(html.contains("6 combinations of settings, 2 seeds each."));
}

#[test]
fn a_grid_names_percentiles_of_few_completions() {
    // About 60 messages in the 6 s that are measured.
    let (printed, html, directory) = grid(&rates(), &["--set", "link.bottleneck.queue=codel"]);
    let line = printed.lines().find(|line| line.contains("flow.edits.completion_p99_ms")).unwrap();
    assert_eq!(line.matches(" max").count(), 3, "{line}");
    let median = printed.lines().find(|line| line.contains("flow.edits.completion_p50_ms")).unwrap();
    assert!(!median.contains("max"), "{median}");
    assert!(printed.contains("max: the longest; there are too few completions for this percentile\n"));
    let csv = table(&fs::read(directory.path().join("out/grid.csv")).unwrap());
    let samples = csv.iter().find(|row| row["metric"] == "flow.edits.completion_samples").unwrap();
    let count: f64 = samples["mean"].parse().unwrap();
    assert!((50.0..70.0).contains(&count), "{count}");
    assert!(html.contains(&format!("<small>longest of {}</small>", count.floor())), "{count}");
    let caption = drawn(&html, "completion 99 % of edits by rate").split("<figcaption>").nth(1).unwrap();
    assert!(
        caption.starts_with("With the fewest completions, completion 99 % is the longest of "),
        "{caption}"
    );
    assert!(!drawn(&html, "goodput by rate").contains("<figcaption>"));
    // The histogram's percentile is named, too, and groups have a table.
    assert!(html.contains("Values of delay 95 % are the middles of histogram bins, within 1/32"));
    assert!(html.contains("<h2 id=\"groups\"") && html.contains(">bulk, together</td>"));
}

#[test]
fn the_table_of_one_run_marks_percentiles_of_few() {
    let set =
        ["--set", "link.bottleneck.queue=codel", "--set", "link.bottleneck.rate=10 Mbit/s", "--seed", "1"];
    let run = |text: &str| {
        let (_directory, file) = scenario(text);
        marcato([&*file].into_iter().chain(set)).1
    };
    let few = run(&rates());
    let line = few.lines().find(|line| line.contains("source-1")).unwrap();
    assert!(line.ends_with(" max") && line.matches('*').count() == 1, "{few}");
    assert!(few.contains("  *: one of the five longest; a few completions decide it\n"), "{few}");
    let many = run(&rates().replace("period = \"100 ms\", jitter = \"30 ms\"", "period = \"10 ms\""));
    let line = many.lines().find(|line| line.contains("source-1")).unwrap();
    assert!(!line.contains("max") && !line.contains('*') && !many.contains("longest"), "{many}");
}
