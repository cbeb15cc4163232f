//! Queue of a class before CRQ took its place, so that it can be put back.

use std::fmt;

use serde_json::Value;

use crate::queues::Queue;

/// Queue of a class, in the words by which `tc` makes it again.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Leaf(String);

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Form in which `tc` reads an option that it shows.
#[derive(Clone, Copy)]
enum Form {
    /// The name, and a number.
    Number(&'static str),
    /// The name, and a number of microseconds.
    Micros(&'static str),
    /// Name and time of CoDel, which counts in units of 1024 ns and shows the microseconds rounded down: with one more,
    /// the units are the same again.
    CodelTime(&'static str),
    /// The name, and a number of bytes per second; or a word.
    Rate(&'static str),
    /// One word for true, and one for false.
    Flag(&'static str, &'static str),
    /// The name, and a number in a text that says its base; none for 0.
    Mask(&'static str),
    /// The value is the word, unless it is `unlimited` or `unknown`.
    Word,
    /// A word for each value.
    Words(&'static [(&'static str, &'static str)]),
}

/// Options by their names in the output of `tc`.
type Options = &'static [(&'static str, Form)];

const FIFO: Options = &[("limit", Form::Number("limit"))];
const CODEL: Options = &[
    ("limit", Form::Number("limit")),
    ("target", Form::CodelTime("target")),
    ("interval", Form::CodelTime("interval")),
    ("ce_threshold", Form::CodelTime("ce_threshold")),
    ("ecn", Form::Flag("ecn", "noecn")),
];
const FQ_CODEL: Options = &[
    ("limit", Form::Number("limit")),
    ("flows", Form::Number("flows")),
    ("quantum", Form::Number("quantum")),
    ("target", Form::CodelTime("target")),
    ("interval", Form::CodelTime("interval")),
    ("ce_threshold", Form::CodelTime("ce_threshold")),
    ("memory_limit", Form::Number("memory_limit")),
    ("drop_batch", Form::Number("drop_batch")),
    ("ecn", Form::Flag("ecn", "noecn")),
];
const CAKE: Options = &[
    ("bandwidth", Form::Rate("bandwidth")),
    ("autorate", Form::Word),
    ("diffserv", Form::Word),
    ("flowmode", Form::Word),
    ("nat", Form::Flag("nat", "nonat")),
    ("wash", Form::Flag("wash", "nowash")),
    ("ingress", Form::Flag("ingress", "egress")),
    (
        "ack-filter",
        Form::Words(&[
            ("aggressive", "ack-filter-aggressive"),
            ("enabled", "ack-filter"),
            ("disabled", "no-ack-filter"),
        ]),
    ),
    ("split_gso", Form::Flag("split-gso", "no-split-gso")),
    ("rtt", Form::Micros("rtt")),
    // Before the overhead, which is 0 with it.
    ("raw", Form::Flag("raw", "")),
    ("atm", Form::Word),
    ("overhead", Form::Number("overhead")),
    ("mpu", Form::Number("mpu")),
    ("memlimit", Form::Number("memlimit")),
    ("fwmark", Form::Mask("fwmark")),
];

/// Options of the kinds of queue that can be put back.
fn options(kind: &str) -> Option<Options> {
    match kind {
        "pfifo" | "bfifo" | "pfifo_head_drop" => Some(FIFO),
        "codel" => Some(CODEL),
        "fq_codel" => Some(FQ_CODEL),
        "cake" => Some(CAKE),
        _ => None,
    }
}

impl Leaf {
    /// Words that make this queue again; `None` if it has a kind or an option that these words do not cover.
    pub fn of(queue: &Queue) -> Option<Self> {
        let known = options(&queue.kind)?;
        if queue.options.keys().any(|name| known.iter().all(|(of, _)| of != name)) {
            return None;
        }
        let mut words = vec![format!("handle {} {}", queue.handle, queue.kind)];
        let is_raw = queue.options.get("raw") == Some(&Value::Bool(true));
        for (name, form) in known {
            match (queue.options.get(*name), form) {
                // tc shows no `ecn` where there is none.
                (None, Form::Flag("ecn", no)) => words.push((*no).to_owned()),
                (None, _) => {}
                // `raw` is what no overhead, no cells and no least size are.
                (Some(_), _) if is_raw && matches!(*name, "overhead" | "atm" | "mpu") => {}
                (Some(value), form) => words.extend(form.words(value)?),
            }
        }
        words.retain(|word| !word.is_empty());
        Some(Self(words.join(" ")))
    }
}

impl Leaf {
    /// Returns whether the queue has this handle.
    pub(crate) fn has_handle(&self, handle: &str) -> bool {
        self.0.split(' ').nth(1) == Some(handle)
    }

    /// Returns this queue with a handle that the kernel chooses.
    pub(crate) fn without_handle(&self) -> Self {
        Self(self.0.splitn(3, ' ').nth(2).unwrap_or_default().to_owned())
    }
}

impl Form {
    /// Words of a value; `None` if it is none of this form.
    fn words(self, value: &Value) -> Option<Option<String>> {
        let word = match (self, value) {
            (Self::Number(name), Value::Number(number)) => format!("{name} {number}"),
            (Self::Mask(_), Value::String(mask)) if matches!(mask.as_str(), "0" | "0x0") => {
                return Some(None);
            }
            (Self::Mask(name), Value::String(mask))
                if mask
                    .strip_prefix("0x")
                    .is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit())) =>
            {
                format!("{name} {mask}")
            }
            (Self::Micros(name), Value::Number(number)) => format!("{name} {number}us"),
            (Self::CodelTime(name), Value::Number(number)) => format!("{name} {}us", number.as_u64()? + 1),
            (Self::Rate(name), Value::Number(number)) => format!("{name} {number}bps"),
            (Self::Flag(yes, no), Value::Bool(is_set)) => if *is_set { yes } else { no }.to_owned(),
            (Self::Rate(_) | Self::Word, Value::String(word)) => match word.as_str() {
                "unlimited" => return Some(None),
                "unknown" => return None,
                word if word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') => {
                    word.to_owned()
                }
                _ => return None,
            },
            (Self::Words(words), Value::String(word)) => {
                words.iter().find_map(|(of, to)| (of == word).then(|| (*to).to_owned()))?
            }
            _ => return None,
        };
        Some(Some(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(json: &str) -> Option<String> {
        Leaf::of(&serde_json::from_str(json).unwrap()).map(|leaf| leaf.to_string())
    }

    #[test]
    fn queues_are_made_again_by_the_words_of_tc() {
        for (json, words) in [
            (r#"{"kind":"pfifo","handle":"20:","options":{"limit":1000}}"#, "handle 20: pfifo limit 1000"),
            (
                r#"{"kind":"codel","handle":"8001:","options":{"limit":1000,"target":4999,"interval":99999}}"#,
                "handle 8001: codel limit 1000 target 5000us interval 100000us noecn",
            ),
            (
                r#"{"kind":"fq_codel","handle":"110:","options":{"limit":10240,"flows":1024,"quantum":1514,"target":4999,"interval":99999,"memory_limit":33554432,"ecn":true,"drop_batch":64}}"#,
                "handle 110: fq_codel limit 10240 flows 1024 quantum 1514 target 5000us interval 100000us memory_limit 33554432 drop_batch 64 ecn",
            ),
            (
                r#"{"kind":"cake","handle":"8002:","options":{"bandwidth":"unlimited","diffserv":"diffserv4","flowmode":"triple-isolate","nat":false,"wash":false,"ingress":false,"ack-filter":"disabled","split_gso":true,"rtt":100000,"raw":true,"overhead":0,"fwmark":"0"}}"#,
                "handle 8002: cake diffserv4 triple-isolate nonat nowash egress no-ack-filter split-gso rtt 100000us raw",
            ),
            (
                r#"{"kind":"cake","handle":"8003:","options":{"bandwidth":12500000,"diffserv":"besteffort","flowmode":"dual-dsthost","nat":true,"wash":true,"ingress":true,"ack-filter":"aggressive","split_gso":false,"rtt":30000,"raw":false,"atm":"ptm","overhead":30,"mpu":68,"memlimit":4194304,"fwmark":"0xff00"}}"#,
                "handle 8003: cake bandwidth 12500000bps besteffort dual-dsthost nat wash ingress ack-filter-aggressive no-split-gso rtt 30000us ptm overhead 30 mpu 68 memlimit 4194304 fwmark 0xff00",
            ),
        ] {
            assert_eq!(leaf(json).as_deref(), Some(words));
        }
    }

    #[test]
    fn a_queue_that_is_not_known_whole_is_not_made_again() {
        for json in [
            r#"{"kind":"red","handle":"20:","options":{"limit":1000}}"#,
            r#"{"kind":"pfifo","handle":"20:","options":{"limit":1000,"new":1}}"#,
            r#"{"kind":"pfifo","handle":"20:","options":{"limit":"much"}}"#,
            r#"{"kind":"cake","handle":"20:","options":{"diffserv":"unknown"}}"#,
            r#"{"kind":"cake","handle":"20:","options":{"diffserv":"a b"}}"#,
            r#"{"kind":"cake","handle":"20:","options":{"fwmark":"some"}}"#,
            r#"{"kind":"cake","handle":"20:","options":{"ack-filter":"new"}}"#,
        ] {
            assert_eq!(leaf(json), None, "{json}");
        }
    }
}
