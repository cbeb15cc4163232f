//! Pages for responses with an error.

use std::path::PathBuf;

use http::StatusCode;
use marcato_document::Keys;

use super::located::Located;

/// Most pages of a site.
const MAX_PAGES: usize = 64;

/// Page for responses with an error.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorPage {
    /// First status.
    pub first: u16,
    /// Last status.
    pub last: u16,
    /// File with the content of the page.
    pub file: Located<PathBuf>,
}

impl ErrorPage {
    /// Returns true if the page is for this status.
    pub(crate) const fn is_for(&self, status: StatusCode) -> bool {
        self.first <= status.as_u16() && status.as_u16() <= self.last
    }
}

/// Reads a table of statuses, as `404` or `5xx`, and files.
pub(super) fn read(keys: &Keys<'_>, key: &'static str) -> Option<Vec<ErrorPage>> {
    let table = keys.table(key)?;
    if table.entries.len() > MAX_PAGES {
        keys.fault(key, format!("`{key}` has {} pages: give at most {MAX_PAGES}", table.entries.len()));
    }
    let mut pages = Vec::new();
    for (status, item) in table.entries.iter().take(MAX_PAGES) {
        let range = match status.name.as_str() {
            "4xx" => Some((400, 499)),
            "5xx" => Some((500, 599)),
            one => one.parse().ok().filter(|one| (400..=599).contains(one)).map(|one| (one, one)),
        };
        if range.is_none() {
            let problem = format!("`{}` is no status of an error: write 400 to 599, 4xx or 5xx", status.name);
            keys.faults.add(status.place, problem);
        }
        let Some(file) = item.as_str().filter(|file| !file.is_empty()) else {
            let problem = format!("the page of `{}` is a file, as \"404.html\"", status.name);
            keys.faults.add(item.place, problem);
            continue;
        };
        if let Some((first, last)) = range {
            pages.push(ErrorPage { first, last, file: Located::at(item.place, PathBuf::from(file)) });
        }
    }
    // One for a status alone comes before one for many.
    pages.sort_by_key(|page| page.last - page.first);
    Some(pages)
}
