//! Progress of one response.

use http::request::Parts;
use http::{Method, StatusCode, Version};
use marcato_units::{Bytes, Duration, Priority};

use crate::decision::Decision;

/// Most bytes of a target that are kept.
const MAX_TARGET: usize = 512;
/// Most decisions that are kept: the first ones, and the latest.
const MAX_DECISIONS: usize = 8;
/// Most spans of granted bytes. If there would be more, neighbours are merged.
const MAX_SPANS: usize = 48;
/// Time between two grants that are one span, at first. Other responses then have none between them.
const GAP: Duration = Duration::from_millis(2);

/// End of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All of it was sent.
    Complete,
    /// The client has reset it.
    Reset,
    /// Its handler failed.
    Failed,
    /// The connection ended before it.
    Broken,
}

impl Outcome {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Reset => "reset",
            Self::Failed => "failed",
            Self::Broken => "broken",
        }
    }
}

/// Bytes that were granted one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Times of the first and the last grant, since the connection began.
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    /// Content before it.
    pub(crate) offset: Bytes,
    pub(crate) len: Bytes,
    /// Level of its last bytes.
    pub(crate) level: Priority,
}

/// Progress of a response. All times are since the connection began.
///
/// It takes 3 kB at most.
#[derive(Clone, Debug)]
pub(crate) struct ResponseTrace {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) version: Version,
    pub(crate) asked_at: Duration,
    pub(crate) decisions: Vec<(Duration, Decision)>,
    pub(crate) head: Option<(Duration, StatusCode, Option<u64>)>,
    /// Time from which content could be sent.
    pub(crate) supplied_at: Option<Duration>,
    pub(crate) spans: Vec<Span>,
    /// Time between two grants that are one span.
    gap: Duration,
    pub(crate) bytes: Bytes,
    pub(crate) end: Option<(Duration, Outcome)>,
}

impl ResponseTrace {
    pub(super) fn new(at: Duration, head: &Parts, decision: Decision) -> Self {
        let target = match head.uri.path_and_query() {
            Some(path) => path.as_str(),
            None => "",
        };
        Self {
            method: head.method.clone(),
            target: cut(target),
            version: head.version,
            asked_at: at,
            decisions: vec![(at, decision)],
            head: None,
            supplied_at: None,
            spans: Vec::new(),
            gap: GAP,
            bytes: Bytes::ZERO,
            end: None,
        }
    }

    pub(super) fn decided(&mut self, at: Duration, decision: Decision) {
        if self.decision() == Some(decision) {
            return;
        }
        self.decisions.truncate(MAX_DECISIONS - 1);
        self.decisions.push((at, decision));
    }

    /// Latest decision.
    pub(crate) fn decision(&self) -> Option<Decision> {
        self.decisions.last().map(|(_, decision)| *decision)
    }

    /// Notes a grant. It is `in_turn` if no other response had one since the last of this one.
    pub(super) fn granted(&mut self, at: Duration, bytes: usize, level: Priority, in_turn: bool) {
        let len = Bytes::new(bytes as u64);
        let offset = self.bytes;
        self.bytes += len;
        if let Some(last) = self.spans.last_mut()
            && last.level == level
            && at.saturating_sub(last.to) <= self.gap
            && (in_turn || self.gap > GAP)
        {
            last.to = at;
            last.len += len;
            return;
        }
        if self.spans.len() == MAX_SPANS {
            self.merge();
        }
        self.spans.push(Span { from: at, to: at, offset, len, level });
    }

    /// Merges each two neighbours. Later grants are merged more readily.
    fn merge(&mut self) {
        self.gap *= 2;
        let merged = self.spans.chunks(2).map(|pair| match *pair {
            [first, second] => {
                Span { to: second.to, len: first.len + second.len, level: second.level, ..first }
            }
            _ => pair[0],
        });
        self.spans = merged.collect();
    }
}

/// Beginning of a text, within the bound.
fn cut(text: &str) -> String {
    if text.len() <= MAX_TARGET {
        return text.to_owned();
    }
    let end = (0..=MAX_TARGET).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
pub(crate) mod tests {
    use http::Request;
    use marcato_sched::exchange::Parameters;
    use proptest::prelude::*;

    use super::*;
    use crate::decision::Source;

    const DECISION: Decision = Decision {
        parameters: Parameters::sequential(marcato_sched::exchange::Urgency::DEFAULT),
        source: Source::Header,
    };

    pub(crate) fn response(target: &str) -> ResponseTrace {
        let (head, ()) = Request::get(target).body(()).unwrap().into_parts();
        ResponseTrace::new(Duration::ZERO, &head, DECISION)
    }

    #[test]
    fn long_targets_are_cut() {
        let long = format!("/{}", "a".repeat(5000));
        assert!(response(&long).target.len() <= MAX_TARGET + '…'.len_utf8());
        assert_eq!(response("/a?b").target, "/a?b");
    }

    #[test]
    fn the_first_decisions_and_the_latest_are_kept() {
        let mut trace = response("/");
        for number in 0..30 {
            let urgency = marcato_sched::exchange::Urgency::new(number % 8).unwrap();
            let parameters = Parameters { incremental: number > 7, ..Parameters::sequential(urgency) };
            trace.decided(
                Duration::from_millis(number.into()),
                Decision { parameters, source: Source::Update },
            );
        }
        assert_eq!(trace.decisions.len(), MAX_DECISIONS);
        assert_eq!(trace.decision().unwrap().parameters.to_string(), "u=5, i");
    }

    #[test]
    fn grants_in_a_row_are_one_span_of_a_level() {
        let mut trace = response("/");
        let ms = Duration::from_millis;
        for (at, level) in [(0, Priority::P2), (1, Priority::P2), (2, Priority::P0), (90, Priority::P0)] {
            trace.granted(ms(at), 100, level, true);
        }
        trace.granted(ms(90), 100, Priority::P0, false);
        let spans: Vec<_> =
            trace.spans.iter().map(|span| (span.from, span.to, span.offset.get(), span.len.get())).collect();
        assert_eq!(
            spans,
            [
                (ms(0), ms(1), 0, 200),
                (ms(2), ms(2), 200, 100),
                (ms(90), ms(90), 300, 100),
                (ms(90), ms(90), 400, 100)
            ]
        );
    }

    proptest! {
        #[test]
        fn spans_are_bounded_and_hold_all_bytes_in_order(
            grants in prop::collection::vec((0..200_u64, 1..5000_usize, 0..5_usize, any::<bool>()), 1..2000),
        ) {
            let mut trace = response("/");
            let (mut now, mut total) = (Duration::ZERO, 0);
            for (wait, bytes, level, in_turn) in grants {
                now += Duration::from_millis(wait);
                total += bytes as u64;
                trace.granted(now, bytes, Priority::ALL[level], in_turn);
                prop_assert!(trace.spans.len() <= MAX_SPANS);
            }
            prop_assert_eq!(trace.bytes.get(), total);
            let mut offset = 0;
            for span in &trace.spans {
                prop_assert_eq!(span.offset.get(), offset);
                prop_assert!(span.from <= span.to && span.to <= now);
                offset += span.len.get();
            }
            prop_assert_eq!(offset, total);
            prop_assert!(trace.spans.is_sorted_by_key(|span| span.from));
        }
    }
}
