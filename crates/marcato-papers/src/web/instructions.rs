//! Instructions of a server by their purpose, from a profile of callgrind.

use std::collections::BTreeMap;

/// Modules of the web plane that serve the order: signals and guesses.
const SIGNALS: [&str; 7] = ["decision", "frames", "guess", "priority", "signals", "tree", "update"];

/// Instructions of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Instructions {
    /// All.
    pub(super) total: u64,
    /// Those of the order of responses and of the signals that it follows, with all that they call.
    pub(super) order: u64,
}

/// Names of a profile, which are written once and then given by number.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    /// Reads `(number) name`, `(number)` or `name`.
    fn read(&mut self, text: &str) -> String {
        let Some((number, name)) = text.strip_prefix('(').and_then(|text| text.split_once(')')) else {
            return text.to_owned();
        };
        let name = name.trim();
        if !name.is_empty() {
            self.0.insert(number.to_owned(), name.to_owned());
        }
        self.0.get(number).cloned().unwrap_or_default()
    }
}

/// True for code of the order: by its file, also where it is inlined, or by the name of its function.
fn is_order(file: &str, function: &str) -> bool {
    let function = function.trim_start_matches(['<', '&']);
    let signals = |module: &&str| {
        file.ends_with(&format!("marcato-web/src/{module}.rs"))
            || function.starts_with(&format!("marcato_web::{module}::"))
    };
    file.contains("marcato-sched/src/")
        || function.starts_with("marcato_sched::")
        || SIGNALS.iter().any(signals)
}

/// Reads a profile in callgrind's format (version 1) with one kind of events.
pub(super) fn read(profile: &str) -> Instructions {
    let mut read = Instructions::default();
    let (mut files, mut functions) = (Names::default(), Names::default());
    let (mut own, mut file, mut function) = (String::new(), String::new(), String::new());
    let (mut called_file, mut called) = (String::new(), String::new());
    // The next line has the instructions of a call.
    let mut is_call = false;
    for line in profile.lines() {
        match line.split_once('=') {
            Some(("fl", name)) => {
                own = files.read(name);
                file.clone_from(&own);
            }
            Some(("fi" | "fe", name)) => file = files.read(name),
            Some(("fn", name)) => {
                function = functions.read(name);
                file.clone_from(&own);
                called_file.clear();
            }
            Some(("cfi" | "cfl", name)) => called_file = files.read(name),
            Some(("cfn", name)) => called = functions.read(name),
            Some(("calls", _)) => is_call = true,
            _ if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) => {
                let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse().ok()).unwrap_or(0);
                let of_order = is_order(&file, &function);
                if !is_call {
                    read.total += cost;
                }
                // Calls within the order count where they lead to.
                if of_order && !(is_call && is_order(&called_file, &called)) {
                    read.order += cost;
                }
                if is_call {
                    is_call = false;
                    called_file.clear();
                }
            }
            _ => {}
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_counts_with_what_it_calls_and_where_it_is_inlined() {
        let profile = "\
# callgrind format
version: 1
positions: line
events: Ir
fl=(1) crates/marcato-web/src/h2/mod.rs
fn=(1) marcato_web::h2::Driver<S>::poll
10 100
fi=(2) crates/marcato-sched/src/exchange/mod.rs
5 7
fe=(1)
+1 20
cfi=(3) crates/marcato-web/src/signals.rs
cfn=(2) marcato_web::signals::Signals::insert
calls=1 9
* 60

fl=(3)
fn=(2)
9 40
cfi=(4) library/alloc/btree.rs
cfn=(3) BTreeMap<K,V>::insert
calls=1 1
* 15
cfn=(4) <marcato_web::tree::Tree as Clone>::clone
calls=1 1
* 5

fl=(4)
fn=(3)
1 15

fl=(5) ???
fn=(4)
0 5
";
        // Inlined 7; the signals' own 40, and 15 that they call; the tree's 5.
        assert_eq!(read(profile), Instructions { total: 187, order: 67 });
    }
}
