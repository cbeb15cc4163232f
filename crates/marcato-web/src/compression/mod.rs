//! Compression of responses while they are sent: Zstandard, Brotli and gzip.
//!
//! [`Compression`] stands before any tower service, as a layer ([`Compression::around`], or `layer` of a router
//! of axum). It negotiates by RFC 9110 §12.5.3: weights, `identity;q=0` and `*`.
//!
//! | response | what happens |
//! |---|---|
//! | has `Content-Encoding` | passes as it is: nothing is compressed twice |
//! | has `Cache-Control: no-transform`, or a digest of its content | passes as it is |
//! | 204, 304, 1xx, `Content-Range`, a tunnel | passes as it is |
//! | of another type than [`types`](CompressionConfig::types) | passes as it is |
//! | shorter than [`min_size`](CompressionConfig::min_size) | passes as it is, with `Vary` |
//! | all others | compressed, with `Vary: accept-encoding` |
//!
//! A strong entity tag of a compressed response becomes weak, since its bytes may differ between two
//! responses (RFC 9110 §8.8.1). `Accept-Ranges` is removed. Ranges are those of the content as it is: a range
//! whose condition is a date is ignored if the client may hold compressed content of that date.
//!
//! # Security
//! A response with a secret and with text that a stranger may choose reveals the secret by its compressed
//! length (BREACH, CVE-2013-3587). Do not compress such responses: mask the secret, or send
//! `Cache-Control: no-transform`.
//!
//! ```
//! use http::{Request, Response};
//! use marcato_web::compression::Compression;
//! use tower_service::Service;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let page = tower::service_fn(async |_: Request<()>| {
//!     let page = http_body_util::Full::<bytes::Bytes>::from("<p>hello</p>".repeat(1000));
//!     Response::builder().header("content-type", "text/html").body(page)
//! });
//! let mut service = Compression::default().around(page);
//! let request = Request::get("/").header("accept-encoding", "gzip, zstd;q=0.5").body(())?;
//! let response = service.call(request).await?;
//! assert_eq!(response.headers()["content-encoding"], "gzip");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod body;
mod codec;
mod config;
mod counters;
mod rules;
mod service;
mod types;

use std::fmt;
use std::sync::Arc;

use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, IF_NONE_MATCH};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;

pub use body::CompressedBody;
pub use codec::Codec;
pub use config::{CompressionConfig, CompressionError};
pub use counters::CompressionCounters;
pub use service::{Compressed, CompressedFuture};

use crate::encoding::{Accepted, Coding};
use body::Work;
use counters::Counts;
use types::Types;

/// Compression of responses. Clones share its memory and its counters.
#[derive(Clone, Default)]
pub struct Compression(Arc<Shared>);

struct Shared {
    config: CompressionConfig,
    types: Types,
    counts: Counts,
}

impl Default for Shared {
    fn default() -> Self {
        let config = CompressionConfig::default();
        let types = Types::known(&config.types);
        Self { config, types, counts: Counts::default() }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl fmt::Debug for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compression")
            .field("config", &self.0.config)
            .field("counters", &self.counters())
            .finish()
    }
}

impl Compression {
    /// Creates a compression of responses.
    ///
    /// # Errors
    /// [`CompressionError`] if the configuration is not usable.
    pub fn new(config: CompressionConfig) -> Result<Self, CompressionError> {
        let types = config.check()?;
        Ok(Self(Arc::new(Shared { config, types, counts: Counts::default() })))
    }

    /// Configuration.
    pub fn config(&self) -> &CompressionConfig {
        &self.0.config
    }

    /// Returns the counts of all clones.
    pub fn counters(&self) -> CompressionCounters {
        self.0.counts.read()
    }

    /// Puts the compression before a service.
    pub fn around<S>(&self, service: S) -> Compressed<S> {
        Compressed::new(self.clone(), service)
    }

    /// Reads what the response to a request may be, before a service gets the request.
    ///
    /// A range on the condition of a date is removed if the client may hold compressed content of that date.
    pub fn negotiate<B>(&self, request: &mut Request<B>) -> Negotiated {
        let accepted = Accepted::parse(request.headers().get_all(ACCEPT_ENCODING));
        let is_able = *request.method() != Method::CONNECT
            // HTTP/1.0 has no chunks, so that a compressed body that breaks would look like a whole one.
            && request.version() > Version::HTTP_10
            // RFC 9111 §5.2.1.6: it asks for content that nobody has transformed.
            && !rules::forbids_transformation(request.headers());
        let coding = match is_able {
            true => accepted.choose_of(self.0.config.codecs.iter().map(|codec| codec.coding())),
            false => Coding::Identity,
        };
        let codec = self.0.config.codecs.iter().find(|codec| codec.coding() == coding).copied();
        if codec.is_some() {
            rules::drop_dated_range(request.headers_mut());
        }
        Negotiated {
            compression: self.clone(),
            codec,
            refuses_identity: accepted.refuses_identity(),
            method: request.method().clone(),
            known: request.headers().get_all(IF_NONE_MATCH).iter().cloned().collect(),
        }
    }
}

/// Result of the negotiation with a client, for one response.
#[derive(Clone, Debug)]
pub struct Negotiated {
    compression: Compression,
    /// Codec for the response, if the client accepts any.
    codec: Option<Codec>,
    /// True if the client excludes content without a coding.
    refuses_identity: bool,
    method: Method,
    /// Values of `If-None-Match`.
    known: Vec<HeaderValue>,
}

impl Negotiated {
    /// Compresses a response, or lets it pass as it is.
    pub fn apply<B: Body>(&self, response: Response<B>) -> Response<CompressedBody<B>> {
        let (mut head, body) = response.into_parts();
        let shared = &self.compression.0;
        if head.status == StatusCode::NOT_MODIFIED {
            rules::not_modified(&mut head.headers, &self.known, &shared.types);
        }
        if self.method == Method::CONNECT || !rules::may_vary(&head, &shared.types) {
            return Response::from_parts(head, CompressedBody::plain(body));
        }
        rules::vary(&mut head.headers);
        let is_head = self.method == Method::HEAD;
        let length = rules::length(&head.headers).or_else(|| body.size_hint().exact().filter(|_| !is_head));
        let least = if self.refuses_identity { 1 } else { shared.config.min_size.get().max(1) };
        let is_long = length.is_none_or(|length| length >= least);
        let Some(codec) = self.codec.filter(|_| is_long && head.status != StatusCode::PARTIAL_CONTENT) else {
            return Response::from_parts(head, CompressedBody::plain(body));
        };
        // RFC 9110 §9.3.2: HEAD has the fields of GET.
        if is_head {
            rules::encode(&mut head.headers, codec);
            return Response::from_parts(head, CompressedBody::plain(body));
        }
        let Some(work) = Work::begin(shared, codec, length) else {
            return Response::from_parts(head, CompressedBody::plain(body));
        };
        rules::encode(&mut head.headers, codec);
        debug_assert!(!head.headers.contains_key(CONTENT_LENGTH), "the length of a coding is not known");
        Response::from_parts(head, CompressedBody::compressed(body, work))
    }
}
