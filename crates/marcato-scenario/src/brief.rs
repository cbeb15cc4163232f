//! Link in one line: `12 Mbit/s, 20 ms, codel`.
//!
//! A text has pieces between commas, in any order. Each is written as in a scenario, or begins with a word. A
//! [`Brief`] collects the pieces of both directions, and becomes a [`Link`] between two nodes, or the text of a
//! scenario without flows.

use std::fmt::Write as _;

use marcato_document::nearest::nearest;
use marcato_document::quantity::{self, Of};
use marcato_document::quote;
use marcato_units::{Duration, Rate, Seed};

use crate::link::Link;
use crate::preset::{LinkPreset, PRESETS};
use crate::reader::Reader;

/// Longest text of a link, in bytes.
pub const MAX_BRIEF: usize = 4096;

/// Words that begin a piece, each with an example.
const WORDS: [(&str, &str); 11] = [
    ("up", "up 1 Mbit/s"),
    ("down", "down 12 Mbit/s"),
    ("rtt", "rtt 40 ms"),
    ("loss", "loss 1 %"),
    ("jitter", "jitter 5 ms"),
    ("reorder", "reorder 1 %"),
    ("duplicate", "duplicate 0.1 %"),
    ("corrupt", "corrupt 0.01 %"),
    ("trace", "trace FILE"),
    ("mtu", "mtu 1400 B"),
    ("limit", "limit 100 packets"),
];

/// Queues that need no parameters. A scenario has the others.
const QUEUES: [&str; 5] = ["droptail", "codel", "fq-codel", "pie", "crq"];

/// Handovers that a link with them has, one after the other: four hours of one each 15 s. Later its delay stays.
const HANDOVERS: u64 = 960;

/// Error in the text of a link. It names the wrong piece.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {problem}")]
pub struct BriefError {
    /// Option with the text, for example `--link`.
    pub option: String,
    /// Problem and its remedy.
    pub problem: String,
}

/// Direction of a [`Brief`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// Both directions.
    Both,
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// Changes to single packets that a [`Link`] does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disorder {
    /// Probability that a packet skips the delay, and so overtakes those before it, 0 to 1.
    pub reordering: f64,
    /// Probability that one bit of a packet is inverted, 0 to 1.
    pub corruption: f64,
}

/// Link with two directions, and what happens to single packets in each.
#[derive(Clone, Debug, PartialEq)]
pub struct BriefLink {
    /// Link, whose direction there leads from the client to the server.
    pub link: Link,
    /// Disorder there and back.
    pub disorder: [Disorder; 2],
}

/// Pieces of one direction, as written.
#[derive(Clone, Debug, Default, PartialEq)]
struct Pieces {
    rate: Option<Rate>,
    delay: Option<Duration>,
    jitter: Option<Duration>,
    loss: Option<f64>,
    reorder: Option<f64>,
    duplicate: Option<f64>,
    corrupt: Option<f64>,
    trace: Option<String>,
    queue: Option<&'static str>,
    limit: Option<String>,
}

impl Pieces {
    /// Returns these pieces, with others where there are none.
    fn or(self, others: &Self) -> Self {
        // A rate replaces the other's trace, and a trace the other's rate.
        let (rate, trace) = match (self.rate, self.trace) {
            (None, None) => (others.rate, others.trace.clone()),
            own => own,
        };
        Self {
            rate,
            trace,
            delay: self.delay.or(others.delay),
            jitter: self.jitter.or(others.jitter),
            loss: self.loss.or(others.loss),
            reorder: self.reorder.or(others.reorder),
            duplicate: self.duplicate.or(others.duplicate),
            corrupt: self.corrupt.or(others.corrupt),
            queue: self.queue.or(others.queue),
            limit: self.limit.or_else(|| others.limit.clone()),
        }
    }
}

/// Link described by short texts.
///
/// ```
/// use marcato_scenario::brief::{Brief, Ways};
///
/// let mut brief = Brief::default();
/// brief.add("--link", Ways::Both, "12 Mbit/s, 20 ms, codel, loss 1 %")?;
/// brief.add("--up", Ways::Up, "1 Mbit/s")?;
/// let link = brief.link()?.link;
/// assert_eq!(link.there.rate.fixed().map(|rate| rate.as_bps()), Some(1_000_000));
/// assert_eq!(link.back.rate.fixed().map(|rate| rate.as_bps()), Some(12_000_000));
/// assert_eq!(link.back.delay.as_millis(), 20);
/// let wrong = brief.add("--link", Ways::Both, "12 Mbps").unwrap_err();
/// assert!(wrong.to_string().contains("did you mean \"12 Mbit/s\"?"));
/// # Ok::<(), marcato_scenario::brief::BriefError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Brief {
    both: Pieces,
    up: Pieces,
    down: Pieces,
    preset: Option<&'static LinkPreset>,
    mtu: Option<u64>,
}

impl Brief {
    /// Adds the pieces of a text. `option` is the name by which errors call it.
    ///
    /// # Errors
    /// If a piece is unknown, malformed or there already.
    pub fn add(&mut self, option: &str, ways: Ways, text: &str) -> Result<(), BriefError> {
        let failed = |problem| BriefError { option: option.to_owned(), problem };
        if text.len() > MAX_BRIEF {
            return Err(failed(format!("a link has at most {MAX_BRIEF} bytes: write a scenario")));
        }
        let mut changed = self.clone();
        for piece in text.split(',') {
            changed.piece(ways, piece.trim()).map_err(failed)?;
        }
        *self = changed;
        Ok(())
    }

    /// Returns the link, between the nodes `client` and `server`.
    ///
    /// # Errors
    /// If pieces contradict each other.
    pub fn link(&self) -> Result<BriefLink, BriefError> {
        let failed = |problem: String| BriefError { option: "--link".to_owned(), problem };
        let text = scenario(std::slice::from_ref(self), None)?;
        // Traces are read by those that follow them.
        let scenario = Reader::new().without_flows().parse("--link", &text);
        let scenario = scenario.map_err(|error| {
            failed(error.faults().first().map_or_else(String::new, |fault| fault.problem.clone()))
        })?;
        let link = scenario.experiment().links.first().cloned();
        let link = link.ok_or_else(|| failed("it has no piece: write a rate or a delay".to_owned()))?;
        Ok(BriefLink { link, disorder: self.disorder()? })
    }

    /// Returns the disorder from the client to the server, and back.
    ///
    /// # Errors
    /// If packets of a direction without a delay are to overtake each other.
    pub fn disorder(&self) -> Result<[Disorder; 2], BriefError> {
        let mut disorder = [Disorder::default(); 2];
        for (place, pieces) in disorder.iter_mut().zip(self.merged()) {
            let reordering = pieces.reorder.unwrap_or(0.0);
            if reordering > 0.0 && pieces.delay.unwrap_or_default().is_zero() {
                let problem = "a packet is reordered as it skips the delay, and there is none: add one, for example `20 ms`";
                return Err(BriefError { option: "--link".to_owned(), problem: problem.to_owned() });
            }
            *place = Disorder { reordering, corruption: pieces.corrupt.unwrap_or(0.0) };
        }
        Ok(disorder)
    }

    /// Returns the pieces up and down.
    fn merged(&self) -> [Pieces; 2] {
        let preset = self.preset.map(|preset| {
            let of = |rate| Pieces { rate: Some(rate), delay: Some(preset.delay), ..Pieces::default() };
            [of(preset.up), of(preset.down)]
        });
        let [up, down] = preset.unwrap_or_default();
        [self.up.clone().or(&self.both).or(&up), self.down.clone().or(&self.both).or(&down)]
    }

    /// Reads one piece.
    fn piece(&mut self, ways: Ways, piece: &str) -> Result<(), String> {
        if piece.is_empty() {
            return Err(format!("a piece is empty: write {}", allowed()));
        }
        let (word, rest) = piece.split_once(char::is_whitespace).unwrap_or((piece, ""));
        let rest = rest.trim();
        if let Some(preset) = PRESETS.iter().find(|preset| preset.name == word) {
            if !rest.is_empty() {
                return Err(format!("`{piece}`: write a comma behind `{word}`"));
            }
            if ways != Ways::Both {
                return Err(format!("`{word}` is a link with both directions: write it in --link"));
            }
            if let Some(other) = self.preset.replace(preset) {
                return Err(format!("`{}` and `{word}` are two links: leave one out", other.name));
            }
            return Ok(());
        }
        let example = WORDS.iter().find(|(known, _)| *known == word).map(|(_, example)| *example);
        if rest.is_empty()
            && let Some(example) = example
        {
            return Err(format!("`{word}` needs a value: write `{example}`"));
        }
        match word {
            "up" | "down" if ways != Ways::Both => {
                return Err(format!("`{piece}`: this text is for one direction: leave `{word}` out"));
            }
            "up" => return self.piece(Ways::Up, rest),
            "down" => return self.piece(Ways::Down, rest),
            "mtu" => {
                if ways != Ways::Both {
                    return Err("`mtu` holds for both directions: write it in --link".to_owned());
                }
                let mtu = quantity::read(rest, Of::Size)?;
                if !(68..=65_535).contains(&mtu) {
                    return Err(format!("`{piece}`: an mtu is 68 B to 65535 B"));
                }
                return once(&mut self.mtu, mtu, "mtu");
            }
            _ => {}
        }
        let pieces = match ways {
            Ways::Both => &mut self.both,
            Ways::Up => &mut self.up,
            Ways::Down => &mut self.down,
        };
        let span = |text: &str| quantity::read(text, Of::Span).map(Duration::from_nanos);
        match word {
            "loss" => once(&mut pieces.loss, share(word, rest)?, word),
            "reorder" => once(&mut pieces.reorder, share(word, rest)?, word),
            "duplicate" => once(&mut pieces.duplicate, share(word, rest)?, word),
            "corrupt" => once(&mut pieces.corrupt, share(word, rest)?, word),
            "jitter" => once(&mut pieces.jitter, span(rest)?, word),
            "rtt" => once(&mut pieces.delay, span(rest)? / 2, "the delay"),
            "trace" if pieces.rate.is_some() => Err(RATE_AND_TRACE.to_owned()),
            "trace" => once(&mut pieces.trace, rest.to_owned(), word),
            "limit" => once(&mut pieces.limit, limit(rest)?, word),
            _ => {
                if let Some(queue) = QUEUES.iter().find(|queue| **queue == word) {
                    if !rest.is_empty() {
                        once(&mut pieces.limit, limit(rest)?, "limit")?;
                    }
                    return once(&mut pieces.queue, *queue, "the queue");
                }
                amount(pieces, piece)
            }
        }
    }
}

const RATE_AND_TRACE: &str = "a link has a rate or a `trace`: leave one of them out";

/// Reads a rate or a delay.
fn amount(pieces: &mut Pieces, piece: &str) -> Result<(), String> {
    if !piece.starts_with(|first: char| first.is_ascii_digit()) {
        let known = WORDS.iter().map(|(word, _)| *word).chain(QUEUES);
        let known = known.chain(PRESETS.iter().map(|preset| preset.name));
        let word = piece.split_whitespace().next().unwrap_or(piece);
        let near = nearest(word, known).map(|near| format!("did you mean `{near}`?"));
        let near = near.unwrap_or_else(|| format!("write {}", allowed()));
        return Err(format!("`{piece}` is no piece of a link: {near}"));
    }
    let unit = piece.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim().to_lowercase();
    if unit.starts_with('%') {
        return Err(format!("`{piece}` of what? write for example `loss {piece}`"));
    }
    if quantity::is_of(piece, Of::Size) {
        return Err(format!("`{piece}` of what? write `mtu {piece}` or `limit {piece}`"));
    }
    if quantity::is_of(piece, Of::Packets) {
        return Err(format!("`{piece}` of what? write `limit {piece}`"));
    }
    let is_span = quantity::is_of(piece, Of::Span)
        || ["m", "msec", "usec", "µs", "sec", "secs", "second", "seconds"].contains(&unit.as_str());
    if is_span {
        let delay = Duration::from_nanos(quantity::read(piece, Of::Span)?);
        return once(&mut pieces.delay, delay, "the delay");
    }
    if unit.is_empty() {
        return Err(format!("`{piece}` has no unit: write `{piece} Mbit/s` or `{piece} ms`"));
    }
    let rate = match quantity::read(piece, Of::Rate) {
        Ok(rate) => Rate::from_bps(rate),
        Err(wrong) if unit.contains("bit") || unit.ends_with("/s") || unit.ends_with("ps") => {
            return Err(wrong);
        }
        Err(_) => return Err(format!("`{piece}` is no piece of a link: write {}", allowed())),
    };
    if rate == Rate::ZERO {
        return Err("a link of rate 0 carries nothing: give it a rate".to_owned());
    }
    if pieces.trace.is_some() {
        return Err(RATE_AND_TRACE.to_owned());
    }
    once(&mut pieces.rate, rate, "the rate")
}

/// Reads a share of packets.
fn share(word: &str, text: &str) -> Result<f64, String> {
    let wrong = || format!("`{word} {text}` is no share of packets: write `{word} 1 %`, from 0 % to 100 %");
    let number = text.strip_suffix('%').ok_or_else(wrong)?.trim();
    if number.is_empty() || !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err(wrong());
    }
    let percent: f64 = number.parse().map_err(|_| wrong())?;
    if (0.0..=100.0).contains(&percent) { Ok(percent / 100.0) } else { Err(wrong()) }
}

/// Reads the capacity of a queue.
fn limit(text: &str) -> Result<String, String> {
    let of = [Of::Packets, Of::Size, Of::Span].into_iter().find(|of| quantity::is_of(text, *of));
    let Some(of) = of else {
        return Err(format!("`{text}` is no limit of a queue: write `100 packets`, `64 kB` or `50 ms`"));
    };
    if quantity::read(text, of)? == 0 {
        return Err("a queue of nothing carries nothing: give it a limit above 0".to_owned());
    }
    Ok(text.to_owned())
}

/// Sets a piece that was not there.
fn once<T>(place: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{what} is given twice for one direction: leave one out")),
    }
}

/// Returns what a piece may be, for errors.
fn allowed() -> String {
    let words = WORDS.map(|(_, example)| format!("`{example}`")).join(", ");
    let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    format!(
        "a rate (`12 Mbit/s`), a delay (`20 ms`), a queue ({}), a preset ({}), or one of {words}",
        QUEUES.join(", "),
        presets.join(", ")
    )
}

/// Returns a scenario without flows: these links in a row, from `client` to `server`.
///
/// # Errors
/// If pieces contradict each other.
pub fn scenario(links: &[Brief], seed: Option<u64>) -> Result<String, BriefError> {
    let failed = |problem: String| BriefError { option: "--link".to_owned(), problem };
    let node = |number: usize| match number {
        0 => "client".to_owned(),
        last if last == links.len() => "server".to_owned(),
        between => format!("router-{between}"),
    };
    let nodes: Vec<String> = (0..=links.len()).map(|number| quote(&node(number))).collect();
    let mut text = String::from("name = \"link\"\n");
    if let Some(seed) = seed {
        let _ = writeln!(text, "seed = {seed}");
    }
    let _ = writeln!(text, "nodes = [{}]", nodes.join(", "));
    for (number, brief) in links.iter().enumerate() {
        let name = if links.len() == 1 { "link".to_owned() } else { format!("link-{}", number + 1) };
        let _ = write!(
            text,
            "\n[[link]]\nname = \"{name}\"\nbetween = [{}, {}]\n",
            nodes[number],
            nodes[number + 1]
        );
        if let Some(mtu) = brief.mtu {
            let _ = writeln!(text, "mtu = \"{mtu} B\"");
        }
        let [up, down] = brief.merged();
        text.push_str(&direction(&up, "").map_err(failed)?);
        text.push_str(&direction(&down, "back.").map_err(failed)?);
        if let Some(handover) = brief.preset.and_then(|preset| preset.handover) {
            let [up, down] = [&up, &down].map(|pieces| pieces.delay.unwrap_or_default());
            text.push_str("changes = [\n");
            let mut stream = Seed::new(seed.unwrap_or(1)).stream("handovers");
            for number in 1..=HANDOVERS {
                let at = handover.every * u32::try_from(number).unwrap_or(u32::MAX);
                let again = at + handover.outage;
                // Both directions pass the same satellite.
                let step = handover.spread.mul_f64(stream.unit());
                let _ = writeln!(text, "{{ at = \"{}\", up = false }},", quantity::span(at));
                for (way, delay) in [("there", up), ("back", down)] {
                    let delay = (delay + step).saturating_sub(handover.spread / 2);
                    let (at, delay) = (quantity::span(again), quantity::span(delay));
                    let _ = writeln!(
                        text,
                        "{{ at = \"{at}\", way = \"{way}\", delay = \"{delay}\", reorder = false, up = true }},"
                    );
                }
            }
            text.push_str("]\n");
        }
    }
    Ok(text)
}

/// Returns the keys of a direction, each behind `prefix`.
fn direction(pieces: &Pieces, prefix: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut key = |name: &str, value: String| {
        let _ = writeln!(text, "{prefix}{name} = {value}");
    };
    if let Some(rate) = pieces.rate {
        key("rate", format!("\"{}\"", quantity::rate(rate)));
    }
    if let Some(trace) = &pieces.trace {
        key("trace", quote(trace));
        // As in mahimahi, whose packets have 4 bytes more on the wire.
        key("framing", "\"4 B\"".to_owned());
    }
    let delay = pieces.delay.unwrap_or_default();
    let jitter = pieces.jitter.unwrap_or_default();
    let least = delay.saturating_sub(jitter);
    key("delay", format!("\"{}\"", quantity::span(least)));
    if !jitter.is_zero() {
        let most = delay.checked_add(jitter).filter(|most| most.as_nanos() <= u64::MAX.into());
        let most = most.ok_or("the delay and its jitter are more than can be counted")? - least;
        key("jitter", format!("{{ kind = \"uniform\", most = \"{}\" }}", quantity::span(most)));
    }
    if let Some(loss) = pieces.loss.filter(|loss| *loss > 0.0) {
        key("loss", format!("{{ kind = \"random\", probability = {loss:?} }}"));
    }
    if let Some(duplicate) = pieces.duplicate.filter(|duplicate| *duplicate > 0.0) {
        key("duplication", format!("{duplicate:?}"));
    }
    let kind = pieces.queue.unwrap_or("droptail");
    match &pieces.limit {
        Some(limit) => key("queue", format!("{{ kind = \"{kind}\", limit = {} }}", quote(limit))),
        None => key("queue", quote(kind)),
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use marcato_units::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::link::{Added, Capacity, Loss};
    use crate::queue::Queue;

    fn brief(text: &str) -> Result<Brief, BriefError> {
        let mut brief = Brief::default();
        brief.add("--link", Ways::Both, text)?;
        Ok(brief)
    }

    fn made(text: &str) -> BriefLink {
        brief(text).and_then(|brief| brief.link()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> String {
        brief(text).and_then(|brief| brief.link()).expect_err(text).to_string()
    }

    #[test]
    fn each_piece_sets_both_directions() {
        let BriefLink { link, disorder } = made(
            "12 Mbit/s, 20 ms, codel, loss 1 %, jitter 5 ms, reorder 2%, duplicate 0.1 %, corrupt 0.01%, mtu 1400 B",
        );
        for way in [&link.there, &link.back] {
            assert_eq!(way.rate, Capacity::Rate(Rate::from_mbps(12)));
            assert_eq!(way.delay, Duration::from_millis(15), "the jitter takes up to 5 ms off");
            let jitter = way.jitter.expect("it has jitter");
            let most = Duration::from_millis(10);
            assert_eq!(jitter.added, Added::Uniform { least: Duration::ZERO, most });
            assert!(!jitter.reorder && matches!(way.queue, Queue::Codel(_)));
            assert!(matches!(way.loss, Loss::Random(loss) if loss.probability == 0.01));
            assert_eq!(way.duplication, 0.001);
        }
        assert_eq!(disorder, [Disorder { reordering: 0.02, corruption: 0.0001 }; 2]);
        assert_eq!(link.mtu, Bytes::new(1400));
        assert_eq!(link.between, ["client", "server"]);
    }

    #[test]
    fn pieces_of_one_direction_come_before_those_of_both() {
        let link = made("lte, up 1 Mbit/s, down 30 ms, droptail 50 packets, down limit 64 kB").link;
        assert_eq!(link.there.rate, Capacity::Rate(Rate::from_mbps(1)));
        assert_eq!(link.back.rate, Capacity::Rate(Rate::from_mbps(12)));
        assert_eq!(link.there.delay, Duration::from_millis(35));
        assert_eq!(link.back.delay, Duration::from_millis(30));
        let limit = |queue: &Queue| match queue {
            Queue::DropTail(queue) => queue.limit,
            other => panic!("{other:?}"),
        };
        assert_eq!(limit(&link.there.queue), crate::queue::Limit::Packets(50));
        assert_eq!(limit(&link.back.queue), crate::queue::Limit::Bytes(Bytes::new(64_000)));
        assert_eq!(made("rtt 40 ms").link.back.delay, Duration::from_millis(20));
        let traced = made("lte, up trace up.txt").link;
        assert_eq!(traced.there.rate, Capacity::Trace("up.txt".to_owned()));
        assert_eq!(traced.there.framing, Bytes::new(4));
        assert_eq!(traced.back.rate, Capacity::Rate(Rate::from_mbps(12)));
    }

    #[test]
    fn every_preset_and_queue_makes_a_link() {
        for preset in &PRESETS {
            let link = made(preset.name).link;
            assert_eq!(link.there.rate, Capacity::Rate(preset.up), "{}", preset.name);
            assert_eq!(link.back.rate, Capacity::Rate(preset.down), "{}", preset.name);
            assert_eq!([link.there.delay, link.back.delay], [preset.delay; 2], "{}", preset.name);
            assert_eq!(link.changes.is_empty(), preset.handover.is_none(), "{}", preset.name);
        }
        for queue in QUEUES {
            let link = made(&format!("2 Mbit/s, {queue}")).link;
            assert_eq!(link.there.queue.kind(), queue);
        }
    }

    #[test]
    fn handovers_are_periodic_and_stay_near_the_delay() {
        let link = made("leo").link;
        assert_eq!(link.changes.len(), 3 * 960);
        for (number, three) in (1..).zip(link.changes.chunks(3)) {
            let begun = marcato_units::Time::ZERO + Duration::from_secs(15) * number;
            assert_eq!((three[0].at, three[0].up), (begun, Some(false)));
            for after in &three[1..] {
                assert_eq!((after.at, after.up), (begun + Duration::from_millis(50), Some(true)));
                let delay = after.delay.expect("a path has a delay");
                assert!((20..=30).contains(&delay.as_millis()), "{delay:?}");
            }
        }
        let delays: std::collections::BTreeSet<_> =
            link.changes.iter().filter_map(|change| change.delay).collect();
        assert!(delays.len() > 900, "each path has its own delay: {}", delays.len());
    }

    #[test]
    fn links_in_a_row_have_routers_between_them() {
        let links = ["10 ms", "5 ms", "1 Mbit/s"].map(|text| brief(text).expect(text));
        let text = scenario(&links, Some(7)).expect("they are links");
        let scenario = Reader::new().without_flows().parse("row", &text).expect("it is a scenario");
        let experiment = scenario.experiment();
        assert_eq!(experiment.nodes, ["client", "router-1", "router-2", "server"]);
        assert_eq!(experiment.seed, Seed::new(7));
        let between: Vec<_> = experiment.links.iter().map(|link| link.between.join(">")).collect();
        assert_eq!(between, ["client>router-1", "router-1>router-2", "router-2>server"]);
    }

    #[test]
    fn a_wrong_piece_is_named_with_its_remedy() {
        for (text, message) in [
            ("12 Mbps", "--link: `12 Mbps` is not a rate: did you mean \"12 Mbit/s\"?"),
            ("12 mbit", "--link: `12 mbit` is not a rate: did you mean \"12 Mbit/s\"?"),
            ("20 msec", "--link: `20 msec` is not a span of time: did you mean \"20 ms\"?"),
            ("20", "--link: `20` has no unit: write `20 Mbit/s` or `20 ms`"),
            ("1 %", "--link: `1 %` of what? write for example `loss 1 %`"),
            ("64 kB", "--link: `64 kB` of what? write `mtu 64 kB` or `limit 64 kB`"),
            ("100 packets", "--link: `100 packets` of what? write `limit 100 packets`"),
            ("coddel", "--link: `coddel` is no piece of a link: did you mean `codel`?"),
            ("lose 1 %", "--link: `lose 1 %` is no piece of a link: did you mean `loss`?"),
            ("loss", "--link: `loss` needs a value: write `loss 1 %`"),
            ("loss 0.1", "--link: `loss 0.1` is no share of packets: write `loss 1 %`, from 0 % to 100 %"),
            (
                "loss 101 %",
                "--link: `loss 101 %` is no share of packets: write `loss 1 %`, from 0 % to 100 %",
            ),
            ("1 Mbit/s, 2 Mbit/s", "--link: the rate is given twice for one direction: leave one out"),
            ("rtt 2 ms, 1 ms", "--link: the delay is given twice for one direction: leave one out"),
            ("1 Mbit/s, trace x", "--link: a link has a rate or a `trace`: leave one of them out"),
            ("trace x, 1 Mbit/s", "--link: a link has a rate or a `trace`: leave one of them out"),
            ("3g, lte", "--link: `3g` and `lte` are two links: leave one out"),
            ("lte 1 ms", "--link: `lte 1 ms`: write a comma behind `lte`"),
            ("up lte", "--link: `lte` is a link with both directions: write it in --link"),
            ("up down 1 ms", "--link: `down 1 ms`: this text is for one direction: leave `down` out"),
            ("mtu 20 B", "--link: `mtu 20 B`: an mtu is 68 B to 65535 B"),
            ("0 bit/s", "--link: a link of rate 0 carries nothing: give it a rate"),
            (
                "droptail many",
                "--link: `many` is no limit of a queue: write `100 packets`, `64 kB` or `50 ms`",
            ),
            ("codel 0 packets", "--link: a queue of nothing carries nothing: give it a limit above 0"),
        ] {
            assert_eq!(refused(text), message);
        }
        for text in ["", "1 ms,", "fast"] {
            let message = refused(text);
            assert!(message.contains("`12 Mbit/s`") && message.contains("geo, leo"), "{message}");
        }
        assert!(refused("reorder 1 %").contains("and there is none: add one"));
        assert!(refused("1 Mbit/s, droptail 100 B").contains("cannot hold a packet"));
        assert!(refused("500000 h, jitter 5000000 h").contains("more than can be counted"));
        assert!(refused(&"1".repeat(MAX_BRIEF + 1)).contains("at most 4096 bytes"));
    }

    #[test]
    fn a_refused_text_changes_nothing() {
        let mut kept = brief("1 Mbit/s").expect("it is a link");
        let before = kept.clone();
        assert!(kept.add("--link", Ways::Both, "20 ms, nonsense").is_err());
        assert_eq!(kept, before);
    }

    /// Pieces of which some are wrong.
    fn pieces() -> impl Strategy<Value = String> {
        let word = prop::sample::select(
            WORDS
                .iter()
                .map(|(word, _)| *word)
                .chain(QUEUES)
                .chain(["lte", "leo", "", "ms", "é"])
                .collect::<Vec<_>>(),
        );
        let value = prop_oneof![
            (any::<u32>(), prop::sample::select(vec!["ms", "Mbit/s", "%", "B", "packets", "", "h", " s"]))
                .prop_map(|(number, unit)| format!("{number} {unit}")),
            (0u32..200, prop::sample::select(vec!["ms", "Mbit/s", "%", "kB", "packets", "%%"]))
                .prop_map(|(number, unit)| format!("{number}.5{unit}")),
            "\\PC{0,12}",
        ];
        let piece = (word, value).prop_map(|(word, value)| format!("{word} {value}"));
        prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.join(","))
    }

    proptest! {
        #[test]
        fn no_text_panics_and_each_makes_a_link_or_a_message(text in prop_oneof![pieces(), "\\PC{0,80}"]) {
            match brief(&text).and_then(|brief| brief.link()) {
                Ok(BriefLink { link, disorder }) => {
                    prop_assert_eq!(&link.name, "link");
                    for Disorder { reordering, corruption } in disorder {
                        prop_assert!((0.0..=1.0).contains(&reordering) && (0.0..=1.0).contains(&corruption));
                    }
                }
                Err(error) => prop_assert!(!error.problem.is_empty() && error.option == "--link"),
            }
        }

        #[test]
        fn amounts_are_those_of_the_text_in_any_order(
            up in 1u64..10_000_000_000, down in 1u64..10_000_000_000, delay in 0u64..100_000_000_000, loss in 0u32..=1000,
            order in Just([0, 1, 2, 3]).prop_shuffle(),
        ) {
            let percent = f64::from(loss) / 10.0;
            let all = [
                format!("up {}", quantity::rate(Rate::from_bps(up))),
                format!("down {}", quantity::rate(Rate::from_bps(down))),
                quantity::span(Duration::from_nanos(delay)),
                format!("loss {percent} %"),
            ];
            let link = made(&order.map(|place| all[place].as_str()).join(",")).link;
            prop_assert_eq!(link.there.rate, Capacity::Rate(Rate::from_bps(up)));
            prop_assert_eq!(link.back.rate, Capacity::Rate(Rate::from_bps(down)));
            prop_assert_eq!([link.there.delay, link.back.delay], [Duration::from_nanos(delay); 2]);
            let expected = match loss {
                0 => Loss::None,
                _ => Loss::Random(crate::link::RandomLoss { probability: percent / 100.0 }),
            };
            prop_assert_eq!(link.there.loss, expected);
        }
    }
}
