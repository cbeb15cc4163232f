//! Conditional requests: RFC 9110 §13.

use std::time::UNIX_EPOCH;

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName};

use super::etag::{Comparison, EntityTag};

/// Validators of a representation (RFC 9110 §8.8).
#[derive(Clone, Copy, Debug)]
pub(super) struct Validators<'a> {
    /// Entity tag.
    pub(super) tag: &'a EntityTag,
    /// Time of the last modification, in seconds of Unix.
    pub(super) modified: u64,
}

/// Result of the preconditions of a GET or HEAD request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precondition {
    /// The request is answered as usual.
    Holds,
    /// The client has the content: 304.
    NotModified,
    /// The client wants another version of the content: 412.
    Failed,
}

impl Precondition {
    /// Evaluates the fields in the order of RFC 9110 §13.2.2, steps 1 to 4.
    pub(super) fn evaluate(headers: &HeaderMap, validators: Validators<'_>) -> Self {
        if headers.contains_key(IF_MATCH) {
            // RFC 9110 §13.1.1: an origin server MUST use the strong comparison.
            if !is_listed(headers, IF_MATCH, validators.tag, Comparison::Strong) {
                return Self::Failed;
            }
        } else if date(headers, IF_UNMODIFIED_SINCE).is_some_and(|date| validators.modified > date) {
            // RFC 9110 §13.1.4: this field MUST be ignored beside `If-Match`.
            return Self::Failed;
        }
        // RFC 9110 §13.1.3: `If-Modified-Since` MUST be ignored beside `If-None-Match`.
        let is_current = if headers.contains_key(IF_NONE_MATCH) {
            // RFC 9110 §13.1.2: a recipient MUST use the weak comparison.
            is_listed(headers, IF_NONE_MATCH, validators.tag, Comparison::Weak)
        } else {
            date(headers, IF_MODIFIED_SINCE).is_some_and(|date| validators.modified <= date)
        };
        if is_current { Self::NotModified } else { Self::Holds }
    }
}

/// Returns false if `If-Range` demands the whole content (RFC 9110 §13.1.5).
pub(super) fn permits_range(headers: &HeaderMap, validators: Validators<'_>) -> bool {
    let mut lines = headers.get_all(IF_RANGE).iter();
    let Some(value) = lines.next() else { return true };
    if lines.next().is_some() {
        return false;
    }
    match date(headers, IF_RANGE) {
        // RFC 9110 §13.1.5: a date MUST match exactly, and be a strong validator. It is none while the
        // file may change again within the same second (RFC 9110 §8.8.2.2).
        Some(date) => date == validators.modified && !validators.tag.is_weak(),
        None => validators.tag.is(value.as_bytes(), Comparison::Strong),
    }
}

/// Returns true if any line of a field lists the tag.
fn is_listed(headers: &HeaderMap, name: HeaderName, tag: &EntityTag, comparison: Comparison) -> bool {
    headers.get_all(name).iter().any(|line| tag.is_in(line.as_bytes(), comparison))
}

/// Returns the date of a field in seconds of Unix. RFC 9110 §13.1.3 and §13.1.4: an invalid date MUST
/// be ignored, and so are several lines.
fn date(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    let mut lines = headers.get_all(name).iter();
    let (Some(value), None) = (lines.next(), lines.next()) else { return None };
    let date = httpdate::parse_http_date(value.to_str().ok()?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const MODIFIED: u64 = 784_111_777;
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const EQUAL: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const TAG: &str = "\"a-0000000000000001\"";
    const WEAK: &str = "W/\"a-0000000000000001\"";

    fn map(fields: &[(HeaderName, &str)]) -> HeaderMap {
        let fields = fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        let mut map = HeaderMap::new();
        fields.for_each(|(name, value)| {
            map.append(name, value);
        });
        map
    }

    fn evaluate(fields: &[(HeaderName, &str)]) -> Precondition {
        let tag = EntityTag::new(10, 1, false);
        Precondition::evaluate(&map(fields), Validators { tag: &tag, modified: MODIFIED })
    }

    fn permits(weak: bool, values: &[&str]) -> bool {
        let fields: Vec<_> = values.iter().map(|value| (IF_RANGE, *value)).collect();
        let tag = EntityTag::new(10, 1, weak);
        permits_range(&map(&fields), Validators { tag: &tag, modified: MODIFIED })
    }

    #[test]
    fn fields_have_the_precedence_of_the_rfc() {
        use Precondition::{Failed, Holds, NotModified};
        let (im, inm) = (IF_MATCH, IF_NONE_MATCH);
        let (ims, ius) = (IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE);
        let table: &[(&[(HeaderName, &str)], Precondition)] = &[
            (&[], Holds),
            // Step 1.
            (&[(im.clone(), TAG)], Holds),
            (&[(im.clone(), "*")], Holds),
            (&[(im.clone(), "\"b\"")], Failed),
            (&[(im.clone(), WEAK)], Failed),
            (&[(im.clone(), "nonsense")], Failed),
            (&[(im.clone(), "\"b\""), (im.clone(), TAG)], Holds),
            // Step 2, which a present step 1 replaces.
            (&[(ius.clone(), EARLIER)], Failed),
            (&[(ius.clone(), EQUAL)], Holds),
            (&[(ius.clone(), LATER)], Holds),
            (&[(ius.clone(), "yesterday")], Holds),
            (&[(im.clone(), TAG), (ius.clone(), EARLIER)], Holds),
            (&[(im.clone(), "\"b\""), (ius.clone(), LATER)], Failed),
            // Step 3.
            (&[(inm.clone(), TAG)], NotModified),
            (&[(inm.clone(), WEAK)], NotModified),
            (&[(inm.clone(), "*")], NotModified),
            (&[(inm.clone(), "\"b\"")], Holds),
            (&[(inm.clone(), "\"b\""), (inm.clone(), TAG)], NotModified),
            // Step 4, which a present step 3 replaces.
            (&[(ims.clone(), EARLIER)], Holds),
            (&[(ims.clone(), EQUAL)], NotModified),
            (&[(ims.clone(), LATER)], NotModified),
            (&[(ims.clone(), "0")], Holds),
            (&[(ims.clone(), LATER), (ims.clone(), LATER)], Holds),
            (&[(inm.clone(), "\"b\""), (ims.clone(), LATER)], Holds),
            (&[(inm.clone(), TAG), (ims.clone(), EARLIER)], NotModified),
            // Steps 1 and 2 come before steps 3 and 4.
            (&[(im.clone(), "\"b\""), (inm.clone(), TAG)], Failed),
            (&[(im.clone(), TAG), (inm.clone(), TAG)], NotModified),
            (&[(ius.clone(), EARLIER), (ims.clone(), LATER)], Failed),
            (&[(ius.clone(), EQUAL), (ims.clone(), EQUAL)], NotModified),
        ];
        for (fields, result) in table {
            assert_eq!(evaluate(fields), *result, "{fields:?}");
        }
    }

    #[test]
    fn all_forms_of_dates_are_read() {
        for date in [EQUAL, "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(evaluate(&[(IF_MODIFIED_SINCE, date)]), Precondition::NotModified, "{date}");
        }
    }

    #[test]
    fn ranges_need_an_exact_strong_validator() {
        assert!(permits(false, &[]));
        assert!(permits(false, &[TAG]) && permits(false, &[EQUAL]));
        for value in [WEAK, "\"b\"", EARLIER, LATER, "*", "", "nonsense"] {
            assert!(!permits(false, &[value]), "{value}");
        }
        assert!(!permits(true, &[TAG]) && !permits(true, &[WEAK]) && !permits(true, &[EQUAL]));
        assert!(!permits(false, &[TAG, TAG]));
    }
}
