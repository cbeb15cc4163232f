//! Destinations of the text output.

/// Output format. Tables go to standard output unless a JSON document does; progress goes to
/// standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Print {
    pub(crate) json: bool,
}

impl Print {
    pub(crate) fn line(self, line: &str) {
        if !self.json {
            println!("{}", line.trim_end());
        }
    }

    pub(crate) fn progress(self, line: &str) {
        eprintln!("... {line}");
    }
}
