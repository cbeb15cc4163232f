//! Files of rules, and marks by the options of the command line.

use std::ops::RangeInclusive;
use std::str::FromStr;

use marcato_kernel::{CodePoints, Dscp, Mark, MarkRule, Marks, Prefix, Protocol};
use marcato_units::Priority;
use serde::Deserialize;

use super::RunError;
use crate::arguments::Run;
use crate::perf::quantity;

/// Marks of a run by its options.
pub(super) fn marks(asked: &Run) -> Result<Marks, RunError> {
    let mut points = CodePoints::default();
    let set = |points: &mut CodePoints| {
        asked.code_point.iter().for_each(|OfLevel { priority, dscp }| points.set(*priority, *dscp));
    };
    if let Some(path) = &asked.rules {
        let text =
            std::fs::read_to_string(path).map_err(|source| RunError::File { path: path.clone(), source })?;
        return parse(&text, &mut points, set).map_err(|why| RunError::Rules { path: path.clone(), why });
    }
    set(&mut points);
    let of_level = asked.priority.map(|priority| Mark::of(priority, &points));
    Ok(Marks { rules: Vec::new(), standard: of_level.or(asked.dscp.map(Mark::of_dscp)) })
}

/// Code point of a level, as an option has it: `p0=ef`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfLevel {
    priority: Priority,
    dscp: Dscp,
}

/// Parses a code point of a level.
pub(crate) fn of_level(text: &str) -> Result<OfLevel, String> {
    let (priority, dscp) = text.split_once('=').ok_or("write a level and its code point, such as p0=ef")?;
    let dscp = dscp.parse().map_err(|error: marcato_kernel::UnknownDscp| error.to_string())?;
    Ok(OfLevel { priority: quantity::priority(priority)?, dscp })
}

/// Value of a file that is written as text.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String", bound = "T: Written")]
struct Text<T: Written>(T);

/// Value that has a text form.
trait Written: Sized {
    fn read(text: &str) -> Result<Self, String>;
}

impl<T: Written> TryFrom<String> for Text<T> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        T::read(&text).map(Self)
    }
}

impl Written for Priority {
    fn read(text: &str) -> Result<Self, String> {
        quantity::priority(text)
    }
}

impl Written for Dscp {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: marcato_kernel::UnknownDscp| error.to_string())
    }
}

impl Written for Prefix {
    fn read(text: &str) -> Result<Self, String> {
        Self::from_str(text)
    }
}

impl Written for Protocol {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            _ => Err(format!("`{text}` is no protocol: write tcp or udp")),
        }
    }
}

/// Ports of a rule: a number, or a range as text.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "write a port from 1 to 65535, or a range such as \"8000-8999\"")]
enum Ports {
    One(u16),
    Range(String),
}

impl Ports {
    fn range(&self) -> Result<RangeInclusive<u16>, String> {
        let of_text = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
        };
        match self {
            Self::One(port) => Ok(*port..=*port),
            Self::Range(text) => of_text(text).filter(|range| !range.is_empty()).ok_or_else(|| {
                format!("`{text}` is no range of ports: write the lower one first, such as \"8000-8999\"")
            }),
        }
    }
}

/// Code points of a file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Points {
    p0: Option<Text<Dscp>>,
    p1: Option<Text<Dscp>>,
    p2: Option<Text<Dscp>>,
    p3: Option<Text<Dscp>>,
    p4: Option<Text<Dscp>>,
}

/// Rule of a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    port: Option<Ports>,
    to: Option<Text<Prefix>>,
    protocol: Option<Text<Protocol>>,
    mark: Option<u32>,
    priority: Option<Text<Priority>>,
    dscp: Option<Text<Dscp>>,
}

/// File of rules.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    priority: Option<Text<Priority>>,
    dscp: Option<Text<Dscp>>,
    #[serde(default)]
    code_points: Points,
    #[serde(default)]
    rule: Vec<Rule>,
}

/// Mark of a rule or of all others; one of two forms.
fn mark(
    priority: Option<Text<Priority>>,
    dscp: Option<Text<Dscp>>,
    points: &CodePoints,
) -> Result<Option<Mark>, String> {
    match (priority, dscp) {
        (Some(_), Some(_)) => Err("priority and dscp exclude each other: write one".to_owned()),
        (priority, dscp) => {
            let of_level = priority.map(|Text(priority)| Mark::of(priority, points));
            Ok(of_level.or(dscp.map(|Text(dscp)| Mark::of_dscp(dscp))))
        }
    }
}

/// Reads a file of rules. `over` changes code points after the file.
fn parse(text: &str, points: &mut CodePoints, over: impl FnOnce(&mut CodePoints)) -> Result<Marks, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    let Points { p0, p1, p2, p3, p4 } = file.code_points;
    for (priority, dscp) in Priority::ALL.into_iter().zip([p0, p1, p2, p3, p4]) {
        if let Some(Text(dscp)) = dscp {
            points.set(priority, dscp);
        }
    }
    over(points);
    let mut rules = Vec::new();
    for (number, rule) in file.rule.into_iter().enumerate() {
        rules.push(of_file(rule, points).map_err(|why| format!("rule {}: {why}", number + 1))?);
    }
    let standard = mark(file.priority, file.dscp, points)?;
    if rules.is_empty() && standard.is_none() {
        return Err("nothing would be marked: write a [[rule]], or a priority for all sockets".to_owned());
    }
    if rules.len() > Marks::MOST_RULES {
        return Err(format!("there are {} rules: write {} at most", rules.len(), Marks::MOST_RULES));
    }
    Ok(Marks { rules, standard })
}

fn of_file(rule: Rule, points: &CodePoints) -> Result<MarkRule, String> {
    let Rule { port, to, protocol, mark: fwmark, priority, dscp } = rule;
    if port.is_none() && to.is_none() && protocol.is_none() && fwmark.is_none() {
        return Err("it has no condition: write port, to, protocol or mark".to_owned());
    }
    Ok(MarkRule {
        protocol: protocol.map(|Text(protocol)| protocol),
        to: to.map(|Text(prefix)| prefix),
        ports: port.map_or(Ok(0..=u16::MAX), |ports| ports.range())?,
        fwmark,
        mark: mark(priority, dscp, points)?.ok_or("it has no mark: write priority or dscp")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Marks, String> {
        parse(text, &mut CodePoints::default(), |_| {})
    }

    #[test]
    fn a_file_has_rules_code_points_and_a_mark_for_others() {
        let text = r#"
            priority = "p4"
            [code-points]
            p0 = "ef"
            [[rule]]
            port = 22
            priority = "p0"
            [[rule]]
            port = "8000-8999"
            to = "192.0.2.0/24"
            protocol = "udp"
            mark = 7
            dscp = "nqb"
        "#;
        let points = CodePoints::default();
        let urgent = |dscp: u8| Mark { dscp: Dscp::new(dscp).unwrap(), priority: 6 };
        let marks = read(text).unwrap();
        assert_eq!(marks.standard, Some(Mark::of(Priority::P4, &points)));
        let any = MarkRule { protocol: None, to: None, ports: 22..=22, fwmark: None, mark: urgent(46) };
        let full = MarkRule {
            protocol: Some(Protocol::Udp),
            to: Some("192.0.2.0/24".parse().unwrap()),
            ports: 8000..=8999,
            fwmark: Some(7),
            mark: urgent(45),
        };
        assert_eq!(marks.rules, [any, full]);
        // The command line has the last word.
        let over = |points: &mut CodePoints| points.set(Priority::P0, Dscp::new(40).unwrap());
        assert_eq!(parse(text, &mut CodePoints::default(), over).unwrap().rules[0].mark, urgent(40));
    }

    #[test]
    fn the_page_has_a_readable_file_and_the_defaults() {
        let page = include_str!("../../../../docs/run.md");
        let file = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        assert_eq!(read(file).unwrap().rules.len(), 2);
        for level in Priority::ALL {
            let Mark { dscp, priority } = Mark::of(level, &CodePoints::default());
            let begin = format!("| `p{}` | `{dscp}` ({}) |", level.index(), dscp.get());
            let line = page.lines().find(|line| line.starts_with(&begin)).unwrap();
            assert!(line.ends_with(&format!("| {priority} |")), "{line}");
        }
    }

    #[test]
    fn faults_of_a_file_say_what_to_write() {
        for (text, why) in [
            ("", "write a [[rule]]"),
            ("priority = \"p7\"", "write p0 (critical) to p4"),
            ("priority = \"p0\"\ndscp = \"ef\"", "exclude each other"),
            ("[[rule]]\nport = 22", "rule 1: it has no mark"),
            ("[[rule]]\npriority = \"p0\"", "rule 1: it has no condition"),
            ("[[rule]]\nport = 70000\ndscp = \"ef\"", "write a port from 1 to 65535"),
            ("[[rule]]\nport = \"9-8\"\ndscp = \"ef\"", "the lower one first"),
            ("[[rule]]\nto = \"here\"\ndscp = \"ef\"", "is no address"),
            ("[[rule]]\nprotocol = \"icmp\"\ndscp = \"ef\"", "write tcp or udp"),
            ("[[rule]]\nports = 22\ndscp = \"ef\"", "unknown field `ports`"),
            ("dscp = \"fast\"", "is no code point"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
        let many = "[[rule]]\nport = 22\ndscp = \"ef\"\n".repeat(65);
        assert_eq!(read(&many).unwrap_err(), "there are 65 rules: write 64 at most");
    }

    #[test]
    fn a_level_gets_another_code_point_by_an_option() {
        let dscp = Dscp::new(46).unwrap();
        assert_eq!(of_level("p0=ef"), Ok(OfLevel { priority: Priority::P0, dscp }));
        for wrong in ["p0", "p9=ef", "p0=64"] {
            assert!(of_level(wrong).is_err(), "{wrong}");
        }
    }
}
