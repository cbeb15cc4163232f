//! Content types that are compressed.

use http::HeaderValue;

use super::config::CompressionError;

/// Set of content types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Types(Vec<Pattern>);

/// Content type, or several of them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// The one of this name.
    Exact(String),
    /// Those that begin and end so: `text/*`, `application/*+json`.
    Between(String, String),
}

/// Types of streams whose messages are small and must not wait. Only their whole name asks for them.
fn is_stream(name: &[u8]) -> bool {
    let begins = |with: &[u8]| name.get(..with.len()).is_some_and(|it| it.eq_ignore_ascii_case(with));
    begins(b"application/grpc") || name.eq_ignore_ascii_case(b"text/event-stream")
}

impl Types {
    pub(super) fn parse(names: &[String]) -> Result<Self, CompressionError> {
        let is_token = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
        };
        let read = |name: &String| {
            let fault = || CompressionError::Type(name.clone());
            let (kind, subtype) = name.split_once('/').ok_or_else(fault)?;
            let pattern = match subtype.split_once('*') {
                None if !subtype.is_empty() && is_token(subtype) => Pattern::Exact(name.clone()),
                Some((before, after)) if is_token(before) && is_token(after) => {
                    Pattern::Between(format!("{kind}/{before}"), after.to_owned())
                }
                _ => return Err(fault()),
            };
            if kind.is_empty() || !is_token(kind) { Err(fault()) } else { Ok(pattern) }
        };
        Ok(Self(names.iter().map(read).collect::<Result<_, _>>()?))
    }

    /// Returns the types of names that are known to be ones.
    pub(super) fn known(names: &[String]) -> Self {
        Self::parse(names).unwrap_or(Self(Vec::new()))
    }

    /// Returns true if a value of `Content-Type` is one of these types.
    pub(super) fn has(&self, value: &HeaderValue) -> bool {
        // RFC 9110 §8.3.1: the type ends before its parameters, and is case-insensitive.
        let name = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let stream = is_stream(name);
        self.0.iter().any(|pattern| match pattern {
            Pattern::Exact(exact) => name.eq_ignore_ascii_case(exact.as_bytes()),
            Pattern::Between(before, after) => {
                let rest = name.len().checked_sub(before.len());
                !stream
                    && rest.is_some_and(|rest| rest >= after.len())
                    && name[..before.len()].eq_ignore_ascii_case(before.as_bytes())
                    && name[name.len() - after.len()..].eq_ignore_ascii_case(after.as_bytes())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(names: &[&str]) -> Types {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Types::parse(&names).unwrap()
    }

    fn has(types: &Types, value: &'static str) -> bool {
        types.has(&HeaderValue::from_static(value))
    }

    #[test]
    fn types_are_compared_without_case_and_parameters() {
        let types = types(&["text/html", "image/*", "application/*+json", "application/vnd.*"]);
        for value in [
            "text/html",
            "Text/HTML;charset=utf-8",
            "text/html ; charset=utf-8",
            "image/svg+xml",
            "application/ld+json",
            "APPLICATION/LD+JSON",
            "application/+json",
            "application/vnd.x",
        ] {
            assert!(has(&types, value), "{value}");
        }
        for value in [
            "",
            "text",
            "text/plain",
            "text/htmlx",
            "text/htm",
            "application/json",
            "application/ld+jsonx",
            "application+json",
            "xapplication/ld+json",
            "application/vn",
        ] {
            assert!(!has(&types, value), "{value}");
        }
    }

    #[test]
    fn streams_of_messages_are_named_in_full() {
        let streams =
            ["text/event-stream", "application/grpc", "application/grpc-web+proto", "Application/gRPC+json"];
        let wide = types(&["text/*", "application/*", "application/*+json"]);
        assert!(has(&wide, "text/plain") && has(&wide, "application/json"));
        for value in streams {
            assert!(!has(&wide, value), "{value}");
        }
        let asked = types(&["text/event-stream", "application/grpc+proto"]);
        assert!(has(&asked, "text/event-stream; charset=utf-8") && has(&asked, "application/grpc+proto"));
        assert!(!has(&asked, "application/grpc"));
    }

    #[test]
    fn names_that_are_no_types_are_refused() {
        for name in [
            "",
            "text",
            "/html",
            "text/",
            "text/a b",
            "*",
            "*/*",
            "te*t/html",
            "text/*x*",
            "a/b/c",
            "text/html;q=1",
        ] {
            let result = Types::parse(&[name.to_owned()]);
            assert_eq!(result, Err(CompressionError::Type(name.to_owned())), "{name}");
        }
    }
}
