//! Tests of documents, help and manual pages against the command line itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::{Arg, Command};

/// Returns the whole command line, including what clap generates.
pub(super) fn marcato() -> Command {
    let mut command = marcato_cli::command(&marcato_papers::registry());
    command.build();
    command
}

pub(super) fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help")
}

/// Collects the commands without subcommands, by their full names: `marcato perf server`.
fn leaves(command: &Command, before: &str, found: &mut BTreeMap<String, Command>) {
    let name = format!("{before}{}", command.get_name());
    if visible(command).next().is_none() {
        found.insert(name, command.clone());
        return;
    }
    visible(command).for_each(|one| leaves(one, &format!("{name} "), found));
}

fn all() -> BTreeMap<String, Command> {
    let mut found = BTreeMap::new();
    leaves(&marcato(), "", &mut found);
    found
}

fn options(command: &Command) -> BTreeMap<String, Arg> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown
        .filter_map(|arg| Some((arg.get_long()?.to_owned(), arg.clone())))
        .filter(|(name, _)| name != "help" && name != "version")
        .collect()
}

/// Returns the options that a text names, each with the word that follows it.
fn named(text: &str) -> BTreeMap<String, String> {
    let words: Vec<&str> = text.split([' ', '[', ']', '…']).filter(|word| !word.is_empty()).collect();
    let mut named = BTreeMap::new();
    for (index, word) in words.iter().enumerate() {
        if let Some(name) = word.strip_prefix("--").filter(|name| !name.is_empty()) {
            let value = words.get(index + 1).filter(|value| !value.starts_with('-'));
            named.insert(name.to_owned(), value.map_or(String::new(), |value| (*value).to_owned()));
        }
    }
    named
}

/// Root of the repository, without links and dots.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Directories whose pages people read.
const DIRECTORIES: [&str; 6] = ["", "docs", "docs/start", "python", "contrib/crq", "contrib/serve"];

/// Returns every page that people read.
fn pages() -> Vec<(PathBuf, String)> {
    let entries = DIRECTORIES.iter().flat_map(|directory| std::fs::read_dir(root().join(directory)).unwrap());
    let files = entries.map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// Returns the pages that tell of commands: the README, CONTRIBUTING.md and those of `docs/`.
pub(super) fn documents() -> Vec<(PathBuf, String)> {
    let of_root = ["README.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    let docs = ["docs", "docs/start"].map(|name| root().join(name));
    let is_told = |path: &Path| docs.iter().any(|docs| path.parent() == Some(docs));
    pages().into_iter().filter(|(path, _)| is_told(path) || of_root.contains(path)).collect()
}

/// Returns the command lines of a document, with continued lines joined.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let bare = line.trim_start().trim_start_matches("$ ").trim_start_matches("./target/release/");
        if bare.starts_with("marcato ") {
            lines.push(bare.to_owned());
            goes_on = true;
        } else if goes_on && line.starts_with("    ") {
            if let Some(last) = lines.last_mut() {
                *last = format!("{last} {bare}");
            }
        } else {
            goes_on = false;
        }
    }
    lines
}

/// Returns the arguments of a command line, of which those in quotes may have spaces.
fn arguments(line: &str) -> Vec<String> {
    let (mut arguments, mut quote) = (vec![String::new()], None);
    for letter in line.chars() {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (letter, Some(end)) if letter == end => quote = None,
            (' ', None) => arguments.push(String::new()),
            (letter, _) => arguments.last_mut().unwrap().push(letter),
        }
    }
    arguments
}

/// Returns the command that a line calls, and the rest of the line.
fn called<'a>(commands: &'a BTreeMap<String, Command>, line: &str) -> Option<(&'a str, &'a Command, String)> {
    let of = |name: &&String| line == **name || line.starts_with(&format!("{name} "));
    let name = commands.keys().find(of)?;
    let rest = line[name.len()..].split(" #").next().unwrap_or_default().to_owned();
    Some((name, &commands[name], rest))
}

#[test]
fn every_synopsis_has_every_option_and_no_other() {
    let commands = all();
    let mut listed = BTreeSet::new();
    for (path, text) in documents() {
        for line in lines(&text)
            .into_iter()
            .filter(|line| ["[--", "<", "COMMAND…"].iter().any(|it| line.contains(it)))
        {
            let (name, command, rest) = called(&commands, &line).unwrap_or_else(|| panic!("{line}"));
            let (said, there) = (named(&rest), options(command));
            let said_names: Vec<&String> = said.keys().collect();
            assert_eq!(said_names, there.keys().collect::<Vec<_>>(), "{}: {name}", path.display());
            for (option, value) in said.iter().filter(|(_, value)| value.contains('|')) {
                let possible = there[option].get_possible_values();
                let possible: Vec<&str> =
                    possible.iter().map(clap::builder::PossibleValue::get_name).collect();
                assert_eq!(value.split('|').collect::<Vec<_>>(), possible, "{name} --{option}");
            }
            if path.ends_with("docs/cli.md") {
                listed.insert(name.to_owned());
            }
        }
    }
    assert_eq!(listed, commands.into_keys().collect());
}

#[test]
fn every_option_that_a_document_names_exists() {
    let commands = all();
    let everywhere: BTreeSet<String> =
        commands.values().flat_map(|command| options(command).into_keys()).collect();
    let always = ["help", "version"];
    // Options of cargo and of criterion.
    let others = ["save-baseline", "baseline"];
    let mut checked = 0;
    for (path, text) in documents() {
        // Code in running text is between backticks, so every second part is code.
        let prose: String = text.split("```").step_by(2).collect();
        let words = |span: &str| span.split_whitespace().collect::<Vec<_>>().join(" ");
        let spans: Vec<String> = prose.split('`').skip(1).step_by(2).map(words).collect();
        for line in lines(&text).into_iter().chain(spans) {
            let known: BTreeSet<String> = match called(&commands, &line) {
                Some((_, command, _)) => options(command).into_keys().collect(),
                None if line.starts_with("--") || line.starts_with("marcato ") => everywhere.clone(),
                None => continue,
            };
            for option in named(&line).into_keys() {
                let fits =
                    known.contains(&option) || always.contains(&&*option) || others.contains(&&*option);
                assert!(fits, "{}: {line}: there is no --{option}", path.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 80, "{checked}");
}

/// Returns the workspace crates that each crate depends on outside of tests, as names without
/// `marcato-`.
fn manifests() -> BTreeMap<String, BTreeSet<String>> {
    let crates = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    let manifests = crates.map(|entry| entry.unwrap().path()).filter(|path| path.join("Cargo.toml").exists());
    let ours = |line: &str| Some(line.strip_prefix("marcato-")?.split(['.', ' ', '=']).next()?.to_owned());
    manifests
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().replace("marcato-", "");
            let text = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
            let section = text.split("\n[").find_map(|section| section.strip_prefix("dependencies]\n"));
            (name, section.unwrap_or_default().lines().filter_map(ours).collect())
        })
        .collect()
}

/// Returns every crate that a crate depends on, directly or indirectly.
fn reachable(from: &str, manifests: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let direct = &manifests[from];
    direct.iter().flat_map(|one| reachable(one, manifests)).chain(direct.iter().cloned()).collect()
}

#[test]
fn the_crate_diagram_has_the_edges_of_the_manifests() {
    let manifests = manifests();
    let mut edges = BTreeSet::new();
    for (from, direct) in &manifests {
        let indirect: BTreeSet<String> = direct.iter().flat_map(|one| reachable(one, &manifests)).collect();
        edges.extend(direct.difference(&indirect).map(|to| format!("    {from} --> {to}")));
    }
    let text = include_str!("../../../../ARCHITECTURE.md");
    let (_, diagram) = text.split_once("```mermaid\ngraph TD\n").unwrap();
    let (diagram, _) = diagram.split_once("\n```").unwrap();
    let expected: Vec<&str> = edges.iter().map(String::as_str).collect();
    assert_eq!(diagram, expected.join("\n"), "the manifests say:\n{}\n", expected.join("\n"));
    assert!(manifests.keys().all(|name| text.contains(&format!("| `marcato-{name}` |"))));
}

/// Returns the anchors of a page's headings, as GitHub generates them.
fn anchors(text: &str) -> BTreeSet<String> {
    let kept = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#'));
    headings
        .map(|heading| heading.trim().to_lowercase().chars().filter(|c| kept(*c)).collect::<String>())
        .map(|heading| heading.replace(' ', "-"))
        .collect()
}

/// Returns what is wrong with a link of a page; `None` if it leads to a file of the repository, and to a heading of it
/// if it names one.
fn fault_of_link(page: &Path, link: &str) -> Option<String> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { page.to_owned() } else { page.parent()?.join(file) };
    let Ok(target) = target.canonicalize() else { return Some(format!("there is no {file}")) };
    if !target.starts_with(root()) {
        return Some(format!("{file} is outside the repository"));
    }
    let has = |text: String| anchors(&text).contains(anchor);
    let leads = anchor.is_empty() || std::fs::read_to_string(target).is_ok_and(has);
    (!leads).then(|| format!("{link} has no such heading"))
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut checked = 0;
    for (path, text) in pages() {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.starts_with("http")) {
            assert_eq!(fault_of_link(&path, link), None, "{}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 80, "{checked}");
}

#[test]
fn links_that_lead_nowhere_or_outside_are_found() {
    let page = root().join("docs/serve.md");
    for (link, fault) in [
        ("../README.md", None),
        ("wire.md", None),
        ("none.md", Some("there is no none.md")),
        ("../../", Some("../../ is outside the repository")),
        ("#no-such-heading", Some("#no-such-heading has no such heading")),
        ("wire.md#no-such-heading", Some("wire.md#no-such-heading has no such heading")),
    ] {
        assert_eq!(fault_of_link(&page, link).as_deref(), fault, "{link}");
    }
}

/// Returns the files and directories of the repository that a text names: words of code that begin with a directory
/// of its root, and pages in Markdown.
fn mentioned(text: &str) -> Vec<String> {
    let tops: Vec<String> = std::fs::read_dir(root())
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.path().is_dir())
        .map(|entry| format!("{}/", entry.file_name().into_string().unwrap()))
        // What builds, runs and Git make is not there in a fresh clone.
        .filter(|name| !["target/", "out/", ".git/"].contains(&name.as_str()))
        .collect();
    let is_page = |word: &&str| word.ends_with(".md") && !word.contains("://");
    // `.ci/long` writes the last one.
    let is_below =
        |word: &&str| tops.iter().any(|top| word.starts_with(top.as_str())) && *word != ".ci/passed";
    // Code in running text is between backticks, so every second part is code.
    let prose: String = text.split("```").step_by(2).collect();
    let spans = prose.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
    let spans = spans.map(|word| word.trim_end_matches(['.', ',', ':', ';'])).filter(is_below);
    let words = prose.split(|c: char| c.is_whitespace() || "`()[],;".contains(c));
    let words = words.filter_map(|word| word.trim_end_matches(['.', ':']).split('#').next()).filter(is_page);
    // `<paper>` and `known-rows-…` stand for several: their directory is there.
    let placed = |word: &str| match word.find(['<', '*', '…', '{']) {
        Some(at) => word[..at].rfind('/').map_or(String::new(), |slash| word[..=slash].to_owned()),
        None => word.to_owned(),
    };
    spans.chain(words).map(placed).filter(|word| !word.is_empty()).collect()
}

#[test]
fn every_file_that_a_document_mentions_exists() {
    let mut checked = 0;
    for (path, text) in pages() {
        for word in mentioned(&text) {
            let is_there =
                |base: &Path| base.join(&word).canonicalize().is_ok_and(|target| target.starts_with(root()));
            assert!(is_there(&root()) || is_there(path.parent().unwrap()), "{}: {word}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 300, "{checked}");
    let text = "see `tools/none/run --all`, [the design](https://a.test/b.md), ../shared/design.md#part, and `docs/<page>.md`.";
    assert_eq!(mentioned(text), ["tools/none/run", "docs/", "../shared/design.md", "docs/"]);
}

#[test]
fn the_index_of_the_documentation_lists_every_page() {
    let index = include_str!("../../../../docs/README.md");
    for (path, _) in pages().iter().filter(|(path, _)| path.parent() == Some(&root().join("docs"))) {
        let page = path.file_name().unwrap().to_str().unwrap();
        assert!(page == "README.md" || index.contains(&format!("]({page})")), "docs/README.md omits {page}");
    }
}

#[test]
fn overviews_are_short_and_name_every_crate() {
    assert!(include_str!("../../../../ARCHITECTURE.md").lines().count() <= 150);
    let text = include_str!("../../../../README.md");
    assert!(text.lines().count() <= 150);
    for name in manifests().keys() {
        assert!(text.contains(&format!("| `marcato-{name}` |")), "{name}");
    }
}

#[test]
fn every_command_has_examples_that_it_accepts() {
    let registry = marcato_papers::registry();
    let mut open = vec![marcato()];
    while let Some(command) = open.pop() {
        open.extend(visible(&command).cloned());
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples: Vec<String> = lines(&help.replace("cat examples/cats.toml | ", ""));
        assert!(examples.len() >= 2 && help.starts_with("Examples:\n"), "{}: {help}", command.get_name());
        for example in examples {
            let line = example.split(" > ").next().unwrap();
            let parsed = marcato_cli::command(&registry).try_get_matches_from(arguments(line));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn crq_set_promises_no_default_for_a_setting() {
    let commands = all();
    let help = |arg: &Arg| arg.get_help().map(ToString::to_string).unwrap_or_default();
    let attached = options(&commands["marcato crq attach"]);
    let settings: Vec<&String> =
        attached.iter().filter(|(_, arg)| help(arg).contains("[default: ")).map(|(name, _)| name).collect();
    assert!(settings.len() >= 7, "{settings:?}");
    let changed = options(&commands["marcato crq set"]);
    for name in settings {
        assert!(help(&changed[name]).ends_with("[default: unchanged]"), "--{name}: {}", help(&changed[name]));
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let (mut out, mut err) = (vec![], vec![]);
    let line = ["marcato", "manual", directory.path().to_str().unwrap()].map(Into::into);
    let status = marcato_cli::run(&marcato_papers::registry(), line, &mut out, &mut err);
    assert_eq!((status, String::from_utf8(err).unwrap()), (marcato_cli::Status::Ok, String::new()));
    for (name, command) in all() {
        let page = directory.path().join(format!("{}.1", name.replace(' ', "-")));
        let text = std::fs::read_to_string(page).unwrap().replace("\\-", "-");
        for option in options(&command).into_keys() {
            assert!(text.contains(&format!("--{option}")), "{name} --{option}");
        }
        assert!(text.contains("Examples:"), "{name}");
    }
}

#[test]
fn every_shell_is_told_of_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (mut out, mut err) = (vec![], vec![]);
        let line = ["marcato", "completions", shell].map(Into::into);
        let status = marcato_cli::run(&marcato_papers::registry(), line, &mut out, &mut err);
        assert_eq!((status, err.is_empty()), (marcato_cli::Status::Ok, true));
        let script = String::from_utf8(out).unwrap();
        for command in visible(&marcato()) {
            assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
        }
        assert!(script.contains("idle-timeout"), "{shell}");
    }
}

/// Adds the Rust files below a directory, without what was built.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn documents_name_every_file_that_has_unsafe_code() {
    let root = root();
    let mut files = Vec::new();
    ["crates", "python", "fuzz"].iter().for_each(|part| sources(&root.join(part), &mut files));
    // The word followed by code; a lint's name or a text is none.
    let begins = ["{", "fn ", "impl ", "trait ", "extern ", "(no_mangle", "(export_name", "(link_section"];
    let has = |path: &&PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let mut after = code.flat_map(|line| line.split(concat!("uns", "afe")).skip(1)).map(str::trim_start);
        after.any(|rest| begins.iter().any(|begin| rest.starts_with(begin)))
    };
    let named = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    let found: BTreeSet<String> = files.iter().filter(has).map(named).collect();
    assert!(found.contains("crates/marcato-net/src/sys.rs"), "{found:?}");
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        let rules = text.split("\n- ").filter(|rule| rule.contains(concat!("`uns", "afe`")));
        let words = rules.flat_map(|rule| rule.split('`').skip(1).step_by(2));
        let said: BTreeSet<String> = words
            .filter(|word| word.starts_with("crates/") && word.ends_with(".rs"))
            .map(str::to_owned)
            .collect();
        assert_eq!(said, found, "{document}");
    }
}

/// Text of a file, or of all files of a directory.
fn read_all(path: &Path) -> String {
    if path.is_file() {
        return std::fs::read_to_string(path).unwrap();
    }
    let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.is_file()).map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

#[test]
fn documents_name_every_congestion_control_and_its_places() {
    let root = root();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    for (document, row) in [("README.md", "| Simulated TCP |"), ("ARCHITECTURE.md", "| `marcato-sim` |")] {
        let text = read(document);
        let line = text.lines().find(|line| line.starts_with(row)).unwrap();
        for name in ["Reno", "CUBIC", "DCTCP", "BBRv1", "LEDBAT++"] {
            assert!(line.contains(name), "{document} omits {name}");
        }
    }
    let architecture = read("ARCHITECTURE.md");
    let (_, table) = architecture.split_once("**In this repository.**").unwrap();
    let rows = table.split("| queue |").next().unwrap();
    // Each place that names all of them has a line for a new one.
    for place in ["crates/marcato-scenario/src/tcp.rs", "crates/marcato-sim/src/tcp/congestion/"] {
        assert!(rows.contains(place) && read_all(&root.join(place)).contains("Ledbat"), "{place}: {rows}");
    }
    let lab = read_all(&root.join("crates/marcato-trial/src"));
    assert!(!lab.contains("Congestion::Ledbat"), "a lab that matches every control has a place of its own");
}

#[test]
fn verdicts_on_quic_name_the_size_of_datagrams() {
    let mut verdicts = 0;
    for (path, text) in documents() {
        let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains("QUIC"));
        for cell in rows.flat_map(|row| row.split('|').map(str::to_owned).collect::<Vec<_>>()) {
            let is_held = cell.contains(": held");
            verdicts += usize::from(is_held);
            assert!(!is_held || cell.contains("at 4096-byte datagrams"), "{}: {cell}", path.display());
        }
    }
    assert!(verdicts > 0);
}

#[test]
fn the_readme_gives_high_percentiles_of_500_messages() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let with: Vec<&str> = text.split("\n\n").filter(|part| part.contains("99 %")).collect();
    assert!(!with.is_empty());
    for part in with {
        let words: Vec<&str> = part.split_whitespace().collect();
        // "of 611 late messages": a count, at most one word, and the noun.
        let counts = words.windows(4).filter(|four| four[0] == "of" && four[2..].contains(&"messages"));
        let most = counts.filter_map(|four| four[1].parse::<u32>().ok()).max();
        assert!(most.is_some_and(|count| count >= 500), "{part}");
    }
}
