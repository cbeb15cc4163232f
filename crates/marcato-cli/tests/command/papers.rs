//! Tests of `marcato papers`, with an experiment made for the purpose.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Write};

use marcato_cli::{Status, run};
use marcato_papers::{Experiment, Progress, Registry, RunError, RunOptions, over_seeds};
use marcato_report::{Document, Report, Row, Section, Unit};

/// Experiment that reports its seed, and claims that it is at most 10.
struct Demo(&'static str);

impl Experiment for Demo {
    fn name(&self) -> &'static str {
        self.0
    }

    fn about(&self) -> &'static str {
        "Reports the seed"
    }

    fn run(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
        progress.begin("seeds", Some(options.seeds().len() as u64));
        let id = format!("{}.seed", self.0);
        let rows = over_seeds(options, progress, |seed, progress| {
            if seed == 13 {
                return Err(RunError::failed(self.0, "13 is unlucky"));
            }
            progress.advance(1);
            let value = f64::from(u32::try_from(seed).unwrap());
            Ok(vec![Row::new(&id, "the seed", Unit::Count).measured(value).at_most(10.0)])
        })?;
        let document = Document::new(self.0, options).with_rows(rows);
        Ok(Report::new("Demo", self.about(), document).section(Section::new("Seeds").rows([id])))
    }
}

fn one() -> Registry {
    Registry::new(vec![Box::new(Demo("cats"))])
}

/// Runs the command, and returns its status, standard output and standard error.
fn marcato(registry: &Registry, line: &str) -> (Status, String, String) {
    let (mut out, mut err) = (vec![], vec![]);
    let arguments = ["marcato"].into_iter().chain(line.split_whitespace()).map(OsString::from);
    let status = run(registry, arguments, &mut out, &mut err);
    (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn every_row_inside_its_band_is_status_0() {
    let (status, out, err) = marcato(&one(), "papers cats");
    assert_eq!((status, u8::from(status)), (Status::Ok, 0));
    assert!(out.ends_with("\n1 ok, 0 outside, 0 unclaimed\n"), "{out}");
    assert_eq!(err, "");
}

#[test]
fn a_row_outside_its_band_is_status_1() {
    let (status, out, _) = marcato(&one(), "papers cats --seed 11");
    assert_eq!((status, u8::from(status)), (Status::Outside, 1));
    assert!(out.contains("OUTSIDE"));
}

#[test]
fn rows_that_cannot_be_written_are_printed() {
    let directory = tempfile::tempdir().unwrap();
    // A directory in the place of the report: that shows only when it is written.
    fs::create_dir(directory.path().join("report.html")).unwrap();
    let line = format!("papers cats --out {}", directory.path().display());
    let (status, out, err) = marcato(&one(), &line);
    assert_eq!(status, Status::Error);
    assert!(err.contains("report.html"), "{err}");
    assert!(out.ends_with("\n1 ok, 0 outside, 0 unclaimed\n"), "{out}");
}

#[test]
fn json_is_one_document_with_the_documented_keys() {
    let (status, out, err) = marcato(&one(), "papers cats --format json --seed 3 --repeat 2 --quick");
    assert_eq!(status, Status::Ok);
    assert_eq!(err, "");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let keys = ["paper", "world", "version", "commit", "seeds", "quick", "config", "rows"];
    assert_eq!(json.as_object().unwrap().len(), keys.len());
    assert!(keys.iter().all(|key| json.get(key).is_some()));
    assert_eq!(
        (&json["paper"], &json["world"], &json["quick"]),
        (&"cats".into(), &"virtual".into(), &true.into())
    );
    assert_eq!(json["seeds"], serde_json::json!([3, 4]));
    assert_eq!((&json["rows"][0]["measured"], &json["rows"][0]["n"]), (&3.5.into(), &2.into()));
}

#[test]
fn csv_is_a_header_and_a_line_per_row() {
    let (status, out, _) = marcato(&one(), "papers cats --format csv");
    assert_eq!(status, Status::Ok);
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].starts_with("id,what,unit,paper,measured,")
            && lines[1].starts_with("cats.seed,the seed,count,,1.0,")
    );
}

#[test]
fn all_is_one_document_of_every_paper() {
    let registry = Registry::new(vec![Box::new(Demo("cats")), Box::new(Demo("other"))]);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let line = format!("papers all --format json --out {}", out.display());
    let (status, printed, _) = marcato(&registry, &line);
    assert_eq!(status, Status::Ok);
    let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&json["paper"], json["rows"].as_array().unwrap().len()), (&"all".into(), 2));
    assert_eq!(fs::read_to_string(out.join("rows.json")).unwrap(), printed);
    assert!(out.join("cats/report.html").exists() && out.join("other/rows.csv").exists());
}

#[test]
fn the_files_hold_the_same_rows_as_standard_output() {
    let directory = tempfile::tempdir().unwrap();
    let line = format!("papers cats --format csv --out {}", directory.path().display());
    let (_, printed, _) = marcato(&one(), &line);
    assert_eq!(fs::read_to_string(directory.path().join("rows.csv")).unwrap(), printed);
    assert!(directory.path().join("report.html").exists());
}

#[test]
fn a_reader_of_text_is_told_where_the_report_is() {
    let registry = Registry::new(vec![Box::new(Demo("cats")), Box::new(Demo("other"))]);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().display().to_string();
    let (_, _, err) = marcato(&registry, &format!("papers cats --jobs 3 --out {out}"));
    assert_eq!(err, format!("report: {out}/report.html\n"));
    let (_, _, err) = marcato(&registry, &format!("papers all --out {out}"));
    assert_eq!(err, format!("report: {out}/cats/report.html\nreport: {out}/other/report.html\n"));
    let (_, _, err) = marcato(&registry, &format!("papers cats --format csv --out {out}"));
    assert_eq!(err, "");
    let (_, _, err) = marcato(&registry, &format!("papers cats --out {out} --seed 13"));
    assert_eq!(err, "error: cats could not be run: 13 is unlucky\n");
}

#[test]
fn papers_not_built_exit_2_and_the_message_names_those_built() {
    for (line, said) in [
        ("papers plt", "planned but not built yet; choose from: cats, all"),
        ("papers dogs", "there is no experiment `dogs`; choose from: cats, all"),
        ("papers cats --world lab", "cats does not run in the world `lab` yet: use --world virtual"),
    ] {
        let (status, out, err) = marcato(&one(), line);
        assert_eq!((status, u8::from(status)), (Status::Error, 2), "{line}");
        assert_eq!(out, "", "{line}");
        assert!(err.starts_with("error: ") && err.contains(said), "{line}: {err}");
    }
    let (status, _, err) = marcato(&Registry::default(), "papers cats");
    assert_eq!(status, Status::Error);
    assert!(err.contains("no experiment is built into this program yet"), "{err}");
}

#[test]
fn a_wrong_command_line_is_status_2_and_says_why() {
    for (line, said) in [
        ("", "Usage"),
        ("papers", "<PAPER>"),
        ("papers cats --fast", "--fast"),
        ("papers cats --format yaml", "text, json, csv"),
        ("papers cats --world moon", "virtual, lab"),
        ("papers cats --seed minus", "minus"),
        ("papers cats --repeat 0", "1..=1000"),
        ("papers cats --seed 9223372036854775808", "a seed is 0 to 9223372036854775807"),
        ("papers cats --repeat 2 --seed 9223372036854775807", "choose a smaller seed"),
        ("papers cats --jobs 0", "give 1 to 4096"),
    ] {
        let (status, out, err) = marcato(&one(), line);
        assert_eq!((status, out.as_str()), (Status::Error, ""), "{line}");
        assert!(err.contains(said), "{line}: {err}");
    }
}

#[test]
fn an_experiment_that_fails_is_status_2() {
    let (status, out, err) = marcato(&one(), "papers cats --seed 12 --repeat 2");
    assert_eq!((status, out.as_str()), (Status::Error, ""));
    assert_eq!(err, "error: cats could not be run: 13 is unlucky\n");
}

#[test]
fn a_directory_that_cannot_be_written_is_status_2() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let (status, _, err) = marcato(&one(), &format!("papers cats --out {}/below", file.display()));
    assert_eq!(status, Status::Error);
    assert!(err.starts_with("error: cannot write `"), "{err}");
}

#[test]
fn help_lists_only_what_is_built() {
    let (status, out, _) = marcato(&one(), "papers --help");
    assert_eq!(status, Status::Ok);
    assert!(out.contains("cats") && out.contains("all") && !out.contains("plt"), "{out}");
    let (_, none, _) = marcato(&Registry::default(), "papers --help");
    assert!(none.contains("no experiment is built"), "{none}");
}

/// Writer that refuses every byte with one kind of error.
struct Refuse(ErrorKind);

impl Write for Refuse {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(self.0.into())
    }
}

#[test]
fn a_reader_that_has_gone_is_no_error_but_a_full_disk_is() {
    let papers = |kind, seed: &str| {
        let arguments = ["marcato", "papers", "cats", "--seed", seed].map(OsString::from);
        run(&one(), arguments, &mut Refuse(kind), &mut vec![])
    };
    assert_eq!(papers(ErrorKind::BrokenPipe, "1"), Status::Ok);
    assert_eq!(papers(ErrorKind::BrokenPipe, "11"), Status::Outside);
    assert_eq!(papers(ErrorKind::StorageFull, "1"), Status::Error);
}

/// Directory of the repository's experiments.
fn experiments(name: &str) -> String {
    format!("{}/../../experiments/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_directory_of_scenarios_is_an_experiment_without_rust() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let line = format!("papers {} --quick --format json --out {}", experiments("variations"), out.display());
    let (status, text, err) = marcato(&Registry::default(), &line);
    assert_eq!(status, Status::Ok, "{err}");
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = document["rows"].as_array().unwrap();
    let measured = |id: &str| rows.iter().find(|row| row["id"] == id).unwrap()["measured"].as_f64().unwrap();
    // CATS, Fig. 2 at another rate: P0 overtakes the page. PLT beside LEDBAT++: a fraction of its time.
    assert!(measured("greedy.128.p0") < measured("fifo.128.p0") / 2.0);
    assert!(measured("plt.gain") < 1.0);
    for file in ["report.html", "rows.csv", "completion.svg", "completion-32.svg"] {
        assert!(out.join(file).exists(), "{file}");
    }
}

#[test]
fn the_claims_of_a_directory_set_the_exit_status() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("one.toml");
    let claim = "[[claim]]\nid = \"one\"\nmetric = \"link.bottleneck.utilisation_percent\"\n";
    let text = |band: &str| {
        crate::over_one_link(
            "name = \"one\"\nduration = \"1 s\"",
            "rate = \"8 Mbit/s\"\ndelay = \"1 ms\"",
            &[["bulk", "tcp", ""]],
        ) + claim
            + band
    };
    let line = format!("papers {}", directory.path().display());
    for (band, status) in [("at-most = 100\n", Status::Ok), ("at-least = 101\n", Status::Outside)] {
        fs::write(&file, text(band)).unwrap();
        assert_eq!(marcato(&one(), &line).0, status, "{band}");
    }
    fs::write(directory.path().join("two.toml"), text("")).unwrap();
    let (status, _, err) = marcato(&one(), &line);
    assert_eq!(status, Status::Error);
    assert!(err.contains("has a claim `one`, as"), "{err}");
    fs::write(directory.path().join("two.toml"), text("at-mots = 1")).unwrap();
    let (_, _, err) = marcato(&one(), &line);
    assert!(err.contains("two.toml:18:1: `at-mots` is not a key of a claim"), "{err}");
    fs::remove_file(&file).unwrap();
    fs::remove_file(directory.path().join("two.toml")).unwrap();
    let (status, _, err) = marcato(&one(), &line);
    assert_eq!(status, Status::Error);
    assert!(err.contains("has no scenario with claims"), "{err}");
}

#[test]
fn the_files_of_a_paper_can_be_copied_and_run() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let (status, _, err) =
        marcato(&marcato_papers::registry(), &format!("papers cats --export {}", copy.display()));
    assert_eq!(status, Status::Ok, "{err}");
    let read = |directory: &str, name: &str| fs::read_to_string(format!("{directory}/{name}")).unwrap();
    for name in ["table1.toml", "table1.md", "table2.toml", "variants.toml", "variants.md"] {
        assert_eq!(read(copy.to_str().unwrap(), name), read(&experiments("cats"), name), "{name}");
    }
    let line = format!("papers {} --format csv", copy.display());
    let (status, csv, err) = marcato(&one(), &line);
    assert_eq!(status, Status::Ok, "{err}");
    // The rows of the paper's experiment have the same values.
    let (_, whole, _) = marcato(&marcato_papers::registry(), "papers cats --quick --format csv");
    let start = |line: &str| line.split(",virtual,").next().map(ToOwned::to_owned);
    let whole: Vec<_> = whole.lines().filter_map(start).collect();
    assert_eq!(csv.lines().count(), 1 + 28 + 15 + 50);
    for line in csv.lines().skip(1) {
        assert!(whole.contains(&start(line).unwrap()), "{line}");
    }
}

#[test]
fn a_row_of_a_file_is_explained() {
    let registry = marcato_papers::registry();
    let (status, text, _) = marcato(&registry, "papers cats --explain cats.table2.fcp.gain");
    assert_eq!(status, Status::Ok);
    for line in [
        "file      experiments/cats/table2.toml",
        "at        flow.page = { feeder = \"fifo\" }",
        "minus     flow.page = { feeder = \"greedy\", preset = \"authors\" }",
        "command   marcato sim experiments/cats/table2.toml --claim cats.table2.fcp.gain",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    let (status, _, err) = marcato(&registry, "papers cats --explain cats.table2.fcp.gian");
    assert_eq!(status, Status::Error);
    assert!(err.contains("did you mean `cats.table2.fcp.gain`?"), "{err}");
    let (_, _, err) = marcato(&registry, "papers plt --explain plt.fig9.x");
    assert!(err.contains("no row of `plt` is measured by a scenario file"), "{err}");
    // The command judges that row alone.
    let file = format!("{}/table2.toml", experiments("cats"));
    let (status, text, err) =
        marcato(&one(), &format!("sim {file} --claim cats.table2.fcp.gain --format csv"));
    assert_eq!(status, Status::Ok, "{err}");
    assert!(text.lines().count() == 2 && text.contains(",78.74927375863957,"), "{text}");
}
