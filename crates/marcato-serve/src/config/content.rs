//! Content of sites and routes.

use std::time::Duration;

use http::HeaderValue;
use marcato_document::form::{Flag, SomeText, SpanWithin};
use marcato_document::{Keys, keyed, quote};
use marcato_web::files::FilesConfig;

use super::form::{By, Placed, Serve, each, section};
use super::limits::{DAY, size};
use super::located::Located;
use super::origin::{OriginConfig, is_url};
use super::redirect::Redirect;

/// Content of a site or a route.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Files of a directory.
    Files(Located<FilesConfig>),
    /// Responses of an origin, by its name.
    Origin(String),
    /// Redirect.
    Redirect(Redirect),
}

/// Content as it is read: names of origins are not resolved.
#[derive(Debug)]
pub(super) enum Named {
    Is(Content),
    /// Origin of this name, and the place of the name.
    Origin(Located<String>),
    /// Origin without a name.
    Url(Box<OriginConfig>),
}

/// Keys of a content, which those of a site and of a route include.
#[derive(Default)]
pub(super) struct ContentKeys {
    directory: Option<Located<String>>,
    files: Option<FilesConfig>,
    pub(super) try_files: Vec<String>,
    origin: Option<Located<String>>,
    redirect: Option<Redirect>,
}

keyed! {
    ContentKeys, "a content", |of: Serve|, onto Self::default();
    /// directory whose files are served
    "directory" => directory: Placed(SomeText), optional("one content is required");
    /// settings of the [files](#keys-of-files) of the directory
    "files" => files: section::<FilesConfig>(), optional("the defaults");
    /// paths that are tried in their order where the directory has no file: `"/index.html"` for an application of one page; `{path}` is the path of the request
    "try-files" => try_files: By(try_files), own("none");
    /// name of an [origin](#keys-of-an-origin), or a URL
    "origin" => origin: Placed(SomeText), optional("one content is required");
    /// target, or a table: a [redirect](#keys-of-a-redirect)
    "redirect" => redirect: By(Redirect::read), optional("one content is required");
}

/// Keys of which a site or a route has one.
const ONE_OF: [&str; 3] = ["directory", "origin", "redirect"];

/// Returns whether there is a content, also one with faults.
pub(super) fn is_given(keys: &Keys<'_>) -> bool {
    ONE_OF.into_iter().any(|key| keys.has(key))
}

impl ContentKeys {
    /// Returns the content of a site or a route; `None` if there is none, or it has a fault.
    pub(super) fn named(self, keys: &Keys<'_>) -> Option<Named> {
        let mut given = ONE_OF.into_iter().filter(|key| keys.has(key));
        let first = given.next();
        for key in given {
            let first = first.unwrap_or_default();
            keys.fault(key, format!("`{key}` stands beside `{first}`: remove one, or make it a route"));
        }
        if keys.has("files") && !keys.has("directory") {
            keys.fault("files", "`files` needs a `directory`: add it, or remove `files`");
        }
        if keys.has("try-files") && !keys.has("directory") {
            keys.fault("try-files", "`try-files` needs a `directory`: add it, or remove `try-files`");
        }
        let Self { directory, files, origin, redirect, .. } = self;
        if let Some(Located { value, place }) = directory {
            let files = files.unwrap_or_else(|| FilesConfig::new(""));
            let files = FilesConfig { root: value.into(), ..files };
            return Some(Named::Is(Content::Files(Located::at(place, files))));
        }
        match origin {
            Some(url) if is_url(&url.value) => {
                OriginConfig::to(&url.value, url.place, keys.faults).map(|it| Named::Url(Box::new(it)))
            }
            Some(name) => Some(Named::Origin(name)),
            None => redirect.map(|it| Named::Is(Content::Redirect(it))),
        }
    }
}

keyed! {
    FilesConfig, "`files`", |of: Serve|, onto Self::new("");
    /// names of the file that represents a directory, the preferred one first
    "index" => index: By(index), own("`\"index.html\"`");
    /// lists directories without such a file
    "listing" => listing: Flag, own();
    /// serves names that begin with a dot
    "hidden" => hidden: Flag, own();
    /// uses `x.js.br`, `x.js.zst` and `x.js.gz` beside `x.js`
    "precompressed" => precompressed: Flag, own();
    /// memory for small files
    "cache" => cache: size(0, 1 << 40), own();
    /// largest file that is kept in memory
    "cached-file" => cached_file: size(0, 1 << 30), own();
    /// time for which a file in memory is served without a look at the file system
    "revalidate" => revalidate: SpanWithin(Duration::ZERO..=DAY), own();
    /// value of `Cache-Control` for all responses with content
    "cache-control" => cache_control: By(cache_control), optional("none");
}

/// Place in a path to try where that of the request stands.
pub(crate) const PATH: &str = "{path}";

fn try_files(keys: &Keys<'_>, key: &'static str) -> Option<Vec<String>> {
    Some(each(keys, key, 16, |text, _| {
        let example = text.replacen(PATH, "/x", 1);
        let is_fine = example.starts_with('/')
            && (text.starts_with(PATH) || !text.contains(PATH))
            && !example.contains(['?', '#', '{', '}', '\\', '%'])
            && !example.split('/').any(|part| matches!(part, "." | ".."))
            && http::uri::PathAndQuery::try_from(&*example).is_ok_and(|it| it.as_str() == example);
        match is_fine {
            true => Ok(text.to_owned()),
            false => Err(format!(
                "{} is no path to try: write \"/index.html\", or \"{PATH}.html\" for names without their extension",
                quote(text)
            )),
        }
    }))
}

fn index(keys: &Keys<'_>, key: &'static str) -> Option<Vec<String>> {
    Some(each(keys, key, 16, |name, _| {
        if matches!(name, "" | "." | "..") || name.contains(['/', '\\', '\0']) {
            let name = quote(name);
            return Err(format!("{name} is no file name: write one without slashes, as \"index.html\""));
        }
        Ok(name.to_owned())
    }))
}

fn cache_control(keys: &Keys<'_>, key: &'static str) -> Option<HeaderValue> {
    let value = HeaderValue::from_str(keys.some_string(key)?);
    if value.is_err() {
        keys.fault(key, format!("`{key}` has forbidden characters: write it as \"max-age=60\""));
    }
    value.ok()
}
