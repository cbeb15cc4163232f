//! Content that is sent: blocks of bulk data, urgent messages, and their framing for stacks without
//! messages.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes as Payload;
use marcato_net::Connection;
use ring::digest::{Context, Digest, SHA256};

use crate::clock;

/// Size of a block of bulk data for stacks that keep a reference, ...
pub(crate) const BLOCK: usize = 1 << 20;
/// ... and for stacks that copy.
pub(crate) const WRITE: usize = 64 << 10;
/// Size of an urgent message in bytes.
pub(crate) const URGENT: usize = 1000;
/// Bytes of bulk data for the check: no round number.
pub(crate) const CHECKED: usize = 3_000_017;
/// Bytes of the header (kind and length) for stacks without messages.
pub(crate) const HEADER: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bulk,
    Urgent,
}

/// Returns bytes without repeated stretches.
pub(crate) fn pattern(seed: u64, len: usize) -> Payload {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

/// Returns an urgent message with its number and the time of hand-over.
pub(crate) fn urgent(number: u32, at: u64) -> Payload {
    let mut bytes = pattern(u64::from(number), URGENT).to_vec();
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes[4..12].copy_from_slice(&at.to_be_bytes());
    bytes.into()
}

/// Returns a block with its header.
pub(crate) fn framed(kind: Kind, body: &[u8]) -> Payload {
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.push(match kind {
        Kind::Bulk => b'b',
        Kind::Urgent => b'u',
    });
    bytes.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes.into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// Received data.
pub(crate) struct Tally {
    bulk: AtomicU64,
    /// Numbers and one-way times of urgent messages.
    urgent: Mutex<Vec<(u32, u64)>>,
    /// Hashes of bulk data and of urgent messages, if requested.
    hashes: Option<Mutex<[Context; 2]>>,
    /// Connection whose own counter is more exact: it counts the received part of a message at
    /// once.
    connection: Mutex<Option<Connection>>,
}

impl Tally {
    pub(crate) fn new(checks: bool) -> Self {
        Self {
            bulk: AtomicU64::new(0),
            urgent: Mutex::default(),
            hashes: checks.then(|| Mutex::new([Context::new(&SHA256), Context::new(&SHA256)])),
            connection: Mutex::default(),
        }
    }

    pub(crate) fn watch(&self, connection: Connection) {
        *self.connection.lock().expect("no panic") = Some(connection);
    }

    pub(crate) fn bulk(&self, bytes: &[u8]) {
        self.bulk.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let Some(hashes) = &self.hashes {
            hashes.lock().expect("no panic")[0].update(bytes);
        }
    }

    /// Records a complete urgent message.
    pub(crate) fn urgent(&self, bytes: &[u8]) {
        let now = clock::now();
        if let Some(hashes) = &self.hashes {
            hashes.lock().expect("no panic")[1].update(bytes);
        }
        let number = bytes.get(..4).and_then(|number| number.try_into().ok()).map_or(0, u32::from_be_bytes);
        let at = bytes.get(4..12).and_then(|at| at.try_into().ok()).map_or(0, u64::from_be_bytes);
        self.urgent.lock().expect("no panic").push((number, now.saturating_sub(at)));
    }

    /// Returns the received bytes of bulk data.
    pub(crate) fn bytes(&self) -> u64 {
        match &*self.connection.lock().expect("no panic") {
            Some(connection) => connection.stats().received.bytes.get(),
            None => self.bulk.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn urgents(&self) -> Vec<(u32, u64)> {
        self.urgent.lock().expect("no panic").clone()
    }

    /// Returns the numbers of hashed bytes and messages, and the digests.
    pub(crate) fn hashed(&self) -> Option<(u64, usize, [Digest; 2])> {
        let hashes = self.hashes.as_ref()?.lock().expect("no panic").clone();
        Some((self.bulk.load(Ordering::Relaxed), self.urgents().len(), hashes.map(Context::finish)))
    }
}

/// Inverse of [`framed`], for input split in any way.
#[derive(Default)]
pub(crate) struct Unframer {
    header: Vec<u8>,
    urgent: Vec<u8>,
    rest: usize,
}

impl Unframer {
    pub(crate) fn feed(&mut self, mut bytes: &[u8], tally: &Tally) {
        while !bytes.is_empty() {
            if self.rest == 0 {
                let more = bytes.len().min(HEADER - self.header.len());
                self.header.extend_from_slice(&bytes[..more]);
                bytes = &bytes[more..];
                if let Some(len) = self.header.get(1..HEADER).and_then(|len| len.try_into().ok()) {
                    self.rest = u32::from_be_bytes(len) as usize;
                }
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.rest));
            bytes = later;
            self.rest -= now.len();
            if self.header.first() == Some(&b'b') {
                tally.bulk(now);
            } else {
                self.urgent.extend_from_slice(now);
            }
            if self.rest == 0 {
                if !self.urgent.is_empty() {
                    tally.urgent(&self.urgent);
                }
                self.urgent.clear();
                self.header.clear();
            }
        }
    }
}
