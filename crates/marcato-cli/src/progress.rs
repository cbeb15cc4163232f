//! Progress on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use marcato_papers::Progress;

/// Shows progress on standard error; hidden when that is not a terminal.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Self {
        // indicatif draws on standard error, and hides itself when that is not a terminal.
        Self(ProgressBar::hidden())
    }
}

impl Progress for Bar {
    fn begin(&mut self, what: &str, steps: Option<u64>) {
        self.0.finish_and_clear();
        let (bar, template) = match steps {
            Some(steps) => (ProgressBar::new(steps), "{msg} {wide_bar} {pos}/{len} {elapsed}"),
            None => (ProgressBar::new_spinner(), "{spinner} {msg} {pos} {elapsed}"),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        self.0 = bar;
    }

    fn advance(&mut self, steps: u64) {
        self.0.inc(steps);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
