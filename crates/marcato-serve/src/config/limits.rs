//! Bounds of what clients may use.

use std::time::Duration;

use marcato_document::form::{Count, Single, SizeWithin, Small, SpanWithin};
use marcato_document::{Keys, keyed};
use marcato_units::Bytes;
use marcato_web::Limits;

use super::form::Serve;

const SECOND: Duration = Duration::from_secs(1);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// Returns the form of a size of at least so many bytes, and at most so many.
pub(super) const fn size(least: u64, most: u64) -> SizeWithin {
    SizeWithin(Bytes::new(least)..=Bytes::new(most))
}

keyed! {
    Limits, "[limits]", |of: Serve|, onto Self::default();
    /// connections at once
    "connections" => connections: Count(1..=1_000_000), own();
    /// requests at once on a connection of HTTP/2
    "streams" => streams: Small(1..=10_000), own();
    /// bytes of the fields of a request: of its whole head over HTTP/1.1
    "header-list" => header_list: size(1 << 10, 1 << 20), own();
    /// fields of a request
    "fields" => fields: Count(1..=10_000), own();
    /// bytes staged for a response before its handler waits
    "staged" => staged: size(1 << 10, 64 << 20), own();
    /// bytes of a request's body ahead of its reader over HTTP/2; a connection may send four times as many
    "upload-window" => upload_window: Window, own();
    /// time for a handshake, and for the head of a request
    "handshake" => handshake: SpanWithin(Duration::from_millis(100)..=DAY), own();
    /// time after which a connection without requests ends
    "idle" => idle: SpanWithin(SECOND..=DAY), own();
    /// time for which a client may take nothing of what waits for it, or send nothing of a body that is awaited
    "stall" => stall: SpanWithin(SECOND..=DAY), own();
    /// time for open requests after the server was told to end
    "grace" => grace: SpanWithin(Duration::ZERO..=DAY), own();
}

/// Window of HTTP/2 (RFC 9113 §6.9.1).
struct Window;

impl Single<Serve> for Window {
    type Value = u32;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, of: &Serve) -> Option<u32> {
        let bytes = size(64 << 10, 256 << 20).read_one(keys, key, of)?;
        u32::try_from(bytes.get()).ok()
    }

    fn toml(&self, bytes: &u32) -> String {
        Single::<Serve>::toml(&size(0, 0), &Bytes::new((*bytes).into()))
    }
}
