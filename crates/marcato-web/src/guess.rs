//! Guesses for clients that signal nothing.

use std::collections::BTreeMap;

use marcato_sched::exchange::{Parameters, Urgency};
use marcato_units::Bytes;
use serde::Deserialize;
use thiserror::Error;

use crate::decision::Source;
use crate::names::Names;
use crate::priority::PriorityField;

/// Values of `Sec-Fetch-Dest`: the destinations of the Fetch standard.
const DESTINATIONS: [&str; 23] = [
    "audio",
    "audioworklet",
    "document",
    "embed",
    "empty",
    "fencedframe",
    "font",
    "frame",
    "iframe",
    "image",
    "json",
    "manifest",
    "object",
    "paintworklet",
    "report",
    "script",
    "serviceworker",
    "sharedworker",
    "style",
    "track",
    "video",
    "worker",
    "xslt",
];

/// Guess of the parameters of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guess {
    /// Parameters.
    pub parameters: Parameters,
    /// Property of the request or response that they follow from.
    pub source: Source,
}

/// Properties of a request that tell its purpose. Absent fields are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestHints<'a> {
    /// Path, with or without a query.
    pub path: &'a str,
    /// Value of `Sec-Fetch-Dest`.
    pub destination: Option<&'a [u8]>,
    /// Value of `Sec-Purpose`.
    pub purpose: Option<&'a [u8]>,
    /// Value of `Save-Data`.
    pub save_data: Option<&'a [u8]>,
}

impl RequestHints<'_> {
    /// Returns true if the client asks for less data: `Save-Data: on`.
    pub fn saves_data(&self) -> bool {
        self.save_data.is_some_and(|value| token(value).eq_ignore_ascii_case(b"on"))
    }

    /// Returns true if the client may never need the response: `Sec-Purpose: prefetch`, with or without
    /// a parameter.
    pub fn is_prefetch(&self) -> bool {
        self.purpose.is_some_and(|value| token(value) == b"prefetch")
    }
}

/// Properties of a response that tell its purpose. Absent fields are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseHints<'a> {
    /// Value of `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// Value of `Content-Disposition`.
    pub disposition: Option<&'a [u8]>,
    /// Length of the content, if known.
    pub length: Option<Bytes>,
}

/// Table of guesses, for clients that signal nothing. It is read from a configuration file.
///
/// Its entries add to the [default](Self::default) table or replace entries there. An empty value
/// removes one. Values are written as the `priority` field: `u=2`, or `u=2, i`.
///
/// | key | meaning | default |
/// |---|---|---|
/// | `prefetch` | requests with `Sec-Purpose: prefetch` | `u=4` |
/// | `attachment` | responses with `Content-Disposition: attachment` | `u=6` |
/// | `large` | responses of unknown purpose longer than `large-above-bytes` | `u=6` |
/// | `large-above-bytes` | that length | 1 000 000 |
/// | `decline-prefetch` | [declines](Self::declines) prefetches of clients that save data | false |
/// | `destinations` | by `Sec-Fetch-Dest` | documents and styles `u=0`, scripts and fonts `u=1`, images `u=2, i` … |
/// | `types` | by content type, `image/png` before `image/*` | as destinations; streams of events and gRPC `u=1, i` |
/// | `extensions` | by extension of the path, until the content type is known | as types |
///
/// A script may be deferred without a mark, and is then guessed more urgent than it is. So a guess
/// never replaces a signal.
///
/// ```
/// use marcato_web::{GuessTable, RequestHints, ResponseHints};
///
/// let table: GuessTable = toml::from_str(
///     r#"
///     decline-prefetch = true
///     [types]
///     "application/pdf" = "u=5"
///     [destinations]
///     font = "u=2"
///     "#,
/// )?;
/// let font = RequestHints { path: "/a.woff2", destination: Some(b"font"), ..Default::default() };
/// assert_eq!(table.request(&font).unwrap().parameters.to_string(), "u=2");
///
/// let response = ResponseHints { content_type: Some(b"application/pdf"), ..Default::default() };
/// assert_eq!(table.response(None, &response).unwrap().parameters.to_string(), "u=5");
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Entries")]
pub struct GuessTable {
    prefetch: Option<Parameters>,
    attachment: Option<Parameters>,
    large: Option<Parameters>,
    large_above: Bytes,
    decline_prefetch: bool,
    destinations: Names<Parameters>,
    types: Names<Parameters>,
    /// Entries for all types of a family, such as `image/*`, by the family.
    families: Names<Parameters>,
    extensions: Names<Parameters>,
}

/// Entry of a [`GuessTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuessEntry<'a> {
    /// Requests with `Sec-Purpose: prefetch`.
    Prefetch,
    /// Responses with `Content-Disposition: attachment`.
    Attachment,
    /// Long responses of unknown purpose.
    Large,
    /// Destination of `Sec-Fetch-Dest`.
    Destination(&'a str),
    /// Content type, or a family of them such as `image/*`.
    Type(&'a str),
    /// Extension of a path.
    Extension(&'a str),
}

impl GuessTable {
    /// Guesses from a request; `None` if nothing tells its purpose.
    ///
    /// `Sec-Purpose` comes before `Sec-Fetch-Dest`, and that before the extension.
    pub fn request(&self, hints: &RequestHints<'_>) -> Option<Guess> {
        let prefetch = self.prefetch.filter(|_| hints.is_prefetch());
        let destination = || self.destinations.get(token(hints.destination?));
        let extension = || self.extensions.get(extension(hints.path)?);
        None.or(prefetch.map(|parameters| Guess { parameters, source: Source::Purpose }))
            .or_else(|| destination().map(|parameters| Guess { parameters, source: Source::Destination }))
            .or_else(|| extension().map(|parameters| Guess { parameters, source: Source::Extension }))
    }

    /// Guesses from a response, after the guess from its request; `None` if nothing tells its purpose.
    ///
    /// `Content-Disposition: attachment` comes first. Then the purpose and the destination stay. The
    /// content type replaces the extension. The length counts only if nothing else does.
    pub fn response(&self, request: Option<Guess>, hints: &ResponseHints<'_>) -> Option<Guess> {
        let attached =
            hints.disposition.is_some_and(|value| token(value).eq_ignore_ascii_case(b"attachment"));
        let attachment = self.attachment.filter(|_| attached);
        let stays = request.filter(|guess| guess.source != Source::Extension);
        let content_type = || self.content_type(hints.content_type?);
        let large = || self.large.filter(|_| hints.length.is_some_and(|length| length > self.large_above));
        None.or(attachment.map(|parameters| Guess { parameters, source: Source::Attachment }))
            .or(stays)
            .or_else(|| content_type().map(|parameters| Guess { parameters, source: Source::ContentType }))
            .or(request)
            .or_else(|| large().map(|parameters| Guess { parameters, source: Source::Length }))
    }

    /// Returns true if a request should be answered with status 503, and stored nowhere: the client
    /// saves data, may never need the response, and the table says so.
    pub fn declines(&self, hints: &RequestHints<'_>) -> bool {
        self.decline_prefetch && hints.saves_data() && hints.is_prefetch()
    }

    /// Sets an entry. An empty value removes it.
    ///
    /// # Errors
    /// [`TableError`] if there can be no such entry, or no such value.
    pub fn set(&mut self, entry: GuessEntry<'_>, value: &str) -> Result<(), TableError> {
        let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        // RFC 6838 §4.2.
        let part = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| lower(byte) || b"!#$&-^_.+".contains(&byte))
        };
        let is_type = |(main, sub): (&str, &str)| part(main) && (sub == "*" || part(sub));
        match entry {
            GuessEntry::Prefetch => self.prefetch = parameters("prefetch", value)?,
            GuessEntry::Attachment => self.attachment = parameters("attachment", value)?,
            GuessEntry::Large => self.large = parameters("large", value)?,
            GuessEntry::Destination(key) if !DESTINATIONS.contains(&key) => {
                return Err(TableError::Destination { key: key.to_owned() });
            }
            GuessEntry::Destination(key) => self.destinations.set(key, parameters(key, value)?),
            GuessEntry::Type(key) if !key.split_once('/').is_some_and(is_type) => {
                return Err(TableError::Type { key: key.to_owned() });
            }
            GuessEntry::Type(key) => match key.strip_suffix("/*") {
                Some(family) => self.families.set(family, parameters(key, value)?),
                None => self.types.set(key, parameters(key, value)?),
            },
            GuessEntry::Extension(key) if key.is_empty() || !key.bytes().all(lower) => {
                return Err(TableError::Extension { key: key.to_owned() });
            }
            GuessEntry::Extension(key) => self.extensions.set(key, parameters(key, value)?),
        }
        Ok(())
    }

    /// Sets the length above which a response of unknown purpose counts as large.
    pub const fn set_large_above(&mut self, length: Bytes) {
        self.large_above = length;
    }

    /// Sets whether prefetches of clients that save data are [declined](Self::declines).
    pub const fn set_decline_prefetch(&mut self, declines: bool) {
        self.decline_prefetch = declines;
    }

    fn content_type(&self, value: &[u8]) -> Option<Parameters> {
        let essence = token(value);
        let family = || self.families.get(&essence[..essence.iter().position(|byte| *byte == b'/')?]);
        self.types.get(essence).or_else(family)
    }
}

impl Default for GuessTable {
    /// Table close to the fields that Chromium sends for the same requests.
    fn default() -> Self {
        let table = |rows: &[(&'static str, Parameters)]| {
            rows.iter().flat_map(|(names, value)| names.split(' ').map(|name| (name, *value))).collect()
        };
        let [whole0, whole1, whole2, whole3, whole4, _, whole6, _] = ALL.map(Parameters::sequential);
        let [parts0, parts1, parts2, parts3, ..] = ALL.map(Parameters::incremental);
        Self {
            prefetch: Some(whole4),
            attachment: Some(whole6),
            large: Some(whole6),
            large_above: Bytes::new(1_000_000),
            decline_prefetch: false,
            destinations: table(&[
                ("document", parts0),
                ("style", whole0),
                ("frame iframe", parts1),
                ("font script", whole1),
                ("image", parts2),
                ("manifest worker sharedworker", whole2),
                ("audio video", parts3),
                ("track", whole3),
                ("serviceworker", whole4),
                ("report", whole6),
            ]),
            types: table(&[
                ("text/html application/xhtml+xml", parts0),
                ("text/css", whole0),
                ("text/javascript application/javascript", whole1),
                ("text/event-stream application/grpc application/grpc+proto", parts1),
            ]),
            families: table(&[("font", whole1), ("image", parts2), ("audio video", parts3)]),
            extensions: table(&[
                ("htm html xhtml", parts0),
                ("css", whole0),
                ("js mjs otf ttf woff woff2", whole1),
                ("avif gif ico jpeg jpg png svg webp", parts2),
                ("m4a mp3 mp4 ogg webm", parts3),
            ]),
        }
    }
}

/// All urgencies, most urgent first.
const ALL: [Urgency; Urgency::COUNT] = {
    let mut all = [Urgency::DEFAULT; Urgency::COUNT];
    let mut number = 0;
    while number < 8 {
        if let Some(urgency) = Urgency::new(number) {
            all[urgency.index()] = urgency;
        }
        number += 1;
    }
    all
};

/// Error returned for a table that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// A value is no pair of parameters.
    #[error(
        "`{key}` is \"{value}\": write it as \"u=2\" or \"u=2, i\" with an urgency of 0 to 7, or \"\" to remove it"
    )]
    Value {
        /// Key of the value.
        key: String,
        /// The value.
        value: String,
    },
    /// A destination is unknown.
    #[error("`{key}` is no destination: use one of {}", DESTINATIONS.join(", "))]
    Destination {
        /// The key.
        key: String,
    },
    /// A type is no content type.
    #[error(
        "`{key}` is no content type: write it in lower case without parameters, as \"image/png\" or \"image/*\""
    )]
    Type {
        /// The key.
        key: String,
    },
    /// An extension has other characters than letters and digits.
    #[error("`{key}` is no extension: write it in lower case without a dot, as \"png\"")]
    Extension {
        /// The key.
        key: String,
    },
}

/// Table as a file has it.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
struct Entries {
    prefetch: Option<String>,
    attachment: Option<String>,
    large: Option<String>,
    large_above_bytes: Option<u64>,
    decline_prefetch: bool,
    destinations: BTreeMap<String, String>,
    types: BTreeMap<String, String>,
    extensions: BTreeMap<String, String>,
}

impl TryFrom<Entries> for GuessTable {
    type Error = TableError;

    fn try_from(entries: Entries) -> Result<Self, TableError> {
        let mut table = Self { decline_prefetch: entries.decline_prefetch, ..Self::default() };
        if let Some(bytes) = entries.large_above_bytes {
            table.large_above = Bytes::new(bytes);
        }
        for (entry, value) in [
            (GuessEntry::Prefetch, entries.prefetch),
            (GuessEntry::Attachment, entries.attachment),
            (GuessEntry::Large, entries.large),
        ] {
            value.map_or(Ok(()), |value| table.set(entry, &value))?;
        }
        entries
            .destinations
            .iter()
            .try_for_each(|(key, value)| table.set(GuessEntry::Destination(key), value))?;
        entries.types.iter().try_for_each(|(key, value)| table.set(GuessEntry::Type(key), value))?;
        entries
            .extensions
            .iter()
            .try_for_each(|(key, value)| table.set(GuessEntry::Extension(key), value))?;
        Ok(table)
    }
}

/// Parses a value of the table; an empty one is `None`. Unlike in a message, nothing is ignored.
fn parameters(key: &str, value: &str) -> Result<Option<Parameters>, TableError> {
    if value.is_empty() {
        return Ok(None);
    }
    match PriorityField::parse(value.as_bytes()) {
        Ok(field) if field.urgency.is_some() && field.to_string() == value => Ok(Some(field.parameters())),
        _ => Err(TableError::Value { key: key.to_owned(), value: value.to_owned() }),
    }
}

/// First word of a value, without its parameters.
fn token(value: &[u8]) -> &[u8] {
    // Most have none, which the library finds faster than where they begin.
    let end = if value.contains(&b';') { value.iter().position(|byte| *byte == b';') } else { None };
    value[..end.unwrap_or(value.len())].trim_ascii()
}

/// Extension of the last segment of a path.
fn extension(path: &str) -> Option<&[u8]> {
    let path = path.as_bytes();
    let path = &path[..path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len())];
    let at = path.iter().rposition(|byte| matches!(byte, b'.' | b'/'))?;
    let is_of_segment = path[at] == b'.' && path[..at].contains(&b'/');
    is_of_segment.then(|| &path[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(guess: Option<Guess>) -> Option<(String, Source)> {
        guess.map(|guess| (guess.parameters.to_string(), guess.source))
    }

    fn request(path: &str, destination: &str) -> Option<(String, Source)> {
        let destination = Some(destination.as_bytes()).filter(|value| !value.is_empty());
        shown(GuessTable::default().request(&RequestHints { path, destination, ..RequestHints::default() }))
    }

    fn of_type(content_type: &str) -> Option<(String, Source)> {
        let hints = ResponseHints { content_type: Some(content_type.as_bytes()), ..ResponseHints::default() };
        shown(GuessTable::default().response(None, &hints))
    }

    fn error(file: &str) -> String {
        toml::from_str::<GuessTable>(file).unwrap_err().message().to_owned()
    }

    #[test]
    fn destinations_come_before_extensions() {
        assert_eq!(request("/a.css", "image"), Some(("u=2, i".into(), Source::Destination)));
        assert_eq!(request("/a.css", "empty"), Some(("u=0".into(), Source::Extension)));
        assert_eq!(request("/", "document"), Some(("u=0, i".into(), Source::Destination)));
        assert_eq!(request("/a", "empty"), None);
    }

    #[test]
    fn extensions_are_those_of_the_last_segment() {
        assert_eq!(request("/a.css/b.PNG?c.js#d.html", "").unwrap().0, "u=2, i");
        for path in ["/a.css/b", "a.css", "", "/.", "/a.", "/a.cssx", "/?a.css"] {
            assert_eq!(request(path, ""), None, "{path}");
        }
    }

    #[test]
    fn content_types_are_read_without_parameters() {
        assert_eq!(of_type("Text/HTML; charset=utf-8"), Some(("u=0, i".into(), Source::ContentType)));
        assert_eq!(of_type("image/png").unwrap().0, "u=2, i");
        assert_eq!(of_type("text/event-stream").unwrap().0, "u=1, i");
        for value in ["text/plain", "image", "image;a/b", "", ";", "/", "*/*"] {
            assert_eq!(of_type(value), None, "{value}");
        }
    }

    #[test]
    fn the_response_refines_the_guess() {
        let table = GuessTable::default();
        let css = ResponseHints { content_type: Some(b"text/css"), ..ResponseHints::default() };
        let hints = |path, destination| RequestHints { path, destination, ..RequestHints::default() };
        let by_extension = table.request(&hints("/a.png", None));
        assert_eq!(table.response(by_extension, &css).unwrap().source, Source::ContentType);
        assert_eq!(table.response(by_extension, &ResponseHints::default()), by_extension);
        let by_destination = table.request(&hints("/a.png", Some(b"image")));
        assert_eq!(table.response(by_destination, &css), by_destination);
        let attached = ResponseHints { disposition: Some(b"Attachment; filename=a"), ..css };
        assert_eq!(
            shown(table.response(by_destination, &attached)),
            Some(("u=6".into(), Source::Attachment))
        );
        let inline = ResponseHints { disposition: Some(b"inline"), ..css };
        assert_eq!(table.response(by_destination, &inline), by_destination);
    }

    #[test]
    fn only_large_responses_of_unknown_purpose_step_back() {
        let table = GuessTable::default();
        let of = |length, content_type| {
            let length = Some(Bytes::new(length));
            shown(table.response(None, &ResponseHints { length, content_type, ..ResponseHints::default() }))
        };
        assert_eq!(of(1_000_001, None), Some(("u=6".into(), Source::Length)));
        assert_eq!(of(1_000_000, None), None);
        assert_eq!(of(9_000_000, Some(b"image/png".as_slice())).unwrap().1, Source::ContentType);
    }

    #[test]
    fn prefetches_come_later_and_may_be_declined() {
        let hints = RequestHints {
            path: "/a.css",
            destination: Some(b"style"),
            purpose: Some(b"prefetch;prerender"),
            save_data: Some(b"on"),
        };
        let table = GuessTable::default();
        assert_eq!(shown(table.request(&hints)), Some(("u=4".into(), Source::Purpose)));
        assert!(!table.declines(&hints));
        let table: GuessTable = toml::from_str("decline-prefetch = true").unwrap();
        assert!(table.declines(&hints));
        assert!(!table.declines(&RequestHints { save_data: None, ..hints }));
        assert!(!table.declines(&RequestHints { save_data: Some(b"off"), ..hints }));
        assert!(!table.declines(&RequestHints { purpose: None, ..hints }));
        assert!(!table.declines(&RequestHints { purpose: Some(b"prefetching"), ..hints }));
    }

    #[test]
    fn entries_replace_add_and_remove() {
        let file = "prefetch = \"\"\nlarge-above-bytes = 10\nlarge = \"u=7\"\n[destinations]\nstyle = \"\"\n\
                    [extensions]\nmd = \"u=5, i\"\ncss = \"u=2\"\n[types]\n\"a/*\" = \"u=1, i=?0\"";
        let table: GuessTable = toml::from_str(file).unwrap();
        let hints = RequestHints {
            path: "/a.css",
            destination: Some(b"style"),
            purpose: Some(b"prefetch"),
            ..RequestHints::default()
        };
        assert_eq!(shown(table.request(&hints)), Some(("u=2".into(), Source::Extension)));
        let hints = RequestHints { path: "/a.md", ..RequestHints::default() };
        assert_eq!(shown(table.request(&hints)).unwrap().0, "u=5, i");
        let long = ResponseHints { length: Some(Bytes::new(11)), ..ResponseHints::default() };
        assert_eq!(shown(table.response(None, &long)).unwrap().0, "u=7");
        let typed = ResponseHints { content_type: Some(b"a/b"), ..long };
        assert_eq!(shown(table.response(None, &typed)).unwrap().0, "u=1");
        assert_eq!(toml::from_str::<GuessTable>("").unwrap(), GuessTable::default());
    }

    #[test]
    fn errors_say_what_to_write() {
        for value in ["u=8", "i", "u=2,i", "U=2", "u=2, p=1", "urgent", " u=2"] {
            let message = error(&format!("[types]\n\"a/b\" = \"{value}\""));
            assert!(message.starts_with(&format!("`a/b` is \"{value}\": write it as")), "{message}");
        }
        assert!(error("[destinations]\nstylesheet = \"u=0\"").contains("script, serviceworker"));
        for key in ["text", "Text/css", "text/", "*/*", "text/css; a=b", "/css"] {
            assert!(error(&format!("[types]\n\"{key}\" = \"u=0\"")).contains("is no content type"), "{key}");
        }
        for key in [".png", "PNG", ""] {
            assert!(
                error(&format!("[extensions]\n\"{key}\" = \"u=0\"")).contains("is no extension"),
                "{key}"
            );
        }
        assert!(error("prefetches = \"u=1\"").contains("unknown field `prefetches`"));
        assert!(error("large = \"later\"").starts_with("`large` is \"later\""));
    }

    #[test]
    fn every_default_destination_exists() {
        assert!(GuessTable::default().destinations.names().all(|name| DESTINATIONS.contains(&name)));
        assert!(DESTINATIONS.is_sorted());
    }
}
