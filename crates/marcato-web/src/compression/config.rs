//! Configuration of compression.

use marcato_units::Bytes;
use thiserror::Error;

use super::codec::Codec;
use super::types::Types;

/// Configuration of [`Compression`](super::Compression).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompressionConfig {
    /// Codings, the preferred one first: it is taken if a client accepts several equally. Zstandard, Brotli
    /// and gzip by default.
    pub codecs: Vec<Codec>,
    /// Content types that are compressed: `text/html`, `text/*`, or `application/*+json`.
    /// [`TYPES`](Self::TYPES) by default.
    ///
    /// Event streams (`text/event-stream`) and gRPC (`application/grpc…`) have to be named in full: their
    /// messages are small, and a flush after each of them costs more than it saves.
    pub types: Vec<String>,
    /// Least length of content that is compressed (512 B). Content whose length its head does not tell is
    /// compressed at any length.
    pub min_size: Bytes,
    /// Bound of the memory of all encoders (64 MiB). Responses beyond it are sent as they are.
    pub memory: Bytes,
}

impl CompressionConfig {
    /// Content types that are compressed by default.
    pub const TYPES: [&'static str; 14] = [
        "text/*",
        "application/*+json",
        "application/*+xml",
        "application/json",
        "application/javascript",
        "application/wasm",
        "application/x-javascript",
        "application/x-ndjson",
        "application/xml",
        "application/vnd.ms-fontobject",
        "font/otf",
        "font/ttf",
        "image/svg+xml",
        "image/x-icon",
    ];
}

impl Default for CompressionConfig {
    fn default() -> Self {
        Self {
            codecs: vec![Codec::ZSTD, Codec::BROTLI, Codec::GZIP],
            types: Self::TYPES.map(str::to_owned).to_vec(),
            min_size: Bytes::new(512),
            memory: Bytes::new(64 << 20),
        }
    }
}

/// Error returned for a configuration that is not usable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompressionError {
    /// There is no codec.
    #[error("there is no coding to compress with: name one, or turn compression off")]
    NoCodec,
    /// A coding is given twice.
    #[error("the coding `{0}` is given twice: remove one")]
    Twice(&'static str),
    /// A level is out of range.
    #[error("level {level} of `{coding}` is out of range: give {least} to {most}")]
    Level {
        /// Name of the coding.
        coding: &'static str,
        /// Level in the configuration.
        level: u8,
        /// Lowest level.
        least: u8,
        /// Highest level.
        most: u8,
    },
    /// A content type cannot be read.
    #[error("{0:?} is no content type: write \"text/html\", \"text/*\" or \"application/*+json\"")]
    Type(String),
}

impl CompressionConfig {
    /// Checks one of the content types.
    ///
    /// # Errors
    /// [`CompressionError::Type`] if it cannot be read.
    pub fn check_type(name: &str) -> Result<(), CompressionError> {
        Types::parse(&[name.to_owned()]).map(|_| ())
    }

    /// Checks the configuration. Returns its content types.
    pub(super) fn check(&self) -> Result<Types, CompressionError> {
        if self.codecs.is_empty() {
            return Err(CompressionError::NoCodec);
        }
        for (index, codec) in self.codecs.iter().enumerate() {
            codec.check()?;
            if self.codecs[..index].iter().any(|other| other.coding() == codec.coding()) {
                return Err(CompressionError::Twice(codec.name()));
            }
        }
        Types::parse(&self.types)
    }
}
