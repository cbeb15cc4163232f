//! Map of the open streams of a connection.

use alloc::vec::Vec;

use crate::order::StreamId;

/// Entries of removed streams that are kept besides as many as there are open ones.
const SPARE: usize = 32;

/// Map from open streams to values, for streams that open in about the order of their ids.
///
/// HTTP/2 opens streams in order (RFC 9113 §5.1.1), and HTTP/3 nearly so. A new stream then goes to the
/// end of an array, and its id tells its place, as ids have equal distances. Where streams in between are
/// gone, a lookup is a search in few adjacent entries. On each request, that takes a fraction of the time
/// of a balanced tree.
///
/// Lookups take time logarithmic in the open streams, and so do insertions at the end and, in the mean,
/// removals. An insertion before others moves those.
#[derive(Clone, Debug)]
pub struct StreamMap<V> {
    /// Sorted by stream. A removed stream has no value, until the array is compacted.
    entries: Vec<(StreamId, Option<V>)>,
    len: usize,
    /// Binary logarithm of the distance of two ids: 1 in HTTP/2, 2 in HTTP/3.
    spacing: u32,
}

impl<V> StreamMap<V> {
    /// Creates an empty map.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), len: 0, spacing: 0 }
    }

    /// Number of streams.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no streams.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value of a stream.
    #[inline]
    pub fn get(&self, stream: StreamId) -> Option<&V> {
        self.entries[self.find(stream).ok()?].1.as_ref()
    }

    /// Returns the value of a stream, to change it.
    #[inline]
    pub fn get_mut(&mut self, stream: StreamId) -> Option<&mut V> {
        let at = self.find(stream).ok()?;
        self.entries[at].1.as_mut()
    }

    /// Returns true if the stream has a value.
    #[inline]
    pub fn contains(&self, stream: StreamId) -> bool {
        self.get(stream).is_some()
    }

    /// Sets the value of a stream, and returns the value before.
    #[inline]
    pub fn insert(&mut self, stream: StreamId, value: V) -> Option<V> {
        let before = match self.find(stream) {
            Ok(at) => self.entries[at].1.replace(value),
            Err(at) if at == self.entries.len() => {
                if let Some((last, _)) = self.entries.last() {
                    self.spacing = (stream.0 - last.0).trailing_zeros();
                }
                self.entries.push((stream, Some(value)));
                None
            }
            Err(at) => {
                self.entries.insert(at, (stream, Some(value)));
                None
            }
        };
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes a stream, and returns its value.
    #[inline]
    pub fn remove(&mut self, stream: StreamId) -> Option<V> {
        self.remove_if(stream, |_| true)
    }

    /// Removes a stream if its value fulfils a condition, and returns the value.
    #[inline]
    pub fn remove_if(&mut self, stream: StreamId, condition: impl FnOnce(&V) -> bool) -> Option<V> {
        let at = self.find(stream).ok()?;
        let value = self.entries[at].1.take_if(|value| condition(value))?;
        self.len -= 1;
        // Removals pay for compaction: at least half as many came before it as there are entries to look at.
        if self.entries.len() > 2 * self.len + SPARE {
            self.entries.retain(|(_, value)| value.is_some());
        }
        Some(value)
    }

    /// Returns the first stream with its value.
    pub fn first(&self) -> Option<(StreamId, &V)> {
        self.iter().next()
    }

    /// Removes the first stream, and returns it with its value.
    pub fn pop_first(&mut self) -> Option<(StreamId, V)> {
        let (first, _) = self.first()?;
        self.remove(first).map(|value| (first, value))
    }

    /// Streams with their values, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId, &V)> {
        self.entries.iter().filter_map(|(stream, value)| Some((*stream, value.as_ref()?)))
    }

    /// Returns the place of an entry, or the one where it would be.
    #[inline]
    fn find(&self, stream: StreamId) -> Result<usize, usize> {
        let len = self.entries.len();
        let Some((last, _)) = self.entries.last() else { return Err(0) };
        let Some(ahead) = last.0.checked_sub(stream.0) else { return Err(len) };
        // Wrong while a stream in between is gone.
        let back = usize::try_from(ahead >> self.spacing).unwrap_or(usize::MAX);
        let at = (len - 1).wrapping_sub(back);
        match self.entries.get(at) {
            Some((found, _)) if *found == stream => Ok(at),
            _ => self.entries.binary_search_by_key(&stream, |(other, _)| *other),
        }
    }
}

impl<V> Default for StreamMap<V> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_map_equals_a_model_and_keeps_few_removed_entries(
            ops in proptest::collection::vec((0..60_u64, 0..5_u8), 0..600),
            distance in 1..=4_u64,
        ) {
            let (mut map, mut model) = (StreamMap::new(), BTreeMap::new());
            let mut next = 0;
            for (number, (stream, op)) in ops.into_iter().enumerate() {
                // Most streams open in order.
                let stream = StreamId(if op == 0 { next += distance; next } else { next.saturating_sub(stream) });
                match op {
                    0 | 1 => prop_assert_eq!(map.insert(stream, number), model.insert(stream, number)),
                    2 => prop_assert_eq!(map.pop_first(), model.pop_first()),
                    3 => prop_assert_eq!(map.remove(stream), model.remove(&stream)),
                    _ => {
                        let is_even = |value: &usize| value.is_multiple_of(2);
                        let removed = model.get(&stream).copied().filter(is_even);
                        removed.inspect(|_| _ = model.remove(&stream));
                        prop_assert_eq!(map.remove_if(stream, is_even), removed);
                    }
                }
                prop_assert_eq!(map.get(stream), model.get(&stream));
                prop_assert_eq!(map.contains(stream), model.contains_key(&stream));
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(map.entries.len() <= 2 * map.len() + SPARE);
            }
            if let Some(value) = map.get_mut(StreamId(next)) {
                *value = usize::MAX;
                model.insert(StreamId(next), usize::MAX);
            }
            let streams: Vec<_> = map.iter().map(|(stream, value)| (stream, *value)).collect();
            prop_assert_eq!(streams, model.into_iter().collect::<Vec<_>>());
        }
    }
}
