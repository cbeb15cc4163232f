//! What flows say of their messages, their ends and their kinds, and what is said of them when they are wrong.

use marcato_scenario::flow::FlowKind;
use marcato_scenario::traffic::Message;
use marcato_scenario::{Overrides, Scenario, explain};

/// A scenario of one flow, whose keys begin in line 10.
fn of_flow(flow: &str) -> String {
    format!(
        "name = \"t\"\nduration = \"10 s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"8 \
         Mbit/s\"\ndelay = \"10 ms\"\n\n[[flow]]\n{flow}"
    )
}

/// The ends and the name of a flow.
const F: &str = "name = \"f\"\nfrom = \"a\"\nto = \"b\"\n";

fn read(text: &str) -> Scenario {
    Scenario::parse("t.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The faults of a text, each with its line and its column.
fn faults(text: &str) -> Vec<String> {
    faults_with(text, &[])
}

fn faults_with(text: &str, set: &[&str]) -> Vec<String> {
    let overrides = Overrides { set: set.iter().map(|&set| set.to_owned()).collect(), seed: None };
    let error = match Scenario::parse_with("t.toml", text, &overrides) {
        Ok(_) => return Vec::new(),
        Err(error) => error,
    };
    error
        .faults()
        .iter()
        .map(|fault| format!("{}:{}: {}", fault.line, fault.column, fault.problem))
        .collect()
}

#[test]
fn messages_have_names_that_are_written_and_explained() {
    let messages = "kind = \"messages\"\nmessages = [{ name = \"late\", after = \"1 s\", size = \"2 kB\" }, { name = \
                    \"page\", size = \"1 kB\" }, { size = \"3 kB\" }]\n";
    let scenario = read(&of_flow(&format!("{F}{messages}")));
    let FlowKind::Messages(kind) = &scenario.experiment().flows[0].kind else { panic!("messages") };
    let names: Vec<Option<&str>> = kind.messages.iter().map(|it: &Message| it.name.as_deref()).collect();
    assert_eq!(names, [Some("page"), None, Some("late")]);
    assert_eq!(read(&scenario.experiment().to_toml()).experiment(), scenario.experiment());
    assert!(explain(&scenario).contains("3 messages (6 kB; by name: page, late)"), "{}", explain(&scenario));
}

#[test]
fn a_message_has_a_name_that_nothing_else_has() {
    let named = |names: [&str; 2]| {
        let [one, two] = names;
        let messages =
            format!("kind = \"messages\"\nmessages = [{{ name = \"{one}\", size = \"1 kB\" }}, {{ name = \"{two}\", size = \"1 kB\" }}]\n");
        faults(&of_flow(&format!("{F}{messages}")))
    };
    assert_eq!(named(["a", "b"]), [""; 0]);
    assert_eq!(named(["a", "a"]), ["14:53: there are two messages `a`: rename one"]);
    for taken in ["messages", "source-1", "bulk-2"] {
        let says = format!("14:22: `{taken}` is the name of other lines of the results: choose another");
        assert_eq!(named([taken, "b"]), [says]);
    }
    assert_eq!(
        named(["a.b", "b"]),
        ["14:22: '.' cannot be in the name of a message: letters, digits, - and _ can"]
    );
}
