//! TLS secrets, for programs that decrypt captures.

use std::fmt;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::KeyLog;

/// Limit of the bytes kept until they are taken: some thousand connections.
const MAX_KEPT: usize = 1 << 20;

/// TLS secrets of the connections that a [server](crate::Identity::log_secrets) accepts, as lines
/// of an SSLKEYLOGFILE (draft-ietf-tls-keylogfile).
///
/// They decrypt all traffic of these connections, and are meant for captures of one's own tests.
/// Clones share the lines, at most a megabyte; secrets beyond that are counted and discarded.
#[derive(Clone, Default)]
pub struct Secrets(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    lines: String,
    missed: u64,
}

impl Secrets {
    /// Takes the lines logged since the last call.
    pub fn take(&self) -> String {
        std::mem::take(&mut self.kept().lines)
    }

    /// Returns the number of secrets for which there was no room.
    pub fn missed(&self) -> u64 {
        self.kept().missed
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        // Lines are appended whole, so a panic leaves no partial line.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Secrets {
    /// Omits the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

impl KeyLog for Secrets {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut kept = self.kept();
        let len = label.len() + 2 * (client_random.len() + secret.len()) + 3;
        if kept.lines.len() + len > MAX_KEPT {
            kept.missed += 1;
            return;
        }
        let lines = &mut kept.lines;
        lines.push_str(label);
        for part in [client_random, secret] {
            lines.push(' ');
            for byte in part {
                // Writing to a string cannot fail.
                let _ = write!(lines, "{byte:02x}");
            }
        }
        lines.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_lines_of_hexadecimal_digits_and_bounded() {
        let secrets = Secrets::default();
        secrets.clone().log("CLIENT_TRAFFIC_SECRET_0", &[1, 0xab], &[0, 255, 16]);
        assert!(!format!("{secrets:?}").contains("00ff10"));
        assert_eq!(secrets.take(), "CLIENT_TRAFFIC_SECRET_0 01ab 00ff10\n");
        assert_eq!((secrets.take().as_str(), secrets.missed()), ("", 0));
        for _ in 0..MAX_KEPT / 100 {
            secrets.log("SERVER_TRAFFIC_SECRET_0", &[0; 32], &[0; 32]);
        }
        assert!(secrets.missed() > 0 && secrets.take().len() <= MAX_KEPT);
    }
}
