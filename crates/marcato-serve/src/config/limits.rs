//! Bounds of what clients may use.

use std::time::Duration;

use marcato_document::Table;
use marcato_web::Limits;

use super::error::Faults;
use super::keys::Keys;

const KEYS: [&str; 10] = [
    "connections",
    "streams",
    "header-list",
    "fields",
    "staged",
    "upload-window",
    "handshake",
    "idle",
    "stall",
    "grace",
];

/// Reads `[limits]`.
pub(super) fn read(table: &Table, faults: &Faults) -> Limits {
    let keys = Keys::open(table, "[limits]", &KEYS, faults);
    let mut limits = Limits::default();
    if let Some(connections) = keys.whole("connections", 1..=1_000_000) {
        limits.connections = connections as usize;
    }
    set(&mut limits.streams, keys.whole("streams", 1..=10_000));
    set(&mut limits.header_list, keys.size("header-list", 1 << 10..=1 << 20));
    set(&mut limits.fields, keys.whole("fields", 1..=10_000).map(|most| most as usize));
    set(&mut limits.staged, keys.size("staged", 1 << 10..=64 << 20));
    // RFC 9113 §6.9.1; a connection may send four times as many.
    let window = keys.size("upload-window", 64 << 10..=256 << 20);
    set(&mut limits.upload_window, window.and_then(|bytes| u32::try_from(bytes.get()).ok()));
    let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
    set(&mut limits.handshake, keys.span("handshake", second / 10..=day));
    set(&mut limits.idle, keys.span("idle", second..=day));
    set(&mut limits.stall, keys.span("stall", second..=day));
    set(&mut limits.grace, keys.span("grace", Duration::ZERO..=day));
    limits
}

/// Replaces a default by a value that was given.
pub(super) fn set<T>(place: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *place = given;
    }
}
