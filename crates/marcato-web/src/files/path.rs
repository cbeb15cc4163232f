//! Paths of requests.

use std::borrow::Cow;

use thiserror::Error;

/// Directory of the root that is served although its name begins with a dot (RFC 8615 §3).
const WELL_KNOWN: &str = ".well-known";

/// Path of a file below the root: decoded, without a leading slash, without `.` and `..`.
///
/// The path of a directory ends with a slash. That of the root is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePath<'a>(Cow<'a, str>);

impl<'a> FilePath<'a> {
    /// Parses the path of a request target.
    ///
    /// Empty segments and those of one dot are dropped. A segment of two dots is refused: clients
    /// resolve it before they send the path (RFC 3986 §5.2.4).
    pub(super) fn parse(raw: &'a str, hidden: bool) -> Result<Self, PathError> {
        let relative = raw.strip_prefix('/').ok_or(PathError::Relative)?;
        if let Some(path) = plain(relative) {
            if !hidden {
                refuse_hidden(path)?;
            }
            return Ok(Self(Cow::Borrowed(path)));
        }
        let mut path = String::with_capacity(relative.len());
        let mut is_directory = true;
        for segment in relative.split('/') {
            let segment = decode(segment)?;
            is_directory = matches!(&*segment, "" | ".");
            match &*segment {
                "" | "." => continue,
                ".." => return Err(PathError::Parent),
                _ => {}
            }
            if segment.contains(['/', '\\', '\0']) {
                return Err(PathError::Character);
            }
            path.push_str(&segment);
            path.push('/');
        }
        if !is_directory {
            path.pop();
        }
        if !hidden {
            refuse_hidden(&path)?;
        }
        Ok(Self(Cow::Owned(path)))
    }

    /// Returns the path as the file system has it, relative to the root.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the path names a directory.
    pub(super) fn is_directory(&self) -> bool {
        self.0.is_empty() || self.0.ends_with('/')
    }
}

/// Returns the path if it stands for itself. Almost all paths do, and cost no memory.
fn plain(relative: &str) -> Option<&str> {
    if relative.bytes().any(|byte| matches!(byte, b'%' | b'\\' | 0)) {
        return None;
    }
    let segments = relative.strip_suffix('/').unwrap_or(relative);
    let is_plain = relative.is_empty() || segments.split('/').all(|part| !matches!(part, "" | "." | ".."));
    is_plain.then_some(relative)
}

/// Returns an error if a segment is hidden.
fn refuse_hidden(path: &str) -> Result<(), PathError> {
    let mut segments = path.split('/').enumerate();
    if segments.any(|(index, part)| is_hidden(index == 0, part)) {
        return Err(PathError::Hidden);
    }
    Ok(())
}

/// Returns true if a name is hidden: if it begins with a dot, and is not `.well-known` in the root.
pub(super) fn is_hidden(in_root: bool, name: &str) -> bool {
    name.starts_with('.') && !(in_root && name == WELL_KNOWN)
}

/// Decodes the percent-encoding of a segment, once (RFC 3986 §2.4).
fn decode(segment: &str) -> Result<Cow<'_, str>, PathError> {
    if !segment.contains('%') {
        return Ok(Cow::Borrowed(segment));
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => digit(rest.next())? << 4 | digit(rest.next())?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| PathError::NotUtf8)
}

/// Returns the value of a hexadecimal digit.
fn digit(byte: Option<u8>) -> Result<u8, PathError> {
    match byte {
        Some(byte @ b'0'..=b'9') => Ok(byte - b'0'),
        Some(byte @ b'a'..=b'f') => Ok(byte - b'a' + 10),
        Some(byte @ b'A'..=b'F') => Ok(byte - b'A' + 10),
        _ => Err(PathError::Encoding),
    }
}

/// Appends a segment in a form that a reference may contain: everything except unreserved characters
/// is percent-encoded (RFC 3986 §2.3).
pub(super) fn encode(segment: &str, into: &mut String) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            into.push(char::from(byte));
        } else {
            into.extend(['%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

/// Error returned for a path that is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum PathError {
    /// The target has no path of a resource, as `*`.
    #[error("the path does not begin with a slash: ask for a path of this server")]
    Relative,
    /// A percent sign lacks its digits.
    #[error("the path has an incomplete percent-encoding: write % and two hexadecimal digits")]
    Encoding,
    /// The decoded path is not UTF-8.
    #[error("the path is not UTF-8: encode it as UTF-8 first, then percent-encode it")]
    NotUtf8,
    /// A name contains a slash, a backslash or NUL.
    #[error("the path has an encoded slash, a backslash or NUL: separate names by plain slashes")]
    Character,
    /// A segment is `..`.
    #[error("the path has a segment of two dots: resolve it before sending")]
    Parent,
    /// A name begins with a dot.
    #[error("not found")]
    Hidden,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(raw: &str) -> Result<String, PathError> {
        FilePath::parse(raw, false).map(|path| path.as_str().to_owned())
    }

    #[test]
    fn plain_paths_are_borrowed() {
        for raw in ["/", "/a", "/a/b.js", "/a/b/", "/caf\u{e9}", "/.well-known/x", "/a...b/c.."] {
            let path = FilePath::parse(raw, false).unwrap();
            assert_eq!(path, FilePath(Cow::Borrowed(&raw[1..])));
            assert!(matches!(path.0, Cow::Borrowed(_)), "{raw}");
        }
    }

    #[test]
    fn paths_are_decoded_once() {
        assert_eq!(parse("/a%20b/%c3%A9"), Ok("a b/\u{e9}".to_owned()));
        assert_eq!(parse("/%2541"), Ok("%41".to_owned()));
        assert_eq!(parse("/%252e%252e/x"), Ok("%2e%2e/x".to_owned()));
        assert_eq!(parse("/a+b?"), Ok("a+b?".to_owned()));
    }

    #[test]
    fn empty_segments_and_single_dots_are_dropped() {
        for (raw, path) in [
            ("//", ""),
            ("//evil.example/x", "evil.example/x"),
            ("/a//b/", "a/b/"),
            ("/a/./b", "a/b"),
            ("/a/.", "a/"),
            ("/a/%2e", "a/"),
            ("/.", ""),
        ] {
            assert_eq!(parse(raw), Ok(path.to_owned()), "{raw}");
        }
    }

    #[test]
    fn traversal_is_refused() {
        for raw in ["/..", "/../etc/passwd", "/a/../b", "/%2e%2e/x", "/.%2E/x", "/a/%2e./", "/a/.."] {
            assert_eq!(parse(raw), Err(PathError::Parent), "{raw}");
            assert_eq!(FilePath::parse(raw, true), Err(PathError::Parent), "{raw}");
        }
        for raw in ["/a%2fb", "/..%2f..%2fetc", "/a%5cb", "/a\\..\\b", "/a%00b", "/%2F"] {
            assert_eq!(parse(raw), Err(PathError::Character), "{raw}");
        }
    }

    #[test]
    fn malformed_paths_are_refused() {
        for raw in ["/%", "/%4", "/%4g", "/a%/b", "/%%41", "/%+1"] {
            assert_eq!(parse(raw), Err(PathError::Encoding), "{raw}");
        }
        assert_eq!(parse("/%ff"), Err(PathError::NotUtf8));
        assert_eq!(parse("/%c3/%a9"), Err(PathError::NotUtf8));
        assert_eq!(parse("*"), Err(PathError::Relative));
        assert_eq!(parse(""), Err(PathError::Relative));
    }

    #[test]
    fn dot_files_are_hidden_except_the_well_known() {
        for raw in ["/.git/config", "/a/.env", "/%2ehtaccess", "/a/.well-known/x", "/.well-known/.x", "/..."]
        {
            assert_eq!(parse(raw), Err(PathError::Hidden), "{raw}");
            assert!(FilePath::parse(raw, true).is_ok(), "{raw}");
        }
        assert_eq!(parse("/.well-known/acme"), Ok(".well-known/acme".to_owned()));
        assert_eq!(parse("/%2ewell-known/a"), Ok(".well-known/a".to_owned()));
    }

    #[test]
    fn trailing_slashes_name_directories() {
        for (raw, is_directory) in
            [("/", true), ("/a", false), ("/a/", true), ("/a%20/", true), ("/a/.", true)]
        {
            assert_eq!(FilePath::parse(raw, false).unwrap().is_directory(), is_directory, "{raw}");
        }
    }

    proptest! {
        #[test]
        fn parsed_paths_stay_below_the_root(raw in "/?([a.%\\\\\\x00-]|%2e|%2f|%5c|/|\u{e9}){0,24}") {
            if let Ok(path) = FilePath::parse(&raw, true) {
                let path = path.as_str();
                prop_assert!(!path.starts_with('/') && !path.contains(['\\', '\0']));
                let segments: Vec<_> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
                let fine = |part: &&str| !matches!(*part, "" | "." | "..");
                prop_assert!(path.is_empty() || segments.iter().all(fine), "{:?}", path);
            }
        }

        #[test]
        fn encoded_segments_are_decoded_again(segment in "\\PC{1,20}") {
            let mut encoded = String::new();
            encode(&segment, &mut encoded);
            prop_assert!(encoded.is_ascii());
            prop_assert_eq!(decode(&encoded), Ok(Cow::Borrowed(segment.as_str())));
        }
    }
}
