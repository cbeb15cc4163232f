//! Prose of reports: Markdown files beside the experiments.
//!
//! `include_str!` puts a file into the program. A file with numbers of the run has named
//! placeholders, and is the format string of a `format!`, so that the compiler checks them.

/// Text of a report's section from a Markdown file without markup. A section takes plain text with
/// an empty line between paragraphs, so the lines of each paragraph are joined.
pub(crate) fn text(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut joint = "";
    for line in markdown.lines().map(str::trim) {
        if line.is_empty() {
            // Empty lines before the first paragraph and after the last one leave no trace.
            joint = if text.is_empty() { "" } else { "\n\n" };
        } else {
            text.push_str(joint);
            text.push_str(line);
            joint = " ";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_paragraph_are_joined() {
        assert_eq!(text("One flow\nof 4 s.\n"), "One flow of 4 s.");
        assert_eq!(text("One flow\r\nof 4 s.\r\n"), "One flow of 4 s.");
    }

    #[test]
    fn paragraphs_stay_apart() {
        assert_eq!(
            text("\nA window\nclimbs.\n\n\nA queue\ndrains.\n\n"),
            "A window climbs.\n\nA queue drains."
        );
    }
}
