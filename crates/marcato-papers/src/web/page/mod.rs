//! Page of the web experiments: what a browser loads, generated.

mod font;
mod picture;

use std::fmt::Write as _;

use super::site::{File, Site};

/// Images at the end of the page.
const IMAGES: u32 = 6;
/// Width and height of the large image and of the others, in pixels of three bytes.
const HERO: (u16, u16) = (320, 160);
const SMALL: (u16, u16) = (60, 45);
/// Bytes of the other files, in the order in which a browser finds them.
const HTML: usize = 6_000;
const BASE: usize = 6_000;
const APPLICATION: usize = 40_000;
const ANALYTICS: usize = 30_000;
const LATE: usize = 25_000;
const FONT: usize = 20_000;

/// Generates the page.
///
/// Its first stylesheet imports another, which names the font of the text. So a browser asks for both
/// while scripts and images are under way already, and shows nothing before it has the second stylesheet.
pub(super) fn page() -> Site {
    let mut files = vec![
        File::new("index.html", html()),
        File::new("base.css", filled(BASE, "@import \"late.css\";\n", rule)),
        File::new("app.js", filled(APPLICATION, "", statement)),
        File::new("analytics.js", filled(ANALYTICS, "", statement)),
        File::new("hero.bmp", picture::bitmap(HERO, 0)),
        File::new("late.css", filled(LATE, STYLE, rule)),
        File::new("text.ttf", font::blocks(FONT)),
    ];
    let image = |number| File::new(format!("{number}.bmp"), picture::bitmap(SMALL, number));
    files.extend((1..=IMAGES).map(image));
    Site::new(files)
}

/// Style of the page, in the stylesheet that is found late. Browsers take an image for no larger than it is
/// by nature: the visible text is short, so that the large image is the largest content.
const STYLE: &str = "@font-face { font-family: text; src: url(text.ttf); font-display: swap; }
body { margin: 16px; font: 18px/1.4 text; color: #234; background: #f4f7fa; }
h1 { margin: 0 0 8px; font-size: 30px; color: #0b62b8; }
p { margin: 0; }
img { display: block; background: #dde5ee; }
.hero { width: 768px; height: 300px; }
.grid { display: grid; grid-template-columns: repeat(6, 120px); gap: 8px; margin: 12px 0; }
.grid img { width: 120px; height: 66px; }
";

fn html() -> String {
    let mut html = String::from(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>What matters first</title>\n\
         <link rel=\"icon\" href=\"data:,\"><link rel=\"stylesheet\" href=\"base.css\">\n\
         <script src=\"analytics.js\" async></script><script src=\"app.js\" defer></script></head><body>\n\
         <h1>What matters first</h1><img class=\"hero\" src=\"hero.bmp\" fetchpriority=\"high\" alt=\"\">\n<div class=\"grid\">",
    );
    for number in 1..=IMAGES {
        // Writing to a string cannot fail.
        let _ = write!(html, "<img src=\"{number}.bmp\" alt=\"\">");
    }
    html += "</div>\n<p>A page is ready when its stylesheets, fonts and scripts have arrived.</p>\n<!--";
    while html.len() < HTML {
        html += " A comment makes the page longer, and does not show.";
    }
    html + " --></body></html>\n"
}

/// Text that begins with `start`, and has numbered lines up to a length.
fn filled(length: usize, start: &str, line: impl Fn(usize) -> String) -> String {
    let mut text = start.to_owned();
    for line in (0..).map(line) {
        if text.len() + line.len() > length {
            break;
        }
        text += &line;
    }
    text
}

/// Rule for no element of the page.
fn rule(number: usize) -> String {
    format!(".rule-{number} {{ color: #{:06x}; }}\n", number * 7919 % 0x100_0000)
}

/// Statement without an effect that is seen.
fn statement(number: usize) -> String {
    format!("globalThis.value{number} = {};\n", number * 104_729 % 1_000_003)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_lengths_and_the_html_names_them() {
        let site = page();
        let html = html();
        let mut total = 0;
        for file in site.files() {
            total += file.content.len();
            let name = file.name.as_str();
            let found_by = match name {
                "index.html" => continue,
                "late.css" => "@import \"late.css\"",
                "text.ttf" => STYLE,
                _ => name,
            };
            let named = html.contains(found_by)
                || site.files().iter().any(|other| {
                    other.name.ends_with(".css") && String::from_utf8_lossy(&other.content).contains(found_by)
                });
            assert!(named, "{name}");
        }
        assert!((328_000..332_000).contains(&total), "{total}");
    }
}
