//! Compression of responses.

use marcato_document::Value;
use marcato_web::compression::{Codec, CompressionConfig, CompressionError};

use super::keys::Keys;
use super::limits::set;

const KEYS: [&str; 9] = [
    "directories",
    "origins",
    "codings",
    "zstd-level",
    "br-level",
    "gzip-level",
    "types",
    "min-size",
    "memory",
];
/// Most content types of a list.
const MAX_TYPES: usize = 1000;

/// Responses that are compressed, and the way in which they are.
///
/// Files of a directory hold nothing that only their reader may know. Responses of an origin may, and may repeat
/// what somebody else has put into their request: then compression reveals the secret by the length (BREACH).
/// So directories are compressed by default, and origins are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compress {
    /// True to compress files of directories, unless their site or route says otherwise.
    pub directories: bool,
    /// True to compress responses of origins, unless their site or route says otherwise.
    pub origins: bool,
    /// Codings, types and bounds.
    pub how: CompressionConfig,
}

impl Default for Compress {
    fn default() -> Self {
        Self { directories: true, origins: false, how: CompressionConfig::default() }
    }
}

impl Compress {
    /// Reads `compression`: true, false or a table.
    pub(super) fn read(keys: &Keys<'_>) -> Self {
        let mut read = Self::default();
        let Some(item) = keys.item("compression") else { return read };
        match &item.value {
            Value::Boolean(is_on) => (read.directories, read.origins) = (*is_on, *is_on),
            _ if item.as_table().is_some() => {
                if let Some(table) = keys.table("compression") {
                    read.read_table(&Keys::open(table, "[compression]", &KEYS, keys.faults));
                }
            }
            other => keys.fault(
                "compression",
                format!("`compression` is true, false or a table, not {}", other.what()),
            ),
        }
        read
    }

    fn read_table(&mut self, keys: &Keys<'_>) {
        set(&mut self.directories, keys.boolean("directories"));
        set(&mut self.origins, keys.boolean("origins"));
        set(&mut self.how.min_size, keys.size("min-size", 0..=1 << 30));
        set(&mut self.how.memory, keys.size("memory", 0..=1 << 40));
        if keys.has("codings") {
            let known = [Codec::ZSTD, Codec::BROTLI, Codec::GZIP];
            let mut codecs: Vec<Codec> = Vec::new();
            for (name, place) in keys.strings("codings", known.len()) {
                match known.into_iter().find(|codec| codec.name() == name) {
                    Some(codec) if codecs.contains(&codec) => {
                        keys.faults.add(place, CompressionError::Twice(codec.name()).to_string());
                    }
                    Some(codec) => codecs.push(codec),
                    None => {
                        let remedy = marcato_document::nearest::hint(name, known.map(Codec::name));
                        keys.faults.add(place, format!("{name:?} is no coding: {remedy}"));
                    }
                }
            }
            if codecs.is_empty() {
                keys.fault("codings", CompressionError::NoCodec.to_string());
            }
            self.how.codecs = codecs;
        }
        for codec in &mut self.how.codecs {
            let (least, most) = codec.levels();
            let (key, make): (_, fn(u8) -> Codec) = match codec {
                Codec::Zstd(_) => ("zstd-level", Codec::Zstd),
                Codec::Brotli(_) => ("br-level", Codec::Brotli),
                Codec::Gzip(_) => ("gzip-level", Codec::Gzip),
            };
            let level = keys.whole(key, least.into()..=most.into());
            if let Some(level) = level.and_then(|level| u8::try_from(level).ok()) {
                *codec = make(level);
            }
        }
        if keys.has("types") {
            let given = keys.strings("types", MAX_TYPES);
            for (name, place) in &given {
                if let Err(error) = CompressionConfig::check_type(name) {
                    keys.faults.add(*place, error.to_string());
                }
            }
            self.how.types = given.into_iter().map(|(name, _)| name.to_owned()).collect();
        }
    }
}
