//! Film strips: what a page looked like at fixed times.

use super::frame::{self, WIDTH};
use super::svg::{Anchor, Font, Svg};

/// Space around images, and height of a line of text, in pixels.
const GAP: f64 = 4.0;
const LINE: f64 = 18.0;

/// JPEG image, as base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jpeg(String);

impl Jpeg {
    /// Takes an image in base64 (RFC 4648 §4); `None` for other characters, or for other images.
    pub fn from_base64(text: &str) -> Option<Self> {
        let digits = text.trim_end_matches('=');
        let plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte));
        // The first three bytes of every such image: FF D8 FF.
        (plain && digits.starts_with("/9j/")).then(|| Self(text.to_owned()))
    }
}

/// Rows of images, with one image for each of a row of equally distant times.
///
/// ```
/// use marcato_report::chart::{FilmStrip, Jpeg};
/// let image = Jpeg::from_base64("/9j/").unwrap();
/// let svg = FilmStrip::new("A page", 0.25, 4)
///     .aspect(4.0 / 3.0)
///     .row("nginx", [(0.0, image.clone()), (0.6, image)])
///     .to_svg();
/// assert!(svg.contains("nginx, 0.75 s"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FilmStrip {
    title: String,
    step: f64,
    columns: u16,
    aspect: f64,
    rows: Vec<(String, Vec<(f64, Jpeg)>)>,
}

impl FilmStrip {
    /// Creates a strip without rows. Columns are `step` seconds apart, and the first is at 0.
    pub fn new(title: impl Into<String>, step: f64, columns: u16) -> Self {
        Self { title: title.into(), step, columns, aspect: 4.0 / 3.0, rows: vec![] }
    }

    /// Sets the width of the images over their height (4:3).
    #[must_use]
    pub const fn aspect(mut self, aspect: f64) -> Self {
        self.aspect = aspect;
        self
    }

    /// Adds a row. Images have the time in seconds from which on they were seen, in order. Before the
    /// first one nothing was seen.
    #[must_use]
    pub fn row(mut self, name: impl Into<String>, images: impl IntoIterator<Item = (f64, Jpeg)>) -> Self {
        self.rows.push((name.into(), images.into_iter().collect()));
        self
    }

    /// The strip as an SVG image, which contains the images.
    pub fn to_svg(&self) -> String {
        if self.columns == 0 || self.rows.iter().all(|(_, images)| images.is_empty()) {
            return frame::no_data(&self.title);
        }
        let left = 12.0;
        let width = (WIDTH - 2.0 * left) / f64::from(self.columns);
        let (inner, height) = (width - GAP, (width - GAP) / self.aspect);
        let row = LINE + height + 2.0 * GAP;
        let top = 58.0;
        let count = u32::try_from(self.rows.len()).map_or(0.0, f64::from);
        let mut svg = Svg::new(WIDTH, top + row * count + 8.0, &self.title);
        frame::head(&mut svg, &self.title, &[]);
        for column in 0..self.columns {
            let middle = left + width * (f64::from(column) + 0.5);
            let time = format!("{:.2} s", f64::from(column) * self.step);
            svg.text(Font::SMALL.at(Anchor::Middle), (middle, 50.0), &time);
        }
        let mut y = top;
        for (name, images) in &self.rows {
            svg.text(Font::LABEL, (left, y + 14.0), name);
            for column in 0..self.columns {
                let time = f64::from(column) * self.step;
                let seen =
                    images.iter().rfind(|(from, _)| *from <= time).map(|(_, Jpeg(image))| image.as_str());
                let about = format!("{name}, {time:.2} s");
                let place = (left + width * f64::from(column), y + LINE);
                svg.picture(seen, place, (inner, height), &about);
            }
            y += row;
        }
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(digit: char) -> Jpeg {
        Jpeg::from_base64(&format!("/9j/{digit}")).unwrap()
    }

    #[test]
    fn each_time_shows_the_last_image_before_it() {
        let svg = FilmStrip::new("t", 0.25, 4).row("a", [(0.2, image('A')), (0.5, image('B'))]).to_svg();
        let shown: Vec<&str> =
            svg.match_indices("base64,").map(|(at, found)| &svg[at + found.len()..][..5]).collect();
        assert_eq!(shown, ["/9j/A", "/9j/B", "/9j/B"]);
        assert!(svg.contains("a, 0.00 s") && svg.contains(">0.75 s<"));
    }

    #[test]
    fn data_without_an_image_header_is_no_image() {
        for text in ["", "iVBORw0KGgo=", "/9j/\"", "/9j/<", "/9j/ "] {
            assert_eq!(Jpeg::from_base64(text), None, "{text:?}");
        }
        assert!(Jpeg::from_base64("/9j/AAA=").is_some());
    }

    #[test]
    fn a_strip_without_images_says_so() {
        assert!(FilmStrip::new("t", 0.25, 4).row("a", []).to_svg().contains("no data"));
    }
}
