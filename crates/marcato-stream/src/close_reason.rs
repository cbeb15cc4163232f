//! Code and text that an application gives for the end of a connection.

use std::fmt;

use marcato_wire::{Frame, MAX_REASON, Manner};

use crate::Closed;
use crate::sender::put;

/// Code and text that an application gives for the end of a connection. Code 0 without text is that
/// of an application that gives none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CloseReason {
    /// Code, whose meaning the application defines.
    pub code: u32,
    /// Explanation for people.
    pub text: String,
}

impl CloseReason {
    /// Creates a reason. Of `text`, the first 512 bytes count, cut between two characters.
    pub fn new(code: u32, text: impl Into<String>) -> Self {
        let mut text = text.into();
        let boundary = (0..=text.len().min(MAX_REASON)).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(boundary.unwrap_or_default());
        Self { code, text }
    }

    /// Creates the reason that a peer gave. Bytes that are no UTF-8 are replaced.
    pub fn received(code: u32, text: &[u8]) -> Self {
        Self::new(code, String::from_utf8_lossy(text))
    }

    /// Returns the end of the connection of an end whose peer has ended it in this manner.
    pub fn of_peer(self, manner: Manner) -> Closed {
        match manner {
            Manner::Closed => Closed::ByPeer(self),
            Manner::Aborted => Closed::Aborted(self),
        }
    }

    /// Appends a CLOSE frame to `out`: the last frame of a byte stream.
    pub fn write(&self, manner: Manner, out: &mut Vec<u8>) {
        // The fields are public, so the text may be too long.
        let Self { code, text } = Self::new(self.code, self.text.as_str());
        put(out, &Frame::Close { manner, code, len: text.len() });
        out.extend_from_slice(text.as_bytes());
    }

    /// Returns whether the application gave neither a code nor a text.
    pub const fn is_none(&self) -> bool {
        self.code == 0 && self.text.is_empty()
    }
}

/// Continuation of a sentence: empty, or the code and the text in parentheses.
impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.text.as_str()) {
            (0, "") => Ok(()),
            (0, text) => write!(f, " ({text})"),
            (code, "") => write!(f, " (code {code})"),
            (code, text) => write!(f, " (code {code}: {text})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let reason = CloseReason::new(7, format!("{}ü", "x".repeat(511)));
        assert_eq!((reason.code, reason.text), (7, "x".repeat(511)));
        // Each invalid byte becomes three.
        assert!(CloseReason::received(0, &[0xff; 512]).text.len() <= MAX_REASON);
    }

    #[test]
    fn a_reason_continues_a_sentence() {
        let shown = [(0, ""), (0, "bye"), (7, ""), (7, "bye")].map(|(code, text)| {
            let reason = CloseReason::new(code, text);
            assert_eq!(reason.is_none(), (code, text) == (0, ""));
            reason.to_string()
        });
        assert_eq!(shown, ["", " (bye)", " (code 7)", " (code 7: bye)"]);
    }
}
