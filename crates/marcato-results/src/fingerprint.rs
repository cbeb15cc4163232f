//! Identity of what determines a run.

use ring::digest::{Context, SHA256};

/// Returns the SHA-256 of these texts, in hexadecimal. Each counts with its length, so that two
/// lists are equal only if their texts are.
///
/// ```
/// use marcato_results::fingerprint;
/// assert_ne!(fingerprint(["ab", "c"]), fingerprint(["a", "bc"]));
/// assert_eq!(fingerprint(["a"]).len(), 64);
/// ```
pub fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Context::new(&SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
