//! Lists of sizes in files, one size per line.

use std::str::FromStr;
use std::sync::Arc;

use marcato_units::Bytes;

/// List of UDP payload sizes from a file: a whole number of bytes per line.
///
/// ```
/// use marcato_scenario::sizes::SizeList;
/// let sizes: SizeList = "40\n1400\n576\n".parse()?;
/// assert_eq!((sizes.len(), sizes.largest().1.get()), (3, 1400));
/// assert_eq!("40\n0\n".parse::<SizeList>().unwrap_err().to_string(), "line 2: \"0\" is no size in bytes, 1 to 65507");
/// # Ok::<(), marcato_scenario::sizes::SizeListError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeList {
    /// At least one size. Shared, since many flows may use the same list.
    sizes: Arc<[u16]>,
}

/// Error returned for a text that is not a list of sizes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeListError {
    /// No size in the text.
    #[error("the list is empty: give a line with a size in bytes for each packet")]
    Empty,
    /// Line that is not a size.
    #[error("line {line}: {found:?} is no size in bytes, 1 to {}", SizeList::LARGEST)]
    NotSize {
        /// Number of the line, counted from 1.
        line: usize,
        /// Beginning of the line.
        found: String,
    },
    /// More lines than [`SizeList::MOST`].
    #[error("the list has more than {} lines: cut it", SizeList::MOST)]
    TooMany,
}

/// Number of characters of a line that an error repeats.
const MOST_SHOWN: usize = 24;

impl SizeList {
    /// Largest number of sizes in a list.
    pub const MOST: usize = 1_000_000;

    /// Largest payload of a UDP packet over IPv4, in bytes. RFC 768, RFC 791.
    pub const LARGEST: u16 = 65_507;

    /// Returns the number of sizes; at least one.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the size at this index, counted from 0. The list starts over after its last size.
    pub fn get(&self, number: usize) -> Bytes {
        Bytes::new(self.sizes[number % self.sizes.len()].into())
    }

    /// Returns the line, counted from 1, and the value of the largest size; the first one of
    /// several.
    pub fn largest(&self) -> (usize, Bytes) {
        let (mut line, mut largest) = (1, 0);
        for (number, &size) in (1..).zip(self.sizes.iter()) {
            if size > largest {
                (line, largest) = (number, size);
            }
        }
        (line, Bytes::new(largest.into()))
    }

    /// Returns the mean, rounded down.
    pub fn mean(&self) -> Bytes {
        let sum: u64 = self.sizes.iter().map(|&size| u64::from(size)).sum();
        Bytes::new(sum / self.sizes.len() as u64)
    }

    /// Returns the sizes in order, in bytes.
    pub fn as_slice(&self) -> &[u16] {
        &self.sizes
    }
}

impl FromStr for SizeList {
    type Err = SizeListError;

    fn from_str(text: &str) -> Result<Self, SizeListError> {
        let mut sizes = Vec::new();
        for (line, content) in (1..).zip(text.lines()) {
            if line > Self::MOST {
                return Err(SizeListError::TooMany);
            }
            let content = content.trim();
            match content.parse() {
                Ok(size @ 1..=Self::LARGEST) => sizes.push(size),
                _ => {
                    let found = content.chars().take(MOST_SHOWN).collect();
                    return Err(SizeListError::NotSize { line, found });
                }
            }
        }
        if sizes.is_empty() {
            return Err(SizeListError::Empty);
        }
        Ok(Self { sizes: sizes.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_with_any_line_ends_and_begins_again() {
        let sizes: SizeList = "40\r\n 1400 \n1400\n65507".parse().unwrap();
        assert_eq!(sizes.as_slice(), [40, 1400, 1400, 65507]);
        assert_eq!((sizes.get(4), sizes.get(5)), (Bytes::new(40), Bytes::new(1400)));
        assert_eq!((sizes.largest(), sizes.mean()), ((4, Bytes::new(65_507)), Bytes::new(17_086)));
    }

    #[test]
    fn a_text_that_is_no_list_is_refused_with_its_line() {
        let message = |text: &str| text.parse::<SizeList>().unwrap_err().to_string();
        assert_eq!(message(""), "the list is empty: give a line with a size in bytes for each packet");
        for (text, found) in [("1\n\n2\n", ""), ("1\n65508\n", "65508"), ("1\n1.5\n", "1.5"), ("9\n-1", "-1")]
        {
            assert_eq!(message(text), format!("line 2: {found:?} is no size in bytes, 1 to 65507"));
        }
        assert!(message(&"x".repeat(1000)).len() < 100);
        assert_eq!("1\n".repeat(1_000_001).parse::<SizeList>(), Err(SizeListError::TooMany));
        assert_eq!("1\n".repeat(1_000_000).parse::<SizeList>().unwrap().len(), 1_000_000);
    }
}
