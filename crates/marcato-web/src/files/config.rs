//! Configuration of a file service.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use marcato_units::Bytes;
use serde::Deserialize;
use thiserror::Error;

/// Configuration of [`Files`](super::Files).
///
/// | key in a configuration file | field | default |
/// |---|---|---|
/// | `root` | [`root`](Self::root) | required |
/// | `index` | [`index`](Self::index) | `["index.html"]` |
/// | `listing` | [`listing`](Self::listing) | false |
/// | `hidden` | [`hidden`](Self::hidden) | false |
/// | `precompressed` | [`precompressed`](Self::precompressed) | true |
/// | `cache-bytes` | [`cache`](Self::cache) | 67 108 864 |
/// | `cached-file-bytes` | [`cached_file`](Self::cached_file) | 1 048 576 |
/// | `revalidate-ms` | [`revalidate`](Self::revalidate) | 1000 |
/// | `cache-control` | [`cache_control`](Self::cache_control) | absent |
///
/// ```
/// use marcato_units::Bytes;
/// use marcato_web::files::FilesConfig;
///
/// let config: FilesConfig = toml::from_str(
///     r#"
///     root = "/srv/www"
///     listing = true
///     cache-bytes = 8_388_608
///     cache-control = "max-age=60"
///     "#,
/// )?;
/// assert_eq!(config.cache, Bytes::new(8 << 20));
/// assert_eq!(config.index, ["index.html"]);
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Entries")]
pub struct FilesConfig {
    /// Directory that is served. A symbolic link may name it, and may be changed later.
    pub root: PathBuf,
    /// Names of the file that represents a directory, the preferred one first.
    pub index: Vec<String>,
    /// Permission to list directories without an index.
    pub listing: bool,
    /// Permission to serve names that begin with a dot. The directory `.well-known` of the root is
    /// always served (RFC 8615 §3).
    pub hidden: bool,
    /// Use of precompressed files: `x.js.br`, `x.js.zst` and `x.js.gz` beside `x.js`, and not older.
    pub precompressed: bool,
    /// Bound of the memory for small files, with 2 KiB of overhead for each.
    pub cache: Bytes,
    /// Largest file that is kept in memory.
    pub cached_file: Bytes,
    /// Time for which a file in memory is served without looking at the file system.
    pub revalidate: Duration,
    /// Value of `Cache-Control` for all responses with content; `None` omits the field.
    pub cache_control: Option<HeaderValue>,
}

impl FilesConfig {
    /// Creates a configuration with the defaults for a directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            index: vec!["index.html".to_owned()],
            listing: false,
            hidden: false,
            precompressed: true,
            cache: Bytes::new(64 << 20),
            cached_file: Bytes::new(1 << 20),
            revalidate: Duration::from_secs(1),
            cache_control: None,
        }
    }
}

/// Error returned for a configuration that is not usable.
#[derive(Debug, Error)]
pub enum FilesError {
    /// The root cannot be opened.
    #[error("the root {} cannot be opened ({error}): name a readable directory", root.display())]
    Root {
        /// Root of the configuration.
        root: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The root is no directory.
    #[error("the root {} is no directory: name the directory that holds the file", root.display())]
    NotDirectory {
        /// Root of the configuration.
        root: PathBuf,
    },
    /// The name of an index is a path.
    #[error("the index {name:?} is no file name: write one without slashes, as `index.html`")]
    Index {
        /// Name in the configuration.
        name: String,
    },
    /// The value for `Cache-Control` is no field value.
    #[error("the value {value:?} of `cache-control` has forbidden characters: write it as `max-age=60`")]
    CacheControl {
        /// Value in the configuration.
        value: String,
    },
}

/// Keys of a configuration file.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Entries {
    root: PathBuf,
    index: Option<Vec<String>>,
    listing: Option<bool>,
    hidden: Option<bool>,
    precompressed: Option<bool>,
    cache_bytes: Option<u64>,
    cached_file_bytes: Option<u64>,
    revalidate_ms: Option<u64>,
    cache_control: Option<String>,
}

impl TryFrom<Entries> for FilesConfig {
    type Error = FilesError;

    fn try_from(entries: Entries) -> Result<Self, FilesError> {
        let default = Self::new(entries.root);
        let cache_control = match entries.cache_control {
            None => None,
            Some(value) => {
                Some(HeaderValue::from_str(&value).map_err(|_| FilesError::CacheControl { value })?)
            }
        };
        Ok(Self {
            index: entries.index.unwrap_or(default.index),
            listing: entries.listing.unwrap_or(default.listing),
            hidden: entries.hidden.unwrap_or(default.hidden),
            precompressed: entries.precompressed.unwrap_or(default.precompressed),
            cache: entries.cache_bytes.map_or(default.cache, Bytes::new),
            cached_file: entries.cached_file_bytes.map_or(default.cached_file, Bytes::new),
            revalidate: entries.revalidate_ms.map_or(default.revalidate, Duration::from_millis),
            cache_control,
            root: default.root,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<FilesConfig, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())
    }

    #[test]
    fn a_root_suffices() {
        assert_eq!(read("root = '/srv'"), Ok(FilesConfig::new("/srv")));
        assert!(read("listing = true").unwrap_err().contains("root"));
    }

    #[test]
    fn every_key_is_read() {
        let text = "root = 'www'\nindex = ['a', 'b']\nlisting = true\nhidden = true\nprecompressed = false\n\
                    cache-bytes = 10\ncached-file-bytes = 5\nrevalidate-ms = 20\ncache-control = 'no-store'";
        let expected = FilesConfig {
            root: "www".into(),
            index: vec!["a".to_owned(), "b".to_owned()],
            listing: true,
            hidden: true,
            precompressed: false,
            cache: Bytes::new(10),
            cached_file: Bytes::new(5),
            revalidate: Duration::from_millis(20),
            cache_control: Some(HeaderValue::from_static("no-store")),
        };
        assert_eq!(read(text), Ok(expected));
    }

    #[test]
    fn unknown_keys_and_forbidden_values_are_refused() {
        assert!(read("root = '/'\ncache = 1").unwrap_err().contains("unknown field `cache`"));
        assert!(read("root = '/'\ncache-control = \"a\\nb\"").unwrap_err().contains("write it as"));
    }
}
