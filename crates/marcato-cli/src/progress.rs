//! Progress display on a terminal.

use std::fmt;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use marcato_papers::Progress;

/// Shows progress on standard error; hidden when that is not a terminal.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Self {
        // indicatif hides itself when standard error is not a terminal.
        Self::on(ProgressDrawTarget::stderr())
    }

    /// Creates a bar that draws to `target`.
    fn on(target: ProgressDrawTarget) -> Self {
        Self(ProgressBar::with_draw_target(None, target))
    }

    /// Replaces the text in front of the bar.
    pub(crate) fn say(&self, what: String) {
        self.0.set_message(what);
    }
}

/// Writes an estimate of the time left, once the first step is done.
fn left(state: &ProgressState, out: &mut dyn fmt::Write) {
    // Writing to the bar's buffer cannot fail.
    let _ = match state.pos() {
        0 => write!(out, "time left unknown"),
        _ => write!(out, "about {} s left", state.eta().as_secs()),
    };
}

impl Progress for Bar {
    fn begin(&mut self, what: &str, steps: Option<u64>) {
        let bar = &self.0;
        let template = match steps {
            Some(_) => "{msg} {wide_bar} {pos}/{len} {elapsed}, {left}",
            None => "{spinner} {msg} {pos} {elapsed}",
        };
        bar.reset();
        match steps {
            Some(steps) => bar.set_length(steps),
            None => bar.unset_length(),
        }
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.with_key("left", left));
        }
        bar.set_message(what.to_owned());
        // Drawn at once: the first step may take long, and the bar shows the number of steps.
        bar.tick();
        bar.enable_steady_tick(Duration::from_millis(200));
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// Terminal that records everything drawn.
    #[derive(Clone, Debug, Default)]
    struct Paper(Arc<Mutex<String>>);

    impl TermLike for Paper {
        fn width(&self) -> u16 {
            200
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_bar_starts_at_zero_and_estimates_the_time_left_later() {
        let paper = Paper::default();
        let mut bar = Bar::on(ProgressDrawTarget::term_like(Box::new(paper.clone())));
        bar.begin("0 of 2 runs done, simulated seconds", Some(60));
        let drawn = paper.0.lock().unwrap().clone();
        assert!(drawn.contains("0 of 2 runs done") && drawn.contains(" 0/60 "), "{drawn}");
        assert!(drawn.contains("time left unknown"), "{drawn}");
        bar.say("1 of 2 runs done, simulated seconds".to_owned());
        bar.advance(30);
        bar.0.force_draw();
        let drawn = paper.0.lock().unwrap().clone();
        let last = drawn.rsplit("runs done").next().unwrap();
        assert!(last.contains(" 30/60 ") && last.contains(" s left"), "{drawn}");
        assert!(drawn.contains("1 of 2 runs done"), "{drawn}");
    }
}
