//! Byte ranges: RFC 9110 §14.

use std::ops::Range;

/// Most ranges of a request that are sent as parts. More of them get the whole file (RFC 9110 §14.2).
pub(super) const MAX_RANGES: usize = 8;

/// Content that a `Range` field asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// All of it: the field is absent, malformed, of another unit, or not worth obeying.
    Whole,
    /// Ranges in the order of the request: at least one, none empty, none overlapping.
    Parts(Vec<Range<u64>>),
    /// Nothing, because every range begins after the end (RFC 9110 §15.5.17).
    Unsatisfiable,
}

impl Selection {
    /// Parses a value for content of `len` bytes.
    ///
    /// RFC 9110 §14.2 permits a server to ignore the field. This one does so for malformed values and
    /// for sets that overlap or have more than [`MAX_RANGES`] members.
    pub(super) fn parse(value: &[u8], len: u64) -> Self {
        parse(value, len).unwrap_or(Self::Whole)
    }
}

/// Returns the selection, or `None` if the field is ignored.
fn parse(value: &[u8], len: u64) -> Option<Selection> {
    let equals = value.iter().position(|byte| *byte == b'=')?;
    // RFC 9110 §14.1: names of units are case-insensitive.
    if !value[..equals].eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut parts = Vec::new();
    let mut count = 0;
    for member in value[equals + 1..].split(|byte| *byte == b',') {
        let member = trim(member);
        // RFC 9110 §5.6.1.2: recipients MUST accept a reasonable number of empty members.
        if member.is_empty() {
            continue;
        }
        count += 1;
        if count > MAX_RANGES {
            return None;
        }
        parts.extend(parse_range(member, len)?);
    }
    if count == 0 {
        return None;
    }
    if parts.is_empty() {
        return Some(Selection::Unsatisfiable);
    }
    let mut sorted: Vec<_> = parts.iter().collect();
    sorted.sort_by_key(|part| part.start);
    let overlaps = sorted.windows(2).any(|pair| pair[0].end > pair[1].start);
    (!overlaps).then_some(Selection::Parts(parts))
}

/// Returns one range: nothing in it if it cannot be satisfied, `None` if the field is ignored.
fn parse_range(member: &[u8], len: u64) -> Option<Option<Range<u64>>> {
    let dash = member.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&member[..dash], &member[dash + 1..]);
    if first.is_empty() {
        // RFC 9110 §14.1.2: a suffix longer than the content selects all of it, one of length zero is
        // unsatisfiable. `Content-Range` cannot express all of an empty file.
        return match number(last)? {
            0 => Some(None),
            _ if len == 0 => None,
            suffix => Some(Some(len.saturating_sub(suffix)..len)),
        };
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    // RFC 9110 §14.1.1: a range whose end lies before its start is invalid.
    if last < first {
        return None;
    }
    Some((first < len).then(|| first..last.saturating_add(1).min(len)))
}

/// Parses a decimal number. One that is too large for the type exceeds every file.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| match digit {
        b'0'..=b'9' => Some(number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))),
        _ => None,
    })
}

/// Removes optional white space at both ends (RFC 9110 §5.6.3).
fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn select(value: &str, len: u64) -> Selection {
        Selection::parse(value.as_bytes(), len)
    }

    fn parts(ranges: impl IntoIterator<Item = Range<u64>>) -> Selection {
        Selection::Parts(ranges.into_iter().collect())
    }

    #[test]
    fn single_ranges_are_read() {
        for (value, range) in [
            ("bytes=0-0", 0..1),
            ("bytes=0-9", 0..10),
            ("Bytes=5-", 5..10),
            ("bytes=5-99999999999999999999999", 5..10),
            ("bytes=-3", 7..10),
            ("bytes=-10", 0..10),
            ("bytes=-11", 0..10),
            ("bytes=,\t 2-3 ,", 2..4),
        ] {
            assert_eq!(select(value, 10), parts([range]), "{value}");
        }
    }

    #[test]
    fn several_ranges_keep_their_order() {
        assert_eq!(select("bytes=8-, 0-1,2-3", 10), parts([8..10, 0..2, 2..4]));
        assert_eq!(select("bytes=20-30,-1", 10), parts(Some(9..10)));
    }

    #[test]
    fn ranges_after_the_end_are_unsatisfiable() {
        for value in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=11-,-0", "bytes=99999999999999999999-"] {
            assert_eq!(select(value, 10), Selection::Unsatisfiable, "{value}");
        }
        assert_eq!(select("bytes=0-", 0), Selection::Unsatisfiable);
        assert_eq!(select("bytes=-1", 0), Selection::Whole);
    }

    #[test]
    fn malformed_fields_are_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=1",
            "bytes=-",
            "bytes=2-1",
            "bytes=a-b",
            "bytes=1-2-3",
            "bytes=1 - 2",
            "bytes =1-2",
            "items=0-1",
            "bytes=0-1,x",
            "bytes=+1-2",
            "bytes=0x1-2",
            "bytes=--1",
        ] {
            assert_eq!(select(value, 10), Selection::Whole, "{value}");
        }
    }

    #[test]
    fn overlapping_or_many_ranges_get_the_whole_file() {
        assert_eq!(select("bytes=0-5,5-6", 10), Selection::Whole);
        assert_eq!(select("bytes=0-,-1", 10), Selection::Whole);
        let many = |count: u64| {
            let ranges: Vec<_> = (0..count).map(|at| format!("{at}-{at}")).collect();
            select(&format!("bytes={}", ranges.join(",")), 10)
        };
        assert!(matches!(many(8), Selection::Parts(parts) if parts.len() == MAX_RANGES));
        assert_eq!(many(9), Selection::Whole);
    }

    proptest! {
        #[test]
        fn parts_lie_within_the_content(value in "bytes=[0-9, -]{0,30}", len in 0..40_u64) {
            if let Selection::Parts(parts) = select(&value, len) {
                prop_assert!(!parts.is_empty() && parts.len() <= MAX_RANGES);
                for (index, part) in parts.iter().enumerate() {
                    prop_assert!(part.start < part.end && part.end <= len);
                    let disjoint = |other: &Range<u64>| other.end <= part.start || part.end <= other.start;
                    prop_assert!(parts[..index].iter().all(disjoint));
                }
            }
        }

        #[test]
        fn a_range_selects_from_first_to_last(first in 0..100_u64, more in 0..100_u64, len in 1..100_u64) {
            let selection = select(&format!("bytes={first}-{}", first + more), len);
            if first < len {
                prop_assert_eq!(selection, parts(Some(first..(first + more + 1).min(len))));
            } else {
                prop_assert_eq!(selection, Selection::Unsatisfiable);
            }
        }
    }
}
