//! Content of sites and routes.

use std::time::Duration;

use http::HeaderValue;
use marcato_document::{Table, quote};
use marcato_web::files::FilesConfig;

use super::error::Faults;
use super::keys::Keys;
use super::limits::set;
use super::located::Located;
use super::origin::OriginConfig;
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

/// Keys of a content.
pub(super) const KEYS: [&str; 4] = ["directory", "files", "origin", "redirect"];

/// Reads the content of a site or a route; `None` if there is none, or it has a fault.
pub(super) fn read(keys: &Keys<'_>) -> Option<Named> {
    let given: Vec<&str> =
        ["directory", "origin", "redirect"].into_iter().filter(|key| keys.has(key)).collect();
    for key in given.iter().skip(1) {
        keys.fault(key, format!("`{key}` stands beside `{}`: remove one, or make it a route", given[0]));
    }
    let files = keys.table("files");
    if files.is_some() && !keys.has("directory") {
        keys.fault("files", "`files` needs a `directory`: add it, or remove `files`");
    }
    match given.first() {
        Some(&"directory") => {
            let mut config = FilesConfig::new(keys.string("directory")?);
            if let Some(table) = files {
                read_files(table, &mut config, keys.faults);
            }
            Some(Named::Is(Content::Files(Located::at(keys.place("directory"), config))))
        }
        Some(&"origin") => {
            let (text, place) = (keys.string("origin")?, keys.place("origin"));
            if text.contains("://") {
                return OriginConfig::to(text, place, keys.faults).map(|it| Named::Url(Box::new(it)));
            }
            Some(Named::Origin(Located::at(place, text.to_owned())))
        }
        Some(_) => {
            Redirect::read(keys.item("redirect")?, keys.faults).map(|it| Named::Is(Content::Redirect(it)))
        }
        None => None,
    }
}

fn read_files(table: &Table, config: &mut FilesConfig, faults: &Faults) {
    let known = [
        "index",
        "listing",
        "hidden",
        "precompressed",
        "cache",
        "cached-file",
        "revalidate",
        "cache-control",
    ];
    let keys = Keys::open(table, "`files`", &known, faults);
    if keys.has("index") {
        let mut index = Vec::new();
        for (name, place) in keys.strings("index", 16) {
            if matches!(name, "" | "." | "..") || name.contains(['/', '\\', '\0']) {
                faults.add(
                    place,
                    format!("{} is no file name: write one without slashes, as \"index.html\"", quote(name)),
                );
            }
            index.push(name.to_owned());
        }
        config.index = index;
    }
    set(&mut config.listing, keys.boolean("listing"));
    set(&mut config.hidden, keys.boolean("hidden"));
    set(&mut config.precompressed, keys.boolean("precompressed"));
    set(&mut config.cache, keys.size("cache", 0..=1 << 40));
    set(&mut config.cached_file, keys.size("cached-file", 0..=1 << 30));
    set(&mut config.revalidate, keys.span("revalidate", Duration::ZERO..=Duration::from_secs(86_400)));
    if let Some(text) = keys.string("cache-control") {
        match HeaderValue::from_str(text) {
            Ok(value) => config.cache_control = Some(value),
            Err(_) => keys.fault(
                "cache-control",
                "`cache-control` has forbidden characters: write it as \"max-age=60\"",
            ),
        }
    }
}
