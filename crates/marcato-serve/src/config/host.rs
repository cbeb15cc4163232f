//! Names of sites.

use std::fmt;

/// Longest name of a host (RFC 1035 §2.3.4).
const MAX_NAME: usize = 253;

/// Name of a site, or all names directly below one: `*.example.org`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    name: String,
    is_wildcard: bool,
}

/// Error returned for a text that is no name of a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The text has a scheme, a port or a path.
    #[error("{text:?} is more than a name: write the name alone, as \"{}\"", bare(text))]
    More {
        /// Text as given.
        text: String,
    },
    /// An asterisk stands elsewhere than in front.
    #[error("{0:?} has an asterisk within: write \"*.\" in front of a name, as \"*.example.org\"")]
    Asterisk(String),
    /// The name has other characters than a name can have, or a label is too long.
    #[error("{0:?} is no name of a host: use letters, digits and hyphens; other scripts as \"xn--…\"")]
    Name(String),
}

/// Returns what probably was meant: a name without scheme, port and path.
fn bare(text: &str) -> &str {
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    text.split(['/', ':']).next().unwrap_or_default()
}

impl HostPattern {
    /// Reads a pattern. Case does not matter.
    ///
    /// # Errors
    /// If the text is no name, and no name behind `*.`.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let address = text.trim_start_matches('[').trim_end_matches(']');
        if address.parse::<std::net::Ipv6Addr>().is_ok() {
            return Ok(Self { name: address.to_ascii_lowercase(), is_wildcard: false });
        }
        if text.contains(['/', ':']) {
            return Err(HostError::More { text: text.to_owned() });
        }
        let (name, is_wildcard) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
        if name.contains('*') {
            return Err(HostError::Asterisk(text.to_owned()));
        }
        let label = |label: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (1..=63).contains(&label.len()) && label.bytes().all(known) && !label.starts_with('-')
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        if name.len() > MAX_NAME || !name.split('.').all(label) {
            return Err(HostError::Name(text.to_owned()));
        }
        Ok(Self { name: name.to_ascii_lowercase(), is_wildcard })
    }

    /// Name, in lower case, without the `*.` of a wildcard.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True for all names directly below [`name`](Self::name).
    pub const fn is_wildcard(&self) -> bool {
        self.is_wildcard
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_wildcard { "*." } else { "" };
        write!(f, "{star}{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_without_case_and_final_dot() {
        let shown = |text: &str| HostPattern::parse(text).map(|host| host.to_string());
        assert_eq!(shown("Example.ORG."), Ok("example.org".to_owned()));
        assert_eq!(shown("*.Example.org"), Ok("*.example.org".to_owned()));
        assert_eq!(shown("127.0.0.1"), Ok("127.0.0.1".to_owned()));
        assert_eq!(shown("[2001:DB8::1]"), Ok("2001:db8::1".to_owned()));
    }

    #[test]
    fn texts_that_are_no_host_are_refused_with_the_remedy() {
        let refused = |text: &str| HostPattern::parse(text).unwrap_err().to_string();
        assert!(refused("https://example.org/a").ends_with("as \"example.org\""));
        assert!(refused("example.org:443").ends_with("as \"example.org\""));
        assert!(refused("www.*.org").contains("has an asterisk within"));
        for text in ["", ".", "a..b", "a b", "ä.example", "-a.example", &"a".repeat(64)] {
            assert!(refused(text).contains("is no name of a host"), "{text}");
        }
    }
}
