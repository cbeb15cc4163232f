//! Pages for responses with an error, in memory.

use std::io::Read as _;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_LOCATION, ETAG, LAST_MODIFIED, VARY,
};
use http::{HeaderName, HeaderValue, StatusCode};
use marcato_document::Faults;

use crate::config::{Config, ErrorPage, Site};

/// Largest page.
const MAX_PAGE: u64 = 1 << 20;

/// Fields that describe the content which a page replaces. `Content-Range` of 416 stays (RFC 9110 §15.5.17).
pub(crate) const OF_CONTENT: [HeaderName; 10] = [
    ACCEPT_RANGES,
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    CONTENT_LOCATION,
    ETAG,
    LAST_MODIFIED,
    VARY,
];

/// Pages of a site, those of one status first.
#[derive(Debug, Default)]
pub(crate) struct ErrorPages {
    pages: Vec<(ErrorPage, Bytes, HeaderValue)>,
    /// True if they replace errors of origins too.
    intercepts: bool,
}

impl ErrorPages {
    /// Reads the pages of a site.
    pub(crate) fn read(config: &Config, site: &Site, faults: &Faults) -> Self {
        let mut pages = Vec::with_capacity(site.error_pages.len());
        for page in &site.error_pages {
            let path = config.path(&page.file.value);
            let mut content = Vec::new();
            let read =
                std::fs::File::open(&path).and_then(|file| file.take(MAX_PAGE + 1).read_to_end(&mut content));
            let problem = match read {
                Err(error) => format!("{} cannot be read: {error}", path.display()),
                Ok(len) if len as u64 > MAX_PAGE => {
                    format!("{} is larger than {MAX_PAGE} bytes: shorten it", path.display())
                }
                Ok(_) => {
                    let name = path.to_string_lossy();
                    pages.push((page.clone(), content.into(), marcato_web::files::content_type(&name)));
                    continue;
                }
            };
            faults.add(page.file.place, problem);
        }
        Self { pages, intercepts: site.intercepts_errors }
    }

    /// Returns the content of the page for a status, and its type.
    pub(crate) fn page(&self, status: StatusCode, is_of_origin: bool) -> Option<(Bytes, HeaderValue)> {
        if is_of_origin && !self.intercepts {
            return None;
        }
        let (_, content, kind) = self.pages.iter().find(|(page, ..)| page.is_for(status))?;
        Some((content.clone(), kind.clone()))
    }
}
