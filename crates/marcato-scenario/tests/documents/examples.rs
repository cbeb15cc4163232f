//! Tests that every example can be read, explained, written and read back.

use std::path::{Path, PathBuf};

use marcato_scenario::{Overrides, Scenario, explain};

/// Names of the examples at the root of the repository.
const EXAMPLES: [&str; 12] = [
    "cats",
    "cellular",
    "codel-cubic",
    "fifo-or-conductor",
    "late-urgent",
    "multipath",
    "parking-lot",
    "reno-loss",
    "satellite",
    "short-flows",
    "two-layers",
    "video-and-flood",
];

fn directory(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

fn example(name: &str) -> Scenario {
    let path = directory("../../examples").join(format!("{name}.toml"));
    Scenario::load(&path, &Overrides::default()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_example_is_tested() {
    let files = std::fs::read_dir(directory("../../examples")).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, EXAMPLES);
}

#[test]
fn every_example_is_named_after_its_file_with_unique_run_ids() {
    for name in EXAMPLES {
        let scenario = example(name);
        assert_eq!(scenario.experiment().name, name);
        let mut ids: Vec<String> = scenario.runs().map(|run| run.id).collect();
        assert_eq!(ids.len(), scenario.count());
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), scenario.count(), "{name}");
    }
}

/// Expected explanations are in `tests/explained`. `MARCATO_BLESS=1 cargo test` rewrites them;
/// review and commit the result.
#[test]
fn every_example_is_explained_as_before() {
    for name in EXAMPLES {
        let scenario = example(name);
        let file = scenario.file().to_owned();
        // The repository's directory differs between machines, so it is removed.
        let explained = explain(&scenario).replace(&file, &format!("examples/{name}.toml"));
        let path = directory("tests/explained").join(format!("{name}.txt"));
        if std::env::var_os("MARCATO_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &explained).unwrap();
        }
        let before = std::fs::read_to_string(&path).unwrap();
        assert!(explained == before, "{}:\n{explained}", path.display());
    }
}

#[test]
fn every_run_of_every_example_is_written_and_read_back_the_same() {
    for name in EXAMPLES {
        for run in example(name).runs() {
            let text = run.experiment.to_toml();
            let again =
                Scenario::parse("again.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(*again.experiment(), run.experiment, "{text}");
        }
    }
}

#[test]
fn the_command_of_a_run_repeats_exactly_that_run() {
    for name in EXAMPLES {
        let scenario = example(name);
        for run in scenario.runs() {
            let set = run.settings.iter().map(|one| format!("{}={}", one.key, one.value)).collect();
            let overrides = Overrides { set, seed: Some(run.seed.get()), ..Overrides::default() };
            let path = directory("../../examples").join(format!("{name}.toml"));
            let again = Scenario::load(&path, &overrides).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(again.count(), 1);
            let repeated = again.run(0).unwrap();
            assert_eq!(repeated.experiment, run.experiment);
            assert_eq!((repeated.id, again.one_line(&run)), (run.id.clone(), scenario.one_line(&run)));
        }
    }
}
