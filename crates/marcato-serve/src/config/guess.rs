//! Table of guesses.

use marcato_document::form::{Flag, Text, Whole};
use marcato_document::{Keyed as _, Keys, keyed};
use marcato_units::Bytes;
use marcato_web::{GuessEntry, GuessTable};

use super::form::{By, Placed, Serve};
use super::located::Located;

/// Entries of a table, each with its place.
type Entries = Vec<(String, Located<String>)>;

/// Keys of `[guess]`.
#[derive(Default)]
pub(super) struct GuessKeys {
    prefetch: Option<Located<String>>,
    attachment: Option<Located<String>>,
    large: Option<Located<String>>,
    large_above: Option<u64>,
    decline_prefetch: bool,
    destinations: Entries,
    types: Entries,
    extensions: Entries,
}

keyed! {
    GuessKeys, "[guess]", |of: Serve|, onto Self::default();
    /// requests with `Sec-Purpose: prefetch`
    "prefetch" => prefetch: Placed(Text), optional("`\"u=4\"`");
    /// responses with `Content-Disposition: attachment`
    "attachment" => attachment: Placed(Text), optional("`\"u=6\"`");
    /// responses of unknown purpose longer than `large-above-bytes`
    "large" => large: Placed(Text), optional("`\"u=6\"`");
    /// that length, in bytes
    "large-above-bytes" => large_above: Whole(0..=u64::MAX), optional("`1000000`");
    /// answers prefetches of clients that save data with 503
    "decline-prefetch" => decline_prefetch: Flag, own();
    /// table by `Sec-Fetch-Dest`: `font = "u=2"`
    "destinations" => destinations: By(entries), own("documents and styles `u=0`, scripts and fonts `u=1`, images `u=2, i` …");
    /// table by content type, `image/png` before `image/*`
    "types" => types: By(entries), own("as destinations; streams of events and gRPC `u=1, i`");
    /// table by extension of the path, until the content type is known
    "extensions" => extensions: By(entries), own("as types");
}

fn entries(keys: &Keys<'_>, key: &'static str) -> Option<Entries> {
    let mut entries = Vec::new();
    for (key, item) in &keys.table(key)?.entries {
        match item.as_str() {
            Some(text) => entries.push((key.name.clone(), Located::at(item.place, text.to_owned()))),
            None => {
                let problem = format!("`{}` is a string, not {}", key.name, item.value.what());
                keys.faults.add(item.place, problem);
            }
        }
    }
    Some(entries)
}

/// Reads `[guess]`. The table itself judges its values, one at a time, so that each error has its place.
pub(super) fn read(keys: &Keys<'_>, key: &'static str) -> Option<GuessTable> {
    let faults = keys.faults;
    let of = GuessKeys::open(keys.table(key)?, faults, &Serve)?;
    let mut table = GuessTable::default();
    let mut set = |entry: GuessEntry<'_>, Located { value, place }: &Located<String>| {
        if let Err(error) = table.set(entry, value) {
            faults.add(*place, error.to_string());
        }
    };
    of.prefetch.iter().for_each(|value| set(GuessEntry::Prefetch, value));
    of.attachment.iter().for_each(|value| set(GuessEntry::Attachment, value));
    of.large.iter().for_each(|value| set(GuessEntry::Large, value));
    of.destinations.iter().for_each(|(name, value)| set(GuessEntry::Destination(name), value));
    of.types.iter().for_each(|(name, value)| set(GuessEntry::Type(name), value));
    of.extensions.iter().for_each(|(name, value)| set(GuessEntry::Extension(name), value));
    if let Some(bytes) = of.large_above {
        table.set_large_above(Bytes::new(bytes));
    }
    table.set_decline_prefetch(of.decline_prefetch);
    Some(table)
}
