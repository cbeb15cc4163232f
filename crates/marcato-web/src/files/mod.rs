//! Files over HTTP: a tower service with a cache in memory, ranges and conditional requests.
//!
//! [`Files`] serves the regular files below one directory. It asks the operating system only for what
//! memory lacks:
//!
//! | content | read by |
//! |---|---|
//! | small file, checked within [`FilesConfig::revalidate`] | the memory of this process |
//! | file in the page cache of Linux | `openat2` and `preadv2`, neither of which waits for a disk |
//! | everything else | a thread of tokio's blocking pool, 16 KiB at a time |
//!
//! | concern | rule |
//! |---|---|
//! | methods | GET, HEAD and OPTIONS; others get 405 |
//! | paths | decoded once; `..`, backslashes, NUL, encoded slashes and invalid UTF-8 get 400 |
//! | dot-files | 404, except `.well-known` in the root |
//! | symbolic links | followed while their target is below the root |
//! | directories | 308 to a trailing slash; then an index, then a listing if that is on |
//! | conditions | RFC 9110 §13, in the order of §13.2.2 |
//! | ranges | RFC 9110 §14: one, or at most 8 without overlap; other sets get the whole file |
//! | encodings | `x.js.br`, `.zst` and `.gz` beside `x.js`, by the weights of `Accept-Encoding`, unless they are older than `x.js` |
//!
//! `ServeDir` of tower-http would not do. It reads each file on threads of tokio's blocking pool and keeps
//! none in memory, so that small files of a page wait for a thread each. It answers requests for several
//! ranges with 416.
//!
//! The `Location` of a directory is a relative reference. The service therefore works below any prefix
//! that a router has removed.
//!
//! ```
//! use http::{Request, StatusCode};
//! use marcato_web::files::{Files, FilesConfig};
//! use tower_service::Service;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let mut files = Files::new(FilesConfig::new(env!("CARGO_MANIFEST_DIR")))?;
//! let response = files.call(Request::get("/Cargo.toml").body(())?).await?;
//! assert_eq!(response.status(), StatusCode::OK);
//! assert_eq!(response.headers()["content-type"], "text/x-toml; charset=utf-8");
//! assert_eq!(files.counters().misses, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//! - A file that changes while it is sent yields a mixture of both. One that shrinks ends the body with
//!   an error. Deploy by renaming files or directories.
//! - A change in place that keeps length and modification time keeps the entity tag.
//! - A precompressed file that is older than its original is not used. One that was written for other content
//!   of the same or a later time is: write it together with its original.
//! - Systems without `openat2` (Linux before 5.6, macOS) check the canonical path before opening. A local
//!   user who exchanges directories for links in between can make them leave the root.
//! - File systems over a network may block in `open` itself. It runs on the caller's thread if the
//!   kernel's cache has the path.

mod body;
mod cache;
mod conditional;
mod config;
mod counters;
mod etag;
mod handler;
mod listing;
mod mime;
mod path;
mod range;
mod read;
mod representation;
mod resource;
mod response;
mod root;

pub use body::FileBody;
pub use config::{FilesConfig, FilesError};
pub use counters::FilesCounters;
pub use handler::{Files, FilesFuture};
pub use mime::content_type;

/// Reads these bytes as each field of a request that the service knows.
#[cfg(test)]
pub(crate) fn read_as_fields(bytes: &[u8]) {
    use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
    for len in [0, 1, 40, u64::MAX] {
        range::Selection::parse(bytes, len);
    }
    let tag = etag::EntityTag::new(10, 1, false);
    tag.is_in(bytes, etag::Comparison::Weak);
    tag.is(bytes, etag::Comparison::Weak);
    let validators = conditional::Validators { tag: &tag, modified: 784_111_777 };
    let Ok(value) = http::HeaderValue::from_bytes(bytes) else { return };
    for name in [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE] {
        let fields = http::HeaderMap::from_iter([(name, value.clone())]);
        conditional::Precondition::evaluate(&fields, validators);
        conditional::permits_range(&fields, validators);
    }
}
