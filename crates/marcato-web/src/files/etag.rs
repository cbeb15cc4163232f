//! Entity tags: RFC 9110 §8.8.3.

use http::HeaderValue;

/// Entity tag of a representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntityTag {
    value: HeaderValue,
    weak: bool,
}

impl EntityTag {
    /// Creates a tag of the length and a hash of everything else that identifies the content.
    pub(super) fn new(len: u64, hash: u64, weak: bool) -> Self {
        let prefix = if weak { "W/" } else { "" };
        let value = HeaderValue::try_from(format!("{prefix}\"{len:x}-{hash:016x}\""))
            .unwrap_or(HeaderValue::from_static("W/\"\""));
        Self { value, weak }
    }

    /// Value of the field `ETag`.
    pub(super) const fn value(&self) -> &HeaderValue {
        &self.value
    }

    /// Returns true if the tag cannot tell two versions of the same second apart.
    pub(super) const fn is_weak(&self) -> bool {
        self.weak
    }

    /// Opaque part, with its quotes.
    fn opaque(&self) -> &[u8] {
        let value = self.value.as_bytes();
        value.strip_prefix(b"W/").unwrap_or(value)
    }

    /// Returns true if a list names this tag: `*`, or a tag that is equal.
    ///
    /// A malformed list names the tags before its error.
    pub(super) fn is_in(&self, list: &[u8], comparison: Comparison) -> bool {
        list.trim_ascii() == b"*" || Tags(list).any(|tag| self.equals(&tag, comparison))
    }

    /// Returns true if a value is one tag, and that is equal.
    pub(super) fn is(&self, value: &[u8], comparison: Comparison) -> bool {
        let mut tags = Tags(value);
        let first = tags.next();
        tags.0.is_empty() && first.is_some_and(|tag| self.equals(&tag, comparison))
    }

    /// Compares two tags (RFC 9110 §8.8.3.2).
    fn equals(&self, other: &Tag<'_>, comparison: Comparison) -> bool {
        let strong = !self.weak && !other.weak;
        (comparison == Comparison::Weak || strong) && self.opaque() == other.opaque
    }
}

/// Comparison of tags (RFC 9110 §8.8.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Equal opaque parts suffice.
    Weak,
    /// Neither tag may be weak.
    Strong,
}

/// Tag in a list.
struct Tag<'a> {
    weak: bool,
    /// Opaque part, with its quotes.
    opaque: &'a [u8],
}

/// Tags of a list that is not read yet. Malformed text ends it.
struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = Tag<'a>;

    fn next(&mut self) -> Option<Tag<'a>> {
        while let [b' ' | b'\t' | b',', rest @ ..] = self.0 {
            self.0 = rest;
        }
        // RFC 9110 §8.8.3: the weakness indicator is case-sensitive.
        let (weak, rest) = self.0.strip_prefix(b"W/").map_or((false, self.0), |rest| (true, rest));
        let inner = rest.strip_prefix(b"\"")?;
        // Opaque parts may contain commas, but no quotes and no spaces.
        let end = inner.iter().position(|byte| !matches!(byte, 0x21 | 0x23..=0x7e | 0x80..))?;
        if inner[end] != b'"' {
            return None;
        }
        self.0 = &inner[end + 1..];
        Some(Tag { weak, opaque: &rest[..end + 2] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tag(weak: bool) -> EntityTag {
        EntityTag::new(255, 1, weak)
    }

    fn lists(list: &str) -> (bool, bool) {
        let tag = tag(false);
        let list = list.as_bytes();
        (tag.is_in(list, Comparison::Weak), tag.is_in(list, Comparison::Strong))
    }

    #[test]
    fn tags_are_written_with_quotes() {
        assert_eq!(tag(false).value(), "\"ff-0000000000000001\"");
        assert_eq!(tag(true).value(), "W/\"ff-0000000000000001\"");
    }

    #[test]
    fn lists_are_searched() {
        for (list, found) in [
            ("\"ff-0000000000000001\"", (true, true)),
            ("W/\"ff-0000000000000001\"", (true, false)),
            ("\"a,b\", \"\" ,,\t\"ff-0000000000000001\"", (true, true)),
            ("*", (true, true)),
            (" * ", (true, true)),
            ("\"*\"", (false, false)),
            ("\"ff-1\"", (false, false)),
            ("w/\"ff-0000000000000001\"", (false, false)),
            ("ff-0000000000000001", (false, false)),
            ("\"ff-0000000000000001", (false, false)),
            ("x, \"ff-0000000000000001\"", (false, false)),
            ("\"a b\", \"ff-0000000000000001\"", (false, false)),
            ("", (false, false)),
        ] {
            assert_eq!(lists(list), found, "{list}");
        }
    }

    #[test]
    fn weak_tags_never_match_strongly() {
        let value = tag(true).value().clone();
        assert!(tag(true).is(value.as_bytes(), Comparison::Weak));
        assert!(!tag(true).is(value.as_bytes(), Comparison::Strong));
        assert!(!tag(true).is(tag(false).value().as_bytes(), Comparison::Strong));
    }

    #[test]
    fn a_single_tag_stands_alone() {
        let value = "\"ff-0000000000000001\"";
        assert!(tag(false).is(value.as_bytes(), Comparison::Strong));
        assert!(!tag(false).is(format!("{value}, {value}").as_bytes(), Comparison::Strong));
        assert!(!tag(false).is(b"*", Comparison::Strong));
    }

    proptest! {
        #[test]
        fn tags_are_found_at_any_place(before in "(\"[!#-~]{0,5}\",? ?){0,3}", len in any::<u64>(), hash in any::<u64>()) {
            let tag = EntityTag::new(len, hash, false);
            let list = format!("{before}{}", tag.value().to_str().unwrap());
            prop_assert!(tag.is_in(list.as_bytes(), Comparison::Strong));
        }
    }
}
