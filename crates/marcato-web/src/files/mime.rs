//! Content types.

use http::HeaderValue;

/// Type of files whose extension is unknown (RFC 2046 §4.5.1).
const UNKNOWN: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Returns the value of `Content-Type` for a path, by its extension.
///
/// Text has the parameter `charset=utf-8`. Other types have a charset of their own, or none.
pub fn content_type(path: &str) -> HeaderValue {
    match mime_guess::from_path(path).first_raw() {
        None => UNKNOWN,
        // RFC 9239 §3: the other types of scripts are obsolete.
        Some("application/javascript") => HeaderValue::from_static("text/javascript; charset=utf-8"),
        Some(text) if text.starts_with("text/") => {
            HeaderValue::try_from(format!("{text}; charset=utf-8")).unwrap_or(UNKNOWN)
        }
        Some(other) => HeaderValue::from_static(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_a_charset_and_other_types_none() {
        for (path, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/B.CSS", "text/css; charset=utf-8"),
            ("a.min.js", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.wasm", "application/wasm"),
            ("a.svg", "image/svg+xml"),
            ("a.avif", "image/avif"),
            ("a.webp", "image/webp"),
            ("a.woff2", "font/woff2"),
            ("a.webmanifest", "application/manifest+json"),
            ("a.tar.gz", "application/gzip"),
            ("LICENSE", "application/octet-stream"),
            ("a.js/b", "application/octet-stream"),
            ("a.unheard-of", "application/octet-stream"),
        ] {
            assert_eq!(content_type(path), expected, "{path}");
        }
    }
}
