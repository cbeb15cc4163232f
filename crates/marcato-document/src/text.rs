//! Bytes that should be text.

/// Position at which bytes stop being UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not text, for the byte 0x{byte:02x} is not UTF-8 here")]
pub struct NoText {
    /// Counted from 1.
    pub line: usize,
    /// Counted in characters from 1.
    pub column: usize,
    /// First byte that is not valid UTF-8.
    pub byte: u8,
    /// Text of the line, with replacements for invalid bytes.
    pub text: String,
}

/// Reads bytes as UTF-8 text.
///
/// # Errors
/// The position of the first byte that is not.
pub fn text(bytes: Vec<u8>) -> Result<String, NoText> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let before = String::from_utf8_lossy(&bytes[..at]);
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // Binary data may contain no newline. The line then extends to the end, and only its first
        // 4096 bytes are kept.
        let line = bytes[start..].split(|byte| *byte == b'\n').next().unwrap_or_default();
        NoText {
            line: before.matches('\n').count() + 1,
            column,
            byte: bytes[at],
            text: String::from_utf8_lossy(&line[..line.len().min(4096)]).into_owned(),
        }
    })
}
