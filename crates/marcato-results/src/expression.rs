//! Expressions over the metrics of one run.

use std::collections::HashMap;

use marcato_scenario::nearest::hint;

/// Deepest nesting of an expression.
const DEEPEST: usize = 32;

/// Metric, or several with `+ - * / ( ) min max`. Names of metrics have hyphens and dots, so
/// operators stand between blanks.
///
/// ```
/// use marcato_results::Expression;
/// let ratio = Expression::parse("flow.a.rtt_mean_ms / max(flow.b.rtt_mean_ms, 1)")?;
/// let numbers = [("flow.a.rtt_mean_ms".to_owned(), 30.0), ("flow.b.rtt_mean_ms".to_owned(), 20.0)];
/// assert_eq!(ratio.value(&numbers), Ok(1.5));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(Node);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    Metric(String),
    Of(Operator, Vec<Self>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Min,
    Max,
}

impl Operator {
    fn of(self, values: &[f64]) -> f64 {
        let (first, rest) = values.split_first().map_or((f64::NAN, &[][..]), |(first, rest)| (*first, rest));
        // A missing value spoils a minimum too, which `f64::min` would pass over.
        let or_missing = |a: f64, b: f64, value: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { value };
        rest.iter().fold(first, |a, &b| match self {
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Multiply => a * b,
            Self::Divide => a / b,
            Self::Min => or_missing(a, b, a.min(b)),
            Self::Max => or_missing(a, b, a.max(b)),
        })
    }
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// The problem and its remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text, depth: 0 };
        let node = parser.sum()?;
        match parser.peek() {
            None => Ok(Self(node)),
            Some(found) => Err(unexpected(found)),
        }
    }

    /// Returns the names of its metrics.
    pub fn metrics(&self) -> Vec<&str> {
        let mut names = Vec::new();
        collect(&self.0, &mut names);
        names
    }

    /// Returns its value for the numbers of a run: NaN if a metric has none.
    ///
    /// # Errors
    /// If the run lacks a metric: its name, with the nearest of the others.
    pub fn value(&self, numbers: &[(String, f64)]) -> Result<f64, String> {
        let names = self.metrics();
        let known: HashMap<&str, f64> = numbers
            .iter()
            .filter(|(name, _)| names.contains(&name.as_str()))
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        match names.into_iter().find(|name| !known.contains_key(name)) {
            Some(unknown) => {
                let others = numbers.iter().map(|(name, _)| name.as_str());
                Err(format!("the run has no metric `{unknown}`: {}", advice(unknown, others)))
            }
            None => Ok(value(&self.0, &known)),
        }
    }
}

/// Returns the nearest name, or else the columns of the same flow, group or link.
fn advice<'a>(unknown: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    if let Some(near) = marcato_scenario::nearest::nearest(unknown, names.clone()) {
        return format!("did you mean `{near}`?");
    }
    let stem = unknown.rsplit_once('.').map_or("", |(stem, _)| stem);
    let beside: Vec<&str> =
        names.clone().filter(|name| name.rsplit_once('.').is_some_and(|(of, _)| of == stem)).collect();
    if !beside.is_empty() {
        return hint(unknown, beside);
    }
    let mut stems: Vec<&str> = names.filter_map(|name| Some(name.rsplit_once('.')?.0)).collect();
    stems.dedup();
    format!(
        "metrics begin with {}",
        stems.iter().map(|stem| format!("`{stem}.`")).take(20).collect::<Vec<_>>().join(", ")
    )
}

fn collect<'a>(node: &'a Node, names: &mut Vec<&'a str>) {
    match node {
        Node::Number(_) => {}
        Node::Metric(name) => names.push(name),
        Node::Of(_, nodes) => nodes.iter().for_each(|node| collect(node, names)),
    }
}

fn value(node: &Node, known: &HashMap<&str, f64>) -> f64 {
    match node {
        Node::Number(number) => *number,
        Node::Metric(name) => known.get(name.as_str()).copied().unwrap_or(f64::NAN),
        Node::Of(operator, nodes) => {
            let values: Vec<f64> = nodes.iter().map(|node| value(node, known)).collect();
            operator.of(&values)
        }
    }
}

fn unexpected(found: &str) -> String {
    format!(
        "`{found}` cannot stand here: an expression has names of metrics, numbers, and + - * / between blanks, \
         ( ), min(A, B) and max(A, B)"
    )
}

/// Reader of an expression, by recursive descent.
struct Parser<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> Parser<'t> {
    /// Returns the next word without taking it: a bracket, a comma, or a run of other characters.
    fn peek(&mut self) -> Option<&'t str> {
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next()?;
        let len = match first {
            '(' | ')' | ',' => 1,
            _ => self.rest.find(|c: char| c.is_whitespace() || "(),".contains(c)).unwrap_or(self.rest.len()),
        };
        Some(&self.rest[..len])
    }

    fn take(&mut self) -> Option<&'t str> {
        let word = self.peek()?;
        self.rest = &self.rest[word.len()..];
        Some(word)
    }

    fn expect(&mut self, wanted: &str) -> Result<(), String> {
        match self.take() {
            Some(word) if word == wanted => Ok(()),
            Some(word) => Err(unexpected(word)),
            None => Err(format!("the expression ends without `{wanted}`: add it")),
        }
    }

    fn sum(&mut self) -> Result<Node, String> {
        self.chain(Self::product, &[("+", Operator::Add), ("-", Operator::Subtract)])
    }

    fn product(&mut self) -> Result<Node, String> {
        self.chain(Self::operand, &[("*", Operator::Multiply), ("/", Operator::Divide)])
    }

    /// Reads operands that operators of one rank join, from left to right.
    fn chain(
        &mut self,
        operand: fn(&mut Self) -> Result<Node, String>,
        operators: &[(&str, Operator)],
    ) -> Result<Node, String> {
        let mut node = operand(self)?;
        while let Some(word) = self.peek()
            && let Some((_, operator)) = operators.iter().find(|(name, _)| *name == word)
        {
            self.take();
            node = Node::Of(*operator, vec![node, operand(self)?]);
        }
        Ok(node)
    }

    fn operand(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!(
                "the expression is nested more than {DEEPEST} deep: divide it into several claims"
            ));
        }
        let node = self.inner();
        self.depth -= 1;
        node
    }

    fn inner(&mut self) -> Result<Node, String> {
        let word = self.take().ok_or("the expression ends too early: name a metric")?;
        if word == "(" {
            let node = self.sum()?;
            self.expect(")")?;
            return Ok(node);
        }
        let function = match word {
            "min" => Some(Operator::Min),
            "max" => Some(Operator::Max),
            _ => None,
        };
        if let Some(operator) = function {
            self.expect("(")?;
            let mut nodes = vec![self.sum()?];
            while self.peek() == Some(",") {
                self.take();
                nodes.push(self.sum()?);
            }
            self.expect(")")?;
            return Ok(Node::Of(operator, nodes));
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let number = word.parse::<f64>().ok().filter(|number| number.is_finite());
            return number.map(Node::Number).ok_or_else(|| unexpected(word));
        }
        let is_name = word.contains('.') && word.starts_with(|c: char| c.is_ascii_alphabetic());
        if is_name { Ok(Node::Metric(word.to_owned())) } else { Err(unexpected(word)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str) -> Result<f64, String> {
        let numbers = [("flow.a-1.x_ms", 6.0), ("flow.b.x_ms", 4.0), ("flow.b.none", f64::NAN)];
        Expression::parse(text)?.value(&numbers.map(|(name, value)| (name.to_owned(), value)))
    }

    #[test]
    fn operators_have_their_usual_rank_and_go_from_left_to_right() {
        assert_eq!(value("flow.a-1.x_ms - flow.b.x_ms - 1"), Ok(1.0));
        assert_eq!(value("100 * (flow.a-1.x_ms - flow.b.x_ms) / flow.b.x_ms"), Ok(50.0));
        assert_eq!(value("1 + 2 * 3 - 8 / 4 / 2"), Ok(6.0));
        assert_eq!(value("max(1, flow.b.x_ms, 2) + min(3, flow.a-1.x_ms)"), Ok(7.0));
    }

    #[test]
    fn a_missing_number_spoils_the_value() {
        for text in ["flow.b.none + 1", "min(flow.b.none, 1)", "max(1, flow.b.none)"] {
            assert!(value(text).unwrap().is_nan(), "{text}");
        }
    }

    #[test]
    fn an_unknown_metric_is_named_with_the_nearest() {
        assert_eq!(
            value("flow.b.y_ms"),
            Err("the run has no metric `flow.b.y_ms`: did you mean `flow.b.x_ms`?".to_owned())
        );
        assert!(value("flow.b.goodput").unwrap_err().ends_with("there are `flow.b.x_ms`, `flow.b.none`"));
        assert!(value("link.up.drops").unwrap_err().ends_with("begin with `flow.a-1.`, `flow.b.`"));
    }

    #[test]
    fn broken_expressions_are_refused() {
        for text in
            ["", "1 +", "(1", "1)", "max 1", "max(1", "flow.a.b flow.a.c", "delay", "1.2.3", "- 1", "1e999"]
        {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
        assert!(Expression::parse(&"(".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[-a-z0-9.+*/(), ]{0,40}") {
            let _ = Expression::parse(&text);
        }
    }
}
