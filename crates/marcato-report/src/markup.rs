//! Escaping of text for HTML and SVG.

use std::borrow::Cow;

/// Escapes `text` for the inside of an element or a quoted attribute, in HTML and in XML.
/// Characters that XML 1.0 does not allow become U+FFFD.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    let harmless = |c: char| !matches!(c, '&' | '<' | '>' | '"' | '\'') && allowed(c);
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if allowed(c) => escaped.push(c),
            _ => escaped.push('\u{fffd}'),
        }
    }
    Cow::Owned(escaped)
}

/// Returns true for a character that XML allows: XML 1.0 (fifth edition) §2.2, production Char.
const fn allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_could_end_text_or_an_attribute_is_escaped() {
        assert_eq!(escape("<a b='c' d=\"e\">&"), "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;");
    }

    #[test]
    fn harmless_text_is_passed_on_untouched() {
        assert!(matches!(escape("P0 ≤ 130 ms – ok"), Cow::Borrowed("P0 ≤ 130 ms – ok")));
    }

    #[test]
    fn characters_that_xml_forbids_are_replaced() {
        assert_eq!(escape("a\0b\u{1b}c\u{ffff}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
    }
}
