//! Compression of responses.

use marcato_document::form::{Flag, Single};
use marcato_document::nearest::hint;
use marcato_document::{Keys, array, keyed, quote};
use marcato_web::compression::{Codec, CompressionConfig, CompressionError};

use super::form::{By, FlagOr, Serve, each};
use super::limits::size;

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

/// Form of `compression`.
pub(super) const FORM: FlagOr<CompressKeys, Compress> = FlagOr {
    flag: |is_on| Compress { directories: is_on, origins: is_on, ..Compress::default() },
    table: CompressKeys::finish,
};

/// Keys of `[compression]`.
pub(super) struct CompressKeys {
    read: Compress,
    codings: Vec<&'static str>,
    zstd: u8,
    brotli: u8,
    gzip: u8,
}

impl Default for CompressKeys {
    fn default() -> Self {
        let read = Compress::default();
        let codings = read.how.codecs.iter().map(|codec| codec.name()).collect();
        let [zstd, brotli, gzip] = KNOWN.map(Codec::level);
        Self { read, codings, zstd, brotli, gzip }
    }
}

/// All codings, with their default levels.
const KNOWN: [Codec; 3] = [Codec::ZSTD, Codec::BROTLI, Codec::GZIP];

keyed! {
    CompressKeys, "[compression]", |of: Serve|, onto Self::default();
    /// compresses files of directories, unless their site or route says otherwise
    "directories" => read.directories: Flag, own();
    /// compresses responses of origins, unless their site or route says otherwise
    "origins" => read.origins: Flag, own();
    /// codings, the preferred one first
    "codings" => codings: Codings, own();
    /// level of zstd
    "zstd-level" => zstd: Level(Codec::ZSTD), own();
    /// level of Brotli
    "br-level" => brotli: Level(Codec::BROTLI), own();
    /// level of gzip
    "gzip-level" => gzip: Level(Codec::GZIP), own();
    /// content types that are compressed, as `"text/html"`, `"text/*"` or `"application/*+json"`
    "types" => read.how.types: By(types), own("[text, and what is like it](#compression)");
    /// least length of content that is compressed
    "min-size" => read.how.min_size: size(0, 1 << 30), own();
    /// memory of all encoders
    "memory" => read.how.memory: size(0, 1 << 40), own();
}

impl CompressKeys {
    fn finish(self) -> Compress {
        let known = [Codec::Zstd(self.zstd), Codec::Brotli(self.brotli), Codec::Gzip(self.gzip)];
        let named = |name: &&str| known.into_iter().find(|codec| codec.name() == *name);
        let mut read = self.read;
        read.how.codecs = self.codings.iter().filter_map(named).collect();
        read
    }
}

/// Names of codings.
struct Codings;

impl Single<Serve> for Codings {
    type Value = Vec<&'static str>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &Serve) -> Option<Vec<&'static str>> {
        keys.item(key)?;
        let mut names: Vec<&'static str> = Vec::new();
        for (name, place) in keys.several_strings(key, KNOWN.len()) {
            match KNOWN.into_iter().map(Codec::name).find(|known| *known == name) {
                Some(name) if names.contains(&name) => {
                    keys.faults.add(place, CompressionError::Twice(name).to_string());
                }
                Some(name) => names.push(name),
                None => {
                    let remedy = hint(name, KNOWN.map(Codec::name));
                    keys.faults.add(place, format!("{name:?} is no coding: {remedy}"));
                }
            }
        }
        if names.is_empty() {
            keys.fault(key, CompressionError::NoCodec.to_string());
        }
        Some(names)
    }

    fn toml(&self, names: &Vec<&'static str>) -> String {
        array(names.iter().map(|name| quote(name)))
    }
}

/// Level of a coding.
struct Level(Codec);

impl Single<Serve> for Level {
    type Value = u8;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &Serve) -> Option<u8> {
        let (least, most) = self.0.levels();
        u8::try_from(keys.small(key, least.into()..=most.into())?).ok()
    }

    fn toml(&self, level: &u8) -> String {
        level.to_string()
    }
}

fn types(keys: &Keys<'_>, key: &'static str) -> Option<Vec<String>> {
    Some(each(keys, key, MAX_TYPES, |name, _| {
        CompressionConfig::check_type(name).map_err(|error| error.to_string())?;
        Ok(name.to_owned())
    }))
}
