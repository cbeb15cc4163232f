//! Listing of a directory.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::{File, Metadata};
use std::os::fd::OwnedFd;

use rustix::fs::{Dir, FileType};

use super::path::{encode, is_hidden};
use super::root::{Access, OpenError, Root};

/// Most names of a listing: the first ones in the order of their bytes.
const MAX_NAMES: usize = 1000;

/// Most entries of a directory that are looked at.
const MAX_ENTRIES: usize = 100_000;

/// Names in a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Names, at most [`MAX_NAMES`]. Those of directories end with a slash.
    names: BTreeSet<String>,
    /// True if some names are missing.
    truncated: bool,
}

impl Listing {
    /// Reads a directory. Its path ends with a slash, or is empty.
    ///
    /// The listing has the names that the service would serve: hidden files, devices, and links that
    /// leave the root are absent.
    ///
    /// # Errors
    /// [`OpenError`] if it cannot be read.
    pub(super) fn read(
        root: &Root,
        handle: &OwnedFd,
        path: &str,
        hidden: bool,
    ) -> Result<(Self, Metadata), OpenError> {
        let directory = File::from(root.directory(handle, path)?);
        let metadata = directory.metadata()?;
        let mut listing = Self::default();
        for (index, entry) in Dir::new(OwnedFd::from(directory))?.enumerate() {
            if index == MAX_ENTRIES {
                listing.truncated = true;
                break;
            }
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") || name.contains('\\') {
                continue;
            }
            if !hidden && is_hidden(path.is_empty(), name) {
                continue;
            }
            let is_directory = match entry.file_type() {
                FileType::RegularFile => false,
                FileType::Directory => true,
                // The target decides; so does the file, if the file system does not tell its type.
                FileType::Symlink | FileType::Unknown => {
                    match root.file(handle, &format!("{path}{name}"), Access::Blocking) {
                        Ok(_) => false,
                        Err(OpenError::Directory) => true,
                        Err(_) => continue,
                    }
                }
                _ => continue,
            };
            listing.add(name, is_directory);
        }
        Ok((listing, metadata))
    }

    fn add(&mut self, name: &str, is_directory: bool) {
        self.names.insert(format!("{name}{}", if is_directory { "/" } else { "" }));
        if self.names.len() > MAX_NAMES {
            self.names.pop_last();
            self.truncated = true;
        }
    }

    /// Returns a document of HTML.
    pub(super) fn html(&self, path: &str) -> String {
        let title = format!("Index of /{}", Escaped(path));
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>{title}</title>\n<h1>{title}</h1>\n<ul>\n"
        );
        if !path.is_empty() {
            html.push_str("<li><a href=\"../\">../</a>\n");
        }
        for name in &self.names {
            // A name with a colon would be read as a scheme (RFC 3986 §4.2).
            html.push_str("<li><a href=\"./");
            encode(name.strip_suffix('/').unwrap_or(name), &mut html);
            let slash = if name.ends_with('/') { "/" } else { "" };
            // Writing to a string never fails.
            let _ = writeln!(html, "{slash}\">{}</a>", Escaped(name));
        }
        html.push_str("</ul>\n");
        if self.truncated {
            html.push_str("<p>The directory has more names than are listed here.</p>\n");
        }
        html
    }
}

/// Text whose special characters are written as references of HTML.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listing(names: &[(&str, bool)]) -> Listing {
        let mut listing = Listing::default();
        for (name, is_directory) in names {
            listing.add(name, *is_directory);
        }
        listing
    }

    #[test]
    fn names_are_escaped_and_encoded() {
        let html = listing(&[("<b>&\"'", false), ("a b", true), ("x:y", false)]).html("d<i>/");
        assert!(html.contains("<title>Index of /d&lt;i&gt;/</title>"), "{html}");
        let link = "<a href=\"./%3Cb%3E%26%22%27\">&lt;b&gt;&amp;&quot;&#39;</a>";
        assert!(html.contains(link), "{html}");
        assert!(html.contains("<a href=\"./a%20b/\">a b/</a>"), "{html}");
        assert!(html.contains("<a href=\"./x%3Ay\">x:y</a>"), "{html}");
    }

    #[test]
    fn only_the_root_lacks_a_link_upwards() {
        assert!(!listing(&[]).html("").contains("../"));
        assert!(listing(&[]).html("a/").contains("<a href=\"../\">"));
    }

    #[test]
    fn the_first_names_remain_in_any_order() {
        let names: Vec<_> = (0..MAX_NAMES + 10).map(|index| format!("{index:05}")).collect();
        let forwards: Vec<_> = names.iter().map(|name| (name.as_str(), false)).collect();
        let backwards: Vec<_> = forwards.iter().rev().copied().collect();
        let kept = listing(&forwards);
        assert_eq!(kept, listing(&backwards));
        assert!(kept.truncated && kept.names.len() == MAX_NAMES && kept.names.contains("00999"));
        assert!(!listing(&forwards[..MAX_NAMES]).truncated);
    }

    proptest! {
        #[test]
        fn no_name_adds_markup(name in "[<>&\"'a/ -]{0,12}", path in "([<>&\"'a]{1,5}/)?") {
            let html = listing(&[(&name, false)]).html(&path);
            let plain = listing(&[("a", false)]).html(if path.is_empty() { "" } else { "a/" });
            for mark in ['<', '>', '"', '\''] {
                prop_assert_eq!(html.matches(mark).count(), plain.matches(mark).count());
            }
        }
    }
}
