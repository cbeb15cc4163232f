//! The `priority` field: RFC 9218 §4 and §5.

use core::convert::Infallible;
use core::fmt;

use marcato_sched::exchange::{Parameters, Urgency};
use sfv::visitor::{DictionaryVisitor, EntryVisitor, Ignored, InnerListVisitor, ItemVisitor};
use sfv::{BareItemFromInput, KeyRef, Parser};
use thiserror::Error;

/// Value of a `priority` field: the parameters that it has.
///
/// An absent parameter differs from one with the default value. In a request, an absent parameter
/// has its default (RFC 9218 §4). In a response, it leaves the client's value as it is (RFC 9218
/// §8). The default of this type has no parameter.
///
/// ```
/// use marcato_sched::exchange::{Parameters, Urgency};
/// use marcato_web::PriorityField;
///
/// let client = PriorityField::parse(b"u=5, i")?;
/// let origin = PriorityField::parse(b"u=1")?;
/// assert_eq!(origin.incremental, None);
/// assert_eq!(origin.over(client.parameters()), Parameters::incremental(Urgency::new(1).unwrap()));
/// assert_eq!(origin.to_string(), "u=1");
/// # Ok::<(), marcato_web::FieldError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PriorityField {
    /// Urgency `u` (RFC 9218 §4.1); `None` if absent.
    pub urgency: Option<Urgency>,
    /// Parameter `i` (RFC 9218 §4.2); `None` if absent.
    pub incremental: Option<bool>,
}

impl PriorityField {
    /// Most bytes of a value, over all its lines: 256. No client needs a tenth of that.
    pub const MAX_LEN: usize = 256;

    /// Parses the value of one line.
    ///
    /// Unknown members are ignored, and so are `u` and `i` of another type or out of range (RFC 9218
    /// §4). The last of several equal keys counts (RFC 9651 §3.2).
    ///
    /// # Errors
    /// [`FieldError`] if the value is no structured dictionary, or is too long. A field of a message
    /// is then ignored as a whole (RFC 9651 §4.2).
    pub fn parse(value: &[u8]) -> Result<Self, FieldError> {
        if value.len() > Self::MAX_LEN {
            return Err(FieldError::TooLong);
        }
        Parser::new(value).parse_dictionary_with_visitor(Self::default()).map_err(|_| FieldError::Malformed)
    }

    /// Parses the values of all lines of a message, which form one dictionary (RFC 9651 §4.2).
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn combine<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, FieldError> {
        let mut value = [0; Self::MAX_LEN];
        let mut len = 0;
        for (index, line) in lines.into_iter().enumerate() {
            let comma: &[u8] = if index == 0 { b"" } else { b", " };
            for part in [comma, line] {
                value.get_mut(len..len + part.len()).ok_or(FieldError::TooLong)?.copy_from_slice(part);
                len += part.len();
            }
        }
        Self::parse(&value[..len])
    }

    /// Returns the parameters, with defaults for those absent.
    pub fn parameters(self) -> Parameters {
        self.over(Parameters::default())
    }

    /// Returns `base` with the parameters that are present in its place (RFC 9218 §8).
    #[must_use]
    pub fn over(self, base: Parameters) -> Parameters {
        Parameters {
            urgency: self.urgency.unwrap_or(base.urgency),
            incremental: self.incremental.unwrap_or(base.incremental),
            ..base
        }
    }

    /// Returns true if no parameter is present. Such a field is not written.
    pub const fn is_empty(self) -> bool {
        self.urgency.is_none() && self.incremental.is_none()
    }
}

impl From<Parameters> for PriorityField {
    /// Creates a field that has both parameters. Urgencies that HTTP does not have are written as the least
    /// urgent one (RFC 9218 §4.1).
    fn from(parameters: Parameters) -> Self {
        let urgency = parameters.urgency.min(Urgency::LEAST);
        Self { urgency: Some(urgency), incremental: Some(parameters.incremental) }
    }
}

impl fmt::Display for PriorityField {
    /// Writes the value as a message has it: `u=1, i`, or `i=?0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(urgency) = self.urgency {
            write!(f, "{urgency}")?;
        }
        let Some(incremental) = self.incremental else { return Ok(()) };
        let comma = if self.urgency.is_some() { ", " } else { "" };
        // RFC 9651 §4.1.2: the value of a true member is omitted.
        write!(f, "{comma}{}", if incremental { "i" } else { "i=?0" })
    }
}

/// Error returned for a value that is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// The value is longer than [`PriorityField::MAX_LEN`].
    #[error("the value exceeds {} bytes: send `u` and `i` only", PriorityField::MAX_LEN)]
    TooLong,
    /// The value is no structured dictionary.
    #[error("the value is no structured dictionary (RFC 9651): write it as `u=3, i`")]
    Malformed,
}

impl<'de> DictionaryVisitor<'de> for PriorityField {
    type Out = Self;
    type Error = Infallible;

    fn entry(&mut self, key: &'de KeyRef) -> Result<impl EntryVisitor<'de>, Infallible> {
        Ok(match key.as_str() {
            "u" => Some(Member::Urgency(&mut self.urgency)),
            "i" => Some(Member::Incremental(&mut self.incremental)),
            _ => None,
        })
    }

    fn finish(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

/// Member of the dictionary whose value is about to be read.
enum Member<'a> {
    Urgency(&'a mut Option<Urgency>),
    Incremental(&'a mut Option<bool>),
}

impl<'de> EntryVisitor<'de> for Member<'_> {
    type Error = Infallible;

    fn item(self) -> Result<impl ItemVisitor<'de>, Infallible> {
        Ok(move |item: BareItemFromInput<'de>| {
            // RFC 9218 §4: values of another type or out of range are ignored. Of equal keys the last
            // counts (RFC 9651 §3.2), so that an unusable one also removes the value before it.
            match self {
                Self::Urgency(urgency) => {
                    let number = item.as_integer().and_then(|number| u8::try_from(i64::from(number)).ok());
                    *urgency = number.and_then(Urgency::new);
                }
                Self::Incremental(incremental) => *incremental = item.as_boolean(),
            }
            Ok::<_, Infallible>(Ignored)
        })
    }

    fn inner_list(self) -> Result<impl InnerListVisitor<'de>, Infallible> {
        match self {
            Self::Urgency(urgency) => *urgency = None,
            Self::Incremental(incremental) => *incremental = None,
        }
        Ok(Ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(urgency: Option<u8>, incremental: Option<bool>) -> PriorityField {
        PriorityField { urgency: urgency.map(|u| Urgency::new(u).unwrap()), incremental }
    }

    fn parse(value: &str) -> Result<PriorityField, FieldError> {
        PriorityField::parse(value.as_bytes())
    }

    #[test]
    fn members_are_read() {
        assert_eq!(parse("u=0, i"), Ok(field(Some(0), Some(true))));
        assert_eq!(parse("i=?0,u=7"), Ok(field(Some(7), Some(false))));
        assert_eq!(parse(" u=3 "), Ok(field(Some(3), None)));
        assert_eq!(parse("i=?1;foo=1"), Ok(field(None, Some(true))));
        assert_eq!(parse(""), Ok(PriorityField::default()));
    }

    #[test]
    fn unknown_members_of_any_type_are_ignored() {
        let value = r#"a=1.5, b="u=1", c=:aGk=:, d=(u 1);u=2, e=tok, u=2, f, g=@1659578233, *x=%"f%c3%bc""#;
        assert_eq!(parse(value), Ok(field(Some(2), None)));
    }

    #[test]
    fn values_out_of_range_or_of_another_type_are_ignored() {
        for value in
            ["u=8", "u=-1", "u=1.0", "u=\"1\"", "u", "u=(1)", "u=?1", "u=256", "i=1", "i=(a)", "i=tok"]
        {
            assert_eq!(parse(value), Ok(PriorityField::default()), "{value}");
        }
    }

    #[test]
    fn the_last_of_equal_members_counts_even_if_unusable() {
        assert_eq!(parse("u=1, u=5"), Ok(field(Some(5), None)));
        assert_eq!(parse("u=1, u=9, i, i=()"), Ok(PriorityField::default()));
    }

    #[test]
    fn malformed_values_are_refused_as_a_whole() {
        for value in [
            "u=1,",
            ",u=1",
            "u=1 i",
            "U=1",
            "u=",
            "u==1",
            "u=1, i=?2",
            "u=1;",
            "u=1, \u{e9}",
            "u=1, x=\"",
            "\0",
        ] {
            assert_eq!(parse(value), Err(FieldError::Malformed), "{value}");
        }
    }

    #[test]
    fn lines_form_one_dictionary() {
        let lines = |lines: &[&str]| PriorityField::combine(lines.iter().map(|line| line.as_bytes()));
        assert_eq!(lines(&["u=1", "i"]), Ok(field(Some(1), Some(true))));
        assert_eq!(lines(&["u=1, i", "u=6"]), Ok(field(Some(6), Some(true))));
        assert_eq!(lines(&["u=1", "i=?"]), Err(FieldError::Malformed));
        assert_eq!(lines(&[]), Ok(PriorityField::default()));
    }

    #[test]
    fn long_values_are_refused() {
        let long = format!("u=1, {}", "a".repeat(PriorityField::MAX_LEN - 5));
        assert_eq!(parse(&long), Ok(field(Some(1), None)));
        assert_eq!(parse(&format!("{long}a")), Err(FieldError::TooLong));
        let lines = [long.as_bytes(), b""];
        assert_eq!(PriorityField::combine(lines), Err(FieldError::TooLong));
    }

    #[test]
    fn only_present_members_override() {
        let client = parse("u=5, i").unwrap().parameters();
        assert_eq!(parse("u=1").unwrap().over(client).to_string(), "u=1, i");
        assert_eq!(parse("i=?0").unwrap().over(client).to_string(), "u=5");
        assert_eq!(parse("u=3").unwrap().over(client).to_string(), "u=3, i");
        assert_eq!(PriorityField::default().over(client), client);
        assert_eq!(PriorityField::default().parameters(), Parameters::default());
        assert!(PriorityField::default().is_empty() && !parse("i").unwrap().is_empty());
        assert!(!PriorityField::from(Parameters::default()).is_empty());
    }

    proptest! {
        #[test]
        fn values_that_are_read_are_written_alike(value in "[ui=?01239,; ()\":@%.a-]{0,40}") {
            if let Ok(parsed) = parse(&value) {
                prop_assert_eq!(parse(&parsed.to_string()), Ok(parsed));
            }
        }

        #[test]
        fn written_fields_are_read_back(
            urgency in proptest::option::of(0..8_u8),
            incremental in any::<Option<bool>>(),
        ) {
            let field = field(urgency, incremental);
            prop_assert_eq!(parse(&field.to_string()), Ok(field));
        }

        #[test]
        fn lines_read_as_their_join(lines in proptest::collection::vec("[ui=?0139,]{0,9}", 0..5)) {
            let combined = PriorityField::combine(lines.iter().map(String::as_bytes));
            prop_assert_eq!(combined, parse(&lines.join(", ")));
        }
    }
}
