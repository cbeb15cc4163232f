//! Warnings about settings that are valid, but probably unintended.

use crate::experiment::Experiment;
use crate::link::{Capacity, Way};
use crate::path::{Map, Route};
use crate::queue::Queue;

impl Experiment {
    /// Returns warnings about settings that are valid, but probably unintended. Each is a sentence
    /// with a remedy.
    pub fn warnings(&self) -> Vec<String> {
        self.unmarked()
    }

    /// Returns warnings about ECN that no queue uses.
    fn unmarked(&self) -> Vec<String> {
        let map = Map::new(self);
        let asks = |ends: &crate::flow::TcpEnds| ends.from.ecn && ends.to.ecn;
        let mut warnings = Vec::new();
        for flow in self.flows.iter().filter(|flow| flow.kind.tcp().is_some_and(asks)) {
            let ways = [map.route(&flow.from, &flow.to), map.route(&flow.to, &flow.from)];
            if ways.iter().any(Option::is_none) || ways.iter().flatten().any(marks) {
                continue;
            }
            warnings.push(format!(
                "flow `{}` has `ecn = true`, but no queue on its path marks: write `ecn = true` of a codel, fq-codel, crq, red or \
                 pie queue, or use a step-mark queue",
                flow.name
            ));
        }
        warnings
    }
}

/// Returns whether any queue on the route in which packets wait marks them, initially or after a
/// change.
fn marks(route: &Route<'_>) -> bool {
    // No packet ever waits on a link without a rate, so its queue never marks.
    route.hops.iter().filter(|hop| hop.direction().rate != Capacity::Unlimited).any(|hop| {
        let taken = if hop.back { Way::Back } else { Way::There };
        let changes = hop.link.changes.iter().filter(|change| [Way::Both, taken].contains(&change.way));
        let later = changes.filter_map(|change| change.queue.as_ref());
        later.chain([&hop.direction().queue]).any(Queue::marks)
    })
}

#[cfg(test)]
mod tests {
    use crate::Scenario;

    fn warnings(queue: &str, ecn: bool) -> Vec<String> {
        let text = format!(
            r#"
            name = "marks"
            duration = "1 s"
            nodes = ["a", "b"]
            [[link]]
            name = "wire"
            between = ["a", "b"]
            rate = "10 Mbit/s"
            delay = "1 ms"
            queue = {queue}
            [[flow]]
            name = "bulk"
            kind = "tcp"
            from = "a"
            to = "b"
            tcp = {{ ecn = {ecn} }}
            "#
        );
        Scenario::parse("marks.toml", &text).unwrap().experiment().warnings()
    }

    #[test]
    fn ecn_where_nothing_marks_is_warned_of_and_nothing_else_is() {
        for queue in [
            r#"{ kind = "codel", ecn = true }"#,
            r#""fq-codel""#,
            r#"{ kind = "crq", ecn = true }"#,
            r#""step-mark""#,
            r#"{ kind = "red", ecn = true }"#,
            r#"{ kind = "pie", ecn = true }"#,
            r#"{ kind = "strict", low = "fq-codel" }"#,
        ] {
            assert!(warnings(queue, true).is_empty(), "{queue}");
        }
        for queue in [
            r#""droptail""#,
            r#""codel""#,
            r#""crq""#,
            r#""red""#,
            r#""pie""#,
            r#""push-out""#,
            r#"{ kind = "fq-codel", ecn = false }"#,
            r#"{ kind = "strict", high = "codel" }"#,
        ] {
            assert_eq!(warnings(queue, false), Vec::<String>::new(), "{queue}");
            let [warning] = &warnings(queue, true)[..] else { panic!("{queue}") };
            assert!(warning.starts_with("flow `bulk` has `ecn = true`, but no queue on its path marks: "));
        }
    }

    #[test]
    fn a_queue_that_begins_to_mark_during_the_run_counts() {
        let change = |way: &str| {
            let queue = r#"{ kind = "codel", ecn = true }"#;
            format!("\"codel\"\nchanges = [{{ at = \"500 ms\", way = \"{way}\", queue = {queue} }}]")
        };
        assert!(warnings(&change("there"), true).is_empty());
        assert!(warnings(&change("both"), true).is_empty());
    }
}
