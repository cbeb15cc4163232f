//! The service.

use std::convert::Infallible;
use std::future::Future;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use http::header::ACCEPT_ENCODING;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tower_service::Service;

use super::body::{FileBody, Source};
use super::cache::Cache;
use super::config::{FilesConfig, FilesError};
use super::counters::{Counts, FilesCounters};
use super::etag::EntityTag;
use super::listing::Listing;
use super::mime::content_type;
use super::path::{FilePath, PathError};
use super::representation::{Properties, Representation};
use super::resource::{Resource, Stamp, read, variant};
use super::response;
use super::root::{Access, OpenError, Opened, Root};
use crate::clock::Dates;
use crate::encoding::{Accepted, Coding};

/// Service that answers requests with the files of a directory. Clones share everything.
///
/// Its responses wait for the blocking pool of tokio only if the kernel would wait for a disk. Outside
/// of a runtime they block.
#[derive(Clone, Debug)]
pub struct Files {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: FilesConfig,
    root: Root,
    cache: Cache<Arc<Resource>>,
    counts: Arc<Counts>,
    start: Instant,
    dates: Dates,
    /// Random keys for the boundaries of parts, and the number of boundaries so far.
    boundaries: (RandomState, AtomicU64),
}

impl Files {
    /// Creates a service.
    ///
    /// # Errors
    /// [`FilesError`] if the root is no directory that can be opened, or an index is no file name.
    pub fn new(config: FilesConfig) -> Result<Self, FilesError> {
        let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0']);
        if let Some(name) = config.index.iter().find(|name| !is_name(name)) {
            return Err(FilesError::Index { name: name.clone() });
        }
        let shared = Shared {
            root: Root::new(config.root.clone())?,
            cache: Cache::new(config.cache),
            counts: Arc::default(),
            start: Instant::now(),
            dates: Dates::default(),
            boundaries: (RandomState::new(), AtomicU64::new(0)),
            config,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the counts of all clones.
    pub fn counters(&self) -> FilesCounters {
        let (files, bytes) = self.shared.cache.size();
        FilesCounters { cached_files: files as u64, cached: bytes, ..self.shared.counts.read() }
    }
}

impl<B> Service<Request<B>> for Files {
    type Response = Response<FileBody>;
    type Error = Infallible;
    type Future = FilesFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> FilesFuture {
        let (request, _) = request.into_parts();
        if let Some(response) = self.shared.answer(&request, Access::Cached) {
            return FilesFuture(Answer::Ready(Some(response)));
        }
        self.shared.counts.blocking.one();
        let shared = Arc::clone(&self.shared);
        let answer = move || {
            let response = shared.answer(&request, Access::Blocking);
            response.unwrap_or_else(|| response::busy(&request))
        };
        FilesFuture(match Handle::try_current() {
            Ok(runtime) => Answer::Waiting(runtime.spawn_blocking(answer)),
            Err(_) => Answer::Ready(Some(answer())),
        })
    }
}

/// Response that may have to wait for the blocking pool.
#[derive(Debug)]
pub struct FilesFuture(Answer);

#[derive(Debug)]
enum Answer {
    /// Response, until it is taken.
    Ready(Option<Response<FileBody>>),
    Waiting(JoinHandle<Response<FileBody>>),
}

impl Future for FilesFuture {
    type Output = Result<Response<FileBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Answer::Ready(response) => {
                response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)))
            }
            Answer::Waiting(task) => Pin::new(task).poll(context).map(|result| {
                Ok(result.unwrap_or_else(|_| {
                    // The runtime shuts down.
                    let mut response = Response::new(FileBody::empty());
                    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    response
                }))
            }),
        }
    }
}

/// Content that was found, and its representation.
struct Found {
    resource: Arc<Resource>,
    coding: Coding,
    source: Source,
}

impl Shared {
    /// Answers a request; `None` if that would block.
    fn answer(&self, request: &Parts, access: Access) -> Option<Response<FileBody>> {
        let mut response = self.find(request, access)?;
        self.dates.stamp(response.headers_mut());
        Some(response)
    }

    /// Returns the response to a request, without its date; `None` if that would block.
    fn find(&self, request: &Parts, access: Access) -> Option<Response<FileBody>> {
        match request.method {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS => return Some(response::options()),
            _ => return Some(response::not_allowed(request)),
        }
        let path = match FilePath::parse(request.uri.path(), self.config.hidden) {
            Ok(path) => path,
            Err(error) => {
                self.counts.refused.one();
                let status = match error {
                    PathError::Hidden => StatusCode::NOT_FOUND,
                    _ => StatusCode::BAD_REQUEST,
                };
                return Some(response::problem(status, &error.to_string(), request));
            }
        };
        let result = if path.is_directory() {
            self.directory(path.as_str(), request, access)
        } else {
            self.file(path.as_str(), request, access)
        };
        let error = match result {
            Ok(response) => return Some(response),
            Err(error) => error,
        };
        Some(match error {
            OpenError::WouldBlock => return None,
            OpenError::Directory => response::redirect(path.as_str(), request),
            OpenError::NotFound => {
                self.counts.not_found.one();
                response::problem(StatusCode::NOT_FOUND, "not found", request)
            }
            OpenError::Outside => {
                self.counts.refused.one();
                response::problem(StatusCode::NOT_FOUND, "not found", request)
            }
            OpenError::Forbidden => {
                self.counts.failed.one();
                let message = "the server lacks permission to read this file: change the mode of the file";
                response::problem(StatusCode::FORBIDDEN, message, request)
            }
            OpenError::Busy => {
                self.counts.failed.one();
                response::busy(request)
            }
            OpenError::Failed => {
                self.counts.failed.one();
                let message = "the file system failed: look for errors in the system's log";
                response::problem(StatusCode::INTERNAL_SERVER_ERROR, message, request)
            }
        })
    }

    /// Answers with the index or the listing of a directory.
    fn directory(
        &self,
        path: &str,
        request: &Parts,
        access: Access,
    ) -> Result<Response<FileBody>, OpenError> {
        for name in &self.config.index {
            match self.file(&format!("{path}{name}"), request, access) {
                Err(OpenError::NotFound | OpenError::Directory) => {}
                result => return result,
            }
        }
        if !self.config.listing {
            return Err(OpenError::NotFound);
        }
        if access == Access::Cached {
            return Err(OpenError::WouldBlock);
        }
        self.listing(path, request)
    }

    /// Answers with a listing. It is never kept in memory.
    fn listing(&self, path: &str, request: &Parts) -> Result<Response<FileBody>, OpenError> {
        let handle = self.root.handle(Access::Blocking)?;
        let (listing, metadata) = Listing::read(&self.root, &handle, path, self.config.hidden)?;
        let html = bytes::Bytes::from(listing.html(path));
        let len = u64::try_from(html.len()).unwrap_or(u64::MAX);
        let mut hasher = DefaultHasher::new();
        html.hash(&mut hasher);
        let representation = Representation::new(Properties {
            len,
            tag: EntityTag::new(len, hasher.finish(), false),
            modified: Stamp::of(&metadata).last_modified(SystemTime::now()),
            content_type: HeaderValue::from_static("text/html; charset=utf-8"),
            coding: Coding::Identity,
            varies: false,
            cache_control: self.config.cache_control.as_ref(),
        });
        self.counts.misses.one();
        Ok(representation.reply(request, Source::Memory(html), || self.boundary()))
    }

    /// Answers with a file.
    fn file(&self, path: &str, request: &Parts, access: Access) -> Result<Response<FileBody>, OpenError> {
        let accepted = if self.config.precompressed {
            Accepted::parse(request.headers.get_all(ACCEPT_ENCODING))
        } else {
            Accepted::default()
        };
        let now = self.start.elapsed();
        let held = self.cache.get(path);
        let kept = held.as_deref().and_then(|resource| Some((resource, resource.choose(&accepted)?)));
        let kept = kept.and_then(|(resource, variant)| Some((resource, variant, variant.content.as_ref()?)));
        // The blocking pool is asked only where this look into the cache did not suffice.
        if access == Access::Cached
            && let Some((resource, variant, content)) = kept
            && !resource.claim(now, self.config.revalidate)
        {
            self.counts.hits.one();
            let source = Source::Memory(content.clone());
            return Ok(variant.representation.reply(request, source, || self.boundary()));
        }
        let result = self.load(path, &accepted, (now, access), held.as_ref());
        if matches!(result, Err(OpenError::WouldBlock)) {
            return Err(OpenError::WouldBlock);
        }
        if held.is_some() {
            self.counts.revalidations.one();
            if result.is_err() {
                self.cache.remove(path);
            }
        }
        let found = result?;
        let is_kept = kept.is_some_and(|(resource, ..)| std::ptr::eq(resource, &*found.resource));
        (if is_kept { &self.counts.hits } else { &self.counts.misses }).one();
        let variant = found.resource.variant(found.coding).ok_or(OpenError::Failed)?;
        Ok(variant.representation.reply(request, found.source, || self.boundary()))
    }

    /// Looks at the files of a resource, and reads the one for the client if it is small and not in
    /// memory.
    fn load(
        &self,
        path: &str,
        accepted: &Accepted,
        (now, access): (Duration, Access),
        held: Option<&Arc<Resource>>,
    ) -> Result<Found, OpenError> {
        let mut files = self.open(path, access)?;
        let stamps: Vec<_> =
            files.iter().map(|(coding, opened)| (*coding, Stamp::of(&opened.metadata))).collect();
        let coding = accepted.choose(|coding| stamps.iter().any(|(other, _)| *other == coding));
        if let Some(resource) = held
            && resource.is_unchanged(&stamps)
            && let Some(content) = resource.variant(coding).and_then(|variant| variant.content.clone())
        {
            resource.confirm(now);
            return Ok(Found { resource: Arc::clone(resource), coding, source: Source::Memory(content) });
        }

        let time = SystemTime::now();
        let varies = stamps.len() > 1;
        let fields = (content_type(path), varies, self.config.cache_control.as_ref());
        let mut variants: Vec<_> =
            stamps.iter().map(|(coding, stamp)| variant(*coding, *stamp, time, fields.clone())).collect();
        for variant in &mut variants {
            let old = held.and_then(|resource| resource.variant(variant.coding));
            variant.content =
                old.filter(|old| old.is_unchanged(&variant.stamp)).and_then(|old| old.content.clone());
        }
        let place = stamps.iter().position(|(other, _)| *other == coding).ok_or(OpenError::Failed)?;
        let (_, opened) = files.swap_remove(place);
        let largest = self.config.cached_file.min(self.config.cache).get();
        let chosen = &mut variants[place];
        if chosen.content.is_none() && chosen.stamp.len() <= largest {
            chosen.content = read(&opened, access)?;
        }
        let source = match &chosen.content {
            Some(content) => Source::Memory(content.clone()),
            None => Source::Disk(Arc::new(opened.file), Arc::clone(&self.counts)),
        };
        let resource = Arc::new(Resource::new(variants, now));
        match resource.cost(path) {
            Some(cost) => self.counts.evictions.add(self.cache.insert(path, Arc::clone(&resource), cost)),
            None if held.is_some() => self.cache.remove(path),
            None => {}
        }
        Ok(Found { resource, coding, source })
    }

    /// Opens a file, and those beside it that hold the same content compressed.
    fn open(&self, path: &str, access: Access) -> Result<Vec<(Coding, Opened)>, OpenError> {
        let handle = self.root.handle(access)?;
        let original = self.root.file(&handle, path, access)?;
        let stamp = Stamp::of(&original.metadata);
        let mut files = vec![(Coding::Identity, original)];
        if self.config.precompressed && !Coding::is_compressed(path) {
            for coding in Coding::COMPRESSED {
                match self.root.file(&handle, &format!("{path}{}", coding.suffix()), access) {
                    // It holds what the file was before: nobody compressed it again.
                    Ok(opened) if Stamp::of(&opened.metadata).is_older_than(&stamp) => {
                        self.counts.stale.one();
                    }
                    Ok(opened) => files.push((coding, opened)),
                    Err(error @ (OpenError::WouldBlock | OpenError::Busy)) => return Err(error),
                    // The file itself serves in place of one that is absent or unusable.
                    Err(_) => {}
                }
            }
        }
        Ok(files)
    }

    /// Returns a boundary of parts that no file can contain on purpose: its author cannot guess it.
    fn boundary(&self) -> String {
        let (keys, count) = &self.boundaries;
        let number = count.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}{:016x}", keys.hash_one((number, 0)), keys.hash_one((number, 1)))
    }
}
